"""Does a backend give what programs mean? Each case is run in every way there is and compared with the reference.

The ways: the reference under other schedules and looking for races, text and wire round trips, the backend with its
optimizer on and off, every grid-sync route, and the optimised program, also with one of the optimizer's switches off
(by the seed).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from vyre.conform.case import Case, answer_traps, run_on_reference
from vyre.conform.shrinker import reproducer, shrink
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.optimizing import BackendDispatcher, default_dispatcher
from vyre.driver.profile import DeviceProfile
from vyre.driver.routes import Route, dispatch
from vyre.errors import UnsupportedFeature, VyreError
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.lower.plan import contains_grid_sync
from vyre.optimizer.dispatcher import OptimizerDispatcher
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.rules import GROUPS
from vyre.optimizer.switches import EVERYTHING, NOTHING, PASSES, Optimization
from vyre.reference import IN_ORDER, REVERSED, Schedule, seeded
from vyre.semantics.types import ALL_TYPES, DType


class Ended(str):
    """The code of a failure, which is what has to be the same; ``told`` is the whole sentence."""

    told: str


# What a run gives: its outputs by name, or how it failed.
Outcome = dict[str, bytes] | str

_ROUTES: Final[tuple[Route, ...]] = ("native", "resident", "host")
_TRIES: Final = 600
_SWITCHES: Final = (*PASSES, *GROUPS)
# Generated programs never come again, so nobody has a use for what they became.
_NOT_KEPT: Final = Optimization(keep=False)


class Trial(msgspec.Struct, frozen=True, eq=False):
    """The backend that is tried, and where the optimizer runs."""

    backend: Backend
    dispatcher: OptimizerDispatcher


class Way(msgspec.Struct, frozen=True, eq=False):
    """A way to run a case, given what must come out; it may refuse with UnsupportedFeature."""

    name: str
    give: Callable[[Case, Outcome], Outcome]
    detail: str = ""


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """What a case must give, what each way gave, the ways that refused and why, and those that are wrong and how."""

    expected: Outcome
    given: dict[str, Outcome]
    refused: dict[str, str]
    wrong: dict[str, str]


def trial_of(backend: Backend) -> Trial:
    """A trial of a backend, which runs the optimizer too, unless it lacks a type that the optimizer needs."""
    dispatcher: OptimizerDispatcher = BackendDispatcher(backend)
    try:
        optimize_with(Program.empty(), dispatcher)
    except UnsupportedFeature:
        dispatcher = default_dispatcher()
    except Exception:
        # A backend that fails here is wrong, which the comparisons tell with a program that shows it.
        pass
    return Trial(backend, dispatcher)


def limits_for(device: DeviceProfile) -> dict[str, object]:
    """What generated programs may use on a device: the fields of a profile.

    Programs mix floats into everything that they give, so only floats that are exact can be compared.
    """
    dtypes = tuple(d for d in ALL_TYPES if d in device.dtypes and (device.float_exact or not d.is_float))
    wide = (DType.U64, DType.I64) if device.atomics64 else ()
    return {
        "dtypes": dtypes,
        "atomic_types": tuple(d for d in (DType.U32, DType.I32, *wide) if d in dtypes),
        "subgroups": device.subgroup_ops,
        "transfers": device.async_transfers,
        "workgroup_memory": device.shared_memory,
    }


def run_case(
    case: Case,
    on: Backend,
    *,
    optimize: bool | Optimization = True,
    route: Route = "auto",
    program: Program | None = None,
    timeout_s: float | None = 60.0,
) -> dict[str, bytes]:
    """The outputs by name, by whatever route the program needs, or by the one asked for."""
    config = DispatchConfig(
        grid_override=case.grid,
        dispatch_elements=case.elements,
        handlers=dict.fromkeys(case.handled, answer_traps),
        timeout_s=timeout_s,
        optimize=optimize,
    )
    outputs = dispatch(on, program or case.program, case.inputs, config, route=route)
    names = [decl.name for decl in case.program.output_buffers()]
    return dict(zip(names, map(bytes, outputs), strict=True))


def meaning(case: Case, schedule: Schedule = IN_ORDER, *, races: bool = False) -> Outcome:
    """What the case must give: bytes by name, or the code of the failure; a race, if they are looked for."""
    try:
        result = run_on_reference(case, schedule=schedule, races=races)
    except VyreError as error:
        return error.code
    if result.races:
        return f"a race: {result.races[0]}"
    return {name: result.output_bytes(name) for name in result.outputs}


def outcome(run: Callable[[], dict[str, bytes]]) -> Outcome:
    """What a run gives; any failure without a name is one that was not meant."""
    try:
        return run()
    except UnsupportedFeature:
        raise
    except VyreError as error:
        ended = Ended(error.code)
        ended.told = str(error)
        return ended
    except Exception as error:
        return repr(error)


def compare(expected: Outcome, got: Outcome) -> str | None:
    """What is different: None if nothing is; failures have to agree in kind."""
    if expected == got:
        return None
    if isinstance(expected, dict) and isinstance(got, dict):
        return f"outputs differ: {', '.join(name for name in expected if expected[name] != got[name])}"
    shown = ["outputs" if isinstance(one, dict) else getattr(one, "told", one) for one in (expected, got)]
    return f"expected {shown[0]}, got {shown[1]}"


def ways_of(trial: Trial, case: Case, seed: int = 0) -> Iterator[Way]:
    """Every way to run a case: first those that tell whether it has one meaning, then the backend's."""
    backend = trial.backend

    def on_backend(optimize: Optimization) -> Callable[[Case, Outcome], Outcome]:
        return lambda case, _: outcome(lambda: run_case(case, backend, optimize=optimize))

    def by_route(route: Route) -> Callable[[Case, Outcome], Outcome]:
        # With a limit on its time a program whose cuts are straight would not run as one sequence.
        return lambda case, _: outcome(lambda: run_case(case, backend, optimize=NOTHING, route=route, timeout_s=None))

    def optimised(switches: Optimization) -> Callable[[Case, Outcome], Outcome]:
        def give(case: Case, _: Outcome) -> Outcome:
            def run() -> dict[str, bytes]:
                program, _ = optimize_with(case.program, trial.dispatcher, groups=switches.bits)
                return run_case(case, backend, optimize=NOTHING, program=program)

            return outcome(run)

        return give

    yield Way("reference, reversed", lambda case, _: meaning(case, REVERSED))
    yield Way("reference, in random order", lambda case, _: meaning(case, seeded(seed)))
    yield Way("reference, races", lambda case, _: meaning(case, races=True))
    yield Way("text", lambda case, expected: _if_same(case, parse(str(case.program)), expected))
    yield Way("wire", lambda case, expected: _if_same(case, decode(encode(case.program)), expected))
    yield Way(backend.id, on_backend(_NOT_KEPT))
    yield Way(f"{backend.id}, optimizer off", on_backend(NOTHING))
    if contains_grid_sync(case.program):
        for route in _ROUTES:
            yield Way(f"{backend.id}, {route} route", by_route(route))
    yield Way("optimised", optimised(EVERYTHING))
    without = _SWITCHES[seed % len(_SWITCHES)]
    yield Way("optimised with a switch off", optimised(Optimization(frozenset({without}))), f" (without '{without}')")


