"""Lanes along any axis of the grid: every shape of workgroup and grid gives the bytes of the reference."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from cpu_support import as_if_large, backend, difference, sharing_backend
from vyre.analyze.workgroup_independence import fastest_axis, is_workgroup_independent
from vyre.backends.cpu.compile import this_machine
from vyre.backends.cpu.kernels import SCALAR, WIDTHS
from vyre.conform.case import Case
from vyre.driver import DispatchConfig
from vyre.emit.llvm import emit_kernel
from vyre.ir import Program, parse

HEAD = """
program laid(workgroup {x}, {y}, {z}) {{
  buffer 0 a:    f32[] read
  buffer 1 k:    u32[8] read
  buffer 2 b:    f32[] readwrite
  buffer 3 n:    u32[] readwrite
  buffer 4 d:    f64[40] readwrite
  buffer 5 s:    u16[] readwrite
"""
# p is the id along the lanes' axis, q and r are the others; k holds the sizes w, h and small numbers.
IDS = {
    "x": "let p = gid.x; let q = gid.y; let r = gid.z",
    "y": "let p = gid.y; let q = gid.x; let r = gid.z",
    "z": "let p = gid.z; let q = gid.y; let r = gid.x",
}
PLACE = "let w = k[0]; let h = k[1]; let at = (r * h + q) * w + p"
INSIDE = "p < w & q < h & r < k[2]"
BODIES = {
    "copy": f"if {INSIDE} {{ b[at] = a[at] }}",
    "by check": f"""
      let inside = {INSIDE}
      if r == 0 & q == 0 {{ b[p] = select(inside, a[p], 0.0) }}
      if inside {{ n[at] = p * 3 + q }}""",
    "out of bounds": "if r == 0 & q == 0 { n[at] = n[at] + at; s[at] = u16(p); b[at - 5] = a[at + 3] }",
    "stencil": """
      if q > 0 & q < h - 1 & p > 0 & p < w - 1 & r < k[2] {
        if p < w & q < h { b[at] = a[at] + (select(p - 1 < w & q < h, a[at - 1], 0.0) + a[at + 1]) + a[at + w] }
      }""",
    "halo of zeros": f"""
      if {INSIDE} {{
        let above = select(q - 1 < h & p < w, a[at - w], 0.0)
        b[at] = above + select(q < h & p + 1 < w, a[at + 1], 0.0) + select(q < h & p - 1 < w, a[at - 1], 0.0)
      }}""",
    "radius": "let e = k[3]; if p >= e & p < w - e & q < h { b[at] = a[at - e] + a[at + e] }",
    "clamped": f"""
      if {INSIDE} {{
        let left = max(p, 1) - 1; let right = min(p + 1, w - 1); let row = (r * h + q) * w
        b[at] = a[row + left] + a[row + right] + a[row + sat_sub(p, 2)]
      }}""",
    "clamped signed": f"""
      let i = i32(p); let row = (r * h + q) * w
      let left = u32(max(min(i - i32(2), i32(w) - i32(1)), i32(0)))
      let right = u32(min(max(i + i32(3), i32(0)), i32(w) - i32(1)))
      if {INSIDE} {{ b[at] = a[row + left] + a[row + right] }}""",
    "around": f"""
      let row = (r * h + q) * w
      if {INSIDE} {{ b[at] = a[row + (p + 1) % w] + a[row + (p + w - 1) % w] + a[row + (p + k[3]) % w] }}
      if {INSIDE} {{ n[at] = (p + 5) / k[1] }}""",
    "around with conditions": f"""
      let row = (r * h + q) * w
      if {INSIDE} {{ b[at] = a[row + select(p == 0, w - 1, p - 1)] + a[row + select(p == w - 1, 0, p + 1)] }}""",
    "long integers": f"""
      let i = i64(p) - i64(1); let u = u64(p) + u64(k[3])
      if {INSIDE} & i >= i64(0) {{ b[at] = a[(r * h + q) * w + u32(i)] }}
      if {INSIDE} & u < u64(w) {{ d[at % 40] = 3.0; n[at] = k[u32(u)] + 1 }}
      if {INSIDE} & u - u64(2) <= u64(k[4]) {{ s[at] = u16(q) }}""",
    "two sides": f"""
      if {INSIDE} {{
        if p < k[3] {{ b[at] = 1.5 }} else {{ if p >= w - 2 {{ b[at] = a[at] }} else {{ n[at] = p }} }}
      }}""",
    "returns": """
      if q >= h { return }
      if p >= w | r >= k[2] { return }
      if a[at] < 0.0 { n[at] = 9; return }
      b[at] = a[at] * 2.0""",
    "by data": f"""
      if {INSIDE} & a[at] > 0.25 {{ b[at] = a[at]; d[at % 40] = 1.0 }}
      if {INSIDE} & n[at] % 3 == 1 {{ n[at] = 5 }}""",
    "loops": f"""
      let sum = 0.0; let last = p
      if {INSIDE} {{
        for i in 0 .. k[3] {{ sum = sum + a[at + i] * a[(r * h + q) * w + i] }}
        while last > 2 {{ last = last / 2; if last == 7 {{ break }}; if last % 2 == 0 {{ continue }}; sum = sum + 1.0 }}
        b[at] = sum; n[at] = last
      }}""",
    "counts": f"""
      if {INSIDE} {{
        let one = atomic_add(n, at % 7, 1); let two = atomic_max(n, q % 5 + 7, p); let three = atomic_xor(n, 12, at)
        let four = atomic_and(n, at + 13, 4294967293 - q % 2)
      }}""",
    "halves": f"if {INSIDE} {{ s[at] = s[at] + u16(at) }}",
    "far indices": """
      if q == 0 & r == 0 {
        b[p + 4294967290] = 1.0; n[p + 4294967280] = k[p + 4294967291] + 1; d[p - 50] = d[p - 50] + 1.0
      }""",
    "uniform rows": """
      if q < h { if r * 2 < k[2] { if p < w { n[at] = h - q }; if p == 3 { b[q * w] = 2.0 } } }""",
    "swapped": f"if {INSIDE} & r == 0 {{ b[p * h + q] = a[at] }}",
}
# Programs whose invocations see the order or the workgroup: only along x, and only in workgroups of one axis.
ORDERED = {
    "old values": f"if {INSIDE} {{ let old = atomic_add(n, at % 7, p); n[at % 7 + 8] = old }}",
    "floats": f"if {INSIDE} {{ let old = atomic_add(b, at % 7, a[at]) }}",
    "exchanges": f"if {INSIDE} {{ let old = atomic_exchange(n, 3, at) }}",
    "local ids": f"if {INSIDE} {{ n[at] = lid.x + lid.y * 8 + wg.x * 64 + wg.y * 512 + lid.z + wg.z }}",
}
SIZES = (1, 2, 3, 4, 5, 8, 16, 20, 33)


def program_of(body: str, axis: str, size: tuple[int, int, int]) -> Program:
    x, y, z = size
    return parse(HEAD.format(x=x, y=y, z=z) + f"{IDS[axis]}\n{PLACE}\n{body}\n}}")


def case(program: Program, axis: str, random: Random, *, axes: int) -> Case:
    """A grid that covers a block of memory not exactly: up to a workgroup more along each axis, or less."""
    numbers = np.random.default_rng(random.randrange(1 << 30))
    order = {"x": (0, 1, 2), "y": (1, 0, 2), "z": (2, 1, 0)}[axis]
    counts = [random.choice((1, 2, 7, 15, 16, 17, 31, 40, 70)), random.choice((1, 2, 3, 5)), random.choice((1, 2, 3))]
    counts[axes:] = [1] * (3 - axes)
    if axis != "x" and axes == 1:
        counts = [1, counts[0], 1]
    grid = [0, 0, 0]
    for count, at in zip(counts, order, strict=True):
        grid[at] = max(1, -(-count // program.workgroup_size[at]) + random.choice((0, 0, 0, 1, -1)))
    w, h, depth = counts
    elements = max(1, w * h * depth + random.choice((0, 0, 5, -3)))
    inputs = {
        "a": (numbers.random(elements) - 0.3).astype(np.float32),
        "k": np.array([w, h, depth, random.choice((0, 1, 2, 5)), random.choice((1, 30)), 0, 0, 0], np.uint32),
        "b": numbers.random(max(1, elements + random.choice((0, 0, 9, -2)))).astype(np.float32),
        "n": numbers.integers(0, 50, elements + random.choice((0, 16))).astype(np.uint32),
        "d": np.zeros(40),
        "s": numbers.integers(0, 50, elements).astype(np.uint16),
    }
    return Case(program, inputs, grid=(grid[0], grid[1], grid[2]))


def shape(random: Random, axes: int) -> tuple[int, int, int]:
    sizes = [random.choice(SIZES) for _ in range(axes)] + [1] * (3 - axes)
    while np.prod(sizes) > 256:
        sizes[sizes.index(max(sizes))] = 2
    return sizes[0], sizes[1], sizes[2]


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("name", [*BODIES, *ORDERED])
def test_every_shape_gives_the_bytes_of_the_reference(name: str, axes: int) -> None:
    random = Random(f"{name} {axes}")
    for round_ in range(2):
        for axis in IDS:
            program = program_of({**BODIES, **ORDERED}[name], axis, shape(random, axes))
            given = case(program, axis, random, axes=axes)
            for width in (SCALAR, *WIDTHS):
                with as_if_large(round_ == 1):
                    found = difference(given, backend(width, 1, width != 8 or round_ != 1))
                    assert found is None, f"{given.grid} of\n{program}\nwith {width} lanes: {found}"
            if name not in ORDERED or name == "local ids":
                found = difference(given, sharing_backend(2, 8))
                assert found is None, f"{given.grid} of\n{program}\nshared: {found}"


@pytest.mark.parametrize("axis", IDS)
@pytest.mark.parametrize("name", ["copy", "stencil", "clamped", "around", "long integers"])
def test_lanes_lie_along_the_axis_on_which_accesses_are_consecutive(name: str, axis: str) -> None:
    program = program_of(BODIES[name], axis, (4, 4, 2))
    assert is_workgroup_independent(program)
    assert fastest_axis(program) == "xyz".index(axis)


@pytest.mark.parametrize("name", ORDERED)
def test_programs_that_see_the_order_of_invocations_are_not_reordered(name: str) -> None:
    assert not is_workgroup_independent(program_of(ORDERED[name], "x", (4, 4, 1)))
    in_order = program_of(ORDERED[name], "y", (16, 1, 1))
    assert is_workgroup_independent(in_order)
    assert fastest_axis(in_order) == 0


@pytest.mark.parametrize("name", ["stencil", "halo of zeros", "clamped", "clamped signed", "around", "radius"])
def test_the_interior_of_a_row_has_no_gathers_and_no_checks(name: str) -> None:
    notes = emit_kernel(program_of(BODIES[name], "x", (8, 8, 1)), 16, flat=True).notes
    assert notes["gathers"] == notes["checks kept"] == notes["masked branches"] == 0
    assert notes["linear stores"] >= 1


HEAVY = """
program heavy(workgroup 16) {
  buffer 0 x: u32[] read
  buffer 1 out: u32[] output
  let sum = 0
  for k in 0 .. len(x) / 64 { sum = sum + x[gid.x * 64 + k] }
  out[gid.x] = sum
}"""


@pytest.mark.parametrize(("invocations", "is_scalar"), [(16, True), (64, True), (4096, False)])
def test_few_heavy_invocations_are_shared_one_lane_each(invocations: int, is_scalar: bool) -> None:
    program, on = parse(HEAVY), backend(None, 4)
    width = on.kernel(program, (invocations // 16, 1, 1)).kernel.width
    # Narrower vectors lose less by gathers.
    assert (width == SCALAR) is is_scalar or this_machine().width < max(WIDTHS)
    data = np.arange(4096, dtype=np.uint32)
    assert difference(Case(program, {"x": data}, elements=invocations), on) is None


def test_explain_tells_the_axis_of_the_lanes() -> None:
    text = backend(16).compile(program_of(BODIES["stencil"], "y", (8, 8, 1))).explain()
    assert "over rows of the grid along y" in text
    together = parse("program p(workgroup 8) { buffer 0 a: u32[] output; barrier; a[gid.x] = 1 }")
    assert "over workgroups" in backend(16).compile(together, DispatchConfig(optimize=False)).explain()
