"""Programs are optimized by default before they run: once per program, and unless switched off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vyre
from vyre.backends.cpu import CpuBackend
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Step, optimizer_cache, optimizing, telemetry, trace
from vyre.driver.backend import Backend
from vyre.driver.binding import binder_of
from vyre.driver.cache import DiskCache, default_cache_directory
from vyre.driver.config import DispatchConfig
from vyre.driver.optimizing import optimize
from vyre.errors import BadInputs, DispatchFailed, InvalidProgram
from vyre.ir import CompositeOp, parse, register_op
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.program import Program
from vyre.lang import Kernel
from vyre.optimizer.dispatcher import OptimizerDispatcher
from vyre.optimizer.pipeline import optimize_with
from vyre.optimizer.switches import EVERY_BIT, EVERYTHING, PASSES, Optimization
from vyre.reference import run
from vyre.semantics.types import DType

TEXT = """program wasteful(workgroup 4) {
  buffer 0 x: u32[] read
  buffer 1 y: u32[] readwrite
  let i = gid.x
  let unused = x[0] * 17
  if i < len(y) { y[i] = (x[i] + 0) * 1 + (5 + i) - i }
}"""
X = np.array([3, 1, 4, 1], np.uint32)
WANTED = (X + 5).tobytes()


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # The optimizer's kernels stay in the cache that all tests share.
    optimizing.default_dispatcher().programs()
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path))
    optimizer_cache._known.clear()
    yield
    optimizer_cache._known.clear()


def fresh() -> Backend:
    """A backend that has compiled nothing, with the test's own cache."""
    return CpuBackend(threads=1, verify=True, cache=DiskCache(default_cache_directory()))


def counts() -> tuple[int, int]:
    now = telemetry.snapshot()
    return now.optimizer_runs, now.optimizer_hits


def since(before: tuple[int, int]) -> tuple[int, int]:
    runs, hits = counts()
    return runs - before[0], hits - before[1]


@vyre.kernel
def wasteful(x: vyre.In[vyre.u32], y: vyre.InOut[vyre.u32]) -> None:
    i = vyre.gid()
    if i < len(y):
        y[i] = (x[i] + 0) * 1 + (5 + i) - i


def by_dispatch(on: Backend) -> bytes:
    return bytes(on.dispatch(parse(TEXT), [X, X])[0])


def by_pipeline(on: Backend) -> bytes:
    return bytes(on.compile(parse(TEXT)).dispatch([X, X])[0])


def in_place(on: Backend) -> bytes:
    memory = [X.copy(), X.copy()]
    on.dispatch_in_place(parse(TEXT), memory)
    return memory[1].tobytes()


def by_sequence(on: Backend) -> bytes:
    x, y = on.allocate_many([16, 16])
    on.upload_many([(x, 0, X), (y, 0, X)])
    result = on.run_sequence([Step(parse(TEXT), [x, y])], reads=[y])
    for buffer in (x, y):
        on.free(buffer)
    return bytes(result.outputs[0])


def by_kernel(on: Backend) -> bytes:
    y = np.zeros(4, np.uint32)
    Kernel(wasteful.definition, on)[4](X, y)
    return y.tobytes()


@pytest.mark.parametrize("run", [by_dispatch, by_pipeline, in_place, by_sequence, by_kernel])
def test_every_way_to_run_a_program_optimizes_it_once(run: Any) -> None:
    on = fresh()
    before = counts()
    assert run(on) == WANTED
    assert since(before)[0] <= 1
    assert sum(since(before)) >= 1 or run is by_kernel
    assert run(on) == WANTED
    assert since(before)[0] <= 1


def test_the_reference_backend_does_not_optimize() -> None:
    before = counts()
    assert by_dispatch(ReferenceBackend()) == by_sequence(ReferenceBackend()) == WANTED
    assert since(before) == (0, 0)


def test_optimization_can_be_switched_off() -> None:
    on, before = fresh(), counts()
    program = parse(TEXT)
    pipeline = on.compile(program, DispatchConfig(optimize=False))
    assert bytes(pipeline.dispatch([X, X])[0]) == WANTED
    assert pipeline.optimized.program is binder_of(program).program
    assert "optimizer: not used" in pipeline.explain()
    assert since(before) == (0, 0)
    optimized = on.compile(program)
    assert "rows needed" in optimized.explain()
    assert optimized.key != pipeline.key
    assert optimized.optimized.program.stats().statements < program.stats().statements


