"""Each rule has a program that breaks it, and a program as near to it as can be that does not."""

from __future__ import annotations

import pytest
from checker_support import BUFFERS, all_codes, program, report

from vyre.checker import CODES, Capabilities, Severity, check
from vyre.ir import Access, BufferDecl, Program, build
from vyre.ir import nodes as n
from vyre.ir.extensions import CompositeOp, register_extension, register_op
from vyre.ir.limits import MAX_PAYLOAD_BYTES
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

register_op(CompositeOp("test.twice", (("x", DType.U32),), DType.U32, n.Var("x") + n.Var("x")))
register_op(CompositeOp("test.waits", (("x", DType.U32),), DType.U32, n.Var("x"), (n.Barrier(),)))
register_op(CompositeOp("test.lane", (("x", DType.U32),), DType.U32, n.Var("x") + n.SubgroupLocalId()))
register_op(CompositeOp("test.circle", (("x", DType.U32),), DType.U32, n.Call("test.circular", (n.Var("x"),))))
register_op(
    CompositeOp("test.circular", (("x", DType.U32),), DType.U32, n.Call("test.circle", (n.Var("x"),)) + n.Var("x"))
)


def _nine(payload: bytes) -> n.Expr:
    return n.lit(len(payload))


def _store(payload: bytes) -> n.Body:
    return (n.Store("a", n.lit(payload[0]), n.lit(1)),)


def _endless(payload: bytes) -> n.Expr:
    return n.OpaqueExpr("test.endless", payload)


register_extension("test.length", _nine)
register_extension("test.store", _store)
register_extension("test.endless", _endless)

