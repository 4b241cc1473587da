"""Which values are the same in all lanes of a vector, and which loops do lanes leave at different times?

Lanes run in lockstep, so a value is uniform if it is made of uniform values and nothing else; a variable is uniform if
every value it gets is, and it gets them where all lanes that can see it are. So is a variable that only one loop looks
at, as the counter of a ``while``: lanes that have left the loop never see it again, and those that are in it have made
the same passes. Found from below: everything is taken for uniform until something says otherwise, and looked at again
until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program

_ALWAYS_UNIFORM: Final = (n.Lit, n.BufLen, n.NumWorkgroups, n.SubgroupSize, n.SubgroupBallot, n.SubgroupReduce)
_ALWAYS_VARYING: Final = (n.Atomic, n.SubgroupShuffle, n.SubgroupLocalId)
_IDS: Final = (n.InvocationId, n.WorkgroupId, n.LocalId)
_MOST_PASSES: Final = 12

Id = tuple[type[n.Expr], int]


class _OpenLoop(msgspec.Struct, frozen=True):
    """A loop under way: its number, and the tokens around it and in it."""

    statement: n.Stmt
    number: int
    outside: int
    inside: int


class Shapes:
    """``varying`` are the variables that differ between lanes, ``divergent`` the loops (by identity)."""

    def __init__(self, program: Program, uniform_ids: frozenset[Id]) -> None:
        self.uniform_ids = uniform_ids
        self.varying: set[str] = set()
        self.divergent: set[int] = set()
        self._confined = _confined_to_loops(program)
        self.assigned = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}
        for _ in range(_MOST_PASSES):
            before = len(self.varying), len(self.divergent)
            self._tokens: dict[str, int] = {}
            self._count = 0
            self._loops: list[_OpenLoop] = []
            self._loop_count = 0
            self._visit(program.entry, 0)
            if before == (len(self.varying), len(self.divergent)):
                return
        # A chain of variables too long to follow: what is assigned varies, which is always safe to say.
        self.varying |= self.assigned
        self.divergent |= {id(s) for s in walk.statements(program.entry) if isinstance(s, (n.Loop, n.While))}
        self.varying |= {s.name for s in walk.statements(program.entry) if isinstance(s, n.Let)}
        self.varying |= {s.var for s in walk.statements(program.entry) if isinstance(s, n.Loop)}

    def varies(self, root: n.Expr) -> bool:
        """Whether an expression may differ between lanes."""
        stack: list[bool] = []
        for node in walk.postorder(root):
            count = len(walk.operands(node))
            given = any(stack[len(stack) - count :]) if count else False
            if count:
                del stack[-count:]
            stack.append(self._node_varies(node, given))
        return stack[0]

    def _node_varies(self, node: n.Expr, given: bool) -> bool:
        if isinstance(node, n.Var):
            return node.name in self.varying
        if isinstance(node, _ALWAYS_UNIFORM):
            return False
        if isinstance(node, _ALWAYS_VARYING):
            return True
        if isinstance(node, _IDS):
            return (type(node), node.axis) not in self.uniform_ids
        return given

    def _fresh(self) -> int:
        self._count += 1
        return self._count

    def _visit(self, body: n.Body, token: int) -> None:
        """``token`` names the set of lanes that come here: the same token, the same lanes."""
        for statement in body:
            match statement:
                case n.Let(name, value):
                    self._tokens[name] = token
                    if self.varies(value):
                        self.varying.add(name)
                case n.Assign(name, value):
                    seen_by_all = self._tokens[name] == token or self._stays_in_step(name, token)
                    if not seen_by_all or self.varies(value):
                        self.varying.add(name)
                case n.If(condition, then, otherwise):
                    varies = self.varies(condition)
                    self._visit(then, self._fresh() if varies else token)
                    self._visit(otherwise, self._fresh() if varies else token)
                case n.Loop(var, start, stop, inside):
                    if self.varies(start):
                        self.varying.add(var)
                        self.divergent.add(id(statement))
                    elif self.varies(stop):
                        self.divergent.add(id(statement))
                    self._visit_loop(statement, inside, token)
                case n.While(condition, inside):
                    if self.varies(condition):
                        self.divergent.add(id(statement))
                    self._visit_loop(statement, inside, token)
                case n.Break() | n.Continue():
                    loop = self._loops[-1]
                    if loop.inside != token:
                        self.divergent.add(id(loop.statement))
                case _:
                    for inside in walk.bodies(statement):
                        self._visit(inside, token)

    def _visit_loop(self, loop: n.Stmt, body: n.Body, token: int) -> None:
        inside = self._fresh() if id(loop) in self.divergent else token
        self._loop_count += 1
        self._loops.append(_OpenLoop(loop, self._loop_count, token, inside))
        self._visit(body, inside)
        self._loops.pop()

    def _stays_in_step(self, name: str, token: int) -> bool:
        """Whether a variable that only one loop looks at is assigned by all lanes of its passes."""
        number = self._confined.get(name)
        return any(
            loop.number == number and loop.inside == token and loop.outside == self._tokens[name]
            for loop in self._loops
        )


def _confined_to_loops(program: Program) -> dict[str, int]:
    """For each variable that is read and assigned in one loop alone, and declared anew before it: the loop's number.

    Loops are numbered in canonical order, from 1. Loops with a ``continue`` are left out: it leads around assignments.
    """
    homes: dict[str, int] = {}
    found: dict[str, int] = {}
    spoiled: set[str] = set()
    around: list[int] = []
    count = 0

    def use(name: str) -> None:
        depth = homes.get(name)
        if depth is None or depth >= len(around) or found.setdefault(name, around[depth]) != around[depth]:
            spoiled.add(name)

    def read(roots: Iterable[n.Expr]) -> None:
        for root in roots:
            for node in walk.postorder(root):
                if isinstance(node, n.Var):
                    use(node.name)

    def visit(body: n.Body) -> None:
        nonlocal count
        for statement in body:
            is_loop = isinstance(statement, (n.Loop, n.While))
            if isinstance(statement, n.Loop):
                read(walk.operands(statement))
            if is_loop:
                count += 1
                around.append(count)
            if not isinstance(statement, n.Loop):
                read(walk.operands(statement))
            match statement:
                case n.Let(name):
                    homes[name] = len(around)
                case n.Assign(name):
                    use(name)
                case n.Continue():
                    skipping.add(around[-1])
            for inner in walk.bodies(statement):
                visit(inner)
            if is_loop:
                around.pop()

    skipping: set[int] = set()
    visit(program.entry)
    return {name: loop for name, loop in found.items() if name not in spoiled and loop not in skipping}
