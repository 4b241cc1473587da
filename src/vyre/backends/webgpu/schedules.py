"""Launch schedules on a GPU: command buffers that run without the host.

A straight schedule is one run of dispatches. Of a program that branches by its control word, every segment that may
follow is encoded, with empty launches: after each segment a kernel on the device reads the control word and gives the
next segment its workgroups. The host reads once for each batch of rounds over the segments.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import Gpu, whole_words
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
from vyre.driver.cache import MemoryCache
from vyre.driver.device import Handle, PreparedSchedule, Ran, RunOptions, Use
from vyre.driver.timing import Timing
from vyre.errors import locate
from vyre.lower.schedule import Clear, HandOver, LaunchSchedule, Part, ScheduledLaunch

if TYPE_CHECKING:
    from vyre.backends.webgpu.device import WebGpuDevice

Bound = TypeVar("Bound")

_CONTROL_BYTES: Final = 8
# Sets of memory for which a schedule keeps its dispatches.
_MOST_BOUND: Final = 8


def is_straight(schedule: LaunchSchedule) -> bool:
    """Whether a schedule is a fixed order of launches."""
    return not any(one.decides for part in schedule.parts for one in part.launches) and not schedule.has_traps


def is_driven(schedule: LaunchSchedule) -> bool:
    """Whether the device runs a schedule that branches: one program without traps and copies, run once."""
    if schedule.repeat or len(schedule.first) != 1:
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
    """The launches of a schedule, prepared on a device, and the sizes of the memory they need beside the caller's."""

    def __init__(self, gpu: Gpu, schedule: LaunchSchedule) -> None:
        self.gpu = gpu
        self.sizes = list(schedule.own_bytes)
        self._prepared: dict[int, PreparedLaunch] = {}
        # The places of what transfers of a launch capture, among all memory.
        self._captured: dict[int, range] = {}
        several = sum(len(part.launches) for part in schedule.parts) > 1
        for part in schedule.parts:
            for one in part.launches:
                try:
                    launch = self._prepared[id(one)] = PreparedLaunch(gpu, one.code, one.launch)
                except Exception as error:
                    if several:
                        locate(error, one.label)
                    raise
                start = schedule.bound + len(self.sizes)
                self._captured[id(one)] = range(start, start + len(launch.captures))
                self.sizes += launch.captures

    def groups(self, one: ScheduledLaunch) -> tuple[int, int, int]:
        """Return the workgroups of a launch."""
        return self._prepared[id(one)].groups

    def works(self, one: ScheduledLaunch, memory: Sequence[Any]) -> list[Work]:
        """Return the dispatches of a launch, without its edits."""
        numbers = (*one.memory, *self._captured[id(one)])
        return works_of(self.gpu, self._prepared[id(one)], [memory[number] for number in numbers])


class _GpuSchedule(PreparedSchedule, Generic[Bound]):
    """A schedule prepared on a device; its dispatches are made once for each of the latest sets of memory."""

    def __init__(self, device: WebGpuDevice, schedule: LaunchSchedule) -> None:
        self._device = device
        self._schedule = schedule
        self._prepare()

    def _prepare(self) -> None:
        """Prepare the launches on the open device."""
        self._launches = _Launches(self._device.gpu, self._schedule)
        self._sizes = [*self._launches.sizes, *self._spare_sizes()]
        self._bound: MemoryCache[tuple[Sequence[Any], Bound]] = MemoryCache(_MOST_BOUND)

    def _spare_sizes(self) -> list[int]:
        """The sizes of further memory, behind that of the launches."""
        return []

    @abstractmethod
    def _make(self, memory: list[Any]) -> Bound:
        """Make the dispatches on memory, which is the caller's, then that of ``_sizes``."""

    @contextmanager
    def _on(self, memory: Sequence[Handle]) -> Iterator[tuple[list[Any], Bound]]:
        """Yield all memory and the dispatches on it; hold the device's lock."""
        device = self._device
        if self._launches.gpu is not device.gpu:
            self._prepare()
        with self._launches.gpu.watched(), device.scratch.borrowed(self._sizes) as spare:
            buffers = [device.buffer_of(handle) for handle in (*memory, *spare)]
            key = tuple(map(id, buffers))
            found = self._bound.get(key)
            if found is None:
                # The key names buffers by identity, so the entry keeps them.
                found = buffers, self._make(buffers)
                self._bound.put(key, found)
            yield buffers, found[1]


class StraightSchedule(_GpuSchedule[Run]):
    """A straight schedule."""

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        schedule = self._schedule
        with trace.span("launch", "webgpu", **_described(schedule)), self._on(memory) as (buffers, run):
            clears = [(buffers[one.memory], one.byte_len) for one in schedule.clears]
            regions = [(buffers[number], offset, length) for number, offset, length in reads]
            answer = run.go(regions, use, options, clears=clears)
        passes = answer.passes.passes if schedule.repeat else 1
        once, again = _launches_of(schedule.first), _launches_of(schedule.repeat)
        launches = len(once) + passes * len(again)
        copies = sum(one.is_copy for one in once) + passes * sum(one.is_copy for one in again)
        converged = answer.passes.converged if schedule.until is not None else None
        return Ran(answer.read, passes, converged, launches, 0, answer.timing, launches - copies)

    def _spare_sizes(self) -> list[int]:
        test = self._schedule.until
        return [size for _, size in test.watched if size] if test is not None and test.kind == "unchanged" else []

    def _make(self, memory: list[Any]) -> Run:
        schedule, gpu = self._schedule, self._launches.gpu
        first, repeat = (
            [work for one in _launches_of(parts) for work in self._works(one, memory)]
            for parts in (schedule.first, schedule.repeat)
        )
        watch = None
        if schedule.until is not None:
            is_copied = schedule.until.kind == "unchanged"
            copies = iter(memory[schedule.bound + len(self._launches.sizes) :])
            watched = tuple(
                (memory[number], size, next(copies) if is_copied and size else None)
                for number, size in schedule.until.watched
            )
            watch = Watch(watched, for_zero=not is_copied)
        return Run(gpu, first, repeat, schedule.times if schedule.repeat else 0, watch)

    def _works(self, one: ScheduledLaunch, memory: list[Any]) -> list[Work]:
        works: list[Work] = []
        for edit in one.edits:
            assert isinstance(edit, Clear)  # memory is handed over only in loops, which are not straight
            works += clear_works(self._launches.gpu, memory[edit.memory], edit.byte_len)
        return [*works, *self._launches.works(one, memory)]


