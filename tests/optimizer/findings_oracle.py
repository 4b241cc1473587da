"""The reference for the kernels: their findings about an arena, in plain Python."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from rule_semantics import BECOME_LITERAL, FORWARD, Columns, find_action, known_bits_of

from vyre.optimizer.arena import (
    COLUMNS,
    MOVABLE,
    NONE,
    OPERATIONS,
    Arena,
    Findings,
    Kind,
    head,
    kind_of,
    operation_of,
    type_of,
)
from vyre.optimizer.facts import KNOWN_OPERAND, KNOWN_VALUE
from vyre.optimizer.kernels import MOST_SWEEPS
from vyre.optimizer.oracle import MAY_RUN, LiveRows
from vyre.optimizer.rewrite import MOST_STEPS
from vyre.optimizer.rules import GROUPS, TABLE
from vyre.optimizer.switches import EVERYTHING, Optimization
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.scalars import from_bits, scalar_bitcast, scalar_cast, scalar_fma, scalar_meaning, to_bits


def analyze(arena: Arena, switches: Optimization = EVERYTHING) -> Findings:
    """Return what the kernels must find in an arena with these switches."""
    return Analysis(arena, switches.off).run()


class Analysis:
    """The definition of the findings, row by row."""

    def __init__(self, arena: Arena, off: frozenset[str]) -> None:
        self.arena = arena
        self.off = off
        self.groups = frozenset(GROUPS) - off
        # Rows from ``arena.rows`` on are the literal rows.
        columns: list[list[int]] = [arena.columns[name].tolist() + [NONE] * arena.rows for name in COLUMNS]
        self.head, self.a0, self.a1, self.a2, self.scope, self.d0, self.d1 = columns
        scopes = arena.scope_parent, arena.scope_last, arena.scope_loops, arena.scope_barrier_depth
        lists: list[list[int]] = [column.tolist() for column in (*scopes, arena.scope_control, arena.scope_arm)]
        self.parent, self.last, self.loops, self.barrier_depth, self.controls, self.arms = lists
        self.row_barrier_depth: list[int] = arena.row_barrier_depth.tolist()
        count = 2 * arena.rows
        self.canon = list(range(count))
        self.earliest, self.live, self.uses = [0] * count, [0] * count, [0] * count
        self.place = [NONE] * count
        self.known = [(0, 0)] * count
        self.columns = Columns(self.head, self.a0, self.a1, self.a2, self.known)
        self.before = (0, 0, 0, 0)
        self.table: dict[tuple[object, ...], int] = {}
        self.fired: dict[str, int] = {}
        self.changed = False
        self.invariant: set[int] = set()

    def run(self) -> Findings:
        sweeps = 0
        order: list[int] = self.arena.order.tolist()
        needed = self._find_needed()
        while sweeps == 0 or (self.changed and sweeps < MOST_SWEEPS):
            sweeps += 1
            self.changed = False
            self.fired.clear()
            self.canon = list(range(2 * self.arena.rows))
            for column, name in ((self.head, "head"), (self.a0, "a0"), (self.a1, "a1"), (self.a2, "a2")):
                column[: self.arena.rows] = self.arena.columns[name].tolist()
            self.table.clear()
            for first, behind in pairwise(self.arena.levels.tolist()):
                self._sweep_level([row for row in order[first:behind] if row in needed])
            for row in order:
                if kind_of(self.head[row]) == Kind.LOOP and row not in self.invariant:
                    back, init = self._resolve(self.a1[row]), self._resolve(self.a0[row])
                    if back in (NONE, row) or self._same(back, init):
                        self.invariant.add(row)
                        self.changed = True
        self.live_rows = LiveRows(
            self.head, self.a0, self.a1, self.a2, self.canon, self.scope, self.d0, self.d1, self.parent, self.controls,
            self.arms,
        )  # fmt: skip
        self.live = [
            int(state == MAY_RUN) for state in self.live_rows.find(self.arena.rows, keeps_all="dead" in self.off)
        ]
        self._find_places(order)
        found = (self.canon, self.head, self.a0, self.a1, self.a2, self.live, self.place, self.uses)
        canon, word, a0, a1, a2, live, place, uses = (np.array(column, np.uint32) for column in found)
        return Findings(canon, word, a0, a1, a2, live, place, uses, self.fired, sweeps)

    def _find_needed(self) -> set[int]:
        """The rows of statements and of cells, and the values that they depend on."""
        needed = {row for row in range(self.arena.rows) if kind_of(self.head[row]) >= Kind.PHI}
        pending = list(needed)
        while pending:
            row = pending.pop()
            match kind_of(self.head[row]):
                case Kind.LITERAL | Kind.LEAF | Kind.LOOP_VARIABLE | Kind.CELL:
                    continue
                case Kind.LOAD:
                    operands = {self.a0[row]}
                case _:
                    operands = {self.a0[row], self.a1[row], self.a2[row]}
            added = operands - needed - {NONE}
            needed |= added
            pending += added
        return needed

    def _sweep_level(self, rows: list[int]) -> None:
        for row in rows:
            self._simplify(row)
        if "share" in self.off:
            return
        keys = {
            row: self._key(row) for row in rows if self.canon[row] == row and kind_of(self.head[row]) != Kind.LITERAL
        }
        new: dict[tuple[object, ...], int] = {}
        for row, key in keys.items():
            if key not in self.table:
                new[key] = min(new.get(key, row), row)
        self.table.update(new)
        for row, key in keys.items():
            self.canon[row] = self.table[key]

    def _resolve(self, row: int) -> int:
        return row if row == NONE else self.canon[row]

    def _same(self, a: int, b: int) -> bool:
        if a == b:
            return True
        if NONE in (a, b) or kind_of(self.head[a]) != Kind.LITERAL:
            return False
        return self.head[a] == self.head[b] and self.a0[a] == self.a0[b] and self.a1[a] == self.a1[b]

    def _key_of(self, row: int) -> tuple[int, ...] | int:
        if row != NONE and kind_of(self.head[row]) == Kind.LITERAL:
            return self.head[row], self.a0[row], self.a1[row]
        return row

    def _key(self, row: int) -> tuple[object, ...]:
        word = self.head[row]
        match kind_of(word):
            case Kind.OPERATION:
                a, b, c = (self._key_of(arg) for arg in (self.a0[row], self.a1[row], self.a2[row]))
                operator = OPERATORS.get(OPERATIONS[operation_of(word)])
                if operator is not None and operator.commutative and str(b) < str(a):
                    a, b = b, a
                return word, a, b, c
            case Kind.LOAD:
                return word, self._key_of(self.a0[row]), self.a1[row], self.a2[row]
            case Kind.PHI:
                return word, *(self._key_of(arg) for arg in (self.a0[row], self.a1[row], self.a2[row])), self.scope[row]
        return word, row

    def _encloses(self, scope: int, other: int) -> bool:
        """Whether a scope is another one or around it."""
        return scope <= other <= self.last[scope]

    def _simplify(self, row: int) -> None:
        word = self.head[row]
        kind = kind_of(word)
        if self.canon[row] != row:
            return
        match kind:
            case Kind.LITERAL | Kind.LEAF:
                self.earliest[row] = 0
                self._set_literal_bits(row)
                return
            case Kind.LOOP_VARIABLE | Kind.CELL:
                self.earliest[row] = self.scope[row]
                return
            case Kind.LOAD:
                self.a0[row] = self._resolve(self.a0[row])
                self.earliest[row] = max(self.earliest[self.a0[row]], self.scope[row])
                return
            case Kind.LOOP:
                self.earliest[row] = self.scope[row]
                if row in self.invariant:
                    self.canon[row] = self._resolve(self.a0[row])
                return
        self.a0[row], self.a1[row], self.a2[row] = map(self._resolve, (self.a0[row], self.a1[row], self.a2[row]))
        a, b, c = self.a0[row], self.a1[row], self.a2[row]
        if kind == Kind.PINNED:
            self.earliest[row] = self.scope[row]
        elif kind in (Kind.PHI, Kind.JOIN):
            self.earliest[row] = self.scope[row]
            candidate = NONE
            if kind == Kind.PHI and kind_of(self.head[c]) == Kind.LITERAL:
                candidate = a if self.a0[c] else b
            elif b == NONE or self._same(a, b):
                candidate = a
            if candidate != NONE and self._encloses(self.earliest[candidate], self.scope[row]):
                self.canon[row] = candidate
        else:
            self.rewrite(row)
            if kind_of(self.head[row]) == Kind.OPERATION:
                operands = self.a0[row], self.a1[row], self.a2[row]
                self.earliest[row] = max(self.earliest[x] for x in operands if x != NONE)
            else:
                self.earliest[row] = 0

    def rewrite(self, row: int) -> None:
        """Rewrite an operation whose operands are resolved."""
        self._apply_rules(row)
        self._find_known_bits(row)

    def _apply_rules(self, row: int) -> None:
        """Fold or apply rules, a limited number of times."""
        literal_row = self.arena.rows + row
        self.before = self.head[row], self.a0[row], self.a1[row], self.a2[row]
        for _ in range(MOST_STEPS):
            operands = [x for x in (self.a0[row], self.a1[row], self.a2[row]) if x != NONE]
            if self._fold(row, self.head[row], operands):
                return
            action = find_action(self.columns, row, self.groups, literal_row)
            if action is None:
                return
            name = TABLE[action.form].rule.name
            self.fired[name] = self.fired.get(name, 0) + 1
            if action.kind == FORWARD:
                # A row that is replaced keeps its words.
                self.head[row], self.a0[row], self.a1[row], self.a2[row] = self.before
                self.canon[row] = action.target
                return
            if action.kind == BECOME_LITERAL:
                self._become_literal(row, action.bits)
                return
            if action.literal_head:
                self.head[literal_row] = action.literal_head
                self.a0[literal_row], self.a1[literal_row] = action.bits & NONE, action.bits >> 32
                self._set_literal_bits(literal_row)
            self.head[row] = action.head
            self.a0[row], self.a1[row], self.a2[row] = action.operands

    def _find_known_bits(self, row: int) -> None:
        """Set the known bits of a row, and rewrite it if they determine its value."""
        word = self.head[row]
        if kind_of(word) != Kind.OPERATION:
            self._set_literal_bits(row)
        if self.canon[row] != row or kind_of(word) != Kind.OPERATION or "bits" in self.off:
            return
        name, first = OPERATIONS[operation_of(word)], self.a0[row]
        operands = [x for x in (self.a0[row], self.a1[row], self.a2[row])[name == "select" :] if x != NONE]
        has_result_type = name in ("select", "cast")
        types = {"T": type_of(word if has_result_type else self.head[first]), "S": type_of(self.head[first])}
        found = known_bits_of(name, types, [self.known[x] for x in operands])
        if found.zeros | found.ones:
            self.known[row] = found.zeros, found.ones
        is_constant = found.zeros | found.ones == (1 << type_of(word).bits) - 1
        if is_constant and "fold" not in self.off:
            self.fired[KNOWN_VALUE] = self.fired.get(KNOWN_VALUE, 0) + 1
            self._become_literal(row, found.ones)
        elif found.equal_operand:
            self.fired[KNOWN_OPERAND] = self.fired.get(KNOWN_OPERAND, 0) + 1
            self.head[row], self.a0[row], self.a1[row], self.a2[row] = self.before
            self.canon[row] = operands[found.equal_operand - 1]

    def _set_literal_bits(self, row: int) -> None:
        dtype = type_of(self.head[row])
        if kind_of(self.head[row]) == Kind.LITERAL and not dtype.is_float:
            bits = self.a0[row] | self.a1[row] << 32
            self.known[row] = bits ^ (1 << dtype.bits) - 1, bits

    def _become_literal(self, row: int, bits: int) -> None:
        self.head[row] = head(Kind.LITERAL, type_of(self.head[row]))
        self.a0[row], self.a1[row], self.a2[row] = bits & NONE, bits >> 32, NONE

    def _fold(self, row: int, word: int, args: list[int]) -> bool:
        if "fold" in self.off or any(kind_of(self.head[x]) != Kind.LITERAL for x in args):
            return False
        name = OPERATIONS[operation_of(word)]
        types = [type_of(self.head[x]) for x in args]
        bits = [self.a0[x] | self.a1[x] << 32 for x in args]
        values = [from_bits(b, t) for b, t in zip(bits, types, strict=True)]
        target = type_of(word)
        if name in MATH_FUNCTIONS:
            return False
        match name:
            case "select":
                result = values[1] if values[0] else values[2]
            case "cast":
                result = scalar_cast(types[0], target)(values[0])
            case "bitcast":
                result = scalar_bitcast(types[0], target)(values[0])
            case "fma":
                result = scalar_fma(target)(*values)
            case _:
                result = scalar_meaning(name, types[0])(*values)
        self._become_literal(row, to_bits(result, target))
        return True

    def _common_scope(self, a: int, b: int) -> int:
        """The innermost scope around two scopes; ``a`` may be NONE."""
        if a == NONE:
            return b
        while not self._encloses(a, b):
            a = self.parent[a]
        return a

    def _find_places(self, order: list[int]) -> None:
        for row in range(self.arena.rows):
            if kind_of(self.head[row]) >= Kind.EFFECT and self.live[row]:
                self._count_uses(row, self.scope[row])
        for row in reversed(order):
            if not self.live[row] or self.canon[row] != row:
                continue
            kind = kind_of(self.head[row])
            if kind in MOVABLE:
                earliest, scope = self.earliest[row], self.place[row]
                if scope == NONE:
                    continue
                chosen, barrier_depth = scope, min(self.row_barrier_depth[row], self.barrier_depth[scope])
                while scope != earliest and "motion" not in self.off:
                    scope = self.parent[scope]
                    if self.loops[scope] < self.loops[chosen] and self.barrier_depth[scope] >= barrier_depth:
                        chosen = scope
                self.place[row] = chosen
                self._count_uses(row, chosen)
            elif kind == Kind.PINNED:
                self._count_uses(row, self.scope[row])

    def _count_uses(self, row: int, scope: int) -> None:
        """Count the uses of a row's operands in a scope, and widen their places to it."""
        for used in self.live_rows.uses(row):
            self.uses[used] += 1
            self.place[used] = self._common_scope(self.place[used], scope)
