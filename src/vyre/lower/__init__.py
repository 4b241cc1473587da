"""How does a program become launches? Cutting at barriers, and what has to be written out before and after."""

from vyre.lower.describe import describe_plan
from vyre.lower.math import expand_math
from vyre.lower.plan import (
    DONE,
    CutProgram,
    GridSyncPlan,
    Segment,
    StateBuffer,
    contains_grid_sync,
    cut_program,
    plan_grid_sync,
    split_on_grid_sync,
)
from vyre.lower.tree import Scope

__all__ = [
    "DONE",
    "CutProgram",
    "GridSyncPlan",
    "Scope",
    "Segment",
    "StateBuffer",
    "contains_grid_sync",
    "cut_program",
    "describe_plan",
    "expand_math",
    "plan_grid_sync",
    "split_on_grid_sync",
]
