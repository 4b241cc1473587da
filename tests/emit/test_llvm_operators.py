"""Every operator, cast and bitcast, in vector and in scalar code, gives the bits of ``vyre.semantics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cpu_support import backend
from semantics.meaning_samples import array, array_bits, edge_bits, random_bits
from vyre.driver.config import DispatchConfig
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import buf_len, gid, loop, store, var
from vyre.ir.program import Program
from vyre.semantics.arrays import array_bitcast, array_cast, array_fma, array_meaning, to_storage
from vyre.semantics.operators import OPERATORS
from vyre.semantics.types import FUSED_TYPES, DType

Build = Callable[..., n.Expr]
Sample = tuple[tuple[DType, ...], tuple[np.ndarray[Any, Any], ...], DType, Build, list[int]]


def pairs(dtype: DType) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    edges = edge_bits(dtype)
    left = [a for a in edges for _ in edges] + random_bits(dtype, 500, 1)
    right = [b for _ in edges for b in edges] + random_bits(dtype, 500, 2)
    return array(left, dtype), array(right, dtype)


def singles(dtype: DType) -> np.ndarray[Any, Any]:
    return array(edge_bits(dtype) + random_bits(dtype, 1500), dtype)


def operator_sample(op: str, dtype: DType) -> Sample:
    row = OPERATORS[op]
    result = row.result_type(dtype)
    given = pairs(dtype) if row.arity == 2 else (singles(dtype),)
    expected = array_bits(array_meaning(op, dtype)(*given), result)
    build: Build = (lambda a, b: n.BinOp(op, a, b)) if row.arity == 2 else (lambda a: n.UnOp(op, a))
    return (dtype,) * row.arity, given, result, build, expected


def wrong(samples: list[Sample], width: int, *, scalar: bool) -> list[str]:
    """Runs all samples in one program, one invocation for each element, or one invocation for all of them."""
    buffers: list[BufferDecl] = []
    entry: list[n.Stmt] = []
    data: list[np.ndarray[Any, Any]] = []
    longest = 0
    for number, (types, arrays, result, build, expected) in enumerate(samples):
        names = [f"in{number}_{k}" for k in range(len(types))]
        buffers += [
            BufferDecl.read(name, len(buffers) + k, t) for k, (name, t) in enumerate(zip(names, types, strict=True))
        ]
        data += [to_storage_raw(values, t) for values, t in zip(arrays, types, strict=True)]
        buffers.append(BufferDecl.output(f"out{number}", len(buffers), result, len(expected)))
        at = var(f"k{number}") if scalar else gid()
        write = store(f"out{number}", at, build(*(n.Load(name, at) for name in names)))
        entry.append(loop(f"k{number}", 0, buf_len(names[0]), [write]) if scalar else write)
        longest = max(longest, len(expected))
    program = Program.new(buffers, 1 if scalar else 64, entry)
    config = DispatchConfig(dispatch_elements=1 if scalar else longest)
    outputs = backend(width).dispatch(program, data, config)
    found = []
    for (types, arrays, result, _, expected), view in zip(samples, outputs, strict=True):
        got = [int(x) for x in np.frombuffer(view, np.dtype(f"<u{result.bytes}"))]
        differing = [k for k, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b]
        found += [
            f"{types} -> {result}: {[values[at] for values in arrays]} gave {got[at]:#x}, not {expected[at]:#x}"
            for at in differing[:3]
        ]
    return found


def to_storage_raw(values: np.ndarray[Any, Any], dtype: DType) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(to_storage(values, dtype))


@pytest.mark.parametrize("op", OPERATORS)
def test_operator_in_vectors(op: str) -> None:
    assert wrong([operator_sample(op, dtype) for dtype in OPERATORS[op].types], 16, scalar=False) == []


@pytest.mark.parametrize("op", OPERATORS)
def test_operator_in_scalars(op: str) -> None:
    assert wrong([operator_sample(op, dtype) for dtype in OPERATORS[op].types], 16, scalar=True) == []


@pytest.mark.long
@pytest.mark.parametrize("width", [4, 8])
@pytest.mark.parametrize("op", OPERATORS)
def test_operator_in_narrower_vectors(op: str, width: int) -> None:
    assert wrong([operator_sample(op, dtype) for dtype in OPERATORS[op].types], width, scalar=False) == []


def conversion_samples(source: DType) -> list[Sample]:
    values = singles(source)
    samples: list[Sample] = []
    for target in DType:
        expected = array_bits(array_cast(source, target)(values), target)
        samples.append(((source,), (values,), target, lambda a, t=target: n.Cast(t, a), expected))
        if source.bits == target.bits:
            expected = array_bits(array_bitcast(source, target)(values), target)
            samples.append(((source,), (values,), target, lambda a, t=target: n.Bitcast(t, a), expected))
    return samples


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("source", DType, ids=str)
def test_conversions(source: DType, scalar: bool) -> None:
    assert wrong(conversion_samples(source), 8, scalar=scalar) == []


@pytest.mark.parametrize("scalar", [False, True])
def test_fused_multiply_add(scalar: bool) -> None:
    samples: list[Sample] = []
    for dtype in FUSED_TYPES:
        a, b = pairs(dtype)
        c = np.roll(b, 7)
        samples.append(((dtype,) * 3, (a, b, c), dtype, n.Fma, array_bits(array_fma(dtype)(a, b, c), dtype)))
    assert wrong(samples, 16, scalar=scalar) == []


@pytest.mark.parametrize("op", ["div", "mod"])
def test_division_of_all_lanes_by_one_value(op: str) -> None:
    left, right = (edge_bits(DType.U32) + random_bits(DType.U32, 300, seed) for seed in (1, 2))
    a, b = array(left, DType.U32), array(right, DType.U32)
    index = var("k") * buf_len("a") + gid()
    body = [store("out", index, n.BinOp(op, n.Load("a", gid()), n.Load("b", var("k"))))]
    entry = [n.If(gid() < buf_len("a"), (loop("k", 0, buf_len("b"), body),))]
    buffers = [
        BufferDecl.read("a", 0, DType.U32),
        BufferDecl.read("b", 1, DType.U32),
        BufferDecl.output("out", 2, DType.U32, len(a) * len(b)),
    ]
    out = backend(16).dispatch(Program.new(buffers, 64, entry), [a, b], DispatchConfig(dispatch_elements=len(a)))[0]
    expected = array_meaning(op, DType.U32)(np.tile(a, len(b)), np.repeat(b, len(a)))
    assert np.array_equal(np.frombuffer(out, np.uint32), expected)
