"""How are the values of several lanes combined into one? In one fixed order, so that floats agree everywhere.

Lanes are combined by halves: of n lanes, lane i takes lane i + ceil(n/2), and so on until one is left. A lane that
is not active takes part with the operator's identity, which never changes what it is combined with.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

from vyre.semantics.scalars import Value, scalar_meaning
from vyre.semantics.types import DType


def reduction_identity(op: str, dtype: DType) -> Value:
    """The value that changes nothing: -0.0 in a float sum; in a float min or max the NaN, which loses."""
    if dtype.is_float:
        return -0.0 if op == "add" else nan
    match op:
        case "and":
            value = -1 if dtype.minimum else dtype.maximum
        case "min":
            value = dtype.maximum
        case "max":
            value = dtype.minimum
        case _:
            value = 0
    return bool(value) if dtype is DType.BOOL else value


def reduce_lanes(op: str, dtype: DType, active: Mapping[int, Value], width: int) -> Value:
    """The values of the active lanes (by lane number) of a subgroup of ``width``, combined."""
    combine, identity = scalar_meaning(op, dtype), reduction_identity(op, dtype)
    values = [active.get(lane, identity) for lane in range(width)]
    while len(values) > 1:
        half = (len(values) + 1) // 2
        paired = [combine(low, high) for low, high in zip(values, values[half:], strict=False)]
        values = paired + values[len(paired) : half]
    result: Value = values[0]
    return result
