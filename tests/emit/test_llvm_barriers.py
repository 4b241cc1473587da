"""Workgroups with barriers in every kind of control flow, in scalar code and in vectors of every width."""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from cpu_support import backend, compare, meaning, outcome
from generated import told
from vyre.backends.cpu import CpuBackend
from vyre.conform import Case, Profile, generate
from vyre.emit.llvm import emit_kernel
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.semantics.types import DType

WIDTHS = (1, 4, 8, 16)
TIED = Profile(
    grid_syncs=False, traps=False, collectives=False, max_nesting=4, expression_depth=2,
    weights=(("barrier", 12), ("loop", 9), ("while", 9), ("break", 8), ("continue", 8), ("return", 4)),
)  # fmt: skip
ALONE = Profile(
    grid_syncs=False, traps=False, collectives=False, max_nesting=4, expression_depth=2, subgroups=False,
    weights=TIED.weights,
)  # fmt: skip

# Each mixes what crosses barriers into ``out``; ``n`` is 5.
BODIES = {
    "all of some vectors return, in different passes": """
      for k in 0 .. 6 {
        if lid.x / 8 == k { return }
        tile[lid.x] = x + k
        barrier
        x = x * 3 + tile[(lid.x + 8) % 40]
        out[gid.x] = x
        barrier
      }""",
    "a loop ends by break, at a barrier or before one": """
      for k in 0 .. 9 {
        if k == n { break }
        tile[lid.x] = x
        barrier
        if k * 2 == n + 1 { break }
        x = x + tile[39 - lid.x] * k
        barrier
      }
      out[gid.x] = x""",
    "passes are cut short before and behind a barrier": """
      let k = 0
      while k < 7 {
        k = k + 1
        if k == 2 { continue }
        tile[lid.x] = x + k
        barrier
        if k == n { continue }
        x = x ^ tile[(lid.x + k) % 40]
        barrier
      }
      out[gid.x] = x + k""",
    "the condition of a loop is written by the workgroup": """
      let rounds = 0
      while tile[0] < 30 {
        barrier
        let seen = tile[0]
        barrier
        if lid.x == 3 { tile[0] = seen + n }
        rounds = rounds + 1
        barrier
        x = x * 2 + tile[0]
      }
      out[gid.x] = x + rounds""",
    "barriers in both arms, and in one alone": """
      if n > 3 { tile[lid.x] = x; barrier; x = tile[39 - lid.x] } else { barrier; x = 1; barrier }
      barrier
      if n > 9 { barrier; x = 2 }
      out[gid.x] = x + tile[lid.x]""",
    "values of every kind of register cross": """
      let wide = i64(x) * -3i64
      let half = f16(x) / 3.0f16
      let flag = x % 3 == 1
      let all = bool(n)
      let long = f64(n) / 7.0f64
      let small = i8(x)
      for k in 0 .. n {
        barrier
        wide = wide * 5i64 + i64(k)
        half = half * 0.5f16
        if flag { small = small + 1i8 }
        flag = !flag
        all = all & k < 3
        long = long * 1.5f64
        barrier
      }
      out[gid.x] = u32(wide) + u32(half * 1000.0f16) + u32(flag) * 7
      out[gid.x] = out[gid.x] + u32(small) + u32(all) * 11 + u32(long * 100.0f64)""",
    "some return at once and the others go on through nested loops": """
      if lid.x % 3 == 1 { return }
      for j in 0 .. 3 {
        for k in j .. n {
          tile[lid.x] = tile[lid.x] + x
          barrier
          let far = tile[3] > 4000
          x = x + tile[(lid.x + 1) % 40]
          barrier
          if far { break }
        }
        x = x + j
      }
      out[gid.x] = x""",
    "an index that the workgroup's values are part of": """
      let start = given[1]
      let at = start + lid.x
      barrier
      for k in 0 .. n { x = x + given[(at + k) % 40]; barrier }
      out[gid.x] = x""",
    # A chain of assignments so long that nobody follows it to its end: then all that lanes have is taken to vary.
    "uniform control flow and values that the shapes of lanes do not show": """
      let agreed = n
      if lid.x % 4 == 0 { return }
      for j in 0 .. agreed {
        if agreed > 11 { break }
        for k in 0 .. agreed {
          tile[lid.x] = x + agreed
          barrier
          """
    + "".join(f"let c{k} = {k}\n" for k in range(20))
    + "for again in 0 .. 3 {"
    + "".join(f"c{a} = c{b}\n" for a, b in pairwise(range(20)))
    + """
            c19 = x
          }
          x = x + tile[39 - lid.x] + agreed * k + c17
          agreed = agreed + k % 2
          if agreed > 7 { break }
          if lid.x + k == 9 + agreed { return }
          if agreed % 2 == 0 { barrier; x = x + 1 }
          barrier
        }
        barrier
        agreed = agreed + j
      }
      out[gid.x] = x + agreed""",
}


