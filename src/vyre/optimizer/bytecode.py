"""Rules and facts as bytecode: the table of words that the simplify kernel interprets.

For each operation the table has a chain of forms, in the order of ``rules``. A form begins with a header of four words:
what the operands have to be (a byte for each operand, and the group of the rule in the highest byte), the mask of the
bytes that matter, the address of the next form, and the number of the rule. Instructions follow: tests, which go to the
next form if they fail, arithmetic on registers, and what becomes of the row. The last form of each chain matches every
row and computes what is known of the result's bits.

An instruction has two words: its code, three bytes, and an argument. A byte that names a row is a path from the row
under work: its operands, or theirs. Registers hold bits of values; each is written once in a form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from vyre.ir.binding import Array
from vyre.optimizer.arena import OPERATION_CODES, OPERATIONS, TYPE_CODES, TYPES
from vyre.optimizer.evaluate import type_mask
from vyre.optimizer.facts import FACTS, KNOWN_OPERAND, KNOWN_VALUE, Fact
from vyre.optimizer.layout import REGISTERS
from vyre.optimizer.patterns import (
    TYPE_NAMES,
    Fixed,
    Form,
    Literal,
    Operation,
    Rule,
    Term,
    Value,
    fixed_bits,
    is_constant,
    known_bits,
)
from vyre.optimizer.rules import GROUPS, RULES, TABLE
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import BOOLS, DType


class Code(IntEnum):
    """What an instruction does. ``p`` and ``q`` are its first and second byte, ``r`` its third, ``n`` its argument."""

    # Tests; the next form is tried if they fail.
    SAME = 0  # p and q are one value
    LITERAL = 1  # p is a literal
    NOT_LITERAL = 2
    EQUALS = 3  # p is the constant n
    TYPE = 4  # the type of p is one of the set n
    SAME_TYPE = 5
    PAIR = 6  # the types of p and q are in the relation at n
    REQUIRE = 7  # register n is not 0
    # Into register r.
    BITS = 8  # the bits of the literal p
    CONSTANT = 9  # the constant n in the type of p
    APPLY = 10  # operation r on values of the type of p gives the type of q; n: registers of operands and result
    # What becomes of the row.
    FORWARD = 11  # it is p
    BECOME_LITERAL = 12  # with the bits of register n
    BECOME_OPERATION = 13  # operation r on the three rows of n, one of which register q may hold
    FOLD = 14  # a literal, evaluated from its operands'
    # What is known of the row.
    KNOWN = 15  # into registers 0 to 3 what is known of two operands; ends if that is nothing, unless r
    KNOW = 16  # n: registers of zeros and ones, and of whether the row is its first or its second operand
    STOP = 17


LAST_TEST: Final = Code.REQUIRE
HEADER: Final = 4
# Paths: operands, four times the place; theirs follow. Behind them, for types: the row itself, and bool.
ROW, BOOL, SPARE, NOTHING = 12, 13, 14, 15
_PATHS: Final = {
    **{name: 4 * place for place, name in enumerate("abc")},
    **{f"{name}{inner}": 4 * place + 1 + inner for place, name in enumerate("abc") for inner in range(3)},
    "": ROW,
}
# What an operand can be, in a byte: something else, a literal, or an operation by its code.
OTHER, IS_LITERAL, FIRST_OPERATION = 0, 1, 2
# Words of a constant: two for each type.
CONSTANT_WORDS: Final = 32
# The group of forms that no switch turns off.
ALWAYS: Final = 20
# Entries by operation: the first form, the last one, and the form that evaluates, or 0.
ENTRY: Final = 3

assert len(OPERATIONS) + FIRST_OPERATION <= 256
assert len(GROUPS) <= ALWAYS
assert len(TYPES) <= 16


class RuleTable(msgspec.Struct, frozen=True, eq=False):
    """The words, and where relations between types and constants begin in them."""

    words: Array
    relations: int
    constants: int


def rule_names() -> tuple[str, ...]:
    """The names of the rules in the order in which they are counted, and of what is done without a rule."""
    return (*(rule.name for rule in RULES), KNOWN_VALUE, KNOWN_OPERAND)


class _Assembler:
    """Collects words, constants and relations between types."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.constants: dict[tuple[int, ...], int] = {}
        self.relations: dict[tuple[int, ...], int] = {}

    def emit(self, code: Code, p: int = 0, q: int = 0, r: int = 0, n: int = 0) -> None:
        self.words += (code | p << 8 | q << 16 | r << 24, n)

    def header(self, want: int, mask: int, group: int, rule: int) -> int:
        """Begin a form; its next form is set when that begins."""
        self.words += (want | group << 24, mask, 0, rule)
        return len(self.words) - HEADER

    def constant(self, value: bool | int | float | str, types: Iterable[DType]) -> int:
        """The number of a constant; of types that it is not asked for in, 0."""
        wanted = set(types)
        bits = tuple(fixed_bits(value, dtype) if dtype in wanted else 0 for dtype in TYPES)
        return self.constants.setdefault(bits, len(self.constants))

    def relation(self, allowed: tuple[int, ...]) -> int:
        return self.relations.setdefault(allowed, len(self.relations))


