"""Ctrl-C ends what the cpu backend runs on the main thread, with one KeyboardInterrupt and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cpu_support import DIRECTORY
from vyre.backends.cpu.interrupts import takes_long
from vyre.ir import parse

SCRIPT = Path(__file__).with_name("interrupt_script.py")
# From the signal to the exception, as the design demands.
SECONDS = 0.3
# How long a launch has run when it is signalled.
AHEAD = 0.1


@contextmanager
def running(*scenario: str) -> Iterator[subprocess.Popen[str]]:
    """A scenario's process, ended in any case."""
    environment = os.environ | {"VYRE_CACHE_DIR": DIRECTORY.name, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *scenario],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        watchdog = threading.Timer(60.0, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def said(scenario: str) -> list[str]:
    """What a scenario says when each of its launches is signalled; an interruption has to come soon after."""
    lines: list[str] = []
    with running(scenario) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        target, sent = process.pid, 0.0
        for line in map(str.strip, process.stdout):
            if line == "go":
                time.sleep(AHEAD)
                sent = time.perf_counter()
                os.kill(target, signal.SIGINT)
                continue
            if line.startswith("child "):
                target = int(line.split()[1])
                continue
            if line == "interrupted":
                assert time.perf_counter() - sent < SECONDS
            lines.append(line)
        errors = process.stderr.read()
        assert process.wait() == 0, errors
    return lines


@pytest.mark.parametrize(
    "scenario",
    [
        "shared", "unshared", "small", "bounded", "timed", "barriers", "small_barriers", "fixpoint", "sequence",
        "reinstalled",
    ],
)  # fmt: skip
def test_an_interrupt_ends_a_run_and_the_backend_stays_usable(scenario: str) -> None:
    assert said(scenario) == ["interrupted", "interrupted", "end"]


def test_a_forked_child_is_interrupted_by_itself() -> None:
    assert said("forked") == ["interrupted", "interrupted", "end"]


def test_a_handler_of_the_programs_own_is_called_and_the_launch_completes() -> None:
    assert said("own_handler") == ["completed", "interrupted", "interrupted", "end"]


def test_a_launch_on_another_thread_is_not_interrupted() -> None:
    assert said("other_thread") == ["main interrupted", "completed", "interrupted", "interrupted", "end"]


def test_a_launch_in_a_coroutine_completes_and_its_task_is_cancelled() -> None:
    assert said("in_asyncio") == ["completed", "run interrupted", "interrupted", "interrupted", "end"]


def test_a_launch_in_a_thread_of_asyncio_completes() -> None:
    assert said("to_thread") == ["completed", "run interrupted", "interrupted", "interrupted", "end"]


def test_a_signal_at_any_moment_is_one_interrupt_and_leaves_nothing_locked() -> None:
    delays = random.Random(7)
    with running("any_moment", "150") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        rounds = 0
        for line in process.stdout:
            if line == "ready\n":
                time.sleep(delays.uniform(0.0, 0.004))
                os.kill(process.pid, signal.SIGINT)
                rounds += 1
        assert process.wait() == 0, process.stderr.read()
    assert rounds == 150


@pytest.mark.parametrize(
    ("body", "invocations", "expected"),
    [
        ("a[0] = 1", 1 << 20, False),
        ("a[0] = 1", (1 << 20) + 1, True),
        ("for k in 0 .. 16 { a[k] = 1 }", 1 << 15, False),
        ("for k in 0 .. 16 { a[k] = 1 }", 1 << 16, True),
        ("for k in 0 .. 1000 { for l in 5 .. 1100 { a[k] = 1 } }", 1, True),
        ("if len(a) > 1 { for k in 0 .. 2000000 { a[k] = 1 } }", 1, True),
        ("for k in 0 .. len(a) { a[k] = 1 }", 1, True),
        ("while a[0] == 0 { a[1] = 1 }", 1, True),
    ],
)
def test_a_launch_takes_long_by_its_loops(body: str, invocations: int, expected: bool) -> None:
    program = parse(f"program p(workgroup 1) {{ buffer 0 a: u32[] readwrite\n {body} }}")
    assert takes_long(invocations, program.entry) is expected
