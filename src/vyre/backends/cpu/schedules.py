"""Launch schedules on the processor: one launch, or a table that native code walks without the host.

Only a trap that has a handler brings the host in.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from vyre.backends.cpu.launches import KernelLaunch, PreparedLaunch, Sharing
from vyre.backends.cpu.layout import Ending
from vyre.backends.cpu.pool import MISALIGNED, TIMED_OUT, Pool
from vyre.backends.cpu.tables import Address, Count, Edit, Node, Table, Watch, in_state, own
from vyre.driver import trace
from vyre.driver.device import Handle, PreparedSchedule, Ran, RunOptions, Use
from vyre.driver.traps import answer_traps
from vyre.errors import DeviceOutOfMemory, locate
from vyre.ir.binding import Array
from vyre.lower.schedule import Clear, HandOver, LaunchSchedule, Part, ScheduledLaunch, host_buffers

if TYPE_CHECKING:
    from vyre.backends.cpu.device import CpuDevice

_LINE: Final = 64
# One launch that read nothing.
_RAN: Final = Ran([], 1, None, 1)
# A larger state takes long enough to work through that new memory for each run costs nothing beside it.
_MOST_KEPT_BYTES: Final = 1 << 24


class CpuSchedule(PreparedSchedule):
    """A schedule ready for the native runtime."""

    def __init__(self, device: CpuDevice, schedule: LaunchSchedule) -> None:
        self._device = device
        self._schedule = schedule
        self._clears = [(one.memory, one.byte_len) for one in schedule.clears]
        self._launch = _single_launch(schedule, device.pool.sharing)
        self._is_kept_small = sum(schedule.own_bytes) <= _MOST_KEPT_BYTES
        self._spare: list[_Tables] = []
        self._lock = Lock()

    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        for number, byte_len in self._clears:
            bytes_of(memory[number])[:byte_len] = 0
        # A single launch is one call of native code: nothing here costs it more than it has to.
        launch = self._launch
        if trace.active is not None:
            with trace.span("launch", "cpu", **_described(self._schedule)):
                run = self._walked if launch is None else self._launched
                return run(memory, options, reads, use)
        if launch is None:
            return self._walked(memory, options, reads, use)
        return self._launched(memory, options, reads, use)

    def _launched(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        launch = self._launch
        assert launch is not None  # else the tables are walked
        stopped = self._device.pool.run(launch, memory, options.config.timeout_s)
        if stopped:
            run_again(self._device.pool, launch, memory, options, stopped)
        return Ran(use(_read(memory, reads)), 1, None, 1) if reads else _RAN

    def _walked(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        arrays = [array if array.flags.aligned else array.copy() for array in memory]
        passes, converged, launches, segments, decisions = self._walk(arrays, options)
        for array, copied in zip(memory, arrays, strict=True):
            if copied is not array and array.flags.writeable:
                array[...] = copied
        return Ran(use(_read(memory, reads)), passes, converged, launches, decisions, segments=segments)

    def _walk(self, memory: Sequence[Array], options: RunOptions) -> tuple[int, bool | None, int, int, int]:
        """Walk the tables; return passes, whether they converged, launches, segments and decisions."""
        schedule = self._schedule
        with self._lock:
            tables = self._spare.pop() if self._spare else None
        if tables is None:
            tables = _Tables(schedule, self._device.pool.sharing)
        pool = self._device.pool
        passes, converged = 1, None
        if schedule.first:
            tables.first.run(pool, memory, 1, None, options)
        if schedule.repeat:
            watch = _watch(schedule, memory)
            ending = tables.repeat.run(pool, memory, schedule.times, watch, options)
            passes = tables.repeat.table.passes
            converged = None if watch is None else ending is Ending.UNCHANGED
        launches, segments = tables.launched(passes)
        decisions = tables.decisions
        if self._is_kept_small:
            with self._lock:
                if not self._spare:
                    self._spare.append(tables)
        return passes, converged, launches, segments, decisions


def run_again(pool: Pool, launch: PreparedLaunch, memory: Sequence[Array], options: RunOptions, stopped: int) -> None:
    """Run a launch again on aligned copies of memory, or say why it did not end by itself."""
    if stopped == MISALIGNED:
        aligned = [array if array.flags.aligned else array.copy() for array in memory]
        stopped = pool.run(launch, aligned, options.config.timeout_s)
        for array, copied in zip(memory, aligned, strict=True):
            if copied is not array and array.flags.writeable:
                array[...] = copied
    if stopped == TIMED_OUT:
        raise options.timeout()
    if stopped:
        raise DeviceOutOfMemory(launch.launch.kernel.kernel.scratch_bytes)


def prepared_launch(one: ScheduledLaunch, sharing: Sharing) -> PreparedLaunch:
    """A scheduled launch, ready to run by itself."""
    launch = KernelLaunch(one.code.for_launch(one.launch.grid), one.launch, sharing)
    return PreparedLaunch(launch, one.program, one.launch)


def _single_launch(schedule: LaunchSchedule, sharing: Sharing) -> PreparedLaunch | None:
    """The launch of a schedule that is just one, on the caller's memory in its order."""
    if schedule.repeat or len(schedule.first) != 1:
        return None
    part = schedule.first[0]
    if len(part.launches) != 1 or part.has_traps or part.launches[0].decides or part.launches[0].edits:
        return None
    one = part.launches[0]
    if one.memory != tuple(range(schedule.bound)):
        return None
    return prepared_launch(one, sharing)


