"""Random programs full of indices, guards and arithmetic at the edges of u32: some accesses are in bounds, some not."""

from __future__ import annotations

from random import Random

import numpy as np

from vyre.conform.case import Case
from vyre.ir import Program, build
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.semantics.types import DType

_BUFFERS = (
    BufferDecl.read("a", 0, DType.U32),
    BufferDecl.read("b", 1, DType.U32),
    BufferDecl.read("c", 2, DType.U32, 6),
    BufferDecl.read_write("d", 3, DType.U32, 16),
    BufferDecl.output("out", 4, DType.U32, 64),
    BufferDecl.workgroup("s", DType.U32, 8),
)
_READABLE = "aabbcds"
_NEVER_WRITTEN = "aabbc"
_VARIABLES = ("x", "y", "z")
_NUMBERS = (0, 1, 1, 2, 3, 5, 6, 7, 8, 15, 16, 31, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF0, 0xFFFFFFFE, 0xFFFFFFFF)
_OPERATORS = (
    "add", "add", "add", "sub", "sub", "sub", "mul", "div", "mod", "mod", "and", "and", "or", "xor", "shl", "shr",
    "min", "min", "max", "abs_diff", "sat_add", "sat_sub", "sat_mul", "mul_high", "rotl",
)  # fmt: skip
_UNARY = ("neg", "not", "popcount", "clz", "ctz", "sign", "abs")
_COMPARISONS = ("lt", "lt", "lt", "le", "gt", "ge", "eq", "ne")


