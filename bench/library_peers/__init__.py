"""The peers of the library's benchmark: one module for each, loaded on demand.

A peer has a maker for each kind of work it can do. A maker takes the inputs, converts them to the peer's own form, and
returns contenders by their names; the conversion is not timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import msgspec

from comparison import Contender
from graphs import Array, Csr

NAMES = ("numba", "graphblas", "scipy", "networkit", "python")


class Traversal(msgspec.Struct, frozen=True):
    """BFS from each of the sources."""

    graph: Csr
    sources: tuple[int, ...]


class Ranking(msgspec.Struct, frozen=True):
    """PageRank from equal ranks, with so many iterations and no test of convergence."""

    graph: Csr
    iterations: int
    damping: float = 0.85


class Scanning(msgspec.Struct, frozen=True):
    """The exclusive sums of an array, modulo 2**32."""

    values: Array


Maker = Callable[[Any], dict[str, Contender]]


class Peer(msgspec.Struct):
    """A peer: its version, and for each kind of work a maker of contenders."""

    name: str
    version: str
    makers: dict[str, Maker]


def from_each(function: Callable[[int], Any], sources: Sequence[int]) -> Callable[[], list[Any]]:
    """A run of the function from each source in turn."""
    return lambda: [function(source) for source in sources]


def load(name: str, threads: int) -> Peer | str:
    """A peer that uses so many threads, or why it is missing."""
    try:
        peer: Peer = import_module(f"library_peers.with_{name}").load(threads)
    except ImportError as error:
        return f"{name} is not installed ({error})"
    except (OSError, RuntimeError) as error:
        return f"{name} does not run here ({error})"
    return peer
