"""Data that stays on the device: bytes at any offset, sequences in one submission, fixpoints without the host."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from backends_for_tests import double, increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import OutputBuffers, Step, Unchanged, Zero, telemetry
from vyre.driver.config import DispatchConfig
from vyre.driver.resident import ResidentBuffer
from vyre.errors import BadInputs, UnsupportedFeature, VyreError
from vyre.ir import parse
from vyre.ir.program import Program
from webgpu_support import backend

STEPS_DOWN = """
program down(workgroup 4) {
  buffer 0 left: u32[] readwrite
  if left[gid.x] > 0 { left[gid.x] = left[gid.x] - 1 }
}
"""


def words(*values: int) -> np.ndarray:
    return np.array(values, "<u4")


def resident(data: np.ndarray) -> ResidentBuffer:
    buffer = backend().allocate(data.nbytes)
    backend().upload(buffer, data)
    return buffer


def content(buffer: ResidentBuffer) -> list[int]:
    return np.frombuffer(backend().download(buffer), "<u4").tolist()


@pytest.mark.parametrize(("size", "window"), [*((n, 0) for n in (1, 2, 3, 5, 8, 33, 1000)), (1500, 512), (1537, 256)])
def test_uploads_fills_and_downloads_at_any_byte(size: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a mirror on the host; a second buffer beside it must stay as it is. Some are longer than a binding."""
    on, random = backend(), Random(size)
    if window:
        monkeypatch.setattr(on.gpu, "binding_bytes", window)
    with on.allocate(size) as buffer, on.allocate(size) as other:
        mirror = bytearray(random.randbytes(size))
        on.upload_many([(buffer, 0, mirror), (other, 0, bytes(size))])
        for _ in range(60):
            start = random.randrange(size)
            stop = random.randint(start, size)
            match random.randrange(4):
                case 0:
                    value = random.randrange(256)
                    on.fill(buffer, value, start, stop - start)
                    mirror[start:stop] = bytes([value]) * (stop - start)
                case 1:
                    data = random.randbytes(stop - start)
                    on.upload(buffer, data, start)
                    mirror[start:stop] = data
                case 2:
                    assert on.download(buffer, start, stop - start) == mirror[start:stop]
                case _:
                    into = OutputBuffers()
                    ranges = [(buffer, start, stop - start), (other, 0, None), (buffer, 0, None)]
                    views = on.download_many(ranges, into=into)
                    assert list(map(bytes, views)) == [mirror[start:stop], bytes(size), bytes(mirror)]
        assert on.download(buffer) == mirror
        assert on.download(other) == bytes(size)


