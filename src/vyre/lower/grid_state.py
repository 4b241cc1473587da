"""State of a grid between segments: the statements that save it at cuts and restore it in the next segment.

A segment reads the cells of its own cut, which are not written while it runs, and writes the cells of the cut that it
reaches. Rows are private to their invocation. Workgroup memory is copied byte by byte. All indices are u32.

The first column of a row marks invocations that returned or trapped; later segments skip them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from vyre.analyze.agreement import GRID
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.nodes import lit
from vyre.lower.cut_tree import Cut, ExitPoint, Trap
from vyre.lower.fresh_names import FreshNames
from vyre.lower.spilling import AnalyzedProgram, Spill, SpilledVariable, Spills
from vyre.lower.word_packing import pack_words, unpack_words
from vyre.lower.workgroup_state import lane_number
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

RETURNED: Final = 1
FIRST_PARKED: Final = 2
CONTROL_WORDS: Final = 2
_STATUS: Final = 0
_ADDRESS: Final = 1


class Parking(msgspec.Struct, frozen=True):
    """A trap's tag, and the order of the resume at which its invocations go on; None if no resume follows."""

    tag: str
    resume: int | None


class StateNames:
    """Names of the variables and buffers that are generated for the segments."""

    def __init__(self, names: FreshNames, row: str, cuts: int) -> None:
        self.row = row
        self.rows, self.lane = names.make("rows"), names.make("lane")
        self.group, self.groups = names.make("group"), names.make("groups")
        self.row_words, self.memory = names.make("state_rows"), names.make("state_memory")
        self.leave_count, self.control = names.make("leaving"), names.make("control")
        self.cells_in = [names.make(f"cut{order}_in") for order in range(1, cuts + 1)]
        self.cells_out = [names.make(f"cut{order}_out") for order in range(1, cuts + 1)]


