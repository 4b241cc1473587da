"""Barrier removal: drop barriers that separate nothing, and narrow grid barriers that only a workgroup needs.

A barrier is needed if memory that is written on one side of it may be read or written by another invocation on the
other side. Sides are barrier intervals: the parts of the program that control flow joins without a barrier, around the
back edges of loops too. Removing a barrier joins its two intervals, so intervals only grow, and one pass finds every
barrier that can be removed. Each access is visited once: an interval keeps a summary of each buffer.

Two accesses do not conflict if their indices give each invocation cells of its own (``vyre.optimizer.cells``). The
grid is taken to have one axis only if the caller says so: on more axes, several invocations have the same ``gid.x``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from vyre.analyze.effects import assigned_variables, buffers_read, buffers_written, written_buffers
from vyre.analyze.outline import is_grid_point
from vyre.checker import check
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.optimizer.cells import WORDS, Form, Geometry, Scope, Value, Values, sole

# These order accesses of the host or of another rank, which this pass does not model.
_NOT_FOLLOWED: Final = (n.Trap, *n.GRID_POINTS, n.OpaqueStmt, n.OpaqueExpr, n.Call)
_TRANSFERS: Final = (n.AsyncLoad, n.AsyncStore)
_WORKGROUP_BARRIER: Final = n.Barrier()


class RemovedBarriers(NamedTuple):
    """The program without needless barriers, how many were removed or narrowed, and for which grids that holds.

    ``most_workgroups`` is None if it holds for every grid; otherwise it holds for grids of one axis and at most so
    many workgroups.
    """

    program: Program
    removed: int
    most_workgroups: int | None = None


def remove_barriers(program: Program, *, one_axis: bool = False) -> RemovedBarriers:
    """Remove the barriers of a legal program that separate nothing; ``one_axis`` limits it to grids of one axis."""
    stats = program.stats()
    if not stats.has_barriers or stats.has(*_NOT_FOLLOWED):
        return RemovedBarriers(program, 0)
    # A grid that is read from memory may have any shape.
    geometry = Geometry(program.workgroup_size, one_axis=one_axis and not stats.has_indirect_dispatch)
    for owns_cells in (True, False):
        found = _removed(program, geometry, owns_cells)
        # Control flow must stay uniform by the checker's rules, which know nothing of cells of one invocation.
        if not found.removed or not check(found.program).errors:
            return found
    return RemovedBarriers(program, 0)


def _removed(program: Program, geometry: Geometry, owns_cells: bool) -> RemovedBarriers:
    better, narrowed, most = program, frozenset[int](), None
    if program.stats().has_grid_sync:
        geometry.most_workgroups = None
        narrowed = _needless(program, geometry, Scope.GRID, owns_cells)
        if narrowed:
            better, most = _replaced(program, narrowed, (_WORKGROUP_BARRIER,)), geometry.most_workgroups
    needless = _needless(better, geometry, Scope.WORKGROUP, owns_cells)
    if needless:
        better = _replaced(better, needless, ())
    return RemovedBarriers(better, len(narrowed | needless), most)


def _replaced(program: Program, numbers: frozenset[int], by: n.Body) -> Program:
    """Return the program with some barriers, by their numbers in canonical order, replaced."""
    count = 0

    def replace(statement: n.Stmt) -> n.Body:
        nonlocal count
        if not isinstance(statement, n.Barrier):
            return (statement,)
        count += 1
        return by if count - 1 in numbers else (statement,)

    return program.with_entry(walk.rewrite(program.entry, on_statement=replace))


def _needless(program: Program, geometry: Geometry, scope: Scope, owns_cells: bool) -> frozenset[int]:
    """Return the barriers that order nothing between members of a scope: invocations of a workgroup, or workgroups."""
    return _Intervals(program, geometry, scope, owns_cells).needless()


class _Cells(msgspec.Struct):
    """Cells of a buffer that accesses touch: those of one ``key`` (None: of several), at offsets low to high."""

    key: Any
    low: int
    high: int

    def add(self, other: _Cells) -> None:
        if self.key != other.key:
            self.key = None
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)


class _Side(msgspec.Struct):
    """The cells of a buffer that an interval reads and writes."""

    read: _Cells | None = None
    written: _Cells | None = None

    def add(self, other: _Side) -> None:
        for name in ("read", "written"):
            mine, cells = getattr(self, name), getattr(other, name)
            if cells is None:
                continue
            if mine is None:
                setattr(self, name, msgspec.structs.replace(cells))
            else:
                mine.add(cells)


class _Barrier(NamedTuple):
    number: int
    before: int
    after: int


class _Loop(NamedTuple):
    head: int
    behind: int


class _Intervals:
    """The barrier intervals of a program, as sets of points that control flow joins without a barrier."""

    def __init__(self, program: Program, geometry: Geometry, scope: Scope, owns_cells: bool) -> None:
        self.program = program
        self.geometry, self.scope, self.owns_cells = geometry, scope, owns_cells
        shared = {decl.name for decl in program.buffers if decl.role is Role.SHARED}
        # Another workgroup sees nothing of workgroup memory.
        self.ignored = shared if scope is Scope.GRID else set()
        self.written = written_buffers(program)
        self.values = Values(program, assigned_variables(program), self.written)
        self.destinations: dict[str, set[str]] = {}
        for statement in walk.statements(program.entry) if program.stats().has_async else ():
            if isinstance(statement, _TRANSFERS):
                self.destinations.setdefault(statement.tag, set()).add(statement.destination)
        self.parents = [0]
        self.sides: list[dict[str, _Side]] = [{}]
        self.barriers: list[_Barrier] = []
        self.number = 0
        self.here = 0
        self.members: list[Any] = []
        self.loops: list[_Loop] = []

    def needless(self) -> frozenset[int]:
        """Return the numbers of the barriers without a conflict between their sides."""
        self._list(self.program.entry)
        found: set[int] = set()
        for barrier in self.barriers:
            before, after = self._root(barrier.before), self._root(barrier.after)
            if not self._conflict(self.sides[before], self.sides[after]):
                found.add(barrier.number)
                self._join(before, after)
        return frozenset(found)

    # Points, joined into intervals.

    def _point(self) -> int:
        self.parents.append(len(self.parents))
        self.sides.append({})
        return len(self.parents) - 1

    def _root(self, point: int) -> int:
        parents = self.parents
        while parents[point] != point:
            parents[point] = parents[parents[point]]
            point = parents[point]
        return point

    def _join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a == b:
            return
        if len(self.sides[a]) < len(self.sides[b]):
            a, b = b, a
        for name, side in self.sides[b].items():
            self.sides[a].setdefault(name, _Side()).add(side)
        self.sides[b] = {}
        self.parents[b] = a

    def _conflict(self, before: dict[str, _Side], after: dict[str, _Side]) -> bool:
        if self.scope is Scope.WORKGROUP and self.geometry.invocations == 1:
            return False
        small, large = (before, after) if len(before) <= len(after) else (after, before)
        for name, side in small.items():
            other = large.get(name)
            if other is not None and (
                self._may_overlap(side.written, other.written)
                or self._may_overlap(side.written, other.read)
                or self._may_overlap(side.read, other.written)
            ):
                return True
        return False

    def _may_overlap(self, a: _Cells | None, b: _Cells | None) -> bool:
        """Whether one member may touch a cell in ``a`` that another member touches in ``b``."""
        if a is None or b is None:
            return False
        if a.key is None or a.key != b.key:
            return True
        kind, *rest = a.key
        if kind == "sole":
            return False
        ids, symbols, level = rest
        low, high = min(a.low, b.low), max(a.high, b.high)
        if self.owns_cells and self.geometry.separates(ids, level, high - low, self.scope):
            return False
        # Both are the same for all members, and they do not overlap.
        is_apart = (a.high < b.low or b.high < a.low) and high - low < WORDS
        return not (is_apart and not any(ids) and not symbols)

    # The walk.

    def _list(self, body: n.Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Barrier():
                self.number += 1
                if self._orders(statement):
                    after = self._point()
                    if self._is_removable(statement):
                        self.barriers.append(_Barrier(self.number - 1, self.here, after))
                    self.here = after
            case n.Let(name, value):
                self.values.let(name, value, self._access)
            case n.Store(buffer, index, value):
                place = self.values.read(index, self._access, is_wanted=True)
                self._reads(value)
                self._touch(buffer, place.form, reads=False, writes=True)
            case n.If(condition, then, otherwise):
                self._reads(condition)
                self._if(condition, then, otherwise)
            case n.Loop():
                self.values.loop(statement, self._access)
                self._loop(statement.body, None)
            case n.While(condition, body):
                self._loop(body, condition)
            case n.Break() | n.Continue():
                loop = self.loops[-1]
                self._join(self.here, loop.behind if isinstance(statement, n.Break) else loop.head)
                self.here = self._point()
            case n.Return():
                self.here = self._point()
            case n.AsyncWait(tag):
                for buffer in sorted(self.destinations.get(tag, ())):
                    self._touch(buffer, None, reads=False, writes=True)
            case _:
                self._other(statement)

    def _orders(self, barrier: n.Barrier) -> bool:
        """Whether members of the scope wait for each other at a barrier."""
        return self.scope is Scope.WORKGROUP or is_grid_point(barrier)

    def _is_removable(self, barrier: n.Barrier) -> bool:
        return is_grid_point(barrier) == (self.scope is Scope.GRID)

    def _if(self, condition: n.Expr, then: n.Body, otherwise: n.Body) -> None:
        start = self.here
        member = sole(condition, self.values, self.geometry, self.scope) if self.owns_cells else None
        self.members.append(member)
        self._list(then)
        self.members.pop()
        end, self.here = self.here, self._after(start)
        self._list(otherwise)
        self._join(end, self.here)

    def _after(self, point: int) -> int:
        """Add a point that control flow reaches from another."""
        after = self._point()
        self._join(point, after)
        return after

    def _loop(self, body: n.Body, condition: n.Expr | None) -> None:
        head, behind = self._after(self.here), self._point()
        self.here = head
        if condition is not None:
            self._reads(condition)
        self._join(head, behind)
        self.loops.append(_Loop(head, behind))
        self._list(body)
        self.loops.pop()
        self._join(self.here, head)
        self.here = behind

    def _other(self, statement: n.Stmt) -> None:
        for root in walk.operands(statement):
            self._reads(root)
        for buffer in buffers_read(statement):
            self._touch(buffer, None, reads=True, writes=False)
        for buffer in buffers_written(statement):
            # A transfer writes at its wait.
            if not isinstance(statement, _TRANSFERS):
                self._touch(buffer, None, reads=True, writes=True)
        for body in walk.bodies(statement):
            self._list(body)

    def _reads(self, root: n.Expr) -> None:
        self.values.read(root, self._access)

    def _access(self, node: n.Load | n.Atomic, index: Value) -> None:
        """Record what a load reads, or what an atomic changes."""
        self._touch(node.buffer, index.form, reads=True, writes=bool(buffers_written(node)))

    def _touch(self, buffer: str, form: Form | None, *, reads: bool, writes: bool) -> None:
        if buffer in self.ignored or buffer not in self.written:
            return
        cells = self._cells(form)
        side = _Side(cells if reads else None, msgspec.structs.replace(cells) if writes else None)
        self.sides[self._root(self.here)].setdefault(buffer, _Side()).add(side)

    def _cells(self, form: Form | None) -> _Cells:
        members: Iterable[Any] = reversed(self.members)
        if form is not None:
            if self.owns_cells and self.geometry.separates(form.ids, form.level, form.high - form.low, self.scope):
                return _Cells(("own", form.ids, form.symbols, form.level), form.low, form.high)
            if not any(form.ids) and not form.symbols and not any(self.members):
                return _Cells(("own", form.ids, form.symbols, form.level), form.low, form.high)
        member = next((one for one in members if one is not None), None)
        return _Cells(None if member is None else ("sole", member), 0, 0)
