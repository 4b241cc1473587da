"""The statements made from the facts find what the facts say, for every type, on every backend; and that is so."""

from __future__ import annotations

import random

import numpy as np
import pytest
from sample_rows import edge_bits, result_of

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver import DispatchConfig
from vyre.driver.backend import Backend
from vyre.driver.optimizing import optimize
from vyre.ir import build as b
from vyre.ir import parse, walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import BinOp
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, head, type_of
from vyre.optimizer.facts import FACTS, Known, knowing, known_of
from vyre.optimizer.patterns import FORWARD
from vyre.optimizer.switches import EVERY_BIT, NOTHING
from vyre.semantics.types import DType

U32 = DType.U32
UNTOUCHED = DispatchConfig(optimize=NOTHING)
COLUMNS = ("head", "a0", "a1", "a2")
MASKS = ("known0", "known1", "known2", "known3")
FOUND = ("word", "a", "b", "action", "target")
Masks = tuple[int, int]
Case = tuple[str, dict[str, DType], int, list[tuple[DType, Masks]]]


def program() -> Program:
    """The statements, for the row of each invocation."""
    buffers = [BufferDecl.read(name, number, U32) for number, name in enumerate((*COLUMNS, "params"))]
    buffers += [BufferDecl.read_write(name, 5 + number, U32) for number, name in enumerate((*MASKS, "fired"))]
    buffers += [BufferDecl.output(f"found_{name}", 10 + number, U32) for number, name in enumerate(FOUND)]
    entry = [b.let("row", b.gid()), b.let("word", b.load("head", b.var("row")))]
    entry += [b.let(name, b.load(column, b.var("row"))) for name, column in zip("abc", COLUMNS[1:], strict=True)]
    entry += [b.let("action", 0), b.let("target", 0), *knowing(0)]
    entry += [b.store(f"found_{name}", b.gid(), b.var(name)) for name in FOUND]
    return Program.wrapped(buffers, 64, entry, name="know")


