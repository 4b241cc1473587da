"""What is a program while it is optimised? Columns of numbers, with one row for each value and each statement.

A value's row names its operands by their rows, so equal rows are equal values, wherever they stand. Names are gone: the
use of a variable is the row of its value. Where control flow joins, that is a row which stands for the variable's
memory cell: PHI behind a branch, LOOP at a loop's head, JOIN behind a loop and wherever else paths meet, CELL where
nothing is known. Rows of statements hold their operands, and what else has to stay if they do.

| column | meaning |
|---|---|
| head | kind, type and operator in one word |
| a0 a1 a2 | operand rows; the bits of a literal; the version and the buffer of a load; NONE |
| scope | where a row that cannot move stands; of a load, where its memory got its version |
| d0 d1 | rows that have to stay where this one does: definitions of a cell, statements around a statement |
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np

from vyre.ir.binding import Array
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

NONE: Final = 0xFFFFFFFF


class Kind(IntEnum):
    """What a row is. Values come first; from EFFECT on rows are statements."""

    LITERAL = 1
    OPERATION = 2
    LEAF = 3
    LOAD = 4
    LOOP_VARIABLE = 5
    PINNED = 6
    PHI = 7
    JOIN = 8
    LOOP = 9
    CELL = 10
    EFFECT = 16
    CONTROL = 17
    ASSIGN = 18
    DECLARATION = 19
    JUMP = 20


# Values that have a place to be found for them; their codes are next to each other.
MOVABLE: Final = (Kind.OPERATION, Kind.LEAF, Kind.LOAD)
# Values that name no rows, or, as cells do, rows that are needed only where they stand.
USES_NOTHING: Final = (Kind.LITERAL, Kind.LEAF, Kind.LOOP_VARIABLE, Kind.PHI, Kind.JOIN, Kind.LOOP, Kind.CELL)


class Leaf(IntEnum):
    """The values that depend on nothing in the program."""

    INVOCATION_ID = 0
    WORKGROUP_ID = 1
    LOCAL_ID = 2
    NUM_WORKGROUPS = 3
    LENGTH = 4
    SUBGROUP_LANE = 5
    SUBGROUP_SIZE = 6


class Arm(IntEnum):
    """When the list of a scope runs: always, by the condition of the statement around it, or by a loop's bounds."""

    ALWAYS = 0
    IF_TRUE = 1
    IF_FALSE = 2
    IN_RANGE = 3


TYPES: Final = tuple(DType)
TYPE_CODES: Final = {dtype: code for code, dtype in enumerate(TYPES)}
# Operators of the table in its order, and then those that have nodes of their own.
OPERATIONS: Final = (*OPERATORS, "select", "cast", "bitcast", "fma")
OPERATION_CODES: Final = {name: code for code, name in enumerate(OPERATIONS)}


def head(kind: Kind, dtype: DType | None = None, operation: int = 0) -> int:
    """The word that says what a row is."""
    return kind | (0 if dtype is None else TYPE_CODES[dtype]) << 8 | operation << 16


def operation_head(name: str, operand: DType) -> int:
    """The head of an operation, by the type that its result goes by: that of its operands, or that of a cast."""
    dtype = OPERATORS[name].result_type(operand) if name in OPERATORS else operand
    return head(Kind.OPERATION, dtype, OPERATION_CODES[name])


def kind_of(word: int) -> int:
    return word & 0xFF


def type_of(word: int) -> DType:
    return TYPES[word >> 8 & 0xFF]


def operation_of(word: int) -> int:
    return word >> 16


COLUMNS: Final = ("head", "a0", "a1", "a2", "scope", "d0", "d1")


class Arena(msgspec.Struct, frozen=True, eq=False):
    """A program's rows, and its scopes in preorder.

    ``level`` says how many operations deep a value is, ``order`` are the rows of values by level, operands before those
    who use them, and ``levels`` where each level begins in it. A scope has its ``parent``, the ``last`` scope inside,
    the number of ``loops`` around it, that of those in which invocations meet (``meetings``), and the ``control`` row
    and the ``arm`` that say when its list runs. A row has the ``meetings`` of the scope that it was made in; where all
    have none, one zero says so.
    """

    rows: int
    columns: dict[str, Array]
    level: Array
    order: Array
    levels: Array
    meetings: Array
    scope_parent: Array
    scope_last: Array
    scope_loops: Array
    scope_meetings: Array
    scope_control: Array
    scope_arm: Array

    @property
    def level_count(self) -> int:
        return len(self.levels) - 1


def order_by_level(by_row: Array) -> tuple[Array, Array, Array]:
    """The level of each row, the rows that have one (not -1) by level, and where each level begins."""
    order = np.flatnonzero(by_row >= 0).astype(np.uint32)
    levels = by_row[order]
    counts: Any = np.bincount(levels, minlength=1) if len(order) else np.zeros(1, np.int64)
    if len(counts) <= 1 << 16:
        # Sixteen bits are sorted without comparing.
        levels = levels.astype(np.uint16)
    order = order[np.argsort(levels, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return by_row.view(np.uint32), order, starts.astype(np.uint32)
