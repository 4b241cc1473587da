"""The cache's directory is used only if it is the user's alone, and nothing in it can stop or crash a process."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import vyre
from vyre.backends.cpu import object_file
from vyre.backends.cpu.compile import can_be_loaded, machine_facts, object_code
from vyre.backends.cpu.native import runtime_text
from vyre.driver import cache as cache_module
from vyre.driver import optimizer_cache
from vyre.driver.cache import DiskCache, UnsafeCache, default_cache_directory

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
OTHER_USER = 54321


def entry_file(cache: DiskCache) -> Path:
    (path,) = cache.directory.glob("??/*.bin")
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_created_is_the_users_alone(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "new" / "cache")
    before = os.umask(0)
    try:
        assert cache.put(b"key", b"code")
    finally:
        os.umask(before)
    path = entry_file(cache)
    assert (mode(cache.directory), mode(path.parent), mode(path)) == (0o700, 0o700, 0o600)


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777, 0o1777])
@pytest.mark.parametrize("place", ["directory", "subdirectory"])
def test_a_directory_that_others_can_write_is_not_used_and_named_once(tmp_path: Path, bits: int, place: str) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.put(b"key", b"code")
    path = entry_file(cache)
    bad = cache.directory if place == "directory" else path.parent
    bad.chmod(bits)
    with pytest.warns(RuntimeWarning, match="can be written by other users") as told:
        assert cache.get(b"key") is None
    assert f"Fix: chmod go-w {bad}, or set VYRE_CACHE_DIR" in str(told[0].message)
    # A warning is an error in these tests: a second one would be raised.
    assert not cache.put(b"key", b"other code")
    assert DiskCache(cache.directory).get(b"key") is None
    assert cache.get_or_make(b"key", lambda: b"made") == b"made"
    cache.discard(b"key")
    assert cache.clear() == 0
    assert path.read_bytes().endswith(b"code")
    assert cache.stats().errors >= 6
    if place == "directory":
        with pytest.raises(UnsafeCache, match="Fix: chmod"):
            cache.require_safe()
    bad.chmod(0o700)
    assert cache.get(b"key") == b"code"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_not_used(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.put(b"key", b"code")
    os.chown(cache.directory, OTHER_USER, -1)
    with pytest.warns(RuntimeWarning, match=f"belongs to user {OTHER_USER}"):
        assert cache.get(b"key") is None
    assert not cache.put(b"other", b"code")


def as_link(path: Path) -> None:
    target = path.with_suffix(".elsewhere")
    path.rename(target)
    path.symlink_to(target)


def as_link_to_a_directory(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_socket(path: Path) -> None:
    path.unlink()
    there = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name[-20:])
            os.rename(path.name[-20:], path.name)
    finally:
        os.chdir(there)


def as_device(path: Path) -> None:
    path.unlink()
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("needs the right to make devices")


def as_writable_by_others(path: Path) -> None:
    path.chmod(0o602)


def as_huge(path: Path) -> None:
    os.truncate(path, cache_module.MAX_ENTRY_BYTES + 1)


REPLACED: list[Callable[[Path], None]] = [
    as_link, as_link_to_a_directory, as_fifo, as_directory, as_socket, as_device, as_writable_by_others, as_huge,
]  # fmt: skip


@pytest.mark.parametrize("replace", REPLACED)
def test_what_is_no_file_of_the_user_is_removed_and_not_read(tmp_path: Path, replace: Callable[[Path], None]) -> None:
    cache = DiskCache(tmp_path)
    assert cache.put(b"key", b"code")
    path = entry_file(cache)
    replace(path)
    start = time.monotonic()
    assert cache.get(b"key") is None
    assert time.monotonic() - start < 2
    assert cache.stats().corrupt == 1
    assert not os.path.lexists(path)
    assert cache.put(b"key", b"new")
    assert cache.get(b"key") == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_entry_of_another_user_is_removed(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    assert cache.put(b"key", b"code")
    os.chown(entry_file(cache), OTHER_USER, -1)
    assert cache.get(b"key") is None
    assert cache.stats().corrupt == 1


@pytest.mark.parametrize("kind", ["link", "file", "fifo"])
def test_a_subdirectory_is_not_followed_elsewhere(tmp_path: Path, kind: str) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.put(b"key", b"code")
    shelf = entry_file(cache).parent
    elsewhere = tmp_path / "elsewhere"
    shelf.rename(elsewhere)
    if kind == "link":
        shelf.symlink_to(elsewhere)
    elif kind == "fifo":
        os.mkfifo(shelf)
    else:
        shelf.write_bytes(b"")
    assert cache.get(b"key") is None
    assert cache.get_or_make(b"key", lambda: b"new") == b"new"
    assert cache.get_or_make(b"key", lambda: b"other") == b"new"
    assert len(list(elsewhere.iterdir())) == 1


def test_a_directory_that_is_removed_while_a_process_runs_is_made_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.put(b"key", b"code")
    path = entry_file(cache)
    for gone in (path, path.parent):
        gone.unlink() if gone.is_file() else gone.rmdir()
    assert cache.get(b"key") is None
    assert cache.put(b"key", b"code")
    entry_file(cache).unlink()
    path.parent.rmdir()
    cache.directory.rmdir()
    assert cache.get(b"key") is None
    assert cache.stats().entries == 0
    assert cache.clear() == 0
    assert not cache.directory.exists()
    assert cache.put(b"key", b"code")
    assert cache.get(b"key") == b"code"
    assert cache.stats().errors == 0


def test_temporary_files_of_dead_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path)
    assert cache.put(b"key", b"code")
    shelf = entry_file(cache).parent
    for number in range(5):
        left = shelf / f".new-{number}"
        left.write_bytes(b"half")
        os.utime(left, (1000, 1000))
    (shelf / ".new-now").write_bytes(b"being written")
    monkeypatch.setattr(cache_module, "_MOST_TEMPORARIES_REMOVED", 3)
    assert DiskCache(tmp_path).put(b"other", b"code")
    assert len(list(shelf.glob(".new-*"))) == 3
    assert DiskCache(tmp_path).put(b"other", b"code")
    assert [path.name for path in shelf.glob(".new-*")] == [".new-now"]
    assert cache.get(b"key") == b"code"


HOLDER = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_that_another_process_holds_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "_LOCK_SECONDS", 0.2)
    cache = DiskCache(tmp_path, max_bytes=500)
    assert cache.put(b"old", bytes(300))
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    start = time.monotonic()
    assert cache.put(b"new", bytes(300))
    assert cache.clear() == 0
    assert 0.3 < time.monotonic() - start < 5
    assert cache.stats().errors == 2
    holder.communicate("")
    assert cache.clear() == 2


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_what_is_no_lock_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    cache = DiskCache(tmp_path / "cache")
    assert cache.put(b"key", b"code")
    lock, victim = cache.directory / ".lock", tmp_path / "victim"
    victim.write_text("precious")
    if kind == "link":
        lock.symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(lock)
    else:
        lock.mkdir()
    start = time.monotonic()
    assert cache.clear() == 0
    assert time.monotonic() - start < 2
    assert cache.stats().errors == 1
    assert victim.read_text() == "precious"


NO_HOME = """
import os, sys
os.chdir(sys.argv[1])
import pwd
def none(_): raise KeyError("no such user")
pwd.getpwuid = none
import numpy as np, vyre
from vyre.driver.cache import DiskCache, default_cache_directory
print(default_cache_directory())
program = vyre.parse("program p(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] + 1 }")
with vyre.backend("cpu", threads=1) as backend:
    print(np.frombuffer(backend.dispatch(program, [np.arange(4, dtype=np.uint32)])[0], np.uint32).tolist())
