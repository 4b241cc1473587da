"""Who runs the optimizer's programs? Whoever it is handed: it knows no backend.

A dispatcher has to run a program on bytes. One that can keep buffers on its device says so, and then the optimizer
uploads once, runs its programs in one sequence and reads once. What it does not implement of that refuses, and what
can be put together from the rest has a default that is right everywhere.
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
Buffers = TypeVar("Buffers")


class ResidentStep(msgspec.Struct, frozen=True, eq=False):
    """One launch on resident buffers, whose handles come in binding order."""

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

    ``cache_hit`` says that nothing had to be uploaded, ``retained`` that the dispatcher keeps them for the next time.
    """

    handles: tuple[int, ...]
    cache_hit: bool
    retained: bool


class ProgramSet(msgspec.Struct, frozen=True, eq=False):
    """The optimizer's programs, the table they interpret, and the names of its rules in the order of their counts.

    Programs that have other ``floats`` than these are not for them.
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
    """The programs with all their statements, for these floats."""
    from vyre.optimizer.bytecode import rule_names, rule_table
    from vyre.optimizer.kernels import kernels

    made = kernels(floats)
    return ProgramSet(
        made.need, made.simplify, made.live, made.place, made.pack, rule_names(), rule_table().words, floats
    )


def words_of(name: str, data: Bytes, count: int) -> Array:
    """A column as it was read, which has to have exactly its words."""
    if len(data) != 4 * count:
        raise DispatchFailed(
            f"column '{name}' came back with {len(data)} bytes instead of {4 * count}.",
            "mend the dispatcher: it must give the whole column and nothing else.",
            code="wrong-column",
        )
    return np.frombuffer(data, np.uint32)


class OptimizerDispatcher:
    """What the optimizer asks of whoever runs its programs.

    While one thread runs a program that reads a part of a long one, another allocates and uploads for the next part.
    """

    @property
    def name(self) -> str:
        """What errors call it."""
        return type(self).__name__

    def programs(self) -> ProgramSet:
        """The optimizer's programs; without statements, if this dispatcher knows them by their names."""
        return whole_programs()

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        """Runs a program: inputs and outputs are bytes, one for each buffer of that kind, in order of declaration."""
        raise NotImplementedError

    def supports_persistent(self) -> bool:
        """Whether buffers can stay on the device between launches."""
        return False

    def device_feature_cache_key(self) -> int:
        """A number that differs where the same program would be lowered in another way."""
        return 0

    def allocate(self, byte_len: int) -> int:
        """A resident buffer's handle."""
        raise self._lacks("allocation of resident buffers")

    def allocate_many(self, byte_lens: Iterable[int]) -> list[int]:
        """Several buffers, or none: if one fails, those before it are freed."""
        handles: list[int] = []
        try:
            handles.extend(map(self.allocate, byte_lens))
        except Exception as error:
            free_after(error, self.free_many, handles)
            raise
        return handles

    def upload(self, handle: int, data: Bytes) -> None:
        """Copies bytes into a buffer, from its beginning."""
        raise self._lacks("upload to resident buffers")

    def upload_many(self, uploads: Sequence[tuple[int, Bytes]]) -> None:
        for handle, data in uploads:
            self.upload(handle, data)

    def fill(self, handle: int, length: int, value: int) -> None:
        """Sets the first bytes of a buffer to one value."""
        self.upload(handle, bytes([value]) * length)

    def read(self, handle: int) -> bytes:
        """All bytes of a buffer."""
        raise self._lacks("reading of resident buffers")

    def read_many(self, handles: Sequence[int]) -> list[bytes]:
        return [self.read(handle) for handle in handles]

    def read_ranges(self, ranges: Sequence[ResidentRange]) -> Sequence[Bytes]:
        """The ranges in the caller's order; each buffer is read once, in the order in which they are first named.

        A range without a length reaches to the buffer's end.
        """
        handles = list(dict.fromkeys(one.handle for one in ranges))
        read = self.read_many(handles)
        if len(read) != len(handles):
            raise DispatchFailed(
                f"{len(read)} buffers were read instead of {len(handles)}.", "mend the dispatcher.", code="wrong-reads"
            )
        whole = dict(zip(handles, read, strict=True))
        return [self._part(whole[one.handle], one) for one in ranges]

    def _part(self, data: bytes, wanted: ResidentRange) -> bytes:
        length = len(data) - wanted.offset if wanted.length is None else wanted.length
        if wanted.offset < 0 or length < 0 or wanted.offset + length > len(data):
            raise BadInputs(
                f"bytes {wanted.offset} to {wanted.offset + length} of buffer {wanted.handle}, "
                f"which has {len(data)}, were asked for.",
                "ask for bytes that the buffer has.",
            )
        return data[wanted.offset : wanted.offset + length]

    def free(self, handle: int) -> None:
        raise self._lacks("freeing of resident buffers")

    def free_many(self, handles: Iterable[int]) -> None:
        """Frees all of them, also if some cannot be freed, and then tells."""
        failures: list[Exception] = []
        for handle in handles:
            try:
                self.free(handle)
            except Exception as error:
                failures.append(error)
        if failures:
            for more in failures[1:]:
                failures[0].add_note(f"and another buffer could not be freed: {more}")
            raise failures[0]

    @contextmanager
    def held(self, byte_lens: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Resident buffers by their names, which are freed in the end, whatever happens."""
        handles = self.allocate_many(byte_lens.values())
        try:
            yield dict(zip(byte_lens, handles, strict=True))
        except BaseException as error:
            free_after(error, self.free_many, handles)
            raise
        self.free_many(handles)

    def acquire_static(self, domain: str, payloads: Sequence[Bytes]) -> StaticBufferSet:
        """Buffers with these contents, which nobody will change; ``domain`` keeps different uses apart."""
        handles = self.allocate_many(map(len, payloads))
        try:
            self.upload_many(list(zip(handles, payloads, strict=True)))
        except Exception as error:
            free_after(error, self.free_many, handles)
            raise
        return StaticBufferSet(tuple(handles), cache_hit=False, retained=False)

    def release_static(self, buffers: StaticBufferSet) -> None:
        if not buffers.retained:
            self.free_many(buffers.handles)

    def dispatch_resident(self, step: ResidentStep) -> None:
        """Runs a program on resident buffers."""
        raise self._lacks("dispatch on resident buffers")

    def dispatch_sequence(self, steps: Sequence[ResidentStep]) -> None:
        for step in steps:
            self.dispatch_resident(step)

    def run_sequence(
        self,
        steps: Sequence[ResidentStep],
        reads: Sequence[ResidentRange],
        *,
        fills: Sequence[tuple[int, int, int]] = (),
        uploads: Sequence[tuple[int, Bytes]] = (),
    ) -> Sequence[Bytes]:
        """Fills (handle, length, byte), then uploads, then steps, then reads: behind one fence, if possible."""
        for handle, length, value in fills:
            self.fill(handle, length, value)
        if uploads:
            self.upload_many(uploads)
        self.dispatch_sequence(steps)
        return self.read_ranges(reads)

    def _lacks(self, what: str) -> UnsupportedFeature:
        return UnsupportedFeature(what, self.name, "run the programs through dispatch, or implement the resident half.")


def free_after(error: BaseException, free: Callable[[Buffers], None], buffers: Buffers) -> None:
    """Frees what had been allocated when something failed; that this failed too is told with it."""
    try:
        free(buffers)
    except Exception as other:
        error.add_note(f"and freeing what had been allocated failed too: {other}")
