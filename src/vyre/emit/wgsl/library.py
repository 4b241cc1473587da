"""Library functions of WGSL kernels, from ``library.wgsl``: a kernel contains those that it calls, transitively."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Final

_FUNCTION: Final = re.compile(r"^fn (\w+)\(.*?^}\n", re.MULTILINE | re.DOTALL)
_WORD: Final = re.compile(r"\w+")


@cache
def functions() -> dict[str, str]:
    """Return the text of every library function, by name."""
    text = files(__package__).joinpath("library.wgsl").read_text(encoding="utf-8")
    return {match[1]: match[0] for match in _FUNCTION.finditer(text)}


@cache
def _uses(name: str) -> tuple[str, ...]:
    known = functions()
    return tuple(dict.fromkeys(word for word in _WORD.findall(known[name]) if word in known and word != name))


def needed(names: Iterable[str]) -> list[str]:
    """Return the texts of these functions and of all that they call, in the library's order."""
    wanted: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted.add(name)
            pending += _uses(name)
    return [text for name, text in functions().items() if name in wanted]
