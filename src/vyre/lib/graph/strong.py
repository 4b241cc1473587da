"""Strongly connected components: by searches from a pivot, trimming, and colouring.

The giant component that many graphs have is found first: it holds the nodes that both reach a pivot and are reached
from it, by two breadth-first searches. The nodes that are left are split into groups that no component crosses. Rounds
of three kernels follow until no node is left:

* ``trim``: a node without an edge from its group, or without one to it, is a component by itself. Its edges are
  removed, which may free others; a queue finds them, so a chain costs no more than its edges.
* ``spread``: every node has a priority, and its colour is the largest priority of the nodes that reach it within its
  group. The node of that priority is the root of the colour.
* ``collect``: the nodes of a colour that reach its root are the root's component. The other nodes of a colour are a
  group of the next round: all nodes of a component have the same colour.

Priorities are a fixed permutation of the node numbers without a pattern, as if they were random. A root is then a
random one of the nodes that reach a node, and at most half of those are expected to be reached from it too. The others
do not matter in the next round, so O(log N) rounds are expected.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.lang.kernel import Kernel, Launch
from vyre.lib.graph.csr import NO_NODE, Graph, require_graph
from vyre.lib.graph.ordering import (
    MAX_QUEUED,
    MINUS_ONE,
    STATE_SIZE,
    add_to,
    append,
    append_lanes,
    follow_queue,
    little_work,
    make_queue,
    require_few_nodes,
    take_places,
    walk_rows,
    work_of,
)
from vyre.lib.graph.search import LANES, NOT_REACHED, search_levels
from vyre.lib.workspace import ArrayLike, Operand, Workspace, shows_program

# The group of nodes whose component is known, and the colour of nodes that have none yet; no node has this priority.
DONE: Final = 0
NO_COLOUR: Final = 0
# Where the state of a queue has the length of the list that a kernel makes.
LISTED: Final = STATE_SIZE


@vyre.function
def priority(node):
    """A permutation of u32 without any pattern (Wellons' lowbias32); no node has priority 0."""
    x = ~node
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@vyre.function
def list_node(nodes, state, node, is_listed):
    """Append the nodes of the lanes that want it to a list."""
    place = take_places(state, LISTED, is_listed)
    if is_listed:
        nodes[place] = node


@vyre.function
def read(array, i, alone):
    """An element that other invocations change, unless this one is alone."""
    return array[i] if alone else vyre.atomic_load(array, i)


@vyre.function
def claim(label, node, component, alone):
    """Put a node into a component if it is in none; return whether that was done."""
    if alone:
        is_free = label[node] == NO_NODE
        if is_free:
            label[node] = component
        return is_free
    is_free = vyre.atomic_load(label, node) == NO_NODE
    return is_free and vyre.atomic_compare_exchange(label, node, NO_NODE, component) == NO_NODE


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def choose_pivot(out_offsets: vyre.In[u32], in_offsets: vyre.In[u32], chosen: vyre.InOut[u32]) -> None:
    """Find the largest product of in-degree and out-degree, and the smallest node that has it."""
    nodes = len(out_offsets) - 1
    best = u32(0)
    node = vyre.gid()
    while node < nodes:
        best = vyre.max(best, degree_product(out_offsets, in_offsets, node))
        node += vyre.num_workgroups() * LANES
    best = vyre.subgroup_reduce("max", best)
    if vyre.lid() == 0:
        vyre.atomic_max(chosen, 0, best)
    vyre.grid_sync()
    best = chosen[0]
    vyre.grid_sync()
    node = vyre.gid()
    while node < nodes:
        if degree_product(out_offsets, in_offsets, node) == best:
            vyre.atomic_min(chosen, 1, node)
            break
        node += vyre.num_workgroups() * LANES


@vyre.function
def degree_product(out_offsets, in_offsets, node):
    return vyre.sat_mul(out_offsets[node + 1] - out_offsets[node], in_offsets[node + 1] - in_offsets[node])


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def split_by_pivot(
    pivot: u32,
    forward: vyre.In[u32],
    backward: vyre.In[u32],
    label: vyre.InOut[u32],
    group: vyre.InOut[u32],
    rest: vyre.InOut[u32],
    state: vyre.InOut[u32],
) -> None:
    """Label the component of the pivot, and list and group the rest by whether they reach it or are reached by it."""
    start = vyre.wg() * LANES
    while start < len(label):
        node = start + vyre.lid()
        is_rest = False
        if node < len(label):
            is_reached, reaches = forward[node] != NOT_REACHED, backward[node] != NOT_REACHED
            is_rest = not (is_reached and reaches)
            label[node] = u32(NO_NODE) if is_rest else pivot
            group[node] = (1 if is_reached else 2 if reaches else 3) if is_rest else u32(DONE)
        list_node(rest, state, node, is_rest)
        start += vyre.num_workgroups() * LANES


@vyre.function
def count_edge(group, node, its_group, neighbour):
    """1 for an edge within a group that is no self loop."""
    return u32(1) if group[neighbour] == its_group and neighbour != node else u32(0)


@vyre.function
def start_trimming(
    out_offsets, out_targets, in_offsets, in_targets, count, rest, group, out_left, in_left, label, queue, state
):
    """Count the edges of each node within its group, and begin with the nodes that have none in one direction."""
    start = vyre.wg() * LANES
    while start < count:
        is_used = start + vyre.lid() < count
        node = rest[start + vyre.lid()] if is_used else u32(0)
        leaving = walk_rows(count_edge, group, out_offsets, out_targets, node, is_used, group[node])
        entering = walk_rows(count_edge, group, in_offsets, in_targets, node, is_used, group[node])
        work = u32(0)
        if is_used:
            out_left[node] = leaving
            in_left[node] = entering
            if leaving == 0 or entering == 0:
                label[node] = node
                work = 1 + leaving + entering
        append_lanes(queue, state, node, work)
        start += vyre.num_workgroups() * LANES


@vyre.function
def trim_edge(context, node, its_group, neighbour):
    """Remove an edge within a group. Trim the neighbour if that was its last of this direction, and append it.

    The work that is returned is itself and its edges of the other direction, which are left.
    """
    group, left, other_left, label, queue, state, alone = context
    is_last = False
    if group[neighbour] == its_group and neighbour != node:
        is_last = add_to(left, neighbour, MINUS_ONE, alone) == 1
    if is_last and claim(label, neighbour, neighbour, alone):
        append(queue, state, neighbour, alone)
        return 1 + read(other_left, neighbour, alone)
    return 0


@vyre.function
def trim_node(walk, context, node, is_used, _level, alone):
    """Remove the edges of a trimmed node; where none is left, all neighbours of that direction are trimmed too."""
    out_offsets, out_targets, in_offsets, in_targets, group, out_left, in_left, label, queue, state = context
    has_targets = is_used and read(out_left, node, alone) != 0
    has_sources = is_used and read(in_left, node, alone) != 0
    work = walk(
        trim_edge,
        (group, in_left, out_left, label, queue, state, alone),
        out_offsets,
        out_targets,
        node,
        has_targets,
        group[node],
    )
    return work + walk(
        trim_edge,
        (group, out_left, in_left, label, queue, state, alone),
        in_offsets,
        in_targets,
        node,
        has_sources,
        group[node],
    )


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def trim(
    out_offsets: vyre.In[u32],
    out_targets: vyre.In[u32],
    in_offsets: vyre.In[u32],
    in_targets: vyre.In[u32],
    few: u32,
    count: u32,
    rest: vyre.In[u32],
    group: vyre.InOut[u32],
    out_left: vyre.InOut[u32],
    in_left: vyre.InOut[u32],
    label: vyre.InOut[u32],
    queue: vyre.InOut[u32],
    state: vyre.InOut[u32],
    kept: vyre.InOut[u32],
) -> None:
    """Label nodes that lie on no cycle within their group, and list the others of ``rest``."""
    start_trimming(
        out_offsets, out_targets, in_offsets, in_targets, count, rest, group, out_left, in_left, label, queue, state
    )
    vyre.grid_sync()
    follow_queue(
        trim_node,
        (out_offsets, out_targets, in_offsets, in_targets, group, out_left, in_left, label, queue, state),
        queue,
        state,
        few,
    )
    start = vyre.wg() * LANES
    while start < count:
        is_used = start + vyre.lid() < count
        node = rest[start + vyre.lid()] if is_used else u32(0)
        is_kept = is_used and label[node] == NO_NODE
        list_node(kept, state, node, is_kept)
        if is_used and not is_kept:
            group[node] = DONE
        start += vyre.num_workgroups() * LANES


@vyre.function
def clear_colours(count, rest, colour, stamp):
    i = vyre.gid()
    while i < count:
        colour[rest[i]] = NO_COLOUR
        stamp[rest[i]] = NO_NODE
        i += vyre.num_workgroups() * LANES


@vyre.function
def start_spreading(offsets, count, rest, least, colour, queue, state):
    """Begin with the nodes without a colour whose priority is at least so high: it becomes their colour."""
    start = vyre.wg() * LANES
    while start < count:
        is_used = start + vyre.lid() < count
        node = rest[start + vyre.lid()] if is_used else u32(0)
        work = u32(0)
        if is_used and colour[node] == NO_COLOUR and priority(node) >= least:
            colour[node] = priority(node)
            work = work_of(offsets, node)
        append_lanes(queue, state, node, work)
        start += vyre.num_workgroups() * LANES


@vyre.function
def spread_edge(context, node, its_colour, target):
    """Give a larger colour to a node of the same group, and append that to the next level if it is not there yet."""
    offsets, group, colour, stamp, queue, state, level, alone = context
    if group[target] == group[node] and read(colour, target, alone) < its_colour:
        if alone:
            colour[target] = its_colour
            is_new = stamp[target] != level
            stamp[target] = level
        else:
            is_larger = vyre.atomic_max(colour, target, its_colour) < its_colour
            is_new = is_larger and vyre.atomic_exchange(stamp, target, level) != level
        if is_new:
            append(queue, state, target, alone)
            return work_of(offsets, target)
    return 0


@vyre.function
def spread_node(walk, context, node, is_used, level, alone):
    offsets, targets, group, colour, stamp, queue, state = context
    return walk(
        spread_edge,
        (offsets, group, colour, stamp, queue, state, level, alone),
        offsets,
        targets,
        node,
        is_used,
        read(colour, node, alone),
    )


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def spread(
    offsets: vyre.In[u32],
    targets: vyre.In[u32],
    few: u32,
    count: u32,
    rest: vyre.In[u32],
    group: vyre.In[u32],
    colour: vyre.InOut[u32],
    stamp: vyre.InOut[u32],
    queue: vyre.InOut[u32],
    state: vyre.InOut[u32],
) -> None:
    """Give each node of ``rest`` the largest priority of the nodes that reach it within its group.

    About one node of the highest priority begins, and 16 times as many follow each time. Those that have a colour by
    then keep it, so a colour is replaced a few times at most, and not O(log N) times.
    """
    clear_colours(count, rest, colour, stamp)
    vyre.grid_sync()
    shift = (32 - vyre.clz(count)) // 4 * 4
    while True:
        start_spreading(offsets, count, rest, 0xFFFFFFFF - (0xFFFFFFFF >> shift), colour, queue, state)
        vyre.grid_sync()
        follow_queue(spread_node, (offsets, targets, group, colour, stamp, queue, state), queue, state, few)
        if shift == 0:
            break
        shift -= 4


@vyre.function
def start_collecting(offsets, count, rest, colour, label, queue, state):
    """Label the roots, which have their own colour, and begin with them."""
    start = vyre.wg() * LANES
    while start < count:
        is_used = start + vyre.lid() < count
        node = rest[start + vyre.lid()] if is_used else u32(0)
        work = u32(0)
        if is_used and colour[node] == priority(node):
            label[node] = node
            work = work_of(offsets, node)
        append_lanes(queue, state, node, work)
        start += vyre.num_workgroups() * LANES


@vyre.function
def collect_edge(context, node, root, source):
    """Put a node into the component of a node of its colour that it has an edge to."""
    offsets, colour, label, queue, state, alone = context
    if colour[source] == colour[node] and claim(label, source, root, alone):
        append(queue, state, source, alone)
        return work_of(offsets, source)
    return 0


@vyre.function
def collect_node(walk, context, node, is_used, _level, alone):
    offsets, sources, colour, label, queue, state = context
    return walk(
        collect_edge,
        (offsets, colour, label, queue, state, alone),
        offsets,
        sources,
        node,
        is_used,
        read(label, node, alone),
    )


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def collect(
    in_offsets: vyre.In[u32],
    in_targets: vyre.In[u32],
    few: u32,
    count: u32,
    kept: vyre.In[u32],
    colour: vyre.In[u32],
    group: vyre.InOut[u32],
    label: vyre.InOut[u32],
    queue: vyre.InOut[u32],
    state: vyre.InOut[u32],
    rest: vyre.InOut[u32],
) -> None:
    """Label the component of each root, list the other nodes of ``kept``, and group them by their colours."""
    start_collecting(in_offsets, count, kept, colour, label, queue, state)
    vyre.grid_sync()
    follow_queue(collect_node, (in_offsets, in_targets, colour, label, queue, state), queue, state, few)
    start = vyre.wg() * LANES
    while start < count:
        is_used = start + vyre.lid() < count
        node = kept[start + vyre.lid()] if is_used else u32(0)
        is_rest = is_used and label[node] == NO_NODE
        list_node(rest, state, node, is_rest)
        if is_used:
            group[node] = colour[node] if is_rest else u32(DONE)
        start += vyre.num_workgroups() * LANES


@vyre.kernel(workgroup=LANES)
def name_by_smallest(label: vyre.InOut[u32], smallest: vyre.InOut[u32]) -> None:
    """Replace the label of each component, one of its nodes, by the smallest of its nodes."""
    node = vyre.gid()
    while node < len(label):
        smallest[node] = node
        node += vyre.num_workgroups() * LANES
    vyre.grid_sync()
    node = vyre.gid()
    while node < len(label):
        # Most nodes of a large component come after its smallest: they only look.
        if node < label[node] and node < vyre.atomic_load(smallest, label[node]):
            vyre.atomic_min(smallest, label[node], node)
        node += vyre.num_workgroups() * LANES
    vyre.grid_sync()
    node = vyre.gid()
    while node < len(label):
        label[node] = smallest[label[node]]
        node += vyre.num_workgroups() * LANES


def find_components(workspace: Workspace, graph: Graph, label: Operand, few: int | None = None) -> int:
    """Fill ``label`` with the smallest node of each node's component, and return the number of rounds.

    ``few`` is the work below which one invocation follows a level of a queue alone.
    """
    nodes, reverse = graph.num_nodes, graph.transpose()
    little = little_work(nodes) if few is None else few
    out_offsets, out_targets, in_offsets, in_targets = (
        one.operand(workspace, name) for one in (graph, reverse) for name in ("offsets", "targets")
    )
    # Arrays that are needed at different times share memory.
    first, second, group, rest, kept = (workspace.empty(nodes, u32) for _ in range(5))

    pivot = find_pivot(workspace, out_offsets, in_offsets)
    search_levels(workspace, graph, np.array([pivot], np.uint32), first)
    search_levels(workspace, reverse, np.array([pivot], np.uint32), second)
    state = workspace.zeros(STATE_SIZE + 1, u32)
    _persistent_launch(workspace, split_by_pivot, nodes)(pivot, first, second, label, group, rest, state)
    count, rounds = int(workspace.read(state)[LISTED]), 0
    queue = make_queue(workspace, 2 * nodes)
    while count:
        rounds += 1
        state = workspace.zeros(STATE_SIZE + 1, u32)
        _persistent_launch(workspace, trim, count)(
            out_offsets, out_targets, in_offsets, in_targets, little, count, rest, group, first, second, label, queue,
            state, kept,
        )  # fmt: skip
        count = int(workspace.read(state)[LISTED])
        if not count:
            break
        state = workspace.zeros(STATE_SIZE, u32)
        _persistent_launch(workspace, spread, count)(
            out_offsets, out_targets, little, count, kept, group, first, second, queue, state
        )
        state = workspace.zeros(STATE_SIZE + 1, u32)
        _persistent_launch(workspace, collect, count)(
            in_offsets, in_targets, little, count, kept, first, group, label, queue, state, rest
        )
        count = int(workspace.read(state)[LISTED])
    _persistent_launch(workspace, name_by_smallest, nodes)(label, kept)
    return rounds


def find_pivot(workspace: Workspace, out_offsets: Operand, in_offsets: Operand) -> int:
    """The node that most likely belongs to a giant component: its in-degree times its out-degree is the largest."""
    chosen = workspace.upload(np.array([0, NO_NODE], np.uint32))
    _persistent_launch(workspace, choose_pivot, len(out_offsets) - 1)(out_offsets, in_offsets, chosen)
    return int(workspace.read(chosen)[1])


def _persistent_launch(workspace: Workspace, kernel: Kernel, nodes: int) -> Launch:
    """The launch of a persistent kernel for so many nodes."""
    return kernel.on(workspace.backend).grid(workspace.workgroups(nodes, LANES))


@shows_program(lambda: spread)
def strongly_connected_components(g: Graph, *, backend: str | Backend | None = None, out: ArrayLike = None) -> Any:
    """The strongly connected component of every node, as u32: nodes that reach each other have the same label.

    The label is the smallest node of the component. All edges count, whatever their kinds. O(N + E) if there are no
    cycles, or one component has nearly all of them, and O((N + E) log N) expected for any other graph. Uses the edges
    into each node, ``g.transpose()``, which the graph keeps.

    >>> strongly_connected_components(Graph.from_edges([0, 1, 2, 3, 4], [1, 2, 1, 4, 3], num_nodes=6))
    array([0, 1, 1, 3, 3, 5], dtype=uint32)
    """
    graph = require_graph(g)
    # The queue of ``spread`` holds two levels.
    require_few_nodes(graph, MAX_QUEUED // 2)
    workspace = Workspace(backend, out)
    label = workspace.output(graph.num_nodes, u32, out, apart_from=graph.arrays)
    if graph.num_nodes:
        find_components(workspace, graph, label)
    return workspace.deliver(label)
