"""Calls: which functions a call reaches, what they get, and what comes back.

A call is followed into functions, methods and constructors of the package: by name, through imports and aliases, on
``self``, ``cls`` and ``super()``, and on variables and attributes whose class is plain (see ``classes``). On an object,
overrides in subclasses are followed too, unless there are more than a dozen. Any other call is looked up in ``tables``,
and otherwise its result is as its object and its arguments are. What comes out of a sink is not followed.

Decorators are ignored, except those of ``tables`` that fill parameters from outside. Functions that are passed as
values are not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from taint_analysis import tables
from taint_analysis.flow import (
    HARMLESS,
    ITEMS,
    Call,
    CallTarget,
    SinkCall,
    Source,
    Value,
    item,
    items_value,
    path_value,
    union,
)
from taint_analysis.names import Class, Function, find_method, find_overrides

if TYPE_CHECKING:
    from taint_analysis.expressions import Expressions


class Arguments(NamedTuple):
    """The values of a call's arguments: positional ones with whether they are starred, and keywords, None for
    ``**``."""

    positional: list[tuple[Value, bool]]
    keywords: list[tuple[str | None, Value]]

    @property
    def values(self) -> list[Value]:
        return [*(value for value, _ in self.positional), *(value for _, value in self.keywords)]


def evaluate_call(context: Expressions, node: ast.Call) -> Value:
    """The value of a call."""
    called = node.func
    meaning = context.meaning_of(called)
    own = _own_class(context, called) if meaning is None or isinstance(meaning, tuple) else None
    if own is not None:
        meaning = own
    if isinstance(meaning, (Function, Class, str)):
        arguments = _arguments(context, node)
        if isinstance(meaning, Class):
            return _construct(context, meaning, arguments, node)
        if isinstance(meaning, str):
            return _call_external(context, meaning, None, arguments, node)
        receiver = HARMLESS if meaning.role == "class" else None
        return _follow(context, [_bind(one, receiver, arguments) for one in _alternatives(meaning)], node)
    if isinstance(called, ast.Attribute):
        return _call_method(context, called, node)
    value = context.evaluate(called)
    return union([value, *_arguments(context, node).values])


def evaluate_property(context: Expressions, node: ast.Attribute, receiver: Value) -> Value | None:
    """The value of an attribute that is a property of the package; None for other attributes."""
    owner = context.class_of(node.value)
    method = find_method(owner, node.attr) if isinstance(owner, Class) else None
    if not isinstance(method, Function) or method.role != "property":
        return None
    return _follow(context, [_bind(method, receiver, Arguments([], []))], node)


def _arguments(context: Expressions, node: ast.Call) -> Arguments:
    return Arguments(
        [(context.evaluate(one), isinstance(one, ast.Starred)) for one in node.args],
        [(one.arg, context.evaluate(one.value)) for one in node.keywords],
    )


def _own_class(context: Expressions, called: ast.expr) -> Class | None:
    """The class that ``cls``, ``type(self)`` or ``self.__class__`` means as a function."""
    function = context.body.function
    if function is None or function.owner is None:
        return None
    match called:
        case ast.Name(id=name) if function.role == "class" and name == function.self_name:
            return function.owner
        case ast.Attribute(value=ast.Name(id=name), attr="__class__") if name == function.self_name:
            return function.owner
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=name)]) if name == function.self_name:
            return function.owner
    return None


def _alternatives(function: Function) -> list[Function]:
    """All definitions of a function's name in its scope, as in the branches of an ``if``."""
    scope = function.scope.parent
    found = scope.functions.get(function.syntax.name, ()) if scope is not None else ()
    return [one for one in found if not one.is_overload] or [function]


def _construct(context: Expressions, made: Class, arguments: Arguments, node: ast.Call) -> Value:
    method = find_method(made, "__init__")
    if isinstance(method, Function):
        target = _bind(method, HARMLESS, arguments)
        return _follow(context, [target._replace(constructs=True)], node)
    if made.fields is not None and not any(starred for _, starred in arguments.positional):
        given = dict(zip(made.fields, (value for value, _ in arguments.positional), strict=False))
        given.update((name, value) for name, value in arguments.keywords if name is not None)
        unknown = union([value for name, value in arguments.keywords if name is None])
        return Value(unknown.dependencies, fields=given)
    return union(arguments.values)


