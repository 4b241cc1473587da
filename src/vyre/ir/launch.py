"""How large is a launch? One function decides the grid and the size of every buffer, for every backend.

The grid is what the caller says (workgroups, or elements), else it is inferred from the buffers: the largest
element count over the outputs, or over all host buffers when invocations work together (workgroup memory,
atomics, subgroups) or there is no output. An output sized at run time gets that many elements (or, where nothing
else has a size, one for each invocation of an explicit grid).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from vyre.errors import BadInputs
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.limits import MAX_AXIS_INVOCATIONS, MAX_ELEMENTS
from vyre.ir.program import Program, has_shared_memory

MAX_GRID_AXIS = (1 << 32) - 1


class Launch(msgspec.Struct, frozen=True):
    """A decided launch: workgroups along each axis, inferred elements, and each buffer's element count."""

    grid: tuple[int, int, int]
    elements: int
    counts: Mapping[str, int]
    workgroup_size: tuple[int, int, int]

    @property
    def invocations(self) -> int:
        return math.prod(self.grid) * math.prod(self.workgroup_size)


def decide_launch(
    program: Program,
    input_counts: Mapping[str, int],
    *,
    grid: tuple[int, ...] | None = None,
    elements: int | None = None,
) -> Launch:
    """Decides the launch from the element counts of the inputs and what the caller overrides."""
    known = {decl.name: count for decl in program.buffers if (count := _known(decl, input_counts)) is not None}
    if elements is not None and not 0 <= elements <= MAX_ELEMENTS:
        raise BadInputs(f"elements is {elements:,}.", f"give a count from 0 to {MAX_ELEMENTS:,}.")
    if elements is None:
        elements = _inferred_elements(program, known)
    axes = _three_axes(program, grid, elements)
    for count, size in zip(axes, program.workgroup_size, strict=True):
        if count * size > MAX_AXIS_INVOCATIONS:
            raise BadInputs(
                f"the grid {axes} has {count * size:,} invocations along an axis, and ids are u32.",
                "launch fewer workgroups, along more axes.",
            )
    if elements is None:
        elements = math.prod(axes) * math.prod(program.workgroup_size)
    counts = {decl.name: known.get(decl.name, elements) for decl in program.buffers}
    for name, count in counts.items():
        if count > MAX_ELEMENTS:
            raise BadInputs(
                f"buffer '{name}' would have {count:,} elements.",
                f"launch a smaller grid, or size the buffer: {MAX_ELEMENTS:,} elements at most.",
                buffer=name,
            )
    return Launch(axes, elements, counts, program.workgroup_size)


def _known(decl: BufferDecl, input_counts: Mapping[str, int]) -> int | None:
    if decl.role.takes_input:
        return input_counts[decl.name]
    return decl.count or None


def works_together(program: Program) -> bool:
    """Whether invocations do, so that all host buffers have a say in how many there are, if the caller has none."""
    stats = program.stats()
    return has_shared_memory(program) or stats.has_atomics or stats.has_subgroup_ops


def _inferred_elements(program: Program, known: Mapping[str, int]) -> int | None:
    """The largest count over the buffers that decide; None where no buffer that does has a size of its own."""
    host = [decl for decl in program.buffers if decl.role is not Role.SHARED and decl.name in known]
    outputs = [decl for decl in host if decl.role.gives_output]
    basis = host if works_together(program) or not outputs else outputs
    return max((known[decl.name] for decl in basis), default=None)


def _three_axes(program: Program, grid: tuple[int, ...] | None, elements: int | None) -> tuple[int, int, int]:
    if grid is not None:
        if not 1 <= len(grid) <= 3 or any(not 0 <= axis <= MAX_GRID_AXIS for axis in grid):
            raise BadInputs(
                f"the grid {grid} is not one to three workgroup counts.",
                "give whole numbers from 0, as in (64,) or (8, 8, 1).",
            )
        x, y, z = (*grid, 1, 1)[:3]
        return x, y, z
    width, height, depth = program.workgroup_size
    if height != 1 or depth != 1:
        raise BadInputs(
            f"the workgroup of '{program.name}' is {width}x{height}x{depth}: the grid of a workgroup with more than "
            "one axis cannot be inferred from element counts.",
            "give the grid explicitly, in workgroups (grid=..., --grid X,Y,Z).",
        )
    return -(-(elements or 0) // width), 1, 1
