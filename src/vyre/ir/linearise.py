"""How is an expression replaced by statements? What was to be evaluated before it is bound to variables first.

So every operand is still evaluated once, and in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vyre.ir import nodes as n
from vyre.ir import walk

# Given a node and its operands, adds statements to the list and gives the expression for the node's value.
Replace = Callable[[n.Expr, tuple[n.Expr, ...], list[n.Stmt]], n.Expr]


def replace_in_statement(
    statement: n.Stmt, is_replaced: Callable[[n.Expr], bool], replace: Replace, fresh: Callable[[str], str]
) -> Iterable[n.Stmt]:
    """A statement with some of the nodes in its operands replaced, behind the statements that this takes."""
    prelude: list[n.Stmt] = []
    roots = walk.operands(statement)
    replaced = _linearise(roots, is_replaced, replace, fresh, prelude)
    if all(old is new for old, new in zip(roots, replaced, strict=True)):
        return (statement,)
    if isinstance(statement, n.While):
        leave = n.If(n.UnOp("lnot", replaced[0]), (n.Break(),))
        return (n.While(n.lit(True), (*prelude, leave, *statement.body)),)
    return (*prelude, walk.with_operands(statement, replaced))


def _linearise(
    roots: tuple[n.Expr, ...],
    is_replaced: Callable[[n.Expr], bool],
    replace: Replace,
    fresh: Callable[[str], str],
    prelude: list[n.Stmt],
) -> tuple[n.Expr, ...]:
    stack: list[n.Expr] = []
    for root in roots:
        for node in walk.postorder(root):
            old = walk.operands(node)
            start = len(stack) - len(old)
            replacing = is_replaced(node)
            if replacing:
                for index, value in enumerate(stack):
                    if not isinstance(value, (n.Lit, n.Var)):
                        name = fresh("before")
                        prelude.append(n.Let(name, value))
                        stack[index] = n.Var(name)
            new = tuple(stack[start:])
            del stack[start:]
            if replacing:
                stack.append(replace(node, new, prelude))
            elif any(a is not b for a, b in zip(old, new, strict=True)):
                stack.append(walk.with_operands(node, new))
            else:
                stack.append(node)
    return tuple(stack)
