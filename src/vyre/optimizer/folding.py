"""What is an operation of literals? Statements that compute it, for every operation and type of the operator table.

Types of one family share their computation: bool and the integers are extended to 64 bits, f16 and bf16 to f32. After
wrapping, clamping or rounding back that gives the same, except for the few operators whose result depends on the width;
those are computed in the type itself. Math functions are not folded: each is a small program of its own.

Some devices lack a float, or round another way than the reference. What runs there leaves such types out, and is not
asked about programs that have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.nodes import Body, Expr, lit
from vyre.optimizer.arena import OPERATION_CODES, TYPE_CODES, Kind
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS, Result
from vyre.semantics.types import FLOATS, SIGNED, UNSIGNED, DType

# Operators whose result depends on the width, and those of them to which bits are bits, with a sign or without.
_BY_WIDTH: Final = ("shr", "mul_high")
_OF_BITS: Final = ("shl", "rotl", "rotr", "popcount", "clz", "ctz", "reverse_bits")
_SATURATING: Final = ("sat_add", "sat_sub", "sat_mul")
Floats = tuple[DType, ...]
_BOOL, _U32, _U64, _I64, _F32, _F64 = DType.BOOL, DType.U32, DType.U64, DType.I64, DType.F32, DType.F64
_WIDTHS: Final = sum((dtype.bits.bit_length() - 1) << 4 * code for dtype, code in TYPE_CODES.items())

_operation, _type, _source, _bits = map(b.var, ("fold_operation", "fold_type", "fold_source", "fold_bits"))
_OPERANDS: Final = tuple(map(b.var, ("fold_a", "fold_b", "fold_c")))


def wide(number: int) -> Expr:
    """A literal of 64 bits."""
    return lit(number, _U64)


def choose(number: Expr, cases: Sequence[tuple[int, Body]]) -> Body:
    """Statements that run the case of a number, if there is one, found by halving."""
    if not cases:
        return ()
    cases = sorted(cases, key=lambda case: case[0])
    if len(cases) == 1:
        code, body = cases[0]
        return (b.if_(number.eq(code), body),)
    middle = len(cases) // 2
    return (b.if_(number < cases[middle][0], choose(number, cases[:middle]), choose(number, cases[middle:])),)


def is_one_of(code: Expr, codes: Iterable[int]) -> Expr:
    """Whether an operation's code is one of these."""
    assert len(OPERATION_CODES) <= 64
    return (wide(sum(1 << one for one in set(codes))) >> b.cast(_U64, code) & wide(1)).ne(wide(0))


def is_type(code: Expr, types: Iterable[DType]) -> Expr:
    """Whether a code is that of one of these types."""
    return (lit(sum(1 << TYPE_CODES[dtype] for dtype in set(types)), _U32) >> code & 1).eq(1)


def width_of(code: Expr) -> Expr:
    """The number of bits of the type with a code, u64."""
    return wide(1) << (wide(_WIDTHS) >> b.cast(_U64, code * 4) & wide(15))


def ones_of(width: Expr) -> Expr:
    """So many ones, u64."""
    return wide((1 << 64) - 1) >> wide(64) - width


def words(low: str, high: str) -> Expr:
    """The u64 of two words."""
    return b.cast(_U64, b.var(low)) | b.cast(_U64, b.var(high)) << wide(32)


def from_bits(bits: Expr, dtype: DType) -> Expr:
    """The value of a type with bits that are a u64."""
    return b.bitcast(dtype, b.cast(dtype.unsigned, bits)) if dtype.bits > 1 else bits.ne(wide(0))


def to_bits(value: Expr, dtype: DType) -> Expr:
    """The bits of a value of a type, as a u64."""
    return b.cast(_U64, b.bitcast(dtype.unsigned, value) if dtype.bits > 1 else value)


def _apply(name: str, operands: Sequence[Expr]) -> Expr:
    return n.BinOp(name, operands[0], operands[1]) if OPERATORS[name].arity == 2 else n.UnOp(name, operands[0])


def _set(value: Expr) -> Body:
    return (b.assign("fold_bits", value),)


