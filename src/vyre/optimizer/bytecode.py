"""Rules and facts as bytecode: the table of words that the simplify kernel interprets.

For each operation the table has a chain of forms, in the order of ``rules``. A form begins with a header of four words:
the operands it expects (a byte for each operand, and the rule's group in the highest byte), the mask of the bytes to
compare, the address of the next form, and the index of the rule. Instructions follow: tests, which continue with the
next form if they fail, arithmetic on registers, and the outcome. The last form of each chain matches every row and
computes the known bits of the result.

An instruction has two words: its code with three bytes, and an argument. A byte that names a row is a path from the
rewritten row: to its operands, or to theirs. Registers hold bits of values; each is written once in a form.
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
    mask_owner,
)
from vyre.optimizer.rules import GROUPS, RULES, TABLE
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import BOOLS, DType


class Code(IntEnum):
    """Instruction codes. ``p``, ``q`` and ``r`` are the instruction's bytes, ``n`` its argument."""

    # Tests; if one fails, the next form is tried.
    SAME = 0  # p and q are the same value
    LITERAL = 1  # p is a literal
    NOT_LITERAL = 2
    EQUALS = 3  # p is the constant n
    TYPE = 4  # the type of p is in the set n
    SAME_TYPE = 5
    PAIR = 6  # the types of p and q are in the relation at n
    REQUIRE = 7  # register n is not 0
    # Arithmetic; the result goes to register r.
    BITS = 8  # the bits of the literal p
    CONSTANT = 9  # the constant n in the type of p
    APPLY = 10  # operation r, operands of the type of p, result of that of q; n: registers of operands and result
    # Outcomes: what replaces the row.
    FORWARD = 11  # row p
    BECOME_LITERAL = 12  # a literal with the bits of register n
    BECOME_OPERATION = 13  # operation r on the three rows of n; LITERAL_ROW holds the bits of register q
    FOLD = 14  # the literal that the operation evaluates to
    # Known bits of the row.
    LOAD_KNOWN = 15  # registers 0 to 3: the known bits of p and q; stop if there are none, unless r
    SET_KNOWN = 16  # n: registers of zeros, ones, and of whether the row equals its first or its second operand
    STOP = 17


LAST_TEST: Final = Code.REQUIRE
HEADER: Final = 4
# Paths: 4 * k is operand k, 4 * k + 1 + j its operand j. Behind them: the row itself and bool (for types), the row of a
# new literal, and no operand.
ROW, BOOL, LITERAL_ROW, NOTHING = 12, 13, 14, 15
_PATHS: Final = {
    **{name: 4 * place for place, name in enumerate("abc")},
    **{f"{name}{inner}": 4 * place + 1 + inner for place, name in enumerate("abc") for inner in range(3)},
    "": ROW,
}
# Bytes that describe an operand: a literal, an operation by its code, or anything else.
OTHER, IS_LITERAL, FIRST_OPERATION = 0, 1, 2
# Words of a constant: two for each type code.
CONSTANT_WORDS: Final = 32
# The group of forms that no switch turns off.
ALWAYS: Final = 20
# Words of an operation's entry: the first form, the last form, and the form that evaluates it or 0.
ENTRY: Final = 3

assert len(OPERATIONS) + FIRST_OPERATION <= 256
assert len(GROUPS) <= ALWAYS
assert len(TYPES) <= 16


class RuleTable(msgspec.Struct, frozen=True, eq=False):
    """The words, and where the type relations and the constants begin."""

    words: Array
    relations: int
    constants: int


def rule_names() -> tuple[str, ...]:
    """The names of the counters: the rules in order, and the two outcomes of known bits."""
    return (*(rule.name for rule in RULES), KNOWN_VALUE, KNOWN_OPERAND)


class _Assembler:
    """Collects words, constants and relations between types."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.constants: dict[tuple[int, ...], int] = {}
        self.relations: dict[tuple[int, ...], int] = {}

    def emit(self, code: Code, p: int = 0, q: int = 0, r: int = 0, n: int = 0) -> None:
        self.words += (code | p << 8 | q << 16 | r << 24, n)

    def header(self, expected: int, mask: int, group: int, rule: int) -> int:
        """Begin a form and return its address; the address of the next form is set later."""
        self.words += (expected | group << 24, mask, 0, rule)
        return len(self.words) - HEADER

    def constant(self, value: bool | int | float | str, types: Iterable[DType]) -> int:
        """The number of a constant; its bits are 0 for types other than the given."""
        wanted = set(types)
        bits = tuple(fixed_bits(value, dtype) if dtype in wanted else 0 for dtype in TYPES)
        return self.constants.setdefault(bits, len(self.constants))

    def relation(self, allowed: tuple[int, ...]) -> int:
        return self.relations.setdefault(allowed, len(self.relations))


class _Writer(ABC):
    """Emits code that computes constant terms in registers."""

    def __init__(self, assembler: _Assembler, first_register: int = 0) -> None:
        self.code = assembler
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
        """The path of a row whose type the name stands for."""

    @abstractmethod
    def types(self, name: str) -> Iterable[DType]:
        """The types that a type name may stand for."""

    @abstractmethod
    def literal(self, term: Literal) -> int:
        """Emit code that loads a literal; return its register."""

    def register(self, term: Term) -> int:
        """The register of a constant term's bits; emit its computation the first time."""
        known = self.registers.get(repr(term))
        if known is not None:
            return known
        match term:
            case Literal():
                return self.literal(term)
            case Fixed(value, type_name):
                number = self.code.constant(value, self.types(type_name))
                register = self._new(term)
                self.code.emit(Code.CONSTANT, self.path_of_type(type_name), 0, register, number)
            case Operation(name, operands):
                x, y = (*map(self.register, operands), 0)[:2]
                register = self._new(term)
                source, result = self.path_of_type(operands[0].type), self.path_of_type(term.type)
                self.code.emit(Code.APPLY, source, result, OPERATION_CODES[name], x | y << 8 | register << 16)
            case _:
                raise TypeError("a term with a value is not constant")
        return register


