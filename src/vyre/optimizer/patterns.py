"""Rules and their terms: reading them from expression text, and matching and applying them to rows.

In a pattern ``x y z`` are any values of the rule's type ``T``, and ``v`` is one that is not a literal; ``c d e`` are
literals. ``s t`` are values and ``k`` a literal of another type ``S``, ``p q r`` are bool. ``T(s)`` is a conversion.
Numbers have the type of their place, ``MIN MAX ONES`` are a type's least and greatest value and all its bits, and
``WIDTH`` is the number of its bits. Constant terms are computed when the rule matches. In a condition ``x0`` are the
bits of ``x`` that are known to be 0, and ``x1`` those known to be 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Final, TypeAlias

import msgspec

from vyre.ir import nodes as n
from vyre.ir.parse_expressions import ExpressionReader
from vyre.semantics.operators import OPERATORS, Result
from vyre.semantics.scalars import scalar_cast, to_bits
from vyre.semantics.types import DType

VALUES: Final = {
    **dict.fromkeys("xyzv", "T"),
    **dict.fromkeys("st", "S"),
    **dict.fromkeys("pqr", "bool"),
}
# The masks of a value's known bits are literals too: x0 those known to be 0, x1 those known to be 1.
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
# The operation that is equal when the operands are swapped.
SWAPPED: Final = {op.name: op.name for op in OPERATORS.values() if op.commutative} | {
    "lt": "gt", "gt": "lt", "le": "ge", "ge": "le",
}  # fmt: skip


class Value(msgspec.Struct, frozen=True):
    """Matches any row."""

    name: str
    type: str


class Literal(msgspec.Struct, frozen=True):
    """Matches any literal."""

    name: str
    type: str


class Fixed(msgspec.Struct, frozen=True):
    """Matches the literal of a value: a number, or a named value of the type."""

    value: bool | int | float | str
    type: str


class Operation(msgspec.Struct, frozen=True):
    """Matches an operation; the type of a conversion is its target."""

    name: str
    operands: tuple[Term, ...]
    type: str


Term: TypeAlias = Value | Literal | Fixed | Operation
Types: TypeAlias = Mapping[str, DType]


class Pairs(msgspec.Struct, frozen=True):
    """The pairs of types that two type names of a rule may stand for."""

    first: str
    second: str
    pairs: frozenset[tuple[DType, DType]]


class Rule(msgspec.Struct, frozen=True):
    """A rewrite rule as it is written: it applies for the ``types`` of T if the condition ``when`` holds."""

    name: str
    group: str
    pattern: str
    replacement: str
    types: tuple[DType, ...]
    when: str = ""
    pairs: tuple[Pairs, ...] = ()

    def cases(self) -> Iterator[dict[str, DType]]:
        """All assignments of types to its type names for which the rule applies."""
        names = sorted({part.type for part in subterms(read_term(self.pattern))} & TYPE_NAMES)
        for types in product(DType, repeat=len(names)):
            case = dict(zip(names, types, strict=True))
            if self.admits(case):
                yield case

    def admits(self, types: Types) -> bool:
        """Whether the rule applies for these types."""
        return ("T" not in types or types["T"] in self.types) and all(
            (types[one.first], types[one.second]) in one.pairs for one in self.pairs
        )


class Form(msgspec.Struct, frozen=True):
    """A rule with its pattern's operands in one of the equivalent orders.

    ``index`` is its index among the forms, ``rule_index`` that of its rule among the rules.
    """

    index: int
    rule_index: int
    rule: Rule
    pattern: Operation
    replacement: Term
    condition: Term | None


_CONVERSION = re.compile(r"\b(?:bitcast\(([STU]), |([STU])\()")
_NEGATIVE = re.compile(r"-(\d+)\b(?!\.)")


@cache
def read_term(text: str, hint: str = "T") -> Term:
    """Parse a term; ``hint`` is the type of numbers that nothing else types."""
    text = _CONVERSION.sub(lambda m: f'call("bitcast {m[1]}", ' if m[1] else f'call("cast {m[2]}", ', text)
    # An untyped number is u32, which has no negative values; a float literal has them.
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
            # Names give the operands of a comparison their type; without names it is the rule's.
            hint = _type(left) or _type(right) or ("T" if OPERATORS[op].result is Result.BOOL else hint)
            return Operation(op, (_term(left, hint), _term(right, hint)), _result(op, hint))
        case n.Select(condition, left, right):
            hint = _type(left) or _type(right) or hint
            return Operation("select", (_term(condition, "bool"), _term(left, hint), _term(right, hint)), hint)
        case n.Call(what, (operand,)):
            name, target = what.split()
            return Operation(name, (_term(operand, _type(operand) or "S"),), target)
    raise TypeError(f"{type(node).__name__} cannot be used in a rule")


def _result(op: str, operand: str) -> str:
    match OPERATORS[op].result:
        case Result.BOOL:
            return "bool"
        case Result.UNSIGNED:
            return "unsigned"
        case Result.SAME:
            return operand


def _type(node: n.Expr) -> str | None:
    """The type of an expression by the names in it, if any."""
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
    """Whether a term consists of literals."""
    return not any(isinstance(part, Value) for part in subterms(term))


def subterms(term: Term) -> Iterator[Term]:
    """A term and all terms in it, in preorder."""
    yield term
    if isinstance(term, Operation):
        for operand in term.operands:
            yield from subterms(operand)


def orders(term: Term) -> list[Term]:
    """All equivalent orders of a term's operands, the given first; literals stay on the right."""
    if not isinstance(term, Operation):
        return [term]
    found = [Operation(term.name, operands, term.type) for operands in product(*map(orders, term.operands))]
    if term.name in SWAPPED and not any(isinstance(operand, (Literal, Fixed)) for operand in term.operands):
        found += [Operation(SWAPPED[one.name], one.operands[::-1], one.type) for one in found]
    return list(found)


