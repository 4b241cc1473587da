"""Cell promotion: keep in a variable the element that a loop loads and stores in every iteration.

The loop must touch the buffer at one loop-invariant index only and contain no synchronization. Then, without a race, no
other invocation accesses the element before the loop ends. It is loaded before the loop, and stored behind it if the
loop stored it. LLVM does not find this in vector code, whose stores are masked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from vyre.analyze.effects import assigned_variables, used_names, written_buffers
from vyre.analyze.ranges import proved_accesses
from vyre.checker import check
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.optimizer.cells import Value, Values
from vyre.semantics.types import DType

# Loops with these are excluded: other invocations may see their stores, or control may leave without a store back.
_EXCLUDING: Final = (
    n.Barrier, *n.GRID_POINTS, n.AsyncLoad, n.AsyncStore, n.AsyncWait, n.CopyBytes, n.Return, n.Trap
)  # fmt: skip
_LOOPS: Final = (n.Loop, n.While)
_JUMPS: Final = (n.Break, n.Continue)
# Loops with more cells are left alone: the variables would not stay in registers.
_MOST_CELLS: Final = 8


class Promoted(NamedTuple):
    """The program with cells in variables, and how many were promoted."""

    program: Program
    promoted: int


class _Touched(msgspec.Struct):
    """How a loop touches a buffer: the number of its only index (None: of several), and such an index."""

    number: int | None
    index: n.Expr | None
    is_loaded: bool
    is_stored: bool


class _LoopFacts(msgspec.Struct):
    """Facts about a loop and those inside it: names declared, buffers touched, whether cells may be promoted.

    ``order`` is the loop's number in canonical order.
    """

    order: int
    names: set[str]
    buffers: dict[str, _Touched]
    is_eligible: bool = True


def promote_cells(program: Program) -> Promoted:
    """Keep in variables the elements that loops of a legal program load and store at one index each."""
    stats = program.stats()
    if not stats.has(*_LOOPS) or stats.has(n.Resume, n.Call, n.OpaqueExpr, n.OpaqueStmt) or not _loops_store(program):
        return Promoted(program, 0)
    cells = _Finder(program).cells
    if not cells:
        return Promoted(program, 0)
    found = _Promoter(program, cells).run()
    # Control flow must stay uniform by the checker's rules.
    return Promoted(program, 0) if check(found.program).errors else found


def _loops_store(program: Program) -> bool:
    """Whether a loop loads and stores the same buffer."""
    for loop in walk.statements(program.entry):
        if isinstance(loop, _LOOPS) and not any(isinstance(one, _EXCLUDING) for one in walk.statements(loop.body)):
            stored = {inner.buffer for inner in walk.statements(loop.body) if isinstance(inner, n.Store)}
            if stored and any(isinstance(one, n.Load) and one.buffer in stored for one in walk.expressions((loop,))):
                return True
    return False


class _Finder:
    """Finds the cells of each loop, by the loop's number in canonical order; cells of outer loops take precedence."""

    def __init__(self, program: Program) -> None:
        self.cells: dict[int, dict[str, n.Expr]] = {}
        self.values = Values(program, assigned_variables(program), written_buffers(program))
        self.facts: list[_LoopFacts] = []
        self.count = 0
        self._list(program.entry)

    def _list(self, body: n.Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Let(name, value):
                self.values.let(name, value, self._access)
                self._declare(name)
            case n.Store(buffer, index, value):
                number = self.values.read(index, self._access, is_wanted=True).number
                self._reads(value)
                self._touch(buffer, _Touched(number, index, is_loaded=False, is_stored=True))
            case n.Loop():
                # Its bounds are computed before it.
                self.values.loop(statement, self._access)
                self._open(statement.var)
                self._list(statement.body)
                self._close()
            case n.While(condition, body):
                self._open()
                self._reads(condition)
                self._list(body)
                self._close()
            case _:
                if isinstance(statement, _EXCLUDING):
                    self._exclude()
                for root in walk.operands(statement):
                    self._reads(root)
                for body in walk.bodies(statement):
                    self._list(body)

    def _open(self, *declared: str) -> None:
        self.facts.append(_LoopFacts(self.count, set(declared), {}))
        self.count += 1

    def _close(self) -> None:
        facts = self.facts.pop()
        if facts.is_eligible:
            found = {
                buffer: touched.index
                for buffer, touched in facts.buffers.items()
                if touched.is_loaded and touched.is_stored and touched.number is not None and touched.index is not None
            }
            if found and len(found) <= _MOST_CELLS:
                self.cells[facts.order] = found
        if self.facts:
            outer = self.facts[-1]
            outer.is_eligible &= facts.is_eligible
            outer.names |= facts.names
            for buffer, touched in facts.buffers.items():
                _add(outer, buffer, touched)

    def _exclude(self) -> None:
        if self.facts:
            self.facts[-1].is_eligible = False

    def _declare(self, name: str) -> None:
        if self.facts:
            self.facts[-1].names.add(name)

    def _touch(self, buffer: str, touched: _Touched) -> None:
        if self.facts:
            _add(self.facts[-1], buffer, touched)

    def _reads(self, root: n.Expr) -> None:
        self.values.read(root, self._access)

    def _access(self, node: n.Load | n.Atomic, index: Value) -> None:
        if isinstance(node, n.Load):
            self._touch(node.buffer, _Touched(index.number, node.index, is_loaded=True, is_stored=False))
            return
        # Other invocations may read what was stored before an ordered atomic.
        if node.order is not n.MemoryOrder.RELAXED:
            self._exclude()
        self._touch(node.buffer, _Touched(None, node.index, is_loaded=True, is_stored=True))


def _add(facts: _LoopFacts, buffer: str, touched: _Touched) -> None:
    index = touched.index
    if index is not None and any(type(node) is n.Var and node.name in facts.names for node in walk.postorder(index)):
        # It uses a variable declared inside the loop, so it cannot be computed before it.
        index = None
    known = facts.buffers.get(buffer)
    if known is None:
        facts.buffers[buffer] = _Touched(touched.number, index, touched.is_loaded, touched.is_stored)
        return
    if known.number != touched.number:
        known.number = None
    known.index = index if known.index is None else known.index
    known.is_loaded |= touched.is_loaded
    known.is_stored |= touched.is_stored


class _Cell(NamedTuple):
    """A promoted cell: its index, the variables for its value, bounds check and stored flag, and its type."""

    place: n.Expr
    value: str
    is_inside: str
    is_stored: str
    dtype: DType


class _Promoter:
    def __init__(self, program: Program, cells: dict[int, dict[str, n.Expr]]) -> None:
        self.program, self.cells = program, cells
        self.types = {decl.name: decl.dtype for decl in program.buffers}
        self.proved = proved_accesses(program)
        self.taken = {decl.name for decl in program.buffers} | used_names(program.entry) | _declared(program.entry)
        self.promoted_cells: dict[str, _Cell] = {}
        self.loops = 0
        self.count = 0

    def run(self) -> Promoted:
        entry = self._list(self.program.entry)
        return Promoted(self.program.with_entry(entry), self.count)

    def _fresh(self, name: str) -> str:
        number = 0
        while (made := f"{name}_{number}" if number else name) in self.taken:
            number += 1
        self.taken.add(made)
        return made

    def _list(self, body: n.Body) -> n.Body:
        return tuple(made for statement in body for made in self._statement(statement))

    def _statement(self, statement: n.Stmt) -> Iterator[n.Stmt]:
        match statement:
            case n.Store(buffer, _, value) if buffer in self.promoted_cells:
                cell, new = self.promoted_cells[buffer], self._expression(value)
                if id(statement) not in self.proved:
                    new = n.Select(n.Var(cell.is_inside), new, n.Lit(0, cell.dtype))
                yield n.Assign(cell.value, new)
                yield n.Assign(cell.is_stored, n.lit(True))
            case n.Loop() | n.While():
                yield from self._loop(statement)
            case _:
                yield self._inside(statement)

    def _loop(self, statement: n.Loop | n.While) -> Iterator[n.Stmt]:
        order, self.loops = self.loops, self.loops + 1
        found = [
            (buffer, index) for buffer, index in self.cells.get(order, {}).items() if buffer not in self.promoted_cells
        ]
        cells: dict[str, _Cell] = {}
        for buffer, index in found:
            value, is_inside, is_stored = (self._fresh(f"{buffer}_{what}") for what in ("cell", "inside", "stored"))
            cell = _Cell(self._expression(index), value, is_inside, is_stored, self.types[buffer])
            cells[buffer] = cell
            yield n.Let(cell.value, n.Load(buffer, cell.place))
            yield n.Let(cell.is_inside, n.BinOp("lt", cell.place, n.BufLen(buffer)))
            yield n.Let(cell.is_stored, n.lit(False))
        self.count += len(cells)
        certain = _stored_for_certain(statement)
        # The bounds of a loop are computed before it.
        if isinstance(statement, n.Loop):
            bounds = {name: self._expression(getattr(statement, name)) for name in ("start", "stop")}
            statement = msgspec.structs.replace(statement, **bounds)
        self.promoted_cells |= cells
        if isinstance(statement, n.While):
            statement = msgspec.structs.replace(statement, condition=self._expression(statement.condition))
        statement = msgspec.structs.replace(statement, body=self._list(statement.body))
        yield statement
        for buffer, cell in cells.items():
            del self.promoted_cells[buffer]
            store = n.Store(buffer, cell.place, n.Var(cell.value))
            yield store if buffer in certain else n.If(n.Var(cell.is_stored), (store,))

    def _inside(self, statement: n.Stmt) -> n.Stmt:
        old = walk.operands(statement)
        new = tuple(map(self._expression, old))
        if any(a is not b for a, b in zip(old, new, strict=True)):
            statement = walk.with_operands(statement, new)
        bodies = walk.bodies(statement)
        if not bodies:
            return statement
        fields = dict(zip(walk.BODY_FIELDS[type(statement)], map(self._list, bodies), strict=True))
        return msgspec.structs.replace(statement, **fields)

    def _expression(self, root: n.Expr) -> n.Expr:
        if not self.promoted_cells:
            return root

        def change(node: n.Expr) -> n.Expr:
            if isinstance(node, n.Load) and node.buffer in self.promoted_cells:
                return n.Var(self.promoted_cells[node.buffer].value)
            return node

        return walk.rewrite_expression(root, change)


def _stored_for_certain(loop: n.Loop | n.While) -> set[str]:
    """Return the buffers that every invocation stores to in the first iteration of a loop."""
    match loop:
        case n.Loop(_, n.Lit(start), n.Lit(stop)) if start < stop:
            jumps = (
                i for i, one in enumerate(loop.body) if any(isinstance(s, _JUMPS) for s in walk.statements((one,)))
            )
            before = loop.body[: next(jumps, len(loop.body))]
            return {statement.buffer for statement in before if isinstance(statement, n.Store)}
    return set()


def _declared(body: n.Body) -> set[str]:
    found: set[str] = set()
    for statement in walk.statements(body):
        if isinstance(statement, n.Let):
            found.add(statement.name)
        elif isinstance(statement, n.Loop):
            found.add(statement.var)
    return found
