"""A device that has only what it must have gets everything that callers can ask of a backend."""

from __future__ import annotations

import asyncio
import inspect
import time

import minimal_device
import numpy as np
import pytest
from minimal_device import MinimalDevice

from backends_for_tests import double, increment, words
from vyre.backends.reference import ReferenceBackend
from vyre.conform.certificate import certify
from vyre.driver import Backend, Device, DispatchConfig, OutputBuffers, Step, Unchanged, Zero, routes, telemetry
from vyre.driver.config import Route
from vyre.errors import DeviceOutOfMemory, Timeout, TrapRaised
from vyre.ir import parse
from vyre.ir.program import Program

DATA = np.arange(5, dtype=np.uint32)
SHIFTED = parse("""
program shifted(workgroup 2) {
  buffer 0 x: u32[] readwrite
  let right = x[gid.x + 1]
  grid_sync
  x[gid.x] = right
}""")
LOOPED = parse("""
program looped(workgroup 2) {
  buffer 0 x: u32[] readwrite
  let sum = 0
  for k in 0 .. 3 {
    sum = sum + x[gid.x + 1]
    grid_sync
    x[gid.x] = sum
    grid_sync
  }
}""")
ASKING = parse("""
program asking(workgroup 2) {
  buffer 0 x: u32[4] readwrite
  if gid.x == 2 { trap(x[gid.x], "ask") }
  resume("ask")
  x[gid.x] = x[gid.x] + 1
}""")
INDIRECT = parse("""
program counted(workgroup 2) {
  buffer 0 counts: u32[3] read
  buffer 1 hits: u32[1] readwrite
  indirect_dispatch(counts, 0)
  let t = atomic_add(hits, 0, 1)
}""")
GATHER = parse("""
program gather(workgroup 2) {
  buffer 0 x: u32[4] readwrite
  buffer 1 all: u32[4] output
  x[gid.x] = x[gid.x] + 1
  all_gather(x, all, "world")
  all[gid.x] = all[gid.x] * 10
}""")
ENDLESS = parse("program endless(workgroup 1) { buffer 0 x: u32[1] readwrite; while true { x[0] = x[0] + 1 } }")


@pytest.fixture
def backend() -> Backend:
    return Backend(MinimalDevice())


def wanted(program: Program, inputs: list[np.ndarray], config: DispatchConfig | None = None) -> list[bytes]:
    return [bytes(view) for view in ReferenceBackend().dispatch(program, inputs, config)]


def test_it_has_nothing_optional_and_is_short() -> None:
    classes = MinimalDevice.__mro__[: MinimalDevice.__mro__.index(Device)]
    own = {name for cls in classes for name in vars(cls) if not name.startswith("_")}
    assert own == Device.__abstractmethods__ | {"id", "version"}
    assert len(inspect.getsource(minimal_device).splitlines()) < 150
    profile = MinimalDevice.profile
    assert not any((profile.grid_sync, profile.traps, profile.collectives, profile.indirect_dispatch))


def test_results_go_into_the_callers_slots(backend: Backend) -> None:
    room = bytearray(20)
    slots = OutputBuffers([room])
    for _ in range(2):
        (view,) = backend.dispatch(double(), [DATA], into=slots)
        assert (view.obj, words(room)) == (room, [0, 2, 4, 6, 8])
    assert slots.stats.reused == 1


def test_dispatches_are_counted_and_timed(backend: Backend) -> None:
    before = telemetry.snapshot()
    timed = backend.dispatch_timed(double(), [DATA])
    after = telemetry.snapshot()
    assert (after.launches, after.input_bytes, after.output_bytes) == (
        before.launches + 1,
        before.input_bytes + 20,
        before.output_bytes + 20,
    )
    assert words(timed.outputs[0]) == [0, 2, 4, 6, 8]
    assert timed.wall_ns > 0
    assert (timed.device_ns, timed.passes, timed.converged) == (None, 1, None)


def test_a_program_runs_to_its_fixpoint(backend: Backend) -> None:
    for iterations, passes, converged in ((2, 2, False), (9, 8, True)):
        timed = backend.dispatch_timed(increment(7), [DATA], DispatchConfig(fixpoint_iterations=iterations))
        assert (timed.passes, timed.converged) == (passes, converged)
        assert words(timed.outputs[0]) == [min(7, x + iterations) for x in range(5)]


