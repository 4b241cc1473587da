"""Random control flow around barriers on the processor: whoever leaves a loop or a branch, the bytes stay the same."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from cpu_support import backend, sharing_backend
from lower.skeletons import Skeleton
from lower.test_skeletons import CONFIG, INPUTS
from vyre import reference
from vyre.backends.reference import ReferenceBackend
from vyre.checker import check
from vyre.driver import routes
from vyre.errors import UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.lower.plan import contains_grid_sync
from vyre.optimizer.switches import EVERYTHING, NOTHING

SETTINGS = ((4, 1), (8, 2), (16, 1), (1, 2))


def with_workgroup_barriers(program: Program) -> Program:
    """The program with barriers of the workgroup alone, and nothing that the whole grid waits for."""

    def replace(statement: n.Stmt) -> Iterable[n.Stmt]:
        if isinstance(statement, n.Barrier):
            return (n.Barrier(),)
        return () if isinstance(statement, (n.Trap, n.Resume)) else (statement,)

    return program.with_entry(walk.rewrite(program.entry, on_statement=replace))


def same_within_workgroups(seed: int) -> bool:
    """Compares with the reference; false if the program is illegal, or if its workgroups race with each other."""
    program = with_workgroup_barriers(Skeleton(seed).program())
    if contains_grid_sync(program) or not program.stats().has_barriers or not check(program).ok:
        return False
    meant = reference.run(program, INPUTS, grid=CONFIG.grid_override, races=True, checked=True)
    if meant.races:
        return False
    config = CONFIG.with_changes(optimize=EVERYTHING if seed % 3 == 0 else NOTHING)
    found = backend(*SETTINGS[seed % len(SETTINGS)]).dispatch(program, INPUTS, config)
    assert [bytes(view) for view in found] == [bytes(meant.output_bytes(name)) for name in meant.outputs], seed
    return True


def same_over_the_grid(seed: int) -> bool:
    """Compares a program with grid barriers; false if it is illegal or cannot be cut."""
    program = Skeleton(seed).program()
    if not contains_grid_sync(program) or not check(program).ok:
        return False
    meant = routes.dispatch(ReferenceBackend(), program, INPUTS, CONFIG)
    try:
        config = CONFIG.with_changes(optimize=EVERYTHING if seed % 3 == 0 else NOTHING)
        found = routes.dispatch(sharing_backend(1 + seed % 2), program, INPUTS, config, route="native")
    except UnsupportedFeature:
        return False
    assert [bytes(view) for view in found] == [bytes(view) for view in meant], seed
    return True


@pytest.mark.parametrize("block", range(4))
def test_barriers_of_workgroups_in_random_control_flow(block: int) -> None:
    assert sum(same_within_workgroups(seed) for seed in range(60 * block, 60 * (block + 1))) >= 10


def test_barriers_of_the_grid_in_random_control_flow() -> None:
    assert sum(same_over_the_grid(seed) for seed in range(30)) >= 10


@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_more_barriers_in_random_control_flow(block: int) -> None:
    assert sum(same_within_workgroups(seed) for seed in range(1000 + 500 * block, 1000 + 500 * (block + 1))) >= 80
