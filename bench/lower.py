"""How long does cutting take? Run: python bench/lower.py"""

from __future__ import annotations

from time import process_time

from vyre.ir.buffers import BufferDecl
from vyre.ir.build import assign, buf_len, gid, grid_sync, if_, let, load, loop, store, var
from vyre.ir.launch import decide_launch
from vyre.ir.nodes import Stmt
from vyre.ir.program import Program
from vyre.lower import cut_program, plan_grid_sync
from vyre.semantics.types import DType


def work(number: int) -> list[Stmt]:
    """Four statements with about five expression nodes each."""
    name = f"v{number}"
    return [
        let(name, load("a", gid()) + var("acc") * number),
        assign("acc", var("acc") * 31 + var(name)),
        store("a", gid(), var("acc") + var(name)),
        if_(var(name) < 7, [assign("acc", var("acc") + 1)]),
    ]


def program(statements: int, barriers: int, shape: str) -> Program:
    """That many statements and barriers; ``shape`` says where the barriers stand."""
    body: list[Stmt] = []
    every = statements // barriers
    for at in range(0, statements, 5):
        body += work(at)
        if at % every < 5:
            match shape:
                case "straight":
                    body.append(grid_sync())
                case "branches":
                    body.append(if_(buf_len("a") > at, [grid_sync()]))
    if shape == "loop":
        half = len(body) // 2
        body = [*body[:half], loop("k", 0, buf_len("a"), [grid_sync(), *body[half:], grid_sync()])]
    buffers = [BufferDecl.read_write("a", 0, DType.U32)]
    return Program.new(buffers, 64, [let("acc", 0), *body, store("a", gid(), var("acc"))], name=shape)


def main() -> None:
    for shape in ("straight", "branches", "loop"):
        made = program(10_000, 20, shape)
        launch = decide_launch(made, {"a": 1 << 16})
        start = process_time()
        plan = plan_grid_sync(made, launch)
        seconds = process_time() - start
        written = sum(segment.program.stats().statements for segment in plan.segments)
        print(
            f"{shape:>9}: {made.stats().statements:,} statements, {len(plan.segments) - 1} cuts -> "
            f"{written:,} statements in {seconds * 1e3:,.0f} ms"
        )
    again = process_time()
    cut_program(made)
    print(f"  planned: {(process_time() - again) * 1e6:.1f} us")


if __name__ == "__main__":
    main()
