"""Breadth-first search: levels, parents, reachability and one-hop traversal.

One persistent kernel runs the whole search and chooses how to make each level from the size of the frontier:

* alone: while the frontier has few edges, one invocation follows a queue, level after level, without a barrier;
* push: every edge out of the frontier is looked at, and adds its target if that has not been reached. Where the
  frontier is a few nodes with many edges, all invocations share the edges of each;
* pull: every node that has not been reached looks for a neighbour in the frontier, and stops at the first; chosen when
  the frontier has a good part of the remaining edges, if the edges into each node are at hand.

The frontier, the nodes reached and those found by pushes are bitsets, which stay in the first-level cache for graphs of
up to some 100,000 nodes. Each invocation owns a part of their words. Between two barriers an array is read, or written
by the owners of its parts, or changed by atomics.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.kernel import Kernel
from vyre.lib.graph.csr import ALL_KINDS, NO_NODE, Graph, require_graph, require_nodes
from vyre.lib.workspace import ArrayLike, Operand, Workspace, require_count, shows_program
from vyre.semantics.types import DType

NOT_REACHED: Final = 0xFFFFFFFF
LANES: Final = 32
WORKGROUP: Final = 16
# A search goes alone while the frontier has fewer edges than this, or than one for so many nodes.
_FEW_EDGES: Final = 2048
_NODES_FOR_EACH_EDGE_ALONE: Final = 128
# Invocations share the edges of each node of a frontier that has at most so many nodes.
_FEW_NODES: Final = 32
# Pull when the frontier has more than this part of the edges that are left, push again when it has fewer nodes than
# that part of all.
_PULL: Final = 14
_PUSH: Final = 24


@vyre.function
def part_of(first, end):
    """The part of a range that belongs to an invocation; the parts of all invocations are the range."""
    parts = vyre.num_workgroups() * WORKGROUP
    each = (end - first + parts - 1) // parts
    start = first + vyre.min(vyre.gid() * each, end - first)
    return start, start + vyre.min(each, end - start)


@vyre.function
def find_targets(targets, kinds, allow, reached, found, first, end, masked):
    """Add the targets of some edges to ``found``, except for nodes that have been reached."""
    for edge in range(first, end):
        target = targets[edge]
        bit = u32(1) << (target & 31)
        is_new = reached[target >> 5] & bit == 0 and (not masked or kinds[edge] & allow != 0)
        if is_new and vyre.atomic_load(found, target >> 5) & bit == 0:
            vyre.atomic_or(found, target >> 5, bit)


@vyre.function
def push_level(offsets, targets, kinds, allow, frontier, reached, found, turn, masked):
    """Add the targets of the nodes in an invocation's part of the frontier."""
    first, end = part_of(u32(0), len(reached))
    for word in range(first, end):
        bits = frontier[turn % 2 * len(reached) + word]
        while bits != 0:
            node = word * 32 + vyre.ctz(bits)
            bits = bits & (bits - 1)
            find_targets(targets, kinds, allow, reached, found, offsets[node], offsets[node + 1], masked)


@vyre.function
def push_few(offsets, targets, kinds, allow, queue, size, reached, found, masked):
    """Add the targets of an invocation's part of the edges of each node in the queue."""
    for i in range(size):
        first, end = part_of(offsets[queue[i]], offsets[queue[i] + 1])
        find_targets(targets, kinds, allow, reached, found, first, end, masked)


