"""The routes of programs with grid barriers: which is chosen, how often what is called, what is counted and kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

import cpu_support
from backends_for_tests import FixedDevice, ForwardingDevice, RecordingBackend
from everywhere import backend_for
from vyre.backends.reference import ReferenceBackend
from vyre.driver import routes, telemetry
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Code, Copy, Device, Fill, Handle, Range, RunOptions
from vyre.driver.outputs import OutputBuffers
from vyre.driver.profile import DeviceProfile
from vyre.driver.sequence import Step
from vyre.driver.timing import Timing
from vyre.errors import BadInputs, DispatchFailed, Timeout, UnsupportedFeature
from vyre.ir import parse
from vyre.ir.launch import Launch
from vyre.ir.program import Program

HOST = {"resident": False, "grid_sync": False}


def chain(segments: int) -> Program:
    """A program of that many segments, each of which adds one to every element of its buffer."""
    add = "if gid.x < len(state) { state[gid.x] = state[gid.x] + 1 }"
    body = "; grid_sync; ".join([add] * segments)
    return parse(f"program chain(workgroup 4) {{ buffer 0 state: u32[] readwrite; {body} }}")


class CountingDevice(FixedDevice):
    """Adds one to the first byte of its first buffer, up to a limit, and counts how often it is launched."""

    id = "counting"
    profile = DeviceProfile(backend="counting", max_workgroup_size=(64, 64, 64), max_workgroups_per_axis=100)

    def __init__(self, limit: int = 255) -> None:
        super().__init__()
        self.limit = limit

    def launch(self, code: Any, memory: Any, launch: Any, options: Any) -> None:  # noqa: ARG002
        self.launches += 1
        memory[0][0] = min(memory[0][0] + 1, max(memory[0][0], self.limit))


@pytest.mark.parametrize(
    ("iterations", "limit", "calls", "value"),
    [(None, 255, 2, 2), (3, 255, 6, 6), (10, 3, 6, 3), (4, 255, 8, 8)],
)
def test_the_whole_sequence_is_repeated_until_nothing_changes(
    iterations: int | None, limit: int, calls: int, value: int
) -> None:
    device = CountingDevice(limit)
    config = DispatchConfig(fixpoint_iterations=iterations, optimize=False)
    result = routes.dispatch_with_grid_sync_split_timed(Backend(device), chain(2), [np.zeros(1, "<u4")], config)
    assert device.launches == calls
    assert bytes(result.outputs[0]) == bytes([value, 0, 0, 0])
    assert result.passes == calls // 2
    assert result.converged is (None if iterations is None else iterations == 10)


@pytest.mark.parametrize(("iterations", "limit", "calls", "value"), [(None, 99, 2, 2), (3, 99, 6, 6), (10, 3, 6, 3)])
@pytest.mark.parametrize("route", ["host", "resident"])
def test_every_route_makes_as_many_launches(
    route: str, iterations: int | None, limit: int, calls: int, value: int
) -> None:
    add = f"if gid.x < len(state) & state[gid.x] < {limit} {{ state[gid.x] = state[gid.x] + 1 }}"
    program = parse(f"program p(workgroup 4) {{ buffer 0 state: u32[] readwrite; {add}; grid_sync; {add} }}")
    run = {"host": routes.dispatch_with_grid_sync_split, "resident": routes.dispatch_resident_grid_sync_fixpoint}[route]
    # What is asked for is done, also where the barrier would be native.
    backend = RecordingBackend(ReferenceBackend(poison=0xFF))
    (output,) = run(backend, program, [np.zeros(5, "<u4")], DispatchConfig(fixpoint_iterations=iterations))
    assert np.frombuffer(output, "<u4").tolist() == [value] * 5
    assert backend.counts["launch"] == calls
    # One program for each segment, compiled once.
    assert backend.counts["compile"] == 2
    # The host moves data at each launch; on the device it is written once, read for the test, and read at the end.
    if route == "host":
        assert backend.counts["write"] == backend.counts["read"] == calls
    else:
        assert backend.counts["write"] == 1
        assert backend.counts["read"] == (1 if iterations is None else 1 + calls // 2 + 1)


def test_parts_written_by_two_segments_are_kept_and_the_rest_is_zero() -> None:
    text = "program p(workgroup 1) { buffer 0 out: u32[4] output; out[0] = 170; grid_sync; out[2] = 187 }"
    for route in ("host", "resident"):
        backend = RecordingBackend(ReferenceBackend(poison=0xFF))
        config = DispatchConfig(fixpoint_iterations=3)
        result = routes.dispatch_timed(backend, parse(text), [], config, route=route)  # type: ignore[arg-type]
        assert np.frombuffer(result.outputs[0], "<u4").tolist() == [170, 0, 187, 0]
        assert (result.passes, result.converged) == (2, True)
        assert backend.counts["launch"] == 4
        assert (backend.counts["allocate"], backend.leaked(), len(backend.freed)) == (1, [], 1)


def test_segments_hand_on_only_what_they_touch() -> None:
    program = parse("""
    program p(workgroup 1) {
      buffer 0 a: u32[4] readwrite
      buffer 1 fixed: u32[4] read
      a[gid.x] = a[gid.x] + fixed[gid.x]; grid_sync; a[gid.x] = a[gid.x] + 1; grid_sync; a[gid.x] = a[gid.x] + 1
    }""")
    moved: list[str] = []

    class Watching(ForwardingDevice):
        """Notes what is copied to the device and back."""

        def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
            assert not fills
            moved.extend(f"write {len(handle)}: {bytes(data).hex()}" for handle, _, data in copies)
            super().write(copies, fills)

        def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
            moved.extend(f"read {length}" for _, _, length in ranges)
            return super().read(ranges)

        read_with = Device.read_with

    own, fixed = np.arange(4, dtype="<u4"), np.full(4, 9, "<u4")
    for options, route in ((HOST, "host"), ({"grid_sync": False}, "resident")):
        moved.clear()
        backend = Backend(Watching(ReferenceBackend(**options).device))
        (output,) = routes.dispatch(backend, program, [own, fixed], route=route)  # type: ignore[arg-type]
        assert np.frombuffer(output, "<u4").tolist() == [11, 12, 13, 14]
        assert own.tolist() == [0, 1, 2, 3]
        assert fixed.tolist() == [9] * 4
        steps = [np.arange(k, k + 4, dtype="<u4").tobytes().hex() for k in (0, 9, 10)]
        if route == "host":
            # Only the first segment reads ``fixed``; the output needs no copy but that of the last.
            first = [f"write 256: {steps[0]}", f"write 256: {fixed.tobytes().hex()}", "read 16"]
            assert moved == [*first, f"write 256: {steps[1]}", "read 16", f"write 256: {steps[2]}", "read 16"]
        else:
            assert moved == [f"write 256: {steps[0]}", f"write 256: {fixed.tobytes().hex()}", "read 16"]


@pytest.mark.parametrize("backend", [ReferenceBackend(), cpu_support.backend()], ids=lambda one: one.id)
def test_the_last_results_may_be_the_next_inputs(backend: Backend) -> None:
    text = "program p(workgroup 1) { buffer 0 a: u32[4] readwrite; buffer 1 b: u32[4] readwrite"
    slots = OutputBuffers.with_sizes([16, 16])
    for cut in ("", "grid_sync"):
        program = parse(f"{text}; a[gid.x] = a[gid.x] + 1; {cut}; b[gid.x] = b[gid.x] + 2 }}")
        for route in ("host", "resident"):
            slots.store([np.arange(4, dtype="<u4"), np.arange(10, 14, dtype="<u4")])
            for _ in range(2):
                routes.dispatch(backend, program, [slots[1], slots[0]], into=slots, route=route)  # type: ignore[arg-type]
            assert [np.frombuffer(view, "<u4").tolist() for view in slots] == [[3, 4, 5, 6], [13, 14, 15, 16]]


def test_inputs_that_do_not_fit_are_told_before_anything_is_called() -> None:
    for route in ("host", "resident"):
        for inputs in ([], [np.zeros(4, "<u4")] * 2, [bytes(7)]):
            backend = RecordingBackend(ReferenceBackend(grid_sync=False, resident=route == "resident"))
            with pytest.raises(BadInputs):
                routes.dispatch(backend, chain(2), inputs, route=route)  # type: ignore[arg-type]
            assert backend.calls == ["compile"] * 2
    backend = RecordingBackend(ReferenceBackend(grid_sync=False))
    with backend.allocate(16) as state, pytest.raises(BadInputs, match="was given 2"):
        routes.dispatch_resident_with_grid_sync_split_timed(backend, chain(2), [state, state])
    assert backend.calls == ["allocate", *["compile"] * 2, "free"]


@pytest.mark.parametrize("results", [[], [bytes(16)] * 2, [bytes(12)], [bytes(20)]])
@pytest.mark.parametrize("route", ["host", "resident"])
def test_a_device_that_reads_something_else_than_was_asked_for_is_told(route: str, results: list[bytes]) -> None:
    class Wrong(CountingDevice):
        profile = msgspec.structs.replace(CountingDevice.profile, resident=True)

        def read(self, ranges: Sequence[Range]) -> Sequence[Any]:  # noqa: ARG002
            return results

    given = [len(one) for one in results]
    config = DispatchConfig(optimize=False)
    slots = OutputBuffers()
    slots.store([b"old"])
    with pytest.raises(DispatchFailed, match=re.escape(f"device 'counting' gave {given} bytes where [16]")) as caught:
        routes.dispatch(Backend(Wrong()), chain(2), [np.zeros(4, "<u4")], config, into=slots, route=route)  # type: ignore[arg-type]
    assert caught.value.code == "wrong-outputs"
    assert "read()" in caught.value.fix
    if route == "host":
        assert caught.value.message.startswith("in segment 0 of 'chain' (start): ")
    assert [bytes(view) for view in slots] == [b"old"]


def test_a_converged_input_costs_one_pass() -> None:
    for route in ("host", "resident", "native"):
        program = parse("program p(workgroup 1) { buffer 0 a: u32[1] readwrite; a[0] = 7; grid_sync; a[0] = 7 }")
        config = DispatchConfig(fixpoint_iterations=9)
        result = routes.dispatch_timed(backend_for(route), program, [np.array([7], "<u4")], config, route=route)
        assert (result.passes, result.converged) == (1, True)


def test_the_caller_s_slots_are_used_again() -> None:
    slot = bytearray(16)
    for route in ("host", "resident"):
        into = OutputBuffers([slot])
        outputs = routes.dispatch(backend_for(route), chain(3), [np.zeros(4, "<u4")], into=into, route=route)
        assert outputs[0].obj is slot
        assert np.frombuffer(slot, "<u4").tolist() == [3] * 4
        assert into.stats.reused == 1
        slot[:] = bytes(16)


def test_segments_are_counted() -> None:
    for route in ("host", "resident"):
        before = telemetry.snapshot()
        routes.dispatch(backend_for(route), chain(3), [np.zeros(4, "<u4")], route=route)
        after = telemetry.snapshot()
        assert after.grid_sync_splits - before.grid_sync_splits == 1
        assert after.grid_sync_segments - before.grid_sync_segments == 3
        assert after.grid_sync_points - before.grid_sync_points == 2
        assert getattr(after, f"route_{route}") - getattr(before, f"route_{route}") == 1
        assert after.launches - before.launches == 3


def test_a_straight_plan_stays_on_the_device() -> None:
    backend = RecordingBackend(ReferenceBackend(grid_sync=False))
    run = ["write", *["launch"] * 3, "read"]
    for calls in ([*["compile"] * 3, "allocate", *run], run):
        backend.calls.clear()
        outputs = routes.dispatch(backend, chain(3), [np.zeros(4, "<u4")], route="resident")
        assert np.frombuffer(outputs[0], "<u4").tolist() == [3] * 4
        assert backend.calls == calls
    backend.calls.clear()
    backend.shutdown()
    assert backend.calls == ["free"]


def test_a_driven_plan_reads_only_its_control_words_between_segments() -> None:
    program = parse("""
    program driven(workgroup 2) {
      buffer 0 a: u32[64] readwrite
      let x = a[gid.x]
      for k in 0 .. 3 { grid_sync; x = x + 1 }
      a[gid.x] = x
    }""")
    reads: list[int] = []

    class Reading(ForwardingDevice):
        def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
            reads.extend(length for _, _, length in ranges)
            return super().read(ranges)

        read_with = Device.read_with

    backend = Backend(Reading(ReferenceBackend(grid_sync=False, poison=0xA5).device))
    (output,) = routes.dispatch(backend, program, [np.arange(64, dtype="<u4")], route="resident")
    assert np.frombuffer(output, "<u4").tolist() == [k + 3 for k in range(64)]
    assert reads == [8, 8, 8, 8, 256]


class TimedDevice(ForwardingDevice):
    """Says that every launch took 2 of device time, 3 to enqueue and 4 to wait for; notes its memory."""

    def __init__(self, device_ns: int | None = 2) -> None:
        super().__init__(ReferenceBackend(grid_sync=False).device)
        self.device_ns = device_ns
        self.bound: list[list[Handle]] = []

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        self.bound.append(list(memory))
        super().launch(code, memory, launch, options)
        return Timing(10, self.device_ns, 3, 4)


def test_resident_segments_keep_the_caller_s_buffers_and_add_up_their_times() -> None:
    device = TimedDevice()
    backend = Backend(device)
    with backend.allocate(16) as state:
        backend.fill(state)
        timed = routes.dispatch_resident_with_grid_sync_split_timed(backend, chain(3), [state])
        assert np.frombuffer(backend.download(state), "<u4").tolist() == [3] * 4
        assert [[id(one) for one in bound] for bound in device.bound] == [[id(state.handle)]] * 3
    assert (timed.device_ns, timed.enqueue_ns, timed.wait_ns) == (6, 9, 12)
    assert timed.outputs == []


def test_one_time_that_is_unknown_makes_the_sum_unknown() -> None:
    backend = Backend(TimedDevice(device_ns=None))
    with backend.allocate(16) as state:
        timed = routes.dispatch_resident_with_grid_sync_split_timed(backend, chain(2), [state])
    assert (timed.device_ns, timed.enqueue_ns) == (None, 6)


def test_outputs_on_the_caller_s_buffers_start_at_zero_whatever_was_there() -> None:
    program = parse("""
    program parts(workgroup 1) {
      buffer 0 out: u32[4] output
      buffer 1 sized: u32[] output
      out[0] = 170
      sized[gid.x] = len(sized)
      grid_sync
      out[2] = 187
    }""")
    backend = ReferenceBackend(grid_sync=False, poison=0xFF)
    out, sized = backend.allocate(16), backend.allocate(64)
    config = DispatchConfig(dispatch_elements=3)
    routes.dispatch_resident_with_grid_sync_split_timed(backend, program, [out, sized], config)
    assert np.frombuffer(backend.download(out), "<u4").tolist() == [170, 0, 187, 0]
    assert np.frombuffer(backend.download(sized), "<u4").tolist() == [3, 3, 3] + [0xFFFFFFFF] * 13
    config = DispatchConfig(dispatch_elements=0)
    # Of an output without elements nothing is touched, whatever its resident buffer has.
    backend.upload(out, bytes([9]) * 16)
    routes.dispatch_resident_with_grid_sync_split_timed(backend, program, [out, sized], config)
    assert np.frombuffer(backend.download(out), "<u4").tolist() == [0, 0, 0, 0]
    assert np.frombuffer(backend.download(sized), "<u4").tolist() == [3, 3, 3] + [0xFFFFFFFF] * 13
    native = ReferenceBackend().dispatch(program, [], config)
    assert [bytes(view) for view in native] == [bytes(16), b""]
    backend.free(out)
    backend.free(sized)


def test_a_fixpoint_on_the_caller_s_buffers_repeats_the_whole_program() -> None:
    device = TimedDevice()
    backend = Backend(device)
    with backend.allocate(16) as state:
        backend.fill(state)
        config = DispatchConfig(fixpoint_iterations=3)
        timed = routes.dispatch_resident_with_grid_sync_split_timed(backend, chain(2), [state], config)
        assert np.frombuffer(backend.download(state), "<u4").tolist() == [6] * 4
    assert len(device.bound) == 6
    assert (timed.passes, timed.converged) == (3, False)


def test_a_program_without_grid_points_is_dispatched_as_it_is() -> None:
    program = chain(1)
    before = telemetry.snapshot()
    for route in ("auto", "host", "resident", "native"):
        backend = RecordingBackend()
        routes.dispatch(backend, program, [np.zeros(4, "<u4")], route=route)
        assert backend.calls == ["compile", "allocate", "write", "launch", "read"]
    assert telemetry.snapshot().route_plain - before.route_plain == 4


@pytest.mark.parametrize(
    ("options", "cooperative", "route"),
    [
        ({}, "auto", "native"),
        ({}, "never", "resident"),
        ({}, "require", "native"),
        ({"grid_sync": False}, "auto", "resident"),
        (HOST, "auto", "host"),
        ({"resident": False}, "never", "host"),
    ],
)
def test_the_first_route_that_is_open_is_taken(options: dict[str, bool], cooperative: str, route: str) -> None:
    backend = ReferenceBackend(**options)
    config = DispatchConfig(cooperative=cooperative)  # type: ignore[arg-type]
    before = telemetry.snapshot()
    (output,) = routes.dispatch(backend, chain(2), [np.zeros(4, "<u4")], config)
    assert np.frombuffer(output, "<u4").tolist() == [2] * 4
    after = telemetry.snapshot()
    assert getattr(after, f"route_{route}") - getattr(before, f"route_{route}") == 1


def test_closed_routes_are_refused_by_name() -> None:
    class Bare(FixedDevice):
        profile = DeviceProfile(backend="bare", allows_host_grid_sync_split=False, max_workgroup_size=(64, 64, 64))

    with pytest.raises(UnsupportedFeature, match="grid barriers inside a launch"):
        routes.dispatch(Backend(Bare()), chain(2), [np.zeros(4, "<u4")])
    for route in ("native", "resident"):
        with pytest.raises(UnsupportedFeature):
            routes.dispatch(ReferenceBackend(**HOST), chain(2), [np.zeros(4, "<u4")], route=route)
    config = DispatchConfig(cooperative="require")
    for options in (HOST, {"grid_sync": False}):
        with pytest.raises(UnsupportedFeature):
            routes.dispatch(ReferenceBackend(**options), chain(2), [np.zeros(4, "<u4")], config)
    without = ReferenceBackend(grid_sync=False)
    with without.allocate(16) as buffer:
        for refused in (
            lambda: without.prepare_sequence([Step(chain(2), [buffer], config=config)]),
            lambda: routes.dispatch_resident_with_grid_sync_split_timed(without, chain(2), [buffer], config),
        ):
            with pytest.raises(UnsupportedFeature, match="grid barriers inside a launch"):
                refused()
    with pytest.raises(BadInputs, match="no route 'fast'"):
        routes.dispatch(ReferenceBackend(), chain(2), [np.zeros(4, "<u4")], route="fast")  # type: ignore[arg-type]


def test_a_missing_feature_is_refused_before_anything_runs() -> None:
    text = "program p(workgroup 1) { buffer 0 a: u32[1] readwrite; a[0] = 1; grid_sync; let x = 1.0f64; a[0] = u32(x) }"
    device = CountingDevice()
    with pytest.raises(UnsupportedFeature, match="f64"):
        routes.dispatch(Backend(device), parse(text), [np.zeros(1, "<u4")], route="host")
    assert device.launches == 0


def test_a_failure_names_its_segment() -> None:
    where = "in segment 1 of 'chain' (after grid_sync, cut 1): "
    for route in ("host", "resident"):
        inner = ReferenceBackend(grid_sync=False, resident=route == "resident")
        backend = RecordingBackend(inner, fail_at={("launch", 1)})
        with pytest.raises(DispatchFailed, match="injected") as caught:
            routes.dispatch(backend, chain(3), [np.zeros(4, "<u4")], route=route)  # type: ignore[arg-type]
        assert caught.value.message == f"{where}injected failure of launch number 1."
    # An error of the host's tells it in a note.
    device = Interrupted(ReferenceBackend(grid_sync=False).device)
    with pytest.raises(ZeroDivisionError) as other:
        routes.dispatch(Backend(device), chain(3), [np.zeros(4, "<u4")])
    assert other.value.__notes__ == [where.removesuffix(": ")]


class Interrupted(ForwardingDevice):
    """Fails at the second launch with an error that is not one of vyre's."""

    launches = 0

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        self.launches += 1
        if self.launches == 2:
            raise ZeroDivisionError
        return super().launch(code, memory, launch, options)


