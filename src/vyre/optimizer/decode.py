"""How do rows become a program again? Statements in their order; values where they are needed first.

A value that is used once is written where it is used. One that is used more often, or has its place in another scope
than its use, becomes a variable, declared just before the statement of its scope that needs it first. Where memory
changes, or a cell is assigned, what was read before and may be needed later is kept in a variable; a variable that
turns out not to be needed is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_NAME_LENGTH
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, OPERATIONS, Arena, Kind, Leaf, kind_of, operation_of, type_of
from vyre.optimizer.findings import Findings
from vyre.optimizer.outline import Assigned, Bound, Control, Effect, Items, Jump, Outline, Pinned, Variable
from vyre.semantics.operators import BINARY
from vyre.semantics.scalars import to_bits, zero

# How deep expressions nest before a part of them gets a name.
_DEEPEST: Final = 24
_IDS: Final = {
    Leaf.INVOCATION_ID: n.InvocationId,
    Leaf.WORKGROUP_ID: n.WorkgroupId,
    Leaf.LOCAL_ID: n.LocalId,
    Leaf.NUM_WORKGROUPS: n.NumWorkgroups,
}


class _Way(Enum):
    """How a value is written: with a name of its own, where it is used, or as its uses and its place ask."""

    NAMED = 0
    IN_PLACE = 1
    AS_NEEDED = 2


class _Let(msgspec.Struct, eq=False):
    """A declaration that may turn out not to be needed; ``parts`` are those that its value names."""

    name: str
    value: n.Expr
    parts: list[_Let]
    references: int = 0


class _InCell(msgspec.Struct, eq=False):
    """A value that a cell holds, as long as the cell has not been changed."""

    variable: Variable
    generation: int


class _Frame(msgspec.Struct, eq=False):
    """An open list. A loop's condition has a scope but no list. Its declarations are visible in a scope."""

    scope: int
    visible: int
    out: list[n.Stmt | _Let] | None
    undo: list[tuple[int, _Let | _InCell | None]]
    generations: list[tuple[Variable, int]]
    ended: bool = False


class _Names:
    """Names for declarations. Two declarations share a name only if neither is in the scope of the other."""

    def __init__(self, taken: Iterable[str], last: list[int]) -> None:
        self.taken = set(taken)
        self.last = last
        self.scopes: dict[str, list[int]] = {}
        self.numbers: dict[str, int] = {}
        self.source: set[str] = set()

    def unlike(self, hint: str) -> str:
        """A name that the source does not have."""
        while hint in self.source:
            hint += "_"
        return hint

    def make(self, hint: str, scope: int) -> str:
        hint = hint[: MAX_NAME_LENGTH - 12]
        name = hint
        while not self._is_free(name, scope):
            self.numbers[hint] = number = self.numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        return name

    def _is_free(self, name: str, scope: int) -> bool:
        if name in self.taken:
            return False
        scopes = self.scopes.setdefault(name, [])
        place = bisect_left(scopes, scope)
        if place < len(scopes) and scopes[place] <= self.last[scope]:
            return False
        # Scopes that share a name lie apart, so only the one before can be around this one.
        if place and self.last[scopes[place - 1]] >= scope:
            return False
        scopes.insert(place, scope)
        return True


def decode(arena: Arena, outline: Outline, findings: Findings) -> tuple[Program, bool]:
    """The program of what was found, and whether another round may find more."""
    return _Decoder(arena, outline, findings).run()