def test_results_are_cached_in_memory_and_on_disk(tmp_path: Path) -> None:
    before = counts()
    reports = []
    for _ in range(2):
        pipeline = fresh().compile(parse(TEXT))
        pipeline.dispatch([X, X])
        reports.append(pipeline.optimized.report)
    assert since(before) == (1, 1)
    optimizer_cache._known.clear()
    again = fresh().compile(parse(TEXT)).optimized
    assert since(before) == (1, 2)
    assert [report.cached for report in (*reports, again.report)] == ["", "memory", "disk"]
    assert again.program == fresh().compile(parse(TEXT)).optimized.program
    for path in tmp_path.rglob("*.bin"):
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    optimizer_cache._known.clear()
    assert bytes(fresh().compile(parse(TEXT)).dispatch([X, X])[0]) == WANTED
    assert since(before)[0] == 2


def test_a_malformed_cache_file_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = counts()
    monkeypatch.setattr(optimizer_cache.msgspec.msgpack, "encode", lambda _: b"\xc1")
    by_dispatch(fresh())
    monkeypatch.undo()
    optimizer_cache._known.clear()
    assert by_dispatch(fresh()) == WANTED
    assert since(before)[0] >= 1


def test_an_optimal_program_stays_the_same_object() -> None:
    program = parse("program p(workgroup 1) { buffer 0 y: u32[1] readwrite; y[0] = y[0] + 1 }")
    assert fresh().compile(program).optimized.program is program


def test_the_launch_geometry_is_that_of_the_original_program() -> None:
    """Without the atomic, the elements would be those of the output alone."""
    program = parse("""program p(workgroup 1) {
      buffer 0 wide: u32[8] readwrite
      buffer 1 out: u32[1] output
      if false { let old = atomic_add(wide, 0, 1) }
      wide[gid.x] = gid.x + 1
    }""")
    on = fresh()
    plain, optimized = (
        on.dispatch(program, [np.zeros(8, np.uint32)], DispatchConfig(optimize=o)) for o in (False, True)
    )
    assert bytes(plain[0]) == bytes(optimized[0]) == np.arange(1, 9, dtype=np.uint32).tobytes()


