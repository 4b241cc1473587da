"""Strongly connected components are those of scipy and networkx, on every backend, named by their smallest nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

import cpu_support
import vyre
import webgpu_support
from everywhere import SCHEDULES
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lang.kernel import Kernel
from vyre.lib.graph import Graph, strong
from vyre.lib.graph.ordering import MAX_QUEUED
from vyre.lib.graph.strong import find_components, strongly_connected_components
from vyre.lib.workspace import Workspace

Array = np.ndarray[Any, Any]
Edges = tuple[int, list[tuple[int, int]]]

# One invocation goes alone always, never, or while levels are small.
ALONE = (1 << 31, 0, 8)


@st.composite
def directed_edges(draw: st.DrawFn) -> Edges:
    """A number of nodes, and edges that may be self loops and duplicates; most are short, so that cycles are small."""
    count = draw(st.sampled_from([1, 2, 31, 32, 33]) | st.integers(1, 70))
    node = st.integers(0, count - 1)
    anywhere = st.tuples(node, node)
    beside = st.tuples(node, st.integers(-2, 3)).map(lambda edge: (edge[0], (edge[0] + edge[1]) % count))
    return count, draw(st.lists(anywhere, max_size=count)) + draw(st.lists(beside, max_size=2 * count))


def graph_of(edges: Edges) -> Graph:
    ends = np.array(edges[1], np.uint32).reshape(-1, 2)
    return Graph.from_edges(ends[:, 0], ends[:, 1], edges[0])


def networkx_labels(edges: Edges) -> list[int]:
    graph = nx.DiGraph(edges[1])
    graph.add_nodes_from(range(edges[0]))
    label = [0] * edges[0]
    for component in nx.strongly_connected_components(graph):
        for node in component:
            label[node] = min(component)
    return label


def scipy_labels(graph: Graph) -> Array:
    ends = graph.targets.astype(np.int32), graph.offsets.astype(np.int32)
    matrix = csr_array((np.ones(graph.num_edges, np.int8), *ends), shape=(graph.num_nodes, graph.num_nodes))
    count, parts = connected_components(matrix, connection="strong")
    smallest = np.full(count, graph.num_nodes, np.uint32)
    np.minimum.at(smallest, parts, np.arange(graph.num_nodes, dtype=np.uint32))
    return smallest[parts]


def labels_and_rounds(graph: Graph, few: int | None = None, backend: Backend | None = None) -> tuple[Array, int]:
    workspace = Workspace(backend or "cpu")
    label = workspace.output(graph.num_nodes, vyre.u32)
    rounds = find_components(workspace, graph, label, few)
    return workspace.deliver(label), rounds


def chain_of_cycles(count: int, length: int) -> Graph:
    """Cycles of so many nodes, one after the other; an edge leads from each to the next."""
    nodes = np.arange(count * length)
    along = nodes // length * length + (nodes + 1) % length
    last = nodes[length - 1 : -1 : length]
    return Graph.from_edges(np.concatenate([nodes, last]), np.concatenate([along, last + 1]), count * length)


def rmat(scale: int, edges_for_each_node: int) -> Graph:
    """A random directed graph in which a few nodes have many edges, with Graph500's probabilities."""
    random = np.random.default_rng(1)
    ends = np.zeros((2, edges_for_each_node << scale), np.uint32)
    for _ in range(scale):
        place = random.random(ends.shape[1])
        ends = ends * np.uint32(2) + np.array([place >= 0.76, (place >= 0.95) | ((place >= 0.57) & (place < 0.76))])
    return Graph.from_edges(ends[0], ends[1], 1 << scale)


# A cycle with a node of many edges, a chain of cycles behind it, self loops, and nodes that are on no cycle.
MIXED: Edges = (
    48,
    [(0, 1), (1, 2), (2, 0), (0, 0), (2, 3), (3, 3), (3, 4), (3, 4), (5, 0), (6, 5), (7, 8), (8, 7), (4, 7)]
    + [(1, node) for node in range(48)]
    + [edge for node in range(10, 38, 2) for edge in ((node, node + 1), (node + 1, node), (node + 1, node + 2))]
    + [(node, 40 + (node + 1) % 8) for node in range(40, 48)],
)


@given(directed_edges(), st.sampled_from(ALONE))
@settings(deadline=None, max_examples=60)
def test_components_are_those_of_networkx_and_scipy(edges: Edges, few: int) -> None:
    graph = graph_of(edges)
    label, _ = labels_and_rounds(graph, few, cpu_support.backend(threads=2))
    assert label.tolist() == networkx_labels(edges)
    assert np.array_equal(label, scipy_labels(graph))


BACKENDS: dict[str, Callable[[], Backend]] = {
    "cpu, 1 thread": lambda: cpu_support.backend(threads=1),
    "cpu, 2 threads": lambda: cpu_support.backend(threads=2),
    "webgpu": webgpu_support.backend,
} | {
    f"reference {number}": lambda order=order: ReferenceBackend(schedule=order)
    for number, order in enumerate(SCHEDULES)
}


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_and_schedule_gives_the_same_labels(name: str, few: int) -> None:
    label, rounds = labels_and_rounds(graph_of(MIXED), few, BACKENDS[name]())
    assert label.tolist() == networkx_labels(MIXED)
    assert rounds > 1