class _Writer(ABC):
    """Writes terms made of literals into registers."""

    def __init__(self, assembler: _Assembler, first_register: int = 0) -> None:
        self.to = assembler
        # By the text of a term, since 0 and -0.0 are equal.
        self.registers: dict[str, int] = {}
        self.next = first_register

    def _new(self, term: Term) -> int:
        register = self.registers[repr(term)] = self.next
        self.next += 1
        assert self.next <= REGISTERS, "a term needs too many registers"
        return register

    @abstractmethod
    def path_of_type(self, name: str) -> int:
        """Where a type name is found."""

    @abstractmethod
    def types(self, name: str) -> Iterable[DType]:
        """The types that a type name may stand for."""

    @abstractmethod
    def literal(self, term: Literal) -> int:
        """The register of a literal."""

    def register(self, term: Term) -> int:
        """The register of a term's bits, computed if it is not there."""
        known = self.registers.get(repr(term))
        if known is not None:
            return known
        match term:
            case Literal():
                return self.literal(term)
            case Fixed(value, type_name):
                number = self.to.constant(value, self.types(type_name))
                register = self._new(term)
                self.to.emit(Code.CONSTANT, self.path_of_type(type_name), 0, register, number)
            case Operation(name, operands):
                x, y = (*map(self.register, operands), 0)[:2]
                register = self._new(term)
                source, result = self.path_of_type(operands[0].type), self.path_of_type(term.type)
                self.to.emit(Code.APPLY, source, result, OPERATION_CODES[name], x | y << 8 | register << 16)
            case _:
                raise TypeError("a value is not a constant")
        return register


