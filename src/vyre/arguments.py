"""Is an argument of the kind that a call takes? If not, that is told as everything else is: by name, with a fix.

Where every nanosecond counts, what fails is tried first, and only a failure asks whether it was for one of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, SupportsIndex, TypeVar

from vyre.errors import BadInputs

T = TypeVar("T")


def require(value: object, kind: Any, what: str, fix: str) -> None:
    """Refuses what is of another kind: a class, or one of some."""
    if not isinstance(value, kind):
        raise BadInputs(f"{what} is a {type(value).__name__}.", fix)


def listed(items: Iterable[T], what: str) -> list[T]:
    """The items, if they are several, or could be."""
    try:
        each = iter(items)
    except TypeError:
        raise BadInputs(f"{what} is one {type(items).__name__}.", "give a list.") from None
    return list(each)


def require_whole(value: object, what: str) -> int:
    """A whole number of any type that has them."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        raise BadInputs(f"{what} is a {type(value).__name__}, not a whole number.", "give a whole number.")
    return index(value)
