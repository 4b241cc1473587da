"""Values and variable storage of a kernel that is being emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from vyre.analyze.shapes import Shape
from vyre.emit.llvm.text import ELEMENT, shaped
from vyre.semantics.types import DType


class Value(msgspec.Struct, frozen=True, gc=False):
    """A value: the text of a vector, or of lane 0's scalar if the shape determines the other lanes."""

    dtype: DType
    shape: Shape
    text: str


class Facts(msgspec.Struct, frozen=True):
    """What holds for some part of a row of invocations, by identity of expressions and accesses.

    ``values`` are those of expressions: a uniform one, or the value that a linear one would have where the lanes' axis
    has id 0. ``addresses`` are those of the elements that accesses in bounds would reach there. ``past_caches`` are the
    conditions on which stores bypass the caches.
    """

    values: Mapping[int, Value] = {}
    addresses: Mapping[int, str] = {}
    past_caches: Mapping[int, str] = {}


NO_FACTS: Final = Facts()


class Cell(msgspec.Struct, frozen=True):
    """Storage of a variable or a mask: a pointer to stack memory, or an offset in workgroup memory.

    ``token`` is the set of lanes that declared it. ``is_word``: it stores a mask as an integer word.
    """

    dtype: DType
    shape: Shape
    token: int
    pointer: str = ""
    offset: int = -1
    stride: int = 0
    is_word: bool = False

    @property
    def varying(self) -> bool:
        return self.shape is Shape.VARYING

    def kind(self, width: int) -> str:
        """Return the type of its contents, for vectors of ``width`` lanes."""
        return f"i{width}" if self.is_word else shaped(ELEMENT[self.dtype], width if self.varying else 0)


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
