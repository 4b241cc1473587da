"""How long does the checker take for the largest legal programs? Prints seconds for each shape; run as a script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from vyre.checker import check
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import (
    assign,
    barrier,
    block,
    break_,
    continue_,
    gid,
    grid_sync,
    if_,
    let,
    lid,
    load,
    loop,
    store,
    var,
    while_,
)
from vyre.ir.limits import MAX_STATEMENTS
from vyre.ir.nodes import Stmt
from vyre.ir.program import Program
from vyre.semantics.types import DType

_BUFFERS = (
    BufferDecl.read("a", 0, DType.U32),
    BufferDecl.read_write("b", 1, DType.U32),
    BufferDecl.read_write("c", 2, DType.U32),
    BufferDecl.workgroup("s", DType.U32, 64),
)


def straight(statements: int) -> list[Stmt]:
    """Lets and stores, one after another."""
    body: list[Stmt] = []
    for k in range(statements // 2):
        body.append(let(f"x{k}", load("a", gid() + k) * 3))
        body.append(store("b", var(f"x{k}") + gid(), var(f"x{k}") & 7))
    return body


def nested(statements: int) -> list[Stmt]:
    """Branches and loops that assign, without a barrier."""
    body: list[Stmt] = [let("x", gid() + 1)]
    for k in range(statements // 8):
        inner = [assign("x", var("x") * 3 + var("i")), store("b", var("x") + var("i"), load("a", var("x") + 1))]
        branch = if_(var("x") + var("i") < k, inner, [assign("x", load("a", var("i") + 1) + 5)])
        leave = if_((load("a", var("x")) & 1).eq(1), [break_()])
        body.append(loop("i", k & 3, load("a", k), [branch, leave, let("y", var("x") + var("i"))]))
    return body


def synchronised(statements: int) -> list[Stmt]:
    """Barriers in branches and loops whose conditions depend on everything before them."""
    body: list[Stmt] = [let("n", load("a", 0) + 1), let("m", load("a", 1) + 2)]
    for k in range(statements // 16):
        step = [assign("n", var("n") * 3 + load("c", var("i") + var("m"))), barrier()]
        even = if_((var("n") & 1).eq(load("s", var("m") + 1)), [barrier(), assign("m", var("m") + var("n") + k)])
        skip = if_((var("n") + var("m") & 7).eq(0), [continue_()])
        leave = if_((var("n") ^ var("m") & 7).eq(1), [break_()])
        workgroup_only = store("s", lid() + var("n"), var("m") + gid())
        end = [barrier(), workgroup_only, barrier()]
        body.append(loop("i", 0, var("n") + var("m") & 7, [*step, even, skip, leave, *end]))
        body.append(block(grid_sync()))
    return body


def grid_synchronised(statements: int) -> list[Stmt]:
    """Grid barriers in loops that the device itself ends."""
    body: list[Stmt] = [let("n", load("a", 0) + 1)]
    for k in range(statements // 12):
        work = [store("b", gid() + k, var("n") + load("a", gid())), assign("n", var("n") + load("c", k) + var("i"))]
        inner = loop("i", 0, load("c", var("n") + 1), work)
        change = if_(gid().eq(k), [store("c", 0, load("b", var("n") + 1) + 1)])
        turn = [grid_sync(), inner, grid_sync(), change, grid_sync(), assign("n", var("n") + 1)]
        body.append(while_(load("c", var("n") & 3).ne(k), turn))
        body.append(grid_sync())
    return body


def deep(statements: int) -> list[Stmt]:
    """Loops and branches as deep as they may be, around assignments to many variables."""
    names = [f"x{k}" for k in range(statements // 2)]
    body: list[Stmt] = [assign(name, var(name) + load("a", 1)) for name in names]
    body.append(barrier())
    for k in range(60):
        body = [if_(load("a", k) + var("x0") < 9, body)] if k % 2 else [loop(f"k_{k}", 0, load("a", k), body)]
    return [*(let(name, load("a", 2)) for name in names), *body]


SHAPES: tuple[tuple[Callable[[int], list[Stmt]], int], ...] = (
    (straight, MAX_STATEMENTS),
    (nested, MAX_STATEMENTS),
    (synchronised, MAX_STATEMENTS),
    (grid_synchronised, MAX_STATEMENTS),
    (deep, MAX_STATEMENTS),
)


def figures() -> Iterator[tuple[str, float]]:
    """Seconds to check the largest legal program of each shape."""
    for shape, size in SHAPES:
        program = Program.new(_BUFFERS, 64, shape(size - 100))
        start = time.perf_counter()
        report = check(program)
        seconds = time.perf_counter() - start
        assert report.ok, report.render(program)[:2000]
        counts = program.stats()
        yield f"{counts.statements:,} statements, {counts.expressions:,} expressions ({shape.__name__})", seconds


if __name__ == "__main__":
    for what, seconds in figures():
        print(f"{what:70} {seconds:6.2f} s")
