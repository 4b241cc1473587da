"""The library beside its peers, in one run, with equal results first. Losses are printed as losses.

``python bench/library.py [--quick] [--only ROW ...] [--threads N] [--list]``; peers come with the ``bench`` extra, and
one that is not installed is a printed gap. Contenders run in blocks of calls in turn, and the best block counts: calls
that alternate would wake each other's threads. Writes samples and the table under ``bench/results``.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import numpy as np

import graphs
import library_peers
from comparison import (
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
from graphs import Array, Csr, ExplodedInput
from library_peers import Peer, Ranking, Scanning, Traversal, with_vyre
from measure import Samples
from report import shown

_SOURCES, _ITERATIONS, _SCANNED = 8, 20, 1 << 24
_TOLERANCE: Final = 1e-4
_MEMORY_SCALE: Final = 21


class Rate(msgspec.Struct, frozen=True):
    """At least so many edges a second."""

    least: float

    def __str__(self) -> str:
        return f"{self.least / 1e6:g}M edges/s"


class Memory(msgspec.Struct, frozen=True):
    """At most so many times the bytes of the graph, the graph included."""

    most: float

    def __str__(self) -> str:
        return f"at most {self.most:g}x the CSR"


class Bench(msgspec.Struct):
    """How to measure, who takes part, and the samples taken so far."""

    threads: int
    blocks: int
    block_seconds: float
    peers: dict[str, Peer]
    samples: dict[str, Samples]


class Row(msgspec.Struct, frozen=True):
    """A row of the benchmark: what is promised, and how it is measured."""

    name: str
    title: str
    promises: tuple[Ratio | Rate | Memory, ...]
    measure: Callable[[Row, Bench], list[Line]]


class Comparison(msgspec.Struct, frozen=True):
    """A kind of work that contenders do side by side: its inputs, its oracle, and when a result is equal to it."""

    kind: str
    make: Callable[[], Any]
    expect: Callable[[Any], Array]
    agrees: Callable[[Array, Array], bool]
    # A run does the work so many times.
    times: int = 1

    def __call__(self, row: Row, bench: Bench) -> list[Line]:
        work = self.make()
        expected = self.expect(work)
        functions: dict[str, Callable[[], object]] = {}
        faults: dict[str, str] = {}
        precision = ""
        for peer in bench.peers.values():
            for name, one in self.contenders(peer, work, faults).items():
                try:
                    result = one.result(one.run())
                except Exception as error:
                    faults[name] = describe(error)
                    continue
                if name == "vyre":
                    precision = f"f{8 * result.dtype.itemsize}"
                if self.agrees(result, expected):
                    functions[name] = one.run
                else:
                    faults[name] = "ANOTHER RESULT"
        taken = bench.samples[row.name] = sample_in_blocks(functions, bench.blocks, bench.block_seconds)
        best = {name: taken.best(name) / self.times for name in functions}
        return judge(row, best, faults, precision)

    def contenders(self, peer: Peer, work: Any, faults: dict[str, str]) -> dict[str, Contender]:
        """The contenders of a peer; if it cannot make them, that is its fault."""
        if self.kind not in peer.makers:
            return {}
        try:
            return peer.makers[self.kind](work)
        except Exception as error:
            faults[peer.name] = describe(error)
            return {}


def judge(row: Row, best: Mapping[str, float], faults: Mapping[str, str], precision: str) -> list[Line]:
    """The lines of a comparison: vyre's, then the others' from the fastest; each promise is at its best contender.

    ``faults`` has the contenders that raised or had another result: they are not measured, and a fault of vyre is a
    loss.
    """
    mine = best.get("vyre")
    ratios = [promise for promise in row.promises if isinstance(promise, Ratio)]
    in_precision = f"in {precision}" if any("{precision}" in promise.against for promise in ratios) else ""
    missing = in_precision if mine is not None else "gap: the library has no such function"
    lines = [Line(row.title, "vyre", mine, note=faults.get("vyre", missing))]
    lines += [
        Line(row.title, name, best[name], None if mine is None else best[name] / mine)
        for name in sorted(best, key=best.__getitem__)
        if name != "vyre"
    ]
    lines += [Line(row.title, name, note=fault) for name, fault in faults.items() if name != "vyre"]
    for promise in ratios:
        rival = next((line for line in lines[1:] if line.seconds and promise.covers(line.contender, precision)), None)
        if rival is None:
            rival = Line(
                row.title, promise.against.format(precision=precision) or "peers", note="gap: none was measured"
            )
            lines.append(rival)
        rival.promise = str(promise)
        if "vyre" in faults:
            rival.verdict = passed(False)
        elif rival.ratio is None:
            rival.verdict = "gap"
        else:
            rival.verdict = passed(rival.ratio >= promise.least)
    return lines


@cache
def _rmat(shuffled: bool) -> Csr:
    return graphs.rmat(18, shuffled=shuffled)


def _from_hub(shuffled: bool = False) -> Traversal:
    graph = _rmat(shuffled)
    return Traversal(graph, (graphs.hub(graph),))


def _from_many(shuffled: bool = False) -> Traversal:
    graph = _rmat(shuffled)
    return Traversal(graph, tuple(graphs.sources_beside(graph, graphs.hub(graph), _SOURCES)))


def _on_grid() -> Traversal:
    return Traversal(graphs.grid(512), (0,))


def _levels(work: Traversal) -> Array:
    return np.array([graphs.bfs_levels(work.graph, source) for source in work.sources])


def _is_close(ranks: Array, expected: Array) -> bool:
    """Whether ranks differ by little in all, relative to their sum."""
    return bool(np.abs(ranks - expected).sum() <= _TOLERANCE * np.abs(expected).sum())


def _is_equal(result: Array, expected: Array) -> bool:
    return result.dtype == expected.dtype and np.array_equal(result, expected)


def _ranking() -> Ranking:
    return Ranking(_rmat(False), _ITERATIONS)


def _ranks(work: Ranking) -> Array:
    return graphs.pagerank(work.graph, work.iterations, work.damping)


def _scanning() -> Scanning:
    return Scanning(np.random.default_rng(5).integers(0, 1 << 32, _SCANNED, dtype=np.uint32))


def _exclusive_sums(work: Scanning) -> Array:
    sums = np.cumsum(work.values, dtype=np.uint32)
    sums[1:] = sums[:-1]
    sums[0] = 0
    return sums


def _path_edges(problem: Any) -> Array:
    from vyre.lib.dataflow import ifds_worklist

    return ifds_worklist(problem).bits


def _program() -> Any:
    return graphs.random_program(500, 100, 20)


def _supergraph() -> ExplodedInput:
    return graphs.random_supergraph(500, 100, 20)


def _rows_and_columns(given: ExplodedInput) -> Array:
    return np.concatenate(graphs.exploded_rows(given))


_build = Comparison("exploded", _supergraph, _rows_and_columns, _is_equal)
_bfs = partial(Comparison, "bfs", expect=_levels, agrees=_is_equal)
_components = partial(Comparison, "components", expect=graphs.component_labels, agrees=_is_equal)


def measure_build(row: Row, bench: Bench) -> list[Line]:
    """Edges a second of the exploded supergraph's CSR."""
    (promise,) = row.promises
    assert isinstance(promise, Rate)
    lines = _build(row, bench)
    line = lines[0]
    line.promise = str(promise)
    if line.seconds is None:
        line.verdict = "gap" if line.note.startswith("gap") else passed(False)
        return lines
    edges = len(graphs.exploded_rows(_supergraph())[1])
    rate = edges / line.seconds
    line.note = f"{rate / 1e6:.1f}M edges/s, {edges:,} edges"
    line.verdict = passed(rate >= promise.least)
    return lines


