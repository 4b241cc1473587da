"""Resident buffers: ownership, ranges, staging order, grouped allocation and reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cpu_support
from backends_for_tests import ForwardingDevice, RecordingBackend
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, Device, OutputBuffers, ReadRange, ResidentBuffer, telemetry
from vyre.driver.device import Range
from vyre.driver.resident import allocated, free_all
from vyre.errors import BadInputs, DeviceOutOfMemory, DispatchFailed, UnsupportedFeature


def test_a_buffer_is_freed_once_by_its_owner() -> None:
    backend = ReferenceBackend()
    buffer = backend.allocate(4)
    with pytest.raises(BadInputs, match="another backend"):
        ReferenceBackend().free(buffer)
    backend.free(buffer)
    assert "freed" in repr(buffer)
    for use in (backend.free, backend.download, backend.fill, lambda b: backend.upload(b, b"")):
        with pytest.raises(BadInputs, match="has been freed"):
            use(buffer)


def test_a_buffer_frees_itself_at_the_end_of_its_block() -> None:
    backend = ReferenceBackend()
    with backend.allocate(4) as buffer:
        assert not buffer.is_freed
    assert buffer.is_freed
    with backend.allocate(4) as buffer:
        backend.free(buffer)


def test_resident_bytes_are_counted_now_and_at_their_peak() -> None:
    before = telemetry.snapshot()
    backend = ReferenceBackend()
    one, two = backend.allocate_many([100, 50])
    during = telemetry.snapshot()
    backend.free(one)
    backend.free(two)
    after = telemetry.snapshot()
    assert during.resident_buffers == before.resident_buffers + 2
    assert during.resident_bytes == before.resident_bytes + 150
    assert after.resident_bytes == before.resident_bytes
    assert after.resident_bytes_peak >= before.resident_bytes + 150


def test_sizes_that_cannot_be_are_told() -> None:
    backend = ReferenceBackend()
    with pytest.raises(BadInputs, match="-1 bytes"):
        backend.allocate(-1)
    with pytest.raises(DeviceOutOfMemory) as caught:
        backend.allocate(1 << 62)
    assert caught.value.requested == 1 << 62


def test_a_backend_without_resident_half_has_none_of_it() -> None:
    backend = ReferenceBackend(resident=False)
    assert not backend.capabilities.resident
    for call in (lambda: backend.allocate(4), lambda: backend.upload_many([]), lambda: backend.allocate_many([1])):
        with pytest.raises(UnsupportedFeature, match="resident buffers"):
            call()


@pytest.mark.parametrize(("offset", "length"), [(-1, 2), (0, 9), (8, 1), (9, None), (3, -1)])
def test_ranges_outside_a_buffer_are_told(offset: int, length: int | None) -> None:
    backend = ReferenceBackend()
    buffer = backend.allocate(8)
    with pytest.raises(BadInputs, match="not in a resident buffer of 8 bytes"):
        backend.download(buffer, offset, length)
    with pytest.raises(BadInputs, match="not in a resident buffer of 8 bytes"):
        backend.download_many([(buffer, offset, length)])
    with pytest.raises(BadInputs, match="not in a resident buffer of 8 bytes"):
        backend.fill(buffer, 1, offset, length)
    if length is not None and length >= 0:
        with pytest.raises(BadInputs, match="not in a resident buffer of 8 bytes"):
            backend.upload(buffer, bytes(length), offset)


def test_uploads_go_to_their_offset_and_fills_to_their_range() -> None:
    backend = ReferenceBackend(poison=0xEE)
    buffer = backend.allocate(6)
    assert bytes(backend.download(buffer)) == b"\xee" * 6
    backend.fill(buffer, 7, 1, 3)
    backend.upload(buffer, b"ab", 2)
    assert bytes(backend.download(buffer)) == b"\xee\7ab\xee\xee"
    assert bytes(backend.download(buffer, 2, 2)) == b"ab"
    with pytest.raises(BadInputs, match="no byte"):
        backend.fill(buffer, 256)


def test_fills_come_before_uploads_of_the_same_staging_operation() -> None:
    backend = ReferenceBackend()
    one, two = backend.allocate_many([3, 2])
    backend.upload_many([(one, 1, b"\xa5"), (one, 1, b"\x5a")], fills=[(one, 0, 3, 0x11), (two, 0, 2, 0x22)])
    assert [bytes(view) for view in backend.download_many([one, two])] == [b"\x11\x5a\x11", b"\x22\x22"]


def test_a_staging_operation_that_is_refused_does_nothing() -> None:
    backend = ReferenceBackend()
    buffer = backend.allocate(2)
    with pytest.raises(BadInputs):
        backend.upload_many([(buffer, 0, b"ok"), (buffer, 1, b"too long")], fills=[(buffer, 0, 2, 9)])
    assert bytes(backend.download(buffer)) == b"\0\0"


def test_grouped_allocation_rolls_back() -> None:
    backend = RecordingBackend(fail_at=[("allocate", 2)])
    before = telemetry.snapshot().resident_bytes
    with pytest.raises(DispatchFailed, match="injected failure of allocate number 2"):
        backend.allocate_many([4, 8, 12])
    assert backend.calls.count("allocate") == 3
    assert backend.freed == [4, 8]
    assert telemetry.snapshot().resident_bytes == before


def test_a_rollback_that_fails_too_reports_both_and_frees_the_rest() -> None:
    backend = RecordingBackend(fail_at=[("allocate", 3), ("free", 0), ("free", 1)])
    with pytest.raises(DispatchFailed) as caught:
        backend.allocate_many([4, 8, 12, 16])
    assert backend.freed == [4, 8, 12]
    text = str(caught.value)
    for part in ("failure of allocate number 3", "failure of free number 0", "failure of free number 1"):
        assert part in text
    assert text.endswith("Fix: remove the fault.")
    assert len(caught.value.cleanup_errors) == 2


def test_buffers_of_a_block_are_freed_on_every_path() -> None:
    backend = RecordingBackend()
    with allocated(backend, [1, 2]) as buffers:
        assert [b.byte_len for b in buffers] == [1, 2]
    assert all(b.is_freed for b in buffers)
    with pytest.raises(KeyError) as caught, allocated(RecordingBackend(fail_at=[("free", 0)]), [1, 2]) as buffers:
        raise KeyError("inside")
    assert all(b.is_freed for b in buffers)
    assert any("failure of free number 0" in note for note in caught.value.__notes__)


def test_a_free_that_fails_alone_is_raised_after_the_others() -> None:
    backend = RecordingBackend(fail_at=[("free", 0), ("free", 2)])
    buffers = backend.allocate_many([1, 2, 3])
    with pytest.raises(DispatchFailed, match=r"free number 0.*free number 2"):
        free_all(backend, buffers)
    assert backend.freed == [1, 2, 3]


def loaded(backend: RecordingBackend, count: int, size: int) -> list[ResidentBuffer]:
    buffers = backend.allocate_many([size] * count)
    for number, buffer in enumerate(buffers):
        backend.upload(buffer, bytes((number * 17 + k) % 256 for k in range(size)))
    return buffers


class WatchingReads(ForwardingDevice):
    """Notes what each read reads: the size of the memory, offset and length."""

    def __init__(self) -> None:
        super().__init__(ReferenceBackend().device)
        self.asked: list[list[tuple[int, int, int]]] = []

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        self.asked.append([(len(handle), offset, length) for handle, offset, length in ranges])
        return super().read(ranges)

    read_with = Device.read_with


def test_ranged_reads_are_one_read_of_nothing_else() -> None:
    device = WatchingReads()
    backend = Backend(device)
    seven, nine = backend.allocate_many([32, 33])
    backend.upload_many([(seven, 0, bytes(range(32))), (nine, 0, bytes(range(100, 133)))])
    ranges = [ReadRange(nine, 2, 3), (seven, 4, 4), (nine, 12, 5), seven]
    outputs = [bytes(view) for view in backend.download_many(ranges)]
    assert outputs == [bytes(range(102, 105)), bytes(range(4, 8)), bytes(range(112, 117)), bytes(range(32))]
    assert device.asked == [[(33, 2, 3), (32, 4, 4), (33, 12, 5), (32, 0, 32)]]


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 48), st.integers(0, 16)), max_size=300), st.booleans())
def test_ranged_reads_answer_in_the_callers_order(ranges: list[tuple[int, int, int]], reuse: bool) -> None:
    backend = RecordingBackend()
    buffers = loaded(backend, 8, 64)
    into = OutputBuffers.with_sizes([16] * len(ranges)) if reuse else None
    backend.calls.clear()
    outputs = backend.download_many([(buffers[which], offset, size) for which, offset, size in ranges], into=into)
    for (which, offset, size), output in zip(ranges, outputs, strict=True):
        assert bytes(output) == bytes((which * 17 + k) % 256 for k in range(offset, offset + size))
    assert backend.counts == {"read": 1}
    if into is not None:
        assert into.stats.reused == len(ranges)
        assert into.capacities == [16] * len(ranges)
    free_all(backend, buffers)


def test_a_single_read_can_reuse_a_slot() -> None:
    backend = ReferenceBackend()
    buffer = backend.allocate(4)
    room = bytearray(9)
    view = backend.download(buffer, into=OutputBuffers([room]))
    assert view.obj is room
    assert len(view) == 4


BACKENDS = {"reference": ReferenceBackend, "cpu": cpu_support.backend}


@pytest.mark.parametrize("name", BACKENDS)
def test_what_was_read_into_new_slots_is_no_memory_of_the_device(name: str) -> None:
    backend: Backend = BACKENDS[name]()
    with backend.allocate(4) as buffer:
        backend.upload(buffer, b"1234")
        for read in (backend.download, lambda b, into: backend.download_many([b], into=into)[0]):
            slots = OutputBuffers()
            view = read(buffer, into=slots)
            backend.fill(buffer, 9)
            assert bytes(view) == b"1234"
            slots.store([b"abcd"])
            assert bytes(backend.download(buffer)) == b"\t\t\t\t"
            backend.upload(buffer, b"1234")


def test_slots_that_were_read_from_one_buffer_share_no_memory() -> None:
    backend = ReferenceBackend()
    slots = OutputBuffers()
    with backend.allocate(12) as buffer:
        backend.upload(buffer, b"0123456789ab")
        first, second = backend.download_many([(buffer, 0, 8), (buffer, 4, 8)], into=slots)
        assert (bytes(first), bytes(second)) == (b"01234567", b"456789ab")
    assert [bytes(view) for view in slots.store([b"y" * 8, b"z" * 8])] == [b"y" * 8, b"z" * 8]


@pytest.mark.parametrize("asked", [b"bytes", 3, (1, 2), (3, 0, 1), ReadRange(b"bytes")])  # type: ignore[arg-type]
def test_ranges_of_other_things_are_told(asked: object) -> None:
    with pytest.raises(BadInputs, match="no range of a resident buffer"):
        ReferenceBackend().download_many([asked])  # type: ignore[list-item]
