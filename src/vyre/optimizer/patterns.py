"""What does a rule say? Its terms, read from vyre's own text for expressions, and what they match and give.

In a pattern ``x y z`` are any values of the rule's type ``T``, and ``v`` is one that is no literal; ``c d e`` are
literals. ``s t`` are values and ``k`` a literal of another type ``S``, ``p q r`` are bool. ``T(s)`` is a conversion.
Numbers stand for themselves in every type, ``MIN MAX ONES`` for a type's least and greatest value and all its bits,
and ``WIDTH`` for the number of its bits. What is made of literals alone is computed when the rule matches. In a
condition ``x0`` are the bits of ``x`` that are known to be 0, and ``x1`` those known to be 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Final, TypeAlias

import msgspec

from vyre.ir import nodes as n
from vyre.ir.parse_expressions import ExpressionReader
from vyre.optimizer.arena import NONE, OPERATION_CODES, OPERATIONS, Kind, head, kind_of, operation_of, type_of
from vyre.semantics.operators import OPERATORS, Result
from vyre.semantics.scalars import from_bits, scalar_cast, scalar_meaning, to_bits
from vyre.semantics.types import DType

VALUES: Final = {
    **dict.fromkeys("xyzv", "T"),
    **dict.fromkeys("st", "S"),
    **dict.fromkeys("pqr", "bool"),
}
# Bits that are known of a value are literals too: x0 those that are 0, x1 those that are 1.
LITERALS: Final = {
    **dict.fromkeys("cde", "T"),
    "k": "S",
    **{f"{name}{bit}": dtype for name, dtype in VALUES.items() for bit in (0, 1)},
}
TYPE_NAMES: Final = frozenset("STU")
NAMED: Final[dict[str, Callable[[DType], int]]] = {
    "MIN": lambda dtype: dtype.minimum,
    "MAX": lambda dtype: dtype.maximum,
    "ONES": lambda dtype: (1 << dtype.bits) - 1,
    "WIDTH": lambda dtype: dtype.bits,
}
# What an operation becomes when its operands are swapped.
SWAPPED: Final = {op.name: op.name for op in OPERATORS.values() if op.commutative} | {
    "lt": "gt", "gt": "lt", "le": "ge", "ge": "le",
}  # fmt: skip


class Value(msgspec.Struct, frozen=True):
    """Any row."""

    name: str
    type: str


class Literal(msgspec.Struct, frozen=True):
    """Any row that is a literal."""

    name: str
    type: str


class Fixed(msgspec.Struct, frozen=True):
    """A literal of this value: a number, or what a name stands for in the type."""

    value: bool | int | float | str
    type: str


class Operation(msgspec.Struct, frozen=True):
    """An operation; a conversion's target is its type."""

    name: str
    operands: tuple[Term, ...]
    type: str


Term: TypeAlias = Value | Literal | Fixed | Operation
Types: TypeAlias = Mapping[str, DType]


class Pairs(msgspec.Struct, frozen=True):
    """Which types two of a rule's type names may stand for together."""

    first: str
    second: str
    pairs: frozenset[tuple[DType, DType]]


class Rule(msgspec.Struct, frozen=True):
    """One row of the table, for people: for which ``types`` of T, and ``when`` its literals are such."""

    name: str
    group: str
    pattern: str
    replacement: str
    types: tuple[DType, ...]
    when: str = ""
    pairs: tuple[Pairs, ...] = ()

    def cases(self) -> Iterator[dict[str, DType]]:
        """Every way to give its type names types, of those the rule is for."""
        names = sorted({part.type for part in parts(read_term(self.pattern))} & TYPE_NAMES)
        for types in product(DType, repeat=len(names)):
            case = dict(zip(names, types, strict=True))
            if self.admits(case):
                yield case

    def admits(self, types: Types) -> bool:
        """Whether the rule is for these types."""
        return ("T" not in types or types["T"] in self.types) and all(
            (types[one.first], types[one.second]) in one.pairs for one in self.pairs
        )


class Form(msgspec.Struct, frozen=True):
    """A rule with its operands in one of the orders that mean the same.

    ``place`` is its own among the forms, ``number`` that of its rule among the rules.
    """

    place: int
    number: int
    rule: Rule
    pattern: Operation
    replacement: Term
    condition: Term | None


