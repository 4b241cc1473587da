"""The wire form: exact, canonical, and safe for any bytes."""

from __future__ import annotations

import random
from hashlib import blake2b

import msgspec
import pytest

from vyre.errors import InvalidProgram, WireError
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.limits import MAX_EXPRESSION_DEPTH, MAX_NESTING
from vyre.ir.program import Program
from vyre.ir.wire import _HEADER_BYTES, decode, encode
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

BUFFERS = (
    BufferDecl.read("a", 0, DType.U32),
    BufferDecl.output("o", 1, DType.F32, 7).with_output_byte_range(0, 8).with_hints(layout="soa"),
    BufferDecl.workgroup("tile", DType.BF16, 64),
)


def every_node() -> Program:
    """A program (not a legal one) in which every node class occurs."""
    expressions: list[n.Expr] = [
        b.gid(0), b.wg(1), b.lid(2), b.num_workgroups(0), b.buf_len("a"), b.load("a", 1), -b.gid(0) + 1,
        b.select(True, 1, 2), b.cast(DType.I8, 3), b.bitcast(DType.F32, 4), b.fma(1.0, 2.0, 3.0),
        b.atomic_add("a", 0, 1, n.MemoryOrder.RELAXED), b.atomic_load("a", 0), b.compare_exchange("a", 0, 1, 2),
        n.Atomic(AtomicOp.ADD, "a", b.lit(0), None, b.lit(1)),
        b.subgroup_ballot(True), b.subgroup_shuffle(1, 2), b.subgroup_reduce("min", 5), b.subgroup_lane(),
        b.subgroup_size(), b.call("op", 1, 2.5), b.call("none"), n.OpaqueExpr("kind", b"\x00\xff"), b.var("x"),
    ]  # fmt: skip
    body: list[n.Stmt] = [b.let("x", e) for e in expressions]
    body += [
        b.assign("x", 1), b.store("o", 0, 1.0), b.if_(True, [b.break_()], [b.continue_()]), b.if_(True, []),
        b.loop("i", 0, 9, [b.return_()]), b.while_(False, []), b.barrier(), b.grid_sync(), b.block(),
        b.region("g", [b.block(b.block())], "src"), b.async_load("a", "o", 0, 4, "t"),
        b.async_store("a", "o", 0, 4, "t"), b.async_wait("t"),
        b.copy_bytes("a", "o", 0, 4, 8), b.indirect_dispatch("a", 16), b.trap(7, "t"),
        b.resume("t"), b.all_reduce("add", "a"), b.all_gather("a", "o"), b.reduce_scatter("max", "a", "o"),
        b.broadcast("a", 3), n.OpaqueStmt("kind", b""),
    ]  # fmt: skip
    return Program.wrapped(BUFFERS, (8, 4), body, name="every", subgroup_size=16)


def test_every_node_class_round_trips() -> None:
    program = every_node()
    kinds = program.stats().kinds
    assert {cls.__name__ for cls in n.EXPRESSION_CLASSES + n.STATEMENT_CLASSES} == set(kinds)
    image = encode(program)
    again = decode(image)
    assert again == program
    assert encode(again) == image
    assert again.buffers == program.buffers
    assert again.subgroup_size == 16


@pytest.mark.parametrize("dtype", list(DType))
def test_literals_keep_their_bits(dtype: DType) -> None:
    patterns = {0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)}
    literals = [n.Lit(bits, dtype) for bits in sorted(patterns)]
    program = Program.new((), 1, [n.Let(f"v{literal.bits}", literal) for literal in literals])
    again = decode(encode(program)).entry
    assert [s.value.bits for s in again if isinstance(s, n.Let) and isinstance(s.value, n.Lit)] == sorted(patterns)


def test_not_a_number_equals_itself_and_zeros_differ() -> None:
    nan = b.lit(float("nan"))
    assert nan == b.lit(float("nan"))
    assert nan + nan == nan + nan
    assert b.lit(0.0) != b.lit(-0.0)
    assert b.lit(1) != b.lit(1, DType.I32)
    assert b.lit(True) != b.lit(1)


def test_a_program_at_the_depth_limit_encodes_and_decodes_and_one_over_is_refused() -> None:
    def program(depth: int, nesting: int) -> Program:
        deep: n.Expr = b.gid(0)
        for _ in range(depth - 1):
            deep = -deep
        statement: n.Stmt = b.let("x", deep)
        for _ in range(nesting):
            statement = b.block(statement)
        return Program.new((), 1, [statement])

    legal = program(MAX_EXPRESSION_DEPTH, MAX_NESTING)
    assert decode(encode(legal)) == legal
    assert legal.stats().expression_depth == MAX_EXPRESSION_DEPTH
    assert legal.stats().nesting == MAX_NESTING
    with pytest.raises(WireError, match="deep"):
        decode(encode(program(MAX_EXPRESSION_DEPTH + 1, 0)))
    with pytest.raises(WireError, match="nest"):
        decode(encode(program(1, MAX_NESTING + 1)))


