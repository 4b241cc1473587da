"""What can a target do? What the checker holds a program against, beside the rules of the language."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vyre.checker.diagnostics import Diagnostic, diagnostic
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.semantics.types import DType


class Capabilities(msgspec.Struct, frozen=True):
    """What a target has. ``dtypes`` None means every type; bool and u32 are always there.

    A target that has a signed type has the unsigned one of its width.
    """

    dtypes: frozenset[DType] | None = None
    subgroup_ops: bool = True
    atomics64: bool = True


def missing_capabilities(program: Program, capabilities: Capabilities) -> Iterator[Diagnostic]:
    """What a legal program needs and the target lacks, in order."""
    stats = program.stats()
    has = capabilities.dtypes
    lacking = frozenset() if has is None else stats.dtypes - has - {DType.BOOL, DType.U32}
    for number, decl in enumerate(program.buffers):
        if decl.dtype in lacking:
            yield diagnostic("V089", Place(buffer=number), f"the target has no {decl.dtype}.")
    subgroup = stats.has_subgroup_ops and not capabilities.subgroup_ops
    atomics = stats.has_atomics and not capabilities.atomics64
    if not (lacking or subgroup or atomics):
        return
    wide = {decl.name for decl in program.buffers if decl.dtype.bits == 64}
    for number, statement in enumerate(walk.statements(program.entry)):
        nodes = (node for root in walk.operands(statement) for node in walk.postorder(root))
        for index, node in enumerate(nodes):
            place = Place(number, index)
            match node:
                case n.Lit(_, dtype) | n.Cast(dtype) | n.Bitcast(dtype) if dtype in lacking:
                    yield diagnostic("V089", place, f"the target has no {dtype}.")
                case n.Atomic(op, buffer) if atomics and buffer in wide:
                    yield diagnostic("V090", place, f"the target has no atomic_{op.value} on '{buffer}'.")
                case _ if subgroup and isinstance(node, n.SUBGROUP_OPERATIONS):
                    yield diagnostic("V041", place, f"the target has no subgroup operations ({type(node).__name__}).")
