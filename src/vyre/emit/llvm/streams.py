"""Which buffers does a kernel pass over once? Memory can be told what is read next, and what nobody reads soon.

What is only read, in several rows at once and not again and again in a loop, is fetched some pages before it is needed:
processors look prefetch by themselves, but not over the end of a page, and rows that they have mislead them about the one
that they do not have. What is written once and not read goes past the caches if there is more of it than they hold:
else memory is read only to be written over.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from vyre.analyze.effects import buffers_read, buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program

# How far memory is read prefetch, and in launches of how many invocations: in smaller ones, what is prefetch is likely to be
# in the hands of another thread.
PREFETCH_BYTES: Final = 8192
PREFETCH_INVOCATIONS: Final = 1 << 18
# Which constant distance makes two places of a buffer, and how many places without one are likely to be rows.
MIN_ROW_DISTANCE_BYTES: Final = 4096
MIN_ROWS: Final = 3
# What a launch writes at least to write it past the caches: as much as larger processors have.
STREAMED_BYTES: Final = 1 << 25
# Of shorter vectors, several are in one line of a cache.
MIN_VECTOR_BYTES: Final = 32


class Streams(msgspec.Struct, frozen=True):
    """The buffers to read prefetch, and those to write past the caches."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()


def streams_of(program: Program) -> Streams:
    """The buffers that a program passes over once.

    A processor keeps atomics and such writes in no order, so programs with atomics have none of them.
    """
    read: set[str] = set()
    repeated: set[str] = set()
    written: Counter[str] = Counter()
    waiting = [(program.entry, False)]
    while waiting:
        body, inside = waiting.pop()
        for statement in body:
            repeats = inside or isinstance(statement, n.Loop | n.While)
            waiting += [(inner, repeats) for inner in walk.bodies(statement)]
            for node in (statement, *(node for root in walk.operands(statement) for node in walk.postorder(root))):
                read.update(buffers_read(node))
                if repeats:
                    repeated.update(buffers_read(node))
                for buffer in buffers_written(node):
                    written[buffer] += 1 if isinstance(node, n.Store) and not repeats else 2
    host = {decl.name for decl in program.buffers if decl.role is not Role.SHARED}
    once = frozenset() if program.stats().has_atomics else {name for name in host if written[name] == 1} - read
    return Streams(frozenset(host & read - repeated - written.keys()), frozenset(once))


def prefetched_loads(program: Program, buffers: frozenset[str]) -> frozenset[int]:
    """The loads (by identity) to read prefetch: of buffers that are read in places far apart, the first to come to each.

    Where a buffer is read in one place only, processors do better by themselves.
    """
    places: dict[str, dict[object, list[tuple[int, int]]]] = {}
    for node in walk.expressions(program.entry):
        if isinstance(node, n.Load) and node.buffer in buffers:
            start, offset = _split_offset(node.index)
            key = start if isinstance(start, n.Var | n.InvocationId) else id(start)
            places.setdefault(node.buffer, {}).setdefault(key, []).append((offset, id(node)))
    prefetch: set[int] = set()
    for buffer, found in places.items():
        apart = MIN_ROW_DISTANCE_BYTES // program.buffer(buffer).dtype.bytes
        if len(found) >= MIN_ROWS or any(max(loads)[0] - min(loads)[0] >= apart for loads in found.values()):
            prefetch.update(max(loads)[1] for loads in found.values())
    return frozenset(prefetch)


def _split_offset(index: n.Expr) -> tuple[n.Expr, int]:
    """An index as another one, and how far it lies behind that."""
    match index:
        case n.BinOp("add", start, n.Lit(bits)) | n.BinOp("add", n.Lit(bits), start):
            return start, (bits + (1 << 31)) % (1 << 32) - (1 << 31)
        case n.BinOp("sub", start, n.Lit(bits)):
            return start, -bits
    return index, 0
