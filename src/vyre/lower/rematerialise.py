"""Which values are computed again behind a cut rather than carried over it?

Those that cost little and cannot have changed: built from literals, ids, lengths, other values that stay what they are
and, where loading again is as good as keeping, elements of buffers that nobody writes any more. What several values
have in common is computed once behind a cut, so it counts for none of them: of many values that a loop keeps for all of
its passes, each alone may look as if it were worth state. The variable of a loop is there in any case, because it is
carried wherever it is visible, and so is what a workgroup agrees on: to carry that costs little.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from vyre.analyze.versions import MemoryVersions
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.program import Program
from vyre.semantics.operators import MATH_FUNCTIONS

# What it costs to carry a value over a cut, and to do some things again, where most operations cost 1.
SPILL_COST: Final = 16
_LOAD_COST: Final = 4
_DIVISION_COST: Final = 8
# Who asks for what is wanted; no variable has this name.
_ROOT: Final = ""
_FREE: Final = (
    n.BufLen, n.InvocationId, n.WorkgroupId, n.LocalId, n.NumWorkgroups, n.Select, n.Cast, n.Bitcast,
    n.Fma, n.SubgroupLocalId, n.SubgroupSize,
)  # fmt: skip


class Recomputed(msgspec.Struct, frozen=True, eq=False):
    """A value that may be computed again: its declaration, what that costs by itself, and the variables in it."""

    statement: n.Let
    cost: int
    needs: frozenset[str]


def possible_needs(program: Program) -> dict[str, frozenset[str]]:
    """For each variable that might be computed again: the variables in its value."""
    candidates = _candidates(program, assigned_names(program), lambda *_: True)
    return {name: value.needs for name, value in candidates.items()}


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
    program: Program,
    excluded: Iterable[str],
    uniform: Container[str],
    live: Sequence[frozenset[str]],
    *,
    reloads: bool,
) -> dict[str, Recomputed]:
    """The variables that are computed again at every cut where they are needed: those ``live`` there, and their needs.

    What is kept at one cut is kept at all, so that whoever comes from one to the other has what the other takes.
    """
    changing = assigned_names(program)
    changing.update(excluded)
    may_reload = MemoryVersions(program).is_final if reloads else lambda *_: False
    candidates = _candidates(program, changing, may_reload)
    candidates = {name: value for name, value in candidates.items() if changing.isdisjoint(value.needs)}
    declared = {name: place for place, name in enumerate(candidates)}
    loop_variables = {s.var for s in walk.statements(program.entry) if isinstance(s, n.Loop)}
    kept: set[str] = set()
    for names in live:

        def cost_of(name: str, names: frozenset[str] = names) -> int:
            """What a value costs by itself behind the cut."""
            if name in declared and name not in kept:
                return candidates[name].cost
            is_there = name in names or name in loop_variables or name in uniform
            return 0 if is_there else SPILL_COST

        wanted = sorted(names & declared.keys() - kept, key=declared.__getitem__)
        needs = _transitive_needs(wanted, candidates, kept)
        totals = _totals(wanted, needs, declared, cost_of)
        pending, seen = wanted, set(wanted)
        while pending:
            name = pending.pop()
            if totals[name] > SPILL_COST:
                kept.add(name)
            else:
                more = needs[name] - seen
                seen |= more
                pending += more
    return {name: value for name, value in candidates.items() if name not in kept}


def _transitive_needs(
    wanted: Iterable[str], candidates: Mapping[str, Recomputed], kept: Container[str]
) -> dict[str, frozenset[str]]:
    """The needs of wanted values, and of all those in turn; what is not computed again has none."""
    found: dict[str, frozenset[str]] = {}
    pending = list(wanted)
    while pending:
        name = pending.pop()
        if name not in found:
            value = None if name in kept else candidates.get(name)
            found[name] = frozenset() if value is None else value.needs
            pending += found[name]
    return found


def _totals(
    wanted: Iterable[str],
    needs: Mapping[str, frozenset[str]],
    declared: Mapping[str, int],
    cost_of: Callable[[str], int],
) -> dict[str, int]:
    """What it costs to have each value, with all that nobody but it asks for.

    That is what stands below it in the tree of who has to be asked first (dominators), each for the less of what it
    costs to compute and to carry.
    """
    users: dict[str, list[str]] = {name: [] for name in needs}
    for name, operands in needs.items():
        for operand in operands:
            users[operand].append(name)
    # Operands are declared before those who use them; what is no candidate uses nothing.
    order = sorted(needs, key=lambda name: declared.get(name, -1))
    above: dict[str, str] = {}
    depth = {_ROOT: 0}
    asked = set(wanted)
    for name in reversed(order):
        first = _ROOT if name in asked else users[name][0]
        for other in users[name]:
            while first != other and first != _ROOT:
                if depth[first] >= depth[other]:
                    first = above[first]
                else:
                    other = above[other]
        above[name], depth[name] = first, depth[first] + 1
    totals = dict.fromkeys([*order, _ROOT], 0)
    for name in order:
        totals[name] += cost_of(name)
        totals[above[name]] += min(totals[name], SPILL_COST)
    return totals


def assigned_names(program: Program) -> set[str]:
    return {s.name for s in walk.statements(program.entry) if isinstance(s, n.Assign)}


def _candidates(
    program: Program, changing: Container[str], may_reload: Callable[[str, int], bool]
) -> dict[str, Recomputed]:
    """The values that can be computed again, in the order of their declarations.

    ``may_reload`` says whether to load from a buffer again is to load what the statement of a number does.
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
    """What an operation costs by itself; more than anything is worth if it cannot be done again."""
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
