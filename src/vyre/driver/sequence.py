"""How do several launches run without the host between them? As a sequence over resident buffers.

Steps see each other's writes in order. A sequence is prepared once and run many times; a run reads only the ranges that
were asked for, at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vyre.arguments import listed, require, require_whole
from vyre.driver import telemetry
from vyre.driver.binding import binder_of
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, require_config
from vyre.driver.fixpoint import Passes, run_to_fixpoint, run_until
from vyre.driver.outputs import OutputBuffers, stored
from vyre.driver.profile import missing_grid_point
from vyre.driver.resident import ReadRange, ReadRangeLike, ResidentBuffer, read_ranges
from vyre.driver.timing import NO_TIME, TimedResult, Timing, add_timings
from vyre.errors import BadInputs
from vyre.ir.program import Program, require_program

if TYPE_CHECKING:
    from vyre.driver.backend import Backend

Launch = Callable[[Program, Sequence[ResidentBuffer], DispatchConfig], TimedResult]


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
        """The step's config with the step's own overrides on top."""
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
    """A sequence ready to run again and again, on any backend with resident dispatch; devices do better ones."""

    def __init__(self, backend: Backend, plan: SequencePlan) -> None:
        self.backend = backend
        self.plan = plan
        self._first = [_prepare(backend, step) for step in plan.first]
        self._repeat = [_prepare(backend, step) for step in plan.repeat]

    def run(self, into: OutputBuffers | None = None) -> SequenceResult:
        """Runs all steps, reads the asked ranges; on failure the caller's slots are as they were."""
        start = perf_counter_ns()
        timing = _run_steps(self._first, NO_TIME, 0)

        def run_pass() -> None:
            nonlocal timing
            timing = _run_steps(self._repeat, timing, len(self._first))

        passes = self._run_passes(run_pass) if self._repeat else Passes(0, None)
        reads = self.plan.reads
        outputs = self.backend.download_many(reads, into=into) if reads else stored([], into)
        telemetry.count(sequence_runs=1, sequence_steps=len(self._first) + passes.passes * len(self._repeat))
        wall = perf_counter_ns() - start
        timing = Timing(wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns)
        return SequenceResult(outputs, passes.passes, passes.converged, timing)

    def _run_passes(self, run_pass: Callable[[], None]) -> Passes:
        times, backend = self.plan.times, self.backend
        match self.plan.until:
            case None:
                for _ in range(times):
                    run_pass()
                return Passes(times, None)
            case Unchanged(buffers):
                ranges = [ReadRange(buffer) for buffer in buffers]
                snapshot = lambda: [bytes(view) for view in backend.download_many(ranges)]  # noqa: E731
                return run_to_fixpoint(run_pass, snapshot, times, compare_single=True)
            case Zero(buffer):
                return run_until(run_pass, lambda: not np.any(np.frombuffer(backend.download(buffer), np.uint8)), times)


def _prepare(backend: Backend, step: Step) -> tuple[Launch, Program, Sequence[ResidentBuffer], DispatchConfig]:
    launch: Launch = backend.dispatch_resident
    if missing_grid_point(backend.capabilities, step.program) is not None:
        from functools import partial

        from vyre.driver.routes import dispatch_resident_with_grid_sync_split_timed, require_cut

        require_cut(backend, step.program, step.merged_config)
        launch = partial(dispatch_resident_with_grid_sync_split_timed, backend)
    return launch, step.program, tuple(step.resources), step.merged_config


def _run_steps(
    prepared: list[tuple[Launch, Program, Sequence[ResidentBuffer], DispatchConfig]], timing: Timing, first_number: int
) -> Timing:
    done: list[Timing | TimedResult] = [timing]
    try:
        for launch, program, resources, config in prepared:
            done.append(launch(program, resources, config))
    except Exception as error:
        error.add_note(f"in step {first_number + len(done) - 1} of the sequence")
        raise
    return add_timings(done)
