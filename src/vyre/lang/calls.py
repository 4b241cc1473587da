"""What does a call in a kernel give? Casts by type name, and the functions of the language."""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final

from vyre.errors import KernelError
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.extensions import lookup_op
from vyre.ir.names import nearest_word
from vyre.lang import operands as of
from vyre.lang.annotations import MAX_RANK, scalar_type
from vyre.lang.context import Context
from vyre.lang.elements import dimension, find_element
from vyre.lang.functions import Function
from vyre.lang.intrinsics import OF_PYTHON, Intrinsic
from vyre.lang.values import (
    NOTHING,
    ArrayRef,
    Choice,
    Constant,
    Items,
    Known,
    Number,
    Scalar,
    Value,
    combined,
    literal,
)
from vyre.semantics.operators import BINARY, REDUCTIONS, UNARY, AtomicOp
from vyre.semantics.types import FUSED_TYPES, DType

Nodes = Sequence[ast.expr]
_ANY_NUMBER: Final = ("min", "max", "call")
_IDS: Final = {"gid": n.InvocationId, "lid": n.LocalId, "wg": n.WorkgroupId, "num_workgroups": n.NumWorkgroups}
_OF_SUBGROUPS: Final = {"subgroup_lane": n.SubgroupLocalId(), "subgroup_size": n.SubgroupSize()}


def arranged(context: Context, target: Any, node: ast.Call) -> list[ast.expr]:
    """The arguments in the order of the parameters; those at the end that are left out have defaults."""
    target = OF_PYTHON.get(target, target)
    names, needed = _parameters(target)
    given: dict[str, ast.expr] = {}
    takes_any = isinstance(target, Intrinsic) and target.name in _ANY_NUMBER
    for number, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            raise context.error(
                argument, "* of an argument is no part of the language.", "write the arguments one by one."
            )
        if number >= len(names) and not takes_any:
            raise _wrong_count(context, names, node)
        given[names[number] if number < len(names) else str(number)] = argument
    for keyword in node.keywords:
        if keyword.arg not in names or keyword.arg in given:
            raise _wrong_keyword(context, names, keyword)
        given[str(keyword.arg)] = keyword.value
    if any(name not in given for name in names[:needed]):
        raise _wrong_count(context, names, node)
    order = [name for name in names if name in given] + [name for name in given if name not in names]
    missing = [name for name in names[: len(order)] if name not in given]
    if missing:
        raise context.error(node, f"'{missing[0]}' is left out before one that is given.", "give it too.")
    return [given[name] for name in order]


def _parameters(target: Any) -> tuple[list[str], int]:
    """The names of what a call takes, and how many of them it needs."""
    if isinstance(target, Function):
        needed = sum(parameter.default is inspect.Parameter.empty for parameter in target.parameters)
        return [parameter.name for parameter in target.parameters], needed
    if isinstance(target, Intrinsic):
        names = [text.partition("=")[0] for text in target.parameters if text != "..."]
        return names, sum("=" not in text for text in target.parameters if text != "...")
    return ["value"], 1


def _wrong_count(context: Context, names: list[str], node: ast.Call) -> KernelError:
    shown = context.source.segment(node.func)
    given = len(node.args) + len(node.keywords)
    return context.error(node, f"{shown} was given {given} arguments.", f"call it as {shown}({', '.join(names)}).")


def _wrong_keyword(context: Context, names: list[str], keyword: ast.keyword) -> KernelError:
    near = nearest_word(str(keyword.arg), names)
    shown = f"did you mean '{near}'?" if near and near != keyword.arg else f"its parameters are {', '.join(names)}."
    what = "given twice" if keyword.arg in names else "no parameter of this"
    return context.error(keyword, f"'{keyword.arg}' is {what}.", shown)


