"""Search loops in every form: masks as words give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_support import backend, difference, sharing_backend
from vyre.analyze.shapes import Layout, Shapes
from vyre.conform.case import Case
from vyre.emit.llvm.masks import searches_of
from vyre.ir import parse

HEAD = """
program search(workgroup 8) {
  buffer 0 x: u32[64] read
  buffer 1 out: u32[64] output
  buffer 2 also: u32[64] output
  let n = x[gid.x]
  let found = false
  let other = gid.x % 3 == 0
"""
TAIL = """
  out[gid.x] = u32(found)
  also[gid.x] = u32(other) + 2 * u32(found & other) + 4 * u32(found ^ other)
}
"""
SEARCHES = {
    "a while": "let d = 2; found = n > 1; while found & d * d <= n { if n % d == 0 { found = false }; d = d + 1 }",
    "linear limits": "let d = 0; while d <= gid.x { if n == d { found = true }; d = d + 1 }",
    "limits below": "let d = 40; while gid.x < d & !found { if n >= d { found = true }; d = d - 1 }",
    "limits above": "let d = 60; while d > gid.x { other = other ^ (n > d); d = d - 3 }",
    "from above": "let d = 30; while gid.x > d { other = !other; d = d + 1 }",
    "from above, or there": "let d = 30; while gid.x >= d { other = !other; d = d + 1 }",
    "equal limits": "let d = 0; while d < 70 { if d >= gid.x { break }; found = !found; d = d + 2 }",
    "the greatest number": "let d = 4294967295; while gid.x > d | d > 4294967290 { found = n < d; d = d - 1 }",
    "a break": "for i in 0..50 { if n == i * i { found = true; break }; if gid.x == i { other = !other } }",
    "a continue": "for i in 0..20 { if (n ^ i) % 4 == 1 { continue }; found = select(n > i, !found, found) }",
    "both sides": "for i in 0..n { if i % 2 == 0 { found = !found } else { other = found }; if i > 9 { break } }",
}
OTHERS = {
    "a count": "let c = 0; while c < n { c = c + 3; found = !found }; also[gid.x] = c",
    "a load": "let d = 0; while x[(gid.x + d) % 64] < n & d < 9 { found = true; d = d + 1 }",
    "a store": "for i in 0..n { if i > 3 { break }; out[gid.x] = i; found = true }",
}


def program_of(body: str) -> str:
    return HEAD + body + TAIL


def case(body: str) -> Case:
    given = np.random.default_rng(len(body)).integers(0, 90, 64).astype(np.uint32)
    return Case(parse(program_of(body)), {"x": given}, elements=61)


@pytest.mark.parametrize("name", [*SEARCHES, *OTHERS])
def test_searches_give_the_bytes_of_the_reference(name: str) -> None:
    body = {**SEARCHES, **OTHERS}[name]
    for on in (backend(4), backend(8), backend(16), sharing_backend(2, 16)):
        assert difference(case(body), on) is None, on


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_are_recognised(name: str) -> None:
    program = parse(program_of(SEARCHES[name]))
    found = searches_of(program, Shapes(program, Layout(program.workgroup_size, 16, flat=True)))
    assert len(found.loops) == 1
    assert found.variables <= {"found", "other"}


@pytest.mark.parametrize("name", OTHERS)
def test_loops_that_do_more_are_none(name: str) -> None:
    program = parse(program_of(OTHERS[name]))
    assert not searches_of(program, Shapes(program, Layout(program.workgroup_size, 16, flat=True))).loops
