"""Ranges of integers: what is known of a value, and of the result of an operator, by those of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

NO_BOUNDS: Final[Mapping[int, int]] = {}
# The most values that a value is compared with; what else is known of it is dropped, oldest first. Programs have few
# sizes, and without a limit a long chain of conditions would take time that grows with its square.
_MAX_BOUNDS: Final = 12


class Range(msgspec.Struct, frozen=True):
    """What is known of an integer: its bounds, and how far below other values it stays.

    For each numbered value of ``below``, the integer plus its slack is less than that value. Sums are those of whole
    numbers: they do not wrap.
    """

    low: int
    high: int
    below: Mapping[int, int] = NO_BOUNDS

    def meet(self, other: Range) -> Range:
        """What is known if both are true; the first alone if they cannot be, as in code that nothing reaches."""
        low = self.low if self.low >= other.low else other.low
        high = self.high if self.high <= other.high else other.high
        if low > high or (low == self.low and high == self.high and not other.below):
            return self
        return Range(low, high, either(self.below, other.below))

    def hull(self, other: Range) -> Range:
        """What is known if one of them is true."""
        return Range(min(self.low, other.low), max(self.high, other.high), both(self.below, other.below))

    @property
    def is_single(self) -> bool:
        return self.low == self.high


def either(a: Mapping[int, int], b: Mapping[int, int]) -> Mapping[int, int]:
    """The bounds of a value that keeps those of ``a`` and those of ``b``."""
    if not a or not b:
        return a or b
    merged = dict(a)
    for value, slack in b.items():
        known = merged.get(value)
        if known is None or known < slack:
            merged[value] = slack
    for value in list(merged)[: max(0, len(merged) - _MAX_BOUNDS)]:
        del merged[value]
    return merged


def both(a: Mapping[int, int], b: Mapping[int, int]) -> Mapping[int, int]:
    """The bounds that hold for either of two values."""
    return {value: min(slack, b[value]) for value, slack in a.items() if value in b} if a and b else NO_BOUNDS


def moved(below: Mapping[int, int], up: int) -> Mapping[int, int]:
    """The bounds of a number that is larger by at most ``up``."""
    return {value: slack - up for value, slack in below.items()} if up else below


FULL: Final = {dtype: Range(dtype.minimum, dtype.maximum) for dtype in DType}


def fitting(found: Range, dtype: DType) -> Range:
    """What an operation that wraps around gives: known only if it cannot."""
    return found if dtype.minimum <= found.low and found.high <= dtype.maximum else FULL[dtype]


def _products(a: Range, b: Range) -> Range:
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return Range(min(corners), max(corners))


def _clamped(found: Range, dtype: DType) -> Range:
    least, most = dtype.minimum, dtype.maximum
    return Range(min(max(found.low, least), most), min(max(found.high, least), most))


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, either(moved(a.below, b.high), moved(b.below, a.high)))


def difference(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low, moved(a.below, -b.low))


def wraps(op: str, a: Range, b: Range, dtype: DType) -> bool:
    """Whether a sum, a difference or a product may wrap around."""
    found = _sum(a, b) if op == "add" else difference(a, b) if op == "sub" else _products(a, b)
    return found.low < dtype.minimum or found.high > dtype.maximum


def binary_range(op: str, a: Range, b: Range, dtype: DType) -> Range:
    """The range of an operator on integers of a type."""
    positive = a.low >= 0 and b.low >= 0
    amount = b if b.low >= 0 and b.high < dtype.bits else Range(0, dtype.bits - 1)
    match op:
        case "add":
            return fitting(_sum(a, b), dtype)
        case "sub":
            return fitting(difference(a, b), dtype)
        case "mul":
            return fitting(_products(a, b), dtype)
        case "div" if positive:
            if not b.low:
                return Range(0, a.high, a.below)
            return Range(a.low // b.high, a.high // b.low, a.below)
        case "mod" if positive:
            below = either(a.below, moved(b.below, -1)) if b.low else a.below
            return Range(a.low if a.high < b.low else 0, min(a.high, max(b.high - 1, 0)), below)
        case "shl":
            return fitting(Range(a.low << amount.low, a.high << amount.high), dtype) if a.low >= 0 else FULL[dtype]
        case "shr" if a.low >= 0:
            return Range(a.low >> amount.high, a.high >> amount.low, a.below)
        case "and" if positive:
            return Range(0, min(a.high, b.high), either(a.below, b.below))
        case "or" | "xor" if positive:
            return Range(0, (1 << max(a.high, b.high).bit_length()) - 1)
        case "min":
            return Range(min(a.low, b.low), min(a.high, b.high), either(a.below, b.below))
        case "max":
            return Range(max(a.low, b.low), max(a.high, b.high), both(a.below, b.below))
        case "abs_diff":
            return Range(0, max(a.high - b.low, b.high - a.low))
        case "sat_add":
            return _clamped(_sum(a, b), dtype)
        case "sat_sub":
            found = _clamped(difference(a, b), dtype)
            return Range(found.low, found.high, a.below if positive and not dtype.minimum else NO_BOUNDS)
        case "sat_mul":
            return _clamped(_products(a, b), dtype)
        case "mul_high" if positive:
            return Range(a.low * b.low >> dtype.bits, a.high * b.high >> dtype.bits)
    return FULL[OPERATORS[op].result_type(dtype)]


def unary_range(op: str, a: Range, dtype: DType) -> Range:
    """The range of an operator on one integer of a type."""
    match op:
        case "neg":
            return fitting(Range(-a.high, -a.low), dtype)
        case "not":
            ones = dtype.maximum + dtype.minimum
            return Range(ones - a.high, ones - a.low)
        case "popcount" | "clz" | "ctz":
            return Range(0, dtype.bits)
        case "abs" if a.low >= 0:
            return a
        case "sign":
            return Range(-1 if a.low < 0 else 0, 1 if a.high > 0 else 0)
    return FULL[OPERATORS[op].result_type(dtype)]
