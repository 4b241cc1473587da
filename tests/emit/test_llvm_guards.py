"""Guards that send invocations away: vectors below their limit run without masks, and every byte is the same."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_support import backend, difference, sharing_backend
from vyre.conform.case import Case
from vyre.ir import parse

HEAD = """
program guarded(workgroup 8) {
  buffer 0 x: u32[] read
  buffer 1 most: u32[1] read
  buffer 2 out: u32[64] readwrite
  buffer 3 count: u32[1] readwrite
"""
BODIES = {
    "lets in": "if gid.x < len(x) { out[gid.x] = x[gid.x] + 1 }",
    "from the right": "let n = len(x); let i = gid.x; if n > i { out[i] = x[i] }",
    "by names of names": "let i = gid.x; let j = i; let here = j < most[0]; let also = here; if also { out[j] = 3 }",
    "by a value": "if gid.x < most[0] { out[gid.x] = gid.x * 3 + 1 }",
    "by a literal": "if gid.x < 19 { out[gid.x] = 5 }",
    "sends away": "if gid.x >= len(x) { return }; out[gid.x] = x[gid.x]; let old = atomic_add(count, 0, 1)",
    "sends away from the right": "if most[0] <= gid.x { return }; out[gid.x] = 7",
    "two ways": "if gid.x < most[0] { out[gid.x] = 1 } else { out[gid.x] = 2 + gid.x }",
    "goes on behind": "if gid.x < most[0] { out[gid.x] = 1 }; let old = atomic_add(count, 0, gid.x)",
    "leaves within": """
        let v = 3
        if gid.x < most[0] { if x[gid.x] % 2 == 0 { return }; v = x[gid.x]; out[gid.x] = v }
        out[gid.x] = v + 1
    """,
    "loops within": """
        if gid.x < len(x) {
          let n = x[gid.x]
          let steps = 0
          while n > 1 { if n % 2 == 0 { n = n / 2 } else { if steps > 4 { break }; n = n * 3 + 1 }; steps = steps + 1 }
          out[gid.x] = steps
        }
    """,
}
NO_GUARDS = {
    "of a buffer that is written": "if gid.x < out[0] { out[gid.x + 1] = 0 }",
    "of a variable that changes": "let n = 9; n = most[0]; if gid.x < n { out[gid.x] = 1 }",
    "behind an effect": "out[gid.x] = 1; if gid.x < len(x) { out[gid.x] = 2 }",
    "of another axis": "if gid.y < len(x) { out[gid.x] = 2 }",
    "the wrong way": "if gid.x > len(x) { out[gid.x] = 2 }",
}


def case(body: str, length: int, most: int, elements: int) -> Case:
    program = parse(HEAD + body + "}")
    inputs = {
        "x": np.arange(1, length + 1, dtype=np.uint32),
        "most": np.array([most], np.uint32),
        "out": np.full(64, 77, np.uint32),
        "count": np.array([5], np.uint32),
    }
    return Case(program, inputs, elements=elements)


@pytest.mark.parametrize("name", [*BODIES, *NO_GUARDS])
def test_every_guard_gives_the_bytes_of_the_reference(name: str) -> None:
    body = {**BODIES, **NO_GUARDS}[name]
    for length, most, elements in ((0, 0, 40), (1, 16, 40), (15, 17, 48), (16, 33, 64), (33, 200, 33), (64, 1, 1)):
        for on in (backend(4), backend(16), backend(16, check_elimination=False), sharing_backend(2, 8)):
            assert difference(case(body, length, most, elements), on) is None, (length, most, elements)
