"""Irregular kernels: sparse matrices and graphs."""

# No `from __future__ import annotations`: it hides the element type, a local name, from a kernel's annotations.
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import graphs
import vyre
from comparison import Array, Contender
from graphs import NOT_REACHED, Csr
from plain_kernels import Setting, numba, on_numba, parallel, prange, side_by_side
from vyre import u32

_PER_ROW = 8
_LONGEST_ROW = 100_000
# The rows of a chunk, where rows differ in length.
_ROWS_AT_A_TIME = 1024


@cache
def _spmv(real: Any) -> Any:
    @vyre.kernel
    def spmv(offsets: vyre.In[u32], columns: vyre.In[u32], values: vyre.In[real], x: vyre.In[real], y: vyre.Out[real]):
        row = vyre.gid()
        if row < len(y):
            total: real = 0
            for k in range(offsets[row], offsets[row + 1]):
                total += values[k] * x[columns[k]]
            y[row] = total

    return spmv


@parallel
def _numba_spmv(offsets, columns, values, x, y):
    for row in prange(len(y)):
        total = values.dtype.type(0)
        for k in range(offsets[row], offsets[row + 1]):
            total += values[k] * x[columns[k]]
        y[row] = total


def _multiply(setting: Setting, matrix: Csr) -> dict[str, Contender]:
    values, x = setting.floats(matrix.num_edges), setting.floats(matrix.num_nodes, seed=2)
    arguments = matrix.offsets, matrix.targets, values, x, setting.zeros(matrix.num_nodes)
    found = side_by_side(setting, {"vyre": _spmv(setting.real)[matrix.num_nodes]}, _numba_spmv, arguments, 4)
    if numba:
        # Rows of many lengths: threads take the next rows when they are done with theirs.
        def shared(*own: Any) -> None:
            before = numba.set_parallel_chunksize(_ROWS_AT_A_TIME)
            _numba_spmv(*own)
            numba.set_parallel_chunksize(before)

        found["numba, by chunks"] = on_numba(shared, arguments, [4])
    return found


def spmv_even(setting: Setting) -> dict[str, Contender]:
    rows = setting.size
    columns = np.random.default_rng(3).integers(0, rows, rows * _PER_ROW, np.uint32)
    return _multiply(setting, Csr(np.arange(rows + 1, dtype=np.uint32) * np.uint32(_PER_ROW), columns))


@cache
def _rmat(scale: int) -> Csr:
    return graphs.rmat(scale)


def spmv_rmat(setting: Setting) -> dict[str, Contender]:
    """``size`` is the scale."""
    return _multiply(setting, _rmat(setting.size))


def spmv_zipf(setting: Setting) -> dict[str, Contender]:
    """The lengths of the rows follow Zipf's law with the exponent 2."""
    rows, random = setting.size, np.random.default_rng(4)
    lengths = np.minimum(random.zipf(2.0, rows), min(rows, _LONGEST_ROW))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32)
    return _multiply(setting, Csr(offsets, random.integers(0, rows, int(offsets[-1]), np.uint32)))


@cache
def _levels() -> Any:
    """The kernel of ``examples/bfs.py``."""
    directory = str(Path(__file__).resolve().parents[2] / "examples")
    sys.path.insert(0, directory)
    try:
        from bfs import levels
    finally:
        sys.path.remove(directory)
    return levels


@vyre.kernel
def start_search(source: u32, level: vyre.Out[u32], found: vyre.Out[u32]):
    node = vyre.gid()
    if node < len(level):
        level[node] = 0 if node == source else NOT_REACHED
    if node < len(found):
        found[node] = 1 if node == 0 else 0


@parallel
def _numba_bfs(offsets, targets, source, level):
    """Level by level, over all nodes, as the kernel does: nodes of a level may be found twice."""
    count = len(level)
    for node in prange(count):
        level[node] = np.uint32(0xFFFFFFFF)
    level[source] = np.uint32(0)
    depth, found = np.uint32(0), 1
    while found > 0:
        found = 0
        following = np.uint32(depth + np.uint32(1))
        for node in prange(count):
            if level[node] == depth:
                own = 0
                for edge in range(offsets[node], offsets[node + 1]):
                    if level[targets[edge]] == np.uint32(0xFFFFFFFF):
                        level[targets[edge]] = following
                        own += 1
                found += own
        depth = following


def _search(setting: Setting, graph: Csr, source: int) -> dict[str, Contender]:
    from vyre.lib.graph import Graph, bfs

    count = graph.num_nodes
    offsets, targets, level, found = setting.resident(
        [graph.offsets, graph.targets, np.zeros(count, np.uint32), np.zeros(count + 1, np.uint32)]
    )

    def run() -> None:
        start_search[count + 1](source, level, found)
        _levels()[count](offsets, targets, level, found)

    of_library = Graph.from_csr(graph.offsets, graph.targets)

    def search() -> Array:
        return np.asarray(bfs(of_library, source, backend=setting.backend))

    contenders = {"vyre": Contender(run, lambda _: level.numpy()), "library": Contender(search)}
    if numba:
        arguments = graph.offsets, graph.targets, source, np.zeros(count, np.uint32)
        contenders["numba"] = on_numba(_numba_bfs, arguments, [3])
    return contenders


def bfs_rmat(setting: Setting) -> dict[str, Contender]:
    """``size`` is the scale."""
    graph = _rmat(setting.size)
    return _search(setting, graph, graphs.hub(graph))


def bfs_grid(setting: Setting) -> dict[str, Contender]:
    return _search(setting, graphs.grid(setting.size), 0)
