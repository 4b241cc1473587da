"""The meaning of rules and facts on rows, in plain Python: what the bytecode interpreter must do.

``find_action`` matches the rules in order; ``known_bits_of`` applies the facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from vyre.optimizer.arena import NONE, OPERATION_CODES, OPERATIONS, Kind, head, kind_of, operation_of, type_of
from vyre.optimizer.facts import FACTS
from vyre.optimizer.patterns import (
    TYPE_NAMES,
    Fixed,
    Form,
    Literal,
    Operation,
    Term,
    Types,
    Value,
    dtype_of,
    fixed_bits,
    is_constant,
)
from vyre.optimizer.rules import TABLE
from vyre.semantics.scalars import from_bits, scalar_cast, scalar_meaning, to_bits
from vyre.semantics.types import DType


def compute(term: Term, types: Types, bits: Mapping[str, int]) -> int:
    """The bits of a constant term; ``bits`` are those of its literals by name."""
    dtype = dtype_of(term.type, types)
    match term:
        case Literal(name):
            return bits[name]
        case Fixed(value):
            return fixed_bits(value, dtype)
        case Operation(name, operands):
            inner = [dtype_of(operand.type, types) for operand in operands]
            values = [from_bits(compute(one, types, bits), t) for one, t in zip(operands, inner, strict=True)]
            meaning = scalar_cast(inner[0], dtype) if name == "cast" else scalar_meaning(name, inner[0])
            return to_bits(meaning(*values), dtype)
    raise TypeError("a term with a value is not constant")


class Columns(msgspec.Struct, frozen=True, eq=False):
    """The columns that rules match, and the known bits (zeros, ones) of rows, if there are any."""

    head: Sequence[int]
    a0: Sequence[int]
    a1: Sequence[int]
    a2: Sequence[int]
    known: Sequence[tuple[int, int]] | None = None

    def operands(self, row: int) -> tuple[int, int, int]:
        return self.a0[row], self.a1[row], self.a2[row]

    def is_literal(self, row: int) -> bool:
        return kind_of(self.head[row]) == Kind.LITERAL

    def bits(self, row: int) -> int:
        return self.a0[row] | self.a1[row] << 32

    def same(self, one: int, other: int) -> bool:
        """Whether two rows are one value: the same row, or equal literals."""
        if one == other:
            return True
        return self.is_literal(one) and self.head[one] == self.head[other] and self.bits(one) == self.bits(other)


FORWARD, BECOME_LITERAL, BECOME_OPERATION = 1, 2, 3


class Action(msgspec.Struct, frozen=True):
    """The rewrite of a row by a rule. ``bits`` are those of the literal it becomes, or of the new literal operand.

    ``kind`` FORWARD: the row ``target`` replaces it. BECOME_LITERAL: it becomes a literal of its type.
    BECOME_OPERATION: it becomes the operation ``head`` of ``operands``; if ``literal_head`` is not 0, the literal row
    is one of them and becomes a literal with that head.
    """

    kind: int
    form: int
    target: int = NONE
    bits: int = 0
    head: int = 0
    operands: tuple[int, int, int] = (NONE, NONE, NONE)
    literal_head: int = 0


@cache
def _forms() -> dict[int, list[Form]]:
    """The forms by the operation they match."""
    found: dict[int, list[Form]] = {}
    for form in TABLE:
        found.setdefault(OPERATION_CODES[form.pattern.name], []).append(form)
    return found


def find_action(columns: Columns, row: int, groups: frozenset[str], literal_row: int) -> Action | None:
    """The rewrite by the first rule that matches a row, if any."""
    word = columns.head[row]
    if kind_of(word) != Kind.OPERATION:
        return None
    for form in _forms().get(operation_of(word), ()):
        if form.rule.group not in groups:
            continue
        bound = _match(form, columns, row)
        if bound is not None:
            return _action(form, columns, row, literal_row, *bound)
    return None


def _match(form: Form, columns: Columns, row: int) -> tuple[dict[str, int], dict[str, DType]] | None:
    """The rows and types of a form's names, if it matches a row."""
    rows: dict[str, int] = {}
    types: dict[str, DType] = {}
    fixed: list[tuple[bool | int | float | str, int]] = []
    todo: list[tuple[Term, int]] = [(form.pattern, row)]
    while todo:
        term, at = todo.pop()
        word = columns.head[at]
        if term.type == "bool" and type_of(word) is not DType.BOOL:
            return None
        if term.type in TYPE_NAMES and types.setdefault(term.type, type_of(word)) is not type_of(word):
            return None
        match term:
            case Operation(name, operands):
                if kind_of(word) != Kind.OPERATION or OPERATIONS[operation_of(word)] != name:
                    return None
                todo += zip(operands, columns.operands(at), strict=False)
            case Fixed(value):
                if not columns.is_literal(at):
                    return None
                fixed.append((value, at))
            case Value("v") if columns.is_literal(at):
                return None
            case Literal() if not columns.is_literal(at):
                return None
            case Value(name) | Literal(name):
                if not columns.same(rows.setdefault(name, at), at):
                    return None
    if not form.rule.admits(types):
        return None
    if any(columns.bits(at) != fixed_bits(value, type_of(columns.head[at])) for value, at in fixed):
        return None
    bits = {name: columns.bits(at) for name, at in rows.items()}
    if form.condition is not None:
        if columns.known is None:
            masks = dict.fromkeys(rows, (0, 0))
        else:
            masks = {name: columns.known[at] for name, at in rows.items()}
        bits |= {f"{name}{bit}": masks[name][bit] for name in rows for bit in (0, 1)}
        if not compute(form.condition, types, bits):
            return None
    return rows, types


