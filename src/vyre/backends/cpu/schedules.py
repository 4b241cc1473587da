"""Launch schedules on the processor: one launch, or tables that native code walks without the host.

Only a trap that has a handler brings the host in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from vyre.backends.cpu.launches import PreparedLaunch, Sharing, bytes_of
from vyre.backends.cpu.layout import Ending, Reason
from vyre.backends.cpu.pool import Pool
from vyre.backends.cpu.tables import Table
from vyre.backends.cpu.tuning import Tuner
from vyre.driver import trace
from vyre.driver.device import Handle, PreparedSchedule, Ran, RunOptions, Use
from vyre.errors import DeviceOutOfMemory
from vyre.ir.binding import Array
from vyre.lower.schedule import LaunchSchedule

if TYPE_CHECKING:
    from vyre.backends.cpu.device import CpuDevice

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
        self._tuner = None if self._launch is None else self._made_tuner(self._launch)
        self._is_kept_small = sum(schedule.own_bytes) <= _MOST_KEPT_BYTES
        # Tables of what runs once and of what is repeated, that no run is using.
        self._spare: list[tuple[Table, Table]] = []
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
        launch, tuner = self._launch, self._tuner
        assert launch is not None  # else the tables are walked
        if tuner is None:
            stopped = self._device.pool.run(launch, memory, options.config.timeout_s)
        else:
            launch = tuner.next()
            start = perf_counter()
            stopped = self._device.pool.run(launch, memory, options.config.timeout_s)
            if not stopped:
                tuner.note(launch, perf_counter() - start)
        if stopped:
            run_again(self._device.pool, launch, memory, options, stopped)
        return Ran(use(_read(memory, reads)), 1, None, 1) if reads else _RAN

    def _made_tuner(self, launch: PreparedLaunch) -> Tuner | None:
        """Return what compares the launch with other variants of its code, if there are any."""
        one, sharing = self._schedule.first[0].launches[0], self._device.pool.sharing
        code, grid = one.code, one.launch.grid
        chosen, *others = code.candidates(grid)
        if not others:
            return None
        widths = {launch: chosen}

        def prepare(width: int) -> PreparedLaunch:
            made = PreparedLaunch(code.for_launch(grid, width), one.program, one.launch, sharing)
            widths[made] = width
            return made

        def choose(fastest: PreparedLaunch) -> None:
            self._launch, self._tuner = fastest, None
            code.keep(grid, widths[fastest])

        return Tuner(launch, [partial(prepare, width) for width in others], choose)

    def _walked(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        schedule, pool = self._schedule, self._device.pool
        arrays = _aligned(memory)
        with self._lock:
            tables = self._spare.pop() if self._spare else None
        if tables is None:
            first, repeat = (Table(schedule, parts, pool.sharing) for parts in (schedule.first, schedule.repeat))
        else:
            first, repeat = tables
        passes, converged = 1, None
        if schedule.first:
            first.run(pool, arrays, 1, None, options)
        if schedule.repeat:
            ending = repeat.run(pool, arrays, schedule.times, schedule.until, options)
            passes = repeat.passes
            converged = None if schedule.until is None else ending is Ending.UNCHANGED
        decisions = first.decisions + repeat.decisions
        segments = first.straight + passes * repeat.straight + decisions
        launches = segments + first.copies + passes * repeat.copies
        if self._is_kept_small:
            with self._lock:
                if not self._spare:
                    self._spare.append((first, repeat))
        _copy_back(arrays, memory)
        return Ran(use(_read(memory, reads)), passes, converged, launches, decisions, segments=segments)


def run_again(pool: Pool, launch: PreparedLaunch, memory: Sequence[Array], options: RunOptions, stopped: int) -> None:
    """Run a launch again on aligned copies of memory, or say why it did not end by itself."""
    if stopped == Reason.MISALIGNED:
        aligned = _aligned(memory)
        stopped = pool.run(launch, aligned, options.config.timeout_s)
        _copy_back(aligned, memory)
    if stopped == Reason.TIMED_OUT:
        raise options.timeout()
    if stopped:
        raise DeviceOutOfMemory(launch.launch.kernel.kernel.scratch_bytes)


def _aligned(memory: Sequence[Array]) -> list[Array]:
    """The arrays, and aligned copies of those that are not."""
    return [array if array.flags.aligned else array.copy() for array in memory]


def _copy_back(aligned: Sequence[Array], memory: Sequence[Array]) -> None:
    for array, copied in zip(memory, aligned, strict=True):
        if copied is not array and array.flags.writeable:
            array[...] = copied


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
    return PreparedLaunch(one.code.for_launch(one.launch.grid), one.program, one.launch, sharing)


def _read(memory: Sequence[Array], reads: Sequence[tuple[int, int, int]]) -> list[Array]:
    return [bytes_of(memory[number])[offset : offset + length] for number, offset, length in reads]


def _described(schedule: LaunchSchedule) -> dict[str, Any]:
    """The name and the grid of a schedule's first launch, for a trace."""
    if not schedule.parts:
        return {}
    plan = schedule.parts[0].plan
    return {"program": plan.source.name, "grid": plan.launch.grid}