def _by_type(code: Expr, types: Iterable[DType], value: Callable[[DType], Expr]) -> Body:
    """Sets the bits to those of a value that depends on a type."""
    return choose(code, [(TYPE_CODES[dtype], _set(to_bits(value(dtype), dtype))) for dtype in types])


def _same_bits(floats: Floats) -> Body:
    """The operand's bits in another type, where a NaN is the canonical one."""
    canonical = _by_type(_type, floats, lambda t: from_bits(_OPERANDS[0], t))
    return (b.if_(is_type(_type, floats), canonical, _set(_OPERANDS[0])),)


def fold_statements(floats: Floats = FLOATS) -> Body:
    """Statements that set ``folded`` to 1, and ``lit_lo`` and ``lit_hi`` to the result's bits, if there is one.

    They read ``word``, the head of the operation, and of its operands ``a``, ``b``, ``c`` the heads (``a_head``, 0
    where there is none) and the words of their bits (``a_0``, ``a_1``). All of these are u32.
    """
    literal = b.var("a_head") & 255
    known = literal.eq(Kind.LITERAL.value)
    for operand in ("b_head", "c_head"):
        known = known & (b.var(operand).eq(0) | (b.var(operand) & 255).eq(Kind.LITERAL.value))
    operation, source = b.var("word") >> 16, b.var("a_head") >> 8 & 255
    families = (
        b.if_(
            is_type(_source, (*UNSIGNED, _BOOL)),
            _integers(UNSIGNED, _U64, floats),
            (b.if_(is_type(_source, SIGNED), _integers(SIGNED, _I64, floats), _all_floats(floats)),),
        ),
    )
    of_bits = [OPERATION_CODES[name] for name in _OF_BITS]
    families = (b.if_(is_one_of(_operation, of_bits), _bits_of_integers(), families),)
    chosen = b.select(b.var("a_0").ne(0), words("b_0", "b_1"), words("c_0", "c_1"))
    unfolded = [OPERATION_CODES[name] for name in MATH_FUNCTIONS]
    return (
        b.if_(
            known & b.lnot(is_one_of(operation, unfolded)),
            (
                b.let("fold_operation", operation),
                b.let("fold_type", b.var("word") >> 8 & 255),
                b.let("fold_source", source),
                *(b.let(f"fold_{x}", words(f"{x}_0", f"{x}_1")) for x in "abc"),
                b.let("fold_bits", wide(0)),
                b.if_(_operation.eq(OPERATION_CODES["select"]), _set(chosen), families),
                b.assign("folded", 1),
                b.assign("lit_lo", b.cast(_U32, _bits)),
                b.assign("lit_hi", b.cast(_U32, _bits >> wide(32))),
            ),
        ),
    )


def _in_type(name: str, dtype: DType) -> Body:
    result = _apply(name, [from_bits(x, dtype) for x in _OPERANDS])
    return _set(to_bits(result, OPERATORS[name].result_type(dtype)))


def _bits_of_integers() -> Body:
    """Operations that do not know a sign, by the width."""
    width = b.cast(_U32, width_of(_source))
    return choose(
        _operation,
        [(OPERATION_CODES[name], choose(width, [(t.bits, _in_type(name, t)) for t in UNSIGNED])) for name in _OF_BITS],
    )


