"""Graphs for tests, the backends to search them on, and plain oracles of what is computed on them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st

import cpu_support
import webgpu_support
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lang.backends import shared_backend
from vyre.lib.graph import Graph

Array = np.ndarray[Any, Any]
NONE: Final = 0xFFFFFFFF
# Around the sizes of words, subgroups and workgroups.
SIZES: Final = (0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 129, 257)
SMALL_SIZES: Final = (0, 1, 31, 33, 65)
TINY_SIZES: Final = (1, 33)
# Memory that is not written holds this byte, so that a kernel that relies on zeros is found out.
_POISON: Final = 0xA5


class Edges(msgspec.Struct, frozen=True):
    """The edges of a directed graph, in the order in which they were made."""

    nodes: int
    sources: Array
    targets: Array

    def graph(self, **columns: Any) -> Graph:
        return Graph.from_edges(self.sources, self.targets, self.nodes, **columns)

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.sources.tolist(), self.targets.tolist(), strict=True))

    def both_ways(self) -> Edges:
        """With the reverse of every edge; duplicates and self loops are left out."""
        found = sorted({one for a, b in self.pairs() if a != b for one in ((a, b), (b, a))})
        return edges_of(self.nodes, found)


def edges_of(nodes: int, pairs: Iterable[tuple[int, int]]) -> Edges:
    listed = np.array(list(pairs), np.int64).reshape(-1, 2)
    return Edges(nodes, listed[:, 0].copy(), listed[:, 1].copy())


def random_edges(nodes: int, degree: int = 3, seed: int = 1) -> Edges:
    random = np.random.default_rng(seed + nodes)
    ends = random.integers(0, max(nodes, 1), (2, nodes * degree))
    return Edges(nodes, ends[0], ends[1])


def rmat(nodes: int, degree: int = 8, seed: int = 1) -> Edges:
    """Graph500's distribution: a few nodes have most of the edges."""
    random = np.random.default_rng(seed)
    ends = np.zeros((2, nodes * degree), np.int64)
    for _ in range(max(nodes - 1, 1).bit_length()):
        place = random.random(ends.shape[1])
        lower = place >= 0.76
        right = (place >= 0.95) | ((place >= 0.57) & ~lower)
        ends = ends * 2 + np.array([lower, right])
    ends %= max(nodes, 1)
    return Edges(nodes, ends[0], ends[1])


def grid(nodes: int) -> Edges:
    """Rows of equal length, the last one shorter; each node has an edge to the right and one down."""
    width = max(1, math.isqrt(nodes))
    right = [(a, a + 1) for a in range(nodes - 1) if (a + 1) % width]
    down = [(a, a + width) for a in range(nodes - width)]
    return edges_of(nodes, right + down)


def chain(nodes: int) -> Edges:
    at = np.arange(max(nodes - 1, 0))
    return Edges(nodes, at, at + 1)


def star(nodes: int) -> Edges:
    leaves = np.arange(1, max(nodes, 1))
    return Edges(nodes, np.zeros_like(leaves), leaves)


def complete(nodes: int) -> Edges:
    """An edge between any two of the first 40 nodes."""
    some = range(min(nodes, 40))
    return edges_of(nodes, ((a, b) for a in some for b in some if a != b))


def self_loops(nodes: int) -> Edges:
    """A chain whose nodes have an edge to themselves too."""
    every = np.arange(nodes)
    along = chain(nodes)
    return Edges(nodes, np.concatenate([every, along.sources]), np.concatenate([every, along.targets]))


def duplicate_edges(nodes: int) -> Edges:
    """Every edge three times, and some of them side by side."""
    once = random_edges(nodes, 2)
    return Edges(nodes, np.tile(once.sources, 3), np.tile(once.targets, 3))


