"""Kernels of scans, stream compaction and partition.

Subgroups have 16 lanes, and a workgroup is one subgroup. It takes a block of 4,096 elements, row by row: lane i has
element i of a row. The order in which elements are combined is said in ``vyre.lib.scan``.
"""

# Annotations of kernels name types that a factory was given: they are evaluated where they stand.
from functools import cache
from typing import Any, Final

import vyre
from vyre import u8, u32
from vyre.lang.functions import Function, function
from vyre.lang.kernel import Kernel, kernel
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.types import DType

LANES: Final = 16
BLOCK: Final = 4096
# Stands for no position at all.
NO_POSITION: Final = 0xFFFFFFFF


def combiner(op: str, element: Any) -> Function:
    """The function for kernels that combines two elements."""

    @function
    def add(a: element, b: element) -> element:
        return element(a + b)

    @function
    def least(a: element, b: element) -> element:
        return element(vyre.min(a, b))

    @function
    def greatest(a: element, b: element) -> element:
        return element(vyre.max(a, b))

    @function
    def conjunction(a: element, b: element) -> element:
        return element(a & b)

    @function
    def disjunction(a: element, b: element) -> element:
        return element(a | b)

    @function
    def difference(a: element, b: element) -> element:
        return element(a ^ b)

    functions = {"add": add, "min": least, "max": greatest, "and": conjunction, "or": disjunction, "xor": difference}
    return functions[op]


def start_of(op: str, dtype: DType) -> int | float:
    """The first element of an exclusive scan: an identity that is a value a caller expects to see."""
    if dtype.is_float:
        return {"add": 0.0, "min": float("inf"), "max": float("-inf")}[op]
    return int(reduction_identity(op, dtype))


@function
def _rows_in(block: u32, count: u32) -> u32:
    """How many rows of a block have elements."""
    return (vyre.min(count - block * BLOCK, BLOCK) + (LANES - 1)) // LANES


def _row_scanner(combine: Function, element: Any) -> Function:
    """The function that scans a row, inclusively: after each step a lane has combined twice as many elements."""

    @function
    def scan_row(value: element) -> element:
        lane = vyre.subgroup_lane()
        left = vyre.subgroup_shuffle(value, lane - 1)
        value = vyre.select(lane >= 1, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 2)
        value = vyre.select(lane >= 2, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 4)
        value = vyre.select(lane >= 4, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 8)
        return element(vyre.select(lane >= 8, combine(left, value), value))

    return scan_row


def _block_reducer(op: str, combine: Function, element: Any) -> Function:
    """The function that combines the elements of a block, in the order of the scan where that matters."""
    identity = reduction_identity(op, element)
    scan_row = _row_scanner(combine, element)

    @function
    def reduce_in_order(x: vyre.In[element], base: u32, rows: u32) -> element:
        lane = vyre.subgroup_lane()
        total = element(identity)
        for row in range(rows):
            scanned = scan_row(x[base + row * LANES + lane])
            total = combine(total, vyre.subgroup_shuffle(scanned, LANES - 1))
        return total

    @function
    def reduce_by_lane(x: vyre.In[element], base: u32, rows: u32) -> element:
        lane = vyre.subgroup_lane()
        total = element(identity)
        for row in range(rows):
            total = combine(total, x[base + row * LANES + lane])
        return element(vyre.subgroup_reduce(op, total))

    return reduce_in_order if element.is_float and op == "add" else reduce_by_lane


