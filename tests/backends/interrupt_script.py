"""Program that test_interrupts.py runs in a process of its own and signals: one function for each scenario.

It prints ``go`` when a launch is about to begin, and afterwards what became of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from ctypes import c_int64
from typing import Any

import numpy as np

from vyre.backends.cpu import CpuBackend, layout
from vyre.driver import Step
from vyre.driver.config import DispatchConfig
from vyre.driver.sequence import Unchanged
from vyre.ir import parse

# Each invocation counts down from steps[0], which takes longer than any test if that is large.
COUNT = parse("""
program count(workgroup 64) {
  buffer 0 a: u32[] readwrite
  buffer 1 steps: u64[1] read
  let left = steps[0]
  while left > u64(0) {
    a[gid.x] = a[gid.x] + 1
    left = left - u64(1)
  }
}""")

# Bounds are constants, and yet it does not end while anyone waits.
BOUNDED = parse("""
program bounded(workgroup 64) {
  buffer 0 a: u32[] readwrite
  for i in 0 .. 4000000000 {
    for j in 0 .. 4000000000 {
      a[gid.x] = a[gid.x] * 3 + i + j
    }
  }
}""")

BARRIERS = parse("""
program barriers(workgroup 64) {
  buffer 0 a: u32[] readwrite
  buffer 1 going: u32[1] read
  while going[0] == 1 {
    a[gid.x] = a[gid.x] + 1
    grid_sync
  }
}""")

STEP = parse("""
program step(workgroup 64) {
  buffer 0 a: u32[] readwrite
  a[gid.x] = a[gid.x] + 1
}""")

MANY = 100_000
ENDLESS = np.array([1 << 62], np.uint64)
ZEROS = np.zeros(MANY, np.uint32)
SHARED = CpuBackend(threads=2)
SINGLE = CpuBackend(threads=1)


def say(text: str) -> None:
    print(text, flush=True)


def check(backend: CpuBackend) -> None:
    """Run other kernels, shared and alone, with and without barriers."""
    for count in (MANY, 3):
        out = backend.dispatch(COUNT, [np.arange(count, dtype=np.uint32), np.array([5], np.uint64)])[0]
        assert (np.frombuffer(out, np.uint32) == np.arange(count) + 5).all()
        backend.dispatch(BARRIERS, [np.zeros(count, np.uint32), np.zeros(1, np.uint32)])
    config = DispatchConfig(fixpoint_iterations=7)
    out = backend.dispatch(STEP, [ZEROS], config)[0]
    assert (np.frombuffer(out, np.uint32) == 7).all()


def interrupted(backend: CpuBackend, run: Callable[[], Any], times: int = 2) -> None:
    """Begin a run that does not end by itself; exactly one KeyboardInterrupt has to come out of it."""
    check(backend)
    for _ in range(times):
        say("go")
        try:
            run()
        except KeyboardInterrupt:
            say("interrupted")
        time.sleep(0.05)
        check(backend)


def shared() -> None:
    interrupted(SHARED, lambda: SHARED.dispatch(COUNT, [ZEROS, ENDLESS]))


def unshared() -> None:
    interrupted(SINGLE, lambda: SINGLE.dispatch(COUNT, [ZEROS, ENDLESS]))


def small() -> None:
    interrupted(SHARED, lambda: SHARED.dispatch(COUNT, [ZEROS[:1], ENDLESS]))


def bounded() -> None:
    interrupted(SHARED, lambda: SHARED.dispatch(BOUNDED, [ZEROS[:1]]))


def timed() -> None:
    interrupted(SHARED, lambda: SHARED.dispatch(COUNT, [ZEROS, ENDLESS], DispatchConfig(timeout_s=60.0)))


def barriers() -> None:
    interrupted(SHARED, lambda: SHARED.dispatch(BARRIERS, [ZEROS, np.ones(1, np.uint32)]))


def small_barriers() -> None:
    interrupted(SINGLE, lambda: SINGLE.dispatch(BARRIERS, [ZEROS[:1], np.ones(1, np.uint32)]))


def fixpoint() -> None:
    config = DispatchConfig(fixpoint_iterations=10**9)
    interrupted(SHARED, lambda: SHARED.dispatch(STEP, [ZEROS], config))


def sequence() -> None:
    buffer = SHARED.allocate(4 * MANY)
    until = Unchanged((buffer,))
    steps = [Step(STEP, [buffer])]
    interrupted(SHARED, lambda: SHARED.run_sequence(repeat=steps, times=10**9, until=until))


def reinstalled() -> None:
    def run() -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        SHARED.dispatch(COUNT, [ZEROS, ENDLESS])

    interrupted(SHARED, run)


def forked() -> None:
    check(SHARED)
    child = os.fork()
    if child == 0:
        os.write(1, f"child {os.getpid()}\n".encode())
        interrupted(SHARED, lambda: SHARED.dispatch(COUNT, [ZEROS, ENDLESS]))
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0


def finite(backend: CpuBackend) -> None:
    """Run for some seconds, much longer than it takes to be signalled, and check the result."""
    steps = 1000
    while True:
        start = time.perf_counter()
        out = backend.dispatch(COUNT, [ZEROS[:1], np.array([steps], np.uint64)])[0]
        if time.perf_counter() - start > 0.05:
            break
        steps *= 2
    steps *= 60
    say("go")
    out = backend.dispatch(COUNT, [ZEROS[:1], np.array([steps], np.uint64)])[0]
    assert int(np.frombuffer(out, np.uint32)[0]) == steps % 2**32
    say("completed")


def own_handler() -> None:
    called: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: called.append(number))
    finite(SHARED)
    assert called == [signal.SIGINT]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    shared()


def other_thread() -> None:
    thread = threading.Thread(target=finite, args=(SHARED,))
    try:
        thread.start()
        while thread.is_alive():
            time.sleep(0.01)
    except KeyboardInterrupt:
        say("main interrupted")
    thread.join()
    shared()


def in_asyncio() -> None:
    async def main() -> None:
        finite(SHARED)
        await asyncio.sleep(0)
        say("not cancelled")

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        say("run interrupted")
    shared()


def to_thread() -> None:
    async def main() -> None:
        await asyncio.to_thread(finite, SHARED)

    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        say("run interrupted")
    shared()


def any_moment() -> None:
    """Launch all kinds of work until a signal arrives, many times; each signal is one KeyboardInterrupt."""
    check(SHARED)
    steps, passing = np.array([20], np.uint64), np.zeros(1, np.uint32)
    buffer = SHARED.allocate(4 * MANY)
    for _ in range(int(sys.argv[2])):
        try:
            say("ready")
            while True:
                SHARED.dispatch(COUNT, [ZEROS, steps])
                SHARED.dispatch(COUNT, [ZEROS[:1], steps])
                SHARED.dispatch(BARRIERS, [ZEROS, passing])
                SHARED.run_sequence(repeat=[Step(STEP, [buffer])], times=20)
        except KeyboardInterrupt:
            pass
        check(SHARED)
    # No caller has the pool.
    assert is_free(SHARED)


def is_free(backend: CpuBackend) -> bool:
    workers = backend.device.pool._workers_of_this_process()
    return not c_int64.from_address(workers.address + layout.WORD_BYTES * layout.Pool.BUSY).value


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    SHARED.shutdown()
    say("end")
