"""Scans over add, min, max, and, or, xor; stream compaction and partition.

Arrays are scanned in blocks of 4,096 elements, and a block in rows of 16 elements, one for each lane of a subgroup. The
order in which elements are combined depends on their positions and segments alone, so sums of floats have the same
bytes on every backend, with any number of threads:

* within a row, element i takes element i - 1, then i - 2, i - 4 and i - 8, as far as they are in its segment;
* the rows of a block are chained: the last element of a row is combined with every element of the next row;
* the blocks are chained: the total of all blocks before is combined with every element of a block.

Scans are persistent kernels. The workgroups take one block each, add it up, wait for each other, and scan it while its
elements are still in a cache, until there are no more blocks. So memory is read once and written once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lang.arrays import DeviceArray
from vyre.lib.scan_kernels import (
    BLOCK,
    NO_POSITION,
    compact_kernel,
    count_kernel,
    find_fault,
    indices_kernel,
    mark_starts,
    partition_kernel,
    scan_kernel,
    segmented_kernel,
)
from vyre.lib.workspace import ArrayLike, Operand, Workspace, shows_program
from vyre.semantics.types import ALL_TYPES, NUMBERS, DType

__all__ = ["compact", "compact_indices", "exclusive", "inclusive", "partition"]

# Up to this length, an index that runs past the end by less than a block is still a u32.
MAX_LENGTH: Final = (1 << 32) - BLOCK
# What takes part in arithmetic, moves, and masks. Resident buffers have no type of their own, and count as the first.
ARITHMETIC: Final = (DType.U32, *(dtype for dtype in NUMBERS if dtype not in (DType.U32, DType.BF16)))
MOVED: Final = (DType.U32, *(dtype for dtype in ALL_TYPES if dtype is not DType.U32))
MASKS: Final = (DType.U32, DType.BOOL, DType.U8)
_BITWISE: Final = tuple(dtype for dtype in ARITHMETIC if dtype.is_integer)
OPS: Final = {"add": ARITHMETIC, "min": ARITHMETIC, "max": ARITHMETIC, **dict.fromkeys(("and", "or", "xor"), _BITWISE)}
_UNSIGNED: Final = {1: DType.U8, 2: DType.U16, 4: DType.U32, 8: DType.U64}
# The counts of a mask's blocks, those up to the end of each block, and how many there are in all.
Chosen = tuple[Operand, Operand, int]


@shows_program(lambda: scan_kernel("add", DType.U32, False))
def inclusive(
    x: ArrayLike,
    op: str = "add",
    *,
    offsets: ArrayLike = None,
    flags: ArrayLike = None,
    out: ArrayLike = None,
    backend: str | Backend | None = None,
) -> Any:
    """Return the running combination of the elements: ``result[i]`` combines ``x[0]`` to ``x[i]``.

    ``op`` is "add", "min", "max", "and", "or" or "xor"; the bitwise ones are for integers. The result has the type of
    ``x``, and integers wrap. In "min" and "max" a NaN loses against any number. Sums of floats are rounded in a fixed
    order (see the module), the same on every backend.

    ``offsets`` or ``flags`` make it a segmented scan, which starts anew at every segment. Segment i is
    ``x[offsets[i]:offsets[i + 1]]`` (u32, from 0 to ``len(x)``); or a segment starts where ``flags`` is not zero
    (bool, u8 or u32, one for each element).

    Cost: O(n) work; one read and one write of memory; n / 4,096 elements of temporary memory.

    >>> import numpy as np
    >>> from vyre.lib import scan
    >>> scan.inclusive(np.array([3, 1, 4, 1, 5], np.uint32))
    array([ 3,  4,  8,  9, 14], dtype=uint32)
    """
    return _scan(x, op, offsets, flags, out, backend, is_exclusive=False)


@shows_program(lambda: scan_kernel("add", DType.U32, True))
def exclusive(
    x: ArrayLike,
    op: str = "add",
    *,
    offsets: ArrayLike = None,
    flags: ArrayLike = None,
    out: ArrayLike = None,
    backend: str | Backend | None = None,
) -> Any:
    """Return the combination of the elements before each one: ``result[i]`` combines ``x[0]`` to ``x[i - 1]``.

    The first element, and the first of each segment, is what changes nothing: 0 for "add", "or" and "xor", all bits for
    "and", the largest value of the type for "min" and the smallest for "max" (infinities for floats). Everything else
    is as in ``inclusive``.

    >>> import numpy as np
    >>> from vyre.lib import scan
    >>> scan.exclusive(np.array([3, 1, 4, 1, 5], np.uint32))
    array([0, 3, 4, 8, 9], dtype=uint32)
    """
    return _scan(x, op, offsets, flags, out, backend, is_exclusive=True)


@shows_program(lambda: compact_kernel(DType.U32, DType.BOOL))
def compact(x: ArrayLike, mask: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the elements of ``x`` whose element of ``mask`` is not zero, in order, as ``x[mask != 0]`` does.

    ``mask`` is bool, u8 or u32 and as long as ``x``. ``out``, if given, has exactly as many elements as are kept.

    Cost: O(n) work; ``mask`` is read twice, ``x`` once; n / 2,048 elements of temporary memory.

    >>> import numpy as np
    >>> from vyre.lib import scan
    >>> scan.compact(np.array([10, 20, 30], np.int32), np.array([True, False, True]))
    array([10, 30], dtype=int32)
    """
    workspace = Workspace(backend, x, mask, out)
    dtype, count = workspace.describe(x, "x", MOVED)
    source = workspace.take(x, "x", dtype)
    flag, chosen = _take_mask(workspace, mask, "mask", count)
    counts, ends, kept = count_chosen(workspace, flag, chosen, count)
    result = workspace.output(kept, dtype, out)
    if kept:
        launch = compact_kernel(_unsigned_type(source), flag).on(workspace.backend).grid(blocks_of(count))
        launch(_as_bits(source), chosen, counts, ends, _as_bits(result))
    return workspace.deliver(result)


