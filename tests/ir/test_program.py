"""Programs, buffers and launches: roles, copies, counts, sizes."""

from __future__ import annotations

import pytest

from vyre.errors import BadInputs
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.launch import decide_launch
from vyre.ir.limits import MAX_AXIS_INVOCATIONS
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32


@pytest.mark.parametrize(
    ("decl", "role", "takes", "gives"),
    [
        (BufferDecl.read("a", 0, U32), Role.INPUT, True, False),
        (BufferDecl.uniform("a", 0, U32), Role.INPUT, True, False),
        (BufferDecl.read_write("a", 0, U32), Role.INPUT_OUTPUT, True, True),
        (BufferDecl.storage("a", 0, U32), Role.INPUT_OUTPUT, True, True),
        (BufferDecl.output("a", 0, U32), Role.OUTPUT, False, True),
        (BufferDecl("a", 0, Access.WRITE_ONLY, U32), Role.OUTPUT, False, True),
        (BufferDecl.read_write("a", 0, U32).with_pipeline_live_out(), Role.OUTPUT, False, True),
        (BufferDecl.workgroup("a", U32, 4), Role.SHARED, False, False),
    ],
)
def test_one_predicate_says_what_a_buffer_is(decl: BufferDecl, role: Role, takes: bool, gives: bool) -> None:
    assert decl.role is role
    assert (role.takes_input, role.gives_output) == (takes, gives)


def test_inputs_and_outputs_are_numbered_in_declaration_order() -> None:
    program = Program.new(
        [BufferDecl.output("o", 3, U32), BufferDecl.read_write("rw", 1, U32), BufferDecl.read("i", 0, U32)], 1, []
    )
    assert [decl.name for decl in program.input_buffers()] == ["rw", "i"]
    assert [decl.name for decl in program.output_buffers()] == ["o", "rw"]


def test_copies_change_one_thing() -> None:
    program = Program.wrapped([BufferDecl.read("a", 0, U32)], 64, [b.return_()])
    assert isinstance(program.entry[0], n.Region)
    assert program.with_workgroup_size((8, 8)).workgroup_size == (8, 8, 1)
    assert program.with_entry([]).buffers == program.buffers
    assert program.with_buffers([]).entry == program.entry
    assert program == program.with_name("other").with_name("main")
    assert program != program.with_name("other")
    assert program != program.with_subgroup_size(16)
    assert len({program, program.with_name("main"), program.with_name("x")}) == 2
    assert Program.empty().stats().statements == 0
    with pytest.raises(BadInputs, match="one to three axes"):
        program.with_workgroup_size((1, 1, 1, 1))


def test_stats_count_kinds_depths_and_flags() -> None:
    body = [
        b.let("x", b.atomic_add("a", b.gid(0) + 1, 2)),
        b.if_(True, [b.grid_sync(), b.barrier()]),
        b.let("y", b.cast(DType.F64, b.subgroup_size())),
    ]
    stats = Program.new([BufferDecl.storage("a", 0, U32)], 1, body).stats()
    assert (stats.statements, stats.nesting, stats.expressions, stats.expression_depth) == (5, 1, 8, 3)
    assert stats.has_atomics
    assert stats.has_barriers
    assert stats.grid_syncs == 1
    assert stats.has_subgroup_ops
    assert not stats.has_async
    assert not stats.has_traps
    assert stats.dtypes == {U32, DType.BOOL, DType.F64}
    assert stats.complete


def test_stats_stop_at_a_tree_without_end() -> None:
    doubled: n.Expr = b.gid(0)
    for _ in range(200):
        doubled = doubled + doubled
    assert not Program.new([], 1, [b.let("x", doubled)]).stats().complete
    block: n.Stmt = b.block()
    for _ in range(60):
        block = b.block(block, block)
    assert not Program.new([], 1, [block]).stats().complete
    wide = b.block(*[b.block(*[b.return_()] * 100_000)] * 100_000)
    assert not Program.new([], 1, [wide]).stats().complete
    calls: n.Expr = b.call("f", *[b.gid(0)] * 10_000)
    for _ in range(5):
        calls = b.call("f", *[calls] * 10_000)
    assert not Program.new([], 1, [b.let("x", calls)]).stats().complete


