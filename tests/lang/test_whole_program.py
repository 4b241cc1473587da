"""What else a program has: transfers, traps, ranks, grids from memory, options of a call; and where a run failed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_language

import cpu_support
import vyre
import webgpu_support
from vyre import f32, f64, u8, u32
from vyre.backends.reference import ReferenceBackend
from vyre.errors import BadInputs, FuelExhausted, KernelError, Timeout, TrapRaised, UnsupportedFeature, VyreError
from vyre.ir import nodes as n
from vyre.ir.extensions import CompositeOp, register_extension, register_op
from vyre.ir.traps import TrapRequest

TAG = "page"
CPU = cpu_support.backend(None, 1)
REFERENCE = ReferenceBackend()
NAMES = ("cpu", "reference", "split", "webgpu")


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "webgpu":
        return webgpu_support.backend()
    return {"cpu": CPU, "reference": REFERENCE, "split": ReferenceBackend(grid_sync=False)}[request.param]


def u32s(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


@vyre.kernel(workgroup=4)
def reverse_tiles(source: vyre.In[u32], out: vyre.Out[u32]):
    tile = vyre.shared(u32, 4)
    if vyre.lid() == 0:
        vyre.async_load(source, tile, 16 * vyre.wg(), 16, "in")
        vyre.async_wait("in")
    vyre.barrier()
    out[vyre.gid()] = tile[3 - vyre.lid()]


@vyre.kernel(workgroup=1)
def scatter(source: vyre.In[u32], bytes_of_it: vyre.InOut[u8], words: vyre.InOut[u32]):
    vyre.async_store(source, words, 4, 8, "out")
    vyre.copy_bytes(source, bytes_of_it, 1, 0, 3)
    vyre.async_wait("out")


def test_bytes_are_moved(backend: Any) -> None:
    out = np.zeros(8, np.uint32)
    reverse_tiles.on(backend)[8](np.arange(8, dtype=np.uint32), out)
    assert out.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    # What is moved as a whole is packed if it lies apart.
    wide = np.zeros((8, 2), np.uint32)
    reverse_tiles.on(backend)[8](np.arange(16, dtype=np.uint32)[::2], wide[:, 1])
    assert wide[:, 1].tolist() == [6, 4, 2, 0, 14, 12, 10, 8]
    assert not wide[:, 0].any()
    given = np.zeros((8, 2), np.uint32)
    call = reverse_tiles.on(backend)[8].bind(given[:, 0], out)
    given[:, 0] = range(8)
    call()
    assert out.tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    raw, words = np.zeros(4, np.uint8), u32s(9, 9, 9)
    scatter.on(backend)[1](u32s(0x04030201, 7), raw, words)
    assert (raw.tolist(), words.tolist()) == ([2, 3, 4, 0], [9, 0x04030201, 7])


def test_a_view_is_not_moved_as_a_whole() -> None:
    view = vyre.array(np.arange(16, dtype=np.uint32), backend=CPU)[::2]
    with pytest.raises(BadInputs, match="argument 'source' is used as a whole, and this is a view"):
        reverse_tiles[8](view, vyre.array(np.zeros(8, np.uint32), backend=CPU))


@vyre.kernel(workgroup=4)
def faulting(x: vyre.InOut[u32]):
    i = vyre.gid()
    if x[i] == 0:
        vyre.trap(i, TAG)
    vyre.resume("page")
    x[i] += 1


def load_page(requests: Sequence[TrapRequest], buffers: dict[str, np.ndarray]) -> None:
    for request in requests:
        buffers["x"][request.address] = 100 + request.address


def test_the_host_answers_traps(backend: Any) -> None:
    kernel = faulting.on(backend, handlers={"page": load_page})
    x = u32s(1, 0, 3, 0)
    kernel[4](x)
    assert x.tolist() == [2, 102, 4, 104]
    call = kernel[4].bind(x)
    x[2] = 0
    call()
    assert x.tolist() == [3, 103, 103, 105]
    x[:] = 0
    with vyre.sequence(backend):
        kernel[4](x)
    assert x.tolist() == [101, 102, 103, 104]
    assert kernel[4].debug(u32s(5, 0, 5, 5)).outputs["x"].tolist() == [6, 102, 6, 6]


@vyre.kernel(workgroup=4)
def of_all_ranks(x: vyre.InOut[u32], parts: vyre.Out[u32], share: vyre.InOut[u32]):
    vyre.all_reduce("add", x, "world")
    vyre.broadcast(x, 0, "world")
    vyre.all_gather(x, parts, "world")
    vyre.reduce_scatter("max", x, share, "world")


def test_one_rank_is_all_ranks(backend: Any) -> None:
    x, parts, share = u32s(1, 2, 3), u32s(0, 0, 0), u32s(9, 9, 9)
    of_all_ranks.on(backend)[1](x, parts, share)
    assert x.tolist() == parts.tolist() == share.tolist() == [1, 2, 3]


@vyre.kernel(workgroup=4)
def sized_by_memory(counts: vyre.In[u32], by: u32, out: vyre.InOut[u32, 2]):
    """The grid is three numbers of ``counts``, from the second on."""
    vyre.indirect_dispatch(counts, 1)
    vyre.atomic_add(out, (0, 0), by)


def test_the_grid_comes_from_memory(backend: Any) -> None:
    out = np.zeros((1, 1), np.uint32)
    sized_by_memory.on(backend).grid()(u32s(9, 2, 3, 1), 10, out)
    assert out[0, 0] == 2 * 3 * 4 * 10
    sized_by_memory.on(backend).grid()(u32s(9, 0, 3, 1), 10, out)
    assert out[0, 0] == 240
    counts = u32s(9, 1, 1, 1)
    with vyre.sequence(backend) as s:
        sized_by_memory.grid()(counts, 1, out)
        s.repeat(3)
    assert out[0, 0] == 240 + 3 * 4
    with pytest.raises(BadInputs, match=r"reads its grid from memory\. Fix: launch it as sized_by_memory\.grid\(\)"):
        sized_by_memory.on(backend)[8](u32s(9, 2, 3, 1), 10, out)
    with pytest.raises(BadInputs, match="kernel 'faulting' was given no size"):
        faulting.on(backend).grid()(u32s(1))


register_op(
    CompositeOp(
        "tests.lang.weighted",
        (("x", f32), ("weight", u32)),
        f32,
        n.BinOp("mul", n.Var("x"), n.Cast(f32, n.Var("weight"))),
    )
)


@vyre.kernel(workgroup=1)
def weigh(x: vyre.InOut[f32]):
    x[0] = vyre.call("tests.lang.weighted", x[0] + 1, 3) - vyre.call("tests.lang.weighted", 0.5, vyre.gid() + 2)


def test_registered_operations_are_called(backend: Any) -> None:
    x = np.array([1.5], np.float32)
    weigh.on(backend)[1](x)
    assert x[0] == 7.5 - 1


register_extension("tests.lang.byte", lambda payload: n.lit(payload[0]))
register_extension("tests.lang.mark", lambda payload: (n.Store("x", n.lit(1), n.lit(payload[1])),))
PAYLOAD = b"\x07\x09"


@vyre.kernel(workgroup=1)
def extended(x: vyre.InOut[u32]):
    x[0] += vyre.opaque("tests.lang.byte", PAYLOAD, u32)
    vyre.opaque("tests.lang.mark", b"\x07\x09")


def test_extensions_stand_in_kernels(backend: Any) -> None:
    x = u32s(1, 0)
    extended.on(backend)[1](x)
    assert x.tolist() == [8, 9]


register_op(CompositeOp("tests.lang.meeting", (), u32, n.Load("x", n.lit(0)), (n.Barrier(n.MemoryOrder.GRID_SYNC),)))


@vyre.kernel(workgroup=4)
def meet_by_a_call(x: vyre.InOut[u32]):
    if vyre.gid() == 4:
        x[0] = 5
    met = vyre.call("tests.lang.meeting")
    x[vyre.gid() + 1] = met


def test_the_grid_may_meet_in_an_operation(backend: Any) -> None:
    x = np.zeros(9, np.uint32)
    meet_by_a_call.on(backend)[8](x)
    assert x.tolist() == [5] * 9
    resident = vyre.array(np.zeros(9, np.uint32), backend=backend)
    meet_by_a_call[8](resident)
    assert resident.numpy().tolist() == [5] * 9
    x[:] = 0
    with vyre.sequence(backend):
        meet_by_a_call[8](x)
    assert x.tolist() == [5] * 9


@vyre.kernel(workgroup=4)
def racing_behind_a_call(x: vyre.InOut[f32]):
    i = vyre.gid()
    if i < 4:
        x[i] = vyre.call("tests.lang.weighted", x[i], 3)
    vyre.barrier()
    x[i + 1] = x[i]


def test_a_race_behind_a_call_is_shown_in_the_source() -> None:
    report = racing_behind_a_call[4].debug(np.ones(8, np.float32))
    assert note(racing_behind_a_call, 6, 5) in str(report)
    assert note(racing_behind_a_call, 6, 16).removesuffix("\n") in str(report)


@vyre.function
def dot(left: vyre.In[f32, (3,)], right: vyre.In[f32, (3,)]):
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2]


@vyre.kernel(workgroup=1)
def project(points: vyre.In[f32, (None, 3)], axis: vyre.In[f32, (3,)], out: vyre.Out[f32]):
    i = vyre.gid()
    along = vyre.shared(f32, len(axis))
    for k in range(points.shape[1]):
        along[k] = points[i, k]
    out[i] = dot(along, axis)


def test_declared_sizes_hold(backend: Any) -> None:
    points, axis = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, 0, 2], np.float32)
    expected = (points @ axis).tolist()
    assert [str(decl.count) for decl in project.program.buffers[:3]] == ["0", "3", "0"]
    for given in (points, np.asfortranarray(points), np.repeat(points, 2, axis=1)[:, ::2]):
        out = np.zeros(4, np.float32)
        project.on(backend)[4](given, np.repeat(axis, 2)[::2], out)
        assert out.tolist() == expected
    for wrong, text in (
        ((points.T.copy(), axis), r"'points' has shape \(None, 3\), and was given an array of shape \(3, 4\)"),
        ((points, points[0, :2]), r"'axis' has shape \(3,\), and was given an array of shape \(2,\)"),
    ):
        with pytest.raises(BadInputs, match=text):
            project.on(backend)[4](*wrong, np.zeros(4, np.float32))


@vyre.kernel(workgroup=1)
def unsure_of_its_size(points: vyre.In[f32], out: vyre.Out[f32]):
    out[0] = dot(points, points)


def test_a_function_gets_the_sizes_that_it_declares() -> None:
    with pytest.raises(KernelError, match=r"parameter 'left' is In\[f32, \(3,\)\], and this is the array 'points'"):
        _ = unsure_of_its_size.program


OPTIONS = {
    "timeouts": ({"timeouts": 1}, "'timeouts' is no option of a call. Fix: did you mean 'timeout_s'?"),
    "grid": ({"grid_override": (1,)}, "'grid_override' is no option of a call."),
    "text": ({"timeout_s": "1"}, "timeout_s is '1'. Fix: give a number of seconds, or leave it out."),
    "negative": ({"timeout_s": -1}, "timeout_s is -1."),
    "fraction": ({"fixpoint_iterations": 1.5}, "fixpoint_iterations is 1.5. Fix: give a whole number"),
    "handlers": ({"handlers": {"page": 3}}, "handlers are a dict, not functions by tag."),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_wrong_option_is_named(name: str) -> None:
    options, text = OPTIONS[name]
    with pytest.raises(BadInputs) as refused:
        faulting.on("cpu", **options)
    assert text in str(refused.value)


@vyre.kernel(workgroup=4)
def add_one(x: vyre.InOut[u32]):
    x[vyre.gid()] += 1


def test_options_add_up_and_leave_the_kernel_alone() -> None:
    slow = add_one.on(timeout_s=2.0).on(CPU, fixpoint_iterations=3)
    assert (slow.options.timeout_s, slow.options.fixpoint_iterations, slow.backend) == (2.0, 3, CPU)
    assert slow.on(REFERENCE).options == slow.options
    assert (add_one.options.timeout_s, add_one.backend) == (None, None)
    x = u32s(1)
    slow[1](x)
    assert x.tolist() == [4]


@vyre.kernel(workgroup=4)
def endless(x: vyre.InOut[u32]):
    while vyre.atomic_load(x, 0) == 0:
        vyre.atomic_add(x, 1, 1)


@vyre.kernel(workgroup=4)
def wide(x: vyre.InOut[f64]):
    x[0] = 1.0


@vyre.kernel(workgroup=4)
def hungry(x: vyre.InOut[u32]):
    tile = vyre.shared(u32, 100_000)
    x[0] = tile[0]


@vyre.function
def ask(i):
    vyre.trap(i, "lost")


@vyre.kernel(workgroup=4)
def lost(x: vyre.InOut[u32]):
    ask(x[0])


register_op(CompositeOp("tests.lang.asking", (), u32, n.lit(1), (n.Trap(n.lit(7), "called"),)))


@vyre.kernel(workgroup=4)
def asking_by_a_call(x: vyre.InOut[u32]):
    x[0] = 2
    x[1] = vyre.call("tests.lang.asking")


def shown(error: VyreError) -> str:
    return "\n".join(error.__notes__)


def note(kernel: Any, line: int, column: int) -> str:
    """Where a note points to: a line of a kernel, counted from its decorator."""
    source = kernel.definition.source if isinstance(kernel, vyre.lang.Kernel) else kernel.source
    return f"{Path(__file__).name}:{source.first_line + line}:{column}\n"


def test_a_trap_that_nobody_answers_is_shown_in_the_source(backend: Any) -> None:
    runs = [
        lambda: faulting.on(backend)[4](u32s(0)),
        faulting.on(backend)[4].bind(u32s(0)),
        lambda: faulting[4].debug(u32s(0)),
        lambda: recorded(backend, u32s(0)),
    ]
    for run in runs:
        with pytest.raises(TrapRaised) as raised:
            run()
        assert note(faulting, 4, 9) in shown(raised.value)
    with pytest.raises(TrapRaised) as raised:
        lost.on(backend)[1](u32s(0))
    assert note(ask, 2, 5) in shown(raised.value)
    for call in (asking_by_a_call.on(backend)[1], partial(recorded, backend, kernel=asking_by_a_call)):
        with pytest.raises(TrapRaised) as raised:
            call(u32s(0, 0))
        assert note(asking_by_a_call, 3, 5) in shown(raised.value)


def recorded(backend: Any, x: np.ndarray, kernel: Any = faulting) -> None:
    with vyre.sequence(backend):
        of_all_ranks[1](u32s(1), u32s(1), u32s(1))
        kernel[4](x)


def test_a_run_out_of_time_is_shown_in_the_source() -> None:
    debugged = endless.on(timeout_s=0.05)[4].debug
    for run in (endless.on(CPU, timeout_s=0.05)[4], endless.on(REFERENCE, timeout_s=0.05)[4], debugged):
        with pytest.raises((Timeout, FuelExhausted)) as raised:
            run(u32s(0, 0))
        assert note(endless, 2, 5) in shown(raised.value)


def test_what_a_device_lacks_is_shown_in_the_source() -> None:
    webgpu = webgpu_support.backend()
    for kernel, dtype, line, column in ((wide, np.float64, 1, 10), (hungry, np.uint32, 2, 12)):
        with pytest.raises(UnsupportedFeature) as raised:
            kernel.on(webgpu)[1](np.zeros(1, dtype))
        assert note(kernel, line, column) in shown(raised.value)
        with pytest.raises(UnsupportedFeature) as raised:
            kernel.on(webgpu)[1].bind(np.zeros(1, dtype))()
        assert note(kernel, line, column) in shown(raised.value)


@vyre.kernel(workgroup=1)
def leaving(x: vyre.InOut[u32]):
    if x[0] == 0:
        return
    x[0] = 1


def test_kernels_say_all_that_a_program_can() -> None:
    kernels = [one for module in (globals(), vars(test_language)) for one in module.values()]
    programs = [one.program for one in kernels if isinstance(one, vyre.lang.Kernel) and one is not unsure_of_its_size]
    said = {kind for program in programs for kind in program.stats().kinds}
    nodes = [one for one in vars(n).values() if isinstance(one, type) and issubclass(one, n.Node)]
    # A region only remembers who made it.
    assert {one.__name__ for one in nodes} - said == {"Node", "Expr", "Stmt", "Region"}
