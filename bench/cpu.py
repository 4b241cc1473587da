"""How fast is the processor's backend beside Numba? One table: best times, interleaved, results equal first.

Run it with ``python bench/cpu.py [name ...]``; Numba comes with the ``bench`` extra, and is a printed gap without it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from vyre.backends.cpu import CpuBackend
from vyre.driver import OutputBuffers, Step
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

try:
    import numba
except ImportError:
    numba = None

Array = np.ndarray[Any, Any]

COLLATZ = """
program collatz(workgroup 64) {
  buffer 0 steps: u32[] output
  let n = gid.x + 1
  let count = 0
  while n != 1 {
    if (n & 1) == 1 { n = n * 3 + 1 } else { n = n >> 1 }
    count = count + 1
  }
  steps[gid.x] = count
}
"""

MANDELBROT = """
program mandelbrot(workgroup 64) {
  buffer 0 out: u32[] output
  let x0 = f32(gid.x % 2048) * 0.00146484375 - 2.0
  let y0 = f32(gid.x / 2048) * 0.00146484375 - 1.5
  let x = 0.0
  let y = 0.0
  let k = 0
  while k < 100 & x * x + y * y <= 4.0 {
    let t = x * x - y * y + x0
    y = 2.0 * x * y + y0
    x = t
    k = k + 1
  }
  out[gid.x] = k
}
"""

SAXPY = """
program saxpy(workgroup 256) {
  buffer 0 x: f32[] read
  buffer 1 y: f32[] read
  buffer 2 out: f32[] output
  out[gid.x] = x[gid.x] * 2.5 + y[gid.x]
}
"""

NBODY = """
program nbody(workgroup 64) {
  buffer 0 px: f32[] read
  buffer 1 py: f32[] read
  buffer 2 pz: f32[] read
  buffer 3 out: f32[] output
  let i = gid.x
  let x = px[i]
  let y = py[i]
  let z = pz[i]
  let force = 0.0
  for j in 0 .. len(px) {
    let dx = px[j] - x
    let dy = py[j] - y
    let dz = pz[j] - z
    let d = dx * dx + dy * dy + dz * dz + 0.01
    force = force + dx / (d * sqrt(d))
  }
  out[i] = force
}
"""

HISTOGRAM = """
program histogram(workgroup 256) {
  buffer 0 data: u8[] read
  buffer 1 bins: u32[256] output
  let old = atomic_add(bins, u32(data[gid.x]), select(gid.x < len(data), 1, 0))
}
"""

PRIMES = """
program count_primes(workgroup 64) {
  buffer 0 total: u32[1] output
  let n = gid.x
  let prime = n > 1
  let d = 2
  while prime & d * d <= n {
    if n % d == 0 { prime = false }
    d = d + 1
  }
  let old = atomic_add(total, 0, u32(prime))
}
"""


class Workload(msgspec.Struct, frozen=True):
    """A program, its inputs and elements, and the same for Numba: a function from the inputs to the output."""

    name: str
    text: str
    inputs: Sequence[Array]
    elements: int
    peer: Callable[..., Array]


def peers() -> dict[str, Callable[..., Array]]:
    """The workloads as a Numba user writes them."""
    if numba is None:
        return {}
    jit = numba.njit(parallel=True)
    prange = numba.prange

    @jit
    def collatz(count: int) -> Array:
        out = np.empty(count, np.uint32)
        for i in prange(count):
            n, steps = np.uint32(i + 1), np.uint32(0)
            while n != np.uint32(1):
                n = np.uint32(n * np.uint32(3) + np.uint32(1)) if n & np.uint32(1) else np.uint32(n >> np.uint32(1))
                steps += np.uint32(1)
            out[i] = steps
        return out

    @jit
    def mandelbrot(count: int) -> Array:
        out = np.empty(count, np.uint32)
        step, two, four = np.float32(0.00146484375), np.float32(2), np.float32(4)
        for i in prange(count):
            x0, y0 = np.float32(i % 2048) * step - two, np.float32(i // 2048) * step - np.float32(1.5)
            x = y = np.float32(0)
            k = 0
            while k < 100 and x * x + y * y <= four:
                x, y = x * x - y * y + x0, two * x * y + y0
                k += 1
            out[i] = k
        return out

    @jit
    def saxpy(x: Array, y: Array, count: int) -> Array:
        out = np.empty(count, np.float32)
        for i in prange(count):
            out[i] = x[i] * np.float32(2.5) + y[i]
        return out

    @jit
    def nbody(px: Array, py: Array, pz: Array, count: int) -> Array:
        out = np.empty(count, np.float32)
        for i in prange(count):
            force = np.float32(0)
            for j in range(count):
                dx, dy, dz = px[j] - px[i], py[j] - py[i], pz[j] - pz[i]
                d = dx * dx + dy * dy + dz * dz + np.float32(0.01)
                force += dx / (d * np.sqrt(d))
            out[i] = force
        return out

    @jit
    def histogram(data: Array, count: int) -> Array:
        threads = numba.get_num_threads()
        partial = np.zeros((threads, 256), np.uint32)
        share = (count + threads - 1) // threads
        for t in prange(threads):
            for i in range(t * share, min(count, (t + 1) * share)):
                partial[t, data[i]] += np.uint32(1)
        return partial.sum(axis=0).astype(np.uint32)

    @jit
    def count_primes(count: int) -> Array:
        total = 0
        for i in prange(count):
            prime, d = i > 1, np.uint32(2)
            n = np.uint32(i)
            while prime and np.uint32(d * d) <= n:
                if n % d == 0:
                    prime = False
                d += np.uint32(1)
            total += int(prime)
        return np.array([total], np.uint32)

    return {f.__name__: f for f in (collatz, mandelbrot, saxpy, nbody, histogram, count_primes)}


def workloads() -> list[Workload]:
    random = np.random.default_rng(1)
    floats = [random.random(1 << 24, np.float32) for _ in range(2)]
    bodies = [random.random(8192, np.float32) for _ in range(3)]
    data = random.integers(0, 256, 1 << 24, dtype=np.uint8)
    million, size = 1 << 20, 2048 * 2048
    table: list[tuple[str, str, list[Array], int]] = [
        ("collatz", COLLATZ, [], million),
        ("mandelbrot", MANDELBROT, [], size),
        ("saxpy", SAXPY, floats, 1 << 24),
        ("nbody", NBODY, bodies, 8192),
        ("histogram", HISTOGRAM, [data], 1 << 24),
        ("count_primes", PRIMES, [], million),
    ]
    functions = peers()
    return [Workload(*row, functions.get(row[0], _missing)) for row in table]


def _missing(*_: Any) -> Array:
    raise NotImplementedError


def best_of(functions: Sequence[Callable[[], Any]], repetitions: int) -> list[float]:
    """The best time of each, taken in turns."""
    best = [float("inf")] * len(functions)
    for _ in range(repetitions):
        for number, function in enumerate(functions):
            start = perf_counter()
            function()
            best[number] = min(best[number], perf_counter() - start)
    return best


def compare(workload: Workload, backend: CpuBackend) -> None:
    pipeline = backend.compile(parse(workload.text), DispatchConfig(dispatch_elements=workload.elements))
    slots = OutputBuffers()
    ours = lambda: pipeline.dispatch(workload.inputs, into=slots)  # noqa: E731
    theirs = lambda: workload.peer(*workload.inputs, workload.elements)  # noqa: E731
    got = ours()[0]
    if numba is None:
        print(f"{workload.name:14} vyre {1e3 * best_of([ours], 5)[0]:8.2f} ms   numba is not installed")
        return
    expected = theirs()
    same = bytes(got) == expected.tobytes()
    close = same or np.allclose(np.frombuffer(got, expected.dtype), expected, rtol=1e-3)
    mine, other = best_of([ours, theirs], 7)
    equality = "equal" if same else "equal but for fused rounding" if close else "DIFFERENT"
    print(
        f"{workload.name:14} vyre {1e3 * mine:8.2f} ms   numba {1e3 * other:8.2f} ms   {other / mine:5.2f}x  {equality}"
    )


def overheads(backend: CpuBackend) -> None:
    program = parse("program empty(workgroup 64) {\n  buffer 0 x: u32[] readwrite\n  x[gid.x] = x[gid.x] + 1\n}")
    pipeline, data, slots = backend.compile(program), np.zeros(16, np.uint32), OutputBuffers()
    calls = best_of([lambda: [pipeline.dispatch([data], into=slots) for _ in range(1000)]], 7)[0] / 1000
    print(f"{'launch':14} {1e6 * calls:8.2f} µs a call")
    with backend.allocate(64) as memory:
        step = Step(program, [memory])
        sequence = backend.prepare_sequence(repeat=[step, step], times=10_000)
        print(f"{'sequence':14} {1e6 * best_of([sequence.run], 7)[0] / 20_000:8.3f} µs a step")
    with tempfile.TemporaryDirectory() as directory:
        for what in ("first compile", "from the disk"):
            fresh = CpuBackend(threads=1, cache=DiskCache(Path(directory)))
            start = perf_counter()
            fresh.dispatch(parse(NBODY), [np.zeros(4, np.float32)] * 3)
            print(f"{what:14} {1e3 * (perf_counter() - start):8.2f} ms")


def main(names: Sequence[str]) -> None:
    backend = CpuBackend()
    print(f"{backend.capabilities.device}, {backend.pool.threads} threads of {os.cpu_count()}, best of 7")
    for workload in workloads():
        if not names or workload.name in names:
            compare(workload, backend)
    if not names or "overheads" in names:
        overheads(backend)


if __name__ == "__main__":
    main(sys.argv[1:])
