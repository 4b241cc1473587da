"""How does a sequence run as one native call? From a table of its steps: jobs, and what to clear before each.

Steps that need the host between them (a route, passes or a time limit of their own, a grid that memory says) go the
driver's way, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vyre.backends.cpu.launches import address_of
from vyre.driver import telemetry, trace
from vyre.driver.binding import binder_of
from vyre.driver.fixpoint import Passes
from vyre.driver.outputs import OutputBuffers
from vyre.driver.profile import missing_grid_point
from vyre.driver.resident import ResidentBuffer, require_owned
from vyre.driver.sequence import PreparedSequence, SequencePlan, SequenceResult, Step, Unchanged, Zero
from vyre.driver.timing import Timing
from vyre.errors import DeviceOutOfMemory
from vyre.ir.binding import Array
from vyre.ir.buffers import Role

if TYPE_CHECKING:
    from vyre.backends.cpu import CpuBackend


class CpuSequence(PreparedSequence):
    """A sequence on the processor."""

    backend: CpuBackend

    def __init__(self, backend: CpuBackend, plan: SequencePlan) -> None:
        super().__init__(backend, plan)
        # The lists of resources are the caller's, who may change them.
        self._steps = [
            [msgspec.structs.replace(step, resources=tuple(step.resources)) for step in part]
            for part in (plan.first, plan.repeat)
        ]
        self._is_native = all(_is_plain(backend, step) for step in (*plan.first, *plan.repeat))

    def run(self, into: OutputBuffers | None = None) -> SequenceResult:
        if not self._is_native:
            return super().run(into)
        start = perf_counter_ns()
        backend, plan = self.backend, self.plan
        with trace.span("sequence", backend.id, steps=len(plan.first) + len(plan.repeat), times=plan.times):
            _Table(backend, self._steps[0], 0).run(1)
            passes = Passes(0, None)
            if plan.repeat:
                passes = self._run_repeat(_Table(backend, self._steps[1], len(plan.first)))
        outputs = backend.download_many(plan.reads, into=into) if plan.reads else []
        if not plan.reads and into is not None:
            into.store(outputs)
        steps = len(plan.first) + passes.passes * len(plan.repeat)
        telemetry.count(sequence_runs=1, sequence_steps=steps, launches=steps)
        return SequenceResult(
            outputs, passes.passes, passes.converged, Timing(perf_counter_ns() - start, None, None, None)
        )

    def _run_repeat(self, table: _Table) -> Passes:
        plan = self.plan
        match plan.until:
            case None:
                table.run(plan.times)
                return Passes(plan.times, None)
            case Unchanged(buffers):
                memory = [self._memory(buffer) for buffer in buffers]
                passes = table.run(plan.times, memory, [array.copy() for array in memory], keep=True)
            case Zero(buffer):
                memory = [self._memory(buffer)]
                passes = table.run(plan.times, memory, [np.zeros_like(array) for array in memory])
        telemetry.count(
            fixpoint_runs=1, fixpoint_passes=passes.passes, fixpoint_converged=int(passes.converged is True)
        )
        return passes

    def _memory(self, buffer: ResidentBuffer) -> Array:
        memory: Array = require_owned(self.backend, buffer).handle
        return memory


def _is_plain(backend: CpuBackend, step: Step) -> bool:
    """Whether a step is one launch that nothing on the host has a part in."""
    config = step.merged_config
    return (
        config.passes == 1
        and config.timeout_s is None
        and not step.program.stats().has_indirect_dispatch
        and missing_grid_point(backend.capabilities, step.program) is None
    )


class _Table:
    """Steps as native code reads them, and the memory that the table points to."""

    def __init__(self, backend: CpuBackend, steps: Sequence[Step], first_number: int) -> None:
        self._pool = backend.pool
        self._first_number = first_number
        self._blocks: list[Array] = []
        self._kept: list[Array] = []
        self._scratch: list[int] = []
        self._is_shared = False
        words: list[int] = []
        for step in steps:
            words += self._step(backend, step)
        self._words = np.array(words, np.int64)
        self._count = len(steps)

    def _step(self, backend: CpuBackend, step: Step) -> list[int]:
        config = step.merged_config
        plan = binder_of(step.program).bind_resident(backend, step.resources, config)
        launch = backend.prepared_launch(plan, config)
        memory = [resource.handle for resource in step.resources]
        block, kept = launch.block(memory)
        clears = np.array(
            [
                word
                for slot, array in zip(plan.descriptors, memory, strict=True)
                if slot.role is Role.OUTPUT
                for word in (address_of(array), slot.byte_size)
            ],
            np.int64,
        )
        self._blocks.append(block)
        self._kept += [*kept, clears]
        self._scratch.append(launch.kernel.kernel.scratch_bytes)
        grain = self._pool.grain(launch)
        self._is_shared |= grain is not None
        job = (launch.kernel.address, address_of(block), 0, launch.total, grain or max(1, launch.total), int(block[0]))
        return [*job, int(grain is not None), address_of(clears), len(clears) // 2]

    def run(
        self, times: int, memory: Sequence[Array] = (), shadows: Sequence[Array] = (), *, keep: bool = False
    ) -> Passes:
        """Runs the steps up to so many times, or until a pass leaves the memory as its shadows are."""
        watches = [(address_of(a), address_of(b), a.size) for a, b in zip(memory, shadows, strict=True)]
        watched = np.array(watches, np.int64)
        ran = self._pool.run_steps(self._words, self._count, times, watched, len(watches), keep, self._is_shared)
        for number, (block, scratch) in enumerate(zip(self._blocks, self._scratch, strict=True)):
            if block[-1]:
                error = DeviceOutOfMemory(scratch)
                error.add_note(f"in step {self._first_number + number} of the sequence")
                raise error
        return Passes(ran & ((1 << 63) - 1), ran < 0)
