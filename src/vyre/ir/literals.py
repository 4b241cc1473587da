"""How are constants written? Numbers, strings and bytes, read and written exactly.

A decimal is rounded once, from its exact value to its type; a float is written with the fewest digits that read
back to the same bits of that type.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

from vyre.ir.nodes import Lit
from vyre.semantics.scalars import CANONICAL_NAN
from vyre.semantics.types import FLOATS, INTEGERS, DType, Kind

MAX_NUMBER_LENGTH: Final = 1_000

# Of each float type: the bits of its significand, and the exponent of its least subnormal.
_FORMATS: Final = {DType.F16: (11, -24), DType.BF16: (8, -133), DType.F32: (24, -149), DType.F64: (53, -1074)}

# Powers of ten between these bounds cover every digit a float type can tell apart.
_MOST_DIGITS: Final = 18
_FAR_DECIMAL, _FAR_BINARY = 400, 1_300

_DECIMAL = re.compile(r"(-?)(?!0[xX])([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?([A-Za-z_][A-Za-z0-9_]*)?")
_HEX_INTEGER = re.compile(r"(-?)0[xX]([0-9A-Fa-f]+)([G-Zg-z_][A-Za-z0-9_]*)?")
_HEX_FLOAT = re.compile(r"(-?)0[xX]([0-9A-Fa-f]+)(?:\.([0-9A-Fa-f]+))?[pP]([+-]?[0-9]+)([A-Za-z_][A-Za-z0-9_]*)?")
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*+"')
_ESCAPE = re.compile(r"\\(u\{([0-9A-Fa-f]{1,6})\}|[^\n])")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ODD_CHARACTER = re.compile(r'["\\]|[^ -~]')
_BYTES = re.compile(r'x"((?:[0-9A-Fa-f]{2})*+)"')

_ESCAPED: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_UNESCAPED: Final = {escaped[1]: plain for plain, escaped in _ESCAPED.items()}


class BadLiteral(Exception):
    """Text that looks like a constant and is none."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


