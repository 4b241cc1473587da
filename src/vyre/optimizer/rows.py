"""Collection of rows and scopes while a program is encoded, and their conversion to an arena."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np

from vyre.ir.binding import Array
from vyre.optimizer.arena import NONE, Arena, Arm, order_by_level

# The default of columns in which few rows have a word of their own.
_DEFAULTS: Final = {"a2": NONE, "scope": 0, "d0": NONE, "d1": NONE}


class Rows:
    """The rows so far, by column; sparse columns by row number. ``levels`` are -1 for rows of statements."""

    def __init__(self) -> None:
        self.heads: list[int] = []
        self.first: list[int] = []
        self.second: list[int] = []
        self.levels: list[int] = []
        self.rare: dict[str, dict[int, int]] = {name: {} for name in _DEFAULTS}
        # First rows and the barrier depth of the rows from there on.
        self._barrier_depths: list[tuple[int, int]] = [(0, 0)]

    def add_literal(self, word: int, low: int, high: int) -> int:
        """Add a literal by its two words; return its row."""
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
        """Add a row; return its number."""
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

    def set_barrier_depth(self, depth: int) -> None:
        """Set the barrier depth of the rows that follow."""
        if self._barrier_depths[-1][1] != depth:
            self._barrier_depths.append((len(self.heads), depth))

    def _barrier_depth_by_row(self, size: int) -> Array:
        """The barrier depth of each row."""
        starts, depths = zip(*self._barrier_depths, strict=True)
        return np.repeat(np.array(depths, np.uint32), np.diff([*starts, size]))

    def arena(self, scopes: Scopes) -> Arena:
        """Return all rows and scopes as an arena."""
        levels = words(self.levels, "i")
        made = {"head": words(self.heads), "a0": words(self.first), "a1": words(self.second)}
        made |= {name: _scattered(len(levels), default, self.rare[name]) for name, default in _DEFAULTS.items()}
        by_level = order_by_level(levels.view(np.int32))
        barrier_depth = self._barrier_depth_by_row(len(levels))
        return Arena(len(levels), made, *by_level, barrier_depth, *map(words, scopes.columns()))


class Scopes:
    """The scopes so far, in preorder."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.lasts: list[int] = []
        self.loops: list[int] = []
        self.barrier_depths: list[int] = []
        self.depths: list[int] = []
        self.controls: list[int] = []
        self.arms: list[int] = []

    def open(self, outer: int, arm: Arm, control: int, *, in_loop: bool, has_barrier: bool) -> int:
        """Open a scope inside ``outer``, -1 for the whole program; return its number."""
        number = len(self.parents)
        self.parents.append(max(outer, 0))
        self.lasts.append(number)
        self.loops.append((self.loops[outer] if outer >= 0 else 0) + in_loop)
        self.barrier_depths.append((self.barrier_depths[outer] if outer >= 0 else 0) + has_barrier)
        self.depths.append(self.depths[outer] + 1 if outer >= 0 else 0)
        self.controls.append(control)
        self.arms.append(arm)
        return number

    def close(self, scope: int) -> None:
        self.lasts[scope] = len(self.parents) - 1

    def columns(self) -> tuple[Sequence[int], ...]:
        return self.parents, self.lasts, self.loops, self.barrier_depths, self.controls, self.arms


def words(column: Sequence[int], code: Literal["I", "i"] = "I") -> Array:
    """Return numbers as a column of u32."""
    return np.frombuffer(column if isinstance(column, array) else array(code, column), np.uint32)


def _scattered(size: int, default: int, rare: Mapping[int, int]) -> Array:
    column = np.full(size, default, np.uint32)
    column[words(list(rare))] = words(list(rare.values()))
    return column
