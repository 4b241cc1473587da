"""Scalar code, one invocation after another: no vectors in it, and the reference's bytes out of it."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from cpu_support import backend, run_case
from vyre.analyze.workgroup_independence import is_workgroup_independent
from vyre.conform.filetest import BACKENDS, is_legal, load_filetest, runs_wrong
from vyre.driver.config import DispatchConfig
from vyre.emit.llvm import emit_kernel
from vyre.errors import UnsupportedFeature, VyreError
from vyre.ir import parse
from vyre.optimizer.switches import NOTHING

FILES = sorted((Path(__file__).parent.parent / "filetests").rglob("*.vyre"))
VECTOR = re.compile(r"<\d+ x ")

PROGRAMS = {
    "flat": """
    program flat(workgroup 64) {
      buffer 0 x: f32[] read
      buffer 1 out: f32[] output
      if gid.x >= len(x) { return }
      let t = x[gid.x]
      while t < 10.0 { t = t * 2.0 + 1.0; if t > 8.0 { break } }
      out[gid.x] = sin(t) % 2.0
    }""",
    "grouped": """
    program grouped(workgroup 4, 3) {
      buffer 0 x: u32[] readwrite
      buffer 1 sums: u32[4] readwrite
      buffer 2 tile: u32[12] workgroup
      let i = lid.y * 4 + lid.x
      tile[i] = x[i]
      for k in 0 .. 3 {
        barrier
        let other = tile[(i + k) % 12]
        if other == 7 { return }
        barrier
        let old = atomic_add(tile, i, other)
        let taken = atomic_add(sums, k, old)
        let unused = atomic_max(sums, 3, other)
      }
      async_load(x, tile, 0, 8, "t")
      async_wait("t")
      x[i] = tile[i] / (i + 1)
    }""",
}

SUBGROUPS = """
program subgroups(workgroup 8) {
  buffer 0 out: u32[] output
  out[gid.x] = subgroup_reduce(add, gid.x)
}
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_scalar_code_has_no_vectors_and_no_masks(name: str) -> None:
    program = parse(PROGRAMS[name])
    flat = is_workgroup_independent(program)
    kernel = emit_kernel(program, 1, flat=flat)
    assert kernel.width == 1
    assert VECTOR.findall(kernel.text) == []
    assert not {"masked branches", "divergent loops", "gathers", "scatters"} & {k for k, v in kernel.notes.items() if v}
    assert VECTOR.findall(emit_kernel(program, 4, flat=flat).text) != []


def test_operations_of_subgroups_are_refused_by_name() -> None:
    program = parse(SUBGROUPS)
    with pytest.raises(UnsupportedFeature, match="subgroup"):
        emit_kernel(program, 1, flat=False)
    with pytest.raises(VyreError, match="subgroup"):
        backend(1).dispatch(program, [], DispatchConfig(dispatch_elements=8))
    assert not backend(1).capabilities.subgroup_ops


def has_subgroups(path: Path) -> bool:
    return "subgroup" in path.read_text()


@pytest.mark.parametrize("path", [p for p in FILES if not has_subgroups(p)], ids=lambda path: path.stem)
def test_filetest_in_scalar_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = load_filetest(path)
    if not is_legal(test) or not test.runs:
        return
    monkeypatch.setitem(BACKENDS, "cpu", partial(run_case, on=backend(1), optimize=NOTHING))
    assert runs_wrong(test, "cpu") == []


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("path", [p for p in FILES if p.stem.endswith("_found_late")], ids=lambda path: path.stem)
def test_constants_that_are_found_late_do_not_break_llvm(
    path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BACKENDS, "cpu", partial(run_case, on=backend(width), optimize=NOTHING))
    assert runs_wrong(load_filetest(path), "cpu") == []
