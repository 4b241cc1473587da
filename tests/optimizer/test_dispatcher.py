"""The seam between the optimizer and whoever runs its programs: defaults, order, rollback, what stays resident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

import vyre
from vyre.conform import generate
from vyre.driver.optimizing import BackendDispatcher, optimize
from vyre.errors import BadInputs, DispatchFailed, UnsupportedFeature
from vyre.ir.program import Program
from vyre.optimizer.dispatcher import Bytes, OptimizerDispatcher, ResidentRange, ResidentStep, StaticBufferSet


class Noting(OptimizerDispatcher):
    """Keeps buffers in a dictionary, notes every call, and fails at the call it is told to."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.buffers: dict[int, bytearray] = {}
        self.calls: list[tuple[object, ...]] = []
        self.allocated = 90
        self.fail_at = fail_at

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if self.fail_at is not None and len(self.calls) > self.fail_at:
            self.fail_at = None
            raise DispatchFailed("injected.", "stop injecting.")

    def allocate(self, byte_len: int) -> int:
        self._note("allocate", byte_len)
        self.buffers[self.allocated] = bytearray(byte_len)
        self.allocated += 1
        return self.allocated - 1

    def upload(self, handle: int, data: Bytes) -> None:
        self._note("upload", handle, bytes(data))
        self.buffers[handle][: len(data)] = data

    def read_many(self, handles: Sequence[int]) -> list[bytes]:
        self._note("read_many", *handles)
        return [bytes(self.buffers[handle]) for handle in handles]

    def free(self, handle: int) -> None:
        self._note("free", handle)
        del self.buffers[handle]


def test_the_resident_half_refuses_by_default() -> None:
    bare = OptimizerDispatcher()
    assert not bare.supports_persistent()
    assert bare.device_feature_cache_key() == 0
    for call in (
        lambda: bare.allocate(4),
        lambda: bare.upload(1, b"x"),
        lambda: bare.read(1),
        lambda: bare.free(1),
        lambda: bare.dispatch_resident(ResidentStep(Program.empty(), ())),
    ):
        with pytest.raises(UnsupportedFeature, match="Fix:"):
            call()


def test_a_group_of_allocations_is_rolled_back_in_order() -> None:
    dispatcher = Noting(fail_at=2)
    with pytest.raises(DispatchFailed, match="injected"):
        dispatcher.allocate_many([4, 8, 12])
    assert dispatcher.calls == [("allocate", 4), ("allocate", 8), ("allocate", 12), ("free", 90), ("free", 91)]
    assert not dispatcher.buffers


def test_fills_come_before_uploads_and_uploads_before_reads() -> None:
    dispatcher = Noting()
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


def test_ranges_read_each_buffer_once_and_answer_in_order() -> None:
    dispatcher = Noting()
    dispatcher.buffers = {7: bytearray(range(32)), 9: bytearray(range(100, 132))}
    ranges = [ResidentRange(7, 4, 4), ResidentRange(9, 2, 3), ResidentRange(7, 12, 5)]
    assert dispatcher.read_ranges(ranges) == [bytes(range(4, 8)), bytes(range(102, 105)), bytes(range(12, 17))]
    assert dispatcher.calls == [("read_many", 7, 9)]


