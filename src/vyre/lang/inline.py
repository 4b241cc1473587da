"""How is a function put in the place of its call? Its body is translated there; returns assign what the call gives."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from typing import Final

from vyre.ir import nodes as n
from vyre.lang import operands as of
from vyre.lang.annotations import ArrayType, Parameter, evaluate, scalar_type
from vyre.lang.context import Capture, Context, Frame, Loop, Variable, Writer
from vyre.lang.expressions import expression
from vyre.lang.functions import Function
from vyre.lang.scopes import Statements, find_scopes
from vyre.lang.source import Source
from vyre.lang.statements import block, fill
from vyre.lang.syntax import check_syntax
from vyre.lang.tasks import Task
from vyre.lang.values import NOTHING, ArrayRef, Items, Nothing, Number, Scalar, Value, a
from vyre.semantics.types import DType

_NUMBERS: Final = (int, float)


class Results:
    """What a function returns while it is inlined: variables that every return assigns.

    With ``leaves``, returns leave the loop that the body was put in.
    """

    def __init__(self, declared: DType | None, leaves: bool) -> None:
        self.declared = declared
        self.leaves = leaves
        self.variables: list[Variable] | None = None
        self.is_tuple = False
        self.flag: str | None = None

    def give(self, context: Context, value: Value, node: ast.Return) -> None:
        given = list(value.items) if isinstance(value, Items) else [] if isinstance(value, Nothing) else [value]
        at: ast.AST = node.value or node
        if self.variables is None:
            self.is_tuple = isinstance(value, Items)
            typed = [of.typed(context, one, at, self.declared) for one in given]
            self.variables = [Variable(context.writer.fresh_name("result"), one.dtype) for one in typed]
        if len(given) != len(self.variables) or self.is_tuple != isinstance(value, Items):
            raise context.error(
                node, "the returns of this function give different numbers of values.", "give the same."
            )
        for variable, one in zip(self.variables, given, strict=True):
            if isinstance(one, Scalar) and one.dtype is not variable.dtype:
                name = context.source.function.__name__
                raise context.error(
                    at,
                    f"'{name}' returned {a(variable.dtype)} before, and this is {a(one.dtype)}.",
                    f"cast one of them, or say what it returns: def {name}(...) -> {one.dtype}:",
                )
            context.emit(n.Assign(variable.name, of.typed(context, one, at, variable.dtype).expr), node)
        if self.leaves:
            if len(context.loops) > 1:
                self.flag = self.flag or context.writer.fresh_name("returned")
                context.emit(n.Assign(self.flag, n.lit(True)), node)
                for loop in context.loops[1:]:
                    loop.returned = self.flag
            context.emit(n.Break(), node)

    def declare(self, context: Context, node: ast.AST) -> None:
        """Writes the declarations, before the function's body."""
        for variable in self.variables or ():
            context.emit(n.Let(variable.name, n.lit(0, variable.dtype)), node)
        if self.flag is not None:
            context.emit(n.Let(self.flag, n.lit(False)), node)

    @property
    def value(self) -> Value:
        values = tuple(Scalar(n.Var(one.name), one.dtype) for one in self.variables or ())
        return Items(values) if self.is_tuple else values[0] if values else NOTHING


def inline(
    caller: Context, function: Function, values: Sequence[Value], at: Sequence[ast.AST], node: ast.Call
) -> Task[Value]:
    """Puts a function's body in the place of a call, and gives what it returns."""
    source, name = function.source, function.source.function.__name__
    outer: Context | None = caller
    while outer is not None:
        if outer.source is source:
            raise caller.error(node, f"'{name}' calls itself.", "write the recursion as a loop.")
        outer = outer.caller
    context = enter(caller.writer, source, function.parameters, caller)
    context.site = node
    given = [*values, *_defaults(caller, function.parameters[len(values) :], node)]
    for parameter, value, where in zip(function.parameters, given, [*at, *[node] * len(given)], strict=False):
        _give_parameter(context, caller, parameter, value, where)
    body = context.body
    declared = _declared_result(context, source.tree.returns)
    returns = [found for statement in body for found in ast.walk(statement) if isinstance(found, ast.Return)]
    if not returns or (len(returns) == 1 and returns[0] is body[-1]):
        straight: Value = yield _inline_straight(context, body, returns, declared)
        return straight
    if any(found.value is not None for found in returns) and context.scopes.ends:
        raise context.error(source.tree, f"not every way through '{name}' returns a value.", "end it with a return.")
    results = context.results = Results(declared, leaves=not _returns_last(body))
    if results.leaves:
        context.loops.append(Loop())
    inner = yield block(context, body)
    # The declarations belong to where the call stands.
    results.declare(caller, node)
    if results.leaves:
        caller.emit(n.Loop(context.writer.fresh_name("once"), n.lit(0), n.lit(1), inner), node)
    else:
        caller.emit(n.Block(inner), node)
    return results.value


def _inline_straight(
    context: Context, body: Statements, returns: list[ast.Return], declared: DType | None
) -> Task[Value]:
    """A body that returns at its end, if at all, needs no variable for its result."""
    written = context.writer.body
    context.frames.append(Frame(id(body), written, len(written)))
    yield fill(context, body[: len(body) - len(returns)])
    value: Value = NOTHING
    if returns and returns[0].value is not None:
        value = yield expression(context, returns[0].value)
        if declared is not None:
            value = of.typed(context, value, returns[0].value, declared)
    context.frames.pop()
    return value