def _watch(schedule: LaunchSchedule, memory: Sequence[Array]) -> Watch | None:
    test = schedule.until
    if test is None:
        return None
    watched = [bytes_of(memory[number])[:size] for number, size in test.watched]
    if test.kind == "unchanged":
        return Watch(watched, [array.copy() for array in watched], follows=True)
    return Watch(watched, [np.zeros_like(array) for array in watched], follows=False)


def _read(memory: Sequence[Array], reads: Sequence[tuple[int, int, int]]) -> list[Array]:
    return [bytes_of(memory[number])[offset : offset + length] for number, offset, length in reads]


def _described(schedule: LaunchSchedule) -> dict[str, Any]:
    """The name and the grid of a schedule's first launch, for a trace."""
    if not schedule.parts:
        return {}
    plan = schedule.parts[0].plan
    return {"program": plan.source.name, "grid": plan.launch.grid}


def bytes_of(array: Array) -> Array:
    """The bytes of memory, which callers' arrays have in elements."""
    return array if array.dtype == np.uint8 else array.view(np.uint8)


class _Tables:
    """The tables of what runs once and of what is repeated; for one run at a time."""

    def __init__(self, schedule: LaunchSchedule, sharing: Sharing) -> None:
        self.first = PartTable(schedule, schedule.first, sharing)
        self.repeat = PartTable(schedule, schedule.repeat, sharing)

    @property
    def decisions(self) -> int:
        return self.first.decisions + self.repeat.decisions

    def launched(self, passes: int) -> tuple[int, int]:
        """How many launches a run made, and how many of them were segments."""
        counts = [(self.first, 1), (self.repeat, passes)]
        straight = [(table.straight, table.copies, times) for table, times in counts]
        segments = sum(count * times for count, _, times in straight) + self.decisions
        return segments + sum(copies * times for _, copies, times in straight), segments


