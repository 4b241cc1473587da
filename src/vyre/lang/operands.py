"""Which type does an operand have, and what does an operator give? The typing rules, with the cast to write."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Final

from vyre.errors import KernelError
from vyre.ir import nodes as n
from vyre.lang.context import Context
from vyre.lang.values import (
    ArrayRef,
    Choice,
    Constant,
    Items,
    Known,
    Nothing,
    Number,
    Scalar,
    Value,
    a,
    combined,
    literal,
    rounded,
)
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType, Kind

OPERATOR_OF: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "div", ast.Mod: "mod",
    ast.LShift: "shl", ast.RShift: "shr", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor",
    ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge",
}  # fmt: skip
SYMBOLS: Final[dict[type[ast.AST], str]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip

_Fold = Callable[[int | float, int | float], int | float]


def _toward_zero(left: int | float, right: int | float) -> int | float:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int | float, right: int | float) -> int | float:
    if isinstance(left, float) or isinstance(right, float):
        return math.fmod(left, right)
    return left - right * _toward_zero(left, right)


# Numbers of the source are exact until they meet a type: they never wrap. Division is the language's, not Python's.
_FOLDS: Final[dict[type[ast.AST], _Fold]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: _toward_zero, ast.Mod: _remainder, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_MOST_BITS: Final = 4096


def described(value: Value) -> str:
    """A value in words."""
    match value:
        case Constant(number):
            return f"the number {number}"
        case Choice():
            return "a number"
        case Scalar():
            return a(value.dtype)
        case ArrayRef():
            return f"the array '{value.name}'"
        case Items():
            return f"{len(value.items)} values"
        case Nothing():
            return "nothing"
        case Known(obj):
            return f"{obj!r}"


def typed(context: Context, value: Value, node: ast.AST, dtype: DType | None = None) -> Scalar:
    """A value of that type, or of its own; a number takes the type that is asked for."""
    match value:
        case Scalar() if dtype is None or value.dtype is dtype:
            return value
        case Scalar():
            raise context.error(
                node, f"this is {a(value.dtype)}, and {a(dtype)} is needed here.", cast_fix(context, node, dtype)
            )
        case Constant(number):
            return fitting(context, number, dtype or value.default_type, node)
        case Choice():
            wanted = dtype or value.default_type
            return chosen(value, lambda number: fitting(context, number, wanted, node))
        case ArrayRef():
            raise context.error(
                node, f"'{value.name}' is an array, not a number.", f"take an element: {value.name}[i]."
            )
        case _:
            raise context.error(
                node, f"this is {described(value)}, not a number.", "use a number or an element of an array."
            )


def choice(context: Context, test: Scalar, yes: Number, no: Number, node: ast.AST) -> Choice:
    """One of two numbers, which have no type yet."""
    once = context.bind(test, "test", node) if test.acts else test
    return Choice((*steps_of(yes), *steps_of(no), once))


def steps_of(number: Number) -> tuple[Constant | Scalar, ...]:
    return number.steps if isinstance(number, Choice) else (number,)


def negated(number: Number) -> Number:
    if isinstance(number, Choice):
        return number.map_numbers(lambda one: Constant(-one.value))
    return Constant(-number.value)


def chosen(value: Choice, make: Callable[[int | float], Scalar]) -> Scalar:
    """A choice whose numbers have become values of one type."""
    made: list[Scalar] = []
    for step in value.steps:
        if isinstance(step, Constant):
            made.append(make(step.value))
        else:
            no, yes = made.pop(), made.pop()
            made.append(combined(n.Select(step.expr, yes.expr, no.expr), yes.dtype, step, yes, no))
    return made.pop()


def fitting(context: Context, number: int | float, dtype: DType, node: ast.AST) -> Scalar:
    """A number as a constant of a type, if it is one of the type's."""
    if dtype is DType.BOOL:
        raise context.error(node, f"the number {number} is no bool.", "write True or False, or compare: != 0.")
    if dtype.is_float:
        value = rounded(number, dtype)
        if value is None:
            raise context.error(
                node, f"{_shown(number)} is too large for {dtype}.", "use a wider type, or a smaller number."
            )
        return literal(value, dtype)
    if isinstance(number, float):
        raise context.error(
            node,
            f"{number} is no {dtype}, and takes the type of what stands beside it.",
            f"cast the other operand to a float type, or write {dtype}({number}) if you mean its whole part.",
        )
    if not dtype.minimum <= number <= dtype.maximum:
        needed = (
            "a signed type: cast what it meets, as in i32(...)" if number < 0 else "a wider type: cast what it meets"
        )
        message = f"{_shown(number)} is no {dtype} ({dtype.minimum} to {dtype.maximum})."
        raise context.error(node, message, f"it needs {needed}.")
    return literal(number, dtype)