class _Decoder:
    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        self.outline = outline
        program = outline.program
        self.canon, self.head = findings.canon.tolist(), findings.head.tolist()
        self.a0, self.a1, self.a2 = findings.a0.tolist(), findings.a1.tolist(), findings.a2.tolist()
        self.live, self.place, self.uses = findings.live.tolist(), findings.place.tolist(), findings.uses.tolist()
        self.last: list[int] = arena.scope_last.tolist()
        self.buffers = [decl.name for decl in program.buffers]
        self.fresh = _Names(self.buffers, self.last)
        self.hints: dict[int, str] = {}
        for row, name in outline.hints.items():
            self.hints.setdefault(self.canon[row], name)
        self.fresh.source = set(outline.names)
        self.named: dict[int, _Let | _InCell] = {}
        self.cell_names: dict[Variable, str] = {}
        self.in_cells: dict[Variable, list[int]] = {}
        self.copies: dict[int, list[tuple[_InCell, _Frame]]] = {}
        self.generation: dict[Variable, int] = {}
        self.generations = 0
        self.loop_names: dict[int, str] = {}
        self.done: set[int] = set()
        self.frames: list[_Frame] = []
        self.frame_of: dict[int, int] = {}
        self.newest_scope = -1
        self.collectors: list[list[_Let]] = []
        self.goes_on = False

    def run(self) -> tuple[Program, bool]:
        kinds = np.array(self.head, np.uint32) & 0xFF
        # What never runs may have kept something else from being seen.
        self.goes_on = bool(np.any((kinds == Kind.EFFECT) & (np.array(self.live) == 0)))
        entry = self._list(self.outline.body)
        return self.outline.program.with_entry(entry), self.goes_on

    # Lists.

    def _open(self, scope: int, out: list[n.Stmt | _Let] | None, visible: int | None = None) -> _Frame:
        frame = _Frame(scope, scope if visible is None else visible, out, [], [])
        self.newest_scope = max(self.newest_scope, scope)
        self.frame_of[scope] = len(self.frames)
        self.frames.append(frame)
        return frame

    def _close(self) -> _Frame:
        frame = self.frames.pop()
        del self.frame_of[frame.scope]
        for row, before in reversed(frame.undo):
            if before is None:
                self.named.pop(row, None)
            else:
                self.named[row] = before
        for variable, generation in reversed(frame.generations):
            self.generation[variable] = generation
        return frame

    def _list(self, items: Items, heads: Sequence[Bound] = ()) -> n.Body:
        frame = self._open(items.scope, [])
        self._bind_all(heads)
        self._items(items)
        self._close()
        assert frame.out is not None
        return _finished(frame.out)

    def _items(self, items: Items) -> None:
        frame = self.frames[-1]
        for place, item in enumerate(items.items):
            if frame.ended:
                self.goes_on = True
                return
            match item:
                case Effect():
                    self._effect(item)
                case Pinned():
                    self._pinned(item, self._behind(items, place))
                case Assigned():
                    self._assigned(item)
                case Bound():
                    self._bind(item)
                case Control():
                    self._control(item)
                case Jump(statement, row):
                    if self.live[row]:
                        self._append(statement)
                        frame.ended = True

    def _behind(self, items: Items, place: int) -> object:
        """The item behind one, without assignments that nobody needs."""
        for later in range(place + 1, len(items.items)):
            item = items.items[later]
            if not isinstance(item, Assigned) or self.live[item.row]:
                return item
        return None

    def _append(self, statement: n.Stmt | _Let) -> None:
        out = self.frames[-1].out
        assert out is not None  # statements stand in lists
        out.append(statement)

    def _hint(self, row: int, otherwise: str) -> str:
        """A name from the source, or one that nothing in the source has."""
        hint = self.hints.get(row)
        return hint if hint is not None else self.fresh.unlike(otherwise)

    def _name(self, row: int, name: _Let | _InCell, frame: _Frame) -> None:
        frame.undo.append((row, self.named.get(row)))
        self.named[row] = name

    # Statements.

    def _effect(self, item: Effect) -> None:
        if not self.live[item.row]:
            return
        operands = tuple(self._value(row) for row in item.operands)
        self._keep_loads(item.kills)
        self._append(walk.with_operands(item.statement, operands) if operands else item.statement)
        if isinstance(item.statement, n.Resume):
            # Whoever comes back here has not passed the declarations of this list before it.
            self.copies.clear()
            undo = self.frames[-1].undo
            here = dict(undo)
            for row, name in list(self.named.items()):
                if row in here or isinstance(name, _InCell):
                    undo.append((row, self.named.pop(row)))

    def _pinned(self, item: Pinned, behind: object) -> None:
        if not self.live[item.row]:
            return
        operands = tuple(self._value(row) for row in item.operands)
        self._keep_loads(item.kills)
        value = walk.with_operands(item.node, operands) if operands else item.node
        if isinstance(behind, Assigned) and self.canon[behind.value] == item.row and self.live[behind.row]:
            self._set(behind, value)
            self._bind(Bound(behind.variable, item.row))
            return
        frame = self.frames[-1]
        name = self.fresh.make(self._hint(item.row, "old" if item.has_effect else "lanes"), frame.visible)
        let = _Let(name, value, [], references=1)
        self._append(let)
        self._name(item.row, let, frame)

    def _assigned(self, item: Assigned) -> None:
        variable, frame = item.variable, self.frames[-1]
        if not self.live[item.row]:
            if item.declares and self.live[variable.declaration]:
                self._declare(variable, n.Lit(to_bits(zero(variable.dtype), variable.dtype), variable.dtype))
            return
        row = self.canon[item.value]
        held = self.named.get(row)
        if isinstance(held, _InCell) and held.variable is variable:
            # The cell has got its value already, where that was computed.
            return
        is_new = (
            held is None
            and kind_of(self.head[row]) in (Kind.OPERATION, Kind.LOAD, Kind.LEAF)
            and self.uses[row] > 1
            and self._home(self.place[row], frame) is frame
        )
        self._set(item, self._evaluate(row, frame, _Way.IN_PLACE if is_new else _Way.AS_NEEDED))
        if is_new:
            self._bind(Bound(variable, row))
        elif isinstance(held, _InCell):
            self.copies.setdefault(row, []).append((_InCell(variable, self.generation[variable]), frame))

    def _set(self, item: Assigned, value: n.Expr) -> None:
        """A cell gets a value."""
        if item.declares:
            self._declare(item.variable, value)
        else:
            self._keep_cell(item.variable)
            self._append(n.Assign(self.cell_names[item.variable], value))
            self._change(item.variable)

    def _declare(self, variable: Variable, value: n.Expr) -> None:
        name = self.cell_names[variable] = self.fresh.make(variable.name, self.frames[-1].visible)
        self._append(n.Let(name, value))
        self.generation[variable] = 0

    def _change(self, variable: Variable) -> None:
        self.frames[-1].generations.append((variable, self.generation[variable]))
        self.generations += 1
        self.generation[variable] = self.generations

    def _bind(self, item: Bound) -> None:
        """A row stands for what a cell holds now."""
        variable, row = item.variable, item.row
        if not self.live[row] or self.canon[row] != row or variable not in self.cell_names:
            return
        self._name(row, _InCell(variable, self.generation[variable]), self.frames[-1])
        self.in_cells.setdefault(variable, []).append(row)

    def _keep_cell(self, variable: Variable, first: int = NONE, last: int = NONE) -> None:
        """Before a cell changes, in a statement with these scopes, what it holds is kept for later uses."""
        kept: list[int] = []
        for row in self.in_cells.pop(variable, ()):
            held = self.named.get(row)
            if not isinstance(held, _InCell) or held.generation != self.generation[variable]:
                continue
            if first <= self.place[row] <= last:
                kept.append(row)
                continue
            frame = self.frames[-1]
            copy = self._copy_of(row, variable)
            if copy is not None:
                self._name(row, copy, frame)
                self.in_cells.setdefault(copy.variable, []).append(row)
                continue
            name = self.fresh.make(self._hint(row, f"{variable.name}_before"), frame.visible)
            let = _Let(name, n.Var(self.cell_names[variable]), [])
            self._append(let)
            self._name(row, let, frame)
        if kept:
            self.in_cells[variable] = kept

    def _copy_of(self, row: int, variable: Variable) -> _InCell | None:
        """Another cell that holds the same value."""
        for held, frame in self.copies.get(row, ()):
            is_current = held.generation == self.generation[held.variable]
            if is_current and held.variable is not variable and any(frame is open_ for open_ in self.frames):
                return held
        return None

    def _keep_loads(self, versions: Sequence[int], first: int = NONE, last: int = NONE) -> None:
        """Before memory changes, in a statement with these scopes, what was loaded is kept for later uses."""
        for version in versions:
            for row in self.outline.loads[version]:
                if self.canon[row] != row or not self.live[row] or row in self.named or row in self.done:
                    continue
                place = self.place[row]
                if place == NONE or first <= place <= last:
                    continue
                here = self.frames[-1]
                if place not in self.frame_of and not self.newest_scope < place <= self.last[here.visible]:
                    continue
                self._evaluate(row, self._home(place, here) or here, _Way.NAMED)
                kept = self.named[row]
                assert isinstance(kept, _Let)
                kept.references -= 1

    def _control(self, item: Control) -> None:
        statement = item.statement
        if isinstance(statement, n.If) and (known := self._known(item.operands[0])) is not None:
            self.goes_on = True
            self._splice(item, item.lists[0 if known else 1])
            return
        is_loop = isinstance(statement, (n.Loop, n.While))
        if not self.live[item.row] or (is_loop and self._never_runs(item)):
            # Nothing happens here, so behind it cells hold what they do before it.
            self.goes_on |= any(self.live[join.row] for join in item.joins)
            self._bind_all(item.joins)
            return
        operands = () if isinstance(statement, n.While) else tuple(map(self._value, item.operands))
        # The condition of a loop has the scope before that of its list.
        first = item.lists[0].scope - isinstance(statement, n.While)
        last = self.last[item.lists[-1].scope]
        self._keep_loads(item.kills, first, last)
        changing = [v for v, rows in item.assigns.items() if any(self.live[row] for row in rows)]
        for variable in changing:
            if is_loop:
                self._keep_cell(variable)
                self._change(variable)
            else:
                self._keep_cell(variable, first, last)
        self._append(self._written(item, operands))
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
                name = self.loop_names[item.counter] = self.fresh.make(var, items.scope)
                return n.Loop(name, operands[0], operands[1], self._list(items, item.heads))
            case n.While():
                self._open(items.scope - 1, None)
                self._bind_all(item.heads)
                condition = self._value(item.operands[0])
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
        self._bind_all(item.joins)

    def _known(self, row: int) -> int | None:
        row = self.canon[row]
        return self.a0[row] if kind_of(self.head[row]) == Kind.LITERAL else None

    def _never_runs(self, item: Control) -> bool:
        known = [self._known(row) for row in item.operands]
        match known:
            case [int(condition)]:
                return not condition
            case [int(start), int(stop)]:
                return start >= stop
        return False

    # Values.

    def _home(self, scope: int, here: _Frame) -> _Frame | None:
        """The list for a value of a scope that is not yet open here; none if it is a condition's, being written."""
        place = self.frame_of.get(scope)
        if place is None:
            return here
        frame = self.frames[place]
        if frame.out is not None:
            return frame
        return self.frames[place + 1] if place + 1 < len(self.frames) else None

    def _value(self, row: int) -> n.Expr:
        return self._evaluate(self.canon[row], self.frames[-1], _Way.AS_NEEDED)

    def _evaluate(self, root: int, frame: _Frame, way: _Way) -> n.Expr:
        """Writes a value for use in a list, after the declarations that it takes."""
        results: list[tuple[n.Expr, int]] = []
        # Rows still to be looked at (a count of -1), and rows whose operands, so many, are written.
        tasks: list[tuple[int, _Frame, _Way, int]] = [(root, frame, way, -1)]
        while tasks:
            row, frame, way, count = tasks.pop()
            if count < 0:
                at_hand = self._at_hand(row)
                if at_hand is not None:
                    results.append((at_hand, 0))
                    continue
                if way is _Way.AS_NEEDED:
                    home = self._home(self.place[row], frame)
                    is_named = home is not None and (self.uses[row] > 1 or home is not frame)
                    way, frame = (_Way.NAMED, home) if is_named and home is not None else (_Way.IN_PLACE, frame)
                if way is _Way.NAMED:
                    self.collectors.append([])
                operands = self._operands(row)
                tasks.append((row, frame, way, len(operands)))
                tasks += [(operand, frame, _Way.AS_NEEDED, -1) for operand in reversed(operands)]
                continue
            first = len(results) - count
            node = self._node(row, [part for part, _ in results[first:]])
            depth = 1 + max((depth for _, depth in results[first:]), default=0)
            del results[first:]
            if way is _Way.NAMED or (depth >= _DEEPEST and tasks and frame.out is not None):
                parts = self.collectors.pop() if way is _Way.NAMED else []
                name = self.fresh.make(self._hint(row, "t"), frame.visible)
                let = _Let(name, node, parts)
                assert frame.out is not None
                frame.out.append(let)
                self._name(row, let, frame)
                results.append((self._refer(let), 0))
                continue
            if frame.out is not None and self.uses[row] == 1:
                self.done.add(row)
            results.append((node, depth))
        return results[0][0]

    def _at_hand(self, row: int) -> n.Expr | None:
        """What needs no computing: constants, and values that have a name."""
        held = self.named.get(row)
        if isinstance(held, _Let):
            return self._refer(held)
        if isinstance(held, _InCell):
            assert held.generation == self.generation[held.variable], "a cell was changed while its value was needed"
            return n.Var(self.cell_names[held.variable])
        word = self.head[row]
        match kind_of(word):
            case Kind.LITERAL:
                return n.Lit(self.a0[row] | self.a1[row] << 32, type_of(word))
            case Kind.LOOP_VARIABLE:
                return n.Var(self.loop_names[row])
            case Kind.LEAF if row not in self.hints or self.uses[row] < 2:
                return self._node(row, [])
        return None

    def _refer(self, let: _Let) -> n.Var:
        let.references += 1
        if self.collectors:
            self.collectors[-1].append(let)
        return n.Var(let.name)

    def _operands(self, row: int) -> list[int]:
        word = self.head[row]
        match kind_of(word):
            case Kind.OPERATION:
                return [self.canon[a] for a in (self.a0[row], self.a1[row], self.a2[row]) if a != NONE]
            case Kind.LOAD:
                return [self.canon[self.a0[row]]]
            case Kind.LEAF:
                return []
        raise AssertionError(f"row {row} is needed before it has a name")

    def _node(self, row: int, parts: list[n.Expr]) -> n.Expr:
        word = self.head[row]
        match kind_of(word):
            case Kind.LOAD:
                return n.Load(self.buffers[self.a2[row]], parts[0])
            case Kind.LEAF:
                return self._leaf(Leaf(operation_of(word)), self.a0[row])
        name = OPERATIONS[operation_of(word)]
        if name in BINARY:
            return n.BinOp(name, *parts)
        match name:
            case "select":
                return n.Select(*parts)
            case "cast":
                return n.Cast(type_of(word), parts[0])
            case "bitcast":
                return n.Bitcast(type_of(word), parts[0])
            case "fma":
                return n.Fma(*parts)
        return n.UnOp(name, parts[0])

    def _leaf(self, leaf: Leaf, what: int) -> n.Expr:
        match leaf:
            case Leaf.LENGTH:
                return n.BufLen(self.buffers[what])
            case Leaf.SUBGROUP_LANE:
                return n.SubgroupLocalId()
            case Leaf.SUBGROUP_SIZE:
                return n.SubgroupSize()
        return _IDS[leaf](what)


def _finished(out: list[n.Stmt | _Let]) -> n.Body:
    """A list without the declarations that nothing names."""
    kept: list[n.Stmt] = []
    for item in reversed(out):
        if not isinstance(item, _Let):
            kept.append(item)
        elif item.references:
            kept.append(n.Let(item.name, item.value))
        else:
            for part in item.parts:
                part.references -= 1
    kept.reverse()
    return tuple(kept)
