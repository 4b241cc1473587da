"""On which backend does a kernel run? The one it was given, else one for each name, made when it is first needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from vyre.driver.backend import Backend
from vyre.driver.registry import backend
from vyre.errors import BadInputs


def shared_backend(wanted: str | Backend | None) -> Backend:
    """The backend itself, or the one of that name (None: the default) that all kernels share."""
    return wanted if isinstance(wanted, Backend) else _named(require_backend(wanted))


def require_backend(wanted: Any) -> Any:
    """What was asked for, if it is a backend, the name of one, or None."""
    if wanted is not None and not isinstance(wanted, (str, Backend)):
        raise BadInputs(f"a {type(wanted).__name__} is no backend.", "give a name, as in 'cpu', or vyre.backend(...).")
    return wanted


@cache
def _named(name: str | None) -> Backend:
    return backend(name)
