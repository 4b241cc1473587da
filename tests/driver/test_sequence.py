"""Sequences over resident buffers: order, overrides, repetition, when to stop, timing, and what failure leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import cpu_support
from backends_for_tests import ForwardingDevice, RecordingBackend, double, increment, words
from vyre.backends.reference import ReferenceBackend
from vyre.driver import (
    Backend,
    DispatchConfig,
    OutputBuffers,
    ReadRange,
    ResidentBuffer,
    RunOptions,
    Step,
    TimedResult,
    Timing,
    Unchanged,
    Zero,
    add_timings,
    telemetry,
)
from vyre.errors import BadInputs, DispatchFailed, InvalidProgram, UnsupportedFeature
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import buf_len, gid, if_, load, store
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32


@pytest.fixture(params=["reference", "cpu"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The driver's own way to run a sequence, and a device's."""
    return ReferenceBackend() if request.param == "reference" else cpu_support.backend()


def uploaded(backend: Backend, *values: int) -> ResidentBuffer:
    buffer = backend.allocate(4 * len(values))
    backend.upload(buffer, np.array(values, np.uint32))
    return buffer


def affine(factor: int, offset: int) -> Program:
    """x = factor * x + offset: the order of such steps shows in the result."""
    body = [if_(gid() < buf_len("x"), [store("x", gid(), load("x", gid()) * factor + offset)])]
    return Program.new([BufferDecl.read_write("x", 0, U32)], 1, body)


def test_steps_see_each_others_writes_in_order(backend: Backend) -> None:
    x = uploaded(backend, 1, 2)
    result = backend.run_sequence(
        [Step(affine(10, 3), [x])],
        prefix=[Step(affine(10, 2), [x])],
        repeat=[Step(affine(10, 4), [x])],
        times=2,
        reads=[x],
    )
    assert words(result.outputs[0]) == [12344, 22344]
    assert (result.passes, result.converged) == (2, None)
    assert result.timings.wall_ns > 0


def test_nothing_comes_to_the_host_but_what_is_asked() -> None:
    backend = RecordingBackend()
    x = uploaded(backend, 5, 6, 7)
    backend.calls.clear()
    result = backend.run_sequence(repeat=[Step(increment(), [x])] * 3, times=4, reads=[(x, 8, 4), (x, 0, 4)])
    assert [words(view) for view in result.outputs] == [[19], [17]]
    assert backend.counts == {"compile": 1, "launch": 12, "read": 1}
    assert backend.run_sequence([Step(increment(), [x])]).outputs == []
    assert backend.counts == {"compile": 1, "launch": 13, "read": 1}


class Clock(ForwardingDevice):
    """Launches nothing but tells made-up times, and notes the grid and the workgroup of each step."""

    def __init__(self) -> None:
        super().__init__(ReferenceBackend().device)
        self.launches = 0
        self.compiled: list[str] = []
        self.seen: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> Any:
        self.compiled.append(config.label)
        return super().compile(program, source=source, config=config)

    def launch(self, code: Any, memory: Any, launch: Launch, options: RunOptions) -> Timing:  # noqa: ARG002
        self.seen.append((launch.grid, launch.workgroup_size))
        k = self.launches
        self.launches += 1
        return Timing(10 + k, 7 + k, 3 + k, 4 + k)


def test_timings_of_steps_add_up_and_overrides_are_honoured() -> None:
    clock = Clock()
    backend = Backend(clock)
    x = uploaded(backend, 33, 44, 55)
    config = DispatchConfig(label="kept", grid_override=(9,))
    steps = [
        Step(increment(), [x], grid_override=(1, 1, 1)),
        Step(increment(), [x], grid_override=(2, 1, 1), config=config),
        Step(increment(), [x], workgroup_override=(8,), config=config),
    ]
    result = backend.run_sequence(steps[:2], reads=[ReadRange(x, 4, 8)])
    assert result.timings.device_ns == 15
    assert result.timings.enqueue_ns == 7
    assert result.timings.wait_ns == 9
    assert result.timings.wall_ns > 0
    assert words(result.outputs[0]) == [44, 55]
    backend.run_sequence(steps[2:])
    assert clock.seen == [((1, 1, 1), (4, 1, 1)), ((2, 1, 1), (4, 1, 1)), ((9, 1, 1), (8, 1, 1))]
    assert clock.compiled == ["", "kept"]


