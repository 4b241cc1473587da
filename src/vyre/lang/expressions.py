"""How is a Python expression translated? Operands in Python's order; what has no effect may be evaluated early.

An expression becomes one expression of the program, where that is possible. Where it is not (a call that is inlined, a
part that must not be evaluated always), statements are written before it, and what Python would have evaluated before
them is kept in variables.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from types import ModuleType

from vyre.ir import nodes as n
from vyre.ir.nodes import Stmt
from vyre.lang import operands as of
from vyre.lang.calls import apply, arranged
from vyre.lang.context import PLAIN_FUNCTIONS, Context
from vyre.lang.elements import dimension, find_element, load
from vyre.lang.functions import Function
from vyre.lang.tasks import Task
from vyre.lang.values import ArrayRef, Constant, Items, Known, Number, Scalar, Value, combined, each_part, literal
from vyre.semantics.types import DType


def expression(context: Context, node: ast.expr) -> Task[Value]:
    """What an expression gives."""
    value: Value
    match node:
        case ast.Constant(number):
            value = _number(context, number, node)
        case ast.Name():
            value = context.lookup(node)
        case ast.BinOp(left, operator, right):
            first, second = yield sequence(context, (left, right))
            value = of.binary(context, type(operator), first, second, (left, right), node)
        case ast.UnaryOp():
            value = yield _unary(context, node)
        case ast.BoolOp():
            value = yield _short_circuit(context, node)
        case ast.Compare():
            value = yield _comparison(context, node)
        case ast.IfExp():
            value = yield _choice(context, node)
        case ast.Subscript():
            value = yield _item(context, node)
        case ast.Attribute():
            value = yield _attribute(context, node)
        case ast.Tuple(items):
            value = Items(tuple((yield sequence(context, items))))
        case ast.Call():
            value = yield _call(context, node)
        case _:
            raise context.error(
                node, f"{type(node).__name__} is no part of the language.", "write it with plain operators."
            )
    if isinstance(value, Scalar):
        context.writer.place(value.expr, context.span(node))
    return value


def sequence(context: Context, nodes: Sequence[ast.expr]) -> Task[list[Value]]:
    """What several expressions give, evaluated one after the other."""
    body = context.writer.body
    values: list[Value] = []
    ends: list[int] = []
    for node in nodes:
        values.append((yield expression(context, node)))
        ends.append(len(body))
    for at in reversed(range(len(values))):
        values[at] = kept_before(context, values[at], ends[at], nodes[at])
    return values


def kept_before(context: Context, value: Value, end: int, node: ast.AST) -> Value:
    """A value as it was when the list ended there: in a variable, if what was written since could tell."""
    body = context.writer.body
    return value if end == len(body) else each_part(value, lambda part: _kept(context, part, end, node))


def _kept(context: Context, value: Scalar, end: int, node: ast.AST) -> Scalar:
    if value.is_fixed:
        return value
    name = context.writer.fresh_name("before")
    kept = n.Let(name, value.expr)
    context.writer.place(kept, context.span(node))
    context.writer.body.insert(end, kept)
    return Scalar(n.Var(name), value.dtype)


def captured(context: Context, task: Task[Value]) -> Task[tuple[Value, list[Stmt]]]:
    """What an expression's translation gives, and the statements that have to be run before it."""
    outer = context.writer.body
    inner: list[Stmt] = []
    context.writer.body = inner
    value = yield task
    context.writer.body = outer
    return value, inner


def indices_of(context: Context, node: ast.Subscript) -> list[ast.expr]:
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if any(isinstance(index, ast.Slice) for index in indices):
        raise context.error(
            node, "a kernel works on elements, not on slices.", "loop over the elements with range(...)."
        )
    return indices


def _number(context: Context, number: object, node: ast.Constant) -> Value:
    match number:
        case bool():
            return literal(number, DType.BOOL)
        case int() | float():
            return Constant(number)
        case str() | bytes():
            return Known(number)
    raise context.error(node, f"{number!r} is no number.", "use whole numbers, floats, True and False.")


def _unary(context: Context, node: ast.UnaryOp) -> Task[Value]:
    value = yield expression(context, node.operand)
    match node.op:
        case ast.Not():
            return of.unary(context, "lnot", of.condition(context, value, node.operand), node, "not")
        case ast.UAdd():
            return value if isinstance(value, Number) else of.typed(context, value, node.operand)
        case ast.USub() if isinstance(value, Number):
            return of.negated(value)
        case ast.Invert() if isinstance(value, Constant):
            if not isinstance(value.value, int):
                raise context.error(node, "~ is not defined for floats.", "use a whole number.")
            # The other bits are those of the type that it meets, which only a typed value knows.
            raise context.error(node, "~ of a number depends on its type.", f"say it: ~u32({value.value}).")
        case ast.USub():
            return of.unary(context, "neg", of.typed(context, value, node.operand), node, "-")
        case _:
            return of.unary(context, "not", of.typed(context, value, node.operand), node, "~")


def _short_circuit(context: Context, node: ast.BoolOp) -> Task[Scalar]:
    is_and = isinstance(node.op, ast.And)
    value = yield expression(context, node.values[0])
    left = of.condition(context, value, node.values[0])
    for right in node.values[1:]:
        left = _joined(context, left, (yield captured(context, expression(context, right))), is_and, right)
    return left


