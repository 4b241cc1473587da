"""Encoding: convert a program to the rows of an arena, in one walk that also converts variables to values.

The walk also builds an outline: the statements in their lists, with the rows of their operands. The outline has no
declarations of values, since a value's row is its declaration; it has everything whose place in the list matters.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from vyre.analyze.effects import buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import inline_calls
from vyre.ir.nodes import BinOp, Let, Lit, Store, Var
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, TYPES, Arena, Arm, Kind, Leaf, head, operation_head, type_of
from vyre.optimizer.changes import SYNCHRONISING, changes_of, visible_at_resumes
from vyre.optimizer.flow import EPOCH, Flow
from vyre.optimizer.outline import Assigned, Bound, Control, Effect, Items, Jump, Outline, Pinned, Variable
from vyre.optimizer.rows import Rows, Scopes
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

STICKY: Final = 1
# Values that are computed at their place in the source, because other invocations take part.
PINNED: Final = (n.Atomic, n.SubgroupBallot, n.SubgroupShuffle, n.SubgroupReduce)
_LEAVES: Final[dict[type[n.Expr], Leaf]] = {
    n.InvocationId: Leaf.INVOCATION_ID,
    n.WorkgroupId: Leaf.WORKGROUP_ID,
    n.LocalId: Leaf.LOCAL_ID,
    n.NumWorkgroups: Leaf.NUM_WORKGROUPS,
    n.SubgroupLocalId: Leaf.SUBGROUP_LANE,
    n.SubgroupSize: Leaf.SUBGROUP_SIZE,
}
_EFFECT: Final = Kind.EFFECT.value


class _Heads(dict[int, int]):
    """The heads of an operator's rows, by the heads of their first operands."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __missing__(self, operand: int) -> int:
        word = self[operand] = operation_head(self.name, type_of(operand))
        return word


_OPERATORS: Final = {name: _Heads(name) for name in (*BINARY, *UNARY)}
_LITERALS: Final = {dtype: head(Kind.LITERAL, dtype) for dtype in TYPES}


class _Loop(msgspec.Struct, eq=False):
    """An open loop: the cells that it changes, and what they hold at each jump."""

    row: int
    changing: list[Variable]
    breaks: list[list[tuple[int, int]]]
    continues: list[list[tuple[int, int]]]
    last_jump: int = NONE


def encode(program: Program) -> tuple[Arena, Outline]:
    """Return the rows and the outline of a legal program."""
    return _Encoder(inline_calls(program)).run()