def test_a_loop_that_never_ends_meets_its_timeout() -> None:
    text = "program p(workgroup 1) { buffer 0 a: u32[1] readwrite; while true { a[0] = a[0] + 1; grid_sync } }"
    config = DispatchConfig(timeout_s=0.05)
    with pytest.raises(Timeout):
        routes.dispatch(backend_for("host"), parse(text), [np.zeros(1, "<u4")], config, route="host")


@pytest.mark.parametrize("on", ["reference", "cpu"])
@pytest.mark.parametrize("segments", [1, 2])
def test_passes_without_end_meet_the_timeout_of_all_of_them(on: str, segments: int) -> None:
    config = DispatchConfig(timeout_s=0.05, fixpoint_iterations=10**9)
    for route in ("native", "resident", "host"):
        backend = backend_for(route) if on == "reference" else cpu_support.backend()
        if segments == 1 or route != "native" or backend.capabilities.grid_sync:
            with pytest.raises(Timeout, match=r"0\.05 s"):
                routes.dispatch(backend, chain(segments), [np.zeros(4, "<u4")], config, route=route)  # type: ignore[arg-type]


def test_overrides_and_limits_are_those_of_the_whole_program() -> None:
    program = parse("""
    program sizes(workgroup 2) {
      buffer 0 out: u32[] output
      buffer 1 trimmed: u32[8] output bytes 0..4
      let x = lid.x
      x = x + 1
      grid_sync
      out[gid.x] = x * 100 + num_wg.x
    }""")
    for route in ("native", "host", "resident"):
        config = DispatchConfig(workgroup_override=(4,), dispatch_elements=8)
        out, trimmed = routes.dispatch(backend_for(route), program, [], config, route=route)
        assert np.frombuffer(out, "<u4").tolist() == [102, 202, 302, 402] * 2
        assert len(trimmed) == 4
        # What segments hand on is no output, however much it is.
        enough = config.with_changes(max_output_bytes=36)
        assert routes.dispatch(backend_for(route), program, [], enough, route=route) == [out, trimmed]
        limited = config.with_changes(max_output_bytes=35)
        with pytest.raises(DispatchFailed, match="max_output_bytes"):
            routes.dispatch(backend_for(route), program, [], limited, route=route)


