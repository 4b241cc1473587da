"""On which backend does a kernel run? The one it was given, else one for each name, made when it is first needed."""

from __future__ import annotations

from functools import cache

from vyre.driver.backend import Backend
from vyre.driver.registry import backend


def shared_backend(wanted: str | Backend | None) -> Backend:
    """The backend itself, or the one of that name (None: the default) that all kernels share."""
    return wanted if isinstance(wanted, Backend) else _named(wanted)


@cache
def _named(name: str | None) -> Backend:
    return backend(name)
