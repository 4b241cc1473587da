"""The work that NetworKit has an algorithm for, on its own graphs."""

from __future__ import annotations

from typing import Any

import networkit as nk
import numpy as np

from graphs import NOT_REACHED, Array, Csr
from library_peers import Contender, Peer, Traversal, from_each
from library_peers.with_scipy import smallest_members


def _graph(graph: Csr) -> Any:
    rows, columns = (
        np.repeat(np.arange(graph.num_nodes, dtype=np.uint64), graph.degrees),
        graph.targets.astype(np.uint64),
    )
    once = rows < columns
    edges = np.ones(int(once.sum())), (rows[once], columns[once])
    return nk.GraphFromCoo(edges, n=graph.num_nodes, weighted=False, directed=False)


def _levels(algorithm: Any) -> Array:
    distances = np.array(algorithm.getDistances())
    return np.where(distances < NOT_REACHED, distances, NOT_REACHED).astype(np.uint32)


def _bfs(work: Traversal) -> dict[str, Contender]:
    graph = _graph(work.graph)
    run = from_each(lambda source: nk.distance.BFS(graph, source, False).run(), work.sources)
    return {"networkit": Contender(run, lambda found: np.array([_levels(one) for one in found]))}


def _components(graph: Csr) -> dict[str, Contender]:
    held = _graph(graph)
    return {
        f"networkit, {name}": Contender(
            lambda make=make: make(held).run(),
            lambda found: smallest_members(np.array(found.getPartition().getVector())),
        )
        for name, make in (
            ("serial", nk.components.ConnectedComponents),
            ("parallel", nk.components.ParallelConnectedComponents),
        )
    }


def load(threads: int) -> Peer:
    nk.setNumberOfThreads(threads)
    return Peer("networkit", nk.__version__, {"bfs": _bfs, "components": _components})
