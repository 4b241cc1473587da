"""Which accesses conflict? Those to one element that nothing orders, and of which one changes it.

Two accesses of different invocations are ordered when a grid barrier lies between them, or, within a workgroup, a
workgroup barrier. Unordered accesses conflict when one is a plain write and the other a plain read, or a plain
write of other bits; and when one is plain and the other atomic.

Memory per element is bounded, and no element with a conflict is missed. Of each kind of access it is enough to
remember two workgroups, and of each two invocations in its latest epoch: whoever comes later differs from one of
them. Of writes, an access that is forgotten wrote the same bits as those remembered, or it was reported at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.places import Place

if TYPE_CHECKING:
    from vyre.reference.machine import Invocation

MAX_REPORTS: Final = 64


class AccessKind(Enum):
    """How an access touches its element."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"

    __hash__ = object.__hash__


class Access(msgspec.Struct, frozen=True):
    """One side of a race: what, where in the program, and the invocation's linear number."""

    kind: AccessKind
    place: Place
    invocation: int


class Race(msgspec.Struct, frozen=True):
    """Two accesses to one element that nothing orders; ``first`` is the one that ran first."""

    buffer: str
    element: int
    first: Access
    second: Access

    @property
    def pair(self) -> tuple[str, frozenset[tuple[AccessKind, Place]]]:
        """The pair of places that conflict, whichever runs first: what must be fixed."""
        return self.buffer, frozenset((side.kind, side.place) for side in (self.first, self.second))


class _Seen(msgspec.Struct, eq=False):
    """Accesses of one kind by one invocation in one epoch; ``past`` sums up what its workgroup wrote before that."""

    kind: AccessKind
    place: Place
    invocation: int
    group: int
    epoch: int
    value: Any
    past: Any

    @property
    def access(self) -> Access:
        return Access(self.kind, self.place, self.invocation)


# Summaries of written values: of none, and of several that differ (equal to no value).
_NOTHING: Final = object()
_MANY: Final = object()

# By buffer and element: what is remembered, or None once a race was reported.
_Cells = defaultdict[str, dict[int, list[_Seen] | None]]


def _no_cells() -> _Cells:
    return defaultdict(dict)


class AccessLog:
    """Who touched what since the last grid barrier, and the races found so far."""

    def __init__(self, buffers: Mapping[str, BufferDecl]) -> None:
        self.buffers = buffers
        self.shared = {name for name, decl in buffers.items() if decl.role is Role.SHARED}
        self.storage = _no_cells()
        self.workgroups: defaultdict[int, _Cells] = defaultdict(_no_cells)
        self.races: dict[object, Race] = {}

    def pass_grid_barrier(self) -> None:
        """Forgets everything before: it is ordered with everything after."""
        self.storage.clear()
        self.workgroups.clear()

    def forget_workgroup(self, group: int) -> None:
        """Forgets the workgroup memory of a workgroup that has ended."""
        self.workgroups.pop(group, None)

    def record_bytes(
        self, invocation: Invocation, buffer: str, start: int, data: bytes, place: Place, *, writes: bool
    ) -> None:
        """Records a copy of bytes as accesses to the elements it covers, in whole or in part."""
        size = self.buffers[buffer].dtype.bytes
        kind = AccessKind.WRITE if writes else AccessKind.READ
        for element in range(start // size, -(-(start + len(data)) // size) if data else 0):
            begin = element * size - start
            part = data[max(begin, 0) : begin + size]
            # A part of an element agrees only with the same part.
            value = int.from_bytes(part, "little") if len(part) == size else (max(-begin, 0), part)
            self.record(invocation, buffer, element, kind, place, value if writes else None)

    def record(
        self, invocation: Invocation, buffer: str, element: int, kind: AccessKind, place: Place, value: Any
    ) -> None:
        """Records an access, and reports it if it conflicts; ``value`` is the bits that a plain write writes."""
        group = invocation.group
        cells = (self.workgroups[group.linear] if buffer in self.shared else self.storage)[buffer]
        cell = cells.setdefault(element, [])
        if cell is None:
            return
        new = _Seen(kind, place, invocation.linear, group.linear, group.epoch, value, _NOTHING)
        for seen in cell:
            if _conflict(seen, new):
                self._report(Race(buffer, element, seen.access, new.access))
                cells[element] = None
                return
        _remember(cell, new)

    def _report(self, race: Race) -> None:
        """Keeps one race for each pair of places."""
        if len(self.races) < MAX_REPORTS:
            self.races.setdefault(race.pair, race)


def _conflict(seen: _Seen, new: _Seen) -> bool:
    if seen.invocation == new.invocation:
        return False
    together = seen.group == new.group
    if together and seen.epoch != new.epoch:
        return False
    if seen.kind is not new.kind:
        return True
    if new.kind is not AccessKind.WRITE:
        return False
    return bool(seen.value != new.value or not (together or seen.past is _NOTHING or seen.past == new.value))


def _remember(cell: list[_Seen], new: _Seen) -> None:
    alike = [seen for seen in cell if seen.kind is new.kind]
    mine = [seen for seen in alike if seen.group == new.group]
    if not mine:
        if len({seen.group for seen in alike}) < 2:
            cell.append(new)
        return
    if mine[0].epoch != new.epoch:
        for seen in mine:
            new.past = _sum_up(_sum_up(new.past, seen.past), seen.value)
            cell.remove(seen)
        cell.append(new)
        return
    for seen in mine:
        if seen.invocation == new.invocation:
            seen.value = _sum_up(seen.value, new.value)
            return
    if len(mine) < 2:
        cell.append(new)


def _sum_up(summary: Any, value: Any) -> Any:
    if summary is _NOTHING:
        return value
    return summary if value is _NOTHING or summary == value else _MANY
