"""Two vectors are interleaved where that pays, nowhere else, and give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_support import backend, difference, sharing_backend
from vyre.conform.case import Case
from vyre.emit.llvm import emit_kernel
from vyre.ir import parse

HEAD = """
  buffer 0 x: u32[99] read
  buffer 1 out: u32[99] output
  buffer 2 more: u32[99] output
  let n = x[gid.x]
  let count = 0
"""
# Invocations next to one another, each with a few cells side by side: nearly all is done once for all lanes.
COMMON = """
  let half = len(x) / 2
  let at = half * (1 + len(out) % 3) + gid.x
  let other = (half + 3) * (len(out) + 5 - half) + gid.x
  let third = (len(x) ^ half) * (half | 9) % len(x) + gid.x
  count = x[at] + x[other] + x[third]
  more[(half & len(x) + 4) * (half + 2) % 50 * half % 60 + gid.x] = n
"""
ABREAST = {
    "mostly common": COMMON,
    "a while": "while n > 1 { n = select(n % 2 == 0, n / 2, n * 3 + 1); count = count + 1 }",
    "a break": "for i in 0..100 { if i * i > n { break }; count = count + i }",
    "a continue": "for i in 0..n { if (n ^ i) % 3 == 0 { continue }; count = count + i }",
    "a search": "let d = 2; let odd = n > 1; while odd & d * d <= n { if n % d == 0 { odd = false }; d = d + 1 }; "
    "count = u32(odd)",
    "floats": "let y = 0.5; while y < f32(n) & count < 40 { y = y * 1.5; count = count + 1 }",
    "a loop in a loop": "for i in 0..n { for k in 0..i { if k * i > n { break }; count = count + 1 } }",
}
OTHERS = {
    "mostly common, with a gather": COMMON + "count = x[n]",
    "mostly common, with a scatter": COMMON.replace("more[", "out[99 + ") + "more[n] = 4",
    "mostly common, with an atomic": COMMON.replace("more[", "out[99 + ") + "let old = atomic_add(more, 0, n)",
    "mostly common, with a function": COMMON + "count = u32(exp(f32(n)))",
    "mostly common, but not all": COMMON + "count = count + n; n = count * n; " * 8,
    "no loop": "count = n * 3",
    "all leave together": "for i in 0..9 { count = count + (n ^ i) }",
    "a return": "for i in 0..9 { if n == i { return }; count = count + n }",
    "a load": "while x[count] != n & count < 99 { count = count + 1 }",
    "a store": "for i in 0..n { if i > 3 { break }; out[gid.x] = i }",
    "longer numbers": "let y = u64(n); while y < 1000u64 { y = y * 3u64 + 1u64; count = count + 1 }",
    "a math function": "let y = 1.0; while y < f32(n) { y = y + exp(y); count = count + 1 }",
    "long": "while count < n { count = count + 1; " + "n = (n ^ count) + 1; " * 20 + "n = n % 50 }",
}


def text(body: str, workgroup: str = "7") -> str:
    return f"program loops(workgroup {workgroup}) {{ {HEAD} {body}; out[gid.x] = count }}"


@pytest.mark.parametrize("name", [*ABREAST, *OTHERS])
def test_the_same_bytes(name: str) -> None:
    given = np.random.default_rng(len(name)).integers(0, 90, 99).astype(np.uint32)
    for workgroup in ("7", "64"):
        case = Case(parse(text({**ABREAST, **OTHERS}[name], workgroup)), {"x": given}, elements=99)
        for on in (backend(8), backend(16), sharing_backend(2, 16)):
            assert difference(case, on) is None, (on, workgroup)


@pytest.mark.parametrize("name", [*ABREAST, *OTHERS])
def test_who_is_for_twice_the_lanes(name: str) -> None:
    program = parse(text({**ABREAST, **OTHERS}[name]))
    assert emit_kernel(program, 16, flat=True).width == (32 if name in ABREAST else 16)
    assert emit_kernel(program, 8, flat=True).width == 8


def test_a_workgroup_is_for_twice_the_lanes_if_it_has_so_many() -> None:
    body = ABREAST["a while"]
    assert [emit_kernel(parse(text(body, size)), 16, flat=False).width for size in ("64", "16", "48")] == [32, 16, 16]


def test_subgroups_have_the_lanes_that_the_program_says() -> None:
    program = parse(text("count = subgroup_reduce(add, n); while count > n { count = count / 2 }", "64"))
    assert emit_kernel(program, 16, flat=False).width == program.subgroup_size
