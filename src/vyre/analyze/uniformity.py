"""Which values and which control flow are the same for all invocations of a workgroup, or of the grid?

A forward walk gives each value a number and each number a level: the same in the whole grid (0), the same in each
workgroup (1), divergent (2). Numbers 0, 1 and 2 are those levels themselves; a higher one stands for a level that
later parts of the program may still raise: the variables that a loop changes, the control flow of a loop that
something may leave early, the loads of buffers that are written between the same barriers. A number that rises
raises those made from it; nothing is walked twice, and each number rises at most twice.

Values are per pass of a loop: invocations in the same pass of a loop with a uniform start agree on its variable.
An assignment takes on the level of the control flow that it stands in: around it that changes nothing, as nothing
there can demand less, and it tells those who come after that not everybody made the assignment, or not equally
often. Where paths meet, a variable then simply has all the values that it may have. An invocation that returned
counts as arrived at every barrier, so a return taints nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import Final

import msgspec

from vyre.analyze.agreement import GRID, WORKGROUP, agreed_by
from vyre.analyze.epochs import Epochs
from vyre.analyze.outline import LoopShape, Outline
from vyre.ir import nodes as n
from vyre.ir.buffers import Access
from vyre.ir.program import Program
from vyre.semantics.operators import AtomicOp

# Whoever agrees in less than a workgroup: to those who wait at barriers, all the same.
DIVERGENT: Final = WORKGROUP + 1

# Where a walk stands between barriers: the stretch of the grid, and that of the workgroup.
Point = tuple[int, int]


class _Frame(msgspec.Struct):
    """What a list that runs sometimes, or several times, has assigned so far.

    ``saved`` has each name with the value it had at the start; ``fresh`` are those whose current value may not
    include that one.
    """

    saved: dict[str, int]
    fresh: dict[str, None]


class _Branch(msgspec.Struct):
    """An open If: what to go back to, and what its first arm left."""

    control: int
    start: Point
    statement: int
    has_otherwise: bool
    then_falls: bool = True
    then: _Frame | None = None
    then_values: dict[str, int] = {}
    then_end: Point = (0, 0)


class _Loop(msgspec.Struct):
    """An open loop: what to go back to, the values that its passes start with, and what jumps brought."""

    shape: LoopShape
    control: int
    outer_control: int
    depth: int
    entry: dict[str, int]
    header: dict[str, int]
    exits: dict[str, int]
    start: Point
    ends: list[Point]
    first_change: int
    changes_at_break: int
    changes_at_continue: int
    last_jump: int = -1


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """A statement that may stand only in control flow of at most this level."""

    statement: int
    code: str
    control: int
    level: int


class Step(msgspec.Struct, frozen=True):
    """One reason in a chain: a statement, and the node in it that differs, with more about it; or what it does."""

    statement: int
    node: n.Expr | None
    text: str


class Uniformity:
    """The state of a walk; the caller goes through a program in order and tells what it meets.

    With ``explain`` every step gets a number of its own, so that ``reasons`` can tell why a level is what it is.
    """

    def __init__(self, program: Program, shape: Outline, explain: bool = False) -> None:
        self.workgroup_size = program.workgroup_size
        self.top = DIVERGENT if prod(program.workgroup_size) > 1 else WORKGROUP
        self.shapes = iter(shape.loops)
        self.resumed = shape.resumed
        self.explain = explain
        self.statement = 0
        self.levels = [GRID, WORKGROUP, DIVERGENT]
        # Who is made from a number: a chain of links, each with a user and the next link; 0 ends it.
        self.first_link = [0, 0, 0]
        self.link_user = [0]
        self.next_link = [0]
        self.values: dict[str, int] = {}
        self.frames = [_Frame({}, {})]
        self.control = GRID
        self.branches: list[_Branch] = []
        self.loops: list[_Loop] = []
        self.changes: list[str] = []
        self.requirements: list[Requirement] = []
        self.grid_epochs, self.workgroup_epochs = Epochs(), Epochs()
        self.here: Point = (0, 0)
        self.buffer_bits = {decl.name: 1 << k for k, decl in enumerate(program.buffers)}
        self.shared = {decl.name for decl in program.buffers if decl.access is Access.WORKGROUP}
        self.storage = {decl.name for decl in program.buffers if decl.access.writable} - self.shared
        self.loads: dict[tuple[str, int, int], int] = {}
        self.parked = False
        self.parked_control = GRID
        # What was assigned while somebody is parked: where, the name, and its value before.
        self.overwritten: list[tuple[int, str, int]] = []
        self.steps: dict[int, Step] = {}
        self.causes: dict[int, int] = {}

    def value_of(self, sources: list[n.Expr]) -> int:
        """The number of an expression's value, from the nodes that the typer named; notes what the nodes write."""
        values = self.values
        known = GRID
        rising: list[int] = []
        for node in sources:
            value = values.get(node.name, GRID) if type(node) is n.Var else self._source(node)
            if value > DIVERGENT:
                rising.append(value)
            elif value > known:
                known = value
        if not rising or (known >= self.top and not self.explain):
            return known
        if len(rising) == 1 and not known:
            return rising[0]
        return self._number([known, *rising])

    def _source(self, node: n.Expr) -> int:
        if type(node) is n.Load:
            return self._load(node, node.buffer)
        if type(node) is n.Atomic and node.op is not AtomicOp.LOAD:
            self.write(node.buffer)
        level = min(agreed_by(node, self.workgroup_size), self.top)
        if self.explain and level > GRID:
            return self._number([level], Step(self.statement, node, ""))
        return level

    def _load(self, node: n.Expr, buffer: str) -> int:
        """One number for all loads of a buffer in one stretch: whether it is written there is known at the end."""
        if buffer in self.storage:
            point, level = self.here[0], GRID
        elif buffer in self.shared:
            point, level = self.here[1], WORKGROUP
        else:
            return GRID
        key = (buffer, point, len(self.levels) if self.explain else 0)
        number = self.loads.get(key)
        if number is None:
            step = Step(self.statement, node, "") if self.explain else None
            number = self.loads[key] = self._rising([level], step)
        return number

    def note_effects(self, sources: list[n.Expr]) -> None:
        """Notes what the nodes write, where their value does not matter."""
        for node in sources:
            if type(node) is n.Atomic and node.op is not AtomicOp.LOAD:
                self.write(node.buffer)

    def write(self, buffer: str) -> None:
        """Notes that some invocation changes a buffer here."""
        if buffer in self.storage:
            self.grid_epochs.written[self.here[0]] |= self.buffer_bits[buffer]
        elif buffer in self.shared:
            self.workgroup_epochs.written[self.here[1]] |= self.buffer_bits[buffer]

    def _number(self, parts: list[int], step: Step | None = None) -> int:
        """A number for the join of others; a level itself where nothing can raise it."""
        if not self.explain:
            levels = self.levels
            level = max([levels[part] for part in parts])
            if level >= self.top or max(parts) <= DIVERGENT:
                return level
        return self._rising(parts, step)

    def _rising(self, parts: list[int], step: Step | None = None) -> int:
        levels, first_link = self.levels, self.first_link
        number = len(levels)
        level = GRID
        for part in parts:
            if part > DIVERGENT:
                self.next_link.append(first_link[part])
                first_link[part] = len(self.link_user)
                self.link_user.append(number)
            if levels[part] > level:
                level = levels[part]
                self.causes[number] = part
        levels.append(level)
        first_link.append(0)
        if step is not None:
            self.steps[number] = step
        return number

    def _feed(self, number: int, part: int) -> None:
        """Makes a number at least as high as another, now and whenever that rises."""
        if number <= DIVERGENT or number == part:
            return
        if part > DIVERGENT:
            self.next_link.append(self.first_link[part])
            self.first_link[part] = len(self.link_user)
            self.link_user.append(number)
        if self.levels[part] > self.levels[number]:
            self._raise(number, self.levels[part], part)

    def _raise(self, number: int, level: int, cause: int) -> None:
        levels, link_user, next_link = self.levels, self.link_user, self.next_link
        levels[number] = level
        self.causes[number] = cause
        pending = [number]
        while pending:
            risen = pending.pop()
            level = levels[risen]
            link = self.first_link[risen]
            while link:
                user = link_user[link]
                if levels[user] < level:
                    levels[user] = level
                    self.causes[user] = risen
                    pending.append(user)
                link = next_link[link]

    def _because(self, part: int, node: n.Expr | None, text: str) -> int:
        """The same level; in an explanation, with a step of its own."""
        return self._rising([part], Step(self.statement, node, text)) if self.explain else part

    def declare(self, name: str, value: int) -> None:
        self.values[name] = self._because(value, None, f"'{name}' gets its value here")

    def assign(self, name: str, value: int) -> None:
        if name in self.values:
            value = value if value == self.control else self._number([value, self.control])
            self._set(name, self._because(value, None, f"'{name}' gets its value here"))

    def _set(self, name: str, value: int) -> None:
        frame = self.frames[-1]
        frame.saved.setdefault(name, self.values[name])
        frame.fresh[name] = None
        if self.loops:
            self.changes.append(name)
        if self.parked:
            self.overwritten.append((self.statement, name, self.values[name]))
        self.values[name] = value

    def _update(self, new: dict[str, int], since: int) -> None:
        """Gives names, all of them assigned since that statement, other values."""
        if self.loops and self.loops[-1].last_jump >= since:
            self.changes.extend(new)
        if self.parked:
            self.overwritten.extend((self.statement, name, self.values[name]) for name in new)
        self.values.update(new)

    def forget(self, names: Iterable[str]) -> None:
        """The end of the scope that declared these names."""
        frame = self.frames[-1]
        for name in names:
            self.values.pop(name, None)
            frame.saved.pop(name, None)
            frame.fresh.pop(name, None)

    def enter_branch(self, condition: int, node: n.Expr, has_otherwise: bool) -> None:
        condition = self._because(condition, node, "")
        self.branches.append(_Branch(self.control, self.here, self.statement, has_otherwise))
        self.control = self._number([self.control, condition])
        self.frames.append(_Frame({}, {}))

    def next_arm(self, falls_through: bool) -> None:
        branch, frame = self.branches[-1], self.frames[-1]
        branch.then_falls = falls_through
        if branch.has_otherwise:
            branch.then, branch.then_end = frame, self.here
            branch.then_values = {name: self.values[name] for name in frame.saved}
            self._update(frame.saved, branch.statement)
            self.frames[-1] = _Frame({}, {})
            self.here = branch.start

    def leave_branch(self, falls_through: bool) -> None:
        branch, frame = self.branches.pop(), self.frames.pop()
        self.control = branch.control
        if branch.then is None:
            self._leave_only_arm(branch, frame)
        elif branch.then_falls and falls_through:
            self._leave_both_arms(branch, branch.then, frame)
        elif falls_through:
            _absorb(self.frames[-1], frame)
        else:
            self._update(frame.saved, branch.statement)
            if branch.then_falls:
                self._update(branch.then_values, branch.statement)
                self.here = branch.then_end
                _absorb(self.frames[-1], branch.then)

    def _leave_only_arm(self, branch: _Branch, frame: _Frame) -> None:
        if not branch.then_falls:
            self._update(frame.saved, branch.statement)
            self.here = branch.start
            return
        values, saved = self.values, frame.saved
        joined = {name: self._number([values[name], saved[name]]) for name in frame.fresh}
        self._update(joined, branch.statement)
        self.here = self._meet([self.here, branch.start])
        frame.fresh = {}
        _absorb(self.frames[-1], frame)

    def _leave_both_arms(self, branch: _Branch, then: _Frame, otherwise: _Frame) -> None:
        values, left = self.values, branch.then_values
        # What both arms assign anew has no more the value that it had before them.
        small, large = sorted((then.fresh, otherwise.fresh), key=len)
        anew = {name: None for name in small if name in large}
        for name in then.fresh:
            if name not in anew:
                left[name] = self._number([left[name], then.saved[name]])
        for name in otherwise.fresh:
            if name not in anew:
                left[name] = self._number([left.get(name, values[name]), values[name], otherwise.saved[name]])
        fewer, others = sorted((then.saved, otherwise.saved), key=len)
        for name in fewer:
            if name in others:
                left[name] = self._number([left[name], values[name]])
        self._update(left, branch.statement)
        self.here = self._meet([branch.then_end, self.here])
        then.fresh, otherwise.fresh = {}, anew
        _absorb(then, otherwise)
        _absorb(self.frames[-1], then)

    def _meet(self, points: list[Point]) -> Point:
        grid = tuple(dict.fromkeys(point[0] for point in points))
        workgroup = tuple(dict.fromkeys(point[1] for point in points))
        return (
            grid[0] if len(grid) == 1 else self.grid_epochs.meet(*grid),
            workgroup[0] if len(workgroup) == 1 else self.workgroup_epochs.meet(*workgroup),
        )

    def enter_loop(self) -> None:
        """The head of a loop; its condition or bounds follow as ``loop_condition``."""
        shape = next(self.shapes)
        values, levels = self.values, self.levels
        settled = DIVERGENT + 1 if self.explain else self.top
        entry = {name: values[name] for name in self._headed(shape) if name in values}
        header = {name: old if levels[old] >= settled else self._rising([old]) for name, old in entry.items()}
        values.update(header)
        start = (
            self.grid_epochs.meet(self.here[0]) if shape.synchronises_grid else self.here[0],
            self.workgroup_epochs.meet(self.here[1]) if shape.synchronises_workgroup else self.here[1],
        )
        control = self.control if levels[self.control] >= settled else self._rising([self.control])
        at = len(self.changes)
        depth = len(self.frames)
        self.loops.append(_Loop(shape, control, self.control, depth, entry, header, {}, start, [], at, at, at))
        self.frames.append(_Frame({}, {}))
        self.control, self.here = control, start

    def _headed(self, shape: LoopShape) -> Iterable[str]:
        """The names that need a number of their own at the head of a loop.

        What the loop around assigns inside this one alone comes in as it is at the head of that, and goes back there.
        """
        if not self.loops or self.loops[-1].shape.resumes:
            return shape.assigned
        small, large = sorted((shape.assigned, self.loops[-1].shape.repeated), key=len)
        return [name for name in small if name in large]

    def loop_condition(self, condition: int, node: n.Expr, may_leave: bool = True) -> None:
        """What decides whether a pass begins; ``may_leave`` is false where it always does."""
        loop = self.loops[-1]
        self._feed(loop.control, self._because(condition, node, ""))
        if may_leave:
            loop.ends.append(self.here)

    def break_(self) -> None:
        loop = self.loops[-1]
        loop.last_jump = self.statement
        self._feed(loop.control, self._because(self.control, None, "some leave the loop here and others do not"))
        for name, head in self._changed(loop, loop.changes_at_break):
            if name in loop.header:
                if name not in loop.exits:
                    loop.exits[name] = self._number([head])
                self._feed(loop.exits[name], self.values[name])
            else:
                self._feed(head, self.values[name])
        loop.changes_at_break = len(self.changes)
        loop.ends.append(self.here)

    def continue_(self) -> None:
        loop = self.loops[-1]
        loop.last_jump = self.statement
        self._feed(loop.control, self._because(self.control, None, "some begin the next pass here and others do not"))
        for name, head in self._changed(loop, loop.changes_at_continue):
            self._feed(head, self.values[name])
        loop.changes_at_continue = len(self.changes)
        self._go_back(loop)

    def _changed(self, loop: _Loop, since: int) -> Iterator[tuple[str, int]]:
        """What changed since a jump before: names from outside the loop, with their values at its head."""
        for name in dict.fromkeys(self.changes[since:]):
            if name in self.values and name not in loop.shape.declared:
                heads = (frame.saved[name] for frame in self.frames[loop.depth :] if name in frame.saved)
                yield name, next(heads, self.values[name])

    def _go_back(self, loop: _Loop) -> None:
        for epochs, head, end in zip((self.grid_epochs, self.workgroup_epochs), loop.start, self.here, strict=True):
            if head != end:
                epochs.join(head, end)

    def leave_loop(self, falls_through: bool) -> None:
        loop, frame = self.loops.pop(), self.frames.pop()
        if falls_through:
            for name, head in frame.saved.items():
                self._feed(head, self.values[name])
            self._go_back(loop)
        self.control = loop.outer_control
        self.here = self._meet(loop.ends) if loop.ends else loop.start
        del self.changes[loop.first_change :]
        self._update(frame.saved | loop.header | loop.exits, self.statement + 1)
        outer = self.frames[-1]
        for name, value in loop.entry.items():
            outer.saved.setdefault(name, value)
        if self.loops:
            self.changes.extend(loop.header)

    def barrier(self) -> None:
        self._require("V010", WORKGROUP)
        self.here = (self.here[0], self.workgroup_epochs.after_barrier())

    def grid_point(self, code: str) -> None:
        """A point that the whole grid reaches together; ``code`` is the rule if it does not."""
        self._require(code, GRID)
        self.here = (self.grid_epochs.after_barrier(), self.workgroup_epochs.after_barrier())

    def _require(self, code: str, level: int) -> None:
        if self.control != GRID:
            self.requirements.append(Requirement(self.statement, code, self.control, level))

    def trap(self, tag: str) -> None:
        """Some invocations go on at the next resume: what is assigned on the way there, they keep as it is here."""
        if tag in self.resumed:
            self.parked = True
            self.parked_control = self._number([self.parked_control, self.control])

    def resume(self, first_trap: int, skipped: Iterable[str], others_parked: bool) -> None:
        """Invocations that trapped, first at that statement, join the others: what was assigned since then, or
        declared since then and still visible, differs as their trap did."""
        if self.loops and self.loops[-1].last_jump > first_trap:
            # The others may have left the pass in which the parked ones wait.
            self._feed(self.loops[-1].control, self.parked_control)
        changed: dict[str, list[int]] = {name: [] for name in skipped}
        for statement, name, old in reversed(self.overwritten):
            if statement < first_trap:
                break
            changed.setdefault(name, []).append(old)
        if not others_parked:
            self.overwritten.clear()
        self.parked = others_parked
        for name, olds in changed.items():
            if name in self.values:
                self._set(name, self._number([self.values[name], self.parked_control, *olds]))
        if not others_parked:
            self.parked_control = GRID

    def settle(self) -> None:
        """Raises the loads of buffers that are written between the same barriers; called at the end of the walk."""
        written = {False: self.grid_epochs.written_beside(), True: self.workgroup_epochs.written_beside()}
        for (buffer, point, _), number in self.loads.items():
            beside = written[buffer in self.shared][point]
            if beside & self.buffer_bits[buffer] and self.levels[number] < self.top:
                self._raise(number, self.top, number)
                if self.explain:
                    text = f": '{buffer}' is written between the same barriers"
                    self.steps[number] = msgspec.structs.replace(self.steps[number], text=text)

    def broken_requirements(self) -> list[Requirement]:
        """What stands in control flow of too high a level; called once, at the end of the walk."""
        if self.requirements:
            self.settle()
        return [found for found in self.requirements if self.levels[found.control] > found.level]

    def reasons(self, number: int) -> list[tuple[Step, int]]:
        """Why a number has its level, from the number to where that begins, each step with the level that it has."""
        chain: list[tuple[Step, int]] = []
        seen: set[int] = set()
        while number not in seen:
            seen.add(number)
            step = self.steps.get(number)
            if step is not None and not (chain and chain[-1][0].node is step.node is not None):
                chain.append((step, self.levels[number]))
            number = self.causes.get(number, number)
        return chain


def _absorb(outer: _Frame, inner: _Frame) -> None:
    """Adds what an inner list assigned to what the list around it did; the larger part is kept, not copied."""
    if len(inner.saved) > len(outer.saved):
        inner.saved.update(outer.saved)
        outer.saved = inner.saved
    else:
        for name, value in inner.saved.items():
            outer.saved.setdefault(name, value)
    small, large = sorted((inner.fresh, outer.fresh), key=len)
    large.update(small)
    outer.fresh = large
