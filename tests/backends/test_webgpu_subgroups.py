"""Subgroups of the device itself: used where they are the program's, and only if they give the reference's bytes.

An adapter that does not promise one size has none to be used; here its true size is found out, so that native kernels
are run all the same.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from vyre.backends.webgpu import WebGpuBackend, launches, probe
from vyre.backends.webgpu.adapters import fixed_lanes
from vyre.conform.case import Case
from vyre.conform.filetest import case_of_run, load_filetest
from vyre.conform.generator import generate
from vyre.emit.wgsl import emit_wgsl
from vyre.errors import KernelCompileFailed
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.semantics.types import DType
from webgpu_support import PROFILE, backend, difference

FILES = sorted((Path(__file__).parent.parent / "filetests").rglob("*.vyre"))
BALLOT = """
program ballot(workgroup 20, subgroup {lanes}) {{
  buffer 0 out: u32[20] output
  out[gid.x] = subgroup_ballot(gid.x % 3 == 0) + subgroup_reduce(add, gid.x)
}}
"""
SUBGROUPS = msgspec.structs.replace(
    PROFILE, expression_depth=2, grid_syncs=False, traps=False, collectives=False, weights=(("subgroup", 40),)
)


@cache
def true_lanes() -> int:
    """The lanes that the device's subgroups have, as far as its results tell."""
    gpu = backend().gpu
    found = [lanes for lanes in (32, 16, 8, 4) if probe.is_subgroup_right(gpu, lanes)]
    if not found:
        pytest.skip("this adapter has no subgroups, or wrong ones")
    assert len(found) == 1
    return found[0]


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> int:
    backend().prepare()
    monkeypatch.setattr(backend().gpu, "native_lanes", true_lanes())
    return true_lanes()


def with_subgroups(path: Path) -> Program | None:
    test = load_filetest(path)
    if not test.runs or "subgroup" not in test.text:
        return None
    program = parse(test.text)
    return None if DType.F64 in program.stats().dtypes else program


@pytest.mark.parametrize("part", range(4))
def test_native_subgroups_give_the_bytes_of_the_reference(part: int, lanes: int) -> None:
    programs = [(path, program) for path in FILES if (program := with_subgroups(path)) is not None]
    assert len(programs) > 50
    for path, program in programs[part::4]:
        for run in load_filetest(path).runs:
            case = case_of_run(run, program.with_subgroup_size(lanes))
            assert difference(case) is None, path.stem


def test_generated_programs_with_native_subgroups(lanes: int) -> None:
    ran = 0
    for seed in range(700_000, 700_040):
        case = generate(seed, 3, SUBGROUPS)
        program = case.program.with_subgroup_size(lanes)
        if program.stats().has_subgroup_ops:
            ran += 1
            assert difference(msgspec.structs.replace(case, program=program)) is None, seed
    assert ran > 10


def test_native_kernels_have_no_boards_and_only_programs_of_that_size_get_them(lanes: int) -> None:
    gpu = backend().gpu
    native = launches.WebGpuCode(parse(BALLOT.format(lanes=lanes))).kernel(gpu, folded=False)
    assert "subgroupBallot" in native.text
    assert native.shared_bytes == 0
    (size,) = re.findall(r"@workgroup_size\((\d+), 1, 1\)", native.text)
    assert int(size) % lanes == 0
    other = launches.WebGpuCode(parse(BALLOT.format(lanes=2 * lanes))).kernel(gpu, folded=False)
    assert "subgroupBallot" not in other.text
    for size in (lanes, 2 * lanes):
        assert difference(Case(parse(BALLOT.format(lanes=size)), {}, grid=(1, 1, 1))) is None


def test_what_is_claimed_is_what_the_adapter_promises_and_the_probe_has_seen() -> None:
    gpu, profile = backend().gpu, backend().capabilities
    trusted = gpu.fixed_lanes is not None and probe.is_subgroup_right(gpu, gpu.fixed_lanes)
    assert profile.subgroup_ops is trusted
    assert profile.subgroup_size == (gpu.fixed_lanes if trusted else None)
    assert backend().accepts.subgroup_ops


@pytest.mark.parametrize("name", ["subgroup", "stackgroup"])
def test_a_size_that_is_not_fixed_is_not_used(name: str) -> None:
    def adapter(least: int, most: int) -> SimpleNamespace:
        return SimpleNamespace(info={f"{name}_min_size": least, f"{name}_max_size": most})

    assert fixed_lanes(adapter(32, 32)) == 32
    assert fixed_lanes(adapter(4, 128)) is None
    assert fixed_lanes(adapter(0, 0)) is None
    assert fixed_lanes(SimpleNamespace(info={})) is None


def test_subgroups_that_are_wrong_or_do_not_compile_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    right, gpu = true_lanes(), backend().gpu
    assert not any(probe.is_subgroup_right(gpu, lanes) for lanes in (0, 3, 2 * right, 64, right // 2))

    def refused(*_: object) -> None:
        raise KernelCompileFailed("webgpu", "no")

    monkeypatch.setattr(gpu, "compiled", refused)
    assert not probe.is_subgroup_right(gpu, right)


def test_a_device_with_subgroups_of_one_size_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = true_lanes()
    monkeypatch.setattr("vyre.backends.webgpu.gpu.fixed_lanes", lambda _: lanes)
    with WebGpuBackend() as on:
        assert on.gpu.native_lanes == lanes
        assert (on.capabilities.subgroup_ops, on.capabilities.subgroup_size) == (True, lanes)
    monkeypatch.setattr("vyre.backends.webgpu.gpu.fixed_lanes", lambda _: 2 * lanes)
    with WebGpuBackend() as on:
        assert on.gpu.native_lanes is None
        assert not on.capabilities.subgroup_ops


def test_a_buffer_may_be_called_like_a_function_of_subgroups() -> None:
    program = parse("program p(workgroup 4) { buffer 0 subgroupBallot: u32[4] output\n subgroupBallot[gid.x] = 1 }")
    assert "subgroupBallot_1: array" in emit_wgsl(program).text