def _shown(number: int | float) -> str:
    text = str(number) if isinstance(number, float) or number.bit_length() < 200 else "a number this long"
    return text if len(text) <= 40 else f"{text[:40]}…"


def default_type(*numbers: Number) -> DType:
    """The type of numbers that meet nothing else."""
    return DType.F32 if any(number.default_type is DType.F32 for number in numbers) else DType.U32


def common(
    context: Context, left: Value, right: Value, at: tuple[ast.AST, ast.AST], node: ast.AST, symbol: str
) -> tuple[Scalar, Scalar]:
    """Two operands with one type: numbers take the other's, anything else that differs is an error."""
    if isinstance(left, Number) and isinstance(right, Number):
        dtype = default_type(left, right)
        return typed(context, left, at[0], dtype), typed(context, right, at[1], dtype)
    if isinstance(left, Number):
        second = typed(context, right, at[1])
        return typed(context, left, at[0], second.dtype), second
    first = typed(context, left, at[0])
    if isinstance(right, Number):
        return first, typed(context, right, at[1], first.dtype)
    second = typed(context, right, at[1])
    if first.dtype is not second.dtype:
        target = _meeting(first.dtype, second.dtype)
        to_cast = at[1] if first.dtype is target else at[0]
        fix = (
            start_fix(context, at[0], second.dtype)
            or start_fix(context, at[1], first.dtype)
            or cast_fix(context, to_cast, target)
        )
        raise context.error(node, f"{symbol} has operands of two types, {first.dtype} and {second.dtype}.", fix)
    return first, second


def _meeting(left: DType, right: DType) -> DType:
    """The type to suggest for operands of two types: the float of an integer and a float, the wider of two alike."""
    if left.is_float != right.is_float:
        return left if left.is_float else right
    if DType.BOOL in (left, right):
        return right if left is DType.BOOL else left
    return left if left.bits >= right.bits else right


def cast_fix(context: Context, node: ast.AST, dtype: DType | None) -> str:
    text = context.source.segment(node)
    if dtype is DType.BOOL:
        return _compare_fix(text, node)
    return f"cast it: {dtype}({text})." if len(text) <= 40 else f"cast it with {dtype}(...)."


def start_fix(context: Context, node: ast.AST, dtype: DType) -> str | None:
    """What to write where a variable got its type from a bare number, and another one was meant."""
    if not isinstance(node, ast.Name) or node.id not in context.scopes.locals or node.id in context.parameters:
        return None
    variable = context.variables.get((context.frame_of(node.id).key, node.id))
    if variable is None or not variable.is_number:
        return None
    return f"give '{node.id}' its type where it starts: {node.id}: {dtype} = ..."


def condition(context: Context, value: Value, node: ast.AST) -> Scalar:
    """A value that decides something: a bool."""
    if isinstance(value, Scalar) and value.dtype is DType.BOOL:
        return value
    fix = _compare_fix(context.source.segment(node), node)
    raise context.error(node, f"a condition is a bool, and this is {described(value)}.", fix)


def _compare_fix(text: str, node: ast.AST) -> str:
    if len(text) > 40:
        return "compare it: ... != 0."
    is_plain = isinstance(node, (ast.Name, ast.Subscript, ast.Call, ast.Attribute, ast.Constant))
    return f"compare it: {text} != 0." if is_plain else f"compare it: ({text}) != 0."


