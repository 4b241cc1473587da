"""How does a plan look as a picture? Its segments from the first to the end, who follows whom, and what is carried.

A segment that is followed by the next has an arrow down; jumps back are drawn on the left, jumps ahead on the right,
each in a lane of its own, so that no two lines lie on one another.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from vyre.lower.plan import DONE, GridSyncPlan
from vyre.words import counted

MOST_SEGMENTS: Final = 40
_WIDTH, _HEIGHT, _GAP, _LANE, _MARGIN, _INSET = 300, 58, 42, 18, 10, 50

Edge = tuple[int, int]


def carried_into(plan: GridSyncPlan, segment: int) -> tuple[int, str]:
    """How many bytes a segment is handed by the one before it, and what they are."""
    state = [one for one in plan.state if one.read_name is not None and one.segment == segment]
    names = ", ".join(one.what.split(": ", 1)[-1] for one in state)
    return sum(one.bytes for one in state), names


def draw(plan: GridSyncPlan) -> str:
    """The control graph as SVG."""
    shown = min(len(plan.segments), MOST_SEGMENTS)
    end = shown
    edges = {(at, end if to == DONE or to >= shown else to) for at, to in plan.edges if at < shown}
    back = _lanes((at, to) for at, to in edges if to <= at)
    ahead = _lanes((at, to) for at, to in edges if to > at + 1)
    left = _MARGIN + _LANE * (1 + max(back.values(), default=-1))
    width = left + _WIDTH + _LANE * (1 + max(ahead.values(), default=-1)) + _MARGIN
    height = 2 * _MARGIN + (shown + 1) * (_HEIGHT + _GAP) - _GAP - _HEIGHT // 2
    parts = [
        f'<svg class="graph" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="control graph of {escape(plan.source.name)}">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    parts += [_straight(plan, left, at, to, end) for at, to in sorted(edges) if to == at + 1]
    parts += [_around(left, edge, lane, to_left=True) for edge, lane in back.items()]
    parts += [_around(left, edge, lane, to_left=False, inset=_INSET * (edge[1] == end)) for edge, lane in ahead.items()]
    parts += [_box(plan, left, order) for order in range(shown)]
    rest = len(plan.segments) - shown
    parts.append(_end(left, end, f"{counted(rest, 'more segment')}, then the end" if rest else "end"))
    return "".join((*parts, "</svg>"))


def _lanes(edges: Iterable[Edge]) -> dict[Edge, int]:
    """A lane for each edge, the short ones inside; edges that meet have different ones."""
    found: dict[Edge, int] = {}
    for edge in sorted(edges, key=lambda edge: (abs(edge[1] - edge[0]), edge)):
        low, high = min(edge), max(edge)
        taken = {lane for (at, to), lane in found.items() if min(at, to) <= high and low <= max(at, to)}
        found[edge] = next(lane for lane in range(len(found) + 1) if lane not in taken)
    return found


def _top(order: int) -> int:
    return _MARGIN + order * (_HEIGHT + _GAP)


def _straight(plan: GridSyncPlan, left: int, at: int, to: int, end: int) -> str:
    x, start, stop = left + _WIDTH // 2, _top(at) + _HEIGHT, _top(to)
    line = f'<path class="edge" d="M{x} {start}V{stop - 2}" marker-end="url(#arrow)"/>'
    count, names = carried_into(plan, to) if to != end else (0, "")
    if not count:
        return line
    label = f"{count:,} bytes: {names}"
    return f'{line}<text class="carried" x="{x + 8}" y="{(start + stop) // 2 + 4}">{escape(_short(label, 22))}</text>'


def _around(left: int, edge: Edge, lane: int, *, to_left: bool, inset: int = 0) -> str:
    at, to = edge
    side = left if to_left else left + _WIDTH
    reach = side - _LANE * (lane + 1) if to_left else side + _LANE * (lane + 1)
    # Several lines leave and enter a box, each at a height of its own.
    shift = min(6 * lane, 18)
    start, stop = _top(at) + _HEIGHT // 2 + 6 + shift, _top(to) + 14 + (shift if to_left else 0)
    tip = side - 2 if to_left else side + 2 - inset
    return f'<path class="edge jump" d="M{side} {start}H{reach}V{stop}H{tip}" marker-end="url(#arrow)"/>'


def _box(plan: GridSyncPlan, left: int, order: int) -> str:
    segment = plan.segments[order]
    count, names = carried_into(plan, order)
    statements = segment.program.stats().statements
    facts = counted(statements, "statement")
    if count:
        facts += f", takes {count:,} bytes: {names}"
    if segment.resumes is not None:
        facts += f", after the host handled '{segment.resumes}'"
    x, y = left + 14, _top(order)
    return (
        f'<g class="segment"><title>{escape(facts)}</title>'
        f'<rect x="{left}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="7"/>'
        f'<text class="label" x="{x}" y="{y + 24}">{order}. {escape(_short(segment.label, 30))}</text>'
        f'<text class="detail" x="{x}" y="{y + 44}">{escape(_short(facts, 42))}</text></g>'
    )


def _end(left: int, order: int, text: str) -> str:
    x, y, width, height = left + _WIDTH // 2, _top(order), _WIDTH - 2 * _INSET, _HEIGHT // 2
    return (
        f'<g class="end"><rect x="{left + _INSET}" y="{y}" width="{width}" height="{height}" rx="14"/>'
        f'<text text-anchor="middle" x="{x}" y="{y + 19}">{escape(_short(text, 28))}</text></g>'
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
