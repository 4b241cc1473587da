"""Memory that is passed over once, and memory that is used again: the bytes are right, and their owner's alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cpu_support import backend
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.launches import address_of
from vyre.backends.cpu.memory import Memory
from vyre.driver.config import DispatchConfig
from vyre.emit.llvm.streams import STREAMED_BYTES
from vyre.ir import parse
from vyre.ir.binding import Array

F32 = np.dtype(np.float32)
LARGE = 1 << 20
SMAPS = Path("/proc/self/smaps_rollup")
THRESHOLD = STREAMED_BYTES // 4
DOUBLE = """
program double(workgroup 256) {
  buffer 0 x: f32[] read
  buffer 1 y: f32[] WAY
  y[gid.x] = x[gid.x] * 2.0 + 1.0
}"""
THERE_AND_BACK = parse("""
program there_and_back(workgroup 256) {
  buffer 0 x: u32[] read
  buffer 1 middle: u32[] readwrite
  buffer 2 out: u32[] output
  middle[gid.x] = x[gid.x] * 3
  grid_sync
  out[gid.x] = middle[len(middle) - 1 - gid.x] + 1
}""")
# Every gap between what is mapped is filled, but for one that a kernel's code fits into, far from other free memory.
SCATTERED = """
import ctypes
import numpy as np
from vyre.backends.cpu import CpuBackend
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

system = ctypes.CDLL(None)
system.mmap.restype = ctypes.c_void_p
system.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
system.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, NOBODY, PRIVATE_WITHOUT_RESERVE = 4096, 0, 0x4022


def reserve(pages):
    return system.mmap(None, pages * PAGE, NOBODY, PRIVATE_WITHOUT_RESERVE, -1, 0)


on, data = CpuBackend(threads=1), np.arange(64, dtype=np.uint32)
for pages in (1, 1, 2, 3, 4):
    text = f"program table(workgroup 64) {{ buffer 0 a: u32[64] readwrite; a[gid.x] = (gid.x * gid.x + {pages}) % 37 }}"
    for _ in range(4000):
        reserve(1)
    gap = reserve(pages)
    reserve(3 << 18)
    for _ in range(4000):
        reserve(1)
    system.munmap(gap, pages * PAGE)
    (found,) = on.dispatch(parse(text), [data], DispatchConfig(optimize=False))
    assert np.array_equal(np.frombuffer(found, np.uint32), (data * data + pages) % 37)
