"""The frame of a kernel: its arguments, scratch memory and slots, and what is found out once in a call.

The loops over the grid are in ``row_shell`` and ``workgroup_shell``.
"""

from __future__ import annotations

import math
from typing import Final

from vyre.analyze.effects import written_buffers
from vyre.analyze.ranges import proofs_of
from vyre.analyze.shapes import Layout, Shape
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.if_conversion import if_convert
from vyre.emit.llvm.interleaving import interleave_factor
from vyre.emit.llvm.privatization import copies_of, privatized_buffers
from vyre.emit.llvm.statements import Statements
from vyre.emit.llvm.streams import PREFETCH_BYTES, PREFETCH_INVOCATIONS, STREAMED_BYTES, Streams, streams_of
from vyre.emit.llvm.text import ELEMENT, spread
from vyre.emit.llvm.values import Cell
from vyre.emit.prepare import Prepared
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl, Role
from vyre.lower import Slot, cut_workgroup
from vyre.lower.fresh_names import with_unique_names
from vyre.semantics.types import DType

# The words of an argument block before the buffers' pointers and lengths: the stop word's address and the grid.
HEAD_WORDS: Final = 4
OUT_OF_MEMORY: Final = 2
# The name of the function with all checks, where there is one without some of them. Longer programs have one function.
CHECKED: Final = "checked"
_MAX_SIZED_STATEMENTS: Final = 256
# The most elements of a buffer whose indices have no top bit.
_MAX_SHORT: Final = 1 << 31
# In longer programs, the cost of the mask is small compared with the rest.
_MAX_PEELED_STATEMENTS: Final = 64
_IDS: Final = (n.InvocationId, n.LocalId, n.WorkgroupId)
GRID: Final = ("%grid.x", "%grid.y", "%grid.z")


class Shell:
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

    def _place_buffers(self) -> None:
        body, code = self.body, self.code
        for number, decl in enumerate(self.program.buffers):
            shared = decl.role is Role.SHARED
            if shared:
                code.do(f"%b{number} = getelementptr i8, ptr %scratch, i64 {body.reserve(bytes_of(decl))}")
            length = str(decl.count) if decl.count else f"%n{number}"
            is_short = decl.count <= _MAX_SHORT if decl.count else bool(self.required)
            body.places[decl.name] = m.Place(f"%b{number}", length, decl.dtype, shared, is_short=is_short)
        for name in self.private:
            size = bytes_of(self.program.buffer(name))
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
        for axis, name in enumerate(GRID):
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
        code.do(f"call void @{CHECKED}(ptr %block, i64 %first, i64 %last)")
        code.do("ret void")
        code.begin(sized)

    def _choose_streams(self) -> None:
        """Compute the prefetch distance of a launch, and whether its stores fit into the caches."""
        code, count = self.code, str(self.size)
        if not self.streams.read and not self.streams.written:
            return
        for name in GRID:
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

    def _lanes_from(self, first: str) -> str:
        """Return the numbers of a vector's lanes, consecutive from ``first`` on."""
        if not self.width:
            return first
        return self.body.vector.op("add", "i32", spread(self.code, "i32", first, self.width), lane_numbers(self.width))


def lane_numbers(width: int) -> str:
    return f"<{', '.join(f'i32 {lane}' for lane in range(width))}>"


def _slot_bytes(slot: Slot, width: int) -> int:
    """Return the bytes of one vector in a slot, in register form: bools as bits, halves as floats."""
    return 8 if slot.dtype is DType.BOOL else width * max(slot.dtype.bytes, 4)


def bytes_of(decl: BufferDecl) -> int:
    return decl.count * decl.dtype.bytes
