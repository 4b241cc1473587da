"""The dispatcher seam: what the optimizer needs from the host that runs its programs.

The optimizer knows no backend. A dispatcher must run a program on bytes. If it can also keep buffers on its device, the
optimizer uploads once, runs its programs in one sequence and reads once. Operations that a dispatcher lacks raise an
error that names them; operations that consist of others have a correct default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import msgspec
import numpy as np

from vyre.errors import BadInputs, DispatchFailed, UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.semantics.types import FLOATS, DType

Grid = tuple[int, ...]
Bytes = bytes | bytearray | memoryview
# Memory of the caller for what is read, one slot for each range.
Slots = list[bytearray]
Buffers = TypeVar("Buffers")


class ResidentStep(msgspec.Struct, frozen=True, eq=False):
    """One launch on resident buffers, whose handles are in binding order."""

    program: Program
    handles: tuple[int, ...]
    grid: Grid | None = None


class ResidentRange(msgspec.Struct, frozen=True):
    """Bytes of a resident buffer to read; without a length, all from the offset on."""

    handle: int
    offset: int = 0
    length: int | None = None


class StaticBufferSet(msgspec.Struct, frozen=True):
    """Buffers that never change, in the order of their payloads.

    ``cache_hit`` is True if nothing was uploaded; ``retained`` if the dispatcher keeps them for later calls.
    """

    handles: tuple[int, ...]
    cache_hit: bool
    retained: bool


class ProgramSet(msgspec.Struct, frozen=True, eq=False):
    """The optimizer's programs, the table they interpret, and the names of its rules in the order of their counts.

    Programs that use other float types than ``floats`` cannot be optimized with these.
    """

    need: Program
    simplify: Program
    live: Program
    place: Program
    pack: Program
    rules: tuple[str, ...]
    table: Array
    floats: tuple[DType, ...] = FLOATS


def whole_programs(floats: tuple[DType, ...] = FLOATS) -> ProgramSet:
    """Return the programs with all their statements, for these floats."""
    from vyre.optimizer.bytecode import rule_names, rule_table
    from vyre.optimizer.kernels import kernels

    made = kernels(floats)
    return ProgramSet(
        made.need, made.simplify, made.live, made.place, made.pack, rule_names(), rule_table().words, floats
    )


def words_of(name: str, data: Bytes, count: int) -> Array:
    """Return a column that was read as words; it must have exactly ``count``."""
    if len(data) != 4 * count:
        raise DispatchFailed(
            f"column '{name}' came back with {len(data)} bytes instead of {4 * count}.",
            "correct the dispatcher: it must return the whole column and nothing else.",
            code="wrong-column",
        )
    return np.frombuffer(data, np.uint32)


def store_in(slots: Slots | None, read: Sequence[Bytes]) -> Sequence[Bytes]:
    """Copy what was read into the caller's slots, as many as there are ranges; return it unchanged without slots."""
    if slots is None:
        return read
    del slots[len(read) :]
    slots.extend(bytearray() for _ in range(len(read) - len(slots)))
    for slot, data in zip(slots, read, strict=True):
        slot[:] = data
    return slots


