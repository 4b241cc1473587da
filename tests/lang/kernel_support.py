"""Kernels from text, and arrays to run them on."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np

from vyre.semantics import DType


def module_of(text: str, directory: Path, name: str = "kernels_of_a_test") -> ModuleType:
    """A module with that text, in a file of its own: kernels are read from their files."""
    path = directory / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sample(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Small numbers and a few extreme ones."""
    random = np.random.default_rng(seed)
    if dtype.is_float:
        data = random.normal(scale=8.0, size=shape).astype(dtype.storage)
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1.0]
    else:
        data = random.integers(0, 100, shape).astype(dtype.storage)
        special = [0, 1, dtype.maximum, dtype.minimum, dtype.maximum - 1]
    flat = data.reshape(-1)
    places = random.integers(0, len(flat), max(1, len(flat) // 5))
    flat[places] = random.choice(np.array(special, dtype.storage), len(places))
    return data