# A body that breaks a rule, and one that does not.
TEXTS: list[tuple[str, str, str]] = [
    ("V008", "let x = 1\nlet x = 2", "let x = 1\nx = 2"),
    ("V008", "let x = 1\nblock { let x = 2 }", "block { let x = 1 }\nblock { let x = 2 }"),
    ("V008", "let k = 1\nfor k in 0 .. 4 { }", "for k in 0 .. 4 { }\nfor k in 0 .. 4 { }"),
    ("V009", "let x = atomic_add(b, 0, 1)", "let x = atomic_add(a, 0, 1)"),
    ("V009", "let x = atomic_load(n, 0)", "let x = n[0]"),
    ("V010", "if lid.x == 0 { barrier }", "if wg.x == 0 { barrier }"),
    ("V011", "for k in 0 .. 4 { k = 1 }", "for k in 0 .. 4 { let j = k; j = 1 }"),
    ("V012", "let x = bitcast(f32, 1u64)", "let x = bitcast(f32, 1)"),
    ("V012", "let x = bitcast(u8, true)", "let x = u8(true)"),
    ("V014", "let x = atomic_add(f, 0, 1.0)", "let x = atomic_add(i, 0, 1i32)"),
    ("V016", 'let x = call("test.nowhere", 1)', 'let x = call("test.twice", 1)'),
    ("V020", 'let x = call("test.twice", 1, 2)', 'let x = call("test.twice", 1)'),
    ("V027", "let x = a[1i32]", "let x = a[u32(1i32)]"),
    ("V027", "a[1.0] = 1", "a[1] = 1"),
    ("V027", "let x = atomic_add(a, true, 1)", "let x = atomic_add(a, u32(true), 1)"),
    ("V028", "let x = fma(1.0, 2.0, 3.0f64)", "let x = fma(1.0, 2.0, 3.0)"),
    ("V028", "let x = fma(1, 2, 3)", "let x = fma(1.0f64, 2.0f64, 3.0f64)"),
    ("V029", "let x = select(true, 1, 2.0)", "let x = select(true, 1.0, 2.0)"),
    ("V036", "let x = b[8]", "let x = b[7]"),
    ("V036", "out[16] = 1", "out[15] = 1"),
    ("V036", "let x = atomic_or(out, 4000, 1)", "let x = atomic_or(a, 4000, 1)"),
    ("V042", "let x = atomic_load(a, 0, release)", "let x = atomic_load(a, 0, acquire)"),
    ("V042", "let x = atomic_store(a, 0, 1, acquire)", "let x = atomic_store(a, 0, 1, release)"),
    ("V042", "let x = atomic_add(a, 0, 1, grid_sync)", "let x = atomic_add(a, 0, 1, acq_rel)"),
    ("V043", "barrier(relaxed)", "barrier(acquire)"),
    ("V045", "let x = 1\nx = 2.0", "let x = 1.0\nx = 2.0"),
    ("V046", 'all_reduce(add, b, "world")', 'all_reduce(add, a, "world")'),
    ("V046", 'all_reduce(add, s, "world")', 'all_reduce(add, i, "world")'),
    ("V046", 'all_gather(a, f, "world")', 'all_gather(a, out, "world")'),
    ("V046", 'all_gather(a, a, "world")', 'all_gather(b, a, "world")'),
    ("V046", 'reduce_scatter(add, wo, a, "world")', 'reduce_scatter(add, a, wo, "world")'),
    ("V051", "a[0] = x", "let x = 1\na[0] = x"),
    ("V051", "x = 1", "let x = 0\nx = 1"),
    ("V051", "block { let x = 1 }\na[0] = x", "block { let x = 1; a[0] = x }"),
    ("V051", "if true { let x = 1 } else { a[0] = x }", "if true { let x = 1; a[0] = x }"),
    ("V051", "for k in 0 .. 4 { }\na[0] = k", "for k in 0 .. 4 { a[0] = k }"),
    ("V051", "let x = x", "let y = 0\nlet x = y"),
    ("V052", "q[0] = 1", "a[0] = 1"),
    ("V052", "let x = q[0]", "let x = a[0]"),
    ("V052", "let x = len(q)", "let x = len(a)"),
    ("V052", "let x = atomic_add(q, 0, 1)", "let x = atomic_add(a, 0, 1)"),
    ("V052", 'broadcast(q, 0, "world")', 'broadcast(a, 0, "world")'),
    ("V056", "b[0] = 1", "a[0] = 1"),
    ("V056", "n[0] = 1", "s[0] = 1"),
    ("V056", 'async_load(a, b, 0, 4, "t")\nasync_wait("t")', 'async_load(b, a, 0, 4, "t")\nasync_wait("t")'),
    ("V057", "let x = wo[0]", "wo[0] = 1"),
    ("V057", "let x = atomic_add(wo, 0, 1)", "let x = atomic_add(a, 0, 1)"),
    ("V057", 'async_load(wo, a, 0, 4, "t")\nasync_wait("t")', 'async_load(a, wo, 0, 4, "t")\nasync_wait("t")'),
    ("V059", "let x = 1 + 2i32", "let x = 1i32 + 2i32"),
    ("V059", 'let x = call("test.twice", 1.0)', 'let x = call("test.twice", u32(1.0))'),
    ("V060", "let x = true + false", "let x = true & false"),
    ("V060", "let x = sqrt(4)", "let x = sqrt(4.0)"),
    ("V060", "let x = 1.0 << 2.0", "let x = 1 << 2"),
    ("V060", "let x = !1", "let x = ~1"),
    ("V060", "let x = true < false", "let x = true == false"),
    ("V062", "if 1 { }", "if 1 == 1 { }"),
    ("V062", "while 1.0 { }", "while a[0] != 0 { }"),
    ("V062", "let x = select(1, 2, 3)", "let x = select(true, 2, 3)"),
    ("V062", "let x = subgroup_ballot(1)", "let x = subgroup_ballot(gid.x == 1)"),
    ("V064", "a[0] = 1.0", "f[0] = 1.0"),
    ("V064", "let x = atomic_add(a, 0, 1i32)", "let x = atomic_add(i, 0, 1i32)"),
    ("V064", "let x = atomic_compare_exchange(a, 0, 1i32, 1)", "let x = atomic_compare_exchange(a, 0, 1, 1)"),
    ("V065", "for k in 0i32 .. 4i32 { }", "for k in 0 .. 4 { }"),
    ("V065", "for k in 0 .. 4.0 { }", "for k in 0 .. u32(4.0) { }"),
    ("V066", "break", "while a[0] == 1 { break }"),
    ("V066", "if true { continue }", "for k in 0 .. 4 { if true { continue } }"),
    ("V067", "return\na[0] = 1", "a[0] = 1\nreturn"),
    ("V067", "while a[0] == 1 { break; a[0] = 1 }", "while a[0] == 1 { a[0] = 1; break }"),
    ("V067", "if gid.x == 1 { return } else { return }\na[0] = 1", "if gid.x == 1 { return }\na[0] = 1"),
    ("V067", "while true { a[0] = 1 }\na[0] = 2", "while true { if a[0] == 1 { break } }\na[0] = 2"),
    ("V068", "if wg.x == 0 { grid_sync }", "if num_wg.x == 1 { grid_sync }"),
    ("V069", 'if wg.x == 0 { resume("t") }', 'if len(a) == 1 { resume("t") }'),
    ("V069", 'if gid.x == 0 { broadcast(a, 0, "g") }', 'if n[0] == 0 { broadcast(a, 0, "g") }'),
    ("V070", 'async_wait("t")', 'async_load(b, a, 0, 4, "t")\nasync_wait("t")'),
    (
        "V071",
        'async_load(b, a, 0, 4, "t")\nasync_load(b, a, 0, 4, "t")\nasync_wait("t")',
        'async_load(b, a, 0, 4, "t")\nasync_wait("t")\nasync_load(b, a, 0, 4, "t")\nasync_wait("t")',
    ),
    ("V072", 'async_load(b, a, 0, 4, "t")', 'async_load(b, a, 0, 4, "t")\nasync_wait("t")'),
    (
        "V072",
        'async_store(b, a, 0, 4, "t")\nif gid.x == 1 { return }\nasync_wait("t")',
        'async_store(b, a, 0, 4, "t")\nif gid.x == 1 { async_wait("t"); return }\nasync_wait("t")',
    ),
    (
        "V073",
        'if gid.x == 1 { async_load(b, a, 0, 4, "t") }\nasync_wait("t")',
        'if gid.x == 1 { async_load(b, a, 0, 4, "t") } else { async_load(b, a, 4, 4, "t") }\nasync_wait("t")',
    ),
    ("V074", 'async_load(b, a, 0i32, 4, "t")\nasync_wait("t")', 'async_load(b, a, 0, 4, "t")\nasync_wait("t")'),
    ("V074", 'async_load(b, a, 0, 4.0, "t")\nasync_wait("t")', 'async_store(b, a, 0, 4, "t")\nasync_wait("t")'),
    ("V074", 'trap(1.0, "t")', 'trap(1, "t")'),
    ("V074", "let x = subgroup_shuffle(1.0, 1i32)", "let x = subgroup_shuffle(1.0, 1)"),
    ("V075", "a[0] = 1\nindirect_dispatch(b, 0)", "indirect_dispatch(b, 0)\na[0] = 1"),
    ("V075", "indirect_dispatch(b, 0)\nindirect_dispatch(b, 4)", 'region "r" { indirect_dispatch(b, 0) }'),
    ("V075", "if true { indirect_dispatch(b, 0) }", "block { indirect_dispatch(b, 0) }"),
    ("V076", "indirect_dispatch(i, 0)", "indirect_dispatch(a, 0)"),
    ("V076", "indirect_dispatch(b, 6)", "indirect_dispatch(b, 8)"),
    ("V076", "indirect_dispatch(b, 24)", "indirect_dispatch(b, 20)"),
    ("V076", "indirect_dispatch(out, 0)", "indirect_dispatch(changed, 0)".replace("changed", "a")),
    ("V083", "let x = subgroup_reduce(and, 1.0)", "let x = subgroup_reduce(and, 1)"),
    ("V083", 'all_reduce(xor, f, "g")', 'all_reduce(min, f, "g")'),
    ("V084", 'let x = opaque("test.unknown", x"00")', 'let x = opaque("test.length", x"00")'),
    ("V084", 'let x = opaque("test.store", x"00")', 'opaque("test.store", x"00")'),
    ("V084", 'opaque("test.length", x"00")', 'let x = opaque("test.length", x"")'),
    ("V084", 'opaque("test.store", x"")', 'opaque("test.store", x"01")'),
    ("V084", 'let x = opaque("test.endless", x"")', 'let x = opaque("test.length", x"01")'),
    (
        "V091",
        'async_load(b, a, 0, 4, "m")\nif gid.x == 1 { trap(1, "t") }\nresume("t")\nasync_wait("m")',
        'async_load(b, a, 0, 4, "m")\nif gid.x == 1 { trap(1, "t") }\nresume("u")\nasync_wait("m")',
    ),
    ("V093", 'if gid.x == 1 { let x = call("test.waits", 1) }', 'if n[0] == 1 { let x = call("test.waits", 1) }'),
    ("V096", "copy_bytes(a, a, 0, 4, 4)", "copy_bytes(a, f, 0, 4, 4)"),
    ("V056", "copy_bytes(a, b, 0, 4, 4)", "copy_bytes(b, a, 0, 4, 4)"),
    ("V057", "copy_bytes(wo, a, 0, 4, 4)", "copy_bytes(s, wo, 0, 4, 4)"),
    ("V074", "copy_bytes(a, f, 0, 4, 4.0)", "copy_bytes(a, f, 0, 4, 4)"),
    ("V093", 'let x = call("test.circular", 1)', 'let x = call("test.twice", 1)'),
    ("V095", "a[0] = gid.x", "if gid.x == 0 { a[0] = gid.x }"),
    ("V095", "block { out[3] = lid.x }", "block { out[lid.x] = lid.x }"),
]


