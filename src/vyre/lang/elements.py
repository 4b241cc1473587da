"""Where is an element of an array? Its index in the buffer, and whether it is one of the array's own.

An access outside the array along any axis is one outside the buffer: loads give zero, stores vanish. So what an access
means does not depend on how the array lies in memory.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import partial, reduce
from typing import Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir.limits import MAX_ELEMENTS
from vyre.lang.context import Context
from vyre.lang.operands import typed
from vyre.lang.values import ArrayRef, Constant, Scalar, Slot, Value, combined, literal
from vyre.semantics.operators import BINARY
from vyre.semantics.types import DType

# No buffer has an element there.
_NOWHERE: Final = MAX_ELEMENTS


class Element(msgspec.Struct, frozen=True, eq=False):
    """An element; ``is_inside`` is None where the buffer's own bounds are the array's."""

    array: ArrayRef
    index: Scalar
    is_inside: Scalar | None

    @property
    def guarded_index(self) -> Scalar:
        """The index, or one outside the buffer."""
        if self.is_inside is None:
            return self.index
        return _select(self.is_inside, self.index, literal(_NOWHERE, DType.U32))


def dimension(context: Context, array: ArrayRef, axis: int) -> Scalar | Constant:
    """The number of elements along an axis; one that is declared is a number like those of the text."""
    match array.shape[axis]:
        case None:
            return Scalar(n.BufLen(array.buffer), DType.U32)
        case Slot() as slot:
            return context.writer.slot(slot)
        case number:
            return Constant(number)


def find_element(
    context: Context, array: ArrayRef, given: Sequence[Value], at: Sequence[ast.expr], node: ast.AST
) -> Element:
    """The element at some indices, which stand in the source at ``at``."""
    rank = len(array.shape)
    if len(given) != rank:
        axes = ", ".join("ijklmnop"[:rank])
        has, gives = _count(rank, "axis", "axes"), _count(len(given), "index", "indices")
        message = f"'{array.name}' has {has}, and this gives {gives}."
        raise context.error(node, message, f"write {array.name}[{axes}].")
    indices = [_index(context, value, where, array) for value, where in zip(given, at, strict=True)]
    if array.strides is None and rank == 1:
        return Element(array, indices[0], None)
    indices = [context.held(index, "index", where) for index, where in zip(indices, at, strict=True)]
    sizes = [typed(context, dimension(context, array, axis), node, DType.U32) for axis in range(rank)]
    inside = reduce(_both, [_below(index, size) for index, size in zip(indices, sizes, strict=True)])
    if array.strides is None:
        flat = indices[0]
        for index, size in zip(indices[1:], sizes[1:], strict=True):
            flat = _plus(_times(flat, size), index)
    else:
        *strides, first = [None if slot is None else context.writer.slot(slot) for slot in array.strides]
        steps = [index if by is None else _times(index, by) for index, by in zip(indices, strides, strict=True)]
        flat = reduce(_plus, steps if first is None else [first, *steps])
    return Element(array, flat, inside)


def load(context: Context, element: Element, node: ast.AST) -> Scalar:
    """The element's value."""
    array = element.array
    if not array.reads:
        raise context.error(
            node,
            f"'{array.name}' is Out: a kernel does not read it.",
            f"declare it InOut[{array.dtype}] to read it too.",
        )
    if element.is_inside is None or context.writer.strict:
        index = element.guarded_index
        return combined(n.Load(array.buffer, index.expr), array.dtype, index, reads=True)
    # The load itself is harmless, and with a plain index it is quick.
    found = combined(n.Load(array.buffer, element.index.expr), array.dtype, element.index, reads=True)
    return _select(element.is_inside, found, literal(0, array.dtype))


def store(context: Context, element: Element, value: Scalar, node: ast.AST) -> None:
    """Writes the element."""
    array = element.array
    if not array.writes:
        raise context.error(
            node,
            f"'{array.name}' is In: a kernel does not write it.",
            f"declare it InOut[{array.dtype}] or Out[{array.dtype}].",
        )
    index = element.index
    if (value.acts and not index.is_fixed) or (index.acts and not value.is_fixed):
        # Python evaluates the value first, a store its index.
        value = context.bind(value, "value", node)
    if element.is_inside is None or context.writer.strict:
        context.emit(n.Store(array.buffer, element.guarded_index.expr, value.expr), node)
        return
    if value.acts:
        value = context.bind(value, "value", node)
    inner = n.Store(array.buffer, index.expr, value.expr)
    context.writer.place(inner, context.span(node))
    context.emit(n.If(element.is_inside.expr, (inner,)), node)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _index(context: Context, value: Value, node: ast.AST, array: ArrayRef) -> Scalar:
    if isinstance(value, Constant) and isinstance(value.value, int) and value.value < 0:
        fix = f"count from the end yourself: {array.name}[len({array.name}) - {-value.value}]."
        raise context.error(node, "an index below zero is outside every array.", fix)
    return typed(context, value, node, DType.U32)


def _select(condition: Scalar, left: Scalar, right: Scalar) -> Scalar:
    return combined(n.Select(condition.expr, left.expr, right.expr), left.dtype, condition, left, right)


def _apply(name: str, left: Scalar, right: Scalar) -> Scalar:
    return combined(n.BinOp(name, left.expr, right.expr), BINARY[name].result_type(left.dtype), left, right)


_plus, _times, _below, _both = (partial(_apply, name) for name in ("add", "mul", "lt", "and"))