def _action(form: Form, columns: Columns, row: int, literal_row: int, rows: dict[str, int], types: Types) -> Action:
    replacement = form.replacement
    if isinstance(replacement, (Value, Literal)):
        return Action(FORWARD, form.index, target=rows[replacement.name])
    bits = {name: columns.bits(at) for name, at in rows.items()}
    if is_constant(replacement):
        return Action(BECOME_LITERAL, form.index, bits=compute(replacement, types, bits))
    assert isinstance(replacement, Operation)
    operands, literal_head, computed = [], 0, 0
    for operand in replacement.operands:
        if isinstance(operand, (Value, Literal)):
            operands.append(rows[operand.name])
        else:
            operands.append(literal_row)
            literal_head = head(Kind.LITERAL, dtype_of(operand.type, types))
            computed = compute(operand, types, bits)
    word = (columns.head[row] & 0xFFFF) | OPERATION_CODES[replacement.name] << 16
    a, b, c = (*operands, NONE, NONE, NONE)[:3]
    return Action(BECOME_OPERATION, form.index, NONE, computed, word, (a, b, c), literal_head)


_FACTS: Final = {fact.term.name: fact for fact in FACTS}


class KnownBits(msgspec.Struct, frozen=True):
    """The known bits of a result, and which operand it equals: 1, 2 or, if none, 0."""

    zeros: int = 0
    ones: int = 0
    equal_operand: int = 0


def known_bits_of(name: str, types: Mapping[str, DType], operands: Sequence[tuple[int, int]]) -> KnownBits:
    """The known bits of an operation of type T (from S) with these masks of known bits of its operands."""
    fact = _FACTS.get(name)
    if fact is None or types["T"] not in fact.types or (fact.sources and types["S"] not in fact.sources):
        return KnownBits()
    bits = {f"{one}{k}": masks[k] for one, masks in zip(fact.operands, operands, strict=False) for k in (0, 1)}

    def holds(text: str) -> bool:
        return bool(text) and bool(compute(fact.term_of(text), types, bits))

    if fact.when and not holds(fact.when):
        return KnownBits()
    zeros, ones = (compute(fact.term_of(text), types, bits) for text in (fact.zeros, fact.ones))
    return KnownBits(zeros, ones, 1 if holds(fact.first) else 2 if holds(fact.second) else 0)
