"""Evaluation of operations on literals agrees with the operator table for every operator, type and backend."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from rewriting_support import rewrite_rows
from rule_semantics import Columns
from sample_rows import edge_bits, result_of

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.ir import walk
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, head
from vyre.optimizer.evaluate import evaluate
from vyre.optimizer.switches import PASSES
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.scalars import from_bits, to_bits
from vyre.semantics.types import ALL_TYPES, FUSED_TYPES, DType

Case = tuple[int, list[tuple[int, DType]]]


def evaluated(cases: list[Case], on: Backend, kind: Kind = Kind.LITERAL) -> list[int | None]:
    """The bits of the literal that each case becomes; None if unchanged. ``kind`` is the kind of the last operands."""
    rows: list[tuple[int, int, int, int]] = []
    tested = []
    for word, operands in cases:
        places = []
        for place, (bits, dtype) in enumerate(operands):
            is_last = place == len(operands) - 1
            places.append(len(rows))
            rows.append((head(kind if is_last else Kind.LITERAL, dtype), bits & NONE, bits >> 32, NONE))
        a, b, c = (*places, NONE, NONE, NONE)[:3]
        tested.append(len(rows))
        rows.append((word, a, b, c))
    columns = Columns(*(list(column) for column in zip(*rows, strict=True)), [(0, 0)] * len(rows))
    result, _ = rewrite_rows(columns, tested, PASSES["fold"], on)
    is_literal = [one.words[0] & 255 == Kind.LITERAL for one in result]
    return [one.words[1] | one.words[2] << 32 if known else None for one, known in zip(result, is_literal, strict=True)]


def samples(dtype: DType, count: int, source: random.Random) -> list[int]:
    edges = edge_bits(dtype)
    chosen = [source.choice(edges) if source.random() < 0.6 else source.getrandbits(dtype.bits) for _ in range(count)]
    return [to_bits(from_bits(bits, dtype), dtype) for bits in chosen]


def signatures() -> Iterator[tuple[str, DType, tuple[DType, ...]]]:
    """Every operation with its result type and its operand types."""
    for name, operator in OPERATORS.items():
        if name not in MATH_FUNCTIONS:
            yield from ((name, operator.result_type(t), (t,) * operator.arity) for t in operator.types)
    for target in ALL_TYPES:
        yield "select", target, (DType.BOOL, target, target)
        yield from (("cast", target, (source,)) for source in ALL_TYPES)
        yield from (("bitcast", target, (source,)) for source in ALL_TYPES if source.bits == target.bits)
    yield from (("fma", dtype, (dtype,) * 3) for dtype in FUSED_TYPES)


def cases_of(count: int, seed: int) -> list[Case]:
    source = random.Random(seed)
    return [
        (head(Kind.OPERATION, result, OPERATION_CODES[name]), list(zip(operands, types, strict=True)))
        for name, result, types in signatures()
        for operands in zip(*(samples(dtype, count, source) for dtype in types), strict=True)
    ]


@pytest.mark.parametrize(
    ("on", "count"), [(backend(), 120), (ReferenceBackend(fuel=100_000_000), 2)], ids=("cpu", "reference")
)
def test_evaluation_agrees_with_the_operator_table(on: Backend, count: int) -> None:
    cases = cases_of(count, seed=1)
    got = evaluated(cases, on)
    wrong = [(case, bits) for case, bits in zip(cases, got, strict=True) if bits != result_of(*case)]
    assert wrong[:5] == []


def test_math_functions_are_not_evaluated() -> None:
    one = to_bits(1.0, DType.F32)
    cases: list[Case] = [
        (head(Kind.OPERATION, DType.F32, OPERATION_CODES[name]), [(one, DType.F32)]) for name in MATH_FUNCTIONS
    ]
    assert evaluated(cases, backend()) == [None] * len(MATH_FUNCTIONS)


def test_operations_on_unknown_values_are_not_evaluated() -> None:
    cases = cases_of(1, seed=2)
    assert evaluated(cases, backend(), Kind.LOAD) == [None] * len(cases)


def test_evaluation_is_a_small_program() -> None:
    assert sum(1 for _ in walk.statements(evaluate())) < 400
