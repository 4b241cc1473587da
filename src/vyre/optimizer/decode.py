"""How do rows become a program again? Statements in their order; values where they are needed first.

A value that is used once is written where it is used. One that is used more often, or has its place in another scope
than its use, becomes a variable, declared just before the statement of its scope that needs it first. Where memory
changes, or a cell is assigned, what was read before and may be needed later is kept in a variable; a variable that
turns out not to be needed is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, Arena, Kind
from vyre.optimizer.findings import Findings
from vyre.optimizer.outline import Assigned, Bound, Control, Effect, Items, Jump, Outline, Pinned, Variable
from vyre.optimizer.values import Frame, InCell, Kept, Values, Way, Written
from vyre.semantics.scalars import to_bits, zero


def decode(arena: Arena, outline: Outline, findings: Findings) -> tuple[Program, int, bool]:
    """The program of what was found, how many statements it has, and whether another round may find more."""
    return _Decoder(arena, outline, findings).run()


class _Decoder:
    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        self.outline = outline
        self.values = Values(arena, outline, findings)
        self.last = self.values.last
        self.canon, self.live = self.values.canon, self.values.live
        self.frames, self.frame_of = self.values.frames, self.values.frame_of
        self.in_cells: dict[Variable, list[int]] = {}
        self.copies: dict[int, list[tuple[InCell, Frame]]] = {}
        self.generations = 0
        self.statements = 0
        self.newest_scope = -1
        self.already_set: Assigned | None = None
        # What never runs may have kept something else from being seen.
        is_effect = findings.head & 0xFF == Kind.EFFECT
        self.goes_on = outline.skips or bool(np.any(is_effect & (findings.live == 0)))

    def run(self) -> tuple[Program, int, bool]:
        entry = self._list(self.outline.body)
        return self.outline.program.with_entry(entry), self.statements, self.goes_on

    # Lists.

    def _open(self, scope: int, out: Written | None, visible: int | None = None) -> Frame:
        frame = Frame(scope, scope if visible is None else visible, out, [], [], *self.values.span(scope))
        self.newest_scope = max(self.newest_scope, scope)
        self.frame_of[scope] = len(self.frames)
        self.frames.append(frame)
        return frame

    def _close(self) -> Frame:
        frame = self.frames.pop()
        del self.frame_of[frame.scope]
        for row, name, cell in reversed(frame.undo):
            self.values.put(row, name, cell)
            if cell is not None:
                self.in_cells.setdefault(cell.variable, []).append(row)
        for variable, generation in reversed(frame.generations):
            self.values.generation[variable] = generation
        return frame

    def _list(self, items: Items, heads: Sequence[Bound] = ()) -> n.Body:
        frame = self._open(items.scope, [])
        self._bind_all(heads)
        self._items(items)
        self._close()
        assert frame.out is not None
        body = self._finished(frame.out)
        self.statements += len(body)
        return body

    def _finished(self, out: Written) -> n.Body:
        """A list without the declarations that nothing names."""
        if not self.values.keeps:
            return cast(n.Body, tuple(out))
        kept: list[n.Stmt] = []
        for item in reversed(out):
            if not isinstance(item, Kept):
                kept.append(item)
            elif item.references:
                kept.append(item.let)
            else:
                for part in item.parts:
                    part.references -= 1
        kept.reverse()
        return tuple(kept)

    def _items(self, items: Items) -> None:
        frame = self.frames[-1]
        for place, item in enumerate(items.items):
            if frame.ended:
                self.goes_on = True
                self._pass(items)
                return
            self.values.declare_until(item.end if isinstance(item, Control) else item.row, frame)
            match item:
                case Effect(statement, row, operands, kills):
                    if self.live[row]:
                        self._effect(statement, row, operands, kills)
                case Pinned():
                    self._pinned(item, self._behind(items, place))
                case Assigned():
                    self._assigned(item)
                case Bound():
                    self._bind(item)
                case Control():
                    self._control(item)
                    self._pass(item.lists[-1])
                case Jump(statement, row):
                    if self.live[row]:
                        self._append(statement)
                        frame.ended = True

    def _pass(self, items: Items) -> None:
        """What was to be computed in a list is behind, also if the list was left out."""
        self.newest_scope = max(self.newest_scope, self.last[items.scope])

    def _behind(self, items: Items, place: int) -> object:
        """The item behind one, without assignments that nobody needs and that do not declare what somebody does."""
        for later in range(place + 1, len(items.items)):
            item = items.items[later]
            if not isinstance(item, Assigned) or self.live[item.row]:
                return item
            if item.declares and self.live[item.variable.declaration]:
                return item
        return None

    def _append(self, statement: n.Stmt) -> None:
        out = self.frames[-1].out
        assert out is not None  # statements stand in lists
        out.append(statement)

    # Statements.

    def _effect(self, statement: n.Stmt, row: int, operands: tuple[int, ...], kills: Sequence[int]) -> None:
        value = self.values.value
        if isinstance(statement, n.Store):
            index, stored = operands
            statement = n.Store(statement.buffer, value(index), value(stored))
        elif operands:
            statement = walk.with_operands(statement, tuple(map(value, operands)))
        if kills:
            self._keep_loads(kills, row)
        self._append(statement)
        if isinstance(statement, n.Resume):
            # Whoever comes back here has not passed the declarations of this list before it.
            self.copies.clear()
            self.values.forget(self.frames[-1])

    def _pinned(self, item: Pinned, behind: object) -> None:
        if not self.live[item.row]:
            return
        operands = tuple(map(self.values.value, item.operands))
        self._keep_loads(item.kills, item.row)
        value = walk.with_operands(item.node, operands) if operands else item.node
        if isinstance(behind, Assigned) and self.canon[behind.value] == item.row and self.live[behind.row]:
            self._set(behind, value)
            self._bind(Bound(behind.variable, item.row))
            self.already_set = behind
            return
        frame = self.frames[-1]
        self.values.declare(item.row, value, frame, "old" if item.has_effect else "lanes")

    def _assigned(self, item: Assigned) -> None:
        variable, frame = item.variable, self.frames[-1]
        if not self.live[item.row]:
            # A loop that assigns less may change less.
            self.goes_on |= not item.declares
            if item.declares and self.live[variable.declaration]:
                self._declare(variable, n.Lit(to_bits(zero(variable.dtype), variable.dtype), variable.dtype))
            return
        row = self.canon[item.value]
        held = self.values.in_cells.get(row)
        if held is not None and held.variable is variable:
            # The cell has its value: it was computed right into it, or had been there before. What is then assigned
            # again may have been why the cell was copied.
            self.goes_on |= item is not self.already_set
            return
        is_new = self.values.is_computed_here(row, frame)
        self._set(item, self.values.evaluate(row, frame, Way.IN_PLACE if is_new else Way.AS_NEEDED))
        if is_new:
            self._bind(Bound(variable, row))
        elif held is not None:
            self.copies.setdefault(row, []).append((InCell(variable, self.values.generation[variable]), frame))

    def _set(self, item: Assigned, value: n.Expr) -> None:
        """A cell gets a value."""
        if item.declares:
            self._declare(item.variable, value)
        else:
            self._keep_cell(item.variable)
            self._append(n.Assign(self.values.cell_names[item.variable], value))
            self._change(item.variable)

    def _declare(self, variable: Variable, value: n.Expr) -> None:
        name = self.values.cell_names[variable] = self.values.names.make(variable.name, self.frames[-1].visible)
        self._append(n.Let(name, value))
        self.values.generation[variable] = 0

    def _change(self, variable: Variable) -> None:
        self.frames[-1].generations.append((variable, self.values.generation[variable]))
        self.generations += 1
        self.values.generation[variable] = self.generations

    def _bind(self, item: Bound) -> None:
        """A row stands for what a cell holds now."""
        variable, row = item.variable, item.row
        if not self.live[row] or self.canon[row] != row or variable not in self.values.cell_names:
            return
        self.values.name(row, self.frames[-1], None, InCell(variable, self.values.generation[variable]))
        self.in_cells.setdefault(variable, []).append(row)

    def _keep_cell(self, variable: Variable, first: int = NONE, last: int = NONE) -> None:
        """Before a cell changes, in a statement with these scopes, what it holds is kept for later uses."""
        kept: list[int] = []
        for row in dict.fromkeys(self.in_cells.pop(variable, ())):
            held = self.values.in_cells.get(row)
            if held is None or held.generation != self.values.generation[variable]:
                continue
            if first <= self.values.place[row] <= last:
                kept.append(row)
                continue
            frame = self.frames[-1]
            leaf = self.values.without_name(row)
            if leaf is not None:
                self.values.name(row, frame, leaf)
                continue
            copy = self._copy_of(row, variable)
            if copy is not None:
                self.values.name(row, frame, None, copy)
                self.in_cells.setdefault(copy.variable, []).append(row)
                continue
            self.values.declare(row, n.Var(self.values.cell_names[variable]), frame, f"{variable.name}_before", [])
        if kept:
            self.in_cells[variable] = kept

    def _copy_of(self, row: int, variable: Variable) -> InCell | None:
        """Another cell that holds the same value."""
        for held, frame in self.copies.get(row, ()):
            is_current = held.generation == self.values.generation[held.variable]
            if is_current and held.variable is not variable and any(frame is open_ for open_ in self.frames):
                return held
        return None

    def _keep_loads(self, versions: Sequence[int], end: int, first: int = NONE, last: int = NONE) -> None:
        """Before memory changes, in a statement with these scopes, what was loaded is kept for later uses.

        What is loaded behind the ``end`` of the statement need not be: whoever changed memory does not come there.
        """
        for version in versions:
            for row in self.outline.loads[version]:
                if self.canon[row] != row or not self.live[row] or self.values.is_written(row):
                    continue
                place = self.values.place[row]
                if place == NONE or first <= place <= last or self.values.position[row] >= end:
                    continue
                here = self.frames[-1]
                if place not in self.frame_of and not self.newest_scope < place <= self.last[here.visible]:
                    continue
                self.values.keep(row, self.values.home(place, here) or here)

    def _control(self, item: Control) -> None:
        statement = item.statement
        # The condition of a loop has the scope before that of its list.
        first = item.lists[0].scope - isinstance(statement, n.While)
        last = self.last[item.lists[-1].scope]
        if isinstance(statement, n.If) and (known := self.values.known(item.operands[0])) is not None:
            self.goes_on = True
            self._keep_loads(item.kills, item.end, first, last)
            self._splice(item, item.lists[0 if known else 1])
            return
        is_loop = isinstance(statement, (n.Loop, n.While))
        if not self.live[item.row] or (is_loop and self._never_runs(item)):
            # What changes memory behind it knows only of loads behind it.
            self._keep_loads(item.kills, item.end, first, last)
            # Nothing happens here, so behind it cells hold what they do before it; and what is around it may be empty.
            self.goes_on |= bool(self.live[item.row]) or any(self.live[join.row] for join in item.joins)
            self._bind_all(item.joins)
            return
        operands = () if isinstance(statement, n.While) else tuple(map(self.values.value, item.operands))
        self._keep_loads(item.kills, item.end, first, last)
        changing = [v for v, rows in item.assigns.items() if any(self.live[row] for row in rows)]
        for variable in changing:
            if is_loop:
                self._keep_cell(variable)
                self._change(variable)
            else:
                self._keep_cell(variable, first, last)
        written = self._written(item, operands)
        self._append(written)
        # What is in it may turn out to do nothing only when it is written.
        self.goes_on |= isinstance(written, (n.If, n.Block, n.Region)) and not any(walk.bodies(written))
        for variable in changing:
            self._change(variable)
        self._bind_all(item.joins)
        if not is_loop and not any(items.falls for items in item.lists):
            self.frames[-1].ended = True

    def _bind_all(self, items: Iterable[Bound]) -> None:
        for item in items:
            self._bind(item)

    def _written(self, item: Control, operands: tuple[n.Expr, ...]) -> n.Stmt:
        items = item.lists[0]
        match item.statement:
            case n.If():
                return n.If(operands[0], self._list(items), self._list(item.lists[1]))
            case n.Loop(var):
                name = self.values.names.make(var, items.scope)
                self.values.put(item.counter, n.Var(name), None)
                return n.Loop(name, operands[0], operands[1], self._list(items, item.heads))
            case n.While():
                self._open(items.scope - 1, None)
                self._bind_all(item.heads)
                condition = self.values.value(item.operands[0])
                body = self._list(items)
                self._close()
                return n.While(condition, body)
            case n.Region(generator, source):
                return n.Region(generator, source, self._list(items))
            case _:
                return n.Block(self._list(items))

    def _splice(self, item: Control, items: Items) -> None:
        """A list that is known to run takes the place of its statement."""
        frame = self.frames[-1]
        inner = self._open(items.scope, frame.out, frame.visible)
        self._items(items)
        self.frames.pop()
        del self.frame_of[items.scope]
        frame.undo += inner.undo
        frame.generations += inner.generations
        frame.ended = inner.ended
        self._hold_again(inner)
        self._bind_all(item.joins)

    def _hold_again(self, spliced: Frame) -> None:
        """Who came back at a resume in a list has passed what is before it: cells hold that, unless they changed."""
        before: dict[int, InCell | None] = {}
        for row, _, cell in spliced.undo:
            before.setdefault(row, cell)
        for row, cell in before.items():
            if cell is None or row in self.values.in_cells:
                continue
            if cell.generation == self.values.generation[cell.variable]:
                self.values.name(row, self.frames[-1], None, cell)
                self.in_cells.setdefault(cell.variable, []).append(row)

    def _never_runs(self, item: Control) -> bool:
        known = [self.values.known(row) for row in item.operands]
        match known:
            case [int(condition)]:
                return not condition
            case [int(start), int(stop)]:
                return start >= stop
        return False
