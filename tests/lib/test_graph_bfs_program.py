"""The closure contract, ``persistent_bfs``: its buffers, what it computes, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from graph_support import (
    CPU,
    FAMILIES,
    NONE,
    Array,
    Edges,
    backend_of,
    chain,
    edge_lists,
    edges_of,
    nodes_of,
    plain_levels,
    random_edges,
    refused,
    rmat,
    star,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from vyre import reference
from vyre.backends.reference import ReferenceBackend
from vyre.driver.config import DispatchConfig
from vyre.errors import BadInputs, TrapRaised, VyreError
from vyre.ir import decode, encode, nodes, parse
from vyre.ir.buffers import Access
from vyre.lib.graph import Graph, persistent_bfs, persistent_bfs_program, reach
from vyre.lib.graph.closure import PERSISTENT_BFS
from vyre.lib.oracle import CpuOracleDispatcher
from vyre.reference import REVERSED, seeded

Closed = tuple[list[int], int, int]


def bitset(size: int, members: list[int]) -> Array:
    bits = np.zeros(-(-size // 32) * 32, np.uint8)
    bits[members] = 1
    return np.packbits(bits, bitorder="little").view(np.uint32)


def members(words: Any, size: int) -> list[int]:
    bits = np.unpackbits(np.asarray(words, np.uint32).view(np.uint8), bitorder="little")
    assert not bits[size:].any()
    return np.flatnonzero(bits).tolist()


def plain_closure(
    edges: Edges, seeds: list[int], allowed: list[bool] | None = None, limit: int | None = None
) -> Closed:
    """The set after the hops, whether it grew, and whether the last hop added nothing: hop by hop, in sets."""
    found = set(seeds)
    pairs = [pair for at, pair in enumerate(edges.pairs()) if allowed is None or allowed[at]]
    converged = 0
    for _ in range(edges.nodes + 1 if limit is None else limit):
        added = {b for a, b in pairs if a in found} - found
        found |= added
        converged = int(not added)
        if converged:
            break
    return sorted(found), int(found != set(seeds)), converged


def inputs_of(graph: Graph, frontier: Array, *, padding: int = 0) -> list[Array]:
    """The six input columns, in order; edge columns have at least one element."""
    unused = np.full(graph.num_nodes, 0xDEAD, np.uint32)
    kinds = np.full(graph.num_edges, NONE, np.uint32) if graph.kinds is None else graph.kinds
    pad = max(padding, 1 - graph.num_edges)
    columns = [np.concatenate([column, np.full(pad, NONE, np.uint32)]) for column in (graph.targets, kinds)]
    return [unused, graph.offsets, *columns, unused, frontier]


def close(name: str, edges: Edges, seeds: list[int], **options: Any) -> Closed:
    """Run the library's function on a backend."""
    kinds = options.pop("kinds", None)
    graph = edges.graph(kinds=np.full(len(edges.sources), NONE) if kinds is None else kinds)
    frontier = bitset(edges.nodes, seeds)
    before = frontier.copy()
    closed, changed, converged = persistent_bfs(
        graph.offsets, graph.targets, graph.kinds, frontier, backend=backend_of(name), **options
    )
    assert np.array_equal(frontier, before)
    assert closed.dtype == np.uint32
    return members(closed, edges.nodes), changed, converged


