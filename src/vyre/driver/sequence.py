"""Sequences: several programs on resident buffers, run one after another without the host in between.

Steps see each other's writes in order. A sequence is prepared once and run many times; a run reads only the ranges that
were asked for, at its end. Its steps are one launch schedule, unless one of them needs the host: passes, a time limit
or trap handlers of its own, or a grid that the host has to read from memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec

from vyre.arguments import listed, require, require_whole
from vyre.driver import telemetry, trace
from vyre.driver.binding import binder_of
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, require_config
from vyre.driver.device import UNLIMITED, PreparedSchedule, require_lengths
from vyre.driver.outputs import OutputBuffers, require_slots, stored
from vyre.driver.resident import ReadRange, ReadRangeLike, ResidentBuffer, read_ranges, require_owned
from vyre.driver.timing import NO_TIME, TimedResult, Timing, add_timings
from vyre.errors import BadInputs, locate
from vyre.ir import nodes as n
from vyre.ir.program import Program, require_program
from vyre.lower.schedule import Clear, ConvergenceTest, Part, ScheduleBuilder

if TYPE_CHECKING:
    from vyre.driver.backend import Backend
    from vyre.driver.executable import Executable


class Step(msgspec.Struct, frozen=True, eq=False):
    """One launch of a sequence: a program and its resident buffers in binding order."""

    program: Program
    resources: Sequence[ResidentBuffer]
    grid_override: tuple[int, ...] | None = None
    workgroup_override: tuple[int, ...] | None = None
    config: DispatchConfig | None = None

    def __post_init__(self) -> None:
        require_program(self.program)
        require(self.resources, Sequence, "what a step works on", "give a list of resident buffers.")
        require_config(self.config)

    @property
    def merged_config(self) -> DispatchConfig:
        """The step's config with its own overrides on top."""
        changes: dict[str, Any] = {}
        if self.grid_override is not None:
            changes["grid_override"] = self.grid_override
        if self.workgroup_override is not None:
            changes["workgroup_override"] = self.workgroup_override
        config = self.config or DEFAULT_CONFIG
        return config.with_changes(**changes) if changes else config


class Unchanged(msgspec.Struct, frozen=True, eq=False):
    """Stop when a pass changed no byte of these buffers."""

    buffers: Sequence[ResidentBuffer]


class Zero(msgspec.Struct, frozen=True, eq=False):
    """Stop when every byte of this buffer is zero after a pass."""

    buffer: ResidentBuffer


Until = Unchanged | Zero


class SequenceResult(msgspec.Struct, frozen=True, eq=False):
    """The asked ranges in the caller's order, the passes of the repeated part, and the time of all of it.

    ``converged`` is None for a sequence that had nothing to stop it early.
    """

    outputs: list[memoryview]
    passes: int
    converged: bool | None
    timings: Timing


class SequencePlan(msgspec.Struct, frozen=True, eq=False):
    """What to run: ``first`` once, then ``repeat`` up to ``times`` times, then the reads."""

    first: tuple[Step, ...]
    repeat: tuple[Step, ...]
    times: int
    until: Until | None
    reads: tuple[ReadRange, ...]


def plan_sequence(
    steps: Iterable[Step],
    prefix: Iterable[Step],
    repeat: Iterable[Step],
    times: int,
    until: Until | None,
    reads: Iterable[ReadRangeLike],
) -> SequencePlan:
    """The sequence in one checked form: ``prefix`` and then ``steps`` run once, before what is repeated."""
    first = (*listed(prefix, "prefix"), *listed(steps, "steps"))
    plan = SequencePlan(first, tuple(listed(repeat, "repeat")), times, until, tuple(read_ranges(reads)))
    if require_whole(times, "the number of times") < 0:
        raise BadInputs(f"a sequence cannot be repeated {times} times.", "give a count of at least 0.")
    if not plan.repeat and (until is not None or times != 1):
        raise BadInputs("times and until need something to repeat.", "give repeat=[Step(...), ...].")
    if not isinstance(until, Until | None):
        raise BadInputs(f"a {type(until).__name__} says not when to stop.", "give Unchanged(buffers) or Zero(buffer).")
    if isinstance(until, Unchanged):
        require(until.buffers, Sequence, "what Unchanged looks at", "give a list of resident buffers.")
    for step in (*plan.first, *plan.repeat):
        if not isinstance(step, Step):
            raise BadInputs(f"a {type(step).__name__} is no step.", "give Step(program, resources).")
        binder_of(step.program)
        require(step.resources, Sequence, "what a step works on", "give a list of resident buffers.")
        require_config(step.config)
    return plan