"""


@pytest.mark.parametrize("home", [None, "/dev/null/nonexistent", "relative"])
def test_without_a_home_directory_programs_are_compiled(tmp_path: Path, home: str | None) -> None:
    drop = ("HOME", "XDG_CACHE_HOME", "VYRE_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in drop}
    if home is not None:
        environment["HOME"] = home
    done = subprocess.run(
        [sys.executable, "-c", NO_HOME, tmp_path], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("[1, 2, 3, 4]\n")
    assert done.stderr == ""
    assert not list(tmp_path.iterdir())


def test_a_platform_without_a_cache_directory_has_a_path_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("VYRE_CACHE_DIR", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", fails)
    cache = DiskCache(default_cache_directory())
    assert not cache.put(b"key", b"code")
    assert cache.get(b"key") is None


def test_programs_run_beside_an_unsafe_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(0o777)
    monkeypatch.setenv("VYRE_CACHE_DIR", str(directory))
    optimizer_cache._known.clear()
    program = vyre.parse("program p(workgroup 4) { buffer 0 a: u32[] readwrite; a[gid.x] = a[gid.x] + 7 }")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with vyre.backend("cpu", threads=1) as backend:
            assert bytes(backend.dispatch(program, [bytes(4)])[0]) == b"\7\0\0\0"
    assert [str(one.message).count(str(directory)) for one in told] == [2]
    assert not list(directory.iterdir())


# A child loads and runs what the entries became, one after another: no flipped bit may end it.
FUZZED = """
import os, random, sys
from pathlib import Path
import numpy as np, vyre
from vyre.backends.cpu import CpuBackend, compile
from vyre.driver import cache as caches
from vyre.driver.cache import DiskCache

