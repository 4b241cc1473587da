"""The contract: seven members to write, honest defaults, and wrappers that forget nothing."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import cpu_support
from backends_for_tests import (
    PRIMITIVES,
    FixedBackend,
    FixedDevice,
    ForwardingDevice,
    RecordingBackend,
    RecordingDevice,
    double,
    increment,
    words,
)
from vyre.backends.reference import ReferenceBackend
from vyre.driver import (
    Backend,
    Device,
    DispatchConfig,
    OutputBuffers,
    ResidentBuffer,
    Step,
    executable_key,
    telemetry,
)
from vyre.driver.profile import BASIC_TYPES
from vyre.errors import BadInputs, DispatchFailed, InvalidProgram, Timeout, UnsupportedFeature
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import gid, grid_sync, let, load, store, var, while_
from vyre.ir.program import Program
from vyre.semantics.types import DType

U32 = DType.U32
ONES = np.ones(3, np.uint32)


def test_a_device_must_write_seven_members() -> None:
    assert Device.__abstractmethods__ == {"profile", "allocate", "free", "write", "read", "compile", "launch"}


@pytest.mark.parametrize("missing", sorted(Device.__abstractmethods__))
def test_a_device_without_one_of_them_cannot_be_made(missing: str) -> None:
    half = type(
        "Half", (Device,), {name: getattr(FixedDevice, name) for name in Device.__abstractmethods__ - {missing}}
    )
    with pytest.raises(TypeError, match=missing):
        half()


def test_a_wrapper_forwards_every_member_of_the_contract() -> None:
    """Each public member of Device is defined again by ForwardingDevice, with the same signature."""
    own = {"availability"}  # of the class
    names = [name for name in vars(Device) if not name.startswith("_") and name not in own]
    assert len(names) > 20
    of_instances = vars(ForwardingDevice(Told()))
    for name in names:
        if name == "runs_schedules":
            assert name in of_instances
            continue
        assert name in vars(ForwardingDevice), name
        member = vars(Device)[name]
        if inspect.isfunction(member):
            ours = inspect.signature(vars(ForwardingDevice)[name]).parameters.values()
            theirs = inspect.signature(member).parameters.values()
            assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs], name


class Told(FixedDevice):
    """Notes every call of the contract: its name and its arguments."""

    id = "told"
    version = "7"
    runs_schedules = True

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[str, set[object]]] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or name in ("id", "version", "runs_schedules"):
            return super().__getattribute__(name)
        if isinstance(inspect.getattr_static(Device, name, None), property):
            return f"the {name} of the device"
        return lambda *args, **kwargs: self._calls.append((name, {*args, *kwargs.values()})) or f"from {name}"


def test_a_wrapper_hands_every_argument_on_and_every_answer_back() -> None:
    inner = Told()
    wrapper = ForwardingDevice(inner)
    assert (wrapper.id, wrapper.version, wrapper.runs_schedules) == ("told", "7", True)
    silent = {"free", "write", "synchronize", "prepare", "recover", "close"}
    for name, member in vars(ForwardingDevice).items():
        if isinstance(member, property):
            assert getattr(wrapper, name) == f"the {name} of the device"
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        parameters = list(inspect.signature(member).parameters.values())[1:]
        given = {p.name: object() for p in parameters}
        answer = getattr(wrapper, name)(**given)
        assert inner._calls[-1] == (name, {*given.values()})
        assert answer == (None if name in silent else f"from {name}")


def test_a_recording_device_composes_what_a_device_need_not_have() -> None:
    composed = {"load_image", "prepare_schedule", "read_with"}
    assert {name for name in vars(RecordingDevice) if vars(RecordingDevice)[name] is vars(Device).get(name)} >= composed
    assert {*PRIMITIVES} == Device.__abstractmethods__ - {"profile"}
    backend = RecordingBackend(FixedBackend(b"abcd"))
    backend.dispatch(increment().with_workgroup_size(1), [bytes(4)])
    assert backend.calls == ["compile", "allocate", "write", "launch", "read"]
    assert (backend.live, backend.leaked(), backend.freed) == ([256], [], [256])


REFUSALS: dict[str, Callable[[Backend, ResidentBuffer], object]] = {
    "allocate": lambda b, _: b.allocate(4),
    "allocate_many": lambda b, _: b.allocate_many([4]),
    "free": lambda b, r: b.free(r),
    "upload": lambda b, r: b.upload(r, b"1234"),
    "upload_many": lambda b, r: b.upload_many([(r, 0, b"1234")]),
    "fill": lambda b, r: b.fill(r),
    "download": lambda b, r: b.download(r),
    "download_many": lambda b, r: b.download_many([r]),
    "dispatch_resident": lambda b, r: b.dispatch_resident(increment(), [r]),
    "try_recover": lambda b, _: b.try_recover(),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_backend_lacks_it_refuses(name: str) -> None:
    with ReferenceBackend().allocate(4) as resident, pytest.raises(UnsupportedFeature) as caught:
        REFUSALS[name](FixedBackend(), resident)
    assert caught.value.backend == "fixed"
    assert str(caught.value).rpartition(" Fix: ")[2]


SAID = {
    "backend": "fixed", "device": "", "dtypes": BASIC_TYPES, "native_dtypes": BASIC_TYPES,
    "allows_host_grid_sync_split": True, "subgroup_size": None, "max_workgroup_size": (1, 1, 1),
}  # fmt: skip


def test_a_device_that_has_said_nothing_can_do_as_little_as_possible() -> None:
    profile = FixedBackend().capabilities
    for name, value in msgspec.structs.asdict(profile).items():
        assert value == SAID.get(name, 0), name
    assert profile.workgroup_invocations == 1
    assert msgspec.structs.replace(profile, max_workgroup_size=(8, 4, 2)).workgroup_invocations == 64


def test_nothing_without_a_grid_point_is_said_to_fit_natively() -> None:
    backend = ReferenceBackend()
    assert not backend.grid_sync_fits(increment(), [ONES])
    assert backend.grid_sync_fits(SHIFTED, [ONES])
    assert not ReferenceBackend(grid_sync=False).grid_sync_fits(SHIFTED, [ONES])


def test_defaults_are_conservative() -> None:
    backend = FixedBackend()
    assert not backend.grid_sync_fits(SHIFTED, [ONES])
    assert backend.cache_stats() is None
    assert backend.metrics() == {}
    assert not backend.device_lost()
    backend.prepare()
    backend.flush()
    with backend as same:
        assert same is backend


def test_dispatch_gives_the_outputs_by_slot_and_leaves_inputs_alone() -> None:
    state = np.array([5, 6], np.uint32)
    backend = ReferenceBackend()
    assert words(backend.dispatch(increment(), [state])[0]) == [6, 7]
    assert words(backend.dispatch(increment(), {"state": state.tobytes()})[0]) == [6, 7]
    assert state.tolist() == [5, 6]


def test_a_program_that_is_not_legal_is_refused_before_anything_runs() -> None:
    broken = Program.new([], 1, [store("nothing", 0, 1)])
    fixed = FixedBackend()
    for call in (
        lambda: ReferenceBackend().dispatch(broken, []),
        lambda: fixed.compile(broken),
        lambda: fixed.dispatch(broken, []),
    ):
        with pytest.raises(InvalidProgram) as caught:
            call()
        assert caught.value.diagnostics
    assert fixed.device.launches == 0


def test_timed_dispatch_tells_time_and_passes() -> None:
    timed = ReferenceBackend().dispatch_timed(increment(3), [ONES], DispatchConfig(fixpoint_iterations=9))
    assert timed.wall_ns > 0
    assert (timed.device_ns, timed.passes, timed.converged) == (None, 3, True)
    fixed = FixedBackend(b"twelve bytes")
    plain = fixed.dispatch_timed(ONE, [ONES])
    assert (plain.outputs, plain.passes, plain.converged) == ([b"twelve bytes"], 1, None)
    assert plain.wall_ns > 0
    assert (plain.device_ns, plain.enqueue_ns, plain.wait_ns) == (None, None, None)
    # The second pass writes the same.
    again = fixed.dispatch_timed(ONE, [ONES], DispatchConfig(fixpoint_iterations=9))
    assert (again.outputs, again.passes, again.converged) == ([b"twelve bytes"], 2, True)


class SlowDevice(FixedDevice):
    """Waits until it is let go before it takes its inputs, then gives them back, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()
        self.error: Exception | None = None

    def write(self, copies: Any, fills: Any) -> None:
        assert self.go.wait(10)
        super().write(copies, fills)

    def launch(self, code: Any, memory: Any, launch: Any, options: Any) -> None:  # noqa: ARG002
        if self.error is not None:
            raise self.error
        half = len(memory) // 2
        for taken, given in zip(memory[:half], memory[half:], strict=True):
            given[:] = taken


