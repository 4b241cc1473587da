"""Connected components: the smallest node of each, on every backend and in whatever order invocations run."""

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
    plain_components,
    random_edges,
    refused,
    rmat,
    sizes_for,
    star,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csgraph

import vyre
from vyre.backends.reference import ReferenceBackend
from vyre.lib.graph import Graph, connected_components
from vyre.lib.graph.components import join_components
from vyre.reference import REVERSED, seeded


def smallest_by_scipy(edges: Edges) -> Array:
    """The smallest node of each node's component, from SciPy's numbers of components."""
    matrix = coo_array((np.ones(len(edges.sources), bool), (edges.sources, edges.targets)), shape=(edges.nodes,) * 2)
    count, numbers = csgraph.connected_components(matrix, directed=False)
    smallest = np.full(count, edges.nodes)
    np.minimum.at(smallest, numbers, np.arange(edges.nodes))
    return smallest[numbers]


def relabelled(edges: Edges, seed: int = 3) -> Edges:
    """The same graph with other names for its nodes."""
    names = np.random.default_rng(seed).permutation(edges.nodes)
    return Edges(edges.nodes, names[edges.sources], names[edges.targets])


class TestLabels:
    @family_and_backend("cpu", CPU, "webgpu", "reference")
    def test_are_the_smallest_node_of_each_component(self, family: str, name: str) -> None:
        on = backend_of(name)
        for size in sizes_for(name):
            edges = FAMILIES[family](size)
            for searched in (edges, relabelled(edges), edges.both_ways()):
                labels = connected_components(searched.graph(), backend=on)
                assert labels.dtype == np.uint32
                assert labels.tolist() == plain_components(searched)

    @settings(max_examples=40, deadline=None)
    @given(edge_lists(), st.booleans())
    def test_of_any_graph(self, edges: Edges, undirected: bool) -> None:
        graph = edges.graph(undirected=undirected)
        assert connected_components(graph, backend=backend_of(CPU)).tolist() == plain_components(edges)

    @pytest.mark.parametrize("undirected", [False, True])
    @pytest.mark.parametrize("name", ["cpu", CPU])
    def test_of_large_graphs(self, name: str, undirected: bool) -> None:
        """Graphs of one large component and many small ones, and of paths whose names are in any order."""
        for edges in (random_edges(5000, 1), rmat(4096, 2), relabelled(chain(5000)), relabelled(star(5000))):
            graph = edges.graph(undirected=undirected)
            assert np.array_equal(connected_components(graph, backend=backend_of(name)), smallest_by_scipy(edges))

    def test_of_components_whose_edges_lead_away_from_the_common_label(self) -> None:
        """Most nodes are one component, which is joined to a smaller node by the last edges of one of its nodes."""
        nodes = 3000
        crowd = [(node, node + 1) for node in range(100, nodes - 1)]
        bridge = [(nodes - 1, 5), (5, 7), (7, 3)]
        apart = [(20 + at, 60 + at) for at in range(30)]
        edges = edges_of(nodes, crowd + bridge + apart)
        for graph in (edges.graph(), edges.graph(undirected=True), relabelled(edges).graph(undirected=True)):
            sources = Edges(nodes, graph.sources().astype(np.int64), graph.targets.astype(np.int64))
            assert np.array_equal(connected_components(graph), smallest_by_scipy(sources))

    def test_of_a_million_nodes(self) -> None:
        edges = random_edges(1_000_003, 1)
        assert np.array_equal(connected_components(edges.graph()), smallest_by_scipy(edges))

    def test_do_not_depend_on_kinds_weights_or_a_transpose(self) -> None:
        edges = random_edges(200, 1)
        graph = edges.graph(kinds=np.zeros(200, np.uint32), weights=np.full(200, np.nan))
        assert connected_components(graph).tolist() == plain_components(edges)
        graph.transpose()
        assert connected_components(graph).tolist() == plain_components(edges)
        assert connected_components(graph.transpose()).tolist() == plain_components(edges)

    def test_of_rows_that_are_not_sorted(self) -> None:
        graph = Graph.from_csr([0, 3, 3, 3, 4, 4], [2, 1, 2, 4])
        assert connected_components(graph).tolist() == [0, 0, 0, 3, 3]

    def test_agree_with_networkx(self) -> None:
        theirs = nx.gnp_random_graph(150, 0.008, seed=2, directed=True)
        ends = np.array(theirs.edges)
        labels = connected_components(Graph.from_edges(ends[:, 0], ends[:, 1], 150))
        for component in nx.weakly_connected_components(theirs):
            assert {int(labels[node]) for node in component} == {min(component)}


class TestOutputs:
    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_go_where_the_caller_says(self, name: str) -> None:
        on = backend_of(name)
        edges = random_edges(50, 1)
        labels = np.full(50, 7, np.uint32)
        assert connected_components(edges.graph(), backend=on, out=labels) is labels
        assert labels.tolist() == plain_components(edges)
        out = vyre.array(np.zeros(50, np.uint32), backend=on)
        assert connected_components(edges.graph(), out=out) is out
        assert out.numpy().tolist() == plain_components(edges)


class TestSchedules:
    @pytest.mark.parametrize("symmetric", [False, True])
    def test_the_kernel_has_no_race(self, symmetric: bool) -> None:
        for edges in (random_edges(40, 1), star(40)):
            graph = edges.graph(undirected=symmetric)
            flags = [np.zeros(3, np.uint32), np.zeros(3, np.uint32), np.zeros(1, np.uint32)]
            labels, hooks = (np.full(40, 0xA5A5A5A5, np.uint32) for _ in range(2))
            arguments = (graph.offsets, graph.targets, symmetric, labels, hooks, *flags)
            report = join_components.grid(2).debug(*arguments, schedules=5)
            assert report.races == (), str(report)
            assert report.outputs["labels"].tolist() == plain_components(edges)

    @pytest.mark.parametrize("schedule", [REVERSED, seeded(1), seeded(2)], ids=str)
    def test_labels_do_not_depend_on_the_order(self, schedule: Any) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        for edges in (random_edges(70, 1), relabelled(chain(40)), star(34), edges_of(33, [])):
            for graph in (edges.graph(), edges.graph(undirected=True)):
                assert connected_components(graph, backend=on).tolist() == plain_components(edges)


BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no graph": (
        lambda: connected_components([[0, 1]]),  # type: ignore[arg-type]
        "'g' is a list. Fix: pass a Graph: Graph.from_edges(sources, targets, n).",
    ),
    "a short output": (
        lambda: connected_components(chain(4).graph(), out=np.zeros(3, np.uint32)),
        "'out' has 3 elements, expected 4. Fix: pass 4 u32.",
    ),
    "an output of another type": (
        lambda: connected_components(chain(4).graph(), out=np.zeros(4, np.int64)),
        "'out' has elements of type int64, expected u32. Fix: convert it: array.astype(np.uint32).",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("what", BAD_CALLS)
    def test_is_named(self, what: str) -> None:
        call, said = BAD_CALLS[what]
        assert refused(call) == said
