"""What are declarations called? As in the source where that is free. Of two with one name, neither sees the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, count
from typing import Final

from vyre.ir.limits import MAX_NAME_LENGTH

# How long a name may be for a number to go behind it.
LONGEST_HINT: Final = MAX_NAME_LENGTH - 12
_FEW: Final = 4
# What else a value without a name of its own is called.
_LETTERS: Final = {"t": ("u", "v", "w")}


class Names:
    """The names that are given out, and in which scopes. ``source`` are those of the source, in parts."""

    def __init__(self, taken: Iterable[str], source: Sequence[Sequence[str]], last: list[int]) -> None:
        self.source = source
        self.unlikes: dict[str, str] = {}
        self.asked = 0
        self.last = last
        # The scope of a name's one declaration, or in order those of more; a name that is taken has the program's.
        self.scopes: dict[str, int | list[int]] = dict.fromkeys(taken, 0)
        self.numbers: dict[str, int] = {}

    def unlike(self, hint: str) -> str:
        """A name that the source does not have."""
        found = self.unlikes.get(hint)
        if found is None:
            names = chain((hint, *_LETTERS.get(hint, ())), (hint + "_" * more for more in count(1)))
            found = self.unlikes[hint] = next(name for name in names if not self._is_in_source(name))
        return found

    def _is_in_source(self, name: str) -> bool:
        # Few names are found more quickly than all are put into a set.
        self.asked += 1
        return any(name in part for part in self.source) if self.asked <= _FEW else name in self.all_of_source

    @cached_property
    def all_of_source(self) -> set[str]:
        return set().union(*self.source)

    def make(self, hint: str, scope: int) -> str:
        name = hint = hint[:LONGEST_HINT]
        while not self._is_free(name, scope):
            self.numbers[hint] = number = self.numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        return name

    def _is_free(self, name: str, scope: int) -> bool:
        held = self.scopes.setdefault(name, [])
        scopes = [held] if isinstance(held, int) else held
        place = bisect_left(scopes, scope)
        if place < len(scopes) and scopes[place] <= self.last[scope]:
            return False
        # Scopes that share a name lie apart, so only the one before can be around this one.
        if place and self.last[scopes[place - 1]] >= scope:
            return False
        scopes.insert(place, scope)
        self.scopes[name] = scopes
        return True
