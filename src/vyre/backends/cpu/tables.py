"""Tables of launches that the native runtime walks in one call.

A node is a launch, what to clear or copy before it, and which node is next: one, or what the control word says. The
memory that segments share is the table's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from vyre.backends.cpu.launches import KernelLaunch, address_of, aligned_bytes
from vyre.backends.cpu.native import Ending
from vyre.backends.cpu.pool import TIMED_OUT, Pool, stopping_after
from vyre.errors import DeviceOutOfMemory, Timeout, VyreError, locate
from vyre.ir.binding import Array

# Where an address comes from, as a number: the table itself, the state, or from here on what the caller gives.
_TABLE: Final = 0
_STATE: Final = 1
_OWN: Final = 2
# The stop word is behind the others, on a cache line that is not written while kernels look at it.
_RUN_WORDS: Final = 32
_STOP: Final = 20
_AT, _PASSES, _TIMES, _WATCHES, _WATCHED, _FOLLOWS, _ASKS, _DECISIONS = range(2, 10)
_NODE_WORDS: Final = 11


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
    """Nodes as native code reads them, and their state; for one walk at a time."""

    def __init__(self, nodes: Sequence[Node], state_bytes: int) -> None:
        self.nodes = nodes
        self._is_shared = any(node.launch.grain is not None for node in nodes)
        try:
            self.state = aligned_bytes(state_bytes)
        except MemoryError:
            raise DeviceOutOfMemory(state_bytes) from None
        words = [0] * (_RUN_WORDS + _NODE_WORDS * len(nodes))
        pointers: list[tuple[int, int, int]] = []

        def point(place: int, target: Address) -> None:
            pointers.append((place, target.space, target.offset))

        def place_list(place: int, count: int) -> int:
            """Lets a word point to so many new words behind all others; the first of them."""
            point(place, Address(_TABLE, 8 * len(words)))
            words.extend([0] * count)
            return len(words) - count

        point(0, Address(_TABLE, 8 * _RUN_WORDS))
        words[1] = len(nodes)
        stop = Address(_TABLE, 8 * _STOP)
        for number, node in enumerate(nodes):
            at = _RUN_WORDS + _NODE_WORDS * number
            launch = node.launch
            grain = launch.grain or max(1, launch.total)
            words[at : at + 6] = launch.kernel.address, 0, launch.total, grain, 0, int(launch.grain is not None)
            words[at + 7 : at + 9] = len(node.edits), node.following
            block = place_list(at + 1, 4 + 2 * len(node.buffers))
            point(at + 4, stop)
            point(block, stop)
            words[block + 1 : block + 4] = launch.grid
            for place, (address, count) in enumerate(node.buffers):
                point(block + 4 + 2 * place, address)
                if isinstance(count, Address):
                    point(block + 5 + 2 * place, count)
                else:
                    words[block + 5 + 2 * place] = count
            edit = place_list(at + 6, 3 * len(node.edits))
            for place, change in enumerate(node.edits):
                point(edit + 3 * place, change.target)
                if change.source is not None:
                    point(edit + 3 * place + 1, change.source)
                words[edit + 3 * place + 2] = change.size
            if node.control is not None:
                exits = place_list(at + 9, len(node.exits))
                words[exits:] = node.exits
                point(at + 10, node.control)
        self.words = np.array(words, np.int64)
        self._places, self._spaces, self._offsets = np.array(pointers, np.int64).T.copy()

    @property
    def passes(self) -> int:
        return int(self.words[_PASSES])

    @property
    def decisions(self) -> int:
        """How many control words were read."""
        return int(self.words[_DECISIONS])

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
        words[_AT:_RUN_WORDS] = 0
        words[_TIMES] = times
        watched = np.zeros(1, np.int64)
        if watch is not None:
            pairs = zip(watch.memory, watch.shadows, strict=True)
            watched = np.array([0, *(w for a, b in pairs for w in (address_of(a), address_of(b), a.nbytes))], np.int64)
            words[_WATCHES : _WATCHED + 1] = address_of(watched) + 8, len(watch.memory)
            words[_FOLLOWS] = watch.follows
        with stopping_after(timeout_s, words, _STOP):
            while (ending := pool.walk(int(bases[0]), shared=self._is_shared)) is Ending.ASKED:
                assert answer is not None  # only invocations that trapped ask
                words[_AT], words[_ASKS] = answer(int(words[_AT]))
        if ending is Ending.STOPPED:
            raise self._stopped(timeout_s)
        return ending

    def _stopped(self, timeout_s: float | None) -> VyreError:
        node = self.nodes[int(self.words[_AT])]
        reason = int(self.words[_STOP])
        scratch = node.launch.kernel.kernel.scratch_bytes
        error = Timeout(timeout_s or 0.0) if reason == TIMED_OUT else DeviceOutOfMemory(scratch)
        if len(self.nodes) > 1:
            locate(error, node.label)
        return error
