"""Which values are computed again behind a cut rather than carried over it?

Those that cost little and cannot have changed: built from literals, ids, lengths, elements of buffers that nobody
writes any more, and other such values. The variable of a loop counts as one, because it is carried wherever it is
visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from vyre.analyze.versions import MemoryVersions
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import MATH_FUNCTIONS

_MOST: Final = 16
_LOAD: Final = 4
_FREE: Final = (
    n.Lit, n.BufLen, n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups, n.BinOp, n.Select, n.Cast, n.Bitcast,
    n.Fma, n.SubgroupLocalId, n.SubgroupSize,
)  # fmt: skip


def recomputable(program: Program, excluded: Iterable[str]) -> dict[str, tuple[n.Let, frozenset[str]]]:
    """For each variable worth computing again: its declaration, and the variables that have to be there before."""
    changing = {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}
    changing.update(excluded)
    versions = MemoryVersions(program)
    costs: dict[str, int] = {}
    found: dict[str, tuple[n.Let, frozenset[str]]] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        match statement:
            case n.Loop(var):
                costs[var] = 1
            case n.Let(name, value) if name not in changing:
                cost = _cost(value, costs, partial(versions.is_final, statement=number))
                if cost is not None and cost <= _MOST:
                    costs[name] = cost
                    needs = frozenset(e.name for e in walk.postorder(value) if isinstance(e, n.Var))
                    found[name] = statement, needs
    return found


def _cost(root: n.Expr, costs: Mapping[str, int], is_final: Callable[[str], bool]) -> int | None:
    total = 0
    for node in walk.postorder(root):
        match node:
            case n.Var(name):
                cost = costs.get(name)
                if cost is None:
                    return None
                total += cost
            case n.Load(buffer):
                if not is_final(buffer):
                    return None
                total += _LOAD
            case n.UnOp(op):
                if op in MATH_FUNCTIONS:
                    return None
                total += 1
            case _:
                if not isinstance(node, _FREE):
                    return None
                total += 1
        if total > _MOST:
            return None
    return total
