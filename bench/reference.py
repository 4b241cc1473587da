"""How many statement steps a second does the reference interpreter run? Prints a line for each of three programs."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from vyre.ir.buffers import BufferDecl
from vyre.ir.build import assign, barrier, gid, let, lid, load, loop, store, var
from vyre.ir.program import Program
from vyre.reference import run
from vyre.semantics.types import DType

U32 = DType.U32


def arithmetic_loop() -> Program:
    body = [assign("acc", var("acc") * 3 + var("k")), assign("acc", var("acc") ^ (var("acc") >> 7))]
    entry = [let("acc", gid()), loop("k", 0, 2000, body), store("out", gid(), var("acc"))]
    return Program.wrapped([BufferDecl.output("out", 0, U32, 128)], 64, entry, name="arithmetic")


def memory_loop() -> Program:
    body = [
        let("j", (gid() + var("k")) & 127),
        store("out", gid(), load("out", gid()) + load("a", var("j"))),
    ]
    entry = [loop("k", 0, 1500, body)]
    buffers = [BufferDecl.read("a", 0, U32), BufferDecl.output("out", 1, U32, 128)]
    return Program.wrapped(buffers, 64, entry, name="memory")


def barrier_heavy() -> Program:
    body = [
        store("tile", lid(), load("tile", lid()) + 1),
        barrier(),
        assign("acc", var("acc") + load("tile", (lid() + 1) & 63)),
        barrier(),
    ]
    entry = [let("acc", 0), loop("k", 0, 400, body), store("out", gid(), var("acc"))]
    buffers = [BufferDecl.workgroup("tile", U32, 64), BufferDecl.output("out", 0, U32, 128)]
    return Program.wrapped(buffers, 64, entry, name="barriers")


def figures() -> Iterator[tuple[str, float]]:
    """Statement steps a second, for each program."""
    for program in (arithmetic_loop(), memory_loop(), barrier_heavy()):
        inputs = {decl.name: np.arange(128, dtype=np.uint32) for decl in program.input_buffers()}
        best = 0.0
        for _ in range(3):
            start = perf_counter()
            result = run(program, inputs, grid=(2,), checked=True)
            best = max(best, result.steps / (perf_counter() - start))
        yield program.name, best


if __name__ == "__main__":
    for what, rate in figures():
        print(f"{what:12} {rate / 1e6:6.2f} M steps/s")
