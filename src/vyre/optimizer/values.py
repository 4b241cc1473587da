"""Values of the decoded program: an expression where a value is used once, a named variable otherwise.

A named value is declared in the statement list of its place, or, if that list is not open yet, in the list being
written. Values saved before memory or a cell changes may turn out to be unused; their declarations are then dropped.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cached_property
from itertools import chain, count, pairwise
from typing import Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.limits import MAX_NAME_LENGTH
from vyre.ir.nodes import BinOp, Let, Var
from vyre.optimizer.arena import MOVABLE, NONE, OPERATIONS, TYPES, WITHOUT_OPERANDS, Arena, Findings, Kind, Leaf
from vyre.optimizer.outline import Outline, Variable
from vyre.optimizer.rows import words
from vyre.semantics.operators import BINARY, Result

# A subexpression nested this deep gets a name.
_MAX_NESTING: Final = 24
# The longest hint that leaves room for a numeric suffix.
_MAX_HINT: Final = MAX_NAME_LENGTH - 12
# Alternatives to a default name that the source already uses.
_ALTERNATIVES: Final = {"t": ("u", "v", "w")}
_IDS: Final = {
    Leaf.INVOCATION_ID: n.InvocationId,
    Leaf.WORKGROUP_ID: n.WorkgroupId,
    Leaf.LOCAL_ID: n.LocalId,
    Leaf.NUM_WORKGROUPS: n.NumWorkgroups,
}
# Tables by operation code; the last entry is for rows that are not operations.
_COMPARES: Final = np.array(
    [name in BINARY and BINARY[name].result is Result.BOOL for name in OPERATIONS] + [False], dtype=bool
)
_BINARY: Final = tuple(name if name in BINARY else None for name in (*OPERATIONS, None))
# Plain integers compare faster with columns than enum members do.
_LITERAL, _OPERATION, _LEAF, _LOAD, _ASSIGN = (
    kind.value for kind in (Kind.LITERAL, Kind.OPERATION, Kind.LEAF, Kind.LOAD, Kind.ASSIGN)
)
# Sets of kinds, as masks by kind code.
_MOVABLE: Final = np.isin(np.arange(256), MOVABLE)
_HAS_OPERANDS: Final = ~np.isin(np.arange(256), WITHOUT_OPERANDS)
_SIMPLE: Final = np.isin(np.arange(256), (Kind.LEAF, Kind.LITERAL))


class Mode(Enum):
    """How a value is written: declared with a name, inline, or as its use count and place require."""

    NAMED = 0
    INLINE = 1
    AUTO = 2


class OptionalLet(msgspec.Struct, eq=False):
    """A declaration that is dropped if nothing refers to it; ``dependencies`` are those its value refers to."""

    let: n.Let
    dependencies: list[OptionalLet]
    references: int = 0


class CellValue(msgspec.Struct, eq=False):
    """A value that a variable's cell holds while the cell has this generation."""

    variable: Variable
    generation: int


Written = list[n.Stmt | OptionalLet]


class Frame(msgspec.Struct, eq=False):
    """An open statement list; a loop's condition has a scope but no list (``body`` is None).

    Its declarations are visible in ``name_scope``. ``undo`` and ``generations`` restore the bindings of rows and the
    generations of cells when it closes. The values placed in it and not declared yet are those from ``next_pending``
    up to ``pending_end``. ``terminated`` says that it ends with a jump.
    """

    scope: int
    name_scope: int
    body: Written | None
    undo: list[tuple[int, n.Expr | None, CellValue | None]]
    generations: list[tuple[Variable, int]]
    next_pending: int
    pending_end: int
    terminated: bool = False


class _Task(msgspec.Struct, eq=False):
    """A value being written: its operands so far, and how deep those written for it nest."""

    row: int
    frame: Frame
    mode: Mode
    operands: list[n.Expr]
    nesting: int = 0


