"""The work as products of sparse matrices and vectors over semirings, with SuiteSparse:GraphBLAS."""

from __future__ import annotations

from functools import partial
from typing import Any

import graphblas as gb
import numpy as np
from graphblas import Matrix, Vector, binary, dtypes, monoid, semiring
from suitesparse_graphblas import ffi, lib

from graphs import NOT_REACHED, Csr
from library_peers import Contender, Peer, Ranking, Traversal, from_each

# LAGraph's choice: pull when the frontier grows beyond this share of the nodes, push when it shrinks below this one.
_PULL_ABOVE, _PUSH_BELOW = 8, 512


def _adjacency(graph: Csr) -> Any:
    """The pattern of the graph: all entries share one value."""
    return Matrix.ss.import_csr(
        nrows=graph.num_nodes, ncols=graph.num_nodes, indptr=graph.offsets.astype(np.uint64),
        col_indices=graph.targets.astype(np.uint64), values=np.ones(1, bool), is_iso=True, sorted_cols=True,
    )  # fmt: skip


def _require(status: int) -> None:
    if status != lib.GrB_SUCCESS:
        raise RuntimeError(f"GraphBLAS returned {status}")


def _bfs_levels(matrix: Any, source: int) -> Any:
    """Push or pull a frontier, by LAGraph's choice.

    It calls the C functions, because a level of the grid takes less time than their Python wrappers.
    """
    count = matrix.nrows
    levels, frontier = Vector(dtypes.UINT32, count), Vector(dtypes.BOOL, count)
    levels[source] = 0
    frontier[source] = True
    known, front, edges = levels.gb_obj[0], frontier.gb_obj[0], matrix.gb_obj[0]
    product = ffi.NULL, lib.GxB_ANY_PAIR_BOOL
    size, level, length, before, pull = ffi.new("GrB_Index*"), 0, 1, 0, False
    while length:
        level += 1
        grows, shrinks = length > before, length < before
        pull = not (shrinks and length < count // _PUSH_BELOW) if pull else grows and length > count // _PULL_ABOVE
        if pull:
            done = lib.GrB_mxv(front, known, *product, edges, front, lib.GrB_DESC_RSC)
        else:
            done = lib.GrB_vxm(front, known, *product, front, edges, lib.GrB_DESC_RSC)
        _require(done)
        _require(lib.GrB_Vector_assign_UINT32(known, front, ffi.NULL, level, lib.GrB_ALL, count, lib.GrB_DESC_S))
        _require(lib.GrB_Vector_nvals(size, front))
        before, length = length, size[0]
    return levels


def _bfs(work: Traversal) -> dict[str, Contender]:
    run = from_each(partial(_bfs_levels, _adjacency(work.graph)), work.sources)
    return {
        "graphblas": Contender(
            run, lambda found: np.array([levels.to_dense(NOT_REACHED) for levels in found]).astype(np.uint32)
        )
    }


def _fast_sv(matrix: Any) -> Any:
    """FastSV: the least grandparent beside a node is hooked to its parent and to itself, until nothing changes."""
    count = matrix.nrows
    numbers = np.arange(count, dtype=np.uint32)
    columns = np.arange(count + 1, dtype=np.uint64)
    parents = Vector.from_dense(numbers)
    grandparents, least = parents.dup(), parents.dup()
    while True:
        least(binary.min) << semiring.min_second(matrix @ grandparents)
        # Column i has its one entry in the row of i's parent, so that the product is a scatter by the minimum.
        tree = Matrix.ss.import_csc(
            nrows=count, ncols=count, indptr=columns.copy(), row_indices=parents.to_dense().astype(np.uint64),
            values=np.ones(1, bool), is_iso=True,
        )  # fmt: skip
        parents(binary.min) << semiring.min_second(tree @ least)
        parents << parents.ewise_mult(least, binary.min)
        parents << parents.ewise_mult(grandparents, binary.min)
        following = parents[parents.to_dense().astype(np.uint64)].new()
        if following.isequal(grandparents):
            return parents
        grandparents = following


def _components(graph: Csr) -> dict[str, Contender]:
    matrix = _adjacency(graph)
    return {"graphblas, FastSV": Contender(lambda: _fast_sv(matrix), lambda labels: labels.to_dense())}


def _ranks(matrix: Any, weights: Any, sinks: Any, work: Ranking) -> Any:
    """Pull the shares of the neighbours; ``weights`` has an entry for each node, so that shares are a full vector."""
    count = matrix.nrows
    ranks = Vector(weights.dtype, count)
    ranks << 1.0 / count
    shares = Vector(weights.dtype, count)
    for _ in range(work.iterations):
        lost = ranks.ewise_mult(sinks, binary.first).reduce(monoid.plus).get(0.0)
        shares << ranks.ewise_mult(weights, binary.times)
        ranks << (1.0 - work.damping + work.damping * float(lost)) / count
        ranks(binary.plus) << semiring.plus_second(matrix @ shares)
    return ranks


def _pagerank(work: Ranking) -> dict[str, Contender]:
    matrix, degrees = _adjacency(work.graph), work.graph.degrees
    weight = np.divide(work.damping, degrees, out=np.zeros(len(degrees)), where=degrees > 0)

    def contender(dtype: Any) -> Contender:
        weights = Vector.from_dense(weight.astype(dtype))
        sinks = Vector.from_coo(np.flatnonzero(degrees == 0), True, size=len(degrees))
        return Contender(lambda: _ranks(matrix, weights, sinks, work), lambda ranks: ranks.to_dense())

    return {"graphblas, f32": contender(np.float32), "graphblas, f64": contender(np.float64)}


def load(threads: int) -> Peer:
    gb.ss.config["nthreads"] = threads
    version = f"{gb.__version__} on {'.'.join(map(str, gb.ss.about['library_version']))}"
    return Peer("graphblas", version, {"bfs": _bfs, "components": _components, "pagerank": _pagerank})
