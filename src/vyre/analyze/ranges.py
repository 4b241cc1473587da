"""Facts from dominating conditions: a walk over a program that knows at each place what holds there.

One walk in order. Every value gets a number (``vyre.analyze.relations``), so an assignment gives its variable another
one and takes nothing back that is known of the old. Where paths meet and at the heads of loops, variables that may have
several values get numbers of which little is known. What branches, loops and early exits say is known in what they
dominate. Two users: ``proofs_of`` here,
for accesses that need no check, and ``vyre.optimizer.guards``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.intervals import Range
from vyre.analyze.outline import LoopShape, outline
from vyre.analyze.relations import Relations
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.limits import MAX_AXIS_INVOCATIONS, MAX_ELEMENTS
from vyre.ir.program import Program
from vyre.semantics.types import DType

# How many literals an index may add, in a row.
_MAX_OFFSETS: Final = 4
_MAX_SHIFT: Final = 31
# Larger literals are bounds of a type or a grid, and no sizes.
_MAX_LITERAL_SIZE: Final = 1 << 30
_IDS: Final = (n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups, n.SubgroupLocalId, n.SubgroupSize)


def is_walkable(program: Program) -> bool:
    """Whether a walk knows what happens in a program.

    Invocations that trap go on elsewhere, and an extension may mean anything.
    """
    stats = program.stats()
    return not stats.has_traps and not stats.has_extensions


class SizeBound(msgspec.Struct, frozen=True):
    """What a launch may fulfil: the product of sizes is at most the length of a buffer.

    Each of the ``factors`` is the least of some u32 expressions without variables.
    """

    buffer: str
    factors: tuple[tuple[n.Expr, ...], ...]


class Proofs(msgspec.Struct, frozen=True):
    """The loads, stores and atomics whose index is in bounds whenever they happen, by identity.

    ``always`` are those in every launch, ``sized`` those in launches that fulfil all of ``required``. What stands in
    several places is among them if that is so in each of them.
    """

    always: frozenset[int] = frozenset()
    sized: frozenset[int] = frozenset()
    required: tuple[SizeBound, ...] = ()


def proofs_of(program: Program, changing: frozenset[str] = frozenset()) -> Proofs:
    """Prove accesses of a legal program.

    ``changing`` are buffers that others write meanwhile, beside those that the program writes.
    """
    if not program.buffers or not is_walkable(program):
        return Proofs()
    return _Proofs(program, changing).proofs()


def proved_accesses(program: Program) -> frozenset[int]:
    """The accesses of a legal program that are in bounds in every launch, by identity."""
    return proofs_of(program).always


class RangeWalk(Relations):
    """The walk: the numbers of the variables, and what is known of numbers here."""

    def __init__(self, program: Program, changing: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self.program = program
        self.loops: Iterator[LoopShape] = iter(outline(program).loops)
        self.buffers = program.buffers_by_name
        # Two loads from any other buffer may see different values. The host's handler may change every buffer.
        is_handled = program.stats().has(n.Resume)
        self.fixed = frozenset() if is_handled else self.buffers.keys() - changing - written_buffers(program)
        self.variables: dict[str, int] = {}
        # Which number a variable had before it was assigned.
        self.assigned: list[tuple[str, int | None]] = []

    def length(self, buffer: str) -> int:
        count = self.buffers[buffer].count
        return self.number(DType.U32, "length", buffer, always=Range(count, count) if count else Range(0, MAX_ELEMENTS))

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
            case n.BinOp(op) | n.UnOp(op):
                return self.computed(op, *given)
            case n.Load(buffer):
                self.access(node, buffer, given[0])
                key = ("load", buffer, given[0]) if buffer in self.fixed else ()
                return self.number(self.buffers[buffer].dtype, *key)
            case n.Atomic():
                self.access(node, node.buffer, given[0])
                return self.number(self.buffers[node.buffer].dtype)
            case n.BufLen(buffer):
                return self.length(buffer)
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


class _Proofs(RangeWalk):
    """A walk that finds the accesses in bounds."""

    def __init__(self, program: Program, changing: frozenset[str]) -> None:
        super().__init__(program, changing)
        self._seen: set[int] = set()
        self._unproved: set[int] = set()
        self._unsized: set[int] = set()
        self._required: dict[tuple[str, tuple[tuple[int, ...], ...]], None] = {}

    def proofs(self) -> Proofs:
        self.walk()
        required = tuple(
            SizeBound(buffer, tuple(tuple(map(self._launch_value, factor)) for factor in factors))
            for buffer, factors in self._required
        )
        always = frozenset(self._seen - self._unproved)
        return Proofs(always, frozenset(self._seen - self._unsized), required)

    def access(self, node: n.Node, buffer: str, index: int) -> None:
        self._seen.add(id(node))
        length = self.length(buffer)
        if not self.is_less(index, length):
            self.derive_again(index)
            if not self.is_less(index, length):
                self._unproved.add(id(node))
                factors = self._row_major(index)
                if factors is None:
                    self._unsized.add(id(node))
                else:
                    self._required[buffer, factors] = None

    def _row_major(self, index: int) -> tuple[tuple[int, ...], ...] | None:
        """The sizes of which an index in row-major order is less than the product; None for other indices.

        Each size is the least of some values of the launch. For ``(row * size) + column + offset`` where the row is
        below another size and the column with its offset is from 0 to the size, the sum cannot wrap around if the
        product of the sizes does not.
        """
        offset, rest = self._without_offset(index)
        match self.defined[rest]:
            case ("add", a, b):
                for product, column in ((a, b), (b, a)):
                    row, size = self._row_of(product)
                    if size is None or self.apart(column, size) < offset or self.known(column).low + offset < 0:
                        continue
                    outer = self._row_major(row) or self._sizes_above(row)
                    if outer is not None:
                        return (*outer, (size,))
        return None

    def _without_offset(self, index: int) -> tuple[int, int]:
        """The literals that an index adds, as a signed offset, and the rest; wrapping sums may be regrouped."""
        offset = 0
        for _ in range(_MAX_OFFSETS):
            match self.defined[index]:
                case ("add", a, b) if self.is_literal(a) or self.is_literal(b):
                    index, literal, sign = (b, a, 1) if self.is_literal(a) else (a, b, 1)
                case ("sub", a, b) if self.is_literal(b):
                    index, literal, sign = a, b, -1
                case _:
                    break
            offset += sign * self.known(literal).low
        half = 1 << 31
        return (offset + half) % (2 * half) - half, index

    def _row_of(self, product: int) -> tuple[int, int | None]:
        """The factor that a value of the launch, or a literal, is multiplied by, and that value."""
        match self.defined[product]:
            case ("mul", a, b):
                for row, size in ((a, b), (b, a)):
                    if self._is_launch_value(size):
                        return row, size
            case ("shl", row, amount) if self.is_literal(amount) and self.known(amount).high < _MAX_SHIFT:
                return row, self.literal(1 << self.known(amount).low, DType.U32)
        return product, None

    def _sizes_above(self, row: int) -> tuple[tuple[int, ...]] | None:
        """The values of the launch that a row is less than."""
        self.derive_again(row)
        known = self.known(row)
        found = [value for value, slack in known.below.items() if slack >= 0 and self._is_launch_value(value)]
        if known.high < _MAX_LITERAL_SIZE:
            found.append(self.literal(known.high + 1, DType.U32))
        return (tuple(found),) if found else None

    def _is_launch_value(self, number: int) -> bool:
        """Whether a value is the same u32 in all invocations, and known before the first."""
        if self.types[number] is not DType.U32:
            return False
        match self.defined[number]:
            case ("literal" | "length", _):
                return True
            case ("load", buffer, index):
                return self.is_literal(index) and self.buffers[buffer].role is not Role.SHARED
        return False

    def _launch_value(self, number: int) -> n.Expr:
        match self.defined[number]:
            case ("length", buffer):
                return n.BufLen(buffer)
            case ("load", buffer, index):
                return n.Load(buffer, self._launch_value(index))
            case (_, bits):
                return n.Lit(bits, DType.U32)
            case _:
                raise AssertionError(number)
