"""The page as a person sees it: it opens in Chromium, all of it is there, and it fits a screen and a telephone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from browser_support import Browser, browser
from command_support import ROOT
from vyre.ir.parser import parse
from vyre.report import make_report, page

SECTIONS = ["source", "check", "optimiser", "segments", "code", "timings"]

# What reaches beyond the window, but for what has a scroll bar of its own.
TOO_WIDE = """[...document.querySelectorAll('body *')]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('pre, .scroll'))
    .map(e => e.outerHTML)"""
# Texts of the picture that are not inside it, or on top of one another.
BAD_TEXT = """(() => {
    const box = document.querySelector('svg.graph').getBoundingClientRect();
    const texts = [...document.querySelectorAll('svg.graph text')].map(e => [e.textContent, e.getBoundingClientRect()]);
    const out = texts.filter(([, r]) => r.left < box.left || r.right > box.right + 1 || r.width == 0);
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2;
    const on = texts.filter(([, a], i) => texts.some(([, b], j) => i != j && meet(a, b)));
    return [...out, ...on].map(([text]) => text);
})()"""
CONTRAST = """(() => {
    const light = c => c.match(/\\d+/g).slice(0, 3).map(v => v / 255)
        .map(v => v <= 0.04 ? v / 12.9 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, k) => sum + v * [0.2126, 0.7152, 0.0722][k], 0);
    const style = e => getComputedStyle(document.querySelector(e));
    const behind = light(style('section').backgroundColor);
    return ['h2', '.note', 'a', '.source .line'].map(e => light(style(e).color))
        .map(l => (Math.max(l, behind) + 0.05) / (Math.min(l, behind) + 0.05));
})()"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "reach.html"
    program = parse((ROOT / "examples/reach.vyre").read_text(), "reach.vyre")
    path.write_text(page(make_report(program)), encoding="utf-8")
    return path


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_and_fits(chromium: Browser, reach: Path, tmp_path: Path, width: int, dark: bool) -> None:
    chromium.open(reach, width, dark=dark)
    assert chromium.ask("document.title") == "reach - vyre report"
    assert chromium.ask("[...document.querySelectorAll('section')].map(s => s.id)") == SECTIONS
    assert chromium.ask("[...document.querySelectorAll('section')].every(s => s.innerText.trim().length > 20)")
    assert chromium.ask("document.documentElement.scrollWidth") == width
    assert chromium.ask(TOO_WIDE) == []
    assert min(chromium.ask(CONTRAST)) > 4.5
    assert chromium.ask("parseFloat(getComputedStyle(document.querySelector('.source')).fontSize)") >= 12
    assert chromium.complaints == []
    shot = tmp_path / "page.png"
    chromium.screenshot(shot)
    assert struct.unpack(">I", shot.read_bytes()[16:20]) == (width,)


def test_the_graph_is_drawn(chromium: Browser, reach: Path) -> None:
    chromium.open(reach, 1280)
    rectangles = "[...document.querySelectorAll('svg.graph rect')].map(e => e.getBoundingClientRect())"
    boxes = chromium.ask(f"{rectangles}.map(r => [r.top, r.bottom])")
    assert len(boxes) == 5
    assert all(above[1] < below[0] for above, below in pairwise(boxes))
    assert chromium.ask("[...document.querySelectorAll('svg.graph .edge')].every(e => e.getTotalLength() > 20)")
    assert chromium.ask("getComputedStyle(document.querySelector('svg.graph .edge')).stroke") != "none"
    assert chromium.ask(BAD_TEXT) == []


def test_generated_code_folds_and_opens(chromium: Browser, reach: Path) -> None:
    chromium.open(reach, 1280)
    is_seen = "document.querySelector('#code-llvm pre').checkVisibility()"
    assert not chromium.ask(is_seen)
    chromium.ask("document.querySelector('#code-llvm summary').click()")
    assert chromium.ask(is_seen)
    assert "define " in chromium.ask("document.querySelector('#code-llvm pre').innerText")


def test_links_lead_to_their_sections(chromium: Browser, reach: Path) -> None:
    chromium.open(reach, 400)
    chromium.ask("document.querySelector('nav a[href=\"#timings\"]').click()")
    assert chromium.ask("scrollY") > 500
