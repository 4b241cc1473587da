"""Unique names, plain loop bounds, and math functions written out."""

from __future__ import annotations

import numpy as np
import pytest

from vyre import reference
from vyre.checker import check
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.extensions import declared_names
from vyre.lower import expand_math
from vyre.lower.cut_tree import Scope
from vyre.lower.fresh_names import with_unique_names
from vyre.lower.normalise import normalise
from vyre.semantics.operators import MATH_FUNCTIONS


def test_the_first_keeps_its_name_and_the_others_get_new_ones() -> None:
    text = """
    program p(workgroup 1) {
      buffer 0 a: u32[9] readwrite
      block {
        let t = 1
        a[0] = t
      }
      for t in 2 .. 3 {
        let t_1 = t * 10
        a[1] = t_1
      }
      if true {
        let t = 4
        t = t + 1
        a[2] = t
      }
      let t = 7
      a[3] = t
    }"""
    program = parse(text)
    unique = with_unique_names(program)
    names = list(declared_names(walk.statements(unique.entry)))
    assert names == ["t", "t_2", "t_1", "t_3", "t_4"]
    data = np.zeros(9, "<u4")
    outputs = [reference.run(one, [data], grid=(1,)).outputs["a"].tolist() for one in (program, unique)]
    assert outputs[0] == outputs[1] == [1, 20, 5, 7, 0, 0, 0, 0, 0]


def test_a_program_whose_names_are_unique_stays_itself() -> None:
    program = parse("program p(workgroup 1) { buffer 0 a: u32[9] readwrite; let x = 1; a[0] = x }")
    assert with_unique_names(program) is program


def test_loops_with_cuts_get_a_stop_that_stays() -> None:
    text = """
    program p(workgroup 1) {
      buffer 0 a: u32[9] readwrite
      let m = 3
      m = m + 1
      for k in a[0] .. a[1] { grid_sync }
      for k in 0 .. m { grid_sync }
      for k in a[0] .. a[1] { a[2] = k }
    }"""
    loops = [s for s in walk.statements(normalise(parse(text), Scope.GRID).entry) if isinstance(s, n.Loop)]
    assert [type(loop.stop) for loop in loops] == [n.Var, n.Var, n.Load]
    assert [type(loop.start) for loop in loops] == [n.Var, n.Lit, n.Load]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_math_functions_written_out_give_the_same_bits(dtype: str) -> None:
    stores = "\n".join(f"out[gid.x * 14 + {k}] = {name}(x)" for k, name in enumerate(MATH_FUNCTIONS))
    buffers = f"buffer 0 a: f32[] read; buffer 1 out: {dtype}[] output"
    program = parse(f"program p(workgroup 4) {{ {buffers}; let x = {dtype}(a[gid.x]); {stores} }}")
    expanded = expand_math(program)
    assert check(expanded).ok
    assert not any(isinstance(e, n.UnOp) and e.op in MATH_FUNCTIONS for e in walk.expressions(expanded.entry))
    values = [0.0, -0.0, 1.0, -1.0, 0.5, 3.25, -2.75, 1e-30, 88.5, -104.0, 1e30, np.inf, -np.inf, np.nan, 0.1, 7e4]
    data = np.array(values, "<f4")
    before, after = (
        reference.run(one, [data], grid=(4,), elements=14 * len(values)).outputs["out"] for one in (program, expanded)
    )
    assert before.tobytes() == after.tobytes()


def test_what_comes_before_a_function_is_still_evaluated_before_it() -> None:
    text = """
    program p(workgroup 1) {
      buffer 0 c: u32[1] readwrite
      buffer 1 out: f32[3] output
      let k = 0
      while exp2(f32(atomic_add(c, 0, 1))) < 5.0 {
        k = k + 1
        if k == 1 { continue }
        out[k] = f32(atomic_add(c, 0, 10)) + log2(f32(atomic_load(c, 0))) + f32(atomic_load(c, 0))
      }
      out[0] = f32(k)
    }"""
    program = parse(text)
    expanded = expand_math(program)
    assert check(expanded).ok
    results = [reference.run(one, [np.zeros(1, "<u4")], grid=(1,)).outputs for one in (program, expanded)]
    assert results[0]["out"].tolist() == results[1]["out"].tolist() == [2.0, 0.0, 2.0 + np.log2(np.float32(12)) + 12.0]
    assert results[0]["c"].tolist() == results[1]["c"].tolist() == [13]


def test_a_program_without_functions_stays_itself() -> None:
    program = parse("program p(workgroup 1) { buffer 0 a: f32[9] readwrite; a[0] = sqrt(a[1]) }")
    assert expand_math(program) is program
