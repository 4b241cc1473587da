"""What must a program compute? The interpreter that defines it, its schedules and its race detector.

``run`` gives the outputs under one schedule; ``explore`` tries several and says whether the result depends on them.
"""

from vyre.ir.traps import Handler, TrapRequest
from vyre.reference.machine import MAX_INVOCATIONS
from vyre.reference.races import Access, AccessKind, Race
from vyre.reference.run import (
    DEFAULT_FUEL,
    Difference,
    Exploration,
    OutOfBounds,
    Result,
    ScheduledRun,
    explore,
    run,
)
from vyre.reference.schedule import IN_ORDER, REVERSED, Order, Schedule, seeded

__all__ = [
    "DEFAULT_FUEL",
    "IN_ORDER",
    "MAX_INVOCATIONS",
    "REVERSED",
    "Access",
    "AccessKind",
    "Difference",
    "Exploration",
    "Handler",
    "Order",
    "OutOfBounds",
    "Race",
    "Result",
    "Schedule",
    "ScheduledRun",
    "TrapRequest",
    "explore",
    "run",
    "seeded",
]
