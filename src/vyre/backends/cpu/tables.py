"""Tables of launches that the native runtime walks in one call.

A node is a launch, what to clear or copy before it, and which node is next: one, or what the control word says. The
memory that segments share is the table's own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from vyre.backends.cpu.interrupts import raise_interrupt
from vyre.backends.cpu.launches import KernelLaunch, Sharing, address_of, aligned_bytes, bytes_of
from vyre.backends.cpu.layout import WORD_BYTES, Block, Edit, Ending, Job, Node, Reason, Run, Slot
from vyre.backends.cpu.pool import Pool, stopping_after
from vyre.driver.device import RunOptions
from vyre.driver.traps import answer_traps
from vyre.errors import DeviceOutOfMemory, Timeout, VyreError, locate
from vyre.ir.binding import Array
from vyre.lower.schedule import Clear, ConvergenceTest, LaunchSchedule, Part, ScheduledLaunch, host_buffers

# Where an address comes from, as a number: the table itself, its state, or from here on what the caller gives.
_TABLE: Final = 0
_STATE: Final = 1
_GIVEN: Final = 2
# A space, and an offset in bytes.
_Address = tuple[int, int]
_LINE: Final = 64


class Table:
    """Parts of a schedule as native code reads them (``layout.Run``), and their state; for one walk at a time."""

    def __init__(
        self,
        schedule: LaunchSchedule,
        parts: Sequence[Part],
        sharing: Sharing,
        given: Sequence[Mapping[str, int]] = (),
    ) -> None:
        """``given`` says, for each part, which of the counts of a run are the element counts of which buffers."""
        self.parts = parts
        self._launches = [one for part in parts for one in part.launches]
        self.straight = sum(not one.decides and not one.is_copy for one in self._launches)
        self.copies = sum(one.is_copy for one in self._launches)
        self._kernels = [
            KernelLaunch(one.code.for_launch(one.launch.grid), one.launch, sharing) for one in self._launches
        ]
        self._is_shared = any(kernel.grain is not None for kernel in self._kernels)
        writer = _Writer(schedule, len(self._launches))
        self._starts: list[int] = []
        number = 0
        for order, part in enumerate(parts):
            self._starts.append(number)
            counts = given[order] if given else {}
            for one in part.launches:
                writer.node(number, self._kernels[number], one, counts)
                if one.decides:
                    writer.exits(number, part, self._starts[order])
                number += 1
            if part.rows is not None:
                # The host reads the rows, whichever launches are bound to them.
                writer.address(part.rows)
        self.places = writer.places
        try:
            self.state = aligned_bytes(writer.state_bytes)
        except MemoryError:
            raise DeviceOutOfMemory(writer.state_bytes) from None
        self._words = np.array(writer.words, np.int64)
        self._pointers, self._spaces, self._offsets = np.array(writer.pointers, np.int64).T.copy()

    @property
    def passes(self) -> int:
        return int(self._words[Run.PASSES])

    @property
    def decisions(self) -> int:
        """How many control words were read."""
        return int(self._words[Run.DECISIONS])

    def run(
        self,
        pool: Pool,
        memory: Sequence[Array],
        times: int,
        test: ConvergenceTest | None,
        options: RunOptions,
        counts: Sequence[int] = (),
    ) -> Ending:
        """Walk the nodes up to so many times, or until a pass satisfies the test."""
        words, timeout_s = self._words, options.config.timeout_s
        bases = np.array([address_of(words), address_of(self.state), *map(address_of, memory), *counts], np.int64)
        words[self._pointers] = self._offsets + bases[self._spaces]
        words[Run.AT : Run.WORDS] = 0
        words[Run.TIMES] = times
        if test is not None:
            follows = test.kind == "unchanged"
            watched = [bytes_of(memory[number])[:size] for number, size in test.watched]
            shadows = [array.copy() if follows else np.zeros_like(array) for array in watched]
            pairs = zip(watched, shadows, strict=True)
            # The words of a `layout.Watch` for each pair.
            watches = np.array([w for a, b in pairs for w in (address_of(a), address_of(b), a.nbytes)], np.int64)
            words[Run.WATCHES], words[Run.WATCH_COUNT] = address_of(watches), len(watched)
            words[Run.FOLLOWS] = follows
        with stopping_after(timeout_s, words, Run.STOP):
            while (ending := pool.walk(int(bases[0]), shared=self._is_shared)) is Ending.ASKED:
                words[Run.AT], words[Run.ASKS] = self._answer(int(words[Run.AT]), memory, options)
        if ending is Ending.STOPPED:
            raise self._stopped(timeout_s)
        return ending

    def _answer(self, node: int, memory: Sequence[Array], options: RunOptions) -> tuple[int, bool]:
        """Handle what waiting invocations ask for; return the next node, and whether to ask after each from then on."""
        order = bisect_right(self._starts, node) - 1
        part = self.parts[order]
        assert part.control is not None  # a part with traps has a control word
        try:
            following = self.state_words(part.control, 0, 1)[0]
            exit_, waits = answer_traps(part, _PartMemory(self, part, memory), options.config, following)
        except Exception as error:
            if len(part.launches) > 1:
                locate(error, self._launches[node].label)
            raise
        return self._starts[order] + part.exits[exit_], waits

    def state_words(self, number: int, start: int, count: int) -> list[int]:
        """Words of 32 bits of one of the schedule's own memories."""
        first = self.places[number] // 4 + start
        words: list[int] = self.state.view("<u4")[first : first + count].tolist()
        return words

    def _stopped(self, timeout_s: float | None) -> VyreError:
        node = int(self._words[Run.AT])
        reason = int(self._words[Run.STOP])
        if reason == Reason.INTERRUPTED:
            raise_interrupt()
        scratch = self._kernels[node].kernel.kernel.scratch_bytes
        error = Timeout(timeout_s or 0.0) if reason == Reason.TIMED_OUT else DeviceOutOfMemory(scratch)
        if len(self._launches) > 1:
            locate(error, self._launches[node].label)
        return error


