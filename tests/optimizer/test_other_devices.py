"""The optimizer gives the same programs on any device with the required features."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import cpu_support
import webgpu_support
from backends_for_tests import ForwardingDevice
from vyre.conform.mixture import made
from vyre.driver import Backend, DeviceProfile
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.errors import UnsupportedFeature
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.semantics.types import ALL_TYPES, FLOATS, DType

EXAMPLES = Path(__file__).parents[2] / "examples"
INTEGERS_ONLY = tuple(dtype for dtype in ALL_TYPES if not dtype.is_float)
DOUBLES = parse("""
program doubles(workgroup 1) {
  buffer 0 a: f64[1] readwrite
  a[0] = a[0] + (1.0f64 + 2.0f64)
}""")


def programs(dtypes: tuple[DType, ...], count: int) -> list[Program]:
    return [made(seed, dtypes=dtypes).case.program for seed in range(count)]


class Inexact(ForwardingDevice):
    """The cpu device with inexact floats and without images."""

    @property
    def profile(self) -> DeviceProfile:
        return msgspec.structs.replace(super().profile, float_exact=False)

    def load_image(self, *_: object) -> None:
        return None


def test_a_gpu_gives_the_same_programs() -> None:
    device = BackendDispatcher(webgpu_support.backend())
    for program in [
        *(parse(path.read_text()) for path in sorted(EXAMPLES.glob("*.vyre"))),
        *programs(webgpu_support.PROFILE.dtypes, 40),
    ]:
        assert optimize(program, device) == optimize(program), str(program)


def test_a_gpu_without_a_float_type_is_refused_before_anything_runs() -> None:
    with pytest.raises(
        UnsupportedFeature, match=r"'webgpu' does not support the exact f64.*Fix: optimize the program on"
    ):
        optimize(DOUBLES, BackendDispatcher(webgpu_support.backend()))


def test_a_device_with_inexact_floats_optimizes_integer_programs() -> None:
    device = BackendDispatcher(Backend(Inexact(cpu_support.backend().device)))
    assert device.programs().floats == ()
    text = str(device.programs().simplify)
    assert not any(dtype.label in text for dtype in FLOATS)
    for program in programs(INTEGERS_ONLY, 40):
        assert optimize(program, device) == optimize(program), str(program)
    with pytest.raises(UnsupportedFeature, match="exact f64"):
        optimize(DOUBLES, device)
