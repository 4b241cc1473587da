"""Breadth-first search, reachability and one-hop traversal: every mode, every backend, every graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import networkx as nx
import numpy as np
import pytest
from graph_support import (
    BACKENDS,
    CPU,
    FAMILIES,
    NONE,
    Array,
    Edges,
    backend_of,
    chain,
    edge_lists,
    edges_of,
    family_and_backend,
    grid,
    levels_by_numpy,
    nodes_of,
    plain_levels,
    plain_neighbours,
    plain_parents,
    random_edges,
    refused,
    rmat,
    searches,
    searches_for,
    sizes_for,
    star,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BackendUnavailable
from vyre.lang.kernel import Kernel
from vyre.lib.graph import Graph, bfs, reach, traverse
from vyre.lib.graph import search as module
from vyre.lib.workspace import Workspace
from vyre.reference import IN_ORDER, REVERSED, seeded
from vyre.semantics.types import DType

DIRECTIONS = ("forward", "backward", "both")
# Modes of a search, as the number of edges below which it goes alone, and whether nodes pull.
MODES: dict[str, tuple[int, bool]] = {
    "push": (0, False),
    "alone": (NONE, False),
    "pull and push": (0, True),
    "alone, pull and push": (20, True),
    "alone and push": (20, False),
}


def mode_of(name: str) -> dict[str, Any]:
    few, can_pull = MODES[name]
    return {"few": few, "can_pull": can_pull}


class UncleanWorkspace(Workspace):
    """Memory that need not be zero is not."""

    def empty(self, count: int, dtype: DType) -> Array:
        return np.full(count, 0xA5A5A5A5, np.uint32).astype(dtype.storage)


class Recorder:
    """Takes the place of a kernel, and keeps the arguments that it is called with."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.arguments: dict[str, Any] = {}

    def on(self, _: Backend) -> Recorder:
        return self

    def grid(self, _: int) -> Recorder:
        return self

    def __call__(self, *arguments: Any) -> None:
        self.arguments = dict(zip((one.name for one in self.kernel.parameters), arguments, strict=True))


def operands(
    graph: Graph,
    seeds: Sequence[int],
    few: int | None = None,
    *,
    can_pull: bool = False,
    hops: int = NONE,
    allow: int = NONE,
) -> dict[str, Any]:
    """The arguments of the search kernel, by name; ``few`` is the number of edges below which it goes alone."""
    searched = Graph(graph.offsets, graph.targets, kinds=graph.kinds)
    searched.is_symmetric = False
    if can_pull:
        searched._transpose = graph.transpose()
    recorder = Recorder(module.search_kernel(graph.kinds is not None))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "search_kernel", lambda _: recorder)
        if few is not None:
            patch.setattr(module, "_FEW_EDGES", few)
            patch.setattr(module, "_NODES_FOR_EACH_EDGE_ALONE", NONE)
        level = np.full(graph.num_nodes, NONE, np.uint32)
        listed = np.array(seeds, np.uint32)
        module.search_levels(UncleanWorkspace(backend_of("cpu")), searched, listed, level, allow, hops)
    return recorder.arguments or {"level": level}


def search(arguments: dict[str, Any], *, masked: bool = False, on: str = CPU, workgroups: int = 3) -> Array:
    """Run the kernel and return the levels."""
    if len(arguments) > 1:
        module.search_kernel(masked).on(backend_of(on)).grid(workgroups)(**arguments)
    levels: Array = arguments["level"]
    return levels


