"""Reductions: sum, min, max, count, any, all, argmin, argmax, also by segment; histogram and bincount.

The order in which elements are combined depends on their number alone, so sums of floats have the same bytes on every
backend, with any number of threads:

* elements are taken in chunks of 4,096;
* a chunk is 16 columns: column j is x[j] + x[j + 16] + x[j + 32] + ..., from left to right;
* the columns of a chunk are added from left to right;
* the results of the chunks are summed in the same way, until one is left.

A segment is summed as if it were an array of its own: ``segment_sum(x, offsets)[i]`` has the bytes of
``sum(x[offsets[i]:offsets[i + 1]])``.
"""

from __future__ import annotations

import builtins
import math
from typing import Any, Final, Literal

import msgspec
import numpy as np

from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lib.reduce_kernels import (
    CHUNK,
    Reduction,
    bincount_kernel,
    chunk_kernel,
    copy_first,
    find_owners,
    first_position_kernel,
    gather_kernel,
    histogram_kernel,
    keys_kernel,
    negative_kernel,
    next_position_kernel,
    piece_kernel,
    short_kernel,
    test_bit,
)
from vyre.lib.scan import (
    ARITHMETIC,
    MAX_LENGTH,
    count_chosen,
    partition_operand,
    require_length,
    scan_operand,
    take_offsets,
)
from vyre.lib.scan_kernels import NO_POSITION
from vyre.lib.workspace import ArrayLike, Operand, Workspace, require_count, shows_program
from vyre.semantics.types import SIGNED, UNSIGNED, DType

__all__ = [
    "all", "any", "argmax", "argmin", "bincount", "count", "histogram", "max", "min", "segment_max", "segment_min",
    "segment_sum", "sum",
]  # fmt: skip

COUNTABLE: Final = (*ARITHMETIC, DType.BOOL)
_WHOLE: Final = tuple(dtype for dtype in ARITHMETIC if dtype.is_integer)
# Up to this many counters, each thread of a processor has its own.
_FEW_BINS: Final = 1024
# What an f32 holds.
_LARGEST_SCALE: Final = 3e38


