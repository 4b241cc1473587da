"""Calls: what fits runs in place, what does not is named before anything runs."""

from __future__ import annotations

import array as standard_array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cpu_support
import vyre
from vyre import bf16, f16, f32, i32, u8
from vyre.backends.reference import ReferenceBackend, ReferenceDevice
from vyre.driver import Backend, telemetry
from vyre.errors import BadInputs, UnsupportedFeature

CPU = cpu_support.backend(None, 1)
REFERENCE = ReferenceBackend()
# In place, packed and copied back, and through a backend that has nothing resident.
BACKENDS = [CPU, REFERENCE, ReferenceBackend(resident=False, grid_sync=False)]


@pytest.fixture(params=BACKENDS, ids=["cpu", "reference", "plain"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@vyre.kernel
def saxpy(a: f32, x: vyre.In[f32], y: vyre.InOut[f32]):
    i = vyre.gid()
    if i < len(y):
        y[i] = a * x[i] + y[i]


@vyre.kernel(workgroup=(4, 4))
def shift(x: vyre.In[i32, 2], y: vyre.Out[i32, 2]):
    row, column = vyre.gid(1), vyre.gid(0)
    y[row, column] = x[row, column + 1]


@vyre.kernel
def scalars(a: u8, b: i32, c: bool, d: f16, e: bf16, out: vyre.Out[f32]):
    out[0] = f32(a)
    out[1] = f32(b)
    out[2] = 1.0 if c else 2.0
    out[3] = f32(d)
    out[4] = f32(e)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_outputs_change_in_place(backend: Any) -> None:
    x, y = floats(1, 2, 3), floats(10, 20, 30)
    saxpy.on(backend)[3](2.0, x, y)
    assert y.tolist() == [12, 24, 36]
    saxpy.on(backend)[3](y=y, a=1, x=x)
    assert y.tolist() == [13, 26, 39]
    saxpy.on(backend).grid(1)(0.5, x, y)
    assert y.tolist() == [13.5, 27, 40.5]


VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "c order": lambda room: room[:6, :8],
    "all": lambda room: room.reshape(-1)[:48].reshape(6, 8),
    "every second": lambda room: room[::2, ::2][:6, :8],
    "backwards": lambda room: room[::-1, ::-1][:6, :8],
    "transposed": lambda room: room.T[:6, :8],
    "one row": lambda room: room[3:4, 2:3],
    "nothing": lambda room: room[:0, :8],
}


@pytest.mark.parametrize("of_input", VIEWS)
@pytest.mark.parametrize("of_output", VIEWS)
def test_views_are_what_they_show(backend: Any, of_input: str, of_output: str) -> None:
    x = VIEWS[of_input](np.arange(400, dtype=np.int32).reshape(20, 20))
    room = np.full((20, 20), -1, np.int32)
    y = VIEWS[of_output](room)
    expected = np.zeros_like(y)
    rows, columns = min(y.shape[0], x.shape[0]), min(y.shape[1], max(0, x.shape[1] - 1))
    expected[:rows, :columns] = x[:rows, 1 : columns + 1]
    untouched = room.size - y.size
    shift.on(backend)[(8, 8)](x, y)
    assert (y == expected).all()
    assert np.count_nonzero(room == -1) == untouched


def test_a_view_is_not_copied_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.arange(20, dtype=np.float32)[::2], np.zeros(20, np.float32)[::-2]
    seen: list[Any] = []
    run = type(CPU).dispatch_in_place
    monkeypatch.setattr(type(CPU), "dispatch_in_place", lambda *given: (seen.extend(given[2]), run(*given))[1])
    saxpy.on(CPU)[10](1.0, x, y)
    assert np.shares_memory(seen[1], x)
    assert np.shares_memory(seen[2], y)
    assert y.tolist() == x.tolist()


def test_unaligned_and_odd_views_are_packed() -> None:
    raw = np.zeros(41, np.uint8)
    y = raw[1:].view(np.float32)
    assert not y.flags.aligned
    saxpy.on(CPU)[10](1.0, floats(*range(10)), y)
    assert y.tolist() == list(range(10))
    pairs = np.zeros(5, np.dtype([("a", "u1"), ("b", "f4")]))
    saxpy.on(CPU)[5](1.0, floats(*range(5)), pairs["b"])
    assert pairs["b"].tolist() == list(range(5))


class Tensor:
    """Somebody else's array, as DLPack gives it."""

    def __init__(self, data: np.ndarray, device: int = 1) -> None:
        self.data, self.device = data, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def test_others_arrays_are_shared() -> None:
    x, data = standard_array.array("f", [1, 2, 3]), floats(1, 1, 1)
    saxpy.on(CPU)[3](2.0, x, Tensor(data))
    saxpy.on(CPU)[3](2.0, memoryview(x), memoryview(data))
    assert data.tolist() == [5, 9, 13]
    raw = bytearray(12)
    saxpy.on(CPU)[3](1.0, x, np.frombuffer(raw, np.float32))
    assert np.frombuffer(raw, np.float32).tolist() == [1, 2, 3]


class OldTensor(Tensor):
    """One of before DLPack 1.0, which cannot say what is read-only, and so exports nothing that is."""

    def __dlpack__(self, stream: Any = None) -> Any:
        return self.data.__dlpack__(stream=stream)


def test_old_tensors_are_written_in_place() -> None:
    data, x = floats(1, 1, 1, 1, 1, 1), OldTensor(floats(1, 2, 3))
    assert not np.from_dlpack(OldTensor(data)).flags.writeable
    saxpy.on(CPU)[3](2.0, x, OldTensor(data[::2]))
    assert data.tolist() == [3, 1, 5, 1, 7, 1]
    assert vyre.array(x, backend=CPU).numpy().tolist() == [1, 2, 3]
    # The memory is kept as long as it is used.
    call = saxpy.on(CPU)[3].bind(1.0, x, OldTensor(np.zeros(3, np.float32)))
    for _ in range(3):
        call()
    locked = floats(1, 2, 3)
    locked.flags.writeable = False
    for tensor in (OldTensor(locked), Tensor(locked)):
        with pytest.raises(BadInputs, match=r"argument 'y' (is written by the kernel|takes memory of the host)"):
            saxpy.on(CPU)[3](2.0, x, tensor)


def test_scalars_of_every_kind(backend: Any) -> None:
    out = np.zeros(5, np.float32)
    scalars.on(backend)[1](np.uint8(200), -5, np.True_, 1.5, np.array(2.5), out)
    assert out.tolist() == [200, -5, 1, 1.5, 2.5]


def test_prepared_calls_run_again_on_what_the_arrays_hold(backend: Any) -> None:
    x, y = floats(1, 2, 3), floats(0, 0, 0)
    call = saxpy.on(backend)[3].bind(2.0, x, y)
    call()
    x[0] = 100
    call()
    assert y.tolist() == [202, 8, 12]


def test_prepared_calls_see_what_has_to_be_packed() -> None:
    raw, y = np.zeros(13, np.uint8), floats(0, 0, 0)
    x = raw[1:].view(np.float32)
    assert not x.flags.aligned
    call = saxpy.on(CPU)[3].bind(1.0, x, y)
    x[:] = 5
    call()
    x[:] = 7
    call()
    assert y.tolist() == [12, 12, 12]


def test_a_launch_may_be_empty(backend: Any) -> None:
    y = floats(1)
    saxpy.on(backend)[0](2.0, floats(1), y)
    saxpy.on(backend)[4](2.0, np.zeros(0, np.float32), np.zeros(0, np.float32))
    assert y.tolist() == [1]


ONE, TWO = floats(1, 2), floats(3, 4)
READ_ONLY = floats(1, 2)
READ_ONLY.flags.writeable = False

WRONG_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "no size": (
        lambda: saxpy(1.0, ONE, TWO),
        "kernel 'saxpy' was called without a size. Fix: say how many invocations: saxpy[n](...), or saxpy.grid(...).",
    ),
    "a size of another kind": (
        lambda: saxpy["all"],
        "'all' is no number of invocations. Fix: give one to three whole numbers from 0: (512, 512).",
    ),
    "a bool as a size": (
        lambda: saxpy[True],
        "True is no number of invocations. Fix: give one to three whole numbers from 0: (512, 512).",
    ),
    "four axes": (
        lambda: saxpy.grid(1, 1, 1, 1),
        "(1, 1, 1, 1) is no number of workgroups. Fix: give one to three whole numbers from 0: (512, 512).",
    ),
    "too few arguments": (
        lambda: saxpy[2](1.0, ONE),
        "kernel 'saxpy' was not given 'y'. Fix: call it as saxpy[n](a, x, y).",
    ),
    "too many arguments": (
        lambda: saxpy[2](1.0, ONE, TWO, TWO),
        "kernel 'saxpy' has 3 parameters, not 4. Fix: call it as saxpy[n](a, x, y).",
    ),
    "an unknown name": (
        lambda: saxpy[2](1.0, ONE, z=TWO),
        "kernel 'saxpy' has no parameter 'z' left to give. Fix: call it as saxpy[n](a, x, y).",
    ),
    "a name given twice": (
        lambda: saxpy[2](1.0, ONE, TWO, x=TWO),
        "kernel 'saxpy' has no parameter 'x' left to give. Fix: call it as saxpy[n](a, x, y).",
    ),
    "another dtype": (
        lambda: saxpy[2](1.0, np.zeros(2), TWO),
        "argument 'x' holds f32, and was given an array of float64. Fix: convert it: array.astype(np.float32).",
    ),
    "another byte order": (
        lambda: saxpy[2](1.0, ONE.astype(">f4"), TWO),
        "argument 'x' holds f32, and was given an array of >f4. Fix: convert it: array.astype(np.float32).",
    ),
    "another rank": (
        lambda: saxpy[2](1.0, ONE.reshape(1, 2), TWO),
        "argument 'x' has 1 axis, and was given an array of shape (1, 2). "
        "Fix: reshape the array, or declare the rank: In[f32, 2].",
    ),
    "too few axes": (
        lambda: shift[(2, 2)](np.zeros(4, np.int32), np.zeros((2, 2), np.int32)),
        "argument 'x' has 2 axes, and was given an array of shape (4,). "
        "Fix: reshape the array, or declare the rank: In[f32, 2].",
    ),
    "a list": (
        lambda: saxpy[2](1.0, [1.0, 2.0], TWO),
        "argument 'x' takes an array, and was given a list. Fix: make it an array: np.array(..., np.float32).",
    ),
    "a number for an array": (
        lambda: saxpy[2](1.0, 3.0, TWO),
        "argument 'x' takes an array, and was given 3.0. Fix: make it an array: np.array(..., np.float32).",
    ),
    "a masked array": (
        lambda: saxpy[2](1.0, np.ma.array(ONE, mask=[True, False]), TWO),
        "argument 'x' takes an array, and this one has a mask, which a kernel does not see. "
        "Fix: pass array.filled(...).",
    ),
    "a read-only output": (
        lambda: saxpy[2](1.0, ONE, READ_ONLY),
        "argument 'y' is written by the kernel, and this array is read-only. Fix: pass a copy: array.copy().",
    ),
    "bytes as an output": (
        lambda: count_bytes[2](b"ab"),
        "argument 'y' is written by the kernel, and this array is read-only. Fix: pass a copy: array.copy().",
    ),
    "an output that is an input": (
        lambda: saxpy[2](1.0, TWO, TWO),
        "argument 'y' is written, and shares memory with argument 'x'. Fix: pass a copy of one.",
    ),
    "an output that overlaps an input": (
        lambda: saxpy[2](1.0, np.broadcast_to(TWO, (1, 2))[0], TWO),
        "argument 'y' is written, and shares memory with argument 'x'. Fix: pass a copy of one.",
    ),
    "an output whose elements overlap": (
        lambda: saxpy[2](1.0, ONE, np.lib.stride_tricks.as_strided(TWO, (2,), (0,))),
        "argument 'y' is written, and elements of this view share memory. Fix: pass a copy: array.copy().",
    ),
    "a tensor on a device": (
        lambda: saxpy[2](1.0, Tensor(ONE, device=2), TWO),
        "argument 'x' takes memory of the host, and this array is not to be had (it is on another device). "
        "Fix: copy it to NumPy.",
    ),
    "an array of another backend": (
        lambda: saxpy.on(CPU)[2](1.0, vyre.array(ONE, backend=REFERENCE), TWO),
        "an array is on backend 'reference', and kernel 'saxpy' runs on 'cpu'. "
        "Fix: run it where its arrays are, or copy them: vyre.array(a.numpy(), backend=...).",
    ),
    "text for a number": (
        lambda: saxpy[2]("1", ONE, TWO),
        "argument 'a' takes an f32, and was given a str. Fix: pass one number.",
    ),
    "an array for a number": (
        lambda: saxpy[2](ONE, ONE, TWO),
        "argument 'a' takes an f32, and was given a ndarray. Fix: pass one number.",
    ),
    "a bool for a number": (
        lambda: saxpy[2](True, ONE, TWO),
        "argument 'a' takes an f32, and was given True. Fix: pass a number: int(True).",
    ),
    "a number too large": (
        lambda: saxpy[2](1e300, ONE, TWO),
        "argument 'a' takes an f32, and 1e+300 is too large for it. Fix: pass a smaller number.",
    ),
    "a fraction for an integer": (
        lambda: scalars[1](1.5, 1, True, 1.0, 1.0, TWO),
        "argument 'a' takes a u8, and was given 1.5. Fix: pass a number: int(1.5).",
    ),
    "an integer out of range": (
        lambda: scalars[1](300, 1, True, 1.0, 1.0, TWO),
        "argument 'a' takes a u8, and was given 300. Fix: pass 0 to 255.",
    ),
    "a number for a bool": (
        lambda: scalars[1](3, 1, 1, 1.0, 1.0, TWO),
        "argument 'c' takes a bool, and was given 1. Fix: pass True or False.",
    ),
    "races of a kernel without a size": (
        lambda: vyre.check_races(saxpy, 1.0, ONE, TWO),
        "check_races takes a launch. Fix: say how many invocations: vyre.check_races(kernel[n], ...).",
    ),
}


