"""Random programs in which everything that crosses a barrier matters: all of it is mixed into what they give.

Every invocation touches only its own elements, but for neighbours' workgroup memory between barriers, so the
programs are deterministic. Not all are legal: the checker has the last word.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import (
    assign,
    async_load,
    async_store,
    async_wait,
    barrier,
    block,
    break_,
    cast,
    continue_,
    gid,
    grid_sync,
    if_,
    let,
    lid,
    load,
    loop,
    resume,
    return_,
    store,
    trap,
    var,
    wg,
    while_,
)  # fmt: skip
from vyre.ir.nodes import Expr, Stmt
from vyre.ir.program import Program
from vyre.semantics.types import DType

GROUP = 3
GROUPS = 2
INVOCATIONS = GROUP * GROUPS
BUFFERS = (
    BufferDecl.read("fixed", 0, DType.U32, 4),
    BufferDecl.read_write("source", 1, DType.U32, 4),
    BufferDecl.read_write("mine", 2, DType.U32, INVOCATIONS),
    BufferDecl.output("out", 3, DType.U32, INVOCATIONS),
    BufferDecl.workgroup("tile", DType.U16, GROUP),
)


class Skeleton:
    """Makes one program; ``accumulated`` has one variable of each level of agreement, and one of two words."""

    accumulated = ("acc", "wide", "grid", "group")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.count = 0
        self.budget = 22
        self.visible: list[list[str]] = [[]]
        self.loops = 0
        self.pinned = 0

    def program(self) -> Program:
        start = [
            let("acc", gid() + 1),
            let("wide", cast(DType.I64, gid())),
            let("grid", load("fixed", 1)),
            let("group", wg()),
        ]
        middle = self.statements(8, uniform=True)
        while self.budget > 0:
            middle += self.statements(4, uniform=True)
        end = [
            store("out", gid(), load("out", gid()) * 31 + self.mixed()),
            store("mine", gid(), cast(DType.U32, var("wide"))),
        ]
        return Program.new(BUFFERS, GROUP, [*start, *middle, *end], name="skeleton")

    def fresh(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def name(self) -> str:
        """A variable whose value is mixed in next."""
        return self.random.choice([*(name for scope in self.visible for name in scope), "acc", "grid", "group"])

    def mixed(self) -> Expr:
        return (var("acc") * 31 + var("grid")) * 31 + var("group") + cast(DType.U32, load("tile", lid()))

    def statements(self, most: int, *, uniform: bool, first: tuple[str, ...] = ()) -> list[Stmt]:
        self.visible.append(list(first))
        made: list[Stmt] = []
        for _ in range(self.random.randint(1, most)):
            if self.budget <= 0:
                break
            self.budget -= 1
            options = [*self.anywhere, *([*self.together] * 2 if uniform else [])]
            made += self.random.choice(options)(self)
            if made and isinstance(made[-1], (n.Break, n.Continue, n.Return)):
                break
        self.visible.pop()
        return made

    def mix(self) -> list[Stmt]:
        return [assign("acc", var("acc") * 31 + var(self.name())), assign("wide", var("wide") * n.lit(77, DType.I64))]

    def declare(self) -> list[Stmt]:
        value = self.random.choice((var("acc") * 3, var("acc") + var(self.name()), gid() * 5, load("fixed", gid() % 4)))
        name = self.fresh("t")
        self.visible[-1].append(name)
        return [let(name, value)]

    def keep(self) -> list[Stmt]:
        own = cast(DType.U32, load("tile", lid()))
        return [
            store("tile", lid(), cast(DType.U16, own * 7 + var("acc"))),
            store("out", gid(), load("out", gid()) * 3 + own),
        ]

    def leave(self) -> list[Stmt]:
        if self.pinned:
            return self.mix()
        return [if_((var("acc") % 13).eq(3), [return_()])]

    def divergent(self) -> list[Stmt]:
        return [if_((var("acc") % 3).eq(1), self.statements(3, uniform=False), self.statements(2, uniform=False))]

    def agree(self) -> list[Stmt]:
        return [assign("grid", var("grid") * 7 + 1), assign("group", var("group") * 5 + var("grid"))]

    def synchronise(self) -> list[Stmt]:
        return [grid_sync()]

    def neighbour(self) -> list[Stmt]:
        return [barrier(), assign("acc", var("acc") + cast(DType.U32, load("tile", (lid() + 1) % GROUP))), barrier()]

    def choose(self) -> list[Stmt]:
        chosen = self.random.choice(((var("grid") % 2).eq(0), (var("grid") % 3).ne(1)))
        return [if_(chosen, self.statements(4, uniform=True), self.statements(3, uniform=True))]

    def scope(self) -> list[Stmt]:
        return [block(*self.statements(4, uniform=True))]

    def repeat(self) -> list[Stmt]:
        if self.loops == 2:
            return self.mix()
        pinned, self.pinned = self.pinned, 0
        self.loops += 1
        counter = self.fresh("k")
        if self.random.random() < 0.6:
            body = self.statements(6, uniform=True, first=(counter,))
            made: list[Stmt] = [loop(counter, 0, var("grid") % 4, body)]
        else:
            body = self.statements(6, uniform=True)
            step = assign(counter, var(counter) + 1)
            made = [let(counter, 0), while_(var(counter) < 3, [step, *body])]
        self.loops -= 1
        self.pinned = pinned
        return made

    def jump(self) -> list[Stmt]:
        if not self.loops or self.pinned:
            return self.mix()
        leaving = self.random.choice((break_, continue_))()
        return [if_((var("grid") % self.random.randint(2, 3)).eq(self.random.randint(0, 1)), [leaving])]

    def transfer(self) -> list[Stmt]:
        """Bytes captured before others write the source, and written after."""
        if self.pinned:
            return self.mix()
        self.pinned += 1
        tag = self.fresh("tag")
        source = self.random.choice(("source", "fixed"))
        size = self.random.choice((n.lit(4), var("grid") % 5))
        issue = async_store(source, "out", gid() * 4, size, tag)
        if self.random.random() < 0.3:
            issue = async_load(source, "tile", 4, var("group") % 2 * 2, tag)
        change = if_(gid().eq(0), [store("source", 0, load("source", 0) * 3 + 1)])
        inside = self.statements(3, uniform=True)
        self.pinned -= 1
        return [
            grid_sync(),
            issue,
            grid_sync(),
            change,
            grid_sync(),
            block(*inside),
            grid_sync(),
            async_wait(tag),
            grid_sync(),
        ]

    def ask(self) -> list[Stmt]:
        if self.pinned:
            return self.mix()
        self.pinned += 1
        asking = if_((var("acc") % 5).eq(2), [*self.mix(), trap(var("acc"), "ask")])
        made = [asking, *self.statements(3, uniform=True)]
        self.pinned -= 1
        return [block(*made, resume("ask"), *self.mix())]

    anywhere: tuple[Callable[[Skeleton], list[Stmt]], ...] = (mix, declare, keep, divergent, leave)
    together: tuple[Callable[[Skeleton], list[Stmt]], ...] = (
        agree, synchronise, synchronise, neighbour, choose, scope, repeat, repeat, jump, transfer, ask,
    )  # fmt: skip