def program_of(body: str) -> Program:
    return parse(f"""
    program tied(workgroup 40) {{
      buffer 0 given: u32[] read
      buffer 1 out: u32[] output
      buffer 2 tile: u32[40] workgroup
      let x = given[gid.x] + gid.x
      let n = given[0]
{body}
    }}""")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", BODIES)
def test_a_workgroup_gives_the_bytes_of_the_reference(name: str, width: int) -> None:
    given = np.arange(5, 125, dtype=np.uint32)
    case = Case(program_of(BODIES[name]), {"given": given}, elements=120)
    expected = meaning(case)
    assert isinstance(expected, dict)
    assert compare(expected, outcome(case, backend(width))) is None


def test_subgroups_stay_whole_beside_barriers() -> None:
    case = Case(
        parse("""
        program beside(workgroup 40, subgroup 8) {
          buffer 0 out: u32[] output
          buffer 1 tile: u32[40] workgroup
          let x = subgroup_reduce(add, gid.x)
          for k in 0 .. 3 {
            if lid.x == 11 + k { return }
            tile[lid.x] = x
            barrier
            x = subgroup_reduce(max, tile[(lid.x * 7) % 40] + k) + subgroup_ballot(x % 2 == 0)
            barrier
          }
          out[gid.x] = x
        }"""),
        {},
        elements=80,
    )
    assert compare(meaning(case), outcome(case, backend(16))) is None


def test_a_statement_that_stands_in_two_places_is_left_as_in_each_of_them() -> None:
    leaving = b.if_(b.load("given", 0) > 3, [b.return_()])
    entry = [b.if_(b.lid() % 2 < 1, [leaving, b.store("out", b.gid(), 1)]), b.store("out", b.gid(), 2), leaving]
    buffers = [BufferDecl.read("given", 0, DType.U32), BufferDecl.output("out", 1, DType.U32)]
    case = Case(Program.new(buffers, 8, entry), {"given": np.array([5], np.uint32)}, elements=16)
    assert compare(meaning(case), outcome(case, backend(8))) is None


def situations(program: Program) -> Counter[str]:
    """Which jumps leave loops with barriers, and whether somebody returns before one."""
    found: Counter[str] = Counter()
    for loop in walk.statements(program.entry):
        if isinstance(loop, (n.Loop, n.While)):
            inside = list(walk.statements(loop.body))
            if any(isinstance(statement, n.Barrier) for statement in inside):
                found.update({type(s).__name__ for s in inside if isinstance(s, (n.Break, n.Continue, n.Return))})
    return found


def wrong_on(on: CpuBackend, optimize: bool, case: Case) -> str | None:
    return compare(meaning(case), outcome(case, on, optimize=optimize))


@pytest.mark.parametrize("width", WIDTHS)
def test_generated_workgroups_give_the_bytes_of_the_reference(width: int) -> None:
    seen: Counter[str] = Counter()
    on = backend(width)
    for seed in range(1000 * width, 1000 * width + 90):
        case = generate(seed, 16, ALONE if width == 1 else TIED)
        if not case.program.stats().has_barriers:
            continue
        compared = partial(wrong_on, on, seed % 8 == 0)
        if found := compared(case):
            pytest.fail(told(case, f"seed {seed}: {found} ({width} lanes)", lambda c, f=compared: bool(f(c))), False)
        seen["programs"] += 1
        seen += situations(case.program)
    assert seen["programs"] >= 50
    assert min(seen["Break"], seen["Continue"], seen["Return"]) >= 2, seen


@pytest.mark.parametrize("kind", ["for k{0} in 0 .. n", "if n > {0}"])
def test_code_grows_with_the_barriers_and_not_with_their_square(kind: str) -> None:
    def text_of(count: int) -> int:
        step = "{{ tile[lid.x] = x; barrier; x = x + tile[39 - lid.x]; barrier }}\n x = x * 3 + {0}\n"
        body = "".join(f"{kind} {step}".format(number) for number in range(count))
        return len(emit_kernel(program_of(f"{body} out[gid.x] = x"), 16, flat=False).text)

    assert text_of(40) < 2.5 * text_of(20)


def test_a_pipeline_tells_its_segments_and_what_they_carry() -> None:
    told = backend(16).compile(program_of(BODIES["a loop ends by break, at a barrier or before one"])).explain()
    assert "3 segments" in told
    # One value of each invocation crosses, in three vectors of 64 bytes.
    assert "192 state bytes" in told
