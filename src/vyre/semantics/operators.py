"""What operators are there, and what does each mean?

The one table. Printer, parser, checker, interpreter, folder, proofs, emitters, documentation and program
generator all read it; to add an operator is to add a row here (and its two meanings beside the others).
Every operator is total: it has a value for every operand of every type it lists.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from vyre.semantics.types import (
    ALL_TYPES,
    BOOLS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    DType,
)


class Result(Enum):
    """How the result type follows from the operands' common type."""

    SAME = "same"
    BOOL = "bool"
    UNSIGNED = "unsigned"


class Operator(msgspec.Struct, frozen=True):
    """One row of the table.

    ``spelling`` is the infix or prefix symbol, or the function's name in text; ``precedence`` is how tightly an
    infix symbol binds (higher binds tighter) and 0 for everything that is written as a call or a prefix.
    """

    name: str
    arity: int
    types: tuple[DType, ...]
    result: Result
    spelling: str
    doc: str
    precedence: int = 0
    commutative: bool = False

    def result_type(self, operand: DType) -> DType:
        """The type of the result for operands of type ``operand``."""
        match self.result:
            case Result.SAME:
                return operand
            case Result.BOOL:
                return DType.BOOL
            case Result.UNSIGNED:
                return operand.unsigned

    @property
    def is_symbol(self) -> bool:
        """Whether text writes the operator as a symbol rather than as a call."""
        return not self.spelling.isidentifier()


def _infix(
    name: str,
    symbol: str,
    precedence: int,
    types: tuple[DType, ...],
    doc: str,
    result: Result = Result.SAME,
    *,
    commutative: bool = False,
) -> Operator:
    return Operator(name, 2, types, result, symbol, doc, precedence, commutative)


def _binary(
    name: str,
    types: tuple[DType, ...],
    doc: str,
    result: Result = Result.SAME,
    *,
    commutative: bool = False,
) -> Operator:
    return Operator(name, 2, types, result, name, doc, 0, commutative)


def _unary(
    name: str,
    types: tuple[DType, ...],
    doc: str,
    result: Result = Result.SAME,
    *,
    symbol: str | None = None,
) -> Operator:
    return Operator(name, 1, types, result, symbol or name, doc)


_BITS = INTEGERS + BOOLS

