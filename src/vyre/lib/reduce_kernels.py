"""Kernels of reductions, histograms and counts.

A workgroup of 16 lanes takes a chunk of 4,096 elements, and each lane one of its columns. The order in which elements
are combined is said in ``vyre.lib.reduce``.
"""

# Annotations of kernels name types that a factory was given: they are evaluated where they stand.
from functools import cache
from typing import Any, Final, Literal

import msgspec

import vyre
from vyre import bool_, u32
from vyre.lang.functions import Function, function
from vyre.lang.kernel import Kernel, kernel
from vyre.lib.scan_kernels import LANES, NO_POSITION, combiner, start_of
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.types import DType

CHUNK: Final = 4096
_WORKGROUP: Final = 64


class Reduction(msgspec.Struct, frozen=True):
    """How elements are combined: ``prepare`` makes each a ``total``, ``finish`` makes the last total the result."""

    op: Literal["add", "min", "max"]
    element: DType
    total: DType
    result: DType
    prepare: Literal["value", "is_set", "is_zero", "bits"] = "value"
    finish: Literal["value", "is_set", "is_zero"] = "value"


def _preparer(reduction: Reduction) -> Function:
    """The function that makes an element a total."""
    element: Any = reduction.element
    total: Any = reduction.total

    @function
    def value(x: element) -> total:
        return total(x)

    @function
    def is_set(x: element) -> total:
        return total(bool_(x))

    @function
    def is_zero(x: element) -> total:
        return total(not bool_(x))

    @function
    def bits(x: element) -> total:
        return total(vyre.popcount(x))

    return {"value": value, "is_set": is_set, "is_zero": is_zero, "bits": bits}[reduction.prepare]


def _finisher(reduction: Reduction) -> Function:
    """The function that makes a total the result."""
    total: Any = reduction.total
    result: Any = reduction.result

    @function
    def value(x: total) -> result:
        return result(x)

    @function
    def is_set(x: total) -> result:
        return result(x != 0)

    @function
    def is_zero(x: total) -> result:
        return result(x == 0)

    return {"value": value, "is_set": is_set, "is_zero": is_zero}[reduction.finish]


def _span_reducer(reduction: Reduction) -> Function:
    """The function by which the lanes of a workgroup reduce up to a chunk of elements."""
    element: Any = reduction.element
    total: Any = reduction.total
    combine, prepare = combiner(reduction.op, total), _preparer(reduction)
    identity = reduction_identity(reduction.op, total)

    @function
    def reduce_span(x: vyre.In[element], base: u32, size: u32) -> total:
        columns = vyre.shared(total, LANES)
        lane = vyre.lid()
        rows = size // LANES
        column = total(identity)
        for row in range(rows):
            column = combine(column, prepare(x[base + row * LANES + lane]))
        if lane < size % LANES:
            column = combine(column, prepare(x[base + rows * LANES + lane]))
        columns[lane] = column
        vyre.barrier()
        whole = total(identity)
        for number in range(LANES):
            whole = combine(whole, columns[number])
        return whole

    return reduce_span


@cache
def chunk_kernel(reduction: Reduction) -> Kernel:
    element: Any = reduction.element
    result: Any = reduction.result
    reduce_span, finish = _span_reducer(reduction), _finisher(reduction)

    @kernel(workgroup=LANES)
    def reduce_chunks(x: vyre.In[element], out: vyre.Out[result]) -> None:
        base = vyre.wg() * CHUNK
        out[vyre.wg()] = finish(reduce_span(x, base, vyre.min(len(x) - base, CHUNK)))

    return reduce_chunks


@cache
def piece_kernel(reduction: Reduction) -> Kernel:
    element: Any = reduction.element
    total: Any = reduction.total
    reduce_span = _span_reducer(reduction)

    @kernel(workgroup=LANES)
    def reduce_pieces(
        x: vyre.In[element],
        offsets: vyre.In[u32],
        pieces: vyre.In[u32],
        owners: vyre.In[u32],
        partials: vyre.Out[total],
    ) -> None:
        """``pieces`` are the offsets of each segment's chunks, ``owners`` the segment of each chunk."""
        owner = owners[vyre.wg()]
        base = offsets[owner] + (vyre.wg() - pieces[owner]) * CHUNK
        partials[vyre.wg()] = reduce_span(x, base, vyre.min(offsets[owner + 1] - base, CHUNK))

    return reduce_pieces


