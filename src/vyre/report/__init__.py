"""What is there to know about a program? Everything in one record: diagnostics, optimiser, plan, code, timings.

``make_report`` collects it, ``page`` writes it as one HTML page without any other file. What cannot be had here (a
backend that is missing, a run that fails) is told in its place, and the rest is still there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
import numpy as np

from vyre.checker import check
from vyre.checker.diagnostics import Report as Checked
from vyre.driver.config import DispatchConfig
from vyre.driver.optimizing import optimize
from vyre.driver.registry import backend, list_backends
from vyre.driver.routes import choose_route, dispatch
from vyre.errors import VyreError
from vyre.ir.binding import bind_inputs
from vyre.ir.launch import decide_launch
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, contains_grid_sync, plan_grid_sync
from vyre.optimizer.report import Report as Optimised
from vyre.report.page import page
from vyre.words import counted

__all__ = ["Code", "Report", "Run", "generated_code", "make_report", "page", "plan_for"]

DEFAULT_ELEMENTS: Final = 1024
_RUN_SECONDS: Final = 0.25
_MOST_RUNS: Final = 30
_TIMEOUT: Final = 10.0
_BACKEND_OF: Final = {"llvm": "cpu", "asm": "cpu", "wgsl": "webgpu"}
_TITLES: Final = {"llvm": "LLVM IR (cpu)", "asm": "machine code (cpu)", "wgsl": "WGSL (webgpu)"}


class Code(msgspec.Struct, frozen=True):
    """Generated code, or why there is none."""

    kind: str
    title: str
    text: str = ""
    problem: str = ""


class Run(msgspec.Struct, frozen=True):
    """How a backend ran the program: the first call, which compiles, and the best and the middle one of the others."""

    backend: str
    device: str = ""
    route: str = ""
    first_ms: float = 0.0
    best_ms: float = 0.0
    median_ms: float = 0.0
    calls: int = 0
    agrees: bool | None = None
    problem: str = ""


class Report(msgspec.Struct, frozen=True, eq=False):
    """Everything about one program. ``zeros`` names the inputs that were not given and so were zeros."""

    program: Program
    checked: Checked
    optimised: Program | None = None
    optimisation: Optimised | None = None
    optimiser_problem: str = ""
    plan: GridSyncPlan | None = None
    plan_problem: str = ""
    code: tuple[Code, ...] = ()
    runs: tuple[Run, ...] = ()
    zeros: tuple[str, ...] = ()

    @property
    def is_legal(self) -> bool:
        return self.checked.ok

    def summary(self) -> dict[str, Any]:
        """The short facts, for machines."""
        return {
            "program": self.program.name,
            "legal": self.is_legal,
            "errors": len(self.checked.errors),
            "warnings": len(self.checked.warnings),
            "segments": len(self.plan.segments) if self.plan else 0,
            "carried_bytes": sum(one.bytes * one.copies for one in self.plan.state) if self.plan else 0,
            "optimiser": self.optimisation.line if self.optimisation else self.optimiser_problem,
            "code": {one.kind: one.problem or counted(one.text.count("\n"), "line") for one in self.code},
            "runs": [msgspec.to_builtins(run) for run in self.runs],
            "zeros": list(self.zeros),
        }

    def _repr_html_(self) -> str:
        # A frame of its own, so that the page's styles do not reach the notebook's, nor the reverse.
        from html import escape

        return f'<iframe srcdoc="{escape(page(self))}" style="width:100%;height:80vh;border:0"></iframe>'


def make_report(
    program: Program,
    inputs: Mapping[str, Any] | None = None,
    *,
    grid: tuple[int, ...] | None = None,
    elements: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Looks at a program, and runs it on every backend here.

    Inputs that are not given are zeros: as many as declared, or ``elements`` (else 1,024).
    """
    checked = check(program)
    if not checked.ok:
        return Report(program, checked)
    say("optimising")
    better, what, optimiser_problem = _optimised(program)
    say("cutting at grid barriers")
    data, zeros = _with_zeros(program, dict(inputs or {}), elements)
    plan, plan_problem = _planned(program, data, grid, elements)
    code = []
    for kind in _BACKEND_OF:
        say(f"generating {_TITLES[kind]}")
        code.append(_code(program, kind))
    runs = []
    for info in list_backends():
        say(f"running on {info.name}")
        runs.append(
            _run(info.name, program, data, grid, elements)
            if info.available
            else (Run(info.name, problem=info.reason), [])
        )
    return Report(
        program, checked, better, what, optimiser_problem, plan, plan_problem, tuple(code), _agreed(runs), zeros
    )


