"""The processor gives the reference's bytes, touches nothing that is not its own, and stops when it is told to."""

from __future__ import annotations

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpu_support import backend, call, difference, guarded, run_case
from vyre import reference
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.compile import object_code
from vyre.backends.cpu.kernels import SCALAR
from vyre.backends.cpu.pool import wanted_threads
from vyre.conform.case import Case
from vyre.conform.filetest import BACKENDS, is_legal, load_filetest, runs_wrong
from vyre.driver import Step, telemetry
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.driver.sequence import Unchanged
from vyre.errors import BadInputs, KernelCompileFailed, Timeout
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse
from vyre.ir.buffers import BufferDecl
from vyre.ir.extensions import inline_calls
from vyre.ir.launch import MAX_GRID_AXIS
from vyre.ir.program import Program
from vyre.optimizer.switches import Optimization
from vyre.semantics.types import DType

FILES = sorted((Path(__file__).parent.parent / "filetests").rglob("*.vyre"))

COLLATZ = """
program collatz(workgroup 64) {
  buffer 0 steps: u32[] output
  let n = gid.x + 1
  let count = 0
  while n != 1 {
    if (n & 1) == 1 { n = n * 3 + 1 } else { n = n >> 1 }
    count = count + 1
  }
  steps[gid.x] = count
}
"""

FOREVER = """
program forever(workgroup 64) {
  buffer 0 out: u32[] output
  let k = gid.x
  while k < 4096 { k = k & 1023 }
  out[gid.x] = k
}
"""

HISTOGRAM = """
program histogram(workgroup 64) {
  buffer 0 data: u32[] read
  buffer 1 bins: u32[16] output
  buffer 2 total: u32[1] output
  buffer 3 tickets: u32[] output
  if gid.x < len(data) {
    let old = atomic_add(bins, data[gid.x] & 15, 1)
    let unused = atomic_add(total, 0, data[gid.x])
    tickets[gid.x] = old
  }
}
"""

NEIGHBOURS = """
program neighbours(workgroup 24) {
  buffer 0 data: f32[] readwrite
  buffer 1 tile: f32[24] workgroup
  tile[lid.x] = data[gid.x]
  for round in 0 .. 5 {
    barrier
    let left = tile[lid.x - 1]
    let right = tile[lid.x + 1]
    barrier
    tile[lid.x] = (left + right) * 0.5 + f32(round)
  }
  data[gid.x] = tile[lid.x]
}
"""

CLIMB = """
program climb(workgroup 32) {
  buffer 0 level: u32[] readwrite
  level[gid.x] = min(level[gid.x] + 3, 40)
}
"""


def words(view: Any) -> list[int]:
    return np.frombuffer(view, np.uint32).tolist()


def collatz_steps(count: int) -> list[int]:
    steps = []
    for start in range(1, count + 1):
        n, length = start, 0
        while n != 1:
            n, length = (3 * n + 1 if n & 1 else n >> 1), length + 1
        steps.append(length)
    return steps


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_filetest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = load_filetest(path)
    if not is_legal(test) or not test.runs:
        return
    ways = [(8, Optimization(keep=False)), (8, Optimization(program=False))]
    if not inline_calls(parse(test.text)).stats().has_subgroup_ops:
        ways += [(SCALAR, Optimization(program=False)), (SCALAR, Optimization(program=False, code=False))]
    for width, switches in ways:
        monkeypatch.setitem(BACKENDS, "cpu", partial(run_case, on=backend(width), optimize=switches))
        assert runs_wrong(test, "cpu") == [], (width, switches)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("elements", [0, 1, 15, 16, 17, 64, 2047, 5000])
def test_a_divergent_loop_ends_for_each_lane_by_itself(elements: int, threads: int) -> None:
    out = backend(None, threads).dispatch(parse(COLLATZ), [], DispatchConfig(dispatch_elements=elements))
    assert words(out[0]) == collatz_steps(elements)


