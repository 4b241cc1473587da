"""Traces are JSON that Perfetto opens, whatever happens to the process that writes them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends_for_tests import double, increment
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Step, trace
from vyre.errors import BadInputs


def events(path: Path) -> list[dict[str, Any]]:
    return [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]


def test_events_of_a_run_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    backend = ReferenceBackend()
    with trace.trace(path):
        backend.dispatch(double(name="twice"), [np.arange(3, dtype=np.uint32)])
        x = backend.allocate(8)
        backend.upload(x, bytes(8))
        backend.run_sequence([Step(increment(), [x])], reads=[x])
    backend.upload(x, bytes(8))
    recorded = events(path)
    dispatch = ["compile", "upload", "launch", "download"]
    run = ["upload", "compile", "launch", "download", "sequence"]
    assert [event["name"] for event in recorded] == [*dispatch, *run]
    assert recorded[2]["args"] == {"program": "twice", "grid": [1, 1, 1]}
    assert [event["args"]["bytes"] for event in recorded if event["name"] == "download"] == [12, 8]
    assert {event["cat"] for event in recorded} == {"reference"}
    for event in recorded:
        assert event["dur"] >= 0
        assert {"ts", "pid", "tid", "cat"} <= event.keys()
    # A sequence is over after what it runs.
    *inner, sequence = recorded
    assert [event["ts"] for event in inner] == sorted(event["ts"] for event in inner)
    for event in inner[-2:]:
        assert sequence["ts"] <= event["ts"] <= event["ts"] + event["dur"] <= sequence["ts"] + sequence["dur"]


def test_the_file_is_whole_after_every_event(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with trace.trace(path) as tracer:
        assert events(path) == []
        for number in range(3):
            tracer.event(f"e{number}", "test", 0, 1)
            assert [event["name"] for event in events(path)] == [f"e{k}" for k in range(number + 1)]


def test_an_exception_ends_the_trace_well_and_is_told_in_it(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with pytest.raises(KeyError), trace.trace(path), trace.span("work", "test", size=3):
        raise KeyError("inside")
    assert trace.active is None
    assert events(path)[0]["args"] == {"size": 3, "error": "KeyError"}


def test_a_trace_inside_a_trace_takes_over_for_its_time(tmp_path: Path) -> None:
    with trace.trace(tmp_path / "outer.json"):
        with trace.span("first", "test"):
            pass
        with trace.trace(tmp_path / "inner.json"), trace.span("second", "test"):
            pass
        with trace.span("third", "test"):
            pass
    assert [e["name"] for e in events(tmp_path / "outer.json")] == ["first", "third"]
    assert [e["name"] for e in events(tmp_path / "inner.json")] == ["second"]


def test_threads_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"

    def work() -> None:
        for _ in range(50):
            with trace.span("work", "test"):
                pass

    with trace.trace(path):
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(events(path)) == 400


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputs, match="cannot be written"), trace.trace(tmp_path / "no" / "such.json"):
        pass
    assert trace.active is None


CHILD = """
import sys, time
from vyre.driver import trace
with trace.span("before", "test"):
    pass
if sys.argv[1] == "raise":
    raise RuntimeError("dies")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("end", ["raise", "kill"])
def test_the_environment_starts_a_trace_that_survives_the_process(tmp_path: Path, end: str) -> None:
    path = tmp_path / "out.json"
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, end],
        env={**os.environ, "VYRE_TRACE": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert child.stdout is not None
    with child.stdout:
        if end == "kill":
            assert child.stdout.readline() == b"ready\n"
            child.send_signal(signal.SIGKILL)
        assert child.wait(30) != 0
    assert [event["name"] for event in events(path)] == ["before"]


def test_a_forked_child_leaves_its_parents_trace_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with trace.trace(path) as tracer:
        process = os.getpid()
        tracer._process = process + 1  # as a child would see it
        tracer.event("of the child", "test", 0, 1)
        tracer._process = process
        tracer.event("of the parent", "test", 0, 1)
    assert [event["name"] for event in events(path)] == ["of the parent"]


def test_off_a_span_is_made_once_and_does_nothing() -> None:
    assert trace.active is None
    first = trace.span("work", "test", size=1)
    assert trace.span("other", "test") is first
    with first, first:
        pass
