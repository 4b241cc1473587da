"""How is a generated program free of races by construction? Every buffer has one use at a time.

Between two barriers a buffer is used in one way that cannot conflict (``Mode``); a use changes only at a barrier
wide enough for the change. A list of statements gives every buffer back the use it had where the list began, so
branches join and loops come round with the same uses. Variables have a fixed level of uniformity: one that all
invocations agree on is given only values, under only such control, that all agree on.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from random import Random

import msgspec

from vyre.conform.profile import Profile
from vyre.conform.values import pattern
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.nodes import Expr, lit
from vyre.semantics.types import DType


class Level(IntEnum):
    """Who agrees on a value."""

    GRID = 0
    WORKGROUP = 1
    DIVERGENT = 2


class Mode(Enum):
    """A way for all invocations to use one buffer between two barriers."""

    SHARED = "everyone reads"
    PEEKED = "everyone reads, atomically"
    OWNED = "everyone reads and writes elements of its own"
    GROUP = "everyone reads the elements its workgroup owned before"
    ATOMIC = "everyone changes any element by one commuting atomic, whose result is not used"
    AGREED = "everyone stores one and the same value"
    SETTLED = "everyone stores one and the same value, atomically"
    FILLED = "everyone makes the same transfer into it"


class Use(msgspec.Struct, frozen=True):
    """A mode with what it fixes: the commuting operator, the one value's bits, or how elements are owned.

    ``serial`` tells one FILLED use from another: each is for one transfer in the source.
    """

    mode: Mode
    operator: str = ""
    bits: int = 0
    stride: int = 1
    mirrored: bool = False
    serial: int = 0


class Variable(msgspec.Struct, frozen=True):
    """A variable in scope; an immutable one is read only."""

    name: str
    dtype: DType
    level: Level
    mutable: bool = True


class OpenLoop(msgspec.Struct, frozen=True):
    """A loop around the statement being made: who may leave it together, and the uses at its head."""

    level: Level
    uses: dict[str, Use]
    pins: int


class State(msgspec.Struct):
    """Everything that decides which statement may come next."""

    random: Random
    profile: Profile
    buffers: dict[str, BufferDecl]
    workgroup_size: tuple[int, int, int]
    contiguous: bool
    budget: int
    uses: dict[str, Use]
    fixed: set[str]
    """Buffers whose use never changes."""
    scopes: list[list[Variable]] = msgspec.field(default_factory=lambda: [[]])
    names: list[set[str]] = msgspec.field(default_factory=lambda: [set()])
    control: Level = Level.GRID
    assigned: Level = Level.GRID
    """The least level of a variable that may be assigned here, beside what control asks for."""
    loops: list[OpenLoop] = msgspec.field(default_factory=list)
    pins: int = 0
    """Statements that a jump must not pass over: waits and resumes still to come."""
    pending: int = 0
    """Transfers under way here: nobody may park."""
    repetition: int = 1
    spent: set[int] = msgspec.field(default_factory=set)
    serials: int = 0
    tags: int = 0
    handled: set[str] = msgspec.field(default_factory=set)

    @property
    def group_size(self) -> int:
        x, y, z = self.workgroup_size
        return x * y * z


SINK = "sink"
COUNTS = "counts"
ME = "me"
MEMBER = "member"

COMMUTING = ("add", "and", "or", "xor", "min", "max")


def visible(state: State) -> list[Variable]:
    return [variable for scope in state.scopes for variable in scope]


def fresh_name(state: State, prefix: str) -> str:
    """The first name with this prefix that is not visible: siblings use the same names again."""
    taken = set().union(*state.names)
    number = 0
    while (name := f"{prefix}{number}") in taken or name in state.buffers:
        number += 1
    state.names[-1].add(name)
    return name


def declare(state: State, prefix: str, dtype: DType, level: Level, *, mutable: bool = True) -> Variable:
    variable = Variable(fresh_name(state, prefix), dtype, level, mutable)
    state.scopes[-1].append(variable)
    return variable


def is_shared_memory(decl: BufferDecl) -> bool:
    return decl.access is Access.WORKGROUP


def buffers_in(state: State, *modes: Mode, dtype: DType | None = None) -> list[BufferDecl]:
    """The buffers that are now in one of these modes, of a type if one is given."""
    return [
        decl
        for name, decl in state.buffers.items()
        if state.uses[name].mode in modes and (dtype is None or decl.dtype is dtype)
    ]


def linear_member(workgroup_size: tuple[int, int, int]) -> Expr:
    """The invocation's number in its workgroup."""
    x, y, z = workgroup_size
    place: Expr = n.LocalId(0)
    if y > 1 or z > 1:
        place = place + n.LocalId(1) * x
    return place + n.LocalId(2) * (x * y) if z > 1 else place


