"""Fixpoints mean one thing: buffers persist, outputs are zeroed once, and a pass that changes nothing is the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends_for_tests import FixedDevice, increment, words
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, DeviceProfile, DispatchConfig, RunOptions, Step, Timing, Unchanged, telemetry
from vyre.driver.device import Code, Handle, Range
from vyre.errors import TrapRaised
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.build import eq, gid, if_, load, store, trap
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32


class Stepping(FixedDevice):
    """Adds one to the first byte of a buffer while it is below a limit; notes how much is read at a time."""

    profile = DeviceProfile(backend="stepping", resident=True, max_workgroup_size=(4, 1, 1))

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit
        self.asked: list[list[int]] = []

    def launch(self, code: Code, memory: Sequence[Handle], launch: Launch, options: RunOptions) -> Timing | None:  # noqa: ARG002
        self.launches += 1
        memory[0][0] += memory[0][0] < self.limit
        return None

    def read(self, ranges: Sequence[Range]) -> Sequence[Any]:
        self.asked.append([length for _, _, length in ranges])
        return super().read(ranges)


@given(st.integers(0, 6), st.integers(0, 6), st.integers(1, 9))
def test_passes_run_until_one_changes_nothing(start: int, limit: int, iterations: int) -> None:
    distance = max(0, limit - start)
    device = Stepping(limit)
    data = np.array([start], np.uint32)
    timed = Backend(device).dispatch_timed(increment(), [data], DispatchConfig(fixpoint_iterations=iterations))
    assert words(timed.outputs[0]) == [start + min(distance, iterations)]
    assert device.launches == timed.passes == min(iterations, distance + 1)
    assert timed.converged == (None if iterations == 1 else distance < iterations)


def test_a_single_pass_is_compared_only_when_asked() -> None:
    device = Stepping(0)
    backend = Backend(device)
    timed = backend.dispatch_timed(increment(), [np.zeros(1, np.uint32)])
    assert (timed.passes, timed.converged) == (1, None)
    # Only the output was read.
    assert device.asked == [[4]]
    with backend.allocate(4) as x:
        backend.fill(x)
        result = backend.run_sequence(repeat=[Step(increment(), [x])], times=1, until=Unchanged([x]))
    assert (result.passes, result.converged) == (1, True)


def test_fixpoints_are_counted() -> None:
    before = telemetry.snapshot()
    backend = ReferenceBackend()
    backend.dispatch(increment(3), [np.zeros(1, np.uint32)], DispatchConfig(fixpoint_iterations=10))
    backend.dispatch(increment(), [np.zeros(1, np.uint32)], DispatchConfig(fixpoint_iterations=4))
    backend.dispatch(increment(), [np.zeros(1, np.uint32)])
    after = telemetry.snapshot()
    assert after.fixpoint_runs == before.fixpoint_runs + 2
    assert after.fixpoint_passes == before.fixpoint_passes + 8
    assert after.fixpoint_converged == before.fixpoint_converged + 1


ACCUMULATE = Program.new(
    [
        BufferDecl.read("step", 0, U32, 1),
        BufferDecl.output("total", 1, U32, 2),
        BufferDecl("mark", 2, Access.WRITE_ONLY, U32, 2),
    ],
    1,
    [
        if_(gid() < 2, [store("total", gid(), load("total", gid()) + load("step", 0))]),
        if_(eq(load("total", 0), load("step", 0)), [store("mark", 0, 7)]),
    ],
)
"""Outputs that go on from the last pass, and a write-only one that only the first pass writes."""


def test_outputs_are_zeroed_once_and_persist() -> None:
    backend = ReferenceBackend(poison=0xA5)
    step = np.array([5], np.uint32)
    resources = backend.allocate_many([4, 8, 8])
    for passes in (1, 2, 5):
        config = DispatchConfig(fixpoint_iterations=passes, grid_override=(2,))
        outputs = backend.dispatch(ACCUMULATE, [step], config)
        assert [words(view) for view in outputs] == [[5 * passes] * 2, [7, 0]]
        backend.upload(resources[0], step)
        timed = backend.dispatch_resident(ACCUMULATE, resources, config)
        assert timed.passes == passes
        assert backend.download_many(resources[1:]) == outputs


def test_a_converged_input_costs_one_pass() -> None:
    backend = ReferenceBackend()
    config = DispatchConfig(fixpoint_iterations=10)
    timed = backend.dispatch_timed(increment(3), [np.array([3, 9], np.uint32)], config)
    assert (timed.passes, timed.converged) == (1, True)
    timed = backend.dispatch_timed(increment(3), [np.array([1], np.uint32)], config)
    assert (words(timed.outputs[0]), timed.passes, timed.converged) == ([3], 3, True)


@pytest.mark.parametrize("resident", [False, True])
def test_a_pass_that_fails_leaves_resident_data_and_slots_alone(resident: bool) -> None:
    program = Program.new(
        [BufferDecl.read_write("x", 0, U32, 1)],
        1,
        [if_(eq(load("x", 0), 2), [trap(load("x", 0), "two")]), store("x", 0, load("x", 0) + 1)],
    )
    backend = ReferenceBackend()
    config = DispatchConfig(fixpoint_iterations=5)
    data = np.zeros(1, np.uint32)
    if not resident:
        with pytest.raises(TrapRaised):
            backend.dispatch(program, [data], config)
        assert data.tolist() == [0]
        return
    x = backend.allocate(4)
    backend.upload(x, data)
    with pytest.raises(TrapRaised):
        backend.dispatch_resident(program, [x], config)
    # What the two passes before it left.
    assert words(backend.download(x)) == [2]
