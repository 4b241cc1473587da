"""Facts from dominating conditions: a walk over a program that knows at each place what holds there.

One walk in order. Every value gets a number (``vyre.analyze.relations``), so an assignment gives its variable another
one and takes nothing back that is known of the old. Where paths meet and at the heads of loops, variables that may have
several values get numbers of which little is known. What branches, loops and early exits say is known in what they
dominate. Two users: ``proved_accesses`` here, for accesses that need no check, and ``vyre.optimizer.guards``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vyre.analyze.effects import written_buffers
from vyre.analyze.intervals import Range
from vyre.analyze.outline import LoopShape, outline
from vyre.analyze.relations import Relations
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_AXIS_INVOCATIONS, MAX_ELEMENTS
from vyre.ir.program import Program
from vyre.semantics.types import DType

_IDS: Final = (n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups, n.SubgroupLocalId, n.SubgroupSize)


def is_walkable(program: Program) -> bool:
    """Whether a walk knows what happens in a program.

    Invocations that trap go on elsewhere, and an extension may mean anything.
    """
    stats = program.stats()
    return not stats.has_traps and not stats.has_extensions


def proved_accesses(program: Program, changing: frozenset[str] = frozenset()) -> frozenset[int]:
    """The loads, stores and atomics of a legal program whose index is in bounds whenever they happen, by identity.

    What stands in several places is among them if that is so in each of them. ``changing`` are buffers that others
    write meanwhile, beside those that the program writes.
    """
    if not program.buffers or not is_walkable(program):
        return frozenset()
    return Proofs(program, changing).proved()


class RangeWalk(Relations):
    """The walk: the numbers of the variables, and what is known of numbers here."""

    def __init__(self, program: Program, changing: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.program = program
        self.loops: Iterator[LoopShape] = iter(outline(program).loops)
        self.buffers = program.buffers_by_name
        # Loads from the other buffers see what another invocation may write between two of them.
        self.fixed = self.buffers.keys() - changing - written_buffers(program)
        self.variables: dict[str, int] = {}
        # Which number a variable had before it was assigned.
        self.assigned: list[tuple[str, int | None]] = []

    def length(self, buffer: str) -> int:
        count = self.buffers[buffer].count
        return self.number(
            DType.U32, "length", buffer, always=Range(count, count) if count else Range(0, MAX_ELEMENTS)
        )

    def _set(self, name: str, number: int) -> None:
        self.assigned.append((name, self.variables.get(name)))
        self.variables[name] = number

    def evaluate(self, root: n.Expr) -> int:
        """The number of an expression; expressions are evaluated in canonical order."""
        return walk.fold(root, self.expression)

    def expression(self, node: n.Expr, given: list[int]) -> int:
        """The number of a node, by those of its operands."""
        match node:
            case n.Var(name):
                return self.variables[name]
            case n.Lit(bits, dtype):
                return self.literal(bits, dtype)
            case n.Load(buffer):
                self.access(node, buffer, given[0])
                key = ("load", buffer, given[0]) if buffer in self.fixed else ()
                return self.number(self.buffers[buffer].dtype, *key)
            case n.Atomic():
                self.access(node, node.buffer, given[0])
                return self.number(self.buffers[node.buffer].dtype)
            case n.BufLen(buffer):
                return self.length(buffer)
            case n.BinOp(op) | n.UnOp(op):
                return self.computed(op, *given)
            case n.Select():
                return self.computed("select", *given)
            case n.Cast(target) | n.Bitcast(target):
                source = self.types[given[0]]
                whole = not source.is_float and (isinstance(node, n.Cast) or source.is_integer)
                return self.cast(target, given[0]) if whole else self.number(target)
            case n.Fma() | n.SubgroupReduce() | n.SubgroupShuffle():
                return self.number(self.types[given[0]])
            case _:
                return self._id(node)

    def _id(self, node: n.Expr) -> int:
        lanes, always = self.program.subgroup_size, None
        match node:
            case n.InvocationId():
                always = Range(0, MAX_AXIS_INVOCATIONS - 1)
            case n.WorkgroupId(axis):
                always = Range(0, MAX_AXIS_INVOCATIONS // self.program.workgroup_size[axis] - 1)
            case n.NumWorkgroups(axis):
                always = Range(0, MAX_AXIS_INVOCATIONS // self.program.workgroup_size[axis])
            case n.LocalId(axis):
                always = Range(0, self.program.workgroup_size[axis] - 1)
            case n.SubgroupLocalId():
                always = Range(0, lanes - 1)
            case n.SubgroupSize():
                always = Range(lanes, lanes)
        key = (type(node), getattr(node, "axis", 0)) if isinstance(node, _IDS) else ()
        return self.number(DType.U32, *key, always=always)

    def access(self, node: n.Node, buffer: str, index: int) -> None:
        """A load, a store or an atomic, at its place."""

    def walk(self) -> None:
        self._list(self.program.entry)

    def _list(self, body: n.Body) -> bool:
        """Walks a list; gives whether its end may be reached."""
        falls = True
        for statement in body:
            match statement:
                case n.Let(name, value) | n.Assign(name, value):
                    self._set(name, self.evaluate(value))
                case n.Store(buffer, index, value):
                    at = self.evaluate(index)
                    self.evaluate(value)
                    self.access(statement, buffer, at)
                case n.If(condition, then, otherwise):
                    falls = self._if(self.evaluate(condition), then, otherwise) and falls
                case n.Loop() | n.While():
                    self._loop(statement)
                case n.Block(inner) | n.Region(body=inner):
                    falls = self._list(inner) and falls
                case n.Break() | n.Continue() | n.Return():
                    falls = False
                case _:
                    for root in walk.operands(statement):
                        self.evaluate(root)
        return falls

    def _if(self, condition: int, then: n.Body, otherwise: n.Body) -> bool:
        now, assigned = self.now(), len(self.assigned)
        self.assume(condition, True)
        then_falls = self._list(then)
        then_values = self._taken_back(assigned)
        self.forget(now)
        self.assume(condition, False)
        falls = self._list(otherwise)
        if falls and not then_falls:
            return True
        values = self._taken_back(assigned)
        self.forget(now)
        if then_falls and not falls:
            self.assume(condition, True)
            for name, (number, _) in then_values.items():
                self._set(name, number)
            return True
        for name in dict.fromkeys((*then_values, *values)):
            if name in self.variables:
                before = self.variables[name]
                one, two = (side.get(name, (before, self.known(before))) for side in (then_values, values))
                self._set(name, one[0] if one[0] == two[0] else self._merged(one, two))
        return falls

    def _taken_back(self, since: int) -> dict[str, tuple[int, Range]]:
        """The variables assigned since, with their numbers and what is known of them; they get their old ones back."""
        found: dict[str, tuple[int, Range]] = {}
        while len(self.assigned) > since:
            name, before = self.assigned.pop()
            if name not in found:
                number = self.variables[name]
                found[name] = number, self.known(number)
            if before is None:
                del self.variables[name]
            else:
                self.variables[name] = before
        return found

    def _merged(self, one: tuple[int, Range], two: tuple[int, Range]) -> int:
        number = self.number(self.types[one[0]])
        if not self.types[number].is_float:
            self.learn(number, one[1].hull(two[1]))
        return number

    def _loop(self, loop: n.Loop | n.While) -> None:
        shape = next(self.loops)
        bounds = [self.evaluate(root) for root in walk.operands(loop)] if isinstance(loop, n.Loop) else []
        self._lose(shape)
        now = self.now()
        if isinstance(loop, n.Loop):
            counter = self.number(DType.U32)
            self._set(loop.var, counter)
            for less, more, gap in ((*bounds, 1), (bounds[0], counter, 0), (counter, bounds[1], 1)):
                self.order(less, more, gap)
        else:
            self.assume(self.evaluate(loop.condition), True)
        self._list(loop.body)
        self.forget(now)
        self._lose(shape)

    def _lose(self, shape: LoopShape) -> None:
        """Variables that a loop assigns may have any value at its head, and behind it."""
        for name in shape.assigned:
            if name in self.variables:
                self._set(name, self.number(self.types[self.variables[name]]))


class Proofs(RangeWalk):
    """A walk that finds the accesses in bounds."""

    def __init__(self, program: Program, changing: frozenset[str] = frozenset()) -> None:
        super().__init__(program, changing)
        self._inside: set[int] = set()
        self._outside: set[int] = set()

    def proved(self) -> frozenset[int]:
        self.walk()
        return frozenset(self._inside - self._outside)

    def access(self, node: n.Node, buffer: str, index: int) -> None:
        length = self.length(buffer)
        if not self.is_less(index, length):
            self.derive_again(index)
        (self._inside if self.is_less(index, length) else self._outside).add(id(node))