def test_order_is_part_of_the_fingerprint() -> None:
    first, second = BUFFERS[:2]
    one = Program.new((first, second), 1, [])
    two = Program.new((second, first), 1, [])
    assert one.fingerprint() != two.fingerprint()
    left = b.let("x", b.atomic_add("a", 0, 1) + b.atomic_add("a", 1, 2))
    right = b.let("x", b.atomic_add("a", 1, 2) + b.atomic_add("a", 0, 1))
    assert one.with_entry([left]).fingerprint() != one.with_entry([right]).fingerprint()
    assert one.with_entry([left]) == one.with_entry([left]).with_source(None)


def test_a_field_of_another_type_is_named_not_leaked() -> None:
    broken = Program.new((), 1, [n.Let("x", n.Lit(1 << 70, DType.U32))])
    with pytest.raises(InvalidProgram, match="not of its type"):
        encode(broken)
    with pytest.raises(InvalidProgram, match="not of its type"):
        encode(Program.empty("\ud800"))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "begin with the mark"),
        (b"VYRE", "inside the header"),
        (b"VYRE\x63\x00" + bytes(40), "version 99"),
        (encode(every_node())[:-1], "digest"),
        (encode(every_node()) + b"\x00", "digest"),
    ],
)
def test_broken_images_are_named(data: bytes, says: str) -> None:
    with pytest.raises(WireError, match=says) as caught:
        decode(data)
    assert "Fix: " in str(caught.value)


def sealed(body: bytes) -> bytes:
    """An image with a right digest, so that damage reaches the decoder behind it."""
    return encode(Program.empty())[:6] + blake2b(body, digest_size=16).digest() + body


def body_of(program: Program) -> list[object]:
    decoded: list[object] = msgspec.msgpack.decode(encode(program)[_HEADER_BYTES:])
    return decoded


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[4].append("unused"),
        lambda body: body[4].reverse(),
        lambda body: body[6].append(0),
        lambda body: body[6].pop(),
        lambda body: body[6].insert(0, -1),
        lambda body: body[6].insert(0, 1 << 40),
        lambda body: body.append(0),
        lambda body: body.pop(),
        lambda body: body.__setitem__(7, 1 << 60),
        lambda body: body.__setitem__(7, -1),
        lambda body: body.__setitem__(1, [1, 2]),
        lambda body: body[3][0].__setitem__(2, "readwriteish"),
    ],
)
def test_damage_behind_a_right_digest_is_refused(damage: object) -> None:
    body = body_of(every_node())
    damage(body)  # type: ignore[operator]
    with pytest.raises(WireError):
        decode(sealed(msgspec.msgpack.encode(body)))


def fuzz(rounds: int, seed: int) -> int:
    """Decodes damaged and random images; whatever decodes must encode to the same bytes. Says how many decoded."""
    rng = random.Random(seed)
    seeds = [encode(every_node()), encode(Program.empty()), encode(Program.new(BUFFERS, 64, [b.store("o", 0, 1.5)]))]
    good = 0
    for _ in range(rounds):
        image = bytearray(rng.choice(seeds)[_HEADER_BYTES:])
        match rng.randrange(6):
            case 0:
                image = bytearray(rng.randbytes(rng.randrange(200)))
            case 1:
                del image[rng.randrange(len(image)) :]
            case 2:
                at = rng.randrange(len(image))
                image[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                other = rng.choice(seeds)
                at = rng.randrange(len(image))
                image[at : at + rng.randrange(16)] = other[: rng.randrange(len(other))]
            case _:
                for _ in range(rng.randrange(1, 4)):
                    image[rng.randrange(len(image))] = rng.randrange(256)
        data = sealed(bytes(image)) if rng.random() < 0.9 else bytes(image)
        try:
            program = decode(data)
        except WireError as error:
            assert "Fix: " in str(error)
            continue
        assert encode(program) == data
        good += 1
    return good


def test_any_bytes_decode_exactly_or_raise_a_wire_error() -> None:
    assert fuzz(4_000, seed=1) > 0


@pytest.mark.long
def test_any_bytes_decode_exactly_or_raise_a_wire_error_at_length() -> None:
    assert fuzz(120_000, seed=2) > 0


def test_access_words_are_stable() -> None:
    assert [access.value for access in Access] == ["read", "readwrite", "writeonly", "uniform", "workgroup"]
