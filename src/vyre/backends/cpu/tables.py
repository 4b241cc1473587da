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

from vyre.backends.cpu import layout
from vyre.backends.cpu.interrupts import raise_interrupt
from vyre.backends.cpu.kernels import CompiledKernel, Kernels
from vyre.backends.cpu.launches import KernelLaunch, Sharing, address_of, aligned_bytes
from vyre.backends.cpu.layout import WORD_BYTES, Block, Ending, Job, Reason, Run, Slot
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
