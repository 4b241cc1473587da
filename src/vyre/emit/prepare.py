"""Preparation of programs for emission: inline calls, make names unique, turn transfers into copies."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.extensions import inline_calls
from vyre.ir.nodes import lit
from vyre.ir.program import Program
from vyre.lower.fresh_names import fresh_names, with_unique_names
from vyre.lower.transfers import Capture, carry_transfers
from vyre.lower.workgroup_state import lane_number
from vyre.semantics.types import DType


class Prepared(msgspec.Struct, frozen=True, eq=False):
    """An equivalent program; ``captures`` are the buffers that it has in addition to the declared ones."""

    program: Program
    captures: tuple[Capture, ...]


def prepare(program: Program) -> Prepared:
    """Prepare a legal program whose grid is decided."""
    program = with_unique_names(inline_calls(program))
    program = program.with_entry(walk.rewrite(program.entry, on_statement=_without_indirect))
    if not program.stats().has_async:
        return Prepared(program, ())
    names = fresh_names(program)
    row = names.make("row")
    tags = {s.tag for s in walk.statements(program.entry) if isinstance(s, (n.AsyncLoad, n.AsyncStore))}
    carried, captures = carry_transfers(program, tags, names, row)
    hidden = tuple(BufferDecl.read_write(capture.buffer, 0, DType.U32) for capture in captures)
    entry = (n.Let(row, _invocation_number(program)), *carried.entry)
    return Prepared(carried.with_entry(entry).with_buffers((*carried.buffers, *hidden)), captures)


def _without_indirect(statement: n.Stmt) -> Iterable[n.Stmt]:
    return () if isinstance(statement, n.IndirectDispatch) else (statement,)


def _invocation_number(program: Program) -> n.Expr:
    """Return the number of an invocation in the grid: workgroup by workgroup, x first."""
    group = (n.WorkgroupId(2) * n.NumWorkgroups(1) + n.WorkgroupId(1)) * n.NumWorkgroups(0) + n.WorkgroupId(0)
    return group * lit(math.prod(program.workgroup_size)) + lane_number(program.workgroup_size)
