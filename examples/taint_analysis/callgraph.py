"""The call graph of a package, and what each function does to the variables that it shares with its callers.

``Program`` has a summary of every body. What a body changes and touches follows calls: a method that calls
``self.reset()`` changes what ``reset`` changes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from taint_analysis.flow import RETURN, Assignment, Body, Call, CallTarget, Path, Source, Value, tracked
from taint_analysis.names import Class, Function, Index, Scope, lookup

# A path in a body, and a parameter or an enclosing variable with an attribute of it, None for the whole.
PlacedPath: TypeAlias = tuple[Body, Path]
Access: TypeAlias = tuple[str, str | None]
# A variable of a body, or of no body if it is global; all attributes of one name count as one such variable.
Variable: TypeAlias = tuple[Body | None, str]


class Caller(NamedTuple):
    """A call of a function: where it is, and what the function gets."""

    body: Body
    call: Call
    target: CallTarget


@dataclass(slots=True)
class Summary:
    """What a body does, without regard to the order in which it does it."""

    # Where a path flows to as a part of a value, and where the object at a path goes with its attributes.
    uses: dict[Path, list[PlacedPath]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[Path, list[PlacedPath]] = field(default_factory=lambda: defaultdict(list))
    # Where sources flow to.
    sources: list[PlacedPath] = field(default_factory=list)
    sink_paths: set[Path] = field(default_factory=set)
    assigned: dict[str, list[Assignment]] = field(default_factory=lambda: defaultdict(list))
    calls: list[Call] = field(default_factory=list)
    # Names that mean another object at the end than at the start.
    rebound: set[str] = field(default_factory=set)
    changes: set[Access] = field(default_factory=set)
    # What a test finds harmless, so that it is harmless for callers as well.
    checks: set[Access] = field(default_factory=set)


class Program:
    """All bodies of a package with their summaries and callers."""

    def __init__(self, index: Index, bodies: Sequence[Body]) -> None:
        self.index = index
        self.bodies = bodies
        self.body_of: dict[Function, Body] = {one.function: one for one in bodies if one.function is not None}
        self.body_of_scope: dict[Scope, Body] = {one.scope: one for one in bodies}
        self.summaries: dict[Body, Summary] = {one: self._summarize(one) for one in bodies}
        self.callers: dict[Body, list[Caller]] = defaultdict(list)
        for body, summary in self.summaries.items():
            for call in summary.calls:
                for target in call.targets:
                    self.callers[self.body_of[target.function]].append(Caller(body, call, target))
        self._find_changes()
        self._touched = _find_touched(self)
        # The classes whose objects a body leaves changed, with the root that means the object.
        self.changed_objects: dict[Body, list[tuple[Class, str]]] = defaultdict(list)
        self.global_writers: dict[str, list[Body]] = defaultdict(list)
        self.global_users: dict[str, list[Body]] = defaultdict(list)
        self.closures: dict[tuple[Scope, str], list[Body]] = defaultdict(list)
        for body in bodies:
            self._note_shared(body)

    def sees(self, body: Body, root: str, owner: Scope) -> bool:
        """Whether a name in a body means the variable of this scope."""
        if body.scope is owner or body.free.get(root) is owner:
            return True
        return lookup(self.index, body.scope, root)[1] is owner

    def may_touch(self, body: Body, path: Path) -> bool:
        """Whether an attribute of a variable is used or changed through it, or through what it is copied to."""
        if len(path) == 1:
            return True
        if path[1] not in self._touched.get(_variable(body, path[0]), ()):
            return False
        return len(path) == 2 or path[2] in self._touched.get(_attribute(path), ())

    def may_change(self, body: Body, path: Path) -> bool:
        """Whether a body changes what its caller has at a path that begins with a parameter."""
        return _access(path) in self.summaries[body].changes

    def may_check(self, body: Body, path: Path) -> bool:
        """Whether a body itself tests what its caller has at a path that begins with a parameter."""
        return _access(path) in self.summaries[body].checks

    def _summarize(self, body: Body) -> Summary:
        summary = Summary()
        for node in body.nodes:
            for one in node.assignments:
                summary.assigned[one.target[0]].append(one)
                if one.strong and one.rebinds and len(one.target) == 1:
                    summary.rebound.add(one.target[0])
                _note_value(summary, one.value, (body, one.target))
            for sink in node.sinks:
                summary.sink_paths.update(one for one in sink.value.dependencies if isinstance(one, tuple))
            if node.call is not None:
                summary.calls.append(node.call)
                for target in node.call.targets:
                    callee = self.body_of[target.function]
                    for parameter, value in target.arguments.items():
                        _note_value(summary, value, (callee, (parameter,)))
        return summary

    def _find_changes(self) -> None:
        """Find what bodies change of their parameters and of enclosing variables, themselves and by calls."""
        waiting = []
        for body, summary in self.summaries.items():
            for root in {*body.parameters, *body.free} & summary.assigned.keys():
                if root in body.free or root not in summary.rebound:
                    summary.changes |= {
                        (root, a.target[1] if len(a.target) > 1 else None) for a in summary.assigned[root]
                    }
            if summary.changes:
                waiting.append(body)
        while waiting:
            callee = waiting.pop()
            for caller in self.callers[callee]:
                own = self.summaries[caller.body].changes
                found = set(self._changes_of_call(caller, callee)) - own
                if found:
                    own |= found
                    waiting.append(caller.body)

    def _changes_of_call(self, caller: Caller, callee: Body) -> Iterator[Access]:
        body, summary = caller.body, self.summaries[caller.body]
        for root, attribute in self.summaries[callee].changes:
            value = caller.target.arguments.get(root)
            if root in callee.free:
                if root in body.free and self.sees(body, root, callee.free[root]):
                    yield root, attribute
            elif value is not None and value.alias is not None:
                first = value.alias[0]
                if first in body.free or (first in body.parameters and first not in summary.rebound):
                    yield first, value.alias[1] if len(value.alias) > 1 else attribute

    def _note_shared(self, body: Body) -> None:
        """Note the objects, globals and enclosing variables that a body shares with others."""
        summary = self.summaries[body]
        owner = body.function.owner if body.function is not None else None
        name = body.self_name
        if owner is not None and name is not None and any(root == name for root, _ in summary.changes):
            self.changed_objects[body].append((owner, name))
        self.changed_objects[body] += [(one, one.root) for one in body.classes if one.root in summary.assigned]
        for root, scope in body.free.items():
            self.closures[scope, root].append(body)
        for root in {path[0] for path in (*summary.uses, *summary.copies, *summary.sink_paths) if path[0][0] == "@"}:
            self.global_users[root].append(body)
        for root in {root for root in summary.assigned if root[0] == "@"} | set(self._passed_globals(summary)):
            self.global_writers[root].append(body)

    def _passed_globals(self, summary: Summary) -> Iterator[str]:
        """The globals that a body passes to functions that change them."""
        for path, targets in summary.copies.items():
            if path[0][0] == "@" and any(len(to) == 1 and self._changes_any(body, to[0]) for body, to in targets):
                yield path[0]

    def _changes_any(self, body: Body, root: str) -> bool:
        return any(one == root for one, _ in self.summaries[body].changes)


def _access(path: Path) -> Access:
    return path[0], path[1] if len(path) > 1 else None


def _variable(body: Body, root: str) -> Variable:
    return (None if root[0] == "@" else body), root


def _attribute(path: Path) -> Variable:
    return None, f".{path[1]}"


def _holder(body: Body, path: Path) -> Variable:
    return _variable(body, path[0]) if len(path) == 1 else (None, f".{path[-1]}")


def _find_touched(program: Program) -> dict[Variable, set[str]]:
    """Find the attributes of each variable that are used or changed through it, or through what it is copied to."""
    touched: dict[Variable, set[str]] = defaultdict(set)
    # The variables that are copied to each.
    copied: dict[Variable, set[Variable]] = defaultdict(set)
    for body, summary in program.summaries.items():
        assigned = (one.target for assignments in summary.assigned.values() for one in assignments)
        for path in (*summary.uses, *summary.sink_paths, *assigned):
            if len(path) > 1:
                touched[_variable(body, path[0])].add(path[1])
            if len(path) > 2:
                touched[_attribute(path)].add(path[2])
        for root, attribute in summary.changes:
            if attribute is not None:
                touched[_variable(body, root)].add(attribute)
        for path, targets in summary.copies.items():
            for target, to in targets:
                copied[_holder(target, to)].add(_holder(body, path))
        for root, owner in body.free.items():
            copied[body, root].add((program.body_of_scope[owner], root))
        for caller in program.callers[body]:
            if caller.call.result is not None and not caller.target.constructs:
                copied[caller.body, caller.call.result[0]].add((body, RETURN[0]))
            for root, owner in body.free.items():
                if program.sees(caller.body, root, owner):
                    copied[body, root].add((caller.body, root))
    _spread(touched, copied)
    return touched


def _spread(touched: dict[Variable, set[str]], copied: dict[Variable, set[Variable]]) -> None:
    """Let each variable have what those have that it is copied to, until nothing changes."""
    waiting = deque(touched)
    queued = set(waiting)
    while waiting:
        variable = waiting.popleft()
        queued.remove(variable)
        known = touched[variable]
        for origin in copied.get(variable, ()):
            before = touched[origin]
            if not known <= before:
                before |= known
                if origin not in queued:
                    queued.add(origin)
                    waiting.append(origin)


def _note_value(summary: Summary, value: Value, target: PlacedPath) -> None:
    for one in value.attribute(()) if len(target[1]) == 1 else value.dependencies:
        if isinstance(one, Source):
            summary.sources.append(target)
        else:
            summary.uses[one].append(target)
    if value.alias is not None:
        summary.copies[value.alias].append(target)
    body, path = target
    for name, inner in (value.fields or {}).items():
        if tracked((*path, name)) == (*path, name):
            _note_value(summary, inner, (body, (*path, name)))
