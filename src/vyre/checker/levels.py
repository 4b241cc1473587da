"""Who agrees on a variable at a point of a program? The levels that the checker's walk finds, for those who lower."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from vyre.analyze.outline import outline
from vyre.checker.walker import Walker
from vyre.ir import nodes as n
from vyre.ir.program import Program


def levels_at_barriers(program: Program, wanted: Mapping[int, Iterable[str]]) -> dict[int, dict[str, int]]:
    """For barriers and grid points of a legal program, by canonical number: the level of these variables behind each.

    The levels are those of ``vyre.analyze.uniformity``.
    """
    walker = Walker(program, outline(program), lambda _: None)
    uniformity = walker.uniformity
    if uniformity is None:
        return {}
    values = uniformity.values
    numbers: dict[int, dict[str, int]] = {}

    def noting(handle: Callable[[Any], bool | None]) -> Callable[[Any], bool | None]:
        def handle_and_note(statement: n.Stmt) -> bool | None:
            opened = handle(statement)
            if walker.number in wanted:
                numbers[walker.number] = {name: values[name] for name in wanted[walker.number]}
            return opened

        return handle_and_note

    for cls in (n.Barrier, *n.GRID_POINTS):
        walker.handlers[cls] = noting(walker.handlers[cls])
    walker.run()
    uniformity.settle()
    levels = uniformity.levels
    return {at: {name: levels[number] for name, number in found.items()} for at, found in numbers.items()}
