"""The device contract: what the author of a backend writes.

A device owns memory, compiles programs and launches them. Everything a caller can ask of a ``Backend`` (input checks,
output slots, resident buffers, sequences, fixpoints, grid barriers, timeouts, traps, telemetry) is written once, in
the driver, on these operations, so a new device has all of it. ``docs/backends.md`` builds a complete one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec
import numpy as np

from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.profile import DeviceProfile
from vyre.driver.timing import Timing
from vyre.errors import DispatchFailed, Timeout, UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.schedule import LaunchSchedule

if TYPE_CHECKING:
    from vyre.driver.memory_cache import CacheStats
    from vyre.driver.resident import ResidentBuffer

# Whatever a device uses to find a piece of its memory, and what it made of a program.
Handle = Any
Code = Any
# Where to write, from which byte on, and what; where to fill, from which byte on, how many, with which byte.
Copy = tuple[Handle, int, memoryview]
Fill = tuple[Handle, int, int, int]
# Where to read, from which byte on, and how many.
Range = tuple[Handle, int, int]
# Takes the bytes that were read, which it may only look at while it runs, and returns what becomes of them.
Use = Callable[[Sequence[Any]], Any]


class Availability(msgspec.Struct, frozen=True):
    """Whether a backend can run here, and if not, why and what would help.

    Of the available backends, the default is the one with the highest ``priority``; None is never the default.
    """

    available: bool = True
    reason: str = ""
    fix: str = ""
    priority: int | None = None


class RunOptions(msgspec.Struct, frozen=True, eq=False):
    """What a run needs beside its data: the caller's config, and the time by which it has to end."""

    config: DispatchConfig = DEFAULT_CONFIG
    deadline: float | None = None

    @classmethod
    def of(cls, config: DispatchConfig) -> RunOptions:
        """The options of a run that starts now."""
        if config is DEFAULT_CONFIG:
            return UNLIMITED
        if config.timeout_s is None:
            return cls(config)
        return cls(config, perf_counter() + config.timeout_s)

    def time_left(self) -> float | None:
        """Seconds until the deadline; Timeout if it has passed."""
        if self.deadline is None:
            return None
        left = self.deadline - perf_counter()
        if left <= 0:
            raise self.timeout()
        return left

    def timeout(self) -> Timeout:
        """The error of a run that did not end in time."""
        return Timeout(self.config.timeout_s or 0.0)


UNLIMITED = RunOptions()


class Ran(msgspec.Struct, frozen=True, eq=False):
    """What a run of a schedule did: what ``use`` made of the bytes read, passes, launches, decisions and times.

    ``converged`` is None where no test was asked for. ``decisions`` counts the control words that were read,
    ``segments`` the launches without the copies of collectives, if those differ.
    """

    answer: Any
    passes: int
    converged: bool | None
    launches: int
    decisions: int = 0
    timing: Timing = Timing()
    segments: int | None = None


class PreparedSchedule(ABC):
    """A schedule ready to run again and again on memory of the same sizes."""

    @abstractmethod
    def run(
        self, memory: Sequence[Handle], options: RunOptions, reads: Sequence[tuple[int, int, int]], use: Use
    ) -> Ran:
        """Run the schedule on the caller's memory, then read ranges of it (number, offset, length) for ``use``."""


class ProgramImage(Protocol):
    """Programs that are ready; ``headers`` are they without statements, ``notes`` what came with them."""

    headers: list[Program]
    notes: bytes

    def run(self, steps: Sequence[tuple[str, int, Sequence[ResidentBuffer]]]) -> None:
        """Run programs by name, each on so many workgroups, on resident buffers in binding order."""
        ...


class HostArrays:
    """The arrays that a device whose memory is the host's works on."""

    def empty(self, count: int, storage: np.dtype[Any]) -> Array:
        return np.empty(count, storage)

    def zeros(self, count: int, storage: np.dtype[Any]) -> Array:
        return np.zeros(count, storage)

    def copy(self, array: Array) -> Array:
        return array.copy()


