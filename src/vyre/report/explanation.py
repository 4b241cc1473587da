"""What did the optimizer do? A diff, how often each rule fired, and where the time went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Final

from vyre.ir.program import Program
from vyre.optimizer.report import Report
from vyre.words import counted

# Comparing takes time that grows with the square of what is compared.
_MOST_LINES: Final = 4_000


def difference(before: Program, after: Program) -> list[str]:
    """What is different between two programs, as lines of a diff; nothing if they have the same text."""
    old, new = (str(program).splitlines() for program in (before, after))
    if max(len(old), len(new)) > _MOST_LINES:
        same = old == new
        return [] if same else [f"@@ {len(old):,} lines became {len(new):,}: too many to compare line by line @@"]
    return list(unified_diff(old, new, "before", "after", n=2, lineterm=""))


def rules_fired(report: Report) -> list[tuple[str, int]]:
    """The rules that were used, the most frequent first."""
    return sorted(report.fired.items(), key=lambda item: (-item[1], item[0]))


def explanation(before: Program, after: Program, report: Report, passes: Iterable[tuple[str, Report]] = ()) -> str:
    """Return a report as text; ``passes`` are the reports of single passes by name."""
    return "\n".join(_lines(before, after, report, passes))


def _lines(before: Program, after: Program, report: Report, passes: Iterable[tuple[str, Report]]) -> Iterator[str]:
    yield from difference(before, after) or ["nothing to change"]
    yield ""
    yield f"rows    {report.rows_before} before, {report.rows_after} that are needed after"
    waits = counted(report.synchronisations, "synchronisation")
    yield f"rounds  {report.rounds}, with {counted(report.sweeps, 'sweep')} and {waits}"
    if report.fired:
        yield "rules"
        for name, count in rules_fired(report):
            yield f"  {count:6}  {name}"
    yield f"time    {1e3 * report.seconds:.2f} ms"
    for stage in report.stages:
        yield f"  {1e3 * stage.seconds:8.2f} ms  {stage.name}"
    single = list(passes)
    if single:
        yield "passes, each by itself"
        yield "  rows before  after  rewrites        time"
    for name, one in single:
        seconds = sum(stage.seconds for stage in one.stages if stage.name == name)
        rows = f"{one.rows_before:11}  {one.rows_after:5}"
        yield f"  {rows}  {sum(one.fired.values()):8}  {1e3 * seconds:7.2f} ms  {name}"
