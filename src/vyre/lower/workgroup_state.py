"""Where does a workgroup keep its state from one segment to the next? In slots: workgroup memory, by invocation.

A slot has an element of its type for each invocation, which nobody else touches. Whoever runs invocations in lockstep
may keep one element for all of them where the slot is ``uniform``: what they store there is always the same.
An invocation that returned says so in a slot of its own, and later segments pass it over.
"""

from __future__ import annotations

import math

import msgspec

from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import lit
from vyre.ir.program import Program
from vyre.lower.cut_tree import Cut, CutTree, ExitPoint
from vyre.lower.fresh_names import FreshNames
from vyre.lower.generated_names import GeneratedNames
from vyre.lower.spilling import CutFacts, Spills, disjoint_places
from vyre.semantics.types import DType


class Slot(msgspec.Struct, frozen=True):
    """A generated buffer of workgroup memory with one element for each invocation."""

    buffer: str
    dtype: DType
    is_uniform: bool


class WorkgroupState:
    """The slots of a cut program, and the statements that fill them and read them.

    It is the ``CutState`` of ``vyre.lower.cut``. ``control`` names the word that gets the number of the cut that a
    segment came to; in a ``straight`` program nobody has to say that.
    """

    def __init__(self, program: Program, tree: CutTree, facts: CutFacts, names: FreshNames, straight: bool) -> None:
        self.spills = Spills(program, tree, facts, 0)
        self.straight = straight
        self.control = names.make("control")
        self._lane = n.Var(names.make("lane"))
        self._returned = Slot(names.make("gone"), DType.BOOL, False) if tree.returns else None
        self._slot_of: dict[tuple[str, bool], Slot] = {}
        self.slots = self._place(names)
        size = math.prod(program.workgroup_size)
        buffers = [BufferDecl.workgroup(slot.buffer, slot.dtype, size) for slot in self.slots]
        buffers.append(BufferDecl.workgroup(self.control, DType.U32, 1))
        self.generated = GeneratedNames({self._lane.name: lane_number(program.workgroup_size)}, buffers)

    def _place(self, names: FreshNames) -> tuple[Slot, ...]:
        """Values of one type may share a slot if they never cross the same cut."""
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
        """The value that a variable had at a cut."""
        one = next(one for one in self.spills.at[cut.order - 1].carried if one.name == name)
        return n.Load(self._slot_of[name, not one.in_row].buffer, self._lane)

    def exit_code(self, point: ExitPoint) -> n.Body:
        """What an invocation does instead of a statement at which it leaves the segment; nothing follows it."""
        if not isinstance(point, Cut):
            assert self._returned is not None
            return n.Store(self._returned.buffer, self._lane, lit(True)), n.Return()
        saving = tuple(
            n.Store(self._slot_of[one.name, not one.in_row].buffer, self._lane, n.Var(one.name))
            for one in self.spills.at[point.order - 1].carried
        )
        return saving if self.straight else (*saving, n.Store(self.control, lit(0), lit(point.order)), n.Return())

    def prologue(self, cut: Cut | None) -> list[n.Stmt]:
        """What a segment starts with: who has left, leaves again."""
        if self._returned is None:
            return []
        if cut is None:
            return [n.Store(self._returned.buffer, self._lane, lit(False))]
        return [n.If(n.Load(self._returned.buffer, self._lane), (n.Return(),))]


def lane_number(workgroup_size: tuple[int, int, int]) -> n.Expr:
    """The number of an invocation in its workgroup, along x first."""
    width, height, depth = workgroup_size
    lane: n.Expr = n.LocalId(0)
    if height > 1 or depth > 1:
        lane = lane + (n.LocalId(1) + n.LocalId(2) * height) * width
    return lane
