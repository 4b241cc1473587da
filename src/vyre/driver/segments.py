"""How does a plan run? Segment by segment, in whatever memory the segments share.

The control word tells the next segment. Invocations that trapped wait in their rows for the host: at the resume of
their tag the handler gets all their requests; a request that nobody can handle ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from vyre.driver import telemetry
from vyre.driver.config import DispatchConfig
from vyre.driver.outputs import byte_view
from vyre.driver.resident import ReadRange, ResidentBuffer
from vyre.driver.timing import TimedResult, Timing
from vyre.errors import BadInputs, DispatchFailed, Timeout, TrapRaised
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.program import Program
from vyre.ir.traps import TrapRequest
from vyre.lower.plan import DONE, GridSyncPlan
from vyre.lower.state import FIRST_PARKED, Parking

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

# A piece of memory: the name of a buffer, and which copy of it.
Key = tuple[str, int]


class DrivenSegments(msgspec.Struct, frozen=True):
    """What a device that drove segments by itself ran, and how often it asked the host whether to go on."""

    launched: int
    decisions: int
    timing: Timing


class WaitingMemory(Protocol):
    """Where the buffers of a cut program are while invocations of it wait for the host."""

    def words(self, name: str, start: int, count: int) -> list[int]:
        """Some of the words of a buffer of state."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Copies of the program's own buffers."""
        ...

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        """Replaces the program's own buffers."""
        ...


class Memory(WaitingMemory, Protocol):
    """The same, and who runs its segments."""

    def launch(self, program: Program, bound: Mapping[str, Key]) -> None:
        """Runs a program; each of its buffers is the memory that ``bound`` names."""
        ...

    def clear(self, name: str) -> None:
        """Sets a buffer to zero."""
        ...


class Turns:
    """Which copy of each state buffer is written now."""

    def __init__(self, plan: GridSyncPlan) -> None:
        self.plan = plan
        self.own = {decl.name: (decl.name, 0) for decl in plan.source.buffers}
        self.current = {state.name: 0 for state in plan.state}

    def bound(self, order: int) -> dict[str, Key]:
        """The memory of each buffer for a launch of a segment, which is told by calling this in turn."""
        keys = dict(self.own)
        for state in self.plan.state:
            if state.read_name is not None and state.segment == order:
                keys[state.read_name] = state.name, self.current[state.name]
                self.current[state.name] = (self.current[state.name] + 1) % state.copies
            keys[state.name] = state.name, self.current[state.name]
        return keys


def run_segments(plan: GridSyncPlan, memory: Memory, config: DispatchConfig) -> int:
    """Runs a program from its start to its end; the number of segments that were launched."""
    turns = Turns(plan)
    deadline = None if config.timeout_s is None else perf_counter() + config.timeout_s
    at = launched = 0
    somebody_waits = False
    while True:
        segment = plan.segments[at]
        try:
            if segment.before is not None:
                memory.launch(segment.before, turns.own)
            if plan.straight:
                memory.launch(segment.program, turns.bound(at))
                following = at + 1 if at + 1 < len(plan.segments) else DONE
            else:
                memory.clear(plan.control)
                memory.launch(segment.program, turns.bound(at))
                following, asked = memory.words(plan.control, 0, 2)
                telemetry.count(grid_sync_decisions=1)
                somebody_waits |= bool(asked)
                if somebody_waits:
                    following, somebody_waits = answer_traps(plan, memory, config, following)
        except Exception as error:
            error.add_note(f"in segment {at} of '{plan.source.name}' ({segment.label})")
            raise
        launched += 1
        if following == DONE:
            return launched
        if deadline is not None and perf_counter() > deadline:
            raise Timeout(config.timeout_s or 0)
        at = following


def count_segments(launched: int, runs: int) -> None:
    """Counts a cut program that launched so many segments in so many runs from its start to its end."""
    telemetry.count(grid_sync_splits=1, grid_sync_segments=launched, grid_sync_points=launched - runs)


def answer_traps(plan: GridSyncPlan, memory: WaitingMemory, config: DispatchConfig, following: int) -> tuple[int, bool]:
    """Handles the requests for the next segment; says which that is, and whether somebody still waits then."""
    handlers = config.handlers or {}
    requests = _requests(plan, memory)
    lost = [one for parking, asked in requests.items() if not _has_handler(parking, handlers) for one in asked]
    if lost:
        first = min(lost)
        raise TrapRaised(first.tag, first.address, first.invocation)
    waiting = {parking.resume: asked for parking, asked in requests.items() if parking.resume is not None}
    if following == DONE and waiting:
        following = min(waiting)
    answered = waiting.pop(following, None)
    if answered is not None:
        arrays = memory.arrays()
        given = dict(arrays)
        tag = answered[0].tag
        handlers[tag](answered, given)
        memory.put_back({name: _kept(tag, name, array, given.get(name)) for name, array in arrays.items()})
    return following, bool(waiting)


def _has_handler(parking: Parking, handlers: Mapping[str, Any]) -> bool:
    return parking.resume is not None and parking.tag in handlers


