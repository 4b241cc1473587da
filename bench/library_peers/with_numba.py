"""The work as a Numba expert writes it: loops over ``prange``, bitmaps, a queue for each thread, equal shares."""

from __future__ import annotations

from functools import partial
from typing import Any

import numba
import numpy as np
from numba import int64, njit, prange, types, uint32, uint64
from numba.core import cgutils
from numba.extending import intrinsic

from graphs import Array, Csr
from library_peers import Contender, Peer, Ranking, Scanning, Traversal, from_each

_NOT_REACHED = np.uint32(0xFFFFFFFF)
# Beamer's choice: bottom-up from this share of the unexplored edges in the frontier, top-down below this of the nodes.
_ALPHA, _BETA = 15, 18
# A thread takes so many words of a bitmap at a time.
_WORDS = 32
# Frontiers of fewer nodes are not worth waking a thread.
_WORTH_SHARING = 64
# Afforest looks at so many nodes to find the giant component.
_SAMPLES = 1024
# The nodes of which a thread follows the labels at a time.
_BLOCK = 4096


# Numba calls the maker of an intrinsic with the types of the arguments by their names.
# ruff: noqa: ARG001


@intrinsic
def _lowest_bit(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], cgutils.true_bit)

    return types.uint64(types.uint64), generate


