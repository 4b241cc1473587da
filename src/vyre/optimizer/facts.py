"""Which bits of a value are known? What follows from those of its operands, for each operation: a table.

``x0`` are the bits of an operand ``x`` that are known to be 0, ``x1`` those known to be 1. An operation all of whose
bits are known is a literal; one that gives an operand, whatever the unknown bits are, is that operand. As rules are,
each row is proved by ``make prove`` for every type it claims: the bits are so, for all values whose bits are so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from vyre.ir import build as b
from vyre.ir.nodes import Body, Expr, Stmt
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind
from vyre.optimizer.constants import Constants
from vyre.optimizer.folding import choose, is_type, ones_of, wide, width_of, words
from vyre.optimizer.patterns import FORWARD, Operation, Term, Value, compute, parts, read_term
from vyre.optimizer.rules import TO_32_BITS
from vyre.optimizer.switches import PASSES
from vyre.semantics.types import BOOLS, INTEGERS, UNSIGNED, DType

KNOWN_VALUE, KNOWN_OPERAND = "known_value", "known_operand"
_BITS: Final = INTEGERS + BOOLS


class Fact(msgspec.Struct, frozen=True):
    """What is known of one operation, for which types T (and S): the bits that are 0 and those that are 1.

    ``first`` and ``second`` say when it gives its operand of that place; ``when`` it is that anything is known.
    """

    pattern: str
    zeros: str
    ones: str
    types: tuple[DType, ...]
    when: str = ""
    first: str = ""
    second: str = ""
    sources: tuple[DType, ...] = ()

    @property
    def term(self) -> Operation:
        term = read_term(self.pattern)
        assert isinstance(term, Operation)
        return term

    @property
    def name(self) -> str:
        return f"known_{self.term.name}"

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands whose bits are known; one that only chooses is none of them."""
        operands = self.term.operands[self.term.name == "select" :]
        return tuple(operand.name for operand in operands if isinstance(operand, Value))

    def claim(self, text: str) -> Term:
        """A text about the operation, as a term."""
        return read_term(text, self.term.type)

    def cases(self) -> Iterator[dict[str, DType]]:
        """Every way to give its type names types."""
        names = {part.type for part in parts(self.term)}
        for dtype in self.types:
            for source in self.sources or (dtype,):
                yield {"T": dtype} | ({"S": source} if "S" in names else {})


def _sum(one: str, other: str, carry: str) -> tuple[str, str]:
    """The bits of a sum, of numbers whose bits are (zeros, ones): known where both are, and the carry into them."""
    (x0, x1), (y0, y1) = one.split(), other.split()
    least, most = f"({x1} + {y1} + {carry})", f"(~{x0} + ~{y0} + {carry})"
    known = f"({x0} | {x1}) & ({y0} | {y1}) & ~(({least} ^ {x1} ^ {y1}) ^ ({most} ^ ~{x0} ^ ~{y0}))"
    return f"{known} & ~{least}", f"{known} & {least}"


def _bounds(name: str) -> tuple[str, str]:
    """The least and the greatest number that an operand can be."""
    return f"({name}1 | ~{name}0 & MIN)", f"(~{name}0 & (MAX | {name}1))"


_LEAST_X, _MOST_X = _bounds("x")
_LEAST_Y, _MOST_Y = _bounds("y")
_AMOUNT: Final = "(y0 | y1) == ONES"
_DIFFER: Final = "(x0 & y1 | x1 & y0) != 0"