class SlowBackend(Backend):
    """A backend on a slow device."""

    device: SlowDevice

    def __init__(self) -> None:
        super().__init__(SlowDevice())
        self.go = self.device.go


ONE = double().with_workgroup_size(1)
TWO = Program.new(
    [
        BufferDecl.read("a", 0, U32, 2),
        BufferDecl.read("b", 1, U32, 1),
        BufferDecl.output("x", 2, U32, 2),
        BufferDecl.output("y", 3, U32, 1),
    ],
    1,
    [store("x", gid(), load("a", gid())), store("y", 0, load("b", 0))],
)
"""Two inputs, which it gives back."""


def test_submit_copies_inputs_and_gives_a_handle() -> None:
    backend = SlowBackend()
    data = np.array([1, 2], np.uint32)
    raw = bytearray(b"abcd")
    pending = backend.submit(TWO, [data, raw])
    data[:] = 0
    raw[:] = b"zzzz"
    assert not pending.done()
    with pytest.raises(Timeout, match=r"0\.01 s"):
        pending.result(0.01)
    backend.go.set()
    slots = OutputBuffers()
    assert words(pending.result_into(slots)[0]) == [1, 2]
    assert slots[1] == b"abcd"
    assert pending.done()
    backend.shutdown()


def test_a_pending_dispatch_can_be_awaited() -> None:
    async def both(backend: Backend) -> list[int]:
        first = backend.submit(increment(), [ONES])
        second = backend.submit(increment(), {"state": ONES + 1})
        return words((await first)[0]) + words((await second)[0])

    with ReferenceBackend() as backend:
        assert asyncio.run(both(backend)) == [2, 2, 2, 3, 3, 3]


