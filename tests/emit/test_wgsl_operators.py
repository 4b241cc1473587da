"""Every operator, cast, bitcast and fused product, as WGSL on a device, gives the bits of ``vyre.semantics``.

All operators of a type are one kernel, because a kernel takes longer to compile than to run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from semantics.meaning_samples import array, array_bits, edge_bits, random_bits
from vyre.driver.config import DispatchConfig
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import gid, load, store, var
from vyre.ir.program import Program
from vyre.semantics.arrays import array_bitcast, array_cast, array_fma, array_meaning, to_storage
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import DType
from webgpu_support import backend

Array = np.ndarray[Any, Any]
TYPES = [dtype for dtype in DType if dtype is not DType.F64]
# What an operation computes, the type of that, and what it has to be.
Operation = tuple[n.Expr, DType, list[int]]


def operands(dtype: DType) -> tuple[Array, Array]:
    edges = edge_bits(dtype)
    left = [a for a in edges for _ in edges] + random_bits(dtype, 500, 1)
    right = [b for _ in edges for b in edges] + random_bits(dtype, 500, 2)
    return array(left, dtype), array(right, dtype)


def wrong(given: dict[str, tuple[DType, Array]], operations: list[Operation]) -> list[str]:
    """Runs all operations on the same inputs in one program, each result type in a buffer of its own."""
    (count,) = {len(values) for _, values in given.values()}
    by_type: dict[DType, list[Operation]] = {}
    for operation in operations:
        by_type.setdefault(operation[1], []).append(operation)
    buffers = [BufferDecl.read(f"in_{name}", k, dtype) for k, (name, (dtype, _)) in enumerate(given.items())]
    body: list[n.Stmt] = [n.Let(name, load(f"in_{name}", gid())) for name in given]
    for dtype, group in by_type.items():
        buffers.append(BufferDecl.output(f"out_{dtype}", len(buffers), dtype, count * len(group)))
        body += [store(f"out_{dtype}", gid() + k * count, value) for k, (value, _, _) in enumerate(group)]
    inputs = [np.ascontiguousarray(to_storage(values, dtype)) for dtype, values in given.values()]
    program = Program.new(buffers, 64, [n.If(gid() < count, tuple(body))])
    outputs = backend().dispatch(program, inputs, DispatchConfig(dispatch_elements=count))
    found = []
    for (dtype, group), view in zip(by_type.items(), outputs, strict=True):
        results = np.frombuffer(view, f"<u{dtype.bytes}").reshape(len(group), count)
        for (value, _, expected), got in zip(group, results, strict=True):
            at = np.nonzero(got != np.array(expected, got.dtype))[0]
            shown = [([str(values[k]) for _, values in given.values()], hex(got[k]), hex(expected[k])) for k in at[:3]]
            found += [f"{value}: {one}" for one in shown]
    return found


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_operators(dtype: DType) -> None:
    x, y = operands(dtype)
    operations: list[Operation] = []
    for op, row in OPERATORS.items():
        if dtype in row.types and op not in MATH_FUNCTIONS:
            values = array_meaning(op, dtype)(*((x, y) if row.arity == 2 else (x,)))
            made = n.BinOp(op, var("x"), var("y")) if row.arity == 2 else n.UnOp(op, var("x"))
            operations.append((made, row.result_type(dtype), array_bits(values, row.result_type(dtype))))
    assert wrong({"x": (dtype, x), "y": (dtype, y)}, operations) == []


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F32], ids=str)
def test_math_functions(dtype: DType) -> None:
    x = array(edge_bits(dtype) + random_bits(dtype, 1500), dtype)
    operations = [
        (n.UnOp(op, var("x")), dtype, array_bits(array_meaning(op, dtype)(x), dtype)) for op in MATH_FUNCTIONS
    ]
    assert wrong({"x": (dtype, x)}, operations) == []


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_conversions(source: DType) -> None:
    x = array(edge_bits(source) + random_bits(source, 1500), source)
    operations: list[Operation] = []
    for target in TYPES:
        operations.append((n.Cast(target, var("x")), target, array_bits(array_cast(source, target)(x), target)))
        if source.bits == target.bits:
            bits = array_bits(array_bitcast(source, target)(x), target)
            operations.append((n.Bitcast(target, var("x")), target, bits))
    assert wrong({"x": (source, x)}, operations) == []


def test_a_fused_product_rounds_once() -> None:
    dtype = DType.F32
    x, y = operands(dtype)
    # Sums that cancel most of the product, and products that lie between two values.
    with np.errstate(all="ignore"):
        near = array(array_bits(-(x * y), dtype), dtype)
    given = {"x": np.tile(x, 3), "y": np.tile(y, 3), "z": np.concatenate([np.roll(y, 7), near, np.roll(near, 1)])}
    expected = array_bits(array_fma(dtype)(*given.values()), dtype)
    operation = n.Fma(var("x"), var("y"), var("z")), dtype, expected
    assert wrong({name: (dtype, values) for name, values in given.items()}, [operation]) == []
