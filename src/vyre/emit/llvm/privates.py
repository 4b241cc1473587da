"""Which buffers may a kernel keep a copy of, and add up in the end? Small ones that are only ever added to.

If all that a program does with a buffer is to combine values into it atomically, and it never looks, then nobody can
tell in what order, or when within the launch. So each call of a kernel combines into memory of its own, without locks
and without other threads in the way, and at its end combines that into the buffer.
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.effects import buffers_read, buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp

_MOST_BYTES: Final = 4096
# How a copy that starts at zero is combined into the buffer.
_MERGING: Final = {
    AtomicOp.ADD: AtomicOp.ADD,
    AtomicOp.SUB: AtomicOp.ADD,
    AtomicOp.OR: AtomicOp.OR,
    AtomicOp.XOR: AtomicOp.XOR,
}


def private_buffers(program: Program, ignored: set[str]) -> dict[str, AtomicOp]:
    """The buffers to keep copies of, and how those are merged; ``ignored`` are the variables that nobody reads."""
    small = {
        decl.name
        for decl in program.buffers
        if decl.role is not Role.SHARED and 0 < decl.count * decl.dtype.bytes <= _MOST_BYTES
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
