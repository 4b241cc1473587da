"""Counters count, can be read by people and by Prometheus, and can be switched off."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import msgspec
import numpy as np
import pytest

from backends_for_tests import double, increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import telemetry


@pytest.fixture
def clean() -> Iterator[None]:
    telemetry.reset()
    yield
    telemetry.enable()


@pytest.mark.usefixtures("clean")
def test_launches_and_bytes_are_counted() -> None:
    backend = ReferenceBackend()
    backend.dispatch(double(), [np.arange(3, dtype=np.uint32)])
    backend.dispatch(increment(), [np.arange(2, dtype=np.uint32)])
    counted = telemetry.snapshot()
    assert (counted.launches, counted.input_bytes, counted.output_bytes) == (2, 20, 20)


@pytest.mark.usefixtures("clean")
def test_counting_can_be_switched_off() -> None:
    telemetry.disable()
    ReferenceBackend().dispatch(double(), [np.arange(3, dtype=np.uint32)])
    telemetry.count(compile_hits=3)
    assert telemetry.snapshot().launches == 0
    assert telemetry.snapshot().compile_hits == 0
    telemetry.enable()
    telemetry.count(compile_hits=3, compile_misses=1)
    assert (telemetry.snapshot().compile_hits, telemetry.snapshot().compile_misses) == (3, 1)


@pytest.mark.usefixtures("clean")
def test_resident_buffers_are_counted_even_then() -> None:
    before = telemetry.snapshot().resident_bytes
    backend = ReferenceBackend()
    telemetry.disable()
    buffer = backend.allocate(10)
    telemetry.enable()
    assert telemetry.snapshot().resident_bytes == before + 10
    backend.free(buffer)
    telemetry.reset()
    assert telemetry.snapshot().resident_bytes == telemetry.snapshot().resident_bytes_peak == before


@pytest.mark.usefixtures("clean")
def test_threads_lose_no_count() -> None:
    def count() -> None:
        for _ in range(2000):
            telemetry.count_launch(1, [memoryview(b"ab")])

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counted = telemetry.snapshot()
    assert (counted.launches, counted.input_bytes, counted.output_bytes) == (16000, 16000, 32000)


@pytest.mark.usefixtures("clean")
def test_prometheus_gets_every_counter_with_its_help_and_type() -> None:
    telemetry.count(compile_hits=5)
    lines = telemetry.prometheus().splitlines()
    assert "# TYPE vyre_compile_hits_total counter" in lines
    assert "vyre_compile_hits_total 5" in lines
    assert "# TYPE vyre_resident_bytes gauge" in lines
    fields = {field.name for field in msgspec.structs.fields(telemetry.Snapshot)}
    assert "# HELP vyre_launches_total programs run, each launch of a cut program included" in lines
    assert sum(line.startswith("# HELP ") for line in lines) == len(fields)
    values = [line for line in lines if not line.startswith("#")]
    assert all(line.startswith("vyre_") and line.rpartition(" ")[2].isdigit() for line in values)