_CONVERSION = re.compile(r"\b(?:bitcast\(([STU]), |([STU])\()")
_NEGATIVE = re.compile(r"-(\d+)\b(?!\.)")


@cache
def read_term(text: str, hint: str = "T") -> Term:
    """The term that a text says."""
    text = _CONVERSION.sub(lambda m: f'call("bitcast {m[1]}", ' if m[1] else f'call("cast {m[2]}", ', text)
    # Without a type behind it a number is u32, which has no negative ones.
    return _term(ExpressionReader(_NEGATIVE.sub(r"-\1.0", text), "rule").expression(), hint)


def _term(node: n.Expr, hint: str) -> Term:
    match node:
        case n.Var(name):
            if name in NAMED:
                return Fixed(name, hint)
            return Value(name, VALUES[name]) if name in VALUES else Literal(name, LITERALS[name])
        case n.Lit():
            return Fixed(node.value, hint)
        case n.UnOp(op, operand):
            inner = _term(operand, _type(operand) or hint)
            return Operation(op, (inner,), _result(op, inner.type))
        case n.BinOp(op, left, right):
            # What a condition compares is of the rule's type; what a pattern compares is told by its names.
            hint = _type(left) or _type(right) or ("T" if OPERATORS[op].result is Result.BOOL else hint)
            return Operation(op, (_term(left, hint), _term(right, hint)), _result(op, hint))
        case n.Select(condition, left, right):
            hint = _type(left) or _type(right) or hint
            return Operation("select", (_term(condition, "bool"), _term(left, hint), _term(right, hint)), hint)
        case n.Call(what, (operand,)):
            name, target = what.split()
            return Operation(name, (_term(operand, _type(operand) or "S"),), target)
    raise TypeError(f"{type(node).__name__} cannot stand in a rule")


def _result(op: str, operand: str) -> str:
    match OPERATORS[op].result:
        case Result.BOOL:
            return "bool"
        case Result.UNSIGNED:
            return "unsigned"
        case Result.SAME:
            return operand


def _type(node: n.Expr) -> str | None:
    """The type that the names in an expression give it, if they do."""
    match node:
        case n.Var(name):
            return None if name in NAMED else {**VALUES, **LITERALS}[name]
        case n.Call(what):
            return what.split()[1]
        case n.UnOp(op, operand):
            inner = _type(operand)
            return inner and _result(op, inner)
        case n.BinOp(op, left, right):
            inner = _type(left) or _type(right)
            return inner and _result(op, inner)
        case n.Select(_, left, right):
            return _type(left) or _type(right)
    return None


def is_constant(term: Term) -> bool:
    """Whether a term is made of literals alone."""
    return not any(isinstance(part, Value) for part in parts(term))


def parts(term: Term) -> Iterator[Term]:
    """A term and all terms in it, from left to right."""
    yield term
    if isinstance(term, Operation):
        for operand in term.operands:
            yield from parts(operand)


def orders(term: Term) -> list[Term]:
    """All ways to write a term with operands swapped where that means the same, itself first; literals stay right."""
    if not isinstance(term, Operation):
        return [term]
    written = [Operation(term.name, operands, term.type) for operands in product(*map(orders, term.operands))]
    if term.name in SWAPPED and not any(isinstance(operand, (Literal, Fixed)) for operand in term.operands):
        written += [Operation(SWAPPED[one.name], one.operands[::-1], one.type) for one in written]
    return list(written)


def _nameless(names: dict[str, int], *terms: Term | None) -> str:
    """Terms with numbers for names, to tell those that differ in nothing else."""
    return repr([
        (type(part).__name__, names.setdefault(known_bits(part.name) or part.name, len(names)), part.name[1:])
        if isinstance(part, (Value, Literal))
        else (part.name if isinstance(part, Operation) else repr(part), part.type)
        for term in terms
        if term is not None
        for part in parts(term)
    ])  # fmt: skip


def forms(rules: Iterable[Rule]) -> tuple[Form, ...]:
    """The table as it is matched: each rule in all orders of its operands."""
    table: list[Form] = []
    for number, rule in enumerate(rules):
        pattern = read_term(rule.pattern)
        replacement = read_term(rule.replacement, pattern.type)
        condition = read_term(rule.when) if rule.when else None
        seen: set[str] = set()
        for order in orders(pattern):
            # The first of those that match the same is the one that is taken.
            nameless = _nameless({}, order, condition)
            if nameless not in seen:
                seen.add(nameless)
                assert isinstance(order, Operation)
                table.append(Form(len(table), number, rule, order, replacement, condition))
    return tuple(table)