class GridState:
    """The state of one cut program, and the statements that save and restore it.

    Implements ``CutState`` of ``vyre.lower.cut``. ``captures`` are the buffers of pending transfers. In a ``straight``
    program every segment is followed by the next, so no control word is written.
    """

    def __init__(self, given: AnalyzedProgram) -> None:
        tree = given.tree
        self.program = given.program
        self.names = StateNames(given.names, given.row, len(tree.cuts))
        self.captures = given.captures
        self.straight = tree.is_straight()
        self.group_size = math.prod(self.program.workgroup_size)
        self.parkings = list(dict.fromkeys(map(_parking, tree.traps)))
        # Some invocations may leave while others continue.
        self.may_exit_early = tree.returns or bool(tree.traps)
        self.spills = Spills(given, 2 if tree.traps else int(tree.returns))
        self.memory_rows, self.memory_row_bytes = self._memory_layout()
        self.variables = self._generated_variables()
        self.buffers = self._generated_buffers()

    def _memory_layout(self) -> tuple[dict[str, tuple[int, int]], int]:
        """Return, for each workgroup buffer that crosses a cut, its first byte in the workgroup's row, and its share.

        The share is the number of bytes that each invocation copies; shares and rows are whole words.
        """
        layout: dict[str, tuple[int, int]] = {}
        end = 0
        for decl in self.program.shared_buffers():
            if any(decl.name in spill.memory for spill in self.spills.at):
                share = -(-decl.count * decl.dtype.bytes // (4 * self.group_size)) * 4
                layout[decl.name] = end, share
                end += share * self.group_size
        return layout, end

    def _generated_variables(self) -> dict[str, n.Expr]:
        names = self.names
        x, y, z = (n.NumWorkgroups(axis) for axis in range(3))
        return {
            names.lane: lane_number(self.program.workgroup_size),
            names.group: n.WorkgroupId(0) + (n.WorkgroupId(1) + n.WorkgroupId(2) * y) * x,
            names.groups: x * y * z,
            names.row: n.Var(names.group) * self.group_size + n.Var(names.lane),
            names.rows: n.Var(names.groups) * self.group_size,
        }

    def _generated_buffers(self) -> list[BufferDecl]:
        """Return all generated buffers, with bindings after the program's own."""
        names = self.names
        written = [names.row_words, names.memory, names.control, *names.cells_out]
        written += [capture.buffer for capture in self.captures]
        first = max((decl.binding for decl in self.program.buffers if decl.role is not Role.SHARED), default=-1) + 1
        buffers = [BufferDecl.read_write(name, at, DType.U32) for at, name in enumerate(written, first)]
        first += len(buffers)
        buffers += [BufferDecl.read(name, at, DType.U32) for at, name in enumerate(names.cells_in, first)]
        return [*buffers, BufferDecl.workgroup(names.leave_count, DType.U32, 1)]

    def reload(self, cut: Cut, name: str) -> n.Expr:
        """Return the value that a variable had at a cut."""
        one = self.spills.carried(cut, name)
        buffer = self.names.row_words if one.in_row else self.names.cells_in[cut.order - 1]
        words = [n.Load(buffer, self._index(self.spills.after(cut), one, word)) for word in one.words]
        return unpack_words(words, one.dtype)

    def _index(self, spill: Spill, one: SpilledVariable, word: int) -> n.Expr:
        if one.in_row:
            return self._row_index(word)
        if one.level == GRID:
            return lit(word)
        place: n.Expr = n.Var(self.names.group)
        if word:
            place = n.Var(self.names.groups) * word + place
        return place + spill.grid_cells if spill.grid_cells else place

    def _row_index(self, column: int) -> n.Expr:
        row = n.Var(self.names.row)
        return n.Var(self.names.rows) * column + row if column else row

    def _set_column(self, column: int, value: n.Expr) -> n.Stmt:
        return n.Store(self.names.row_words, self._row_index(column), value)

    def exit_code(self, point: ExitPoint) -> n.Body:
        """Return the statements that replace an exit point: save the state, and leave the segment."""
        match point:
            case Cut():
                saving = [*self._save(point, None), *self._save_memory(self.spills.after(point).memory)]
                if self.straight:
                    return tuple(saving)
                return (*saving, n.Store(self.names.control, lit(0), lit(point.order)), n.Return())
            case Trap():
                code = FIRST_PARKED + self.parkings.index(_parking(point))
                parked = [self._set_column(_ADDRESS, point.address), self._set_column(_STATUS, lit(code))]
                parked.append(n.Store(self.names.control, lit(1), lit(1)))
                if point.resume is not None:
                    parked += self._save(point.resume, point)
                return (*parked, *self._save_memory_last(), n.Return())
        return (self._set_column(_STATUS, lit(RETURNED)), *self._save_memory_last(), n.Return())

    def _save(self, cut: Cut, trap: Trap | None) -> Iterable[n.Stmt]:
        """Store what crosses a cut; variables that are declared after ``trap`` are zero in trapped invocations."""
        spill = self.spills.after(cut)
        for one in spill.carried:
            is_declared = trap is None or self.spills.declared_at[one.name] < trap.number
            value = n.Var(one.name) if is_declared else n.Lit(0, one.dtype)
            buffer = self.names.row_words if one.in_row else self.names.cells_out[cut.order - 1]
            for word, part in zip(one.words, pack_words(value, one.dtype), strict=True):
                yield n.Store(buffer, self._index(spill, one, word), part)

    def _save_memory(self, memory: Sequence[str]) -> Iterable[n.Stmt]:
        if self.may_exit_early:
            return self._save_memory_last()
        return [n.Barrier(), *(self._copy_share(name, saving=True) for name in memory)] if memory else []

    def _save_memory_last(self) -> Iterable[n.Stmt]:
        """Save all workgroup memory in the last invocation to leave, where some may leave before others."""
        if not self.memory_rows:
            return []
        already_left = n.Atomic(AtomicOp.ADD, self.names.leave_count, lit(0), lit(1))
        copies = [
            n.CopyBytes(name, self.names.memory, lit(0), self._memory_row(start), lit(share * self.group_size))
            for name, (start, share) in self.memory_rows.items()
        ]
        return [n.If(already_left.eq(self.group_size - 1), tuple(copies))]

    def _memory_row(self, start: int) -> n.Expr:
        return n.Var(self.names.group) * self.memory_row_bytes + start

    def _copy_share(self, name: str, *, saving: bool) -> n.Stmt:
        start, share = self.memory_rows[name]
        inside = n.Var(self.names.lane) * share
        outside = self._memory_row(start) + inside
        if saving:
            return n.CopyBytes(name, self.names.memory, inside, outside, lit(share))
        return n.CopyBytes(self.names.memory, name, outside, inside, lit(share))

    def prologue(self, cut: Cut | None) -> list[n.Stmt]:
        """Return the first statements of a segment.

        All invocations restore workgroup memory together; then those that have returned or trapped leave again.
        """
        if cut is None:
            return [self._set_column(_STATUS, lit(0))] if self.may_exit_early else []
        memory = tuple(self.memory_rows) if self.may_exit_early else self.spills.after(cut).memory
        begun: list[n.Stmt] = [self._copy_share(name, saving=False) for name in memory]
        if begun:
            begun.append(n.Barrier())
        if self.may_exit_early:
            status = n.Load(self.names.row_words, self._row_index(_STATUS))
            for code, parking in enumerate(self.parkings, FIRST_PARKED):
                if parking.resume == cut.order:
                    begun.append(n.If(status.eq(code), (self._set_column(_STATUS, lit(0)),)))
            begun.append(n.If(status.ne(0), (*self._save_memory_last(), n.Return())))
        return begun


def segment_buffer(decl: BufferDecl) -> BufferDecl:
    """Return a program's buffer as its segments declare it: readable by the next segment, and not trimmed."""
    changed = msgspec.structs.replace(decl, is_output=False, pipeline_live_out=False, output_byte_range=None)
    return changed.with_access(Access.READ_WRITE) if decl.role is Role.OUTPUT else changed


def _parking(trap: Trap) -> Parking:
    return Parking(trap.tag, None if trap.resume is None else trap.resume.order)
