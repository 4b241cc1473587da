"""The interpreter finds of known bits what the facts say, for every type, on every backend; and that is so."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rewriting_support import rewrite_rows
from sample_rows import edge_bits, result_of

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.driver.optimizing import optimize
from vyre.ir import parse, walk
from vyre.ir.nodes import BinOp
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, head, type_of
from vyre.optimizer.facts import FACTS, Known, known_of
from vyre.optimizer.patterns import Columns
from vyre.optimizer.switches import PASSES
from vyre.semantics.types import DType

Masks = tuple[int, int]
Case = tuple[str, dict[str, DType], int, list[tuple[DType, Masks]]]


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
    rows: list[tuple[int, int, int, int]] = []
    masks: list[Masks] = []
    tested = []
    for _, _, word, operands in given:
        places = list(range(len(rows), len(rows) + len(operands)))
        rows += [(head(Kind.LOAD, dtype), NONE, NONE, NONE) for dtype, _ in operands]
        masks += [one for _, one in operands]
        a, b, c = (*places, NONE, NONE, NONE)[:3]
        tested.append(len(rows))
        rows.append((word, a, b, c))
        masks.append((0, 0))
    columns = Columns(*(list(column) for column in zip(*rows, strict=True)), masks)
    result: list[tuple[Known, int | None]] = []
    got, _ = rewrite_rows(columns, tested, PASSES["fold"] | PASSES["bits"], on)
    for (name, _, _, _), row, one in zip(given, tested, got, strict=True):
        gives = 0 if one.target is None else one.target - rows[row][1] + (name != "select")
        bits = one.words[1] | one.words[2] << 32 if one.words[0] & 255 == Kind.LITERAL else None
        result.append((Known(*one.known, gives), bits))
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
