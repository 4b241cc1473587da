"""Runs of launches one after another, in as few submissions as they fit into, without the host between them.

A repeated run that may stop early is encoded in batches of passes. After each pass a kernel on the device compares, and
when the run is over it makes the launches that are still to come empty, so the host asks once for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu, Region, whole_words
from vyre.backends.webgpu.launches import INDIRECT_BYTES, PreparedLaunch
from vyre.backends.webgpu.tools import COMPARE, CONTROL, FOLD, NONZERO, STATE_WORDS, tail_mask, tool_groups
from vyre.driver.timing import Timing
from vyre.errors import BadInputs, DispatchFailed

# Launches in one submission: more make the queue long before anything runs, fewer cost submissions.
MOST_LAUNCHES: Final = 4096
FIRST_BATCH: Final = 4
LARGEST_BATCH: Final = 128
# Answers so short are read with every batch of passes, so that the last one needs no second question.
_SHORT_READ: Final = 1 << 20


class Work(msgspec.Struct, frozen=True, eq=False):
    """One dispatch on the device: a pipeline, its bindings and its workgroups.

    With ``arguments``, a buffer and an offset, the workgroups are what is there when it runs. One that is ``always`` to
    run does so even after the last pass.
    """

    pipeline: Any
    group: Any
    groups: tuple[int, int, int] = (1, 1, 1)
    has_faults: bool = False
    arguments: tuple[Any, int] | None = None
    always: bool = False


class Watch(msgspec.Struct, frozen=True, eq=False):
    """What says whether a pass was the last: buffers and their bytes, unchanged by it or (``for_zero``) all zero."""

    buffers: tuple[tuple[Any, int], ...]
    for_zero: bool = False


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What a run gave: what ``use`` made of the bytes that were read, its passes and its time."""

    read: Any
    passes: Passes
    timing: Timing


class Passes(msgspec.Struct, frozen=True):
    """How many passes ran; ``converged`` is None where no test ended them."""

    passes: int
    converged: bool | None


def works_of(gpu: Gpu, launch: PreparedLaunch, buffers: Sequence[Any]) -> list[Work]:
    """The dispatches of a launch."""
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
    """The dispatches that set the first bytes of a buffer to zero."""
    return [
        Work(pipeline, group, (groups, 1, 1)) for pipeline, group, groups in gpu.fill_launches(buffer, 0, byte_len, 0)
    ]


