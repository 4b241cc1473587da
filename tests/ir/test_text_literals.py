"""Constants in text: every float prints with the fewest digits that read back, every decimal is rounded once."""

from __future__ import annotations

import random
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest

from vyre.errors import ParseError
from vyre.ir import nodes as n
from vyre.ir.literals import BadLiteral, read_number, write_literal
from vyre.ir.parser import parse_expression
from vyre.semantics.scalars import from_bits
from vyre.semantics.types import FLOATS, INTEGERS, DType

SAMPLES = 3_000


def finite_bits(dtype: DType) -> list[int]:
    """Positive finite patterns: all of a 16-bit type, of others the edges of every power of two and random ones."""
    infinity = read_infinity(dtype).bits
    if dtype.bits == 16:
        return list(range(1, infinity))
    lowest = 1 << {32: 23, 64: 52}[dtype.bits]
    edges = {power + step for power in range(lowest, infinity, lowest) for step in (-1, 0, 1)}
    edges |= {1 << k for k in range(dtype.bits - 1)} | {(1 << k) - 1 for k in range(1, dtype.bits - 1)}
    picks = random.Random(7)
    edges |= {picks.randrange(1, infinity) for _ in range(SAMPLES)}
    return sorted(bits for bits in edges if 0 < bits < infinity)


def read_infinity(dtype: DType) -> n.Lit:
    literal = parse_expression("inf" + dtype.label)
    assert isinstance(literal, n.Lit)
    return literal


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_float_reads_back(dtype: DType) -> None:
    sign = 1 << (dtype.bits - 1)
    for bits in finite_bits(dtype):
        text = write_literal(bits, dtype)
        literal = read_number(text)
        assert literal.bits == bits
        assert literal.dtype is dtype
    for bits in (0, 1, read_infinity(dtype).bits):
        assert parse_expression(write_literal(bits | sign, dtype)) == n.Lit(bits | sign, dtype)


def significant_digits(text: str, dtype: DType) -> str:
    mantissa = text.removesuffix("" if dtype is DType.F32 else dtype.label).split("e")[0]
    return mantissa.replace(".", "").strip("0")


def shorter_candidates(value: Fraction, digits: int) -> list[str]:
    """The two decimals of so many digits around a value."""
    power = 0
    while value >= 10 ** (power + 1):
        power += 1
    while value < Fraction(10) ** power:
        power -= 1
    unit = Fraction(10) ** (power - digits + 1)
    below = value // unit
    return [f"{below + k}e{power - digits + 1}" for k in (0, 1)]


@pytest.mark.parametrize("dtype", FLOATS)
def test_no_fewer_digits_would_do(dtype: DType) -> None:
    suffix = dtype.label
    cases = random.Random(3).sample(finite_bits(dtype), 1_500)
    for bits in cases:
        digits = significant_digits(write_literal(bits, dtype), dtype)
        if len(digits) == 1:
            continue
        for shorter in shorter_candidates(Fraction(from_bits(bits, dtype)), len(digits) - 1):
            with suppress(BadLiteral):
                assert read_number(shorter + suffix).bits != bits


def test_doubles_print_as_many_digits_as_python_does() -> None:
    for bits in finite_bits(DType.F64):
        mine = significant_digits(write_literal(bits, DType.F64), DType.F64)
        theirs = repr(from_bits(bits, DType.F64)).split("e")[0].replace(".", "").strip("0")
        assert mine == theirs


def test_singles_print_no_more_digits_than_numpy_does() -> None:
    for bits in finite_bits(DType.F32):
        mine = significant_digits(write_literal(bits, DType.F32), DType.F32)
        theirs = np.format_float_scientific(np.uint32(bits).view(np.float32), trim="-").split("e")[0].replace(".", "")
        assert len(mine) <= len(theirs)


def nearest_by_search(value: Fraction, dtype: DType) -> int:
    """The bits whose value lies nearest, ties to even: by bisection over all patterns, and exact comparison."""
    low, high = 0, read_infinity(dtype).bits - 1
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(from_bits(middle, dtype)) <= value:
            low = middle
        else:
            high = middle
    return min((low, high), key=lambda bits: (abs(Fraction(from_bits(bits, dtype)) - value), bits & 1))


@pytest.mark.parametrize("dtype", FLOATS)
def test_decimals_are_rounded_once(dtype: DType) -> None:
    """Just beside a tie between two neighbours, nearer than a double could tell."""
    picks = random.Random(5)
    for bits in picks.sample(finite_bits(dtype)[:-2], 300):
        tie = (Fraction(from_bits(bits, dtype)) + Fraction(from_bits(bits + 1, dtype))) / 2
        # A dyadic fraction has a finite decimal: its digits, then one more far behind them.
        shift = tie.denominator.bit_length() - 1
        whole = tie.numerator * 5**shift
        for beside in (-1, 0, 1):
            text = f"{whole * 10**40 + beside}e-{shift + 40}{dtype.label}"
            if len(text) <= 1_000:
                expected = nearest_by_search(tie + Fraction(beside, 10 ** (shift + 40)), dtype)
                assert read_number(text).bits == expected, text