@vyre.function
def pull_level(offsets, sources, kinds, allow, level, frontier, reached, turn, depth, masked):
    """Reach the nodes of an invocation's part that have an edge from the frontier.

    ``offsets`` and ``sources`` are the edges into each node. Returns how many nodes and edges the part adds to the next
    frontier.
    """
    size, work = u32(0), u32(0)
    words = len(reached)
    first, end = part_of(u32(0), words)
    for word in range(first, end):
        left = ~reached[word]
        hits = u32(0)
        # What a node needs first is loaded while the one before it is looked at: memory is what a pull waits for.
        node = word * 32 + vyre.ctz(left)
        edge, stop = offsets[node], offsets[node + 1]
        source = sources[edge]
        while left != 0:
            bit = left & (0 - left)
            left = left & (left - 1)
            following = word * 32 + vyre.ctz(left)
            following_edge, following_stop = offsets[following], offsets[following + 1]
            following_source = sources[following_edge]
            degree = stop - edge
            while edge < stop:
                in_frontier = frontier[turn % 2 * words + (source >> 5)] >> (source & 31) & 1 != 0
                if in_frontier and (not masked or kinds[edge] & allow != 0):
                    level[node] = depth + 1
                    hits = hits | bit
                    size += 1
                    work += degree
                    break
                edge += 1
                source = sources[edge]
            node, edge, stop, source = following, following_edge, following_stop, following_source
        reached[word] = reached[word] | hits
        frontier[(turn + 1) % 2 * words + word] = hits
    return size, work


@vyre.function
def take_found(offsets, level, frontier, reached, found, turn, depth):
    """Make the nodes that were found the frontier, and give them their level.

    Returns how many nodes and edges an invocation's part adds to the frontier.
    """
    size, work = u32(0), u32(0)
    first, end = part_of(u32(0), len(reached))
    for word in range(first, end):
        bits = found[word]
        frontier[turn % 2 * len(reached) + word] = bits
        if bits != 0:
            found[word] = 0
            reached[word] = reached[word] | bits
            size += vyre.popcount(bits)
            while bits != 0:
                node = word * 32 + vyre.ctz(bits)
                bits = bits & (bits - 1)
                level[node] = depth
                work += offsets[node + 1] - offsets[node]
    return size, work


@vyre.function
def list_frontier(frontier, words, queue, state, turn):
    """Write the nodes of the frontier into the queue, in any order."""
    first, end = part_of(u32(0), words)
    for word in range(first, end):
        bits = frontier[turn % 2 * words + word]
        if bits != 0:
            place = vyre.atomic_add(state, 1, vyre.popcount(bits))
            while bits != 0:
                queue[place] = word * 32 + vyre.ctz(bits)
                bits = bits & (bits - 1)
                place += 1


@vyre.function
def search_alone(
    offsets, targets, kinds, allow, level, reached, found, queue, state, depth, size, work, few, most, masked
):
    """Follow the queue until the frontier has many edges or is empty; leave it in ``found``, its depth in ``state``."""
    first, end, at, edges = u32(0), size, depth, work
    while first != end and edges < few and at < most:
        last = end
        at += 1
        edges = 0
        while first < last:
            node = queue[first]
            edge, stop = offsets[node], offsets[node + 1]
            while edge < stop:
                target = targets[edge]
                if level[target] == NOT_REACHED and (not masked or kinds[edge] & allow != 0):
                    level[target] = at
                    queue[end] = target
                    end += 1
                    edges += offsets[target + 1] - offsets[target]
                edge += 1
            first += 1
    if first != end:
        for i in range(size, end):
            reached[queue[i] >> 5] = reached[queue[i] >> 5] | u32(1) << (queue[i] & 31)
    while first < end:
        found[queue[first] >> 5] = found[queue[first] >> 5] | u32(1) << (queue[first] & 31)
        first += 1
    state[0] = at


@vyre.function
def start_search(seeds, has_sources, can_pull, reached, found):
    """Clear the bitsets, and add the seeds to ``found``.

    Where nodes pull, those that no edge leads to count as reached, so that they are never looked at.
    """
    first, end = part_of(u32(0), len(reached))
    for word in range(first, end):
        reached[word] = ~has_sources[word] if can_pull else u32(0)
        found[word] = 0
    vyre.grid_sync()
    first, end = part_of(u32(0), len(seeds))
    for i in range(first, end):
        vyre.atomic_or(found, seeds[i] >> 5, u32(1) << (seeds[i] & 31))
    vyre.grid_sync()


