"""Which situations are programs given on purpose? Those that found faults: every seed is asked for one, in turn.

A situation builds the frame that matters and leaves what stands in it to chance; the discipline of uses holds in it
as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from vyre.conform.discipline import (
    ME,
    MEMBER,
    Level,
    Mode,
    State,
    Use,
    buffers_in,
    change_uses,
    has_atomics,
    is_shared_memory,
    scope_of_change,
)
from vyre.conform.expressions import any_index, atomic, expression, leaf, own_index, subgroup
from vyre.conform.profile import STATEMENT_WEIGHTS, Profile
from vyre.conform.statements import BARRIER_ORDERS, JUMPS, PRODUCTIONS, body, loop, may_jump, sink, statements
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Expr, MemoryOrder, Stmt, lit
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

FRAME_BUDGET: Final = 4
Step = Callable[[State], list[Stmt]]


class Situation(msgspec.Struct, frozen=True, eq=False):
    """What to build, and what it needs: switches of a profile, and kinds of statement that it draws at all."""

    build: Step
    needs: tuple[str, ...] = ()


def situations(profile: Profile) -> list[str]:
    """The names of those that a profile allows."""
    return [name for name, made in SITUATIONS.items() if all(_allows(profile, need) for need in made.needs)]


def _allows(profile: Profile, need: str) -> bool:
    return profile.weight(need) > 0 if need in STATEMENT_WEIGHTS else getattr(profile, need)


def situation_for(profile: Profile, seed: int) -> Situation:
    """The one that the program of a seed is asked for; an empty one if the profile allows none."""
    allowed = situations(profile)
    return SITUATIONS[allowed[seed % len(allowed)]] if allowed else Situation(lambda _: [])


def frame_of(state: State, situation: Situation) -> list[Stmt]:
    """The statements of a situation, which are not taken from the rest of the program."""
    budget, state.budget = state.budget, FRAME_BUDGET
    made = situation.build(state)
    state.budget = budget
    return made


def in_turn(state: State, *steps: Step) -> list[Stmt]:
    """What the steps make, up to a jump that nothing can follow."""
    made: list[Stmt] = []
    for step in steps:
        made += step(state)
        if made and isinstance(made[-1], JUMPS):
            break
    return made


def _allow(state: State) -> None:
    """However little the program may still grow: the frame is built."""
    state.budget = max(1, state.budget)


def _anything(state: State) -> list[Stmt]:
    _allow(state)
    return statements(state, state.random.randint(0, 2))


def _some(state: State, level: Level) -> Expr:
    """A condition that holds for some of those who may differ, and not always for the same."""
    random = state.random
    number = leaf(state, DType.U32, level, 0)
    if level is Level.WORKGROUP:
        number = n.WorkgroupId(random.randrange(2)) + number
    elif level is Level.DIVERGENT:
        number = n.Var(random.choice((ME, MEMBER))) + number
    return n.BinOp("eq", number % random.randint(2, 4), lit(random.randrange(2)))


def _meeting(scope: Level, change: bool = False) -> Step:
    """A barrier, with the uses of the loop's head behind it, so that a jump may follow; or with others."""

    def meet(state: State) -> list[Stmt]:
        wide = scope
        if change or not state.loops:
            change_uses(state, scope)
        else:
            uses = state.loops[-1].uses
            wide = Level.GRID if scope_of_change(state, uses) is Level.GRID else scope
            state.uses = dict(uses)
        return [n.Barrier(MemoryOrder.GRID_SYNC if wide is Level.GRID else state.random.choice(BARRIER_ORDERS))]

    return meet


def _leaving(jump: Stmt, level: Level | None = None) -> Step:
    """A jump that some take: those of ``level``, or whoever may leave the loop together."""

    def leave(state: State) -> list[Stmt]:
        if not isinstance(jump, n.Return) and not may_jump(state):
            return []
        together = state.loops[-1].level if level is None else max(level, state.control)
        chosen = _some(state, together)
        before = [sink(state, expression(state, DType.U32, Level.DIVERGENT, 1), DType.U32)]
        return [n.If(chosen, (*(before if state.random.random() < 0.5 else ()), jump))]

    return leave


