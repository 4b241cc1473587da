"""What does Valgrind say about the processor's threads? Run it with ``make valgrind``, which needs Valgrind.

Kernels, the pool, tables with grid barriers, sequences, traps, a timeout and many callers at once, on buffers from
malloc, so that Memcheck sees every byte beyond them. Valgrind shows a processor without AVX-512: vectors are shorter.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np

from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.launches import Sharing
from vyre.driver import Step
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.errors import Timeout
from vyre.ir import parse

SMOOTH = parse("""
program smooth(workgroup 16) {
  buffer 0 level: u32[] readwrite
  buffer 1 tile: u32[16] workgroup
  if gid.x >= len(level) { return }
  for k in 0 .. 6 {
    let left = level[gid.x - 1]
    tile[lid.x] = level[gid.x + 1]
    grid_sync
    level[gid.x] = (left + tile[lid.x]) / 2 + (k & 1)
    grid_sync
  }
}""")

COUNT = parse("""
program count(workgroup 8) {
  buffer 0 data: u8[] read
  buffer 1 bins: u32[16] output
  buffer 2 wide: f64[] output
  if gid.x < len(data) { let old = atomic_add(bins, u32(data[gid.x]) & 15, 1) }
  wide[gid.x] = f64(data[gid.x * 3])
}""")

ASKING = parse("""
program asking(workgroup 4) {
  buffer 0 a: u32[] readwrite
  if gid.x % 3 == 0 { trap(gid.x, "page") }
  a[gid.x] = a[gid.x] + 1
  resume("page")
  a[gid.x] = a[gid.x] * 2
}""")

ENDLESS = parse("""
program endless(workgroup 64) {
  buffer 0 a: u32[] readwrite
  while len(a) > 0 {
    a[gid.x] = a[gid.x] + 1
    grid_sync
  }
}""")


def smoothed(count: int) -> list[int]:
    level = np.arange(count, dtype=np.uint64)
    for k in range(6):
        padded = np.concatenate([np.zeros(1, np.uint64), level, np.zeros(1, np.uint64)])
        level = (padded[:-2] + padded[2:]) // 2 + (k & 1)
    found: list[int] = level.tolist()
    return found


def words(view: Any) -> list[int]:
    found: list[int] = np.frombuffer(view, np.uint32).tolist()
    return found


def smooth(backend: CpuBackend, count: int) -> None:
    assert words(backend.dispatch(SMOOTH, [np.arange(count, dtype=np.uint32)])[0]) == smoothed(count), count


def answer(requests: Any, buffers: Any) -> None:
    for one in requests:
        buffers["a"][one.invocation : one.invocation + 1] += 100


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        backend = CpuBackend(sharing=Sharing(3, worth_sharing=1, flat_grain=1), cache=DiskCache(Path(directory)))
        print(f"vectors of {backend.kernels.width} lanes", file=sys.stderr)
        for count in (1, 5, 16, 45, 131):
            smooth(backend, count)
            data = np.arange(count, dtype=np.uint8)
            bins = words(backend.dispatch(COUNT, [data], DispatchConfig(dispatch_elements=count))[0])
            assert bins == np.bincount(data & 15, minlength=16).tolist()
            asked = words(
                backend.dispatch(ASKING, [np.zeros(count, np.uint32)], DispatchConfig(handlers={"page": answer}))[0]
            )
            assert asked == [200 if k % 3 == 0 else 2 for k in range(count)]
        with backend.allocate(4 * 45) as level:
            backend.upload(level, np.arange(45, dtype=np.uint32))
            result = backend.run_sequence(repeat=[Step(SMOOTH, [level])], times=1, reads=[level])
            assert words(result.outputs[0]) == smoothed(45)
        try:
            backend.dispatch(ENDLESS, [np.zeros(200, np.uint32)], DispatchConfig(timeout_s=0.5))
        except Timeout:
            pass
        else:
            raise AssertionError("a run without end has ended")
        callers = [threading.Thread(target=smooth, args=(backend, 30 + k)) for k in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        backend.shutdown()
    print("all results are right", file=sys.stderr)


if __name__ == "__main__":
    main()
