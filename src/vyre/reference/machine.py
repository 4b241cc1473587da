"""How does a grid run? Invocations go on until they have to wait; those who wait for each other go on together.

Who waits, and for whom:

* At a subgroup operation, lanes wait until every lane of their subgroup waits somewhere or has ended. Then the lanes
  at the earliest instance, in the order of the program's execution, are the active ones: they meet and go on. So
  lanes that took different paths meet again where the paths join, and no lane meets another's pass of a loop.
* At a workgroup barrier, invocations wait for all of their workgroup, at a grid point (grid barrier, resume,
  collective) for all of the grid. All must be at the same instance: the same statement, in the same pass of every
  loop around it. Those who have ended count as arrived, and so do those a trap has parked: they wait for their resume
  alone, and whatever lies between is not for them.
* A trap that nothing can handle ends its invocation; when the grid has run to its next grid point (or its end), the
  lowest invocation's request is raised.

Whenever nobody can go on, either all who wait are released or the run ends with an error: nothing waits for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any, Final, NoReturn

import numpy as np

from vyre.errors import BadInputs, DispatchFailed, FuelExhausted, Timeout, TrapRaised
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.buffers import Role
from vyre.ir.launch import Launch
from vyre.ir.places import Place, describe
from vyre.ir.traps import Handler, TrapRequest
from vyre.reference.code import Block, Code, Copy, Point, ResumePoint, Stop, TrapPoint
from vyre.reference.memory import bytes_of, cells_of, zeros
from vyre.reference.operations import ACCESSES, MISSES, SELF, Frame, Transfer
from vyre.reference.races import AccessLog
from vyre.reference.schedule import Queue, Schedule

MAX_INVOCATIONS: Final = 1 << 24
_STEPS_BETWEEN_LOOKS: Final = 100_000


class Invocation:
    """One run of the program: its registers and its next block (or the block at whose end it waits)."""

    __slots__ = ("block", "frame", "group", "instance", "linear", "local", "request", "team", "transfers")

    def __init__(self, group: Group, team: Team, local: int, linear: int, block: Block) -> None:
        self.group = group
        self.team = team
        self.local = local
        self.linear = linear
        self.block = block
        self.frame: Frame | None = None
        self.instance: tuple[int, ...] = ()
        self.transfers: dict[str, Transfer] = {}
        self.request: TrapRequest | None = None


class Team:
    """Invocations that may meet: a subgroup's lanes (the workgroup, in a program without subgroup operations)."""

    __slots__ = ("meeting", "running")

    def __init__(self) -> None:
        self.running = 0
        self.meeting: list[Invocation] = []


class Group:
    """A workgroup: its registers to copy, its epoch, and who of it waits where."""

    __slots__ = ("at_barrier", "at_grid", "axes", "epoch", "linear", "parked", "running_teams", "template")

    def __init__(self, linear: int, axes: tuple[int, int, int], template: Frame) -> None:
        self.linear = linear
        self.axes = axes
        self.template = template
        self.epoch = 0
        self.running_teams = 0
        self.at_barrier: list[Invocation] = []
        self.at_grid: list[Invocation] = []
        self.parked: list[Invocation] = []


