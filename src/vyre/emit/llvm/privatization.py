"""Privatization: small buffers to which a kernel only adds are accumulated in private memory and merged at the end.

If a program only combines values into a buffer by atomics and ignores their results, the order of the changes within a
launch is unobservable. Each call of a kernel therefore accumulates into private memory, without locks or contention,
and merges the result into the buffer at its end. The private memory contains several copies, used by neighbouring lanes
in turn: a single copy would often make a load wait for the store of the lane before.
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.effects import buffers_read, buffers_written, unread_variables
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import STORED, Code
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp

_MAX_BYTES: Final = 4096
# All copies together must leave most of the first-level cache to other data.
_MAX_COPIES: Final = 8
_MAX_BYTES_OF_COPIES: Final = 8192
# The operator that merges a copy, which starts at zero, into the buffer.
_MERGING: Final = {
    AtomicOp.ADD: AtomicOp.ADD,
    AtomicOp.SUB: AtomicOp.ADD,
    AtomicOp.OR: AtomicOp.OR,
    AtomicOp.XOR: AtomicOp.XOR,
}


def privatized_buffers(program: Program) -> dict[str, AtomicOp]:
    """Return the buffers to privatize and their merge operators."""
    ignored = unread_variables(program)
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
    """Return the number of copies of a private buffer of ``size`` bytes."""
    return min(lanes, _MAX_COPIES, _MAX_BYTES_OF_COPIES // size)


def merge_copies(code: Code, op: AtomicOp, private: m.Place, place: m.Place) -> None:
    """Merge a kernel's private copies into the buffer."""
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
    m.change_one(code, op, n.MemoryOrder.RELAXED, place, at, total, "", checked=False)
    code.fall_through(latch)
    code.do(f"{following} = add i32 {at}, 1")
    code.go(head)
    code.begin(end)
