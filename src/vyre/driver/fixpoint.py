"""When does a repeated run stop? When a pass changed no byte of what it writes, or when it may not run again.

One meaning for every route and backend: buffers persist between passes, outputs are zeroed once before the first, and
the first comparison is with the initial state, so an input that has converged costs one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter

import msgspec

from vyre.driver import telemetry
from vyre.errors import Timeout


class Passes(msgspec.Struct, frozen=True):
    """How many passes ran; ``converged`` is None where nobody looked, because only one could run."""

    passes: int
    converged: bool | None


def run_to_fixpoint(
    run_pass: Callable[[], object],
    snapshot: Callable[[], Sequence[bytes]],
    iterations: int,
    *,
    compare_single: bool = False,
    timeout_s: float | None = None,
) -> Passes:
    """Runs passes until one changes nothing; ``snapshot`` copies the bytes of every written buffer.

    Where a single pass may run, it is only compared if asked for: every plain dispatch is such a run. No pass begins
    after the time for all of them.
    """
    if iterations == 1 and not compare_single:
        run_pass()
        return Passes(1, None)
    before = list(snapshot())

    def is_unchanged() -> bool:
        nonlocal before
        after = list(snapshot())
        unchanged = after == before
        before = after
        return unchanged

    return run_until(run_pass, is_unchanged, iterations, timeout_s)


def run_until(
    run_pass: Callable[[], object], is_done: Callable[[], bool], limit: int, timeout_s: float | None = None
) -> Passes:
    """Runs passes, at most ``limit``, until ``is_done`` says after one that it was the last."""
    passes, converged = 0, False
    deadline = None if timeout_s is None else perf_counter() + timeout_s
    while passes < limit and not converged:
        if deadline is not None and perf_counter() > deadline:
            raise Timeout(timeout_s or 0.0)
        run_pass()
        passes += 1
        converged = is_done()
    ran = Passes(passes, converged)
    count_passes(ran)
    return ran


def count_passes(ran: Passes) -> None:
    """Counts a run towards a fixpoint."""
    telemetry.count(fixpoint_runs=1, fixpoint_passes=ran.passes, fixpoint_converged=int(ran.converged is True))
