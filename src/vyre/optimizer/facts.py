"""Facts: what the bits that are known of the operands say about the bits of each operation's result.

``x0`` are the bits of an operand ``x`` that are known to be 0, ``x1`` those known to be 1. An operation all of whose
bits are known is a literal; one that always equals an operand is that operand. Like a rule, each row is proved by
``make prove`` for every type it claims.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from vyre.optimizer.patterns import Operation, Term, Value, compute, parts, read_term
from vyre.optimizer.rules import TO_32_BITS
from vyre.semantics.types import BOOLS, INTEGERS, DType

KNOWN_VALUE, KNOWN_OPERAND = "known_value", "known_operand"
# The types whose bits are noted; nothing is known of floats.
KNOWN_TYPES: Final = INTEGERS + BOOLS
_BITS: Final = KNOWN_TYPES


class Fact(msgspec.Struct, frozen=True):
    """What is known of one operation, for which types T (and S): the bits that are 0 and those that are 1.

    ``first`` and ``second`` say when it gives its operand of that place; ``when`` it is that anything is known.
    """

    pattern: str
    zeros: str
    ones: str
    types: tuple[DType, ...]
    when: str = ""
    first: str = ""
    second: str = ""
    sources: tuple[DType, ...] = ()

    @property
    def term(self) -> Operation:
        term = read_term(self.pattern)
        assert isinstance(term, Operation)
        return term

    @property
    def name(self) -> str:
        return f"known_{self.term.name}"

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands whose bits are known; one that only chooses is none of them."""
        operands = self.term.operands[self.term.name == "select" :]
        return tuple(operand.name for operand in operands if isinstance(operand, Value))

    def claim(self, text: str) -> Term:
        """A text about the operation, as a term."""
        return read_term(text, self.term.type)

    def cases(self) -> Iterator[dict[str, DType]]:
        """Every way to give its type names types."""
        names = {part.type for part in parts(self.term)}
        for dtype in self.types:
            for source in self.sources or (dtype,):
                yield {"T": dtype} | ({"S": source} if "S" in names else {})


def _sum(one: str, other: str, carry: str) -> tuple[str, str]:
    """The bits of a sum, of numbers whose bits are (zeros, ones): known where both are, and the carry into them."""
    (x0, x1), (y0, y1) = one.split(), other.split()
    least, most = f"({x1} + {y1} + {carry})", f"(~{x0} + ~{y0} + {carry})"
    known = f"({x0} | {x1}) & ({y0} | {y1}) & ~(({least} ^ {x1} ^ {y1}) ^ ({most} ^ ~{x0} ^ ~{y0}))"
    return f"{known} & ~{least}", f"{known} & {least}"


def _bounds(name: str) -> tuple[str, str]:
    """The least and the greatest number that an operand can be."""
    return f"({name}1 | ~{name}0 & MIN)", f"(~{name}0 & (MAX | {name}1))"


_LEAST_X, _MOST_X = _bounds("x")
_LEAST_Y, _MOST_Y = _bounds("y")
_AMOUNT: Final = "(y0 | y1) == ONES"
_DIFFER: Final = "(x0 & y1 | x1 & y0) != 0"

FACTS: Final = (
    Fact("x & y", "x0 | y0", "x1 & y1", _BITS, first="(x0 | y1) == ONES", second="(y0 | x1) == ONES"),
    Fact("x | y", "x0 & y0", "x1 | y1", _BITS, first="(x1 | y0) == ONES", second="(y1 | x0) == ONES"),
    Fact("x ^ y", "x0 & y0 | x1 & y1", "x0 & y1 | x1 & y0", _BITS),
    Fact("~x", "x1", "x0", INTEGERS),
    Fact("!p", "p1", "p0", BOOLS),
    Fact("x + y", *_sum("x0 x1", "y0 y1", "0"), INTEGERS),
    Fact("x - y", *_sum("x0 x1", "y1 y0", "1"), INTEGERS),
    Fact("-x", *_sum("ONES 0", "x1 x0", "1"), INTEGERS),
    Fact("x * y", "~((ONES << ctz(~x0)) << ctz(~y0))", "x1 & y1 & 1", TO_32_BITS),
    Fact("x << y", "(x0 << y1) | ~(ONES << y1)", "x1 << y1", INTEGERS, _AMOUNT),
    Fact("x >> y", "(x0 >> y1) | ~(ONES >> y1)", "x1 >> y1", INTEGERS, _AMOUNT),
    Fact("rotl(x, y)", "rotl(x0, y1)", "rotl(x1, y1)", INTEGERS, _AMOUNT),
    Fact("min(x, y)", "x0 & y0", "x1 & y1", INTEGERS, "", f"{_MOST_X} <= {_LEAST_Y}", f"{_MOST_Y} <= {_LEAST_X}"),
    Fact("max(x, y)", "x0 & y0", "x1 & y1", INTEGERS, "", f"{_LEAST_X} >= {_MOST_Y}", f"{_LEAST_Y} >= {_MOST_X}"),
    Fact("select(p, x, y)", "x0 & y0", "x1 & y1", _BITS),
    Fact("T(s)", "T(s0) | ~T(S(ONES))", "T(s1)", INTEGERS, sources=_BITS),
    Fact("x == y", _DIFFER, "false", _BITS),
    Fact("x != y", "false", _DIFFER, _BITS),
    Fact("x < y", f"{_LEAST_X} >= {_MOST_Y}", f"{_MOST_X} < {_LEAST_Y}", INTEGERS),
    Fact("x <= y", f"{_LEAST_X} > {_MOST_Y}", f"{_MOST_X} <= {_LEAST_Y}", INTEGERS),
    Fact("x > y", f"{_MOST_X} <= {_LEAST_Y}", f"{_LEAST_X} > {_MOST_Y}", INTEGERS),
    Fact("x >= y", f"{_MOST_X} < {_LEAST_Y}", f"{_LEAST_X} >= {_MOST_Y}", INTEGERS),
)  # fmt: skip
BY_NAME: Final = {fact.term.name: fact for fact in FACTS}


class Known(msgspec.Struct, frozen=True):
    """What is known of an operation: bits, and the place of the operand that it gives (0 if none)."""

    zeros: int = 0
    ones: int = 0
    gives: int = 0


def known_of(name: str, types: Mapping[str, DType], operands: Sequence[tuple[int, int]]) -> Known:
    """What follows for an operation of T (from S) from the bits that are known of its operands."""
    fact = BY_NAME.get(name)
    if fact is None or types["T"] not in fact.types or (fact.sources and types["S"] not in fact.sources):
        return Known()
    bits = {f"{one}{k}": masks[k] for one, masks in zip(fact.operands, operands, strict=False) for k in (0, 1)}

    def holds(text: str) -> bool:
        return bool(text) and bool(compute(fact.claim(text), types, bits))

    if fact.when and not holds(fact.when):
        return Known()
    zeros, ones = (compute(fact.claim(text), types, bits) for text in (fact.zeros, fact.ones))
    return Known(zeros, ones, 1 if holds(fact.first) else 2 if holds(fact.second) else 0)
