"""Runs: dispatches in order, in as few submissions as possible, without the host in between.

A run is encoded in batches, each one submission. One is under way at a time, and a batch is as large as takes about a
fifth of a second, so a caller who stops waiting leaves little work behind. After each pass of a repetition with a
convergence test a kernel on the device compares, and when the test passes it makes the remaining launches empty; a
program that branches by its control word chooses its next segment in the same way. The host reads once for each batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu
from vyre.backends.webgpu.launches import INDIRECT_BYTES
from vyre.backends.webgpu.tools import COMPARE, CONTROL, NONZERO, SELECT, STATE_WORDS, tail_mask
from vyre.backends.webgpu.work import Region, Work, encode, whole, whole_words
from vyre.driver.device import RunOptions, Use
from vyre.driver.timing import Timing
from vyre.errors import BadInputs, DispatchFailed

# Launches in one submission: with more the device starts late, with fewer submissions cost more.
_MOST_LAUNCHES: Final = 4096
_FIRST_BATCH: Final = 4
_LARGEST_BATCH: Final = 128
# What a batch of launches that were never measured may cost, in loop iterations of all invocations.
_FIRST_COST: Final = 1 << 24
_CONTROL_BYTES: Final = 8
_BATCH_NS: Final = 200_000_000
# Reads up to this length are made with every batch of passes, so that the last one needs no second readback.
_SHORT_READ: Final = 1 << 20


class Answer(msgspec.Struct, frozen=True, eq=False):
    """The result of a run: what ``use`` made of the bytes read, the device's state words, the batches and the times."""

    read: Any
    state: Sequence[int]
    batches: int
    timing: Timing


class BatchSize:
    """The size of the next batch, by the time that batches take; ``most`` at most."""

    def __init__(self, count: int, most: int) -> None:
        self.count = min(count, most)
        self._most = most

    def adapt(self, count: int, ns: int) -> None:
        """Choose a size after a batch of ``count`` took so long."""
        if ns > _BATCH_NS:
            self.count = max(1, count * _BATCH_NS // ns)
        elif 2 * ns < _BATCH_NS and count == self.count:
            self.count = min(2 * self.count, self._most)


class Run(ABC):
    """Dispatches that are bound to memory, in units: launches, passes of a repetition, or rounds over segments.

    A run ends after ``total`` units. Where it ``has_state``, the device keeps the words of ``gpu.state``, and the run
    ends when the third is set; without a total, only then.
    """

    has_state = True

    def __init__(self, gpu: Gpu, works: Iterable[Work], total: int | None) -> None:
        self.gpu = gpu
        self.total = total
        self.has_faults = any(work.has_faults for work in works)

    @abstractmethod
    def batch_size(self) -> BatchSize:
        """Return the size of batches, in units."""

    def begin(self, encoder: Any, clock: Clock) -> None:  # noqa: B027
        """Encode what comes before the first batch; nothing, where it is not overridden."""

    @abstractmethod
    def works(self, start: int, count: int, state: Sequence[int]) -> Iterable[Work]:
        """Return the dispatches of ``count`` units from unit ``start`` on, where the device left ``state``."""

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
        clock = Clock(self.gpu, has_faults=self.has_faults, has_state=self.has_state, options=options)
        with self.gpu.watched():
            encoder = self.gpu.device.create_command_encoder()
            clock.clear(encoder)
            for buffer, size in clears:
                self.gpu.encode_fill(encoder, buffer, 0, size, 0)
            self.begin(encoder, clock)
            read, state, batches = self._batches(encoder, clock, reads, use)
        wall = perf_counter_ns() - start
        return Answer(read, state, batches, Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns))

    def _batches(self, encoder: Any, clock: Clock, reads: Sequence[Region], use: Use) -> tuple[Any, Sequence[int], int]:
        """Run batches until the run is over; return what was read, the state and the number of batches."""
        gpu, size = self.gpu, self.batch_size()
        is_short = sum(length for _, _, length in reads) <= _SHORT_READ
        state: Sequence[int] = (0,) * STATE_WORDS
        done = batches = 0
        while True:
            count = size.count if self.total is None else min(size.count, self.total - done)
            encode(clock.begin(encoder), self.works(done, count, state))
            done += count
            batches += 1
            is_last = done == self.total
            if is_last and not self.has_state:
                return clock.read(encoder, reads, use), state, batches
            has_reads = self.has_state and (is_last or is_short)
            asked = [(gpu.state, 0, 4 * STATE_WORDS), *(reads if has_reads else ())]
            state, read = clock.read(encoder, asked, partial(_look, is_last, use if has_reads else None))
            encoder = gpu.device.create_command_encoder()
            if self.has_state and (is_last or state[2]):
                return read if has_reads else clock.read(encoder, reads, use), state, batches
            size.adapt(count, clock.last_ns)


