"""One program by every route, under several schedules and on the processor: all must give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from cpu_support import sharing_backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.driver.timing import TimedResult
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.reference import IN_ORDER, REVERSED, Schedule, seeded

POISON = 0xA5
SCHEDULES = (IN_ORDER, REVERSED, seeded(7))
ROUTES: tuple[routes.Route, ...] = ("native", "resident", "host")


def backend_for(route: str, schedule: Schedule = IN_ORDER, fuel: int = 1_000_000) -> ReferenceBackend:
    """A backend that has what the route needs and nothing better."""
    return ReferenceBackend(
        grid_sync=route == "native", resident=route == "resident", schedule=schedule, poison=POISON, fuel=fuel
    )


def run_by(
    route: routes.Route,
    program: Program,
    inputs: Mapping[str, Any],
    config: DispatchConfig,
    schedule: Schedule = IN_ORDER,
) -> TimedResult:
    return routes.dispatch_timed(backend_for(route, schedule), program, inputs, config, route=route)


def run_everywhere(text: str | Program, inputs: Mapping[str, Any] | None = None, **config: Any) -> dict[str, list[Any]]:
    """The outputs by name, the same by every route and schedule; inputs are lists or arrays by buffer name."""
    program = parse(text) if isinstance(text, str) else text
    given = inputs or {}
    data = {d.name: np.asarray(given[d.name], d.dtype.storage) for d in program.input_buffers()}
    settings = DispatchConfig(**config)
    wanted = run_by("native", program, data, settings)
    for route in ROUTES:
        for schedule in SCHEDULES:
            result = run_by(route, program, data, settings, schedule)
            assert [bytes(view) for view in result.outputs] == [bytes(view) for view in wanted.outputs], route
            assert (result.passes, result.converged) == (wanted.passes, wanted.converged), route
        for threads in (1, 2):
            result = routes.dispatch_timed(sharing_backend(threads), program, data, settings, route=route)
            assert [bytes(view) for view in result.outputs] == [bytes(view) for view in wanted.outputs], route
            assert (result.passes, result.converged) == (wanted.passes, wanted.converged), route
    return {
        decl.name: np.frombuffer(view, decl.dtype.storage).tolist() if len(view) else []
        for decl, view in zip(program.output_buffers(), wanted.outputs, strict=True)
    }
