"""How is a Python statement translated? Names become variables where they live, loops count passes."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from vyre.ir import nodes as n
from vyre.ir.nodes import Stmt
from vyre.lang import operands as of
from vyre.lang.annotations import evaluate, scalar_type
from vyre.lang.context import Context, Frame, Loop, Variable
from vyre.lang.elements import find_element, load, store
from vyre.lang.expressions import captured, expression, indices_of, kept_before, sequence
from vyre.lang.tasks import Task
from vyre.lang.values import (
    NOTHING,
    ArrayRef,
    Constant,
    Items,
    Known,
    Nothing,
    Number,
    Scalar,
    Value,
    a,
    is_literal,
    literal,
)
from vyre.semantics.types import DType

Statements = list[ast.stmt]


def block(context: Context, statements: Statements, *first: Stmt) -> Task[tuple[Stmt, ...]]:
    """The translation of a list that is a scope of its own."""
    outer = context.writer.body
    context.writer.body = inner = [*first]
    context.frames.append(Frame(id(statements), inner))
    yield fill(context, statements)
    context.frames.pop()
    context.writer.body = outer
    return tuple(inner)


def fill(context: Context, statements: Statements) -> Task[None]:
    """Translates statements into the list that is being written."""
    frame = context.frames[-1]
    for statement in statements:
        frame.start = len(frame.body)
        yield _statement(context, statement)


def _statement(context: Context, node: ast.stmt) -> Task[None]:
    match node:
        case ast.Assign():
            yield _assign(context, node)
        case ast.AnnAssign():
            yield _annotated(context, node)
        case ast.AugAssign():
            yield _augmented(context, node)
        case ast.Expr():
            yield _discard(context, node)
        case ast.If():
            tested = yield expression(context, node.test)
            test = of.condition(context, tested, node.test)
            then = yield block(context, node.body)
            otherwise = yield block(context, node.orelse)
            context.emit(n.If(test.expr, then, otherwise), node)
        case ast.For():
            yield _for(context, node)
        case ast.While():
            yield _while(context, node)
        case ast.Break():
            context.emit(n.Break(), node)
        case ast.Continue():
            context.emit(n.Continue(), node)
        case ast.Return():
            yield _return(context, node)
        case ast.Pass():
            pass
        case _:
            raise context.error(
                node, f"{type(node).__name__} is no part of the language.", "write it with plain statements."
            )


def _assign(context: Context, node: ast.Assign) -> Task[None]:
    target = node.targets[0]
    context.wanted_name = target.id if isinstance(target, ast.Name) else None
    value = yield expression(context, node.value)
    context.wanted_name = None
    if len(node.targets) > 1:
        value = context.settled(value, "value", node.value)
    for target in node.targets:
        yield _give(context, target, value, node)


def _give(context: Context, target: ast.expr, value: Value, node: ast.stmt) -> Task[None]:
    """Gives a value to what stands on the left of an assignment."""
    match target:
        case ast.Name():
            give_name(context, target, value, node)
        case ast.Subscript():
            end = len(context.writer.body)
            array, given = yield _target(context, target)
            value = kept_before(context, value, end, node)
            element = find_element(context, array, given, indices_of(context, target), target)
            store(context, element, _fitting(context, array, value, node), node)
        case ast.Tuple(targets):
            yield _unpack(context, targets, value, node)
        case _:
            raise context.error(target, "this cannot be assigned to.", "assign to a name or to an element of an array.")


def _fitting(context: Context, array: ArrayRef, value: Value, node: ast.stmt) -> Scalar:
    at: ast.AST = getattr(node, "value", None) or node
    if isinstance(value, Scalar) and value.dtype is not array.dtype:
        raise context.error(
            at,
            f"'{array.name}' holds {array.dtype}, and this is {a(value.dtype)}.",
            of.cast_fix(context, at, array.dtype),
        )
    return of.typed(context, value, at, array.dtype)


def _target(context: Context, target: ast.Subscript) -> Task[tuple[ArrayRef, list[Value]]]:
    owner, *given = yield sequence(context, (target.value, *indices_of(context, target)))
    if not isinstance(owner, ArrayRef):
        raise context.error(
            target, f"{of.described(owner)} has no elements to assign.", "assign to an element of an array."
        )
    return owner, given


def _unpack(context: Context, targets: list[ast.expr], value: Value, node: ast.stmt) -> Task[None]:
    if not isinstance(value, Items):
        raise context.error(
            node, f"{of.described(value)} cannot be unpacked.", "give as many values as there are names."
        )
    if len(value.items) != len(targets):
        raise context.error(
            node, f"{len(value.items)} values are given to {len(targets)} names.", "give each name one."
        )
    # All of the right side is evaluated before any of the left changes.
    changes = not all(isinstance(target, ast.Name) and context.is_new(target.id) for target in targets)
    items = [context.settled(item, "value", node) if changes else item for item in value.items]
    for target, item in zip(targets, items, strict=True):
        yield _give(context, target, item, node)


def give_name(context: Context, target: ast.Name, value: Value, node: ast.AST, dtype: DType | None = None) -> None:
    """Gives a local name a value; the first one decides its type."""
    name, frame = target.id, context.frame_of(target.id)
    variable = context.variables.get((frame.key, name))
    at: ast.AST = getattr(node, "value", None) or node
    if isinstance(value, (ArrayRef, Known)):
        if variable is not None or (frame.key, name) in context.arrays:
            raise context.error(node, f"'{name}' has another value already.", "use a name of its own for it.")
        context.arrays[frame.key, name] = value
        return
    if isinstance(value, (Items, Nothing)):
        fix = "unpack it: a, b = ..." if isinstance(value, Items) else "call it on a line of its own."
        raise context.error(at, f"'{name}' cannot hold {of.described(value)}.", fix)
    if (frame.key, name) in context.arrays:
        raise context.error(node, f"'{name}' is an array or a type already.", "use another name.")
    wanted = variable.dtype if variable is not None else dtype
    if isinstance(value, Scalar) and wanted not in (None, value.dtype):
        fix = of.start_fix(context, target, value.dtype) or of.cast_fix(context, at, wanted)
        raise context.error(at, f"'{name}' is {a(wanted)}, and this is {a(value.dtype)}.", fix)
    if dtype is not None and wanted is not dtype:
        raise context.error(node, f"'{name}' is {a(wanted)} already.", "give another name to what has another type.")
    scalar = of.typed(context, value, at, wanted)
    if variable is not None:
        context.emit(n.Assign(variable.name, scalar.expr), node)
        return
    is_number = dtype is None and isinstance(value, Number)
    context.declare(frame, name, scalar.dtype, scalar.expr, node, is_number=is_number)


def _annotated(context: Context, node: ast.AnnAssign) -> Task[None]:
    dtype = scalar_type(evaluate(context.source, node.annotation))
    if dtype is None:
        raise context.error(node.annotation, "this is no type of a variable.", "use a type of vyre, such as f32.")
    if not isinstance(node.target, ast.Name):
        raise context.error(node.target, "only a name can be given a type.", "leave the type out.")
    if node.value is None:
        raise context.error(
            node, f"'{node.target.id}' gets a type and no value.", f"write {node.target.id}: {dtype} = 0."
        )
    value = yield expression(context, node.value)
    give_name(context, node.target, value, node, dtype)


def _augmented(context: Context, node: ast.AugAssign) -> Task[None]:
    target, kind = node.target, type(node.op)
    at = target, node.value
    if isinstance(target, ast.Name):
        old, value = yield sequence(context, (ast.copy_location(ast.Name(target.id, ast.Load()), target), node.value))
        give_name(context, target, of.binary(context, kind, old, value, at, node), node)
    elif isinstance(target, ast.Subscript):
        array, given = yield _target(context, target)
        places = indices_of(context, target)
        given = [context.reusable(value, "index", place) for value, place in zip(given, places, strict=True)]
        element = find_element(context, array, given, places, target)
        before, end = load(context, element, target), len(context.writer.body)
        value = yield expression(context, node.value)
        old = kept_before(context, before, end, target)
        result = of.binary(context, kind, old, value, at, node)
        store(context, element, of.typed(context, result, node, array.dtype), node)
    else:
        raise context.error(target, "this cannot be assigned to.", "assign to a name or to an element of an array.")


def _discard(context: Context, node: ast.Expr) -> Task[None]:
    if isinstance(node.value, ast.Constant):
        return
    value = yield expression(context, node.value)
    if isinstance(value, Scalar) and value.acts:
        context.bind(value, "unused", node)
    elif not isinstance(node.value, ast.Call):
        raise context.error(node, "this value goes nowhere.", "assign it, or remove it.")


def _for(context: Context, node: ast.For) -> Task[None]:
    callee = (yield expression(context, node.iter.func)) if isinstance(node.iter, ast.Call) else None
    if not (isinstance(callee, Known) and callee.object is range and isinstance(node.iter, ast.Call)):
        raise context.error(node.iter, "a for loop of a kernel counts.", "write for i in range(...): and index with i.")
    if not isinstance(node.target, ast.Name):
        raise context.error(node.target, "a for loop has one name.", "write for i in range(...):")
    arguments = node.iter.args
    if node.iter.keywords or not 1 <= len(arguments) <= 3 or any(isinstance(a, ast.Starred) for a in arguments):
        raise context.error(
            node.iter, "range takes one to three numbers.", "write range(stop) or range(start, stop, step)."
        )
    values: list[Value] = yield sequence(context, arguments)
    step = _step(context, values[2], arguments[2]) if len(values) == 3 else 1
    typed_at = next((k for k, value in enumerate(values[:2]) if not isinstance(value, Number)), None)
    dtype = DType.U32 if typed_at is None else of.typed(context, values[typed_at], arguments[typed_at]).dtype
    if not dtype.is_integer:
        raise context.error(node.iter, f"range counts whole numbers, not {dtype}.", "cast the bounds: u32(...).")
    bounds = [of.typed(context, value, at, dtype) for value, at in zip(values[:2], arguments[:2], strict=True)]
    start, stop = bounds if len(bounds) == 2 else (literal(0, dtype), bounds[0])
    loop = Loop()
    if dtype is DType.U32 and step == 1:
        yield _count(context, node, node.target, start, stop, loop)
    else:
        yield _stride(context, node, node.target, start, stop, step, loop)
    _leave(context, loop, node)


def _step(context: Context, value: Value, node: ast.AST) -> int:
    match value:
        case Constant(int() as step) if step != 0:
            return step
    raise context.error(node, "the step of a range is a number that is known here, and not 0.", "write it as a number.")


def _count(context: Context, node: ast.For, target: ast.Name, start: Scalar, stop: Scalar, loop: Loop) -> Task[None]:
    """A loop by ones over u32, which the program has itself."""
    key = id(node.body)
    lives_here = target.id in context.scopes.homes[key] and not context.scopes.rewritten[key]
    counter = context.writer.fresh_name(target.id, own=lives_here)
    if lives_here:
        context.variables[key, target.id] = Variable(counter, DType.U32)
        body = yield _loop_body(context, node, loop)
    else:
        body = yield _loop_body(context, node, loop, target, Scalar(n.Var(counter), DType.U32))
    context.emit(n.Loop(counter, start.expr, stop.expr, body), node)


def _stride(
    context: Context, node: ast.For, target: ast.Name, start: Scalar, stop: Scalar, step: int, loop: Loop
) -> Task[None]:
    """A loop of another type or step: the number of its passes is known before, and counted."""
    dtype, wide = start.dtype, start.dtype.unsigned
    first = start if is_literal(start) else context.bind(start, "start", node.iter)
    last = stop if is_literal(stop) else context.bind(stop, "stop", node.iter)
    low, high = (first, last) if step > 0 else (last, first)
    one, size = n.lit(1, wide), of.fitting(context, abs(step), wide, node.iter)
    distance = n.BinOp("sub", _as(high, wide), _as(low, wide))
    passes = n.BinOp("add", n.BinOp("div", n.BinOp("sub", distance, one), size.expr), one)
    some = n.Select(n.BinOp("lt", low.expr, high.expr), passes, n.lit(0, wide))
    counter = context.writer.fresh_name("pass")
    moved = n.BinOp("mul", _as(Scalar(n.Var(counter), wide if wide.bits == 64 else DType.U32), dtype), _as(size, dtype))
    value = Scalar(n.BinOp("add" if step > 0 else "sub", first.expr, moved), dtype, 4)
    if wide.bits < 64:
        body = yield _loop_body(context, node, loop, target, value)
        context.emit(n.Loop(counter, n.lit(0), _as(Scalar(some, wide), DType.U32), body), node)
        return
    # The program's own loops count in 32 bits.
    total = context.bind(Scalar(some, wide), "passes", node.iter)
    context.emit(n.Let(counter, n.lit(0, wide)), node)
    context.emit(n.Let(done := context.writer.fresh_name("done"), n.lit(0, wide)), node)
    next_pass = (n.Assign(counter, n.Var(done)), n.Assign(done, n.BinOp("add", n.Var(done), one)))
    body = yield _loop_body(context, node, loop, target, value, next_pass)
    context.emit(n.While(n.BinOp("lt", n.Var(done), total.expr), body), node)


def _as(value: Scalar, dtype: DType) -> n.Expr:
    return value.expr if value.dtype is dtype else n.Cast(dtype, value.expr)


def _loop_body(
    context: Context,
    node: ast.For | ast.While,
    loop: Loop,
    target: ast.Name | None = None,
    value: Scalar | None = None,
    first: Sequence[Stmt] = (),
) -> Task[tuple[Stmt, ...]]:
    """The body of a loop, which begins with giving the loop's name its value where that is needed."""
    outer = context.writer.body
    context.writer.body = inner = [*first]
    context.loops.append(loop)
    context.frames.append(Frame(id(node.body), inner, len(inner)))
    if target is not None and value is not None:
        give_name(context, target, value, target)
    yield fill(context, node.body)
    context.frames.pop()
    context.loops.pop()
    context.writer.body = outer
    return tuple(inner)


def _while(context: Context, node: ast.While) -> Task[None]:
    loop = Loop()
    tested, before = yield captured(context, expression(context, node.test))
    test = of.condition(context, tested, node.test)
    body = yield _loop_body(context, node, loop)
    if before:
        leaves = n.If(n.UnOp("lnot", test.expr), (n.Break(),))
        context.writer.place(leaves, context.span(node.test))
        context.emit(n.While(n.lit(True), (*before, leaves, *body)), node)
    else:
        context.emit(n.While(test.expr, body), node)
    _leave(context, loop, node)


def _leave(context: Context, loop: Loop, node: ast.AST) -> None:
    """Behind a loop in which the function returned: leaves the next loop too."""
    if loop.returned is not None:
        context.emit(n.If(n.Var(loop.returned), (n.Break(),)), node)


def _return(context: Context, node: ast.Return) -> Task[None]:
    is_bare = node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None)
    if context.results is None:
        if not is_bare:
            raise context.error(node, "a kernel returns nothing.", "store the result in an Out or InOut array.")
        context.emit(n.Return(), node)
        return
    value: Value = NOTHING
    if not is_bare and node.value is not None:
        value = yield expression(context, node.value)
    context.results.give(context, value, node)
