"""Which accesses lie in bounds for certain? Those need no check.

One walk in order. Every value gets a number: the same number, the same value, so an assignment gives its variable
another one and takes nothing back that is known of the old. Where paths meet and at the heads of loops, variables that
may have several values get numbers of which little is known. What is known of a number (``Range``) is what follows
from how it was computed, and what the branches and loops say in which the walk is, or which nobody has come past.
All arithmetic is looked at as it is, and what may have wrapped around is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from vyre.analyze.outline import LoopShape, outline
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.limits import MAX_ELEMENTS
from vyre.ir.program import Program
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

_NOTHING: Final[Mapping[str, int]] = {}
_NEGATED: Final = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
# How far back the computation of an index is looked at again, in the light of what was learned since.
_DEPTH: Final = 3


class Range(msgspec.Struct, frozen=True):
    """What is known of a whole number: its bounds, and how far below the lengths of buffers it stays.

    For each buffer of ``below``, the number plus what stands there is less than the buffer's length.
    """

    low: int
    high: int
    below: Mapping[str, int] = _NOTHING

    def meet(self, other: Range) -> Range:
        """What is known if both are true; the first alone if they cannot be, as in code that nothing reaches."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return self if low > high else Range(low, high, _either(self.below, other.below))

    def hull(self, other: Range) -> Range:
        """What is known if one of them is true."""
        return Range(min(self.low, other.low), max(self.high, other.high), _both(self.below, other.below))


def _either(a: Mapping[str, int], b: Mapping[str, int]) -> Mapping[str, int]:
    if not a or not b:
        return a or b
    return {name: max(a.get(name, b.get(name, 0)), b.get(name, a.get(name, 0))) for name in (*a, *b)}


def _both(a: Mapping[str, int], b: Mapping[str, int]) -> Mapping[str, int]:
    return {name: min(slack, b[name]) for name, slack in a.items() if name in b} if a and b else _NOTHING


def _moved(below: Mapping[str, int], up: int) -> Mapping[str, int]:
    """What stays below of a number that is larger by at most so much."""
    return {name: slack - up for name, slack in below.items()} if up else below


_FULL: Final = {dtype: Range(dtype.minimum, dtype.maximum) for dtype in DType}


def _fitting(found: Range, dtype: DType) -> Range:
    """What an operation that wraps around gives: known only if it cannot."""
    return found if dtype.minimum <= found.low and found.high <= dtype.maximum else _FULL[dtype]