class _FormWriter(_Writer):
    """Emits one form of a rule."""

    def __init__(self, assembler: _Assembler, form: Form) -> None:
        super().__init__(assembler)
        self.form = form
        # The first path of each row name and of each type name.
        self.rows: dict[str, int] = {}
        self.type_paths: dict[str, int] = {}
        self.terms = list(_terms_by_path(form.pattern))
        for path, term in self.terms:
            if term.type in TYPE_NAMES:
                self.type_paths.setdefault(term.type, _PATHS[path])

    def path_of_type(self, name: str) -> int:
        return BOOL if name == "bool" else self.type_paths["T" if name == "unsigned" else name]

    def types(self, name: str) -> Iterable[DType]:
        return BOOLS if name == "bool" else _types_of(self.form.rule, "T" if name == "unsigned" else name)

    def literal(self, term: Literal) -> int:
        value = mask_owner(term.name)
        register = self._new(term)
        if value is None:
            self.code.emit(Code.BITS, self.rows[term.name], 0, register)
        else:
            self.code.emit(Code.BITS, self.rows[value], 1 + int(term.name[1]), register)
        return register

    def write(self) -> None:
        expected = mask = 0
        for place, term in enumerate(self.form.pattern.operands):
            if isinstance(term, Value):
                continue
            described = FIRST_OPERATION + OPERATION_CODES[term.name] if isinstance(term, Operation) else IS_LITERAL
            expected, mask = expected | described << 8 * place, mask | 0xFF << 8 * place
        self.code.header(expected, mask, GROUPS.index(self.form.rule.group), self.form.rule_index)
        for path, term in self.terms:
            self._test_row(path, term)
        self._test_types()
        if self.form.condition is not None:
            self.code.emit(Code.REQUIRE, n=self.register(self.form.condition))
        self._write_outcome()

    def _test_row(self, path: str, term: Term) -> None:
        at = _PATHS[path]
        if isinstance(term, (Literal, Fixed)) and len(path) == 2:
            self.code.emit(Code.LITERAL, at)
        if isinstance(term, Fixed):
            self.code.emit(Code.EQUALS, at, n=self.code.constant(term.value, self.types(term.type)))
        elif isinstance(term, (Literal, Value)):
            if term.name == "v":
                self.code.emit(Code.NOT_LITERAL, at)
            first = self.rows.setdefault(term.name, at)
            if first != at:
                self.code.emit(Code.SAME, first, at)

    def _test_types(self) -> None:
        """Emit tests of the types that the match does not imply; operands of an operator have one type."""
        for path, term in self.terms:
            if isinstance(term, Operation):
                self._test_operand_types(path, term)
        possible = set(DType)
        for _, term in self.terms:
            if isinstance(term, Operation) and term.name in OPERATORS and term.operands[0].type == "T":
                possible &= set(OPERATORS[term.name].types)
        if "T" in self.type_paths and not possible <= set(self.form.rule.types):
            self.code.emit(Code.TYPE, self.type_paths["T"], n=type_mask(self.form.rule.types))
        for pairs in self.form.rule.pairs:
            allowed = [0] * 16
            for first, second in pairs.pairs:
                allowed[TYPE_CODES[first]] |= 1 << TYPE_CODES[second]
            relation = self.code.relation(tuple(allowed))
            self.code.emit(Code.PAIR, self.type_paths[pairs.first], self.type_paths[pairs.second], n=relation)

    def _test_operand_types(self, path: str, operation: Operation) -> None:
        inner = [(f"{path}{place}" if path else "abc"[place], one) for place, one in enumerate(operation.operands)]
        if operation.name in ("cast", "bitcast"):
            for at, term in ((path, operation), *inner):
                if term.type in TYPE_NAMES and self.type_paths[term.type] != _PATHS[at]:
                    self.code.emit(Code.SAME_TYPE, self.type_paths[term.type], _PATHS[at])
        if operation.name == "select":
            inner = inner[1:]
        has_plain_operands = not any(isinstance(term, Operation) for _, term in inner) and operation.name != "lnot"
        if has_plain_operands and inner[0][1].type == "bool":
            self.code.emit(Code.TYPE, _PATHS[inner[0][0]], n=type_mask(BOOLS))

    def _write_outcome(self) -> None:
        replacement = self.form.replacement
        if isinstance(replacement, (Value, Literal)):
            self.code.emit(Code.FORWARD, self.rows[replacement.name])
        elif is_constant(replacement):
            self.code.emit(Code.BECOME_LITERAL, n=self.register(replacement))
        else:
            assert isinstance(replacement, Operation)
            rows, literal = [NOTHING] * 3, 0
            for place, operand in enumerate(replacement.operands):
                if isinstance(operand, (Value, Literal)):
                    rows[place] = self.rows[operand.name]
                else:
                    rows[place], literal = LITERAL_ROW, self.register(operand)
            packed = rows[0] | rows[1] << 8 | rows[2] << 16
            self.code.emit(Code.BECOME_OPERATION, 0, literal, OPERATION_CODES[replacement.name], packed)


