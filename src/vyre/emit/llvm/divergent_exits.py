"""How may lanes leave a statement other than at its end, one here and one there?

Where all lanes leave together, that is a jump, and nothing has to be said of those who go on: there are none.
"""

from __future__ import annotations

from vyre.analyze.shapes import Shape, Shapes
from vyre.ir import nodes as n
from vyre.ir import walk

DivergentExits = dict[int, frozenset[type[n.Stmt]]]


def divergent_exits(body: n.Body, shapes: Shapes) -> DivergentExits:
    """For each statement (by identity), the jumps in it that some lanes may make without the others."""
    found: DivergentExits = {}
    _leave(body, shapes, found, together=True)
    return found


def _leave(body: n.Body, shapes: Shapes, found: DivergentExits, *, together: bool) -> frozenset[type[n.Stmt]]:
    every: set[type[n.Stmt]] = set()
    for statement in body:
        ways: set[type[n.Stmt]] = set()
        inside = together
        match statement:
            case n.If(condition):
                inside = together and shapes.of(condition) is Shape.UNIFORM
            case n.Loop() | n.While():
                inside = together and id(statement) not in shapes.divergent
            case n.Break() | n.Continue():
                ways.add(type(statement))
            case n.Return() if not together:
                ways.add(n.Return)
        for inner in walk.bodies(statement):
            ways |= _leave(inner, shapes, found, together=inside)
        if isinstance(statement, (n.Loop, n.While)):
            ways -= {n.Break, n.Continue}
        # What stands in several places may be left as it is in any of them.
        found[id(statement)] = found.get(id(statement), frozenset()) | ways
        every |= ways
    return frozenset(every)