def test_exceptions_travel_through_a_pending_dispatch() -> None:
    backend = SlowBackend()
    backend.device.error = DispatchFailed("it broke.", "correct it.")
    pending = backend.submit(ONE, [b"1111"])
    backend.go.set()
    with pytest.raises(DispatchFailed, match="it broke"):
        pending.result()
    backend.device.error = TimeoutError("from inside")
    with pytest.raises(TimeoutError, match="from inside"):
        backend.submit(ONE, [b"1111"]).result(5)


@pytest.mark.parametrize("inputs", [3, b"raw", ["text"], {"state": None}])
def test_a_pending_dispatch_refuses_what_is_no_input(inputs: Any) -> None:
    with ReferenceBackend() as backend, pytest.raises(BadInputs):
        backend.submit(increment(), inputs).result()


def test_flush_waits_for_what_was_submitted_and_submitting_goes_on_after_it() -> None:
    backend = SlowBackend()
    pending = [backend.submit(ONE, [b"1111"]) for _ in range(12)]
    threading.Timer(0.05, backend.go.set).start()
    start = time.monotonic()
    backend.flush()
    assert time.monotonic() - start > 0.02
    assert all(one.done() for one in pending)
    assert backend.submit(ONE, [b"2222"]).result() == [b"2222"]
    backend.shutdown()


def test_a_pipeline_gives_the_bytes_of_dispatch() -> None:
    backend = RecordingBackend()
    pipeline = backend.compile(double())
    data = np.arange(5, dtype=np.uint32)
    expected = backend.dispatch(double(), [data])
    slots = OutputBuffers()
    assert pipeline.dispatch([data]) == expected
    assert pipeline.dispatch({"a": data}, into=slots) == expected
    assert pipeline.dispatch_timed([data]).outputs == expected
    assert pipeline.submit([data]).result() == expected
    assert pipeline.dispatch_batch([[data], [data[:2]]]) == [expected, [expected[0][:8]]]
    into = [OutputBuffers(), OutputBuffers()]
    pipeline.dispatch_batch([[data], [data[:2]]], into=into)
    assert [words(one[0]) for one in into] == [[0, 2, 4, 6, 8], [0, 2]]
    with pytest.raises(BadInputs, match="batch of 1 was given 2"):
        pipeline.dispatch_batch([[data]], into=into)
    backend.shutdown()


