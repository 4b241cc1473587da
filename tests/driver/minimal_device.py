"""A complete device in plain Python: memory are byte arrays, and the reference interpreter runs the programs.

It has the seven operations that a device must have, and nothing that is optional. ``docs/backends.md`` quotes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from vyre import reference
from vyre.driver import Device, DeviceProfile, DispatchConfig, RunOptions
from vyre.errors import DeviceOutOfMemory, Timeout
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.ir.walk import rewrite
from vyre.lower.schedule import host_buffers
from vyre.semantics.types import ALL_TYPES


class PlainMemory(Device):
    """Memory as byte arrays, and what the device can do."""

    id = "minimal"
    version = "1.0"
    profile = DeviceProfile(
        backend="minimal",
        device="plain Python",
        dtypes=frozenset(ALL_TYPES),
        float_exact=True,
        subgroup_ops=True,
        atomics64=True,
        shared_memory=True,
        async_transfers=True,
        resident=True,
        max_workgroup_size=(1024, 1024, 1024),
        max_invocations_per_workgroup=1024,
        max_workgroups_per_axis=2**31 - 1,
    )

    def allocate(self, byte_len: int) -> bytearray:
        try:
            return bytearray(byte_len)
        except (MemoryError, OverflowError):
            raise DeviceOutOfMemory(byte_len) from None

    def free(self, handle: bytearray) -> None:
        """Nothing to do: Python frees memory that is no longer used."""

    def write(self, copies: Sequence[Any], fills: Sequence[Any]) -> None:
        for handle, offset, length, value in fills:
            handle[offset : offset + length] = bytes([value]) * length
        for handle, offset, data in copies:
            handle[offset : offset + len(data)] = data

    def read(self, ranges: Sequence[Any]) -> list[bytearray]:
        return [handle[offset : offset + length] for handle, offset, length in ranges]


def kept(decl: BufferDecl) -> BufferDecl:
    """A buffer as a launch sees it: an output goes on from what memory holds."""
    if decl.role is not Role.OUTPUT:
        return decl
    return msgspec.structs.replace(decl, access=Access.READ_WRITE, is_output=False, pipeline_live_out=False)


def without_grid(statement: n.Stmt) -> tuple[n.Stmt, ...]:
    """A statement without the choice of an indirect grid, which ``launch`` is given."""
    return () if isinstance(statement, n.IndirectDispatch) else (statement,)


class MinimalDevice(PlainMemory):
    """Runs programs in plain Python."""

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Program:  # noqa: ARG002
        entry = rewrite(program.entry, on_statement=without_grid)
        return program.with_entry(entry).with_buffers([kept(decl) for decl in program.buffers])

    def launch(self, code: Program, memory: Sequence[bytearray], launch: Launch, options: RunOptions) -> None:
        handles = {decl.name: handle for decl, handle in zip(host_buffers(code), memory, strict=True)}
        inputs = {
            decl.name: np.frombuffer(handles[decl.name], decl.dtype.storage, launch.counts[decl.name])
            for decl in code.input_buffers()
        }
        try:
            result = reference.run(code, inputs, grid=launch.grid, checked=True, timeout_s=options.time_left())
        except Timeout:
            raise options.timeout() from None
        for name, output in result.outputs.items():
            handles[name][: output.nbytes] = output.tobytes()
