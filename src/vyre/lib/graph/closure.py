"""The program of the closure contract: bitset frontiers, edge kinds, a limit of hops, in one launch.

Each invocation owns one word of the frontier, and remembers which of its 32 nodes it has expanded; nothing else is
stored. With a limit of hops all invocations go hop by hop. Without one, an invocation that adds a node expands it too,
and goes on with one of the nodes that it added there, so that a long path takes few rounds. Either way every node is
expanded a bounded number of times.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.driver.config import DispatchConfig
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.lang.backends import shared_backend
from vyre.lib.columns import ids
from vyre.lib.graph.csr import ALL_KINDS, MAX_NODES, NO_NODE
from vyre.lib.workspace import ArrayLike, require_count

PERSISTENT_BFS: Final = "vyre.lib.graph.persistent_bfs"
# A workgroup is one subgroup.
WORKGROUP: Final = 32
# The edges of a node of this degree and more are shared between the lanes of a workgroup.
_LARGE: Final = 32
INPUTS: Final = ("pg_nodes", "pg_edge_offsets", "pg_edge_targets", "pg_edge_kind_mask", "pg_node_tags", "frontier_in")
OUTPUTS: Final = ("frontier_out", "changed", "converged")


class ClosureParameters(msgspec.Struct, frozen=True):
    """What a closure program was built for; without ``max_iters`` there is no limit of hops."""

    num_nodes: int
    num_edges: int
    allow_mask: int = ALL_KINDS
    max_iters: int | None = None

    @property
    def words(self) -> int:
        """The number of words of a frontier."""
        return -(-self.num_nodes // 32)

    @property
    def is_limited(self) -> bool:
        """Whether the limit can matter: no path has more hops than there are nodes."""
        return self.max_iters is not None and self.max_iters < max(self.num_nodes, 1)


@vyre.function
def add_node(frontier, target):
    """Set the bit of a node; whether it was not set before."""
    bit = u32(1) << (target & 31)
    is_new = vyre.atomic_load(frontier, target >> 5) & bit == 0
    if is_new:
        is_new = vyre.atomic_or(frontier, target >> 5, bit) & bit == 0
    return is_new


@vyre.function
def expand(offsets, targets, kinds, frontier, node, nodes, edges, allow):
    """Add the targets of a node's allowed edges, and return how many were added.

    Also returns the one of them with the most edges, of those that a lane expands alone.
    """
    added, onward, most = u32(0), u32(NO_NODE), u32(0)
    edge, end = offsets[node], vyre.min(offsets[node + 1], edges)
    while edge < end:
        target = targets[edge]
        if target < nodes and kinds[edge] & allow != 0 and add_node(frontier, target):
            added += 1
            degree = offsets[target + 1] - offsets[target]
            if degree < _LARGE and degree > most:
                onward, most = target, degree
        edge += 1
    return added, onward


@vyre.function
def expand_word(offsets, targets, kinds, frontier, word, fresh, nodes, edges, allow, goes_onward):
    """Expand the nodes of each lane's word that are set in ``fresh``, and return how many a lane has added.

    The lanes of a workgroup share the edges of a node that has many. With ``goes_onward``, a lane that has added a node
    expands it too, and so on.
    """
    added = u32(0)
    while vyre.subgroup_ballot(fresh != 0) != 0:
        node = u32(NO_NODE)
        edge, end = u32(0), u32(0)
        if fresh != 0:
            node = word * 32 + vyre.ctz(fresh)
            fresh = fresh & (fresh - 1)
            if node < nodes:
                edge = offsets[node]
                end = vyre.max(edge, vyre.min(offsets[node + 1], edges))
        large = vyre.subgroup_ballot(end - edge >= _LARGE)
        if end - edge < _LARGE:
            while node < nodes:
                more, onward = expand(offsets, targets, kinds, frontier, node, nodes, edges, allow)
                added += more
                node = onward if goes_onward else u32(NO_NODE)
        while large != 0:
            owner = vyre.ctz(large)
            large = large & (large - 1)
            shared_edge = vyre.subgroup_shuffle(edge, owner) + vyre.lid()
            shared_end = vyre.subgroup_shuffle(end, owner)
            while shared_edge < shared_end:
                target = targets[shared_edge]
                if target < nodes and kinds[shared_edge] & allow != 0 and add_node(frontier, target):
                    added += 1
                shared_edge += WORKGROUP
    return added


@vyre.function
def note_change(converged, added, turn):
    """Note the round in which a lane of the workgroup has added a node."""
    any_added = vyre.subgroup_ballot(added != 0)
    if vyre.lid() == 0 and any_added != 0:
        vyre.atomic_max(converged, 0, turn + 1)


@vyre.function
def start_closure(frontier_in, frontier_out, changed, converged):
    """Copy the frontier and clear the flags."""
    word = vyre.gid()
    while word < len(frontier_out):
        frontier_out[word] = frontier_in[word]
        word += vyre.num_workgroups() * WORKGROUP
    if vyre.gid() == 0:
        changed[0] = 0
        converged[0] = 0


@vyre.function
def end_closure(changed, converged, rounds, has_converged):
    """Write the flags; ``converged`` holds the last round that added a node until then."""
    if vyre.gid() == 0:
        changed[0] = u32(rounds != 0)
        converged[0] = u32(has_converged)


def _limited(nodes: int, edges: int, words: int, allow: int, limit: int) -> Any:
    @vyre.kernel(workgroup=WORKGROUP, subgroup=WORKGROUP)
    def persistent_bfs(
        pg_nodes: vyre.In[u32],  # noqa: ARG001 (the contract's)
        pg_edge_offsets: vyre.In[u32],
        pg_edge_targets: vyre.In[u32],
        pg_edge_kind_mask: vyre.In[u32],
        pg_node_tags: vyre.In[u32],  # noqa: ARG001 (the contract's)
        frontier_in: vyre.In[u32],
        frontier_out: vyre.InOut[u32],
        changed: vyre.InOut[u32],
        converged: vyre.InOut[u32],
    ) -> None:
        """Hop by hop: all new nodes are found before any of them is expanded."""
        word = vyre.gid()
        if word == 0 and vyre.num_workgroups() * WORKGROUP < words:
            vyre.trap(words, "too few invocations")
        start_closure(frontier_in, frontier_out, changed, converged)
        done = u32(0)
        hop, last_change = 0, 0
        goes_on = True
        while goes_on and hop < limit:
            vyre.grid_sync()
            fresh = frontier_out[word] & ~done if word < words else u32(0)
            done = done | fresh
            vyre.grid_sync()
            added = expand_word(
                pg_edge_offsets,
                pg_edge_targets,
                pg_edge_kind_mask,
                frontier_out,
                word,
                fresh,
                nodes,
                edges,
                allow,
                False,
            )
            note_change(converged, added, hop)
            vyre.grid_sync()
            hop += 1
            last_change = converged[0]
            goes_on = last_change == hop
        vyre.grid_sync()
        end_closure(changed, converged, last_change, hop != 0 and not goes_on)

    return persistent_bfs


def _unlimited(nodes: int, edges: int, words: int, allow: int) -> Any:
    @vyre.kernel(workgroup=WORKGROUP, subgroup=WORKGROUP)
    def persistent_bfs(
        pg_nodes: vyre.In[u32],  # noqa: ARG001 (the contract's)
        pg_edge_offsets: vyre.In[u32],
        pg_edge_targets: vyre.In[u32],
        pg_edge_kind_mask: vyre.In[u32],
        pg_node_tags: vyre.In[u32],  # noqa: ARG001 (the contract's)
        frontier_in: vyre.In[u32],
        frontier_out: vyre.InOut[u32],
        changed: vyre.InOut[u32],
        converged: vyre.InOut[u32],
    ) -> None:
        """In rounds: each new node is expanded, and then one of those it added, for as long as there is one."""
        start_closure(frontier_in, frontier_out, changed, converged)
        done = u32(0)
        turn, last_change = 0, 0
        goes_on = True
        while goes_on:
            vyre.grid_sync()
            base = vyre.wg() * WORKGROUP
            added = u32(0)
            while base < words:
                word = base + vyre.lid()
                is_own = word == vyre.gid()
                fresh = vyre.atomic_load(frontier_out, word) & ~(done if is_own else u32(0))
                if is_own:
                    done = done | fresh
                added += expand_word(
                    pg_edge_offsets,
                    pg_edge_targets,
                    pg_edge_kind_mask,
                    frontier_out,
                    word,
                    fresh,
                    nodes,
                    edges,
                    allow,
                    True,
                )
                base += vyre.num_workgroups() * WORKGROUP
            note_change(converged, added, turn)
            vyre.grid_sync()
            turn += 1
            last_change = converged[0]
            goes_on = last_change == turn
        vyre.grid_sync()
        end_closure(changed, converged, last_change, True)

    return persistent_bfs


def persistent_bfs_program(
    num_nodes: int, num_edges: int, allow_mask: int = ALL_KINDS, max_iters: int | None = None
) -> Program:
    """The program that closes a set of nodes over the allowed edges of a graph, in at most ``max_iters`` hops.

    Inputs in binding order: ``pg_nodes`` u32[N], ``pg_edge_offsets`` u32[N+1], ``pg_edge_targets`` and
    ``pg_edge_kind_mask`` u32[max(E, 1)], ``pg_node_tags`` u32[N], ``frontier_in`` u32[ceil(N/32)]. Outputs:
    ``frontier_out``; ``changed``, 1 if a bit was added; ``converged``, 1 if the last hop added none. An edge counts if
    its kind and ``allow_mask`` share a bit; targets that are no node are ignored. With a limit of hops, the
    launch needs an invocation for each word of the frontier, as the inferred one has. O(N + E): each node is expanded
    at most twice.

    >>> print(persistent_bfs_program(100, 400).buffers[6].name)
    frontier_out
    """
    parameters = ClosureParameters(
        require_count(num_nodes, "num_nodes", most=MAX_NODES),
        require_count(num_edges, "num_edges"),
        require_count(allow_mask, "allow_mask"),
        None if max_iters is None else require_count(max_iters, "max_iters"),
    )
    return _program(parameters)


@cache
def _program(parameters: ClosureParameters) -> Program:
    nodes, edges, words, allow = parameters.num_nodes, parameters.num_edges, parameters.words, parameters.allow_mask
    if parameters.is_limited:
        assert parameters.max_iters is not None  # a limit is one
        kernel = _limited(nodes, edges, words, allow, parameters.max_iters)
    else:
        kernel = _unlimited(nodes, edges, words, allow)
    made: Program = kernel.program
    counts = dict(zip(INPUTS, (nodes, nodes + 1, max(edges, 1), max(edges, 1), nodes, words), strict=True))
    counts |= {"frontier_out": words, "changed": 1, "converged": 1}
    limit = "none" if parameters.max_iters is None else str(parameters.max_iters)
    hints = {"num_edges": str(edges), "allow_mask": str(allow), "max_iters": limit}
    buffers = [
        decl.with_count(counts[decl.name]).with_output(decl.name in OUTPUTS).with_hints(**hints)
        if decl.name == "frontier_out"
        else decl.with_count(counts[decl.name]).with_output(decl.name in OUTPUTS)
        for decl in made.buffers
    ]
    return Program.wrapped(
        buffers,
        made.workgroup_size,
        made.entry,
        name="persistent_bfs",
        generator=PERSISTENT_BFS,
        subgroup_size=made.subgroup_size,
    )


def closure_parameters(program: Program) -> ClosureParameters:
    """The parameters of a program of ``persistent_bfs_program``."""
    hints = dict(program.buffer("frontier_out").hints)
    limit = hints["max_iters"]
    return ClosureParameters(
        program.buffer("pg_nodes").count,
        int(hints["num_edges"]),
        int(hints["allow_mask"]),
        None if limit == "none" else int(limit),
    )


def closure_reference(
    offsets: Array, targets: Array, kinds: Array, frontier: Array, allow_mask: int, max_iters: int | None
) -> tuple[Array, int, int]:
    """The contract in plain Python: the frontier, ``changed`` and ``converged``."""
    nodes = len(offsets) - 1
    starts, ends, masks = offsets.tolist(), targets.tolist(), kinds.tolist()
    limit = nodes + 1 if max_iters is None else max_iters
    closed = frontier.copy()
    reached = np.unpackbits(closed.view(np.uint8), bitorder="little")
    added = np.flatnonzero(reached[:nodes]).tolist()
    changed = hops = 0
    while added and hops < limit:
        hops += 1
        sources, added = added, []
        for node in sources:
            for edge in range(starts[node], min(starts[node + 1], len(ends))):
                target = ends[edge]
                if target < nodes and masks[edge] & allow_mask and not reached[target]:
                    reached[target] = 1
                    added.append(target)
        changed |= bool(added)
    words = np.packbits(reached, bitorder="little").view(np.uint32)
    return words, int(changed), int(not added and limit > 0)


def cut_edge_columns(offsets: Array, columns: dict[str, Array]) -> dict[str, Array]:
    """Edge columns without what stands behind the last offset; BadInputs names one that is too short."""
    if not offsets.size:
        raise BadInputs("'pg_edge_offsets' is empty.", "its last element is the number of edges: pass at least one.")
    edges = int(offsets[-1])
    for name, column in columns.items():
        if len(column) < edges:
            raise BadInputs(
                f"'{name}' has {len(column):,} elements, and 'pg_edge_offsets' ends with {edges:,}.",
                f"pass {edges:,} elements.",
            )
    return {name: column[:edges] for name, column in columns.items()}


def persistent_bfs(
    offsets: ArrayLike,
    targets: ArrayLike,
    kinds: ArrayLike,
    frontier: ArrayLike,
    *,
    allow_mask: int = ALL_KINDS,
    max_iters: int | None = None,
    backend: str | Backend | None = None,
) -> tuple[Array, bool, bool]:
    """Close a frontier over a graph's edges with the program of ``persistent_bfs_program``.

    All arrays are u32; ``frontier`` is a bitset of ceil(N/32) words. Returns the frontier, whether a bit was added, and
    whether the last hop added none. ``reach`` is faster, and needs no bitsets.

    >>> persistent_bfs([0, 1, 2, 2], [1, 2], [1, 1], [1])
    (array([7], dtype=uint32), True, True)
    """
    starts, ends, masks, words = (
        ids(value, name)
        for value, name in zip((offsets, targets, kinds, frontier), (*INPUTS[1:4], "frontier_in"), strict=True)
    )
    cut = cut_edge_columns(starts, {INPUTS[2]: ends, INPUTS[3]: masks})
    nodes, edges = len(starts) - 1, int(starts[-1])
    if len(words) != -(-nodes // 32):
        raise BadInputs(f"'frontier_in' has {len(words)} words, expected {-(-nodes // 32)}.", "pass ceil(N/32) words.")
    program = persistent_bfs_program(nodes, edges, allow_mask, max_iters)
    if not nodes:
        return words.copy(), False, True
    padded = [column if edges else np.zeros(1, np.uint32) for column in cut.values()]
    unused = np.zeros(nodes, np.uint32)
    groups = -(-len(words) // WORKGROUP)
    pipeline = shared_backend(backend).compile(program, DispatchConfig(grid_override=(groups,)))
    closed, changed, converged = pipeline.dispatch([unused, starts, *padded, unused, words])
    flags = [bool(np.frombuffer(flag, np.uint32)[0]) for flag in (changed, converged)]
    return np.frombuffer(closed, np.uint32).copy(), flags[0], flags[1]
