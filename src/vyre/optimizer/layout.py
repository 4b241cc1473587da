"""Memory layout of the kernels: records of columns, registers, and the sizes that host and kernels share.

Kernels name columns. In memory, some columns are fields of one record, so that a row occupies one cache line instead
of one per column.

A level range is what the kernels process between two grid barriers: one level of the arena, processed in parallel, or
a serial range, a run of consecutive levels of one row each, which one invocation processes alone. The buffer
``level_ranges`` holds the start of each range in the order of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program

# Invocations of a workgroup.
WORKGROUP: Final = 64
# Marks the start of a serial level range in ``level_ranges``.
SERIAL: Final = 1 << 31
# The packed form of a place that is NONE.
PACKED_NOWHERE: Final = (1 << 30) - 1
# Registers per invocation for the rule table's bytecode.
REGISTERS: Final = 32
# The columns of each record, and the words from one record to the next: a row's record is one cache line.
RECORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "records": ("head", "a0", "a1", "a2", "canon", "earliest", "place", "uses", "known0", "known1", "known2",
                "known3", "live", "level", "key"),
    "table": ("slots", "best"),
}  # fmt: skip
WORDS: Final = {"records": 16, "table": 2}
_FIELDS: Final = {name: (record, field) for record, names in RECORDS.items() for field, name in enumerate(names)}


def in_records(program: Program) -> Program:
    """Return a program that names columns as one that accesses the records it declares."""

    def addressed(node: Any) -> Any:
        match node:
            case n.Load(column, index) | n.Store(column, index) | n.Atomic(buffer=column, index=index):
                if column in _FIELDS:
                    record, field = _FIELDS[column]
                    word = n.BinOp("add", n.BinOp("mul", index, n.lit(WORDS[record])), n.lit(field))
                    return msgspec.structs.replace(node, buffer=record, index=word)
        return node

    entry = walk.rewrite(program.entry, on_expression=addressed, on_statement=lambda statement: (addressed(statement),))
    return program.with_entry(entry)