@vyre.kernel
def count_bytes(y: vyre.InOut[u8]):
    y[vyre.gid()] += 1


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_a_wrong_call_is_named_before_anything_runs(name: str) -> None:
    call, text = WRONG_CALLS[name]
    before = ONE.tobytes(), TWO.tobytes()
    with pytest.raises(BadInputs) as refused:
        call()
    assert str(refused.value) == f"[bad-inputs] {text}"
    assert (ONE.tobytes(), TWO.tobytes()) == before


@vyre.kernel
def halves(x: vyre.In[f16], y: vyre.Out[f32]):
    y[0] = f32(x[0])


def test_what_a_backend_lacks_is_shown_in_the_source() -> None:
    class Small(ReferenceDevice):
        id = "small"

        @property
        def profile(self) -> Any:
            import msgspec

            from vyre.driver.profile import BASIC_TYPES

            return msgspec.structs.replace(super().profile, dtypes=BASIC_TYPES)

    with pytest.raises(UnsupportedFeature) as refused:
        halves.on(Backend(Small()))[1](np.zeros(1, np.float16), np.zeros(1, np.float32))
    (note,) = refused.value.__notes__
    assert "error[V089]: the target has no f16" in note
    assert "def halves(x: vyre.In[f16], y: vyre.Out[f32]):" in note


