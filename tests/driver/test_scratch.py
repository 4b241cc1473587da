"""Scratch memory: borrowed for a run, kept within a bound, given out again in the same places, freed on failure."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from backends_for_tests import RecordingBackend, RecordingDevice, double
from vyre.driver.scratch import Scratch
from vyre.errors import DispatchFailed

BOUND = 256 << 20


def test_the_same_sizes_get_the_same_memory_in_the_same_places() -> None:
    scratch = Scratch(RecordingDevice())
    sizes = [100, 100, 5000, 1, 100]
    with scratch.borrowed(sizes) as first:
        given = list(first)
    assert [len(one) >= size for one, size in zip(given, sizes, strict=True)] == [True] * 5
    assert len({*map(id, given)}) == 5
    for _ in range(3):
        with scratch.borrowed(sizes) as again:
            assert [*map(id, again)] == [*map(id, given)]


def test_a_run_may_exchange_the_entries_of_its_list() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    with scratch.borrowed([300, 300]) as memory:
        memory[0], memory[1] = memory[1], memory[0]
    with scratch.borrowed([300, 300]) as memory:
        assert memory[0] is not memory[1]
    assert device.counts["allocate"] == 2


def test_nested_borrowers_share_nothing() -> None:
    scratch = Scratch(RecordingDevice())
    with scratch.borrowed([64]) as (outer,), scratch.borrowed([64]) as (inner,):
        assert outer is not inner


def test_no_more_is_kept_than_the_bound() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    half = BOUND // 2
    with scratch.borrowed([half] * 3):
        assert sum(device.live) == 3 * half
    assert sum(device.live) == BOUND
    with scratch.borrowed([BOUND + 1]):
        pass
    assert sum(device.live) == BOUND
    scratch.clear()
    assert device.live == []
    assert device.counts["allocate"] == device.counts["free"] == 4


def test_other_sizes_push_nothing_past_the_bound() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    for megabytes in range(1, 40):
        with scratch.borrowed([megabytes << 20]):
            pass
        assert sum(device.live) <= BOUND
    scratch.clear()
    assert device.live == []


def test_sizes_that_are_used_take_the_place_of_those_that_are_not() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    with scratch.borrowed([BOUND]):
        pass
    for _ in range(3):
        with scratch.borrowed([1 << 20, 4096]):
            pass
    assert device.counts["allocate"] == 3
    assert sum(device.live) == (1 << 20) + 4096


def test_what_a_failed_run_used_is_freed() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    with pytest.raises(KeyboardInterrupt), scratch.borrowed([10, 20]):
        raise KeyboardInterrupt
    assert device.live == []
    with scratch.borrowed([10]):
        pass
    with pytest.raises(ZeroDivisionError), scratch.borrowed([10]):
        raise ZeroDivisionError
    assert (device.live, device.counts["allocate"]) == ([], 3)


def test_an_allocation_that_fails_frees_those_before_it() -> None:
    device = RecordingDevice(fail_at=[("allocate", 2)])
    with pytest.raises(DispatchFailed, match="allocate number 2"), Scratch(device).borrowed([1, 2, 3]):
        raise AssertionError
    assert (device.live, len(device.freed)) == ([], 2)


def test_a_lost_device_is_asked_to_free_nothing() -> None:
    device = RecordingDevice()
    scratch = Scratch(device)
    with scratch.borrowed([10]):
        pass
    scratch.forget()
    scratch.clear()
    assert device.counts["free"] == 0
    with scratch.borrowed([10]):
        assert device.counts["allocate"] == 2


def test_dispatches_of_many_threads_share_none_at_once_and_leak_none() -> None:
    backend = RecordingBackend()
    executable = backend.compile(double())
    start = threading.Barrier(8)
    results: list[bool] = []

    def work(number: int) -> None:
        start.wait()
        data = np.full(50, number, np.uint32)
        outputs = [executable.dispatch([data])[0] for _ in range(20)]
        results.extend(bytes(one) == (2 * data).tobytes() for one in outputs)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 160
    # At most what eight had at once: an input and an output each.
    assert len(backend.live) <= 16
    assert backend.leaked() == []