@intrinsic
def _replaced(typing: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    """Compare and exchange an element; whether it was as expected."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        whole = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, whole, [arguments[1]], wraparound=False)
        done = builder.cmpxchg(place, arguments[2], arguments[3], "monotonic", "monotonic")
        return builder.extract_value(done, 1)

    return types.boolean(array, types.uint64, types.uint32, types.uint32), generate


@njit
def _bfs_queue(offsets: Array, targets: Array, source: int) -> Array:
    count = offsets.size - 1
    levels = np.full(count, _NOT_REACHED, np.uint32)
    queue = np.empty(count, np.uint32)
    queue[0] = source
    levels[source] = 0
    head, tail = uint64(0), uint64(1)
    while head < tail:
        node = queue[head]
        head += uint64(1)
        level = levels[node] + uint32(1)
        for edge in range(offsets[node], offsets[node + uint32(1)]):
            target = targets[edge]
            if levels[target] == _NOT_REACHED:
                levels[target] = level
                queue[tail] = target
                tail += uint64(1)
    return levels


@njit
def _top_down(offsets: Array, targets: Array, levels: Array, nodes: Array, level: int, found: Array) -> tuple[int, int]:
    """Append the nodes that are reached; return how many there are, and how many edges they have.

    Two threads may both append a node, which is rare and does no harm.
    """
    length, edges = uint64(0), int64(0)
    for place in range(nodes.size):
        node = nodes[place]
        for edge in range(offsets[node], offsets[node + uint32(1)]):
            target = targets[edge]
            if levels[target] == _NOT_REACHED:
                levels[target] = level
                found[length] = target
                length += uint64(1)
                edges += int64(offsets[target + uint32(1)]) - int64(offsets[target])
    return int64(length), edges


@njit
def _find_left(offsets: Array, levels: Array, left: Array, start: int, stop: int) -> None:
    """Fill words of the bitmap of nodes that have edges and are not reached."""
    for word in range(start, stop):
        bits, first = uint64(0), word * 64
        for bit in range(min(64, levels.size - first)):
            node = uint64(first + bit)
            is_left = levels[node] == _NOT_REACHED and offsets[node] != offsets[node + uint64(1)]
            bits |= uint64(is_left) << uint64(bit)
        left[word] = bits


@njit
def _bottom_up(
    offsets: Array, targets: Array, levels: Array, left: Array, now: Array, following: Array, start: int, stop: int,
    level: int,
) -> int:  # fmt: skip
    """The nodes that are left look for a neighbour in the frontier; return how many found one."""
    found = 0
    for word in range(start, stop):
        bits, reached = left[word], uint64(0)
        while bits:
            bit = _lowest_bit(bits)
            bits &= bits - uint64(1)
            node = uint64(word * 64) + bit
            for edge in range(offsets[node], offsets[node + uint64(1)]):
                target = targets[edge]
                if (now[target >> uint32(6)] >> uint64(target & uint32(63))) & uint64(1):
                    levels[node] = level
                    reached |= uint64(1) << bit
                    found += 1
                    break
        left[word] &= ~reached
        following[word] = reached
    return found


@njit
def _as_queue(offsets: Array, bitmap: Array, queue: Array) -> tuple[int, int]:
    """Write the nodes of a bitmap to a queue; return how many there are, and how many edges they have."""
    length, edges = uint64(0), int64(0)
    for word in range(bitmap.size):
        bits = bitmap[word]
        while bits:
            node = uint64(word * 64) + _lowest_bit(bits)
            bits &= bits - uint64(1)
            queue[length] = node
            length += uint64(1)
            edges += int64(offsets[node + uint64(1)]) - int64(offsets[node])
    return int64(length), edges


def _direction_optimising(offsets: Array, targets: Array, source: int, threads: int) -> Array:
    count, words = offsets.size - 1, (offsets.size + 62) // 64
    blocks = (words + _WORDS - 1) // _WORDS
    levels = np.full(count, _NOT_REACHED, np.uint32)
    queue, found = np.empty(threads * count, np.uint32), np.empty((threads, count), np.uint32)
    lengths, degrees = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
    queue[0] = source
    levels[source] = 0
    length, level = 1, uint32(0)
    edges = int64(offsets[source + 1]) - int64(offsets[source])
    unexplored = targets.size - edges
    while length > 0:
        if edges > unexplored // _ALPHA:
            now, following, left = np.zeros(words, np.uint64), np.empty(words, np.uint64), np.empty(words, np.uint64)
            for place in range(length):
                node = queue[place]
                now[node >> uint32(6)] |= uint64(1) << uint64(node & uint32(63))
            before, is_first = 0, True
            while length > 0 and (length >= before or length > count // _BETA):
                before = length
                level += uint32(1)
                for thread in prange(threads):
                    reached = 0
                    # Blocks in turn, because the nodes of large degrees may lie together.
                    for block in range(thread, blocks, threads):
                        start, stop = block * _WORDS, min(words, (block + 1) * _WORDS)
                        if is_first:
                            _find_left(offsets, levels, left, start, stop)
                        reached += _bottom_up(offsets, targets, levels, left, now, following, start, stop, level)
                    lengths[thread] = reached
                is_first = False
                length = lengths.sum()
                now, following = following, now
            length, edges = _as_queue(offsets, now, queue)
            unexplored = targets.size
        level += uint32(1)
        if length < _WORTH_SHARING:
            length, edges = _top_down(offsets, targets, levels, queue[:length], level, found[0])
            queue[:length] = found[0, :length]
        else:
            share = (length + threads - 1) // threads
            for thread in prange(threads):
                nodes = queue[min(length, thread * share) : min(length, (thread + 1) * share)]
                lengths[thread], degrees[thread] = _top_down(offsets, targets, levels, nodes, level, found[thread])
            length, edges = 0, degrees.sum()
            for thread in range(threads):
                queue[length : length + lengths[thread]] = found[thread, : lengths[thread]]
                length += lengths[thread]
        unexplored -= edges
    return levels


_bfs_optimising = njit(parallel=True)(_direction_optimising)
_bfs_optimising_alone = njit(_direction_optimising)


@njit
def _union_find(offsets: Array, targets: Array) -> Array:
    """Serial union-find with path halving; the smaller root is the root of both."""
    count = offsets.size - 1
    parents = np.arange(count).astype(np.uint32)
    for start in range(count):
        node = uint32(start)
        root = node
        while parents[root] != root:
            root = parents[root]
        for edge in range(offsets[node], offsets[node + uint32(1)]):
            other = targets[edge]
            if other > node:
                break
            while parents[other] != other:
                parents[other] = parents[parents[other]]
                other = parents[other]
            if other < root:
                parents[root] = other
                root = other
            else:
                parents[other] = root
    for node in range(count):
        parents[node] = parents[parents[node]]
    return parents


@njit
def _link(parents: Array, first: int, second: int) -> None:
    """Join two trees; other threads do so too."""
    a, b = parents[first], parents[second]
    while a != b:
        high, low = max(a, b), min(a, b)
        above = parents[high]
        if above == low or (above == high and _replaced(parents, uint64(high), high, low)):
            return
        a, b = parents[parents[high]], parents[low]


@njit
def _link_alone(parents: Array, first: int, second: int) -> None:
    """Join two trees; nothing else does meanwhile."""
    a, b = parents[first], parents[second]
    while a != b:
        high, low = max(a, b), min(a, b)
        above = parents[high]
        if above == low:
            return
        if above == high:
            parents[high] = low
            return
        a, b = parents[parents[high]], parents[low]


@njit
def _follow(parents: Array, start: int, stop: int) -> None:
    """Make each node a child of its root."""
    for node in range(start, stop):
        root = parents[node]
        while parents[root] != root:
            root = parents[root]
        parents[node] = root


@njit
def _most_frequent(labels: Array) -> int:
    """The label that most of some nodes have: that of the giant component, if there is one."""
    np.random.seed(1)
    seen = np.sort(labels[np.random.randint(0, labels.size, _SAMPLES)])
    best, longest, length = seen[0], 1, 1
    for place in range(1, seen.size):
        length = length + 1 if seen[place] == seen[place - 1] else 1
        if length > longest:
            best, longest = seen[place], length
    return best


@njit
def _begin(offsets: Array, targets: Array, parents: Array, start: int, stop: int) -> None:
    """Make each node the child of its first neighbour if that is smaller, which needs no atomic."""
    for node in range(start, stop):
        first = offsets[node]
        parents[node] = min(uint32(node), targets[first]) if first < offsets[node + 1] else uint32(node)


@njit
def _afforest_alone(offsets: Array, targets: Array) -> Array:
    count = offsets.size - 1
    parents = np.empty(count, np.uint32)
    _begin(offsets, targets, parents, 0, count)
    _follow(parents, 0, count)
    for node in range(count):
        edge = offsets[node] + uint32(1)
        if edge < offsets[node + 1]:
            _link_alone(parents, uint32(node), targets[edge])
    _follow(parents, 0, count)
    giant = _most_frequent(parents)
    for node in range(count):
        if parents[node] != giant:
            for edge in range(offsets[node], offsets[node + 1]):
                _link_alone(parents, uint32(node), targets[edge])
    _follow(parents, 0, count)
    return parents


@njit(parallel=True)
def _afforest(offsets: Array, targets: Array, threads: int) -> Array:
    """Afforest: link two edges of each node, then all of those nodes that are not in the giant component yet."""
    count = offsets.size - 1
    blocks = (count + _BLOCK - 1) // _BLOCK
    parents = np.empty(count, np.uint32)
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            _begin(offsets, targets, parents, block * _BLOCK, min(count, (block + 1) * _BLOCK))
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            _follow(parents, block * _BLOCK, min(count, (block + 1) * _BLOCK))
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            for node in range(block * _BLOCK, min(count, (block + 1) * _BLOCK)):
                edge = offsets[node] + uint32(1)
                if edge < offsets[node + 1]:
                    _link(parents, uint32(node), targets[edge])
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            _follow(parents, block * _BLOCK, min(count, (block + 1) * _BLOCK))
    giant = _most_frequent(parents)
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            for node in range(block * _BLOCK, min(count, (block + 1) * _BLOCK)):
                if parents[node] != giant:
                    for edge in range(offsets[node], offsets[node + 1]):
                        _link(parents, uint32(node), targets[edge])
    for thread in prange(threads):
        for block in range(thread, blocks, threads):
            _follow(parents, block * _BLOCK, min(count, (block + 1) * _BLOCK))
    return parents


@njit
def _sum_in_order(shares: Array, targets: Array, start: int, stop: int) -> float:
    total = shares[0] - shares[0]
    for edge in range(start, stop):
        total += shares[targets[edge]]
    return total


@njit
def _sum_by_four(shares: Array, targets: Array, start: int, stop: int) -> float:
    """Four sums, so that an addition does not wait for the last one."""
    a = b = c = d = shares[0] - shares[0]
    edge = uint64(start)
    while edge + uint64(4) <= stop:
        a += shares[targets[edge]]
        b += shares[targets[edge + uint64(1)]]
        c += shares[targets[edge + uint64(2)]]
        d += shares[targets[edge + uint64(3)]]
        edge += uint64(4)
    while edge < stop:
        a += shares[targets[edge]]
        edge += uint64(1)
    return (a + b) + (c + d)


def _make_pull(sum_shares: Any) -> Any:
    @njit(parallel=True)
    def pull(offsets: Array, targets: Array, bounds: Array, equal: Array, iterations: int, damping: float) -> Array:
        """Pull the shares of the neighbours, from equal ranks; each thread has the rows between two bounds."""
        count, threads = equal.size, bounds.size - 1
        ranks, inverse = np.empty_like(equal), np.empty_like(equal)
        shares, following = np.empty_like(equal), np.empty_like(equal)
        lost = np.zeros(threads, np.float64)
        for thread in prange(threads):
            mass = 0.0
            for node in range(bounds[thread], bounds[thread + 1]):
                degree = offsets[node + 1] - offsets[node]
                inverse[node] = 1.0 / degree if degree else 0.0
                shares[node] = equal[node] * inverse[node]
                mass += 0.0 if degree else equal[node]
            lost[thread] = mass
        for _ in range(iterations):
            base = (1.0 - damping + damping * lost.sum()) / count
            for thread in prange(threads):
                mass = 0.0
                for node in range(bounds[thread], bounds[thread + 1]):
                    start, stop = uint64(offsets[node]), uint64(offsets[node + 1])
                    rank = base + damping * sum_shares(shares, targets, start, stop)
                    ranks[node] = rank
                    following[node] = rank * inverse[node]
                    mass += rank if start == stop else 0.0
                lost[thread] = mass
            shares, following = following, shares
        return ranks

    return pull


_PULLS = {"": _make_pull(_sum_in_order), " by four": _make_pull(_sum_by_four)}


@njit
def _scan(values: Array, out: Array) -> Array:
    total = uint32(0)
    for i in range(values.size):
        out[i] = total
        total = uint32(total + values[i])
    return out


@njit(parallel=True)
def _scan_in_two_passes(values: Array, out: Array, threads: int) -> Array:
    share = (values.size + threads - 1) // threads
    totals = np.zeros(threads + 1, np.uint32)
    for thread in prange(threads - 1):
        total = uint32(0)
        for i in range(thread * share, min(values.size, (thread + 1) * share)):
            total = uint32(total + values[i])
        totals[thread + 1] = total
    for thread in range(threads):
        totals[thread + 1] += totals[thread]
    for thread in prange(threads):
        total = totals[thread]
        for i in range(thread * share, min(values.size, (thread + 1) * share)):
            out[i] = total
            total = uint32(total + values[i])
    return out


def balanced_bounds(graph: Csr, threads: int) -> Array:
    """Shares of rows with about as many edges and nodes for each thread."""
    work = graph.offsets.astype(np.int64) + np.arange(graph.num_nodes + 1)
    return np.searchsorted(work, np.linspace(0, work[-1], threads + 1)).astype(np.int64)


def _bfs(work: Traversal, threads: int) -> dict[str, Contender]:
    offsets, targets = work.graph.offsets, work.graph.targets
    ways = {
        "numba, direction-optimising": lambda source: _bfs_optimising(offsets, targets, source, threads),
        "numba, serial direction-optimising": lambda source: _bfs_optimising_alone(offsets, targets, source, 1),
        "numba, serial queue": lambda source: _bfs_queue(offsets, targets, source),
    }
    return {name: Contender(from_each(function, work.sources)) for name, function in ways.items()}


def _components(graph: Csr, threads: int) -> dict[str, Contender]:
    offsets, targets = graph.offsets, graph.targets
    return {
        "numba, Afforest": Contender(lambda: _afforest(offsets, targets, threads)),
        "numba, serial Afforest": Contender(lambda: _afforest_alone(offsets, targets)),
        "numba, union-find": Contender(lambda: _union_find(offsets, targets)),
    }


def _pagerank(work: Ranking, threads: int) -> dict[str, Contender]:
    offsets, targets = work.graph.offsets, work.graph.targets
    bounds = balanced_bounds(work.graph, threads)

    def contender(pull: Any, dtype: Any) -> Contender:
        equal = np.full(work.graph.num_nodes, 1.0 / work.graph.num_nodes, dtype)
        return Contender(lambda: pull(offsets, targets, bounds, equal, work.iterations, work.damping))

    return {
        f"numba, {name}{order}": contender(pull, dtype)
        for name, dtype in (("f32", np.float32), ("f64", np.float64))
        for order, pull in _PULLS.items()
    }


def _exclusive(work: Scanning, threads: int) -> dict[str, Contender]:
    out, other = np.empty_like(work.values), np.empty_like(work.values)
    return {
        "numba, serial": Contender(lambda: _scan(work.values, out)),
        "numba, two passes": Contender(lambda: _scan_in_two_passes(work.values, other, threads)),
    }


def load(threads: int) -> Peer:
    numba.set_num_threads(threads)
    makers = {"bfs": _bfs, "components": _components, "pagerank": _pagerank, "scan": _exclusive}
    return Peer("numba", numba.__version__, {name: partial(make, threads=threads) for name, make in makers.items()})
