"""Code variants are chosen by the time launches take; every launch gives the same bytes, and no caller waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from vyre import reference
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.kernels import SCALAR
from vyre.backends.cpu.launches import PreparedLaunch
from vyre.backends.cpu.schedules import CpuSchedule
from vyre.backends.cpu.tuning import Tuner
from vyre.driver import DispatchConfig, telemetry
from vyre.driver.cache import DiskCache
from vyre.errors import BadInputs, KernelCompileFailed
from vyre.ir import parse

# Rows of unlike lengths: lanes leave the loop at different times, and gather.
ROWS = parse("""
program rows(workgroup 64) {
  buffer 0 offsets: u32[] read
  buffer 1 column: u32[] read
  buffer 2 x: f32[] read
  buffer 3 y: f32[] readwrite
  if gid.x < len(y) {
    let sum = 0.0
    for e in offsets[gid.x] .. offsets[gid.x + 1] { sum = sum + x[column[e]] }
    y[gid.x] = sum
  }
}""")
COUNT = 3000
CONFIG = DispatchConfig(dispatch_elements=COUNT)


def inputs() -> list[np.ndarray]:
    random = np.random.default_rng(2)
    lengths = random.zipf(1.6, COUNT).clip(max=2000)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.uint32)
    column = random.integers(0, COUNT, int(offsets[-1]), dtype=np.uint32)
    return [offsets, column, random.random(COUNT, np.float32), np.zeros(COUNT, np.float32)]


def expected() -> bytes:
    return reference.run(ROWS, inputs(), elements=COUNT).outputs["y"].tobytes()


def tuned(on: CpuBackend, most_seconds: float = 60.0) -> None:
    """Dispatch until the variants were compared; each result is checked."""
    given, wanted, before = inputs(), expected(), telemetry.snapshot().variants_compared
    limit = time.monotonic() + most_seconds
    while telemetry.snapshot().variants_compared == before:
        assert on.dispatch(ROWS, given, CONFIG)[0].tobytes() == wanted
        assert time.monotonic() < limit, "the variants are never compared"
    assert on.dispatch(ROWS, given, CONFIG)[0].tobytes() == wanted


def test_a_choice_is_kept_in_memory_and_on_disk(tmp_path: Path) -> None:
    with CpuBackend(threads=2, cache=DiskCache(tmp_path)) as on:
        tuned(on)
        ((_, _, code),) = on.compile(ROWS, CONFIG).launched()
        (size,) = code.measured
        assert size == (-(-COUNT // 64) * 64).bit_length()
        width = code.measured[size]
        assert width in (SCALAR, on.device.kernels.width)
        assert "is fastest" in on.compile(ROWS, CONFIG).explain()
    with CpuBackend(threads=2, cache=DiskCache(tmp_path)) as again:
        ((_, _, code),) = again.compile(ROWS, CONFIG).launched()
        before = telemetry.snapshot().variants_compared
        for _ in range(3):
            assert again.dispatch(ROWS, inputs(), CONFIG)[0].tobytes() == expected()
        assert code.measured == {size: width}
        assert telemetry.snapshot().variants_compared == before


def test_threads_may_dispatch_while_variants_are_compared(tmp_path: Path) -> None:
    with CpuBackend(threads=2, cache=DiskCache(tmp_path)) as on:
        wanted, failures = expected(), list[bytes]()

        def work() -> None:
            given = inputs()
            results = [on.dispatch(ROWS, given, CONFIG)[0].tobytes() for _ in range(150)]
            failures.extend(one for one in results if one != wanted)

        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


@pytest.mark.parametrize("mode", ["off", "model"])
def test_nothing_is_compared_unless_asked_for(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_TUNE", mode)
    with CpuBackend(threads=2, cache=DiskCache(tmp_path)) as on:
        ((_, _, code),) = on.compile(ROWS, CONFIG).launched()
        assert len(code.candidates((47, 1, 1))) == 1
        # The model takes few such invocations one by one.
        assert code.candidates((1, 1, 1)) == ((SCALAR,) if mode == "model" else (on.device.kernels.width,))


def test_a_given_width_is_the_only_candidate(tmp_path: Path) -> None:
    with CpuBackend(threads=2, cache=DiskCache(tmp_path), width=8) as on:
        ((_, _, code),) = on.compile(ROWS, CONFIG).launched()
        assert code.candidates((47, 1, 1)) == code.candidates((1, 1, 1)) == (8,)


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_TUNE", "fast")
    with pytest.raises(BadInputs, match=r"VYRE_TUNE is 'fast'\. Fix: set it to one of off, model, measure"):
        CpuBackend(threads=1)


class Timed(Tuner):
    """A tuner whose launches take times that are told."""

    def __init__(self, times: dict[str, float], fails: bool = False) -> None:
        self.times, self.chosen, self.ran = times, "", list[str]()
        first, *others = times

        def prepare(name: str) -> Callable[[], PreparedLaunch]:
            def made() -> PreparedLaunch:
                if fails:
                    raise KernelCompileFailed("cpu", "injected", "")
                return name  # type: ignore[return-value]  # any launch will do

            return made

        super().__init__(first, [prepare(name) for name in others], self.take)  # type: ignore[arg-type]

    def take(self, launch: PreparedLaunch) -> None:
        self.chosen = str(launch)

    def go(self) -> None:
        deadline = time.monotonic() + 5.0
        while not self.chosen and time.monotonic() < deadline:
            launch = self.next()
            self.ran.append(str(launch))
            self.note(launch, self.times[str(launch)])
            if len(self._samples) == 1:
                time.sleep(0.001)


@pytest.mark.parametrize(
    ("times", "fastest"),
    [({"a": 0.02, "b": 0.01}, "b"), ({"a": 0.01, "b": 0.02}, "a"), ({"a": 0.02, "b": 0.03, "c": 0.01}, "c")],
)
def test_the_fastest_variant_is_chosen(times: dict[str, float], fastest: str) -> None:
    tuner = Timed(times)
    tuner.go()
    assert tuner.chosen == fastest
    assert all(tuner.ran.count(name) <= 4 for name in list(times)[1:])


def test_a_hopeless_variant_runs_once() -> None:
    tuner = Timed({"a": 0.01, "b": 1.0})
    tuner.go()
    assert tuner.chosen == "a"
    assert tuner.ran.count("b") <= 2


def test_threads_choose_once_though_variants_are_left_out_meanwhile() -> None:
    for turn in range(20):
        tuner = Timed({"a": 0.01, "b": 1.0, "c": 2.0, "d": 0.02 if turn % 2 else 0.005})
        chosen: list[str] = []
        tuner._choose = lambda launch, chosen=chosen: chosen.append(str(launch))  # type: ignore[misc]
        failures: list[BaseException] = []

        def work(tuner: Timed = tuner, failures: list[BaseException] = failures) -> None:
            try:
                for _ in range(200):
                    launch = tuner.next()
                    time.sleep(0)
                    tuner.note(launch, tuner.times[str(launch)])
            except BaseException as error:
                failures.append(error)

        threads = [Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        deadline = time.monotonic() + 5.0
        while not chosen and time.monotonic() < deadline:
            work()
        work()
        assert failures == []
        assert chosen == ["d" if turn % 2 == 0 else "a"]


def test_a_process_without_more_threads_keeps_its_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    before = telemetry.snapshot().variants_failed
    monkeypatch.setattr("vyre.backends.cpu.tuning.Thread.start", refuse)
    tuner = Timed({"a": 0.05, "b": 0.01})
    for _ in range(5):
        tuner.note(tuner.next(), 0.05)
    assert (tuner.chosen, telemetry.snapshot().variants_failed) == ("", before + 1)


def test_a_variant_that_does_not_compile_is_left_out() -> None:
    before = telemetry.snapshot().variants_failed
    tuner = Timed({"a": 0.02, "b": 0.01}, fails=True)
    for _ in range(50):
        tuner.note(tuner.next(), 0.02)
        time.sleep(0.001)
    assert (tuner.chosen, telemetry.snapshot().variants_failed) == ("", before + 1)


def test_kernels_that_the_model_knows_are_not_compared(tmp_path: Path) -> None:
    with CpuBackend(threads=2, cache=DiskCache(tmp_path)) as on:
        program = parse("program twice(workgroup 64) { buffer 0 a: u32[] readwrite\n a[gid.x] = a[gid.x] * 2 }")
        plan = on.compile(program)
        on.dispatch(program, [np.ones(4096, np.uint32)])
        schedules = [prepared.single for prepared in plan._prepared.values()]
        assert all(isinstance(one, CpuSchedule) and one._tuner is None for one in schedules)
        ((_, _, code),) = plan.launched()
        assert len(code.candidates((64, 1, 1))) == 1
