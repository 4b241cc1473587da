"""How programs are cut: the facts of splitting, the shape of segments and plans."""

from __future__ import annotations

import pytest

from everywhere import run_everywhere
from vyre.checker import check
from vyre.errors import BadInputs, InvalidProgram, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.buffers import Access, BufferDecl, Role
from vyre.ir.build import barrier, block, gid, grid_sync, if_, load, loop, region, store
from vyre.ir.launch import decide_launch
from vyre.ir.limits import MAX_NESTING
from vyre.ir.program import Program
from vyre.ir.wire import encode
from vyre.lower import DONE, contains_grid_sync, cut_program, describe_plan, plan_grid_sync, split_on_grid_sync
from vyre.semantics.types import DType

OUT = BufferDecl.output("out", 0, DType.U32, 8)


def stores(*numbers: int) -> Program:
    """One store for each number, in a region of its own, with a grid barrier between each two."""
    entry: list[n.Stmt] = []
    for number in numbers:
        entry += [region(f"part{number}", [store("out", number, number)]), grid_sync()]
    return Program.wrapped([OUT], (8, 1, 1), entry[:-1])


def test_without_a_barrier_the_program_is_its_only_segment() -> None:
    program = stores(1)
    assert not contains_grid_sync(program)
    (segment,) = split_on_grid_sync(program)
    assert segment is program


@pytest.mark.parametrize("count", [2, 4])
def test_each_barrier_makes_one_segment_more(count: int) -> None:
    program = stores(*range(count))
    assert contains_grid_sync(program)
    segments = split_on_grid_sync(program)
    assert len(segments) == count
    for number, segment in enumerate(segments):
        found = [s.index.value for s in walk.statements(segment.entry) if isinstance(s, n.Store)]
        assert found == [number]
        assert segment.workgroup_size == (8, 1, 1)
        assert [decl.name for decl in segment.buffers] == ["out"]
        assert check(segment).ok
        assert parse(str(segment)) == segment


def test_a_barrier_in_a_block_splits_the_block_and_keeps_where_parts_come_from() -> None:
    inner = [store("out", 0, 1), grid_sync(), store("out", 1, 1)]
    program = Program.new([OUT], 8, [block(region("made", inner, "by hand")), store("out", 2, 1)])
    first, second = split_on_grid_sync(program)
    assert first.entry == (block(region("made", inner[:1], "by hand")),)
    assert second.entry == (block(region("made", inner[2:], "by hand")), store("out", 2, 1))


def test_each_segment_is_in_the_root_region_of_the_program() -> None:
    (root,) = stores(1, 2).entry
    assert isinstance(root, n.Region)
    assert [segment.entry for segment in split_on_grid_sync(stores(1, 2))] == [
        (region(root.generator, [region(f"part{number}", [store("out", number, number)])]),) for number in (1, 2)
    ]


def test_nothing_between_two_barriers_is_a_segment_too() -> None:
    program = Program.new([OUT], 8, [store("out", 0, 1), grid_sync(), grid_sync(), store("out", 1, load("out", 0) + 1)])
    segments = split_on_grid_sync(program)
    assert [sum(isinstance(s, n.Store) for s in walk.statements(part.entry)) for part in segments] == [1, 0, 1]
    assert run_everywhere(program)["out"][:2] == [1, 2]


def test_a_workgroup_barrier_does_not_split() -> None:
    program = Program.new([OUT], 8, [store("out", 0, 1), barrier(), store("out", 1, 1)])
    assert not contains_grid_sync(program)
    assert split_on_grid_sync(program) == [program]


def test_outputs_become_read_write_so_that_parts_are_kept() -> None:
    buffers = [
        BufferDecl.output("out", 0, DType.U32, 8).with_output_byte_range(4, 8),
        BufferDecl("only", 1, Access.WRITE_ONLY, DType.U32, 8),
        BufferDecl.read_write("live", 2, DType.U32, 8).with_pipeline_live_out(),
        BufferDecl.read("fixed", 5, DType.U32, 8).with_hints(cache="yes"),
    ]
    program = Program.new(buffers, 8, [store("out", 0, 1), grid_sync(), store("only", 1, 1)])
    for segment in split_on_grid_sync(program):
        assert [decl.role for decl in segment.buffers] == [*[Role.INPUT_OUTPUT] * 3, Role.INPUT]
        assert [decl.output_byte_range for decl in segment.buffers] == [None] * 4
        assert [decl.binding for decl in segment.buffers] == [0, 1, 2, 5]
        assert segment.buffers[3] == buffers[3]


def test_hidden_names_and_bindings_are_new() -> None:
    text = """
    program names(workgroup 2) {
      buffer 3 state_rows: u32[] readwrite
      buffer 9 row: u32[] readwrite
      let group = state_rows[gid.x]
      group = group + row[0]
      grid_sync
      row[gid.x] = group
    }"""
    first, second = split_on_grid_sync(parse(text))
    for segment in (first, second):
        assert check(segment).ok
        names = [decl.name for decl in segment.buffers]
        assert len(set(names)) == len(names)
        assert len({decl.binding for decl in segment.buffers}) == len(names)
    run_everywhere(text, {"state_rows": [5, 6], "row": [1, 2]})


