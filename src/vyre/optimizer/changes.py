"""Changes: which variables and buffers each loop changes, found before the walk that encodes a program.

The encoder needs them at the head of a loop, before it has seen the body.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from vyre.analyze.effects import buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.nodes import Let
from vyre.ir.program import Program

# Statements at which invocations wait for each other.
_BARRIERS: Final = (n.Barrier, *n.GRID_POINTS)
# Behind these, the writes of other invocations are visible: every written buffer may have changed.
SYNCHRONISING: Final = (*_BARRIERS, n.AsyncWait)
# Other statements and expressions by which a value may change: assignments, iterations, atomics.
_CHANGING: Final = (n.Assign, n.Loop, n.While, n.Atomic)


class Changes(NamedTuple):
    """The variables and buffers that change, whether all memory may change, and whether there is a barrier."""

    names: dict[str, None]
    buffers: dict[str, None]
    synchronises: bool = False
    has_barrier: bool = False

    def merged_with(self, other: Changes) -> Changes:
        names, buffers = {**self.names, **other.names}, {**self.buffers, **other.buffers}
        return Changes(names, buffers, self.synchronises or other.synchronises, self.has_barrier or other.has_barrier)


def changes_of(program: Program) -> tuple[set[str], dict[int, Changes], dict[str, None]]:
    """Return the assigned variables, the changes of each loop (by identity), and the buffers that are written."""
    loops: dict[int, Changes] = {}
    if not program.stats().has(*_CHANGING, *SYNCHRONISING):
        # Which buffers are written matters only at synchronizations and loops.
        return set(), loops, {decl.name: None for decl in program.buffers}

    def summary(body: n.Body) -> Changes:
        names: dict[str, None] = {}
        buffers: dict[str, None] = {}
        synchronises = has_barrier = False
        for statement in body if has_atomics else [one for one in body if type(one) is not Let]:
            cls = type(statement)
            if isinstance(statement, n.Store) and not has_atomics:
                buffers[statement.buffer] = None
                continue
            if isinstance(statement, n.Assign):
                names[statement.name] = None
            else:
                buffers.update(dict.fromkeys(buffers_written(statement)))
                synchronises |= cls in SYNCHRONISING
                has_barrier |= cls in _BARRIERS
            if has_atomics:
                for root in walk.operands(statement):
                    for node in walk.postorder(root):
                        if isinstance(node, n.Atomic):
                            buffers[node.buffer] = None
                            synchronises |= node.order is not n.MemoryOrder.RELAXED
            whole = Changes({}, {})
            for inner in walk.bodies(statement):
                whole = whole.merged_with(summary(inner))
            if isinstance(statement, (n.Loop, n.While)):
                if has_atomics and isinstance(statement, n.While):
                    for node in walk.postorder(statement.condition):
                        if isinstance(node, n.Atomic):
                            orders = node.order is not n.MemoryOrder.RELAXED
                            whole = whole.merged_with(Changes({}, {node.buffer: None}, orders))
                loops[id(statement)] = whole
            names.update(whole.names)
            buffers.update(whole.buffers)
            synchronises |= whole.synchronises
            has_barrier |= whole.has_barrier
        return Changes(names, buffers, synchronises, has_barrier)

    has_atomics = program.stats().has_atomics
    names, written, *_ = summary(program.entry)
    if program.stats().has(n.Resume):
        # The trap handler on the host may change every buffer.
        return set(names), loops, {decl.name: None for decl in program.buffers}
    return set(names), loops, {decl.name: None for decl in program.buffers if decl.name in written}


def visible_at_resumes(program: Program) -> set[int]:
    """Return the declarations (by identity) that are visible at a resume, where they may not have run."""
    found: set[int] = set()

    def visit(body: n.Body, visible: list[int]) -> None:
        mark = len(visible)
        for statement in body:
            if isinstance(statement, n.Let):
                visible.append(id(statement))
            elif isinstance(statement, n.Resume):
                found.update(visible)
            for inner in walk.bodies(statement):
                visit(inner, visible)
        del visible[mark:]

    if program.stats().has(n.Resume):
        visit(program.entry, [])
    return found
