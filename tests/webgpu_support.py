"""Runs cases on WebGPU. Where there is no adapter its tests are skipped; with CI=true they fail."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest

from vyre.backends.webgpu import WebGpuBackend
from vyre.conform.case import Case, answer_traps, run_on_reference
from vyre.conform.profile import Profile
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.errors import VyreError
from vyre.ir.program import Program
from vyre.optimizer.switches import Optimization
from vyre.semantics.arrays import from_storage
from vyre.semantics.types import ALL_TYPES, DType

Outcome = dict[str, bytes] | str

# On a device whose floats are not exact, results may be so many last places away from the reference's.
ULP_BUDGET = 4

# Generated programs never come again, so nobody has a use for what they became.
NOT_KEPT = Optimization(keep=False)

# What generated programs may use: everything but f64 and atomics of 64 bits.
PROFILE = Profile(dtypes=tuple(d for d in ALL_TYPES if d is not DType.F64), atomic_types=(DType.U32, DType.I32))


@cache
def backend() -> WebGpuBackend:
    """The one device of a test process."""
    here = WebGpuBackend.availability()
    if not here.available:
        why = f"no WebGPU here: {here.reason} Fix: {here.fix}"
        if os.environ.get("CI") == "true":
            pytest.fail(why, pytrace=False)
        pytest.skip(why)
    return WebGpuBackend()


def run_case(case: Case, route: routes.Route = "auto", optimize: bool | Optimization = NOT_KEPT) -> dict[str, bytes]:
    """The outputs by name, by whatever route the program needs, or by the one asked for."""
    config = DispatchConfig(
        grid_override=case.grid,
        dispatch_elements=case.elements,
        handlers=dict.fromkeys(case.handled, answer_traps),
        optimize=optimize,
    )
    outputs = routes.dispatch(backend(), case.program, case.inputs, config, route=route)
    names = [decl.name for decl in case.program.output_buffers()]
    found = dict(zip(names, map(bytes, outputs), strict=True))
    return found if backend().capabilities.float_exact else settled(case.program, _meant(case), found)


def settled(program: Program, expected: dict[str, bytes], found: dict[str, bytes]) -> dict[str, bytes]:
    """What was found, but with the expected bytes of every float buffer that is within the budget of them."""
    near = {
        name
        for name, data in found.items()
        if program.buffer(name).dtype.is_float and is_near(program.buffer(name).dtype, expected[name], data)
    }
    return {name: expected[name] if name in near else data for name, data in found.items()}


def is_near(dtype: DType, expected: bytes, found: bytes) -> bool:
    """Whether all elements are within the budget; NaNs are only near to NaNs."""
    places = [_places(dtype, data) for data in (expected, found)]
    nans = [np.isnan(np.asarray(from_storage(np.frombuffer(data, dtype.storage), dtype))) for data in (expected, found)]
    if not np.array_equal(*nans):
        return False
    return bool(np.all((np.abs(places[0] - places[1]) <= ULP_BUDGET) | nans[0]))


def _places(dtype: DType, data: bytes) -> np.ndarray[Any, Any]:
    """Numbers that count the values of a type from zero, to both sides."""
    bits = np.frombuffer(data, f"<i{dtype.bytes}").astype(np.int64)
    return np.where(bits < 0, -(bits + (1 << (dtype.bits - 1))), bits)


def difference(case: Case, route: routes.Route = "auto") -> str | None:
    """What is different from the reference: None if nothing is; failures have to agree in kind."""
    expected, got = _outcome(lambda: _meant(case)), _outcome(lambda: run_case(case, route))
    if expected == got:
        return None
    if isinstance(expected, dict) and isinstance(got, dict):
        return f"outputs differ: {[name for name in expected if expected[name] != got[name]]}"
    shown = [one if isinstance(one, str) else "outputs" for one in (expected, got)]
    return f"expected {shown[0]}, got {shown[1]}"


def _meant(case: Case) -> dict[str, bytes]:
    result = run_on_reference(case)
    return {name: result.output_bytes(name) for name in result.outputs}


def _outcome(run: object) -> Outcome:
    assert callable(run)
    try:
        outputs: dict[str, bytes] = run()
    except VyreError as error:
        return error.code
    return outputs