def test_literals_take_the_type_beside_them_and_must_fit() -> None:
    assert (b.cast(DType.I64, 1) + 5).right == b.lit(5, DType.I64)
    assert (b.gid(0) + 5).right == b.lit(5)
    assert (1.5 * b.var("x")).left == b.lit(1.5)
    assert b.lit(-1, DType.I8).bits == 0xFF
    assert b.lit(-1, DType.I8).value == -1
    with pytest.raises(ValueError, match="not a value of u8"):
        b.lit(256, DType.U8)
    with pytest.raises(ValueError, match="not a value of u32"):
        b.gid(0) + -1
    with pytest.raises(TypeError, match="no truth value"):
        bool(b.gid(0) < 1)


def launch_of(program: Program, counts: dict[str, int], **options: object) -> tuple[tuple[int, int, int], int]:
    launch = decide_launch(program, counts, **options)  # type: ignore[arg-type]
    return launch.grid, launch.elements


def test_the_grid_follows_the_outputs() -> None:
    program = Program.new([BufferDecl.read("big", 0, U32), BufferDecl.output("o", 1, U32, 100)], 64, [])
    assert launch_of(program, {"big": 10_000}) == ((2, 1, 1), 100)


@pytest.mark.parametrize(
    "together", [b.let("x", b.atomic_add("rw", 0, 1)), b.let("x", b.subgroup_lane())], ids=["atomic", "subgroup"]
)
def test_the_grid_follows_all_buffers_when_invocations_work_together(together: n.Stmt) -> None:
    buffers = [BufferDecl.read("big", 0, U32), BufferDecl.read_write("rw", 1, U32, 1)]
    assert launch_of(Program.new(buffers, 64, []), {"big": 1000, "rw": 1})[0] == (1, 1, 1)
    assert launch_of(Program.new(buffers, 64, [together]), {"big": 1000, "rw": 1})[0] == (16, 1, 1)
    shared = Program.new([*buffers, BufferDecl.workgroup("t", U32, 4096)], 64, [])
    assert launch_of(shared, {"big": 1000, "rw": 1})[0] == (16, 1, 1)


def test_overrides_win_and_size_the_outputs() -> None:
    program = Program.new([BufferDecl.read("a", 0, U32), BufferDecl.output("o", 1, U32)], 64, [])
    assert launch_of(program, {"a": 10}, elements=1000) == ((16, 1, 1), 1000)
    launch = decide_launch(program, {"a": 10}, grid=(3, 2))
    assert launch.grid == (3, 2, 1)
    assert launch.counts == {"a": 10, "o": 10}
    assert launch.invocations == 384
    alone = Program.new([BufferDecl.output("o", 1, U32)], 4, [])
    assert decide_launch(alone, {}, grid=(3,)).counts == {"o": 12}
    assert decide_launch(alone, {}).grid == (0, 1, 1)
    with pytest.raises(BadInputs, match="'o' would have"):
        decide_launch(alone, {}, grid=(1 << 29, 4))
    for wrong in (-1, 1 << 32):
        with pytest.raises(BadInputs, match="give a count"):
            decide_launch(alone, {}, elements=wrong)


def test_ids_along_an_axis_are_bounded() -> None:
    program = Program.new([BufferDecl.output("o", 1, U32, 64)], (16, 4), [])
    most = MAX_AXIS_INVOCATIONS
    assert decide_launch(program, {}, grid=(most // 16, most // 4)).grid == (most // 16, most // 4, 1)
    for grid in [(most // 16 + 1,), (1, most // 4 + 1), (1, 1, most + 1)]:
        with pytest.raises(BadInputs, match="ids are u32"):
            decide_launch(program, {}, grid=grid)


def test_wide_workgroups_need_an_explicit_grid() -> None:
    program = Program.new([BufferDecl.output("o", 1, U32, 64)], (8, 8), [])
    with pytest.raises(BadInputs, match="give the grid explicitly"):
        decide_launch(program, {})
    assert decide_launch(program, {}, grid=(1, 1)).invocations == 64
    for wrong in [(), (1, 2, 3, 4), (-1,), (1 << 32,)]:
        with pytest.raises(BadInputs, match="Fix: "):
            decide_launch(program, {}, grid=wrong)


def test_a_literal_is_rounded_once() -> None:
    # Halfway between two f16 plus a little that f32 cannot hold: rounding twice would go to even, down.
    assert b.lit(1.0 + 2.0**-11 + 2.0**-40, DType.F16).value == 1.0 + 2.0**-10
