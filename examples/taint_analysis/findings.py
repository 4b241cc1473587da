"""Findings: the sinks that untrusted data reaches, each with one path from its source."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from taint_analysis.flow import (
    RETURN,
    Assignment,
    Body,
    Call,
    Node,
    Path,
    SinkCall,
    Source,
    is_global,
    is_temporary,
    shown,
)
from taint_analysis.problem import TaintProblem
from taint_analysis.tables import Danger
from vyre.lib import dataflow


@dataclass(frozen=True, slots=True)
class Place:
    """An expression or statement in a file; lines count from 1, columns from 0."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True, slots=True)
class Step:
    """A place on the way of untrusted data, the function that it is in, and what holds the data after that.

    ``kind`` is source, assign, call, return or sink. ``callee`` is the function that the place passes the data to,
    whose parameter holds it then.
    """

    kind: str
    place: Place
    function: str
    holder: str = ""
    callee: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A sink that untrusted data may reach, and how."""

    sink: str
    danger: Danger
    source: str
    steps: tuple[Step, ...]

    @property
    def place(self) -> Place:
        return self.steps[-1].place

    @property
    def message(self) -> str:
        return f"{self.sink} gets untrusted data from {self.source}"


def find_findings(problem: TaintProblem, solution: dataflow.IfdsSolution, advance: Callable[[], None]) -> list[Finding]:
    """The findings in the order of their files and lines, one for each sink."""
    found: dict[Place, Finding] = {}
    for body, sink, at in problem.sinks:
        advance()
        place = place_of(body, sink.syntax)
        if place not in found and solution.holds(at, 0):
            finding = _finding(problem, solution, body, sink, at)
            if finding is not None:
                found[place] = finding
    return sorted(found.values(), key=lambda one: (one.place.file, one.place.line, one.place.column))


def place_of(body: Body, syntax: ast.AST) -> Place:
    """Where a part of a body's syntax is."""
    node: Any = syntax
    line, column = node.lineno, node.col_offset
    end_line, end_column = node.end_lineno or line, node.end_col_offset or column
    if isinstance(
        syntax, (ast.If, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.FunctionDef, ast.AsyncFunctionDef)
    ):
        # Of a statement with a body, its first line says what happens.
        end_line, end_column = line, column + len(body.module.parsed.lines[line - 1].encode().lstrip())
    return Place(body.module.parsed.file.shown, line, column, end_line, end_column)


def _finding(
    problem: TaintProblem, solution: dataflow.IfdsSolution, body: Body, sink: SinkCall, at: int
) -> Finding | None:
    """The finding of a sink with the shortest path to it; None if nothing untrusted reaches it."""
    direct = next((one for one in sink.value.dependencies if isinstance(one, Source)), None)
    end = Step("sink", place_of(body, sink.syntax), body.name)
    if direct is not None:
        steps = [Step("source", place_of(body, direct.syntax), body.name)]
        return Finding(sink.name, sink.sink.danger, direct.label, (*steps, end))
    numbers = {path: number for number, path in enumerate(problem.paths[body]) if number}
    held = [
        (one, numbers[one])
        for one in sink.value.dependencies
        if isinstance(one, tuple) and one in numbers and solution.holds(at, numbers[one])
    ]
    if not held:
        return None
    witnesses = [solution.witness(at, number) for _, number in held]
    source, steps = _read(problem, min(witnesses, key=len))
    return Finding(sink.name, sink.sink.danger, source, (*_collapse(steps, end), end))


def _read(problem: TaintProblem, witness: list[Any]) -> tuple[str, list[Step]]:
    """The source of a witness, and the steps at which the data moves from one place to another."""
    steps: list[Step] = []
    label = ""
    # For each call under way: its node, what held the data before it, and the steps up to there.
    calls: list[tuple[int, int, int]] = []
    for before, after in pairwise(witness):
        origin = before.node
        if after.kind == "call":
            calls.append((before.node, before.fact, len(steps)))
        elif after.kind == "return":
            origin, fact, count = calls.pop()
            if fact and fact == after.fact:
                del steps[count:]  # what comes back to where it was has not moved
                continue
        place, target = problem.places[origin], problem.places[after.node]
        if not after.fact or place is None or target is None or place[1].syntax is None:
            continue
        body, node = place
        path = problem.paths[target[0]][after.fact]
        kind = after.kind if after.kind in ("call", "return") else "assign"
        if before.fact and _is_same(problem, before, path, kind, target[0]):
            continue
        syntax = place[1].syntax
        if not before.fact:
            source = next(_sources(node, path, target[0]))
            kind, label, syntax = "source", source.label, source.syntax
        holder = "" if is_temporary(path) and path[0] != RETURN[0] else shown(path)
        callee = target[0].name if after.kind == "call" else ""
        steps.append(Step(kind, place_of(body, syntax), body.name, holder, callee))
    return label, steps


def _is_same(problem: TaintProblem, before: Any, path: Path, kind: str, body: Body) -> bool:
    """Whether a step leaves the data in the same variable: in its body, in a global, or in an enclosing function."""
    place = problem.places[before.node]
    if place is None or problem.paths[place[0]][before.fact] != path:
        return place is None and is_global(path)
    return kind == "assign" or is_global(path) or path[0] in body.free or path[0] in place[0].free


def _sources(node: Node, path: Path, target: Body) -> Iterator[Source]:
    """The sources that a node puts into a path."""
    assignments: Iterable[Assignment] = node.assignments
    if node.call is not None:
        assignments = _argument_assignments(node.call, target)
    for one in assignments:
        length = len(one.target)
        if one.target == path[:length]:
            yield from (d for d in one.value.attribute(path[length:]) if isinstance(d, Source))


def _argument_assignments(call: Call, callee: Body) -> list[Assignment]:
    return [
        Assignment((parameter,), value, True)
        for target in call.targets
        if target.function is callee.function
        for parameter, value in target.arguments.items()
    ]


def _collapse(steps: Iterable[Step], end: Step) -> list[Step]:
    """Steps without those that add nothing: of the same line as the one before, or as the sink, and nothing new."""
    kept: list[Step] = []
    for one in steps:
        last = kept[-1] if kept else None
        if last is None or not _is_same_line(last, one):
            kept.append(one)
        elif not last.holder:
            kept[-1] = replace(last, holder=one.holder, callee=one.callee)
        elif last.holder != one.holder or last.callee != one.callee:
            kept.append(one)
    if len(kept) > 1 and kept[-1].kind == "return" and not kept[-1].holder and _is_same_line(kept[-1], end):
        kept.pop()
    return kept


def _is_same_line(first: Step, second: Step) -> bool:
    return first.place.file == second.place.file and first.place.line == second.place.line
