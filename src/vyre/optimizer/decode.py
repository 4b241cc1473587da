"""Decoding: turn the rows and their findings back into a program, with statements in the order of the outline.

A value with one use is written where it is used. A value with several uses, or with its place in another scope than
its use, becomes a variable, declared before the first statement of its scope that needs it. Before memory or a cell
changes, what was read from it and is used later is saved in a variable; saved variables without uses are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, Arena, Findings, Kind
from vyre.optimizer.outline import Assigned, Bound, Control, Effect, Items, Jump, Outline, Pinned, Variable
from vyre.optimizer.values import CellValue, Frame, Mode, OptionalLet, Values, Written
from vyre.semantics.scalars import to_bits, zero


def decode(arena: Arena, outline: Outline, findings: Findings) -> tuple[Program, int, bool]:
    """Return the optimized program, its number of statements, and whether another round may find more."""
    return _Decoder(arena, outline, findings).run()


class _Decoder:
    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        self.outline = outline
        self.values = Values(arena, outline, findings)
        self.scope_last = self.values.scope_last
        self.canon, self.live = self.values.canon, self.values.live
        self.frames, self.frame_of = self.values.frames, self.values.frame_of
        # By variable, the rows bound to its cell; by row, the other cells that were assigned its value.
        self.rows_in_cell: dict[Variable, list[int]] = {}
        self.copies: dict[int, list[tuple[CellValue, Frame]]] = {}
        self.generations = 0
        self.statements = 0
        # The last scope that has been opened or skipped.
        self.newest_scope = -1
        # The assignment that was written together with its pinned value.
        self.already_assigned: Assigned | None = None
        # An effect that never runs may have hidden other findings from this round.
        is_effect = findings.head & 0xFF == Kind.EFFECT
        self.may_improve = outline.skips or bool(np.any(is_effect & (findings.live == 0)))

    def run(self) -> tuple[Program, int, bool]:
        entry = self._list(self.outline.body)
        return self.outline.program.with_entry(entry), self.statements, self.may_improve

    # Lists.

    def _open(self, scope: int, body: Written | None, name_scope: int | None = None) -> Frame:
        frame = Frame(scope, scope if name_scope is None else name_scope, body, [], [], *self.values.span(scope))
        self.newest_scope = max(self.newest_scope, scope)
        self.frame_of[scope] = len(self.frames)
        self.frames.append(frame)
        return frame

    def _close(self) -> None:
        frame = self.frames.pop()
        del self.frame_of[frame.scope]
        for row, node, cell in reversed(frame.undo):
            self.values.rebind(row, node, cell)
            if cell is not None:
                self.rows_in_cell.setdefault(cell.variable, []).append(row)
        for variable, generation in reversed(frame.generations):
            self.values.generation[variable] = generation

    def _list(self, items: Items, heads: Sequence[Bound] = ()) -> n.Body:
        written: Written = []
        self._open(items.scope, written)
        self._bind_all(heads)
        self._items(items)
        self._close()
        body = self._without_unused(written)
        self.statements += len(body)
        return body

    def _without_unused(self, written: Written) -> n.Body:
        """A list without the optional declarations that nothing refers to."""
        if not self.values.has_optional:
            return cast(n.Body, tuple(written))
        body: list[n.Stmt] = []
        for item in reversed(written):
            if not isinstance(item, OptionalLet):
                body.append(item)
            elif item.references:
                body.append(item.let)
            else:
                for dependency in item.dependencies:
                    dependency.references -= 1
        body.reverse()
        return tuple(body)

    def _items(self, items: Items) -> None:
        frame = self.frames[-1]
        for place, item in enumerate(items.items):
            if frame.terminated:
                self.may_improve = True
                self._skip_scopes(items)
                return
            self.values.declare_until(item.end if isinstance(item, Control) else item.row, frame)
            match item:
                case Effect(statement, row, operands, clobbers):
                    if self.live[row]:
                        self._effect(statement, row, operands, clobbers)
                case Pinned():
                    self._pinned(item, self._next_item(items, place))
                case Assigned():
                    self._assigned(item)
                case Bound():
                    self._bind(item)
                case Control():
                    self._control(item)
                    self._skip_scopes(item.lists[-1])
                case Jump(statement, row):
                    if self.live[row]:
                        self._append(statement)
                        frame.terminated = True

    def _skip_scopes(self, items: Items) -> None:
        """Note that the scopes of a list are behind, also if the list was left out."""
        self.newest_scope = max(self.newest_scope, self.scope_last[items.scope])

    def _next_item(self, items: Items, place: int) -> object:
        """The item after one, without dead assignments, unless they declare a variable that is needed."""
        for later in range(place + 1, len(items.items)):
            item = items.items[later]
            if not isinstance(item, Assigned) or self.live[item.row]:
                return item
            if item.declares and self.live[item.variable.declaration]:
                return item
        return None

    def _append(self, statement: n.Stmt) -> None:
        body = self.frames[-1].body
        assert body is not None  # statements stand in lists
        body.append(statement)

    # Statements.

    def _effect(self, statement: n.Stmt, row: int, operands: tuple[int, ...], clobbers: Sequence[int]) -> None:
        value = self.values.value
        if isinstance(statement, n.Store):
            index, stored = operands
            statement = n.Store(statement.buffer, value(index), value(stored))
        elif operands:
            statement = walk.with_operands(statement, tuple(map(value, operands)))
        if clobbers:
            self._save_loads(clobbers, row)
        self._append(statement)
        if isinstance(statement, n.Resume):
            self.copies.clear()
            self.values.forget(self.frames[-1])

    def _pinned(self, item: Pinned, following: object) -> None:
        if not self.live[item.row]:
            return
        operands = tuple(map(self.values.value, item.operands))
        self._save_loads(item.clobbers, item.row)
        value = walk.with_operands(item.node, operands) if operands else item.node
        if isinstance(following, Assigned) and self.canon[following.value] == item.row and self.live[following.row]:
            self._assign(following, value)
            self._bind(Bound(following.variable, item.row))
            self.already_assigned = following
            return
        self.values.declare(item.row, value, self.frames[-1], "old" if item.has_effect else "lanes")

    def _assigned(self, item: Assigned) -> None:
        variable, frame = item.variable, self.frames[-1]
        if not self.live[item.row]:
            # A loop with fewer assignments may have fewer changing cells.
            self.may_improve |= not item.declares
            if item.declares and self.live[variable.declaration]:
                self._declare(variable, n.Lit(to_bits(zero(variable.dtype), variable.dtype), variable.dtype))
            return
        row = self.canon[item.value]
        cell = self.values.in_cells.get(row)
        if cell is not None and cell.variable is variable:
            # The cell holds the value already. Without this assignment, a copy of the cell may become unnecessary.
            self.may_improve |= item is not self.already_assigned
            return
        into_cell = self.values.can_compute_into_cell(row, frame)
        self._assign(item, self.values.evaluate(row, frame, Mode.INLINE if into_cell else Mode.AUTO))
        if into_cell:
            self._bind(Bound(variable, row))
        elif cell is not None:
            self.copies.setdefault(row, []).append((CellValue(variable, self.values.generation[variable]), frame))

    def _assign(self, item: Assigned, value: n.Expr) -> None:
        if item.declares:
            self._declare(item.variable, value)
        else:
            self._save_cell(item.variable)
            self._append(n.Assign(self.values.cell_names[item.variable], value))
            self._change(item.variable)

    def _declare(self, variable: Variable, value: n.Expr) -> None:
        name = self.values.cell_names[variable] = self.values.names.make(variable.name, self.frames[-1].name_scope)
        self._append(n.Let(name, value))
        self.values.generation[variable] = 0

    def _change(self, variable: Variable) -> None:
        """Begin a new generation of a cell: rows bound to it before are not its value any more."""
        self.frames[-1].generations.append((variable, self.values.generation[variable]))
        self.generations += 1
        self.values.generation[variable] = self.generations

    def _bind(self, item: Bound) -> None:
        """Bind a row to what a cell holds now."""
        variable, row = item.variable, item.row
        if self.live[row] and self.canon[row] == row and variable in self.values.cell_names:
            self._bind_to_cell(row, CellValue(variable, self.values.generation[variable]))

    def _bind_all(self, items: Iterable[Bound]) -> None:
        for item in items:
            self._bind(item)

    def _bind_to_cell(self, row: int, cell: CellValue) -> None:
        self.values.bind(row, self.frames[-1], None, cell)
        self.rows_in_cell.setdefault(cell.variable, []).append(row)

    def _save_cell(self, variable: Variable, first: int = NONE, last: int = NONE) -> None:
        """Save what a cell holds for later uses, before a statement with scopes ``first`` to ``last`` changes it."""
        remaining: list[int] = []
        for row in dict.fromkeys(self.rows_in_cell.pop(variable, ())):
            cell = self.values.in_cells.get(row)
            if cell is None or cell.generation != self.values.generation[variable]:
                continue
            if first <= self.values.place[row] <= last:
                remaining.append(row)
                continue
            frame = self.frames[-1]
            leaf = self.values.inline_leaf(row)
            copy = self._copy_of(row, variable)
            if leaf is not None:
                self.values.bind(row, frame, leaf)
            elif copy is not None:
                self._bind_to_cell(row, copy)
            else:
                name = n.Var(self.values.cell_names[variable])
                self.values.declare(row, name, frame, f"{variable.name}_before", [])
        if remaining:
            self.rows_in_cell[variable] = remaining

    def _copy_of(self, row: int, variable: Variable) -> CellValue | None:
        """Another cell that holds the same value."""
        for cell, frame in self.copies.get(row, ()):
            is_current = cell.generation == self.values.generation[cell.variable]
            if is_current and cell.variable is not variable and any(frame is open_ for open_ in self.frames):
                return cell
        return None

    def _save_loads(self, versions: Sequence[int], end: int, first: int = NONE, last: int = NONE) -> None:
        """Save loaded values for later uses, before a statement with scopes ``first`` to ``last`` clobbers memory.

        Loads from the statement's ``end`` on are not saved: control does not reach them after the change.
        """
        for version in versions:
            for row in self.outline.loads[version]:
                if self.canon[row] != row or not self.live[row] or self.values.is_written(row):
                    continue
                place = self.values.place[row]
                if place == NONE or first <= place <= last or self.values.position[row] >= end:
                    continue
                current = self.frames[-1]
                if place not in self.frame_of and not self.newest_scope < place <= self.scope_last[current.name_scope]:
                    continue
                self.values.save(row, self.values.target_frame(place, current) or current)

    def _control(self, item: Control) -> None:
        statement = item.statement
        # The condition of a while loop has the scope before that of its list.
        first = item.lists[0].scope - isinstance(statement, n.While)
        last = self.scope_last[item.lists[-1].scope]
        if isinstance(statement, n.If) and (known := self.values.literal_value(item.operands[0])) is not None:
            self.may_improve = True
            self._save_loads(item.clobbers, item.end, first, last)
            self._splice(item, item.lists[0 if known else 1])
            return
        is_loop = isinstance(statement, (n.Loop, n.While))
        if not self.live[item.row] or (is_loop and self._never_runs(item)):
            # Later clobbers name only the versions of loads behind this statement.
            self._save_loads(item.clobbers, item.end, first, last)
            # Cells hold behind the statement what they held before it, and the list around it may become empty.
            self.may_improve |= bool(self.live[item.row]) or any(self.live[join.row] for join in item.joins)
            self._bind_all(item.joins)
            return
        operands = () if isinstance(statement, n.While) else tuple(map(self.values.value, item.operands))
        self._save_loads(item.clobbers, item.end, first, last)
        changing = [v for v, rows in item.assigns.items() if any(self.live[row] for row in rows)]
        for variable in changing:
            if is_loop:
                self._save_cell(variable)
                self._change(variable)
            else:
                self._save_cell(variable, first, last)
        written = self._written(item, operands)
        self._append(written)
        # A statement whose lists become empty can be dropped in the next round.
        self.may_improve |= isinstance(written, (n.If, n.Block, n.Region)) and not any(walk.bodies(written))
        for variable in changing:
            self._change(variable)
        self._bind_all(item.joins)
        if not is_loop and not any(items.falls_through for items in item.lists):
            self.frames[-1].terminated = True

    def _written(self, item: Control, operands: tuple[n.Expr, ...]) -> n.Stmt:
        items = item.lists[0]
        match item.statement:
            case n.If():
                return n.If(operands[0], self._list(items), self._list(item.lists[1]))
            case n.Loop(var):
                name = self.values.names.make(var, items.scope)
                self.values.rebind(item.counter, n.Var(name), None)
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
        """Write the list that always runs in place of its statement."""
        frame = self.frames[-1]
        inner = self._open(items.scope, frame.body, frame.name_scope)
        self._items(items)
        self.frames.pop()
        del self.frame_of[items.scope]
        frame.undo += inner.undo
        frame.generations += inner.generations
        frame.terminated = inner.terminated
        self._restore_cells(inner)
        self._bind_all(item.joins)

    def _restore_cells(self, spliced: Frame) -> None:
        """Restore the bindings of unchanged cells that a resume in a spliced list had dropped.

        An invocation that resumes in the list has run what is before the list.
        """
        before: dict[int, CellValue | None] = {}
        for row, _, cell in spliced.undo:
            before.setdefault(row, cell)
        for row, cell in before.items():
            if cell is None or row in self.values.in_cells:
                continue
            if cell.generation == self.values.generation[cell.variable]:
                self._bind_to_cell(row, cell)

    def _never_runs(self, item: Control) -> bool:
        """Whether the bounds or the condition of a loop are literals that allow no iteration."""
        match [self.values.literal_value(row) for row in item.operands]:
            case [int(condition)]:
                return not condition
            case [int(start), int(stop)]:
                return start >= stop
        return False
