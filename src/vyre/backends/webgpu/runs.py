"""How do launches run one after another? In as few submissions as they fit into, without the host between them.

A repeated run that may stop early is encoded in batches of passes. After each pass a kernel on the device compares, and
when the run is over it makes the launches that are still to come empty, so the host asks once for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from time import perf_counter_ns
from typing import Any, Final

import msgspec
import numpy as np

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu, whole_words
from vyre.backends.webgpu.launches import PreparedLaunch
from vyre.backends.webgpu.tools import COMPARE, CONTROL, NONZERO, STATE_WORDS, tail_mask, tool_groups
from vyre.driver.fixpoint import Passes, count_passes
from vyre.driver.timing import Timing
from vyre.errors import DeviceLost, DispatchFailed, Timeout

# Launches in one submission: more make the queue long before anything runs, fewer cost submissions.
_MOST_LAUNCHES: Final = 4096
_FIRST_BATCH: Final = 4
_LARGEST_BATCH: Final = 128
# Answers so short are read with every batch of passes, so that the last one needs no second question.
_SHORT_READ: Final = 1 << 20
_INDIRECT_BYTES: Final = 12

Region = tuple[Any, int, int]


class Work(msgspec.Struct, frozen=True, eq=False):
    """One dispatch on the device: a pipeline, its bindings and its workgroups."""

    pipeline: Any
    group: Any
    groups: tuple[int, int, int]
    has_faults: bool = False


class Watch(msgspec.Struct, frozen=True, eq=False):
    """What says whether a pass was the last: buffers and their bytes, unchanged by it or (``for_zero``) all zero."""

    buffers: tuple[tuple[Any, int], ...]
    for_zero: bool = False


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What a run gave: what ``use`` made of the bytes that were read, its passes and its time."""

    read: Any
    passes: Passes
    timing: Timing


