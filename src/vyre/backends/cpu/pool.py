"""Thread pool of the cpu backend: the caller, and worker threads that wait in native code.

A pool runs one job at a time. A caller that finds it busy runs its launch on its own thread. Threads do not survive a
fork: a child process starts its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cached_property
from threading import Lock, Thread, Timer
from typing import Final

import numpy as np

from vyre.backends.cpu import layout
from vyre.backends.cpu.compile import Loaded
from vyre.backends.cpu.interrupts import InterruptState, interrupt_state, raise_interrupt
from vyre.backends.cpu.launches import PreparedLaunch, Sharing, address_of, aligned_bytes
from vyre.backends.cpu.layout import WORD_BYTES, Ending, Part, Reason
from vyre.backends.cpu.native import native
from vyre.driver.cache import DiskCache
from vyre.errors import BadInputs
from vyre.ir.binding import Array

# Polls of a waiting thread before it sleeps: some tens of microseconds, longer than most kernels take between two grid
# barriers.
_SPIN_LIMIT: Final = 2048

_INTERRUPTED: Final = int(Reason.INTERRUPTED)
_NOT_ENTERED: Final = int(Reason.NOT_ENTERED)
_NOT_BEGUN: Final = int(Ending.NOT_BEGUN)
_ENDINGS: Final = tuple(Ending)
_UNTIMED: Final = nullcontext()

_OfPool: Final = CFUNCTYPE(None, c_void_p)
_Worker: Final = CFUNCTYPE(None, c_void_p, c_int64)
_Enter: Final = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p, c_void_p)
_Walk: Final = CFUNCTYPE(c_int64, c_void_p, c_void_p)


def processors() -> int:
    """Number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_threads(threads: int | None) -> int:
    """Return the number given, else ``VYRE_THREADS``, else one for each processor this process may use."""
    source, text = "threads", str(threads)
    if threads is None:
        source, text = "VYRE_THREADS", os.environ.get("VYRE_THREADS", "")
        if not text:
            return processors()
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise BadInputs(f"{source} is {text!r}.", "give a number of threads from 1 to 1024, or leave it out.")
    return int(text)


class _Workers:
    """Running worker threads, and the struct that they wait on."""

    def __init__(self, code: Loaded, count: int) -> None:
        self.process = os.getpid()
        memory = aligned_bytes(WORD_BYTES * (layout.Pool.WORDS + Part.WORDS * (count + 1)))
        words = memory.view(np.int64)
        words[layout.Pool.THREADS] = count + 1
        # A thread that spins on a processor that others need delays what it waits for.
        words[layout.Pool.SPINS] = _SPIN_LIMIT if count < processors() else 0
        self.address = address_of(memory)
        _OfPool(code.address("prepare"))(self.address)
        worker = _Worker(code.address("worker"))
        for number in range(1, count + 1):
            Thread(target=_wait_for_work, args=(worker, memory, number), name=f"vyre-cpu-{number}", daemon=True).start()
        self._memory = memory
        self.quit = weakref.finalize(self, _OfPool(code.address("quit")), self.address)
        # At exit the process takes its threads along; telling them would only race with the end of Python.
        self.quit.atexit = False


def _wait_for_work(worker: Callable[[int, int], None], memory: Array, number: int) -> None:
    # The thread keeps the memory it waits on alive.
    worker(address_of(memory), number)


def stopping_after(timeout_s: float | None, words: Array, place: int) -> AbstractContextManager[None]:
    """Store TIMED_OUT into a stop word when the time is over."""
    return _UNTIMED if timeout_s is None else _timed(timeout_s, words, place)


@contextmanager
def _timed(timeout_s: float, words: Array, place: int) -> Iterator[None]:
    timer = Timer(timeout_s, words.__setitem__, (place, Reason.TIMED_OUT))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Pool:
    """Runs launches and walks with a number of threads, the caller among them."""

    def __init__(self, sharing: Sharing, disk: DiskCache) -> None:
        self.sharing = sharing
        self._disk = disk
        self._workers: _Workers | None = None
        self._starting = Lock()

    @cached_property
    def _enter(self) -> Callable[[int | None, int, bytes, int | None], int]:
        return _Enter(native(self._disk).address("enter"))

    @cached_property
    def _enter_interruptibly(self) -> Callable[[int | None, int, bytes, int | None], int]:
        return _Enter(native(self._disk).address("enter_interruptibly"))

    @cached_property
    def _walk(self) -> Callable[[int | None, int], int]:
        return _Walk(native(self._disk).address("walk"))

    @cached_property
    def _walk_interruptibly(self) -> Callable[[int | None, int], int]:
        return _Walk(native(self._disk).address("walk_interruptibly"))

    @cached_property
    def _interrupts(self) -> InterruptState:
        return interrupt_state(native(self._disk))

    def run(self, launch: PreparedLaunch, memory: Sequence[Array], timeout_s: float | None) -> int:
        """Run a launch; return 0, or why not all of it ran: MISALIGNED, TIMED_OUT, or what the kernel stored."""
        arrays = memory if launch.is_simple else launch.arrays(memory)
        objects = launch.pack(*map(id, arrays))
        # The reference keeps the pool's memory while native code uses it.
        workers = self._workers_of_this_process() if launch.is_shared else None
        pool = None if workers is None else workers.address
        if timeout_s is None and not launch.takes_long:
            return self._enter(pool, launch.frame, objects, None)
        if timeout_s is None:
            reason = self._enter_admitting(pool, launch.frame, objects, None)
        else:
            stop = np.zeros(1, np.int64)
            with stopping_after(timeout_s, stop, 0):
                reason = self._enter_admitting(pool, launch.frame, objects, address_of(stop))
        if reason == _INTERRUPTED:
            raise_interrupt()
        return reason

    def _enter_admitting(self, pool: int | None, frame: int, objects: bytes, stop: int | None) -> int:
        """Enter a launch that Ctrl-C can end, if this is the main thread."""
        while self._interrupts.admits():
            reason = self._enter_interruptibly(pool, frame, objects, stop)
            if reason != _NOT_ENTERED:
                return reason
        return self._enter(pool, frame, objects, stop)

    def walk(self, run: int, *, shared: bool) -> Ending:
        """Walk a table from where its run is, on all threads if some of its nodes are worth sharing."""
        workers = self._workers_of_this_process() if shared else None
        pool = None if workers is None else workers.address
        while self._interrupts.admits():
            ending = self._walk_interruptibly(pool, run)
            if ending != _NOT_BEGUN:
                return _ENDINGS[ending]
        return _ENDINGS[self._walk(pool, run)]

    def _workers_of_this_process(self) -> _Workers:
        workers = self._workers
        if workers is not None and workers.process == os.getpid():
            return workers
        with self._starting:
            workers = self._workers
            if workers is None or workers.process != os.getpid():
                if workers is not None:
                    # Its threads are in the process that was forked.
                    workers.quit.detach()
                workers = self._workers = _Workers(native(self._disk), self.sharing.threads - 1)
            return workers

    def close(self) -> None:
        """Let the threads return; the next run starts others."""
        workers, self._workers = self._workers, None
        if workers is not None and workers.process == os.getpid():
            workers.quit()
