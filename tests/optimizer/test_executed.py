"""Optimised programs are executed beside the originals: the same bytes, legal, and nothing left to optimise.

Thousands more are with the processor's generated programs. The kernels find what the oracle does, whatever is off.
"""

from __future__ import annotations

import msgspec
import pytest

import vyre
from vyre.checker import check
from vyre.conform import Profile, generate, run_on_reference
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, Kind, kind_of
from vyre.optimizer.encode import encode
from vyre.optimizer.findings import Findings
from vyre.optimizer.oracle import analyse
from vyre.optimizer.pipeline import find
from vyre.optimizer.rules import GROUPS
from vyre.optimizer.switches import PASSES, Optimization

SWITCHES = (*PASSES, *GROUPS)
# Programs in which invocations often leave and come back.
ASKING = (("while", 9), ("loop", 9), ("break", 8), ("continue", 8), ("trap", 30), ("return", 4))


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(vyre.backend("cpu"))


def outputs(case: object, program: Program) -> dict[str, bytes]:
    result = run_on_reference(msgspec.structs.replace(case, program=program))
    return {name: array.tobytes() for name, array in result.outputs.items()}


def test_generated_programs_mean_the_same(dispatcher: BackendDispatcher) -> None:
    for seed in range(40):
        case = generate(seed)
        better = optimize(case.program, dispatcher)
        assert not check(better).errors, f"seed {seed}: {check(better).errors[0]}"
        assert outputs(case, better) == outputs(case, case.program), f"seed {seed}:\n{better}"
        assert optimize(better, dispatcher) == better, f"seed {seed} is not done at once"


def test_programs_that_ask_the_host_mean_the_same_and_are_done_at_once(dispatcher: BackendDispatcher) -> None:
    profile = Profile(max_invocations=6, max_nesting=4, max_repetition=8, expression_depth=2, weights=ASKING)
    resumed = 0
    for seed in range(400):
        case = generate(seed, 14, profile)
        if case.program.stats().has(n.Resume):
            resumed += 1
            made = optimize(case.program, dispatcher)
            assert outputs(case, made) == outputs(case, case.program), seed
            assert optimize(made, dispatcher) == made, seed
    assert resumed > 50


def test_a_long_chain_of_rules_is_followed_to_its_end(dispatcher: BackendDispatcher) -> None:
    text = "program chain(workgroup 1) { buffer 0 out: u32[1] output; out[0] = u32(0u8 < sat_sub(1u8, u8(gid.y))) }"
    better, report = optimize(parse(text), dispatcher, report=True)
    assert "out[0] = u32(u8(gid.y) == 0u8)" in str(better)
    assert sum(report.fired.values()) > 4


def test_what_nobody_needs_is_not_worked_on(dispatcher: BackendDispatcher) -> None:
    text = """program left(workgroup 1) {
      buffer 0 y: u32[2] readwrite
      let unused = (y[0] + 0) * 8
      let first = unused * 8 + y[1]
      let second = y[1] * 3
      let third = y[1] * 3
      y[third & 1] = third
    }"""
    better, report = optimize(parse(text), dispatcher, report=True)
    assert report.fired == {}
    assert [one.name for one in better.entry if isinstance(one, n.Let)] == ["third"]


def test_a_new_literal_keeps_nothing_else(dispatcher: BackendDispatcher) -> None:
    """The first row is that of a list that is empty."""
    text = """program first(workgroup 1) {
      buffer 0 y: u32[2] readwrite
      region "empty" { let unused = 1 }
      y[1] = (y[0] + 3) + 9
    }"""
    better, report = optimize(parse(text), dispatcher, report=True)
    assert "y[1] = y[0] + 12" in str(better)
    assert report.rounds == 1
    assert report.rows_after == 5


def test_a_cell_that_is_copied_needs_no_second_round(dispatcher: BackendDispatcher) -> None:
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
    better, report = optimize(parse(text), dispatcher, report=True)
    assert "let n_before = n" in str(better)
    assert report.rounds == 1
    assert optimize(better, dispatcher) == better


@pytest.mark.parametrize("changes", ["y[0] = v0", "v0 = y[select(v0 > 0, 1, 0)]"])
def test_a_cell_that_is_assigned_what_it_holds_is_copied_for_nothing(
    changes: str, dispatcher: BackendDispatcher
) -> None:
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
    better, report = optimize(parse(text), dispatcher, report=True)
    assert report.rounds == 2
    assert "v0 = v0\n" not in str(better)
    assert optimize(better, dispatcher) == better


def described(findings: Findings, rows: int) -> list[object]:
    """What was found for each row, where a literal is what it says and not where it stands."""
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
        stands = canon[row] == row
        kind = kind_of(heads[row])
        if kind == Kind.LITERAL or not live[row]:
            found.append(None)
            continue
        if not stands:
            found.append(value(row))
            continue
        operands = (value(a0[row]), a1[row], a2[row]) if kind == Kind.LOAD else (a0[row],) * (kind == Kind.LEAF)
        if kind == Kind.OPERATION:
            operands = (value(a0[row]), value(a1[row]), value(a2[row]))
        found.append((heads[row], operands, place[row], shared[row]))
    return found


def test_kernels_find_what_the_oracle_finds(dispatcher: BackendDispatcher) -> None:
    for seed in range(5_000, 5_060):
        arena, _ = encode(generate(seed).program)
        switches = Optimization(frozenset({SWITCHES[seed % len(SWITCHES)]} if seed % 3 else ()))
        found, wanted = find(arena, dispatcher, switches.bits), analyse(arena, switches)
        assert described(found, arena.rows) == described(wanted, arena.rows), f"seed {seed}"
        assert found.fired == wanted.fired, f"seed {seed}"
        assert found.sweeps == wanted.sweeps
