"""Schedules: what may not depend on them, what may, and how that is told."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from reference_support import out, program, reading, shared, u32, updating, values

from vyre.errors import FuelExhausted
from vyre.ir import build as b
from vyre.reference import IN_ORDER, REVERSED, Difference, explore, run, seeded

v, gid, lid = b.var, b.gid, b.lid


def tickets(count: int = 64) -> object:
    return program([updating("next", 1), out(count)], 8, b.store("out", b.atomic_add("next", 0, 1), gid()))


def test_ordered_schedules_run_invocations_in_their_order() -> None:
    assert values(run(tickets(), [u32(0)])) == list(range(64))
    assert values(run(tickets(), [u32(0)], schedule=REVERSED)) == list(range(63, -1, -1))


def test_seeded_schedules_repeat_and_differ() -> None:
    first, again, other = (values(run(tickets(), [u32(0)], schedule=seeded(s))) for s in (3, 3, 4))
    assert first == again
    assert len({tuple(first), tuple(other), tuple(range(64))}) == 3
    assert sorted(first) == list(range(64))


def test_seeded_schedules_switch_between_the_accesses_of_one_statement() -> None:
    """A plain read-modify-write loses updates when another invocation comes between."""
    source = program([updating("s", 1)], 8, b.store("s", 0, b.load("s", 0) + 1))
    counts = {values(run(source, [u32(0)], grid=(4,), schedule=seeded(k)), "s")[0] for k in range(5)}
    assert values(run(source, [u32(0)], grid=(4,)), "s") == [32]
    assert min(counts) < 32


def test_seeded_schedules_mix_workgroups() -> None:
    order = values(run(tickets(), [u32(0)], schedule=seeded(0)))
    groups = [invocation // 8 for invocation in order]
    assert sum(a != b for a, b in pairwise(groups)) > 16


def test_exploring_a_program_with_one_result() -> None:
    source = program(
        [updating("sum", 1), shared("tile", 8), out(64)], 8,
        b.store("tile", lid(), gid()),
        b.let("ignored", b.atomic_add("sum", 0, gid())),
        b.barrier(),
        b.store("out", gid(), b.load("tile", 7 - lid())),
    )  # fmt: skip
    found = explore(source, [u32(0)], schedules=6)
    assert (found.results_equal, found.order_dependent, found.races, found.difference) == (True, False, (), None)
    assert [str(one.schedule) for one in found.runs] == [
        "in order", "reversed", "seeded(0)", "seeded(1)", "seeded(2)", "seeded(3)",
    ]  # fmt: skip
    assert len({one.result.outputs["out"].tobytes() for one in found.runs if one.result}) == 1


def test_exploring_tickets_tells_that_and_where_order_matters() -> None:
    found = explore(tickets(), [u32(0)], schedules=3)
    assert found.order_dependent
    assert found.difference == Difference(IN_ORDER, REVERSED, "out", 0)
    assert found.races == ()


def test_exploring_a_race_reports_it() -> None:
    source = program([out(1)], 8, b.store("out", 0, gid()))
    found = explore(source, (), grid=(1,))
    assert found.order_dependent
    assert [(race.buffer, race.element) for race in found.races] == [("out", 0)]


def test_exploring_where_only_some_orders_end() -> None:
    """The first invocation spins until the last one has stored."""
    source = program(
        [updating("flag", 1), out(2)], 2,
        b.if_(gid().eq(1), [b.store("out", 0, b.atomic_store("flag", 0, 1))], [
            b.while_(b.atomic_load("flag", 0).eq(0), []),
        ]),
    )  # fmt: skip
    found = explore(source, [u32(0)], fuel=5000, schedules=4)
    assert found.runs[0].error is not None
    assert found.runs[1].result is not None
    assert found.difference == Difference(IN_ORDER, REVERSED)


def test_exploring_where_no_order_ends_raises() -> None:
    with pytest.raises(FuelExhausted):
        explore(program([out(1)], 1, b.while_(True, [])), (), fuel=100, schedules=3)


def test_large_grids_under_a_seed() -> None:
    count = 20_000
    source = program([reading("a"), out()], 64, b.store("out", gid(), b.load("a", gid()) * 2))
    data = np.arange(count, dtype=np.uint32)
    result = run(source, [data], elements=count, schedule=seeded(9))
    assert np.array_equal(result.outputs["out"], data * 2)


def test_long_straight_programs_under_a_seed() -> None:
    """A block for every access: as many as the program is long."""
    source = program([updating("s", 1)], 1, *[b.store("s", 0, b.load("s", 0) + 1)] * 30_000)
    assert values(run(source, [u32(0)], grid=(1,), schedule=seeded(0)), "s") == [30_000]
