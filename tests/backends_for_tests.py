"""Small devices on the contract: one that forwards, one that records and fails at call k, one of fixed outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.device import (
    Code,
    Copy,
    Device,
    Fill,
    Handle,
    HostArrays,
    PreparedSchedule,
    ProgramImage,
    Range,
    RunOptions,
    Use,
)
from vyre.driver.memory_cache import CacheStats
from vyre.driver.profile import DeviceProfile
from vyre.driver.timing import Timing
from vyre.errors import DispatchFailed
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import buf_len, gid, if_, load, store
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.schedule import LaunchSchedule, host_buffers
from vyre.semantics.types import DType

U32 = DType.U32


class FixedDevice(Device):
    """Writes the same outputs whatever it is asked; has nothing but what a device must have."""

    id = "fixed"
    version = "1"
    profile = DeviceProfile(backend="fixed")

    def __init__(self, *outputs: bytes) -> None:
        self.results = outputs
        self.launches = 0

    def allocate(self, byte_len: int) -> Handle:
        return bytearray(byte_len)

    def free(self, handle: Handle) -> None:
        pass

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        for handle, offset, size, value in fills:
            handle[offset : offset + size] = bytes([value]) * size
        for handle, offset, data in copies:
            handle[offset : offset + len(data)] = data

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        return [handle[offset : offset + length] for handle, offset, length in ranges]

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Code:  # noqa: ARG002
        return program

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:  # noqa: ARG002
        self.launches += 1
        by_name = {decl.name: handle for decl, handle in zip(host_buffers(code), memory, strict=True)}
        for decl, result in zip(code.output_buffers(), self.results, strict=True):
            by_name[decl.name][: len(result)] = result
        return None


class FixedBackend(Backend):
    """A backend on a fixed device."""

    device: FixedDevice

    def __init__(self, *outputs: bytes) -> None:
        super().__init__(FixedDevice(*outputs))


class ForwardingDevice(Device):
    """Hands every operation of the contract to another device."""

    id = "forwarding"
    version = "1"

    def __init__(self, inner: Device) -> None:
        self.inner = inner
        # Of the class in the contract, of each instance here.
        self.id, self.version, self.runs_schedules = inner.id, inner.version, inner.runs_schedules  # type: ignore[misc]

    @property
    def profile(self) -> DeviceProfile:
        return self.inner.profile

    @property
    def accepts(self) -> DeviceProfile:
        return self.inner.accepts

    @property
    def accepts_with_driver(self) -> DeviceProfile:
        return self.inner.accepts_with_driver

    def allocate(self, byte_len: int) -> Handle:
        return self.inner.allocate(byte_len)

    def free(self, handle: Handle) -> None:
        self.inner.free(handle)

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        self.inner.write(copies, fills)

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        return self.inner.read(ranges)

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Code:
        return self.inner.compile(program, source=source, config=config)

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        return self.inner.launch(code, memory, launch, options)

    def synchronize(self) -> None:
        self.inner.synchronize()

    def read_with(self, ranges: Sequence[Range], use: Use) -> Any:
        return self.inner.read_with(ranges, use)

    def prepare_schedule(self, schedule: LaunchSchedule) -> PreparedSchedule | None:
        return self.inner.prepare_schedule(schedule)

    def resident_grid_fits(self, code: Code, launch: Launch) -> int | None:
        return self.inner.resident_grid_fits(code, launch)

    def reads_grid(self, program: Program, config: DispatchConfig) -> bool:
        return self.inner.reads_grid(program, config)

    def host_view(self, handle: Handle) -> Array | None:
        return self.inner.host_view(handle)

    def host_arrays(self) -> HostArrays:
        return self.inner.host_arrays()

    def load_image(self, key: bytes, make: Any) -> ProgramImage | None:
        return self.inner.load_image(key, make)

    def explain(self, code: Code) -> list[str]:
        return self.inner.explain(code)

    def prepare(self) -> None:
        self.inner.prepare()

    def is_lost(self) -> bool:
        return self.inner.is_lost()

    def recover(self) -> None:
        self.inner.recover()

    def close(self) -> None:
        self.inner.close()

    def cache_stats(self) -> CacheStats | None:
        return self.inner.cache_stats()

    def metrics(self) -> Any:
        return self.inner.metrics()


PRIMITIVES = ("allocate", "free", "write", "read", "compile", "launch")


class RecordingDevice(ForwardingDevice):
    """Records the name of every primitive operation; what the driver composes of them is composed, and seen.

    ``fail_at`` names operations that fail, by name and number from 0, as in ``{("write", 1)}``. They fail before they
    do anything, except ``free``, which fails after the memory is gone: a failing free must not hide a leak. ``live``
    are the sizes of what is allocated and not freed.
    """

    def __init__(self, inner: Device | None = None, fail_at: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(inner or ReferenceBackend(poison=0xA5).device)
        self.fail_at = set(fail_at)
        self.calls: list[str] = []
        self.freed: list[int] = []
        self._live: dict[int, tuple[Handle, int]] = {}

    # What is composed of the primitives by default.
    load_image = Device.load_image  # type: ignore[assignment]
    prepare_schedule = Device.prepare_schedule
    read_with = Device.read_with

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.calls)

    @property
    def live(self) -> list[int]:
        return [size for _, size in self._live.values()]

    def _call(self, name: str) -> None:
        number = self.calls.count(name)
        self.calls.append(name)
        if (name, number) in self.fail_at:
            raise DispatchFailed(f"injected failure of {name} number {number}.", "remove the fault.", code="injected")

    def allocate(self, byte_len: int) -> Handle:
        self._call("allocate")
        handle = super().allocate(byte_len)
        # The handle is kept beside its number, which another could have after it.
        self._live[id(handle)] = handle, byte_len
        return handle

    def free(self, handle: Handle) -> None:
        super().free(handle)
        self.freed.append(self._live.pop(id(handle))[1])
        self._call("free")

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        self._call("write")
        super().write(copies, fills)

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        self._call("read")
        return super().read(ranges)

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Code:
        self._call("compile")
        return super().compile(program, source=source, config=config)

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        self._call("launch")
        return super().launch(code, memory, launch, options)


class RecordingBackend(Backend):
    """A backend on a recording device, which wraps the device of another backend or the reference's."""

    device: RecordingDevice

    def __init__(self, inner: Backend | None = None, fail_at: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(RecordingDevice(None if inner is None else inner.device, fail_at))

    @property
    def calls(self) -> list[str]:
        return self.device.calls

    @property
    def counts(self) -> Counter[str]:
        return self.device.counts

    @property
    def freed(self) -> list[int]:
        return self.device.freed

    @property
    def live(self) -> list[int]:
        return self.device.live

    def leaked(self) -> list[int]:
        """The sizes of what stays allocated after what is kept for the next dispatch has gone."""
        self.device.fail_at.clear()
        self.scratch.clear()
        return self.live


def increment(limit: int | None = None, *, name: str = "increment") -> Program:
    """Adds one to every element of ``state``; with a limit, only to those below it."""
    cell = load("state", gid())
    add = store("state", gid(), cell + 1)
    inside = gid() < buf_len("state")
    body = [if_(inside, [add if limit is None else if_(cell < limit, [add])])]
    return Program.new([BufferDecl.read_write("state", 0, U32)], 4, body, name=name)


def double(*, name: str = "double") -> Program:
    """Writes twice ``a`` to ``out``."""
    body = [if_(gid() < buf_len("a"), [store("out", gid(), load("a", gid()) * 2)])]
    return Program.new([BufferDecl.read("a", 0, U32), BufferDecl.output("out", 1, U32)], 4, body, name=name)


def words(view: Any) -> list[int]:
    """The 32-bit numbers of a view."""
    found: list[int] = np.frombuffer(view, np.uint32).tolist()
    return found
