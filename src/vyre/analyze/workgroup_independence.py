"""Workgroup independence: programs whose invocations do not depend on their workgroup's shape, and their fastest axis.

Such a program gives the same bytes however its invocations are grouped, so a backend may lay lanes along any axis of
the whole grid, across the ends of workgroups.
"""

from __future__ import annotations

from vyre.analyze.effects import unread_variables
from vyre.analyze.shapes import Layout, Shapes
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program, has_shared_memory
from vyre.semantics.operators import AtomicOp

# Atomics that give the same memory in every order, on integers and where nothing reads the old value.
COMMUTATIVE = frozenset(
    {AtomicOp.ADD, AtomicOp.SUB, AtomicOp.AND, AtomicOp.OR, AtomicOp.XOR, AtomicOp.MIN, AtomicOp.MAX}
)
# Any width shows which accesses are consecutive.
_LANES = 16


def is_workgroup_independent(program: Program) -> bool:
    """Whether invocations may be run over the whole grid, row by row along x.

    In workgroups of one axis that is the order of the reference interpreter. In others it is a different order, so the
    program must not observe the order, nor the ids of workgroups, whose invocations are likely to share memory.
    """
    stats = program.stats()
    if stats.has_barriers or stats.has_subgroup_ops or has_shared_memory(program):
        return False
    return program.workgroup_size[1:] == (1, 1) or may_reorder(program)


def may_reorder(program: Program) -> bool:
    """Whether no invocation observes the order of invocations, its workgroup, or its place in it."""
    stats = program.stats()
    if stats.has(n.LocalId, n.WorkgroupId) or stats.has_async or stats.has_traps:
        return False
    return not stats.has_atomics or _atomics_commute(program)


def _atomics_commute(program: Program) -> bool:
    ignored = unread_variables(program)
    for statement in walk.statements(program.entry):
        root = statement.value if isinstance(statement, n.Let) and statement.name in ignored else None
        for operand in walk.operands(statement):
            for node in walk.postorder(operand):
                if isinstance(node, n.Atomic):
                    is_exact = not program.buffer(node.buffer).dtype.is_float
                    if node is not root or node.op not in COMMUTATIVE or not is_exact:
                        return False
    return True


def fastest_axis(program: Program) -> int:
    """Return the axis of the grid along which most accesses of a program with unique names are consecutive.

    The x axis, unless another is certainly better; 0 too if the program may not be reordered.
    """
    used = {node.axis for node in walk.expressions(program.entry) if isinstance(node, n.InvocationId)}
    if used <= {0} or not may_reorder(program):
        return 0
    return max(sorted(used | {0}), key=lambda axis: _consecutive_accesses(program, axis))


def _consecutive_accesses(program: Program, axis: int) -> int:
    """Return the accesses that are consecutive along an axis, less those that are neither that nor uniform."""
    shapes = Shapes(program, Layout(program.workgroup_size, _LANES, flat=True, axis=axis))
    found = 0
    for statement in walk.statements(program.entry):
        nodes: list[n.Node] = [statement]
        for root in walk.operands(statement):
            nodes += walk.postorder(root)
        for node in nodes:
            if isinstance(node, n.Load | n.Store | n.Atomic):
                stride = shapes.of(node.index).stride
                found += 1 if stride == 1 else 0 if stride == 0 else -1
    return found