@pytest.mark.parametrize("threads", [1, 2])
def test_atomics_lose_nothing_between_lanes_and_threads(threads: int) -> None:
    data = np.random.default_rng(1).integers(0, 1 << 20, 9000, dtype=np.uint32)
    bins, total, tickets = (words(view) for view in backend(None, threads).dispatch(parse(HISTOGRAM), [data]))
    assert bins == np.bincount(data & 15, minlength=16).tolist()
    assert total == [int(data.sum(dtype=np.uint64)) & 0xFFFFFFFF]
    for cell in range(16):
        assert sorted(np.array(tickets)[(data & 15) == cell]) == list(range(bins[cell]))


def test_one_thread_takes_tickets_in_the_order_of_invocations() -> None:
    data = np.zeros(100, np.uint32)
    assert words(backend(16).dispatch(parse(HISTOGRAM), [data])[2]) == list(range(100))


@pytest.mark.parametrize("width", [4, 8, 16])
def test_barriers_order_the_vectors_of_a_workgroup(width: int) -> None:
    data = np.arange(100, dtype=np.float32)
    expected = np.concatenate([data, np.zeros(20, np.float32)])
    for start in range(0, 120, 24):
        tile = expected[start : start + 24]
        for number in range(5):
            padded = np.concatenate([np.zeros(1, np.float32), tile, np.zeros(1, np.float32)])
            tile = (padded[:-2] + padded[2:]) * np.float32(0.5) + np.float32(number)
        expected[start : start + 24] = tile
    out = backend(width).dispatch(parse(NEIGHBOURS), [data])[0]
    assert np.frombuffer(out, np.float32).tolist() == expected[:100].tolist()


@pytest.mark.skipif(sys.platform == "win32", reason="there is no mprotect")
@pytest.mark.parametrize("dtype", DType, ids=str)
@pytest.mark.parametrize("count", [1, 7, 16, 45])
def test_a_kernel_never_touches_memory_that_is_not_its_own(dtype: DType, count: int) -> None:
    program = parse(f"""
    program edges(workgroup 16) {{
      buffer 0 source: {dtype}[] read
      buffer 1 target: {dtype}[] readwrite
      let i = gid.x
      target[i] = source[i]
      target[i + 3] = source[i + 5]
      target[i - 3] = source[i - 9]
      target[i * 77777777] = source[i * 3]
      target[len(target)] = source[len(source)]
      target[4294967295] = source[4294967290 + i]
      target[i ^ 5] = source[4294967295]
    }}""")
    invocations = 64
    for width in (4, 16):
        compiled = backend(width).kernel(program)
        owners, addresses = zip(*(guarded(count * dtype.bytes) for _ in range(2)), strict=True)
        stop = np.zeros(1, np.int32)
        block = np.array(
            [stop.ctypes.data, 4, 1, 1, *(word for address in addresses for word in (address, count))], np.int64
        )
        call(compiled, block, invocations if compiled.kernel.is_flat else 4)
        assert stop[0] == 0
        assert len(owners) == 2


def test_consecutive_indices_that_wrap_around_reach_the_front() -> None:
    program = parse("""
    program wrap(workgroup 16) {
      buffer 0 source: u32[] read
      buffer 1 out: u32[32] output
      out[gid.x] = source[gid.x + 4294967288]
      out[gid.x + 4294967288 + 16] = source[gid.x]
    }""")
    source = np.arange(100, 132, dtype=np.uint32)
    out = words(backend(16).dispatch(program, [source], DispatchConfig(grid_override=(1,)))[0])
    assert out == [0] * 8 + [100 + k for k in range(16)] + [0] * 8


LOOPS = """
program loops(workgroup 16) {
  buffer 0 out: u32[] output
  let i = gid.x
  let total = 0
  let confined = 0
  while confined * 3 < i {
    total = total + confined
    confined = confined + 2
  }
  let read_later = 0
  while read_later < i { read_later = read_later + 3 }
  let skipped = 0
  let passes = 0
  while passes < 20 {
    passes = passes + 1
    if (passes + i) % 3 == 0 { continue }
    skipped = skipped + 1
    if skipped > i % 7 { break }
    total = total + skipped
  }
  let kept = 1
  for round in 0 .. 3 {
    while kept % 16 < i % 16 { kept = kept + 1 }
    total = total * 5 + kept
  }
  for round in 0 .. 4 {
    let fresh = round
    while fresh < i % 9 {
      fresh = fresh + 1
      if fresh == 7 { return }
    }
  }
  out[i] = total * 31 + read_later
}
"""


