"""Plain kernels beside Numba, in one run, with equal results first. Losses are printed as losses.

``python bench/plain.py [--quick] [--only ROW ...] [--threads N] [--list]``. Kernels are written the obvious way and
called on resident arrays; Numba's functions are an expert's. Contenders run in blocks of calls in turn, and the best
block counts. A ratio is the best peer's time over vyre's; each variant of vyre has a line, a ratio and the row's
promise. ``--quick`` takes f32 alone, with fewer and shorter blocks. Writes samples and the table under
``bench/results``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from math import exp, log
from typing import Final

import msgspec
import numpy as np

import vyre
from comparison import (
    Array,
    Contender,
    Line,
    Ratio,
    conclude,
    decide_threads,
    describe,
    options,
    passed,
    sample_in_blocks,
)
from measure import Samples
from plain_kernels import NUMBA_VERSION, Setting, dense, lookups, numba, sparse, stencils, streams
from report import shown
from vyre import f32, f64
from vyre.semantics.types import DType

# Where sums are added in another order, or a math library rounds differently: relative to the largest element.
_TOLERANCES: Final = {f32: 1e-4, f64: 1e-9}
_LEAST_MEAN: Final = 1.5
_BUSY: Final = 0.5
# A contender that takes longer than this in all is measured in fewer blocks.
_MOST_SECONDS: Final = 1.0


class Case(msgspec.Struct, frozen=True):
    """A size of a row and how the table calls it."""

    name: str
    size: int


class Row(msgspec.Struct, frozen=True):
    """A kernel of the benchmark, its sizes, its element types (none: what its name says), and what is promised."""

    name: str
    title: str
    promise: Ratio | None
    make: Callable[[Setting], dict[str, Contender]]
    cases: tuple[Case, ...]
    # A size at which the reference interpreter has the result soon.
    tiny: int
    types: tuple[DType, ...] = (f32, f64)
    # Whether all contenders do the same operations in the same order, so that their bytes are the same.
    is_exact: bool = True

    def settings(self, types: Sequence[DType], threads: int) -> dict[str, Setting]:
        """The settings by the titles of their lines."""
        return {
            f"{self.title}, {f'{real}, ' if self.types else ''}{case.name}": Setting(case.size, real, threads)
            for real in ([one for one in self.types if one in types] or types[:1])
            for case in self.cases
        }

    def agrees(self, result: Array, expected: Array, real: DType) -> bool:
        """Whether results are equal, to the last bit or as the element type of the case lets them be."""
        if result.dtype != expected.dtype or result.shape != expected.shape:
            return False
        if self.is_exact:
            return np.array_equal(result, expected)
        return bool(np.abs(result - expected).max() <= _TOLERANCES[real] * np.abs(expected).max())


class Bench(msgspec.Struct):
    """How to measure, and the samples taken so far."""

    threads: int
    blocks: int
    block_seconds: float
    types: tuple[DType, ...]
    samples: dict[str, Samples]


def is_vyre(name: str) -> bool:
    """Whether a contender is a variant of the plain kernel."""
    return name.startswith("vyre")


def measure(row: Row, title: str, setting: Setting, bench: Bench) -> list[Line]:
    """The lines of a case: contenders whose results differ from those of the first peer are not measured."""
    functions: dict[str, Callable[[], object]] = {}
    faults: dict[str, str] = {}
    expected: Array | None = None
    contenders = row.make(setting)
    for name in sorted(contenders, key=is_vyre):
        one = contenders[name]
        try:
            result = one.result(one.run()).copy()
        except Exception as error:
            faults[name] = describe(error)
            continue
        expected = result if expected is None else expected
        if row.agrees(result, expected, setting.real):
            functions[name] = one.run
        else:
            faults[name] = "ANOTHER RESULT"
    functions = {name: functions[name] for name in contenders if name in functions}
    taken = bench.samples[title] = sample_in_blocks(functions, bench.blocks, bench.block_seconds, _MOST_SECONDS)
    return judge(title, row.promise, {name: taken.best(name) for name in functions}, faults)


def judge(title: str, promise: Ratio | None, best: Mapping[str, float], faults: Mapping[str, str]) -> list[Line]:
    """The lines of a case: each variant of vyre with its ratio and verdict, then the peers from the fastest."""
    peers = sorted((name for name in best if not is_vyre(name)), key=best.__getitem__)
    fastest = best[peers[0]] if peers else None
    variants = [name for name in best if is_vyre(name)]
    lines = []
    for name in variants:
        line = Line(title, name, best[name], fastest / best[name] if fastest else None)
        if promise is not None:
            line.promise = str(promise)
            line.verdict = "gap" if line.ratio is None else passed(line.ratio >= promise.least)
        lines.append(line)
    if len(lines) > 1:
        times = [best[name] for name in variants]
        lines[0].note = f"slowest variant / fastest: {max(times) / min(times):.2f}"
    if fastest is None and lines:
        lines[0].note = "gap: no peer was measured"
    lines += [Line(title, name, None, None, *_lost(promise), fault) for name, fault in faults.items() if is_vyre(name)]
    lines += [Line(title, name, best[name]) for name in peers]
    lines += [Line(title, name, note=fault) for name, fault in faults.items() if not is_vyre(name)]
    return lines


def _lost(promise: Ratio | None) -> tuple[str, str]:
    return str(promise or "an equal result"), passed(False)


def mean_ratio(ratios: Mapping[str, Sequence[float]]) -> float:
    """The geometric mean over the rows, where a row counts once: by the geometric mean of its lines."""
    means = [sum(map(log, row)) / len(row) for row in ratios.values() if row]
    return exp(sum(means) / len(means))


def mean_lines(ratios: Mapping[str, Sequence[float]]) -> list[Line]:
    """The geometric mean of each kernel, and the promise for the whole table."""
    measured = {name: row for name, row in ratios.items() if row}
    if not measured:
        return []
    lines = [Line("geometric mean by kernel", name, None, mean_ratio({name: row})) for name, row in measured.items()]
    mean = mean_ratio(measured)
    promise = f"{_LEAST_MEAN:g}x"
    return [*lines, Line("geometric mean, each kernel once", "vyre", None, mean, promise, passed(mean >= _LEAST_MEAN))]


def _cases(**sizes: int) -> tuple[Case, ...]:
    return tuple(Case(name.replace("_", " "), size) for name, size in sizes.items())


def _square(cached: int, large: int) -> tuple[Case, ...]:
    return Case(f"in cache, {cached}²", cached), Case(f"out of cache, {large}²", large)


def _cube(cached: int, large: int) -> tuple[Case, ...]:
    return Case(f"in cache, {cached}³", cached), Case(f"out of cache, {large}³", large)


def _counted(cached: int, large: int) -> tuple[Case, ...]:
    return Case(f"in cache, {cached:,}", cached), Case(f"out of cache, {large:,}", large)


def _levels(cached: int, large: int) -> tuple[Case, ...]:
    """Fields with a quarter as many levels as columns along an axis."""
    return tuple(Case(f"{where}, {n}²x{n // 4}", n) for where, n in (("in cache", cached), ("out of cache", large)))


_KIB: Final = 1 << 10
_SIZES: Final = tuple(
    Case(f"{size // _KIB} KiB" if size < _KIB**2 else f"{size // _KIB**2} MiB", size)
    for size in (4 * _KIB << 2 * step for step in range(8))
)
_MILLION: Final = 1 << 20
_KEPT: Final = Ratio(0.9)
_EQUAL: Final = Ratio(1)
_ROWS: Final = (
    Row("jacobi-1d", "Jacobi, 1 axis", _KEPT, stencils.jacobi_1d, _counted(1 << 20, 1 << 24), 70),
    Row("jacobi-2d", "Jacobi, 2 axes", _KEPT, stencils.jacobi_2d, _square(1000, 4000), 12),
    Row("jacobi-3d", "Jacobi, 3 axes", _KEPT, stencils.jacobi_3d, _cube(120, 256), 6),
    Row("heat-3d", "heat, 3 axes", _KEPT, stencils.heat_3d, _cube(120, 256), 6),
    Row("fdtd-2d", "FDTD, 2 axes, three kernels", _KEPT, stencils.fdtd_2d, _square(700, 2500), 11),
    Row("diffusion", "horizontal diffusion", _KEPT, stencils.diffusion, _levels(128, 320), 9),
    Row("advection", "vertical sweeps", _KEPT, stencils.advection, _levels(128, 320), 9),
    Row("blur", "clamped blur, 3x3", _KEPT, stencils.blur, _square(1000, 4000), 11),
    Row("convolution", "convolution, 5x5", _KEPT, stencils.convolution, _square(1000, 4000), 9),
    Row("copy", "scaled copy", _KEPT, streams.scaled_copy, _SIZES, 800),
    Row("saxpy", "saxpy", _KEPT, streams.saxpy, _SIZES, 800),
    Row("transpose", "transpose", None, streams.transpose, _square(1000, 4096), 11),
    Row(
        "reduction", "sum by chunks", None, streams.reduction, _counted(1 << 19, 1 << 24), 300, is_exact=False
    ),
    Row("histogram", "histogram by chunks", _KEPT, streams.histogram, _counted(1 << 18, 1 << 25), 300, types=()),
    Row("compaction", "compaction by scan", None, streams.compaction, _counted(1 << 18, 1 << 23), 300),
    Row("kmeans", "k-means, 16 of 4 axes", _KEPT, streams.kmeans, _counted(1 << 14, 1 << 21), 100, is_exact=False),
    Row("spmv", "SpMV, 8 per row", _KEPT, sparse.spmv_even, _counted(1 << 13, 1 << 18), 60),
    Row("spmv-rmat", "SpMV, R-MAT", _EQUAL, sparse.spmv_rmat, _cases(scale_12=12, scale_18=18), 6),
    Row("spmv-zipf", "SpMV, Zipf rows", _EQUAL, sparse.spmv_zipf, _counted(1 << 13, 1 << 18), 60),
    Row("bfs-rmat", "BFS, R-MAT", None, sparse.bfs_rmat, _cases(scale_12=12, scale_18=18), 6, types=()),
    Row("bfs-grid", "BFS, grid", None, sparse.bfs_grid, _square(64, 512), 6, types=()),
    Row("lookup", "B+-tree lookup", _KEPT, lookups.btree, _counted(1 << 14, 1 << 21), 300, types=()),
    Row("search", "substring search", _KEPT, lookups.search, _counted(1 << 18, 1 << 26), 300, types=()),
    Row("dfa-50", "automaton, 50 states", None, lookups.automaton_small, _counted(1 << 18, 1 << 25), 2000, types=()),
    Row(
        "dfa-2000", "automaton, 2,000 states", None, lookups.automaton_large, _counted(1 << 18, 1 << 25), 2000,
        types=(),
    ),
    Row("needle", "Needleman-Wunsch", _KEPT, lookups.needle, _square(1000, 4000), 20, types=()),
    Row("matmul", "matrix product", None, dense.matmul, _square(256, 768), 10),
    Row("lu", "LU", _KEPT, dense.lu, _square(256, 768), 10),
    Row("floyd", "Floyd-Warshall", _KEPT, dense.floyd_warshall, _square(256, 768), 10),
    Row("bitonic", "bitonic sort", None, dense.bitonic_sort, _counted(1 << 14, 1 << 22), 128),
    Row(
        "black-scholes", "Black-Scholes", None, dense.black_scholes, _counted(1 << 16, 1 << 22), 100, is_exact=False
    ),
    Row("mandelbrot", "Mandelbrot", None, dense.mandelbrot, _cases(**{"512²": 512}), 10),
    Row("nbody", "n-body", None, dense.nbody, _cases(**{"4,096": 4096}), 20),
    Row("collatz", "Collatz", None, dense.collatz, _counted(1 << 16, 1 << 20), 60, types=()),
)  # fmt: skip
ROWS: Final = {row.name: row for row in _ROWS}


def main() -> None:
    parser = options(__doc__, ROWS)
    given = parser.parse_args()
    if given.list:
        for row in ROWS.values():
            print(f"{row.name}: {row.title}: {row.promise or 'printed'}")
        return
    threads = decide_threads(given.threads)
    if numba:
        # It was loaded with the kernels, so it reads the number of threads again before it starts them.
        most = numba.config.NUMBA_NUM_THREADS
        if threads > most:
            parser.error(f"--threads {threads}: numba has {most} here. Fix: set NUMBA_NUM_THREADS={threads}.")
        numba.config.reload_config()
        numba.set_num_threads(threads)
    else:
        print("gap: numba is not installed")
    print(f"{threads} threads; vyre {vyre.__version__}, numba {NUMBA_VERSION or 'missing'}\n")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > _BUSY:
        print(f"warning: the load average is {load:.1f}, and Numba's fixed shares wait for threads that do not run.")
        print("Ratios mean nothing then. Fix: run this on an idle machine.\n")
    blocks, seconds, types = (12, 0.004, (f32,)) if given.quick else (24, 0.01, (f32, f64))
    run(Bench(threads, blocks, seconds, types, {}), given.only)


def run(bench: Bench, names: Sequence[str]) -> None:
    """Measure rows, print the table and what was lost, and write both."""
    lines: list[Line] = []
    ratios: dict[str, list[float]] = {}
    for name in names:
        row = ROWS[name]
        for title, setting in row.settings(bench.types, bench.threads).items():
            found = measure(row, title, setting, bench)
            times = ", ".join(f"{line.contender} {shown(line.seconds)}" for line in found if line.seconds)
            print(f"{title}: {times or 'gap'}", flush=True)
            lines += found
            ratios.setdefault(name, []).extend(line.ratio for line in found if line.ratio)
    lines += mean_lines(ratios)
    versions = {"vyre": vyre.__version__, "numba": NUMBA_VERSION}
    conclude("plain", lines, bench.samples, {"threads": str(bench.threads)}, versions)


if __name__ == "__main__":
    main()
