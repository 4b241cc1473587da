"""Graph algorithms: search, reachability, components, ordering and ranking, on graphs in CSR form."""

from __future__ import annotations

from vyre.lib.graph.closure import persistent_bfs, persistent_bfs_program
from vyre.lib.graph.components import connected_components
from vyre.lib.graph.csr import Graph
from vyre.lib.graph.ordering import topological_levels
from vyre.lib.graph.ranking import pagerank
from vyre.lib.graph.search import bfs, reach, traverse
from vyre.lib.graph.strong import strongly_connected_components

__all__ = [
    "Graph",
    "bfs",
    "connected_components",
    "pagerank",
    "persistent_bfs",
    "persistent_bfs_program",
    "reach",
    "strongly_connected_components",
    "topological_levels",
    "traverse",
]
