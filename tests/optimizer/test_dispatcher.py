"""Tests of the dispatcher seam: default operations, order of calls, rollback, and resident buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import vyre
from backends_for_tests import RecordingBackend
from vyre.conform import generate
from vyre.driver import telemetry
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.errors import BadInputs, DispatchFailed, UnsupportedFeature
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.optimizer.dispatcher import (
    Bytes,
    OptimizerDispatcher,
    ProgramSet,
    ResidentRange,
    ResidentStep,
    StaticBufferSet,
    whole_programs,
)
from vyre.optimizer.layout import RECORDS, WORDS
from vyre.semantics.types import DType


class RecordingDispatcher(OptimizerDispatcher):
    """Keeps buffers in a dictionary, records every call, and fails at a given call."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.buffers: dict[int, bytearray] = {}
        self.calls: list[tuple[object, ...]] = []
        self.allocated = 90
        self.fail_at = fail_at

    def _record(self, *call: object) -> None:
        self.calls.append(call)
        if self.fail_at is not None and len(self.calls) > self.fail_at:
            self.fail_at = None
            raise DispatchFailed("injected.", "stop injecting.")

    def allocate(self, byte_len: int) -> int:
        self._record("allocate", byte_len)
        self.buffers[self.allocated] = bytearray(byte_len)
        self.allocated += 1
        return self.allocated - 1

    def upload(self, handle: int, data: Bytes) -> None:
        self._record("upload", handle, bytes(data))
        self.buffers[handle][: len(data)] = data

    def read_many(self, handles: Sequence[int]) -> list[bytes]:
        self._record("read_many", *handles)
        return [bytes(self.buffers[handle]) for handle in handles]

    def free(self, handle: int) -> None:
        self._record("free", handle)
        del self.buffers[handle]


def test_resident_operations_are_unsupported_by_default() -> None:
    bare = OptimizerDispatcher()
    assert not bare.supports_persistent()
    assert bare.device_feature_cache_key() == 0
    for call in (
        lambda: bare.allocate(4),
        lambda: bare.upload(1, b"x"),
        lambda: bare.read(1),
        lambda: bare.free(1),
        lambda: bare.dispatch_resident(ResidentStep(Program.empty(), ())),
        lambda: bare.dispatch(Program.empty(), ()),
    ):
        with pytest.raises(UnsupportedFeature, match="Fix:"):
            call()


def test_failed_allocations_are_rolled_back_in_order() -> None:
    dispatcher = RecordingDispatcher(fail_at=2)
    with pytest.raises(DispatchFailed, match="injected"):
        dispatcher.allocate_many([4, 8, 12])
    assert dispatcher.calls == [("allocate", 4), ("allocate", 8), ("allocate", 12), ("free", 90), ("free", 91)]
    assert not dispatcher.buffers


def test_fills_come_before_uploads_and_uploads_before_reads() -> None:
    dispatcher = RecordingDispatcher()
    a, b, c = dispatcher.allocate_many([3, 2, 2])
    dispatcher.calls.clear()
    read = dispatcher.run_sequence(
        [], [ResidentRange(c, 0, 2)], fills=[(a, 3, 0x11), (b, 2, 0x22)], uploads=[(c, b"\xa5\x5a")]
    )
    assert read == [b"\xa5\x5a"]
    assert dispatcher.calls == [
        ("upload", a, b"\x11\x11\x11"),
        ("upload", b, b"\x22\x22"),
        ("upload", c, b"\xa5\x5a"),
        ("read_many", c),
    ]


def test_ranges_read_each_buffer_once_and_keep_their_order() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.buffers = {7: bytearray(range(32)), 9: bytearray(range(100, 132))}
    ranges = [ResidentRange(7, 4, 4), ResidentRange(9, 2, 3), ResidentRange(7, 12, 5)]
    assert dispatcher.read_ranges(ranges) == [bytes(range(4, 8)), bytes(range(102, 105)), bytes(range(12, 17))]
    assert dispatcher.calls == [("read_many", 7, 9)]


def test_a_range_without_a_length_reads_the_rest_of_its_buffer() -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.buffers = {7: bytearray(range(8))}
    assert dispatcher.read_ranges([ResidentRange(7), ResidentRange(7, 5)]) == [bytes(range(8)), bytes(range(5, 8))]


@pytest.mark.parametrize("slots", [0, 1, 2, 5])
def test_ranges_are_stored_in_the_callers_slots(slots: int) -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.buffers = {7: bytearray(range(32)), 9: bytearray(range(100, 132))}
    into = [bytearray(b"before") for _ in range(slots)]
    kept = into[:2]
    ranges = [ResidentRange(7, 4, 4), ResidentRange(9, 2, 9)]
    for stored in (dispatcher.read_ranges(ranges, into), dispatcher.run_sequence([], ranges, into=into)):
        assert stored is into
        assert into == [bytes(range(4, 8)), bytes(range(102, 111))]
        assert all(slot is old for slot, old in zip(into, kept, strict=False)), "slots are reused"


