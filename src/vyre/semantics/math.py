"""What exactly do the functions that IEEE 754 leaves open compute?

Each is written here once, for f32 and f64 alike, as a function over symbols that becomes a tape of exact
operations (``tapes``): f16 and bf16 go through f32. No step is fused, nothing is looked up in memory and nothing
branches, so every machine that adds, multiplies, divides and takes square roots correctly gives the same bits.
The result is within 2 ULP of the true value; special values follow C. Where rounding would cost too much, a
value is kept as an unevaluated sum ``high + low``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf, nan

import msgspec

from vyre.errors import VyreError
from vyre.semantics.scalars import Meaning, require_operator
from vyre.semantics.tapes import Symbol, Tape, array_runner, scalar_runner, trace
from vyre.semantics.types import DType

Coefficients = tuple[float, ...]


class Rational(msgspec.Struct, frozen=True):
    """A quotient of polynomials, lowest power first; the denominator's highest coefficient is 1 and not listed."""

    numerator: Coefficients
    denominator: Coefficients = ()


class Format(msgspec.Struct, frozen=True):
    """What the definitions need to know of a float type. The coefficients are minimax fits; each fit is of the
    correction that is left when the leading terms of the series are taken out."""

    real: DType
    signed: DType
    unsigned: DType
    fraction: int
    exp_range: tuple[float, float]
    exp2_range: tuple[float, float]
    hyperbolic_limit: float
    tanh_limit: float
    ln2: tuple[float, float]
    log2_e: tuple[float, float]
    half_pi: tuple[float, float]
    exp: Coefficients
    log: Coefficients
    sin: Coefficients
    cos: Coefficients
    sinh: Coefficients
    tan: Rational
    tanh: Rational
    atan: Rational
    asin: Rational

    @property
    def bits(self) -> int:
        return self.real.bits

    @property
    def bias(self) -> int:
        return (1 << (self.bits - self.fraction - 2)) - 1

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)


# The first part of a pair has so few bits that its product with an exponent, or with half a fraction, is exact.
_SINGLE = Format(
    real=DType.F32,
    signed=DType.I32,
    unsigned=DType.U32,
    fraction=23,
    exp_range=(-104.0, 89.0),
    exp2_range=(-151.0, 129.0),
    hyperbolic_limit=89.5,
    tanh_limit=10.0,
    ln2=(0.69317626953125, -2.9088971e-05),
    log2_e=(1.4423828125, 0.0003122284),
    half_pi=(1.5707964, -4.371139e-08),
    exp=(0.5, 0.16666545, 0.04166686, 0.008366278, 0.001390502),
    log=(0.66666776, 0.39977527, 0.29872283),
    sin=(-0.16666655, 0.008332159, -0.00019515121),
    cos=(0.041666646, -0.0013887314, 2.4432971e-05),
    sinh=(0.16666667, 0.00833335, 0.0001983616, 2.8169516e-06),
    tan=Rational((20.871254, -0.93270713), (62.61376, -27.843628)),
    tanh=Rational((-0.8237623, -0.0038344876), (2.4712877,)),
    atan=Rational((-6.5650263, -5.6745663, -0.823358), (19.695084, 28.840614, 11.33494)),
    asin=Rational((0.16666752, 0.074952975, 0.045470387, 0.024179468, 0.04216638)),
)
_DOUBLE = Format(
    real=DType.F64,
    signed=DType.I64,
    unsigned=DType.U64,
    fraction=52,
    exp_range=(-746.0, 710.0),
    exp2_range=(-1076.0, 1025.0),
    hyperbolic_limit=710.6,
    tanh_limit=20.0,
    ln2=(0.6931471805601177, -1.7239444525614835e-13),
    log2_e=(1.4426950514316559, -1.0542692476429138e-08),
    half_pi=(1.5707963267948966, 6.123233995736766e-17),
    exp=(
        0.5000000000000011, 0.1666666666666641, 0.04166666666652973, 0.00833333333349498, 0.0013888888943759893,
        0.0001984126950576604, 2.480149294966484e-05, 2.7557586811282347e-06, 2.7630306247961583e-07,
        2.5000016377888305e-08,
    ),
    log=(
        0.6666666666666735, 0.39999999999412794, 0.2857142874288914, 0.22222198513701066, 0.18183567813839308,
        0.15313951636558423, 0.14797032299999788,
    ),
    sin=(
        -0.1666666666666663, 0.00833333333332209, -0.0001984126982956581, 2.755731361287454e-06,
        -2.5050746388873695e-08, 1.5896148229069764e-10,
    ),
    cos=(
        0.041666666666666595, -0.0013888888888873017, 2.480158728882596e-05, -2.7557314171662543e-07,
        2.087569977843973e-09, -1.1358480165151868e-11,
    ),
    sinh=(
        0.16666666666666669, 0.008333333333333148, 0.00019841269841431875, 2.7557319157070853e-06,
        2.505212313686714e-08, 1.6057259758569336e-10, 7.758749083953952e-13,
    ),
    tan=Rational(
        (-1301.83466733108, 83.74496936038817, -0.9564235992927314, 6.98951974236055e-05),
        (-3905.5040019932403, 1813.4365088784596, -95.92417878843632),
    ),
    tanh=Rational(
        (-1613.3544511196076, -99.22314713340727, -0.9643738363801332),
        (4840.063353358823, 2233.6947827437302, 112.74172977756281),
    ),
    atan=Rational(
        (
            -401.73002500714813, -899.8416158091459, -705.5360634697688, -230.02496798830518, -28.562905850811827,
            -0.9023175524857914,
        ),
        (
            1205.190075021451, 3422.6388924396642, 3653.681493742346, 1817.1685852448788, 422.3178034682043,
            39.87872189165539,
        ),
    ),
    asin=Rational(
        (2.1259445728961475, -4.168404138906927, 2.5887664575688234, -0.5188051731647981, 0.010387148022259658,
         0.00046313121281186766),
        (12.755667437376891, -30.750475180262175, 25.953615941580214, -8.880475667821578),
    ),
)  # fmt: skip