def enter(writer: Writer, source: Source, parameters: Sequence[Parameter], caller: Context | None = None) -> Context:
    """The context at the beginning of a function."""
    check_syntax(source)
    body = source.tree.body
    if caller is not None and _returns_last(turned := _with_else(body)):
        body = _as_one_return(turned)
    scopes = find_scopes(body, frozenset(parameter.name for parameter in parameters))
    context = Context(writer, source, scopes, body, caller)
    if scopes.unset:
        name, node = min(scopes.unset.items(), key=lambda item: (item[1].lineno, item[1].col_offset))  # type: ignore[attr-defined]
        raise context.error(
            node, f"'{name}' may have no value here.", f"give '{name}' a value before, on every way here."
        )
    return context


def _defaults(caller: Context, parameters: Sequence[Parameter], node: ast.AST) -> list[Value]:
    values = []
    for parameter in parameters:
        assert parameter.default is not inspect.Parameter.empty  # arranged() asks for all others
        values.append(caller.wrap(parameter.default, Capture({}, parameter.name, parameter.default), node))
    return values


def _give_parameter(context: Context, caller: Context, parameter: Parameter, value: Value, at: ast.AST) -> None:
    match parameter.type:
        case DType() as dtype:
            value = of.typed(caller, value, at, dtype)
        case ArrayType() as wanted:
            if not isinstance(value, ArrayRef) or not _is_such(value, wanted):
                raise caller.error(
                    at,
                    f"parameter '{parameter.name}' is {wanted!r}, and this is {of.described(value)}.",
                    "pass such an array.",
                )
            if (wanted.direction.reads and not value.reads) or (wanted.direction.writes and not value.writes):
                raise caller.error(
                    at,
                    f"parameter '{parameter.name}' is {wanted!r}, and the kernel may not do that with '{value.name}'.",
                    f"declare '{value.name}' InOut in the kernel.",
                )
            value = ArrayRef(
                parameter.name, value.buffer, value.dtype, value.shape, value.strides,
                wanted.direction.reads, wanted.direction.writes,
            )  # fmt: skip
    if parameter.name in context.scopes.written:
        if not isinstance(value, (Scalar, Number)):
            raise caller.error(
                at, f"'{parameter.name}' is assigned in the function, so it takes a number.", "pass a number."
            )
        start = of.typed(caller, value, at)
        variable = Variable(context.writer.fresh_name(parameter.name), start.dtype)
        context.variables[id(context.body), parameter.name] = variable
        caller.emit(n.Let(variable.name, start.expr), at)
    else:
        if not isinstance(value, Scalar) or value.size > 1:
            value = caller.settled(value, parameter.name, at)
        context.parameters[parameter.name] = value


def _is_such(array: ArrayRef, wanted: ArrayType) -> bool:
    """Whether an array has a declared type, rank and sizes."""
    return (array.dtype, len(array.shape)) == (wanted.dtype, wanted.rank) and all(
        size in (None, known) for size, known in zip(wanted.sizes or (), array.shape, strict=False)
    )


def _declared_result(context: Context, node: ast.expr | None) -> DType | None:
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None
    item = evaluate(context.source, node)
    dtype = scalar_type(item)
    if dtype is None and item is not None and not isinstance(item, tuple):
        raise context.error(
            node, f"'{context.source.segment(node)}' is no type of vyre.", "use a type such as f32, or leave it out."
        )
    return dtype


def _with_else(body: Statements) -> Statements:
    """The same, but what follows an `if` that returns stands in its `else`: so the last thing is one `if`."""
    done: Statements = []
    for statement in reversed(body):
        if isinstance(statement, ast.If) and not statement.orelse and done:
            last = statement.body[-1]
            if isinstance(last, ast.Return):
                arms = ast.If(statement.test, statement.body, done[::-1])
                done = [ast.copy_location(arms, statement)]
                continue
        done.append(statement)
    return done[::-1]


def _as_one_return(body: Statements) -> Statements:
    """The same, but if it ends by returning one of several numbers, by one return: they get their type where it is."""
    if not body or not isinstance(body[-1], ast.If):
        return body
    arms: list[tuple[ast.If, ast.expr]] = []
    rest = body[-1:]
    while len(rest) == 1 and isinstance(rest[0], ast.If):
        number = _returned_number(rest[0].body)
        if number is None:
            return body
        arms.append((rest[0], number))
        rest = rest[0].orelse
    value = _returned_number(rest)
    if value is None:
        return body
    for arm, number in reversed(arms):
        value = ast.copy_location(ast.IfExp(arm.test, number, value), arm)
    return [*body[:-1], ast.copy_location(ast.Return(value), body[-1])]


def _returned_number(body: Statements) -> ast.expr | None:
    """What a list returns, if that is all it does, and it is a number or one of several."""
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    pending = [] if value is None else [value]
    while pending:
        match pending.pop():
            case ast.IfExp(_, yes, no):
                pending += [yes, no]
            case ast.Constant(number) | ast.UnaryOp(ast.USub(), ast.Constant(number)) if type(number) in _NUMBERS:
                pass
            case _:
                return None
    return value


def _returns_last(body: Statements) -> bool:
    """Whether every return is the last thing that is done, so that nothing has to be left early."""
    pending, lists = [], [body]
    while lists:
        *others, last = lists.pop() or [ast.Pass()]
        pending += others
        if isinstance(last, ast.If):
            lists += [last.body, last.orelse]
        elif not isinstance(last, ast.Return):
            pending.append(last)
    return not any(isinstance(node, ast.Return) for statement in pending for node in ast.walk(statement))
