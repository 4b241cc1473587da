"""Store removal: drop the stores whose value nothing can read.

A store is removed if the same invocation certainly overwrites the element and no statement between the two reads the
buffer: a read by another invocation, if it is free of races, stands between them too. A store to workgroup memory is
also removed if nothing reads that memory afterwards, later iterations of a loop included. Buffers that the host reads
keep their final values.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from vyre.analyze.effects import assigned_variables, buffers_read, written_buffers
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.ir.wire import node_bytes
from vyre.optimizer.cells import Value, Values

# The host or another rank may read memory at these, or the invocation may end.
_NOT_FOLLOWED: Final = (n.Trap, *n.GRID_POINTS, n.OpaqueStmt, n.OpaqueExpr, n.Call)
# Expressions that must stay although nothing uses their value: they have effects, or decide the launch geometry.
_KEPT: Final = (n.Atomic, *n.SUBGROUP_OPERATIONS)
_JUMPS: Final = (n.Break, n.Continue, n.Return)
_MOST_PASSES: Final = 8


class RemovedStores(NamedTuple):
    """The program without needless stores, and how many were removed."""

    program: Program
    removed: int


def remove_stores(program: Program) -> RemovedStores:
    """Remove the stores of a legal program whose value nothing can read."""
    stats = program.stats()
    if not stats.has(n.Store) or stats.has(*_NOT_FOLLOWED):
        return RemovedStores(program, 0)
    dead = _Overwritten(program).dead if _has_index_twice(program) else None
    better = _without(program, dead) if dead else program
    shared = frozenset(decl.name for decl in program.buffers if decl.role is Role.SHARED)
    count = len(dead or ())
    for _ in range(_MOST_PASSES if shared else 0):
        # A removed store may have been the only reader of what other stores wrote.
        better, found = _without_unread(better, shared)
        count += found
        if not found:
            break
    return RemovedStores(better, count)


def _has_index_twice(program: Program) -> bool:
    """Whether two stores to a buffer have textually equal indices; a cheap test that most long programs fail."""
    seen: set[tuple[str, str | bytes]] = set()
    for statement in walk.statements(program.entry):
        if type(statement) is n.Store:
            index = statement.index
            place = statement.buffer, index.name if type(index) is n.Var else node_bytes(index)
            if place in seen:
                return True
            seen.add(place)
    return False


def _without(program: Program, numbers: set[int]) -> Program:
    """Return the program without some stores, by their numbers in canonical order."""
    count = 0

    def replace(statement: n.Stmt) -> n.Body:
        nonlocal count
        if not isinstance(statement, n.Store):
            return (statement,)
        count += 1
        return () if count - 1 in numbers else (statement,)

    return program.with_entry(walk.rewrite(program.entry, on_statement=replace))


def _is_removable(statement: n.Store) -> bool:
    """Whether a store's operands have no effect of their own."""
    return not any(isinstance(node, _KEPT) for root in walk.operands(statement) for node in walk.postorder(root))


class _Overwritten:
    """The stores that the same invocation overwrites before anything reads them, by their numbers."""

    def __init__(self, program: Program) -> None:
        self.dead: set[int] = set()
        self.number = 0
        self.values = Values(program, assigned_variables(program), written_buffers(program))
        # By buffer and the number of the index: the last store there, while nothing has read the buffer since.
        self.pending: dict[str, dict[int, int]] = {}
        self._list(program.entry)

    def _list(self, body: n.Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Let(name, value):
                self.values.let(name, value, self._access)
            case n.Store(buffer, index, value):
                place = self.values.read(index, self._access, is_wanted=True).number
                self._reads(value)
                self._store(statement, buffer, place)
            case n.Loop():
                self.values.loop(statement, self._access)
                self._visit_uncertain(statement.body)
            case n.While(condition, body):
                self._reads(condition)
                self._visit_uncertain(body)
            case n.If(condition, then, otherwise):
                self._reads(condition)
                self._visit_uncertain(then)
                self._visit_uncertain(otherwise)
            case n.Block(body) | n.Region(body=body):
                self._list(body)
            case n.Break() | n.Continue() | n.Return() | n.AsyncWait():
                # Stores before a jump stay: a later store may not run.
                self.pending.clear()
            case _:
                for root in walk.operands(statement):
                    self._reads(root)
                for buffer in buffers_read(statement):
                    self.pending.pop(buffer, None)

    def _store(self, statement: n.Store, buffer: str, place: int | None) -> None:
        number, self.number = self.number, self.number + 1
        if place is None:
            return
        stores = self.pending.setdefault(buffer, {})
        before = stores.pop(place, None)
        if before is not None:
            self.dead.add(before)
        if _is_removable(statement):
            stores[place] = number

    def _visit_uncertain(self, body: n.Body) -> None:
        """Visit a list that may not run or may repeat: it certainly overwrites no earlier store, but may read it."""
        outer, self.pending = self.pending, {}
        self._list(body)
        self.pending = outer
        for statement in walk.statements(body) if outer else ():
            self._forget(statement)

    def _forget(self, statement: n.Stmt) -> None:
        if isinstance(statement, (*_JUMPS, n.AsyncWait)):
            self.pending.clear()
        for buffer in buffers_read(statement):
            self.pending.pop(buffer, None)
        for root in walk.operands(statement):
            for node in walk.postorder(root):
                self._read(node)

    def _read(self, node: n.Expr) -> None:
        if isinstance(node, n.Atomic) and node.order is not n.MemoryOrder.RELAXED:
            self.pending.clear()
        elif isinstance(node, (n.Load, n.Atomic)):
            self.pending.pop(node.buffer, None)

    def _reads(self, root: n.Expr) -> None:
        self.values.read(root, self._access)

    def _access(self, node: n.Load | n.Atomic, _: Value) -> None:
        self._read(node)


def _without_unread(program: Program, shared: frozenset[str]) -> RemovedStores:
    """Return the program without the stores to workgroup memory that nothing reads afterwards."""
    reads: dict[int, frozenset[str]] = {}
    count = 0

    def reads_of(statement: n.Stmt) -> frozenset[str]:
        """Return the workgroup memory that a statement and everything inside it read."""
        known = reads.get(id(statement))
        if known is None:
            found = set(buffers_read(statement))
            for root in walk.operands(statement):
                found.update(buffer for node in walk.postorder(root) for buffer in buffers_read(node))
            known = frozenset(found & shared).union(*map(reads_of_list, walk.bodies(statement)))
            reads[id(statement)] = known
        return known

    def reads_of_list(body: n.Body) -> frozenset[str]:
        return frozenset[str]().union(*map(reads_of, body))

    def kept(body: n.Body, later: set[str]) -> n.Body:
        """Return a list without dead stores; ``later``, the memory read behind it, is extended by what it reads."""
        nonlocal count
        done: list[n.Stmt] = []
        for statement in reversed(body):
            if (
                isinstance(statement, n.Store)
                and statement.buffer in shared
                and statement.buffer not in later
                and _is_removable(statement)
            ):
                count += 1
                continue
            lists = walk.bodies(statement)
            if lists:
                if isinstance(statement, (n.Loop, n.While)):
                    later |= reads_of(statement)
                before = count
                inner = tuple(kept(one, set(later)) for one in lists)
                if count != before:
                    fields = dict(zip(walk.BODY_FIELDS[type(statement)], inner, strict=True))
                    statement = msgspec.structs.replace(statement, **fields)
            later |= reads_of(statement)
            done.append(statement)
        done.reverse()
        return tuple(done)

    entry = kept(program.entry, set())
    return RemovedStores(program.with_entry(entry) if count else program, count)
