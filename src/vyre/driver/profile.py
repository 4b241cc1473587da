"""What can a device do? One record of facts; every default is the answer of a device that has said nothing."""

from __future__ import annotations

import math
from typing import Final, Literal

import msgspec

from vyre.checker.capabilities import Capabilities, missing_capabilities
from vyre.errors import UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.extensions import inline_calls
from vyre.ir.program import Program, has_shared_memory
from vyre.semantics.types import ALL_TYPES, DType

BASIC_TYPES: Final = frozenset({DType.BOOL, DType.U32, DType.I32, DType.F32})
EVERY_TYPE: Final = frozenset(ALL_TYPES)


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities and limits. An emulated feature is False; a limit of 0 was not reported.

    ``as_given`` says that programs run as they are, without the optimizer.
    """

    backend: str
    device: str = ""
    as_given: bool = False
    dtypes: frozenset[DType] = BASIC_TYPES
    float_exact: bool = False
    subgroup_ops: bool = False
    subgroup_size: int | None = None
    atomics64: bool = False
    shared_memory: bool = False
    async_transfers: bool = False
    indirect_dispatch: bool = False
    traps: bool = False
    collectives: bool = False
    grid_sync: bool = False
    allows_host_grid_sync_split: bool = True
    resident: bool = False
    in_place: bool = False
    is_distributed: bool = False
    async_compute: bool = False
    speculation: bool = False
    persistent_threads: bool = False
    specialization_constants: bool = False
    tensor_cores: bool = False
    mul_high: bool = False
    dual_issue: bool = False
    device_timestamps: bool = False
    hardware_counters: bool = False
    timing_quality: Literal["host", "device"] = "host"
    max_native_int_width: int = 32
    max_workgroup_size: tuple[int, int, int] = (1, 1, 1)
    max_invocations_per_workgroup: int = 0
    max_workgroups_per_axis: int = 1
    max_shared_memory_bytes: int = 0
    max_storage_buffer_bytes: int = 0
    compute_units: int = 0
    registers_per_thread: int = 0
    l1_cache_bytes: int = 0
    l2_cache_bytes: int = 0
    memory_bandwidth_gbps: int = 0
    shared_memory_banks: int = 0
    shared_memory_bank_bytes: int = 0
    ideal_unroll: int = 0
    ideal_vector_bits: int = 0
    ideal_workgroup: tuple[int, int, int] = (0, 0, 0)

    @property
    def workgroup_invocations(self) -> int:
        """How many invocations a workgroup may have."""
        return self.max_invocations_per_workgroup or math.prod(self.max_workgroup_size)


def missing_grid_point(profile: DeviceProfile, program: Program) -> str | None:
    """The first kind of grid-wide point in the program that the device lacks, in words."""
    stats = inline_calls(program).stats()
    if stats.has_grid_sync and not profile.grid_sync:
        return "grid barriers inside a launch"
    if stats.has(n.Trap, n.Resume) and not profile.traps:
        return "traps inside a launch"
    if stats.has_collectives and not profile.collectives:
        return "collectives inside a launch"
    return None


def require_supported(profile: DeviceProfile, program: Program) -> None:
    """Refuses a legal program that the device cannot run in one launch, before anything runs.

    An indirect grid is not asked for: the host reads it where the device cannot.
    """
    has = Capabilities(profile.dtypes, profile.subgroup_ops, profile.atomics64)
    for lacking in missing_capabilities(program, has):
        name = f"the program '{program.name}' ({lacking.code}: {lacking.message.rstrip('.')})"
        raise UnsupportedFeature(name, profile.backend, lacking.fix)
    missing = _missing_feature(profile, program)
    if missing is not None:
        raise UnsupportedFeature(missing, profile.backend)
    point = missing_grid_point(profile, program)
    if point is not None:
        fix = "run it with backend.compile(program) or vyre.driver.routes.dispatch, which cut it into launches."
        raise UnsupportedFeature(point, profile.backend, fix)


def _missing_feature(profile: DeviceProfile, program: Program) -> str | None:
    if program.stats().has_async and not profile.async_transfers:
        return "asynchronous transfers"
    if has_shared_memory(program):
        if not profile.shared_memory:
            return "workgroup memory"
        used = sum(decl.count * decl.dtype.bytes for decl in program.shared_buffers())
        if used > profile.max_shared_memory_bytes > 0:
            return f"{used:,} bytes of workgroup memory (its limit is {profile.max_shared_memory_bytes:,})"
    if any(size > most for size, most in zip(program.workgroup_size, profile.max_workgroup_size, strict=True)):
        return f"a workgroup of {program.workgroup_size} (its limit is {profile.max_workgroup_size})"
    if math.prod(program.workgroup_size) > profile.workgroup_invocations:
        return f"a workgroup of more than {profile.workgroup_invocations} invocations"
    return None