# The fraction bits of 2/pi.
_TWO_OVER_PI_BITS = 1152
_TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921c"
    "fe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d08",
    16,
)


def _polynomial(z: Symbol, coefficients: Coefficients) -> Symbol:
    total = z * coefficients[-1] + coefficients[-2]
    for coefficient in coefficients[-3::-1]:
        total = total * z + coefficient
    return total


def _rational(z: Symbol, fit: Rational) -> Symbol:
    numerator = _polynomial(z, fit.numerator)
    if not fit.denominator:
        return numerator
    denominator = z + fit.denominator[-1]
    for coefficient in fit.denominator[-2::-1]:
        denominator = denominator * z + coefficient
    return numerator / denominator


def _clamped(x: Symbol, low: float, high: float) -> Symbol:
    """``x`` within bounds; a NaN stays NaN."""
    return (x > high).select(high, (x < low).select(low, x))


def _power_of_two(exponent: Symbol, form: Format) -> Symbol:
    return ((exponent + form.bias) << form.fraction).bitcast(form.real)


def _times_power_of_two(x: Symbol, exponent: Symbol, form: Format) -> Symbol:
    """``x * 2**exponent`` where the power itself may not be representable."""
    half = exponent >> 1
    return x * _power_of_two(half, form) * _power_of_two(exponent - half, form)


def _odd(at_magnitude: Symbol, x: Symbol, form: Format) -> Symbol:
    """The value of an odd function at ``x``, from its value at ``|x|``."""
    return ((x.bitcast(form.unsigned) & form.sign_bit) ^ at_magnitude.bitcast(form.unsigned)).bitcast(form.real)


