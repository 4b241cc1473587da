"""What changes where? Asked before the walk, because at the head of a loop it has to be known what the loop will do."""

from __future__ import annotations

from typing import Final, NamedTuple

from vyre.analyze.effects import buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.nodes import Let
from vyre.ir.program import Program

# Where invocations wait for one another.
_MEETING: Final = (n.Barrier, *n.GRID_POINTS)
# Where invocations meet, whatever anyone may write can have changed.
SYNCHRONISING: Final = (*_MEETING, n.AsyncWait)

# What else may make a value something other than it was: a cell, another pass, what is read and written at once.
_CHANGING: Final = (n.Assign, n.Loop, n.While, n.Atomic)


class Changes(NamedTuple):
    """The variables and the buffers that change, whether everything may, and whether invocations meet."""

    names: dict[str, None]
    buffers: dict[str, None]
    synchronises: bool = False
    meets: bool = False

    def and_those_of(self, other: Changes) -> Changes:
        names, buffers = {**self.names, **other.names}, {**self.buffers, **other.buffers}
        return Changes(names, buffers, self.synchronises or other.synchronises, self.meets or other.meets)


def changes_of(program: Program) -> tuple[set[str], dict[int, Changes], dict[str, None]]:
    """The variables that are assigned; for each loop what it changes; and the buffers that somebody writes."""
    loops: dict[int, Changes] = {}
    if not program.stats().has(*_CHANGING, *SYNCHRONISING):
        # Who writes a buffer matters where invocations meet, and where a loop comes round.
        return set(), loops, {decl.name: None for decl in program.buffers}

    def summary(body: n.Body) -> Changes:
        names: dict[str, None] = {}
        buffers: dict[str, None] = {}
        synchronises = meets = False
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
                meets |= cls in _MEETING
            if has_atomics:
                for root in walk.operands(statement):
                    for node in walk.postorder(root):
                        if isinstance(node, n.Atomic):
                            buffers[node.buffer] = None
                            synchronises |= node.order is not n.MemoryOrder.RELAXED
            whole = Changes({}, {})
            for inner in walk.bodies(statement):
                whole = whole.and_those_of(summary(inner))
            if isinstance(statement, (n.Loop, n.While)):
                if has_atomics and isinstance(statement, n.While):
                    for node in walk.postorder(statement.condition):
                        if isinstance(node, n.Atomic):
                            orders = node.order is not n.MemoryOrder.RELAXED
                            whole = whole.and_those_of(Changes({}, {node.buffer: None}, orders))
                loops[id(statement)] = whole
            names.update(whole.names)
            buffers.update(whole.buffers)
            synchronises |= whole.synchronises
            meets |= whole.meets
        return Changes(names, buffers, synchronises, meets)

    has_atomics = program.stats().has_atomics
    names, written, *_ = summary(program.entry)
    if program.stats().has(n.Resume):
        # The host's handler is given every buffer to change.
        return set(names), loops, {decl.name: None for decl in program.buffers}
    return set(names), loops, {decl.name: None for decl in program.buffers if decl.name in written}


def visible_at_resumes(program: Program) -> set[int]:
    """The declarations (by identity) that whoever comes back at a resume sees, though he may not have passed them."""
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
