"""How is a tree visited and rebuilt? One walker and one rewriter, safe at any depth and any width.

Canonical order: statements before the statements inside them (preorder); a statement's own expressions before
its bodies; of an expression, operands first, left to right (postorder: the order of evaluation).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import msgspec

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir.limits import MAX_EXPRESSIONS
from vyre.ir.nodes import EXPRESSION_CLASSES, STATEMENT_CLASSES, Body, Expr, Node, Stmt

AnyNode = TypeVar("AnyNode", bound=Node)
Folded = TypeVar("Folded")


def _expression_fields(cls: type[Node]) -> tuple[str, ...]:
    hints = {f.name: str(f.type) for f in msgspec.structs.fields(cls)}
    return tuple(name for name, hint in hints.items() if "Expr" in hint)


EXPRESSION_FIELDS: Final = {cls: _expression_fields(cls) for cls in EXPRESSION_CLASSES + STATEMENT_CLASSES}
BODY_FIELDS: Final = {
    cls: tuple(f.name for f in msgspec.structs.fields(cls) if f.name in ("then", "otherwise", "body"))
    for cls in STATEMENT_CLASSES
}


def _getter(fields: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]] | None:
    if not fields:
        return None
    if len(fields) == 1:
        get_one = attrgetter(fields[0])
        return lambda node: (get_one(node),)
    return cast("Callable[[Any], tuple[Any, ...]]", attrgetter(*fields))


def _atomic_operands(node: n.Atomic) -> tuple[Expr, ...]:
    return tuple(part for part in (node.index, node.expected, node.value) if part is not None)


# For each class: a function that gives its direct operand expressions in order of evaluation, None for a leaf.
OPERANDS: Final[dict[type, Callable[[Any], tuple[Expr, ...]] | None]] = {
    cls: _getter(EXPRESSION_FIELDS[cls]) for cls in EXPRESSION_CLASSES + STATEMENT_CLASSES
}
OPERANDS[n.Atomic] = _atomic_operands
OPERANDS[n.Call] = attrgetter("args")

# For each statement class: the bodies it holds, in order; None where it holds none.
BODIES: Final[dict[type, Callable[[Any], tuple[Body, ...]] | None]] = {
    cls: _getter(BODY_FIELDS[cls]) for cls in STATEMENT_CLASSES
}


def operands(node: Node) -> tuple[Expr, ...]:
    """The direct operand expressions of an expression or a statement, in order of evaluation."""
    get = OPERANDS[type(node)]
    return () if get is None else get(node)


def bodies(statement: Stmt) -> tuple[Body, ...]:
    """The statement lists directly inside a statement, in order."""
    get = BODIES[type(statement)]
    return () if get is None else get(statement)


def named_bodies(statement: Stmt) -> tuple[tuple[str, Body], ...]:
    """The statement lists directly inside a statement, with their field names."""
    return tuple(zip(BODY_FIELDS[type(statement)], bodies(statement), strict=True))


def postorder(root: Expr) -> list[Expr]:
    """All nodes of an expression, operands before operators: the order of evaluation.

    A few doublings of a shared subexpression make a tree without end, so the walk stops with InvalidProgram at the
    limit that every legal program keeps.
    """
    getters = OPERANDS
    order: list[Expr] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order.append(node)
        get = getters[type(node)]
        if get is not None:
            pending += get(node)
            if len(order) > MAX_EXPRESSIONS:
                raise too_many_expressions()
    order.reverse()
    return order


def fold(root: Expr, combine: Callable[[Expr, list[Folded]], Folded]) -> Folded:
    """What an expression comes to, from its nodes and what their operands came to, in the order of evaluation."""
    getters = OPERANDS
    stack: list[Folded] = []
    for node in postorder(root):
        get = getters[type(node)]
        given: list[Folded] = []
        if get is not None:
            first = len(stack) - len(get(node))
            given = stack[first:]
            del stack[first:]
        stack.append(combine(node, given))
    return stack[0]


def fold_to_leaves(root: Expr, combine: Callable[[Expr, list[Folded]], Folded], leaves: Container[int]) -> Folded:
    """Like ``fold``, but what stands below the nodes in ``leaves`` (by identity) is left out."""
    order: list[tuple[Expr, int]] = []
    pending = [root]
    while pending:
        node = pending.pop()
        below = () if id(node) in leaves else operands(node)
        order.append((node, len(below)))
        pending += below
        if len(order) > MAX_EXPRESSIONS:
            raise too_many_expressions()
    stack: list[Folded] = []
    for node, count in reversed(order):
        first = len(stack) - count
        given = stack[first:]
        del stack[first:]
        stack.append(combine(node, given))
    return stack[0]


def too_many_expressions() -> InvalidProgram:
    return InvalidProgram(
        f"the program has more than {MAX_EXPRESSIONS:,} expressions (a shared one counts at each use).",
        "bind a subexpression that is used often to a variable with let.",
    )


def statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """All statements of a list, at every depth, in canonical order."""
    getters = BODIES
    pending = [iter(body)]
    while pending:
        for statement in pending[-1]:
            yield statement
            get = getters[type(statement)]
            if get is not None:
                pending.extend(iter(inner) for inner in reversed(get(statement)))
                break
        else:
            pending.pop()


def expressions(body: Iterable[Stmt]) -> Iterator[Expr]:
    """All expression nodes of a list, at every depth, in canonical order."""
    for statement in statements(body):
        for root in operands(statement):
            yield from postorder(root)


def with_operands(node: AnyNode, new: tuple[Expr, ...]) -> AnyNode:
    """A copy of the node with other direct operands (as many, in the same order)."""
    cls = type(node)
    if cls is n.Call:
        return msgspec.structs.replace(node, args=new)
    fields = EXPRESSION_FIELDS[cls]
    if isinstance(node, n.Atomic):
        fields = tuple(name for name in ("index", "expected", "value") if getattr(node, name) is not None)
    return msgspec.structs.replace(node, **dict(zip(fields, new, strict=True)))


def rewrite_expression(root: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Rebuilds an expression bottom-up: ``change`` is given each node after its operands were rebuilt.

    Nodes that nothing changes below keep their identity.
    """
    done: list[Expr] = []
    for node in postorder(root):
        old = operands(node)
        if old:
            count = len(old)
            new = tuple(done[-count:])
            del done[-count:]
            if any(a is not b for a, b in zip(old, new, strict=True)):
                node = with_operands(node, new)
        done.append(change(node))
    return done[0]