class _FormWriter(_Writer):
    """Writes one form of a rule."""

    def __init__(self, assembler: _Assembler, form: Form) -> None:
        super().__init__(assembler)
        self.form = form
        # Where each name of a row and each name of a type is found first.
        self.rows: dict[str, int] = {}
        self.type_paths: dict[str, int] = {}
        self.places = list(_places(form.pattern))
        for path, term in self.places:
            if term.type in TYPE_NAMES:
                self.type_paths.setdefault(term.type, _PATHS[path])

    def path_of_type(self, name: str) -> int:
        return BOOL if name == "bool" else self.type_paths["T" if name == "unsigned" else name]

    def types(self, name: str) -> Iterable[DType]:
        return BOOLS if name == "bool" else _types_of(self.form.rule, "T" if name == "unsigned" else name)

    def literal(self, term: Literal) -> int:
        value = known_bits(term.name)
        register = self._new(term)
        if value is None:
            self.to.emit(Code.BITS, self.rows[term.name], 0, register)
        else:
            self.to.emit(Code.BITS, self.rows[value], 1 + int(term.name[1]), register)
        return register

    def write(self) -> None:
        want = mask = 0
        for place, term in enumerate(self.form.pattern.operands):
            if isinstance(term, Value):
                continue
            what = FIRST_OPERATION + OPERATION_CODES[term.name] if isinstance(term, Operation) else IS_LITERAL
            want, mask = want | what << 8 * place, mask | 0xFF << 8 * place
        self.to.header(want, mask, GROUPS.index(self.form.rule.group), self.form.number)
        for path, term in self.places:
            self._test_row(path, term)
        self._test_types()
        if self.form.condition is not None:
            self.to.emit(Code.REQUIRE, n=self.register(self.form.condition))
        self._write_outcome()

    def _test_row(self, path: str, term: Term) -> None:
        place = _PATHS[path]
        if isinstance(term, (Literal, Fixed)) and len(path) == 2:
            self.to.emit(Code.LITERAL, place)
        if isinstance(term, Fixed):
            self.to.emit(Code.EQUALS, place, n=self.to.constant(term.value, self.types(term.type)))
        elif isinstance(term, (Literal, Value)):
            if term.name == "v":
                self.to.emit(Code.NOT_LITERAL, place)
            first = self.rows.setdefault(term.name, place)
            if first != place:
                self.to.emit(Code.SAME, first, place)

    def _test_types(self) -> None:
        """Tests the types that do not follow from what is matched; operands of one operator are of one type."""
        for path, term in self.places:
            if isinstance(term, Operation):
                self._test_operand_types(path, term)
        possible = set(DType)
        for _, term in self.places:
            if isinstance(term, Operation) and term.name in OPERATORS and term.operands[0].type == "T":
                possible &= set(OPERATORS[term.name].types)
        if "T" in self.type_paths and not possible <= set(self.form.rule.types):
            self.to.emit(Code.TYPE, self.type_paths["T"], n=type_mask(self.form.rule.types))
        for pairs in self.form.rule.pairs:
            allowed = [0] * 16
            for first, second in pairs.pairs:
                allowed[TYPE_CODES[first]] |= 1 << TYPE_CODES[second]
            relation = self.to.relation(tuple(allowed))
            self.to.emit(Code.PAIR, self.type_paths[pairs.first], self.type_paths[pairs.second], n=relation)

    def _test_operand_types(self, path: str, operation: Operation) -> None:
        inner = [(f"{path}{place}" if path else "abc"[place], one) for place, one in enumerate(operation.operands)]
        if operation.name in ("cast", "bitcast"):
            for at, term in ((path, operation), *inner):
                if term.type in TYPE_NAMES and self.type_paths[term.type] != _PATHS[at]:
                    self.to.emit(Code.SAME_TYPE, self.type_paths[term.type], _PATHS[at])
        if operation.name == "select":
            inner = inner[1:]
        is_plain = not any(isinstance(term, Operation) for _, term in inner) and operation.name != "lnot"
        if is_plain and inner[0][1].type == "bool":
            self.to.emit(Code.TYPE, _PATHS[inner[0][0]], n=type_mask(BOOLS))

    def _write_outcome(self) -> None:
        replacement = self.form.replacement
        if isinstance(replacement, (Value, Literal)):
            self.to.emit(Code.FORWARD, self.rows[replacement.name])
        elif is_constant(replacement):
            self.to.emit(Code.BECOME_LITERAL, n=self.register(replacement))
        else:
            assert isinstance(replacement, Operation)
            rows, spare = [NOTHING] * 3, 0
            for place, operand in enumerate(replacement.operands):
                if isinstance(operand, (Value, Literal)):
                    rows[place] = self.rows[operand.name]
                else:
                    rows[place], spare = SPARE, self.register(operand)
            packed = rows[0] | rows[1] << 8 | rows[2] << 16
            self.to.emit(Code.BECOME_OPERATION, 0, spare, OPERATION_CODES[replacement.name], packed)


