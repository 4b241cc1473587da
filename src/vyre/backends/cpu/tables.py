"""How do launches follow one another in one native call? From a table that ``native`` walks.

A node is a launch, what to clear or copy before it, and which node is next: one, or what the control word says. The
table of a program has the segments between its grid barriers; that of a sequence has the programs of its steps, one
after another. The memory that segments share is the table's own, and a program's table is used again by later calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np

from vyre.backends.cpu.kernels import CompiledKernel, Kernels
from vyre.backends.cpu.launches import KernelLaunch, Sharing, address_of, aligned_bytes
from vyre.backends.cpu.native import Ending
from vyre.backends.cpu.pool import TIMED_OUT, Pool, stopping_after
from vyre.driver.binding import BindingPlan
from vyre.driver.config import DispatchConfig
from vyre.driver.fixpoint import Passes, count_passes
from vyre.driver.segments import answer_traps, count_segments
from vyre.errors import DeviceOutOfMemory, Timeout, VyreError
from vyre.ir.binding import Array
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, plan_grid_sync

# Where an address comes from, as a number: the table itself, the state, or from here on what the caller gives.
_TABLE: Final = 0
_STATE: Final = 1
_OWN: Final = 2
# The stop word is behind the others, on a cache line that is not written while kernels look at it.
_RUN_WORDS: Final = 32
_STOP: Final = 20
_AT, _PASSES, _TIMES, _WATCHES, _WATCHED, _FOLLOWS, _ASKS, _DECISIONS = range(2, 10)
_NODE_WORDS: Final = 11
_LINE: Final = 64
# A larger state takes long enough to work through that new memory for each call is no matter.
_MOST_KEPT_BYTES: Final = 1 << 24


class Address(msgspec.Struct, frozen=True):
    """A place in memory, or a count, that is known when the table is walked."""

    space: int
    offset: int = 0


Count = int | Address


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


class Walked(msgspec.Struct, frozen=True, eq=False):
    """A program in a table: its plan, its nodes by segment (the first: what follows it), where its state begins."""

    plan: GridSyncPlan
    exits: Sequence[int]
    state: Mapping[str, int]


class Nodes:
    """Nodes of one program after another, and how much state they need."""

    def __init__(self, kernels: Kernels, sharing: Sharing) -> None:
        self.all: list[Node] = []
        self.state_bytes = 0
        self._kernels = kernels
        self._sharing = sharing

    def add(
        self, plan: BindingPlan, memory: Sequence[Address], *, optimize: bool, clears: Sequence[Edit] = (), label: str
    ) -> Walked:
        """Adds a program whose buffers are at these addresses, by descriptor; ``clears`` come before it starts."""
        cut = plan_grid_sync(plan.program, plan.launch, checked=True)
        held: dict[str, tuple[Address, Count]] = {
            slot.name: (place, slot.count) for slot, place in zip(plan.descriptors, memory, strict=True)
        }
        get = partial(self._kernels.get, grid=cut.launch.grid, optimize=optimize, whole=plan.program)
        return self.add_cut(cut, held, get, clears, label)

    def add_cut(
        self,
        cut: GridSyncPlan,
        held: dict[str, tuple[Address, Count]],
        kernel_of: Callable[[Program], CompiledKernel],
        clears: Sequence[Edit],
        label: str,
    ) -> Walked:
        """Adds a program that was cut, whose buffers are ``held`` at addresses, with their counts."""
        turned: dict[int, list[Edit]] = {}
        for state in cut.state:
            place = self._state(state.bytes)
            held[state.name] = place, state.words
            if state.read_name is not None:
                # Where a segment writes what it reads, what was written last is copied for it.
                read = place if state.copies == 1 else self._state(state.bytes)
                held[state.read_name] = read, state.words
                if state.copies > 1:
                    turned.setdefault(state.segment, []).append(Edit(read, place, state.bytes))
        starts: list[int] = []
        end = len(self.all)
        for segment in cut.segments:
            starts.append(end)
            end += 1 if segment.before is None else 2
        exits = [end, *starts[1:]]
        control = None if cut.straight else held[cut.control][0]
        for order, segment in enumerate(cut.segments):
            edits = clears if order == 0 else turned.get(order, ())
            where = label if len(cut.segments) == 1 else f"segment {order} of {label} ({segment.label})"
            if segment.before is not None:
                self._node(kernel_of(segment.before), cut.launch, held, edits, (), None, where)
                edits = ()
            self._node(kernel_of(segment.program), cut.launch, held, edits, exits, control, where)
        return Walked(cut, exits, {state.name: held[state.name][0].offset for state in cut.state})

    def _state(self, size: int) -> Address:
        place = Address(_STATE, self.state_bytes)
        self.state_bytes += -(-size // _LINE) * _LINE
        return place

    def _node(
        self,
        kernel: CompiledKernel,
        launch: Launch,
        held: Mapping[str, tuple[Address, Count]],
        edits: Sequence[Edit],
        exits: Sequence[int],
        control: Address | None,
        label: str,
    ) -> None:
        prepared = KernelLaunch(kernel, launch, self._sharing)
        names = kernel.kernel.buffers
        buffers = [held[name] for name in names[: len(names) - len(prepared.captures)]]
        buffers += [(self._state(4 * count), count) for count in prepared.captures]
        self.all.append(Node(prepared, buffers, len(self.all) + 1, edits, exits, control, label))


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
        error.add_note(f"in {node.label}")
        return error


class WalkedProgram:
    """A plan whose run is a walk: over the segments between its grid barriers, or in several passes."""

    def __init__(self, plan: BindingPlan, kernels: Kernels, sharing: Sharing, *, optimize: bool) -> None:
        nodes = Nodes(kernels, sharing)
        memory = [own(number) for number in range(len(plan.descriptors))]
        self.plan = plan
        self.walked = nodes.add(plan, memory, optimize=optimize, label=f"'{plan.program.name}'")
        self._nodes, self._state_bytes = nodes.all, nodes.state_bytes
        self._spare: list[Table] = []

    def run(self, pool: Pool, memory: Sequence[Array], written: Sequence[Array], config: DispatchConfig) -> Passes:
        """Runs all passes on memory in the order of the plan's descriptors; ``written`` is what it changes."""
        try:
            table = self._spare.pop()
        except IndexError:
            table = Table(self._nodes, self._state_bytes)
        watch = None if config.passes == 1 else Watch(written, [array.copy() for array in written], follows=True)
        answer = _Traps(self, table, memory, config).answer if self.walked.plan.parkings else None
        ending = table.run(pool, memory, config.passes, watch, config.timeout_s, answer)
        passes = Passes(table.passes, None if watch is None else ending is Ending.UNCHANGED)
        if watch is not None:
            count_passes(passes)
        segments = self.walked.plan.segments
        if len(segments) > 1:
            straight = self.walked.plan.straight
            count_segments(passes.passes * len(segments) if straight else table.decisions, passes.passes)
        if not self._spare and self._state_bytes <= _MOST_KEPT_BYTES:
            self._spare.append(table)
        return passes


class _Traps:
    """The memory of a run, as the host sees it when invocations wait for it."""

    def __init__(self, program: WalkedProgram, table: Table, memory: Sequence[Array], config: DispatchConfig) -> None:
        self._walked = program.walked
        self._table = table
        self._config = config
        self._own = {
            slot.name: array.view(np.uint8)[: slot.byte_size].view(slot.dtype.storage)
            for slot, array in zip(program.plan.descriptors, memory, strict=True)
        }

    def answer(self, node: int) -> tuple[int, bool]:
        """Which node is next, after the host has handled what it is asked for now, and whether somebody still waits."""
        plan, exits = self._walked.plan, self._walked.exits
        try:
            following, waits = answer_traps(plan, self, self._config, self.words(plan.control, 0, 1)[0])
        except Exception as error:
            error.add_note(f"in {self._table.nodes[node].label}")
            raise
        return exits[following], waits

    def words(self, name: str, start: int, count: int) -> list[int]:
        first = self._walked.state[name] // 4 + start
        words: list[int] = self._table.state.view("<u4")[first : first + count].tolist()
        return words

    def arrays(self) -> dict[str, Array]:
        return {name: array.copy() for name, array in self._own.items()}

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            self._own[name][:] = array
