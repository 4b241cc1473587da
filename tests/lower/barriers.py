"""More grid barriers in a program: where the checker allows one, it changes nothing that a program gives."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from vyre.checker import check
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program

_LEAVES = (n.Break, n.Continue, n.Return, n.IndirectDispatch)


def with_more_barriers(program: Program, random: Random, share: float) -> Program:
    """The program with grid barriers behind a share of its statements, wherever control flow is grid-uniform."""

    def insert(statement: n.Stmt) -> Iterable[n.Stmt]:
        if isinstance(statement, _LEAVES) or random.random() >= share:
            return (statement,)
        return statement, n.Barrier(n.MemoryOrder.GRID_SYNC)

    program = program.with_entry(walk.rewrite(program.entry, on_statement=insert))
    while errors := check(program).errors:
        order = list(walk.statements(program.entry))
        divergent = {id(order[error.place.statement]) for error in errors if error.place.statement is not None}
        kept = walk.rewrite(program.entry, on_statement=lambda s, gone=divergent: () if id(s) in gone else (s,))
        program = program.with_entry(kept)
    return program
