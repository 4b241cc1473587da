"""Tables of launches that the native runtime walks in one call.

A node is a launch, what to clear or copy before it, and which node is next: one, or what the control word says. The
memory that segments share is the table's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from vyre.backends.cpu import layout
from vyre.backends.cpu.interrupts import raise_interrupt
from vyre.backends.cpu.launches import KernelLaunch, address_of, aligned_bytes
from vyre.backends.cpu.layout import WORD_BYTES, Block, Ending, Job, Reason, Run, Slot
from vyre.backends.cpu.pool import TIMED_OUT, Pool, stopping_after
from vyre.errors import DeviceOutOfMemory, Timeout, VyreError, locate
from vyre.ir.binding import Array

# Where an address comes from, as a number: the table itself, the state, or from here on what the caller gives.
_TABLE: Final = 0
_STATE: Final = 1
_OWN: Final = 2


class Address(msgspec.Struct, frozen=True):
    """A place in memory, or a count, that is known when the table is walked."""

    space: int
    offset: int = 0


Count = int | Address


def in_state(offset: int) -> Address:
    """A place in the table's own memory."""
    return Address(_STATE, offset)


def own(number: int) -> Address:
    """The memory with this number that the caller gives; behind the memory, the counts."""
    return Address(_OWN + number)


class Edit(msgspec.Struct, frozen=True):
    """Bytes to copy before a launch; without a source, to clear."""

    target: Address
    source: Address | None
    size: int


class Node(msgspec.Struct, frozen=True, eq=False):
    """A launch in a table. ``buffers`` are the addresses and counts of the kernel's buffers, in its order.

    ``following`` is the next node; where there is ``control``, ``exits`` are the next nodes by its first word.
    """

    launch: KernelLaunch
    buffers: Sequence[tuple[Address, Count]]
    following: int
    edits: Sequence[Edit]
    exits: Sequence[int]
    control: Address | None
    label: str


class Watch(msgspec.Struct, frozen=True, eq=False):
    """Memory that ends a walk when a pass leaves it as its shadow is; the shadow may follow the memory."""

    memory: Sequence[Array]
    shadows: Sequence[Array]
    follows: bool


class Table:
    """Nodes as native code reads them (``layout.Run``), and their state; for one walk at a time."""

    def __init__(self, nodes: Sequence[Node], state_bytes: int) -> None:
        self.nodes = nodes
        self._is_shared = any(node.launch.grain is not None for node in nodes)
        try:
            self.state = aligned_bytes(state_bytes)
        except MemoryError:
            raise DeviceOutOfMemory(state_bytes) from None
        words = [0] * (Run.WORDS + layout.Node.WORDS * len(nodes))
        pointers: list[tuple[int, int, int]] = []

        def point(place: int, target: Address) -> None:
            pointers.append((place, target.space, target.offset))

        def append(pointer: int, count: int) -> int:
            """Append zero words and point to them; return the index of the first."""
            point(pointer, Address(_TABLE, WORD_BYTES * len(words)))
            words.extend([0] * count)
            return len(words) - count

        point(Run.NODES, Address(_TABLE, WORD_BYTES * Run.WORDS))
        words[Run.COUNT] = len(nodes)
        stop = Address(_TABLE, WORD_BYTES * Run.STOP)
        for number, node in enumerate(nodes):
            at = Run.WORDS + layout.Node.WORDS * number
            job = at + layout.Node.JOB
            launch = node.launch
            words[job + Job.KERNEL], words[job + Job.TOTAL] = launch.kernel.address, launch.total
            words[job + Job.GRAIN] = launch.grain or max(1, launch.total)
            point(job + Job.STOP, stop)
            words[at + layout.Node.SHARED] = launch.grain is not None
            words[at + layout.Node.FOLLOWING] = node.following
            block = append(job + Job.BLOCK, Block.WORDS + Slot.WORDS * len(node.buffers))
            point(block + Block.STOP, stop)
            words[block + Block.GRID : block + Block.WORDS] = launch.grid
            for place, (address, count) in enumerate(node.buffers):
                slot = block + Block.WORDS + Slot.WORDS * place
                point(slot + Slot.ADDRESS, address)
                if isinstance(count, Address):
                    point(slot + Slot.LENGTH, count)
                else:
                    words[slot + Slot.LENGTH] = count
            words[at + layout.Node.EDIT_COUNT] = len(node.edits)
            edits = append(at + layout.Node.EDITS, layout.Edit.WORDS * len(node.edits))
            for place, change in enumerate(node.edits):
                edit = edits + layout.Edit.WORDS * place
                point(edit + layout.Edit.TARGET, change.target)
                if change.source is not None:
                    point(edit + layout.Edit.SOURCE, change.source)
                words[edit + layout.Edit.BYTES] = change.size
            if node.control is not None:
                exits = append(at + layout.Node.EXITS, len(node.exits))
                words[exits:] = node.exits
                point(at + layout.Node.CONTROL, node.control)
        self.words = np.array(words, np.int64)
        self._places, self._spaces, self._offsets = np.array(pointers, np.int64).T.copy()

    @property
    def passes(self) -> int:
        return int(self.words[Run.PASSES])

    @property
    def decisions(self) -> int:
        """How many control words were read."""
        return int(self.words[Run.DECISIONS])

    def run(
        self,
        pool: Pool,
        memory: Sequence[Array],
        times: int,
        watch: Watch | None,
        timeout_s: float | None = None,
        answer: Callable[[int], tuple[int, bool]] | None = None,
        counts: Sequence[int] = (),
    ) -> Ending:
        """Walks the nodes up to so many times, or until what is watched tells to stop.

        ``answer`` is asked where invocations wait for the host: after which node; which node is next, and whether to
        ask after each from then on.
        """
        words = self.words
        bases = np.array([address_of(words), address_of(self.state), *map(address_of, memory), *counts], np.int64)
        words[self._places] = self._offsets + bases[self._spaces]
        words[Run.AT : Run.WORDS] = 0
        words[Run.TIMES] = times
        watched = np.zeros(1, np.int64)
        if watch is not None:
            # The words of a `layout.Watch` for each pair.
            pairs = zip(watch.memory, watch.shadows, strict=True)
            watched = np.array([0, *(w for a, b in pairs for w in (address_of(a), address_of(b), a.nbytes))], np.int64)
            words[Run.WATCHES], words[Run.WATCH_COUNT] = address_of(watched) + WORD_BYTES, len(watch.memory)
            words[Run.FOLLOWS] = watch.follows
        with stopping_after(timeout_s, words, Run.STOP):
            while (ending := pool.walk(int(bases[0]), shared=self._is_shared)) is Ending.ASKED:
                assert answer is not None  # only invocations that trapped ask
                words[Run.AT], words[Run.ASKS] = answer(int(words[Run.AT]))
        if ending is Ending.STOPPED:
            raise self._stopped(timeout_s)
        return ending

    def _stopped(self, timeout_s: float | None) -> VyreError:
        node = self.nodes[int(self.words[Run.AT])]
        reason = int(self.words[Run.STOP])
        if reason == Reason.INTERRUPTED:
            raise_interrupt()
        scratch = node.launch.kernel.kernel.scratch_bytes
        error = Timeout(timeout_s or 0.0) if reason == TIMED_OUT else DeviceOutOfMemory(scratch)
        if len(self.nodes) > 1:
            locate(error, node.label)
        return error
