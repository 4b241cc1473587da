"""How does the command run a program? On a backend through the driver, or on the reference with its reports."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from vyre import reference
from vyre.driver import registry, routes
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.errors import BackendUnavailable
from vyre.ir.binding import Array, bind_inputs
from vyre.ir.places import describe
from vyre.ir.program import Program
from vyre.lower.plan import contains_grid_sync
from vyre.reference import Schedule
from vyre.words import counted


class Order(msgspec.Struct, frozen=True):
    """What only the reference can do: choose an order, look for races, stop after so many steps."""

    schedule: Schedule
    races: bool
    fuel: int | None


class Told(msgspec.Struct, frozen=True):
    """What a run has to tell: the outputs, a few facts, and the reports of the reference."""

    program: Program
    outputs: Mapping[str, Array]
    facts: Mapping[str, Any]
    reports: tuple[str, ...] = ()
    racy: bool = False


def interpret(
    program: Program, inputs: Mapping[str, Any], grid: tuple[int, ...] | None, elements: int | None, order: Order
) -> Told:
    """Runs a checked program on the reference interpreter, with its reports."""
    fuel = reference.DEFAULT_FUEL if order.fuel is None else order.fuel
    start = time.perf_counter()
    result = reference.run(
        program,
        inputs,
        grid=grid,
        elements=elements,
        schedule=order.schedule,
        fuel=fuel,
        races=order.races,
        checked=True,
    )
    facts = {"backend": "reference", "steps": result.steps, "seconds": round(time.perf_counter() - start, 6)}
    missed = [
        f"{_where(program, miss.place)}: {counted(miss.count, 'access', 'accesses')} of '{miss.buffer}' out of bounds"
        for miss in result.out_of_bounds
    ]
    return Told(program, result.outputs, facts, (*map(str, result.races), *missed), bool(result.races))


def launch(
    program: Program,
    inputs: Mapping[str, Any],
    grid: tuple[int, ...] | None,
    elements: int | None,
    device: Backend,
    route: Any,
    iterations: int | None,
    *,
    optimize: bool = True,
) -> Told:
    """Runs a checked program on a backend."""
    config = DispatchConfig(
        grid_override=grid, dispatch_elements=elements, fixpoint_iterations=iterations, optimize=optimize
    )
    bound = list(bind_inputs(program, inputs).values())
    facts: dict[str, Any] = {"backend": device.id}
    if contains_grid_sync(program):
        facts["route"] = routes.choose_route(device, program, bound, config, route)
    start = time.perf_counter()
    result = routes.dispatch_timed(device, program, bound, config, route=route)
    facts["seconds"] = round(time.perf_counter() - start, 6)
    if iterations is not None:
        facts |= {"passes": result.passes, "converged": result.converged}
    arrays = {
        decl.name: np.frombuffer(data, decl.dtype.storage)
        for decl, data in zip(program.output_buffers(), result.outputs, strict=True)
    }
    return Told(program, arrays, facts)


def open_backend(name: str | None) -> Backend:
    """The backend of that name; without one the default, or the reference where it is alone."""
    try:
        return registry.backend(name)
    except BackendUnavailable:
        if name or os.environ.get("VYRE_BACKEND"):
            raise
        print("note: no compiled backend is available here, so the reference interpreter runs this.", file=sys.stderr)
        return registry.backend("reference")


def _where(program: Program, place: Any) -> str:
    source = program.source
    if source is None:
        return describe(program, place)
    line, column = source.line_and_column(source.span(place).start)
    return f"{source.name}:{line}:{column}"
