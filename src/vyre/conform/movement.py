"""How do generated programs move bytes between buffers without a race?

Either each invocation fills elements of its own, or all of them write the same bytes into a buffer that nobody
touches otherwise.
"""

from __future__ import annotations

from vyre.conform.discipline import Level, Mode, State, buffers_in, is_shared_memory, own_start
from vyre.conform.expressions import expression
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Expr, Stmt, lit
from vyre.semantics.types import DType


def own_transfer(state: State) -> n.AsyncStore | None:
    """From the start of a buffer that everyone reads, to elements of the invocation's own."""
    pair = _pair(state, Mode.OWNED)
    if pair is None:
        return None
    source, destination = pair
    offset, size = _own_bytes(state, destination)
    return n.AsyncStore(source.name, destination.name, offset, size, _next_tag(state, "store"))


def same_transfer(state: State) -> n.AsyncLoad | None:
    """From a buffer that everyone reads, the same bytes by everyone, to a buffer that nobody else touches."""
    pair = _pair(state, Mode.FILLED)
    if pair is None:
        return None
    source, destination = pair
    offset, size = _same_bytes(state, source, destination)
    return n.AsyncLoad(source.name, destination.name, offset, size, _next_tag(state, "load"))


def copy_bytes(state: State) -> list[Stmt] | None:
    """As a transfer, but at once and between any two places."""
    mode = state.random.choice((Mode.OWNED, Mode.FILLED))
    pair = _pair(state, mode)
    if pair is None:
        return None
    source, destination = pair
    unit = _unit(destination)
    if mode is Mode.FILLED:
        start, size = _same_bytes(state, source, destination)
        return [n.CopyBytes(source.name, destination.name, start, lit(unit * state.random.randrange(4)), size)]
    start, size = _own_bytes(state, destination)
    source_start = expression(state, DType.U32, Level.DIVERGENT, 1) % n.BufLen(source.name) * unit
    return [n.CopyBytes(source.name, destination.name, source_start, start, size)]


def _pair(state: State, mode: Mode) -> tuple[BufferDecl, BufferDecl] | None:
    """A buffer that everyone reads and another, in this mode, that its bytes may be written to."""
    pairs = [
        (source, destination)
        for source in buffers_in(state, Mode.SHARED)
        for destination in buffers_in(state, mode)
        if _compatible(source, destination)
    ]
    if mode is Mode.FILLED:
        pairs = [
            (source, destination)
            for source, destination in pairs
            if state.uses[destination.name].serial not in state.spent
            and (is_shared_memory(destination) or not is_shared_memory(source))
        ]
    return state.random.choice(pairs) if pairs and state.profile.transfers else None


def _compatible(source: BufferDecl, destination: BufferDecl) -> bool:
    """Whether any bytes of source are elements of destination: a float or a bool has patterns it never holds."""
    return source is not destination and (destination.dtype.is_integer or source.dtype is destination.dtype)


def _unit(destination: BufferDecl) -> int:
    """What offsets and sizes must be multiples of, so that no part of an element moves where that makes no element."""
    return 1 if destination.dtype.is_integer else destination.dtype.bytes


def _own_bytes(state: State, destination: BufferDecl) -> tuple[Expr, Expr]:
    """The offset and the size in bytes of some of the invocation's own elements."""
    size = destination.dtype.bytes * state.random.randint(0, state.uses[destination.name].stride)
    if destination.dtype.is_integer and size and state.random.random() < 0.3:
        size -= 1
    return own_start(state, destination) * destination.dtype.bytes, lit(size)


def _same_bytes(state: State, source: BufferDecl, destination: BufferDecl) -> tuple[Expr, Expr]:
    """An offset and a size that are the same at every time, for all who share the destination."""
    state.spent.add(state.uses[destination.name].serial)
    unit = _unit(destination)
    offset: Expr = lit(unit * state.random.randrange(8))
    if state.random.random() < 0.3:
        offset = (n.WorkgroupId(0) if is_shared_memory(destination) else n.NumWorkgroups(0)) * unit
    size: Expr = lit(unit * state.random.randrange(24))
    if state.random.random() < 0.3:
        size = n.BufLen(source.name) * unit
    return offset, size


def _next_tag(state: State, prefix: str) -> str:
    state.tags += 1
    return f"{prefix}{state.tags}"