def _clipped(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"


def _suffix(dtype: DType) -> str:
    return "" if dtype in (DType.U32, DType.F32) else dtype.label


def _infinity_bits(dtype: DType) -> int:
    precision, _ = _FORMATS[dtype]
    return ((1 << (dtype.bits - precision)) - 1) << (precision - 1)


def _word_literals() -> dict[str, Lit]:
    words = {"true": Lit(1, DType.BOOL), "false": Lit(0, DType.BOOL)}
    for dtype in FLOATS:
        for suffix in {_suffix(dtype), dtype.label}:
            words["inf" + suffix] = Lit(_infinity_bits(dtype), dtype)
            words["nan" + suffix] = Lit(CANONICAL_NAN[dtype], dtype)
    return words


# The constants that are words.
WORDS: Final = _word_literals()


def read_number(text: str) -> Lit:
    """The constant that a number, perhaps with a ``-`` before it, stands for."""
    if len(text) > MAX_NUMBER_LENGTH:
        raise BadLiteral(f"a number of {len(text):,} characters.", f"write at most {MAX_NUMBER_LENGTH:,} characters.")
    if text[0] == "-" and text[1:] in WORDS:
        return _negated_infinity(WORDS[text[1:]])
    if match := _HEX_FLOAT.fullmatch(text):
        sign, whole, fraction, exponent, suffix = match.groups()
        dtype = _dtype(suffix, DType.F32)
        digits = whole + (fraction or "")
        return _float(text, sign, int(digits, 16), int(exponent) - 4 * len(fraction or ""), 2, dtype)
    if match := _HEX_INTEGER.fullmatch(text):
        sign, whole, suffix = match.groups()
        return _integer(text, int(sign + whole, 16), _dtype(suffix, DType.U32))
    if match := _DECIMAL.fullmatch(text):
        sign, whole, fraction, exponent, suffix = match.groups()
        dtype = _dtype(suffix, DType.U32 if fraction is None and exponent is None else DType.F32)
        if dtype.is_float:
            digits = whole + (fraction or "")
            return _float(text, sign, int(digits), int(exponent or 0) - len(fraction or ""), 10, dtype)
        if fraction is not None or exponent is not None:
            raise BadLiteral(
                f"{_clipped(text)} has a fraction or an exponent, and {dtype} is an integer type.",
                "leave the suffix out, or give a float type.",
            )
        return _integer(text, int(sign + whole), dtype)
    raise BadLiteral(
        f"{_clipped(text)} is not a number.",
        "write one like 7, 7i32, 0xff, 0.5, 1e-3, 0.5f64 or 0x1.8p3 (digits on both sides of '.').",
    )


def _negated_infinity(word: Lit) -> Lit:
    return Lit(word.bits | 1 << (word.dtype.bits - 1), word.dtype)


def is_negatable_word(word: str) -> bool:
    """Whether ``-`` and the word are one constant: infinities have a sign, NaN and the bools have none."""
    return word in WORDS and word.startswith("inf")


def _dtype(suffix: str | None, default: DType) -> DType:
    if suffix is None:
        return default
    for dtype in INTEGERS + FLOATS:
        if dtype.label == suffix:
            return dtype
    raise BadLiteral(
        f"'{_clipped(suffix)}' after a number is not a type of numbers.",
        f"end it with one of {', '.join(d.label for d in INTEGERS + FLOATS)}, or with nothing.",
    )


def _integer(text: str, number: int, dtype: DType) -> Lit:
    if not dtype.is_integer:
        raise BadLiteral(f"{_clipped(text)} is an integer, and {dtype} is not.", "write it as a decimal, with '.'.")
    if not dtype.minimum <= number <= dtype.maximum:
        fitting = [d for d in INTEGERS if d.bits >= dtype.bits and d.minimum <= number <= d.maximum]
        wider = min(fitting, key=lambda d: (d.kind is not dtype.kind, d.bits), default=None)
        fix = f"write it as {number}{_suffix(wider)}." if wider else "no integer type holds it: make it smaller."
        raise BadLiteral(f"{_clipped(text)} does not fit {dtype} ({dtype.minimum} to {dtype.maximum}).", fix)
    return Lit(number & ((1 << dtype.bits) - 1), dtype)


def _float(text: str, sign: str, digits: int, exponent: int, base: int, dtype: DType) -> Lit:
    """The constant nearest to digits * base**exponent."""
    if not dtype.is_float:
        raise BadLiteral(
            f"{_clipped(text)} is a float, and {dtype} is not a float type.",
            "give it a float type, or write an integer.",
        )
    if base == 10:
        magnitude, far = len(str(digits)) + exponent, _FAR_DECIMAL
    else:
        magnitude, far = digits.bit_length() + exponent, _FAR_BINARY
    # Far outside every type's range the power itself would be the only cost: decide without it.
    if digits == 0 or magnitude < -far:
        bits = 0
    elif magnitude > far:
        bits = _infinity_bits(dtype)
    elif exponent >= 0:
        bits = _nearest_bits(digits * base**exponent, 1, dtype)
    else:
        bits = _nearest_bits(digits, base**-exponent, dtype)
    if bits == _infinity_bits(dtype):
        suffix = _suffix(dtype)
        fix = f"write {sign}inf{suffix}" + ("." if dtype is DType.F64 else ", or give it a wider type, such as f64.")
        raise BadLiteral(f"{_clipped(text)} is too large for {dtype}.", fix)
    return Lit(bits | (1 << (dtype.bits - 1) if sign else 0), dtype)


def _nearest_bits(numerator: int, denominator: int, dtype: DType) -> int:
    """The bits of a positive fraction rounded to nearest even, once; infinity's where it is too large."""
    precision, least = _FORMATS[dtype]
    exponent = max(numerator.bit_length() - denominator.bit_length() - precision, least)
    while True:
        scaled = denominator << exponent if exponent > 0 else denominator
        quotient, rest = divmod(numerator if exponent > 0 else numerator << -exponent, scaled)
        if quotient < 1 << precision:
            break
        exponent += 1
    if 2 * rest > scaled or (2 * rest == scaled and quotient & 1):
        quotient += 1
    # A significand of full length brings its leading bit along, which counts the exponent field up by one.
    return min(((exponent - least) << (precision - 1)) + quotient, _infinity_bits(dtype))


@lru_cache(maxsize=1 << 14)
def write_literal(bits: int, dtype: DType) -> str:
    """The text of a constant: the shortest that reads back to the same bits."""
    if dtype.kind is Kind.BOOL:
        return "true" if bits else "false"
    suffix = _suffix(dtype)
    if not dtype.is_float:
        return f"{bits - (1 << dtype.bits) if bits > dtype.maximum else bits}{suffix}"
    sign = "-" if bits >> (dtype.bits - 1) else ""
    magnitude = bits & ((1 << (dtype.bits - 1)) - 1)
    infinity = _infinity_bits(dtype)
    if magnitude > infinity:
        return "nan" + suffix
    if magnitude == infinity:
        return f"{sign}inf{suffix}"
    if magnitude == 0:
        return f"{sign}0.0{suffix}"
    return sign + _written(*_shortest(magnitude, dtype)) + suffix


def _shortest(bits: int, dtype: DType) -> tuple[str, int]:
    """Of a positive finite float: the fewest digits that read back to it, and the power of ten of the last one."""
    precision, least = _FORMATS[dtype]
    field, fraction = bits >> (precision - 1), bits & ((1 << (precision - 1)) - 1)
    significand = fraction | (1 << (precision - 1)) if field else fraction
    exponent = least + max(field - 1, 0)
    # In quarters of the last place, so that the ends of the interval that reads back are whole numbers too. Below a
    # power of two the neighbours lie twice as close.
    value, high = 4 * significand, 4 * significand + 2
    low = value - (1 if fraction == 0 and field > 1 else 2)
    closed = significand % 2 == 0
    up, down = (1 << max(exponent - 2, 0)), (1 << max(2 - exponent, 0))

    def within(power: int) -> int | None:
        """The multiple of 10**power that reads back, nearest to the value, in units of that power."""
        scale, unit = (up, down * 10**power) if power >= 0 else (up * 10**-power, down)
        below = value * scale // unit
        for candidate in sorted((below, below + 1), key=lambda c: (abs(c * unit - value * scale), c % 2)):
            room = min(candidate * unit - low * scale, high * scale - candidate * unit)
            if room > 0 or (closed and room == 0):
                return candidate
        return None

    too_high = math.floor(math.log10(significand) + exponent * math.log10(2)) + 3
    power = too_high - _MOST_DIGITS - 3
    best = within(power)
    while too_high - power > 1:
        middle = (power + too_high) // 2
        found = within(middle)
        if found is None:
            too_high = middle
        else:
            power, best = middle, found
    return str(best), power


def _written(digits: str, power: int) -> str:
    leading = len(digits) - 1 + power
    if not -5 < leading < 16:
        return f"{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}e{leading}"
    if leading < 0:
        return "0." + "0" * (-leading - 1) + digits
    digits = digits.ljust(leading + 1, "0")
    return f"{digits[: leading + 1]}.{digits[leading + 1 :] or '0'}"


def write_string(text: str) -> str:
    """A string in quotes; what cannot be seen is escaped."""
    return '"' + _ODD_CHARACTER.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    known = _ESCAPED.get(character)
    if known is not None:
        return known
    return character if character.isprintable() else f"\\u{{{ord(character):x}}}"


def read_string(token: str) -> str:
    """The string that a token in quotes stands for; half a character has no bytes, so it is in no string."""
    if not _STRING.fullmatch(token):
        raise BadLiteral(
            "the string does not end on its line.", "close it with '\"'; a line break inside is written \\n."
        )
    value = _ESCAPE.sub(_unescape, token[1:-1])
    if _SURROGATE.search(value):
        raise BadLiteral(
            "the string has half a character (a surrogate).", "write the whole character, or \\u{its number}."
        )
    return value


def _unescape(match: re.Match[str]) -> str:
    plain = _UNESCAPED.get(match[1])
    if plain is not None:
        return plain
    if match[2] is None or int(match[2], 16) > 0x10FFFF:
        raise BadLiteral(
            "the string has an escape that does not exist.",
            'the escapes are \\" \\\\ \\n \\t and \\u{hexadecimal, up to 10ffff}.',
        )
    return chr(int(match[2], 16))


def write_bytes(payload: bytes) -> str:
    return f'x"{payload.hex()}"'


def read_bytes(token: str) -> bytes:
    """The bytes that ``x"..."`` stands for."""
    match = _BYTES.fullmatch(token)
    if match is None:
        raise BadLiteral("the bytes are not pairs of hexadecimal digits in quotes.", 'write them like x"00ff".')
    return bytes.fromhex(match[1])
