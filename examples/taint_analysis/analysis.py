"""The analysis from a package's name to its findings, with the time of each stage."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from taint_analysis.callgraph import Program
from taint_analysis.facts import find_facts
from taint_analysis.findings import Finding, find_findings
from taint_analysis.graphs import build_graphs
from taint_analysis.names import index_package
from taint_analysis.package import ParsedFile, Skipped, find_files, parse_files
from taint_analysis.problem import build_problem
from vyre.lib import dataflow

# Expressions may be nested deeper than Python's own limit allows a function to call itself.
_RECURSION_LIMIT: Final = 50_000


class Stage(StrEnum):
    """A stage of the analysis."""

    PARSE = "parse"
    GRAPHS = "graphs"
    PROBLEM = "problem"
    SOLVE = "solve"
    REPORT = "report"


# Called when a stage begins, with its number of steps; what it returns is called for each step.
Progress = Callable[[Stage, int], Callable[[], None]]


@dataclass(slots=True)
class Result:
    """What an analysis found, and what it took."""

    package: str
    root: Path
    findings: list[Finding]
    skipped: list[Skipped]
    files: dict[str, ParsedFile]
    seconds: dict[Stage, float] = field(default_factory=dict)
    lines: int = 0
    functions: int = 0
    procedures: int = 0
    nodes: int = 0
    facts: int = 0
    exploded_nodes: int = 0
    exploded_edges: int = 0


def analyze(
    target: str,
    *,
    exclude: Sequence[str] = (),
    backend: str | None = None,
    everything: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Analyze an installed package, a directory or a file. ``NotFound`` says if there is nothing to analyze.

    ``backend`` solves the problem; ``everything`` makes every path of every function a fact, for the same findings.
    """
    with _without_collections(), _deep_recursion():
        return _analyze(target, exclude, backend, everything, _Clock(progress))


class _Clock:
    """Starts stages and keeps their times."""

    def __init__(self, progress: Progress | None) -> None:
        self.seconds: dict[Stage, float] = {}
        self._progress = progress

    @contextmanager
    def stage(self, which: Stage, total: int) -> Iterator[Callable[[], None]]:
        """Time a stage of so many steps; calling what it gives tells that one is done."""
        advance = self._progress(which, total) if self._progress is not None else lambda: None
        start = time.perf_counter()
        yield advance
        self.seconds[which] = time.perf_counter() - start


def _analyze(target: str, exclude: Sequence[str], backend: str | None, everything: bool, clock: _Clock) -> Result:
    name, root, sources = find_files(target, exclude)
    with clock.stage(Stage.PARSE, len(sources)) as advance:
        package = parse_files(name, root, sources, advance)
        index = index_package(package)
    with clock.stage(Stage.GRAPHS, len(index.modules) + len(index.functions)) as advance:
        bodies = build_graphs(index, advance)
    with clock.stage(Stage.PROBLEM, len(bodies)) as advance:
        program = Program(index, bodies)
        facts = find_facts(program, everything=everything)
        problem = build_problem(program, facts, advance)
    with clock.stage(Stage.SOLVE, 1) as advance:
        solution = dataflow.ifds(problem.ifds, backend=backend)
        advance()
    with clock.stage(Stage.REPORT, len(problem.sinks)) as advance:
        findings = find_findings(problem, solution, advance)
    return Result(
        package=name,
        root=root,
        findings=findings,
        skipped=package.skipped,
        files={one.file.shown: one for one in package.files},
        seconds=clock.seconds,
        lines=package.line_count,
        functions=len(index.functions),
        procedures=problem.procedures,
        nodes=problem.ifds.num_nodes,
        facts=sum(map(len, facts.values())),
        exploded_nodes=problem.ifds.num_exploded,
        exploded_edges=problem.edges,
    )


@contextmanager
def _deep_recursion() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _RECURSION_LIMIT))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Leave the garbage collector out: nothing is dropped, and looking for it would take half of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
