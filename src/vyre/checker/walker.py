"""What does one walk over a program, in order, find? It feeds the analyses and reports what breaks a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from vyre.analyze.outline import Outline
from vyre.analyze.transfers import Transfers
from vyre.analyze.types import Malformed, Typer, expand
from vyre.analyze.uniformity import Uniformity
from vyre.checker.diagnostics import Diagnostic, diagnostic
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Access
from vyre.ir.limits import MAX_EXPRESSIONS
from vyre.ir.names import is_identifier
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.semantics.types import DType


class _Frame(msgspec.Struct):
    """An open list: whose it is, what is still to do, and what its scope began with."""

    kind: str
    statement: int
    node: Any
    todo: Iterator[n.Stmt]
    serial: int
    first_name: int
    dead: bool = False
    then_falls: bool = True
    has_break: bool = False


class _Parked(msgspec.Struct, frozen=True):
    """A trap that no resume has met yet: the lists around it, and how many names each then declared."""

    statement: int
    lists: tuple[int, ...]
    names: tuple[int, ...]
    transfers: bool


class Walker:
    """Walks the statements with an explicit stack of lists; ``current`` is the statement that reports are about."""

    def __init__(
        self, program: Program, shape: Outline, add: Callable[[Diagnostic], None], explain: bool = False
    ) -> None:
        self.program = program
        self.add = add
        self.current = 0
        self.number = -1
        self.expressions = 0
        self.falls = True
        self.serial = 0
        self.frames: list[_Frame] = []
        self.names: list[str] = []
        self.loop_variables: set[str] = set()
        self.declared_at: dict[str, int] = {}
        self.parked: dict[str, list[_Parked]] = {}
        self.resumable = 0
        self.returned = False
        self.sources: list[n.Expr] = []
        self.typer = Typer(program.buffers, self.report_expression, self.sources if shape.synchronises else None)
        self.uniformity = Uniformity(program, shape, explain) if shape.synchronises else None
        self.transfers = Transfers(self.report) if shape.transfers else None
        self.handlers: dict[type, Callable[[Any], bool | None]] = {
            n.Let: self._let, n.Assign: self._assign, n.Store: self._store, n.If: self._if, n.Loop: self._loop,
            n.While: self._while, n.Break: self._jump, n.Continue: self._jump, n.Return: self._return,
            n.Barrier: self._barrier, n.Block: self._block, n.Region: self._region, n.AsyncLoad: self._transfer,
            n.AsyncStore: self._transfer, n.AsyncWait: self._wait, n.CopyBytes: self._copy_bytes,
            n.IndirectDispatch: self._indirect, n.Trap: self._trap, n.Resume: self._resume, n.OpaqueStmt: self._opaque,
            **dict.fromkeys(n.COLLECTIVES, self._collective),
        }  # fmt: skip

    def report(self, code: str, message: str, notes: tuple[tuple[Place, str], ...] = ()) -> None:
        self.add(diagnostic(code, Place(self.current), message, notes=notes))

    def report_expression(self, code: str, index: int | None, message: str, fix: str | None = None) -> None:
        self.add(diagnostic(code, Place(self.current, index), message, fix))

    def run(self) -> None:
        self._open("entry", None, self.program.entry)
        frames, handlers, typer, sources = self.frames, self.handlers, self.typer, self.sources
        uniformity = self.uniformity
        while frames:
            frame = frames[-1]
            for statement in frame.todo:
                self.number += 1
                self.current = self.number
                if not self.falls:
                    self._unreachable(frame)
                typer.position = 0
                if uniformity is not None:
                    sources.clear()
                    uniformity.statement = self.number
                opened = handlers[type(statement)](statement)
                self.expressions += typer.position
                if self.expressions > MAX_EXPRESSIONS:
                    raise walk.too_many_expressions()
                if opened:
                    break
            else:
                frames.pop()
                self._close(frame)

    def _unreachable(self, frame: _Frame) -> None:
        self.falls = True
        if not frame.dead:
            frame.dead = True
            self.report("V067", "nothing reaches this statement.")

    def _open(self, kind: str, node: Any, body: n.Body) -> bool:
        if type(body) is not tuple:
            raise Malformed
        self.serial += 1
        self.frames.append(_Frame(kind, self.current, node, iter(body), self.serial, len(self.names)))
        return True

    def _close(self, frame: _Frame) -> None:
        """The end of a list: of its scope, and of what it is a part of."""
        self._forget(frame.first_name)
        self.current = frame.statement
        falls = self.falls and not frame.dead
        match frame.kind:
            case "then":
                if self.uniformity is not None:
                    self.uniformity.next_arm(falls)
                if self.transfers is not None:
                    self.transfers.next_arm(falls)
                self.falls = True
                self._open("otherwise", frame.node, frame.node.otherwise)
                self.frames[-1].then_falls = falls
            case "otherwise":
                if self.uniformity is not None:
                    self.uniformity.leave_branch(falls)
                if self.transfers is not None:
                    self.transfers.leave_branch(falls)
                self.falls = falls or frame.then_falls
            case "loop":
                if self.uniformity is not None:
                    self.uniformity.leave_loop(falls)
                if self.transfers is not None:
                    self.transfers.leave_loop(falls)
                self.falls = frame.has_break or not _is_endless(frame.node)
            case "entry":
                if self.transfers is not None and falls:
                    self.current = self.number
                    self.transfers.end("the end of the program")
            case _:
                self.falls = falls

    def _forget(self, first: int) -> None:
        names = self.names[first:]
        if names:
            del self.names[first:]
            for name in names:
                del self.typer.variables[name]
            self.loop_variables.difference_update(names)
            if self.uniformity is not None:
                self.uniformity.forget(names)

    def _declare(self, name: str, dtype: DType | None, value: int) -> None:
        variables = self.typer.variables
        if name in variables:
            note = (Place(self.declared_at[name]), f"'{name}' is declared here")
            self.report("V008", f"'{name}' is already visible here.", (note,))
            if variables[name] is not dtype:
                variables[name] = None
            return
        if type(name) is not str:
            raise Malformed
        if not is_identifier(name):
            self.report("V055", f"'{name}' cannot be the name of a variable.")
        variables[name] = dtype
        self.names.append(name)
        self.declared_at[name] = self.current
        if self.uniformity is not None:
            self.uniformity.declare(name, value)

    def _value(self) -> int:
        """The number of the value just typed, which also notes what its expression writes."""
        return 0 if self.uniformity is None else self.uniformity.value_of(self.sources)

    def _note_effects(self) -> None:
        if self.uniformity is not None:
            self.uniformity.note_effects(self.sources)

    def _let(self, statement: n.Let) -> None:
        dtype = self.typer.type_of(statement.value)
        self._declare(statement.name, dtype, self._value())

    def _assign(self, statement: n.Assign) -> None:
        name = statement.name
        dtype = self.typer.type_of(statement.value)
        value = self._value()
        known = self.typer.variables.get(name)
        if name not in self.typer.variables:
            if type(name) is not str:
                raise Malformed
            self.report("V051", f"variable '{name}' is not declared here.")
        elif name in self.loop_variables:
            note = (Place(self.declared_at[name]), f"the loop of '{name}'")
            self.report("V011", f"'{name}' is the variable of a loop.", (note,))
        elif dtype is not known and dtype is not None and known is not None:
            note = (Place(self.declared_at[name]), f"'{name}' is declared here")
            self.report("V045", f"'{name}' is {known}, and the value is {dtype}.", (note,))
        if self.uniformity is not None:
            self.uniformity.assign(name, value)

    def _store(self, statement: n.Store) -> None:
        typer = self.typer
        buffer = statement.buffer
        index = typer.type_of(statement.index)
        if index is not DType.U32 or type(statement.index) is n.Lit:
            typer.check_index(buffer, index, statement.index, typer.position - 1)
        value = typer.type_of(statement.value)
        decl = typer.buffers.get(buffer)
        if decl is None or not decl.access.writable:
            decl = typer.check_writable(buffer, None)
        if decl is not None and value is not decl.dtype and value is not None:
            message = f"the value is {value}, and the elements of '{buffer}' are {decl.dtype}."
            self.report_expression("V064", typer.position - 1, message)
        self._note_effects()
        if self.uniformity is not None:
            self.uniformity.write(buffer)
        if type(statement.index) is n.Lit and type(statement.value) in (n.InvocationId, n.LocalId):
            self._check_collision(statement)

    def _check_collision(self, statement: n.Store) -> None:
        """Warns where it is certain that invocations of one workgroup store different values in one element."""
        value: Any = statement.value
        alone = self.returned or self.parked or any(frame.kind not in ("entry", "block") for frame in self.frames)
        if not alone and 0 <= value.axis <= 2 and self.program.workgroup_size[value.axis] > 1:
            self.report("V095", f"every invocation stores its own id in one element of '{statement.buffer}'.")

    def _if(self, statement: n.If) -> bool:
        self.typer.expect(statement.condition, DType.BOOL, "V062", "the condition")
        if self.uniformity is not None:
            self.uniformity.enter_branch(self._value(), statement.condition, bool(statement.otherwise))
        if self.transfers is not None:
            self.transfers.enter_branch()
        return self._open("then", statement, statement.then)

    def _loop(self, statement: n.Loop) -> bool:
        self.typer.expect(statement.start, DType.U32, "V065", "the first bound")
        start = self._value()
        self.typer.expect(statement.stop, DType.U32, "V065", "the second bound")
        if self.uniformity is not None:
            # The sources of both bounds: passes are counted by both.
            trips = self._value()
            self.uniformity.enter_loop()
            self.uniformity.loop_condition(trips, statement.stop)
        if self.transfers is not None:
            self.transfers.enter_loop()
        self._open("loop", statement, statement.body)
        before = len(self.names)
        self._declare(statement.var, DType.U32, start)
        self.loop_variables.update(self.names[before:])
        return True

    def _while(self, statement: n.While) -> bool:
        if self.uniformity is not None:
            self.uniformity.enter_loop()
        self.typer.expect(statement.condition, DType.BOOL, "V062", "the condition")
        if self.uniformity is not None:
            self.uniformity.loop_condition(self._value(), statement.condition, not _is_endless(statement))
        if self.transfers is not None:
            self.transfers.enter_loop()
        return self._open("loop", statement, statement.body)

    def _jump(self, statement: n.Break | n.Continue) -> None:
        is_break = type(statement) is n.Break
        word = "break" if is_break else "continue"
        loop = next((frame for frame in reversed(self.frames) if frame.kind == "loop"), None)
        self.falls = False
        if loop is None:
            self.report("V066", f"this {word} is in no loop.")
            return
        loop.has_break |= is_break
        if self.uniformity is not None:
            self.uniformity.break_() if is_break else self.uniformity.continue_()
        if self.transfers is not None:
            self.transfers.jump(word)

    def _return(self, _: n.Return) -> None:
        self.falls = False
        self.returned = True
        if self.transfers is not None:
            self.transfers.end("this return")

    def _block(self, statement: n.Block) -> bool:
        return self._open("block", statement, statement.body)

    def _region(self, statement: n.Region) -> bool:
        _strings(statement.generator, "" if statement.source_region is None else statement.source_region)
        return self._open("block", statement, statement.body)

    def _barrier(self, statement: n.Barrier) -> None:
        if type(statement.order) is not n.MemoryOrder:
            raise Malformed
        if statement.order is n.MemoryOrder.RELAXED:
            self.report("V043", "this barrier has the order relaxed.")
        if self.uniformity is not None:
            if statement.order is n.MemoryOrder.GRID_SYNC:
                self.uniformity.grid_point("V068")
            else:
                self.uniformity.barrier()

    def _transfer(self, statement: n.AsyncLoad | n.AsyncStore) -> None:
        _strings(statement.tag)
        self.typer.expect(statement.offset, DType.U32, "V074", "the offset")
        self.typer.expect(statement.size, DType.U32, "V074", "the size")
        self._note_effects()
        self.typer.check_readable(statement.source, None)
        self.typer.check_writable(statement.destination, None)
        if self.transfers is not None:
            self.transfers.issue(statement.tag, statement.destination)

    def _wait(self, statement: n.AsyncWait) -> None:
        _strings(statement.tag)
        if self.transfers is not None:
            written = self.transfers.wait(statement.tag)
            if self.uniformity is not None:
                for buffer in written:
                    self.uniformity.write(buffer)

    def _copy_bytes(self, statement: n.CopyBytes) -> None:
        if statement.source == statement.destination:
            self.report("V096", f"this copies '{statement.source}' to itself.")
        self.typer.expect(statement.source_offset, DType.U32, "V074", "the source offset")
        self.typer.expect(statement.destination_offset, DType.U32, "V074", "the destination offset")
        self.typer.expect(statement.size, DType.U32, "V074", "the size")
        self._note_effects()
        self.typer.check_readable(statement.source, None)
        self.typer.check_writable(statement.destination, None)
        if self.uniformity is not None:
            self.uniformity.write(statement.destination)

    def _indirect(self, statement: n.IndirectDispatch) -> None:
        offset = statement.count_offset
        _strings(statement.count_buffer)
        if type(offset) is not int:
            raise Malformed
        # First means that all statements before it are blocks around it.
        first = self.number == len(self.frames) - 1 and all(frame.kind in ("entry", "block") for frame in self.frames)
        if not first:
            self.report("V075", "this indirect_dispatch is not the first statement of the program.")
        decl = self.typer.declaration(statement.count_buffer, None)
        if decl is None:
            return
        if decl.dtype is not DType.U32 or not decl.role.takes_input:
            self.report("V076", f"'{decl.name}' is a {decl.dtype} buffer ({decl.role.value}).")
        elif offset % 4 or offset < 0:
            self.report("V076", f"the offset {offset} is not a multiple of 4 from 0.")
        elif decl.count and offset + 12 > 4 * decl.count:
            self.report("V076", f"three u32 at byte {offset} end after '{decl.name}' ({4 * decl.count} bytes).")

    def _trap(self, statement: n.Trap) -> None:
        _strings(statement.tag)
        self.typer.expect(statement.address, DType.U32, "V074", "the address")
        self._note_effects()
        lists = tuple(frame.serial for frame in self.frames)
        names = (*(frame.first_name for frame in self.frames), len(self.names))
        pending = self.transfers is not None and bool(self.transfers.pending)
        self.parked.setdefault(statement.tag, []).append(_Parked(self.number, lists, names, pending))
        if self.uniformity is not None:
            self.resumable += statement.tag in self.uniformity.resumed
            self.uniformity.trap(statement.tag)

    def _resume(self, statement: n.Resume) -> None:
        _strings(statement.tag)
        assert self.uniformity is not None  # a resume synchronises, so the outline asked for it
        self.uniformity.grid_point("V069")
        # The traps that go on here are those inside earlier statements of this list: the latest ones of the tag.
        depth, serial = len(self.frames) - 1, self.frames[-1].serial
        waiting = self.parked.get(statement.tag, [])
        first = None
        pending = self.transfers is not None and bool(self.transfers.pending)
        while waiting and len(waiting[-1].lists) > depth and waiting[-1].lists[depth] == serial:
            first = waiting.pop()
            self.resumable -= 1
            if first.transfers or pending:
                note = (Place(first.statement), "a trap that this resumes")
                self.report("V091", "a transfer is pending here, or where an invocation trapped.", (note,))
        if not waiting:
            self.parked.pop(statement.tag, None)
        if first is not None:
            skipped = self.names[first.names[depth + 1] :]
            self.uniformity.resume(first.statement, skipped, self.resumable > 0)

    def _collective(self, statement: Any) -> None:
        _strings(statement.group)
        assert self.uniformity is not None  # a collective synchronises, so the outline asked for it
        self.uniformity.grid_point("V069")
        match statement:
            case n.AllReduce(_, buffer) | n.Broadcast(buffer):
                source = destination = buffer
            case _:
                source, destination = statement.source, statement.destination
        if isinstance(statement, n.Broadcast) and not _is_rank(statement.root):
            self.report("V046", f"the root {statement.root} is not a rank.")
        reads = self.typer.declaration(source, None)
        writes = self.typer.declaration(destination, None) if destination != source else reads
        if reads is None or writes is None:
            return
        word = type(statement).__name__
        for decl, legal in ((reads, reads.access.readable), (writes, writes.access.writable)):
            if not legal or decl.access is Access.WORKGROUP:
                self.report("V046", f"'{decl.name}' is {decl.access.value}, which {word} cannot work on.")
                return
        if source == destination and isinstance(statement, (n.AllGather, n.ReduceScatter)):
            self.report("V046", f"{word} reads and writes '{source}'.")
        if reads.dtype is not writes.dtype:
            self.report("V046", f"'{source}' is {reads.dtype} and '{destination}' is {writes.dtype}.")
        if isinstance(statement, (n.AllReduce, n.ReduceScatter)):
            self.typer.reduction(statement.op, reads.dtype, None, "V083")

    def _opaque(self, statement: n.OpaqueStmt) -> None:
        self.typer.has_extensions = True
        expansion = expand(statement.kind, statement.payload, self.report)
        if expansion is not None and not isinstance(expansion, tuple):
            self.report("V084", f"extension '{statement.kind}' stands for an expression and is used as a statement.")


def _strings(*values: object) -> None:
    if any(type(value) is not str for value in values):
        raise Malformed


def _is_rank(root: object) -> bool:
    if type(root) is not int:
        raise Malformed
    return root >= 0


def _is_endless(statement: n.Stmt) -> bool:
    match statement:
        case n.While(n.Lit(bits, DType.BOOL)):
            return bool(bits)
    return False
