"""The work that SciPy has a function for, on its sparse matrices."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy
from scipy.sparse import csgraph, csr_array

from graphs import NOT_REACHED, Array, Csr
from library_peers import Contender, Peer, Ranking, Traversal, from_each


def _matrix(graph: Csr, dtype: Any = np.float64) -> Any:
    """The graph with the index types that ``scipy.sparse.csgraph`` takes without a copy."""
    arrays = np.ones(graph.num_edges, dtype), graph.targets.astype(np.int32), graph.offsets.astype(np.int32)
    return csr_array(arrays, shape=(graph.num_nodes, graph.num_nodes))


def levels_of(order: Array, parents: Array) -> Array:
    """Levels from nodes in the order of BFS and their parents: each level's nodes are parents of the next level's."""
    levels = np.full(len(parents), NOT_REACHED, np.uint32)
    place = np.zeros(len(parents), np.int64)
    place[order] = np.arange(len(order))
    places_of_parents = place[parents[order[1:]]]
    start, stop, level = 0, 1, 0
    while start < stop:
        levels[order[start:stop]] = level
        start, stop, level = stop, 1 + int(np.searchsorted(places_of_parents, stop)), level + 1
    return levels


def _bfs(work: Traversal) -> dict[str, Contender]:
    run = from_each(partial(csgraph.breadth_first_order, _matrix(work.graph)), work.sources)
    return {"scipy": Contender(run, lambda found: np.array([levels_of(*pair) for pair in found]))}


def smallest_members(labels: Array) -> Array:
    """Labels that are the smallest node of each component, from any labels from 0."""
    smallest = np.full(int(labels.max()) + 1, len(labels), np.uint32)
    np.minimum.at(smallest, labels, np.arange(len(labels), dtype=np.uint32))
    return smallest[labels]


def _components(graph: Csr) -> dict[str, Contender]:
    matrix = _matrix(graph)

    def contender(**options: Any) -> Contender:
        return Contender(
            lambda: csgraph.connected_components(matrix, **options), lambda found: smallest_members(found[1])
        )

    # Strong components of an undirected graph are its components, and need no transpose.
    return {"scipy": contender(directed=False), "scipy, strong": contender(connection="strong")}


def _ranks(matrix: Any, weights: Array, sinks: Array, work: Ranking) -> Array:
    count = len(weights)
    ranks = np.full(count, 1.0 / count, weights.dtype)
    for _ in range(work.iterations):
        base = (1.0 - work.damping + work.damping * ranks[sinks].sum()) / count
        ranks = matrix @ (ranks * weights)
        ranks += base
    return ranks


def _pagerank(work: Ranking) -> dict[str, Contender]:
    degrees = work.graph.degrees
    sinks = np.flatnonzero(degrees == 0)

    def contender(dtype: Any) -> Contender:
        matrix = _matrix(work.graph, dtype)
        weights = np.divide(work.damping, degrees, out=np.zeros(len(degrees)), where=degrees > 0).astype(dtype)
        return Contender(lambda: _ranks(matrix, weights, sinks, work))

    return {"scipy, f32": contender(np.float32), "scipy, f64": contender(np.float64)}


def load(_: int) -> Peer:
    return Peer("scipy", scipy.__version__, {"bfs": _bfs, "components": _components, "pagerank": _pagerank})
