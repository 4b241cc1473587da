"""Backends: what callers run programs with. One class, written once, on the operations of a ``Device``.

A backend is a pure function from a checked program and input buffers to output buffers: thread-safe, deterministic for
deterministic programs, and equal to the reference byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from vyre.arguments import listed, require
from vyre.driver import telemetry, trace
from vyre.driver.binding import binder_of
from vyre.driver.cache import DiskCache
from vyre.driver.compile import compile_program, executable_key
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig, Route, require_config
from vyre.driver.device import Availability, Code, Device, PreparedSchedule, require_lengths
from vyre.driver.executable import Executable
from vyre.driver.host_memory import HostMemoryDevice
from vyre.driver.memory_cache import BoundedDict, MemoryCache
from vyre.driver.outputs import Buffer, OutputBuffers, byte_view, require_slots, stored
from vyre.driver.pending import Inputs, PendingDispatch, Workers, copied_inputs
from vyre.driver.profile import DeviceProfile
from vyre.driver.resident import (
    ReadRangeLike,
    ResidentBuffer,
    free_all,
    read_ranges,
    require_byte_len,
    require_owned,
    require_range,
    staged,
)
from vyre.driver.schedule_loop import HostLoop
from vyre.driver.scratch import Scratch
from vyre.driver.sequence import PreparedSequence, SequenceResult, Step, Until, plan_sequence
from vyre.driver.timing import TimedResult
from vyre.errors import GridResidencyExceeded, UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.lower.plan import contains_grid_sync
from vyre.lower.schedule import LaunchSchedule

if TYPE_CHECKING:
    from vyre.driver.memory_cache import CacheStats

Upload = tuple[ResidentBuffer, int, Buffer]
Fill = tuple[ResidentBuffer, int, int | None, int]
_MOST_EXECUTABLES: Final = 256
_MOST_RECENT: Final = 256
_MOST_CODE: Final = 256


class Backend:
    """Runs programs on a device."""

    # The class of the executables that ``compile`` returns.
    executable_class: ClassVar[type[Executable]] = Executable

    id: str
    version: str

    def __init__(self, device: Device, *, cache: DiskCache | None = None) -> None:
        """``cache`` is where results of the optimizer are kept; that of the default directory, if left out."""
        require(device, Device, "the device", "give a vyre.driver.Device, or a name: vyre.backend('cpu').")
        self.device = device
        self.id = device.id
        self.version = device.version
        self.cache = cache
        self.scratch = Scratch(device)
        self.host_device = HostMemoryDevice(device, self.scratch)
        self._host_scratch = Scratch(self.host_device)
        self._executables: MemoryCache[Executable] = MemoryCache(_MOST_EXECUTABLES)
        # Executables by the identity of program and config, which are kept beside them: what a repeated call asks for.
        self._recent: BoundedDict[tuple[int, int, str], tuple[Program, DispatchConfig, Executable]]
        self._recent = BoundedDict(_MOST_RECENT)
        # The device's code, beside the program that it was compiled from; see ``vyre.driver.compile``.
        self.code: MemoryCache[tuple[Program, Code]] = MemoryCache(_MOST_CODE)

    @classmethod
    def availability(cls) -> Availability:
        """Whether the backend can run here; cheap, and never raises."""
        return Availability()

    @property
    def capabilities(self) -> DeviceProfile:
        """Features and limits of the device itself."""
        return self.device.profile

    @property
    def accepts(self) -> DeviceProfile:
        """Features programs may use on this backend: native capabilities plus those the backend emulates."""
        return self.device.accepts_with_driver

    def grid_sync_fits(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> bool:
        """Whether this launch, with its grid barriers, can run natively all at once."""
        binder = binder_of(program)
        if not self.capabilities.grid_sync or not contains_grid_sync(binder.program):
            return False
        known = config or DEFAULT_CONFIG
        try:
            self.compile(program, known, route="native").require_fitting(binder.bind(inputs, known).plan)
        except (GridResidencyExceeded, UnsupportedFeature):
            return False
        return True

    # Programs.

    def compile(self, program: Program, config: DispatchConfig | None = None, *, route: Route = "auto") -> Executable:
        """Compile a program, or return the executable that was compiled before; all errors of the program appear here.

        ``route`` forces the way in which a program with grid barriers runs.
        """
        known = DEFAULT_CONFIG if config is None else config
        recent = self._recent.get((id(program), id(known), route))
        if recent is not None:
            return recent[2]
        require_config(known)
        binder_of(program)
        key = executable_key(self, program, known, route)
        executable = self._executables.get(key)
        if executable is None:
            executable = compile_program(self, program, known, route)
            self._executables.put(key, executable)
        else:
            telemetry.count(compile_hits=1)
        executable = executable.called_with(known)
        self._recent.keep((id(program), id(known), route), (program, known, executable))
        return executable

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        """Compile a program (from the cache), bind the inputs and run it; return the outputs by slot.

        Inputs are a mapping by name or a sequence by slot, of anything with the buffer protocol, and stay as they are.
        Outputs are in the caller's slots if ``into`` is given; on failure those are untouched.
        """
        return self.compile(program, config).run(inputs, config or DEFAULT_CONFIG, into)

    def dispatch_timed(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> TimedResult:
        """A dispatch and how long it took: host time, and device time where the device measures it."""
        return self.compile(program, config).run_timed(inputs, config or DEFAULT_CONFIG, into)

    def submit(self, program: Program, inputs: Inputs, config: DispatchConfig | None = None) -> PendingDispatch:
        """Begin a dispatch; the inputs may be changed as soon as this returns."""
        owned = copied_inputs(inputs)
        return self.workers.start(lambda: self.dispatch(program, owned, config))

    def dispatch_in_place(
        self, program: Program, memory: Sequence[Array], config: DispatchConfig | None = None
    ) -> None:
        """Run a program on the caller's memory, which changes in place: flat aligned arrays, in binding order.

        A run that fails may leave what it wrote.
        """
        known = DEFAULT_CONFIG if config is None else config
        self.compile(program, known).dispatch_in_place(memory, known)

    def dispatch_resident(
        self, program: Program, resources: Sequence[ResidentBuffer], config: DispatchConfig | None = None
    ) -> TimedResult:
        """Run a program on resident buffers, given in binding order; nothing comes back to the host.

        A buffer that takes no input starts at zero, as in ``dispatch``. A run that fails may leave what it wrote.
        """
        self.require_resident("dispatch on resident buffers")
        return self.compile(program, config).run_resident(resources, config or DEFAULT_CONFIG)

    def schedule_runner(self, schedule: LaunchSchedule, device: Device, *, uses_device: bool) -> PreparedSchedule:
        """A schedule ready to run: on the device by itself if it can and may, else by the driver's loop.

        ``device`` is this backend's, or, for the host route, the one on the host's memory before it.
        """
        if uses_device:
            prepared = device.prepare_schedule(schedule)
            if prepared is not None:
                return prepared
        scratch = self.scratch if device is self.device else self._host_scratch
        return HostLoop(device, schedule, scratch, uses_device=uses_device)

    # Resident buffers.

    def allocate(self, byte_len: int) -> ResidentBuffer:
        """Memory on the device; its contents are undefined."""
        self.require_resident("resident buffers")
        return ResidentBuffer(self, byte_len, self.device.allocate(require_byte_len(byte_len)))

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
        """Give the memory back."""
        self.require_resident("resident buffers")
        self.device.free(require_owned(self, buffer).release())

    def owns(self, buffer: ResidentBuffer) -> bool:
        """Whether the buffer is this backend's."""
        return isinstance(buffer, ResidentBuffer) and buffer.owner is self

    def upload(self, buffer: ResidentBuffer, data: Buffer, offset: int = 0) -> None:
        """Copy host bytes into the buffer from a byte offset on."""
        self.upload_many([(buffer, offset, data)])

    def upload_many(self, uploads: Iterable[Upload], *, fills: Iterable[Fill] = ()) -> None:
        """One staging operation: fills (buffer, offset, length, byte) first, then uploads (buffer, offset, data)."""
        self.require_resident("upload to resident buffers")
        views, filling = staged(self, uploads, fills)
        with trace.span("upload", self.id, bytes=sum(len(view) for _, _, view in views)):
            self.device.write(
                [(buffer.handle, offset, view) for buffer, offset, view in views],
                [(buffer.handle, offset, size, value) for buffer, offset, size, value in filling],
            )

    def fill(self, buffer: ResidentBuffer, value: int = 0, offset: int = 0, length: int | None = None) -> None:
        """Set bytes of the buffer to one value, on the device."""
        self.upload_many((), fills=[(buffer, offset, length, value)])

    def download(
        self,
        buffer: ResidentBuffer,
        offset: int = 0,
        length: int | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> memoryview:
        """Copy bytes of the buffer to the host: into the first slot of ``into``, or into new memory."""
        self.require_resident("download from resident buffers")
        require_range(require_owned(self, buffer), offset, length)
        return self.download_many([(buffer, offset, length)], into=into)[0]

    def download_many(self, ranges: Iterable[ReadRangeLike], *, into: OutputBuffers | None = None) -> list[memoryview]:
        """Read ranges in one synchronisation; the answers come in the caller's order."""
        self.require_resident("download from resident buffers")
        require_slots(into)
        asked = read_ranges(ranges)
        regions = [(require_owned(self, one.buffer).handle, one.offset, one.length or 0) for one in asked]

        def deliver(views: Sequence[Any]) -> list[memoryview]:
            given = require_lengths(self.device, views, regions)
            if into is None:
                return [memoryview(bytearray(view)) for view in given]
            # Read-only, so that no slot takes over the memory of the device.
            return stored([byte_view(view).toreadonly() for view in given], into)

        with trace.span("download", self.id, bytes=sum(length for _, _, length in regions)):
            read: list[memoryview] = self.device.read_with(regions, deliver)
        return read

    def host_memory(self, buffer: ResidentBuffer) -> Array | None:
        """The bytes of the buffer themselves, where the host can reach them; changes are seen by both."""
        return self.device.host_view(require_owned(self, buffer).handle)

    # Sequences.

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
        """Run ``prefix``, then ``steps``, then ``repeat`` up to ``times`` times or until told to stop; then read."""
        sequence = self.prepare_sequence(steps, prefix=prefix, repeat=repeat, times=times, until=until, reads=reads)
        return sequence.run(into)

    # Lifecycle.

    def cache_stats(self) -> CacheStats | None:
        """Counters of the device's cache of compiled code, if it has one."""
        return self.device.cache_stats()

    def metrics(self) -> Mapping[str, int]:
        """Numbers that only this backend has; names are ASCII identifiers."""
        return self.device.metrics()

    def prepare(self) -> None:
        """Acquire and warm up what the first dispatch would."""
        self.device.prepare()

    def flush(self) -> None:
        """Wait until everything that was submitted has ended."""
        if "workers" in self.__dict__:
            self.workers.wait()
        self.device.synchronize()

    def shutdown(self) -> None:
        """End what was submitted and release the device."""
        workers: Workers | None = self.__dict__.pop("workers", None)
        if workers is not None:
            workers.close()
        self._drop_compiled()
        self.scratch.clear()
        self.device.close()

    def device_lost(self) -> bool:
        """Whether the device was lost since the last good dispatch."""
        return self.device.is_lost()

    def try_recover(self) -> None:
        """Acquire a lost device again; never done without being asked, because resident data is gone."""
        if not self.device_lost() and type(self.device).recover is not Device.recover:
            return
        self._drop_compiled()
        self.scratch.forget()
        self.device.recover()

    def _drop_compiled(self) -> None:
        self._recent.clear()
        self._executables.clear()
        self.code.clear()

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

    def require_resident(self, feature: str) -> None:
        """Refuse what needs resident buffers, on a device that has none."""
        if not self.capabilities.resident:
            raise UnsupportedFeature(feature, self.id)
