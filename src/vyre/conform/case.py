"""What is a test case? A program, its inputs and its launch: everything that decides what a run must give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from vyre.ir.program import Program

if TYPE_CHECKING:
    from vyre.reference import Result

MAILBOX = "mailbox"
DEFAULT_FUEL = 5_000_000


class Case(msgspec.Struct, frozen=True, eq=False):
    """One run of one program; ``handled`` are the trap tags that the standard handler answers."""

    program: Program
    inputs: Mapping[str, np.ndarray[Any, Any]]
    grid: tuple[int, int, int] | None = None
    elements: int | None = None
    handled: tuple[str, ...] = ()
    fuel: int = DEFAULT_FUEL


def answer_traps(requests: Iterable[Any], buffers: MutableMapping[str, np.ndarray[Any, Any]]) -> None:
    """The standard handler: counts each request in the mailbox, at the place its address names."""
    mailbox = buffers.get(MAILBOX)
    if mailbox is None or len(mailbox) == 0:
        return
    for request in requests:
        place = request.address % len(mailbox)
        mailbox[place] = (int(mailbox[place]) + request.invocation + 1) & 0xFFFFFFFF


def run_on_reference(case: Case, **options: Any) -> Result:
    """What the case must give, by the definition of the language."""
    from vyre import reference

    return reference.run(
        case.program,
        case.inputs,
        grid=case.grid,
        elements=case.elements,
        fuel=case.fuel,
        handlers=dict.fromkeys(case.handled, answer_traps),
        **options,
    )
