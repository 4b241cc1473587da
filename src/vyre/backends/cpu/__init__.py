"""Who runs programs on the processor? Machine code for vectors of lanes, behind the whole contract.

Resident buffers are aligned host memory. Grid-wide points are not native: the driver's routes cut programs there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from time import perf_counter_ns
from typing import Final

import numpy as np

import vyre
from vyre.backends.cpu.kernels import CompiledKernel, Kernels
from vyre.backends.cpu.launches import PreparedLaunch
from vyre.backends.cpu.pool import TIMED_OUT, Pool, wanted_threads
from vyre.backends.cpu.sequences import CpuSequence
from vyre.driver import trace
from vyre.driver.backend import Availability, Backend, Fill, Upload
from vyre.driver.binding import BindingPlan, binder_of
from vyre.driver.cache import CacheStats, DiskCache
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.fixpoint import Passes, run_to_fixpoint
from vyre.driver.outputs import Buffer, OutputBuffers, byte_view
from vyre.driver.pending import Inputs
from vyre.driver.pipeline import CompiledPipeline
from vyre.driver.profile import EVERY_TYPE, DeviceProfile
from vyre.driver.registry import CPU_PRIORITY
from vyre.driver.resident import (
    ReadRangeLike,
    ResidentBuffer,
    require_byte,
    require_byte_len,
    require_owned,
    require_range,
)
from vyre.driver.sequence import PreparedSequence, Step, Until, plan_sequence
from vyre.driver.telemetry import count_launch
from vyre.driver.timing import TimedResult
from vyre.emit.llvm import Kernel
from vyre.errors import DeviceOutOfMemory, Timeout, VyreError
from vyre.ir.binding import Array
from vyre.ir.buffers import Role
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.program import Program
from vyre.semantics.types import DType

_ALIGNMENT: Final = 64
_MOST_LAUNCHES: Final = 256
_ONE_PASS: Final = Passes(1, None)


class CpuBackend(Backend):
    """The processor's vector units: every program of the language, compiled with LLVM."""

    id = "cpu"
    version = vyre.__version__

    def __init__(
        self,
        *,
        threads: int | None = None,
        width: int | None = None,
        verify: bool = False,
        cache: DiskCache | None = None,
    ) -> None:
        """``threads`` defaults to ``VYRE_THREADS`` or the machine's; ``width`` is the lanes of a vector."""
        self._kernels = Kernels(width, verify, DiskCache() if cache is None else cache)
        self.pool = Pool(wanted_threads(threads))
        self._launches: dict[tuple[BindingPlan, bool], PreparedLaunch] = {}

    @classmethod
    def availability(cls) -> Availability:
        if sys.platform == "win32":
            return Availability(False, "its threads need POSIX", "use it on Linux or macOS, or under WSL.")
        return Availability(priority=CPU_PRIORITY)

    @cached_property
    def capabilities(self) -> DeviceProfile:
        machine = self._kernels.machine
        most = MAX_WORKGROUP_INVOCATIONS
        return DeviceProfile(
            backend=self.id,
            device=machine.cpu,
            dtypes=EVERY_TYPE if machine.has_half_conversions else EVERY_TYPE - {DType.F16},
            float_exact=True,
            subgroup_ops=True,
            atomics64=True,
            shared_memory=True,
            async_transfers=True,
            indirect_dispatch=True,
            resident=True,
            persistent_threads=True,
            mul_high=True,
            max_native_int_width=64,
            max_workgroup_size=(most, most, most),
            max_invocations_per_workgroup=most,
            max_workgroups_per_axis=MAX_GRID_AXIS,
            compute_units=self.pool.threads,
            ideal_vector_bits=32 * self._kernels.width,
        )

    def compile(self, program: Program, config: DispatchConfig | None = None) -> CpuPipeline:
        return CpuPipeline(self, program, config)

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        config = config or DEFAULT_CONFIG
        plan, results, _ = self._dispatch(program, inputs, config)
        return plan.deliver(results, into)

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        start = perf_counter_ns()
        plan, results, ran = self._dispatch(program, inputs, config or DEFAULT_CONFIG)
        outputs = plan.deliver(results, into)
        return TimedResult(outputs, perf_counter_ns() - start, passes=ran.passes, converged=ran.converged)

    def _dispatch(
        self, program: Program, inputs: Inputs, config: DispatchConfig
    ) -> tuple[BindingPlan, list[Array], Passes]:
        bound = binder_of(program).bind(inputs, config, self.capabilities)
        plan = bound.plan
        memory: list[Array] = []
        for slot in plan.descriptors:
            if slot.input_slot is None:
                memory.append(np.zeros(slot.count, slot.dtype.storage))
                continue
            data = bound.inputs[slot.input_slot]
            # A kernel relies on the alignment of elements, and changes no memory of the caller's.
            memory.append(data.copy() if slot.output_slot is not None or not data.flags.aligned else data)
        written = [memory[place] for place in self.prepared_launch(plan, config).outputs]
        return plan, written, self._run(plan, memory, written, config)

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        start = perf_counter_ns()
        config = config or DEFAULT_CONFIG
        plan = binder_of(program).bind_resident(self, resources, config)
        memory: list[Array] = [resource.handle for resource in resources]
        for slot, array in zip(plan.descriptors, memory, strict=True):
            if slot.role is Role.OUTPUT:
                array[: slot.byte_size] = 0
        written = [
            memory[place][: plan.descriptors[place].byte_size] for place in self.prepared_launch(plan, config).outputs
        ]
        ran = self._run(plan, memory, written, config)
        count_launch(0)
        return TimedResult([], perf_counter_ns() - start, passes=ran.passes, converged=ran.converged)

    def prepare_sequence(
        self,
        steps: Iterable[Step] = (),
        *,
        prefix: Iterable[Step] = (),
        repeat: Iterable[Step] = (),
        times: int = 1,
        until: Until | None = None,
        reads: Iterable[ReadRangeLike] = (),
    ) -> PreparedSequence:
        return CpuSequence(self, plan_sequence(steps, prefix, repeat, times, until, reads))

    def prepared_launch(self, plan: BindingPlan, config: DispatchConfig) -> PreparedLaunch:
        """What a plan's launches share, made once."""
        key = plan, config.optimize
        prepared = self._launches.get(key)
        if prepared is None:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.clear()
            kernel = self._kernels.get(plan.program, plan.launch.grid, optimize=config.optimize)
            prepared = self._launches[key] = PreparedLaunch(plan, kernel)
        return prepared

    def _run(self, plan: BindingPlan, memory: list[Array], written: list[Array], config: DispatchConfig) -> Passes:
        """Runs all passes on memory in the order of the plan's descriptors; ``written`` is what it changes."""
        launch = self.prepared_launch(plan, config)

        def run_pass() -> None:
            if launch.invocations:
                stopped = self.pool.run(launch, memory, config.timeout_s)
                if stopped:
                    raise _stopping(stopped, launch, config)

        with trace.span("launch", self.id, program=plan.program.name, grid=plan.launch.grid):
            if config.passes == 1:
                run_pass()
                return _ONE_PASS
            return run_to_fixpoint(run_pass, lambda: [array.tobytes() for array in written], config.passes)

    def kernel(self, program: Program, grid: tuple[int, int, int] = (1, 1, 1)) -> CompiledKernel:
        """The compiled kernel that a launch of a legal program on that grid runs."""
        return self._kernels.get(binder_of(program).program, grid)

    def allocate(self, byte_len: int) -> ResidentBuffer:
        require_byte_len(byte_len)
        try:
            raw = np.zeros(byte_len + _ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            raise DeviceOutOfMemory(byte_len) from None
        start = -raw.ctypes.data % _ALIGNMENT
        return ResidentBuffer(self, byte_len, raw[start : start + byte_len])

    def free(self, buffer: ResidentBuffer) -> None:
        require_owned(self, buffer).release()

    def upload(self, buffer: ResidentBuffer, data: Buffer, offset: int = 0) -> None:
        self.upload_many([(buffer, offset, data)])

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        filling = [
            (require_owned(self, buffer), offset, require_range(require_owned(self, buffer), offset, length), value)
            for buffer, offset, length, value in fills
        ]
        staged = [(require_owned(self, buffer), offset, byte_view(data)) for buffer, offset, data in uploads]
        for _, _, _, value in filling:
            require_byte(value)
        for buffer, offset, view in staged:
            require_range(buffer, offset, len(view))
        with trace.span("upload", self.id, bytes=sum(len(view) for _, _, view in staged)):
            for buffer, offset, size, value in filling:
                buffer.handle[offset : offset + size] = value
            for buffer, offset, view in staged:
                buffer.handle[offset : offset + len(view)] = np.frombuffer(view, np.uint8)

    def fill(self, buffer: ResidentBuffer, value: int = 0, offset: int = 0, length: int | None = None) -> None:
        size = require_range(require_owned(self, buffer), offset, length)
        self.upload_many((), fills=[(buffer, offset, size, value)])

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
            if into is not None:
                return into.store([memoryview(buffer.handle[offset : offset + size])])[0]
            return memoryview(buffer.handle[offset : offset + size].copy())

    def cache_stats(self) -> CacheStats:
        return self._kernels.disk.stats()

    def shutdown(self) -> None:
        super().shutdown()
        self.pool.close()


class CpuPipeline(CompiledPipeline):
    """A program compiled for the processor, and what became of it."""

    backend: CpuBackend

    def _kernel(self) -> Kernel:
        program = self.program
        if self.config.workgroup_override is not None:
            program = program.with_workgroup_size(self.config.workgroup_override)
        return self.backend.kernel(program).kernel

    def llvm(self) -> str:
        """The LLVM IR of the kernel that a grid of one axis runs."""
        return self._kernel().text

    def asm(self) -> str:
        """The machine instructions of that kernel."""
        from vyre.backends.cpu.compile import assembly

        return assembly(self._kernel().text)

    def explain(self, inputs: Inputs | None = None) -> str:
        lines = [super().explain(inputs)]
        if self.is_routed:
            lines.append("  code: the segments of the route are compiled when they run")
        else:
            kernel = self._kernel()
            over = "invocations" if kernel.is_flat else "workgroups"
            lines.append(f"  code: {kernel.width} lanes, over {over}, {kernel.scratch_bytes:,} bytes of state")
            lines += [f"  {count:6} {what}" for what, count in kernel.notes.items() if count]
        return "\n".join(lines)


def _stopping(stopped: int, launch: PreparedLaunch, config: DispatchConfig) -> VyreError:
    if stopped == TIMED_OUT:
        return Timeout(config.timeout_s or 0.0)
    return DeviceOutOfMemory(launch.kernel.kernel.scratch_bytes)
