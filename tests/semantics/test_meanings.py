"""Each operator, cast and bitcast: scalars against arrays, and both against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from meaning_samples import array, array_bits, edge_bits, nearest, random_bits, scalars

from vyre.errors import VyreError
from vyre.semantics.arrays import array_bitcast, array_cast, array_fma, array_meaning, from_storage, to_storage
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.scalars import (
    CANONICAL_NAN,
    Value,
    from_bits,
    round_to,
    scalar_bitcast,
    scalar_cast,
    scalar_fma,
    scalar_meaning,
    to_bits,
    zero,
)
from vyre.semantics.types import ALL_TYPES, FLOATS, FUSED_TYPES, INTEGERS, DType, Kind

ROWS = [(op, dtype) for op, row in OPERATORS.items() for dtype in row.types]
EXACT_ROWS = [(op, dtype) for op, dtype in ROWS if op not in MATH_FUNCTIONS]
PAIRS_OF_TYPES = [(source, target) for source in ALL_TYPES for target in ALL_TYPES]


def operand_columns(dtype: DType, arity: int) -> list[list[int]]:
    edges = edge_bits(dtype)
    if arity == 1:
        return [edges + random_bits(dtype, 300)]
    left = [a for a in edges for _ in edges] + random_bits(dtype, 600, seed=2)
    right = [b for _ in edges for b in edges] + random_bits(dtype, 600, seed=3)
    return [left, right]


def is_element(value: Value, dtype: DType) -> bool:
    if dtype is DType.BOOL:
        return type(value) is bool
    if dtype.is_float:
        return type(value) is float and (value != value or same(from_bits(to_bits(value, dtype), dtype), value))
    return type(value) is int and dtype.minimum <= value <= dtype.maximum


def same(a: Value, b: Value) -> bool:
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize(("op", "dtype"), ROWS)
def test_scalars_and_arrays_give_the_same_bits(op: str, dtype: DType) -> None:
    columns = operand_columns(dtype, OPERATORS[op].arity)
    result = OPERATORS[op].result_type(dtype)
    one_by_one = list(map(scalar_meaning(op, dtype), *(scalars(column, dtype) for column in columns)))
    assert all(is_element(value, result) for value in one_by_one)
    together = array_meaning(op, dtype)(*(array(column, dtype) for column in columns))
    assert [to_bits(value, result) for value in one_by_one] == array_bits(together, result)


@pytest.mark.parametrize(("op", "dtype"), EXACT_ROWS)
def test_each_operator_is_what_the_language_says(op: str, dtype: DType) -> None:
    meaning = scalar_meaning(op, dtype)
    columns = operand_columns(dtype, OPERATORS[op].arity)
    for operands in zip(*(scalars(column, dtype) for column in columns), strict=True):
        expected = oracle(op, dtype, operands)
        assert same(meaning(*operands), expected), f"{op} {dtype} {operands} is {expected}"


def oracle(op: str, dtype: DType, operands: tuple[Any, ...]) -> Value:
    """The language's rules in unbounded integers and fractions."""
    if op in ("eq", "ne", "lt", "le", "gt", "ge"):
        return comparison(op, *operands)
    if dtype is DType.BOOL:
        a, b = (*operands, False)[:2]
        return {"and": a and b, "or": a or b, "xor": a is not b, "lnot": not a}[op]
    if dtype.is_float:
        return float_oracle(op, dtype, *operands)
    return integer_oracle(op, dtype, *operands)


def comparison(op: str, a: Any, b: Any) -> bool:
    if a != a or b != b:
        return op == "ne"
    order = (ordered(a) > ordered(b)) - (ordered(a) < ordered(b))
    return order in {"eq": (0,), "ne": (-1, 1), "lt": (-1,), "le": (-1, 0), "gt": (1,), "ge": (0, 1)}[op]


def ordered(value: Any) -> Fraction:
    return Fraction(2) ** 2000 * (1 if value > 0 else -1) if math.isinf(value) else Fraction(value)