@cache
def _types_of(rule: Rule, name: str) -> frozenset[DType]:
    """The types that a type name of a rule may stand for."""
    return frozenset(case[name] for case in rule.cases())


class _FactWriter(_Writer):
    """Writes what is known of one operation's result."""

    def __init__(self, assembler: _Assembler, fact: Fact) -> None:
        super().__init__(assembler, first_register=4)
        self.fact = fact
        for place, name in enumerate(fact.operands):
            for bit in (0, 1):
                self.registers[repr(fact.claim(f"{name}{bit}"))] = 2 * place + bit

    def path_of_type(self, name: str) -> int:
        if name == "bool":
            return BOOL
        return ROW if name != "S" and self.fact.term.type == "T" else _PATHS["a"]

    def types(self, name: str) -> Iterable[DType]:
        return {"T": self.fact.types, "S": self.fact.sources, "unsigned": self.fact.types, "bool": BOOLS}[name]

    def literal(self, term: Literal) -> int:
        raise TypeError(f"'{term.name}' is not known of an operand")

    def write(self) -> None:
        fact, term = self.fact, self.fact.term
        for name, types in (("T", fact.types), ("S", fact.sources)):
            if types:
                self.to.emit(Code.TYPE, self.path_of_type(name), n=type_mask(types))
        # A conversion knows something of every operand: that there are no bits above it.
        self.to.emit(
            Code.KNOWN, 4 if term.name == "select" else 0, 8 if term.name == "select" else 4, term.name == "cast"
        )
        if fact.when:
            self.to.emit(Code.REQUIRE, n=self.register(fact.claim(fact.when)))
        zeros, ones = (self.register(fact.claim(text)) for text in (fact.zeros, fact.ones))
        first, second = (self.register(fact.claim(text)) if text else 255 for text in (fact.first, fact.second))
        self.to.emit(Code.KNOW, n=zeros | ones << 8 | first << 16 | second << 24)


@cache
def rule_table() -> RuleTable:
    """The table of all rules and facts."""
    to = _Assembler()
    to.words = [0] * (ENTRY * len(OPERATIONS))
    stop = to.header(0, 0, ALWAYS, 0)
    to.emit(Code.STOP)
    fold = to.header(0, 0, ALWAYS, 0)
    to.emit(Code.FOLD)
    facts: Mapping[str, Fact] = {fact.term.name: fact for fact in FACTS}
    forms: dict[str, list[Form]] = {name: [] for name in OPERATIONS}
    for form in TABLE:
        forms[form.pattern.name].append(form)
    for name, own in forms.items():
        entry = ENTRY * OPERATION_CODES[name]
        begins = []
        for form in own:
            begins.append(len(to.words))
            _FormWriter(to, form).write()
        last = len(to.words) if name in facts else stop
        if name in facts:
            to.header(0, 0, ALWAYS, 0)
            to.words[last + 2] = stop
            _FactWriter(to, facts[name]).write()
            to.emit(Code.STOP)
        begins.append(last)
        for this, following in pairwise(begins):
            to.words[this + 2] = following
        to.words[entry : entry + ENTRY] = begins[0], last, 0 if name in MATH_FUNCTIONS else fold
    relations = len(to.words)
    for allowed in to.relations:
        to.words += allowed
    constants = len(to.words)
    for bits in to.constants:
        words = [part for one in bits for part in (one & 0xFFFFFFFF, one >> 32)]
        to.words += words + [0] * (CONSTANT_WORDS - len(words))
    return RuleTable(np.array(to.words, np.uint32), relations, constants)


def _places(pattern: Operation) -> Iterator[tuple[str, Term]]:
    """A pattern and the terms in it with their paths, the row's own operands first."""
    yield "", pattern
    own = list(zip("abc", pattern.operands, strict=False))
    yield from own
    for path, term in own:
        if isinstance(term, Operation):
            yield from ((f"{path}{place}", inner) for place, inner in enumerate(term.operands))
