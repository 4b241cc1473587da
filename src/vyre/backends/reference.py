"""The reference interpreter as a device: what every other backend is compared with.

Memory is the host's, grid barriers are native, and features can be switched off, so that every way through the driver
can be tried against the oracle itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np

import vyre
from vyre import reference
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Copy, Device, Fill, Handle, Range, RunOptions
from vyre.driver.profile import EVERY_TYPE, DeviceProfile
from vyre.driver.resident import require_byte
from vyre.driver.timing import Timing
from vyre.errors import DeviceOutOfMemory, Timeout
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.launch import MAX_GRID_AXIS, Launch
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.program import Program
from vyre.ir.walk import rewrite
from vyre.lower.schedule import host_buffers
from vyre.reference import IN_ORDER, Schedule, seeded

_MOST_INVOCATIONS: Final = MAX_WORKGROUP_INVOCATIONS


class ReferenceDevice(Device):
    """The interpreter behind the device contract; memory are byte arrays."""

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
        """``poison`` is the byte that new memory holds; ``fuel`` limits the steps of a launch."""
        self._grid_sync = grid_sync
        self._resident = resident
        self._schedule = schedule
        self._poison = require_byte(poison)
        self._fuel = fuel

    @cached_property
    def profile(self) -> DeviceProfile:
        return DeviceProfile(
            backend=self.id,
            device="interpreter",
            # What others are compared with must not have the faults of the optimizer.
            as_given=True,
            dtypes=EVERY_TYPE,
            native_dtypes=EVERY_TYPE,
            float_exact=True,
            subgroup_ops=True,
            atomics64=True,
            shared_memory=True,
            async_transfers=True,
            indirect_dispatch=True,
            traps=self._grid_sync,
            collectives=self._grid_sync,
            grid_sync=self._grid_sync,
            resident=self._resident,
            max_workgroup_size=(_MOST_INVOCATIONS, _MOST_INVOCATIONS, _MOST_INVOCATIONS),
            max_invocations_per_workgroup=_MOST_INVOCATIONS,
            max_workgroups_per_axis=MAX_GRID_AXIS,
        )

    def allocate(self, byte_len: int) -> Handle:
        try:
            memory = bytearray(byte_len)
        except (MemoryError, OverflowError):
            raise DeviceOutOfMemory(byte_len) from None
        if self._poison:
            memory[:] = bytes([self._poison]) * byte_len
        return memory

    def free(self, handle: Handle) -> None:
        """Memory goes with its last user."""

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        for handle, offset, size, value in fills:
            handle[offset : offset + size] = bytes([value]) * size
        for handle, offset, data in copies:
            handle[offset : offset + len(data)] = data

    def read(self, ranges: Sequence[Range]) -> list[bytearray]:
        return [handle[offset : offset + length] for handle, offset, length in ranges]

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Program:
        return _continuing(program)

    def launch(self, code: Any, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        program: Program = code
        decls = host_buffers(program)
        given = {
            decl.name: np.frombuffer(handle, decl.dtype.storage, launch.counts[decl.name])
            for decl, handle in zip(decls, memory, strict=True)
        }
        seed = options.config.seed
        try:
            result = reference.run(
                program,
                {decl.name: given[decl.name] for decl in program.input_buffers()},
                grid=launch.grid,
                schedule=self._schedule if seed is None else seeded(seed),
                fuel=self._fuel,
                handlers=options.config.handlers,
                checked=True,
                timeout_s=options.time_left(),
            )
        except Timeout:
            raise options.timeout() from None
        for decl, handle in zip(decls, memory, strict=True):
            output = result.outputs.get(decl.name)
            if output is not None:
                handle[: output.nbytes] = output.tobytes()
        return None


class ReferenceBackend(Backend):
    """The reference interpreter: exact, complete and slow; what every other backend is compared with."""

    id = "reference"
    version = ReferenceDevice.version
    device: ReferenceDevice

    def __init__(
        self,
        *,
        grid_sync: bool = True,
        resident: bool = True,
        schedule: Schedule = IN_ORDER,
        poison: int = 0,
        fuel: int = reference.DEFAULT_FUEL,
    ) -> None:
        """See ``ReferenceDevice``."""
        super().__init__(
            ReferenceDevice(grid_sync=grid_sync, resident=resident, schedule=schedule, poison=poison, fuel=fuel)
        )


def _continuing(program: Program) -> Program:
    """The program as it goes on from what its memory holds: outputs are read as well, and the grid is decided."""
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