def rewrite(
    body: Body,
    on_expression: Callable[[Expr], Expr] | None = None,
    on_statement: Callable[[Stmt], Iterable[Stmt]] | None = None,
    on_enter: Callable[[Stmt], Stmt] | None = None,
) -> Body:
    """Rebuilds a list bottom-up, at every depth.

    ``on_expression`` is given every expression node, operands rebuilt; ``on_enter`` every statement, its own operands
    rebuilt, before what is inside it; ``on_statement`` every statement, everything inside it rebuilt, and answers
    with the statements that take its place.
    """
    # One frame per open list: the statements still to do, those done, and, of the statement whose bodies are being
    # rebuilt, the statement itself and its finished bodies.
    frames: list[tuple[Iterator[Stmt], list[Stmt], list[tuple[Stmt, list[Body]]]]] = [(iter(body), [], [])]
    while True:
        todo, done, opened = frames[-1]
        for statement in todo:
            if on_expression is not None:
                statement = _rewrite_operands(statement, on_expression)
            if on_enter is not None:
                statement = on_enter(statement)
            inner = bodies(statement)
            if inner:
                opened.append((statement, []))
                frames.append((iter(inner[0]), [], []))
                break
            done.extend(on_statement(statement) if on_statement else (statement,))
        else:
            frames.pop()
            finished = tuple(done)
            if not frames:
                return finished
            _, parent_done, parent_opened = frames[-1]
            statement, built = parent_opened[-1]
            built.append(finished)
            inner = bodies(statement)
            if len(built) < len(inner):
                frames.append((iter(inner[len(built)]), [], []))
                continue
            parent_opened.pop()
            statement = _with_bodies(statement, built)
            parent_done.extend(on_statement(statement) if on_statement else (statement,))


def _rewrite_operands(statement: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    old = operands(statement)
    new = tuple(rewrite_expression(root, change) for root in old)
    if all(a is b for a, b in zip(old, new, strict=True)):
        return statement
    return with_operands(statement, new)


def _with_bodies(statement: Stmt, built: list[Body]) -> Stmt:
    old = bodies(statement)
    if all(list(map(id, before)) == list(map(id, after)) for before, after in zip(old, built, strict=True)):
        return statement
    return msgspec.structs.replace(statement, **dict(zip(BODY_FIELDS[type(statement)], built, strict=True)))
