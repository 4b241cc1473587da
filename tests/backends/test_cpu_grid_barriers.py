"""Grid barriers on the processor are one native call: the same bytes by every route, and no fault that spreads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import msgspec
import numpy as np
import pytest

from cpu_support import backend, difference, sharing_backend
from everywhere import ROUTES
from lower.test_generated_cuts import SMALL, program_of
from vyre.backends.reference import ReferenceBackend
from vyre.conform.generator import generate
from vyre.driver import Step, routes, telemetry
from vyre.driver.config import DispatchConfig
from vyre.driver.sequence import Unchanged, Zero
from vyre.errors import Timeout, TrapRaised, VyreError
from vyre.ir import parse
from vyre.lower.plan import contains_grid_sync
from vyre.optimizer.switches import Optimization

RELAY = parse("""
program relay(workgroup 8) {
  buffer 0 state: u32[2] readwrite
  if gid.x == 0 { state[0] = 40 }
  grid_sync
  if gid.x == 9 { state[1] = state[0] + 1 }
  grid_sync
  if gid.x == 3 { state[0] = state[1] + 1 }
}""")

SMOOTH = parse("""
program smooth(workgroup 16) {
  buffer 0 level: u32[] readwrite
  buffer 1 rounds: u32[1] readwrite
  for k in 0 .. rounds[0] {
    let left = level[gid.x - 1]
    let right = level[gid.x + 1]
    grid_sync
    level[gid.x] = (left + right) / 2 + (k & 1)
    grid_sync
  }
}""")

SETTLE = parse("""
program settle(workgroup 16) {
  buffer 0 level: u32[] readwrite
  buffer 1 going: u32[1] readwrite
  if gid.x >= len(level) { return }
  while going[0] != 0 {
    let mine = level[gid.x]
    let next = level[gid.x + 1]
    grid_sync
    if gid.x == 0 { going[0] = 0 }
    grid_sync
    if next > mine {
      level[gid.x] = next
      let old = atomic_or(going, 0, 1)
    }
    grid_sync
  }
}""")

ENDLESS = parse("""
program endless(workgroup 64) {
  buffer 0 a: u32[] readwrite
  buffer 1 one: u32[1] read
  while one[0] == 1 {
    a[gid.x] = a[gid.x] + 1
    grid_sync
  }
}""")

ASKING = parse("""
program asking(workgroup 4) {
  buffer 0 a: u32[8] readwrite
  buffer 1 prices: u32[8] read
  buffer 2 out: u32[8] output
  for k in 0 .. 3 {
    if (gid.x + k) % 3 == 0 { trap(gid.x * 10 + k, "page") }
    a[gid.x] = a[gid.x] + prices[gid.x]
    resume("page")
    out[gid.x] = out[gid.x] + a[7 - gid.x]
    grid_sync
  }
}""")


def words(view: Any) -> list[int]:
    return np.frombuffer(view, np.uint32).tolist()


def smooth_inputs(elements: int, rounds: int) -> list[Any]:
    return [np.arange(elements, dtype=np.uint32) * 7 % 1000, np.array([rounds], np.uint32)]


def smoothed(elements: int, rounds: int) -> bytes:
    level = smooth_inputs(elements, rounds)[0].astype(np.uint64)
    for k in range(rounds):
        padded = np.concatenate([[0], level, [0]]).astype(np.uint64)
        level = (padded[:-2] + padded[2:]) // 2 + (k & 1)
    return level.astype(np.uint32).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("route", ROUTES)
def test_each_route_is_open_and_gives_the_same(route: routes.Route, threads: int) -> None:
    on = backend(None, threads)
    for grid in ((2,), (300,)):
        config = DispatchConfig(grid_override=grid)
        assert words(routes.dispatch(on, RELAY, [np.zeros(2, np.uint32)], config, route=route)[0]) == [42, 41]
    for elements in (5, 4001):
        inputs = smooth_inputs(elements, 9)
        assert bytes(routes.dispatch(on, SMOOTH, inputs, route=route)[0]) == smoothed(elements, 9)


def test_the_native_route_is_chosen_and_counted() -> None:
    before = telemetry.snapshot()
    backend(None, 2).compile(SMOOTH).dispatch(smooth_inputs(100, 5))
    after = telemetry.snapshot()
    assert after.route_native - before.route_native == 1
    assert after.launches - before.launches == 1
    # The start, and what follows each of ten barriers.
    assert after.grid_sync_segments - before.grid_sync_segments == 11
    assert after.grid_sync_points - before.grid_sync_points == 10


def test_a_condition_on_the_device_decides_without_the_host() -> None:
    level = np.random.default_rng(3).integers(0, 1 << 30, 3000, dtype=np.uint32)
    for threads in (1, 2):
        out = backend(None, threads).compile(SETTLE).dispatch([level, np.ones(1, np.uint32)])
        assert words(out[0]) == np.maximum.accumulate(level[::-1])[::-1].tolist()
        assert words(out[1]) == [0]


@pytest.mark.parametrize("passes", [1, 2, 40])
def test_passes_mean_the_same_by_every_route(passes: int) -> None:
    level = np.array([1, 5, 2, 9, 4] * 20, np.uint32)
    climb = parse("""
    program climb(workgroup 16) {
      buffer 0 level: u32[] readwrite
      buffer 1 seen: u32[] output
      let next = level[gid.x + 1]
      seen[gid.x] = seen[gid.x] + 1
      grid_sync
      if next > level[gid.x] { level[gid.x] = next }
    }""")
    config = DispatchConfig(fixpoint_iterations=passes, dispatch_elements=100)
    meant = routes.dispatch_timed(ReferenceBackend(), climb, [level], config)
    for route in ROUTES:
        found = routes.dispatch_timed(sharing_backend(), climb, [level], config, route=route)
        assert (found.passes, found.converged) == (meant.passes, meant.converged), route
        assert list(map(bytes, found.outputs)) == list(map(bytes, meant.outputs)), route


def test_a_plain_program_in_passes_is_one_native_call() -> None:
    halve = parse("program halve(workgroup 8) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] / 2 }")
    result = backend().dispatch_timed(
        halve, [np.array([40, 3], np.uint32)], DispatchConfig(fixpoint_iterations=99, timeout_s=20.0)
    )
    assert (result.passes, result.converged) == (7, True)
    nothing = parse("program nothing(workgroup 8) { }")
    result = backend().dispatch_timed(nothing, [], DispatchConfig(fixpoint_iterations=9))
    assert (result.passes, result.converged) == (1, True)


def asking(seen: list[Any]) -> DispatchConfig:
    def answer(requests: Any, buffers: Any) -> None:
        seen.append([(one.invocation, one.address) for one in requests])
        for one in requests:
            buffers["a"][one.invocation] += one.address
            buffers["prices"][one.invocation] += 1

    return DispatchConfig(handlers={"page": answer})


@pytest.mark.parametrize("threads", [1, 2])
def test_the_host_answers_traps_between_native_segments(threads: int) -> None:
    asked: list[Any] = []
    inputs = [np.arange(8, dtype=np.uint32), np.full(8, 100, np.uint32)]
    meant = routes.dispatch(ReferenceBackend(), ASKING, inputs, asking(asked))
    for route in ROUTES:
        seen: list[Any] = []
        found = routes.dispatch(sharing_backend(threads), ASKING, inputs, asking(seen), route=route)
        assert list(map(bytes, found)) == list(map(bytes, meant)), route
        assert seen == asked, route
    assert inputs[1].tolist() == [100] * 8


def test_what_a_handler_raises_comes_out_and_the_next_run_is_right() -> None:
    def fail(*_: Any) -> None:
        raise ValueError("no page")

    inputs = [np.arange(8, dtype=np.uint32), np.full(8, 100, np.uint32)]
    on = sharing_backend()
    with pytest.raises(ValueError, match="no page") as caught:
        on.dispatch(ASKING, inputs, DispatchConfig(handlers={"page": fail}))
    assert "segment" in caught.value.__notes__[0]
    with pytest.raises(TrapRaised):
        on.dispatch(ASKING, inputs)
    meant = routes.dispatch(ReferenceBackend(), ASKING, inputs, asking([]))
    assert list(map(bytes, on.dispatch(ASKING, inputs, asking([])))) == list(map(bytes, meant))


@pytest.mark.parametrize("route", ["auto", *ROUTES])
def test_a_trap_without_a_resume_is_told(route: routes.Route) -> None:
    program = parse('program lost(workgroup 2) { buffer 0 a: u32[4] readwrite; if gid.x > 1 { trap(7, "none") } }')
    for on in (ReferenceBackend(), backend()):
        with pytest.raises(TrapRaised) as caught:
            routes.dispatch(on, program, [np.zeros(4, np.uint32)], route=route)
        assert (caught.value.tag, caught.value.invocation) == ("none", 2)
    assert "code, start" in backend().compile(program).explain()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_sequence_passes_grid_barriers_without_the_host(threads: int) -> None:
    on = sharing_backend(threads)
    level, rounds = smooth_inputs(300, 4)
    twice = parse("program twice(workgroup 8) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] * 2 }")
    with on.allocate(level.nbytes) as memory, on.allocate(4) as count:
        on.upload_many([(memory, 0, level), (count, 0, rounds)])
        sequence = on.prepare_sequence(
            [Step(SMOOTH, [memory, count]), Step(twice, [memory])],
            repeat=[Step(SETTLE, [memory, count])],
            times=3,
            until=Zero(count),
            reads=[memory],
        )
        before = telemetry.snapshot().route_resident
        result = sequence.run()
        assert telemetry.snapshot().route_resident == before
        doubled = np.frombuffer(smoothed(300, 4), np.uint32) * 2
        assert words(result.outputs[0]) == np.maximum.accumulate(doubled[::-1])[::-1].tolist()
        assert (result.passes, result.converged) == (1, True)
        on.upload_many([(memory, 0, level), (count, 0, rounds)])
        assert words(sequence.run().outputs[0]) == words(result.outputs[0])


def test_a_sequence_that_watches_nothing_ends_after_a_pass_as_on_every_backend() -> None:
    for on in (ReferenceBackend(), backend()):
        with on.allocate(8) as memory:
            on.fill(memory)
            result = on.run_sequence(repeat=[Step(RELAY, [memory])], times=5, until=Unchanged([]))
            assert (result.passes, result.converged) == (1, True)


def test_a_sequence_refuses_buffers_that_were_freed_after_it_was_prepared() -> None:
    on = backend()
    memory = on.allocate(8)
    on.fill(memory)
    sequence = on.prepare_sequence([Step(RELAY, [memory])])
    sequence.run()
    on.free(memory)
    with pytest.raises(VyreError, match="freed"):
        sequence.run()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_without_end_is_stopped_between_its_barriers(threads: int) -> None:
    on = backend(None, threads)
    for elements in (64, 9000):
        before = time.monotonic()
        # The optimizer would remove the barriers, which separate nothing.
        config = DispatchConfig(timeout_s=0.2, optimize=Optimization(off="barriers"))
        with pytest.raises(Timeout) as caught:
            on.dispatch(ENDLESS, [np.zeros(elements, np.uint32), np.ones(1, np.uint32)], config)
        assert time.monotonic() - before < 5
        assert "in segment " in str(caught.value)
    assert bytes(on.dispatch(SMOOTH, smooth_inputs(4000, 6))[0]) == smoothed(4000, 6)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own() -> None:
    on = backend(None, 2)
    assert bytes(on.dispatch(SMOOTH, smooth_inputs(4000, 6))[0]) == smoothed(4000, 6)
    child = os.fork()
    if child == 0:
        os._exit(0 if bytes(on.dispatch(SMOOTH, smooth_inputs(5000, 6))[0]) == smoothed(5000, 6) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_threads_may_pass_grid_barriers_at_once() -> None:
    on = backend(None, 2)
    wrong: list[int] = []

    def work(elements: int) -> None:
        expected = smoothed(elements, 8)
        wrong.extend(
            elements for _ in range(10) if bytes(on.dispatch(SMOOTH, smooth_inputs(elements, 8))[0]) != expected
        )

    threads = [threading.Thread(target=work, args=(2000 + 50 * (k // 2),)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_more_threads_than_processors_do_not_hinder_each_other() -> None:
    on = sharing_backend(9)
    before = time.monotonic()
    assert bytes(on.dispatch(SMOOTH, smooth_inputs(500, 200))[0]) == smoothed(500, 200)
    assert time.monotonic() - before < 10


STARVED = """
import resource, sys
import numpy as np
from vyre.backends.cpu import CpuBackend
from vyre.driver.config import DispatchConfig
from vyre.errors import DeviceOutOfMemory
from vyre.ir import parse

