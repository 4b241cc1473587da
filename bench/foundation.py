"""The figures that the foundation promises, each beside its limit. Run by ``make bench``."""

from __future__ import annotations

import time
from collections.abc import Callable

import checker
import reference
from vyre.ir import build as b
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Expr
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.semantics.types import DType

EXPRESSIONS = 1_000_000
STATEMENTS = 100_000


def seconds(job: Callable[[], object], repetitions: int = 3) -> float:
    """The best of several runs."""
    best = float("inf")
    for _ in range(repetitions):
        start = time.perf_counter()
        job()
        best = min(best, time.perf_counter() - start)
    return best


def build_expressions() -> list[Expr]:
    """A million expression nodes made with Python's operators: 250,000 times (x * 3 + 1) with its two literals."""
    x = b.gid(0)
    return [x * 3 + 1 for _ in range(EXPRESSIONS // 4)]


def build_statements() -> Program:
    """100,000 statements of loads, arithmetic and stores, some of them in branches and loops."""
    i = b.var("i")
    body = [b.let("i", b.gid(0))]
    while len(body) < STATEMENTS // 4:
        k = len(body)
        body.append(b.let(f"x{k}", b.load("a", i + k) * 3 + b.load("a", b.var("i") >> 2)))
        counted = b.loop("j", 0, k, [b.store("a", b.var("j"), k)])
        body.append(b.if_(i < k, [b.store("a", i, b.var(f"x{k}") ^ 7), counted]))
    body += [b.store("a", i + k, b.load("a", i) & k) for k in range(STATEMENTS - 5 * len(body) // 2)]
    return Program.new([BufferDecl.read_write("a", 0, DType.U32)], 64, body[:STATEMENTS])


def row(what: str, figure: float, limit: float | None, unit: str = "s") -> None:
    bound = "" if limit is None else f"   limit {limit:g} {unit}"
    print(f"{what:<70} {figure:7.2f} {unit}{bound}", flush=True)


def main() -> None:
    row("build 1,000,000 expressions", seconds(build_expressions), 1)
    wide = Program.new([], 1, [b.let("x", e) for e in build_expressions()])
    assert wide.stats().expressions >= EXPRESSIONS
    row("stats over them", seconds(lambda: wide.with_name("again").stats()), 2)
    program = build_statements()
    text, image = str(program), encode(program)
    row(f"parse {program.stats().statements:,} statements", seconds(lambda: parse(text)), 5)
    row("print them", seconds(lambda: str(program)), None)
    row("encode them", seconds(lambda: encode(program)), None)
    row("decode them", seconds(lambda: decode(image)), None)
    for what, figure in checker.figures():
        row(f"check {what}", figure, 10)
    for what, figure in reference.figures():
        row(f"reference, {what}", figure / 1e6, 0.3, "M steps/s")


if __name__ == "__main__":
    main()
