"""The processor as a device: machine code for vectors of lanes, run by a pool of threads on host memory.

Memory is the host's own, so callers' arrays are worked on without a copy. Every schedule runs natively: a program with
grid barriers is cut at them, and its segments follow one another in native code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np

import vyre
from vyre.backends.cpu.compile import assembly
from vyre.backends.cpu.images import Image, MakeImage, load_image
from vyre.backends.cpu.kernels import LARGE_GRID, SCALAR, CpuCode, Kernels
from vyre.backends.cpu.launches import PreparedLaunch, Sharing, aligned_bytes, bytes_of
from vyre.backends.cpu.memory import LARGE_BYTES, Memory
from vyre.backends.cpu.pool import Pool
from vyre.backends.cpu.schedules import CpuSchedule, run_again
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Copy, Device, Fill, Handle, HostArrays, Range, RunOptions, Use
from vyre.driver.memory_cache import CacheStats, MemoryCache
from vyre.driver.profile import EVERY_TYPE, HALF_TYPES, DeviceProfile
from vyre.driver.timing import Timing
from vyre.errors import DeviceOutOfMemory
from vyre.ir.binding import Array
from vyre.ir.launch import MAX_GRID_AXIS, Launch
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.program import Program
from vyre.lower.schedule import LaunchSchedule
from vyre.semantics.types import DType

_MOST_PREPARED: Final = 64


class CpuArrays(HostArrays):
    """Host arrays; large ones lie in recycled pages."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def empty(self, count: int, storage: np.dtype[Any]) -> Array:
        if count * storage.itemsize < LARGE_BYTES:
            return np.empty(count, storage)
        return self._memory.empty(count, storage)

    def copy(self, array: Array) -> Array:
        return array.copy() if array.nbytes < LARGE_BYTES else self._memory.copy(array)


class CpuDevice(Device):
    """The vector units and threads of the processor. Memory handles are arrays."""

    id = "cpu"
    version = vyre.__version__
    runs_schedules = True

    def __init__(self, kernels: Kernels, sharing: Sharing) -> None:
        self.kernels = kernels
        self.pool = Pool(sharing, kernels.disk)
        self.memory = Memory()
        self._arrays = CpuArrays(self.memory)
        # Launches by themselves, as the driver's loop makes them, by the identity of what they are of.
        self._launches: MemoryCache[tuple[CpuCode, Launch, PreparedLaunch]] = MemoryCache(_MOST_PREPARED)

    @cached_property
    def profile(self) -> DeviceProfile:
        machine = self.kernels.machine
        most = MAX_WORKGROUP_INVOCATIONS
        return DeviceProfile(
            backend=self.id,
            device=machine.cpu,
            dtypes=EVERY_TYPE if machine.has_half_conversions else EVERY_TYPE - {DType.F16},
            native_dtypes=EVERY_TYPE - HALF_TYPES,
            float_exact=True,
            subgroup_ops=self.kernels.width != SCALAR,
            atomics64=True,
            shared_memory=True,
            async_transfers=True,
            indirect_dispatch=True,
            traps=True,
            collectives=True,
            grid_sync=True,
            resident=True,
            in_place=True,
            max_workgroup_size=(most, most, most),
            max_invocations_per_workgroup=most,
            max_workgroups_per_axis=MAX_GRID_AXIS,
            compute_units=self.pool.sharing.threads,
        )

    def allocate(self, byte_len: int) -> Handle:
        try:
            return (aligned_bytes if byte_len < LARGE_BYTES else self.memory.zeros)(byte_len)
        except (MemoryError, ValueError):
            raise DeviceOutOfMemory(byte_len) from None

    def free(self, handle: Handle) -> None:
        """Memory goes with the last array on it."""

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        for handle, offset, size, value in fills:
            bytes_of(handle)[offset : offset + size] = value
        for handle, offset, data in copies:
            bytes_of(handle)[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, ranges: Sequence[Range]) -> list[Array]:
        return [self._arrays.copy(bytes_of(handle)[offset : offset + length]) for handle, offset, length in ranges]

    def read_with(self, ranges: Sequence[Range], use: Use) -> Any:
        return use([bytes_of(handle)[offset : offset + length] for handle, offset, length in ranges])

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> CpuCode:
        x, y, z = (*(config.grid_override or LARGE_GRID), 1, 1)[:3]
        return self.kernels.code(program, source, (x, y, z), optimize=config.optimization.code)

    def launch(self, code: CpuCode, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        prepared = self._prepared(code, launch)
        stopped = self.pool.run(prepared, memory, options.time_left())
        if stopped:
            run_again(self.pool, prepared, memory, options, stopped)
        return None

    def _prepared(self, code: CpuCode, launch: Launch) -> PreparedLaunch:
        key = id(code), id(launch)
        found = self._launches.get(key)
        if found is None:
            prepared = PreparedLaunch(code.for_launch(launch.grid), code.program, launch, self.pool.sharing)
            found = code, launch, prepared
            self._launches.put(key, found)
        return found[2]

    def prepare_schedule(self, schedule: LaunchSchedule) -> CpuSchedule:
        return CpuSchedule(self, schedule)

    def host_view(self, handle: Handle) -> Array:
        view: Array = handle
        return view

    def host_arrays(self) -> HostArrays:
        return self._arrays

    def explain(self, code: CpuCode) -> list[str]:
        from vyre.backends.cpu.instructions import summary

        kernel = code.for_launch(LARGE_GRID).kernel
        over = f"rows of the grid along {'xyz'[kernel.axis]}" if kernel.is_flat else "workgroups"
        lines = [f"{kernel.width} lanes, over {over}, {kernel.scratch_bytes:,} bytes of its own"]
        lines += [f"{count:4} {what}" for what, count in kernel.notes.items() if count]
        for size, width in sorted(code.measured.items()):
            chosen = "scalar code" if width == SCALAR else f"{width} lanes"
            lines.append(f"measured for {1 << (size - 1):,} to {(1 << size) - 1:,} invocations: {chosen} is fastest")
        lines.append(f"innermost loop: {summary(assembly(kernel.text))}")
        return lines

    def load_image(self, key: bytes, make: MakeImage) -> Image:
        """Programs made ready to run without being there; see ``vyre.backends.cpu.images``."""
        return load_image(self, key, make)

    def cache_stats(self) -> CacheStats:
        return self.kernels.disk.stats()

    def close(self) -> None:
        self.pool.close()
        self.memory.forget()