@shows_program(lambda: chunk_kernel(_sum_of(DType.F32)))
def sum(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:  # noqa: A001
    """Return the sum of the elements; 0 if there are none.

    Unsigned integers add up to a u64, signed integers and bools to an i64, as in NumPy. Floats keep their type (f16 is
    added up in f32 and rounded once). The order of a float sum is fixed (see the module): the same bytes everywhere.

    ``out``, an array of one element of the result's type, keeps the result on the device.

    Cost: O(n) work, one read of memory, n / 4,096 elements of temporary memory.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> int(reduce.sum(np.array([200, 100], np.uint8)))
    300
    """
    workspace, dtype, count, operand = _take(x, COUNTABLE, backend, out)
    return _reduce_to(workspace, _sum_of(dtype), operand, count, out)


@shows_program(lambda: chunk_kernel(Reduction("min", DType.F32, DType.F32, DType.F32)))
def min(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:  # noqa: A001
    """Return the least element; BadInputs if there is none.

    A NaN loses against any number, as in ``np.fmin``: the result is NaN if all elements are. -0.0 is less than 0.0.

    Cost: as ``sum``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> float(reduce.min(np.array([2, -3, np.nan], np.float32)))
    -3.0
    """
    return _extreme("min", x, out, backend)


@shows_program(lambda: chunk_kernel(Reduction("max", DType.F32, DType.F32, DType.F32)))
def max(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:  # noqa: A001
    """Return the greatest element; BadInputs if there is none. NaNs and cost are as in ``min``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> int(reduce.max(np.array([2, 7, 1], np.int32)))
    7
    """
    return _extreme("max", x, out, backend)


@shows_program(lambda: chunk_kernel(_count_of(DType.U32, "is_set", DType.U32, "value")))
def count(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return how many elements are not zero (``out``: u32), as ``np.count_nonzero`` does. Cost: as ``sum``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.count(np.array([0, 7, 1], np.int32))
    2
    """
    workspace, dtype, length, operand = _take(x, COUNTABLE, backend, out)
    counted = _reduce_to(workspace, _count_of(dtype, "is_set", DType.U32, "value"), operand, length, out)
    return counted if out is not None else int(counted)


@shows_program(lambda: chunk_kernel(_count_of(DType.U32, "is_set", DType.BOOL, "is_set")))
def any(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:  # noqa: A001
    """Return whether an element is not zero (``out``: bool); False if there are no elements. Cost: as ``sum``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.any(np.array([0, 7, 1], np.int32))
    True
    """
    workspace, dtype, length, operand = _take(x, COUNTABLE, backend, out)
    found = _reduce_to(workspace, _count_of(dtype, "is_set", DType.BOOL, "is_set"), operand, length, out)
    return found if out is not None else bool(found)


@shows_program(lambda: chunk_kernel(_count_of(DType.U32, "is_zero", DType.BOOL, "is_zero")))
def all(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:  # noqa: A001
    """Return whether no element is zero (``out``: bool); True if there are no elements. Cost: as ``sum``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.all(np.array([0, 7, 1], np.int32))
    False
    """
    workspace, dtype, length, operand = _take(x, COUNTABLE, backend, out)
    found = _reduce_to(workspace, _count_of(dtype, "is_zero", DType.BOOL, "is_zero"), operand, length, out)
    return found if out is not None else bool(found)


@shows_program(lambda: first_position_kernel("min", DType.F32))
def argmin(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the first position of the least element (``out``: u32); BadInputs if there is none.

    A NaN loses against any number; if all elements are NaN, the position is 0. Zeros of both signs are the same.

    Cost: as ``sum``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.argmin(np.array([2, 1, 1], np.int32))
    1
    """
    return _position_of("min", x, out, backend)


@shows_program(lambda: first_position_kernel("max", DType.F32))
def argmax(x: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the first position of the greatest element (``out``: u32). NaNs and cost are as in ``argmin``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.argmax(np.array([2, 7, 7], np.int32))
    1
    """
    return _position_of("max", x, out, backend)


@shows_program(lambda: short_kernel(_sum_of(DType.F32), True))
def segment_sum(
    x: ArrayLike, offsets: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None
) -> Any:
    """Return the sum of each segment ``x[offsets[i]:offsets[i + 1]]``, with the type and the bytes of ``sum``.

    ``offsets`` are u32, start at 0, never fall and end at ``len(x)``. Empty segments have the sum 0.

    Cost: O(n + segments) work; segments of any lengths are balanced, since long ones are cut into chunks.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.segment_sum(np.array([1, 2, 3, 4], np.float32), np.array([0, 1, 1, 4], np.uint32))
    array([1., 0., 9.], dtype=float32)
    """
    workspace, dtype, count, operand = _take(x, COUNTABLE, backend, offsets, out)
    return _reduce_segments_to(workspace, _sum_of(dtype), operand, count, offsets, out)


@shows_program(lambda: short_kernel(Reduction("min", DType.F32, DType.F32, DType.F32), True))
def segment_min(
    x: ArrayLike, offsets: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None
) -> Any:
    """Return the least element of each segment; for an empty one the largest value of the type (inf for floats).

    Offsets and cost are as in ``segment_sum``, NaNs as in ``min``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.segment_min(np.array([3, 2, 4], np.uint8), np.array([0, 2, 2, 3], np.uint32))
    array([  2, 255,   4], dtype=uint8)
    """
    workspace, dtype, count, operand = _take(x, ARITHMETIC, backend, offsets, out)
    return _reduce_segments_to(workspace, Reduction("min", dtype, dtype, dtype), operand, count, offsets, out)


@shows_program(lambda: short_kernel(Reduction("max", DType.F32, DType.F32, DType.F32), True))
def segment_max(
    x: ArrayLike, offsets: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None
) -> Any:
    """Return the greatest element of each segment; for an empty one the smallest value of the type (-inf for floats).

    Offsets and cost are as in ``segment_sum``, NaNs as in ``min``.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.segment_max(np.array([3, 2, 4], np.uint8), np.array([0, 2, 2, 3], np.uint32))
    array([3, 0, 4], dtype=uint8)
    """
    workspace, dtype, count, operand = _take(x, ARITHMETIC, backend, offsets, out)
    return _reduce_segments_to(workspace, Reduction("max", dtype, dtype, dtype), operand, count, offsets, out)


@shows_program(lambda: histogram_kernel(DType.F32, DType.F32, None))
def histogram(
    x: ArrayLike,
    bins: int = 10,
    *,
    range: tuple[float, float] | None = None,  # noqa: A002
    out: ArrayLike = None,
    backend: str | Backend | None = None,
) -> Any:
    """Return how many elements (u32) fall into each of ``bins`` equal bins, as the counts of ``np.histogram``.

    The bins lie between the least and the greatest element, or between the two ends of ``range``; their edges are
    ``np.histogram_bin_edges(x, bins, range)``. The last bin includes its upper edge. Elements outside and NaNs are not
    counted.

    Cost: O(n) work, two reads of memory (one if ``range`` is given); up to 1,024 bins are fast.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.histogram(np.array([0, 1, 1, 3], np.uint32), 3)
    array([1, 2, 1], dtype=uint32)
    """
    number = require_count(bins, "bins", least=1, most=MAX_LENGTH)
    workspace, dtype, count, operand = _take(x, ARITHMETIC, backend, out)
    result = workspace.output(number, DType.U32, out)
    edges = _edges_of(workspace, dtype, operand, count, number, range)
    counters = workspace.zeros(_counters_for(number), DType.U32)
    thresholds, low, high = _thresholds_of(edges, dtype)
    if count and low <= high:
        # A guess that is far off costs time, and is corrected.
        scale = builtins.min(number / (float(edges[-1]) - float(edges[0])), _LARGEST_SCALE)
        starts = workspace.upload(thresholds)
        launch = histogram_kernel(dtype, _measure_of(dtype), len(counters) if number <= _FEW_BINS else None)
        launch.on(workspace.backend)[count](operand, starts, low, high, scale, counters)
    copy_first.on(workspace.backend)[number](counters, result)
    return workspace.deliver(result)


@shows_program(lambda: bincount_kernel(DType.U32, None))
def bincount(
    x: ArrayLike,
    minlength: int = 0,
    *,
    weights: ArrayLike = None,
    out: ArrayLike = None,
    backend: str | Backend | None = None,
) -> Any:
    """Return how often each value from 0 on occurs (u32), or the sum of the weights of its occurrences.

    ``x`` holds whole numbers from 0. The result has ``max(x) + 1`` elements, and at least ``minlength``. With
    ``weights``, one for each element, ``result[k]`` has the type and the bytes of ``sum(weights[x == k])``.

    Cost: O(n + max(x)) work; up to 1,024 bins are fast. With weights, O(n log max(x)): elements are sorted by bin.

    >>> import numpy as np
    >>> from vyre.lib import reduce
    >>> reduce.bincount(np.array([1, 3, 1], np.uint32))
    array([0, 2, 0, 1], dtype=uint32)
    """
    least = require_count(minlength, "minlength", most=MAX_LENGTH)
    workspace, dtype, count, operand = _take(x, _WHOLE, backend, weights, out)
    kind, weight = None, None
    if weights is not None:
        kind, _ = workspace.describe(weights, "weights", COUNTABLE)
        weight = workspace.take(weights, "weights", kind, count=count)
    if dtype in SIGNED:
        _require_no_negative(workspace, dtype, operand, count)
    most = int(_reduced(workspace, Reduction("max", dtype, dtype, dtype), operand, count)) if count else -1
    bins = builtins.max(most + 1, least)
    if bins > MAX_LENGTH:
        raise BadInputs(f"'x' has the element {most:,}, which would be a bin.", f"pass numbers below {MAX_LENGTH:,}.")
    if kind is not None:
        reduction = _sum_of(kind)
        result = workspace.output(bins, reduction.result, out)
        _sum_by_bin(workspace, reduction, dtype, operand, weight, count, bins, result)
        return workspace.deliver(result)
    result = workspace.output(bins, DType.U32, out)
    counters = _counted(workspace, dtype, operand, count, bins)
    if bins:
        copy_first.on(workspace.backend)[bins](counters, result)
    return workspace.deliver(result)


def reduce_operand(workspace: Workspace, reduction: Reduction, source: Operand, count: int, result: Operand) -> None:
    """Reduce the elements of an operand, of which there is at least one, into an operand of one element."""
    while count > CHUNK:
        chunks = -(-count // CHUNK)
        partials = workspace.empty(chunks, reduction.total)
        chunk_kernel(_of_chunk(reduction)).on(workspace.backend).grid(chunks)(source, partials)
        source, count, reduction = partials, chunks, _of_partials(reduction)
    chunk_kernel(reduction).on(workspace.backend).grid(1)(source, result)


def _of_chunk(reduction: Reduction) -> Reduction:
    """The reduction of one chunk of many: the total is not finished."""
    return msgspec.structs.replace(reduction, result=reduction.total, finish="value")


def _of_partials(reduction: Reduction) -> Reduction:
    """The reduction of what the chunks gave."""
    return msgspec.structs.replace(reduction, element=reduction.total, prepare="value")


def _take(
    x: ArrayLike, allowed: tuple[DType, ...], backend: str | Backend | None, *others: ArrayLike
) -> tuple[Workspace, DType, int, Operand]:
    workspace = Workspace(backend, x, *others)
    dtype, count = workspace.describe(x, "x", allowed)
    require_length(count, "x")
    return workspace, dtype, count, workspace.take(x, "x", dtype)


def _sum_of(dtype: DType) -> Reduction:
    if dtype.is_float:
        return Reduction("add", dtype, DType.F32 if dtype is DType.F16 else dtype, dtype)
    total = DType.U64 if dtype in UNSIGNED else DType.I64
    return Reduction("add", dtype, total, total)


def _extreme(op: Literal["min", "max"], x: ArrayLike, out: ArrayLike, backend: str | Backend | None) -> Any:
    workspace, dtype, count, operand = _take(x, ARITHMETIC, backend, out)
    _require_elements(count)
    return _reduce_to(workspace, Reduction(op, dtype, dtype, dtype), operand, count, out)


def _count_of(
    dtype: DType,
    prepare: Literal["is_set", "is_zero"],
    result: DType,
    finish: Literal["value", "is_set", "is_zero"],
) -> Reduction:
    return Reduction("add", dtype, DType.U32, result, prepare, finish)


def _require_elements(count: int) -> None:
    if not count:
        raise BadInputs("'x' has no elements.", "pass at least one element.")


def _reduce_to(workspace: Workspace, reduction: Reduction, operand: Operand, count: int, out: ArrayLike) -> Any:
    """The result as a scalar, or in the caller's ``out``."""
    result = workspace.output(1, reduction.result, out)
    if count:
        reduce_operand(workspace, reduction, operand, count, result)
    else:
        _assign(workspace, result, [reduction.finish == "is_zero"])
    return workspace.deliver(result) if out is not None else workspace.read(result)[0]


def _reduced(workspace: Workspace, reduction: Reduction, operand: Operand, count: int) -> Any:
    """The result as a scalar for the host."""
    result = workspace.empty(1, reduction.result)
    reduce_operand(workspace, reduction, operand, count, result)
    return workspace.read(result)[0]


def _assign(workspace: Workspace, operand: Operand, values: Any) -> None:
    """Copy a few values from the host into an operand."""
    if workspace.in_place:
        operand[...] = values
    else:
        operand.assign(np.array(values, operand.dtype.storage))


def _position_of(op: str, x: ArrayLike, out: ArrayLike, backend: str | Backend | None) -> Any:
    workspace, dtype, count, operand = _take(x, ARITHMETIC, backend, out)
    _require_elements(count)
    result = workspace.output(1, DType.U32, out)
    chunks = -(-count // CHUNK)
    found = result if chunks == 1 else workspace.empty(chunks, DType.U32)
    first_position_kernel(op, dtype).on(workspace.backend).grid(chunks)(operand, found)
    while chunks > 1:
        chunks = -(-chunks // CHUNK)
        among, found = found, result if chunks == 1 else workspace.empty(chunks, DType.U32)
        next_position_kernel(op, dtype).on(workspace.backend).grid(chunks)(operand, among, found)
    return workspace.deliver(result) if out is not None else int(workspace.read(result)[0])


def _reduce_segments_to(
    workspace: Workspace, reduction: Reduction, operand: Operand, count: int, offsets: ArrayLike, out: ArrayLike
) -> Any:
    taken = take_offsets(workspace, offsets, "offsets", count)
    segments = len(taken) - 1
    result = workspace.output(segments, reduction.result, out)
    _reduce_segments(workspace, reduction, operand, taken, segments, result)
    return workspace.deliver(result)


def _reduce_segments(
    workspace: Workspace, reduction: Reduction, operand: Operand, offsets: Operand, segments: int, result: Operand
) -> None:
    """Reduce short segments one by one, and long ones by chunks, whose results are the next segments."""
    writes_empty = True
    while segments:
        pieces, ends = workspace.zeros(segments + 1, DType.U32), workspace.empty(segments + 1, DType.U32)
        short = short_kernel(reduction, writes_empty).on(workspace.backend)
        short[segments](operand, offsets, pieces, result)
        scan_operand(workspace, "add", DType.U32, pieces, ends, segments + 1, is_exclusive=True)
        chunks = int(workspace.read(ends[segments:])[0])
        if not chunks:
            return
        owners, partials = workspace.empty(chunks, DType.U32), workspace.empty(chunks, reduction.total)
        find_owners.on(workspace.backend)[chunks](ends, owners)
        piece = piece_kernel(_of_chunk(reduction)).on(workspace.backend)
        piece.grid(chunks)(operand, offsets, ends, owners, partials)
        operand, offsets, reduction, writes_empty = partials, ends, _of_partials(reduction), False


def _edges_of(
    workspace: Workspace, dtype: DType, operand: Operand, count: int, bins: int, limits: tuple[float, float] | None
) -> Array:
    """The edges of the bins as NumPy has them."""
    ends = np.empty(0, dtype.storage)
    if limits is None and count:
        extremes = [_reduced(workspace, Reduction(op, dtype, dtype, dtype), operand, count) for op in ("min", "max")]
        ends = np.array(extremes, dtype.storage)
    try:
        edges: Array = np.histogram_bin_edges(ends, bins, limits)
    except (TypeError, ValueError) as error:
        what = "the range of 'x'" if limits is None else "'range'"
        raise BadInputs(
            f"{what} is no range of bins ({error}).", "pass range=(low, high), finite and in order."
        ) from None
    return edges


def _measure_of(dtype: DType) -> DType:
    """The type in which elements are compared with thresholds."""
    return DType.F32 if dtype is DType.F16 else dtype


def _thresholds_of(edges: Array, dtype: DType) -> tuple[Array, Any, Any]:
    """The least element of each bin that the type reaches, and the least and the greatest element that count."""
    starts = edges[:-1]
    if dtype.is_float:
        return starts.astype(_measure_of(dtype).storage), float(edges[0]), float(edges[-1])
    # A whole number is in a bin if it is not below the next whole number from the bin's edge on.
    reached = np.ceil(starts[np.ceil(starts) < float(dtype.maximum + 1)])
    least, most = math.ceil(edges[0]), math.floor(edges[-1])
    thresholds = np.maximum(reached, float(dtype.minimum)).astype(dtype.storage)
    return thresholds, builtins.max(least, dtype.minimum), builtins.min(most, dtype.maximum)


def _counters_for(bins: int) -> int:
    """The number of counters: few ones are a power of two, so that few kernels serve all numbers of bins."""
    return 1 << (bins - 1).bit_length() if 0 < bins <= _FEW_BINS else bins


def _counted(workspace: Workspace, dtype: DType, operand: Operand, count: int, bins: int) -> Operand:
    """How often each of the numbers below ``bins`` occurs; there may be more counters, which are zero."""
    counters = workspace.zeros(_counters_for(bins), DType.U32)
    if count:
        launch = bincount_kernel(dtype, len(counters) if bins <= _FEW_BINS else None)
        launch.on(workspace.backend)[count](operand, counters)
    return counters


def _require_no_negative(workspace: Workspace, dtype: DType, operand: Operand, count: int) -> None:
    if not count:
        return
    fault = workspace.upload(np.array([NO_POSITION], np.uint32))
    negative_kernel(dtype).on(workspace.backend)[count](operand, fault)
    at = int(workspace.read(fault)[0])
    if at != NO_POSITION:
        value = int(workspace.read(operand[at : at + 1])[0])
        raise BadInputs(f"'x' has the element {value:,} at position {at:,}.", "pass whole numbers from 0.")


def _sum_by_bin(
    workspace: Workspace,
    reduction: Reduction,
    dtype: DType,
    operand: Operand,
    weights: Operand,
    count: int,
    bins: int,
    result: Operand,
) -> None:
    """Sort the weights by bin, in order within each, by one bit after another, and sum the segments."""
    counters = workspace.zeros(bins + 1, DType.U32)
    offsets = workspace.empty(bins + 1, DType.U32)
    grouped = workspace.empty(count, reduction.element)
    if count:
        on = workspace.backend
        bincount_kernel(dtype, None).on(on)[count](operand, counters)
        keys, order = workspace.empty(count, DType.U32), workspace.empty(count, DType.U32)
        keys_kernel(dtype).on(on)[count](operand, keys, order)
        is_clear = workspace.empty(count, DType.U8)
        for bit in builtins.range((bins - 1).bit_length()):
            test_bit.on(on)[count](keys, bit, is_clear)
            chosen = count_chosen(workspace, DType.U8, is_clear, count)
            moved = workspace.empty(count, DType.U32), workspace.empty(count, DType.U32)
            for source, target in zip((keys, order), moved, strict=True):
                partition_operand(workspace, DType.U8, is_clear, chosen, source, target)
            keys, order = moved
        gather_kernel(reduction.element).on(on)[count](weights, order, grouped)
    scan_operand(workspace, "add", DType.U32, counters, offsets, bins + 1, is_exclusive=True)
    _reduce_segments(workspace, reduction, grouped, offsets, bins, result)
