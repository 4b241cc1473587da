"""What types are there, and how is a value of each laid out?

A buffer's bytes are the bytes of a C-order NumPy array of ``DType.storage``. bf16, which NumPy lacks, is
stored as the upper half of an f32 in a ``uint16``.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np


class Kind(Enum):
    """The four families of types; every type rule is stated in terms of them."""

    BOOL = "bool"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"


class DType(Enum):
    """A scalar type. ``DType("u32")`` finds one by its spelling.

    ``minimum`` and ``maximum`` bound the values of bool and the integers (a float's are not whole numbers: 0 there).
    """

    label: str
    kind: Kind
    bits: int
    bytes: int
    storage: np.dtype[Any]
    is_float: bool
    is_integer: bool
    minimum: int
    maximum: int

    def __new__(cls, label: str, kind: Kind, bits: int, storage: str) -> DType:
        member = object.__new__(cls)
        member._value_ = label
        member.label = label
        member.kind = kind
        member.bits = bits
        member.bytes = max(1, bits // 8)
        member.storage = np.dtype(storage)
        member.is_float = kind is Kind.FLOAT
        member.is_integer = kind in (Kind.UNSIGNED, Kind.SIGNED)
        sign_bits = 1 if kind is Kind.SIGNED else 0
        member.minimum = -(1 << (bits - 1)) if sign_bits else 0
        member.maximum = 0 if member.is_float else (1 << (bits - sign_bits)) - 1
        return member

    BOOL = ("bool", Kind.BOOL, 1, "?")
    U8 = ("u8", Kind.UNSIGNED, 8, "<u1")
    I8 = ("i8", Kind.SIGNED, 8, "<i1")
    U16 = ("u16", Kind.UNSIGNED, 16, "<u2")
    I16 = ("i16", Kind.SIGNED, 16, "<i2")
    U32 = ("u32", Kind.UNSIGNED, 32, "<u4")
    I32 = ("i32", Kind.SIGNED, 32, "<i4")
    U64 = ("u64", Kind.UNSIGNED, 64, "<u8")
    I64 = ("i64", Kind.SIGNED, 64, "<i8")
    F16 = ("f16", Kind.FLOAT, 16, "<f2")
    BF16 = ("bf16", Kind.FLOAT, 16, "<u2")
    F32 = ("f32", Kind.FLOAT, 32, "<f4")
    F64 = ("f64", Kind.FLOAT, 64, "<f8")

    # Enum hashes by name in Python code; members are singletons, so identity is the same and is C.
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return self.label

    __str__ = __repr__

    @property
    def unsigned(self) -> DType:
        """The unsigned integer type of this width (bool stays bool)."""
        return self if self.kind is Kind.BOOL else _UNSIGNED_OF_WIDTH[self.bits]


_UNSIGNED_OF_WIDTH = {8: DType.U8, 16: DType.U16, 32: DType.U32, 64: DType.U64}

BOOLS = (DType.BOOL,)
UNSIGNED = tuple(d for d in DType if d.kind is Kind.UNSIGNED)
SIGNED = tuple(d for d in DType if d.kind is Kind.SIGNED)
INTEGERS = tuple(d for d in DType if d.is_integer)
FLOATS = tuple(d for d in DType if d.is_float)
NUMBERS = INTEGERS + FLOATS
ALL_TYPES = tuple(DType)
ATOMIC_TYPES = (DType.U32, DType.I32, DType.U64, DType.I64)
FUSED_TYPES = (DType.F32, DType.F64)
