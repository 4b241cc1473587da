"""Which facts are needed at a barrier."""

from __future__ import annotations

import pytest

from vyre.analyze.effects import buffers_read, buffers_written, written_buffers
from vyre.analyze.liveness import live_at_points
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.build import atomic_add, atomic_load, load


def live(body: str) -> list[set[str]]:
    """The facts at each grid barrier or resume of a program with these statements, in order."""
    program = parse(f"""
    program p(workgroup 2) {{
      buffer 0 a: u32[4] readwrite
      buffer 1 s: u32[4] workgroup
      {body}
    }}""")
    facts = live_at_points(program, lambda s: isinstance(s, (n.Barrier, n.Resume)))
    return [set(facts[number]) for number in sorted(facts)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("let x = 1; let y = 2; grid_sync; a[0] = x", [{"x"}]),
        ("let x = 1; grid_sync; x = 2; a[0] = x", [{"=x"}]),
        ("let x = 1; grid_sync; if a[0] == 1 { x = 2 }; a[0] = x", [{"x", "=x"}]),
        ("let x = 1; grid_sync; if a[0] == 1 { x = 2 } else { x = 3 }; a[0] = x", [{"=x"}]),
        ("let x = 1; grid_sync; grid_sync; a[0] = x", [{"x"}, {"x"}]),
        ("let n = a[3]; for k in 0 .. n { grid_sync }", [{"k", "n"}]),
        ("for k in 0 .. 4 { let t = k; grid_sync; a[k] = t }", [{"k", "t"}]),
        ("let x = 0; for k in 0 .. 4 { a[k] = x; grid_sync; x = k }", [{"k", "=x"}]),
        ("let x = 0; for k in 0 .. 4 { grid_sync; a[k] = x; x = k }", [{"k", "x", "=x"}]),
        ("let x = 0; while x < 3 { x = x + 1; grid_sync }", [{"x", "=x"}]),
        ("let x = 0; for k in 0 .. 4 { grid_sync; if k == 2 { break }; x = 1 }; a[0] = x", [{"k", "x", "=x"}]),
        ("let x = 0; for k in 0 .. 4 { grid_sync; if k == 2 { continue }; x = 1; a[k] = x }", [{"k", "=x"}]),
        ("s[0] = 1; grid_sync; a[0] = s[0]; grid_sync; s[0] = 2", [{"@s"}, set()]),
        ('async_load(a, s, 0, 4, "t"); grid_sync; async_wait("t"); grid_sync', [{"#t"}, set()]),
        ('grid_sync; async_load(a, s, 0, 4, "t"); async_wait("t")', [set()]),
        ("if a[0] == 1 { let x = 1; grid_sync; a[0] = x } else { let y = 1; a[0] = y }; a[1] = 1", [{"x"}]),
    ],
)
def test_what_is_needed(body: str, expected: list[set[str]]) -> None:
    assert live(body) == expected


def test_who_traps_needs_at_the_trap_what_the_resume_needs() -> None:
    body = """
    let x = 1
    grid_sync
    if gid.x == 0 { trap(1, "t") }
    x = 2
    let y = 3
    grid_sync
    resume("t")
    a[0] = x + y
    """
    # Behind the trap x is assigned before it is read, but whoever trapped comes to the resume with the old one.
    assert live(body) == [{"x", "=x"}, {"x", "y"}, {"x", "y"}]


def test_a_thousand_nested_statements_cost_no_recursion() -> None:
    body: tuple[n.Stmt, ...] = (n.Barrier(n.MemoryOrder.GRID_SYNC), n.Store("a", n.lit(0), n.Var("x")))
    for _ in range(3000):
        body = (n.Block(body),)
    program = parse("program p(workgroup 2) { buffer 0 a: u32[4] readwrite; let x = 1 }")
    program = program.with_entry((*program.entry, *body))
    (facts,) = live_at_points(program, lambda s: isinstance(s, n.Barrier)).values()
    assert facts == {"x"}


def test_every_node_that_names_a_buffer_has_an_effect_or_none() -> None:
    assert buffers_read(load("a", 0)) == ("a",)
    assert buffers_written(load("a", 0)) == ()
    assert buffers_written(atomic_load("a", 0)) == ()
    assert (buffers_read(atomic_add("a", 0, 1)), buffers_written(atomic_add("a", 0, 1))) == (("a",), ("a",))
    text = """
    program p(workgroup 2) {
      buffer 0 a: u32[4] readwrite
      buffer 1 b: u32[4] readwrite
      buffer 2 c: u32[4] readwrite
      buffer 3 d: u32[4] readwrite
      buffer 4 e: u32[4] read
      let x = atomic_add(a, b[0], 1)
      copy_bytes(b, c, 0, 0, 4)
      all_gather(e, d, "world")
      let y = len(b)
    }"""
    program = parse(text)
    assert written_buffers(program) == {"a", "c", "d"}
    copy = next(s for s in walk.statements(program.entry) if isinstance(s, n.CopyBytes))
    assert (buffers_read(copy), buffers_written(copy)) == (("b",), ("c",))
