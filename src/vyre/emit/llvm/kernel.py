"""LLVM IR kernels from programs: a body for one vector of lanes, and the shell around it.

The body (``statements``) is the program for the invocations of one vector, or for one invocation. The shell loads the
arguments from a block, allocates scratch memory, and loops over a range of the grid: over rows of invocations if
nothing ties those of a workgroup together ("flat"), otherwise over workgroups. A workgroup with barriers runs the
segments into which ``vyre.lower`` cuts it; the state between them is stored in slots in scratch memory.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.ranges import proofs_of
from vyre.analyze.shapes import Layout, Shape
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.if_conversion import if_convert
from vyre.emit.llvm.interleaving import interleave_factor
from vyre.emit.llvm.memory import ALL
from vyre.emit.llvm.privatization import copies_of, merge_copies, privatized_buffers
from vyre.emit.llvm.rows import Row
from vyre.emit.llvm.statements import Statements
from vyre.emit.llvm.streams import PREFETCH_BYTES, PREFETCH_INVOCATIONS, STREAMED_BYTES, Streams, streams_of
from vyre.emit.llvm.text import ELEMENT, spread
from vyre.emit.llvm.values import NO_FACTS, Cell, Facts, Value
from vyre.emit.prepare import Prepared, prepare
from vyre.errors import UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.program import Program
from vyre.lower import DONE, Slot, cut_workgroup
from vyre.lower.fresh_names import with_unique_names
from vyre.lower.transfers import Capture
from vyre.semantics.types import DType

KERNEL: Final = "kernel"
# The words of an argument block before the buffers' pointers and lengths: the stop word's address and the grid.
HEAD_WORDS: Final = 4
OUT_OF_MEMORY: Final = 2
# The name of the function with all checks, where there is one without some of them. Longer programs have one function.
_CHECKED: Final = "checked"
_MAX_SIZED_STATEMENTS: Final = 256
# The most elements of a buffer whose indices have no top bit.
_MAX_SHORT: Final = 1 << 31
# In longer programs, the cost of the mask is small compared with the rest.
_MAX_PEELED_STATEMENTS: Final = 64
_MAX_UNPOLLED_INVOCATIONS: Final = 1 << 14
_MAX_WORK: Final = 1 << 24
_IDS: Final = (n.InvocationId, n.LocalId, n.WorkgroupId)
_GRID: Final = ("%grid.x", "%grid.y", "%grid.z")


class Kernel(msgspec.Struct, frozen=True):
    """A kernel's text and how to call it: ``kernel(block, first, last)`` for invocations or workgroups.

    Invocations are numbered row by row: first along ``axis``, on which the lanes lie. The block consists of 64-bit
    words: the address of the stop word, the grid, and the address and length of each of ``buffers``. ``captures`` are
    the buffers that the launch provides. ``is_unbounded``: loops may let an invocation do any amount of work.
    ``is_irregular``: lanes leave loops at different times, and access memory by gathers or scatters. ``work`` estimates
    the operations of an invocation; of loops with an unknown number of iterations, one iteration. ``slowdown``
    estimates how much longer an iteration of a loop takes for a vector than for one invocation.
    """

    text: str
    buffers: tuple[str, ...]
    captures: tuple[Capture, ...]
    is_flat: bool
    axis: int
    width: int
    scratch_bytes: int
    is_unbounded: bool
    is_irregular: bool
    work: int
    slowdown: float
    notes: dict[str, int]


def emit_kernel(program: Program, width: int, *, flat: bool, axis: int = 0, check_elimination: bool = True) -> Kernel:
    """Emit a legal program without grid-wide cuts, for vectors of ``width`` lanes.

    With a width of 1 the code is scalar: one invocation after another, without masks. ``flat`` is for programs that are
    workgroup-independent; then the lanes lie along ``axis``, which is x unless the program may be reordered. Without
    ``check_elimination`` every access is checked, even if it is proved to be in bounds.
    """
    if width == 1 and program.stats().has_subgroup_ops:
        raise UnsupportedFeature(
            "subgroup operations in scalar code", "vyre.emit.llvm", "choose vectors of more than one lane."
        )
    prepared = prepare(program)
    shell = _Shell(prepared, width, flat, axis, check_elimination)
    if not shell.required:
        return shell.write()
    checked = _Shell(prepared, width, flat, axis, check_elimination, sized=False)
    return shell.write(checked.write_function(_CHECKED), checked)


class _Shell:
    """Writer of the code around a body. ``size`` is that of a workgroup, ``step`` the invocations of a vector.

    Code that is ``sized`` leaves out checks of accesses that are in bounds if the launch fulfils what is ``required``.
    """

    def __init__(
        self, prepared: Prepared, width: int, flat: bool, axis: int, check_elimination: bool, *, sized: bool = True
    ) -> None:
        self.program = program = if_convert(prepared.program)
        self.captures = prepared.captures
        self.flat, self.axis = flat, axis
        self.cut = cut_workgroup(program)
        self.segments = [with_unique_names(segment.program) for segment in self.cut.segments]
        # A subgroup is one vector, so its lanes are in lockstep. (LLVM's vectors of one lane are unsound.)
        self.step = program.subgroup_size if program.stats().has_subgroup_ops else width
        self.size = math.prod(program.workgroup_size)
        if len(self.segments) == 1 and not program.stats().has_subgroup_ops and (flat or self.size % (2 * width) == 0):
            self.step *= interleave_factor(self.segments[0], Layout(program.workgroup_size, width, flat, axis=axis))
        self.width = 0 if width == 1 else max(2, self.step)
        self.chunks = -(-self.size // self.step)
        has_one_lane = min(self.size, self.step) == 1
        self.uniform_slots = frozenset(slot.buffer for slot in self.cut.slots if slot.is_uniform or has_one_lane)
        layout = Layout(program.workgroup_size, self.step, flat, self.uniform_slots, axis)
        self.check_elimination = check_elimination
        statements = program.stats().statements
        self.has_interior = flat and self.width > 0 and statements <= _MAX_PEELED_STATEMENTS
        # While a segment runs, other workgroups may be in another; slots are not memory.
        changing = written_buffers(program) | {slot.buffer for slot in self.cut.slots} | {self.cut.control}
        proofs = [proofs_of(segment, changing) for segment in self.segments] if check_elimination else []
        # The interiors of rows have no checks anyway.
        is_sized = sized and not self.has_interior and statements <= _MAX_SIZED_STATEMENTS
        self.required = {bound: None for found in proofs for bound in found.required} if is_sized else {}
        self.body = Statements(
            self.width,
            layout,
            {
                id(segment): found.sized if self.required else found.always
                for segment, found in zip(self.segments, proofs, strict=False)
            },
        )
        self.body.fixed = frozenset(decl.name for decl in program.buffers if decl.role is not Role.SHARED) - changing
        self.code = self.body.code
        expressions = [node for segment in self.segments for node in walk.expressions(segment.entry)]
        self.ids = dict.fromkeys((type(node), node.axis) for node in expressions if isinstance(node, _IDS))
        self.body.streams = self.streams = streams_of(program)
        if flat and any(kind is n.InvocationId and at != axis for kind, at in self.ids):
            # Neighbouring rows are in the caches already, and each is one stream.
            self.body.streams = self.streams = Streams(written=self.streams.written)
        self.private = privatized_buffers(program)
        self.merged: dict[str, m.Place] = {}
        self.group: list[str] = []

    def write(self, checked: str = "", other: _Shell | None = None) -> Kernel:
        """Write the kernel; launches that do not fulfil what is required run the function of another shell."""
        function = self.write_function(KERNEL)
        module, body = self.code.module, self.body
        if other is not None:
            module.declarations |= other.code.module.declarations
            module.helpers |= other.code.module.helpers
            body.notes["size checks"] = len(self.required)
        names = tuple(decl.name for decl in self.program.buffers if decl.role is not Role.SHARED)
        head = [m.ZEROS_DEFINITION, 'attributes #0 = { nounwind "no-trapping-math"="false" }']
        text = "\n".join(head) + "\n" + module.text([checked, function] if checked else [function])
        return Kernel(
            text,
            names,
            self.captures,
            self.flat,
            self.axis,
            self.width or 1,
            body.scratch,
            _is_unbounded(self.program),
            self._is_irregular(),
            _work_of(self.program.entry),
            self._slowdown(),
            body.notes,
        )

    def write_function(self, name: str) -> str:
        body, code = self.body, self.code
        self._place_buffers()
        before = body.scratch
        self._place_slots()
        body.notes |= {"private buffers": len(self.private), "segments": len(self.segments)}
        body.notes["state bytes"] = body.scratch - before
        if self.flat:
            self._loop_over_invocations()
        else:
            self._loop_over_workgroups()
        loops, code.lines = code.lines, []
        self._prologue()
        linkage = "" if name == KERNEL else "internal "
        lines = [f"define {linkage}void @{name}(ptr noalias %block, i64 %first, i64 %last) #0 {{", "entry:"]
        lines += [*code.allocations, *code.lines, *loops]
        code.lines = []
        code.begin("finish")
        for buffer, op in self.private.items():
            merge_copies(code, op, body.places[buffer], self.merged[buffer])
        code.fall_through("abort")
        if body.scratch:
            code.do("call void @free(ptr %scratch)")
        code.do("ret void")
        return "\n".join([*lines, *code.lines, "}"])

    def _slowdown(self) -> float:
        together, each = self.body.loop_accesses
        return 1 + self.body.width * each / max(1, each + together)

    def _is_irregular(self) -> bool:
        notes = self.body.notes
        return notes["divergent loops"] > 0 and notes["gathers"] + notes["scatters"] > 0

    def _place_buffers(self) -> None:
        body, code = self.body, self.code
        for number, decl in enumerate(self.program.buffers):
            shared = decl.role is Role.SHARED
            if shared:
                code.do(f"%b{number} = getelementptr i8, ptr %scratch, i64 {body.reserve(_bytes_of(decl))}")
            length = str(decl.count) if decl.count else f"%n{number}"
            is_short = decl.count <= _MAX_SHORT if decl.count else bool(self.required)
            body.places[decl.name] = m.Place(f"%b{number}", length, decl.dtype, shared, is_short=is_short)
        for name in self.private:
            size = _bytes_of(self.program.buffer(name))
            copies, stride = copies_of(size, self.step), -(-size // 64) * 64
            offset = body.reserve(copies * stride)
            self._clear(offset, copies * stride)
            pointer = code.put(f"getelementptr i8, ptr %scratch, i64 {offset}")
            self.merged[name] = place = body.places[name]
            body.places[name] = m.Place(
                pointer, place.length, place.dtype, True, copies, stride, is_short=place.is_short
            )
        self.pointer_lines, code.lines = code.lines, []

    def _place_slots(self) -> None:
        """Allocate the slots: a cell for each vector of a workgroup, or one cell for all in a uniform slot.

        A uniform slot has a second cell for the next value, because all vectors of a run load the value of the run
        before.
        """
        body = self.body
        for slot in self.cut.slots:
            if slot.is_uniform:
                body.slots[slot.buffer] = body.new_cell(slot.dtype, Shape.UNIFORM)
                body.next_slots[slot.buffer] = body.new_cell(slot.dtype, Shape.UNIFORM)
                continue
            shape = Shape.UNIFORM if slot.buffer in self.uniform_slots else Shape.VARYING
            stride = _slot_bytes(slot, self.width) if shape is Shape.VARYING else 8
            offset = body.reserve(stride * self.chunks)
            cell = Cell(slot.dtype, shape, 0, offset=offset, stride=stride)
            body.slots[slot.buffer] = body.next_slots[slot.buffer] = cell
        if not self.cut.straight:
            body.next_slots[self.cut.control] = body.new_cell(DType.U32, Shape.UNIFORM)

    def _prologue(self) -> None:
        """Load the argument block and allocate scratch memory; written last, when the size of the memory is known."""
        code = self.code

        def word(number: int, kind: str, name: str) -> None:
            code.do(f"{name}.at = getelementptr i64, ptr %block, i64 {number}")
            code.do(f"{name} = load {kind}, ptr {name}.at, align 8")

        word(0, "ptr", "%stop")
        for axis, name in enumerate(_GRID):
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
        words, code.lines = code.lines, []
        if self.required:
            self._check_sizes()
        sizes, code.lines = code.lines, words
        self._load_launch_values()
        code.lines += sizes
        self._choose_streams()
        if self.body.scratch:
            code.module.declarations["free"] = "declare void @free(ptr)"
            declared = "declare noalias ptr @aligned_alloc(i64, i64)"
            code.module.declarations["aligned_alloc"] = declared
            code.do(f"%scratch = call ptr @aligned_alloc(i64 64, i64 {self.body.scratch})")
            code.do("%missing = icmp eq ptr %scratch, null")
            code.branch("%missing", "lacking", "ready")
            code.begin("lacking")
            code.do(f"store atomic i32 {OUT_OF_MEMORY}, ptr %stop monotonic, align 4")
            code.do("ret void")
            code.begin("ready")
            code.lines += self.pointer_lines
        code.go("start")

    def _load_launch_values(self) -> None:
        """Load what the body asked for of buffers that do not change during a launch."""
        code, body = self.code, self.body
        for (buffer, index), name in body.launch_loads.items():
            place = body.places[buffer]
            is_inside = place.length.isdigit() and index < int(place.length)
            found = m.load_uniform(code, place, str(index), checked=not is_inside, predicted=False)
            code.do(f"{name} = freeze {ELEMENT[place.dtype]} {found}")

    def _check_sizes(self) -> None:
        """Leave a launch to the function with all checks unless it fulfils what is required, in 64 bits."""
        code, notes = self.code, dict(self.body.notes)
        fulfilled = "true"

        def require(condition: str) -> None:
            nonlocal fulfilled
            fulfilled = code.put(f"and i1 {fulfilled}, {condition}")

        for number, decl in enumerate(self.program.buffers):
            if decl.role is not Role.SHARED and not decl.count:
                require(code.put(f"icmp ule i64 %n{number}.wide, {_MAX_SHORT}"))
        for bound in self.required:
            length = code.put(f"zext i32 {self.body.places[bound.buffer].length} to i64")
            product = "1"
            for factor in bound.factors:
                least, *more = map(self.body.uniform, factor)
                for other in more:
                    least = code.intrinsic("umin", "i32", [("i32", least), ("i32", other)], ["i32"])
                product = code.put(f"mul i64 {product}, {code.put(f'zext i32 {least} to i64')}")
                # Lengths are u32, so the next product is exact.
                require(code.put(f"icmp ule i64 {product}, {length}"))
        self.body.notes = notes
        sized, checked = code.label("sized"), code.label("checked")
        code.branch(fulfilled, sized, checked, likely=True)
        code.begin(checked)
        code.do(f"call void @{_CHECKED}(ptr %block, i64 %first, i64 %last)")
        code.do("ret void")
        code.begin(sized)

    def _choose_streams(self) -> None:
        """Compute the prefetch distance of a launch, and whether its stores fit into the caches."""
        code, count = self.code, str(self.size)
        if not self.streams.read and not self.streams.written:
            return
        for name in _GRID:
            count = code.put(f"mul i64 {count}, {name}.wide")
        far = code.put(f"icmp uge i64 {count}, {PREFETCH_INVOCATIONS}")
        code.do(f"%ahead = select i1 {far}, i64 {PREFETCH_BYTES}, i64 0")
        each = sum(self.program.buffer(name).dtype.bytes for name in self.streams.written)
        fits = code.put(f"icmp ult i64 {code.put(f'mul i64 {count}, {each}')}, {STREAMED_BYTES}")
        code.do(f"%cached = zext i1 {fits} to i64")

    def _clear(self, offset: int, size: int) -> None:
        self.code.module.declarations.update(m.MEMORY_INTRINSICS)
        start = self.code.put(f"getelementptr i8, ptr %scratch, i64 {offset}")
        self.code.do(f"call void @llvm.memset.p0.i64(ptr align 64 {start}, i8 0, i64 {size}, i1 false)")

    def _loop_over_invocations(self) -> None:
        """Loop over the rows of a range of invocations; ids of the slower axes change from row to row."""
        code, body = self.code, self.body
        orders = {0: (0, 1, 2), 1: (1, 0, 2), 2: (2, 1, 0)}
        lanes, *others = orders[self.axis]
        at, begin, *counters = (code.allocate(kind) for kind in ("i64", "i64", "i32", "i32"))
        code.begin("start")
        rest = "%first"
        extents = [self._extent(axis) for axis in (lanes, others[0])]
        code.do(f"store i64 %first, ptr {at}")
        for place, extent in zip((begin, counters[0]), extents, strict=True):
            left = code.put(f"urem i64 {rest}, {extent}")
            kind = "i64" if place is begin else "i32"
            code.do(f"store {kind} {left if kind == 'i64' else code.put(f'trunc i64 {left} to i32')}, ptr {place}")
            rest = code.put(f"udiv i64 {rest}, {extent}")
        code.do(f"store i32 {code.put(f'trunc i64 {rest} to i32')}, ptr {counters[1]}")
        code.fall_through("row")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "invocations", "finish")
        code.begin("invocations")
        first = code.put(f"load i64, ptr {begin}")
        left = code.put(f"sub i64 {extents[0]}, {first}")
        there = code.put(f"sub i64 %last, {here}")
        count = code.intrinsic("umin", "i64", [("i64", left), ("i64", there)], ["i64"])
        for axis, counter in zip(others, counters, strict=True):
            self._set_row_ids(axis, code.put(f"load i32, ptr {counter}"))
        self._write_row(first, code.put(f"add i64 {first}, {count}"))
        code.begin("ran")
        code.do(f"store i64 {code.put(f'add i64 {here}, {count}')}, ptr {at}")
        code.do(f"store i64 0, ptr {begin}")
        more = code.put(f"add i32 {code.put(f'load i32, ptr {counters[0]}')}, 1")
        full = code.put(f"icmp eq i32 {more}, {code.put(f'trunc i64 {extents[1]} to i32')}")
        code.do(f"store i32 {code.put(f'select i1 {full}, i32 0, i32 {more}')}, ptr {counters[0]}")
        carry = code.put(f"zext i1 {full} to i32")
        slowest = code.put(f"load i32, ptr {counters[1]}")
        code.do(f"store i32 {code.put(f'add i32 {slowest}, {carry}')}, ptr {counters[1]}")
        body.poll("row")

    def _extent(self, axis: int) -> str:
        """Return the invocations along an axis of the grid; an empty grid runs nothing, but must not divide by zero."""
        count = self.code.intrinsic("umax", "i64", [("i64", f"{_GRID[axis]}.wide"), ("i64", "1")], ["i64"])
        return self.code.put(f"mul i64 {count}, {self.program.workgroup_size[axis]}")

    def _set_row_ids(self, axis: int, place: str) -> None:
        """Set the ids along an axis that are the same in a whole row."""
        size = str(self.program.workgroup_size[axis])
        for kind, operation in ((n.InvocationId, ""), (n.LocalId, "urem"), (n.WorkgroupId, "udiv")):
            if (kind, axis) in self.ids:
                text = self.code.put(f"{operation} i32 {place}, {size}") if operation else place
                self.body.id_values[kind, axis] = Value(DType.U32, Shape.UNIFORM, text)

    def _write_row(self, first: str, last: str) -> None:
        """Write the vectors of a row, which start at multiples of their width.

        The invocations in front of the interior and behind it run general code, which is written once, in a loop that
        is entered twice. In the interior, complete vectors run code without masks; of the first and the last vector,
        only the invocations of the interior take part. Long programs are general code only.
        """
        body, code = self.body, self.code
        if not self.width:
            self._loop_over_whole(first, last, "ran", NO_FACTS)
            return
        has_interior = self.has_interior
        row = Row(first, last, first, last)
        if has_interior and self.check_elimination:
            row = body.row(self.segments[0], first, last)
        if row.is_active:
            code.branch(row.is_active, "active", "ran")
            code.begin("active")
        first, last = row.begin, row.end
        before, behind, has_partial = row.first, row.last, bool(row.facts.addresses)
        if not has_partial:
            before = code.put(f"and i64 {code.put(f'add i64 {before}, {self.step - 1}')}, {-self.step}")
            behind = self._vector_start(behind)
        exists = code.put(f"icmp slt i64 {before}, {behind}") if has_interior else "false"
        before = code.put(f"select i1 {exists}, i64 {before}, i64 {last}")
        at, since, until = (code.allocate("i64") for _ in range(3))

        def enter(start: str, end: str) -> None:
            for place, text in ((at, self._vector_start(start)), (since, start), (until, end)):
                code.do(f"store i64 {text}, ptr {place}")
            code.go("edges")

        enter(first, before)
        code.begin("edges")
        place, start, end = (code.put(f"load i64, ptr {name}") for name in (at, since, until))
        begin = code.intrinsic("umax", "i64", [("i64", place), ("i64", start)], ["i64"])
        code.branch(code.put(f"icmp ult i64 {begin}, {end}"), "edge", "edged")
        code.begin("edge")
        notes, streams, body.streams = dict(body.notes), body.streams, Streams()
        self._write_partial(place, start, end, row.edge_facts)
        code.do(f"store i64 {code.put(f'add i64 {place}, {self.step}')}, ptr {at}")
        body.poll("edges")
        code.begin("edged")
        if not has_interior:
            code.go("ran")
            return
        code.branch(code.put(f"icmp eq i64 {end}, {last}"), "ran", "interior")
        code.begin("interior")
        inside = self._vector_start(before)
        code.do(f"store i64 {inside}, ptr {at}")
        if has_partial:
            code.branch(code.put(f"icmp ult i64 {inside}, {before}"), "partial", "whole")
            code.begin("partial")
            place = code.put(f"load i64, ptr {at}")
            self._write_partial(place, before, behind, row.facts)
            code.do(f"store i64 {code.put(f'add i64 {place}, {self.step}')}, ptr {at}")
            code.go("whole")
        else:
            code.go("whole")
        code.begin("whole")
        body.notes, body.streams = notes, streams
        inside = code.put(f"load i64, ptr {at}")
        end = self._vector_start(behind)
        self._loop_over_whole(inside, end, "passed", row.facts)
        code.begin("passed")
        if has_partial:
            # The loop over whole vectors may have had none to run, where the interior ends in its first vector.
            next_ = code.intrinsic("umax", "i64", [("i64", inside), ("i64", end)], ["i64"])
            code.do(f"store i64 {next_}, ptr {at}")
            code.branch(code.put(f"icmp ult i64 {next_}, {behind}"), "partial", "behind")
            code.begin("behind")
        enter(behind, last)

    def _vector_start(self, place: str) -> str:
        """Return the start of the vector in which an id lies."""
        return self.code.put(f"and i64 {place}, {-self.step}")

    def _write_partial(self, place: str, first: str, last: str, facts: Facts) -> None:
        """Write the vector at ``place`` for its invocations between two ids; there is one."""
        body = self.body
        body.run_end, body.mask = self.code.label("next"), self._mask_between(place, first, last)
        body.row_place, body.row_mask = place, body.mask
        self._vector_ids(place)
        body.write_run(self.segments[0], facts)
        self.code.fall_through(body.run_end)

    def _mask_between(self, place: str, first: str, last: str) -> str:
        """Return the lanes of the vector at ``place`` whose ids are in the row."""
        lanes = self._lanes_from(self.code.put(f"trunc i64 {place} to i32"))
        vector, words = self.body.vector, [self.code.put(f"trunc i64 {limit} to i32") for limit in (first, last)]
        limits = [spread(self.code, "i32", word, self.width) for word in words]
        inside = (vector.op("icmp uge", "i32", lanes, limits[0]), vector.op("icmp ult", "i32", lanes, limits[1]))
        return vector.op("and", "i1", *inside)

    def _loop_over_whole(self, first: str, last: str, exit_: str, facts: Facts) -> None:
        """Write a loop over complete vectors, which polls the stop word once for many of them."""
        body, code = self.body, self.code
        at = code.allocate("i64")
        spans, head, lanes, pause = (code.label(hint) for hint in ("spans", "chunk", "lanes", "pause"))
        body.run_end, body.mask = code.label("next"), ALL
        code.do(f"store i64 {first}, ptr {at}")
        code.fall_through(spans)
        begin = code.put(f"load i64, ptr {at}")
        far = code.put(f"add i64 {begin}, {_MAX_UNPOLLED_INVOCATIONS}")
        span = code.intrinsic("umin", "i64", [("i64", far), ("i64", last)], ["i64"])
        code.fall_through(head)
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, {span}"), lanes, pause)
        code.begin(lanes)
        body.row_place, body.row_mask = here, ALL
        self._vector_ids(here)
        body.write_run(self.segments[0], facts)
        code.fall_through(body.run_end)
        code.do(f"store i64 {code.put(f'add i64 {here}, {self.step}')}, ptr {at}")
        code.go(head)
        code.begin(pause)
        onward = code.label("onward")
        code.branch(code.put(f"icmp ult i64 {here}, {last}"), onward, exit_)
        code.begin(onward)
        body.poll(spans)

    def _vector_ids(self, place: str) -> None:
        """Set the ids along the lanes' axis. Vectors start at multiples of their width."""
        body, size = self.body, self.program.workgroup_size[self.axis]
        base = self.code.put(f"trunc i64 {place} to i32")
        within = not self.width or size % self.step == 0
        lanes, first = (body.scalar, base) if within else (body.vector, "")
        for kind, axis in self.ids:
            if axis != self.axis:
                continue
            if kind is n.InvocationId:
                body.id_values[kind, axis] = Value(DType.U32, Shape.LINEAR if self.width else Shape.UNIFORM, base)
                continue
            first = first or self._lanes_from(base)
            text = lanes.binary("mod" if kind is n.LocalId else "div", DType.U32, first, lanes.constant("i32", size))
            shape = Shape.UNIFORM if kind is n.WorkgroupId or not self.width else Shape.LINEAR
            body.id_values[kind, axis] = Value(DType.U32, shape if within else Shape.VARYING, text)

    def _lanes_from(self, first: str) -> str:
        """Return the numbers of a vector's lanes, consecutive from ``first`` on."""
        if not self.width:
            return first
        return self.body.vector.op("add", "i32", spread(self.code, "i32", first, self.width), _lane_numbers(self.width))

    def _loop_over_workgroups(self) -> None:
        code = self.code
        at, *axes = (code.allocate(kind) for kind in ("i64", "i32", "i32", "i32"))
        code.begin("start")
        code.do(f"store i64 %first, ptr {at}")
        self._first_workgroup(axes)
        code.fall_through("group")
        here = code.put(f"load i64, ptr {at}")
        code.branch(code.put(f"icmp ult i64 {here}, %last"), "workgroup", "finish")
        code.begin("workgroup")
        self.group = [code.put(f"load i32, ptr {axis}") for axis in axes]
        shared = sum(-(-_bytes_of(decl) // 64) * 64 for decl in self.program.shared_buffers())
        if shared:
            self._clear(0, shared)
        if self.cut.straight:
            for segment in self.segments:
                self._run(segment)
        else:
            self._dispatch_segments()
        self._next_workgroup(axes)
        code.do(f"store i64 {code.put(f'add i64 {here}, 1')}, ptr {at}")
        self.body.poll("group")

    def _first_workgroup(self, axes: list[str]) -> None:
        code = self.code
        rest = "%first"
        for axis, name in zip(axes, _GRID, strict=True):
            # An empty grid runs nothing, but must not divide by zero.
            size = code.intrinsic("umax", "i64", [("i64", f"{name}.wide"), ("i64", "1")], ["i64"])
            place = code.put(f"urem i64 {rest}, {size}")
            code.do(f"store i32 {code.put(f'trunc i64 {place} to i32')}, ptr {axis}")
            rest = code.put(f"udiv i64 {rest}, {size}")

    def _next_workgroup(self, axes: list[str]) -> None:
        code = self.code
        carry = "1"
        for axis, here, name in zip(axes, self.group, _GRID, strict=True):
            more = code.put(f"add i32 {here}, {carry}")
            full = code.put(f"icmp eq i32 {more}, {name}")
            code.do(f"store i32 {code.put(f'select i1 {full}, i32 0, i32 {more}')}, ptr {axis}")
            carry = code.put(f"zext i1 {full} to i32")

    def _dispatch_segments(self) -> None:
        """Dispatch segments by the control word; one thread runs the workgroup, so barriers need no waiting."""
        code = self.code
        control = self.body.next_slots[self.cut.control].pointer
        code.fall_through("segment0")
        for number, segment in enumerate(self.cut.segments):
            if number:
                code.begin(f"segment{number}")
            code.do(f"store i32 {DONE}, ptr {control}")
            self._run(self.segments[number])
            following = [to for to in segment.exits if to != DONE]
            if any(to <= number for to in following):
                onward = code.label("onward")
                self.body.poll(onward)
                code.begin(onward)
            targets = " ".join(f"i32 {to}, label %segment{to}" for to in following)
            code.do(f"switch i32 {code.put(f'load i32, ptr {control}')}, label %done [ {targets} ]")
        code.begin("done")

    def _run(self, segment: Program) -> None:
        """Write a loop that runs a segment for each vector of the workgroup."""
        body, code, width = self.body, self.code, self.width
        at = code.allocate("i32")
        head, lanes, after = (code.label(hint) for hint in ("run", "lanes", "ran"))
        body.run_end = code.label("next")
        code.do(f"store i32 0, ptr {at}")
        code.fall_through(head)
        body.chunk = code.put(f"load i32, ptr {at}")
        code.branch(code.put(f"icmp ult i32 {body.chunk}, {self.chunks}"), lanes, after)
        code.begin(lanes)
        first = code.put(f"mul i32 {body.chunk}, {self.step}")
        lane = self._lanes_from(first)
        body.mask = ALL
        if self.step < width:
            body.mask = f"<{', '.join(f'i1 {int(lane < self.step)}' for lane in range(width))}>"
        elif width and self.size % width:
            body.mask = body.vector.op("icmp ult", "i32", lane, body.vector.constant("i32", self.size))
        self._group_ids(first, lane)
        body.write_run(segment)
        code.fall_through(body.run_end)
        code.do(f"store i32 {code.put(f'add i32 {body.chunk}, 1')}, ptr {at}")
        code.go(head)
        code.begin(after)
        filled = {s.buffer for s in walk.statements(segment.entry) if isinstance(s, n.Store)}
        for slot in self.cut.slots:
            if slot.is_uniform and slot.buffer in filled:
                kind, old, new = ELEMENT[slot.dtype], body.slots[slot.buffer], body.next_slots[slot.buffer]
                code.do(f"store {kind} {code.put(f'load {kind}, ptr {new.pointer}')}, ptr {old.pointer}")

    def _group_ids(self, first: str, lane: str) -> None:
        body, code = self.body, self.code
        x, y, z = self.program.workgroup_size
        linear = Shape.LINEAR if self.width else Shape.UNIFORM
        if y == 1 and z == 1:
            zero = Value(DType.U32, Shape.UNIFORM, "0")
            local = [Value(DType.U32, linear, first), zero, zero]
        else:
            rows = x % self.step == 0
            lanes, at = (body.scalar, first) if rows else (body.vector, lane)
            rest = lanes.binary("div", DType.U32, at, lanes.constant("i32", x))
            texts = (
                lanes.binary("mod", DType.U32, at, lanes.constant("i32", x)),
                lanes.binary("mod", DType.U32, rest, lanes.constant("i32", y)),
                lanes.binary("div", DType.U32, rest, lanes.constant("i32", y)),
            )
            shapes = (linear, Shape.UNIFORM, Shape.UNIFORM) if rows else (Shape.VARYING,) * 3
            local = [Value(DType.U32, s, t) for s, t in zip(shapes, texts, strict=True)]
        for kind, axis in self.ids:
            group = Value(DType.U32, Shape.UNIFORM, self.group[axis])
            if kind is n.WorkgroupId:
                value = group
            elif kind is n.LocalId:
                value = local[axis]
            else:
                start = code.put(f"mul i32 {group.text}, {self.program.workgroup_size[axis]}")
                lanes = body.scalar
                if local[axis].shape is Shape.VARYING:
                    lanes, start = body.vector, spread(code, "i32", start, self.width)
                value = msgspec.structs.replace(local[axis], text=lanes.op("add", "i32", local[axis].text, start))
            body.id_values[kind, axis] = value


def _lane_numbers(width: int) -> str:
    return f"<{', '.join(f'i32 {lane}' for lane in range(width))}>"


def _is_unbounded(program: Program) -> bool:
    """Whether there is a loop whose number of iterations is not a compile-time constant."""
    return any(
        isinstance(s, n.While)
        or (isinstance(s, n.Loop) and not all(isinstance(bound, n.Lit) for bound in (s.start, s.stop)))
        for s in walk.statements(program.entry)
    )


def _work_of(body: n.Body) -> int:
    work = 0
    for statement in body:
        here = sum(len(walk.postorder(root)) for root in walk.operands(statement))
        inside = sum(map(_work_of, walk.bodies(statement)))
        if isinstance(statement, n.Loop) and isinstance(statement.start, n.Lit) and isinstance(statement.stop, n.Lit):
            inside *= max(0, statement.stop.bits - statement.start.bits)
        work += here + inside
    return min(work, _MAX_WORK)


def _slot_bytes(slot: Slot, width: int) -> int:
    """Return the bytes of one vector in a slot, in register form: bools as bits, halves as floats."""
    return 8 if slot.dtype is DType.BOOL else width * max(slot.dtype.bytes, 4)


def _bytes_of(decl: BufferDecl) -> int:
    return decl.count * decl.dtype.bytes
