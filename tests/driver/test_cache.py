"""Caches: bounded, shared by processes, and never the cause of a failure."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.compile import Loaded, kept_object_code
from vyre.driver import DispatchConfig, telemetry
from vyre.driver import cache as cache_module
from vyre.driver.cache import DiskCache, default_cache_directory
from vyre.driver.memory_cache import MemoryCache
from vyre.errors import KernelCompileFailed
from vyre.ir import parse


def entry_file(cache: DiskCache) -> Path:
    (path,) = cache.directory.glob("??/*.bin")
    return path


def test_memory_drops_what_was_used_longest_ago() -> None:
    cache: MemoryCache[str] = MemoryCache(2)
    cache.put("a", "A")
    cache.put("b", "B")
    assert cache.get("a") == "A"
    cache.put("c", "C")
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ("A", None, "C")
    stats = cache.stats()
    assert (stats.entries, stats.hits, stats.misses, stats.evictions) == (2, 3, 1, 1)


def test_memory_is_bounded_in_bytes() -> None:
    cache: MemoryCache[bytes] = MemoryCache(100, max_bytes=10, size_of=len)
    cache.put("a", b"12345")
    cache.put("b", b"12345")
    cache.put("a", b"123")
    assert cache.stats().size_bytes == 8
    cache.put("c", b"123")
    assert (cache.get("b"), cache.stats().size_bytes) == (None, 6)
    cache.put("huge", bytes(11))
    assert cache.stats().entries == 0
    assert cache.get_or_make("made", lambda: b"x") == b"x"
    assert cache.get_or_make("made", lambda: b"y") == b"x"
    cache.clear()
    assert (cache.stats().entries, cache.stats().size_bytes) == (0, 0)


@given(st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=6))), st.integers(1, 4), st.integers(0, 12))
def test_memory_never_exceeds_its_bounds_nor_lies(puts: list[tuple[int, bytes]], entries: int, size: int) -> None:
    cache: MemoryCache[bytes] = MemoryCache(entries, max_bytes=size, size_of=len)
    latest: dict[int, bytes] = {}
    for key, value in puts:
        cache.put(key, value)
        latest[key] = value
        stats = cache.stats()
        assert stats.entries <= entries
        assert stats.size_bytes <= size
        for other, expected in latest.items():
            assert cache.get(other) in (None, expected)


def test_what_is_stored_is_found_by_another_process(tmp_path: Path) -> None:
    first, second = DiskCache(tmp_path), DiskCache(tmp_path)
    assert first.get(b"key") is None
    assert first.put(b"key", b"code")
    assert second.get(b"key") == b"code"
    assert second.get(b"other") is None
    assert second.get_or_make(b"key", lambda: b"new") == b"code"
    assert second.get_or_make(b"other", lambda: b"new") == b"new"
    assert first.get(b"other") == b"new"
    stats = first.stats()
    assert (stats.entries, stats.hits, stats.misses, stats.errors) == (2, 1, 1, 0)
    assert first.clear() == 2
    assert second.get(b"key") is None


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "garbage", "other key", "longer"])
def test_a_damaged_entry_is_dropped_and_made_again(tmp_path: Path, damage: str) -> None:
    cache = DiskCache(tmp_path)
    cache.put(b"key", b"some compiled code")
    path = entry_file(cache)
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-3] ^= 1
    elif damage == "truncate":
        del data[len(data) // 2 :]
    elif damage == "empty":
        data.clear()
    elif damage == "garbage":
        data[:] = os.urandom(len(data))
    elif damage == "longer":
        data += b"!"
    else:
        other = DiskCache(tmp_path / "other")
        other.put(b"another key", b"some compiled code")
        data[:] = entry_file(other).read_bytes()
    path.write_bytes(data)
    assert cache.get(b"key") is None
    assert not path.exists()
    assert cache.stats().corrupt == 1
    assert cache.get_or_make(b"key", lambda: b"made again") == b"made again"
    assert cache.get(b"key") == b"made again"


def test_every_truncation_and_every_flipped_byte_is_seen(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(b"key", b"body")
    path = entry_file(cache)
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :]):
            path.write_bytes(bad)
            assert cache.get(b"key") is None


def test_the_directory_is_bounded_and_drops_what_was_used_longest_ago(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, max_bytes=1200)
    for number in range(4):
        cache.put(bytes([number]), bytes(200))
        # File times may be coarse: say when each was used.
        os.utime(cache._path(bytes([number])), (number, number))
    assert cache.stats().entries == 4
    assert cache.get(b"\0") is not None
    cache.put(b"new", bytes(200))
    assert cache.get(b"\1") is None
    assert cache.get(b"\0") is not None
    assert cache.stats().size_bytes <= 1200
    assert cache.stats().evictions == 1
    assert not cache.put(b"huge", bytes(5000))
    assert cache.get(b"huge") is None


def test_what_is_there_is_looked_through_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, looks = DiskCache(tmp_path, max_bytes=1 << 20), []
    entries = DiskCache._entries
    monkeypatch.setattr(DiskCache, "_entries", lambda *args, **named: looks.append(1) or entries(*args, **named))
    for number in range(400):
        cache.put(number.to_bytes(2), bytes(4000))
    monkeypatch.undo()
    assert cache.stats().size_bytes <= 1 << 20
    assert cache.stats().evictions > 100
    assert len(looks) < 200


def test_a_full_disk_is_worked_around_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    cache.put(b"old", b"there")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    before = telemetry.snapshot().cache_errors
    monkeypatch.setattr(cache_module.os, "replace", full)
    assert not cache.put(b"key", b"code")
    assert cache.get_or_make(b"key", lambda: b"made") == b"made"
    monkeypatch.undo()
    assert cache.get(b"old") == b"there"
    assert cache.get(b"key") is None
    assert cache.stats().errors == 2
    assert telemetry.snapshot().cache_errors == before + 2
    assert [p.name for p in tmp_path.glob("??/.new-*")] == []


def test_a_directory_that_cannot_be_written_is_worked_around(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a directory")
    cache = DiskCache(in_the_way / "cache")
    assert not cache.put(b"key", b"code")
    assert cache.get(b"key") is None
    assert cache.get_or_make(b"key", lambda: b"made") == b"made"
    assert cache.clear() == 0
    assert cache.stats().entries == 0
    assert cache.stats().errors >= 3


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_directory_still_serves_what_it_holds(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(b"key", b"code")
    try:
        for path in (entry_file(cache).parent, tmp_path):
            path.chmod(0o555)
        assert cache.get(b"key") == b"code"
        assert not cache.put(b"other", b"code")
        assert cache.get_or_make(b"other", lambda: b"made") == b"made"
    finally:
        for path in (tmp_path, *tmp_path.glob("??")):
            path.chmod(0o755)


def test_read_only_files_are_worked_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a read-only directory answers, also for a user whom it would not stop."""
    cache = DiskCache(tmp_path)
    cache.put(b"key", b"code")

    opened = os.open

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    def open_to_read(path: str, flags: int, *args: int, **named: int | None) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            denied()
        return opened(path, flags, *args, **named)

    monkeypatch.setattr(cache_module.os, "open", open_to_read)
    monkeypatch.setattr(cache_module.os, "utime", denied)
    monkeypatch.setattr(cache_module.os, "unlink", denied)
    assert cache.get(b"key") == b"code"
    assert not cache.put(b"other", b"code")
    entry_file(cache).write_bytes(b"damaged")
    assert cache.get(b"key") is None
    assert cache.stats().corrupt == 1
    assert cache.stats().errors == 2