@pytest.mark.parametrize(("code", "bad", "good"), TEXTS)
def test_a_rule_is_named_when_broken_and_silent_when_kept(code: str, bad: str, good: str) -> None:
    broken = report(bad)
    assert code in all_codes(broken), broken
    assert all(found.fix and found.message.endswith(".") for found in broken.errors + broken.warnings)
    assert all_codes(report(good)) == []


# Buffers that break a rule, and buffers that do not.
DECLARATIONS: list[tuple[str, str, str]] = [
    ("V053", "buffer 0 a: u32[] read\nbuffer 1 a: u32[] read", "buffer 0 a: u32[] read\nbuffer 1 c: u32[] read"),
    ("V054", "buffer 0 a: u32[] read\nbuffer 0 c: u32[] read", "buffer 0 a: u32[] read\nbuffer 0 c: u32[4] workgroup"),
    ("V077", "buffer 0 a: u32[] workgroup", "buffer 0 a: u32[1] workgroup"),
    ("V078", "buffer 0 a: u32[4] output bytes 0..17", "buffer 0 a: u32[4] output bytes 0..16"),
    ("V078", "buffer 0 a: u32[4] output bytes 8..4", "buffer 0 a: u32[4] output bytes 8..8"),
    ("V078", "buffer 0 a: u32[4] read bytes 0..4", "buffer 0 a: u32[] readwrite bytes 0..4000"),
    ("V079", "buffer 0 a: u32[4294967296] read", "buffer 0 a: u32[4294967295] read"),
    ("V080", "buffer 4294967296 a: u32[] read", "buffer 4294967295 a: u32[] read"),
    ("V094", "buffer 0 a: u32[] read output", "buffer 0 a: u32[] writeonly output"),
    ("V094", "buffer 0 a: u32[4] workgroup live_out", "buffer 0 a: u32[4] readwrite live_out"),
]


