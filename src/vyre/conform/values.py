"""Which values find bugs? The edges of each type, small numbers, and random bits."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vyre.ir.nodes import Lit
from vyre.semantics.scalars import CANONICAL_NAN, from_bits, to_bits
from vyre.semantics.types import DType

if TYPE_CHECKING:
    from random import Random

_FRACTION_BITS = {DType.F16: 10, DType.BF16: 7, DType.F32: 23, DType.F64: 52}


@cache
def edge_patterns(dtype: DType) -> tuple[int, ...]:
    """Bit patterns of a type's edge values, without repetition."""
    if dtype is DType.BOOL:
        return (0, 1)
    if not dtype.is_float:
        top = 1 << (dtype.bits - 1)
        edges = (0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1)
        return tuple(dict.fromkeys(edges))
    fraction = _FRACTION_BITS[dtype]
    sign = 1 << (dtype.bits - 1)
    infinity = (sign >> fraction) - 1 << fraction
    one = to_bits(1.0, dtype)
    positive = (
        0, 1, (1 << fraction) - 1, 1 << fraction, one - 1, one, one + 1, to_bits(0.5, dtype), to_bits(1.5, dtype),
        to_bits(2.5, dtype), to_bits(3.0, dtype), to_bits(100.0, dtype), infinity - 1, infinity,
    )  # fmt: skip
    return (*positive, *(bits | sign for bits in positive), CANONICAL_NAN[dtype])


def pattern(random: Random, dtype: DType) -> int:
    """The bits of a value: an edge, a small whole number, or any bits (NaNs canonical)."""
    choice = random.random()
    if choice < 0.4:
        return random.choice(edge_patterns(dtype))
    if choice < 0.75 and dtype is not DType.BOOL:
        small = random.randrange(16)
        return to_bits(random.choice((small, small / 4, -small)), dtype) if dtype.is_float else small
    bits = random.getrandbits(dtype.bits)
    return to_bits(from_bits(bits, dtype), dtype) if dtype.is_float else bits


def literal(random: Random, dtype: DType) -> Lit:
    """A constant of the type."""
    return Lit(pattern(random, dtype), dtype)


def array_of_patterns(patterns: list[int], dtype: DType) -> np.ndarray[Any, Any]:
    """Host data whose elements have these bits."""
    if dtype is DType.BOOL:
        return np.array(patterns, dtype=np.bool_)
    return np.array(patterns, dtype=f"<u{dtype.bytes}").view(dtype.storage)


def patterns_of_array(data: np.ndarray[Any, Any], dtype: DType) -> list[int]:
    """The bits of the elements of host data."""
    return [int(bits) for bits in np.ascontiguousarray(data).view(f"<u{dtype.bytes}")]


def random_array(random: Random, dtype: DType, count: int) -> np.ndarray[Any, Any]:
    """Host data for a buffer."""
    return array_of_patterns([pattern(random, dtype) for _ in range(count)], dtype)