def _look(is_last: bool, use: Use | None, views: Sequence[Any]) -> tuple[Sequence[int], Any]:
    """Return the state of the device and, if the run is over, what was read."""
    state = np.frombuffer(views[0], "<u4").tolist()
    return state, use(views[1:]) if use is not None and (is_last or state[2]) else None


class StraightRun(Run):
    """Launches in a fixed order: ``first`` once, then ``repeat`` a number of times."""

    has_state = False

    def __init__(self, gpu: Gpu, first: Sequence[Work], repeat: Sequence[Work] = (), times: int = 0) -> None:
        works = [*first, *repeat]
        super().__init__(gpu, works, len(first) + times * len(repeat))
        self._first = first
        self._repeat = repeat
        cost = max((work.cost for work in works), default=0)
        # The size is kept from run to run, so later ones need no small batches.
        self._size = BatchSize(max(_FIRST_BATCH, int(_FIRST_COST / max(1, cost))), _MOST_LAUNCHES)

    def batch_size(self) -> BatchSize:
        return self._size

    def works(self, start: int, count: int, state: Sequence[int]) -> Iterator[Work]:
        first, repeat = self._first, self._repeat
        for number in range(start, start + count):
            yield first[number] if number < len(first) else repeat[(number - len(first)) % len(repeat)]


