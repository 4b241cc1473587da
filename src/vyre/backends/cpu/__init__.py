"""Who runs programs on the processor? Machine code for vectors of lanes, behind the whole contract.

Resident buffers are aligned host memory. A program with grid barriers is cut at them, and its segments follow one
another in native code; only a trap that has a handler brings the host in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from time import perf_counter_ns
from typing import Any, Final

import numpy as np

import vyre
from vyre.analyze.coverage import outputs_written_whole
from vyre.arguments import require
from vyre.backends.cpu.compile import assembly
from vyre.backends.cpu.images import Image, load_image
from vyre.backends.cpu.kernels import SCALAR, CompiledKernel, Kernels
from vyre.backends.cpu.launches import KernelLaunch, PreparedLaunch, Sharing, aligned_bytes
from vyre.backends.cpu.memory import LARGE_BYTES, Memory
from vyre.backends.cpu.native import arrays_are_known
from vyre.backends.cpu.pool import MISALIGNED, TIMED_OUT, Pool, wanted_threads
from vyre.backends.cpu.sequences import CpuSequence
from vyre.backends.cpu.tables import WalkedProgram
from vyre.driver import trace
from vyre.driver.backend import Availability, Backend, Fill, Upload
from vyre.driver.binding import BindingPlan, binder_of
from vyre.driver.cache import CacheStats, DiskCache
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.fixpoint import Passes
from vyre.driver.outputs import OutputBuffers, stored
from vyre.driver.pending import Inputs
from vyre.driver.pipeline import CompiledPipeline
from vyre.driver.profile import EVERY_TYPE, DeviceProfile
from vyre.driver.registry import CPU_PRIORITY
from vyre.driver.resident import (
    ReadRangeLike,
    ResidentBuffer,
    require_byte_len,
    require_owned,
    require_range,
    staged,
)
from vyre.driver.sequence import PreparedSequence, Step, Until, plan_sequence
from vyre.driver.telemetry import count_launch
from vyre.driver.timing import TimedResult
from vyre.emit.llvm import Kernel
from vyre.errors import BadInputs, DeviceOutOfMemory, Timeout
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.buffers import Role
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.limits import MAX_WORKGROUP_INVOCATIONS
from vyre.ir.program import Program
from vyre.lower.plan import contains_grid_sync, cut_program
from vyre.semantics.types import DType

_MOST_PREPARED: Final = 256
# Launches of so many invocations for each thread, and fewer, may run as scalar code.
_FEW_FOR_EACH_THREAD: Final = 256
_ONE_PASS: Final = Passes(1, None)


class Prepared:
    """A plan made ready: for one launch, if it is one, and for a walk, when one is needed."""

    def __init__(self, backend: CpuBackend, plan: BindingPlan, *, optimize: bool) -> None:
        self.plan = plan
        places = {slot.name: place for place, slot in enumerate(plan.descriptors)}
        self.outputs = {places[slot.name]: slot.byte_size for slot in plan.outputs}
        whole = outputs_written_whole(plan.program, plan.launch)
        # What a pass writes from end to end has to be zero only to tell whether the first pass changed it.
        self.whole = [places[name] for name in whole]
        self.cleared = [
            places[slot.name] for slot in plan.outputs if slot.role is Role.OUTPUT and slot.name not in whole
        ]
        self.launch: PreparedLaunch | None = None
        self._make_walked = partial(WalkedProgram, plan, backend.kernels, backend.pool.sharing, optimize=optimize)
        has_traps = plan.program.stats().has(n.Trap)
        # What the host does for a trap may change any buffer.
        self.recipe = []
        for slot in plan.descriptors:
            large = slot.byte_size >= LARGE_BYTES
            make = np.zeros if slot.name not in whole else backend.memory.empty if large else np.empty
            copy = backend.memory.copy if large else np.ndarray.copy
            changes = slot.output_slot is not None or has_traps
            self.recipe.append((slot.input_slot, copy if changes else None, make, slot.count, slot.dtype.storage))
        if not contains_grid_sync(plan.program) and not has_traps:
            kernel = backend.kernels.get(plan.program, plan.launch.grid, optimize=optimize)
            self.launch = PreparedLaunch(plan, KernelLaunch(kernel, plan.launch, backend.pool.sharing))

    @cached_property
    def walked(self) -> WalkedProgram:
        return self._make_walked()


class CpuBackend(Backend):
    """The processor's vector units: every program of the language, compiled with LLVM."""

    id = "cpu"
    version = vyre.__version__

    def __init__(
        self,
        *,
        threads: int | None = None,
        sharing: Sharing | None = None,
        width: int | None = None,
        verify: bool = False,
        cache: DiskCache | None = None,
        check_elimination: bool = True,
    ) -> None:
        """``threads`` defaults to ``VYRE_THREADS`` or the machine's; ``sharing`` says more about their use.

        ``width`` is the lanes of a vector. Without ``check_elimination``, accesses that are proved to be in bounds are
        checked like all others, with the same result.
        """
        if sharing is not None:
            require(sharing, Sharing, "sharing", "give a Sharing(threads, ...), or leave it out.")
        if cache is not None:
            require(cache, DiskCache, "cache", "give a DiskCache(directory), or leave it out.")
        sharing = sharing or Sharing(wanted_threads(threads))
        self.kernels = Kernels(
            width,
            verify,
            DiskCache() if cache is None else cache,
            check_elimination,
            few_invocations=sharing.threads * _FEW_FOR_EACH_THREAD,
        )
        self.pool = Pool(sharing, self.kernels.disk)
        self.memory = Memory()
        self._prepared: dict[BindingPlan, Prepared] = {}

    @classmethod
    def availability(cls) -> Availability:
        if sys.platform == "win32":
            return Availability(False, "its threads need POSIX", "use it on Linux or macOS, or under WSL.")
        if not arrays_are_known():
            return Availability(False, "NumPy's arrays are not those of its C interface", "use CPython's NumPy.")
        return Availability(priority=CPU_PRIORITY)

    @cached_property
    def capabilities(self) -> DeviceProfile:
        machine = self.kernels.machine
        most = MAX_WORKGROUP_INVOCATIONS
        return DeviceProfile(
            backend=self.id,
            device=machine.cpu,
            dtypes=EVERY_TYPE if machine.has_half_conversions else EVERY_TYPE - {DType.F16},
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
            persistent_threads=True,
            mul_high=True,
            max_native_int_width=64,
            max_workgroup_size=(most, most, most),
            max_invocations_per_workgroup=most,
            max_workgroups_per_axis=MAX_GRID_AXIS,
            compute_units=self.pool.sharing.threads,
            ideal_vector_bits=32 * self.kernels.width,
        )

    def grid_sync_fits(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> bool:
        return True

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
        plan, results, _ = self._dispatch(program, inputs, config or DEFAULT_CONFIG)
        return plan.deliver(results, into)

    def dispatch_in_place(
        self, program: Program, memory: Sequence[Array], config: DispatchConfig | None = None
    ) -> None:
        config = config or DEFAULT_CONFIG
        plan = binder_of(program).bind_in_place(memory, config, self.capabilities)
        prepared = self._prepare(plan, config)
        for array in memory:
            if not array.flags.aligned:
                raise BadInputs("memory that a run changes in place is not aligned.", "copy it to an array of its own.")
        for place in self._to_clear(prepared, config):
            memory[place][: plan.descriptors[place].count] = 0
        self._run(prepared, memory, config)
        count_launch(plan.input_bytes)

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
        plan, data = bound.plan, bound.inputs
        prepared = self._prepare(plan, config)
        try:
            # A run changes no memory of the caller's.
            memory = [
                make(count, storage) if slot is None else data[slot] if copy is None else copy(data[slot])
                for slot, copy, make, count, storage in prepared.recipe
            ]
        except MemoryError:
            raise DeviceOutOfMemory(plan.input_bytes + plan.output_bytes) from None
        if config.passes > 1:
            for place in prepared.whole:
                memory[place].fill(0)
        ran = self._run(prepared, memory, config)
        return plan, [memory[place] for place in prepared.outputs], ran

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        start = perf_counter_ns()
        config = config or DEFAULT_CONFIG
        plan = binder_of(program).bind_resident(self, resources, config)
        prepared = self._prepare(plan, config)
        memory: list[Array] = [resource.handle for resource in resources]
        for place in self._to_clear(prepared, config):
            memory[place][: plan.descriptors[place].byte_size] = 0
        ran = self._run(prepared, memory, config)
        count_launch(0)
        return TimedResult([], perf_counter_ns() - start, None, None, None, ran.passes, ran.converged)

    def load_image(
        self,
        key: bytes,
        make: Callable[[], tuple[Sequence[Program], Sequence[str]]],
        config: DispatchConfig | None = None,
    ) -> Image:
        return load_image(self, key, make, optimize=(config or DEFAULT_CONFIG).optimization.code)

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

    def _prepare(self, plan: BindingPlan, config: DispatchConfig) -> Prepared:
        """What runs of a plan share, made once."""
        prepared = self._prepared.get(plan)
        if prepared is None:
            if len(self._prepared) >= _MOST_PREPARED:
                self._prepared.clear()
            prepared = self._prepared[plan] = Prepared(self, plan, optimize=config.optimization.code)
        return prepared

    def _to_clear(self, prepared: Prepared, config: DispatchConfig) -> Sequence[int]:
        """Which outputs have to be zero before a run."""
        if config.fixpoint_iterations is not None and config.passes > 1:
            return (*prepared.cleared, *prepared.whole)
        return prepared.cleared

    def _run(self, prepared: Prepared, memory: Sequence[Array], config: DispatchConfig) -> Passes:
        """Runs all passes on memory in the order of the plan's descriptors."""
        if trace.active is not None:
            with trace.span("launch", self.id, program=prepared.plan.program.name, grid=prepared.plan.launch.grid):
                return self._execute(prepared, memory, config)
        return self._execute(prepared, memory, config)

    def _execute(self, prepared: Prepared, memory: Sequence[Array], config: DispatchConfig) -> Passes:
        launch = prepared.launch
        if launch is None or (config.fixpoint_iterations is not None and config.passes > 1):
            written = [memory[place].view(np.uint8)[:size] for place, size in prepared.outputs.items()]
            return prepared.walked.run(self.pool, list(map(_aligned, memory)), written, config)
        stopped = self.pool.run(launch, memory, config.timeout_s)
        if stopped:
            self._end(launch, memory, config, stopped)
        return _ONE_PASS

    def _end(self, launch: PreparedLaunch, memory: Sequence[Array], config: DispatchConfig, stopped: int) -> None:
        """Runs a launch again on memory that suits it, or says why it did not end by itself."""
        if stopped == MISALIGNED:
            stopped = self.pool.run(launch, list(map(_aligned, memory)), config.timeout_s)
        if stopped == TIMED_OUT:
            raise Timeout(config.timeout_s or 0.0)
        if stopped:
            raise DeviceOutOfMemory(launch.launch.kernel.kernel.scratch_bytes)

    def kernel(
        self, program: Program, grid: tuple[int, int, int] = (1, 1, 1), config: DispatchConfig = DEFAULT_CONFIG
    ) -> CompiledKernel:
        """The compiled kernel that a launch of a legal program on that grid runs."""
        return self.kernels.get(binder_of(program).improved(config, self.capabilities).program, grid)

    def allocate(self, byte_len: int) -> ResidentBuffer:
        require_byte_len(byte_len)
        try:
            make = aligned_bytes if byte_len < LARGE_BYTES else self.memory.zeros
            return ResidentBuffer(self, byte_len, make(byte_len))
        except (MemoryError, ValueError):
            raise DeviceOutOfMemory(byte_len) from None

    def free(self, buffer: ResidentBuffer) -> None:
        require_owned(self, buffer).release()

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        views, filling = staged(self, uploads, fills)
        with trace.span("upload", self.id, bytes=sum(len(view) for _, _, view in views)):
            for buffer, offset, size, value in filling:
                buffer.handle[offset : offset + size] = value
            for buffer, offset, view in views:
                buffer.handle[offset : offset + len(view)] = np.frombuffer(view, np.uint8)

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
                # What is read-only is copied: no slot takes over the memory of the device.
                return stored([memoryview(buffer.handle[offset : offset + size]).toreadonly()], into)[0]
            view = buffer.handle[offset : offset + size]
            copied: Any = view.copy() if size < LARGE_BYTES else self.memory.copy(view)
            return memoryview(copied)

    def host_memory(self, buffer: ResidentBuffer) -> Array:
        memory: Array = require_owned(self, buffer).handle
        return memory

    def cache_stats(self) -> CacheStats:
        return self.kernels.disk.stats()

    def shutdown(self) -> None:
        super().shutdown()
        self.pool.close()
        self.memory.forget()


class CpuPipeline(CompiledPipeline):
    """A program compiled for the processor, and what became of it."""

    backend: CpuBackend

    def _kernels(self) -> list[tuple[str, Kernel]]:
        """The kernels that a grid of one axis runs, one for each segment, and what to call them."""
        program = self.improved.program
        if self.config.workgroup_override is not None:
            program = program.with_workgroup_size(self.config.workgroup_override)
        segments = cut_program(program, checked=True).segments
        kernels = self.backend.kernels
        return [(segment.label, kernels.get(segment.program, (1, 1, 1)).kernel) for segment in segments]

    def llvm(self) -> str:
        """The LLVM IR of the kernels that a grid of one axis runs, one for each segment."""
        return "\n".join(_headed(label, kernel.text) for label, kernel in self._kernels())

    def asm(self) -> str:
        """The machine instructions of those kernels."""
        return "\n".join(_headed(label, assembly(kernel.text)) for label, kernel in self._kernels())

    def explain(self, inputs: Inputs | None = None) -> str:
        from vyre.backends.cpu.instructions import summary

        lines = [super().explain(inputs)]
        for label, kernel in self._kernels():
            over = "invocations" if kernel.is_flat else "workgroups"
            state = f"{kernel.width} lanes, over {over}, {kernel.scratch_bytes:,} bytes of its own"
            lines.append(f"  code, {label}: {state}")
            lines += [f"  {count:6} {what}" for what, count in kernel.notes.items() if count]
            lines.append(f"  innermost loop: {summary(assembly(kernel.text))}")
        return "\n".join(lines)


def _headed(label: str, code: str) -> str:
    return f"; {label}\n{code}"


def _aligned(array: Array) -> Array:
    """A kernel relies on the alignment of elements."""
    return array if array.flags.aligned else array.copy()
