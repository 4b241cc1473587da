"""The workloads as a Numba user writes them: loops over ``prange``, private counters, tiles."""

from __future__ import annotations

import numba
import numpy as np
from numba import float32, njit, prange, uint32

from peers import Array, Peer, on_arrays


@njit(parallel=True)
def _collatz(out: Array) -> None:
    for i in prange(out.size):
        n, steps = uint32(i + 1), uint32(0)
        while n != uint32(1):
            n = uint32(n * uint32(3) + uint32(1)) if n & uint32(1) else uint32(n >> uint32(1))
            steps += uint32(1)
        out[i] = steps


@njit(parallel=True)
def _mandelbrot(out: Array) -> None:
    step, two, four = float32(0.00146484375), float32(2), float32(4)
    for i in prange(out.size):
        x0, y0 = float32(i % 2048) * step - two, float32(i // 2048) * step - float32(1.5)
        x = y = float32(0)
        k = 0
        while k < 100 and x * x + y * y <= four:
            x, y = x * x - y * y + x0, two * x * y + y0
            k += 1
        out[i] = k


@njit(parallel=True)
def _count_primes(limit: Array, out: Array) -> None:
    total = 0
    for i in prange(limit[0]):
        n, d = uint32(i), uint32(2)
        prime = n > 1
        while prime and uint32(d * d) <= n:
            if n % d == 0:
                prime = False
            d += uint32(1)
        total += int(prime)
    out[0] = total


def _pull(px: Array, py: Array, pz: Array, out: Array) -> None:
    for i in prange(out.size):
        x, y, z, force = px[i], py[i], pz[i], float32(0)
        for j in range(px.size):
            dx, dy, dz = px[j] - x, py[j] - y, pz[j] - z
            d = dx * dx + dy * dy + dz * dz + float32(0.01)
            force += dx / (d * np.sqrt(d))
        out[i] = force


_nbody = njit(parallel=True)(_pull)
# Who does not need every bit allows sums in any order, and roots and quotients that are approximations.
_nbody_fast = njit(parallel=True, fastmath=True)(_pull)


@njit
def _lcs_tile(a: Array, b: Array, row: Array, column: Array, corner: int, i0: int, i1: int, j0: int, j1: int) -> None:
    """One tile of the table: ``row`` is the one above it, ``column`` the one before, and both become its own last."""
    last = len(b) - 1
    for i in range(i0, i1):
        diagonal, left, symbol = corner, column[i], a[i]
        corner = left
        for j in range(j0, j1):
            above = row[j]
            left = diagonal + 1 if symbol == b[last - j] else max(left, above)
            row[j] = left
            diagonal = above
        column[i] = left


@njit(parallel=True)
def _lcs(a: Array, b: Array, out: Array) -> None:
    size, n, m = 512, len(a), len(b)
    rows, columns = (n + size - 1) // size, (m + size - 1) // size
    row, column = np.zeros(m, np.int32), np.zeros(n, np.int32)
    corners, following = np.zeros(rows + 1, np.int32), np.zeros(rows + 1, np.int32)
    for wave in range(rows + columns - 1):
        first, last = max(0, wave - columns + 1), min(rows - 1, wave)
        for t in prange(first, last + 1):
            i0, j0 = t * size, (wave - t) * size
            i1, j1 = min(n, i0 + size), min(m, j0 + size)
            following[t + 1] = column[i1 - 1]
            _lcs_tile(a, b, row, column, corners[t], i0, i1, j0, j1)
        corners[:] = following
    out[0] = row[m - 1]


@njit(parallel=True)
def _saxpy(x: Array, y: Array, out: Array) -> None:
    for i in prange(out.size):
        out[i] = x[i] * float32(2.5) + y[i]


@njit(parallel=True)
def _stencil(now: Array, out: Array) -> None:
    a, b = now.reshape(4096, 4096), out.reshape(4096, 4096)
    for y in prange(4096):
        if y == 0 or y == 4095:
            b[y] = a[y]
            continue
        b[y, 0], b[y, 4095] = a[y, 0], a[y, 4095]
        for x in range(1, 4095):
            here = a[y, x]
            around = a[y, x - 1] + a[y, x + 1] + a[y - 1, x] + a[y + 1, x] - float32(4) * here
            b[y, x] = here + float32(0.1) * around


@njit(parallel=True)
def _transpose(given: Array, out: Array) -> None:
    a, b = given.reshape(4096, 4096), out.reshape(4096, 4096)
    for tile in prange(128 * 128):
        y0, x0 = tile // 128 * 32, tile % 128 * 32
        for y in range(y0, y0 + 32):
            for x in range(x0, x0 + 32):
                b[y, x] = a[x, y]


@njit(parallel=True)
def _histogram(data: Array, out: Array) -> None:
    threads = numba.get_num_threads()
    partial = np.zeros((threads, 256), np.uint32)
    share = (data.size + threads - 1) // threads
    for t in prange(threads):
        bins = np.zeros(256, np.uint32)
        for i in range(t * share, min(data.size, (t + 1) * share)):
            bins[data[i]] += uint32(1)
        partial[t] = bins
    for k in range(256):
        out[k] = partial[:, k].sum()


@njit
def _empty(x: Array) -> None:
    for i in range(x.size):
        x[i] += uint32(1)


@njit
def _sequence(x: Array, times: int) -> None:
    for _ in range(times):
        for i in range(x.size):
            x[i] += uint32(1)
        for i in range(x.size):
            x[i] *= uint32(3)


def load(threads: int) -> Peer:
    numba.set_num_threads(threads)
    functions = {
        "collatz": _collatz, "mandelbrot": _mandelbrot, "count_primes": _count_primes, "nbody": _nbody,
        "nbody_fast": _nbody_fast, "lcs": _lcs, "saxpy": _saxpy, "stencil": _stencil, "transpose": _transpose,
        "histogram": _histogram,
    }  # fmt: skip
    small, state = np.zeros(16, np.uint32), np.zeros(1024, np.uint32)
    return Peer(
        "numba",
        numba.__version__,
        {name: on_arrays(function) for name, function in functions.items()},
        lambda: _empty(small),
        lambda times: _sequence(state, times),
    )