class TestLevelsAndParents:
    @family_and_backend(*BACKENDS)
    def test_are_those_of_a_plain_search(self, family: str, name: str) -> None:
        on = backend_of(name)
        for size in sizes_for(name):
            for one in searches_for(name, family, size):
                levels, parents = bfs(one.graph, one.seeds, parents=True, backend=on)
                assert levels.tolist() == one.levels
                assert parents.tolist() == one.parents
                assert levels.dtype == parents.dtype == np.uint32

    @settings(max_examples=40, deadline=None)
    @given(st.data(), edge_lists(), st.booleans())
    def test_of_any_graph(self, data: st.DataObject, edges: Edges, transposed: bool) -> None:
        seeds = data.draw(nodes_of(edges))
        graph = edges.graph()
        if transposed:
            graph.transpose()
        levels, parents = bfs(graph, seeds, parents=True, backend=backend_of(CPU))
        wanted = plain_levels(edges, seeds)
        assert levels.tolist() == wanted
        assert parents.tolist() == plain_parents(edges, wanted)
        assert bfs(graph, seeds).tolist() == wanted

    @pytest.mark.parametrize("source", [0, 7, 300])
    def test_agree_with_networkx(self, source: int) -> None:
        theirs = nx.gnp_random_graph(301, 0.01, seed=source, directed=True)
        ends = np.array(theirs.edges)
        levels, parents = bfs(Graph.from_edges(ends[:, 0], ends[:, 1], 301), source, parents=True)
        wanted = nx.single_source_shortest_path_length(theirs, source)
        assert {node: level for node, level in enumerate(levels.tolist()) if level != NONE} == wanted
        for node in wanted.keys() - {source}:
            assert theirs.has_edge(parents[node], node)
            assert levels[parents[node]] == levels[node] - 1

    def test_of_a_million_nodes(self) -> None:
        graph = random_edges(1_000_001, 2).graph()
        wanted = levels_by_numpy(graph, 77)
        levels, parents = bfs(graph, 77, parents=True)
        assert np.array_equal(levels, wanted)
        inner = np.flatnonzero((wanted != NONE) & (wanted != 0))
        assert (wanted[parents[inner]] + 1 == wanted[inner]).all()
        assert parents[77] == 77
        assert (parents[wanted == NONE] == NONE).all()

    @pytest.mark.parametrize(("scale", "degree"), [(12, 4), (13, 16)])
    def test_of_large_graphs_of_uneven_degree(self, scale: int, degree: int) -> None:
        edges = rmat(1 << scale, degree)
        one_way = edges.graph()
        with_transpose = edges.graph()
        with_transpose.transpose()
        keys = np.unique(np.concatenate([edges.sources << 32 | edges.targets, edges.targets << 32 | edges.sources]))
        both = Graph.from_edges(keys >> 32, keys & NONE, edges.nodes)
        assert both.is_symmetric
        for graph in (one_way, with_transpose, both):
            for source in (0, 3, edges.nodes - 1):
                wanted = levels_by_numpy(graph, source)
                for name in ("cpu", CPU):
                    assert np.array_equal(bfs(graph, source, backend=backend_of(name)), wanted)

    def test_take_a_source_in_every_form(self) -> None:
        graph = chain(5).graph()
        forms = (2, np.int64(2), np.uint8(2), np.array(2), [2], (2,), np.array([2], np.int16), [2, 2])
        on_device = vyre.array(np.array([2], np.uint32), backend="cpu")
        for source in (*forms, on_device):
            assert bfs(graph, source).tolist() == [NONE, NONE, 0, 1, 2]

    def test_of_no_source_and_of_no_nodes(self) -> None:
        nothing = Graph.from_csr([0], [])
        for name in ("cpu", "webgpu", "reference"):
            on = backend_of(name)
            levels, parents = bfs(chain(3).graph(), [], parents=True, backend=on)
            assert levels.tolist() == parents.tolist() == [NONE] * 3
            levels, parents = bfs(nothing, [], parents=True, backend=on)
            assert levels.tolist() == parents.tolist() == []
            assert reach(nothing, [], backend=on).tolist() == []
            assert traverse(nothing, [], direction="both", backend=on).tolist() == []

    def test_count_every_edge_whatever_its_kind(self) -> None:
        edges = edges_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
        for kinds in ([1, 1, 0, 1], [0, 0, 0, 0], [4, 8, 16, 32]):
            graph = edges.graph(kinds=kinds)
            for _ in range(2):
                levels, parents = bfs(graph, 0, parents=True)
                assert levels.tolist() == [0, 1, 1, 2]
                assert parents.tolist() == [0, 0, 0, 1]
                graph.transpose()

    def test_weights_are_not_looked_at(self) -> None:
        assert bfs(chain(3).graph(weights=[np.nan, 100.0]), 0).tolist() == [0, 1, 2]

    def test_the_graph_stays_as_it_is(self) -> None:
        graph = rmat(300).graph()
        before = graph.offsets.copy(), graph.targets.copy()
        bfs(graph, 0, parents=True)
        assert np.array_equal(graph.offsets, before[0])
        assert np.array_equal(graph.targets, before[1])


