"""How does a program become rows? One walk, which is also the conversion to values.

Beside the rows the walk leaves an outline: the statements as they stand in their lists, with the rows of their
operands. Declarations of values are not in it, since a value's row is its declaration; what happens at a moment is.

Memory has versions, by writes and by points where invocations meet. What a statement ends the version of, it kills:
whatever was loaded before and is needed behind it has to be kept in a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from vyre.analyze.effects import buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import inline_calls
from vyre.ir.program import Program
from vyre.optimizer.arena import (
    COLUMNS,
    NONE,
    OPERATION_CODES,
    Arena,
    Arm,
    Kind,
    Leaf,
    head,
    order_by_level,
)
from vyre.optimizer.changes import SYNCHRONISING, changes_of, visible_at_resumes
from vyre.optimizer.outline import Assigned, Bound, Control, Effect, Items, Jump, Outline, Pinned, Variable
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

STICKY: Final = 1
_EPOCH: Final = -1
_ROW: Final = len(COLUMNS)

_LEAVES: Final = {
    n.InvocationId: Leaf.INVOCATION_ID,
    n.WorkgroupId: Leaf.WORKGROUP_ID,
    n.LocalId: Leaf.LOCAL_ID,
    n.NumWorkgroups: Leaf.NUM_WORKGROUPS,
}
_OPERATORS: Final = {
    (row.name, dtype): (head(Kind.OPERATION, row.result_type(dtype), OPERATION_CODES[row.name]), row.result_type(dtype))
    for row in (*BINARY.values(), *UNARY.values())
    for dtype in row.types
}
_PINNED: Final = (n.Atomic, n.SubgroupBallot, n.SubgroupShuffle, n.SubgroupReduce)


class _Loop(msgspec.Struct, eq=False):
    """A loop under way: the cells that it changes, and their contents at each jump."""

    row: int
    changing: list[Variable]
    breaks: list[list[tuple[int, int]]]
    continues: list[list[tuple[int, int]]]
    last_jump: int = NONE


def encode(program: Program) -> tuple[Arena, Outline]:
    """The rows and the outline of a legal program."""
    return _Encoder(inline_calls(program)).run()


class _Encoder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.words: list[int] = []
        self.types: list[DType] = []
        self.levels: list[int] = []
        self.count = 0
        self.numbers = {decl.name: number for number, decl in enumerate(program.buffers)}
        self.buffer_types = {decl.name: decl.dtype for decl in program.buffers}
        self.literals: dict[tuple[int, DType], int] = {}
        self.leaves: dict[tuple[int, int], int] = {}
        self.hints: dict[int, str] = {}
        self.names: set[str] = set()
        self.loads: dict[int, list[int]] = {}
        self.assigned, self.changes, self.written = changes_of(program)
        self.sticky = visible_at_resumes(program.entry)
        # The scopes, in preorder.
        self.parents: list[int] = []
        self.lasts: list[int] = []
        self.loop_depths: list[int] = []
        self.depths: list[int] = []
        self.scope_controls: list[int] = []
        self.arms: list[int] = []
        # What is true where the walk is: variables in scope, contents of cells and memory, and how to undo that.
        self.scope = -1
        self.control = NONE
        self.variables: dict[str, Variable | int] = {}
        self.declared: list[list[str]] = []
        self.state: dict[Any, Any] = {_EPOCH: 0}
        self.journal: list[dict[Any, Any]] = []
        self.event_scopes = [0]
        self.versions: dict[tuple[str, int, int], int] = {}
        self.version_scopes: list[int] = []
        self.loops: list[_Loop] = []
        self.lists: list[Items] = []
        self.assigns: list[dict[Variable, list[int]]] = []

    def run(self) -> tuple[Arena, Outline]:
        self.assigns.append({})
        body = self._list(self.program.entry, Arm.ALWAYS, NONE)
        words = np.array(self.words, np.uint32).reshape(self.count, _ROW)
        columns = {name: np.ascontiguousarray(words[:, place]) for place, name in enumerate(COLUMNS)}
        level, order, levels = order_by_level(self.levels)
        scopes = (self.parents, self.lasts, self.loop_depths, self.scope_controls, self.arms)
        arena = Arena(self.count, columns, level, order, levels, *(np.array(column, np.uint32) for column in scopes))
        return arena, Outline(self.program, body, self.names, self.hints, self.loads)

    def _row(
        self,
        word: int,
        dtype: DType,
        level: int,
        a0: int = NONE,
        a1: int = NONE,
        a2: int = NONE,
        scope: int = 0,
        d0: int = NONE,
        d1: int = NONE,
    ) -> int:
        self.words += (word, a0, a1, a2, scope, d0, d1)
        self.types.append(dtype)
        self.levels.append(level)
        self.count += 1
        return self.count - 1

    def _statement_row(self, kind: Kind, operands: Sequence[int] = (), flag: int = 0, d1: int = NONE) -> int:
        a0, a1, a2 = (*operands, NONE, NONE, NONE)[:3]
        return self._row(head(kind, None, flag), DType.BOOL, -1, a0, a1, a2, self.scope, self.control, d1)

    def _set_word(self, row: int, column: str, value: int) -> None:
        self.words[row * _ROW + COLUMNS.index(column)] = value

    # Scopes and the state at a place.

    def _open_scope(self, arm: Arm, control: int, *, in_loop: bool) -> int:
        outer, number = self.scope, len(self.parents)
        self.parents.append(max(outer, 0))
        self.lasts.append(number)
        self.loop_depths.append((self.loop_depths[outer] if outer >= 0 else 0) + in_loop)
        self.depths.append(self.depths[outer] + 1 if outer >= 0 else 0)
        self.scope_controls.append(control)
        self.arms.append(arm)
        self.scope = number
        self.declared.append([])
        return outer

    def _close_scope(self, outer: int) -> None:
        self.lasts[self.scope] = len(self.parents) - 1
        for name in self.declared.pop():
            del self.variables[name]
        self.scope = outer

    def _set(self, key: Any, value: Any) -> None:
        if self.journal:
            self.journal[-1].setdefault(key, self.state.get(key))
        self.state[key] = value

    def _begin_path(self) -> None:
        self.journal.append({})

    def _end_path(self) -> dict[Any, Any]:
        """Undoes a path; what it changed, as it was at its end."""
        before = self.journal.pop()
        changed = {key: self.state[key] for key in before}
        for key, old in before.items():
            if old is None:
                del self.state[key]
            else:
                self.state[key] = old
        return changed

    def _event(self) -> int:
        self.event_scopes.append(self.scope)
        return len(self.event_scopes) - 1

    # Memory.

    def _version(self, buffer: str) -> int:
        changes = buffer in self.written
        key = (buffer, self.state.get(buffer, 0), self.state[_EPOCH]) if changes else (buffer, 0, 0)
        version = self.versions.get(key)
        if version is None:
            version = self.versions[key] = len(self.version_scopes)
            scopes = self.event_scopes[key[1]], self.event_scopes[key[2]]
            self.version_scopes.append(max(scopes, key=self.depths.__getitem__))
        return version

    def _ended(self, changing: Sequence[Any]) -> list[int]:
        """The versions, of those that somebody loads, that end when this memory changes; by order of declaration."""
        buffers = self.written if _EPOCH in changing else sorted(changing, key=self.numbers.__getitem__)
        keys = ((buffer, self.state.get(buffer, 0), self.state[_EPOCH]) for buffer in buffers)
        return [version for key in keys if (version := self.versions.get(key)) is not None]

    def _touch(self, buffers: Iterable[str], *, synchronises: bool) -> list[int]:
        """Memory changes here; the versions that end."""
        changing = (_EPOCH,) if synchronises else tuple(buffers)
        ended = self._ended(changing)
        self._change(changing)
        return ended

    def _change(self, memory: Iterable[Any]) -> None:
        for key in memory:
            self._set(key, self._event())

    # Expressions.

    def _expression(self, root: n.Expr) -> int:
        stack: list[int] = []
        types, levels, words = self.types, self.levels, self.words
        order: list[Any] = walk.postorder(root)
        variables = self.variables
        for node in order:
            cls = type(node)
            if cls is n.Var:
                value = variables[node.name]
                stack.append(value if type(value) is int else self.state[value][0])
            elif cls is n.BinOp:
                right = stack.pop()
                left = stack[-1]
                word, dtype = _OPERATORS[node.op, types[left]]
                below, beside = levels[left], levels[right]
                words += (word, left, right, NONE, 0, NONE, NONE)
                types.append(dtype)
                levels.append((below if below > beside else beside) + 1)
                stack[-1] = self.count
                self.count += 1
            elif cls is n.Lit:
                stack.append(self._literal(node.bits, node.dtype))
            elif cls is n.Load:
                stack[-1] = self._load(node.buffer, stack[-1])
            elif cls is n.UnOp:
                operand = stack[-1]
                word, dtype = _OPERATORS[node.op, types[operand]]
                stack[-1] = self._row(word, dtype, levels[operand] + 1, operand)
            else:
                operands = walk.operands(node)
                given = stack[len(stack) - len(operands) :]
                if operands:
                    del stack[-len(operands) :]
                stack.append(self._other(node, given))
        return stack[0]

    def _literal(self, bits: int, dtype: DType) -> int:
        row = self.literals.get((bits, dtype))
        if row is None:
            word = head(Kind.LITERAL, dtype)
            row = self.literals[bits, dtype] = self._row(word, dtype, 0, bits & NONE, bits >> 32)
        return row

    def _leaf(self, leaf: Leaf, what: int) -> int:
        row = self.leaves.get((leaf, what))
        if row is None:
            row = self.leaves[leaf, what] = self._row(head(Kind.LEAF, DType.U32, leaf), DType.U32, 0, what)
        return row

    def _load(self, buffer: str, index: int) -> int:
        version = self._version(buffer)
        dtype = self.buffer_types[buffer]
        number = self.numbers[buffer]
        scope = self.version_scopes[version]
        row = self._row(head(Kind.LOAD, dtype), dtype, self.levels[index] + 1, index, version, number, scope)
        self.loads.setdefault(version, []).append(row)
        return row

    def _other(self, node: n.Expr, given: list[int]) -> int:
        level = 1 + max((self.levels[row] for row in given), default=0)
        match node:
            case n.Select():
                dtype = self.types[given[1]]
                return self._operation("select", dtype, level, given)
            case n.Cast(target):
                if self.types[given[0]] is target:
                    return given[0]
                return self._operation("cast", target, level, given)
            case n.Bitcast(target):
                return self._operation("bitcast", target, level, given)
            case n.Fma():
                return self._operation("fma", self.types[given[0]], level, given)
            case n.BufLen(buffer):
                return self._leaf(Leaf.LENGTH, self.numbers[buffer])
            case n.SubgroupLocalId():
                return self._leaf(Leaf.SUBGROUP_LANE, 0)
            case n.SubgroupSize():
                return self._leaf(Leaf.SUBGROUP_SIZE, 0)
            case n.InvocationId() | n.WorkgroupId() | n.LocalId() | n.NumWorkgroups():
                return self._leaf(_LEAVES[type(node)], node.axis)
        return self._pinned(node, given, level)

    def _operation(self, name: str, dtype: DType, level: int, given: list[int]) -> int:
        return self._row(head(Kind.OPERATION, dtype, OPERATION_CODES[name]), dtype, level, *given)

    def _pinned(self, node: n.Expr, given: list[int], level: int) -> int:
        match node:
            case n.Atomic():
                dtype = self.buffer_types[node.buffer]
            case n.SubgroupBallot():
                dtype = DType.U32
            case n.SubgroupShuffle() | n.SubgroupReduce():
                dtype = self.types[given[0]]
            case _:
                raise TypeError(f"{type(node).__name__} has no row")
        a0, a1, a2 = (*given, NONE, NONE, NONE)[:3]
        row = self._row(head(Kind.PINNED, dtype), dtype, level, a0, a1, a2, self.scope, self.control)
        kills: list[int] = []
        has_effect = isinstance(node, n.Atomic)
        if isinstance(node, n.Atomic):
            self._statement_row(Kind.EFFECT, (row,))
            kills = self._touch((node.buffer,), synchronises=node.order is not n.MemoryOrder.RELAXED)
        self.lists[-1].items.append(Pinned(node, row, tuple(given), kills, has_effect))
        return row

    # Statements.

    def _list(self, body: n.Body, arm: Arm, control: int) -> Items:
        outer, outer_control = self._open_scope(arm, control, in_loop=False), self.control
        self.control = control
        items = self._statements(body)
        self._close_scope(outer)
        self.control = outer_control
        return items

    def _statements(self, body: n.Body) -> Items:
        items = Items(self.scope, [])
        self.lists.append(items)
        for statement in body:
            self._statement(statement)
            if not items.falls:
                break
        self.lists.pop()
        return items

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Let(name, value):
                self._let(name, self._expression(value), sticky=id(statement) in self.sticky)
            case n.Assign(name, value):
                variable = self.variables[name]
                assert isinstance(variable, Variable)  # loop variables and values that nobody assigns are not
                self._assign(variable, self._expression(value), declares=False)
            case n.If(condition, then, otherwise):
                self._if(statement, self._expression(condition), then, otherwise)
            case n.Loop(_, start, stop, _):
                self._loop(statement, (self._expression(start), self._expression(stop)))
            case n.While(condition, body):
                if any(isinstance(node, _PINNED) for node in walk.postorder(condition)):
                    # What happens in a condition happens in every pass, and needs a list to stand in.
                    leave = n.If(n.UnOp("lnot", condition), (n.Break(),))
                    again = n.While(n.lit(True), (leave, *body))
                    self.changes[id(again)] = self.changes[id(statement)]
                    statement = again
                self._loop(statement, ())
            case n.Block(body) | n.Region(body=body):
                self._block(statement, body)
            case n.Break() | n.Continue() | n.Return():
                self._jump(statement)
            case _:
                self._effect(statement)

    def _effect(self, statement: n.Stmt) -> None:
        operands = tuple(self._expression(root) for root in walk.operands(statement))
        row = self._statement_row(Kind.EFFECT, operands)
        # A transfer writes when somebody waits for it.
        written = () if isinstance(statement, (n.AsyncLoad, n.AsyncStore)) else buffers_written(statement)
        kills = self._touch(written, synchronises=isinstance(statement, SYNCHRONISING))
        self.lists[-1].items.append(Effect(statement, row, operands, kills))
        if isinstance(statement, n.Resume):
            for variable in list(self.variables.values()):
                if isinstance(variable, Variable):
                    self._bind_cell(variable)

    def _let(self, name: str, row: int, *, sticky: bool) -> None:
        self.declared[-1].append(name)
        self.names.add(name)
        if not sticky and name not in self.assigned:
            self.variables[name] = row
            self.hints.setdefault(row, name)
            return
        declaration = self._statement_row(Kind.DECLARATION, (), STICKY if sticky else 0)
        variable = Variable(name, self.types[row], self.depths[self.scope], declaration, sticky)
        self.variables[name] = variable
        self._assign(variable, row, declares=True)

    def _assign(self, variable: Variable, value: int, *, declares: bool) -> None:
        flag = STICKY if variable.sticky else 0
        row = self._statement_row(Kind.ASSIGN, (value,), flag, variable.declaration)
        self.lists[-1].items.append(Assigned(variable, row, value, declares))
        if not declares:
            self.assigns[-1].setdefault(variable, []).append(row)
        self._set(variable, (value, row))

    def _bind_cell(self, variable: Variable) -> None:
        row = self._row(head(Kind.CELL, variable.dtype), variable.dtype, 0, scope=self.scope)
        self.lists[-1].items.append(Bound(variable, row))
        self._set(variable, (row, row))

    def _join(self, kind: Kind, variable: Variable, first: tuple[int, int], second: tuple[int, int], *more: int) -> int:
        """A row for a cell where paths meet, each of which brings a value and its definition."""
        a0, d0 = first
        a1, d1 = second
        operands = (a0, a1, *more)
        level = 1 + max(self.levels[row] for row in operands if row != NONE)
        a2 = more[0] if more else NONE
        return self._row(head(kind, variable.dtype), variable.dtype, level, a0, a1, a2, self.scope, d0, d1)

    def _control(
        self, statement: n.Stmt, row: int, operands: tuple[int, ...], lists: list[Items], changed: Iterable[Any]
    ) -> Control:
        """Puts a statement with lists into the outline, before the memory that it changes is taken for changed."""
        kills = self._ended([key for key in changed if not isinstance(key, Variable)])
        inside = self.assigns.pop()
        outside = {v: rows for v, rows in inside.items() if v.depth <= self.depths[self.scope]}
        for variable, rows in outside.items():
            self.assigns[-1].setdefault(variable, []).extend(rows)
        control = Control(statement, row, operands, lists, [], [], kills, outside)
        self.lists[-1].items.append(control)
        return control

    def _behind(self, control: Control, variable: Variable, row: int) -> None:
        control.joins.append(Bound(variable, row))
        self._set(variable, (row, row))

    def _block(self, statement: n.Stmt, body: n.Body) -> None:
        row = self._statement_row(Kind.CONTROL)
        self.assigns.append({})
        self._begin_path()
        items = self._list(body, Arm.ALWAYS, row)
        self._meet(self._control(statement, row, (), [items], (end := self._end_path())), [items], [end])

    def _meet(self, control: Control, lists: list[Items], ends: list[dict[Any, Any]], *condition: int) -> None:
        """Where the lists of a statement end, cells and memory hold what they do at the ends that are reached."""
        falling = [end for items, end in zip(lists, ends, strict=True) if items.falls]
        if not falling:
            self.lists[-1].falls = False
        for key in dict.fromkeys(key for end in falling for key in end):
            if not isinstance(key, Variable):
                self._change((key,))
            elif key.depth <= self.depths[self.scope]:
                ways = [end.get(key, self.state[key]) for end in falling]
                if len(ways) == 2:
                    self._behind(control, key, self._join(Kind.PHI, key, ways[0], ways[1], *condition))
                else:
                    self._behind(control, key, self._join(Kind.JOIN, key, ways[0], (NONE, NONE)))

    def _if(self, statement: n.Stmt, condition: int, then: n.Body, otherwise: n.Body) -> None:
        row = self._statement_row(Kind.CONTROL, (condition,))
        self.assigns.append({})
        lists: list[Items] = []
        ends: list[dict[Any, Any]] = []
        for arm, body in ((Arm.IF_TRUE, then), (Arm.IF_FALSE, otherwise)):
            self._begin_path()
            lists.append(self._list(body, arm, row))
            ends.append(self._end_path())
        changed = dict.fromkeys(key for end in ends for key in end)
        self._meet(self._control(statement, row, (condition,), lists, changed), lists, ends, condition)

    def _loop(self, statement: n.Loop | n.While, bounds: tuple[int, ...]) -> None:
        row = self._statement_row(Kind.CONTROL, bounds, flag=int(isinstance(statement, n.While)))
        names, buffers, synchronises = self.changes[id(statement)]
        changing = [v for name in names if isinstance(v := self.variables.get(name), Variable)]
        touched: list[Any] = [*buffers, *([_EPOCH] if synchronises else [])]
        self.assigns.append({})
        self._begin_path()
        loop = _Loop(row, changing, [], [])
        self.loops.append(loop)
        heads, counter, operands, items = self._body(statement, row, bounds, changing, touched)
        self.loops.pop()
        if items.falls:
            loop.continues.append([self.state[v] for v in changing])
        for place, (variable, loop_row) in enumerate(heads):
            self._close_loop_row(variable, loop_row, [values[place] for values in loop.continues], items.scope)
        self._end_path()
        control = self._control(statement, row, operands, [items], touched)
        control.heads = [Bound(variable, loop_row) for variable, loop_row in heads]
        control.counter = counter
        self._change(touched)
        for place, (variable, loop_row) in enumerate(heads):
            joined = self._join(Kind.JOIN, variable, (loop_row, loop_row), (NONE, NONE))
            for values in loop.breaks:
                joined = self._join(Kind.JOIN, variable, (joined, joined), values[place])
            self._behind(control, variable, joined)

    def _body(
        self,
        statement: n.Loop | n.While,
        row: int,
        operands: tuple[int, ...],
        changing: list[Variable],
        touched: list[Any],
    ) -> tuple[list[tuple[Variable, int]], int, tuple[int, ...], Items]:
        """The inside of a loop: the cells at its head, its variable, its operands, and its list.

        The condition of a ``while`` has a scope of its own around the list, as it is computed in every pass.
        """
        outer_control, self.control = self.control, row
        counter = NONE
        match statement:
            case n.Loop(var, body=body):
                outer = self._open_scope(Arm.IN_RANGE, row, in_loop=True)
                counter = self._row(head(Kind.LOOP_VARIABLE, DType.U32), DType.U32, 0, scope=self.scope)
                self.variables[var] = counter
                self.declared[-1].append(var)
                heads = self._loop_heads(changing, touched)
                items = self._statements(body)
            case n.While(condition, body):
                outer = self._open_scope(Arm.ALWAYS, NONE, in_loop=True)
                heads = self._loop_heads(changing, touched)
                operands = (self._expression(condition),)
                self._set_word(row, "a0", operands[0])
                self._set_word(row, "scope", self.scope)
                items = self._list(body, Arm.IF_TRUE, row)
        self._close_scope(outer)
        self.control = outer_control
        return heads, counter, operands, items

    def _loop_heads(self, changing: list[Variable], touched: list[Any]) -> list[tuple[Variable, int]]:
        """At the head of a loop, cells and memory that it changes hold something else in every pass."""
        self._change(touched)
        heads: list[tuple[Variable, int]] = []
        for variable in changing:
            loop_row = self._join(Kind.LOOP, variable, self.state[variable], (NONE, NONE))
            heads.append((variable, loop_row))
            self._set(variable, (loop_row, loop_row))
        return heads

    def _close_loop_row(self, variable: Variable, row: int, ways: list[tuple[int, int]], scope: int) -> None:
        """Gives a LOOP row what its cell holds when the next pass begins."""
        if not ways:
            return
        value, definition = ways[0]
        outer, self.scope = self.scope, scope
        for way in ways[1:]:
            value = definition = self._join(Kind.JOIN, variable, (value, definition), way)
        self.scope = outer
        self._set_word(row, "a1", value)
        self._set_word(row, "d1", definition)

    def _jump(self, statement: n.Stmt) -> None:
        items = self.lists[-1]
        items.falls = False
        if isinstance(statement, n.Return):
            items.items.append(Jump(statement, self._statement_row(Kind.EFFECT)))
            return
        loop = self.loops[-1]
        row = self._statement_row(Kind.JUMP, (), 0, loop.last_jump)
        loop.last_jump = row
        self._set_word(loop.row, "d1", row)
        ways = loop.breaks if isinstance(statement, n.Break) else loop.continues
        ways.append([self.state[v] for v in loop.changing])
        items.items.append(Jump(statement, row))
