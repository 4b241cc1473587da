"""Generators of the graphs that the library's benchmark runs on, and plain NumPy oracles of what is computed on them.

A graph is a CSR with u32 offsets and targets. The generated graphs are undirected: each edge is there in both
directions, rows are sorted, and there are no self loops and no duplicates. The same arguments give the same graph.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

Array = np.ndarray[Any, Any]
NOT_REACHED: Final = 0xFFFFFFFF
# Graph500's probabilities of the upper left, upper right and lower left quarter of the adjacency matrix.
_A, _B, _C = 0.57, 0.19, 0.19
# Random numbers for so many edges at a time stay in the cache.
_EDGES_AT_A_TIME: Final = 1 << 18


class Csr(msgspec.Struct, frozen=True):
    """A graph by rows: the targets of node v are ``targets[offsets[v]:offsets[v + 1]]``."""

    offsets: Array
    targets: Array

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        """The number of directed edges: an undirected edge counts twice."""
        return len(self.targets)

    @property
    def nbytes(self) -> int:
        return int(self.offsets.nbytes + self.targets.nbytes)

    @property
    def degrees(self) -> Array:
        return np.diff(self.offsets)


def rmat(scale: int, edge_factor: int = 16, seed: int = 1, *, shuffled: bool = False) -> Csr:
    """An R-MAT graph of 2**scale nodes with Graph500's parameters, from ``edge_factor`` edges for each node.

    Nodes with small numbers have large degrees, unless ``shuffled`` gives the nodes random numbers, as Graph500 does.
    """
    rng = np.random.default_rng(seed)
    count = edge_factor << scale
    sources, targets = np.empty(count, np.uint32), np.empty(count, np.uint32)
    for start in range(0, count, _EDGES_AT_A_TIME):
        part = slice(start, min(count, start + _EDGES_AT_A_TIME))
        sources[part], targets[part] = _quarter(scale, part.stop - part.start, rng)
    if shuffled:
        names = rng.permutation(1 << scale).astype(np.uint32)
        sources, targets = names[sources], names[targets]
    return undirected(sources, targets, 1 << scale)


def _quarter(scale: int, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Random edges: each bit of source and target is a choice of a quarter of what is left of the matrix."""
    source, target = np.zeros(count, np.uint32), np.zeros(count, np.uint32)
    for _ in range(scale):
        place = rng.random(count, np.float32)
        lower = place >= _A + _B
        right = (place >= _A + _B + _C) | ((place >= _A) & ~lower)
        source = (source << np.uint32(1)) | lower
        target = (target << np.uint32(1)) | right
    return source, target


def grid(side: int) -> Csr:
    """A square grid: each node is joined to the nodes left, right, above and below it."""
    nodes = np.arange(side * side, dtype=np.uint32).reshape(side, side)
    across, down = (nodes[:, :-1], nodes[:, 1:]), (nodes[:-1], nodes[1:])
    sources, targets = (np.concatenate([a.ravel(), b.ravel()]) for a, b in zip(across, down, strict=True))
    return undirected(sources, targets, side * side)


def undirected(sources: Array, targets: Array, num_nodes: int) -> Csr:
    """The graph of edges in both directions, sorted, without self loops and duplicates."""
    kept = sources != targets
    low, high = sources[kept].astype(np.uint64), targets[kept].astype(np.uint64)
    shift = np.uint64(32)
    keys = np.concatenate([(low << shift) | high, (high << shift) | low])
    keys.sort()
    first = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    keys = keys[first]
    degrees = np.bincount((keys >> shift).astype(np.int64), minlength=num_nodes)
    offsets = np.zeros(num_nodes + 1, np.uint32)
    np.cumsum(degrees, out=offsets[1:])
    return Csr(offsets, keys.astype(np.uint32))


def hub(graph: Csr) -> int:
    """The node of the largest degree, the first of them."""
    return int(np.argmax(graph.degrees))


def sources_beside(graph: Csr, start: int, count: int, seed: int = 2) -> list[int]:
    """Random nodes of the component of ``start``, each at most once."""
    reached = np.flatnonzero(bfs_levels(graph, start) != NOT_REACHED)
    return [int(node) for node in np.random.default_rng(seed).choice(reached, min(count, len(reached)), replace=False)]


