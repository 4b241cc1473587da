"""Barriers: who waits for whom, what survives them, and the grid-barrier programs that earlier designs got wrong."""

from __future__ import annotations

import numpy as np
import pytest
from reference_support import U32, out, output, program, reading, shared, u32, updating, values

from vyre.errors import DispatchFailed, FuelExhausted, InvalidProgram
from vyre.ir import build as b
from vyre.ir.buffers import Access, BufferDecl
from vyre.reference import IN_ORDER, REVERSED, Schedule, run, seeded

v, gid, lid = b.var, b.gid, b.lid
SCHEDULES = [IN_ORDER, REVERSED, seeded(1), seeded(2)]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES, ids=str)


@every_schedule
def test_a_workgroup_barrier_makes_writes_visible(schedule: Schedule) -> None:
    source = program(
        [shared("tile", 8), out(32)], 8,
        b.store("tile", lid(), gid()),
        b.barrier(),
        b.store("out", gid(), b.load("tile", 7 - lid())),
    )  # fmt: skip
    assert output(source, schedule=schedule) == [8 * (k // 8) + 7 - k % 8 for k in range(32)]


@every_schedule
def test_barriers_in_a_loop_keep_the_workgroup_in_step(schedule: Schedule) -> None:
    source = program(
        [shared("tile", 4), out(4)], 4,
        b.store("tile", lid(), lid()),
        b.loop("k", 0, 3, [
            b.barrier(),
            b.let("next", b.load("tile", (lid() + 1) & 3)),
            b.barrier(),
            b.store("tile", lid(), v("next")),
        ]),
        b.store("out", gid(), b.load("tile", lid())),
    )  # fmt: skip
    assert output(source, schedule=schedule) == [3, 0, 1, 2]


def test_a_barrier_under_a_uniform_condition_is_legal() -> None:
    source = program(
        [shared("tile", 4), out(4)], 4,
        b.loop("i", 0, 3, [
            b.if_(v("i").eq(0), [b.store("tile", lid(), lid() + 1), b.barrier()]),
        ]),
        b.store("out", gid(), b.load("tile", (lid() + 1) & 3)),
    )  # fmt: skip
    assert output(source) == [2, 3, 4, 1]


@every_schedule
def test_returned_invocations_count_as_arrived(schedule: Schedule) -> None:
    source = program(
        [shared("tile", 4), out(4)], 4,
        b.if_(lid().eq(2), [b.return_()]),
        b.store("tile", lid(), lid() + 10),
        b.barrier(),
        b.store("out", gid(), b.load("tile", (lid() + 1) & 3)),
    )  # fmt: skip
    assert output(source, schedule=schedule) == [11, 0, 0, 10]


def test_workgroup_memory_starts_at_zero_in_every_workgroup() -> None:
    source = program(
        [shared("tile", 2), out(6)], 2,
        b.store("out", gid(), b.load("tile", lid())),
        b.store("tile", lid(), 7),
    )  # fmt: skip
    assert output(source) == [0] * 6


@every_schedule
def test_two_halves_at_different_barriers_is_an_error(schedule: Schedule) -> None:
    source = program([out(4)], 4, b.if_(lid() < 2, [b.barrier()], [b.barrier()]))
    with pytest.raises(DispatchFailed) as caught:
        run(source, (), checked=True, schedule=schedule)
    assert caught.value.code == "barrier-mismatch"
    assert "entry[0].then[0]" in caught.value.message
    assert "entry[0].otherwise[0]" in caught.value.message


def test_the_same_barrier_in_different_passes_is_an_error() -> None:
    source = program(
        [out(4)], 4,
        b.loop("k", 0, 2, [b.if_(v("k").eq(0) & (lid() < 2), [b.continue_()]), b.barrier()]),
    )  # fmt: skip
    with pytest.raises(DispatchFailed, match=r"pass 1 .* pass 0|pass 0 .* pass 1") as caught:
        run(source, (), checked=True)
    assert caught.value.code == "barrier-mismatch"


def test_a_workgroup_barrier_against_a_grid_barrier_is_an_error() -> None:
    source = program([out(4)], 4, b.if_(lid() < 2, [b.barrier()], [b.grid_sync()]))
    with pytest.raises(DispatchFailed) as caught:
        run(source, (), checked=True)
    assert caught.value.code == "barrier-mismatch"


def test_workgroups_at_different_grid_barriers_is_an_error() -> None:
    source = program([out(4)], 2, b.if_(b.wg().eq(0), [b.grid_sync()], [b.grid_sync()]))
    with pytest.raises(DispatchFailed, match="in the grid") as caught:
        run(source, (), checked=True)
    assert caught.value.code == "barrier-mismatch"


@every_schedule
def test_g1_lets_keep_their_value_over_a_grid_barrier(schedule: Schedule) -> None:
    source = program(
        [updating("a", 1), out(6)], 2,
        b.let("x", b.load("a", 0)),
        b.grid_sync(),
        b.if_(gid().eq(0), [b.store("a", 0, v("x") + 1)]),
        b.grid_sync(),
        b.store("out", gid(), v("x")),
    )  # fmt: skip
    result = run(source, [u32(41)], grid=(3,), schedule=schedule)
    assert (values(result), values(result, "a")) == ([41] * 6, [42])


@every_schedule
def test_g2_effects_before_a_barrier_happen_once(schedule: Schedule) -> None:
    source = program(
        [updating("c", 1), out(6)], 2,
        b.let("t", b.atomic_add("c", 0, 1)),
        b.grid_sync(),
        b.store("out", v("t"), 1),
    )  # fmt: skip
    result = run(source, [u32(0)], grid=(3,), schedule=schedule)
    assert (values(result), values(result, "c")) == ([1] * 6, [6])


def test_g3_g4_assigned_variables_survive() -> None:
    source = program(
        [out(4)], 2,
        b.let("acc", 0), b.let("x", gid()),
        b.assign("acc", v("acc") + 5),
        b.grid_sync(),
        b.assign("x", v("x") * 10),
        b.grid_sync(),
        b.grid_sync(),
        b.store("out", gid(), v("acc") + v("x")),
    )  # fmt: skip
    assert output(source) == [5, 15, 25, 35]


def test_g5_names_reused_around_a_barrier_stay_apart() -> None:
    source = program(
        [out(4)], 2,
        b.let("sum", 0),
        b.block(b.let("t", gid() + 1), b.assign("sum", v("sum") + v("t"))),
        b.grid_sync(),
        b.block(b.let("t", gid() + 100), b.assign("sum", v("sum") + v("t"))),
        b.loop("k", 0, 2, [
            b.let("d", v("k") * 1000),
            b.grid_sync(),
            b.assign("sum", v("sum") + v("d")),
        ]),
        b.store("out", gid(), v("sum")),
    )  # fmt: skip
    assert output(source) == [1101 + 2 * k for k in range(4)]


@every_schedule
def test_g6_returned_invocations_stay_returned(schedule: Schedule) -> None:
    source = program(
        [out(6)], 2,
        b.if_(gid() >= 3, [b.return_()]),
        b.grid_sync(),
        b.store("out", gid(), 1),
    )  # fmt: skip
    assert output(source, schedule=schedule) == [1, 1, 1, 0, 0, 0]


@every_schedule
def test_g7_loops_with_grid_barriers_run_in_lockstep(schedule: Schedule) -> None:
    source = program(
        [updating("a", 6), out(6)], 2,
        b.loop("k", 0, 5, [
            b.store("a", gid(), b.load("a", gid()) + 1 + gid()),
            b.grid_sync(),
            b.store("out", gid(), b.load("a", (gid() + 1) % 6)),
            b.grid_sync(),
        ]),
    )  # fmt: skip
    assert output(source, [u32(0, 0, 0, 0, 0, 0)], grid=(3,), schedule=schedule) == [10, 15, 20, 25, 30, 5]


@every_schedule
def test_g8_a_fixpoint_decided_on_the_device(schedule: Schedule) -> None:
    """Distances along a chain of links, until nothing changes."""
    n, far = 7, 1000
    source = program(
        [updating("changed", 1), updating("distance", n)], 2,
        b.while_(b.load("changed", 0).ne(0), [
            b.grid_sync(),
            b.if_(gid().eq(0), [b.store("changed", 0, 0)]),
            b.let("seen", far),
            b.if_((gid() > 0) & (gid() < n), [b.assign("seen", b.load("distance", gid() - 1) + 1)]),
            b.grid_sync(),
            b.if_((gid() < n) & (v("seen") < b.load("distance", gid())), [
                b.store("distance", gid(), v("seen")),
                b.store("changed", 0, 1),
            ]),
            b.grid_sync(),
        ]),
    )  # fmt: skip
    start = u32(0, *[far] * (n - 1))
    assert output(source, [u32(1), start], "distance", grid=(4,), schedule=schedule) == list(range(n))


def test_g9_a_grid_barrier_under_a_workgroup_condition_is_refused() -> None:
    with pytest.raises(InvalidProgram) as caught:
        run(program([out(4)], 2, b.if_(b.wg().eq(0), [b.grid_sync()])), ())
    assert caught.value.diagnostics


@every_schedule
def test_g10_workgroup_memory_survives_a_grid_barrier(schedule: Schedule) -> None:
    source = program(
        [shared("tile", 2), out(6)], 2,
        b.store("tile", lid(), gid() + 1),
        b.grid_sync(),
        b.store("out", gid(), b.load("tile", 1 - lid())),
    )  # fmt: skip
    assert output(source, schedule=schedule) == [2, 1, 4, 3, 6, 5]


def test_g11_a_buffer_written_in_part_keeps_the_rest() -> None:
    source = program(
        [updating("s"), out(1)], 1,
        b.store("s", 0, 9), b.grid_sync(), b.store("out", 0, b.load("s", 1)),
    )  # fmt: skip
    result = run(source, [u32(1, 2, 3, 4)], grid=(1,))
    assert (values(result), values(result, "s")) == ([2], [9, 2, 3, 4])


def test_g12_a_write_only_buffer_written_on_both_sides_of_a_barrier() -> None:
    source = program(
        [BufferDecl("w", 0, Access.WRITE_ONLY, U32, 5)], 1,
        b.store("w", 0, 1), b.grid_sync(), b.store("w", 3, 2),
    )  # fmt: skip
    assert output(source, name="w") == [1, 0, 0, 2, 0]


def test_g13_the_grid_is_the_same_on_both_sides() -> None:
    source = program(
        [updating("small", 2), out(8)], 2,
        b.store("small", gid(), b.num_workgroups()), b.grid_sync(), b.store("out", gid(), b.num_workgroups()),
    )  # fmt: skip
    result = run(source, [u32(0, 0)], grid=(4,))
    assert (values(result), values(result, "small")) == ([4] * 8, [4, 4])


def test_g15_an_output_range_does_not_trim_what_is_read_later() -> None:
    source = program(
        [out(4, "part").with_output_byte_range(0, 4), out(4)], 4,
        b.store("part", gid(), gid() + 5), b.grid_sync(), b.store("out", gid(), b.load("part", 3 - gid())),
    )  # fmt: skip
    result = run(source, ())
    assert values(result) == [8, 7, 6, 5]
    assert result.output_bytes("part") == u32(5).tobytes()


def test_g17_a_pending_transfer_crosses_a_barrier() -> None:
    source = program(
        [reading("a", 4), updating("s", 4)], 1,
        b.if_(gid().eq(0), [b.async_load("a", "s", 4, 8, "t")]),
        b.grid_sync(),
        b.if_(gid().eq(0), [b.async_wait("t")]),
    )  # fmt: skip
    # The checker may not follow a tag through two conditions; the run does.
    assert output(source, [u32(1, 2, 3, 4), u32(0, 0, 0, 9)], "s", grid=(2,), checked=True) == [2, 3, 0, 9]


def test_the_seed_facts_of_three_segments_on_any_grid() -> None:
    source = program(
        [updating("state", 2)], 4,
        b.store("state", 0, 40), b.grid_sync(),
        b.store("state", 1, b.load("state", 0) + 1), b.grid_sync(),
        b.store("state", 0, b.load("state", 1) + 1),
    )  # fmt: skip
    for grid in ((1,), (3,), (2, 2, 2)):
        assert output(source, [u32(0, 0)], "state", grid=grid) == [42, 41]


def test_a_hundred_thousand_invocations_wait_at_a_grid_barrier() -> None:
    count = 100_000
    source = program(
        [updating("a", count), out(count)], 250,
        b.store("a", gid(), b.load("a", gid()) + gid()),
        b.grid_sync(),
        b.store("out", gid(), b.load("a", count - 1 - gid())),
    )  # fmt: skip
    result = run(source, [np.ones(count, np.uint32)])
    assert np.array_equal(result.outputs["out"], np.arange(count, 0, -1, dtype=np.uint32))


def test_waiting_for_a_barrier_that_others_never_reach_runs_out_of_fuel() -> None:
    source = program([out(2)], 2, b.if_(lid().eq(0), [b.barrier()], [b.while_(True, [])]))
    with pytest.raises(FuelExhausted):
        run(source, (), checked=True, fuel=1000)
