"""How does a program become something to step through? Basic blocks over a file of registers.

Every variable and every intermediate value has a register; literals, ids, lengths and memory are registers filled
before an invocation starts. An expression becomes a flat sequence of operations in order of evaluation. A block is
operations, how many statements they come from (fuel), and what follows: another block, a choice of two, or a stop at
a point where the machine decides. So an invocation is its registers and its next block: it can wait anywhere,
even in the middle of an expression, and nothing here or there is recursive.

The program must be one that the checker accepts: types are derived here, not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir.places import Place, describe
from vyre.ir.program import Program
from vyre.ir.walk import expressions, postorder, statements
from vyre.reference import operations as o
from vyre.reference.code import Block, Code, Copy, Point, ResumePoint, Stop, TrapPoint
from vyre.reference.races import AccessKind
from vyre.semantics.operators import OPERATORS
from vyre.semantics.scalars import Value, from_bits, scalar_bitcast, scalar_cast, scalar_fma, scalar_meaning, zero
from vyre.semantics.types import DType

# More distinct literals than this are set by operations, so that a frame stays small in a program with many.
MAX_CONSTANT_REGISTERS: Final = 256


class _List(msgspec.Struct, eq=False):
    """An open statement list: what is left of it, what to do at its end, and what its scope has to give back."""

    rest: Iterator[n.Stmt]
    finish: Callable[[], None]
    first_register: int
    sequence: int
    names: list[str]
    declared: list[tuple[int, int, Value]]


class _LoopContext(msgspec.Struct, eq=False):
    number: int
    passes: int
    before: Block
    latch: Block
    after: Block
    is_counted: bool = False


_SWITCH: Final = Point(Stop.SWITCH, -1, -1)
_KNOWN_BEFORE: Final = frozenset({
    n.Lit, n.Load, n.Atomic, n.BufLen, n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups,
    n.SubgroupLocalId, n.SubgroupSize,
})  # fmt: skip


def compile_program(program: Program, *, switching: bool = False, noting: bool = False) -> Code:
    """Compiles a checked program without extensions.

    ``switching`` lets invocations give way before every memory access; ``noting`` tells the race detector of each.
    """
    return _Compiler(program, switching, noting).compile()


class _Compiler:
    def __init__(self, program: Program, switching: bool, noting: bool) -> None:
        self.program = program
        self.switching = switching
        self.noting = noting
        self.entry = self.block = Block()
        self.lists: list[_List] = []
        self.loops: list[_LoopContext] = []
        self.variables: dict[str, tuple[int, DType]] = {}
        self.open_traps: dict[str, list[TrapPoint]] = {}
        self.statement_number = -1
        self.expression_number = -1
        self.point_number = 0
        self.sequence = 0
        self.constants: dict[tuple[int, DType], int] = {}
        self.special: dict[tuple[Any, Any], int] = {}
        self.template: o.Frame = [None] * o.FIRST_FREE
        self._fill_template()
        self.free = self.size = len(self.template)

    def compile(self) -> Code:
        self._open(self.program.entry, self._end_invocation)
        while self.lists:
            statement = next(self.lists[-1].rest, None)
            if statement is None:
                self._close()
            else:
                self.statement_number += 1
                self.expression_number = -1
                self.block.cost += 1
                self._statement(statement)
        self.template += [None] * (self.size - len(self.template))

        def registers(kind: str) -> dict[str, int]:
            return {name: register for (what, name), register in self.special.items() if what == kind}

        return Code(
            program=self.program,
            entry=self.entry,
            template=self.template,
            cells=registers("cells"),
            bytes=registers("bytes"),
            lengths=registers("length"),
            ids=tuple((what, axis, at) for (what, axis), at in self.special.items() if isinstance(what, type)),
            uses_subgroups=self.program.stats().has(*n.SUBGROUP_EXCHANGES),
        )

    def _fill_template(self) -> None:
        """Gives a register to every literal and to everything that is known before an invocation starts."""
        for statement in statements(self.program.entry):
            match statement:
                case n.Store():
                    self._reserve("cells", statement.buffer)
                case n.AsyncLoad() | n.AsyncStore() | n.CopyBytes():
                    self._reserve("bytes", statement.source)
                    self._reserve("bytes", statement.destination)
        for node in expressions(self.program.entry):
            if type(node) not in _KNOWN_BEFORE:
                continue
            match node:
                case n.Lit():
                    key = node.bits, node.dtype
                    if len(self.constants) < MAX_CONSTANT_REGISTERS and key not in self.constants:
                        self.constants[key] = self._append(from_bits(*key))
                case n.Load() | n.Atomic():
                    self._reserve("cells", node.buffer)
                case n.BufLen():
                    self._reserve("length", node.buffer)
                case n.InvocationId() | n.WorkgroupId() | n.LocalId() | n.NumWorkgroups():
                    self._reserve(type(node), node.axis)
                case n.SubgroupLocalId():
                    self._reserve(n.SubgroupLocalId, 0)
                case n.SubgroupSize():
                    self._reserve(n.SubgroupSize, 0, self.program.subgroup_size)

    def _reserve(self, what: Any, which: Any, value: Any = None) -> None:
        if (what, which) not in self.special:
            self.special[what, which] = self._append(value)

    def _append(self, value: Any) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def _open(self, body: n.Body, finish: Callable[[], None]) -> None:
        self.lists.append(_List(iter(body), finish, self.free, self.sequence, [], []))

    def _close(self) -> None:
        ended = self.lists.pop()
        for name in ended.names:
            del self.variables[name]
        self.free = ended.first_register
        ended.finish()

    def _allocate(self) -> int:
        self.free += 1
        self.size = max(self.size, self.free)
        return self.free - 1

    def _next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def _next_point_number(self) -> int:
        self.point_number += 1
        return self.point_number

    def _declare(self, name: str, register: int, dtype: DType) -> None:
        scope = self.lists[-1]
        self.variables[name] = register, dtype
        scope.names.append(name)
        scope.declared.append((self._next_sequence(), register, zero(dtype)))

    def _emit(self, op: o.Op) -> None:
        self.block.ops.append(op)

    def _go(self, to: Block) -> None:
        self.block.target = to
        self.block = to

    def _choose(self, register: int, then: Block, otherwise: Block) -> None:
        self.block.register = register
        self.block.target = then
        self.block.other = otherwise

    def _leave(self, to: Block) -> None:
        """Jumps; what follows in the list cannot be reached."""
        self.block.target = to
        self.block = Block()

    def _stop(self, stop: Stop, detail: Any = None) -> Point:
        """Ends the block at a point; what follows starts another."""
        for loop in self.loops:
            loop.is_counted = True
        loops = tuple((loop.number, loop.passes) for loop in self.loops)
        point = Point(stop, self.statement_number, self._next_point_number(), loops, detail)
        self.block.point = point
        self._go(Block())
        return point

    def _end_invocation(self) -> None:
        self.block.point = Point(Stop.END, self.statement_number, self._next_point_number())
        self.block = Block()

    def _place(self, *, of_expression: bool = False) -> Place:
        return Place(self.statement_number, self.expression_number if of_expression else None)

    def _where(self) -> Callable[[], str]:
        place = self._place()
        return lambda: describe(self.program, place)

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Let():
                register = self._allocate()
                self._declare(statement.name, register, self._evaluate_into(register, statement.value))
            case n.Assign():
                self._evaluate_into(self.variables[statement.name][0], statement.value)
            case n.Store():
                self._store(statement)
            case n.If():
                self._if(statement)
            case n.Loop():
                self._loop(statement)
            case n.While():
                self._while(statement)
            case n.Break():
                self._leave(self.loops[-1].after)
            case n.Continue():
                self._leave(self.loops[-1].latch)
            case n.Return():
                self._end_invocation()
            case n.Barrier():
                self._stop(Stop.GRID if statement.order is n.MemoryOrder.GRID_SYNC else Stop.WORKGROUP)
            case n.Block() | n.Region():
                self._open(statement.body, lambda: None)
            case n.AsyncLoad() | n.AsyncStore() | n.AsyncWait():
                self._transfer(statement)
            case n.CopyBytes():
                self._copy_bytes(statement)
            case n.IndirectDispatch():
                pass
            case n.Trap():
                ((address, _),) = self._evaluate(statement.address)
                trap = TrapPoint(statement.tag, address, self._next_sequence())
                self.open_traps.setdefault(statement.tag, []).append(trap)
                self._stop(Stop.TRAP, trap)
            case n.Resume():
                self._resume(statement)
            case n.AllReduce() | n.Broadcast():
                self._stop(Stop.GRID)
            case n.AllGather() | n.ReduceScatter():
                self._stop(Stop.GRID, Copy(statement.source, statement.destination))
            case _:
                raise TypeError(f"{type(statement).__name__} is not a statement the interpreter knows")

    def _store(self, statement: n.Store) -> None:
        (index, _), (value, dtype) = self._evaluate(statement.index, statement.value)
        cells, place = self.special["cells", statement.buffer], self._place()
        self._access(AccessKind.WRITE, statement.buffer, index, value, place)
        self._emit(o.store(cells, index, value, dtype, (place, statement.buffer)))

    def _if(self, statement: n.If) -> None:
        ((condition, _),) = self._evaluate(statement.condition)
        then, after = Block(), Block()
        otherwise = Block() if statement.otherwise else after
        self._choose(condition, then, otherwise)
        self.block = then

        def end_then() -> None:
            if otherwise is after:
                self._go(after)
            else:
                self.block.target = after
                self.block = otherwise
                self._open(statement.otherwise, lambda: self._go(after))

        self._open(statement.then, end_then)

    def _loop(self, statement: n.Loop) -> None:
        first_register = self.free
        counter, limit, test = self._allocate(), self._allocate(), self._allocate()
        self._evaluate_into(counter, statement.start)
        self._evaluate_into(limit, statement.stop)
        self._emit(o.less(test, counter, limit))
        body, context = Block(), self._open_loop()
        self._choose(test, body, context.after)
        self.block = body

        def finish() -> None:
            self._go(context.latch)
            self.block.cost += 1
            self._emit(o.increment(counter))
            self._emit(o.less(test, counter, limit))
            self._choose(test, body, context.after)
            self._close_loop(context, first_register)

        self._open(statement.body, finish)
        self._declare(statement.var, counter, DType.U32)

    def _while(self, statement: n.While) -> None:
        first_register = self.free
        context = self._open_loop()
        # The statement's own step is counted at each evaluation of the condition, the first included.
        self.block.cost -= 1
        header, body = Block(), Block()
        self._go(header)
        self.block.cost += 1
        ((condition, _),) = self._evaluate(statement.condition)
        self._choose(condition, body, context.after)
        self.block = body

        def finish() -> None:
            self._go(context.latch)
            self.block.target = header
            self._close_loop(context, first_register)

        self._open(statement.body, finish)

    def _open_loop(self) -> _LoopContext:
        context = _LoopContext(self._next_point_number(), self._allocate(), self.block, Block(), Block())
        self.loops.append(context)
        return context

    def _close_loop(self, context: _LoopContext, first_register: int) -> None:
        self.loops.pop()
        self.free = first_register
        if context.is_counted:
            context.before.ops.append(o.constant(context.passes, 0))
            context.latch.ops.append(o.increment(context.passes))
        self.block = context.after

    def _transfer(self, statement: n.AsyncLoad | n.AsyncStore | n.AsyncWait) -> None:
        place, where = self._place(), self._where()
        if isinstance(statement, n.AsyncWait):
            self._switch()
            self._emit(o.wait(statement.tag, place, where))
            return
        (offset, _), (size, _) = self._evaluate(statement.offset, statement.size)
        source, destination = (self.special["bytes", name] for name in (statement.source, statement.destination))
        self._switch()
        self._emit(o.issue(statement, o.Copying(source, destination, offset, size), place, where))

    def _copy_bytes(self, statement: n.CopyBytes) -> None:
        operands = statement.source_offset, statement.destination_offset, statement.size
        begin, start, size = (register for register, _ in self._evaluate(*operands))
        source, destination = (self.special["bytes", name] for name in (statement.source, statement.destination))
        self._switch()
        self._emit(o.copy_bytes(statement, source, destination, begin, start, size, self._place()))

    def _resume(self, statement: n.Resume) -> None:
        around = self.lists[-1]
        detail = ResumePoint(statement.tag, self.block, around.declared)
        point = self._stop(Stop.GRID, detail)
        traps = self.open_traps.get(statement.tag, [])
        while traps and traps[-1].sequence > around.sequence:
            traps.pop().resume = point

    def _switch(self) -> None:
        if self.switching:
            self.block.point = _SWITCH
            self._go(Block())

    def _access(self, kind: AccessKind, buffer: str, index: int, value: int | None, place: Place) -> None:
        """What has to happen before a memory access."""
        self._switch()
        if self.noting:
            cells, dtype = self.special["cells", buffer], self.program.buffer(buffer).dtype
            self._emit(o.note_access(kind, buffer, cells, index, value, dtype, place))

    def _evaluate_into(self, register: int, root: n.Expr) -> DType:
        ((result, dtype),) = self._evaluate(root, into=register)
        if result != register:
            self._emit(o.copy(register, result))
        return dtype

    def _evaluate(self, *roots: n.Expr, into: int | None = None) -> list[tuple[int, DType]]:
        """Emits the expressions' operations; the register and the type of each value.

        The result of operation number k on the stack goes to the k-th free register; ``into`` takes the last one.
        """
        stack: list[tuple[int, DType]] = []
        for root in roots:
            for node in postorder(root):
                self.expression_number += 1
                self._expression(node, stack, into if node is root else None)
        return stack

    def _expression(self, node: n.Expr, stack: list[tuple[int, DType]], into: int | None) -> None:
        match node:
            case n.Var():
                stack.append(self.variables[node.name])
            case n.Lit():
                stack.append((self._literal(node, len(stack)), node.dtype))
            case n.BinOp():
                (a, dtype), (b, _) = self._pop(stack, 2)
                to = self._result(stack, OPERATORS[node.op].result_type(dtype), into)
                self._emit(o.binary(scalar_meaning(node.op, dtype), to, a, b))
            case n.UnOp():
                ((a, dtype),) = self._pop(stack, 1)
                to = self._result(stack, OPERATORS[node.op].result_type(dtype), into)
                self._emit(o.unary(scalar_meaning(node.op, dtype), to, a))
            case n.Load():
                ((index, _),) = self._pop(stack, 1)
                dtype, place = self.program.buffer(node.buffer).dtype, self._place(of_expression=True)
                to = self._result(stack, dtype, into)
                self._access(AccessKind.READ, node.buffer, index, None, place)
                self._emit(o.load(to, self.special["cells", node.buffer], index, dtype, (place, node.buffer)))
            case n.InvocationId() | n.WorkgroupId() | n.LocalId() | n.NumWorkgroups():
                stack.append((self.special[type(node), node.axis], DType.U32))
            case n.BufLen():
                stack.append((self.special["length", node.buffer], DType.U32))
            case n.SubgroupLocalId() | n.SubgroupSize():
                stack.append((self.special[type(node), 0], DType.U32))
            case n.Select():
                (condition, _), (a, dtype), (b, _) = self._pop(stack, 3)
                self._emit(o.select(self._result(stack, dtype, into), condition, a, b))
            case n.Cast():
                ((a, dtype),) = self._pop(stack, 1)
                self._emit(o.unary(scalar_cast(dtype, node.target), self._result(stack, node.target, into), a))
            case n.Bitcast():
                ((a, dtype),) = self._pop(stack, 1)
                self._emit(o.unary(scalar_bitcast(dtype, node.target), self._result(stack, node.target, into), a))
            case n.Fma():
                (a, dtype), (b, _), (c, _) = self._pop(stack, 3)
                self._emit(o.ternary(scalar_fma(dtype), self._result(stack, dtype, into), a, b, c))
            case n.Atomic():
                self._atomic(node, stack, into)
            case n.SubgroupBallot():
                ((predicate, _),) = self._pop(stack, 1)
                self._stop(Stop.SUBGROUP, o.ballot(self._result(stack, DType.U32, into), predicate))
            case n.SubgroupShuffle():
                (value, dtype), (lane, _) = self._pop(stack, 2)
                self._stop(Stop.SUBGROUP, o.shuffle(self._result(stack, dtype, into), value, lane, dtype))
            case n.SubgroupReduce():
                ((value, dtype),) = self._pop(stack, 1)
                to, width = self._result(stack, dtype, into), self.program.subgroup_size
                self._stop(Stop.SUBGROUP, o.reduce(to, node.op, value, dtype, width))
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression the interpreter knows")

    def _atomic(self, node: n.Atomic, stack: list[tuple[int, DType]], into: int | None) -> None:
        count = 1 + (node.expected is not None) + (node.value is not None)
        registers = [register for register, _ in self._pop(stack, count)]
        index = registers[0]
        value = registers[-1] if node.value is not None else None
        expected = registers[1] if node.expected is not None else None
        dtype, place = self.program.buffer(node.buffer).dtype, self._place(of_expression=True)
        to = self._result(stack, dtype, into)
        self._access(AccessKind.ATOMIC, node.buffer, index, None, place)
        site = place, node.buffer
        self._emit(o.atomic(node.op, to, self.special["cells", node.buffer], index, expected, value, dtype, site))

    def _literal(self, node: n.Lit, position: int) -> int:
        register = self.constants.get((node.bits, node.dtype))
        if register is None:
            register = self._temporary(position)
            self._emit(o.constant(register, node.value))
        return register

    def _pop(self, stack: list[tuple[int, DType]], count: int) -> list[tuple[int, DType]]:
        popped = stack[-count:]
        del stack[-count:]
        return popped

    def _result(self, stack: list[tuple[int, DType]], dtype: DType, into: int | None) -> int:
        register = self._temporary(len(stack)) if into is None else into
        stack.append((register, dtype))
        return register

    def _temporary(self, position: int) -> int:
        register = self.free + position
        self.size = max(self.size, register + 1)
        return register