def plan_for(program: Program, grid: tuple[int, ...] | None, elements: int) -> GridSyncPlan:
    """The plan of a launch whose run-time sized inputs have so many elements."""
    sizes = {decl.name: decl.count or elements for decl in program.input_buffers()}
    return plan_grid_sync(program, decide_launch(program, sizes, grid=grid))


def generated_code(program: Program, kind: Literal["llvm", "asm", "wgsl"] | str, *, optimize: bool = True) -> str:
    """The code that a backend compiles for a program, optimised or as it is."""
    with backend(_BACKEND_OF[kind]) as device:
        text: str = getattr(device.compile(program, DispatchConfig(optimize=optimize)), kind)()
    return text


def _optimised(program: Program) -> tuple[Program | None, Optimised | None, str]:
    try:
        better, what = optimize(program, report=True)
    except VyreError as error:
        return None, None, str(error)
    return better, what, ""


def _with_zeros(
    program: Program, given: dict[str, Any], elements: int | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    missing = [decl for decl in program.input_buffers() if decl.name not in given]
    count = DEFAULT_ELEMENTS if elements is None else elements
    made = {decl.name: np.zeros(decl.count or count, decl.dtype.storage) for decl in missing}
    return given | made, tuple(decl.name for decl in missing)


def _planned(
    program: Program, data: dict[str, Any], grid: tuple[int, ...] | None, elements: int | None
) -> tuple[GridSyncPlan | None, str]:
    try:
        sizes = {name: len(array) for name, array in bind_inputs(program, data).items()}
        return plan_grid_sync(program, decide_launch(program, sizes, grid=grid, elements=elements)), ""
    except VyreError as error:
        return None, str(error)


def _code(program: Program, kind: str) -> Code:
    try:
        return Code(kind, _TITLES[kind], generated_code(program, kind))
    except VyreError as error:
        return Code(kind, _TITLES[kind], problem=str(error))


Outputs = list[bytes]


def _run(
    name: str, program: Program, data: dict[str, Any], grid: tuple[int, ...] | None, elements: int | None
) -> tuple[Run, Outputs]:
    config = DispatchConfig(grid_override=grid, dispatch_elements=elements, timeout_s=_TIMEOUT)
    device_name = ""
    try:
        with backend(name) as device:
            device_name = device.capabilities.device
            bound = list(bind_inputs(program, data).values())
            route = choose_route(device, program, bound, config) if contains_grid_sync(program) else "plain"
            times: list[float] = []
            outputs: Outputs = []
            stop = time.perf_counter() + _RUN_SECONDS
            while len(times) < 2 or (time.perf_counter() < stop and len(times) < _MOST_RUNS):
                start = time.perf_counter()
                views = dispatch(device, program, bound, config)
                times.append(1e3 * (time.perf_counter() - start))
                outputs = outputs or [bytes(view) for view in views]
    except VyreError as error:
        return Run(name, device_name, problem=str(error)), []
    again = sorted(times[1:])
    return Run(name, device_name, route, times[0], again[0], again[len(again) // 2], len(times)), outputs


def _agreed(runs: list[tuple[Run, Outputs]]) -> tuple[Run, ...]:
    """The runs, each with whether it gave the bytes of the reference."""
    meant = next((outputs for run, outputs in runs if run.backend == "reference" and not run.problem), None)
    return tuple(
        run if run.problem or meant is None else msgspec.structs.replace(run, agrees=outputs == meant)
        for run, outputs in runs
    )