def test_every_pass_of_what_is_repeated_adds_its_time() -> None:
    clock = Clock()
    backend = Backend(clock)
    x = uploaded(backend, 1)
    step = Step(increment(), [x])
    timings = backend.run_sequence([step], repeat=[step] * 2, times=3).timings
    assert clock.launches == 7
    assert (timings.device_ns, timings.enqueue_ns, timings.wait_ns) == (7 * 7 + 21, 7 * 3 + 21, 7 * 4 + 21)


def test_each_step_is_launched_as_it_says(backend: Backend) -> None:
    ids = Program.new([BufferDecl.read_write("seen", 0, U32)], 2, [store("seen", gid(), gid() + 1)])
    steps = {
        (1, 2, 0, 0, 0, 0): {"grid_override": (1,)},
        (1, 2, 3, 0, 0, 0): {"grid_override": (1,), "workgroup_override": (3,)},
        (1, 2, 3, 4, 0, 0): {"config": DispatchConfig(dispatch_elements=3)},
        (1, 2, 3, 4, 5, 6): {"config": DispatchConfig(grid_override=(1,)), "grid_override": (3,)},
    }
    buffers = [uploaded(backend, *[0] * 6) for _ in steps]
    made = [Step(ids, [buffer], **given) for buffer, given in zip(buffers, steps.values(), strict=True)]
    outputs = backend.run_sequence(made[:1], repeat=made[1:], times=2, reads=buffers).outputs
    assert [tuple(words(view)) for view in outputs] == list(steps)


def test_reads_come_in_the_callers_order(backend: Backend) -> None:
    x, y = uploaded(backend, 1, 2, 3), uploaded(backend, 7)
    steps = [Step(increment(), [x]), Step(increment(), [y])]
    outputs = backend.run_sequence(steps, reads=[(x, 8, 4), y, (x, 0, 8), (x, 4, 0)]).outputs
    assert [words(view) for view in outputs] == [[4], [8], [2, 3], []]


def test_a_time_that_nobody_measured_makes_the_sum_unknown() -> None:
    parts: Iterable[Timing | TimedResult] = [Timing(1, 2, None, 4), TimedResult([], 10, 20, 30, 40)]
    assert add_timings(parts) == Timing(11, 22, None, 44)
    assert add_timings([]) == Timing(0, 0, 0, 0)


def test_unchanged_stops_after_the_pass_that_changed_nothing(backend: Backend) -> None:
    x, y = uploaded(backend, 0, 2), uploaded(backend, 0)
    run = lambda times, *watched: backend.run_sequence(  # noqa: E731
        repeat=[Step(increment(3), [x])], times=times, until=Unchanged(watched), reads=[x]
    )
    result = run(10, x)
    assert (words(result.outputs[0]), result.passes, result.converged) == ([3, 3], 4, True)
    assert (run(10, x).passes, run(1, x).converged) == (1, True)
    backend.upload(x, np.zeros(2, np.uint32))
    assert (run(2, x).passes, run(1, x).converged) == (2, False)
    backend.upload(x, np.zeros(2, np.uint32))
    assert run(10, y).passes == 1
    assert words(run(10, x, y).outputs[0]) == [3, 3]


COUNT_DOWN = Program.new(
    [BufferDecl.read_write("left", 0, U32)], 1, [if_(load("left", 0) > 0, [store("left", 0, load("left", 0) - 1)])]
)


def test_zero_stops_after_the_pass_that_left_zero(backend: Backend) -> None:
    left = uploaded(backend, 3)
    result = backend.run_sequence(repeat=[Step(COUNT_DOWN, [left])], times=9, until=Zero(left))
    assert (result.passes, result.converged) == (3, True)
    result = backend.run_sequence(repeat=[Step(COUNT_DOWN, [left])], times=9, until=Zero(left))
    assert (result.passes, result.converged) == (1, True)
    backend.upload(left, np.array([300], np.uint32))
    result = backend.run_sequence(repeat=[Step(COUNT_DOWN, [left])], times=9, until=Zero(left), reads=[left])
    assert (result.passes, result.converged, words(result.outputs[0])) == (9, False, [291])


def test_a_sequence_may_be_repeated_no_times(backend: Backend) -> None:
    x = uploaded(backend, 1)
    result = backend.run_sequence(repeat=[Step(increment(), [x])], times=0, reads=[x])
    assert (words(result.outputs[0]), result.passes) == ([1], 0)