class Footprint(msgspec.Struct):
    """What a process measured of its own resident memory, in bytes."""

    graph: int
    of_building: int
    of_search: int
    first_seconds: float
    seconds: float


def measure_memory(row: Row, bench: Bench) -> list[Line]:
    """The most resident memory during BFS in a process of its own, beside the bytes of the graph."""
    (promise,) = row.promises
    assert isinstance(promise, Memory)
    if "bfs" not in bench.peers["vyre"].makers:
        return [Line(row.title, "vyre", None, None, str(promise), "gap", "gap: the library has no such function")]
    if not Path("/proc/self/clear_refs").exists():
        return [Line(row.title, "vyre", None, None, str(promise), "gap", "gap: needs Linux's /proc")]
    with tempfile.TemporaryDirectory() as directory:
        graph = graphs.rmat(_MEMORY_SCALE)
        edges, source = graph.num_edges, graphs.hub(graph)
        saved = {"offsets": graph.offsets, "targets": graph.targets, "levels": graphs.bfs_levels(graph, source)}
        for name, array in saved.items():
            np.save(Path(directory, f"{name}.npy"), array)
        del graph, saved
        command = [sys.executable, __file__, "--footprint", directory, "--source", str(source)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        note = f"the process that measures it ended with {done.returncode}"
        return [Line(row.title, "vyre", None, None, str(promise), passed(False), note)]
    found = msgspec.json.decode(done.stdout, type=Footprint)
    whole = (found.graph + found.of_search) / found.graph
    parts = {"CSR": found.graph, "BFS": found.of_search, "checks before": found.of_building}
    sizes = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in parts.items())
    note = f"{whole:.2f}x: {edges / 1e6:.1f}M edges, {sizes}; the first search takes {shown(found.first_seconds)}"
    return [Line(row.title, "vyre", found.seconds, None, str(promise), passed(whole <= promise.most), note)]


