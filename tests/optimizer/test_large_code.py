"""Tests of large and deep code: the benchmark's programs, expressions nested to the limit, and names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import vyre
from vyre.checker import check
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_EXPRESSION_DEPTH, MAX_NAME_LENGTH
from vyre.ir.program import Program
from vyre.optimizer import pipeline
from vyre.optimizer.arena import order_by_level
from vyre.optimizer.encode import encode
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.values import Names
from vyre.reference import run
from vyre.semantics.types import DType


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(vyre.backend("cpu"))


@pytest.fixture
def integer_code(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    return import_module("integer_code")


@pytest.mark.parametrize("shape", ["wide", "chain"])
def test_benchmark_code_computes_the_same_everywhere(
    shape: str, integer_code: ModuleType, dispatcher: BackendDispatcher
) -> None:
    for size in (1, 2, 33, 500):
        code = integer_code.integer_code(size, shape, seed=size)
        given = np.random.default_rng(size).integers(0, 1 << 32, integer_code.INPUTS, dtype=np.uint32)
        expected = integer_code.computed(code, given)
        original = integer_code.as_program(code)
        optimized = optimize(original, dispatcher)
        for program in (original, optimized):
            assert np.array_equal(integer_code.executed(program, given), expected)
            assert np.array_equal(run(program, [given]).outputs["out"], expected)
        assert optimize(optimized, dispatcher) == optimized
        passes = integer_code.Passes(integer_code.as_llvm(code))
        passes.run()
        assert np.array_equal(passes.results(given, len(expected)), expected)


def test_nesting_does_not_depend_on_how_a_value_is_written(dispatcher: BackendDispatcher) -> None:
    """Saved values are written at their use, available values before: both must name the same subexpressions."""
    program = parse("""
        program deep(workgroup 1) {
          buffer 0 sink: u64[1] output

          let v0 = sink[0] | 1u64 ^ popcount(max(clz(mul_high(rotr(1u64, clz(mul_high(sink[0], rotr(1u64, sat_add(1u64,
            -max(1u64, sat_add(1u64, mul_high(1u64 % rotr(14u64 | -(min(1u64, sink[0] - 1u64) | 1u64), 1u64),
            sink[0])))))))), sink[0]) | 1u64), 1u64) + 1u64) | sink[1]
          sink[0] = 0u64
          sink[0] = v0
        }""")
    optimized = optimize(program, dispatcher)
    assert optimize(optimized, dispatcher) == optimized
    assert str(optimize(optimized, dispatcher)) == str(optimized)


def test_benchmark_code_has_its_shape(integer_code: ModuleType) -> None:
    levels = {shape: encode(integer_code.as_program(integer_code.integer_code(2_000, shape)))[0].level_count
              for shape in ("wide", "chain")}  # fmt: skip
    assert levels["chain"] >= 2_000
    assert levels["wide"] < 100


def _nested(wrap: Callable[[n.Expr, n.Expr], n.Expr], depth: int = 1) -> Program:
    """A program whose expression nests to the limit; each ``wrap`` adds ``depth`` levels."""
    value: n.Expr = b.var("x")
    for k in range((MAX_EXPRESSION_DEPTH - 4) // depth):
        value = wrap(value, b.load("given", n.lit(k % 7)))
    body = [b.let("x", b.load("given", 3)), b.store("out", 0, value)]
    buffers = [BufferDecl.read("given", 0, DType.U32, 8), BufferDecl.output("out", 1, DType.U32, 1)]
    return Program.new(buffers, 1, body)


@pytest.mark.parametrize(
    ("wrap", "depth"),
    [
        (lambda inner, leaf: inner * leaf, 1),
        (lambda inner, leaf: leaf - inner, 1),
        (lambda inner, leaf: b.select(b.var("x") < leaf, leaf, inner), 1),
        (lambda inner, leaf: b.select(inner.ne(leaf), leaf, b.var("x")), 2),
        (lambda inner, leaf: ~(inner + leaf), 2),
    ],
    ids=["left", "right", "third", "condition", "unary"],
)
def test_expressions_can_nest_to_the_limit(
    wrap: Callable[[n.Expr, n.Expr], n.Expr], depth: int, dispatcher: BackendDispatcher
) -> None:
    program = _nested(wrap, depth)
    optimized = optimize(program, dispatcher)
    assert not check(optimized).errors
    given = np.arange(5, 13, dtype=np.uint32)
    assert run(optimized, [given]).outputs["out"] == run(program, [given]).outputs["out"]


@pytest.mark.parametrize("levels", [[], [-1], [2, -1, 0, 1, 0, -1, 1], [0, *range(70_000), -1, 69_999, 3]])
def test_rows_are_ordered_by_level_then_by_number(levels: list[int]) -> None:
    by_row, order, begins = order_by_level(np.array(levels, np.int32))
    assert order.tolist() == sorted((row for row, level in enumerate(levels) if level >= 0), key=levels.__getitem__)
    assert [level for level, (first, behind) in enumerate(pairwise(begins.tolist())) for _ in range(first, behind)] == [
        levels[row] for row in order.tolist()
    ]
    assert by_row.view(np.int32).tolist() == levels


def test_declarations_share_a_name_only_in_disjoint_scopes() -> None:
    # Scope 0 holds 1 (which holds 2) and 3.
    names = Names(["buffer"], ["x"], [3, 2, 2, 3])
    assert names.make("x", 2) == "x"
    assert names.make("x", 3) == "x"
    assert names.make("x", 1) == "x_1"
    assert names.make("x", 0) == "x_2"
    assert names.make("x_1", 3) == "x_1"
    assert names.make("buffer", 2) == "buffer_1"
    assert names.fresh("x") == "x_"
    assert len(names.make("y" * 300, 0)) <= MAX_NAME_LENGTH
    assert len(names.make("y" * 300, 0)) <= MAX_NAME_LENGTH


def test_fresh_names_are_not_in_the_source() -> None:
    evens = [f"x{k}_before" for k in range(0, 100, 2)]
    assert Names([], [["s"], evens], [1, 1]).fresh("t") == "t"
    assert Names([], [["t", "u"], evens], [1, 1]).fresh("t") == "v"
    names = Names([], [["t", "t_", "u", "w"], ["v", *evens]], [1, 1])
    assert names.fresh("t") == "t__"
    assert [names.fresh(f"x{k}_before") for k in range(4)] == ["x0_before_", "x1_before", "x2_before_", "x3_before"]
    assert all((f"x{k}_before" == names.fresh(f"x{k}_before")) == bool(k % 2) for k in range(100))


def test_a_program_that_would_exceed_the_statement_limit_is_unchanged(
    dispatcher: BackendDispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """program shared(workgroup 1) {
      buffer 0 given: u32[] read
      buffer 1 out: u32[] readwrite
      if given[0] == 1 {
        for k in 0 .. 4 { out[k] = given[k] * given[k + 1] }
        out[4] = (given[5] + given[6]) * given[5]
        out[5] = (given[5] + given[6]) * given[6]
      }
    }"""
    program = parse(text)
    assert program.stats().statements == 5
    optimized, _ = optimize_with(program, dispatcher)
    most = optimized.stats().statements
    assert most > 5
    monkeypatch.setattr(pipeline, "MAX_STATEMENTS", most)
    assert optimize_with(program, dispatcher)[0] == optimized
    monkeypatch.setattr(pipeline, "MAX_STATEMENTS", most - 1)
    result, report = optimize_with(program, dispatcher)
    assert result is program
    assert report.rows_after == report.rows_before


def test_a_branch_has_its_comparison_inline() -> None:
    text = """program guarded(workgroup 64) {
      buffer 0 cells: u32[] readwrite
      let inside = gid.x < len(cells)
      for step in 0 .. 3 {
        if inside { cells[gid.x] = cells[gid.x] + step }
        grid_sync
        if gid.x < len(cells) { cells[gid.x] = cells[gid.x] * 2 }
      }
    }"""
    program = parse(text)
    optimized = optimize(program)
    branches = [one for one in walk.statements(optimized.entry) if isinstance(one, n.If)]
    assert len(branches) == 2
    assert all(isinstance(branch.condition, n.BinOp) and branch.condition.op == "lt" for branch in branches)
    assert optimize(optimized) == optimized
    cells = np.arange(70, dtype=np.uint32)
    expected, found = (run(one, [cells]).outputs["cells"] for one in (program, optimized))
    assert np.array_equal(found, expected)
