"""How does a sequence run as one native call? As a walk over a table of all its steps.

Steps that the host has a part in (passes or a time limit of their own, traps, a grid that memory says) go the driver's
way, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from time import perf_counter_ns
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from vyre.analyze.coverage import outputs_written_whole
from vyre.backends.cpu.native import Ending
from vyre.backends.cpu.tables import Edit, Nodes, Table, Watch, own
from vyre.driver import telemetry, trace
from vyre.driver.binding import binder_of
from vyre.driver.fixpoint import Passes, count_passes
from vyre.driver.outputs import OutputBuffers, stored
from vyre.driver.resident import ResidentBuffer, require_owned
from vyre.driver.sequence import PreparedSequence, SequencePlan, SequenceResult, Step, Unchanged, Zero
from vyre.driver.timing import Timing
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.buffers import Role

if TYPE_CHECKING:
    from vyre.backends.cpu import CpuBackend


class CpuSequence(PreparedSequence):
    """A sequence on the processor; its tables are made by its first run."""

    backend: CpuBackend

    def __init__(self, backend: CpuBackend, plan: SequencePlan) -> None:
        super().__init__(backend, plan)
        # The lists of resources are the caller's, who may change them.
        self._steps = [
            [msgspec.structs.replace(step, resources=tuple(step.resources)) for step in part]
            for part in (plan.first, plan.repeat)
        ]
        self._is_native = all(map(_is_native, (*plan.first, *plan.repeat)))
        self._tables: list[_StepTable] = []
        # A table is for one walk at a time.
        self._lock = Lock()

    def run(self, into: OutputBuffers | None = None) -> SequenceResult:
        if not self._is_native:
            return super().run(into)
        start = perf_counter_ns()
        backend, plan = self.backend, self.plan
        with (
            self._lock,
            trace.span("sequence", backend.id, steps=len(plan.first) + len(plan.repeat), times=plan.times),
        ):
            if not self._tables:
                first, repeat = self._steps
                self._tables = [_StepTable(backend, first, 0), _StepTable(backend, repeat, len(first))]
            self._tables[0].run(1)
            passes = self._run_repeat(self._tables[1]) if plan.repeat else Passes(0, None)
        outputs = backend.download_many(plan.reads, into=into) if plan.reads else stored([], into)
        steps = len(plan.first) + passes.passes * len(plan.repeat)
        telemetry.count(sequence_runs=1, sequence_steps=steps, launches=steps)
        return SequenceResult(
            outputs, passes.passes, passes.converged, Timing(perf_counter_ns() - start, None, None, None)
        )

    def _run_repeat(self, table: _StepTable) -> Passes:
        plan = self.plan
        match plan.until:
            case None:
                return table.run(plan.times)
            case Unchanged(buffers):
                memory = [self._memory(buffer) for buffer in buffers]
                passes = table.run(plan.times, Watch(memory, [array.copy() for array in memory], follows=True))
            case Zero(buffer):
                memory = [self._memory(buffer)]
                passes = table.run(plan.times, Watch(memory, [np.zeros_like(array) for array in memory], follows=False))
        count_passes(passes)
        return passes

    def _memory(self, buffer: ResidentBuffer) -> Array:
        memory: Array = require_owned(self.backend, buffer).handle
        return memory


def _is_native(step: Step) -> bool:
    """Whether the host has no part in a step."""
    config, stats = step.merged_config, binder_of(step.program).program.stats()
    return config.passes == 1 and config.timeout_s is None and not stats.has_indirect_dispatch and not stats.has(n.Trap)


class _StepTable:
    """The table of some steps, and the buffers that it is walked over."""

    def __init__(self, backend: CpuBackend, steps: Sequence[Step], first_number: int) -> None:
        self._backend = backend
        self._resources: list[ResidentBuffer] = []
        nodes = Nodes(backend.kernels, backend.pool.sharing)
        numbers: dict[int, int] = {}
        for number, step in enumerate(steps, first_number):
            config = step.merged_config
            plan = binder_of(step.program).bind_resident(backend, step.resources, config)
            places = []
            for resource in step.resources:
                if id(resource) not in numbers:
                    numbers[id(resource)] = len(self._resources)
                    self._resources.append(resource)
                places.append(own(numbers[id(resource)]))
            whole = outputs_written_whole(plan.program, plan.launch)
            clears = [
                Edit(place, None, slot.byte_size)
                for slot, place in zip(plan.descriptors, places, strict=True)
                if slot.role is Role.OUTPUT and slot.name not in whole
            ]
            label = f"step {number} of the sequence"
            nodes.add(plan, places, optimize=config.optimization.code, clears=clears, label=label)
        self._table = Table(nodes.all, nodes.state_bytes)

    def run(self, times: int, watch: Watch | None = None) -> Passes:
        """Runs the steps up to so many times, or until what is watched tells to stop."""
        memory = [require_owned(self._backend, resource).handle for resource in self._resources]
        ending = self._table.run(self._backend.pool, memory, times, watch)
        return Passes(self._table.passes, None if watch is None else ending is Ending.UNCHANGED)
