"""The IFDS problem of a package: graphs and facts as procedures, nodes and flow functions of ``vyre.lib.dataflow``.

Every function is analyzed whether or not something calls it: the zero fact holds at every entry. Calls pass arguments
to parameters and get back results, changed arguments, globals and variables of enclosing functions.

Some calls are not in the source, because they happen at a time that the source does not tell. They never return:

* An attribute that a method leaves untrusted in its object is untrusted at the start of every other method of the
  class, of its bases and of its subclasses, but of constructors.
* A global variable that a function or a module leaves untrusted is untrusted at the start of every function that uses
  it.
* A variable that a function leaves untrusted is untrusted at the start of the functions within it.
* A default that is untrusted is the value of its parameter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from taint_analysis.callgraph import Program
from taint_analysis.facts import Facts
from taint_analysis.flow import (
    RETURN,
    Assignment,
    Body,
    Call,
    CallTarget,
    Node,
    Path,
    SinkCall,
    Source,
    is_global,
    tracked,
)
from taint_analysis.graphs import END, START
from taint_analysis.names import Class, descendants
from vyre.lib import dataflow

Flow = tuple[int, int]
Suffixes = dict[Path, int]


@dataclass(slots=True)
class TaintProblem:
    """The problem, and what its nodes and facts mean."""

    ifds: dataflow.IfdsProblem
    # The body and node of each node of the problem; None for nodes that are not in the source.
    places: list[tuple[Body, Node] | None]
    paths: dict[Body, list[Path]]
    # Each sink with its body and its node of the problem.
    sinks: list[tuple[Body, SinkCall, int]]
    procedures: int
    # Edges between exploded nodes.
    edges: int


def build_problem(program: Program, facts: Facts, advance: Callable[[], None]) -> TaintProblem:
    """Build the problem of those bodies that have facts, or pass a source to a call."""
    return _Builder(program, facts).build(advance)


@dataclass(slots=True)
class _Built:
    """A body in the problem: its procedure, the nodes of its nodes, and its facts by their root."""

    body: Body
    procedure: dataflow.Procedure
    facts: dict[Path, int]
    nodes: list[int]
    by_root: dict[str, list[tuple[Path, int]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def end(self) -> int:
        return self.nodes[END]


class _Builder:
    def __init__(self, program: Program, facts: Facts) -> None:
        self.program = program
        self.facts = facts
        self.builder = dataflow.IfdsBuilder()
        self.built: dict[Body, _Built] = {}
        self.places: list[tuple[Body, Node] | None] = []
        self.edges = 0

    def build(self, advance: Callable[[], None]) -> TaintProblem:
        for body in self.program.bodies:
            if self.facts[body] or any(map(_uses_source, body.nodes)):
                self.built[body] = self.add_procedure(body)
        for body in self.program.bodies:
            if body in self.built:
                self.add_body(self.built[body])
            advance()
        self.add_fields()
        self.add_globals()
        self.add_closures()
        sinks = [
            (body, sink, built.nodes[node.index])
            for body, built in self.built.items()
            for node in body.nodes
            for sink in node.sinks
        ]
        paths = {body: [(), *built.facts] for body, built in self.built.items()}
        ifds = self.builder.build(seeds=[(one.procedure.entry, 0) for one in self.built.values()])
        return TaintProblem(ifds, self.places, paths, sinks, len(self.built), self.edges)

    def add_procedure(self, body: Body) -> _Built:
        facts = self.facts[body]
        procedure = self.builder.procedure(len(facts) + 1, f"{body.module.name}.{body.name}")
        self.places += ((body, body.nodes[START]), None)
        nodes = [procedure.entry]
        for node in body.nodes[1:]:
            nodes.append(self.builder.node(procedure))
            self.places.append((body, node))
        built = _Built(body, procedure, facts, nodes)
        for path, number in facts.items():
            built.by_root[path[0]].append((path, number))
        return built

    # Bodies

    def add_body(self, built: _Built) -> None:
        for node in built.body.nodes:
            source = built.nodes[node.index]
            for handler in node.handlers:
                self.add_edge(built, source, built.nodes[handler])
            if node.call is not None:
                self.add_call(built, node, node.call)
                continue
            kill, gen = self.transfer(built, node.assignments) if node.assignments else ((), ())
            for successor in node.successors:
                self.add_edge(built, source, built.nodes[successor], kill, gen)
        self.add_edge(built, built.end, built.procedure.exit)

    def add_edge(
        self, built: _Built, source: int, target: int, kill: Collection[int] = (), gen: Collection[Flow] = ()
    ) -> None:
        self.builder.normal(source, target, kill, gen)
        self.edges += built.procedure.facts - len(kill) + len(gen)

    def enter(self, source: int, callee: dataflow.Procedure, flows: Collection[Flow]) -> None:
        self.builder.call(source, callee, flows)
        self.edges += 1 + len(flows)

    def transfer(self, built: _Built, assignments: Iterable[Assignment]) -> tuple[set[int], list[Flow]]:
        """The flow function of assignments that happen at the same time."""
        kill: set[int] = set()
        gen: list[Flow] = []
        for one in assignments:
            length = len(one.target)
            for path, number in built.by_root.get(one.target[0], ()):
                if path[:length] != one.target:
                    continue
                if one.strong:
                    kill.add(number)
                gen += self.flows(built, one.value.attribute(path[length:]), number)
        return kill, gen

    def flows(self, built: _Built, dependencies: Iterable[object], target: int) -> Iterable[Flow]:
        for one in dependencies:
            if not isinstance(one, tuple):
                yield 0, target
            elif one in built.facts:
                yield built.facts[one], target

    def add_call(self, built: _Built, node: Node, call: Call) -> None:
        source = built.nodes[node.index]
        targets = [one for one in call.targets if self.program.body_of[one.function] in self.built]
        returned: list[tuple[_Built, list[Flow]]] = []
        changed: list[set[int]] = []
        for target in targets:
            callee = self.built[self.program.body_of[target.function]]
            entering, leaving = self.call_flows(built, callee, target, call)
            self.enter(source, callee.procedure, entering)
            returned.append((callee, leaving))
            changed.append({number for _, number in leaving if number})
        kill = {number for _, number in built.by_root.get(call.result[0], ())} if call.result is not None else set()
        if changed and len(changed) == len(call.targets):
            # What every callee gives back in its own state need not pass by the call as well.
            kill |= set.intersection(*changed)
        for successor in node.successors:
            after = built.nodes[successor]
            self.builder.call_to_return(source, after, kill)
            self.edges += built.procedure.facts - len(kill)
            if call.result is not None:
                for callee, leaving in returned:
                    self.builder.returns(source, callee.procedure, after, leaving)
                    self.edges += 1 + len(leaving)

    def call_flows(
        self, built: _Built, callee: _Built, target: CallTarget, call: Call
    ) -> tuple[list[Flow], list[Flow]]:
        """The flows into a callee and back."""
        entering: list[Flow] = []
        leaving: list[Flow] = []
        result = RETURN[0]
        if target.constructs and target.function.self_name is not None:
            result = target.function.self_name
        for path, number in callee.facts.items():
            root, rest = path[0], path[1:]
            value = target.arguments.get(root)
            if root == result and call.result is not None:
                known = built.facts.get((*call.result, *rest))
                if known is not None:
                    leaving.append((number, known))
            elif value is not None:
                entering += self.flows(built, value.attribute(rest), number)
                known = built.facts.get(tracked((*value.alias, *rest))) if value.alias is not None else None
                if known is not None and self.may_leave_changed(callee.body, path):
                    leaving.append((number, known))
            elif self.is_shared(built.body, callee.body, path) and path in built.facts:
                entering.append((built.facts[path], number))
                leaving.append((number, built.facts[path]))
        return entering, leaving

    def may_leave_changed(self, callee: Body, path: Path) -> bool:
        """Whether what a caller has passed may be more or less untrusted when a callee returns."""
        return self.program.may_change(callee, path) or self.program.may_check(callee, path)

    def is_shared(self, body: Body, callee: Body, path: Path) -> bool:
        """Whether a path means the same variable in a caller and its callee."""
        if is_global(path):
            return True
        owner = callee.free.get(path[0])
        return owner is not None and self.program.sees(body, path[0], owner)

    # Calls that are not in the source

    def add_hub(self, name: str, facts: Suffixes) -> dataflow.Procedure:
        """Add a procedure that stands for the time between two calls."""
        self.places += (None, None)
        return self.builder.procedure(len(facts) + 1, name)

    def add_fields(self) -> None:
        writers: dict[Class, list[tuple[Body, str]]] = defaultdict(list)
        for body, owners in self.program.changed_objects.items():
            if body in self.built:
                for owner, root in owners:
                    writers[owner].append((body, root))
        for owner, bodies in writers.items():
            self.add_fields_of(owner, bodies)

    def add_fields_of(self, owner: Class, writers: list[tuple[Body, str]]) -> None:
        suffixes: Suffixes = {}
        for body, root in writers:
            for path, _ in self.built[body].by_root.get(root, ()):
                if len(path) > 1:
                    suffixes.setdefault(path[1:], len(suffixes) + 1)
        readers = list(self.readers_of(owner, suffixes))
        if not readers:
            return
        hub = self.add_hub(f"objects of {owner.name}", suffixes)
        for body, root in writers:
            known = self.built[body].by_root.get(root, ())
            self.enter(self.built[body].end, hub, [(n, suffixes[path[1:]]) for path, n in known if len(path) > 1])
        for built, flows in readers:
            self.enter(hub.entry, built.procedure, flows)

    def readers_of(self, owner: Class, suffixes: Suffixes) -> Iterator[tuple[_Built, list[Flow]]]:
        """The methods that use one of these attributes, with the flows to them."""
        for related in (*owner.ancestors, *descendants(owner)):
            for functions in related.scope.functions.values():
                for function in functions:
                    built = self.built.get(self.program.body_of[function])
                    name = function.self_name
                    if built is None or name is None or function.syntax.name == "__init__":
                        continue
                    paths = ((number, (name, *suffix)) for suffix, number in suffixes.items())
                    flows = [(number, built.facts[path]) for number, path in paths if path in built.facts]
                    if flows:
                        yield built, flows

    def add_globals(self) -> None:
        users: dict[str, list[_Built]] = defaultdict(list)
        for built in self.built.values():
            for root in built.by_root:
                if root[0] == "@":
                    users[root].append(built)
        for root, many in users.items():
            self.add_global(root, many)

    def add_global(self, root: str, users: list[_Built]) -> None:
        paths = dict.fromkeys(path for built in users for path, _ in built.by_root[root])
        numbers = {path: number for number, path in enumerate(paths, 1)}
        hub = self.add_hub(root, numbers)
        writers = {body for body in self.program.global_writers[root] if body in self.built}
        for body in writers:
            built = self.built[body]
            self.enter(built.end, hub, [(n, numbers[path]) for path, n in built.by_root[root]])
        for built in users:
            # The top level of a module runs before what it defines is called.
            if built.body.function is not None or built.body not in writers:
                self.enter(hub.entry, built.procedure, [(numbers[path], n) for path, n in built.by_root[root]])

    def add_closures(self) -> None:
        for built in self.built.values():
            owners: dict[Body, list[Path]] = defaultdict(list)
            for root, scope in built.body.free.items():
                owners[self.program.body_of_scope[scope]] += [path for path, _ in built.by_root.get(root, ())]
            for body, paths in owners.items():
                outer = self.built.get(body)
                if outer is not None:
                    flows = [(outer.facts[path], built.facts[path]) for path in paths if path in outer.facts]
                    if flows:
                        self.enter(outer.end, built.procedure, flows)


def _uses_source(node: Node) -> bool:
    """Whether a sink or a call gets untrusted data that no variable has held before."""
    values = [sink.value for sink in node.sinks]
    if node.call is not None:
        values += [value for target in node.call.targets for value in target.arguments.values()]
    values += [one for value in values if value.fields is not None for one in value.fields.values()]
    return any(isinstance(one, Source) for value in values for one in value.dependencies)