class PreparedSequence:
    """A sequence ready to run again and again; for one run at a time on each set of buffers."""

    def __init__(self, backend: Backend, plan: SequencePlan) -> None:
        self.backend = backend
        # The lists of resources are the caller's, who may change them.
        self.plan = msgspec.structs.replace(plan, first=_frozen(plan.first), repeat=_frozen(plan.repeat))
        steps = (*self.plan.first, *self.plan.repeat)
        self._executables = [self._compiled(number, step) for number, step in enumerate(steps)]
        self._is_fused = all(map(_is_fusible, self._executables, steps))
        self._runner: PreparedSchedule | None = None
        self._buffers: list[ResidentBuffer] = []
        self._reads: list[tuple[int, int, int]] = []

    def _compiled(self, number: int, step: Step) -> Executable:
        self.backend.require_resident("dispatch on resident buffers")
        try:
            return self.backend.compile(step.program, step.merged_config)
        except Exception as error:
            locate(error, f"step {number} of the sequence")
            raise

    def run(self, into: OutputBuffers | None = None) -> SequenceResult:
        """Run all steps and read the asked ranges; on failure the caller's slots are as they were."""
        require_slots(into)
        plan = self.plan
        with trace.span("sequence", self.backend.id, steps=len(plan.first) + len(plan.repeat), times=plan.times):
            return self._run_fused(into) if self._is_fused else self._run_by_steps(into)

    # One schedule.

    def _run_fused(self, into: OutputBuffers | None) -> SequenceResult:
        start = perf_counter_ns()
        if self._runner is None:
            self._prepare()
        assert self._runner is not None  # made now
        memory = [require_owned(self.backend, buffer).handle for buffer in self._buffers]
        regions = [(memory[number], offset, length) for number, offset, length in self._reads]

        def deliver(views: Sequence[Any]) -> list[memoryview]:
            given = require_lengths(self.backend.device, views, regions)
            if into is None:
                return [memoryview(bytearray(view)) for view in given]
            return stored([memoryview(view).toreadonly() for view in given], into)

        ran = self._runner.run(memory, UNLIMITED, self._reads, deliver)
        timing = Timing(perf_counter_ns() - start, ran.timing.device_ns, ran.timing.enqueue_ns, ran.timing.wait_ns)
        return self._result(ran.answer, ran.passes if self.plan.repeat else 0, ran.converged, ran.launches, timing)

    def _prepare(self) -> None:
        """Number the buffers and make the schedule of all steps."""
        plan = self.plan
        numbers: dict[int, int] = {}

        def number_of(buffer: ResidentBuffer) -> int:
            number = numbers.setdefault(id(buffer), len(self._buffers))
            if number == len(self._buffers):
                self._buffers.append(require_owned(self.backend, buffer))
            return number

        steps = (*plan.first, *plan.repeat)
        places = [[number_of(resource) for resource in step.resources] for step in steps]
        watched = plan.until.buffers if isinstance(plan.until, Unchanged) else [plan.until.buffer] if plan.until else []
        bytes_watched = tuple((number_of(one), one.byte_len) for one in watched)
        self._reads = [(number_of(one.buffer), one.offset, one.length or 0) for one in plan.reads]
        builder = ScheduleBuilder(len(self._buffers))
        parts = [
            self._part(builder, number, step, own) for number, (step, own) in enumerate(zip(steps, places, strict=True))
        ]
        first, repeat = parts[: len(plan.first)], parts[len(plan.first) :]
        test = None
        if plan.until is not None:
            test = ConvergenceTest("unchanged" if isinstance(plan.until, Unchanged) else "zero", bytes_watched)
        schedule = builder.schedule(first, repeat, plan.times if repeat else 0, test)
        uses_device = all(executable.uses_device() for executable in self._executables)
        self._runner = self.backend.schedule_runner(schedule, self.backend.device, uses_device=uses_device)

    def _part(self, builder: ScheduleBuilder, number: int, step: Step, own: list[int]) -> Part:
        label = f"step {number} of the sequence"
        try:
            executable = self._executables[number]
            plan = executable.bind_resident(step.resources, step.merged_config)
            # Where its native barrier does not fit, a step is cut, if it may be.
            executable = self._executables[number] = executable.fitting(plan)
            clears = [Clear(own[place], size) for place, size in executable.fresh(plan)]
            return builder.part(executable.grid_sync_plan(plan), own, executable.code_of, clears=clears, label=label)
        except Exception as error:
            locate(error, label)
            raise

    # Step by step.

    def _run_by_steps(self, into: OutputBuffers | None) -> SequenceResult:
        start = perf_counter_ns()
        plan, backend = self.plan, self.backend
        first = len(plan.first)
        timings: list[Timing | TimedResult] = [NO_TIME]
        for number, step in enumerate(plan.first):
            timings.append(self._run_step(number, step))
        passes, converged = 0, None
        if plan.repeat:
            before = self._watched(at_start=True)
            converged = None if plan.until is None else False
            while passes < plan.times and not converged:
                for number, step in enumerate(plan.repeat, first):
                    timings.append(self._run_step(number, step))
                passes += 1
                if plan.until is not None:
                    after = self._watched(at_start=False)
                    converged = after == before
                    before = after if isinstance(plan.until, Unchanged) else before
                timings = [add_timings(timings)]
        outputs = backend.download_many(plan.reads, into=into) if plan.reads else stored([], into)
        timing = add_timings(timings)
        timing = Timing(perf_counter_ns() - start, timing.device_ns, timing.enqueue_ns, timing.wait_ns)
        return self._result(outputs, passes, converged, 0, timing)

    def _run_step(self, number: int, step: Step) -> TimedResult:
        try:
            return self._executables[number].run_resident(step.resources, step.merged_config)
        except Exception as error:
            locate(error, f"step {number} of the sequence")
            raise

    def _watched(self, *, at_start: bool) -> list[bytes]:
        match self.plan.until:
            case Unchanged(buffers):
                return [bytes(view) for view in self.backend.download_many([ReadRange(one) for one in buffers])]
            case Zero(buffer):
                return [bytes(buffer.byte_len) if at_start else bytes(self.backend.download(buffer))]
        return []

    def _result(
        self, outputs: list[memoryview], passes: int, converged: bool | None, launches: int, timing: Timing
    ) -> SequenceResult:
        plan = self.plan
        counts = {"sequence_runs": 1, "sequence_steps": len(plan.first) + passes * len(plan.repeat)}
        if launches:
            counts["launches"] = launches
        if plan.until is not None:
            counts |= {"fixpoint_runs": 1, "fixpoint_passes": passes, "fixpoint_converged": int(converged is True)}
        telemetry.count(**counts)
        return SequenceResult(outputs, passes, converged, timing)


def _frozen(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(msgspec.structs.replace(step, resources=tuple(step.resources)) for step in steps)


def _is_fusible(executable: Executable, step: Step) -> bool:
    """Whether a step needs nothing of the host between launches."""
    config, program = step.merged_config, executable.binder.program
    return (
        config.passes == 1
        and config.timeout_s is None
        and config.handlers is None
        and executable.route != "host"
        and not program.stats().has(n.Trap)
        and (not program.stats().has_indirect_dispatch or executable.device_reads_grid(config))
    )
