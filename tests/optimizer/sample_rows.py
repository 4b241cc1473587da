"""Rows for tests of the rules: random rows, and rows that a given rule matches."""

from __future__ import annotations

import random
from collections.abc import Mapping

from rule_semantics import BECOME_LITERAL, FORWARD, Action, Columns

from vyre.optimizer.arena import NONE, OPERATION_CODES, OPERATIONS, Kind, head, kind_of, operation_of, type_of
from vyre.optimizer.patterns import (
    SWAPPED,
    Fixed,
    Form,
    Literal,
    Operation,
    Term,
    Types,
    Value,
    dtype_of,
    fixed_bits,
    mask_owner,
    subterms,
)
from vyre.optimizer.rules import COSTS, TABLE
from vyre.semantics.scalars import from_bits, scalar_bitcast, scalar_cast, scalar_fma, scalar_meaning, to_bits
from vyre.semantics.types import DType


def edge_bits(dtype: DType) -> list[int]:
    """The bits of edge values of a type."""
    ones = (1 << dtype.bits) - 1
    if dtype.is_float:
        cast = scalar_cast(DType.F64, dtype)
        numbers = (0.0, -0.0, 1.0, -1.0, 2.0, -3.5, 0.1, 1e-7, 6e4, float("inf"), float("-inf"), float("nan"))
        return sorted({to_bits(cast(number), dtype) for number in numbers} | {1, 1 << (dtype.bits - 1) | 1})
    near = {0, 1, 2, 3, 4, 5, 7, 8, 10, 12, dtype.bits - 1, dtype.bits, ones >> 1, (ones >> 1) + 1, (ones >> 1) + 2}
    near |= {
        dtype.bits - 3,
        dtype.bits - 4,
        ones,
        ones - 1,
        ones >> (dtype.bits // 2),
        1 << (dtype.bits // 2),
        ones ^ 7,
        ones << 3,
    }
    return sorted({bits & ones for bits in near})


class Rows:
    """Growing columns; operands precede the rows that use them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.columns = Columns([], [], [], [], [])
        # Values to make literals of often, so that a condition on their known bits holds.
        self.conditioned: set[str | None] = set()
        self.of_type: dict[DType, list[int]] = {dtype: [] for dtype in DType}

    def _row(self, word: int, a0: int = NONE, a1: int = NONE, a2: int = NONE) -> int:
        for column, value in zip(
            (self.columns.head, self.columns.a0, self.columns.a1, self.columns.a2), (word, a0, a1, a2), strict=True
        ):
            assert isinstance(column, list)
            column.append(value)
        row = len(self.columns.head) - 1
        assert isinstance(self.columns.known, list)
        self.columns.known.append((0, 0))
        _set_known_bits(self.columns, row)
        self.of_type[type_of(word)].append(row)
        return row

    def literal(self, bits: int, dtype: DType) -> int:
        return self._row(head(Kind.LITERAL, dtype), bits & NONE, bits >> 32)

    def any_literal(self, dtype: DType) -> int:
        bits = (
            self.random.choice(edge_bits(dtype)) if self.random.random() < 0.8 else self.random.getrandbits(dtype.bits)
        )
        return self.literal(to_bits(from_bits(bits, dtype), dtype), dtype)

    def leaf(self, dtype: DType) -> int:
        """A value without known bits."""
        return self._row(head(Kind.LOAD, dtype), NONE, NONE, NONE)

    def operation(self, name: str, dtype: DType, operands: list[int]) -> int:
        a, b, c = (*operands, NONE, NONE, NONE)[:3]
        return self._row(head(Kind.OPERATION, dtype, OPERATION_CODES[name]), a, b, c)

    def resolve(self, row: int, representatives: Mapping[int, int]) -> None:
        """Replace a row's operands by their representatives."""
        a, b, c = (representatives.get(x, x) for x in self.columns.operands(row))
        _set(self.columns, row, (self.columns.head[row], a, b, c))

    def fold(self, row: int) -> bool:
        """Evaluate an operation on literals, as the kernel does before any rule; return whether it was one."""
        word, operands = self.columns.head[row], [x for x in self.columns.operands(row) if x != NONE]
        if kind_of(word) != Kind.OPERATION or not all(map(self.columns.is_literal, operands)):
            return False
        bits = result_of(word, [(self.columns.bits(x), type_of(self.columns.head[x])) for x in operands])
        _set(self.columns, row, (head(Kind.LITERAL, type_of(word)), bits & NONE, bits >> 32, NONE))
        return True

    def value(self, dtype: DType) -> int:
        known = self.of_type[dtype]
        return self.random.choice(known[-40:]) if known and self.random.random() < 0.6 else self.leaf(dtype)

    def instance(self, term: Term, types: Types, bound: dict[str, int], known: Mapping[str, int]) -> int:
        """Make rows that a term matches; ``known`` gives the bits of literals by name."""
        dtype = dtype_of(term.type, types)
        match term:
            case Fixed(value):
                return self.literal(fixed_bits(value, dtype), dtype)
            case Operation(name, operands):
                return self.operation(name, dtype, [self.instance(one, types, bound, known) for one in operands])
            case Literal(name) | Value(name):
                row = bound.get(name)
                if row is not None and (isinstance(term, Value) or self.random.random() < 0.5):
                    return row
                if isinstance(term, Literal):
                    bits = self.columns.bits(row) if row is not None else known.get(name)
                    row = self.any_literal(dtype) if bits is None else self.literal(bits, dtype)
                elif name in self.conditioned and self.random.random() < 0.7:
                    row = self.any_literal(dtype)
                else:
                    row = self.leaf(dtype) if name == "v" else self.value(dtype)
                bound[name] = row
                return row
        raise TypeError(term)

    def matching(self, form: Form, known: Mapping[str, int] | None = None) -> int:
        """Make a row with the pattern of a form, for random types of it; its condition may not hold."""
        types = self.random.choice(list(form.rule.cases()))
        names = [part.name for part in subterms(form.condition) if isinstance(part, Literal)] if form.condition else []
        self.conditioned = {mask_owner(name) for name in names}
        return self.instance(form.pattern, types, {}, known or {})

    def any_matching(self) -> int:
        return self.matching(self.random.choice(TABLE))


def evaluate(columns: Columns, leaves: Mapping[int, int]) -> list[int]:
    """The bits of every row, given those of the leaves."""
    literal = [kind_of(word) == Kind.LITERAL for word in columns.head]
    values = [columns.bits(row) if known else leaves.get(row, 0) for row, known in enumerate(literal)]
    for row, word in enumerate(columns.head):
        if kind_of(word) == Kind.OPERATION:
            operands = [x for x in columns.operands(row) if x != NONE]
            values[row] = result_of(word, [(values[x], type_of(columns.head[x])) for x in operands])
    return values


def result_of(word: int, operands: list[tuple[int, DType]]) -> int:
    """The bits of an operation's result, given the bits and types of its operands."""
    values = [from_bits(bits, dtype) for bits, dtype in operands]
    target, source, name = type_of(word), operands[-1][1], OPERATIONS[operation_of(word)]
    match name:
        case "select":
            return operands[1][0] if values[0] else operands[2][0]
        case "cast":
            return to_bits(scalar_cast(source, target)(*values), target)
        case "bitcast":
            return to_bits(scalar_bitcast(source, target)(*values), target)
        case "fma":
            return to_bits(scalar_fma(target)(*values), target)
    return to_bits(scalar_meaning(name, source)(*values), target)


def is_irregular(columns: Columns, row: int) -> bool:
    """Whether an operation has a literal whose sign or size a rule normalizes."""
    _, b, _ = columns.operands(row)
    if b == NONE or not columns.is_literal(b):
        return False
    name, dtype = OPERATIONS[operation_of(columns.head[row])], type_of(columns.head[b])
    if name in ("add", "sub") and dtype.is_integer:
        return columns.bits(b) > 1 << (dtype.bits - 1)
    return name in ("shl", "shr", "rotl") and columns.bits(b) >= dtype.bits


def cost(columns: Columns, row: int) -> tuple[int, int]:
    """The cost of a row's expression as a tree, and its number of irregular literals: every rule lowers the pair."""
    costs: dict[int, tuple[int, int]] = {}
    todo = [row]
    while todo:
        at = todo[-1]
        if kind_of(columns.head[at]) != Kind.OPERATION:
            costs[todo.pop()] = (0, 0)
            continue
        operands = [x for x in columns.operands(at) if x != NONE]
        missing = [x for x in operands if x not in costs]
        if missing:
            todo += missing
            continue
        name = OPERATIONS[operation_of(columns.head[at])]
        own = COSTS[name] + (2 if name in SWAPPED and columns.is_literal(operands[0]) else 0)
        costs[todo.pop()] = (
            own + sum(costs[x][0] for x in operands),
            is_irregular(columns, at) + sum(costs[x][1] for x in operands),
        )
    return costs[row]


def apply(columns: Columns, row: int, action: Action, literal_row: int) -> int:
    """Apply an action to a row; return its representative."""
    if action.kind == FORWARD:
        return action.target
    if action.kind == BECOME_LITERAL:
        word = (columns.head[row] & 0xFF00) | Kind.LITERAL
        _set(columns, row, (word, action.bits & NONE, action.bits >> 32, NONE))
        return row
    if action.literal_head:
        _set(columns, literal_row, (action.literal_head, action.bits & NONE, action.bits >> 32, NONE))
    _set(columns, row, (action.head, *action.operands))
    return row


def _set(columns: Columns, row: int, words: tuple[int, int, int, int]) -> None:
    for column, word in zip((columns.head, columns.a0, columns.a1, columns.a2), words, strict=True):
        assert isinstance(column, list)
        column[row] = word
    _set_known_bits(columns, row)


def _set_known_bits(columns: Columns, row: int) -> None:
    """All bits of integer literals are known, and none of other rows."""
    dtype = type_of(columns.head[row])
    is_known = columns.is_literal(row) and not dtype.is_float
    assert isinstance(columns.known, list)
    columns.known[row] = (columns.bits(row) ^ (1 << dtype.bits) - 1, columns.bits(row)) if is_known else (0, 0)