class Device(ABC):
    """Memory, code and launches. Methods without ``abstractmethod`` are optional: each default is right."""

    id: ClassVar[str]
    version: ClassVar[str]
    # Whether ``prepare_schedule`` runs every schedule, grid barriers included, without the host in between: they are
    # then native, although ``compile`` never sees one.
    runs_schedules: ClassVar[bool] = False

    @classmethod
    def availability(cls) -> Availability:
        """Whether the device can run here; must be cheap, and never raise."""
        return Availability()

    @property
    @abstractmethod
    def profile(self) -> DeviceProfile:
        """Capabilities and limits; the same object every time."""

    @property
    def accepts(self) -> DeviceProfile:
        """Features programs may use: native capabilities plus those that ``compile`` emulates."""
        return self.profile

    @property
    def accepts_with_driver(self) -> DeviceProfile:
        """The same, with what the driver does for a device: cutting programs at barriers, traps and collectives."""
        return _cut_for(self.accepts)

    @abstractmethod
    def allocate(self, byte_len: int) -> Handle:
        """Return memory of at least ``byte_len`` bytes, whose contents are undefined, or raise DeviceOutOfMemory."""

    @abstractmethod
    def free(self, handle: Handle) -> None:
        """Give memory back."""

    @abstractmethod
    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        """Fill ranges with one byte each, then copy host bytes; later launches see all of it."""

    @abstractmethod
    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        """Return the bytes of ranges as they are after all launches so far, in memory of their own."""

    @abstractmethod
    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Code:
        """Compile a checked program for launches of any size.

        It has no traps, collectives or grid barriers unless the profile says that they are native. ``source`` is the
        program that it is a segment of.
        """

    @abstractmethod
    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        """Run code on memory, in the binding order of its program's buffers.

        ``launch`` has the grid and the number of elements of each buffer; memory may be longer. All buffers hold what
        earlier launches and writes left, outputs too. A run that takes longer than ``options.time_left()`` raises
        ``options.timeout()``, if the device can tell. Return device times, if the device measures any.
        """

    def synchronize(self) -> None:
        """Wait until everything that was launched has ended."""

    def read_with(self, ranges: Sequence[Range], use: Use) -> Any:
        """Return what ``use`` makes of the bytes of ranges; saves a copy where the device can show its memory."""
        return use(self.read(ranges))

    def prepare_schedule(self, schedule: LaunchSchedule) -> PreparedSchedule | None:
        """Prepare a whole schedule to run without the host; None leaves it to the driver's loop."""
        return None

    def resident_grid_fits(self, code: Code, launch: Launch) -> int | None:
        """Return None if all workgroups of a launch with a native grid barrier can run at once, else how many can."""
        return None

    def reads_grid(self, program: Program, config: DispatchConfig) -> bool:
        """Whether a launch takes its indirect grid from device memory; the host reads it first otherwise."""
        return False

    def host_view(self, handle: Handle) -> Array | None:
        """Return the bytes of the memory themselves, if the host can reach them."""
        return None

    def host_arrays(self) -> HostArrays:
        """Return the allocator of host arrays; used where ``profile.in_place``: then arrays are handles."""
        return HostArrays()

    def load_image(self, key: bytes, make: Callable[[], tuple[Sequence[Program], bytes]]) -> ProgramImage | None:
        """Return programs ready to run, looked up by ``key`` or made of what ``make`` gives; None if it keeps none."""
        return None

    def explain(self, code: Code) -> list[str]:
        """Lines about compiled code, for people."""
        return []

    def prepare(self) -> None:
        """Acquire and warm up what the first launch needs."""

    def is_lost(self) -> bool:
        """Whether the device was lost since the last good launch."""
        return False

    def recover(self) -> None:
        """Acquire a lost device again; memory that was allocated before is gone."""
        raise UnsupportedFeature("recovery of a lost device", self.id)

    def close(self) -> None:
        """Release the device."""

    def cache_stats(self) -> CacheStats | None:
        """Counters of the device's cache of compiled code, if it has one."""
        return None

    def metrics(self) -> Mapping[str, int]:
        """Numbers that only this device has; names are ASCII identifiers."""
        return {}


def require_lengths(device: Device, views: Sequence[Any], ranges: Sequence[tuple[Any, int, int]]) -> Sequence[Any]:
    """The bytes that a device read, if it read what was asked for."""
    given = [memoryview(view).nbytes for view in views]
    asked = [length for _, _, length in ranges]
    if given != asked:
        raise DispatchFailed(
            f"device '{device.id}' gave {given} bytes where {asked} were read.",
            "have its read() return one buffer for each range, of exactly its length.",
            code="wrong-outputs",
        )
    return views


@lru_cache(maxsize=64)
def _cut_for(profile: DeviceProfile) -> DeviceProfile:
    if not (profile.resident or profile.allows_host_grid_sync_split):
        return profile
    return msgspec.structs.replace(profile, grid_sync=True, traps=True, collectives=True)