@cache
def _types_of(rule: Rule, name: str) -> frozenset[DType]:
    """The types that a type name of a rule may stand for."""
    return frozenset(case[name] for case in rule.cases())


class _FactWriter(_Writer):
    """Emits the fact about one operation."""

    def __init__(self, assembler: _Assembler, fact: Fact) -> None:
        super().__init__(assembler, first_register=4)
        self.fact = fact
        for place, name in enumerate(fact.operands):
            for bit in (0, 1):
                self.registers[repr(fact.term_of(f"{name}{bit}"))] = 2 * place + bit

    def path_of_type(self, name: str) -> int:
        if name == "bool":
            return BOOL
        return ROW if name != "S" and self.fact.term.type == "T" else _PATHS["a"]

    def types(self, name: str) -> Iterable[DType]:
        return {"T": self.fact.types, "S": self.fact.sources, "unsigned": self.fact.types, "bool": BOOLS}[name]

    def literal(self, term: Literal) -> int:
        raise TypeError(f"'{term.name}' is not a mask of known bits of an operand")

    def write(self) -> None:
        fact, term = self.fact, self.fact.term
        for name, types in (("T", fact.types), ("S", fact.sources)):
            if types:
                self.code.emit(Code.TYPE, self.path_of_type(name), n=type_mask(types))
        # A conversion knows bits of every operand: those above its width are 0.
        self.code.emit(
            Code.LOAD_KNOWN, 4 if term.name == "select" else 0, 8 if term.name == "select" else 4, term.name == "cast"
        )
        if fact.when:
            self.code.emit(Code.REQUIRE, n=self.register(fact.term_of(fact.when)))
        zeros, ones = (self.register(fact.term_of(text)) for text in (fact.zeros, fact.ones))
        first, second = (self.register(fact.term_of(text)) if text else 255 for text in (fact.first, fact.second))
        self.code.emit(Code.SET_KNOWN, n=zeros | ones << 8 | first << 16 | second << 24)


@cache
def rule_table() -> RuleTable:
    """Return the table of all rules and facts."""
    code = _Assembler()
    code.words = [0] * (ENTRY * len(OPERATIONS))
    stop = code.header(0, 0, ALWAYS, 0)
    code.emit(Code.STOP)
    fold = code.header(0, 0, ALWAYS, 0)
    code.emit(Code.FOLD)
    facts: Mapping[str, Fact] = {fact.term.name: fact for fact in FACTS}
    forms: dict[str, list[Form]] = {name: [] for name in OPERATIONS}
    for form in TABLE:
        forms[form.pattern.name].append(form)
    for name, own in forms.items():
        entry = ENTRY * OPERATION_CODES[name]
        begins = []
        for form in own:
            begins.append(len(code.words))
            _FormWriter(code, form).write()
        last = len(code.words) if name in facts else stop
        if name in facts:
            code.header(0, 0, ALWAYS, 0)
            code.words[last + 2] = stop
            _FactWriter(code, facts[name]).write()
            code.emit(Code.STOP)
        begins.append(last)
        for begin, following in pairwise(begins):
            code.words[begin + 2] = following
        code.words[entry : entry + ENTRY] = begins[0], last, 0 if name in MATH_FUNCTIONS else fold
    relations = len(code.words)
    for allowed in code.relations:
        code.words += allowed
    constants = len(code.words)
    for bits in code.constants:
        words = [part for one in bits for part in (one & 0xFFFFFFFF, one >> 32)]
        code.words += words + [0] * (CONSTANT_WORDS - len(words))
    return RuleTable(np.array(code.words, np.uint32), relations, constants)


def _terms_by_path(pattern: Operation) -> Iterator[tuple[str, Term]]:
    """A pattern and its subterms with their paths, the operands of the row first."""
    yield "", pattern
    own = list(zip("abc", pattern.operands, strict=False))
    yield from own
    for path, term in own:
        if isinstance(term, Operation):
            yield from ((f"{path}{place}", inner) for place, inner in enumerate(term.operands))
