"""Dense matrices, sorting networks, and kernels that compute more than they load."""

# No `from __future__ import annotations`: it hides the element type, a local name, from a kernel's annotations.
from functools import cache
from math import exp, log, sqrt
from typing import Any

import numpy as np

import vyre
from comparison import Contender
from plain_kernels import (
    SHAPES_2,
    Setting,
    Shape,
    by_shape,
    numba,
    on_numba,
    on_vyre,
    parallel,
    prange,
    serial,
    side_by_side,
)
from vyre import u32, u64

_STEPS = 255
# Numba sorts by pieces of at most so many elements, and takes shorter ones than this pair by pair.
_PIECE, _SHORT = 4096, 16


@cache
def _matmul(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def matmul(a: vyre.In[real, 2], b: vyre.In[real, 2], out: vyre.Out[real, 2]):
        column, row = vyre.gid(0), vyre.gid(1)
        height, width = out.shape
        _, inner = a.shape
        if row < height and column < width:
            total: real = 0
            for k in range(inner):
                total += a[row, k] * b[k, column]
            out[row, column] = total

    return matmul


@parallel
def _numba_matmul(a, b, out):
    height, width = out.shape
    inner = a.shape[1]
    for row in prange(height):
        for column in range(width):
            out[row, column] = 0
        for k in range(inner):
            scale = a[row, k]
            for column in range(width):
                out[row, column] += scale * b[k, column]


def matmul(setting: Setting) -> dict[str, Contender]:
    square = (setting.size,) * 2
    arguments = setting.floats(*square), setting.floats(*square, seed=2), setting.zeros(*square)
    return side_by_side(setting, by_shape(_matmul, setting, SHAPES_2, square), _numba_matmul, arguments, 2)


@cache
def _lu(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def lu(a: vyre.In[real, 2], out: vyre.InOut[real, 2]):
        """Factors below and on the diagonal, without pivots."""
        column, row = vyre.gid(0), vyre.gid(1)
        size, _ = a.shape
        if row < size and column < size:
            out[row, column] = a[row, column]
        for k in range(size):
            vyre.grid_sync()
            if column == k and k < row < size:
                out[row, k] = out[row, k] / out[k, k]
            vyre.grid_sync()
            if k < row < size and k < column < size:
                out[row, column] -= out[row, k] * out[k, column]

    return lu


@parallel
def _numba_lu(a, out):
    size = len(a)
    for row in prange(size):
        for column in range(size):
            out[row, column] = a[row, column]
    for k in range(size):
        for row in prange(k + 1, size):
            scale = out[row, k] / out[k, k]
            out[row, k] = scale
            for column in range(k + 1, size):
                out[row, column] -= scale * out[k, column]


def lu(setting: Setting) -> dict[str, Contender]:
    square = (setting.size,) * 2
    a = setting.floats(*square) + setting.size * np.eye(setting.size, dtype=setting.dtype)
    return side_by_side(setting, by_shape(_lu, setting, SHAPES_2, square), _numba_lu, (a, setting.zeros(*square)), 1)


@cache
def _floyd_warshall(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def floyd_warshall(lengths: vyre.In[real, 2], out: vyre.InOut[real, 2]):
        column, row = vyre.gid(0), vyre.gid(1)
        size, _ = lengths.shape
        if row < size and column < size:
            out[row, column] = lengths[row, column]
        for k in range(size):
            vyre.grid_sync()
            # Nobody writes row and column k: a way over k is none for them.
            if row < size and column < size and out[row, k] + out[k, column] < out[row, column]:
                out[row, column] = out[row, k] + out[k, column]

    return floyd_warshall


@parallel
def _numba_floyd_warshall(lengths, out):
    size = len(lengths)
    for row in prange(size):
        for column in range(size):
            out[row, column] = lengths[row, column]
    for k in range(size):
        for row in prange(size):
            to_k = out[row, k]
            for column in range(size):
                out[row, column] = min(out[row, column], to_k + out[k, column])


def floyd_warshall(setting: Setting) -> dict[str, Contender]:
    square = (setting.size,) * 2
    lengths = setting.floats(*square) + setting.number(0.1)
    np.fill_diagonal(lengths, 0)
    arguments = lengths, setting.zeros(*square)
    return side_by_side(
        setting, by_shape(_floyd_warshall, setting, SHAPES_2, square), _numba_floyd_warshall, arguments, 1
    )


@cache
def _bitonic_sort(real: Any) -> Any:
    @vyre.kernel
    def bitonic_sort(values: vyre.In[real], out: vyre.InOut[real]):
        i = vyre.gid()
        if i < len(values):
            out[i] = values[i]
        length = 2
        while length <= len(values):
            distance = length // 2
            while distance > 0:
                vyre.grid_sync()
                other = i ^ distance
                if i < other < len(values):
                    low, high = out[i], out[other]
                    if (low > high) == (i & length == 0):
                        out[i] = high
                        out[other] = low
                distance //= 2
            length *= 2

    return bitonic_sort


@serial
def _numba_order(first, second, up):
    """Order pairs of two pieces; that they are views of their own lets the loop go in vectors."""
    for i in range(len(first)):
        low, high = min(first[i], second[i]), max(first[i], second[i])
        first[i] = low if up else high
        second[i] = high if up else low


@parallel
def _numba_bitonic_sort(values, out):
    count = len(values)
    for i in prange(count):
        out[i] = values[i]
    length = 2
    while length <= count:
        distance = length // 2
        while distance > 0:
            if distance < _SHORT:
                for run in prange(count // (2 * distance)):
                    start = 2 * distance * run
                    up = (start & length) == 0
                    for i in range(start, start + distance):
                        low, high = min(out[i], out[i + distance]), max(out[i], out[i + distance])
                        out[i] = low if up else high
                        out[i + distance] = high if up else low
            else:
                piece = min(distance, _PIECE)
                for number in prange(count // (2 * piece)):
                    first = number * piece
                    start = first + first // distance * distance
                    other = start + distance
                    _numba_order(out[start : start + piece], out[other : other + piece], (start & length) == 0)
            distance //= 2
        length *= 2


def bitonic_sort(setting: Setting) -> dict[str, Contender]:
    """``size`` is a power of two."""
    arguments = setting.floats(setting.size), setting.zeros(setting.size)
    return side_by_side(setting, {"vyre": _bitonic_sort(setting.real)[setting.size]}, _numba_bitonic_sort, arguments, 1)


@vyre.function
def normal_share(x):
    """The cumulative normal distribution, by Abramowitz and Stegun's polynomial 26.2.17."""
    k = 1.0 / (1.0 + 0.2316419 * abs(x))
    poly = k * (0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))))
    tail = 0.39894228 * vyre.exp(-0.5 * x * x) * poly
    return tail if x < 0.0 else 1.0 - tail


@cache
def _black_scholes(real: Any) -> Any:
    @vyre.kernel
    def black_scholes(
        prices: vyre.In[real], strikes: vyre.In[real], years: vyre.In[real], rate: real, volatility: real,
        calls: vyre.Out[real], puts: vyre.Out[real],
    ):  # fmt: skip
        i = vyre.gid()
        if i < len(prices):
            deviation = volatility * vyre.sqrt(years[i])
            d1 = (vyre.log(prices[i] / strikes[i]) + (rate + 0.5 * volatility * volatility) * years[i]) / deviation
            d2 = d1 - deviation
            discounted = strikes[i] * vyre.exp(-rate * years[i])
            calls[i] = prices[i] * normal_share(d1) - discounted * normal_share(d2)
            puts[i] = discounted * normal_share(-d2) - prices[i] * normal_share(-d1)

    return black_scholes


@serial
def _numba_normal_share(x, one, half, c):
    k = one / (one + c[0] * abs(x))
    poly = k * (c[1] + k * (c[2] + k * (c[3] + k * (c[4] + k * c[5]))))
    tail = c[6] * exp(-half * x * x) * poly
    return tail if x < 0 else one - tail


@parallel
def _numba_black_scholes(prices, strikes, years, rate, volatility, calls, puts, one, half, c):
    for i in prange(len(prices)):
        deviation = volatility * sqrt(years[i])
        d1 = (log(prices[i] / strikes[i]) + (rate + half * volatility * volatility) * years[i]) / deviation
        d2 = d1 - deviation
        discounted = strikes[i] * exp(-rate * years[i])
        first, second = _numba_normal_share(d1, one, half, c), _numba_normal_share(d2, one, half, c)
        calls[i] = prices[i] * first - discounted * second
        first, second = _numba_normal_share(-d1, one, half, c), _numba_normal_share(-d2, one, half, c)
        puts[i] = discounted * second - prices[i] * first


_COEFFICIENTS = 0.2316419, 0.319381530, -0.356563782, 1.781477937, -1.821255978, 1.330274429, 0.39894228


def black_scholes(setting: Setting) -> dict[str, Contender]:
    count = setting.size
    arguments = [
        setting.number(5) + setting.number(25) * setting.floats(count, seed=1),
        setting.number(1) + setting.number(99) * setting.floats(count, seed=2),
        setting.number(0.25) + setting.number(9) * setting.floats(count, seed=3),
        setting.number(0.02), setting.number(0.3), setting.zeros(count), setting.zeros(count),
    ]  # fmt: skip
    found = {"vyre": on_vyre(setting, _black_scholes(setting.real)[count], arguments, [5, 6])}
    if numba:
        numbers = setting.number(1), setting.number(0.5), tuple(map(setting.number, _COEFFICIENTS))
        found["numba"] = on_numba(_numba_black_scholes, [*arguments, *numbers], [5, 6])
    return found


@cache
def _mandelbrot(real: Any, shape: Shape) -> Any:
    @vyre.kernel(workgroup=shape)
    def mandelbrot(left: real, top: real, pixel: real, four: real, steps: vyre.Out[u32, 2]):
        column, row = vyre.gid(0), vyre.gid(1)
        height, width = steps.shape
        if row < height and column < width:
            cx, cy = left + real(column) * pixel, top + real(row) * pixel
            x: real = 0
            y: real = 0
            step = 0
            while step < _STEPS and x * x + y * y <= four:
                x, y = x * x - y * y + cx, (x + x) * y + cy
                step += 1
            steps[row, column] = step

    return mandelbrot


@parallel
def _numba_mandelbrot(left, top, pixel, four, steps, places):
    height, width = steps.shape
    for row in prange(height):
        for column in range(width):
            cx, cy = left + places[column] * pixel, top + places[row] * pixel
            x = y = cx - cx
            step = 0
            while step < _STEPS and x * x + y * y <= four:
                x, y = x * x - y * y + cx, (x + x) * y + cy
                step += 1
            steps[row, column] = step


def mandelbrot(setting: Setting) -> dict[str, Contender]:
    size = setting.size
    corner = setting.number(-2.2), setting.number(-1.5), setting.number(3 / size)
    arguments = *corner, setting.number(4), np.zeros((size, size), np.uint32)
    found = {
        name: on_vyre(setting, launch, arguments, [4])
        for name, launch in by_shape(_mandelbrot, setting, SHAPES_2, (size, size)).items()
    }
    if numba:
        found["numba"] = on_numba(_numba_mandelbrot, [*arguments, np.arange(size, dtype=setting.dtype)], [4])
    return found


@cache
def _nbody(real: Any) -> Any:
    @vyre.kernel
    def nbody(
        softening: real, one: real, mass: vyre.In[real], place: vyre.In[real, (None, 3)],
        pull: vyre.Out[real, (None, 3)],
    ):  # fmt: skip
        i = vyre.gid()
        if i < len(mass):
            ax: real = 0
            ay: real = 0
            az: real = 0
            for j in range(len(mass)):
                dx, dy, dz = place[j, 0] - place[i, 0], place[j, 1] - place[i, 1], place[j, 2] - place[i, 2]
                closeness = one / vyre.sqrt(dx * dx + dy * dy + dz * dz + softening)
                force = mass[j] * closeness * closeness * closeness
                ax, ay, az = ax + dx * force, ay + dy * force, az + dz * force
            pull[i, 0] = ax
            pull[i, 1] = ay
            pull[i, 2] = az

    return nbody


@parallel
def _numba_nbody(softening, one, mass, place, pull):
    for i in prange(len(mass)):
        x, y, z = place[i, 0], place[i, 1], place[i, 2]
        ax = ay = az = x - x
        for j in range(len(mass)):
            dx, dy, dz = place[j, 0] - x, place[j, 1] - y, place[j, 2] - z
            closeness = one / sqrt(dx * dx + dy * dy + dz * dz + softening)
            force = mass[j] * closeness * closeness * closeness
            ax, ay, az = ax + dx * force, ay + dy * force, az + dz * force
        pull[i, 0], pull[i, 1], pull[i, 2] = ax, ay, az


def nbody(setting: Setting) -> dict[str, Contender]:
    count = setting.size
    arguments = (
        setting.number(1e-3), setting.number(1), setting.floats(count), setting.floats(count, 3, seed=2),
        setting.zeros(count, 3),
    )  # fmt: skip
    return side_by_side(setting, {"vyre": _nbody(setting.real)[count]}, _numba_nbody, arguments, 4)


@vyre.kernel
def count_collatz(steps: vyre.Out[u32]):
    i = vyre.gid()
    if i < len(steps):
        n = u64(i) + 1
        count = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        steps[i] = count


@parallel
def _numba_collatz(steps):
    one, three = np.uint64(1), np.uint64(3)
    for i in prange(len(steps)):
        n = np.uint64(i) + one
        count = 0
        while n != one:
            n = three * n + one if n & one else n >> one
            count += 1
        steps[i] = count


def collatz(setting: Setting) -> dict[str, Contender]:
    arguments = [np.zeros(setting.size, np.uint32)]
    return side_by_side(setting, {"vyre": count_collatz[setting.size]}, _numba_collatz, arguments, 0)