class _Encoder:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.numbers = {decl.name: number for number, decl in enumerate(program.buffers)}
        self.buffer_types = {decl.name: decl.dtype for decl in program.buffers}
        self.literals: dict[tuple[int, DType], int] = {}
        self.leaves: dict[tuple[int, int], int] = {}
        self.names: list[list[str]] = []
        self.named: tuple[array[int], list[str]] = array("I"), []
        self.loads: dict[int, list[int]] = {}
        self.assigned, self.changes, written = changes_of(program)
        self.sticky = visible_at_resumes(program)
        self.rows = Rows()
        self.scopes = Scopes()
        self.depths = self.scopes.depths
        # The walk's position, what is known there, and the lists and loops around it.
        self.scope = -1
        self.control = NONE
        self.variables: dict[str, Variable | int] = {}
        self.declared: list[list[str]] = []
        self.flow = Flow(self.numbers, written, self.depths)
        self._expression = self._make_walk()
        self.loops: list[_Loop] = []
        self.lists: list[Items] = []
        self.skips = False
        self.assigns: list[dict[Variable, list[int]]] = []

    def run(self) -> tuple[Arena, Outline]:
        self.assigns.append({})
        body = self._list(self.program.entry, Arm.ALWAYS, NONE)
        # The walk refers to the encoder; breaking the reference cycle frees both without the garbage collector.
        del self._expression
        arena = self.rows.arena(self.scopes)
        return arena, Outline(self.program, body, self.names, self.named, self.loads, self.skips)

    def _statement_row(self, kind: Kind, operands: Sequence[int] = (), flag: int = 0, d1: int = NONE) -> int:
        a0, a1, a2 = (*operands, NONE, NONE, NONE)[:3]
        return self.rows.add(kind | flag << 16, -1, a0, a1, a2, self.scope, self.control, d1)

    def _type(self, row: int) -> DType:
        return type_of(self.rows.heads[row])

    def _open_scope(self, arm: Arm, control: int, *, in_loop: bool = False, has_barrier: bool = False) -> int:
        outer = self.scope
        self.scope = self.scopes.open(outer, arm, control, in_loop=in_loop, has_barrier=has_barrier)
        self.rows.set_barrier_depth(self.scopes.barrier_depths[self.scope])
        self.declared.append([])
        return outer

    def _close_scope(self, outer: int) -> None:
        self.scopes.close(self.scope)
        declared = self.declared.pop()
        self.names.append(declared)
        for name in declared if self.declared else ():
            self.variables.pop(name, None)
        self.scope = outer
        if outer >= 0:
            self.rows.set_barrier_depth(self.scopes.barrier_depths[outer])

    def _make_walk(self) -> Callable[[n.Expr], int]:
        """Return a function that adds the rows of an expression in order of evaluation and returns the last."""
        rows, variables, state, literals = self.rows, self.variables, self.flow.state, self.literals
        heads, first, second, levels, operators = rows.heads, rows.first, rows.second, rows.levels, _OPERATORS

        def row_of(node: Any) -> int:
            # Nodes that wait for an operand, each with the binary operations that use its result: a binary operation
            # with the row of its left operand; any other node with its operands and their rows so far.
            waiting: list[Any] = []
            while True:
                spine: list[Any] = []
                while type(node) is BinOp:
                    spine.append(node)
                    node = node.left
                above = reversed(spine)
                row: Any
                if type(node) is Var:
                    row = variables[node.name]
                    if type(row) is not int:
                        row = state[row][0]
                elif type(node) is Lit:
                    row = self._literal(node)
                elif operands := walk.operands(node):
                    waiting.append((above, (node, operands), []))
                    node = operands[0]
                    continue
                else:
                    row = self._other(node, [])
                while True:
                    for top in above:
                        left, node = row, top.right
                        if type(node) is Var:
                            row = variables[node.name]
                            if type(row) is not int:
                                row = state[row][0]
                        elif type(node) is Lit:
                            row = literals.get((node.bits, node.dtype))
                            if row is None:
                                row = self._literal(node)
                        else:
                            waiting.append((above, top, left))
                            break
                        below, beside = levels[left], levels[row]
                        levels.append(below + 1 if below > beside else beside + 1)
                        first.append(left)
                        second.append(row)
                        row = len(heads)
                        heads.append(operators[top.op][heads[left]])
                    else:
                        if not waiting:
                            assert type(row) is int
                            return row
                        above, top, given = waiting.pop()
                        if type(top) is BinOp:
                            row = rows.add(operators[top.op][heads[given]], self._above((given, row)), given, row)
                            continue
                        given.append(row)
                        other, operands = top
                        if len(given) == len(operands):
                            row = self._other(other, given)
                            continue
                        waiting.append((above, top, given))
                        node = operands[len(given)]
                    break

        return row_of

    def _literal(self, node: n.Lit) -> int:
        bits, dtype = node.bits, node.dtype
        row = self.literals.get((bits, dtype))
        if row is None:
            row = self.literals[bits, dtype] = self.rows.add_literal(_LITERALS[dtype], bits & NONE, bits >> 32)
        return row

    def _leaf(self, leaf: Leaf, what: int) -> int:
        row = self.leaves.get((leaf, what))
        if row is None:
            row = self.leaves[leaf, what] = self.rows.add(head(Kind.LEAF, DType.U32, leaf), 0, what)
        return row

    def _load(self, buffer: str, index: int) -> int:
        version = self.flow.version(buffer)
        word, level = head(Kind.LOAD, self.buffer_types[buffer]), self.rows.levels[index] + 1
        scope = self.flow.version_scopes[version]
        row = self.rows.add(word, level, index, version, a2=self.numbers[buffer], scope=scope)
        self.loads.setdefault(version, []).append(row)
        return row

    def _other(self, node: n.Expr, given: list[int]) -> int:
        match node:
            case n.Load(buffer):
                return self._load(buffer, given[0])
            case n.UnOp(op):
                level = self.rows.levels[given[0]] + 1
                return self.rows.add(_OPERATORS[op][self.rows.heads[given[0]]], level, given[0])
            case n.Select():
                return self._operation("select", self._type(given[1]), given)
            case n.Cast(target):
                return given[0] if self._type(given[0]) is target else self._operation("cast", target, given)
            case n.Bitcast(target):
                return self._operation("bitcast", target, given)
            case n.Fma():
                return self._operation("fma", self._type(given[0]), given)
            case n.BufLen(buffer):
                return self._leaf(Leaf.LENGTH, self.numbers[buffer])
            case n.SubgroupLocalId() | n.SubgroupSize():
                return self._leaf(_LEAVES[type(node)], 0)
            case n.InvocationId() | n.WorkgroupId() | n.LocalId() | n.NumWorkgroups():
                return self._leaf(_LEAVES[type(node)], node.axis)
        return self._pinned(node, given)

    def _above(self, rows: Iterable[int]) -> int:
        """Return the level of a row with these operands."""
        return 1 + max((self.rows.levels[row] for row in rows if row != NONE), default=0)

    def _operation(self, name: str, dtype: DType, given: list[int]) -> int:
        return self.rows.add(operation_head(name, dtype), self._above(given), *given)

    def _pinned(self, node: n.Expr, given: list[int]) -> int:
        match node:
            case n.Atomic():
                dtype = self.buffer_types[node.buffer]
            case n.SubgroupBallot():
                dtype = DType.U32
            case n.SubgroupShuffle() | n.SubgroupReduce():
                dtype = self._type(given[0])
            case _:
                raise TypeError(f"{type(node).__name__} has no row")
        a0, a1, a2 = (*given, NONE, NONE, NONE)[:3]
        word, level = head(Kind.PINNED, dtype), self._above(given)
        row = self.rows.add(word, level, a0, a1, a2=a2, scope=self.scope, d0=self.control)
        clobbers: list[int] = []
        if isinstance(node, n.Atomic):
            self._statement_row(Kind.EFFECT, (row,))
            synchronises = node.order is not n.MemoryOrder.RELAXED
            clobbers = self.flow.touch((node.buffer,), self.scope, synchronises=synchronises)
        self.lists[-1].items.append(Pinned(node, row, tuple(given), clobbers, isinstance(node, n.Atomic)))
        return row

    # Statements.

    def _list(self, body: n.Body, arm: Arm, control: int) -> Items:
        outer, outer_control = self._open_scope(arm, control), self.control
        self.control = control
        items = self._statements(body)
        self._close_scope(outer)
        self.control = outer_control
        return items

    def _statements(self, body: n.Body) -> Items:
        items = Items(self.scope, [])
        self.lists.append(items)
        self._walk(body, items)
        self.lists.pop()
        return items

    def _walk(self, body: n.Body, items: Items) -> None:
        """Encode the statements of a list, up to a jump."""
        declared, variables, row_of = self.declared[-1], self.variables, self._expression
        named_rows, names = self.named
        add, write, scope, control = self.rows.add, self.flow.write, self.scope, self.control
        assigned, sticky, are_values = self.assigned, self.sticky, not self.assigned and not self.sticky
        for statement in body:
            if type(statement) is Let:
                name, row = statement.name, row_of(statement.value)
                declared.append(name)
                if are_values or (name not in assigned and id(statement) not in sticky):
                    variables[name] = row
                    named_rows.append(row)
                    names.append(name)
                else:
                    self._declare(name, row, sticky=id(statement) in sticky)
                continue
            if type(statement) is Store:
                operands = row_of(statement.index), row_of(statement.value)
                row = add(_EFFECT, -1, *operands, NONE, scope, control)
                items.items.append(Effect(statement, row, operands, write(statement.buffer, scope)))
                continue
            self._statement(statement)
            if not items.falls_through:
                self.skips |= statement is not body[-1]
                break

    def _statement(self, statement: n.Stmt) -> None:
        match statement:
            case n.Assign(name, value):
                variable = self.variables[name]
                assert isinstance(variable, Variable)  # only assigned variables are cells
                self._assign(variable, self._expression(value), declares=False)
            case n.If(condition, then, otherwise):
                self._if(statement, self._expression(condition), then, otherwise)
            case n.Loop(_, start, stop, _):
                self._loop(statement, (self._expression(start), self._expression(stop)))
            case n.While(condition, body):
                if any(isinstance(node, PINNED) for node in walk.postorder(condition)):
                    # Pinned values of the condition are computed in every iteration, so they need a list to be in.
                    leave = n.If(n.UnOp("lnot", condition), (n.Break(),))
                    rewritten = n.While(n.lit(True), (leave, *body))
                    self.changes[id(rewritten)] = self.changes[id(statement)]
                    statement = rewritten
                self._loop(statement, ())
            case n.Block(body) | n.Region(body=body):
                self._block(statement, body)
            case n.Break() | n.Continue() | n.Return():
                self._jump(statement)
            case _:
                self._effect(statement)

    def _effect(self, statement: n.Stmt) -> None:
        operands = tuple(map(self._expression, walk.operands(statement)))
        row = self._statement_row(Kind.EFFECT, operands)
        # A transfer writes at its wait.
        written = () if isinstance(statement, (n.AsyncLoad, n.AsyncStore)) else buffers_written(statement)
        clobbers = self.flow.touch(written, self.scope, synchronises=isinstance(statement, SYNCHRONISING))
        self.lists[-1].items.append(Effect(statement, row, operands, clobbers))
        if isinstance(statement, n.Resume):
            for variable in list(self.variables.values()):
                if isinstance(variable, Variable):
                    self._bind_cell(variable)

    def _declare(self, name: str, row: int, *, sticky: bool) -> None:
        """Declare a cell: a variable that is assigned later or that is visible at a resume."""
        declaration = self._statement_row(Kind.DECLARATION, (), STICKY if sticky else 0)
        variable = Variable(name, self._type(row), self.depths[self.scope], declaration, sticky)
        self.variables[name] = variable
        self._assign(variable, row, declares=True)

    def _assign(self, variable: Variable, value: int, *, declares: bool) -> None:
        flag = STICKY if variable.sticky else 0
        row = self._statement_row(Kind.ASSIGN, (value,), flag, variable.declaration)
        self.lists[-1].items.append(Assigned(variable, row, value, declares))
        if not declares:
            self.assigns[-1].setdefault(variable, []).append(row)
        self.flow.set(variable, (value, row))

    def _bind_cell(self, variable: Variable) -> None:
        row = self.rows.add(head(Kind.CELL, variable.dtype), 0, scope=self.scope)
        self.lists[-1].items.append(Bound(variable, row))
        self.flow.set(variable, (row, row))

    def _join(self, kind: Kind, variable: Variable, first: tuple[int, int], second: tuple[int, int], *more: int) -> int:
        """Add a row for a cell where paths join; each path is given by the cell's value and its definition."""
        a0, d0 = first
        a1, d1 = second
        a2 = more[0] if more else NONE
        word, level = head(kind, variable.dtype), self._above((a0, a1, a2))
        return self.rows.add(word, level, a0, a1, a2=a2, scope=self.scope, d0=d0, d1=d1)

    def _control(
        self, statement: n.Stmt, row: int, operands: tuple[int, ...], lists: list[Items], changed: Iterable[Any]
    ) -> Control:
        """Add a statement with lists to the outline; called before the flow records what memory it changes."""
        clobbers = self.flow.ended([key for key in changed if not isinstance(key, Variable)])
        inside = self.assigns.pop()
        outside = {v: rows for v, rows in inside.items() if v.depth <= self.depths[self.scope]}
        for variable, rows in outside.items():
            self.assigns[-1].setdefault(variable, []).extend(rows)
        control = Control(statement, row, operands, lists, [], [], clobbers, outside, len(self.rows.heads))
        self.lists[-1].items.append(control)
        return control

    def _bind_behind(self, control: Control, variable: Variable, row: int) -> None:
        control.joins.append(Bound(variable, row))
        self.flow.set(variable, (row, row))

    def _block(self, statement: n.Stmt, body: n.Body) -> None:
        row = self._statement_row(Kind.CONTROL)
        self.assigns.append({})
        self.flow.begin_path()
        items = self._list(body, Arm.ALWAYS, row)
        self._join_paths(self._control(statement, row, (), [items], (end := self.flow.end_path())), [items], [end])

    def _join_paths(self, control: Control, lists: list[Items], ends: list[dict[Any, Any]], *condition: int) -> None:
        """Join the paths behind a statement: cells and memory hold what they do at the reachable ends of its lists.

        A cell that is not assigned inside keeps its value, also if a list contains a resume: an invocation that
        resumes there left the program inside the same list.
        """
        reachable = [end for items, end in zip(lists, ends, strict=True) if items.falls_through]
        if not reachable:
            self.lists[-1].falls_through = False
        for key in dict.fromkeys(key for end in reachable for key in end):
            if not isinstance(key, Variable):
                self.flow.change((key,), self.scope)
            elif key in control.assigns:
                ways = [end.get(key, self.flow.state[key]) for end in reachable]
                if len(ways) == 2:
                    self._bind_behind(control, key, self._join(Kind.PHI, key, ways[0], ways[1], *condition))
                else:
                    self._bind_behind(control, key, self._join(Kind.JOIN, key, ways[0], (NONE, NONE)))

    def _if(self, statement: n.Stmt, condition: int, then: n.Body, otherwise: n.Body) -> None:
        row = self._statement_row(Kind.CONTROL, (condition,))
        self.assigns.append({})
        lists: list[Items] = []
        ends: list[dict[Any, Any]] = []
        for arm, body in ((Arm.IF_TRUE, then), (Arm.IF_FALSE, otherwise)):
            self.flow.begin_path()
            lists.append(self._list(body, arm, row))
            ends.append(self.flow.end_path())
        changed = dict.fromkeys(key for end in ends for key in end)
        self._join_paths(self._control(statement, row, (condition,), lists, changed), lists, ends, condition)

    def _loop(self, statement: n.Loop | n.While, bounds: tuple[int, ...]) -> None:
        row = self._statement_row(Kind.CONTROL, bounds, flag=int(isinstance(statement, n.While)))
        names, buffers, synchronises, _ = self.changes[id(statement)]
        changing = [v for name in names if isinstance(v := self.variables.get(name), Variable)]
        touched: list[Any] = [*buffers, *([EPOCH] if synchronises else [])]
        self.assigns.append({})
        self.flow.begin_path()
        loop = _Loop(row, changing, [], [])
        self.loops.append(loop)
        heads, counter, operands, items = self._body(statement, row, bounds, changing, touched)
        self.loops.pop()
        if items.falls_through:
            loop.continues.append([self.flow.state[v] for v in changing])
        for place, (variable, loop_row) in enumerate(heads):
            self._close_loop_row(variable, loop_row, [values[place] for values in loop.continues], items.scope)
        self.flow.end_path()
        control = self._control(statement, row, operands, [items], touched)
        control.heads = [Bound(variable, loop_row) for variable, loop_row in heads]
        control.counter = counter
        self.flow.change(touched, self.scope)
        for place, (variable, loop_row) in enumerate(heads):
            joined = self._join(Kind.JOIN, variable, (loop_row, loop_row), (NONE, NONE))
            for values in loop.breaks:
                joined = self._join(Kind.JOIN, variable, (joined, joined), values[place])
            self._bind_behind(control, variable, joined)

    def _body(
        self,
        statement: n.Loop | n.While,
        row: int,
        operands: tuple[int, ...],
        changing: list[Variable],
        touched: list[Any],
    ) -> tuple[list[tuple[Variable, int]], int, tuple[int, ...], Items]:
        """Encode the inside of a loop; return the cells at its head, its counter, its operands and its list.

        The condition of a ``while`` has a scope of its own around the list, since every iteration computes it.
        """
        outer_control, self.control = self.control, row
        counter, has_barrier = NONE, self.changes[id(statement)].has_barrier
        match statement:
            case n.Loop(var, body=body):
                outer = self._open_scope(Arm.IN_RANGE, row, in_loop=True, has_barrier=has_barrier)
                counter = self.rows.add(head(Kind.LOOP_VARIABLE, DType.U32), 0, scope=self.scope)
                self.variables[var] = counter
                self.declared[-1].append(var)
                heads = self._loop_heads(changing, touched)
                items = self._statements(body)
            case n.While(condition, body):
                outer = self._open_scope(Arm.ALWAYS, NONE, in_loop=True, has_barrier=has_barrier)
                heads = self._loop_heads(changing, touched)
                operands = (self._expression(condition),)
                self.rows.first[row] = operands[0]
                self.rows.rare["scope"][row] = self.scope
                items = self._list(body, Arm.IF_TRUE, row)
        self._close_scope(outer)
        self.control = outer_control
        return heads, counter, operands, items

    def _loop_heads(self, changing: list[Variable], touched: list[Any]) -> list[tuple[Variable, int]]:
        """Add a LOOP row for each changing cell, and begin new memory versions, at the head of a loop."""
        self.flow.change(touched, self.scope)
        heads: list[tuple[Variable, int]] = []
        for variable in changing:
            loop_row = self._join(Kind.LOOP, variable, self.flow.state[variable], (NONE, NONE))
            heads.append((variable, loop_row))
            self.flow.set(variable, (loop_row, loop_row))
        return heads

    def _close_loop_row(self, variable: Variable, row: int, ways: list[tuple[int, int]], scope: int) -> None:
        """Set the value and the definition of a LOOP row's cell at the start of the next iteration."""
        if not ways:
            return
        value, definition = ways[0]
        outer, self.scope = self.scope, scope
        for way in ways[1:]:
            value = definition = self._join(Kind.JOIN, variable, (value, definition), way)
        self.scope = outer
        self.rows.second[row] = value
        self.rows.rare["d1"][row] = definition

    def _jump(self, statement: n.Stmt) -> None:
        items = self.lists[-1]
        items.falls_through = False
        if isinstance(statement, n.Return):
            items.items.append(Jump(statement, self._statement_row(Kind.EFFECT)))
            return
        loop = self.loops[-1]
        row = self._statement_row(Kind.JUMP, (), 0, loop.last_jump)
        loop.last_jump = row
        self.rows.rare["d1"][loop.row] = row
        ways = loop.breaks if isinstance(statement, n.Break) else loop.continues
        ways.append([self.flow.state[v] for v in loop.changing])
        items.items.append(Jump(statement, row))