def test_a_prepared_sequence_runs_again_on_what_it_left(backend: Backend) -> None:
    a, out = uploaded(backend, 1, 2), backend.allocate(8)
    copy_back = Program.new(
        [BufferDecl.read("out", 0, U32), BufferDecl.read_write("a", 1, U32)], 2, [store("a", gid(), load("out", gid()))]
    )
    sequence = backend.prepare_sequence([Step(double(), [a, out]), Step(copy_back, [out, a])], reads=[a])
    room = OutputBuffers.with_sizes([8])
    for expected in ([2, 4], [4, 8], [8, 16]):
        assert words(sequence.run(room).outputs[0]) == expected
        assert room.stats.reused == 1


def test_sequences_are_counted(backend: Backend) -> None:
    x = uploaded(backend, 0)
    before = telemetry.snapshot()
    backend.run_sequence([Step(increment(), [x])], repeat=[Step(increment(), [x])] * 2, times=3)
    after = telemetry.snapshot()
    assert after.sequence_runs == before.sequence_runs + 1
    assert after.sequence_steps == before.sequence_steps + 7
    assert after.launches == before.launches + 7


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"times": -1}, "-1 times"),
        ({"times": 2}, "something to repeat"),
        ({"until": Unchanged([])}, "something to repeat"),
    ],
)
def test_repetitions_that_mean_nothing_are_told(backend: Backend, given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInputs, match=message):
        backend.prepare_sequence(**given)


def test_an_illegal_step_is_refused_when_the_sequence_is_prepared(backend: Backend) -> None:
    broken = Program.new([], 1, [store("nothing", 0, 1)])
    with pytest.raises(InvalidProgram):
        backend.prepare_sequence([Step(broken, [])])


@pytest.mark.parametrize("place", ["step", "read", "until"])
@pytest.mark.parametrize("kind", ["foreign", "freed", "no buffer"])
def test_buffers_that_are_not_the_backends_are_told(backend: Backend, kind: str, place: str) -> None:
    x = uploaded(backend, 1)
    other: Any = uploaded(ReferenceBackend() if kind == "foreign" else backend, 1) if kind != "no buffer" else b"1234"
    if kind == "freed":
        backend.free(other)
    step = Step(increment(), [other if place == "step" else x])
    until = Unchanged([other]) if place == "until" else None
    room = OutputBuffers()
    room.store([b"old"])
    message = {"foreign": "another backend", "freed": "has been freed", "no buffer": "a bytes is no "}[kind]
    with pytest.raises(BadInputs, match=message):
        backend.run_sequence(repeat=[step], until=until, reads=[(other, 0, 4) if place == "read" else x], into=room)
    assert [bytes(view) for view in room] == [b"old"]


@pytest.mark.parametrize(("part", "message"), [({"steps": [3]}, "no step"), ({"until": 3}, "when to stop")])
def test_parts_that_are_none_of_a_sequence_are_told(backend: Backend, part: Any, message: str) -> None:
    x = uploaded(backend, 1)
    with pytest.raises(BadInputs, match=message):
        backend.prepare_sequence(**{"repeat": [Step(increment(), [x])], **part})


def test_a_backend_without_resident_dispatch_refuses_to_run_one() -> None:
    with ReferenceBackend().allocate(4) as x, pytest.raises(UnsupportedFeature):
        ReferenceBackend(resident=False).run_sequence([Step(increment(), [x])])


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_failing_step_is_named_and_the_callers_slots_stay(at: int) -> None:
    backend = RecordingBackend(fail_at=[("launch", at)])
    x = uploaded(backend, 0)
    room = OutputBuffers()
    room.store([b"old"])
    with pytest.raises(DispatchFailed) as caught:
        backend.run_sequence([Step(increment(), [x])], repeat=[Step(increment(), [x])] * 2, reads=[x], into=room)
    assert caught.value.message == f"in step {at} of the sequence: injected failure of launch number {at}."
    assert [bytes(view) for view in room] == [b"old"]


def test_a_failing_read_leaves_the_callers_slots() -> None:
    backend = RecordingBackend(fail_at=[("read", 0)])
    x, y = uploaded(backend, 1), uploaded(backend, 2)
    room = OutputBuffers()
    room.store([b"old", b"too"])
    with pytest.raises(DispatchFailed, match="read number 0"):
        backend.run_sequence([Step(increment(), [x])], reads=[x, y], into=room)
    assert [bytes(view) for view in room] == [b"old", b"too"]


def test_steps_keep_their_resources_as_given(backend: Backend) -> None:
    x, y = uploaded(backend, 1), uploaded(backend, 1)
    resources: Sequence[ResidentBuffer] = [x]
    sequence = backend.prepare_sequence([Step(increment(), resources)], reads=[x, y])
    resources[0] = y  # type: ignore[index]
    assert [words(view) for view in sequence.run().outputs] == [[2], [1]]