@shows_program(lambda: indices_kernel(DType.BOOL))
def compact_indices(mask: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the positions (u32) where ``mask`` is not zero, in order, as ``np.flatnonzero`` does.

    ``mask`` is bool, u8 or u32. ``out``, if given, has exactly as many elements as there are such positions.

    Cost: O(n) work; two reads of ``mask``; n / 2,048 elements of temporary memory.

    >>> import numpy as np
    >>> from vyre.lib import scan
    >>> scan.compact_indices(np.array([True, False, True]))
    array([0, 2], dtype=uint32)
    """
    workspace = Workspace(backend, mask, out)
    _, count = workspace.describe(mask, "mask", MASKS)
    flag, chosen = _take_mask(workspace, mask, "mask", count)
    counts, ends, kept = count_chosen(workspace, flag, chosen, count)
    result = workspace.output(kept, DType.U32, out)
    if kept:
        indices_kernel(flag).on(workspace.backend).grid(blocks_of(count))(chosen, counts, ends, result)
    return workspace.deliver(result)


@shows_program(lambda: partition_kernel(DType.U32, DType.BOOL))
def partition(
    x: ArrayLike, mask: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None
) -> tuple[Any, int]:
    """Return the elements where ``mask`` is not zero, then the others, both in order, and the number of the first.

    ``mask`` is bool, u8 or u32 and as long as ``x``.

    Cost: O(n) work; ``mask`` is read twice, ``x`` once; n / 2,048 elements of temporary memory.

    >>> import numpy as np
    >>> from vyre.lib import scan
    >>> scan.partition(np.array([10, 20, 30], np.int32), np.array([False, True, True]))
    (array([20, 30, 10], dtype=int32), 2)
    """
    workspace = Workspace(backend, x, mask, out)
    dtype, count = workspace.describe(x, "x", MOVED)
    source = workspace.take(x, "x", dtype)
    flag, chosen = _take_mask(workspace, mask, "mask", count)
    result = workspace.output(count, dtype, out)
    counts, ends, kept = count_chosen(workspace, flag, chosen, count)
    if count:
        partition_operand(workspace, flag, chosen, (counts, ends, kept), source, result)
    return workspace.deliver(result), kept


def _scan(
    x: ArrayLike,
    op: str,
    offsets: ArrayLike,
    flags: ArrayLike,
    out: ArrayLike,
    backend: str | Backend | None,
    *,
    is_exclusive: bool,
) -> Any:
    if op not in OPS:
        raise BadInputs(f"'op' is {op!r:.60}.", f"pass one of {', '.join(map(repr, OPS))}.")
    if offsets is not None and flags is not None:
        raise BadInputs("both 'offsets' and 'flags' are given.", "say where segments start by one of them.")
    workspace = Workspace(backend, x, offsets, flags, out)
    dtype, count = workspace.describe(x, "x", OPS[op])
    require_length(count, "x")
    source = workspace.take(x, "x", dtype)
    flag, starts = None, None
    if flags is not None:
        flag, starts = _take_mask(workspace, flags, "flags", count)
    elif offsets is not None:
        flag, starts = DType.U8, _starts_of(workspace, take_offsets(workspace, offsets, "offsets", count), count)
    result = workspace.output(count, dtype, out)
    if flag is None:
        scan_operand(workspace, op, dtype, source, result, count, is_exclusive=is_exclusive)
    elif count:
        blocks = blocks_of(count)
        totals, breaks = workspace.empty(blocks, dtype), workspace.empty(blocks, DType.U32)
        launch = segmented_kernel(op, dtype, flag, is_exclusive)
        launch.on(workspace.backend).grid(workspace.workgroups(blocks, 1))(source, starts, totals, breaks, result)
    return workspace.deliver(result)


def scan_operand(
    workspace: Workspace, op: str, dtype: DType, source: Operand, result: Operand, count: int, *, is_exclusive: bool
) -> None:
    """Scan an operand of ``count`` elements into another one."""
    if count:
        blocks = blocks_of(count)
        launch = scan_kernel(op, dtype, is_exclusive).on(workspace.backend).grid(workspace.workgroups(blocks, 1))
        launch(source, workspace.empty(blocks, dtype), result)


def take_offsets(workspace: Workspace, offsets: ArrayLike, name: str, count: int) -> Operand:
    """Offsets of segments as an operand; BadInputs unless they start at 0, never fall and end at ``count``."""
    _, length = workspace.describe(offsets, name, (DType.U32,))
    operand = workspace.take(offsets, name, DType.U32)
    fix = f"pass offsets that start at 0, never fall and end at {count:,}, the number of elements."
    if not length:
        raise BadInputs(f"'{name}' is empty.", fix)
    fault = workspace.upload(np.array([NO_POSITION], np.uint32))
    find_fault.on(workspace.backend)[length](operand, count, fault)
    at = int(workspace.read(fault)[0])
    if at == NO_POSITION:
        return operand
    value = int(workspace.read(operand[at : at + 1])[0])
    before = int(workspace.read(operand[at - 1 : at])[0]) if at else 0
    if before > value:
        raise BadInputs(f"'{name}' falls from {before:,} to {value:,} at position {at:,}.", fix)
    raise BadInputs(f"'{name}' is {value:,} at position {at:,}, where segments {'end' if at else 'start'}.", fix)


def require_length(count: int, name: str) -> None:
    """Raise unless positions in the last block of an array are u32."""
    if count > MAX_LENGTH:
        raise BadInputs(f"'{name}' has {count:,} elements, at most {MAX_LENGTH:,} work.", "split it into parts.")


def blocks_of(count: int) -> int:
    return -(-count // BLOCK)


def _take_mask(workspace: Workspace, mask: ArrayLike, name: str, count: int) -> tuple[DType, Operand]:
    flag, _ = workspace.describe(mask, name, MASKS)
    require_length(count, name)
    return flag, workspace.take(mask, name, flag, count=count)


def _starts_of(workspace: Workspace, offsets: Operand, count: int) -> Operand:
    """For each element whether a segment starts there."""
    starts = workspace.zeros(count, DType.U8)
    if len(offsets) > 1:
        mark_starts.on(workspace.backend)[len(offsets) - 1](offsets, starts)
    return starts


def count_chosen(workspace: Workspace, flag: DType, mask: Operand, count: int) -> Chosen:
    """Count the elements of a mask that are not zero: in each block, up to the end of each block, and in all."""
    blocks = blocks_of(count)
    counts, ends = workspace.empty(blocks, DType.U32), workspace.empty(blocks, DType.U32)
    if not blocks:
        return counts, ends, 0
    count_kernel(flag).on(workspace.backend).grid(blocks)(mask, counts)
    scan_operand(workspace, "add", DType.U32, counts, ends, blocks, is_exclusive=False)
    return counts, ends, int(workspace.read(ends[blocks - 1 :])[0])


def partition_operand(
    workspace: Workspace, flag: DType, mask: Operand, chosen: Chosen, source: Operand, result: Operand
) -> None:
    """Write the elements of an operand that are chosen, then the others, into another one."""
    counts, ends, kept = chosen
    launch = partition_kernel(_unsigned_type(source), flag).on(workspace.backend).grid(len(counts))
    launch(_as_bits(source), mask, counts, ends, _as_bits(result), kept)


def _unsigned_type(operand: Operand) -> DType:
    return _UNSIGNED[operand.dtype.bytes if isinstance(operand, DeviceArray) else operand.dtype.itemsize]


def _as_bits(operand: Operand) -> Operand:
    """The elements of an operand as unsigned integers: what is only moved needs no kernel for each type."""
    dtype = _unsigned_type(operand)
    return DeviceArray.over(operand.buffer, dtype) if isinstance(operand, DeviceArray) else operand.view(dtype.storage)