class _Segments(msgspec.Struct, frozen=True, eq=False):
    """The dispatches of each segment of a driven program, and the memory that holds their workgroups."""

    works: list[list[Work]]
    launches: Any
    has_faults: bool


class DrivenSchedule(_GpuSchedule[_Segments]):
    """One program whose control word the device reads itself."""

    @property
    def _part(self) -> Part:
        return self._schedule.first[0]

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        start = perf_counter_ns()
        part = self._part
        assert part.control is not None  # a program that is not straight has a control word
        with trace.span("segments", "webgpu", **_described(self._schedule)), self._on(memory) as (buffers, segments):
            gpu = self._launches.gpu
            clock = Clock(gpu, has_faults=segments.has_faults, drives=True, options=options)
            encoder = gpu.device.create_command_encoder()
            clock.clear(encoder)
            for clear in (*self._schedule.clears, *_first_clears(part), Clear(part.control, _CONTROL_BYTES)):
                encoder.clear_buffer(buffers[clear.memory], 0, whole_words(clear.byte_len))
            arguments = np.zeros((len(part.launches), 3), "<u4")
            arguments[0] = self._launches.groups(part.launches[0])
            gpu.queue.write_buffer(segments.launches, 0, arguments)
            at, ran, is_over, asked, rounds = 0, 0, 0, 0, FIRST_BATCH
            while not is_over:
                encode(clock.begin(encoder), self._rounds(segments.works, at, rounds))
                at, ran, is_over = clock.read(encoder, [(gpu.state, 0, 4 * STATE_WORDS)], _words)
                encoder = gpu.device.create_command_encoder()
                asked += 1
                rounds = min(2 * rounds, LARGEST_BATCH)
            regions = [(buffers[number], offset, length) for number, offset, length in reads]
            answer = clock.read(encoder, regions, use) if reads else use([])
        wall = perf_counter_ns() - start
        timing = Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns)
        return Ran(answer, 1, None, ran, asked, timing)

    def _spare_sizes(self) -> list[int]:
        return [INDIRECT_BYTES * len(self._part.launches)]

    def _make(self, memory: list[Any]) -> _Segments:
        launches = memory[-1]
        works = [self._segment(order, memory, launches) for order in range(len(self._part.launches))]
        return _Segments(works, launches, any(work.has_faults for segment in works for work in segment))

    def _segment(self, order: int, memory: list[Any], launches: Any) -> list[Work]:
        """Return the dispatches of a segment: copies of what it reads and writes, itself, the choice of the next."""
        gpu, part = self._launches.gpu, self._part
        one = part.launches[order]
        works = [_copy(gpu, edit, memory) for edit in one.edits if isinstance(edit, HandOver)]
        own = self._launches.works(one, memory)
        works += [replace(work, arguments=(launches, INDIRECT_BYTES * order)) for work in own]
        return [*works, _select(gpu, order, self._launches.groups(one), memory[part.control or 0], launches)]

    def _rounds(self, works: Sequence[Sequence[Work]], at: int, count: int) -> list[Work]:
        """Return the segment to run, then ``count`` rounds of all that may follow it, in the order of the program."""
        later = self._reachable(at)
        order = [*(one for one in later if one > at), *(one for one in later if one <= at)]
        round_works = [work for one in order for work in works[one]]
        count = max(1, min(count, MOST_LAUNCHES // max(1, len(round_works))))
        return [*works[at], *round_works * count]

    def _reachable(self, at: int) -> list[int]:
        """Return the segments that may follow one; 0, which is the end, is none of them."""
        segments = self._part.plan.segments
        found: set[int] = set()
        waiting: list[Iterable[int]] = [segments[at].exits]
        while waiting:
            for one in waiting.pop():
                if one and one not in found:
                    found.add(one)
                    waiting.append(segments[one].exits)
        return sorted(found)


def _launches_of(parts: Iterable[Part]) -> list[ScheduledLaunch]:
    return [one for part in parts for one in part.launches]


def _first_clears(part: Part) -> list[Clear]:
    """Return the clears before a part; only its first launch, which runs once, has any."""
    return [edit for edit in part.launches[0].edits if isinstance(edit, Clear)]


def _words(views: Sequence[Any]) -> list[int]:
    read: list[int] = np.frombuffer(views[0], "<u4").tolist()
    return read


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
    """Return the name and the grid of a schedule's first launch, for a trace."""
    if trace.active is None or not schedule.parts:
        return {}
    plan = schedule.parts[0].plan
    return {"program": plan.source.name, "grid": plan.launch.grid}
