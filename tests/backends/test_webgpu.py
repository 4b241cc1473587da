"""WebGPU gives the reference's bytes, by every route, whatever the shape of the launch."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from vyre import reference
from vyre.conform.case import Case
from vyre.conform.filetest import BACKENDS, is_legal, load_filetest, runs_wrong
from vyre.conform.generator import generate
from vyre.driver import routes, telemetry
from vyre.driver.config import DispatchConfig
from vyre.driver.optimizing import optimize
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import parse, walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.optimizer.switches import NOTHING
from vyre.semantics.types import DType
from webgpu_support import NOT_KEPT, PROFILE, backend, difference, run_case, settled

FILES = sorted((Path(__file__).parent.parent / "filetests").rglob("*.vyre"))
GRID_FILES = [path for path in FILES if path.parent.name == "grid"]
# A driver takes a tenth of a second for a small kernel: so programs are small, most of them are of one launch (each
# launch of a cut program is a kernel), and few have operations of subgroups, which make kernels long.
SMALL = msgspec.structs.replace(PROFILE, expression_depth=2)
ONE_LAUNCH = msgspec.structs.replace(SMALL, grid_syncs=False, traps=False, collectives=False)
PLAIN = msgspec.structs.replace(ONE_LAUNCH, subgroups=False)
BLOCKS, SEEDS = 20, 50


def lacks_something(program: Program) -> bool:
    """Whether the program has f64, or atomics of 64 bits."""
    atomics = [e for e in walk.expressions(program.entry) if isinstance(e, n.Atomic)]
    return DType.F64 in program.stats().dtypes or any(program.buffer(e.buffer).dtype.bits == 64 for e in atomics)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_filetest(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = load_filetest(path)
    if not is_legal(test) or not test.runs or any(run.failure == ("fails", "fuel-exhausted") for run in test.runs):
        return
    program = parse(test.text)
    # What the optimizer leaves as it is need not be run twice.
    for switches in (NOT_KEPT, NOTHING) if optimize(program) != program else (NOTHING,):
        monkeypatch.setitem(BACKENDS, "webgpu", partial(run_case, optimize=switches))
        wrong = runs_wrong(test, "webgpu")
        if lacks_something(program):
            assert wrong
            assert all("[unsupported-feature]" in sentence and "Fix:" in sentence for sentence in wrong)
        else:
            assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", GRID_FILES, ids=lambda path: path.stem)
def test_grid_barriers_through_the_host(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    test = load_filetest(path)
    assert is_legal(test)
    before = telemetry.snapshot()
    monkeypatch.setitem(BACKENDS, "webgpu", lambda case: run_case(case, "host"))
    if not lacks_something(parse(test.text)):
        assert not runs_wrong(test, "webgpu")
        assert telemetry.snapshot().route_resident == before.route_resident


@pytest.mark.parametrize("block", range(BLOCKS))
def test_generated_programs_give_the_bytes_of_the_reference(block: int) -> None:
    for seed in range(block * SEEDS, (block + 1) * SEEDS):
        profile = SMALL if seed % 20 == 0 else ONE_LAUNCH if seed % 8 == 0 else PLAIN
        assert difference(generate(seed, 2, profile)) is None, seed


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_larger_generated_programs_give_the_bytes_of_the_reference(block: int) -> None:
    for seed in range(100_000 + block * 50, 100_000 + (block + 1) * 50):
        route: routes.Route = "host" if seed % 4 == 0 else "auto"
        assert difference(generate(seed, 25, PROFILE), route) is None, seed


PLACES = """
program places(workgroup 1) {
  buffer 0 out: u32[] readwrite
  let at = wg.x + num_wg.x * (wg.y + num_wg.y * wg.z)
  out[at] = gid.x * 7 + gid.y * 5 + gid.z * 3 + lid.x
}
"""


@pytest.mark.parametrize("grid", [(70_000, 1, 1), (65_536, 2, 1), (2, 65_537, 1), (3, 2, 65_600), (65_535, 1, 1)])
def test_grids_beyond_the_limit_of_an_axis_are_folded(grid: tuple[int, int, int]) -> None:
    count = grid[0] * grid[1] * grid[2]
    program = parse(PLACES)
    (out,) = backend().dispatch(program, [np.zeros(count, "<u4")], DispatchConfig(grid_override=grid))
    z, y, x = np.indices(grid[::-1])
    assert np.array_equal(np.frombuffer(out, "<u4"), (x * 7 + y * 5 + z * 3).ravel())


def test_a_grid_with_more_workgroups_than_can_be_numbered_is_refused() -> None:
    for grid in ((1 << 17, 1 << 16, 1), (1 << 32 - 1, 2, 2)):
        with pytest.raises(BadInputs, match=r"workgroups|ids are u32"):
            backend().dispatch(parse(PLACES), [np.zeros(4, "<u4")], DispatchConfig(grid_override=grid))


@pytest.mark.parametrize("dtype", [d for d in DType if d.bytes < 4], ids=str)
@pytest.mark.parametrize("size", [1, 3, 64])
def test_neighbours_that_share_a_word_do_not_disturb_each_other(dtype: DType, size: int) -> None:
    """Every invocation writes its element twice, while its neighbours write theirs."""
    value = n.Cast(dtype, b.gid() & 1 if dtype is DType.BOOL else b.gid() & 127)
    body = [b.store("out", b.gid(), n.Cast(dtype, b.lit(1))), b.store("out", b.gid(), value)]
    program = Program.new([BufferDecl.output("out", 0, dtype)], size, body, name="neighbours")
    case = Case(program, {}, elements=3001)
    assert run_case(case) == {"out": reference.run(program, {}, elements=3001).output_bytes("out")}


def test_buffers_without_elements_can_be_read_and_written() -> None:
    text = """
    program empty(workgroup 4) {
      buffer 0 a: u32[] read
      buffer 1 b: u64[] readwrite
      buffer 2 c: u8[] readwrite
      buffer 3 out: u32[4] output
      b[gid.x] = 5u64
      c[0] = 7u8
      out[gid.x] = len(a) + a[gid.x] + u32(b[gid.x]) + u32(c[0]) + 1
    }
    """
    b_, c, out = backend().dispatch(parse(text), [np.zeros(0, "<u4"), np.zeros(0, "<u8"), np.zeros(0, "<u1")])
    assert (len(b_), len(c), np.frombuffer(out, "<u4").tolist()) == (0, 0, [1, 1, 1, 1])


def many_buffers(count: int) -> Program:
    reads = [BufferDecl.read(f"in{k}", k, DType.U32) for k in range(count - 1)]
    total: n.Expr = b.lit(0)
    for decl in reads:
        total = total + b.load(decl.name, b.gid())
    return Program.new([*reads, BufferDecl.output("out", count, DType.U32, 4)], 4, [b.store("out", b.gid(), total)])


def test_as_many_buffers_as_the_adapter_binds_and_no_more() -> None:
    most = backend().gpu.most_buffers
    inputs = [np.full(4, 1 << min(k, 31), "<u4") for k in range(most - 1)]
    (out,) = backend().dispatch(many_buffers(most), inputs)
    assert np.array_equal(np.frombuffer(out, "<u4"), np.sum(inputs, axis=0, dtype="<u4"))
    with pytest.raises(UnsupportedFeature, match=f"{most + 1} buffers"):
        backend().dispatch(many_buffers(most + 1), [*inputs, inputs[0]])
    with pytest.raises(UnsupportedFeature, match=f"{most + 1} buffers"):
        backend().compile(many_buffers(most + 1))


def test_limits_are_told_before_anything_runs() -> None:
    on, config = backend(), DispatchConfig(grid_override=(1,))
    body = [b.store("out", b.lit(0), b.load("tile", b.lit(0)))]
    shared = [BufferDecl.output("out", 0, DType.U32, 1), BufferDecl.workgroup("tile", DType.U32, 1 << 20)]
    before = telemetry.snapshot().launches
    with pytest.raises(UnsupportedFeature, match="workgroup memory"):
        on.dispatch(Program.new(shared, 1, body), [], config)
    with pytest.raises(UnsupportedFeature, match="workgroup memory"):
        on.compile(Program.new(shared, 1, body))
    large = Program.new([BufferDecl.output("out", 0, DType.U32)], 64, [b.store("out", b.gid(), b.lit(1))])
    elements = on.gpu.binding_bytes // 4 + 1
    on.compile(large)
    with pytest.raises(UnsupportedFeature, match="buffer 'out'"):
        on.dispatch(large, [], DispatchConfig(dispatch_elements=elements))
    assert telemetry.snapshot().launches == before


def test_a_workgroup_as_large_as_the_adapter_has_them() -> None:
    size = backend().capabilities.max_invocations_per_workgroup
    text = f"""
    program turned(workgroup {size}) {{
      buffer 0 out: u32[{size}] output
      buffer 0 tile: u32[{size}] workgroup
      tile[lid.x] = lid.x
      barrier
      out[lid.x] = tile[{size - 1} - lid.x]
    }}
    """
    (out,) = backend().dispatch(parse(text), [])
    assert np.frombuffer(out, "<u4").tolist() == list(range(size))[::-1]


def test_a_second_call_compiles_nothing_and_makes_no_bindings() -> None:
    program = parse(PLACES.replace("* 7", "* 11"))
    inputs = [np.zeros(8, "<u4")]
    first = backend().dispatch(program, inputs)
    stats = backend().gpu.binding_stats()
    before = telemetry.snapshot()
    second = backend().dispatch(parse(PLACES.replace("* 7", "* 11")), inputs)
    again = backend().dispatch(program, inputs)
    assert first == second == again
    assert telemetry.snapshot().compile_misses == before.compile_misses
    assert telemetry.snapshot().compile_hits == before.compile_hits + 1
    assert backend().gpu.binding_stats().misses == stats.misses


def test_dispatches_from_several_threads_do_not_mix() -> None:
    program = parse(PLACES)
    results: dict[int, bool] = {}

    def work(number: int) -> None:
        size = 10 + number
        outputs = [backend().dispatch(program, [np.zeros(size, "<u4")])[0] for _ in range(10)]
        results[number] = all(np.array_equal(np.frombuffer(o, "<u4"), 7 * np.arange(size)) for o in outputs)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


def test_floats_that_are_not_exact_are_compared_within_a_budget() -> None:
    program = parse("program p(workgroup 1) { buffer 0 x: f32[3] output\n buffer 1 n: u32[3] output }")
    ones = {"x": np.array([1.0, -0.0, np.nan], "<f4").tobytes(), "n": bytes(12)}
    near = {"x": np.array([1.0 + 2.0**-22, 1e-45, np.nan], "<f4").tobytes(), "n": bytes(12)}
    far = {"x": np.array([1.0 + 2.0**-20, -0.0, np.nan], "<f4").tobytes(), "n": bytes(12)}
    lost = {"x": np.array([1.0, -0.0, 0.0], "<f4").tobytes(), "n": bytes(11) + b"1"}
    assert settled(program, ones, near) == ones
    assert settled(program, ones, far) == far
    assert settled(program, ones, lost) == lost


def test_the_device_says_how_long_it_took() -> None:
    result = backend().dispatch_timed(parse(PLACES), [np.zeros(64, "<u4")])
    if backend().capabilities.device_timestamps:
        assert result.device_ns is not None
        assert 0 < result.device_ns <= result.wall_ns


def test_a_submitted_dispatch_has_its_own_copy_of_the_inputs() -> None:
    data = np.arange(8, dtype="<u4")
    program = parse("program plus(workgroup 4) { buffer 0 a: u32[] readwrite\n a[gid.x] = a[gid.x] + 1 }")
    pending = [backend().submit(program, [data]) for _ in range(3)]
    data[:] = 0
    assert [np.frombuffer(p.result()[0], "<u4").tolist() for p in pending] == [list(range(1, 9))] * 3
