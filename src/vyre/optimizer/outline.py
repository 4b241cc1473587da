"""The outline of an encoded program: its statements in lists, with operands as rows, and the source's names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE
from vyre.semantics.types import DType


class Variable(msgspec.Struct, eq=False):
    """A variable that is assigned after its declaration, or is visible at a resume: a cell.

    ``depth`` is that of its scope. The declaration of a ``sticky`` variable and its assignments are always live.
    """

    name: str
    dtype: DType
    depth: int
    declaration: int
    sticky: bool


class Effect(msgspec.Struct, eq=False, gc=False):
    """A statement with an effect; ``clobbers`` are the memory versions that end there."""

    statement: n.Stmt
    row: int
    operands: tuple[int, ...]
    clobbers: Sequence[int]


class Pinned(msgspec.Struct, eq=False, gc=False):
    """A value computed at its place in the source, because it changes memory or depends on the active lanes."""

    node: n.Expr
    row: int
    operands: tuple[int, ...]
    clobbers: Sequence[int]
    has_effect: bool


class Assigned(msgspec.Struct, eq=False, gc=False):
    """The declaration of a cell, or an assignment to it."""

    variable: Variable
    row: int
    value: int
    declares: bool


class Bound(msgspec.Struct, eq=False, gc=False):
    """From here on, a row is the value that a cell holds."""

    variable: Variable
    row: int


class Items(msgspec.Struct, eq=False):
    """A statement list and its scope. ``falls_through`` says whether control can reach its end."""

    scope: int
    items: list[Effect | Pinned | Assigned | Bound | Control | Jump]
    falls_through: bool = True


class Control(msgspec.Struct, eq=False):
    """A statement with lists. ``heads`` are bound at a loop's head, ``joins`` behind the statement.

    ``assigns`` are the assignments inside, by the variables declared outside. ``end`` is the first row behind the
    statement's own. ``counter`` is the row of a loop's variable.
    """

    statement: n.Stmt
    row: int
    operands: tuple[int, ...]
    lists: list[Items]
    heads: list[Bound]
    joins: list[Bound]
    clobbers: Sequence[int]
    assigns: dict[Variable, list[int]]
    end: int
    counter: int = NONE


class Jump(msgspec.Struct, eq=False, gc=False):
    """A break, continue or return."""

    statement: n.Stmt
    row: int


class Outline(msgspec.Struct, frozen=True, eq=False):
    """What decoding needs beside the rows: the program, its body, names, and the loads of each memory version.

    ``names`` are the names declared in each list; ``named`` are rows and their names, in order. ``skips`` says that
    unreachable statements were left out.
    """

    program: Program
    body: Items
    names: Sequence[Sequence[str]]
    named: tuple[Sequence[int], Sequence[str]]
    loads: dict[int, list[int]]
    skips: bool = False
