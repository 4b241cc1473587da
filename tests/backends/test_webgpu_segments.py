"""Grid barriers in loops and branches: the device finds out which segment is next, and the host asks once per batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vyre.backends.reference import ReferenceBackend
from vyre.conform.case import answer_traps
from vyre.driver import Step, routes, telemetry
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.driver.resident import allocated
from vyre.errors import DispatchFailed, Timeout
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.optimizer.switches import Optimization
from webgpu_support import backend

# Two segments for each pass; the number of passes is in memory.
TWO = """
program two(workgroup 4) {
  buffer 0 left: u32[1] readwrite
  buffer 1 out: u32[10] readwrite
  let steps = 0
  while left[0] > 0 {
    grid_sync
    out[gid.x] = out[gid.x] * 3 + steps
    if gid.x == 0 { left[0] = left[0] - 1 }
    steps = steps + 1
    grid_sync
  }
  out[gid.x] = out[gid.x] + steps
}
"""
# A segment that follows itself, and hands on what it reads: two copies take turns.
ITSELF = """
program itself(workgroup 4) {
  buffer 0 left: u32[1] read
  buffer 1 out: u32[10] readwrite
  let a = 1
  let b = gid.x
  for k in 0 .. left[0] {
    a = a * 3 + k
    b = b + a
    grid_sync
  }
  out[gid.x] = a + b
}
"""
NESTED = """
program nested(workgroup 4) {
  buffer 0 left: u32[1] read
  buffer 1 out: u32[10] readwrite
  for i in 0 .. left[0] {
    for j in 0 .. i % 3 {
      out[gid.x] = out[gid.x] + j + 1
      grid_sync
      out[gid.x] = out[gid.x] ^ i
    }
    if i % 2 == 1 {
      grid_sync
      if i == 7 { break }
      out[gid.x] = out[gid.x] * 5
    }
    if i % 5 == 4 { continue }
    grid_sync
    if gid.x == 6 { return }
    out[gid.x] = out[gid.x] + i
  }
}
"""
PROGRAMS = {"two": TWO, "itself": ITSELF, "nested": NESTED}


def inputs(left: int) -> list[Any]:
    return [np.array([left], "<u4"), np.arange(10, dtype="<u4")]


def run(on: Backend, program: Program, left: int, **options: Any) -> tuple[list[bytes], telemetry.Snapshot]:
    telemetry.reset()
    # The optimizer would remove the barriers, which separate nothing.
    config = DispatchConfig(**options, optimize=Optimization(off="barriers"))
    found = routes.dispatch(on, program, inputs(left), config)
    return list(map(bytes, found)), telemetry.snapshot()


@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5, 8, 13, 40])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_device_finds_out_which_segment_is_next(name: str, left: int) -> None:
    program = parse(PROGRAMS[name])
    expected, meant = run(ReferenceBackend(grid_sync=False), program, left)
    found, counted = run(backend(), program, left)
    assert found == expected
    assert counted.grid_sync_segments == meant.grid_sync_segments == meant.grid_sync_decisions
    assert counted.grid_sync_points == meant.grid_sync_points
    assert counted.launches == counted.grid_sync_segments
    assert 1 <= counted.grid_sync_decisions <= 6
    assert counted.route_resident == 1


def test_a_long_loop_asks_the_host_once_for_many_passes() -> None:
    on, program = backend(), parse(TWO)
    run(on, program, 1)
    before = on.metrics()["readbacks"]
    _, counted = run(on, program, 500)
    assert counted.grid_sync_segments == 1001
    assert counted.grid_sync_decisions <= 10
    assert on.metrics()["readbacks"] - before <= counted.grid_sync_decisions + 1


@pytest.mark.parametrize("iterations", [2, 7])
def test_repeated_runs_of_a_driven_program(iterations: int) -> None:
    program = parse(TWO.replace("left[0] - 1", "left[0] / 2"))
    assert (
        run(backend(), program, 20, fixpoint_iterations=iterations)[0]
        == run(ReferenceBackend(), program, 20, fixpoint_iterations=iterations)[0]
    )


def test_on_the_callers_own_resident_buffers() -> None:
    found = []
    for on in (backend(), ReferenceBackend(grid_sync=False)):
        with allocated(on, [4, 40]) as buffers:
            on.upload_many([(buffer, 0, data) for buffer, data in zip(buffers, inputs(6), strict=True)])
            routes.dispatch_resident_with_grid_sync_split_timed(on, parse(TWO), buffers)
            found.append([bytes(view) for view in on.download_many(buffers)])
    assert found[0] == found[1]


def test_where_the_host_has_a_part_it_drives() -> None:
    trapping = parse("""
    program trapping(workgroup 4) {
      buffer 0 left: u32[1] read
      buffer 1 out: u32[10] readwrite
      for k in 0 .. left[0] {
        if gid.x == k { trap(k, "t") }
        resume("t")
        out[gid.x] = out[gid.x] + 1
      }
    }
    """)
    options = {"handlers": {"t": answer_traps}}
    found, counted = run(backend(), trapping, 3, **options)
    assert found == run(ReferenceBackend(), trapping, 3, **options)[0]
    assert counted.grid_sync_decisions == counted.grid_sync_segments > 3


def test_a_loop_that_never_ends_meets_its_timeout() -> None:
    endless = parse(TWO.replace("left[0] - 1", "left[0]"))
    before = telemetry.snapshot().resident_bytes
    with pytest.raises(Timeout, match=r"0\.2"):
        run(backend(), endless, 3, timeout_s=0.2)
    assert telemetry.snapshot().resident_bytes == before
    found, counted = run(backend(), parse(TWO), 30, timeout_s=60.0)
    assert found == run(ReferenceBackend(), parse(TWO), 30)[0]
    assert counted.grid_sync_decisions < 6 < counted.grid_sync_segments


def test_an_empty_grid_comes_to_its_end() -> None:
    found, counted = run(backend(), parse(TWO), 3, grid_override=(0,))
    assert found == [bytes(data) for data in inputs(3)]
    assert counted.grid_sync_segments == 1


def test_a_fault_in_a_driven_segment_is_told_and_leaves_nothing() -> None:
    if not backend().gpu.ends_loops:
        pytest.skip("loops of this device end when they should, and this one never does")
    program = parse(TWO.replace("steps = steps + 1", "steps = steps + 1; while steps > 2 { steps = steps | 1 }"))
    before = telemetry.snapshot().resident_bytes
    with pytest.raises(DispatchFailed, match="ended a loop"):
        run(backend(), program, 9)
    assert telemetry.snapshot().resident_bytes == before
    assert run(backend(), parse(TWO), 9)[0] == run(ReferenceBackend(), parse(TWO), 9)[0]


def test_outputs_of_a_driven_program_start_at_zero_each_time() -> None:
    """Also in sequences, where the buffers hold what earlier steps left."""
    some = """
    program some(workgroup 4) {
      buffer 0 left: u32[1] read
      buffer 1 out: u32[10] output
      for k in 0 .. left[0] {
        if gid.x == k { out[gid.x] = k + 5 }
        grid_sync
      }
    }
    """
    on, program = backend(), parse(some)
    config = DispatchConfig(grid_override=(3,))
    with allocated(on, [4, 40]) as (left, out):
        for run in (
            lambda: on.run_sequence([Step(program, [left, out], config=config)]),
            lambda: on.run_sequence([Step(program, [left, out], config=config)] * 2),
            lambda: on.dispatch_resident(program, [left, out], config),
        ):
            on.upload_many([(left, 0, np.array([3], "<u4"))], fills=[(out, 0, 40, 9)])
            run()
            assert np.frombuffer(on.download(out), "<u4").tolist() == [5, 6, 7, *[0] * 7]
