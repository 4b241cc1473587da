"""Arrays that stay on a device, sequences of calls, and debug runs."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cpu_support
import vyre
from vyre import f16, f32, u8, u32
from vyre.backends.reference import ReferenceBackend
from vyre.driver import telemetry
from vyre.errors import BadInputs, UnsupportedFeature

CPU = cpu_support.backend(None, 1)
REFERENCE = ReferenceBackend()


@pytest.fixture(params=[CPU, REFERENCE, ReferenceBackend(grid_sync=False)], ids=["cpu", "reference", "split"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@vyre.kernel
def double(x: vyre.In[f32], y: vyre.Out[f32]):
    i = vyre.gid()
    y[i] = 2.0 * x[i]


@vyre.kernel(workgroup=(4, 4))
def transpose(x: vyre.In[u32, 2], y: vyre.Out[u32, 2]):
    i, j = vyre.gid(0), vyre.gid(1)
    y[i, j] = x[j, i]


@vyre.kernel(workgroup=4)
def halve(step: u32, x: vyre.InOut[u32], left: vyre.InOut[u32]):
    i = vyre.gid()
    if i == 0:
        left[0] = 0
    vyre.grid_sync()
    if i < len(x):
        x[i] = x[i] // step
        if x[i] > 0:
            vyre.atomic_add(left, 0, 1)


def u32s(*values: int) -> np.ndarray:
    return np.array(values, np.uint32)


def test_data_stays_until_it_is_asked_for(backend: Any) -> None:
    x = vyre.array(np.arange(6, dtype=np.float32), backend=backend)
    y = vyre.array(np.zeros(6, np.float32), backend=backend)
    double[6](x, y)
    double[6](y, x)
    assert x.numpy().tolist() == [0, 4, 8, 12, 16, 20]
    assert np.asarray(x).tolist() == np.from_dlpack(x).tolist() == x.numpy().tolist()
    assert (x.shape, x.dtype, x.nbytes, len(x), x.backend) == ((6,), f32, 24, 6, backend)
    host = np.zeros(6, np.float32)
    double[6](x, host)
    assert host[1] == 8
    count, left = vyre.array(np.full(4, 64, np.uint32), backend=backend), vyre.array(u32s(0), backend=backend)
    call = halve[4].bind(2, count, left)
    call()
    call()
    assert count.numpy().tolist() == [16] * 4


def test_views_share_memory(backend: Any) -> None:
    host = np.arange(24, dtype=np.uint32).reshape(4, 6)
    x = vyre.array(host, backend=backend)
    for key in (slice(1, 3), (slice(None), 2), (..., slice(None, None, -2)), (3, 1), (slice(0, 0),), -1):
        assert np.array_equal(x[key].numpy(), host[key]), key
    assert np.array_equal(x.T[1:, ::2].numpy(), host.T[1:, ::2])
    y = vyre.array(np.zeros((6, 4), np.uint32), backend=backend)
    transpose[(4, 4)](x[::2, ::-1][:, :4], y[1:5, 1:3])
    expected = np.zeros((6, 4), np.uint32)
    expected[1:5, 1:3] = host[::2, ::-1][:, :4].T
    assert np.array_equal(y.numpy(), expected)


def test_memory_goes_with_the_last_view(backend: Any) -> None:
    gc.collect()
    before = telemetry.snapshot().resident_buffers
    x = vyre.array(np.zeros(8, np.float32), backend=backend)
    view = x[2:4]
    del x
    assert view.numpy().tolist() == [0, 0]
    assert telemetry.snapshot().resident_buffers == before + 1
    del view
    assert telemetry.snapshot().resident_buffers == before
    with vyre.array(np.zeros(8, np.float32), backend=backend) as y:
        y.fill(1)
        y.assign(np.ones(8, np.float32))
        assert y.numpy().sum() == 8
    assert telemetry.snapshot().resident_buffers == before


WRONG = {
    "a type of nobody": (lambda: vyre.array(np.zeros(2, np.complex64)), "an array of complex64 does not hold a type"),
    "another type": (lambda: vyre.array(np.zeros(2), dtype=f32), "an array of float64 does not hold f32"),
    "an index of another kind": (lambda: vyre.array(np.zeros(2, np.uint8), backend=CPU)["a"], "'a' is no index"),
    "too many indices": (lambda: vyre.array(np.zeros(2, np.uint8), backend=CPU)[0, 0], "2 indices are given to 1 axes"),
    "an index outside": (lambda: vyre.array(np.zeros(2, np.uint8), backend=CPU)[2], "2 is outside an axis of 2"),
    "another shape": (
        lambda: vyre.array(np.zeros(2, np.uint8), backend=CPU).assign(np.zeros(3, np.uint8)),
        r"uint8\[3\] is copied into u8\[2\]",
    ),
    "filling a view": (lambda: vyre.array(np.zeros(4, np.uint8), backend=CPU)[::2].fill(), "a view cannot be filled"),
    "a fill that is no byte": (lambda: vyre.array(ONE, backend=CPU).fill(1.5), "the fill value is a float"),
    "a ragged list": (lambda: vyre.array([[1], [2, 3]]), "this is no array"),
    "a type of NumPy": (lambda: vyre.array([1], dtype=np.float32), "is no type of vyre"),
    "numbers that do not fit": (lambda: vyre.array([1, 300], dtype=u8, backend=CPU), "not all of these numbers are u8"),
    "a number beyond a float": (lambda: vyre.array([1e9], dtype=f16, backend=CPU), "not all of these numbers are f16"),
    "fractions as integers": (lambda: vyre.array([1.5], dtype=u8, backend=CPU), "an array of float64 does not hold u8"),
    "a bool as an index": (lambda: vyre.array(ONE, backend=CPU)[True], "True is no index"),
    "a slice of text": (lambda: vyre.array(ONE, backend=CPU)["a":], "is no index"),
    "a slice of step 0": (lambda: vyre.array(ONE, backend=CPU)[::0], "is no index"),
    "a number as a backend": (lambda: vyre.array(ONE, backend=5), "a int is no backend"),
    "two views of one array": (
        lambda: double[1](*[vyre.array(np.zeros(4, np.float32), backend=CPU)[:2]] * 2),
        "shares memory",
    ),
    "an array on another backend": (
        lambda: double[1](vyre.array(ONE, backend=CPU), vyre.array(ONE, backend=REFERENCE)),
        "an array is on backend 'reference'",
    ),
}  # fmt: skip
ONE = np.zeros(1, np.float32)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_use_of_an_array_is_named(name: str) -> None:
    use, text = WRONG[name]
    with pytest.raises(BadInputs, match=text):
        use()


def test_lists_become_arrays_of_the_type_asked_for() -> None:
    for data, dtype in (([1, 2], u32), ([[1, 2.5]], f32), ((3,), u8), (7, f32)):
        made = vyre.array(data, dtype=dtype, backend=CPU)
        assert np.array_equal(made.numpy(), np.array(data, dtype.storage))
        assert made.numpy().dtype == dtype.storage


def test_a_view_is_copied_into(backend: Any) -> None:
    host = np.arange(12, dtype=np.uint32).reshape(3, 4)
    x = vyre.array(host, backend=backend)
    x[1:, ::-2].assign(u32s(100, 101, 102, 103).reshape(2, 2))
    host[1:, ::-2] = [[100, 101], [102, 103]]
    x[0:0].assign(np.zeros((0, 4), np.uint32))
    assert np.array_equal(x.numpy(), host)
    assert [row.numpy().tolist() for row in x] == host.tolist()


def test_others_see_the_memory_of_the_processor_itself() -> None:
    x = vyre.array(np.arange(12, dtype=np.float32).reshape(3, 4), backend=CPU)
    seen = np.from_dlpack(x)
    view = np.asarray(x[1:, ::2], copy=False)
    double[4](vyre.array(np.ones(4, np.float32), backend=CPU), x[1])
    assert seen[1].tolist() == [2, 2, 2, 2]
    assert view.tolist() == [[2, 2], [8, 10]]
    assert not np.shares_memory(np.from_dlpack(x, copy=True), seen)
    assert not np.shares_memory(x.numpy(), seen)
    # The memory stays while somebody looks at it.
    del x
    gc.collect()
    assert seen[1].tolist() == [2, 2, 2, 2]
    # And their memory is used where it is.
    seen[0] = 5
    double.on(CPU)[4](seen[0], seen[2])
    assert seen[2].tolist() == [10, 10, 10, 10]
    owner = vyre.array(np.zeros(4, np.float32), backend=CPU)
    for arguments in ((owner, np.from_dlpack(owner)), (np.from_dlpack(owner)[1:], owner)):
        with pytest.raises(BadInputs, match="argument 'y' is written, and shares memory with argument 'x'"):
            double[3](*arguments)
    elsewhere = vyre.array(ONE, backend=REFERENCE)
    assert np.from_dlpack(elsewhere).tolist() == [0]
    for take in (lambda: np.asarray(elsewhere, copy=False), lambda: np.from_dlpack(elsewhere, copy=False)):
        with pytest.raises((ValueError, BufferError), match="without a copy"):
            take()


def test_a_backend_without_resident_memory_says_so() -> None:
    with pytest.raises(UnsupportedFeature, match="resident buffers"):
        vyre.array(ONE, backend=ReferenceBackend(resident=False))


def test_a_sequence_runs_its_steps_without_the_host(backend: Any) -> None:
    x, y, z = np.ones(5, np.float32), np.zeros(5, np.float32), vyre.array(np.zeros(5, np.float32), backend=backend)
    with vyre.sequence(backend) as s:
        double[5](x, y)
        double[5](y, z)
        assert y[0] == 0
    assert (y[0], z.numpy()[0], s.passes) == (2, 4, 0)
    x[:] = 10
    s.run()
    assert (y[0], z.numpy()[0]) == (20, 40)


def test_a_sequence_repeats_until_it_is_told_to_stop(backend: Any) -> None:
    x, left = np.array([1, 9, 100, 0], np.uint32), np.ones(1, np.uint32)
    with vyre.sequence(backend) as s:
        halve[4](2, x, left)
        with s.repeat(50, until=vyre.Zero(left)):
            halve[4](2, x, left)
    assert (x.tolist(), s.passes, s.converged) == ([0, 0, 0, 0], 6, True)
    x[:] = 64
    with vyre.sequence(backend) as s:
        halve[4](2, x, left)
        s.repeat(3)
    assert (x.tolist(), s.passes, s.converged) == ([8] * 4, 3, None)
    resident = vyre.array(x, backend=backend)
    with vyre.sequence(backend) as s, s.repeat(50, until=vyre.Unchanged([resident])):
        halve[4](3, resident, left)
    assert (resident.numpy().tolist(), s.passes, s.converged) == ([0] * 4, 3, True)


def test_a_prepared_call_in_a_sequence_is_a_step(backend: Any) -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    call = double.on(backend)[3].bind(x, y)
    with vyre.sequence(backend):
        call()
        assert y[0] == 0
    assert y[0] == 2


def nested() -> None:
    with vyre.sequence(CPU), vyre.sequence(CPU):
        pass


def after_the_repeat() -> None:
    with vyre.sequence(CPU) as s:
        double[1](ONE, ONE.copy())
        s.repeat(3)
        double[1](ONE, ONE.copy())


def repeated_twice() -> None:
    with vyre.sequence(CPU) as s:
        s.repeat(3)
        s.repeat(3)


def empty_repeat() -> None:
    with vyre.sequence(CPU) as s, s.repeat(3):
        pass


def elsewhere() -> None:
    with vyre.sequence(CPU):
        double.on(REFERENCE)[1](ONE, ONE.copy())


def array_elsewhere() -> None:
    with vyre.sequence(CPU):
        double[1](vyre.array(ONE, backend=REFERENCE), ONE.copy())


def overlapping() -> None:
    data = np.zeros(8, np.float32)
    with vyre.sequence(CPU):
        double[4](data[:4], data[4:])
        double[4](data[1:5], np.zeros(4, np.float32))


def recorded_twice() -> None:
    s = vyre.sequence(CPU)
    for _ in range(2):
        with s:
            double[1](ONE, ONE.copy())


def watching_nothing() -> None:
    with vyre.sequence(CPU) as s, s.repeat(3, until=vyre.Zero(np.zeros(3))):
        double[1](ONE, ONE.copy())


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (nested, "a sequence is being recorded already"),
        (after_the_repeat, "the repeated part is the last of a sequence"),
        (repeated_twice, "a sequence has one part that is repeated"),
        (empty_repeat, "nothing was recorded to be repeated"),
        (elsewhere, "kernel 'double' runs on 'reference', and the sequence on 'cpu'"),
        (array_elsewhere, "an array is on backend 'reference', and the sequence on 'cpu'"),
        (overlapping, "two arrays of a sequence overlap in memory"),
        (watching_nothing, "a sequence watches whole arrays that its steps use"),
        (recorded_twice, "this sequence is recorded"),
        (lambda: vyre.sequence(CPU).repeat(-1), "a sequence cannot be repeated -1 times"),
        (lambda: vyre.sequence(CPU).repeat(2.5), "a sequence cannot be repeated 2.5 times"),
        (lambda: vyre.sequence(CPU).repeat(2, until="x"), "a str says not when to stop"),
        (lambda: vyre.sequence(3), "a int is no backend"),
    ],
    ids=lambda one: getattr(one, "__name__", "text"),
)
def test_a_wrong_sequence_is_named(record: Any, text: str) -> None:
    with pytest.raises(BadInputs, match=text):
        record()
    # Whatever went wrong, nothing is being recorded any more.
    y = np.zeros(1, np.float32)
    double.on(CPU)[1](np.ones(1, np.float32), y)
    assert y[0] == 2


@vyre.kernel
def neighbours(y: vyre.InOut[u32]):
    i = vyre.gid()
    if i + 1 < len(y) and y[i + 1] > 0:
        y[i] = 1


@vyre.kernel
def tickets(counter: vyre.InOut[u32], y: vyre.InOut[u32]):
    y[vyre.gid()] = vyre.atomic_add(counter, 0, 1)


@vyre.kernel
def guarded(y: vyre.InOut[u32, 2], out: vyre.Out[u32]):
    i = vyre.gid()
    if i < 2 and y[i, 1] > 0:
        out[i] = y[i, 2]


def test_a_race_is_shown_in_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    y = np.ones(4, np.uint32)
    report = neighbours[4].debug(y)
    assert not report.ok
    line = neighbours.definition.source.first_line + 3
    assert str(report).split("\n\n")[0] == (
        "race[read]: invocations 0 and 1 meet at 'y[1]': a read here and a write at "
        f"test_arrays_and_sequences.py:{line + 1}:9, "
        "in no order\n"
        f"   --> test_arrays_and_sequences.py:{line}:27\n"
        "    |\n"
        f"{line} |     if i + 1 < len(y) and y[i + 1] > 0:\n"
        "    |                           ^^^^^^^^ here\n"
        "    = fix: put a barrier between them, use an atomic, or give each invocation an element of its own."
    )
    assert y.tolist() == [1, 1, 1, 1]
    assert report.out_of_bounds == ()


def test_order_and_bounds_are_reported() -> None:
    report = vyre.check_races(tickets[4], np.zeros(1, np.uint32), np.zeros(64, np.uint32))
    assert (report.races, report.order_dependent, report.ok) == ((), True, False)
    assert "depends on the order of its invocations" in str(report)
    assert report.outputs["counter"].tolist() == [64]
    report = guarded[2].debug(np.ones((2, 2), np.uint32), np.zeros(2, np.uint32))
    # What `and` does not evaluate is not reported; an index beyond its own axis is.
    assert [(miss.buffer, miss.count) for miss in report.out_of_bounds] == [("y", 2)]
    assert report.ok
    device = vyre.array(np.ones((2, 3), np.uint32), backend=CPU)
    assert str(guarded[2].debug(device, np.zeros(2, np.uint32))) == "'guarded' is clean under 8 schedules"
