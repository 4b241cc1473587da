"""Topological levels, and the queue of nodes by which a kernel takes a graph apart.

``follow_queue`` visits the edges of the nodes in a queue, level after level: what the visits append is the next level.
While a level is small, one invocation follows the queue alone, without barriers and atomics; otherwise the workgroups
share the level, the lanes of a subgroup share the edges of a large node, and a small node has a lane of its own. The
order of nodes within a level of the queue depends on the schedule, so no result may depend on it.

Topological levels are found by removing edges (Kahn): a node whose last incoming edge is removed belongs to the next
level. Every node enters the queue once, and every edge is visited once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.lib.graph.csr import NO_NODE, Graph, require_graph
from vyre.lib.graph.search import LANES
from vyre.lib.workspace import ArrayLike, Operand, Workspace, shows_program
from vyre.words import counted

# The length of a queue is a power of two that is a u32.
MAX_QUEUED: Final = 1 << 31
# One invocation follows the queue while a level has less work than this, or than one for so many nodes of the graph.
# A node is as much work as an edge.
_LITTLE_WORK: Final = 4096
_NODES_FOR_EACH_WORK: Final = 64
# A node with so many edges is given to all lanes of a subgroup.
_MANY_EDGES: Final = LANES

# The state of a queue: how many nodes have been appended, the work that they are, how much of both comes before the
# level that is next, and the number of levels. Counts wrap: only their differences are used.
TAIL, WORK, HEAD, WORK_BEFORE, LEVELS = range(5)
STATE_SIZE: Final = 5
MINUS_ONE: Final = 0xFFFFFFFF


@vyre.function
def walk_rows(visit, context, offsets, targets, node, is_used, value):
    """Visit the edges of one node for each lane that is used; return the sum of what the visits return to each lane."""
    edge, stop, total = u32(0), u32(0), u32(0)
    if is_used:
        edge, stop = offsets[node], offsets[node + 1]
    many = vyre.subgroup_ballot(stop - edge >= _MANY_EDGES)
    first, last = edge, stop
    if stop - edge < _MANY_EDGES:
        while edge < stop:
            total += visit(context, node, value, targets[edge])
            edge += 1
    while many != 0:
        owner = vyre.ctz(many)
        many = many & (many - 1)
        its_node, its_value = vyre.subgroup_shuffle(node, owner), vyre.subgroup_shuffle(value, owner)
        edge, stop = vyre.subgroup_shuffle(first, owner) + vyre.lid(), vyre.subgroup_shuffle(last, owner)
        part = u32(0)
        while edge < stop:
            part += visit(context, its_node, its_value, targets[edge])
            edge += LANES
        part = vyre.subgroup_reduce("add", part)
        if vyre.lid() == owner:
            total = part
    return total


@vyre.function
def walk_row(visit, context, offsets, targets, node, is_used, value):
    """Visit the edges of a node, if it is used, by one invocation; return the sum of what the visits return."""
    total = u32(0)
    if is_used:
        edge, stop = offsets[node], offsets[node + 1]
        while edge < stop:
            total += visit(context, node, value, targets[edge])
            edge += 1
    return total


@vyre.function
def add_to(array, i, amount, alone):
    """Add to an element and return what it was. An invocation that is alone needs no atomics."""
    if alone:
        before = array[i]
        array[i] = before + amount
        return before
    return vyre.atomic_add(array, i, amount)


@vyre.function
def append(queue, state, node, alone):
    """Append a node to the queue, a ring whose length is a power of two."""
    queue[add_to(state, TAIL, 1, alone) & (len(queue) - 1)] = node


@vyre.function
def take_places(state, count, is_wanted):
    """A place for each lane that wants one, in the order of lanes, from one of the counts in ``state``."""
    wanted = vyre.subgroup_ballot(is_wanted)
    place = u32(0)
    if vyre.lid() == 0 and wanted != 0:
        place = vyre.atomic_add(state, count, vyre.popcount(wanted))
    return vyre.subgroup_reduce("add", place) + vyre.popcount(wanted & ((1 << vyre.lid()) - 1))


@vyre.function
def add_work(state, work):
    """Add the work of the lanes."""
    total = vyre.subgroup_reduce("add", work)
    if vyre.lid() == 0 and total != 0:
        vyre.atomic_add(state, WORK, total)


@vyre.function
def append_lanes(queue, state, node, work):
    """Append the nodes of the lanes whose nodes are any work."""
    place = take_places(state, TAIL, work != 0)
    if work != 0:
        queue[place & (len(queue) - 1)] = node
    add_work(state, work)


@vyre.function
def work_of(offsets, node):
    """The work of a node: itself and its edges."""
    return 1 + offsets[node + 1] - offsets[node]


@vyre.function
def follow_together(expand, context, queue, state, first, end, level):
    """Expand the nodes of a level. Few nodes are spread over all workgroups, and many are taken 32 at a time."""
    size, work = end - first, u32(0)
    width = vyre.min((size - 1) // vyre.num_workgroups() + 1, LANES)
    start = vyre.wg() * width
    while start < size:
        is_used = vyre.lid() < width and start + vyre.lid() < size
        node = queue[(first + start + vyre.lid()) & (len(queue) - 1)] if is_used else u32(0)
        work += expand(walk_rows, context, node, is_used, level, False)
        start += vyre.num_workgroups() * width
    add_work(state, work)


@vyre.function
def follow_alone(expand, context, queue, state, first, end, level, work, before, few):
    """Expand level after level by one invocation, until one is much work or empty."""
    at, stop, total, start, number = first, end, work, before, level
    while at != stop and total - start < few:
        start = total
        while at != stop:
            total += expand(walk_row, context, queue[at & (len(queue) - 1)], True, number, True)
            at += 1
        stop = state[TAIL]
        number += 1
    state[WORK] = total
    state[HEAD] = at
    state[WORK_BEFORE] = start
    state[LEVELS] = number


@vyre.function
def follow_queue(expand, context, queue, state, few):
    """Expand the nodes of a queue level after level until it is empty.

    ``expand(walk, context, node, is_used, level, alone)`` walks the edges of a node by ``walk``, may append nodes, and
    returns the work that these are; it needs no atomics where it is ``alone``. A level of less work than ``few`` is
    followed by one invocation.
    """
    first, end, level = state[HEAD], state[TAIL], state[LEVELS]
    work, before = state[WORK], state[WORK_BEFORE]
    while first != end:
        vyre.grid_sync()
        if work - before >= few:
            follow_together(expand, context, queue, state, first, end, level)
            if vyre.gid() == 0:
                state[HEAD] = end
                state[WORK_BEFORE] = work
                state[LEVELS] = level + 1
        elif vyre.gid() == 0:
            follow_alone(expand, context, queue, state, first, end, level, work, before, few)
        vyre.grid_sync()
        first, end, level = state[HEAD], state[TAIL], state[LEVELS]
        work, before = state[WORK], state[WORK_BEFORE]
    vyre.grid_sync()


def make_queue(workspace: Workspace, count: int) -> Operand:
    """A queue that holds at least so many nodes at a time."""
    return workspace.empty(1 << (count - 1).bit_length(), u32)


def little_work(nodes: int) -> int:
    """The work below which one invocation follows a level of a graph of so many nodes."""
    return max(_LITTLE_WORK, nodes // _NODES_FOR_EACH_WORK)


def require_few_nodes(graph: Graph, most: int) -> None:
    """Raise BadInputs if the graph has more nodes than a queue holds."""
    if graph.num_nodes > most:
        raise BadInputs(f"'g' has {graph.num_nodes:,} nodes.", f"pass a graph of at most {most:,} nodes.")


@vyre.function
def count_sources(targets, waiting):
    """Add the number of edges into each node."""
    edge = vyre.gid()
    while edge < len(targets):
        vyre.atomic_add(waiting, targets[edge], 1)
        edge += vyre.num_workgroups() * LANES


@vyre.function
def start_levels(offsets, waiting, level, queue, state):
    """Give level 0 to the nodes that no edge leads to."""
    start = vyre.wg() * LANES
    while start < len(level):
        node = start + vyre.lid()
        work = u32(0)
        if node < len(level) and waiting[node] == 0:
            level[node] = 0
            work = work_of(offsets, node)
        append_lanes(queue, state, node, work)
        start += vyre.num_workgroups() * LANES


@vyre.function
def remove_edge(context, _node, depth, target):
    """Remove an edge; if no other leads to its target, give that a level, append it and return its work."""
    offsets, waiting, level, queue, state, alone = context
    if add_to(waiting, target, MINUS_ONE, alone) == 1:
        level[target] = depth
        append(queue, state, target, alone)
        return work_of(offsets, target)
    return 0


@vyre.function
def remove_node(walk, context, node, is_used, depth, alone):
    offsets, targets, waiting, level, queue, state = context
    return walk(remove_edge, (offsets, waiting, level, queue, state, alone), offsets, targets, node, is_used, depth + 1)


@vyre.function
def find_first_waiting(waiting, first_waiting):
    """Find the smallest node that has no level."""
    node = vyre.gid()
    while node < len(waiting):
        if waiting[node] != 0:
            vyre.atomic_min(first_waiting, 0, node)
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
    state: vyre.InOut[u32],
    first_waiting: vyre.InOut[u32],
) -> None:
    """Give each node the length of the longest path to it, and find the first node for which there is no longest."""
    count_sources(targets, waiting)
    vyre.grid_sync()
    start_levels(offsets, waiting, level, queue, state)
    vyre.grid_sync()
    follow_queue(remove_node, (offsets, targets, waiting, level, queue, state), queue, state, few)
    if state[TAIL] != len(level):
        find_first_waiting(waiting, first_waiting)


def order_nodes(workspace: Workspace, graph: Graph, level: Operand, few: int | None = None) -> tuple[int, int]:
    """Fill ``level``; return how many nodes have one, and the smallest node without.

    ``few`` is the work below which one invocation follows a level alone.
    """
    nodes = graph.num_nodes
    if not nodes:
        return 0, NO_NODE
    state = workspace.zeros(STATE_SIZE, u32)
    first_waiting = workspace.upload(np.array([NO_NODE], np.uint32))
    find_levels.on(workspace.backend).grid(workspace.workgroups(nodes, LANES))(
        graph.operand(workspace, "offsets"),
        graph.operand(workspace, "targets"),
        little_work(nodes) if few is None else few,
        workspace.zeros(nodes, u32),
        level,
        make_queue(workspace, nodes),
        state,
        first_waiting,
    )
    return int(workspace.read(state)[TAIL]), int(workspace.read(first_waiting)[0])


@shows_program(lambda: find_levels)
def topological_levels(g: Graph, *, backend: str | Backend | None = None, out: ArrayLike = None) -> Any:
    """The level of every node of a graph without cycles: the length of the longest path that ends there, as u32.

    Nodes that no edge leads to have level 0, and every edge leads to a higher level, so nodes sorted by level are in
    topological order. Raises BadInputs if there is a cycle (a self loop is one). O(N + E), in one launch.

    >>> topological_levels(Graph.from_edges([0, 0, 1, 2], [1, 2, 2, 3], num_nodes=5))
    array([0, 1, 2, 3, 0], dtype=uint32)
    """
    graph = require_graph(g)
    require_few_nodes(graph, MAX_QUEUED)
    workspace = Workspace(backend, out)
    level = workspace.output(graph.num_nodes, u32, out, apart_from=graph.arrays)
    ordered, first_without = order_nodes(workspace, graph, level)
    if ordered != graph.num_nodes:
        without = counted(graph.num_nodes - ordered, "node is", "nodes are")
        raise BadInputs(
            f"'g' has a cycle: {without} on or behind one, and the smallest is {first_without}.",
            "use strongly_connected_components to find the cycles.",
        )
    return workspace.deliver(level)
