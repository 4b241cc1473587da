"""How do values differ between the lanes of a vector, and which loops do lanes leave at different times?

A value is the same in all lanes, or grows by a constant stride from lane to lane, or differs in any way (``Shape``).
Lanes run in lockstep, so a variable has the shape of its values if they all have the same one, and it gets them where
all lanes that can see it are. So has a variable that only one loop looks at, as the counter of a ``while``: lanes
that have left the loop never see it again, and those that are in it have made the same passes. Found from below: a
variable has the shape of the first value it gets until something says otherwise, and everything is looked at again
until nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from vyre.analyze.agreement import GRID, INVOCATION, SUBGROUP, WORKGROUP, agreed_by
from vyre.analyze.effects import assigned_variables
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.types import DType

_IDS: Final = (n.InvocationId, n.WorkgroupId, n.LocalId)
_MOST_PASSES: Final = 12


class Shape(msgspec.Struct, frozen=True):
    """How a value differs between lanes: not at all, by a stride from lane to lane (modulo its type), or in any way.

    ``wraps`` says of a linear value that a later lane's may have wrapped around.
    """

    stride: int | None
    dtype: DType = DType.U32
    wraps: bool = True

    UNIFORM: ClassVar[Shape]
    LINEAR: ClassVar[Shape]
    VARYING: ClassVar[Shape]

    @property
    def is_linear(self) -> bool:
        return bool(self.stride)


Shape.UNIFORM = Shape(0, wraps=False)
Shape.LINEAR = Shape(1, wraps=False)
Shape.VARYING = Shape(None)


class Layout(msgspec.Struct, frozen=True):
    """How invocations lie in vectors of ``step``: one after the other, x first, from the start of a workgroup.

    If ``flat``, along an ``axis`` of the whole grid from its start, over the ends of workgroups; the ids of the other
    axes are uniform. In ``agreed`` buffers all lanes find the same, whatever their index is. ``known`` are the shapes
    of expressions, by identity, for which more is known than follows from their operands.
    """

    workgroup_size: tuple[int, int, int]
    step: int
    flat: bool = False
    agreed: frozenset[str] = frozenset()
    axis: int = 0
    known: Mapping[int, Shape] = {}

    def shape_of(self, node: n.Expr, given: Sequence[Shape] = ()) -> Shape:
        """The shape of what a node gives, by those of its operands. What a variable holds is not known here."""
        found = self.known.get(id(node))
        if found is not None:
            return found
        if self.step == 1 or (isinstance(node, n.Load) and node.buffer in self.agreed):
            return Shape.UNIFORM
        if isinstance(node, n.SubgroupLocalId):
            return Shape.LINEAR
        level = agreed_by(node, self.workgroup_size)
        if isinstance(node, _IDS):
            return self._shape_of_id(node, level)
        if level == INVOCATION:
            return Shape.VARYING
        if level == SUBGROUP:
            return Shape.UNIFORM
        uniform = True
        for shape in given:
            if shape.stride is None:
                return Shape.VARYING
            uniform = uniform and not shape.stride
        return Shape.UNIFORM if uniform else _linear(node, given)

    def _shape_of_id(self, node: n.InvocationId | n.WorkgroupId | n.LocalId, level: int) -> Shape:
        x, y, z = self.workgroup_size
        if self.flat:
            if node.axis != self.axis or level == GRID:
                return Shape.UNIFORM
            if isinstance(node, n.InvocationId):
                return Shape.LINEAR
            if self.workgroup_size[self.axis] % self.step:
                return Shape.VARYING
            return Shape.UNIFORM if isinstance(node, n.WorkgroupId) else Shape.LINEAR
        if level <= WORKGROUP:
            return Shape.UNIFORM
        if (y, z) != (1, 1) and x % self.step:
            return Shape.VARYING
        return Shape.UNIFORM if node.axis else Shape.LINEAR


def _linear(node: n.Expr, given: Sequence[Shape]) -> Shape:
    """The shape of an operator on values of which some are linear and none varies otherwise."""
    first = given[0]
    dtype = next(shape.dtype for shape in given if shape.stride)
    strides = [shape.stride or 0 for shape in given]
    match node:
        case n.BinOp("add"):
            return _strided(sum(strides), dtype)
        case n.BinOp("sub"):
            return _strided(strides[0] - strides[1], dtype)
        case n.BinOp("mul", n.Lit(bits), _):
            return _strided(bits * strides[1], dtype)
        case n.BinOp("mul", _, n.Lit(bits)):
            return _strided(strides[0] * bits, dtype)
        case n.BinOp("shl", _, n.Lit(bits)):
            return _strided(strides[0] << (bits & (dtype.bits - 1)), dtype)
        case n.UnOp("neg" | "not"):
            return _strided(-strides[0], dtype)
        case n.Select() if not strides[0] and strides[1] == strides[2]:
            return Shape(strides[1], dtype, given[1].wraps or given[2].wraps)
        case n.Cast(target) | n.Bitcast(target) if target is dtype:
            return first
        case n.Cast(target) | n.Bitcast(target) if target.is_integer and target.bits <= dtype.bits:
            return _strided(strides[0], target)
        case n.Cast(target) if target.is_integer and not first.wraps:
            return Shape(strides[0], target, wraps=False)
    return Shape.VARYING


def _strided(stride: int, dtype: DType) -> Shape:
    half = 1 << (dtype.bits - 1)
    stride = (stride + half) % (2 * half) - half
    return Shape(stride, dtype) if stride else Shape.UNIFORM


def _joined(a: Shape, b: Shape) -> Shape:
    """The shape of what may have the one or the other."""
    if a.stride != b.stride:
        return Shape.VARYING
    return b if b.wraps else a


class _OpenLoop(msgspec.Struct, frozen=True):
    """A loop under way: its number, and the tokens around it and in it."""

    statement: n.Stmt
    number: int
    outside: int
    inside: int


class Shapes:
    """What the lanes of a layout make of a program whose variables have unique names.

    ``variables`` have their shapes, ``assigned`` are those that are assigned. ``divergent`` are the loops that lanes
    leave at different times, ``in_step`` the assignments by all lanes that will ever look at the variable again; both
    by identity, and what stands in several places is what it is in each of them.
    """

    def __init__(self, program: Program, layout: Layout) -> None:
        self.layout = layout
        self.variables: dict[str, Shape] = {}
        self.divergent: set[int] = set()
        self._confined = _confined_to_loops(program)
        self.assigned = assigned_variables(program)
        for _ in range(_MOST_PASSES):
            self._changed = False
            self._tokens: dict[str, int] = {}
            self._count = 0
            self._loops: list[_OpenLoop] = []
            self._loop_count = 0
            self.in_step: set[int] = set()
            self._apart: set[int] = set()
            self._visit(program.entry, 0)
            if not self._changed:
                self.in_step -= self._apart
                return
        # A chain of variables too long to follow: everything varies, which is always safe to say.
        self.variables = dict.fromkeys(self.variables, Shape.VARYING)
        self.in_step = set()
        self.divergent |= {id(s) for s in walk.statements(program.entry) if isinstance(s, (n.Loop, n.While))}

    def of(self, root: n.Expr) -> Shape:
        """The shape of an expression."""
        return walk.fold(root, self.of_node)

    def of_node(self, node: n.Expr, given: list[Shape]) -> Shape:
        """The shape of what a node gives, by those of its operands."""
        return self.variables[node.name] if isinstance(node, n.Var) else self.layout.shape_of(node, given)

    def _fresh(self) -> int:
        self._count += 1
        return self._count

    def _gets(self, name: str, shape: Shape) -> None:
        known = self.variables.get(name)
        joined = shape if known is None else _joined(known, shape)
        if joined != known:
            self.variables[name] = joined
            self._changed = True

    def _diverges(self, loop: n.Stmt) -> None:
        if id(loop) not in self.divergent:
            self.divergent.add(id(loop))
            self._changed = True

    def _visit(self, body: n.Body, token: int) -> None:
        """``token`` names the set of lanes that come here: the same token, the same lanes."""
        for statement in body:
            match statement:
                case n.Let(name, value):
                    self._tokens[name] = token
                    self._gets(name, self.of(value))
                case n.Assign(name, value):
                    in_step = self._tokens[name] == token or self._stays_in_step(name, token)
                    (self.in_step if in_step else self._apart).add(id(statement))
                    self._gets(name, self.of(value) if in_step else Shape.VARYING)
                case n.If(condition, then, otherwise):
                    varies = self.of(condition) is not Shape.UNIFORM
                    self._visit(then, self._fresh() if varies else token)
                    self._visit(otherwise, self._fresh() if varies else token)
                case n.Loop(var, start, stop, inside):
                    first = self.of(start)
                    self._gets(var, Shape(first.stride, first.dtype) if first.is_linear else first)
                    if first is not Shape.UNIFORM or self.of(stop) is not Shape.UNIFORM:
                        self._diverges(statement)
                    self._visit_loop(statement, inside, token)
                case n.While(condition, inside):
                    if self.of(condition) is not Shape.UNIFORM:
                        self._diverges(statement)
                    self._visit_loop(statement, inside, token)
                case n.Break() | n.Continue():
                    loop = self._loops[-1]
                    if loop.inside != token:
                        self._diverges(loop.statement)
                case _:
                    for inside in walk.bodies(statement):
                        self._visit(inside, token)

    def _visit_loop(self, loop: n.Stmt, body: n.Body, token: int) -> None:
        inside = self._fresh() if id(loop) in self.divergent else token
        self._loop_count += 1
        self._loops.append(_OpenLoop(loop, self._loop_count, token, inside))
        self._visit(body, inside)
        self._loops.pop()

    def _stays_in_step(self, name: str, token: int) -> bool:
        """Whether a variable that only one loop looks at is assigned by all lanes of its passes."""
        number = self._confined.get(name)
        return any(
            loop.number == number and loop.inside == token and loop.outside == self._tokens[name]
            for loop in self._loops
        )


def _confined_to_loops(program: Program) -> dict[str, int]:
    """For each variable that is read and assigned in one loop alone, and declared anew before it: the loop's number.

    Loops are numbered in canonical order, from 1. Loops with a ``continue`` are left out: it leads around assignments.
    """
    homes: dict[str, int] = {}
    found: dict[str, int] = {}
    spoiled: set[str] = set()
    around: list[int] = []
    count = 0

    def use(name: str) -> None:
        depth = homes.get(name)
        if depth is None or depth >= len(around) or found.setdefault(name, around[depth]) != around[depth]:
            spoiled.add(name)

    def read(roots: Iterable[n.Expr]) -> None:
        for root in roots:
            for node in walk.postorder(root):
                if isinstance(node, n.Var):
                    use(node.name)

    def visit(body: n.Body) -> None:
        nonlocal count
        for statement in body:
            is_loop = isinstance(statement, (n.Loop, n.While))
            if isinstance(statement, n.Loop):
                read(walk.operands(statement))
            if is_loop:
                count += 1
                around.append(count)
            if not isinstance(statement, n.Loop):
                read(walk.operands(statement))
            match statement:
                case n.Let(name):
                    homes[name] = len(around)
                case n.Assign(name):
                    use(name)
                case n.Continue():
                    skipping.add(around[-1])
            for inner in walk.bodies(statement):
                visit(inner)
            if is_loop:
                around.pop()

    skipping: set[int] = set()
    visit(program.entry)
    return {name: loop for name, loop in found.items() if name not in spoiled and loop not in skipping}
