"""Resident buffers: memory on a device that the caller holds, with its owner and its size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from vyre.arguments import listed, require_whole
from vyre.driver import telemetry
from vyre.driver.outputs import byte_view
from vyre.errors import BadInputs, report_cleanup

if TYPE_CHECKING:
    from vyre.driver.backend import Backend, Fill, Upload


class ResidentBuffer:
    """Memory on a device, made by ``Backend.allocate``; a context manager that frees it.

    ``handle`` is whatever the owner needs to find the memory. What the memory holds at first is not defined.
    """

    __slots__ = ("__weakref__", "byte_len", "handle", "is_freed", "owner")

    def __init__(self, owner: Backend, byte_len: int, handle: Any) -> None:
        self.owner = owner
        self.byte_len = byte_len
        self.handle = handle
        self.is_freed = False
        telemetry.count_resident(1, byte_len)

    def __enter__(self) -> ResidentBuffer:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_freed:
            self.owner.free(self)

    def __repr__(self) -> str:
        return f"<ResidentBuffer of '{self.owner.id}': {self.byte_len} bytes{', freed' if self.is_freed else ''}>"

    def release(self) -> Any:
        """Mark the buffer as freed and return its handle; the owner's ``free`` calls this."""
        handle, self.handle = self.handle, None
        self.is_freed = True
        telemetry.count_resident(-1, -self.byte_len)
        return handle


class ReadRange(msgspec.Struct, frozen=True):
    """Bytes to read from a resident buffer; without a length, all from the offset on."""

    buffer: ResidentBuffer
    offset: int = 0
    length: int | None = None


ReadRangeLike = ReadRange | ResidentBuffer | tuple[ResidentBuffer, int, int | None]


def require_owned(backend: Backend, buffer: object) -> ResidentBuffer:
    """The buffer, if it belongs to the backend and is not freed."""
    if not isinstance(buffer, ResidentBuffer):
        raise BadInputs(f"a {type(buffer).__name__} is no resident buffer.", "give what backend.allocate(...) gave.")
    if buffer.owner is not backend and not backend.owns(buffer):
        raise BadInputs(
            f"the resident buffer belongs to another backend ('{buffer.owner.id}').",
            f"allocate it on this one ('{backend.id}') and copy: download there, upload here.",
        )
    if buffer.is_freed:
        raise BadInputs("the resident buffer has been freed.", "free a buffer once, after its last use.")
    return buffer


def require_range(buffer: ResidentBuffer, offset: int, length: int | None) -> int:
    """The length of a range, if it lies in the buffer."""
    require_whole(offset, "the offset")
    size = buffer.byte_len - offset if length is None else require_whole(length, "the length")
    if offset < 0 or size < 0 or offset + size > buffer.byte_len:
        raise BadInputs(
            f"bytes {offset} to {offset + size} are not in a resident buffer of {buffer.byte_len} bytes.",
            "give an offset and a length inside the buffer.",
        )
    return size


def require_byte_len(byte_len: int) -> int:
    if require_whole(byte_len, "the size of a resident buffer") < 0:
        raise BadInputs(f"a resident buffer cannot have {byte_len} bytes.", "give a size of at least 0.")
    return byte_len


def require_byte(value: int) -> int:
    if not 0 <= require_whole(value, "the fill value") <= 255:
        raise BadInputs(f"the fill value {value} is no byte.", "give a number from 0 to 255.")
    return value


def staged(
    backend: Backend, uploads: Iterable[Upload], fills: Iterable[Fill]
) -> tuple[list[tuple[ResidentBuffer, int, memoryview]], list[tuple[ResidentBuffer, int, int, int]]]:
    """Uploads and fills in one form, with their lengths decided: all are possible before the first is done."""
    try:
        filling = [
            (buffer, offset, require_range(require_owned(backend, buffer), offset, length), require_byte(value))
            for buffer, offset, length, value in fills
        ]
        views = [(require_owned(backend, buffer), offset, byte_view(data)) for buffer, offset, data in uploads]
    except (TypeError, ValueError) as error:
        raise BadInputs(
            f"the uploads or the fills are no lists of tuples: {error}.",
            "give uploads as [(buffer, offset, data), ...] and fills as [(buffer, offset, length, byte), ...].",
        ) from error
    for buffer, offset, view in views:
        require_range(buffer, offset, len(view))
    return views, filling


def read_ranges(ranges: Iterable[ReadRangeLike]) -> list[ReadRange]:
    """The ranges in one form; lengths are decided, and each range lies in its buffer."""
    decided = []
    for asked in listed(ranges, "what is to be read"):
        match asked:
            case ReadRange():
                wanted = asked
            case ResidentBuffer():
                wanted = ReadRange(asked)
            case (buffer, offset, length):
                wanted = ReadRange(buffer, offset, length)
            case _:
                wanted = None
        if wanted is None or not isinstance(wanted.buffer, ResidentBuffer):
            raise BadInputs(
                f"a {type(wanted.buffer if wanted else asked).__name__} is no range of a resident buffer.",
                "give a buffer, (buffer, offset, length) or a ReadRange.",
            )
        length = require_range(wanted.buffer, wanted.offset, wanted.length)
        decided.append(ReadRange(wanted.buffer, wanted.offset, length))
    return decided


def free_all(backend: Backend, buffers: Iterable[ResidentBuffer], error: BaseException | None = None) -> None:
    """Free every buffer, whatever fails; failures are added to ``error``, or raised if there is none."""
    failures: list[Exception] = []
    for buffer in buffers:
        try:
            backend.free(buffer)
        except Exception as failure:
            failures.append(failure)
    if not failures:
        return
    if error is not None:
        report_cleanup(error, failures)
        return
    report_cleanup(failures[0], failures[1:])
    raise failures[0]


@contextmanager
def allocated(backend: Backend, byte_lens: Sequence[int]) -> Iterator[list[ResidentBuffer]]:
    """Allocate buffers for a block, and free them on every path out of it."""
    buffers = backend.allocate_many(byte_lens)
    try:
        yield buffers
    except BaseException as error:
        free_all(backend, buffers, error)
        raise
    free_all(backend, buffers)