@cache
def search_kernel(masked: bool) -> Kernel:
    """The kernel of searches over all edges, or, ``masked``, over those that share a kind with a mask."""

    @vyre.kernel(workgroup=WORKGROUP)
    def search(
        seeds: vyre.In[u32],
        offsets: vyre.In[u32],
        targets: vyre.In[u32],
        kinds: vyre.In[u32],
        in_offsets: vyre.In[u32],
        in_sources: vyre.In[u32],
        in_kinds: vyre.In[u32],
        has_sources: vyre.In[u32],
        allow: u32,
        few: u32,
        most: u32,
        can_pull: vyre.bool_,
        level: vyre.InOut[u32],
        frontier: vyre.InOut[u32],
        reached: vyre.InOut[u32],
        found: vyre.InOut[u32],
        queue: vyre.InOut[u32],
        state: vyre.InOut[u32],
        counts: vyre.InOut[u32],
    ) -> None:
        """Give each node the length of the shortest path from a seed, up to ``most``; the others keep their level.

        ``frontier`` has two halves, for this level and the next, ``counts`` a pair of totals for each of three turns.
        """
        start_search(seeds, has_sources, can_pull, reached, found)
        turn, depth = 0, 0
        left = len(targets)
        size, work = take_found(offsets, level, frontier, reached, found, turn, depth)
        pulls = False
        goes_on = True
        while goes_on:
            if size != 0:
                vyre.atomic_add(counts, 2 * (turn % 3), size)
                vyre.atomic_add(counts, 2 * (turn % 3) + 1, work)
            if vyre.gid() == 0:
                vyre.atomic_store(counts, 2 * ((turn + 1) % 3), 0)
                vyre.atomic_store(counts, 2 * ((turn + 1) % 3) + 1, 0)
                state[1] = 0
            vyre.grid_sync()
            nodes, edges = counts[2 * (turn % 3)], counts[2 * (turn % 3) + 1]
            left -= vyre.min(edges, left)
            goes_on = nodes != 0 and depth < most
            pulls = can_pull and (nodes > len(level) // _PUSH if pulls else edges > left // _PULL)
            if goes_on and pulls:
                size, work = pull_level(
                    in_offsets, in_sources, in_kinds, allow, level, frontier, reached, turn, depth, masked
                )
                depth += 1
                turn += 1
            elif goes_on:
                if edges < few or nodes <= _FEW_NODES:
                    list_frontier(frontier, len(reached), queue, state, turn)
                    vyre.grid_sync()
                if edges < few:
                    if vyre.gid() == 0:
                        search_alone(
                            offsets, targets, kinds, allow, level, reached, found, queue, state, depth, nodes, edges,
                            few, most, masked,
                        )  # fmt: skip
                    vyre.grid_sync()
                    depth = state[0]
                else:
                    if nodes <= _FEW_NODES:
                        push_few(offsets, targets, kinds, allow, queue, nodes, reached, found, masked)
                    else:
                        push_level(offsets, targets, kinds, allow, frontier, reached, found, turn, masked)
                    vyre.grid_sync()
                    depth += 1
                turn += 1
                size, work = take_found(offsets, level, frontier, reached, found, turn, depth)
            vyre.grid_sync()

    made: Kernel = search
    return made


@vyre.kernel
def fill(array: vyre.Out[u32], value: u32) -> None:
    i = vyre.gid()
    if i < len(array):
        array[i] = value


@vyre.kernel
def find_reached(level: vyre.In[u32], reached: vyre.Out[vyre.bool_]) -> None:
    i = vyre.gid()
    if i < len(reached):
        reached[i] = level[i] != NOT_REACHED


def search_levels(
    workspace: Workspace,
    graph: Graph,
    seeds: Array,
    level: Operand,
    allow_mask: int | None = None,
    hops: int = NO_NODE,
) -> None:
    """Fill ``level`` with the distance of every node from the nearest seed, in at most so many hops.

    All edges count, or, with ``allow_mask``, those whose kind shares a bit with it.
    """
    nodes = graph.num_nodes
    # The seeds may lie in the memory that the levels go to.
    starts = workspace.upload(seeds)
    fill.on(workspace.backend)[nodes](level, NOT_REACHED)
    if not nodes or not seeds.size:
        return
    masked = graph.kinds is not None and allow_mask is not None
    can_pull = graph.has_transpose or graph.is_symmetric
    backward = graph.transpose() if can_pull else graph
    words = -(-nodes // LANES)
    none = workspace.zeros(1, u32)
    launch = search_kernel(masked).on(workspace.backend).grid(workspace.workgroups(words, WORKGROUP))
    launch(
        starts,
        graph.operand(workspace, "offsets"),
        graph.operand(workspace, "targets"),
        graph.operand(workspace, "kinds") if masked else none,
        backward.operand(workspace, "offsets"),
        backward.operand(workspace, "targets"),
        backward.operand(workspace, "kinds") if masked else none,
        backward.operand(workspace, "nonempty") if can_pull else none,
        allow_mask or 0,
        max(_FEW_EDGES, nodes // _NODES_FOR_EACH_EDGE_ALONE),
        hops if graph.num_edges and allow_mask != 0 else 0,
        can_pull,
        level,
        workspace.empty(2 * words, u32),
        workspace.empty(words, u32),
        workspace.empty(words, u32),
        workspace.empty(nodes, u32),
        workspace.zeros(2, u32),
        workspace.zeros(6, u32),
    )


@shows_program(lambda: search_kernel(masked=False))
def bfs(
    g: Graph,
    source: ArrayLike,
    *,
    parents: bool = False,
    backend: str | Backend | None = None,
    out: ArrayLike = None,
) -> Any:
    """The level of every node: the number of edges on a shortest path from ``source``, a node or several.

    Levels are u32, and 0xFFFFFFFF for nodes that are not reached. With ``parents`` it returns (levels, parents): the
    smallest node before each on a shortest path, the node itself for sources, 0xFFFFFFFF for nodes not reached.
    O(N + E), in one launch. Pulls, which make it faster on graphs of low diameter, need the edges into each node: they
    are used if the graph is symmetric, or ``g.transpose()`` has been called.

    >>> g = Graph.from_edges([0, 1, 0], [1, 2, 3], num_nodes=5)
    >>> bfs(g, 0)
    array([         0,          1,          2,          1, 4294967295], dtype=uint32)
    """
    graph = require_graph(g)
    seeds = require_nodes(source, graph.num_nodes, "source")
    workspace = Workspace(backend, out)
    level = workspace.output(graph.num_nodes, u32, out, apart_from=graph.arrays)
    search_levels(workspace, graph, seeds, level)
    if not parents:
        return workspace.deliver(level)
    parent = workspace.output(graph.num_nodes, u32)
    find_parents(workspace, graph, level, parent)
    return workspace.deliver(level), workspace.deliver(parent)


@shows_program(lambda: search_kernel(masked=True))
def reach(
    g: Graph,
    seeds: ArrayLike,
    *,
    allow_mask: int = ALL_KINDS,
    max_hops: int | None = None,
    backend: str | Backend | None = None,
    out: ArrayLike = None,
) -> Any:
    """Whether each node can be reached from the seeds (one node, or several; they reach themselves), as bools.

    An edge counts if its kind and ``allow_mask`` share a bit; edges of a graph without kinds have all of them.
    ``max_hops`` limits the length of paths. O(N + E), in one launch.

    >>> reach(Graph.from_edges([0, 1, 3], [1, 2, 0], num_nodes=4), [1])
    array([False,  True,  True, False])
    """
    graph = require_graph(g)
    sources = require_nodes(seeds, graph.num_nodes, "seeds")
    allow = require_count(allow_mask, "allow_mask")
    hops = NO_NODE if max_hops is None else require_count(max_hops, "max_hops")
    workspace = Workspace(backend, out)
    reached = workspace.output(graph.num_nodes, DType.BOOL, out, apart_from=graph.arrays)
    level = workspace.empty(graph.num_nodes, u32)
    search_levels(workspace, graph, sources, level, allow, hops)
    find_reached.on(workspace.backend)[graph.num_nodes](level, reached)
    return workspace.deliver(reached)


@shows_program(lambda: mark_targets)
def traverse(
    g: Graph,
    nodes: ArrayLike,
    *,
    direction: str = "forward",
    allow_mask: int = ALL_KINDS,
    backend: str | Backend | None = None,
    out: ArrayLike = None,
) -> Any:
    """Which nodes one edge leads to from any of ``nodes``, as bools; one of ``nodes`` itself only if an edge does.

    ``direction`` is "forward", "backward" (to the nodes that have an edge to one of ``nodes``) or "both". Edges are
    chosen by ``allow_mask`` as in ``reach``. O(N + edges of the nodes), and the transpose for "backward" and "both".

    >>> traverse(Graph.from_edges([0, 1, 3], [1, 2, 0], num_nodes=4), [0, 1])
    array([False,  True,  True, False])
    """
    graph = require_graph(g)
    if not isinstance(direction, str) or direction not in ("forward", "backward", "both"):
        raise BadInputs(f"'direction' is {direction!r:.60}.", "pass 'forward', 'backward' or 'both'.")
    sources = require_nodes(nodes, graph.num_nodes, "nodes")
    allow = require_count(allow_mask, "allow_mask")
    workspace = Workspace(backend, out)
    found = workspace.output(graph.num_nodes, DType.BOOL, out, apart_from=graph.arrays)
    clear_marks.on(workspace.backend)[graph.num_nodes](found)
    if sources.size and graph.num_edges and allow:
        listed = workspace.upload(sources)
        for used, wanted in ((graph, "forward"), (None, "backward")):
            if direction in (wanted, "both"):
                _mark_targets(workspace, used or graph.transpose(), listed, allow, found)
    return workspace.deliver(found)


@vyre.kernel
def clear_marks(found: vyre.Out[vyre.bool_]) -> None:
    i = vyre.gid()
    if i < len(found):
        found[i] = False


@vyre.kernel(workgroup=LANES)
def mark_targets(
    nodes: vyre.In[u32],
    offsets: vyre.In[u32],
    targets: vyre.In[u32],
    kinds: vyre.In[u32],
    masked: bool,
    allow: u32,
    found: vyre.InOut[vyre.bool_],
) -> None:
    """Mark the targets of the allowed edges of some nodes, a workgroup for each node."""
    i = vyre.wg()
    while i < len(nodes):
        edge, stop = offsets[nodes[i]] + vyre.lid(), offsets[nodes[i] + 1]
        while edge < stop:
            if not masked or kinds[edge] & allow != 0:
                found[targets[edge]] = True
            edge += LANES
        i += vyre.num_workgroups()


def _mark_targets(workspace: Workspace, graph: Graph, nodes: Operand, allow: int, found: Operand) -> None:
    masked = graph.kinds is not None
    mark_targets.on(workspace.backend).grid(workspace.workgroups(len(nodes), 1))(
        nodes,
        graph.operand(workspace, "offsets"),
        graph.operand(workspace, "targets"),
        graph.operand(workspace, "kinds") if masked else workspace.zeros(1, u32),
        masked,
        allow,
        found,
    )


@vyre.kernel(workgroup=LANES)
def keep_smallest(offsets: vyre.In[u32], targets: vyre.In[u32], level: vyre.In[u32], parent: vyre.InOut[u32]) -> None:
    """Give each node the smallest node of the level before that has an edge to it, a workgroup for each source."""
    node = vyre.wg()
    while node < len(level):
        depth = level[node]
        if depth != NOT_REACHED:
            edge, stop = offsets[node] + vyre.lid(), offsets[node + 1]
            while edge < stop:
                if level[targets[edge]] == depth + 1:
                    vyre.atomic_min(parent, targets[edge], node)
                edge += LANES
        node += vyre.num_workgroups()


@vyre.kernel
def start_parents(level: vyre.In[u32], parent: vyre.Out[u32]) -> None:
    """Make the nodes of level 0 their own parents."""
    i = vyre.gid()
    if i < len(parent):
        parent[i] = i if level[i] == 0 else u32(NO_NODE)


def find_parents(workspace: Workspace, graph: Graph, level: Operand, parent: Operand) -> None:
    """Fill ``parent`` for levels that a search over all edges has found."""
    nodes = graph.num_nodes
    if not nodes:
        return
    start_parents.on(workspace.backend)[nodes](level, parent)
    keep_smallest.on(workspace.backend).grid(workspace.workgroups(nodes, 1))(
        graph.operand(workspace, "offsets"), graph.operand(workspace, "targets"), level, parent
    )
