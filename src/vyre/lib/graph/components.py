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
from vyre.lib.graph.search import WORKGROUP, part_of
from vyre.lib.workspace import ArrayLike, Workspace, shows_program

# How far a label follows its hooks before all labels have moved on.
_STEPS: Final = 8
# How many nodes are asked for their label to guess the most common one.
_SAMPLES: Final = 32


@vyre.function
def hook(hooks, changed, turn, one, other):
    """Hook the larger of two labels to the smaller, unless it is hooked to one that is smaller still."""
    larger, smaller = vyre.max(one, other), vyre.min(one, other)
    if one != other and vyre.atomic_load(hooks, larger) > smaller:
        vyre.atomic_min(hooks, larger, smaller)
        changed[turn % 3] = 1


@vyre.function
def hook_nodes(offsets, targets, labels, hooks, first, end):
    """Make every node its own label, hooked to the target of its first edge if that is smaller."""
    for node in range(first, end):
        edge = offsets[node]
        labels[node] = node
        hooks[node] = vyre.min(node, targets[edge]) if edge < offsets[node + 1] else node


@vyre.function
def hook_second_edges(offsets, targets, labels, hooks, changed, first, end):
    """Hook by the second edge of every node."""
    for node in range(first, end):
        edge = offsets[node] + 1
        if edge < offsets[node + 1]:
            hook(hooks, changed, 0, labels[node], labels[targets[edge]])


@vyre.function
def hook_edges(offsets, targets, labels, hooks, changed, turn, common, first, end):
    """Hook by all edges of the nodes that have not the most common label."""
    for node in range(first, end):
        label = labels[node]
        if label != common:
            for edge in range(offsets[node], offsets[node + 1]):
                hook(hooks, changed, turn, label, labels[targets[edge]])


@vyre.function
def follow_hooks(labels, hooks, unfinished, turn, first, end):
    """Let every label follow its hooks some steps."""
    for node in range(first, end):
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


@vyre.function
def compress(labels, hooks, unfinished, turn, first, end):
    """Let every label follow its hooks to the end, and return the number of the next round."""
    go_on = True
    while go_on:
        vyre.grid_sync()
        if vyre.gid() == 0:
            unfinished[(turn + 1) % 3] = 0
        follow_hooks(labels, hooks, unfinished, turn, first, end)
        vyre.grid_sync()
        go_on = unfinished[turn % 3] != 0
        for node in range(first, end):
            hooks[node] = labels[node]
        turn += 1
    vyre.grid_sync()
    return turn


@vyre.function
def most_common(labels):
    """The most common label among some nodes."""
    best, most = u32(0), u32(0)
    for i in range(_SAMPLES):
        label = labels[i * (len(labels) // _SAMPLES)]
        count = u32(0)
        for k in range(_SAMPLES):
            if labels[k * (len(labels) // _SAMPLES)] == label:
                count += 1
        if count > most:
            best, most = label, count
    return best


@vyre.kernel(workgroup=WORKGROUP)
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
    """Give every node the smallest node of its component; flags are zero at first. Invocations own parts of nodes."""
    first, end = part_of(u32(0), len(labels))
    hook_nodes(offsets, targets, labels, hooks, first, end)
    turn = compress(labels, hooks, unfinished, 0, first, end)
    hook_second_edges(offsets, targets, labels, hooks, changed, first, end)
    turn = compress(labels, hooks, unfinished, turn, first, end)
    if vyre.gid() == 0:
        guess[0] = most_common(labels)
    vyre.grid_sync()
    common = guess[0] if is_symmetric else u32(NO_NODE)
    # The second edges have set the flag of pass 0, which the first of these passes clears for the one after the next.
    pass_number = 1
    go_on = True
    while go_on:
        vyre.grid_sync()
        if vyre.gid() == 0:
            changed[(pass_number + 1) % 3] = 0
        hook_edges(offsets, targets, labels, hooks, changed, pass_number, common, first, end)
        vyre.grid_sync()
        go_on = changed[pass_number % 3] != 0
        if go_on:
            turn = compress(labels, hooks, unfinished, turn, first, end)
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
        join_components.on(workspace.backend).grid(workspace.workgroups(nodes, 32 * WORKGROUP))(
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
