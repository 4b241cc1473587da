"""How is a backend wrapped? By a class that hands every call on; a subclass changes only what it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from vyre.driver.backend import Backend, Fill, ProgramImage, Upload
from vyre.driver.config import DispatchConfig
from vyre.driver.outputs import Buffer, OutputBuffers
from vyre.driver.pending import Inputs, PendingDispatch
from vyre.driver.pipeline import CompiledPipeline
from vyre.driver.profile import DeviceProfile
from vyre.driver.resident import ReadRangeLike, ResidentBuffer
from vyre.driver.sequence import PreparedSequence, SequenceResult, Step, Until
from vyre.driver.timing import TimedResult
from vyre.ir.binding import Array
from vyre.ir.program import Program

if TYPE_CHECKING:
    from vyre.driver.cache import CacheStats
    from vyre.driver.segments import DrivenSegments
    from vyre.lower.plan import GridSyncPlan


class ForwardingBackend(Backend):
    """Everything is the inner backend's, which stays the owner of its resident buffers."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner

    @property
    def id(self) -> str:
        return self.inner.id

    @property
    def version(self) -> str:
        return self.inner.version

    @property
    def capabilities(self) -> DeviceProfile:
        return self.inner.capabilities

    @property
    def accepts(self) -> DeviceProfile:
        return self.inner.accepts

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        return self.inner.dispatch(program, inputs, config, into=into)

    def grid_sync_fits(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> bool:
        return self.inner.grid_sync_fits(program, inputs, config)

    def dispatch_in_place(
        self, program: Program, memory: Sequence[Array], config: DispatchConfig | None = None
    ) -> None:
        self.inner.dispatch_in_place(program, memory, config)

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        return self.inner.dispatch_timed(program, inputs, config, into=into)

    def submit(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> PendingDispatch:
        return self.inner.submit(program, inputs, config)

    def compile(self, program: Program, config: DispatchConfig | None = None) -> CompiledPipeline:
        return self.inner.compile(program, config)

    def allocate(self, byte_len: int) -> ResidentBuffer:
        return self.inner.allocate(byte_len)

    def allocate_many(self, byte_lens: Iterable[int]) -> list[ResidentBuffer]:
        return self.inner.allocate_many(byte_lens)

    def free(self, buffer: ResidentBuffer) -> None:
        self.inner.free(buffer)

    def owns(self, buffer: ResidentBuffer) -> bool:
        return self.inner.owns(buffer)

    def upload(self, buffer: ResidentBuffer, data: Buffer, offset: int = 0) -> None:
        self.inner.upload(buffer, data, offset)

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        self.inner.upload_many(uploads, fills=fills)

    def fill(self, buffer: ResidentBuffer, value: int = 0, offset: int = 0, length: int | None = None) -> None:
        self.inner.fill(buffer, value, offset, length)

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        return self.inner.download(buffer, offset, length, into=into)

    def download_many(self, ranges: Iterable[ReadRangeLike], *, into: OutputBuffers | None = None) -> list[memoryview]:
        return self.inner.download_many(ranges, into=into)

    def host_memory(self, buffer: ResidentBuffer) -> Array | None:
        return self.inner.host_memory(buffer)

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        return self.inner.dispatch_resident(program, resources, config)

    def drive_segments(
        self, plan: GridSyncPlan, held: Mapping[tuple[str, int], ResidentBuffer], config: DispatchConfig
    ) -> DrivenSegments | None:
        return self.inner.drive_segments(plan, held, config)

    def load_image(
        self,
        key: bytes,
        make: Callable[[], tuple[Sequence[Program], Sequence[str]]],
        config: DispatchConfig | None = None,
    ) -> ProgramImage | None:
        return self.inner.load_image(key, make, config)

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
        return self.inner.prepare_sequence(steps, prefix=prefix, repeat=repeat, times=times, until=until, reads=reads)

    def run_sequence(
        self,
        steps: Iterable[Step] = (),
        *,
        prefix: Iterable[Step] = (),
        repeat: Iterable[Step] = (),
        times: int = 1,
        until: Until | None = None,
        reads: Iterable[ReadRangeLike] = (),
        into: OutputBuffers | None = None,
    ) -> SequenceResult:
        return self.inner.run_sequence(
            steps, prefix=prefix, repeat=repeat, times=times, until=until, reads=reads, into=into
        )

    def cache_stats(self) -> CacheStats | None:
        return self.inner.cache_stats()

    def metrics(self) -> Mapping[str, int]:
        return self.inner.metrics()

    def prepare(self) -> None:
        self.inner.prepare()

    def flush(self) -> None:
        self.inner.flush()

    def shutdown(self) -> None:
        self.inner.shutdown()

    def device_lost(self) -> bool:
        return self.inner.device_lost()

    def try_recover(self) -> None:
        self.inner.try_recover()
