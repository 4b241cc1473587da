"""What the driver asks of devices: no more bytes than it needs, no more workgroups than fit, and answers that fit."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from minimal_device import MinimalDevice

from backends_for_tests import ForwardingDevice, double, increment, words
from vyre.analyze.effects import used_names
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, Device, DispatchConfig, OutputBuffers, RunOptions, Step, Timing, Unchanged, Zero
from vyre.driver.device import Code, Copy, Fill, Handle, Range
from vyre.errors import DispatchFailed, GridResidencyExceeded
from vyre.ir import parse
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower import split_on_grid_sync
from vyre.lower.plan import cut_program

DATA = np.arange(5, dtype=np.uint32)
BARRIERS = """
program barriers(workgroup 2) {
  buffer 0 a: u32[] readwrite
  let right = a[gid.x + 1]
  grid_sync
  a[gid.x] = right
}"""

# Answers of a device that reads.

WRONG: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "too few": lambda answer: answer[1:],
    "too many": lambda answer: [*answer, b""],
    "too short": lambda answer: [one[:-1] for one in answer],
    "too long": lambda answer: [one + b"\0" for one in answer],
}
READS: dict[str, Callable[[Backend, OutputBuffers], object]] = {
    "dispatch": lambda backend, into: backend.dispatch(double(), [DATA], into=into),
    "dispatch_timed": lambda backend, into: backend.dispatch_timed(double(), [DATA], into=into),
    "fixpoint": lambda backend, into: backend.dispatch(
        double(), [DATA], DispatchConfig(fixpoint_iterations=3), into=into
    ),
    "barriers": lambda backend, into: backend.dispatch(parse(BARRIERS), [DATA], into=into),
    "download": lambda backend, into: backend.download(backend.allocate(8), into=into),
    "download_many": lambda backend, into: backend.download_many([backend.allocate(8)], into=into),
    "sequence": lambda backend, into: backend.run_sequence(reads=[backend.allocate(8)], into=into),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("read", READS)
def test_a_read_that_does_not_fit_names_the_device_and_leaves_the_slots(read: str, wrong: str) -> None:
    class Wrong(MinimalDevice):
        def read(self, ranges: Sequence[Range]) -> Any:
            return WRONG[wrong]([bytes(one) for one in super().read(ranges)])

    into = OutputBuffers()
    into.store([b"old"])
    with pytest.raises(DispatchFailed, match=r"device 'minimal' gave \[.*\] bytes where \[\d+\] were read") as caught:
        READS[read](Backend(Wrong()), into)
    assert caught.value.code == "wrong-outputs"
    assert caught.value.fix == "have its read() return one buffer for each range, of exactly its length."
    assert [bytes(view) for view in into] == [b"old"]


def test_a_launch_that_makes_its_memory_shorter_is_told() -> None:
    class Shrinking(MinimalDevice):
        def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> None:  # noqa: ARG002
            del memory[1][8:]

    with pytest.raises(DispatchFailed, match=re.escape("device 'minimal' gave [8] bytes where [20] were read")):
        Backend(Shrinking()).dispatch(double(), [DATA])


def test_what_a_launch_writes_behind_its_lengths_reaches_no_caller() -> None:
    """Borrowed memory is longer than what a program asks for, and is borrowed again for other programs."""

    class Overrunning(MinimalDevice):
        def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> None:
            super().launch(code, memory, launch, options)
            for handle, size in zip(memory, launch.counts.values(), strict=True):
                handle[4 * size :] = b"\xff" * (len(handle) - 4 * size)

    backend = Backend(Overrunning())
    for size in (1, 5, 30, 2, 64):
        data = np.arange(size, dtype=np.uint32)
        assert words(backend.dispatch(double(), [data])[0]) == (2 * data).tolist()
        assert words(backend.dispatch(parse(BARRIERS), [data])[0]) == [*range(1, size), 0]


# How much is moved.


class Watching(ForwardingDevice):
    """Notes the bytes that are written and read, in each call."""

    def __init__(self, inner: Device) -> None:
        super().__init__(inner)
        self.moved: list[tuple[str, list[int]]] = []

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        self.moved.append(("write", [len(data) for _, _, data in copies]))
        super().write(copies, fills)

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        self.moved.append(("read", [length for _, _, length in ranges]))
        return super().read(ranges)

    read_with = Device.read_with

    def reads(self) -> list[list[int]]:
        return [lengths for kind, lengths in self.moved if kind == "read"]


PARTS = """
program parts(workgroup 1) {
  buffer 0 first: u32[4] read
  buffer 1 second: u32[8] read
  buffer 2 state: u32[16] readwrite
  buffer 3 out: u32[2] output
  state[0] = first[0]
  grid_sync
  out[0] = second[0] + 1
  grid_sync
  state[1] = state[0] + 1
}"""


def test_the_host_route_moves_what_a_segment_touches_and_no_more() -> None:
    device = Watching(ReferenceBackend(grid_sync=False, resident=False).device)
    inputs = [np.full(4, 7, np.uint32), np.full(8, 8, np.uint32), np.zeros(16, np.uint32)]
    state, out = Backend(device).dispatch(parse(PARTS), inputs)
    assert (words(state)[:2], words(out)) == ([7, 8], [9, 0])
    segments = [{"write": [16, 64], "read": [64]}, {"write": [32, 8], "read": [8]}, {"write": [64], "read": [64]}]
    assert device.moved == [(kind, sizes) for segment in segments for kind, sizes in segment.items()]


def test_segments_are_launched_without_the_buffers_they_do_not_touch() -> None:
    program = parse(PARTS)
    segments = cut_program(program).segments
    kept = [[decl.name for decl in segment.narrowed.buffers] for segment in segments]
    assert kept == [["first", "state"], ["second", "out"], ["state"]]
    for segment in segments:
        declared = {decl.name for decl in segment.program.buffers}
        assert {decl.name for decl in segment.narrowed.buffers} == declared & used_names(segment.program.entry)
        assert segment.narrowed.entry == segment.program.entry
        assert [decl.name for decl in segment.program.buffers] == ["first", "second", "state", "out"]
    assert [[decl.name for decl in one.buffers] for one in split_on_grid_sync(program)] == [
        ["first", "second", "state", "out"]
    ] * 3


def test_a_fixpoint_reads_what_its_test_compares() -> None:
    """The outputs of a dispatch, before the first pass and after each; the watched buffers of a sequence."""
    program = parse("""
    program walk(workgroup 1) {
      buffer 0 input: u32[64] read
      buffer 1 x: u32[2] readwrite
      if x[0] < input[0] { x[0] = x[0] + 1 }
    }""")
    device = Watching(MinimalDevice())
    backend = Backend(device)
    config = DispatchConfig(fixpoint_iterations=9, grid_override=(1,))
    timed = backend.dispatch_timed(program, [np.full(64, 2, np.uint32), np.zeros(2, np.uint32)], config)
    assert timed.passes == 3
    assert device.reads() == [[8]] * (1 + 3 + 1)
    a, x, left = backend.allocate_many([256, 8, 4])
    backend.upload_many([(a, 0, np.full(64, 2, np.uint32))], fills=[(x, 0, 8, 0), (left, 0, 4, 0)])
    for until, reads, passes in ((Unchanged([x]), [[8]] * 4, 3), (Zero(left), [[4]], 1)):
        backend.fill(x)
        device.moved.clear()
        result = backend.run_sequence(repeat=[Step(program, [a, x], grid_override=(1,))], times=9, until=until)
        assert (result.passes, result.converged) == (passes, True)
        assert device.reads() == reads
    device.moved.clear()
    backend.run_sequence(repeat=[Step(program, [a, x], grid_override=(1,))], times=9)
    assert device.reads() == []


# How many workgroups run at once.


class Limited(ForwardingDevice):
    """The reference as a device on which so many workgroups run at once; notes the names of what is launched."""

    def __init__(self, most: int) -> None:
        super().__init__(ReferenceBackend().device)
        self.most = most
        self.launched: list[str] = []

    def resident_grid_fits(self, code: Code, launch: Launch) -> int | None:  # noqa: ARG002
        x, y, z = launch.grid
        return None if x * y * z <= self.most else self.most

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:
        self.launched.append(code.name)
        return super().launch(code, memory, launch, options)


WHOLE, CUT = ["barriers"], ["barriers_0", "barriers_1"]


@pytest.mark.parametrize(("groups", "launched"), [(3, WHOLE), (4, CUT)])
def test_a_grid_that_does_not_fit_is_cut(groups: int, launched: list[str]) -> None:
    """Also in a sequence, and on resident buffers; what fits runs natively."""
    device = Limited(3)
    backend = Backend(device)
    program = parse(BARRIERS)
    data = np.arange(2 * groups, dtype=np.uint32)
    wanted = [*range(1, 2 * groups), 0]
    fits = launched is WHOLE
    assert backend.grid_sync_fits(program, [data]) is fits
    assert f"route: {'native' if fits else 'resident'}" in backend.compile(program).explain([data])
    assert words(backend.dispatch(program, [data])[0]) == wanted
    assert words(backend.dispatch_timed(program, [data]).outputs[0]) == wanted
    with backend.allocate(data.nbytes) as x:
        backend.upload(x, data)
        backend.dispatch_resident(program, [x])
        assert words(backend.download(x)) == wanted
    assert device.launched == launched * 3


def test_a_native_barrier_that_is_required_and_does_not_fit_is_refused() -> None:
    device = Limited(3)
    backend = Backend(device)
    config = DispatchConfig(cooperative="require")
    program: Program = parse(BARRIERS)
    assert words(backend.dispatch(program, [DATA], config)[0]) == [1, 2, 3, 4, 0]
    device.launched.clear()
    data = np.arange(8, dtype=np.uint32)
    with backend.allocate(32) as x:
        for run in (
            lambda: backend.dispatch(program, [data], config),
            lambda: backend.dispatch_timed(program, [data], config),
            lambda: backend.dispatch_resident(program, [x], config),
            lambda: backend.run_sequence([Step(program, [x], config=config)]),
        ):
            with pytest.raises(GridResidencyExceeded) as caught:
                run()
            assert (caught.value.grid_blocks, caught.value.limit) == (4, 3)
    assert device.launched == []


def test_a_step_that_does_not_fit_is_cut_too() -> None:
    device = Limited(3)
    backend = Backend(device)
    with backend.allocate(32) as x:
        backend.upload(x, np.arange(8, dtype=np.uint32))
        result = backend.run_sequence([Step(increment(), [x])], repeat=[Step(parse(BARRIERS), [x])], times=2, reads=[x])
    assert words(result.outputs[0]) == [3, 4, 5, 6, 7, 8, 0, 0]
    assert device.launched == ["increment", *CUT * 2]
