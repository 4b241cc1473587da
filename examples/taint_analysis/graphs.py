"""Control flow graphs: a function or the top level of a module as a graph of nodes.

A statement becomes a node for each call that is followed, and one for its assignments and sinks; statements that do
nothing to variables become none. Branches and loops follow Python's control flow, with these choices:

* A test that is a constant takes one branch. What follows a ``return``, ``raise``, ``break`` or ``continue`` is left
  out.
* Any statement in a ``try`` may raise before it has done anything; then each ``except`` may be next, and the next
  outer one unless all exceptions are caught. An exception that no ``except`` of the function catches ends the path.
* ``finally`` is copied for each way into it: from the end, by an exception, by ``return``, ``break`` and
  ``continue``.
* ``with`` runs its body once; one that calls ``suppress`` ends where an exception is raised.
* A ``for`` evaluates its iterable anew in each round. The body of a class belongs to the code around it.
* ``await`` waits for what it calls; a generator is called like a function and returns what it yields.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from taint_analysis import tables
from taint_analysis.expressions import Expressions
from taint_analysis.flow import (
    HARMLESS,
    RETURN,
    Assignment,
    Body,
    Call,
    CallTarget,
    Node,
    SinkCall,
    Source,
    Value,
    union,
)
from taint_analysis.names import Index, meaning_of

START: Final = 0
END: Final = 1
# More loose ends than this are joined in a node, so that a row of branches has no more edges than it has lines.
_MAX_ENDS: Final = 4
_CATCH_ALL: Final = frozenset({"Exception", "BaseException"})
_Statement = Callable[..., None]


@dataclass(slots=True)
class _Loop:
    """A loop around the statement: where ``continue`` goes to, and the nodes that ``break`` leaves from."""

    head: int
    breaks: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Finally:
    """A ``finally`` around the statement: its body, its copies by the way into it, and the handlers around it."""

    body: list[ast.stmt]
    handlers: tuple[int, ...]
    copies: dict[str, int] = field(default_factory=dict)


def build_graphs(index: Index, advance: Callable[[], None]) -> list[Body]:
    """The graphs of all modules and functions of a package."""
    bodies = []
    for module in index.modules.values():
        body = Body("<module>", module, module.scope, None)
        _Builder(index, body).build(module.parsed.tree.body)
        bodies.append(body)
        advance()
    for function in index.functions:
        body = Body(function.name, function.module, function.scope, function)
        _Builder(index, body).build(function.syntax.body)
        bodies.append(body)
        advance()
    return bodies


class _Builder:
    """Builds the graph of one body. ``ends`` are the nodes that the next one comes after; none in dead code."""

    def __init__(self, index: Index, body: Body) -> None:
        self.index = index
        self.body = body
        self.ends: list[int] = []
        self.handlers: tuple[int, ...] = ()
        self.frames: list[_Loop | _Finally] = []
        self.syntax: ast.AST | None = None
        self.expressions = Expressions(index, body, self.add_call)
        self.statements: dict[type[ast.stmt], _Statement] = {
            ast.Expr: self.expression,
            ast.Assign: self.assign,
            ast.AnnAssign: self.annotated_assign,
            ast.AugAssign: self.augmented_assign,
            ast.Return: self.return_,
            ast.Raise: self.raise_,
            ast.Assert: self.assert_,
            ast.Delete: self.delete,
            ast.If: self.if_,
            ast.While: self.while_,
            ast.For: self.for_,
            ast.AsyncFor: self.for_,
            ast.With: self.with_,
            ast.AsyncWith: self.with_,
            ast.Try: self.try_,
            ast.TryStar: self.try_,
            ast.Match: self.match_,
            ast.Break: lambda _: self.jump("break"),
            ast.Continue: lambda _: self.jump("continue"),
            ast.FunctionDef: self.function,
            ast.AsyncFunctionDef: self.function,
            ast.ClassDef: self.class_,
        }

    def build(self, statements: Sequence[ast.stmt]) -> None:
        self.body.nodes += (Node(START, None), Node(END, None))
        self.ends = [START]
        self.start_parameters()
        self.run(statements)
        self.link(END)

    def start_parameters(self) -> None:
        """Make the parameters that a decorator fills from outside untrusted."""
        function = self.body.function
        if function is None:
            return
        for decorator in function.syntax.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = meaning_of(self.index, function.scope.parent or function.scope, called)
            if isinstance(name, str) and name in tables.UNTRUSTED_PARAMETERS:
                source = Value((Source(tables.UNTRUSTED_PARAMETERS[name], decorator),))
                parameters = function.parameters.names
                self.add(function.syntax, tuple(Assignment((one,), source, True) for one in parameters))
                return

    # Nodes

    def add(
        self, syntax: ast.AST | None, assignments: tuple[Assignment, ...] = (), sinks: tuple[SinkCall, ...] = ()
    ) -> int:
        """Add a node after the ends, which becomes the only end."""
        node = Node(len(self.body.nodes), syntax, assignments, sinks, handlers=self.handlers)
        self.body.nodes.append(node)
        self.link(node.index)
        self.ends = [node.index]
        return node.index

    def add_call(self, call: Call) -> None:
        if self.ends:
            self.body.nodes[self.add(call.syntax)].call = call

    def link(self, target: int) -> None:
        """Let a node come after the ends, of which none is left then."""
        for end in dict.fromkeys(self.ends):
            self.body.nodes[end].successors.append(target)
        self.ends = []

    def finish(self, syntax: ast.AST) -> None:
        """Add the node of a statement or of a test, if it does anything, so that no end is a call."""
        assignments, sinks = self.expressions.take()
        after_call = any(self.body.nodes[end].call is not None for end in self.ends)
        if self.ends and (assignments or sinks or after_call or self.handlers):
            self.add(syntax, assignments, sinks)

    def join(self) -> None:
        if len(self.ends) > _MAX_ENDS:
            self.add(None)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if not self.ends:
                return
            rule = self.statements.get(type(statement))
            if rule is not None:
                self.join()
                rule(statement)

    # Simple statements

    def expression(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.expressions.evaluate(node.value)
            self.finish(node)

    def assign(self, node: ast.Assign) -> None:
        value = self.expressions.evaluate(node.value)
        for target in node.targets:
            self.expressions.assign(target, value)
        self.finish(node)

    def annotated_assign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.expressions.assign(node.target, self.expressions.evaluate(node.value))
            self.finish(node)

    def augmented_assign(self, node: ast.AugAssign) -> None:
        value = union((self.expressions.evaluate(node.target), self.expressions.evaluate(node.value)))
        self.expressions.assign(node.target, value)
        self.finish(node)

    def delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, (ast.Name, ast.Attribute)):
                self.expressions.assign(target, HARMLESS)
        self.finish(node)

    def assert_(self, node: ast.Assert) -> None:
        self.expressions.evaluate(node.test)
        self.finish(node)
        self.assume(node.test, True)

    def return_(self, node: ast.Return) -> None:
        value = self.expressions.evaluate(node.value)
        if node.value is not None and self.body.function is not None:
            self.expressions.assign_path(RETURN, value, strong=True)
        self.finish(node)
        self.jump("return")

    def raise_(self, node: ast.Raise) -> None:
        self.expressions.evaluate(node.exc)
        self.finish(node)  # a node within a `try` leads to its handlers
        self.ends = []

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Evaluate the defaults of a function, with which it may be called at any time."""
        given = node.args
        positional = (*given.posonlyargs, *given.args)
        pairs = [*zip(positional[len(positional) - len(given.defaults) :], given.defaults, strict=True)]
        pairs += [(one, default) for one, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default]
        defaults = {one.arg: self.expressions.evaluate(default) for one, default in pairs}
        used = {name: value for name, value in defaults.items() if value.dependencies}
        defined = self.expressions.scope.functions.get(node.name, ())
        function = next((one for one in defined if one.syntax is node), None)
        if used and function is not None:
            self.add_call(Call(None, (CallTarget(function, used, False),), node))
        self.finish(node)

    def class_(self, node: ast.ClassDef) -> None:
        scope = self.expressions.scope
        made = scope.classes.get(node.name)
        if made is None or made.syntax is not node:
            return
        self.body.classes.append(made)
        self.expressions.scope = made.scope
        self.run(node.body)
        self.expressions.scope = scope

    # Branches and loops

    def assume(self, test: ast.expr, truth: bool) -> None:
        """Make harmless what a test has checked, on the branch of this outcome."""
        guarded = self.expressions.guarded(test, truth)
        if guarded and self.ends:
            self.add(test, tuple(Assignment(path, HARMLESS, True, rebinds=False) for path in guarded))

    def if_(self, node: ast.If) -> None:
        self.expressions.evaluate(node.test)
        self.finish(node.test)
        constant = _constant_truth(node.test)
        start, ends = self.ends, []
        if constant is not False:
            self.ends = list(start)
            self.assume(node.test, True)
            self.run(node.body)
            ends += self.ends
        if constant is not True:
            self.ends = list(start)
            self.assume(node.test, False)
            self.run(node.orelse)
            ends += self.ends
        self.ends = ends

    def while_(self, node: ast.While) -> None:
        head = self.add(None)
        self.expressions.evaluate(node.test)
        self.finish(node.test)
        constant = _constant_truth(node.test)
        start = self.ends
        loop = _Loop(head)
        self.ends = [] if constant is False else list(start)
        self.assume(node.test, True)
        self.run_loop(loop, node.body)
        self.ends = [] if constant is True else list(start)
        self.assume(node.test, False)
        self.run(node.orelse)
        self.ends += loop.breaks

    def for_(self, node: ast.For | ast.AsyncFor) -> None:
        head = self.add(None)
        value = self.expressions.element(node.iter)
        self.finish(node.iter)
        start = self.ends
        loop = _Loop(head)
        self.ends = list(start)
        self.expressions.assign(node.target, value)
        self.finish(node)
        self.run_loop(loop, node.body)
        self.ends = list(start)
        self.run(node.orelse)
        self.ends += loop.breaks

    def run_loop(self, loop: _Loop, statements: list[ast.stmt]) -> None:
        self.frames.append(loop)
        self.run(statements)
        self.frames.pop()
        self.link(loop.head)

    def match_(self, node: ast.Match) -> None:
        value = self.expressions.evaluate(node.subject)
        self.finish(node.subject)
        ends: list[int] = []
        for case in node.cases:
            start = list(self.ends)
            if not start:
                break
            for name in _captured(case.pattern):
                captured = value if isinstance(case.pattern, ast.MatchAs) else Value(value.dependencies)
                self.expressions.assign(ast.Name(name, ast.Store()), captured)
            self.expressions.evaluate(case.guard)
            self.finish(case.pattern)
            if case.guard is not None:
                start += self.ends
                self.assume(case.guard, True)
            self.run(case.body)
            ends += self.ends
            is_last = case.guard is None and isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None
            self.ends = [] if is_last else start
        self.ends = ends + self.ends

    def with_(self, node: ast.With | ast.AsyncWith) -> None:
        suppresses = False
        for item in node.items:
            value = self.expressions.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.expressions.assign(item.optional_vars, value)
            suppresses = suppresses or tables.last_name(item.context_expr) == "suppress"
        self.finish(node)
        if not suppresses:
            self.run(node.body)
            return
        caught = self.add_loose(self.handlers)
        outer, self.handlers = self.handlers, (caught,)
        self.run(node.body)
        self.handlers = outer
        self.ends.append(caught)

    # Exceptions

    def try_(self, node: ast.Try | ast.TryStar) -> None:
        outer = self.handlers
        if node.finalbody:
            raised = self.add_loose(outer)
            self.frames.append(_Finally(node.finalbody, outer))
            self.handlers = (raised,)
            self.try_except(node)
            self.frames.pop()
            self.handlers = outer
            ends, self.ends = self.ends, [raised]
            self.run(node.finalbody)
            self.continue_raising()
            self.ends = ends
            self.run(node.finalbody)
        else:
            self.try_except(node)

    def try_except(self, node: ast.Try | ast.TryStar) -> None:
        outer = self.handlers
        if node.handlers:
            catches_all = any(_catches_all(one) for one in node.handlers)
            caught = self.add_loose(() if catches_all else outer)
            self.handlers = (caught,)
        self.run(node.body)
        self.handlers = outer
        self.run(node.orelse)
        ends = self.ends
        for handler in node.handlers:
            self.ends = [caught]
            if handler.name is not None:
                self.expressions.assign(ast.Name(handler.name, ast.Store()), HARMLESS)
                self.finish(handler)
            self.run(handler.body)
            ends += self.ends
        self.ends = ends

    def add_loose(self, handlers: tuple[int, ...]) -> int:
        """Add a node that only exceptions lead to."""
        node = Node(len(self.body.nodes), None, handlers=handlers)
        self.body.nodes.append(node)
        return node.index

    def continue_raising(self) -> None:
        ends = self.ends
        for handler in self.handlers:
            self.ends = list(ends)
            self.link(handler)
        self.ends = []

    def jump(self, kind: str) -> None:
        """Leave by ``return``, ``break`` or ``continue``, through the copies of ``finally`` for it."""
        frames, handlers = self.frames, self.handlers
        while self.ends and self.frames:
            self.frames, frame = self.frames[:-1], self.frames[-1]
            if isinstance(frame, _Finally):
                is_known = kind in frame.copies
                if is_known:
                    self.link(frame.copies[kind])
                else:
                    self.handlers = frame.handlers
                    frame.copies[kind] = self.add(None)
                    self.run(frame.body)
            elif kind == "break":
                frame.breaks += self.ends
                self.ends = []
            elif kind == "continue":
                self.link(frame.head)
        if kind == "return":
            self.link(END)
        self.frames, self.handlers, self.ends = frames, handlers, []


def _constant_truth(test: ast.expr) -> bool | None:
    match test:
        case ast.Constant():
            return bool(test.value)
        case ast.UnaryOp(op=ast.Not()):
            inner = _constant_truth(test.operand)
            return None if inner is None else not inner
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return False
    return None


def _catches_all(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(one is None or tables.last_name(one) in _CATCH_ALL for one in kinds)


def _captured(pattern: ast.pattern) -> list[str]:
    """The names that a pattern binds."""
    found = []
    for one in ast.walk(pattern):
        name = one.rest if isinstance(one, ast.MatchMapping) else getattr(one, "name", None)
        if name is not None and isinstance(one, (ast.MatchAs, ast.MatchStar, ast.MatchMapping)):
            found.append(name)
    return found