def test_driven_programs_are_planned_not_split() -> None:
    program = parse("program p(workgroup 1) { buffer 0 a: u32[4] readwrite; if len(a) == 4 { grid_sync }; a[0] = 1 }")
    with pytest.raises(InvalidProgram, match="plan_grid_sync"):
        split_on_grid_sync(program)
    plan = plan_grid_sync(program, decide_launch(program, {"a": 4}))
    assert not plan.straight
    assert list(plan.edges) == [(0, DONE), (0, 1), (1, DONE)]


def test_what_is_cheap_and_constant_is_computed_again() -> None:
    text = """
    program again(workgroup 2) {
      buffer 0 fixed: u32[4] read
      buffer 1 a: u32[4] readwrite
      let i = gid.x
      let j = i * 2 + len(a)
      let f = fixed[i]
      let kept = a[i]
      grid_sync
      a[j % 4] = f + kept
    }"""
    cut = cut_program(parse(text))
    assert cut.state is not None
    (spill,) = cut.state.spills.at
    assert [one.name for one in spill.carried] == ["kept"]
    assert spill.restored == {"i", "j", "f", "kept"}


def test_variables_that_never_cross_together_share_a_column() -> None:
    body = "\n".join(f"let v{k} = a[gid.x]; grid_sync; a[gid.x] = v{k} + 1; grid_sync" for k in range(20))
    program = parse(f"program shared(workgroup 2) {{ buffer 0 a: u32[4] readwrite; {body} }}")
    cut = cut_program(program)
    assert cut.state is not None
    assert cut.state.spills.columns == 1


def test_a_plan_is_the_same_every_time() -> None:
    text = """
    program same(workgroup 4) {
      buffer 0 a: u32[] readwrite
      buffer 1 tile: f32[4] workgroup
      let x = a[gid.x]; let y = f32(x); let z = x == 3; let w = i64(x)
      tile[lid.x] = y
      for k in 0 .. len(a) { grid_sync; y = y + tile[0]; if z { w = w + 1i64 } }
      a[gid.x] = u32(y) + u32(w) + x
    }"""
    plans = [cut_program(parse(text)) for _ in range(3)]
    encoded = [[encode(segment.program) for segment in plan.segments] for plan in plans]
    assert encoded[0] == encoded[1] == encoded[2]


def test_a_plan_is_drawn() -> None:
    text = """
    program drawn(workgroup 4) {
      buffer 0 a: u32[8] readwrite
      let x = a[gid.x]
      for k in 0 .. 3 {
        x = x + k
        grid_sync
      }
      a[gid.x] = x
    }"""
    program = parse(text)
    assert describe_plan(plan_grid_sync(program, decide_launch(program, {"a": 8}))) == (
        "plan of drawn: 2 segments, driven by its control word\n"
        "  grid 2 x 1 x 1, 8 invocations\n"
        "\n"
        "segments\n"
        "  [0] start: 11 statements\n"
        "   +--> end, [1]\n"
        "  [1] after grid_sync, cut 1: 11 statements\n"
        "   +--> end, [1]\n"
        "\n"
        "carried: 48 bytes\n"
        "  control     8 bytes (per grid): the next segment, and whether traps wait for the host\n"
        "  state_rows  32 bytes (per invocation): x\n"
        "  cut1_out    4 bytes twice (per grid): at cut 1: k\n"
    )
    straight = stores(1, 2)
    drawn = describe_plan(plan_grid_sync(straight, decide_launch(straight, {})))
    assert "straight: each segment is followed by the next" in drawn
    assert drawn.endswith("carried: nothing\n")


def test_state_that_cannot_be_indexed_is_refused() -> None:
    body = "let x = a[gid.x]; grid_sync; a[gid.x] = x"
    program = parse(f"program big(workgroup 64) {{ buffer 0 a: u32[4] readwrite; {body} }}")
    with pytest.raises(BadInputs, match="smaller grid"):
        plan_grid_sync(program, decide_launch(program, {"a": 4}, grid=(1 << 24, 4)))


def test_deep_nesting_is_cut_or_refused_by_name() -> None:
    def nested(depth: int) -> Program:
        body: list[n.Stmt] = [grid_sync(), store("out", gid(), load("out", gid()) + 1)]
        for level in range(depth):
            body = [loop(f"k{level}", 0, 1, body)] if level % 2 else [if_(n.BufLen("out").eq(8), body)]
        return Program.new([OUT], 8, body)

    deep = cut_program(nested(MAX_NESTING - 4))
    assert all(check(segment.program).ok for segment in deep.segments)
    assert run_everywhere(nested(20))["out"] == [1] * 8


def test_a_jump_past_a_resume_is_refused() -> None:
    text = """
    program past(workgroup 2) {
      buffer 0 a: u32[4] read
      for k in 0 .. 3 {
        if a[1] == 1 { trap(1, "t") }
        if a[0] == k { continue }
        resume("t")
      }
    }"""
    with pytest.raises(UnsupportedFeature, match="past the resume"):
        cut_program(parse(text))
