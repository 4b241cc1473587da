"""Which buffers may a kernel keep a copy of, and add up in the end? Small ones that are only ever added to.

If all that a program does with a buffer is to combine values into it atomically, and it never looks, then nobody can
tell in what order, or when within the launch. So each call of a kernel combines into memory of its own, without locks
and without other threads in the way, and at its end combines that into the buffer. That memory holds the buffer several
times, for neighbouring lanes: a processor that runs far prefetch would often load what the lane before is about to store.
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.effects import buffers_read, buffers_written
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import STORED, Code
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp

_MAX_BYTES: Final = 4096
# All copies together leave most of a processor's nearest cache to others.
_MAX_COPIES: Final = 8
_MAX_BYTES_OF_COPIES: Final = 8192
# How a copy that starts at zero is combined into the buffer.
_MERGING: Final = {
    AtomicOp.ADD: AtomicOp.ADD,
    AtomicOp.SUB: AtomicOp.ADD,
    AtomicOp.OR: AtomicOp.OR,
    AtomicOp.XOR: AtomicOp.XOR,
}


def privatized_buffers(program: Program, ignored: set[str]) -> dict[str, AtomicOp]:
    """The buffers to keep copies of, and how those are merged; ``ignored`` are the variables that nobody reads."""
    small = {
        decl.name
        for decl in program.buffers
        if decl.role is not Role.SHARED and 0 < decl.count * decl.dtype.bytes <= _MAX_BYTES
    }
    found: dict[str, AtomicOp] = {}
    spoiled: set[str] = set()
    for statement in walk.statements(program.entry):
        spoiled.update(buffers_read(statement), buffers_written(statement))
        root = statement.value if isinstance(statement, n.Let) and statement.name in ignored else None
        for operand in walk.operands(statement):
            for node in walk.postorder(operand):
                if isinstance(node, n.Atomic) and node is root and node.op in _MERGING:
                    if found.setdefault(node.buffer, _MERGING[node.op]) is not _MERGING[node.op]:
                        spoiled.add(node.buffer)
                else:
                    spoiled.update(buffers_read(node))
    return {name: op for name, op in found.items() if name in small and name not in spoiled}


def copies_of(size: int, lanes: int) -> int:
    """How many copies of a private buffer of so many bytes a kernel of so many lanes has."""
    return min(lanes, _MAX_COPIES, _MAX_BYTES_OF_COPIES // size)


def merge_copies(code: Code, op: AtomicOp, private: m.Place, place: m.Place) -> None:
    """Combines a kernel's own copies into the buffer."""
    before, head, body, change, latch, end = (
        code.label(hint) for hint in ("before", "merge", "cell", "change", "latch", "merged")
    )
    kind, size = STORED[place.dtype], place.dtype.bytes
    code.fall_through(before)
    copies = [m.copy_of(code, private, number) for number in range(private.copies)]
    code.fall_through(head)
    following = f"%{latch}.at"
    at = code.put(f"phi i32 [ 0, %{before} ], [ {following}, %{latch} ]")
    code.branch(code.put(f"icmp ult i32 {at}, {place.length}"), body, end)
    code.begin(body)
    values = [code.put(f"load {kind}, ptr {m.element_address(code, copy, at, 0)}, align {size}") for copy in copies]
    total = values[0]
    for value in values[1:]:
        total = Lanes(code, 0).op(op.value, kind, total, value)
    code.branch(code.put(f"icmp ne {kind} {total}, 0"), change, latch)
    code.begin(change)
    m.change_once(code, op, place, at, total)
    code.fall_through(latch)
    code.do(f"{following} = add i32 {at}, 1")
    code.go(head)
    code.begin(end)
