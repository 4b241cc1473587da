"""Which names may a program use?

A name is an ASCII identifier that is not reserved. Function names are free, because a call has its ``(``; so are
``gid``, ``lid``, ``wg`` and ``num_wg``, because an id has its axis.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from vyre.ir.limits import MAX_NAME_LENGTH
from vyre.ir.literals import WORDS
from vyre.semantics.types import DType

KEYWORDS: Final = frozenset(
    ("let", "if", "else", "for", "in", "while", "break", "continue", "return", "barrier", "grid_sync")
)
RESERVED: Final = KEYWORDS | WORDS.keys() | {dtype.label for dtype in DType}

WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_identifier(name: str) -> bool:
    """Whether a variable, a buffer or a program may have this name."""
    return len(name) <= MAX_NAME_LENGTH and name not in RESERVED and WORD.fullmatch(name) is not None


def nearest_word(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that somebody who wrote ``word`` most likely meant."""
    found = get_close_matches(word[:MAX_NAME_LENGTH], list(candidates), n=1, cutoff=0.6)
    return found[0] if found else None
