"""Runs: dispatches in order, in as few submissions as possible, without the host in between.

A repeated run with a convergence test is encoded in batches of passes. After each pass a kernel on the device compares,
and when the test passes it makes the remaining launches empty, so the host reads once for each batch. One submission
is under way at a time, so a caller who stops waiting leaves little work behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu, Region, whole_words
from vyre.backends.webgpu.launches import INDIRECT_BYTES, PreparedLaunch
from vyre.backends.webgpu.tools import COMPARE, CONTROL, FOLD, NONZERO, STATE_WORDS, tail_mask, tool_groups
from vyre.driver.device import RunOptions, Use
from vyre.driver.timing import Timing
from vyre.errors import BadInputs, DispatchFailed

# Launches in one submission: with more the device starts late, with fewer submissions cost more.
MOST_LAUNCHES: Final = 4096
FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 128
# Reads up to this length are made with every batch of passes, so that the last one needs no second readback.
_SHORT_READ: Final = 1 << 20


class Work(msgspec.Struct, frozen=True, eq=False):
    """One dispatch on the device: a pipeline, its bindings and its workgroups.

    With ``arguments``, a buffer and an offset, the workgroups are read from there when it runs. A dispatch that runs
    ``always`` also does after the last pass.
    """

    pipeline: Any
    group: Any
    groups: tuple[int, int, int] = (1, 1, 1)
    has_faults: bool = False
    arguments: tuple[Any, int] | None = None
    always: bool = False


class Watch(msgspec.Struct, frozen=True, eq=False):
    """A convergence test: the bytes of buffers are unchanged by a pass or, ``for_zero``, all zero after it.

    ``buffers`` are buffers, their bytes and, for the first kind, memory for a copy of them.
    """

    buffers: tuple[tuple[Any, int, Any], ...]
    for_zero: bool = False


class Answer(msgspec.Struct, frozen=True, eq=False):
    """The result of a run: what ``use`` made of the bytes read, the passes and the times."""

    read: Any
    passes: Passes
    timing: Timing


class Passes(msgspec.Struct, frozen=True):
    """The number of passes that ran; ``converged`` is None without a convergence test."""

    passes: int
    converged: bool | None


def works_of(gpu: Gpu, launch: PreparedLaunch, buffers: Sequence[Any]) -> list[Work]:
    """Return the dispatches of a launch."""
    works: list[Work] = []
    arguments = None
    if launch.arguments is not None:
        arguments = launch.arguments, 0
        tool = gpu.tool(FOLD).pipeline
        works.append(Work(tool, launch.fold_group(gpu, buffers), has_faults=True, always=True))
    if launch.invocations or arguments:
        group = launch.bind_group(gpu, buffers)
        works.append(Work(launch.pipeline.pipeline, group, launch.groups, launch.has_faults, arguments))
    return works


def clear_works(gpu: Gpu, buffer: Any, byte_len: int) -> list[Work]:
    """Return the dispatches that set the first bytes of a buffer to zero."""
    return [
        Work(pipeline, group, (groups, 1, 1)) for pipeline, group, groups in gpu.fill_launches(buffer, 0, byte_len, 0)
    ]


class Run:
    """Dispatches that are ready: ``first`` once, then ``repeat`` up to ``times`` times, or until ``watch`` is met."""

    def __init__(
        self, gpu: Gpu, first: Sequence[Work], repeat: Sequence[Work] = (), times: int = 0, watch: Watch | None = None
    ) -> None:
        self.gpu = gpu
        self._first = first
        self._times = times
        self._has_faults = any(work.has_faults for work in (*first, *repeat))
        self._batches = None if watch is None else Batches(gpu, repeat, times, watch)
        self._pieces = _pieces(first, repeat, times) if watch is None else []

    def go(
        self,
        reads: Sequence[Region],
        use: Use,
        options: RunOptions,
        *,
        clears: Sequence[tuple[Any, int]] = (),
    ) -> Answer:
        """Clear buffers, run everything, and read; hold the device's lock."""
        start = perf_counter_ns()
        clock = Clock(self.gpu, has_faults=self._has_faults, drives=self._batches is not None, options=options)
        with self.gpu.watched():
            encoder = self.gpu.device.create_command_encoder()
            clock.clear(encoder)
            for buffer, size in clears:
                encoder.clear_buffer(buffer, 0, whole_words(size))
            if self._batches is None:
                answer = self._straight(encoder, clock, reads, use)
                passes = Passes(self._times, None)
            else:
                if self._first:
                    encode(clock.begin(encoder), self._first)
                answer, passes = self._batches.run(encoder, clock, reads, use)
        wall = perf_counter_ns() - start
        timing = Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns)
        return Answer(answer, passes, timing)

    def _straight(self, encoder: Any, clock: Clock, reads: Sequence[Region], use: Use) -> Any:
        for works in self._pieces[:-1]:
            encode(clock.begin(encoder), works)
            clock.read(encoder, [(self.gpu.state, 0, 4)], len)
            encoder = self.gpu.device.create_command_encoder()
        encode(clock.begin(encoder), self._pieces[-1])
        return clock.read(encoder, reads, use)


