"""How is a statement generated? Each production gives statements that may stand here, or None.

Nesting is bounded by the profile, so these functions may call each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate
from typing import Final

from vyre.conform.case import MAILBOX
from vyre.conform.discipline import (
    COUNTS,
    SINK,
    Level,
    Mode,
    OpenLoop,
    State,
    Use,
    buffers_in,
    change_uses,
    declare,
    fresh_name,
    is_shared_memory,
    scope_of_change,
    visible,
)
from vyre.conform.expressions import any_index, atomic, condition, expression, own_index, tower, with_feature
from vyre.conform.features import Feature
from vyre.conform.movement import copy_bytes, own_transfer, same_transfer
from vyre.conform.operations import IDLE_KIND
from vyre.conform.profile import Profile
from vyre.ir import nodes as n
from vyre.ir.buffers import Role
from vyre.ir.nodes import Body, Expr, MemoryOrder, Stmt, lit
from vyre.semantics.operators import OPERATORS, REDUCTIONS, AtomicOp
from vyre.semantics.types import DType

BARRIER_ORDERS: Final = (MemoryOrder.ACQUIRE, MemoryOrder.RELEASE, MemoryOrder.ACQ_REL, MemoryOrder.SEQ_CST)
_TRIES: Final = 4
JUMPS: Final = (n.Break, n.Continue, n.Return)


@lru_cache(maxsize=1024)
def _cumulative_weights(profile: Profile) -> tuple[int, ...]:
    return tuple(accumulate(profile.weight(name) for name in PRODUCTIONS))


def statement(state: State) -> list[Stmt]:
    """One statement, with those it needs before it."""
    weights = _cumulative_weights(state.profile)
    for produce in state.random.choices(list(PRODUCTIONS.values()), cum_weights=weights, k=_TRIES):
        made = produce(state)
        if made is not None:
            break
    else:
        made = _store(state)
    state.budget -= len(made)
    return made


def statements(state: State, count: int) -> list[Stmt]:
    """About this many statements; a jump ends the list."""
    made: list[Stmt] = []
    for _ in range(count):
        if state.budget <= 0:
            break
        made += statement(state)
        if made and isinstance(made[-1], JUMPS):
            break
    return made


def body(state: State, control: Level, count: int, prologue: Callable[[], list[Stmt]] | None = None) -> Body:
    """A list with a scope of its own under some control, which leaves every buffer in the use it had before."""
    outer_control, uses = state.control, dict(state.uses)
    state.control = max(outer_control, control)
    state.scopes.append([])
    state.names.append(set())
    made = prologue() if prologue else []
    made += statements(state, count)
    if not (made and isinstance(made[-1], JUMPS)):
        made += _restore(state, uses)
    state.uses = uses
    state.scopes.pop()
    state.names.pop()
    state.control = outer_control
    return tuple(made)


def _restore(state: State, uses: dict[str, Use]) -> list[Stmt]:
    match scope_of_change(state, uses):
        case None:
            return []
        case Level.GRID:
            return [n.Barrier(MemoryOrder.GRID_SYNC)]
        case _:
            return [n.Barrier()]


def _size_of_body(state: State) -> int:
    return min(state.random.randint(1, 5), max(1, state.budget))


def _may_nest(state: State) -> bool:
    return len(state.scopes) <= state.profile.max_nesting and state.budget > 0


def sink(state: State, value: Expr, dtype: DType) -> Stmt:
    """A store that makes a value visible outside, whatever its type."""
    decl = state.buffers[SINK]
    if dtype.is_float and dtype is not decl.dtype:
        value, dtype = n.Bitcast(dtype.unsigned, value), dtype.unsigned
    if dtype is not decl.dtype:
        value = n.Cast(decl.dtype, value)
    return n.Store(SINK, own_index(state, decl), value)


def _random_type(state: State) -> DType:
    """A type, more often one that a buffer or a variable has."""
    known = [decl.dtype for decl in state.buffers.values()] + [variable.dtype for variable in visible(state)]
    return state.random.choice((state.random.choice(known), state.random.choice(state.profile.usable_types)))


def _random_level(state: State) -> Level:
    return state.random.choice((Level.GRID, Level.WORKGROUP, Level.DIVERGENT, Level.DIVERGENT))


def _let(state: State) -> list[Stmt]:
    dtype, level = _random_type(state), _random_level(state)
    make = tower if state.random.random() < 0.005 * state.profile.expression_depth else expression
    value = make(state, dtype, level)
    return [n.Let(declare(state, "v", dtype, level).name, value)]


def _assign(state: State) -> list[Stmt] | None:
    least = max(state.control, state.assigned)
    targets = [v for v in visible(state) if v.mutable and v.level >= least]
    if not targets:
        return None
    target = state.random.choice(targets)
    return [n.Assign(target.name, expression(state, target.dtype, target.level))]


def _store(state: State) -> list[Stmt]:
    """A store to an element of the invocation's own, or of the one agreed value."""
    targets = [d for d in buffers_in(state, Mode.OWNED, Mode.AGREED) if d.access.writable]
    others = [d for d in targets if d.name != SINK]
    decl = state.random.choice(others if others and state.random.random() < 0.7 else targets)
    use = state.uses[decl.name]
    if use.mode is Mode.AGREED:
        return [n.Store(decl.name, any_index(state, decl, Level.DIVERGENT), n.Lit(use.bits, decl.dtype))]
    return [n.Store(decl.name, own_index(state, decl), expression(state, decl.dtype, Level.DIVERGENT))]


