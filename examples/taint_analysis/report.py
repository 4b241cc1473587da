"""Findings as text and as JSON, and the progress of the analysis."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from taint_analysis.analysis import Progress as OnProgress
from taint_analysis.analysis import Result, Stage
from taint_analysis.findings import Finding, Place, Step

_STYLES: Final = {"source": "yellow", "sink": "red", "call": "cyan", "return": "cyan", "assign": ""}
_TITLES: Final = {
    Stage.PARSE: "parse files",
    Stage.GRAPHS: "build graphs",
    Stage.PROBLEM: "build problem",
    Stage.SOLVE: "solve",
    Stage.REPORT: "trace paths",
}
_MAX_CODE: Final = 76
_MAX_STEPS: Final = 24


@contextmanager
def show_progress(console: Console) -> Iterator[OnProgress]:
    """A progress bar for each stage, on a terminal; it is gone when the analysis is done."""
    columns = (TextColumn("{task.description:14}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def start(stage: Stage, total: int) -> Callable[[], None]:
            task = progress.add_task(_TITLES[stage], total=total)
            return lambda: progress.advance(task)

        yield start


def print_report(result: Result, out: Console) -> None:
    """Print the findings, the files that were skipped and a summary."""
    for finding in result.findings:
        _print_finding(finding, result, out)
    for one in result.skipped:
        out.print(Text.assemble(("skipped ", "magenta"), f"{one.shown}: {one.reason}"))
    if result.skipped:
        out.print()
    _print_summary(result, out)


def describe(step: Step) -> str:
    """What happens at a step, in a few words."""
    if step.kind == "sink":
        return "must not be untrusted"
    if step.callee:
        return f"passed to {step.callee}" + (f" as {step.holder}" if step.holder else "")
    if step.holder:
        return f"in {step.holder}"
    return "returned" if step.kind == "return" else "untrusted"


def line_of(result: Result, place: Place) -> str:
    """The first line of a place, without its indentation."""
    return result.files[place.file].lines[place.line - 1].strip()


def by_danger(result: Result) -> dict[str, int]:
    """The number of findings of each danger, most first."""
    return dict(Counter(one.danger.title for one in result.findings).most_common())


def _print_finding(finding: Finding, result: Result, out: Console) -> None:
    place, danger = finding.place, finding.danger
    where = f"{place.file}:{place.line}:{place.column + 1}"
    out.print(Text.assemble((where, "bold"), ": ", (finding.message, "bold red")))
    out.print(Text(f"  {danger.title} (CWE-{danger.cwe}). Fix: {danger.advice}.", "dim"))
    rows = [
        (f"{one.place.file}:{one.place.line}", _shortened(line_of(result, one.place)), one) for one in finding.steps
    ]
    widths = max(len(location) for location, _, _ in rows), max(len(code) for _, code, _ in rows)
    left_out = len(rows) - _MAX_STEPS
    for position, (location, code, step) in enumerate(rows):
        if left_out > 0 and position == _MAX_STEPS // 2:
            out.print(Text(f"    ... {left_out} more steps, which --html and --json have", "dim"))
        if position < _MAX_STEPS // 2 or position >= len(rows) - _MAX_STEPS // 2:
            shown = (location.ljust(widths[0]), "dim"), "  ", (code.ljust(widths[1]), _STYLES[step.kind]), "  "
            out.print(Text.assemble("    ", *shown, describe(step)))
    out.print()


def _print_summary(result: Result, out: Console) -> None:
    count = len(result.findings)
    style = "bold red" if count else "bold green"
    kinds = ", ".join(f"{number} {title}" for title, number in by_danger(result).items())
    out.print(Text(f"{count} {'finding' if count == 1 else 'findings'}" + (f": {kinds}" if kinds else ""), style))
    out.print(
        f"{result.package}: {len(result.files):,} files, {result.lines:,} lines, {result.functions:,} functions; "
        f"{result.procedures:,} functions and modules may carry untrusted data to a sink"
    )
    out.print(
        f"problem: {result.nodes:,} nodes, {result.facts:,} facts, "
        f"{result.exploded_nodes:,} exploded nodes, {result.exploded_edges:,} edges"
    )
    times = ", ".join(f"{_TITLES[stage]} {seconds:.2f} s" for stage, seconds in result.seconds.items())
    out.print(f"time: {sum(result.seconds.values()):.2f} s ({times})")


def print_json(result: Result, out: Console) -> None:
    """Print the result as JSON."""
    out.out(json.dumps(as_json(result), indent=2), highlight=False)


def as_json(result: Result) -> dict[str, Any]:
    """The result as plain lists and dictionaries. Columns count from 1, as lines do."""
    return {
        "package": result.package,
        "findings": [_finding_as_json(one) for one in result.findings],
        "skipped": [dataclasses.asdict(one) for one in result.skipped],
        "statistics": {
            name: getattr(result, name)
            for name in ("lines", "functions", "procedures", "nodes", "facts", "exploded_nodes", "exploded_edges")
        },
        "seconds": {str(stage): round(seconds, 4) for stage, seconds in result.seconds.items()},
    }


def _finding_as_json(finding: Finding) -> dict[str, Any]:
    return {
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column + 1,
        "sink": finding.sink,
        "source": finding.source,
        "kind": finding.danger.title,
        "cwe": finding.danger.cwe,
        "message": finding.message,
        "path": [
            {
                "kind": one.kind,
                "file": one.place.file,
                "line": one.place.line,
                "column": one.place.column + 1,
                "function": one.function,
                "holder": one.holder,
                "callee": one.callee,
            }
            for one in finding.steps
        ],
    }


def _shortened(code: str) -> str:
    return code if len(code) <= _MAX_CODE else code[: _MAX_CODE - 3] + "..."
