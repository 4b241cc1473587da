"""Findings: what the kernels report about the rows of an arena."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vyre.ir.binding import Array


class Findings(msgspec.Struct, frozen=True, eq=False):
    """For each row its representative (``canon``), and the rewritten words of representatives.

    ``live`` marks the rows that are needed. ``place`` is the scope in which to compute a value; of a row that does not
    move, the innermost scope around all its uses. ``uses`` counts uses by live rows. ``fired`` counts rules by name.
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
