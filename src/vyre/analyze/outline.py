"""What is the shape of a program? Facts of whole loops and programs that a walk in order needs before it is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from vyre.analyze.types import Malformed
from vyre.ir import nodes as n
from vyre.ir.limits import MAX_NESTING, MAX_STATEMENTS
from vyre.ir.program import Program
from vyre.ir.walk import BODIES


def is_grid_point(statement: n.Stmt) -> bool:
    """Whether the whole grid waits at a statement: a grid barrier, a resume or a collective."""
    if isinstance(statement, n.Barrier):
        return statement.order is n.MemoryOrder.GRID_SYNC
    return type(statement) in n.GRID_POINTS


_TRANSFERS: Final = frozenset({n.AsyncLoad, n.AsyncStore, n.AsyncWait})
_LOOPS: Final = frozenset({n.Loop, n.While})


class LoopShape(msgspec.Struct):
    """What happens somewhere inside a loop.

    ``assigned`` are at least the names that it assigns, inner loops included; ``declared`` those that it declares
    outside inner loops; ``repeated`` those that it assigns (or declares, then assigns) both inside an inner loop and
    elsewhere. Dictionaries stand for sets that keep their order.
    """

    assigned: dict[str, None]
    declared: dict[str, None]
    repeated: dict[str, None]
    synchronises_workgroup: bool = False
    synchronises_grid: bool = False
    resumes: bool = False


class Outline(msgspec.Struct):
    """The shape of a program; ``loops`` are in canonical order. Counting stops one over a limit."""

    statements: int
    nesting: int
    loops: list[LoopShape]
    synchronises: bool
    transfers: bool
    resumed: frozenset[str]


def outline(program: Program) -> Outline:
    """Walks the statements once, expressions not at all."""
    getters = BODIES
    whole = LoopShape({}, {}, {})
    shapes: list[LoopShape] = []
    # One entry for each open list, with the innermost loop around it and how deep the lists inside it are.
    pending: list[tuple[Iterator[n.Stmt], LoopShape, int]] = [(iter(program.entry), whole, 1)]
    loops = [whole]
    resumed: set[str] = set()
    transfers = traps = False
    statements = nesting = 0
    while pending:
        todo, shape, depth = pending[-1]
        while loops[-1] is not shape:
            _close(loops, traps)
        for statement in todo:
            statements += 1
            cls = type(statement)
            if cls is n.Let:
                if shape is not whole:
                    shape.declared[statement.name] = None  # type: ignore[attr-defined]
                continue
            if cls is n.Assign:
                if shape is not whole:
                    _assign(shape, statement.name)  # type: ignore[attr-defined]
                continue
            get = getters[cls]
            if get is None:
                if cls is n.Barrier:
                    shape.synchronises_workgroup = True
                    shape.synchronises_grid |= statement.order is n.MemoryOrder.GRID_SYNC  # type: ignore[attr-defined]
                elif cls in n.GRID_POINTS:
                    shape.synchronises_workgroup = shape.synchronises_grid = True
                    if isinstance(statement, n.Resume):
                        resumed.add(statement.tag)
                        shape.resumes = True
                elif cls in _TRANSFERS:
                    transfers = True
                elif cls is n.Trap:
                    traps = True
                continue
            nesting = max(nesting, depth)
            if nesting > MAX_NESTING or statements > MAX_STATEMENTS:
                return Outline(statements, nesting, shapes, False, False, frozenset())
            if cls in _LOOPS:
                shape = LoopShape({}, {}, {})
                if isinstance(statement, n.Loop):
                    shape.declared[statement.var] = None
                shapes.append(shape)
                loops.append(shape)
            pending.extend((_listed(body), shape, depth + 1) for body in reversed(get(statement)))
            break
        else:
            pending.pop()
    while len(loops) > 1:
        _close(loops, traps)
    return Outline(statements, nesting, shapes, whole.synchronises_workgroup, transfers, frozenset(resumed))


def _listed(body: n.Body) -> Iterator[n.Stmt]:
    if type(body) is not tuple:
        raise Malformed
    return iter(body)


def _assign(shape: LoopShape, name: str) -> None:
    if name in shape.declared:
        return
    if name in shape.assigned:
        shape.repeated[name] = None
    shape.assigned[name] = None


def _close(loops: list[LoopShape], exact: bool) -> None:
    """Tells the loop around a finished one what happens in it.

    The larger set of names is kept, not copied, so the finished loop seems to assign what the one around it does. That
    would matter where somebody may be parked, so behind a trap names are ``exact``.
    """
    inner = loops.pop()
    outer = loops[-1]
    outer.synchronises_workgroup |= inner.synchronises_workgroup
    outer.synchronises_grid |= inner.synchronises_grid
    if len(loops) == 1:
        return
    if len(inner.assigned) <= len(outer.assigned) + len(outer.declared):
        for name in inner.assigned:
            if name in outer.assigned or name in outer.declared:
                outer.repeated[name] = None
            outer.assigned[name] = None
        return
    for names in (outer.assigned, outer.declared):
        for name in names:
            if name in inner.assigned:
                outer.repeated[name] = None
    if exact:
        outer.assigned = outer.assigned | inner.assigned
        return
    inner.assigned.update(outer.assigned)
    outer.assigned = inner.assigned
