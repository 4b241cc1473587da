"""The math functions: distance from the true value, special values, and the shape of their tapes."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from meaning_samples import SHAPE, array, edge_bits, scalars

from vyre.errors import VyreError
from vyre.semantics.arrays import array_meaning, from_storage
from vyre.semantics.math import _TWO_OVER_PI, _TWO_OVER_PI_BITS, tape
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.scalars import scalar_meaning
from vyre.semantics.tapes import Step, Tape, run_tape_array, scalar_runner
from vyre.semantics.types import FLOATS, DType

Array = np.ndarray[Any, Any]
INFINITY, NAN = math.inf, math.nan
TRIGONOMETRIC = ("sin", "cos", "tan")
ODD = ("sin", "tan", "asin", "atan", "sinh", "tanh")

# Accurate to a few f64 ULP, which is less than 2**-26 of an f32 ULP.
IN_F64 = {
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
}

EXACTLY = {
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "exp": mpmath.exp,
    "exp2": lambda x: mpmath.power(2, x),
    "log": mpmath.log,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "sin": mpmath.sin,
    "cos": mpmath.cos,
    "tan": mpmath.tan,
    "asin": mpmath.asin,
    "acos": mpmath.acos,
    "atan": mpmath.atan,
    "sinh": mpmath.sinh,
    "cosh": mpmath.cosh,
    "tanh": mpmath.tanh,
}


def distance_in_ulp(results: Array, exact: Array, dtype: DType) -> Array:
    """How many units in the last place of ``exact`` lie between; infinity where one is NaN and the other not."""
    precision, least, top = SHAPE[dtype]
    with np.errstate(all="ignore"):
        results, limit = results.astype(np.float64), 2.0**top
        unit = np.ldexp(1.0, np.clip(np.frexp(exact)[1] - precision, least, top - precision))
        bounded = [np.clip(values, -limit, limit) for values in (results, exact)]
        distance = np.abs(bounded[0] - bounded[1]) / unit
    one_is_nan = np.isnan(results) != np.isnan(exact)
    return np.where(one_is_nan, np.inf, np.where(np.isnan(results), 0.0, distance))


def worst(op: str, arguments: Array, dtype: DType) -> tuple[float, float]:
    with np.errstate(all="ignore"):
        exact = IN_F64[op](arguments.astype(np.float64))
    distance = distance_in_ulp(array_meaning(op, dtype)(arguments), exact, dtype)
    at = int(np.argmax(distance))
    return float(distance[at]), float(arguments[at])


def f32_arguments(op: str) -> Array:
    """Every exponent with random mantissas, and crowds wherever the function is hard."""
    source = np.random.default_rng(len(op) + ord(op[0]))
    exponents = np.repeat(np.arange(512, dtype=np.uint32), 300)
    everywhere = exponents << np.uint32(23) | source.integers(0, 1 << 23, exponents.size, dtype=np.uint32)
    ranges = [(-1.0, 1.0), (-10.0, 10.0), (0.99, 1.01), (0.5, 2.0)]
    if op in ("exp", "exp2", "sinh", "cosh", "tanh"):
        ranges += [(-152.0, 130.0), (-104.0, -86.0), (-152.0, -124.0), (88.0, 90.0)]
    if op in TRIGONOMETRIC:
        ranges += [(-1000.0, 1000.0), (-1e6, 1e6)]
    crowds = [source.uniform(low, high, 40_000).astype(np.float32) for low, high in ranges]
    multiples = (np.arange(1, 20_000) * (math.pi / 4)).astype(np.float32)
    return np.concatenate([everywhere.view(np.float32), *crowds, multiples, array(edge_bits(DType.F32), DType.F32)])


@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_f32_is_within_one_and_a_half_ulp(op: str) -> None:
    distance, argument = worst(op, f32_arguments(op), DType.F32)
    assert distance <= 1.5, f"{op}({argument!r}) is {distance} ULP away"


@pytest.mark.long
@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_every_f32_is_within_two_ulp(op: str) -> None:
    chunk = 1 << 18
    for start in range(0, 1 << 32, chunk):
        arguments = np.arange(start, start + chunk, dtype=np.uint64).astype(np.uint32).view(np.float32)
        distance, argument = worst(op, arguments, DType.F32)
        assert distance <= 2.0, f"{op}({argument!r}) is {distance} ULP away"


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16])
@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_every_half_is_as_good_as_rounded_once(op: str, dtype: DType) -> None:
    raw = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    distance, argument = worst(op, from_storage(raw.view(dtype.storage), dtype), dtype)
    assert distance <= 0.501, f"{op}({argument!r}) is {distance} ULP away"


def f64_arguments(op: str) -> list[float]:
    source = np.random.default_rng(7)
    everywhere = source.integers(0, 1 << 64, 400, dtype=np.uint64).view(np.float64)
    ranges = {
        "exp": [(-746.0, 710.0), (-746.0, -707.0), (-1.0, 1.0)],
        "exp2": [(-1076.0, 1025.0), (-1076.0, -1020.0), (-1.0, 1.0)],
        "sinh": [(-711.0, 711.0), (-2.0, 2.0), (-1e-3, 1e-3), (709.0, 711.0)],
        "cosh": [(-711.0, 711.0), (-2.0, 2.0), (709.0, 711.0)],
        "tanh": [(-20.0, 20.0), (-1.0, 1.0), (0.5, 0.6)],
        "asin": [(-1.0, 1.0), (0.45, 0.7), (0.9999, 1.0)],
        "acos": [(-1.0, 1.0), (0.45, 0.7), (0.9999, 1.0), (-1.0, -0.9999)],
        "atan": [(-10.0, 10.0), (0.8, 1.3)],
        "rsqrt": [(0.5, 8.0)],
    }
    chosen = ranges.get(op, [(0.5, 2.0), (0.999, 1.001), (-10.0, 10.0), (-1e4, 1e4)])
    crowds = [source.uniform(low, high, 300) for low, high in chosen]
    candidates = np.concatenate([everywhere, source.uniform(0.0, 1e-307, 50), *crowds])
    return [x for x in candidates.tolist() if math.isfinite(x) and is_real_at(op, x)]


def is_real_at(op: str, x: float) -> bool:
    if op in ("log", "log2", "rsqrt"):
        return x > 0.0
    return abs(x) <= 1.0 if op in ("asin", "acos") else True


def exact_distance(op: str, x: float, result: float, dtype: DType) -> float:
    """The distance from the true value in ULP, by arbitrary precision."""
    precision, least, top = SHAPE[dtype]
    limit = mpmath.ldexp(1, top)
    with mpmath.workprec(200):
        # Beyond this, everything that grows has overflowed; mpmath would take its time to say so.
        exact = EXACTLY[op](
            mpmath.mpf(max(-2000.0, min(2000.0, x)) if op in ("exp", "exp2", "sinh", "cosh", "tanh") else x)
        )
        exact = max(-limit, min(limit, exact))
        reached = mpmath.sign(result) * limit if math.isinf(result) else mpmath.mpf(result)
        exponent = min(max(mpmath.frexp(exact)[1] - precision, least), top - precision)
        return float(abs(reached - exact) / mpmath.ldexp(1, exponent))


@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_f64_is_within_one_and_a_half_ulp(op: str) -> None:
    arguments = f64_arguments(op)
    assert len(arguments) > 300
    for x, result in zip(arguments, array_meaning(op, DType.F64)(np.array(arguments)).tolist(), strict=True):
        assert exact_distance(op, x, result, DType.F64) <= 1.5, f"{op}({x!r}) is not {result!r}"


def nearest_to_multiples_of_half_pi(dtype: DType) -> list[float]:
    """For each exponent, the value nearest to a multiple of pi/2: a convergent of its continued fraction."""
    precision, _, top = SHAPE[dtype]
    found = []
    scale = 1 << 2300
    with mpmath.workprec(2400):
        two_over_pi = int(mpmath.floor(2 / mpmath.pi * scale))
    for exponent in range(1 - precision, top - precision + 1):
        numerator, denominator = (two_over_pi << exponent, scale) if exponent > 0 else (two_over_pi, scale << -exponent)
        previous, current = 0, 1
        numerator, denominator = denominator, numerator % denominator
        while denominator and current < 1 << precision:
            quotient, rest = divmod(numerator, denominator)
            numerator, denominator = denominator, rest
            previous, current = current, quotient * current + previous
        found.append(math.ldexp(previous, exponent))
    return found


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", TRIGONOMETRIC)
def test_angles_nearest_to_the_axes_keep_their_accuracy(op: str, dtype: DType) -> None:
    arguments = nearest_to_multiples_of_half_pi(dtype)
    results = array_meaning(op, dtype)(np.array(arguments, dtype=dtype.storage)).tolist()
    for x, result in zip(arguments, results, strict=True):
        assert exact_distance(op, x, result, dtype) <= 1.5, f"{op}({x!r}) is not {result!r}"


def test_the_nearest_f64_to_an_axis_is_among_the_hard_angles() -> None:
    assert 0x16AC5B262CA1FF * 2.0**797 in nearest_to_multiples_of_half_pi(DType.F64)


SPECIAL_VALUES = {
    "rsqrt": [(0.0, INFINITY), (-0.0, -INFINITY), (INFINITY, 0.0), (-1.0, NAN), (-INFINITY, NAN), (4.0, 0.5)],
    "exp": [(0.0, 1.0), (-0.0, 1.0), (INFINITY, INFINITY), (-INFINITY, 0.0), (1e4, INFINITY), (-1e4, 0.0)],
    "exp2": [(0.0, 1.0), (3.0, 8.0), (-2.0, 0.25), (INFINITY, INFINITY), (-INFINITY, 0.0), (1e4, INFINITY)],
    "log": [(0.0, -INFINITY), (-0.0, -INFINITY), (1.0, 0.0), (INFINITY, INFINITY), (-1.0, NAN), (-INFINITY, NAN)],
    "log2": [(0.0, -INFINITY), (-0.0, -INFINITY), (8.0, 3.0), (0.5, -1.0), (INFINITY, INFINITY), (-1.0, NAN)],
    "sin": [(INFINITY, NAN), (-INFINITY, NAN)],
    "cos": [(0.0, 1.0), (-0.0, 1.0), (INFINITY, NAN), (-INFINITY, NAN)],
    "tan": [(INFINITY, NAN), (-INFINITY, NAN)],
    "asin": [(1.5, NAN), (-1.5, NAN), (INFINITY, NAN), (-INFINITY, NAN)],
    "acos": [(1.0, 0.0), (1.5, NAN), (-1.5, NAN), (INFINITY, NAN), (-INFINITY, NAN)],
    "atan": [],
    "sinh": [(INFINITY, INFINITY), (-INFINITY, -INFINITY), (1e4, INFINITY), (-1e4, -INFINITY)],
    "cosh": [(0.0, 1.0), (-0.0, 1.0), (INFINITY, INFINITY), (-INFINITY, INFINITY), (1e4, INFINITY)],
    "tanh": [(INFINITY, 1.0), (-INFINITY, -1.0), (1e4, 1.0), (-1e4, -1.0)],
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_special_values_follow_c(op: str, dtype: DType) -> None:
    function = scalar_meaning(op, dtype)
    assert math.isnan(function(NAN))
    for argument, expected in SPECIAL_VALUES[op]:
        value = function(float(np.float16(argument)) if dtype is DType.F16 else argument)
        assert repr(value) == repr(expected), (argument, value)
    if op in ODD:
        assert [repr(function(x)) for x in (0.0, -0.0)] == ["0.0", "-0.0"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_inverse_functions_end_at_pi(dtype: DType) -> None:
    def nearest(value: float) -> float:
        return float(scalar_runner(tape("atan", dtype))(value))

    half_pi, pi = (float(round_constant(c, dtype)) for c in (math.pi / 2, math.pi))
    assert [nearest(INFINITY), nearest(-INFINITY)] == [half_pi, -half_pi]
    assert [scalar_meaning("asin", dtype)(x) for x in (1.0, -1.0)] == [half_pi, -half_pi]
    assert [scalar_meaning("acos", dtype)(x) for x in (0.0, -1.0)] == [half_pi, pi]


def round_constant(value: float, dtype: DType) -> float:
    precision = SHAPE[dtype][0]
    exponent = math.frexp(value)[1] - precision
    return math.ldexp(round(math.ldexp(value, -exponent)), exponent)


@pytest.mark.parametrize("op", [*ODD, "cos", "cosh"])
def test_symmetric_functions_are_symmetric_to_the_bit(op: str) -> None:
    x = f32_arguments(op)[:50_000]
    x = x[np.isfinite(x)]
    here, there = (array_meaning(op, DType.F32)(side) for side in (x, -x))
    assert np.array_equal(here, -there if op in ODD else there, equal_nan=True)


TAPES = [(op, dtype) for op in MATH_FUNCTIONS for dtype in FLOATS]


@pytest.mark.parametrize(("op", "dtype"), TAPES)
def test_tapes_are_well_typed_straight_lines_without_waste(op: str, dtype: DType) -> None:
    steps = tape(op, dtype).steps
    assert steps[0] == Step("arg", dtype)
    assert steps[-1].dtype is dtype
    assert len(set(steps)) == len(steps)
    assert {k for step in steps for k in step.operands} == set(range(len(steps) - 1))
    for position, step in enumerate(steps):
        assert all(0 <= k < position for k in step.operands)
        types = [steps[k].dtype for k in step.operands]
        match step.kind:
            case "op":
                row = OPERATORS[step.op]
                assert step.op not in MATH_FUNCTIONS
                assert types == [types[0]] * row.arity
                assert types[0] in row.types
                assert step.dtype is row.result_type(types[0])
            case "select":
                assert types == [DType.BOOL, step.dtype, step.dtype]
            case "cast":
                assert len(types) == 1
            case "bitcast":
                assert types[0].bits == step.dtype.bits
            case "lit":
                assert not types
                assert 0 <= step.bits < 1 << step.dtype.bits
            case _:
                assert position == 0


@pytest.mark.parametrize("op", MATH_FUNCTIONS)
def test_f32_tapes_need_no_wide_types(op: str) -> None:
    used = {step.dtype for step in tape(op, DType.F32).steps}
    assert used <= {DType.F32, DType.U32, DType.I32, DType.BOOL}


def test_tapes_stay_short() -> None:
    longest = {dtype: max(tape(op, dtype).operations for op in MATH_FUNCTIONS) for dtype in (DType.F32, DType.F64)}
    assert longest[DType.F32] <= 120
    assert longest[DType.F64] <= 150


def test_a_tape_runs_the_same_on_one_element_and_on_arrays() -> None:
    doubled = Tape((Step("arg", DType.F32), Step("op", DType.F32, (0, 0), "add")))
    values = scalars(edge_bits(DType.F32), DType.F32)
    together = run_tape_array(doubled, np.array(values, dtype=np.float32))
    assert [repr(scalar_runner(doubled)(value)) for value in values] == [repr(value) for value in together.tolist()]


def test_exact_operators_have_no_tape() -> None:
    with pytest.raises(VyreError, match=r"'sqrt' is exact.*Fix:"):
        tape("sqrt", DType.F32)
    with pytest.raises(VyreError, match=r"'sin' is not defined on u32.*Fix:"):
        tape("sin", DType.U32)


def test_the_bits_of_two_over_pi() -> None:
    with mpmath.workprec(_TWO_OVER_PI_BITS + 100):
        assert int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, _TWO_OVER_PI_BITS))) == _TWO_OVER_PI
