"""Unique names and plain loop bounds."""

from __future__ import annotations

import numpy as np

from vyre import reference
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.extensions import declared_names
from vyre.lower.cut_tree import Scope
from vyre.lower.fresh_names import with_unique_names
from vyre.lower.normalise import normalise


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
