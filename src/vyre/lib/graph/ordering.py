"""Topological levels: the longest path to each node of a graph without cycles.

One persistent kernel takes the graph apart level after level (Kahn): a node whose last incoming edge has been removed
belongs to the next level. Nodes enter one queue as they get their level, so a level is a range of the queue, and every
node and edge is looked at once. As in a search, one invocation goes alone, without barriers, while a level has few
edges. The order of nodes within a level of the queue depends on the schedule, the levels do not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lib.graph.csr import NO_NODE, Graph, require_graph
from vyre.lib.graph.search import LANES, add_counts
from vyre.lib.workspace import ArrayLike, Operand, Workspace
from vyre.words import counted

# One invocation goes alone while a level has fewer edges than this, or than one for so many nodes.
FEW_EDGES: Final = 2048
NODES_FOR_EACH_EDGE_ALONE: Final = 128
# A node with so many edges is given to all lanes of a subgroup, and one with fewer to one lane.
MANY_EDGES: Final = 64


@vyre.function
def count_sources(targets, waiting):
    """Add the number of edges into each node."""
    edge = vyre.gid()
    while edge < len(targets):
        vyre.atomic_add(waiting, targets[edge], 1)
        edge += vyre.num_workgroups() * LANES


@vyre.function
def start_levels(offsets, waiting, level, queue, counts):
    """Give level 0 to the nodes that no edge leads to."""
    work = u32(0)
    word = vyre.wg()
    while word * LANES < len(level):
        node = word * LANES + vyre.lid()
        starts = node < len(level) and waiting[node] == 0
        found = vyre.subgroup_ballot(starts)
        if found != 0:
            place = u32(0)
            if vyre.lid() == 0:
                place = vyre.atomic_add(counts, 0, vyre.popcount(found))
            place = vyre.subgroup_reduce("add", place)
            if starts:
                level[node] = 0
                queue[place + vyre.popcount(found & ((1 << vyre.lid()) - 1))] = node
                work += offsets[node + 1] - offsets[node]
        word += vyre.num_workgroups()
    add_counts(counts, 0, 0, vyre.subgroup_reduce("add", work))


@vyre.function
def release(offsets, target, waiting, level, queue, counts, turn, end, depth):
    """Remove an edge to a node, append the node to the queue if it was the last, and return its number of edges then."""
    if vyre.atomic_sub(waiting, target, 1) == 1:
        level[target] = depth
        queue[end + vyre.atomic_add(counts, 2 * (turn % 3), 1)] = target
        return offsets[target + 1] - offsets[target]
    return 0


@vyre.function
def order_level(offsets, targets, waiting, level, queue, counts, turn, first, size, depth):
    """Remove the edges of a level's nodes: all lanes share the edges of large nodes, and each takes some small ones."""
    end = first + size
    work = u32(0)
    # Small levels are spread over the workgroups too.
    width = vyre.min((size - 1) // vyre.num_workgroups() + 1, LANES)
    start = first + vyre.wg() * width
    while start < end:
        is_used = vyre.lid() < width and start + vyre.lid() < end
        node = queue[start + vyre.lid()] if is_used else u32(0)
        row, stop = offsets[node] if is_used else u32(0), offsets[node + 1] if is_used else u32(0)
        many = vyre.subgroup_ballot(stop - row >= MANY_EDGES)
        if stop - row < MANY_EDGES:
            edge = row
            while edge < stop:
                work += release(offsets, targets[edge], waiting, level, queue, counts, turn + 1, end, depth + 1)
                edge += 1
        while many != 0:
            edge = vyre.subgroup_shuffle(row, vyre.ctz(many)) + vyre.lid()
            last = vyre.subgroup_shuffle(stop, vyre.ctz(many))
            many = many & (many - 1)
            while edge < last:
                work += release(offsets, targets[edge], waiting, level, queue, counts, turn + 1, end, depth + 1)
                edge += LANES
        start += vyre.num_workgroups() * width
    add_counts(counts, turn + 1, 0, vyre.subgroup_reduce("add", work))


@vyre.function
def order_alone(offsets, targets, waiting, level, queue, counts, state, turn, start, size, work, depth, few):
    """Go on until a level has many edges or is empty; leave where it begins, its depth, and what it has."""
    first, end, at, edges = start, start + size, depth, work
    while first != end and edges < few:
        last = end
        at += 1
        edges = 0
        while first < last:
            node = queue[first]
            edge, stop = offsets[node], offsets[node + 1]
            while edge < stop:
                target = targets[edge]
                left = waiting[target] - 1
                waiting[target] = left
                if left == 0:
                    level[target] = at
                    queue[end] = target
                    end += 1
                    edges += offsets[target + 1] - offsets[target]
                edge += 1
            first += 1
    state[0] = first
    state[1] = at
    counts[2 * ((turn + 1) % 3)] = end - first
    counts[2 * ((turn + 1) % 3) + 1] = edges
    counts[2 * ((turn + 2) % 3)] = 0
    counts[2 * ((turn + 2) % 3) + 1] = 0


@vyre.function
def find_first_waiting(waiting, state):
    """Find the smallest node that has no level."""
    node = vyre.gid()
    while node < len(waiting):
        if waiting[node] != 0:
            vyre.atomic_min(state, 2, node)
            break
        node += vyre.num_workgroups() * LANES


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def find_levels(
    offsets: vyre.In[u32],
    targets: vyre.In[u32],
    few: u32,
    waiting: vyre.InOut[u32],
    level: vyre.InOut[u32],
    queue: vyre.InOut[u32],
    counts: vyre.InOut[u32],
    state: vyre.InOut[u32],
) -> None:
    """Give each node the length of the longest path to it; ``state`` tells how many have one, and the first without."""
    count_sources(targets, waiting)
    vyre.grid_sync()
    start_levels(offsets, waiting, level, queue, counts)
    vyre.grid_sync()
    turn, first, depth = 0, 0, 0
    size, work = counts[0], counts[1]
    while size != 0:
        vyre.grid_sync()
        if work >= few:
            order_level(offsets, targets, waiting, level, queue, counts, turn, first, size, depth)
            if vyre.gid() == 0:
                state[0] = first + size
                state[1] = depth + 1
        elif vyre.gid() == 0:
            order_alone(
                offsets, targets, waiting, level, queue, counts, state, turn, first, size, work, depth, few
            )
        turn += 1
        vyre.grid_sync()
        first, depth = state[0], state[1]
        size, work = counts[2 * (turn % 3)], counts[2 * (turn % 3) + 1]
    vyre.grid_sync()
    if first != len(level):
        find_first_waiting(waiting, state)


def order_nodes(workspace: Workspace, graph: Graph, level: Operand, few: int | None = None) -> tuple[int, int]:
    """Fill ``level``; return how many nodes have one, and the smallest node without.

    ``few`` is the number of edges below which one invocation goes alone.
    """
    nodes = graph.num_nodes
    if not nodes:
        return 0, NO_NODE
    alone = max(FEW_EDGES, nodes // NODES_FOR_EACH_EDGE_ALONE) if few is None else few
    state = workspace.upload(np.array([0, 0, NO_NODE], np.uint32))
    find_levels.on(workspace.backend).grid(workspace.workgroups(nodes, LANES))(
        graph.operand(workspace, "offsets"),
        graph.operand(workspace, "targets"),
        alone,
        workspace.zeros(nodes, u32),
        level,
        workspace.empty(nodes, u32),
        workspace.zeros(6, u32),
        state,
    )
    ordered, _, first_without = workspace.read(state).tolist()
    return ordered, first_without


def topological_levels(g: Graph, *, backend: str | Backend | None = None, out: ArrayLike = None) -> Any:
    """The level of every node of a graph without cycles: the length of the longest path that ends there, as u32.

    Nodes that no edge leads to have level 0, and every edge leads to a higher level, so nodes sorted by level are in
    topological order. Raises BadInputs if there is a cycle (a self loop is one). O(N + E), in one launch.

    >>> topological_levels(Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], num_nodes=5))
    array([0, 1, 2, 3, 0], dtype=uint32)
    """
    graph = require_graph(g)
    workspace = Workspace(backend, out)
    level = workspace.output(graph.num_nodes, u32, out)
    ordered, first_without = order_nodes(workspace, graph, level)
    if ordered != graph.num_nodes:
        raise BadInputs(
            f"'g' has a cycle: {counted(graph.num_nodes - ordered, 'node')} on or behind one, the smallest is "
            f"node {first_without}.",
            "use strongly_connected_components to find the cycles.",
        )
    return workspace.deliver(level)
