"""The work with vyre's library, on the processor's backend. A function that is missing is a gap like a missing peer."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import vyre
from graphs import Csr, ExplodedInput
from library_peers import Contender, Maker, Peer, Ranking, Scanning, Traversal, from_each

_BACKEND = "cpu"
# The functions of ``vyre.lib`` that each kind of work needs.
_NEEDED = {
    "bfs": ("graph", "bfs"), "components": ("graph", "connected_components"), "pagerank": ("graph", "pagerank"),
    "scan": ("scan", "exclusive"), "ifds": ("dataflow", "ifds"), "exploded": ("dataflow", "exploded_csr"),
}  # fmt: skip


def find_function(kind: str) -> Any:
    """The library's function for a kind of work, or None."""
    module, name = _NEEDED[kind]
    if find_spec(f"vyre.lib.{module}") is None:
        return None
    return getattr(import_module(f"vyre.lib.{module}"), name, None)


def _graph(graph: Csr) -> Any:
    return import_module("vyre.lib.graph").Graph.from_csr(graph.offsets, graph.targets)


def _bfs(work: Traversal) -> dict[str, Contender]:
    graph, bfs = _graph(work.graph), find_function("bfs")
    return {"vyre": Contender(from_each(lambda source: bfs(graph, source, backend=_BACKEND), work.sources))}


def _components(work: Csr) -> dict[str, Contender]:
    graph, components = _graph(work), find_function("components")
    return {"vyre": Contender(lambda: components(graph, backend=_BACKEND))}


def _pagerank(work: Ranking) -> dict[str, Contender]:
    graph, pagerank = _graph(work.graph), find_function("pagerank")
    options = {"damping": work.damping, "tolerance": 0.0, "max_iterations": work.iterations, "backend": _BACKEND}
    return {"vyre": Contender(lambda: pagerank(graph, **options))}


def _exclusive(work: Scanning) -> dict[str, Contender]:
    exclusive, out = find_function("scan"), np.empty_like(work.values)
    return {"vyre": Contender(lambda: exclusive(work.values, out=out, backend=_BACKEND))}


def _ifds(problem: Any) -> dict[str, Contender]:
    ifds = find_function("ifds")
    return {"vyre": Contender(lambda: ifds(problem, backend=_BACKEND), lambda solution: solution.bits)}


def _exploded(given: ExplodedInput) -> dict[str, Contender]:
    exploded_csr = find_function("exploded")
    counts = given.num_procs, given.blocks_per_proc, given.facts_per_proc
    tables = [tuple(np.ascontiguousarray(rows.T)) for rows in (given.intra, given.inter, given.gen, given.kill)]
    return {"vyre": Contender(lambda: exploded_csr(*counts, *tables, backend=_BACKEND), np.concatenate)}


_MAKERS: dict[str, Maker] = {
    "bfs": _bfs, "components": _components, "pagerank": _pagerank, "scan": _exclusive, "ifds": _ifds,
    "exploded": _exploded,
}  # fmt: skip


def load(_: int) -> Peer:
    makers = {kind: make for kind, make in _MAKERS.items() if find_function(kind) is not None}
    return Peer("vyre", vyre.__version__, makers)
