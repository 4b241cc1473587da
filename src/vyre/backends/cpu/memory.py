"""Where do large arrays lie? In pages of their own, of which some are kept for the next array.

The system clears a page when it is first touched, which takes longer than a kernel that writes it. So pages that nobody
looks at any more are kept, a few, and the system is told that it may have them as soon as it needs memory.

Arrays begin at cache lines, and at different places of a page. Processors compare the last bits of addresses to tell
whether a load has to wait for a store: a kernel that writes a little ahead of what it reads, on any page, is slow.
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
# NumPy's own large arrays begin where a page does, and these nowhere near.
_PLACES: Final = range(512, _PAGE, 512)


class Memory:
    """Gives arrays, and keeps the pages of large ones."""

    def __init__(self) -> None:
        self._kept: deque[mmap.mmap] = deque(maxlen=_MOST_KEPT)
        self._number = count()

    def empty(self, length: int, storage: np.dtype[Any]) -> Array:
        """A large array that may hold anything; its pages are kept when neither it nor a view of it is left."""
        return self._array(*self._pages(_PAGE + length * storage.itemsize), length, storage, clears=False)

    def copy(self, array: Array) -> Array:
        copied = self.empty(array.size, array.dtype)
        np.copyto(copied, array)
        return copied

    def zeros(self, size: int) -> Array:
        """The same, of bytes that are zero."""
        return self._array(*self._pages(_PAGE + size), size, np.dtype(np.uint8), clears=True)

    def forget(self) -> None:
        """Lets go of pages that are kept."""
        self._kept.clear()

    def _array(self, pages: mmap.mmap, is_new: bool, length: int, storage: np.dtype[Any], *, clears: bool) -> Array:
        place = _PLACES[next(self._number) % len(_PLACES)]
        # Whatever is made of a view holds on to the array at the root of all, which is this one, and that to its base.
        array: Array = np.frombuffer(pages, storage, length, place)
        weakref.finalize(array.base, _keep, self._kept, pages).atexit = False
        if clears and not is_new:
            array.fill(0)
        return array

    def _pages(self, size: int) -> tuple[mmap.mmap, bool]:
        """Pages of about that size, and whether they are new, and so zero."""
        # The last that were kept come first. Any step of Python's may find that an array is gone, and keep its pages:
        # so each is taken out to be looked at, and nobody goes along the queue.
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
        with suppress(OSError):  # not every kernel has large pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _keep(kept: deque[mmap.mmap], pages: mmap.mmap) -> None:
    """Keeps pages as long as nobody needs the memory, where the system can be told so, and lets the oldest go."""
    if len(pages) <= _MOST_BYTES_KEPT and hasattr(mmap, "MADV_FREE"):
        with suppress(OSError, IndexError):
            pages.madvise(mmap.MADV_FREE)
            kept.append(pages)
            while sum(map(len, list(kept))) > _MOST_BYTES_KEPT:
                kept.popleft()
