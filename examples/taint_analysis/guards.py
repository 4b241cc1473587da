"""Tests that leave only harmless data: ``if name.isdigit():``, ``if not re.fullmatch(pattern, name): return``.

Recognised are the methods and functions of ``tables``, ``isinstance`` with numbers, comparisons with a constant, ``is
None``, and membership in a literal or in a constant that is written in capitals. What the pattern of a regular
expression lets through is not looked at.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import reduce
from typing import Final

from taint_analysis import tables
from taint_analysis.names import Meaning

_CONSTANT_NAME: Final = re.compile(r"_*[A-Z][A-Z0-9_]*$")


def guarded_expressions(test: ast.expr, truth: bool, meaning_of: Callable[[ast.expr], Meaning]) -> list[ast.expr]:
    """The names and attributes that are harmless where a test is true, or where it is false."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return guarded_expressions(test.operand, not truth, meaning_of)
        case ast.BoolOp():
            parts = [guarded_expressions(one, truth, meaning_of) for one in test.values]
            if isinstance(test.op, ast.And) == truth:
                return [one for part in parts for one in part]
            return reduce(_common, parts)
        case ast.NamedExpr():
            return guarded_expressions(test.value, truth, meaning_of)
        case ast.Call() if truth:
            return _guarded_by_call(test, meaning_of)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return [left] if _is_path(left) and _selects_constants(operator, right, truth) else []
    return []


def _guarded_by_call(test: ast.Call, meaning_of: Callable[[ast.expr], Meaning]) -> list[ast.expr]:
    match test:
        case ast.Call(func=ast.Attribute(value=data, attr=name), args=[]) if name in tables.GUARD_METHODS:
            return [data] if _is_path(data) else []
        case ast.Call(func=ast.Attribute(attr="fullmatch"), args=[data]) if _is_path(data):
            return [data]
        case ast.Call(args=[_, data, *_]) if _is_path(data) and meaning_of(test.func) in tables.GUARD_FUNCTIONS:
            return [data]
        case ast.Call(func=ast.Name(id="isinstance"), args=[data, kinds]) if _is_path(data):
            names = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
            is_number = all(isinstance(one, ast.Name) and one.id in tables.GUARD_TYPES for one in names)
            return [data] if is_number else []
    return []


def _selects_constants(operator: ast.cmpop, right: ast.expr, truth: bool) -> bool:
    """Whether a comparison with this outcome leaves only constants on its left."""
    match operator:
        case ast.Eq() | ast.NotEq():
            return isinstance(operator, ast.Eq) == truth and _is_constant(right)
        case ast.Is() | ast.IsNot():
            return isinstance(operator, ast.Is) == truth and _is_constant(right)
        case ast.In() | ast.NotIn():
            return isinstance(operator, ast.In) == truth and _is_constant_container(right)
    return False


def _is_constant_container(node: ast.expr) -> bool:
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            return all(map(_is_constant, node.elts))
        case ast.Dict():
            return all(one is not None and _is_constant(one) for one in node.keys)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _CONSTANT_NAME.match(name) is not None
    return False


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, (ast.Name, ast.Attribute)) and _CONSTANT_NAME.match(tables.last_name(node)) is not None


def _is_path(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _common(first: list[ast.expr], second: list[ast.expr]) -> list[ast.expr]:
    known = {ast.dump(one) for one in second}
    return [one for one in first if ast.dump(one) in known]
