"""Facts: how the known bits of an operation's result follow from those of its operands.

``x0`` are the bits of an operand ``x`` that are known to be 0, ``x1`` those known to be 1. An operation all of whose
bits are known becomes a literal; one that equals an operand is replaced by it. ``make prove`` proves each fact, like
each rule, for every type it claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from vyre.optimizer.patterns import Operation, Term, Value, read_term, subterms
from vyre.optimizer.rules import TO_32_BITS
from vyre.semantics.types import BOOLS, INTEGERS, DType

KNOWN_VALUE, KNOWN_OPERAND = "known_value", "known_operand"
# The types whose bits are tracked; floats have none.
KNOWN_TYPES: Final = INTEGERS + BOOLS
_BITS: Final = KNOWN_TYPES


class Fact(msgspec.Struct, frozen=True):
    """The known bits of one operation's result, for the ``types`` of T and the ``sources`` of S.

    They are known if ``when`` holds; the result equals the first or second operand if ``first`` or ``second`` holds.
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
        """The names of the operands whose bits it uses: all but the condition of a select."""
        operands = self.term.operands[self.term.name == "select" :]
        return tuple(operand.name for operand in operands if isinstance(operand, Value))

    def term_of(self, text: str) -> Term:
        """Parse a text of the fact as a term in the operation's type."""
        return read_term(text, self.term.type)

    def cases(self) -> Iterator[dict[str, DType]]:
        """All assignments of types to its type names."""
        names = {part.type for part in subterms(self.term)}
        for dtype in self.types:
            for source in self.sources or (dtype,):
                yield {"T": dtype} | ({"S": source} if "S" in names else {})


def _sum(one: str, other: str, carry: str) -> tuple[str, str]:
    """The known bits of a sum of two numbers, each given by its masks: where both bits and the carry are known."""
    (x0, x1), (y0, y1) = one.split(), other.split()
    least, most = f"({x1} + {y1} + {carry})", f"(~{x0} + ~{y0} + {carry})"
    known = f"({x0} | {x1}) & ({y0} | {y1}) & ~(({least} ^ {x1} ^ {y1}) ^ ({most} ^ ~{x0} ^ ~{y0}))"
    return f"{known} & ~{least}", f"{known} & {least}"


def _bounds(name: str) -> tuple[str, str]:
    """The least and the greatest value of an operand with its known bits."""
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
