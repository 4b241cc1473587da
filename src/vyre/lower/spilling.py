"""Spilling: the values that cross each cut, and their places in the state between segments.

Varying values are stored in rows, one row per invocation, in columns of 32-bit words. Values that are uniform in a
workgroup or the grid are stored in cells, one per workgroup or grid, so that the next segment can prove them uniform.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import msgspec

from vyre.analyze.effects import written_buffers
from vyre.analyze.liveness import ASSIGNED, MEMORY
from vyre.analyze.uniformity import DIVERGENT
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.lower.cut_tree import Cut, CutTree, Scope
from vyre.lower.fresh_names import FreshNames
from vyre.lower.rematerialise import recomputable, with_needs
from vyre.lower.transfers import Capture
from vyre.lower.word_packing import word_count
from vyre.semantics.types import DType


class SpilledVariable(msgspec.Struct, frozen=True):
    """A variable that is spilled at a cut: its uniformity level, and the columns or cells of its words."""

    name: str
    dtype: DType
    level: int
    words: tuple[int, ...]

    @property
    def in_row(self) -> bool:
        return self.level >= DIVERGENT


class Spill(msgspec.Struct, frozen=True):
    """Everything that crosses one cut.

    ``restored`` are the variables whose values are needed after the cut, ``declared_only`` those that are only assigned
    there and need a declaration. ``memory`` names the workgroup memory that is saved. Grid-uniform cells come first,
    then one cell per workgroup for each word of a workgroup-uniform value.
    """

    carried: tuple[SpilledVariable, ...]
    restored: frozenset[str]
    declared_only: frozenset[str]
    memory: tuple[str, ...]
    grid_cells: int
    group_cells: int


class AnalyzedProgram(msgspec.Struct, frozen=True, eq=False):
    """A program about to be cut, in normal form, and what is known of it.

    ``live`` and ``levels`` are keyed by the cuts' canonical numbers. ``row`` names the variable with the number of an
    invocation; ``captures`` are the buffers of pending transfers.
    """

    program: Program
    scope: Scope
    tree: CutTree
    names: FreshNames
    row: str
    captures: tuple[Capture, ...]
    types: Mapping[str, DType]
    live: Mapping[int, frozenset[str]]
    levels: Mapping[int, Mapping[str, int]]


class Spills:
    """The spills of a program: ``at`` each cut, in rows of ``columns`` words.

    ``recomputed`` are the variables that are rematerialised instead. The first columns are reserved for the status of
    an invocation.
    """

    def __init__(self, given: AnalyzedProgram, reserved_columns: int) -> None:
        program, tree = given.program, given.tree
        self.tree = tree
        self.types, self.live, self.levels = given.types, given.live, given.levels
        self.columns = reserved_columns
        uniform = {name for levels in self.levels.values() for name in levels}
        uniform -= {name for levels in self.levels.values() for name, level in levels.items() if level >= DIVERGENT}
        live = [self.live[cut.number] & self.types.keys() for cut in tree.cuts]
        # Workgroup memory persists between the segments of a workgroup, and its slots are cheap to load.
        is_launched = given.scope is Scope.GRID
        self.recomputed = recomputable(program, _skipped_by_traps(tree), uniform, live, reloads=is_launched)
        self._needs = {name: value.needs for name, value in self.recomputed.items()}
        self.declared_at = _declared_at(program)
        lost = written_buffers(program) if is_launched else frozenset()
        self.memory = [decl.name for decl in program.shared_buffers() if decl.name in lost]
        saved = [self._saved(cut) for cut in tree.cuts]
        self.column_of = self._assign_columns(saved)
        self.at = [self._spill_at(cut, names) for cut, names in zip(tree.cuts, saved, strict=True)]

    def after(self, cut: Cut) -> Spill:
        return self.at[cut.order - 1]

    def carried(self, cut: Cut, name: str) -> SpilledVariable:
        """Return the place of a variable that is spilled at a cut."""
        return next(one for one in self.after(cut).carried if one.name == name)

    def _saved(self, cut: Cut) -> list[str]:
        names = [name for name in self._restored_at(cut) if name not in self.recomputed]
        return sorted(names, key=self.declared_at.__getitem__)

    def _restored_at(self, cut: Cut) -> frozenset[str]:
        return with_needs((name for name in self.live[cut.number] if name in self.types), self._needs)

    def _spill_at(self, cut: Cut, saved: Sequence[str]) -> Spill:
        live, types, levels = self.live[cut.number], self.types, self.levels[cut.number]
        carried: list[SpilledVariable] = []
        cells = [0, 0]
        for name in saved:
            dtype, level = types[name], levels[name]
            if level >= DIVERGENT:
                carried.append(SpilledVariable(name, dtype, level, self.column_of[name]))
            else:
                first, cells[level] = cells[level], cells[level] + word_count(dtype)
                carried.append(SpilledVariable(name, dtype, level, tuple(range(first, cells[level]))))
        restored = self._restored_at(cut)
        declared_only = frozenset(fact[1:] for fact in live if fact.startswith(ASSIGNED)) - restored
        memory = tuple(name for name in self.memory if MEMORY + name in live)
        return Spill(tuple(carried), restored, declared_only, memory, *cells)

    def _assign_columns(self, saved: Sequence[Sequence[str]]) -> dict[str, tuple[int, ...]]:
        """Assign columns to varying variables; variables that never cross the same cut may share one."""
        at_cuts: dict[str, list[int]] = {}
        for index, (cut, names) in enumerate(zip(self.tree.cuts, saved, strict=True)):
            for name in names:
                if self.levels[cut.number][name] >= DIVERGENT:
                    at_cuts.setdefault(name, []).append(index)
        columns = disjoint_places(at_cuts, lambda name: word_count(self.types[name]), self.columns)
        self.columns = max((column + 1 for chosen in columns.values() for column in chosen), default=self.columns)
        return columns


def disjoint_places(
    at_cuts: Mapping[str, Sequence[int]], size_of: Callable[[str], int], reserved: int = 0
) -> dict[str, tuple[int, ...]]:
    """Assign places to named values so that no two that cross the same cut overlap; the first are ``reserved``."""
    # The places in use at each cut, as bits.
    taken: defaultdict[int, int] = defaultdict(lambda: (1 << reserved) - 1)
    places: dict[str, tuple[int, ...]] = {}
    for name, cuts in at_cuts.items():
        used = 0
        for cut in cuts:
            used |= taken[cut]
        chosen: list[int] = []
        for _ in range(size_of(name)):
            lowest_free = ~used & (used + 1)
            used |= lowest_free
            chosen.append(lowest_free.bit_length() - 1)
        for cut in cuts:
            for place in chosen:
                taken[cut] |= 1 << place
        places[name] = tuple(chosen)
    return places


def _declared_at(program: Program) -> dict[str, int]:
    """Return the canonical number of the statement that declares each variable."""
    found: dict[str, int] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        match statement:
            case n.Let(name) | n.Loop(name):
                found[name] = number
    return found


def _skipped_by_traps(tree: CutTree) -> set[str]:
    """Return the variables whose declarations a trapped invocation skips on its way to the resume."""
    found: set[str] = set()
    for trap in tree.traps:
        if trap.resume is not None:
            between = trap.resume.owner.items[trap.resume.owner.index_of(trap) : trap.resume.index]
            found.update(item.name for item in between if isinstance(item, n.Let))
    return found