@pytest.mark.parametrize("dtype", FLOATS)
def test_random_decimals_are_the_nearest(dtype: DType) -> None:
    picks = random.Random(11)
    for _ in range(300):
        digits, exponent = picks.randrange(1, 10 ** picks.randrange(1, 30)), picks.randrange(-50, 4)
        text = f"{digits}e{exponent}{dtype.label}"
        value = digits * Fraction(10) ** exponent
        if value <= Fraction(from_bits(read_infinity(dtype).bits - 1, dtype)):
            assert read_number(text).bits == nearest_by_search(value, dtype)


def test_hex_floats_are_exact() -> None:
    picks = random.Random(13)
    for bits in picks.sample(finite_bits(DType.F64), 500):
        value = from_bits(bits, DType.F64)
        assert isinstance(value, float)
        assert read_number(value.hex() + "f64").bits == bits
    assert read_number("0x1.8p3") == n.lit(12.0)
    assert read_number("-0x.8p1".replace("x.", "x0.")) == n.lit(-1.0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_their_ends(dtype: DType) -> None:
    for number in (dtype.minimum, dtype.maximum, 0, 1):
        literal = n.lit(number, dtype)
        assert read_number(f"{number}{dtype.label}") == literal
        assert read_number(write_literal(literal.bits, dtype)) == literal
        assert read_number(f"{'-' if number < 0 else ''}{abs(number):#x}{dtype.label}") == literal
    for number in (dtype.minimum - 1, dtype.maximum + 1):
        with pytest.raises(BadLiteral, match="does not fit"):
            read_number(f"{number}{dtype.label}")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("300u8", "300u16"),
        ("-1", "-1i32"),
        ("-1u8", "-1i8"),
        ("4294967296", "4294967296u64"),
        ("3000000000i32", "3000000000i64"),
        ("18446744073709551616", "no integer type"),
        ("1e39", "inf"),
        ("65520.0f16", "inff16"),
        ("1e309f64", "inff64"),
        ("1.5u32", "float type"),
        ("7abc", "u8, i8"),
        ("1bool", "u8, i8"),
        ("5.", "0.5"),
        ("1_000", "u8, i8"),
        ("0x", "0xff"),
        ("0xfff32u", "u8, i8"),
        ("1.2.3", "0.5"),
        ("1e", "u8, i8"),
        ("1e+", "0.5"),
        ("-1e39", "-inf"),
    ],
)
def test_numbers_that_are_none_say_what_to_write(text: str, fix: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expression(text)
    assert fix in caught.value.fix
    assert caught.value.column == 1


def test_the_largest_float_and_the_least_are_read_by_their_rounding() -> None:
    assert read_number("65519.999f16") == n.Lit(0x7BFF, DType.F16)
    assert read_number("3.40282356779733661637539395458142568447e38") == n.Lit(0x7F7FFFFF, DType.F32)
    assert read_number("7e-46") == n.Lit(0, DType.F32)
    assert read_number("8e-46") == n.Lit(1, DType.F32)


@pytest.mark.parametrize(
    ("bits", "dtype", "text"),
    [
        (0x7F7FFFFF, DType.F32, "3.4028235e38"),
        (0x00000001, DType.F32, "1e-45"),
        (0x3DCCCCCD, DType.F32, "0.1"),
        (0x2E66, DType.F16, "0.1f16"),
        (0x7BFF, DType.F16, "65500.0f16"),
        (0x3DCD, DType.BF16, "0.1bf16"),
        (0x80000000, DType.F32, "-0.0"),
        (0xFF800000, DType.F32, "-inf"),
        (0x7E00, DType.F16, "nanf16"),
        (0x4B800000, DType.F32, "16777216.0"),
        (0x5A0E1BCA, DType.F32, "1e16"),
        (0x38D1B717, DType.F32, "0.0001"),
        (0x3727C5AC, DType.F32, "1e-5"),
        (1, DType.BOOL, "true"),
        (0xFF, DType.I8, "-1i8"),
        (7, DType.U32, "7"),
    ],
)
def test_constants_look_like_this(bits: int, dtype: DType, text: str) -> None:
    assert write_literal(bits, dtype) == text
    assert parse_expression(text) == n.Lit(bits, dtype)
