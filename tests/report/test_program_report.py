"""The report: everything about a program is collected, and what cannot be had is told in its place."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import numpy as np
import pytest

import vyre
from command_support import ROOT, command
from vyre.checker import check
from vyre.errors import VyreError
from vyre.ir.html import highlighted
from vyre.ir.parser import parse
from vyre.ir.wire import decode, encode
from vyre.lower.plan import DONE, GridSyncPlan
from vyre.report import Report, make_report, page, plan_for
from vyre.report.explanation import difference
from vyre.report.graph import MOST_SEGMENTS, draw

SECTIONS = ("source", "check", "optimiser", "segments", "code", "timings")


def example(name: str) -> vyre.Program:
    path = ROOT / "examples" / f"{name}.vyre"
    return parse(path.read_text(), f"{name}.vyre")


@pytest.fixture(scope="module")
def life() -> Report:
    inputs = {"width": np.uint32([32]), "steps": np.uint32([3])}
    return make_report(example("life"), inputs)


def text_of(html: str) -> str:
    return unescape(re.sub(r"<[^>]+>", "", html))


def test_everything_is_collected(life: Report) -> None:
    assert life.is_legal
    assert life.zeros == ("cells",)
    assert life.plan is not None
    assert len(life.plan.segments) == 3
    assert {code.kind for code in life.code} == {"llvm", "asm", "wgsl"}
    runs = {run.backend: run for run in life.runs}
    assert runs["cpu"].agrees
    assert runs["cpu"].calls >= 2
    assert 0 < runs["cpu"].best_ms <= runs["cpu"].median_ms
    assert runs["reference"].route == "native"


def test_the_page_needs_nothing_else(life: Report) -> None:
    html = page(life)
    assert all(f'<section id="{section}">' in html for section in SECTIONS)
    assert "<script" not in html
    assert "http" not in re.sub(r"<pre.*?</pre>", "", html, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="([^"#]*)"', html) == ["data:,"]


def test_the_page_shows_the_source_line_by_line(life: Report) -> None:
    source = page(life).split('<section id="source">')[1].split("</section>")[0]
    lines = re.findall(r'id="line-\d+">(.*?)</span>(?=<span class="line|</pre>)', source)
    assert life.program.source is not None
    assert [text_of(line).rstrip() for line in lines] == life.program.source.text.splitlines()


def test_the_page_says_what_the_optimizer_did(life: Report) -> None:
    html = page(life)
    assert life.optimised is not None
    added = [line[1:] for line in difference(life.program, life.optimised) if re.match(r"\+[^+]", line)]
    assert added
    for line in added:
        assert line in text_of(html)


def test_a_program_that_is_not_legal_has_its_diagnostics_and_no_more() -> None:
    report = make_report(parse((ROOT / "examples/bad/divergent_barrier.vyre").read_text(), "bad.vyre"))
    assert not report.is_legal
    assert (report.optimised, report.plan, report.code, report.runs) == (None, None, (), ())
    html = page(report)
    assert "error[V010]" in html
    assert '<span class="line wrong" id="line-7">' in html
    assert html.count("The program is not legal, so there is nothing to show here.") == 4


def test_a_program_without_a_source_is_printed() -> None:
    program = decode(encode(example("sum")))
    html = page(Report(program, check(program)))
    assert "printed from the program" in html
    assert text_of(html.split('<section id="source">')[1]).count("sums[wg.x]") == 1


def test_what_cannot_be_had_is_told() -> None:
    program = parse("""