def _looping(level: Level, *steps: Step) -> Step:
    def build(state: State) -> list[Stmt]:
        _allow(state)
        together = level if level is Level.GRID else state.random.choice((Level(level - 1), level, level))
        return loop(state, together, lambda: in_turn(state, *steps)) or []

    return build


def _branching(level: Level, *steps: Step) -> Step:
    def build(state: State) -> list[Stmt]:
        then = body(state, level, 0, lambda: in_turn(state, *steps))
        otherwise = body(state, level, 0, lambda: in_turn(state, *steps)) if state.random.random() < 0.7 else ()
        return [n.If(_some(state, level), then, otherwise)]

    return build


def _producing(name: str) -> Step:
    return lambda state: PRODUCTIONS[name](state) or []


def _between_barriers(scope: Level, *leaving: Step) -> Step:
    meet = _meeting(scope)
    steps = [step for leave in leaving for step in (_anything, meet, leave)]
    return _looping(scope, *steps, _anything, _meeting(scope, change=True), _anything)


def _pass_on(state: State) -> list[Stmt]:
    """Every member writes shared memory of its own, and reads what another wrote behind a barrier."""
    made: list[Stmt] = []
    for decl in buffers_in(state, *Mode):
        if not is_shared_memory(decl):
            continue
        made.append(n.Barrier(state.random.choice(BARRIER_ORDERS)))
        state.uses[decl.name] = Use(Mode.OWNED, mirrored=state.random.random() < 0.3)
        made.append(n.Store(decl.name, own_index(state, decl), expression(state, decl.dtype, Level.DIVERGENT, 1)))
        made.append(n.Barrier())
        state.uses[decl.name] = Use(Mode.SHARED)
        other = (n.Var(MEMBER) + leaf(state, DType.U32, Level.DIVERGENT, 0)) % n.BufLen(decl.name)
        made.append(sink(state, n.Load(decl.name, other), decl.dtype))
    return made


def _subgroup_value(state: State) -> list[Stmt]:
    dtype = state.random.choice((DType.U32, *state.profile.usable_types))
    value = subgroup(state, dtype, Level.DIVERGENT, 1)
    return [] if value is None else [sink(state, value, dtype)]


def _old_value(state: State) -> list[Stmt]:
    """An atomic on an element of the invocation's own, whose result is used."""
    owned = [d for d in buffers_in(state, Mode.OWNED) if d.access.readable and has_atomics(state, d.dtype)]
    if not owned:
        return []
    decl = state.random.choice(owned)
    op = state.random.choice(list(AtomicOp))
    return [sink(state, atomic(state, op, decl, own_index(state, decl), 1), decl.dtype)]


def _beyond_the_end(state: State) -> list[Stmt]:
    """Loads around both ends of a buffer, and stores and atomics behind its end, which nobody can notice."""
    random = state.random
    made: list[Stmt] = []
    for decl in random.sample(list(state.buffers.values()), min(3, len(state.buffers))):
        if state.uses[decl.name].mode is Mode.SHARED:
            # No stores here, even without effect: the checker would not count on it that all read the same.
            made.append(sink(state, n.Load(decl.name, _around_the_end(state, decl)), decl.dtype))
            continue
        behind = n.BufLen(decl.name) + any_index(state, decl, Level.DIVERGENT) % random.choice((1, 3, 40))
        if decl.access.readable and has_atomics(state, decl.dtype):
            op = random.choice(list(AtomicOp))
            made.append(sink(state, atomic(state, op, decl, behind, 1), decl.dtype))
        made.append(n.Store(decl.name, behind, expression(state, decl.dtype, Level.DIVERGENT, 1)))
    return made


