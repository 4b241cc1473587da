"""The kernel agrees with the facts for every type, on every backend, and the facts hold on sample values."""

from __future__ import annotations

import random

import numpy as np
import pytest
from rewriting_support import rewrite_rows
from rule_semantics import Columns, KnownBits, known_bits_of
from sample_rows import edge_bits, result_of

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.driver.optimizing import optimize
from vyre.ir import parse, walk
from vyre.ir.nodes import BinOp
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, head, type_of
from vyre.optimizer.facts import FACTS
from vyre.optimizer.switches import PASSES
from vyre.semantics.types import DType

Masks = tuple[int, int]
Case = tuple[str, dict[str, DType], int, list[tuple[DType, Masks]]]


def random_masks(dtype: DType, source: random.Random) -> Masks:
    """Random masks of known bits of one value."""
    ones = (1 << dtype.bits) - 1
    value = source.choice(edge_bits(dtype)) if source.random() < 0.5 else source.getrandbits(dtype.bits)
    known = source.choice((0, ones, ones >> dtype.bits // 2, ones & 7, ones & ~7, source.getrandbits(dtype.bits)))
    return ~value & known & ones, value & known


def cases(times: int, seed: int) -> list[Case]:
    """Operations of every fact and type, and float operations, which have no facts."""
    source, made = random.Random(seed), []
    for fact in FACTS:
        name = fact.term.name
        float_types: list[dict[str, DType]] = [{"T": DType.F32}] if name in ("add", "eq", "lt", "min", "select") else []
        for types in (*fact.cases(), *float_types):
            result = types["T"] if fact.term.type == "T" else DType.BOOL
            inner = types.get("S", types["T"])
            condition = [(DType.BOOL, (0, 0))] if name == "select" else []
            for _ in range(times):
                masks = [(inner, random_masks(inner, source)) for _ in fact.operands]
                word = head(Kind.OPERATION, result, OPERATION_CODES[name])
                made.append((name, types | {"S": inner}, word, condition + masks))
    return made


def found(given: list[Case], on: Backend) -> list[tuple[KnownBits, int | None]]:
    """For each case, the known bits that the kernel finds, and the bits of the literal that it becomes."""
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
    result: list[tuple[KnownBits, int | None]] = []
    got, _ = rewrite_rows(columns, tested, PASSES["fold"] | PASSES["bits"], on)
    for (name, _, _, _), row, one in zip(given, tested, got, strict=True):
        equal_operand = 0 if one.target is None else one.target - rows[row][1] + (name != "select")
        bits = one.words[1] | one.words[2] << 32 if one.words[0] & 255 == Kind.LITERAL else None
        result.append((KnownBits(*one.known, equal_operand), bits))
    return result


@pytest.mark.parametrize(("times", "on_reference"), [(12, False), (1, True)])
def test_kernel_agrees_with_facts(times: int, on_reference: bool) -> None:
    given = cases(times, seed=times)
    on = ReferenceBackend(fuel=100_000_000) if on_reference else backend()
    literals = operands = 0
    for (name, types, word, inner), (got, bits) in zip(given, found(given, on), strict=True):
        wanted = known_bits_of(name, types, [masks for _, masks in inner][name == "select" :])
        is_constant = wanted.zeros | wanted.ones == (1 << type_of(word).bits) - 1
        equal_operand = 0 if is_constant else wanted.equal_operand
        assert (got, bits) == (
            KnownBits(wanted.zeros, wanted.ones, equal_operand),
            wanted.ones if is_constant else None,
        ), (
            name,
            types,
        )
        literals, operands = literals + is_constant, operands + (equal_operand > 0)
    assert literals > len(given) / 50
    assert operands > 0


def test_a_narrower_literal_in_a_reused_row_has_no_high_bits() -> None:
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


def test_facts_hold_on_sample_values() -> None:
    """Operands with the known bits give results with the stated bits."""
    source = random.Random(9)
    for name, types, word, inner in cases(8, seed=4):
        stated = known_bits_of(name, types, [masks for _, masks in inner][name == "select" :])
        for _ in range(5):
            operands = [((source.getrandbits(t.bits) | ones) & ~zeros, t) for t, (zeros, ones) in inner]
            bits = result_of(word, operands)
            assert (bits & stated.zeros, bits & stated.ones) == (0, stated.ones), (name, types, operands)
            if stated.equal_operand:
                assert bits == operands[stated.equal_operand - 1 + (name == "select")][0], (name, types, operands)


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
def test_known_bits_simplify_expressions(value: str, left: int) -> None:
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
