"""Pending dispatches: handles of dispatches under way, which can be polled, waited for and awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures import TimeoutError as FutureTimeout
from numbers import Real
from typing import Any, Final

import numpy as np

from vyre.arguments import require
from vyre.driver.outputs import OutputBuffers, byte_view
from vyre.errors import Timeout

_MOST_WORKERS: Final = 8

Inputs = Mapping[str, Any] | Sequence[Any]


class PendingDispatch:
    """A dispatch under way; ``result`` and ``await`` raise its exception, if it has one."""

    __slots__ = ("_future",)

    def __init__(self, future: Future[list[memoryview]]) -> None:
        self._future = future

    def done(self) -> bool:
        return self._future.done()

    def result(self, timeout_s: float | None = None) -> list[memoryview]:
        """Wait for the outputs; the dispatch goes on if the time is over first."""
        if timeout_s is not None:
            require(timeout_s, Real, "timeout_s", "give a number of seconds, or leave it out.")
        try:
            return self._future.result(timeout_s)
        except FutureTimeout:
            # A dispatch may itself end with the builtin TimeoutError, which is the same class.
            if self._future.done():
                raise
            raise Timeout(timeout_s or 0.0, "the pending dispatch") from None

    def result_into(self, into: OutputBuffers, timeout_s: float | None = None) -> list[memoryview]:
        """Wait for the outputs and put them into the caller's slots."""
        require(into, OutputBuffers, "into", "give vyre.OutputBuffers().")
        return into.store(self.result(timeout_s))

    def __await__(self) -> Generator[Any, None, list[memoryview]]:
        return asyncio.wrap_future(self._future).__await__()


class Workers:
    """Threads for the submitted dispatches of one backend."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(_MOST_WORKERS, thread_name_prefix=f"vyre-{name}")
        self._under_way: set[Future[list[memoryview]]] = set()

    def start(self, run: Callable[[], list[memoryview]]) -> PendingDispatch:
        future = self._threads.submit(run)
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return PendingDispatch(future)

    def wait(self) -> None:
        """Wait for everything that was started; failures are raised with the results."""
        wait(self._under_way.copy())

    def close(self) -> None:
        self._threads.shutdown(wait=True)


def copied_inputs(inputs: Inputs) -> Inputs:
    """Copy inputs, so that the caller may change its own; anything else stays, for the dispatch to refuse."""
    if isinstance(inputs, Mapping):
        return {name: _copied(data) for name, data in inputs.items()}
    return [_copied(data) for data in inputs] if isinstance(inputs, (list, tuple)) else inputs


def _copied(data: Any) -> Any:
    if isinstance(data, np.ndarray):
        return data.copy()
    try:
        return bytes(byte_view(data))
    except TypeError:
        return data