class FailingDispatcher(OptimizerDispatcher):
    """Raises an error, expected or not, at its first call."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def supports_persistent(self) -> bool:
        raise self.error


@pytest.mark.parametrize("error", [DispatchFailed("the device is gone.", "find it."), ZeroDivisionError("a fault")])
def test_a_failing_optimization_raises_or_runs_the_original(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimizing, "default_dispatcher", lambda _cache: FailingDispatcher(error))
    on = fresh()
    with pytest.raises(DispatchFailed, match=r"optimizing 'wasteful' failed\..*Fix: run it unoptimized") as caught:
        by_dispatch(on)
    assert caught.value.code == "optimizer-failed"
    assert caught.value.__cause__ is error
    assert str(error).split(".")[0] in str(caught.value)
    before = telemetry.snapshot().optimizer_failures
    config = DispatchConfig(optimize=Optimization(on_failure="original"))
    assert bytes(on.dispatch(parse(TEXT), [X, X], config)[0]) == WANTED
    assert telemetry.snapshot().optimizer_failures == before + 1


def deep(depth: int) -> n.Expr:
    value: n.Expr = n.lit(1)
    for _ in range(depth):
        value = n.UnOp("not", value)
    return value


@pytest.mark.parametrize(
    ("code", "entry"),
    [("V033", (n.Let("x", deep(1025)),)), ("V019", (n.Block((n.Return(),) * 1_000_001),))],
)
def test_limits_are_checked_before_anything_runs(code: str, entry: n.Body) -> None:
    with pytest.raises(InvalidProgram) as caught:
        optimize_with(Program.new([], 1, entry), FailingDispatcher(AssertionError("the dispatcher was called")))
    assert [diagnostic.code for diagnostic in caught.value.diagnostics] == [code]


def test_a_deeply_nested_program_is_optimized() -> None:
    program = parse("program p(workgroup 1) { buffer 0 y: u32[1] readwrite }")
    value: n.Expr = n.Load("y", n.lit(0))
    for k in range(700):
        value = n.BinOp("xor", n.BinOp("mul", value, n.lit(3)), n.lit(k)) if k < 300 else n.UnOp("not", value)
    program = program.with_entry((n.Store("y", n.lit(0), value),))
    assert not vyre.check(optimize(program)).errors


def test_stages_are_in_the_trace_and_in_the_report(tmp_path: Path) -> None:
    on = fresh()
    path = tmp_path / "trace.json"
    with trace.trace(path):
        pipeline = on.compile(parse(TEXT))
        pipeline.dispatch([X, X])
    names = [e["name"] for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "optimizer"]
    assert [name for name in names if name != "optimize"][:5] == ["guards", "stores", "encode", "kernels", "decode"]
    assert names.count("optimize") == 1
    report = pipeline.optimized.report
    assert report is not None
    assert [stage.name for stage in report.stages] == [
        "guards",
        "stores",
        *["encode", "kernels", "decode", "guards", "stores"] * report.rounds,
    ]
    assert report.synchronisations == report.rounds
    assert report.rows_after < report.rows_before
    assert sum(report.fired.values()) >= 3
    assert report.line in report._repr_html_()
    assert all(name in report._repr_html_() for name in report.fired)


def test_the_optimizers_own_launches_are_not_counted() -> None:
    before = telemetry.snapshot()
    by_dispatch(fresh())
    after = telemetry.snapshot()
    assert after.optimizer_runs - before.optimizer_runs == 1
    assert after.launches - before.launches == 1
    assert (after.resident_buffers, after.sequence_runs) == (before.resident_buffers, before.sequence_runs)


def statements(body: str, **switches: Any) -> list[str]:
    program = parse(f"program p(workgroup 1) {{ buffer 0 y: u32[8] readwrite\n{body} }}")
    optimized = optimize(program, switches=Optimization(**switches))
    return [line.strip() for line in str(optimized).splitlines()[2:-1] if line.strip()]


@pytest.mark.parametrize(
    ("switch", "body", "marker"),
    [
        ("fold", "y[0] = 3 * 5", "3 * 5"),
        ("share", "let a = y[1] * 5 + 1; let b = y[1] * 5 + 2; y[0] = a ^ b", "y[1] * 5 + 1 ^ y[1] * 5 + 2"),
        ("motion", "for k in 0 .. 8 { y[k] = gid.x * 17 + k }", "y[k] = gid.x * 17 + k"),
        ("dead", "let a = 1; if y[0] == 0 { a = 2 }; y[1] = 3", "a = 2"),
        ("guards", "if gid.x < 4 { y[gid.x] = select(gid.x < 5, 7, 9) }", "gid.x < 5"),
        ("strength", "y[0] = gid.x * 8", "gid.x * 8"),
        ("identities", "y[0] = gid.x + 0", "gid.x + 0"),
        ("cancellation", "y[0] = (gid.x + 5) - gid.x", "- gid.x"),
    ],
)
def test_every_switch_has_an_effect(switch: str, body: str, marker: str) -> None:
    assert any(marker in line for line in statements(body, off={switch})), statements(body, off={switch})
    assert not any(marker in line for line in statements(body)), statements(body)


def test_switches_are_checked_and_part_of_the_cache_key() -> None:
    with pytest.raises(
        BadInputs, match=r"no switch 'folds'.*fold, share, motion, dead, bits, barriers, stores, cells, guards, order"
    ):
        Optimization(off=frozenset({"folds"}))
    with pytest.raises(BadInputs, match="on_failure"):
        Optimization(on_failure="ignore")
    with pytest.raises(BadInputs, match="optimize is 3"):
        DispatchConfig(optimize=3)
    assert EVERYTHING.bits == EVERY_BIT
    assert Optimization(off="fold").bits == EVERY_BIT & ~PASSES["fold"]
    keys = [DispatchConfig(optimize=one).code_generation for one in (True, False, Optimization(off="fold"))]
    assert len(set(keys)) == 3
    assert DispatchConfig(optimize=Optimization(keep=False)).code_generation == keys[0]


def test_optimization_keeps_the_inferred_launch_geometry() -> None:
    """If invocations cooperate, every buffer counts for the number of invocations, even one of unreachable code."""
    program = parse("""program alone(workgroup 1) {
      buffer 0 sink: u32[1] output
      buffer 1 out: u32[] output
      buffer 2 given: u32[] read
      out[gid.x] = given[gid.x] + 0
      return
      let old = atomic_add(sink, 0, 1)
    }""")
    add = register_op(CompositeOp("test.adds_atomically", (), DType.U32, b.atomic_add("sink", n.lit(0), n.lit(1))))
    calling = program.with_entry((*program.entry[:2], n.Let("old", n.Call(add.op_id, ()))))
    given = np.arange(5, dtype=np.uint32)
    for one in (program, optimize(program), calling, optimize(calling)):
        assert run(one, [given]).outputs["out"].tolist() == given.tolist()
    # A compiled program is launched with the original's geometry, so it can drop the unreachable code.
    pipeline = fresh().compile(program)
    assert not pipeline.optimized.program.stats().has_atomics
    assert np.frombuffer(pipeline.dispatch([given])[1], np.uint32).tolist() == given.tolist()
