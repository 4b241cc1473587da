"""Which values are computed again behind a cut rather than carried over it?

Those that cost little and cannot have changed: built from literals, ids, lengths, other such values and, where loading
again is as good as keeping, elements of buffers that nobody writes any more. The variable of a loop counts as one,
because it is carried wherever it is visible, and so does what a workgroup agrees on: to carry that costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
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


def possible_needs(program: Program) -> dict[str, frozenset[str]]:
    """For each variable that might be computed again: the variables in its value."""
    found: dict[str, frozenset[str]] = {}
    changing = assigned_names(program)
    for statement in walk.statements(program.entry):
        if isinstance(statement, n.Let) and statement.name not in changing:
            nodes = walk.postorder(statement.value)
            if len(nodes) <= _MOST and all(isinstance(node, (n.Var, n.Load, n.UnOp, *_FREE)) for node in nodes):
                found[statement.name] = frozenset(node.name for node in nodes if isinstance(node, n.Var))
    return found


def with_needs(names: Iterable[str], needs: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Variables, and those that computing them again takes."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += needs.get(name, ())
    return frozenset(found)


def recomputable(
    program: Program, excluded: Iterable[str], agreed: Container[str], *, reloads: bool
) -> dict[str, tuple[n.Let, frozenset[str]]]:
    """For each variable worth computing again: its declaration, and the variables that have to be there before."""
    changing = assigned_names(program)
    changing.update(excluded)
    versions = MemoryVersions(program) if reloads else None
    costs: dict[str, int] = {}
    found: dict[str, tuple[n.Let, frozenset[str]]] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        match statement:
            case n.Loop(var):
                costs[var] = 1
            case n.Let(name, value) if name not in changing:
                is_final = partial(versions.is_final, statement=number) if versions is not None else _never
                cost = _cost(value, costs, is_final)
                if cost is not None and cost <= _MOST:
                    costs[name] = cost
                    needs = frozenset(e.name for e in walk.postorder(value) if isinstance(e, n.Var))
                    found[name] = statement, needs
                elif name in agreed:
                    costs[name] = 1
    return found


def assigned_names(program: Program) -> set[str]:
    return {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}


def _never(_: str) -> bool:
    return False


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
