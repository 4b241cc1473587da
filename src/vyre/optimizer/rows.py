"""How are rows collected? Column by column: what every row has in lists, what few rows have by their numbers."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from vyre.ir.binding import Array
from vyre.optimizer.arena import NONE, Arena, Arm, order_by_level

# What the columns that few rows have a word in hold for all others.
_USUAL: Final = {"a2": NONE, "scope": 0, "d0": NONE, "d1": NONE}


class Rows:
    """The rows so far. ``levels`` are -1 for rows of statements."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.levels: list[int] = []
        self.rare: dict[str, dict[int, int]] = {name: {} for name in _USUAL}

    def add_literal(self, word: int, low: int, high: int) -> int:
        """The number of a new row that is a literal, by its two words."""
        row = len(self.heads)
        self.heads.append(word)
        self.first.append(low)
        self.second.append(high)
        self.levels.append(0)
        return row

    def add(
        self,
        word: int,
        level: int,
        a0: int = NONE,
        a1: int = NONE,
        a2: int = NONE,
        scope: int = 0,
        d0: int = NONE,
        d1: int = NONE,
    ) -> int:
        """A new row's number."""
        row = len(self.heads)
        self.heads.append(word)
        self.first.append(a0)
        self.second.append(a1)
        self.levels.append(level)
        if a2 != NONE:
            self.rare["a2"][row] = a2
        if scope:
            self.rare["scope"][row] = scope
        if d0 != NONE:
            self.rare["d0"][row] = d0
        if d1 != NONE:
            self.rare["d1"][row] = d1
        return row

    def arena(self, scopes: Scopes) -> Arena:
        """All rows and scopes as an arena."""
        columns = {"head": self.heads, "a0": self.first, "a1": self.second}
        made = {name: words(column) for name, column in columns.items()}
        made |= {name: _scattered(len(self.heads), usual, self.rare[name]) for name, usual in _USUAL.items()}
        by_level = order_by_level(np.frombuffer(array("q", self.levels), np.int64), made["head"])
        return Arena(len(self.heads), made, *by_level, *map(words, scopes.columns()))


class Scopes:
    """The scopes so far, in preorder."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.lasts: list[int] = []
        self.loops: list[int] = []
        self.depths: list[int] = []
        self.controls: list[int] = []
        self.arms: list[int] = []

    def open(self, outer: int, arm: Arm, control: int, *, in_loop: bool) -> int:
        """A new scope's number; that of the whole program is in none, -1."""
        number = len(self.parents)
        self.parents.append(max(outer, 0))
        self.lasts.append(number)
        self.loops.append((self.loops[outer] if outer >= 0 else 0) + in_loop)
        self.depths.append(self.depths[outer] + 1 if outer >= 0 else 0)
        self.controls.append(control)
        self.arms.append(arm)
        return number

    def close(self, scope: int) -> None:
        self.lasts[scope] = len(self.parents) - 1

    def columns(self) -> tuple[Sequence[int], ...]:
        return self.parents, self.lasts, self.loops, self.controls, self.arms


def words(column: Sequence[int]) -> Array:
    """A column of u32."""
    return np.frombuffer(array("I", column), np.uint32)


def _scattered(size: int, usual: int, rare: Mapping[int, int]) -> Array:
    column = np.full(size, usual, np.uint32)
    column[words(list(rare))] = words(list(rare.values()))
    return column
