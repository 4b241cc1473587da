"""Trap service: hand the requests of invocations that wait at a trap to the caller's handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from vyre.driver.config import DispatchConfig
from vyre.errors import BadInputs, TrapRaised
from vyre.ir.binding import Array
from vyre.ir.traps import TrapRequest
from vyre.lower.grid_state import FIRST_PARKED, Parking
from vyre.lower.plan import DONE
from vyre.lower.schedule import Part


class TrapMemory(Protocol):
    """The memory of a program some of whose invocations wait for the host."""

    def rows(self, start: int, count: int) -> list[int]:
        """Some words of the rows of the invocations."""
        ...

    def arrays(self) -> dict[str, Array]:
        """Copies of the program's own buffers."""
        ...

    def put_back(self, arrays: Mapping[str, Array]) -> None:
        """Replace the program's own buffers."""
        ...


def answer_traps(part: Part, memory: TrapMemory, config: DispatchConfig, following: int) -> tuple[int, bool]:
    """Handle the requests that the next segment waits for; return its number, and whether requests remain.

    A request that no handler takes is an unhandled trap: the first, by invocation, is raised.
    """
    handlers = config.handlers or {}
    requests = _requests(part, memory)
    lost = [one for parking, asked in requests.items() if not _has_handler(parking, handlers) for one in asked]
    if lost:
        first = min(lost)
        raise TrapRaised(first.tag, first.address, first.invocation)
    waiting = {parking.resume: asked for parking, asked in requests.items() if parking.resume is not None}
    if following == DONE and waiting:
        following = min(waiting)
    answered = waiting.pop(following, None)
    if answered is not None:
        arrays = memory.arrays()
        given = dict(arrays)
        tag = answered[0].tag
        handlers[tag](answered, given)
        memory.put_back({name: _left_by(tag, name, array, given.get(name)) for name, array in arrays.items()})
    return following, bool(waiting)


def _has_handler(parking: Parking, handlers: Mapping[str, Any]) -> bool:
    return parking.resume is not None and parking.tag in handlers


def _requests(part: Part, memory: TrapMemory) -> dict[Parking, list[TrapRequest]]:
    """The requests of waiting invocations, in the order of the invocations."""
    count = part.plan.launch.invocations
    found: dict[Parking, list[TrapRequest]] = {}
    states, addresses = memory.rows(0, count), memory.rows(count, count)
    for invocation, state in enumerate(states):
        if state >= FIRST_PARKED:
            parking = part.plan.parkings[state - FIRST_PARKED]
            found.setdefault(parking, []).append(TrapRequest(invocation, parking.tag, addresses[invocation]))
    return found


def _left_by(tag: str, name: str, array: Array, left: object) -> Array:
    """The array that a handler left for a buffer: the one it was given, or another of its type and length."""
    if not isinstance(left, np.ndarray) or left.dtype != array.dtype or left.shape != array.shape:
        raise BadInputs(
            f"the handler of '{tag}' left no {array.dtype} array of {len(array)} elements for '{name}'.",
            "change the arrays in place.",
            buffer=name,
        )
    return np.ascontiguousarray(left)
