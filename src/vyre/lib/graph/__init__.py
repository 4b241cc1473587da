"""Graph algorithms: search, reachability, components, ordering and ranking, on graphs in CSR form."""

from __future__ import annotations

from vyre.lib.graph.csr import Graph
from vyre.lib.graph.search import bfs, reach, traverse

__all__ = ["Graph", "bfs", "reach", "traverse"]