class OptimizerDispatcher:
    """Runs the optimizer's programs; base class of all dispatchers."""

    @property
    def name(self) -> str:
        """The dispatcher's name in errors."""
        return type(self).__name__

    def programs(self) -> ProgramSet:
        """Return the optimizer's programs; without statements, if the dispatcher has code for them by name."""
        return whole_programs()

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        """Run a program; inputs and outputs are bytes, one for each buffer of that kind, in order of declaration."""
        raise UnsupportedFeature("dispatch", self.name, "implement dispatch: every dispatcher needs it.")

    def supports_persistent(self) -> bool:
        """Whether buffers can stay on the device between launches."""
        return False

    def device_feature_cache_key(self) -> int:
        """Return a number that differs between devices for which a program is lowered differently."""
        return 0

    def allocate(self, byte_len: int) -> int:
        """Allocate a resident buffer and return its handle."""
        raise self._lacks("allocation of resident buffers")

    def allocate_many(self, byte_lens: Iterable[int]) -> list[int]:
        """Allocate several buffers, or none: if one allocation fails, the earlier ones are freed."""
        handles: list[int] = []
        try:
            handles.extend(map(self.allocate, byte_lens))
        except Exception as error:
            free_after(error, self.free_many, handles)
            raise
        return handles

    def upload(self, handle: int, data: Bytes) -> None:
        """Copy bytes to the beginning of a buffer."""
        raise self._lacks("upload to resident buffers")

    def upload_many(self, uploads: Sequence[tuple[int, Bytes]]) -> None:
        """Upload to several buffers, with one fence if the device can."""
        for handle, data in uploads:
            self.upload(handle, data)

    def fill(self, handle: int, length: int, value: int) -> None:
        """Set the first bytes of a buffer to one value."""
        self.upload(handle, bytes([value]) * length)

    def read(self, handle: int) -> bytes:
        """Return all bytes of a buffer."""
        raise self._lacks("reading of resident buffers")

    def read_many(self, handles: Sequence[int]) -> list[bytes]:
        """Return all bytes of several buffers, with one fence if the device can."""
        return [self.read(handle) for handle in handles]

    def read_ranges(self, ranges: Sequence[ResidentRange], into: Slots | None = None) -> Sequence[Bytes]:
        """Return ranges in the caller's order, or store them in the slots ``into``.

        Each buffer is read once, in the order in which they are first named. A range without a length reaches to the
        buffer's end.
        """
        handles = list(dict.fromkeys(one.handle for one in ranges))
        read = self.read_many(handles)
        if len(read) != len(handles):
            raise DispatchFailed(
                f"{len(read)} buffers were read instead of {len(handles)}.",
                "correct the dispatcher's read_many.",
                code="wrong-reads",
            )
        whole = dict(zip(handles, read, strict=True))
        return store_in(into, [self._part(whole[one.handle], one) for one in ranges])

    def _part(self, data: bytes, wanted: ResidentRange) -> bytes:
        length = len(data) - wanted.offset if wanted.length is None else wanted.length
        if wanted.offset < 0 or length < 0 or wanted.offset + length > len(data):
            raise BadInputs(
                f"bytes {wanted.offset} to {wanted.offset + length} of buffer {wanted.handle}, which has {len(data)}, "
                "were requested.",
                "request bytes inside the buffer.",
            )
        return data[wanted.offset : wanted.offset + length]

    def free(self, handle: int) -> None:
        """Free a resident buffer."""
        raise self._lacks("freeing of resident buffers")

    def free_many(self, handles: Iterable[int]) -> None:
        """Free all of them, even if some frees fail; then raise the first failure."""
        failures: list[Exception] = []
        for handle in handles:
            try:
                self.free(handle)
            except Exception as error:
                failures.append(error)
        if failures:
            for more in failures[1:]:
                failures[0].add_note(f"another buffer could not be freed: {more}")
            raise failures[0]

    @contextmanager
    def held(self, byte_lens: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Allocate resident buffers by name for the time of a block."""
        handles = self.allocate_many(byte_lens.values())
        try:
            yield dict(zip(byte_lens, handles, strict=True))
        except BaseException as error:
            free_after(error, self.free_many, handles)
            raise
        self.free_many(handles)

    def acquire_static(self, domain: str, payloads: Sequence[Bytes]) -> StaticBufferSet:
        """Return buffers with these contents, which never change; ``domain`` separates different uses."""
        handles = self.allocate_many(map(len, payloads))
        try:
            self.upload_many(list(zip(handles, payloads, strict=True)))
        except Exception as error:
            free_after(error, self.free_many, handles)
            raise
        return StaticBufferSet(tuple(handles), cache_hit=False, retained=False)

    def release_static(self, buffers: StaticBufferSet) -> None:
        """Release a set of static buffers: free it, unless the dispatcher retains it."""
        if not buffers.retained:
            self.free_many(buffers.handles)

    def dispatch_resident(self, step: ResidentStep) -> None:
        """Run a program on resident buffers."""
        raise self._lacks("dispatch on resident buffers")

    def dispatch_sequence(self, steps: Sequence[ResidentStep]) -> None:
        """Run programs on resident buffers, in order."""
        for step in steps:
            self.dispatch_resident(step)

    def run_sequence(
        self,
        steps: Sequence[ResidentStep],
        reads: Sequence[ResidentRange],
        *,
        fills: Sequence[tuple[int, int, int]] = (),
        uploads: Sequence[tuple[int, Bytes]] = (),
        into: Slots | None = None,
    ) -> Sequence[Bytes]:
        """Fill (handle, length, byte), upload, run the steps and read, with one fence if the device can.

        What is read is returned, or stored in the slots ``into``.
        """
        for handle, length, value in fills:
            self.fill(handle, length, value)
        if uploads:
            self.upload_many(uploads)
        self.dispatch_sequence(steps)
        return self.read_ranges(reads, into)

    def _lacks(self, what: str) -> UnsupportedFeature:
        return UnsupportedFeature(
            what, self.name, "run the programs through dispatch, or implement the resident operations."
        )


def free_after(error: BaseException, free: Callable[[Buffers], None], buffers: Buffers) -> None:
    """Free what was allocated before an error; if that fails too, add a note to the error."""
    try:
        free(buffers)
    except Exception as other:
        error.add_note(f"freeing its buffers failed too: {other}")
