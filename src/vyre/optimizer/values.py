"""How are values written? Where they are used, if that is once; else with a name, declared in the list of their place.

A value whose place is a list that is not yet open is declared in the list that is being written. What is kept for
later, before memory or a cell changes, may turn out not to be needed, and then it is left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from enum import Enum
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.nodes import BinOp, Let, Var
from vyre.optimizer.arena import MOVABLE, NONE, OPERATIONS, TYPES, USES_NOTHING, Arena, Kind, Leaf
from vyre.optimizer.findings import Findings
from vyre.optimizer.naming import LONGEST_HINT, Names
from vyre.optimizer.outline import Outline, Variable
from vyre.optimizer.rows import numbers, words
from vyre.semantics.operators import BINARY, Result

# How deep expressions nest before a part of them gets a name.
_DEEPEST: Final = 24
_IDS: Final = {
    Leaf.INVOCATION_ID: n.InvocationId,
    Leaf.WORKGROUP_ID: n.WorkgroupId,
    Leaf.LOCAL_ID: n.LocalId,
    Leaf.NUM_WORKGROUPS: n.NumWorkgroups,
}
# By the codes of operations, and of what is none.
_COMPARES: Final = np.array(
    [name in BINARY and BINARY[name].result is Result.BOOL for name in OPERATIONS] + [False], dtype=bool
)
# The names of the binary operators by their codes; behind them is what every other row has.
_BINARY: Final = tuple(name if name in BINARY else None for name in (*OPERATIONS, None))
# Plain numbers, with which columns are compared more quickly than with members.
_LITERAL, _OPERATION, _LEAF, _LOAD, _ASSIGN = (
    kind.value for kind in (Kind.LITERAL, Kind.OPERATION, Kind.LEAF, Kind.LOAD, Kind.ASSIGN)
)
_MOVABLE: Final = np.isin(np.arange(256), MOVABLE)
_USES_ROWS: Final = ~np.isin(np.arange(256), USES_NOTHING)
_SIMPLE: Final = np.isin(np.arange(256), (Kind.LEAF, Kind.LITERAL))


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

    Of the values with a place in it, those up to one have been ``passed``, and they end before ``stop``.
    """

    scope: int
    visible: int
    out: Written | None
    undo: list[tuple[int, n.Expr | None, InCell | None]]
    generations: list[tuple[Variable, int]]
    passed: int
    stop: int
    ended: bool = False