def _if_same(case: Case, back: Program, expected: Outcome) -> Outcome:
    return expected if back == case.program else "another program came back"


def judge(trial: Trial, case: Case, seed: int = 0) -> Verdict:
    """Runs a case in every way and says where it does not give what it must; after a timeout there are no more."""
    expected = meaning(case)
    verdict = Verdict(expected, {}, {}, {})
    for way in ways_of(trial, case, seed):
        try:
            given = verdict.given[way.name] = way.give(case, expected)
        except UnsupportedFeature as error:
            verdict.refused[way.name] = error.name
            continue
        difference = compare(expected, given)
        if difference is not None:
            verdict.wrong[way.name] = difference + way.detail
        if given == "timeout":
            break
    return verdict


def reduced(trial: Trial, case: Case, way: str, seed: int = 0) -> str:
    """The smallest program found that is still wrong that way, as a ``.vyre`` file that tells what it must give."""

    def is_wrong(smaller: Case) -> bool:
        if not smaller.program.output_buffers():
            return False  # a file could not say what it expects
        expected = meaning(smaller)
        same = (one for one in ways_of(trial, smaller, seed) if one.name == way)
        return any(compare(expected, one.give(smaller, expected)) is not None for one in same)

    try:
        return reproducer(shrink(case, is_wrong, _TRIES))
    except VyreError as error:
        # The shrinker asks for a case that the reference runs to its end, always with the same result.
        return f"# not reduced: {' '.join(str(error).split())}\n{case.program}\n"
