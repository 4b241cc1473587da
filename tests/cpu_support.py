"""Runs cases on the processor, and keeps compiled code away from the user's cache."""

from __future__ import annotations

import ctypes
import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import pytest

from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.compile import object_code
from vyre.backends.cpu.kernels import CompiledKernel
from vyre.backends.cpu.launches import Sharing
from vyre.conform.case import Case
from vyre.conform.runner import Outcome, compare, meaning, run_case
from vyre.driver.cache import DEFAULT_DISK_BYTES, DiskCache
from vyre.errors import VyreError
from vyre.optimizer.switches import Optimization

__all__ = [
    "Outcome", "as_if_large", "backend", "call", "code_made_once", "compare", "difference", "guarded", "meaning",
    "outcome", "run_case", "sharing_backend",
]  # fmt: skip

# Goes with the process: what is compiled in one run of the tests is nobody's business in the next.
DIRECTORY = tempfile.TemporaryDirectory(prefix="vyre-test-cache-", ignore_cleanup_errors=True)


@cache
def backend(
    width: int | None = None, threads: int = 1, check_elimination: bool = True, *, keep: bool = True
) -> CpuBackend:
    """A backend whose code is verified by LLVM, with a cache that nobody has written to before this run.

    Who compiles thousands of programs once each has no use for a cache, and says that it shall ``keep`` nothing.
    """
    return _verified(width, Sharing(threads), check_elimination, keep)


@cache
def sharing_backend(
    threads: int = 2, width: int = 4, check_elimination: bool = True, *, keep: bool = True
) -> CpuBackend:
    """A backend whose threads share whatever they can, however small it is."""
    return _verified(width, Sharing(threads, worth_sharing=1, flat_grain=1), check_elimination, keep)


def _verified(width: int | None, sharing: Sharing, check_elimination: bool, keep: bool) -> CpuBackend:
    kept = DiskCache(Path(DIRECTORY.name), DEFAULT_DISK_BYTES if keep else 0)
    return CpuBackend(width=width, sharing=sharing, verify=True, cache=kept, check_elimination=check_elimination)


def outcome(case: Case, on: CpuBackend, *, optimize: bool | Optimization = True) -> Outcome:
    """What it gives here; any failure without a name is one that was not meant.

    True and False are about the code only: what a test is about is not to be optimised away, unless it asks for that.
    """
    if isinstance(optimize, bool):
        optimize = Optimization(program=False, code=optimize)
    try:
        return run_case(case, on, optimize=optimize)
    except VyreError as error:
        return error.code
    except Exception as error:
        return repr(error)


def difference(case: Case, on: CpuBackend, *, optimize: bool | Optimization = True) -> str | None:
    """What is different from the reference."""
    return compare(meaning(case), outcome(case, on, optimize=optimize))


@contextmanager
def as_if_large(chosen: bool = True) -> Iterator[None]:
    """Has every launch read ahead, write past the caches, and use memory again that others have used."""
    with pytest.MonkeyPatch.context() as patch:
        if chosen:
            patch.setattr("vyre.emit.llvm.shell.PREFETCH_INVOCATIONS", 0)
            patch.setattr("vyre.emit.llvm.shell.STREAMED_BYTES", 0)
            patch.setattr("vyre.backends.cpu.device.LARGE_BYTES", 1)
        yield


def call(compiled: CompiledKernel, block: np.ndarray, count: int) -> None:
    """Calls a kernel by itself, over the first so many of its invocations or workgroups."""
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(compiled.address)
    function(block.ctypes.data, 0, count)


@contextmanager
def code_made_once() -> Iterator[None]:
    """Whoever asks, LLVM makes the code of a text once: backends whose threads differ in number have the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vyre.backends.cpu.compile.object_code", lru_cache(maxsize=16)(object_code))
        yield


def guarded(size: int, *, at_front: bool = False) -> tuple[mmap.mmap, int]:
    """Memory of that many bytes just before a page that nobody may touch, or just behind one.

    Gives what owns the memory, and its address.
    """
    page = mmap.PAGESIZE
    pages = -(-size // page) + 1
    owner = mmap.mmap(-1, (pages + 1) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(owner))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for forbidden in (start, start + pages * page):
        assert protect(ctypes.c_void_p(forbidden), ctypes.c_size_t(page), 0) == 0
    return owner, start + page if at_front else start + pages * page - size
