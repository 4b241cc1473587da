"""Which version of a buffer does a load see, and will there be another?

The grid barriers that every program run passes exactly once (those in no branch and no loop) cut its time into
stretches. A buffer has another version behind each stretch in which somebody may write it; while somebody may, it has
none, because invocations are not in step within a stretch. Loads that see one version of a buffer, at one index, give
one value, whoever makes them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator

from vyre.analyze.effects import writes_of_statements
from vyre.analyze.outline import is_grid_point
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.program import Program


class MemoryVersions:
    """The versions of a program's buffers, by the canonical numbers of its statements.

    Workgroup memory that is written has no version: its barriers are not those of the grid.
    """

    def __init__(self, program: Program) -> None:
        self._stretches = list(_stretches(program.entry))
        self._shared = {decl.name for decl in program.buffers if decl.role is Role.SHARED}
        self._written = _written_stretches(program, self._stretches)

    def version(self, buffer: str, statement: int) -> int | None:
        """The version that a load in a statement sees; None where somebody may write the buffer meanwhile."""
        written, here = self._written.get(buffer, []), self._stretches[statement]
        before = bisect_left(written, here)
        unsettled = before < len(written) and written[before] == here
        return None if unsettled or (written and buffer in self._shared) else before

    def is_final(self, buffer: str, statement: int) -> bool:
        """Whether a load sees a version that nobody will change any more."""
        return self.version(buffer, statement) == len(self._written.get(buffer, []))


def _stretches(entry: n.Body) -> Iterator[int]:
    """For each statement, in canonical order, the number of grid barriers that everybody has passed before it."""
    passed = 0
    pending: list[tuple[Iterator[n.Stmt], bool]] = [(iter(entry), True)]
    while pending:
        body, once = pending[-1]
        for statement in body:
            yield passed
            if once and is_grid_point(statement):
                passed += 1
            inner = walk.bodies(statement)
            if inner:
                plain = once and isinstance(statement, (n.Block, n.Region))
                pending.extend((iter(part), plain) for part in reversed(inner))
                break
        else:
            pending.pop()


def _written_stretches(program: Program, stretches: Iterable[int]) -> dict[str, list[int]]:
    """For each buffer that is written, the stretches in which that may happen, in order."""
    found: defaultdict[str, dict[int, None]] = defaultdict(dict)
    destinations: defaultdict[str, set[str]] = defaultdict(set)
    for statement in walk.statements(program.entry):
        if isinstance(statement, (n.AsyncLoad, n.AsyncStore)):
            destinations[statement.tag].add(statement.destination)
    for (statement, writes), stretch in zip(writes_of_statements(program), stretches, strict=True):
        match statement:
            case n.AsyncWait(tag):
                writes |= destinations[tag]
            case n.Resume():
                # The host's handler is given every buffer to change.
                writes |= set(program.buffers_by_name)
        for buffer in writes:
            found[buffer][stretch] = None
    return {buffer: list(stretches_of) for buffer, stretches_of in found.items()}
