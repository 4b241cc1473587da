"""Text rendering of a plan: its segments, the order in which they run, and the state carried between them."""

from __future__ import annotations

from collections.abc import Iterator

from vyre.lower.plan import DONE, GridSyncPlan
from vyre.words import counted


def describe_plan(plan: GridSyncPlan) -> str:
    """Return a plan as text."""
    return "\n".join(_lines(plan)) + "\n"


def _lines(plan: GridSyncPlan) -> Iterator[str]:
    x, y, z = plan.launch.grid
    kind = "straight: each segment is followed by the next" if plan.straight else "driven by its control word"
    yield f"plan of {plan.source.name}: {counted(len(plan.segments), 'segment')}, {kind}"
    yield f"  grid {x} x {y} x {z}, {counted(plan.launch.invocations, 'invocation')}"
    yield ""
    yield "segments"
    for order, segment in enumerate(plan.segments):
        statements = counted(segment.program.stats().statements, "statement")
        yield f"  [{order}] {segment.label}: {statements}"
        if segment.before is not None:
            yield "   |    a copy runs before it"
        if segment.resumes is not None:
            yield f"   |    the host handles the requests of '{segment.resumes}' before it"
        yield f"   +--> {', '.join('end' if to == DONE else f'[{to}]' for to in segment.exits)}"
    yield ""
    if not plan.state:
        yield "carried: nothing"
        return
    total = sum(state.bytes * state.copies for state in plan.state)
    yield f"carried: {total:,} bytes"
    width = max(len(state.name) for state in plan.state)
    for state in plan.state:
        size = f"{state.bytes:,} bytes" + (" twice" if state.copies == 2 else "")
        yield f"  {state.name:<{width}}  {size} (per {state.scope}): {state.what}"
