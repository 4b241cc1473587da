"""The WebGPU device: kernels in WGSL, memory and command buffers.

Grid barriers, traps and collectives are not native: the driver cuts programs there, and kernels on the device choose
the next segment. Subgroup operations are native where the device's subgroups have the size that the program asks for;
otherwise they are emulated through workgroup memory, and the profile does not claim them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from threading import Lock
from typing import Any, Final

import msgspec

import vyre
from vyre.arguments import require
from vyre.backends.webgpu import adapters
from vyre.backends.webgpu.gpu import Gpu
from vyre.backends.webgpu.launches import PreparedLaunch, WebGpuCode
from vyre.backends.webgpu.probe import ends_loops, is_float_exact, is_subgroup_right
from vyre.backends.webgpu.runs import StraightRun
from vyre.backends.webgpu.schedules import GpuSchedule, is_driven, is_straight
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Copy, Device, Fill, Handle, PreparedSchedule, Range, RunOptions, Use
from vyre.driver.memory_cache import CacheStats, MemoryCache
from vyre.driver.profile import BASIC_TYPES, EVERY_TYPE, DeviceProfile
from vyre.driver.scratch import Scratch
from vyre.driver.timing import Timing
from vyre.errors import BadInputs
from vyre.ir.launch import MAX_GRID_AXIS, Launch
from vyre.ir.program import Program
from vyre.lower.schedule import LaunchSchedule
from vyre.semantics.types import DType

_MOST_PREPARED: Final = 256


class WebGpuMemory:
    """Memory on a device, and its length in bytes."""

    __slots__ = ("buffer", "byte_len", "gpu")

    def __init__(self, gpu: Gpu, byte_len: int) -> None:
        self.gpu = gpu
        self.byte_len = byte_len
        self.buffer = gpu.new_memory(byte_len)


class WebGpuDevice(Device):
    """The best adapter of the machine, or the one named; opened when it is first needed."""

    id = "webgpu"
    version = vyre.__version__

    def __init__(self, adapter: str | None = None) -> None:
        if adapter is not None:
            require(adapter, str, "the adapter", "give a part of its name, or leave it out.")
        self._wanted = adapter
        self._gpu: Gpu | None = None
        self._profile: DeviceProfile | None = None
        self._opening = Lock()
        # What schedules and transfers need beside the caller's memory.
        self.scratch = Scratch(self)
        self._launches: MemoryCache[tuple[Gpu, WebGpuCode, Launch, PreparedLaunch]] = MemoryCache(_MOST_PREPARED)

    @property
    def gpu(self) -> Gpu:
        """The open device."""
        if self._gpu is None:
            with self._opening:
                if self._gpu is None:
                    self._gpu = self._opened()
        return self._gpu

    def _opened(self) -> Gpu:
        gpu = Gpu(adapters.choose_adapter(self._wanted))
        gpu.ends_loops = ends_loops(gpu)
        if gpu.fixed_lanes is not None and is_subgroup_right(gpu, gpu.fixed_lanes):
            gpu.native_lanes = gpu.fixed_lanes
        return gpu

    @property
    def profile(self) -> DeviceProfile:
        if self._profile is None:
            gpu = self.gpu
            with gpu.lock:
                if self._profile is None:
                    self._profile = _profile_of(gpu)
        return self._profile

    @property
    def accepts(self) -> DeviceProfile:
        return _accepting(self.profile)

    def allocate(self, byte_len: int) -> WebGpuMemory:
        return WebGpuMemory(self.gpu, byte_len)

    def free(self, handle: Handle) -> None:
        handle.gpu.free(handle.buffer)

    def buffer_of(self, handle: WebGpuMemory) -> Any:
        """Return the buffer of memory, if that is on the open device."""
        if handle.gpu is not self._gpu:
            raise BadInputs(
                "the resident buffer was on a device that was lost, and its bytes are gone.",
                "free it, allocate it again and upload the data again.",
            )
        return handle.buffer

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        filling = [(self.buffer_of(handle), offset, size, value * 0x01010101) for handle, offset, size, value in fills]
        ready = [(self.buffer_of(handle), offset, data, handle.byte_len) for handle, offset, data in copies]
        gpu = self.gpu
        with gpu.watched():
            gpu.fill(filling)
            for one in ready:
                gpu.upload(*one)

    def read(self, ranges: Sequence[Range]) -> list[bytearray]:
        read: list[bytearray] = self.read_with(ranges, lambda views: [bytearray(view) for view in views])
        return read

    def read_with(self, ranges: Sequence[Range], use: Use) -> Any:
        regions = [(self.buffer_of(handle), offset, length) for handle, offset, length in ranges]
        gpu = self.gpu
        with gpu.watched():
            return gpu.read(gpu.device.create_command_encoder(), regions, use)

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> WebGpuCode:
        code = WebGpuCode(program)
        code.pipeline(self.gpu, folded=code.is_indirect)
        return code

    def launch(self, code: WebGpuCode, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing:
        gpu = self.gpu
        prepared = self._prepared(gpu, code, launch)
        with gpu.watched(), self.scratch.borrowed(prepared.captures) as captured:
            works = prepared.works([self.buffer_of(handle) for handle in (*memory, *captured)])
            return StraightRun(gpu, works).go([], len, options).timing

    def _prepared(self, gpu: Gpu, code: WebGpuCode, launch: Launch) -> PreparedLaunch:
        """Return what calls of one launch share, made once."""
        key = id(gpu), id(code), id(launch)
        found = self._launches.get(key)
        if found is None:
            # The key names objects by identity, so the entry keeps them alive.
            found = gpu, code, launch, PreparedLaunch(gpu, code, launch)
            self._launches.put(key, found)
        return found[3]

    def prepare_schedule(self, schedule: LaunchSchedule) -> PreparedSchedule | None:
        return GpuSchedule(self, schedule) if is_straight(schedule) or is_driven(schedule) else None

    def reads_grid(self, program: Program, config: DispatchConfig) -> bool:
        # The host must know the grid to size the memory of transfers and to count passes.
        stats = program.stats()
        return stats.has_indirect_dispatch and not stats.has_async and config.passes == 1

    def explain(self, code: WebGpuCode) -> list[str]:
        facts = self.gpu.facts
        exact = "exact" if self.profile.float_exact else "within the declared ULP budget"
        kernel = code.kernel(self.gpu, folded=code.is_indirect)
        return [f"{len(kernel.text):,} characters of WGSL", f"adapter: {facts.name} ({facts.api}), floats {exact}"]

    def cache_stats(self) -> CacheStats | None:
        return None if self._gpu is None else self._gpu.cache_stats()

    def metrics(self) -> Mapping[str, int]:
        """Counts of submissions to the device, and of readbacks that the host waited for."""
        gpu = self._gpu
        return {} if gpu is None else {"submissions": gpu.submissions, "readbacks": gpu.readbacks}

    def prepare(self) -> None:
        assert self.profile is not None

    def synchronize(self) -> None:
        if self._gpu is not None and self._gpu.lost_reason is None:
            self._gpu.wait()

    def close(self) -> None:
        self._launches.clear()
        if self._gpu is not None:
            self.scratch.clear()
            self._gpu.close()

    def is_lost(self) -> bool:
        return self._gpu is not None and self._gpu.lost_reason is not None

    def recover(self) -> None:
        if not self.is_lost():
            return
        with self._opening:
            self._launches.clear()
            self.scratch.forget()
            self._gpu = self._opened()


@lru_cache(maxsize=32)
def _accepting(profile: DeviceProfile) -> DeviceProfile:
    """The profile with the features that are emulated through workgroup memory."""
    return msgspec.structs.replace(profile, subgroup_ops=True)


def _profile_of(gpu: Gpu) -> DeviceProfile:
    limits = gpu.limits
    x, y, z = (limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz")
    return DeviceProfile(
        backend="webgpu",
        device=f"{gpu.facts.name} ({gpu.facts.api}, {gpu.facts.driver})",
        dtypes=EVERY_TYPE - {DType.F64},
        native_dtypes=BASIC_TYPES,
        float_exact=is_float_exact(gpu),
        subgroup_ops=gpu.native_lanes is not None,
        subgroup_size=gpu.native_lanes,
        shared_memory=True,
        async_transfers=True,
        indirect_dispatch=True,
        resident=True,
        device_timestamps=gpu.timer is not None,
        max_workgroup_size=(x, y, z),
        max_invocations_per_workgroup=limits["max-compute-invocations-per-workgroup"],
        max_workgroups_per_axis=MAX_GRID_AXIS,
        max_shared_memory_bytes=limits["max-compute-workgroup-storage-size"],
    )
