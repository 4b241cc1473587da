"""What crosses each cut, and where is it kept meanwhile?

Values of single invocations lie in rows, one for each invocation, as columns of 32-bit words. Values on which a
workgroup or the grid agrees lie in cells, one for all of them, so that the next segment can still see that they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.liveness import ASSIGNED, MEMORY
from vyre.analyze.uniformity import DIVERGENT
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.lower.rematerialise import recomputable
from vyre.lower.tree import Cut, CutTree
from vyre.lower.words import words_of
from vyre.semantics.types import DType


class Carried(msgspec.Struct, frozen=True):
    """A variable that crosses a cut: who agrees on it, and the columns or cells of its words."""

    name: str
    dtype: DType
    level: int
    words: tuple[int, ...]

    @property
    def in_row(self) -> bool:
        return self.level >= DIVERGENT


class Crossing(msgspec.Struct, frozen=True):
    """Everything that crosses one cut.

    ``given_back`` are the variables that have a value behind it, ``blank`` those that are only assigned there. The
    cells of the grid come first, then for each value of a workgroup one cell for each workgroup.
    """

    carried: tuple[Carried, ...]
    given_back: frozenset[str]
    blank: frozenset[str]
    memory: tuple[str, ...]
    grid_cells: int
    group_cells: int


class Facts(msgspec.Struct, frozen=True):
    """What is known of a program about to be cut; ``live`` and ``levels`` are by the canonical numbers of the cuts.

    ``memory`` is the workgroup memory that does not last from one segment to the next.
    """

    memory: frozenset[str]
    types: Mapping[str, DType]
    live: Mapping[int, frozenset[str]]
    levels: Mapping[int, Mapping[str, int]]


class Crossings:
    """What crosses the cuts of a program: ``at`` each of them, in how many ``columns``.

    ``recomputed`` are the variables that are computed again rather than carried. The first columns are reserved.
    """

    def __init__(self, program: Program, tree: CutTree, facts: Facts, reserved_columns: int) -> None:
        self.tree = tree
        self.facts = facts
        self.columns = reserved_columns
        self.recomputed = recomputable(program, _passed_over(tree))
        self.declared_at = _declared_at(program)
        lost = facts.memory & written_buffers(program)
        self.memory = [decl.name for decl in program.shared_buffers() if decl.name in lost]
        saved = [self._saved(cut) for cut in tree.cuts]
        self.column_of = self._assign_columns(saved)
        self.at = [self._crossing(cut, names) for cut, names in zip(tree.cuts, saved, strict=True)]

    def _saved(self, cut: Cut) -> list[str]:
        live, types = self.facts.live[cut.number], self.facts.types
        names = [name for name in live if name in types and name not in self.recomputed]
        return sorted(names, key=self.declared_at.__getitem__)

    def _crossing(self, cut: Cut, saved: Sequence[str]) -> Crossing:
        live, types, levels = self.facts.live[cut.number], self.facts.types, self.facts.levels[cut.number]
        carried: list[Carried] = []
        cells = [0, 0]
        for name in saved:
            dtype, level = types[name], levels[name]
            if level >= DIVERGENT:
                carried.append(Carried(name, dtype, level, self.column_of[name]))
            else:
                first, cells[level] = cells[level], cells[level] + words_of(dtype)
                carried.append(Carried(name, dtype, level, tuple(range(first, cells[level]))))
        given_back = self._with_needs(name for name in live if name in types)
        blank = frozenset(fact[1:] for fact in live if fact.startswith(ASSIGNED)) - given_back
        memory = tuple(name for name in self.memory if MEMORY + name in live)
        return Crossing(tuple(carried), given_back, blank, memory, *cells)

    def _assign_columns(self, saved: Sequence[Sequence[str]]) -> dict[str, tuple[int, ...]]:
        """Columns for the variables of single invocations; those that never cross the same cut may share one."""
        at_cuts: dict[str, list[int]] = {}
        for index, (cut, names) in enumerate(zip(self.tree.cuts, saved, strict=True)):
            for name in names:
                if self.facts.levels[cut.number][name] >= DIVERGENT:
                    at_cuts.setdefault(name, []).append(index)
        # The columns in use, as bits: of each cut, and for each variable of all the cuts that it crosses.
        reserved = (1 << self.columns) - 1
        taken = [reserved] * len(saved)
        columns: dict[str, tuple[int, ...]] = {}
        for name, indices in at_cuts.items():
            used = 0
            for index in indices:
                used |= taken[index]
            chosen: list[int] = []
            for _ in range(words_of(self.facts.types[name])):
                lowest_free = ~used & (used + 1)
                used |= lowest_free
                chosen.append(lowest_free.bit_length() - 1)
            for index in indices:
                for column in chosen:
                    taken[index] |= 1 << column
            columns[name] = tuple(chosen)
            self.columns = max(self.columns, *(column + 1 for column in chosen))
        return columns

    def _with_needs(self, names: Iterable[str]) -> frozenset[str]:
        """The variables with those that computing them again takes."""
        found: set[str] = set()
        pending = list(names)
        while pending:
            name = pending.pop()
            if name not in found:
                found.add(name)
                if name in self.recomputed:
                    pending += self.recomputed[name][1]
        return frozenset(found)


def _declared_at(program: Program) -> dict[str, int]:
    """The canonical number of the statement that declares each variable."""
    found: dict[str, int] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        match statement:
            case n.Let(name) | n.Loop(name):
                found[name] = number
    return found


def _passed_over(tree: CutTree) -> set[str]:
    """The variables whose declaration an invocation that trapped passes over on its way to the resume."""
    found: set[str] = set()
    for trap in tree.traps:
        if trap.resume is not None:
            between = trap.resume.owner.items[trap.resume.owner.index_of(trap) : trap.resume.index]
            found.update(item.name for item in between if isinstance(item, n.Let))
    return found
