"""What was made before? A bounded memory of objects, and a directory of bytes that processes share.

The directory is a convenience: whatever fails in it is counted and worked around, never raised. An entry is written
to a temporary file and renamed, carries a digest of its content and key, and is dropped if it does not match.
"""

from __future__ import annotations

import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Final, Generic, TypeVar

import msgspec
from filelock import FileLock
from filelock import Timeout as LockTimeout

import vyre
from vyre.driver import telemetry, trace

Key = TypeVar("Key")
Value = TypeVar("Value")

_MAGIC: Final = b"vyre-cache-1\n"
_DIGEST_BYTES: Final = 32
_SUFFIX: Final = ".bin"
_LOCK_SECONDS: Final = 10.0
# Into how many parts free space is divided: so many processes may each fill one before they look around again.
_SHARES_OF_SPACE: Final = 16
DEFAULT_DISK_BYTES: Final = 512 << 20


class CacheStats(msgspec.Struct, frozen=True):
    """What a cache holds and how it served; ``errors`` are failures that were worked around."""

    entries: int
    size_bytes: int
    hits: int
    misses: int
    evictions: int
    corrupt: int = 0
    errors: int = 0


class MemoryCache(Generic[Value]):
    """The least recently used entries go when there are too many, or too many bytes."""

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
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def take(self, key: Hashable) -> Value | None:
        """The entry, which nobody else gets until it is put back."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._remove(key)
            return entry[0]

    def put(self, key: Hashable, value: Value) -> None:
        size = self._size_of(value)
        with self._lock:
            self._remove(key)
            self._entries[key] = value, size
            self._bytes += size
            while len(self._entries) > self._max_entries or (
                self._max_bytes is not None and self._bytes > self._max_bytes
            ):
                self._remove(next(iter(self._entries)))
                self._evictions += 1

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The entry, made if it is not there; two threads may both make it, and one of the two is kept."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._bytes = 0

    def stats(self) -> CacheStats:
        with self._lock:
            return CacheStats(len(self._entries), self._bytes, self._hits, self._misses, self._evictions)

    def _remove(self, key: Hashable) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry[1]


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


def default_cache_directory() -> Path:
    """``VYRE_CACHE_DIR``, or the platform's place for what can be made again."""
    chosen = os.environ.get("VYRE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path

    return user_cache_path("vyre", appauthor=False)


class DiskCache:
    """Bytes by key, in files, shared by processes and bounded in size; the least recently used go first."""

    def __init__(self, directory: Path | None = None, max_bytes: int = DEFAULT_DISK_BYTES) -> None:
        self.directory = default_cache_directory() if directory is None else Path(directory)
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._room = 0
        self._hits = self._misses = self._evictions = self._corrupt = self._errors = 0

    def get(self, key: bytes) -> bytes | None:
        """The bytes that were stored, or None; an entry that is not what was written is dropped."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            self._count(misses=1)
            return None
        except OSError:
            self._count(misses=1, errors=1)
            return None
        body = data[len(_MAGIC) + _DIGEST_BYTES :]
        if data != _sealed(key, body):
            self._count(misses=1, corrupt=1)
            with self._working_around():
                path.unlink(missing_ok=True)
            return None
        self._count(hits=1)
        with suppress(OSError):
            os.utime(path)
        return body

    def put(self, key: bytes, body: bytes) -> bool:
        """Stores bytes; False if that did not work, which costs nothing but the next process's time."""
        data = _sealed(key, body)
        if len(data) > self._max_bytes:
            return False
        with self._working_around():
            path = self._path(key)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_and_rename(path, data)
            self._make_room(len(data))
            return True
        return False

    def get_or_make(self, key: bytes, make: Callable[[], bytes]) -> bytes:
        """The stored bytes, made and stored if they are not there."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def clear(self) -> int:
        """Removes every entry; gives how many there were."""
        removed = 0
        with self._working_around(), self._processes_locked():
            for path, _ in self._files():
                with self._working_around():
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed

    def stats(self) -> CacheStats:
        sizes = [status.st_size for _, status in self._files()]
        with self._lock:
            return CacheStats(
                len(sizes), sum(sizes), self._hits, self._misses, self._evictions, self._corrupt, self._errors
            )

    def _path(self, key: bytes) -> Path:
        name = blake2b(key, digest_size=_DIGEST_BYTES).hexdigest()
        return self.directory / name[:2] / (name + _SUFFIX)

    def _files(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        with suppress(OSError):
            for path in self.directory.glob(f"??/*{_SUFFIX}"):
                # Another process may have removed it since it was listed.
                with suppress(OSError):
                    found.append((path, path.stat()))
        return found

    def _make_room(self, written: int) -> None:
        """Keeps the directory within its bound; looks at all of it only after writing what it had room for."""
        with self._lock:
            self._room -= written
            if self._room >= 0:
                return
        size = sum(status.st_size for _, status in self._files())
        if size > self._max_bytes:
            size = self._evict()
        with self._lock:
            self._room = (self._max_bytes - size) // _SHARES_OF_SPACE

    def _evict(self) -> int:
        """Drops the oldest entries until a share of the space is free; gives the bytes that are left."""
        with self._processes_locked():
            files = sorted(self._files(), key=lambda file: file[1].st_mtime_ns)
            size = sum(status.st_size for _, status in files)
            for path, status in files:
                if size <= self._max_bytes - self._max_bytes // _SHARES_OF_SPACE:
                    break
                path.unlink(missing_ok=True)
                size -= status.st_size
                self._count(evictions=1)
        return size

    @contextmanager
    def _processes_locked(self) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with FileLock(self.directory / ".lock", timeout=_LOCK_SECONDS):
            yield

    @contextmanager
    def _working_around(self) -> Iterator[None]:
        try:
            yield
        except (OSError, LockTimeout):
            self._count(errors=1)

    def _count(self, hits: int = 0, misses: int = 0, evictions: int = 0, corrupt: int = 0, errors: int = 0) -> None:
        with self._lock:
            self._hits += hits
            self._misses += misses
            self._evictions += evictions
            self._corrupt += corrupt
            self._errors += errors
        if errors:
            telemetry.count(cache_errors=errors)


class CodeCache(Generic[Value]):
    """Compiled code by ``pipeline_key``: what is loaded in memory, its bytes on disk, and how many compilations ran."""

    def __init__(
        self, load: Callable[[bytes], Value], *, max_entries: int = 256, disk: DiskCache | None = None
    ) -> None:
        self._load = load
        self._memory: MemoryCache[Value] = MemoryCache(max_entries)
        self._disk = disk

    def get(self, key: bytes, compile_bytes: Callable[[], bytes]) -> Value:
        """The loaded code; compiled only if neither memory nor disk has it, or what disk has does not load."""
        found = self._memory.get(key)
        if found is None:
            found = self._from_disk(key)
        if found is not None:
            telemetry.count(compile_hits=1)
            return found
        telemetry.count(compile_misses=1)
        with trace.span("compile", "cache", key=key.hex()[:16]):
            body = compile_bytes()
        if self._disk is not None:
            self._disk.put(key, body)
        loaded = self._load(body)
        self._memory.put(key, loaded)
        return loaded

    def clear(self) -> None:
        """Forgets what is in memory; the disk is for all processes and is cleared on its own."""
        self._memory.clear()

    def stats(self) -> CacheStats:
        return self._memory.stats()

    def _from_disk(self, key: bytes) -> Value | None:
        body = None if self._disk is None else self._disk.get(key)
        if body is None:
            return None
        try:
            loaded = self._load(body)
        except Exception:
            # Whole, as its digest says, and yet of no use: another version of the loader wrote it.
            telemetry.count(cache_errors=1)
            return None
        self._memory.put(key, loaded)
        return loaded


@cache
def source_state(*folders: str) -> bytes:
    """What tells one state of this package's own files from another, of those in some of its folders.

    What is made by them, and kept by what it is made from, has to be made again when they change.
    """
    home = Path(vyre.__file__).parent
    digest = blake2b(vyre.__version__.encode(), digest_size=16)
    for folder in folders:
        # In an archive, the version has to tell.
        with suppress(OSError), os.scandir(home / folder) as entries:
            files = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.name.endswith(".py"))
            digest.update(repr((folder, files)).encode())
    return digest.digest()


def _sealed(key: bytes, body: bytes) -> bytes:
    digest = blake2b(body, digest_size=_DIGEST_BYTES, key=blake2b(key, digest_size=_DIGEST_BYTES).digest()).digest()
    return b"".join((_MAGIC, digest, body))


def _write_and_rename(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=".new-", dir=path.parent)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
