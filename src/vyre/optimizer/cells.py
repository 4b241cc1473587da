"""Cell analysis: which elements of a buffer an access touches, and whether two invocations may touch the same one.

An index has a form (``Form``) if it is a sum of ids times constants, of uniform values that never change, and of an
offset within known bounds, modulo 2**32 as in the program. Where the ids act like the digits of a number and the
offset is smaller than the lowest digit's step, each invocation has cells of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum
from math import prod
from typing import Any, Final, NamedTuple

from vyre.analyze.agreement import GRID, INVOCATION, WORKGROUP, agreed_by
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import DType

# Beyond the levels of uniformity: a value that may differ between iterations of a loop.
PASS: Final = INVOCATION + 1
WORDS: Final = 1 << 32
_NARROW: Final = (DType.U32, DType.I32)
# Longer sums and wider offsets have no form.
_MOST_SYMBOLS: Final = 8
_WIDEST: Final = 1 << 24
# Up to so many accesses, each index is evaluated by itself, although one may contain another.
_FEW_ACCESSES: Final = 4
# The digits of a form: the workgroup's place along three axes, then the invocation's place in its workgroup.
_NO_IDS: Final = (0, 0, 0, 0, 0, 0)


class Scope(Enum):
    """The invocations that a barrier orders."""

    WORKGROUP = "workgroup"
    GRID = "grid"

    __hash__ = object.__hash__


class Form(NamedTuple):
    """An index: ``ids`` times the digits, plus ``symbols`` times their constants, plus low .. high (inclusive).

    ``level`` is the scope in which the symbols are uniform.
    """

    ids: tuple[int, ...]
    symbols: tuple[tuple[int, int], ...]
    level: int
    low: int
    high: int

    @property
    def is_constant(self) -> bool:
        return not any(self.ids) and not self.symbols and self.low == self.high


class Value(NamedTuple):
    """What is known of a value: its number (equal numbers are equal values), where it is uniform, type and form.

    Without a number the value may change at any time.
    """

    number: int | None
    level: int
    dtype: DType | None
    form: Form | None


UNKNOWN: Final = Value(None, PASS, None, None)
# Called with a load or an atomic and what is known of its index.
OnAccess = Callable[[n.Load | n.Atomic, Value], None]


class Values:
    """The values of a program's expressions; the caller walks the program and reports declarations and loops."""

    def __init__(self, program: Program, assigned: Collection[str], written: Collection[str]) -> None:
        self._workgroup_size = program.workgroup_size
        self._types = {decl.name: decl.dtype for decl in program.buffers}
        self._assigned, self._written = assigned, written
        self._numbers: dict[Any, int] = {}
        self._variables: dict[str, Value] = {}
        self._loops = 0
        self._wanted = _index_variables(program)

    def declare(self, name: str, value: Value) -> None:
        """Record what a variable holds; an assigned variable may hold anything."""
        self._variables[name] = UNKNOWN if name in self._assigned else value

    def declare_loop(self, name: str, start: Value, stop: Value) -> None:
        """Record the variable of a loop, whose value differs in every iteration."""
        self._loops += 1
        number = self._number(("loop", self._loops))
        self._variables[name] = Value(number, PASS, DType.U32, _between(start.form, stop.form))

    def of(self, root: n.Expr) -> Value:
        """Return what is known of an expression."""
        return walk.fold(root, self.of_node)

    def let(self, name: str, value: n.Expr, on_access: OnAccess) -> None:
        """Record a declaration, and report its accesses."""
        self.declare(name, self.read(value, on_access, is_wanted=name in self._wanted))

    def loop(self, loop: n.Loop, on_access: OnAccess) -> None:
        """Record the variable of a loop, and report the accesses of its bounds."""
        is_wanted = loop.var in self._wanted
        start, stop = (self.read(bound, on_access, is_wanted=is_wanted) for bound in (loop.start, loop.stop))
        self.declare_loop(loop.var, start, stop)

    def read(self, root: n.Expr, on_access: OnAccess, *, is_wanted: bool = False) -> Value:
        """Report the loads and atomics in an expression; return what is known of its value if that is wanted."""
        accesses = [node for node in walk.postorder(root) if isinstance(node, (n.Load, n.Atomic))]
        if not is_wanted and len(accesses) <= _FEW_ACCESSES:
            for access in accesses:
                on_access(access, self.of(access.index))
            return UNKNOWN
        if not accesses:
            return self.of(root)

        def combine(node: n.Expr, given: list[Value]) -> Value:
            if isinstance(node, (n.Load, n.Atomic)):
                on_access(node, given[0])
            return self.of_node(node, given)

        return walk.fold(root, combine)

    def of_node(self, node: n.Expr, given: list[Value]) -> Value:
        """Return what is known of a node, given what is known of its operands."""
        match node:
            case n.Var(name):
                return self._variables.get(name, UNKNOWN)
            case n.Atomic() | n.SubgroupBallot() | n.SubgroupShuffle() | n.SubgroupReduce():
                return UNKNOWN
            case n.Call() | n.OpaqueExpr():
                return UNKNOWN
            case n.Load(buffer) if buffer in self._written:
                return UNKNOWN
        dtype = self._type(node, given)
        form = self._form(node, given, dtype)
        numbers = [value.number for value in given]
        if None in numbers:
            return Value(None, PASS, dtype, form)
        level = max((agreed_by(node, self._workgroup_size), *(value.level for value in given)))
        number = self._number((type(node), *fields_beside_operands(node), *numbers))
        if form is None and dtype in _NARROW and level <= WORKGROUP:
            form = Form(_NO_IDS, ((number, 1),), level, 0, 0)
        return Value(number, level, dtype, form)

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _type(self, node: n.Expr, given: list[Value]) -> DType | None:
        match node:
            case n.Lit(_, dtype) | n.Cast(dtype) | n.Bitcast(dtype):
                return dtype
            case n.Load(buffer):
                return self._types[buffer]
            case n.BinOp(op) | n.UnOp(op):
                operand = given[0].dtype
                return None if operand is None else OPERATORS[op].result_type(operand)
            case n.Select():
                return given[1].dtype
            case n.Fma():
                return given[0].dtype
        return DType.U32

    def _form(self, node: n.Expr, given: list[Value], dtype: DType | None) -> Form | None:
        if dtype not in _NARROW:
            return None
        forms = [value.form for value in given]
        match node:
            case n.Lit(bits):
                value = bits - WORDS if bits >= WORDS >> 1 else bits
                return Form(_NO_IDS, (), GRID, value, value)
            case n.InvocationId(axis):
                return self._id(axis, self._workgroup_size[axis], 1)
            case n.WorkgroupId(axis):
                return self._id(axis, 1, 0)
            case n.LocalId(axis):
                return self._id(axis, 0, 1)
            case n.BinOp("add"):
                return _sum(forms[0], forms[1], 1)
            case n.BinOp("sub"):
                return _sum(forms[0], forms[1], -1)
            case n.BinOp("mul"):
                for one, other in (forms, forms[::-1]):
                    if other is not None and other.is_constant:
                        return _times(one, other.low)
            case n.BinOp("shl") if forms[1] is not None and forms[1].is_constant:
                return _times(forms[0], 1 << (forms[1].low & 31))
            case n.Cast() | n.Bitcast() if given[0].dtype in _NARROW:
                return forms[0]
        return _remainder(node)

    def _id(self, axis: int, groups: int, places: int) -> Form:
        ids = [0, 0, 0, 0, 0, 0]
        ids[axis] = groups
        ids[3 + axis] = places if self._workgroup_size[axis] > 1 else 0
        return Form(tuple(ids), (), GRID, 0, 0)


