"""Optimized programs are executed against the originals: same bytes, legal, and a fixpoint of the optimizer.

The generated programs of the cpu backend add thousands more. The kernels' findings equal the oracle's for every switch.
"""

from __future__ import annotations

import msgspec
import pytest
from findings_oracle import analyze

import vyre
from vyre.checker import check
from vyre.conform import Profile, generate, run_on_reference
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, Findings, Kind, kind_of
from vyre.optimizer.encode import encode
from vyre.optimizer.pipeline import find
from vyre.optimizer.rules import GROUPS
from vyre.optimizer.switches import PASSES, Optimization

SWITCHES = (*PASSES, *GROUPS)
# Programs in which invocations often trap and resume.
TRAPPING = (("while", 9), ("loop", 9), ("break", 8), ("continue", 8), ("trap", 30), ("return", 4))


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(vyre.backend("cpu"))


def outputs(case: object, program: Program) -> dict[str, bytes]:
    result = run_on_reference(msgspec.structs.replace(case, program=program))
    return {name: array.tobytes() for name, array in result.outputs.items()}


def test_optimized_programs_give_the_same_bytes(dispatcher: BackendDispatcher) -> None:
    for seed in range(40):
        case = generate(seed)
        optimized = optimize(case.program, dispatcher)
        assert not check(optimized).errors, f"seed {seed}: {check(optimized).errors[0]}"
        assert outputs(case, optimized) == outputs(case, case.program), f"seed {seed}:\n{optimized}"
        assert optimize(optimized, dispatcher) == optimized, f"seed {seed} is not a fixpoint"


def test_programs_that_resume_give_the_same_bytes_and_are_fixpoints(dispatcher: BackendDispatcher) -> None:
    profile = Profile(max_invocations=6, max_nesting=4, max_repetition=8, expression_depth=2, weights=TRAPPING)
    resumed = 0
    for seed in range(400):
        case = generate(seed, 14, profile)
        if case.program.stats().has(n.Resume):
            resumed += 1
            made = optimize(case.program, dispatcher)
            assert outputs(case, made) == outputs(case, case.program), seed
            assert optimize(made, dispatcher) == made, seed
    assert resumed > 50


def test_a_long_chain_of_rules_is_applied_to_its_end(dispatcher: BackendDispatcher) -> None:
    text = "program chain(workgroup 1) { buffer 0 out: u32[1] output; out[0] = u32(0u8 < sat_sub(1u8, u8(gid.y))) }"
    optimized, report = optimize(parse(text), dispatcher, report=True)
    assert "out[0] = u32(u8(gid.y) == 0u8)" in str(optimized)
    assert sum(report.fired.values()) > 4


def test_dead_values_are_not_rewritten(dispatcher: BackendDispatcher) -> None:
    text = """program left(workgroup 1) {
      buffer 0 y: u32[2] readwrite
      let unused = (y[0] + 0) * 8
      let first = unused * 8 + y[1]
      let second = y[1] * 3
      let third = y[1] * 3
      y[third & 1] = third
    }"""
    optimized, report = optimize(parse(text), dispatcher, report=True)
    assert report.fired == {}
    assert [one.name for one in optimized.entry if isinstance(one, n.Let)] == ["third"]


def test_a_new_literal_keeps_no_other_row_live(dispatcher: BackendDispatcher) -> None:
    """The first row is a region with an empty list."""
    text = """program first(workgroup 1) {
      buffer 0 y: u32[2] readwrite
      region "empty" { let unused = 1 }
      y[1] = (y[0] + 3) + 9
    }"""
    optimized, report = optimize(parse(text), dispatcher, report=True)
    assert "y[1] = y[0] + 12" in str(optimized)
    assert report.rounds == 1
    assert report.rows_after == 5


def test_a_copied_cell_needs_no_second_round(dispatcher: BackendDispatcher) -> None:
    text = """program collatz(workgroup 64) {
      buffer 0 steps: u32[] output
      let n = gid.x + 1
      let count = 0
      while n != 1 {
        if (n & 1) == 1 { n = n * 3 + 1 } else { n = n >> 1 }
        count = count + 1
      }
      steps[gid.x] = count
    }"""
    optimized, report = optimize(parse(text), dispatcher, report=True)
    assert "let n_before = n" in str(optimized)
    assert report.rounds == 1
    assert optimize(optimized, dispatcher) == optimized


@pytest.mark.parametrize("changes", ["y[0] = v0", "v0 = y[select(v0 > 0, 1, 0)]"])
def test_a_redundant_assignment_leaves_no_copy(changes: str, dispatcher: BackendDispatcher) -> None:
    text = f"""program same(workgroup 1) {{
      buffer 0 y: u32[2] readwrite
      let v0 = 0
      for k in 0 .. y[1] {{
        v0 = v0
        if gid.y > 0 {{
          v0 = 1 | v0 >> 1
          {changes}
        }}
      }}
      y[0] = v0
    }}"""
    optimized, report = optimize(parse(text), dispatcher, report=True)
    assert report.rounds == 2
    assert "v0 = v0\n" not in str(optimized)
    assert optimize(optimized, dispatcher) == optimized


def comparable(findings: Findings, rows: int) -> list[object]:
    """The findings of each row, with literals by value instead of by row."""
    columns = (findings.canon, findings.head, findings.a0, findings.a1, findings.a2, findings.live, findings.place)
    canon, heads, a0, a1, a2, live, place = (column.tolist() for column in columns)
    shared = (findings.uses > 1).tolist()

    def value(row: int) -> object:
        if row == NONE:
            return None
        row = canon[row]
        return (heads[row], a0[row], a1[row]) if kind_of(heads[row]) == Kind.LITERAL else row

    found: list[object] = []
    for row in range(rows):
        is_representative = canon[row] == row
        kind = kind_of(heads[row])
        if kind == Kind.LITERAL or not live[row]:
            found.append(None)
            continue
        if not is_representative:
            found.append(value(row))
            continue
        operands = (value(a0[row]), a1[row], a2[row]) if kind == Kind.LOAD else (a0[row],) * (kind == Kind.LEAF)
        if kind == Kind.OPERATION:
            operands = (value(a0[row]), value(a1[row]), value(a2[row]))
        found.append((heads[row], operands, place[row], shared[row]))
    return found


def test_the_kernels_findings_equal_the_oracles(dispatcher: BackendDispatcher) -> None:
    for seed in range(5_000, 5_060):
        arena, _ = encode(generate(seed).program)
        switches = Optimization(frozenset({SWITCHES[seed % len(SWITCHES)]} if seed % 3 else ()))
        found, wanted = find(arena, dispatcher, switches.bits), analyze(arena, switches)
        assert comparable(found, arena.rows) == comparable(wanted, arena.rows), f"seed {seed}"
        assert found.fired == wanted.fired, f"seed {seed}"
        assert found.sweeps == wanted.sweeps
