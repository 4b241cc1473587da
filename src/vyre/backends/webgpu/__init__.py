"""Who runs programs on a GPU? WebGPU, through Vulkan, Metal or D3D12; where there is no GPU, software that acts as one.

Grid-wide points are not native: the driver's routes cut programs there, and the device itself finds out which piece is
next. Operations of a subgroup are the device's own where its subgroups are as large as the program's; if not, they go
through workgroup memory, and ``capabilities`` does not claim them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from threading import Lock
from time import perf_counter_ns
from typing import Any, Final

import msgspec

import vyre
from vyre.arguments import require
from vyre.backends.webgpu import adapters
from vyre.backends.webgpu.gpu import Gpu
from vyre.backends.webgpu.launches import PreparedLaunch, host_reads_grid, kernel_of
from vyre.backends.webgpu.probe import ends_loops, is_float_exact, is_subgroup_right
from vyre.backends.webgpu.runs import Answer, Run, Watch, works_of
from vyre.backends.webgpu.segments import can_drive, drive
from vyre.backends.webgpu.sequences import WebGpuSequence
from vyre.driver import trace
from vyre.driver.backend import Availability, Backend, Fill, Upload
from vyre.driver.binding import BindingPlan, binder_of
from vyre.driver.cache import CacheStats
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.fixpoint import Passes
from vyre.driver.outputs import Buffer, OutputBuffers, byte_view
from vyre.driver.pending import Inputs
from vyre.driver.pipeline import CompiledPipeline
from vyre.driver.profile import EVERY_TYPE, DeviceProfile, require_supported
from vyre.driver.resident import (
    ReadRangeLike,
    ResidentBuffer,
    read_ranges,
    require_byte_len,
    require_owned,
    staged,
)
from vyre.driver.segments import DrivenSegments, Key
from vyre.driver.sequence import PreparedSequence, Step, Until, plan_sequence
from vyre.driver.telemetry import count_launch
from vyre.driver.timing import TimedResult
from vyre.errors import BadInputs
from vyre.ir import nodes as n
from vyre.ir.binding import indirect_dispatch
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.program import Program
from vyre.lower.plan import GridSyncPlan, cut_program
from vyre.semantics.types import DType

_MOST_LAUNCHES: Final = 256
_ONE_PASS: Final = Passes(1, None)


class WebGpuBackend(Backend):
    """Any GPU through WebGPU: every type but f64, integers exact everywhere, floats where the device's are."""

    id = "webgpu"
    version = vyre.__version__

    def __init__(self, *, adapter: str | None = None) -> None:
        """``adapter`` is a part of the name of the adapter to use; the best one, if it is left out."""
        if adapter is not None:
            require(adapter, str, "the adapter", "give a part of its name, or leave it out.")
        self._wanted = adapter
        self._gpu: Gpu | None = None
        self._profile: DeviceProfile | None = None
        self._opening = Lock()
        self._launches: dict[tuple[BindingPlan, bool], PreparedLaunch] = {}

    @classmethod
    def availability(cls) -> Availability:
        return adapters.availability()

    @property
    def gpu(self) -> Gpu:
        """The device, opened when it is first needed."""
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
    def capabilities(self) -> DeviceProfile:
        if self._profile is None:
            gpu = self.gpu
            with gpu.lock:
                if self._profile is None:
                    self._profile = _profile_of(gpu)
        return self._profile

    @property
    def accepts(self) -> DeviceProfile:
        return _accepting(self.capabilities)

    def compile(self, program: Program, config: DispatchConfig | None = None) -> WebGpuPipeline:
        return WebGpuPipeline(self, program, config)

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
        bound = binder_of(program).bind(inputs, config, self.accepts)
        plan, gpu = bound.plan, self.gpu
        launch = self.prepared_launch(plan)
        sizes = [slot.byte_size for slot in plan.descriptors] + launch.captures
        with gpu.watched(), gpu.borrowing() as take:
            buffers = list(map(take, sizes))
            with trace.span("upload", self.id, bytes=plan.input_bytes):
                for slot, buffer in zip(plan.descriptors, buffers, strict=False):
                    if slot.input_slot is not None and slot.byte_size:
                        gpu.write(buffer, 0, byte_view(bound.inputs[slot.input_slot]))

            def deliver(views: list[memoryview]) -> list[memoryview]:
                results: Sequence[Buffer] = views if into is not None else [bytearray(view) for view in views]
                return plan.deliver(results, into)

            reads = [(buffers[place], 0, plan.descriptors[place].byte_size) for place in launch.outputs]
            answer = self._run(launch, buffers, config, reads, deliver)
        timing, ran = answer.timing, answer.passes
        wall = perf_counter_ns() - start
        return TimedResult(
            answer.read, wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, ran.passes, ran.converged
        )

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        start = perf_counter_ns()
        config = config or DEFAULT_CONFIG
        launch, gpu = self.resident_launch(program, resources, config), self.gpu
        memory = [self.memory(resource) for resource in resources]
        with gpu.watched(), gpu.borrowing() as take:
            answer = self._run(launch, [*memory, *map(take, launch.captures)], config, [], _nothing)
        count_launch(0)
        timing, ran = answer.timing, answer.passes
        wall = perf_counter_ns() - start
        return TimedResult([], wall, timing.device_ns, timing.enqueue_ns, timing.wait_ns, ran.passes, ran.converged)

    def _run(
        self, launch: PreparedLaunch, buffers: Sequence[Any], config: DispatchConfig, reads: Sequence[Any], use: Any
    ) -> Answer:
        """Runs all passes of a launch; outputs start at zero once, before the first."""
        gpu, plan = self.gpu, launch.plan
        works = works_of(gpu, launch, buffers, clearing=False)
        if config.passes == 1:
            run = Run(gpu, works)
        else:
            watched = tuple((buffers[place], plan.descriptors[place].byte_size) for place in launch.outputs)
            run = Run(gpu, (), works, config.passes, Watch(watched))
        clears = [(buffers[place], plan.descriptors[place].byte_size) for place in launch.fresh]
        with trace.span("launch", self.id, program=plan.program.name, grid=plan.launch.grid):
            answer = run.go(reads, use, clears=clears, timeout_s=config.timeout_s)
        return answer if config.passes > 1 else msgspec.structs.replace(answer, passes=_ONE_PASS)

    def resident_launch(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig
    ) -> PreparedLaunch:
        """What a launch on resident buffers needs; the device reads a grid that is in memory, if the host need not."""
        binder = binder_of(program)
        on_host = host_reads_grid(program, config)
        plan = binder.bind_resident(self, resources, config, self.accepts, reads_grid=on_host)
        return self.prepared_launch(plan, None if on_host else indirect_dispatch(program))

    def prepared_launch(self, plan: BindingPlan, grid: n.IndirectDispatch | None = None) -> PreparedLaunch:
        """What a plan's launches share, made once; ``grid`` says where the device reads it."""
        key = plan, grid is not None
        prepared = self._launches.get(key)
        if prepared is None:
            if len(self._launches) >= _MOST_LAUNCHES:
                self._launches.clear()
            prepared = self._launches[key] = PreparedLaunch(self.gpu, plan, grid)
        return prepared

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
        return WebGpuSequence(self, plan_sequence(steps, prefix, repeat, times, until, reads))

    def drive_segments(
        self, plan: GridSyncPlan, held: Mapping[Key, ResidentBuffer], config: DispatchConfig
    ) -> DrivenSegments | None:
        return drive(self, plan, held, config) if can_drive(plan) else None

    def memory(self, buffer: ResidentBuffer) -> Any:
        """The device's memory of a resident buffer of this backend."""
        gpu, memory = require_owned(self, buffer).handle
        if gpu is not self._gpu:
            raise BadInputs(
                "the resident buffer was on a device that was lost, and its bytes are gone.",
                "free it, allocate it again and upload the data again.",
            )
        return memory

    def allocate(self, byte_len: int) -> ResidentBuffer:
        gpu = self.gpu
        return ResidentBuffer(self, byte_len, (gpu, gpu.new_memory(require_byte_len(byte_len))))

    def free(self, buffer: ResidentBuffer) -> None:
        gpu, memory = require_owned(self, buffer).release()
        with gpu.lock:
            memory.destroy()

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        views, filling = staged(self, uploads, fills)
        patches = [(self.memory(buffer), *where, value * 0x01010101) for buffer, *where, value in filling]
        ready = [(self.memory(buffer), offset, view, buffer.byte_len) for buffer, offset, view in views]
        gpu = self.gpu
        with trace.span("upload", self.id, bytes=sum(len(view) for _, _, view in views)), gpu.watched():
            gpu.fill(patches)
            gpu.fill([patch for one in ready for patch in gpu.upload(*one)])

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        return self.download_many([(buffer, offset, length)], into=into)[0]

    def download_many(self, ranges: Iterable[ReadRangeLike], *, into: OutputBuffers | None = None) -> list[memoryview]:
        asked = read_ranges(ranges)
        regions = [(self.memory(one.buffer), one.offset, one.length or 0) for one in asked]
        gpu = self.gpu
        with trace.span("download", self.id, bytes=sum(length for _, _, length in regions)), gpu.watched():
            views: list[memoryview] = gpu.read_into(gpu.device.create_command_encoder(), regions, into)
        return views

    def cache_stats(self) -> CacheStats | None:
        return None if self._gpu is None else self._gpu.cache_stats()

    def metrics(self) -> Mapping[str, int]:
        """Submissions to the device, and how often the host waited for bytes."""
        gpu = self._gpu
        return {} if gpu is None else {"submissions": gpu.submissions, "readbacks": gpu.readbacks}

    def prepare(self) -> None:
        assert self.capabilities is not None

    def flush(self) -> None:
        super().flush()
        if self._gpu is not None:
            self._gpu.wait()

    def shutdown(self) -> None:
        super().shutdown()
        self._launches.clear()
        if self._gpu is not None:
            self._gpu.close()

    def device_lost(self) -> bool:
        return self._gpu is not None and self._gpu.lost_reason is not None

    def try_recover(self) -> None:
        if self._gpu is None or self._gpu.lost_reason is None:
            return
        with self._opening:
            self._launches.clear()
            self._gpu = self._opened()