def _index_variables(program: Program) -> set[str]:
    """Return the variables that indices, conditions and loop bounds depend on; no others matter."""
    found: set[str] = set()
    # A declaration precedes its uses.
    for statement in reversed(list(walk.statements(program.entry))):
        indices: list[n.Expr] = []
        for root in walk.operands(statement):
            nodes = walk.postorder(root)
            indices += [node.index for node in nodes if isinstance(node, (n.Load, n.Atomic))]
            match statement:
                case n.If() | n.Loop():
                    indices.append(root)
                case n.Let(name) if name in found:
                    found.update(node.name for node in nodes if isinstance(node, n.Var))
        if isinstance(statement, n.Store):
            indices.append(statement.index)
        for index in indices:
            found.update(node.name for node in walk.postorder(index) if isinstance(node, n.Var))
    return found


def fields_beside_operands(node: n.Expr) -> tuple[Any, ...]:
    """Return the fields of a node that are not expressions."""
    return tuple(
        (repr(field) if isinstance(field, DType) else field)
        for name in node.__struct_fields__
        if name not in walk.EXPRESSION_FIELDS[type(node)] and (field := getattr(node, name)) is not None
    )


def _sum(a: Form | None, b: Form | None, sign: int) -> Form | None:
    """Return the form of a + b, or of a - b."""
    if a is None or b is None:
        return None
    ids = tuple(x + sign * y for x, y in zip(a.ids, b.ids, strict=True))
    symbols = dict(a.symbols)
    for key, times in b.symbols:
        symbols[key] = symbols.get(key, 0) + sign * times
    low, high = (b.low, b.high) if sign > 0 else (-b.high, -b.low)
    kept = tuple(sorted((key, times) for key, times in symbols.items() if times))
    return _bounded(Form(ids, kept, max(a.level, b.level) if kept else GRID, a.low + low, a.high + high))


