"""How are a million objects made without being looked through meanwhile? The collector waits until they are made."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing that is made inside is in a circle, so the collector, if it is on, has nothing to find meanwhile."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
