"""What happens when something fails on the way: nothing leaks, the caller's data is untouched, both errors are told."""

from __future__ import annotations

import numpy as np
import pytest

from backends_for_tests import RecordingBackend
from vyre.backends.reference import ReferenceBackend
from vyre.driver import routes, telemetry
from vyre.driver.config import DispatchConfig
from vyre.driver.outputs import OutputBuffers
from vyre.driver.resident import allocated
from vyre.errors import DispatchFailed
from vyre.ir import parse
from vyre.ir.program import Program

STRAIGHT = parse("""
program straight(workgroup 2) {
  buffer 0 a: u32[4] readwrite
  buffer 1 out: u32[4] output
  let x = a[gid.x]
  a[gid.x] = 0
  grid_sync
  out[gid.x] = x
  grid_sync
  a[gid.x] = out[3 - gid.x]
}""")
DRIVEN = parse("""
program driven(workgroup 2) {
  buffer 0 a: u32[4] readwrite
  buffer 1 out: u32[4] output
  buffer 2 tile: u32[2] workgroup
  tile[lid.x] = a[gid.x]
  for k in 0 .. 2 {
    if gid.x == k { trap(k, "ask") }
    resume("ask")
    if gid.x == 3 { return }
    grid_sync
    out[gid.x] = out[gid.x] + tile[1 - lid.x]
  }
}""")


def run(backend: RecordingBackend, program: object, route: str, iterations: int | None = None) -> OutputBuffers:
    into = OutputBuffers([bytearray(b"\x11" * 16), bytearray(b"\x22" * 16)])
    data = np.arange(4, dtype="<u4")
    config = DispatchConfig(fixpoint_iterations=iterations, handlers={"ask": lambda _requests, _buffers: None})
    try:
        routes.dispatch(backend, program, [data], config, into=into, route=route)  # type: ignore[arg-type]
    except BaseException:
        assert [bytes(slot) for slot in into] == [b"\x11" * 16, b"\x22" * 16]
        raise
    finally:
        assert data.tolist() == [0, 1, 2, 3]
    backend.scratch.clear()
    return into


@pytest.mark.parametrize("program", [STRAIGHT, DRIVEN], ids=["straight", "driven"])
@pytest.mark.parametrize("iterations", [None, 2])
@pytest.mark.parametrize("route", ["host", "resident"])
def test_a_failure_of_any_call_leaves_nothing_behind(program: object, route: str, iterations: int | None) -> None:
    def backend(*fail_at: tuple[str, int]) -> RecordingBackend:
        return RecordingBackend(ReferenceBackend(grid_sync=False, resident=route == "resident", poison=0xA5), fail_at)

    before = telemetry.snapshot()
    whole = backend()
    run(whole, program, route, iterations)
    numbered = [(name, number) for name, count in whole.counts.items() for number in range(count)]
    assert len(numbered) > 2
    for call in numbered:
        faulty = backend(call)
        with pytest.raises(DispatchFailed, match=f"injected failure of {call[0]} number {call[1]}"):
            run(faulty, program, route, iterations)
        after = telemetry.snapshot()
        assert (after.resident_buffers, after.resident_bytes) == (before.resident_buffers, before.resident_bytes), call
        assert faulty.leaked() == [], call


@pytest.mark.parametrize("program", [STRAIGHT, DRIVEN], ids=["straight", "driven"])
def test_what_is_hidden_beside_the_callers_buffers_is_freed(program: Program) -> None:
    config = DispatchConfig(handlers={"ask": lambda _requests, _buffers: None})

    def run_on_own(*fail_at: tuple[str, int]) -> RecordingBackend:
        backend = RecordingBackend(ReferenceBackend(grid_sync=False, poison=0xA5))
        with allocated(backend, [16, 16]) as own:
            backend.upload(own[0], np.arange(4, dtype="<u4"))
            backend.calls.clear()
            backend.device.fail_at = set(fail_at)
            before = telemetry.snapshot().resident_bytes
            try:
                routes.dispatch_resident_with_grid_sync_split_timed(backend, program, own, config)
                backend.scratch.clear()
            except DispatchFailed:
                assert backend.leaked() == [16, 16]
                raise
            finally:
                assert telemetry.snapshot().resident_bytes == before
                assert not any(buffer.is_freed for buffer in own)
                recorded = list(backend.calls)
        backend.calls[:] = recorded
        return backend

    whole = run_on_own()
    # The hidden memory, and then the caller's two buffers.
    assert whole.counts["allocate"] == whole.counts["free"] == len(whole.freed) - 2 > 0
    for call in [(name, number) for name, count in whole.counts.items() for number in range(count)]:
        with pytest.raises(DispatchFailed, match=f"injected failure of {call[0]} number {call[1]}"):
            run_on_own(call)


def test_a_failing_free_after_a_failure_is_told_too() -> None:
    for fault, free in ((("allocate", 2), 1), (("write", 0), 0), (("launch", 1), 2)):
        before = telemetry.snapshot()
        backend = RecordingBackend(ReferenceBackend(grid_sync=False), {fault, ("free", free)})
        with pytest.raises(DispatchFailed) as caught:
            run(backend, STRAIGHT, "resident")
        assert f"failure of {fault[0]}" in caught.value.message
        assert "injected failure of free" in str(caught.value)
        assert telemetry.snapshot().resident_buffers == before.resident_buffers
        assert backend.leaked() == []


def test_a_handler_that_fails_frees_everything() -> None:
    def fail(_requests: object, _buffers: object) -> None:
        raise ZeroDivisionError("in the handler")

    before = telemetry.snapshot()
    for route in ("host", "resident"):
        backend = ReferenceBackend(grid_sync=False, resident=route == "resident")
        config = DispatchConfig(handlers={"ask": fail})
        with pytest.raises(ZeroDivisionError, match="in the handler"):
            routes.dispatch(backend, DRIVEN, [np.arange(4, dtype="<u4")], config, route=route)  # type: ignore[arg-type]
    assert telemetry.snapshot().resident_buffers == before.resident_buffers
