"""What does each operator mean for arrays of elements?

The meanings of ``scalars``, said a second time and element by element in NumPy. A value array has its type's
storage dtype, but for bf16, whose values are held in f32 arrays. Nothing here raises or warns on any value.
"""

from __future__ import annotations

from functools import cache, wraps
from typing import Any

import numpy as np
import numpy.typing as npt

from vyre.semantics.operators import MATH_FUNCTIONS
from vyre.semantics.scalars import (
    Meaning,
    require_fused,
    require_operator,
    require_same_width,
    scalar_fma,
)
from vyre.semantics.types import DType, Kind

Array = npt.NDArray[Any]


def value_type(dtype: DType) -> np.dtype[Any]:
    """The NumPy type of a value array of ``dtype``."""
    return DType.F32.storage if dtype is DType.BF16 else dtype.storage


def from_storage(raw: Array, dtype: DType) -> Array:
    """The values held in an array of the storage type."""
    match dtype:
        case DType.BF16:
            return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        case DType.BOOL:
            return np.not_equal(raw.view(np.uint8), 0)
        case _:
            return raw


def to_storage(values: Array, dtype: DType) -> Array:
    """The array of the storage type that holds these values; every NaN becomes the canonical one."""
    if dtype.is_float:
        invalid = np.isnan(values)
        if invalid.any():
            values = np.where(invalid, values.dtype.type(np.nan), values)
    if dtype is DType.BF16:
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return values


def _quietly(function: Meaning) -> Meaning:
    @wraps(function)
    def quiet(*operands: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(*operands))

    return quiet


def _nearest_brain(x: Array) -> Array:
    bits = x.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return np.where(np.isnan(x), x, (rounded & np.uint32(0xFFFF0000)).view(np.float32))


def _odd_single(x: Array) -> Array:
    """f64 to f32, keeping in the last bit whether anything was lost: rounding this again rounds ``x`` once."""
    single = x.astype(np.float32)
    bits = single.view(np.uint32)
    toward_zero = bits - (np.abs(single.astype(np.float64)) > np.abs(x)).astype(np.uint32)
    lost = (single != x) & ~np.isnan(x)
    return np.where(lost, (toward_zero | np.uint32(1)).view(np.float32), single)


_COMPARISONS: dict[str, Meaning] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_LOGIC: dict[str, Meaning] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lnot": np.logical_not,
}