class TestOutputs:
    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_go_where_the_caller_says(self, name: str) -> None:
        on = backend_of(name)
        graph = chain(40).graph()
        levels = np.full(40, 7, np.uint32)
        assert bfs(graph, 5, backend=on, out=levels) is levels
        assert levels.tolist() == plain_levels(chain(40), [5])
        reached = np.ones(40, bool)
        assert reach(graph, 5, backend=on, out=reached) is reached
        assert reached.tolist() == [node >= 5 for node in range(40)]
        found = np.ones(40, bool)
        assert traverse(graph, 5, backend=on, out=found) is found
        assert np.flatnonzero(found).tolist() == [6]

    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_stay_on_the_device_of_an_array_there(self, name: str) -> None:
        on = backend_of(name)
        graph = chain(40).graph()
        out = vyre.array(np.zeros(40, np.uint32), backend=on)
        levels, parents = bfs(graph, 5, parents=True, out=out)
        assert levels is out
        assert (levels.backend, parents.backend) == (on, on)
        assert levels.numpy().tolist() == plain_levels(chain(40), [5])
        assert parents.numpy().tolist() == plain_parents(chain(40), plain_levels(chain(40), [5]))
        marks = vyre.array(np.ones(40, bool), backend=on)
        assert reach(graph, 5, out=marks) is marks
        assert marks.numpy().tolist() == [node >= 5 for node in range(40)]
        assert traverse(graph, 5, out=marks, direction="backward") is marks
        assert np.flatnonzero(marks.numpy()).tolist() == [4]

    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_may_be_resident_buffers(self, name: str) -> None:
        on = backend_of(name)
        buffer = on.allocate(40 * 4)
        try:
            assert bfs(chain(40).graph(), 5, out=buffer) is buffer
            levels = np.frombuffer(on.download(buffer), np.uint32)
            assert levels.tolist() == plain_levels(chain(40), [5])
        finally:
            on.free(buffer)

    def test_may_be_the_array_of_the_sources(self) -> None:
        sources = np.array([1, 1, 3, 3, 3], np.uint32)
        assert bfs(chain(5).graph(), sources, out=sources).tolist() == [NONE, 0, 1, 0, 1]

    def test_are_new_arrays_each_time(self) -> None:
        graph = chain(3).graph()
        first = bfs(graph, 0)
        first[:] = 9
        assert bfs(graph, 0).tolist() == [0, 1, 2]