class Values:
    """The rows as values: what each of them is made of, how it can be named now, and the open lists."""

    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        rows = len(findings.head) // 2
        self.rows, self.buffers = rows, [decl.name for decl in outline.program.buffers]
        self.last: list[int] = arena.scope_last.tolist()
        # Columns as they are, and small numbers as bytes: of a row that nobody asks for, no objects are made.
        self.canon, self.place, self.head = findings.canon.data, findings.place.data, findings.head.data
        self.a0, self.a1, self.a2 = findings.a0.data, findings.a1.data, findings.a2.data
        self.live, self.uses = _small(findings.live[:rows]), _small(np.minimum(findings.uses[:rows], 2))
        kinds = findings.head.astype(np.uint8)
        self.kinds = kinds.tobytes()
        is_movable = _MOVABLE[kinds[:rows]]
        stands = np.where(is_movable, findings.place[:rows], arena.columns["scope"])
        is_needed = (findings.live[:rows] != 0) & (findings.canon[:rows] == np.arange(rows, dtype=np.uint32))
        used_at = self._find_operands(findings, kinds[:rows], stands, is_needed)
        self._find_pending(findings, kinds, stands, is_needed, is_movable)
        # The first name that one of the rows has for which a row stands.
        named_rows, self.called = outline.named
        hints = np.full(2 * rows, NONE, np.uint32)
        hints[findings.canon[words(named_rows)][::-1]] = np.arange(len(named_rows), dtype=np.uint32)[::-1]
        self.hints = hints.data
        self.names = Names(self.buffers, outline.names, self.last)
        # What needs no computing: constants, and the names of values. Cells, whose contents change, are apart.
        self.at_hand: list[n.Expr | None] = [None] * (2 * rows)
        self.at_hand.append(n.Lit(0, TYPES[0]))
        given = np.flatnonzero((used_at != NONE) & (kinds == _LITERAL))
        bits = (findings.a0[given] | findings.a1[given].astype(np.uint64) << 32).tolist()
        types = map(TYPES.__getitem__, (findings.head[given] >> 8 & 0xFF).tolist())
        for row, literal in zip(given.tolist(), map(n.Lit, bits, types), strict=True):
            self.at_hand[row] = literal
        for row in np.flatnonzero(kinds == _LEAF).tolist():
            self.at_hand[row] = self.without_name(row)
        self.nesting = bytearray(2 * rows + 1)
        self.in_cells: dict[int, InCell] = {}
        self.kept: dict[int, Kept] = {}
        self.keeps = False
        self.cell_names: dict[Variable, str] = {}
        self.generation: dict[Variable, int] = {}
        self.written_loads: set[int] = set()
        self.frames: list[Frame] = []
        self.frame_of: dict[int, int] = {}
        # While values are kept that may not be needed: of each declaration under way, what its value names.
        self.collectors: list[list[Kept]] = []

    def _find_operands(self, findings: Findings, kinds: Array, stands: Array, is_needed: Array) -> Array:
        """Operands by the rows that stand for them, and which values get a name; of what is used, where that is.

        Behind all rows is one for operands that there are not. Those of what is not needed are out of range.
        """
        rows, none = self.rows, 2 * self.rows
        first = np.where(is_needed, np.uint32(none), np.uint32(NONE))
        second, third = np.full(rows, none, np.uint32), np.full(rows, none, np.uint32)
        used_at = np.full(none, NONE, np.uint32)
        users = np.flatnonzero(is_needed & _USES_ROWS[kinds])
        for operands, column in ((first, findings.a0), (second, findings.a1), (third, findings.a2)):
            given = column[users]
            there = given != NONE
            using, used = users[there], findings.canon[given[there]]
            operands[using] = used
            used_at[used] = stands[using]
            users = users[kinds[users] != _LOAD]
        self.first, self.second, self.third = first.data, second.data, third.data
        # A value of one use is written there, unless that is in another list.
        self.named = _small((findings.uses[:rows] > 1) | (used_at[:rows] != findings.place[:rows]))
        return used_at

    def _find_pending(
        self, findings: Findings, kinds: Array, stands: Array, is_needed: Array, is_movable: Array
    ) -> None:
        """The values that have a place, by scope and position, with what they are made of."""
        rows, canon, place = self.rows, findings.canon, findings.place
        is_pending = is_needed & is_movable & (place[:rows] != NONE)
        # What is assigned in its list may be computed right into its cell.
        assignments = np.flatnonzero(is_needed & (kinds[:rows] == _ASSIGN))
        assigned = canon[findings.a0[assignments]]
        is_pending[assigned[(assigned < rows) & (place[assigned] == stands[assignments])]] = False
        # What is compared without computing anything is compared where it matters, for whoever reads a branch to see.
        is_operation = kinds[:rows] == _OPERATION
        operations = np.where(is_operation, findings.head[:rows] >> 16, len(OPERATIONS)).astype(np.uint8)
        first, second = np.asarray(self.first), np.asarray(self.second)
        guards = np.flatnonzero(is_needed & _COMPARES[operations])
        guards = guards[_SIMPLE[kinds[first[guards]]] & _SIMPLE[kinds[second[guards]]]]
        is_pending[guards] = False
        self.binary, self.guards = operations.tobytes(), set(guards.tolist())
        # A value stands where the first of those did for which its row stands.
        position = np.arange(rows, dtype=np.uint32)
        late = np.flatnonzero((canon[:rows] > position) & (canon[:rows] < rows))[::-1]
        position[canon[late]] = late
        pending = np.flatnonzero(is_pending)
        pending = pending[np.lexsort((position[pending], place[pending]))]
        self.pending = pending, first[pending], second[pending], operations[pending]
        self.position, self.positions = position.data, position[pending].data
        scopes = place[pending]
        bounds = [0, *(np.flatnonzero(scopes[1:] != scopes[:-1]) + 1).tolist(), len(scopes)]
        self.spans = {int(scopes[start]): (start, stop) for start, stop in pairwise(bounds) if start < stop}

    def known(self, row: int) -> int | None:
        """The low word of a row that is a literal."""
        row = self.canon[row]
        return self.a0[row] if self.kinds[row] == _LITERAL else None

    def span(self, scope: int) -> tuple[int, int]:
        """Where the values with their place in a scope begin and end."""
        return self.spans.get(scope, (0, 0))

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
        for row in self.pending[0][self.span(frame.scope)[0] : frame.passed].tolist():
            self.at_hand[row] = self.without_name(row)

    def without_name(self, row: int) -> n.Expr | None:
        """How a row is written anywhere."""
        if self.kinds[row] == _LEAF and (self.hints[row] == NONE or self.uses[row] < 2):
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
        hint = self.hints[row]
        return self.called[hint] if hint != NONE else self.names.unlike(otherwise)

    def declare(self, row: int, value: n.Expr, frame: Frame, otherwise: str, parts: list[Kept] | None = None) -> n.Var:
        """Gives a value a name, in a list; with what it names, if it may turn out not to be needed."""
        assert frame.out is not None
        name = self.names.make(self.hint(row, otherwise), frame.visible)
        let, var = n.Let(name, value), n.Var(name)
        if parts is not None:
            self.kept[row] = Kept(let, parts)
            self.keeps = True
            frame.out.append(self.kept[row])
        else:
            if self.kept:
                self.kept.pop(row, None)
            frame.out.append(let)
        self.name(row, frame, var)
        return var

    def declare_until(self, end: int, frame: Frame) -> None:
        """Writes the values that have their place in a list and in the source stand before a row, in that order."""
        start, stop = frame.passed, frame.stop
        if start == stop or (most := end - self.positions[start]) <= 0:
            return
        # No two positions are the same, so there are no more of them before the end than numbers.
        frame.passed = stop = bisect_left(self.positions, end, start, min(stop, start + most))
        self._declare_all(numbers(*(column[start:stop] for column in self.pending)), frame)

    def _declare_all(self, parts: Iterable[tuple[int, ...]], frame: Frame) -> None:
        """Writes values in that order, each by its row, those of two operands, and the code of its operation.

        Those of one use are ready for it then, unless they were read from memory or a cell, which may change before.
        """
        at_hand, in_cells, kept, nesting, named = self.at_hand, self.in_cells, self.kept, self.nesting, self.named
        out, visible, names, taken = frame.out, frame.visible, self.names, self.names.scopes
        hints, called = self.hints, self.called
        assert out is not None
        for row, one, other, operation in parts:
            if at_hand[row] is not None or (in_cells and row in in_cells):
                continue
            left, right, operator = at_hand[one], at_hand[other], _BINARY[operation]
            if left is None or right is None or operator is None or kept:
                if named[row]:
                    self.evaluate(row, frame, Way.NAMED)
                continue
            node = BinOp(operator, left, right)
            if not named[row]:
                depth, beside = nesting[one] + 1, nesting[other] + 1
                if depth < beside:
                    depth = beside
                if depth < _DEEPEST:
                    at_hand[row], nesting[row] = node, depth
                    continue
            # Behind its own list nobody asks for it, so that its name need not be taken back there.
            number = hints[row]
            name = called[number] if number != NONE else names.unlike("t")
            if name in taken or len(name) > LONGEST_HINT:
                name = names.make(name, visible)
            else:
                taken[name] = visible
            out.append(Let(name, node))
            at_hand[row] = Var(name)

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
        return self.of(self.canon[row])

    def of(self, row: int) -> n.Expr:
        """The same for a row that stands for itself."""
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
        kinds, binary, uses, place, nesting = self.kinds, self.binary, self.uses, self.place, self.nesting
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
                if home is not None and (uses[row] > 1 or home is not frame) and row not in guards:
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
                last = at_hand[third[row]]
                if last is None or kept:
                    needed = third[row]
                    last = self._held(needed)
            if left is None or right is None or last is None:
                waiting.append((row, frame, way, left, right, depth))
                row, way, left, right, last, depth = needed, Way.AS_NEEDED, None, None, None, 0
                continue
            name = _BINARY[binary[row]]
            node = self._node(row, left, right, last) if name is None else n.BinOp(name, left, right)
            depth = 1 + max(depth, nesting[first[row]], nesting[second[row]], nesting[third[row]])
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
                return n.Load(self.buffers[self.a2[row]], parts[0])
            case Kind.LEAF:
                return self._leaf(row)
            case Kind.OPERATION:
                target = TYPES[self.head[row] >> 8 & 0xFF]
                match OPERATIONS[self.binary[row]]:
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
        what = self.a0[row]
        match Leaf(self.head[row] >> 16):
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
