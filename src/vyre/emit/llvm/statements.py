"""Statements in LLVM IR for lanes in lockstep: uniform control flow as branches, divergent control flow as masks.

A token identifies a set of lanes that reach a place, as in ``vyre.analyze.shapes``. A variable that is assigned under
the token of its declaration is stored without a mask; under another token, inactive lanes keep their previous value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from vyre.analyze.effects import unread_variables
from vyre.analyze.shapes import Layout, Shape, Shapes
from vyre.analyze.workgroup_independence import COMMUTATIVE
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.divergent_exits import DivergentExits, divergent_exits
from vyre.emit.llvm.if_conversion import is_cheap
from vyre.emit.llvm.masks import Searches, searches_of
from vyre.emit.llvm.memory import NONE
from vyre.emit.llvm.rows import Rows
from vyre.emit.llvm.streams import prefetched_loads
from vyre.emit.llvm.text import ELEMENT, shaped
from vyre.emit.llvm.values import NO_FACTS, Cell, Facts, LoopContext, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

_MAX_UNPOLLED_ITERATIONS: Final = 4096


class Statements(Rows):
    """Writer of runs: the code of a program for one vector. The shell provides the mask, the ids and the memory.

    ``proofs`` are the proved accesses of each program to write, by the program's identity. ``program`` is the last
    program written, ``unread`` are its variables that are never read or assigned, ``returned`` are the lanes that have
    returned, and ``run_end`` is the label of the run's end.
    """

    program: Program | None
    shapes: Shapes
    divergent_exits: DivergentExits
    unread: set[str]
    searches: Searches
    returned: Cell | None
    run_end: str

    def __init__(self, width: int, layout: Layout, proofs: Mapping[int, frozenset[int]]) -> None:
        super().__init__(width, layout)
        self.proofs = proofs
        self.tokens = 0
        self.program = None

    def write_run(self, program: Program, facts: Facts = NO_FACTS) -> None:
        """Write a program whose variables have unique names, for the lanes of the mask, of which ``facts`` hold."""
        if program is not self.program or facts is not self.facts:
            if program is not self.program:
                self.proved = self.proofs.get(id(program), frozenset())
                self.unread = unread_variables(program)
            self.program, self.facts = program, facts
            known = {key: value.shape for key, value in facts.values.items()}
            self.layout = msgspec.structs.replace(self.layout, known=known)
            self.shapes = Shapes(program, self.layout)
            self.divergent_exits = divergent_exits(program.entry, self.shapes)
            self.searches = searches_of(program, self.shapes) if self.width else Searches()
        self.prefetch = prefetched_loads(program, self.streams.read)
        self.values, self.cells, self.words = {}, {}, {}
        self.has_active_lane, self.returned = True, None
        if any(n.Return in self.divergent_exits[id(statement)] for statement in program.entry):
            self.returned = self.new_cell(DType.BOOL, Shape.VARYING)
            self._store_mask(self.returned, NONE)
        self._list(program.entry)

    def _list(self, body: n.Body) -> None:
        for statement in body:
            self._statement(statement)

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Let(name, value):
                self._let(name, value)
            case n.Assign(name, value):
                self._assign(self.cells[name], self._evaluate(value), in_step=id(statement) in self.shapes.in_step)
            case n.Store(buffer, _, value) if buffer in self.next_slots:
                self._store_slot(self.next_slots[buffer], self._evaluate(value))
            case n.Store(_, index, value):
                self._store(statement, self._evaluate(index), self._evaluate(value))
            case n.If():
                self._if(statement)
            case n.Loop():
                self._counted_loop(statement)
            case n.While(condition):
                self._loop(statement, lambda: self._evaluate(condition))
            case n.Break() | n.Continue():
                self._leave_loop(statement)
            case n.Return():
                self._return()
            case n.Block(body) | n.Region(body=body):
                self._list(body)
            case n.CopyBytes():
                self._copy(statement)
            case _:
                raise TypeError(f"{type(statement).__name__} is not a statement of a kernel")

    def _let(self, name: str, expression: n.Expr) -> None:
        if self.width and name in self.unread and isinstance(expression, n.Atomic) and expression.op in COMMUTATIVE:
            assert expression.value is not None
            index, operand = self._evaluate(expression.index), self._evaluate(expression.value)
            if index.shape is Shape.UNIFORM:
                self._combined_atomic(expression, index.text, operand)
                return
            self._atomic(expression, index, None, operand, wanted=False)
            return
        value = self._evaluate(expression)
        if name not in self.shapes.assigned:
            self.values[name] = value
            return
        shape = self.shapes.variables[name]
        is_word = name in self.searches.variables and shape is Shape.VARYING
        self.cells[name] = cell = self.new_cell(value.dtype, shape, is_word=is_word)
        self._write(cell, value)

    def _assign(self, cell: Cell, value: Value, *, in_step: bool = False) -> None:
        """Store a value; lanes that declared the cell but are not active keep its old value, unless ``in_step``."""
        if cell.token != self.token and cell.varying and not in_step:
            old, new = self._read(cell).text, self._vector(value)
            if value.dtype is DType.BOOL:
                text = self._select_mask(self.mask, new, old)
            else:
                text = self.vector.select(self.mask, ELEMENT[value.dtype], new, old)
            value = Value(value.dtype, Shape.VARYING, text)
        self._write(cell, value)

    def _store_slot(self, slot: Cell, value: Value) -> None:
        """Store a value into a slot under the execution mask; inactive lanes keep their previous value."""
        if slot.varying:
            self._assign(slot, value)
            return
        end = self._skip_if_none_active()
        self._write(slot, value if value.shape is Shape.UNIFORM else self._from_first_active(value))
        if end:
            self.code.fall_through(end)

    def _from_first_active(self, value: Value) -> Value:
        """Return the value of the first active lane, for values that are uniform but not provably so here."""
        code, width, element = self.code, self.width, ELEMENT[value.dtype]
        bits = code.put(f"bitcast <{width} x i1> {self.mask} to i{width}")
        lane = code.intrinsic("cttz", f"i{width}", [(f"i{width}", bits), ("i1", "true")], [f"i{width}"])
        text = code.put(f"extractelement {shaped(element, width)} {self._vector(value)}, i{width} {lane}")
        return Value(value.dtype, Shape.UNIFORM, text)

    def _combined_atomic(self, node: n.Atomic, index: str, operand: Value) -> None:
        """Change one element by the combined value of all lanes; the old value is unused."""
        code, op, place = self.code, node.op, self.places[node.buffer]
        total = self._reduce("add" if op is AtomicOp.SUB else op.value, operand)
        change, end = code.label("change"), code.label("end")
        inside = "true" if self._is_proved(node) else m.in_bounds(code, place, index, 0)
        if not self.has_active_lane:
            inside = code.put(f"and i1 {inside}, {self._any(self.mask)}")
        code.branch(inside, change, end)
        code.begin(change)
        m.change_one(code, op, node.order, place, index, total, "", checked=False)
        code.fall_through(end)

    def _copy(self, statement: n.CopyBytes) -> None:
        values = [self._evaluate(root) for root in walk.operands(statement)]
        start, place, size = (self._vector(value) if self.width else value.text for value in values)
        source, destination = self.places[statement.source], self.places[statement.destination]
        mask = self.mask if self.width else "true"
        m.copy_bytes(self.code, source, destination, start, place, size, mask, self.width)

    def _if(self, statement: n.If) -> None:
        code = self.code
        condition = self._evaluate(statement.condition)
        mask, has_active, token = self.mask, self.has_active_lane, self.token
        if condition.text in ("true", "false"):
            self._list(statement.then if condition.text == "true" else statement.otherwise)
        elif condition.shape is Shape.UNIFORM:
            self.notes["uniform branches"] += 1
            yes, end = code.label("then"), code.label("end")
            no = code.label("else") if statement.otherwise else end
            code.branch(condition.text, yes, no)
            code.begin(yes)
            self._list(statement.then)
            if statement.otherwise:
                code.go(end)
                code.begin(no)
                self.mask, self.has_active_lane = mask, has_active
                self._list(statement.otherwise)
            code.fall_through(end)
        else:
            self.notes["masked branches"] += 1
            holds = self._vector(condition)
            sides = [(statement.then, holds)]
            if statement.otherwise:
                sides.append((statement.otherwise, self._not(holds)))
            for body, chosen in sides:
                self.mask, self.has_active_lane, self.token = self._and(mask, chosen), True, self._fresh_token()
                if is_cheap(body):
                    self._list(body)
                    continue
                yes, end = code.label("then"), code.label("end")
                code.branch(self._any(self.mask), yes, end)
                code.begin(yes)
                self._list(body)
                code.fall_through(end)
            self.token = token
        self._after(statement, mask, has_active)

    def _open_loop(self, loop: n.Loop | n.While) -> LoopContext:
        code = self.code
        context = LoopContext(code.label("latch"), code.label("exit"))
        if id(loop) in self.shapes.divergent:
            self.notes["divergent loops"] += 1
            is_search = context.is_search = id(loop) in self.searches.loops
            context.live = self.new_cell(DType.BOOL, Shape.VARYING, is_word=is_search)
            self._store_mask(context.live, self.mask)
            if any(n.Continue in self.divergent_exits[id(s)] for s in loop.body):
                context.skipped = self.new_cell(DType.BOOL, Shape.VARYING, is_word=is_search)
        else:
            self.notes["uniform loops"] += 1
        self.is_searching = context.is_search
        return context

    def _begin_iteration(self, loop: n.Loop | n.While, context: LoopContext, mask: str, has_active: bool) -> None:
        """Set the mask at the start of an iteration."""
        self.mask, self.has_active_lane = mask, has_active
        if context.live:
            self.mask, self.has_active_lane = self._load_mask(context.live), False
        if n.Return in self.divergent_exits[id(loop)]:
            self._remove_lanes(self.returned)
        if context.skipped:
            self._store_mask(context.skipped, NONE)

    def _enter_body(self, context: LoopContext, condition: Value, body: str) -> None:
        """Enter the loop body with the active lanes for which the condition holds; exit the loop if there are none."""
        code = self.code
        if condition.shape is Shape.UNIFORM:
            going = condition.text
            if not self.has_active_lane:
                going = code.put(f"and i1 {going}, {self._any(self.mask)}")
        else:
            assert context.live is not None
            self.mask = self._and(self.mask, self._vector(condition))
            self._store_mask(context.live, self.mask)
            going = self._any(self.mask)
        code.branch(going, body, context.exit)
        code.begin(body)
        self.has_active_lane = True

    def _counted_loop(self, loop: n.Loop) -> None:
        start, stop = self._evaluate(loop.start), self._evaluate(loop.stop)
        counter = self.new_cell(DType.U32, self.shapes.variables[loop.var])
        self._write(counter, start)

        def condition() -> Value:
            self.values[loop.var] = self._read(counter)
            return self._binary("lt", self.values[loop.var], stop)

        def step() -> None:
            self._write(counter, self._binary("add", self._read(counter), Value(DType.U32, Shape.UNIFORM, "1")))

        self._loop(loop, condition, step)

    def _loop(
        self, loop: n.Loop | n.While, condition: Callable[[], Value], step: Callable[[], None] | None = None
    ) -> None:
        """Write a loop; ``condition`` writes the test before an iteration, ``step`` what follows an iteration."""
        code, mask, has_active, token = self.code, self.mask, self.has_active_lane, self.token
        head, body = code.label("head"), code.label("body")
        context = self._open_loop(loop)
        code.fall_through(head)
        self.token = self._token_inside(loop)
        self._begin_iteration(loop, context, mask, has_active)
        self._enter_body(context, condition(), body)
        self.loops.append(context)
        self._list(loop.body)
        self.loops.pop()
        code.fall_through(context.latch)
        if step is not None:
            step()
        if _is_short(loop):
            code.go(head)
        else:
            self.poll(head)
        code.begin(context.exit)
        self.token, self.is_searching = token, False
        self._after(loop, mask, has_active)

    def _leave_loop(self, statement: n.Break | n.Continue) -> None:
        context = self.loops[-1]
        if context.live and isinstance(statement, n.Break):
            staying = self._and(self._load_mask(context.live), self._not(self.mask))
            self._store_mask(context.live, staying)
            self.mask, self.has_active_lane = NONE, False
            return
        if context.skipped is not None and isinstance(statement, n.Continue):
            self._join(context.skipped, self.mask)
            self.mask, self.has_active_lane = NONE, False
            return
        self._jump(context.exit if isinstance(statement, n.Break) else context.latch)

    def _return(self) -> None:
        if self.token == 0:
            self._jump(self.run_end)
            return
        assert self.returned is not None
        self._join(self.returned, self.mask)
        self.mask, self.has_active_lane = NONE, False

    def _jump(self, label: str) -> None:
        self.code.go(label)
        self.code.begin(self.code.label("unreachable"))

    def _load_mask(self, cell: Cell) -> str:
        return self._read(cell).text

    def _store_mask(self, cell: Cell, mask: str) -> None:
        self._write(cell, Value(DType.BOOL, Shape.VARYING, mask))

    def _join(self, cell: Cell, mask: str) -> None:
        self._store_mask(cell, self._combine("or", self._load_mask(cell), mask))

    def _remove_lanes(self, *cells: Cell | None) -> None:
        """Remove the lanes in ``cells`` from the mask."""
        for cell in cells:
            if cell is not None:
                self.mask = self._and(self.mask, self._not(self._load_mask(cell)))
                self.has_active_lane = False

    def _after(self, statement: n.Stmt, mask: str, has_active: bool) -> None:
        """Set the mask after a statement from which lanes may have exited."""
        exits = self.divergent_exits[id(statement)]
        self.mask, self.has_active_lane = mask, has_active
        if n.Return in exits:
            self._remove_lanes(self.returned)
            if self.token == 0:
                self._end_if_none_active()
        if self.loops:
            innermost = self.loops[-1]
            if n.Break in exits and innermost.live:
                self.mask, self.has_active_lane = self._and(self.mask, self._load_mask(innermost.live)), False
            if n.Continue in exits:
                self._remove_lanes(innermost.skipped)

    def _end_if_none_active(self) -> None:
        """End the run if all lanes have returned, so that the following code has an active lane."""
        going = self.code.label("going")
        self.code.branch(self._any(self.mask), going, self.run_end)
        self.code.begin(going)
        self.has_active_lane = True

    def _fresh_token(self) -> int:
        self.tokens += 1
        return self.tokens

    def _token_inside(self, loop: n.Stmt) -> int:
        return self._fresh_token() if id(loop) in self.shapes.divergent else self.token

    def poll(self, back: str) -> None:
        """Branch back to a loop's head, unless the host has set the stop word."""
        stop = self.code.put("load atomic i32, ptr %stop monotonic, align 4")
        self.code.branch(self.code.put(f"icmp eq i32 {stop}, 0"), back, "abort", likely=True)


def _is_short(loop: n.Loop | n.While) -> bool:
    """Whether a loop is so short that it need not poll the stop word."""
    match loop:
        case n.Loop(start=n.Lit(bits=start), stop=n.Lit(bits=stop)):
            nested = any(isinstance(s, (n.Loop, n.While)) for s in walk.statements(loop.body))
            return stop - start <= _MAX_UNPOLLED_ITERATIONS and not nested
    return False