def test_many_ranges_keep_their_order() -> None:
    dispatcher = Noting()
    whole = {handle: bytes((byte + 17 * handle) % 256 for byte in range(64)) for handle in range(8)}
    dispatcher.buffers = {handle: bytearray(data) for handle, data in whole.items()}
    ranges = [ResidentRange((5 * i + i // 11) % 8, 7 * i % 48, i % 16 + 1) for i in range(2048)]
    answers = dispatcher.read_ranges(ranges)
    assert answers == [whole[r.handle][r.offset : r.offset + r.length] for r in ranges]
    assert len(dispatcher.calls) == 1
    assert len(dispatcher.calls[0]) == 9


@pytest.mark.parametrize("wanted", [ResidentRange(7, 30, 4), ResidentRange(7, -1, 2), ResidentRange(7, 0, 1 << 40)])
def test_a_range_outside_its_buffer_is_refused(wanted: ResidentRange) -> None:
    dispatcher = Noting()
    dispatcher.buffers = {7: bytearray(32)}
    with pytest.raises(BadInputs, match="of buffer 7, which has 32"):
        dispatcher.read_ranges([wanted])


def test_static_buffers_are_freed_when_an_upload_fails_and_when_released() -> None:
    dispatcher = Noting(fail_at=3)
    with pytest.raises(DispatchFailed):
        dispatcher.acquire_static("test", [b"abcd", b"ef"])
    assert not dispatcher.buffers
    held = Noting()
    buffers = held.acquire_static("test", [b"abcd", b"ef"])
    assert buffers == StaticBufferSet((90, 91), cache_hit=False, retained=False)
    held.release_static(StaticBufferSet(buffers.handles, cache_hit=True, retained=True))
    assert len(held.buffers) == 2
    held.release_static(buffers)
    assert not held.buffers


class PlainOnly(OptimizerDispatcher):
    """A backend without its resident half."""

    def __init__(self, backend: vyre.Backend) -> None:
        self.inner = BackendDispatcher(backend)

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: tuple[int, ...] | None = None) -> list[bytes]:
        return self.inner.dispatch(program, inputs, grid)


def test_the_plain_and_the_resident_path_give_the_same_program() -> None:
    backend = vyre.backend("cpu")
    plain, resident = PlainOnly(backend), BackendDispatcher(backend)
    for seed in range(12):
        program = generate(seed).program
        assert optimize(program, plain) == optimize(program, resident)


def test_a_program_seen_before_uploads_nothing_that_stays() -> None:
    dispatcher = BackendDispatcher(vyre.backend("cpu"))
    payloads = [np.arange(8, dtype=np.uint32).tobytes(), b"1234"]
    first, second = dispatcher.acquire_static("a", payloads), dispatcher.acquire_static("a", payloads)
    assert (first.cache_hit, second.cache_hit) == (False, True)
    assert first.handles == second.handles
    assert dispatcher.acquire_static("b", payloads).handles != first.handles
    assert dispatcher.acquire_static("a", payloads[::-1]).handles != first.handles


class FailingBackendDispatcher(BackendDispatcher):
    """Fails at one of the calls that the optimizer makes, and counts what is allocated."""

    def __init__(self, backend: vyre.Backend, fail_at: int) -> None:
        super().__init__(backend)
        self.calls = 0
        self.fail_at = fail_at

    def _count(self) -> None:
        self.calls += 1
        if self.calls == self.fail_at:
            raise DispatchFailed("injected.", "stop injecting.")

    def allocate(self, byte_len: int) -> int:
        self._count()
        return super().allocate(byte_len)

    def upload_many(self, uploads: Iterable[tuple[int, Bytes]]) -> None:
        self._count()
        super().upload_many(list(uploads))

    def run_sequence(self, *args: object, **options: object) -> list[bytes]:
        self._count()
        return super().run_sequence(*args, **options)  # type: ignore[arg-type]


def test_whatever_fails_nothing_stays_behind() -> None:
    program = generate(3).program
    clean = FailingBackendDispatcher(vyre.backend("cpu"), 0)
    wanted = optimize(program, clean)
    kept = len(clean._buffers)
    for call in range(1, clean.calls + 1):
        dispatcher = FailingBackendDispatcher(vyre.backend("cpu"), call)
        with pytest.raises(DispatchFailed, match="injected"):
            optimize(program, dispatcher)
        assert len(dispatcher._buffers) <= kept
        retained = {handle for held in dispatcher._static.values() for handle in held.handles}
        assert set(dispatcher._buffers) == retained, f"call {call} leaks"
        assert optimize(program, dispatcher) == wanted
