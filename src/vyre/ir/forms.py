"""Which nodes are written as calls, and with what between the parentheses?

The one table from which the printer writes ``word(argument, ...)`` and the parser reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from vyre.ir import nodes as n
from vyre.semantics.operators import OPERATORS, AtomicOp
from vyre.semantics.types import DType


class Slot(Enum):
    """What an argument is."""

    EXPRESSION = "an expression"
    NAME = "a name"
    OPERATOR = "an operator's name"
    TYPE = "a type"
    STRING = "a string in quotes"
    INTEGER = "a whole number"
    BYTES = 'bytes, as in x"00ff"'
    # A memory order; seq_cst where it is left out.
    ORDER = "a memory order"
    # Any number of expressions.
    REST = "expressions"


class Form(msgspec.Struct, frozen=True):
    """One way to write a node: ``fields`` are filled by the arguments, ``fixed`` by the word itself.

    ``required`` is how many arguments have to be there.
    """

    word: str
    node: type[n.Node]
    slots: tuple[Slot, ...]
    fields: tuple[str, ...]
    fixed: Mapping[str, Any]
    required: int

    @property
    def signature(self) -> str:
        """How to call it, for people."""
        optional = {Slot.ORDER: "[, {}]", Slot.REST: ", {} ..."}
        parts = [optional.get(s, ", {}").format(f) for s, f in zip(self.slots, self.fields, strict=True)]
        return f"{self.word}({''.join(parts).removeprefix(', ')})"

    def slot(self, position: int) -> Slot | None:
        """What the argument at a position is; None where there is none."""
        if position < len(self.slots):
            return self.slots[position]
        return Slot.REST if self.slots and self.slots[-1] is Slot.REST else None

    def build(self, arguments: list[Any]) -> n.Node:
        """The node with these arguments (as many as are required, or more)."""
        if self.slots and self.slots[-1] is Slot.REST:
            arguments = [*arguments[: self.required], tuple(arguments[self.required :])]
        return self.node(**self.fixed, **dict(zip(self.fields, arguments, strict=False)))


_E, _N, _S = Slot.EXPRESSION, Slot.NAME, Slot.STRING


def _form(word: str, node: type[n.Node], *slots: Slot, fields: tuple[str, ...] | None = None, **fixed: Any) -> Form:
    if fields is None:
        fields = tuple(name for name in node.__struct_fields__ if name not in fixed)
    required = sum(slot not in (Slot.ORDER, Slot.REST) for slot in slots)
    return Form(word, node, slots, fields, fixed, required)


def _operator_forms() -> list[Form]:
    nodes: dict[int, type[n.Node]] = {1: n.UnOp, 2: n.BinOp}
    rows = [row for row in OPERATORS.values() if not row.is_symbol]
    return [_form(row.spelling, nodes[row.arity], *[_E] * row.arity, op=row.name) for row in rows]


def _atomic_form(op: AtomicOp) -> Form:
    operands = {AtomicOp.LOAD: (), AtomicOp.COMPARE_EXCHANGE: ("expected", "value")}.get(op, ("value",))
    fields = ("buffer", "index", *operands, "order")
    return _form(f"atomic_{op.value}", n.Atomic, _N, _E, *[_E] * len(operands), Slot.ORDER, fields=fields, op=op)


EXPRESSION_FORMS: Final[dict[str, Form]] = {
    form.word: form
    for form in (
        *_operator_forms(),
        *(_form(dtype.label, n.Cast, _E, target=dtype) for dtype in DType),
        *(_atomic_form(op) for op in AtomicOp),
        _form("len", n.BufLen, _N),
        _form("select", n.Select, _E, _E, _E),
        _form("bitcast", n.Bitcast, Slot.TYPE, _E),
        _form("fma", n.Fma, _E, _E, _E),
        _form("subgroup_ballot", n.SubgroupBallot, _E),
        _form("subgroup_shuffle", n.SubgroupShuffle, _E, _E),
        _form("subgroup_reduce", n.SubgroupReduce, Slot.OPERATOR, _E),
        _form("subgroup_lane", n.SubgroupLocalId),
        _form("subgroup_size", n.SubgroupSize),
        _form("call", n.Call, _S, Slot.REST),
        _form("opaque", n.OpaqueExpr, _S, Slot.BYTES),
    )
}

STATEMENT_FORMS: Final[dict[str, Form]] = {
    form.word: form
    for form in (
        _form("async_load", n.AsyncLoad, _N, _N, _E, _E, _S),
        _form("async_store", n.AsyncStore, _N, _N, _E, _E, _S),
        _form("async_wait", n.AsyncWait, _S),
        _form("copy_bytes", n.CopyBytes, _N, _N, _E, _E, _E),
        _form("indirect_dispatch", n.IndirectDispatch, _N, Slot.INTEGER),
        _form("trap", n.Trap, _E, _S),
        _form("resume", n.Resume, _S),
        _form("all_reduce", n.AllReduce, Slot.OPERATOR, _N, _S),
        _form("all_gather", n.AllGather, _N, _N, _S),
        _form("reduce_scatter", n.ReduceScatter, Slot.OPERATOR, _N, _N, _S),
        _form("broadcast", n.Broadcast, _N, Slot.INTEGER, _S),
        _form("opaque", n.OpaqueStmt, _S, Slot.BYTES),
    )
}

# The ids, written with their axis: gid.x.
ID_WORDS: Final = {
    "gid": n.InvocationId,
    "lid": n.LocalId,
    "wg": n.WorkgroupId,
    "num_wg": n.NumWorkgroups,
}
AXES: Final = "xyz"
