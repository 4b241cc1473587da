"""What is a part of a kernel while it is translated? A number without a type, a typed value, an array, a tuple."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import msgspec

from vyre.ir import nodes as n
from vyre.ir.nodes import Expr, Lit
from vyre.semantics.scalars import scalar_cast
from vyre.semantics.types import DType


class Constant(msgspec.Struct, frozen=True):
    """A number of the source; it takes the type of what stands beside it."""

    value: int | float

    @property
    def default_type(self) -> DType:
        return DType.U32 if isinstance(self.value, int) else DType.F32


class Scalar(msgspec.Struct, frozen=True, eq=False):
    """An expression of a type.

    ``size`` counts its nodes. ``reads`` says that its value depends on when it is evaluated, ``acts`` that evaluating
    it does something, or that it matters which invocations do.
    """

    expr: Expr
    dtype: DType
    size: int = 1
    reads: bool = False
    acts: bool = False

    @property
    def is_cheap(self) -> bool:
        """Whether it may as well be evaluated twice."""
        return self.size <= 8 and not (self.reads or self.acts)

    @property
    def is_fixed(self) -> bool:
        """Whether it has the same value wherever in its statement it is evaluated."""
        return not (self.reads or self.acts)


class Choice(msgspec.Struct, frozen=True, eq=False):
    """Numbers of the source that conditions choose between; like one number, it takes the type of its neighbour.

    ``steps`` are in order of evaluation: a condition stands behind the two alternatives that it chooses between.
    """

    steps: tuple[Constant | Scalar, ...]

    @property
    def default_type(self) -> DType:
        numbers = [step.default_type for step in self.steps if isinstance(step, Constant)]
        return DType.F32 if DType.F32 in numbers else DType.U32

    def map_numbers(self, change: Callable[[Constant], Constant]) -> Choice:
        return Choice(tuple(change(step) if isinstance(step, Constant) else step for step in self.steps))


class ArrayRef(msgspec.Struct, frozen=True, eq=False):
    """An array parameter or workgroup memory.

    A dimension is a number, the slot of the ``shapes`` buffer that holds it, or None: the buffer's own length.
    ``strides`` are slots too (None in them: 1), the offset's last; None is C order from the first element.
    """

    name: str
    buffer: str
    dtype: DType
    shape: tuple[Dimension, ...]
    strides: tuple[Slot | None, ...] | None
    reads: bool
    writes: bool


class Layout(Enum):
    """How an array lies in memory: in C order, along strides, or along strides of which the last is 1."""

    C_ORDER = "c order"
    STRIDED = "strided"
    ROWS = "rows"


class Slot(msgspec.Struct, frozen=True):
    """A number that the host passes in the ``shapes`` buffer; ``label`` names the variable that holds it."""

    index: int
    label: str


Dimension = int | Slot | None


class Items(msgspec.Struct, frozen=True, eq=False):
    """Several values, from a tuple."""

    items: tuple[Value, ...]


class Known(msgspec.Struct, frozen=True, eq=False):
    """A Python object that the translation knows what to do with: a type, a function, a module, a string."""

    object: Any


class Nothing(msgspec.Struct, frozen=True):
    """What a statement-like call gives."""


Number = Constant | Choice
Value = Constant | Choice | Scalar | ArrayRef | Items | Known | Nothing
NOTHING = Nothing()


def a(dtype: DType | None) -> str:
    """A type with its article."""
    return f"{'an' if str(dtype)[0] in 'if' else 'a'} {dtype}"


def rounded(number: int | float, dtype: DType) -> float | None:
    """A number as one of a float type, rounded once; None if it is finite and too large for that."""
    exact = next(
        (d for d in (DType.I64, DType.U64) if isinstance(number, int) and d.minimum <= number <= d.maximum), None
    )
    try:
        value: float = scalar_cast(exact or DType.F64, dtype)(number if exact else float(number))
    except OverflowError:
        return None
    return None if math.isinf(value) and not (isinstance(number, float) and math.isinf(number)) else value


def literal(value: bool | int | float, dtype: DType) -> Scalar:
    """A typed constant; the value is one of the type's."""
    return Scalar(n.lit(value, dtype), dtype)


def combined(expr: Expr, dtype: DType, *parts: Scalar, reads: bool = False, acts: bool = False) -> Scalar:
    """A value made of others."""
    return Scalar(
        expr,
        dtype,
        1 + sum(part.size for part in parts),
        reads or any(part.reads for part in parts),
        acts or any(part.acts for part in parts),
    )


def is_literal(value: Scalar) -> bool:
    return isinstance(value.expr, Lit)


def each_part(value: Value, change: Callable[[Scalar], Scalar]) -> Value:
    """A value of any kind, with what is computed in it changed."""
    if isinstance(value, Choice):
        return Choice(tuple(step if isinstance(step, Constant) else change(step) for step in value.steps))
    return change(value) if isinstance(value, Scalar) else value
