"""Output slots: where the results of a dispatch go, new memory or memory that the caller keeps and reuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from vyre.arguments import listed, require, require_whole
from vyre.driver import telemetry
from vyre.errors import BadInputs

# A bytes-like object: bytes, bytearray, memoryview, a NumPy array. (The protocol has no public type before 3.12.)
Buffer = Any


class OutputStats(msgspec.Struct, frozen=True):
    """Counts of slots by what became of them when results were stored."""

    reused: int = 0
    moved: int = 0
    appended: int = 0


class OutputBuffers(Sequence[memoryview]):
    """Output slots that keep their memory from one dispatch to the next.

    As a sequence it is the last results, each exactly as long as it is. A slot that is large enough is written in
    place; one that is too small is replaced; missing ones are added; ones in excess go. Slots may be given: any
    writable contiguous buffers, NumPy arrays for example.
    """

    __slots__ = ("_counts", "_results", "_slots")

    def __init__(self, slots: Iterable[Buffer] = ()) -> None:
        self._slots = [_writable(number, slot) for number, slot in enumerate(listed(slots, "the slots"))]
        _require_apart(self._slots)
        self._results = list(self._slots)
        self._counts = 0, 0, 0

    @classmethod
    def with_sizes(cls, sizes: Iterable[int]) -> OutputBuffers:
        """Slots with room for that many bytes each."""
        return cls(bytearray(_require_size(size)) for size in listed(sizes, "the sizes"))

    def __len__(self) -> int:
        return len(self._results)

    def __getitem__(self, index: Any) -> Any:
        return self._results[index]

    def __iter__(self) -> Iterator[memoryview]:
        return iter(self._results)

    def __repr__(self) -> str:
        return f"OutputBuffers({[len(view) for view in self._results]} bytes)"

    @property
    def stats(self) -> OutputStats:
        """What became of the slots when results were last stored."""
        return OutputStats(*self._counts)

    @property
    def capacities(self) -> list[int]:
        """The bytes that fit into each slot."""
        return [len(slot) for slot in self._slots]

    def store(self, results: Sequence[Buffer]) -> list[memoryview]:
        """Put results into the slots; return what the slots then hold."""
        slots = self._slots
        reused = moved = appended = 0
        stored: list[memoryview] = []
        try:
            views = list(map(byte_view, results))
        except TypeError:
            listed(results, "what is to be stored")
            raise
        for number, data in enumerate(views):
            size = len(data)
            if number < len(slots) and len(slots[number]) >= size:
                part = slots[number][:size]
                part[:] = data
                reused += 1
            else:
                slot = _owned(data)
                part = slot[:]
                if number < len(slots):
                    slots[number] = slot
                    moved += 1
                else:
                    slots.append(slot)
                    appended += 1
            stored.append(part)
        del slots[len(stored) :]
        self._results = stored
        self._counts = reused, moved, appended
        telemetry.count_slots(reused, moved, appended)
        return list(stored)


def byte_view(data: Buffer) -> memoryview:
    """The bytes of a buffer, without a copy where it is contiguous."""
    try:
        view = memoryview(data)
    except TypeError:
        message = f"a {type(data).__name__} has no bytes to be copied as they are."
        raise BadInputs(message, "give bytes, a memoryview or a NumPy array.") from None
    try:
        return view.cast("B")
    except TypeError:
        # What cannot be cast is not contiguous, or has a zero in its shape.
        return memoryview(view.tobytes())


def deliver_outputs(
    results: Sequence[Buffer], into: OutputBuffers | None, input_bytes: int, launches: int = 1
) -> list[memoryview]:
    """Return the results as views, in the caller's slots if there are any, and count the dispatch."""
    # Not a call of stored, which would cost as much again.
    try:
        views = [byte_view(result) for result in results] if into is None else into.store(results)
    except AttributeError:
        require_slots(into)
        raise
    telemetry.count_launch(input_bytes, views, launches)
    return views


def stored(results: Sequence[Buffer], into: OutputBuffers | None) -> list[memoryview]:
    """The results as views, in the caller's slots if there are any."""
    require_slots(into)
    return [byte_view(result) for result in results] if into is None else into.store(results)


def require_slots(into: object) -> None:
    """Raise unless None or OutputBuffers."""
    if into is not None:
        require(into, OutputBuffers, "into", "give vyre.OutputBuffers(), which may be given memory, or leave it out.")


def _require_size(size: int) -> int:
    if require_whole(size, "the size of a slot") < 0:
        raise BadInputs(f"a slot cannot have {size} bytes.", "give a size of at least 0.")
    return size


def _require_apart(slots: Sequence[memoryview]) -> None:
    """Raise BadInputs if two slots share memory: results would overwrite each other."""
    ranges: list[tuple[int, int, int]] = []
    for number, slot in enumerate(slots):
        if slot.nbytes:
            start = np.frombuffer(slot, np.uint8).ctypes.data
            ranges.append((start, start + slot.nbytes, number))
    ranges.sort()
    for (_, end, number), (start, _, other) in pairwise(ranges):
        if start < end:
            first, second = sorted((number, other))
            raise BadInputs(
                f"output slots {first} and {second} share memory.",
                "give each slot memory of its own, and give it once.",
            )


def _owned(data: memoryview) -> memoryview:
    return memoryview(bytearray(data)) if data.readonly else data


def _writable(number: int, slot: Buffer) -> memoryview:
    try:
        view = memoryview(slot)
    except TypeError:
        raise BadInputs(
            f"output slot {number} is a {type(slot).__name__}.", "give memory: a bytearray, or a NumPy array."
        ) from None
    if view.readonly or not view.c_contiguous:
        raise BadInputs(
            f"output slot {number} is {'read-only' if view.readonly else 'not contiguous'}.",
            "give writable contiguous memory: a bytearray, or a NumPy array in C order.",
        )
    return byte_view(view) if view.nbytes else memoryview(bytearray())