class WebGpuPipeline(CompiledPipeline):
    """A program compiled for WebGPU, and what became of it."""

    backend: WebGpuBackend

    def wgsl(self) -> str:
        """The WGSL of the kernels that an unfolded grid runs: one, or one for each launch of a program that is cut."""
        program = self.improved.program
        if self.config.workgroup_override is not None:
            program = program.with_workgroup_size(self.config.workgroup_override)
        launches = [part for segment in cut_program(program).segments for part in (segment.before, segment.program)]
        parts = [part for part in launches if part is not None]
        for part in parts:
            require_supported(self.backend.accepts, part)
        return "\n".join(kernel_of(part, folded=False).text for part in parts)

    def explain(self, inputs: Inputs | None = None) -> str:
        lines = [super().explain(inputs)]
        facts = self.backend.gpu.facts
        exact = "exact" if self.backend.capabilities.float_exact else "within the declared ULP budget"
        lines.append(f"  adapter: {facts.name} ({facts.api}), floats {exact}")
        if self.is_routed:
            lines.append("  code: the segments of the route are compiled when they run")
        return "\n".join(lines)


def _nothing(_: list[memoryview]) -> list[memoryview]:
    return []


@lru_cache(maxsize=32)
def _accepting(profile: DeviceProfile) -> DeviceProfile:
    """What programs may have: what the device can do, and what is done for it through workgroup memory."""
    return msgspec.structs.replace(profile, subgroup_ops=True)


def _profile_of(gpu: Gpu) -> DeviceProfile:
    limits = gpu.limits
    x, y, z = (limits[f"max-compute-workgroup-size-{axis}"] for axis in "xyz")
    return DeviceProfile(
        backend="webgpu",
        device=f"{gpu.facts.name} ({gpu.facts.api}, {gpu.facts.driver})",
        dtypes=EVERY_TYPE - {DType.F64},
        float_exact=is_float_exact(gpu),
        subgroup_ops=gpu.native_lanes is not None,
        subgroup_size=gpu.native_lanes,
        shared_memory=True,
        async_transfers=True,
        indirect_dispatch=True,
        resident=True,
        device_timestamps=gpu.timer is not None,
        timing_quality="host" if gpu.timer is None else "device",
        max_workgroup_size=(x, y, z),
        max_invocations_per_workgroup=limits["max-compute-invocations-per-workgroup"],
        max_workgroups_per_axis=MAX_GRID_AXIS,
        max_shared_memory_bytes=limits["max-compute-workgroup-storage-size"],
        max_storage_buffer_bytes=gpu.binding_bytes,
    )