class RepeatedRun(Run):
    """``first`` once, then passes of ``repeat`` until the convergence test is met; passes after the last are empty.

    The test: the bytes of ``watched`` (buffers, their bytes and memory for a copy) are unchanged by a pass, or, where
    there is no memory for a copy, all zero after it. A launch takes its workgroups from memory: one entry for each
    different grid.
    """

    def __init__(
        self,
        gpu: Gpu,
        first: Sequence[Work],
        repeat: Sequence[Work],
        times: int,
        watched: Sequence[tuple[Any, int, Any]],
    ) -> None:
        super().__init__(gpu, [*first, *repeat], times)
        self._first = first
        self._copies = [(buffer, copy, whole_words(size)) for buffer, size, copy in watched if copy is not None]
        works = [*repeat, *_watching(gpu, watched)]
        grids = list(dict.fromkeys(work.groups for work in works if not work.always and work.arguments is None))
        self._grids = np.array(grids, "<u4")
        self._launches = gpu.new_memory(INDIRECT_BYTES * max(1, len(grids)))
        places = {groups: (self._launches, INDIRECT_BYTES * at) for at, groups in enumerate(grids)}
        self._works = [
            work if work.always or work.arguments else replace(work, arguments=places[work.groups]) for work in works
        ]
        # Counts a pass and, after the last, empties the launches that follow.
        regions = [whole(gpu.state), (self._launches, 0, INDIRECT_BYTES * max(1, len(grids)))]
        self._works.append(gpu.tool_work(CONTROL, [3 * len(grids)], regions))

    def batch_size(self) -> BatchSize:
        return BatchSize(_FIRST_BATCH, max(1, min(_LARGEST_BATCH, _MOST_LAUNCHES // len(self._works))))

    def begin(self, encoder: Any, clock: Clock) -> None:
        if self._first:
            encode(clock.begin(encoder), self._first)
        for buffer, copy, size in self._copies:
            encoder.copy_buffer_to_buffer(buffer, 0, copy, 0, size)
        if len(self._grids):
            self.gpu.queue.write_buffer(self._launches, 0, self._grids)

    def works(self, start: int, count: int, state: Sequence[int]) -> Sequence[Work]:
        return self._works * count


def _watching(gpu: Gpu, watched: Sequence[tuple[Any, int, Any]]) -> Iterator[Work]:
    """Yield the dispatches of a convergence test."""
    for buffer, size, copy in watched:
        tool, compared = (NONZERO, [buffer]) if copy is None else (COMPARE, [buffer, copy])
        for bound, _, stop in gpu.windows(0, size):
            words = whole_words(stop) // 4
            regions = [*((one, bound, 4 * words) for one in compared), whole(gpu.state)]
            yield gpu.tool_work(tool, [words, tail_mask(stop)], regions, words)


class DrivenRun(Run):
    """Segments of a program that branches, given as their dispatches, of which the last launches the segment.

    After each segment the device reads the word ``control`` and gives the next one, of its ``exits``, its workgroups.
    """

    def __init__(
        self, gpu: Gpu, segments: Sequence[Sequence[Work]], exits: Sequence[Iterable[int]], control: Any
    ) -> None:
        super().__init__(gpu, (segment[-1] for segment in segments), None)
        self._exits = exits
        self._control = control
        self._launches = gpu.new_memory(INDIRECT_BYTES * len(segments))
        self._groups = np.zeros((len(segments), 3), "<u4")
        self._groups[0] = segments[0][-1].groups
        self._segments: list[list[Work]] = []
        for order, (*edits, launch) in enumerate(segments):
            own = replace(launch, arguments=(self._launches, INDIRECT_BYTES * order))
            regions = [whole(one) for one in (gpu.state, control, self._launches)]
            self._segments.append([*edits, own, gpu.tool_work(SELECT, [order, *launch.groups], regions)])

    def batch_size(self) -> BatchSize:
        return BatchSize(_FIRST_BATCH, _LARGEST_BATCH)

    def begin(self, encoder: Any, clock: Clock) -> None:
        encoder.clear_buffer(self._control, 0, _CONTROL_BYTES)
        self.gpu.queue.write_buffer(self._launches, 0, self._groups)

    def works(self, start: int, count: int, state: Sequence[int]) -> Sequence[Work]:
        """Return the segment to run, then ``count`` rounds of all that may follow it, in the order of the program."""
        at = state[0]
        later = self._reachable(at)
        order = [*(one for one in later if one > at), *(one for one in later if one <= at)]
        round_works = [work for one in order for work in self._segments[one]]
        count = max(1, min(count, _MOST_LAUNCHES // max(1, len(round_works))))
        return [*self._segments[at], *round_works * count]

    def _reachable(self, at: int) -> list[int]:
        """Return the segments that may follow one; 0, which is the end, is none of them."""
        found: set[int] = set()
        waiting = [self._exits[at]]
        while waiting:
            for one in waiting.pop():
                if one and one not in found:
                    found.add(one)
                    waiting.append(self._exits[one])
        return sorted(found)


class Clock:
    """The submissions of one run: measured on the device where it can, and their faults raised."""

    def __init__(self, gpu: Gpu, *, has_faults: bool, has_state: bool, options: RunOptions) -> None:
        self.gpu = gpu
        self.device_ns: int | None = 0 if gpu.timer is not None else None
        # What the host waited for the device: in all, and for the last submission.
        self.waited_ns = self.last_ns = 0
        self._has_state = has_state
        self._has_faults = has_faults
        self._options = options
        self._timed = 0

    def clear(self, encoder: Any) -> None:
        """Reset the faults and the state."""
        if self._has_faults or self._has_state:
            encoder.clear_buffer(self.gpu.state, 0, self.gpu.state.size)
        if self._has_faults:
            encoder.clear_buffer(self.gpu.faults, 0, FAULT_BYTES)

    def begin(self, encoder: Any) -> Any:
        """Begin a compute pass."""
        timer = self.gpu.timer
        if timer is None:
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
            self.last_ns = perf_counter_ns() - start
            self.waited_ns += self.last_ns
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
