"""The work in plain Python, and with NumPy's own functions."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from graphs import Array
from library_peers import Contender, Peer, Scanning


def _exclusive(work: Scanning) -> dict[str, Contender]:
    out = np.empty_like(work.values)
    out[:1] = 0

    def run() -> Array:
        np.cumsum(work.values[:-1], out=out[1:])
        return out

    return {"numpy, cumsum": Contender(run)}


def _ifds(problem: Any) -> dict[str, Contender]:
    from vyre.lib.dataflow import ifds_worklist

    return {"python, worklist": Contender(lambda: ifds_worklist(problem), lambda solution: solution.bits)}


def load(_: int) -> Peer:
    return Peer(
        "python", f"{platform.python_version()} and numpy {np.__version__}", {"scan": _exclusive, "ifds": _ifds}
    )
