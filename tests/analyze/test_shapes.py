"""What lanes of a vector have in common, and what single nodes give to whom."""

from __future__ import annotations

import itertools

import pytest

from vyre.analyze.agreement import GRID, INVOCATION, SOURCES, SUBGROUP, WORKGROUP, agreed_by
from vyre.analyze.shapes import Layout, Shape, Shapes
from vyre.ir import build, parse
from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.semantics.types import DType

GROUP = Layout((64, 1, 1), 16)
FLAT = Layout((64, 1, 1), 16, flat=True)


def program(body: str) -> Program:
    return parse(f"""
    program p(workgroup 64) {{
      buffer 0 a: u32[] read
      buffer 1 out: u32[] readwrite
      let i = gid.x
      let u = a[0]
      {body}
    }}""")


def stride(body: str, name: str = "x", layout: Layout = FLAT) -> int | None:
    """By how much a variable grows from lane to lane; None if in any way."""
    return Shapes(program(body), layout).variables[name].stride


@pytest.mark.parametrize(("value", "expected"), [
    ("i", 1), ("i + 5", 1), ("5 + i", 1), ("i - u", 1), ("u - i", -1), ("i + i", 2), ("i - i", 0), ("-i", -1),
    ("~i", -1), ("i * 4", 4), ("4 * i", 4), ("i * 4294967295", -1), ("i << 3", 8), ("i << 35", 8), ("i * u", None),
    ("i << u", None), ("3 << i", None), ("i / 2", None), ("i & 7", None), ("(i * 6 + u) - i * 6", 0),
    ("i * 2147483648 * 2", 0), ("u32(i32(i) - 3i32)", 1), ("u32(i64(i) * 2i64)", 2), ("u32(i64(i + 1))", None),
    ("u32(u8(i))", None), ("u32(f32(i))", None), ("select(u > 3, i, i + 7)", 1), ("select(u > 3, i, i * 2)", None),
    ("select(i > 3, i, i + 7)", None), ("u", 0), ("a[u]", 0), ("a[i]", None), ("a[i - i]", 0), ("min(i, u)", None),
    ("lid.x", 1), ("wg.x", 0), ("wg.x * 64 + lid.x", 1), ("gid.y", 0), ("num_wg.x", 0), ("len(a)", 0),
])  # fmt: skip
def test_strides_follow_from_those_of_the_operands(value: str, expected: int | None) -> None:
    assert stride(f"let x = {value}") == expected


@pytest.mark.parametrize(("layout", "shapes"), [
    (FLAT, {"gid.x": 1, "lid.x": 1, "wg.x": 0, "gid.y": 0, "lid.y": 0, "wg.y": 0}),
    (Layout((24, 1, 1), 16, flat=True), {"gid.x": 1, "lid.x": None, "wg.x": None, "gid.y": 0, "wg.y": 0}),
    (GROUP, {"gid.x": 1, "lid.x": 1, "wg.x": 0, "gid.y": 0, "lid.y": 0, "wg.y": 0}),
    (Layout((32, 2, 1), 16), {"gid.x": 1, "lid.x": 1, "wg.x": 0, "gid.y": 0, "lid.y": 0, "gid.z": 0}),
    (Layout((8, 8, 1), 16), {"gid.x": None, "lid.x": None, "wg.x": 0, "gid.y": None, "lid.y": None, "gid.z": 0}),
    (Layout((1, 64, 1), 16), {"gid.x": 0, "lid.x": 0, "gid.y": None}),
    (Layout((64, 1, 1), 1), {"gid.x": 0, "lid.x": 0, "a[gid.x]": 0}),
])  # fmt: skip
def test_ids_have_the_shape_that_the_layout_gives_them(layout: Layout, shapes: dict[str, int | None]) -> None:
    for text, expected in shapes.items():
        assert stride(f"let x = {text}", layout=layout) == expected, text


