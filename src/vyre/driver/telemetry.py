"""Telemetry: counters of the process, as a record and in the Prometheus text format.

Counting can be switched off (``disable``, or ``VYRE_TELEMETRY=0``); it then costs one comparison.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
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
    grid_sync_decisions: Annotated[int, "times that the host was asked which segment is next, or whether all have run"]
    route_plain: Annotated[int, "runs without a grid barrier"]
    route_native: Annotated[int, "runs with grid barriers on the device itself"]
    route_resident: Annotated[int, "runs as segments on resident buffers"]
    route_host: Annotated[int, "runs as segments through the host"]
    compile_hits: Annotated[int, "compilations answered by a cache"]
    compile_misses: Annotated[int, "compilations done"]
    variants_compared: Annotated[int, "launches whose code variants were compared by their times"]
    variants_failed: Annotated[int, "launches whose alternative code could not be compiled"]
    optimizer_runs: Annotated[int, "programs optimized"]
    optimizer_hits: Annotated[int, "programs whose optimized form was in a cache"]
    optimizer_failures: Annotated[int, "programs run unoptimized because optimizing failed"]
    optimizer_rows_before: Annotated[int, "values and statements of programs before they were optimized"]
    optimizer_rows_after: Annotated[int, "of those, the ones that were needed after"]
    optimizer_rewrites: Annotated[int, "rules of the optimizer that fired"]
    optimizer_synchronisations: Annotated[int, "times that the host waited for the optimizer's programs"]
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
_launches: list[tuple[int, ...]] = []
_slots: list[tuple[int, ...]] = []
_NOTED: Final = (
    (("launches", "input_bytes", "output_bytes"), _launches),
    (("output_slots", "output_slots_reused", "output_slots_moved", "output_slots_appended"), _slots),
)
_MOST_NOTES: Final = 256
_uncounted: set[int] = set()
_enabled = os.environ.get("VYRE_TELEMETRY", "1") != "0"


def enable() -> None:
    global _enabled
    _enabled = True


def disable() -> None:
    """Stop counting; resident buffers are still counted, because they must come back to zero."""
    global _enabled
    _enabled = False


@contextmanager
def uncounted() -> Iterator[None]:
    """Count nothing that this thread does in the block: work of the package itself, not of its caller."""
    thread = get_ident()
    _uncounted.add(thread)
    try:
        yield
    finally:
        _uncounted.discard(thread)


def _is_counted() -> bool:
    return not _uncounted or get_ident() not in _uncounted


def count(**amounts: int) -> None:
    """Add to the named counters in one step."""
    if _enabled and _is_counted():
        with _lock:
            for name, amount in amounts.items():
                _counters[name] += amount


def count_launch(input_bytes: int, outputs: Iterable[memoryview] = (), launches: int = 1) -> None:
    """Count the launches of one dispatch, the bytes it took and those it gave."""
    if _enabled and (not _uncounted or _is_counted()):
        _note(_launches, (launches, input_bytes, sum(map(len, outputs)) if outputs else 0))


def count_slots(reused: int, moved: int, appended: int) -> None:
    """Count output slots that were filled, by what became of their memory."""
    if _enabled and _is_counted():
        _note(_slots, (reused + moved + appended, reused, moved, appended))


def _note(notes: list[tuple[int, ...]], amounts: tuple[int, ...]) -> None:
    """Note what happens at every launch without a lock; notes are added up when there are many."""
    notes.append(amounts)
    if len(notes) >= _MOST_NOTES:
        with _lock:
            _add_up()


def _add_up() -> None:
    """Add the notes to the counters. The lock is held, but other threads may add notes meanwhile."""
    for names, notes in _NOTED:
        many = len(notes)
        for name, amounts in zip(names, zip(*notes[:many], strict=True), strict=False):
            _counters[name] += sum(amounts)
        del notes[:many]


def count_resident(buffers: int, byte_count: int) -> None:
    """Count resident buffers that were allocated, or, with negative numbers, freed."""
    if not _is_counted():
        return
    with _lock:
        _counters["resident_buffers"] += buffers
        now = _counters["resident_bytes"] = _counters["resident_bytes"] + byte_count
        if now > _counters["resident_bytes_peak"]:
            _counters["resident_bytes_peak"] = now


def snapshot() -> Snapshot:
    """Return all counters."""
    with _lock:
        _add_up()
        return Snapshot(**_counters)


def reset() -> None:
    """Set every counter to zero, except those of what exists now; the peak restarts from there."""
    with _lock:
        _add_up()
        for name in _counters:
            if name not in _GAUGES:
                _counters[name] = 0
        _counters["resident_bytes_peak"] = _counters["resident_bytes"]


def prometheus() -> str:
    """Return the counters in the Prometheus text format."""
    values = msgspec.structs.asdict(snapshot())
    lines = []
    for name, text in HELP.items():
        is_gauge = name in _GAUGES
        metric = f"vyre_{name}" if is_gauge else f"vyre_{name}_total"
        lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {'gauge' if is_gauge else 'counter'}"]
        lines.append(f"{metric} {values[name]}")
    return "\n".join(lines) + "\n"
