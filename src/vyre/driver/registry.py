"""The registry of backends: find, list and make them by name.

Backends register as entry points of the group ``vyre.backends``: a name and a ``Device`` or ``Backend`` class. So a
package adds one without touching this one, and nothing is imported before it is asked for.
"""

from __future__ import annotations

import inspect
import os
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from vyre.driver.backend import Backend
from vyre.driver.device import Availability, Device
from vyre.errors import BackendUnavailable, BadInputs

GROUP: Final = "vyre.backends"

# What the backends of this package give as their priority; one of another package may stand between.
CUDA_PRIORITY: Final = 400
GPU_PRIORITY: Final = 300
CPU_PRIORITY: Final = 200
SOFTWARE_GPU_PRIORITY: Final = 100


class BackendInfo(msgspec.Struct, frozen=True):
    """An installed backend: whether it can run here, and if not, why and what would help."""

    name: str
    available: bool
    version: str = ""
    reason: str = ""
    fix: str = ""
    description: str = ""
    is_default: bool = False


class _Found(msgspec.Struct, frozen=True):
    name: str
    availability: Availability
    backend_class: type[Backend] | type[Device] | None = None


def list_backends() -> list[BackendInfo]:
    """Return every installed backend, the default first, then by name; a broken one is listed with its reason."""
    found = [_load(entry) for entry in _entries().values()]
    chosen = _default(found)
    listed = [_describe(one, chosen) for one in found]
    return sorted(listed, key=lambda info: (not info.is_default, not info.available, info.name))


def backend(name: str | None = None, **options: Any) -> Backend:
    """The backend of that name, made with those options; without a name, ``VYRE_BACKEND`` or the best one here.

    The reference interpreter is never the best one: it is there to be asked for.
    """
    if name is not None and not isinstance(name, str):
        raise BadInputs(f"a {type(name).__name__} is no name of a backend.", "give a name, as in 'cpu'.")
    wanted = name or os.environ.get("VYRE_BACKEND")
    if wanted:
        chosen = _load(_entry(wanted))
    else:
        found = [_load(entry) for entry in _entries().values()]
        default = _default(found)
        if default is None:
            raise BackendUnavailable("", *_no_default(found))
        chosen = default
    if chosen.backend_class is None or not chosen.availability.available:
        raise BackendUnavailable(
            chosen.name,
            f"backend '{chosen.name}' cannot run here: {chosen.availability.reason}",
            chosen.availability.fix or "choose another backend (`vyre backends` lists them).",
        )
    return _make(chosen.name, chosen.backend_class, options)


def _entries() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}


def _entry(name: str) -> EntryPoint:
    entries = _entries()
    if name in entries:
        return entries[name]
    close = get_close_matches(name, entries, 1)
    known = ", ".join(entries) or "none"
    raise BackendUnavailable(
        name,
        f"there is no backend '{name}'; installed are: {known}.",
        f"did you mean '{close[0]}'?" if close else "use one of them, or install the package that brings it.",
    )


def _load(entry: EntryPoint) -> _Found:
    """Load a backend's class and check whether it can run; any failure becomes the reason why it cannot."""
    try:
        loaded = entry.load()
        if not (isinstance(loaded, type) and issubclass(loaded, (Backend, Device))):
            raise TypeError(f"{entry.value} is neither a Device nor a Backend class")
        return _Found(entry.name, loaded.availability(), loaded)
    except Exception as error:
        reason = f"it could not be loaded ({type(error).__name__}: {error})."
        package = entry.dist.name if entry.dist else entry.value.partition(":")[0]
        return _Found(entry.name, Availability(False, reason, f"repair or update the package '{package}'."))


def _default(found: list[_Found]) -> _Found | None:
    able = [one for one in found if one.availability.available and one.availability.priority is not None]
    return max(able, key=lambda one: one.availability.priority or 0, default=None)


def _no_default(found: list[_Found]) -> tuple[str, str]:
    names = [one.name for one in found if one.availability.available]
    why = "".join(f" {one.name}: {one.availability.reason}" for one in found if not one.availability.available)
    return (
        f"no backend here is chosen by itself.{why}",
        f"name one: vyre.backend('{names[0]}'), or set VYRE_BACKEND={names[0]}; the reference is exact and slow."
        if names
        else "install a backend.",
    )


def _describe(one: _Found, chosen: _Found | None) -> BackendInfo:
    doc = inspect.getdoc(one.backend_class) if one.backend_class else None
    version = getattr(one.backend_class, "version", "")
    return BackendInfo(
        name=one.name,
        available=one.availability.available,
        version=version if isinstance(version, str) else "",
        reason=one.availability.reason,
        fix=one.availability.fix,
        description=doc.splitlines()[0] if doc else "",
        is_default=one is chosen,
    )


def _make(name: str, backend_class: type[Backend] | type[Device], options: dict[str, Any]) -> Backend:
    signature = inspect.signature(backend_class)
    try:
        signature.bind(**options)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise BadInputs(f"backend '{name}': {error}.", f"its options are: {known}.") from None
    made = backend_class(**options)
    return Backend(made) if isinstance(made, Device) else made
