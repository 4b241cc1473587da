"""Which composite operations and extensions do generated programs call? A few, registered when this is imported."""

from __future__ import annotations

from typing import Final

from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.extensions import CompositeOp, register_extension, register_op
from vyre.semantics.types import DType

BLEND: Final = CompositeOp(
    "conform.blend",
    (("first", DType.U32), ("second", DType.U32)),
    DType.U32,
    b.var("mixed") + 1,
    (
        b.let("mixed", b.var("first") ^ (b.var("second") >> 3)),
        b.loop("round", 0, b.var("second") % 3, [b.assign("mixed", b.rotl(b.var("mixed"), 5) + b.var("round"))]),
        b.if_((b.var("mixed") & 1).eq(1), [b.assign("mixed", b.var("mixed") * 3)], [b.let("odd", 1)]),
    ),
)
CHOOSE: Final = CompositeOp(
    "conform.choose",
    (("condition", DType.BOOL), ("value", DType.I32)),
    DType.I32,
    b.select(b.var("condition"), b.var("value"), -b.var("value")),
)
EASE: Final = CompositeOp(
    "conform.ease",
    (("x", DType.F32),),
    DType.F32,
    b.var("x") * b.var("x") * (b.expr(3.0) - b.expr(2.0) * b.var("x")),
)
WITHIN: Final = CompositeOp(
    "conform.within",
    (("low", DType.U32), ("value", DType.U32), ("count", DType.U32)),
    DType.BOOL,
    b.lnot(b.call(BLEND.op_id, b.var("low"), b.var("count")).eq(0)) & (b.var("value") - b.var("low") < b.var("count")),
)
OPERATIONS: Final = tuple(register_op(operation) for operation in (BLEND, CHOOSE, EASE, WITHIN))

CONSTANT_KIND: Final = "conform.constant"
IDLE_KIND: Final = "conform.idle"


def constant(payload: bytes) -> n.Expr:
    """An expression: the u32 that the payload spells, low byte first."""
    return n.Lit(int.from_bytes(payload[:4], "little"), DType.U32)


def idle(payload: bytes) -> n.Body:
    """Statements without effect: a count over the bytes of the payload."""
    count = b.loop("step", 0, len(payload) % 4, [b.assign("total", b.var("total") + b.var("step"))])
    return (b.let("total", 0), count)


register_extension(CONSTANT_KIND, constant)
register_extension(IDLE_KIND, idle)
