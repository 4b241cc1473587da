"""The type of every expression follows from its leaves."""

from __future__ import annotations

import pytest

from vyre.analyze.types import type_of, variable_types
from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import parse, parse_expression
from vyre.ir.buffers import BufferDecl
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

_BUFFERS = {"a": BufferDecl.read("a", 0, DType.F16), "w": BufferDecl.read_write("w", 1, DType.U64)}
_VARIABLES = {"x": DType.I8, "flag": DType.BOOL}


@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        ("x", DType.I8),
        ("x + x", DType.I8),
        ("abs_diff(x, x)", DType.U8),
        ("x < x", DType.BOOL),
        ("flag & (x == x)", DType.BOOL),
        ("a[0]", DType.F16),
        ("a[len(a) - 1] * 2.0f16", DType.F16),
        ("f64(a[0])", DType.F64),
        ("bitcast(bf16, a[0])", DType.BF16),
        ("select(flag, x, -x)", DType.I8),
        ("gid.x + lid.y + wg.z + num_wg.x", DType.U32),
        ("fma(1.0, 2.0, 3.0)", DType.F32),
        ("atomic_add(w, 0, 1u64)", DType.U64),
        ("subgroup_ballot(flag)", DType.U32),
        ("subgroup_shuffle(a[0], 3)", DType.F16),
        ("subgroup_reduce(max, x)", DType.I8),
        ("subgroup_lane() + subgroup_size()", DType.U32),
        ("is_nan(a[0])", DType.BOOL),
    ],
)
def test_type_of(text: str, dtype: DType) -> None:
    assert type_of(parse_expression(text), _VARIABLES, _BUFFERS) is dtype


@pytest.mark.parametrize("text", ["y", "b[0]", "x + 1", "a[x]", "sqrt(x)", "fma(x, x, x)", "select(x, x, x)"])
def test_an_illegal_expression_has_no_type(text: str) -> None:
    with pytest.raises(InvalidProgram):
        type_of(parse_expression(text), _VARIABLES, _BUFFERS)


@pytest.mark.parametrize("dtype", list(DType))
def test_operators_have_the_types_of_the_table(dtype: DType) -> None:
    for table, build in ((UNARY, lambda op, x: n.UnOp(op, x)), (BINARY, lambda op, x: n.BinOp(op, x, x))):
        for name, row in table.items():
            node = build(name, n.Cast(dtype, n.lit(1)))
            if dtype in row.types:
                assert type_of(node, {}, {}) is row.result_type(dtype)
            else:
                with pytest.raises(InvalidProgram):
                    type_of(node, {}, {})


def test_variable_types_are_in_the_order_of_declaration() -> None:
    program = parse(
        "program p(workgroup 1) {\n"
        "let x = 1.0\n"
        "block { let t = x < 2.0 }\n"
        "for k in 0 .. 4 { let t = i32(k); let u = t + t }\n"
        "let y = x\n"
        "}"
    )
    assert variable_types(program) == [DType.F32, DType.BOOL, DType.U32, DType.I32, DType.I32, DType.F32]


def test_depth_and_width_are_safe() -> None:
    deep: n.Expr = n.lit(1)
    for _ in range(1023):
        deep = n.BinOp("add", n.lit(1), deep)
    assert type_of(deep, {}, {}) is DType.U32
    with pytest.raises(InvalidProgram, match="V033"):
        type_of(n.UnOp("not", deep), {}, {})
