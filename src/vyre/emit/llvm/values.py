"""Values and variable storage of a kernel that is being emitted."""

from __future__ import annotations

import msgspec

from vyre.analyze.shapes import Shape
from vyre.semantics.types import DType

__all__ = ["Cell", "LoopContext", "Shape", "Value"]


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value: the text of a vector, or of lane 0's scalar if the shape determines the other lanes."""

    dtype: DType
    shape: Shape
    text: str


class Cell(msgspec.Struct, frozen=True):
    """Storage of a variable, or of a mask (no type): a pointer to stack memory, or an offset in workgroup memory.

    ``token`` is the set of lanes that declared it. ``is_word``: it stores a mask as an integer word.
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
    """An open loop. Without masks, all lanes leave it by a jump.

    ``live`` are the lanes that are still in the loop, ``skipped`` those that have finished the iteration.
    ``is_search``: it is a search loop, whose masks are words.
    """

    latch: str
    exit: str
    live: Cell | None = None
    skipped: Cell | None = None
    is_search: bool = False