def integer_oracle(op: str, dtype: DType, a: int, b: int = 0) -> int:
    width = dtype.bits
    text = f"{a % 2**width:0{width}b}"
    amount = b % width

    def wrapped(value: int) -> int:
        value %= 2**width
        return value - 2**width if value > dtype.maximum else value

    match op:
        case "add" | "sub" | "mul":
            return wrapped({"add": a + b, "sub": a - b, "mul": a * b}[op])
        case "sat_add" | "sat_sub" | "sat_mul":
            exact = {"sat_add": a + b, "sat_sub": a - b, "sat_mul": a * b}[op]
            return sorted((dtype.minimum, exact, dtype.maximum))[1]
        case "div":
            return a if b == 0 else wrapped(math.trunc(Fraction(a, b)))
        case "mod":
            return 0 if b == 0 else a - b * math.trunc(Fraction(a, b))
        case "shl":
            return wrapped(a * 2**amount)
        case "shr":
            return math.floor(Fraction(a, 2**amount))
        case "rotl" | "rotr":
            split = amount if op == "rotl" else width - amount
            return wrapped(int(text[split:] + text[:split], 2))
        case "and" | "or" | "xor":
            other = f"{b % 2**width:0{width}b}"
            ones = {"and": ("11",), "or": ("01", "10", "11"), "xor": ("01", "10")}[op]
            return wrapped(int("".join("1" if x + y in ones else "0" for x, y in zip(text, other, strict=True)), 2))
        case "min" | "max":
            return sorted((a, b))[op == "max"]
        case "abs_diff":
            return max(a, b) - min(a, b)
        case "mul_high":
            return math.floor(Fraction(a * b, 2**width))
        case "neg" | "not" | "abs":
            return wrapped({"neg": -a, "not": -a - 1, "abs": a if a > 0 else -a}[op])
        case "sign":
            return 0 if a == 0 else a // abs(a)
        case "popcount":
            return text.count("1")
        case "clz":
            return width - len(text.lstrip("0"))
        case "ctz":
            return width - len(text.rstrip("0"))
        case "reverse_bits":
            return wrapped(int(text[::-1], 2))
    raise AssertionError(op)


def float_oracle(op: str, dtype: DType, a: float, b: float = 0.0) -> Value:
    def rounded(exact: Fraction, sign_of_zero: float) -> float:
        single = nearest(exact, dtype if dtype in FUSED_TYPES else DType.F32)
        result = single if math.isinf(single) else nearest(Fraction(single), dtype)
        return math.copysign(result, sign_of_zero if exact == 0 else single)

    sign_of_product = math.copysign(1, a) * math.copysign(1, b)
    finite = math.isfinite(a) and math.isfinite(b)
    match op:
        case "sub":
            return float_oracle("add", dtype, a, -b)
        case "recip":
            return float_oracle("div", dtype, 1.0, a)
        case "is_nan" | "is_inf" | "is_finite":
            return {"is_nan": a != a, "is_inf": abs(a) == math.inf, "is_finite": abs(a) < math.inf}[op]
        case "min" | "max" if a != a or b != b:
            return b if a != a else a
        case "min" | "max":
            return sorted((a, b), key=lambda x: (ordered(x), math.copysign(1, x)))[op == "max"]
        case "neg":
            return a if a != a else from_bits(to_bits(a, dtype) ^ (1 << (dtype.bits - 1)), dtype)
        case "abs":
            return a if a != a else from_bits(to_bits(a, dtype) & ~(1 << (dtype.bits - 1)), dtype)
    if a != a or b != b:
        return math.nan
    match op:
        case "add" if finite:
            both_negative = math.copysign(1, a) + math.copysign(1, b) == -2
            return rounded(Fraction(a) + Fraction(b), -1.0 if both_negative else 1.0)
        case "add":
            return math.nan if a == -b else (a if math.isinf(a) else b)
        case "mul" if finite:
            return rounded(Fraction(a) * Fraction(b), sign_of_product)
        case "mul":
            return math.nan if a == 0 or b == 0 else sign_of_product * math.inf
        case "div" if finite and b != 0:
            return rounded(Fraction(a) / Fraction(b), sign_of_product)
        case "div" if math.isinf(a):
            return math.nan if math.isinf(b) else sign_of_product * math.inf
        case "div":
            return math.copysign(0.0, sign_of_product) if b != 0 else math.nan if a == 0 else sign_of_product * math.inf
        case "mod":
            if math.isinf(a) or b == 0:
                return math.nan
            if math.isinf(b):
                return a
            remainder = Fraction(a) - Fraction(b) * math.trunc(Fraction(a) / Fraction(b))
            assert Fraction(float(remainder)) == remainder
            return math.copysign(float(remainder), a)
        case "sign":
            return a if a == 0 else math.copysign(1.0, a)
        case "floor" | "ceil" | "round" | "trunc":
            if math.isinf(a):
                return a
            rule = {"floor": math.floor, "ceil": math.ceil, "round": round, "trunc": math.trunc}[op]
            return math.copysign(float(rule(Fraction(a))), a)
        case "sqrt":
            if a == 0 or a == math.inf:
                return a
            return math.nan if a < 0 else rounded(root(Fraction(a)), 1.0)
    raise AssertionError(op)


