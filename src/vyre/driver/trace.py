"""Traces: events in a JSON file that Perfetto and Chrome show.

The file is valid JSON after every event: each is written over the closing bracket, which it brings again. So a
process that dies leaves a trace that opens. Without a trace, ``active`` is None: one comparison for each event.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Lock, get_ident
from time import perf_counter_ns
from typing import Any, Final

import msgspec

from vyre.arguments import require
from vyre.errors import BadInputs

_HEAD: Final = b'{"displayTimeUnit": "ns", "traceEvents": [\n'
_TAIL: Final = b"\n]}\n"
_NOTHING: Final = nullcontext()


class Tracer:
    """An open trace file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        require(path, str | os.PathLike, "the name of the trace", "give the path of a file, as a text or a Path.")
        self.path = Path(path)
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        except OSError as error:
            raise BadInputs(
                f"the trace '{self.path}' cannot be written: {error.strerror}.",
                "give a file in a directory that exists and can be written (vyre.trace(path), VYRE_TRACE).",
            ) from error
        self._lock = Lock()
        self._encode = msgspec.json.Encoder().encode
        self._process = os.getpid()
        os.pwrite(self._file, _HEAD, 0)
        self._end = len(_HEAD)
        self._separator = b""
        self._write({"ph": "M", "name": "process_name", "pid": self._process, "tid": 0, "args": {"name": "vyre"}})

    def event(self, name: str, category: str, start_ns: int, stop_ns: int, args: dict[str, Any] | None = None) -> None:
        """Record a span from start to stop, both by ``perf_counter_ns``."""
        record = {
            "ph": "X",
            "name": name,
            "cat": category,
            "ts": start_ns / 1000,
            "dur": (stop_ns - start_ns) / 1000,
            "pid": self._process,
            "tid": get_ident(),
        }
        self._write(record | {"args": args} if args else record)

    def _write(self, record: dict[str, Any]) -> None:
        data = self._separator + self._encode(record)
        with self._lock:
            if self._file < 0 or os.getpid() != self._process:
                return
            os.pwrite(self._file, data + _TAIL, self._end)
            self._end += len(data)
            self._separator = b",\n"

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


active: Tracer | None = None


@contextmanager
def trace(path: str | os.PathLike[str]) -> Iterator[Tracer]:
    """Write every event until the end of the block to a file; an outer trace pauses meanwhile."""
    global active
    outer, active = active, Tracer(path)
    tracer = active
    try:
        yield tracer
    finally:
        active = outer
        tracer.close()


def span(name: str, category: str, **args: Any) -> AbstractContextManager[None]:
    """Return a context manager that records a span; it does nothing while no trace is open."""
    tracer = active
    return _NOTHING if tracer is None else _recorded(tracer, name, category, args)


@contextmanager
def _recorded(tracer: Tracer, name: str, category: str, args: dict[str, Any]) -> Iterator[None]:
    start = perf_counter_ns()
    try:
        yield
    except BaseException as error:
        args["error"] = type(error).__name__
        raise
    finally:
        tracer.event(name, category, start, perf_counter_ns(), args)


def start_from_environment() -> None:
    """Begins the trace that ``VYRE_TRACE`` names, for the rest of the process, which alone may write that file."""
    global active
    path = os.environ.pop("VYRE_TRACE", None)
    if path:
        active = Tracer(path)