@pytest.mark.parametrize("place", [0, 127, 128, 255, 256, 374])
def test_a_change_anywhere_in_a_buffer_longer_than_a_binding_is_seen(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = backend()
    monkeypatch.setattr(on.gpu, "binding_bytes", 512)
    text = """
    program down(workgroup 1) {
      buffer 0 left: u32[125] readwrite
      if left[0] > 0 { left[0] = left[0] - 1 }
    }
    """
    start = np.zeros(375, "<u4")
    start[place] = 5
    with resident(start) as data, resident(words(3, *[0] * 124)) as left:
        step = Step(parse(text), [left], grid_override=(1,))
        result = on.run_sequence(repeat=[step], times=9, until=Unchanged([data, left]))
        assert (result.passes, result.converged) == (4, True)
        assert not on.run_sequence(repeat=[step], times=2, until=Zero(data)).converged
        on.upload(data, words(0), 4 * place)
        assert on.run_sequence(repeat=[step], times=2, until=Zero(data)).passes == 1


def test_buffers_as_long_as_a_binding_run_and_longer_ones_are_refused() -> None:
    on, most = backend(), backend().gpu.binding_bytes
    if most > 1 << 28:
        pytest.skip("the memory is better used by others")
    last = parse("program last(workgroup 1) { buffer 0 a: u32[] readwrite\n a[len(a) - 1] = len(a) }")
    first = parse("program first(workgroup 1) { buffer 0 a: u32[4] readwrite\n a[3] = 9 }")
    config = DispatchConfig(grid_override=(1,))
    with on.allocate(most) as whole, on.allocate(most + 4) as longer:
        on.dispatch_resident(last, [whole], config)
        assert np.frombuffer(on.download(whole, most - 4), "<u4").tolist() == [most // 4]
        before = on.metrics()["submissions"]
        with pytest.raises(UnsupportedFeature, match=rf"buffer 'a' \(this adapter binds {most:,} at most\)") as caught:
            on.dispatch_resident(last, [longer], config)
        assert "Fix: work on smaller pieces" in str(caught.value)
        assert on.metrics()["submissions"] == before
        # What a program does not bind may be as long as it likes, and is filled to its end.
        on.fill(longer, 7)
        on.dispatch_resident(first, [longer], config)
        ranges = [(longer, 8, 8), (longer, most - 4, 8)]
        assert list(map(bytes, on.download_many(ranges))) == [b"\7\7\7\7\t\0\0\0", b"\7" * 8]


def test_a_batch_of_downloads_waits_once() -> None:
    on = backend()
    buffers = [resident(words(k, k + 1)) for k in range(20)]
    before = on.metrics()["readbacks"]
    views = on.download_many(buffers)
    assert on.metrics()["readbacks"] == before + 1
    assert [np.frombuffer(view, "<u4").tolist() for view in views] == [[k, k + 1] for k in range(20)]
    for buffer in buffers:
        on.free(buffer)


def test_a_thousand_steps_are_one_submission() -> None:
    on, program = backend(), increment()
    with resident(words(1, 2, 3, 4, 5)) as state:
        steps = [Step(program, [state])] * 1000
        on.run_sequence(steps[:1])
        before = on.metrics()
        result = on.run_sequence(steps, reads=[state])
        after = on.metrics()
    assert np.frombuffer(result.outputs[0], "<u4").tolist() == [1002, 1003, 1004, 1005, 1006]
    assert after["submissions"] - before["submissions"] == 1
    assert after["readbacks"] - before["readbacks"] == 1
    assert result.timings.device_ns is None or result.timings.device_ns > 0


def test_a_repeated_sequence_prepares_nothing_again() -> None:
    on = backend()
    with resident(words(0)) as state, resident(words(0)) as twice:
        repeat = [Step(increment(), [state]), Step(double(), [state, twice])]
        sequence = on.prepare_sequence(repeat=repeat, times=3000, reads=[state, twice])
        first = sequence.run()
        before = on.gpu.binding_stats(), telemetry.snapshot().compile_misses
        second = sequence.run()
        assert (on.gpu.binding_stats(), telemetry.snapshot().compile_misses) == before
        assert (first.passes, first.converged) == (3000, None)
        assert [np.frombuffer(view, "<u4")[0] for view in (*first.outputs, *second.outputs)] == [
            3000,
            6000,
            6000,
            12000,
        ]


@pytest.mark.parametrize("limit", [0, 1, 3, 4, 5, 17, 300])
@pytest.mark.parametrize("start", [0, 1, 7, 40])
def test_until_stops_where_the_reference_stops(start: int, limit: int) -> None:
    """Both ways to stop, at every place in a batch of passes."""
    found = []
    for on in (backend(), ReferenceBackend()):
        for kind in ("unchanged", "zero"):
            with on.allocate(12) as left, on.allocate(12) as copy:
                on.upload(left, words(start, 0, start // 2))
                until = Unchanged([left, copy]) if kind == "unchanged" else Zero(left)
                repeat = [Step(parse(STEPS_DOWN), [left]), Step(double(), [left, copy])]
                result = on.run_sequence(repeat=repeat, times=limit, until=until, reads=[left, copy])
                found.append((kind, result.passes, result.converged, list(map(bytes, result.outputs))))
    # A sequence that ran no pass leaves the copy as it was, which nobody defines.
    if limit:
        assert found[:2] == found[2:]
    else:
        assert [one[:3] for one in found[:2]] == [one[:3] for one in found[2:]]


def test_a_fixpoint_asks_the_host_once_for_many_passes() -> None:
    on = backend()
    with resident(words(500, 3)) as left:
        before = on.metrics()["readbacks"]
        result = on.run_sequence(repeat=[Step(parse(STEPS_DOWN), [left])], times=10_000, until=Unchanged([left]))
        asked = on.metrics()["readbacks"] - before
    assert (result.passes, result.converged) == (501, True)
    assert asked <= 10


@pytest.mark.parametrize("iterations", [1, 2, 5, 6, 7, 100])
def test_fixpoint_iterations_mean_what_they_mean_on_the_reference(iterations: int) -> None:
    config = DispatchConfig(fixpoint_iterations=iterations)
    for program in (increment(5), parse(STEPS_DOWN)):
        found = []
        for on in (backend(), ReferenceBackend()):
            result = on.dispatch_timed(program, [words(0, 3, 5)], config)
            found.append((bytes(result.outputs[0]), result.passes, result.converged))
        assert found[0] == found[1]


def test_outputs_start_at_zero_each_time_a_step_runs() -> None:
    on = backend()
    text = "program some(workgroup 4) { buffer 0 at: u32[1] read\n buffer 1 out: u32[5] output\n out[at[0]] = 9 }"
    with resident(words(3)) as at, resident(words(1, 2, 3, 4, 5, 6, 7)) as out:
        on.run_sequence([Step(parse(text), [at, out])])
        assert content(out) == [0, 0, 0, 9, 0, 6, 7]
        on.upload(at, words(1))
        on.dispatch_resident(parse(text), [at, out])
        assert content(out) == [0, 9, 0, 0, 0, 6, 7]


@pytest.mark.parametrize(
    "body", ["out[1] = u8(1)", "for k in 0 .. len(a) { if gid.x == k { out[k] = u8(1) }\n grid_sync }"]
)
def test_bytes_behind_an_output_stay_as_they_are(body: str) -> None:
    text = f"program some(workgroup 1) {{ buffer 0 a: u32[] read\n buffer 1 out: u8[5] output\n {body} }}"
    program, found = parse(text), []
    for on in (backend(), ReferenceBackend()):
        with on.allocate(8) as a, on.allocate(12) as out:
            for run in (
                lambda on=on, a=a, out=out: on.dispatch_resident(program, [a, out]),
                lambda on=on, a=a, out=out: on.run_sequence([Step(program, [a, out])]),
                lambda on=on, a=a, out=out: on.run_sequence([Step(program, [a, out])] * 2),
            ):
                on.fill(out, 9)
                run()
                found.append(bytes(on.download(out)))
    assert found[:3] == found[3:]
    assert found[0][5:] == b"\t" * 7


def test_transfers_keep_what_they_captured_in_sequences() -> None:
    text = """
    program move(workgroup 2) {
      buffer 0 a: u32[4] readwrite
      buffer 1 out: u32[4] output
      async_load(a, out, gid.x * 4, 8, "t")
      barrier
      a[gid.x] = 77
      async_wait("t")
    }
    """
    program: Program = parse(text)
    on = backend()
    with resident(words(1, 2, 3, 4)) as a, on.allocate(16) as out:
        on.run_sequence([Step(program, [a, out], grid_override=(1,))] * 2)
        assert content(a)[:2] == [77, 77]


def test_a_grid_that_memory_says_is_read_where_it_is() -> None:
    text = """
    program counted(workgroup 1) {
      buffer 0 counts: u32[3] read
      buffer 1 out: u32[8] readwrite
      indirect_dispatch(counts, 0)
      out[gid.x] = out[gid.x] + 1
    }
    """
    on = backend()
    with resident(words(3, 1, 1)) as counts, resident(words(*[0] * 8)) as out:
        on.run_sequence([Step(parse(text), [counts, out])] * 2)
        on.upload(counts, words(5, 1, 1))
        on.dispatch_resident(parse(text), [counts, out])
        assert content(out) == [3, 3, 3, 1, 1, 0, 0, 0]


def test_handles_are_refused_after_they_were_freed_or_by_others() -> None:
    on = backend()
    state = resident(words(1))
    sequence = on.prepare_sequence([Step(increment(), [state])])
    sequence.run()
    on.free(state)
    for use in (
        lambda: on.free(state),
        lambda: on.download(state),
        lambda: on.dispatch_resident(increment(), [state]),
        sequence.run,
    ):
        with pytest.raises(BadInputs, match="freed"):
            use()
    with ReferenceBackend().allocate(4) as foreign, pytest.raises(BadInputs, match="another backend"):
        on.upload(foreign, words(1))


def test_nothing_stays_allocated_after_failures() -> None:
    on = backend()
    before = telemetry.snapshot().resident_bytes
    with pytest.raises(VyreError):
        on.allocate_many([16, 16, 1 << 50])
    with on.allocate(4) as small, pytest.raises(BadInputs):
        on.dispatch_resident(double(), [small])
    assert telemetry.snapshot().resident_bytes == before
