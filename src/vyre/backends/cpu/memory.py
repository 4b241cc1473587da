"""Page-recycling allocator for large host arrays.

The system clears a page when it is first touched, which takes longer than a kernel that writes it. So the pages of dead
arrays are kept, up to a limit, and marked so that the system may reclaim them when it needs memory.

Arrays begin at cache lines, at varying offsets within a page. Processors compare the low bits of addresses to tell
whether a load has to wait for a store: kernels that write slightly ahead of what they read, modulo a page, are slow.
"""

from __future__ import annotations

import mmap
import weakref
from collections import deque
from contextlib import suppress
from itertools import count
from typing import Any, Final

import numpy as np

from vyre.ir.binding import Array

# Shorter arrays are NumPy's.
LARGE_BYTES: Final = 1 << 21
_PAGE: Final = 4096
_MOST_KEPT: Final = 64
_MOST_BYTES_KEPT: Final = 1 << 29
# NumPy's own large arrays begin at page boundaries, these away from them.
_PLACES: Final = range(512, _PAGE, 512)


class Memory:
    """Allocator of large arrays, with a free list of pages."""

    def __init__(self) -> None:
        self._kept: deque[mmap.mmap] = deque(maxlen=_MOST_KEPT)
        self._number = count()

    def empty(self, length: int, storage: np.dtype[Any]) -> Array:
        """Return an uninitialized array; its pages are kept once it and all of its views are gone."""
        return self._array(*self._pages(_PAGE + length * storage.itemsize), length, storage, clears=False)

    def copy(self, array: Array) -> Array:
        """Return a copy of an array."""
        copied = self.empty(array.size, array.dtype)
        np.copyto(copied, array)
        return copied

    def zeros(self, size: int) -> Array:
        """Return an array of zero bytes."""
        return self._array(*self._pages(_PAGE + size), size, np.dtype(np.uint8), clears=True)

    def forget(self) -> None:
        """Free the pages that are kept."""
        self._kept.clear()

    def _array(self, pages: mmap.mmap, is_new: bool, length: int, storage: np.dtype[Any], *, clears: bool) -> Array:
        place = _PLACES[next(self._number) % len(_PLACES)]
        # Views of views all refer to the root array, which is this one, and it refers to its base.
        array: Array = np.frombuffer(pages, storage, length, place)
        weakref.finalize(array.base, _keep, self._kept, pages).atexit = False
        if clears and not is_new:
            array.fill(0)
        return array

    def _pages(self, size: int) -> tuple[mmap.mmap, bool]:
        """Return pages of about that size, and whether they are new and therefore zero."""
        # Most recently kept pages first. A finalizer may append pages between any two steps, so each candidate is
        # popped to be examined; the queue is never iterated over.
        with suppress(IndexError):
            for _ in range(len(self._kept)):
                pages = self._kept.pop()
                if size <= len(pages) <= size + size // 4:
                    return pages, False
                self._kept.appendleft(pages)
        try:
            return _new_pages(size), True
        except OSError:
            self.forget()
        try:
            return _new_pages(size), True
        except OSError as error:
            raise MemoryError from error


def _new_pages(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # not every system has large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _keep(kept: deque[mmap.mmap], pages: mmap.mmap) -> None:
    """Keep pages, reclaimable by the system where it supports that, and drop the oldest beyond the limit."""
    if len(pages) <= _MOST_BYTES_KEPT and hasattr(mmap, "MADV_FREE"):
        with suppress(OSError, IndexError):
            pages.madvise(mmap.MADV_FREE)
            kept.append(pages)
            while sum(map(len, list(kept))) > _MOST_BYTES_KEPT:
                kept.popleft()
