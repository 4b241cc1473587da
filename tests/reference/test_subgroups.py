"""Subgroup operations: who is active, what the others count as, and the fixed order of reductions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_support import U32, out, output, program, reading, shared, values

from vyre.ir import build as b
from vyre.ir.nodes import Expr, Stmt
from vyre.reference import IN_ORDER, REVERSED, Schedule, run, seeded
from vyre.semantics.operators import OPERATORS, REDUCTIONS
from vyre.semantics.reductions import reduce_lanes, reduction_identity
from vyre.semantics.scalars import scalar_meaning, to_bits
from vyre.semantics.types import ALL_TYPES, DType

v, gid, lid, lane = b.var, b.gid, b.lid, b.subgroup_lane
every_schedule = pytest.mark.parametrize("schedule", [IN_ORDER, REVERSED, seeded(5)], ids=str)


def lanes(*entry: Stmt, count: int = 8, workgroup: int = 8, width: int = 4, schedule: Schedule = IN_ORDER) -> list[int]:
    return output(program([out(count)], workgroup, *entry, subgroup_size=width), schedule=schedule)


def give(value: Expr) -> Stmt:
    return b.store("out", gid(), value)


def test_lanes_are_consecutive_and_the_width_is_the_programs() -> None:
    assert lanes(give(b.subgroup_lane() * 10 + b.subgroup_size())) == [4, 14, 24, 34] * 2


@every_schedule
def test_ballot_and_reduce_over_all_lanes(schedule: Schedule) -> None:
    assert lanes(give(b.subgroup_ballot((gid() & 1).eq(1))), schedule=schedule) == [0b1010] * 8
    assert lanes(give(b.subgroup_reduce("add", gid())), schedule=schedule) == [6] * 4 + [22] * 4


def test_shuffle_reads_other_lanes_and_zero_beyond() -> None:
    assert lanes(give(b.subgroup_shuffle(gid() + 1, lane() ^ 1))) == [2, 1, 4, 3, 6, 5, 8, 7]
    assert lanes(give(b.subgroup_shuffle(gid() + 1, lane() + 1))) == [2, 3, 4, 0, 6, 7, 8, 0]


@every_schedule
def test_inactive_lanes_give_nothing(schedule: Schedule) -> None:
    divergent = b.if_((lane() & 1).eq(1), [
        give(b.subgroup_ballot(True) * 100 + b.subgroup_reduce("add", 1) * 10 + b.subgroup_shuffle(lane(), 2)),
    ])  # fmt: skip
    assert lanes(divergent, schedule=schedule) == [0, 1020] * 4


@every_schedule
def test_both_arms_meet_apart_and_then_together(schedule: Schedule) -> None:
    entry = [
        b.let("x", 0),
        b.if_(lane() < 1, [b.assign("x", b.subgroup_ballot(True))], [b.assign("x", b.subgroup_ballot(True))]),
        give(v("x") * 16 + b.subgroup_ballot(True)),
    ]
    assert lanes(*entry, schedule=schedule) == [0x1F, 0xEF, 0xEF, 0xEF] * 2


@every_schedule
def test_lanes_with_different_trip_counts_meet_pass_by_pass(schedule: Schedule) -> None:
    """Lane k makes k passes; in pass p, the lanes above p are active."""
    entry = [
        b.let("x", 0),
        b.loop("p", 0, lane(), [b.assign("x", v("x") * 16 + b.subgroup_ballot(True))]),
        give(b.select(b.subgroup_ballot(True).eq(15), v("x"), 999)),
    ]
    assert lanes(*entry, schedule=schedule) == [0, 0xE, 0xEC, 0xEC8] * 2


@every_schedule
def test_lanes_that_skip_an_operation_do_not_meet_the_next_pass(schedule: Schedule) -> None:
    """Lane 0 skips the ballot in pass 0: its ballot of pass 1 is not the others' of pass 0."""
    entry = [
        b.let("x", 0),
        b.loop("p", 0, 2, [
            b.if_(v("p").eq(0) & lane().eq(0), [b.continue_()]),
            b.assign("x", v("x") * 16 + b.subgroup_ballot(True)),
        ]),
        give(v("x")),
    ]  # fmt: skip
    assert lanes(*entry, schedule=schedule) == [0xF, 0xEF, 0xEF, 0xEF] * 2