def _pieces(first: Sequence[Work], repeat: Sequence[Work], times: int) -> list[Sequence[Work]]:
    """Return all dispatches in pieces that one submission takes; equal pieces are one object."""
    whole = len(first) + times * len(repeat)
    if whole <= MOST_LAUNCHES:
        return [[*first, *list(repeat) * times]]
    at_once = max(1, MOST_LAUNCHES // max(1, len(repeat)))
    full, rest = divmod(times, at_once)
    return [first, *[list(repeat) * at_once] * full, list(repeat) * rest]


class Batches:
    """Passes with a convergence test, run in batches; the launches of passes after the last are empty.

    A launch takes its workgroups from memory: one entry for each different grid.
    """

    def __init__(self, gpu: Gpu, repeat: Sequence[Work], times: int, watch: Watch) -> None:
        self._gpu = gpu
        self._times = times
        self._copies = [(buffer, copy, whole_words(size)) for buffer, size, copy in watch.buffers if copy is not None]
        works = [*repeat, *_watching(gpu, watch)]
        grids = list(dict.fromkeys(work.groups for work in works if not work.always and work.arguments is None))
        self._grids = np.array(grids, "<u4")
        self._launches = gpu.new_memory(INDIRECT_BYTES * max(1, len(grids)))
        places = {groups: (self._launches, INDIRECT_BYTES * at) for at, groups in enumerate(grids)}
        self._works = [
            work if work.always or work.arguments else replace(work, arguments=places[work.groups]) for work in works
        ]
        self._works.append(_control(gpu, self._launches, len(grids)))

    def run(self, encoder: Any, clock: Clock, reads: Sequence[Region], use: Use) -> tuple[Any, Passes]:
        """Run batches until the test is met or all passes have run; read at the end."""
        for buffer, copy, size in self._copies:
            encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, size)
        if len(self._grids):
            self._gpu.queue.write_buffer(self._launches, 0, self._grids)
        is_short = sum(length for _, _, length in reads) <= _SHORT_READ
        encoded, batch = 0, FIRST_BATCH
        ran, converged = 0, False
        while encoded < self._times and not converged:
            count = min(batch, self._times - encoded)
            encoded += count
            batch = min(2 * batch, LARGEST_BATCH)
            encode(clock.begin(encoder), self._works * count)
            asked = [(self._gpu.state, 0, 4 * STATE_WORDS), *(reads if is_short else ())]
            look = partial(_look, encoded >= self._times, use if is_short else None)
            ran, converged, answer = clock.read(encoder, asked, look)
            encoder = self._gpu.device.create_command_encoder()
        if not is_short or not encoded:
            answer = clock.read(encoder, reads, use)
        return answer, Passes(ran, converged)


def _watching(gpu: Gpu, watch: Watch) -> Iterator[Work]:
    """Yield the dispatches of a convergence test."""
    tool = gpu.tool(NONZERO if watch.for_zero else COMPARE)
    for buffer, size, copy in watch.buffers:
        watched = [buffer] if copy is None else [buffer, copy]
        for bound, _, stop in gpu.windows(0, size):
            words = whole_words(stop) // 4
            block = gpu.block([words, tail_mask(stop)])
            regions = [*((one, bound, 4 * words) for one in watched), (gpu.state, 0, gpu.state.size)]
            yield Work(tool.pipeline, gpu.bind_group(tool, block, regions), (tool_groups(words), 1, 1))


