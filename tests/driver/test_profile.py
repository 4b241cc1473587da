"""Device profiles tell the truth: each claim is tried, by something that would fail or hang if it were not true."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import cpu_support
import webgpu_support
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, DispatchConfig, telemetry
from vyre.driver.profile import HALF_TYPES, DeviceProfile
from vyre.errors import UnsupportedFeature, VyreError
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import atomic_add, gid, if_, let, load, store, var
from vyre.ir.program import Program
from vyre.semantics.operators import OPERATORS, Result
from vyre.semantics.types import DType

BACKENDS = {
    "reference": ReferenceBackend,
    "reference, cut": lambda: ReferenceBackend(grid_sync=False),
    "cpu": lambda: cpu_support.backend(None, 2),
    "cpu, scalar": lambda: cpu_support.backend(1),
    "webgpu": webgpu_support.backend,
}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    made: Backend = BACKENDS[request.param]()
    return made


def test_every_field_is_read_by_the_package() -> None:
    """A field that nothing reads is a claim that nothing checks."""
    from pathlib import Path

    import vyre

    home = Path(vyre.__file__).parent
    others = [path for path in home.rglob("*.py") if path != home / "driver" / "profile.py"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in others)
    profile = (home / "driver" / "profile.py").read_text(encoding="utf-8")
    for field in DeviceProfile.__struct_fields__:
        assert f".{field}" in text or f"profile.{field}" in profile or f"self.{field}" in profile, field


def with_operator(name: str, dtype: DType) -> Program:
    """A program that applies an operator to elements of a type."""
    row = OPERATORS[name]
    made = DType.BOOL if row.result is Result.BOOL else row.result_type(dtype)
    a = load("a", 0)
    value: n.Expr = n.UnOp(name, a) if row.arity == 1 else n.BinOp(name, a, a)
    buffers = [BufferDecl.read("a", 0, dtype, 1), BufferDecl.output("out", 1, made, 1)]
    return Program.new(buffers, 1, [if_(gid().eq(0), [store("out", 0, value)])])


def test_supported_operators_compile_and_others_are_refused(backend: Backend) -> None:
    profile = backend.accepts
    for name, row in OPERATORS.items():
        usable = [dtype for dtype in row.types if dtype in profile.dtypes]
        assert (name in profile.supported_ops) is bool(usable), name
        for dtype in row.types[-1:]:
            program = with_operator(name, dtype)
            if dtype in profile.dtypes:
                assert backend.compile(program, DispatchConfig(optimize=False)).program is program
            else:
                with pytest.raises(UnsupportedFeature):
                    backend.compile(program)


POINTS = {
    "grid_sync": """program p(workgroup 1) { buffer 0 a: u32[2] readwrite; buffer 1 b: u32[2] readwrite
                    a[gid.x] = gid.x; grid_sync; b[gid.x] = a[1 - gid.x] + 1 }""",
    "all_reduce": 'program p(workgroup 1) { buffer 0 a: u32[2] readwrite; a[gid.x] = 2; all_reduce(add, a, "world") }',
    "trap": 'program p(workgroup 1) { buffer 0 a: u32[2] readwrite; if a[0] == 9 { trap(0, "t") }; a[gid.x] = 2 }',
    "subgroup_ballot": "program p(workgroup 32) { buffer 0 a: u32[32] readwrite; a[gid.x] = subgroup_ballot(true) }",
    "async_load": """program p(workgroup 1) { buffer 0 a: u32[2] readwrite; buffer 1 b: u32[2] readwrite
                     if gid.x == 0 { async_load(b, a, 0, 8, "t"); async_wait("t") } }""",
}


@pytest.mark.parametrize("name", POINTS)
def test_supported_features_run_and_others_are_refused(backend: Backend, name: str) -> None:
    program = parse(POINTS[name])
    inputs = [np.zeros(decl.count, np.uint32) for decl in program.input_buffers()]
    config = DispatchConfig(grid_override=(2,) if name != "subgroup_ballot" else (1,))
    native = name in backend.capabilities.supported_ops
    if name in backend.accepts.supported_ops:
        wanted = ReferenceBackend().dispatch(program, inputs, config)
        assert [bytes(view) for view in backend.dispatch(program, inputs, config)] == [bytes(view) for view in wanted]
    else:
        with pytest.raises(UnsupportedFeature):
            backend.dispatch(program, inputs, config)
    if name in ("grid_sync", "all_reduce", "trap"):
        assert (backend.compile(program, config).route == "native") is native
        required = config.with_changes(cooperative="require")
        if native:
            before = telemetry.snapshot()
            backend.dispatch(program, inputs, required)
            after = telemetry.snapshot()
            # One launch, and the host was not asked in between.
            assert after.launches - before.launches == 1
            assert after.route_native - before.route_native == 1
        else:
            with pytest.raises(UnsupportedFeature, match=r"inside a launch|in one launch"):
                backend.compile(program, required)


def test_the_subgroup_size_is_the_device_s_or_the_program_s(backend: Backend) -> None:
    profile = backend.capabilities
    if not profile.subgroup_ops:
        assert profile.subgroup_size is None
        return
    for size in (4, 8, 16, 32):
        text = "{ buffer 0 a: u32[64] readwrite; a[gid.x] = subgroup_reduce(add, 1) }"
        program = parse(f"program p(workgroup 64, subgroup {size}) {text}")
        (output,) = backend.dispatch(program, [np.zeros(64, np.uint32)])
        assert np.frombuffer(output, np.uint32).tolist() == [size] * 64
    if profile.subgroup_size is not None:
        assert profile.subgroup_size == backend.device.gpu.fixed_lanes  # type: ignore[attr-defined]


def test_half_floats_are_native_only_where_they_need_no_conversion() -> None:
    on = cpu_support.backend(None, 1)
    assert (on.capabilities.f16, on.capabilities.bf16) == (False, False)
    if DType.F16 in on.capabilities.dtypes:
        code = on.compile(with_operator("add", DType.F16)).asm()
        assert "vcvtph2ps" in code or "fcvt" in code
    reference = ReferenceBackend().capabilities
    assert (reference.f16, reference.bf16) == (True, True)
    assert webgpu_support.backend().capabilities.dtypes >= HALF_TYPES
    assert not HALF_TYPES & webgpu_support.backend().capabilities.native_dtypes


SPIN = Program.new(
    [BufferDecl.read_write("arrived", 0, DType.U32, 1)],
    1,
    [
        let("mine", atomic_add("arrived", 0, 1)),
        n.While(n.Atomic(n.AtomicOp.LOAD, "arrived", n.lit(0)).ne(n.NumWorkgroups(0)), (n.Let("spun", var("mine")),)),
    ],
)
"""Workgroups that wait for each other: they end only where all make progress at the same time."""


@pytest.mark.parametrize("name", ["cpu", "cpu, scalar"])
def test_workgroups_may_wait_for_each_other_only_where_the_profile_says_so(name: str) -> None:
    on: Backend = BACKENDS[name]()
    profile = on.capabilities
    many = max(2, profile.compute_units)
    config = DispatchConfig(grid_override=(many,), timeout_s=0.5)
    ended = True
    try:
        on.dispatch(SPIN, [np.zeros(1, np.uint32)], config)
    except VyreError as error:
        assert error.code == "timeout"
        ended = False
    assert ended or not profile.persistent_threads


def test_a_grid_beyond_the_limit_is_refused() -> None:
    from vyre.backends.reference import ReferenceDevice

    class Narrow(ReferenceDevice):
        @property
        def profile(self) -> DeviceProfile:  # type: ignore[override]
            return msgspec.structs.replace(super().profile, max_workgroups_per_axis=4)

    on = Backend(Narrow())
    program = parse("program p(workgroup 1) { buffer 0 a: u32[] readwrite; a[gid.x] = 1 }")
    on.dispatch(program, [np.zeros(4, np.uint32)])
    with pytest.raises(UnsupportedFeature, match=r"the grid \(5, 1, 1\) .* 4 workgroups"):
        on.dispatch(program, [np.zeros(5, np.uint32)])