class PartTable:
    """Parts of a schedule as one table."""

    def __init__(
        self,
        schedule: LaunchSchedule,
        parts: Sequence[Part],
        sharing: Sharing,
        counts: Sequence[Mapping[str, Count]] = (),
    ) -> None:
        """``counts`` are, for each part, the element counts of buffers that are given with each run."""
        self.parts = parts
        self.straight = sum(not one.decides and not one.is_copy for part in parts for one in part.launches)
        self.copies = sum(one.is_copy for part in parts for one in part.launches)
        self.places: dict[int, int] = {}
        self._state_bytes = 0
        for number in sorted({number for part in parts for number in _own_memory(part, schedule.bound)}):
            self.places[number] = self._reserve(schedule.own_bytes[number - schedule.bound])
        self._bound = schedule.bound
        nodes: list[Node] = []
        self._starts: list[int] = []
        for order, part in enumerate(parts):
            self._starts.append(len(nodes))
            given = counts[order] if counts else {}
            nodes += [self._node(part, at, len(nodes), sharing, given) for at in range(len(part.launches))]
        self.table = Table(nodes, self._state_bytes)

    @property
    def decisions(self) -> int:
        return self.table.decisions

    def run(
        self,
        pool: Pool,
        memory: Sequence[Array],
        times: int,
        watch: Watch | None,
        options: RunOptions,
        counts: Sequence[int] = (),
    ) -> Ending:
        """Walk the table up to so many times."""
        answer = None
        if any(part.has_traps for part in self.parts):
            answer = _TrapService(self, memory, options).answer
        return self.table.run(pool, memory, times, watch, options.config.timeout_s, answer, counts)

    def part_of(self, node: int) -> tuple[Part, int]:
        """The part that a node belongs to, and the number of the part's first node."""
        order = bisect_right(self._starts, node) - 1
        return self.parts[order], self._starts[order]

    def _reserve(self, byte_len: int) -> int:
        place = self._state_bytes
        self._state_bytes += -(-byte_len // _LINE) * _LINE
        return place

    def _address(self, number: int) -> Address:
        return own(number) if number < self._bound else in_state(self.places[number])

    def _node(self, part: Part, at: int, start: int, sharing: Sharing, given: Mapping[str, Count]) -> Node:
        one = part.launches[at]
        launch = KernelLaunch(one.code.for_launch(one.launch.grid), one.launch, sharing)
        kernel = launch.kernel.kernel
        memory = dict(zip((decl.name for decl in host_buffers(one.program)), one.memory, strict=True))
        buffers: list[tuple[Address, Count]] = [
            (self._address(memory[name]), given.get(name, one.launch.counts[name]))
            for name in kernel.buffers[: len(memory)]
        ]
        buffers += [(in_state(self._reserve(4 * words)), words) for words in launch.captures]
        edits = [self._edit(edit) for edit in one.edits]
        control = self._address(part.control) if one.decides and part.control is not None else None
        exits = [start + exit_ for exit_ in part.exits]
        return Node(launch, buffers, start + at + 1, edits, exits if control else (), control, one.label)

    def _edit(self, edit: Clear | HandOver) -> Edit:
        match edit:
            case Clear(memory, byte_len):
                return Edit(self._address(memory), None, byte_len)
            case HandOver(reads, written, byte_len):
                return Edit(self._address(reads), self._address(written), byte_len)


def _own_memory(part: Part, bound: int) -> set[int]:
    """The schedule's own memory that a part uses."""
    used = {number for one in part.launches for number in one.memory}
    used |= {number for one in part.launches for edit in one.edits for number in _edited(edit)}
    used |= {number for number in (part.control, part.rows) if number is not None}
    return {number for number in used if number >= bound}


def _edited(edit: Clear | HandOver) -> tuple[int, ...]:
    return (edit.memory,) if isinstance(edit, Clear) else (edit.reads, edit.written)


class _TrapService:
    """The memory of a run, as the host sees it when invocations wait for it."""

    def __init__(self, walked: PartTable, memory: Sequence[Array], options: RunOptions) -> None:
        self._walked = walked
        self._memory = memory
        self._options = options
        self._part: Part = walked.parts[0]

    def answer(self, node: int) -> tuple[int, bool]:
        """Handle what waiting invocations ask for; return the next node, and whether some still wait."""
        part, start = self._walked.part_of(node)
        self._part = part
        assert part.control is not None  # a part with traps has a control word
        following = self._words(part.control, 0, 1)[0]
        try:
            order, waits = answer_traps(part, self, self._options.config, following)
        except Exception as error:
            if len(part.launches) > 1:
                locate(error, self._walked.table.nodes[node].label)
            raise
        return start + part.exits[order], waits

    def _words(self, number: int, start: int, count: int) -> list[int]:
        first = self._walked.places[number] // 4 + start
        words: list[int] = self._walked.table.state.view("<u4")[first : first + count].tolist()
        return words

    def rows(self, start: int, count: int) -> list[int]:
        assert self._part.rows is not None  # a part with traps has rows
        return self._words(self._part.rows, start, count)

    def _own(self) -> dict[str, Array]:
        part, counts = self._part, self._part.plan.launch.counts
        return {
            decl.name: bytes_of(self._memory[number])[: counts[decl.name] * decl.dtype.bytes].view(decl.dtype.storage)
            for decl, number in zip(host_buffers(part.plan.source), part.own, strict=True)
        }

    def arrays(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._own().items()}

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        held = self._own()
        for name, array in arrays.items():
            held[name][:] = array