class TestModes:
    """The kernel itself, held to each way of making a level: alone, pushes and pulls must agree."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("family", FAMILIES)
    def test_agree(self, family: str, mode: str) -> None:
        for size, workgroups in ((1, 1), (33, 5), (65, 1), (129, 5)):
            for one in searches(family, size):
                levels = search(operands(one.graph, one.seeds, **mode_of(mode)), workgroups=workgroups)
                assert levels.tolist() == one.levels

    @pytest.mark.parametrize("name", ["cpu 8x1", "cpu 16x2", "webgpu", "reference"])
    @pytest.mark.parametrize("mode", MODES)
    def test_agree_on_every_backend(self, mode: str, name: str) -> None:
        for edges in (random_edges(70), star(70).both_ways(), grid(64), chain(12), rmat(65)):
            levels = search(operands(edges.graph(), [3], **mode_of(mode)), on=name, workgroups=2)
            assert levels.tolist() == plain_levels(edges, [3])

    @settings(max_examples=30, deadline=None)
    @given(st.data(), edge_lists(least_nodes=1), st.sampled_from(sorted(MODES)))
    def test_agree_on_any_graph_with_kinds_and_limits(self, data: st.DataObject, edges: Edges, mode: str) -> None:
        count = len(edges.sources)
        kinds = data.draw(st.lists(st.integers(0, 7), min_size=count, max_size=count))
        allow = data.draw(st.integers(1, 7))
        hops = data.draw(st.sampled_from([1, 2, 3, 5, NONE]))
        seeds = data.draw(nodes_of(edges))
        arguments = operands(edges.graph(kinds=kinds), seeds, **mode_of(mode), hops=hops, allow=allow)
        levels = search(arguments, masked=True)
        assert levels.tolist() == plain_levels(edges, seeds, [kind & allow != 0 for kind in kinds], hops)

    @pytest.mark.parametrize("family", ["chain", "grid", "random", "star", "disconnected"])
    def test_pulls_alone_find_every_level(self, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where any frontier is large enough to pull, nothing but pulls is used."""
        monkeypatch.setattr(module, "_PULL", NONE)
        monkeypatch.setattr(module, "_PUSH", NONE)
        for size in (2, 33, 65, 257):
            edges = FAMILIES[family](size)
            wanted = plain_levels(edges, [0])
            arguments = operands(edges.graph(), [0], few=0, can_pull=True)
            assert search(arguments).tolist() == wanted
            # With no way to push, the levels are still found.
            arguments = operands(edges.graph(), [0], few=0, can_pull=True)
            arguments["targets"] = np.zeros_like(arguments["targets"])
            assert search(arguments).tolist() == wanted

    def uses_pulls(self, graph: Graph, seeds: list[int]) -> bool:
        """Whether the search depends on the edges into nodes."""
        arguments = operands(graph, seeds, can_pull=True)
        arguments["in_sources"] = np.full_like(arguments["in_sources"], NONE)
        return not np.array_equal(search(arguments, on="cpu"), bfs(graph, seeds))

    def alone_until(self, graph: Graph, seeds: list[int], *, can_pull: bool) -> int:
        """The level at which the invocation that goes alone has last ended; 0 if none has."""
        arguments = operands(graph, seeds, can_pull=can_pull)
        search(arguments, on="cpu")
        return int(arguments["state"][0])

    def test_a_long_chain_is_followed_alone(self) -> None:
        edges = chain(20_000)
        both = Graph.from_edges(edges.sources, edges.targets, edges.nodes, undirected=True)
        assert both.is_symmetric
        distance = np.abs(np.arange(20_000) - 5000)
        assert np.array_equal(bfs(both, 5000), distance)
        assert not self.uses_pulls(both, [5000])
        assert self.alone_until(both, [5000], can_pull=True) == 15_000
        graph = edges.graph()
        assert np.array_equal(bfs(graph, 0), np.arange(20_000))
        assert self.alone_until(graph, [0], can_pull=False) == 20_000

    def test_a_grid_is_followed_alone(self) -> None:
        side = 150
        edges = grid(side * side)
        both = Graph.from_edges(edges.sources, edges.targets, edges.nodes, undirected=True)
        assert both.is_symmetric
        down, across = np.divmod(np.arange(side * side), side)
        middle = 75 * side + 75
        assert np.array_equal(bfs(both, middle), np.abs(down - 75) + np.abs(across - 75))
        assert not self.uses_pulls(both, [middle])
        assert self.alone_until(both, [middle], can_pull=True) == 151

    def test_a_large_star_is_pushed_out_of_its_centre(self) -> None:
        graph = star(5000).graph()
        assert bfs(graph, 0).tolist() == [0] + [1] * 4999
        arguments = operands(graph, [0], hops=1)
        assert search(arguments, on="cpu").tolist() == [0] + [1] * 4999
        # No invocation has gone alone.
        assert arguments["state"][0] == 0

    def test_a_large_star_is_pulled_from_its_centre(self) -> None:
        graph = Graph.from_edges(star(5000).sources, star(5000).targets, undirected=True)
        assert graph.is_symmetric
        assert bfs(graph, 17).tolist() == [1] + [0 if leaf == 17 else 2 for leaf in range(1, 5000)]
        assert self.uses_pulls(graph, [17])
        assert self.alone_until(graph, [17], can_pull=True) > 0

    def test_a_dense_graph_is_pulled(self) -> None:
        edges = rmat(1 << 13, 16)
        graph = edges.graph()
        graph.transpose()
        assert np.array_equal(bfs(graph, 0), levels_by_numpy(graph, 0))
        assert self.uses_pulls(graph, [0])

    def test_change_from_one_to_the_next_and_back(self) -> None:
        """A chain into a star, from its leaves a chain again, which ends in a complete graph."""
        leaves = 6000
        first = [(node, node + 1) for node in range(100)]
        fan = [(100, 101 + leaf) for leaf in range(leaves)]
        after = 101 + leaves
        second = [(101, after)] + [(after + node, after + node + 1) for node in range(100)]
        last = after + 100
        dense = [(last + a, last + b) for a in range(80) for b in range(80) if a != b]
        edges = edges_of(last + 80, first + fan + second + dense)
        wanted = plain_levels(edges, [0])
        graph = edges.graph()
        for name in ("cpu", CPU):
            assert bfs(graph, 0, backend=backend_of(name)).tolist() == wanted
        assert self.alone_until(graph, [0], can_pull=False) > 200
        graph.transpose()
        both = edges.both_ways()
        for name in ("cpu", CPU):
            assert bfs(graph, 0, backend=backend_of(name)).tolist() == wanted
            assert bfs(both.graph(), 0, backend=backend_of(name)).tolist() == plain_levels(both, [0])


