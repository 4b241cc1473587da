"""Checks are removed where a proof says so, and a proof is never wrong."""

from __future__ import annotations

from collections import Counter

import pytest

from guarded_programs import guarded_case
from vyre.analyze.ranges import proved_accesses
from vyre.conform.case import Case, run_on_reference
from vyre.conform.generator import generate
from vyre.errors import VyreError
from vyre.ir import Program, build, parse, walk
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.places import Place
from vyre.semantics.types import DType

_ACCESSES = (n.Load, n.Store, n.Atomic)


def accesses(program: Program) -> dict[Place, n.Node]:
    """The accesses of a program by their places, in canonical order."""
    found: dict[Place, n.Node] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        nodes = (node for root in walk.operands(statement) for node in walk.postorder(root))
        found |= {Place(number, k): node for k, node in enumerate(nodes) if isinstance(node, _ACCESSES)}
        if isinstance(statement, n.Store):
            found[Place(number)] = statement
    return found


def proofs(body: str, workgroup: str = "8") -> str:
    """For each access in order: + where it is proved, - where it is checked."""
    program = parse(f"""
    program p(workgroup {workgroup}) {{
      buffer 0 a: u32[] read
      buffer 1 b: u32[] read
      buffer 2 c: u32[16] read
      buffer 3 bytes: u8[] read
      buffer 4 out: u32[] readwrite
      buffer 5 t: u32[8] workgroup
      let i = gid.x
      {body}
    }}""")
    proved = proved_accesses(program)
    return "".join("+" if id(node) in proved else "-" for node in accesses(program).values())


