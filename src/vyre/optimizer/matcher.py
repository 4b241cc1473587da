"""How does a kernel apply the rules to a row? Statements made from the table.

They are grouped by the row's operation, then by what its operands are, so that a row meets few tests. Of the forms
that match, the first of the table is taken, wherever it stands here.

A place in a pattern is told by a path: ``a`` is the row's first operand, ``b1`` the second operand of its second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Final

from vyre.ir import build as b
from vyre.ir.nodes import Body, Expr, Stmt, lit
from vyre.optimizer.arena import NONE, OPERATION_CODES, OPERATIONS, TYPE_CODES, Kind
from vyre.optimizer.constants import Constants
from vyre.optimizer.folding import choose, is_type, ones_of, wide, width_of
from vyre.optimizer.patterns import (
    BECOME_LITERAL,
    BECOME_OPERATION,
    FORWARD,
    TYPE_NAMES,
    Fixed,
    Form,
    Literal,
    Operation,
    Pairs,
    Term,
    Value,
    is_constant,
    known_bits,
)
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

Guard = tuple[str, str]
_U32, _U64 = DType.U32, DType.U64
_word, _best = b.var("word"), b.var("match_best")

# What a form makes of a row is one word, in which the rule's place and the form's among its rule's stand highest, so
# that the least word is that of the first form. Then come the operation and the sources of its three operands. Two
# more operations are to be the row that the first operand is, and to be a literal, of bits that the first field tells.
_FORMS_OF_A_RULE: Final = 16
_OPERATION_SHIFT, _FORM_SHIFT = 12, 19
_FORWARD, _LITERAL = len(OPERATIONS), len(OPERATIONS) + 1
_SOURCES: Final = ("a", "b", "c", *(f"{path}{place}" for path in "abc" for place in range(3)), "spare", "none")
_COMPUTED, _ZERO, _ONE, _ONES = range(4)


class _Scope:
    """The inside of a branch: names for what its rules need, each computed once at its start, and its statements."""

    def __init__(self, numbers: Iterator[int], outer: _Scope | None = None, guard: Guard = ("", "")) -> None:
        self.numbers = numbers
        self.outer = outer
        self.guard = guard
        self.names: dict[str, Expr] = {}
        self.lets: list[Stmt] = []
        self.statements: list[Stmt] = []
        self.inner: dict[Guard, _Scope] = {}

    def named(self, key: str, value: Callable[[], Expr]) -> Expr:
        """The variable that holds a value, which is declared here if it is not around."""
        scope: _Scope | None = self
        while scope is not None:
            if key in scope.names:
                return scope.names[key]
            scope = scope.outer
        made, name = value(), f"match_{next(self.numbers)}"
        self.lets.append(b.let(name, made))
        self.names[key] = b.var(name)
        return self.names[key]

    def inside(self, guard: Guard) -> _Scope:
        return self.inner.setdefault(guard, _Scope(self.numbers, self, guard))

    def home(self, *paths: str) -> _Scope:
        """Where to name what depends on rows: as far outside as they are at hand."""
        needed = {path[0] for path in paths if len(path) == 2}
        scope = self
        while scope.outer is not None and not (scope.guard[1] == "operation" and scope.guard[0] in needed):
            scope = scope.outer
        return scope

    def body(self) -> Body:
        inner = [b.if_(_guard(self, guard), scope.body()) for guard, scope in self.inner.items()]
        # Only now is it known what all of them need.
        return (*self.lets, *self.statements, *inner)


def _row(path: str) -> Expr:
    return b.var(path if len(path) == 1 else f"{path[0]}_{path[1]}")


def _column(scope: _Scope, path: str, column: str) -> Expr:
    """A column of the row at a path; of the row itself, where the path is empty, its head."""
    if len(path) == 2:
        return scope.home(path).named(f"{column} {path}", lambda: b.load(column, _row(path)))
    return b.var(f"{path}_{column.removeprefix('a')}") if path else _word


def _is_literal(scope: _Scope, path: str) -> Expr:
    head = _column(scope, path, "head")
    return scope.home(path).named(f"literal {path}", lambda: (head & 255).eq(Kind.LITERAL.value))


def _bits(scope: _Scope, path: str) -> Expr:
    """The bits of the literal at a path, as a u64."""
    low, high = (b.cast(_U64, _column(scope, path, column)) for column in ("a0", "a1"))
    return scope.home(path).named(f"bits {path}", lambda: low | high << wide(32))


def _code(scope: _Scope, path: str) -> Expr:
    """The code of the type of the row at a path."""
    head = _column(scope, path, "head")
    return scope.home(path).named(f"type {path}", lambda: head >> 8 & 255)


def _same(scope: _Scope, one: str, other: str) -> Expr:
    """Whether two rows are one value: literals are, when they are equal."""
    equal = _is_literal(scope, one)
    for column in ("head", "a0", "a1"):
        equal = equal & _column(scope, one, column).eq(_column(scope, other, column))
    return scope.home(one, other).named(f"same {one} {other}", lambda: _row(one).eq(_row(other)) | equal)


def _guard(scope: _Scope, guard: Guard) -> Expr:
    """Whether the row at a path is a literal, an operation, or a certain one."""
    path, what = guard
    head = b.var(f"{path}_head")
    if what == "literal":
        return _is_literal(scope, path)
    if what == "operation":
        return (head & 255).eq(Kind.OPERATION.value)
    return (head >> 16).eq(OPERATION_CODES[what])


def match_statements(table: Iterable[Form], groups: tuple[str, ...]) -> Body:
    """Statements that say what the first rule that matches makes of a row, in ``action``, 0 if none does.

    They read ``word``, the row's head, ``a b c``, its operands, of each its columns (``a_head a_0 a_1``, the head 0
    where there is none; ``a_2`` too, where there is a third), ``spare``, the columns ``head a0 a1 a2`` and ``known0``
    to ``known3``, and in ``params[0]`` the bits of the groups that are on. They set ``action`` and ``rule`` (its place
    in the table), ``target``, ``new_head new_a new_b new_c``, ``spare_head`` (0 if nothing is computed), and ``lit_lo
    lit_hi``, as ``patterns.Action`` tells. All are u32.
    """
    scopes: dict[str, _Scope] = {}
    forms_of: dict[int, int] = {}
    numbers = count()
    for form in table:
        place = forms_of[form.number] = forms_of.get(form.number, -1) + 1
        assert place < _FORMS_OF_A_RULE
        scope = scopes.setdefault(form.pattern.name, _Scope(numbers))
        _Writer(scope, form, form.number * _FORMS_OF_A_RULE + place, groups.index(form.rule.group)).write()
    return (
        b.let("match_best", NONE),
        b.let("match_value", wide(0)),
        b.let("match_groups", b.load("params", 0)),
        b.let("match_operation", _word >> 16),
        *choose(b.var("match_operation"), [(OPERATION_CODES[name], scope.body()) for name, scope in scopes.items()]),
        b.if_(_best.ne(NONE), _told()),
    )


def _told() -> Body:
    """Statements that take apart the word of the form that was taken."""
    operation, fields = b.var("match_new"), [_best >> 4 * place & 15 for place in range(3)]
    spare = _SOURCES.index("spare")

    def source(field: Expr) -> Expr:
        row: Expr = lit(NONE, _U32)
        for number, path in enumerate(_SOURCES[:-1]):
            row = b.select(field.eq(number), b.var("spare") if path == "spare" else _row(path), row)
        return row

    def is_literal(what: int) -> Expr:
        return operation.eq(_LITERAL) & fields[0].eq(what)

    ones = ones_of(width_of(_word >> 8 & 255))
    bits = b.select(is_literal(_ONE), wide(1), b.select(is_literal(_ONES), ones, b.var("match_value")))
    # A computed operand is of the type of the other one.
    other = b.select(fields[0].eq(spare), b.var("new_b"), b.var("new_a"))
    has_spare = (operation < _FORWARD) & (fields[0].eq(spare) | fields[1].eq(spare))
    return (
        b.let("match_new", _best >> _OPERATION_SHIFT & 127),
        b.assign("rule", _best >> _FORM_SHIFT + 4),
        b.assign(
            "action",
            b.select(
                operation.eq(_FORWARD), FORWARD, b.select(operation.eq(_LITERAL), BECOME_LITERAL, BECOME_OPERATION)
            ),
        ),
        *(b.assign(f"new_{path}", source(field)) for path, field in zip("abc", fields, strict=True)),
        b.assign("target", b.var("new_a")),
        b.assign("new_head", (_word & 0xFFFF) | operation << 16),
        b.let("match_bits", b.select(is_literal(_ZERO), wide(0), bits)),
        b.assign("lit_lo", b.cast(_U32, b.var("match_bits"))),
        b.assign("lit_hi", b.cast(_U32, b.var("match_bits") >> wide(32))),
        b.assign("spare_head", 0),
        b.if_(has_spare, (b.assign("spare_head", (b.load("head", other) & 0xFF00) | Kind.LITERAL.value),)),
    )


class _Writer(Constants):
    """Writes the tests of one form, and what it does, into the branch for the operands that it needs."""

    def __init__(self, scope: _Scope, form: Form, place: int, group: int) -> None:
        self.form = form
        self.place = place
        # Where each name of a row and each name of a type is found first.
        self.rows: dict[str, str] = {}
        self.types_at: dict[str, str] = {}
        self.tests = [scope.named(f"group {group}", lambda: (b.var("match_groups") & 1 << group).ne(0))]
        self.scope = scope
        for path, term in zip("abc", form.pattern.operands, strict=False):
            if isinstance(term, Operation):
                self.scope = self.scope.inside((path, "operation")).inside((path, term.name))
            elif not isinstance(term, Value):
                self.scope = self.scope.inside((path, "literal"))

    def write(self) -> None:
        places = list(_places(self.form.pattern))
        assert len(self.form.pattern.operands) == 3 or not any(path.endswith("2") for path, _ in places)
        for path, term in places:
            if term.type in TYPE_NAMES:
                self.types_at.setdefault(term.type, path)
        for path, term in places:
            self._test_row(path, term)
        for path, term in places:
            if isinstance(term, Operation):
                self._test_operands(path, term)
        self._test_types()
        if self.form.condition is not None:
            self.tests.append(self.constant(self.form.condition))
        test = self.tests[0]
        for one in self.tests[1:]:
            test = test & one
        word, value = self._outcome()
        if value is None:
            taken: Stmt = b.assign("match_best", b.minimum(_best, b.select(test, lit(word, _U32), lit(NONE, _U32))))
        else:
            taken = b.if_(test & (_best > word), (b.assign("match_best", word), b.assign("match_value", value)))
        self.scope.statements.append(taken)

    def _test_row(self, path: str, term: Term) -> None:
        if isinstance(term, (Literal, Fixed)) and len(path) == 2:
            self.tests.append(_is_literal(self.scope, path))
        if isinstance(term, Fixed):
            self.tests.append(_bits(self.scope, path).eq(self.constant(term)))
        elif isinstance(term, (Literal, Value)):
            if term.name == "v":
                self.tests.append(b.lnot(_is_literal(self.scope, path)))
            first = self.rows.setdefault(term.name, path)
            if first != path:
                self.tests.append(_same(self.scope, first, path))

    def _test_operands(self, path: str, operation: Operation) -> None:
        """Tests the types that follow from nothing; operands of one operator are of one type."""
        inner = [(f"{path}{place}" if path else "abc"[place], one) for place, one in enumerate(operation.operands)]
        if operation.name in ("cast", "bitcast"):
            for at, term in ((path, operation), *inner):
                if term.type in TYPE_NAMES and self.types_at[term.type] != at:
                    self.tests.append(self.code(term.type).eq(_code(self.scope, at)))
        if operation.name == "select":
            inner = inner[1:]
        is_plain = not any(isinstance(term, Operation) for _, term in inner) and operation.name != "lnot"
        if is_plain and inner[0][1].type == "bool":
            self.tests.append(_code(self.scope, inner[0][0]).eq(TYPE_CODES[DType.BOOL]))

    def _test_types(self) -> None:
        possible = set(DType)
        for _, term in _places(self.form.pattern):
            if isinstance(term, Operation) and term.name in OPERATORS and term.operands[0].type == "T":
                possible &= set(OPERATORS[term.name].types)
        if "T" in self.types_at and not possible <= set(self.form.rule.types):
            code, types = self.code("T"), self.form.rule.types
            home = self.scope.home(self.types_at["T"])
            self.tests.append(home.named(f"T {self.types_at['T']} {types}", lambda: is_type(code, types)))
        self.tests += [self._related(pairs) for pairs in self.form.rule.pairs]

    def _related(self, pairs: Pairs) -> Expr:
        """Whether two types are one of these pairs."""
        seconds: dict[DType, int] = {}
        for first, second in pairs.pairs:
            seconds[first] = seconds.get(first, 0) | 1 << TYPE_CODES[second]
        allowed: Expr = lit(0, _U32)
        for mask in sorted(set(seconds.values())):
            firsts = [dtype for dtype, others in seconds.items() if others == mask]
            allowed = b.select(is_type(self.code(pairs.first), firsts), lit(mask, _U32), allowed)
        return (allowed >> self.code(pairs.second) & 1).eq(1)

    def _outcome(self) -> tuple[int, Expr | None]:
        """The word of this form, and what it computes, if it does."""
        replacement, value = self.form.replacement, None
        fields = [_SOURCES.index("none")] * 3
        if isinstance(replacement, (Value, Literal)):
            operation, fields[0] = _FORWARD, _SOURCES.index(self.rows[replacement.name])
        elif is_constant(replacement):
            operation, fields[0] = _LITERAL, _COMPUTED
            if isinstance(replacement, Fixed) and replacement.value in (0, True, "ONES"):
                fields[0] = _ZERO if not replacement.value else _ONES if replacement.value == "ONES" else _ONE
            else:
                value = self.constant(replacement)
        else:
            assert isinstance(replacement, Operation)
            operation = OPERATION_CODES[replacement.name]
            for place, operand in enumerate(replacement.operands):
                if isinstance(operand, (Value, Literal)):
                    fields[place] = _SOURCES.index(self.rows[operand.name])
                else:
                    fields[place], value = _SOURCES.index("spare"), self.constant(operand)
        word = sum(field << 4 * place for place, field in enumerate(fields))
        return word | operation << _OPERATION_SHIFT | self.place << _FORM_SHIFT, value

    def bits(self, name: str) -> Expr:
        value = known_bits(name)
        if value is None:
            return _bits(self.scope, self.rows[name])
        path = self.rows[value]
        low, high = (b.cast(_U64, b.load(f"known{int(name[1]) + upper}", _row(path))) for upper in (0, 2))
        return self.scope.named(f"known {name[1]} {path}", lambda: low | high << wide(32))

    def code(self, type_name: str) -> Expr:
        return _code(self.scope, self.types_at[type_name])

    def types(self, type_name: str) -> list[DType]:
        if type_name == "bool":
            return [DType.BOOL]
        return sorted({case[type_name] for case in self.form.rule.cases()}, key=str)

    def named(self, what: str, type_name: str, value: Expr) -> Expr:
        path = self.types_at[type_name]
        return self.scope.home(path).named(f"{what} {path}", lambda: value)


def _places(pattern: Operation) -> Iterator[tuple[str, Term]]:
    """A pattern and the terms in it with their paths, the row's own operands first."""
    yield "", pattern
    own = list(zip("abc", pattern.operands, strict=False))
    yield from own
    for path, term in own:
        if isinstance(term, Operation):
            yield from ((f"{path}{place}", inner) for place, inner in enumerate(term.operands))