def test_a_pipeline_explains_itself_and_is_keyed_by_what_shapes_code() -> None:
    backend = ReferenceBackend()
    pipeline = backend.compile(double())
    text = pipeline.explain()
    assert "double on reference" in text
    assert "buffer 1 out: u32, run-time sized, output" in text
    assert "route: plain" in text
    same = backend.compile(double(), DispatchConfig(label="other", seed=3))
    assert same.key == pipeline.key
    others = [
        backend.compile(double(name="renamed")),
        backend.compile(double(), DispatchConfig(workgroup_override=(8,))),
        backend.compile(double(), DispatchConfig(optimize=False)),
    ]
    elsewhere = executable_key(FixedBackend(), double(), DispatchConfig())
    assert len({pipeline.key, elsewhere, *(one.key for one in others)}) == 5
    assert executable_key(backend, double(), DispatchConfig()) == pipeline.key


SHIFTED = Program.new(
    [BufferDecl.read_write("x", 0, U32)],
    2,
    [let("right", load("x", gid() + 1)), grid_sync(), store("x", gid(), var("right"))],
    name="shifted",
)
"""Every element becomes its right neighbour's old value: right only if all read before any writes."""


@pytest.mark.parametrize(
    ("options", "route"),
    [({}, "native"), ({"grid_sync": False}, "resident"), ({"grid_sync": False, "resident": False}, "host")],
)
def test_a_pipeline_with_grid_barriers_goes_the_route_that_fits(options: dict[str, bool], route: str) -> None:
    with ReferenceBackend(**options) as backend:
        pipeline = backend.compile(SHIFTED)
        data = np.arange(5, dtype=np.uint32)
        before = getattr(telemetry.snapshot(), f"route_{route}")
        slots = OutputBuffers()
        assert words(pipeline.dispatch([data], into=slots)[0]) == [1, 2, 3, 4, 0]
        assert words(slots[0]) == [1, 2, 3, 4, 0]
        assert getattr(telemetry.snapshot(), f"route_{route}") == before + 1
        twice = DispatchConfig(fixpoint_iterations=2)
        timed = pipeline.dispatch_timed([data], twice)
        assert (words(timed.outputs[0]), timed.passes) == ([2, 3, 4, 0, 0], 2)
        assert words(pipeline.submit([data], twice).result()[0]) == [2, 3, 4, 0, 0]
        assert f"route: {route}" in pipeline.explain([data])
        assert f"route: {route}" in pipeline.explain()


def test_a_step_with_grid_barriers_runs_where_they_are_not_native() -> None:
    for backend in (ReferenceBackend(), ReferenceBackend(grid_sync=False, poison=0xA5)):
        with backend.allocate(20) as x:
            backend.upload(x, np.arange(5, dtype=np.uint32))
            result = backend.run_sequence([Step(increment(), [x])], repeat=[Step(SHIFTED, [x])], times=3, reads=[x])
            assert words(result.outputs[0]) == [4, 5, 0, 0, 0]


def test_a_call_cannot_change_compiled_code() -> None:
    pipeline = ReferenceBackend().compile(increment())
    assert words(pipeline.dispatch([ONES], DispatchConfig(fixpoint_iterations=4))[0]) == [5, 5, 5]
    with pytest.raises(BadInputs, match="would change the compiled code"):
        pipeline.dispatch([ONES], DispatchConfig(workgroup_override=(8,)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"fixpoint_iterations": 0}, InvalidProgram),
        ({"fixpoint_iterations": -1}, InvalidProgram),
        ({"timeout_s": 0.0}, BadInputs),
        ({"timeout_s": float("nan")}, BadInputs),
        ({"max_output_bytes": -1}, BadInputs),
        ({"dispatch_elements": -1}, BadInputs),
        ({"ulp_budget": -1}, BadInputs),
        ({"workgroup_override": ()}, BadInputs),
        ({"workgroup_override": (4, 0)}, BadInputs),
        ({"workgroup_override": "64"}, BadInputs),
        ({"grid_override": (1, 2, 3, 4)}, BadInputs),
        ({"grid_override": (-1,)}, BadInputs),
        ({"grid_override": 2.5}, BadInputs),
        ({"cooperative": "maybe"}, BadInputs),
    ],
)
def test_a_config_that_means_nothing_cannot_be_made(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match="Fix: "):
        DispatchConfig(**changes)
    with pytest.raises(error):
        DispatchConfig().with_changes(**changes)


