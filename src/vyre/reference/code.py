"""What is a compiled program? Blocks of operations, and the points where an invocation stops."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.reference import operations as o
from vyre.semantics.scalars import Value


class Stop(Enum):
    """Why an invocation stops at a point."""

    SWITCH = "may give way to another invocation"
    SUBGROUP = "waits for the lanes of its subgroup"
    WORKGROUP = "waits for its workgroup"
    GRID = "waits for the grid"
    TRAP = "asks the host"
    END = "has ended"

    __hash__ = object.__hash__


class Point(msgspec.Struct, eq=False):
    """A stop in the program, and what happens there.

    ``number`` grows in program order, over points and loops alike. ``loops`` are the loops around the point: the
    number of each, and the register that counts its passes.
    """

    stop: Stop
    statement: int
    number: int
    loops: tuple[tuple[int, int], ...] = ()
    detail: Any = None

    def instance(self, r: o.Frame) -> tuple[int, ...]:
        """Which arrival at this point this is. Instances compare in the order of the program's execution."""
        if not self.loops:
            return (self.number,)
        return (*(part for number, passes in self.loops for part in (number, r[passes])), self.number)


class Block:
    """Straight-line operations and what follows: ``target``, or ``other`` when the register's value is false."""

    __slots__ = ("cost", "ops", "other", "point", "register", "target")

    def __init__(self) -> None:
        self.ops: list[o.Op] = []
        self.cost = 0
        self.register = 0
        self.target: Block = self
        self.other: Block | None = None
        self.point: Point | None = None


class Copy(msgspec.Struct, frozen=True):
    """At a grid point: the elements of source become those of destination, as many as both have."""

    source: str
    destination: str


class ResumePoint(msgspec.Struct, eq=False):
    """At a grid point: the host handles the tag's requests.

    ``declared`` are the variables of the list around it, with the sequence number of their declaration: those
    that a parked invocation passed over are zero for it.
    """

    tag: str
    block: Block
    declared: list[tuple[int, int, Value]]


class TrapPoint(msgspec.Struct, eq=False):
    """Where an invocation asks the host; ``resume`` is the point where it goes on, if one follows."""

    tag: str
    address: int
    sequence: int
    resume: Point | None = None


class Code(msgspec.Struct, frozen=True, eq=False):
    """A compiled program: the first block, the registers to copy, and which of them to fill with what."""

    program: Program
    entry: Block
    template: o.Frame
    cells: dict[str, int]
    bytes: dict[str, int]
    lengths: dict[str, int]
    ids: tuple[tuple[type[n.Expr], int, int], ...]
    uses_subgroups: bool