@pytest.mark.parametrize(("body", "expected"), [
    # A guard holds where it stands, of its own buffer.
    ("out[i] = 1", "-"),
    ("if i < len(out) { out[i] = 1 }", "+"),
    ("if i < len(a) { out[i] = a[i] }", "+-"),
    ("if i < len(a) & i < len(out) { out[i] = a[i] }", "++"),
    ("if i < len(a) | i < len(out) { out[i] = a[i] }", "--"),
    ("if len(out) > i { out[i] = 1 }", "+"),
    ("if i <= len(out) { out[i] = 1 }", "-"),
    ("if i >= len(out) { out[i] = 1 }", "-"),
    ("if i >= len(out) { } else { out[i] = 1 }", "+"),
    ("if !(i >= len(out)) { out[i] = 1 }", "+"),
    ("if !(i >= len(out) | i >= len(a)) { out[i] = a[i] }", "++"),
    ("if i == len(out) { } else { out[i] = 1 }", "-"),
    ("if i < len(out) { }; out[i] = 1", "-"),
    ("let ok = i < len(out); if ok { out[i] = 1 }", "+"),
    ("let k = 3; if k < len(a) { out[a[k]] = 1 }", "+-"),
    ("let x = i < len(out) & a[i] > 0", "-"),
    # Literals and declared counts.
    ("let x = c[15] + t[7]", "++"),
    ("if i < 16 { let x = c[i] + t[i] }", "+-"),
    ("if i < 17 { let x = c[i] }", "-"),
    ("if i < len(c) { let x = c[i] + t[i] }", "+-"),
    ("let x = c[i % 16] + c[i & 15] + c[min(i, 15)] + c[i >> 28]", "++++"),
    ("let x = c[i % 17] + c[i & 16] + c[min(i, 16)] + c[i >> 27] + c[max(i, 3)]", "-----"),
    ("let x = c[i % len(c)] + a[i % len(a)]", "+-"),
    ("if len(a) > 0 { let x = a[i % len(a)] + a[0] + a[1] + a[len(a) - 1] }", "++-+"),
    ("let x = a[len(a) - 1]", "-"),
    ("let x = t[lid.x] + c[lid.x * 2 + 1] + c[lid.x * 2 + 2] + c[wg.x]", "++--"),
    ("let x = c[u32(bytes[i]) >> 4] + c[u32(bytes[i]) >> 3]", "-+--"),
    ("let x = c[popcount(i) >> 2] + t[popcount(i) >> 2]", "+-"),
    ("let x = c[select(i < 3, 5, 15)] + c[select(i < 3, 5, 16)]", "+-"),
    ("let x = c[u32(i < 3) * 15]", "+"),
    # Arithmetic wraps around.
    ("if i + 1 < len(a) { let x = a[i + 1] + a[i] }", "++"),
    ("let w = b[0]; if w + 1 < len(a) { let x = a[w + 1] + a[w] }", "-+-"),
    ("if i < len(a) { let x = a[i - 1] + a[i + 1] }", "--"),
    ("if i > 0 & i < len(a) { let x = a[i - 1] }", "+"),
    ("if i < 15 { let x = c[i + 1] + c[i + 2] }", "+-"),
    ("if i >= 4294967290 { let x = c[i + 6] }", "-"),
    ("if i < 2147483648 { let x = c[i * 2] }", "-"),
    ("let x = c[i * 0] + c[(i & 1) * 15] + c[(i & 1) << 4] + c[(i & 1) << i]", "++--"),
    ("if i < 10 { if i > 3 { let x = c[i - 4] + c[3 - i] } }", "+-"),
    ("let w = a[0]; if w <= i & i < len(b) { let x = b[i - w] + b[i] }", "-++"),
    ("let w = a[0]; if i < len(b) { let x = b[i - w] }", "--"),
    ("let w = a[0]; if i < len(b) { let x = b[sat_sub(i, w)] + b[i / w] + b[i % w] + b[i & w] + b[i | w] }", "-++++-"),
    ("if i >= 10 & i + 10 < 25 { let x = t[i + 10 - 20] }", "+"),
    ("let w = a[0]; if w >= 10 & w + 10 < 25 { let x = t[w + 10 - 20] }", "--"),
    ("if i >= 10 & i * 4 < 48 { let x = t[i * 4 - 40] }", "-"),
    ("if i >= 10 & i << 2 < 48 { let x = t[(i << 2) - 40] }", "-"),
    ("if i >= 10 & i < 20 & i * 4 < 48 { let x = t[i * 4 - 40] + c[i + 10 - 20] }", "++"),
    ("let w = a[0]; if w <= i { }; if i < len(b) { let x = b[i - w] }", "--"),
    ("if i < len(a) { let x = a[0] }", "+"),
    ("if i > 5 & i < len(a) { let x = a[6] + a[5] + a[7] }", "++-"),
    # Signed indices.
    ("let s = i32(i); if s >= 0i32 & s < 16i32 { let x = c[u32(s)] + c[i] }", "+-"),
    ("let s = i32(i); if s < 16i32 { let x = c[u32(s)] }", "-"),
    ("let s = i32(i); if s > -4i32 & s < 5i32 { let x = c[u32(s + 3i32)] + c[u32(s)] }", "+-"),
    ("let x = c[u32(i32(i) % 16i32)] + c[u32(i32(i & 255) % 16i32)]", "-+"),
    ("let x = c[u32(u8(i)) >> 4] + c[u32(i8(i))]", "+-"),
    # Assignments end what was known, and begin what is.
    ("let k = i; if k < len(a) { k = k + 1; let x = a[k] }", "-"),
    ("let k = i; if k < len(a) { let x = a[k]; k = k + 1 }", "+"),
    ("let k = i; if k < len(a) { k = k + 1; k = i; let x = a[k] }", "+"),
    ("let k = 3; if i == 5 { k = 15 }; let x = c[k] + t[k]", "+-"),
    ("let k = 3; if i == 5 { k = i } else { k = 2 }; let x = c[k] + t[k]", "++"),
    ("let k = 3; if i > 5 { k = i } else { k = 2 }; let x = c[k]", "-"),
    ("let k = i; if k < len(a) { if b[0] == 1 { k = 7 }; let x = a[k] }", "--"),
    ("let j = i + 1; if i < 15 { let x = c[j] + t[j] }", "+-"),
    # Whoever leaves is not there any more.
    ("if i >= len(a) { return }; let x = a[i]", "+"),
    ("if i >= len(a) { if b[0] == 1 { return } }; let x = a[i]", "--"),
    ("if i >= len(a) { if b[0] == 1 { return } else { return } }; let x = a[i]", "-+"),
    ("if i < len(a) { } else { return }; let x = a[i]", "+"),
    ("let k = i; if k >= len(a) { return }; k = k + 1; let x = a[k]", "-"),
    ("for j in 0 .. 3 { if i >= len(a) { break }; let x = a[i] }; let y = a[i]", "+-"),
    ("for j in 0 .. 3 { if i >= len(a) { continue }; let x = a[i] }", "+"),
    ("for j in 0 .. 3 { if i >= len(a) { return } }; let x = a[i]", "-"),
    # Loops.
    ("for j in 0 .. 16 { let x = c[j] + t[j] }", "+-"),
    ("for j in 0 .. 17 { let x = c[j] }", "-"),
    ("for j in 3 .. 8 { let x = t[j] + t[j - 3] + c[j + 8] + c[j + 9] }", "+++-"),
    ("for j in 0 .. len(a) { let x = a[j] + b[j] }", "+-"),
    ("for j in i .. len(a) { let x = a[j] + a[i] }", "++"),
    ("for j in 0 .. len(a) + 1 { let x = a[j] }", "-"),
    ("for j in 0 .. min(len(a), len(b)) { let x = a[j] + b[j] }", "++"),
    ("for j in 0 .. max(len(a), len(b)) { let x = a[j] + b[j] }", "--"),
    ("let stop = len(a); for j in 0 .. stop { stop = stop + 1; let x = a[j] }", "+"),
    ("let stop = len(a); for k in 0 .. 3 { for j in 0 .. stop { let x = a[j] }; stop = stop + 1 }", "-"),
    ("let k = 0; while k < len(a) { let x = a[k]; k = k + 1 }", "+"),
    ("let k = 0; while k < len(a) { k = k + 1; let x = a[k] }", "-"),
    ("let k = 0; while k < len(a) { let x = a[k]; k = k + 1 }; let y = a[k]", "+-"),
    ("let k = 0; while a[k] > 0 { k = k + 1 }", "-"),
    ("let k = 7; for j in 0 .. 3 { let x = t[k]; k = k + 1 }", "-"),
    ("let k = 7; for j in 0 .. 3 { k = i }; let x = t[k]", "-"),
    ("let k = 7; for j in 0 .. 3 { let m = k & 7; let x = t[m]; k = m + 1 }", "+"),
    # Atomics and stores like loads.
    ("if i < len(out) { let old = atomic_add(out, i, 1) }", "+"),
    ("let old = atomic_add(out, i, 1)", "-"),
    ("t[lid.x] = 1; t[lid.x + 1] = 2", "+-"),
])  # fmt: skip
def test_what_is_proved(body: str, expected: str) -> None:
    assert proofs(body) == expected


