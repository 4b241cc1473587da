"""Rows: what scalar code finds out once about a row of invocations, so that its vectors need no checks and no masks.

A row is a range of invocations along the lanes' axis; all other ids are uniform in it. An expression of ids, literals,
lengths and buffers that the program does not write is uniform in the row, or linear: it grows by one from lane to
lane. If a uniform condition shows that no invocation of the row does anything, the row is skipped.

Comparisons of a linear with a uniform value, clamps, remainders and bounds checks of linear indices have one
outcome in a single interval of the row, which is computed here. The intersection of the intervals is the interior of
the row. There the outcomes are constants, and accesses with linear indices are vectors from an address on that is
computed once. The vectors outside the interior run code that knows of the row only what is uniform in it.

Which of its outcomes a comparison has in the interior is chosen by its form: what is compared with a small literal is
assumed to be above it; branches are assumed to lead to work, not to a return; anything else is assumed to be below. A
wrong choice costs time only: the interior is then short or empty.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial, reduce
from typing import Final

import msgspec

from vyre.analyze.shapes import Layout, Shape
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.expressions import Expressions
from vyre.emit.llvm.text import ELEMENT, STORED
from vyre.emit.llvm.values import NO_FACTS, Facts, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.types import DType, Kind

# Comparisons with literals up to this one are those with the start of a row.
_MAX_START: Final = 16
# Remainders by smaller literals have one quotient for too few lanes.
_MIN_DIVISOR: Final = 256
# Each condition takes a few scalar instructions per row.
_MAX_CONDITIONS: Final = 64
# Beyond every id.
_FAR: Final = str(1 << 33)
_SWAPPED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
_TRUTH: Final = {True: Value(DType.BOOL, Shape.UNIFORM, "true"), False: Value(DType.BOOL, Shape.UNIFORM, "false")}
_Found = Value | None


class Row(msgspec.Struct, frozen=True):
    """A row: its interior, as the texts of its i64 limits, in which ``facts`` hold; ``edge_facts`` hold everywhere.

    ``is_active`` is the condition without which no invocation of the row does anything, "" if there is none. Those
    before ``begin`` and from ``end`` on do nothing in any case.
    """

    first: str
    last: str
    begin: str
    end: str
    facts: Facts = NO_FACTS
    edge_facts: Facts = NO_FACTS
    is_active: str = ""


def _outcome(op: str, limit: Value, wanted: bool | None) -> tuple[bool, bool, bool]:
    """Return the outcome of comparing a linear value with a limit in the interior, the ``wanted`` one if it can be.

    Also returns whether the value is above the limit then, and whether it may be equal.
    """
    is_literal = limit.text.isdecimal()
    is_above = is_literal and int(limit.text) <= _MAX_START
    if op in ("eq", "ne"):
        return op == "ne", is_above, False
    is_below = op in ("lt", "le")
    if wanted is not None and not is_literal:
        is_above = wanted is not is_below
    return is_below is not is_above, is_above, op in (("ge", "lt") if is_above else ("le", "gt"))


class _Below(msgspec.Struct, frozen=True):
    """A limit, and the linear values below it: each at id 0, and as a signed number."""

    limit: Value
    inclusive: bool
    starts: dict[str, str]


class Rows(Expressions):
    """Writer of the code that runs once per row. The ids of the other axes are in ``id_values``."""

    def row(self, program: Program, first: str, last: str) -> Row:
        """Write the code for a program with unique names and for the row between two ids of the lanes' axis."""
        layout, active, notes = self.layout, self.has_active_lane, dict(self.notes)
        self._axis = layout.axis
        self._assigned = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}
        self._middle = self.code.put(f"lshr i64 {self.code.put(f'add i64 {first}, {last}')}, 1")
        self._first, self._last = self._begin, self._end = first, last
        self._limits: dict[int, tuple[bool, str, str]] = {}
        self._variables: dict[str, Value] = {}
        self._values: dict[int, Value] = {}
        self._assumed: dict[int, Value] = {}
        self._assumptions: list[str] = []
        # The outcomes of conditions, by identity, with which a branch leads to work.
        self._wanted: dict[int, bool] = {}
        self._addresses: dict[int, str] = {}
        self._past_caches: dict[int, str] = {}
        self._above: set[tuple[str, ...]] = set()
        self._below: dict[tuple[str, ...], _Below] = {}
        # Expressions, by identity, and variables whose values are the same in the whole row, not only in its interior.
        self._certain: set[int | str] = set()
        # Scalar code, which runs whether or not the invocations execute the expression: no proof covers it.
        self.layout, self.has_active_lane, self.facts = Layout(layout.workgroup_size, 1), False, NO_FACTS
        self._scan(program.entry)
        self._meet_limits()
        if self._assumptions:
            holds = reduce(lambda a, b: self.code.put(f"and i1 {a}, {b}"), self._assumptions)
            self._last = self.code.put(f"select i1 {holds}, i64 {self._last}, i64 -1")
        is_active = self._activity(program)
        certain = {key: value for key, value in self._values.items() if key in self._certain}
        self.layout, self.has_active_lane, self.notes = layout, active, notes
        facts = Facts(self._values | self._assumed, self._addresses, self._past_caches)
        return Row(self._first, self._last, self._begin, self._end, facts, Facts(certain), is_active)

    def _scan(self, body: n.Body) -> None:
        for statement in body:
            match statement:
                case n.Let(name, value):
                    found = self._row(value)
                    if found is not None and name not in self._assigned:
                        self._variables[name] = found
                        if id(value) in self._certain:
                            self._certain.add(name)
                case n.If():
                    self._scan_branch(statement)
                case n.Store(index=index, value=value):
                    at = self._row(index)
                    self._row(value)
                    self._cover(statement, at)
                case _:
                    self._scan_operands(walk.operands(statement))
                    for inner in walk.bodies(statement):
                        self._scan(inner)

    def _scan_operands(self, roots: Iterable[n.Expr]) -> None:
        for root in roots:
            self._row(root)

    def _scan_branch(self, statement: n.If) -> None:
        if not statement.otherwise:
            leads_to_work = not isinstance(statement.then[-1] if statement.then else None, n.Return)
            for part in self._parts(statement.condition, "and" if leads_to_work else "or"):
                self._wanted[id(part)] = leads_to_work
        condition = self._row(statement.condition)
        truth = condition.text if condition is not None else ""
        if truth != "false":
            self._scan(statement.then)
        if truth != "true":
            self._scan(statement.otherwise)
        is_check = len(statement.then) == 1 and isinstance(statement.then[0], n.Store) and not statement.otherwise
        if is_check and condition is not None and id(statement.then[0]) in self._addresses:
            self._assume(statement.condition, condition)

    def _row(self, root: n.Expr) -> _Found:
        """Return the value of an expression where the lanes' axis has id 0, if it is uniform or linear."""
        return walk.fold(root, self._row_node)

    def _row_node(self, node: n.Expr, given: list[_Found]) -> _Found:
        found = self._row_value(node, given)
        if found is None:
            return None
        if not isinstance(node, n.Var | n.Lit):
            self._values[id(node)] = found
        is_certain = not found.shape.stride and all(id(operand) in self._certain for operand in walk.operands(node))
        if node.name in self._certain if isinstance(node, n.Var) else is_certain:
            self._certain.add(id(node))
        return found

    def _row_value(self, node: n.Expr, given: list[_Found]) -> _Found:
        match node:
            case n.Var(name):
                return self._variables.get(name)
            case n.Lit() | n.BufLen() | n.NumWorkgroups():
                return self._expression(node, [])
            case n.InvocationId(axis) if axis == self._axis:
                return Value(DType.U32, Shape.LINEAR, "0")
            case n.InvocationId(axis) | n.WorkgroupId(axis) | n.LocalId(axis):
                return self.id_values[type(node), axis] if axis != self._axis else None
            case n.Load():
                return self._row_load(node, given[0])
            case n.BinOp() | n.UnOp() | n.Select() | n.Cast() | n.Bitcast() | n.Fma():
                return self._row_operator(node, given)
        return None

    def _row_load(self, load: n.Load, index: _Found) -> _Found:
        if index is None:
            return None
        if index.shape.stride:
            self._cover(load, index)
            return None
        return self._load(load, index) if load.buffer in self.fixed else None

    def _row_operator(
        self, node: n.BinOp | n.UnOp | n.Select | n.Cast | n.Bitcast | n.Fma, given: list[_Found]
    ) -> _Found:
        if isinstance(node, n.Select) and given[0] is not None:
            condition = given[0]
            if condition.text in ("true", "false"):
                return given[1 if condition.text == "true" else 2]
            if id(node.true_value) in self._addresses and isinstance(node.false_value, n.Lit):
                self._assume(node.condition, condition)
                return None
        values = [value for value in given if value is not None]
        if len(values) < len(given):
            return None
        if not any(value.shape.stride for value in values):
            return self._folded(node, values)
        return self._row_linear(node, values)

    def _folded(self, node: n.BinOp | n.UnOp | n.Select | n.Cast | n.Bitcast | n.Fma, given: list[Value]) -> Value:
        """Apply an operator to uniform values; truth values fold."""
        texts = [value.text for value in given]
        match node:
            case n.BinOp("and", _, _) if given[0].dtype is DType.BOOL and {"true", "false"} & set(texts):
                return _TRUTH[False] if "false" in texts else given[texts[0] == "true"]
            case n.BinOp("or", _, _) if given[0].dtype is DType.BOOL and {"true", "false"} & set(texts):
                return _TRUTH[True] if "true" in texts else given[texts[0] == "false"]
            case n.UnOp("lnot") if texts[0] in ("true", "false"):
                return _TRUTH[texts[0] == "false"]
        return self._operator(node, given)

    def _row_linear(self, node: n.BinOp | n.UnOp | n.Select | n.Cast | n.Bitcast | n.Fma, given: list[Value]) -> _Found:
        """Return what an operator gives of values of which some are linear."""
        dtype, strides = given[0].dtype, [value.shape.stride or 0 for value in given]
        if isinstance(node, n.Cast | n.Bitcast):
            return self._converted(node.target, given[0]) if dtype.is_integer else None
        if isinstance(node, n.Select):
            is_linear = not strides[0] and strides[1] == strides[2]
            return self._linear(self._operator(node, given)) if is_linear else None
        if not isinstance(node, n.BinOp) or not dtype.is_integer or dtype.bits < 32:
            return None
        if node.op in ("add", "sub"):
            stride = strides[0] + strides[1] if node.op == "add" else strides[0] - strides[1]
            value = self._operator(node, given)
            return None if stride not in (0, 1) else self._linear(value) if stride else value
        op, left, right = node.op, given[0], given[1]
        if strides == [0, 1] and (op in _SWAPPED or op in ("min", "max")):
            op, left, right = _SWAPPED.get(op, op), right, left
        elif strides != [1, 0]:
            return None
        if self._has_enough():
            return None
        if op in _SWAPPED:
            truth, is_above, is_inclusive = _outcome(op, right, self._wanted.get(id(node)))
            (self._require_above if is_above else self._require_below)(left, right, inclusive=is_inclusive)
            if left.text == "0" and left.dtype is DType.U32 and (op not in ("eq", "ne") or right.text == "0"):
                self._limits[id(node)] = truth, *self._limits_of_id(right, is_above, is_inclusive)
            return _TRUTH[truth]
        return self._clamped(op, left, right) or self._divided(node, left, right)

    def _has_enough(self) -> bool:
        return len(self._above) + sum(len(found.starts) for found in self._below.values()) >= _MAX_CONDITIONS

    def _linear(self, value: Value) -> Value:
        return Value(value.dtype, Shape(1, value.dtype), value.text)

    def _converted(self, target: DType, value: Value) -> _Found:
        """Convert a linear integer; to more bits, where it does not wrap around."""
        source = value.dtype
        if not target.is_integer or target.bits < 32 or source.bits < 32:
            return None
        if target.bits <= source.bits:
            text = value.text
            if target.bits < source.bits:
                text = self.code.put(f"trunc i64 {text} to i32")
            return self._linear(Value(target, Shape.UNIFORM, text))
        # As a signed number, the value at id 0 is at most 2**31 away from 0, and the lanes count up from there.
        code, start = self.code, self.code.put(f"sext i32 {value.text} to i64")
        least, most = (0, 1 << 32) if source is DType.U32 else (-(1 << 31), 1 << 31)
        self._meet(code.put(f"sub i64 {least}, {start}"), code.put(f"sub i64 {most}, {start}"))
        return self._linear(Value(target, Shape.UNIFORM, start))

    def _limits_of_id(self, limit: Value, is_above: bool, is_inclusive: bool) -> tuple[str, str]:
        """Return the first id above a limit and the end of all ids, or 0 and the end of those below the limit."""
        wide = self.code.put(f"zext i32 {limit.text} to i64")
        if is_above is not is_inclusive:
            wide = self.code.put(f"add i64 {wide}, 1")
        return (wide, _FAR) if is_above else ("0", wide)

    def _clamped(self, op: str, left: Value, right: Value) -> _Found:
        """Return a linear value that a clamp leaves as it is, or the limit where it is small."""
        match op:
            case "min" if right.text.isdecimal() and int(right.text) <= _MAX_START:
                self._require_above(left, right, inclusive=True)
                return right
            case "min":
                self._require_below(left, right, inclusive=True)
                return left
            case "max":
                self._require_above(left, right, inclusive=True)
                return left
            case "sat_sub" if left.dtype.kind is not Kind.SIGNED:
                self._require_above(left, right, inclusive=True)
                return self._linear(self._binary("sub", left, right))
        return None

    def _divided(self, node: n.BinOp, left: Value, right: Value) -> _Found:
        """Return the quotient or the remainder by a uniform divisor, with the quotient of the middle of the row.

        The id itself is left out: its remainders are rarely those of coordinates that wrap around at the end of a row.
        """
        is_small = right.text.isdecimal() and int(right.text) < _MIN_DIVISOR
        if node.op not in ("div", "mod") or left.dtype.kind is Kind.SIGNED or is_small or left.text == "0":
            return None
        place = self._middle
        if left.dtype.bits < 64:
            place = self.code.put(f"trunc i64 {place} to {ELEMENT[left.dtype]}")
        middle = self._binary("add", left, Value(left.dtype, Shape.UNIFORM, place))
        quotient = self._binary("div", middle, right)
        start = self._binary("mul", quotient, right)
        rest = self._linear(self._binary("sub", left, start))
        self._require_above(left, start, inclusive=True)
        self._require_below(rest, right, inclusive=False)
        return quotient if node.op == "div" else rest

    def _meet(self, first: str, last: str) -> None:
        """Intersect the interior with an interval, of signed i64."""
        self._first = self._both("smax", self._first, first)
        self._last = self._both("smin", self._last, last)

    def _both(self, name: str, a: str, b: str) -> str:
        return self.code.intrinsic(name, "i64", [("i64", a), ("i64", b)], ["i64"])

    def _assume(self, root: n.Expr, condition: Value) -> None:
        """Let the interior be empty unless a uniform condition holds."""
        if condition.text not in self._assumptions:
            self._assumptions.append(condition.text)
        self._assumed[id(root)] = _TRUTH[True]

    def _require_below(self, left: Value, right: Value, *, inclusive: bool) -> str:
        """Keep where a linear value is below a limit, or equal to it; return its distance from id 0's least value.

        That is the value at id 0 as a signed number: one that is not below the limit there comes below it when it has
        wrapped around. Values below one limit share its condition: the least and the greatest of them decide.
        """
        bits = left.dtype.bits
        key = left.dtype.label, right.text, "equal" if inclusive else ""
        found = self._below.setdefault(key, _Below(right, inclusive, {}))
        if left.text in found.starts:
            return found.starts[left.text]
        start, limit = self._ordered(left, right)
        is_below = self.code.put(f"icmp {'ule' if inclusive else 'ult'} i64 {start}, {limit}")
        if bits == 64:
            # Far from the limit, nothing is below it within a row.
            wrapped = self.code.put(f"sub i64 0, {start}")
            first = self.code.put(f"select i1 {is_below}, i64 0, i64 {wrapped}")
            straight = self.code.put(f"sub i64 {limit}, {start}")
            last = self.code.put(f"select i1 {is_below}, i64 {straight}, i64 {self._both('uadd.sat', wrapped, limit)}")
            self._meet(self._both("umin", first, _FAR), self._both("umin", last, _FAR))
            found.starts[left.text] = start
            return start
        negative = self.code.put(f"sub i64 {start}, {1 << 32}")
        found.starts[left.text] = self.code.put(f"select i1 {is_below}, i64 {start}, i64 {negative}")
        return found.starts[left.text]

    def _meet_limits(self) -> None:
        """Keep where the values with limits are below them, those of one limit together."""
        for found in self._below.values():
            if found.limit.dtype.bits == 64:
                continue
            starts = list(found.starts.values())
            least = reduce(partial(self._both, "smin"), starts)
            most = reduce(partial(self._both, "smax"), starts)
            (limit,) = self._ordered(found.limit)
            if found.inclusive:
                limit = self.code.put(f"add i64 {limit}, 1")
            self._meet(self.code.put(f"sub i64 0, {least}"), self.code.put(f"sub i64 {limit}, {most}"))

    def _require_above(self, left: Value, right: Value, *, inclusive: bool) -> None:
        """Keep where a linear value is above a limit, or equal to it, and has not wrapped around."""
        key = left.dtype.label, left.text, right.text, "equal" if inclusive else ""
        if key in self._above:
            return
        self._above.add(key)
        code, (start, limit) = self.code, self._ordered(left, right)
        if left.dtype.bits == 64:
            is_above = code.put(f"icmp uge i64 {start}, {limit}")
            missing = self._both("umin", code.put(f"sub i64 {limit}, {start}"), _FAR)
            missing = code.put(f"select i1 {is_above}, i64 0, i64 {missing}")
            left_over = self._both("umin", code.put(f"xor i64 {start}, -1"), _FAR)
        else:
            missing, left_over = code.put(f"sub i64 {limit}, {start}"), code.put(f"sub i64 {(1 << 32) - 1}, {start}")
        self._meet(missing if inclusive else code.put(f"add i64 {missing}, 1"), left_over)

    def _ordered(self, *values: Value) -> list[str]:
        """Return integers as unsigned i64 in the order of their type."""
        found = []
        for value in values:
            element, text = ELEMENT[value.dtype], value.text
            if value.dtype.kind is Kind.SIGNED:
                text = self.code.put(f"xor {element} {text}, {-(1 << (value.dtype.bits - 1))}")
            if value.dtype.bits < 64:
                text = text if text.isdecimal() else self.code.put(f"zext {element} {text} to i64")
            found.append(text)
        return found

    def _cover(self, access: n.Load | n.Store, index: _Found) -> None:
        """Keep where a linear index is in bounds, and note the address of its element at id 0."""
        if index is None or not index.shape.stride or self._has_enough():
            return
        code, place = self.code, self.places[access.buffer]
        start = self._require_below(index, Value(DType.U32, Shape.UNIFORM, place.length), inclusive=False)
        address = code.put(f"getelementptr {STORED[place.dtype]}, ptr {place.pointer}, i64 {start}")
        self._addresses[id(access)] = address
        if isinstance(access, n.Store) and self._is_streamed(access, place):
            # Vectors start at multiples of their width, so all of a row are aligned or none.
            self._past_caches[id(access)] = m.is_whole_line(code, place.dtype, address, self.width)

    def _activity(self, program: Program) -> str:
        """Return the condition that some invocation of the row does something, "" if it is not known to need one.

        It consists of the conditions that are uniform in the row of the branches around everything that has an effect.
        """
        needed: list[tuple[n.Expr, bool]] = []
        body: n.Body = program.entry
        while body:
            statement, *rest = body
            match statement:
                case n.Let(_, value) if not any(isinstance(node, n.Atomic) for node in walk.postorder(value)):
                    body = tuple(rest)
                case n.Region(body=inside) | n.Block(inside) if not rest:
                    body = inside
                case n.If(condition, then, ()) if not rest:
                    needed += ((part, True) for part in self._parts(condition, "and"))
                    body = then
                case n.If(condition, (n.Return(),), ()):
                    needed += ((part, False) for part in self._parts(condition, "or"))
                    body = tuple(rest)
                case _:
                    break
        is_active = ""
        for part, wanted in needed:
            limits = self._limits.get(id(part))
            if limits is not None and limits[0] is wanted:
                self._begin = self._both("umax", self._begin, limits[1])
                self._end = self._both("umin", self._end, limits[2])
            if id(part) not in self._certain or isinstance(part, n.Lit):
                continue
            known = self._variables[part.name] if isinstance(part, n.Var) else self._values[id(part)]
            text = known.text if wanted else self.code.put(f"xor i1 {known.text}, true")
            is_active = self.code.put(f"and i1 {is_active}, {text}") if is_active else text
            self._values[id(part)] = _TRUTH[wanted]
        return is_active

    def _parts(self, root: n.Expr, op: str) -> list[n.Expr]:
        """Return the operands of a chain of logical operators."""
        found, pending = [], [root]
        while pending:
            node = pending.pop()
            if isinstance(node, n.BinOp) and node.op == op and id(node) not in self._certain:
                pending += (node.right, node.left)
            else:
                found.append(node)
        return found
