"""What the checker accepts never meets a barrier apart: random programs with barriers anywhere, executed."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest

from vyre.checker import check
from vyre.errors import DispatchFailed
from vyre.ir import Program, build, walk
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.reference import run, seeded
from vyre.semantics.types import DType

_BUFFERS = (
    BufferDecl.read_write("a", 0, DType.U32, 4),
    BufferDecl.read("b", 1, DType.U32, 4),
    BufferDecl.read_write("c", 2, DType.U32, 4),
    BufferDecl.workgroup("s", DType.U32, 4),
)
_VARIABLES = ("x", "y", "z")


class _Writer:
    """Writes random programs in which conditions mostly come from variables, and little diverges by itself."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.loops = 0
        self.counter = 0
        self.divergence = self.random.choice((0.03, 0.08, 0.15))
        self.buffers = self.random.choice(("bbb", "bba", "acs"))

    def leaf(self) -> n.Expr:
        choice = self.random.random()
        if choice < self.divergence:
            return n.LocalId(0) if self.random.random() < 0.7 else n.WorkgroupId(0)
        if choice < 0.6:
            return n.Var(self.random.choice(_VARIABLES))
        if choice < 0.8:
            return n.lit(self.random.randrange(2))
        return build.load(self.random.choice(self.buffers), n.lit(self.random.randrange(4)))

    def condition(self) -> n.Expr:
        return n.BinOp(self.random.choice(("eq", "ne")), n.Var(self.random.choice(_VARIABLES)) & 1, n.lit(0))

    def assignment(self) -> n.Stmt:
        value = self.leaf() if self.random.random() < 0.6 else self.leaf() + 1
        return build.assign(self.random.choice(_VARIABLES), value)

    def body(self, depth: int) -> list[n.Stmt]:
        return [part for _ in range(self.random.randint(1, 4)) for part in self.statement(depth)]

    def statement(self, depth: int) -> list[n.Stmt]:
        choice = self.random.random()
        if choice < 0.3 or depth > 3:
            return [self.assignment()]
        if choice < 0.36:
            buffer = self.random.choice("acs")
            return [build.store(buffer, self.random.choice((n.LocalId(0), n.lit(1))), self.leaf())]
        if choice < 0.42:
            return [self.barrier()]
        if choice < 0.58:
            return [build.if_(self.condition(), [self.barrier()])]
        if choice < 0.72:
            otherwise = self.body(depth + 1) if self.random.random() < 0.5 else ()
            return [build.if_(self.condition(), self.body(depth + 1), otherwise)]
        if choice < 0.86:
            return self.loop(depth)
        jump = self.random.choice((build.break_(), build.continue_())) if self.loops else build.return_()
        if self.random.random() < 0.1:
            jump = build.return_()
        before = [self.assignment()] if self.random.random() < 0.5 else []
        return [build.if_(self.condition(), [*before, jump])]

    def barrier(self) -> n.Stmt:
        return build.barrier() if self.random.random() < 0.7 else build.grid_sync()

    def loop(self, depth: int) -> list[n.Stmt]:
        self.counter += 1
        name = f"k{self.counter}"
        self.loops += 1
        inner = self.body(depth + 1)
        self.loops -= 1
        if self.random.random() < 0.6:
            stop = n.lit(3) if self.random.random() < 0.7 else self.leaf() & 3
            return [build.loop(name, 0, stop, inner)]
        # A counter ends every while, whatever its condition does.
        count = build.assign(name, n.Var(name) + 1)
        return [build.let(name, 0), build.while_((n.Var(name) < 3) & self.condition(), [count, *inner])]

    def program(self) -> Program:
        lets = [build.let(name, self.random.choice((n.lit(0), n.lit(1), n.lit(1)))) for name in _VARIABLES]
        return Program.new(_BUFFERS, 4, [*lets, *self.body(0), *self.body(0), *self.body(0)])


def _accepted_programs_meet(seeds: range) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in seeds:
        program = _Writer(seed).program()
        if not check(program).ok:
            seen["refused"] += 1
            continue
        seen["accepted"] += 1
        inside = [part for outer in program.entry for body in walk.bodies(outer) for part in walk.statements(body)]
        seen["with conditional barriers"] += any(isinstance(part, n.Barrier) for part in inside)
        data = {"a": np.arange(4, dtype=np.uint32), "b": np.array([2, 0, 1, 3], np.uint32), "c": np.zeros(4, np.uint32)}
        for schedule in (seeded(seed), seeded(seed + 1)):
            try:
                run(program, data, grid=(2,), schedule=schedule, fuel=200_000, checked=True)
            except DispatchFailed as error:
                pytest.fail(f"seed {seed}: {error}\n{program}")
    return seen


def test_accepted_programs_meet_at_their_barriers() -> None:
    seen = _accepted_programs_meet(range(3_000))
    assert seen["accepted"] > 200
    assert seen["refused"] > 200
    assert seen["with conditional barriers"] > 200


@pytest.mark.long
def test_many_accepted_programs_meet_at_their_barriers() -> None:
    _accepted_programs_meet(range(10_000, 60_000))
