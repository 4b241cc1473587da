"""Conditions decided by those that dominate them: what is decided, what must not be, and that nothing changes."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

import vyre
from cpu_support import Outcome, compare, meaning, outcome
from cpu_support import backend as cpu_backend
from guarded_programs import guarded_case
from vyre.backends.cpu.kernels import SCALAR, WIDTHS
from vyre.conform.case import Case, run_on_reference
from vyre.conform.generator import generate
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.errors import VyreError
from vyre.ir import Program, build, parse
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.optimizer.guards import decide_guarded
from vyre.optimizer.switches import EVERYTHING, Optimization
from vyre.semantics.types import DType

HEAD = """
program p(workgroup 8) {
  buffer 0 a: u32[] read
  buffer 1 b: u32[] readwrite
  buffer 2 sizes: u32[4] uniform
  buffer 3 s8: u8[] read
  buffer 4 s32: i32[] read
  buffer 5 f: f32[] read
  buffer 6 t: u32[8] workgroup
  let n = sizes[0]
  let m = sizes[1]
  let i = gid.x
  let x = a[i]
  let y = a[i + 1]
  let z = b[i]
"""


def program(body: str) -> Program:
    return parse(f"{HEAD}{body}\n}}")


def decided(body: str) -> tuple[str, int]:
    made, count = decide_guarded(program(body))
    return str(made), count


@pytest.mark.parametrize(("body", "shown"), [
    # Branches, both arms, nested, and joined conditions.
    ("if i < n { if i < n { b[i] = 1 } }", "if true"),
    ("if i < n { if n > i { b[i] = 1 } }", "if true"),
    ("if i < n { if i >= n { b[i] = 1 } }", "if false"),
    ("if i < n { if !(i >= n) { b[i] = 1 } }", "if true"),
    ("if i < n { } else { if i >= n { b[i] = 1 } }", "if true"),
    ("if i >= n | i >= m { } else { if i < m { b[i] = 1 } }", "if true"),
    ("if i < n & n <= m { if i < m { b[i] = 1 } }", "if true"),
    ("if i < n { if n < m { if i + 1 < m { b[i] = 1 } } }", "if true"),
    ("let c = i < n; if c { let d = c; if d { b[i] = 1 } }", "if true"),
    ("if x == y { if x <= y { b[i] = 1 } }", "if true"),
    ("if x == y { if y == x { b[i] = 1 } }", "if true"),
    ("if x == y { if x != y { b[i] = 1 } }", "if false"),
    ("if x != y { if y != x { b[i] = 1 } }", "if true"),
    ("if f[i] < 1.0 { if f[i] < 1.0 { b[i] = 1 } }", "if true"),
    # Sums that do not wrap.
    ("if i + 1 < n { if i < n { b[i] = 1 } }", "if true"),
    ("if i >= 1 & i + 1 < n { if i - 1 < n { b[i] = 1 } }", "if true"),
    ("if x < 100 & x + 5 < n { if x < n { b[i] = 1 } }", "if true"),
    ("if x < n { if x - 0 < n { b[i] = 1 } }", "if true"),
    ("let v = s32[i]; if v > 0i32 & v < 10i32 { if u32(v) < 10 { b[i] = 1 } }", "if true"),
    ("let v = s8[i]; if v < 9u8 { if v + 1u8 < 10u8 { b[i] = 1 } }", "if true"),
    ("if i < n { if i + 2 < 9 & n < 9 { if i + 2 < n + 2 { b[i] = 1 } } }", "if true"),
    ("if x < y { let d = y - x; if d > 0 { b[i] = d } }", "if true"),
    # Loops and exits.
    ("for k in 2 .. n { if k < n & k > 1 { b[k] = 1 } }", "if true"),
    ("for k in i .. n { if i < n { b[k] = 1 } }", "if true"),
    ("let k = 0; while k < n { if k < n { b[k] = 1 }; k = k + 1 }", "if true"),
    ("if i >= n { return }; if i < n { b[i] = 1 }", "if true"),
    ("for k in 0 .. m { if i >= n { break }; if i < n { b[i] = 1 } }", "if true"),
    ("for k in 0 .. m { if k == 3 { continue }; if k == 3 { b[i] = 1 } }", "if false"),
    # Selects and the left operands of & and |.
    ("if i < n { b[i] = select(i < n, 3, 4) }", "select(true, 3, 4)"),
    ("b[i] = select(x < n, select(x < n, 3, 4), 5)", "select(true, 3, 4)"),
    ("b[i] = select(x < n, 3, select(x < n, 4, 5))", "select(false, 4, 5)"),
    ("if y > 5 { b[i] = u32(x < n & x <= n) }", "x < n & true"),
    ("if y > 5 { b[i] = u32(x < n | x >= n) }", "x < n | true"),
    # Minimum, maximum, remainder, quotient, mask.
    ("if i < n { b[i] = min(i, n) }", "b[i] = i"),
    ("if i < n { b[i] = max(i, n) }", "b[i] = n"),
    ("if x < n { b[i] = x % n }", "b[i] = x"),
    ("if x < n { b[i] = x / n }", "b[i] = 0"),
    ("if x < 8 { b[i] = x & 7 }", "b[i] = x"),
    ("if x > 3 & x < 9 { b[i] = min(max(x, 2), 9) }", "b[i] = x"),
    ("if x == 7 { b[i] = x * 3 }", "b[i] = 7 * 3"),
])  # fmt: skip
def test_what_is_decided(body: str, shown: str) -> None:
    text, count = decided(body)
    assert count
    assert shown in text


@pytest.mark.parametrize("body", [
    # Arithmetic wraps around.
    "if x + 1 < n { if x < n { b[i] = 1 } }",
    "if i < n { if i - 1 < n { b[i] = 1 } }",
    "if x < n { if x + 1 <= n + 1 { b[i] = 1 } }",
    "let v = s8[i]; if v + 1u8 < 10u8 { if v < 10u8 { b[i] = 1 } }",
    "let v = s8[i]; if v - 1u8 < 9u8 { if v > 0u8 { b[i] = 1 } }; if v * 2u8 < 9u8 { if v < 9u8 { b[i] = 1 } }",
    "let v = s32[i]; if v + 1i32 > 5i32 { if v > 4i32 { b[i] = 1 } }",
    "let v = s32[i]; if v < 10i32 { if v - 1i32 < 9i32 { b[i] = 1 } }",
    "let v = s32[i]; if v < 10i32 { if u32(v) < 10 { b[i] = 1 } }",
    "let v = s32[i]; if -v < 5i32 { if v > -5i32 { b[i] = 1 } }",
    "if x < n { if u8(x) < u8(n) { b[i] = 1 } }",
    "if x * 4 < n { if x < n { b[i] = 1 } }",
    "if x << 2 < n { if x < n { b[i] = 1 } }",
    "if i + x < n { if i < n { b[i] = 1 } }",
    "if x - y < n { if x < n + y { b[i] = 1 } }",
    "if i + 65537 < n { if i < n { b[i] = 1 } }",
    "if i + 1 < n { if i + 3 < n + 2 { b[i] = 1 } }",
    "let h = (i + n) / 2; if i < n { if h < n { b[i] = 1 } }",
    # Assignments.
    "let k = x; if k < n { k = k + 1; if k < n { b[i] = 1 } }",
    "let k = x; if k < n { if f[i] == 1.0 { k = y }; if k < n { b[i] = 1 } }",
    "let k = x; if k < n { for q in 0 .. 3 { if k < n { b[i] = 1 }; k = k * 5 } }",
    "let k = 0; while k < n { k = k + 1; if k < n { b[i] = 1 } }",
    "let k = x; while k < n { if f[i] == 1.0 { break }; k = k + 3 }; if k >= n { b[i] = 1 }",
    "let c = x < n; let k = x; if c { k = y; if k < n { b[i] = 1 } }",
    # Memory that an invocation writes, before or behind a barrier.
    "if b[i] < n { if b[i] < n { b[i] = 1 } }",
    "if b[i] < n { b[i] = 9; if b[i] < n { b[i] = 1 } }",
    "if t[0] < n { if t[0] < n { b[i] = 1 } }; t[lid.x] = 5",
    "let c = t[lid.x] < n; barrier; t[lid.x] = x; barrier; if c { b[i] = u32(t[lid.x] < n) }",
    "let o = atomic_add(b, 0, 1); if o < n { b[i] = u32(atomic_add(b, 0, 1) < n) }",
    # Elsewhere than in what a condition dominates.
    "if x < n { b[i] = 2 }; if x < n { b[i] = 1 }",
    "if x < n { b[i] = 2 } else { b[i] = 3 }; if x < n { b[i] = 1 }",
    "if x >= n { if f[i] == 1.0 { return } }; if x < n { b[i] = 1 }",
    "for k in 0 .. m { if x >= n { break } }; if x < n { b[i] = 1 }",
    "for k in x .. n { b[k] = 2 }; if x < n { b[i] = 1 }",
    "for k in 0 .. 3 { if x >= n { continue }; b[k] = 2 }; if x < n { b[i] = 1 }",
    "b[i] = select(x < n, 1, 0) + u32(x < n)",
    "b[i] = select(select(x < n, true, false), 1, 0) + select(x < n, 2, 3)",
    "b[i] = u32(x <= n & x < n)",
    "b[i] = u32((x < n | y < n) & x < n)",
    "if x < n | y < n { if x < n { b[i] = 1 } }",
    "if !(x < n & y < n) { if x < n { b[i] = 1 } }",
    # Operands that are evaluated by all, or by other lanes, whatever a select takes.
    "let o = select(x < n, atomic_add(b, select(x < n, 0, 1), 1), 0); b[i] = o",
    "let o = x < n & atomic_add(b, u32(x < n), 1) == 0; b[i] = u32(o)",
    "b[i] = select(x < n, subgroup_reduce(add, select(x < n, 1, 5)), 0)",
    "b[i] = select(x < n, subgroup_ballot(x < n), 0)",
    "b[i] = select(x < n, subgroup_shuffle(u32(x < n), 0), 0)",
    # Floats have no order that a negation turns around, and remainders no positive sign.
    "let g = f[i]; if g < 1.0 { } else { if g >= 1.0 { b[i] = 1 } }",
    "let g = f[i]; if g == g { b[i] = 1 }",
    "let g = f[i]; if g <= 2.0 { if g < 2.0 { b[i] = 1 } }",
    "let v = s32[i]; let w = s32[i + 1]; if v < w { b[i] = u32(v % w) }",
    "if x <= n { b[i] = x % n + x / n }",
    "if x < 9 { b[i] = x & 7 }",
    "if x < 8 { b[i] = x & 6 }",
])  # fmt: skip
def test_what_must_not_be_decided(body: str) -> None:
    made, count = decide_guarded(program(body))
    assert count == 0, made


def test_what_a_handler_may_change_is_not_known() -> None:
    body = 'if a[i] < n { resume("t"); if a[i] < n { b[i] = 1 } }'
    assert decide_guarded(program(body))[1] == 0


def test_programs_that_trap_or_switch_the_pass_off_are_left_alone() -> None:
    body = "if i < n { if i < n { b[i] = 1 } }"
    _, report = optimize(program(body), report=True, switches=Optimization(off="guards"))
    assert "guards" not in {stage.name for stage in report.stages} | report.fired.keys()
    trapping = program(f'if x > n {{ trap(0, "t") }}; resume("t"); {body}')
    assert decide_guarded(trapping) == (trapping, 0)


def test_the_pass_is_counted_and_a_stencil_keeps_only_its_guard() -> None:
    text = """program stencil(workgroup 64) {
      buffer 0 a: f32[] read
      buffer 1 b: f32[] readwrite
      buffer 2 shapes: u32[2] uniform
      let h = shapes[0]
      let w = shapes[1]
      let j = gid.x
      let i = gid.y
      if i >= 1 & j >= 1 & i + 1 < h & j + 1 < w {
        let up = select(i - 1 < h & j < w, a[(i - 1) * w + j], 0.0)
        let left = select(i < h & j - 1 < w, a[i * w + (j - 1)], 0.0)
        let down = select(i + 1 < h & j < w, a[(i + 1) * w + j], 0.0)
        b[i * w + j] = up + left + down + select(i < h & j + 1 < w, a[i * w + (j + 1)], 0.0)
      }
    }"""
    made, report = optimize(parse(text), report=True)
    assert "select" not in str(made)
    assert report.fired["guards"] >= 8
    assert [stage.name for stage in report.stages].count("guards") >= report.rounds
    kept, plain = optimize(parse(text), report=True, switches=Optimization(off="guards"))
    assert str(kept).count("select") == 4
    assert "guards" not in plain.fired
    assert optimize(made) == made


def guarded_kernel(seed: int) -> Case:
    """A random program over small integers whose conditions say much about one another.

    Its values are equal, neighbours or at the ends of their types more often than not, so a wrong decision shows.
    """
    random = Random(seed)
    dtype = random.choice((DType.U8, DType.I8, DType.U32, DType.U32, DType.I32, DType.I64))
    names = ["p", "q", "r"]
    ends = (dtype.minimum, dtype.minimum + 1, dtype.maximum - 1, dtype.maximum)
    near = tuple(value for value in (-2, -1, 0, 1, 2, 3, 4, 5) if value >= dtype.minimum)

    def constant() -> n.Expr:
        return n.lit(random.choice(near if random.random() < 0.85 else ends), dtype)

    def value(depth: int = 2) -> n.Expr:
        choice = random.random()
        if depth == 0 or choice < 0.45:
            return n.Var(random.choice(names)) if random.random() < 0.8 else constant()
        if choice < 0.8:
            return n.BinOp(random.choice(("add", "sub", "add", "sub", "mul")), value(depth - 1), constant())
        if choice < 0.97:
            op = random.choice(("min", "max", "mod", "div", "and", "add", "sub"))
            return n.BinOp(op, value(depth - 1), value(depth - 1))
        return n.Select(condition(1), value(depth - 1), value(depth - 1))

    def condition(depth: int = 2) -> n.Expr:
        choice = random.random()
        if depth and choice < 0.35:
            return n.BinOp(random.choice(("and", "and", "or", "xor")), condition(depth - 1), condition(depth - 1))
        if depth and choice < 0.45:
            return n.UnOp("lnot", condition(depth - 1))
        if depth and choice < 0.5:
            return n.Select(condition(0), condition(depth - 1), condition(depth - 1))
        op = random.choice(("lt", "lt", "le", "gt", "ge", "eq", "ne"))
        return n.BinOp(op, value(1), value(1))

    marks = 0

    def mark() -> n.Stmt:
        nonlocal marks
        marks += 1
        got = n.Cast(DType.U32, value()) + n.Cast(DType.U32, condition()) * 3
        at = n.InvocationId(0) * 32 + marks % 32
        return build.store("out", at, n.Load("out", at) * 31 + got)

    def body(depth: int, *, in_loop: bool = False) -> list[n.Stmt]:
        statements: list[n.Stmt] = []
        for _ in range(random.randint(1, 3)):
            choice = random.random()
            if choice < 0.35 or depth > 3:
                statements.append(mark())
            elif choice < 0.5:
                statements.append(build.assign(random.choice(names), value()))
            elif choice < 0.8:
                otherwise = body(depth + 1, in_loop=in_loop) if random.random() < 0.5 else ()
                statements.append(build.if_(condition(), body(depth + 1, in_loop=in_loop), otherwise))
            elif choice < 0.9:
                leave = random.choice((build.break_(), build.continue_())) if in_loop else build.return_()
                statements.append(build.if_(condition(), [leave]))
            else:
                nonlocal loops
                loops += 1
                count = f"c{loops}"
                names.append(count) if dtype is DType.U32 else None
                inner = [build.assign(count, n.Var(count) + 1), *body(depth + 1, in_loop=True)]
                if dtype is DType.U32:
                    names.remove(count)
                test = (n.Var(count) < 3) & condition(1)
                statements += [build.let(count, 0), build.while_(test, inner)]
        return statements

    loops = 0
    lets = [build.let(name, n.Load("given", n.InvocationId(0) * 3 + place)) for place, name in enumerate(names[:3])]
    entry = [*lets, *body(0), *body(0), mark()]
    buffers = (BufferDecl.read("given", 0, dtype), BufferDecl.read_write("out", 1, DType.U32, 32 * 32))
    drawn = [random.choice(near if random.random() < 0.8 else ends) for _ in range(96)]
    inputs = {"given": np.array(drawn, dtype.storage), "out": np.zeros(1024, np.uint32)}
    return Case(Program.new(buffers, 8, entry), inputs, grid=(4, 1, 1), fuel=1_000_000)


def bytes_of(case: Case, made: Program) -> dict[str, bytes]:
    result = run_on_reference(msgspec.structs.replace(case, program=made))
    return {name: array.tobytes() for name, array in result.outputs.items()}


def decisions(case: Case, what: str) -> int:
    """How many expressions are decided; a program that then does something else fails."""
    made, count = decide_guarded(case.program)
    if count:
        try:
            expected = bytes_of(case, case.program)
        except VyreError:
            return 0
        assert bytes_of(case, made) == expected, f"{what}\n{case.program}\n{made}"
        again, more = decide_guarded(made)
        assert more == 0 or bytes_of(case, again) == expected, what
    return count


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_decided_programs_mean_the_same_on_the_reference(first: int) -> None:
    count = sum(decisions(guarded_kernel(seed), f"kernel {seed}") for seed in range(first, first + 100))
    count += sum(decisions(guarded_case(seed), f"guarded {seed}") for seed in range(first, first + 60))
    count += sum(decisions(generate(seed, 12), f"generated {seed}") for seed in range(first, first + 20))
    assert count > 100


@pytest.mark.long
def test_many_decided_programs_mean_the_same_on_the_reference() -> None:
    count = sum(decisions(guarded_kernel(seed), f"kernel {seed}") for seed in range(10_000, 40_000))
    count += sum(decisions(guarded_case(seed), f"guarded {seed}") for seed in range(10_000, 30_000))
    assert count > 30_000


def wrong_on_cpu(case: Case, expected: Outcome, width: int) -> str | None:
    switches = msgspec.structs.replace(EVERYTHING, keep=False)
    return compare(expected, outcome(case, cpu_backend(width, 1, True, keep=False), optimize=switches))


@pytest.mark.parametrize("width", [SCALAR, *WIDTHS])
def test_decided_programs_mean_the_same_on_the_processor(width: int) -> None:
    for seed in range(500 + 12 * width, 512 + 12 * width):
        case = guarded_kernel(seed)
        found = wrong_on_cpu(case, meaning(case), width)
        assert found is None, f"kernel {seed}, width {width}: {found}\n{case.program}"


def test_optimizing_again_changes_nothing() -> None:
    dispatcher = BackendDispatcher(vyre.backend("cpu"))
    for seed in range(700, 760):
        case = guarded_kernel(seed)
        made = optimize(case.program, dispatcher)
        assert bytes_of(case, made) == bytes_of(case, case.program), seed
        assert optimize(made, dispatcher) == made, seed


def test_a_long_program_of_guards_is_decided_in_time_that_grows_with_it() -> None:
    """Many different conditions on the same values: what is known of a value stays small."""
    x = n.Var("x")
    entry: list[n.Stmt] = [build.let("x", n.Load("a", n.lit(0)))]
    for k in range(6_000):
        entry.append(build.let(f"y{k}", n.Load("a", n.lit(k + 1))))
        entry.append(build.if_(x >= n.Var(f"y{k}"), [build.return_()]))
    entry.append(build.if_(x < n.Var("y5999"), [build.store("out", 0, x)]))
    buffers = (BufferDecl.read("a", 0, DType.U32), BufferDecl.output("out", 1, DType.U32, 1))
    made, count = decide_guarded(Program.new(buffers, 8, entry))
    assert count == 1
    assert made.entry[-1].condition == n.lit(True)  # type: ignore[attr-defined]


def test_a_long_condition_is_decided_in_time_that_grows_with_it() -> None:
    x = n.Load("a", n.lit(0))
    condition = x.ne(0)
    for k in range(1, 900):
        condition = condition & n.Load("a", n.lit(k)).ne(k)
    entry = [build.let("c", condition), build.if_(n.Var("c"), [build.store("out", 0, n.Select(x.eq(0), x, x + 1))])]
    buffers = (BufferDecl.read("a", 0, DType.U32), BufferDecl.output("out", 1, DType.U32, 1))
    assert decide_guarded(Program.new(buffers, 8, entry))[1] <= 1