class Names:
    """Allocates names of declarations: those of the source where possible.

    Two declarations share a name only where neither is visible from the other. ``source`` are the source's names, in
    parts; ``scope_last`` is the last scope inside each scope.
    """

    def __init__(self, reserved: Iterable[str], source: Sequence[Sequence[str]], scope_last: list[int]) -> None:
        self.source = source
        self.scope_last = scope_last
        # By name its scope, or its scopes in order; a reserved name has the program's.
        self.scopes: dict[str, int | list[int]] = dict.fromkeys(reserved, 0)
        self._fresh: dict[str, str] = {}
        self._suffixes: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """Return a name that the source does not use, the same for the same hint."""
        found = self._fresh.get(hint)
        if found is None:
            candidates = chain((hint, *_ALTERNATIVES.get(hint, ())), (hint + "_" * more for more in count(1)))
            found = self._fresh[hint] = next(name for name in candidates if name not in self._source_names)
        return found

    @cached_property
    def _source_names(self) -> set[str]:
        return set().union(*self.source)

    def make(self, hint: str, scope: int) -> str:
        """Allocate a name for a declaration in a scope: the hint, or the hint with a number."""
        name = hint = hint[:_MAX_HINT]
        while not self._claim(name, scope):
            self._suffixes[hint] = suffix = self._suffixes.get(hint, 0) + 1
            name = f"{hint}_{suffix}"
        return name

    def _claim(self, name: str, scope: int) -> bool:
        """Take a name in a scope, unless a scope around it or inside it has the name."""
        taken = self.scopes.setdefault(name, [])
        scopes = [taken] if isinstance(taken, int) else taken
        place = bisect_left(scopes, scope)
        if place < len(scopes) and scopes[place] <= self.scope_last[scope]:
            return False
        # Scopes that share a name are disjoint, so only the one before can be around this one.
        if place and self.scope_last[scopes[place - 1]] >= scope:
            return False
        scopes.insert(place, scope)
        self.scopes[name] = scopes
        return True


