"""The arena: a program as columns of numbers, with one row for each value and each statement.

A value's row names its operands by their rows, so rows with equal columns are equal values wherever they stand. Names
are gone: the use of a variable is the row of its value. Where paths join, a row is the value of the variable's memory
cell: PHI behind a branch, LOOP at a loop's head, JOIN behind a loop and at other joins, CELL where nothing is known.
Rows of statements hold their operands, and the rows that must stay if they do.

| column | meaning |
|---|---|
| head | kind, type and operator in one word |
| a0 a1 a2 | operand rows; the bits of a literal; the index, version and buffer of a load; NONE |
| scope | the scope of a row that does not move; of a load, the scope in which its memory version begins |
| d0 d1 | rows that must stay if this one does: definitions of a cell, statements around a statement |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec
import numpy as np

from vyre.ir.binding import Array
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

NONE: Final = 0xFFFFFFFF


class Kind(IntEnum):
    """The kind of a row: a value, or, from EFFECT on, a statement."""

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


# Values that the optimizer places; their codes are consecutive.
MOVABLE: Final = (Kind.OPERATION, Kind.LEAF, Kind.LOAD)
# Values without operands to keep alive; the definitions of a cell (d0, d1) keep its value instead.
WITHOUT_OPERANDS: Final = (Kind.LITERAL, Kind.LEAF, Kind.LOOP_VARIABLE, Kind.PHI, Kind.JOIN, Kind.LOOP, Kind.CELL)


class Leaf(IntEnum):
    """Values that do not depend on other rows: ids and sizes."""

    INVOCATION_ID = 0
    WORKGROUP_ID = 1
    LOCAL_ID = 2
    NUM_WORKGROUPS = 3
    LENGTH = 4
    SUBGROUP_LANE = 5
    SUBGROUP_SIZE = 6


class Arm(IntEnum):
    """When the list of a scope runs: always, by the condition of its control statement, or by a loop's bounds."""

    ALWAYS = 0
    IF_TRUE = 1
    IF_FALSE = 2
    IN_RANGE = 3


TYPES: Final = tuple(DType)
TYPE_CODES: Final = {dtype: code for code, dtype in enumerate(TYPES)}
# The operators of the table in its order, then the operations that have their own nodes.
OPERATIONS: Final = (*OPERATORS, "select", "cast", "bitcast", "fma")
OPERATION_CODES: Final = {name: code for code, name in enumerate(OPERATIONS)}


def head(kind: Kind, dtype: DType | None = None, operation: int = 0) -> int:
    """The head of a row."""
    return kind | (0 if dtype is None else TYPE_CODES[dtype]) << 8 | operation << 16


def operation_head(name: str, operand: DType) -> int:
    """The head of an operation on operands of a type; of a cast or a bitcast, by its target type."""
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

    ``level`` is the depth of a value in operations, ``order`` the rows of values by level, operands before users, and
    ``levels`` where each level begins in it. A scope has its ``parent``, the ``last`` scope inside it, the number of
    ``loops`` around it, its ``barrier_depth``, and the ``control`` row and the ``arm`` by which its list runs. The
    barrier depth of a scope is the number of loops around it that contain a barrier; that of a row
    (``row_barrier_depth``) is the depth of the scope in which the row was made.
    """

    rows: int
    columns: dict[str, Array]
    level: Array
    order: Array
    levels: Array
    row_barrier_depth: Array
    scope_parent: Array
    scope_last: Array
    scope_loops: Array
    scope_barrier_depth: Array
    scope_control: Array
    scope_arm: Array

    @property
    def level_count(self) -> int:
        return len(self.levels) - 1


class Findings(msgspec.Struct, frozen=True, eq=False):
    """What the kernels find: for each row its representative (``canon``), and the rewritten words of representatives.

    ``live`` marks the rows that are needed. ``place`` is the scope in which to compute a value; of a row that does not
    move, the innermost scope around all its uses. ``uses`` counts uses by live rows. ``fired`` counts rules by name.
    """

    canon: Array
    head: Array
    a0: Array
    a1: Array
    a2: Array
    live: Array
    place: Array
    uses: Array
    fired: Mapping[str, int]
    sweeps: int


def order_by_level(by_row: Array) -> tuple[Array, Array, Array]:
    """Return the level of each row, the rows that have one (not -1) by level, and where each level begins."""
    order = np.flatnonzero(by_row >= 0).astype(np.uint32)
    levels = by_row[order]
    counts: Any = np.bincount(levels, minlength=1) if len(order) else np.zeros(1, np.int64)
    if len(counts) <= 1 << 16:
        # NumPy sorts 16-bit integers by radix.
        levels = levels.astype(np.uint16)
    order = order[np.argsort(levels, kind="stable")]
    starts = np.concatenate(([0], np.cumsum(counts)))
    return by_row.view(np.uint32), order, starts.astype(np.uint32)