def disconnected(nodes: int) -> Edges:
    """Short cycles beside each other; every fifth node has no edge."""
    return edges_of(
        nodes, ((a, a // 5 * 5 + (a % 5 + 1) % 4) for a in range(nodes) if a % 5 < 4 and a // 5 * 5 + 4 < nodes)
    )


def no_edges(nodes: int) -> Edges:
    return edges_of(nodes, [])


FAMILIES: Final[dict[str, Callable[[int], Edges]]] = {
    "random": random_edges,
    "R-MAT": rmat,
    "grid": grid,
    "chain": chain,
    "star": star,
    "complete": complete,
    "self loops": self_loops,
    "duplicate edges": duplicate_edges,
    "disconnected": disconnected,
    "no edges": no_edges,
}


class Search(msgspec.Struct, frozen=True):
    """A graph, where a search begins, and what it must find."""

    graph: Graph
    seeds: list[int]
    levels: list[int]
    parents: list[int]


@cache
def searches(family: str, size: int) -> list[Search]:
    """Searches of a directed graph, of one with its transpose at hand, and of one with both directions."""
    edges = FAMILIES[family](size)
    with_transpose, both = edges.graph(), edges.both_ways()
    with_transpose.transpose()
    found = []
    # From several nodes of which one is named twice, from one, and from none.
    for seeds in [[size - 1, 0, size // 2, 0], [0], []] if size else [[]]:
        for searched, graphs in ((edges, (edges.graph(), with_transpose)), (both, (both.graph(),))):
            levels = plain_levels(searched, seeds)
            parents = plain_parents(searched, levels)
            found += [Search(graph, seeds, levels, parents) for graph in graphs]
    return found


# Vectors of every width, threads that share whatever they can, a device, and the definition of the language. Every
# family runs where calls are quick, and some where they are not.
CPU: Final = "cpu 4x2"
BACKENDS: Final = ("cpu", CPU, "cpu 8x1", "cpu 16x2", "webgpu", "reference")
_SOME_FAMILIES: Final = ("random", "star", "self loops", "disconnected")


def family_and_backend(*backends: str) -> pytest.MarkDecorator:
    """Runs a test for families of graphs on backends."""
    pairs = [(family, name) for name in backends for family in (FAMILIES if name in ("cpu", CPU) else _SOME_FAMILIES)]
    return pytest.mark.parametrize(("family", "name"), pairs)


@cache
def backend_of(name: str) -> Backend:
    if name == "webgpu":
        return webgpu_support.backend()
    if name == "reference":
        return ReferenceBackend(poison=_POISON)
    if name == "cpu":
        # The one that calls without a backend run on.
        return shared_backend("cpu")
    width, threads = map(int, name.removeprefix("cpu ").split("x"))
    return cpu_support.sharing_backend(threads, width)


def searches_for(backend: str, family: str, size: int) -> list[Search]:
    """Those from several nodes only where a call takes longer."""
    found = searches(family, size)
    return found if backend.startswith("cpu") else found[:3]


def sizes_for(backend: str) -> Sequence[int]:
    """Fewer where a call takes longer."""
    return {"cpu": SIZES, "webgpu": TINY_SIZES, "reference": TINY_SIZES}.get(backend, SMALL_SIZES)


@st.composite
def edge_lists(draw: st.DrawFn, most_nodes: int = 70, least_nodes: int = 0) -> Edges:
    """Any graph: nodes around the size of a word, and more edges than nodes as often as fewer."""
    nodes = draw(st.sampled_from([n for n in (1, 2, 5, 12, 31, 32, 33, 64, 65, 70) if n <= most_nodes]))
    nodes = nodes if least_nodes else draw(st.sampled_from([nodes] * 9 + [0]))
    node = st.integers(0, nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=3 * nodes)) if nodes else []
    return edges_of(nodes, pairs)


def nodes_of(edges: Edges, most: int = 4) -> st.SearchStrategy[list[int]]:
    """Some of the nodes, in any order, perhaps one of them twice."""
    return st.lists(st.integers(0, edges.nodes - 1), max_size=most) if edges.nodes else st.just([])


def rows_of(edges: Edges, allowed: Sequence[bool] | None = None) -> list[list[int]]:
    """The targets of each node's allowed edges."""
    rows: list[list[int]] = [[] for _ in range(edges.nodes)]
    for at, (source, target) in enumerate(edges.pairs()):
        if allowed is None or allowed[at]:
            rows[source].append(target)
    return rows


def plain_levels(
    edges: Edges, seeds: Iterable[int], allowed: Sequence[bool] | None = None, hops: int = NONE
) -> list[int]:
    """Breadth-first search by a queue."""
    rows = rows_of(edges, allowed)
    levels = [NONE] * edges.nodes
    queue = deque(dict.fromkeys(seeds))
    for seed in queue:
        levels[seed] = 0
    while queue:
        node = queue.popleft()
        for target in rows[node]:
            if levels[target] == NONE and levels[node] < hops:
                levels[target] = levels[node] + 1
                queue.append(target)
    return levels


def plain_parents(edges: Edges, levels: Sequence[int]) -> list[int]:
    """The smallest node before each on a shortest path."""
    parents = [node if level == 0 else NONE for node, level in enumerate(levels)]
    for source, target in edges.pairs():
        if levels[source] != NONE and levels[target] == levels[source] + 1:
            parents[target] = min(parents[target], source)
    return parents


def plain_neighbours(
    edges: Edges, nodes: Iterable[int], direction: str, allowed: Sequence[bool] | None = None
) -> list[bool]:
    """The nodes at the other end of an allowed edge of some nodes."""
    wanted = set(nodes)
    found = [False] * edges.nodes
    for at, (source, target) in enumerate(edges.pairs()):
        if allowed is None or allowed[at]:
            if direction != "backward" and source in wanted:
                found[target] = True
            if direction != "forward" and target in wanted:
                found[source] = True
    return found


def plain_components(edges: Edges) -> list[int]:
    """The smallest node of each node's component, by sets that are joined."""
    of = list(range(edges.nodes))

    def root(node: int) -> int:
        while of[node] != node:
            of[node] = of[of[node]]
            node = of[node]
        return node

    for source, target in edges.pairs():
        one, other = sorted((root(source), root(target)))
        of[other] = one
    return [root(node) for node in range(edges.nodes)]


def is_plainly_symmetric(edges: Edges) -> bool:
    pairs = set(edges.pairs())
    return all((b, a) in pairs for a, b in pairs)


def levels_by_numpy(graph: Graph, seed: int) -> Array:
    """Levels of a large graph, one whole level at a time."""
    starts, targets = graph.offsets.astype(np.int64), graph.targets
    levels = np.full(graph.num_nodes, NONE, np.uint32)
    levels[seed] = 0
    frontier, depth = np.array([seed]), 0
    while frontier.size:
        depth += 1
        counts = starts[frontier + 1] - starts[frontier]
        first = np.repeat(starts[frontier] - np.cumsum(counts) + counts, counts)
        found = targets[first + np.arange(counts.sum())]
        frontier = np.unique(found[levels[found] == NONE]).astype(np.int64)
        levels[frontier] = depth
    return levels


def refused(call: Callable[[], object]) -> str:
    """The message and the fix of the error that a call raises."""
    with pytest.raises(BadInputs) as caught:
        call()
    return f"{caught.value.message} Fix: {caught.value.fix}"
