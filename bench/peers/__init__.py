"""Who else computes the same? One module for each peer, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import msgspec
import numpy as np

Array = np.ndarray[Any, Any]
NAMES = ("numpy", "scipy", "numba", "taichi", "warp", "opencl")


class Runs(msgspec.Struct):
    """How a workload runs: arrays in and an array out; and again on data that is where the work is.

    ``result`` is what the last run on resident data gave.
    """

    end_to_end: Callable[[], Array]
    resident: Callable[[], object]
    result: Callable[[], Array]


class Peer(msgspec.Struct):
    """A peer: its version, and a maker of runs for each workload it has, from inputs and an empty output."""

    name: str
    version: str
    rows: dict[str, Callable[[Sequence[Array], Array], Runs]]
    launch: Callable[[], object] | None = None
    sequence: Callable[[int], object] | None = None


def on_arrays(function: Callable[..., object]) -> Callable[[Sequence[Array], Array], Runs]:
    """Runs of a function of NumPy arrays, the last of which it fills."""

    def make(inputs: Sequence[Array], output: Array) -> Runs:
        def end_to_end() -> Array:
            out = np.empty_like(output)
            function(*inputs, out)
            return out

        return Runs(end_to_end, lambda: function(*inputs, output), lambda: output)

    return make


def load(name: str, threads: int) -> Peer | str:
    """A peer that uses so many threads, or why it is not here."""
    try:
        module = import_module(f"peers.with_{name}")
    except ImportError as error:
        return f"{name} is not installed ({error})"
    try:
        peer: Peer = module.load(threads)
        return peer
    except RuntimeError as error:
        return f"{name} does not run here ({error})"
