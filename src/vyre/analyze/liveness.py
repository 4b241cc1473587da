"""Which values may still be needed at a point? One backward dataflow over structured code.

Facts are strings: a variable is its name, or ``=name`` while it may still be assigned; workgroup memory is ``@buffer``
(needed while something may read it; no write is known to replace all of it); a transfer is ``#tag`` (needed from its
issue to its wait). A loop's variable and its stop count as needed to the end of its body, where the next pass begins.

Every statement is summed up once, from the inside out: what it may need from before (``uses``), what it surely
replaces (``sets``), where it may jump to. A loop's head needs what its body uses and what is needed after it, and
nothing more, so loops need no iteration. Then lists that hold points are walked once more, from their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from vyre.analyze.effects import buffers_read
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program

MEMORY: Final = "@"
ASSIGNED: Final = "="
TRANSFER: Final = "#"
_BREAK: Final = "break"
_CONTINUE: Final = "continue"
_TRAP: Final = "trap "

Targets = Mapping[str, Iterable[str]]


class _Flow(msgspec.Struct):
    """The summary of a statement or of a list; ``size`` counts its statements, ``holds`` says if a point is in it."""

    uses: set[str]
    sets: set[str]
    jumps: set[str]
    size: int
    holds: bool


def live_at_points(program: Program, is_point: Callable[[n.Stmt], bool]) -> dict[int, frozenset[str]]:
    """For each point, by its statement's canonical number: the facts that are needed after it.

    A variable's name is unique in the program. An invocation that traps goes on after the next resume of the tag.
    """
    return _Liveness(program, is_point).solve()


class _Liveness:
    def __init__(self, program: Program, is_point: Callable[[n.Stmt], bool]) -> None:
        self.is_point = is_point
        self.entry = program.entry
        self.shared = {decl.name for decl in program.buffers if decl.role is Role.SHARED}
        order = list(walk.statements(program.entry))
        self.flows: list[_Flow] = [_Flow(set(), set(), set(), 0, False)] * len(order)
        # Canonical order puts a statement before those inside it, so backwards the inner ones are done first.
        for number in range(len(order) - 1, -1, -1):
            self.flows[number] = self._flow(number, order[number])

    def solve(self) -> dict[int, frozenset[str]]:
        live: dict[int, frozenset[str]] = {}
        pending: list[tuple[n.Body, int, set[str], dict[str, set[str]]]] = [(self.entry, 0, set(), {})]
        while pending:
            body, first, needed, targets = pending.pop()
            for number, statement in reversed(list(self._numbered(body, first))):
                flow = self.flows[number]
                if flow.holds:
                    if self.is_point(statement):
                        live[number] = frozenset(needed)
                    pending += self._inner(number, statement, needed, targets)
                self._step_back(statement, flow, needed, targets)
        return live

    def _numbered(self, body: n.Body, first: int) -> Iterable[tuple[int, n.Stmt]]:
        for statement in body:
            yield first, statement
            first += self.flows[first].size

    def _inner(
        self, number: int, statement: n.Stmt, needed: set[str], targets: dict[str, set[str]]
    ) -> Iterable[tuple[n.Body, int, set[str], dict[str, set[str]]]]:
        """The lists inside a statement, each with what is needed at its end."""
        first = number + 1
        head = set(needed)
        inner_targets = {label: set(facts) for label, facts in targets.items()}
        if isinstance(statement, (n.Loop, n.While)):
            head |= self._list_flow(statement.body, first).uses
            if isinstance(statement, n.Loop):
                head |= self._uses((statement.stop,)) | {statement.var}
            else:
                head |= self._uses((statement.condition,))
            inner_targets |= {_BREAK: set(needed), _CONTINUE: head}
        for body in walk.bodies(statement):
            yield body, first, set(head), {label: set(facts) for label, facts in inner_targets.items()}
            first += self._list_flow(body, first).size

    @staticmethod
    def _step_back(statement: n.Stmt, flow: _Flow, needed: set[str], targets: dict[str, set[str]]) -> None:
        """Turns what is needed after a statement into what is needed before it."""
        needed -= flow.sets
        needed |= flow.uses
        for label in flow.jumps:
            needed |= targets.get(label, set())
        match statement:
            case n.Resume(tag):
                targets[_TRAP + tag] = set(needed)
            case n.Let(name):
                # Whoever trapped before this declaration passes it over.
                for label, facts in targets.items():
                    if label.startswith(_TRAP):
                        facts -= {name, ASSIGNED + name}

    def _flow(self, number: int, statement: n.Stmt) -> _Flow:
        uses = self._uses(walk.operands(statement))
        holds = self.is_point(statement)
        match statement:
            case n.Let(name):
                return _Flow(uses, {name, ASSIGNED + name}, set(), 1, holds)
            case n.Assign(name):
                return _Flow(uses | {ASSIGNED + name}, {name}, set(), 1, holds)
            case n.AsyncLoad() | n.AsyncStore():
                return _Flow(uses | self._memory(statement), {TRANSFER + statement.tag}, set(), 1, holds)
            case n.AsyncWait(tag):
                return _Flow(uses | {TRANSFER + tag}, set(), set(), 1, holds)
            case n.CopyBytes():
                return _Flow(uses | self._memory(statement), set(), set(), 1, holds)
            case n.Break():
                return _Flow(uses, set(), {_BREAK}, 1, holds)
            case n.Continue():
                return _Flow(uses, set(), {_CONTINUE}, 1, holds)
            case n.Trap(_, tag):
                return _Flow(uses, set(), {_TRAP + tag}, 1, holds)
        bodies = walk.bodies(statement)
        if not bodies:
            return _Flow(uses, set(), set(), 1, holds)
        lists: list[_Flow] = []
        first = number + 1
        for body in bodies:
            lists.append(self._list_flow(body, first))
            first += lists[-1].size
        jumps = set().union(*(part.jumps for part in lists))
        sets: set[str] = set()
        match statement:
            case n.Loop() | n.While():
                jumps -= {_BREAK, _CONTINUE}
            case _:
                sets = lists[0].sets.intersection(*(part.sets for part in lists[1:]))
        for part in lists:
            uses |= part.uses
        if isinstance(statement, n.Loop):
            uses.discard(statement.var)
        return _Flow(uses, sets, jumps, first - number, holds or any(part.holds for part in lists))

    def _list_flow(self, body: n.Body, first: int) -> _Flow:
        items = [(statement, self.flows[number]) for number, statement in self._numbered(body, first)]
        sets: set[str] = set()
        jumps: set[str] = set()
        jumped = False
        for statement, flow in items:
            if not jumped:
                sets |= flow.sets
            jumped |= bool(flow.jumps)
            jumps |= flow.jumps
            if isinstance(statement, n.Resume):
                jumps.discard(_TRAP + statement.tag)
        uses: set[str] = set()
        targets: dict[str, set[str]] = {}
        for statement, flow in reversed(items):
            self._step_back(statement, flow, uses, targets)
        return _Flow(uses, sets, jumps, sum(flow.size for _, flow in items), any(flow.holds for _, flow in items))

    def _uses(self, roots: Iterable[n.Expr]) -> set[str]:
        uses: set[str] = set()
        for root in roots:
            for node in walk.postorder(root):
                if type(node) is n.Var:
                    uses.add(node.name)
                elif type(node) is n.Load or type(node) is n.Atomic:
                    uses |= self._memory(node)
        return uses

    def _memory(self, node: n.Node) -> set[str]:
        return {MEMORY + name for name in buffers_read(node) if name in self.shared}
