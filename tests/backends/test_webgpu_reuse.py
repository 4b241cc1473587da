"""Second runs on WebGPU make nothing: no buffer, no bindings, no kernel, no list of dispatches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from backends_for_tests import double, increment
from vyre.backends.webgpu import WebGpuBackend, runs
from vyre.backends.webgpu.launches import PreparedLaunch
from vyre.driver import Step, Unchanged, Zero, scratch
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.ir.program import Program
from webgpu_support import backend

OUTPUTS = """
program outputs(workgroup 4) {
  buffer 0 a: u8[] read
  buffer 1 all: u32[] output
  buffer 2 some: u32[9] output
  all[gid.x] = u32(a[gid.x])
  if gid.x == 3 { some[gid.x] = 7 }
}
"""
STRAIGHT = """
program straight(workgroup 4) {
  buffer 0 a: u32[] readwrite
  let x = a[gid.x] * 3
  a[gid.x] = x + 1
  grid_sync
  a[gid.x] = a[gid.x] + x + len(a)
}
"""
# A segment that follows itself, and reads what it also writes: the device chooses the next one.
DRIVEN = """
program driven(workgroup 4) {
  buffer 0 a: u32[] readwrite
  let x = 1
  for k in 0 .. len(a) % 7 + 2 {
    x = x * 3 + k
    grid_sync
  }
  a[gid.x] = a[gid.x] + x
}
"""
MOVING = """
program moving(workgroup 2) {
  buffer 0 a: u32[] readwrite
  async_load(a, a, gid.x * 4, 4, "t")
  a[gid.x] = 77
  async_wait("t")
}
"""
COUNTED = """
program counted(workgroup 1) {
  buffer 0 counts: u32[3] read
  buffer 1 a: u32[] readwrite
  indirect_dispatch(counts, 0)
  if gid.x < len(a) { a[gid.x] = a[gid.x] + 1 }
}
"""
TRAPPING = """
program trapping(workgroup 4) {
  buffer 0 a: u32[] readwrite
  trap(0, "t")
  resume("t")
  a[gid.x] = a[gid.x] + 1
}
"""
CREATORS = (
    "create_buffer",
    "create_bind_group",
    "create_bind_group_layout",
    "create_pipeline_layout",
    "create_shader_module",
    "create_compute_pipeline",
)


def words(count: int) -> np.ndarray:
    return np.arange(count, dtype="<u4")


def created(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Any]) -> Counter[str]:
    """What a call makes on the device, and the lists of dispatches it makes for schedules."""
    made: Counter[str] = Counter()
    device = backend().gpu.device

    def counting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def make(*given: Any, **options: Any) -> Any:
            made[name] += 1
            return real(*given, **options)

        return make

    with monkeypatch.context() as patched:
        for name in CREATORS:
            patched.setattr(device, name, counting(name, getattr(device, name)))
        patched.setattr(PreparedLaunch, "works", counting("works", PreparedLaunch.works))
        patched.setattr(runs, "_watching", counting("watching", runs._watching))
        run()
    return made


def config(**options: Any) -> DispatchConfig:
    return DispatchConfig(**options)


DISPATCHES: dict[str, tuple[Program, list[np.ndarray], DispatchConfig]] = {
    "plain": (increment(), [words(100)], config()),
    "outputs": (parse(OUTPUTS), [np.arange(33, dtype="u1")], config()),
    "straight": (parse(STRAIGHT), [words(50)], config()),
    "driven": (parse(DRIVEN), [words(50)], config()),
    "fixpoint": (increment(60), [words(50)], config(fixpoint_iterations=100)),
    "fixpoint of barriers": (parse(STRAIGHT), [words(50)], config(fixpoint_iterations=5)),
    "driven fixpoint": (parse(DRIVEN), [words(50)], config(fixpoint_iterations=5)),
    "transfers": (parse(MOVING), [words(50)], config(grid_override=(3,))),
    "grid in memory": (parse(COUNTED), [np.array([4, 1, 1], "<u4"), words(50)], config()),
    "folded": (increment(), [words(64)], config(grid_override=(65_600, 1, 1))),
}


@pytest.mark.parametrize("name", DISPATCHES)
def test_a_second_dispatch_makes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on = backend()
    program, inputs, options = DISPATCHES[name]
    first = list(map(bytes, on.dispatch(program, inputs, options)))
    found: list[list[bytes]] = []
    run = lambda: found.append(list(map(bytes, on.dispatch(program, inputs, options))))  # noqa: E731
    assert [created(monkeypatch, run) for _ in range(2)] == [Counter(), Counter()]
    assert found == [first, first]


@pytest.mark.parametrize("name", [name for name in DISPATCHES if name != "outputs"])
def test_a_second_dispatch_on_resident_buffers_makes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on = backend()
    program, inputs, options = DISPATCHES[name]
    buffers = on.allocate_many([data.nbytes for data in inputs])
    on.upload_many([(buffer, 0, data) for buffer, data in zip(buffers, inputs, strict=True)])
    on.dispatch_resident(program, buffers, options)
    run = lambda: on.dispatch_resident(program, buffers, options)  # noqa: E731
    assert [created(monkeypatch, run) for _ in range(2)] == [Counter(), Counter()]
    for buffer in buffers:
        on.free(buffer)


def test_runs_on_two_sets_of_buffers_in_turn_make_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    on = backend()
    with on.allocate(64) as one, on.allocate(64) as other:
        on.upload_many([(one, 0, words(16)), (other, 0, words(16))])

        def both() -> None:
            for state in (one, other):
                on.dispatch_resident(parse(DRIVEN), [state])
                on.dispatch_resident(increment(99), [state], config(fixpoint_iterations=3))

        both()
        assert created(monkeypatch, both) == Counter()


@pytest.mark.parametrize("kind", ["once", "repeated", "unchanged", "zero", "barriers", "driven", "counted"])
def test_a_second_run_of_a_prepared_sequence_makes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on = backend()
    counts, state, twice = on.allocate_many([12, 64, 64])
    on.upload_many([(counts, 0, np.array([4, 1, 1], "<u4")), (state, 0, words(16)), (twice, 0, words(16))])
    plain = [Step(increment(200), [state]), Step(double(), [state, twice])]
    sequence = {
        "once": lambda: on.prepare_sequence(plain, reads=[twice]),
        "repeated": lambda: on.prepare_sequence(repeat=plain, times=5000, reads=[twice]),
        "unchanged": lambda: on.prepare_sequence(repeat=plain, times=300, until=Unchanged([state, twice])),
        "zero": lambda: on.prepare_sequence(repeat=plain, times=9, until=Zero(twice)),
        "barriers": lambda: on.prepare_sequence([Step(parse(STRAIGHT), [state])], reads=[state]),
        "driven": lambda: on.prepare_sequence([Step(parse(DRIVEN), [state]), *plain], reads=[state]),
        "counted": lambda: on.prepare_sequence(repeat=[Step(parse(COUNTED), [counts, state])], times=3),
    }[kind]()
    sequence.run()
    assert [created(monkeypatch, sequence.run) for _ in range(2)] == [Counter(), Counter()]
    for buffer in (counts, state, twice):
        on.free(buffer)


def test_a_second_dispatch_with_traps_makes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    on = backend()
    options = config(handlers={"t": lambda requests, arrays: None})  # noqa: ARG005
    on.dispatch(parse(TRAPPING), [words(9)], options)
    made = created(monkeypatch, lambda: on.dispatch(parse(TRAPPING), [words(9)], options))
    assert not {name for name in made if name in CREATORS}


def test_a_dispatch_is_one_submission_and_one_readback() -> None:
    on = backend()
    for name in ("plain", "outputs", "straight", "transfers"):
        program, inputs, options = DISPATCHES[name]
        before = on.metrics()
        on.dispatch(program, inputs, options)
        after = on.metrics()
        assert {key: after[key] - before[key] for key in after} == {"submissions": 1, "readbacks": 1}, name


def test_fills_are_part_of_the_next_submission() -> None:
    on = backend()
    with on.allocate(64) as state, on.allocate(64) as gone:
        before = on.metrics()["submissions"]
        on.fill(state, 5)
        on.fill(gone, 5)
        on.fill(state, 0, 3, 2)
        on.free(gone)
        assert on.download(state, 0, 8) == b"\5\5\5\0\0\5\5\5"
        assert on.metrics()["submissions"] == before + 1
        on.upload_many([(state, 1, b"\7\7")], fills=[(state, 0, 8, 1)])
        on.upload(state, b"\x08", 2)
        assert on.download(state, 0, 8) == b"\1\7\x08\1\1\1\1\1"


def test_memory_of_dispatches_of_many_sizes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    backend()
    mebibyte = 1 << 20
    monkeypatch.setattr(scratch, "_MOST_KEPT_BYTES", 2 * mebibyte)
    with WebGpuBackend() as on:
        on.prepare()
        live: dict[int, Any] = {}
        peak = 0
        allocate, free = on.device.allocate, on.device.free

        def allocated(byte_len: int) -> Any:
            nonlocal peak
            memory = allocate(byte_len)
            live[id(memory)] = memory
            peak = max(peak, sum(one.byte_len for one in live.values()))
            return memory

        def freed(memory: Any) -> None:
            free(memory)
            del live[id(memory)]

        monkeypatch.setattr(on.device, "allocate", allocated)
        monkeypatch.setattr(on.device, "free", freed)
        for size in range(1, 9):
            on.dispatch(parse(DRIVEN), [words(size * mebibyte // 4)])
        # The kept memory of the driver and of the device, and three buffers of the largest dispatch.
        assert peak <= (2 + 2 + 3 * 8) * mebibyte
