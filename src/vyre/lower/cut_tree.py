"""Cut trees: the exit points of a program, and the statements around them.

An exit point is a statement at which an invocation may leave a segment: a cut, a trap, or a return that later segments
must respect. The tree contains only statements that enclose exit points; all others remain whole. The checker bounds
nesting, so recursion is safe here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final

import msgspec

from vyre.analyze.outline import is_grid_point
from vyre.errors import InvalidProgram, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_NESTING
from vyre.ir.program import Program

BREAK: Final = 1
CONTINUE: Final = 2


class Scope(Enum):
    """The set of invocations that a cut synchronises."""

    WORKGROUP = "workgroup"
    GRID = "grid"


def is_cut(statement: n.Stmt, scope: Scope) -> bool:
    """Whether a program is cut at this statement."""
    return is_grid_point(statement) or (scope is Scope.WORKGROUP and isinstance(statement, n.Barrier))


class ExitPoint(msgspec.Struct, eq=False):
    """A statement at which an invocation leaves a segment: a return, or one of the subclasses.

    ``number`` is the canonical number of the statement, ``index`` its index in ``owner``.
    """

    number: int
    owner: CutList
    index: int


class Cut(ExitPoint, eq=False):
    """A statement after which another segment continues; ``order`` counts cuts from 1."""

    statement: n.Stmt
    order: int


class Trap(ExitPoint, eq=False):
    """A trap, and the resume at which its invocations go on; None if no resume follows."""

    tag: str
    address: n.Expr
    resume: Cut | None = None


class Nest(msgspec.Struct, eq=False):
    """A statement whose lists contain exit points."""

    statement: n.Stmt
    owner: CutList
    index: int
    lists: list[CutList]


class CutList(msgspec.Struct, eq=False):
    """A list of statements with exit points; ``first`` is the canonical number of its first statement.

    For each item, ``jumps`` are the jumps it may make out of the innermost loop around the list, ``sizes`` its number
    of statements, and ``heights`` how deep lists nest in it. ``declared`` are the variables of this list's scope in
    order, a loop's own variable first.
    """

    parent: Nest | None
    first: int
    items: list[n.Stmt | ExitPoint | Nest] = []
    jumps: list[int] = []
    sizes: list[int] = []
    heights: list[int] = []
    declared: list[str] = []

    def enclosing(self) -> Iterator[Nest]:
        """Yield the statements around this list, from the inside out."""
        inner = self
        while inner.parent is not None:
            yield inner.parent
            inner = inner.parent.owner

    def index_of(self, point: ExitPoint) -> int:
        """Return the index of the item of this list that is the point or contains it."""
        return next((nest.index for nest in point.owner.enclosing() if nest.owner is self), point.index)


class CutTree(msgspec.Struct, eq=False):
    """The exit points of a program and the lists around them; ``returns``: some return is an exit point."""

    root: CutList
    cuts: list[Cut]
    traps: list[Trap]
    returns: bool

    def is_straight(self) -> bool:
        """Whether each segment is always followed by the next."""
        if self.traps:
            return False
        for cut in self.cuts:
            if any(isinstance(nest.statement, (n.If, n.Loop, n.While)) for nest in cut.owner.enclosing()):
                return False
            if self.returns and isinstance(cut.statement, (n.AllGather, n.ReduceScatter)):
                # If all invocations have returned, the collective must not copy.
                return False
        return True


def build_tree(program: Program, scope: Scope) -> CutTree:
    """Build the tree of a checked program whose variables have unique names."""
    if program.stats().nesting > 2 * MAX_NESTING:
        raise InvalidProgram(
            f"with its calls inlined, '{program.name}' nests {program.stats().nesting} deep.",
            "call fewer operations from inside one another.",
        )
    return _Builder(program, scope).build()


class _Builder:
    def __init__(self, program: Program, scope: Scope) -> None:
        self.entry = program.entry
        self.scope = scope
        order = list(walk.statements(program.entry))
        self.sizes = [1] * len(order)
        self.heights = [0] * len(order)
        self.jumps = [0] * len(order)
        self.marked = [False] * len(order)
        self._measure(order)
        self.tree = CutTree(CutList(None, 0), [], [], False)

    def _measure(self, order: list[n.Stmt]) -> None:
        """Compute size, height, jumps and exit points of every statement, including nested statements."""
        parents = [-1] * len(order)
        holds_cut = [is_cut(statement, self.scope) for statement in order]
        last_cut = max((number for number, cut in enumerate(holds_cut) if cut), default=-1)
        for number in range(len(order) - 1, -1, -1):
            statement = order[number]
            bodies = walk.bodies(statement)
            size, height = 1, int(bool(bodies))
            jumps = BREAK if isinstance(statement, n.Break) else 0
            jumps |= CONTINUE if isinstance(statement, n.Continue) else 0
            for body in bodies:
                for _ in body:
                    inner = number + size
                    parents[inner] = number
                    jumps |= self.jumps[inner]
                    holds_cut[number] |= holds_cut[inner]
                    height = max(height, 1 + self.heights[inner])
                    size += self.sizes[inner]
            if isinstance(statement, (n.Loop, n.While)):
                jumps = 0
                if holds_cut[number]:
                    # A return after a cut comes before it in the loop's next iteration.
                    last_cut = len(order)
            self.sizes[number], self.heights[number], self.jumps[number] = size, height, jumps
        for number in range(len(order) - 1, -1, -1):
            match order[number]:
                case n.Trap():
                    self.marked[number] = True
                case n.Return():
                    self.marked[number] = number < last_cut
            self.marked[number] |= holds_cut[number]
            if self.marked[number] and parents[number] >= 0:
                self.marked[parents[number]] = True

    def build(self) -> CutTree:
        self.tree.root = self._list(None, self.entry, 0)
        return self.tree

    def _list(self, parent: Nest | None, body: n.Body, first: int) -> CutList:
        made = CutList(parent, first)
        if parent is not None and isinstance(parent.statement, n.Loop):
            made.declared.append(parent.statement.var)
        number = first
        for index, statement in enumerate(body):
            made.jumps.append(self.jumps[number])
            made.sizes.append(self.sizes[number])
            made.heights.append(self.heights[number])
            made.items.append(self._item(made, index, statement, number))
            if isinstance(statement, n.Let):
                made.declared.append(statement.name)
            number += self.sizes[number]
        return made

    def _item(self, owner: CutList, index: int, statement: n.Stmt, number: int) -> n.Stmt | ExitPoint | Nest:
        if not self.marked[number]:
            return statement
        tree = self.tree
        match statement:
            case n.Trap(address, tag):
                trap = Trap(number, owner, index, tag, address)
                tree.traps.append(trap)
                return trap
            case n.Return():
                tree.returns = True
                return ExitPoint(number, owner, index)
        bodies = walk.bodies(statement)
        if not bodies:
            cut = Cut(number, owner, index, statement, len(tree.cuts) + 1)
            tree.cuts.append(cut)
            if isinstance(statement, n.Resume):
                self._match_traps(cut, statement.tag)
            return cut
        nest = Nest(statement, owner, index, [])
        first = number + 1
        for body in bodies:
            nest.lists.append(self._list(nest, body, first))
            for _ in body:
                first += self.sizes[first]
        return nest

    def _match_traps(self, cut: Cut, tag: str) -> None:
        """Match a resume with the unmatched traps of its tag inside earlier statements of its list."""
        for trap in reversed(self.tree.traps):
            if trap.number < cut.owner.first:
                break
            if trap.resume is None and trap.tag == tag:
                trap.resume = cut
                if any(cut.owner.jumps[cut.owner.index_of(trap) : cut.index]):
                    raise UnsupportedFeature(
                        f"a jump out of a loop past the resume of '{tag}'",
                        "vyre.lower",
                        "let every invocation of the grid reach the resume before it leaves the loop iteration.",
                    )