text = "program wide(workgroup 64) { buffer 0 a: u32[64] readwrite"
text += "".join(f"; let v{k} = a[gid.x & 63] + gid.x * {k}" for k in range(8)) + "; grid_sync; a[gid.x & 63] = 0"
text += "".join(f"; grid_sync; a[gid.x & 7] = v{k} & 0" for k in range(8)) + " }"
program, on, data = parse(text), CpuBackend(threads=2), np.zeros(64, np.uint32)
on.dispatch(program, [data], DispatchConfig(grid_override=(2,), optimize=False))
resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[0], -1))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), -1))
try:
    on.dispatch(program, [data], DispatchConfig(grid_override=(1 << 18,), optimize=False))
except DeviceOutOfMemory as error:
    assert "Fix:" in str(error)
    on.dispatch(program, [data], DispatchConfig(grid_override=(2,), optimize=False))
    sys.exit(7)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process is set as on Linux")
def test_state_that_cannot_be_allocated_is_told_and_the_next_run_is_right() -> None:
    assert subprocess.run([sys.executable, "-c", STARVED], check=False, timeout=100).returncode == 7


def same_as_generated(seed: int, size: int, share: float) -> bool:
    """Compares a generated program with barriers in many legal places; false if it has none."""
    case = generate(seed, size, SMALL)
    program = program_of(case, seed, share)
    if not contains_grid_sync(program):
        return False
    cut = msgspec.structs.replace(case, program=program)
    assert difference(cut, sharing_backend(1 + seed % 2), optimize=seed % 4 == 0) is None, seed
    return True


@pytest.mark.parametrize("block", range(2))
def test_generated_programs_with_grid_barriers(block: int) -> None:
    seeds = range(15 * block, 15 * (block + 1))
    assert sum(same_as_generated(seed, 12, 0.3) for seed in seeds) >= 8


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_more_generated_programs_with_grid_barriers(block: int) -> None:
    seeds = range(1000 * (block + 1), 1000 * (block + 1) + 500)
    assert sum(same_as_generated(seed, 24, 0.4) for seed in seeds) >= 250
