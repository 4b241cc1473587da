"""How are results shown? A Markdown table, raw samples as JSON, and bars and lines as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10
from pathlib import Path

import msgspec

RESULTS = Path(__file__).with_name("results")
_COLOURS = {
    "vyre": "#c0392b", "numba": "#2e86c1", "taichi": "#27ae60", "warp": "#8e44ad", "opencl": "#d68910",
    "numpy": "#707b7c", "scipy": "#b3b6b7",
}  # fmt: skip


class Line(msgspec.Struct):
    """One line of the table: what was measured how, everyone's best seconds, and whether the promise holds."""

    title: str
    way: str
    best: dict[str, float]
    promise: str
    verdict: str
    note: str = ""


def shown(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1 or unit == "µs":
            return f"{seconds * scale:.3g} {unit}"
    raise AssertionError


def table(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """The results in Markdown."""
    heads = ["workload", "", "vyre", *peers, "ratio", "promised", "", ""]
    rows = [heads, ["---"] * len(heads)]
    for line in lines:
        others = [seconds for name, seconds in line.best.items() if name != "vyre"]
        ratio = f"{min(others) / line.best['vyre']:.2f}x" if others else ""
        times = [shown(line.best[name]) if name in line.best else "" for name in ("vyre", *peers)]
        rows.append([line.title, line.way, *times, ratio, line.promise, line.verdict, line.note])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def write(stem: str, data: object, texts: Mapping[str, str]) -> None:
    """Writes raw data and texts (by the ending of their file's name) under ``results``."""
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(data), indent=1))
    for ending, text in texts.items():
        (RESULTS / f"{stem}{ending}").write_text(text)


def _svg(width: int, height: int, parts: Sequence[str]) -> str:
    style = "font: 12px sans-serif"
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" style="{style}">' + (
        f'<rect width="{width}" height="{height}" fill="white"/>' + "".join(parts) + "</svg>\n"
    )


def _text(x: float, y: float, text: str, colour: str = "#222") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{colour}">{escape(text)}</text>'


def bars(lines: Sequence[Line]) -> str:
    """For each line, how long everyone took as a multiple of vyre's time, on a logarithmic scale."""
    parts: list[str] = []
    y = 24
    for line in lines:
        parts.append(_text(8, y, f"{line.title} ({line.way})"))
        for name, seconds in sorted(line.best.items(), key=lambda pair: pair[1]):
            times = seconds / line.best["vyre"]
            length = max(2.0, 60 * (1 + log10(times) * 2))
            parts.append(f'<rect x="230" y="{y - 10}" width="{length:.0f}" height="11" fill="{_COLOURS[name]}"/>')
            parts.append(_text(236 + length, y, f"{name} {shown(seconds)} ({times:.2f})"))
            y += 14
        y += 8
    return _svg(760, y, parts)


def curves(title: str, points: Mapping[str, Mapping[int, float]], unit: str) -> str:
    """Lines over sizes, both logarithmic."""
    sizes = sorted({size for line in points.values() for size in line})
    values = [value for line in points.values() for value in line.values()]
    left, right, low, high = log10(sizes[0]), log10(sizes[-1]), log10(min(values)), log10(max(values))

    def place(size: int, value: float) -> tuple[float, float]:
        across = (log10(size) - left) / (right - left or 1)
        return 70 + 480 * across, 340 - 290 * (log10(value) - low) / (high - low or 1)

    parts = [_text(70, 20, f"{title}, {unit}")]
    for number, size in enumerate(sizes):
        if number % 2 == 0:
            parts.append(_text(place(size, min(values))[0] - 12, 362, f"{size:,}" if size < 10_000 else f"{size:.0e}"))
    parts += [_text(4, place(sizes[0], value)[1] + 4, f"{value:.3g}") for value in (min(values), max(values))]
    for number, (name, line) in enumerate(points.items()):
        colour = _COLOURS[name.split()[0]]
        dashes = ' stroke-dasharray="5 3"' if name.endswith(" 1") else ""
        path = " ".join("{:.1f},{:.1f}".format(*place(size, line[size])) for size in sorted(line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        parts.append(_text(570, 50 + 16 * number, name, colour))
    return _svg(720, 380, parts)