class TestReach:
    @settings(max_examples=40, deadline=None)
    @given(st.data(), edge_lists(), st.booleans(), st.booleans())
    def test_is_what_a_plain_search_finds(
        self, data: st.DataObject, edges: Edges, has_kinds: bool, transposed: bool
    ) -> None:
        count = len(edges.sources)
        kinds = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, 1 << 31, NONE]), min_size=count, max_size=count))
        allow = data.draw(st.sampled_from([0, 1, 2, 3, 4, 1 << 31, NONE]))
        hops = data.draw(st.sampled_from([0, 1, 2, 3, 7, None]))
        seeds = data.draw(nodes_of(edges))
        graph = edges.graph(kinds=kinds) if has_kinds else edges.graph()
        if transposed:
            graph.transpose()
        allowed = [(kind if has_kinds else NONE) & allow != 0 for kind in kinds]
        levels = plain_levels(edges, seeds, allowed, NONE if hops is None else hops)
        reached = reach(graph, seeds, allow_mask=allow, max_hops=hops, backend=backend_of(CPU))
        assert reached.dtype == np.bool_
        assert reached.tolist() == [level != NONE for level in levels]

    @pytest.mark.parametrize("name", ["cpu", "cpu 16x2", "webgpu", "reference"])
    def test_on_every_backend(self, name: str) -> None:
        on = backend_of(name)
        for family in ("random", "star"):
            edges = FAMILIES[family](65)
            kinds = [1 << at % 3 for at in range(len(edges.sources))]
            graph = edges.graph(kinds=kinds)
            for _ in range(2):
                for allow, hops in ((5, None), (2, None), (NONE, 2), (3, 0), (0, None)):
                    allowed = [kind & allow != 0 for kind in kinds]
                    levels = plain_levels(edges, [0, 9], allowed, NONE if hops is None else hops)
                    reached = reach(graph, [0, 9], allow_mask=allow, max_hops=hops, backend=on)
                    assert reached.tolist() == [level != NONE for level in levels]
                graph.transpose()

    @pytest.mark.parametrize("hops", [0, 1, 2, 10, 2047, NONE])
    def test_ends_after_so_many_hops(self, hops: int) -> None:
        """In the middle of a search alone, of pushes and of pulls."""
        for edges in (chain(3000), rmat(2048)):
            graph = edges.graph()
            wanted = levels_by_numpy(graph, 0) <= min(hops, NONE - 1)
            assert np.array_equal(reach(graph, 0, max_hops=hops), wanted)
            graph.transpose()
            assert np.array_equal(reach(graph, 0, max_hops=hops), wanted)

    def test_needs_a_kind_that_is_allowed(self) -> None:
        graph = Graph.from_edges([0, 1, 2], [1, 2, 3], 4, kinds=[1, 2, 0])
        assert reach(graph, 0).tolist() == [True, True, True, False]
        assert reach(graph, 0, allow_mask=1).tolist() == [True, True, False, False]
        assert reach(graph, 0, allow_mask=4).tolist() == [True, False, False, False]
        assert reach(graph, 0, allow_mask=0).tolist() == [True, False, False, False]

    def test_of_edges_without_kinds_needs_any_bit(self) -> None:
        graph = chain(3).graph()
        assert reach(graph, 0, allow_mask=1 << 31).tolist() == [True, True, True]
        assert reach(graph, 0, allow_mask=0).tolist() == [True, False, False]

    def test_of_a_large_graph_with_kinds(self) -> None:
        edges = rmat(1 << 12, 8)
        kinds = np.arange(len(edges.sources)) % 4 + 1
        graph = edges.graph(kinds=kinds)
        allowed = (kinds & 2) != 0
        wanted = (
            levels_by_numpy(Graph.from_edges(edges.sources[allowed], edges.targets[allowed], edges.nodes), 1) != NONE
        )
        assert np.array_equal(reach(graph, 1, allow_mask=2), wanted)
        graph.transpose()
        assert np.array_equal(reach(graph, 1, allow_mask=2), wanted)

    def test_agrees_with_networkx(self) -> None:
        theirs = nx.gnp_random_graph(200, 0.008, seed=5, directed=True)
        ends = np.array(theirs.edges)
        reached = reach(Graph.from_edges(ends[:, 0], ends[:, 1], 200), [3, 4])
        wanted = {3, 4} | nx.descendants(theirs, 3) | nx.descendants(theirs, 4)
        assert set(np.flatnonzero(reached).tolist()) == wanted


