"""Where does a workgroup keep its state from one segment to the next? In slots: workgroup memory, by invocation.

A slot has an element of its type for each invocation, which nobody else touches. Whoever runs invocations in lockstep
may keep one element for all of them where the slot is ``agreed``: what they store there is always the same.
An invocation that returned says so in a slot of its own, and later segments pass it over.
"""

from __future__ import annotations

import math

import msgspec

from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import lit
from vyre.ir.program import Program
from vyre.lower.crossing import Crossings, Facts, places_apart
from vyre.lower.hidden import Hidden
from vyre.lower.names import FreshNames
from vyre.lower.tree import Cut, CutTree, Mark
from vyre.semantics.types import DType


class Slot(msgspec.Struct, frozen=True):
    """A hidden buffer of workgroup memory with one element for each invocation."""

    buffer: str
    dtype: DType
    agreed: bool


class Frame:
    """The slots of a cut program, and the statements that fill them and read them.

    It is the ``Carrying`` of ``vyre.lower.cut``. ``control`` names the word that gets the number of the cut that a
    segment came to; in a ``straight`` program nobody has to say that.
    """

    def __init__(self, program: Program, tree: CutTree, facts: Facts, names: FreshNames, straight: bool) -> None:
        self.crossings = Crossings(program, tree, facts, 0)
        self.straight = straight
        self.control = names.make("control")
        self._lane = n.Var(names.make("lane"))
        self._gone = Slot(names.make("gone"), DType.BOOL, False) if tree.returns else None
        self._slot_of: dict[tuple[str, bool], Slot] = {}
        self.slots = self._place(names)
        size = math.prod(program.workgroup_size)
        buffers = [BufferDecl.workgroup(slot.buffer, slot.dtype, size) for slot in self.slots]
        buffers.append(BufferDecl.workgroup(self.control, DType.U32, 1))
        self.hidden = Hidden({self._lane.name: lane_number(program.workgroup_size)}, buffers)

    def _place(self, names: FreshNames) -> tuple[Slot, ...]:
        """Values of one type may share a slot if they never cross the same cut."""
        kinds: dict[tuple[DType, bool], dict[str, list[int]]] = {}
        for index, crossing in enumerate(self.crossings.at):
            for one in crossing.carried:
                kinds.setdefault((one.dtype, not one.in_row), {}).setdefault(one.name, []).append(index)
        slots = [] if self._gone is None else [self._gone]
        for (dtype, agreed), at_cuts in kinds.items():
            made: list[Slot] = []
            for name, (place,) in places_apart(at_cuts, lambda _: 1).items():
                if place == len(made):
                    made.append(Slot(names.make(f"{'agreed' if agreed else 'kept'}_{dtype}"), dtype, agreed))
                self._slot_of[name, agreed] = made[place]
            slots += made
        return tuple(slots)

    def saved(self, cut: Cut, name: str) -> n.Expr:
        """The value that a variable had at a cut."""
        one = next(one for one in self.crossings.at[cut.order - 1].carried if one.name == name)
        return n.Load(self._slot_of[name, not one.in_row].buffer, self._lane)

    def leave(self, mark: Mark) -> n.Body:
        """What an invocation does instead of a statement at which it leaves the segment; nothing follows it."""
        if not isinstance(mark, Cut):
            assert self._gone is not None
            return n.Store(self._gone.buffer, self._lane, lit(True)), n.Return()
        saving = tuple(
            n.Store(self._slot_of[one.name, not one.in_row].buffer, self._lane, n.Var(one.name))
            for one in self.crossings.at[mark.order - 1].carried
        )
        return saving if self.straight else (*saving, n.Store(self.control, lit(0), lit(mark.order)), n.Return())

    def begin(self, cut: Cut | None) -> list[n.Stmt]:
        """What a segment starts with: who has left, leaves again."""
        if self._gone is None:
            return []
        if cut is None:
            return [n.Store(self._gone.buffer, self._lane, lit(False))]
        return [n.If(n.Load(self._gone.buffer, self._lane), (n.Return(),))]


def lane_number(workgroup_size: tuple[int, int, int]) -> n.Expr:
    """The number of an invocation in its workgroup, along x first."""
    width, height, depth = workgroup_size
    lane: n.Expr = n.LocalId(0)
    if height > 1 or depth > 1:
        lane = lane + (n.LocalId(1) + n.LocalId(2) * height) * width
    return lane
