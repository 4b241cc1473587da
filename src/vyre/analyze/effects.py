"""Which buffers does a node touch? The memory effects of one node by itself, without what is inside it."""

from __future__ import annotations

from collections.abc import Iterator

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp


def buffers_read(node: n.Node) -> tuple[str, ...]:
    """The buffers whose elements a node reads; an atomic gives the old element, so each of them reads."""
    match node:
        case n.Load() | n.Atomic() | n.AllReduce() | n.Broadcast():
            return (node.buffer,)
        case n.AsyncLoad() | n.AsyncStore() | n.CopyBytes() | n.AllGather() | n.ReduceScatter():
            return (node.source,)
    return ()


def buffers_written(node: n.Node) -> tuple[str, ...]:
    """The buffers a node writes; a transfer is said to write where it is issued, though its wait does."""
    match node:
        case n.Store() | n.AllReduce() | n.Broadcast():
            return (node.buffer,)
        case n.Atomic(op, buffer) if op is not AtomicOp.LOAD:
            return (buffer,)
        case n.AsyncLoad() | n.AsyncStore() | n.CopyBytes() | n.AllGather() | n.ReduceScatter():
            return (node.destination,)
    return ()


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
