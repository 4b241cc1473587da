"""What is a value while a kernel is written, and where does a variable live?"""

from __future__ import annotations

from enum import Enum

import msgspec

from vyre.semantics.types import DType


class Shape(Enum):
    """How a value differs between lanes: not at all, by 1 from lane to lane, or in any way."""

    UNIFORM = "uniform"
    LINEAR = "linear"
    VARYING = "varying"


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value under way: the text of a scalar (of a linear value, lane 0's) or of a vector.

    ``wraps`` says of a linear value that a later lane's may have wrapped around.
    """

    dtype: DType
    shape: Shape
    text: str
    wraps: bool = True


class Cell(msgspec.Struct, frozen=True):
    """Where a variable, or a mask (no type), lives: in the function's memory, or at an offset in the workgroup's."""

    dtype: DType | None
    varying: bool
    token: int
    pointer: str = ""
    offset: int = -1
    stride: int = 0


class LoopContext(msgspec.Struct):
    """A loop under way. Without masks, all leave it by a jump.

    ``live`` are the lanes that are still in a loop of a run, ``left`` those that left a loop with runs inside,
    ``skipped`` those that have ended their pass. ``token`` names the lanes in a loop with runs inside.
    """

    latch: str
    exit: str
    live: Cell | None = None
    left: Cell | None = None
    skipped: Cell | None = None
    token: int | None = None