FACTS: Final = (
    Fact("x & y", "x0 | y0", "x1 & y1", _BITS, first="(x0 | y1) == ONES", second="(y0 | x1) == ONES"),
    Fact("x | y", "x0 & y0", "x1 | y1", _BITS, first="(x1 | y0) == ONES", second="(y1 | x0) == ONES"),
    Fact("x ^ y", "x0 & y0 | x1 & y1", "x0 & y1 | x1 & y0", _BITS),
    Fact("~x", "x1", "x0", INTEGERS),
    Fact("!p", "p1", "p0", BOOLS),
    Fact("x + y", *_sum("x0 x1", "y0 y1", "0"), INTEGERS),
    Fact("x - y", *_sum("x0 x1", "y1 y0", "1"), INTEGERS),
    Fact("-x", *_sum("ONES 0", "x1 x0", "1"), INTEGERS),
    Fact("x * y", "~((ONES << ctz(~x0)) << ctz(~y0))", "x1 & y1 & 1", TO_32_BITS),
    Fact("x << y", "(x0 << y1) | ~(ONES << y1)", "x1 << y1", INTEGERS, _AMOUNT),
    Fact("x >> y", "(x0 >> y1) | ~(ONES >> y1)", "x1 >> y1", INTEGERS, _AMOUNT),
    Fact("rotl(x, y)", "rotl(x0, y1)", "rotl(x1, y1)", INTEGERS, _AMOUNT),
    Fact("min(x, y)", "x0 & y0", "x1 & y1", INTEGERS, "", f"{_MOST_X} <= {_LEAST_Y}", f"{_MOST_Y} <= {_LEAST_X}"),
    Fact("max(x, y)", "x0 & y0", "x1 & y1", INTEGERS, "", f"{_LEAST_X} >= {_MOST_Y}", f"{_LEAST_Y} >= {_MOST_X}"),
    Fact("select(p, x, y)", "x0 & y0", "x1 & y1", _BITS),
    Fact("T(s)", "T(s0) | ~T(S(ONES))", "T(s1)", INTEGERS, sources=_BITS),
    Fact("x == y", _DIFFER, "false", _BITS),
    Fact("x != y", "false", _DIFFER, _BITS),
    Fact("x < y", f"{_LEAST_X} >= {_MOST_Y}", f"{_MOST_X} < {_LEAST_Y}", INTEGERS),
    Fact("x <= y", f"{_LEAST_X} > {_MOST_Y}", f"{_MOST_X} <= {_LEAST_Y}", INTEGERS),
    Fact("x > y", f"{_MOST_X} <= {_LEAST_Y}", f"{_LEAST_X} > {_MOST_Y}", INTEGERS),
    Fact("x >= y", f"{_MOST_X} < {_LEAST_Y}", f"{_LEAST_X} >= {_MOST_Y}", INTEGERS),
)  # fmt: skip
BY_NAME: Final = {fact.term.name: fact for fact in FACTS}


class Known(msgspec.Struct, frozen=True):
    """What is known of an operation: bits, and the place of the operand that it gives (0 if none)."""

    zeros: int = 0
    ones: int = 0
    gives: int = 0


def known_of(name: str, types: Mapping[str, DType], operands: Sequence[tuple[int, int]]) -> Known:
    """What follows for an operation of T (from S) from the bits that are known of its operands."""
    fact = BY_NAME.get(name)
    if fact is None or types["T"] not in fact.types or (fact.sources and types["S"] not in fact.sources):
        return Known()
    bits = {f"{one}{k}": masks[k] for one, masks in zip(fact.operands, operands, strict=False) for k in (0, 1)}

    def holds(text: str) -> bool:
        return bool(text) and bool(compute(fact.claim(text), types, bits))

    if fact.when and not holds(fact.when):
        return Known()
    zeros, ones = (compute(fact.claim(text), types, bits) for text in (fact.zeros, fact.ones))
    return Known(zeros, ones, 1 if holds(fact.first) else 2 if holds(fact.second) else 0)


class _Writer(Constants):
    """Writes what is known of one operation."""

    def __init__(self, fact: Fact) -> None:
        self.fact = fact
        self.lets: list[Stmt] = []
        self.names: dict[str, Expr] = {}

    def bits(self, name: str) -> Expr:
        return b.var(f"known_{'x' if name[0] == self.fact.operands[0] else 'y'}{name[1]}")

    def code(self, type_name: str) -> Expr:
        is_result = type_name != "S" and self.fact.term.type == "T"
        return (b.var("word") if is_result else b.load("head", b.var("a"))) >> 8 & 255

    def types(self, type_name: str) -> Sequence[DType]:
        by_name = {"T": self.fact.types, "S": self.fact.sources, "unsigned": UNSIGNED, "bool": BOOLS}
        return by_name[type_name]

    def named(self, what: str, type_name: str, value: Expr) -> Expr:
        key = f"known_{what}_{type_name}_{self.fact.term.name}"
        if key not in self.names:
            self.names[key] = b.var(key)
            self.lets.append(b.let(key, value))
        return self.names[key]

    def body(self) -> Body:
        fact, term = self.fact, self.fact.term

        def written(text: str) -> Expr:
            claim = fact.claim(text)
            made = self.constant(claim)
            return b.cast(DType.U64, made) if isinstance(claim, Operation) and claim.type == "bool" else made

        def holds(text: str) -> Expr:
            return self.constant(fact.claim(text))

        sets: list[Stmt] = [b.assign("zeros", written(fact.zeros)), b.assign("ones", written(fact.ones))]
        sets += [
            b.if_(holds(text), (b.assign("gives", place),))
            for place, text in ((2, fact.second), (1, fact.first))
            if text
        ]
        if fact.when:
            sets = [b.if_(holds(fact.when), tuple(sets))]
        body: Body = (*self.lets, *sets)
        checks = [(name, types) for name, types in (("T", fact.types), ("S", fact.sources)) if types]
        for name, types in checks:
            if term.operands[0].type != "bool" or term.name == "select":
                body = (b.if_(is_type(self.code(name), types), body),)
        return body