def _times(form: Form | None, factor: int) -> Form | None:
    if form is None or not factor:
        return form and Form(_NO_IDS, (), GRID, 0, 0)
    low, high = sorted((form.low * factor, form.high * factor))
    symbols = tuple((key, times * factor) for key, times in form.symbols)
    return _bounded(Form(tuple(times * factor for times in form.ids), symbols, form.level, low, high))


def _bounded(form: Form) -> Form | None:
    largest = max(*map(abs, form.ids), abs(form.low), abs(form.high))
    is_known = len(form.symbols) <= _MOST_SYMBOLS and form.high - form.low <= _WIDEST and largest < WORDS
    return form if is_known else None


def _remainder(node: n.Expr) -> Form | None:
    """Return the form of an operation with a bounded result: a mask or a remainder by a constant."""
    match node:
        case n.BinOp("and" | "mod" as op, _, n.Lit(bits, DType.U32)) if 0 < bits <= _WIDEST:
            return Form(_NO_IDS, (), GRID, 0, bits if op == "and" else bits - 1)
    return None


def _between(start: Form | None, stop: Form | None) -> Form | None:
    """Return the form of a counter from one form up to another, if their distance is a constant."""
    if start is None or stop is None or (start.ids, start.symbols) != (stop.ids, stop.symbols):
        return None
    if stop.low < start.high:
        # The stop may be just below the start: counting up, it is reached only after wrapping around.
        return None
    return _bounded(start._replace(high=max(start.low, stop.high - 1)))


class Geometry:
    """The invocations of a launch: the workgroup's size, and whether the grid has one axis.

    ``most_workgroups`` is the largest grid of one axis for which all proofs so far hold.
    """

    def __init__(self, workgroup_size: tuple[int, int, int], *, one_axis: bool) -> None:
        self.workgroup_size = workgroup_size
        self.one_axis = one_axis
        self.most_workgroups: int | None = None

    @property
    def invocations(self) -> int:
        """The invocations of a workgroup."""
        return prod(self.workgroup_size)

    def separates(self, ids: tuple[int, ...], level: int, span: int, scope: Scope) -> bool:
        """Whether cells whose offsets differ by at most ``span`` differ between different members of a scope."""
        if scope is Scope.WORKGROUP:
            if level > WORKGROUP:
                return False
            return self._places(ids, span) is not None
        reach = span + sum(abs(c) * (size - 1) for c, size in zip(ids[3:], self.workgroup_size, strict=True))
        step = abs(ids[0])
        if not self.one_axis or level > GRID or step <= reach or step + reach >= WORDS:
            return False
        most = (WORDS - 1 - reach) // step
        self.most_workgroups = most if self.most_workgroups is None else min(self.most_workgroups, most)
        return True

    def _places(self, ids: tuple[int, ...], span: int) -> int | None:
        """Return the largest distance between cells of a workgroup's members; None if two members may share a cell."""
        reach = span
        for step, size in sorted((abs(c), size) for c, size in zip(ids[3:], self.workgroup_size, strict=True)):
            if size > 1:
                if step <= reach:
                    return None
                reach += step * (size - 1)
        return reach if reach < WORDS else None


def sole(condition: n.Expr, values: Values, geometry: Geometry, scope: Scope) -> Any:
    """Return a key of the only member of a scope for which a condition holds; None if there may be several.

    Equal keys identify the same member.
    """
    pending = [condition]
    while pending:
        match pending.pop():
            case n.BinOp("and", left, right):
                pending += (right, left)
            case n.BinOp("eq", left, right):
                a, b = values.of(left), values.of(right)
                if a.dtype not in _NARROW or max(a.level, b.level) > INVOCATION:
                    continue
                form = _sum(a.form, b.form, -1)
                if form is None or form.low != form.high:
                    continue
                if geometry.separates(form.ids, form.level, 0, scope):
                    other = _times(form, -1)
                    assert other is not None  # it is as large as the form
                    return max((*form[:2], form.low), (*other[:2], other.low))
    return None