class Run:
    """Launches that are ready: ``first`` once, then ``repeat`` up to ``times`` times or until ``watch`` says so."""

    def __init__(
        self, gpu: Gpu, first: Sequence[Work], repeat: Sequence[Work] = (), times: int = 0, watch: Watch | None = None
    ) -> None:
        self.gpu = gpu
        self.first = first
        self.repeat = repeat
        self.times = times
        self.watch = watch

    def go(
        self,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        *,
        clears: Sequence[tuple[Any, int]] = (),
        timeout_s: float | None = None,
    ) -> Answer:
        """Clears buffers, runs everything, and reads; holds the device's lock."""
        start = perf_counter_ns()
        clock = Clock(self.gpu, (*self.first, *self.repeat), drives=self.watch is not None)
        with self.gpu.watched():
            encoder = self.gpu.device.create_command_encoder()
            clock.clear(encoder)
            for buffer, size in clears:
                encoder.clear_buffer(buffer, 0, whole_words(size))
            if self.watch is None:
                answer = self._straight(encoder, clock, reads, use, timeout_s)
                passes = Passes(self.times, None)
            else:
                answer, passes = self._until(encoder, clock, self.watch, reads, use, timeout_s)
        wall = perf_counter_ns() - start
        timing = Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns)
        return Answer(answer, passes, timing)

    def _straight(
        self,
        encoder: Any,
        clock: Clock,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> Any:
        pieces = self._pieces()
        for works in pieces[:-1]:
            encode(clock.begin(encoder), works)
            clock.read(encoder, [], _nothing, timeout_s)
            encoder = self.gpu.device.create_command_encoder()
        encode(clock.begin(encoder), pieces[-1])
        return clock.read(encoder, reads, use, timeout_s)

    def _pieces(self) -> list[Sequence[Work]]:
        """All dispatches in pieces that one submission takes; equal pieces are one object."""
        whole = len(self.first) + self.times * len(self.repeat)
        if whole <= MOST_LAUNCHES:
            return [[*self.first, *list(self.repeat) * self.times]]
        at_once = max(1, MOST_LAUNCHES // max(1, len(self.repeat)))
        full, rest = divmod(self.times, at_once)
        return [self.first, *[list(self.repeat) * at_once] * full, list(self.repeat) * rest]

    def _until(
        self,
        encoder: Any,
        clock: Clock,
        watch: Watch,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> tuple[Any, Passes]:
        gpu = self.gpu
        with gpu.borrowing() as take:
            if self.first:
                encode(clock.begin(encoder), self.first)
            works = [*self.repeat, *self._watching(encoder, watch, take)]
            gated = dict.fromkeys(work.groups for work in works if not work.always and work.arguments is None)
            launches = take(INDIRECT_BYTES * max(1, len(gated)))
            if gated:
                gpu.queue.write_buffer(launches, 0, np.array(list(gated), "<u4"))
            slots = {groups: (launches, INDIRECT_BYTES * at) for at, groups in enumerate(gated)}
            works = [
                work if work.always or work.arguments else replace(work, arguments=slots[work.groups]) for work in works
            ]
            works.append(self._control(launches, len(gated)))
            return self._batches(encoder, clock, works, reads, use, timeout_s)

    def _watching(self, encoder: Any, watch: Watch, take: Callable[[int], Any]) -> Iterator[Work]:
        gpu = self.gpu
        state = gpu.state, 0, gpu.state.size
        tool = gpu.tool(NONZERO if watch.for_zero else COMPARE)
        for buffer, size in watch.buffers:
            watched = [buffer]
            if size and not watch.for_zero:
                watched.append(take(size))
                encoder.copy_buffer_to_buffer(buffer, 0, watched[1], 0, whole_words(size))
            for bound, _, stop in gpu.windows(0, size):
                words = whole_words(stop) // 4
                block = gpu.block([words, tail_mask(stop)])
                regions = [*((one, bound, 4 * words) for one in watched), state]
                yield Work(tool.pipeline, gpu.bind_group(tool, block, regions), (tool_groups(words), 1, 1))

    def _control(self, launches: Any, slots: int) -> Work:
        gpu, tool = self.gpu, self.gpu.tool(CONTROL)
        block = gpu.block([3 * slots])
        regions = [(gpu.state, 0, gpu.state.size), (launches, 0, INDIRECT_BYTES * max(1, slots))]
        return Work(tool.pipeline, gpu.bind_group(tool, block, regions))

    def _batches(
        self,
        encoder: Any,
        clock: Clock,
        works: Sequence[Work],
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> tuple[Any, Passes]:
        is_short = sum(length for _, _, length in reads) <= _SHORT_READ
        encoded, batch = 0, FIRST_BATCH
        ran, converged = 0, False
        while encoded < self.times and not converged:
            count = min(batch, self.times - encoded)
            encoded += count
            batch = min(2 * batch, LARGEST_BATCH)
            encode(clock.begin(encoder), list(works) * count)
            asked = [(self.gpu.state, 0, 4 * STATE_WORDS), *(reads if is_short else ())]
            look = partial(self._look, encoded >= self.times, use if is_short else None)
            ran, converged, answer = clock.read(encoder, asked, look, timeout_s)
            encoder = self.gpu.device.create_command_encoder()
        if not is_short or not encoded:
            answer = clock.read(encoder, reads, use, timeout_s)
        return answer, Passes(ran, converged)

    def _look(
        self, is_last_batch: bool, use: Callable[[list[memoryview]], Any] | None, views: list[memoryview]
    ) -> tuple[int, bool, Any]:
        """The passes so far, whether they were enough and, if nothing is left to run, what was read."""
        _, passes, converged = np.frombuffer(views[0], "<u4").tolist()
        is_over = bool(converged) or is_last_batch
        return passes, bool(converged), use(views[1:]) if use is not None and is_over else None


def _nothing(_: list[memoryview]) -> None:
    return None


def encode(compute: Any, works: Sequence[Work]) -> None:
    """Writes dispatches into a pass."""
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
    """Measures the passes of a run, on the device where it can, and how long the host waited; looks for faults.

    ``drives`` says that the device keeps the state of the run.
    """

    def __init__(self, gpu: Gpu, works: Iterable[Work], *, drives: bool) -> None:
        self.gpu = gpu
        self.drives = drives
        self.has_faults = any(work.has_faults for work in works)
        self.device_ns: int | None = 0 if gpu.timer is not None else None
        self.waited_ns = 0
        self._timed = 0

    def clear(self, encoder: Any) -> None:
        """Nothing has gone wrong yet, and no pass was the last."""
        if self.has_faults or self.drives:
            encoder.clear_buffer(self.gpu.state, 0, self.gpu.state.size)
        if self.has_faults:
            encoder.clear_buffer(self.gpu.faults, 0, FAULT_BYTES)

    def begin(self, encoder: Any) -> Any:
        timer = self.gpu.timer
        if timer is None or self._timed == timer.passes:
            return encoder.begin_compute_pass()
        self._timed += 1
        return encoder.begin_compute_pass(timestamp_writes=timer.writes(self._timed - 1))

    def read(
        self,
        encoder: Any,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> Any:
        timer, timed = self.gpu.timer, self._timed
        asked = list(reads)
        if self.has_faults:
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
            if self.has_faults:
                _raise_faults(views.pop())
            return use(views)

        return self.gpu.read(encoder, asked, with_times, timeout_s)


def _raise_faults(data: memoryview) -> None:
    """What kernels tell that went wrong."""
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