@every_schedule
def test_an_operation_in_a_loop_condition(schedule: Schedule) -> None:
    entry = [
        b.let("k", lane()),
        b.let("passes", 0),
        b.while_(b.subgroup_ballot(v("k") > 0).ne(0), [
            b.assign("passes", v("passes") + 1),
            b.assign("k", b.select(v("k") > 0, v("k") - 1, 0)),
        ]),
        give(v("passes")),
    ]  # fmt: skip
    assert lanes(*entry, schedule=schedule) == [3] * 8


def test_returned_lanes_are_inactive() -> None:
    assert lanes(b.if_(lane().eq(1), [b.return_()]), give(b.subgroup_ballot(True))) == [13, 0, 13, 13] * 2


def test_a_partial_subgroup() -> None:
    assert lanes(give(b.subgroup_ballot(True)), count=6, workgroup=6) == [15] * 4 + [3] * 2


@every_schedule
def test_operations_and_barriers_together(schedule: Schedule) -> None:
    source = program(
        [shared("sums", 2), out(8)], 8,
        b.let("sum", b.subgroup_reduce("add", gid())),
        b.if_(lane().eq(0), [b.store("sums", lid() / 4, v("sum"))]),
        b.barrier(),
        give(b.load("sums", 0) + b.load("sums", 1)),
        subgroup_size=4,
    )  # fmt: skip
    assert output(source, schedule=schedule) == [28] * 8


def test_operands_are_evaluated_once_by_active_lanes() -> None:
    source = program(
        [out(1, "count"), out(8)], 8,
        b.if_(lane() < 3, [give(b.subgroup_reduce("max", b.atomic_add("count", 0, 1)))]),
        subgroup_size=4,
    )  # fmt: skip
    result = run(source, (), grid=(1,))
    assert values(result, "count") == [6]
    assert values(result) == [2, 2, 2, 0, 5, 5, 5, 0]


def test_two_operations_in_one_expression_keep_their_values() -> None:
    value = b.subgroup_reduce("add", gid()) * 1000 + b.subgroup_shuffle(gid() * 2, 3 - lane()) * b.subgroup_lane()
    expected = [sum(range(4 * s, 4 * s + 4)) * 1000 + (4 * s + 3 - k) * 2 * k for s in range(2) for k in range(4)]
    assert lanes(give(value)) == expected


PAIRS = [(op, dtype) for op in REDUCTIONS for dtype in ALL_TYPES if dtype in OPERATORS[op].types]


@pytest.mark.parametrize(("op", "dtype"), PAIRS, ids=str)
def test_identities_change_nothing(op: str, dtype: DType) -> None:
    identity, combine = reduction_identity(op, dtype), scalar_meaning(op, dtype)
    if dtype.is_float:
        samples = [0.0, -0.0, 1.5, -2.0, float("inf"), float("-inf"), float("nan")]
    else:
        samples = [dtype.minimum, dtype.maximum, 0, 1] if dtype is not DType.BOOL else [False, True]
    for sample in samples:
        for combined in (combine(sample, identity), combine(identity, sample)):
            assert to_bits(combined, dtype) == to_bits(sample, dtype), (op, dtype, sample)


def test_floats_are_summed_by_halves() -> None:
    """Lane k takes lane k + 2, then lane 0 takes lane 1: another order would round otherwise."""
    data = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    source = program([reading("a", 4, DType.F32), out(4, dtype=DType.F32)], 4,
                     give(b.subgroup_reduce("add", b.load("a", gid()))), subgroup_size=4)  # fmt: skip
    assert output(source, [data]) == [2.0] * 4
    assert output(source, [data[[0, 2, 1, 3]]]) == [0.0] * 4


def test_negative_zero_survives_a_sum_with_inactive_lanes() -> None:
    source = program([out(4, dtype=DType.F32)], 4,
                     b.if_(lane().eq(2), [give(b.subgroup_reduce("add", -0.0))]), subgroup_size=4)  # fmt: skip
    assert run(source, ()).outputs["out"].view(np.uint32).tolist() == [0, 0, 0x80000000, 0]


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.integers(0, 31), st.integers(0, 2**32 - 1), min_size=1), st.sampled_from(REDUCTIONS))
def test_integer_reductions_are_those_of_the_active_lanes(active: dict[int, int], op: str) -> None:
    combine = scalar_meaning(op, U32)
    first, *rest = active.values()
    for value in rest:
        first = combine(first, value)
    assert reduce_lanes(op, U32, active, 32) == first