def root(x: Fraction) -> Fraction:
    """The square root to 200 bits, with a last bit that says whether it is more than that."""
    scale = 4**600
    scaled = x.numerator * scale // x.denominator
    whole = math.isqrt(scaled)
    return Fraction(2 * whole + (whole * whole != scaled), 2 ** (601))


@pytest.mark.parametrize(("source", "target"), PAIRS_OF_TYPES)
def test_casts_follow_the_rules_and_round_once(source: DType, target: DType) -> None:
    patterns = edge_bits(source) + random_bits(source, 400) + near_ties(source, target)
    convert = scalar_cast(source, target)
    values = scalars(patterns, source)
    results = [convert(value) for value in values]
    for value, result in zip(values, results, strict=True):
        assert is_element(result, target)
        assert same(result, cast_oracle(value, target)), f"{value!r} {source} to {target} gave {result!r}"
    together = array_cast(source, target)(array(patterns, source))
    assert array_bits(together, target) == [to_bits(result, target) for result in results]


def near_ties(source: DType, target: DType) -> list[int]:
    """Source values at, just below and just above the midpoints between neighbours of a narrower target."""
    if not target.is_float or source is DType.BOOL:
        return []
    patterns = []
    for bits in [b for b in edge_bits(target) + random_bits(target, 100) if math.isfinite(from_bits(b, target))]:
        low, high = from_bits(bits, target), from_bits(bits + 1, target)
        if not math.isfinite(high):
            continue
        midpoint = (Fraction(low) + Fraction(high)) / 2
        if source.is_float:
            middle = to_bits(nearest(midpoint, source), source)
            patterns += [middle, (middle + 1) % 2**source.bits, max(0, middle - 1)]
        elif source.minimum < midpoint < source.maximum:
            patterns += [(math.floor(midpoint) + d) % 2**source.bits for d in (-1, 0, 1)]
    return patterns


def cast_oracle(value: Value, target: DType) -> Value:
    if target is DType.BOOL:
        return value != value or value != 0
    if target.is_float:
        if value != value or (isinstance(value, float) and math.isinf(value)):
            return value
        result = nearest(Fraction(value), target)
        return math.copysign(result, value) if isinstance(value, float) else result
    if isinstance(value, float):
        if value != value:
            return 0
        whole = math.trunc(ordered(value))
        return sorted((target.minimum, whole, target.maximum))[1]
    wrapped = int(value) % 2**target.bits
    return wrapped - 2**target.bits if wrapped > target.maximum else wrapped


@pytest.mark.parametrize(("source", "target"), PAIRS_OF_TYPES)
def test_bitcasts_keep_the_bits_and_need_one_width(source: DType, target: DType) -> None:
    if source.bits != target.bits:
        for make in (scalar_bitcast, array_bitcast):
            with pytest.raises(VyreError, match="Fix: cast instead"):
                make(source, target)
        return
    patterns = edge_bits(source) + random_bits(source, 200)
    for pattern in patterns:
        result = scalar_bitcast(source, target)(from_bits(pattern, source))
        assert is_element(result, target)
        assert to_bits(result, target) == canonical(canonical(pattern, source), target)
    together = array_bitcast(source, target)(array(patterns, source))
    assert array_bits(together, target) == [canonical(canonical(p, source), target) for p in patterns]


def canonical(bits: int, dtype: DType) -> int:
    return CANONICAL_NAN[dtype] if from_bits(bits, dtype) != from_bits(bits, dtype) else bits


