"""Routes of programs with grid barriers: natively, as segments on resident memory, or through the host.

All give the same bytes. These functions force a route, or tell which one a call takes; ``Backend.compile`` chooses by
itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from vyre.driver import telemetry
from vyre.driver.backend import Backend
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, Route
from vyre.driver.outputs import OutputBuffers
from vyre.driver.pending import Inputs
from vyre.driver.resident import ResidentBuffer
from vyre.driver.timing import TimedResult
from vyre.ir.program import Program
from vyre.lower.plan import contains_grid_sync

__all__ = ["Route"]


def dispatch(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    *,
    into: OutputBuffers | None = None,
    route: Route = "auto",
) -> list[memoryview]:
    """Run any program by the best route there is, or by the one that is asked for."""
    return dispatch_timed(backend, program, inputs, config, into=into, route=route).outputs


def dispatch_timed(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    *,
    into: OutputBuffers | None = None,
    route: Route = "auto",
) -> TimedResult:
    """A dispatch by a route, how long it took, and how many passes it ran."""
    if not contains_grid_sync(program):
        telemetry.count(route_plain=1)
        route = "auto"
    return backend.compile(program, config, route=route).run_timed(inputs, config or DEFAULT_CONFIG, into)


def choose_route(
    backend: Backend, program: Program, inputs: Inputs, config: DispatchConfig, route: Route = "auto"
) -> str:
    """The route of a call: the one asked for, if it is open, else the first that is."""
    executable = backend.compile(program, config, route=route)
    return executable.fitting(executable.binder.bind(inputs, config).plan).route


def dispatch_with_grid_sync_split(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> list[memoryview]:
    """Run a program as segments through the host."""
    return dispatch_with_grid_sync_split_timed(backend, program, inputs, config, into).outputs


def dispatch_with_grid_sync_split_timed(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> TimedResult:
    """The same, and how long it took."""
    return dispatch_timed(backend, program, inputs, config, into=into, route="host")


def dispatch_resident_grid_sync_fixpoint(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> list[memoryview]:
    """Run a program as segments on resident memory, as often as the config says, reading only its outputs."""
    return dispatch_timed(backend, program, inputs, config, into=into, route="resident").outputs


def dispatch_resident_with_grid_sync_split_timed(
    backend: Backend, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
) -> TimedResult:
    """Run a program as segments on the caller's resident buffers, given in binding order; nothing is read."""
    route: Route = "resident" if contains_grid_sync(program) else "auto"
    return backend.compile(program, config, route=route).run_resident(resources, config or DEFAULT_CONFIG)
