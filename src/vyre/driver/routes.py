"""By which way does a program with grid barriers run? Natively, as segments on resident buffers, or through the host.

A route is chosen for each call; all give the same bytes. Geometry is decided once, for the whole program, and forced
on every segment. Outputs start at zero once; byte ranges apply to what is delivered at the end; a repeated run repeats
the whole program on the same buffers, and each segment is told to run once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from vyre.driver import telemetry
from vyre.driver.binding import BindingPlan, BufferBinding, binder_of
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.fixpoint import Passes, run_to_fixpoint
from vyre.driver.outputs import Buffer, OutputBuffers, stored
from vyre.driver.pending import Inputs
from vyre.driver.profile import DeviceProfile, missing_grid_point
from vyre.driver.resident import ReadRange, ResidentBuffer, allocated
from vyre.driver.segments import HostMemory, Key, ResidentMemory, Turns, count_segments, run_segments
from vyre.driver.sequence import Step, Unchanged
from vyre.driver.timing import TimedResult, Timing, add_timings
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir.buffers import Role
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, Segment, as_segment, contains_grid_sync, plan_grid_sync

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

Route = Literal["auto", "native", "resident", "host"]
_ONE_LAUNCH: Final = "a grid barrier in one launch"
_ALLOW_ANOTHER: Final = "choose a backend that has it, or allow another route (route=, cooperative=)."


def dispatch(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    *,
    into: OutputBuffers | None = None,
    route: Route = "auto",
) -> list[memoryview]:
    """Runs any program by the best route there is, or by the one that is asked for."""
    return dispatch_timed(backend, program, inputs, config, into=into, route=route).outputs


def dispatch_timed(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    *,
    into: OutputBuffers | None = None,
    route: Route = "auto",
) -> TimedResult:
    """A dispatch by a route, how long it took, and how many passes it ran."""
    config = config or DEFAULT_CONFIG
    if not contains_grid_sync(program):
        telemetry.count(route_plain=1)
        return backend.dispatch_timed(program, inputs, config, into=into)
    match choose_route(backend, program, inputs, config, route):
        case "native":
            telemetry.count(route_native=1)
            return backend.dispatch_timed(program, inputs, config, into=into)
        case "resident":
            telemetry.count(route_resident=1)
            return _run_resident(backend, program, inputs, config, into)
        case _:
            telemetry.count(route_host=1)
            return _run_host(backend, program, inputs, config, into)


def choose_route(
    backend: Backend, program: Program, inputs: Inputs, config: DispatchConfig, route: Route = "auto"
) -> Route:
    """The route of a program with grid-wide points: the one asked for, if it is open, else the first that is."""
    capabilities = backend.capabilities
    missing = missing_grid_point(capabilities, program)
    fits = missing is None and config.cooperative != "never" and backend.grid_sync_fits(program, inputs, config)
    is_open = {
        "native": fits,
        "resident": capabilities.resident and config.cooperative != "require",
        "host": capabilities.allows_host_grid_sync_split and config.cooperative != "require",
    }
    if route != "auto" and route not in is_open:
        raise BadInputs(f"there is no route '{route}'.", 'give "auto", "native", "resident" or "host".')
    for name in is_open if route == "auto" else (route,):
        if is_open[name]:
            return name  # type: ignore[return-value]
    wanted = missing or (_ONE_LAUNCH if route in ("auto", "native") else f"the {route} route")
    raise UnsupportedFeature(wanted, backend.id, _ALLOW_ANOTHER)


def require_cut(backend: Backend, program: Program, config: DispatchConfig) -> None:
    """Refuses to cut a program that must run in one launch."""
    if config.cooperative == "require":
        missing = missing_grid_point(backend.capabilities, program)
        raise UnsupportedFeature(missing or _ONE_LAUNCH, backend.id, _ALLOW_ANOTHER)


def dispatch_with_grid_sync_split(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> list[memoryview]:
    """Runs a program as segments through the host."""
    return dispatch_with_grid_sync_split_timed(backend, program, inputs, config, into).outputs


def dispatch_with_grid_sync_split_timed(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> TimedResult:
    """The same, and how long it took."""
    return dispatch_timed(backend, program, inputs, config, into=into, route="host")


def dispatch_resident_grid_sync_fixpoint(
    backend: Backend,
    program: Program,
    inputs: Inputs,
    config: DispatchConfig | None = None,
    into: OutputBuffers | None = None,
) -> list[memoryview]:
    """Runs a program as segments on resident buffers, as often as the config says, reading only what it gives."""
    return dispatch_timed(backend, program, inputs, config, into=into, route="resident").outputs


def dispatch_resident_with_grid_sync_split_timed(
    backend: Backend, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
) -> TimedResult:
    """Runs a program as segments on the caller's resident buffers, given in binding order; nothing is read."""
    config = config or DEFAULT_CONFIG
    if not contains_grid_sync(program):
        return backend.dispatch_resident(program, resources, config)
    require_cut(backend, program, config)
    start = perf_counter_ns()
    binding = binder_of(program).bind_resident(backend, resources, config, _assisted(backend.accepts))
    plan = _planned(binding)
    with allocated(backend, _state_bytes(plan)) as state:
        held = dict(zip(_state_keys(plan), state, strict=True))
        held |= {(slot.name, 0): resource for slot, resource in zip(binding.descriptors, resources, strict=True)}
        plan = _with_sizes(plan, binding, held)
        for slot in binding.descriptors:
            if slot.role is Role.OUTPUT:
                backend.fill(held[slot.name, 0], 0, 0, slot.byte_size)
        passes, timing, _ = _run_on_device(backend, plan, binding, held, config, [])
    telemetry.count(route_resident=1)
    wall = perf_counter_ns() - start
    return TimedResult([], wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, passes.passes, passes.converged)


