"""State of a workgroup between segments: slots in workgroup memory.

A slot has one element per invocation, which only that invocation accesses. In a uniform slot all invocations store the
same value, so an emitter that runs them in lockstep needs one element for all of them. A slot marks the invocations
that returned; later segments skip them.
"""

from __future__ import annotations

import math

import msgspec

from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import lit
from vyre.lower.cut_tree import Cut, ExitPoint
from vyre.lower.fresh_names import FreshNames
from vyre.lower.spilling import AnalyzedProgram, Spills, disjoint_places
from vyre.semantics.types import DType


class Slot(msgspec.Struct, frozen=True):
    """A generated buffer of workgroup memory with one element per invocation."""

    buffer: str
    dtype: DType
    is_uniform: bool


class WorkgroupState:
    """The slots of a cut program, and the statements that store and load them.

    Implements ``CutState`` of ``vyre.lower.cut``. ``control`` names the control word, in which a segment leaves the
    number of the cut that it reached; a ``straight`` program needs none.
    """

    def __init__(self, given: AnalyzedProgram) -> None:
        program, names = given.program, given.names
        self.spills = Spills(given, 0)
        self.straight = given.tree.is_straight()
        self.control = names.make("control")
        self._lane = n.Var(names.make("lane"))
        self._returned = Slot(names.make("gone"), DType.BOOL, False) if given.tree.returns else None
        self._slot_of: dict[tuple[str, bool], Slot] = {}
        self.slots = self._place(names)
        size = math.prod(program.workgroup_size)
        self.variables: dict[str, n.Expr] = {self._lane.name: lane_number(program.workgroup_size)}
        self.buffers = [BufferDecl.workgroup(slot.buffer, slot.dtype, size) for slot in self.slots]
        self.buffers.append(BufferDecl.workgroup(self.control, DType.U32, 1))

    def _place(self, names: FreshNames) -> tuple[Slot, ...]:
        """Assign slots; values of one type share a slot if they never cross the same cut."""
        kinds: dict[tuple[DType, bool], dict[str, list[int]]] = {}
        for index, spill in enumerate(self.spills.at):
            for one in spill.carried:
                kinds.setdefault((one.dtype, not one.in_row), {}).setdefault(one.name, []).append(index)
        slots = [] if self._returned is None else [self._returned]
        for (dtype, uniform), at_cuts in kinds.items():
            made: list[Slot] = []
            for name, (place,) in disjoint_places(at_cuts, lambda _: 1).items():
                if place == len(made):
                    made.append(Slot(names.make(f"{'uniform' if uniform else 'spilled'}_{dtype}"), dtype, uniform))
                self._slot_of[name, uniform] = made[place]
            slots += made
        return tuple(slots)

    def reload(self, cut: Cut, name: str) -> n.Expr:
        """Return the value that a variable had at a cut."""
        one = self.spills.carried(cut, name)
        return n.Load(self._slot_of[name, not one.in_row].buffer, self._lane)

    def exit_code(self, point: ExitPoint) -> n.Body:
        """Return the statements that replace an exit point: save the state, and leave the segment."""
        if not isinstance(point, Cut):
            assert self._returned is not None
            return n.Store(self._returned.buffer, self._lane, lit(True)), n.Return()
        saving = tuple(
            n.Store(self._slot_of[one.name, not one.in_row].buffer, self._lane, n.Var(one.name))
            for one in self.spills.after(point).carried
        )
        return saving if self.straight else (*saving, n.Store(self.control, lit(0), lit(point.order)), n.Return())

    def prologue(self, cut: Cut | None) -> list[n.Stmt]:
        """Return the first statements of a segment: invocations that have returned return again."""
        if self._returned is None:
            return []
        if cut is None:
            return [n.Store(self._returned.buffer, self._lane, lit(False))]
        return [n.If(n.Load(self._returned.buffer, self._lane), (n.Return(),))]


def lane_number(workgroup_size: tuple[int, int, int]) -> n.Expr:
    """Return the number of an invocation in its workgroup, counted along x first."""
    width, height, depth = workgroup_size
    lane: n.Expr = n.LocalId(0)
    if height > 1 or depth > 1:
        lane = lane + (n.LocalId(1) + n.LocalId(2) * height) * width
    return lane
