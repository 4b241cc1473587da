"""Parallel algorithms as functions on arrays: bitsets, scans, reductions, graphs and dataflow.

Functions take NumPy arrays, ``vyre.array``s or resident buffers, and return what they were given: NumPy arrays for
NumPy arrays, device arrays for device arrays. ``backend=`` chooses where they run, ``out=`` where the result goes.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["bitset", "dataflow", "graph", "oracle", "reduce", "scan"]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f"vyre.lib.{name}")
    raise AttributeError(f"module 'vyre.lib' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
