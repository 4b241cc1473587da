"""Who runs kernels? The caller, and for larger grids threads that wait in native code for their share of the work.

A pool has one job at a time; whoever finds it busy runs his kernels alone. Threads do not outlive a fork: a child
process finds that it is another one, and starts its own.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import CFUNCTYPE, c_int64, c_void_p
from functools import cached_property
from threading import Lock, Thread, Timer
from typing import Final

import numpy as np

from vyre.backends.cpu.compile import Loaded
from vyre.backends.cpu.launches import PreparedLaunch, Sharing, address_of, aligned_bytes
from vyre.backends.cpu.native import PART_BYTES, POOL_BYTES, SPINS_WORD, THREADS_WORD, Ending, native
from vyre.driver.cache import DiskCache
from vyre.errors import BadInputs
from vyre.ir.binding import Array

MISALIGNED: Final = -1
TIMED_OUT: Final = 1
# Some tens of microseconds: longer than most kernels take between two grid barriers, shorter than anybody notices.
_SPINS: Final = 2048

_OfPool: Final = CFUNCTYPE(None, c_void_p)
_Worker: Final = CFUNCTYPE(None, c_void_p, c_int64)
_Enter: Final = CFUNCTYPE(c_int64, c_void_p, c_void_p, c_void_p, c_void_p)
_Walk: Final = CFUNCTYPE(c_int64, c_void_p, c_void_p)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def wanted_threads(threads: int | None) -> int:
    """The number asked for, else ``VYRE_THREADS``, else one for each processor this process may use."""
    source, text = "threads", str(threads)
    if threads is None:
        source, text = "VYRE_THREADS", os.environ.get("VYRE_THREADS", "")
        if not text:
            return processors()
    if not text.isdecimal() or not 1 <= int(text) <= 1024:
        raise BadInputs(f"{source} is {text!r}.", "give a number of threads from 1 to 1024, or leave it out.")
    return int(text)


class _Crew:
    """Running threads and the memory they wait on."""

    def __init__(self, code: Loaded, helpers: int) -> None:
        self.process = os.getpid()
        self.lock = Lock()
        memory = aligned_bytes(POOL_BYTES + PART_BYTES * (helpers + 1))
        words = memory.view(np.int64)
        words[THREADS_WORD] = helpers + 1
        # Who waits on a processor that others need keeps them from what he waits for.
        words[SPINS_WORD] = _SPINS if helpers < processors() else 0
        self.pool = address_of(memory)
        _OfPool(code.address("prepare"))(self.pool)
        worker = _Worker(code.address("worker"))
        for number in range(1, helpers + 1):
            Thread(target=_wait_for_work, args=(worker, memory, number), name=f"vyre-cpu-{number}", daemon=True).start()
        self._memory = memory
        self.quit = weakref.finalize(self, _OfPool(code.address("quit")), self.pool)
        # At exit the process takes its threads along; telling them would only race with the end of Python.
        self.quit.atexit = False


def _wait_for_work(worker: Callable[[int, int], None], memory: Array, number: int) -> None:
    # The thread keeps the memory it waits on alive.
    worker(address_of(memory), number)


@contextmanager
def stopping_after(timeout_s: float | None, words: Array, place: int) -> Iterator[None]:
    """Sets a stop word when the time is over."""
    if timeout_s is None:
        yield
        return
    timer = Timer(timeout_s, words.__setitem__, (place, TIMED_OUT))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Pool:
    """Runs kernels with a number of threads, the caller among them."""

    def __init__(self, sharing: Sharing, disk: DiskCache) -> None:
        self.sharing = sharing
        self._disk = disk
        self._crew: _Crew | None = None
        self._starting = Lock()

    @cached_property
    def _enter(self) -> Callable[[int | None, int, bytes, int | None], int]:
        return _Enter(native(self._disk).address("enter"))

    @cached_property
    def _walk(self) -> Callable[[int | None, int], int]:
        return _Walk(native(self._disk).address("walk"))

    def run(self, launch: PreparedLaunch, memory: Sequence[Array], timeout_s: float | None) -> int:
        """Runs a launch; 0, or why not all of it ran: MISALIGNED, TIMED_OUT, or what the kernel says."""
        arrays = memory if launch.is_simple else launch.arrays(memory)
        objects, shared = launch.pack(*map(id, arrays)), launch.is_shared
        if timeout_s is None:
            return self._share(launch, objects, None) if shared else self._enter(None, launch.frame, objects, None)
        stop = np.zeros(1, np.int64)
        word = address_of(stop)
        with stopping_after(timeout_s, stop, 0):
            return self._share(launch, objects, word) if shared else self._enter(None, launch.frame, objects, word)

    def _share(self, launch: PreparedLaunch, objects: bytes, stop_word: int | None) -> int:
        return self._with_help(lambda pool: self._enter(pool, launch.frame, objects, stop_word))

    def walk(self, run: int, *, shared: bool) -> Ending:
        """Walks a table from where its run is, with help if some of its nodes are worth sharing."""
        return Ending(self._with_help(lambda pool: self._walk(pool, run)) if shared else self._walk(None, run))

    def _with_help(self, run: Callable[[int | None], int]) -> int:
        """Calls with a pool, or with None if somebody else has it."""
        crew = self._crew_of_this_process()
        if not crew.lock.acquire(blocking=False):
            return run(None)
        try:
            return run(crew.pool)
        finally:
            crew.lock.release()

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
                crew = self._crew = _Crew(native(self._disk), self.sharing.threads - 1)
            return crew

    def close(self) -> None:
        """Lets the threads go; the next run starts others."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.process == os.getpid():
            with crew.lock:
                crew.quit()