def _change(state: State) -> list[Stmt] | None:
    """An atomic anywhere in a buffer, whose result nobody uses."""
    targets = buffers_in(state, Mode.ATOMIC, Mode.SETTLED)
    if not targets:
        return None
    decl = state.random.choice(targets)
    use = state.uses[decl.name]
    index = any_index(state, decl, Level.DIVERGENT)
    value: Expr | None = None
    if use.mode is Mode.SETTLED:
        op = state.random.choice((AtomicOp.STORE, AtomicOp.EXCHANGE, AtomicOp.COMPARE_EXCHANGE))
        value = n.Lit(use.bits, decl.dtype)
    else:
        op = state.random.choice((AtomicOp.ADD, AtomicOp.SUB)) if use.operator == "add" else AtomicOp(use.operator)
    made = atomic(state, op, decl, index, 2, value)
    return [n.Let(fresh_name(state, "unused"), made)]


def _if(state: State) -> list[Stmt] | None:
    if not _may_nest(state):
        return None
    level = _random_level(state)
    chooser = condition(state, level)
    then = body(state, level, _size_of_body(state))
    choice = state.random.random()
    if choice < 0.5:
        return [n.If(chooser, then)]
    return [n.If(chooser, then, body(state, level, _size_of_body(state)))]


def _bounds(state: State, level: Level) -> tuple[Expr, Expr, int]:
    """Where a loop starts and stops, and how many passes that can be at most."""
    random = state.random
    choice = random.random()
    if choice < 0.1:
        passes = random.randint(1, 3)
        return lit((1 << 32) - 1 - passes), lit((1 << 32) - 1), passes
    most = random.randint(1, 4)
    if choice < 0.5:
        first = random.randrange(3)
        return lit(first), lit(first + most), most
    number = expression(state, DType.U32, level, 2)
    stop = number % (most + 1) if random.random() < 0.7 else n.BinOp("min", number, lit(most))
    return lit(random.randrange(2)), stop, most


def _loop(state: State) -> list[Stmt] | None:
    return loop(state, _random_level(state))


def loop(state: State, level: Level, prologue: Callable[[], list[Stmt]] | None = None) -> list[Stmt] | None:
    """A counted loop whose passes all of ``level`` make together, each beginning with the prologue."""
    if not _may_nest(state):
        return None
    start, stop, most = _bounds(state, level)
    if state.repetition * most > state.profile.max_repetition:
        return None
    state.names.append(set())
    state.scopes.append([])
    variable = declare(state, "k", DType.U32, level, mutable=False)
    inner = _loop_body(state, level, most, prologue)
    state.scopes.pop()
    state.names.pop()
    return [n.Loop(variable.name, start, stop, inner)]


def _loop_body(state: State, level: Level, passes: int, prologue: Callable[[], list[Stmt]] | None = None) -> Body:
    level = max(level, state.control)
    state.loops.append(OpenLoop(level, dict(state.uses), state.pins))
    state.repetition *= passes
    made = body(state, level, _size_of_body(state), prologue)
    state.repetition //= passes
    state.loops.pop()
    return made


