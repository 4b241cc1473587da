"""Bounded caches of objects in memory, safe to use from several threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

import msgspec

Key = TypeVar("Key")
Value = TypeVar("Value")


class CacheStats(msgspec.Struct, frozen=True):
    """Contents and counters of a cache; ``errors`` are faults that were worked around."""

    entries: int
    size_bytes: int
    hits: int
    misses: int
    evictions: int
    corrupt: int = 0
    errors: int = 0


class MemoryCache(Generic[Value]):
    """Least-recently-used cache, bounded in entries and, if ``max_bytes`` is given, in bytes."""

    def __init__(
        self, max_entries: int, max_bytes: int | None = None, size_of: Callable[[Value], int] = lambda _: 0
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._size_of = size_of
        self._entries: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()
        self._bytes = self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable) -> Value | None:
        """The entry, which becomes the most recently used; None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def pop(self, key: Hashable) -> Value | None:
        """Remove and return the entry, so that its user has it alone until it is put back."""
        with self._lock:
            entry = self._remove(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            return entry[0]

    def put(self, key: Hashable, value: Value) -> None:
        """Add or replace an entry, and evict the least recently used ones that are over a bound."""
        size = self._size_of(value)
        # Released after the lock: what a value does when it goes may use this cache again.
        dropped: list[object] = []
        with self._lock:
            dropped.append(self._remove(key))
            self._entries[key] = value, size
            self._bytes += size
            while len(self._entries) > self._max_entries or (
                self._max_bytes is not None and self._bytes > self._max_bytes
            ):
                dropped.append(self._remove(next(iter(self._entries))))
                self._evictions += 1

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry, made if it is missing; two threads may both make it, and the later one is kept."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def clear(self) -> None:
        """Remove every entry."""
        with self._lock:
            dropped, self._entries = self._entries, OrderedDict()
            self._bytes = 0
        dropped.clear()

    def stats(self) -> CacheStats:
        """Contents and counters."""
        with self._lock:
            return CacheStats(len(self._entries), self._bytes, self._hits, self._misses, self._evictions)

    def _remove(self, key: Hashable) -> tuple[Value, int] | None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]
        return entry


class BoundedDict(dict[Key, Value]):
    """A dictionary that is emptied when it is full: for what is looked up on every call, and cheap to make again."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def keep(self, key: Key, value: Value) -> Value:
        """Store an entry and return its value."""
        if len(self) >= self._most:
            self.clear()
        self[key] = value
        return value