def some_masks(dtype: DType, source: random.Random) -> Masks:
    """Bits that may be known of one value."""
    ones = (1 << dtype.bits) - 1
    value = source.choice(edge_bits(dtype)) if source.random() < 0.5 else source.getrandbits(dtype.bits)
    known = source.choice((0, ones, ones >> dtype.bits // 2, ones & 7, ones & ~7, source.getrandbits(dtype.bits)))
    return ~value & known & ones, value & known


def cases(times: int, seed: int) -> list[Case]:
    """Operations of every fact and type, and of floats, of which nothing is said."""
    source, made = random.Random(seed), []
    for fact in FACTS:
        name = fact.term.name
        float_types: list[dict[str, DType]] = [{"T": DType.F32}] if name in ("add", "eq", "lt", "min", "select") else []
        for types in (*fact.cases(), *float_types):
            result = types["T"] if fact.term.type == "T" else DType.BOOL
            inner = types.get("S", types["T"])
            chooses = [(DType.BOOL, (0, 0))] if name == "select" else []
            for _ in range(times):
                masks = [(inner, some_masks(inner, source)) for _ in fact.operands]
                word = head(Kind.OPERATION, result, OPERATION_CODES[name])
                made.append((name, types | {"S": inner}, word, chooses + masks))
    return made


def found(given: list[Case], on: Backend) -> list[tuple[Known, int | None]]:
    """What is found for each case, and the bits of the literal that it becomes."""
    rows = [(word, *(len(given) + 3 * k + place for place in range(3))) for k, (_, _, word, _) in enumerate(given)]
    known = [(0, 0)] * len(given)
    for _, _, _, operands in given:
        rows += [(head(Kind.LOAD, dtype), NONE, NONE, NONE) for dtype, _ in operands]
        rows += [(0, NONE, NONE, NONE)] * (3 - len(operands))
        known += [masks for _, masks in operands] + [(0, 0)] * (3 - len(operands))
    for k, (_, _, _, operands) in enumerate(given):
        rows[k] = (rows[k][0], *(rows[k][1 + place] if place < len(operands) else NONE for place in range(3)))
    rows += [(0, NONE, NONE, NONE)] * (-len(rows) % 64)
    known += [(0, 0)] * (len(rows) - len(known))
    words = [[part & NONE for part in (zeros, ones, zeros >> 32, ones >> 32)] for zeros, ones in known]
    inputs = {name: np.array(column, np.uint32) for name, column in zip(COLUMNS, zip(*rows, strict=True), strict=True)}
    inputs |= dict(zip(MASKS, np.array(words, np.uint32).T.copy(), strict=True))
    inputs |= {"params": np.array([EVERY_BIT], np.uint32), "fired": np.zeros(3, np.uint32)}
    outputs = [np.frombuffer(view, np.uint32).tolist() for view in on.dispatch(program(), inputs, UNTOUCHED)]
    masks, (word, a, high, action, target) = list(zip(*outputs[:4], strict=True)), outputs[5:]
    result: list[tuple[Known, int | None]] = []
    for k, (name, _, _, _) in enumerate(given):
        low_zeros, low_ones, high_zeros, high_ones = masks[k]
        gives = target[k] - rows[k][1] + (name != "select") if action[k] == FORWARD else 0
        bits = a[k] | high[k] << 32 if word[k] & 255 == Kind.LITERAL else None
        result.append((Known(low_zeros | high_zeros << 32, low_ones | high_ones << 32, gives), bits))
    return result


@pytest.mark.parametrize(("times", "on_reference"), [(12, False), (1, True)])
def test_kernels_find_what_the_facts_say(times: int, on_reference: bool) -> None:
    given = cases(times, seed=times)
    on = ReferenceBackend(fuel=100_000_000) if on_reference else backend()
    literals = operands = 0
    for (name, types, word, inner), (got, bits) in zip(given, found(given, on), strict=True):
        wanted = known_of(name, types, [masks for _, masks in inner][name == "select" :])
        is_whole = wanted.zeros | wanted.ones == (1 << type_of(word).bits) - 1
        gives = 0 if is_whole else wanted.gives
        assert (got, bits) == (Known(wanted.zeros, wanted.ones, gives), wanted.ones if is_whole else None), (
            name,
            types,
        )
        literals, operands = literals + is_whole, operands + (gives > 0)
    assert literals > len(given) / 50
    assert operands > 0


def test_a_literal_of_fewer_bits_in_the_place_of_another_has_none_above() -> None:
    text = """program narrower(workgroup 1) {
      buffer 0 given: u32[2] read
      buffer 1 out: u32[1] output
      out[0] = select(u64(given[0]) + 5u64 == 5u64, u32((u64(given[1]) | 0x100000000u64) == 0x100000005u64), 7)
    }"""
    before = parse(text)
    after, on = optimize(before), backend()
    for given in ([0, 5], [0, 4], [1, 5], [NONE, NONE]):
        results = [on.dispatch(one, [np.array(given, np.uint32)])[0].tobytes() for one in (before, after)]
        assert results[0] == results[1]


def test_what_is_known_is_so() -> None:
    """Values with the bits that are known of them give results with the bits that are said."""
    source = random.Random(9)
    for name, types, word, inner in cases(8, seed=4):
        said = known_of(name, types, [masks for _, masks in inner][name == "select" :])
        for _ in range(5):
            operands = [((source.getrandbits(t.bits) | ones) & ~zeros, t) for t, (zeros, ones) in inner]
            bits = result_of(word, operands)
            assert (bits & said.zeros, bits & said.ones) == (0, said.ones), (name, types, operands)
            if said.gives:
                assert bits == operands[said.gives - 1 + (name == "select")][0], (name, types, operands)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("(x << 4) & 15", 0),
        ("((x >> 28) + (y >> 28)) >> 5", 0),
        ("((x & 12) | (y & 3)) < 16", 0),
        ("((x | 1) * (y | 1)) & 1", 0),
        ("((x << 29) ^ y) << 3", 1),
        ("((x >> 3) << 3) >> 1", 2),
        ("((x & 255) << 8) >> 4", 2),
        ("min(x & 7, (y & 7) | 8)", 1),
        ("(u32(u8(x)) & 0xfff) | (y >> 8)", 2),
    ],
)
def test_expressions_of_known_bits(value: str, left: int) -> None:
    cast = "u32(" if value.split()[-2] == "<" else "("
    text = f"""program known(workgroup 1) {{
      buffer 0 given: u32[2] read
      buffer 1 out: u32[1] output
      let x = given[0]
      let y = given[1]
      out[0] = {cast}{value})
    }}"""
    before = parse(text)
    after = optimize(before)
    count = sum(isinstance(node, BinOp) for node in walk.expressions(after.entry))
    assert count == left, str(after)
    on = backend()
    for given in ([0, 0], [NONE, NONE], [0x12345678, 0x9ABCDEF0], [15, 240]):
        results = [on.dispatch(one, [np.array(given, np.uint32)])[0].tobytes() for one in (before, after)]
        assert results[0] == results[1]
