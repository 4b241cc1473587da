"""Rematerialisation: selection of the values that are computed again after a cut instead of being spilled.

A value is rematerialised if that is cheap and its operands cannot have changed: literals, ids, lengths, immutable
variables and, where a load costs no more than a reload, elements of buffers that are not written any more. Operands
that several values share are computed once after a cut, so their cost is charged to none of the values; otherwise each
of many loop-invariant values would look too expensive. Loop variables and uniform values count as free operands: loop
variables are spilled wherever they are visible, and uniform values are cheap to spill.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from vyre.analyze.effects import assigned_variables
from vyre.analyze.versions import MemoryVersions
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import MATH_FUNCTIONS

# Costs of spilling a value and of the more expensive operations; most operations cost 1.
SPILL_COST: Final = 16
_LOAD_COST: Final = 4
_DIVISION_COST: Final = 8
# The root of the dominator tree: the user of all wanted values. No variable has this name.
_ROOT: Final = ""
_FREE: Final = (
    n.BufLen, n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups, n.Select, n.Cast, n.Bitcast,
    n.Fma, n.SubgroupLocalId, n.SubgroupSize,
)  # fmt: skip


class Recomputed(msgspec.Struct, frozen=True, eq=False):
    """A value that may be rematerialised: its declaration, the cost of its own operations, and its operands."""

    statement: n.Let
    cost: int
    needs: frozenset[str]


def possible_needs(program: Program) -> dict[str, frozenset[str]]:
    """Return the variables in the value of each variable that might be rematerialised."""
    candidates = _candidates(program, assigned_variables(program), lambda *_: True)
    return {name: value.needs for name, value in candidates.items()}


def with_needs(names: Iterable[str], needs: Mapping[str, Iterable[str]]) -> frozenset[str]:
    """Return ``names`` and everything that they need, transitively."""
    found: set[str] = set()
    pending = list(names)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += needs.get(name, ())
    return frozenset(found)


def recomputable(
    program: Program,
    excluded: Iterable[str],
    uniform: Container[str],
    live: Sequence[frozenset[str]],
    *,
    reloads: bool,
) -> dict[str, Recomputed]:
    """Return the variables that are rematerialised at every cut where they are ``live``, and what these need.

    A variable that is spilled at one cut is spilled at all: a path from one cut to another then always has its value.
    """
    changing = assigned_variables(program)
    changing.update(excluded)
    may_reload = MemoryVersions(program).is_final if reloads else lambda *_: False
    candidates = _candidates(program, changing, may_reload)
    candidates = {name: value for name, value in candidates.items() if changing.isdisjoint(value.needs)}
    declared = {name: place for place, name in enumerate(candidates)}
    loop_variables = {s.var for s in walk.statements(program.entry) if isinstance(s, n.Loop)}
    spilled: set[str] = set()
    for names in live:

        def cost_of(name: str, names: frozenset[str] = names) -> int:
            """Return the cost of having a value after the cut, without its operands."""
            if name in declared and name not in spilled:
                return candidates[name].cost
            is_available = name in names or name in loop_variables or name in uniform
            return 0 if is_available else SPILL_COST

        wanted = sorted(names & declared.keys() - spilled, key=declared.__getitem__)
        needs = _transitive_needs(wanted, candidates, spilled)
        totals = _totals(wanted, needs, declared, cost_of)
        pending, seen = wanted, set(wanted)
        while pending:
            name = pending.pop()
            if totals[name] > SPILL_COST:
                spilled.add(name)
            else:
                more = needs[name] - seen
                seen |= more
                pending += more
    return {name: value for name, value in candidates.items() if name not in spilled}


def _transitive_needs(
    wanted: Iterable[str], candidates: Mapping[str, Recomputed], spilled: Container[str]
) -> dict[str, frozenset[str]]:
    """Return the operands of wanted values and, transitively, of their operands; spilled values have none."""
    found: dict[str, frozenset[str]] = {}
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name not in found:
            value = None if name in spilled else candidates.get(name)
            found[name] = frozenset() if value is None else value.needs
            pending += found[name]
    return found


def _totals(
    wanted: Iterable[str],
    needs: Mapping[str, frozenset[str]],
    declared: Mapping[str, int],
    cost_of: Callable[[str], int],
) -> dict[str, int]:
    """Return the total cost of each value: its own and that of the operands that only it uses.

    These operands are the ones that it dominates in the graph of uses. Each counts with the cheaper of computing and
    spilling it.
    """
    users: dict[str, list[str]] = {name: [] for name in needs}
    for name, operands in needs.items():
        for operand in operands:
            users[operand].append(name)
    # Operands are declared before their users; values that are no candidates have no operands.
    order = sorted(needs, key=lambda name: declared.get(name, -1))
    dominator: dict[str, str] = {}
    depth = {_ROOT: 0}
    roots = set(wanted)
    for name in reversed(order):
        first = _ROOT if name in roots else users[name][0]
        for other in users[name]:
            while first != other and first != _ROOT:
                if depth[first] >= depth[other]:
                    first = dominator[first]
                else:
                    other = dominator[other]
        dominator[name], depth[name] = first, depth[first] + 1
    totals = dict.fromkeys([*order, _ROOT], 0)
    for name in order:
        totals[name] += cost_of(name)
        totals[dominator[name]] += min(totals[name], SPILL_COST)
    return totals


def _candidates(
    program: Program, changing: Container[str], may_reload: Callable[[str, int], bool]
) -> dict[str, Recomputed]:
    """Return the values that can be rematerialised, in the order of their declarations.

    ``may_reload`` tells whether a later load from a buffer gives the same value as the load in a statement, by number.
    """
    found: dict[str, Recomputed] = {}
    for number, statement in enumerate(walk.statements(program.entry)):
        if isinstance(statement, n.Let) and statement.name not in changing:
            nodes = walk.postorder(statement.value)
            cost = sum(map(_cost, nodes))
            if cost <= SPILL_COST and all(
                may_reload(node.buffer, number) for node in nodes if isinstance(node, n.Load)
            ):
                needs = frozenset(node.name for node in nodes if isinstance(node, n.Var))
                found[statement.name] = Recomputed(statement, cost, needs)
    return found


def _cost(node: n.Expr) -> int:
    """Return the cost of an operation; above the limit if it cannot be repeated."""
    match node:
        case n.Var() | n.Lit():
            return 0
        case n.Load():
            return _LOAD_COST
        case n.UnOp(op) if op not in MATH_FUNCTIONS:
            return 1
        case n.BinOp(op):
            return _DIVISION_COST if op in ("div", "mod") else 1
    return 1 if isinstance(node, _FREE) else SPILL_COST + 1