def test_a_backends_ranges_are_stored_in_the_callers_slots() -> None:
    dispatcher = BackendDispatcher(vyre.backend("cpu"))
    with dispatcher.held({"a": 16, "b": 8}) as held:
        into = [bytearray(1)]
        uploads = [(held["a"], bytes(range(16))), (held["b"], bytes(8))]
        ranges = [ResidentRange(held["b"]), ResidentRange(held["a"], 3, 2)]
        assert dispatcher.run_sequence([], ranges, uploads=uploads, into=into) is into
        assert into == [bytes(8), bytes([3, 4])]


def test_many_ranges_keep_their_order() -> None:
    dispatcher = RecordingDispatcher()
    whole = {handle: bytes((byte + 17 * handle) % 256 for byte in range(64)) for handle in range(8)}
    dispatcher.buffers = {handle: bytearray(data) for handle, data in whole.items()}
    ranges = [ResidentRange((5 * i + i // 11) % 8, 7 * i % 48, i % 16 + 1) for i in range(2048)]
    read = dispatcher.read_ranges(ranges)
    assert read == [whole[r.handle][r.offset : r.offset + r.length] for r in ranges]
    assert len(dispatcher.calls) == 1
    assert len(dispatcher.calls[0]) == 9


@pytest.mark.parametrize("wanted", [ResidentRange(7, 30, 4), ResidentRange(7, -1, 2), ResidentRange(7, 0, 1 << 40)])
def test_a_range_outside_its_buffer_is_refused(wanted: ResidentRange) -> None:
    dispatcher = RecordingDispatcher()
    dispatcher.buffers = {7: bytearray(32)}
    with pytest.raises(BadInputs, match="of buffer 7, which has 32"):
        dispatcher.read_ranges([wanted])


def test_static_buffers_are_freed_when_an_upload_fails_and_when_released() -> None:
    dispatcher = RecordingDispatcher(fail_at=3)
    with pytest.raises(DispatchFailed):
        dispatcher.acquire_static("test", [b"abcd", b"ef"])
    assert not dispatcher.buffers
    held = RecordingDispatcher()
    buffers = held.acquire_static("test", [b"abcd", b"ef"])
    assert buffers == StaticBufferSet((90, 91), cache_hit=False, retained=False)
    held.release_static(StaticBufferSet(buffers.handles, cache_hit=True, retained=True))
    assert len(held.buffers) == 2
    held.release_static(buffers)
    assert not held.buffers


class PlainOnly(OptimizerDispatcher):
    """A dispatcher without resident buffers."""

    def __init__(self, backend: vyre.Backend) -> None:
        self.inner = BackendDispatcher(backend)

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: tuple[int, ...] | None = None) -> list[bytes]:
        return self.inner.dispatch(program, inputs, grid)


def test_dispatchers_with_and_without_resident_buffers_give_the_same_program() -> None:
    backend = vyre.backend("cpu")
    plain, resident = PlainOnly(backend), BackendDispatcher(backend)
    for seed in range(12):
        program = generate(seed).program
        assert optimize(program, plain) == optimize(program, resident)


def test_static_buffers_are_uploaded_once() -> None:
    dispatcher = BackendDispatcher(vyre.backend("cpu"))
    payloads = [np.arange(8, dtype=np.uint32).tobytes(), b"1234"]
    first, second = dispatcher.acquire_static("a", payloads), dispatcher.acquire_static("a", payloads)
    assert (first.cache_hit, second.cache_hit) == (False, True)
    assert first.handles == second.handles
    assert dispatcher.acquire_static("b", payloads).handles != first.handles
    assert dispatcher.acquire_static("a", payloads[::-1]).handles != first.handles


def test_static_buffers_in_use_are_not_evicted() -> None:
    dispatcher = BackendDispatcher(vyre.backend("cpu"), most_retained=64)
    held = dispatcher.acquire_static("a", [bytes(16)])
    others = [dispatcher.acquire_static("b", [bytes([k]) * 16]) for k in range(6)]
    for one in others:
        dispatcher.release_static(one)
    assert dispatcher.read(held.handles[0]) == bytes(16)
    assert sum(buffer.byte_len for buffer in dispatcher._buffers.values()) <= 64
    dispatcher.release_static(held)
    assert dispatcher.acquire_static("a", [bytes(16)]).cache_hit


def test_a_program_without_statements_is_dispatched_by_name() -> None:
    """The cpu backend has compiled code for the kernels; dispatching one without statements runs it."""
    dispatcher = BackendDispatcher(vyre.backend("cpu"))
    pack = dispatcher.programs().pack
    assert pack.entry == ()
    records, fields = np.zeros((2, WORDS["records"]), np.uint32), RECORDS["records"]
    for name, column in {"live": [1, 0], "place": [5, 6], "uses": [1, 2]}.items():
        records[:, fields.index(name)] = column
    columns = [np.zeros(2, np.uint32) for _ in pack.output_buffers()]
    outputs = dispatcher.dispatch(pack, [records.tobytes(), *(column.tobytes() for column in columns)], (1,))
    assert np.frombuffer(outputs[-1], np.uint32).tolist() == [5 << 2 | 1, 6 << 2 | 2]


OPERATIONS = (
    "programs", "supports_persistent", "acquire_static", "allocate", "allocate_many", "upload", "upload_many",
    "run_sequence", "dispatch_sequence", "read_ranges", "free", "free_many", "release_static", "dispatch",
)  # fmt: skip


class Failing(BackendDispatcher):
    """Fails at the call with a given number, counting the dispatcher's calls to itself.

    Operations that free buffers fail after freeing them, so that the failure does not hide a leak.
    """

    def __init__(self, backend: vyre.Backend, fail_at: int = -1) -> None:
        super().__init__(backend, most_retained=0)
        self.names: list[str] = []
        self.fail_at = fail_at


def _counted(name: str) -> Any:
    inner = getattr(BackendDispatcher, name)

    def call(self: Failing, *arguments: Any, **options: Any) -> Any:
        self.names.append(name)
        fails = len(self.names) - 1 == self.fail_at
        if fails and "free" not in name and name != "release_static":
            raise DispatchFailed(f"injected in {name}.", "stop injecting.")
        result = inner(self, *arguments, **options)
        if fails:
            raise DispatchFailed(f"injected in {name}.", "stop injecting.")
        return result

    return call


for _name in OPERATIONS:
    setattr(Failing, _name, _counted(_name))


class FailingWithoutResident(Failing):
    """The same without resident buffers."""

    def supports_persistent(self) -> bool:
        return False

    def programs(self) -> ProgramSet:
        return whole_programs()


@pytest.mark.parametrize("kind", [Failing, FailingWithoutResident])
def test_a_failure_of_any_call_is_raised_and_leaks_nothing(kind: type[Failing]) -> None:
    backend = vyre.backend("cpu")
    program = generate(3).program
    clean = kind(backend)
    wanted = optimize(program, clean)
    not_called = {"dispatch", "dispatch_sequence", "read_ranges", "upload"}
    expected = {"dispatch"} if kind is FailingWithoutResident else set(OPERATIONS) - not_called
    assert set(clean.names) >= expected
    before = telemetry.snapshot().resident_buffers
    for call, name in enumerate(clean.names):
        dispatcher = kind(backend, call)
        with pytest.raises(DispatchFailed, match=f"injected in {name}"):
            optimize(program, dispatcher)
        assert dispatcher._buffers == {}, f"call {call}, of {name}, leaks"
        assert telemetry.snapshot().resident_buffers == before
        assert optimize(program, dispatcher) == wanted


def test_the_host_synchronizes_once_per_round() -> None:
    """Also for a long program; without resident buffers, after every kernel."""
    backend = vyre.backend("cpu")
    long: list[n.Stmt] = [n.Let(f"v{number}", b.gid() + number) for number in range(600)]
    more = [n.Store("a", n.Var("v3"), n.Var("v4")), n.Barrier(), *(n.Let(f"w{k}", b.gid() * k) for k in range(700))]
    buffers = [BufferDecl.read_write("a", 0, DType.U32)]
    for body in (long[:9] + more[:2], long, long + more):
        program = Program.new(buffers, 1, body)
        for dispatcher, waits in ((BackendDispatcher(backend), 1), (FailingWithoutResident(backend), 5)):
            report = optimize(program, dispatcher, report=True)[1]
            assert report.synchronisations == report.rounds * waits


def test_a_failure_of_any_backend_operation_leaks_nothing() -> None:
    program = generate(3).program
    # A failing first compilation; the dispatchers after it have compiled kernels.
    backend = RecordingBackend(vyre.backend("cpu"), {("compile", 0)})
    with pytest.raises(DispatchFailed, match="injected failure of compile number 0"):
        optimize(program, BackendDispatcher(backend, most_retained=0))
    assert backend.leaked() == []
    dispatcher = BackendDispatcher(backend, most_retained=0)
    wanted = optimize(program, dispatcher)
    assert backend.leaked() == []
    backend.calls.clear()
    assert optimize(program, dispatcher) == wanted
    before = telemetry.snapshot().resident_buffers
    calls = [(name, number) for name, count in backend.counts.items() for number in range(count)]
    assert {name for name, _ in calls} >= {"allocate", "write", "launch", "read", "free"}
    for name, number in calls:
        assert backend.leaked() == []
        backend.calls.clear()
        backend.device.fail_at = {(name, number)}
        with pytest.raises(DispatchFailed, match=f"injected failure of {name} number {number}"):
            optimize(program, dispatcher)
        assert telemetry.snapshot().resident_buffers == before, f"{name} {number} leaks"
        assert dispatcher._buffers == {}, f"{name} {number} leaks"
        assert backend.leaked() == [], f"{name} {number} leaks"
        assert optimize(program, dispatcher) == wanted
