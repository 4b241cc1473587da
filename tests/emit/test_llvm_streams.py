"""What is read ahead and what is written past the caches: buffers that a program passes over once, and no others."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from cpu_support import as_if_large, backend, difference, sharing_backend
from vyre.conform.case import Case
from vyre.emit.llvm import emit_kernel
from vyre.emit.llvm.streams import prefetched_loads, streams_of
from vyre.ir import nodes as n
from vyre.ir import parse, print_program, walk
from vyre.ir.program import Program
from vyre.semantics.types import DType

# A body, and the buffers that it reads ahead and writes past the caches.
BODIES = {
    "one pass": ("out[gid.x] = a[gid.x] + b[gid.x]", "a b", "out"),
    "under a condition": ("if b[gid.x] > 2 { out[gid.x] = a[gid.x] }", "a b", "out"),
    "in one way of two": ("if gid.x > 8 { if gid.x > 9 { out[1] = a[1] } } else { c[0] = b[0] }", "a b", "out c"),
    "again and again": ("for k in 0 .. 4 { out[gid.x] = a[k] }; c[gid.x] = b[gid.x]", "b", "c"),
    "as long as": ("let i = 0; while b[i] > 0 { i = i + 1 }; out[gid.x] = a[gid.x] + i", "a", "out"),
    "in two stores": ("out[gid.x] = 0; if a[gid.x] > 1 { out[gid.x] = 1 }", "a", ""),
    "what it reads": ("out[gid.x] = c[gid.x]; c[gid.x] = a[gid.x]", "a", "out"),
    "with atomics": ("out[gid.x] = a[gid.x]; let old = atomic_add(c, 0, 1)", "a", ""),
    "memory of a workgroup": ("tile[lid.x] = a[gid.x]; barrier; out[gid.x] = tile[7 - lid.x]", "a", "out"),
    "in a loop with barriers": (
        "for k in 0 .. 4 { tile[lid.x] = a[k * 8 + lid.x]; barrier; out[gid.x] = tile[7 - lid.x]; barrier }", "", "",
    ),
}  # fmt: skip
STENCIL = parse("""
program stencil(workgroup 64) {
  buffer 0 now: f32[] read
  buffer 1 next: f32[] output
  let at = gid.y * 1024 + gid.x
  next[at] = now[at] + now[at - 1] + now[at + 1] + now[at - 1024] + now[1024 + at] + now[gid.x]
}""")
# The indices of what is read, and which of them come first to a place that is not where the others are.
READ = {
    "one place": ("at", ""),
    "one place and its neighbours": ("at|at - 1|at + 900", ""),
    "two rows": ("at|at + 1024", "at + 1024"),
    "rows above": ("at - 2048|at - 1024|at|at + 1", "at + 1"),
    "rows around the end": ("at + 4294966272|at", "at"),
    "two places that may be anywhere": ("at|gid.x", ""),
    "rows of any length": ("at|at + 1|at + width|at - width", "at + 1|at + width|at - width"),
}


STORES = {
    "all": "y[gid.x] = x[gid.x]",
    "some": "if x[gid.x] % 3 != 1TYPE { y[gid.x] = x[gid.x] }",
    "those that are left": "if x[gid.x] % 5 == 1TYPE { return }; y[gid.x] = x[gid.x]",
    "those below a limit": "if gid.x < 37 { y[gid.x] = x[gid.x + 1] }",
    "further on": "y[gid.x + 16] = x[gid.x + 3]",
    "beside lines": "y[gid.x + 3] = x[gid.x + 16]",
    "around the end": "y[gid.x - 16] = x[gid.x - 5]",
    "a part of a row": "if gid.x % 32 < 23 { y[gid.x] = x[gid.x] }",
}


def program_of(body: str) -> Program:
    return parse(f"""
    program passing(workgroup 8) {{
      buffer 0 a: u32[] read
      buffer 1 b: u32[] read
      buffer 2 c: u32[64] readwrite
      buffer 3 out: u32[] output
      buffer 4 tile: u32[8] workgroup
      {body}
    }}""")


@pytest.mark.parametrize("name", BODIES)
def test_buffers_that_are_passed_over_once_are_found(name: str) -> None:
    body, read, written = BODIES[name]
    streams = streams_of(program_of(body))
    assert (set(read.split()), set(written.split())) == (streams.read, streams.written)


@pytest.mark.parametrize("name", READ)
def test_of_loads_of_a_place_the_first_to_come_is_ahead(name: str) -> None:
    given, expected = (part.split("|") if part else [] for part in READ[name])
    loads = " + ".join(f"now[{index}]" for index in given)
    program = parse(f"""
    program reading(workgroup 64) {{
      buffer 0 now: f32[] read
      buffer 1 next: f32[] output
      let width = len(next)
      let at = gid.y * 1024 + gid.x
      next[at] = {loads}
    }}""")
    found = [node for node in walk.expressions(program.entry) if isinstance(node, n.Load)]
    ahead = prefetched_loads(program, frozenset(("now",)))
    assert [given[number] for number, load in enumerate(found) if id(load) in ahead] == expected
    assert prefetched_loads(program, frozenset()) == frozenset()


@pytest.mark.parametrize(("width", "whole"), [(16, 64), (8, 32)])
def test_the_code_says_so_once_for_each(width: int, whole: int) -> None:
    text = emit_kernel(STENCIL, width, flat=False).text
    assert text.count("call void @llvm.prefetch") == 2
    assert text.count(f"align {whole}, !nontemporal !1") == 1


def test_every_line_of_long_elements_is_read_ahead() -> None:
    longer = parse(print_program(STENCIL).replace("f32", "f64"))
    assert emit_kernel(longer, 16, flat=False).text.count("call void @llvm.prefetch") == 4


@pytest.mark.parametrize("width", [1, 4])
def test_short_vectors_are_left_alone(width: int) -> None:
    text = emit_kernel(STENCIL, width, flat=False).text
    assert "prefetch" not in text
    assert "!nontemporal" not in text


@pytest.mark.parametrize("name", STORES)
def test_stores_past_the_caches_write_what_they_should(name: str) -> None:
    with as_if_large():
        for dtype, count in product((DType.F32, DType.U32, DType.U16, DType.U8, DType.F64), ("", "64")):
            program = parse(f"""
            program storing(workgroup 8) {{
              buffer 0 x: {dtype.label}[] read
              buffer 1 y: {dtype.label}[{count}] readwrite
              {STORES[name].replace("TYPE", dtype.label)}
            }}""")
            for length, elements in ((64, 64), (33, 70)):
                inputs = {"x": np.arange(length), "y": np.full(64, 99)}
                case = Case(program, {k: v.astype(dtype.storage) for k, v in inputs.items()}, elements=elements)
                for on in (backend(16), backend(8, check_elimination=False), sharing_backend(2, 16)):
                    assert difference(case, on, optimize=length == 64) is None, (dtype, count, length)


def test_the_rest_of_a_range_is_not_written_twice_over() -> None:
    copy = parse("program copy(workgroup 64) { buffer 0 a: f32[] read\nbuffer 1 b: f32[] output\nb[gid.x] = a[gid.x] }")
    text = emit_kernel(copy, 16, flat=True).text
    assert text.count("!nontemporal !1") == 1
