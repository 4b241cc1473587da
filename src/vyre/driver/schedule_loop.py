"""The driver's loop: interpret a launch schedule launch by launch, on any device.

Control words and convergence tests are read by the host; data stays on the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

from vyre.driver import trace
from vyre.driver.device import Device, Handle, PreparedSchedule, Ran, RunOptions, Use, require_lengths
from vyre.driver.outputs import byte_view
from vyre.driver.scratch import Scratch
from vyre.driver.timing import Timing, add_timings
from vyre.driver.traps import answer_traps
from vyre.errors import locate
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl
from vyre.lower.schedule import Clear, ConvergenceTest, HandOver, LaunchSchedule, Part, ScheduledLaunch, host_buffers

_CONTROL_BYTES: Final = 8


class HostLoop(PreparedSchedule):
    """A schedule that the host runs launch by launch; parts that the device runs by itself are left to it, if allowed.

    ``scratch`` lends what the schedule needs beside the caller's memory.
    """

    def __init__(self, device: Device, schedule: LaunchSchedule, scratch: Scratch, *, uses_device: bool) -> None:
        self._device = device
        self._schedule = schedule
        self._scratch = scratch
        self._prepared: dict[int, PreparedSchedule] = {}
        if uses_device:
            self._prepare_parts()

    def _prepare_parts(self) -> None:
        bound = self._schedule.bound + len(self._schedule.own_bytes)
        for part in self._schedule.parts:
            alone = LaunchSchedule((part,), (), 0, None, bound, ())
            prepared = self._device.prepare_schedule(alone)
            if prepared is not None:
                self._prepared[id(part)] = prepared

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        with self._scratch.borrowed(self._schedule.own_bytes) as own:
            run = _Run(self._schedule, self._prepared, self._device, [*memory, *own], options)
            passes, converged = run.everything()
            start = perf_counter_ns()
            answer = self._read(run, reads, use)
            run.timings.append(Timing(perf_counter_ns() - start, 0, 0, 0))
        timing = add_timings(run.timings)
        return Ran(answer, passes, converged, run.launches, run.decisions, timing, run.segments)

    def _read(self, run: _Run, reads: Sequence[tuple[int, int, int]], use: Use) -> Any:
        if not reads:
            return use(())
        with trace.span("download", self._device.id, bytes=sum(length for _, _, length in reads)):
            return run.read(reads, use)


class _Run:
    """One run of a schedule."""

    def __init__(
        self,
        schedule: LaunchSchedule,
        prepared: Mapping[int, PreparedSchedule],
        device: Device,
        memory: list[Handle],
        options: RunOptions,
    ) -> None:
        self._schedule = schedule
        self._prepared = prepared
        self._device = device
        self._memory = memory
        self._options = options
        # With a single launch, the error says enough by itself.
        self._is_several = sum(len(part.launches) for part in schedule.parts) > 1
        self.launches = self.segments = self.decisions = 0
        self.timings: list[Timing] = []

    def clear(self, clears: Sequence[Clear]) -> None:
        """Set the first bytes of memories to zero."""
        self._device.write((), [(self._memory[one.memory], 0, one.byte_len, 0) for one in clears])

    def read(self, ranges: Sequence[tuple[int, int, int]], use: Use) -> Any:
        """Return what ``use`` makes of ranges (number, offset, length)."""
        device = self._device
        regions = [(self._memory[number], offset, length) for number, offset, length in ranges]
        return device.read_with(regions, lambda views: use(require_lengths(device, views, regions)))

    def write(self, data: Mapping[int, memoryview]) -> None:
        """Replace the first bytes of memories."""
        self._device.write([(self._memory[number], 0, view) for number, view in data.items()], ())

    def everything(self) -> tuple[int, bool | None]:
        """Run all parts; return the passes of what is repeated, and whether it converged."""
        schedule = self._schedule
        if schedule.clears:
            self.clear(schedule.clears)
        for part in schedule.first:
            self._part(part)
        if not schedule.repeat:
            return 1, None
        test = schedule.until
        before: list[bytes] | None = None
        if test is not None:
            before = self._watched(test) if test.kind == "unchanged" else [bytes(size) for _, size in test.watched]
        passes = 0
        while passes < schedule.times:
            if passes:
                self._options.time_left()
            for part in schedule.repeat:
                self._part(part)
            passes += 1
            if test is not None:
                after = self._watched(test)
                if after == before:
                    return passes, True
                if test.kind == "unchanged":
                    before = after
        return passes, None if test is None else False

    def _watched(self, test: ConvergenceTest) -> list[bytes]:
        """The bytes that a convergence test compares."""
        ranges = [(number, 0, size) for number, size in test.watched]
        kept: list[bytes] = self.read(ranges, lambda views: [bytes(view) for view in views])
        return kept

    def _part(self, part: Part) -> None:
        prepared = self._prepared.get(id(part))
        if prepared is not None:
            ran = prepared.run(self._memory, self._options, (), _nothing)
            self.launches += ran.launches
            self.segments += ran.launches if ran.segments is None else ran.segments
            self.decisions += ran.decisions
            self.timings.append(ran.timing)
            return
        at = 0
        waiting = False
        while at < len(part.launches):
            if self.launches:
                self._options.time_left()
            one = part.launches[at]
            try:
                self._launch(part, one)
                at += 1
                if one.decides:
                    at, waiting = self._decide(part, waiting)
            except Exception as error:
                if self._is_several:
                    locate(error, one.label)
                raise

    def _launch(self, part: Part, one: ScheduledLaunch) -> None:
        clears = [edit for edit in one.edits if isinstance(edit, Clear)]
        if one.decides and part.control is not None:
            clears.append(Clear(part.control, _CONTROL_BYTES))
        memory = self._memory
        if clears:
            self.clear(clears)
        for edit in one.edits:
            if isinstance(edit, HandOver):
                memory[edit.reads], memory[edit.written] = memory[edit.written], memory[edit.reads]
        start = perf_counter_ns()
        with trace.span("launch", self._device.id, program=one.program.name, grid=one.launch.grid):
            handles = [memory[number] for number in one.memory]
            timing = self._device.launch(one.code, handles, one.launch, self._options)
        self.launches += 1
        self.segments += not one.is_copy
        self.timings.append(timing or Timing(perf_counter_ns() - start))

    def _decide(self, part: Part, waiting: bool) -> tuple[int, bool]:
        """The next launch of a part, and whether invocations still wait for a trap handler."""
        assert part.control is not None  # a launch that decides has a control word
        following, asked = self._words(part.control, 0, 2)
        self.decisions += 1
        if not part.has_traps or not (asked or waiting):
            return part.exits[following], False
        order, waiting = answer_traps(part, _PartMemory(self, part), self._options.config, following)
        return part.exits[order], waiting

    def _words(self, number: int, start: int, count: int) -> list[int]:
        def words(views: Sequence[Any]) -> list[int]:
            found: list[int] = np.frombuffer(views[0], "<u4").tolist() if count else []
            return found

        read: list[int] = self.read([(number, 4 * start, 4 * count)], words)
        return read


class _PartMemory:
    """The memory of a part, as a trap handler sees it."""

    def __init__(self, run: _Run, part: Part) -> None:
        self._run = run
        self._part = part
        self._decls: list[BufferDecl] = host_buffers(part.plan.source)

    def rows(self, start: int, count: int) -> list[int]:
        assert self._part.rows is not None  # a program with traps has rows
        return self._run._words(self._part.rows, start, count)

    def arrays(self) -> dict[str, Array]:
        counts = self._part.plan.launch.counts
        ranges = [
            (number, 0, counts[decl.name] * decl.dtype.bytes)
            for decl, number in zip(self._decls, self._part.own, strict=True)
        ]

        def copies(views: Sequence[Any]) -> dict[str, Array]:
            return {
                decl.name: np.frombuffer(bytes(view), decl.dtype.storage).copy()
                for decl, view in zip(self._decls, views, strict=True)
            }

        found: dict[str, Array] = self._run.read(ranges, copies)
        return found

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        numbers = dict(zip((decl.name for decl in self._decls), self._part.own, strict=True))
        self._run.write({numbers[name]: byte_view(array) for name, array in arrays.items() if array.size})


def _nothing(_: Sequence[Any]) -> None:
    return None
