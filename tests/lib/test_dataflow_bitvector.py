"""Gen/kill problems: the parallel solver agrees with iteration to a fixpoint, in both directions and for both joins."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib_support import backend_of

from vyre.backends.reference import ReferenceBackend
from vyre.errors import BadInputs
from vyre.lib import dataflow
from vyre.reference import REVERSED, seeded

Array = np.ndarray[Any, Any]
CPU = "cpu 16x2"
FULL = 0xFFFFFFFF


class Problem:
    """A random problem; some words have few facts, so that sets differ."""

    def __init__(self, blocks: int, words: int, edges: int, seed: int = 1) -> None:
        random = np.random.default_rng(seed)
        self.sources = np.sort(random.integers(0, max(blocks, 1), edges if blocks else 0))
        self.targets = random.integers(0, max(blocks, 1), self.sources.size).astype(np.uint32)
        self.offsets = np.searchsorted(self.sources, np.arange(blocks + 1)).astype(np.uint32)
        self.gen, self.kill = (self.bitsets(random, blocks, words) for _ in range(2))
        self.boundary = self.bitsets(random, 1, words)[0]
        self.entries = random.integers(0, blocks, 2) if blocks else np.zeros(0, np.int64)

    def bitsets(self, random: np.random.Generator, blocks: int, words: int) -> Array:
        bits = [random.integers(0, 1 << 32, (blocks, words), np.uint32) for _ in range(3)]
        return bits[0] & bits[1] & bits[2]

    @property
    def graph(self) -> tuple[Array, Array]:
        return self.offsets, self.targets


def iterate(problem: Problem, direction: str, join: str, boundary: Array | None, entries: Array) -> tuple[Array, Array]:
    """The greatest or least fixpoint, by evaluating the equations until nothing changes."""
    blocks, words = problem.gen.shape
    edges = list(zip(problem.sources.tolist(), problem.targets.tolist(), strict=True))
    if direction == "backward":
        edges = [(b, a) for a, b in edges]
    start = FULL if join == "intersection" else 0
    before = np.full((blocks, words), start, np.uint32)
    at_entries = np.zeros(words, np.uint32) if boundary is None else boundary
    while True:
        after = problem.gen | (before & ~problem.kill)
        joined = np.full((blocks, words), start, np.uint32)
        combine = np.bitwise_and if join == "intersection" else np.bitwise_or
        for block in entries:
            joined[block] = combine(joined[block], at_entries)
        for source, target in edges:
            joined[target] = combine(joined[target], after[source])
        if np.array_equal(joined, before):
            return (before, after) if direction == "forward" else (after, before)
        before = joined


def assert_solved(problem: Problem, on: Any, direction: str, join: str, *, with_boundary: bool) -> None:
    options: dict[str, Any] = {}
    entries = problem.entries
    if with_boundary:
        options = {"boundary": problem.boundary, "entries": problem.entries}
    elif direction == "forward":
        entries = np.arange(min(len(problem.gen), 1))
    else:
        entries = np.flatnonzero(np.diff(problem.offsets) == 0)
    found = dataflow.gen_kill(
        problem.graph, problem.gen, problem.kill, direction=direction, join=join, backend=on, **options
    )
    wanted = iterate(problem, direction, join, options.get("boundary"), entries)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == np.uint32
        assert np.array_equal(one, other)


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("join", ["union", "intersection"])
class TestSolutions:
    @pytest.mark.parametrize("backend", [CPU, "webgpu", "reference"])
    @pytest.mark.parametrize(("blocks", "words", "edges"), [(0, 1, 0), (1, 0, 1), (1, 1, 0), (7, 2, 12), (33, 3, 40)])
    def test_sizes(self, backend: str, direction: str, join: str, blocks: int, words: int, edges: int) -> None:
        for with_boundary in (False, True):
            assert_solved(
                Problem(blocks, words, edges), backend_of(backend), direction, join, with_boundary=with_boundary
            )

    @settings(max_examples=40, deadline=None)
    @given(st.integers(0, 40), st.integers(1, 3), st.integers(0, 80), st.booleans(), st.integers(0, 999))
    def test_any_problem(
        self, direction: str, join: str, blocks: int, words: int, edges: int, with_boundary: bool, seed: int
    ) -> None:
        on = backend_of(CPU)
        assert_solved(Problem(blocks, words, edges, seed), on, direction, join, with_boundary=with_boundary)

    def test_a_large_problem(self, direction: str, join: str) -> None:
        assert_solved(Problem(1500, 4, 2500), backend_of(CPU), direction, join, with_boundary=True)

    @pytest.mark.parametrize("schedule", [REVERSED, seeded(1)], ids=str)
    def test_solutions_do_not_depend_on_the_order(self, direction: str, join: str, schedule: object) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        assert_solved(Problem(12, 2, 20), on, direction, join, with_boundary=True)


def bits(*elements: int, words: int = 1) -> list[int]:
    made = np.zeros(words, np.uint32)
    for one in elements:
        made[one // 32] |= np.uint32(1 << one % 32)
    return made.tolist()


# if (c) { x = 1 } else { x = 2 } while (c) { y = x } return y
DIAMOND = np.array([0, 2, 3, 4, 6, 7, 7], np.uint32), np.array([1, 2, 3, 3, 4, 5, 3], np.uint32)


class TestProblems:
    def test_liveness(self) -> None:
        x, y, c = 0, 1, 40
        read = [(c,), (), (), (c,), (x,), (y,)]
        written = [(), (x,), (x,), (), (y,), ()]
        uses, writes = (np.array([bits(*one, words=2) for one in sets], np.uint32) for sets in (read, written))
        start, end = dataflow.liveness(DIAMOND, uses, writes)
        live = [(c, y), (c, y), (c, y), (x, y, c), (x, c), (y,)]
        assert start.tolist() == [bits(*one, words=2) for one in live]
        assert end[5].tolist() == bits(words=2)
        assert end[0].tolist() == bits(c, y, words=2)
        _, end = dataflow.liveness(DIAMOND, uses, writes, live_at_exit=np.array(bits(33, words=2), np.uint32))
        assert end[5].tolist() == bits(33, words=2)

    def test_reaching_definitions(self) -> None:
        # Definitions: 0 and 1 of x in block 0, 2 and 3 of x in the branches, 4 of y in the loop.
        start, end = dataflow.reaching_definitions(DIAMOND, [0, 0, 1, 2, 4], [7, 7, 7, 7, 9])
        assert start.tolist() == [bits(), bits(1), bits(1), bits(2, 3, 4), bits(2, 3, 4), bits(2, 3, 4)]
        assert end.tolist() == [bits(1), bits(2), bits(3), bits(2, 3, 4), bits(2, 3, 4), bits(2, 3, 4)]

    def test_reaching_definitions_of_none(self) -> None:
        start, end = dataflow.reaching_definitions(DIAMOND, [], [])
        assert start.shape == end.shape == (6, 0)

    def test_blocks_that_nothing_reaches_hold_everything_that_must(self) -> None:
        graph = np.array([0, 0, 1, 1], np.uint32), np.array([2], np.uint32)
        gen, kill = np.zeros((3, 1), np.uint32), np.array([[0], [6], [0]], np.uint32)
        start, end = dataflow.gen_kill(graph, gen, kill, join="intersection")
        assert start.tolist() == [[0], [FULL], [FULL - 6]]
        assert end.tolist() == [[0], [FULL - 6], [FULL - 6]]

    def test_a_long_chain(self) -> None:
        count = 20_000
        offsets = np.minimum(np.arange(count + 1), count - 1).astype(np.uint32)
        gen = np.zeros((count, 1), np.uint32)
        gen[0] = 5
        kill = np.zeros((count, 1), np.uint32)
        kill[1000] = 1
        start, _ = dataflow.gen_kill((offsets, np.arange(1, count, dtype=np.uint32)), gen, kill)
        assert start[1000].tolist() == [5]
        assert (start[1001:] == 4).all()

    def test_a_graph_object(self) -> None:
        from vyre.lib.graph import Graph

        graph = Graph.from_edges([0, 1], [1, 0], 2)
        start, _ = dataflow.gen_kill(graph, np.array([[1], [2]], np.uint32), np.zeros((2, 1), np.uint32))
        assert start.tolist() == [[3], [3]]

    def test_the_kernel_has_no_race(self) -> None:
        problem = Problem(9, 2, 15)
        held = np.zeros(18, np.uint32)
        held[:2] = problem.boundary
        seeded_cells = np.flatnonzero(held)
        queue = np.zeros(36, np.uint32)
        queue[: seeded_cells.size] = seeded_cells
        counts = np.array([seeded_cells.size, 0, 0], np.uint32)
        arrays = (problem.offsets, problem.targets, problem.gen.reshape(-1), problem.kill.reshape(-1))
        after = np.full(18, 0xA5A5A5A5, np.uint32)
        solve = sys.modules["vyre.lib.dataflow.bitvector"].solve
        report = solve.grid(2).debug(2, *arrays, held, after, held.copy(), queue, counts)
        assert report.races == (), str(report)
        assert report.out_of_bounds == (), str(report)
        before, after = iterate(problem, "forward", "union", problem.boundary, np.zeros(1, np.int64))
        assert report.outputs["held"].tolist() == before.reshape(-1).tolist()
        assert report.outputs["held_after"].tolist() == after.reshape(-1).tolist()

    def test_the_program_prints(self) -> None:
        assert str(dataflow.gen_kill.program).startswith("program solve(workgroup 64)")


def words(*shape: int) -> Array:
    return np.zeros(shape, np.uint32)


def solve_on(offsets: Any, targets: Any, **options: Any) -> object:
    return dataflow.gen_kill((np.array(offsets), np.array(targets)), words(2, 1), words(2, 1), **options)


BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "falling offsets": (lambda: solve_on([0, 2, 1], [0, 0]), "'offsets' falls at position 2: 2 is followed by 1"),
    "first offset": (lambda: solve_on([1, 2, 2], [0, 0]), "'offsets' begins with 1"),
    "no offsets": (lambda: solve_on([], []), "'offsets' is empty"),
    "target": (lambda: solve_on([0, 1, 2], [1, 5]), "'targets' has 5 at position 1, and the number of nodes is 2"),
    "negative target": (lambda: solve_on([0, 1, 2], [1, -5]), "'targets' has -5 at position 1"),
    "short targets": (lambda: solve_on([0, 1, 2], [1]), "'targets' has 1 elements, expected 2"),
    "fractions": (lambda: solve_on([0, 1, 2], [0.5, 1]), "'targets' has elements of type float64"),
    "graph": (lambda: dataflow.gen_kill(7, words(1, 1), words(1, 1)), "'graph' is a int"),
    "direction": (lambda: solve_on([0, 0, 0], [], direction="up"), "'direction' is 'up'.*'forward' or 'backward'"),
    "join": (lambda: solve_on([0, 0, 0], [], join="sum"), "'join' is 'sum'.*'union' or 'intersection'"),
    "entries": (
        lambda: solve_on([0, 0, 0], [], entries=[0, 2]),
        "'entries' has 2 at position 1, and the number of blocks is 2",
    ),
    "boundary": (
        lambda: solve_on([0, 0, 0], [], boundary=words(2)),
        "'boundary' has shape .2,. and type uint32, expected uint32 of shape .1,.",
    ),
    "gen": (
        lambda: dataflow.gen_kill((words(3), words(0)), words(3, 1), words(2, 1)),
        "'gen' has shape .3, 1. and elements of type uint32, expected uint32 of shape .2, words.",
    ),
    "kill": (
        lambda: dataflow.gen_kill((words(3), words(0)), words(2, 1), words(2, 2)),
        "'kill' has 2 words for each block, and 'gen' has 1",
    ),
    "type": (
        lambda: dataflow.gen_kill((words(3), words(0)), np.zeros((2, 1)), words(2, 1)),
        "'gen' has shape .2, 1. and elements of type float64",
    ),
    "block of a definition": (
        lambda: dataflow.reaching_definitions((words(3), words(0)), [0, 2], [0, 0]),
        "'block_of' has 2 at position 1, and the number of blocks is 2",
    ),
    "variables": (
        lambda: dataflow.reaching_definitions((words(3), words(0)), [0, 1], [0]),
        "'block_of' has 2 elements, and 'variable_of' has 1",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_wrong_call_is_refused(name: str) -> None:
    call, message = BAD_CALLS[name]
    with pytest.raises(BadInputs, match=message):
        call()
