"""What the reader's program reads of a program is what the walk in Python makes of it: every row, name and version."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from importlib import import_module
from itertools import product
from pathlib import Path
from random import Random
from string import ascii_letters
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

import cpu_support
from generated import made
from vyre.backends.reference import ReferenceBackend
from vyre.checker import check
from vyre.driver.optimizing import BackendDispatcher
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_EXPRESSION_DEPTH, MAX_NAME_LENGTH
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE
from vyre.optimizer.dispatcher import OptimizerDispatcher, ProgramSet, whole_programs
from vyre.optimizer.encode import encode
from vyre.optimizer.outline import Effect, Stores
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.reading import Reader, Taken, reader_of
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import ALL_TYPES, FUSED_TYPES, DType


class Counting(Reader):
    """Counts the statements that it read."""

    statements = 0

    def take(self, *arguments: Any, **others: Any) -> Taken | None:
        taken = super().take(*arguments, **others)
        self.statements += 0 if taken is None else taken.statements
        return taken


@pytest.fixture(scope="module")
def dispatcher() -> BackendDispatcher:
    return BackendDispatcher(cpu_support.backend())


def the_program(dispatcher: OptimizerDispatcher) -> Program:
    program = dispatcher.programs().read
    assert program is not None
    return program


def eager(dispatcher: OptimizerDispatcher, program: Program, at_once: int = 1 << 16) -> Counting:
    """Reads the shortest runs too, and all of them."""
    return Counting(dispatcher, program, least=1, share=0, most=1_000, at_once=at_once)


@pytest.fixture(params=[1 << 16, 1], ids=["at_once", "in_parts"])
def reader(dispatcher: BackendDispatcher, request: pytest.FixtureRequest) -> Counting:
    return eager(dispatcher, the_program(dispatcher), request.param)


@pytest.fixture
def usual(dispatcher: BackendDispatcher) -> Counting:
    return Counting(dispatcher, the_program(dispatcher))


@pytest.fixture
def integer_code(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "bench")
    return import_module("integer_code")


def effects(item: Any) -> list[Any]:
    """Stores as the walk gives them, one by one."""
    if not isinstance(item, Stores):
        return [item]
    columns = item.places, item.rows, *item.operands, item.ended
    return [
        Effect(item.run[place], row, operands, () if ended == NONE else (ended,))
        for place, row, *operands, ended in zip(*(column.tolist() for column in columns), strict=True)
    ]


def plain(value: Any) -> Any:
    """A part of an arena or an outline as what can be compared: variables by what they are."""
    match value:
        case n.Node() | Program():
            return value
        case msgspec.Struct():
            return type(value).__name__, *(plain(getattr(value, name)) for name in value.__struct_fields__)
        case dict():
            return {plain(key): plain(item) for key, item in value.items()}
        case np.ndarray():
            return value.tobytes()
        case list() | tuple() | array():
            return [plain(part) for item in value for part in effects(item)]
    return value


def assert_read_as_walked(program: Program, reader: Reader) -> None:
    assert not check(program).errors
    walked, read = encode(program), encode(program, reader)
    for name, column in walked[0].columns.items():
        assert read[0].columns[name].tolist() == column.tolist(), name
    assert plain(read) == plain(walked)


def new_program(body: Sequence[n.Stmt], *more: BufferDecl) -> Program:
    buffers = [BufferDecl.read_write("a", 0, DType.U32), BufferDecl.read_write("b", 1, DType.U32),
               BufferDecl.read("c", 2, DType.U32), BufferDecl.workgroup("add", DType.F32, 64)]  # fmt: skip
    return Program.new([*buffers, *more], 1, body)


def test_generated_programs(reader: Counting) -> None:
    for seed in range(150):
        assert_read_as_walked(made(seed).case.program, reader)
    assert reader.statements > 1_500


@pytest.mark.parametrize("shape", ["wide", "chain"])
def test_long_code(shape: str, integer_code: ModuleType, usual: Counting, dispatcher: BackendDispatcher) -> None:
    program = integer_code.as_program(integer_code.integer_code(3_000, shape))
    assert_read_as_walked(program, usual)
    assert usual.statements == len(program.entry)
    without = WithoutReader(cpu_support.backend())
    assert optimize_with(program, dispatcher)[0] == optimize_with(program, without)[0]


class WithoutReader(BackendDispatcher):
    def programs(self) -> ProgramSet:
        return msgspec.structs.replace(super().programs(), read=None)


def one(dtype: DType) -> n.Lit:
    return n.lit(1, dtype)


def every_operator_and_every_type() -> list[n.Stmt]:
    body: list[n.Stmt] = [n.Let(f"one_{dtype}", one(dtype)) for dtype in ALL_TYPES]
    values: list[n.Expr] = [
        n.BinOp(op.name, n.Var(f"one_{dtype}"), one(dtype)) for op in BINARY.values() for dtype in op.types
    ]
    values += [n.UnOp(op.name, n.Var(f"one_{dtype}")) for op in UNARY.values() for dtype in op.types]
    values += [n.Cast(target, one(source)) for source, target in product(ALL_TYPES, ALL_TYPES)]
    values += [
        n.Bitcast(target, one(source))
        for source, target in product(ALL_TYPES, ALL_TYPES)
        if source.bits == target.bits and DType.BOOL not in (source, target)
    ]
    values += [n.Select(n.lit(True), one(dtype), n.Var(f"one_{dtype}")) for dtype in ALL_TYPES]
    values += [n.Fma(one(dtype), n.Var(f"one_{dtype}"), one(dtype)) for dtype in FUSED_TYPES]
    for axis in range(3):
        values += [b.gid(axis), b.wg(axis), b.lid(axis), b.num_workgroups(axis), b.gid(axis)]
    values += [b.subgroup_lane(), b.subgroup_size(), b.subgroup_lane(), *map(b.buf_len, ("a", "c", "a", "add"))]
    body += [n.Let(f"v{number}", value) for number, value in enumerate(values)]
    return body


def test_every_operator_and_every_type(reader: Counting) -> None:
    body = every_operator_and_every_type()
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements == len(body)


def test_literals_of_every_length(reader: Counting) -> None:
    bits = [0, 1, 127, 128, 255, 256, 65_535, 65_536, (1 << 32) - 1, 1 << 32, (1 << 53) + 1, 1 << 63, (1 << 64) - 1]
    types = (DType.U8, DType.U16, DType.U32, DType.I32, DType.U64, DType.I64)
    values = [n.Lit(number, dtype) for number, dtype in product(bits, types) if not number >> dtype.bits]
    values += [n.lit(number, dtype) for number, dtype in product((0.0, -0.0, 0.1, float("nan")), FUSED_TYPES)]
    body = [n.Let(f"v{number}", value) for number, value in enumerate(values + values)]
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements == len(body)


def hash_behind(name: bytes) -> int:
    """The hash that the reader gives the bytes behind the first eight."""
    more = 0
    for place in range(8, len(name), 4):
        part = int.from_bytes(name[place : place + 4], "little")
        more = ((more << 5 | more >> 27) & 0xFFFFFFFF ^ part) * 0x9E3779B1 & 0xFFFFFFFF
    return more


def names_of_one_hash() -> tuple[str, str]:
    """Two names that differ in the bytes behind the first eight alone, whose hashes are the same."""
    random, letters = Random(1), ascii_letters.encode()
    first = b"longnameaaaabbbb"
    before = hash_behind(first[:12])
    while True:
        part = bytes(random.choices(letters, k=4))
        other = hash_behind(first[:8] + part)
        turned = [(word << 5 | word >> 27) & 0xFFFFFFFF for word in (before, other)]
        last = (int.from_bytes(b"bbbb", "little") ^ turned[0] ^ turned[1]).to_bytes(4, "little")
        if part != first[8:12] and all(letter in letters for letter in last):
            return first.decode(), (first[:8] + part + last).decode()


def test_names_are_told_apart_by_all_their_letters(reader: Counting) -> None:
    one, other = names_of_one_hash()
    assert one[:8] == other[:8]
    assert hash_behind(one.encode()) == hash_behind(other.encode())
    long = "x" * (MAX_NAME_LENGTH - 1)
    lengths = [("n" * length)[:-1] + last for length in (*range(1, 40), 255) for last in "pq"]
    names = [one, other, *lengths, long + "y", long + "z", *BINARY, *UNARY, "gid", "a_", "u32_"]
    names = [name for name in dict.fromkeys(names) if name not in ("add", "a", "b", "c", "in", "or", "not", "and")]
    body: list[n.Stmt] = [n.Let(name, b.load("a", n.lit(number))) for number, name in enumerate(names)]
    body += [n.Store("b", n.lit(number), n.Var(name)) for number, name in enumerate(reversed(names))]
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements == len(body)


def test_whatever_has_the_same_hash_is_told_apart(dispatcher: BackendDispatcher) -> None:
    def without_hash(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        match statement:
            case n.Let("hash") | n.Assign("hash"):
                changed.append(statement)
                return (msgspec.structs.replace(statement, value=n.lit(0)),)
        return (statement,)

    changed: list[n.Stmt] = []
    program = whole_programs().read
    assert program is not None
    program = program.with_entry(walk.rewrite(program.entry, on_statement=without_hash))
    assert changed
    reader = eager(dispatcher, program)
    body = every_operator_and_every_type()
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements == len(body)


def interleaved(random: Random, count: int, prefix: str = "v") -> list[n.Stmt]:
    """Loads and stores in several buffers, and values of them."""
    body: list[n.Stmt] = []
    known: list[n.Expr] = [n.lit(3), b.gid(), b.buf_len("c")]
    for number in range(count):
        if random.random() < 0.5:
            buffer = random.choice("abc")
            body.append(n.Let(f"{prefix}{number}", n.Load(buffer, random.choice(known) + random.choice(known))))
            known.append(n.Var(f"{prefix}{number}"))
        else:
            value = n.Load(random.choice("ab"), random.choice(known))
            body.append(n.Store(random.choice("ab"), random.choice(known), value))
    return body


@pytest.mark.parametrize("seed", range(8))
def test_memory_gets_the_same_versions(seed: int, reader: Counting, usual: Counting) -> None:
    random = Random(seed)
    body: list[n.Stmt] = [
        *interleaved(random, 30, "before"),
        n.Let("cell", n.lit(1)),
        n.Loop("k", n.lit(0), n.Load("a", n.lit(0)), (
            *interleaved(random, 40, "inner"),
            n.If(n.Load("a", n.Var("k")).eq(n.Var("cell")),
                 (*interleaved(random, 600, "deep"),), (*interleaved(random, 5, "other"),)),
            n.Assign("cell", n.Var("cell") + n.Load("b", n.lit(1))),
            *interleaved(random, 10, "last"),
        )),
        n.Barrier(),
        *interleaved(random, 600, "behind"),
        n.Store("a", n.Var("cell"), n.Var("cell")),
        n.Block((*interleaved(random, 5, "deep"),)),
        *interleaved(random, 5, "end"),
    ]  # fmt: skip
    program = new_program(body)
    assert_read_as_walked(program, reader)
    assert_read_as_walked(program, usual)
    assert reader.statements > 1_200
    # Only the longer of two long runs, for each of which the host would have to wait.
    assert usual.times == 1
    assert 600 <= usual.statements < 700


def test_what_is_not_read_is_walked(reader: Counting, usual: Counting) -> None:
    """Atomics, exchanges between lanes and deep expressions stop the reader; who may go on does so behind them."""
    deep: n.Expr = n.lit(1)
    for _ in range(1_000):
        deep = n.BinOp("add", n.lit(1), deep)
    body: list[n.Stmt] = []
    for number in range(600):
        body += interleaved(Random(number), 4, f"v{number}_")
        if number % 300 == 10:
            body.append(n.Let(f"old{number}", b.atomic_add("b", n.lit(0), n.lit(1))))
        elif number % 100 == 20:
            body.append(n.Let(f"sum{number}", b.subgroup_reduce("add", n.lit(2)) + 1))
        elif number % 300 == 30:
            body.append(n.Store("a", b.atomic_load("a", n.lit(1)), n.lit(1)))
    program = new_program(body)
    for reads in (reader, usual):
        assert_read_as_walked(program, reads)
        assert_read_as_walked(new_program([*body, n.Let("deep", deep), *interleaved(Random(0), 300, "last")]), reads)
    assert reader.statements > 100 > usual.statements > 20


def test_the_deepest_expression_is_read(reader: Counting) -> None:
    deep: n.Expr = b.gid()
    for number in range(MAX_EXPRESSION_DEPTH - 1):
        deep = n.BinOp("add", deep, n.lit(1)) if number % 3 == 0 else n.BinOp("sub", n.lit(2), deep)
    # Whoever allows deep recursion has msgspec write it; else it is walked, as elsewhere here.
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 3 * MAX_EXPRESSION_DEPTH)
    try:
        assert_read_as_walked(new_program([n.Let("deep", deep), n.Store("a", n.lit(0), n.Var("deep"))]), reader)
    finally:
        sys.setrecursionlimit(limit)
    assert reader.statements == 2


def test_there_is_room_for_as_many_words_and_rows_as_there_are(reader: Counting) -> None:
    many: list[n.Stmt] = []
    for number in range(300):
        value: n.Expr = n.lit(0)
        for digit in range(20):
            value = value + n.lit(1_000 + 20 * number + digit)
        many.append(n.Store("a", n.lit(number), value))
    nested: list[n.Stmt] = []
    for number in range(100):
        value = b.gid()
        for _ in range(100):
            value = n.UnOp("not", value)
        nested.append(n.Let(f"v{number}", value))
    for body in (many, nested):
        reader.statements = 0
        assert_read_as_walked(new_program(body), reader)
        assert reader.statements == len(body)


def test_what_comes_when_there_is_no_more_room_for_letters_is_walked(dispatcher: BackendDispatcher) -> None:
    """How many there will be is guessed from the first part."""
    reader = Counting(dispatcher, the_program(dispatcher), least=100, at_once=100)
    body: list[n.Stmt] = [n.Let(f"v{number}", n.lit(number)) for number in range(100)]
    body += [n.Let(f"{'long' * 50}{number}", n.Var(f"v{number % 100}") + 1) for number in range(300)]
    body += [n.Store("a", n.lit(number), n.Var(f"{'long' * 50}{number}")) for number in range(300)]
    assert_read_as_walked(new_program(body), reader)
    assert 100 < reader.statements < 400


def test_parts_of_any_length_have_room(dispatcher: BackendDispatcher) -> None:
    for length in range(9):
        names = ["a" * length + letter for letter in "abcdefgh"]
        values: list[n.Expr] = [n.lit(1), *map(n.Var, names[:-1])]
        body = [n.Let(name, value) for name, value in zip(names, values, strict=True)]
        reader = eager(dispatcher, the_program(dispatcher), at_once=1)
        assert_read_as_walked(new_program(body), reader)
        assert reader.statements == len(body)


def test_what_nests_too_deeply_to_be_written_ends_the_parts(dispatcher: BackendDispatcher) -> None:
    deep: n.Expr = b.gid()
    for _ in range(MAX_EXPRESSION_DEPTH - 1):
        deep = n.BinOp("sub", n.lit(2), deep)
    reader = Counting(dispatcher, the_program(dispatcher), least=100, at_once=10)
    body = [*interleaved(Random(1), 60), n.Let("deep", deep), *interleaved(Random(2), 60, "w")]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(500)
    try:
        assert_read_as_walked(new_program(body), reader)
    finally:
        sys.setrecursionlimit(limit)
    assert reader.statements == 60


def test_programs_without_buffers(reader: Counting) -> None:
    body = [b.let("first", b.gid()), b.let("second", b.var("first") * 3)]
    assert_read_as_walked(Program.new([], 1, body), reader)
    assert reader.statements == 2


def test_the_list_ends_at_a_jump(reader: Counting) -> None:
    body = [*interleaved(Random(1), 20, "v"), n.Return()]
    assert_read_as_walked(new_program([b.if_(b.gid().eq(0), body, interleaved(Random(2), 9, "w"))]), reader)
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements > 40


@pytest.mark.parametrize("resident", [True, False])
def test_it_means_the_same_to_the_reference(resident: bool) -> None:
    """On resident buffers and on bytes."""
    program = whole_programs().read
    assert program is not None
    backend = ReferenceBackend(resident=resident, fuel=100_000_000)
    reader = eager(BackendDispatcher(backend), program)
    body = [*interleaved(Random(3), 12), n.Let("deep", (b.gid() + 1) * 70_000), n.Store("b", n.Var("deep"), n.lit(1))]
    assert_read_as_walked(new_program(body), reader)
    assert reader.statements == len(body)


def test_who_has_no_image_reads_in_python() -> None:
    assert reader_of(BackendDispatcher(ReferenceBackend())) is None
