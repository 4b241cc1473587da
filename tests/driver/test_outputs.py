"""Output slots keep their memory, and say what became of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends_for_tests import FixedDevice
from vyre.driver import Backend, DeviceProfile, OutputBuffers, OutputStats, telemetry
from vyre.driver.profile import EVERY_TYPE
from vyre.errors import BadInputs
from vyre.ir import parse


def test_a_slot_that_is_large_enough_keeps_its_memory() -> None:
    room = bytearray(8)
    slots = OutputBuffers([room])
    (stored,) = slots.store([b"abc"])
    assert stored == b"abc"
    assert stored.obj is room
    assert slots.stats == OutputStats(reused=1)
    assert slots.capacities == [8]


def test_small_slots_are_replaced_missing_ones_added_and_others_dropped() -> None:
    slots = OutputBuffers([bytearray(1), bytearray(9)])
    slots.store([b"ab", b"c", b"d"])
    assert slots.stats == OutputStats(reused=1, moved=1, appended=1)
    slots.store([b"x"])
    assert [bytes(view) for view in slots] == [b"x"]
    assert slots.stats == OutputStats(reused=1)
    assert slots.capacities == [2]


def test_numpy_arrays_can_be_slots() -> None:
    array = np.zeros((2, 2), np.uint32)
    OutputBuffers([array]).store([np.arange(4, dtype=np.uint32)])
    assert array.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("slot", [b"read-only", np.zeros((4, 4), np.uint8)[:, 1]])
def test_slots_that_cannot_be_written_are_refused(slot: object) -> None:
    with pytest.raises(BadInputs, match="slot 0"):
        OutputBuffers([slot])


def test_a_result_that_is_no_buffer_leaves_the_slots_alone() -> None:
    slots = OutputBuffers()
    slots.store([b"old"])
    with pytest.raises(BadInputs, match="a int has no bytes"):
        slots.store([b"new", 3])
    assert [bytes(view) for view in slots] == [b"old"]


@given(st.lists(st.lists(st.binary(max_size=40), max_size=5), max_size=6))
def test_whatever_is_stored_is_what_the_slots_hold(rounds: list[list[bytes]]) -> None:
    slots = OutputBuffers()
    for results in rounds:
        capacities = slots.capacities
        stored = slots.store(results)
        assert [bytes(view) for view in stored] == results == [bytes(view) for view in slots]
        fits = sum(len(r) <= c for r, c in zip(results, capacities, strict=False))
        assert slots.stats.reused == fits
        assert slots.stats.reused + slots.stats.moved + slots.stats.appended == len(results)


class BytesDevice(FixedDevice):
    """A fixed device that has every type."""

    profile = DeviceProfile(backend="bytes", dtypes=EVERY_TYPE)


def test_a_dispatch_into_slots_is_counted() -> None:
    before = telemetry.snapshot()
    slots = OutputBuffers.with_sizes([4, 1, 1])
    program = parse("""
    program three(workgroup 1) {
      buffer 0 a: u8[3] read
      buffer 1 x: u8[2] output
      buffer 2 y: u8[2] output
      buffer 3 z: u8[2] output bytes 2..2
    }""")
    Backend(BytesDevice(b"\1\2", b"\3\4", b"")).dispatch(program, [bytes([9, 8, 7])], into=slots)
    assert [bytes(view) for view in slots] == [b"\1\2", b"\3\4", b""]
    after = telemetry.snapshot()
    assert after.launches == before.launches + 1
    assert after.input_bytes == before.input_bytes + 3
    assert after.output_bytes == before.output_bytes + 4
    assert after.output_slots == before.output_slots + 3
    assert after.output_slots_reused == before.output_slots_reused + 2
    assert after.output_slots_moved == before.output_slots_moved + 1
    assert after.output_slots_appended == before.output_slots_appended


def test_slots_share_no_memory() -> None:
    memory, words = bytearray(16), np.zeros(4, np.uint32)
    for slots in ([memory, memory], [b := bytearray(1), memory, memoryview(memory)[4:]], [words[1:3], words[2:]]):
        with pytest.raises(BadInputs, match=r"output slots \d and \d share memory.*Fix: give each slot"):
            OutputBuffers(slots)
    view = memoryview(memory)
    assert len(OutputBuffers([view[8:], view[:8], b, words[:2], words[2:], view[4:4], view[4:4]])) == 7


def test_a_slot_has_a_size() -> None:
    with pytest.raises(BadInputs, match="a slot cannot have -1 bytes"):
        OutputBuffers.with_sizes([4, -1])
