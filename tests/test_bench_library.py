"""The library's benchmark: its graphs are what they say, its oracles are right, and every row states its promise."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
MODULES = ("library", "comparison", "library_peers", "library_peers.with_vyre", "graphs", "measure", "overheads",
           "peers", "report", "workloads")  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Iterator[ModuleType]:
    """The script as a module. Its imports are by names that tests use too, so nothing of it stays."""
    before = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(BENCH))
    try:
        import library

        yield library
    finally:
        sys.path.remove(str(BENCH))
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@pytest.fixture(scope="module")
def comparison(library: ModuleType) -> Any:
    return sys.modules[library.Line.__module__]


@pytest.fixture(scope="module")
def graphs(library: ModuleType) -> Any:
    return library.graphs


def edges_of(graph: Any) -> set[tuple[int, int]]:
    rows = np.repeat(np.arange(graph.num_nodes), graph.degrees)
    return set(zip(rows.tolist(), graph.targets.tolist(), strict=True))


def require_undirected(graph: Any) -> None:
    """Offsets fit, rows are sorted without duplicates and self loops, and each edge has its reverse."""
    assert graph.offsets.dtype == graph.targets.dtype == np.uint32
    assert graph.offsets[0] == 0
    assert graph.offsets[-1] == graph.num_edges
    rows = np.repeat(np.arange(graph.num_nodes, dtype=np.uint64), graph.degrees)
    targets = graph.targets.astype(np.uint64)
    keys = rows << np.uint64(32) | targets
    assert (keys[1:] > keys[:-1]).all()
    assert (rows != targets).all()
    assert np.array_equal(np.sort(targets << np.uint64(32) | rows), keys)


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("scale", [4, 11])
def test_rmat_is_undirected_and_simple(graphs: Any, scale: int, shuffled: bool) -> None:
    graph = graphs.rmat(scale, shuffled=shuffled)
    require_undirected(graph)
    assert graph.num_nodes == 1 << scale
    assert 0 < graph.num_edges < 2 * 16 << scale


def test_rmat_depends_on_its_seed_alone(graphs: Any) -> None:
    assert edges_of(graphs.rmat(8)) == edges_of(graphs.rmat(8))
    assert edges_of(graphs.rmat(8)) != edges_of(graphs.rmat(8, seed=2))


def test_shuffled_rmat_is_the_same_graph_with_other_names(graphs: Any) -> None:
    plain, shuffled = graphs.rmat(10), graphs.rmat(10, shuffled=True)
    assert np.array_equal(np.sort(plain.degrees), np.sort(shuffled.degrees))
    assert edges_of(plain) != edges_of(shuffled)


def test_rmat_18_has_its_known_size_and_a_skewed_degree(graphs: Any) -> None:
    graph = graphs.rmat(18)
    assert graph.num_nodes == 1 << 18
    assert 7_550_000 < graph.num_edges < 7_650_000
    assert graph.degrees.max() > 500 * graph.num_edges / graph.num_nodes
    assert graph.nbytes == 4 * (graph.num_nodes + 1 + graph.num_edges)


@pytest.mark.parametrize("side", [1, 2, 7])
def test_grid_joins_each_node_to_its_neighbours(graphs: Any, side: int) -> None:
    graph = graphs.grid(side)
    require_undirected(graph)
    places = [(x, y) for y in range(side) for x in range(side)]
    joined = {(y * side + x, b * side + a) for x, y in places for a, b in places if abs(a - x) + abs(b - y) == 1}
    assert edges_of(graph) == joined


def test_hub_has_the_largest_degree_and_sources_are_of_its_component(graphs: Any) -> None:
    graph = graphs.rmat(9)
    hub = graphs.hub(graph)
    assert graph.degrees[hub] == graph.degrees.max()
    sources = graphs.sources_beside(graph, hub, 8)
    assert len(set(sources)) == 8
    labels = graphs.component_labels(graph)
    assert {labels[source] for source in sources} == {labels[hub]}


def scattered(graphs: Any, seed: int) -> Any:
    """A graph with components of many sizes and nodes without edges."""
    ends = np.random.default_rng(seed).integers(0, 60, (2, 40), dtype=np.uint32)
    return graphs.undirected(*ends, 70)


@pytest.mark.parametrize("seed", range(5))
def test_oracle_levels_are_those_of_a_queue(graphs: Any, seed: int) -> None:
    graph = scattered(graphs, seed)
    expected = [graphs.NOT_REACHED] * graph.num_nodes
    source = int(graph.targets[0])
    expected[source] = 0
    queue = deque([source])
    while queue:
        node = queue.popleft()
        for target in graph.targets[graph.offsets[node] : graph.offsets[node + 1]]:
            if expected[target] == graphs.NOT_REACHED:
                expected[target] = expected[node] + 1
                queue.append(target)
    assert graphs.bfs_levels(graph, source).tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_oracle_labels_are_the_smallest_node_that_is_reached(graphs: Any, seed: int) -> None:
    graph = scattered(graphs, seed)
    expected = [
        int(np.flatnonzero(graphs.bfs_levels(graph, node) != graphs.NOT_REACHED)[0]) for node in range(graph.num_nodes)
    ]
    assert graphs.component_labels(graph).tolist() == expected


def test_oracle_ranks_are_those_of_the_dense_matrix(graphs: Any) -> None:
    graph = scattered(graphs, 1)
    count = graph.num_nodes
    matrix = np.zeros((count, count))
    for source, target in edges_of(graph):
        matrix[target, source] = 1 / graph.degrees[source]
    matrix[:, graph.degrees == 0] = 1 / count
    ranks = np.full(count, 1 / count)
    for _ in range(20):
        ranks = 0.85 * matrix @ ranks + 0.15 / count
    assert np.allclose(graphs.pagerank(graph, 20), ranks, rtol=1e-12)
    assert graphs.pagerank(graph, 20).sum() == pytest.approx(1)


def test_oracle_of_the_exploded_supergraph_follows_its_definition(graphs: Any) -> None:
    given = graphs.random_supergraph(5, 9, 4)
    blocks, facts = given.blocks_per_proc, given.facts_per_proc
    assert given.num_nodes == 5 * 9 * 4
    assert all(len(rows) for rows in (given.intra, given.inter, given.gen, given.kill))
    assert given.gen[:, 2].min() > 0
    assert given.kill[:, 2].min() > 0
    killed, generated = {tuple(row) for row in given.kill.tolist()}, defaultdict(list)
    for proc, block, fact in given.gen.tolist():
        generated[proc, block].append(fact)

    def node(proc: int, block: int, fact: int) -> int:
        return (proc * blocks + block) * facts + fact

    edges = []
    for proc, source, target in given.intra.tolist():
        edges += [
            (node(proc, source, f), node(proc, target, f)) for f in range(facts) if (proc, source, f) not in killed
        ]
        edges += [(node(proc, source, 0), node(proc, target, f)) for f in generated[proc, source]]
    for proc, block, other, target in given.inter.tolist():
        edges += [(node(proc, block, f), node(other, target, f)) for f in range(facts)]
    offsets, targets = graphs.exploded_rows(given)
    assert edges_of(graphs.Csr(offsets, targets)) == set(edges)
    assert list(zip(np.repeat(np.arange(given.num_nodes), np.diff(offsets)), targets, strict=True)) == sorted(edges)


def test_random_program_has_calls_recursion_and_the_size_it_says(graphs: Any) -> None:
    problem = graphs.random_program(12, 40, 6)
    assert problem.num_exploded == 12 * 40 * 6
    calls = np.zeros((12, 12), bool)
    calls[problem.procedure_of[problem.site_call], problem.site_callee] = True
    for middle in range(12):
        calls |= calls[:, [middle]] & calls[[middle]]
    assert calls.diagonal().any()


def test_rows_state_their_promises() -> None:
    done = subprocess.run(
        [sys.executable, str(BENCH / "library.py"), "--list"], capture_output=True, text=True, check=True
    )
    rows = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert {name: row.rsplit(": ", 1)[1] for name, row in rows.items()} == {
        "bfs": "1.2x the best",
        "bfs-sources": "1.2x the best",
        "bfs-shuffled": "printed",
        "bfs-grid": "5x networkit, 5x graphblas",
        "components": "0.8x numba, 1.5x graphblas",
        "components-shuffled": "printed",
        "pagerank": "0.8x numba, 1.5x graphblas",
        "scan": "0.7x numba",
        "exploded": "5M edges/s",
        "memory": "at most 1.5x the CSR",
        "ifds": "20x python",
    }


def judged(library: ModuleType, row: str, best: dict[str, float], *wrong: str) -> dict[str, str]:
    """The verdict beside each contender that has a promise; some contenders had another result."""
    lines = library.judge(library.ROWS[row], best, dict.fromkeys(wrong, "ANOTHER RESULT"), "f32")
    return {line.contender: line.verdict for line in lines if line.promise}


def test_promise_is_judged_by_the_best_peer_it_names(library: ModuleType) -> None:
    best = {"vyre": 1.0, "numba, Afforest": 0.9, "numba, union-find": 0.7, "graphblas, FastSV": 1.6, "scipy": 0.1}
    assert judged(library, "components", best) == {"numba, union-find": "LOSS", "graphblas, FastSV": "PASS"}
    assert judged(library, "bfs", best) == {"scipy": "LOSS"}


def test_peer_of_another_precision_decides_nothing(library: ModuleType) -> None:
    best = {"vyre": 1.0, "numba, f64": 0.1, "numba, f32 by four": 0.9, "graphblas, f64": 0.1, "graphblas, f32": 2.0}
    assert judged(library, "pagerank", best) == {"numba, f32 by four": "PASS", "graphblas, f32": "PASS"}
    assert library.judge(library.ROWS["pagerank"], best, {}, "f32")[0].note == "in f32"


def test_missing_peer_or_function_is_a_gap(library: ModuleType) -> None:
    assert judged(library, "bfs-grid", {"vyre": 1.0, "graphblas": 6.0}) == {"graphblas": "PASS", "networkit": "gap"}
    assert judged(library, "bfs", {"scipy": 6.0}) == {"scipy": "gap"}
    missing = library.library_peers.load("nothing", 1)
    assert missing.startswith("nothing is not installed")


def test_other_result_of_vyre_is_a_loss_and_of_a_peer_is_left_out(library: ModuleType) -> None:
    assert judged(library, "bfs", {"scipy": 6.0}, "vyre") == {"scipy": "LOSS"}
    assert judged(library, "bfs", {"vyre": 1.0, "scipy": 6.0}, "numba") == {"scipy": "PASS"}


def fail(_: object) -> object:
    raise ValueError("no\nmore")


def test_contender_that_raises_is_a_loss_or_left_out(library: ModuleType) -> None:
    makers = {"sum": lambda work: {"good": library.Contender(lambda: np.array([work]))}}
    peers = {
        "vyre": library.Peer("vyre", "1", {"sum": lambda work: {"vyre": library.Contender(lambda: fail(work))}}),
        "good": library.Peer("good", "1", makers),
        "bad": library.Peer("bad", "1", {"sum": fail}),
    }
    bench = library.Bench(1, 1, 1e-6, peers, {})
    compare = library.Comparison("sum", lambda: 3, lambda work: np.array([work]), np.array_equal)
    lines = compare(library.Row("sum", "sum", (library.Ratio(1),), compare), bench)
    assert [(line.contender, line.verdict, line.note) for line in lines] == [
        ("vyre", "", "RAISED ValueError: no"), ("good", "LOSS", ""), ("bad", "", "RAISED ValueError: no"),
    ]  # fmt: skip


def test_blocks_take_samples_of_every_contender(library: ModuleType) -> None:
    counts = {"a": 0, "b": 0}

    def work(name: str) -> None:
        counts[name] += 1

    samples = library.sample_in_blocks({name: lambda name=name: work(name) for name in counts}, 3, 1e-6)
    assert {name: len(taken) for name, taken in samples.seconds.items()} == {"a": 3, "b": 3}
    assert min(counts.values()) >= 5


def test_table_has_a_line_for_each_contender(library: ModuleType, comparison: Any) -> None:
    lines = library.judge(library.ROWS["scan"], {"vyre": 0.002, "numba, serial": 0.001}, {}, "u32")
    text = comparison.table(lines).splitlines()
    assert len(text) == 4
    assert text[2].startswith("| exclusive scan, 16M u32 | vyre | 2 ms |")
    assert text[3] == "|  | numba, serial | 1 ms | 0.50x | 0.7x numba | LOSS |  |"
