"""The race detector: what conflicts, what does not, and that it agrees with comparing every pair."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_support import out, program, reading, shared, u32, updating

from vyre.ir import build as b
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Stmt
from vyre.ir.places import Place
from vyre.reference import REVERSED, Access, AccessKind, Race, run, seeded
from vyre.reference.races import MAX_REPORTS, AccessLog
from vyre.semantics.types import DType

v, gid, lid = b.var, b.gid, b.lid
READ, WRITE, ATOMIC = AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC


def races(*entry: Stmt, workgroup: int = 2, grid: int = 2, **options: object) -> list[tuple[str, int, str, str]]:
    source = program([reading("a", 8), updating("s", 8), shared("tile", 8), out(8)], workgroup, *entry)
    inputs = [u32(*range(8)), u32(*[0] * 8)]
    found = run(source, inputs, grid=(grid,), races=True, checked=True, **options).races
    return [(race.buffer, race.element, race.first.kind.value, race.second.kind.value) for race in found]


def test_a_race_names_both_places_and_the_element() -> None:
    source = program(
        [updating("s", 4), out(4)], 4,
        b.store("s", gid(), gid()),
        b.store("out", gid(), b.load("s", (gid() + 1) & 3)),
    )  # fmt: skip
    found = run(source, [u32(0, 0, 0, 0)], races=True).races
    # In order, invocation 1 writes the element that invocation 0 has read; reversed, 2 reads what 3 has written.
    assert found == (Race("s", 1, Access(READ, Place(1, 6), 0), Access(WRITE, Place(0), 1)),)
    found = run(source, [u32(0, 0, 0, 0)], races=True, schedule=REVERSED).races
    assert found == (Race("s", 3, Access(WRITE, Place(0), 3), Access(READ, Place(1, 6), 2)),)


def test_disjoint_elements_and_shared_reads_are_fine() -> None:
    assert races(b.store("s", gid(), b.load("a", 0) + b.load("a", gid()))) == []


def test_writes_of_the_same_bits_agree() -> None:
    assert races(b.store("s", 0, 7)) == []
    assert races(b.store("s", 0, gid())) == [("s", 0, "write", "write")]


def test_agreement_is_of_bits_not_of_values() -> None:
    def found(first: float, second: float) -> int:
        source = program([out(1, dtype=DType.F32)], 2, b.store("out", 0, b.select(gid().eq(0), first, second)))
        return len(run(source, (), grid=(1,), races=True).races)

    assert found(0.0, -0.0) == 1
    assert found(float("nan"), float("nan")) == 0


def test_an_invocation_does_not_race_with_itself() -> None:
    assert races(b.store("s", gid(), 1), b.store("s", gid(), b.load("s", gid()) + 1)) == []


def test_atomics_agree_with_each_other_and_conflict_with_plain_accesses() -> None:
    tick = b.let("t", b.atomic_add("s", 0, 1))
    assert races(tick) == []
    assert races(tick, b.store("out", gid(), b.load("s", 0))) == [("s", 0, "read", "atomic")]
    assert races(b.if_(gid().eq(3), [b.store("s", 0, 0)], [tick])) == [("s", 0, "atomic", "write")]


def test_out_of_bounds_accesses_touch_nothing() -> None:
    assert races(b.store("s", 100, gid())) == []


def test_a_workgroup_barrier_orders_its_workgroup() -> None:
    crossing = [b.store("tile", lid(), gid()), b.barrier(), b.store("out", gid(), b.load("tile", 1 - lid()))]
    assert races(*crossing) == []
    assert races(crossing[0], crossing[2]) == [("tile", 1, "read", "write")]


def test_a_workgroup_barrier_does_not_order_other_workgroups() -> None:
    entry = [b.store("s", gid(), gid()), b.barrier(), b.store("out", gid(), b.load("s", 3 - gid()))]
    assert races(*entry) == [("s", 2, "read", "write")]
    assert races(*entry, workgroup=4, grid=1) == []


def test_a_grid_barrier_orders_everything() -> None:
    entry = [b.store("s", gid(), gid()), b.grid_sync(), b.store("out", gid(), b.load("s", 3 - gid()))]
    assert races(*entry) == []


def test_each_workgroup_has_workgroup_memory_of_its_own() -> None:
    assert races(b.store("tile", lid(), gid()), workgroup=1, grid=4) == []


def test_a_write_after_the_readers_of_a_later_epoch() -> None:
    """Invocation 0 reads in each epoch of its workgroup; the other workgroup writes once."""
    entry = [
        b.if_(b.wg().eq(0), [b.store("out", gid(), b.load("s", 0))]),
        b.barrier(),
        b.if_(b.wg().eq(1) & lid().eq(0), [b.store("s", 0, 1)]),
    ]
    assert races(*entry) == [("s", 0, "read", "write")]


def test_transfers_read_when_issued_and_write_when_waited_for() -> None:
    copy = [b.async_load("s", "out", 0, 8, "t"), b.async_wait("t")]
    assert races(*copy) == []
    assert races(b.store("s", gid(), gid()), *copy)[0] == ("s", 1, "read", "write")
    half = [b.async_store("a", "s", gid() * 2, 2, "t"), b.async_wait("t")]
    assert races(*half, workgroup=2, grid=1) == [("s", 0, "write", "write")]
    whole = [b.async_store("a", "s", gid() * 4, 4, "t"), b.async_wait("t")]
    assert races(*whole) == []


def test_reports_are_one_for_each_pair_of_places() -> None:
    racy = [b.store("s", k, gid()) for k in range(3)]
    assert len(races(*racy)) == 3
    many = [b.store("s", 0, gid() + k) for k in range(2)]
    assert len(races(*many)) == 1


def test_reports_are_bounded() -> None:
    source = program([out(200)], 2, *[b.store("out", k, gid()) for k in range(200)])
    assert len(run(source, (), grid=(1,), races=True).races) == MAX_REPORTS


@pytest.mark.parametrize("seed", range(4))
def test_seeded_schedules_find_the_same_elements(seed: int) -> None:
    entry = [b.store("s", gid(), gid()), b.store("out", gid(), b.load("s", (gid() + 1) & 3))]
    assert {element for _, element, _, _ in races(*entry, schedule=seeded(seed))} <= {0, 1, 2, 3}
    assert races(*entry, schedule=seeded(seed))


ACCESSES = st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from(list(AccessKind)), st.integers(0, 1))
STEPS = st.lists(st.one_of(ACCESSES, st.integers(0, 2)), max_size=14)


@settings(max_examples=800, deadline=None)
@given(STEPS)
def test_bounded_memory_finds_what_comparing_every_pair_finds(steps: list) -> None:
    check_against_every_pair(steps)


def test_bounded_memory_finds_every_conflict_of_up_to_five_writes() -> None:
    writes = [(group, lane, WRITE, value) for group in range(2) for lane in range(2) for value in range(2)]
    for rest in product([*writes, 0, 1], repeat=4):
        check_against_every_pair([writes[0], *rest])


def check_against_every_pair(steps: Iterable) -> None:
    """A step is an access (workgroup, lane, kind, value) to one element, or a barrier of a workgroup."""
    groups = [SimpleNamespace(linear=k, epoch=0) for k in range(3)]
    log = AccessLog({"s": BufferDecl.storage("s", 0, DType.U32)})
    history: list[tuple[int, int, int, AccessKind, int]] = []
    for step in steps:
        if isinstance(step, int):
            groups[step].epoch += 1
            continue
        group, lane, kind, value = step
        invocation = SimpleNamespace(group=groups[group], linear=group * 3 + lane)
        log.record(invocation, "s", 0, kind, Place(0), value if kind is WRITE else None)
        history.append((group, groups[group].epoch, invocation.linear, kind, value))
    expected = any(_conflict(one, two) for one, two in combinations(history, 2))
    assert bool(log.races) == expected


def _conflict(one: tuple, two: tuple) -> bool:
    if one[2] == two[2] or (one[0] == two[0] and one[1] != two[1]):
        return False
    kinds = {one[3], two[3]}
    if kinds == {WRITE}:
        return one[4] != two[4]
    return len(kinds) == 2
