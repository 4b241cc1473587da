"""The classes of expressions, where they are plain from the source.

They are for ``self`` and ``cls``, for a parameter or variable that is annotated with a class, and for a variable or
attribute that is only ever assigned ``C(...)``, None or a call of a function that is annotated to return ``C``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Final

from taint_analysis import tables
from taint_analysis.names import (
    Class,
    ClassOrName,
    Function,
    Index,
    Meaning,
    Scope,
    find_method,
    lookup,
    meaning_of,
)

_MAX_DEPTH: Final = 12


def class_of(index: Index, scope: Scope, expression: ast.expr | None, depth: int = 0) -> ClassOrName:
    """The class of an expression's value, or the dotted name of an external one; None if it is not plain."""
    if depth > _MAX_DEPTH:
        return None
    match expression:
        case ast.Name():
            meaning, owner = lookup(index, scope, expression.id)
            if isinstance(meaning, tuple) and owner is not None:
                return _variable_class(index, owner, expression.id, depth)
        case ast.Attribute():
            owner_class = class_of(index, scope, expression.value, depth + 1)
            if isinstance(owner_class, Class):
                return _attribute_class(index, owner_class, expression.attr, depth)
            meaning = meaning_of(index, scope, expression)
            if isinstance(meaning, tuple) and len(meaning) == 1 and meaning[0][0] == "@":
                module, _, name = meaning[0][1:].rpartition(":")
                return _variable_class(index, index.modules[module].scope, name, depth)
        case ast.Call():
            return _result_class(index, scope, expression, depth)
        case ast.Await():
            return class_of(index, scope, expression.value, depth + 1)
    return None


def _result_class(index: Index, scope: Scope, call: ast.Call, depth: int) -> ClassOrName:
    called: Meaning = meaning_of(index, scope, call.func)
    if called is None and isinstance(call.func, ast.Attribute):
        owner = class_of(index, scope, call.func.value, depth + 1)
        if isinstance(owner, Class):
            called = find_method(owner, call.func.attr)
        elif isinstance(owner, str):
            called = tables.canonical(f"{owner}.{call.func.attr}")
    match called:
        case Class():
            return called
        case Function() if called.syntax.returns is not None:
            return annotated_class(index, called.scope.parent or called.scope, called.syntax.returns)
        case str():
            return tables.RETURNED_CLASSES.get(called, called)
    return None


def annotated_class(index: Index, scope: Scope, annotation: ast.expr) -> ClassOrName:
    """The class that an annotation names, without its None."""
    match annotation:
        case ast.Constant(value=str(text)):
            try:
                return annotated_class(index, scope, ast.parse(text, mode="eval").body)
            except (SyntaxError, ValueError):
                return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return annotated_class(index, scope, left)
        case ast.Subscript(value=ast.Name(id="Optional") | ast.Attribute(attr="Optional"), slice=inner):
            return annotated_class(index, scope, inner)
        case ast.Name() | ast.Attribute():
            meaning = meaning_of(index, scope, annotation)
            return meaning if isinstance(meaning, (Class, str)) else None
    return None


def _variable_class(index: Index, scope: Scope, name: str, depth: int) -> ClassOrName:
    if name not in scope.variable_classes:
        scope.variable_classes[name] = None  # for variables that are assigned from themselves
        function = scope.owner if isinstance(scope.owner, Function) else None
        if name in scope.annotations:
            found = annotated_class(index, scope.parent or scope, scope.annotations[name])
        elif function is not None and name == function.self_name:
            found = function.owner
            if len(scope.variables[name]) > 1:
                found = None
        else:
            found = _common_class(index, ((scope, one) for one in scope.variables.get(name, ())), depth)
        scope.variable_classes[name] = found
    return scope.variable_classes[name]


def _attribute_class(index: Index, owner: Class, name: str, depth: int) -> ClassOrName:
    if name not in owner.attribute_classes:
        owner.attribute_classes[name] = None
        for one in owner.ancestors or [owner]:
            if name in one.scope.annotations:
                owner.attribute_classes[name] = annotated_class(index, one.scope, one.scope.annotations[name])
                break
            if name in one.attributes:
                owner.attribute_classes[name] = _common_class(index, one.attributes[name], depth)
                break
        else:
            method = find_method(owner, name)
            if isinstance(method, Function) and method.role == "property" and method.syntax.returns is not None:
                found = annotated_class(index, method.module.scope, method.syntax.returns)
                owner.attribute_classes[name] = found
    return owner.attribute_classes[name]


def _common_class(index: Index, values: Iterable[tuple[Scope, ast.expr | None]], depth: int) -> ClassOrName:
    """The one class of all values; None where they differ. Assignments of None do not count."""
    common: ClassOrName = None
    for scope, value in values:
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        found = class_of(index, scope, value, depth + 1)
        if found is None or (common is not None and found != common):
            return None
        common = found
    return common