WRITER = """
import sys
from pathlib import Path
from vyre.driver.cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), max_bytes=30_000)
for turn in range(150):
    key = bytes([turn % 7])
    found = cache.get(key)
    assert found in (None, key * 5000), "mixed or torn entry"
    cache.put(key, key * 5000)
stats = cache.stats()
assert stats.corrupt == 0 and stats.errors == 0, stats
"""


def test_processes_that_write_the_same_entries_never_see_a_torn_one(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) for _ in range(2)]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert DiskCache(tmp_path, max_bytes=30_000).stats().size_bytes <= 30_000


KERNEL = "define void @kernel() { ret void }"


def test_code_is_compiled_once_for_all_processes(tmp_path: Path) -> None:
    first = [kept_object_code(DiskCache(tmp_path), "one", KERNEL) for _ in range(2)]
    assert [was_kept for _, was_kept in first] == [False, True]
    assert first[0][0] == first[1][0]
    assert kept_object_code(DiskCache(tmp_path / "other"), "one", KERNEL)[1] is False
    before = telemetry.snapshot()
    for _ in range(2):
        program = parse("program p(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = 5 }")
        backend = CpuBackend(threads=1, cache=DiskCache(tmp_path))
        for _ in range(2):
            assert bytes(backend.dispatch(program, [bytes(4)], DispatchConfig(optimize=False))[0]) == b"\5\0\0\0"
    after = telemetry.snapshot()
    # Each backend finds its own executable the second time, and the second backend finds the code on disk.
    assert (after.compile_hits - before.compile_hits, after.compile_misses - before.compile_misses) == (3, 1)


def test_code_that_does_not_load_is_compiled_again(tmp_path: Path) -> None:
    disk = DiskCache(tmp_path)
    good, _ = kept_object_code(disk, "one", KERNEL)
    stored = entry_file(disk).read_bytes()
    put = disk.put
    with pytest.MonkeyPatch.context() as patch:
        keys: list[bytes] = []
        patch.setattr(disk, "get", lambda key: keys.append(key))
        kept_object_code(disk, "one", KERNEL)
    assert put(keys[0], b"\xff")
    assert kept_object_code(disk, "one", KERNEL) == (good, False)
    assert disk.stats().corrupt == 1
    assert entry_file(disk).read_bytes() == stored
    assert Loaded(good).address("kernel")
    with pytest.raises(KernelCompileFailed, match="expected instruction") as caught:
        kept_object_code(disk, "other", "define void @kernel() { nothing }")
    assert "nothing" in caught.value.source
    assert disk.stats().entries == 1


def test_threads_share_a_cache(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(lambda k: cache.get_or_make(bytes([k % 3]), lambda: bytes([k % 3]) * 99), range(60)))
    assert results == [bytes([k % 3]) * 99 for k in range(60)]
    assert cache.stats().errors == 0


def test_the_place_of_the_cache_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "here"))
    assert default_cache_directory() == tmp_path / "here"
    assert DiskCache().directory == tmp_path / "here"
    monkeypatch.delenv("VYRE_CACHE_DIR")
    assert default_cache_directory().name == "vyre"
