"""Atomics of vectors: combined into one where lanes change the same element, plain loads where the order is relaxed."""

from __future__ import annotations

import numpy as np
import pytest

from cpu_support import backend, sharing_backend
from vyre import reference
from vyre.driver.config import DispatchConfig
from vyre.ir import parse

OPERATORS = ("add", "sub", "and", "or", "xor", "min", "max")
RETURNED = """
program returned(workgroup 64) {{
  buffer 0 value: {dtype}[] read
  buffer 1 cell: {dtype}[3] readwrite
  buffer 2 old: {dtype}[] readwrite
  if gid.x < len(value) & {guard} {{ old[gid.x] = atomic_{op}(cell, {index}, value[gid.x]{order}) }}
}}
"""


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["u32", "i32", "u64", "i64"])
@pytest.mark.parametrize("guard", ["true", "value[gid.x] % {seven} != {zero}"])
def test_old_values_are_those_of_lanes_in_order(op: str, dtype: str, guard: str) -> None:
    """One thread takes workgroups in order, so the old values are those of the reference."""
    size = 200
    guard = guard.format(seven=f"7{dtype}", zero=f"0{dtype}")
    program = parse(RETURNED.format(op=op, dtype=dtype, guard=guard, index="2", order=""))
    random = np.random.default_rng(3)
    numpy_type = np.dtype(dtype.replace("u", "uint").replace("i3", "int3").replace("i6", "int6"))
    value = random.integers(0, 1 << 30, size).astype(numpy_type)
    given = {"value": value, "cell": np.array([5, 6, 1 << 29], numpy_type), "old": np.full(size, 9, numpy_type)}
    wanted = reference.run(program, given, elements=size).outputs
    for width in (1, 4, 8, 16):
        cell, old = backend(width).dispatch(program, given, DispatchConfig(dispatch_elements=size))
        assert np.array_equal(np.frombuffer(cell, numpy_type), wanted["cell"]), width
        assert np.array_equal(np.frombuffer(old, numpy_type), wanted["old"]), width


@pytest.mark.parametrize("index", ["7", "value[0]"])
def test_old_values_out_of_bounds_are_zero(index: str) -> None:
    program = parse(RETURNED.format(op="add", dtype="u32", guard="gid.x % 3 == 0", index=index, order=""))
    value = np.arange(9, 109, dtype=np.uint32)
    given = {"value": value, "cell": np.zeros(3, np.uint32), "old": np.ones(100, np.uint32)}
    wanted = reference.run(program, given, elements=100).outputs
    for width in (1, 4, 16):
        cell, old = backend(width).dispatch(program, given, DispatchConfig(dispatch_elements=100))
        assert np.array_equal(np.frombuffer(cell, np.uint32), wanted["cell"])
        assert np.array_equal(np.frombuffer(old, np.uint32), wanted["old"])


@pytest.mark.parametrize("order", ["", ", relaxed", ", acq_rel"])
def test_threads_append_each_element_once(order: str) -> None:
    program = parse(f"""
    program append(workgroup 64) {{
      buffer 0 keep: u32[] read
      buffer 1 count: u32[1] readwrite
      buffer 2 out: u32[] readwrite
      if gid.x < len(keep) {{
        if keep[gid.x] != 0 {{ out[atomic_add(count, 0, 1{order})] = gid.x }}
      }}
    }}""")
    size = 1 << 15
    keep = np.random.default_rng(5).integers(0, 2, size, dtype=np.uint32)
    for on in (backend(4), backend(16), sharing_backend(2, 8), sharing_backend(4, 16)):
        given = [keep, np.zeros(1, np.uint32), np.zeros(size, np.uint32)]
        count, out = on.dispatch(program, given, DispatchConfig(dispatch_elements=size))
        kept = np.flatnonzero(keep)
        assert np.frombuffer(count, np.uint32)[0] == len(kept)
        assert np.array_equal(np.sort(np.frombuffer(out, np.uint32)[: len(kept)]), kept)


def test_relaxed_loads_are_vector_loads() -> None:
    text = """
    program spin(workgroup 64) {{
      buffer 0 a: u32[] readwrite
      buffer 1 out: u32[] readwrite
      out[gid.x] = atomic_load(a, (gid.x * 7) % 64{order})
    }}"""
    for order, is_vector in (("", False), (", relaxed", True)):
        kernel = backend(16).kernel(parse(text.format(order=order))).kernel
        assert ("atomic.load" not in kernel.text) is is_vector
        assert ('fence syncscope("singlethread")' in kernel.text) is is_vector


def test_a_relaxed_load_in_a_loop_sees_what_others_store() -> None:
    """Invocations of one workgroup wait for one another, in lockstep over a barrier."""
    program = parse("""
    program wait(workgroup 64) {
      buffer 0 flag: u32[64] readwrite
      buffer 1 out: u32[64] readwrite
      for k in 0 .. 50 {
        let unused = atomic_store(flag, lid.x, k, relaxed)
        barrier
        out[lid.x] = out[lid.x] + atomic_load(flag, (lid.x + 1) % 64, relaxed)
        barrier
      }
    }""")
    given = {"flag": np.zeros(64, np.uint32), "out": np.zeros(64, np.uint32)}
    wanted = reference.run(program, given).outputs["out"]
    for width in (1, 4, 16):
        assert np.array_equal(np.frombuffer(backend(width).dispatch(program, given)[1], np.uint32), wanted)