def binary(
    context: Context, kind: type[ast.AST], left: Value, right: Value, at: tuple[ast.AST, ast.AST], node: ast.AST
) -> Value:
    """What an infix operator gives."""
    symbol = SYMBOLS[kind]
    match left, right:
        case Constant(), Constant():
            return _folded(context, kind, left.value, right.value, node)
        case Choice(), Constant() if not issubclass(kind, ast.cmpop):
            return left.map_numbers(lambda one: _folded_number(context, kind, one, right, node))
        case Constant(), Choice() if not issubclass(kind, ast.cmpop):
            return right.map_numbers(lambda one: _folded_number(context, kind, left, one, node))
    if kind is ast.Pow:
        fix = _power_fix(context.source.segment(at[0]), right)
        raise context.error(node, "** is for numbers that are known when the kernel is translated.", fix)
    if kind is ast.MatMult:
        raise context.error(node, "@ is no operator of kernels.", "write the loops of the product.")
    first, second = common(context, left, right, at, node, symbol)
    dtype = first.dtype
    if kind is ast.Div and not dtype.is_float:
        text = context.source.segment(at[0])
        raise context.error(
            node, f"/ divides floats, and these are {dtype}.", f"use //, or cast both: f32({text}) / ..."
        )
    if kind is ast.FloorDiv and dtype.is_float:
        raise context.error(node, f"// divides integers, and these are {dtype}.", "use vyre.floor(a / b).")
    return operation(context, OPERATOR_OF[kind], first, second, node, symbol)


def _power_fix(base: str, power: Value) -> str:
    if isinstance(power, Constant) and power.value == 2 and len(base) <= 20:
        return f"write {base} * {base}."
    if isinstance(power, Constant) and power.value == 0.5 and len(base) <= 20:
        return f"write vyre.sqrt({base})."
    return "multiply, or use exp2(y * log2(x))."


def operation(
    context: Context, name: str, left: Scalar, right: Scalar, node: ast.AST, shown: str | None = None
) -> Scalar:
    """A binary operator of the table on operands of one type."""
    row = BINARY[name]
    if left.dtype not in row.types:
        raise _undefined(context, shown or name, left.dtype, row.types, node)
    return combined(n.BinOp(name, left.expr, right.expr), row.result_type(left.dtype), left, right)


def unary(context: Context, name: str, operand: Scalar, node: ast.AST, shown: str | None = None) -> Scalar:
    """A unary operator of the table."""
    row = UNARY[name]
    if operand.dtype not in row.types:
        raise _undefined(context, shown or name, operand.dtype, row.types, node)
    return combined(n.UnOp(name, operand.expr), row.result_type(operand.dtype), operand)


def _undefined(context: Context, shown: str, dtype: DType, types: tuple[DType, ...], node: ast.AST) -> KernelError:
    if dtype is DType.BOOL:
        fix = "cast the bool: u32(...)." if shown != "~" else "write `not`."
    elif all(one.is_float for one in types):
        fix = "cast to a float type first: f32(...)."
    elif all(one.kind is not Kind.FLOAT for one in types):
        fix = "cast to an integer type first: u32(...)."
    else:
        fix = f"cast to one of {', '.join(map(str, types))}."
    return context.error(node, f"{shown} is not defined for {dtype}.", fix)


def _folded_number(context: Context, kind: type[ast.AST], left: Constant, right: Constant, node: ast.AST) -> Constant:
    folded = _folded(context, kind, left.value, right.value, node)
    assert isinstance(folded, Constant)  # only comparisons give something else
    return folded


def _folded(context: Context, kind: type[ast.AST], left: int | float, right: int | float, node: ast.AST) -> Value:
    if kind is ast.MatMult:
        raise context.error(node, "@ is no operator of kernels.", "write the loops of the product.")
    if kind is ast.FloorDiv and isinstance(left + right, float):
        raise context.error(node, "// divides integers, and one of these is a float.", "use vyre.floor(a / b).")
    too_long = kind in (ast.LShift, ast.Pow) and isinstance(right, int) and right > _MOST_BITS
    try:
        result = None if too_long else _FOLDS[kind](left, right)
    except ZeroDivisionError:
        raise context.error(node, "a number is divided by zero.", "divide by another number.") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise context.error(
            node, f"this cannot be computed ({error}).", "use whole numbers, or smaller ones."
        ) from None
    if isinstance(result, bool):
        return literal(result, DType.BOOL)
    if not isinstance(result, (int, float)) or (isinstance(result, int) and result.bit_length() > _MOST_BITS):
        raise context.error(node, "this number is too large, or no real one.", "use smaller numbers.")
    return Constant(result)
