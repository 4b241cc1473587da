"""What is measured? Each workload: its inputs, what the peers are given, and the ratio that is promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np

from peers import Array
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.ir.program import Program

KERNELS = Path(__file__).with_name("kernels")
MILLION, SQUARE = 1 << 20, 4096


def program(name: str) -> Program:
    return parse((KERNELS / f"{name}.vyre").read_text())


class Workload(msgspec.Struct, frozen=True):
    """``kernel`` names the program, which gets ``inputs``, the peers what is ``given``; ``output`` is like results.

    ``least`` is the ratio to the best peer that is promised; ``moved`` counts bytes where memory is the limit, and
    ``tolerance`` is relative, for sums of floats whose order or contraction a peer is free to choose.
    """

    name: str
    title: str
    kernel: str
    inputs: Sequence[Array]
    given: Sequence[Array]
    output: Array
    config: DispatchConfig
    least: float
    moved: int = 0
    tolerance: float = 0.0

    def agrees(self, result: Array, expected: Array) -> bool:
        if self.tolerance:
            return bool(np.allclose(result, expected, rtol=self.tolerance, atol=self.tolerance))
        return bool(np.array_equal(result, expected))


def _elements(count: int) -> DispatchConfig:
    return DispatchConfig(dispatch_elements=count)


def _floats(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).random(count, np.float32)


def _numbers(count: int) -> Array:
    return np.zeros(count, np.uint32)


def _collatz() -> Workload:
    return Workload("collatz", "Collatz 1M", "collatz", [], [], _numbers(MILLION), _elements(MILLION), 3.0)


def _mandelbrot() -> Workload:
    size = 2048 * 2048
    return Workload("mandelbrot", "Mandelbrot 2k²", "mandelbrot", [], [], _numbers(size), _elements(size), 3.0)


def _count_primes() -> Workload:
    limit = np.array([MILLION], np.uint32)
    return Workload(
        "count_primes", "count_primes 1M", "count_primes", [], [limit], _numbers(1), _elements(MILLION), 1.2
    )


def _nbody(name: str = "nbody", title: str = "n-body 8k f32", least: float = 2.0) -> Workload:
    bodies = [_floats(8192, seed) for seed in (1, 2, 3)]
    return Workload(name, title, "nbody", bodies, bodies, _floats(8192, 0), _elements(8192), least, tolerance=1e-3)


def _lcs() -> Workload:
    length = 15_000
    random = np.random.default_rng(4)
    strings = [random.integers(0, 4, length, dtype=np.uint8) for _ in range(2)]
    inputs = [*strings, _numbers(2 * (length + 1))]
    return Workload("lcs", "LCS 15,000² wavefront", "lcs", inputs, strings, _numbers(1), _elements(length), 2.0)


def _saxpy(count: int = 1 << 24) -> Workload:
    given = [_floats(count, seed) for seed in (1, 2)]
    return Workload(
        "saxpy",
        "saxpy 16M",
        "saxpy",
        given,
        given,
        np.zeros(count, np.float32),
        _elements(count),
        0.9,
        12 * count,
        1e-6,
    )


def _stencil() -> Workload:
    field = [_floats(SQUARE * SQUARE, 5)]
    config = DispatchConfig(grid_override=(SQUARE // 256, SQUARE), dispatch_elements=SQUARE * SQUARE)
    return Workload(
        "stencil",
        "5-point stencil 4k²",
        "stencil",
        field,
        field,
        np.zeros_like(field[0]),
        config,
        0.9,
        8 * SQUARE**2,
        1e-5,
    )


def _transpose() -> Workload:
    field = [_floats(SQUARE * SQUARE, 6)]
    config = DispatchConfig(grid_override=(SQUARE // 16, SQUARE // 16), dispatch_elements=SQUARE * SQUARE)
    return Workload(
        "transpose", "transpose 4k²", "transpose", field, field, np.zeros_like(field[0]), config, 0.9, 8 * SQUARE**2
    )


def _histogram(count: int = 1 << 24) -> Workload:
    data = [np.random.default_rng(7).integers(0, 256, count, dtype=np.uint8)]
    return Workload(
        "histogram", "histogram 256 bins, 16M u8", "histogram", data, data, _numbers(256), _elements(count), 1.5
    )


def _nbody_fast() -> Workload:
    """The same beside peers that may approximate; nothing is promised, and the ratio is printed."""
    return _nbody("nbody_fast", "n-body, peers may approximate", 0.0)


WORKLOADS: dict[str, Callable[[], Workload]] = {
    "collatz": _collatz, "mandelbrot": _mandelbrot, "count_primes": _count_primes, "nbody": _nbody,
    "nbody_fast": _nbody_fast, "lcs": _lcs,
    "saxpy": _saxpy, "stencil": _stencil, "transpose": _transpose, "histogram": _histogram,
}  # fmt: skip
GROWING: dict[str, Callable[[int], Workload]] = {"saxpy": _saxpy, "histogram": _histogram}
