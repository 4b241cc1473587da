"""Device profiles: what a device can do, as one record whose defaults are the answers of a device that says nothing."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import msgspec

from vyre.checker.capabilities import Capabilities, missing_capabilities
from vyre.errors import UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.extensions import inline_calls
from vyre.ir.launch import Launch
from vyre.ir.program import Program, has_shared_memory
from vyre.semantics.operators import OPERATORS, AtomicOp
from vyre.semantics.types import ALL_TYPES, DType

BASIC_TYPES: Final = frozenset({DType.BOOL, DType.U32, DType.I32, DType.F32})
EVERY_TYPE: Final = frozenset(ALL_TYPES)
# Computed by conversion to f32 where the device has no arithmetic of their own.
HALF_TYPES: Final = frozenset({DType.F16, DType.BF16})


class DeviceProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities and limits. An emulated feature is False; a limit of 0 was not reported.

    ``as_given`` says that programs run without the optimizer. ``dtypes`` are the types that programs may have,
    ``native_dtypes`` those with arithmetic of their own. A ``subgroup_size`` of None means that subgroups are as large
    as each program says. ``traps``, ``collectives`` and ``grid_sync`` say that a launch has them without the host in
    between. ``in_place`` says that memory handles are NumPy arrays: launches work on the caller's. With
    ``persistent_threads``, all workgroups of a launch of at most ``compute_units`` make progress at the same time.
    """

    backend: str
    device: str = ""
    as_given: bool = False
    dtypes: frozenset[DType] = BASIC_TYPES
    native_dtypes: frozenset[DType] = BASIC_TYPES
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
    persistent_threads: bool = False
    device_timestamps: bool = False
    max_workgroup_size: tuple[int, int, int] = (1, 1, 1)
    max_invocations_per_workgroup: int = 0
    max_workgroups_per_axis: int = 0
    max_shared_memory_bytes: int = 0
    compute_units: int = 0

    @property
    def f16(self) -> bool:
        """Whether f16 has arithmetic of its own."""
        return DType.F16 in self.native_dtypes

    @property
    def bf16(self) -> bool:
        """Whether bf16 has arithmetic of its own."""
        return DType.BF16 in self.native_dtypes

    @property
    def supported_ops(self) -> frozenset[str]:
        """The names of all operations that programs may have: operators, atomics, subgroup and grid-wide ones."""
        return _supported_ops(self)

    @property
    def workgroup_invocations(self) -> int:
        """The most invocations of a workgroup."""
        return self.max_invocations_per_workgroup or math.prod(self.max_workgroup_size)


# The grid-wide points of a program: how it is known to have one, the capability, what it is called.
_SUBGROUP_OPS: Final = ("subgroup_ballot", "subgroup_shuffle", "subgroup_reduce", "subgroup_size", "subgroup_local_id")
_GRID_POINTS: Final = {
    "grid_sync": ("grid_sync",),
    "traps": ("trap", "resume"),
    "collectives": ("all_reduce", "all_gather", "reduce_scatter", "broadcast"),
}


@lru_cache(maxsize=64)
def _supported_ops(profile: DeviceProfile) -> frozenset[str]:
    found = {row.name for row in OPERATORS.values() if profile.dtypes.intersection(row.types)}
    found |= {f"atomic_{op.value}" for op in AtomicOp}
    found |= {"load", "store", "select", "cast", "bitcast", "barrier", "copy_bytes"}
    found |= {"fma"} if any(dtype.is_float for dtype in profile.dtypes) else set()
    found |= set(_SUBGROUP_OPS) if profile.subgroup_ops else set()
    found |= {"async_load", "async_store", "async_wait"} if profile.async_transfers else set()
    found |= {"indirect_dispatch"} if profile.indirect_dispatch else set()
    for capability, names in _GRID_POINTS.items():
        found |= set(names) if getattr(profile, capability) else set()
    return frozenset(found)


def missing_grid_point(profile: DeviceProfile, program: Program) -> str | None:
    """The first kind of grid-wide point in the program that the device lacks, in words; None if it has all."""
    stats = inline_calls(program).stats()
    if stats.has_grid_sync and not profile.grid_sync:
        return "grid barriers inside a launch"
    if stats.has(n.Trap, n.Resume) and not profile.traps:
        return "traps inside a launch"
    if stats.has_collectives and not profile.collectives:
        return "collectives inside a launch"
    return None


def require_supported(profile: DeviceProfile, program: Program) -> None:
    """Refuse a legal program that the device cannot run, before anything runs.

    An indirect grid is not asked for: the host reads it where the device cannot. Nor are grid-wide points: programs are
    cut there.
    """
    has = Capabilities(profile.dtypes, profile.subgroup_ops, profile.atomics64)
    for lacking in missing_capabilities(program, has):
        name = f"the program '{program.name}' ({lacking.code}: {lacking.message.rstrip('.')})"
        raise UnsupportedFeature(name, profile.backend, lacking.fix)
    missing = _missing_feature(profile, program)
    if missing is not None:
        raise UnsupportedFeature(missing, profile.backend)


def require_fitting(profile: DeviceProfile, program: Program, launch: Launch) -> None:
    """Refuse a grid that is too large for the device."""
    limit = profile.max_workgroups_per_axis
    if max(launch.grid) > limit > 0:
        raise UnsupportedFeature(
            f"the grid {launch.grid} of '{program.name}' (its limit along an axis is {limit:,} workgroups)",
            profile.backend,
            "launch fewer workgroups, along more axes, or choose another backend.",
        )


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