@lru_cache(maxsize=32)
def _assisted(profile: DeviceProfile) -> DeviceProfile:
    """What a device can do if its programs are cut for it."""
    return msgspec.structs.replace(profile, grid_sync=True, traps=True, collectives=True)


def _planned(binding: BindingPlan) -> GridSyncPlan:
    """The plan of a launch; where the optimizer has left no grid-wide point, its only segment is one all the same."""
    plan = plan_grid_sync(binding.program, binding.launch, checked=True)
    first = plan.segments[0]
    if first.program is not plan.source:
        return plan
    only = msgspec.structs.replace(first, program=as_segment(plan.source))
    return msgspec.structs.replace(plan, segments=(only,))


def _segment_config(config: DispatchConfig, plan: GridSyncPlan) -> DispatchConfig:
    """What each segment is told: the grid of the whole program, and to run once."""
    return config.with_changes(
        grid_override=plan.launch.grid,
        dispatch_elements=None,
        workgroup_override=None,
        fixpoint_iterations=None,
        max_output_bytes=None,
        optimize=config.for_parts,
        handlers=None,
    )


def _delivered(binding: BindingPlan, results: Sequence[Buffer], into: OutputBuffers | None) -> list[memoryview]:
    return stored(binding.trimmed(results), into)


def _run_host(
    backend: Backend, program: Program, inputs: Inputs, config: DispatchConfig, into: OutputBuffers | None
) -> TimedResult:
    start = perf_counter_ns()
    bound = binder_of(program).bind(inputs, config, _assisted(backend.accepts))
    binding = bound.plan
    plan = _planned(binding)
    own = {slot.name: data for slot, data in zip(binding.inputs, bound.inputs, strict=True)}
    own |= {s.name: np.zeros(s.count, s.dtype.storage) for s in binding.outputs if s.role is Role.OUTPUT}
    memory = HostMemory(backend, plan, _segment_config(config, plan), own)
    launched: list[int] = []
    passes = run_to_fixpoint(
        lambda: launched.append(run_segments(plan, memory, config)),
        lambda: [memory.held[slot.name, 0].tobytes() for slot in binding.outputs],
        config.passes,
        timeout_s=config.timeout_s,
    )
    count_segments(sum(launched), len(launched))
    outputs = _delivered(binding, [memory.held[slot.name, 0] for slot in binding.outputs], into)
    timing = add_timings(memory.timings)
    wall = perf_counter_ns() - start
    return TimedResult(
        outputs, wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, passes.passes, passes.converged
    )


def _run_resident(
    backend: Backend, program: Program, inputs: Inputs, config: DispatchConfig, into: OutputBuffers | None
) -> TimedResult:
    start = perf_counter_ns()
    bound = binder_of(program).bind(inputs, config, _assisted(backend.accepts))
    binding = bound.plan
    plan = _planned(binding)
    own: list[Key] = [(slot.name, 0) for slot in binding.descriptors]
    sizes = [slot.byte_size for slot in binding.descriptors]
    with allocated(backend, [*sizes, *_state_bytes(plan)]) as buffers:
        held = dict(zip([*own, *_state_keys(plan)], buffers, strict=True))
        uploads = [(held[slot.name, 0], 0, data) for slot, data in zip(binding.inputs, bound.inputs, strict=True)]
        fills = [(held[slot.name, 0], 0, slot.byte_size, 0) for slot in binding.descriptors if slot.role is Role.OUTPUT]
        backend.upload_many(uploads, fills=fills)
        reads = [_delivered_range(slot, held[slot.name, 0]) for slot in binding.outputs]
        passes, timing, outputs = _run_on_device(backend, plan, binding, held, config, reads)
    # The caller's slots are written only when nothing can fail any more.
    outputs = stored(outputs, into)
    wall = perf_counter_ns() - start
    return TimedResult(
        outputs, wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, passes.passes, passes.converged
    )


