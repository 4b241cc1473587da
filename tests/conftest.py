"""What every run of the tests ends with."""

from __future__ import annotations

import sys


def pytest_unconfigure() -> None:
    """A worker's process is ended without a chance for anybody to clean up: what it compiled goes now."""
    support = sys.modules.get("cpu_support")
    if support is not None:
        support.DIRECTORY.cleanup()
