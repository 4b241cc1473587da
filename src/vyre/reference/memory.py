"""What is memory to the interpreter? The exact bytes of each buffer, seen as cells that Python reads quickly.

The bytes are an array of the buffer's storage type; a cell is the same memory as a number that ``memoryview`` can
index. Types without such a number (f16, bf16) and bool, whose byte may be any, are decoded from their bits. Bytes
that no statement writes stay as they were, whatever they encode.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import nan
from typing import Any, Final

import numpy as np

from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl
from vyre.semantics.scalars import Value, from_bits, to_bits
from vyre.semantics.types import DType

Cells = memoryview
_CELL_TYPES: Final[dict[DType, np.dtype[Any]]] = {
    DType.BOOL: np.dtype(np.uint8),
    DType.F16: np.dtype(np.uint16),
    DType.BF16: np.dtype(np.uint16),
}


def cells_of(array: Array, dtype: DType) -> Cells:
    """The elements of an array of ``dtype``'s storage type, as cells on the same memory."""
    return array.view(_CELL_TYPES.get(dtype, dtype.storage)).data


def bytes_of(array: Array) -> Cells:
    """The bytes of an array, on the same memory."""
    return array.view(np.uint8).data


def decoder(dtype: DType) -> Callable[[Any], Value] | None:
    """How a cell becomes a value; None where it is one."""
    if dtype is DType.BOOL:
        return bool
    return partial(from_bits, dtype=dtype) if dtype in _CELL_TYPES else None


def encoder(dtype: DType) -> Callable[[Any], Value] | None:
    """How a value becomes a cell, with every NaN canonical; None where it is one."""
    if not dtype.is_float:
        return None
    return partial(to_bits, dtype=dtype) if dtype in _CELL_TYPES else _canonical


def _canonical(value: float) -> float:
    return value if value == value else nan


def zeros(decl: BufferDecl, count: int) -> Array:
    """Memory of that many zero elements."""
    try:
        return np.zeros(count, decl.dtype.storage)
    except MemoryError:
        raise BadInputs(
            f"buffer '{decl.name}' would have {count:,} elements, more than fit in memory.",
            "launch a smaller grid, or declare a smaller count.",
            buffer=decl.name,
        ) from None
