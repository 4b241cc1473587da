"""How is a number of things written for people?"""

from __future__ import annotations


def counted(number: int, what: str, several: str | None = None) -> str:
    """A number and what is counted, which in the plural takes an s, unless it is said what it is then."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"