@pytest.mark.parametrize("width", [4, 8, 16])
def test_variables_of_loops_that_lanes_leave_at_different_times(width: int) -> None:
    case = Case(parse(LOOPS), {}, elements=100)
    assert difference(case, backend(width)) is None


PRIVATE = """
program private(workgroup 16) {
  buffer 0 added: u32[8] readwrite
  buffer 1 flipped: u64[4] readwrite
  buffer 2 taken: i32[3] readwrite
  buffer 3 looked_at: u32[1] readwrite
  buffer 4 mixed: u32[2] readwrite
  buffer 5 out: u32[] output
  let a = atomic_add(added, gid.x % 9, gid.x)
  let b = atomic_xor(flipped, gid.x % 4, u64(gid.x) << 40u64)
  let c = atomic_sub(taken, gid.x % 3, i32(gid.x))
  let d = atomic_add(looked_at, 0, 2)
  if gid.x % 2 == 0 { let e = atomic_add(mixed, 0, 1) } else { let f = atomic_or(mixed, 1, gid.x) }
  out[gid.x] = u32(atomic_load(looked_at, 5) == 0)
}
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_buffers_that_are_only_added_to_get_all_that_was_added(threads: int) -> None:
    program = parse(PRIVATE)
    inputs = {
        decl.name: np.arange(5, 5 + decl.count).astype(decl.dtype.storage)
        for decl in program.buffers
        if decl.role.takes_input
    }
    case = Case(program, inputs, elements=5000)
    assert difference(case, backend(16, threads)) is None
    assert "3 private buffers" in backend(16).compile(program).explain()


def test_a_nan_loses_to_a_number_that_cannot_be_one() -> None:
    program = parse("""
    program lesser(workgroup 1) {
      buffer 0 x: f32[1] read
      buffer 1 k: u32[1] read
      buffer 2 out: f32[2] output
      out[0] = min(x[0], f32(k[0]))
      out[1] = max(f32(k[0]), x[0])
    }""")
    out = backend(16).dispatch(program, [np.array([np.nan], np.float32), np.array([3], np.uint32)])[0]
    assert np.frombuffer(out, np.float32).tolist() == [3.0, 3.0]


def test_a_product_of_long_integers_that_llvm_could_not_compile() -> None:
    program = parse("""
    program product(workgroup 17, subgroup 16) {
      buffer 0 sink: u64[2] readwrite
      sink[1] = sat_mul(subgroup_reduce(add, u64(subgroup_size())), sink[lid.x * 0])
    }""")
    case = Case(program, {"sink": np.array([1 << 57, 0], np.uint64)}, grid=(1, 1, 1))
    assert difference(case, backend(16)) is None


def test_a_run_without_end_is_stopped_and_the_threads_survive() -> None:
    on = backend(None, 2)
    before = time.monotonic()
    with pytest.raises(Timeout):
        on.dispatch(parse(FOREVER), [], DispatchConfig(dispatch_elements=5000, timeout_s=0.2))
    assert time.monotonic() - before < 5
    assert words(on.dispatch(parse(COLLATZ), [], DispatchConfig(dispatch_elements=3000))[0]) == collatz_steps(3000)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    on, program, config = backend(None, 2), parse(COLLATZ), DispatchConfig(dispatch_elements=3000)
    expected = bytes(on.dispatch(program, [], config)[0])
    child = os.fork()
    if child == 0:
        os._exit(0 if bytes(on.dispatch(program, [], config)[0]) == expected else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_many_threads_may_dispatch_at_once() -> None:
    on, program = backend(None, 2), parse(COLLATZ)
    wrong: list[int] = []

    def work(elements: int) -> None:
        config, expected = DispatchConfig(dispatch_elements=elements), collatz_steps(elements)
        wrong.extend(elements for _ in range(10) if words(on.dispatch(program, [], config)[0]) != expected)

    threads = [threading.Thread(target=work, args=(2000 + 100 * k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_what_was_compiled_before_is_read_from_the_disk(tmp_path: Path) -> None:
    def run() -> tuple[int, int]:
        before = telemetry.snapshot()
        on = CpuBackend(threads=1, cache=DiskCache(tmp_path))
        on.dispatch(parse(COLLATZ), [], DispatchConfig(dispatch_elements=10, optimize=False))
        after = telemetry.snapshot()
        return after.compile_misses - before.compile_misses, after.compile_hits - before.compile_hits

    assert run() == (1, 0)
    assert run() == (0, 1)


def test_resident_steps_see_each_other_and_stop_when_nothing_changes() -> None:
    on, start = backend(None, 2), np.arange(20, 80, dtype=np.uint32)
    with on.allocate(start.nbytes) as level:
        on.upload(level, start)
        step = Step(parse(CLIMB), [level])
        result = on.run_sequence([step], repeat=[step], times=1000, until=Unchanged([level]), reads=[level])
        assert (result.passes, result.converged) == (7, True)
        assert words(result.outputs[0]) == [40] * 60


def test_a_pipeline_tells_what_became_of_it() -> None:
    pipeline = backend(16).compile(parse(COLLATZ))
    assert "32 lanes" in pipeline.explain()
    assert "1 divergent loops" in pipeline.explain()
    assert "define void @kernel" in pipeline.llvm()
    assert "kernel" in pipeline.asm()


@pytest.mark.parametrize(
    "make",
    [
        lambda: CpuBackend(width=5),
        lambda: CpuBackend(threads=0),
        lambda: backend(16).dispatch(
            parse(COLLATZ), [], DispatchConfig(grid_override=(MAX_GRID_AXIS,), dispatch_elements=1)
        ),
    ],
)
def test_what_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(BadInputs):
        make()


def test_the_environment_says_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_THREADS", "3")
    assert wanted_threads(None) == 3
    assert wanted_threads(2) == 2
    monkeypatch.setenv("VYRE_THREADS", "many")
    with pytest.raises(BadInputs, match="VYRE_THREADS"):
        wanted_threads(None)


@pytest.mark.parametrize(
    "text",
    ["define void @kernel() { ret i32 }", "define i32 @kernel(i32 %a) {\n  br label %b\nb:\n  ret i32 %c\n}"],
    ids=["parsed", "named"],
)
def test_what_the_compiler_refuses_comes_with_its_source(text: str) -> None:
    with pytest.raises(KernelCompileFailed) as caught:
        object_code(text)
    assert caught.value.source == text


def test_what_the_verifier_refuses_comes_with_its_source() -> None:
    text = "define i32 @kernel(i32 %a) {\n  br label %b\nb:\n  %c = phi i32 [ %a, %b ]\n  ret i32 %c\n}"
    with pytest.raises(KernelCompileFailed) as caught:
        object_code(text, verify=True)
    assert caught.value.source == text


def test_an_empty_program_runs() -> None:
    assert backend(16).dispatch(Program.empty(), []) == []


def test_a_kernel_too_large_for_the_slower_passes_is_right() -> None:
    body: list[n.Stmt] = [b.let("acc", b.load("a", b.gid()))]
    for k in range(2_500):
        part = b.var(f"v{k}")
        body.append(b.let(f"v{k}", b.load("x", b.gid() + k) + b.var("acc") * 3))
        body.append(b.assign("acc", b.var("acc") * 31 + part))
        body.append(b.store("a", b.gid(), b.var("acc") + part))
        body.append(b.if_(part < 7, [b.assign("acc", b.var("acc") + 1)]))
    buffers = [BufferDecl.read_write("a", 0, DType.U32), BufferDecl.read("x", 1, DType.U32)]
    program = Program.new(buffers, 64, body)
    assert len(backend(16).kernel(program).kernel.text) > 4 << 20
    data = np.arange(40, dtype=np.uint32)
    expected = reference.run(program, [data, data]).outputs["a"]
    assert words(backend(16).dispatch(program, [data, data])[0]) == expected.tolist()
