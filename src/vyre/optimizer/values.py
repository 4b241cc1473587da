"""How are values written? Where they are used, if that is once; else with a name, declared in the list of their place.

A value whose place is a list that is not yet open is declared in the list that is being written. What is kept for
later, before memory or a cell changes, may turn out not to be needed, and then it is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from enum import Enum
from itertools import compress
from typing import Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.optimizer.arena import MOVABLE, NONE, OPERATION_CODES, OPERATIONS, TYPES, USES_NOTHING, Arena, Kind, Leaf
from vyre.optimizer.findings import Findings
from vyre.optimizer.naming import Names
from vyre.optimizer.outline import Outline, Variable
from vyre.semantics.operators import BINARY, Result

# How deep expressions nest before a part of them gets a name.
_DEEPEST: Final = 24
_IDS: Final = {
    Leaf.INVOCATION_ID: n.InvocationId,
    Leaf.WORKGROUP_ID: n.WorkgroupId,
    Leaf.LOCAL_ID: n.LocalId,
    Leaf.NUM_WORKGROUPS: n.NumWorkgroups,
}
_COMPARISONS: Final = [OPERATION_CODES[name] for name, operator in BINARY.items() if operator.result is Result.BOOL]
# The names of the binary operators by their codes; behind them is what every other row has.
_BINARY: Final = tuple(name if name in BINARY else None for name in (*OPERATIONS, None))
_LOAD: Final = Kind.LOAD.value
_USES_NOTHING: Final = [kind.value for kind in USES_NOTHING]


class Way(Enum):
    """How a value is written: with a name of its own, where it is used, or as its uses and its place ask."""

    NAMED = 0
    IN_PLACE = 1
    AS_NEEDED = 2


class Kept(msgspec.Struct, eq=False):
    """A declaration that may turn out not to be needed; ``parts`` are those that its value names."""

    let: n.Let
    parts: list[Kept]
    references: int = 0


class InCell(msgspec.Struct, eq=False):
    """A value that a cell holds, as long as the cell has not been changed."""

    variable: Variable
    generation: int


Written = list[n.Stmt | Kept]


class Frame(msgspec.Struct, eq=False):
    """An open list. A loop's condition has a scope but no list. Its declarations are visible in a scope.

    Of the values with a place in it, so many have been ``passed``.
    """

    scope: int
    visible: int
    out: Written | None
    undo: list[tuple[int, n.Expr | None, InCell | None]]
    generations: list[tuple[Variable, int]]
    ended: bool = False
    passed: int = 0


class Values:
    """The rows as values: what each of them is made of, how it can be named now, and the open lists."""

    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        rows = len(findings.head) // 2
        buffers = [decl.name for decl in outline.program.buffers]
        words = findings.head[:rows]
        kinds = words & 0xFF
        self.rows, self.findings, self.buffers = rows, findings, buffers
        self.last: list[int] = arena.scope_last.tolist()
        # Small numbers as bytes, which are there at once.
        self.kinds, self.operations = _small(kinds), _small(words >> 16)
        is_operation = kinds == Kind.OPERATION
        self.binary = _small(np.where(is_operation, words >> 16, len(OPERATIONS)))
        self.live, self.uses = _small(findings.live[:rows]), _small(np.minimum(findings.uses[:rows], 2))
        self.canon: list[int] = findings.canon[:rows].tolist()
        self.place: list[int] = findings.place[:rows].tolist()
        # Operands by the rows that stand for them; behind all rows is one for operands that there are not.
        first = self._operands(findings.a0, is_operation | (kinds == Kind.LOAD))
        second, third = self._operands(findings.a1, is_operation), self._operands(findings.a2, is_operation)
        with_third = np.nonzero(third < 2 * rows)[0]
        self.first: list[int] = first.tolist()
        self.second: list[int] = second.tolist()
        # What is compared without computing anything is compared where it matters, for whoever reads a branch to see.
        is_simple = np.append(np.isin(findings.head & 0xFF, (Kind.LEAF, Kind.LITERAL)), False)
        is_comparison = is_operation & np.isin(words >> 16, _COMPARISONS)
        is_guard = is_comparison & is_simple[first] & is_simple[second]
        self.guards = _small(is_guard)
        self._find_pending(arena, kinds, ~is_guard)
        self.third: dict[int, int] = dict(zip(with_third.tolist(), third[with_third].tolist(), strict=True))
        # The first name that one of the rows has for which a row stands.
        named = findings.canon[np.array(outline.named[0], np.int64)]
        has_use = findings.live[named] != 0
        names = list(compress(outline.named[1], has_use.tolist()))
        self.hints = dict(zip(reversed(named[has_use].tolist()), reversed(names), strict=True))
        self.names = Names(buffers, outline.names, self.last)
        # What needs no computing: constants, and the names of values. Cells, whose contents change, are apart.
        self.at_hand: list[n.Expr | None] = [None] * (2 * rows)
        self.at_hand.append(n.Lit(0, TYPES[0]))
        for row, literal in self._literals():
            self.at_hand[row] = literal
        for row in np.nonzero(kinds == Kind.LEAF)[0].tolist():
            self.at_hand[row] = self.without_name(row)
        self.in_cells: dict[int, InCell] = {}
        self.kept: dict[int, Kept] = {}
        self.cell_names: dict[Variable, str] = {}
        self.generation: dict[Variable, int] = {}
        self.written_loads: set[int] = set()
        self.frames: list[Frame] = []
        self.frame_of: dict[int, int] = {}
        # While values are kept that may not be needed: of each declaration under way, what its value names.
        self.collectors: list[list[Kept]] = []

    def _operands(self, column: Array, which: Array) -> Array:
        rows = np.arange(self.rows)
        there = which & (column[: self.rows] != NONE)
        return np.where(there, self.findings.canon[np.where(there, column[: self.rows], rows)], 2 * self.rows)

    def _find_pending(self, arena: Arena, kinds: Array, which: Array) -> None:
        """By scope the values that have their place in it, in order and by position, and which of all get a name."""
        findings, rows = self.findings, self.rows
        numbers, place = np.arange(rows), findings.place[:rows]
        # A value stands where the first of those did for which its row stands.
        self.position = np.arange(2 * rows)
        late = np.nonzero(findings.canon[:rows] > numbers)[0]
        np.minimum.at(self.position, findings.canon[late], late)
        is_needed = (findings.live[:rows] != 0) & (findings.canon[:rows] == numbers)
        is_movable = (kinds >= MOVABLE[0]) & (kinds <= MOVABLE[-1])
        # A value of one use is written there, unless that is in another list.
        used_at = np.full(2 * rows, NONE, np.uint32)
        stands = np.where(is_movable, place, arena.columns["scope"])
        uses_rows = is_needed & np.isin(kinds, _USES_NOTHING, invert=True)
        for column in (findings.a0, findings.a1, findings.a2):
            users = np.nonzero(uses_rows & (column[:rows] != NONE))[0]
            used = findings.canon[column[users]]
            used_at[used] = stands[users]
            uses_rows &= kinds != Kind.LOAD
        self.named = _small((findings.uses[:rows] > 1) | (used_at[:rows] != place))
        # What is assigned in its list may be computed right into its cell.
        is_assigned = np.zeros(2 * rows, bool)
        assignments = np.nonzero((kinds == Kind.ASSIGN) & is_needed)[0]
        assigned = findings.canon[findings.a0[assignments]]
        is_assigned[assigned[findings.place[assigned] == stands[assignments]]] = True
        pending = np.nonzero(which & is_needed & is_movable & (place != NONE) & ~is_assigned[:rows])[0]
        pending = pending[np.lexsort((self.position[pending], place[pending]))]
        scopes, starts = np.unique(place[pending], return_index=True)
        parts = np.split(pending, starts[1:]) if len(pending) else []
        self.pending = {
            int(scope): (part.tolist(), self.position[part].tolist()) for scope, part in zip(scopes, parts, strict=True)
        }
        self.nesting = bytearray(2 * rows + 1)

    def _literals(self) -> Iterator[tuple[int, n.Lit]]:
        findings = self.findings
        # Of equal literals one is live, and another may be what a statement names.
        rows = np.nonzero(findings.head & 0xFF == Kind.LITERAL)[0]
        columns = [column[rows].tolist() for column in (findings.a0, findings.a1, findings.head >> 8 & 0xFF)]
        keys = list(zip(*columns, strict=True))
        made = {(low, high, code): n.Lit(low | high << 32, TYPES[code]) for low, high, code in dict.fromkeys(keys)}
        return zip(rows.tolist(), map(made.__getitem__, keys), strict=True)

    def known(self, row: int) -> int | None:
        """The low word of a row that is a literal."""
        row = self.canon[row]
        return int(self.findings.a0[row]) if self.findings.head[row] & 0xFF == Kind.LITERAL else None

    def is_written(self, row: int) -> bool:
        """Whether a load has a name, or has been written where it was used."""
        return self.at_hand[row] is not None or row in self.in_cells or row in self.written_loads

    def is_computed_here(self, row: int, frame: Frame) -> bool:
        """Whether a value that is used more than once has no name yet and its place in this list."""
        return (
            row < self.rows
            and self.kinds[row] in MOVABLE
            and self.uses[row] > 1
            and not isinstance(self.at_hand[row], n.Var)
            and row not in self.in_cells
            and self.home(self.place[row], frame) is frame
        )

    def forget(self, frame: Frame) -> None:
        """Whoever is here has not passed the declarations of this list, nor need cells hold what they held."""
        for row in {row for row, _, _ in frame.undo}.union(self.in_cells):
            self.name(row, frame, self.without_name(row))
        for row in self.pending.get(frame.scope, ([], []))[0][: frame.passed]:
            self.at_hand[row] = self.without_name(row)

    def without_name(self, row: int) -> n.Expr | None:
        """How a row is written anywhere."""
        if self.kinds[row] == Kind.LEAF and (row not in self.hints or self.uses[row] < 2):
            return self._leaf(row)
        return None

    def name(self, row: int, frame: Frame, name: n.Expr | None, cell: InCell | None = None) -> None:
        """From here to the end of a list, a row is a variable's value, or a cell's."""
        frame.undo.append((row, self.at_hand[row], self.in_cells.get(row)))
        self.put(row, name, cell)

    def put(self, row: int, name: n.Expr | None, cell: InCell | None) -> None:
        self.at_hand[row] = name
        if cell is not None:
            self.in_cells[row] = cell
        elif self.in_cells:
            self.in_cells.pop(row, None)

    def hint(self, row: int, otherwise: str) -> str:
        """A name from the source, or one that nothing in the source has."""
        hint = self.hints.get(row)
        return hint if hint is not None else self.names.unlike(otherwise)

    def declare(self, row: int, value: n.Expr, frame: Frame, otherwise: str, parts: list[Kept] | None = None) -> n.Var:
        """Gives a value a name, in a list; with what it names, if it may turn out not to be needed."""
        assert frame.out is not None
        name = self.names.make(self.hint(row, otherwise), frame.visible)
        let, var = n.Let(name, value), n.Var(name)
        if parts is not None:
            self.kept[row] = Kept(let, parts)
            frame.out.append(self.kept[row])
        else:
            if self.kept:
                self.kept.pop(row, None)
            frame.out.append(let)
        self.name(row, frame, var)
        return var

    def declare_until(self, end: int, frame: Frame) -> None:
        """Writes the values that have their place in a list and in the source stand before a row, in that order.

        Those of one use are ready for it then, unless they were read from memory or a cell, which may change before.
        """
        pending, positions = self.pending.get(frame.scope, ([], []))
        if frame.passed == len(pending) or positions[frame.passed] >= end:
            return
        at_hand, in_cells, kept, nesting = self.at_hand, self.in_cells, self.kept, self.nesting
        binary, first, second, named = self.binary, self.first, self.second, self.named
        start, frame.passed = frame.passed, bisect_left(positions, end, frame.passed)
        for row in pending[start : frame.passed]:
            if at_hand[row] is not None or (in_cells and row in in_cells):
                continue
            one, other = first[row], second[row]
            left, right, name = at_hand[one], at_hand[other], _BINARY[binary[row]]
            if left is None or right is None or name is None or kept:
                if named[row]:
                    self.evaluate(row, frame, Way.NAMED)
                continue
            node = n.BinOp(name, left, right)
            depth = 1 + max(nesting[one], nesting[other])
            if named[row] or depth >= _DEEPEST:
                self.declare(row, node, frame, "t")
            else:
                at_hand[row] = node
                nesting[row] = depth

    def keep(self, row: int, frame: Frame) -> None:
        """Declares a value that may be needed when it cannot be computed any more."""
        self.collectors.append([])
        self.evaluate(row, frame, Way.NAMED)

    def _refer(self, row: int) -> None:
        """Something names a row."""
        kept = self.kept.get(row)
        if kept is not None:
            kept.references += 1
            if self.collectors:
                self.collectors[-1].append(kept)

    def home(self, scope: int, here: Frame) -> Frame | None:
        """The list for a value of a scope that is not yet open here; none if it is a condition's, being written."""
        place = self.frame_of.get(scope)
        if place is None:
            return here
        frame = self.frames[place]
        if frame.out is not None:
            return frame
        return self.frames[place + 1] if place + 1 < len(self.frames) else None

    def value(self, row: int) -> n.Expr:
        """A row for use in the list that is being written."""
        row = self.canon[row]
        node = self.at_hand[row]
        if node is not None and not self.kept:
            return node
        return self.evaluate(row, self.frames[-1], Way.AS_NEEDED)

    def _held(self, row: int) -> n.Expr | None:
        """What a row is written as, if it has a name or a cell holds it."""
        name = self.at_hand[row]
        if name is not None:
            self._refer(row)
            return name
        cell = self.in_cells.get(row)
        if cell is None:
            return None
        assert cell.generation == self.generation[cell.variable], "a cell was changed while its value was needed"
        return n.Var(self.cell_names[cell.variable])

    def evaluate(self, row: int, frame: Frame, way: Way) -> n.Expr:
        """Writes a value for use in a list, after the declarations that it takes."""
        node = self._held(row)
        if node is not None:
            return node
        at_hand, kept, none = self.at_hand, self.kept, 2 * self.rows
        first, second, third = self.first, self.second, self.third
        kinds, binary, uses, place = self.kinds, self.binary, self.uses, self.place
        is_keeping, guards = bool(self.collectors), self.guards
        # Of a row: the operands that are written, and how deep they nest; and those rows that wait for an operand.
        left: n.Expr | None = None
        right: n.Expr | None = None
        last: n.Expr | None = None
        depth = 0
        waiting: list[tuple[int, Frame, Way, n.Expr | None, n.Expr | None, int]] = []
        while True:
            if way is Way.AS_NEEDED:
                home = frame if place[row] == frame.scope and frame.out is not None else self.home(place[row], frame)
                way = Way.IN_PLACE
                if home is not None and (uses[row] > 1 or home is not frame) and not guards[row]:
                    way, frame = Way.NAMED, home
                    if is_keeping:
                        self.collectors.append([])
            needed = none
            if left is None:
                left = at_hand[first[row]]
                if left is None or kept:
                    needed = first[row]
                    left = self._held(needed)
            if right is None and left is not None:
                right = at_hand[second[row]]
                if right is None or kept:
                    needed = second[row]
                    right = self._held(needed)
            if last is None and right is not None:
                last = at_hand[third.get(row, none) if third else none]
                if last is None or kept:
                    needed = third.get(row, none)
                    last = self._held(needed)
            if left is None or right is None or last is None:
                waiting.append((row, frame, way, left, right, depth))
                row, way, left, right, last, depth = needed, Way.AS_NEEDED, None, None, None, 0
                continue
            name = _BINARY[binary[row]]
            node = self._node(row, left, right, last) if name is None else n.BinOp(name, left, right)
            depth += 1
            if way is Way.NAMED or (depth >= _DEEPEST and waiting and frame.out is not None):
                parts = None if not is_keeping else self.collectors.pop() if way is Way.NAMED else []
                node, depth = self.declare(row, node, frame, "t", parts), 0
                if kept and waiting:
                    self._refer(row)
            elif kinds[row] == _LOAD and uses[row] == 1 and frame.out is not None:
                self.written_loads.add(row)
            if not waiting:
                return node
            nested = depth
            row, frame, way, left, right, depth = waiting.pop()
            depth = max(depth, nested)
            last = None
            if left is None:
                left = node
            elif right is None:
                right = node
            else:
                last = node

    def _node(self, row: int, *parts: n.Expr) -> n.Expr:
        """A value that is no binary operation."""
        match self.kinds[row]:
            case Kind.LOAD:
                return n.Load(self.buffers[self.findings.a2[row]], parts[0])
            case Kind.LEAF:
                return self._leaf(row)
            case Kind.OPERATION:
                target = TYPES[self.findings.head[row] >> 8 & 0xFF]
                match OPERATIONS[self.operations[row]]:
                    case "select":
                        return n.Select(*parts)
                    case "fma":
                        return n.Fma(*parts)
                    case "cast":
                        return n.Cast(target, parts[0])
                    case "bitcast":
                        return n.Bitcast(target, parts[0])
                    case name:
                        return n.UnOp(name, parts[0])
        raise AssertionError(f"row {row} is needed before it has a name")

    def _leaf(self, row: int) -> n.Expr:
        what = int(self.findings.a0[row])
        match Leaf(self.operations[row]):
            case Leaf.LENGTH:
                return n.BufLen(self.buffers[what])
            case Leaf.SUBGROUP_LANE:
                return n.SubgroupLocalId()
            case Leaf.SUBGROUP_SIZE:
                return n.SubgroupSize()
            case leaf:
                return _IDS[leaf](what)


def _small(column: Array) -> bytes:
    return column.astype(np.uint8).tobytes()
