"""Where are the long runs of declarations and stores that the reader's program can read?"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.nodes import Let, Store
from vyre.ir.program import Program

# From where to where in a list, and whether that is a run.
Parts = list[tuple[int, int, bool]]
# What is computed where it stands, since others take part.
PINNED: Final = (n.Atomic, n.SubgroupBallot, n.SubgroupShuffle, n.SubgroupReduce)


def long_runs(
    program: Program, assigned: Collection[str], sticky: Collection[int], least: int, most: int
) -> dict[int, Parts]:
    """The longest runs, so ``most`` of them, as parts of the lists (by identity) in which they are.

    Variables that are ``assigned``, or ``sticky`` (by the identity of their declaration), are no values.
    """
    stats = program.stats()
    if stats.statements < least:
        return {}
    has_values_alone = stats.kinds.get("Let", 0) + stats.kinds.get("Store", 0) == stats.statements
    is_run_of_itself = has_values_alone and not stats.has(*PINNED)

    def others(body: n.Body) -> list[int]:
        """The places of what is in no run."""
        if is_run_of_itself:
            return []
        return [
            place
            for place, one in enumerate(body)
            if (type(one) is not Let or one.name in assigned or id(one) in sticky or type(one.value) in PINNED)
            and type(one) is not Store
        ]

    lists = [program.entry] if is_run_of_itself else _lists(program.entry)
    runs = {id(body): _between(others(body), len(body), least) for body in lists if len(body) >= least}
    lengths = sorted((behind - first for found in runs.values() for first, behind in found), reverse=True)
    if len(lengths) > most:
        least = lengths[most - 1]
    return {id(body): [*_parts(runs[id(body)], len(body), least)] for body in lists if runs.get(id(body))}


def _lists(entry: n.Body) -> list[n.Body]:
    return [entry, *(body for statement in walk.statements(entry) for body in walk.bodies(statement))]


def _between(others: list[int], end: int, least: int) -> list[tuple[int, int]]:
    begins = [0, *(place + 1 for place in others)]
    return [(first, behind) for first, behind in zip(begins, (*others, end), strict=True) if behind - first >= least]


def _parts(runs: list[tuple[int, int]], end: int, least: int) -> Iterator[tuple[int, int, bool]]:
    done = 0
    for first, behind in runs:
        if behind - first < least:
            continue
        if done < first:
            yield done, first, False
        yield first, behind, True
        done = behind
    if done < end:
        yield done, end, False
