"""Folding gives the bits that the operator table says, on every backend, for every operation of every type."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from sample_rows import edge_bits, result_of

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.ir import build as b
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, head
from vyre.optimizer.folding import fold_statements
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.scalars import from_bits, to_bits
from vyre.semantics.types import ALL_TYPES, FUSED_TYPES, DType

U32 = DType.U32
GIVEN = ("word", *(f"{operand}_{part}" for operand in "abc" for part in ("head", "0", "1")))
FOUND = ("folded", "lit_lo", "lit_hi")
Case = tuple[int, list[tuple[int, DType]]]


@cache
def program() -> Program:
    """The statements between loads of what they read and stores of what they set."""
    buffers = [BufferDecl.read(f"given_{name}", number, U32) for number, name in enumerate(GIVEN)]
    buffers += [BufferDecl.output(f"found_{name}", len(GIVEN) + number, U32) for number, name in enumerate(FOUND)]
    entry = [b.let(name, b.load(f"given_{name}", b.gid())) for name in GIVEN]
    entry += [b.let(name, 0) for name in FOUND]
    entry += fold_statements()
    entry += [b.store(f"found_{name}", b.gid(), b.var(name)) for name in FOUND]
    return Program.wrapped(buffers, 64, entry, name="fold")


def folded(cases: list[Case], on: Backend, kind: Kind = Kind.LITERAL) -> list[int | None]:
    """The bits that each case is folded to; None where it is not. ``kind`` is what the last operands are."""
    given = np.zeros((len(GIVEN), -(-len(cases) // 64) * 64), np.uint32)
    for column, (word, operands) in enumerate(cases):
        given[0, column] = word
        for place, (bits, dtype) in enumerate(operands):
            is_last = place == len(operands) - 1
            word = head(kind if is_last else Kind.LITERAL, dtype)
            given[3 * place + 1 : 3 * place + 4, column] = word, bits & NONE, bits >> 32
    outputs = on.dispatch(program(), dict(zip((f"given_{name}" for name in GIVEN), given, strict=True)))
    done, low, high = (np.frombuffer(view, np.uint32).tolist() for view in outputs)
    return [low[k] | high[k] << 32 if done[k] else None for k in range(len(cases))]


def samples(dtype: DType, count: int, source: random.Random) -> list[int]:
    edges = edge_bits(dtype)
    chosen = [source.choice(edges) if source.random() < 0.6 else source.getrandbits(dtype.bits) for _ in range(count)]
    return [to_bits(from_bits(bits, dtype), dtype) for bits in chosen]


def signatures() -> Iterator[tuple[str, DType, tuple[DType, ...]]]:
    """Every operation with the type of its result and those of its operands."""
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
def test_operations_of_literals_are_what_the_table_says(on: Backend, count: int) -> None:
    cases = cases_of(count, seed=1)
    got = folded(cases, on)
    wrong = [(case, bits) for case, bits in zip(cases, got, strict=True) if bits != result_of(*case)]
    assert wrong[:5] == []


def test_math_functions_are_left_alone() -> None:
    one = to_bits(1.0, DType.F32)
    cases: list[Case] = [
        (head(Kind.OPERATION, DType.F32, OPERATION_CODES[name]), [(one, DType.F32)]) for name in MATH_FUNCTIONS
    ]
    assert folded(cases, backend()) == [None] * len(MATH_FUNCTIONS)


def test_operations_of_unknown_values_are_left_alone() -> None:
    cases = cases_of(1, seed=2)
    assert folded(cases, backend(), Kind.LOAD) == [None] * len(cases)


def test_folding_is_a_small_program() -> None:
    assert sum(1 for _ in walk.statements(fold_statements())) < 800