class TestTraverse:
    @settings(max_examples=30, deadline=None)
    @given(st.data(), edge_lists(), st.sampled_from(DIRECTIONS), st.booleans())
    def test_finds_the_other_ends(self, data: st.DataObject, edges: Edges, direction: str, has_kinds: bool) -> None:
        count = len(edges.sources)
        kinds = data.draw(st.lists(st.sampled_from([0, 1, 2, NONE]), min_size=count, max_size=count))
        allow = data.draw(st.sampled_from([0, 1, 2, 3, NONE]))
        nodes = data.draw(nodes_of(edges, 40))
        graph = edges.graph(kinds=kinds) if has_kinds else edges.graph()
        allowed = [(kind if has_kinds else NONE) & allow != 0 for kind in kinds]
        found = traverse(graph, nodes, direction=direction, allow_mask=allow, backend=backend_of(CPU))
        assert found.dtype == np.bool_
        assert found.tolist() == plain_neighbours(edges, nodes, direction, allowed)

    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    @pytest.mark.parametrize("direction", DIRECTIONS)
    def test_on_every_backend(self, direction: str, name: str) -> None:
        on = backend_of(name)
        for family in ("random", "self loops", "no edges"):
            for size in (0, 1, 33):
                edges = FAMILIES[family](size)
                nodes = list(range(0, size, 3))
                found = traverse(edges.graph(), nodes, direction=direction, backend=on)
                assert found.tolist() == plain_neighbours(edges, nodes, direction)

    def test_finds_a_node_itself_only_by_an_edge(self) -> None:
        graph = Graph.from_edges([0, 1], [1, 1], 3)
        assert traverse(graph, [0]).tolist() == [False, True, False]
        assert traverse(graph, [1]).tolist() == [False, True, False]
        assert traverse(graph, [1], direction="backward").tolist() == [True, True, False]
        assert traverse(graph, [2], direction="both").tolist() == [False, False, False]

    def test_of_many_nodes(self) -> None:
        edges = rmat(1 << 12)
        nodes = np.arange(0, 1 << 12, 2)
        chosen = np.isin(edges.sources, nodes)
        wanted = np.zeros(1 << 12, bool)
        wanted[edges.targets[chosen]] = True
        assert np.array_equal(traverse(edges.graph(), nodes), wanted)


class TestSchedules:
    """No race, and the same result in whatever order invocations run."""

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("masked", [False, True])
    def test_the_search_has_no_race(self, mode: str, masked: bool) -> None:
        """The queue's order may depend on the schedule; levels may not, which the next test looks at."""
        edges = random_edges(66, 2)
        kinds = np.arange(len(edges.sources)) % 5
        allowed = [kind & 6 != 0 for kind in kinds.tolist()] if masked else None
        graph = edges.graph(kinds=kinds) if masked else edges.graph()
        # From one node, and from more than those whose edges are shared between invocations.
        for seeds in ([0], list(range(0, 66, 2))):
            arguments = operands(graph, seeds, **mode_of(mode), allow=6)
            report = module.search_kernel(masked).grid(2).debug(**arguments, schedules=3)
            assert report.races == (), str(report)
            assert report.outputs["level"].tolist() == plain_levels(edges, seeds, allowed)

    @pytest.mark.parametrize("schedule", [IN_ORDER, REVERSED, seeded(1)], ids=str)
    def test_results_do_not_depend_on_the_order(self, schedule: Any) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        for edges in (random_edges(40, 2), star(34).both_ways()):
            graph = edges.graph(kinds=np.arange(len(edges.sources)) % 4)
            plain = edges.graph()
            for _ in range(2):
                levels, parents = bfs(plain, [3], parents=True, backend=on)
                wanted = plain_levels(edges, [3])
                assert levels.tolist() == wanted
                assert parents.tolist() == plain_parents(edges, wanted)
                kinds = [at % 4 & 2 != 0 for at in range(len(edges.sources))]
                reached = [level != NONE for level in plain_levels(edges, [3], kinds)]
                assert reach(graph, [3], allow_mask=2, backend=on).tolist() == reached
                for direction in DIRECTIONS:
                    found = traverse(graph, [3, 5], direction=direction, allow_mask=2, backend=on)
                    assert found.tolist() == plain_neighbours(edges, [3, 5], direction, kinds)
                plain.transpose(), graph.transpose()
            for mode in MODES:
                arguments = operands(plain, [3], **mode_of(mode))
                module.search_kernel(False).on(on).grid(2)(**arguments)
                assert arguments["level"].tolist() == plain_levels(edges, [3])

    def test_the_small_kernels_are_clean(self) -> None:
        edges = random_edges(40, 4)
        graph = edges.graph(kinds=np.arange(160) % 3)
        levels = np.array(plain_levels(edges, [0]), np.uint32)
        flags, words, seeds = np.ones(40, bool), np.full(40, NONE, np.uint32), np.array([3, 5, 3], np.uint32)
        assert graph.kinds is not None
        reports = [
            module.fill[40].debug(np.zeros(40, np.uint32), 7),
            module.find_reached[40].debug(levels, flags),
            module.clear_marks[40].debug(flags),
            module.mark_targets.grid(2).debug(
                seeds, graph.offsets, graph.targets, graph.kinds, True, 1, np.zeros(40, bool)
            ),
            module.start_parents[40].debug(levels, words),
            module.keep_smallest.grid(3).debug(graph.offsets, graph.targets, levels, words),
        ]
        for report in reports:
            assert report.ok, str(report)
            assert report.out_of_bounds == (), str(report)


