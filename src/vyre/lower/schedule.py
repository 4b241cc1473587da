"""Launch schedules: the launches, clears and jumps that run one or several cut programs, as data.

Memory is numbered. The first numbers are the buffers that the caller binds; the numbers after them are the schedule's
own memory, which segments hand on. Everything a schedule decides is decided here, once: which memory each launch is
bound to, what is cleared before it, where a segment reads what it also writes, and what follows. The driver's loop,
the native walker of the processor and the command buffers of a GPU interpret the same schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan


class Clear(msgspec.Struct, frozen=True):
    """Set the first bytes of a memory to zero."""

    memory: int
    byte_len: int


class HandOver(msgspec.Struct, frozen=True):
    """Let the next launch read, as ``reads``, what was last written to ``written``.

    It also writes ``written``, so the two are different memory: an interpreter copies, or exchanges the two.
    """

    reads: int
    written: int
    byte_len: int


Edit = Clear | HandOver


class ScheduledLaunch(msgspec.Struct, frozen=True, eq=False):
    """One launch: ``code``, which the device compiled of ``program``, on numbered memory in binding order.

    ``launch`` has the grid and the element count of each buffer of the program. After a launch that ``decides``, the
    control word of its part says where the part goes on. One that ``is_copy`` is what a collective copies before the
    segment behind it.
    """

    program: Program
    code: Any
    launch: Launch
    memory: tuple[int, ...]
    edits: tuple[Edit, ...]
    decides: bool
    is_copy: bool
    label: str


class Part(msgspec.Struct, frozen=True, eq=False):
    """The launches of one program. ``own`` is the memory of the program's buffers, in binding order.

    Launches follow one another. After one that decides, the first word of the memory ``control`` picks the next from
    ``exits``: exit 0 is the end of the part, exit k the first launch of segment k. The second word says whether
    invocations wait for a trap handler; their rows are in the memory ``rows``.
    """

    plan: GridSyncPlan
    launches: tuple[ScheduledLaunch, ...]
    exits: tuple[int, ...]
    own: tuple[int, ...]
    control: int | None
    rows: int | None

    @property
    def has_traps(self) -> bool:
        """Whether the host may have to answer traps between launches."""
        return bool(self.plan.parkings)


class ConvergenceTest(msgspec.Struct, frozen=True):
    """The test that ends a repetition: after a pass, the bytes of ``watched`` are unchanged by it, or all zero.

    ``watched`` are memory numbers and the bytes that count.
    """

    kind: Literal["unchanged", "zero"]
    watched: tuple[tuple[int, int], ...]


class LaunchSchedule(msgspec.Struct, frozen=True, eq=False):
    """``first`` runs once, then ``repeat`` up to ``times`` times, or until a pass satisfies the test ``until``.

    Memory below ``bound`` is the caller's; ``own_bytes`` are the sizes of the schedule's own, which starts undefined.
    ``clears`` come before everything.
    """

    first: tuple[Part, ...]
    repeat: tuple[Part, ...]
    times: int
    until: ConvergenceTest | None
    bound: int
    own_bytes: tuple[int, ...]
    clears: tuple[Clear, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self.first, *self.repeat)

    @property
    def has_traps(self) -> bool:
        return any(part.has_traps for part in self.parts)


class ScheduleBuilder:
    """Collects the parts of a schedule and numbers its memory; ``bound`` memories are the caller's."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.own_bytes: list[int] = []

    def part(
        self,
        plan: GridSyncPlan,
        own: Sequence[int],
        code_of: Callable[[Program], Any],
        *,
        clears: Iterable[Clear] = (),
        label: str,
    ) -> Part:
        """Return a part; its buffers, in binding order, are the memory ``own``, and ``clears`` come first."""
        counts = dict(plan.launch.counts)
        memory = dict(zip((decl.name for decl in host_buffers(plan.source)), own, strict=True))
        hand_over: dict[int, list[Edit]] = {}
        for state in plan.state:
            memory[state.name] = self._own(state.bytes)
            counts[state.name] = state.words
            if state.read_name is not None:
                counts[state.read_name] = state.words
                memory[state.read_name] = memory[state.name]
                if state.copies > 1:
                    memory[state.read_name] = self._own(state.bytes)
                    edit = HandOver(memory[state.read_name], memory[state.name], state.bytes)
                    hand_over.setdefault(state.segment, []).append(edit)
        launches: list[ScheduledLaunch] = []
        starts: list[int] = []
        several = len(plan.segments) > 1
        for order, segment in enumerate(plan.segments):
            starts.append(len(launches))
            edits: tuple[Edit, ...] = (*(clears if order == 0 else ()), *hand_over.get(order, ()))
            where = f"segment {order} of {label} ({segment.label})" if several else label
            if segment.copy is not None:
                copy = _launch(segment.copy, plan.launch, memory, counts)
                launches.append(ScheduledLaunch(segment.copy, code_of(segment.copy), *copy, edits, False, True, where))
                edits = ()
            program, decides = segment.narrowed, not plan.straight
            bound = _launch(program, plan.launch, memory, counts)
            launches.append(ScheduledLaunch(program, code_of(program), *bound, edits, decides, False, where))
        return Part(
            plan=plan,
            launches=tuple(launches),
            exits=(len(launches), *starts[1:]),
            own=tuple(own),
            control=memory.get(plan.control),
            rows=memory.get(plan.rows),
        )

    def _own(self, byte_len: int) -> int:
        self.own_bytes.append(byte_len)
        return self.bound + len(self.own_bytes) - 1

    def schedule(
        self,
        first: Sequence[Part],
        repeat: Sequence[Part] = (),
        times: int = 0,
        until: ConvergenceTest | None = None,
        clears: Iterable[Clear] = (),
    ) -> LaunchSchedule:
        """Return the schedule of parts that this builder made."""
        own_bytes = tuple(self.own_bytes)
        return LaunchSchedule(tuple(first), tuple(repeat), times, until, self.bound, own_bytes, tuple(clears))


def host_buffers(program: Program) -> list[BufferDecl]:
    """Return the buffers of a program that a launch binds to memory, in binding order."""
    return sorted((decl for decl in program.buffers if decl.role is not Role.SHARED), key=lambda decl: decl.binding)


def _launch(
    program: Program, whole: Launch, memory: Mapping[str, int], counts: Mapping[str, int]
) -> tuple[Launch, tuple[int, ...]]:
    """Return the launch of one program of a part, and the memory of its buffers in binding order."""
    own_counts = {decl.name: counts.get(decl.name, decl.count) for decl in program.buffers}
    launch = Launch(whole.grid, whole.elements, own_counts, program.workgroup_size)
    return launch, tuple(memory[decl.name] for decl in host_buffers(program))
