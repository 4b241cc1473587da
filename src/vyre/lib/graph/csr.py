"""Graphs in compressed sparse row form: construction, checks, transposition, copies on devices."""

from __future__ import annotations

from functools import cached_property
from operator import index
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.arrays import DeviceArray, array
from vyre.lib.columns import column, ids, numbers, require_below
from vyre.lib.workspace import MAX_ELEMENTS, ArrayLike, Operand, Workspace
from vyre.semantics.types import DType

# Nodes are u32, and the last number stands for "no node".
MAX_NODES: Final = MAX_ELEMENTS - 1
NO_NODE: Final = 0xFFFFFFFF
ALL_KINDS: Final = 0xFFFFFFFF
_WEIGHTS: Final = (np.dtype(np.float32), np.dtype(np.float64))


class Graph:
    """A directed graph in compressed sparse row form.

    The edges of node ``i`` are ``targets[offsets[i]:offsets[i + 1]]``; ``weights`` and ``kinds`` (bit masks) have one
    element for each edge, ``tags`` one for each node. An undirected graph has each edge in both directions. Make one
    with ``from_edges``, ``from_csr`` or ``from_scipy``, which check everything; arrays must not be changed afterwards.

    >>> g = Graph.from_edges([0, 1, 2], [1, 2, 0], num_nodes=4)
    >>> g.num_nodes, g.num_edges, g.targets
    (4, 3, array([1, 2, 0], dtype=uint32))
    """

    def __init__(
        self,
        offsets: Array,
        targets: Array,
        weights: Array | None = None,
        kinds: Array | None = None,
        tags: Array | None = None,
    ) -> None:
        """Use ``from_csr``: this takes arrays of the right types without looking at them."""
        self.offsets = offsets
        self.targets = targets
        self.weights = weights
        self.kinds = kinds
        self.tags = tags
        self._on_devices: WeakKeyDictionary[Backend, dict[str, DeviceArray]] = WeakKeyDictionary()
        self._transpose: Graph | None = None

    @classmethod
    def from_edges(
        cls,
        sources: ArrayLike,
        targets: ArrayLike,
        num_nodes: int | None = None,
        weights: ArrayLike = None,
        kinds: ArrayLike = None,
        tags: ArrayLike = None,
        *,
        undirected: bool = False,
    ) -> Graph:
        """A graph from the two ends of its edges, in any order; duplicate edges and self loops are kept.

        Without ``num_nodes`` there are as many nodes as the ends name. ``undirected`` adds the reverse of every edge,
        except for self loops. The targets of each node are sorted. O(E log E).
        """
        ends = [ids(sources, "sources", most=MAX_NODES - 1), ids(targets, "targets", most=MAX_NODES - 1)]
        if len(ends[0]) != len(ends[1]):
            raise BadInputs(
                f"'sources' has {len(ends[0]):,} elements and 'targets' has {len(ends[1]):,}.",
                "pass the two ends of every edge.",
            )
        if num_nodes is None:
            num_nodes = max((int(end.max()) + 1 for end in ends if end.size), default=0)
        count = _node_count(num_nodes)
        for end, name in zip(ends, ("sources", "targets"), strict=True):
            require_below(end, count, name, "num_nodes")
        columns = {
            "weights": _weights(weights, len(ends[0]), exact=True),
            "kinds": _words(kinds, "kinds", len(ends[0]), exact=True),
        }
        if undirected:
            turned = ends[0] != ends[1]
            ends = [np.concatenate([end, other[turned]]) for end, other in (ends, ends[::-1])]
            columns = {
                name: one if one is None else np.concatenate([one, one[turned]]) for name, one in columns.items()
            }
        made = _compressed(ends[0], ends[1], count, columns)
        graph = cls(*made, _words(tags, "tags", count, exact=True))
        if undirected and not any(column is not None for column in columns.values()):
            graph.is_symmetric = True
        return graph

    @classmethod
    def from_csr(
        cls,
        offsets: ArrayLike,
        targets: ArrayLike,
        weights: ArrayLike = None,
        kinds: ArrayLike = None,
        tags: ArrayLike = None,
    ) -> Graph:
        """A graph from its rows, which need not be sorted. The last offset is the number of edges.

        Longer (padded) edge columns are cut to it. Arrays of uint32 and int32 are used without a copy. O(N + E) checks.
        """
        starts = ids(offsets, "offsets")
        if not starts.size:
            raise BadInputs("'offsets' is empty.", "pass one offset for each node, and the number of edges last.")
        if starts[0] != 0:
            raise BadInputs(f"'offsets' begins with {starts[0]}.", "the edges of the first node begin at 0.")
        falls = starts[1:] < starts[:-1]
        if falls.any():
            at = int(falls.argmax())
            raise BadInputs(
                f"'offsets' falls at position {at + 1}: {starts[at]} is followed by {starts[at + 1]}.",
                "pass offsets that never fall.",
            )
        edges, nodes = int(starts[-1]), _node_count(len(starts) - 1)
        ends = ids(targets, "targets", count=edges)
        require_below(ends, nodes, "targets", "the number of nodes")
        graph = cls(
            starts,
            ends,
            _weights(weights, edges),
            _words(kinds, "kinds", edges),
            _words(tags, "tags", nodes, exact=True),
        )
        for name, given in (("offsets", offsets), ("targets", targets)):
            is_same = isinstance(given, DeviceArray) and given.dtype is DType.U32 and given.is_whole
            if is_same and given.size == len(getattr(graph, name)):
                graph._on_devices.setdefault(given.backend, {})[name] = given
        return graph

    @classmethod
    def from_scipy(cls, matrix: Any, *, weighted: bool = True) -> Graph:
        """A graph from a square ``scipy.sparse`` matrix or array: entry (i, j) is the edge from i to j.

        The entries are the weights, unless ``weighted`` is False. CSR with 32-bit indices is used without a copy.
        """
        if not hasattr(matrix, "tocsr"):
            raise BadInputs(f"'matrix' is a {type(matrix).__name__}.", "pass a scipy.sparse matrix or array.")
        rows = matrix.tocsr()
        if len(rows.shape) != 2 or rows.shape[0] != rows.shape[1]:
            raise BadInputs(f"'matrix' has shape {rows.shape}.", "pass a square matrix.")
        values = rows.data if weighted else None
        if values is not None and values.dtype not in _WEIGHTS and values.dtype.kind in "biuf":
            values = values.astype(np.float64)
        return cls.from_csr(rows.indptr, rows.indices, values)

    @property
    def num_nodes(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_edges(self) -> int:
        return len(self.targets)

    @property
    def arrays(self) -> list[Array]:
        """Its arrays on the host."""
        every = (self.offsets, self.targets, self.weights, self.kinds, self.tags)
        return [one for one in every if one is not None]

    @property
    def has_transpose(self) -> bool:
        """Whether the edges into each node are at hand."""
        return self._transpose is not None

    def transpose(self) -> Graph:
        """The graph with every edge reversed; made once and kept. A graph that is symmetric is its own transpose.

        O(E log E) for the first call.
        """
        if self._transpose is None:
            if self.is_symmetric:
                return self
            sources = self.sources()
            columns = {"weights": self.weights, "kinds": self.kinds}
            self._transpose = Graph(*_compressed(self.targets, sources, self.num_nodes, columns), self.tags)
            self._transpose._transpose = self
        return self._transpose

    def sources(self) -> Array:
        """The source of every edge."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.uint32), np.diff(self.offsets))

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether every edge is known to have its reverse, with all columns alike: found once, by a kernel.

        Answers False for graphs with weights or kinds, and where a row is not sorted or has duplicates.
        """
        if self.weights is not None or self.kinds is not None:
            return False
        if not self.num_edges:
            return True
        return _is_sorted_and_symmetric(self)

    @cached_property
    def nonempty(self) -> Array:
        """The bitset of the nodes that have edges."""
        bits = np.zeros(-(-self.num_nodes // 32) * 32, bool)
        np.not_equal(self.offsets[1:], self.offsets[:-1], out=bits[: self.num_nodes])
        words: Array = np.packbits(bits, bitorder="little").view(np.uint32)
        return words

    def to_scipy(self) -> Any:
        """The graph as a ``scipy.sparse.csr_array`` with its weights, or ones. Needs SciPy."""
        from scipy.sparse import csr_array

        values = np.ones(self.num_edges, np.float32) if self.weights is None else self.weights
        # SciPy's indices are signed: it would copy others.
        wide = np.int64 if max(self.num_edges, self.num_nodes) > np.iinfo(np.int32).max else None
        indices, starts = (
            column.view(np.int32) if wide is None else column.astype(wide) for column in (self.targets, self.offsets)
        )
        return csr_array((values, indices, starts), shape=(self.num_nodes, self.num_nodes))

    def operand(self, workspace: Workspace, name: str) -> Operand:
        """One of its arrays for kernels of a workspace; on a device it is copied once and kept."""
        host: Array = getattr(self, name)
        if workspace.in_place:
            return host
        kept = self._on_devices.setdefault(workspace.backend, {})
        if name not in kept:
            kept[name] = array(host, backend=workspace.backend)
        return kept[name]

    def __repr__(self) -> str:
        return f"<Graph of {self.num_nodes:,} nodes and {self.num_edges:,} edges>"


def require_graph(value: Any) -> Graph:
    """The graph; BadInputs if it is none."""
    if not isinstance(value, Graph):
        raise BadInputs(f"'g' is a {type(value).__name__}.", "pass a Graph: Graph.from_edges(sources, targets, n).")
    return value


def require_nodes(given: ArrayLike, count: int, name: str) -> Array:
    """Numbers of nodes as u32: one number, a list or an array; BadInputs names the first that is no node."""
    listed = given
    if not isinstance(given, DeviceArray) and numbers(given, name).ndim == 0:
        try:
            listed = None if isinstance(given, (bool, np.bool_)) else [index(given)]
        except TypeError:
            listed = None
        if listed is None:
            raise BadInputs(f"'{name}' is {given!r:.60}.", "pass the number of a node, or several.")
    nodes = ids(listed, name)
    require_below(nodes, count, name, "the number of nodes")
    return nodes


def _compressed(
    sources: Array, targets: Array, count: int, columns: dict[str, Array | None]
) -> tuple[Array, Array, Array | None, Array | None]:
    """Offsets, targets and edge columns, sorted by source, then target, then the order in which they were given."""
    keys = sources.astype(np.uint64) << np.uint64(32) | targets
    moved = columns
    if any(column is not None for column in columns.values()):
        order = _stable_order(keys)
        keys = keys[order]
        moved = {name: None if column is None else column[order] for name, column in columns.items()}
    else:
        keys.sort()
    offsets = np.zeros(count + 1, np.uint32)
    np.cumsum(np.bincount(sources, minlength=count), out=offsets[1:], dtype=np.uint32)
    return offsets, keys.astype(np.uint32), moved["weights"], moved["kinds"]


def _stable_order(keys: Array) -> Array:
    """A stable argsort. NumPy's fast one is not stable, so only equal keys are sorted again, by position."""
    order = np.argsort(keys)
    ordered = keys[order]
    repeats = np.zeros(len(keys), bool)
    np.equal(ordered[1:], ordered[:-1], out=repeats[1:])
    repeats[:-1] |= repeats[1:]
    order[repeats] = order[repeats][np.lexsort((order[repeats], ordered[repeats]))]
    return order


def _node_count(value: Any) -> int:
    try:
        count = index(value)
    except TypeError:
        count = -1
    if isinstance(value, bool) or not 0 <= count <= MAX_NODES:
        raise BadInputs(f"'num_nodes' is {value!r:.60}.", f"pass a whole number from 0 to {MAX_NODES:,}.")
    return count


def _words(value: ArrayLike, name: str, count: int, *, exact: bool = False) -> Array | None:
    return None if value is None else ids(value, name, count=count, exact=exact)


def _weights(value: ArrayLike, count: int, *, exact: bool = False) -> Array | None:
    if value is None:
        return None
    host = column(value, "weights", count, exact=exact)
    if host.dtype.kind in "iu":
        host = host.astype(np.float64)
    if host.dtype not in _WEIGHTS:
        raise BadInputs(f"'weights' has elements of type {host.dtype}.", "convert it: array.astype(np.float32).")
    return host


@vyre.kernel(workgroup=16, subgroup=16)
def find_asymmetry(
    offsets: vyre.In[u32], targets: vyre.In[u32], found: vyre.InOut[u32], up: vyre.InOut[u32], down: vyre.InOut[u32]
) -> None:
    """Set ``found`` if a row does not rise strictly, or an edge that leads to a node of lower degree has no reverse.

    Such an edge is looked for in the shorter of the two rows. ``down`` counts them and ``up`` counts the others: if all
    of the former have a reverse, and there are no more of the latter, all edges have one.
    """
    node = vyre.wg()
    nodes = len(offsets) - 1
    rises, falls = 0, 0
    while node < nodes:
        first, end = offsets[node], offsets[node + 1]
        edge = first + vyre.lid()
        while edge < end:
            target = targets[edge]
            if edge > first and targets[edge - 1] >= target:
                found[0] = 1
            low, high = offsets[target], offsets[target + 1]
            degree = high - low
            if degree < end - first or (degree == end - first and target < node):
                falls += 1
                while low < high:
                    middle = low + (high - low) // 2
                    if targets[middle] < node:
                        low = middle + 1
                    else:
                        high = middle
                if targets[low] != node or low == offsets[target + 1]:
                    found[0] = 1
            elif target != node:
                rises += 1
            edge += 16
        node += vyre.num_workgroups()
    rises, falls = vyre.subgroup_reduce("add", rises), vyre.subgroup_reduce("add", falls)
    if vyre.lid() == 0:
        vyre.atomic_add(up, 0, rises)
        vyre.atomic_add(down, 0, falls)


_SAMPLES: Final = 256


def _is_sorted_and_symmetric(graph: Graph) -> bool:
    """Looks at some edges on the host first: most graphs that are not symmetric are found out there."""
    offsets, targets = graph.offsets, graph.targets
    edges = np.unique(np.linspace(0, graph.num_edges - 1, _SAMPLES).astype(np.int64))
    sources = np.searchsorted(offsets, edges, side="right") - 1
    for source, target in zip(sources.tolist(), targets[edges].tolist(), strict=True):
        row = targets[offsets[target] : offsets[target + 1]]
        at = int(np.searchsorted(row, source))
        if at == len(row) or row[at] != source:
            return False
    workspace = Workspace(None)
    found, up, down = (workspace.zeros(1, u32) for _ in range(3))
    launch = find_asymmetry.on(workspace.backend).grid(workspace.workgroups(graph.num_nodes, 16))
    launch(graph.operand(workspace, "offsets"), graph.operand(workspace, "targets"), found, up, down)
    return not workspace.read(found)[0] and bool(workspace.read(up)[0] == workspace.read(down)[0])