def _key(names: dict[str, int], *terms: Term | None) -> str:
    """A text that is equal for terms that differ only in their names."""
    return repr([
        (type(part).__name__, names.setdefault(mask_owner(part.name) or part.name, len(names)), part.name[1:])
        if isinstance(part, (Value, Literal))
        else (part.name if isinstance(part, Operation) else repr(part), part.type)
        for term in terms
        if term is not None
        for part in subterms(term)
    ])  # fmt: skip


def forms(rules: Iterable[Rule]) -> tuple[Form, ...]:
    """The rules in all orders of their operands, in order of precedence."""
    table: list[Form] = []
    for rule_index, rule in enumerate(rules):
        pattern = read_term(rule.pattern)
        replacement = read_term(rule.replacement, pattern.type)
        condition = read_term(rule.when) if rule.when else None
        seen: set[str] = set()
        for order in orders(pattern):
            # Of orders that match the same rows, the first is enough.
            key = _key({}, order, condition)
            if key not in seen:
                seen.add(key)
                assert isinstance(order, Operation)
                table.append(Form(len(table), rule_index, rule, order, replacement, condition))
    return tuple(table)


def dtype_of(name: str, types: Types) -> DType:
    """The type that a type name stands for."""
    if name == "bool":
        return DType.BOOL
    return types["T"].unsigned if name == "unsigned" else types[name]


def fixed_bits(value: bool | int | float | str, dtype: DType) -> int:
    """The bits of a fixed literal in a type."""
    number = NAMED[value](dtype) if isinstance(value, str) else value
    if dtype.is_float:
        return to_bits(scalar_cast(DType.F64, dtype)(float(number)), dtype)
    return int(number) & ((1 << dtype.bits) - 1)


def mask_owner(name: str) -> str | None:
    """The value whose known bits a name is a mask of; None if it names a literal."""
    return name[0] if len(name) == 2 and name[0] in VALUES else None
