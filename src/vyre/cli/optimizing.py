"""What did the optimizer do? A diff, how often each rule fired, and where the time went."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff

from vyre.ir.program import Program
from vyre.optimizer.pipeline import Report


def explanation(before: Program, after: Program, report: Report) -> str:
    """A report in text."""
    return "\n".join(_lines(before, after, report))


def _lines(before: Program, after: Program, report: Report) -> Iterator[str]:
    old, new = (str(program).splitlines() for program in (before, after))
    difference = list(unified_diff(old, new, "before", "after", n=2, lineterm=""))
    yield from difference or ["nothing to change"]
    yield ""
    yield f"rows    {report.rows_before} before, {report.rows_after} that are needed after"
    yield f"rounds  {report.rounds}, with {report.sweeps} sweeps and {report.synchronisations} synchronisations"
    if report.fired:
        yield "rules"
        for name, count in sorted(report.fired.items(), key=lambda item: (-item[1], item[0])):
            yield f"  {count:6}  {name}"
    yield "time"
    for stage in report.stages:
        yield f"  {1e3 * stage.seconds:8.2f} ms  {stage.name}"
