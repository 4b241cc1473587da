"""WGSL kernels from programs: statements, with lockstep execution where invocations must synchronise.

A program without early exits and subgroup operations is emitted statement by statement: the checker guarantees that its
barriers are in uniform control flow. In other programs, all invocations of a workgroup execute together every statement
that contains a synchronisation point. Each invocation has a flag ``on`` that tells whether it is active, and the
invocations vote on whether to enter a branch or another iteration of a loop.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Final

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.ranges import proved_accesses
from vyre.emit.prepare import prepare
from vyre.emit.wgsl import memory as m
from vyre.emit.wgsl import subgroups as s
from vyre.emit.wgsl.expressions import OVERRUN, Value
from vyre.emit.wgsl.module import FAULTS, ModuleWriter
from vyre.emit.wgsl.text import REGISTER
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.extensions import inline_calls
from vyre.ir.linearise import replace_in_statement
from vyre.ir.program import Program
from vyre.lower.fresh_names import fresh_names
from vyre.lower.transfers import Capture
from vyre.semantics.types import DType

# Devices that end long loops allow at least this many iterations of all loops together.
_SAFE_PASSES: Final = 1 << 15
_SUBGROUP_OPERATIONS: Final = (n.SubgroupBallot, n.SubgroupShuffle, n.SubgroupReduce)


class WgslKernel(msgspec.Struct, frozen=True):
    """A kernel's text and how to launch it.

    Binding 0 is the parameter block, in words: the grid, its number of workgroups, a zero, and the lengths of the
    buffers in ``sized``. The bindings from 1 on are the program's buffers, then the ``captures`` that the launch
    provides. With ``has_faults`` one more binding follows: a word that the kernel sets if the device ended a loop
    early. ``shared_bytes`` is all workgroup memory of the kernel. An invocation runs at most ``max_passes`` iterations
    of the program's loops.
    """

    text: str
    sized: tuple[str, ...]
    captures: tuple[Capture, ...]
    shared_bytes: int
    has_faults: bool
    max_passes: float


def emit_wgsl(
    program: Program, *, folded: bool = False, watches_loops: bool = False, native_subgroups: bool = False
) -> WgslKernel:
    """Emit a legal program without grid-wide cuts.

    A ``folded`` kernel runs any grid, folded over the axes. ``watches_loops`` is for devices that end loops after some
    number of iterations: the kernel detects it, unless its loops are certain to have fewer iterations.
    ``native_subgroups``: the device's subgroups have the program's size and consecutive lanes.
    """
    max_passes = _max_passes(inline_calls(program).entry)
    if watches_loops and max_passes <= _SAFE_PASSES:
        kernel = _Emitter(program, folded, False, native_subgroups).run(max_passes)
        # Library functions also contain loops.
        if f"{OVERRUN}(" not in kernel.text:
            return kernel
    return _Emitter(program, folded, watches_loops, native_subgroups).run(max_passes)


class _Exits(msgspec.Struct, frozen=True):
    """The flags to clear when an invocation leaves the iteration of a loop, the loop, or the program."""

    skip: tuple[str, ...] = ()
    leave: tuple[str, ...] = ()
    end: tuple[str, ...] = ()


class _Emitter(ModuleWriter):
    def __init__(self, program: Program, folded: bool, watches_loops: bool, native: bool) -> None:
        prepared = prepare(program)
        super().__init__(_bind_subgroup_operations(prepared.program), prepared.captures, folded, watches_loops, native)
        stats = self.program.stats()
        self.proved = proved_accesses(self.program)
        self.orders_storage = _orders_storage(self.program)
        self.assigned = {s.name for s in walk.statements(self.program.entry) if isinstance(s, n.Assign)}
        may_exit_early = stats.has(n.Return) or self.lanes != self.size
        self.in_lockstep = stats.has(*_SUBGROUP_OPERATIONS) or (may_exit_early and stats.has_barriers)
        self.sync_points = _synchronizing_statements(self.program.entry) if self.in_lockstep else set()
        self.exits: _Exits | None = None
        # For each enclosing loop, the flag that it has ended regularly; "" if loops are not watched.
        self.loops: list[str] = []

    def run(self, max_passes: float) -> WgslKernel:
        if self.in_lockstep:
            on = self._flag("on", "true" if self.lanes == self.size else f"{self.lane} < {self.size}u")
            self._phased_list(self.program.entry, on, _Exits(end=(on,)))
        else:
            self._list(self.program.entry)
        text = self.text()
        return WgslKernel(
            text=text,
            sized=tuple(self.sized),
            captures=self.captures,
            shared_bytes=4 * self.shared_words,
            has_faults=FAULTS in text,
            max_passes=max_passes,
        )

    def _list(self, body: n.Body) -> None:
        """Write a list of statements without synchronisation."""
        if self.exits is not None and not self.loops and any(map(_may_exit, body)):
            self._guarded_list(body)
            return
        for statement in body:
            self._statement(statement)

    def _guarded_list(self, body: n.Body) -> None:
        """Write a list in lockstep, with visible variables; code after an exit is guarded by the flag."""
        assert self.exits is not None  # other lists need no guards
        head = ""
        for piece in _split_after_exits(body):
            with self.lines.block(head) if head else nullcontext():
                for statement in piece:
                    if isinstance(statement, n.Let):
                        self._hoist_value(statement.name, self.shared(statement.value))
                    else:
                        self._statement(statement)
            head = f"if ({self.exits.end[-1]})"

    def _statement(self, statement: n.Stmt) -> None:
        lines = self.lines
        match statement:
            case n.Let(name, value):
                made = self.shared(value)
                word = "var" if name in self.assigned else "let"
                lines.add(f"{word} {self.declare(name, made.dtype)} = {made.text};")
            case n.Assign(name, value):
                lines.add(f"{self.variables[name].text} = {self.shared(value).text};")
            case n.Store(_, index, value):
                at, stored = self.named(index), self.named(value)
                lines.add(f"{self._store(statement)}({at.text}, {stored.text});")
            case n.If(condition, then, otherwise):
                with lines.block(f"if ({self.evaluate(condition).text})"):
                    self._list(then)
                if otherwise:
                    lines.lines.pop()
                    with lines.block("} else"):
                        self._list(otherwise)
            case n.Loop() | n.While():
                self._loop(statement)
            case n.Break() | n.Continue():
                self._jump(statement)
            case n.Return():
                self._return()
            case n.Barrier(order) if order is not n.MemoryOrder.GRID_SYNC:
                lines.add("workgroupBarrier();")
                if self.orders_storage:
                    lines.add("storageBarrier();")
            case n.Block(body) | n.Region(_, _, body):
                with lines.block():
                    self._list(body)
            case n.CopyBytes(source, destination):
                values = [self.named(root).text for root in walk.operands(statement)]
                lines.add(f"{self._copy(source, destination)}({', '.join(values)});")
            case _:
                raise TypeError(f"{type(statement).__name__} is not a statement of a kernel")

    def _store(self, store: n.Store) -> str:
        place, proved = self.places[store.buffer], id(store) in self.proved
        return self.function(
            ("store", store.buffer, proved),
            f"{'set' if proved else 'store'}_{place.name}",
            lambda name: m.store_function(place, name, self.use, proved=proved),
        )

    def _copy(self, source: str, destination: str) -> str:
        start, end = self.places[source], self.places[destination]
        return self.function(
            ("copy", source, destination),
            f"copy_{start.name}_{end.name}",
            lambda name: m.copy_function(start, end, name),
        )

    def _stable(self, expression: n.Expr) -> Value:
        """Return a value that later assignments do not change."""
        value = self.named(expression)
        is_changing = isinstance(expression, n.Var) and expression.name in self.assigned
        return self.bind(msgspec.structs.replace(value, is_name=False)) if is_changing else value

    def _loop(self, loop: n.Loop | n.While) -> None:
        if isinstance(loop, n.Loop):
            start, stop = self._stable(loop.start), self._stable(loop.stop)
            name = self.declare(loop.var, DType.U32)
            going = "" if self.watches_loops else f" {name} < {stop.text}"
            head = f"for (var {name} = {start.text};{going}; {name}++)"
        else:
            head = "loop"
        ended = ""
        if self.watches_loops:
            ended = self.names.make("ended")
            self.lines.add(f"var {ended} = false;")
        self.loops.append(ended)
        with self.lines.block(head):
            if isinstance(loop, n.While):
                with self.lines.block(f"if (!({self.evaluate(loop.condition).text}))"):
                    self._break()
            elif ended:
                with self.lines.block(f"if ({name} >= {stop.text})"):
                    self._break()
            self._list(loop.body)
        self.loops.pop()
        if ended:
            self.lines.add(f"{OVERRUN}(!{ended});")
        if self.exits is not None and self.loops and _may_exit(loop):
            with self.lines.block(f"if (!{self.exits.end[-1]})"):
                self._break()

    def _break(self) -> None:
        """Leave the innermost loop, and record that this is regular."""
        if self.loops[-1]:
            self.lines.add(f"{self.loops[-1]} = true;")
        self.lines.add("break;")

    def _jump(self, statement: n.Break | n.Continue) -> None:
        is_break = isinstance(statement, n.Break)
        if self.exits is None or self.loops:
            if is_break:
                self._break()
            else:
                self.lines.add("continue;")
            return
        self._switch_off(self.exits.leave if is_break else self.exits.skip)

    def _return(self) -> None:
        if self.exits is None:
            self.lines.add("return;")
        else:
            self._switch_off(self.exits.end)

    def _switch_off(self, flags: tuple[str, ...]) -> None:
        for flag in flags:
            self.lines.add(f"{flag} = false;")
        if self.loops:
            self._break()

    def _hoist(self, hint: str, dtype: DType) -> str:
        """Declare a variable at the start of the kernel; it is zero-initialised."""
        name = self.names.make(hint)
        self.hoisted.append(f"var {name}: {REGISTER[dtype]};")
        return name

    def _flag(self, hint: str, value: str) -> str:
        name = self._hoist(hint, DType.BOOL)
        self.lines.add(f"{name} = {value};")
        return name

    def _phased_list(self, body: n.Body, on: str, exits: _Exits) -> None:
        """Write a list that the whole workgroup executes; ``on`` is the flag of active invocations."""
        for part in _split_at(body, self.sync_points):
            if isinstance(part, tuple):
                self._run(part, on, exits)
                continue
            match part:
                case n.Barrier():
                    self._statement(part)
                case n.Let(name, value):
                    self._subgroup_operation(name, value, on)
                case n.If(condition, then, otherwise):
                    self._phased_if(condition, then, otherwise, on, exits)
                case n.Loop() | n.While():
                    self._phased_loop(part, on, exits)
                case _:
                    for inner in walk.bodies(part):
                        self._phased_list(inner, on, exits)

    def _run(self, statements: tuple[n.Stmt, ...], on: str, exits: _Exits) -> None:
        """Write statements without synchronisation, for active invocations; their variables stay visible after them."""
        self.exits = exits
        with self.lines.block(f"if ({on})"):
            self._guarded_list(statements)
        self.exits = None

    def _hoist_value(self, name: str, value: Value) -> None:
        hoisted = self._hoist(name, value.dtype)
        self.variables[name] = Value(value.dtype, hoisted)
        self.lines.add(f"{hoisted} = {value.text};")

    def _evaluate_masked(self, expression: n.Expr, on: str, hint: str) -> str:
        """Evaluate an expression in active invocations into a hoisted variable; inactive ones keep its old value."""
        if isinstance(expression, n.Lit):
            return self.evaluate(expression).text
        with self.lines.block(f"if ({on})"):
            value = self.evaluate(expression)
            hoisted = self._hoist(hint, value.dtype)
            self.lines.add(f"{hoisted} = {value.text};")
        return hoisted

    def _any_active(self, flag: str) -> str:
        vote = self.function(
            "vote", "any_active", lambda name: s.vote_function(name, self.workgroup_array("votes", 3, "atomic<u32>"))
        )
        return f"{vote}({flag}, {self.lane})"

    def _phased_if(self, condition: n.Expr, then: n.Body, otherwise: n.Body, on: str, exits: _Exits) -> None:
        chosen = self._evaluate_masked(condition, on, "chosen")
        sides = [(then, f"{on} && {chosen}")]
        if otherwise:
            sides.append((otherwise, f"{on} && !{chosen}"))
        # Both flags are set first, because invocations may exit in the first branch.
        flags = [self._flag("on", value) for _, value in sides]
        for (body, _), flag in zip(sides, flags, strict=True):
            with self.lines.block(f"if ({self._any_active(flag)})"):
                inner = _Exits((*exits.skip, flag), (*exits.leave, flag), (*exits.end, flag))
                self._phased_list(body, flag, inner)

    def _phased_loop(self, loop: n.Loop | n.While, on: str, exits: _Exits) -> None:
        counter = stop = ""
        if isinstance(loop, n.Loop):
            start = self._evaluate_masked(loop.start, on, f"{loop.var}_start")
            stop = self._evaluate_masked(loop.stop, on, f"{loop.var}_stop")
            counter = self._hoist(loop.var, DType.U32)
            self.variables[loop.var] = Value(DType.U32, counter)
            self.lines.add(f"{counter} = {start};")
        live = self._flag("live", on)
        ended = self._flag("ended", "false") if self.watches_loops else ""
        with self.lines.block("loop"):
            if isinstance(loop, n.Loop):
                self.lines.add(f"{live} = {live} && {counter} < {stop};")
            else:
                going = self._evaluate_masked(loop.condition, live, "going")
                self.lines.add(f"{live} = {live} && {going};")
            with self.lines.block(f"if (!{self._any_active(live)})"):
                if ended:
                    self.lines.add(f"{ended} = true;")
                self.lines.add("break;")
            turn = self._flag("on", live)
            self._phased_list(loop.body, turn, _Exits((turn,), (live, turn), (*exits.end, live, turn)))
            if isinstance(loop, n.Loop):
                with self.lines.block(f"if ({live})"):
                    self.lines.add(f"{counter}++;")
        if ended:
            self.lines.add(f"{OVERRUN}(!{ended});")

    def _subgroup_operation(self, name: str, operation: n.Expr, on: str) -> None:
        """Write a subgroup operation on the values of active invocations."""
        given = [self.variables[v.name] if isinstance(v, n.Var) else self.evaluate(v) for v in walk.operands(operation)]
        lane, dtype = self.lane, given[0].dtype
        match operation:
            case n.SubgroupBallot():
                call = self.function("ballot", "ballot", self._ballot)
                value = Value(DType.U32, f"{call}({on} && {given[0].text}, {lane})")
            case n.SubgroupShuffle():
                hint = f"shuffle_{dtype.label}"
                call = self.function(("shuffle", dtype), hint, lambda made: self._shuffle(made, dtype))
                value = Value(dtype, f"{call}({on}, {given[0].text}, {given[1].text}, {lane})")
            case n.SubgroupReduce(op):
                hint = f"reduce_{op}_{dtype.label}"
                call = self.function(("reduce", op, dtype), hint, lambda made: self._reduce(made, op, dtype))
                value = Value(dtype, f"{call}({on}, {given[0].text}, {lane})")
            case _:
                raise TypeError(f"{type(operation).__name__} is not a subgroup operation")
        self._hoist_value(name, value)

    def _ballot(self, made: str) -> str:
        if self.native:
            return s.native_ballot_function(made)
        return s.ballot_function(made, self._exchange(), self.subgroup_size, self.lanes)

    def _shuffle(self, made: str, dtype: DType) -> str:
        if self.native:
            return s.native_shuffle_function(made, dtype, self.subgroup_size)
        board, high, present = self._exchange(), self._high_exchange(dtype), self.workgroup_array("present", self.lanes)
        return s.shuffle_function(made, dtype, board, high, present, self.subgroup_size, self.lanes)

    def _reduce(self, made: str, op: str, dtype: DType) -> str:
        if self.native:
            return s.native_reduce_function(made, op, dtype, self.subgroup_size, self.use)
        board, high = self._exchange(), self._high_exchange(dtype)
        return s.reduce_function(made, op, dtype, board, high, self.subgroup_size, self.lanes, self.use)

    def _exchange(self) -> str:
        return self.workgroup_array("board", self.lanes)

    def _high_exchange(self, dtype: DType) -> str:
        return self.workgroup_array("board_high", self.lanes) if dtype.bits == 64 else ""


def _bind_subgroup_operations(program: Program) -> Program:
    """Return the program with every subgroup operation bound to a variable of its own."""
    if not program.stats().has(*_SUBGROUP_OPERATIONS):
        return program
    names = fresh_names(program)

    def replace(node: n.Expr, operands: tuple[n.Expr, ...], prelude: list[n.Stmt]) -> n.Expr:
        name = names.make("met")
        prelude.append(n.Let(name, walk.with_operands(node, operands)))
        return n.Var(name)

    def on_statement(statement: n.Stmt) -> Iterable[n.Stmt]:
        return replace_in_statement(statement, lambda node: isinstance(node, _SUBGROUP_OPERATIONS), replace, names.make)

    return program.with_entry(walk.rewrite(program.entry, on_statement=on_statement))


def _synchronizing_statements(body: n.Body) -> set[int]:
    """Return the statements at which invocations synchronise and the statements that contain one, by identity."""
    found: set[int] = set()

    def visit(inner: n.Body) -> bool:
        any_found = False
        for statement in inner:
            inside = [visit(part) for part in walk.bodies(statement)]
            synchronises = isinstance(statement, n.Let) and isinstance(statement.value, _SUBGROUP_OPERATIONS)
            if synchronises or isinstance(statement, n.Barrier) or any(inside):
                found.add(id(statement))
                any_found = True
        return any_found

    visit(body)
    return found


def _split_at(body: n.Body, sync_points: set[int]) -> Iterator[tuple[n.Stmt, ...] | n.Stmt]:
    """Yield the runs of a list without synchronisation as tuples, and the synchronising statements between them."""
    run: list[n.Stmt] = []
    for statement in body:
        if id(statement) not in sync_points:
            run.append(statement)
            continue
        if run:
            yield tuple(run)
            run = []
        yield statement
    if run:
        yield tuple(run)


def _split_after_exits(body: n.Body) -> Iterator[list[n.Stmt]]:
    """Yield a list in pieces; each but the last ends with a statement that may exit the list."""
    piece: list[n.Stmt] = []
    for statement in body:
        piece.append(statement)
        if _may_exit(statement):
            yield piece
            piece = []
    if piece:
        yield piece


def _may_exit(statement: n.Stmt) -> bool:
    """Whether a statement may exit its list, by a return or a jump out of an enclosing loop."""
    if isinstance(statement, (n.Break, n.Continue)):
        return True
    if isinstance(statement, (n.Loop, n.While)):
        return any(isinstance(inner, n.Return) for inner in walk.statements(statement.body))
    return isinstance(statement, n.Return) or any(_may_exit(s) for body in walk.bodies(statement) for s in body)


def _max_passes(body: n.Body) -> float:
    """Return an upper bound on the loop iterations in a list; infinite unless all loop bounds are literals."""
    bound = 0.0
    for statement in body:
        inside = sum(map(_max_passes, walk.bodies(statement)))
        match statement:
            case n.Loop(_, n.Lit(start), n.Lit(stop)):
                inside = max(0, stop - start) * (1 + inside)
            case n.Loop() | n.While():
                return math.inf
        bound += inside
    return bound


def _orders_storage(program: Program) -> bool:
    """Whether barriers must order accesses to storage: some host buffer is both written and read."""
    read: set[str] = set()
    for statement in walk.statements(program.entry):
        if isinstance(statement, n.CopyBytes):
            read.add(statement.source)
        for root in walk.operands(statement):
            read.update(node.buffer for node in walk.postorder(root) if isinstance(node, (n.Load, n.Atomic)))
    return any(program.buffer(name).role is not Role.SHARED for name in read & written_buffers(program))