class TestProgram:
    def test_has_the_buffers_of_the_contract(self) -> None:
        program = persistent_bfs_program(100, 400)
        assert [(decl.name, str(decl.dtype), decl.count) for decl in program.buffers] == [
            ("pg_nodes", "u32", 100),
            ("pg_edge_offsets", "u32", 101),
            ("pg_edge_targets", "u32", 400),
            ("pg_edge_kind_mask", "u32", 400),
            ("pg_node_tags", "u32", 100),
            ("frontier_in", "u32", 4),
            ("frontier_out", "u32", 4),
            ("changed", "u32", 1),
            ("converged", "u32", 1),
        ]
        assert [decl.binding for decl in program.buffers] == list(range(9))
        assert [decl.name for decl in program.output_buffers()] == ["frontier_out", "changed", "converged"]
        assert {decl.name for decl in program.buffers if decl.access is Access.READ_ONLY} == {
            "pg_nodes", "pg_edge_offsets", "pg_edge_targets", "pg_edge_kind_mask", "pg_node_tags", "frontier_in",
        }  # fmt: skip

    @pytest.mark.parametrize("nodes_and_words", [(0, 0), (1, 1), (32, 1), (33, 2), (1000, 32)])
    def test_has_a_word_for_32_nodes_and_room_for_one_edge(self, nodes_and_words: tuple[int, int]) -> None:
        count, words = nodes_and_words
        program = persistent_bfs_program(count, 0)
        assert program.buffer("pg_edge_targets").count == program.buffer("pg_edge_kind_mask").count == 1
        assert program.buffer("frontier_in").count == program.buffer("frontier_out").count == words

    def test_is_known_by_its_generator(self) -> None:
        (region,) = persistent_bfs_program(10, 20).entry
        assert isinstance(region, nodes.Region)
        assert region.generator == PERSISTENT_BFS

    @pytest.mark.parametrize("limit", [None, 3])
    def test_survives_its_text_and_its_bytes(self, limit: int | None) -> None:
        edges = random_edges(40, 2)
        program = persistent_bfs_program(40, 80, max_iters=limit)
        inputs = [data.tobytes() for data in inputs_of(edges.graph(), bitset(40, [3]))]
        wanted = [bytes(one) for one in backend_of("reference").compile(program).dispatch(inputs)]
        for again in (parse(str(program)), decode(encode(program))):
            assert [bytes(one) for one in backend_of("reference").compile(again).dispatch(inputs)] == wanted
            assert CpuOracleDispatcher().dispatch(again, inputs) == wanted

    def test_is_made_once_for_the_same_parameters(self) -> None:
        assert persistent_bfs_program(10, 20, 3, 4) is persistent_bfs_program(10, 20, 3, 4)
        assert persistent_bfs_program(10, 20, 3, 4) is not persistent_bfs_program(10, 20, 3, 5)

    @pytest.mark.parametrize("limit", [None, 2])
    def test_overwrites_whatever_its_outputs_held(self, limit: int | None) -> None:
        """Outputs that take data begin with anything; all of them are written."""
        edges = random_edges(70, 2)
        program = persistent_bfs_program(70, 140, max_iters=limit)
        inputs = inputs_of(edges.graph(), bitset(70, [1, 69]))
        filled = [np.full(decl.count, 0xA5A5A5A5, np.uint32) for decl in program.buffers[6:]]
        data = [*inputs, *filled][: len(program.input_buffers())]
        closed, changed, converged = backend_of("cpu").compile(program).dispatch(data)
        flags = [int(np.frombuffer(flag, np.uint32)[0]) for flag in (changed, converged)]
        assert (members(np.frombuffer(closed, np.uint32), 70), *flags) == plain_closure(edges, [1, 69], limit=limit)

    def test_with_a_limit_traps_in_a_grid_that_is_too_small(self) -> None:
        program = persistent_bfs_program(2000, 1999, max_iters=3)
        inputs = inputs_of(chain(2000).graph(), bitset(2000, [0]))
        for name in ("cpu", "reference"):
            pipeline = backend_of(name).compile(program, DispatchConfig(grid_override=(1,)))
            with pytest.raises(TrapRaised) as caught:
                pipeline.dispatch(inputs)
            assert caught.value.tag == "too few invocations"
            assert caught.value.address == 63

    def test_without_a_limit_runs_in_any_grid(self) -> None:
        edges = rmat(3000, 2)
        program = persistent_bfs_program(3000, 6000)
        inputs = inputs_of(edges.graph(), bitset(3000, [0, 2999]))
        wanted = [node for node, level in enumerate(plain_levels(edges, [0, 2999])) if level != NONE]
        for groups in (1, 2, 3, 7):
            pipeline = backend_of(CPU).compile(program, DispatchConfig(grid_override=(groups,)))
            closed, changed, converged = (np.frombuffer(one, np.uint32) for one in pipeline.dispatch(inputs))
            assert members(closed, 3000) == wanted
            assert (changed[0], converged[0]) == (1, 1)


