"""Streaming buffers: those that a kernel passes over once, for prefetches and non-temporal stores.

Buffers that are only read, in several rows at once and not repeatedly in a loop, are prefetched some pages ahead: the
processor's own prefetcher stops at page boundaries, and cached rows mislead it about the row that is not cached.
Buffers that are written once and not read are stored past the caches if they exceed the cache size: otherwise memory
would be read only to be overwritten.
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

# The prefetch distance, and the least number of invocations of a launch that prefetches: in smaller launches, the
# prefetched memory is likely to belong to another thread.
PREFETCH_BYTES: Final = 8192
PREFETCH_INVOCATIONS: Final = 1 << 18
# The least constant distance between accesses to different rows, and the least number of unrelated accesses that are
# likely to be rows.
MIN_ROW_DISTANCE_BYTES: Final = 4096
MIN_ROWS: Final = 3
# The least number of bytes that a launch stores past the caches: the cache size of larger processors.
STREAMED_BYTES: Final = 1 << 25
# Several shorter vectors would share a cache line.
MIN_VECTOR_BYTES: Final = 32


class Streams(msgspec.Struct, frozen=True):
    """The buffers to prefetch, and those to store past the caches."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()


def streams_of(program: Program) -> Streams:
    """Return the buffers that a program passes over once.

    Non-temporal stores are not ordered with atomics, so programs with atomics have none.
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
    """Return the loads (by identity) to prefetch: in buffers with several rows, the first load to reach each row.

    Buffers with a single row are left to the processor's own prefetcher.
    """
    places: dict[str, dict[object, list[tuple[int, int]]]] = {}
    for node in walk.expressions(program.entry):
        if isinstance(node, n.Load) and node.buffer in buffers:
            start, offset = _split_offset(node.index)
            key = start if isinstance(start, n.Var | n.InvocationId) else id(start)
            places.setdefault(node.buffer, {}).setdefault(key, []).append((offset, id(node)))
    chosen: set[int] = set()
    for buffer, found in places.items():
        apart = MIN_ROW_DISTANCE_BYTES // program.buffer(buffer).dtype.bytes
        if len(found) >= MIN_ROWS or any(max(loads)[0] - min(loads)[0] >= apart for loads in found.values()):
            chosen.update(max(loads)[1] for loads in found.values())
    return frozenset(chosen)


def _split_offset(index: n.Expr) -> tuple[n.Expr, int]:
    """Split an index into a base and a constant offset."""
    match index:
        case n.BinOp("add", start, n.Lit(bits)) | n.BinOp("add", n.Lit(bits), start):
            return start, (bits + (1 << 31)) % (1 << 32) - (1 << 31)
        case n.BinOp("sub", start, n.Lit(bits)):
            return start, -bits
    return index, 0