def _delivered_range(slot: BufferBinding, buffer: ResidentBuffer) -> ReadRange:
    start, stop, _ = slice(*(slot.output_byte_range or (0, slot.byte_size))).indices(slot.byte_size)
    return ReadRange(buffer, start, max(0, stop - start))


def _state_keys(plan: GridSyncPlan) -> list[Key]:
    return [(state.name, copy) for state in plan.state for copy in range(state.copies)]


def _state_bytes(plan: GridSyncPlan) -> list[int]:
    return [state.bytes for state in plan.state for _ in range(state.copies)]


def _run_on_device(
    backend: Backend,
    plan: GridSyncPlan,
    binding: BindingPlan,
    held: dict[Key, ResidentBuffer],
    config: DispatchConfig,
    reads: list[ReadRange],
) -> tuple[Passes, Timing, list[memoryview]]:
    """Runs a plan in memory that is ready: a straight one as one sequence, another by the device's word if it can.

    With a limit on the time of the whole run, the host is needed between the segments of a straight one: it has the
    clock.
    """
    memory = ResidentMemory(backend, plan, _segment_config(config, plan), held)
    written = [held[slot.name, 0] for slot in binding.outputs]
    if plan.straight and config.timeout_s is None:
        return _run_straight(backend, plan, memory, written, config, reads)
    launched: list[int] = []

    def run_pass() -> None:
        driven = backend.drive_segments(plan, held, memory.config)
        if driven is None:
            launched.append(run_segments(plan, memory, config))
            return
        telemetry.count(grid_sync_decisions=driven.decisions)
        launched.append(driven.launched)
        memory.timings.append(driven.timing)

    passes = run_to_fixpoint(
        run_pass,
        lambda: [bytes(view) for view in backend.download_many([ReadRange(buffer) for buffer in written])],
        config.passes,
        timeout_s=config.timeout_s,
    )
    count_segments(sum(launched), len(launched))
    outputs = backend.download_many(reads) if reads else []
    return passes, add_timings(memory.timings), outputs


def _run_straight(
    backend: Backend,
    plan: GridSyncPlan,
    memory: ResidentMemory,
    written: list[ResidentBuffer],
    config: DispatchConfig,
    reads: list[ReadRange],
) -> tuple[Passes, Timing, list[memoryview]]:
    steps = _straight_steps(plan, memory)
    try:
        if config.passes == 1:
            result = backend.run_sequence(steps, reads=reads)
            passes = Passes(1, None)
        else:
            result = backend.run_sequence(repeat=steps, times=config.passes, until=Unchanged(written), reads=reads)
            passes = Passes(result.passes, result.converged)
    except Exception as error:
        names = ", ".join(step.program.name for step in steps)
        error.add_note(f"the sequence is the segments of '{plan.source.name}': {names}")
        raise
    count_segments(len(plan.segments) * passes.passes, passes.passes)
    return passes, result.timings, result.outputs


def _straight_steps(plan: GridSyncPlan, memory: ResidentMemory) -> list[Step]:
    turns = Turns(plan)
    steps: list[Step] = []
    for order, segment in enumerate(plan.segments):
        if segment.before is not None:
            steps.append(Step(segment.before, memory.resources(segment.before, turns.own), config=memory.config))
        resources = memory.resources(segment.program, turns.bound(order))
        steps.append(Step(segment.program, resources, config=memory.config))
    return steps


def _with_sizes(plan: GridSyncPlan, binding: BindingPlan, held: dict[Key, ResidentBuffer]) -> GridSyncPlan:
    """The plan with the sizes of run-time sized outputs written into it, where resident buffers are longer."""
    longer = {
        slot.name: slot.count
        for slot in binding.descriptors
        if slot.role is Role.OUTPUT and held[slot.name, 0].byte_len != slot.byte_size
    }
    if not longer:
        return plan
    if 0 in longer.values():
        name = next(name for name, count in longer.items() if count == 0)
        raise BadInputs(
            f"the output '{name}' has no elements in this launch, and its resident buffer has some.",
            "give it an empty resident buffer, or launch more.",
            buffer=name,
        )

    def sized(program: Program) -> Program:
        return program.with_buffers(
            decl.with_count(longer[decl.name]) if decl.name in longer else decl for decl in program.buffers
        )

    def sized_segment(segment: Segment) -> Segment:
        before = None if segment.before is None else sized(segment.before)
        return msgspec.structs.replace(segment, program=sized(segment.program), before=before)

    return msgspec.structs.replace(plan, segments=tuple(map(sized_segment, plan.segments)))
