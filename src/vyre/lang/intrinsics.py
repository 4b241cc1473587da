"""Which functions does a kernel call? Names for people to import; the translation knows them by name."""

from __future__ import annotations

import builtins
from typing import Any, Final, NoReturn

import msgspec

from vyre.errors import KernelError
from vyre.semantics.operators import OPERATORS, AtomicOp


class Intrinsic(msgspec.Struct, frozen=True):
    """A function of the language. ``parameters`` are as a call writes them; those with a ``=`` may be left out."""

    name: str
    parameters: tuple[str, ...]
    doc: str

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise KernelError(
            f"vyre.{self.name} was called outside a kernel, where it has no meaning.",
            "call it in a function with @vyre.kernel or @vyre.function.",
        )

    def __repr__(self) -> str:
        return f"vyre.{self.name}({', '.join(self.parameters)})"


def _ids() -> list[Intrinsic]:
    return [
        Intrinsic("gid", ("axis=0",), "the invocation's place in the grid, u32"),
        Intrinsic("lid", ("axis=0",), "the invocation's place in its workgroup, u32"),
        Intrinsic("wg", ("axis=0",), "the workgroup's place in the grid, u32"),
        Intrinsic("num_workgroups", ("axis=0",), "the number of workgroups along an axis, u32"),
    ]


def _operators() -> list[Intrinsic]:
    """The operators of the table that are written as calls; min and max take two operands or more."""
    return [
        Intrinsic(row.name, ("a", "b") if row.arity == 2 else ("x",), row.doc)
        for row in OPERATORS.values()
        if not row.is_symbol
    ]


def _atomics() -> list[Intrinsic]:
    operands = {AtomicOp.LOAD: (), AtomicOp.COMPARE_EXCHANGE: ("expected", "value")}
    return [
        Intrinsic(
            f"atomic_{op.value}",
            ("array", "index", *operands.get(op, ("value",)), "order='seq_cst'"),
            f"atomic {op.value.replace('_', ' ')}; gives the element as it was before",
        )
        for op in AtomicOp
    ]


INTRINSICS: Final[dict[str, Intrinsic]] = {
    intrinsic.name: intrinsic
    for intrinsic in (
        *_ids(),
        *_operators(),
        *_atomics(),
        Intrinsic("barrier", ("order='seq_cst'",), "the workgroup waits for all of its invocations"),
        Intrinsic("grid_sync", (), "the whole grid waits, and sees all that was written before"),
        Intrinsic("select", ("condition", "if_true", "if_false"), "one of two values; both are evaluated"),
        Intrinsic("fma", ("a", "b", "c"), "a * b + c, rounded once"),
        Intrinsic("bitcast", ("type", "value"), "the same bits as another type of that width"),
        Intrinsic("shared", ("type", "shape"), "memory of one workgroup, zero at first; the shape is constant"),
        Intrinsic("subgroup_ballot", ("predicate",), "bit k says whether the predicate holds in lane k, u32"),
        Intrinsic("subgroup_shuffle", ("value", "lane"), "the value that another lane has"),
        Intrinsic("subgroup_reduce", ("op", "value"), "the lanes' values combined by 'add', 'min', 'max', ..."),
        Intrinsic("subgroup_lane", (), "the invocation's lane in its subgroup, u32"),
        Intrinsic("subgroup_size", (), "the number of lanes of a subgroup, u32"),
        Intrinsic("call", ("operation", "..."), "a registered operation of the IR, by its id, on values"),
        Intrinsic(
            "opaque",
            ("kind", "payload", "type=None"),
            "a registered extension of the IR, on bytes: a value of that type, or statements",
        ),
        Intrinsic("trap", ("address", "tag"), "asks the host, and waits for the next resume of that tag"),
        Intrinsic("resume", ("tag",), "the whole grid waits while the host's handler answers the traps of that tag"),
        Intrinsic(
            "async_load",
            ("source", "destination", "offset", "size", "tag"),
            "captures bytes of source from a byte offset on; the wait writes them at the start of destination",
        ),
        Intrinsic(
            "async_store",
            ("source", "destination", "offset", "size", "tag"),
            "captures the first bytes of source; the wait writes them at a byte offset of destination",
        ),
        Intrinsic("async_wait", ("tag",), "completes the transfer of that tag"),
        Intrinsic(
            "copy_bytes",
            ("source", "destination", "source_offset", "destination_offset", "size"),
            "copies bytes between two arrays, whatever their types",
        ),
        Intrinsic(
            "indirect_dispatch",
            ("counts", "at=0"),
            "the grid is three u32 of an array, from an element on; the first statement of a kernel, launched by "
            "kernel.grid()",
        ),
        Intrinsic("all_reduce", ("op", "array", "group"), "combines an array over the ranks: 'add', 'min', ..."),
        Intrinsic("all_gather", ("source", "destination", "group"), "joins the ranks' arrays"),
        Intrinsic(
            "reduce_scatter",
            ("op", "source", "destination", "group"),
            "combines an array over the ranks, and gives each its share",
        ),
        Intrinsic("broadcast", ("array", "root", "group"), "everybody gets the array of that rank"),
    )
}

# Python's own functions that mean the same in a kernel.
OF_PYTHON: Final[dict[Any, Intrinsic]] = {
    getattr(builtins, name): INTRINSICS[name] for name in ("min", "max", "abs", "round")
}
