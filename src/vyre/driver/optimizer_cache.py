"""Optimizer results: each program is optimized once in a process, and once on a machine.

Results are looked up by what decides them: the exact program, the switches, and the optimizer itself. A second process
that runs the same program reads the result from disk and imports no optimizer.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from vyre.driver import telemetry, trace
from vyre.driver.cache import DiskCache, default_cache_directory, source_state
from vyre.driver.memory_cache import MemoryCache
from vyre.errors import DispatchFailed, VyreError, WireError
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.optimizer.report import Report
from vyre.optimizer.switches import Optimization

_MOST_KEPT: Final = 256


class Optimized(msgspec.Struct, frozen=True, eq=False):
    """A program to run, and the report of how it was optimized; no report if it is the original."""

    program: Program
    report: Report | None = None


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """An entry on disk; without an image, the program is unchanged."""

    image: bytes | None
    report: Report


_known: Final[MemoryCache[Optimized]] = MemoryCache(_MOST_KEPT)


def optimized(program: Program, switches: Optimization, cache: DiskCache | None = None) -> Optimized:
    """Return the program to run in place of a legal one without calls; results are kept in ``cache``."""
    if not switches.program:
        return Optimized(program)
    try:
        return _looked_up(program, switches, cache) if switches.keep else _made(program, switches, cache)
    except Exception as error:
        if switches.on_failure == "original":
            telemetry.count(optimizer_failures=1)
            return Optimized(program)
        reason = str(error) if isinstance(error, VyreError) else f"{type(error).__name__}: {error}."
        raise DispatchFailed(
            f"optimizing '{program.name}' failed. {reason}",
            "run it unoptimized with DispatchConfig(optimize=False), or fall back to that automatically with "
            'optimize=Optimization(on_failure="original").',
            code="optimizer-failed",
        ) from error


def _looked_up(program: Program, switches: Optimization, cache: DiskCache | None) -> Optimized:
    parts = (program.fingerprint(), switches.bits, source_state("optimizer", "analyze", "semantics", "ir"))
    key = blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
    found = _known.get(key)
    if found is not None:
        return _hit(found, "memory")
    disk = _disk(default_cache_directory()) if cache is None else cache
    body = disk.get(key)
    stored = None if body is None else _read(program, body)
    if stored is not None:
        _known.put(key, stored)
        return _hit(stored, "disk")
    made = _made(program, switches, cache)
    assert made.report is not None  # it was made now
    _known.put(key, made)
    disk.put(
        key, msgspec.msgpack.encode(_Stored(None if made.program is program else encode(made.program), made.report))
    )
    return made


def _hit(found: Optimized, where: str) -> Optimized:
    assert found.report is not None  # only what was made is kept
    telemetry.count(optimizer_hits=1)
    return Optimized(found.program, msgspec.structs.replace(found.report, cached=where))


def _read(program: Program, body: bytes) -> Optimized | None:
    """Decode an entry; None if another version wrote it."""
    try:
        stored = msgspec.msgpack.decode(body, type=_Stored)
        return Optimized(program if stored.image is None else decode(stored.image), stored.report)
    except (msgspec.DecodeError, WireError):
        telemetry.count(cache_errors=1)
        return None


def _made(program: Program, switches: Optimization, cache: DiskCache | None) -> Optimized:
    from vyre.driver.optimizing import default_dispatcher
    from vyre.optimizer.pipeline import optimize_with

    tracer = trace.active

    def record(stage: str, start_ns: int, stop_ns: int) -> None:
        if tracer is not None:
            tracer.event(stage, "optimizer", start_ns, stop_ns, {"program": program.name})

    with telemetry.uncounted(), trace.span("optimize", "optimizer", program=program.name):
        better, report = optimize_with(
            program,
            default_dispatcher(cache),
            groups=switches.bits,
            checked=True,
            keep_geometry=True,
            one_axis=True,
            on_stage=record,
        )
    telemetry.count(
        optimizer_runs=1,
        optimizer_rows_before=report.rows_before,
        optimizer_rows_after=report.rows_after,
        optimizer_rewrites=sum(report.fired.values()),
        optimizer_synchronisations=report.synchronisations,
    )
    # The original object is returned if nothing changed, since facts and code are cached by it.
    return Optimized(program if better == program else better, report)


@cache
def _disk(directory: Path) -> DiskCache:
    return DiskCache(directory)
