"""What is a backend? A pure function from a checked program and input buffers to output buffers.

Backends are thread-safe, deterministic for deterministic programs, and give the reference's bytes. A backend must say
``id`` and ``version`` and implement ``dispatch``; everything else has an honest default: right, or a refusal. So a new
backend is one small class, and grows method by method.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol, Self

import msgspec

from vyre.arguments import listed
from vyre.driver.binding import binder_of
from vyre.driver.config import DispatchConfig
from vyre.driver.outputs import Buffer, OutputBuffers
from vyre.driver.pending import Inputs, PendingDispatch, Workers, copied_inputs
from vyre.driver.pipeline import CompiledPipeline
from vyre.driver.profile import DeviceProfile
from vyre.driver.resident import ReadRangeLike, ResidentBuffer, download_each_once, free_all
from vyre.driver.sequence import PreparedSequence, SequenceResult, Step, Until, plan_sequence
from vyre.driver.timing import TimedResult
from vyre.errors import UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.program import Program

if TYPE_CHECKING:
    from vyre.driver.cache import CacheStats
    from vyre.driver.segments import DrivenSegments
    from vyre.lower.plan import GridSyncPlan

Upload = tuple[ResidentBuffer, int, Buffer]
Fill = tuple[ResidentBuffer, int, int | None, int]


class Availability(msgspec.Struct, frozen=True):
    """Whether a backend can run here, and if not, why and what would help.

    Of the available backends, the default is the one with the highest ``priority``; None is never the default.
    """

    available: bool = True
    reason: str = ""
    fix: str = ""
    priority: int | None = None


class ProgramImage(Protocol):
    """Programs that are ready; ``headers`` are they without statements, ``notes`` what came with them."""

    headers: list[Program]
    notes: tuple[str, ...]

    def run(self, steps: Sequence[tuple[str, int, Sequence[ResidentBuffer]]]) -> None:
        """Runs programs by name, each on so many workgroups, on resident buffers in binding order."""
        ...


class Backend(ABC):
    """The contract between vyre and whoever executes programs."""

    @property
    @abstractmethod
    def id(self) -> str:
        """The stable name of the backend."""

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the implementation; part of what compiled code is cached by."""

    @abstractmethod
    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        """Runs the program natively, or refuses it before anything runs.

        Inputs are a mapping by name or a sequence by slot, of anything with the buffer protocol, and stay as they are.
        Outputs come by slot, in the caller's slots if ``into`` is given; on failure those are untouched. Begin with
        ``binder_of(program).bind(...)`` and end with ``plan.deliver(...)``, which check, trim and count.
        """

    @classmethod
    def availability(cls) -> Availability:
        """Whether the backend can run here; must be cheap, and never raise."""
        return Availability()

    @property
    def capabilities(self) -> DeviceProfile:
        """What the device can do; the same object every time, if possible."""
        return DeviceProfile(backend=self.id)

    @property
    def accepts(self) -> DeviceProfile:
        """What a program may have: the capabilities, and what the backend does for a device that lacks it."""
        return self.capabilities

    def grid_sync_fits(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> bool:
        """Whether this launch, with its grid barriers, can run natively all at once."""
        return False

    def dispatch_in_place(
        self, program: Program, memory: Sequence[Array], config: DispatchConfig | None = None
    ) -> None:
        """Runs the program on the caller's memory, which changes in place: flat aligned arrays, in binding order.

        This one dispatches and copies the results; a backend whose memory is the host's has no need to. Memory that is
        written overlaps no other: whoever calls this knows. A run that fails may leave what it wrote.
        """
        inputs = binder_of(program).inputs_in_place(memory)
        outputs = self.compile(program, config).dispatch(inputs)
        binder_of(program).store_in_place(memory, outputs)

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        """A dispatch and how long it took: host time, and device time where the device tells."""
        start = perf_counter_ns()
        outputs = self.dispatch(program, inputs, config, into=into)
        wall = perf_counter_ns() - start
        return TimedResult(outputs, wall, passes=1 if config is None or config.passes == 1 else None)

    def submit(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> PendingDispatch:
        """Begins a dispatch; the inputs may be changed as soon as this returns."""
        owned = copied_inputs(inputs)
        return self.workers.start(lambda: self.dispatch(program, owned, config))

    def compile(self, program: Program, config: DispatchConfig | None = None) -> CompiledPipeline:
        """The program ready to be run again and again: the same bytes as ``dispatch``, without repeated preparation."""
        return CompiledPipeline(self, program, config)

    def allocate(self, byte_len: int) -> ResidentBuffer:
        """Memory on the device; what it holds at first is not defined."""
        raise self._lacks("resident buffers")

    def allocate_many(self, byte_lens: Iterable[int]) -> list[ResidentBuffer]:
        """Several buffers, or none: if one fails, the earlier ones are freed, and a failing free is told too."""
        buffers: list[ResidentBuffer] = []
        try:
            buffers.extend(map(self.allocate, listed(byte_lens, "what is to be allocated")))
        except BaseException as error:
            free_all(self, buffers, error)
            raise
        return buffers

    def free(self, buffer: ResidentBuffer) -> None:
        """Gives the memory back."""
        raise self._lacks("resident buffers")

    def owns(self, buffer: ResidentBuffer) -> bool:
        """Whether the buffer is this backend's; a wrapper's are those of what it wraps."""
        return isinstance(buffer, ResidentBuffer) and buffer.owner is self

    def upload(self, buffer: ResidentBuffer, data: Buffer, offset: int = 0) -> None:
        """Copies host bytes into the buffer from a byte offset on."""
        self.upload_many([(buffer, offset, data)])

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        """One staging operation: fills (buffer, offset, length, byte) first, then uploads (buffer, offset, data).

        It has no default, because one that loops would hide a synchronisation per buffer. Begin with ``staged``, which
        checks everything.
        """
        raise self._lacks("upload to resident buffers")

    def fill(self, buffer: ResidentBuffer, value: int = 0, offset: int = 0, length: int | None = None) -> None:
        """Sets bytes of the buffer to one value, on the device."""
        self.upload_many((), fills=[(buffer, offset, length, value)])

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        """Copies bytes of the buffer to the host: into the first slot of ``into``, or into new memory."""
        raise self._lacks("download from resident buffers")

    def download_many(self, ranges: Iterable[ReadRangeLike], *, into: OutputBuffers | None = None) -> list[memoryview]:
        """Reads ranges in one synchronisation: each buffer once, in first-seen order; answers in the caller's order."""
        return download_each_once(self.download, ranges, into)

    def host_memory(self, buffer: ResidentBuffer) -> Array | None:
        """The bytes of the buffer themselves, where the host can reach them; changes are seen by both."""
        return None

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        """Runs the program on resident buffers, given in binding order; nothing comes back to the host.

        A buffer that takes no input starts at zero, as in ``dispatch``.
        """
        raise self._lacks("dispatch on resident buffers")

    def drive_segments(
        self, plan: GridSyncPlan, held: Mapping[tuple[str, int], ResidentBuffer], config: DispatchConfig
    ) -> DrivenSegments | None:
        """Runs a cut program in memory that is ready, without the host between its segments.

        None, before anything ran, if the device cannot: then the host asks after each of them which is next.
        """
        return None

    def load_image(
        self,
        key: bytes,
        make: Callable[[], tuple[Sequence[Program], Sequence[str]]],
        config: DispatchConfig | None = None,
    ) -> ProgramImage | None:
        """Programs made ready to run without being there: kept by ``key``, or made of what ``make`` gives, with notes.

        None if the backend keeps no images.
        """
        return None

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
        """A sequence ready to run again and again; see ``run_sequence``."""
        return PreparedSequence(self, plan_sequence(steps, prefix, repeat, times, until, reads))

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
        """Runs ``prefix``, then ``steps``, then ``repeat`` up to ``times`` times or until told to stop; then reads."""
        sequence = self.prepare_sequence(steps, prefix=prefix, repeat=repeat, times=times, until=until, reads=reads)
        return sequence.run(into)

    def cache_stats(self) -> CacheStats | None:
        """The counters of the cache of compiled code, if there is one."""
        return None

    def metrics(self) -> Mapping[str, int]:
        """Numbers that only this backend has; names are ASCII identifiers."""
        return {}

    def prepare(self) -> None:
        """Acquires and warms up what the first dispatch would."""

    def flush(self) -> None:
        """Waits until everything that was submitted has ended."""
        if "workers" in self.__dict__:
            self.workers.wait()

    def shutdown(self) -> None:
        """Ends what was submitted and lets the device go."""
        workers: Workers | None = self.__dict__.pop("workers", None)
        if workers is not None:
            workers.close()

    def device_lost(self) -> bool:
        """Whether the device was lost since the last good dispatch."""
        return False

    def try_recover(self) -> None:
        """Acquires a lost device again; never done without being asked, because resident data is gone."""
        raise self._lacks("recovery of a lost device")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<backend '{self.id}' {self.version}>"

    @cached_property
    def workers(self) -> Workers:
        """The threads that submitted dispatches run in."""
        return Workers(self.id)

    def _lacks(self, feature: str) -> UnsupportedFeature:
        return UnsupportedFeature(feature, self.id)