program wide(workgroup 2, 2) {
  buffer 0 a: f64[4] output
  a[gid.x] = f64(gid.y)
}""")
    report = make_report(program)
    assert "cannot be inferred from element counts" in report.plan_problem
    assert all("cannot be inferred" in run.problem for run in report.runs if run.backend == "cpu")
    html = page(report)
    assert html.count('class="problem"') >= 2
    assert page(make_report(program, grid=(1, 1))).count("cannot be inferred") == 0


def test_text_of_a_program_cannot_become_markup() -> None:
    program = parse('program p(workgroup 1) {\n  buffer 0 a: u32[1] output\n  trap(1, "<script>&")\n  a[0] = 1\n}')
    for html in (page(make_report(program)), program._repr_html_()):
        assert "<script>" not in html
        assert "&lt;script&gt;&amp;" in html


def edges_of(plan: GridSyncPlan) -> set[tuple[int, int]]:
    end = len(plan.segments)
    return {(at, end if to == DONE else to) for at, to in plan.edges}


@pytest.mark.parametrize("name", ["reach", "life", "saxpy"])
def test_the_graph_has_every_segment_and_every_edge(name: str) -> None:
    plan = plan_for(example(name), None, 1024)
    svg = draw(plan)
    assert svg.count('class="segment"') == len(plan.segments)
    assert svg.count('class="edge') == len(edges_of(plan))
    for segment in plan.segments:
        assert segment.label in svg
    carried = [one for one in plan.state if one.read_name]
    assert svg.count('class="carried"') == len(carried)
    # On the arrow, in the box and in what the box says when pointed at.
    assert svg.count("4 bytes: ") == 3 * len(carried)


def test_a_graph_of_very_many_segments_is_cut_off_and_says_so() -> None:
    syncs = "\n".join(f"  a[gid.x] = a[gid.x + {k}]\n  grid_sync" for k in range(60))
    program = parse(f"program long(workgroup 1) {{\n  buffer 0 a: u32[] readwrite\n{syncs}\n}}")
    svg = draw(plan_for(program, None, 8))
    assert svg.count('class="segment"') == MOST_SEGMENTS
    assert "more segments" in svg


def test_lines_that_jump_do_not_lie_on_one_another() -> None:
    paths = re.findall(r'class="edge jump" d="M(\d+) (\d+)H(\d+)V(\d+)', draw(plan_for(example("reach"), None, 64)))
    lanes = [lane for _, _, lane, _ in paths]
    assert len(paths) == 2
    assert len({*lanes}) == 2


def test_words_are_coloured_by_what_they_are() -> None:
    html = highlighted('let x = u32(0x1F) # "not" <b>\ntrap(1.5, "a\\"b")')
    assert '<span class="vyre-keyword">let</span>' in html
    assert '<span class="vyre-type">u32</span>' in html
    assert '<span class="vyre-number">0x1F</span>' in html
    assert '<span class="vyre-comment"># &quot;not&quot; &lt;b&gt;</span>' in html
    assert '<span class="vyre-string">&quot;a\\&quot;b&quot;</span>' in html
    assert unescape(re.sub(r"<[^>]+>", "", html)) == 'let x = u32(0x1F) # "not" <b>\ntrap(1.5, "a\\"b")'


def test_notebooks_show_programs_and_reports(life: Report) -> None:
    assert text_of(life.program._repr_html_().split("</style>")[1]) == str(life.program).rstrip("\n")
    frame = life._repr_html_()
    assert frame.startswith("<iframe srcdoc=")
    assert unescape(frame.split('"')[1]) == page(life)
    long = parse("program p(workgroup 1) {\n" + "  block {}\n" * 3000 + "}")
    assert "more lines" in long._repr_html_()


def test_a_run_that_fails_is_a_problem_of_that_backend_alone() -> None:
    report = make_report(parse('program p(workgroup 1) {\n  buffer 0 a: u32[1] output\n  trap(1, "no")\n}'))
    problems = {run.backend: run.problem for run in report.runs}
    assert "trap" in problems["cpu"]
    assert "trap" in problems["reference"]


def test_data_that_does_not_fit_is_a_problem_of_the_runs() -> None:
    report = make_report(example("saxpy"), {"x": np.zeros(3, np.float64)})
    assert "holds f32" in report.plan_problem
    assert all("holds f32" in run.problem for run in report.runs)
    with pytest.raises(VyreError, match="one to three workgroup counts"):
        plan_for(example("saxpy"), (1, 2, 3, 4), 8)


def test_the_command_writes_the_page(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    vyre_command = command(monkeypatch, capfd)
    path = tmp_path / "page.html"
    out, _ = vyre_command("report", "examples/sum.vyre", "-o", str(path))
    assert out == f"written to {path}\n"
    assert "zeros for values" in text_of(path.read_text())
    told, _ = vyre_command("report", "examples/sum.vyre", "-o", str(path), "-i", "values=iota(256)", "--json")
    summary = json.loads(told)
    assert summary["legal"]
    assert summary["zeros"] == []
    assert {run["backend"] for run in summary["runs"]} >= {"cpu", "reference"}
    vyre_command("report", "examples/bad/undeclared.vyre", "-o", str(path), code=1)
    assert "The program is not legal" in path.read_text()
    _, err = vyre_command("report", "examples/bad/syntax.vyre", "-o", str(path), code=1)
    assert "fix: did you mean 'while'?" in err
