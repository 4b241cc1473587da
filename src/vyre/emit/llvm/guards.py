"""Does a program begin by sending away the invocations beyond some number? Then whole vectors below it need no mask."""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program

_SWAPPED: Final = {"gt": "lt", "le": "ge"}


class Guard(msgspec.Struct, frozen=True):
    """A branch that all invocations below ``limit`` take one way: its ``then`` if ``enters``, else the other."""

    statement: n.If
    limit: n.Expr
    enters: bool


def guard_of(program: Program) -> Guard | None:
    """The guard that a program whose variables have unique names begins with; its limit needs no variable."""
    known: dict[str, n.Expr] = {}
    fixed = frozenset(decl.name for decl in program.buffers) - written_buffers(program)
    for statement in program.entry:
        match statement:
            case n.Let(name, value):
                known[name] = value
            case n.If(n.BinOp(op, left, right)):
                for changed in walk.statements(program.entry):
                    if isinstance(changed, n.Assign):
                        known.pop(changed.name, None)
                sides = [known.get(side.name, side) if isinstance(side, n.Var) else side for side in (left, right)]
                if op in _SWAPPED:
                    op, sides = _SWAPPED[op], sides[::-1]
                if op in ("lt", "ge") and sides[0] == n.InvocationId(0) and _is_fixed(sides[1], fixed):
                    return Guard(statement, sides[1], op == "lt")
                return None
            case _:
                return None
    return None


def _is_fixed(limit: n.Expr, fixed: frozenset[str]) -> bool:
    match limit:
        case n.Lit() | n.BufLen():
            return True
        case n.Load(buffer, n.Lit()):
            return buffer in fixed
    return False
