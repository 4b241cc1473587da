"""Which buffers does a node touch? The memory effects of one node by itself, without what is inside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp

_BUFFER: Final = attrgetter("buffer")
_SOURCE: Final = attrgetter("source")
_DESTINATION: Final = attrgetter("destination")
_TRANSFERS: Final = (n.AsyncLoad, n.AsyncStore, n.CopyBytes, n.AllGather, n.ReduceScatter)
# By class, since most nodes touch nothing and are asked all the same.
_READ: Final[dict[type, Callable[[Any], str]]] = {
    **dict.fromkeys((n.Load, n.Atomic, n.AllReduce, n.Broadcast), _BUFFER),
    **dict.fromkeys(_TRANSFERS, _SOURCE),
}
_WRITTEN: Final[dict[type, Callable[[Any], str]]] = {
    **dict.fromkeys((n.Store, n.Atomic, n.AllReduce, n.Broadcast), _BUFFER),
    **dict.fromkeys(_TRANSFERS, _DESTINATION),
}
# Which fields of a node name buffers, or the variable that it reads, by class.
_NAMING: Final[dict[type, list[str]]] = {
    **{
        cls: [field for field in ("buffer", "source", "destination", "count_buffer") if field in cls.__struct_fields__]
        for cls in (*n.EXPRESSION_CLASSES, *n.STATEMENT_CLASSES)
    },
    n.Var: ["name"],
}


def buffers_read(node: n.Node) -> tuple[str, ...]:
    """The buffers whose elements a node reads; an atomic gives the old element, so each of them reads."""
    get = _READ.get(type(node))
    return () if get is None else (get(node),)


def buffers_written(node: n.Node) -> tuple[str, ...]:
    """The buffers a node writes; a transfer is said to write where it is issued, though its wait does."""
    get = _WRITTEN.get(type(node))
    if get is None or (isinstance(node, n.Atomic) and node.op is AtomicOp.LOAD):
        return ()
    return (get(node),)


def writes_of_statements(program: Program) -> Iterator[tuple[n.Stmt, set[str]]]:
    """Each statement in canonical order with the buffers that it writes, by itself or by an atomic in its operands."""
    has_atomics = program.stats().has_atomics
    for statement in walk.statements(program.entry):
        written = set(buffers_written(statement))
        for root in walk.operands(statement) if has_atomics else ():
            for node in walk.postorder(root):
                written.update(buffers_written(node))
        yield statement, written


def written_buffers(program: Program) -> frozenset[str]:
    """The buffers that some statement of the program writes."""
    return frozenset().union(*(written for _, written in writes_of_statements(program)))


def assigned_variables(program: Program) -> set[str]:
    """The variables that some statement of the program assigns."""
    return {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}


def unread_variables(program: Program) -> set[str]:
    """The variables of a program with unique names that nothing reads or assigns."""
    found = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Let)}
    found.difference_update(node.name for node in walk.expressions(program.entry) if isinstance(node, n.Var))
    return found - assigned_variables(program)


def used_names(body: n.Body) -> set[str]:
    """The variables that a list reads, and the buffers that it reads, writes, measures or transfers."""
    found: set[str] = set()
    for statement in walk.statements(body):
        found.update(_named(statement))
        for root in walk.operands(statement):
            for node in walk.postorder(root):
                found.update(_named(node))
    return found


def _named(node: n.Node) -> list[str]:
    return [getattr(node, field) for field in _NAMING[type(node)]]
