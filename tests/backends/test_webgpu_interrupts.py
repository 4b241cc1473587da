"""Ctrl-C and deadlines on WebGPU: they end every wait at once, and the backend goes on after them."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from select import select
from time import perf_counter, sleep
from typing import Any

import numpy as np
import pytest

from backends_for_tests import increment
from vyre.backends.webgpu import WebGpuBackend, gpu
from vyre.backends.webgpu.runs import BatchSize
from vyre.driver import Step
from vyre.driver.config import DispatchConfig
from vyre.errors import Timeout
from vyre.ir import parse
from webgpu_support import backend

LONG = """
program long(workgroup 64) {
  buffer 0 out: u32[] readwrite
  let x = out[gid.x]
  for k in 0 .. 50000 { x = x * 1664525 + (x >> 3) }
  out[gid.x] = x
}
"""

# Runs what it is told to, says so, and after the interrupt dispatches again.
INTERRUPTED = """
import signal
import sys
import numpy as np
from vyre.backends.webgpu import WebGpuBackend
from vyre.driver import Step, Unchanged
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.optimizer.switches import Optimization

# A shell starts background jobs with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
count = parse("program count(workgroup 64) { buffer 0 a: u32[] readwrite\\n a[gid.x] = a[gid.x] + 1 }")
endless = parse('''
program endless(workgroup 4) {
  buffer 0 left: u32[1] readwrite
  buffer 1 out: u32[10] readwrite
  while left[0] > 0 {
    grid_sync
    out[gid.x] = out[gid.x] * 3
    grid_sync
  }
}
''')
long = parse('''%s''')
on = WebGpuBackend()
data = np.arange(4096, dtype="<u4")
state = on.allocate(data.nbytes)
on.upload(state, data)
step = Step(count, [state])
alone = Step(count, [state], config=DispatchConfig(timeout_s=9.0))
work = {
    "sequence": on.prepare_sequence(repeat=[step], times=1 << 30).run,
    "sequence of long steps": on.prepare_sequence(repeat=[Step(long, [state])], times=1 << 30).run,
    "fixpoint": on.prepare_sequence(repeat=[step], times=1 << 30, until=Unchanged([state])).run,
    "dispatch": lambda: on.dispatch(count, [data], DispatchConfig(fixpoint_iterations=1 << 30)),
    "barriers": lambda: on.dispatch(
        endless, [np.ones(1, "<u4"), np.zeros(10, "<u4")], DispatchConfig(optimize=Optimization(off="barriers"))
    ),
    "steps": lambda: on.run_sequence(repeat=[alone], times=1 << 30),
    "kernel": lambda: on.dispatch(long, [np.zeros(1 << 16, "<u4")]),
    "kernel with a deadline": lambda: on.dispatch(long, [np.zeros(1 << 16, "<u4")], DispatchConfig(timeout_s=99.0)),
}[sys.argv[1]]
on.dispatch(count, [data])
print("begins", flush=True)
try:
    work()
except KeyboardInterrupt:
    print("interrupted", flush=True)
for _ in range(3):
    (out,) = on.dispatch(count, [data])
    assert np.array_equal(np.frombuffer(out, "<u4"), data + 1)
on.upload(state, data)
(out,) = on.run_sequence([step], reads=[state]).outputs
assert np.array_equal(np.frombuffer(out, "<u4"), data + 1)
on.free(state)
print("right", flush=True)
if len(sys.argv) == 2:
    on.shutdown()
    sys.exit()