def dtype_of(name: str, types: Types) -> DType:
    """The type that a term's type name stands for."""
    if name == "bool":
        return DType.BOOL
    return types["T"].unsigned if name == "unsigned" else types[name]


def fixed_bits(value: bool | int | float | str, dtype: DType) -> int:
    """The bits of a fixed literal in a type."""
    number = NAMED[value](dtype) if isinstance(value, str) else value
    if dtype.is_float:
        return to_bits(scalar_cast(DType.F64, dtype)(float(number)), dtype)
    return int(number) & ((1 << dtype.bits) - 1)


def compute(term: Term, types: Types, bits: Mapping[str, int]) -> int:
    """The bits of a term made of literals, from theirs."""
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
    raise TypeError("a value is not a constant")


class Columns(msgspec.Struct, frozen=True, eq=False):
    """The columns that rules look at, and the bits that are known of rows (zeros, ones), if any are."""

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
        """Whether two rows are one value: literals are, when they are equal."""
        if one == other:
            return True
        return self.is_literal(one) and self.head[one] == self.head[other] and self.bits(one) == self.bits(other)


def known_bits(name: str) -> str | None:
    """The value of which a name says what bits are known; None if it is a literal's own."""
    return name[0] if len(name) == 2 and name[0] in VALUES else None


FORWARD, BECOME_LITERAL, BECOME_OPERATION = 1, 2, 3


class Action(msgspec.Struct, frozen=True):
    """What a rule makes of a row. ``bits`` are those of the literal it becomes, or of the computed operand.

    ``kind`` FORWARD: it is the row ``target``. BECOME_LITERAL: a literal of its own type. BECOME_OPERATION: the
    operation ``head`` of ``operands``, of which ``spare`` stands for a literal with ``spare_head``, if that is not 0.
    """

    kind: int
    form: int
    target: int = NONE
    bits: int = 0
    head: int = 0
    operands: tuple[int, int, int] = (NONE, NONE, NONE)
    spare_head: int = 0


def find_action(
    table: Mapping[int, Sequence[Form]], columns: Columns, row: int, groups: frozenset[str], spare: int
) -> Action | None:
    """What the first rule that matches makes of a row; none if no rule does. ``table`` are the forms by operation."""
    word = columns.head[row]
    if kind_of(word) != Kind.OPERATION:
        return None
    for form in table.get(operation_of(word), ()):
        if form.rule.group not in groups:
            continue
        bound = _match(form, columns, row)
        if bound is not None:
            return _action(form, columns, row, spare, *bound)
    return None


def by_operation(table: Iterable[Form]) -> dict[int, list[Form]]:
    """The forms by the operation they begin with."""
    found: dict[int, list[Form]] = {}
    for form in table:
        found.setdefault(OPERATION_CODES[form.pattern.name], []).append(form)
    return found


def _match(form: Form, columns: Columns, row: int) -> tuple[dict[str, int], dict[str, DType]] | None:
    """The rows and types that a form's names stand for, if it matches."""
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


def _action(form: Form, columns: Columns, row: int, spare: int, rows: dict[str, int], types: Types) -> Action:
    replacement = form.replacement
    if isinstance(replacement, (Value, Literal)):
        return Action(FORWARD, form.place, target=rows[replacement.name])
    bits = {name: columns.bits(at) for name, at in rows.items()}
    if is_constant(replacement):
        return Action(BECOME_LITERAL, form.place, bits=compute(replacement, types, bits))
    assert isinstance(replacement, Operation)
    operands, spare_head, computed = [], 0, 0
    for operand in replacement.operands:
        if isinstance(operand, (Value, Literal)):
            operands.append(rows[operand.name])
        else:
            operands.append(spare)
            spare_head = head(Kind.LITERAL, dtype_of(operand.type, types))
            computed = compute(operand, types, bits)
    word = (columns.head[row] & 0xFFFF) | OPERATION_CODES[replacement.name] << 16
    a, b, c = (*operands, NONE, NONE, NONE)[:3]
    return Action(BECOME_OPERATION, form.place, NONE, computed, word, (a, b, c), spare_head)