class DebuggedKernel:
    """A kernel whose launches run under several schedules first, which must find no race."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.launches = 0

    def on(self, _backend: Backend) -> DebuggedKernel:
        return self

    def grid(self, workgroups: int) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            self.launches += 1
            report = self.kernel.grid(workgroups).debug(*arguments, schedules=3)
            assert not report.races, report
            assert not report.out_of_bounds, report
            self.kernel.on("cpu").grid(workgroups)(*arguments)

        return call


@pytest.mark.parametrize("few", ALONE)
def test_invocations_of_no_kernel_race(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    names = ("choose_pivot", "split_by_pivot", "trim", "spread", "collect", "name_by_smallest")
    kernels = {name: DebuggedKernel(getattr(strong, name)) for name in names}
    for name, kernel in kernels.items():
        monkeypatch.setattr(strong, name, kernel)
    label, _ = labels_and_rounds(graph_of(MIXED), few)
    assert label.tolist() == networkx_labels(MIXED)
    assert all(kernel.launches for kernel in kernels.values())


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33])
def test_nodes_without_edges_are_components(count: int) -> None:
    assert strongly_connected_components(Graph.from_edges([], [], count)).tolist() == list(range(count))


@pytest.mark.parametrize("few", [None, 0])
def test_a_chain_of_cycles_takes_few_rounds(few: int | None) -> None:
    graph = chain_of_cycles(20_000, 2)
    label, rounds = labels_and_rounds(graph, few)
    assert np.array_equal(label, np.arange(40_000) // 2 * 2)
    assert rounds <= 40


def test_a_cycle_of_200_000_nodes_is_one_component() -> None:
    label, rounds = labels_and_rounds(chain_of_cycles(1, 200_000))
    assert not label.any()
    assert rounds == 0


def test_long_cycles_beside_the_first_are_found_by_their_colours() -> None:
    label, rounds = labels_and_rounds(chain_of_cycles(4, 25_000))
    assert np.array_equal(label, np.arange(100_000) // 25_000 * 25_000)
    assert rounds <= 4


@pytest.mark.parametrize("with_self_loops", [False, True])
def test_a_long_chain_is_trimmed_in_one_round(with_self_loops: bool) -> None:
    nodes = np.arange(500_000)
    sources, targets = (nodes, np.minimum(nodes + 1, 499_999)) if with_self_loops else (nodes[:-1], nodes[1:])
    label, rounds = labels_and_rounds(Graph.from_edges(sources, targets, 500_000))
    assert np.array_equal(label, nodes)
    assert rounds == 1


@pytest.mark.parametrize("few", ALONE)
@pytest.mark.parametrize("edges_for_each_node", [1, 8])
def test_components_of_a_large_random_graph_are_those_of_scipy(edges_for_each_node: int, few: int) -> None:
    graph = rmat(14, edges_for_each_node)
    label, _ = labels_and_rounds(graph, few)
    assert np.array_equal(label, scipy_labels(graph))


def test_many_small_components_are_those_of_scipy() -> None:
    random = np.random.default_rng(5)
    sources = random.integers(0, 60_000, 120_000)
    graph = Graph.from_edges(sources, (sources + random.integers(-3, 4, 120_000)) % 60_000, 60_000)
    assert np.array_equal(strongly_connected_components(graph), scipy_labels(graph))


def test_edges_without_a_kind_count() -> None:
    sources, targets = [0, 1, 2, 3, 3], [1, 2, 0, 1, 4]
    graph = Graph.from_edges(sources, targets, 5, kinds=[0, 1, 0, 2, 0])
    assert strongly_connected_components(graph).tolist() == [0, 0, 0, 3, 4]


def test_a_symmetric_graph_has_its_connected_components() -> None:
    graph = Graph.from_edges([0, 1, 4, 6], [2, 3, 5, 4], 7, undirected=True)
    assert strongly_connected_components(graph).tolist() == [0, 1, 0, 1, 4, 4, 4]


def test_out_receives_the_labels() -> None:
    graph = Graph.from_edges([2, 1], [1, 2], num_nodes=3)
    out = np.empty(3, np.uint32)
    assert strongly_connected_components(graph, out=out) is out
    assert out.tolist() == [0, 1, 1]
    on_device = vyre.array(np.zeros(3, np.uint32), backend="cpu")
    assert strongly_connected_components(graph, out=on_device) is on_device
    assert on_device.numpy().tolist() == [0, 1, 1]


def test_what_is_no_graph_or_too_large_is_refused() -> None:
    with pytest.raises(BadInputs, match="'g' is a list"):
        strongly_connected_components([[0, 1]])
    offsets = np.broadcast_to(np.uint32(0), MAX_QUEUED // 2 + 2)
    with pytest.raises(BadInputs, match="'g' has 1,073,741,825 nodes"):
        strongly_connected_components(Graph(offsets, np.zeros(0, np.uint32)))


def test_the_function_shows_its_program() -> None:
    assert strongly_connected_components.program.name == "spread"
