"""Topological levels are the generations of networkx, on every backend, and cycles are refused with their nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cpu_support
import vyre
import webgpu_support
from everywhere import SCHEDULES
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lib.graph import Graph
from vyre.lib.graph.csr import NO_NODE
from vyre.lib.graph.ordering import MAX_QUEUED, STATE_SIZE, find_levels, order_nodes, topological_levels
from vyre.lib.workspace import Workspace

Edges = tuple[int, list[tuple[int, int]]]

# One invocation goes alone always, never, or while levels are small.
ALONE = (1 << 31, 0, 8)


@st.composite
def directed_edges(draw: st.DrawFn) -> Edges:
    """A number of nodes, and edges that may be self loops and duplicates."""
    count = draw(st.sampled_from([1, 2, 31, 32, 33]) | st.integers(1, 70))
    node = st.integers(0, count - 1)
    return count, draw(st.lists(st.tuples(node, node), max_size=3 * count))


def acyclic(edges: Edges) -> Edges:
    """Edges between the same nodes that lead from nodes with small numbers, scrambled, to larger ones."""
    count, pairs = edges
    names = np.random.default_rng(count).permutation(count).tolist()
    return count, [(names[min(pair)], names[max(pair)]) for pair in pairs if pair[0] != pair[1]]


def graph_of(edges: Edges) -> Graph:
    count, pairs = edges
    ends = np.array(pairs, np.uint32).reshape(-1, 2)
    return Graph.from_edges(ends[:, 0], ends[:, 1], count)


def generations(edges: Edges) -> list[int]:
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(edges[0]))
    graph.add_edges_from(edges[1])
    level = [0] * edges[0]
    for number, nodes in enumerate(nx.topological_generations(graph)):
        for node in nodes:
            level[node] = number
    return level


def assert_longest_paths(graph: Graph, level: np.ndarray[Any, Any]) -> None:
    """Every level is one more than the highest level before it: on a graph without cycles only one answer has that."""
    expected = np.zeros(graph.num_nodes, np.uint32)
    np.maximum.at(expected, graph.targets, level[graph.sources()] + np.uint32(1))
    assert np.array_equal(level, expected)


def chain(count: int) -> Graph:
    nodes = np.arange(count, dtype=np.uint32)
    return Graph.from_edges(nodes[:-1], nodes[1:], count)


DIAMONDS: Edges = (
    40,
    [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 4), (0, 4)]
    + [(5, node) for node in range(6, 40)]
    + [(node, node + 1) for node in range(20, 39)],
)


@given(directed_edges(), st.sampled_from(ALONE))
@settings(deadline=None, max_examples=60)
def test_levels_are_the_generations_of_networkx(edges: Edges, few: int) -> None:
    dag = acyclic(edges)
    level = np.empty(dag[0], np.uint32)
    ordered, first_without = order_nodes(Workspace(cpu_support.backend(threads=2)), graph_of(dag), level, few)
    assert (ordered, first_without) == (dag[0], NO_NODE)
    assert level.tolist() == generations(dag)


@given(directed_edges(), st.sampled_from(ALONE))
@settings(deadline=None, max_examples=60)
def test_nodes_on_and_behind_cycles_have_no_level(edges: Edges, few: int) -> None:
    graph = nx.DiGraph(edges[1])
    on_cycles = {node for part in nx.strongly_connected_components(graph) if len(part) > 1 for node in part}
    on_cycles |= set(nx.nodes_with_selfloops(graph))
    without = on_cycles.union(*(nx.descendants(graph, node) for node in on_cycles))
    level = np.empty(edges[0], np.uint32)
    found = order_nodes(Workspace(cpu_support.backend(threads=1)), graph_of(edges), level, few)
    assert found == (edges[0] - len(without), min(without, default=NO_NODE))


BACKENDS: dict[str, Callable[[], Backend]] = {
    "cpu, 1 thread": lambda: cpu_support.backend(threads=1),
    "cpu, 2 threads": lambda: cpu_support.backend(threads=2),
    "webgpu": webgpu_support.backend,
} | {
    f"reference {number}": lambda order=order: ReferenceBackend(schedule=order)
    for number, order in enumerate(SCHEDULES)
}


@pytest.mark.parametrize("name", BACKENDS)
def test_every_backend_and_schedule_gives_the_same_levels(name: str) -> None:
    workspace, graph = Workspace(BACKENDS[name]()), graph_of(DIAMONDS)
    assert topological_levels(graph, backend=workspace.backend).tolist() == generations(DIAMONDS)
    level = workspace.output(graph.num_nodes, vyre.u32)
    order_nodes(workspace, graph, level, few=0)
    assert workspace.deliver(level).tolist() == generations(DIAMONDS)


@pytest.mark.parametrize("few", ALONE)
@pytest.mark.parametrize("edges", [DIAMONDS, (34, [(0, 1), (1, 2), (2, 1), (2, 33)])], ids=["dag", "cycle"])
def test_invocations_do_not_race(edges: Edges, few: int) -> None:
    graph = graph_of(edges)
    waiting, level = np.zeros(graph.num_nodes, np.uint32), np.zeros(graph.num_nodes, np.uint32)
    queue, state, first_waiting = (
        np.zeros(64, np.uint32),
        np.zeros(STATE_SIZE, np.uint32),
        np.array([NO_NODE], np.uint32),
    )
    report = find_levels.grid(2).debug(
        graph.offsets, graph.targets, few, waiting, level, queue, state, first_waiting, schedules=4
    )
    assert not report.races, report
    assert not report.out_of_bounds, report


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33])
def test_nodes_without_edges_have_level_0(count: int) -> None:
    assert topological_levels(Graph.from_edges([], [], count)).tolist() == [0] * count


def test_a_chain_of_a_million_nodes_has_a_million_levels() -> None:
    level = topological_levels(chain(1_000_000))
    assert np.array_equal(level, np.arange(1_000_000))


@pytest.mark.parametrize("few", ALONE)
def test_levels_of_a_large_random_graph_are_longest_paths(few: int) -> None:
    random = np.random.default_rng(3)
    ends = np.sort(random.integers(0, 50_000, (300_000, 2)), axis=1)
    # A few nodes have thousands of edges.
    ends[:20_000, 0] = np.minimum(ends[:20_000, 0] % 4, ends[:20_000, 1])
    ends = ends[ends[:, 0] != ends[:, 1]]
    names = random.permutation(50_000)
    graph = Graph.from_edges(names[ends[:, 0]], names[ends[:, 1]], 50_000)
    level = np.empty(50_000, np.uint32)
    order_nodes(Workspace("cpu"), graph, level, few)
    assert_longest_paths(graph, level)


def test_a_cycle_is_refused_with_its_extent() -> None:
    graph = Graph.from_edges([0, 1, 2, 2, 4], [1, 2, 1, 3, 5], num_nodes=6)
    with pytest.raises(BadInputs) as caught:
        topological_levels(graph)
    assert str(caught.value) == (
        "[bad-inputs] 'g' has a cycle: 3 nodes are on or behind one, and the smallest is 1. "
        "Fix: use strongly_connected_components to find the cycles."
    )
    with pytest.raises(BadInputs, match="1 node is on or behind one, and the smallest is 1"):
        topological_levels(Graph.from_edges([0, 1], [1, 1], num_nodes=2))


def test_out_receives_the_levels() -> None:
    graph = Graph.from_edges([0, 1], [1, 2], num_nodes=3)
    out = np.empty(3, np.uint32)
    assert topological_levels(graph, out=out) is out
    assert out.tolist() == [0, 1, 2]
    on_device = vyre.array(np.zeros(3, np.uint32), backend="cpu")
    assert topological_levels(graph, out=on_device) is on_device
    assert on_device.numpy().tolist() == [0, 1, 2]


def test_what_is_no_graph_or_too_large_is_refused() -> None:
    with pytest.raises(BadInputs, match="'g' is a list"):
        topological_levels([[0, 1]])
    offsets = np.broadcast_to(np.uint32(0), MAX_QUEUED + 2)
    with pytest.raises(BadInputs, match="'g' has 2,147,483,649 nodes"):
        topological_levels(Graph(offsets, np.zeros(0, np.uint32)))


def test_the_function_shows_its_program() -> None:
    assert topological_levels.program.name == "find_levels"
