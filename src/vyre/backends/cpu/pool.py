"""Who runs a kernel? The caller, and for larger grids threads that wait in native code for their share of the work.

A pool has one job at a time; whoever finds it busy runs his kernel alone. Threads do not outlive a fork: a child
process finds that it is another one, and starts its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import CFUNCTYPE, c_bool, c_int64, c_void_p
from threading import Lock, Thread, Timer
from typing import Final

import numpy as np

from vyre.backends.cpu.launches import PreparedLaunch, address_of
from vyre.backends.cpu.native import POOL_BYTES, native
from vyre.errors import BadInputs
from vyre.ir.binding import Array

TIMED_OUT: Final = 1
# Fewer invocations than this are done before another thread has woken up.
_WORTH_SHARING: Final = 2048
_SHARES_PER_THREAD: Final = 16
_FLAT_GRAIN: Final = 1024

_OfPool: Final = CFUNCTYPE(None, c_void_p)
_OfJob: Final = CFUNCTYPE(None, c_void_p, c_void_p)
_OfSequence: Final = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_int64, c_int64, c_void_p, c_int64, c_bool)


def wanted_threads(threads: int | None) -> int:
    """The number asked for, else ``VYRE_THREADS``, else one for each processor this process may use."""
    source, text = "threads", str(threads)
    if threads is None:
        source, text = "VYRE_THREADS", os.environ.get("VYRE_THREADS", "")
        if not text:
            return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise BadInputs(f"{source} is {text!r}.", "give a number of threads from 1 to 1024, or leave it out.")
    return int(text)


class _Crew:
    """Running threads and the memory they wait on."""

    def __init__(self, helpers: int) -> None:
        self.process = os.getpid()
        self.lock = Lock()
        self._memory = np.zeros(POOL_BYTES, np.uint8)
        self.pool = address_of(self._memory)
        code = native()
        self.launch: Callable[[int, int], None] = _OfJob(code.address("launch"))
        _OfPool(code.address("prepare"))(self.pool)
        worker = _OfPool(code.address("worker"))
        memory = self._memory
        for number in range(helpers):
            Thread(target=_wait_for_work, args=(worker, memory), name=f"vyre-cpu-{number}", daemon=True).start()
        self.quit = weakref.finalize(self, _OfPool(code.address("quit")), self.pool)
        # At exit the process takes its threads along; telling them would only race with the end of Python.
        self.quit.atexit = False


def _wait_for_work(worker: Callable[[int], None], memory: Array) -> None:
    # The thread keeps the memory it waits on alive.
    worker(address_of(memory))


class Pool:
    """Runs kernels with a number of threads, the caller among them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._crew: _Crew | None = None
        self._starting = Lock()

    def run(self, launch: PreparedLaunch, memory: Sequence[Array], timeout_s: float | None) -> int:
        """Runs a launch; 0, or why it was stopped: TIMED_OUT, or what the kernel says."""
        block, kept = launch.block(memory)
        if timeout_s is None:
            self._run(launch, block)
        else:
            timer = Timer(timeout_s, lambda: block.__setitem__(-1, TIMED_OUT))
            timer.daemon = True
            timer.start()
            try:
                self._run(launch, block)
            finally:
                timer.cancel()
        del kept
        return int(block[-1])

    def grain(self, launch: PreparedLaunch) -> int | None:
        """How much of a launch a thread takes at a time; None if the caller should do it alone."""
        total = launch.total
        if self.threads == 1 or launch.invocations < _WORTH_SHARING or total == 1:
            return None
        grain = max(1, total // (self.threads * _SHARES_PER_THREAD))
        return -(-grain // _FLAT_GRAIN) * _FLAT_GRAIN if launch.kernel.kernel.is_flat else grain

    def run_steps(
        self, steps: Array, count: int, times: int, watches: Array, watched: int, keep: bool, shared: bool
    ) -> int:
        """Runs a table of steps natively, with help if some of them are worth sharing and nobody else has it."""
        run = _OfSequence(native().address("sequence"))
        arguments = (address_of(steps), count, times, address_of(watches), watched, keep)
        if shared:
            crew = self._crew_of_this_process()
            if crew.lock.acquire(blocking=False):
                try:
                    return int(run(crew.pool, *arguments))
                finally:
                    crew.lock.release()
        return int(run(None, *arguments))

    def _run(self, launch: PreparedLaunch, block: Array) -> None:
        kernel, total, grain = launch.kernel, launch.total, self.grain(launch)
        if grain is not None:
            crew = self._crew_of_this_process()
            if crew.lock.acquire(blocking=False):
                try:
                    job = np.array((kernel.address, address_of(block), 0, total, grain, block[0]), np.int64)
                    crew.launch(crew.pool, address_of(job))
                finally:
                    crew.lock.release()
                return
        kernel.function(address_of(block), 0, total)

    def _crew_of_this_process(self) -> _Crew:
        crew = self._crew
        if crew is not None and crew.process == os.getpid():
            return crew
        with self._starting:
            crew = self._crew
            if crew is None or crew.process != os.getpid():
                if crew is not None:
                    # Its threads are in the process that was forked.
                    crew.quit.detach()
                crew = self._crew = _Crew(self.threads - 1)
            return crew

    def close(self) -> None:
        """Lets the threads go; the next run starts others."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.process == os.getpid():
            with crew.lock:
                crew.quit()