def _around_the_end(state: State, decl: BufferDecl) -> Expr:
    me, length = n.Var(ME), n.BufLen(decl.name)
    return state.random.choice(
        (
            me + length - state.random.randrange(9),
            length - 1 - me,
            me + ((1 << 32) - state.random.randint(1, 9)),
            me * 0x5555_5555,
            me * state.random.randint(2, 5),
            lit((1 << 32) - 1) - me % 3,
        )
    )


def _jumps_between_barriers() -> Iterator[tuple[str, Situation]]:
    jumps: dict[str, tuple[Step, tuple[str, ...]]] = {
        "break": (_leaving(n.Break()), ("break",)),
        "continue": (_leaving(n.Continue()), ("continue",)),
        "return": (_leaving(n.Return(), Level.DIVERGENT), ("return", "early_returns")),
        "group_return": (_leaving(n.Return(), Level.WORKGROUP), ("return", "early_returns")),
    }
    for scope, point, meeting in (
        (Level.WORKGROUP, "barriers", ("workgroup_barriers", "barrier", "loop", "if")),
        (Level.GRID, "grid_syncs", ("grid_syncs", "grid_sync", "loop", "if")),
    ):
        for name, (leave, needs) in jumps.items():
            yield f"{name}_between_{point}", Situation(_between_barriers(scope, leave), (*meeting, *needs))
        inner = _between_barriers(scope, _leaving(n.Break()), _leaving(n.Continue()))
        outer = _looping(scope, _meeting(scope), _leaving(n.Continue()), inner, _meeting(scope), _leaving(n.Break()))
        yield f"loops_between_{point}", Situation(outer, (*meeting, "break", "continue"))


_RAGGED_NEEDS: Final = ("loop", "if", "break", "continue")
_RAGGED: Final = (_leaving(n.Continue()), _anything, _leaving(n.Break()))

SITUATIONS: Final[dict[str, Situation]] = {
    **dict(_jumps_between_barriers()),
    "barriers_in_branches": Situation(
        _branching(Level.WORKGROUP, _anything, _meeting(Level.WORKGROUP, change=True), _anything),
        ("workgroup_barriers", "barrier", "if"),
    ),
    "ragged_loops": Situation(
        _looping(Level.DIVERGENT, *_RAGGED, _looping(Level.DIVERGENT, *_RAGGED, _leaving(n.Return()))),
        (*_RAGGED_NEEDS, "return", "early_returns"),
    ),
    "subgroups_in_ragged_loops": Situation(
        _looping(Level.DIVERGENT, _subgroup_value, *_RAGGED, _branching(Level.DIVERGENT, _subgroup_value)),
        (*_RAGGED_NEEDS, "subgroups"),
    ),
    "atomics_in_ragged_loops": Situation(
        _looping(Level.DIVERGENT, _old_value, *_RAGGED, _producing("change"), _branching(Level.DIVERGENT, _old_value)),
        (*_RAGGED_NEEDS, "atomics", "change"),
    ),
    "shared_memory": Situation(
        _looping(Level.WORKGROUP, _pass_on, _leaving(n.Return(), Level.DIVERGENT), _pass_on),
        ("workgroup_barriers", "workgroup_memory", "barrier", "loop", "if", "return", "early_returns"),
    ),
    "transfers_in_loops": Situation(
        _looping(Level.DIVERGENT, _producing("transfer"), *_RAGGED, _branching(Level.DIVERGENT, _producing("copy"))),
        (*_RAGGED_NEEDS, "transfers", "transfer", "copy"),
    ),
    "traps_in_loops": Situation(
        _looping(Level.GRID, _producing("trap"), _meeting(Level.GRID), _leaving(n.Break()), _producing("trap")),
        ("traps", "trap", "grid_syncs", "grid_sync", "loop", "if", "break"),
    ),
    "beyond_the_end": Situation(
        lambda state: in_turn(state, _beyond_the_end, _branching(Level.DIVERGENT, _beyond_the_end)),
        ("if", "store"),
    ),
}