def bfs_levels(graph: Csr, source: int) -> Array:
    """The number of edges from the source to each node, by whole frontiers."""
    levels = np.full(graph.num_nodes, NOT_REACHED, np.uint32)
    levels[source] = 0
    frontier = np.array([source])
    level = 0
    while len(frontier):
        level += 1
        reached = targets_of(graph, frontier)
        levels[reached[levels[reached] == NOT_REACHED]] = level
        # A frontier that is small beside the graph is found without looking at every node.
        few = len(reached) * 8 < graph.num_nodes
        frontier = np.unique(reached[levels[reached] == level]) if few else np.flatnonzero(levels == level)
    return levels


def targets_of(graph: Csr, nodes: Array) -> Array:
    """The targets of all edges from the nodes, one row after the other."""
    starts = graph.offsets[nodes].astype(np.int64)
    counts = graph.offsets[nodes + 1].astype(np.int64) - starts
    shifts = np.repeat(starts - (np.cumsum(counts) - counts), counts)
    return graph.targets[np.arange(len(shifts)) + shifts]


def component_labels(graph: Csr) -> Array:
    """The smallest node of each node's component: the least label beside a node spreads, then labels are followed."""
    labels = np.arange(graph.num_nodes, dtype=np.uint32)
    rows = np.flatnonzero(graph.degrees)
    starts = graph.offsets[:-1][rows].astype(np.int64)
    while True:
        before = labels.copy()
        if len(rows):
            least = np.minimum.reduceat(labels[graph.targets], starts)
            labels[rows] = np.minimum(labels[rows], least)
        while not np.array_equal(followed := labels[labels], labels):
            labels = followed
        if np.array_equal(before, labels):
            return labels


def pagerank(graph: Csr, iterations: int, damping: float = 0.85) -> Array:
    """Ranks in f64 after so many iterations from equal ranks; the rank of nodes without edges goes to all nodes."""
    count, degrees = graph.num_nodes, graph.degrees.astype(np.float64)
    rows = np.flatnonzero(degrees)
    starts = graph.offsets[:-1][rows].astype(np.int64)
    ranks = np.full(count, 1.0 / count)
    for _ in range(iterations):
        shares = np.divide(ranks, degrees, out=np.zeros(count), where=degrees > 0)
        lost = ranks[degrees == 0].sum()
        ranks = np.full(count, (1.0 - damping) / count + damping * lost / count)
        # The graph is its own transpose.
        ranks[rows] += damping * np.add.reduceat(shares[graph.targets], starts)
    return ranks


class ExplodedInput(msgspec.Struct, frozen=True):
    """The arguments of an exploded supergraph: counts, and edges and facts as rows of (procedure, block, ...)."""

    num_procs: int
    blocks_per_proc: int
    facts_per_proc: int
    intra: Array
    inter: Array
    gen: Array
    kill: Array

    @property
    def num_nodes(self) -> int:
        return self.num_procs * self.blocks_per_proc * self.facts_per_proc


