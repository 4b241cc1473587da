"""What do calls and opaque nodes mean? Whatever their registered definition, written in the IR, says.

A composite operation has typed parameters, statements and a result; an extension expands its payload to an
expression or to statements. Both are replaced by their definition (``inline_calls``) before anything runs, so
every backend has them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import count
from threading import Lock

import msgspec

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_NESTING, MAX_STATEMENTS
from vyre.ir.linearise import replace_in_statement
from vyre.ir.places import Place, SourceMap, Span, placed
from vyre.ir.program import Program
from vyre.semantics.types import DType


class CompositeOp(msgspec.Struct, frozen=True):
    """A named operation: ``body`` runs with the parameters bound to the arguments, then ``result`` is the value.

    The body may use the buffers of the program that calls it, by name. It ends by reaching its end.
    """

    op_id: str
    parameters: tuple[tuple[str, DType], ...]
    result_type: DType
    result: n.Expr
    body: n.Body = ()


Expansion = n.Expr | n.Body

_lock = Lock()
_operations: dict[str, CompositeOp] = {}
_extensions: dict[str, Callable[[bytes], Expansion]] = {}


def register_op(operation: CompositeOp) -> CompositeOp:
    """Makes a composite operation known; the same definition may be registered again."""
    if any(isinstance(s, n.Return) for s in walk.statements(operation.body)):
        raise InvalidProgram(
            f"the body of operation '{operation.op_id}' returns, which would end its caller.",
            "let the body reach its end, and give the value as its result.",
        )
    with _lock:
        known = _operations.setdefault(operation.op_id, operation)
    if known != operation:
        raise InvalidProgram(
            f"another operation is registered as '{operation.op_id}'.", "choose an op_id that nobody uses."
        )
    return operation


def register_extension(kind: str, expand: Callable[[bytes], Expansion]) -> None:
    """Makes an extension known: ``expand`` must be a pure function of the payload."""
    with _lock:
        known = _extensions.setdefault(kind, expand)
    if known is not expand:
        raise InvalidProgram(f"another extension is registered as '{kind}'.", "choose a kind that nobody uses.")


def lookup_op(op_id: str) -> CompositeOp | None:
    return _operations.get(op_id)


def lookup_extension(kind: str) -> Callable[[bytes], Expansion] | None:
    return _extensions.get(kind)


def inline_calls(program: Program) -> Program:
    """The program with every call and opaque node replaced by what it means.

    Operands keep their order of evaluation: what was to be evaluated before a call is bound to variables first.
    What is registered never changes, so the result is made once and stays with the program.
    """
    if not program.stats().has_extensions:
        return program
    kept = program.__dict__
    inlined: Program | None = kept.get("_inlined")
    if inlined is None:
        inlined = kept["_inlined"] = _inlined(program)
    return inlined


def _inlined(program: Program) -> Program:
    _refuse_circular_calls(program)
    for _ in range(MAX_NESTING):
        stats = program.stats()
        if not stats.has_extensions:
            return program
        if stats.statements > MAX_STATEMENTS or not stats.complete:
            raise InvalidProgram(
                f"calls stand for more than {MAX_STATEMENTS:,} statements.", "call less, or split the program."
            )
        program = _Inliner(program).inlined()
    raise InvalidProgram(
        f"definitions of operations call each other more than {MAX_NESTING} deep.", "remove the circular call."
    )


def _refuse_circular_calls(program: Program) -> None:
    """Raises if a definition reaches itself: inlining it would not end."""
    callees: dict[str, list[str]] = {}
    pending = _called(walk.expressions(program.entry)) if program.stats().has(n.Call) else []
    while pending:
        op_id = pending.pop()
        operation = lookup_op(op_id)
        if operation is not None and op_id not in callees:
            callees[op_id] = _called(walk.expressions((*operation.body, n.Let("result", operation.result))))
            pending += callees[op_id]
    try:
        TopologicalSorter(callees).prepare()
    except CycleError as error:
        circle = " calls ".join(f"'{op_id}'" for op_id in reversed(error.args[1]))
        raise InvalidProgram(f"operation {circle}.", "remove the circular call.") from None


def _called(expressions: Iterable[n.Expr]) -> list[str]:
    return list(dict.fromkeys(node.op_id for node in expressions if isinstance(node, n.Call)))


class _Inliner:
    """Replaces the calls of one program, one level deep, with variables that no other part of it names."""

    def __init__(self, program: Program) -> None:
        names = {decl.name for decl in program.buffers}
        for statement in walk.statements(program.entry):
            names.update(declared_names((statement,)))
        self.program = program
        self.taken = names
        self.numbers = count()
        # Where statements and expressions stand in the source, by id, and the numbers of the statements that are open.
        self.spans = {} if program.source is None else _expression_spans(program, program.source)
        self.statements = count()
        self.open: list[int] = []

    def fresh(self, hint: str) -> str:
        while (name := f"{hint}_{next(self.numbers)}") in self.taken:
            pass
        self.taken.add(name)
        return name

    def inlined(self) -> Program:
        """The program, and where each part of it came from."""
        entry = walk.rewrite(self.program.entry, _expand_expression, self.leave, self.enter)
        made, source = self.program.with_entry(entry), self.program.source
        return made if source is None else made.with_source(placed(source, made, self.spans))

    def enter(self, statement: n.Stmt) -> n.Stmt:
        self.open.append(next(self.statements))
        return statement

    def leave(self, statement: n.Stmt) -> Iterable[n.Stmt]:
        number = self.open.pop()
        made = tuple(self.replaced(statement))
        if self.program.source is not None:
            span = self.program.source.span(Place(number))
            self.spans.update((id(one), span) for one in made)
        return made

    def replaced(self, statement: n.Stmt) -> Iterable[n.Stmt]:
        if isinstance(statement, n.OpaqueStmt):
            expansion = _expand(statement.kind, statement.payload)
            if isinstance(expansion, n.Expr):
                raise InvalidProgram(
                    f"extension '{statement.kind}' stands for an expression but is used as a statement.",
                    "use an OpaqueExpr.",
                )
            return (n.Block(self.renamed(expansion, {})),)
        return replace_in_statement(statement, lambda node: isinstance(node, n.Call), self.inline, self.fresh)

    def inline(self, node: n.Expr, args: tuple[n.Expr, ...], prelude: list[n.Stmt]) -> n.Expr:
        assert isinstance(node, n.Call)  # nothing else is replaced
        operation = lookup_op(node.op_id)
        if operation is None:
            raise InvalidProgram(f"operation '{node.op_id}' is not registered.", "register it with register_op.")
        if len(args) != len(operation.parameters):
            raise InvalidProgram(
                f"operation '{node.op_id}' takes {len(operation.parameters)} arguments, not {len(args)}.",
                "give one argument for each parameter.",
            )
        names: dict[str, str] = {}
        for (parameter, _), argument in zip(operation.parameters, args, strict=True):
            names[parameter] = self.fresh(parameter)
            prelude.append(n.Let(names[parameter], argument))
        prelude.extend(self.renamed(operation.body, names))
        result = self.fresh("result")
        prelude.append(n.Let(result, _with_names(operation.result, names)))
        return n.Var(result)

    def renamed(self, body: n.Body, names: dict[str, str]) -> n.Body:
        """The body with fresh names for what it declares; ``names`` is extended by what its outer list declares.

        Two sibling scopes that declare one name may share its fresh name: they still do not see each other.
        """
        for name in declared_names(walk.statements(body)):
            if name not in names:
                names[name] = self.fresh(name)

        def rename(statement: n.Stmt) -> Iterable[n.Stmt]:
            match statement:
                case n.Let(name, value):
                    return (n.Let(names[name], value),)
                case n.Assign(name, value):
                    return (n.Assign(names.get(name, name), value),)
                case n.Loop(var, start, stop, inner):
                    return (n.Loop(names[var], start, stop, inner),)
            return (statement,)

        return walk.rewrite(body, lambda e: _renamed_variable(e, names), rename)


def _expression_spans(program: Program, source: SourceMap) -> dict[int, Span]:
    """Where expressions stand, by id; one object in several places is in none of them."""
    spans: dict[int, Span] = {}
    uses: Counter[int] = Counter()
    for number, statement in enumerate(walk.statements(program.entry)):
        nodes = (node for root in walk.operands(statement) for node in walk.postorder(root))
        for index, node in enumerate(nodes):
            uses[id(node)] += 1
            spans[id(node)] = source.span(Place(number, index))
    return {key: span for key, span in spans.items() if uses[key] == 1}


def declared_names(statements: Iterable[n.Stmt]) -> Iterable[str]:
    """The variables that these statements declare themselves."""
    for statement in statements:
        if isinstance(statement, n.Let):
            yield statement.name
        elif isinstance(statement, n.Loop):
            yield statement.var


def _with_names(root: n.Expr, names: dict[str, str]) -> n.Expr:
    return walk.rewrite_expression(root, lambda e: _renamed_variable(e, names))


def _renamed_variable(node: n.Expr, names: dict[str, str]) -> n.Expr:
    return n.Var(names[node.name]) if isinstance(node, n.Var) and node.name in names else node


def _expand_expression(node: n.Expr) -> n.Expr:
    if not isinstance(node, n.OpaqueExpr):
        return node
    expansion = _expand(node.kind, node.payload)
    if not isinstance(expansion, n.Expr):
        raise InvalidProgram(
            f"extension '{node.kind}' stands for statements but is used as an expression.", "use an OpaqueStmt."
        )
    return expansion


def _expand(kind: str, payload: bytes) -> Expansion:
    expand = lookup_extension(kind)
    if expand is None:
        raise InvalidProgram(f"extension '{kind}' is not registered.", "register it with register_extension.")
    return expand(payload)
