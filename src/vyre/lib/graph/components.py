"""Connected components: hooking and pointer jumping, with most edges of a large component left out.

Every node has a label, at first itself. For an edge between two labels, the larger one is hooked to the smaller; then
labels follow their hooks to the end. Labels only fall, so in the end they are the smallest node of each component.

Two edges of each node are enough to join most of a component. Where a graph is symmetric, nodes that have the most
common label by then need not look at the rest of their edges: an edge to another component is also one from it.
"""

from __future__ import annotations

from typing import Any, Final

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.lib.graph.csr import NO_NODE, Graph, require_graph
from vyre.lib.workspace import ArrayLike, Workspace, shows_program

LANES: Final = 32
# How far a label follows its hooks before all labels have moved on.
_STEPS: Final = 8
# Nodes of this degree and more have their edges shared between the lanes of a workgroup.
_LARGE: Final = 32


@vyre.function
def hook(hooks, changed, turn, one, other):
    """Hook the larger of two labels to the smaller, unless it is hooked to one that is smaller still."""
    larger, smaller = vyre.max(one, other), vyre.min(one, other)
    if one != other and vyre.atomic_load(hooks, larger) > smaller:
        vyre.atomic_min(hooks, larger, smaller)
        changed[turn % 3] = 1


@vyre.function
def hook_nodes(offsets, targets, labels, hooks):
    """Make every node its own label, hooked to the target of its first edge if that is smaller."""
    node = vyre.gid()
    while node < len(labels):
        edge = offsets[node]
        labels[node] = node
        hooks[node] = vyre.min(node, targets[edge]) if edge < offsets[node + 1] else node
        node += vyre.num_workgroups() * LANES


@vyre.function
def hook_second_edges(offsets, targets, labels, hooks, changed):
    """Hook by the second edge of every node."""
    node = vyre.gid()
    while node < len(labels):
        edge = offsets[node] + 1
        if edge < offsets[node + 1]:
            hook(hooks, changed, 0, labels[node], labels[targets[edge]])
        node += vyre.num_workgroups() * LANES


@vyre.function
def hook_edges(offsets, targets, labels, hooks, changed, turn, common):
    """Hook by all edges of the nodes that have not the most common label."""
    base = vyre.wg() * LANES
    while base < len(labels):
        node = base + vyre.lid()
        mine = labels[node] if node < len(labels) else u32(common)
        first, end = u32(0), u32(0)
        if node < len(labels) and mine != common:
            first, end = offsets[node], offsets[node + 1]
        large = vyre.subgroup_ballot(end - first >= _LARGE)
        while large != 0:
            shared = base + vyre.ctz(large)
            large = large & (large - 1)
            edge = offsets[shared] + vyre.lid()
            while edge < offsets[shared + 1]:
                hook(hooks, changed, turn, labels[shared], labels[targets[edge]])
                edge += LANES
        if end - first < _LARGE:
            while first < end:
                hook(hooks, changed, turn, mine, labels[targets[first]])
                first += 1
        base += vyre.num_workgroups() * LANES


@vyre.function
def follow_hooks(labels, hooks, unfinished, turn):
    """Let every label follow its hooks some steps."""
    node = vyre.gid()
    while node < len(labels):
        label = hooks[node]
        following = hooks[label]
        step = 0
        while following != label and step < _STEPS:
            label = following
            following = hooks[label]
            step += 1
        labels[node] = label
        if following != label:
            unfinished[turn % 3] = 1
        node += vyre.num_workgroups() * LANES


@vyre.function
def copy_labels(labels, hooks):
    """Make the hooks those of the labels."""
    node = vyre.gid()
    while node < len(labels):
        hooks[node] = labels[node]
        node += vyre.num_workgroups() * LANES


@vyre.function
def compress(labels, hooks, unfinished, turn):
    """Let every label follow its hooks to the end, and return the number of the next round."""
    go_on = True
    while go_on:
        vyre.grid_sync()
        if vyre.gid() == 0:
            unfinished[(turn + 1) % 3] = 0
        follow_hooks(labels, hooks, unfinished, turn)
        vyre.grid_sync()
        go_on = unfinished[turn % 3] != 0
        copy_labels(labels, hooks)
        turn += 1
    vyre.grid_sync()
    return turn


@vyre.function
def most_common(labels):
    """The most common label among one node for each lane of a workgroup."""
    mine = labels[vyre.lid() * (len(labels) // LANES)]
    count = u32(0)
    for lane in range(LANES):
        if vyre.subgroup_shuffle(mine, lane) == mine:
            count += 1
    best = vyre.subgroup_ballot(count == vyre.subgroup_reduce("max", count))
    return vyre.subgroup_shuffle(mine, vyre.ctz(best))


@vyre.kernel(workgroup=LANES, subgroup=LANES)
def join_components(
    offsets: vyre.In[u32],
    targets: vyre.In[u32],
    is_symmetric: vyre.bool_,
    labels: vyre.InOut[u32],
    hooks: vyre.InOut[u32],
    changed: vyre.InOut[u32],
    unfinished: vyre.InOut[u32],
    guess: vyre.InOut[u32],
) -> None:
    """Give every node the smallest node of its component; flags are zero at first."""
    hook_nodes(offsets, targets, labels, hooks)
    turn = compress(labels, hooks, unfinished, 0)
    hook_second_edges(offsets, targets, labels, hooks, changed)
    turn = compress(labels, hooks, unfinished, turn)
    if vyre.wg() == 0:
        common = most_common(labels)
        if vyre.lid() == 0:
            guess[0] = common
    vyre.grid_sync()
    common = guess[0] if is_symmetric else u32(NO_NODE)
    # The second edges have set the flag of pass 0, which the first of these passes clears for the one after the next.
    pass_number = 1
    go_on = True
    while go_on:
        vyre.grid_sync()
        if vyre.gid() == 0:
            changed[(pass_number + 1) % 3] = 0
        hook_edges(offsets, targets, labels, hooks, changed, pass_number, common)
        vyre.grid_sync()
        go_on = changed[pass_number % 3] != 0
        if go_on:
            turn = compress(labels, hooks, unfinished, turn)
        pass_number += 1


@shows_program(lambda: join_components)
def connected_components(g: Graph, *, backend: str | Backend | None = None, out: ArrayLike = None) -> Any:
    """The connected components, whatever the direction of edges: for each node, the smallest node of its component.

    O((N + E) log N) at most, and for most graphs a small multiple of N + E, in one launch. A graph that is symmetric is
    looked at only in part.

    >>> connected_components(Graph.from_edges([0, 3, 4], [2, 4, 3], num_nodes=5))
    array([0, 1, 0, 3, 3], dtype=uint32)
    """
    graph = require_graph(g)
    nodes = graph.num_nodes
    workspace = Workspace(backend, out)
    labels = workspace.output(nodes, u32, out, apart_from=graph.arrays)
    if nodes:
        join_components.on(workspace.backend).grid(workspace.workgroups(nodes, LANES))(
            graph.operand(workspace, "offsets"),
            graph.operand(workspace, "targets"),
            graph.is_symmetric,
            labels,
            workspace.empty(nodes, u32),
            workspace.zeros(3, u32),
            workspace.zeros(3, u32),
            workspace.zeros(1, u32),
        )
    return workspace.deliver(labels)
