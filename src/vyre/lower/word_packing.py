"""Packing of values into 32-bit words.

The state between segments is stored as words, so that values of all types share few buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

from vyre.ir import nodes as n
from vyre.ir.nodes import lit
from vyre.semantics.types import DType

_HALF = lit(32, DType.U64)


def word_count(dtype: DType) -> int:
    """Return the number of words of a value."""
    return 2 if dtype.bits == 64 else 1


def pack_words(value: n.Expr, dtype: DType) -> list[n.Expr]:
    """Return the words of a value, low word first; the value is evaluated once per word."""
    bits = value if dtype.unsigned is dtype else n.Bitcast(dtype.unsigned, value)
    match dtype.bits:
        case 64:
            return [n.Cast(DType.U32, bits), n.Cast(DType.U32, n.BinOp("shr", bits, _HALF))]
        case 32:
            return [bits]
    return [n.Cast(DType.U32, bits)]


def unpack_words(words: Sequence[n.Expr], dtype: DType) -> n.Expr:
    """Return the value that was packed into ``words``."""
    unsigned = dtype.unsigned
    match dtype.bits:
        case 64:
            low, high = (n.Cast(DType.U64, word) for word in words)
            bits: n.Expr = n.BinOp("or", low, n.BinOp("shl", high, _HALF))
        case 32:
            (bits,) = words
        case _:
            bits = n.Cast(unsigned, words[0])
    return bits if unsigned is dtype else n.Bitcast(dtype, bits)
