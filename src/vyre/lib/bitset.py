"""Sets of small numbers as bits: bit i of a set is bit ``i & 31`` of word ``i >> 5``, in an array of u32 words.

The bits of the last word beyond the number of bits are zero in every set that these functions make of sets for which
they are. Results may be written over one of the operands: ``or_(a, b, out=a)``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import vyre
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lang.arrays import DeviceArray
from vyre.lang.kernel import Kernel
from vyre.lib.bitset_kernels import (
    APART,
    INTO_LEFT,
    INTO_RIGHT,
    WORD,
    WORDS_PER_WORKGROUP,
    clear_each,
    copy_words,
    count_bits,
    find_bit,
    find_difference,
    find_extra,
    find_outside,
    invert,
    invert_in_place,
    list_bits,
    pack_kernel,
    select_bits,
    set_each,
    test_each,
    unpack,
)
from vyre.lib.reduce import reduce_operand
from vyre.lib.reduce_kernels import Reduction
from vyre.lib.scan import MASKS, scan_operand
from vyre.lib.scan_kernels import NO_POSITION
from vyre.lib.workspace import ArrayLike, Operand, Workspace, require_count, shows_program
from vyre.semantics.types import DType

__all__ = [
    "and_", "and_not", "any", "clear_bits", "copy", "equal", "from_bools", "from_indices", "indices", "not_", "or_",
    "popcount", "select", "set_bits", "subset", "test_bits", "to_bools", "words_for", "xor", "zero", "zeros",
]  # fmt: skip

# Positions of bits are u32, and one value stands for none.
MAX_BITS: Final = (1 << 32) - 1


def words_for(count: int) -> int:
    """Return the number of words of a set of ``count`` bits.

    >>> from vyre.lib import bitset
    >>> bitset.words_for(33)
    2
    """
    return -(-require_count(count, "count", most=MAX_BITS) // WORD)


def zeros(count: int, *, backend: str | Backend | None = None) -> Any:
    """Return the empty set of ``count`` bits: a NumPy array, or, if ``backend`` is given, a device array there.

    >>> from vyre.lib import bitset
    >>> bitset.zeros(40)
    array([0, 0], dtype=uint32)
    """
    made = np.zeros(words_for(count), np.uint32)
    return made if backend is None else vyre.array(made, backend=backend)


@shows_program(lambda: pack_kernel(DType.BOOL))
def from_bools(bools: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the set of the positions where ``bools`` (bool, u8 or u32) is not zero.

    Cost: O(n) work, one read of ``bools``.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.from_bools(np.array([True, False, True]))
    array([5], dtype=uint32)
    """
    workspace = Workspace(backend, bools, out)
    flag, count = workspace.describe(bools, "bools", MASKS)
    source = workspace.take(bools, "bools", flag)
    words = words_for(count)
    result = workspace.output(words, DType.U32, out)
    if words:
        pack_kernel(flag).on(workspace.backend).grid(-(-words // WORDS_PER_WORKGROUP))(source, result)
    return workspace.deliver(result)


@shows_program(lambda: unpack)
def to_bools(words: ArrayLike, count: int, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return for each of ``count`` positions whether it is in the set, as bools.

    Cost: O(count) work, one write of the bools.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.to_bools(np.array([5], np.uint32), 4)
    array([ True, False,  True, False])
    """
    workspace = Workspace(backend, words, out)
    source = workspace.take(words, "words", DType.U32, count=words_for(count))
    result = workspace.output(count, DType.BOOL, out)
    if count:
        unpack.on(workspace.backend).grid(-(-words_for(count) // WORDS_PER_WORKGROUP))(source, result)
    return workspace.deliver(result)


@shows_program(lambda: set_each)
def from_indices(indices: ArrayLike, count: int, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the set of ``count`` bits with those at ``indices`` (u32, in any order, repeated or not).

    Cost: O(words) work, and an atomic for each index.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.from_indices(np.array([0, 33, 0], np.uint32), 40)
    array([1, 2], dtype=uint32)
    """
    workspace = Workspace(backend, indices, out)
    positions = _take_indices(workspace, indices, require_count(count, "count", most=MAX_BITS))
    read = [positions] if workspace.in_place else []
    result = workspace.output(words_for(count), DType.U32, out, apart_from=read)
    _fill_with_zeros(workspace, result)
    if len(positions):
        set_each.on(workspace.backend)[len(positions)](positions, result)
    return workspace.deliver(result)


@shows_program(lambda: list_bits)
def indices(words: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the positions in the set (u32), in order.

    Cost: O(words + positions) work; two words of temporary memory for each word.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.indices(np.array([5, 2], np.uint32))
    array([ 0,  2, 33], dtype=uint32)
    """
    workspace = Workspace(backend, words, out)
    source, length = _take_words(workspace, words, "words")
    before, total = _count_before(workspace, source, length)
    result = workspace.output(total, DType.U32, out)
    if total:
        list_bits.on(workspace.backend)[length](source, before, result)
    return workspace.deliver(result)


@shows_program(lambda: APART["and"])
def and_(a: ArrayLike, b: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the intersection of two sets of the same length; ``out`` may be one of them. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.and_(np.array([6], np.uint32), np.array([3], np.uint32))
    array([2], dtype=uint32)
    """
    return _combine("and", a, b, out, backend)


@shows_program(lambda: APART["or"])
def or_(a: ArrayLike, b: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the union of two sets of the same length; ``out`` may be one of them. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.or_(np.array([6], np.uint32), np.array([3], np.uint32))
    array([7], dtype=uint32)
    """
    return _combine("or", a, b, out, backend)


@shows_program(lambda: APART["xor"])
def xor(a: ArrayLike, b: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return what is in one of two sets of the same length only; ``out`` may be one of them. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.xor(np.array([6], np.uint32), np.array([3], np.uint32))
    array([5], dtype=uint32)
    """
    return _combine("xor", a, b, out, backend)


@shows_program(lambda: APART["and_not"])
def and_not(a: ArrayLike, b: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return what is in ``a`` and not in ``b``, of the same length; ``out`` may be one of them. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.and_not(np.array([6], np.uint32), np.array([3], np.uint32))
    array([4], dtype=uint32)
    """
    return _combine("and_not", a, b, out, backend)


@shows_program(lambda: invert)
def not_(words: ArrayLike, count: int, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return the complement of a set of ``count`` bits; ``out`` may be the set itself. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.not_(np.array([5], np.uint32), 4)
    array([10], dtype=uint32)
    """
    length = words_for(count)
    workspace = Workspace(backend, words, out)
    source = workspace.take(words, "words", DType.U32, count=length)
    result = workspace.output(length, DType.U32, out)
    if length and _is_same(source, result):
        invert_in_place.on(workspace.backend)[length](result, count)
    elif length:
        invert.on(workspace.backend)[length](source, result, count)
    return workspace.deliver(result)


@shows_program(lambda: copy_words)
def copy(words: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return a copy of a set, in ``out`` if it is given. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.copy(np.array([5, 2], np.uint32))
    array([5, 2], dtype=uint32)
    """
    workspace = Workspace(backend, words, out)
    source, length = _take_words(workspace, words, "words")
    result = workspace.output(length, DType.U32, out)
    if length and not _is_same(source, result):
        copy_words.on(workspace.backend)[length](source, result)
    return workspace.deliver(result)


def zero(words: ArrayLike, *, backend: str | Backend | None = None) -> Any:
    """Remove everything from a set, in place, and return it. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.zero(np.array([5, 2], np.uint32))
    array([0, 0], dtype=uint32)
    """
    workspace = Workspace(backend, words)
    _, length = workspace.describe(words, "words", (DType.U32,))
    result = workspace.output(length, DType.U32, words, "words")
    _fill_with_zeros(workspace, result)
    return workspace.deliver(result)


@shows_program(lambda: set_each)
def set_bits(
    words: ArrayLike, indices: ArrayLike, *, count: int | None = None, backend: str | Backend | None = None
) -> Any:
    """Add the positions ``indices`` (u32, repeated or not) to a set, in place, and return it.

    ``count`` is the number of bits of the set, by default all bits of its words. BadInputs names the first index that
    is not less.

    Cost: an atomic for each index.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.set_bits(np.array([1, 0], np.uint32), np.array([1, 32, 1], np.uint32))
    array([3, 1], dtype=uint32)
    """
    return _change_bits(set_each, words, indices, count, backend)


@shows_program(lambda: clear_each)
def clear_bits(
    words: ArrayLike, indices: ArrayLike, *, count: int | None = None, backend: str | Backend | None = None
) -> Any:
    """Remove the positions ``indices`` (u32, repeated or not) from a set, in place, and return it; as ``set_bits``.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.clear_bits(np.array([7, 1], np.uint32), np.array([1, 32, 1], np.uint32))
    array([5, 0], dtype=uint32)
    """
    return _change_bits(clear_each, words, indices, count, backend)


@shows_program(lambda: test_each)
def test_bits(
    words: ArrayLike,
    indices: ArrayLike,
    *,
    count: int | None = None,  # noqa: PT028 (this is no test)
    out: ArrayLike = None,  # noqa: PT028
    backend: str | Backend | None = None,  # noqa: PT028
) -> Any:
    """Return for each of the positions ``indices`` (u32) whether it is in the set, as bools.

    ``count`` is as in ``set_bits``.

    Cost: O(indices) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.test_bits(np.array([5], np.uint32), np.array([0, 1, 2], np.uint32))
    array([ True, False,  True])
    """
    workspace = Workspace(backend, words, indices, out)
    source, length = _take_words(workspace, words, "words")
    positions = _take_indices(workspace, indices, _count_of(length, count))
    result = workspace.output(len(positions), DType.BOOL, out)
    if len(positions):
        test_each.on(workspace.backend)[len(positions)](source, positions, result)
    return workspace.deliver(result)


@shows_program(lambda: find_bit)
def any(words: ArrayLike, *, backend: str | Backend | None = None) -> bool:  # noqa: A001
    """Return whether a set has a bit. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.any(np.array([0, 0], np.uint32))
    False
    """
    workspace = Workspace(backend, words)
    source, length = _take_words(workspace, words, "words")
    return _is_found(workspace, find_bit, length, source)


@shows_program(lambda: find_difference)
def equal(a: ArrayLike, b: ArrayLike, *, backend: str | Backend | None = None) -> bool:
    """Return whether two sets of the same length are the same. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.equal(np.array([5], np.uint32), np.array([5], np.uint32))
    True
    """
    workspace, first, second, length = _take_two(a, b, None, backend)
    return not _is_found(workspace, find_difference, length, first, second)


@shows_program(lambda: find_extra)
def subset(a: ArrayLike, b: ArrayLike, *, backend: str | Backend | None = None) -> bool:
    """Return whether everything in ``a`` is in ``b`` too, of the same length. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.subset(np.array([4], np.uint32), np.array([5], np.uint32))
    True
    """
    workspace, first, second, length = _take_two(a, b, None, backend)
    return not _is_found(workspace, find_extra, length, first, second)


def popcount(words: ArrayLike, *, backend: str | Backend | None = None) -> int:
    """Return the number of bits in a set. Cost: O(words) work.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.popcount(np.array([5, 1], np.uint32))
    3
    """
    workspace = Workspace(backend, words)
    source, length = _take_words(workspace, words, "words")
    return _popcount_of(workspace, source, length)


@shows_program(lambda: select_bits)
def select(words: ArrayLike, ranks: ArrayLike, *, out: ArrayLike = None, backend: str | Backend | None = None) -> Any:
    """Return for each of ``ranks`` (u32) the position of the set's bit of that rank; rank 0 is the first bit.

    Where a set has no bit of that rank, the position is 0xFFFFFFFF.

    Cost: O(words + ranks log words) work; two words of temporary memory for each word.

    >>> import numpy as np
    >>> from vyre.lib import bitset
    >>> bitset.select(np.array([5, 2], np.uint32), np.array([2, 0, 3], np.uint32))
    array([        33,          0, 4294967295], dtype=uint32)
    """
    workspace = Workspace(backend, words, ranks, out)
    source, length = _take_words(workspace, words, "words")
    wanted = workspace.take(ranks, "ranks", DType.U32)
    result = workspace.output(len(wanted), DType.U32, out)
    before, total = _count_before(workspace, source, length)
    if len(wanted):
        select_bits.on(workspace.backend)[len(wanted)](source, before, wanted, total, result)
    return workspace.deliver(result)


def _take_words(workspace: Workspace, words: ArrayLike, name: str) -> tuple[Operand, int]:
    """A set as an operand, and the number of its words."""
    _, length = workspace.describe(words, name, (DType.U32,))
    most = words_for(MAX_BITS)
    if length > most:
        raise BadInputs(f"'{name}' has {length:,} words, and positions are u32.", f"pass at most {most:,} words.")
    return workspace.take(words, name, DType.U32), length


def _take_two(
    a: ArrayLike, b: ArrayLike, out: ArrayLike, backend: str | Backend | None
) -> tuple[Workspace, Operand, Operand, int]:
    workspace = Workspace(backend, a, b, out)
    first, length = _take_words(workspace, a, "a")
    return workspace, first, workspace.take(b, "b", DType.U32, count=length), length


def _take_indices(workspace: Workspace, indices: ArrayLike, count: int) -> Operand:
    """Positions as an operand; BadInputs names the first that is not less than ``count``."""
    positions = workspace.take(indices, "indices", DType.U32)
    if len(positions):
        fault = workspace.upload(np.array([NO_POSITION], np.uint32))
        find_outside.on(workspace.backend)[len(positions)](positions, count, fault)
        at = int(workspace.read(fault)[0])
        if at != NO_POSITION:
            value = int(workspace.read(positions[at : at + 1])[0])
            message = f"'indices' has {value:,} at position {at:,}, and the set has {count:,} bits."
            raise BadInputs(message, f"pass indices below {count:,}.")
    return positions


def _count_of(length: int, count: int | None) -> int:
    """The number of bits of a set of ``length`` words, which the caller may have said."""
    if count is None:
        return min(length * WORD, MAX_BITS)
    if words_for(count) != length:
        message = f"'words' has {length:,} elements, expected {words_for(count):,} for {count:,} bits."
        raise BadInputs(message, f"pass {words_for(count):,} words.")
    return count


def _is_same(a: Operand, b: Operand) -> bool:
    """Whether two operands of the same type and length are the same memory."""
    if isinstance(a, DeviceArray):
        return a.buffer is b.buffer
    return bool(a.__array_interface__["data"] == b.__array_interface__["data"])


def _fill_with_zeros(workspace: Workspace, operand: Operand) -> None:
    if workspace.in_place:
        operand.fill(0)
    elif len(operand):
        operand.fill()


def _combine(op: str, a: ArrayLike, b: ArrayLike, out: ArrayLike, backend: str | Backend | None) -> Any:
    workspace, first, second, length = _take_two(a, b, out, backend)
    result = workspace.output(length, DType.U32, out)
    if not length:
        return workspace.deliver(result)
    if _is_same(first, result) and _is_same(second, result):
        # A set with itself: the same, or empty.
        if op in ("xor", "and_not"):
            _fill_with_zeros(workspace, result)
    elif _is_same(first, result):
        INTO_LEFT[op].on(workspace.backend)[length](result, second)
    elif _is_same(second, result):
        INTO_RIGHT[op].on(workspace.backend)[length](result, first)
    else:
        APART[op].on(workspace.backend)[length](first, second, result)
    return workspace.deliver(result)


def _change_bits(
    change: Kernel, words: ArrayLike, indices: ArrayLike, count: int | None, backend: str | Backend | None
) -> Any:
    workspace = Workspace(backend, words, indices)
    _, length = workspace.describe(words, "words", (DType.U32,))
    positions = _take_indices(workspace, indices, _count_of(length, count))
    result = workspace.update(words, "words", DType.U32)
    if len(positions):
        change.on(workspace.backend)[len(positions)](positions, result)
    return workspace.deliver(result)


def _is_found(workspace: Workspace, find: Kernel, length: int, *operands: Operand) -> bool:
    """Whether a kernel that looks at every word finds one that it looks for."""
    if not length:
        return False
    found = workspace.zeros(1, DType.U32)
    find.on(workspace.backend)[length](*operands, found)
    return bool(workspace.read(found)[0])


def _popcount_of(workspace: Workspace, source: Operand, length: int) -> int:
    if not length:
        return 0
    total = workspace.empty(1, DType.U64)
    reduce_operand(workspace, Reduction("add", DType.U32, DType.U64, DType.U64, "bits"), source, length, total)
    return int(workspace.read(total)[0])


def _count_before(workspace: Workspace, source: Operand, length: int) -> tuple[Operand, int]:
    """For each word the number of bits before it, and the number of all bits."""
    counts, ends = workspace.empty(length, DType.U32), workspace.empty(length, DType.U32)
    if not length:
        return ends, 0
    count_bits.on(workspace.backend)[length](source, counts)
    scan_operand(workspace, "add", DType.U32, counts, ends, length, is_exclusive=True)
    return ends, int(workspace.read(ends[length - 1 :])[0]) + int(workspace.read(counts[length - 1 :])[0])
