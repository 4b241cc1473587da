"""What does each operator mean for one element?

An element is a plain Python object: a ``bool``, an ``int`` in its type's range, or a ``float`` that its type
represents exactly (any NaN stands for the one NaN a type has). Every function made here is total: it never
raises, and gives an element of its result type. The interpreter and the folder run these; ``arrays`` says the
same a second time, in NumPy, and the tests hold the two to each other.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from ctypes import c_float
from functools import cache
from math import ceil, copysign, floor, fmod, frexp, inf, isfinite, isinf, isnan, ldexp, nan, nextafter, sqrt, trunc
from typing import Any

from vyre.errors import VyreError
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import FUSED_TYPES, DType, Kind

Value = bool | int | float
Meaning = Callable[..., Any]

_SINGLE, _SINGLE_BITS = struct.Struct("<f"), struct.Struct("<I")
_DOUBLE, _DOUBLE_BITS = struct.Struct("<d"), struct.Struct("<Q")
_HALF, _HALF_BITS = struct.Struct("<e"), struct.Struct("<H")

CANONICAL_NAN = {DType.F16: 0x7E00, DType.BF16: 0x7FC0, DType.F32: 0x7FC00000, DType.F64: 0x7FF8 << 48}


def zero(dtype: DType) -> Value:
    """The element whose bits are all zero."""
    return from_bits(0, dtype)


def from_bits(bits: int, dtype: DType) -> Value:
    """The element with this unsigned bit pattern."""
    match dtype:
        case DType.BOOL:
            return bool(bits)
        case DType.F32:
            return float(_SINGLE.unpack(_SINGLE_BITS.pack(bits))[0])
        case DType.F64:
            return float(_DOUBLE.unpack(_DOUBLE_BITS.pack(bits))[0])
        case DType.F16:
            return float(_HALF.unpack(_HALF_BITS.pack(bits))[0])
        case DType.BF16:
            return float(_SINGLE.unpack(_SINGLE_BITS.pack(bits << 16))[0])
        case _:
            return bits - (1 << dtype.bits) if bits > dtype.maximum else bits


def to_bits(value: Value, dtype: DType) -> int:
    """The unsigned bit pattern of an element; every NaN gives the canonical quiet one."""
    if value != value:
        return CANONICAL_NAN[dtype]
    match dtype:
        case DType.F32:
            return int(_SINGLE_BITS.unpack(_SINGLE.pack(value))[0])
        case DType.F64:
            return int(_DOUBLE_BITS.unpack(_DOUBLE.pack(value))[0])
        case DType.F16:
            return int(_HALF_BITS.unpack(_HALF.pack(value))[0])
        case DType.BF16:
            return int(_SINGLE_BITS.unpack(_SINGLE.pack(value))[0]) >> 16
        case _:
            return int(value) & ((1 << dtype.bits) - 1)


def _nearest_single(x: float) -> float:
    return c_float(x).value


def _nearest_half(x: float) -> float:
    try:
        return float(_HALF.unpack(_HALF.pack(x))[0])
    except OverflowError:
        return copysign(inf, x)


def _nearest_brain(x: float) -> float:
    if abs(x) >= 2.0**128:
        return copysign(inf, x)
    if x == 0.0 or x != x:
        return x
    # bf16 keeps 8 significant bits, and none below 2**-133.
    quantum = max(frexp(x)[1] - 8, -133)
    rounded = ldexp(round(ldexp(x, -quantum)), quantum)
    return copysign(inf if abs(rounded) >= 2.0**128 else rounded, x)


_NEAREST: dict[DType, Callable[[float], float]] = {
    DType.F16: _nearest_half,
    DType.BF16: _nearest_brain,
    DType.F32: _nearest_single,
    DType.F64: float,
}


def _rounding(dtype: DType) -> Callable[[float], float]:
    nearest = _NEAREST[dtype]
    if dtype in FUSED_TYPES:
        return nearest
    return lambda x: nearest(_nearest_single(x))


def round_to(value: float, dtype: DType) -> float:
    """Round the result of arithmetic to nearest even; f16 and bf16 round the f32 result.

    For +, -, *, / and sqrt a double holds enough bits that rounding it again to f32 changes nothing. A value that
    is not a result of arithmetic, such as a written constant, is rounded once, by ``scalar_cast(F64, dtype)``.
    """
    return _rounding(dtype)(value)


def _wrapping(dtype: DType) -> Callable[[int], int]:
    mask = (1 << dtype.bits) - 1
    if dtype.kind is Kind.UNSIGNED:
        return lambda a: a & mask
    half = 1 << (dtype.bits - 1)
    return lambda a: ((a + half) & mask) - half


def _clamping(dtype: DType) -> Callable[[int], int]:
    low, high = dtype.minimum, dtype.maximum
    return lambda a: low if a < low else high if a > high else a


def _quotient(a: int, b: int) -> int:
    if b == 0:
        return a
    magnitude = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def _remainder(a: int, b: int) -> int:
    if b == 0:
        return 0
    magnitude = abs(a) % abs(b)
    return -magnitude if a < 0 else magnitude


_COMPARISONS: dict[str, Meaning] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}

_LOGIC: dict[str, Meaning] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "eq": operator.eq,
    "ne": operator.ne,
    "lnot": operator.not_,
}


def _unsigned_arithmetic(dtype: DType) -> dict[str, Meaning]:
    mask = (1 << dtype.bits) - 1
    return {
        "add": lambda a, b: (a + b) & mask,
        "sub": lambda a, b: (a - b) & mask,
        "mul": lambda a, b: (a * b) & mask,
        "div": lambda a, b: a // b if b else a,
        "mod": lambda a, b: a % b if b else 0,
        "neg": lambda a: -a & mask,
        "not": lambda a: a ^ mask,
        "abs": lambda a: a,
        "sign": lambda a: 1 if a else 0,
    }


def _signed_arithmetic(dtype: DType) -> dict[str, Meaning]:
    mask, half = (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)
    return {
        "add": lambda a, b: ((a + b + half) & mask) - half,
        "sub": lambda a, b: ((a - b + half) & mask) - half,
        "mul": lambda a, b: ((a * b + half) & mask) - half,
        "div": lambda a, b: ((_quotient(a, b) + half) & mask) - half,
        "mod": _remainder,
        "neg": lambda a: ((half - a) & mask) - half,
        "not": operator.invert,
        "abs": lambda a: ((abs(a) + half) & mask) - half,
        "sign": lambda a: (a > 0) - (a < 0),
    }


def _integer_meanings(dtype: DType) -> dict[str, Meaning]:
    bits = dtype.bits
    mask, amount = (1 << bits) - 1, bits - 1
    wrap, clamp = _wrapping(dtype), _clamping(dtype)

    def rotate_left(a: int, b: int) -> int:
        unsigned, count = a & mask, b & amount
        return wrap(unsigned << count | unsigned >> (bits - count))

    arithmetic = _unsigned_arithmetic(dtype) if dtype.kind is Kind.UNSIGNED else _signed_arithmetic(dtype)
    return (
        _COMPARISONS
        | arithmetic
        | {
            "shl": lambda a, b: wrap(a << (b & amount)),
            "shr": lambda a, b: a >> (b & amount),
            "rotl": rotate_left,
            "rotr": lambda a, b: rotate_left(a, -b),
            "and": operator.and_,
            "or": operator.or_,
            "xor": operator.xor,
            "min": lambda a, b: a if a < b else b,
            "max": lambda a, b: a if a > b else b,
            "abs_diff": lambda a, b: abs(a - b),
            "sat_add": lambda a, b: clamp(a + b),
            "sat_sub": lambda a, b: clamp(a - b),
            "sat_mul": lambda a, b: clamp(a * b),
            "mul_high": lambda a, b: (a * b) >> bits,
            "popcount": lambda a: (a & mask).bit_count(),
            "clz": lambda a: bits - (a & mask).bit_length(),
            "ctz": lambda a: (a & -a).bit_length() - 1 if a else bits,
            "reverse_bits": lambda a: wrap(int(f"{a & mask:0{bits}b}"[::-1], 2)),
        }
    )


def _divide(a: float, b: float) -> float:
    try:
        return a / b
    except ZeroDivisionError:
        return nan if a == 0.0 or a != a else copysign(inf, a) * copysign(1.0, b)


def _float_remainder(a: float, b: float) -> float:
    try:
        return fmod(a, b)
    except ValueError:
        return nan


def _square_root(a: float) -> float:
    return sqrt(a) if a >= 0.0 else a if a == 0.0 else nan


def _lesser(a: float, b: float) -> float:
    if a == b:
        return a if copysign(1.0, a) < 0.0 else b
    return a if a < b or b != b else b


def _greater(a: float, b: float) -> float:
    if a == b:
        return b if copysign(1.0, a) < 0.0 else a
    return a if a > b or b != b else b


def _integral(to_integer: Callable[[float], int]) -> Callable[[float], float]:
    return lambda a: copysign(float(to_integer(a)), a) if isfinite(a) else a


def _float_meanings(dtype: DType) -> dict[str, Meaning]:
    nearest = _rounding(dtype)
    return _COMPARISONS | {
        "add": lambda a, b: nearest(a + b),
        "sub": lambda a, b: nearest(a - b),
        "mul": lambda a, b: nearest(a * b),
        "div": lambda a, b: nearest(_divide(a, b)),
        "mod": _float_remainder,
        "min": _lesser,
        "max": _greater,
        "neg": operator.neg,
        "abs": abs,
        "sign": lambda a: copysign(1.0, a) if a < 0.0 or a > 0.0 else a,
        "floor": _integral(floor),
        "ceil": _integral(ceil),
        "round": _integral(round),
        "trunc": _integral(trunc),
        "sqrt": lambda a: nearest(_square_root(a)),
        "recip": lambda a: nearest(_divide(1.0, a)),
        "is_nan": isnan,
        "is_inf": isinf,
        "is_finite": isfinite,
    }


_DOUBLE_ARITHMETIC: dict[str, Meaning] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _divide,
    "sqrt": _square_root,
}


@cache
def _exact_meanings(dtype: DType) -> dict[str, Meaning]:
    match dtype:
        case DType.BOOL:
            return _LOGIC
        case DType.F64:
            return _float_meanings(dtype) | _DOUBLE_ARITHMETIC
        case DType.F16 | DType.BF16 | DType.F32:
            return _float_meanings(dtype)
        case _:
            return _integer_meanings(dtype)


def require_operator(op: str, dtype: DType) -> None:
    """Refuse an operator that the table does not give to this type."""
    if op not in OPERATORS or dtype not in OPERATORS[op].types:
        types = ", ".join(map(str, OPERATORS[op].types)) if op in OPERATORS else "none: the name is unknown"
        raise VyreError("no-meaning", f"operator '{op}' is not defined on {dtype}.", f"its types are {types}.")


@cache
def scalar_meaning(op: str, dtype: DType) -> Meaning:
    """The function of an operator of the table on elements of ``dtype``."""
    require_operator(op, dtype)
    if op in MATH_FUNCTIONS:
        # Tapes are made of the other operators' meanings, so they can only be imported once those exist.
        from vyre.semantics.math import scalar_function

        return scalar_function(op, dtype)
    return _exact_meanings(dtype)[op]


def _integer_to_float(target: DType) -> Callable[[int], float]:
    nearest = _NEAREST[target]
    if target is DType.F64:
        return float

    def convert(a: int) -> float:
        excess = max(0, a.bit_length() - 52)
        # Sticky low bit: 52 bits that remember whether more followed round again as the whole would.
        sticky = (a >> excess) | (a & ((1 << excess) - 1) != 0)
        return nearest(float(sticky << excess))

    return convert


def _float_to_integer(target: DType) -> Callable[[float], int]:
    low, high = target.minimum, target.maximum

    def convert(a: float) -> int:
        if a >= high:
            return high
        if a <= low:
            return low
        return trunc(a) if a == a else 0

    return convert


@cache
def scalar_cast(source: DType, target: DType) -> Meaning:
    """The conversion of an element of ``source`` to ``target``: total, rounding at most once."""
    if target is DType.BOOL:
        return lambda a: a != 0
    if target.is_float:
        return _NEAREST[target] if source.is_float else _integer_to_float(target)
    if source.is_float:
        return _float_to_integer(target)
    return int if source is DType.BOOL else _wrapping(target)


@cache
def scalar_bitcast(source: DType, target: DType) -> Meaning:
    """The element of ``target`` with the same bits; a NaN on either side becomes the canonical one."""
    require_same_width(source, target)
    if source is target:
        return lambda a: a
    if source.is_float or target.is_float:
        return lambda a: from_bits(to_bits(a, source), target)
    return _wrapping(target)


def require_same_width(source: DType, target: DType) -> None:
    """Refuse a bitcast between types of different widths."""
    if source.bits != target.bits:
        raise VyreError(
            "bitcast-width",
            f"a bitcast keeps the bits, but {source} has {source.bits} of them and {target} has {target.bits}.",
            "cast instead, or choose a type of the same width.",
        )


def _fused_single(a: float, b: float, c: float) -> float:
    # The product of two f32 is exact in a double; the sum is rounded to odd, so that rounding to f32 is the only one.
    product = a * b
    total = product + c
    if not isfinite(total):
        return c_float(total).value
    addend = total - product
    lost = (product - (total - addend)) + (c - addend)
    if lost and not _DOUBLE_BITS.unpack(_DOUBLE.pack(total))[0] & 1:
        total = nextafter(total, copysign(inf, lost))
    return c_float(total).value


def _fused_double(a: float, b: float, c: float) -> float:
    if not (isfinite(a) and isfinite(b) and isfinite(c)):
        return c if isfinite(a) and isfinite(b) else a * b + c
    (p, q), (r, s), (t, u) = a.as_integer_ratio(), b.as_integer_ratio(), c.as_integer_ratio()
    numerator, denominator = p * r * u + t * q * s, q * s * u
    if numerator == 0:
        return a * b + c
    try:
        return numerator / denominator
    except OverflowError:
        return inf if numerator > 0 else -inf


def scalar_fma(dtype: DType) -> Meaning:
    """``a * b + c`` with one rounding, for f32 and f64."""
    require_fused(dtype)
    return _fused_single if dtype is DType.F32 else _fused_double


def require_fused(dtype: DType) -> None:
    """Refuse a fused multiply-add on a type that has none."""
    if dtype not in FUSED_TYPES:
        raise VyreError("no-meaning", f"fma is not defined on {dtype}.", "its types are f32 and f64.")
