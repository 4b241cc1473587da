"""Where do the barriers of a workgroup cut its code? Into runs, each of which all invocations finish before the next.

A statement with a barrier inside is walked by the workgroup as a whole (the checker made sure that all of it takes
one way); every stretch of statements between is a run, a loop over the workgroup's vectors of lanes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from vyre.ir import nodes as n
from vyre.ir import walk

Run = tuple[n.Stmt, ...]
Leavings = dict[int, frozenset[type[n.Stmt]]]

_MOST_CHEAP: Final = 16
_CHEAP: Final = {
    "add", "sub", "mul", "shl", "shr", "and", "or", "xor", "min", "max", "eq", "ne", "lt", "le", "gt", "ge", "neg",
    "not", "lnot", "abs", "rotl", "rotr",
}  # fmt: skip


def statements_with_barriers(body: n.Body) -> set[int]:
    """The barriers and the statements with barriers inside, by identity."""
    found: set[int] = set()
    _find(body, found)
    return found


def _find(body: n.Body, found: set[int]) -> bool:
    any_found = False
    for statement in body:
        inside = [_find(inner, found) for inner in walk.bodies(statement)]
        if isinstance(statement, n.Barrier) or any(inside):
            found.add(id(statement))
            any_found = True
    return any_found


def runs_of(body: n.Body, with_barriers: set[int]) -> Iterator[Run | n.Stmt]:
    """The runs of a list, and between them the statements that have barriers."""
    run: list[n.Stmt] = []
    for statement in body:
        if id(statement) not in with_barriers:
            run.append(statement)
            continue
        if run:
            yield tuple(run)
            run = []
        yield statement
    if run:
        yield tuple(run)


class Crossing:
    """``names`` are the variables that one run leaves for another."""

    def __init__(self, body: n.Body, with_barriers: set[int]) -> None:
        self.names: set[str] = set()
        self._with_barriers = with_barriers
        self._home: dict[str, int] = {}
        self._run = 0
        self._visit(body)

    def _visit(self, body: n.Body) -> None:
        for part in runs_of(body, self._with_barriers):
            self._run += 1
            if isinstance(part, tuple):
                for statement in walk.statements(part):
                    self._note(statement)
                continue
            self._use(walk.operands(part))
            for inner in walk.bodies(part):
                self._visit(inner)

    def _note(self, statement: n.Stmt) -> None:
        self._use(walk.operands(statement))
        match statement:
            case n.Let(name):
                self._home[name] = self._run
            case n.Loop(var):
                self._home[var] = self._run
            case n.Assign(name) if self._home.get(name, self._run) != self._run:
                self.names.add(name)

    def _use(self, roots: Iterable[n.Expr]) -> None:
        for root in roots:
            for node in walk.postorder(root):
                # The counter of a loop with barriers has no home: it is the workgroup's own.
                if isinstance(node, n.Var) and self._home.get(node.name, self._run) != self._run:
                    self.names.add(node.name)


def leavings(body: n.Body) -> Leavings:
    """For each statement (by identity), how invocations may leave it other than at its end."""
    found: Leavings = {}
    _leave(body, found)
    return found


def _leave(body: n.Body, found: Leavings) -> frozenset[type[n.Stmt]]:
    every: set[type[n.Stmt]] = set()
    for statement in body:
        ways: set[type[n.Stmt]] = set()
        for inner in walk.bodies(statement):
            ways |= _leave(inner, found)
        if isinstance(statement, (n.Break, n.Continue, n.Return)):
            ways.add(type(statement))
        elif isinstance(statement, (n.Loop, n.While)):
            ways -= {n.Break, n.Continue}
        found[id(statement)] = frozenset(ways)
        every |= ways
    return frozenset(every)


def is_cheap(body: n.Body) -> bool:
    """Whether a list costs less than finding out whether anybody needs it: a few plain operations on variables."""
    nodes = 0
    for statement in body:
        if not isinstance(statement, (n.Let, n.Assign)):
            return False
        for node in walk.postorder(statement.value):
            nodes += 1
            plain = isinstance(node, (n.Var, n.Lit, n.Select, n.InvocationId, n.BufLen))
            plain = plain or (isinstance(node, (n.BinOp, n.UnOp)) and node.op in _CHEAP)
            if not plain or nodes > _MOST_CHEAP:
                return False
    return True
