"""How is a report shown? As one HTML page that needs nothing but itself: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from vyre.checker import render_diagnostic
from vyre.ir.html import STYLE, highlighted
from vyre.report.explanation import difference, rules_fired
from vyre.report.graph import draw
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.checker.diagnostics import Diagnostic
    from vyre.report import Code, Report, Run

_MOST_CHARACTERS: Final = 400_000
_SECTIONS: Final = {
    "source": "Source",
    "check": "Check",
    "optimiser": "Optimiser",
    "segments": "Segments",
    "code": "Code",
    "timings": "Timings",
}


def page(report: Report) -> str:
    """The whole page."""
    css = files("vyre.report").joinpath("page.css").read_text(encoding="utf-8")
    bodies = {
        "source": _source(report),
        "check": _check(report),
        "optimiser": _optimiser(report),
        "segments": _segments(report),
        "code": "".join(map(_code, report.code)) or _not_legal(),
        "timings": _timings(report),
    }
    links = "".join(f'<a href="#{key}">{title}</a>' for key, title in _SECTIONS.items())
    sections = "".join(
        f'<section id="{key}"><h2>{title}</h2>{bodies[key]}</section>' for key, title in _SECTIONS.items()
    )
    name = escape(report.program.name)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name} - vyre report</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"><style>{css}{STYLE}</style>'
        f"</head><body><header><h1>{name}</h1>{_facts(report)}<nav>{links}</nav></header>"
        f"<main>{sections}</main></body></html>\n"
    )


def _facts(report: Report) -> str:
    program = report.program
    size = " x ".join(map(str, program.workgroup_size))
    facts = [("workgroup", size), ("buffers", str(len(program.buffers)))]
    facts.append(("check", "legal" if report.is_legal else counted(len(report.checked.errors), "error")))
    if report.plan is not None:
        carried = sum(one.bytes * one.copies for one in report.plan.state)
        facts += [("segments", str(len(report.plan.segments))), ("carried", f"{carried:,} bytes")]
    quickest = min((run for run in report.runs if run.calls), key=lambda run: run.best_ms, default=None)
    if quickest is not None:
        facts.append(("best run", f"{_milliseconds(quickest.best_ms)} on {quickest.backend}"))
    tiles = "".join(f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for what, value in facts)
    return f'<dl class="facts">{tiles}</dl><p class="print">fingerprint {program.fingerprint().hex()}</p>'


def _source(report: Report) -> str:
    source = report.program.source
    text = str(report.program) if source is None else source.text
    name = "printed from the program" if source is None else source.name
    wrong = _lines_of(report)
    rows = "".join(
        f'<span class="line{" wrong" if number in wrong else ""}" id="line-{number}">{line or " "}</span>'
        for number, line in enumerate(highlighted(_cut(text)).splitlines(), 1)
    )
    return f'<p class="note">{escape(name)}</p><pre class="source">{rows}</pre>'


def _lines_of(report: Report) -> set[int]:
    source = report.program.source
    if source is None:
        return set()
    found = (*report.checked.errors, *report.checked.warnings)
    return {source.line_and_column(source.span(one.place).start)[0] for one in found}


def _check(report: Report) -> str:
    found = (*report.checked.errors, *report.checked.warnings)
    verdict = '<p class="good">The program is legal.</p>' if report.is_legal else ""
    return verdict + "".join(_diagnostic(report, one) for one in found)


def _diagnostic(report: Report, found: Diagnostic) -> str:
    text = escape(render_diagnostic(report.program, found))
    return f'<pre class="diagnostic {found.severity.value}">{text}</pre>'


def _optimiser(report: Report) -> str:
    what, better = report.optimisation, report.optimised
    if what is None or better is None:
        return _problem(report.optimiser_problem) if report.optimiser_problem else _not_legal()
    lines = difference(report.program, better)
    shown = "".join(f'<span class="line {_kind(line)}">{escape(line)}</span>' for line in lines)
    changed = f'<pre class="diff">{shown}</pre>' if lines else '<p class="good">There is nothing to change.</p>'
    rules = _table(("times", "rule"), [(f"{count:,}", name) for name, count in rules_fired(what)]) if what.fired else ""
    stages = _table(("time", "stage"), [(_milliseconds(1e3 * one.seconds), one.name) for one in what.stages])
    return (
        f'<p class="note">{escape(what.line)}</p>{changed}<div class="columns">'
        f"<div><h3>Rules that fired</h3>{rules or '<p>none</p>'}</div><div><h3>Time</h3>{stages}</div></div>"
    )


def _kind(line: str) -> str:
    if line.startswith(("---", "+++", "@@")):
        return "hunk"
    return {"+": "added", "-": "removed"}.get(line[:1], "same")


def _segments(report: Report) -> str:
    plan = report.plan
    if plan is None:
        return _problem(report.plan_problem) if report.plan_problem else _not_legal()
    x, y, z = plan.launch.grid
    kind = "each segment is followed by the next" if plan.straight else "a control word says which segment is next"
    many = (
        f"{counted(len(plan.segments), 'segment')}, {kind}" if len(plan.segments) > 1 else "one launch: nothing to cut"
    )
    note = f"{many}; a grid of {x} x {y} x {z} workgroups, {counted(plan.launch.invocations, 'invocation')}"
    rows = [
        (f"{one.bytes * one.copies:,}", f"per {one.scope}", f"{one.what}{' (two copies)' if one.copies == 2 else ''}")
        for one in plan.state
    ]
    state = _table(("bytes", "kept", "what is carried"), rows) if rows else "<p>Nothing is carried.</p>"
    return (
        f'<p class="note">{note}</p><div class="columns"><div class="scroll">{draw(plan)}</div><div>{state}</div></div>'
    )


def _code(code: Code) -> str:
    if code.problem:
        return f"<h3>{escape(code.title)}</h3>{_problem(code.problem)}"
    lines = counted(code.text.count("\n") + 1, "line")
    return (
        f'<details id="code-{code.kind}"><summary>{escape(code.title)} <small>{lines}</small></summary>'
        f"<pre>{escape(_cut(code.text))}</pre></details>"
    )


def _timings(report: Report) -> str:
    if not report.is_legal:
        return _not_legal()
    zeros = f"; zeros for {', '.join(report.zeros)}" if report.zeros else ""
    note = f'<p class="note">the first call compiles, or finds the code in the cache{escape(zeros)}</p>'
    slowest = max((run.best_ms for run in report.runs), default=0.0) or 1.0
    return note + "".join(_run(run, slowest) for run in report.runs)


def _run(run: Run, slowest: float) -> str:
    about = f"<h3>{escape(run.backend)} <small>{escape(run.device)}</small></h3>"
    if run.problem:
        return f'<div class="run">{about}{_problem(run.problem)}</div>'
    same = {True: "the reference's bytes", False: "OTHER BYTES THAN THE REFERENCE", None: "bytes not compared"}
    share = max(0.5, 100 * run.best_ms / slowest)
    mood = "bad" if run.agrees is False else "good" if run.agrees else ""
    times = f"best {_milliseconds(run.best_ms)}, middle {_milliseconds(run.median_ms)} of {run.calls - 1}"
    return (
        f'<div class="run">{about}<div class="bar"><i style="width:{share:.1f}%"></i></div>'
        f"<p>{times}, first {_milliseconds(run.first_ms)}; {escape(run.route)} route; "
        f'<span class="{mood}">{same[run.agrees]}</span></p></div>'
    )


def _milliseconds(value: float) -> str:
    return f"{1e3 * value:.1f} µs" if value < 1 else f"{value:.2f} ms" if value < 1000 else f"{value / 1e3:.2f} s"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _problem(text: str) -> str:
    return f'<p class="problem">{escape(text)}</p>'


def _not_legal() -> str:
    return '<p class="problem">The program is not legal, so there is nothing to show here.</p>'


def _cut(text: str) -> str:
    """Text up to a length that a browser shows without effort."""
    if len(text) <= _MOST_CHARACTERS:
        return text
    kept = text[: text.rfind("\n", 0, _MOST_CHARACTERS) + 1 or _MOST_CHARACTERS]
    return f"{kept}… and {len(text) - len(kept):,} more characters"