def random_supergraph(num_procs: int, blocks: int, facts: int, seed: int = 3) -> ExplodedInput:
    """Random procedures for ``exploded_csr``: a chain of blocks with jumps, calls, and GEN and KILL facts.

    A procedure has half as many jumps as blocks and a call for ten blocks; a block generates and kills a fact each.
    """
    rng = np.random.default_rng(seed)

    def rows(count: int, *most: int) -> Array:
        return _distinct(np.stack([rng.integers(0, one, count) for one in most], axis=1))

    whole = num_procs * blocks
    chain = np.stack([np.arange(whole) // blocks, np.arange(whole) % blocks, np.arange(whole) % blocks + 1], axis=1)
    jumps = rows(whole // 2, num_procs, blocks, blocks)
    facts_at = rows(2 * whole, num_procs, blocks, facts - 1)
    facts_at[:, 2] += 1
    chosen = rng.random(len(facts_at)) < 0.5
    return ExplodedInput(
        num_procs,
        blocks,
        facts,
        _distinct(np.concatenate([chain[chain[:, 2] < blocks], jumps])),
        rows(whole // 10, num_procs, blocks, num_procs, blocks),
        facts_at[chosen],
        facts_at[~chosen],
    )


def _distinct(rows: Array) -> Array:
    """The distinct rows, sorted."""
    return np.unique(rows, axis=0).astype(np.uint32)


def exploded_rows(given: ExplodedInput) -> tuple[Array, Array]:
    """The offsets and targets of an exploded supergraph, with sorted rows."""
    blocks, facts = given.blocks_per_proc, given.facts_per_proc
    proc, source, target = given.intra.astype(np.int64).T
    sources, targets = proc * blocks + source, proc * blocks + target
    killed = np.zeros((given.num_procs * blocks, facts), bool)
    killed[given.kill[:, 0].astype(np.int64) * blocks + given.kill[:, 1], given.kill[:, 2]] = True
    edge, fact = np.nonzero(~killed[sources])
    pairs = [(sources[edge] * facts + fact, targets[edge] * facts + fact)]
    # The facts that a block generates lie together, so each edge takes those of its source.
    at = given.gen[:, 0].astype(np.int64) * blocks + given.gen[:, 1]
    order = np.argsort(at, kind="stable")
    starts = np.searchsorted(at[order], np.arange(given.num_procs * blocks + 1))
    generated = Csr(starts.astype(np.uint32), given.gen[order, 2])
    edge = np.repeat(np.arange(len(sources)), np.diff(starts)[sources])
    pairs.append((sources[edge] * facts, targets[edge] * facts + targets_of(generated, sources)))
    from_proc, from_block, to_proc, to_block = given.inter.astype(np.int64).T
    every = np.arange(facts)
    before, after = from_proc * blocks + from_block, to_proc * blocks + to_block
    pairs.append(((before[:, None] * facts + every).ravel(), (after[:, None] * facts + every).ravel()))
    ends = [np.concatenate(column) for column in zip(*pairs, strict=True)]
    order = np.lexsort((ends[1], ends[0]))
    offsets = np.zeros(given.num_nodes + 1, np.uint32)
    np.cumsum(np.bincount(ends[0], minlength=given.num_nodes), out=offsets[1:])
    return offsets, ends[1][order].astype(np.uint32)


def random_program(num_procs: int, nodes: int, facts: int, seed: int = 4) -> Any:
    """A random IFDS problem: procedures of ``nodes`` statements with branches, loops, calls and recursion.

    A statement assigns one variable (a fact) to another, taints one from a source, clears one, or does nothing; one in
    ten calls a procedure, its own and earlier ones included, and passes up to three variables in and one out.
    """
    from vyre.lib.dataflow import IfdsBuilder

    rng = np.random.default_rng(seed)
    builder = IfdsBuilder()
    procedures = [builder.procedure(facts) for _ in range(num_procs)]
    for procedure in procedures:
        body = [procedure.entry, *(builder.node(procedure) for _ in range(nodes - 2)), procedure.exit]
        kinds = rng.random(nodes).tolist()
        names = rng.integers(1, facts, (nodes, 4)).tolist()
        jumps = rng.integers(-6, 9, nodes).tolist()
        callees = rng.integers(0, num_procs, nodes).tolist()
        for place in range(nodes - 1):
            here, following = body[place], body[place + 1]
            kind, (one, other, third, fourth) = kinds[place], names[place]
            if kind < 0.1:
                callee = procedures[callees[place]]
                builder.call_to_return(here, following, kill=(one,))
                # Parameters are the first variables of the callee, and its result is one of them.
                builder.call(here, callee, flows=((other, 1), (third, min(2, facts - 1)), (fourth, min(3, facts - 1))))
                builder.returns(here, callee, following, flows=((1, one),))
            elif kind < 0.4:
                builder.normal(here, following, kill=(one,), gen=((other, one),) if other != one else ((one, one),))
            elif kind < 0.5:
                builder.normal(here, following, gen=((0, one),))
            elif kind < 0.6:
                builder.normal(here, following, kill=(one,))
            else:
                builder.normal(here, following)
            # One in five nodes also branches, or loops back.
            target = place + jumps[place]
            if kind >= 0.8 and jumps[place] not in (0, 1) and 0 < target < nodes:
                builder.normal(here, body[target])
    return builder.build(seeds=((procedures[0].entry, 0),))
