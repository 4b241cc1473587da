"""How does a program look in a browser? Its text, with words coloured by what they are."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from vyre.ir.literals import WORDS
from vyre.ir.names import KEYWORDS
from vyre.semantics.types import DType

if TYPE_CHECKING:
    from vyre.ir.program import Program

# Readable on white and on black, because nobody can know what a notebook is shown on.
STYLE: Final = (
    ".vyre-keyword{color:#a626a4}.vyre-type{color:#0b7fab}.vyre-number{color:#b76b01}"
    ".vyre-comment{color:#7a8490;font-style:italic}.vyre-string{color:#3d8b40}"
)
_MOST_LINES: Final = 2_000
_WORD: Final = re.compile(
    r'(?P<comment>#.*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<word>[A-Za-z_]\w*)|(?P<number>\d[\w.]*)'
)
_TYPES: Final = frozenset(dtype.label for dtype in DType)
_KEYWORDS: Final = KEYWORDS | {"program", "buffer", "block", "region"}


def highlighted(text: str) -> str:
    """The text as HTML; no element reaches over the end of a line."""
    parts: list[str] = []
    end = 0
    for found in _WORD.finditer(text):
        kind = found.lastgroup or ""
        if kind == "word":
            word = found[0]
            kind = "keyword" if word in _KEYWORDS else "type" if word in _TYPES else "number" if word in WORDS else ""
        parts.append(escape(text[end : found.start()]))
        parts.append(f'<span class="vyre-{kind}">{escape(found[0])}</span>' if kind else escape(found[0]))
        end = found.end()
    return "".join((*parts, escape(text[end:])))


def program_html(program: Program) -> str:
    """A program for a notebook."""
    lines = str(program).splitlines()
    more = f"\n… {len(lines) - _MOST_LINES:,} more lines" if len(lines) > _MOST_LINES else ""
    return f"<style>{STYLE}</style><pre>{highlighted(chr(10).join(lines[:_MOST_LINES]))}{more}</pre>"
