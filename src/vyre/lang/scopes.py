"""Where does each local name of a function live, and does it have a value wherever it is read?

Python's names live in a whole function; a variable of a program lives in a list of statements. A name becomes a
variable of the innermost list that holds all its uses which one value can reach, so a name that two loops use on their
own is two variables.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import msgspec

from vyre.lang.tasks import Task, run

Statements = list[ast.stmt]


class Scopes(msgspec.Struct, frozen=True, eq=False):
    """``homes``: by the id of a statement list, the names that live in it. ``unset``: reads before any value.

    ``rewritten``: by the id of a loop's body, whether the loop's own name gets other values in it. ``ends``: whether
    the end of the function is reached.
    """

    locals: frozenset[str]
    written: frozenset[str]
    homes: dict[int, set[str]]
    unset: dict[str, ast.AST]
    rewritten: dict[int, bool]
    ends: bool


class _Summary(msgspec.Struct, eq=False):
    """What a statement list does with names.

    ``exposed`` are read before the list gives them a value, with the first read; ``given`` have one at its end, which
    ``is_left`` says is never reached; ``own`` are used by its statements themselves, ``written`` anywhere in it.
    """

    body: Statements
    exposed: dict[str, ast.AST]
    given: set[str]
    own: set[str]
    written: set[str]
    inner: list[_Summary]
    is_left: bool = False

    def read(self, name: str, node: ast.AST) -> None:
        if name not in self.given and not self.is_left:
            self.exposed.setdefault(name, node)

    def take_in(self, inner: _Summary) -> None:
        self.inner.append(inner)
        self.written |= inner.written
        for name, node in inner.exposed.items():
            self.read(name, node)


def find_scopes(body: Statements, parameters: frozenset[str]) -> Scopes:
    """The scopes of a function with that body, in which the parameters have values from the start."""
    homes: dict[int, set[str]] = {}
    rewritten: dict[int, bool] = {}
    whole = run(_summarise(body, set(parameters), set(), [], rewritten))
    local_names = frozenset(whole.written | parameters)
    pending = [(whole, set(local_names - parameters))]
    while pending:
        part, names = pending.pop()
        shared = {name for inner in part.inner for name in inner.exposed}
        at_home = homes[id(part.body)] = names & (part.own | shared)
        pending += [(inner, names - at_home) for inner in part.inner]
    # A parameter that is assigned is a variable of the whole function.
    homes[id(body)] |= parameters & whole.written
    unset = {name: node for name, node in whole.exposed.items() if name in local_names}
    return Scopes(local_names, frozenset(whole.written), homes, unset, rewritten, not whole.is_left)


def _summarise(
    body: Statements, given: set[str], before: set[str], breaks: list[set[str]], rewritten: dict[int, bool]
) -> Task[_Summary]:
    """``breaks`` gets the names that have a value at each break: given here, or ``before`` in the loop's body."""
    found = _Summary(body, {}, set(given), set(), set(), [])
    for statement in body:
        for name in _reads(statement):
            found.own.add(name.id)
            found.read(name.id, name)
        match statement:
            case ast.If(_, then, otherwise):
                arms = []
                for arm in (then, otherwise):
                    arms.append((yield _summarise(arm, set(), before | found.given, breaks, rewritten)))
                    found.take_in(arms[-1])
                ends = [arm.given for arm in arms if not arm.is_left]
                found.is_left |= not ends
                found.given |= set.intersection(*ends) if ends else set()
            case ast.For() | ast.While():
                yield _summarise_loop(statement, found, rewritten)
            case ast.Return() | ast.Break() | ast.Continue():
                if isinstance(statement, ast.Break) and not found.is_left:
                    breaks.append(before | found.given)
                found.is_left = True
            case _:
                names = {name.id for name in _writes(statement)}
                found.own |= names
                found.written |= names
                found.given |= names
    return found


def _summarise_loop(loop: ast.For | ast.While, found: _Summary, rewritten: dict[int, bool]) -> Task[None]:
    target = {loop.target.id} if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) else set()
    breaks: list[set[str]] = []
    inner: _Summary = yield _summarise(loop.body, target, set(), breaks, rewritten)
    rewritten[id(loop.body)] = bool(target & inner.written)
    inner.own |= target
    inner.written |= target
    found.take_in(inner)
    if isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant) and loop.test.value is True:
        found.is_left |= not breaks
        found.given |= set.intersection(*breaks) if breaks else set()


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """All nodes of a statement's own expressions."""
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            yield from ast.walk(child)


def _reads(statement: ast.stmt) -> list[ast.Name]:
    reads = [n for n in _expressions(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        reads.append(statement.target)
    return sorted(reads, key=lambda name: (name.lineno, name.col_offset))


def _writes(statement: ast.stmt) -> list[ast.Name]:
    return [n for n in _expressions(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
