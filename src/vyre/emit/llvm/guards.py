"""Guards: branches at the start of a program that exclude the invocations from some number on.

Vectors whose invocations all lie below the limit need no mask.
"""

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
    """Return the guard at the start of a program with unique names, if there is one; its limit uses no variable."""
    definitions: dict[str, n.Expr] = {}
    for statement in program.entry:
        match statement:
            case n.Let(name, value):
                definitions[name] = value
            case n.If(condition):
                for changed in walk.statements(program.entry):
                    if isinstance(changed, n.Assign):
                        definitions.pop(changed.name, None)
                return _match_guard(statement, _resolve(condition, definitions), definitions, program)
            case _:
                return None
    return None


def _match_guard(statement: n.If, condition: n.Expr, definitions: dict[str, n.Expr], program: Program) -> Guard | None:
    if not isinstance(condition, n.BinOp):
        return None
    op, left, right = condition.op, _resolve(condition.left, definitions), _resolve(condition.right, definitions)
    if op in _SWAPPED:
        op, left, right = _SWAPPED[op], right, left
    fixed = frozenset(decl.name for decl in program.buffers) - written_buffers(program)
    if op in ("lt", "ge") and left == n.InvocationId(0) and _is_fixed(right, fixed):
        return Guard(statement, right, op == "lt")
    return None


def _resolve(expression: n.Expr, definitions: dict[str, n.Expr]) -> n.Expr:
    """Return the definition of a variable, through any number of copies."""
    while isinstance(expression, n.Var) and expression.name in definitions:
        expression = definitions[expression.name]
    return expression


def _is_fixed(limit: n.Expr, fixed: frozenset[str]) -> bool:
    match limit:
        case n.Lit() | n.BufLen():
            return True
        case n.Load(buffer, n.Lit()):
            return buffer in fixed
    return False