random.seed(int(sys.argv[2]))
keys = {}
digest = caches._digest
def remembered(key, body):
    keys[caches._entry_name(key)] = key
    return digest(key, body)
caches._digest = remembered
text = '''program p(workgroup 8) {
  buffer 0 a: u32[] readwrite
  buffer 1 t: u32[8] workgroup
  t[lid.x] = a[gid.x] * 3
  barrier
  a[gid.x] = t[7 - lid.x] + u32(sin(f32(gid.x)) * 100.0)
}'''
data = np.arange(16, dtype=np.uint32)

def result():
    with CpuBackend(threads=1, cache=DiskCache(Path(sys.argv[1]))) as backend:
        found = bytes(backend.dispatch(vyre.parse(text), [data], vyre.DispatchConfig(optimize=False))[0])
        return found, backend.cache_stats().corrupt

expected, corrupt = result()
assert corrupt == 0
assert result() == (expected, 0)
files = list(Path(sys.argv[1]).glob("??/*.bin"))
good = {path: path.read_bytes() for path in files}
rejected = 0
for turn in range(int(sys.argv[3])):
    for path, data_of in good.items():
        key = keys[path.name]
        body = bytearray(data_of[caches._HEAD_BYTES:])
        match turn % 4:
            case 0:
                body[random.randrange(len(body))] ^= 1 << random.randrange(8)
            case 1:
                del body[random.randrange(len(body)):]
            case 2:
                body[:] = random.randbytes(random.randrange(3000))
            case 3:
                for _ in range(20):
                    body[random.randrange(len(body))] ^= 1 << random.randrange(8)
        path.write_bytes(caches._sealed(key, bytes(body)))
    found, corrupt = result()
    assert found == expected
    rejected += corrupt
assert rejected >= int(sys.argv[3])
print("alive", rejected)
"""


def test_sealed_garbage_is_compiled_again_and_crashes_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FUZZED, tmp_path, "7", "60"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("alive")


# The second line of defence: the tables of an object file, with every digest right.
TABLES = """
import random, struct, sys
from vyre.backends.cpu import compile
from vyre.backends.cpu.native import runtime_text
from vyre.backends.cpu.compile import Loaded, can_be_loaded, object_code

random.seed(int(sys.argv[1]))
good = object_code(runtime_text(), optimize=None)
assert can_be_loaded(good)
table, = struct.unpack_from("=Q", good, 40)
refused = 0
for turn in range(int(sys.argv[2])):
    code = bytearray(good)
    # The header and the section headers.
    at = random.choice((random.randrange(64), random.randrange(table, len(good))))
    code[at] ^= 1 << random.randrange(8)
    code = bytes(code)
    if turn % 5 == 0:
        code = good[: random.randrange(len(good))]
    if can_be_loaded(code):
        Loaded(code)
    else:
        refused += 1
assert refused > int(sys.argv[2]) // 5
print("alive", refused)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="these are ELF's tables")
def test_damaged_tables_of_object_code_crash_no_process() -> None:
    done = subprocess.run([sys.executable, "-c", TABLES, "3", "2000"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("alive")


def test_code_for_another_machine_is_not_unpacked() -> None:
    code, facts = object_code(runtime_text(), optimize=None), machine_facts()
    stored = object_file.packed(code, facts)
    assert object_file.unpacked(stored, facts) == code
    assert object_file.unpacked(stored, (*facts[:-1], "0")) is None
    assert object_file.unpacked(code, facts) is None
    assert can_be_loaded(code)


@pytest.mark.parametrize("code", [b"", b"\x7fELF", b"\x7fELF\2\1\1" + bytes(100), bytes(200), b"MZ" + bytes(300)])
def test_what_is_no_object_code_is_refused(code: bytes) -> None:
    assert not can_be_loaded(code)


@pytest.mark.skipif(sys.platform != "linux", reason="the name is in ELF's strings")
def test_code_that_needs_an_unknown_function_is_refused() -> None:
    text = "declare void @vyre_unknown()\ndefine void @kernel() {\n  call void @vyre_unknown()\n  ret void\n}"
    assert not can_be_loaded(object_code(text))
    assert can_be_loaded(object_code(text.replace("vyre_unknown", "tzset")))
