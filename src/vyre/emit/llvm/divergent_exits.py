"""Divergent exits: the jumps by which some lanes leave a statement before others.

Where all active lanes leave uniform, the exit is a plain jump, and no mask changes.
"""

from __future__ import annotations

from vyre.analyze.shapes import Shape, Shapes
from vyre.ir import nodes as n
from vyre.ir import walk

DivergentExits = dict[int, frozenset[type[n.Stmt]]]


def divergent_exits(body: n.Body, shapes: Shapes) -> DivergentExits:
    """Return, for each statement by identity, the jumps in it that some lanes may take without the others."""
    found: DivergentExits = {}
    _collect(body, shapes, found, uniform=True)
    return found


def _collect(body: n.Body, shapes: Shapes, found: DivergentExits, *, uniform: bool) -> frozenset[type[n.Stmt]]:
    all_exits: set[type[n.Stmt]] = set()
    for statement in body:
        exits: set[type[n.Stmt]] = set()
        inside = uniform
        match statement:
            case n.If(condition):
                inside = uniform and shapes.of(condition) is Shape.UNIFORM
            case n.Loop() | n.While():
                inside = uniform and id(statement) not in shapes.divergent
            case n.Break() | n.Continue():
                exits.add(type(statement))
            case n.Return() if not uniform:
                exits.add(n.Return)
        for inner in walk.bodies(statement):
            exits |= _collect(inner, shapes, found, uniform=inside)
        if isinstance(statement, (n.Loop, n.While)):
            exits -= {n.Break, n.Continue}
        # A statement that occurs in several places has the exits of all of them.
        found[id(statement)] = found.get(id(statement), frozenset()) | exits
        all_exits |= exits
    return frozenset(all_exits)
