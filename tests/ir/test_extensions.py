"""Calls and extensions: replaced by their meaning, in the order of evaluation."""

from __future__ import annotations

import pytest

from vyre.errors import InvalidProgram
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.extensions import CompositeOp, inline_calls, register_extension, register_op
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32
COUNTED = register_op(
    CompositeOp(
        "test.counted",
        (("x", U32),),
        U32,
        b.var("twice") + b.var("old"),
        (b.let("twice", b.var("x") * 2), b.let("old", b.atomic_add("c", 0, 1))),
    )
)
register_op(CompositeOp("test.nested", (("x", U32),), U32, b.call("test.counted", b.var("x") + 1)))
register_op(CompositeOp("test.endless", (), U32, b.call("test.endless")))


def answer(payload: bytes) -> n.Expr:
    return b.lit(payload[0])


def bump(payload: bytes) -> n.Body:
    return (b.let("x", payload[0]), b.store("c", 1, b.load("c", 1) + b.var("x")))


register_extension("test.answer", answer)
register_extension("test.bump", bump)

BUFFERS = [BufferDecl.read_write("c", 0, U32, 4)]


def inlined(*body: n.Stmt) -> Program:
    program = inline_calls(Program.new(BUFFERS, 1, body))
    assert not program.stats().has_extensions
    return program


def test_a_program_without_calls_is_itself() -> None:
    program = Program.new(BUFFERS, 1, [b.store("c", 0, 1)])
    assert inline_calls(program) is program


def test_a_program_is_inlined_once() -> None:
    program = Program.new(BUFFERS, 1, [b.store("c", 2, b.call("test.counted", b.load("c", 1)))])
    assert inline_calls(program) is inline_calls(program)
    assert inline_calls(inline_calls(program)) is inline_calls(program)


def test_what_comes_before_a_call_is_evaluated_before_its_body() -> None:
    program = inlined(b.store("c", 2, b.load("c", 0) + b.call("test.counted", b.load("c", 1)) + b.load("c", 0)))
    order = [
        node.index.value if isinstance(node, n.Load) else "add"
        for node in walk.expressions(program.entry)
        if isinstance(node, (n.Load, n.Atomic))
    ]
    assert order == [0, 1, "add", 0]


def test_nested_definitions_are_inlined_and_names_stay_apart() -> None:
    program = inlined(b.let("twice", b.call("test.nested", 1)), b.let("x", b.call("test.nested", b.var("twice"))))
    names = [s.name for s in walk.statements(program.entry) if isinstance(s, n.Let)]
    assert len(names) == len(set(names))
    assert {"twice", "x"} <= set(names)


def test_a_call_in_a_while_condition_runs_before_each_pass() -> None:
    program = inlined(b.while_(b.call("test.counted", 1) < 10, [b.continue_()]))
    (loop,) = program.entry
    assert isinstance(loop, n.While)
    assert loop.condition == b.lit(True)
    assert any(isinstance(node, n.Atomic) for node in walk.expressions(loop.body))


def test_opaque_nodes_expand_with_names_of_their_own() -> None:
    program = inlined(b.let("x", n.OpaqueExpr("test.answer", b"*")), n.OpaqueStmt("test.bump", b"\x07"))
    assert program.entry[0] == b.let("x", 42)
    assert isinstance(program.entry[1], n.Block)
    assert [s.name for s in walk.statements(program.entry) if isinstance(s, n.Let)].count("x") == 1


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (b.let("x", b.call("test.unknown")), "not registered"),
        (b.let("x", b.call("test.counted")), "takes 1 arguments, not 0"),
        (b.let("x", b.call("test.endless")), "circular"),
        (b.let("x", n.OpaqueExpr("test.bump", b"1")), "used as an expression"),
        (n.OpaqueStmt("test.answer", b"1"), "used as a statement"),
        (n.OpaqueStmt("test.nobody", b"1"), "not registered"),
    ],
)
def test_wrong_uses_are_named(statement: n.Stmt, says: str) -> None:
    with pytest.raises(InvalidProgram, match=says):
        inlined(statement)


def test_registering_again_must_mean_the_same() -> None:
    assert register_op(COUNTED) is COUNTED
    with pytest.raises(InvalidProgram, match="another operation"):
        register_op(CompositeOp("test.counted", (), U32, b.lit(1)))
    with pytest.raises(InvalidProgram, match="another extension"):
        register_extension("test.bump", answer)
    with pytest.raises(InvalidProgram, match="returns"):
        register_op(CompositeOp("test.returns", (), U32, b.lit(1), (b.return_(),)))