def test_overrides_of_the_config_are_honoured() -> None:
    ids = Program.new([BufferDecl.read_write("seen", 0, U32)], 2, [store("seen", gid(), gid() + 1)])
    backend = ReferenceBackend()
    empty = np.zeros(6, np.uint32)
    run = lambda **config: words(backend.dispatch(ids, [empty], DispatchConfig(**config))[0])  # noqa: E731
    assert run() == [1, 2, 3, 4, 5, 6]
    assert run(grid_override=(1,)) == [1, 2, 0, 0, 0, 0]
    assert run(grid_override=(1,), workgroup_override=(3,)) == [1, 2, 3, 0, 0, 0]
    assert run(grid_override=1) == run(grid_override=[1]) == run(grid_override=np.array([1])) == [1, 2, 0, 0, 0, 0]
    assert run(dispatch_elements=3) == [1, 2, 3, 4, 0, 0]
    assert run(dispatch_elements=0) == [0] * 6


def test_an_output_limit_is_kept_before_anything_runs() -> None:
    backend = ReferenceBackend()
    backend.dispatch(increment(), [ONES], DispatchConfig(max_output_bytes=12))
    with pytest.raises(DispatchFailed, match="12 bytes, and max_output_bytes is 11") as caught:
        backend.dispatch(increment(), [ONES], DispatchConfig(max_output_bytes=11))
    assert caught.value.code == "output-limit"


def test_a_run_that_takes_too_long_is_ended() -> None:
    forever = increment().with_entry([while_(True, [store("state", 0, gid())])])
    backend = ReferenceBackend()
    start = time.monotonic()
    with pytest.raises(Timeout, match=r"0\.05 s"):
        backend.dispatch(forever, [ONES], DispatchConfig(timeout_s=0.05))
    endless = DispatchConfig(timeout_s=0.05, fixpoint_iterations=10**9)
    with pytest.raises(Timeout, match=r"0\.05 s"):
        backend.dispatch(increment(), [ONES], endless)
    assert time.monotonic() - start < 10
    assert words(backend.dispatch(increment(), [ONES], DispatchConfig(timeout_s=60.0))[0]) == [2, 2, 2]


THREADED: dict[str, Callable[[], Backend]] = {
    "native": ReferenceBackend,
    "resident": lambda: ReferenceBackend(grid_sync=False, poison=0xA5),
    "host": lambda: ReferenceBackend(grid_sync=False, resident=False),
    "cpu": lambda: cpu_support.backend(None, 2),
}


@pytest.mark.parametrize("name", THREADED)
def test_many_threads_get_the_same_bytes(name: str) -> None:
    """Eight begin together with programs that nobody has bound, cut or compiled before."""
    pipelines = [THREADED[name]().compile(program) for program in (increment(50), SHIFTED.with_name("cold"))]
    data = np.arange(64, dtype=np.uint32)
    many = DispatchConfig(fixpoint_iterations=3)
    wanted = [np.minimum(data + 3, np.maximum(data, 50)).tolist(), [*range(3, 64), 0, 0, 0]]
    start = threading.Barrier(8)
    results: list[list[list[int]]] = []

    def work() -> None:
        start.wait()
        results.extend([words(one.dispatch([data], many)[0]) for one in pipelines] for _ in range(3))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 24


COLD = """
import sys, threading
import numpy as np
from pathlib import Path
from vyre.backends.cpu import CpuBackend
from vyre.driver.cache import DiskCache
from vyre.ir import parse
add = "state[gid.x] = state[gid.x] + 1"
program = parse(f"program cold(workgroup 4) {{ buffer 0 state: u32[64] readwrite; {add}; grid_sync; {add} }}")
backend = CpuBackend(threads=2, cache=DiskCache(Path(sys.argv[1])))
start, results = threading.Barrier(8), []
def work():
    start.wait()
    results.extend(bytes(backend.compile(program).dispatch([np.zeros(64, np.uint32)])[0]) for _ in range(20))
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert results == [np.full(64, 2, np.uint32).tobytes()] * 160
"""


def test_a_process_may_begin_with_eight_threads_at_once(tmp_path: Path) -> None:
    """Nothing is loaded yet, not even the native code that runs launches."""
    assert subprocess.run([sys.executable, "-c", COLD, str(tmp_path)], timeout=60, check=False).returncode == 0
