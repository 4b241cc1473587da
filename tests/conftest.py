"""What every run of the tests begins and ends with."""

from __future__ import annotations

import gc
import sys


def pytest_collection_finish() -> None:
    """Programs are made and dropped by the thousand; what is there before the first need not be looked at each time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_runtest_logfinish() -> None:
    """What a test leaves goes before the next one, which may count what there is."""
    gc.collect(1)


def pytest_unconfigure() -> None:
    """A worker's process is ended without a chance for anybody to clean up: what it compiled goes now."""
    support = sys.modules.get("cpu_support")
    if support is not None:
        support.DIRECTORY.cleanup()
