"""What may a generated program use? A profile is data, so a backend that lacks something says so and gets fewer."""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import ALL_TYPES, ATOMIC_TYPES, DType


class Profile(msgspec.Struct, frozen=True):
    """Types, operators and features to draw from, and how often each kind of node is drawn.

    bool and u32 are always drawn from: conditions and indices need them. ``weights`` overrides the default weight of
    a statement or an expression by its name in ``STATEMENT_WEIGHTS`` and ``EXPRESSION_WEIGHTS``; 0 switches it off.
    """

    dtypes: tuple[DType, ...] = ALL_TYPES
    operators: tuple[str, ...] = tuple(OPERATORS)
    atomic_types: tuple[DType, ...] = ATOMIC_TYPES
    fma: bool = True
    workgroup_barriers: bool = True
    grid_syncs: bool = True
    workgroup_memory: bool = True
    atomics: bool = True
    subgroups: bool = True
    transfers: bool = True
    indirect: bool = True
    traps: bool = True
    collectives: bool = True
    extensions: bool = True
    early_returns: bool = True
    multiple_axes: bool = True
    zero_lengths: bool = True
    max_invocations: int = 48
    max_nesting: int = 6
    max_repetition: int = 24
    expression_depth: int = 4
    weights: tuple[tuple[str, int], ...] = ()

    @property
    def usable_types(self) -> tuple[DType, ...]:
        return tuple(d for d in ALL_TYPES if d in self.dtypes or d in (DType.BOOL, DType.U32))

    def weight(self, name: str) -> int:
        """How often a kind of node is drawn, relative to the others that are possible."""
        return dict(self.weights).get(name, STATEMENT_WEIGHTS.get(name, EXPRESSION_WEIGHTS.get(name, 0)))


STATEMENT_WEIGHTS: Final = {
    "let": 14,
    "assign": 12,
    "store": 16,
    "change": 5,
    "if": 9,
    "loop": 6,
    "while": 4,
    "fixpoint": 2,
    "break": 3,
    "continue": 3,
    "return": 2,
    "barrier": 4,
    "grid_sync": 4,
    "block": 2,
    "region": 2,
    "transfer": 4,
    "copy": 3,
    "trap": 2,
    "collective": 3,
    "opaque": 1,
}

EXPRESSION_WEIGHTS: Final = {
    "leaf": 10,
    "binary": 30,
    "unary": 12,
    "select": 4,
    "cast": 7,
    "bitcast": 3,
    "fma": 3,
    "atomic": 3,
    "subgroup": 3,
    "call": 2,
    "tower": 0,
}

EVERYTHING: Final = Profile()
