"""PageRank by power iteration: every node sums what the nodes before it pass on.

Sums have one order, whatever the backend and the number of threads: each lane of a workgroup adds every eighth edge of
a node, and then the lanes are added by halves; totals over nodes are sums of chunks of a fixed size.
"""

from __future__ import annotations

from functools import cache
from numbers import Real
from typing import Any, Final

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lang.kernel import Kernel
from vyre.lib.graph.csr import Graph, require_graph
from vyre.lib.workspace import MAX_ELEMENTS, ArrayLike, Workspace, require_count, shows_program
from vyre.semantics.types import DType

# Most nodes have few edges: with more lanes, more of them would be idle.
LANES: Final = 8
# Nodes whose ranks are summed by one workgroup; totals are sums of chunks.
CHUNK: Final = 256


@vyre.function
def total_of(parts, start, count, real):
    """The sum of some chunks' totals, by the lanes of one workgroup."""
    sum_of_lane = real(0)
    i = vyre.lid()
    while i < count:
        sum_of_lane += parts[start + i]
        i += LANES
    return vyre.subgroup_reduce("add", sum_of_lane)


@cache
def pagerank_kernel(real: Any) -> Kernel:
    """The kernel for ranks of one type, f32 or f64."""

    @vyre.kernel(workgroup=LANES, subgroup=LANES)
    def iterate(
        out_offsets: vyre.In[u32],
        offsets: vyre.In[u32],
        sources: vyre.In[u32],
        damping: real,
        tolerance: real,
        most: u32,
        rank: vyre.InOut[real],
        passed: vyre.InOut[real],
        changes: vyre.InOut[real],
        kept: vyre.InOut[real],
        state: vyre.InOut[real],
    ) -> None:
        """Iterate until ranks change by less than ``tolerance`` in total, ``most`` times at most.

        ``passed`` holds what each node passes on along each edge, twice: for this iteration and for the next. ``kept``
        is the rank of nodes without edges, which all nodes share; ``changes`` and ``kept`` have an element for a chunk.
        """
        nodes = len(rank)
        chunks = len(kept)
        lane = vyre.lid()
        each = real(1) / real(nodes)
        chunk = vyre.wg()
        while chunk < chunks:
            kept_by_lane = real(0)
            node = chunk * CHUNK + lane
            for _ in range(CHUNK // LANES):
                if node < nodes:
                    degree = out_offsets[node + 1] - out_offsets[node]
                    rank[node] = each
                    passed[node] = each / real(degree) if degree != 0 else real(0)
                    if degree == 0:
                        kept_by_lane += each
                node += LANES
            kept_by_lane = vyre.subgroup_reduce("add", kept_by_lane)
            if lane == 0:
                kept[chunk] = kept_by_lane
            chunk += vyre.num_workgroups()
        vyre.grid_sync()
        if vyre.wg() == 0:
            lost = total_of(kept, 0, chunks, real)
            if lane == 0:
                state[0] = lost
                state[1] = tolerance + real(1)
        vyre.grid_sync()
        iteration = 0
        while iteration < most and (iteration == 0 or state[1] >= tolerance):
            vyre.grid_sync()
            base = (real(1) - damping) * each + damping * state[0] * each
            now = iteration % 2 * nodes
            following = (iteration + 1) % 2 * nodes
            chunk = vyre.wg()
            while chunk < chunks:
                kept_by_lane, change_by_lane = real(0), real(0)
                node = chunk * CHUNK + lane
                for _ in range(CHUNK // LANES):
                    incoming = real(0)
                    first = node - lane
                    for k in range(LANES):
                        edge, end = offsets[first + k] + lane, offsets[first + k + 1]
                        part = real(0)
                        while edge < end:
                            part += passed[now + sources[edge]]
                            edge += LANES
                        part = vyre.subgroup_reduce("add", part)
                        if lane == k:
                            incoming = part
                    if node < nodes:
                        fresh = base + damping * incoming
                        degree = out_offsets[node + 1] - out_offsets[node]
                        change_by_lane += vyre.abs(fresh - rank[node])
                        rank[node] = fresh
                        passed[following + node] = fresh / real(degree) if degree != 0 else real(0)
                        if degree == 0:
                            kept_by_lane += fresh
                    node += LANES
                kept_by_lane = vyre.subgroup_reduce("add", kept_by_lane)
                change_by_lane = vyre.subgroup_reduce("add", change_by_lane)
                if lane == 0:
                    kept[chunk] = kept_by_lane
                    changes[chunk] = change_by_lane
                chunk += vyre.num_workgroups()
            vyre.grid_sync()
            if vyre.wg() == 0:
                lost = total_of(kept, 0, chunks, real)
                change = total_of(changes, 0, chunks, real)
                if lane == 0:
                    state[0] = lost
                    state[1] = change
            iteration += 1
            vyre.grid_sync()

    made: Kernel = iterate
    return made


@shows_program(lambda: pagerank_kernel(DType.F32))
def pagerank(
    g: Graph,
    damping: float = 0.85,
    tolerance: float = 1e-6,
    max_iterations: int = 100,
    *,
    dtype: DType = DType.F32,
    backend: str | Backend | None = None,
    out: ArrayLike = None,
) -> Any:
    """The PageRank of every node; ranks sum to 1, as f32 or, with ``dtype=vyre.f64``, as f64.

    Iterates until the ranks change by less than ``tolerance`` in total, or ``max_iterations`` times. Duplicate edges
    count as often as they occur, and a node without edges passes its rank on to all nodes. O(N + E) for each iteration,
    all in one launch; the first call makes the transpose.

    >>> pagerank(Graph.from_edges([0, 1, 2], [2, 2, 0], num_nodes=3)).round(3)
    array([0.464, 0.05 , 0.486], dtype=float32)
    """
    graph = require_graph(g)
    for value, name, low, high in ((damping, "damping", 0.0, 1.0), (tolerance, "tolerance", 0.0, float("inf"))):
        if isinstance(value, bool) or not isinstance(value, Real) or not low <= value <= high:
            raise BadInputs(f"'{name}' is {value!r:.60}.", f"pass a number from {low:g} to {high:g}.")
    most = require_count(max_iterations, "max_iterations", least=1)
    if dtype not in (DType.F32, DType.F64):
        raise BadInputs(f"'dtype' is {dtype!r:.60}.", "pass vyre.f32 or vyre.f64.")
    nodes = graph.num_nodes
    if 2 * nodes > MAX_ELEMENTS:
        raise BadInputs(f"'g' has {nodes:,} nodes.", f"rank graphs of at most {MAX_ELEMENTS // 2:,} nodes.")
    workspace = Workspace(backend, out)
    rank = workspace.output(nodes, dtype, out, apart_from=graph.arrays)
    if nodes:
        chunks = -(-nodes // CHUNK)
        reverse = graph.transpose()
        pagerank_kernel(dtype).on(workspace.backend).grid(workspace.workgroups(chunks, 1))(
            graph.operand(workspace, "offsets"),
            reverse.operand(workspace, "offsets"),
            reverse.operand(workspace, "targets"),
            float(damping),
            float(tolerance),
            most,
            rank,
            workspace.empty(2 * nodes, dtype),
            workspace.empty(chunks, dtype),
            workspace.empty(chunks, dtype),
            workspace.zeros(2, dtype),
        )
    return workspace.deliver(rank)
