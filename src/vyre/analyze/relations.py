"""Relations between the values of a program: numbered values, and what is known of them at a place.

Every value has a number: the same number, the same value. What is known of a number is a ``Range``: its bounds, and how
far it stays below other values. It follows from how the value is computed and from the conditions that hold at the
place. Arithmetic that may wrap around tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from vyre.analyze.intervals import (
    FULL,
    NO_BOUNDS,
    Range,
    binary_range,
    difference,
    either,
    fitting,
    moved,
    unary_range,
    wraps,
)
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

# How far back the computation of a value is looked at again, in the light of what was learned since, and how far back
# what is learned of a value is passed on to those that it is computed from.
_DEPTH: Final = 4
# How many parts of a condition are looked at; of a longer one, those in front.
_MAX_CONJUNCTS: Final = 64
_FLIPPED: Final = {"gt": "lt", "ge": "le"}
_SORTED: Final = frozenset({"add", "mul", "min", "max", "and", "or", "xor", "eq"})
# The operators of which one computation has several forms: one of them gets the number.
_REGULAR: Final = _SORTED | {"gt", "ge", "ne", "le", "lnot"}
# The operators whose results stay below what is above an operand.
_BOUNDED: Final = frozenset({"add", "sub", "div", "mod", "shr", "and", "min", "max", "sat_sub", "select", "cast"})
_COMPUTED: Final = frozenset({*OPERATORS, "select", "cast"})
_TRUTH: Final = {False: Range(0, 0), True: Range(1, 1)}


class Relations:
    """Numbered values, and what is known of them here.

    ``defined`` has for each number how it is computed: a name and the numbers of the operands. Facts are undone in the
    reverse order in which they were learned.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[Any, ...], int] = {}
        self.defined: list[tuple[Any, ...]] = []
        self.types: list[DType] = []
        self.always: list[Range] = []
        self._literals: set[int] = set()
        self._ranges: dict[int, Range] = {}
        # What was known before each fact that was learned.
        self._learned: list[tuple[int, Range | None]] = []
        # Counts changes of what is known, and for each number the count when it was last derived.
        self._changes = 0
        self._derived_at: dict[int, int] = {}

    def number(self, dtype: DType, *key: Any, always: Range | None = None) -> int:
        """The number of what is computed in a certain way, with what is known of it everywhere.

        Without a way, another number each time.
        """
        number = self.numbers.get((dtype, *key)) if key else None
        if number is None:
            number = len(self.defined)
            self.defined.append(key)
            self.types.append(dtype)
            self.always.append(FULL[dtype] if always is None else always)
            if key:
                self.numbers[dtype, *key] = number
                if key[0] == "literal":
                    self._literals.add(number)
        return number

    def computed(self, op: str, *given: int) -> int:
        """The number of an operator's value, with what follows of it here."""
        source = self.types[given[0]]
        if op in _REGULAR and (source.is_integer or source is DType.BOOL):
            if op in _FLIPPED:
                op, given = _FLIPPED[op], given[::-1]
            if op == "ne":
                return self.computed("lnot", self.computed("eq", *given))
            if op == "le":
                return self.computed("lnot", self.computed("lt", *given[::-1]))
            if op == "lnot" and self.defined[given[0]][:1] == ("lnot",):
                return int(self.defined[given[0]][1])
            if op in _SORTED:
                given = tuple(sorted(given))
        result = self.types[given[1]] if op == "select" else OPERATORS[op].result_type(source)
        return self._with_range(result, op, *given)

    def cast(self, target: DType, given: int) -> int:
        """The number of an integer or bool converted to another type."""
        return self._with_range(target, "cast", given)

    def _with_range(self, dtype: DType, *key: Any) -> int:
        number = self.number(dtype, *key)
        self._derive(number)
        return number

    def literal(self, bits: int, dtype: DType) -> int:
        value = bits - (1 << dtype.bits) if bits > dtype.maximum else bits
        return self.number(dtype, "literal", bits, always=None if dtype.is_float else Range(value, value))

    def is_literal(self, number: int) -> bool:
        return number in self._literals

    def known(self, number: int) -> Range:
        found = self._ranges.get(number)
        return self.always[number] if found is None else found

    def now(self) -> int:
        """What to go back to, to forget what is learned from here on."""
        return len(self._learned)

    def forget(self, since: int) -> None:
        while len(self._learned) > since:
            number, before = self._learned.pop()
            self._changes += 1
            if before is None:
                del self._ranges[number]
            else:
                self._ranges[number] = before

    def _note(self, number: int, known: Range) -> None:
        self._learned.append((number, self._ranges.get(number)))
        self._ranges[number] = known
        self._changes += 1

    def learn(self, number: int, more: Range, depth: int = 0) -> None:
        """Note what is known of a number here, what follows for the values above it, and for its operands."""
        before = self.known(number)
        known = before.meet(more)
        if known is before or known == before:
            return
        for value, slack in more.below.items():
            known = known.meet(Range(known.low, max(known.low, self.known(value).high - 1 - slack)))
        self._note(number, known)
        for value, slack in more.below.items():
            above = self.known(value)
            least = known.low + slack + 1
            if above.low < least <= above.high and value != number:
                self._note(value, Range(least, above.high, above.below))
        if depth:
            self._pass_on(number, depth - 1)

    def _pass_on(self, number: int, depth: int) -> None:
        """Learn of operands what follows from what is known of their sum, difference, product, minimum or maximum."""
        definition = self.defined[number]
        if not definition or definition[0] not in _COMPUTED or not self.types[number].is_integer:
            return
        found, dtype = self.known(number), self.types[number]
        match definition:
            case ("add" | "sub" | "mul" as op, a, b):
                one, two = self.known(a), self.known(b)
                if wraps(op, one, two, dtype):
                    return
                if op == "add":
                    self.learn(a, difference(found, two), depth)
                    self.learn(b, difference(found, one), depth)
                elif op == "sub":
                    up = moved(found.below, two.high)
                    self.learn(a, Range(found.low + two.low, found.high + two.high, up), depth)
                    self.learn(b, difference(one, found), depth)
                else:
                    for this, other in ((a, two), (b, one)):
                        if other.is_single and other.low > 0 and found.low >= 0:
                            self.learn(this, Range(-(-found.low // other.low), found.high // other.low), depth)
            case ("cast", a):
                whole = self.known(a)
                if not self.types[a].is_float and dtype.minimum <= whole.low and whole.high <= dtype.maximum:
                    self.learn(a, found, depth)
            case ("min", a, b):
                for this in (a, b):
                    self.learn(this, Range(found.low, max(found.low, self.known(this).high)), depth)
            case ("max", a, b):
                for this in (a, b):
                    self.learn(this, Range(min(found.high, self.known(this).low), found.high, found.below), depth)

    def base(self, number: int) -> tuple[int, int]:
        """A value and a constant, whose sum is a number without wrapping."""
        offset = 0
        for _ in range(_DEPTH):
            definition = self.defined[number]
            if not definition or definition[0] not in ("add", "sub"):
                break
            op, this, other = definition
            if op == "add" and this in self._literals:
                this, other = other, this
            if other not in self._literals:
                break
            sign = 1 if op == "add" else -1
            amount = self.known(other)
            if wraps("add" if sign > 0 else "sub", self.known(this), amount, self.types[number]):
                break
            number, offset = this, offset + sign * amount.low
        return number, offset

    def _with_itself(self, number: int) -> Range:
        """What is known of a number, among it that it is no more than itself."""
        known = self.known(number)
        if number in self._literals:
            return known
        base, offset = self.base(number)
        return Range(known.low, known.high, either(known.below, {base: -1 - offset}))

    def apart(self, a: int, b: int) -> int:
        """The most that may be added to the value ``a`` for certain so that it still is less than ``b``."""
        best = self.known(b).low - self.known(a).high - 1
        if a == b:
            return max(best, -1)
        (base_a, offset_a), (base_b, offset_b) = self.base(a), self.base(b)
        if base_a == base_b:
            best = max(best, offset_b - offset_a - 1)
        highs = ((b, 0),) if base_b == b else ((b, 0), (base_b, offset_b))
        for low, less in ((a, 0),) if base_a == a else ((a, 0), (base_a, offset_a)):
            for between, slack in self.known(low).below.items():
                further = self.known(between).below
                for high, more in highs:
                    if between == high:
                        best = max(best, slack - less + more)
                    elif high in further:
                        best = max(best, slack + further[high] + 1 - less + more)
        return best

    def is_less(self, a: int, b: int) -> bool:
        return self.apart(a, b) >= 0

    def is_at_most(self, a: int, b: int) -> bool:
        return self.apart(a, b) >= -1

    def _derive(self, number: int) -> None:
        """Learn what follows of a number from what is known of those it is computed from."""
        if self._derived_at.get(number) == self._changes:
            return
        dtype, (op, *given) = self.types[number], self.defined[number]
        if dtype is DType.BOOL:
            found = self._truth(op, given)
        elif not dtype.is_integer or self.types[given[-1]].is_float:
            return
        else:
            found = self._computed_range(dtype, op, given)
        if found is not FULL[dtype]:
            self.learn(number, found)
        self._derived_at[number] = self._changes

    def _computed_range(self, dtype: DType, op: str, given: Sequence[int]) -> Range:
        ranges = list(map(self._with_itself if op in _BOUNDED else self.known, given))
        match op:
            case "select":
                return ranges[1].hull(ranges[2])
            case "cast":
                return fitting(ranges[0], dtype)
            case "sub":
                found, least = difference(*ranges), self.apart(given[1], given[0]) + 1
                if least >= 0:
                    found = Range(max(found.low, least), max(found.high, least), found.below)
                return fitting(found, dtype)
            case _ if len(given) == 2:
                return binary_range(op, ranges[0], ranges[1], self.types[given[0]])
            case _:
                return unary_range(op, ranges[0], self.types[given[0]])

    def _truth(self, op: str, given: Sequence[int]) -> Range:
        """Whether a condition holds, as a range from 0 to 1."""
        if any(self.types[one].is_float for one in given):
            return FULL[DType.BOOL]
        ranges = [self.known(one) for one in given]
        match op:
            case "lt" if self.types[given[0]].is_integer:
                if self.is_less(*given):
                    return _TRUTH[True]
                if self.is_at_most(*reversed(given)):
                    return _TRUTH[False]
            case "eq":
                a, b = given
                if self.is_less(a, b) or self.is_less(b, a):
                    return _TRUTH[False]
                if self.is_at_most(a, b) and self.is_at_most(b, a):
                    return _TRUTH[True]
            case "lnot":
                return Range(1 - ranges[0].high, 1 - ranges[0].low)
            case "and":
                return Range(min(ranges[0].low, ranges[1].low), min(ranges[0].high, ranges[1].high))
            case "or":
                return Range(max(ranges[0].low, ranges[1].low), max(ranges[0].high, ranges[1].high))
            case "xor" if ranges[0].is_single and ranges[1].is_single:
                return _TRUTH[ranges[0].low != ranges[1].low]
            case "select":
                return Range(min(ranges[1].low, ranges[2].low), max(ranges[1].high, ranges[2].high))
        return FULL[DType.BOOL]

    def derive_again(self, number: int, depth: int = _DEPTH) -> None:
        """Look again at how a number is computed, with what is known here."""
        definition = self.defined[number]
        if depth and definition and definition[0] in _COMPUTED and self._derived_at.get(number) != self._changes:
            for one in definition[1:]:
                self.derive_again(one, depth - 1)
            self._derive(number)

    def assume(self, condition: int, truth: bool) -> None:
        """Learn what follows from a condition."""
        pending = [(condition, truth)]
        for _ in range(_MAX_CONJUNCTS):
            if not pending:
                return
            number, holds = pending.pop()
            self.learn(number, _TRUTH[holds])
            op, *given = self.defined[number] or ("unknown",)
            if op == "lnot":
                pending.append((given[0], not holds))
            elif op == ("and" if holds else "or"):
                pending += [(one, holds) for one in reversed(given)]
            elif op in ("lt", "eq") and self.types[given[0]].is_integer:
                self._compare(op, holds, *given)

    def _compare(self, op: str, holds: bool, a: int, b: int) -> None:
        if op == "lt":
            self.order(*((a, b, 1) if holds else (b, a, 0)))
        elif holds:
            self.order(a, b, 0)
            self.order(b, a, 0)
        else:
            for one, other in ((a, b), (b, a)):
                known, value = self.known(one), self.known(other)
                if value.is_single and value.low == known.low < known.high:
                    self.learn(one, Range(known.low + 1, known.high), _DEPTH)
                elif value.is_single and value.low == known.high > known.low:
                    self.learn(one, Range(known.low, known.high - 1), _DEPTH)

    def order(self, a: int, b: int, gap: int) -> None:
        """Learn that a number is less than another by at least so much."""
        less, more = self.known(a), self._with_itself(b)
        if less.low + gap > more.high:
            return
        below = NO_BOUNDS if self.is_literal(a) else moved(more.below, -gap)
        self.learn(a, Range(less.low, max(less.low, more.high - gap), below), _DEPTH)
        self.learn(b, Range(less.low + gap, max(more.high, less.low + gap)), _DEPTH)