def footprint(directory: str, source: int) -> Footprint:
    """Search the saved graph twice; what is compiled and started on the first search at all is there before."""
    from vyre.lib.graph import Graph, bfs

    small = graphs.rmat(14)
    bfs(Graph.from_csr(small.offsets, small.targets), graphs.hub(small), backend="cpu")
    offsets, targets = (np.load(Path(directory, f"{name}.npy")) for name in ("offsets", "targets"))
    before = _start_of_peak()
    graph = Graph.from_csr(offsets, targets)
    of_building = _resident("VmHWM") - before
    before = _start_of_peak()
    start = perf_counter()
    levels = bfs(graph, source, backend="cpu")
    middle = perf_counter()
    del levels
    levels = bfs(graph, source, backend="cpu")
    stop = perf_counter()
    of_search = _resident("VmHWM") - before
    if not np.array_equal(levels, np.load(Path(directory, "levels.npy"))):
        raise SystemExit("BFS on 64M edges has another result than its oracle. Fix: run the rows 'bfs' first.")
    return Footprint(offsets.nbytes + targets.nbytes, of_building, of_search, middle - start, stop - middle)


def _start_of_peak() -> int:
    """Forget the most memory that was resident, and return what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _resident("VmRSS")


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


_SHUFFLED = "R-MAT 18 with shuffled nodes"
_MANY = f"mean of {_SOURCES} sources"
_ROWS = (
    Row("bfs", "BFS, R-MAT 18, from its hub", (Ratio(1.2),), _bfs(make=_from_hub)),
    Row("bfs-sources", f"BFS, R-MAT 18, {_MANY}", (Ratio(1.2),), _bfs(make=_from_many, times=_SOURCES)),
    Row("bfs-shuffled", f"BFS, {_SHUFFLED}, {_MANY}", (), _bfs(make=partial(_from_many, True), times=_SOURCES)),
    Row("bfs-grid", "BFS, 512² grid", (Ratio(5, "networkit"), Ratio(5, "graphblas")), _bfs(make=_on_grid)),
    Row(
        "components", "connected components, R-MAT 18", (Ratio(0.8, "numba"), Ratio(1.5, "graphblas")),
        _components(make=partial(_rmat, False)),
    ),
    Row("components-shuffled", f"connected components, {_SHUFFLED}", (), _components(make=partial(_rmat, True))),
    Row(
        "pagerank", f"PageRank, R-MAT 18, {_ITERATIONS} iterations",
        (Ratio(0.8, "numba, {precision}"), Ratio(1.5, "graphblas, {precision}")),
        Comparison("pagerank", _ranking, _ranks, _is_close),
    ),
    Row(
        "scan", "exclusive scan, 16M u32", (Ratio(0.7, "numba, serial"),),
        Comparison("scan", _scanning, _exclusive_sums, _is_equal),
    ),
    Row("exploded", "exploded CSR, 1M nodes", (Rate(5e6),), measure_build),
    Row("memory", "memory of BFS, 64M edges", (Memory(1.5),), measure_memory),
    Row(
        "ifds", "IFDS, 1M exploded nodes", (Ratio(20, "python"),),
        Comparison("ifds", _program, _path_edges, _is_equal),
    ),
)  # fmt: skip
ROWS: Final = {row.name: row for row in _ROWS}


def main() -> None:
    parser = options(__doc__, ROWS)
    parser.add_argument("--footprint", metavar="DIRECTORY", help="measure BFS on a saved graph in this process")
    parser.add_argument("--source", type=int, default=0, help="where BFS starts with --footprint")
    given = parser.parse_args()
    if given.list:
        for row in ROWS.values():
            print(f"{row.name}: {row.title}: {', '.join(map(str, row.promises)) or 'printed'}")
        return
    if given.footprint:
        print(msgspec.json.encode(footprint(given.footprint, given.source)).decode())
        return
    threads = decide_threads(given.threads)
    blocks, seconds = (3, 0.05) if given.quick else (9, 0.25)
    run(Bench(threads, blocks, seconds, installed(threads), {}), given.only)


def installed(threads: int) -> dict[str, Peer]:
    """vyre and the peers that are installed; the others are printed as gaps."""
    found = {"vyre": with_vyre.load(threads)}
    for name in library_peers.NAMES:
        peer = library_peers.load(name, threads)
        if isinstance(peer, str):
            print(f"gap: {peer}")
        else:
            found[name] = peer
    print(f"{threads} threads; " + ", ".join(f"{peer.name} {peer.version}" for peer in found.values()) + "\n")
    return found


def run(bench: Bench, names: Sequence[str]) -> None:
    """Measure rows, print the table and what was lost, and write both."""
    lines: list[Line] = []
    for name in names:
        found = ROWS[name].measure(ROWS[name], bench)
        times = ", ".join(f"{line.contender} {shown(line.seconds)}" for line in found if line.seconds)
        print(f"{ROWS[name].title}: {times or 'gap'}", flush=True)
        lines += found
    versions = {name: peer.version for name, peer in bench.peers.items()}
    conclude("library", lines, bench.samples, {"threads": str(bench.threads)}, versions)


if __name__ == "__main__":
    main()