class Writer:
    """Writes one program. If ``apart``, no invocation reads what one writes or writes where another does."""

    def __init__(self, seed: int, *, apart: bool = False) -> None:
        self.random = Random(seed)
        self.apart = apart
        self.readable = _NEVER_WRITTEN if apart else _READABLE
        self.loops = 0
        self.names = 0
        self.visible = list(_VARIABLES)

    def number(self) -> n.Expr:
        return n.lit(self.random.choice(_NUMBERS))

    def leaf(self) -> n.Expr:
        choice = self.random.random()
        if choice < 0.45:
            return n.Var(self.random.choice(self.visible))
        if choice < 0.6:
            return self.number()
        if choice < 0.75:
            return n.BufLen(self.random.choice("abcd"))
        return self.random.choice((n.InvocationId(0), n.InvocationId(0), n.LocalId(0), n.WorkgroupId(0)))

    def value(self, depth: int = 2) -> n.Expr:
        choice = self.random.random()
        if depth == 0 or choice < 0.3:
            return self.leaf()
        if choice < 0.8:
            op = self.random.choice(_OPERATORS)
            right = self.number() if self.random.random() < 0.6 else self.value(depth - 1)
            return n.BinOp(op, self.value(depth - 1), right)
        if choice < 0.86:
            return n.UnOp(self.random.choice(_UNARY), self.value(depth - 1))
        if choice < 0.92:
            return n.Select(self.condition(1), self.value(depth - 1), self.value(depth - 1))
        if choice < 0.97:
            op = self.random.choice(("add", "sub", "mul", "div", "mod", "shr", "min", "max", "sat_sub"))
            signed = n.Cast(DType.I32, self.value(depth - 1))
            return n.Cast(DType.U32, n.BinOp(op, signed, n.lit(self.random.choice((-7, -1, 0, 1, 3, 8)), DType.I32)))
        return n.Load(self.random.choice(self.readable), self.value(depth - 1))

    def condition(self, depth: int = 2) -> n.Expr:
        choice = self.random.random()
        if depth and choice < 0.2:
            return n.BinOp(
                self.random.choice(("and", "and", "or")), self.condition(depth - 1), self.condition(depth - 1)
            )
        if depth and choice < 0.3:
            return n.UnOp("lnot", self.condition(depth - 1))
        op = self.random.choice(_COMPARISONS)
        left = n.Var(self.random.choice(self.visible)) if self.random.random() < 0.6 else self.value(1)
        if choice < 0.4:
            small = n.lit(self.random.choice((-1, 0, 6, 16)), DType.I32)
            return n.BinOp(op, n.Cast(DType.I32, left), small)
        right = n.BufLen(self.random.choice("aabcd")) if self.random.random() < 0.6 else self.value(1)
        return n.BinOp(op, left, right) if self.random.random() < 0.8 else n.BinOp(op, right, left)

    def index(self) -> n.Expr:
        if self.random.random() < 0.5:
            return n.Var(self.random.choice(self.visible))
        return self.value(self.random.choice((1, 2)))

    def access(self) -> n.Stmt:
        choice = self.random.random()
        if choice < 0.6:
            load = n.Load(self.random.choice(self.readable), self.index())
            return build.assign(self.random.choice(_VARIABLES), load if self.random.random() < 0.3 else load & 7)
        if self.apart:
            index = self.index()
            return build.if_((index >> 2).eq(n.InvocationId(0)), [build.store("out", index, self.leaf())])
        target = self.random.choice(("d", "out", "s"))
        if choice < 0.75:
            return build.let(self.fresh(), n.Atomic(n.AtomicOp.ADD, target, self.index(), self.leaf()))
        return build.store(target, self.index(), self.leaf())

    def fresh(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def body(self, depth: int) -> list[n.Stmt]:
        visible = len(self.visible)
        statements = [part for _ in range(self.random.randint(1, 4)) for part in self.statement(depth)]
        del self.visible[visible:]
        return statements

    def statement(self, depth: int) -> list[n.Stmt]:
        choice = self.random.random()
        if choice < 0.36 or depth > 3:
            return [self.access()]
        if choice < 0.46:
            return [build.assign(self.random.choice(_VARIABLES), self.value())]
        if choice < 0.54:
            let = build.let(self.fresh(), self.value())
            self.visible.append(let.name)
            return [let]
        if choice < 0.76:
            otherwise = self.body(depth + 1) if self.random.random() < 0.35 else ()
            return [build.if_(self.condition(), self.body(depth + 1), otherwise)]
        if choice < 0.88:
            return self.loop(depth)
        jump = self.random.choice((build.break_(), build.continue_())) if self.loops else build.return_()
        leaving = [*(self.body(depth + 1) if self.random.random() < 0.2 else ()), jump]
        staying = self.body(depth + 1) if self.random.random() < 0.3 else ()
        sides = (leaving, staying) if not staying or self.random.random() < 0.5 else (staying, leaving)
        return [build.if_(self.condition(), *sides)]

    def loop(self, depth: int) -> list[n.Stmt]:
        name = self.fresh()
        self.loops += 1
        self.visible.append(name)
        inner = self.body(depth + 1)
        self.visible.remove(name)
        self.loops -= 1
        if self.random.random() < 0.6:
            stop = self.random.choice((n.lit(3), n.BufLen("a"), n.BufLen("c"), self.value(1) & 7))
            return [build.loop(name, self.random.choice((n.lit(0), n.lit(1), self.leaf() & 3)), stop, inner)]
        # A counter ends every while, whatever its condition does.
        count = build.assign(name, n.Var(name) + 1)
        condition = (n.Var(name) < 4) & self.condition(1)
        return [build.let(name, 0), build.while_(condition, [count, *inner])]

    def program(self) -> Program:
        first = (n.InvocationId(0), self.number(), n.BufLen("a"))
        lets = [build.let(name, value) for name, value in zip(_VARIABLES, first, strict=True)]
        rest = [*self.body(0), *self.body(0), *self.body(0)]
        return Program.new(_BUFFERS, 8, [*lets, *rest])


def guarded_case(seed: int, *, apart: bool = False) -> Case:
    """A program of that kind and inputs for it: empty, short, or as long as the grid."""
    random = Random(seed)
    inputs = {name: np.arange(random.choice((0, 1, 5, 16, 19)), dtype=np.uint32) for name in "ab"}
    inputs["c"] = np.array([0, 1, 0xFFFFFFFF, 3, 0x80000000, 5], np.uint32)
    inputs["d"] = np.arange(16, dtype=np.uint32) * 3
    return Case(Writer(seed, apart=apart).program(), inputs, grid=(2, 1, 1), fuel=1_000_000)