@pytest.mark.parametrize(("code", "bad", "good"), DECLARATIONS)
def test_a_rule_of_declarations(code: str, bad: str, good: str) -> None:
    assert all_codes(report("", f"\n{bad}\n")) == [code]
    assert all_codes(report("", f"\n{good}\n")) == []


@pytest.mark.parametrize(
    ("code", "bad", "good"),
    [
        ("V058", "workgroup 0", "workgroup 1"),
        ("V058", "workgroup 1025", "workgroup 1024"),
        ("V058", "workgroup 32, 32, 2", "workgroup 32, 32"),
        ("V082", "workgroup 1, subgroup 12", "workgroup 1, subgroup 16"),
        ("V082", "workgroup 1, subgroup 64", "workgroup 1, subgroup 1"),
        ("V082", "workgroup 1, subgroup 0", "workgroup 1, subgroup 32"),
    ],
)
def test_a_rule_of_headers(code: str, bad: str, good: str) -> None:
    assert all_codes(report("", header=bad)) == [code]
    assert all_codes(report("", header=good)) == []


def _with(*statements: n.Stmt, buffers: tuple[BufferDecl, ...] | None = None, name: str = "p") -> Program:
    return Program.new(program("").buffers if buffers is None else buffers, 64, statements, name=name)


def _many_buffers(count: int) -> tuple[BufferDecl, ...]:
    return tuple(BufferDecl.read(f"b{k}", k, DType.U32) for k in range(count))