def _noted(row: Expr, zeros: Expr, ones: Expr, *, is_new: bool) -> Body:
    """Statements that keep what is known of a row: four words, the upper two 0 already, unless the row is new."""
    low, high = ([b.cast(DType.U32, bits >> wide(shift)) for bits in (zeros, ones)] for shift in (0, 32))
    stores = [b.store(f"known{place}", row, word) for place, word in enumerate((*low, *high))]
    upper = tuple(stores[2:])
    return (*stores[:2], *(upper if is_new else (b.if_((high[0] | high[1]).ne(0), upper),)))


def _read(name: str, row: Expr, is_wide: Expr) -> Body:
    """Statements that find what is known of a row."""
    loads = [b.cast(DType.U64, b.load(f"known{k}", row)) for k in range(4)]
    return (
        *(b.let(f"{name}{k}", loads[k]) for k in (0, 1)),
        b.if_(is_wide, tuple(b.assign(f"{name}{k}", b.var(f"{name}{k}") | loads[2 + k] << wide(32)) for k in (0, 1))),
    )


def literal_bits(row: Expr, code: Expr, bits: Expr) -> Body:
    """Statements that note the bits of a literal with such a type; of floats nothing is said.

    The row may have been another literal before, of another type.
    """
    return (b.if_(is_type(code, _BITS), _noted(row, ones_of(width_of(code)) ^ bits, bits, is_new=True)),)


def knowing(rules: int) -> Body:
    """Statements for the simplify kernel: what becomes of ``word``, ``a``, ``b`` and ``c`` by what is known of them.

    They set ``action`` and ``target`` where it is an operand. The buffer ``known`` has four words for each row, those
    of zeros and ones, first the lower ones. ``rules`` is how many rules are counted before what is done here.
    """
    operation = b.var("word") >> 16
    is_select = operation.eq(OPERATION_CODES["select"])
    is_narrow = is_type(b.var("word") >> 8 & 255, [dtype for dtype in INTEGERS if dtype.bits < 64])
    is_wide = b.lnot(is_narrow) | operation.eq(OPERATION_CODES["cast"])
    loads: list[Stmt] = [
        b.let("known_x", b.select(is_select, b.var("b"), b.var("a"))),
        b.let("known_y", b.select(is_select, b.var("c"), b.var("b"))),
        *_read("known_x", b.var("known_x"), is_wide),
        *_read("known_y", b.var("known_y"), is_wide),
    ]
    zeros, ones, gives = b.var("zeros"), b.var("ones"), b.var("gives")
    literal = (
        b.assign("word", (b.var("word") & 0xFF00) | Kind.LITERAL.value),
        b.assign("a", b.cast(DType.U32, ones)),
        b.assign("b", b.cast(DType.U32, ones >> wide(32))),
        b.assign("c", NONE),
        b.let("valued", b.atomic_add("fired", rules + 1, 1)),
    )
    operand = (
        b.assign("action", FORWARD),
        b.assign("target", b.select(gives.eq(1), b.var("known_x"), b.var("known_y"))),
        b.let("given", b.atomic_add("fired", rules + 2, 1)),
    )
    is_whole = (zeros | ones).eq(ones_of(width_of(b.var("word") >> 8 & 255)))
    is_on = {name: (b.load("params", 0) & PASSES[name]).ne(0) for name in ("bits", "fold")}
    known = (
        *loads,
        b.let("zeros", wide(0)),
        b.let("ones", wide(0)),
        b.let("gives", 0),
        *choose(operation, [(OPERATION_CODES[fact.term.name], _Writer(fact).body()) for fact in FACTS]),
        b.if_((zeros | ones).ne(wide(0)), _noted(b.var("row"), zeros, ones, is_new=False)),
        b.if_(is_whole & is_on["fold"], literal, (b.if_(gives.ne(0), operand),)),
    )
    is_operation = (b.var("word") & 255).eq(Kind.OPERATION.value)
    literal_of_row = literal_bits(b.var("row"), b.var("word") >> 8 & 255, words("a", "b"))
    seen = (b.if_(is_operation, (b.if_(is_on["bits"], known),), literal_of_row),)
    return (b.if_(b.var("action").ne(FORWARD), seen),)