"""


@pytest.fixture(params=[1, 2])
def cpu(request: pytest.FixtureRequest) -> CpuBackend:
    return backend(threads=request.param)


@pytest.fixture(scope="module")
def numbers() -> Array:
    return np.arange(THRESHOLD + 300, dtype=np.float32)


@pytest.mark.parametrize("length", [THRESHOLD - 256, THRESHOLD, THRESHOLD + 17])
@pytest.mark.parametrize("shift", [0, 4, 16])
def test_large_outputs_are_right_wherever_they_begin(cpu: CpuBackend, numbers: Array, length: int, shift: int) -> None:
    raw = np.full(4 * length + 192, 7, np.uint8)
    start = -address_of(raw) % 64 + shift
    output = raw[start : start + 4 * length].view(np.float32)
    given = numbers[:length]
    cpu.dispatch_in_place(parse(DOUBLE.replace("WAY", "output")), [given, output])
    assert np.array_equal(output, given * np.float32(2) + np.float32(1))
    assert (raw[:start] == 7).all()
    assert (raw[start + 4 * length :] == 7).all()


def test_what_is_written_past_the_caches_is_read_behind_a_barrier(cpu: CpuBackend) -> None:
    values = np.arange(THRESHOLD + 512, dtype=np.uint32)
    config = DispatchConfig(dispatch_elements=len(values))
    for _ in range(3):
        middle, out = cpu.dispatch(THERE_AND_BACK, [values, np.zeros_like(values)], config)
        assert np.array_equal(np.frombuffer(middle, np.uint32), values * 3)
        assert np.array_equal(np.frombuffer(out, np.uint32), values[::-1] * 3 + 1)


def test_results_that_are_held_stay_as_they_are(cpu: CpuBackend) -> None:
    program = parse(DOUBLE.replace("WAY", "output"))
    inputs = [np.full(LARGE, value, np.float32) for value in range(6)]
    held = [np.frombuffer(cpu.dispatch(program, [values])[0], np.float32) for values in inputs]
    for value, result in enumerate(held):
        assert (result == 2 * value + 1).all()


def test_a_result_that_nobody_holds_is_room_for_the_next(cpu: CpuBackend) -> None:
    program, values = parse(DOUBLE.replace("WAY", "output")), np.ones(LARGE, np.float32)
    places = set()
    for _ in range(20):
        (result,) = cpu.dispatch(program, [values])
        places.add(address_of(np.frombuffer(result, np.uint8)) // 4096)
        del result
    assert len(places) == 1


def test_what_is_changed_is_a_copy(cpu: CpuBackend) -> None:
    values = np.ones(LARGE, np.float32)
    for _ in range(3):
        (result,) = cpu.dispatch(parse(DOUBLE.replace("WAY", "readwrite")), [values, values])
        assert (np.frombuffer(result, np.float32) == 3).all()
        assert (values == 1).all()


def test_outputs_that_are_not_written_whole_are_zero(cpu: CpuBackend) -> None:
    program = parse(DOUBLE.replace("WAY", "output").replace("y[gid.x]", "if gid.x % 2 == 0 { y[gid.x]") + "}")
    values = np.ones(LARGE, np.float32)
    for _ in range(3):
        (result,) = cpu.dispatch(program, [values])
        assert (np.frombuffer(result, np.float32).reshape(-1, 2) == (3, 0)).all()


def test_arrays_begin_at_lines_and_not_where_numpy_lets_its_own_begin() -> None:
    memory = Memory()
    arrays = [memory.empty(LARGE, F32) for _ in range(9)] + [memory.zeros(4 * LARGE) for _ in range(9)]
    for array, following in pairwise(arrays):
        assert address_of(array) % 64 == 0
        assert address_of(array) % 4096 >= 512
        assert address_of(array) % 4096 != address_of(following) % 4096
    assert not any(array.any() for array in arrays[9:])


VIEWS: dict[str, Callable[[Array], Array | memoryview]] = {
    "slice": lambda array: array[5:9],
    "bytes": lambda array: memoryview(array).cast("B"),
    "other shape": lambda array: array.reshape(4, -1).T[3:],
    "view of a view": lambda array: np.frombuffer(memoryview(array[2:]), np.float32)[4:],
}


@pytest.mark.parametrize("name", VIEWS)
def test_pages_are_kept_when_the_last_view_is_gone(name: str) -> None:
    memory = Memory()
    array = memory.empty(LARGE, F32)
    array[:] = 1
    page, view = address_of(array) // 4096, VIEWS[name](array)
    before = np.array(view)
    del array
    other = memory.empty(LARGE, F32)
    other[:] = 2
    assert address_of(other) // 4096 != page
    assert np.array_equal(view, before)
    del view
    assert address_of(memory.empty(LARGE, F32)) // 4096 == page


@pytest.mark.parametrize(("size", "kept"), [(LARGE, 64), (32 * LARGE, 3)])
def test_few_pages_are_kept_and_none_is_given_that_is_too_short_or_far_too_long(size: int, kept: int) -> None:
    """So many mappings, and so many bytes."""
    memory = Memory()
    many = [memory.empty(size, F32) for _ in range(80)]
    del many
    assert len(memory._kept) == kept
    others = [memory.empty(3 * size // 4, F32), memory.empty(2 * size, F32)]
    assert len(memory._kept) == kept
    fitting = memory.empty(size - 300, F32)
    assert len(memory._kept) == kept - 1
    del others, fitting
    assert sum(map(len, memory._kept)) <= 1 << 29
    memory.forget()
    assert not memory._kept


def test_zeros_are_zero_in_kept_pages_too() -> None:
    memory = Memory()
    array = memory.empty(LARGE, F32)
    array[:] = 1
    page = address_of(array) // 4096
    del array
    zeros = memory.zeros(4 * LARGE)
    assert address_of(zeros) // 4096 == page
    assert not zeros.any()


@pytest.mark.skipif(not SMAPS.exists(), reason="only Linux tells what it may take back")
def test_the_system_may_take_back_what_is_kept() -> None:
    memory = Memory()
    memory.empty(16 * LARGE, F32)[:] = 1
    lazy = next(line for line in SMAPS.read_text().splitlines() if line.startswith("LazyFree:"))
    assert int(lazy.split()[1]) >= 60 * 1024


def test_threads_that_drop_and_get_results_do_not_meet(cpu: CpuBackend) -> None:
    program = parse(DOUBLE.replace("WAY", "output"))

    def work(number: int) -> bool:
        held: list[tuple[int, Array]] = []
        for value in range(number, number + 20):
            (result,) = cpu.dispatch(program, [np.full(LARGE + 1000 * (value % 3), value, np.float32)])
            held.append((value, np.frombuffer(result, np.float32)))
            if not all((array == 2 * value + 1).all() for value, array in held):
                return False
            del result, held[: value % 3]
        return True

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(0, 400, 100)))


def test_very_long_arrays_are_not_kept() -> None:
    memory = Memory()
    memory.empty(1 << 27, F32)
    assert not memory._kept


def test_no_memory_is_said_so() -> None:
    with pytest.raises(MemoryError):
        Memory().empty(1 << 60, F32)


@pytest.mark.skipif(sys.platform != "linux", reason="what is mapped where is asked for as on Linux")
def test_code_and_its_constants_are_near_each_other_however_memory_is_scattered() -> None:
    done = subprocess.run([sys.executable, "-c", SCATTERED], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
