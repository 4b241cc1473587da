"""How does a program become a function of LLVM IR? One lane is one invocation; vectors of lanes run in lockstep.

A kernel runs a range of the grid: of invocations where nothing ties the invocations of a workgroup together ("flat"),
else of workgroups. Uniform values are scalars and uniform branches are branches; where lanes part, a mask says who is
active, and whatever nobody is active for is jumped over. A program with barriers becomes runs (``phases``), and what
one run leaves for another lies in memory of the workgroup.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from vyre.analyze.shapes import Id, Shapes
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.expressions import ALL, NONE
from vyre.emit.llvm.phases import Crossing, Run, leavings, runs_of, statements_with_barriers
from vyre.emit.llvm.prepare import Prepared, prepare
from vyre.emit.llvm.privates import private_buffers
from vyre.emit.llvm.statements import Statements
from vyre.emit.llvm.text import STORED, shaped, spread
from vyre.emit.llvm.values import LoopContext, Shape, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.program import Program, has_shared_memory
from vyre.lower.transfers import Capture
from vyre.semantics.types import DType

KERNEL: Final = "kernel"
# The words of an argument block before the buffers' pointers and lengths: the stop word's address and the grid.
HEAD_WORDS: Final = 4
OUT_OF_MEMORY: Final = 2
_IDS: Final = (n.InvocationId, n.LocalId, n.WorkgroupId)


class Kernel(msgspec.Struct, frozen=True):
    """A kernel's text and how to call it: ``kernel(block, first, last)`` for invocations or workgroups.

    The block is 64-bit words: the address of the stop word, the grid, and for each of ``buffers`` its address and
    length. ``captures`` are those of the buffers that the launch has to provide.
    """

    text: str
    buffers: tuple[str, ...]
    captures: tuple[Capture, ...]
    is_flat: bool
    width: int
    scratch_bytes: int
    notes: dict[str, int]


def can_be_flat(program: Program) -> bool:
    """Whether nothing ties the invocations of a workgroup together, so that vectors may reach over its end."""
    stats = program.stats()
    return (
        program.workgroup_size[1:] == (1, 1)
        and not stats.has_barriers
        and not stats.has_subgroup_ops
        and not has_shared_memory(program)
    )


def emit_kernel(program: Program, width: int, *, flat: bool) -> Kernel:
    """Writes a legal program without grid-wide points, for vectors of ``width`` lanes.

    ``flat`` is for launches of one axis of programs that can be.
    """
    return _Emitter(prepare(program), width, flat).run()


class _Emitter(Statements):
    def __init__(self, prepared: Prepared, width: int, flat: bool) -> None:
        self.program = program = prepared.program
        self.captures = prepared.captures
        self.flat = flat
        stats = program.stats()
        # A subgroup is a vector: its lanes are then in lockstep by construction. (LLVM has no sound vectors of one.)
        step = program.subgroup_size if stats.has_subgroup_ops else width
        self.has_returns = stats.has(n.Return)
        self.size = math.prod(program.workgroup_size)
        self.with_barriers = statements_with_barriers(program.entry)
        every = list(walk.expressions(program.entry))
        self.ids = dict.fromkeys((type(e), e.axis) for e in every if isinstance(e, _IDS))
        super().__init__(
            max(2, step),
            step,
            -(-self.size // step),
            Shapes(program, _uniform_ids(program, step, flat)),
            leavings(program.entry),
            Crossing(program.entry, self.with_barriers).names if self.with_barriers else set(),
            {e.name for e in every if isinstance(e, n.Var)},
        )
        self.counters: dict[str, str] = {}
        self.phased_loops: list[LoopContext] = []
        self.group_axes: list[str] = []
        ignored = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Let)}
        self.private = private_buffers(program, ignored - self.used - self.shapes.assigned)
        self.merged: dict[str, m.Place] = {}
        self.notes["private buffers"] = len(self.private)

    def run(self) -> Kernel:
        code = self.code
        self._place_buffers()
        if self.has_returns:
            self.dead = self._mask_cell(phased=bool(self.with_barriers))
        if self.flat:
            self._flat_loop()
        else:
            self._workgroup_loop()
        body, code.lines = code.lines, []
        self._prologue()
        lines = [f"define void @{KERNEL}(ptr noalias %block, i64 %first, i64 %last) #0 {{", "entry:"]
        lines += [*code.allocations, *code.lines, *body]
        code.lines = []
        code.begin("finish")
        self._merge_private()
        code.fall("abort")
        if self.scratch:
            code.do("call void @free(ptr %scratch)")
        code.do("ret void")
        lines += [*code.lines, "}"]
        names = tuple(decl.name for decl in self.program.buffers if decl.role is not Role.SHARED)
        head = [m.ZEROS_DEFINITION, 'attributes #0 = { nounwind "no-trapping-math"="false" }']
        text = "\n".join(head) + "\n" + code.module.text(["\n".join(lines)])
        return Kernel(text, names, self.captures, self.flat, self.width, self.scratch, self.notes)

    def _place_buffers(self) -> None:
        code = self.code
        for number, decl in enumerate(self.program.buffers):
            shared = decl.role is Role.SHARED
            if shared:
                code.do(f"%b{number} = getelementptr i8, ptr %scratch, i64 {self._reserve(_bytes_of(decl))}")
            length = str(decl.count) if decl.count else f"%n{number}"
            self.places[decl.name] = m.Place(f"%b{number}", length, decl.dtype, shared)
        for name in self.private:
            offset = self._reserve(_bytes_of(self.program.buffer(name)))
            pointer = code.put(f"getelementptr i8, ptr %scratch, i64 {offset}")
            self._clear(offset, _bytes_of(self.program.buffer(name)))
            self.merged[name] = self.places[name]
            self.places[name] = msgspec.structs.replace(self.places[name], pointer=pointer, is_shared=True)
        self.pointer_lines, code.lines = code.lines, []

    def _merge_private(self) -> None:
        """Combines the kernel's own copies into the buffers."""
        code = self.code
        for name, op in self.private.items():
            copy, place = self.places[name], self.merged[name]
            kind, size = STORED[place.dtype], place.dtype.bytes
            head, body, change, latch, end = (
                code.label(hint) for hint in ("merge", "cell", "change", "latch", "merged")
            )
            before = code.label("before")
            code.fall(before)
            code.fall(head)
            following = f"%{latch}.at"
            at = code.put(f"phi i32 [ 0, %{before} ], [ {following}, %{latch} ]")
            code.branch(code.put(f"icmp ult i32 {at}, {place.length}"), body, end)
            code.begin(body)
            wide = code.put(f"zext i32 {at} to i64")
            own = code.put(f"getelementptr {kind}, ptr {copy.pointer}, i64 {wide}")
            value = code.put(f"load {kind}, ptr {own}, align {size}")
            code.branch(code.put(f"icmp ne {kind} {value}, 0"), change, latch)
            code.begin(change)
            m.change_once(code, op, place, at, value)
            code.fall(latch)
            code.do(f"{following} = add i32 {at}, 1")
            code.go(head)
            code.begin(end)

    def _prologue(self) -> None:
        """The argument block, and the workgroup's memory; written last, when it is known how much that is."""
        code = self.code

        def word(number: int, kind: str, name: str) -> None:
            code.do(f"{name}.at = getelementptr i64, ptr %block, i64 {number}")
            code.do(f"{name} = load {kind}, ptr {name}.at, align 8")

        word(0, "ptr", "%stop")
        for axis, name in enumerate(("%grid.x", "%grid.y", "%grid.z")):
            word(1 + axis, "i64", f"{name}.wide")
            code.do(f"{name} = trunc i64 {name}.wide to i32")
        host = 0
        for number, decl in enumerate(self.program.buffers):
            if decl.role is Role.SHARED:
                continue
            word(HEAD_WORDS + 2 * host, "ptr", f"%b{number}")
            if not decl.count:
                word(HEAD_WORDS + 2 * host + 1, "i64", f"%n{number}.wide")
                code.do(f"%n{number} = trunc i64 %n{number}.wide to i32")
            host += 1
        if self.scratch:
            code.module.declarations["free"] = "declare void @free(ptr)"
            declared = "declare noalias ptr @aligned_alloc(i64, i64)"
            code.module.declarations["aligned_alloc"] = declared
            code.do(f"%scratch = call ptr @aligned_alloc(i64 64, i64 {self.scratch})")
            code.do("%missing = icmp eq ptr %scratch, null")
            code.branch("%missing", "lacking", "ready")
            code.begin("lacking")
            code.do(f"store atomic i32 {OUT_OF_MEMORY}, ptr %stop monotonic, align 4")
            code.do("ret void")
            code.begin("ready")
            code.lines += self.pointer_lines
        code.go("start")

    def _flat_loop(self) -> None:
        code, width = self.code, self.width
        at = code.allocate("i64")
        code.begin("start")
        code.do(f"store i64 %first, ptr {at}")
        code.fall("chunk")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "lanes", "finish")
        code.begin("lanes")
        base = code.put(f"trunc i64 {here} to i32")
        left = code.put(f"sub i64 %last, {here}")
        short = code.intrinsic("umin", "i64", [("i64", left), ("i64", str(width))], ["i64"])
        count = spread(code, "i32", code.put(f"trunc i64 {short} to i32"), width)
        self.mask = code.put(f"icmp ult {shaped('i32', width)} {self._iota()}, {count}")
        self._flat_ids(base)
        self.run_end = "next"
        if self.dead:
            self._store_mask(self.dead, NONE)
        self._list(self.program.entry)
        code.fall("next")
        code.do(f"store i64 {code.put(f'add i64 {here}, {width}')}, ptr {at}")
        self._poll("chunk")

    def _flat_ids(self, base: str) -> None:
        gid = Value(DType.U32, Shape.LINEAR, base, wraps=False)
        zero = Value(DType.U32, Shape.UNIFORM, "0")
        size = str(self.program.workgroup_size[0])
        for kind, axis in self.ids:
            if axis:
                value = zero
            elif kind is n.InvocationId:
                value = gid
            else:
                op = "mod" if kind is n.LocalId else "div"
                text = self.vector.binary(op, DType.U32, self._vector(gid), self.vector.constant("i32", size))
                value = Value(DType.U32, Shape.VARYING, text)
            self.id_values[kind, axis] = value

    def _workgroup_loop(self) -> None:
        code = self.code
        at, *axes = (code.allocate(kind) for kind in ("i64", "i32", "i32", "i32"))
        code.begin("start")
        code.do(f"store i64 %first, ptr {at}")
        self._first_workgroup(axes)
        code.fall("group")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "workgroup", "finish")
        code.begin("workgroup")
        self.group_axes = [code.put(f"load i32, ptr {axis}") for axis in axes]
        shared = sum(-(-_bytes_of(d) // 64) * 64 for d in self.program.shared_buffers())
        if shared:
            self._clear(0, shared)
        if self.with_barriers:
            if self.dead:
                self._clear(self.dead.offset, self.dead.stride * self.chunks)
            self._phased_list(self.program.entry)
        else:
            self._emit_run(self.program.entry)
        self._next_workgroup(axes)
        code.do(f"store i64 {code.put(f'add i64 {here}, 1')}, ptr {at}")
        self._poll("group")

    def _first_workgroup(self, axes: list[str]) -> None:
        code = self.code
        rest = "%first"
        for axis, name in zip(axes, ("%grid.x", "%grid.y", "%grid.z"), strict=True):
            # An empty grid runs nothing, but must not divide by nothing.
            size = code.intrinsic("umax", "i64", [("i64", f"{name}.wide"), ("i64", "1")], ["i64"])
            place = code.put(f"urem i64 {rest}, {size}")
            code.do(f"store i32 {code.put(f'trunc i64 {place} to i32')}, ptr {axis}")
            rest = code.put(f"udiv i64 {rest}, {size}")

    def _next_workgroup(self, axes: list[str]) -> None:
        code = self.code
        carry = "1"
        for axis, here, name in zip(axes, self.group_axes, ("%grid.x", "%grid.y", "%grid.z"), strict=True):
            more = code.put(f"add i32 {here}, {carry}")
            full = code.put(f"icmp eq i32 {more}, {name}")
            code.do(f"store i32 {code.put(f'select i1 {full}, i32 0, i32 {more}')}, ptr {axis}")
            carry = code.put(f"zext i1 {full} to i32")

    def _clear(self, offset: int, size: int) -> None:
        self.code.module.declarations.update(m.MEMORY_INTRINSICS)
        start = self.code.put(f"getelementptr i8, ptr %scratch, i64 {offset}")
        self.code.do(f"call void @llvm.memset.p0.i64(ptr align 64 {start}, i8 0, i64 {size}, i1 false)")

    def _phased_list(self, body: n.Body) -> None:
        for part in runs_of(body, self.with_barriers):
            if isinstance(part, tuple):
                self._emit_run(part)
                continue
            match part:
                case n.Barrier():
                    # All lanes have ended the run before; one thread runs the workgroup, so it sees its own writes.
                    pass
                case n.If(condition, then, otherwise):
                    self._phased_if(condition, then, otherwise)
                case n.Loop() | n.While():
                    self._phased_loop(part)
                case _:
                    for inner in walk.bodies(part):
                        self._phased_list(inner)

    def _begin_run(self) -> tuple[str, str, str]:
        """Begins a loop over the workgroup's vectors; gives its counter's memory, and the labels of and behind it."""
        code, width = self.code, self.width
        self.notes["runs"] += 1
        at = code.allocate("i32")
        head, lanes, body, after = (code.label(hint) for hint in ("run", "lanes", "active", "ran"))
        self.run_end = code.label("next")
        code.do(f"store i32 0, ptr {at}")
        code.fall(head)
        self.chunk = code.put(f"load i32, ptr {at}")
        code.branch(code.put(f"icmp ult i32 {self.chunk}, {self.chunks}"), lanes, after)
        code.begin(lanes)
        first = code.put(f"mul i32 {self.chunk}, {self.step}")
        lane = code.put(f"add {shaped('i32', width)} {spread(code, 'i32', first, width)}, {self._iota()}")
        self.mask = ALL
        if self.step < width:
            self.mask = f"<{', '.join(f'i1 {int(lane < self.step)}' for lane in range(width))}>"
        elif self.size % width:
            self.mask = code.put(f"icmp ult {shaped('i32', width)} {lane}, {self.vector.constant('i32', self.size)}")
        self._group_ids(first, lane)
        self.is_somebody = True
        if self.with_barriers:
            self._without_those_gone(self.dead, *(c for loop in self.phased_loops for c in (loop.left, loop.skipped)))
            if not self.is_somebody:
                code.branch(m.any_lane(code, self.mask, width), body, self.run_end)
                code.begin(body)
                self.is_somebody = True
        for name, counter in self.counters.items():
            self.values[name] = Value(DType.U32, Shape.UNIFORM, code.put(f"load i32, ptr {counter}"))
        return at, head, after

    def _end_run(self, at: str, head: str, after: str) -> None:
        code = self.code
        code.fall(self.run_end)
        code.do(f"store i32 {code.put(f'add i32 {self.chunk}, 1')}, ptr {at}")
        code.go(head)
        code.begin(after)

    def _emit_run(self, statements: Run) -> None:
        run = self._begin_run()
        if self.dead and not self.with_barriers:
            self._store_mask(self.dead, NONE)
        self.loops = list(self.phased_loops)
        self._list(statements)
        self._end_run(*run)

    def _group_ids(self, first: str, lane: str) -> None:
        x, y, z = self.program.workgroup_size
        code, vector, scalar = self.code, self.vector, self.scalar
        local: list[Value] = []
        if y == 1 and z == 1:
            zero = Value(DType.U32, Shape.UNIFORM, "0")
            local = [Value(DType.U32, Shape.LINEAR, first, wraps=False), zero, zero]
        else:
            rows = x % self.step == 0
            lanes, at = (scalar, first) if rows else (vector, lane)
            rest = lanes.binary("div", DType.U32, at, lanes.constant("i32", x))
            texts = (
                lanes.binary("mod", DType.U32, at, lanes.constant("i32", x)),
                lanes.binary("mod", DType.U32, rest, lanes.constant("i32", y)),
                lanes.binary("div", DType.U32, rest, lanes.constant("i32", y)),
            )
            shapes = (Shape.LINEAR, Shape.UNIFORM, Shape.UNIFORM) if rows else (Shape.VARYING,) * 3
            local = [Value(DType.U32, s, t, wraps=False) for s, t in zip(shapes, texts, strict=True)]
        for kind, axis in self.ids:
            group = Value(DType.U32, Shape.UNIFORM, self.group_axes[axis])
            if kind is n.WorkgroupId:
                value = group
            elif kind is n.LocalId:
                value = local[axis]
            else:
                start = code.put(f"mul i32 {group.text}, {self.program.workgroup_size[axis]}")
                value = self._binary("add", local[axis], Value(DType.U32, Shape.UNIFORM, start))
                value = msgspec.structs.replace(value, wraps=False)
            self.id_values[kind, axis] = value

    def _phased_if(self, condition: n.Expr, then: n.Body, otherwise: n.Body) -> None:
        code = self.code
        yes, no, end = (code.label(hint) for hint in ("then", "else", "end"))
        code.branch(self._anybody(condition), yes, no)
        code.begin(yes)
        self._phased_list(then)
        code.go(end)
        code.begin(no)
        self._phased_list(otherwise)
        code.fall(end)

    def _anybody(self, condition: n.Expr | None) -> str:
        """Whether somebody of the workgroup is active, and the condition holds for him."""
        code, found = self.code, self.code.allocate("i1")
        code.do(f"store i1 false, ptr {found}")
        run = self._begin_run()
        mask = self.mask
        if condition is not None:
            mask = self._and(mask, self._vector(self._evaluate(condition)))
        some = m.any_lane(code, mask, self.width)
        before = code.put(f"load i1, ptr {found}")
        code.do(f"store i1 {code.put(f'or i1 {some}, {before}')}, ptr {found}")
        self._end_run(*run)
        return code.put(f"load i1, ptr {found}")

    def _agreed(self, expression: n.Expr) -> str:
        """The one value that the active invocations of the workgroup have."""
        if isinstance(expression, n.Lit):
            return str(expression.bits)
        code, found = self.code, self.code.allocate("i32")
        code.do(f"store i32 0, ptr {found}")
        run = self._begin_run()
        value = self._vector(self._evaluate(expression))
        kind = shaped("i32", self.width)
        masked = self.vector.select(self.mask, "i32", value, NONE)
        most = code.intrinsic("vector.reduce.umax", "i32", [(kind, masked)], [f"v{self.width}i32"])
        more = code.intrinsic("umax", "i32", [("i32", most), ("i32", code.put(f"load i32, ptr {found}"))], ["i32"])
        code.do(f"store i32 {more}, ptr {found}")
        self._end_run(*run)
        return code.put(f"load i32, ptr {found}")

    def _phased_loop(self, loop: n.Loop | n.While) -> None:
        code = self.code
        head, body, latch, exit_ = (code.label(hint) for hint in ("head", "body", "latch", "exit"))
        inside = frozenset[type[n.Stmt]]().union(*(self.leavings[id(s)] for s in loop.body))
        context = LoopContext(latch, exit_)
        if n.Break in inside:
            context.left = self._mask_cell(phased=True)
            self._clear(context.left.offset, context.left.stride * self.chunks)
        if n.Continue in inside:
            context.skipped = self._mask_cell(phased=True)
        stop = counter = ""
        if isinstance(loop, n.Loop):
            start, stop = self._agreed(loop.start), self._agreed(loop.stop)
            counter = code.allocate("i32")
            code.do(f"store i32 {start}, ptr {counter}")
        code.fall(head)
        if context.skipped:
            self._clear(context.skipped.offset, context.skipped.stride * self.chunks)
        self.phased_loops.append(context)
        if isinstance(loop, n.Loop):
            here = code.put(f"load i32, ptr {counter}")
            going = code.put(f"icmp ult i32 {here}, {stop}")
            if context.left or self.has_returns:
                going = code.put(f"and i1 {going}, {self._anybody(None)}")
            self.counters[loop.var] = counter
        else:
            going = self._anybody(loop.condition)
        code.branch(going, body, exit_)
        code.begin(body)
        token, self.token = self.token, self._token_inside(loop)
        context.token = self.token
        self._phased_list(loop.body)
        self.token = token
        self.phased_loops.pop()
        code.fall(latch)
        if isinstance(loop, n.Loop):
            del self.counters[loop.var]
            here = code.put(f"load i32, ptr {counter}")
            code.do(f"store i32 {code.put(f'add i32 {here}, 1')}, ptr {counter}")
        self._poll(head)
        code.begin(exit_)


def _uniform_ids(program: Program, step: int, flat: bool) -> frozenset[Id]:
    """The ids that are the same in all lanes of a vector."""
    x, y, z = program.workgroup_size
    rows = (y == 1 and z == 1) or x % step == 0
    found: set[Id] = {(kind, axis) for kind in (n.InvocationId, n.LocalId) for axis in (1, 2) if rows}
    found |= {(n.WorkgroupId, axis) for axis in range(3) if axis or not flat}
    return frozenset(found)


def _bytes_of(decl: BufferDecl) -> int:
    return decl.count * decl.dtype.bytes