def _requests(plan: GridSyncPlan, memory: WaitingMemory) -> dict[Parking, list[TrapRequest]]:
    """What waiting invocations ask, in their order."""
    count = plan.launch.invocations
    found: dict[Parking, list[TrapRequest]] = {}
    states, addresses = memory.words(plan.rows, 0, count), memory.words(plan.rows, count, count)
    for invocation, state in enumerate(states):
        if state >= FIRST_PARKED:
            parking = plan.parkings[state - FIRST_PARKED]
            found.setdefault(parking, []).append(TrapRequest(invocation, parking.tag, addresses[invocation]))
    return found


def _kept(tag: str, name: str, array: Array, left: object) -> Array:
    """What a handler left for a buffer: the array it was given, or another one like it."""
    if not isinstance(left, np.ndarray) or left.dtype != array.dtype or left.shape != array.shape:
        raise BadInputs(
            f"the handler of '{tag}' left no {array.dtype} array of {len(array)} elements for '{name}'.",
            "change the arrays in place.",
            buffer=name,
        )
    return np.ascontiguousarray(left)


class HostMemory:
    """Memory on the host: every launch takes all of it in and gives what is written back."""

    def __init__(self, backend: Backend, plan: GridSyncPlan, config: DispatchConfig, own: Mapping[str, Array]) -> None:
        self.backend = backend
        self.config = config
        self.held: dict[Key, Array] = {(name, 0): array for name, array in own.items()}
        self.names = list(own)
        for state in plan.state:
            for copy in range(state.copies):
                self.held[state.name, copy] = np.zeros(state.words, "<u4")
        self.timings: list[TimedResult] = []

    def launch(self, program: Program, bound: Mapping[str, Key]) -> None:
        inputs = [self.held[bound[decl.name]] for decl in program.input_buffers()]
        result = self.backend.dispatch_timed(program, inputs, self.config)
        self.timings.append(result)
        outputs = program.output_buffers()
        expected = [self.held[bound[decl.name]].nbytes for decl in outputs]
        given = [view.nbytes for view in result.outputs]
        if given != expected:
            raise DispatchFailed(
                f"backend '{self.backend.id}' gave outputs of {given} bytes for '{program.name}', not {expected}.",
                "have its dispatch give every output buffer, whole, in the order of their declaration.",
                code="wrong-outputs",
            )
        for decl, view in zip(outputs, result.outputs, strict=True):
            self.held[bound[decl.name]] = _array(decl, view)

    def clear(self, name: str) -> None:
        self.held[name, 0] = np.zeros_like(self.held[name, 0])

    def words(self, name: str, start: int, count: int) -> list[int]:
        words: list[int] = self.held[name, 0][start : start + count].tolist()
        return words

    def arrays(self) -> dict[str, Array]:
        return {name: self.held[name, 0].copy() for name in self.names}

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        self.held.update({(name, 0): array for name, array in arrays.items()})


def _array(decl: BufferDecl, view: memoryview) -> Array:
    return np.frombuffer(view, decl.dtype.storage) if len(view) else np.empty(0, decl.dtype.storage)


def bound_resources(
    program: Program, bound: Mapping[str, Key], held: Mapping[Key, ResidentBuffer]
) -> Sequence[ResidentBuffer]:
    """The buffers of a program in binding order."""
    host = sorted((decl for decl in program.buffers if decl.role is not Role.SHARED), key=lambda d: d.binding)
    return [held[bound[decl.name]] for decl in host]


class ResidentMemory:
    """Memory on the device: launches work in place. ``held`` has the program's own buffers and the state."""

    def __init__(
        self, backend: Backend, plan: GridSyncPlan, config: DispatchConfig, held: Mapping[Key, ResidentBuffer]
    ) -> None:
        self.backend = backend
        self.config = config
        self.held = held
        self.own = [decl for decl in plan.source.buffers if decl.role is not Role.SHARED]
        self.counts = plan.launch.counts
        self.timings: list[TimedResult | Timing] = []

    def resources(self, program: Program, bound: Mapping[str, Key]) -> Sequence[ResidentBuffer]:
        return bound_resources(program, bound, self.held)

    def launch(self, program: Program, bound: Mapping[str, Key]) -> None:
        resources = self.resources(program, bound)
        self.timings.append(self.backend.dispatch_resident(program, resources, self.config))

    def clear(self, name: str) -> None:
        self.backend.fill(self.held[name, 0])

    def words(self, name: str, start: int, count: int) -> list[int]:
        data = self.backend.download(self.held[name, 0], 4 * start, 4 * count)
        words: list[int] = np.frombuffer(data, "<u4").tolist() if count else []
        return words

    def arrays(self) -> dict[str, Array]:
        ranges = [ReadRange(self.held[decl.name, 0], 0, self._bytes(decl)) for decl in self.own]
        views = self.backend.download_many(ranges)
        return {decl.name: _array(decl, view).copy() for decl, view in zip(self.own, views, strict=True)}

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        self.backend.upload_many([(self.held[name, 0], 0, byte_view(array)) for name, array in arrays.items()])

    def _bytes(self, decl: BufferDecl) -> int:
        return self.counts[decl.name] * decl.dtype.bytes