@cache
def scan_kernel(op: str, element: Any, is_exclusive: bool) -> Kernel:
    combine = combiner(op, element)
    identity = reduction_identity(op, element)
    start = start_of(op, element) if is_exclusive else identity
    scan_row = _row_scanner(combine, element)
    reduce_block = _block_reducer(op, combine, element)

    @kernel(workgroup=LANES, subgroup=LANES)
    def scan_blocks(x: vyre.In[element], totals: vyre.InOut[element], out: vyre.Out[element]) -> None:
        lane = vyre.subgroup_lane()
        blocks = (len(x) - 1) // BLOCK + 1
        prefix = element(start)
        first = 0
        while first < blocks:
            block = first + vyre.wg()
            end = vyre.min(first + vyre.num_workgroups(), blocks)
            if block < blocks:
                totals[block] = reduce_block(x, block * BLOCK, _rows_in(block, len(x)))
            vyre.grid_sync()
            for other in range(first, vyre.min(block, end)):
                prefix = combine(prefix, totals[other])
            if block < blocks:
                chained = element(identity)
                for row in range(_rows_in(block, len(x))):
                    at = block * BLOCK + row * LANES + lane
                    value = combine(chained, scan_row(x[at]))
                    if is_exclusive:
                        left = vyre.subgroup_shuffle(value, lane - 1)
                        out[at] = combine(prefix, vyre.select(lane == 0, chained, left))
                    else:
                        out[at] = combine(prefix, value)
                    chained = vyre.subgroup_shuffle(value, LANES - 1)
            for other in range(vyre.min(block, end), end):
                prefix = combine(prefix, totals[other])
            first += vyre.num_workgroups()

    return scan_blocks


@cache
def segmented_kernel(op: str, element: Any, flag: Any, is_exclusive: bool) -> Kernel:
    combine = combiner(op, element)
    identity = reduction_identity(op, element)
    start = start_of(op, element)

    @function
    def scan_row(value: element, starts: u32) -> element:
        """The scan of a row, in which a lane takes no element from before the last start."""
        lane = vyre.subgroup_lane()
        own = starts & ((2 << lane) - 1)
        reach = vyre.select(own == 0, lane, lane - (31 - vyre.clz(own)))
        left = vyre.subgroup_shuffle(value, lane - 1)
        value = vyre.select(reach >= 1, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 2)
        value = vyre.select(reach >= 2, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 4)
        value = vyre.select(reach >= 4, combine(left, value), value)
        left = vyre.subgroup_shuffle(value, lane - 8)
        return element(vyre.select(reach >= 8, combine(left, value), value))

    @kernel(workgroup=LANES, subgroup=LANES)
    def scan_segments(
        x: vyre.In[element],
        flags: vyre.In[flag],
        totals: vyre.InOut[element],
        breaks: vyre.InOut[u32],
        out: vyre.Out[element],
    ) -> None:
        """``totals`` are those since the last start in a block, ``breaks`` say whether there is one."""
        lane = vyre.subgroup_lane()
        up_to_lane = (2 << lane) - 1
        blocks = (len(x) - 1) // BLOCK + 1
        prefix = element(identity)
        first = 0
        while first < blocks:
            block = first + vyre.wg()
            end = vyre.min(first + vyre.num_workgroups(), blocks)
            if block < blocks:
                chained = element(identity)
                seen = 0
                for row in range(_rows_in(block, len(x))):
                    at = block * BLOCK + row * LANES + lane
                    starts = vyre.subgroup_ballot(vyre.bool_(flags[at]))
                    value = scan_row(x[at], starts)
                    value = vyre.select(starts & up_to_lane == 0, combine(chained, value), value)
                    chained = vyre.subgroup_shuffle(value, LANES - 1)
                    seen |= starts
                totals[block] = chained
                breaks[block] = seen
            vyre.grid_sync()
            for other in range(first, vyre.min(block, end)):
                prefix = vyre.select(breaks[other] == 0, combine(prefix, totals[other]), totals[other])
            if block < blocks:
                chained = element(identity)
                before = prefix
                seen = 0
                for row in range(_rows_in(block, len(x))):
                    at = block * BLOCK + row * LANES + lane
                    is_start = vyre.bool_(flags[at])
                    starts = vyre.subgroup_ballot(is_start)
                    own = starts & up_to_lane
                    value = scan_row(x[at], starts)
                    value = vyre.select(own == 0, combine(chained, value), value)
                    chained = vyre.subgroup_shuffle(value, LANES - 1)
                    whole = vyre.select(seen | own == 0, combine(prefix, value), value)
                    if is_exclusive:
                        left = vyre.subgroup_shuffle(whole, lane - 1)
                        left = vyre.select(lane == 0, before, left)
                        out[at] = vyre.select(is_start, element(start), combine(element(start), left))
                        before = vyre.subgroup_shuffle(whole, LANES - 1)
                    else:
                        out[at] = whole
                    seen |= starts
            for other in range(vyre.min(block, end), end):
                prefix = vyre.select(breaks[other] == 0, combine(prefix, totals[other]), totals[other])
            first += vyre.num_workgroups()

    return scan_segments