class _Writer:
    """The words of a table, and which of them are addresses or counts that are known when it is walked."""

    def __init__(self, schedule: LaunchSchedule, nodes: int) -> None:
        self._schedule = schedule
        self.words = [0] * (Run.WORDS + Node.WORDS * nodes)
        self.pointers: list[tuple[int, int, int]] = []
        # Where in the state the schedule's own memories are, those that are used here.
        self.places: dict[int, int] = {}
        self.state_bytes = 0
        self._point(Run.NODES, (_TABLE, WORD_BYTES * Run.WORDS))
        self.words[Run.COUNT] = nodes

    def address(self, number: int) -> _Address:
        """Where a memory of the schedule is."""
        bound = self._schedule.bound
        if number < bound:
            return _GIVEN + number, 0
        if number not in self.places:
            self.places[number] = self._reserve(self._schedule.own_bytes[number - bound])
        return _STATE, self.places[number]

    def _reserve(self, byte_len: int) -> int:
        place = self.state_bytes
        self.state_bytes += -(-byte_len // _LINE) * _LINE
        return place

    def _point(self, place: int, target: _Address) -> None:
        self.pointers.append((place, *target))

    def _append(self, pointer: int, count: int) -> int:
        """Append zero words and point to them; return the index of the first."""
        first = len(self.words)
        self._point(pointer, (_TABLE, WORD_BYTES * first))
        self.words.extend([0] * count)
        return first

    def node(self, number: int, kernel: KernelLaunch, one: ScheduledLaunch, given: Mapping[str, int]) -> None:
        """Write a launch that is followed by the next node; ``given`` are buffers whose counts come with each run."""
        words, stop = self.words, (_TABLE, WORD_BYTES * Run.STOP)
        at = Run.WORDS + Node.WORDS * number
        job = at + Node.JOB
        words[job + Job.KERNEL], words[job + Job.TOTAL] = kernel.kernel.address, kernel.total
        words[job + Job.GRAIN] = kernel.grain or max(1, kernel.total)
        self._point(job + Job.STOP, stop)
        words[at + Node.SHARED] = kernel.grain is not None
        words[at + Node.FOLLOWING] = number + 1
        names = kernel.kernel.kernel.buffers
        block = self._append(job + Job.BLOCK, Block.WORDS + Slot.WORDS * len(names))
        self._point(block + Block.STOP, stop)
        words[block + Block.GRID : block + Block.WORDS] = kernel.grid
        slot = block + Block.WORDS
        memory = dict(zip((decl.name for decl in host_buffers(one.program)), one.memory, strict=True))
        for name in names[: len(memory)]:
            self._point(slot + Slot.ADDRESS, self.address(memory[name]))
            if name in given:
                self._point(slot + Slot.LENGTH, (_GIVEN + self._schedule.bound + given[name], 0))
            else:
                words[slot + Slot.LENGTH] = one.launch.counts[name]
            slot += Slot.WORDS
        for count in kernel.captures:
            self._point(slot + Slot.ADDRESS, (_STATE, self._reserve(4 * count)))
            words[slot + Slot.LENGTH] = count
            slot += Slot.WORDS
        words[at + Node.EDIT_COUNT] = len(one.edits)
        edit = self._append(at + Node.EDITS, Edit.WORDS * len(one.edits))
        for change in one.edits:
            if isinstance(change, Clear):
                self._point(edit + Edit.TARGET, self.address(change.memory))
            else:
                self._point(edit + Edit.TARGET, self.address(change.reads))
                self._point(edit + Edit.SOURCE, self.address(change.written))
            words[edit + Edit.BYTES] = change.byte_len
            edit += Edit.WORDS

    def exits(self, number: int, part: Part, start: int) -> None:
        """Let the control word of a part, whose first node is ``start``, say which node follows."""
        assert part.control is not None  # a launch that decides has a control word
        at = Run.WORDS + Node.WORDS * number
        exits = self._append(at + Node.EXITS, len(part.exits))
        self.words[exits:] = [start + exit_ for exit_ in part.exits]
        self._point(at + Node.CONTROL, self.address(part.control))


class _PartMemory:
    """The memory of a part, as a trap handler sees it."""

    def __init__(self, table: Table, part: Part, memory: Sequence[Array]) -> None:
        self._table = table
        self._part = part
        counts = part.plan.launch.counts
        self._own = {
            decl.name: bytes_of(memory[number])[: counts[decl.name] * decl.dtype.bytes].view(decl.dtype.storage)
            for decl, number in zip(host_buffers(part.plan.source), part.own, strict=True)
        }

    def rows(self, start: int, count: int) -> list[int]:
        assert self._part.rows is not None  # a part with traps has rows
        return self._table.state_words(self._part.rows, start, count)

    def arrays(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._own.items()}

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self._own[name][:] = array
