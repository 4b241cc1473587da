"""Breadth-first search: the levels of a graph's nodes, to a fixpoint on the device, in one launch."""

import numpy as np

import vyre
from vyre import u32

FAR = 0xFFFFFFFF


@vyre.kernel
def levels(offsets: vyre.In[u32], targets: vyre.In[u32], level: vyre.InOut[u32], found: vyre.InOut[u32]):
    """``found[k]`` counts the nodes of level k; the search is over at a level without any."""
    node = vyre.gid()
    depth = 0
    while found[depth] != 0:
        vyre.grid_sync()  # all have read what is written next
        if node < len(level) and vyre.atomic_load(level, node) == depth:
            for edge in range(offsets[node], offsets[node + 1]):
                before = vyre.atomic_compare_exchange(level, targets[edge], FAR, depth + 1)
                if before == FAR:
                    vyre.atomic_add(found, depth + 1, 1)
        vyre.grid_sync()
        depth += 1


def random_graph(nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray]:
    """A graph as offsets into the targets of each node's edges."""
    random = np.random.default_rng(7)
    sources = np.sort(random.integers(0, nodes, edges))
    offsets = np.searchsorted(sources, np.arange(nodes + 1)).astype(np.uint32)
    return offsets, random.integers(0, nodes, edges, np.uint32)


def main(nodes: int = 20_000, edges: int = 60_000) -> None:
    offsets, targets = random_graph(nodes, edges)
    level = np.full(nodes, FAR, np.uint32)
    level[0] = 0
    found = np.zeros(nodes + 1, np.uint32)
    found[0] = 1
    levels[nodes](offsets, targets, level, found)
    reached = found[: np.argmin(found)]
    print(f"{reached.sum():,} of {nodes:,} nodes are reached, {len(reached) - 1} steps away at most")
    print("by level:", *reached)


if __name__ == "__main__":
    main()