class Values:
    """The rows as values: their operands, the expression that denotes each of them now, and the open lists."""

    def __init__(self, arena: Arena, outline: Outline, findings: Findings) -> None:
        rows = len(findings.head) // 2
        self.rows, self.buffers = rows, [decl.name for decl in outline.program.buffers]
        self.scope_last: list[int] = arena.scope_last.tolist()
        # Memory views and bytes: no object is made for a row that is not read.
        self.canon, self.place, self.head = findings.canon.data, findings.place.data, findings.head.data
        self.a0, self.a1, self.a2 = findings.a0.data, findings.a1.data, findings.a2.data
        self.live, self.uses = _bytes(findings.live[:rows]), _bytes(np.minimum(findings.uses[:rows], 2))
        kinds = findings.head.astype(np.uint8)
        self.kinds = kinds.tobytes()
        is_movable = _MOVABLE[kinds[:rows]]
        scopes = np.where(is_movable, findings.place[:rows], arena.columns["scope"])
        is_needed = (findings.live[:rows] != 0) & (findings.canon[:rows] == np.arange(rows, dtype=np.uint32))
        used_in = self._find_operands(findings, kinds[:rows], scopes, is_needed)
        self._find_pending(findings, kinds, scopes, is_needed, is_movable)
        # A row's hint is the first source name of the rows that it represents.
        named_rows, self.source_names = outline.named
        hints = np.full(2 * rows, NONE, np.uint32)
        hints[findings.canon[words(named_rows)][::-1]] = np.arange(len(named_rows), dtype=np.uint32)[::-1]
        self.hints = hints.data
        self.names = Names(self.buffers, outline.names, self.scope_last)
        # Expressions by row that need no further statement. Values in cells, which change, are in ``in_cells``.
        self.available: list[n.Expr | None] = [None] * (2 * rows)
        self.available.append(n.Lit(0, TYPES[0]))
        literals = np.flatnonzero((used_in != NONE) & (kinds == _LITERAL))
        bits = (findings.a0[literals] | findings.a1[literals].astype(np.uint64) << 32).tolist()
        types = map(TYPES.__getitem__, (findings.head[literals] >> 8 & 0xFF).tolist())
        for row, literal in zip(literals.tolist(), map(n.Lit, bits, types), strict=True):
            self.available[row] = literal
        for row in np.flatnonzero(kinds == _LEAF).tolist():
            self.available[row] = self.inline_leaf(row)
        self.nesting = bytearray(2 * rows + 1)
        self.in_cells: dict[int, CellValue] = {}
        self.optional: dict[int, OptionalLet] = {}
        self.has_optional = False
        self.cell_names: dict[Variable, str] = {}
        self.generation: dict[Variable, int] = {}
        self.inlined_loads: set[int] = set()
        self.frames: list[Frame] = []
        self.frame_of: dict[int, int] = {}
        # While optional declarations are written: for each, the optional declarations that its value refers to.
        self.collectors: list[list[OptionalLet]] = []

    def _find_operands(self, findings: Findings, kinds: Array, scopes: Array, is_needed: Array) -> Array:
        """Set the representatives of each row's operands, and which values need a name; return the scope of a use.

        An absent operand is the row behind all rows. The first operand of a row that is not needed is out of range.
        """
        rows, absent = self.rows, 2 * self.rows
        first = np.where(is_needed, np.uint32(absent), np.uint32(NONE))
        second, third = np.full(rows, absent, np.uint32), np.full(rows, absent, np.uint32)
        used_in = np.full(absent, NONE, np.uint32)
        users = np.flatnonzero(is_needed & _HAS_OPERANDS[kinds])
        for operands, column in ((first, findings.a0), (second, findings.a1), (third, findings.a2)):
            given = column[users]
            is_present = given != NONE
            using, used = users[is_present], findings.canon[given[is_present]]
            operands[using] = used
            used_in[used] = scopes[using]
            users = users[kinds[users] != _LOAD]
        self.first, self.second, self.third = first.data, second.data, third.data
        # A value with one use is written inline there, unless the use is in another list.
        self.needs_name = _bytes((findings.uses[:rows] > 1) | (used_in[:rows] != findings.place[:rows]))
        return used_in

    def _find_pending(
        self, findings: Findings, kinds: Array, scopes: Array, is_needed: Array, is_movable: Array
    ) -> None:
        """Set the values that are declared in order of the source: by scope and position, with their operands."""
        rows, canon, place = self.rows, findings.canon, findings.place
        is_pending = is_needed & is_movable & (place[:rows] != NONE)
        # A value assigned in the list of its place can be computed directly into the cell.
        assignments = np.flatnonzero(is_needed & (kinds[:rows] == _ASSIGN))
        assigned = canon[findings.a0[assignments]]
        is_pending[assigned[(assigned < rows) & (place[assigned] == scopes[assignments])]] = False
        # A comparison of leaves and literals is written inline, so that analyses see what a branch tests.
        is_operation = kinds[:rows] == _OPERATION
        operations = np.where(is_operation, findings.head[:rows] >> 16, len(OPERATIONS)).astype(np.uint8)
        first, second = np.asarray(self.first), np.asarray(self.second)
        guards = np.flatnonzero(is_needed & _COMPARES[operations])
        guards = guards[_SIMPLE[kinds[first[guards]]] & _SIMPLE[kinds[second[guards]]]]
        is_pending[guards] = False
        self.operations, self.guards = operations.tobytes(), set(guards.tolist())
        # A representative stands at the position of the first row that it represents.
        position = np.arange(rows, dtype=np.uint32)
        later = np.flatnonzero((canon[:rows] > position) & (canon[:rows] < rows))[::-1]
        position[canon[later]] = later
        pending = np.flatnonzero(is_pending)
        pending = pending[np.lexsort((position[pending], place[pending]))]
        self.pending = pending, first[pending], second[pending], operations[pending]
        self.position, self.positions = position.data, position[pending].data
        places = place[pending]
        bounds = [0, *(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
        self.spans = {int(places[start]): (start, stop) for start, stop in pairwise(bounds) if start < stop}

    def literal_value(self, row: int) -> int | None:
        """The low word of a row that is a literal."""
        row = self.canon[row]
        return self.a0[row] if self.kinds[row] == _LITERAL else None

    def span(self, scope: int) -> tuple[int, int]:
        """The range of pending values whose place is a scope."""
        return self.spans.get(scope, (0, 0))

    def is_written(self, row: int) -> bool:
        """Whether a load has a name, or has been written where it was used."""
        return self.available[row] is not None or row in self.in_cells or row in self.inlined_loads

    def can_compute_into_cell(self, row: int, frame: Frame) -> bool:
        """Whether a value with several uses has no name yet and its place in this list."""
        return (
            row < self.rows
            and self.kinds[row] in MOVABLE
            and self.uses[row] > 1
            and not isinstance(self.available[row], n.Var)
            and row not in self.in_cells
            and self.target_frame(self.place[row], frame) is frame
        )

    def forget(self, frame: Frame) -> None:
        """Drop a list's bindings and all cell values: an invocation that resumes here did not run its declarations."""
        for row in {row for row, _, _ in frame.undo}.union(self.in_cells):
            self.bind(row, frame, self.inline_leaf(row))
        for row in self.pending[0][self.span(frame.scope)[0] : frame.next_pending].tolist():
            self.available[row] = self.inline_leaf(row)

    def inline_leaf(self, row: int) -> n.Expr | None:
        """The expression of a leaf that needs no name; None for other rows."""
        if self.kinds[row] == _LEAF and (self.hints[row] == NONE or self.uses[row] < 2):
            return self._leaf(row)
        return None

    def bind(self, row: int, frame: Frame, node: n.Expr | None, cell: CellValue | None = None) -> None:
        """Bind a row to an expression or to a cell's value, until the list closes."""
        frame.undo.append((row, self.available[row], self.in_cells.get(row)))
        self.rebind(row, node, cell)

    def rebind(self, row: int, node: n.Expr | None, cell: CellValue | None) -> None:
        """Bind a row without recording what it was bound to."""
        self.available[row] = node
        if cell is not None:
            self.in_cells[row] = cell
        elif self.in_cells:
            self.in_cells.pop(row, None)

    def declare(
        self, row: int, value: n.Expr, frame: Frame, default: str, dependencies: list[OptionalLet] | None = None
    ) -> n.Var:
        """Declare a value in a list, by its source name or a default; optional if ``dependencies`` are given."""
        assert frame.body is not None
        hint = self.hints[row]
        name = self.source_names[hint] if hint != NONE else self.names.fresh(default)
        name = self.names.make(name, frame.name_scope)
        let, var = n.Let(name, value), n.Var(name)
        if dependencies is not None:
            self.optional[row] = OptionalLet(let, dependencies)
            self.has_optional = True
            frame.body.append(self.optional[row])
        else:
            self.optional.pop(row, None)
            frame.body.append(let)
        self.bind(row, frame, var)
        return var

    def declare_until(self, end: int, frame: Frame) -> None:
        """Write the values whose place is this list and whose position is before row ``end``, in that order."""
        start, stop = frame.next_pending, frame.pending_end
        if start == stop or (most := end - self.positions[start]) <= 0:
            return
        # Positions are distinct, so at most ``most`` of them are before the end.
        frame.next_pending = stop = bisect_left(self.positions, end, start, min(stop, start + most))
        self._declare_all(zip(*(column[start:stop].tolist() for column in self.pending), strict=True), frame)

    def _declare_all(self, pending: Iterable[tuple[int, ...]], frame: Frame) -> None:
        """Write values, each given by its row, its first two operands and its operation code.

        A binary operation of available operands, the common case, takes the short way: it becomes available, or is
        declared if it needs a name. Other values are written at their use, unless they need a name: a load or a cell's
        value may change before.
        """
        available, in_cells, optional = self.available, self.in_cells, self.optional
        nesting, needs_name = self.nesting, self.needs_name
        body, name_scope, names, taken = frame.body, frame.name_scope, self.names, self.names.scopes
        hints, source_names = self.hints, self.source_names
        assert body is not None
        for row, one, other, operation in pending:
            if available[row] is not None or (in_cells and row in in_cells):
                continue
            left, right, operator = available[one], available[other], _BINARY[operation]
            if left is None or right is None or operator is None or optional:
                if needs_name[row]:
                    self.evaluate(row, frame, Mode.NAMED)
                continue
            node = BinOp(operator, left, right)
            if not needs_name[row]:
                depth, beside = nesting[one] + 1, nesting[other] + 1
                if depth < beside:
                    depth = beside
                if depth < _MAX_NESTING:
                    available[row], nesting[row] = node, depth
                    continue
            # The value is not used behind its own list, so its binding need not be undone.
            hint = hints[row]
            name = source_names[hint] if hint != NONE else names.fresh("t")
            if name in taken or len(name) > _MAX_HINT:
                name = names.make(name, name_scope)
            else:
                taken[name] = name_scope
            body.append(Let(name, node))
            available[row] = Var(name)

    def save(self, row: int, frame: Frame) -> None:
        """Declare, optionally, a value that cannot be computed any more after the next statement."""
        self.collectors.append([])
        self.evaluate(row, frame, Mode.NAMED)

    def _count_reference(self, row: int) -> None:
        optional = self.optional.get(row)
        if optional is not None:
            optional.references += 1
            if self.collectors:
                self.collectors[-1].append(optional)

    def target_frame(self, scope: int, current: Frame) -> Frame | None:
        """The list that declares values of a scope: its own if open, else the current one.

        None for the scope of a loop's condition that is being written.
        """
        place = self.frame_of.get(scope)
        if place is None:
            return current
        frame = self.frames[place]
        if frame.body is not None:
            return frame
        return self.frames[place + 1] if place + 1 < len(self.frames) else None

    def value(self, row: int) -> n.Expr:
        """The expression of a row for use in the list that is being written."""
        row = self.canon[row]
        node = self.available[row]
        if node is not None and not self.optional:
            return node
        return self.evaluate(row, self.frames[-1], Mode.AUTO)

    def _bound(self, row: int) -> n.Expr | None:
        """The expression of a row that is available or held by a cell."""
        node = self.available[row]
        if node is not None:
            self._count_reference(row)
            return node
        cell = self.in_cells.get(row)
        if cell is None:
            return None
        assert cell.generation == self.generation[cell.variable], "a cell was changed while its value was needed"
        return n.Var(self.cell_names[cell.variable])

    def evaluate(self, row: int, frame: Frame, mode: Mode) -> n.Expr:
        """Write a value for use in a list, after the declarations that it requires."""
        node = self._bound(row)
        if node is not None:
            return node
        available, optional, nesting = self.available, self.optional, self.nesting
        columns = first, second, third = self.first, self.second, self.third
        is_saving = bool(self.collectors)
        tasks = [self._task(row, frame, mode, is_saving=is_saving)]
        while True:
            task = tasks[-1]
            row, frame, operands = task.row, task.frame, task.operands
            while len(operands) < 3:
                operand = columns[len(operands)][row]
                node = available[operand]
                if node is None or optional:
                    node = self._bound(operand)
                if node is None:
                    break
                operands.append(node)
            else:
                tasks.pop()
                node = self._node(row, *operands)
                depth = 1 + max(task.nesting, nesting[first[row]], nesting[second[row]], nesting[third[row]])
                if task.mode is Mode.NAMED or (depth >= _MAX_NESTING and tasks and frame.body is not None):
                    dependencies = None
                    if is_saving:
                        dependencies = self.collectors.pop() if task.mode is Mode.NAMED else []
                    node, depth = self.declare(row, node, frame, "t", dependencies), 0
                    if optional and tasks:
                        self._count_reference(row)
                elif self.kinds[row] == _LOAD and self.uses[row] == 1 and frame.body is not None:
                    self.inlined_loads.add(row)
                if not tasks:
                    return node
                user = tasks[-1]
                user.operands.append(node)
                user.nesting = max(user.nesting, depth)
                continue
            tasks.append(self._task(operand, frame, Mode.AUTO, is_saving=is_saving))

    def _task(self, row: int, frame: Frame, mode: Mode, *, is_saving: bool) -> _Task:
        """Begin to write a value: choose between a name and an inline expression, and the list."""
        if mode is Mode.AUTO:
            mode = Mode.INLINE
            target = self.target_frame(self.place[row], frame)
            if target is not None and (self.uses[row] > 1 or target is not frame) and row not in self.guards:
                mode, frame = Mode.NAMED, target
                if is_saving:
                    self.collectors.append([])
        return _Task(row, frame, mode, [])

    def _node(self, row: int, *operands: n.Expr) -> n.Expr:
        binary = _BINARY[self.operations[row]]
        if binary is not None:
            return BinOp(binary, operands[0], operands[1])
        match self.kinds[row]:
            case Kind.LOAD:
                return n.Load(self.buffers[self.a2[row]], operands[0])
            case Kind.LEAF:
                return self._leaf(row)
            case Kind.OPERATION:
                target = TYPES[self.head[row] >> 8 & 0xFF]
                match OPERATIONS[self.operations[row]]:
                    case "select":
                        return n.Select(*operands)
                    case "fma":
                        return n.Fma(*operands)
                    case "cast":
                        return n.Cast(target, operands[0])
                    case "bitcast":
                        return n.Bitcast(target, operands[0])
                    case name:
                        return n.UnOp(name, operands[0])
        raise AssertionError(f"row {row} is used before it is bound")

    def _leaf(self, row: int) -> n.Expr:
        argument = self.a0[row]
        match Leaf(self.head[row] >> 16):
            case Leaf.LENGTH:
                return n.BufLen(self.buffers[argument])
            case Leaf.SUBGROUP_LANE:
                return n.SubgroupLocalId()
            case Leaf.SUBGROUP_SIZE:
                return n.SubgroupSize()
            case leaf:
                return _IDS[leaf](argument)


def _bytes(column: Array) -> bytes:
    return column.astype(np.uint8).tobytes()
