"""How do I get a program to test with? Whole programs from a seed: legal and deterministic by construction.

``generate(seed)`` gives the same case for the same seed, size and profile within a version. Every construct of the
IR occurs; ``vyre.conform.features`` says what consecutive seeds are certain to cover, and
``vyre.conform.discipline`` why no schedule can change what a program gives.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from vyre.arguments import require_whole
from vyre.conform.case import MAILBOX, Case
from vyre.conform.discipline import (
    COMMUTING,
    COUNTS,
    ME,
    MEMBER,
    SINK,
    Level,
    Mode,
    State,
    Use,
    Variable,
    linear_invocation,
    linear_member,
    pick_use,
)
from vyre.conform.features import Feature, features_for, thinned
from vyre.conform.profile import EVERYTHING, Profile
from vyre.conform.situations import Situation, frame_of, situation_for
from vyre.conform.statements import feature_statements, sink, statements
from vyre.conform.values import array_of_patterns, random_array
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.nodes import Stmt
from vyre.ir.program import Program
from vyre.semantics.types import DType

_SINK_STRIDE = 4
_CELLS = "cells"
_VOTES = "votes"
_NAMES = {
    Access.READ_ONLY: "in",
    Access.UNIFORM: "uni",
    Access.READ_WRITE: "rw",
    Access.WRITE_ONLY: "wo",
    Access.WORKGROUP: "tile",
}


def generate(seed: int, size: int = 40, profile: Profile = EVERYTHING) -> Case:
    """The case of a seed, of about ``size`` statements."""
    seed, size = require_whole(seed, "the seed"), require_whole(size, "the size")
    random = Random(f"{seed}/{size}")
    wanted = features_for(profile, seed)
    situation = situation_for(profile, seed)
    profile = thinned(profile, wanted, situation.needs, random)
    workgroup_size, grid = _geometry(random, profile)
    invocations = _product(workgroup_size) * _product(grid)
    indirect = profile.indirect and random.random() < 0.1
    declared = _buffers(random, profile, wanted, situation, invocations, _product(workgroup_size), indirect)
    state = State(
        random,
        profile,
        {decl.name: decl for decl in declared},
        workgroup_size,
        random.random() < 0.7,
        size,
        {},
        {decl.name for decl in declared if decl.name.startswith((SINK, COUNTS, _CELLS, _VOTES))},
    )
    for decl in declared:
        state.uses[decl.name] = _first_use(state, decl)
    entry = _entry(state, wanted, situation, indirect)
    build = Program.wrapped if random.random() < 0.2 and not indirect else Program.new
    program = build(
        declared, workgroup_size, entry, name=f"case_{seed}", subgroup_size=random.choice((32, 16, 8, 8, 4, 4, 2, 1))
    )
    inputs = _inputs(random, profile, program, invocations, grid)
    explicit, elements = _launch(random, program, invocations, grid)
    return Case(program, inputs, explicit, elements, tuple(sorted(state.handled)))


def _product(axes: tuple[int, int, int]) -> int:
    x, y, z = axes
    return x * y * z


def _geometry(random: Random, profile: Profile) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """A workgroup and a grid of at most the profile's invocations."""
    most = profile.max_invocations
    axes = random.choices((1, 2, 3), (5, 3, 2))[0] if profile.multiple_axes else 1
    limits = {1: (40, 1, 1), 2: (6, 5, 1), 3: (4, 3, 2)}[axes]
    x, y, z = (random.randint(1, limit) for limit in limits)
    x = max(1, min(x, most // (y * z)))
    groups = max(1, most // (x * y * z))
    first = random.randint(1, min(groups, max(5, most // 16)))
    if not profile.multiple_axes or random.random() < 0.6:
        return (x, y, z), (first, 1, 1)
    second = random.randint(1, max(1, min(groups // first, 3)))
    return (x, y, z), (first, second, random.randint(1, max(1, min(groups // (first * second), 2))))


def _buffers(
    random: Random,
    profile: Profile,
    wanted: tuple[Feature, ...],
    situation: Situation,
    invocations: int,
    group_size: int,
    indirect: bool,
) -> list[BufferDecl]:
    """Some of every kind; the sink, where every program leaves what it computed; what is needed for what is wanted."""
    types = profile.usable_types
    accesses = [Access.READ_ONLY] * random.randint(1, 3) + [Access.READ_WRITE] * random.randint(1, 3)
    accesses += [Access.UNIFORM] * random.randint(0, 1) + [Access.WRITE_ONLY] * random.randint(0, 1)
    if profile.workgroup_memory:
        accesses += [Access.WORKGROUP] * random.randint(0, 2)
    random.shuffle(accesses)
    wide = DType.U64 if DType.U64 in types else DType.U32
    declared = [BufferDecl.output(SINK, 0, wide, invocations * _SINK_STRIDE)]
    for access in accesses:
        dtype = random.choice((random.choice(types), DType.U32, random.choice(profile.atomic_types or types)))
        declared.append(_buffer(random, access, dtype, len(declared), invocations, group_size))
    changed = [f.dtypes[0] for f in wanted if f.kind == "atomic"]
    if "atomics" in situation.needs and profile.atomic_types:
        changed.append(random.choice(profile.atomic_types))
        declared.append(
            BufferDecl.read_write(f"{_VOTES}{len(declared)}", len(declared), changed[-1], random.randint(1, 9))
        )
    for dtype in dict.fromkeys(changed):
        declared.append(BufferDecl.read_write(f"{_CELLS}{len(declared)}", len(declared), dtype, invocations))
    if "workgroup_memory" in situation.needs:
        declared.append(BufferDecl.workgroup(f"tile{len(declared)}", random.choice(types), group_size))
    if any(f.name == "fixpoint" for f in wanted):
        declared.append(BufferDecl.output(f"flag{len(declared)}", len(declared), DType.U32, 1))
    asks = "traps" in situation.needs or any(f.name == "trap" for f in wanted)
    if profile.traps and (asks or random.random() < 0.3):
        declared.append(BufferDecl.output(MAILBOX, len(declared), DType.U32, random.randint(1, 8)))
    if indirect:
        declared.append(BufferDecl.read(COUNTS, len(declared), DType.U32, 5))
    random.shuffle(declared)
    return declared


def _buffer(random: Random, access: Access, dtype: DType, number: int, invocations: int, group_size: int) -> BufferDecl:
    name = f"{_NAMES[access]}{number}"
    if access is Access.WORKGROUP:
        return BufferDecl.workgroup(name, dtype, random.randint(1, group_size * 2))
    count = random.choice((invocations, 2 * invocations, random.randint(1, 9), 0, 0))
    if access is Access.UNIFORM:
        count = random.randint(1, 4)
    decl = BufferDecl(name, number, access, dtype, count)
    if access is not Access.READ_WRITE:
        return decl
    choice = random.random()
    if choice < 0.4:
        decl = decl.with_output()
    elif choice < 0.5:
        decl = decl.with_pipeline_live_out()
    elif choice < 0.6:
        decl = decl.with_hints(cache="streaming")
    if decl.count and choice > 0.9:
        start, stop = random.randint(0, decl.count // 2), random.randint(decl.count // 2, decl.count)
        decl = decl.with_output_byte_range(start * dtype.bytes, stop * dtype.bytes)
    return decl


def _first_use(state: State, decl: BufferDecl) -> Use:
    if decl.name == SINK:
        return Use(Mode.OWNED, stride=_SINK_STRIDE)
    if decl.name == COUNTS:
        return Use(Mode.SHARED)
    if decl.name.startswith(_CELLS):
        return Use(Mode.OWNED)
    if decl.name.startswith(_VOTES):
        return Use(Mode.ATOMIC, state.random.choice(COMMUTING))
    return pick_use(state, decl)


def _entry(state: State, wanted: tuple[Feature, ...], situation: Situation, indirect: bool) -> list[Stmt]:
    entry: list[Stmt] = [n.IndirectDispatch(COUNTS, state.random.choice((0, 4, 8)))] if indirect else []
    for name, value in ((MEMBER, linear_member(state.workgroup_size)), (ME, linear_invocation(state))):
        entry.append(n.Let(name, value))
        state.names[-1].add(name)
        state.scopes[-1].append(Variable(name, DType.U32, Level.DIVERGENT, mutable=False))
    entry += statements(state, 2)
    entry += frame_of(state, situation)
    for feature in wanted:
        entry += feature_statements(state, feature)
    while state.budget > 0:
        entry += statements(state, state.budget)
    for variable in state.scopes[0]:
        if variable.mutable and state.random.random() < 0.5:
            entry.append(sink(state, n.Var(variable.name), variable.dtype))
    return entry


def _inputs(
    random: Random, profile: Profile, program: Program, invocations: int, grid: tuple[int, int, int]
) -> dict[str, np.ndarray[Any, Any]]:
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for decl in program.input_buffers():
        count = decl.count or random.choice((invocations, random.randint(1, 2 * invocations), 1))
        if not decl.count and profile.zero_lengths and random.random() < 0.15:
            count = 0
        inputs[decl.name] = random_array(random, decl.dtype, count)
    if COUNTS in inputs:
        offset = next(s.count_offset for s in program.entry if isinstance(s, n.IndirectDispatch)) // 4
        inputs[COUNTS] = array_of_patterns([*([9] * offset), *grid, 7, 7][:5], DType.U32)
    return inputs


def _launch(
    random: Random, program: Program, invocations: int, grid: tuple[int, int, int]
) -> tuple[tuple[int, int, int] | None, int | None]:
    """The grid, or a count of elements that comes to as much."""
    flat = program.workgroup_size[1:] == (1, 1) and grid[1:] == (1, 1)
    sized_at_run_time = any(d.role is Role.OUTPUT and not d.count for d in program.buffers)
    if flat and random.random() < (0.5 if sized_at_run_time else 0.2):
        return None, invocations - random.randrange(program.workgroup_size[0])
    return grid, None
