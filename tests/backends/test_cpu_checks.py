"""Bounds checks on the processor: removed or not, the same bytes, and never a touch of memory that is not one's own."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from cpu_support import backend, call, compare, difference, guarded, meaning, outcome
from guarded_programs import guarded_case
from vyre.conform.case import Case
from vyre.conform.generator import generate
from vyre.driver.config import DispatchConfig
from vyre.ir import parse
from vyre.semantics.types import DType

WIDTHS = (1, 4, 8, 16)


@pytest.mark.parametrize("width", WIDTHS)
def test_guarded_programs_give_the_bytes_of_the_reference_with_and_without_checks(width: int) -> None:
    removed = 0
    for seed in range(1000 * width, 1000 * width + 10):
        case = guarded_case(seed, apart=True)
        expected = meaning(case)
        for on in (backend(width), backend(width, check_elimination=False)):
            assert compare(expected, outcome(case, on)) is None, seed
        removed += backend(width).kernel(case.program).kernel.notes["checks removed"]
        assert not backend(width, check_elimination=False).kernel(case.program).kernel.notes["checks removed"]
    assert removed > 10


@pytest.mark.parametrize("width", WIDTHS[1:])
def test_generated_programs_give_the_bytes_of_the_reference_without_check_elimination(width: int) -> None:
    for seed in range(100 * width, 100 * width + 6):
        assert difference(generate(seed, 12), backend(width, check_elimination=False)) is None, seed


@pytest.mark.long
@pytest.mark.parametrize("width", WIDTHS)
def test_many_guarded_programs_give_the_bytes_of_the_reference_with_and_without_checks(width: int) -> None:
    for seed in range(20_000 * width, 20_000 * width + 2_000):
        case = guarded_case(seed, apart=True)
        expected = meaning(case)
        for on in (backend(width), backend(width, check_elimination=False)):
            assert compare(expected, outcome(case, on)) is None, seed


EDGES = """
program edges(workgroup 16) {{
  buffer 0 source: {dtype}[{count}] read
  buffer 1 target: {dtype}[{count}] readwrite
  let i = gid.x
  target[i] = source[i]
  target[i + 3] = source[i + 5]
  target[i - 3] = source[i - 9]
  target[4294967290 + i] = source[4294967290 + i]
  target[i * 2] = source[i * 3]
  target[20 - i] = source[7 - i]
  if i < len(target) {{ target[i] = source[i] }}
  if i > 0 & i < len(target) {{ target[i - 1] = source[i - 1] }}
  if i > 2 & i < len(source) {{
    let left = source[i - 3]
    if i < len(target) {{ target[i - 3] = left }}
  }}
  if len(target) > 0 & len(source) > 0 {{ target[i % len(target)] = source[i % len(source)] }}
  if i >= len(source) {{ return }}
  let again = source[i]
  for k in 0 .. len(target) {{ target[k] = again }}
  let at = i
  while at < len(source) {{
    let seen = source[at]
    if at < len(target) {{ target[at] = seen }}
    at = at + 16
  }}
}}"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mprotect")
@pytest.mark.parametrize("at_front", [False, True], ids=["at the end of a page", "at the front of a page"])
@pytest.mark.parametrize("fixed", [False, True], ids=["sized at run time", "of fixed size"])
@pytest.mark.parametrize("dtype", [DType.U8, DType.U32], ids=str)
def test_a_kernel_without_checks_touches_no_memory_that_is_not_its_own(
    dtype: DType, fixed: bool, at_front: bool
) -> None:
    for count in (1, 45):
        program = parse(EDGES.format(dtype=dtype, count=count if fixed else ""))
        for width in WIDTHS:
            kernel = backend(width).kernel(program)
            # Of an array of one element, the optimizer drops the branches that nothing enters.
            assert kernel.kernel.notes["checks removed"] >= (6 if fixed and count == 1 else 8)
            owners, addresses = zip(*(guarded(count * dtype.bytes, at_front=at_front) for _ in range(2)), strict=True)
            stop = np.zeros(1, np.int32)
            words = [stop.ctypes.data, 4, 1, 1, *(word for address in addresses for word in (address, count))]
            block = np.array(words, np.int64)
            call(kernel, block, 64 if kernel.kernel.is_flat else 4)
            assert stop[0] == 0
            assert len(owners) == 2


def test_consecutive_indices_that_wrap_around_reach_the_front_of_short_buffers() -> None:
    program = parse("""
    program wrap(workgroup 16) {
      buffer 0 source: u32[32] read
      buffer 1 out: u32[32] output
      out[gid.x] = source[gid.x + 4294967288]
      out[gid.x + 4294967288 + 16] = source[gid.x]
    }""")
    source = np.arange(100, 132, dtype=np.uint32)
    for width in WIDTHS:
        (out,) = backend(width).dispatch(program, [source], DispatchConfig(grid_override=(1,)))
        expected = [0] * 8 + [100 + k for k in range(16)] + [0] * 8
        assert np.frombuffer(out, np.uint32).tolist() == expected


def test_explain_tells_the_checks_that_were_kept_and_removed() -> None:
    program = parse("""
    program told(workgroup 64) {
      buffer 0 a: f32[] read
      buffer 1 out: f32[] output
      if gid.x < len(out) { out[gid.x] = a[gid.x] + a[gid.x * 3] }
    }""")
    lines = backend(16).compile(program).explain().splitlines()
    told = {what.strip(): int(count) for count, _, what in (line.strip().partition(" ") for line in lines[1:])
            if count.isdigit()}  # fmt: skip
    assert told["checks removed"] == 2
    assert told["checks kept"] == 1
    assert told["linear loads"] == told["strided loads"] == told["linear stores"] == 1


@pytest.mark.parametrize("width", WIDTHS)
def test_atomics_that_are_proved_to_be_in_bounds_are_not_checked(width: int) -> None:
    text = """
    program count(workgroup 8) {{
      buffer 0 at: u32[] read
      buffer 1 cells: u32[16] output
      buffer 2 olds: u32[40] output
      buffer 3 tops: u32[16] output
      buffer 4 bits: u32[16] output
      if gid.x < 40 {{
        let old = atomic_add(cells, {0}, 1)
        olds[gid.x] = atomic_max(tops, {0}, gid.x)
        let one = atomic_or(bits, {1}, gid.x)
      }}
    }}
    """
    for index, uniform, kept in (("gid.x & 15", "7", 0), ("gid.x % 17", "16", 3)):
        program = parse(text.format(index, uniform))
        case = Case(program, {"at": np.zeros(1, np.uint32)}, elements=48)
        for on in (backend(width), backend(width, check_elimination=False)):
            assert difference(case, on) is None
        assert backend(width).kernel(program).kernel.notes["checks kept"] == kept