def _nested(depth: int) -> n.Stmt:
    body: n.Stmt = n.Block(())
    for _ in range(depth - 1):
        body = n.Block((body,))
    return body


def _deep(depth: int) -> n.Expr:
    value: n.Expr = n.lit(1)
    for _ in range(depth - 1):
        value = n.UnOp("not", value)
    return value


def _doubled(times: int) -> n.Expr:
    value: n.Expr = n.lit(1)
    for _ in range(times):
        value = n.BinOp("add", value, value)
    return value


_ZERO = n.lit(0)
_NAN = 0x7FC00000

BUILT: list[tuple[str, Program, Program]] = [
    ("V018", _with(_nested(65)), _with(_nested(64))),
    ("V033", _with(n.Let("x", _deep(1025))), _with(n.Let("x", _deep(1024)))),
    ("V046", _with(n.Broadcast("a", -1, "g")), _with(n.Broadcast("a", 3, "g"))),
    ("V055", _with(n.Let("a b", _ZERO)), _with(n.Let("a_b", _ZERO))),
    ("V055", _with(n.Loop("let", _ZERO, _ZERO, ())), _with(n.Loop("let_", _ZERO, _ZERO, ()))),
    ("V055", _with(name="1st"), _with(name="first")),
    ("V055", _with(name="x" * 257), _with(name="x" * 256)),
    (
        "V055",
        _with(buffers=(BufferDecl.read("u32", 0, DType.U32),)),
        _with(buffers=(BufferDecl.read("u33", 0, DType.U32),)),
    ),
    ("V061", _with(n.Let("x", n.BinOp("plus", _ZERO, _ZERO))), _with(n.Let("x", n.BinOp("add", _ZERO, _ZERO)))),
    ("V061", _with(n.Let("x", n.UnOp("add", _ZERO))), _with(n.Let("x", n.UnOp("not", _ZERO)))),
    ("V063", _with(n.Let("x", n.InvocationId(3))), _with(n.Let("x", n.InvocationId(2)))),
    ("V063", _with(n.Let("x", n.NumWorkgroups(-1))), _with(n.Let("x", n.NumWorkgroups(0)))),
    ("V076", _with(n.IndirectDispatch("b", -4)), _with(n.IndirectDispatch("b", 4))),
    (
        "V079",
        _with(buffers=(BufferDecl("q", 0, Access.READ_ONLY, DType.U32, -1),)),
        _with(buffers=(BufferDecl("q", 0, Access.READ_ONLY, DType.U32, 0),)),
    ),
    (
        "V080",
        _with(buffers=(BufferDecl("q", -1, Access.READ_ONLY, DType.U32),)),
        _with(buffers=(BufferDecl("q", 0, Access.READ_ONLY, DType.U32),)),
    ),
    ("V081", _with(n.Let("x", n.Lit(256, DType.U8))), _with(n.Let("x", n.Lit(255, DType.U8)))),
    ("V081", _with(n.Let("x", n.Lit(2, DType.BOOL))), _with(n.Let("x", n.Lit(1, DType.BOOL)))),
    ("V081", _with(n.Let("x", n.Lit(-1, DType.I32))), _with(n.Let("x", n.Lit(0xFFFFFFFF, DType.I32)))),
    ("V081", _with(n.Let("x", n.Lit(_NAN + 1, DType.F32))), _with(n.Let("x", n.Lit(_NAN, DType.F32)))),
    ("V081", _with(n.Let("x", n.Lit(1 << 32, DType.F32))), _with(n.Let("x", n.Lit(1 << 31, DType.F32)))),
    ("V083", _with(n.Let("x", n.SubgroupReduce("mul", _ZERO))), _with(n.Let("x", n.SubgroupReduce("max", _ZERO)))),
    (
        "V085",
        _with(n.Let("x", n.OpaqueExpr("test.length", bytes(MAX_PAYLOAD_BYTES + 1)))),
        _with(n.Let("x", n.OpaqueExpr("test.length", bytes(MAX_PAYLOAD_BYTES)))),
    ),
    (
        "V086",
        _with(n.Let("x", n.Atomic(AtomicOp.ADD, "a", _ZERO))),
        _with(n.Let("x", n.Atomic(AtomicOp.LOAD, "a", _ZERO))),
    ),
    (
        "V086",
        _with(n.Let("x", n.Atomic(AtomicOp.LOAD, "a", _ZERO, _ZERO))),
        _with(n.Let("x", n.Atomic(AtomicOp.ADD, "a", _ZERO, _ZERO))),
    ),
    (
        "V086",
        _with(n.Let("x", n.Atomic(AtomicOp.COMPARE_EXCHANGE, "a", _ZERO, _ZERO))),
        _with(n.Let("x", n.Atomic(AtomicOp.COMPARE_EXCHANGE, "a", _ZERO, _ZERO, _ZERO))),
    ),
    (
        "V086",
        _with(n.Let("x", n.Atomic(AtomicOp.ADD, "a", _ZERO, _ZERO, _ZERO))),
        _with(n.Let("x", n.Atomic(AtomicOp.EXCHANGE, "a", _ZERO, _ZERO))),
    ),
    ("V087", _with(n.Let("x", _doubled(40))), _with(n.Let("x", _doubled(10)))),
    ("V088", _with(buffers=_many_buffers(1025)), _with(buffers=_many_buffers(1024))),
]


