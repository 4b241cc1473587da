"""The solution of an IFDS problem: which facts may hold where, and why."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from vyre.ir.binding import Array
from vyre.lib.dataflow.contexts import Contexts
from vyre.lib.dataflow.problem import IfdsProblem
from vyre.lib.workspace import require_count

if TYPE_CHECKING:
    from vyre.lib.dataflow.witness import Step, WitnessSearch

MAX_STEPS: Final = 1_000_000


class IfdsSolution(msgspec.Struct, frozen=True, eq=False, dict=True):
    """All path edges of a problem, and the ranks of facts at exits; ``contexts`` says where each is."""

    contexts: Contexts
    bits: Array
    ranks: Array

    @property
    def problem(self) -> IfdsProblem:
        return self.contexts.problem

    @cached_property
    def reached(self) -> Array:
        """Whether each exploded node is reached by a realizable path, as a bool array."""
        return self.contexts.reached(self.bits)

    @cached_property
    def num_path_edges(self) -> int:
        """The number of path edges: an exploded node counts once for each context that it is derived in."""
        return int(np.bitwise_count(self.bits).sum())

    def facts(self, node: int) -> Array:
        """Return the facts that may hold at a node, sorted, as u32."""
        start = self.problem.exploded(node, 0)
        stop = int(self.problem.first_exploded[node + 1])
        return np.flatnonzero(self.reached[start:stop]).astype(np.uint32)

    def holds(self, node: int, fact: int) -> bool:
        """Return whether a fact may hold at a node."""
        return bool(self.reached[self.problem.exploded(node, fact)])

    def witness(self, node: int, fact: int, *, max_steps: int = MAX_STEPS) -> list[Step]:
        """Return a realizable path from a seed to a fact at a node: calls and returns on it match.

        BadInputs if the fact does not hold there, or if the path has more than ``max_steps`` steps: where every path
        goes through calls of calls, even a short program can have a very long one.
        """
        return self._witness_search.find(node, fact, require_count(max_steps, "max_steps"))

    @cached_property
    def _witness_search(self) -> WitnessSearch:
        from vyre.lib.dataflow.witness import WitnessSearch

        return WitnessSearch(self)
