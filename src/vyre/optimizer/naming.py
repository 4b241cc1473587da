"""What are declarations called? As in the source where that is free. Of two with one name, neither sees the other."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from functools import cached_property

from vyre.ir.limits import MAX_NAME_LENGTH


class Names:
    """The names that are given out, and in which scopes. ``source`` are those of the source, in parts."""

    def __init__(self, taken: Iterable[str], source: Iterable[Iterable[str]], last: list[int]) -> None:
        self.source = source
        self.unlikes: dict[str, str] = {}
        self.last = last
        # The scopes of each name's declarations, in order; a name that is taken has the whole program's.
        self.scopes: dict[str, list[int]] = {name: [0] for name in taken}
        self.numbers: dict[str, int] = {}

    def unlike(self, hint: str) -> str:
        """A name that the source does not have."""
        found = self.unlikes.get(hint)
        if found is None:
            found = hint
            while found in self.all_of_source:
                found += "_"
            self.unlikes[hint] = found
        return found

    @cached_property
    def all_of_source(self) -> set[str]:
        return set().union(*self.source)

    def make(self, hint: str, scope: int) -> str:
        if hint not in self.scopes and len(hint) <= MAX_NAME_LENGTH - 12:
            self.scopes[hint] = [scope]
            return hint
        hint = hint[: MAX_NAME_LENGTH - 12]
        name = hint
        while not self._is_free(name, scope):
            self.numbers[hint] = number = self.numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        return name

    def _is_free(self, name: str, scope: int) -> bool:
        scopes = self.scopes.setdefault(name, [])
        place = bisect_left(scopes, scope)
        if place < len(scopes) and scopes[place] <= self.last[scope]:
            return False
        # Scopes that share a name lie apart, so only the one before can be around this one.
        if place and self.last[scopes[place - 1]] >= scope:
            return False
        scopes.insert(place, scope)
        return True
