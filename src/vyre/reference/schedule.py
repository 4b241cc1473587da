"""In which order do invocations run? Any order between barriers is legal; a schedule is one of them.

In order and reversed run an invocation until it has to wait. A seeded schedule keeps many invocations of several
workgroups under way and switches between them, at random, before any memory access.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from random import Random
from typing import Final, Protocol, TypeVar

import msgspec


class Order(Enum):
    """The families of schedules."""

    IN_ORDER = "in order"
    REVERSED = "reversed"
    SEEDED = "seeded"


class Schedule(msgspec.Struct, frozen=True):
    """An order in which runnable invocations are picked; the seed is for seeded ones."""

    order: Order = Order.IN_ORDER
    seed: int = 0

    @property
    def switches(self) -> bool:
        """Whether invocations give way before memory accesses."""
        return self.order is Order.SEEDED

    def __str__(self) -> str:
        return f"seeded({self.seed})" if self.switches else self.order.value


IN_ORDER: Final = Schedule()
REVERSED: Final = Schedule(Order.REVERSED)

_UNDER_WAY: Final = 64
_SWITCH_CHANCE: Final = 0.5


def seeded(seed: int) -> Schedule:
    """A random schedule, the same for the same seed."""
    return Schedule(Order.SEEDED, seed)


class _Numbered(Protocol):
    linear: int


Runner = TypeVar("Runner", bound=_Numbered)


class Queue(list[Runner]):
    """The runnable invocations, and the order of the workgroups that have not started."""

    def __init__(self, schedule: Schedule, groups: int) -> None:
        super().__init__()
        self._random = Random(schedule.seed)
        self._is_random = schedule.switches
        self._enough = _UNDER_WAY if schedule.switches else 1
        # Taken from the end, so that the first to run comes last.
        self._is_ascending = schedule.order is Order.REVERSED
        numbers: Sequence[int] = range(groups)
        if self._is_random:
            numbers = list(numbers)
            self._random.shuffle(numbers)
        self.groups = iter(numbers if not self._is_ascending else reversed(numbers))

    @property
    def is_short(self) -> bool:
        """Whether another workgroup should be started."""
        return len(self) < self._enough

    def add(self, runners: Iterable[Runner]) -> None:
        self.extend(sorted(runners, key=_linear, reverse=not self._is_ascending))

    def take(self) -> Runner:
        """Picks who runs next."""
        if self._is_random:
            at = int(self._random.random() * len(self))
            self[at], self[-1] = self[-1], self[at]
        return self.pop()

    def gives_way(self) -> bool:
        """Whether an invocation that could go on gives way instead."""
        return self._random.random() < _SWITCH_CHANCE


def _linear(runner: _Numbered) -> int:
    return runner.linear
