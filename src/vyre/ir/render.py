"""How is a place in a source text shown to a person? With its line, and the stretch underlined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from vyre.ir.places import SourceMap, Span

_TAB: Final = "    "
_WIDEST: Final = 100
_CONTEXT: Final = 30
_HIDDEN: Final = "\N{REPLACEMENT CHARACTER}"


def render(source: SourceMap, span: Span, severity: str, code: str, message: str, fix: str) -> str:
    """The message, the first line of the span with a caret under each of its characters, and the fix."""
    start = min(max(span.start, 0), len(source.text))
    line, column = source.line_and_column(start)
    first = start - (column - 1)
    end = source.text.find("\n", start)
    # Only what can be shown is looked at: lines may be as long as texts.
    clipped_left = max(first, start - _CONTEXT) if start - first > _WIDEST - _CONTEXT else first
    right = len(source.text) if end < 0 else end
    clipped_right = min(right, clipped_left + _WIDEST)
    stop = min(max(span.stop, start), clipped_right)
    before = ("…" if clipped_left > first else "") + _shown(source.text[clipped_left:start])
    inside = _shown(source.text[start:stop].rstrip("\r"))
    after = _shown(source.text[stop:clipped_right].rstrip("\r")) + ("…" if clipped_right < right else "")
    gutter = " " * len(str(line))
    carets = " " * _width(before) + "^" * max(_width(inside), 1)
    lines = (
        f"{severity}[{code}]: {message.removesuffix('.')}",
        f"{gutter}--> {source.name}:{line}:{column}",
        f"{gutter} |",
        f"{line} | {before}{inside}{after}",
        f"{gutter} | {carets} here",
        f"{gutter} = fix: {fix}",
    )
    return "\n".join(part.rstrip() for part in lines)


def _shown(text: str) -> str:
    """The text with tabs spread out and with a mark for each character that a terminal would not show."""
    return "".join(_TAB if c == "\t" else c if c.isprintable() or combining(c) else _HIDDEN for c in text)


def _width(text: str) -> int:
    """The columns that shown text takes."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def shown_token(token: str, most: int = 40) -> str:
    """A token as a message names it."""
    if token == "":
        return "the end of the text"
    if token == "\n":
        return "the end of the line"
    shown = _shown(token[:most]) + ("…" if len(token) > most else "")
    return f"'{shown}'" if token.isprintable() else f"'{shown}' (U+{ord(token[0]):04X})"