def apply(context: Context, target: Any, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    """What a call gives that needs no inlining."""
    target = OF_PYTHON.get(target, target)
    dtype = scalar_type(target)
    if dtype is not None:
        return _cast(context, dtype, values[0], at[0], node)
    if isinstance(target, Intrinsic):
        return _intrinsic(context, target, values, at, node)
    if target is len:
        return _length(context, values[0], at[0])
    if target is range:
        raise context.error(node, "range stands in a for statement, and nowhere else.", "write for i in range(...):")
    kind, types = ("whole number", "i32, u32, i64") if target is int else ("float", "f32, f64")
    raise context.error(node, f"{target.__name__}(...) does not say which {kind}.", f"say it: one of {types}.")


def _cast(context: Context, dtype: DType, value: Value, at: ast.AST, node: ast.AST) -> Scalar:
    if isinstance(value, Constant):
        return _cast_number(context, value.value, dtype, node)
    if isinstance(value, Choice):
        return of.chosen(value, lambda number: _cast_number(context, number, dtype, node))
    operand = of.typed(context, value, at)
    return operand if operand.dtype is dtype else combined(n.Cast(dtype, operand.expr), dtype, operand)


def _cast_number(context: Context, number: int | float, dtype: DType, node: ast.AST) -> Scalar:
    if dtype is DType.BOOL:
        return literal(number != 0, DType.BOOL)
    if isinstance(number, float) and dtype.is_integer:
        whole = 0 if math.isnan(number) else number
        return literal(int(max(dtype.minimum, min(dtype.maximum, whole))), dtype)
    return of.fitting(context, number, dtype, node)


def _length(context: Context, value: Value, at: ast.AST) -> Value:
    match value:
        case ArrayRef():
            return dimension(context, value, 0)
        case Items(items):
            return Constant(len(items))
    raise context.error(at, f"{of.described(value)} has no len.", "use an array or a tuple.")


def _intrinsic(context: Context, target: Intrinsic, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    name = target.name
    if name in _IDS:
        return Scalar(_IDS[name](_axis(context, values, node)), DType.U32)
    if name in _OF_SUBGROUPS:
        return Scalar(_OF_SUBGROUPS[name], DType.U32)
    if name in ("barrier", "grid_sync"):
        order = n.MemoryOrder.GRID_SYNC if name == "grid_sync" else _order(context, values, node)
        context.emit(n.Barrier(order), node)
        return NOTHING
    if name in UNARY:
        only_floats = all(dtype.is_float for dtype in UNARY[name].types)
        if name == "abs" and isinstance(values[0], Constant):
            return Constant(abs(values[0].value))
        wanted = DType.F32 if only_floats and isinstance(values[0], Number) else None
        return of.unary(context, name, of.typed(context, values[0], at[0], wanted), node)
    if name in BINARY:
        whole = [value.value for value in values if isinstance(value, Constant) and isinstance(value.value, int)]
        if name in _ANY_NUMBER and len(whole) == len(values):
            return Constant(min(whole) if name == "min" else max(whole))
        operands = _alike(context, values, at, node, name)
        return reduce(lambda left, right: of.operation(context, name, left, right, node), operands)
    if name.startswith("atomic_"):
        return _atomic(context, AtomicOp(name.removeprefix("atomic_")), values, at, node)
    if name in _STATEMENTS:
        return _statement(context, target, values, at, node)
    return _SPECIAL[name](context, values, at, node)


def _axis(context: Context, values: list[Value], node: ast.AST) -> int:
    match values:
        case []:
            return 0
        case [Constant(int() as axis)] if 0 <= axis <= 2:
            return axis
    raise context.error(node, "the axis is not 0, 1 or 2.", "write the number of the axis.")


def _alike(context: Context, values: list[Value], at: Nodes, node: ast.AST, name: str) -> list[Scalar]:
    """Operands of one type: that of the first that has one."""
    lead = next((k for k, value in enumerate(values) if not isinstance(value, Number)), None)
    if lead is None:
        dtype = of.default_type(*(value for value in values if isinstance(value, Number)))
        return [of.typed(context, value, where, dtype) for value, where in zip(values, at, strict=True)]
    return [
        of.common(context, values[lead], value, (at[lead], where), node, name)[1]
        if k != lead
        else of.typed(context, value, where)
        for k, (value, where) in enumerate(zip(values, at, strict=True))
    ]


def _atomic(context: Context, op: AtomicOp, values: list[Value], at: Nodes, node: ast.AST) -> Scalar:
    array = values[0]
    if not isinstance(array, ArrayRef):
        raise context.error(
            at[0], f"an atomic changes an element of an array, not {of.described(array)}.", "name the array."
        )
    if not (array.reads and (array.writes or op is AtomicOp.LOAD)):
        raise context.error(at[0], f"an atomic reads and writes '{array.name}'.", f"declare it InOut[{array.dtype}].")
    many = {AtomicOp.LOAD: 0, AtomicOp.COMPARE_EXCHANGE: 2}.get(op, 1)
    order = _order(context, values[2 + many :], node)
    where = at[1]
    given, places = (
        (values[1].items, where.elts)
        if isinstance(values[1], Items) and isinstance(where, ast.Tuple)
        else ([values[1]], [where])
    )
    element = find_element(context, array, given, places, node)
    operands = [of.typed(context, values[2 + k], at[2 + k], array.dtype) for k in range(many)]
    expected = operands[0].expr if many == 2 else None
    value = operands[-1].expr if operands else None
    index = element.guarded_index
    atomic = n.Atomic(op, array.buffer, index.expr, value, expected, order)
    return combined(atomic, array.dtype, index, *operands, reads=True, acts=True)


def _order(context: Context, values: list[Value], node: ast.AST) -> n.MemoryOrder:
    match values:
        case []:
            return n.MemoryOrder.SEQ_CST
        case [Known(str() as word)] if word in [order.value for order in n.MemoryOrder]:
            return n.MemoryOrder(word)
    orders = ", ".join(f"'{order.value}'" for order in n.MemoryOrder if order is not n.MemoryOrder.GRID_SYNC)
    raise context.error(
        node, "the memory order is not one of the language's.", f"write one of {orders}, or leave it out."
    )


def _select(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    test = of.condition(context, values[0], at[0])
    if isinstance(values[1], Number) and isinstance(values[2], Number):
        return of.choice(context, test, values[1], values[2], at[0])
    yes, no = of.common(context, values[1], values[2], (at[1], at[2]), node, "select")
    return combined(n.Select(test.expr, yes.expr, no.expr), yes.dtype, test, yes, no)


def _fma(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    operands = _alike(context, values, at, node, "fma")
    if operands[0].dtype not in FUSED_TYPES:
        raise context.error(node, f"fma is not defined for {operands[0].dtype}.", "cast the operands to f32 or to f64.")
    return combined(n.Fma(*(operand.expr for operand in operands)), operands[0].dtype, *operands)


def _bitcast(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    dtype = _type(context, values[0], at[0])
    operand = of.typed(context, values[1], at[1])
    if operand.dtype.bits != dtype.bits or DType.BOOL in (dtype, operand.dtype):
        raise context.error(
            node, f"bitcast keeps the bits, and {operand.dtype} and {dtype} have different ones.",
            f"use a type of {operand.dtype.bits} bits, or cast the value: {dtype}(...).",
        )  # fmt: skip
    return combined(n.Bitcast(dtype, operand.expr), dtype, operand)


def _type(context: Context, value: Value, at: ast.AST) -> DType:
    dtype = scalar_type(value.object) if isinstance(value, Known) else None
    if dtype is None:
        raise context.error(at, f"{of.described(value)} is no type.", "name a type, such as f32.")
    return dtype


def _shared(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    dtype = _type(context, values[0], at[0])
    sizes = values[1].items if isinstance(values[1], Items) else (values[1],)
    shape = [size.value for size in sizes if isinstance(size, Constant) and isinstance(size.value, int)]
    if len(shape) != len(sizes) or not 1 <= len(shape) <= MAX_RANK or min(shape) < 1:
        raise context.error(at[1], "the size of workgroup memory is known when a kernel is translated.",
                     "write whole numbers from 1, or names of such from outside the kernel.")  # fmt: skip
    name = context.writer.fresh_buffer(context.wanted_name or "tile")
    context.writer.shared.append(BufferDecl.workgroup(name, dtype, math.prod(shape)))
    context.writer.place(context.writer.shared[-1], context.span(node))
    return ArrayRef(name, name, dtype, tuple(shape), None, True, True)


def _ballot(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:  # noqa: ARG001
    test = of.condition(context, values[0], at[0])
    return combined(n.SubgroupBallot(test.expr), DType.U32, test, acts=True)


def _shuffle(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:  # noqa: ARG001
    value = of.typed(context, values[0], at[0])
    lane = of.typed(context, values[1], at[1], DType.U32)
    return combined(n.SubgroupShuffle(value.expr, lane.expr), value.dtype, value, lane, acts=True)


def _reduce(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:  # noqa: ARG001
    op = _reduction(context, values[0], at[0])
    value = of.typed(context, values[1], at[1])
    return combined(n.SubgroupReduce(op, value.expr), value.dtype, value, acts=True)


def _reduction(context: Context, value: Value, at: ast.AST) -> str:
    match value:
        case Known(str() as op) if op in REDUCTIONS:
            return op
    known = ", ".join(f"'{op}'" for op in REDUCTIONS)
    raise context.error(at, f"{of.described(value)} is no reduction.", f"write one of {known}.")


def _text(context: Context, value: Value, at: ast.AST) -> str:
    if isinstance(value, Known) and isinstance(value.object, str):
        return value.object
    raise context.error(at, f"{of.described(value)} is no name.", "write a text: 'rows'.")


def _whole_number(context: Context, value: Value, at: ast.AST) -> int:
    if isinstance(value, Constant) and isinstance(value.value, int):
        return value.value
    raise context.error(at, "this number is not known when the kernel is translated.", "write it as a whole number.")


def _bytes(context: Context, value: Value, at: ast.AST) -> n.Expr:
    return of.typed(context, value, at, DType.U32).expr


def _whole_array(context: Context, value: Value, at: ast.AST, *, reads: bool, writes: bool) -> str:
    """The buffer of an array that is used as a whole, so it lies in memory in C order."""
    if not isinstance(value, ArrayRef):
        raise context.error(at, f"this takes a whole array, not {of.described(value)}.", "name the array.")
    if (reads and not value.reads) or (writes and not value.writes):
        verb = "read" if reads and not value.reads else "written"
        raise context.error(at, f"'{value.name}' is {verb} here.", f"declare it InOut[{value.dtype}].")
    context.writer.whole.add(value.buffer)
    return value.buffer


# How each parameter of a statement-like function is translated.
_OPERANDS: Final[dict[str, Callable[[Context, Value, ast.AST], Any]]] = {
    "source": partial(_whole_array, reads=True, writes=False),
    "destination": partial(_whole_array, reads=False, writes=True),
    "array": partial(_whole_array, reads=True, writes=True),
    "offset": _bytes,
    "source_offset": _bytes,
    "destination_offset": _bytes,
    "size": _bytes,
    "address": _bytes,
    "tag": _text,
    "group": _text,
    "op": _reduction,
    "root": _whole_number,
}
_STATEMENTS: Final[dict[str, Callable[..., n.Stmt]]] = {
    "trap": n.Trap,
    "resume": n.Resume,
    "async_load": n.AsyncLoad,
    "async_store": n.AsyncStore,
    "async_wait": n.AsyncWait,
    "copy_bytes": n.CopyBytes,
    "all_reduce": n.AllReduce,
    "all_gather": n.AllGather,
    "reduce_scatter": n.ReduceScatter,
    "broadcast": n.Broadcast,
}


def _statement(context: Context, target: Intrinsic, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    """A function that is a statement of the program, with the same operands in the same order."""
    names = zip(target.parameters, values, at, strict=True)
    operands = [_OPERANDS[name](context, value, where) for name, value, where in names]
    context.emit(_STATEMENTS[target.name](*operands), node)
    return NOTHING


def _indirect_dispatch(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    counts = _whole_array(context, values[0], at[0], reads=True, writes=False)
    first = _whole_number(context, values[1], at[1]) if len(values) > 1 else 0
    statement = n.IndirectDispatch(counts, first * DType.U32.bytes)
    if context.caller is None and len(context.frames) == 1 and not context.writer.body:
        # It comes before what is loaded where the program begins.
        context.writer.place(statement, context.span(node))
        context.writer.prologue.insert(0, statement)
    else:
        context.emit(statement, node)
    return NOTHING


def _operation(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    """A composite operation of the IR; its body may do anything, so it is evaluated where it stands."""
    name = _text(context, values[0], at[0])
    operation = lookup_op(name)
    if operation is None:
        raise context.error(
            at[0], f"no operation '{name}' is registered.", "register it: vyre.ir.extensions.register_op."
        )
    if len(values) - 1 != len(operation.parameters):
        names = ", ".join(f"{parameter}: {dtype}" for parameter, dtype in operation.parameters)
        raise context.error(node, f"'{name}' was given {len(values) - 1} values.", f"it takes ({names}).")
    operands = [
        of.typed(context, value, where, dtype)
        for value, where, (_, dtype) in zip(values[1:], at[1:], operation.parameters, strict=True)
    ]
    called = n.Call(name, tuple(operand.expr for operand in operands))
    return combined(called, operation.result_type, *operands, reads=True, acts=True)


def _opaque(context: Context, values: list[Value], at: Nodes, node: ast.Call) -> Value:
    kind = _text(context, values[0], at[0])
    payload = values[1].object if isinstance(values[1], Known) else None
    if not isinstance(payload, bytes):
        raise context.error(at[1], f"{of.described(values[1])} is no payload.", "write bytes: b'...'.")
    if len(values) == 3:
        dtype = _type(context, values[2], at[2])
        return Scalar(n.OpaqueExpr(kind, payload), dtype, reads=True, acts=True)
    context.emit(n.OpaqueStmt(kind, payload), node)
    return NOTHING


_SPECIAL: Final[dict[str, Callable[[Context, list[Value], Nodes, ast.Call], Value]]] = {
    "select": _select,
    "fma": _fma,
    "bitcast": _bitcast,
    "shared": _shared,
    "subgroup_ballot": _ballot,
    "subgroup_shuffle": _shuffle,
    "subgroup_reduce": _reduce,
    "call": _operation,
    "opaque": _opaque,
    "indirect_dispatch": _indirect_dispatch,
}
