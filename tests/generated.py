"""The generated programs of a test run: which case a seed gives, and what is told about one that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre.conform import Case, reproducer, shrink
from vyre.conform.mixture import Made, made
from vyre.errors import VyreError

__all__ = ["Made", "made", "told"]

TRIES: Final = 600


def told(case: Case, what: str, still_fails: Callable[[Case], bool]) -> str:
    """A failure for people: what is wrong, and the smallest program found that shows it."""
    try:
        return f"{what}\n\n{reproducer(shrink(case, still_fails, TRIES))}"
    except VyreError as error:
        # The shrinker asks for a case that the reference runs to its end, always with the same result.
        return f"{what}\nnot reduced: {error}\n\n{case.program}"
