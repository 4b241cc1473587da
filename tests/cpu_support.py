"""Runs cases on the processor, and keeps compiled code away from the user's cache."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from vyre.backends.cpu import CpuBackend
from vyre.conform.case import Case, answer_traps, run_on_reference
from vyre.driver import routes
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.errors import VyreError


@cache
def backend(width: int | None = None, threads: int = 1) -> CpuBackend:
    """A backend whose code is verified by LLVM, with a cache that nobody has written to before this run."""
    directory = Path(tempfile.mkdtemp(prefix="vyre-test-cache-"))
    return CpuBackend(width=width, threads=threads, verify=True, cache=DiskCache(directory))


def run_case(case: Case, on: CpuBackend, *, optimize: bool = True) -> dict[str, bytes]:
    """The outputs by name, by whatever route the program needs."""
    config = DispatchConfig(
        grid_override=case.grid,
        dispatch_elements=case.elements,
        handlers=dict.fromkeys(case.handled, answer_traps),
        timeout_s=60.0,
        optimize=optimize,
    )
    outputs = routes.dispatch(on, case.program, case.inputs, config)
    names = [decl.name for decl in case.program.output_buffers()]
    return dict(zip(names, map(bytes, outputs), strict=True))


def difference(case: Case, on: CpuBackend, *, optimize: bool = True) -> str | None:
    """What is different from the reference: None if nothing is; failures have to agree in kind."""
    try:
        result = run_on_reference(case)
        expected: object = {name: result.output_bytes(name) for name in result.outputs}
    except VyreError as error:
        expected = error.code
    try:
        got: object = run_case(case, on, optimize=optimize)
    except VyreError as error:
        got = error.code
    if expected == got:
        return None
    if isinstance(expected, dict) and isinstance(got, dict):
        return f"outputs differ: {[name for name in expected if expected[name] != got[name]]}"
    return f"expected {expected if isinstance(expected, str) else 'outputs'}, got {got}"
