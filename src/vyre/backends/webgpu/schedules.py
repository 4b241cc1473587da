"""Launch schedules on a GPU: command buffers that run without the host.

A straight schedule is one run of dispatches. In a program that branches by its control word, every segment that may be
next is encoded, and all launches but one are empty: after each segment a kernel on the device reads the control word
and makes the launch of the next one whole. The host asks once for each batch of rounds over the segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import Gpu
from vyre.backends.webgpu.launches import INDIRECT_BYTES, PreparedLaunch
from vyre.backends.webgpu.runs import (
    FIRST_BATCH,
    LARGEST_BATCH,
    MOST_LAUNCHES,
    Clock,
    Run,
    Watch,
    Work,
    clear_works,
    encode,
    works_of,
)
from vyre.backends.webgpu.tools import COPY, SELECT, STATE_WORDS, tool_groups
from vyre.driver import trace
from vyre.driver.device import Handle, PreparedSchedule, Ran, RunOptions, Use
from vyre.driver.timing import Timing
from vyre.errors import Timeout, locate
from vyre.lower.schedule import Clear, HandOver, LaunchSchedule, Part, ScheduledLaunch

if TYPE_CHECKING:
    from vyre.backends.webgpu.device import WebGpuDevice

# A larger state is borrowed for each run, and not kept with the schedule.
_MOST_KEPT_BYTES: Final = 1 << 24


def is_straight(schedule: LaunchSchedule) -> bool:
    """Whether a schedule is a fixed order of launches."""
    return not any(one.decides for part in schedule.parts for one in part.launches) and not schedule.has_traps


def is_driven(schedule: LaunchSchedule) -> bool:
    """Whether the device finds its own way through a schedule: one program without traps and copies, run once."""
    if schedule.repeat or len(schedule.first) != 1 or schedule.clears:
        return False
    part = schedule.first[0]
    plan = part.plan
    return (
        not plan.straight
        and not part.has_traps
        and plan.launch.invocations > 0
        and not any(one.is_copy for one in part.launches)
    )


class _Launches:
    """The launches of a schedule, prepared on a device."""

    def __init__(self, gpu: Gpu, schedule: LaunchSchedule) -> None:
        self.gpu = gpu
        self._prepared: dict[int, PreparedLaunch] = {}
        several = sum(len(part.launches) for part in schedule.parts) > 1
        for part in schedule.parts:
            for one in part.launches:
                try:
                    self._prepared[id(one)] = PreparedLaunch(gpu, one.code, one.launch)
                except Exception as error:
                    if several:
                        locate(error, one.label)
                    raise

    def of(self, one: ScheduledLaunch) -> PreparedLaunch:
        return self._prepared[id(one)]

    def works(self, one: ScheduledLaunch, memory: Sequence[Any], take: Callable[[int], Any]) -> list[Work]:
        """The dispatches of a launch, without what comes before it."""
        launch = self.of(one)
        return works_of(self.gpu, launch, [*(memory[number] for number in one.memory), *map(take, launch.captures)])


class StraightSchedule(PreparedSchedule):
    """A straight schedule; what a run needs is made again only for other memory."""

    def __init__(self, device: WebGpuDevice, schedule: LaunchSchedule) -> None:
        self._device = device
        self._schedule = schedule
        self._launches = _Launches(device.gpu, schedule)
        self._keeps = sum(schedule.own_bytes) <= _MOST_KEPT_BYTES
        self._kept: tuple[tuple[int, ...], Sequence[Any], list[Any], Run] | None = None
        self._lock = Lock()

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        schedule, gpu = self._schedule, self._launches.gpu
        buffers = [self._device.buffer_of(handle) for handle in memory]
        clears = [(buffers[one.memory], one.byte_len) for one in schedule.clears]
        regions = [(buffers[number], offset, length) for number, offset, length in reads]
        with trace.span("launch", "webgpu", **_described(schedule)), gpu.watched(), gpu.borrowing() as take:
            run = self._run_on(buffers, take)
            answer = run.go(regions, use, clears=clears, timeout_s=options.time_left())
        passes = answer.passes.passes if schedule.repeat else 1
        launches = sum(len(part.launches) for part in schedule.first)
        launches += passes * sum(len(part.launches) for part in schedule.repeat)
        segments = launches - sum(one.is_copy for part in schedule.first for one in part.launches)
        segments -= passes * sum(one.is_copy for part in schedule.repeat for one in part.launches)
        converged = answer.passes.converged if schedule.until is not None else None
        return Ran(answer.read, passes, converged, launches, 0, answer.timing, segments)

    def _run_on(self, buffers: list[Any], borrow: Callable[[int], Any]) -> Run:
        """The run on these buffers: the last one again, if they are the same."""
        key = tuple(map(id, buffers))
        with self._lock:
            kept = self._kept
            if kept is not None and kept[0] == key:
                return kept[3]
        own: list[Any] = []

        def take(byte_len: int) -> Any:
            if not self._keeps:
                return borrow(byte_len)
            own.append(self._launches.gpu.new_memory(byte_len))
            return own[-1]

        run = self._made_run([*buffers, *map(take, self._schedule.own_bytes)], take)
        if self._keeps:
            with self._lock:
                # The key names buffers by identity, so they are kept beside it.
                self._kept = key, buffers, own, run
        return run

    def _made_run(self, memory: list[Any], take: Callable[[int], Any]) -> Run:
        schedule, gpu = self._schedule, self._launches.gpu
        first, repeat = (
            [work for part in parts for one in part.launches for work in self._works(one, memory, take)]
            for parts in (schedule.first, schedule.repeat)
        )
        watch = None
        if schedule.until is not None:
            watched = tuple((memory[number], size) for number, size in schedule.until.watched)
            watch = Watch(watched, for_zero=schedule.until.kind == "zero")
        return Run(gpu, first, repeat, schedule.times if schedule.repeat else 0, watch)

    def _works(self, one: ScheduledLaunch, memory: list[Any], take: Callable[[int], Any]) -> list[Work]:
        works: list[Work] = []
        for edit in one.edits:
            assert isinstance(edit, Clear)  # memory is handed over only in loops, which are not straight
            works += clear_works(self._launches.gpu, memory[edit.memory], edit.byte_len)
        return [*works, *self._launches.works(one, memory, take)]


class DrivenSchedule(PreparedSchedule):
    """One program whose control word the device reads itself."""

    def __init__(self, device: WebGpuDevice, schedule: LaunchSchedule) -> None:
        self._device = device
        self._schedule = schedule
        self._part: Part = schedule.first[0]
        self._launches = _Launches(device.gpu, schedule)

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        start = perf_counter_ns()
        gpu, part = self._launches.gpu, self._part
        assert part.control is not None  # a program that is not straight has a control word
        buffers = [self._device.buffer_of(handle) for handle in memory]
        with trace.span("segments", "webgpu", **_described(self._schedule)), gpu.watched(), gpu.borrowing() as take:
            buffers += map(take, self._schedule.own_bytes)
            launches = take(INDIRECT_BYTES * len(part.launches))
            works = [self._segment(order, buffers, launches, take) for order in range(len(part.launches))]
            clock = Clock(gpu, chain.from_iterable(works), drives=True)
            encoder = gpu.device.create_command_encoder()
            clock.clear(encoder)
            encoder.clear_buffer(buffers[part.control], 0, 8)
            arguments = np.zeros((len(part.launches), 3), "<u4")
            arguments[0] = self._launches.of(part.launches[0]).groups
            gpu.queue.write_buffer(launches, 0, arguments)
            at, ran, is_over, asked, rounds = 0, 0, 0, 0, FIRST_BATCH
            while not is_over:
                encode(clock.begin(encoder), self._rounds(works, at, rounds))
                at, ran, is_over = _read_state(clock, encoder, options)
                encoder = gpu.device.create_command_encoder()
                asked += 1
                rounds = min(2 * rounds, LARGEST_BATCH)
            regions = [(buffers[number], offset, length) for number, offset, length in reads]
            answer = clock.read(encoder, regions, use, options.time_left()) if reads else use([])
        wall = perf_counter_ns() - start
        timing = Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns)
        return Ran(answer, 1, None, ran, asked, timing)

    def _segment(self, order: int, buffers: list[Any], launches: Any, take: Callable[[int], Any]) -> list[Work]:
        """The dispatches of a segment: of what it reads and writes a copy to read, then itself, then who is next."""
        gpu, part = self._launches.gpu, self._part
        one = part.launches[order]
        works = [_copy(gpu, edit, buffers) for edit in one.edits if isinstance(edit, HandOver)]
        own = self._launches.works(one, buffers, take)
        works += [replace(work, arguments=(launches, INDIRECT_BYTES * order)) for work in own]
        return [*works, _select(gpu, order, self._launches.of(one).groups, buffers[part.control or 0], launches)]

    def _rounds(self, works: Sequence[Sequence[Work]], at: int, count: int) -> list[Work]:
        """The segment to run, and so many rounds of all that may come after it, in the order of the program."""
        later = self._reachable(at)
        order = [*(one for one in later if one > at), *(one for one in later if one <= at)]
        round_works = [work for one in order for work in works[one]]
        count = max(1, min(count, MOST_LAUNCHES // max(1, len(round_works))))
        return [*works[at], *round_works * count]

    def _reachable(self, at: int) -> list[int]:
        """The segments that may come after one; 0, which is the end, is none of them."""
        segments = self._part.plan.segments
        found: set[int] = set()
        waiting: list[Iterable[int]] = [segments[at].exits]
        while waiting:
            for one in waiting.pop():
                if one and one not in found:
                    found.add(one)
                    waiting.append(segments[one].exits)
        return sorted(found)


def _read_state(clock: Clock, encoder: Any, options: RunOptions) -> list[int]:
    """How far the run is after what was encoded."""
    left = options.time_left()

    def words(views: list[memoryview]) -> list[int]:
        read: list[int] = np.frombuffer(views[0], "<u4").tolist()
        return read

    try:
        state: list[int] = clock.read(encoder, [(clock.gpu.state, 0, 4 * STATE_WORDS)], words, left)
    except Timeout:
        raise options.timeout() from None
    return state


def _copy(gpu: Gpu, edit: HandOver, buffers: Sequence[Any]) -> Work:
    tool = gpu.tool(COPY)
    words = edit.byte_len // 4
    regions = [(buffers[number], 0, max(4, edit.byte_len)) for number in (edit.written, edit.reads)]
    return Work(tool.pipeline, gpu.bind_group(tool, gpu.block([words]), regions), (tool_groups(words), 1, 1))


def _select(gpu: Gpu, order: int, groups: tuple[int, int, int], control: Any, launches: Any) -> Work:
    tool, block = gpu.tool(SELECT), gpu.block([order, *groups])
    regions = [(one, 0, one.size) for one in (gpu.state, control, launches)]
    return Work(tool.pipeline, gpu.bind_group(tool, block, regions))


def _described(schedule: LaunchSchedule) -> dict[str, Any]:
    """The name and the grid of a schedule's first launch, for a trace."""
    if trace.active is None or not schedule.parts:
        return {}
    plan = schedule.parts[0].plan
    return {"program": plan.source.name, "grid": plan.launch.grid}