def _products(a: Range, b: Range) -> Range:
    corners = (a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return Range(min(corners), max(corners))


def _clamped(found: Range, dtype: DType) -> Range:
    least, most = dtype.minimum, dtype.maximum
    return Range(min(max(found.low, least), most), min(max(found.high, least), most))


def _sum(a: Range, b: Range) -> Range:
    return Range(a.low + b.low, a.high + b.high, _either(_moved(a.below, b.high), _moved(b.below, a.high)))


def _difference(a: Range, b: Range) -> Range:
    return Range(a.low - b.high, a.high - b.low, _moved(a.below, -b.low))


def _binary_range(op: str, a: Range, b: Range, dtype: DType) -> Range:
    """The range of an operator on integers of a type."""
    positive = a.low >= 0 and b.low >= 0
    amount = b if b.low >= 0 and b.high < dtype.bits else Range(0, dtype.bits - 1)
    match op:
        case "add":
            return _fitting(_sum(a, b), dtype)
        case "sub":
            return _fitting(_difference(a, b), dtype)
        case "mul":
            return _fitting(_products(a, b), dtype)
        case "div" if positive:
            if not b.low:
                return Range(0, a.high, a.below)
            return Range(a.low // b.high, a.high // b.low, a.below)
        case "mod" if positive:
            below = _either(a.below, _moved(b.below, -1)) if b.low else a.below
            return Range(a.low if a.high < b.low else 0, min(a.high, max(b.high - 1, 0)), below)
        case "shl":
            return _fitting(Range(a.low << amount.low, a.high << amount.high), dtype) if a.low >= 0 else _FULL[dtype]
        case "shr" if a.low >= 0:
            return Range(a.low >> amount.high, a.high >> amount.low, a.below)
        case "and" if positive:
            return Range(0, min(a.high, b.high), _either(a.below, b.below))
        case "or" | "xor" if positive:
            return Range(0, (1 << max(a.high, b.high).bit_length()) - 1)
        case "min":
            return Range(min(a.low, b.low), min(a.high, b.high), _either(a.below, b.below))
        case "max":
            return Range(max(a.low, b.low), max(a.high, b.high), _both(a.below, b.below))
        case "abs_diff":
            return Range(0, max(a.high - b.low, b.high - a.low))
        case "sat_add":
            return _clamped(_sum(a, b), dtype)
        case "sat_sub":
            found = _clamped(_difference(a, b), dtype)
            return Range(found.low, found.high, a.below if positive and not dtype.minimum else _NOTHING)
        case "sat_mul":
            return _clamped(_products(a, b), dtype)
        case "mul_high" if positive:
            return Range(a.low * b.low >> dtype.bits, a.high * b.high >> dtype.bits)
    return _FULL[OPERATORS[op].result_type(dtype)]


def _unary_range(op: str, a: Range, dtype: DType) -> Range:
    match op:
        case "neg":
            return _fitting(Range(-a.high, -a.low), dtype)
        case "not":
            ones = dtype.maximum + dtype.minimum
            return Range(ones - a.high, ones - a.low)
        case "popcount" | "clz" | "ctz":
            return Range(0, dtype.bits)
        case "abs" if a.low >= 0:
            return a
        case "sign":
            return Range(-1 if a.low < 0 else 0, 1 if a.high > 0 else 0)
    return _FULL[OPERATORS[op].result_type(dtype)]


def proved_accesses(program: Program) -> frozenset[int]:
    """The loads, stores and atomics of a legal program whose index is in bounds whenever they happen, by identity.

    What stands in several places is among them if that is so in each of them. Nothing is known of programs that trap
    (invocations go on elsewhere) or that have extensions in them.
    """
    stats = program.stats()
    if stats.has_traps or stats.has_extensions or not program.buffers:
        return frozenset()
    return _Walk(program).proved()


class _Walk:
    """The state of a walk: the numbers of the variables, and what is known of numbers here.

    ``defined`` has for each number how it was computed: a name and the numbers of the operands. ``ordered`` are pairs
    of numbers of which the first is not above the second.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.counts = {decl.name: decl.count for decl in program.buffers}
        self.loops: Iterator[LoopShape] = iter(outline(program).loops)
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.defined: list[tuple[Any, ...]] = []
        self.types: list[DType] = []
        self.always: list[Range] = []
        self.ranges: dict[int, Range] = {}
        self.ordered: dict[tuple[int, int], None] = {}
        self.variables: dict[str, int] = {}
        # What was known before each thing that was learned, and which number a variable had before it was assigned.
        self.learned: list[tuple[int, Range | None]] = []
        self.assigned: list[tuple[str, int | None]] = []
        self.inside: set[int] = set()
        self.outside: set[int] = set()

    def proved(self) -> frozenset[int]:
        self._list(self.program.entry)
        return frozenset(self.inside - self.outside)

    def _number(self, dtype: DType, *key: Any, always: Range | None = None) -> int:
        """The number of what is computed in a certain way, with what is known of it everywhere.

        Without a way, another number each time.
        """
        number = self.numbers.get((dtype, *key)) if key else None
        if number is None:
            number = len(self.defined)
            self.defined.append(key)
            self.types.append(dtype)
            self.always.append(_FULL[dtype] if always is None else always)
            if key:
                self.numbers[dtype, *key] = number
        return number

    def _known(self, number: int) -> Range:
        found = self.ranges.get(number)
        return self.always[number] if found is None else found

    def _learn(self, number: int, more: Range) -> None:
        """Notes what is known of a number here, and what follows for the lengths of buffers."""
        before = self._known(number)
        known = before.meet(more)
        if known == before:
            return
        for slack in more.below.values():
            known = known.meet(Range(known.low, max(known.low, MAX_ELEMENTS - 1 - slack)))
        self._note(number, known)
        for name, slack in more.below.items():
            length = self._length(name)
            if length != number:
                least = max(known.low + slack + 1, 0)
                self._note(length, self._known(length).meet(Range(least, max(least, MAX_ELEMENTS))))

    def _note(self, number: int, known: Range) -> None:
        self.learned.append((number, self.ranges.get(number)))
        self.ranges[number] = known

    def _forget(self, since: tuple[int, int]) -> None:
        learned, ordered = since
        while len(self.learned) > learned:
            number, before = self.learned.pop()
            if before is None:
                del self.ranges[number]
            else:
                self.ranges[number] = before
        while len(self.ordered) > ordered:
            self.ordered.popitem()

    def _now(self) -> tuple[int, int]:
        """What to go back to, to forget what is learned from here on."""
        return len(self.learned), len(self.ordered)

    def _length(self, buffer: str) -> int:
        count = self.counts[buffer]
        always = Range(count, count) if count else Range(0, MAX_ELEMENTS, {buffer: -1})
        return self._number(DType.U32, "length", buffer, always=always)

    def _set(self, name: str, number: int) -> None:
        self.assigned.append((name, self.variables.get(name)))
        self.variables[name] = number

    def _evaluate(self, root: n.Expr) -> int:
        return walk.fold(root, self._expression)

    def _expression(self, node: n.Expr, given: list[int]) -> int:
        match node:
            case n.Var(name):
                return self.variables[name]
            case n.Lit(bits, dtype):
                return self._literal(bits, dtype)
            case n.Load(buffer):
                self._access(node, buffer, given[0])
                return self._number(self.program.buffer(buffer).dtype)
            case n.Atomic():
                self._access(node, node.buffer, given[0])
                return self._number(self.program.buffer(node.buffer).dtype)
            case n.BufLen(buffer):
                return self._length(buffer)
            case n.BinOp(op) | n.UnOp(op):
                dtype = self.types[given[0]]
                return self._computed(OPERATORS[op].result_type(dtype), op, *given)
            case n.Select():
                return self._computed(self.types[given[1]], "select", *given)
            case n.Cast(target) | n.Bitcast(target):
                source = self.types[given[0]]
                whole = not source.is_float and (isinstance(node, n.Cast) or source.is_integer)
                return self._computed(target, "cast", *given) if whole else self._number(target)
            case n.Fma():
                return self._number(self.types[given[0]])
            case n.SubgroupReduce() | n.SubgroupShuffle():
                return self._number(self.types[given[0]])
            case n.SubgroupBallot():
                return self._number(DType.U32)
            case _:
                return self._id(node)

    def _literal(self, bits: int, dtype: DType) -> int:
        value = bits - (1 << dtype.bits) if bits > dtype.maximum else bits
        return self._number(dtype, "literal", bits, always=None if dtype.is_float else Range(value, value))

    def _id(self, node: n.Expr) -> int:
        lanes, always = self.program.subgroup_size, None
        match node:
            case n.LocalId(axis):
                always = Range(0, self.program.workgroup_size[axis] - 1)
            case n.SubgroupLocalId():
                always = Range(0, lanes - 1)
            case n.SubgroupSize():
                always = Range(lanes, lanes)
        return self._number(DType.U32, type(node), getattr(node, "axis", 0), always=always)

    def _computed(self, dtype: DType, op: str, *given: int) -> int:
        number = self._number(dtype, op, *given)
        self._derive(number)
        return number

    def _derive(self, number: int) -> None:
        """Learns what follows of a number from what is known of those it was computed from."""
        dtype, (op, *given) = self.types[number], self.defined[number]
        if not dtype.is_integer or self.types[given[-1]].is_float:
            return
        ranges = [self._known(one) for one in given]
        match op:
            case "select":
                found = ranges[1].hull(ranges[2])
            case "cast":
                found = _fitting(ranges[0], dtype)
            case "sub" if (given[1], given[0]) in self.ordered:
                found = _difference(*ranges)
                found = Range(max(found.low, 0), max(found.high, 0), found.below)
                found = _fitting(found, dtype)
            case _ if len(given) == 2:
                found = _binary_range(op, ranges[0], ranges[1], self.types[given[0]])
            case _:
                found = _unary_range(op, ranges[0], self.types[given[0]])
        self._learn(number, found)

    def _derive_again(self, number: int, depth: int) -> None:
        definition = self.defined[number]
        if depth and definition and definition[0] in _COMPUTED:
            for one in definition[1:]:
                self._derive_again(one, depth - 1)
            self._derive(number)

    def _access(self, node: n.Node, buffer: str, index: int) -> None:
        if not self._is_inside(buffer, index):
            self._derive_again(index, _DEPTH)
        (self.inside if self._is_inside(buffer, index) else self.outside).add(id(node))

    def _is_inside(self, buffer: str, index: int) -> bool:
        known = self._known(index)
        return known.high < self._known(self._length(buffer)).low or known.below.get(buffer, -1) >= 0

    def _assume(self, condition: int, truth: bool) -> None:
        """Learns what follows from a condition."""
        pending = [(condition, truth)]
        while pending:
            number, holds = pending.pop()
            op, *given = self.defined[number] or ("unknown",)
            if op == "lnot":
                pending.append((given[0], not holds))
            elif op == ("and" if holds else "or") and self.types[number] is DType.BOOL:
                pending += [(one, holds) for one in given]
            elif op in _NEGATED and self.types[given[0]].is_integer:
                self._compare(op if holds else _NEGATED[op], *given)

    def _compare(self, op: str, a: int, b: int) -> None:
        match op:
            case "lt":
                self._order(a, b, 1)
            case "le":
                self._order(a, b, 0)
            case "gt":
                self._order(b, a, 1)
            case "ge":
                self._order(b, a, 0)
            case "eq":
                self._order(a, b, 0)
                self._order(b, a, 0)
            case "ne":
                for one, other in ((a, b), (b, a)):
                    known, value = self._known(one), self._known(other)
                    if value.low == value.high == known.low < known.high:
                        self._learn(one, Range(known.low + 1, known.high))
                    elif value.low == value.high == known.high > known.low:
                        self._learn(one, Range(known.low, known.high - 1))

    def _order(self, a: int, b: int, gap: int) -> None:
        """Learns that a number is less than another by at least so much."""
        less, more = self._known(a), self._known(b)
        if less.low + gap <= more.high:
            self._learn(a, Range(less.low, max(less.low, more.high - gap), _moved(more.below, -gap)))
            self._learn(b, Range(less.low + gap, max(more.high, less.low + gap)))
        self.ordered.setdefault((a, b))

    def _list(self, body: n.Body) -> bool:
        """Walks a list; gives whether its end may be reached."""
        falls = True
        for statement in body:
            match statement:
                case n.Let(name, value) | n.Assign(name, value):
                    self._set(name, self._evaluate(value))
                case n.Store(buffer, index, value):
                    at = self._evaluate(index)
                    self._evaluate(value)
                    self._access(statement, buffer, at)
                case n.If(condition, then, otherwise):
                    falls = self._if(self._evaluate(condition), then, otherwise) and falls
                case n.Loop() | n.While():
                    self._loop(statement)
                case n.Block(inner) | n.Region(body=inner):
                    falls = self._list(inner) and falls
                case n.Break() | n.Continue() | n.Return():
                    falls = False
                case _:
                    for root in walk.operands(statement):
                        self._evaluate(root)
        return falls

    def _if(self, condition: int, then: n.Body, otherwise: n.Body) -> bool:
        now, assigned = self._now(), len(self.assigned)
        self._assume(condition, True)
        then_falls = self._list(then)
        then_values = self._taken_back(assigned)
        self._forget(now)
        self._assume(condition, False)
        falls = self._list(otherwise)
        if falls and not then_falls:
            return True
        values = self._taken_back(assigned)
        self._forget(now)
        if then_falls and not falls:
            self._assume(condition, True)
            for name, (number, _) in then_values.items():
                self._set(name, number)
            return True
        for name in dict.fromkeys((*then_values, *values)):
            if name in self.variables:
                before = self.variables[name]
                one, two = (side.get(name, (before, self._known(before))) for side in (then_values, values))
                self._set(name, one[0] if one[0] == two[0] else self._merged(one, two))
        return falls

    def _taken_back(self, since: int) -> dict[str, tuple[int, Range]]:
        """The variables assigned since, with their numbers and what is known of them; they get their old ones back."""
        found: dict[str, tuple[int, Range]] = {}
        while len(self.assigned) > since:
            name, before = self.assigned.pop()
            if name not in found:
                number = self.variables[name]
                found[name] = number, self._known(number)
            if before is None:
                del self.variables[name]
            else:
                self.variables[name] = before
        return found

    def _merged(self, one: tuple[int, Range], two: tuple[int, Range]) -> int:
        number = self._number(self.types[one[0]])
        if not self.types[number].is_float:
            self._learn(number, one[1].hull(two[1]))
        return number

    def _loop(self, loop: n.Loop | n.While) -> None:
        shape = next(self.loops)
        bounds = [self._evaluate(root) for root in walk.operands(loop)] if isinstance(loop, n.Loop) else []
        self._lose(shape)
        now = self._now()
        if isinstance(loop, n.Loop):
            counter = self._number(DType.U32)
            self._set(loop.var, counter)
            for less, more, gap in ((*bounds, 1), (bounds[0], counter, 0), (counter, bounds[1], 1)):
                self._order(less, more, gap)
        else:
            self._assume(self._evaluate(loop.condition), True)
        self._list(loop.body)
        self._forget(now)
        self._lose(shape)

    def _lose(self, shape: LoopShape) -> None:
        """Variables that a loop assigns may have any value at its head, and behind it."""
        for name in shape.assigned:
            if name in self.variables:
                self._set(name, self._number(self.types[self.variables[name]]))


_COMPUTED: Final = frozenset({*OPERATORS, "select", "cast"})
