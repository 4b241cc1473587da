"""Generated programs with grid barriers in every legal place give by every route what the program itself gives."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from everywhere import SCHEDULES, backend_for
from lower.barriers import with_more_barriers
from vyre.backends.reference import ReferenceBackend
from vyre.conform import Case, Profile, answer_traps, generate
from vyre.driver import routes
from vyre.driver.binding import binder_of
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.lower import CutProgram, cut_program
from vyre.lower.plan import contains_grid_sync

WEIGHTS = (("while", 9), ("loop", 9), ("break", 8), ("continue", 8), ("trap", 6), ("transfer", 9), ("return", 4))
SMALL = Profile(
    max_invocations=6, max_nesting=4, max_repetition=8, expression_depth=2, extensions=False, weights=WEIGHTS
)
LARGE = Profile(max_invocations=24, weights=WEIGHTS)

ROUTES: tuple[routes.Route, ...] = ("native", "resident", "host")
SCHEDULED = {route: [backend_for(route, schedule) for schedule in SCHEDULES] for route in ROUTES}


def expected_bytes(case: Case, config: DispatchConfig) -> list[bytes]:
    return [bytes(view) for view in SCHEDULED["native"][0].dispatch(case.program, case.inputs, config)]


def config_of(case: Case) -> DispatchConfig:
    handlers = dict.fromkeys(case.handled, answer_traps)
    return DispatchConfig(grid_override=case.grid, dispatch_elements=case.elements, handlers=handlers)


def program_of(case: Case, seed: int, share: float) -> Program:
    """The case's program with more barriers, and its calls inlined, as it is cut."""
    return binder_of(with_more_barriers(case.program, Random(seed), share)).program


def check_case(seed: int, size: int, profile: Profile, share: float) -> bool:
    """Runs one case by every route, each under another schedule, changing with the seed; false without a barrier."""
    case = generate(seed, size, profile)
    program = program_of(case, seed, share)
    if not contains_grid_sync(program):
        return False
    config = config_of(case)
    expected = expected_bytes(case, config)
    for turn, route in enumerate(ROUTES):
        backend: ReferenceBackend = SCHEDULED[route][(seed + turn) % len(SCHEDULES)]
        # Every segment is checked before it runs, as any program is.
        found = [bytes(view) for view in routes.dispatch(backend, program, case.inputs, config, route=route)]
        assert found == expected, f"seed {seed}: {route}"
    return True


def features(cut: CutProgram) -> Counter[str]:
    """Which ways of carrying something a cut program uses."""
    state = cut.state
    assert state is not None
    carried = [one for spill in state.spills.at for one in spill.carried]
    names = {name.rstrip("0123456789").rstrip("_") for name in state.spills.types}
    return Counter({
        "straight": cut.straight,
        "driven": not cut.straight,
        "rows": any(one.in_row for one in carried),
        "grid cells": any(spill.grid_cells for spill in state.spills.at),
        "workgroup cells": any(spill.group_cells for spill in state.spills.at),
        "cells in turns": any(order in segment.exits for order, segment in enumerate(cut.segments)),
        "memory by all": bool(state.memory_rows) and not state.may_exit_early,
        "memory by the last": bool(state.memory_rows) and state.may_exit_early,
        "returned": state.may_exit_early and not state.parkings,
        "parked": bool(state.parkings),
        "transfer": bool({"offset", "size"} & names),
        "captured": bool(state.captures),
        "recomputed": any(spill.restored & state.spills.recomputed.keys() for spill in state.spills.at),
        "copied": any(segment.before is not None for segment in cut.segments),
    })  # fmt: skip


@pytest.mark.parametrize("block", range(10))
def test_generated_programs_give_the_same_by_every_route(block: int) -> None:
    cases = sum(check_case(seed, 8, SMALL, 0.25) for seed in range(210 * block, 210 * (block + 1)))
    assert cases >= 200


def test_the_generated_programs_carry_everything_that_can_be_carried() -> None:
    seen: Counter[str] = Counter()
    for seed in range(0, 2100, 10):
        program = program_of(generate(seed, 8, SMALL), seed, 0.25)
        if contains_grid_sync(program):
            cut = cut_program(program)
            seen += features(cut)
            assert all(parse(str(segment.program)) == segment.program for segment in cut.segments)
    assert len(seen) == 14, f"not everything occurred: {seen}"


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_larger_generated_programs_give_the_same_by_every_route(block: int) -> None:
    seeds = range(100_000 + 500 * block, 100_000 + 500 * (block + 1))
    assert sum(check_case(seed, 30, LARGE, 0.1 + 0.05 * (seed % 10)) for seed in seeds) >= 250
