"""What the checker accepts, the reference runs: programs changed at random either are refused or run to their end.

The generator makes legal programs on purpose; here they lose, repeat and gain statements, and read ids, without one.
Whatever the checker still accepts may race or not end, but its invocations never miss each other at a barrier, its
transfers are always in order, and nothing raises an error that has no name.
"""

from random import Random

import msgspec
import pytest

from vyre.checker import check
from vyre.conform import Case, generate, run_on_reference
from vyre.errors import DispatchFailed
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.reference import IN_ORDER, REVERSED, seeded
from vyre.semantics.types import DType

FUEL = 8_000
HARMLESS = {"fuel-exhausted", "trap-raised"}
INSERTED = (n.Barrier(), n.Barrier(n.MemoryOrder.GRID_SYNC), n.Return(), n.Break(), n.Continue(), n.Resume("ask"))
SOURCES = (n.LocalId(0), n.WorkgroupId(0), n.InvocationId(0), n.SubgroupLocalId(), n.NumWorkgroups(1))


def changed(case: Case, random: Random) -> Case:
    """The case with a few statements deleted, repeated or inserted, and a few numbers made to differ."""
    rate = random.choice((0.02, 0.05, 0.15))

    def change(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        if random.random() > rate:
            return (statement,)
        choice = random.random()
        if choice < 0.4:
            return ()
        if choice < 0.5:
            return (statement, statement)
        inserted = random.choice(INSERTED)
        return (statement, inserted) if random.random() < 0.7 else (inserted, statement)

    def diverge(node: n.Expr) -> n.Expr:
        is_literal = isinstance(node, n.Lit) and node.dtype is DType.U32
        agreed = is_literal or isinstance(node, (n.NumWorkgroups, n.BufLen))
        return random.choice(SOURCES) if agreed and random.random() < rate else node

    program = case.program.with_entry(walk.rewrite(case.program.entry, diverge, change))
    return msgspec.structs.replace(case, program=program, fuel=FUEL)


def run_changed(seed: int) -> bool:
    """Runs the changed case of a seed, if it is legal; says whether it was."""
    case = changed(generate(seed, size=30), Random(seed))
    if not check(case.program).ok:
        return False
    for schedule in (IN_ORDER, REVERSED, seeded(seed)):
        try:
            run_on_reference(case, schedule=schedule, checked=True)
        except DispatchFailed as error:
            assert error.code in HARMLESS, f"seed {seed}, {schedule}: {error}\n{case.program}"
    return True


@pytest.mark.parametrize("start", range(0, 200, 100))
def test_accepted_programs_never_fail_without_a_reason(start: int) -> None:
    legal = sum(run_changed(seed) for seed in range(start, start + 100))
    assert legal > 15


@pytest.mark.long
@pytest.mark.parametrize("start", range(20_000, 26_000, 200))
def test_many_accepted_programs_never_fail_without_a_reason(start: int) -> None:
    assert sum(run_changed(seed) for seed in range(start, start + 200)) > 30
