"""What do the kernels say about the rows? Everything that writing the program again needs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vyre.ir.binding import Array


class Findings(msgspec.Struct, frozen=True, eq=False):
    """For each row: the row that stands for it, and of those what they are now.

    ``live`` are the rows that are needed, ``place`` is the scope in which to compute a value (of a cell's row: the
    innermost scope around all its uses), ``uses`` counts uses by what is needed. ``fired`` counts rules by name.
    """

    canon: Array
    head: Array
    a0: Array
    a1: Array
    a2: Array
    live: Array
    place: Array
    uses: Array
    fired: Mapping[str, int]
    sweeps: int
