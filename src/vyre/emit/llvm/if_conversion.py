"""If-conversion: branches whose sides are cheaper than a branch on the mask become selects.

Both sides are computed, and each variable that a side assigns gets a select between the two values. The two values are
independent of each other, while masked assignments would form a chain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.lower.fresh_names import FreshNames, fresh_names

_MAX_CHEAP_NODES: Final = 16
_CHEAP_OPERATORS: Final = {
    "add", "sub", "mul", "shl", "shr", "and", "or", "xor", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "neg",
    "not", "lnot", "abs", "rotl", "rotr",
}  # fmt: skip


def if_convert(program: Program) -> Program:
    """Return the program with its cheap branches converted to selects; its variables have unique names."""
    if not program.stats().has(n.If):
        return program
    names = fresh_names(program)

    def convert(statement: n.Stmt) -> Iterable[n.Stmt]:
        if isinstance(statement, n.If) and is_cheap(statement.then) and is_cheap(statement.otherwise):
            return _select_assignments(statement, names)
        return (statement,)

    return program.with_entry(walk.rewrite(program.entry, on_statement=convert))


def _select_assignments(statement: n.If, names: FreshNames) -> list[n.Stmt]:
    condition = names.make("chosen")
    done: list[n.Stmt] = [n.Let(condition, statement.condition)]
    then, otherwise = (_speculate(body, names, done) for body in (statement.then, statement.otherwise))
    for name in dict.fromkeys((*then, *otherwise)):
        values = (n.Var(side.get(name, name)) for side in (then, otherwise))
        done.append(n.Assign(name, n.Select(n.Var(condition), *values)))
    return done


def _speculate(body: n.Body, names: FreshNames, done: list[n.Stmt]) -> dict[str, str]:
    """Append the computations of a side to ``done``; return the final value's name per assigned variable."""
    current: dict[str, str] = {}

    def current_value(node: n.Expr) -> n.Expr:
        return n.Var(current[node.name]) if isinstance(node, n.Var) and node.name in current else node

    for statement in body:
        assert isinstance(statement, (n.Let, n.Assign))
        value = walk.rewrite_expression(statement.value, current_value)
        if isinstance(statement, n.Let):
            done.append(n.Let(statement.name, value))
        else:
            own = names.make(statement.name)
            done.append(n.Let(own, value))
            current[statement.name] = own
    return current


def is_cheap(body: n.Body) -> bool:
    """Whether a list is cheaper than a branch on the mask: a few plain operations on variables."""
    nodes = 0
    for statement in body:
        if not isinstance(statement, (n.Let, n.Assign)):
            return False
        for node in walk.postorder(statement.value):
            nodes += 1
            is_plain = isinstance(node, (n.Var, n.Lit, n.Select, n.InvocationId, n.BufLen))
            is_plain = is_plain or (isinstance(node, (n.BinOp, n.UnOp)) and node.op in _CHEAP_OPERATORS)
            if not is_plain or nodes > _MAX_CHEAP_NODES:
                return False
    return True