def _joined(context: Context, left: Scalar, right: tuple[Value, list[Stmt]], is_and: bool, node: ast.expr) -> Scalar:
    """Both or either of two conditions; the right one is evaluated where the left does not decide."""
    value, before = right
    second = of.condition(context, value, node)
    if not before and _is_harmless(context, second):
        name = "and" if is_and else "or"
        return combined(n.BinOp(name, left.expr, second.expr), DType.BOOL, left, second)
    kept = context.bind(left, "both" if is_and else "either", node)
    variable = kept.expr
    assert isinstance(variable, n.Var)  # that is what bind gives
    last = n.Assign(variable.name, second.expr)
    context.writer.place(last, context.span(node))
    goes_on = variable if is_and else n.UnOp("lnot", variable)
    context.emit(n.If(goes_on, (*before, last)), node)
    return Scalar(n.Var(variable.name), DType.BOOL)


def _is_harmless(context: Context, value: Scalar) -> bool:
    """Whether evaluating a value where Python would not is something that nobody can tell."""
    return not value.acts and not (context.writer.strict and value.reads)


def _comparison(context: Context, node: ast.Compare) -> Task[Value]:
    at = node.left, node.comparators[0]
    left, right = yield sequence(context, at)
    if len(node.ops) > 1:
        left, right = (
            context.reusable(value, "between", where) for value, where in zip((left, right), at, strict=True)
        )
    compared = of.binary(context, type(node.ops[0]), left, right, at, node)
    if len(node.ops) == 1:
        return compared
    rest = yield captured(context, _links(context, node, 1, right))
    return _joined(context, of.condition(context, compared, node), rest, True, node)


def _links(context: Context, node: ast.Compare, number: int, left: Value) -> Task[Value]:
    """The comparisons of a chain from one on; what is compared twice is evaluated once."""
    at = node.comparators[number - 1], node.comparators[number]
    right = yield expression(context, at[1])
    is_last = number == len(node.ops) - 1
    if not is_last:
        right = context.reusable(right, "between", at[1])
    compared = of.binary(context, type(node.ops[number]), left, right, at, node)
    if is_last:
        return compared
    rest = yield captured(context, _links(context, node, number + 1, right))
    return _joined(context, of.condition(context, compared, node), rest, True, node)


def _choice(context: Context, node: ast.IfExp) -> Task[Value]:
    tested = yield expression(context, node.test)
    test = of.condition(context, tested, node.test)
    yes, before_yes = yield captured(context, expression(context, node.body))
    no, before_no = yield captured(context, expression(context, node.orelse))
    if isinstance(yes, Number) and isinstance(no, Number) and not before_yes and not before_no:
        steps = (*of.steps_of(yes), *of.steps_of(no))
        if all(isinstance(step, Constant) or _is_harmless(context, step) for step in steps):
            return of.choice(context, test, yes, no, node.test)
    first, second = of.common(context, yes, no, (node.body, node.orelse), node, "the conditional expression")
    if not before_yes and not before_no and _is_harmless(context, first) and _is_harmless(context, second):
        chosen = n.Select(test.expr, first.expr, second.expr)
        return combined(chosen, first.dtype, test, first, second)
    kept = context.bind(literal(0, first.dtype), "chosen", node)
    variable = kept.expr
    assert isinstance(variable, n.Var)  # that is what bind gives
    arms = []
    for before, value, where in ((before_yes, first, node.body), (before_no, second, node.orelse)):
        last = n.Assign(variable.name, value.expr)
        context.writer.place(last, context.span(where))
        arms.append((*before, last))
    context.emit(n.If(test.expr, *arms), node)
    return Scalar(n.Var(variable.name), first.dtype)


def _call(context: Context, node: ast.Call) -> Task[Value]:
    callee = yield expression(context, node.func)
    target = callee.object if isinstance(callee, Known) else None
    if target is None or isinstance(target, (str, ModuleType)):
        raise context.error(
            node.func, f"{of.described(callee)} cannot be called.", "call a function of vyre, or a type."
        )
    if isinstance(target, type) and id(target) not in PLAIN_FUNCTIONS:
        raise context.unusable(target, target.__name__, node.func)
    at = arranged(context, target, node)
    values = yield sequence(context, at)
    if isinstance(target, Function):
        result: Value = yield context.writer.inline(context, target, values, at, node)
        return result
    return apply(context, target, values, at, node)


def _item(context: Context, node: ast.Subscript) -> Task[Value]:
    at = indices_of(context, node)
    owner, *given = yield sequence(context, (node.value, *at))
    match owner:
        case ArrayRef():
            return load(context, find_element(context, owner, given, at, node), node)
        case Items(items):
            return items[_constant_index(context, given, len(items), node)]
        case _:
            raise context.error(node, f"{of.described(owner)} has no elements.", "index an array, or a tuple.")


def _constant_index(context: Context, given: Sequence[Value], count: int, node: ast.AST) -> int:
    match list(given):
        case [Constant(int() as index)] if -count <= index < count:
            return index
    raise context.error(
        node, "a tuple's index is a number that is known here.", f"write a number from 0 to {count - 1}."
    )


def _attribute(context: Context, node: ast.Attribute) -> Task[Value]:
    owner = yield expression(context, node.value)
    match owner:
        case Known((ModuleType() | type()) as outside):
            return context.attribute(outside, node)
        case ArrayRef() if node.attr == "shape":
            return Items(tuple(dimension(context, owner, axis) for axis in range(len(owner.shape))))
        case ArrayRef():
            raise context.error(
                node, f"an array of a kernel has no '{node.attr}'.", "use its elements, its len and its shape."
            )
    raise context.error(
        node, f"{of.described(owner)} has no '{node.attr}' here.", "use names of modules, and array.shape."
    )