@pytest.mark.parametrize(("body", "expected"), [
    ("let x = i; x = x + 3", 1),
    ("let x = i; x = x * 2", None),
    ("let x = i; x = u", None),
    ("let x = 1; x = 2", 0),
    ("let x = i; if u > 3 { x = x + 1 }", 1),
    ("let x = i; if i > 3 { x = x + 1 }", None),
    ("let x = i; for k in 0 .. 3 { x = x + k }", 1),
    ("let x = i; for k in 0 .. i { x = x + k }", 1),
    ("let x = i; for k in 0 .. i { x = x + k }; out[0] = x", None),
    ("let x = i; while x < len(a) { out[x] = 1; x = x + 16 }", 1),
    ("let x = i; while x < len(a) { out[x] = 1; x = x + 16 }; out[0] = x", None),
    ("let x = i; while x < len(a) { if a[x] > 3 { continue }; x = x + 16 }", None),
    ("for x in i .. len(a) { out[x] = 1 }", 1),
    ("let y = u; let x = y; for k in 0 .. 3 { x = y; y = i }", None),
])  # fmt: skip
def test_a_variable_has_the_shape_that_all_of_its_values_have(body: str, expected: int | None) -> None:
    assert stride(body) == expected


def test_only_ids_and_what_they_were_widened_to_are_known_not_to_wrap() -> None:
    found = Shapes(
        program("let x = i + 1; let y = u32(i); let z = i64(i); for k in i .. 9 { let m = k }"), FLAT
    ).variables
    assert not found["i"].wraps
    assert found["x"].wraps
    assert not found["y"].wraps
    assert found["z"] == Shape(1, DType.I64, wraps=False)
    assert found["k"].wraps
    assert found["m"].wraps


def test_loops_diverge_where_lanes_leave_them_at_different_times() -> None:
    bodies = {
        "for k in 0 .. u { }": False,
        "for k in 0 .. i { }": True,
        "for k in i .. i + 3 { }": True,
        "while u > 9 { if u > 3 { break } }": False,
        "while u > 9 { if i > 3 { break } }": True,
        "while u > 9 { if i > 3 { continue } }": True,
    }
    for body, expected in bodies.items():
        made = program(body)
        assert bool(Shapes(made, FLAT).divergent) is expected, body


def test_an_assignment_that_stands_in_several_places_is_in_step_only_if_it_is_in_each() -> None:
    again = build.assign("x", n.lit(2))
    start = [build.let("i", n.InvocationId(0)), build.let("x", n.lit(1)), again]
    assert id(again) in Shapes(Program.new((), 64, start), FLAT).in_step
    parted = [*start, build.if_(n.Var("i") < 3, [again])]
    assert id(again) not in Shapes(Program.new((), 64, parted), FLAT).in_step


def test_what_a_larger_group_agrees_on_a_vector_within_it_agrees_on() -> None:
    """The two users of the table: levels of groups, and shapes in vectors that lie in one workgroup."""
    leaves: list[n.Expr] = [
        n.Lit(3, DType.U32),
        n.BufLen("a"),
        n.NumWorkgroups(0),
        n.SubgroupSize(),
        n.SubgroupLocalId(),
    ]
    leaves += [kind(axis) for kind in (n.InvocationId, n.LocalId, n.WorkgroupId) for axis in range(3)]
    for size in itertools.product((1, 4, 64), repeat=3):
        layout = Layout(size, 16)
        for leaf in leaves:
            if agreed_by(leaf, size) <= SUBGROUP:
                assert layout.shape_of(leaf) is Shape.UNIFORM
    for node in (n.SubgroupBallot(n.lit(True)), n.SubgroupReduce("add", n.InvocationId(0))):
        assert agreed_by(node, (64, 1, 1)) == SUBGROUP
        assert GROUP.shape_of(node, [Shape.VARYING]) is Shape.UNIFORM


def test_who_agrees_on_a_node() -> None:
    size = (64, 1, 2)
    assert agreed_by(n.InvocationId(0), size) == INVOCATION
    assert agreed_by(n.InvocationId(1), size) == WORKGROUP
    assert agreed_by(n.LocalId(1), size) == GRID
    assert agreed_by(n.LocalId(2), size) == INVOCATION
    assert agreed_by(n.WorkgroupId(0), size) == WORKGROUP
    assert agreed_by(n.Lit(3, DType.U32) + n.BufLen("a"), size) == GRID
    assert {n.Atomic, n.SubgroupShuffle, n.SubgroupBallot} <= SOURCES
    assert not {n.Lit, n.BufLen, n.BinOp, n.NumWorkgroups} & SOURCES