def _integers(types: tuple[DType, ...], kin: DType, floats: Floats) -> Body:
    """Operations of integers, in 64 bits; bool is among those without a sign."""
    width = wide(64) - width_of(_source)
    extended = [x if kin is _U64 else b.bitcast(_I64, x << width) >> b.bitcast(_I64, width) for x in _OPERANDS]
    names = ["fold_u" if kin is _U64 else "fold_i", "fold_v" if kin is _U64 else "fold_j"]
    values = [b.var(name) for name in names]
    ones = ones_of(width_of(_type))
    cases = []
    for name, operator in OPERATORS.items():
        if name in _BY_WIDTH:
            cases.append((OPERATION_CODES[name], choose(_source, [(TYPE_CODES[t], _in_type(name, t)) for t in types])))
        elif name == "lnot" and kin is _U64:
            cases.append((OPERATION_CODES[name], _set(values[0] ^ wide(1))))
        elif kin in operator.types and name not in _OF_BITS:
            result = _apply(name, values)
            if name in _SATURATING:
                result = _clamped(result, ones, kin)
            cases.append((OPERATION_CODES[name], _set(to_bits(result, operator.result_type(kin)) & ones)))
    converted = b.if_(
        is_type(_type, floats),
        _by_type(_type, floats, lambda t: b.cast(t, values[0])),
        (
            b.if_(
                _type.eq(TYPE_CODES[_BOOL]),
                _set(b.cast(_U64, b.cast(_BOOL, values[0]))),
                _set(to_bits(values[0], kin) & ones),
            ),
        ),
    )
    cases += [(OPERATION_CODES["cast"], (converted,)), (OPERATION_CODES["bitcast"], _same_bits(floats))]
    lets = [b.let(name, value) for name, value in zip(names, extended, strict=False)]
    return (*lets, *choose(_operation, cases))


def _clamped(result: Expr, ones: Expr, kin: DType) -> Expr:
    """A result clamped to a type's range, given all its bits."""
    if kin is _U64:
        return b.minimum(result, ones)
    greatest = b.bitcast(_I64, ones >> wide(1))
    return b.maximum(b.minimum(result, greatest), ~greatest)


def _all_floats(floats: Floats) -> Body:
    """Operations of the floats that there are, those of one width in a type that all of them fit into."""
    short = tuple(dtype for dtype in floats if dtype is not _F64)
    narrow = _floats(short, _F32, floats) if short else ()
    return (b.if_(is_type(_source, (_F64,)), _floats((_F64,), _F64, floats), narrow),) if _F64 in floats else narrow


def _floats(types: tuple[DType, ...], kin: DType, floats: Floats) -> Body:
    """Operations of floats, in f32 or f64."""
    prefix = "fold_single" if kin is _F32 else "fold_double"
    values = [b.var(f"{prefix}_{x}") for x in "abc"]
    lets: list[n.Stmt] = []
    for value, bits in zip(values, _OPERANDS, strict=True):
        lets.append(b.let(value.name, lit(0.0, kin)))
        reading = [(TYPE_CODES[t], (b.assign(value.name, b.cast(kin, from_bits(bits, t))),)) for t in types]
        lets += choose(_source, reading)
    rounded = f"{prefix}_result"
    lets.append(b.let(rounded, lit(0.0, kin)))
    cases = []
    for name, operator in OPERATORS.items():
        if kin in operator.types and name not in MATH_FUNCTIONS:
            result = _apply(name, values)
            is_truth = operator.result is Result.BOOL
            body = _set(b.cast(_U64, result)) if is_truth else (b.assign(rounded, result),)
            cases.append((OPERATION_CODES[name], body))
    cases.append((OPERATION_CODES["fma"], (b.assign(rounded, b.fma(*values)),)))
    ones = ones_of(width_of(_type))
    to_integer = b.if_(
        is_type(_type, SIGNED),
        _set(to_bits(_clamped(b.cast(_I64, values[0]), ones, _I64), _I64) & ones),
        (
            b.if_(
                _type.eq(TYPE_CODES[_BOOL]),
                _set(b.cast(_U64, b.cast(_BOOL, values[0]))),
                _set(_clamped(b.cast(_U64, values[0]), ones, _U64)),
            ),
        ),
    )
    converted = b.if_(is_type(_type, floats), _by_type(_type, floats, lambda t: b.cast(t, values[0])), (to_integer,))
    rounding = _by_type(_type, types, lambda t: b.cast(t, b.var(rounded)) if t is not kin else b.var(rounded))
    return (
        *lets,
        b.if_(
            _operation.eq(OPERATION_CODES["cast"]),
            (converted,),
            (
                b.if_(
                    _operation.eq(OPERATION_CODES["bitcast"]),
                    _same_bits(floats),
                    (*choose(_operation, cases), b.if_(is_type(_type, floats), rounding)),
                ),
            ),
        ),
    )
