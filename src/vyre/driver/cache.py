"""The disk cache: a directory of bytes that processes share.

The directory holds machine code that is loaded into the process, so it is used only if it belongs to the user and no
other user can write to it. Names are looked up relative to an open directory, links are never followed, and only
regular files of the user's own are read. A fault of the directory is counted and worked around, never raised: the
caller makes again what is missing. An entry is written to a temporary file and renamed, carries a digest of its
content and key, and is removed if it does not match.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Final

import msgspec

import vyre
from vyre.arguments import require
from vyre.driver import telemetry
from vyre.driver.memory_cache import CacheStats
from vyre.errors import BadInputs

_MAGIC: Final = b"vyre-cache-1\n"
_DIGEST_BYTES: Final = 32
_HEAD_BYTES: Final = len(_MAGIC) + _DIGEST_BYTES
_SUFFIX: Final = ".bin"
_TEMPORARY: Final = ".new-"
_LOCK: Final = ".lock"
_LOCK_SECONDS: Final = 2.0
_LOCK_POLL_SECONDS: Final = 0.01
# A write takes milliseconds: what has a temporary name for longer was left by a process that died.
_TEMPORARY_SECONDS: Final = 600.0
_MOST_TEMPORARIES_REMOVED: Final = 1000
# Into how many parts free space is divided: so many processes may each fill one before they look around again.
_SHARES_OF_SPACE: Final = 16
DEFAULT_DISK_BYTES: Final = 512 << 20
# Larger than any kernel's code; what is larger was not written here, and would only fill the memory.
MAX_ENTRY_BYTES: Final = 128 << 20

# Windows lacks these flags, and users: there a profile's directory is private by its access control list.
_PLAIN: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_NO_LINKS: Final = _PLAIN | getattr(os, "O_NOFOLLOW", 0)
# A FIFO is not waited for, and a terminal does not become the process's own.
_NO_WAIT: Final = _NO_LINKS | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_HAS_DIRECTORY_HANDLES: Final = os.open in os.supports_dir_fd
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
# No file can exist below a file: where there is no directory for a cache, every access fails and is worked around.
_NOWHERE: Final = Path(os.devnull, "vyre")


def default_cache_directory() -> Path:
    """``VYRE_CACHE_DIR``, else the platform's directory for caches, else a path where nothing can be stored."""
    chosen = os.environ.get("VYRE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path

    try:
        found = user_cache_path("vyre", appauthor=False)
    except (OSError, RuntimeError, KeyError, ValueError):
        return _NOWHERE
    # Without a home directory, "~" stays as it is, and would become a directory of that name.
    return found if found.is_absolute() else _NOWHERE


class UnsafeCache(BadInputs):
    """A directory that another user owns or can write, from which no code is loaded."""


class _Damaged(Exception):
    """An entry that is not what was written."""


class _Folder:
    """Open directory; names are looked up in it, even if its path leads elsewhere by now."""

    __slots__ = ("handle", "path")

    def __init__(self, path: Path, handle: int | None) -> None:
        self.path = path
        self.handle = handle

    def _name(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """A file descriptor, never of what a link leads to."""
        return os.open(self._name(name), flags | _NO_WAIT, mode, dir_fd=self.handle)

    @contextmanager
    def folder(self, name: str, *, create: bool) -> Iterator[_Folder]:
        """The user's own directory of that name in this one."""
        if create:
            with suppress(FileExistsError):
                os.mkdir(self._name(name), 0o700, dir_fd=self.handle)
        with _opened_folder(self._name(name), self.path / name, inside=self) as inner:
            yield inner

    def listing(self) -> list[str]:
        """The names in the directory."""
        return os.listdir(self.path if self.handle is None else self.handle)

    def status(self, name: str) -> os.stat_result:
        """What a name is, without following a link."""
        return os.stat(self._name(name), dir_fd=self.handle, follow_symlinks=False)

    def read(self, name: str) -> bytes:
        """The content of a regular file of the user's own; the file counts as used now."""
        try:
            handle = self.open(name, os.O_RDONLY)
        except FileNotFoundError:
            raise
        except OSError:
            # A link or a socket cannot be opened, whatever its permissions.
            if not stat.S_ISREG(self.status(name).st_mode):
                raise _Damaged from None
            raise
        try:
            status = os.fstat(handle)
            if not (stat.S_ISREG(status.st_mode) and _is_private(status)) or status.st_size > MAX_ENTRY_BYTES:
                raise _Damaged
            with open(handle, "rb", buffering=0, closefd=False) as file:
                data = file.read(status.st_size)
            with suppress(OSError):
                os.utime(self._name(name), dir_fd=self.handle, follow_symlinks=False)
            return data or b""
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes) -> None:
        """Write a file under a temporary name and rename it, so that readers see all of it or nothing."""
        temporary = f"{_TEMPORARY}{secrets.token_hex(8)}"
        handle = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(self._name(temporary), self._name(name), src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except BaseException:
            with suppress(OSError):
                self.remove(temporary)
            raise

    def remove(self, name: str) -> None:
        """Remove a file, a link or an empty directory."""
        try:
            os.unlink(self._name(name), dir_fd=self.handle)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):
            # Which of the two a directory gives depends on the system.
            if not stat.S_ISDIR(self.status(name).st_mode):
                raise
            os.rmdir(self._name(name), dir_fd=self.handle)


class _Entry(msgspec.Struct, frozen=True):
    """One name in a subdirectory of the cache."""

    folder: str
    name: str
    size: int
    used_ns: int


class DiskCache:
    """Bytes by key in files of one directory, shared by processes, bounded in size; least recently used go first.

    The directory is created for the user alone. If another user owns it or can write to it, or to one of its
    subdirectories, nothing is read or written there, and a warning says so once.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None, max_bytes: int = DEFAULT_DISK_BYTES) -> None:
        if directory is not None:
            require(directory, (str, os.PathLike), "the cache directory", "give the path of a directory.")
        self.directory = default_cache_directory() if directory is None else Path(directory)
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._room = 0
        self._hits = self._misses = self._evictions = self._corrupt = self._errors = 0

    def get(self, key: bytes) -> bytes | None:
        """The stored bytes, or None; an entry that is not what was written is removed."""
        name = _entry_name(key)
        try:
            with self._root() as root, root.folder(name[:2], create=False) as folder:
                try:
                    body = _unsealed(key, folder.read(name))
                except _Damaged:
                    self._count(misses=1, corrupt=1)
                    with self._tolerating_faults():
                        folder.remove(name)
                    return None
        except FileNotFoundError:
            self._count(misses=1)
            return None
        except (OSError, ValueError, UnsafeCache) as error:
            self._note(error)
            self._count(misses=1)
            return None
        self._count(hits=1)
        return body

    def put(self, key: bytes, body: bytes) -> bool:
        """Store bytes; False if that failed, after which they have to be made again another time."""
        if _HEAD_BYTES + len(body) > min(self._max_bytes, MAX_ENTRY_BYTES):
            return False
        data, name = _sealed(key, body), _entry_name(key)
        is_stored = False
        with self._tolerating_faults():
            with self._root(create=True) as root, root.folder(name[:2], create=True) as folder:
                folder.write(name, data)
            is_stored = True
            self._make_room(len(data))
        return is_stored

    def get_or_make(self, key: bytes, make: Callable[[], bytes]) -> bytes:
        """The stored bytes, made and stored if they are missing."""
        found = self.get(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def discard(self, key: bytes) -> None:
        """Remove an entry whose bytes are as they were written, and yet of no use; it counts as corrupt."""
        name = _entry_name(key)
        self._count(corrupt=1)
        with (
            self._tolerating_faults(),
            suppress(FileNotFoundError),
            self._root() as root,
            root.folder(name[:2], create=False) as folder,
        ):
            folder.remove(name)

    def clear(self) -> int:
        """Remove every entry, and return how many there were."""
        removed = 0
        with self._tolerating_faults(), suppress(FileNotFoundError), self._root() as root, self._processes_locked(root):
            for entry in self._entries(root, expired=True):
                with self._tolerating_faults(), root.folder(entry.folder, create=False) as folder:
                    folder.remove(entry.name)
                    removed += 1
        return removed

    def stats(self) -> CacheStats:
        """Contents and counters."""
        entries: list[_Entry] = []
        with self._tolerating_faults(), suppress(FileNotFoundError), self._root() as root:
            entries = self._entries(root)
        size = sum(entry.size for entry in entries)
        with self._lock:
            return CacheStats(
                len(entries), size, self._hits, self._misses, self._evictions, self._corrupt, self._errors
            )

    def require_safe(self) -> None:
        """Raise UnsafeCache if the directory exists and is not the user's alone."""
        with suppress(OSError), self._root():
            pass

    def _path(self, key: bytes) -> Path:
        name = _entry_name(key)
        return self.directory / name[:2] / name

    @contextmanager
    def _root(self, *, create: bool = False) -> Iterator[_Folder]:
        if create:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened_folder(str(self.directory), self.directory) as root:
            yield root

    def _entries(self, root: _Folder, *, expired: bool = False) -> list[_Entry]:
        """Every entry; with ``expired``, what processes that died left behind is removed on the way."""
        found: list[_Entry] = []
        left = _MOST_TEMPORARIES_REMOVED if expired else 0
        oldest = time.time() - _TEMPORARY_SECONDS
        for shelf in root.listing():
            if len(shelf) != 2:
                continue
            # Another process may have removed a name since it was listed.
            with suppress(FileNotFoundError), self._tolerating_faults(), root.folder(shelf, create=False) as folder:
                for name in folder.listing():
                    with suppress(FileNotFoundError):
                        if name.endswith(_SUFFIX):
                            status = folder.status(name)
                            size = status.st_size if stat.S_ISREG(status.st_mode) else 0
                            found.append(_Entry(shelf, name, size, status.st_mtime_ns))
                        elif left and name.startswith(_TEMPORARY) and folder.status(name).st_mtime < oldest:
                            left -= 1
                            folder.remove(name)
        return found

    def _make_room(self, written: int) -> None:
        """Keep the directory within its bound; it is listed only when the room that was found is used up."""
        with self._lock:
            self._room -= written
            if self._room >= 0:
                return
        with self._root() as root:
            size = sum(entry.size for entry in self._entries(root, expired=True))
            if size > self._max_bytes:
                size = self._evict(root)
        with self._lock:
            self._room = (self._max_bytes - size) // _SHARES_OF_SPACE

    def _evict(self, root: _Folder) -> int:
        """Remove the oldest entries until a share of the space is free, and return the bytes that are left."""
        with self._processes_locked(root):
            entries = sorted(self._entries(root), key=lambda entry: entry.used_ns)
            size = sum(entry.size for entry in entries)
            for entry in entries:
                if size <= self._max_bytes - self._max_bytes // _SHARES_OF_SPACE:
                    break
                with suppress(FileNotFoundError), root.folder(entry.folder, create=False) as folder:
                    folder.remove(entry.name)
                size -= entry.size
                self._count(evictions=1)
        return size

    @contextmanager
    def _processes_locked(self, root: _Folder) -> Iterator[None]:
        """Hold the lock that one process has at a time; TimeoutError if another keeps it."""
        try:
            import fcntl
        except ImportError:
            # Without it, two processes may both evict, and more than was needed goes.
            yield
            return
        handle = root.open(_LOCK, os.O_RDWR | os.O_CREAT)
        try:
            status = os.fstat(handle)
            if not (stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()):
                root.remove(_LOCK)
                raise OSError(f"{root.path / _LOCK} is not a file of this user")
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise TimeoutError(f"another process holds {root.path / _LOCK}") from None
                    time.sleep(_LOCK_POLL_SECONDS)
            yield
        finally:
            # Closing it gives up the lock.
            os.close(handle)

    @contextmanager
    def _tolerating_faults(self) -> Iterator[None]:
        """Count and drop a fault of the directory."""
        try:
            yield
        except (OSError, ValueError, UnsafeCache) as error:
            self._note(error)

    def _note(self, error: Exception) -> None:
        """Count a fault, and warn of a directory that is not safe."""
        self._count(errors=1)
        if isinstance(error, UnsafeCache):
            _warn_once(self.directory, error.message, error.fix)

    def _count(self, hits: int = 0, misses: int = 0, evictions: int = 0, corrupt: int = 0, errors: int = 0) -> None:
        with self._lock:
            self._hits += hits
            self._misses += misses
            self._evictions += evictions
            self._corrupt += corrupt
            self._errors += errors
        if errors:
            telemetry.count(cache_errors=errors)


@cache
def source_state(*folders: str) -> bytes:
    """Digest that changes with this package's own source files in the given folders.

    What is made by that code is stored under it, so that other code makes it anew.
    """
    home = Path(vyre.__file__).parent
    digest = blake2b(vyre.__version__.encode(), digest_size=16)
    for folder in folders:
        # In an archive, the version has to tell.
        with suppress(OSError), os.scandir(home / folder) as entries:
            files = sorted((e.name, e.stat().st_size, e.stat().st_mtime_ns) for e in entries if e.name.endswith(".py"))
            digest.update(repr((folder, files)).encode())
    return digest.digest()


def _entry_name(key: bytes) -> str:
    return blake2b(key, digest_size=_DIGEST_BYTES).hexdigest() + _SUFFIX


def _digest(key: bytes, body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_BYTES, key=blake2b(key, digest_size=_DIGEST_BYTES).digest()).digest()


def _sealed(key: bytes, body: bytes) -> bytes:
    return b"".join((_MAGIC, _digest(key, body), body))


def _unsealed(key: bytes, data: bytes) -> bytes:
    body = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _MAGIC + _digest(key, body):
        raise _Damaged
    return body


def _is_private(status: os.stat_result) -> bool:
    """Whether this user owns a file or directory and no other may write to it."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & _WRITABLE_BY_OTHERS)


@contextmanager
def _opened_folder(name: str, path: Path, inside: _Folder | None = None) -> Iterator[_Folder]:
    """A directory of this user's alone; the first may be reached by links, those inside it not."""
    if not _HAS_DIRECTORY_HANDLES:
        yield _Folder(path, None)
        return
    if inside is None:
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _PLAIN)
    else:
        try:
            handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _NO_LINKS, dir_fd=inside.handle)
        except FileNotFoundError:
            raise
        except OSError:
            # A link or a file in the place of a subdirectory: the next write makes the directory.
            if not stat.S_ISDIR(inside.status(name).st_mode):
                inside.remove(name)
            raise
    try:
        status = os.fstat(handle)
        if not _is_private(status):
            raise _unsafe(path, status)
        yield _Folder(path, handle)
    finally:
        os.close(handle)


def _unsafe(path: Path, status: os.stat_result) -> UnsafeCache:
    if status.st_uid != os.geteuid():
        why = f"belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}"
        fix = "set VYRE_CACHE_DIR to a directory of your own."
    else:
        why = f"can be written by other users (mode {stat.S_IMODE(status.st_mode):04o})"
        fix = f"chmod go-w {path}, or set VYRE_CACHE_DIR to a directory of your own."
    return UnsafeCache(
        f"the cache directory {path} {why}: no code is loaded from there or stored there, and programs are compiled "
        "again in every process.",
        fix,
    )


@cache
def _warn_once(_directory: Path, message: str, fix: str) -> None:
    warnings.warn(f"{message} Fix: {fix}", RuntimeWarning, stacklevel=2)