def _high_half(x: Symbol, form: Format) -> Symbol:
    """``x`` with half of its significant bits, so that products of two of these are exact."""
    kept = -(1 << ((form.fraction + 2) // 2)) % (1 << form.bits)
    return (x.bitcast(form.unsigned) & kept).bitcast(form.real)


def _rsqrt(x: Symbol, _form: Format) -> Symbol:
    return x.apply("sqrt").apply("recip")


def _reduced_exponent(x: Symbol, form: Format) -> tuple[Symbol, Symbol, Symbol]:
    """``n, high, low`` with e**x = 2**n * (1 + high + low) and |high| at most about log(2)/2."""
    n = (x * sum(form.log2_e)).apply("round")
    high = x - n * form.ln2[0]
    tail = n * form.ln2[1]
    r = high - tail
    return n.cast(form.signed), high, r * r * _polynomial(r, form.exp) - tail


def _exp(x: Symbol, form: Format) -> Symbol:
    n, high, low = _reduced_exponent(_clamped(x, *form.exp_range), form)
    return _times_power_of_two(1.0 + (high + low), n, form)


def _exp2(x: Symbol, form: Format) -> Symbol:
    x = _clamped(x, *form.exp2_range)
    n = x.apply("round")
    r = (x - n) * sum(form.ln2)
    return _times_power_of_two(1.0 + (r + r * r * _polynomial(r, form.exp)), n.cast(form.signed), form)


def _quarter_exponential(x: Symbol, form: Format) -> tuple[Symbol, Symbol]:
    """e**x / 4 as ``high + low``, for x from 0 to where the hyperbolic functions are infinite."""
    n, high, low = _reduced_exponent((x > form.hyperbolic_limit).select(form.hyperbolic_limit, x), form)
    scale = _power_of_two(n - 2, form)
    total = 1.0 + (high + low)
    return total * scale, ((1.0 - total) + high + low) * scale


def _cosh(x: Symbol, form: Format) -> Symbol:
    high, low = _quarter_exponential(abs(x), form)
    half = high + (low + 0.0625 / high)
    return half + half


def _sinh(x: Symbol, form: Format) -> Symbol:
    magnitude = abs(x)
    high, low = _quarter_exponential(magnitude, form)
    half = high + (low - 0.0625 / high)
    z = x * x
    near_zero = magnitude + magnitude * z * _polynomial(z, form.sinh)
    return _odd((magnitude < 1.0).select(near_zero, half + half), x, form)


def _tanh(x: Symbol, form: Format) -> Symbol:
    magnitude = abs(x)
    limited = (magnitude > form.tanh_limit).select(form.tanh_limit, magnitude)
    n, high, low = _reduced_exponent(limited + limited, form)
    squared_exponential = (1.0 + (high + low)) * _power_of_two(n, form)
    far = 1.0 - 2.0 / (squared_exponential + 1.0)
    z = x * x
    near_zero = magnitude + magnitude * z * _rational(z, form.tanh)
    return _odd((magnitude < 0.55).select(near_zero, far), x, form)


class _Logarithm(msgspec.Struct):
    """log(x) = exponent * log(2) + fraction - half_square + rest, for positive finite x."""

    exponent: Symbol
    fraction: Symbol
    half_square: Symbol
    rest: Symbol


def _split_logarithm(x: Symbol, form: Format) -> _Logarithm:
    shift = form.fraction + 2
    is_tiny = x < 2.0 ** (1 - form.bias)
    scaled = is_tiny.select(x * 2.0**shift, x)
    # The bits of sqrt(1/2), rounded down: mantissas run from there to sqrt(2).
    origin = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCC}[form.fraction]
    offset = scaled.bitcast(form.signed) - origin
    mantissa = ((offset & ((1 << form.fraction) - 1)) + origin).bitcast(form.real)
    exponent = (offset >> form.fraction) - is_tiny.select(offset.literal(shift), 0)
    fraction = mantissa - 1.0
    half_square = 0.5 * fraction * fraction
    s = fraction / (2.0 + fraction)
    z = s * s
    rest = s * (half_square + z * _polynomial(z, form.log))
    return _Logarithm(exponent.cast(form.real), fraction, half_square, rest)


def _logarithm_of_any(x: Symbol, of_positive: Symbol) -> Symbol:
    """The logarithm where ``of_positive`` is right for positive finite x."""
    at_zero = (x < 0.0).select(x.literal(nan), x - inf)
    return (x > 0.0).select((x < inf).select(of_positive, x), at_zero)


def _log(x: Symbol, form: Format) -> Symbol:
    parts = _split_logarithm(x, form)
    correction = parts.half_square - (parts.rest + parts.exponent * form.ln2[1])
    return _logarithm_of_any(x, parts.exponent * form.ln2[0] - (correction - parts.fraction))


def _log2(x: Symbol, form: Format) -> Symbol:
    parts = _split_logarithm(x, form)
    high = _high_half(parts.fraction - parts.half_square, form)
    low = (parts.fraction - high) - parts.half_square + parts.rest
    product = high * form.log2_e[0]
    tail = (low + high) * form.log2_e[1] + low * form.log2_e[0]
    total = parts.exponent + product
    return _logarithm_of_any(x, total + (tail + ((parts.exponent - total) + product)))


class _Angle(msgspec.Struct):
    """|x| = quadrant * pi/2 + high + low, with |high + low| at most about pi/4 (the quadrant modulo 4)."""

    quadrant: Symbol
    high: Symbol
    low: Symbol


def _window_of_two_over_pi(start: Symbol, form: Format) -> list[Symbol]:
    """Three words of bits of 2/pi, from the bit ``start`` places after the one of weight 2**bits."""
    bits = form.bits
    # The exponent of a finite value picks one of these many words to start at.
    starts = form.bias + 1 >> (bits.bit_length() - 1)
    count = starts + 3
    padded = _TWO_OVER_PI >> (_TWO_OVER_PI_BITS + bits + 1 - count * bits)
    words = [start.literal((padded >> (bits * (count - 1 - k))) & ((1 << bits) - 1)) for k in range(count)]
    step = starts // 2
    while step:
        skip = (start & (step * bits)).apply("ne", 0)
        words = [skip.select(words[k + step], words[k]) for k in range(step + 3)]
        step //= 2
    complement = start ^ (bits - 1)
    return [(words[k] << start) | ((words[k + 1] >> 1) >> complement) for k in range(3)]


def _reduced_angle(x: Symbol, form: Format) -> _Angle:
    """Exact reduction by the method of Payne and Hanek: only the bits of 2/pi that matter are multiplied."""
    word, bits = form.unsigned, form.bits
    pattern = x.bitcast(word) & (form.sign_bit - 1)
    exponent = pattern >> form.fraction
    # The magnitudes below 1 that need reduction at all are at least pi/4: their exponent is -1.
    start = exponent.apply("max", form.bias)
    mantissa = ((pattern << (bits - 1 - form.fraction)) | form.sign_bit) >> (start - exponent)
    first, second, third = _window_of_two_over_pi(start - form.bias, form)

    # The two words of |x| * 2/pi below weight 4; what follows them is less than any value's distance from a zero.
    middle = mantissa * second
    lower = mantissa.apply("mul_high", third) + middle
    carry = (lower < middle).cast(word)
    upper = mantissa.apply("mul_high", second) + mantissa * first + carry
    quadrant = (upper + (1 << (bits - 3))) >> (bits - 2)
    signed = upper - (quadrant << (bits - 2))
    flip = -(signed >> (bits - 1))
    upper, lower = signed ^ flip, lower ^ flip

    zeros = upper.apply("clz")
    normal = (upper << zeros) | ((lower >> 1) >> (zeros ^ (bits - 1)))
    quarter_pi = 0x6487ED5110B4611A >> (64 - bits)
    product = normal.apply("mul_high", quarter_pi).bitcast(form.signed)
    leading = product.cast(form.real)
    trailing = (product - leading.cast(form.signed)).cast(form.real)
    scale = (((form.bias + 4 - bits - zeros) << form.fraction) | (flip & form.sign_bit)).bitcast(form.real)

    magnitude = pattern.bitcast(form.real)
    is_reduced = magnitude < 0.7853981633974483
    return _Angle(
        is_reduced.select(quadrant.literal(0), quadrant),
        # Infinity less itself: the angle of an infinity is NaN.
        is_reduced.select(magnitude, leading * scale + (magnitude - magnitude)),
        is_reduced.select(0.0, trailing * scale),
    )


def _sine_or_cosine(angle: _Angle, odd_is_cosine: Symbol, sign: Symbol, form: Format) -> Symbol:
    """The sine of the reduced angle, or its cosine where ``odd_is_cosine``, with the sign bit of ``sign``."""
    high, low = angle.high, angle.low
    z = high * high
    half = 0.5 * z
    near_one = 1.0 - half
    sine = high + (high * z * _polynomial(z, form.sin) + low * near_one)
    cosine = near_one + (((1.0 - near_one) - half) + (z * z * _polynomial(z, form.cos) - high * low))
    chosen = odd_is_cosine.select(cosine, sine)
    return (chosen.bitcast(form.unsigned) ^ (sign & form.sign_bit)).bitcast(form.real)


def _sin(x: Symbol, form: Format) -> Symbol:
    angle = _reduced_angle(x, form)
    sign = (angle.quadrant << (form.bits - 2)) ^ x.bitcast(form.unsigned)
    return _sine_or_cosine(angle, (angle.quadrant & 1).apply("ne", 0), sign, form)


def _cos(x: Symbol, form: Format) -> Symbol:
    angle = _reduced_angle(x, form)
    sign = (angle.quadrant + 1) << (form.bits - 2)
    return _sine_or_cosine(angle, (angle.quadrant & 1).apply("eq", 0), sign, form)


def _tan(x: Symbol, form: Format) -> Symbol:
    angle = _reduced_angle(x, form)
    high, low = angle.high, angle.low
    z = high * high
    excess = high * z * _rational(z, form.tan)
    near = high + excess
    correction = excess + low * (1.0 + near * near)
    tangent = high + correction
    # -1/tangent: a short quotient times a short tangent is exact, so what they leave is known.
    inverse = -1.0 / tangent
    short = _high_half(tangent, form)
    rest = correction - (short - high)
    quotient = _high_half(inverse, form)
    negated_cotangent = quotient + inverse * ((1.0 + quotient * short) + quotient * rest)
    return _odd((angle.quadrant & 1).apply("eq", 0).select(tangent, negated_cotangent), x, form)


def _difference(base: tuple[Symbol, Symbol], value: Symbol, correction: Symbol) -> Symbol:
    """``base - (value + correction)``, where the base is a pair and the correction is small."""
    high, low = base
    difference = high - value
    return difference + (((high - difference) - value) + (low - correction))


def _asin(x: Symbol, form: Format) -> Symbol:
    # asin(x) = pi/2 - 2 asin(sqrt((1 - x)/2)) from 1/2 on.
    magnitude = abs(x)
    is_large = magnitude > 0.5
    z = is_large.select((1.0 - magnitude) * 0.5, x * x)
    value = is_large.select(z.apply("sqrt") * 2.0, -magnitude)
    high, low = (is_large.select(x.literal(part), 0.0) for part in form.half_pi)
    return _odd(_difference((high, low), value, value * z * _rational(z, form.asin)), x, form)


def _acos(x: Symbol, form: Format) -> Symbol:
    # acos(x) is pi/2 - asin(x) to 1/2, then 2 asin(sqrt((1 - x)/2)), and pi less that for a negative x.
    magnitude = abs(x)
    is_large = magnitude > 0.5
    z = is_large.select((1.0 - magnitude) * 0.5, x * x)
    is_positive = x > 0.0
    value = is_large.select(z.apply("sqrt") * is_positive.select(x.literal(-2.0), 2.0), x)
    high, low = (is_large.select(is_positive.select(x.literal(0.0), 2.0 * part), part) for part in form.half_pi)
    return _difference((high, low), value, value * z * _rational(z, form.asin))


def _atan(x: Symbol, form: Format) -> Symbol:
    # atan(x) = pi/2 - atan(1/x) from 1 on.
    magnitude = abs(x)
    is_large = magnitude > 1.0
    value = is_large.select(magnitude.apply("recip"), -magnitude)
    z = value * value
    high, low = (is_large.select(x.literal(part), 0.0) for part in form.half_pi)
    return _odd(_difference((high, low), value, value * z * _rational(z, form.atan)), x, form)


_DEFINITIONS: dict[str, Callable[[Symbol, Format], Symbol]] = {
    "rsqrt": _rsqrt,
    "exp": _exp,
    "exp2": _exp2,
    "log": _log,
    "log2": _log2,
    "sin": _sin,
    "cos": _cos,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "tanh": _tanh,
}


@cache
def tape(op: str, dtype: DType) -> Tape:
    """The definition of a math function on a float type."""
    require_operator(op, dtype)
    if op not in _DEFINITIONS:
        raise VyreError("no-tape", f"operator '{op}' is exact: it has no tape.", "use its meaning as it is.")
    define = _DEFINITIONS[op]
    match dtype:
        case DType.F64:
            return trace(lambda x: define(x, _DOUBLE), dtype)
        case DType.F32:
            return trace(lambda x: define(x, _SINGLE), dtype)
        case _:
            return trace(lambda x: define(x.cast(DType.F32), _SINGLE).cast(dtype), dtype)


def scalar_function(op: str, dtype: DType) -> Meaning:
    """A math function on one element."""
    return scalar_runner(tape(op, dtype))


def array_function(op: str, dtype: DType) -> Meaning:
    """A math function on value arrays."""
    return array_runner(tape(op, dtype))