def _call_method(context: Expressions, called: ast.Attribute, node: ast.Call) -> Value:
    function = context.body.function
    method = called.attr
    if _is_super(called.value) and function is not None and function.owner is not None:
        arguments = _arguments(context, node)
        found = find_method(function.owner, method, after=function.owner)
        if not isinstance(found, Function):
            return union(arguments.values)
        receiver = HARMLESS if function.self_name is None else context.read((function.self_name,))
        return _follow(context, [_bind(found, receiver, arguments)], node)
    receiver = context.evaluate(called.value)
    arguments = _arguments(context, node)
    owner = context.class_of(called.value)
    if isinstance(owner, Class):
        found = find_method(owner, method)
        if isinstance(found, Function):
            callees = dict.fromkeys((found, *find_overrides(owner, method)))
            return _follow(context, [_bind(one, receiver, arguments) for one in callees], node)
        owner = found[: -len(method) - 1] if isinstance(found, str) else None
    if isinstance(owner, str):
        return _call_external(context, tables.canonical(f"{owner}.{method}"), receiver, arguments, node)
    return _call_unknown_method(context, called, receiver, arguments, node)


def _call_external(
    context: Expressions, name: str, receiver: Value | None, arguments: Arguments, node: ast.Call
) -> Value:
    """A call of a function, or of a method of an object, outside the package."""
    sink = tables.SINKS.get(name)
    if sink is not None and _call_sink(context, name, sink, arguments, node):
        return HARMLESS
    label = tables.UNTRUSTED_RESULTS.get(name)
    if label is not None:
        return Value((Source(label, node),))
    if isinstance(node.func, ast.Attribute):
        if node.func.attr in tables.SQL_METHODS and name.partition(".")[0] in tables.SQL_MODULES:
            _call_sink(context, name, tables.SQL_SINK, arguments, node)
            return HARMLESS
        if receiver is None:
            value = context.external_value(name.rpartition(".")[0], node.func.value)
            receiver = value if value.dependencies else None
        if receiver is not None:
            return _call_unknown_method(context, node.func, receiver, arguments, node)
    if tables.is_harmless_result(name):
        return HARMLESS
    if name == "getattr" and len(node.args) > 1:
        return _call_getattr(context, arguments, node)
    if name in tables.COPYING_FUNCTIONS and len(node.args) == 1 and not node.keywords:
        return arguments.positional[0][0]
    if name == "dict" and not node.args and all(one.arg is not None for one in node.keywords):
        return items_value({item(str(keyword)): value for keyword, value in arguments.keywords})
    return union(arguments.values)


def _call_getattr(context: Expressions, arguments: Arguments, node: ast.Call) -> Value:
    """``getattr`` with a literal is that attribute; otherwise it is as its object is. The name does not matter."""
    value, *_ = arguments.positional[0]
    default = [one for one, _ in arguments.positional[2:]]
    name = tables.constant_key(node.args[1])
    if value.alias is not None and isinstance(name, str) and name.isidentifier():
        return union([context.read((*value.alias, name)), *default])
    return union([value, *default])


def _call_unknown_method(
    context: Expressions, called: ast.Attribute, receiver: Value, arguments: Arguments, node: ast.Call
) -> Value:
    """A method of an object whose class says nothing: by its name, else as its object and its arguments are."""
    method = called.attr
    name = tables.last_name(called.value)
    if method in tables.SQL_METHODS and tables.SQL_RECEIVERS.search(name):
        _call_sink(context, f"{name}.{method}", tables.SQL_SINK, arguments, node)
        return HARMLESS
    if method in tables.COPYING_METHODS and not node.args and not node.keywords:
        return receiver
    if method in tables.KEYED_METHODS and arguments.positional:
        return _call_keyed(context, called, receiver, arguments, node)
    if method in tables.MUTATING_METHODS:
        _call_mutating(context, called, arguments)
    if method in tables.HARMLESS_METHODS:
        return HARMLESS
    return union([receiver, *arguments.values])


def _call_keyed(
    context: Expressions, called: ast.Attribute, receiver: Value, arguments: Arguments, node: ast.Call
) -> Value:
    """A method whose first argument selects an element, like ``get``. The key itself does not matter."""
    key = tables.constant_key(node.args[0])
    default = union(arguments.values[1:])
    if called.attr in tables.MUTATING_METHODS:
        path = context.target_path(called.value)
        if path is not None:
            context.assign_path(path if key is None else (*path, item(key)), default, strong=False)
    value = Value(receiver.dependencies) if key is None else context.element_at(receiver, key)
    return union((value, default)) if default.dependencies else value