GRAPH = chain(4).graph()
BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no graph": (
        lambda: bfs(np.eye(3), 0),  # type: ignore[arg-type]
        "'g' is a ndarray. Fix: pass a Graph: Graph.from_edges(sources, targets, n).",
    ),
    "no graph for reach": (
        lambda: reach(None, 0),  # type: ignore[arg-type]
        "'g' is a NoneType. Fix: pass a Graph: Graph.from_edges(sources, targets, n).",
    ),
    "no graph for traverse": (
        lambda: traverse([[1]], 0),  # type: ignore[arg-type]
        "'g' is a list. Fix: pass a Graph: Graph.from_edges(sources, targets, n).",
    ),
    "a source that is no node": (
        lambda: bfs(GRAPH, 4),
        "'source' has 4 at position 0, and the number of nodes is 4. Fix: pass numbers below 4.",
    ),
    "a source of a graph without nodes": (
        lambda: bfs(Graph.from_csr([0], []), 0),
        "'source' has 0 at position 0, and the number of nodes is 0. Fix: pass numbers below 0.",
    ),
    "a negative source": (
        lambda: bfs(GRAPH, -1),
        "'source' has -1 at position 0. Fix: pass numbers from 0.",
    ),
    "a source over u32": (
        lambda: bfs(GRAPH, 1 << 32),
        "'source' has 4,294,967,296 at position 0, and ids are u32. Fix: pass at most 4,294,967,295.",
    ),
    "a source that is the mark of no node": (
        lambda: bfs(GRAPH, np.array([0, NONE], np.uint32)),
        "'source' has 4,294,967,295 at position 1, and the number of nodes is 4. Fix: pass numbers below 4.",
    ),
    "seeds of which one is no node": (
        lambda: reach(GRAPH, [0, 3, 9, 8]),
        "'seeds' has 9 at position 2, and the number of nodes is 4. Fix: pass numbers below 4.",
    ),
    "seeds that are floats": (
        lambda: reach(GRAPH, [0.0, 1.0]),
        "'seeds' has elements of type float64, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "a mask of nodes": (
        lambda: reach(GRAPH, np.ones(4, bool)),
        "'seeds' has elements of type bool, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "seeds of two axes": (
        lambda: reach(GRAPH, [[0], [1]]),
        "'seeds' has shape (2, 1), expected one axis. Fix: pass an array of one axis.",
    ),
    "nodes that are none": (
        lambda: traverse(GRAPH, [-2]),
        "'nodes' has -2 at position 0. Fix: pass numbers from 0.",
    ),
    "an unknown direction": (
        lambda: traverse(GRAPH, 0, direction="sideways"),
        "'direction' is 'sideways'. Fix: pass 'forward', 'backward' or 'both'.",
    ),
    "a negative mask": (
        lambda: reach(GRAPH, 0, allow_mask=-1),
        "'allow_mask' is -1. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "a mask over u32": (
        lambda: traverse(GRAPH, 0, allow_mask=1 << 32),
        "'allow_mask' is 4294967296. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "a mask that is a float": (
        lambda: reach(GRAPH, 0, allow_mask=1.0),  # type: ignore[arg-type]
        "'allow_mask' is 1.0. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "negative hops": (
        lambda: reach(GRAPH, 0, max_hops=-1),
        "'max_hops' is -1. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "half a hop": (
        lambda: reach(GRAPH, 0, max_hops=0.5),  # type: ignore[arg-type]
        "'max_hops' is 0.5. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "hops that are a bool": (
        lambda: reach(GRAPH, 0, max_hops=True),
        "'max_hops' is True. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "a short output": (
        lambda: bfs(GRAPH, 0, out=np.zeros(3, np.uint32)),
        "'out' has 3 elements, expected 4. Fix: pass 4 u32.",
    ),
    "an output of another type": (
        lambda: bfs(GRAPH, 0, out=np.zeros(4, np.int32)),
        "'out' has elements of type int32, expected u32. Fix: convert it: array.astype(np.uint32).",
    ),
    "words for marks": (
        lambda: reach(GRAPH, 0, out=np.zeros(4, np.uint32)),
        "'out' has elements of type uint32, expected bool. Fix: convert it: array.astype(np.bool).",
    ),
    "an output of two axes": (
        lambda: bfs(GRAPH, 0, out=np.zeros((2, 2), np.uint32)),
        "'out' has shape (2, 2), expected one axis. Fix: pass array.reshape(-1).",
    ),
    "an output that is a view with gaps": (
        lambda: bfs(GRAPH, 0, out=np.zeros(8, np.uint32)[::2]),
        "'out' is read-only or not contiguous. Fix: pass an array of its own.",
    ),
    "a list as output": (
        lambda: bfs(GRAPH, 0, out=[0, 0, 0, 0]),
        "'out' is a list, expected an array. Fix: make it one: np.array(..., np.uint32).",
    ),
    "an output on another backend": (
        lambda: bfs(GRAPH, 0, backend="cpu", out=vyre.array(np.zeros(4, np.uint32), backend="reference")),
        "an array is on backend 'reference', and the call runs on 'cpu'. "
        "Fix: run it where its arrays are, or copy them: vyre.array(a.numpy(), backend=...).",
    ),
    "no backend": (
        lambda: bfs(GRAPH, 0, backend=3),  # type: ignore[arg-type]
        "a int is no backend. Fix: give a name, as in 'cpu', or vyre.backend(...).",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("what", BAD_CALLS)
    def test_is_named(self, what: str) -> None:
        call, said = BAD_CALLS[what]
        assert refused(call) == said

    @pytest.mark.parametrize("value", [1.5, 1.0, None, "0", True, np.True_, np.float32(1), 1j])
    def test_a_value_that_is_no_node_is_told_as_it_is(self, value: Any) -> None:
        for name, call in (("source", bfs), ("seeds", reach), ("nodes", traverse)):
            said = refused(partial(call, GRAPH, value))
            assert said == f"'{name}' is {value!r}. Fix: pass the number of a node, or several."

    def test_an_unknown_backend_is_named(self) -> None:
        with pytest.raises(BackendUnavailable) as caught:
            bfs(GRAPH, 0, backend="nowhere")
        assert "there is no backend 'nowhere'" in str(caught.value)

    def test_leaves_the_output_as_it_was(self) -> None:
        out = np.full(4, 5, np.uint32)
        refused(lambda: bfs(GRAPH, 4, out=out))
        assert out.tolist() == [5, 5, 5, 5]

    @pytest.mark.parametrize("name", ["offsets", "targets"])
    def test_an_output_that_is_the_graph_is_refused_before_it_is_written(self, name: str) -> None:
        for call, dtype in ((bfs, np.uint32), (traverse, np.bool_)):
            graph = Graph.from_csr(np.array([0, 1, 2], np.uint32), np.array([1, 0], np.uint32))
            said = refused(partial(call, graph, 0, out=getattr(graph, name).view(dtype)[:2]))
            assert "shares memory" in said
            assert (graph.offsets.tolist(), graph.targets.tolist()) == ([0, 1, 2], [1, 0])

    def test_a_temporary_array_of_zeros_is_one_on_every_backend(self) -> None:
        for name in ("cpu", "webgpu", "reference"):
            workspace = Workspace(backend_of(name))
            assert workspace.read(workspace.zeros(5, vyre.u32)).tolist() == [0] * 5
