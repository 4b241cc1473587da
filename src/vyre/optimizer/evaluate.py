"""Evaluation of one operation on literal bits: IR statements for every operator and type of the operator table.

Values are u64; bits above a type's width are 0. Properties of a type (width, sign) are computed from its code, so an
operator takes one statement for all integer types and one for all floats. Floats are computed in the widest type that
the device has, then rounded: twice the precision plus two bits make that exact (Figueroa, 1995). Math functions are
not evaluated, since each is a small program of its own.

Some devices lack a float type, or round differently from the reference. Their kernels leave such types out, and
programs that use these types are refused before a kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.nodes import Body, Expr, lit
from vyre.optimizer.arena import OPERATION_CODES, TYPE_CODES
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import FLOATS, SIGNED, DType

Floats = tuple[DType, ...]
_BOOL, _U32, _U64, _I64, _F32, _F64 = DType.BOOL, DType.U32, DType.U64, DType.I64, DType.F32, DType.F64
# Four bits for each type code: the logarithm of the type's width.
LOG_WIDTHS: Final = sum((dtype.bits.bit_length() - 1) << 4 * code for dtype, code in TYPE_CODES.items())
_operation, _source, _result = map(b.var, ("operation", "source", "result"))
_x, _y, _z = map(b.var, "xyz")
# x and y sign-extended to 64 bits, and biased so that they compare as u64.
_wide_x, _wide_y, _order_x, _order_y = map(b.var, ("wide_x", "wide_y", "order_x", "order_y"))
_width, _ones, _signed, _amount = map(b.var, ("width", "ones", "signed", "amount"))
_float: Final = tuple(map(b.var, ("float_x", "float_y", "float_z")))


def wide(number: int) -> Expr:
    """A u64 literal."""
    return lit(number, _U64)


def switch(number: Expr, cases: Sequence[tuple[int, Body]]) -> Body:
    """Statements that run the case of a number, if there is one, by binary search."""
    if not cases:
        return ()
    cases = sorted(cases, key=lambda case: case[0])
    if len(cases) == 1:
        code, body = cases[0]
        return (b.if_(number.eq(code), body),)
    middle = len(cases) // 2
    return (b.if_(number < cases[middle][0], switch(number, cases[:middle]), switch(number, cases[middle:])),)


def is_type(code: Expr, types: Iterable[DType]) -> Expr:
    """Whether a type code is in a set of types."""
    return (lit(type_mask(types), _U32) >> code & 1).eq(1)


def type_mask(types: Iterable[DType]) -> int:
    """A set of types as bits by type code."""
    return sum(1 << TYPE_CODES[dtype] for dtype in set(types))


def width_of(code: Expr) -> Expr:
    """The number of bits of the type with a code, u64."""
    return wide(1) << (wide(LOG_WIDTHS) >> b.cast(_U64, code * 4) & wide(15))


def ones_of(width: Expr) -> Expr:
    """A u64 with ``width`` low ones."""
    return wide((1 << 64) - 1) >> wide(64) - width


def evaluate(floats: Floats = FLOATS) -> Body:
    """Return statements that set ``value`` to the result's bits.

    They read the codes ``operation``, ``source`` (the operands' type; of a select, that of its values) and ``result``
    (the result's type), and the operands' bits ``x``, ``y``, ``z``.
    """
    integers = (
        b.let("width", width_of(_source)),
        b.let("ones", ones_of(_width)),
        b.let("signed", is_type(_source, SIGNED)),
        b.let("amount", _y & _width - wide(1)),
        *(b.let(f"wide_{name}", _extended(value)) for name, value in (("x", _x), ("y", _y))),
        b.let("bias", b.select(_signed, wide(1 << 63), wide(0))),
        *(b.let(f"order_{name}", value ^ b.var("bias")) for name, value in (("x", _wide_x), ("y", _wide_y))),
        *switch(_operation, _integer_cases(floats)),
        b.if_(b.lnot(is_type(_result, FLOATS)), (b.assign("value", b.var("value") & ones_of(width_of(_result))),)),
    )
    by_family = b.if_(is_type(_source, FLOATS), _float_statements(floats), integers) if floats else None
    others: Body = integers if by_family is None else (by_family,)
    chosen = b.assign("value", b.select(_x.ne(wide(0)), _y, _z))
    return (b.if_(_operation.eq(OPERATION_CODES["select"]), (chosen,), others),)


def _extended(value: Expr) -> Expr:
    shift = wide(64) - _width
    extended = b.bitcast(_U64, b.bitcast(_I64, value << shift) >> b.bitcast(_I64, shift))
    return b.select(_signed, extended, value)


def _set(value: Expr) -> Body:
    return (b.assign("value", value),)


def _truth(value: Expr) -> Expr:
    return b.cast(_U64, value)


def _by_sign(name: str, clamps: bool = False) -> Expr:
    """An operator that depends on the sign, in 64 bits; clamped to the type's range if it saturates."""
    signed = n.BinOp(name, b.bitcast(_I64, _wide_x), b.bitcast(_I64, _wide_y))
    unsigned: Expr = n.BinOp(name, _x, _y)
    if clamps:
        greatest = b.bitcast(_I64, _ones >> wide(1))
        return b.select(
            _signed,
            b.bitcast(_U64, b.maximum(b.minimum(signed, greatest), ~greatest)),
            b.minimum(unsigned, _ones),
        )
    return b.select(_signed, b.bitcast(_U64, signed), unsigned)


def _integer_cases(floats: Floats) -> list[tuple[int, Body]]:
    """Operators of integers and bool; the caller clears bits above the width."""
    is_negative = _signed & (_wide_x >> wide(63)).ne(wide(0))
    less = _order_x < _order_y
    down = b.bitcast(_U64, b.bitcast(_I64, _wide_x) >> b.bitcast(_I64, _amount))
    back = _width - _amount

    def rotated(left: Expr, right: Expr) -> Expr:
        # A rotation by 0 shifts by the width, which in 64 bits is a shift by 0.
        return _x << left | _x >> right

    meanings: dict[str, Expr] = {
        "add": _x + _y,
        "sub": _x - _y,
        "mul": _x * _y,
        "div": _by_sign("div"),
        "mod": _by_sign("mod"),
        "shl": _x << _amount,
        "shr": b.select(_signed, down, _x >> _amount),
        "rotl": rotated(_amount, back),
        "rotr": rotated(back, _amount),
        "and": _x & _y,
        "or": _x | _y,
        "xor": _x ^ _y,
        "min": b.select(less, _x, _y),
        "max": b.select(less, _y, _x),
        "abs_diff": b.select(less, _y - _x, _x - _y),
        "sat_add": _by_sign("sat_add", clamps=True),
        "sat_sub": _by_sign("sat_sub", clamps=True),
        "sat_mul": _by_sign("sat_mul", clamps=True),
        "mul_high": b.select(_width.eq(wide(64)), _by_sign("mul_high"), _wide_x * _wide_y >> _width),
        "eq": _truth(_x.eq(_y)),
        "ne": _truth(_x.ne(_y)),
        "lt": _truth(less),
        "le": _truth(_order_x <= _order_y),
        "gt": _truth(_order_x > _order_y),
        "ge": _truth(_order_x >= _order_y),
        "neg": wide(0) - _x,
        "not": ~_x,
        "lnot": _x ^ wide(1),
        "popcount": b.popcount(_x),
        "clz": b.clz(_x) - (wide(64) - _width),
        "ctz": b.minimum(b.ctz(_x), _width),
        "reverse_bits": b.reverse_bits(_x) >> wide(64) - _width,
        "abs": b.select(is_negative, wide(0) - _x, _x),
        "sign": b.select(is_negative, ~wide(0), _truth(_x.ne(wide(0)))),
    }
    cases = [(OPERATION_CODES[name], _set(meaning)) for name, meaning in meanings.items()]
    return [
        *cases,
        (OPERATION_CODES["cast"], (_converted(floats),)),
        (OPERATION_CODES["bitcast"], _same_bits(floats)),
    ]


def _converted(floats: Floats) -> n.Stmt:
    """Statements that convert an integer."""
    to_integer = _set(b.select(_result.eq(TYPE_CODES[_BOOL]), _truth(_x.ne(wide(0))), _wide_x))

    def to_float(dtype: DType) -> Expr:
        return b.select(_signed, b.cast(dtype, b.bitcast(_I64, _wide_x)), b.cast(dtype, _x))

    if not floats:
        return b.if_(lit(True), to_integer)
    return b.if_(is_type(_result, floats), _by_type(_result, floats, to_float), to_integer)


def _from_bits(bits: Expr, dtype: DType) -> Expr:
    return b.bitcast(dtype, b.cast(dtype.unsigned, bits))


def _to_bits(value: Expr, dtype: DType) -> Expr:
    return b.cast(_U64, b.bitcast(dtype.unsigned, value))


def _by_type(code: Expr, types: Iterable[DType], value: Callable[[DType], Expr]) -> Body:
    """Statements that set ``value`` to the bits of a float, by its type."""
    return switch(code, [(TYPE_CODES[dtype], _set(_to_bits(value(dtype), dtype))) for dtype in types])


def _same_bits(floats: Floats) -> Body:
    """Statements that reinterpret the operand's bits; a NaN becomes canonical."""
    canonical = _by_type(_result, floats, lambda dtype: _from_bits(_x, dtype))
    return (b.if_(is_type(_result, floats), canonical, _set(_x)),) if floats else _set(_x)


def _float_statements(floats: Floats) -> Body:
    """Operators of floats, computed in the widest type."""
    widest = _F64 if _F64 in floats else _F32
    lets: list[n.Stmt] = []
    for value, bits in zip(_float, (_x, _y, _z), strict=True):
        lets.append(b.let(value.name, lit(0.0, widest)))
        reading = [(TYPE_CODES[t], (b.assign(value.name, b.cast(widest, _from_bits(bits, t))),)) for t in floats]
        lets += switch(_source, reading)
    lets.append(b.let("rounded", lit(0.0, widest)))
    cases: list[tuple[int, Body]] = []
    for name, operator in OPERATORS.items():
        if _F32 not in operator.types or name in MATH_FUNCTIONS:
            continue
        operands = _float[: operator.arity]
        result = n.BinOp(name, *operands) if operator.arity == 2 else n.UnOp(name, *operands)
        is_truth = operator.result_type(_F32) is _BOOL
        cases.append((OPERATION_CODES[name], _set(_truth(result)) if is_truth else (b.assign("rounded", result),)))
    # A fused operation rounds once, so it is computed in its own type.
    fused = [dtype for dtype in floats if dtype in (_F32, _F64)]
    own = [b.cast(widest, b.fma(*(b.cast(dtype, value) for value in _float))) for dtype in fused]
    fma = switch(
        _source, [(TYPE_CODES[dtype], (b.assign("rounded", value),)) for dtype, value in zip(fused, own, strict=True)]
    )
    cases += [
        (OPERATION_CODES["fma"], fma),
        (OPERATION_CODES["cast"], (b.assign("rounded", _float[0]), *_to_integer())),
    ]
    rounding = _by_type(_result, floats, lambda t: b.cast(t, b.var("rounded")) if t is not widest else b.var("rounded"))
    return (
        *lets,
        b.if_(
            _operation.eq(OPERATION_CODES["bitcast"]),
            _same_bits(floats),
            (*switch(_operation, cases), b.if_(is_type(_result, floats), rounding)),
        ),
    )


def _to_integer() -> Body:
    """Statements that convert a float to an integer: its value, clamped to the range, 0 for NaN; for bool its truth."""
    ones, value = ones_of(width_of(_result)), _float[0]
    greatest = b.bitcast(_I64, ones >> wide(1))
    signed = b.maximum(b.minimum(b.cast(_I64, value), greatest), ~greatest)
    unsigned = b.minimum(b.cast(_U64, value), ones)
    integer = b.select(is_type(_result, SIGNED), b.bitcast(_U64, signed) & ones, unsigned)
    return _set(b.select(_result.eq(TYPE_CODES[_BOOL]), _truth(b.cast(_BOOL, value)), integer))