def _upper_half_of_product(a: Array, b: Array) -> Array:
    """The upper 64 bits of the product of two u64 arrays, from products of 32-bit halves."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & low, a >> half, b & low, b >> half
    cross = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (cross & low)
    upper: Array = a_high * b_high + (cross >> half) + (other >> half)
    return upper


def _high_product(dtype: DType) -> Meaning:
    if dtype.bits < 64:
        wide = np.int64 if dtype.kind is Kind.SIGNED else np.uint64
        return lambda a, b: ((a.astype(wide) * b.astype(wide)) >> wide(dtype.bits)).astype(dtype.storage)
    if dtype.kind is Kind.UNSIGNED:
        return _upper_half_of_product

    def signed(a: Array, b: Array) -> Array:
        # As unsigned, a negative factor is too big by 2**64: take the other factor from the upper half.
        upper = _upper_half_of_product(a.view(np.uint64), b.view(np.uint64)).view(np.int64)
        return upper - np.where(a < 0, b, 0) - np.where(b < 0, a, 0)

    return signed


def _unsigned_meanings(dtype: DType) -> dict[str, Meaning]:
    one, maximum = dtype.storage.type(1), dtype.storage.type(dtype.maximum)
    high_product = _high_product(dtype)
    return {
        "div": lambda a, b: a // np.where(b == 0, one, b),
        "mod": lambda a, b: a % np.where(b == 0, one, b),
        "abs": lambda a: a,
        "sign": np.sign,
        "abs_diff": lambda a, b: np.where(a > b, a - b, b - a),
        "sat_add": lambda a, b: np.where(a + b < a, maximum, a + b),
        "sat_sub": lambda a, b: np.where(a > b, a - b, maximum ^ maximum),
        "sat_mul": lambda a, b: np.where(high_product(a, b) != 0, maximum, a * b),
        "mul_high": high_product,
    }


def _signed_meanings(dtype: DType) -> dict[str, Meaning]:
    storage, unsigned = dtype.storage, dtype.unsigned.storage
    minimum, maximum = storage.type(dtype.minimum), storage.type(dtype.maximum)
    sign_shift = storage.type(dtype.bits - 1)
    high_product = _high_product(dtype)

    def magnitude(a: Array) -> Array:
        return np.where(a < 0, np.negative(a), a).view(unsigned)

    def divisor(b: Array) -> Array:
        return np.where(b == 0, unsigned.type(1), magnitude(b))

    def quotient(a: Array, b: Array) -> Array:
        positive = (magnitude(a) // divisor(b)).view(storage)
        return np.where((a < 0) != (b < 0), np.where(b == 0, a, np.negative(positive)), np.where(b == 0, a, positive))

    def remainder(a: Array, b: Array) -> Array:
        positive = (magnitude(a) % divisor(b)).view(storage)
        return np.where(a < 0, np.negative(positive), positive)

    def saturated(wrapped: Array, overflowed: Array, negative: Array) -> Array:
        return np.where(overflowed, np.where(negative, minimum, maximum), wrapped)

    return {
        "div": quotient,
        "mod": remainder,
        "abs": lambda a: magnitude(a).view(storage),
        "sign": np.sign,
        "abs_diff": lambda a, b: np.where(a > b, a - b, b - a).view(unsigned),
        "sat_add": lambda a, b: saturated(a + b, ((a ^ (a + b)) & (b ^ (a + b))) < 0, a < 0),
        "sat_sub": lambda a, b: saturated(a - b, ((a ^ b) & (a ^ (a - b))) < 0, a < 0),
        "sat_mul": lambda a, b: saturated(a * b, high_product(a, b) != (a * b) >> sign_shift, (a < 0) != (b < 0)),
        "mul_high": high_product,
    }


def _integer_meanings(dtype: DType) -> dict[str, Meaning]:
    storage, unsigned, bits = dtype.storage, dtype.unsigned.storage, dtype.bits
    amount, width = storage.type(bits - 1), unsigned.type(bits)

    def rotate_left(a: Array, count: Array) -> Array:
        pattern, left = a.view(unsigned), count.view(unsigned)
        right = (width - left) & (width - unsigned.type(1))
        rotated: Array = (pattern << left) | (pattern >> right)
        return rotated.view(storage)

    def population(pattern: Array) -> Array:
        return np.bitwise_count(pattern).astype(storage)

    def leading_zeros(a: Array) -> Array:
        smeared, step = a.view(unsigned), 1
        while step < bits:
            smeared = smeared | (smeared >> unsigned.type(step))
            step *= 2
        return population(~smeared)

    def trailing_zeros(a: Array) -> Array:
        pattern = a.view(unsigned)
        return population(~pattern & (pattern - unsigned.type(1)))

    def reversed_bits(a: Array) -> Array:
        octets = np.ascontiguousarray(a).view(np.uint8).reshape(-1, dtype.bytes)
        ascending = np.unpackbits(octets, axis=1, bitorder="little")
        return np.packbits(ascending[:, ::-1], axis=1, bitorder="little").view(storage).reshape(a.shape)

    return (
        _COMPARISONS
        | (_signed_meanings(dtype) if dtype.kind is Kind.SIGNED else _unsigned_meanings(dtype))
        | {
            "add": np.add,
            "sub": np.subtract,
            "mul": np.multiply,
            "neg": np.negative,
            "not": np.invert,
            "and": np.bitwise_and,
            "or": np.bitwise_or,
            "xor": np.bitwise_xor,
            "min": np.minimum,
            "max": np.maximum,
            "shl": lambda a, b: a << (b & amount),
            "shr": lambda a, b: a >> (b & amount),
            "rotl": lambda a, b: rotate_left(a, b & amount),
            "rotr": lambda a, b: rotate_left(a, np.negative(b) & amount),
            "popcount": lambda a: population(a.view(unsigned)),
            "clz": leading_zeros,
            "ctz": trailing_zeros,
            "reverse_bits": reversed_bits,
        }
    )


def _lesser(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))


def _greater(a: Array, b: Array) -> Array:
    return np.where(a == b, np.where(np.signbit(a), b, a), np.fmax(a, b))


_FLOAT_RESULTS: dict[str, Meaning] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "mod": np.fmod,
    "min": _lesser,
    "max": _greater,
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda a: np.where(a == 0, a, np.sign(a)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "sqrt": np.sqrt,
    "recip": lambda a: np.divide(a.dtype.type(1), a),
}

_FLOAT_TESTS: dict[str, Meaning] = _COMPARISONS | {
    "is_nan": np.isnan,
    "is_inf": np.isinf,
    "is_finite": np.isfinite,
}


def _rounded(function: Meaning, dtype: DType) -> Meaning:
    match dtype:
        case DType.F16:
            return lambda *operands: function(*(x.astype(np.float32) for x in operands)).astype(np.float16)
        case DType.BF16:
            return lambda *operands: _nearest_brain(function(*operands))
        case _:
            return function


@cache
def _exact_meanings(dtype: DType) -> dict[str, Meaning]:
    if dtype is DType.BOOL:
        return _LOGIC
    if dtype.is_integer:
        return _integer_meanings(dtype)
    return _FLOAT_TESTS | {op: _rounded(function, dtype) for op, function in _FLOAT_RESULTS.items()}


@cache
def array_meaning(op: str, dtype: DType) -> Meaning:
    """The function of an operator of the table on value arrays of ``dtype``."""
    require_operator(op, dtype)
    if op in MATH_FUNCTIONS:
        # Tapes are made of the other operators' meanings, so they can only be imported once those exist.
        from vyre.semantics.math import array_function

        return array_function(op, dtype)
    return _quietly(_exact_meanings(dtype)[op])


def _integer_to_brain(a: Array) -> Array:
    extended = a.astype(np.uint64)
    magnitude = np.where(a < 0, np.negative(extended), extended)
    # An integer too long for f64 keeps its upper bits, and in the last of them whether more followed.
    tail = magnitude & np.uint64(0xFFFF)
    sticky = (tail != 0).astype(np.uint64) << np.uint64(16)
    short = np.where(magnitude >> np.uint64(48) == 0, magnitude, (magnitude ^ tail) | sticky)
    single = _odd_single(short.astype(np.float64))
    return _nearest_brain(np.where(a < 0, -single, single))


def _to_float(source: DType, target: DType) -> Meaning:
    match source.kind, target:
        case Kind.FLOAT, DType.BF16:
            return lambda a: _nearest_brain(_odd_single(a.astype(np.float64)))
        case Kind.FLOAT, DType.F16:
            # Hardware may convert f64 to f16 through f32; made odd first, the second rounding is the only one.
            return lambda a: _odd_single(a.astype(np.float64)).astype(np.float16)
        case Kind.SIGNED | Kind.UNSIGNED, DType.BF16:
            return _integer_to_brain
        case _:
            # Integers that f32 cannot hold are beyond f16, so NumPy's way through f32 rounds once.
            return lambda a: a.astype(value_type(target))


def _float_to_integer(target: DType) -> Meaning:
    storage = target.storage
    low, high = float(target.minimum), float(target.maximum + 1)
    minimum, maximum = storage.type(target.minimum), storage.type(target.maximum)

    def convert(a: Array) -> Array:
        wide = a.astype(np.float64)
        inside = (wide > low) & (wide < high)
        whole = np.where(inside, np.trunc(wide), 0.0).astype(storage)
        return np.where(wide >= high, maximum, np.where(wide <= low, minimum, whole))

    return convert


@cache
def array_cast(source: DType, target: DType) -> Meaning:
    """The conversion of value arrays of ``source`` to ``target``: total, rounding at most once."""
    if source is target:
        return lambda a: a
    if target is DType.BOOL:
        return _quietly(lambda a: a != 0)
    if target.is_float:
        return _quietly(_to_float(source, target))
    if source.is_float:
        return _quietly(_float_to_integer(target))
    return _quietly(lambda a: a.astype(target.storage))


@cache
def array_bitcast(source: DType, target: DType) -> Meaning:
    """The value array of ``target`` with the same bits; NaNs become the canonical one."""
    require_same_width(source, target)
    return _quietly(lambda a: from_storage(to_storage(np.asarray(a), source).view(target.storage), target))


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    addend = total - a
    return total, (a - (total - addend)) + (b - addend)


def _exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    product, (a_high, a_low), (b_high, b_low) = a * b, split(a), split(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _odd_sum(a: Array, b: Array) -> Array:
    """The sum, keeping in the last bit whether anything was lost."""
    total, lost = _exact_sum(a, b)
    is_even = total.view(np.uint64) & np.uint64(1) == 0
    return np.where((lost != 0) & np.isfinite(total) & is_even, np.nextafter(total, np.copysign(np.inf, lost)), total)


def _fused_single(a: Array, b: Array, c: Array) -> Array:
    return _odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(np.float32)


def _fused_double(a: Array, b: Array, c: Array) -> Array:
    a, b, c = np.broadcast_arrays(a, b, c)
    product, product_tail = _exact_product(a, b)
    upper, tail = _exact_sum(c, product_tail)
    leading, middle = _exact_sum(product, upper)
    fused = leading + _odd_sum(tail, middle)

    factors_finite = np.isfinite(a) & np.isfinite(b)
    plain = ~factors_finite | (a == 0) | (b == 0)
    result = np.where(plain, a * b + c, np.where(np.isfinite(c), fused, c))

    def moderate(x: Array, low: float, high: float) -> Array:
        return (np.abs(x) >= low) & (np.abs(x) <= high)

    # Within these bounds no step above overflows and no exact tail underflows; the rest is done one by one.
    sound = moderate(a, 2.0**-400, 2.0**400) & moderate(b, 2.0**-400, 2.0**400)
    sound &= moderate(c, 2.0**-800, 2.0**900) | (c == 0)
    exact = scalar_fma(DType.F64)
    for index in np.flatnonzero(~(plain | sound | ~np.isfinite(c))):
        result.flat[index] = exact(float(a.flat[index]), float(b.flat[index]), float(c.flat[index]))
    return result


def array_fma(dtype: DType) -> Meaning:
    """``a * b + c`` with one rounding, for f32 and f64."""
    require_fused(dtype)
    return _quietly(_fused_single if dtype is DType.F32 else _fused_double)
