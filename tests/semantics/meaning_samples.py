"""Operands that meet the corners of every type, and an exact rounding to hold the meanings to."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import numpy as np

from vyre.semantics.arrays import from_storage, to_storage
from vyre.semantics.scalars import Value, from_bits
from vyre.semantics.types import DType

# Precision, exponent of the least subnormal, exponent just above the greatest finite value.
SHAPE = {DType.F16: (11, -24, 16), DType.BF16: (8, -133, 128), DType.F32: (24, -149, 128), DType.F64: (53, -1074, 1024)}
UNSIGNED_STORAGE = {8: "<u1", 16: "<u2", 32: "<u4", 64: "<u8"}


def edge_bits(dtype: DType) -> list[int]:
    """Bit patterns at and beside every corner of the type."""
    if dtype is DType.BOOL:
        return [0, 1]
    bits = dtype.bits
    mask = (1 << bits) - 1
    if not dtype.is_float:
        half = 1 << (bits - 1)
        corners = [0, 1, 2, 3, 5, 7, bits - 1, bits, bits + 1, half >> 1, 0x55 * (mask // 0xFF), 0x33 * (mask // 0xFF)]
        corners += [half - 2, half - 1, half, half + 1, mask - 6, mask - 1, mask, 10, 100, (1 << (bits // 2)) - 1]
        return sorted({c & mask for c in [*corners, 1 << (bits // 2), (1 << (bits // 2)) + 1]})
    precision, _, top = SHAPE[dtype]
    fraction = precision - 1
    bias = top - 1
    sign, infinity = 1 << (bits - 1), ((2 * bias + 1) << fraction)

    def power(exponent: int) -> int:
        return (exponent + bias) << fraction

    positive = [0, 1, 2, 3, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, power(-1), power(0) - 1, power(0)]
    positive += [power(0) + 1, power(1), power(1) | 1 << (fraction - 1), power(1) | 1 << (fraction - 2), infinity - 1]
    positive += [power(-1) + 1, power(-2), power(2) | 1 << (fraction - 1), infinity, power(fraction - 1) + 1]
    positive += [power(fraction), power(top - 2) + 1, infinity | 1 << (fraction - 1), power(0) | 1 << (fraction - 1)]
    positive += [power(min(exponent, top - 1)) + d for exponent in (7, 8, 15, 31, 63) for d in (-1, 0)]
    return sorted({p | s for p in positive for s in (0, sign)})


def random_bits(dtype: DType, count: int, seed: int = 1) -> list[int]:
    """Random bit patterns; with floats, most have neighbouring exponents so that operands interact."""
    source = random.Random(f"{dtype}{seed}")
    return [_random_float(dtype, source) if dtype.is_float else _random_integer(dtype, source) for _ in range(count)]


def _random_integer(dtype: DType, source: random.Random) -> int:
    return source.getrandbits(dtype.bits) >> source.choice((0, 0, source.randrange(dtype.bits)))


def _random_float(dtype: DType, source: random.Random) -> int:
    if source.random() < 0.3:
        return source.getrandbits(dtype.bits)
    precision, _, top = SHAPE[dtype]
    sign, exponent, fraction = source.getrandbits(1), top - 1 + source.randint(-6, 6), source.getrandbits(precision - 1)
    return sign << (dtype.bits - 1) | exponent << (precision - 1) | fraction


def scalars(patterns: list[int], dtype: DType) -> list[Value]:
    return [from_bits(pattern, dtype) for pattern in patterns]


def array(patterns: list[int], dtype: DType) -> np.ndarray[Any, Any]:
    storage = UNSIGNED_STORAGE.get(dtype.bits, "?")
    return from_storage(np.array(patterns, dtype=storage).view(dtype.storage), dtype)


def array_bits(values: np.ndarray[Any, Any], dtype: DType) -> list[int]:
    stored = to_storage(values, dtype)
    assert stored.dtype == dtype.storage
    return [int(bits) for bits in stored.view(UNSIGNED_STORAGE.get(dtype.bits, "?")).ravel()]


def nearest(exact: Fraction, dtype: DType) -> float:
    """The value of a float type nearest to an exact number, ties to even (a zero comes back as +0)."""
    precision, least, top = SHAPE[dtype]
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** max(exponent - precision + 1, least)
    rounded = round(magnitude / quantum) * quantum
    sign = -1.0 if exact < 0 else 1.0
    return sign * float("inf") if rounded >= Fraction(2) ** top else sign * float(rounded)
