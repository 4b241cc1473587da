"""Who tells what is right? The reference interpreter, behind the whole contract.

Resident buffers are host memory, grid barriers are native, and features can be switched off, so that every route
through the driver can be tried against the oracle itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from time import perf_counter, perf_counter_ns
from typing import Final

import msgspec
import numpy as np

import vyre
from vyre import reference
from vyre.driver import trace
from vyre.driver.backend import Backend, Fill, Upload
from vyre.driver.binding import BindingPlan, binder_of
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.fixpoint import Passes, run_to_fixpoint
from vyre.driver.outputs import OutputBuffers, byte_view, stored
from vyre.driver.pending import Inputs
from vyre.driver.profile import EVERY_TYPE, DeviceProfile
from vyre.driver.resident import ResidentBuffer, require_byte, require_byte_len, require_owned, require_range, staged
from vyre.driver.telemetry import count_launch
from vyre.driver.timing import TimedResult
from vyre.errors import DeviceOutOfMemory, Timeout, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.program import Program, require_program
from vyre.ir.walk import rewrite
from vyre.lower.plan import contains_grid_sync
from vyre.reference import IN_ORDER, Schedule, seeded

_MOST_INVOCATIONS: Final = MAX_WORKGROUP_INVOCATIONS


class ReferenceBackend(Backend):
    """The reference interpreter: exact, complete and slow; what every other backend is compared with."""

    id = "reference"
    version = vyre.__version__

    def __init__(
        self,
        *,
        grid_sync: bool = True,
        resident: bool = True,
        schedule: Schedule = IN_ORDER,
        poison: int = 0,
        fuel: int = reference.DEFAULT_FUEL,
    ) -> None:
        self._contains_grid_sync = grid_sync
        self._has_resident = resident
        self._schedule = schedule
        self._poison = require_byte(poison)
        self._fuel = fuel

    @cached_property
    def capabilities(self) -> DeviceProfile:
        return DeviceProfile(
            backend=self.id,
            device="interpreter",
            # What others are compared with must not have the faults of the optimizer.
            as_given=True,
            dtypes=EVERY_TYPE,
            float_exact=True,
            subgroup_ops=True,
            atomics64=True,
            shared_memory=True,
            async_transfers=True,
            indirect_dispatch=True,
            traps=self._contains_grid_sync,
            collectives=self._contains_grid_sync,
            grid_sync=self._contains_grid_sync,
            resident=self._has_resident,
            mul_high=True,
            max_native_int_width=64,
            max_workgroup_size=(_MOST_INVOCATIONS, _MOST_INVOCATIONS, _MOST_INVOCATIONS),
            max_invocations_per_workgroup=_MOST_INVOCATIONS,
            max_workgroups_per_axis=MAX_GRID_AXIS,
        )

    def grid_sync_fits(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> bool:
        return self._contains_grid_sync and contains_grid_sync(require_program(program))

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        return self.dispatch_timed(program, inputs, config, into=into).outputs

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        start = perf_counter_ns()
        config = config or DEFAULT_CONFIG
        bound = binder_of(program).bind(inputs, config, self.capabilities)
        plan = bound.plan
        memory = {
            slot.name: np.zeros(slot.count, slot.dtype.storage)
            if slot.input_slot is None
            else bound.inputs[slot.input_slot]
            for slot in plan.descriptors
        }
        ran = self._run(plan, memory, config)
        outputs = plan.deliver([memory[slot.name] for slot in plan.outputs], into)
        return TimedResult(outputs, perf_counter_ns() - start, passes=ran.passes, converged=ran.converged)

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        self._require_resident()
        start = perf_counter_ns()
        config = config or DEFAULT_CONFIG
        plan = binder_of(program).bind_resident(self, resources, config)
        bound = dict(zip((slot.name for slot in plan.descriptors), resources, strict=True))
        memory = {
            slot.name: np.zeros(slot.count, slot.dtype.storage)
            if slot.role is Role.OUTPUT
            else np.frombuffer(bound[slot.name].handle, slot.dtype.storage, slot.count)
            for slot in plan.descriptors
        }
        ran = self._run(plan, memory, config)
        for slot in plan.outputs:
            byte_view(bound[slot.name].handle)[: slot.byte_size] = byte_view(memory[slot.name])
        count_launch(0)
        return TimedResult([], perf_counter_ns() - start, passes=ran.passes, converged=ran.converged)

    def _run(self, plan: BindingPlan, memory: dict[str, Array], config: DispatchConfig) -> Passes:
        """Runs all passes; ``memory`` gets new arrays for what the program writes, so a failure changes nothing."""
        program = _continuing(plan.program)
        schedule = self._schedule if config.seed is None else seeded(config.seed)
        taken = [decl.name for decl in program.input_buffers()]
        written = [slot.name for slot in plan.outputs]
        start = perf_counter()

        def run_pass() -> None:
            result = reference.run(
                program,
                {name: memory[name] for name in taken},
                grid=plan.launch.grid,
                schedule=schedule,
                fuel=self._fuel,
                handlers=config.handlers,
                checked=True,
                timeout_s=None if config.timeout_s is None else config.timeout_s - (perf_counter() - start),
            )
            memory.update(result.outputs)

        with trace.span("launch", self.id, program=program.name, grid=plan.launch.grid):
            try:
                return run_to_fixpoint(run_pass, lambda: [memory[name].tobytes() for name in written], config.passes)
            except Timeout:
                raise Timeout(config.timeout_s or 0.0) from None

    def allocate(self, byte_len: int) -> ResidentBuffer:
        self._require_resident()
        require_byte_len(byte_len)
        try:
            memory = bytearray(byte_len)
        except (MemoryError, OverflowError):
            raise DeviceOutOfMemory(byte_len) from None
        if self._poison:
            memory[:] = bytes([self._poison]) * byte_len
        return ResidentBuffer(self, byte_len, memory)

    def free(self, buffer: ResidentBuffer) -> None:
        require_owned(self, buffer).release()

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        self._require_resident()
        views, filling = staged(self, uploads, fills)
        with trace.span("upload", self.id, bytes=sum(len(view) for _, _, view in views)):
            for buffer, offset, size, value in filling:
                buffer.handle[offset : offset + size] = bytes([value]) * size
            for buffer, offset, view in views:
                buffer.handle[offset : offset + len(view)] = view

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        size = require_range(require_owned(self, buffer), offset, length)
        with trace.span("download", self.id, bytes=size):
            return stored([buffer.handle[offset : offset + size]], into)[0]

    def _require_resident(self) -> None:
        if not self._has_resident:
            raise UnsupportedFeature("resident buffers", self.id)


def _continuing(program: Program) -> Program:
    """The program as it goes on from the state it is given: outputs are read as well, and the grid is decided.

    It stays with the program it is made from, so that repeated runs make it once.
    """
    kept = program.__dict__
    made: Program | None = kept.get("_continuing")
    if made is None:
        made = kept["_continuing"] = _make_continuing(program)
    return made


def _make_continuing(program: Program) -> Program:
    buffers = tuple(map(_persistent, program.buffers))
    if program.stats().has_indirect_dispatch:
        decided = rewrite(program.entry, on_statement=_without_indirect)
        return program.with_entry(decided).with_buffers(buffers)
    return program if buffers == program.buffers else program.with_buffers(buffers).with_source(program.source)


def _persistent(decl: BufferDecl) -> BufferDecl:
    if decl.role is not Role.OUTPUT:
        return decl
    return msgspec.structs.replace(decl, access=Access.READ_WRITE, is_output=False, pipeline_live_out=False)


def _without_indirect(statement: n.Stmt) -> Iterable[n.Stmt]:
    return () if isinstance(statement, n.IndirectDispatch) else (statement,)