def test_kernels_from_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> bool:
        x, y = np.full(100, number, np.float32), np.zeros(100, np.float32)
        for _ in range(50):
            saxpy.on(CPU)[100](1.0, x, y)
        return bool((y == 50 * number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_arrays_on_a_device_of_the_host_run_in_place() -> None:
    """A call on them costs what one on NumPy arrays does: nothing is allocated or copied."""
    x, y = (vyre.array(np.arange(6, dtype=np.float32).reshape(2, 3), backend="cpu") for _ in range(2))

    @vyre.kernel(backend="cpu")
    def scaled(a: f32, x: vyre.In[f32, 2], y: vyre.InOut[f32, 2]):
        i, j = vyre.gid(0), vyre.gid(1)
        if i < y.shape[0] and j < y.shape[1]:
            y[i, j] = a * x[i, j] + y[i, j]

    before = telemetry.snapshot()
    scaled[2, 3](2.0, x, y)
    after = telemetry.snapshot()
    assert np.array_equal(y.numpy(), 3 * x.numpy())
    assert after.resident_buffers == before.resident_buffers
    assert after.resident_bytes_peak == before.resident_bytes_peak
    scaled[2, 3](2.0, x.numpy(), y)
    scaled[2, 3](1.0, x.T.T, y)
    assert np.array_equal(y.numpy(), 6 * x.numpy())
    with pytest.raises(BadInputs, match="shares memory"):
        scaled[2, 3](2.0, y[:], y)
    with pytest.raises(BadInputs, match="shares memory"):
        scaled[2, 3](2.0, y, y)
    y.buffer.owner.free(y.buffer)
    with pytest.raises(BadInputs, match="freed"):
        scaled[2, 3](2.0, x, y)