@cache
def short_kernel(reduction: Reduction, writes_empty: bool) -> Kernel:
    element: Any = reduction.element
    total: Any = reduction.total
    result: Any = reduction.result
    combine, prepare, finish = combiner(reduction.op, total), _preparer(reduction), _finisher(reduction)
    identity, of_nothing = reduction_identity(reduction.op, total), start_of(reduction.op, total)

    @kernel(workgroup=_WORKGROUP)
    def reduce_short(x: vyre.In[element], offsets: vyre.In[u32], pieces: vyre.Out[u32], out: vyre.Out[result]) -> None:
        """A segment with no more elements than a chunk has columns is reduced by one lane; of others it says how many
        chunks they are.
        """
        segment = vyre.gid()
        if segment < len(offsets) - 1:
            start, stop = offsets[segment], offsets[segment + 1]
            if stop - start > LANES:
                pieces[segment] = (stop - start - 1) // CHUNK + 1
            elif stop > start:
                whole = total(identity)
                for at in range(start, stop):
                    whole = combine(whole, prepare(x[at]))
                out[segment] = finish(whole)
            elif writes_empty:
                out[segment] = finish(total(of_nothing))

    return reduce_short


@kernel(workgroup=_WORKGROUP)
def find_owners(pieces: vyre.In[u32], owners: vyre.Out[u32]) -> None:
    """For each chunk the last segment whose chunks start there or before: a binary search."""
    chunk = vyre.gid()
    if chunk < len(owners):
        low, high = 0, len(pieces) - 1
        while high - low > 1:
            middle = low + (high - low) // 2
            if pieces[middle] <= chunk:
                low = middle
            else:
                high = middle
        owners[chunk] = low


def _comparer(op: str, element: Any) -> Function:
    """The function that says whether one element comes before another."""

    @function
    def is_less(a: element, b: element) -> bool_:
        # A NaN is the only value that is not equal to itself.
        return a < b or (b != b and a == a)

    @function
    def is_greater(a: element, b: element) -> bool_:
        return a > b or (b != b and a == a)

    return is_less if op == "min" else is_greater


def _column_comparer(op: str, element: Any) -> Function:
    """The function that finds the first position of the best element of all columns."""
    is_better = _comparer(op, element)

    @function
    def best_position(values: vyre.In[element], positions: vyre.In[u32]) -> u32:
        best, position = values[0], positions[0]
        for number in range(1, LANES):
            value, other = values[number], positions[number]
            is_tie = other < position and not is_better(best, value)
            if other != NO_POSITION and (is_better(value, best) or is_tie):
                best, position = value, other
        return position

    return best_position


