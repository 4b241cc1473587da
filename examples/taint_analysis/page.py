"""Findings as one HTML page that needs no other file: no script, no font, no image."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

from taint_analysis.analysis import Result
from taint_analysis.findings import Finding, Place, Step
from taint_analysis.report import describe

_CONTEXT_LINES: Final = 2
_MAX_LINES: Final = 12
_MAX_COLUMNS: Final = 400
_TOKENS: Final = re.compile(
    r"""(?P<c>\#.*)
    |(?P<s>[rbfuRBFU]{0,2}(?:'''.*?(?:'''|$)|\"\"\".*?(?:\"\"\"|$)|'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?))
    |(?P<n>\b\d[\w.]*)
    |(?P<w>[^\W\d]\w*)""",
    re.VERBOSE,
)


def write_page(result: Result, path: Path) -> None:
    """Write the page of a result to a file."""
    path.write_text(page(result), encoding="utf-8", errors="replace")


def page(result: Result) -> str:
    """The whole page."""
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    name = escape(result.package)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} - taint analysis</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><style>{css}</style></head>'
        f"<body>{_header(result)}<main>{_findings(result)}{_skipped(result)}</main>"
        "<footer>Paths are found by the IFDS solver of <b>vyre.lib.dataflow</b>. A finding is a possible flow: whether "
        "someone outside can use it depends on who controls its source.</footer></body></html>\n"
    )


def _header(result: Result) -> str:
    total = sum(result.seconds.values())
    tiles = [
        ("findings", f"{len(result.findings):,}"),
        ("files", f"{len(result.files):,}"),
        ("lines", f"{result.lines:,}"),
        ("functions", f"{result.functions:,}"),
        ("exploded nodes", f"{result.exploded_nodes:,}"),
        ("exploded edges", f"{result.exploded_edges:,}"),
        ("seconds", f"{total:.2f}"),
    ]
    shown = "".join(
        f"<div{' class=alarm' if what == 'findings' and result.findings else ''}><dt>{what}</dt><dd>{value}</dd></div>"
        for what, value in tiles
    )
    bars = "".join(f'<i style="flex:{100 * seconds / total:.2f}"></i>' for seconds in result.seconds.values())
    times = ", ".join(f"{stage} {seconds:.2f} s" for stage, seconds in result.seconds.items())
    return (
        f"<header><h1>{escape(result.package)}<small>taint analysis</small></h1>"
        f'<p class="root">{escape(str(result.root))}</p><dl class="tiles">{shown}</dl>'
        f'<div class="times">{bars}</div><p class="note">{times}</p></header>'
    )


def _findings(result: Result) -> str:
    if not result.findings:
        return '<p class="clean">No untrusted data reaches a dangerous call.</p>'
    groups: dict[str, list[Finding]] = defaultdict(list)
    for one in result.findings:
        groups[one.danger.title].append(one)
    parts: list[str] = []
    for title, findings in sorted(groups.items(), key=lambda group: -len(group[1])):
        danger = findings[0].danger
        rows = "".join(_finding(one, result, is_open=not parts and one is findings[0]) for one in findings)
        heading = f"{escape(title[0].upper() + title[1:])}<small>CWE-{danger.cwe}, {len(findings)}</small>"
        parts.append(f'<h2>{heading}</h2><p class="note">Fix: {escape(danger.advice)}.</p>{rows}')
    return "".join(parts)


def _finding(finding: Finding, result: Result, *, is_open: bool) -> str:
    first, last = finding.steps[0].place, finding.place
    where = f"{last.file}:{last.line}:{last.column + 1}"
    if (first.file, first.line) != (last.file, last.line):
        where = f"{first.file}:{first.line} → {where}"
    count = len(finding.steps)
    steps = "".join(_step(one, finding, result) for one in finding.steps)
    return (
        f'<details class="finding"{" open" if is_open else ""}><summary><span class="message"><code>'
        f"{escape(finding.sink)}</code> gets untrusted data from {escape(finding.source)}</span>"
        f'<span class="where">{escape(where)}</span><span class="length">{count} steps</span></summary>'
        f'<ol class="steps">{steps}</ol></details>'
    )


def _step(step: Step, finding: Finding, result: Result) -> str:
    title = escape(describe(step))
    if step.holder:
        title = title.removesuffix(escape(step.holder)) + f"<code>{escape(step.holder)}</code>"
    if step.kind == "source":
        title = f"<b>{escape(finding.source)}</b> {title if step.holder else ''}"
    elif step.kind == "sink":
        title = f"<b>{escape(finding.sink)}</b> must not get it"
    at = f"{step.place.file}:{step.place.line}"
    inside = "" if step.function == "<module>" else f" in {step.function}"
    return (
        f'<li class="{step.kind}"><p>{title}<span class="at">{escape(at + inside)}</span></p>'
        f"{_excerpt(step.place, result)}</li>"
    )


def _excerpt(place: Place, result: Result) -> str:
    """The lines around a place, with the place marked."""
    lines = result.files[place.file].lines
    last = min(place.end_line, place.line + _MAX_LINES)
    first, end = max(1, place.line - _CONTEXT_LINES), min(len(lines), last + _CONTEXT_LINES)
    while first < place.line and not lines[first - 1].strip():
        first += 1
    while end > last and not lines[end - 1].strip():
        end -= 1
    rows = []
    for number in range(first, end + 1):
        text = lines[number - 1]
        is_hot = place.line <= number <= last
        start = _characters(text, place.column) if number == place.line else len(text) - len(text.lstrip())
        stop = _characters(text, place.end_column) if number == place.end_line else len(text)
        code = _colored(text[:_MAX_COLUMNS], range(start, stop) if is_hot else range(0))
        rows.append(f'<span class="row{" hot" if is_hot else ""}" data-line="{number}">{code}</span>')
    return f"<pre>{''.join(rows)}</pre>"


def _characters(text: str, column: int) -> int:
    """The characters before a column, which counts bytes of UTF-8."""
    return len(text.encode(errors="replace")[:column].decode(errors="ignore"))


def _colored(text: str, marked: range) -> str:
    """A line of Python as HTML, with a class for each token and a mark."""
    kinds = [""] * len(text)
    for token in _TOKENS.finditer(text):
        kind = token.lastgroup or ""
        if kind == "w":
            kind = "k" if keyword.iskeyword(token[0]) else ""
        kinds[token.start() : token.end()] = [kind] * (token.end() - token.start())
    parts = []
    for (is_marked, kind), group in groupby(range(len(text)), lambda at: (at in marked, kinds[at])):
        code = escape("".join(text[at] for at in group))
        code = f'<span class="{kind}">{code}</span>' if kind else code
        parts.append(f"<mark>{code}</mark>" if is_marked else code)
    return "".join(parts) or " "


def _skipped(result: Result) -> str:
    if not result.skipped:
        return ""
    rows = "".join(f"<li>{escape(one.shown)}: {escape(one.reason)}</li>" for one in result.skipped)
    return f'<h2>Skipped files<small>{len(result.skipped)}</small></h2><ul class="skipped">{rows}</ul>'