def test_a_run_that_takes_too_long_is_ended(backend: Backend) -> None:
    start = time.monotonic()
    for program, passes in ((ENDLESS, None), (increment(), 10**9)):
        with pytest.raises(Timeout, match=r"0\.05 s"):
            backend.dispatch(program, [DATA[:1]], DispatchConfig(timeout_s=0.05, fixpoint_iterations=passes))
    assert time.monotonic() - start < 10
    assert words(backend.dispatch(increment(), [DATA], DispatchConfig(timeout_s=60.0))[0]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("route", ["auto", "resident", "host"])
@pytest.mark.parametrize("program", [SHIFTED, LOOPED, GATHER], ids=lambda one: one.name)
def test_grid_barriers_and_collectives_run_by_routes(backend: Backend, program: Program, route: Route) -> None:
    data = [DATA[:4]] if program is GATHER else [DATA]
    assert routes.choose_route(backend, program, data, DispatchConfig(), route) == route.replace("auto", "resident")
    for passes in (None, 3):
        config = DispatchConfig(fixpoint_iterations=passes)
        outputs = routes.dispatch(backend, program, data, config, route=route)
        assert [bytes(view) for view in outputs] == wanted(program, data, config)
    if route == "auto":
        with backend.allocate(data[0].nbytes) as x, backend.allocate(16) as more:
            backend.upload(x, data[0])
            buffers = [x, more] if program is GATHER else [x]
            backend.dispatch_resident(program, buffers)
            read = [bytes(view) for view in backend.download_many(buffers)]
            assert read == wanted(program, data)


def test_steps_of_a_sequence_stay_on_the_device(backend: Backend) -> None:
    with backend.allocate(20) as x, backend.allocate(4) as left:
        backend.upload_many([(x, 0, DATA), (left, 0, np.array([3], np.uint32))])
        steps = [Step(SHIFTED, [x]), Step(increment(), [x])]
        result = backend.run_sequence(
            steps, repeat=[Step(increment(9), [x])], times=20, until=Unchanged([x]), reads=[x]
        )
        assert (words(result.outputs[0]), result.passes, result.converged) == ([9] * 5, 9, True)
        down = parse("program down(workgroup 1) { buffer 0 n: u32[1] readwrite; if n[0] > 0 { n[0] = n[0] - 1 } }")
        sequence = backend.prepare_sequence(repeat=[Step(down, [left])], times=9, until=Zero(left), reads=[left])
        assert [(one.passes, words(one.outputs[0])) for one in (sequence.run(), sequence.run())] == [(3, [0]), (1, [0])]


def test_dispatches_may_be_submitted_and_awaited(backend: Backend) -> None:
    pending = [backend.submit(increment(), [DATA + k]) for k in range(4)]
    backend.flush()
    assert [words(one.result()[0]) for one in pending] == [[k + 1 + x for x in range(5)] for k in range(4)]

    async def awaited() -> list[int]:
        return words((await backend.submit(increment(), [DATA]))[0])

    assert asyncio.run(awaited()) == [1, 2, 3, 4, 5]
    backend.shutdown()


@pytest.mark.parametrize("route", ["resident", "host"])
def test_traps_reach_their_handlers(backend: Backend, route: Route) -> None:
    asked: list[tuple[int, str, int]] = []

    def answer(requests: list, buffers: dict) -> None:  # type: ignore[type-arg]
        asked.extend((one.invocation, one.tag, one.address) for one in requests)
        buffers["x"][2] = 70

    data = [DATA[:4]]
    (output,) = routes.dispatch(backend, ASKING, data, DispatchConfig(handlers={"ask": answer}), route=route)
    assert words(output) == [1, 2, 71, 4]
    assert asked == [(2, "ask", 2)]
    with pytest.raises(TrapRaised) as caught:
        routes.dispatch(backend, ASKING, data, route=route)
    assert (caught.value.tag, caught.value.invocation) == ("ask", 2)


def test_the_host_reads_an_indirect_grid(backend: Backend) -> None:
    counts, hits = np.array([3, 2, 1], np.uint32), np.zeros(1, np.uint32)
    assert words(backend.dispatch(INDIRECT, [counts, hits])[0]) == [12]
    with backend.allocate(12) as a, backend.allocate(4) as b:
        backend.upload_many([(a, 0, counts), (b, 0, hits)])
        backend.dispatch_resident(INDIRECT, [a, b])
        assert words(backend.download(b)) == [12]


def test_too_much_memory_is_told(backend: Backend) -> None:
    with pytest.raises(DeviceOutOfMemory) as caught:
        backend.allocate(1 << 62)
    assert caught.value.requested == 1 << 62


def test_it_conforms(backend: Backend) -> None:
    certificate = certify(backend, cases=40)
    assert certificate.failures == ()
    assert certificate.holds
    assert (certificate.cases, certificate.ways["minimal"]) == (40, 40)
    assert certificate.ways["minimal, resident route"] == certificate.ways["minimal, host route"] > 0
    # What is not native is refused by the native route alone.
    assert set(certificate.refused) == {"grid barriers inside a launch", "collectives inside a launch"}
    assert sum(certificate.refused.values()) == certificate.ways["minimal, host route"]