@pytest.mark.parametrize(("code", "bad", "good"), BUILT)
def test_a_rule_that_text_cannot_break(code: str, bad: Program, good: Program) -> None:
    assert all_codes(check(bad)) == [code]
    assert all_codes(check(good)) == []


def test_too_many_statements() -> None:
    million = (n.Barrier(),) * 1_000_000
    assert all_codes(check(_with(*million))) == []
    assert all_codes(check(_with(*million, n.Return()))) == ["V019"]
    beyond_counting = n.Block((n.Block((n.Block(()),) * 100_000),) * 100_000)
    assert all_codes(check(_with(beyond_counting))) == ["V019"]


CAPABILITIES: list[tuple[str, str, str, Capabilities]] = [
    ("V041", "let x = subgroup_lane()", "let x = lid.x", Capabilities(subgroup_ops=False)),
    ("V041", "let x = 1 + subgroup_reduce(add, 1)", "let x = 1", Capabilities(subgroup_ops=False)),
    ("V089", "let x = 1u64", "let x = 1", Capabilities(dtypes=frozenset({DType.F32, DType.I32}))),
    ("V089", "let x = f16(1)", "let x = f32(1)", Capabilities(dtypes=frozenset({DType.F32, DType.I32}))),
    ("V090", "let x = atomic_add(w, 0, 1u64)", "let x = atomic_add(a, 0, 1)", Capabilities(atomics64=False)),
]


@pytest.mark.parametrize(("code", "bad", "good", "capabilities"), CAPABILITIES)
def test_a_capability_that_the_target_lacks(code: str, bad: str, good: str, capabilities: Capabilities) -> None:
    buffers = BUFFERS if capabilities.dtypes is None else BUFFERS.replace("u64", "u32")
    assert all_codes(check(program(bad, buffers))) == []
    assert all_codes(check(program(bad, buffers), capabilities)) == [code]
    assert all_codes(check(program(good, buffers), capabilities)) == []


def test_a_buffer_of_a_type_that_the_target_lacks() -> None:
    (found,) = check(program(""), Capabilities(dtypes=frozenset({DType.F32, DType.I32}))).errors
    assert found.code == "V089"
    assert found.place.buffer == 7


def test_a_capability_that_a_call_needs() -> None:
    source = program('let x = call("test.lane", 1)')
    assert all_codes(check(source)) == []
    (found,) = check(source, Capabilities(subgroup_ops=False)).errors
    assert found.code == "V093"
    assert "V041" in found.message


def test_every_code_is_tested() -> None:
    tested = {row[0] for row in (*TEXTS, *DECLARATIONS, *BUILT, *CAPABILITIES)}
    elsewhere = {"V019", "V050", "V058", "V082", "V092"}
    assert tested | elsewhere == set(CODES)


def test_codes_say_everything() -> None:
    for code, rule in CODES.items():
        assert rule.code == code
        assert rule.title
        assert rule.doc.endswith(".")
        assert rule.fix.endswith(".")
        assert rule.severity in (Severity.ERROR, Severity.WARNING)


def test_all_casts_are_legal() -> None:
    for source in DType:
        for target in DType:
            value = build.cast(target, build.lit(1, source))
            assert check(_with(build.let("x", value))).ok