def _control(gpu: Gpu, launches: Any, grids: int) -> Work:
    """Return the dispatch that counts a pass and, after the last, empties the launches that follow."""
    tool, block = gpu.tool(CONTROL), gpu.block([3 * grids])
    regions = [(gpu.state, 0, gpu.state.size), (launches, 0, INDIRECT_BYTES * max(1, grids))]
    return Work(tool.pipeline, gpu.bind_group(tool, block, regions))


def _look(is_last_batch: bool, use: Use | None, views: Sequence[Any]) -> tuple[int, bool, Any]:
    """Return the passes so far, whether the test was met and, if the run is over, what was read."""
    _, passes, converged = np.frombuffer(views[0], "<u4").tolist()
    is_over = bool(converged) or is_last_batch
    return passes, bool(converged), use(views[1:]) if use is not None and is_over else None


def encode(compute: Any, works: Sequence[Work]) -> None:
    """Encode dispatches into a compute pass, and end it."""
    pipeline = group = None
    for work in works:
        if work.pipeline is not pipeline:
            pipeline = work.pipeline
            compute.set_pipeline(pipeline)
        if work.group is not group:
            group = work.group
            compute.set_bind_group(0, group)
        if work.arguments is None:
            compute.dispatch_workgroups(*work.groups)
        else:
            compute.dispatch_workgroups_indirect(*work.arguments)
    compute.end()


class Clock:
    """The submissions of one run: measured on the device where it can, and their faults raised.

    ``drives`` says that the device keeps the state of the run.
    """

    def __init__(self, gpu: Gpu, *, has_faults: bool, drives: bool, options: RunOptions) -> None:
        self.gpu = gpu
        self.device_ns: int | None = 0 if gpu.timer is not None else None
        self.waited_ns = 0
        self._drives = drives
        self._has_faults = has_faults
        self._options = options
        self._timed = 0

    def clear(self, encoder: Any) -> None:
        """Reset the faults and the state."""
        if self._has_faults or self._drives:
            encoder.clear_buffer(self.gpu.state, 0, self.gpu.state.size)
        if self._has_faults:
            encoder.clear_buffer(self.gpu.faults, 0, FAULT_BYTES)

    def begin(self, encoder: Any) -> Any:
        """Begin a compute pass."""
        timer = self.gpu.timer
        if timer is None or self._timed == timer.passes:
            return encoder.begin_compute_pass()
        self._timed += 1
        return encoder.begin_compute_pass(timestamp_writes=timer.writes(self._timed - 1))

    def read(self, encoder: Any, reads: Sequence[Region], use: Use) -> Any:
        """Submit what was encoded, and return what ``use`` makes of the regions; Timeout if it is late for that."""
        self._options.time_left()
        timer, timed = self.gpu.timer, self._timed
        asked = list(reads)
        if self._has_faults:
            asked.append((self.gpu.faults, 0, FAULT_BYTES))
        if timer is not None and timed:
            asked.append(timer.resolve(encoder, timed))
        self._timed = 0
        start = perf_counter_ns()

        def with_times(views: list[memoryview]) -> Any:
            self.waited_ns += perf_counter_ns() - start
            if timer is not None and timed:
                assert self.device_ns is not None
                self.device_ns += timer.nanoseconds(views.pop())
            if self._has_faults:
                _raise_faults(views.pop())
            return use(views)

        return self.gpu.read(encoder, asked, with_times, self._options)


def _raise_faults(data: memoryview) -> None:
    """Raise the faults that kernels reported."""
    loops, *grid = np.frombuffer(data, "<u4").tolist()
    if any(grid):
        raise BadInputs(
            f"the grid that memory says is {tuple(grid)}: too many invocations along an axis, or workgroups in all, to "
            "be numbered by u32.",
            "launch fewer workgroups, in several pieces.",
        )
    if loops:
        raise DispatchFailed(
            "the driver of this adapter ended a loop before its time: it allows an invocation, and those that run in "
            "step with it, some 65,000 passes in all.",
            "run the program on a GPU, or on backend 'cpu'; or share the work among more invocations.",
            code="loop-limit",
        )
