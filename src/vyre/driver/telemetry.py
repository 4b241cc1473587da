"""What has been done so far? Counters of the process, for people and for Prometheus.

Counting can be switched off (``disable``, or ``VYRE_TELEMETRY=0``); it then costs one comparison.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from threading import Lock
from typing import Annotated, Final, get_type_hints

import msgspec


class Snapshot(msgspec.Struct, frozen=True):
    """The counters at one moment, each with its meaning."""

    launches: Annotated[int, "programs run, each launch of a cut program included"]
    input_bytes: Annotated[int, "bytes given to launches"]
    output_bytes: Annotated[int, "bytes given back by launches"]
    output_slots: Annotated[int, "output slots filled"]
    output_slots_reused: Annotated[int, "output slots whose memory was used again"]
    output_slots_moved: Annotated[int, "output slots whose memory was replaced by a larger one"]
    output_slots_appended: Annotated[int, "output slots that were new"]
    grid_sync_splits: Annotated[int, "runs of a program cut at its grid barriers"]
    grid_sync_segments: Annotated[int, "segments launched for cut programs"]
    grid_sync_points: Annotated[int, "grid barriers passed between segments"]
    route_plain: Annotated[int, "runs without a grid barrier"]
    route_native: Annotated[int, "runs with grid barriers on the device itself"]
    route_resident: Annotated[int, "runs as segments on resident buffers"]
    route_host: Annotated[int, "runs as segments through the host"]
    compile_hits: Annotated[int, "compilations answered by a cache"]
    compile_misses: Annotated[int, "compilations done"]
    fixpoint_runs: Annotated[int, "runs repeated towards a fixpoint"]
    fixpoint_passes: Annotated[int, "passes of those runs"]
    fixpoint_converged: Annotated[int, "of those runs, the ones that stopped changing"]
    sequence_runs: Annotated[int, "resident sequences run"]
    sequence_steps: Annotated[int, "steps of those sequences"]
    resident_buffers: Annotated[int, "resident buffers that exist now"]
    resident_bytes: Annotated[int, "bytes of resident buffers that exist now"]
    resident_bytes_peak: Annotated[int, "the most bytes that resident buffers had at once"]
    cache_errors: Annotated[int, "failures of the disk cache that were worked around"]


HELP: Final = {name: hint.__metadata__[0] for name, hint in get_type_hints(Snapshot, include_extras=True).items()}
_GAUGES: Final = ("resident_buffers", "resident_bytes", "resident_bytes_peak")

_lock = Lock()
_counters: dict[str, int] = dict.fromkeys(HELP, 0)
_enabled = os.environ.get("VYRE_TELEMETRY", "1") != "0"


def enable() -> None:
    global _enabled
    _enabled = True


def disable() -> None:
    """Stops counting; resident buffers are still counted, because they must come back to zero."""
    global _enabled
    _enabled = False


def count(**amounts: int) -> None:
    """Adds to the named counters, together."""
    if _enabled:
        with _lock:
            for name, amount in amounts.items():
                _counters[name] += amount


def count_launch(input_bytes: int, outputs: Iterable[memoryview] = ()) -> None:
    """Counts one launch, the bytes it took and those it gave."""
    if _enabled:
        output_bytes = sum(map(len, outputs))
        with _lock:
            _counters["launches"] += 1
            _counters["input_bytes"] += input_bytes
            _counters["output_bytes"] += output_bytes


def count_slots(reused: int, moved: int, appended: int) -> None:
    """Counts output slots that were filled, by what became of their memory."""
    if _enabled:
        with _lock:
            _counters["output_slots"] += reused + moved + appended
            _counters["output_slots_reused"] += reused
            if moved or appended:
                _counters["output_slots_moved"] += moved
                _counters["output_slots_appended"] += appended


def count_resident(buffers: int, byte_count: int) -> None:
    """Counts resident buffers that came (or, negative, went)."""
    with _lock:
        _counters["resident_buffers"] += buffers
        now = _counters["resident_bytes"] = _counters["resident_bytes"] + byte_count
        if now > _counters["resident_bytes_peak"]:
            _counters["resident_bytes_peak"] = now


def snapshot() -> Snapshot:
    """All counters as they are now."""
    with _lock:
        return Snapshot(**_counters)


def reset() -> None:
    """Sets every counter to zero, but for what exists now; the peak starts again from there."""
    with _lock:
        for name in _counters:
            if name not in _GAUGES:
                _counters[name] = 0
        _counters["resident_bytes_peak"] = _counters["resident_bytes"]


def prometheus() -> str:
    """The counters in Prometheus' text format."""
    values = msgspec.structs.asdict(snapshot())
    lines = []
    for name, text in HELP.items():
        is_gauge = name in _GAUGES
        metric = f"vyre_{name}" if is_gauge else f"vyre_{name}_total"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {'gauge' if is_gauge else 'counter'}"]
        lines.append(f"{metric} {values[name]}")
    return "\n".join(lines) + "\n"
