"""PageRank: near the exact solution, and the same bytes on every backend and in whatever order invocations run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graph_support import (
    CPU,
    FAMILIES,
    Array,
    Edges,
    backend_of,
    chain,
    edge_lists,
    edges_of,
    family_and_backend,
    random_edges,
    refused,
    rmat,
    sizes_for,
    star,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre
from vyre.backends.reference import ReferenceBackend
from vyre.errors import UnsupportedFeature
from vyre.lib.graph import Graph, pagerank
from vyre.lib.graph.ranking import pagerank_kernel
from vyre.reference import IN_ORDER, REVERSED, seeded


def exact_ranks(edges: Edges, damping: float = 0.85) -> Array:
    """The solution of the equations that ranks satisfy, for small graphs."""
    nodes = edges.nodes
    if not nodes:
        return np.zeros(0)
    moves = np.zeros((nodes, nodes))
    np.add.at(moves, (edges.targets, edges.sources), 1.0)
    totals = moves.sum(axis=0)
    moves = np.divide(moves, totals, where=totals > 0, out=np.full_like(moves, 1 / nodes))
    return np.linalg.solve(np.eye(nodes) - damping * moves, np.full(nodes, (1 - damping) / nodes))


def iterated_ranks(edges: Edges, iterations: int, damping: float = 0.85) -> Array:
    """So many iterations from equal ranks, in f64."""
    degrees = np.bincount(edges.sources, minlength=edges.nodes)
    ranks = np.full(edges.nodes, 1 / edges.nodes)
    for _ in range(iterations):
        passed = np.divide(ranks, degrees, where=degrees > 0, out=np.zeros(edges.nodes))
        incoming = np.bincount(edges.targets, passed[edges.sources], edges.nodes)
        ranks = (1 - damping + damping * ranks[degrees == 0].sum()) / edges.nodes + damping * incoming
    return ranks


class TestRanks:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_are_near_the_exact_solution(self, family: str) -> None:
        for size in (0, 1, 33, 257):
            for edges in (FAMILIES[family](size), FAMILIES[family](size).both_ways()):
                graph = edges.graph()
                wanted = exact_ranks(edges)
                ranks = pagerank(graph, tolerance=1e-7, max_iterations=200)
                assert ranks.dtype == np.float32
                assert np.abs(ranks - wanted).sum() < 3e-6
                assert not size or abs(ranks.sum(dtype=np.float64) - 1) < 1e-5
                doubles = pagerank(graph, tolerance=1e-13, max_iterations=500, dtype=vyre.f64)
                assert doubles.dtype == np.float64
                assert np.abs(doubles - wanted).sum() < 1e-11

    @family_and_backend(CPU, "webgpu", "reference")
    def test_are_the_same_bytes_on_every_backend(self, family: str, name: str) -> None:
        for size in sizes_for(name):
            graph = FAMILIES[family](size).graph()
            wanted = pagerank(graph, backend=backend_of("cpu"), max_iterations=3)
            ranks = pagerank(graph, backend=backend_of(name), max_iterations=3)
            assert ranks.tobytes() == wanted.tobytes()

    @settings(max_examples=30, deadline=None)
    @given(edge_lists(), st.sampled_from([0.0, 0.3, 0.85, 0.99]))
    def test_of_any_graph(self, edges: Edges, damping: float) -> None:
        graph = edges.graph()
        ranks = pagerank(graph, damping, 1e-6, 2000, backend=backend_of(CPU))
        assert np.abs(ranks - exact_ranks(edges, damping)).sum() < 1e-4
        assert pagerank(graph, damping, 1e-6, 2000).tobytes() == ranks.tobytes()

    @pytest.mark.parametrize("nodes", [255, 256, 257, 5000])
    def test_sums_over_chunks_are_the_same_bytes_with_any_number_of_threads(self, nodes: int) -> None:
        """Nodes with many edges, nodes without, and chunks that are not full."""
        graph = rmat(nodes, 6).graph()
        ranks = pagerank(graph, max_iterations=15)
        assert np.abs(ranks - iterated_ranks(rmat(nodes, 6), 15)).sum() < 1e-5
        for name in (CPU, "cpu 8x1", "cpu 16x2"):
            assert pagerank(graph, max_iterations=15, backend=backend_of(name)).tobytes() == ranks.tobytes()

    def test_of_many_nodes(self) -> None:
        edges = random_edges(200_001, 1)
        ranks = pagerank(edges.graph(), max_iterations=5, tolerance=0)
        assert np.abs(ranks - iterated_ranks(edges, 5)).max() < 1e-8
        assert abs(ranks.sum(dtype=np.float64) - 1) < 1e-4

    def test_agree_with_networkx(self) -> None:
        theirs = nx.gnp_random_graph(120, 0.02, seed=4, directed=True)
        wanted = nx.pagerank(theirs, alpha=0.7, tol=1e-12, max_iter=500)
        ends = np.array(theirs.edges)
        ranks = pagerank(Graph.from_edges(ends[:, 0], ends[:, 1], 120), 0.7, 1e-12, 500, dtype=vyre.f64)
        assert np.abs(ranks - [wanted[node] for node in range(120)]).max() < 1e-10

    def test_count_duplicate_edges_as_often_as_they_occur(self) -> None:
        edges = edges_of(3, [(0, 1), (0, 1), (0, 1), (0, 2), (1, 0), (2, 0)])
        ranks = pagerank(edges.graph(), tolerance=1e-9, max_iterations=500, dtype=vyre.f64)
        assert np.abs(ranks - exact_ranks(edges)).max() < 1e-8
        assert ranks[1] > 2 * ranks[2]

    def test_do_not_depend_on_weights_and_kinds(self) -> None:
        edges = random_edges(50)
        carrying = edges.graph(weights=np.full(150, 7.0), kinds=np.zeros(150, np.uint32))
        assert pagerank(carrying).tobytes() == pagerank(edges.graph()).tobytes()

    def test_of_no_nodes_one_node_and_no_edges(self) -> None:
        for name in ("cpu", "webgpu", "reference"):
            on = backend_of(name)
            assert pagerank(edges_of(0, []).graph(), backend=on).tolist() == []
            assert pagerank(edges_of(1, []).graph(), backend=on).tolist() == [1.0]
            assert pagerank(edges_of(1, [(0, 0)]).graph(), backend=on).tolist() == pytest.approx([1.0])
            assert pagerank(edges_of(4, []).graph(), backend=on).tolist() == [0.25] * 4


class TestIterations:
    @pytest.mark.parametrize("count", [1, 2, 3, 10])
    def test_are_no_more_than_asked_for(self, count: int) -> None:
        edges = rmat(300)
        ranks = pagerank(edges.graph(), tolerance=0, max_iterations=count, dtype=vyre.f64)
        assert np.abs(ranks - iterated_ranks(edges, count)).sum() < 1e-13

    @pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-5])
    def test_end_when_ranks_change_by_less_than_the_tolerance(self, tolerance: float) -> None:
        edges = rmat(300)
        ranks = [iterated_ranks(edges, count) for count in range(60)]
        last = next(at for at in range(1, 60) if np.abs(ranks[at] - ranks[at - 1]).sum() < tolerance)
        found = pagerank(edges.graph(), tolerance=tolerance, dtype=vyre.f64)
        assert np.abs(found - ranks[last]).sum() < 1e-13

    def test_of_ranks_that_do_not_change_end_at_once(self) -> None:
        ring = edges_of(8, [(node, (node + 1) % 8) for node in range(8)])
        assert pagerank(ring.graph(), max_iterations=0xFFFFFFFF).tolist() == pytest.approx([1 / 8] * 8)

    def test_with_full_damping_and_none(self) -> None:
        edges = random_edges(20)
        assert pagerank(edges.graph(), damping=0).tolist() == pytest.approx([1 / 20] * 20)
        ranks = pagerank(edges.graph(), damping=1, tolerance=0, max_iterations=30, dtype=vyre.f64)
        assert np.abs(ranks - iterated_ranks(edges, 30, 1.0)).sum() < 1e-13


class TestOutputs:
    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_go_where_the_caller_says(self, name: str) -> None:
        on = backend_of(name)
        graph = random_edges(33).graph()
        wanted = pagerank(graph, max_iterations=4)
        ranks = np.zeros(33, np.float32)
        assert pagerank(graph, max_iterations=4, backend=on, out=ranks) is ranks
        assert ranks.tobytes() == wanted.tobytes()
        out = vyre.array(np.zeros(33, np.float32), backend=on)
        assert pagerank(graph, max_iterations=4, out=out) is out
        assert out.numpy().tobytes() == wanted.tobytes()


class TestSchedules:
    @pytest.mark.parametrize("family", ["random", "star"])
    def test_the_kernel_has_no_race(self, family: str) -> None:
        edges = FAMILIES[family](300 if family == "random" else 40)
        graph = edges.graph()
        reverse = graph.transpose()
        nodes, chunks = edges.nodes, -(-edges.nodes // 256)
        rank, passed = np.full(nodes, np.nan, np.float32), np.full(2 * nodes, np.nan, np.float32)
        changes, kept = (np.full(chunks, np.nan, np.float32) for _ in range(2))
        report = (
            pagerank_kernel(vyre.f32)
            .grid(2)
            .debug(
                graph.offsets, reverse.offsets, reverse.targets, 0.85, 0.0, 2, rank, passed, changes, kept,
                np.zeros(2, np.float32), schedules=3,
            )
        )  # fmt: skip
        assert report.ok, str(report)
        assert np.abs(report.outputs["rank"] - iterated_ranks(edges, 2)).sum() < 1e-5

    @pytest.mark.parametrize("schedule", [IN_ORDER, REVERSED, seeded(1)], ids=str)
    def test_ranks_do_not_depend_on_the_order(self, schedule: Any) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        for edges in (random_edges(40), star(40), star(40).both_ways()):
            wanted = pagerank(edges.graph(), max_iterations=4)
            assert pagerank(edges.graph(), max_iterations=4, backend=on).tobytes() == wanted.tobytes()


GRAPH = chain(4).graph()
BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no graph": (
        lambda: pagerank(np.eye(3)),  # type: ignore[arg-type]
        "'g' is a ndarray. Fix: pass a Graph: Graph.from_edges(sources, targets, n).",
    ),
    "negative damping": (lambda: pagerank(GRAPH, -0.1), "'damping' is -0.1. Fix: pass a number from 0 to 1."),
    "damping over 1": (lambda: pagerank(GRAPH, 1.5), "'damping' is 1.5. Fix: pass a number from 0 to 1."),
    "damping that is no number": (
        lambda: pagerank(GRAPH, float("nan")),
        "'damping' is nan. Fix: pass a number from 0 to 1.",
    ),
    "damping that is a bool": (lambda: pagerank(GRAPH, True), "'damping' is True. Fix: pass a number from 0 to 1."),
    "damping that is text": (
        lambda: pagerank(GRAPH, "0.85"),  # type: ignore[arg-type]
        "'damping' is '0.85'. Fix: pass a number from 0 to 1.",
    ),
    "a negative tolerance": (
        lambda: pagerank(GRAPH, tolerance=-1e-9),
        "'tolerance' is -1e-09. Fix: pass a number from 0 to inf.",
    ),
    "a tolerance that is no number": (
        lambda: pagerank(GRAPH, tolerance=float("nan")),
        "'tolerance' is nan. Fix: pass a number from 0 to inf.",
    ),
    "no iterations": (
        lambda: pagerank(GRAPH, max_iterations=0),
        "'max_iterations' is 0. Fix: pass a whole number from 1 to 4,294,967,295.",
    ),
    "half an iteration": (
        lambda: pagerank(GRAPH, max_iterations=1.5),  # type: ignore[arg-type]
        "'max_iterations' is 1.5. Fix: pass a whole number from 1 to 4,294,967,295.",
    ),
    "whole numbers as ranks": (
        lambda: pagerank(GRAPH, dtype=vyre.i32),
        "'dtype' is i32. Fix: pass vyre.f32 or vyre.f64.",
    ),
    "a type of NumPy": (
        lambda: pagerank(GRAPH, dtype=np.float32),  # type: ignore[arg-type]
        "'dtype' is <class 'numpy.float32'>. Fix: pass vyre.f32 or vyre.f64.",
    ),
    "a short output": (
        lambda: pagerank(GRAPH, out=np.zeros(3, np.float32)),
        "'out' has 3 elements, expected 4. Fix: pass 4 f32.",
    ),
    "an output of another type": (
        lambda: pagerank(GRAPH, out=np.zeros(4)),
        "'out' has elements of type float64, expected f32. Fix: convert it: array.astype(np.float32).",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("what", BAD_CALLS)
    def test_is_named(self, what: str) -> None:
        call, said = BAD_CALLS[what]
        assert refused(call) == said

    def test_numbers_of_numpy_are_numbers(self) -> None:
        ranks = pagerank(GRAPH, np.float32(0.5), np.float32(1e-6), np.int64(50))
        assert ranks.tobytes() == pagerank(GRAPH, 0.5, float(np.float32(1e-6)), 50).tobytes()
        assert pagerank(GRAPH, np.int64(1), np.float64(0), 3).tobytes() == pagerank(GRAPH, 1, 0, 3).tobytes()

    def test_a_device_without_f64_says_so(self) -> None:
        with pytest.raises(UnsupportedFeature) as caught:
            pagerank(GRAPH, dtype=vyre.f64, backend=backend_of("webgpu"))
        assert "backend 'webgpu' does not support" in caught.value.message
        assert "the target has no f64" in caught.value.message
