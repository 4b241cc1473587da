"""Graphs in CSR form: construction, checks, transposition, symmetry, SciPy, arrays on devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from graph_support import (
    FAMILIES,
    NONE,
    SIZES,
    Edges,
    backend_of,
    edge_lists,
    edges_of,
    is_plainly_symmetric,
    refused,
    rmat,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import vyre
from vyre.lib.graph import Graph, bfs
from vyre.lib.graph.csr import find_asymmetry
from vyre.lib.workspace import Workspace

INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)


def rows(graph: Graph) -> list[list[int]]:
    return [graph.targets[graph.offsets[node] : graph.offsets[node + 1]].tolist() for node in range(graph.num_nodes)]


def columns(graph: Graph) -> list[tuple[int, ...]]:
    """Every edge with its source, target and whatever it carries."""
    carried = [column.tolist() for column in (graph.weights, graph.kinds) if column is not None]
    return list(zip(graph.sources().tolist(), graph.targets.tolist(), *carried, strict=True))


class TestFromEdges:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_makes_sorted_rows_of_every_graph(self, family: str) -> None:
        for size in SIZES:
            edges = FAMILIES[family](size)
            graph = edges.graph()
            assert (graph.num_nodes, graph.num_edges) == (size, len(edges.sources))
            assert (graph.offsets.dtype, graph.targets.dtype) == (np.uint32, np.uint32)
            assert len(graph.offsets) == size + 1
            assert columns(graph) == sorted(edges.pairs())

    @settings(max_examples=50, deadline=None)
    @given(edge_lists(), st.data())
    def test_keeps_the_order_of_duplicate_edges_and_what_they_carry(self, edges: Edges, data: st.DataObject) -> None:
        count = len(edges.sources)
        kinds = data.draw(st.lists(st.integers(0, NONE), min_size=count, max_size=count))
        weights = np.arange(count, dtype=data.draw(st.sampled_from([np.float32, np.float64])))
        graph = edges.graph(weights=weights, kinds=kinds)
        order = sorted(range(count), key=lambda at: edges.pairs()[at])
        assert columns(graph) == [(*edges.pairs()[at], float(at), kinds[at]) for at in order]
        assert graph.weights is not None
        assert graph.weights.dtype == weights.dtype

    def test_keeps_the_order_of_very_many_duplicates(self) -> None:
        edges = Edges(3, np.tile([2, 0, 2], 5000), np.tile([1, 1, 0], 5000))
        graph = edges.graph(weights=np.arange(15_000, dtype=np.float64))
        for start, first in ((0, 1), (5000, 2), (10_000, 0)):
            assert graph.weights is not None
            assert (graph.weights[start : start + 5000] == np.arange(first, 15_000, 3)).all()

    @settings(max_examples=50, deadline=None)
    @given(edge_lists())
    def test_adds_the_reverse_of_every_edge_but_not_of_self_loops(self, edges: Edges) -> None:
        numbers = list(range(len(edges.sources)))
        graph = edges.graph(kinds=numbers, weights=numbers, undirected=True)
        forward = [(a, b, at) for at, (a, b) in enumerate(edges.pairs())]
        # Sorting is stable, so equal edges come in the order in which they were given, then those that were reversed.
        wanted = sorted(forward + [(b, a, at) for a, b, at in forward if a != b], key=lambda one: one[:2])
        assert columns(graph) == [(a, b, float(at), at) for a, b, at in wanted]

    @settings(max_examples=40, deadline=None)
    @given(edge_lists())
    def test_of_undirected_edges_are_known_to_be_symmetric(self, edges: Edges) -> None:
        """Also where an edge occurs more than once: it does in both directions."""
        graph = edges.graph(undirected=True)
        assert graph.is_symmetric
        assert graph.transpose() is graph
        assert columns(graph) == sorted((b, a) for a, b in columns(graph))

    def test_has_as_many_nodes_as_the_ends_name(self) -> None:
        assert Graph.from_edges([0, 7], [3, 1]).num_nodes == 8
        assert Graph.from_edges([0, 3], [7, 1]).num_nodes == 8
        assert Graph.from_edges([], []).num_nodes == 0
        assert Graph.from_edges([], [], 5).num_nodes == 5
        assert Graph.from_edges([0], [0]).num_nodes == 1

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_takes_every_integer_type(self, dtype: type[np.integer[Any]]) -> None:
        graph = Graph.from_edges(np.array([1, 0, 2], dtype), np.array([2, 1, 0], dtype), np.int64(3))
        assert rows(graph) == [[1], [2], [0]]

    @pytest.mark.parametrize("dtype", [">i2", ">i4", ">u4", ">i8", ">u8"])
    def test_takes_numbers_in_the_other_byte_order(self, dtype: str) -> None:
        graph = Graph.from_edges(
            np.array([1, 0, 2], dtype), np.array([2, 1, 0], dtype), 3, kinds=np.array([4, 5, 6], dtype)
        )
        assert columns(graph) == [(0, 1, 5), (1, 2, 4), (2, 0, 6)]

    def test_takes_views_tuples_and_device_arrays(self) -> None:
        flat = np.arange(12, dtype=np.uint32)
        assert rows(Graph.from_edges(flat[:6:2], flat[5:2:-1], 6)) == [[5], [], [4], [], [3], []]
        assert rows(Graph.from_edges((0, 1), (1, 0))) == [[1], [0]]
        on_device = vyre.array(np.array([1, 0], np.uint32), backend="cpu")
        assert rows(Graph.from_edges(on_device, [0, 1])) == [[1], [0]]

    def test_keeps_tags_of_nodes(self) -> None:
        graph = Graph.from_edges([0], [1], 3, tags=[7, 8, 9])
        assert graph.tags is not None
        assert graph.tags.tolist() == [7, 8, 9]
        assert graph.transpose().tags is graph.tags

    def test_tells_its_size(self) -> None:
        assert repr(Graph.from_edges([0] * 1500, [1] * 1500)) == "<Graph of 2 nodes and 1,500 edges>"


class TestFromCsr:
    @pytest.mark.parametrize("dtype", [np.int32, np.uint32])
    def test_uses_arrays_of_32_bits_without_a_copy(self, dtype: type[np.integer[Any]]) -> None:
        offsets, targets = np.array([0, 2, 3, 3], dtype), np.array([2, 1, 0], dtype)
        weights, kinds, tags = np.ones(3, np.float32), np.array([1, 2, 3], dtype), np.zeros(3, dtype)
        graph = Graph.from_csr(offsets, targets, weights, kinds, tags)
        assert rows(graph) == [[2, 1], [0], []]
        pairs = (
            (offsets, graph.offsets),
            (targets, graph.targets),
            (weights, graph.weights),
            (kinds, graph.kinds),
            (tags, graph.tags),
        )
        for given_array, used in pairs:
            assert used is not None
            assert np.shares_memory(given_array, used)
        assert graph.offsets.dtype == graph.targets.dtype == np.uint32

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_takes_every_integer_type_and_views(self, dtype: type[np.integer[Any]]) -> None:
        padded = np.array([[0, 9], [2, 9], [3, 9]], dtype)
        assert rows(Graph.from_csr(padded[:, 0], np.array([1, 9, 0, 9, 1, 9], dtype)[::2])) == [[1, 0], [1]]
        assert rows(Graph.from_csr([0, 2, 3], [1, 0, 1])) == [[1, 0], [1]]

    @pytest.mark.parametrize("dtype", [">i4", ">u4", ">i8"])
    def test_takes_numbers_in_the_other_byte_order(self, dtype: str) -> None:
        assert rows(Graph.from_csr(np.array([0, 2, 3], dtype), np.array([1, 0, 1], dtype))) == [[1, 0], [1]]

    def test_takes_arrays_that_are_read_only(self) -> None:
        offsets, targets = np.array([0, 1, 2], np.uint32), np.array([1, 0], np.uint32)
        for one in (offsets, targets):
            one.flags.writeable = False
        graph = Graph.from_csr(offsets, targets)
        assert graph.is_symmetric
        assert bfs(graph, 1).tolist() == [1, 0]

    def test_cuts_padded_columns(self) -> None:
        graph = Graph.from_csr([0, 1, 2], [1, 0, 9, 9], [0.5, 1.5, np.nan], [3, 4, 0, 0, 0], [8, 9])
        assert columns(graph) == [(0, 1, 0.5, 3), (1, 0, 1.5, 4)]

    @pytest.mark.parametrize("padding", [-1, NONE, 1 << 40])
    def test_does_not_look_at_padding(self, padding: int) -> None:
        graph = Graph.from_csr([0, 1, 2], np.array([1, 0, padding]), kinds=np.array([1, 2, padding]))
        assert columns(graph) == [(0, 1, 1), (1, 0, 2)]

    def test_of_no_nodes_and_of_no_edges(self) -> None:
        for graph, nodes in ((Graph.from_csr([0], []), 0), (Graph.from_csr([0, 0, 0], []), 2)):
            assert (graph.num_nodes, graph.num_edges) == (nodes, 0)
            assert graph.is_symmetric
            assert graph.transpose() is graph
            assert graph.sources().tolist() == []

    @settings(max_examples=40, deadline=None)
    @given(edge_lists())
    def test_gives_the_graph_whose_arrays_they_are(self, edges: Edges) -> None:
        made = edges.graph()
        again = Graph.from_csr(made.offsets, made.targets)
        assert columns(again) == columns(made)


class TestFromScipy:
    MATRIX = np.array([[0, 2.5, 0, 0], [0, 0, 0, 1], [3, 0, 4, 0], [0, 0, 0, 0]])

    @pytest.mark.parametrize("index", [np.int32, np.int64])
    @pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok"])
    @pytest.mark.parametrize("value", [np.float32, np.float64, np.int32, np.uint8, np.bool_])
    def test_takes_every_format(self, kind: str, index: type[np.integer[Any]], value: type[np.generic]) -> None:
        matrix = sp.csr_array(self.MATRIX.astype(value))
        matrix.indptr, matrix.indices = matrix.indptr.astype(index), matrix.indices.astype(index)
        graph = Graph.from_scipy(matrix.asformat(kind))
        assert rows(graph) == [[1], [3], [0, 2], []]
        assert graph.weights is not None
        assert graph.weights.dtype == (np.float32 if value is np.float32 else np.float64)
        assert graph.weights.tolist() == self.MATRIX[self.MATRIX != 0].astype(value).astype(float).tolist()

    def test_uses_the_arrays_of_a_csr_matrix(self) -> None:
        for matrix in (sp.csr_array(self.MATRIX), sp.csr_matrix(self.MATRIX)):
            graph = Graph.from_scipy(matrix)
            assert np.shares_memory(graph.offsets, matrix.indptr)
            assert np.shares_memory(graph.targets, matrix.indices)
            assert np.shares_memory(graph.weights, matrix.data)

    def test_leaves_the_weights_out(self) -> None:
        assert Graph.from_scipy(sp.csr_array(self.MATRIX), weighted=False).weights is None

    def test_refuses_complex_numbers(self) -> None:
        said = refused(lambda: Graph.from_scipy(sp.csr_array(np.array([[0, 1j], [1, 0]]))))
        assert said == "'weights' has elements of type complex128. Fix: convert it: array.astype(np.float32)."

    @pytest.mark.parametrize("family", ["random", "grid", "self loops", "no edges", "R-MAT"])
    def test_round_trip_with_to_scipy(self, family: str) -> None:
        for size in (0, 1, 33, 65):
            edges = FAMILIES[family](size)
            pairs = sorted(set(edges.pairs()))
            once = edges_of(size, pairs).graph(weights=np.arange(1, len(pairs) + 1, dtype=np.float64))
            matrix = once.to_scipy()
            assert matrix.shape == (size, size)
            assert columns(Graph.from_scipy(matrix)) == columns(once)
            dense = np.zeros((size, size))
            for at, (source, target) in enumerate(pairs):
                dense[source, target] = at + 1
            assert (matrix.toarray() == dense).all()

    def test_without_weights_gives_ones_to_scipy(self) -> None:
        matrix = Graph.from_edges([0, 2], [1, 0], 3).to_scipy()
        assert matrix.dtype == np.float32
        assert matrix.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]

    def test_gives_its_own_arrays_to_scipy(self) -> None:
        graph = Graph.from_edges([0, 2], [1, 0], 3, weights=[1.0, 2.0])
        matrix = graph.to_scipy()
        for mine, theirs in (
            (graph.weights, matrix.data),
            (graph.targets, matrix.indices),
            (graph.offsets, matrix.indptr),
        ):
            assert np.shares_memory(mine, theirs)

    def test_agrees_with_networkx(self) -> None:
        theirs = nx.gnp_random_graph(40, 0.1, seed=3, directed=True)
        graph = Graph.from_scipy(nx.to_scipy_sparse_array(theirs))
        assert sorted(theirs.edges) == list(zip(graph.sources().tolist(), graph.targets.tolist(), strict=True))


class TestTranspose:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_reverses_every_edge(self, family: str) -> None:
        for size in SIZES:
            edges = FAMILIES[family](size)
            reverse = edges.graph().transpose()
            assert columns(reverse) == sorted((b, a) for a, b in edges.pairs())

    @settings(max_examples=40, deadline=None)
    @given(edge_lists())
    def test_moves_what_edges_carry(self, edges: Edges) -> None:
        count = len(edges.sources)
        graph = edges.graph(weights=np.arange(count, dtype=np.float32), kinds=np.arange(count))
        reverse = graph.transpose()
        wanted = sorted(((b, a, w, k) for a, b, w, k in columns(graph)), key=lambda one: one[:2])
        assert columns(reverse) == wanted

    @settings(max_examples=40, deadline=None)
    @given(edge_lists(), st.booleans())
    def test_of_the_transpose_is_the_graph(self, edges: Edges, weighted: bool) -> None:
        graph = edges.graph(weights=np.arange(len(edges.sources))) if weighted else edges.graph()
        reverse = graph.transpose()
        assert reverse.transpose() is graph
        assert graph.transpose() is reverse
        anew = Graph.from_csr(reverse.offsets, reverse.targets, reverse.weights).transpose()
        assert columns(anew) == columns(graph)

    def test_is_made_once_and_only_when_asked_for(self) -> None:
        graph = Graph.from_edges([0, 1], [1, 2], 3)
        assert not graph.has_transpose
        reverse = graph.transpose()
        assert graph.has_transpose
        assert reverse.has_transpose
        assert graph.transpose() is reverse

    def test_of_a_symmetric_graph_is_itself(self) -> None:
        graph = rmat(64).both_ways().graph()
        assert graph.is_symmetric
        assert graph.transpose() is graph

    def test_of_rows_that_are_not_sorted_is(self) -> None:
        graph = Graph.from_csr([0, 3, 4, 4], [2, 0, 1, 0], kinds=[5, 6, 7, 8])
        assert columns(graph.transpose()) == [(0, 0, 6), (0, 1, 8), (1, 0, 7), (2, 0, 5)]


class TestSymmetry:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_is_found_for_graphs_with_both_directions(self, family: str) -> None:
        for size in SIZES:
            graph = FAMILIES[family](size).both_ways().graph()
            assert graph.is_symmetric
            assert graph.transpose() is graph

    @settings(max_examples=40, deadline=None)
    @given(edge_lists(), st.booleans())
    def test_is_as_defined(self, edges: Edges, mostly: bool) -> None:
        pairs = sorted(set(edges.pairs()) | {(b, a) for a, b in edges.pairs() if mostly})
        once = edges_of(edges.nodes, pairs)
        assert once.graph().is_symmetric == is_plainly_symmetric(once)

    @settings(max_examples=40, deadline=None)
    @given(edge_lists(least_nodes=1), st.data())
    def test_is_lost_with_any_one_edge(self, edges: Edges, data: st.DataObject) -> None:
        both = edges.both_ways().pairs()
        if both:
            both.pop(data.draw(st.integers(0, len(both) - 1)))
            assert not edges_of(edges.nodes, both).graph().is_symmetric

    @settings(max_examples=40, deadline=None)
    @given(edge_lists(), st.randoms(use_true_random=False))
    def test_is_not_claimed_for_rows_with_duplicates_or_in_another_order(self, edges: Edges, random: Any) -> None:
        """The documented False: never True where an edge has no reverse, and False where a row does not rise."""
        shuffled = [random.sample(row, len(row)) for row in rows(edges.graph())]
        graph = Graph.from_csr(np.cumsum([0, *map(len, shuffled)]), [one for row in shuffled for one in row])
        rising = all(row == sorted(set(row)) for row in shuffled)
        assert graph.is_symmetric == (rising and is_plainly_symmetric(edges))

    def test_looks_at_edges_that_are_not_in_the_sample(self) -> None:
        """Only one edge of many has no reverse: the sample of a few hundred edges passes, the kernel must not."""
        pairs = rmat(1000).both_ways().pairs()
        places = range(7, len(pairs), len(pairs) // 20)
        found = [edges_of(1000, pairs[:at] + pairs[at + 1 :]).graph().is_symmetric for at in places]
        assert found == [False] * len(found)

    def test_needs_all_columns_alike(self) -> None:
        assert Graph.from_edges([0, 1], [1, 0]).is_symmetric
        assert not Graph.from_edges([0, 1], [1, 0], weights=[1.0, 2.0]).is_symmetric
        assert not Graph.from_edges([0, 1], [1, 0], kinds=[1, 2]).is_symmetric
        assert Graph.from_edges([0, 1], [1, 0], tags=[1, 2]).is_symmetric

    @pytest.mark.parametrize("size", [1, 20])
    def test_kernel_has_no_race(self, size: int) -> None:
        for edges in (rmat(size).both_ways(), rmat(size)):
            graph = edges.graph()
            flags = [np.zeros(1, np.uint32) for _ in range(3)]
            report = find_asymmetry.grid(2).debug(graph.offsets, graph.targets, *flags)
            assert report.ok, str(report)


class TestDeviceArrays:
    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    @pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint16, np.int64])
    def test_are_taken_in_every_integer_type(self, name: str, dtype: type[np.integer[Any]]) -> None:
        on = backend_of(name)
        offsets = vyre.array(np.array([0, 1, 2, 2], dtype), backend=on)
        graph = Graph.from_csr(offsets, vyre.array(np.array([1, 2], dtype), backend=on))
        assert bfs(graph, 0, backend=on).tolist() == [0, 1, 2]
        assert bfs(graph, 0, backend="cpu").tolist() == [0, 1, 2]

    @pytest.mark.parametrize("name", ["webgpu", "reference"])
    def test_are_used_where_they_are(self, name: str) -> None:
        on = backend_of(name)
        offsets = vyre.array(np.array([0, 1, 2], np.uint32), backend=on)
        targets = vyre.array(np.array([1, 0], np.uint32), backend=on)
        graph = Graph.from_csr(offsets, targets)
        workspace = Workspace(on)
        assert graph.operand(workspace, "offsets") is offsets
        assert graph.operand(workspace, "targets") is targets

    @pytest.mark.parametrize("name", ["cpu", "webgpu", "reference"])
    def test_may_be_views_padded_or_empty(self, name: str) -> None:
        on = backend_of(name)
        spread = vyre.array(np.array([0, 9, 1, 9, 2], np.uint32), backend=on)[::2]
        padded = vyre.array(np.array([1, 0, 7, 7], np.uint32), backend=on)
        assert bfs(Graph.from_csr(spread, padded), 0, backend=on).tolist() == [0, 1]
        nothing = vyre.array(np.zeros(0, np.uint32), backend=on)
        alone = vyre.array(np.zeros(2, np.uint32), backend=on)
        assert bfs(Graph.from_csr(alone, nothing), 0, backend=on).tolist() == [0]

    def test_copies_are_made_once_for_each_backend(self) -> None:
        graph = rmat(40).graph(kinds=np.ones(320, np.uint32))
        on = backend_of("reference")
        for name in ("offsets", "targets", "kinds"):
            first = graph.operand(Workspace(on), name)
            assert graph.operand(Workspace(on), name) is first
            assert (first.numpy() == getattr(graph, name)).all()
            assert graph.operand(Workspace("cpu"), name) is getattr(graph, name)


BAD_EDGES: dict[str, tuple[Callable[[], object], str]] = {
    "ends of different length": (
        lambda: Graph.from_edges([0, 1], [1], 2),
        "'sources' has 2 elements and 'targets' has 1. Fix: pass the two ends of every edge.",
    ),
    "a negative source": (
        lambda: Graph.from_edges([0, -3, -4], [0, 1, 1], 2),
        "'sources' has -3 at position 1. Fix: pass numbers from 0.",
    ),
    "a negative target of one byte": (
        lambda: Graph.from_edges([0, 1], np.array([0, -1], np.int8), 2),
        "'targets' has -1 at position 1. Fix: pass numbers from 0.",
    ),
    "a source that is no node": (
        lambda: Graph.from_edges([0, 5, 6], [0, 1, 1], 5),
        "'sources' has 5 at position 1, and num_nodes is 5. Fix: pass numbers below 5.",
    ),
    "a target that is no node": (
        lambda: Graph.from_edges([0, 1], [0, 1000], 1000),
        "'targets' has 1,000 at position 1, and num_nodes is 1,000. Fix: pass numbers below 1,000.",
    ),
    "an edge of no nodes": (
        lambda: Graph.from_edges([0], [0], 0),
        "'sources' has 0 at position 0, and num_nodes is 0. Fix: pass numbers below 0.",
    ),
    "an id over u32": (
        lambda: Graph.from_edges([0, 1 << 32], [0, 0]),
        "'sources' has 4,294,967,296 at position 1, and ids are u32. Fix: pass at most 4,294,967,293.",
    ),
    "an id over i64": (
        lambda: Graph.from_edges(np.array([0, 1 << 63], np.uint64), [0, 0]),
        "'sources' has 9,223,372,036,854,775,808 at position 1, and ids are u32. Fix: pass at most 4,294,967,293.",
    ),
    "an id over u64": (
        lambda: Graph.from_edges([0, 1 << 64], [0, 0]),
        "'sources' has elements of type object, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "floats": (
        lambda: Graph.from_edges([0.0, 1.0], [1, 0]),
        "'sources' has elements of type float64, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "bools": (
        lambda: Graph.from_edges([0, 1], [True, False]),
        "'targets' has elements of type bool, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "text": (
        lambda: Graph.from_edges(["0"], [0]),
        "'sources' has elements of type <U1, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "two axes": (
        lambda: Graph.from_edges([[0, 1]], [0, 1]),
        "'sources' has shape (1, 2), expected one axis. Fix: pass an array of one axis.",
    ),
    "no axis": (
        lambda: Graph.from_edges([0], 0),
        "'targets' has shape (), expected one axis. Fix: pass an array of one axis.",
    ),
    "a negative number of nodes": (
        lambda: Graph.from_edges([], [], -1),
        "'num_nodes' is -1. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "too many nodes": (
        lambda: Graph.from_edges([], [], NONE),
        "'num_nodes' is 4294967295. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "half a node": (
        lambda: Graph.from_edges([], [], 1.5),  # type: ignore[arg-type]
        "'num_nodes' is 1.5. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "a number of nodes that is a bool": (
        lambda: Graph.from_edges([], [], True),
        "'num_nodes' is True. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "few weights": (
        lambda: Graph.from_edges([0, 1], [1, 0], weights=[1.0]),
        "'weights' has 1 elements, expected 2. Fix: pass 2 elements.",
    ),
    "many kinds": (
        lambda: Graph.from_edges([0, 1], [1, 0], kinds=[1, 2, 3]),
        "'kinds' has 3 elements, expected 2. Fix: pass 2 elements.",
    ),
    "few tags": (
        lambda: Graph.from_edges([0, 1], [1, 0], 3, tags=[1, 2]),
        "'tags' has 2 elements, expected 3. Fix: pass 3 elements.",
    ),
    "weights of half precision": (
        lambda: Graph.from_edges([0], [1], weights=np.ones(1, np.float16)),
        "'weights' has elements of type float16. Fix: convert it: array.astype(np.float32).",
    ),
    "weights that are text": (
        lambda: Graph.from_edges([0], [1], weights=["1"]),
        "'weights' has elements of type <U1. Fix: convert it: array.astype(np.float32).",
    ),
    "weights of two axes": (
        lambda: Graph.from_edges([0], [1], weights=[[1.0]]),
        "'weights' has shape (1, 1), expected one axis. Fix: pass an array of one axis.",
    ),
    "kinds that are floats": (
        lambda: Graph.from_edges([0], [1], kinds=[1.0]),
        "'kinds' has elements of type float64, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "a kind over u32": (
        lambda: Graph.from_edges([0], [1], kinds=[1 << 32]),
        "'kinds' has 4,294,967,296 at position 0, and ids are u32. Fix: pass at most 4,294,967,295.",
    ),
}

BAD_ROWS: dict[str, tuple[Callable[[], object], str]] = {
    "no offsets": (
        lambda: Graph.from_csr([], []),
        "'offsets' is empty. Fix: pass one offset for each node, and the number of edges last.",
    ),
    "offsets that begin late": (
        lambda: Graph.from_csr([1, 2], [0, 0]),
        "'offsets' begins with 1. Fix: the edges of the first node begin at 0.",
    ),
    "offsets that fall": (
        lambda: Graph.from_csr([0, 2, 1, 3, 2], [0, 0, 0]),
        "'offsets' falls at position 2: 2 is followed by 1. Fix: pass offsets that never fall.",
    ),
    "offsets that fall below zero": (
        lambda: Graph.from_csr(np.array([0, 2, -1], np.int32), [0, 0]),
        "'offsets' has -1 at position 2. Fix: pass numbers from 0.",
    ),
    "offsets over u32": (
        lambda: Graph.from_csr([0, 1 << 32], [0]),
        "'offsets' has 4,294,967,296 at position 1, and ids are u32. Fix: pass at most 4,294,967,295.",
    ),
    "offsets that are floats": (
        lambda: Graph.from_csr([0.0, 1.0], [0]),
        "'offsets' has elements of type float64, expected whole numbers. Fix: convert it: array.astype(np.uint32).",
    ),
    "offsets of two axes": (
        lambda: Graph.from_csr([[0, 1]], [0]),
        "'offsets' has shape (1, 2), expected one axis. Fix: pass an array of one axis.",
    ),
    "few targets": (
        lambda: Graph.from_csr([0, 2, 2000], np.zeros(1999, np.uint32)),
        "'targets' has 1,999 elements, expected 2,000. Fix: pass 2,000 elements.",
    ),
    "a target out of range": (
        lambda: Graph.from_csr([0, 2, 3], [1, 2, 3]),
        "'targets' has 2 at position 1, and the number of nodes is 2. Fix: pass numbers below 2.",
    ),
    "a negative target": (
        lambda: Graph.from_csr([0, 2, 3], [1, 0, -1]),
        "'targets' has -1 at position 2. Fix: pass numbers from 0.",
    ),
    "a target that is the mark of no node": (
        lambda: Graph.from_csr([0, 1], np.array([NONE], np.uint32)),
        "'targets' has 4,294,967,295 at position 0, and the number of nodes is 1. Fix: pass numbers below 1.",
    ),
    "edges of no node": (
        lambda: Graph.from_csr([0, 1], []),
        "'targets' has 0 elements, expected 1. Fix: pass 1 elements.",
    ),
    "few weights": (
        lambda: Graph.from_csr([0, 2], [0, 0], [1.0]),
        "'weights' has 1 elements, expected 2. Fix: pass 2 elements.",
    ),
    "few kinds": (
        lambda: Graph.from_csr([0, 2], [0, 0], kinds=[1]),
        "'kinds' has 1 elements, expected 2. Fix: pass 2 elements.",
    ),
    "many tags": (
        lambda: Graph.from_csr([0, 2], [0, 0], tags=[1, 2]),
        "'tags' has 2 elements, expected 1. Fix: pass 1 elements.",
    ),
    "no sparse matrix": (
        lambda: Graph.from_scipy(np.eye(2)),
        "'matrix' is a ndarray. Fix: pass a scipy.sparse matrix or array.",
    ),
    "a matrix that is not square": (
        lambda: Graph.from_scipy(sp.csr_array((2, 3))),
        "'matrix' has shape (2, 3). Fix: pass a square matrix.",
    ),
    "a sparse vector": (
        lambda: Graph.from_scipy(sp.coo_array(np.arange(3))),
        "'matrix' has shape (3,). Fix: pass a square matrix.",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("what", BAD_EDGES)
    def test_of_edges_is_named(self, what: str) -> None:
        call, said = BAD_EDGES[what]
        assert refused(call) == said

    @pytest.mark.parametrize("what", BAD_ROWS)
    def test_of_rows_is_named(self, what: str) -> None:
        call, said = BAD_ROWS[what]
        assert refused(call) == said

    @pytest.mark.parametrize("dtype", [np.uint32, np.int64])
    @pytest.mark.parametrize("largest", [NONE - 1, NONE])
    def test_names_the_end_that_needs_too_many_nodes(self, largest: int, dtype: type[np.integer[Any]]) -> None:
        """Without a number of nodes the end is at fault, and not a number that was never given."""
        said = refused(lambda: Graph.from_edges([0, 1], np.array([0, largest], dtype)))
        wanted = "position 1, and ids are u32. Fix: pass at most 4,294,967,293."
        assert said == f"'targets' has {largest:,} at {wanted}"

    def test_of_lists_of_different_lengths_names_the_array(self) -> None:
        assert refused(lambda: Graph.from_edges([[0], [0, 1]], [0, 1])).startswith("'sources' is no array: ")
        assert refused(lambda: Graph.from_csr([0, 1], [[0], [0, 1]])).startswith("'targets' is no array: ")
        assert refused(lambda: Graph.from_edges([0], [0], weights=[[0], [0, 1]])).startswith("'weights' is no array: ")

    def test_of_kinds_and_tags_is_not_told_as_one_of_nodes(self) -> None:
        said = refused(lambda: Graph.from_edges([0], [1], kinds=[-1]))
        assert said == "'kinds' has -1 at position 0. Fix: pass numbers from 0."
        said = refused(lambda: Graph.from_edges([0], [1], tags=[0, -7]))
        assert said == "'tags' has -7 at position 1. Fix: pass numbers from 0."

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.integers(-3, 12), min_size=1, max_size=6), st.lists(st.integers(-2, 7), max_size=12))
    def test_is_never_taken_for_a_graph(self, offsets: list[int], targets: list[int]) -> None:
        """Any numbers: either they are the rows of a graph, or the error names one of the two arrays."""
        cut = targets[: max(offsets[-1], 0)]
        legal = (
            offsets[0] == 0
            and offsets == sorted(offsets)
            and len(targets) >= offsets[-1]
            and all(0 <= target < len(offsets) - 1 for target in cut)
        )
        if legal:
            assert Graph.from_csr(offsets, targets).targets.tolist() == cut
        else:
            assert refused(lambda: Graph.from_csr(offsets, targets)).startswith(("'offsets' ", "'targets' "))
