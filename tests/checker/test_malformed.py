"""Data built by hand can hold anything: the checker says what is wrong, whatever it is."""

from __future__ import annotations

from itertools import product
from typing import Any

import msgspec
import pytest

from vyre.checker import check
from vyre.ir import Access, BufferDecl, MemoryOrder, Program, parse
from vyre.ir import nodes as n
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

_ZERO = n.lit(0)
_BUFFER = BufferDecl.read_write("a", 0, DType.U32)

# One legal node of each class; a field of it is then spoiled.
EXPRESSIONS: tuple[n.Expr, ...] = (
    n.Lit(0, DType.U32), n.Var("v"), n.Load("a", _ZERO), n.BufLen("a"), n.InvocationId(0), n.WorkgroupId(0),
    n.LocalId(0), n.NumWorkgroups(0), n.BinOp("add", _ZERO, _ZERO), n.UnOp("not", _ZERO),
    n.Select(n.lit(True), _ZERO, _ZERO), n.Cast(DType.U32, _ZERO), n.Bitcast(DType.U32, _ZERO),
    n.Fma(n.lit(1.0), n.lit(1.0), n.lit(1.0)), n.Atomic(AtomicOp.ADD, "a", _ZERO, _ZERO),
    n.SubgroupBallot(n.lit(True)), n.SubgroupShuffle(_ZERO, _ZERO), n.SubgroupReduce("add", _ZERO),
    n.Call("test.malformed", (_ZERO,)), n.OpaqueExpr("test.malformed", b""),
)  # fmt: skip
STATEMENTS: tuple[n.Stmt, ...] = (
    n.Let("x", _ZERO), n.Assign("v", _ZERO), n.Store("a", _ZERO, _ZERO), n.If(n.lit(True), (), ()),
    n.Loop("k", _ZERO, _ZERO, ()), n.While(n.lit(False), ()), n.Barrier(), n.Block(()), n.Region("r", None, ()),
    n.AsyncLoad("a", "a", _ZERO, _ZERO, "t"), n.AsyncStore("a", "a", _ZERO, _ZERO, "t"), n.AsyncWait("t"),
    n.CopyBytes("a", "c", _ZERO, _ZERO, _ZERO),
    n.IndirectDispatch("a", 0), n.Trap(_ZERO, "t"), n.Resume("t"), n.AllReduce("add", "a", "g"),
    n.AllGather("a", "a", "g"), n.ReduceScatter("add", "a", "a", "g"), n.Broadcast("a", 0, "g"),
    n.OpaqueStmt("test.malformed", b""),
)  # fmt: skip
WRONG: tuple[Any, ...] = (
    3.5, True, -7, "word", None, b"bytes", [], {}, (), (1,), DType.F32, MemoryOrder.RELAXED, AtomicOp.ADD, object(),
    n.lit(1.5), n.Return(), (n.Return(),), [n.Return()], (_ZERO,), n.Lit, _BUFFER, n.Block, 1 << 80, float("nan"),
)  # fmt: skip


def _spoiled(nodes: tuple[Any, ...]) -> list[tuple[Any, str, Any]]:
    return [
        (node, field.name, wrong) for node, wrong in product(nodes, WRONG) for field in msgspec.structs.fields(node)
    ]


def _program(*body: Any) -> Program:
    return Program.new([_BUFFER], 64, [n.Let("v", _ZERO), *body])


def test_every_class_is_here() -> None:
    without_fields = {n.SubgroupLocalId, n.SubgroupSize, n.Break, n.Continue, n.Return}
    assert {type(node) for node in EXPRESSIONS} | without_fields >= set(n.EXPRESSION_CLASSES)
    assert {type(node) for node in STATEMENTS} | without_fields >= set(n.STATEMENT_CLASSES)


def _fits(old: Any, new: Any) -> bool:
    """Whether a value is of the field's type, so that the node is not malformed (though it may be illegal)."""
    if isinstance(old, n.Expr) or old is None:
        return isinstance(new, n.Expr) or new is None or isinstance(new, str)
    if isinstance(old, tuple):
        return isinstance(new, tuple) and all(isinstance(part, (n.Expr, n.Stmt)) for part in new)
    return type(old) is type(new)


def test_a_wrong_field_is_named() -> None:
    for node, field, wrong in _spoiled(EXPRESSIONS):
        spoiled = msgspec.structs.replace(node, **{field: wrong})
        _check_spoiled(_program(n.Let("x", spoiled)), getattr(node, field), wrong)
        _check_spoiled(_program(n.Block((n.Let("x", n.Cast(DType.U32, spoiled)),))), getattr(node, field), wrong)
    for node, field, wrong in _spoiled(STATEMENTS):
        _check_spoiled(_program(msgspec.structs.replace(node, **{field: wrong})), getattr(node, field), wrong)


def _check_spoiled(program: Program, old: Any, wrong: Any) -> None:
    report = check(program)
    assert report.render(program) or report.ok
    if not _fits(old, wrong):
        assert [found.code for found in report.errors] == ["V050"], program.entry


@pytest.mark.parametrize("thing", [3, None, "x", _ZERO, object(), (n.Return(),), n.Return])
def test_a_thing_that_is_no_statement(thing: Any) -> None:
    for program in (_program(thing), _program(n.Block((thing,))), _program(n.If(n.lit(True), (), (thing,)))):
        (found,) = check(program).errors
        assert found.code == "V050"
        assert found.place.statement is not None


class _Sum(n.Let):
    pass


def test_a_class_of_somebody_else() -> None:
    assert [found.code for found in check(_program(_Sum("x", _ZERO))).errors] == ["V050"]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("field", [field.name for field in msgspec.structs.fields(BufferDecl)])
def test_a_wrong_field_of_a_buffer(field: str, wrong: Any) -> None:
    program = Program.new([msgspec.structs.replace(_BUFFER, **{field: wrong})], 64, [])
    report = check(program)
    assert report.render(program) or report.ok
    if not report.ok and type(wrong) is not type(getattr(_BUFFER, field)):
        assert {found.code for found in report.errors} <= {"V050", "V078"}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("field", ["name", "buffers", "workgroup_size", "entry", "subgroup_size"])
def test_a_wrong_field_of_a_program(field: str, wrong: Any) -> None:
    program = msgspec.structs.replace(Program.empty(), **{field: wrong})
    report = check(program)
    assert report.render(program) or report.ok


def test_a_list_that_contains_itself() -> None:
    body: list[Any] = []
    loop = n.Block(body)  # type: ignore[arg-type]
    body.append(loop)
    assert [found.code for found in check(_program(loop)).errors] == ["V050"]


def test_messages_name_the_field() -> None:
    report = check(_program(n.Let(3, _ZERO)))  # type: ignore[arg-type]
    assert report.errors[0].message == "'name' of Let is 3, not str."
    report = check(_program(n.Store("a", _ZERO, n.BinOp("add", _ZERO, 1))))  # type: ignore[arg-type]
    assert report.errors[0].message == "'right' of BinOp is 1, not Expr."
    report = check(Program.new([msgspec.structs.replace(_BUFFER, access="read")], 64, []))
    assert report.errors[0].message == "'access' of buffer 0 is 'read', not Access."


def test_well_formed_access_words() -> None:
    assert check(parse("program p(workgroup 1) {\n buffer 0 a: u32[] read\n}")).ok
    assert Access.READ_ONLY.readable
