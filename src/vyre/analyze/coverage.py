"""Which outputs does a launch write from one end to the other? Those need not be cleared before it.

A store that every invocation makes writes every element if its index counts through them: a sum of ids, each times
the number of values that the smaller ones have together, as the digits of a number count. So does one of those only
whose index is below a limit, if the limit is not below the number of elements.
"""

from __future__ import annotations

from collections.abc import Iterator

from vyre.analyze.effects import assigned_variables, buffers_read, buffers_written
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.semantics.types import DType

# How often each id (or 1, for a constant) is counted in a sum.
Terms = dict[tuple[type[n.Expr], int], int]
# An index as a sum, if it is one, and the limit that it is below.
Condition = tuple[Terms | None, n.Expr]
_ONE = (n.Lit, 0)
_IDS = (n.InvocationId, n.WorkgroupId, n.LocalId)
# Programs in which invocations leave at more places are not looked at.
_MOST_RETURNS = 16


def outputs_written_whole(program: Program, launch: Launch) -> frozenset[str]:
    """The outputs of which a launch writes every element, and reads none."""
    stats = program.stats()
    if stats.has(n.Trap) or stats.has_extensions or stats.has_indirect_dispatch:
        return frozenset()
    known: dict[str, Terms] = {}
    stayed: list[Condition] = []
    reached = [statement for statement, _ in _reached(program.entry, known, (), stayed)]
    outputs = {decl.name for decl in program.buffers if decl.role is Role.OUTPUT}
    candidates = outputs & {statement.buffer for statement in reached if isinstance(statement, n.Store)}
    if not candidates:
        return frozenset()
    # Those who return otherwise are not known to come to what follows.
    returns = -len(stayed)
    for statement in walk.statements(program.entry):
        returns += isinstance(statement, n.Return)
        candidates.difference_update(buffers_read(statement))
        if not isinstance(statement, n.Store):
            candidates.difference_update(buffers_written(statement))
        for root in walk.operands(statement):
            for node in walk.postorder(root):
                candidates.difference_update(buffers_read(node))
    if returns or len(stayed) > _MOST_RETURNS:
        return frozenset()
    stayed.clear()
    assigned = assigned_variables(program)
    found: set[str] = set()
    for statement, inside in _reached(program.entry, known, (), stayed):
        if isinstance(statement, n.Let) and statement.name not in assigned:
            terms = _sum(statement.value, known)
            known.pop(statement.name, None)
            if terms is not None:
                known[statement.name] = terms
        elif isinstance(statement, n.Store) and statement.buffer in candidates:
            terms, count = _sum(statement.index, known), launch.counts[statement.buffer]
            if (
                terms is not None
                and _counted(terms, launch) >= count
                and all(index == terms and _limit(limit, launch) >= count for index, limit in (*inside, *stayed))
            ):
                found.add(statement.buffer)
    return frozenset(found)


def _reached(
    body: n.Body, known: dict[str, Terms], inside: tuple[Condition, ...], stayed: list[Condition]
) -> Iterator[tuple[n.Stmt, tuple[Condition, ...]]]:
    """The statements that invocations come to for which some conditions hold, and those that are around each.

    ``stayed`` becomes the conditions of those that did not return before; ``known`` are the variables at each.
    """
    for statement in body:
        yield statement, inside
        match statement:
            case n.Block() | n.Region():
                yield from _reached(statement.body, known, inside, stayed)
            case n.If(n.BinOp("lt", index, limit), then) | n.If(n.BinOp("gt", limit, index), then):
                yield from _reached(then, known, (*inside, (_sum(index, known), limit)), stayed)
            case n.If():
                kept = _sent_away(statement)
                if kept is not None:
                    stayed.append((_sum(kept[0], known), kept[1]))


def _sent_away(statement: n.Stmt) -> tuple[n.Expr, n.Expr] | None:
    """Which index is below which limit for those who pass a statement that does nothing but send the others away."""
    match statement:
        case n.If(n.BinOp("ge", index, limit), (n.Return(),), ()) | n.If(
            n.BinOp("le", limit, index), (n.Return(),), ()
        ):
            return index, limit
    return None


def _limit(limit: n.Expr, launch: Launch) -> int:
    """The value of a limit, if it is known."""
    match limit:
        case n.Lit(bits, DType.U32):
            return bits
        case n.BufLen(buffer):
            return launch.counts.get(buffer, 0)
    return 0


def _sum(root: n.Expr, known: dict[str, Terms]) -> Terms | None:
    """An index as a sum of ids; None for everything else."""
    return walk.fold(root, lambda node, given: _term(node, given, known))


def _term(node: n.Expr, given: list[Terms | None], known: dict[str, Terms]) -> Terms | None:
    match node, given:
        case n.Lit(bits=bits), _:
            return {_ONE: bits}
        case n.Var(name=name), _:
            return known.get(name)
        case ((n.InvocationId() | n.WorkgroupId() | n.LocalId()), _):
            return {(type(node), node.axis): 1}
        case n.BinOp(op="add"), [dict() as a, dict() as b]:
            return {key: a.get(key, 0) + b.get(key, 0) for key in (*a, *b)}
        case n.BinOp(op="mul"), [dict() as a, dict() as b]:
            for factor, other in ((a, b), (b, a)):
                if set(factor) == {_ONE}:
                    return {key: times * factor[_ONE] for key, times in other.items()}
        case n.BinOp(op="shl"), [dict() as a, dict() as b] if set(b) == {_ONE}:
            return {key: times << (b[_ONE] & 31) for key, times in a.items()}
    return None


def _counted(terms: Terms, launch: Launch) -> int:
    """How many elements from 0 on the sum takes all values of; 0 if there are gaps."""
    if terms.get(_ONE, 0):
        return 0
    sizes: Terms = {}
    for axis in range(3):
        groups, size = launch.grid[axis], launch.workgroup_size[axis]
        sizes |= {(n.InvocationId, axis): groups * size, (n.WorkgroupId, axis): groups, (n.LocalId, axis): size}
        together = {(kind, axis) for kind in _IDS} & terms.keys()
        if (n.InvocationId, axis) in together and len(together) > 1:
            return 0
    covered = 1
    for times, size in sorted((times, sizes[key]) for key, times in terms.items() if key != _ONE and sizes[key] > 1):
        if times != covered:
            return 0
        covered *= size
    return covered if covered <= 1 << 32 else 0
