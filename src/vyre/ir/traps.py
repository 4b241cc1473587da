"""What does an invocation ask of the host when it traps, and how does the host answer?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from vyre.ir.binding import Array


class TrapRequest(msgspec.Struct, frozen=True, order=True):
    """What an invocation asks of the host. Invocations are numbered workgroup by workgroup, x first."""

    invocation: int
    tag: str
    address: int


# Gets the requests of its tag, sorted by invocation, and the arrays of the dispatch's buffers, to change in place.
Handler = Callable[[Sequence[TrapRequest], dict[str, Array]], None]
