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
        self.cleanup_errors: tuple[Exception, ...] = ()

    def __str__(self) -> str:
        cleanup = "".join(f" Cleaning up failed too: {error}" for error in self.cleanup_errors)
        return f"[{self.code}] {self.message}{cleanup} Fix: {self.fix}"


def report_cleanup(error: BaseException, failures: Sequence[Exception]) -> None:
    """Makes an error also tell what failed while cleaning up after it."""
    if isinstance(error, VyreError):
        error.cleanup_errors += tuple(failures)
    else:
        for failure in failures:
            error.add_note(f"Cleaning up failed too: {failure}")


def locate(error: BaseException, where: str) -> None:
    """Make an error also tell where it happened: in its message, or in a note if it is not one of vyre's."""
    if isinstance(error, VyreError):
        error.message = f"in {where}: {error.message}"
    else:
        error.add_note(f"in {where}")


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


class KernelError(VyreError):
    """A Python function that is no kernel, or not a legal one; ``rendered`` shows the place in its own file.

    ``line`` and ``column`` count from 1. ``diagnostics`` are the checker's, where it was the checker that refused it.
    """

    def __init__(
        self,
        message: str,
        fix: str,
        *,
        line: int = 0,
        column: int = 0,
        rendered: str | None = None,
        diagnostics: Sequence[Diagnostic] = (),
    ) -> None:
        super().__init__("kernel", message, fix)
        self.line = line
        self.column = column
        self.rendered = rendered
        self.diagnostics = tuple(diagnostics)

    def __str__(self) -> str:
        return super().__str__() if self.rendered is None else self.rendered


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


class BackendUnavailable(VyreError):
    """There is no such backend here, or it cannot run on this machine."""

    def __init__(self, name: str, reason: str, fix: str) -> None:
        super().__init__("backend-unavailable", reason, fix)
        self.name = name


class DeviceOutOfMemory(VyreError):
    """A device could not give the memory asked of it; sizes in bytes, ``available`` where the device tells."""

    def __init__(self, requested: int, available: int | None = None) -> None:
        known = "" if available is None else f", and {available:,} are available"
        super().__init__(
            "device-out-of-memory",
            f"the device could not allocate {requested:,} bytes{known}.",
            "free resident buffers, or work on smaller pieces.",
        )
        self.requested = requested
        self.available = available


class KernelCompileFailed(VyreError):
    """A target's compiler refused the code that was written for it; ``source`` is that code."""

    def __init__(self, backend: str, compiler_message: str, source: str = "") -> None:
        super().__init__(
            "kernel-compile-failed",
            f"the compiler of backend '{backend}' refused the kernel: {compiler_message.rstrip('.')}.",
            "report it with the program; until it is fixed, run the program on another backend.",
        )
        self.backend = backend
        self.compiler_message = compiler_message
        self.source = source


class GridResidencyExceeded(VyreError):
    """A grid with a native grid barrier does not fit on the device all at once; counts in workgroups."""

    def __init__(self, grid_blocks: int, limit: int) -> None:
        super().__init__(
            "grid-residency-exceeded",
            f"a native grid barrier needs all {grid_blocks:,} workgroups on the device at once, which holds {limit:,}.",
            'launch fewer or smaller workgroups, or let vyre cut the program (cooperative="auto").',
        )
        self.grid_blocks = grid_blocks
        self.limit = limit


class DeviceLost(VyreError):
    """The device stopped answering; what was resident on it is gone."""

    def __init__(self, backend: str, reason: str) -> None:
        super().__init__(
            "device-lost",
            f"the device of backend '{backend}' was lost: {reason.rstrip('.')}.",
            "call backend.try_recover(), or make a new backend, and upload the data again.",
        )
        self.backend = backend


class Timeout(VyreError):
    """A run did not end in the time it was given."""

    def __init__(self, seconds: float, what: str = "the dispatch") -> None:
        super().__init__(
            "timeout",
            f"{what} did not end within {seconds:g} s.",
            "give it more time (timeout_s=...), or less work.",
        )
        self.seconds = seconds
