"""Facts: the paths of each function that may carry untrusted data from a source to a sink.

Only these need to be facts of the IFDS problem. They are found without regard to the order of statements, and to which
call a function returns to: forward from the sources, by what may depend on them, and then backward from the sinks. The
findings are the same as with every variable as a fact (``everything=True``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from taint_analysis.callgraph import Caller, Program
from taint_analysis.flow import RETURN, Body, Path, is_global, tracked
from taint_analysis.names import Class, descendants

# The number of each fact of each body, from 1; 0 is the zero fact.
Facts = dict[Body, dict[Path, int]]


def find_facts(program: Program, *, everything: bool = False) -> Facts:
    """Find and number the facts of each body."""
    search = _Search(program)
    search.run()
    kept: Iterable[int]
    if everything:
        search.add_variables()
        kept = range(len(search.places))
    else:
        kept = sorted(search.leading_to_sinks())
    facts: Facts = {body: {} for body in program.bodies}
    for number in kept:
        body, path = search.places[number]
        facts[body][path] = len(facts[body]) + 1
    return facts


class _Search:
    """The search forward. Facts of all bodies are numbered together; ``origins`` has those that each comes from."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.numbers: dict[Body, dict[Path, int]] = {body: {} for body in program.bodies}
        self.places: list[tuple[Body, Path]] = []
        self.origins: list[list[int]] = []
        self.waiting: list[int] = []
        self.users: dict[tuple[Class, str], list[tuple[Body, str]]] = {}

    def run(self) -> None:
        for summary in self.program.summaries.values():
            for body, path in summary.sources:
                self.reach(body, path, None)
        while self.waiting:
            self.visit(self.waiting.pop())

    def add_variables(self) -> None:
        """Add every variable, whether or not it may be untrusted."""
        for body, summary in self.program.summaries.items():
            for path in summary.uses:
                if len(path) == 1 and (not is_global(path) or path[0] in self.program.global_writers):
                    self.reach(body, path, None)

    def leading_to_sinks(self) -> set[int]:
        found = {
            number
            for body, summary in self.program.summaries.items()
            for path in summary.sink_paths
            if (number := self.numbers[body].get(path)) is not None
        }
        waiting = list(found)
        while waiting:
            for one in self.origins[waiting.pop()]:
                if one not in found:
                    found.add(one)
                    waiting.append(one)
        return found

    def reach(self, body: Body, path: Path, origin: int | None) -> None:
        """Note that a path may be untrusted because another one is."""
        known = self.numbers[body]
        number = known.get(path)
        if number is None:
            if tracked(path) != path or not self.program.may_touch(body, path):
                return
            number = known[path] = len(self.places)
            self.places.append((body, path))
            self.origins.append([])
            self.waiting.append(number)
        if origin is not None:
            self.origins[number].append(origin)

    def visit(self, number: int) -> None:
        body, path = self.places[number]
        program, summary = self.program, self.program.summaries[body]
        root = path[0]
        for target, to in summary.uses.get(path, ()):
            self.reach(target, to, number)
        for length in range(1, len(path)):
            for target, to in summary.copies.get(path[:length], ()):
                self.reach(target, (*to, *path[length:]), number)
        if is_global(path):
            self.visit_global(body, path, number)
        elif root == RETURN[0]:
            for caller in program.callers[body]:
                if not caller.target.constructs and caller.call.result is not None:
                    self.reach(caller.body, (*caller.call.result, *path[1:]), number)
        else:
            self.visit_variable(body, path, number)
        for owner, name in program.changed_objects.get(body, ()):
            if root == name and len(path) > 1:
                self.visit_object(owner, path[1:], number)

    def visit_variable(self, body: Body, path: Path, number: int) -> None:
        program, root = self.program, path[0]
        for closure in program.closures.get((body.scope, root), ()):
            self.reach(closure, path, number)
        owner = body.free.get(root)
        if owner is not None:
            self.reach(program.body_of_scope[owner], path, number)
            for caller in program.callers[body]:
                if program.sees(caller.body, root, owner):
                    if caller.body.scope is not owner:
                        caller.body.free.setdefault(root, owner)
                    self.reach(caller.body, path, number)
        elif body.function is not None and root in body.parameters:
            for caller in program.callers[body]:
                self.visit_caller(body, caller, path, number)

    def visit_caller(self, body: Body, caller: Caller, path: Path, number: int) -> None:
        """Follow what a function leaves in its parameter, or in the object that it makes, to its caller."""
        value = caller.target.arguments.get(path[0])
        if caller.target.constructs and path[0] == body.self_name:
            if caller.call.result is not None:
                self.reach(caller.body, (*caller.call.result, *path[1:]), number)
        elif value is not None and value.alias is not None and self.program.may_change(body, path):
            self.reach(caller.body, tracked((*value.alias, *path[1:])), number)

    def visit_object(self, owner: Class, suffix: Path, number: int) -> None:
        """Follow what a method leaves in its object to the other methods of the object."""
        key = owner, suffix[0]
        if key not in self.users:
            self.users[key] = list(self.find_users(owner, suffix[0]))
        for body, name in self.users[key]:
            self.reach(body, (name, *suffix), number)

    def find_users(self, owner: Class, attribute: str) -> Iterator[tuple[Body, str]]:
        """The methods of a class, its bases and its subclasses that touch an attribute of their object."""
        for one in (*owner.ancestors, *descendants(owner)):
            for functions in one.scope.functions.values():
                for function in functions:
                    body, name = self.program.body_of[function], function.self_name
                    if name is not None and self.program.may_touch(body, (name, attribute)):
                        yield body, name

    def visit_global(self, body: Body, path: Path, number: int) -> None:
        """Follow a global to the functions that use it, and to their callers, which pass it on to them."""
        if body in self.program.global_writers[path[0]]:
            for user in self.program.global_users[path[0]]:
                self.reach(user, path, number)
        for caller in self.program.callers[body]:
            self.reach(caller.body, path, number)
            if path in self.numbers[caller.body]:
                self.origins[number].append(self.numbers[caller.body][path])
