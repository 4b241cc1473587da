"""Interleaving: selection of the kernels that process two vectors at a time.

Two vectors pay off where the work per vector exceeds the work per lane. One case is a short divergent loop that only
computes: every iteration depends on the mask of the iteration before, and a second vector fills the latency. A longer
loop keeps a processor busy by itself, and would carry along more inactive lanes. The other case is code in which most
of the work is the uniform or strided addressing of consecutive elements.
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

# Processors with vectors of this many lanes have mask registers. Others represent masks as vectors, where the mask of
# two vectors is no longer one register.
_MASK_REGISTER_LANES: Final = 16
_MAX_LOOP_NODES: Final = 48
_MIN_SHARED_NODES: Final = 24


def interleave_factor(program: Program, layout: Layout) -> int:
    """Return the number of vectors that a run processes: 1 or 2. The program's variables have unique names."""
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
    """Whether an operation on a vector takes many instructions."""
    match node:
        case n.Lit(dtype=dtype) | n.Cast(dtype) | n.Bitcast(dtype):
            return dtype.bits > 32
        case n.UnOp(op):
            return op in MATH_FUNCTIONS
    return False


def _is_mostly_shared(program: Program, shapes: Shapes) -> bool:
    """Whether at most a third of the operations are varying, and memory accesses are uniform or consecutive."""
    shared, varying, is_plain = 0, 0, True

    def count(node: n.Expr, given: list[Shape]) -> Shape:
        nonlocal shared, varying, is_plain
        shape = shapes.of_node(node, given)
        if isinstance(node, n.Load):
            is_plain = is_plain and given[0].stride in (0, 1)
        elif not isinstance(node, PLAIN) or _is_long(node):
            is_plain = False
        if not isinstance(node, n.Var | n.Lit):
            shared, varying = (shared, varying + 1) if shape is Shape.VARYING else (shared + 1, varying)
        return shape

    for statement in walk.statements(program.entry):
        found = [walk.fold(root, count) for root in walk.operands(statement)]
        is_plain = is_plain and not isinstance(statement, n.CopyBytes)
        if isinstance(statement, n.Store):
            is_plain = is_plain and found[0].stride in (0, 1)
    return is_plain and shared >= max(_MIN_SHARED_NODES, 2 * varying)
