"""What is a value while a kernel is written, and where does a variable live?"""

from __future__ import annotations

import msgspec

from vyre.analyze.shapes import Shape
from vyre.semantics.types import DType

__all__ = ["Cell", "LoopContext", "Shape", "Value"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value under way: the text of a vector, or of the scalar that lane 0 has if the shape tells about the others."""

    dtype: DType
    shape: Shape
    text: str


class Cell(msgspec.Struct, frozen=True):
    """Where a variable, or a mask (no type), lives: in the function's memory, or at an offset in the workgroup's.

    A set of lanes may lie there as a word.
    """

    dtype: DType | None
    shape: Shape
    token: int
    pointer: str = ""
    offset: int = -1
    stride: int = 0
    is_word: bool = False

    @property
    def varying(self) -> bool:
        return self.shape is Shape.VARYING


class LoopContext(msgspec.Struct):
    """A loop under way. Without masks, all leave it by a jump.

    ``live`` are the lanes that are still in it, ``skipped`` those that have ended their pass. A search changes nothing
    but sets of lanes.
    """

    latch: str
    exit: str
    live: Cell | None = None
    skipped: Cell | None = None
    is_search: bool = False
