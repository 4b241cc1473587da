"""Expressions as values: which variables, sources and calls the value of an expression is made of.

The rules:

* Operators, containers, f-strings, subscripts and calls of unknown functions are untrusted if one of their parts is.
* Comparisons, unary operators, ``**``, ``//``, shifts, number formats (``%d``, ``{x:d}``) and what ``tables`` calls
  harmless are never untrusted.
* ``a and b`` is ``b``, because ``a`` is empty otherwise.
* An index or a key says nothing about the element that it selects: ``TABLE[untrusted]`` is as ``TABLE`` is. Elements
  that constants select from a variable are told apart: ``options["name"]`` and ``options["size"]``.
* A lambda and a comprehension are evaluated where they are written; the parameters of a lambda are harmless.
* In ``x if x.isdigit() else y``, after ``and`` and in comprehensions, what a test has checked is harmless; see
  ``guards``.

Calls have a module of their own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from taint_analysis import tables
from taint_analysis.calls import evaluate_call, evaluate_property
from taint_analysis.classes import class_of
from taint_analysis.flow import (
    HARMLESS,
    ITEMS,
    RETURN,
    Assignment,
    Body,
    Call,
    Path,
    SinkCall,
    Source,
    Value,
    item,
    items_value,
    path_value,
    tracked,
    union,
)
from taint_analysis.guards import guarded_expressions
from taint_analysis.names import Class, ClassOrName, Index, Meaning, Scope, lookup, meaning_of

_CONVERSIONS: Final = re.compile(r"%(?:\((?P<key>[^)]*)\))?[-#0 +]*\d*(?:\.\d+)?[hlL]?(?P<type>[a-zA-Z%])")
_NUMBER_TYPES: Final = frozenset("diouxXeEfFgGc")
# Operators that neither text nor paths nor containers have.
_NUMBER_OPERATORS: Final = (ast.Pow, ast.FloorDiv, ast.LShift, ast.RShift)
_NUMBER_FORMAT: Final = re.compile(r".*[bcdeEfFgGnoxX%]$", re.DOTALL)


class Expressions:
    """Evaluates the expressions of one body, statement by statement.

    Calls of the package's functions become nodes as they are met, by ``emit_call``; assignments within expressions and
    calls of sinks are collected until ``take`` hands them to the node of the statement.
    """

    def __init__(self, index: Index, body: Body, emit_call: Callable[[Call], None]) -> None:
        self.index = index
        self.body = body
        self.scope: Scope = body.scope
        self.assignments: list[Assignment] = []
        self.sinks: list[SinkCall] = []
        # Names that mean a value within an expression: of comprehensions, lambdas and `:=`.
        self.bound: dict[str, Value] = {}
        # Paths that a test has checked, within the expression that depends on it.
        self.checked: frozenset[Path] = frozenset()
        self._emit_call = emit_call
        self._results = 0
        self._rules: dict[type[ast.AST], Callable[..., Value]] = {
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: lambda node: evaluate_call(self, node),
            ast.Subscript: self._subscript,
            ast.BinOp: self._binary,
            ast.BoolOp: self._boolean,
            ast.Compare: self._comparison,
            ast.UnaryOp: self._unary,
            ast.IfExp: self._conditional,
            ast.NamedExpr: self._walrus,
            ast.JoinedStr: lambda node: union(list(map(self.evaluate, node.values))),
            ast.FormattedValue: self._formatted,
            ast.Tuple: self._sequence,
            ast.List: self._sequence,
            ast.Set: self._sequence,
            ast.Dict: self._dictionary,
            ast.ListComp: self._comprehension,
            ast.SetComp: self._comprehension,
            ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._comprehension,
            ast.Lambda: self._lambda,
            ast.Starred: lambda node: Value(self.evaluate(node.value).dependencies),
            ast.Await: lambda node: self.evaluate(node.value),
            ast.Yield: self._yield,
            ast.YieldFrom: self._yield,
        }

    def evaluate(self, expression: ast.expr | None) -> Value:
        """The value of an expression; what it calls and assigns is emitted and collected."""
        rule = self._rules.get(type(expression)) if expression is not None else None
        return HARMLESS if rule is None else rule(expression)

    def take(self) -> tuple[tuple[Assignment, ...], tuple[SinkCall, ...]]:
        """The assignments and sinks since the last time."""
        taken = tuple(self.assignments), tuple(self.sinks)
        self.assignments, self.sinks, self.bound = [], [], {}
        return taken

    def emit(self, call: Call) -> None:
        """Make a call the next node of the graph."""
        self._emit_call(call)

    def next_result(self) -> Path:
        """A path for the result of a call."""
        self._results += 1
        return (f"%{self._results}",)

    # Targets

    def assign(self, target: ast.expr, value: Value, *, strong: bool = True) -> None:
        """Assign a value to a target of an assignment, a loop or a pattern."""
        match target:
            case ast.Tuple() | ast.List():
                for one, part in zip(target.elts, _parts(target.elts, value), strict=True):
                    self.assign(one, part, strong=strong)
            case ast.Starred():
                self.assign(target.value, Value(value.dependencies), strong=strong)
            case ast.Subscript():
                self.evaluate(target.slice)
                is_item = tables.constant_key(target.slice) is not None
                value = value if is_item else Value(value.dependencies)
                self.assign_path(self.target_path(target), value, strong=strong and is_item)
            case ast.Name() | ast.Attribute():
                self.assign_path(self.target_path(target), value, strong=strong)

    def assign_path(self, path: Path | None, value: Value, *, strong: bool) -> None:
        """Assign a value to a path; beyond the tracked length, add it to the longest prefix that is tracked."""
        if path is None:
            return
        kept = tracked(path)
        if kept != path:
            path, strong, value = kept, False, Value(value.dependencies)
        if len(path) > 1 and path[1][0] == "[" and value.dependencies:
            self.assignments.append(Assignment((path[0], ITEMS), Value(value.dependencies), False))
        if len(path) > 1:
            value = value._replace(own=None)  # only elements of variables are told apart
        if strong or value.dependencies:
            self.assignments.append(Assignment(path, value, strong))

    def target_path(self, target: ast.expr) -> Path | None:
        """The path that an expression is, as the target of an assignment; None if it is none."""
        match target:
            case ast.Name(id=name):
                meaning, owner = lookup(self.index, self.scope, name)
                if isinstance(meaning, Class):
                    return (meaning.root,)
                if not isinstance(meaning, tuple) or name in self.bound:
                    return None
                self._note_free(meaning, owner)
                return meaning
            case ast.Attribute():
                meaning = self.meaning_of(target)
                if isinstance(meaning, tuple):
                    return meaning
                base = self.target_path(target.value)
                return None if base is None else (*base, target.attr)
            case ast.Subscript():
                base = self.target_path(target.value)
                key = tables.constant_key(target.slice)
                return base if base is None or key is None else (*base, item(key))
        return None

    def _note_free(self, path: Path, owner: Scope | None) -> None:
        """Remember that a variable belongs to an enclosing function."""
        if owner is not None and owner.kind == "function" and owner is not self.body.scope and len(path) == 1:
            self.body.free.setdefault(path[0], owner)

    # Names and attributes

    def read(self, path: Path) -> Value:
        """The value at a path."""
        if self.checked and any(path[:length] in self.checked for length in range(1, len(path) + 1)):
            return HARMLESS
        return path_value(path)

    def meaning_of(self, node: ast.expr) -> Meaning:
        """What a dotted expression means; None if it begins with a name that is bound within the expression."""
        first = node
        while isinstance(first, ast.Attribute):
            first = first.value
        if not isinstance(first, ast.Name) or first.id in self.bound:
            return None
        return meaning_of(self.index, self.scope, node)

    def class_of(self, node: ast.expr) -> ClassOrName:
        """The class of an expression's value, where it is plain."""
        if isinstance(node, ast.Name) and node.id in self.bound:
            return None
        return class_of(self.index, self.scope, node)

    def external_value(self, name: Meaning, node: ast.expr) -> Value:
        """The value of something outside the package, by its dotted name."""
        label = tables.untrusted_value(name) if isinstance(name, str) else None
        return HARMLESS if label is None else Value((Source(label, node),))

    def _name(self, node: ast.Name) -> Value:
        if node.id in self.bound:
            return self.bound[node.id]
        meaning, owner = lookup(self.index, self.scope, node.id)
        if isinstance(meaning, tuple):
            self._note_free(meaning, owner)
            return self.read(meaning)
        if isinstance(meaning, Class):
            return Value((), (meaning.root,))
        return self.external_value(meaning, node)

    def _attribute(self, node: ast.Attribute) -> Value:
        meaning = self.meaning_of(node)
        if isinstance(meaning, tuple):
            return self.read(meaning)
        if meaning is not None:
            return self.external_value(meaning, node)
        label = tables.REQUEST_ATTRIBUTES.get(node.attr)
        if label is not None and tables.last_name(node.value) == "request":
            return Value((Source(label, node),))
        base = self.evaluate(node.value)
        if node.attr in tables.HARMLESS_ATTRIBUTES:
            return HARMLESS
        followed = evaluate_property(self, node, base)
        if followed is not None:
            return followed
        if base.alias is not None:
            return self.read((*base.alias, node.attr))
        if base.fields is not None and node.attr in base.fields:
            return base.fields[node.attr]
        return Value(base.dependencies)

    def _subscript(self, node: ast.Subscript) -> Value:
        base = self.evaluate(node.value)
        self.evaluate(node.slice)
        key = tables.constant_key(node.slice)
        if key is None:
            return Value(base.dependencies)
        if key == 0 and self.meaning_of(node.value) == "sys.argv":
            return HARMLESS  # the name of the program itself
        return self.element_at(base, key)

    def element_at(self, base: Value, key: str | int) -> Value:
        """The element of a container that a constant selects."""
        if base.alias is not None:
            return self.read((*base.alias, item(key)))
        if base.fields is not None:
            return union((base.fields.get(item(key), HARMLESS), Value(base.attribute(()))))
        return Value(base.dependencies)

    # Operators

    def _binary(self, node: ast.BinOp) -> Value:
        left = self.evaluate(node.left)
        if isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str):
            return self._percent(node.left.value, node.right)
        right = self.evaluate(node.right)
        return HARMLESS if isinstance(node.op, _NUMBER_OPERATORS) else union((left, right))

    def _percent(self, template: str, right: ast.expr) -> Value:
        """``template % right``: what is formatted as a number is harmless."""
        conversions = [one for one in _CONVERSIONS.finditer(template) if one["type"] != "%"]
        if isinstance(right, ast.Tuple) and len(right.elts) == len(conversions):
            values = [self.evaluate(one) for one in right.elts]
            texts = [v for v, one in zip(values, conversions, strict=True) if one["type"] not in _NUMBER_TYPES]
            return union(texts)
        value = self.evaluate(right)
        if conversions and all(one["type"] in _NUMBER_TYPES for one in conversions):
            return HARMLESS
        return Value(value.dependencies)

    def _formatted(self, node: ast.FormattedValue) -> Value:
        value = self.evaluate(node.value)
        spec = self.evaluate(node.format_spec)
        match node.format_spec:
            case ast.JoinedStr(values=[ast.Constant(value=str(text))]) if _NUMBER_FORMAT.match(text):
                return HARMLESS
        return union((value, spec))

    def _boolean(self, node: ast.BoolOp) -> Value:
        is_and = isinstance(node.op, ast.And)
        before = self.checked
        values = []
        for one in node.values:
            values.append(self.evaluate(one))
            self.checked |= self.guarded(one, is_and)
        self.checked = before
        return values[-1] if is_and else union(values)

    def _comparison(self, node: ast.Compare) -> Value:
        self.evaluate(node.left)
        for one in node.comparators:
            self.evaluate(one)
        return HARMLESS

    def _unary(self, node: ast.UnaryOp) -> Value:
        self.evaluate(node.operand)
        return HARMLESS  # a truth value or a number

    def _conditional(self, node: ast.IfExp) -> Value:
        self.evaluate(node.test)
        with self.checking(self.guarded(node.test, True)):
            first = self.evaluate(node.body)
        with self.checking(self.guarded(node.test, False)):
            second = self.evaluate(node.orelse)
        return union((first, second))

    def guarded(self, test: ast.expr, truth: bool) -> frozenset[Path]:
        """The paths that are harmless where a test has this outcome."""
        found = (self.target_path(one) for one in guarded_expressions(test, truth, self.meaning_of))
        return frozenset(path for path in found if path is not None)

    @contextmanager
    def checking(self, paths: frozenset[Path]) -> Iterator[None]:
        """Evaluate with these paths checked."""
        before = self.checked
        self.checked = before | paths
        yield
        self.checked = before

    # Containers and functions within expressions

    def _sequence(self, node: ast.Tuple | ast.List | ast.Set) -> Value:
        values = tuple(self.evaluate(one) for one in node.elts)
        if isinstance(node, ast.Set) or any(isinstance(one, ast.Starred) for one in node.elts):
            return union(values)
        if isinstance(node, ast.List):
            return Value(union(values).dependencies, items=values)
        return items_value({item(position): one for position, one in enumerate(values)})._replace(items=values)

    def _dictionary(self, node: ast.Dict) -> Value:
        fields: dict[str, Value] = {}
        others = []
        for name, value in zip(node.keys, node.values, strict=True):
            key = tables.constant_key(name)
            if key is None:
                others += [self.evaluate(name), self.evaluate(value)]
            else:
                fields[item(key)] = self.evaluate(value)
        return items_value(fields, others)

    def element(self, iterable: ast.expr) -> Value:
        """The value of each element of an iterable; those of ``enumerate`` and ``zip`` are told apart."""
        if isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and not iterable.keywords:
            name = self.meaning_of(iterable.func)
            if name == "enumerate" and iterable.args:
                value = self.element(iterable.args[0])
                return Value(value.dependencies, items=(HARMLESS, value))
            if name == "zip" and not any(isinstance(one, ast.Starred) for one in iterable.args):
                values = tuple(self.element(one) for one in iterable.args)
                return Value(union(values).dependencies, items=values)
        if isinstance(iterable, (ast.Tuple, ast.List)) and iterable.elts:
            values = tuple(self.evaluate(one) for one in iterable.elts)
            return values[0] if len(values) == 1 else union(values)
        return Value(self.evaluate(iterable).dependencies)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        bound, checked = self.bound, self.checked
        self.bound = dict(bound)
        for generator in node.generators:
            self._bind(generator.target, self.element(generator.iter))
            for test in generator.ifs:
                self.evaluate(test)
                self.checked |= self.guarded(test, True)
                for one in guarded_expressions(test, True, self.meaning_of):
                    if isinstance(one, ast.Name) and one.id in self.bound:
                        self.bound[one.id] = HARMLESS
        if isinstance(node, ast.DictComp):
            value = union((self.evaluate(node.key), self.evaluate(node.value)))
        else:
            value = Value(self.evaluate(node.elt).dependencies)
        self.bound, self.checked = bound, checked
        return value

    def _bind(self, target: ast.expr, value: Value) -> None:
        match target:
            case ast.Name(id=name):
                self.bound[name] = value
            case ast.Tuple() | ast.List():
                for one, part in zip(target.elts, _parts(target.elts, value), strict=True):
                    self._bind(one, part)
            case ast.Starred():
                self._bind(target.value, Value(value.dependencies))

    def _lambda(self, node: ast.Lambda) -> Value:
        bound = self.bound
        given = node.args
        extra = (one for one in (given.vararg, given.kwarg) if one is not None)
        names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)]
        self.bound = {**bound, **dict.fromkeys(names, HARMLESS)}
        value = Value(self.evaluate(node.body).dependencies)
        self.bound = bound
        return value

    def _walrus(self, node: ast.NamedExpr) -> Value:
        value = self.evaluate(node.value)
        self.bound.pop(node.target.id, None)
        self.assign(node.target, value)
        self.bound[node.target.id] = value
        return value

    def _yield(self, node: ast.Yield | ast.YieldFrom) -> Value:
        value = self.evaluate(node.value)
        self.assign_path(RETURN, Value(value.dependencies), strong=False)
        return HARMLESS


def _parts(targets: Sequence[ast.expr], value: Value) -> Iterable[Value]:
    """What each of several targets gets from one value."""
    count = len(targets)
    if not any(isinstance(one, ast.Starred) for one in targets):
        if value.items is not None and len(value.items) >= count:
            return value.items[:count]
        if value.alias is not None:
            return [path_value((*value.alias, item(position))) for position in range(count)]
    return [Value(value.dependencies)] * count
