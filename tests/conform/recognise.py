"""Which situations does a case have? Read off its program, whoever made it.

Where only the checker could tell whether a condition is uniform, one counts as divergent if it reads an id itself, so
these counts are too low rather than too high.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from vyre.conform import Case
from vyre.conform.discipline import ME, MEMBER
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Access
from vyre.ir.nodes import Body, Expr, MemoryOrder, Stmt
from vyre.semantics.types import DType

_LOOPS = (n.Loop, n.While)
_SUBGROUP = (n.SubgroupBallot, n.SubgroupShuffle, n.SubgroupReduce)
_OWN_IDS = (n.InvocationId, n.LocalId, n.SubgroupLocalId)


def situations_of(case: Case) -> Iterator[str]:
    """The names of what occurs, each as often as it does."""
    yield from _shapes(case)
    program = case.program
    shared = {decl.name for decl in program.buffers if decl.access is Access.WORKGROUP}
    read = {e.name for e in walk.expressions(program.entry) if isinstance(e, n.Var)}
    for statement, around in _with_context(program.entry):
        yield from _jumps(statement, around)
        divergent = any(_is_divergent(one) for one in around)
        looping = any(isinstance(one, _LOOPS) for one in around)
        match statement:
            case n.Barrier(order) if any(isinstance(one, n.If) for one in around):
                yield f"{_point(order)} in a branch"
            case n.AsyncLoad() | n.AsyncStore() | n.CopyBytes():
                yield f"{type(statement).__name__}{' in a loop' if looping else ''}"
            case n.Trap() if looping:
                yield "trap in a loop"
            case n.Return() if divergent and not looping:
                yield "divergent return"
        for root in walk.operands(statement):
            for node in walk.postorder(root):
                if isinstance(node, _SUBGROUP):
                    yield f"{type(node).__name__}{' under divergence' if divergent else ''}"
                if isinstance(node, n.Atomic):
                    unused = node is root and isinstance(statement, n.Let) and statement.name not in read
                    where = "shared memory" if node.buffer in shared else "storage"
                    yield f"atomic in {where}, old value {'unused' if unused else 'used'}"
                    if divergent and looping:
                        yield f"atomic in a divergent loop, old value {'unused' if unused else 'used'}"
                if isinstance(node, n.Load) and node.buffer in shared:
                    yield "load of shared memory"


def _shapes(case: Case) -> Iterator[str]:
    program = case.program
    size = prod(program.workgroup_size)
    axes = sum(axis > 1 for axis in program.workgroup_size)
    if size % 4:
        yield f"odd workgroup of {axes} axes"
    if axes > 1 and size > 16:
        yield f"workgroup of {axes} axes with several vectors"
    if case.grid is not None and sum(axis > 1 for axis in case.grid) > 1:
        yield "grid of several axes"
    if size * prod(case.grid or (1, 1, 1)) > 2048:
        yield "grid worth sharing"
    if case.elements is not None and case.elements % size:
        yield "part of a workgroup asked for"
    if any(data.size == 0 for data in case.inputs.values()):
        yield "empty input"
    if program.stats().has_traps:
        yield "trap with an answer" if case.handled else "trap without an answer"
    for decl in program.buffers:
        if decl.dtype.bits != 32 and decl.dtype is not DType.BOOL:
            yield f"{decl.dtype} in {'shared memory' if decl.access is Access.WORKGROUP else 'storage'}"


def _with_context(entry: Body) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Every statement with those around it, the outermost first."""
    pending: list[tuple[Stmt, tuple[Stmt, ...]]] = [(statement, ()) for statement in reversed(entry)]
    while pending:
        statement, around = pending.pop()
        yield statement, around
        inside = (*around, statement)
        pending += [(one, inside) for body in walk.bodies(statement) for one in body]


def _point(order: MemoryOrder) -> str:
    return "grid_sync" if order is MemoryOrder.GRID_SYNC else "barrier"


def _points(statement: Stmt) -> set[str]:
    return {_point(s.order) for s in walk.statements((statement,)) if isinstance(s, n.Barrier)}


def _own_points(loop: Stmt) -> set[str]:
    """The kinds of barrier in a loop that stand in no loop inside it."""
    inner = [s for s in walk.statements((loop,)) if s is not loop and isinstance(s, _LOOPS)]
    hidden = {id(s) for one in inner for s in walk.statements((one,))}
    return {
        _point(s.order) for s in walk.statements((loop,)) if isinstance(s, n.Barrier) and id(s) not in hidden
    }  # fmt: skip


def _jumps(statement: Stmt, around: tuple[Stmt, ...]) -> Iterator[str]:
    loops = [one for one in around if isinstance(one, _LOOPS)]
    if not loops:
        return
    match statement:
        case n.Break() | n.Continue():
            name = type(statement).__name__
            yield from (f"{name} in a loop with a {point}" for point in _points(loops[-1]))
            if len(loops) > 1:
                for point in _own_points(loops[-1]) & _own_points(loops[-2]):
                    yield f"{name} in nested loops with a {point} each"
            if _is_divergent(loops[-1]) or any(map(_is_divergent, around[around.index(loops[-1]) :])):
                yield f"divergent {name}"
        case n.Return():
            kind = "divergent" if any(map(_is_divergent, around)) else "uniform"
            yield from (f"{kind} return in a loop with a {point}" for point in _points(loops[-1]))


def _is_divergent(statement: Stmt) -> bool:
    """Whether who runs the bodies of a statement depends on an id of the invocation."""
    match statement:
        case n.If(condition) | n.While(condition):
            return _reads_own_id(condition)
        case n.Loop(_, start, stop):
            return _reads_own_id(start) or _reads_own_id(stop)
    return False


def _reads_own_id(root: Expr) -> bool:
    return any(
        isinstance(node, _OWN_IDS) or (isinstance(node, n.Var) and node.name in (ME, MEMBER))
        for node in walk.postorder(root)
    )