def _while(state: State) -> list[Stmt] | None:
    """A loop that a counter ends if its condition does not."""
    level = _random_level(state)
    passes = state.random.randint(1, 4)
    if not _may_nest(state) or state.repetition * passes > state.profile.max_repetition:
        return None
    counter = declare(state, "pass", DType.U32, max(level, state.control, state.assigned), mutable=False)
    going = n.Var(counter.name) < passes
    if state.random.random() < 0.8:
        going = going & condition(state, level)
    step: list[Stmt] = [n.Assign(counter.name, n.Var(counter.name) + 1)]
    inner = _loop_body(state, level, passes, lambda: step)
    return [n.Let(counter.name, lit(0)), n.While(going, inner)]


def _fixpoint(state: State) -> list[Stmt] | None:
    """A loop whose condition is written by the grid itself: everyone stores what everyone agreed to store next."""
    passes = state.random.randint(1, 3)
    flags = [
        decl
        for decl in state.buffers.values()
        if decl.role in (Role.INPUT_OUTPUT, Role.OUTPUT) and decl.access.readable and decl.dtype is DType.U32
        and decl.name not in state.fixed and decl.name != MAILBOX
    ]  # fmt: skip
    repetition = state.repetition * passes
    if not flags or not _may_sync_grid(state) or not _may_nest(state) or repetition > state.profile.max_repetition:
        return None
    flag = state.random.choice(flags)
    sync = n.Barrier(MemoryOrder.GRID_SYNC)
    state.uses[flag.name] = Use(Mode.SHARED)
    state.fixed.add(flag.name)
    going = n.BinOp("ne", n.Load(flag.name, lit(0)), lit(0))

    def advance() -> list[Stmt]:
        following = declare(state, "next", DType.U32, Level.GRID, mutable=False)
        state.pins += 1
        before = n.Block(body(state, Level.GRID, _size_of_body(state)))
        state.pins -= 1
        value = n.Var(following.name)
        return [
            n.Let(following.name, n.Load(flag.name, lit(0)) - 1), before,
            sync, n.Store(flag.name, lit(0), value), sync,
        ]  # fmt: skip

    inner = _loop_body(state, Level.GRID, passes, advance)
    state.fixed.discard(flag.name)
    return [sync, n.Store(flag.name, lit(0), lit(passes)), sync, n.While(going, inner)]


def may_jump(state: State) -> bool:
    """Whether whoever leaves the innermost loop, or its pass, here finds every buffer in the use it has there."""
    if not state.loops:
        return False
    around = state.loops[-1]
    return around.pins == state.pins and around.level >= state.control and around.uses == state.uses


def _break(state: State) -> list[Stmt] | None:
    return _jump(state, n.Break(), state.loops[-1].level) if may_jump(state) else None


def _continue(state: State) -> list[Stmt] | None:
    return _jump(state, n.Continue(), state.loops[-1].level) if may_jump(state) else None


def _return(state: State) -> list[Stmt] | None:
    if state.pins or not state.profile.early_returns:
        return None
    return _jump(state, n.Return(), Level.DIVERGENT)


def _jump(state: State, jump: Stmt, level: Level) -> list[Stmt]:
    """The jump itself where a branch or a loop is being left, else under a condition."""
    if len(state.scopes) > 2 and state.random.random() < 0.3:
        return [jump]
    return [n.If(condition(state, level), (jump,))]


def _may_sync_grid(state: State) -> bool:
    return state.profile.grid_syncs and state.control is Level.GRID


def _barrier(state: State) -> list[Stmt] | None:
    if state.control is Level.DIVERGENT or not state.profile.workgroup_barriers:
        return None
    change_uses(state, Level.WORKGROUP)
    return [n.Barrier(state.random.choice(BARRIER_ORDERS))]


def _grid_sync(state: State) -> list[Stmt] | None:
    if not _may_sync_grid(state):
        return None
    change_uses(state, Level.GRID)
    return [n.Barrier(MemoryOrder.GRID_SYNC)]


def _block(state: State) -> list[Stmt] | None:
    return [n.Block(body(state, state.control, _size_of_body(state)))] if _may_nest(state) else None