@cache
def first_position_kernel(op: str, element: Any) -> Kernel:
    is_better, best_position = _comparer(op, element), _column_comparer(op, element)

    @kernel(workgroup=LANES)
    def find_in_chunks(x: vyre.In[element], found: vyre.Out[u32]) -> None:
        values, positions = vyre.shared(element, LANES), vyre.shared(u32, LANES)
        lane, base = vyre.lid(), vyre.wg() * CHUNK
        size = vyre.min(len(x) - base, CHUNK)
        best, position = element(0), NO_POSITION
        for row in range((size + (LANES - 1)) // LANES):
            at = base + row * LANES + lane
            if at < len(x) and (position == NO_POSITION or is_better(x[at], best)):
                best, position = x[at], at
        values[lane] = best
        positions[lane] = position
        vyre.barrier()
        found[vyre.wg()] = best_position(values, positions)

    return find_in_chunks


@cache
def next_position_kernel(op: str, element: Any) -> Kernel:
    is_better, best_position = _comparer(op, element), _column_comparer(op, element)

    @kernel(workgroup=LANES)
    def find_among(x: vyre.In[element], among: vyre.In[u32], found: vyre.Out[u32]) -> None:
        values, positions = vyre.shared(element, LANES), vyre.shared(u32, LANES)
        lane, base = vyre.lid(), vyre.wg() * CHUNK
        size = vyre.min(len(among) - base, CHUNK)
        best, position = element(0), NO_POSITION
        for row in range((size + (LANES - 1)) // LANES):
            at = base + row * LANES + lane
            if at < len(among) and (position == NO_POSITION or is_better(x[among[at]], best)):
                best, position = x[among[at]], among[at]
        values[lane] = best
        positions[lane] = position
        vyre.barrier()
        found[vyre.wg()] = best_position(values, positions)

    return find_among


def _counters_type(few: int | None) -> Any:
    """Counters whose number is known to the kernel, if there are few: each thread may then have its own."""
    return vyre.InOut[u32] if few is None else vyre.InOut[u32, (few,)]


@cache
def histogram_kernel(element: Any, measure: Any, few: int | None) -> Kernel:
    counters: Any = _counters_type(few)

    scaled: Any = DType.F64 if measure is DType.F64 else DType.F32
    is_integer = measure.is_integer
    unsigned = measure.unsigned

    @kernel(workgroup=_WORKGROUP)
    def count_by_threshold(
        x: vyre.In[element],
        thresholds: vyre.In[measure],
        low: measure,
        high: measure,
        scale: scaled,
        counts: counters,
    ) -> None:
        """A bin is guessed by a multiplication, then corrected by its thresholds."""
        i = vyre.gid()
        if i < len(x):
            value = measure(x[i])
            if low <= value and value <= high:
                if is_integer:
                    guess = scaled(vyre.bitcast(unsigned, value - low)) * scale
                else:
                    guess = scaled(value - low) * scale
                found = vyre.min(u32(guess), len(thresholds) - 1)
                while found > 0 and value < thresholds[found]:
                    found -= 1
                while found + 1 < len(thresholds) and value >= thresholds[found + 1]:
                    found += 1
                vyre.atomic_add(counts, found, 1)

    return count_by_threshold


@cache
def bincount_kernel(element: Any, few: int | None) -> Kernel:
    counters: Any = _counters_type(few)

    @kernel(workgroup=_WORKGROUP)
    def count_numbers(x: vyre.In[element], counts: counters) -> None:
        i = vyre.gid()
        if i < len(x):
            vyre.atomic_add(counts, u32(x[i]), 1)

    return count_numbers


@cache
def negative_kernel(element: Any) -> Kernel:
    @kernel(workgroup=_WORKGROUP)
    def find_negative(x: vyre.In[element], fault: vyre.InOut[u32]) -> None:
        i = vyre.gid()
        if i < len(x) and x[i] < 0:
            vyre.atomic_min(fault, 0, i)

    return find_negative


@cache
def keys_kernel(element: Any) -> Kernel:
    @kernel(workgroup=_WORKGROUP)
    def number_keys(x: vyre.In[element], keys: vyre.Out[u32], order: vyre.Out[u32]) -> None:
        i = vyre.gid()
        if i < len(x):
            keys[i] = u32(x[i])
            order[i] = i

    return number_keys


@cache
def gather_kernel(element: Any) -> Kernel:
    @kernel(workgroup=_WORKGROUP)
    def gather(x: vyre.In[element], order: vyre.In[u32], out: vyre.Out[element]) -> None:
        i = vyre.gid()
        if i < len(order):
            out[i] = x[order[i]]

    return gather


@kernel(workgroup=_WORKGROUP)
def test_bit(keys: vyre.In[u32], bit: u32, is_clear: vyre.Out[vyre.u8]) -> None:
    i = vyre.gid()
    if i < len(keys):
        is_clear[i] = vyre.u8(keys[i] >> bit & 1 == 0)


@kernel(workgroup=_WORKGROUP)
def copy_first(counters: vyre.In[u32], out: vyre.Out[u32]) -> None:
    """As many counters as there is room for."""
    i = vyre.gid()
    if i < len(out):
        out[i] = counters[i]
