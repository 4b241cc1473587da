"""Every operation of resident work fails once: nothing leaks, slots stay, and every error is told."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest

from backends_for_tests import PRIMITIVES, RecordingBackend, double, increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import DispatchConfig, OutputBuffers, Step, Unchanged, telemetry
from vyre.driver.resident import allocated
from vyre.errors import DispatchFailed

DATA = np.array([1, 2, 3], np.uint32)
OLD = [b"what was", b"there before"]


def work(backend: RecordingBackend, into: OutputBuffers) -> None:
    """Uses every primitive of the contract at least once, most of them several times."""
    backend.dispatch(increment(), [DATA], DispatchConfig(fixpoint_iterations=2))
    with allocated(backend, [12, 12, 4]) as (a, out, extra):
        backend.upload(a, DATA)
        backend.fill(out, 0)
        backend.upload_many([(extra, 0, b"1234"), (a, 0, DATA)], fills=[(extra, 0, 4, 9)])
        backend.run_sequence(
            [Step(double(), [a, out])],
            repeat=[Step(increment(9), [out])],
            times=20,
            until=Unchanged([out]),
            reads=[out, extra],
            into=into,
        )
    backend.scratch.clear()


def fresh_slots() -> OutputBuffers:
    slots = OutputBuffers()
    slots.store(OLD)
    return slots


def faults() -> Iterator[tuple[str, int]]:
    """Every call that the work makes."""
    backend = RecordingBackend()
    work(backend, fresh_slots())
    for name, times in backend.counts.items():
        yield from ((name, number) for number in range(times))


FAULTS = list(faults())


def test_the_work_uses_every_primitive_and_ends_well() -> None:
    assert {name for name, _ in FAULTS} == set(PRIMITIVES)
    slots = fresh_slots()
    work(RecordingBackend(), slots)
    assert [np.frombuffer(slots[0], np.uint32).tolist(), bytes(slots[1])] == [[9, 9, 9], b"1234"]


@pytest.mark.parametrize(("name", "number"), FAULTS, ids=lambda value: str(value))
def test_a_failing_call_leaks_nothing_and_changes_no_slot(name: str, number: int) -> None:
    before = telemetry.snapshot()
    backend = RecordingBackend(fail_at=[(name, number)])
    slots = fresh_slots()
    with pytest.raises(DispatchFailed, match=f"injected failure of {name} number {number}"):
        work(backend, slots)
    after = telemetry.snapshot()
    assert after.resident_buffers == before.resident_buffers
    assert after.resident_bytes == before.resident_bytes
    assert backend.leaked() == []
    # The work is done, and its results delivered, before anything is freed.
    if name != "free":
        assert [bytes(view) for view in slots] == OLD


@pytest.mark.parametrize(("name", "number"), [fault for fault in FAULTS if fault[0] != "free"])
def test_a_failure_and_a_failing_cleanup_are_both_told(name: str, number: int) -> None:
    before = telemetry.snapshot().resident_bytes
    backend = RecordingBackend(fail_at=[(name, number), *(("free", k) for k in range(9))])
    # Nothing is held when the first program is compiled and when memory for it, or the first buffer, is asked for.
    if (name, number) in (("compile", 0), ("allocate", 0), ("allocate", 1)):
        with pytest.raises(DispatchFailed) as caught:
            work(backend, fresh_slots())
        assert caught.value.cleanup_errors == ()
        return
    with pytest.raises(DispatchFailed) as caught:
        work(backend, fresh_slots())
    assert f"failure of {name} number {number}" in caught.value.message
    assert "failure of free number 0" in str(caught.value)
    assert telemetry.snapshot().resident_bytes == before


def test_a_backend_goes_on_working_after_each_fault() -> None:
    shared = ReferenceBackend(poison=0xA5)
    for name, number in FAULTS:
        with pytest.raises(DispatchFailed):
            work(RecordingBackend(shared, fail_at=[(name, number)]), fresh_slots())
    slots = fresh_slots()
    work(RecordingBackend(shared), slots)
    assert bytes(slots[1]) == b"1234"


def test_freeing_goes_on_after_the_first_free_that_fails() -> None:
    for fail in count():
        backend = RecordingBackend(fail_at=[("free", fail)])
        if fail == 4:
            work(backend, fresh_slots())
            break
        with pytest.raises(DispatchFailed, match=f"free number {fail}"):
            work(backend, fresh_slots())
        # The last is what the dispatch borrowed, of which the first three failures say nothing.
        assert backend.freed == [12, 12, 4, *([256] if fail == 3 else [])]
