"""The rewrite rules, in order of precedence: of the rules that match a row, the first applies.

Every rule holds for all values of all types it claims, NaN, infinities and signed zeros included; ``make prove``
proves it. Every rule lowers the cost of a row's expression, or keeps the cost and makes the expression more regular:
literals move to the right, added and subtracted literals become nonnegative, shift amounts become less than the width.
So every sequence of rewrites terminates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre.optimizer.arena import OPERATIONS
from vyre.optimizer.patterns import SWAPPED, Pairs, Rule, forms
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import ALL_TYPES, BOOLS, FLOATS, FUSED_TYPES, INTEGERS, NUMBERS, SIGNED, UNSIGNED, DType, Kind

_BITS: Final = INTEGERS + BOOLS
# For rules that take the solver too long on 64 bits.
TO_32_BITS: Final = tuple(dtype for dtype in INTEGERS if dtype.bits <= 32)
_UNSIGNED_TO_32: Final = tuple(dtype for dtype in UNSIGNED if dtype.bits <= 32)

# Costs of operations, to compare expressions.
COSTS: Final = (
    dict.fromkeys(OPERATIONS, 10)
    | dict.fromkeys(("neg", "not", "lnot", "cast"), 7)
    | dict.fromkeys(("and", "or", "xor", "shl", "shr", "rotl", "bitcast", "is_nan"), 8)
    | dict.fromkeys(("eq", "ne", "rotr", "abs"), 9)
    | dict.fromkeys(("le", "gt"), 11)
    | dict.fromkeys(("select", "min", "max", "abs_diff"), 12)
    | dict.fromkeys(("sat_add", "sat_sub"), 15)
    | dict.fromkeys(("mul", "fma"), 30)
    | dict.fromkeys(("sat_mul", "mul_high"), 40)
    | dict.fromkeys(("div", "mod", "sqrt", "recip"), 200)
    | dict.fromkeys(MATH_FUNCTIONS, 300)
)

_PRECISION: Final = {DType.F16: 11, DType.BF16: 8, DType.F32: 24, DType.F64: 53}


def _represents(source: DType, target: DType) -> bool:
    """Whether a type can represent every value of the source type."""
    if source is target or target.kind is Kind.BOOL:
        return False
    if target.is_float:
        if source.is_float:
            return source.bits < target.bits
        return source.bits - (source.kind is Kind.SIGNED) <= _PRECISION[target]
    return not source.is_float and target.minimum <= source.minimum and source.maximum <= target.maximum


def _pairs(first: str, second: str, condition: Callable[[DType, DType], bool]) -> tuple[Pairs, ...]:
    return (Pairs(first, second, frozenset((s, t) for s in DType for t in DType if condition(s, t))),)


def _as_wide(source: DType, target: DType) -> bool:
    return source is not target and source.is_integer and target.is_integer and source.bits <= target.bits


_HELD: Final = _pairs("S", "T", lambda s, t: _represents(s, t) and s.is_integer)
_AS_WIDE: Final = _pairs("S", "T", _as_wide)
_SAME_WIDTH: Final = _pairs("S", "T", lambda s, t: _as_wide(s, t) and s.bits == t.bits)
_NARROWER: Final = _pairs("S", "T", lambda s, t: s.is_integer and t.is_integer and s.bits > t.bits)
_FLOAT_AS_BITS: Final = _pairs("S", "U", lambda s, u: s.is_float and u.is_integer and s.bits == u.bits)
_RETURNS: Final = _pairs("S", "U", lambda s, u: _represents(s, u) or _as_wide(s, u))
_PASSES: Final = _pairs("S", "U", lambda s, u: _represents(s, u) and u.is_integer)
_PASSES_NARROW: Final = _pairs("T", "U", _as_wide) + _pairs("S", "U", lambda s, _: s.is_integer)


def _literal_right(name: str) -> Rule:
    operator = OPERATORS[name]
    pattern = f"c {operator.spelling} v" if operator.is_symbol else f"{name}(c, v)"
    swapped = OPERATORS[SWAPPED[name]]
    replacement = f"v {swapped.spelling} c" if operator.is_symbol else f"{name}(v, c)"
    return Rule(f"{name}_literal_right", "order", pattern, replacement, operator.types)


# Both literals are shift amounts less than the width.
_AMOUNTS: Final = "((c | d) & ~(WIDTH - 1)) == 0"
# All bits up to the highest of d: the bits of a sum that d selects depend on these bits of the operands.
_UP_TO_D: Final = "(ONES >> clz(d))"

# Operations that keep each bit of x for which this mask of y's known bits is set.
_KEEPS_BITS: Final = (
    ("and", "&", "y1"),
    ("or", "|", "y0"),
    ("xor", "^", "y0"),
    ("add", "+", "y0"),
    ("sub", "-", "y0"),
)
# The shift drops only zero bits of x.
_KEPT_BY_SHL: Final = "(~x0 & ~(ONES >> c)) == 0"
_KEPT_BY_SHR: Final = "(~x0 & ~(ONES << c)) == 0"

RULES: Final[tuple[Rule, ...]] = (
    *map(_literal_right, SWAPPED),
    # Identity operands.
    Rule("add_zero", "identities", "x + 0", "x", INTEGERS),
    Rule("add_negative_zero", "identities", "x + -0.0", "x", FLOATS),
    Rule("sub_zero", "identities", "x - 0", "x", NUMBERS),
    Rule("mul_one", "identities", "x * 1", "x", NUMBERS),
    Rule("div_one", "identities", "x / 1", "x", NUMBERS),
    Rule("div_zero", "identities", "x / 0", "x", INTEGERS),
    Rule("and_ones", "identities", "x & ONES", "x", _BITS),
    Rule("or_zero", "identities", "x | 0", "x", _BITS),
    Rule("xor_zero", "identities", "x ^ 0", "x", _BITS),
    Rule("shl_zero", "identities", "x << 0", "x", INTEGERS),
    Rule("shr_zero", "identities", "x >> 0", "x", INTEGERS),
    Rule("rotl_zero", "identities", "rotl(x, 0)", "x", INTEGERS),
    Rule("rotr_zero", "identities", "rotr(x, 0)", "x", INTEGERS),
    Rule("abs_diff_zero", "identities", "abs_diff(x, 0)", "x", UNSIGNED),
    Rule("abs_unsigned", "identities", "abs(x)", "x", UNSIGNED),
    # Operands that determine the result.
    Rule("mul_zero", "annihilators", "x * 0", "0", INTEGERS),
    Rule("and_zero", "annihilators", "x & 0", "0", _BITS),
    Rule("or_ones", "annihilators", "x | ONES", "ONES", _BITS),
    Rule("mod_one", "annihilators", "x % 1", "0", INTEGERS),
    Rule("mod_minus_one", "annihilators", "x % -1", "0", SIGNED),
    Rule("mod_zero", "annihilators", "x % 0", "0", INTEGERS),
    Rule("zero_div", "annihilators", "0 / x", "0", INTEGERS),
    Rule("zero_mod", "annihilators", "0 % x", "0", INTEGERS),
    Rule("zero_shl", "annihilators", "0 << x", "0", INTEGERS),
    Rule("zero_shr", "annihilators", "0 >> x", "0", INTEGERS),
    Rule("ones_shr", "annihilators", "ONES >> x", "ONES", SIGNED),
    Rule("zero_rotl", "annihilators", "rotl(0, x)", "0", INTEGERS),
    Rule("zero_rotr", "annihilators", "rotr(0, x)", "0", INTEGERS),
    Rule("ones_rotl", "annihilators", "rotl(ONES, x)", "ONES", INTEGERS),
    Rule("ones_rotr", "annihilators", "rotr(ONES, x)", "ONES", INTEGERS),
    Rule("mul_high_zero", "annihilators", "mul_high(x, 0)", "0", INTEGERS),
    Rule("mul_high_one", "annihilators", "mul_high(x, 1)", "0", UNSIGNED),
    Rule("add_nan", "annihilators", "x + nan", "nan", FLOATS),
    Rule("sub_nan", "annihilators", "x - nan", "nan", FLOATS),
    Rule("nan_sub", "annihilators", "nan - x", "nan", FLOATS),
    Rule("mul_nan", "annihilators", "x * nan", "nan", FLOATS),
    Rule("div_nan", "annihilators", "x / nan", "nan", FLOATS),
    Rule("nan_div", "annihilators", "nan / x", "nan", FLOATS),
    # The same operand twice.
    Rule("and_self", "idempotence", "x & x", "x", _BITS),
    Rule("or_self", "idempotence", "x | x", "x", _BITS),
    Rule("min_self", "idempotence", "min(x, x)", "x", NUMBERS),
    Rule("max_self", "idempotence", "max(x, x)", "x", NUMBERS),
    Rule("and_and_self", "idempotence", "x & (x & y)", "x & y", _BITS),
    Rule("or_or_self", "idempotence", "x | (x | y)", "x | y", _BITS),
    Rule("min_min_self", "idempotence", "min(x, min(x, y))", "min(x, y)", INTEGERS),
    Rule("max_max_self", "idempotence", "max(x, max(x, y))", "max(x, y)", INTEGERS),
    Rule("and_or_self", "idempotence", "x & (x | y)", "x", _BITS),
    Rule("or_and_self", "idempotence", "x | (x & y)", "x", _BITS),
    Rule("min_max_self", "idempotence", "min(x, max(x, y))", "x", INTEGERS),
    Rule("max_min_self", "idempotence", "max(x, min(x, y))", "x", INTEGERS),
    Rule("abs_abs", "idempotence", "abs(abs(x))", "abs(x)", NUMBERS),
    Rule("sign_sign", "idempotence", "sign(sign(x))", "sign(x)", NUMBERS),
    *(
        Rule(f"{outer}_{inner}", "idempotence", f"{outer}({inner}(x))", f"{inner}(x)", FLOATS)
        for outer in ("floor", "ceil", "round", "trunc")
        for inner in ("floor", "ceil", "round", "trunc")
    ),
    # A value and its opposite.
    Rule("sub_self", "cancellation", "x - x", "0", INTEGERS),
    Rule("xor_self", "cancellation", "x ^ x", "0", _BITS),
    Rule("mod_self", "cancellation", "x % x", "0", INTEGERS),
    Rule("abs_diff_self", "cancellation", "abs_diff(x, x)", "0", INTEGERS),
    Rule("sat_sub_self", "cancellation", "sat_sub(x, x)", "0", INTEGERS),
    Rule("add_then_sub", "cancellation", "(x + y) - y", "x", INTEGERS),
    Rule("sub_then_add", "cancellation", "(x - y) + y", "x", INTEGERS),
    Rule("sub_sub_self", "cancellation", "x - (x - y)", "y", INTEGERS),
    Rule("xor_xor", "cancellation", "(x ^ y) ^ y", "x", _BITS),
    Rule("sub_then_sub_self", "cancellation", "(x - y) - x", "-y", INTEGERS),
    Rule("sub_sum", "cancellation", "x - (x + y)", "-y", INTEGERS),
    Rule("difference_of_sums", "cancellation", "(x + z) - (y + z)", "x - y", INTEGERS),
    Rule("difference_of_differences", "cancellation", "(x - z) - (y - z)", "x - y", INTEGERS),
    Rule("difference_of_remainders", "cancellation", "(x - y) - (x - z)", "z - y", INTEGERS),
    Rule("sum_of_differences", "cancellation", "(x - y) + (y - z)", "x - z", INTEGERS),
    Rule("and_not_self", "cancellation", "x & ~x", "0", INTEGERS),
    Rule("or_not_self", "cancellation", "x | ~x", "ONES", INTEGERS),
    Rule("xor_not_self", "cancellation", "x ^ ~x", "ONES", INTEGERS),
    Rule("add_not_self", "cancellation", "x + ~x", "ONES", INTEGERS),
    Rule("add_neg_self", "cancellation", "x + -x", "0", INTEGERS),
    Rule("reverse_reverse", "cancellation", "reverse_bits(reverse_bits(x))", "x", INTEGERS),
    Rule("rotl_rotr", "cancellation", "rotl(rotr(x, y), y)", "x", INTEGERS),
    Rule("rotr_rotl", "cancellation", "rotr(rotl(x, y), y)", "x", INTEGERS),
    # Negations.
    Rule("neg_neg", "negation", "-(-x)", "x", NUMBERS),
    Rule("not_not", "negation", "~(~x)", "x", INTEGERS),
    Rule("lnot_lnot", "negation", "!(!p)", "p", BOOLS),
    Rule("not_neg", "negation", "~(-x)", "x - 1", INTEGERS),
    Rule("neg_not", "negation", "-(~x)", "x + 1", INTEGERS),
    Rule("neg_sub", "negation", "-(x - y)", "y - x", INTEGERS),
    Rule("zero_sub", "negation", "0 - x", "-x", INTEGERS),
    Rule("negative_zero_sub", "negation", "-0.0 - x", "-x", FLOATS),
    Rule("ones_sub", "negation", "ONES - x", "~x", INTEGERS),
    Rule("xor_ones", "negation", "x ^ ONES", "~x", INTEGERS),
    Rule("mul_minus_one", "negation", "x * -1", "-x", NUMBERS),
    Rule("div_minus_one", "negation", "x / -1", "-x", SIGNED + FLOATS),
    Rule("add_neg", "negation", "x + -y", "x - y", INTEGERS + FUSED_TYPES),
    Rule("sub_neg", "negation", "x - -y", "x + y", INTEGERS + FUSED_TYPES),
    Rule("neg_sub_one", "negation", "-x - 1", "~x", INTEGERS),
    Rule("neg_sub_literal", "negation", "-x - c", "(-c) - x", INTEGERS),
    Rule("not_sub_literal", "negation", "~x - c", "(~c) - x", INTEGERS),
    Rule("neg_of_add", "negation", "-(x + c)", "(-c) - x", INTEGERS),
    Rule("neg_of_mul", "negation", "-(x * c)", "x * (-c)", INTEGERS),
    Rule("not_add_one", "negation", "~x + 1", "-x", INTEGERS),
    Rule("not_add", "negation", "~x + c", "(c - 1) - x", INTEGERS),
    Rule("sub_not", "negation", "c - ~x", "x + (c + 1)", INTEGERS),
    Rule("neg_mul_neg", "negation", "(-x) * (-y)", "x * y", INTEGERS),
    Rule("neg_mul", "negation", "(-x) * c", "x * (-c)", INTEGERS),
    Rule("not_xor_not", "negation", "(~x) ^ (~y)", "x ^ y", INTEGERS),
    Rule("not_xor", "negation", "(~x) ^ c", "x ^ (~c)", INTEGERS),
    Rule("not_of_xor", "negation", "~(x ^ c)", "x ^ (~c)", INTEGERS),
    Rule("abs_neg", "negation", "abs(-x)", "abs(x)", SIGNED + FLOATS),
    Rule("lnot_eq", "negation", "!(x == y)", "x != y", ALL_TYPES),
    Rule("lnot_ne", "negation", "!(x != y)", "x == y", ALL_TYPES),
    Rule("lnot_lt", "negation", "!(x < y)", "x >= y", INTEGERS),
    Rule("lnot_le", "negation", "!(x <= y)", "x > y", INTEGERS),
    Rule("not_lt_not", "negation", "(~x) < (~y)", "x > y", INTEGERS),
    Rule("not_le_not", "negation", "(~x) <= (~y)", "x >= y", INTEGERS),
    Rule("neg_lt_neg", "negation", "-x < -y", "x > y", FLOATS),
    Rule("neg_le_neg", "negation", "-x <= -y", "x >= y", FLOATS),
    *(
        Rule(f"{test}_{inner}", "negation", f"{test}({inner.replace('neg', '-')}(x))", f"{test}(x)", FLOATS)
        for test in ("is_nan", "is_inf", "is_finite")
        for inner in ("neg", "abs")
    ),
    # Booleans.
    Rule("and_lnot_self", "logic", "p & !p", "false", BOOLS),
    Rule("or_lnot_self", "logic", "p | !p", "true", BOOLS),
    Rule("xor_lnot_self", "logic", "p ^ !p", "true", BOOLS),
    Rule("xor_true", "logic", "p ^ true", "!p", BOOLS),
    Rule("eq_true", "logic", "p == true", "p", BOOLS),
    Rule("eq_false", "logic", "p == false", "!p", BOOLS),
    Rule("ne_true", "logic", "p != true", "!p", BOOLS),
    Rule("ne_false", "logic", "p != false", "p", BOOLS),
    Rule("lnot_xor", "logic", "!(p ^ q)", "p == q", BOOLS),
    Rule("xor_lnots", "logic", "!p ^ !q", "p ^ q", BOOLS),
    Rule("xor_lnot", "logic", "!p ^ q", "p == q", BOOLS),
    Rule("eq_lnots", "logic", "!p == !q", "p == q", BOOLS),
    Rule("eq_lnot", "logic", "!p == q", "p ^ q", BOOLS),
    Rule("ne_lnot", "logic", "!p != q", "p == q", BOOLS),
    Rule("ne_is_xor", "logic", "p != q", "p ^ q", BOOLS),
    Rule("lt_or_eq", "logic", "(x < y) | (x == y)", "x <= y", NUMBERS),
    Rule("le_and_ne", "logic", "(x <= y) & (x != y)", "x < y", NUMBERS),
    Rule("le_and_ge", "logic", "(x <= y) & (x >= y)", "x == y", NUMBERS),
    Rule("lt_or_gt", "logic", "(x < y) | (x > y)", "x != y", INTEGERS),
    Rule("lt_and_gt", "logic", "(x < y) & (x > y)", "false", NUMBERS),
    Rule("lt_and_eq", "logic", "(x < y) & (x == y)", "false", NUMBERS),
    Rule("eq_and_ne", "logic", "(x == y) & (x != y)", "false", ALL_TYPES),
    Rule("eq_or_ne", "logic", "(x == y) | (x != y)", "true", ALL_TYPES),
    Rule("le_or_ge", "logic", "(x <= y) | (x >= y)", "true", INTEGERS),
    Rule("lt_and_ge", "logic", "(x < y) & (x >= y)", "false", NUMBERS),
    Rule("lt_or_ge", "logic", "(x < y) | (x >= y)", "true", INTEGERS),
    # Comparisons.
    Rule("eq_self", "comparisons", "x == x", "true", _BITS),
    Rule("ne_self", "comparisons", "x != x", "false", _BITS),
    Rule("ne_self_float", "comparisons", "x != x", "is_nan(x)", FLOATS),
    Rule("lt_self", "comparisons", "x < x", "false", NUMBERS),
    Rule("le_self", "comparisons", "x <= x", "true", INTEGERS),
    Rule("lt_least", "comparisons", "x < MIN", "false", INTEGERS),
    Rule("ge_least", "comparisons", "x >= MIN", "true", INTEGERS),
    Rule("gt_greatest", "comparisons", "x > MAX", "false", INTEGERS),
    Rule("le_greatest", "comparisons", "x <= MAX", "true", INTEGERS),
    Rule("lt_greatest", "comparisons", "x < MAX", "x != MAX", INTEGERS),
    Rule("ge_greatest", "comparisons", "x >= MAX", "x == MAX", INTEGERS),
    Rule("le_literal", "comparisons", "x <= c", "x < (c + 1)", INTEGERS, "c != MAX"),
    Rule("gt_literal", "comparisons", "x > c", "x >= (c + 1)", INTEGERS, "c != MAX"),
    Rule("lt_literal_is_eq", "comparisons", "x < c", "x == MIN", INTEGERS, "c == MIN + 1"),
    Rule("ge_literal_is_ne", "comparisons", "x >= c", "x != MIN", INTEGERS, "c == MIN + 1"),
    *(
        Rule(
            f"{name}_nan",
            "comparisons",
            f"x {OPERATORS[name].spelling} nan",
            "true" if name == "ne" else "false",
            FLOATS,
        )
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ),
    Rule("gt_infinity", "comparisons", "x > inf", "false", FLOATS),
    Rule("lt_minus_infinity", "comparisons", "x < -inf", "false", FLOATS),
    *(
        Rule(f"{name}_{which}", "comparisons", pattern.replace("==", sign), replacement.replace("==", sign), types)
        for name, sign in (("eq", "=="), ("ne", "!="))
        for which, pattern, replacement, types in (
            ("add", "(x + c) == d", "x == (d - c)", INTEGERS),
            ("sub", "(x - c) == d", "x == (d + c)", INTEGERS),
            ("sub_from", "(c - x) == d", "x == (c - d)", INTEGERS),
            ("xor", "(x ^ c) == d", "x == (d ^ c)", INTEGERS),
            ("neg", "-x == c", "x == (-c)", INTEGERS),
            ("not", "~x == c", "x == (~c)", INTEGERS),
            ("rotl", "rotl(x, c) == d", "x == rotr(d, c)", INTEGERS),
            ("add_self", "(x + y) == x", "y == 0", INTEGERS),
            ("xor_self", "(x ^ y) == x", "y == 0", INTEGERS),
            ("difference", "(x - y) == 0", "x == y", INTEGERS),
            ("exclusive", "(x ^ y) == 0", "x == y", INTEGERS),
            ("sums", "(x + z) == (y + z)", "x == y", INTEGERS),
            ("exclusives", "(x ^ z) == (y ^ z)", "x == y", INTEGERS),
            ("negs", "-x == -y", "x == y", NUMBERS),
            ("nots", "~x == ~y", "x == y", INTEGERS),
            ("abs_zero", "abs(x) == 0", "x == 0", NUMBERS),
            ("sign_zero", "sign(x) == 0", "x == 0", NUMBERS),
            ("popcount_zero", "popcount(x) == 0", "x == 0", INTEGERS),
            ("clz_width", "clz(x) == WIDTH", "x == 0", INTEGERS),
            ("ctz_width", "ctz(x) == WIDTH", "x == 0", INTEGERS),
        )
    ),
    Rule("shr_is_zero", "comparisons", "(x >> c) == 0", "x < (1 << c)", UNSIGNED, "c < WIDTH"),
    Rule("shr_is_not_zero", "comparisons", "(x >> c) != 0", "x >= (1 << c)", UNSIGNED, "c < WIDTH"),
    Rule("min_le", "comparisons", "min(x, y) <= x", "true", INTEGERS),
    Rule("min_gt", "comparisons", "min(x, y) > x", "false", INTEGERS),
    Rule("max_ge", "comparisons", "max(x, y) >= x", "true", INTEGERS),
    Rule("max_lt", "comparisons", "max(x, y) < x", "false", INTEGERS),
    # Selections.
    Rule("select_same", "select", "select(p, x, x)", "x", ALL_TYPES),
    Rule("select_true", "select", "select(true, x, y)", "x", ALL_TYPES),
    Rule("select_false", "select", "select(false, x, y)", "y", ALL_TYPES),
    Rule("select_lnot", "select", "select(!p, x, y)", "select(p, y, x)", ALL_TYPES),
    Rule("select_bool", "select", "select(p, true, false)", "p", BOOLS),
    Rule("select_lnot_bool", "select", "select(p, false, true)", "!p", BOOLS),
    Rule("select_or", "select", "select(p, true, q)", "p | q", BOOLS),
    Rule("select_and", "select", "select(p, q, false)", "p & q", BOOLS),
    Rule("select_self_or", "select", "select(p, p, q)", "p | q", BOOLS),
    Rule("select_self_and", "select", "select(p, q, p)", "p & q", BOOLS),
    Rule("select_one", "select", "select(p, 1, 0)", "T(p)", NUMBERS),
    Rule("select_select_true", "select", "select(p, select(p, x, y), z)", "select(p, x, z)", ALL_TYPES),
    Rule("select_select_false", "select", "select(p, x, select(p, y, z))", "select(p, x, z)", ALL_TYPES),
    Rule("select_eq", "select", "select(x == y, x, y)", "y", _BITS),
    Rule("select_ne", "select", "select(x != y, x, y)", "x", _BITS),
    Rule("select_lt", "select", "select(x < y, x, y)", "min(x, y)", INTEGERS),
    Rule("select_le", "select", "select(x <= y, x, y)", "min(x, y)", INTEGERS),
    Rule("select_gt", "select", "select(x > y, x, y)", "max(x, y)", INTEGERS),
    Rule("select_ge", "select", "select(x >= y, x, y)", "max(x, y)", INTEGERS),
    Rule("select_lt_zero", "select", "select(x < 0, -x, x)", "abs(x)", SIGNED),
    Rule("select_ge_zero", "select", "select(x >= 0, x, -x)", "abs(x)", SIGNED),
    # Conversions.
    Rule("bitcast_same", "casts", "bitcast(S, s)", "s", ALL_TYPES),
    Rule("bitcast_integer", "casts", "bitcast(T, s)", "T(s)", INTEGERS, pairs=_SAME_WIDTH),
    Rule("bitcast_back", "casts", "bitcast(S, bitcast(U, s))", "s", ALL_TYPES, pairs=_FLOAT_AS_BITS),
    Rule("cast_back", "casts", "S(U(s))", "s", ALL_TYPES, pairs=_RETURNS),
    Rule("cast_held", "casts", "T(U(s))", "T(s)", ALL_TYPES, pairs=_PASSES),
    Rule("cast_narrow", "casts", "T(U(s))", "T(s)", INTEGERS, pairs=_PASSES_NARROW),
    Rule("cast_bool_ne_zero", "casts", "T(p) != 0", "p", NUMBERS),
    Rule("cast_bool_eq_zero", "casts", "T(p) == 0", "!p", NUMBERS),
    Rule("cast_bool_eq_one", "casts", "T(p) == 1", "p", NUMBERS),
    Rule("cast_bool_ne_one", "casts", "T(p) != 1", "!p", NUMBERS),
    Rule("cast_eq_zero", "casts", "T(s) == 0", "s == 0", INTEGERS, pairs=_AS_WIDE),
    Rule("cast_ne_zero", "casts", "T(s) != 0", "s != 0", INTEGERS, pairs=_AS_WIDE),
    Rule("casts_eq", "casts", "T(s) == T(t)", "s == t", INTEGERS, pairs=_AS_WIDE),
    Rule("casts_ne", "casts", "T(s) != T(t)", "s != t", INTEGERS, pairs=_AS_WIDE),
    Rule("casts_lt", "casts", "T(s) < T(t)", "s < t", INTEGERS, pairs=_HELD),
    Rule("casts_le", "casts", "T(s) <= T(t)", "s <= t", INTEGERS, pairs=_HELD),
    Rule("cast_masked", "casts", "T(s & k)", "T(s)", INTEGERS, "T(k) == ONES", _NARROWER),
    # Shifts.
    *(
        Rule(f"{name}_amount", "shifts", pattern, replacement, INTEGERS, "(c & (WIDTH - 1)) != c")
        for name, pattern, replacement in (
            ("shl", "x << c", "x << (c & (WIDTH - 1))"),
            ("shr", "x >> c", "x >> (c & (WIDTH - 1))"),
            ("rotl", "rotl(x, c)", "rotl(x, c & (WIDTH - 1))"),
        )
    ),
    Rule("rotr_literal", "shifts", "rotr(x, c)", "rotl(x, -c & (WIDTH - 1))", INTEGERS),
    Rule("rotl_rotl", "shifts", "rotl(rotl(x, c), d)", "rotl(x, (c + d) & (WIDTH - 1))", INTEGERS),
    Rule("shl_shl", "shifts", "(x << c) << d", "x << (c + d)", INTEGERS, f"{_AMOUNTS} & c + d < WIDTH"),
    Rule("shr_shr", "shifts", "(x >> c) >> d", "x >> (c + d)", INTEGERS, f"{_AMOUNTS} & c + d < WIDTH"),
    Rule("shr_shr_sign", "shifts", "(x >> c) >> d", "x >> (WIDTH - 1)", SIGNED, f"{_AMOUNTS} & c + d >= WIDTH"),
    Rule("shl_then_shr", "shifts", "(x << c) >> c", "x & (ONES >> c)", UNSIGNED),
    Rule("shr_then_shl", "shifts", "(x >> c) << c", "x & (ONES << c)", INTEGERS),
    Rule("shl_or_shr", "shifts", "(x << c) | (x >> d)", "rotl(x, c)", UNSIGNED, f"{_AMOUNTS} & c + d == WIDTH"),
    # Operands whose effect on x the shift drops.
    *(
        Rule(
            f"{outer}_of_{name}",
            "shifts",
            f"(x {sign} y) {shift} c",
            f"x {shift} c",
            INTEGERS,
            f"(~{mask} {shift} c) == 0",
        )
        for outer, shift, inner in (("shl", "<<", "&|^+-"), ("shr", ">>", "&|^"))
        for name, sign, mask in _KEEPS_BITS
        if sign in inner
    ),
    Rule(
        "shl_shr_less",
        "shifts",
        "(x << c) >> d",
        "x << (c - d)",
        _UNSIGNED_TO_32,
        f"{_AMOUNTS} & c >= d & {_KEPT_BY_SHL}",
    ),
    Rule(
        "shl_shr_more",
        "shifts",
        "(x << c) >> d",
        "x >> (d - c)",
        _UNSIGNED_TO_32,
        f"{_AMOUNTS} & c < d & {_KEPT_BY_SHL}",
    ),
    Rule(
        "shr_shl_less", "shifts", "(x >> c) << d", "x >> (c - d)", TO_32_BITS, f"{_AMOUNTS} & c >= d & {_KEPT_BY_SHR}"
    ),
    Rule("shr_shl_more", "shifts", "(x >> c) << d", "x << (d - c)", TO_32_BITS, f"{_AMOUNTS} & c < d & {_KEPT_BY_SHR}"),
    # Masks.
    Rule("and_and", "masks", "(x & c) & d", "x & (c & d)", INTEGERS),
    Rule("or_or", "masks", "(x | c) | d", "x | (c | d)", INTEGERS),
    Rule("xor_xor_literal", "masks", "(x ^ c) ^ d", "x ^ (c ^ d)", INTEGERS),
    *(
        Rule(
            f"{outer}_of_{name}",
            "masks",
            f"(x {sign} y) {mark} z",
            f"x {mark} z",
            INTEGERS,
            f"({mask} | {decided}) == ONES",
        )
        for outer, mark, decided in (("and", "&", "z0"), ("or", "|", "z1"))
        for name, sign, mask in _KEEPS_BITS[:3]
    ),
    Rule("and_of_add", "masks", "(x + y) & d", "x & d", UNSIGNED, f"(~y0 & {_UP_TO_D}) == 0 & d != 0"),
    Rule("and_of_sub", "masks", "(x - y) & d", "x & d", UNSIGNED, f"(~y0 & {_UP_TO_D}) == 0 & d != 0"),
    Rule("or_xor_literal", "masks", "(x | c) ^ c", "x & (~c)", INTEGERS),
    Rule("and_or_xor", "masks", "(x & y) | (x ^ y)", "x | y", _BITS),
    Rule("and_xor_xor", "masks", "(x & y) ^ (x ^ y)", "x | y", _BITS),
    Rule("and_xor_or", "masks", "(x & y) ^ (x | y)", "x ^ y", _BITS),
    Rule("and_add_or", "masks", "(x & y) + (x | y)", "x + y", INTEGERS),
    Rule("and_add_xor", "masks", "(x & y) + (x ^ y)", "x | y", INTEGERS),
    Rule("or_sub_and", "masks", "(x | y) - (x & y)", "x ^ y", INTEGERS),
    Rule("or_sub_xor", "masks", "(x | y) - (x ^ y)", "x & y", INTEGERS),
    Rule("add_sub_or", "masks", "(x + y) - (x | y)", "x & y", INTEGERS),
    Rule("add_sub_and", "masks", "(x + y) - (x & y)", "x | y", INTEGERS),
    Rule("xor_or_self", "masks", "(x ^ y) | x", "x | y", _BITS),
    # Minimum and maximum.
    Rule("min_greatest", "minmax", "min(x, MAX)", "x", INTEGERS),
    Rule("max_least", "minmax", "max(x, MIN)", "x", INTEGERS),
    Rule("min_least", "minmax", "min(x, MIN)", "MIN", INTEGERS),
    Rule("max_greatest", "minmax", "max(x, MAX)", "MAX", INTEGERS),
    Rule("min_nan", "minmax", "min(x, nan)", "x", FLOATS),
    Rule("max_nan", "minmax", "max(x, nan)", "x", FLOATS),
    Rule("min_minus_infinity", "minmax", "min(x, -inf)", "-inf", FLOATS),
    Rule("max_infinity", "minmax", "max(x, inf)", "inf", FLOATS),
    Rule("min_min", "minmax", "min(min(x, c), d)", "min(x, min(c, d))", INTEGERS),
    Rule("max_max", "minmax", "max(max(x, c), d)", "max(x, max(c, d))", INTEGERS),
    Rule("max_min_bound", "minmax", "min(max(x, c), d)", "d", INTEGERS, "d <= c"),
    Rule("min_max_bound", "minmax", "max(min(x, c), d)", "d", INTEGERS, "d >= c"),
    Rule("min_add_max", "minmax", "min(x, y) + max(x, y)", "x + y", INTEGERS),
    Rule("max_sub_min", "minmax", "max(x, y) - min(x, y)", "abs_diff(x, y)", UNSIGNED),
    Rule("min_of_min_max", "minmax", "min(min(x, y), max(x, y))", "min(x, y)", INTEGERS),
    Rule("max_of_min_max", "minmax", "max(min(x, y), max(x, y))", "max(x, y)", INTEGERS),
    # Saturating arithmetic.
    Rule("sat_add_zero", "saturating", "sat_add(x, 0)", "x", INTEGERS),
    Rule("sat_sub_zero", "saturating", "sat_sub(x, 0)", "x", INTEGERS),
    Rule("sat_mul_one", "saturating", "sat_mul(x, 1)", "x", INTEGERS),
    Rule("sat_mul_zero", "saturating", "sat_mul(x, 0)", "0", INTEGERS),
    Rule("sat_add_greatest", "saturating", "sat_add(x, MAX)", "MAX", UNSIGNED),
    Rule("sat_sub_greatest", "saturating", "sat_sub(x, MAX)", "0", UNSIGNED),
    Rule("zero_sat_sub", "saturating", "sat_sub(0, x)", "0", UNSIGNED),
    Rule("sat_add_sat_add", "saturating", "sat_add(sat_add(x, c), d)", "sat_add(x, sat_add(c, d))", UNSIGNED),
    Rule("sat_sub_sat_sub", "saturating", "sat_sub(sat_sub(x, c), d)", "sat_sub(x, sat_add(c, d))", UNSIGNED[:3]),
    Rule("sat_sub_is_zero", "saturating", "sat_sub(x, y) == 0", "x <= y", UNSIGNED),
    Rule("sat_sub_is_not_zero", "saturating", "sat_sub(x, y) != 0", "x > y", UNSIGNED),
    Rule("sub_sat_sub", "saturating", "x - sat_sub(x, y)", "min(x, y)", UNSIGNED),
    Rule("sat_sub_add", "saturating", "sat_sub(x, y) + y", "max(x, y)", UNSIGNED),
    # Cheaper operations.
    Rule("mul_power_of_two", "strength", "x * c", "x << ctz(c)", INTEGERS, "popcount(c) == 1"),
    Rule("div_power_of_two", "strength", "x / c", "x >> ctz(c)", UNSIGNED, "popcount(c) == 1"),
    Rule("mod_power_of_two", "strength", "x % c", "x & (c - 1)", UNSIGNED, "popcount(c) == 1"),
    Rule(
        "mul_high_power_of_two",
        "strength",
        "mul_high(x, c)",
        "x >> (WIDTH - ctz(c))",
        UNSIGNED,
        "popcount(c) == 1 & c != 1",
    ),
    Rule("mul_high_one_signed", "strength", "mul_high(x, 1)", "x >> (WIDTH - 1)", SIGNED),
    Rule("add_self", "strength", "x + x", "x << 1", INTEGERS),
    Rule("mul_add_self", "strength", "(x * c) + x", "x * (c + 1)", INTEGERS),
    Rule("mul_sub_self", "strength", "(x * c) - x", "x * (c - 1)", INTEGERS),
    Rule("mul_add_mul", "strength", "(x * c) + (x * d)", "x * (c + d)", INTEGERS),
    Rule("mul_sub_mul", "strength", "(x * c) - (x * d)", "x * (c - d)", INTEGERS),
    # One literal out of two.
    Rule("add_add", "reassociation", "(x + c) + d", "x + (c + d)", INTEGERS),
    Rule("add_sub", "reassociation", "(x + c) - d", "x + (c - d)", INTEGERS),
    Rule("sub_add", "reassociation", "(x - c) + d", "x + (d - c)", INTEGERS),
    Rule("sub_sub", "reassociation", "(x - c) - d", "x - (c + d)", INTEGERS),
    Rule("from_add", "reassociation", "(c - x) + d", "(c + d) - x", INTEGERS),
    Rule("from_sub", "reassociation", "(c - x) - d", "(c - d) - x", INTEGERS),
    Rule("from_of_add", "reassociation", "c - (x + d)", "(c - d) - x", INTEGERS),
    Rule("from_of_sub", "reassociation", "c - (x - d)", "(c + d) - x", INTEGERS),
    Rule("from_of_from", "reassociation", "c - (d - x)", "x + (c - d)", INTEGERS),
    Rule("mul_mul", "reassociation", "(x * c) * d", "x * (c * d)", INTEGERS),
    Rule("shl_mul", "reassociation", "(x << c) * d", "x * (d << c)", INTEGERS),
    Rule("mul_shl", "reassociation", "(x * c) << d", "x * (c << d)", INTEGERS),
    # Literals as small magnitudes, also in unsigned types: x - 1 rather than x + 0xffffffff.
    Rule("add_negative", "order", "x + c", "x - (-c)", UNSIGNED, "-c < c"),
    Rule("sub_negative", "order", "x - c", "x + (-c)", UNSIGNED, "-c < c"),
    Rule("add_negative_signed", "order", "x + c", "x - (-c)", SIGNED, "c < -c"),
    Rule("sub_negative_signed", "order", "x - c", "x + (-c)", SIGNED, "c < -c"),
)

# The groups, each of which can be switched off, in the order of their bits.
GROUPS: Final = tuple(dict.fromkeys(rule.group for rule in RULES))
TABLE: Final = forms(RULES)
