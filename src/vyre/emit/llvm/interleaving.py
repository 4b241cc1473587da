"""How many vectors go abreast? Two, where what is done once for a vector is more than what is done in its lanes.

So it is where lanes leave a short loop on their own that does nothing but compute: every pass waits for the one before
it, and asks who is still there. A longer loop keeps a processor busy by itself, and carries along more of those who are
done. And so it is where finding the places in memory, which follow one another, is most of the work.
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.shapes import Layout, Shape, Shapes
from vyre.analyze.types import variable_types
from vyre.emit.llvm.masks import PLAIN
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import MATH_FUNCTIONS

# Processors with vectors of so many lanes have registers for sets of lanes; others make vectors of them, and two of
# those are no longer one set.
_MASK_REGISTER_LANES: Final = 16
_MAX_LOOP_NODES: Final = 48
_MIN_SHARED_NODES: Final = 24


def interleave_factor(program: Program, layout: Layout) -> int:
    """How many vectors of the layout a run of the program, whose variables have unique names, is for."""
    if layout.step != _MASK_REGISTER_LANES or any(dtype.bits > 32 for dtype in variable_types(program)):
        return 1
    shapes = Shapes(program, layout)
    loops = [loop for loop in walk.statements(program.entry) if isinstance(loop, n.Loop | n.While)]
    if any(id(loop) in shapes.divergent for loop in loops):
        return 2 if all(map(_is_short, loops)) else 1
    return 2 if _is_mostly_shared(program, shapes) else 1


def _is_short(loop: n.Loop | n.While) -> bool:
    for count, node in enumerate(walk.expressions((loop,)), 1):
        if count > _MAX_LOOP_NODES or not isinstance(node, PLAIN) or _is_long(node):
            return False
    return not any(isinstance(statement, n.Store | n.CopyBytes) for statement in walk.statements(loop.body))


def _is_long(node: n.Expr) -> bool:
    """Whether an operation on a vector is many instructions."""
    match node:
        case n.Lit(dtype=dtype) | n.Cast(dtype) | n.Bitcast(dtype):
            return dtype.bits > 32
        case n.UnOp(op):
            return op in MATH_FUNCTIONS
    return False


def _is_mostly_shared(program: Program, shapes: Shapes) -> bool:
    """Whether at most a third of the operations are done in every lane, and lanes go to memory side by side."""
    common, apart, is_plain = 0, 0, True

    def count(node: n.Expr, given: list[Shape]) -> Shape:
        nonlocal common, apart, is_plain
        shape = shapes.of_node(node, given)
        if isinstance(node, n.Load):
            is_plain = is_plain and given[0].stride in (0, 1)
        elif not isinstance(node, PLAIN) or _is_long(node):
            is_plain = False
        if not isinstance(node, n.Var | n.Lit):
            common, apart = (common, apart + 1) if shape is Shape.VARYING else (common + 1, apart)
        return shape

    for statement in walk.statements(program.entry):
        found = [walk.fold(root, count) for root in walk.operands(statement)]
        is_plain = is_plain and not isinstance(statement, n.CopyBytes)
        if isinstance(statement, n.Store):
            is_plain = is_plain and found[0].stride in (0, 1)
    return is_plain and common >= max(_MIN_SHARED_NODES, 2 * apart)
