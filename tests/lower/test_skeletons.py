"""Random control flow around grid barriers, with everything that crosses one mixed into the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from everywhere import SCHEDULES, backend_for
from lower.skeletons import GROUPS, Skeleton
from vyre.checker import check
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.errors import UnsupportedFeature
from vyre.lower.plan import contains_grid_sync

BACKENDS = {route: [backend_for(route, schedule) for schedule in SCHEDULES] for route in ("native", "resident", "host")}


def answer(requests: Sequence[Any], buffers: dict[str, Any]) -> None:
    for request in requests:
        buffers["mine"][request.invocation] ^= np.uint32(request.address + 1 & 0xFFFFFFFF)
        buffers["out"][request.invocation] ^= np.uint32(request.address)


CONFIG = DispatchConfig(grid_override=(GROUPS,), handlers={"ask": answer})
INPUTS = {
    "fixed": np.array([5, 11, 2**32 - 1, 7], "<u4"),
    "source": np.arange(4, dtype="<u4"),
    "mine": np.zeros(6, "<u4"),
}


def check_skeleton(seed: int) -> bool:
    """Runs a program by one route under one schedule, each seed another; false if it is not legal or has no barrier."""
    program = Skeleton(seed).program()
    if not contains_grid_sync(program) or not check(program).ok:
        return False
    route: routes.Route = "host" if seed % 2 else "resident"
    expected = BACKENDS["native"][seed // 2 % 3].dispatch(program, INPUTS, CONFIG)
    try:
        found = routes.dispatch(BACKENDS[route][seed // 6 % 3], program, INPUTS, CONFIG, route=route)
    except UnsupportedFeature as error:
        assert "past the resume" in error.message, seed
        return False
    assert [bytes(view) for view in found] == [bytes(view) for view in expected], f"seed {seed}: {route}"
    return True


@pytest.mark.parametrize("block", range(4))
def test_random_control_flow_gives_the_same_by_every_route(block: int) -> None:
    assert sum(check_skeleton(seed) for seed in range(60 * block, 60 * (block + 1))) > 30


@pytest.mark.long
@pytest.mark.parametrize("block", range(20))
def test_more_random_control_flow_gives_the_same_by_every_route(block: int) -> None:
    assert sum(check_skeleton(seed) for seed in range(10_000 + 1000 * block, 10_000 + 1000 * (block + 1))) > 600