class TestClosure:
    @pytest.mark.parametrize("family", FAMILIES)
    def test_is_what_a_plain_search_finds(self, family: str) -> None:
        for size in (1, 33, 65):
            edges = FAMILIES[family](size)
            for seeds in ([0], [size - 1, size // 2]):
                for limit in (None, 2):
                    assert close("reference", edges, seeds, max_iters=limit) == plain_closure(edges, seeds, limit=limit)

    @pytest.mark.parametrize("limit", [None, 2])
    def test_on_the_processor(self, limit: int | None) -> None:
        for edges in (rmat(65), star(257)):
            for seeds in ([0], [edges.nodes - 1, 5]):
                assert close(CPU, edges, seeds, max_iters=limit) == plain_closure(edges, seeds, limit=limit)

    def test_of_no_nodes(self) -> None:
        for limit in (None, 2):
            assert close("cpu", edges_of(0, []), [], max_iters=limit) == ([], 0, 1)

    @pytest.mark.parametrize("limit", [None, 2])
    def test_on_webgpu(self, limit: int | None) -> None:
        edges = rmat(65, 2)
        kinds = [1 << at % 3 for at in range(130)]
        for seeds in ([0], [64, 3], []):
            found = close("webgpu", edges, seeds, kinds=kinds, allow_mask=3, max_iters=limit)
            assert found == plain_closure(edges, seeds, [kind & 3 != 0 for kind in kinds], limit)

    @settings(max_examples=40, deadline=None)
    @given(st.data(), edge_lists(least_nodes=1), st.sampled_from([None, 0, 1, 2, 5, 80]))
    def test_of_any_graph(self, data: st.DataObject, edges: Edges, limit: int | None) -> None:
        """On the reference, by the plain definition of the library, and by the tests' own."""
        count = len(edges.sources)
        kinds = data.draw(st.lists(st.sampled_from([0, 1, 2, 3, NONE]), min_size=count, max_size=count))
        allow = data.draw(st.sampled_from([0, 1, 2, NONE]))
        seeds = data.draw(nodes_of(edges))
        wanted = plain_closure(edges, seeds, [kind & allow != 0 for kind in kinds], limit)
        assert close("reference", edges, seeds, kinds=kinds, allow_mask=allow, max_iters=limit) == wanted
        program = persistent_bfs_program(edges.nodes, count, allow, limit)
        columns = inputs_of(edges.graph(kinds=kinds), bitset(edges.nodes, seeds))
        closed, *flags = CpuOracleDispatcher().dispatch(program, [column.tobytes() for column in columns])
        found = [int.from_bytes(flag, "little") for flag in flags]
        assert (members(np.frombuffer(closed, np.uint32), edges.nodes), *found) == wanted

    @pytest.mark.parametrize("limit", [0, 1, 2, 38, 39, 40, 41, None])
    def test_tells_whether_it_converged_at_every_limit(self, limit: int | None) -> None:
        """The path has 39 hops: 39 reach its end, and the 40th finds that nothing is left."""
        closed, changed, converged = close("reference", chain(40), [0], max_iters=limit)
        hops = 39 if limit is None else min(limit, 39)
        assert closed == list(range(hops + 1))
        assert changed == (hops > 0)
        assert converged == (limit is None or limit >= 40)

    def test_of_a_set_that_is_closed_adds_nothing(self) -> None:
        for limit in (None, 1, 5):
            assert close("reference", star(40), list(range(40)), max_iters=limit) == (list(range(40)), 0, 1)
            assert close("reference", star(40), [7], max_iters=limit) == ([7], 0, 1)
            assert close("reference", star(40), [], max_iters=limit) == ([], 0, 1)

    def test_needs_a_kind_that_is_allowed(self) -> None:
        edges = edges_of(4, [(0, 1), (1, 2), (2, 3)])
        kinds = [1, 2, 0]
        assert close("reference", edges, [0], kinds=kinds)[0] == [0, 1, 2]
        assert close("reference", edges, [0], kinds=kinds, allow_mask=1)[0] == [0, 1]
        assert close("reference", edges, [0], kinds=kinds, allow_mask=0) == ([0], 0, 1)

    def test_ignores_targets_that_are_no_nodes(self) -> None:
        for limit in (None, 2):
            closed, changed, converged = persistent_bfs(
                [0, 3, 5, 5], [3, 1, NONE, 2, 31], [1] * 5, [1], max_iters=limit, backend=backend_of("reference")
            )
            assert (closed.tolist(), changed) == ([0b111], True)
            assert converged == (limit is None)

    def test_does_not_look_behind_the_last_offset(self) -> None:
        closed, changed, converged = persistent_bfs(
            [0, 1, 1, 1], [1, 2, 2, 2], [1, 1, 1], [0b1], backend=backend_of("reference")
        )
        assert (closed.tolist(), changed, converged) == ([0b11], True, True)

    def test_of_a_large_graph_is_what_reach_finds(self) -> None:
        edges = rmat(1 << 13, 4)
        graph = edges.graph()
        closed = close("cpu", edges, [5, 77])[0]
        assert closed == np.flatnonzero(reach(graph, [5, 77])).tolist()
        limited = close("cpu", edges, [5, 77], max_iters=3)[0]
        assert limited == np.flatnonzero(reach(graph, [5, 77], max_hops=3)).tolist()


class TestSchedules:
    @pytest.mark.parametrize("limit", [None, 2])
    def test_the_program_has_no_race(self, limit: int | None) -> None:
        """Node 0 has so many edges that lanes share them."""
        pairs = [(0, node) for node in range(1, 40)] + [(node, node * 7 % 70) for node in range(1, 66)]
        edges = edges_of(70, pairs)
        program = persistent_bfs_program(70, len(pairs), max_iters=limit)
        data = inputs_of(edges.graph(), bitset(70, [0, 65]))
        filled = [np.zeros(decl.count, np.uint32) for decl in program.buffers[6:]]
        explored = reference.explore(program, [*data, *filled][: len(program.input_buffers())], schedules=5)
        assert explored.races == ()
        assert explored.difference is None
        for one in explored.runs:
            assert one.result is not None
            outputs = one.result.outputs
            found = members(outputs["frontier_out"], 70), int(outputs["changed"][0]), int(outputs["converged"][0])
            assert found == plain_closure(edges, [0, 65], limit=limit)

    @pytest.mark.parametrize("schedule", [REVERSED, seeded(1), seeded(2)], ids=str)
    def test_results_do_not_depend_on_the_order(self, schedule: Any) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        for edges in (random_edges(70, 2), star(40).both_ways(), chain(35)):
            for limit in (None, 3):
                graph = edges.graph()
                kinds = np.ones(graph.num_edges, np.uint32)
                closed, changed, converged = persistent_bfs(
                    graph.offsets, graph.targets, kinds, bitset(edges.nodes, [3]), max_iters=limit, backend=on
                )
                assert (members(closed, edges.nodes), changed, converged) == plain_closure(edges, [3], limit=limit)


BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no offsets": (
        lambda: persistent_bfs([], [], [], []),
        "'pg_edge_offsets' is empty. Fix: its last element is the number of edges: pass at least one.",
    ),
    "few targets": (
        lambda: persistent_bfs([0, 1, 2], [1], [1, 1], [1]),
        "'pg_edge_targets' has 1 elements, and 'pg_edge_offsets' ends with 2. Fix: pass 2 elements.",
    ),
    "few kinds": (
        lambda: persistent_bfs([0, 1, 2], [1, 0], [], [1]),
        "'pg_edge_kind_mask' has 0 elements, and 'pg_edge_offsets' ends with 2. Fix: pass 2 elements.",
    ),
    "few words": (
        lambda: persistent_bfs([0] * 34, [], [], [1]),
        "'frontier_in' has 1 words, expected 2. Fix: pass ceil(N/32) words.",
    ),
    "many words": (
        lambda: persistent_bfs([0, 0], [], [], [1, 0]),
        "'frontier_in' has 2 words, expected 1. Fix: pass ceil(N/32) words.",
    ),
    "floats": (
        lambda: persistent_bfs([0.0, 0.0], [], [], [1]),
        "'pg_edge_offsets' has elements of type float64, expected whole numbers. "
        "Fix: convert it: array.astype(np.uint32).",
    ),
    "two axes": (
        lambda: persistent_bfs([0, 1], [[0]], [1], [1]),
        "'pg_edge_targets' has shape (1, 1), expected one axis. Fix: pass an array of one axis.",
    ),
    "a negative kind": (
        lambda: persistent_bfs([0, 1], [0], [-1], [1]),
        "'pg_edge_kind_mask' has -1 at position 0. Fix: pass numbers from 0.",
    ),
    "a word over u32": (
        lambda: persistent_bfs([0, 1], [0], [1], [1 << 32]),
        "'frontier_in' has 4,294,967,296 at position 0, and ids are u32. Fix: pass at most 4,294,967,295.",
    ),
    "a negative number of nodes": (
        lambda: persistent_bfs_program(-1, 0),
        "'num_nodes' is -1. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "too many nodes": (
        lambda: persistent_bfs_program(NONE, 0),
        "'num_nodes' is 4294967295. Fix: pass a whole number from 0 to 4,294,967,294.",
    ),
    "a negative number of edges": (
        lambda: persistent_bfs_program(1, -1),
        "'num_edges' is -1. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "half an edge": (
        lambda: persistent_bfs_program(1, 0.5),  # type: ignore[arg-type]
        "'num_edges' is 0.5. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "a mask over u32": (
        lambda: persistent_bfs_program(1, 1, 1 << 32),
        "'allow_mask' is 4294967296. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "negative hops": (
        lambda: persistent_bfs_program(1, 1, max_iters=-1),
        "'max_iters' is -1. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
    "hops that are a bool": (
        lambda: persistent_bfs_program(1, 1, max_iters=True),
        "'max_iters' is True. Fix: pass a whole number from 0 to 4,294,967,295.",
    ),
}


class TestBadInput:
    @pytest.mark.parametrize("what", BAD_CALLS)
    def test_is_named(self, what: str) -> None:
        call, said = BAD_CALLS[what]
        assert refused(call) == said

    @pytest.mark.parametrize("column", range(6))
    def test_columns_that_are_shorter_than_declared_are_named(self, column: int) -> None:
        """By every backend, and by the plain definition."""
        program = persistent_bfs_program(40, 80)
        inputs = inputs_of(random_edges(40, 2).graph(), bitset(40, [3]))
        inputs[column] = inputs[column][:-1]
        name = program.buffers[column].name
        for on in ("cpu", "reference"):
            with pytest.raises(BadInputs) as caught:
                backend_of(on).compile(program).dispatch(inputs)
            assert f"'{name}'" in str(caught.value)

    @settings(max_examples=40, deadline=None)
    @given(
        st.lists(st.integers(-1, 6), max_size=5),
        st.lists(st.integers(-1, 6), max_size=6),
        st.lists(st.integers(-1, 3), max_size=6),
        st.lists(st.integers(-1, NONE + 1), max_size=2),
    )
    def test_is_never_a_wrong_answer(
        self, offsets: list[int], targets: list[int], kinds: list[int], frontier: list[int]
    ) -> None:
        """Any numbers: an error that names a column, or what hops over the rows that they describe give."""
        on = backend_of("reference")
        try:
            closed, changed, converged = persistent_bfs(offsets, targets, kinds, frontier, backend=on)
        except VyreError as error:
            assert isinstance(error, BadInputs)
            assert error.message.startswith(("'pg_edge_", "'frontier_in'"))
            return
        size = len(offsets) - 1
        pairs = [
            (node, targets[edge])
            for node in range(size)
            for edge in range(offsets[node], min(offsets[node + 1], offsets[-1]))
            if targets[edge] < size and kinds[edge]
        ]
        # Bits behind the last node belong to none, and stay as they were.
        bits = frontier[0] if frontier else 0
        seeds = [node for node in range(size) if bits >> node & 1]
        found, *flags = plain_closure(edges_of(size, pairs), seeds)
        assert closed.tolist() == ([sum(1 << node for node in found) | bits >> size << size] if frontier else [])
        assert [changed, converged] == flags
