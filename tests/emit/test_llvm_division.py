"""Division of 32-bit integers in vectors is exact: at the edges of its proof, beside multiples, and anywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpu_support import backend
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

Array = np.ndarray[Any, Any]

TEXT = """
program divide(workgroup 64) {{
  buffer 0 a: {dtype}[] read
  buffer 1 b: {dtype}[] read
  buffer 2 quotient: {dtype}[] output
  buffer 3 rest: {dtype}[] output
  quotient[gid.x] = a[gid.x] / {divisor}
  rest[gid.x] = a[gid.x] % {divisor}
}}
"""

MULTIPLES = """
program multiples(workgroup 64) {{
  buffer 0 a: {dtype}[] read
  buffer 1 b: {dtype}[] read
  buffer 2 out: u32[] output
  let n = a[gid.x]
  let found = false
  for k in 0..3 {{ if n % (b[0] + {dtype}(k)) == {dtype}(0) {{ found = true; break }} }}
  let rest = n % b[0]
  let big = rest != {dtype}(0) & n > {dtype}(5)
  out[gid.x] = u32(rest == {dtype}(0)) + 2 * u32(big) + 4 * u32(found)
}}
"""
ONES = (0, 1, 2, 3, 7, 641, 2**16, 2**16 + 1, 2**24 - 1, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 2, 2**32 - 1)


def divisors() -> Array:
    """The smallest and the greatest, and those beside every power of two and where rounding to f32 changes."""
    near = [np.arange(1, 2**11), 2**32 - np.arange(1, 2**13), 2**24 + np.arange(-64, 64), 2**31 + np.arange(-64, 64)]
    near += [2**k + np.arange(-3, 4) for k in range(2, 32)]
    random = np.random.default_rng(1)
    near += [random.integers(1, 2**32, 4000), 2 ** random.integers(0, 32, 4000) + random.integers(0, 2**16, 4000)]
    return np.concatenate(near).clip(1, 2**32 - 1)


def dividends(b: Array) -> tuple[Array, Array]:
    """For each divisor: beside its multiples, of which the last one counts, and the greatest number."""
    random = np.random.default_rng(2)
    most = (2**32 - 1) // b
    factors = [np.ones_like(b), most, (random.random(len(b)) * most).astype(np.int64)]
    a = [factor * b + offset for factor in factors for offset in (-1, 0, 1)] + [np.full_like(b, 2**32 - 1), b * 0]
    joined = np.concatenate(a).clip(0, 2**32 - 1).astype(np.uint32)
    return joined, np.tile(b, len(a)).astype(np.uint32)


def expected(a: Array, b: Array) -> tuple[Array, Array]:
    """Toward zero, in numbers that are long enough not to wrap around; x/0 is x, and the rest 0."""
    long, divisor = a.astype(np.int64), b.astype(np.int64)
    safe = np.where(divisor == 0, 1, divisor)
    quotient = np.sign(long) * np.sign(safe) * (abs(long) // abs(safe))
    rest = np.where(divisor == 0, 0, long - quotient * safe)
    return quotient.astype(a.dtype), rest.astype(a.dtype)


def divide(a: Array, b: Array, width: int, divisor: str = "b[gid.x]") -> tuple[Array, Array]:
    program = parse(TEXT.format(dtype="i32" if a.dtype == np.int32 else "u32", divisor=divisor))
    outputs = backend(width).dispatch(program, [a, b], DispatchConfig(dispatch_elements=len(a)))
    quotient, rest = (np.frombuffer(view, a.dtype) for view in outputs)
    return quotient, rest


@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_every_lane_by_its_own(width: int, dtype: type) -> None:
    a, b = (x.view(dtype) for x in dividends(divisors()))
    assert all(map(np.array_equal, divide(a, b, width), expected(a, b)))


@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
@pytest.mark.parametrize("divisor", ONES)
def test_all_lanes_by_one(divisor: int, dtype: type) -> None:
    a, b = some_by_one(divisor, dtype)
    assert all(map(np.array_equal, divide(a, b, 16, "b[0]"), expected(a, np.repeat(b, len(a)))))


def some_by_one(divisor: int, dtype: type) -> tuple[Array, Array]:
    one = np.array([divisor], np.uint32)
    random = np.random.default_rng(3)
    near, anywhere = (dividends(np.maximum(one, 1).astype(np.int64))[0], random.integers(0, 2**32, 900))
    multiples = random.integers(0, 2**32, 900) // max(divisor, 1) * max(divisor, 1)
    return np.concatenate([near, anywhere, multiples]).astype(np.uint32).view(dtype), one.view(dtype)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32])
@pytest.mark.parametrize("width", [1, 4, 8, 16])
def test_multiples_of_one(width: int, dtype: type) -> None:
    program = parse(MULTIPLES.format(dtype="i32" if dtype is np.int32 else "u32"))
    for divisor in ONES:
        a, b = some_by_one(divisor, dtype)
        (given,) = backend(width).dispatch(program, [a, b], DispatchConfig(dispatch_elements=len(a)))
        holds = [expected(a, np.repeat(b + np.asarray(k, dtype), len(a)))[1] == 0 for k in range(3)]
        wanted = holds[0] + 2 * (~holds[0] & (a > 5)) + 4 * np.logical_or.reduce(holds)
        assert np.array_equal(np.frombuffer(given, np.uint32), wanted), divisor


@pytest.mark.long
def test_anywhere() -> None:
    random = np.random.default_rng(4)
    for _ in range(60):
        a, b = (random.integers(0, 2**32, 1 << 20).astype(np.uint32) >> random.integers(0, 32, 1 << 20) for _ in "ab")
        a, b = a.astype(np.uint32), b.astype(np.uint32)
        for dtype in (np.uint32, np.int32):
            x, y = a.view(dtype), b.view(dtype)
            assert all(map(np.array_equal, divide(x, y, 16), expected(x, y)))