def test_local_ids_are_below_the_workgroups_size_along_their_axis() -> None:
    assert proofs("let x = c[lid.x * 4 + lid.y] + c[lid.y * 4 + lid.x] + t[lid.z]", "4, 4") == "+++"
    assert proofs("let x = c[lid.x * 4 + lid.y] + c[lid.y * 8 + lid.x]", "8, 2") == "-+"


def test_what_stands_in_several_places_is_proved_if_it_is_in_each() -> None:
    load = build.load("a", n.InvocationId(0))
    guard = n.InvocationId(0) < n.BufLen("a")
    buffers = (BufferDecl.read("a", 0, DType.U32),)
    inside = [build.if_(guard, [build.let("x", load), build.let("y", load)])]
    assert id(load) in proved_accesses(Program.new(buffers, 8, inside))
    assert id(load) not in proved_accesses(Program.new(buffers, 8, [*inside, build.let("z", load)]))


def test_nothing_is_proved_of_invocations_that_go_on_elsewhere() -> None:
    program = parse("""
    program p(workgroup 8) {
      buffer 0 out: u32[] readwrite
      if gid.x >= 4 { trap(0, "t") }
      if gid.x >= len(out) { return }
      resume("t")
      out[gid.x] = 1
    }""")
    assert not proved_accesses(program)


def proved_and_missed(case: Case) -> Counter[str]:
    """How many accesses were proved, and how many were outside in a run; an access that was both fails."""
    program, found = case.program, accesses(case.program)
    proved = proved_accesses(program)
    try:
        missed = {miss.place for miss in run_on_reference(case).out_of_bounds}
    except VyreError:
        return Counter()
    for place in missed:
        assert id(found[place]) not in proved, f"{place} is outside\n{program}"
    return Counter(proved=sum(id(node) in proved for node in found.values()), missed=len(missed))


def test_no_proved_access_of_a_guarded_program_is_ever_outside() -> None:
    seen: Counter[str] = Counter()
    for seed in range(500):
        seen += proved_and_missed(guarded_case(seed))
    assert seen["proved"] > 500
    assert seen["missed"] > 500


def test_no_proved_access_of_a_generated_program_is_ever_outside() -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        case = generate(seed, 12)
        if not case.program.stats().has_extensions:
            seen += proved_and_missed(case)
    assert seen["proved"] > 50
    assert seen["missed"] > 20


@pytest.mark.long
def test_no_proved_access_of_many_guarded_programs_is_ever_outside() -> None:
    seen: Counter[str] = Counter()
    for seed in range(10_000, 60_000):
        seen += proved_and_missed(guarded_case(seed))
    assert seen["proved"] > 30_000


def test_a_long_program_is_walked_in_time_that_grows_with_it() -> None:
    """A chain of guards and merges as deep and as long as programs get: no recursion over it, nothing quadratic."""
    deep: n.Expr = n.InvocationId(0)
    for _ in range(1_000):
        deep = (deep + 1) & 7
    entry: list[n.Stmt] = [build.let("x", deep)]
    entry += [build.if_(n.Var("x") < 5 + k % 3, [build.assign("x", n.Var("x") ^ k)]) for k in range(20_000)]
    entry.append(build.store("out", n.Var("x") & 63, 1))
    program = Program.new((BufferDecl.output("out", 0, DType.U32, 64),), 8, entry)
    assert proved_accesses(program) == {id(entry[-1])}