@kernel(workgroup=LANES)
def mark_starts(offsets: vyre.In[u32], starts: vyre.Out[u8]) -> None:
    """Empty segments start where the next one does: they write the same."""
    i = vyre.gid()
    if i < len(offsets) - 1:
        starts[offsets[i]] = 1


@kernel(workgroup=LANES)
def find_fault(offsets: vyre.In[u32], count: u32, fault: vyre.InOut[u32]) -> None:
    i = vyre.gid()
    if i < len(offsets):
        is_wrong = offsets[i] != 0 if i == 0 else offsets[i] < offsets[i - 1]
        if i == len(offsets) - 1:
            is_wrong = is_wrong or offsets[i] != count
        if is_wrong:
            vyre.atomic_min(fault, 0, i)


@cache
def count_kernel(flag: Any) -> Kernel:
    @kernel(workgroup=LANES, subgroup=LANES)
    def count_chosen(mask: vyre.In[flag], counts: vyre.Out[u32]) -> None:
        block, lane = vyre.wg(), vyre.subgroup_lane()
        found = 0
        for row in range(_rows_in(block, len(mask))):
            found += u32(vyre.bool_(mask[block * BLOCK + row * LANES + lane]))
        counts[block] = vyre.subgroup_reduce("add", found)

    return count_chosen


@cache
def compact_kernel(element: Any, flag: Any) -> Kernel:
    @kernel(workgroup=LANES, subgroup=LANES)
    def move_chosen(
        x: vyre.In[element], mask: vyre.In[flag], counts: vyre.In[u32], ends: vyre.In[u32], out: vyre.Out[element]
    ) -> None:
        block, lane = vyre.wg(), vyre.subgroup_lane()
        position = ends[block] - counts[block]
        for row in range(_rows_in(block, len(mask))):
            at = block * BLOCK + row * LANES + lane
            is_chosen = vyre.bool_(mask[at])
            chosen = vyre.subgroup_ballot(is_chosen)
            if is_chosen:
                out[position + vyre.popcount(chosen & ((1 << lane) - 1))] = x[at]
            position += vyre.popcount(chosen)

    return move_chosen


@cache
def indices_kernel(flag: Any) -> Kernel:
    @kernel(workgroup=LANES, subgroup=LANES)
    def list_chosen(mask: vyre.In[flag], counts: vyre.In[u32], ends: vyre.In[u32], out: vyre.Out[u32]) -> None:
        block, lane = vyre.wg(), vyre.subgroup_lane()
        position = ends[block] - counts[block]
        for row in range(_rows_in(block, len(mask))):
            at = block * BLOCK + row * LANES + lane
            is_chosen = vyre.bool_(mask[at])
            chosen = vyre.subgroup_ballot(is_chosen)
            if is_chosen:
                out[position + vyre.popcount(chosen & ((1 << lane) - 1))] = at
            position += vyre.popcount(chosen)

    return list_chosen


@cache
def partition_kernel(element: Any, flag: Any) -> Kernel:
    @kernel(workgroup=LANES, subgroup=LANES)
    def move_all(
        x: vyre.In[element],
        mask: vyre.In[flag],
        counts: vyre.In[u32],
        ends: vyre.In[u32],
        out: vyre.Out[element],
        kept: u32,
    ) -> None:
        """An element that is not chosen goes behind all that are, as far as there are such before it."""
        block, lane = vyre.wg(), vyre.subgroup_lane()
        position = ends[block] - counts[block]
        for row in range(_rows_in(block, len(mask))):
            at = block * BLOCK + row * LANES + lane
            is_chosen = vyre.bool_(mask[at])
            chosen = vyre.subgroup_ballot(is_chosen)
            before = position + vyre.popcount(chosen & ((1 << lane) - 1))
            if at < len(x):
                out[vyre.select(is_chosen, before, kept + (at - before))] = x[at]
            position += vyre.popcount(chosen)

    return move_all