def linear_workgroup() -> Expr:
    """The workgroup's number in the grid."""
    row = n.WorkgroupId(1) + n.WorkgroupId(2) * n.NumWorkgroups(1)
    return n.WorkgroupId(0) + row * n.NumWorkgroups(0)


def linear_invocation(state: State) -> Expr:
    """A number of its own for each invocation of the grid; contiguous in a workgroup if the state says so."""
    if state.contiguous:
        return linear_workgroup() * state.group_size + n.Var(MEMBER)
    x, y, _ = state.workgroup_size
    row = n.InvocationId(1) + n.InvocationId(2) * (n.NumWorkgroups(1) * y)
    return n.InvocationId(0) + row * (n.NumWorkgroups(0) * x)


def _all_invocations(state: State) -> Expr:
    return n.NumWorkgroups(0) * n.NumWorkgroups(1) * n.NumWorkgroups(2) * state.group_size


def own_start(state: State, decl: BufferDecl) -> Expr:
    """The first element of the invocation's own, in a buffer that is OWNED."""
    use = state.uses[decl.name]
    if is_shared_memory(decl):
        place: Expr = n.Var(MEMBER)
        last: Expr = lit(state.group_size - 1)
    else:
        place = n.Var(ME)
        last = _all_invocations(state) - 1
    if use.mirrored:
        place = last - place
    return place * use.stride if use.stride != 1 else place


def group_start(state: State, decl: BufferDecl) -> tuple[Expr, int]:
    """The first element that the invocation's workgroup owned, and how many it owned."""
    stride = state.uses[decl.name].stride
    return (n.Var(ME) - n.Var(MEMBER)) * stride, stride * state.group_size


def pick_use(state: State, decl: BufferDecl) -> Use:
    """A use that the buffer's access and type allow."""
    random = state.random
    modes: list[Mode] = []
    if decl.access.readable:
        modes += [Mode.SHARED] * 3
    if decl.access.writable:
        modes += [Mode.OWNED] * 4 + [Mode.AGREED]
        if state.profile.transfers:
            modes.append(Mode.FILLED)
    if decl.access.readable and decl.access.writable and has_atomics(state, decl.dtype):
        modes += [Mode.ATOMIC] * 2 + [Mode.SETTLED, Mode.PEEKED]
    mode = random.choice(modes)
    state.serials += 1
    return Use(
        mode,
        random.choice(COMMUTING) if mode is Mode.ATOMIC else "",
        pattern(random, decl.dtype) if mode in (Mode.AGREED, Mode.SETTLED) else 0,
        random.choice((1, 1, 2, 3)) if mode is Mode.OWNED else 1,
        random.random() < 0.2 if mode is Mode.OWNED else False,
        state.serials if mode is Mode.FILLED else 0,
    )


def has_atomics(state: State, dtype: DType) -> bool:
    return state.profile.atomics and dtype in state.profile.atomic_types


def changes_within_workgroup(state: State, name: str, old: Use, new: Use) -> bool:
    """Whether a workgroup barrier is enough between two uses of a buffer."""
    if old == new or is_shared_memory(state.buffers[name]):
        return True
    ownership = (old.stride, old.mirrored) == (new.stride, new.mirrored) == (old.stride, False)
    return state.contiguous and ownership and {old.mode, new.mode} == {Mode.OWNED, Mode.GROUP}


def change_uses(state: State, scope: Level) -> None:
    """At a barrier of this scope: some buffers get another use."""
    random = state.random
    for name, decl in state.buffers.items():
        use = state.uses[name]
        if name in state.fixed or random.random() < 0.4:
            continue
        if scope is Level.GRID or is_shared_memory(decl):
            state.uses[name] = pick_use(state, decl)
        elif use.mode is Mode.OWNED and state.contiguous and not use.mirrored and decl.access.readable:
            state.uses[name] = msgspec.structs.replace(use, mode=Mode.GROUP)
        elif use.mode is Mode.GROUP:
            state.uses[name] = msgspec.structs.replace(use, mode=Mode.OWNED)


def scope_of_change(state: State, target: dict[str, Use]) -> Level | None:
    """The scope of the barrier that must stand between the present uses and these; None if none must."""
    if state.uses == target:
        return None
    enough = all(changes_within_workgroup(state, name, state.uses[name], use) for name, use in target.items())
    return Level.WORKGROUP if enough else Level.GRID
