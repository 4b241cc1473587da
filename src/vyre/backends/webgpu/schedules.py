"""Launch schedules on a GPU: command buffers that run without the host.

A straight schedule is one run of dispatches. Of a program that branches by its control word, every segment that may
follow is encoded, with empty launches: after each segment a kernel on the device reads the control word and gives the
next segment its workgroups. The host reads once for each batch of rounds over the segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from vyre.backends.webgpu.launches import PreparedLaunch
from vyre.backends.webgpu.runs import DrivenRun, RepeatedRun, Run, StraightRun
from vyre.backends.webgpu.tools import COPY
from vyre.backends.webgpu.work import Work
from vyre.driver import trace
from vyre.driver.device import Handle, PreparedSchedule, Ran, RunOptions, Use
from vyre.driver.memory_cache import MemoryCache
from vyre.errors import locate
from vyre.lower.schedule import Clear, LaunchSchedule, Part, ScheduledLaunch

if TYPE_CHECKING:
    from vyre.backends.webgpu.device import WebGpuDevice

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


class GpuSchedule(PreparedSchedule):
    """A schedule prepared on a device; its dispatches are made once for each of the latest sets of memory."""

    def __init__(self, device: WebGpuDevice, schedule: LaunchSchedule) -> None:
        self._device = device
        self._schedule = schedule
        # The launch that runs once before all others: clears before it need no kernel, which would take much longer.
        self._first = schedule.first[0].launches[0] if schedule.first else None
        edits = self._first.edits if self._first is not None else ()
        self._clears = [*schedule.clears, *(edit for edit in edits if isinstance(edit, Clear))]
        self._prepare()

    def _prepare(self) -> None:
        """Prepare the launches on the open device, and find the sizes of memory they need beside the caller's."""
        schedule = self._schedule
        self._gpu = self._device.gpu
        self._bound: MemoryCache[tuple[Sequence[Any], Run]] = MemoryCache(_MOST_BOUND)
        self._sizes = list(schedule.own_bytes)
        # By identity, the prepared launches and the numbers of their memory, with that for captures of transfers.
        self._launches: dict[int, tuple[PreparedLaunch, tuple[int, ...]]] = {}
        launches = _launches_of(schedule.parts)
        for one in launches:
            try:
                prepared = PreparedLaunch(self._gpu, one.code, one.launch)
            except Exception as error:
                if len(launches) > 1:
                    locate(error, one.label)
                raise
            start = schedule.bound + len(self._sizes)
            self._launches[id(one)] = prepared, (*one.memory, *range(start, start + len(prepared.captures)))
            self._sizes += prepared.captures
        if schedule.until is not None and schedule.until.kind == "unchanged":
            self._sizes += [size for _, size in schedule.until.watched]

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        schedule = self._schedule
        name = "launch" if is_straight(schedule) else "segments"
        with trace.span(name, "webgpu", **_described(schedule)), self._on(memory) as (buffers, run):
            clears = [(buffers[one.memory], one.byte_len) for one in self._clears]
            regions = [(buffers[number], offset, length) for number, offset, length in reads]
            answer = run.go(regions, use, options, clears=clears)
        if isinstance(run, DrivenRun):
            return Ran(answer.read, 1, None, answer.state[1], answer.batches, answer.timing)
        passes, converged = schedule.times if schedule.repeat else 1, None
        if isinstance(run, RepeatedRun):
            passes, converged = answer.state[1], bool(answer.state[2])
        once, again = _launches_of(schedule.first), _launches_of(schedule.repeat)
        launches = len(once) + passes * len(again)
        copies = sum(one.is_copy for one in once) + passes * sum(one.is_copy for one in again)
        return Ran(answer.read, passes, converged, launches, 0, answer.timing, launches - copies)

    @contextmanager
    def _on(self, memory: Sequence[Handle]) -> Iterator[tuple[list[Any], Run]]:
        """Yield all memory and the dispatches on it; hold the device's lock."""
        device = self._device
        if self._gpu is not device.gpu:
            self._prepare()
        with self._gpu.watched(), device.scratch.borrowed(self._sizes) as spare:
            buffers = [device.buffer_of(handle) for handle in (*memory, *spare)]
            key = tuple(map(id, buffers))
            found = self._bound.get(key)
            if found is None:
                # The key names buffers by identity, so the entry keeps them.
                found = buffers, self._make(buffers)
                self._bound.put(key, found)
            yield buffers, found[1]

    def _make(self, memory: Sequence[Any]) -> Run:
        """Make the dispatches on memory, which is the caller's, then that of ``_sizes``."""
        schedule, gpu = self._schedule, self._gpu
        if not is_straight(schedule):
            part = schedule.first[0]
            assert part.control is not None  # a program that is not straight has a control word
            exits = [segment.exits for segment in part.plan.segments]
            return DrivenRun(gpu, [self._works(one, memory) for one in part.launches], exits, memory[part.control])
        first, repeat = (
            [work for one in _launches_of(parts) for work in self._works(one, memory)]
            for parts in (schedule.first, schedule.repeat)
        )
        test = schedule.until
        if test is None or not schedule.repeat:
            return StraightRun(gpu, first, repeat, schedule.times)
        copies = memory[len(memory) - len(test.watched) :] if test.kind == "unchanged" else [None] * len(test.watched)
        watched = [
            (memory[number], size, copy) for (number, size), copy in zip(test.watched, copies, strict=True) if size
        ]
        return RepeatedRun(gpu, first, repeat, schedule.times, watched)

    def _works(self, one: ScheduledLaunch, memory: Sequence[Any]) -> list[Work]:
        """Return the dispatches of a launch and of the edits before it."""
        gpu = self._gpu
        works: list[Work] = []
        for edit in one.edits:
            if isinstance(edit, Clear):
                if one is not self._first:
                    works += gpu.fill_works(memory[edit.memory], 0, edit.byte_len, 0)
            else:
                words = edit.byte_len // 4
                regions = [(memory[number], 0, max(4, edit.byte_len)) for number in (edit.written, edit.reads)]
                works.append(gpu.tool_work(COPY, [words], regions, words))
        prepared, numbers = self._launches[id(one)]
        return [*works, *prepared.works([memory[number] for number in numbers])]


def _launches_of(parts: Iterable[Part]) -> list[ScheduledLaunch]:
    return [one for part in parts for one in part.launches]


def _described(schedule: LaunchSchedule) -> dict[str, Any]:
    """Return the name and the grid of a schedule's first launch, for a trace."""
    if trace.active is None or not schedule.parts:
        return {}
    plan = schedule.parts[0].plan
    return {"program": plan.source.name, "grid": plan.launch.grid}