def works_of(gpu: Gpu, launch: PreparedLaunch, buffers: Sequence[Any], *, clearing: bool) -> list[Work]:
    """The dispatches of a launch; ``clearing`` its outputs before, in the same pass."""
    works: list[Work] = []
    if clearing:
        for place in launch.fresh:
            size = launch.plan.descriptors[place].byte_size
            pipeline, group, groups = gpu.fill_launch(buffers[place], 0, size, 0)
            works.append(Work(pipeline, group, (groups, 1, 1)))
    if launch.invocations:
        group = launch.bind_group(gpu, buffers)
        works.append(Work(launch.pipeline.pipeline, group, launch.groups, launch.has_faults))
    return works


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
        clock = _Clock(self.gpu, any(work.has_faults for work in (*self.first, *self.repeat)))
        with self.gpu.watched():
            encoder = self.gpu.device.create_command_encoder()
            if clock.has_faults:
                encoder.clear_buffer(self.gpu.faults, 0, FAULT_BYTES)
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
        clock: _Clock,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> Any:
        pieces = self._pieces()
        for works in pieces[:-1]:
            _encode(clock.begin(encoder), works)
            clock.read(encoder, [], _nothing, timeout_s)
            encoder = self.gpu.device.create_command_encoder()
        _encode(clock.begin(encoder), pieces[-1])
        return clock.read(encoder, reads, use, timeout_s)

    def _pieces(self) -> list[Sequence[Work]]:
        """All dispatches in pieces that one submission takes; equal pieces are one object."""
        whole = len(self.first) + self.times * len(self.repeat)
        if whole <= _MOST_LAUNCHES:
            return [[*self.first, *list(self.repeat) * self.times]]
        at_once = max(1, _MOST_LAUNCHES // max(1, len(self.repeat)))
        full, rest = divmod(self.times, at_once)
        return [self.first, *[list(self.repeat) * at_once] * full, list(self.repeat) * rest]

    def _until(
        self,
        encoder: Any,
        clock: _Clock,
        watch: Watch,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> tuple[Any, Passes]:
        gpu = self.gpu
        held = [gpu.take(4 * STATE_WORDS)]
        try:
            encoder.clear_buffer(held[0], 0, 4 * STATE_WORDS)
            if self.first:
                _encode(clock.begin(encoder), self.first)
            works = [*self.repeat, *self._watching(encoder, watch, held)]
            slots = {groups: _INDIRECT_BYTES * at for at, groups in enumerate(dict.fromkeys(w.groups for w in works))}
            held.append(launches := gpu.take(_INDIRECT_BYTES * max(1, len(slots))))
            if slots:
                gpu.queue.write_buffer(launches, 0, np.array(list(slots), "<u4"))
            offsets: list[int | None] = [slots[work.groups] for work in works]
            works.append(self._control(held[0], launches, len(slots)))
            offsets.append(None)
            answer = self._batches(encoder, clock, works, launches, offsets, held[0], reads, use, timeout_s)
        except (DeviceLost, Timeout):
            # What the device may still be working on is nobody else's.
            raise
        except BaseException:
            gpu.give_back(held)
            raise
        gpu.give_back(held)
        return answer

    def _watching(self, encoder: Any, watch: Watch, held: list[Any]) -> Iterator[Work]:
        gpu, state = self.gpu, held[0]
        for buffer, size in watch.buffers:
            if not size:
                continue
            words = whole_words(size) // 4
            block = gpu.block([words, tail_mask(size)])
            buffers, sizes = [buffer, state], [4 * words, 4 * STATE_WORDS]
            if not watch.for_zero:
                held.append(shadow := gpu.take(size))
                encoder.copy_buffer_to_buffer(buffer, 0, shadow, 0, 4 * words)
                buffers, sizes = [buffer, shadow, state], [4 * words, 4 * words, 4 * STATE_WORDS]
            tool = gpu.tool(NONZERO if watch.for_zero else COMPARE)
            yield Work(tool.pipeline, gpu.bind_group(tool, block, buffers, sizes), (tool_groups(words), 1, 1))

    def _control(self, state: Any, launches: Any, slots: int) -> Work:
        gpu, tool = self.gpu, self.gpu.tool(CONTROL)
        block = gpu.block([3 * slots])
        sizes = [4 * STATE_WORDS, _INDIRECT_BYTES * max(1, slots)]
        return Work(tool.pipeline, gpu.bind_group(tool, block, [state, launches], sizes), (1, 1, 1))

    def _batches(
        self,
        encoder: Any,
        clock: _Clock,
        works: Sequence[Work],
        launches: Any,
        offsets: Sequence[int | None],
        state: Any,
        reads: Sequence[Region],
        use: Callable[[list[memoryview]], Any],
        timeout_s: float | None,
    ) -> tuple[Any, Passes]:
        is_short = sum(length for _, _, length in reads) <= _SHORT_READ
        encoded, batch = 0, _FIRST_BATCH
        ran, converged = 0, False
        while encoded < self.times and not converged:
            count = min(batch, self.times - encoded)
            encoded += count
            batch = min(2 * batch, _LARGEST_BATCH)
            _encode(clock.begin(encoder), list(works) * count, launches, list(offsets) * count)

            asked = [(state, 0, 4 * STATE_WORDS), *(reads if is_short else ())]
            look = partial(self._look, encoded >= self.times, use if is_short else None)
            ran, converged, answer = clock.read(encoder, asked, look, timeout_s)
            encoder = self.gpu.device.create_command_encoder()
        count_passes(Passes(ran, converged))
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


def _encode(compute: Any, works: Sequence[Work], launches: Any = None, offsets: Sequence[int | None] = ()) -> None:
    """Writes dispatches into a pass; one with an offset has the workgroups that ``launches`` says when it runs."""
    pipeline = group = None
    for work, offset in zip(works, offsets or repeat(None)):  # noqa: B905 (the second may have no end)
        if work.pipeline is not pipeline:
            pipeline = work.pipeline
            compute.set_pipeline(pipeline)
        if work.group is not group:
            group = work.group
            compute.set_bind_group(0, group)
        if offset is None:
            compute.dispatch_workgroups(*work.groups)
        else:
            compute.dispatch_workgroups_indirect(launches, offset)
    compute.end()


class _Clock:
    """Measures the passes of a run, on the device where it can, and how long the host waited; looks for faults."""

    def __init__(self, gpu: Gpu, has_faults: bool) -> None:
        self.gpu = gpu
        self.has_faults = has_faults
        self.device_ns: int | None = 0 if gpu.timer is not None else None
        self.waited_ns = 0
        self._timed = 0

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
            asked.append((self.gpu.faults, 0, 4))
        if timer is not None and timed:
            asked.append(timer.resolve(encoder, timed))
        self._timed = 0
        start = perf_counter_ns()

        def with_times(views: list[memoryview]) -> Any:
            self.waited_ns += perf_counter_ns() - start
            if timer is not None and timed:
                assert self.device_ns is not None
                self.device_ns += timer.nanoseconds(views.pop())
            if self.has_faults and any(views.pop()):
                raise DispatchFailed(
                    "the driver of this adapter ended a loop before its time: it allows an invocation, and those that "
                    "run in step with it, some 65,000 passes in all.",
                    "run the program on a GPU, or on backend 'cpu'; or share the work among more invocations.",
                    code="loop-limit",
                )
            return use(views)

        return self.gpu.read(encoder, asked, with_times, timeout_s)
