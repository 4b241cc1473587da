"""When does a repeated run stop? When a pass changed no byte of what it writes, or when it may not run again.

One meaning for every route and backend: buffers persist between passes, outputs are zeroed once before the first, and
the first comparison is with the initial state, so an input that has converged costs one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from vyre.driver import telemetry


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
) -> Passes:
    """Runs passes until one changes nothing; ``snapshot`` copies the bytes of every written buffer.

    Where a single pass may run, it is only compared if asked for: every plain dispatch is such a run.
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

    return run_until(run_pass, is_unchanged, iterations)


def run_until(run_pass: Callable[[], object], is_done: Callable[[], bool], limit: int) -> Passes:
    """Runs passes, at most ``limit``, until ``is_done`` says after one that it was the last."""
    passes, converged = 0, False
    while passes < limit and not converged:
        run_pass()
        passes += 1
        converged = is_done()
    telemetry.count(fixpoint_runs=1, fixpoint_passes=passes, fixpoint_converged=int(converged))
    return Passes(passes, converged)
