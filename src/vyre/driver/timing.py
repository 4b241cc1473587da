"""Timings: host time always, device time where the device measures it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec


class Timing(msgspec.Struct, frozen=True):
    """Nanoseconds; None where nothing was measured."""

    wall_ns: int = 0
    device_ns: int | None = None
    enqueue_ns: int | None = None
    wait_ns: int | None = None


class TimedResult(msgspec.Struct, frozen=True):
    """The outputs of a dispatch, its times, its passes and, where more could run, whether it converged."""

    outputs: list[memoryview]
    wall_ns: int
    device_ns: int | None = None
    enqueue_ns: int | None = None
    wait_ns: int | None = None
    passes: int | None = 1
    converged: bool | None = None


NO_TIME: Final = Timing(0, 0, 0, 0)


def add_timings(timings: Iterable[Timing | TimedResult]) -> Timing:
    """Return the sum; a part that was not measured makes that sum unknown."""
    wall = 0
    device: int | None = 0
    enqueue: int | None = 0
    wait: int | None = 0
    for part in timings:
        wall += part.wall_ns
        device = None if device is None or part.device_ns is None else device + part.device_ns
        enqueue = None if enqueue is None or part.enqueue_ns is None else enqueue + part.enqueue_ns
        wait = None if wait is None or part.wait_ns is None else wait + part.wait_ns
    return Timing(wall, device, enqueue, wait)