_ROWS: Final = (
    _infix("add", "+", 9, NUMBERS, "sum; integers wrap", commutative=True),
    _infix("sub", "-", 9, NUMBERS, "difference; integers wrap"),
    _infix("mul", "*", 10, NUMBERS, "product; integers wrap", commutative=True),
    _infix("div", "/", 10, NUMBERS, "quotient; integers toward zero, x/0 = x, MIN/-1 = MIN"),
    _infix("mod", "%", 10, NUMBERS, "remainder with the sign of the dividend; integers x%0 = 0; floats C fmod"),
    _infix("shl", "<<", 8, INTEGERS, "shift left by amount & (width - 1)"),
    _infix("shr", ">>", 8, INTEGERS, "shift right by amount & (width - 1); arithmetic if signed"),
    _binary("rotl", INTEGERS, "rotate the bits left by amount & (width - 1)"),
    _binary("rotr", INTEGERS, "rotate the bits right by amount & (width - 1)"),
    _infix("and", "&", 5, _BITS, "bitwise and; logical on bool, both sides evaluated", commutative=True),
    _infix("or", "|", 3, _BITS, "bitwise or; logical on bool, both sides evaluated", commutative=True),
    _infix("xor", "^", 4, _BITS, "bitwise exclusive or; logical on bool", commutative=True),
    _binary("min", NUMBERS, "the lesser; a NaN operand loses; -0 < +0", commutative=True),
    _binary("max", NUMBERS, "the greater; a NaN operand loses; -0 < +0", commutative=True),
    _binary("abs_diff", INTEGERS, "the distance, in the unsigned type", Result.UNSIGNED, commutative=True),
    _binary("sat_add", INTEGERS, "sum, clamped to the type's range", commutative=True),
    _binary("sat_sub", INTEGERS, "difference, clamped to the type's range"),
    _binary("sat_mul", INTEGERS, "product, clamped to the type's range", commutative=True),
    _binary("mul_high", INTEGERS, "upper half of the double-width product", commutative=True),
    _infix("eq", "==", 6, ALL_TYPES, "equal; NaN equals nothing", Result.BOOL, commutative=True),
    _infix("ne", "!=", 6, ALL_TYPES, "not equal; NaN differs from everything", Result.BOOL, commutative=True),
    _infix("lt", "<", 7, NUMBERS, "less; false with a NaN", Result.BOOL),
    _infix("le", "<=", 7, NUMBERS, "less or equal; false with a NaN", Result.BOOL),
    _infix("gt", ">", 7, NUMBERS, "greater; false with a NaN", Result.BOOL),
    _infix("ge", ">=", 7, NUMBERS, "greater or equal; false with a NaN", Result.BOOL),
    _unary("neg", NUMBERS, "negation; integers wrap", symbol="-"),
    _unary("not", INTEGERS, "every bit flipped", symbol="~"),
    _unary("lnot", BOOLS, "logical negation", symbol="!"),
    _unary("popcount", INTEGERS, "number of one bits"),
    _unary("clz", INTEGERS, "number of leading zero bits; the width for 0"),
    _unary("ctz", INTEGERS, "number of trailing zero bits; the width for 0"),
    _unary("reverse_bits", INTEGERS, "the bits in reverse order"),
    _unary("abs", NUMBERS, "absolute value; MIN stays MIN; clears a float's sign bit"),
    _unary("sign", NUMBERS, "-1, 0 or 1; a float's zero and NaN stay themselves"),
    _unary("floor", FLOATS, "round down"),
    _unary("ceil", FLOATS, "round up"),
    _unary("round", FLOATS, "round to nearest, ties to even"),
    _unary("trunc", FLOATS, "round toward zero"),
    _unary("sqrt", FLOATS, "square root, correctly rounded"),
    _unary("rsqrt", FLOATS, "reciprocal square root"),
    _unary("recip", FLOATS, "1/x, correctly rounded"),
    _unary("exp", FLOATS, "e to the x"),
    _unary("exp2", FLOATS, "2 to the x"),
    _unary("log", FLOATS, "natural logarithm"),
    _unary("log2", FLOATS, "logarithm to base 2"),
    _unary("sin", FLOATS, "sine of x radians"),
    _unary("cos", FLOATS, "cosine of x radians"),
    _unary("tan", FLOATS, "tangent of x radians"),
    _unary("asin", FLOATS, "arc sine"),
    _unary("acos", FLOATS, "arc cosine"),
    _unary("atan", FLOATS, "arc tangent"),
    _unary("sinh", FLOATS, "hyperbolic sine"),
    _unary("cosh", FLOATS, "hyperbolic cosine"),
    _unary("tanh", FLOATS, "hyperbolic tangent"),
    _unary("is_nan", FLOATS, "whether x is NaN", Result.BOOL),
    _unary("is_inf", FLOATS, "whether x is an infinity", Result.BOOL),
    _unary("is_finite", FLOATS, "whether x is neither NaN nor an infinity", Result.BOOL),
)

OPERATORS: Final[dict[str, Operator]] = {row.name: row for row in _ROWS}
BINARY: Final[dict[str, Operator]] = {row.name: row for row in _ROWS if row.arity == 2}
UNARY: Final[dict[str, Operator]] = {row.name: row for row in _ROWS if row.arity == 1}

# The functions whose meaning is a tape of the exact operators (vyre.semantics.math).
MATH_FUNCTIONS: Final = (
    "rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tan",
    "asin", "acos", "atan", "sinh", "cosh", "tanh",
)  # fmt: skip


class AtomicOp(Enum):
    """What an atomic does to its cell; the expression's value is the cell's OLD value."""

    LOAD = "load"
    STORE = "store"
    ADD = "add"
    SUB = "sub"
    AND = "and"
    OR = "or"
    XOR = "xor"
    MIN = "min"
    MAX = "max"
    EXCHANGE = "exchange"
    COMPARE_EXCHANGE = "compare_exchange"

    __hash__ = object.__hash__

    @property
    def operator(self) -> str | None:
        """The binary operator that combines the old value and the operand, where there is one."""
        return self.value if self.value in BINARY else None


# Reductions over lanes and over ranks, each an associative, commutative operator of the table.
REDUCTIONS: Final = ("add", "min", "max", "and", "or", "xor")
