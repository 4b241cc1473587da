"""Is a program made of the right things? Finds the first field that does not hold what its class declares.

Data built by hand can hold anything. The checker's quick walk stops at what it cannot read; this slow one says what
that was.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any, Final, get_args, get_origin, get_type_hints

from vyre.checker.diagnostics import Diagnostic, diagnostic
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_EXPRESSIONS
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.ir.walk import BODIES, OPERANDS

_CLASSES: Final[tuple[type, ...]] = (*n.EXPRESSION_CLASSES, *n.STATEMENT_CLASSES, BufferDecl)
_FIELDS: Final[dict[type, tuple[tuple[str, Any], ...]]] = {cls: tuple(get_type_hints(cls).items()) for cls in _CLASSES}

_SHOWN: Final = (bool, int, float, str, bytes, types.NoneType)


def malformed_declarations(program: Program) -> Iterator[Diagnostic]:
    """What is wrong with the types of the program's own fields and of its buffers'."""
    for field, hint in (("name", str), ("workgroup_size", tuple[int, int, int]), ("subgroup_size", int)):
        value = getattr(program, field)
        if not _fits(value, hint):
            yield _malformed(Place(), f"the program's {field}", value, hint)
    for field in ("buffers", "entry"):
        value = getattr(program, field)
        if type(value) is not tuple:
            yield _malformed(Place(), f"the program's {field}", value, tuple)
            return
    for number, decl in enumerate(program.buffers):
        place = Place(buffer=number)
        if type(decl) is not BufferDecl:
            yield _malformed(place, f"buffer {number}", decl, BufferDecl)
            continue
        for field, hint in _FIELDS[BufferDecl]:
            value = getattr(decl, field)
            if not _fits(value, hint):
                yield _malformed(place, f"'{field}' of buffer {number}", value, hint)


def first_malformed_node(program: Program) -> Diagnostic | None:
    """The first node, in canonical order, with a field that does not hold what its class declares."""
    seen = 0
    pending: list[Iterator[Any]] = [iter(program.entry)]
    number = -1
    while pending:
        for statement in pending[-1]:
            number += 1
            if type(statement) not in BODIES:
                return _malformed(Place(number), "a statement", statement, n.Stmt)
            wrong = _first_wrong_field(Place(number), statement)
            if wrong is not None:
                return wrong
            for root in _operands(statement):
                # A malformed tree has no numbers of its own, so the place is the statement's.
                order = [root]
                for node in order:
                    wrong = _first_wrong_field(Place(number), node)
                    if wrong is not None:
                        return wrong
                    order.extend(_operands(node))
                    seen += 1
                    if seen > MAX_EXPRESSIONS:
                        return None
            lists = BODIES[type(statement)]
            if lists is not None:
                pending.extend(iter(body) for body in reversed(lists(statement)))
                break
        else:
            pending.pop()
    return None


def _operands(node: Any) -> tuple[Any, ...]:
    get = OPERANDS[type(node)]
    return () if get is None else get(node)


def _first_wrong_field(place: Place, node: Any) -> Diagnostic | None:
    fields = _FIELDS.get(type(node))
    if fields is None:
        return _malformed(place, "an operand", node, n.Expr)
    for field, hint in fields:
        value = getattr(node, field)
        if not _fits(value, hint):
            return _malformed(place, f"'{field}' of {type(node).__name__}", value, hint)
    return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a declared type; of lists, only that they hold nodes, which are looked at in their turn."""
    origin = get_origin(hint)
    if origin is types.UnionType:
        return any(_fits(value, option) for option in get_args(hint))
    if origin is tuple:
        parts = get_args(hint)
        if type(value) is not tuple:
            return False
        if parts[-1] is Ellipsis:
            return all(_fits(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_fits, value, parts))
    if hint is n.Expr or hint is n.Stmt:
        return isinstance(value, hint) and type(value) in _FIELDS
    return type(value) is hint


def _malformed(place: Place, what: str, value: object, hint: Any) -> Diagnostic:
    wanted = hint.__name__ if isinstance(hint, type) else str(hint).replace("vyre.ir.nodes.", "")
    shown = repr(value)[:80] if isinstance(value, _SHOWN) else f"a {type(value).__name__}"
    return diagnostic("V050", place, f"{what} is {shown}, not {wanted}.")