@pytest.mark.parametrize("dtype", FUSED_TYPES)
def test_fma_rounds_once(dtype: DType) -> None:
    edges = edge_bits(dtype)[::2]
    columns = [[x for a in edges for b in edges for c in edges for x in ((a, b, c)[k],)] for k in range(3)]
    for k in range(3):
        columns[k] += random_bits(dtype, 3000, seed=10 + k)
    add_cancelling_sums(columns, dtype)
    fuse = scalar_fma(dtype)
    results = list(map(fuse, *(scalars(column, dtype) for column in columns)))
    for a, b, c, result in zip(*(scalars(column, dtype) for column in columns), results, strict=True):
        if all(map(math.isfinite, (a, b, c))):
            exact = Fraction(a) * Fraction(b) + Fraction(c)
            if exact != 0:
                assert same(result, nearest(exact, dtype)), (a, b, c)
            else:
                assert same(result, a * b + c)
        elif math.isfinite(a) and math.isfinite(b):
            assert same(result, c)
        else:
            assert same(result, a * b + c)
    together = array_fma(dtype)(*(array(column, dtype) for column in columns))
    assert array_bits(together, dtype) == [to_bits(result, dtype) for result in results]


def add_cancelling_sums(columns: list[list[int]], dtype: DType) -> None:
    """Products whose leading half is taken away, or that end a hair from a tie with the addend."""
    for a, b in zip(random_bits(dtype, 1500, seed=21), random_bits(dtype, 1500, seed=22), strict=True):
        x, y = from_bits(a, dtype), from_bits(b, dtype)
        product = round_to(x * y, dtype)
        scale = 2 ** ({DType.F32: 24, DType.F64: 53}[dtype])
        for addend in (-product, round_to(product * scale, dtype), round_to(product / scale, dtype)):
            for column, bits in zip(columns, (a, b, to_bits(addend, dtype)), strict=True):
                column.append(bits)


@pytest.mark.parametrize("dtype", [d for d in ALL_TYPES if d not in FUSED_TYPES])
def test_fma_is_refused_on_other_types(dtype: DType) -> None:
    for make in (scalar_fma, array_fma):
        with pytest.raises(VyreError, match="fma is not defined"):
            make(dtype)


def test_operators_are_refused_on_types_they_do_not_list() -> None:
    absent = [(op, dtype) for op, row in OPERATORS.items() for dtype in ALL_TYPES if dtype not in row.types]
    assert absent
    for op, dtype in [*absent, ("no_such_operator", DType.U32)]:
        for make in (scalar_meaning, array_meaning):
            with pytest.raises(VyreError, match=f"'{op}' is not defined on {dtype}.*Fix:"):
                make(op, dtype)


@pytest.mark.parametrize("dtype", ALL_TYPES)
def test_bits_and_storage_round_trip(dtype: DType) -> None:
    patterns = list(range(1 << dtype.bits)) if dtype.bits <= 16 else edge_bits(dtype) + random_bits(dtype, 2000)
    for pattern in patterns:
        element = from_bits(pattern, dtype)
        assert is_element(element, dtype)
        assert to_bits(element, dtype) == canonical(pattern, dtype)
    assert array_bits(array(patterns, dtype), dtype) == [canonical(p, dtype) for p in patterns]
    assert is_element(zero(dtype), dtype)
    assert to_bits(zero(dtype), dtype) == 0


def test_storage_of_bool_reads_any_nonzero_byte_as_true() -> None:
    raw = np.array([0, 1, 2, 255], dtype=np.uint8).view(np.bool_)
    stored = to_storage(from_storage(raw, DType.BOOL), DType.BOOL)
    assert stored.view(np.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_of_arithmetic_goes_through_f32(dtype: DType) -> None:
    for bits in edge_bits(DType.F64) + random_bits(DType.F64, 1000):
        value = from_bits(bits, DType.F64)
        if math.isfinite(value):
            single = nearest(Fraction(value), DType.F64 if dtype is DType.F64 else DType.F32)
            expected = single if math.isinf(single) else nearest(Fraction(single), dtype)
            assert same(round_to(value, dtype), math.copysign(expected, value))
        else:
            assert same(round_to(value, dtype), value)


def test_arrays_of_any_shape_keep_it() -> None:
    for dtype in INTEGERS:
        grid = array(random_bits(dtype, 24), dtype).reshape(2, 3, 4)
        for op, row in OPERATORS.items():
            if dtype in row.types:
                operands = (grid,) * row.arity
                assert array_meaning(op, dtype)(*operands).shape == grid.shape
                assert array_meaning(op, dtype)(*(x[0, 0, 0] for x in operands)).shape == ()


def test_kinds_of_types_partition_them() -> None:
    assert [sum(d.kind is kind for d in ALL_TYPES) for kind in Kind] == [1, 4, 4, 4]
