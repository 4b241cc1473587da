"""A workgroup cut at its own barriers, and walked segment by segment, gives what it gives as a whole."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from everywhere import SCHEDULES, run_everywhere
from vyre import reference
from vyre.checker import check
from vyre.conform import Profile, generate
from vyre.conform.case import run_on_reference
from vyre.emit.prepare import prepare
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.binding import Array
from vyre.ir.buffers import BufferDecl, Role
from vyre.ir.build import barrier, store
from vyre.ir.launch import Launch, decide_launch
from vyre.ir.program import Program
from vyre.lower import DONE, cut_workgroup
from vyre.reference import Schedule
from vyre.semantics.types import DType

SMALL = Profile(
    max_invocations=8, grid_syncs=False, subgroups=False, traps=False, collectives=False, extensions=False,
    indirect=False, max_nesting=4, expression_depth=2,
    weights=(("barrier", 12), ("loop", 6), ("while", 6), ("break", 8), ("continue", 8), ("return", 4)),
)  # fmt: skip


def lasting(program: Program) -> Program:
    """The program with the memory of its workgroup as buffers of the host, which last."""
    return program.with_buffers(
        BufferDecl.read_write(decl.name, number, decl.dtype, decl.count) if decl.role is Role.SHARED
        else decl.with_binding(number)
        for number, decl in enumerate(program.buffers)
    )  # fmt: skip


def walk_segments(
    program: Program, launch: Launch, inputs: Mapping[str, Array], schedule: Schedule
) -> dict[str, Array]:
    """What a grid of one workgroup gives when it is cut at every barrier."""
    prepared = prepare(program)
    cut = cut_workgroup(prepared.program)
    memory: dict[str, Array] = {
        decl.name: np.zeros(decl.count or launch.counts[decl.name], decl.dtype.storage) for decl in program.buffers
    }
    memory |= {name: array.copy() for name, array in inputs.items()}
    memory |= {capture.buffer: np.zeros(capture.words(launch), np.uint32) for capture in prepared.captures}
    at = 0
    while True:
        part = lasting(cut.segments[at].program)
        assert not part.stats().has_barriers
        for decl in part.buffers:
            memory.setdefault(decl.name, np.zeros(decl.count, decl.dtype.storage))
        if cut.control:
            memory[cut.control] = np.zeros(1, np.uint32)
        given = {decl.name: memory[decl.name] for decl in part.buffers if decl.role.takes_input}
        ran = reference.run(part, given, grid=launch.grid, schedule=schedule, races=True)
        assert ran.races == (), part
        memory |= ran.outputs
        following = at + 1 if cut.straight else int(memory[cut.control][0])
        if cut.straight and following == len(cut.segments):
            following = DONE
        assert following in cut.segments[at].exits or following == DONE
        if following == DONE:
            return {decl.name: memory[decl.name] for decl in program.output_buffers()}
        at = following


@pytest.mark.parametrize(
    "body",
    [
        "tile[lid.x] = gid.x; barrier; out[gid.x] = tile[3 - lid.x]",
        "for k in 0 .. 3 { tile[lid.x] = tile[lid.x] + k; barrier; out[gid.x] = 2 * tile[3 - lid.x]; barrier }",
        "if lid.x == 3 { return }; tile[lid.x] = 9; let x = lid.x; x = x + 1; barrier; out[gid.x] = tile[0] + x",
        "let x = 7; for k in 0 .. 5 { x = x * 3 + k; if k == 3 { break }; barrier; if k == 1 { continue }; x = x + 1 }"
        "; out[gid.x] = x",
        "let w = i64(gid.x); let b = gid.x == 2; let f = f32(gid.x); barrier; if b { w = w + 1i64 }; barrier; "
        "out[gid.x] = u32(w) * 8 + u32(f)",
    ],
)
def test_a_workgroup_cut_at_its_barriers_gives_the_same(body: str) -> None:
    program = parse(
        f"program own(workgroup 4) {{ buffer 0 tile: u32[4] workgroup; buffer 1 out: u32[4] output; {body} }}"
    )
    expected = run_everywhere(program)["out"]
    for schedule in SCHEDULES:
        assert walk_segments(program, decide_launch(program, {}), {}, schedule)["out"].tolist() == expected


def test_a_workgroup_barrier_cuts_the_workgroup_alone() -> None:
    out = BufferDecl.output("out", 0, DType.U32, 8)
    cut = cut_workgroup(Program.new([out], 8, [store("out", 0, 1), barrier(), store("out", 1, 1)]))
    assert cut.straight
    assert cut.slots == ()
    assert [sum(isinstance(s, n.Store) for s in walk.statements(part.program.entry)) for part in cut.segments] == [1, 1]
    assert all(check(part.program).ok and parse(str(part.program)) == part.program for part in cut.segments)


def test_values_that_never_cross_the_same_barrier_share_a_slot() -> None:
    text = "; ".join(f"let x{k} = out[gid.x] * {k}; barrier; out[gid.x] = x{k}; barrier" for k in range(1, 20))
    cut = cut_workgroup(parse(f"program many(workgroup 8) {{ buffer 0 out: u32[8] readwrite; {text} }}"))
    assert [(slot.dtype, slot.is_uniform) for slot in cut.slots] == [(DType.U32, False)]


def test_what_is_made_of_ids_and_agreed_values_is_made_again_and_not_kept() -> None:
    text = "let n = size[0]; let at = gid.x * n + 3; let mine = a[gid.x]; barrier; a[at] = mine; barrier; a[at + 1] = n"
    buffers = "buffer 0 a: u32[] readwrite; buffer 1 size: u32[1] read"
    cut = cut_workgroup(parse(f"program again(workgroup 8) {{ {buffers}; {text} }}"))
    assert sorted((slot.dtype, slot.is_uniform) for slot in cut.slots) == [(DType.U32, False), (DType.U32, True)]
    assert all("let at = gid.x * n + 3" in str(segment.program) for segment in cut.segments)


def test_generated_workgroups_cut_at_their_barriers_give_the_same() -> None:
    compared = 0
    for seed in range(250):
        case = generate(seed, 12, SMALL)
        counts = {name: len(array) for name, array in case.inputs.items()}
        launch = decide_launch(case.program, counts, grid=case.grid, elements=case.elements)
        if launch.grid != (1, 1, 1) or not case.program.stats().has_barriers:
            continue
        expected = run_on_reference(case).outputs
        found = walk_segments(case.program, launch, case.inputs, SCHEDULES[seed % 3])
        for name, array in expected.items():
            assert found[name].tobytes() == array.tobytes(), f"seed {seed}: {name}"
        compared += 1
    assert compared >= 150
