"""Programs that optimizers often get wrong, executed before and after."""

from __future__ import annotations

import numpy as np
import pytest

import vyre
from vyre import reference
from vyre.driver.optimizing import optimize
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.program import Program

HEADER = """program o(workgroup 1) {
  buffer 0 given: u32[8] read
  buffer 1 out: u32[8] output
  buffer 2 rw: u32[8] readwrite
  buffer 3 f: f32[8] read
  buffer 4 g: f32[8] output
  buffer 0 tile: u32[8] workgroup
"""
INPUTS = {
    "given": np.array([3, 7, 0, 1, 0xFFFFFFFF, 5, 9, 2], np.uint32),
    "rw": np.arange(8, dtype=np.uint32),
    "f": np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, 1e-40, 3e38], np.float32),
}

CASES = {
    "O1": "let x = given[0]\n out[0] = (5 + x) - x",
    "O2": "let p = given[0]\n let q = given[1]\n out[0] = (p * q + 0) - p * q",
    "O3": "let y = i32(given[0])\n out[0] = u32(~(~(~(-y))))",
    "O4": "let a = rw[0]\n rw[0] = 5\n let b = rw[0]\n out[0] = b\n out[1] = a",
    "O5": "let x = given[0]\n rw[0] = x + 7\n rw[1] = x + 7",
    "O6": "let acc = given[0]\n for i in 0 .. given[1] { let t = acc + 1; acc = t }\n out[0] = acc",
    "O7": "let x = 0\n if given[2] == 0 { x = 1 }\n out[0] = x",
    "O8": "let acc = 0\n for i in 0 .. given[1] { acc = acc + i }\n out[0] = acc",
    "O9": "let x = given[0]\n x = given[1]\n out[0] = x",
    "O10": "block { let t = given[0]; out[0] = t + t }\n block { let t = given[1]; out[1] = t * t }\n"
    "for k in 0 .. 2 { let t = given[k]; out[2] = t }",
    "O11": "let k = 0\n while k < 8 { let x = f[k]; g[k] = (x * 0.0) + select(x == x, x - x, 7.0)\n"
    "out[k] = bitcast(u32, x + 0.0) ^ bitcast(u32, (x + 1.0) - 1.0)\n k = k + 1 }",
    "O13": "let old = atomic_add(rw, 0, u32(u8(given[4])))\n out[0] = old + u32(i8(given[4]))",
    "O14": "tile[0] = 1\n let a = tile[0]\n barrier\n tile[0] = 2\n barrier\n let b = tile[0]\n"
    "let c = rw[3]\n let t = atomic_add(rw, 3, 4)\n let d = rw[3]\n"
    'async_load(given, rw, 0, 16, "t")\n let e = rw[0]\n async_wait("t")\n let h = rw[0]\n'
    "out[0] = a + 10 * b\n out[1] = c\n out[2] = d\n out[3] = e\n out[4] = h",
    "O15": "let unused = atomic_add(rw, 0, 1)\n let more = atomic_add(rw, 0, 1)",
    # The first round exposes work for the next one.
    "a loop that never runs, alone in its list": 'if given[0] == 3 { region "r" { while false {} } }',
    "an unreachable store": "for k in 0 .. 2 { out[k] = rw[given[0]] * 3 }\n"
    "for k in 0 .. given[2] { return\n rw[3] = 1 }\n out[2] = rw[given[0]] * 3",
    "a cell that holds an id": "out[0] = num_wg.x\n let v = num_wg.x\n"
    "for k in 0 .. 2 { if v == 1 { v = v + k }; out[1] = num_wg.x + v }",
}


def program(body: str) -> Program:
    return parse(HEADER + body + "\n}\n")


@pytest.mark.parametrize("name", CASES)
def test_the_optimized_program_gives_the_same_bytes(name: str) -> None:
    original = program(CASES[name])
    optimized = optimize(original)
    assert vyre.check(optimized).errors == vyre.check(original).errors == ()
    before, after = (reference.run(p, INPUTS).outputs for p in (original, optimized))
    for buffer, wanted in before.items():
        assert after[buffer].tobytes() == wanted.tobytes(), f"{buffer}:\n{optimized}"
    assert optimize(optimized) == optimized


def test_constants_are_folded() -> None:
    def values(body: str) -> list[int]:
        statements = walk.statements(optimize(program(body)).entry)
        return [s.value.bits for s in statements if isinstance(s, n.Store) and isinstance(s.value, n.Lit)]

    assert values(CASES["O1"]) == [5]
    assert values(CASES["O2"]) == [0]
    assert values("if 1 < 2 { out[0] = 3 * 4 } else { out[1] = 1 }\n for k in 5 .. 5 { out[2] = 1 }") == [12]


def test_values_with_equal_hashes_stay_distinct() -> None:
    """Thousands of different values in one hash table."""
    body = "\n".join(f"rw[{k & 7}] = rw[{k & 7}] ^ (given[{k % 8}] * {2 * k + 1} + {k * 977})" for k in range(400))
    original = program(body)
    before, after = (reference.run(p, INPUTS).outputs["rw"] for p in (original, optimize(original)))
    assert before.tobytes() == after.tobytes()


def test_invariant_values_leave_their_loop() -> None:
    optimized = optimize(program("for k in 0 .. given[1] { out[k] = given[0] * 17 + k }"))
    (loop,) = (s for s in optimized.entry if isinstance(s, n.Loop))
    assert not any(isinstance(e, n.Load) for e in walk.expressions(loop.body))


SYNCHRONIZATIONS = {
    "barrier": "barrier",
    "ordered atomic": "let old = atomic_add(rw, 0, 1, acq_rel)",
    "transfer": 'async_load(given, rw, 0, 16, "t")\n async_wait("t")',
    "barriers of a loop": "for k in 0 .. 2 { barrier }",
}


@pytest.mark.parametrize("synchronization", SYNCHRONIZATIONS)
def test_read_only_buffers_are_loaded_once_across_synchronization(synchronization: str) -> None:
    def loads(buffer: str) -> int:
        body = f"out[0] = {buffer}[1]\n rw[0] = 1\n {SYNCHRONIZATIONS[synchronization]}\n out[1] = {buffer}[1]"
        optimized = optimize(program(body))
        return sum(isinstance(e, n.Load) and e.buffer == buffer for e in walk.expressions(optimized.entry))

    assert (loads("given"), loads("rw")) == (1, 2)


def test_an_optimal_program_is_unchanged() -> None:
    text = """let i = gid.x
    if i < len(out) { out[i] = given[i] * 3 }
    let acc = 0
    for k in 0 .. 8 { acc = acc + given[k] }
    rw[0] = acc"""
    original = program(text)
    assert optimize(original) == original, str(optimize(original))