class Machine:
    """A grid under way. ``memory`` holds the arrays of all storage buffers, which the run changes in place."""

    def __init__(
        self, code: Code, launch: Launch, memory: dict[str, Array], schedule: Schedule, fuel: int,
        handlers: Mapping[str, Handler], misses: dict[Any, int], accesses: AccessLog | None,
        timeout_s: float | None = None,
    ) -> None:  # fmt: skip
        if launch.invocations > MAX_INVOCATIONS:
            raise BadInputs(
                f"the grid {launch.grid} has {launch.invocations:,} invocations, too many to interpret.",
                f"launch at most {MAX_INVOCATIONS:,}, or use a compiled backend.",
            )
        self.code = code
        self.launch = launch
        self.memory = memory
        self.fuel = fuel
        self.timeout_s = timeout_s
        self.started = monotonic()
        self.limit = 0
        self.steps = 0
        self.handlers = handlers
        self.accesses = accesses
        self.shared = [decl for decl in code.program.buffers if decl.role is Role.SHARED]
        self.team_size = code.program.subgroup_size if code.uses_subgroups else max(1, _volume(launch.workgroup_size))
        self.locals = [_unfold(local, launch.workgroup_size) for local in range(_volume(launch.workgroup_size))]
        self.template = self._filled_template(misses)
        self.queue: Queue[Invocation] = Queue(schedule, _volume(launch.grid))
        self.held: list[Group] = []
        self.unhandled: list[TrapRequest] = []

    def run(self) -> None:
        """Runs the grid to its end."""
        self._run_to_grid_point()
        while self._pass_grid_point():
            self._run_to_grid_point()

    def _filled_template(self, misses: dict[Any, int]) -> Frame:
        code, template = self.code, self.code.template.copy()
        template[MISSES], template[ACCESSES] = misses, self.accesses
        for name, array in self.memory.items():
            self._place_memory(template, name, array)
        for name, register in code.lengths.items():
            template[register] = self.launch.counts[name]
        for what, axis, register in code.ids:
            if what is n.NumWorkgroups:
                template[register] = self.launch.grid[axis]
        return template

    def _place_memory(self, template: Frame, name: str, array: Array) -> None:
        if name in self.code.cells:
            template[self.code.cells[name]] = cells_of(array, self.code.program.buffer(name).dtype)
        if name in self.code.bytes:
            template[self.code.bytes[name]] = bytes_of(array)

    def _start(self, number: int) -> None:
        template = self.template
        axes = _unfold(number, self.launch.grid)
        if self.shared:
            template = template.copy()
            for decl in self.shared:
                self._place_memory(template, decl.name, zeros(decl, decl.count))
        group, entry, size = Group(number, axes, template), self.code.entry, len(self.locals)
        teams = [Team() for _ in range(0, size, self.team_size)]
        self._set_running(
            [Invocation(group, teams[k // self.team_size], k, number * size + k, entry) for k in range(size)]
        )

    def _set_running(self, invocations: list[Invocation]) -> None:
        for invocation in invocations:
            team = invocation.team
            if not team.running:
                invocation.group.running_teams += 1
            team.running += 1
        self.queue.add(invocations)

    def _release(self, invocations: list[Invocation]) -> None:
        for invocation in invocations:
            invocation.block = invocation.block.target
        self._set_running(invocations)

    def _new_frame(self, invocation: Invocation) -> Frame:
        group, size = invocation.group, self.launch.workgroup_size
        frame = invocation.frame = group.template.copy()
        frame[SELF] = invocation
        local = self.locals[invocation.local]
        for what, axis, register in self.code.ids:
            if what is n.InvocationId:
                frame[register] = group.axes[axis] * size[axis] + local[axis]
            elif what is n.LocalId:
                frame[register] = local[axis]
            elif what is n.WorkgroupId:
                frame[register] = group.axes[axis]
            elif what is n.SubgroupLocalId:
                frame[register] = invocation.local % self.code.program.subgroup_size
        return frame

    def _run_to_grid_point(self) -> None:
        queue, groups = self.queue, self.queue.groups
        while True:
            while queue.is_short:
                number = next(groups, None)
                if number is None:
                    break
                self._start(number)
            if not queue:
                return
            self._advance(queue.take())

    def _advance(self, invocation: Invocation) -> None:
        """Runs an invocation until it stops, or until the schedule lets another go on."""
        r = invocation.frame or self._new_frame(invocation)
        block, steps, limit = invocation.block, self.steps, self.limit
        while True:
            for op in block.ops:
                op(r)
            steps += block.cost
            if steps > limit:
                limit = self._next_limit(steps)
            point = block.point
            if point is None:
                other = block.other
                block = block.target if other is None or r[block.register] else other
            elif point.stop is not Stop.SWITCH:
                break
            else:
                block = block.target
                if self.queue.gives_way():
                    self.steps = steps
                    invocation.block = block
                    self.queue.append(invocation)
                    return
        self.steps = steps
        invocation.block = block
        self._arrive(invocation, point)

    def _next_limit(self, steps: int) -> int:
        """The steps after which fuel and time are looked at again."""
        if steps > self.fuel:
            raise FuelExhausted(self.fuel)
        if self.timeout_s is not None and monotonic() - self.started > self.timeout_s:
            raise Timeout(self.timeout_s)
        self.limit = min(self.fuel, steps + _STEPS_BETWEEN_LOOKS)
        return self.limit

    def _arrive(self, invocation: Invocation, point: Point) -> None:
        frame, group, team = invocation.frame, invocation.group, invocation.team
        assert frame is not None
        match point.stop:
            case Stop.END:
                invocation.frame = None
                if invocation.transfers:
                    self._refuse_pending(invocation, point)
            case Stop.TRAP:
                self._park(invocation, point.detail, frame)
            case Stop.SUBGROUP:
                invocation.instance = point.instance(frame)
                team.meeting.append(invocation)
            case Stop.WORKGROUP:
                invocation.instance = point.instance(frame)
                group.at_barrier.append(invocation)
            case Stop.GRID:
                invocation.instance = point.instance(frame)
                group.at_grid.append(invocation)
        team.running -= 1
        if not team.running:
            group.running_teams -= 1
            if team.meeting:
                self._meet(team)
            elif not group.running_teams:
                self._settle(group)

    def _park(self, invocation: Invocation, trap: TrapPoint, frame: Frame) -> None:
        request = TrapRequest(invocation.linear, trap.tag, frame[trap.address])
        if trap.resume is None or trap.tag not in self.handlers:
            self.unhandled.append(request)
            return
        resume: ResumePoint = trap.resume.detail
        skipped = bisect_right(resume.declared, trap.sequence, key=lambda variable: variable[0])
        for _, register, nothing in resume.declared[skipped:]:
            frame[register] = nothing
        invocation.request = request
        invocation.block = resume.block
        invocation.instance = trap.resume.instance(frame)
        invocation.group.parked.append(invocation)

    def _meet(self, team: Team) -> None:
        earliest = min(lane.instance for lane in team.meeting)
        active = sorted((lane for lane in team.meeting if lane.instance == earliest), key=lambda lane: lane.local)
        team.meeting = [lane for lane in team.meeting if lane.instance != earliest]
        point = active[0].block.point
        assert point is not None
        point.detail({lane.local % self.team_size: lane.frame for lane in active})
        self._release(active)

    def _settle(self, group: Group) -> None:
        """Lets a workgroup go on of which nobody can go on alone."""
        waiting = group.at_barrier
        if waiting:
            self._require_same_instance([*waiting, *group.at_grid], f"workgroup {group.linear}")
            group.at_barrier = []
            group.epoch += 1
            self._release(waiting)
        elif group.at_grid or group.parked:
            self.held.append(group)
        elif self.accesses is not None:
            self.accesses.forget_workgroup(group.linear)

    def _pass_grid_point(self) -> bool:
        """Lets the grid go on, all of which has come to a grid point; false when it has ended."""
        if self.unhandled:
            request = min(self.unhandled)
            raise TrapRaised(request.tag, request.address, request.invocation)
        waiting = [invocation for group in self.held for invocation in group.at_grid]
        parked = [invocation for group in self.held for invocation in group.parked]
        if not waiting and not parked:
            return False
        earliest = min(invocation.instance for invocation in (*waiting, *parked))
        resumed = [invocation for invocation in parked if invocation.instance == earliest]
        self._require_same_instance([*resumed, *waiting], "the grid")
        self._act(resumed, (waiting or resumed)[0].block.point)
        for group in self.held:
            group.at_grid = []
            group.parked = [invocation for invocation in group.parked if invocation.instance != earliest]
            group.epoch += 1
        if self.accesses is not None:
            self.accesses.pass_grid_barrier()
        self._release([*waiting, *resumed])
        self.held = [group for group in self.held if not group.running_teams]
        return True

    def _act(self, resumed: list[Invocation], point: Point | None) -> None:
        assert point is not None
        match point.detail:
            case Copy(source=source, destination=destination):
                taken, given = self.memory[source], self.memory[destination]
                count = min(len(taken), len(given))
                bytes_of(given[:count])[:] = bytes_of(taken[:count])
            case ResumePoint(tag=tag) if resumed:
                requests = sorted(invocation.request for invocation in resumed if invocation.request is not None)
                for invocation in resumed:
                    invocation.request = None
                buffers = dict(self.memory)
                self.handlers[tag](requests, buffers)
                self._take_back(tag, buffers)

    def _take_back(self, tag: str, buffers: Mapping[str, Array]) -> None:
        """Copies the arrays that a handler put in the place of those it was given."""
        for name, array in self.memory.items():
            new = buffers.get(name)
            if new is array:
                continue
            if not isinstance(new, np.ndarray) or new.dtype != array.dtype or new.shape != array.shape:
                raise BadInputs(
                    f"the handler of '{tag}' left no {array.dtype} array of {len(array)} elements for '{name}'.",
                    "change the arrays in place.",
                    buffer=name,
                )
            bytes_of(array)[:] = bytes_of(np.ascontiguousarray(new))

    def _require_same_instance(self, waiting: Sequence[Invocation], scope: str) -> None:
        first = waiting[0]
        other = next((invocation for invocation in waiting if invocation.instance != first.instance), None)
        if other is not None:
            raise DispatchFailed(
                f"in {scope}, invocation {first.linear} waits at {self._waiting_place(first)} "
                f"and invocation {other.linear} at {self._waiting_place(other)}: neither can go on.",
                "put barriers where every invocation that they wait for comes by, in the same pass of every loop.",
                code="barrier-mismatch",
            )

    def _waiting_place(self, invocation: Invocation) -> str:
        point, frame = invocation.block.point, invocation.frame
        assert point is not None
        assert frame is not None
        passes = "".join(f", pass {frame[register]}" for _, register in point.loops)
        return f"{describe(self.code.program, Place(point.statement))}{passes}"

    def _refuse_pending(self, invocation: Invocation, point: Point) -> NoReturn:
        where = describe(self.code.program, Place(point.statement)) if point.statement >= 0 else "the program"
        tags = ", ".join(f"'{tag}'" for tag in invocation.transfers)
        raise DispatchFailed(
            f"invocation {invocation.linear} ends at {where} with a pending transfer: {tags}.",
            "wait for every transfer on every path to the end.",
            code="async-pending-at-end",
        )


def _volume(axes: tuple[int, int, int]) -> int:
    return axes[0] * axes[1] * axes[2]


def _unfold(linear: int, axes: tuple[int, int, int]) -> tuple[int, int, int]:
    """The place along each axis of a linear number, x first."""
    rest, x = divmod(linear, axes[0])
    z, y = divmod(rest, axes[1])
    return x, y, z
