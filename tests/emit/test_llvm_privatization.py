"""Privatized buffers: accumulated in several copies by each call of a kernel, and merged exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cpu_support import backend, sharing_backend
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

Array = np.ndarray[Any, Any]

TEXT = """
program combine(workgroup 64) {{
  buffer 0 at: u32[] read
  buffer 1 value: {dtype}[] read
  buffer 2 cells: {dtype}[{cells}] output
  if gid.x < len(at) & {guard} {{ let old = atomic_{op}(cells, at[gid.x], value[gid.x]) }}
}}
"""
COMBINED = {"add": np.add, "sub": np.subtract, "or": np.bitwise_or, "xor": np.bitwise_xor}


def check(op: str, dtype: type, cells: int, size: int, guard: str = "true") -> None:
    random = np.random.default_rng(size)
    at = random.integers(0, cells + 2, size).astype(np.uint32)
    value = random.integers(0, 1 << 16, size).astype(dtype)
    name = {np.uint32: "u32", np.int32: "i32", np.uint64: "u64"}[dtype]
    program = parse(TEXT.format(op=op, dtype=name, cells=cells, guard=guard))
    here = at < cells
    if guard != "true":
        here &= at % 3 == 1
    expected = np.zeros(cells, dtype)
    COMBINED[op].at(expected, at[here], value[here])
    for on in (backend(16), backend(4), sharing_backend(2, 8)):
        view = on.dispatch(program, [at, value], DispatchConfig(dispatch_elements=size))[0]
        assert np.array_equal(np.frombuffer(view, dtype), expected)


@pytest.mark.parametrize("op", COMBINED)
@pytest.mark.parametrize("cells", [1, 3, 256, 257, 1024])
def test_every_way_to_combine(op: str, cells: int) -> None:
    check(op, np.uint32, cells, 3001)


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 5000])
def test_every_type_and_rest(dtype: type, size: int) -> None:
    check("add", dtype, 100, size)


def test_a_cell_behind_many_others_is_found_by_long_indices() -> None:
    random = np.random.default_rng(1)
    text = """
    program spread(workgroup 256) {
      buffer 0 at: u32[] read
      buffer 1 out: u32[] output
      buffer 2 cells: u32[8192] workgroup
      let old = atomic_add(cells, at[gid.x], lid.x + 1)
      barrier
      out[gid.x] = cells[at[gid.x]]
    }
    """
    at = random.integers(0, 8193, 256).astype(np.uint32)
    sums = np.zeros(8193, np.uint32)
    np.add.at(sums, at, np.arange(1, 257, dtype=np.uint32))
    sums[8192] = 0
    for width in (4, 8, 16):
        view = backend(width).dispatch(parse(text), [at])[0]
        assert np.array_equal(np.frombuffer(view, np.uint32), sums[at])


def test_lanes_that_stay_away_add_nothing() -> None:
    check("add", np.uint32, 256, 4000, "at[gid.x] % 3 == 1")
