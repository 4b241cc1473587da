"""Stencils on two and three axes beside numba's prange: does the workgroup shape change the time?

``python bench/layout.py [--quick] [--only NAME ...] [--shapes 64,1 8,8 ...]``. Equal results first; then blocks of
calls in turn, because two pools of spinning threads on the same processors wake each other when single calls alternate.
Prints how many times as fast as numba each shape is, in cache and out of cache.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

import msgspec
import numba
import numpy as np
from numba import prange

import vyre
from vyre import f32, f64

SHAPES = ((64, 1), (16, 4), (8, 8), (4, 4, 4), (1, 64))
BLOCK_SECONDS = 0.004


class Case(msgspec.Struct):
    """A kernel with arrays of a shape, and what numba does with them; ``arguments`` are shared, the last is written."""

    name: str
    kernel: Callable[[tuple[int, ...]], Any]
    peer: Callable[..., None]
    arguments: list[Any]
    grid: tuple[int, ...]


def jacobi_of(dtype: Any) -> Callable[[tuple[int, ...]], Any]:
    def make(shape: tuple[int, ...]) -> Any:
        @vyre.kernel(workgroup=shape)
        def jacobi(a: vyre.In[dtype, 2], b: vyre.Out[dtype, 2]):  # type: ignore[valid-type]
            j, i = vyre.gid(0), vyre.gid(1)
            h, w = b.shape
            if i > 0 and i < h - 1 and j > 0 and j < w - 1:
                b[i, j] = dtype(0.2) * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])

        return jacobi

    return make


@numba.njit(parallel=True, fastmath=False)
def jacobi_peer(a, b):
    fifth = a.dtype.type(0.2)
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            b[i, j] = fifth * (a[i, j] + a[i - 1, j] + a[i + 1, j] + a[i, j - 1] + a[i, j + 1])


def flat_of(dtype: Any) -> Callable[[tuple[int, ...]], Any]:
    def make(shape: tuple[int, ...]) -> Any:
        @vyre.kernel(workgroup=shape)
        def flat_jacobi(a: vyre.In[dtype], b: vyre.Out[dtype], h: vyre.u32, w: vyre.u32):  # type: ignore[valid-type]
            i, j = vyre.gid(1), vyre.gid(0)
            if i > 0 and i < h - 1 and j > 0 and j < w - 1:
                at = i * w + j
                b[at] = dtype(0.2) * (a[at] + a[at - w] + a[at + w] + a[at - 1] + a[at + 1])

        return flat_jacobi

    return make


@numba.njit(parallel=True, fastmath=False)
def flat_peer(a, b, h, w):
    fifth = a.dtype.type(0.2)
    h, w = np.int64(h), np.int64(w)
    for row in prange(1, h - 1):
        i = np.int64(row)
        for j in range(1, w - 1):
            at = i * w + j
            b[at] = fifth * (a[at] + a[at - w] + a[at + w] + a[at - 1] + a[at + 1])


def heat_of(dtype: Any) -> Callable[[tuple[int, ...]], Any]:
    def make(shape: tuple[int, ...]) -> Any:
        @vyre.kernel(workgroup=shape)
        def heat(a: vyre.In[dtype, 3], b: vyre.Out[dtype, 3]):  # type: ignore[valid-type]
            k, j, i = vyre.gid(0), vyre.gid(1), vyre.gid(2)
            d, h, w = b.shape
            if i > 0 and i < d - 1 and j > 0 and j < h - 1 and k > 0 and k < w - 1:
                b[i, j, k] = (
                    dtype(0.125) * (a[i + 1, j, k] - dtype(2.0) * a[i, j, k] + a[i - 1, j, k])
                    + dtype(0.125) * (a[i, j + 1, k] - dtype(2.0) * a[i, j, k] + a[i, j - 1, k])
                    + dtype(0.125) * (a[i, j, k + 1] - dtype(2.0) * a[i, j, k] + a[i, j, k - 1])
                    + a[i, j, k]
                )

        return heat

    return make


@numba.njit(parallel=True, fastmath=False)
def heat_peer(a, b):
    e, two = a.dtype.type(0.125), a.dtype.type(2.0)
    for i in prange(1, a.shape[0] - 1):
        for j in range(1, a.shape[1] - 1):
            for k in range(1, a.shape[2] - 1):
                b[i, j, k] = (
                    e * (a[i + 1, j, k] - two * a[i, j, k] + a[i - 1, j, k])
                    + e * (a[i, j + 1, k] - two * a[i, j, k] + a[i, j - 1, k])
                    + e * (a[i, j, k + 1] - two * a[i, j, k] + a[i, j, k - 1])
                    + a[i, j, k]
                )


def fdtd(shape: tuple[int, ...]) -> Any:
    @vyre.kernel(workgroup=shape)
    def update_field(ex: vyre.In[f32, 2], ey: vyre.In[f32, 2], hz: vyre.In[f32, 2], new: vyre.Out[f32, 2]):
        i, j = vyre.gid(0), vyre.gid(1)
        n, m = new.shape
        if i < n - 1 and j < m - 1:
            new[i, j] = hz[i, j] - f32(0.7) * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])

    return update_field


@numba.njit(parallel=True, fastmath=False)
def fdtd_peer(ex, ey, hz, new):
    c = np.float32(0.7)
    for i in prange(new.shape[0] - 1):
        for j in range(new.shape[1] - 1):
            new[i, j] = hz[i, j] - c * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])


def blur(shape: tuple[int, ...]) -> Any:
    @vyre.kernel(workgroup=shape)
    def clamped_blur(a: vyre.In[f32, 2], b: vyre.Out[f32, 2]):
        j, i = vyre.gid(0), vyre.gid(1)
        h, w = b.shape
        if i < h and j < w:
            up, down = max(i, 1) - 1, min(i + 1, h - 1)
            left, right = max(j, 1) - 1, min(j + 1, w - 1)
            b[i, j] = f32(0.2) * (a[i, j] + a[up, j] + a[down, j] + a[i, left] + a[i, right])

    return clamped_blur


@numba.njit(parallel=True, fastmath=False)
def blur_peer(a, b):
    fifth = np.float32(0.2)
    h, w = a.shape
    for row in prange(h):
        i = np.int64(row)
        up, down = max(i, 1) - 1, min(i + 1, h - 1)
        for j in range(w):
            left, right = max(j, 1) - 1, min(j + 1, w - 1)
            b[i, j] = fifth * (a[i, j] + a[up, j] + a[down, j] + a[i, left] + a[i, right])


def saxpy(shape: tuple[int, ...]) -> Any:
    @vyre.kernel(workgroup=shape)
    def saxpy_2d(x: vyre.In[f32, 2], y: vyre.In[f32, 2], z: vyre.Out[f32, 2]):
        j, i = vyre.gid(0), vyre.gid(1)
        z[i, j] = f32(2.0) * x[i, j] + y[i, j]

    return saxpy_2d


@numba.njit(parallel=True, fastmath=False)
def saxpy_peer(x, y, z):
    two = np.float32(2.0)
    for i in prange(x.shape[0]):
        for j in range(x.shape[1]):
            z[i, j] = two * x[i, j] + y[i, j]


def cases(side: int, edge: int) -> list[Case]:
    """Squares of ``side`` and cubes of ``edge``."""
    random = np.random.default_rng(1)

    def some(*shape: int, dtype: Any = np.float32) -> Any:
        return random.random(shape).astype(dtype)

    square, cube = (side, side), (edge, edge, edge)
    flat = side * side
    return [
        Case("jacobi f32", jacobi_of(f32), jacobi_peer, [some(*square), some(*square)], square),
        Case("jacobi f64", jacobi_of(f64), jacobi_peer, [some(*square, dtype=np.float64) for _ in "ab"], square),
        Case("flat jacobi f32", flat_of(f32), flat_peer, [some(flat), some(flat), side, side], square),
        Case("heat f32", heat_of(f32), heat_peer, [some(*cube), some(*cube)], cube),
        Case("heat f64", heat_of(f64), heat_peer, [some(*cube, dtype=np.float64) for _ in "ab"], cube),
        Case("fdtd, axes swapped", fdtd, fdtd_peer, [some(*square) for _ in "abcd"], square),
        Case("clamped blur", blur, blur_peer, [some(*square) for _ in "ab"], square),
        Case("saxpy 2-D", saxpy, saxpy_peer, [some(*square) for _ in "abc"], square),
    ]


def best_of_blocks(functions: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    """The best mean time of a block of calls, of blocks in turns."""
    best = dict.fromkeys(functions, float("inf"))
    ends = perf_counter() + seconds
    while perf_counter() < ends:
        for name, function in functions.items():
            function()
            calls, start = 0, perf_counter()
            while (taken := perf_counter() - start) < BLOCK_SECONDS:
                function()
                calls += 1
            best[name] = min(best[name], taken / max(calls, 1))
    return best


def compare(case: Case, shapes: tuple[tuple[int, ...], ...], seconds: float) -> None:
    arrays = [index for index, one in enumerate(case.arguments) if isinstance(one, np.ndarray)]
    written = len(case.arguments) - 1 if len(arrays) == len(case.arguments) else arrays[-1]
    expected = [one.copy() if isinstance(one, np.ndarray) else one for one in case.arguments]
    case.peer(*expected)
    functions: dict[str, Callable[[], None]] = {"numba": lambda: case.peer(*case.arguments)}
    for shape in shapes:
        if len(shape) > len(case.grid):
            continue
        kernel = case.kernel(shape)
        # kernel[x, y] counts invocations along each axis.
        bound = kernel[case.grid]
        mine = [one.copy() if isinstance(one, np.ndarray) else one for one in case.arguments]
        bound(*mine)
        if mine[written].tobytes() != expected[written].tobytes():
            raise SystemExit(f"{case.name} {shape}: the result differs from numba's. Fix: that is a fault.")
        functions["x".join(map(str, shape))] = lambda bound=bound: bound(*case.arguments)
    best = best_of_blocks(functions, seconds)
    peer = best.pop("numba")
    times = "  ".join(f"{name} {peer / taken:5.2f}x ({1e6 * taken:7.0f})" for name, taken in best.items())
    print(
        f"{case.name:20} numba {1e6 * peer:7.0f} us  {times}  spread {max(best.values()) / min(best.values()):.2f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter measurements")
    parser.add_argument("--only", nargs="+", help="names of kernels that begin so")
    parser.add_argument("--shapes", nargs="+", help="workgroup shapes, as in 64,1 8,8")
    parser.add_argument("--size", choices=("in", "out", "both"), default="both", help="in cache, or out of cache")
    parser.add_argument("--threads", type=int, default=2, help="of both; 2 unless given")
    given = parser.parse_args()
    shapes = tuple(tuple(map(int, one.split(","))) for one in given.shapes) if given.shapes else SHAPES
    numba.set_num_threads(min(given.threads, numba.config.NUMBA_NUM_THREADS))
    os.environ["VYRE_THREADS"] = str(given.threads)
    for size, side, edge in (("in", 1000, 120), ("out", 4000, 320)):
        if given.size not in (size, "both"):
            continue
        print(f"{size} cache: {side}² and {edge}³; times as fast as numba with {given.threads} threads (us)")
        for case in cases(side, edge):
            if not given.only or any(case.name.startswith(name) for name in given.only):
                compare(case, shapes, 0.6 if given.quick else 2.0)


if __name__ == "__main__":
    main()