def _region(state: State) -> list[Stmt] | None:
    if not _may_nest(state):
        return None
    source = state.random.choice((None, "origin", 'odd "name"\n'))
    return [n.Region("conform", source, body(state, state.control, _size_of_body(state)))]


def _transfer(state: State) -> list[Stmt] | None:
    """A transfer, other statements, and its wait."""
    issue = state.random.choice((own_transfer, same_transfer))(state)
    if issue is None:
        return None
    between: list[Stmt] = []
    if _may_nest(state):
        state.pins += 1
        state.pending += 1
        made = body(state, state.control, state.random.randrange(3))
        between = [n.Block(made)] if made else []
        state.pending -= 1
        state.pins -= 1
    return [issue, *between, n.AsyncWait(issue.tag)]


def _trap(state: State) -> list[Stmt] | None:
    """Some invocations ask the host and wait for its answer, while the others go on to the resume."""
    if MAILBOX not in state.buffers or state.pending or not _may_sync_grid(state) or not _may_nest(state):
        return None
    tag = state.random.choice(("ask", "tell"))
    if tag in state.handled and state.pins:
        return None
    state.handled.add(tag)
    state.pins += 1
    outer, state.assigned = state.assigned, Level.DIVERGENT
    address = expression(state, DType.U32, Level.DIVERGENT, 1)
    asking = body(state, Level.DIVERGENT, state.random.randrange(2))
    trapping: list[Stmt] = [n.If(condition(state, Level.DIVERGENT), (*asking, n.Trap(address, tag)))]
    made = body(state, state.control, state.random.randrange(3))
    if made:
        trapping.append(n.Block(made))
    if state.random.random() < 0.5:
        dtype = _random_type(state)
        skipped = expression(state, dtype, Level.DIVERGENT)
        trapping.append(n.Let(declare(state, "skipped", dtype, Level.DIVERGENT).name, skipped))
    state.pins -= 1
    state.assigned = outer
    change_uses(state, Level.GRID)
    return [*trapping, n.Resume(tag)]


def _collective(state: State) -> list[Stmt] | None:
    if not _may_sync_grid(state) or not state.profile.collectives:
        return None
    storage = [d for d in state.buffers.values() if not is_shared_memory(d) and d.name != COUNTS]
    targets = [d for d in storage if d.access.writable and d.access.readable and d.name not in state.fixed - {SINK}]
    pairs = [(a, d) for d in targets for a in storage if a is not d and a.dtype is d.dtype and a.access.readable]
    target = state.random.choice(targets)
    reductions = [op for op in REDUCTIONS if target.dtype in OPERATORS[op].types]
    change_uses(state, Level.GRID)
    choice = state.random.randrange(4)
    if choice == 0 or not pairs:
        return [n.AllReduce(state.random.choice(reductions), target.name, "world")]
    if choice == 1:
        return [n.Broadcast(target.name, 0, "world")]
    source, destination = state.random.choice(pairs)
    if choice == 2:
        return [n.AllGather(source.name, destination.name, "world")]
    op = state.random.choice([op for op in REDUCTIONS if source.dtype in OPERATORS[op].types])
    return [n.ReduceScatter(op, source.name, destination.name, "world")]


def _opaque(state: State) -> list[Stmt] | None:
    if not state.profile.extensions:
        return None
    return [n.OpaqueStmt(IDLE_KIND, state.random.randbytes(state.random.randrange(6)))]


def feature_statements(state: State, feature: Feature) -> list[Stmt]:
    """Statements that hold a feature, and make its value visible outside; none if it cannot stand here."""
    if feature.kind == "statement":
        return PRODUCTIONS[feature.name](state) or []
    found = with_feature(state, feature)
    return [] if found is None else [sink(state, *found)]


PRODUCTIONS: Final[dict[str, Callable[[State], list[Stmt] | None]]] = {
    "let": _let,
    "assign": _assign,
    "store": _store,
    "change": _change,
    "if": _if,
    "loop": _loop,
    "while": _while,
    "fixpoint": _fixpoint,
    "break": _break,
    "continue": _continue,
    "return": _return,
    "barrier": _barrier,
    "grid_sync": _grid_sync,
    "block": _block,
    "region": _region,
    "transfer": _transfer,
    "copy": copy_bytes,
    "trap": _trap,
    "collective": _collective,
    "opaque": _opaque,
}
