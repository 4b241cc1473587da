"""Lowering: cut programs at barriers into segments, schedule their launches."""

from vyre.lower.describe import describe_plan
from vyre.lower.plan import (
    DONE,
    CutProgram,
    CutWorkgroup,
    GridSyncPlan,
    Segment,
    StateBuffer,
    contains_grid_sync,
    cut_program,
    cut_workgroup,
    plan_grid_sync,
    split_on_grid_sync,
)
from vyre.lower.workgroup_state import Slot

__all__ = [
    "DONE",
    "CutProgram",
    "CutWorkgroup",
    "GridSyncPlan",
    "Segment",
    "Slot",
    "StateBuffer",
    "contains_grid_sync",
    "cut_program",
    "cut_workgroup",
    "describe_plan",
    "plan_grid_sync",
    "split_on_grid_sync",
]
