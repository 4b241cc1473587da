"""Backends of every kind, and plain definitions of the orders in which scans and sums combine floats."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any, Final

import numpy as np

import cpu_support
import webgpu_support
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.semantics.types import DType

Array = np.ndarray[Any, Any]

# Vectors of every width, threads that share whatever they can, a device, and the definition of the language.
VECTORS: Final = ("cpu 4x1", "cpu 8x2", "cpu 16x1", "cpu 16x2")
SCALAR: Final = ("cpu 1x1", "cpu 1x2")
OTHERS: Final = ("webgpu", "reference")
BACKENDS: Final = (*VECTORS, *OTHERS)
# Lengths around those of rows, blocks, chunks, and of all blocks that the workgroups take at a time.
LENGTHS: Final = (0, 1, 2, 15, 16, 17, 31, 32, 33, 255, 4095, 4096, 4097, 32768, 65535, 65536, 65537, 200_001)
_POISON: Final = 0xA5


@cache
def backend_of(name: str) -> Backend:
    if name == "webgpu":
        return webgpu_support.backend()
    if name == "reference":
        return ReferenceBackend(poison=_POISON)
    width, threads = map(int, name.removeprefix("cpu ").split("x"))
    return cpu_support.sharing_backend(threads, width)


def length_for(backend: str, most: int) -> int:
    """A length that the backend has time for."""
    return min(most, {"webgpu": 9_001, "reference": 333}.get(backend, most))


def random_elements(dtype: DType, count: int, seed: int = 1) -> Array:
    """Numbers all over the type: all bit patterns of integers, and floats of many sizes."""
    random = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return random.random(count) < 0.5
    if dtype.is_float:
        return (random.normal(size=count) * 10.0 ** random.integers(-2, 3, count)).astype(dtype.storage)
    return np.frombuffer(random.bytes(count * dtype.bytes), dtype.storage).copy()


def scan_order(x: Array, *, exclusive: bool = False) -> Array:
    """The sums that a scan gives, in its order: rows of 16, blocks of 4,096, each chained from left to right."""
    zero = x.dtype.type(-0.0)
    before = x.dtype.type(0.0) if exclusive else zero
    result = []
    for start in range(0, len(x), 4096):
        block = x[start : start + 4096]
        rows = np.append(block, np.full(-len(block) % 16, zero, x.dtype)).reshape(-1, 16)
        for step in (1, 2, 4, 8):
            rows = np.concatenate([rows[:, :step], rows[:, :-step] + rows[:, step:]], axis=1)
        chained, scanned = zero, []
        for row in rows:
            scanned.append(chained + row)
            chained = scanned[-1][-1]
        inner = np.concatenate(scanned)[: len(block)]
        result.append(before + (np.concatenate([[zero], inner[:-1]]) if exclusive else inner))
        before = before + chained
    return np.concatenate(result).astype(x.dtype)


def sum_order(x: Array) -> Any:
    """The sum of floats in the order of ``reduce``: columns of chunks, left to right, and so the chunks' results."""
    while True:
        totals = []
        for start in range(0, len(x), 4096):
            chunk = x[start : start + 4096]
            padded = np.append(chunk, np.full(-len(chunk) % 16, -0.0, x.dtype)).reshape(-1, 16)
            columns = np.full(16, -0.0, x.dtype)
            for row in padded:
                columns = columns + row
            total = x.dtype.type(-0.0)
            for column in columns:
                total = total + column
            totals.append(total)
        if len(totals) == 1:
            return totals[0]
        x = np.array(totals, x.dtype)


def segments_of(count: int, segments: int, seed: int = 3) -> Array:
    """Offsets of segments of any lengths, some of them empty."""
    inner = np.sort(np.random.default_rng(seed).integers(0, count + 1, segments - 1))
    return np.concatenate([[0], inner, [count]]).astype(np.uint32)


def by_segment(function: Callable[[Array], Any], x: Array, offsets: Array) -> list[Any]:
    return [function(x[start:stop]) for start, stop in pairwise(offsets)]
