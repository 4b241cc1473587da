"""The errors a user of vyre can meet.

Every error is a sentence for the person who meets it: what happened, where, why, and a ``Fix:``.
The family is flat; each class adds only the facts a caller may want to act on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vyre.checker.diagnostics import Diagnostic


class VyreError(Exception):
    """The base of the family: a stable ``code``, a ``message`` and a ``fix``."""

    def __init__(self, code: str, message: str, fix: str) -> None:
        super().__init__(code, message, fix)
        self.code = code
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"[{self.code}] {self.message} Fix: {self.fix}"


class InvalidProgram(VyreError):
    """The program breaks a rule of the language; ``diagnostics`` says which and where."""

    def __init__(self, message: str, fix: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__("invalid-program", message, fix)
        self.diagnostics = tuple(diagnostics)


class ParseError(VyreError):
    """Text that is not a program; ``line`` and ``column`` count from 1."""

    def __init__(self, message: str, fix: str, *, line: int, column: int, rendered: str) -> None:
        super().__init__("parse", message, fix)
        self.line = line
        self.column = column
        self.rendered = rendered

    def __str__(self) -> str:
        return self.rendered


class WireError(VyreError):
    """Bytes that are not the encoding of a program; ``offset`` is where decoding stopped."""

    def __init__(self, message: str, fix: str, *, offset: int = 0) -> None:
        super().__init__("wire", message, fix)
        self.offset = offset


class BadInputs(VyreError):
    """The host data does not fit the program's buffers; ``buffer`` names the first that does not."""

    def __init__(self, message: str, fix: str, *, buffer: str | None = None) -> None:
        super().__init__("bad-inputs", message, fix)
        self.buffer = buffer


class DispatchFailed(VyreError):
    """The program is legal, but this run of it failed."""

    def __init__(self, message: str, fix: str, *, code: str = "dispatch-failed") -> None:
        super().__init__(code, message, fix)


class FuelExhausted(DispatchFailed):
    """The reference interpreter stopped a run that took more steps than it was given."""

    def __init__(self, fuel: int) -> None:
        super().__init__(
            f"the program did not end within {fuel:,} statement steps.",
            "make sure that every loop ends, or give more fuel (fuel=..., --fuel).",
            code="fuel-exhausted",
        )
        self.fuel = fuel


class TrapRaised(DispatchFailed):
    """An invocation trapped and nobody handled it."""

    def __init__(self, tag: str, address: int, invocation: int) -> None:
        super().__init__(
            f"invocation {invocation} trapped with tag '{tag}' at address {address}.",
            f"give the run a handler for '{tag}' and let a resume of that tag follow the trap, "
            "or avoid what raises it.",
            code="trap-raised",
        )
        self.tag = tag
        self.address = address
        self.invocation = invocation


class UnsupportedFeature(VyreError):
    """A backend lacks something the program needs; nothing was run."""

    def __init__(self, name: str, backend: str, fix: str | None = None) -> None:
        super().__init__(
            "unsupported-feature",
            f"backend '{backend}' does not support {name}.",
            fix or "choose a backend that does (`vyre backends` lists them).",
        )
        self.name = name
        self.backend = backend
