"""Columns of numbers on the host: arrays of one axis, checked and converted before a kernel sees them."""

from __future__ import annotations

import numpy as np

from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.arrays import DeviceArray
from vyre.lib.workspace import MAX_ELEMENTS, ArrayLike


def numbers(value: ArrayLike, name: str) -> Array:
    """Anything that NumPy takes for an array; device arrays are copied to the host."""
    try:
        return value.numpy() if isinstance(value, DeviceArray) else np.asarray(value)
    except (TypeError, ValueError) as error:
        raise BadInputs(f"'{name}' is no array: {str(error).rstrip('.')}.", "pass an array of one axis.") from None


def column(value: ArrayLike, name: str, count: int | None = None, *, exact: bool = False) -> Array:
    """An array of one axis; of a longer one, the first ``count`` elements, unless that must be ``exact``."""
    host = numbers(value, name)
    if host.ndim != 1:
        raise BadInputs(f"'{name}' has shape {host.shape}, expected one axis.", "pass an array of one axis.")
    if count is not None and (len(host) < count or (exact and len(host) != count)):
        raise BadInputs(f"'{name}' has {len(host):,} elements, expected {count:,}.", f"pass {count:,} elements.")
    return np.ascontiguousarray(host[:count], host.dtype.newbyteorder("="))


def ids(
    value: ArrayLike, name: str, *, most: int = MAX_ELEMENTS, count: int | None = None, exact: bool = False
) -> Array:
    """A column of whole numbers as u32, without a copy if they have 32 bits; BadInputs names the first wrong one."""
    host = column(value, name, count, exact=exact)
    if not host.size:
        return np.zeros(0, np.uint32)
    if host.dtype.kind not in "iu":
        raise BadInputs(
            f"'{name}' has elements of type {host.dtype}, expected whole numbers.",
            "convert it: array.astype(np.uint32).",
        )
    if host.dtype.kind == "i" and host.min() < 0:
        at = int((host < 0).argmax())
        raise BadInputs(f"'{name}' has {host[at]} at position {at}.", "pass numbers from 0.")
    if most < np.iinfo(host.dtype).max and host.max() > most:
        at = int((host > most).argmax())
        raise BadInputs(f"'{name}' has {host[at]:,} at position {at}, and ids are u32.", f"pass at most {most:,}.")
    return host.view(np.uint32) if host.dtype.itemsize == 4 else host.astype(np.uint32)


def require_below(values: Array, limit: int, name: str, what: str) -> None:
    """Raise BadInputs for the first element that is not below a limit; ``what`` says what the limit is."""
    if values.size and values.max() >= limit:
        at = int((values >= limit).argmax())
        raise BadInputs(
            f"'{name}' has {values[at]:,} at position {at}, and {what} is {limit:,}.",
            f"pass numbers below {limit:,}.",
        )
