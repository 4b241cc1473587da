"""What does each operator mean?

``operators`` is the one table of names, types and spellings. Each row has its meaning twice, looked up by the
row's name: for one element (``scalars``) and for arrays (``arrays``). The functions that IEEE 754 leaves open
have ONE definition, a fixed sequence of the exact operators (``math``), that every backend runs.
"""

from vyre.semantics.arrays import array_bitcast, array_cast, array_fma, array_meaning, from_storage, to_storage
from vyre.semantics.operators import BINARY, MATH_FUNCTIONS, OPERATORS, UNARY, Operator
from vyre.semantics.scalars import (
    from_bits,
    round_to,
    scalar_bitcast,
    scalar_cast,
    scalar_fma,
    scalar_meaning,
    to_bits,
    zero,
)
from vyre.semantics.types import DType, Kind

__all__ = [
    "BINARY",
    "MATH_FUNCTIONS",
    "OPERATORS",
    "UNARY",
    "DType",
    "Kind",
    "Operator",
    "array_bitcast",
    "array_cast",
    "array_fma",
    "array_meaning",
    "from_bits",
    "from_storage",
    "round_to",
    "scalar_bitcast",
    "scalar_cast",
    "scalar_fma",
    "scalar_meaning",
    "to_bits",
    "to_storage",
    "zero",
]
