"""How does a sequence run on the device? As one run of dispatches, if none of its steps needs the host.

Steps that do (a route, passes or a time limit of their own, memory whose size depends on a grid that is in memory) go
the driver's way, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vyre.backends.webgpu.launches import host_reads_grid
from vyre.backends.webgpu.runs import Run, Watch, Work, works_of
from vyre.driver import telemetry, trace
from vyre.driver.outputs import OutputBuffers, require_slots
from vyre.driver.profile import missing_grid_point
from vyre.driver.sequence import PreparedSequence, SequencePlan, SequenceResult, Step, Unchanged, Zero

if TYPE_CHECKING:
    from vyre.backends.webgpu import WebGpuBackend


class WebGpuSequence(PreparedSequence):
    """A sequence on a device; what a run needs is made once, and again only if the device was lost in between."""

    backend: WebGpuBackend

    def __init__(self, backend: WebGpuBackend, plan: SequencePlan) -> None:
        super().__init__(backend, plan)
        # The lists of resources are the caller's, who may change them.
        self._steps = [
            [msgspec.structs.replace(step, resources=tuple(step.resources)) for step in part]
            for part in (plan.first, plan.repeat)
        ]
        self._is_native = all(_is_plain(backend, step) for step in (*plan.first, *plan.repeat))
        self._prepared: tuple[Any, Run, list[Any]] | None = None

    def run(self, into: OutputBuffers | None = None) -> SequenceResult:
        if not self._is_native:
            return super().run(into)
        require_slots(into)
        backend, plan = self.backend, self.plan
        run = self._ready()
        reads = [(backend.memory(one.buffer), one.offset, one.length or 0) for one in plan.reads]

        def deliver(views: list[memoryview]) -> list[memoryview]:
            return [memoryview(bytearray(view)) for view in views] if into is None else into.store(views)

        with trace.span("sequence", backend.id, steps=len(plan.first) + len(plan.repeat), times=plan.times):
            answer = run.go(reads, deliver)
        passes = answer.passes.passes if plan.repeat else 0
        steps = len(plan.first) + passes * len(plan.repeat)
        telemetry.count(sequence_runs=1, sequence_steps=steps, launches=steps)
        converged = None if plan.until is None else answer.passes.converged
        return SequenceResult(answer.read, passes, converged, answer.timing)

    def _ready(self) -> Run:
        """The run of all steps; every resource is still there, and on this device."""
        backend, plan = self.backend, self.plan
        for step in (*self._steps[0], *self._steps[1]):
            for resource in step.resources:
                backend.memory(resource)
        match plan.until:
            case Unchanged(buffers):
                watch: Watch | None = Watch(tuple((backend.memory(one), one.byte_len) for one in buffers))
            case Zero(buffer):
                watch = Watch(((backend.memory(buffer), buffer.byte_len),), for_zero=True)
            case None:
                watch = None
        gpu = backend.gpu
        if self._prepared is None or self._prepared[0] is not gpu:
            captures: list[Any] = []
            with gpu.watched():
                first = self._works(self._steps[0], 0, captures)
                repeat = self._works(self._steps[1], len(plan.first), captures)
            times = plan.times if plan.repeat else 0
            self._prepared = gpu, Run(gpu, first, repeat, times, watch), captures
        return self._prepared[1]

    def _works(self, steps: Sequence[Step], first_number: int, captures: list[Any]) -> list[Work]:
        backend = self.backend
        works: list[Work] = []
        for number, step in enumerate(steps, first_number):
            try:
                launch = backend.resident_launch(step.program, step.resources, step.merged_config)
                own = [backend.gpu.new_memory(size) for size in launch.captures]
                captures += own
                memory = [backend.memory(resource) for resource in step.resources]
                works += works_of(backend.gpu, launch, [*memory, *own], clearing=True)
            except Exception as error:
                error.add_note(f"in step {number} of the sequence")
                raise
        return works


def _is_plain(backend: WebGpuBackend, step: Step) -> bool:
    """Whether a step is one launch that nothing on the host has a part in."""
    config = step.merged_config
    return (
        config.passes == 1
        and config.timeout_s is None
        and not host_reads_grid(step.program, config)
        and missing_grid_point(backend.capabilities, step.program) is None
    )