print("again", flush=True)
work()
"""
LOOPS = ["sequence", "fixpoint", "dispatch", "barriers", "steps"]
KERNELS = ["sequence of long steps", "kernel", "kernel with a deadline"]


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The script's process, ended in any case."""
    backend()
    script = INTERRUPTED % LONG
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(120.0, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def interrupt(process: subprocess.Popen[str]) -> float:
    """Send SIGINT to a process that waits; return the seconds until it says that it was interrupted."""
    assert process.stdout is not None
    sleep(0.7)
    # Python drops a KeyboardInterrupt that it raises in a finalizer, so a second one may be needed.
    for _ in range(3):
        start = perf_counter()
        process.send_signal(signal.SIGINT)
        if select([process.stdout], [], [], 5)[0]:
            assert said(process) == "interrupted"
            return perf_counter() - start
    process.kill()
    raise AssertionError("the process did not notice three interrupts")


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGINT there")
@pytest.mark.parametrize("work", [*LOOPS, *KERNELS])
def test_an_interrupt_ends_every_wait_and_the_backend_goes_on(work: str) -> None:
    if work in KERNELS and not backend().gpu.facts.is_software:
        pytest.skip("a GPU would have ended the kernel before")
    with started(work) as process:
        assert said(process) == "begins"
        assert interrupt(process) < 0.3
        start = perf_counter()
        assert said(process) == "right"
        # The device had little left to do, however long the work would have taken.
        assert perf_counter() - start < 20
        assert process.wait(60) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGINT there")
def test_an_interrupt_that_is_not_caught_ends_the_process() -> None:
    with started("dispatch", "again") as process:
        assert said(process) == "begins"
        interrupt(process)
        assert [said(process), said(process)] == ["right", "again"]
        sleep(0.7)
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
                break
        assert process.returncode == -signal.SIGINT


@pytest.fixture
def own() -> Iterator[WebGpuBackend]:
    """A device that a test may leave with work to do."""
    backend()
    with WebGpuBackend() as on:
        on.prepare()
        yield on


def left_behind(on: WebGpuBackend) -> None:
    """Run a kernel of some seconds, and leave it after a moment."""
    if not on.gpu.facts.is_software:
        pytest.skip("a GPU would have ended the kernel before")
    for program in (parse(LONG), increment()):
        on.compile(program)
    start = perf_counter()
    with pytest.raises(Timeout, match=r"0\.05 s"):
        on.dispatch(parse(LONG), [np.arange(1 << 18, dtype="<u4")], DispatchConfig(timeout_s=0.05))
    assert perf_counter() - start < 1


def test_a_deadline_ends_the_wait_of_its_caller_and_nothing_is_submitted_until_the_run_has_ended(
    own: WebGpuBackend,
) -> None:
    left_behind(own)
    before = own.metrics()
    state = own.allocate(16)
    with pytest.raises(Timeout, match=r"0\.02 s"):
        own.dispatch(increment(), [np.array([1], "<u4")], DispatchConfig(timeout_s=0.02))
    own.free(state)
    assert own.metrics() == before
    (out,) = own.dispatch(increment(), [np.array([1], "<u4")])
    assert np.frombuffer(out, "<u4").tolist() == [2]
    assert own.metrics()["submissions"] == before["submissions"] + 1


def test_memory_that_is_freed_while_a_run_goes_on_does_not_pile_up(
    own: WebGpuBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    destroyed: list[Any] = []
    create = own.gpu.device.create_buffer

    def created(**options: Any) -> Any:
        buffer = create(**options)
        destroy = buffer.destroy
        buffer.destroy = lambda: (destroyed.append(buffer), destroy())
        return buffer

    monkeypatch.setattr(own.gpu.device, "create_buffer", created)
    monkeypatch.setattr(gpu, "_MOST_RETIRED_BYTES", 1 << 20)
    left_behind(own)
    first, second = own.allocate(3 << 19), own.allocate(3 << 19)
    for buffer in (first, second):
        own.free(buffer)
    assert not destroyed
    # One more would exceed the bound: allocating waits for the device, which then lets go of all.
    with own.allocate(16):
        assert len(destroyed) >= 3


def test_batches_are_as_large_as_take_a_fifth_of_a_second() -> None:
    size = BatchSize(4, 100)
    for count, milliseconds, expected in (
        (4, 1, 8), (8, 99, 16), (16, 150, 16), (16, 400, 8), (3, 1, 8), (8, 10**6, 1), (1, 1, 2),
    ):  # fmt: skip
        size.adapt(count, milliseconds * 10**6)
        assert size.count == expected
    for _ in range(9):
        size.adapt(size.count, 1)
    assert size.count == 100


def test_launches_of_unknown_length_begin_with_few_and_later_runs_with_as_many_as_fit(own: WebGpuBackend) -> None:
    counted = """
    program counted(workgroup 1) {
      buffer 0 a: u32[] readwrite
      for k in 0 .. len(a) { a[k] = a[k] + 1 }
    }
    """
    with own.allocate(4) as state:
        own.upload(state, bytes(4))
        config = DispatchConfig(grid_override=(1,))
        sequence = own.prepare_sequence(repeat=[Step(parse(counted), [state], config=config)], times=60, reads=[state])
        asked: list[int] = []
        while 1 not in asked and len(asked) < 20:
            before = own.metrics()["submissions"]
            (out,) = sequence.run().outputs
            asked.append(own.metrics()["submissions"] - before)
            assert np.frombuffer(out, "<u4").tolist() == [60 * len(asked)]
    assert asked[0] >= 4
    assert asked[-1] == 1


def test_a_deadline_holds_for_a_run_of_many_batches() -> None:
    endless = increment((1 << 32) - 1)
    start = perf_counter()
    with pytest.raises(Timeout, match=r"0\.3 s"):
        backend().dispatch(endless, [np.zeros(4, "<u4")], DispatchConfig(fixpoint_iterations=1 << 30, timeout_s=0.3))
    assert 0.3 <= perf_counter() - start < 2


def test_waits_that_signals_do_not_interrupt_are_waits_in_steps(
    monkeypatch: pytest.MonkeyPatch, own: WebGpuBackend
) -> None:
    monkeypatch.setattr(gpu, "_SIGNALS_INTERRUPT_WAITS", False)
    waits: list[float] = []
    result = gpu.Future.result

    def waiting(future: Any, timeout: float | None = None) -> Any:
        waits.append(timeout or 0.0)
        return result(future, timeout)

    monkeypatch.setattr(gpu.Future, "result", waiting)
    own.dispatch(parse(LONG), [np.arange(1 << 14, dtype="<u4")])
    # Asking for a result that is there already is no wait.
    assert max(waits) <= 0.1
    assert max(waits) > 0 or not own.gpu.facts.is_software


def test_the_shut_down_of_a_device_waits_for_a_run_that_was_left(own: WebGpuBackend) -> None:
    left_behind(own)
    own.shutdown()
    assert own.device_lost()


def test_a_run_that_was_left_disturbs_no_other(own: WebGpuBackend) -> None:
    """Buffers of the run are not handed out again while the device writes to them."""
    run: Callable[[], Any] = lambda: own.dispatch(  # noqa: E731
        parse(LONG), [np.arange(1 << 14, dtype="<u4")], DispatchConfig(timeout_s=0.05)
    )
    own.compile(parse(LONG))
    for _ in range(3):
        with pytest.raises(Timeout):
            run()
        data = np.arange(1 << 14, dtype="<u4")
        (out,) = own.dispatch(increment(), [data])
        assert np.array_equal(np.frombuffer(out, "<u4"), data + 1)
        with own.allocate(data.nbytes) as state:
            own.upload(state, data)
            (out,) = own.run_sequence([Step(increment(), [state])], reads=[state]).outputs
            assert np.array_equal(np.frombuffer(out, "<u4"), data + 1)
