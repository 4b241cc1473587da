"""How does a device find its way through a cut program? Every segment that may be next is encoded, and all launches
but one are empty.

After each segment a kernel on the device reads the control word and makes the launch of the next one whole. The host
asks once for each batch of rounds over the segments. Where requests have to be answered, or something else has to run
before a segment, the host drives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec.structs import replace

from vyre.backends.webgpu.gpu import Gpu
from vyre.backends.webgpu.launches import INDIRECT_BYTES
from vyre.backends.webgpu.runs import FIRST_BATCH, LARGEST_BATCH, MOST_LAUNCHES, Clock, Work, encode, works_of
from vyre.backends.webgpu.tools import COPY, SELECT, STATE_WORDS, tool_groups
from vyre.driver import telemetry, trace
from vyre.driver.config import DispatchConfig
from vyre.driver.resident import ResidentBuffer
from vyre.driver.segments import DrivenSegments, Key, bound_resources
from vyre.driver.timing import Timing
from vyre.errors import Timeout
from vyre.lower.plan import GridSyncPlan, StateBuffer

if TYPE_CHECKING:
    from vyre.backends.webgpu import WebGpuBackend


def can_drive(plan: GridSyncPlan) -> bool:
    """Whether the device can run a plan to its end without the host."""
    has_control = not plan.straight and not plan.parkings
    return has_control and plan.launch.invocations > 0 and all(segment.before is None for segment in plan.segments)


def drive(
    backend: WebGpuBackend, plan: GridSyncPlan, held: Mapping[Key, ResidentBuffer], config: DispatchConfig
) -> DrivenSegments:
    """Runs a plan that it can drive, from its start to its end."""
    start = perf_counter_ns()
    gpu = backend.gpu
    control = backend.memory(held[plan.control, 0])
    with trace.span("segments", backend.id, program=plan.source.name), gpu.watched(), gpu.borrowing() as take:
        launches = take(INDIRECT_BYTES * len(plan.segments))
        works = [_segment_works(backend, plan, at, held, config, launches, take) for at in range(len(plan.segments))]
        clock = Clock(gpu, chain.from_iterable(works), drives=True)
        encoder = gpu.device.create_command_encoder()
        clock.clear(encoder)
        encoder.clear_buffer(control, 0, 8)
        arguments = np.zeros((len(plan.segments), 3), "<u4")
        arguments[0] = _groups(works[0])
        gpu.queue.write_buffer(launches, 0, arguments)
        at, ran, is_over, asked, rounds = 0, 0, 0, 0, FIRST_BATCH
        while not is_over:
            encode(clock.begin(encoder), _rounds(plan, works, at, rounds))
            at, ran, is_over = _read_state(clock, encoder, config.timeout_s, start)
            encoder = gpu.device.create_command_encoder()
            asked += 1
            rounds = min(2 * rounds, LARGEST_BATCH)
    telemetry.count(launches=ran)
    wall = perf_counter_ns() - start
    return DrivenSegments(ran, asked, Timing(wall, clock.device_ns, wall - clock.waited_ns, clock.waited_ns))


def _read_state(clock: Clock, encoder: Any, timeout_s: float | None, start: int) -> list[int]:
    """How far the run is after what was encoded; it may take so long since its start."""
    left = None if timeout_s is None else timeout_s - (perf_counter_ns() - start) / 1e9
    if left is not None and left <= 0:
        raise Timeout(timeout_s or 0.0)

    def words(views: list[memoryview]) -> list[int]:
        read: list[int] = np.frombuffer(views[0], "<u4").tolist()
        return read

    try:
        state: list[int] = clock.read(encoder, [(clock.gpu.state, 0, 4 * STATE_WORDS)], words, left)
    except Timeout:
        raise Timeout(timeout_s or 0.0) from None
    return state


def _groups(works: Sequence[Work]) -> tuple[int, int, int]:
    """The workgroups of a segment, which are those of all segments."""
    return next(work.groups for work in works if work.arguments is not None)


def _segment_works(
    backend: WebGpuBackend,
    plan: GridSyncPlan,
    order: int,
    held: Mapping[Key, ResidentBuffer],
    config: DispatchConfig,
    launches: Any,
    take: Callable[[int], Any],
) -> list[Work]:
    """The dispatches of a segment: of what it reads and writes a copy to read, then itself, then who is next."""
    gpu, segment = backend.gpu, plan.segments[order]
    own = {decl.name: (decl.name, 0) for decl in plan.source.buffers}
    keys = own | {state.name: (state.name, 0) for state in plan.state}
    read = [state for state in plan.state if state.read_name is not None and state.segment == order]
    keys |= {state.read_name: (state.name, state.copies - 1) for state in read if state.read_name is not None}
    works = [_copy(backend, state, held) for state in read if state.copies > 1]
    resources = bound_resources(segment.program, keys, held)
    try:
        launch = backend.resident_launch(segment.program, resources, config)
        memory = [*map(backend.memory, resources), *map(take, launch.captures)]
        own_works = works_of(gpu, launch, memory, clearing=False)
    except Exception as error:
        error.add_note(f"in segment {order} of '{plan.source.name}' ({segment.label})")
        raise
    works += [replace(work, arguments=(launches, INDIRECT_BYTES * order)) for work in own_works]
    return [*works, _select(gpu, order, launch.groups, backend.memory(held[plan.control, 0]), launches)]


def _copy(backend: WebGpuBackend, state: StateBuffer, held: Mapping[Key, ResidentBuffer]) -> Work:
    gpu, tool = backend.gpu, backend.gpu.tool(COPY)
    regions = [(backend.memory(held[state.name, copy]), 0, max(4, state.bytes)) for copy in range(2)]
    group = gpu.bind_group(tool, gpu.block([state.words]), regions)
    return Work(tool.pipeline, group, (tool_groups(state.words), 1, 1))


def _select(gpu: Gpu, order: int, groups: tuple[int, int, int], control: Any, launches: Any) -> Work:
    tool, block = gpu.tool(SELECT), gpu.block([order, *groups])
    regions = [(one, 0, one.size) for one in (gpu.state, control, launches)]
    return Work(tool.pipeline, gpu.bind_group(tool, block, regions))


def _rounds(plan: GridSyncPlan, works: Sequence[Sequence[Work]], at: int, count: int) -> list[Work]:
    """The segment to run, and so many rounds of all that may come after it, in the order of the program."""
    later = _reachable(plan, at)
    order = [*(one for one in later if one > at), *(one for one in later if one <= at)]
    round_works = [work for one in order for work in works[one]]
    count = max(1, min(count, MOST_LAUNCHES // max(1, len(round_works))))
    return [*works[at], *round_works * count]


def _reachable(plan: GridSyncPlan, at: int) -> list[int]:
    """The segments that may come after one; 0, which is the end, is none of them."""
    found: set[int] = set()
    waiting: list[Iterable[int]] = [plan.segments[at].exits]
    while waiting:
        for one in waiting.pop():
            if one and one not in found:
                found.add(one)
                waiting.append(plan.segments[one].exits)
    return sorted(found)
