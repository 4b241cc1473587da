"""Memory layout of the kernels: records of columns, registers, and the sizes that host and kernels share.

Kernels name columns; in memory some of them are the fields of a record, so that a row costs one cache line instead of
one for each column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program

# Invocations of a workgroup.
WORKGROUP: Final = 64
# Marks a stretch of the order that one invocation goes through alone.
ALONE: Final = 1 << 31
# The place of a value that has none, as it is packed.
PACKED_NOWHERE: Final = (1 << 30) - 1
# Registers of each invocation, in which the rule table computes.
REGISTERS: Final = 32
# The columns by record, and how many words there are from one record to the next: a line of memory for each row.
RECORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "records": ("head", "a0", "a1", "a2", "canon", "early", "place", "uses", "known0", "known1", "known2",
                "known3", "live", "level", "key"),
    "table": ("slots", "best"),
}  # fmt: skip
WORDS: Final = {"records": 16, "table": 2}
_PLACES: Final = {name: (record, field) for record, names in RECORDS.items() for field, name in enumerate(names)}


def in_records(program: Program) -> Program:
    """A program that names columns, on the records that it declares."""

    def moved(node: Any) -> Any:
        match node:
            case n.Load(column, index) | n.Store(column, index) | n.Atomic(buffer=column, index=index):
                if column in _PLACES:
                    record, field = _PLACES[column]
                    place = n.BinOp("add", n.BinOp("mul", index, n.lit(WORDS[record])), n.lit(field))
                    return msgspec.structs.replace(node, buffer=record, index=place)
        return node

    entry = walk.rewrite(program.entry, on_expression=moved, on_statement=lambda statement: (moved(statement),))
    return program.with_entry(entry)
