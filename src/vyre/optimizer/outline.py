"""What do the rows leave out? The statements in their lists, with the rows of their operands, and names for values."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE
from vyre.semantics.types import DType


class Variable(msgspec.Struct, eq=False):
    """A variable that is assigned: a memory cell."""

    name: str
    dtype: DType
    depth: int
    declaration: int
    sticky: bool


class Effect(msgspec.Struct, eq=False, gc=False):
    """A statement that does something where it stands; ``kills`` are the versions of memory that end there."""

    statement: n.Stmt
    row: int
    operands: tuple[int, ...]
    kills: Sequence[int]


class Pinned(msgspec.Struct, eq=False, gc=False):
    """A value that is computed where it stands, because it changes memory or depends on who is active."""

    node: n.Expr
    row: int
    operands: tuple[int, ...]
    kills: Sequence[int]
    has_effect: bool


class Assigned(msgspec.Struct, eq=False, gc=False):
    """A cell gets a value, and at its declaration a name."""

    variable: Variable
    row: int
    value: int
    declares: bool


class Bound(msgspec.Struct, eq=False, gc=False):
    """From here on a row stands for what a cell holds."""

    variable: Variable
    row: int


class Items(msgspec.Struct, eq=False):
    """A list of statements with its scope. ``falls`` says whether control can reach its end."""

    scope: int
    items: list[Effect | Pinned | Assigned | Bound | Control | Jump]
    falls: bool = True


class Control(msgspec.Struct, eq=False):
    """A statement with lists. ``heads`` are bound at a loop's head, ``joins`` behind the statement.

    ``assigns`` are the rows of the assignments inside, by the variables of lists outside. All rows of what is inside
    are before ``end``. ``counter`` is the row of a loop's variable.
    """

    statement: n.Stmt
    row: int
    operands: tuple[int, ...]
    lists: list[Items]
    heads: list[Bound]
    joins: list[Bound]
    kills: Sequence[int]
    assigns: dict[Variable, list[int]]
    end: int
    counter: int = NONE


class Jump(msgspec.Struct, eq=False, gc=False):
    """A break, a continue or a return."""

    statement: n.Stmt
    row: int


class Outline(msgspec.Struct, frozen=True, eq=False):
    """What the rows leave out: the program itself, its statements, names, and loads by memory version.

    ``names`` are those of each list, ``named`` are rows and what they are called, in order. ``skips`` says that
    statements which nobody comes to were left out.
    """

    program: Program
    body: Items
    names: Sequence[Sequence[str]]
    named: tuple[Sequence[int], Sequence[str]]
    loads: dict[int, list[int]]
    skips: bool = False
