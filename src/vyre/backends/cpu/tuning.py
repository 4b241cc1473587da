"""Tuning: choose between code variants of a kernel by the time real launches take.

Every variant of a kernel gives the same bytes, so a launch may run any of them. A static model chooses the first. Only
for kernels whose lanes leave loops at different times and go through memory each in its own way does the model not
know whether vectors or scalar code are faster: that depends on the data. When such a kernel has run for some tens of
milliseconds, its alternatives are compiled by a thread of their own; then a few launches run each variant in turn, and
the fastest is kept, in memory and on disk for launches of about that size. Each launch runs once, and no caller waits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from threading import Lock, Thread
from typing import Final

from vyre.backends.cpu.launches import PreparedLaunch
from vyre.driver import telemetry

# The time that a kernel has run before its alternatives are compiled.
_WARM_SECONDS: Final = 0.03
# The launches that each variant is measured with, the first of which warms up.
_SAMPLES: Final = 4
# An alternative that is so much slower at first is not measured further.
_HOPELESS: Final = 3.0


class Tuner:
    """Compares the variants of one prepared launch; any threads may launch meanwhile."""

    def __init__(
        self,
        launch: PreparedLaunch,
        alternatives: Sequence[Callable[[], PreparedLaunch]],
        choose: Callable[[PreparedLaunch], None],
    ) -> None:
        """``alternatives`` prepare the other variants; ``choose`` is called with the fastest, once."""
        self._samples: dict[PreparedLaunch, list[float]] = {launch: []}
        self._first = launch
        self._alternatives = alternatives
        self._choose = choose
        self._seconds = 0.0
        self._is_compiling = self._is_done = False
        self._lock = Lock()

    def next(self) -> PreparedLaunch:
        """Return the variant that the next launch should run: the one with the fewest samples."""
        with self._lock:
            return min(self._samples, key=lambda launch: len(self._samples[launch]))

    def note(self, launch: PreparedLaunch, seconds: float) -> None:
        """Take the time of a launch, and go on to the next phase if there are enough."""
        with self._lock:
            if not self._is_compiling:
                self._seconds += seconds
                if self._seconds >= _WARM_SECONDS:
                    self._is_compiling = True
                    self._start()
                return
            # A variant may have been left out while it ran.
            if self._is_done or len(self._samples) == 1 or launch not in self._samples:
                return
            fastest = self._compare(launch, seconds)
            self._is_done = fastest is not None
        if fastest is not None:
            telemetry.count(variants_compared=1)
            self._choose(fastest)

    def _compare(self, launch: PreparedLaunch, seconds: float) -> PreparedLaunch | None:
        """Add a sample; return the fastest variant when there are enough."""
        samples = self._samples
        samples[launch].append(seconds)
        first = samples[self._first]
        if launch is not self._first and len(first) > 1 and seconds > _HOPELESS * min(first):
            del samples[launch]
        if len(samples) > 1 and any(len(taken) < _SAMPLES for taken in samples.values()):
            return None
        return min(samples, key=lambda one: min(samples[one][1:], default=inf))

    def _start(self) -> None:
        try:
            Thread(target=self._prepare, name="vyre-tuning").start()
        except RuntimeError:
            # The process has no more threads, or ends: the launch stays as it is.
            telemetry.count(variants_failed=1)

    def _prepare(self) -> None:
        """Compile the alternatives; a failure leaves the launch as it is."""
        try:
            made = [prepare() for prepare in self._alternatives]
        except Exception:
            telemetry.count(variants_failed=1)
            return
        with self._lock:
            self._samples = {self._first: [], **{one: [] for one in made}}