def test_inputs_stay_as_they_are() -> None:
    for route in ("host", "resident"):
        data = np.zeros(4, "<u4")
        data.flags.writeable = False
        routes.dispatch(backend_for(route), chain(2), {"state": data}, route=route)
        assert not data.any()


def test_a_compiled_pipeline_takes_the_route_that_is_open() -> None:
    for options in ({}, {"grid_sync": False}, HOST):
        pipeline = ReferenceBackend(**options).compile(chain(4))
        for _ in range(2):
            assert np.frombuffer(pipeline.dispatch([np.zeros(4, "<u4")])[0], "<u4").tolist() == [4] * 4


@pytest.mark.parametrize("route", ["host", "resident"])
@pytest.mark.parametrize("elements", [None, 5])
def test_a_program_that_the_optimizer_leaves_without_barriers_is_repeated_on_its_buffers(
    route: routes.Route, elements: int | None
) -> None:
    program = parse("""
    program never(workgroup 4) {
      buffer 0 counts: u32[8] readwrite
      buffer 1 out: u32[] output
      if 1 > 2 { grid_sync }
      out[gid.x] = out[gid.x] + counts[3]
    }""")
    config = DispatchConfig(fixpoint_iterations=3, dispatch_elements=elements)
    _, out = routes.dispatch(cpu_support.backend(), program, [np.arange(8, dtype="<u4")], config, route=route)
    assert np.frombuffer(out, "<u4").tolist() == [9] * (elements or 8)