def _call_mutating(context: Expressions, called: ast.Attribute, arguments: Arguments) -> None:
    """A method that puts its arguments into its object; ``update`` puts elements where they were."""
    path = context.target_path(called.value)
    if path is None:
        return
    fields = {item(name): value for name, value in arguments.keywords if name is not None}
    others = [value for name, value in arguments.keywords if name is None]
    for value, _ in arguments.positional:
        if called.attr == "update" and value.fields is not None:
            fields.update((name, one) for name, one in value.fields.items() if name != ITEMS)
            others.append(Value(value.attribute(())))
        else:
            others.append(value)
    for name, value in fields.items():
        context.assign_path((*path, name), value, strong=False)
    context.assign_path(path, union(others), strong=False)


def _call_sink(context: Expressions, name: str, sink: tables.Sink, arguments: Arguments, node: ast.Call) -> bool:
    """Note a call of a sink; whether there is anything that may be untrusted. If so, the harm is done there.

    What comes out of such a call is therefore not followed.
    """
    value: Value | None = None
    syntax: ast.expr | None = None
    for position, (one, starred) in enumerate(arguments.positional[: sink.position + 1]):
        if starred or position == sink.position:
            value, syntax = one, node.args[position]
            break
    for given, (keyword, one) in zip(node.keywords, arguments.keywords, strict=True):
        if keyword is not None and keyword == sink.keyword:
            value, syntax = one, given.value
    if value is None or syntax is None or not value.dependencies:
        return False
    if sink.condition == "shell" and not _runs_shell(node, syntax):
        return False
    if sink.condition == "loader" and _loads_safely(context, node):
        return False
    context.sinks.append(SinkCall(name, sink, value, node))
    return True


def _runs_shell(node: ast.Call, command: ast.expr) -> bool:
    """Whether a call of subprocess runs a shell: ``shell=True``, or a list that begins with a shell and ``-c``."""
    for one in node.keywords:
        if one.arg == "shell":
            return not (isinstance(one.value, ast.Constant) and not one.value.value)
    match command:
        case ast.List(elts=[ast.Constant(value=str(program)), ast.Constant(value=str(flag)), *_]):
            return program in tables.SHELLS and flag in tables.SHELL_FLAGS
    return False


def _loads_safely(context: Expressions, node: ast.Call) -> bool:
    """Whether a YAML loader is named, and is none of those that build any object."""
    loaders = [one.value for one in node.keywords if one.arg == "Loader"] + node.args[1:2]
    return bool(loaders) and not any(context.meaning_of(one) in tables.UNSAFE_YAML_LOADERS for one in loaders)


def _follow(context: Expressions, targets: Sequence[CallTarget], node: ast.AST) -> Value:
    """A call of functions of the package; its value is the result that they return."""
    result = context.next_result()
    context.emit(Call(result, tuple(targets), node))
    return path_value(result)


def _bind(function: Function, receiver: Value | None, arguments: Arguments) -> CallTarget:
    """The values of a function's parameters. ``receiver`` is None where a call has no object before its arguments."""
    parameters = function.parameters
    waiting = list(parameters.positional)
    bound: dict[str, list[Value]] = {}
    if receiver is not None and function.role in ("method", "class", "property") and waiting:
        bound[waiting.pop(0)] = [receiver]
    is_open = False  # after `*arguments` a value may be for any of the parameters that wait
    for value, starred in arguments.positional:
        is_open = is_open or starred
        if is_open:
            for name in (*waiting, *filter(None, (parameters.rest,))):
                bound.setdefault(name, []).append(Value(value.dependencies))
        elif waiting:
            bound[waiting.pop(0)] = [value]
        elif parameters.rest is not None:
            bound.setdefault(parameters.rest, []).append(value)
    named = {*parameters.positional, *parameters.keyword_only}
    for keyword, value in arguments.keywords:
        if keyword in named:
            bound.setdefault(str(keyword), []).append(value)
        else:
            spread = [*waiting, *parameters.keyword_only] if keyword is None else []
            for name in (*spread, *filter(None, (parameters.keywords,))):
                bound.setdefault(name, []).append(Value(value.dependencies))
    given = {name: values[0] if len(values) == 1 else union(values) for name, values in bound.items()}
    if parameters.rest in given:
        given[parameters.rest] = Value(given[parameters.rest].dependencies)
    return CallTarget(function, {name: value for name, value in given.items() if value != HARMLESS}, False)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
