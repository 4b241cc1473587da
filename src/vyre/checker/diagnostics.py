"""What does the checker say? Diagnostics, their report, and their text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from vyre.checker.codes import CODES, Severity
from vyre.errors import InvalidProgram
from vyre.ir import walk
from vyre.ir.places import Place, find_statements
from vyre.ir.printer import print_expression, print_statements
from vyre.ir.render import render

if TYPE_CHECKING:
    from vyre.ir.nodes import Stmt
    from vyre.ir.program import Program

_WIDEST: Final = 100


class Diagnostic(msgspec.Struct, frozen=True):
    """One broken rule: where, what and how to fix it; ``notes`` are places that explain why."""

    code: str
    severity: Severity
    place: Place
    message: str
    fix: str
    notes: tuple[tuple[Place, str], ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What the checker found, in the order of the program."""

    errors: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the program is legal."""
        return not self.errors

    def raise_if_invalid(self) -> None:
        """Raises InvalidProgram, which carries every error, unless the program is legal."""
        if not self.errors:
            return
        first = self.errors[0]
        others = len(self.errors) - 1
        more = f" ({others} more error{'s' if others > 1 else ''})" if others else ""
        raise InvalidProgram(f"{first.code}: {first.message}{more}", first.fix, self.errors)

    def render(self, program: Program) -> str:
        """All diagnostics as text, errors first."""
        found = self.errors + self.warnings
        shown = _Shown(program, found)
        return "\n\n".join(shown.render(one) for one in found)


def diagnostic(
    code: str, place: Place, message: str, fix: str | None = None, notes: tuple[tuple[Place, str], ...] = ()
) -> Diagnostic:
    """A diagnostic with the severity of its code, and the code's own fix unless a better one is known."""
    rule = CODES[code]
    return Diagnostic(code, rule.severity, place, message, fix or rule.fix, notes)


def render_diagnostic(program: Program, found: Diagnostic) -> str:
    """A diagnostic as a block of text: in the source where that is known, else beside the printed statement."""
    return _Shown(program, (found,)).render(found)


class _Shown:
    """Diagnostics of one program as text. Without a source, one walk finds all the statements that they are about."""

    def __init__(self, program: Program, diagnostics: Sequence[Diagnostic]) -> None:
        self.program = program
        self.source = program.source
        places = [place for found in diagnostics for place in (found.place, *(place for place, _ in found.notes))]
        numbers = {place.statement for place in places if place.statement is not None}
        self.statements: dict[int, tuple[str, Stmt]] = {}
        if self.source is None and numbers:
            # A malformed statement may be on the way; the message says what is wrong with it.
            with suppress(KeyError, TypeError, AttributeError):
                self.statements = find_statements(program, numbers)

    def render(self, found: Diagnostic) -> str:
        severity = found.severity.value
        if self.source is not None:
            span = self.source.span(found.place)
            lines = render(self.source, span, severity, found.code, found.message, found.fix).split("\n")
        else:
            lines = [f"{severity}[{found.code}]: {found.message.removesuffix('.')}", f" --> {self._where(found.place)}"]
            printed = self._printed(found.place)
            if printed:
                lines += ["  |", f"  | {printed}"]
            lines.append(f"  = fix: {found.fix}")
        gutter = " " * lines[-1].index("=")
        lines += [f"{gutter}= note: {self._where(place)}: {text}" for place, text in found.notes]
        return "\n".join(lines)

    def _where(self, place: Place) -> str:
        if self.source is not None:
            line, column = self.source.line_and_column(self.source.span(place).start)
            return f"{self.source.name}:{line}:{column}"
        if place.statement is not None:
            known = self.statements.get(place.statement)
            return f"statement {place.statement}" if known is None else known[0]
        if place.buffer is not None:
            return f"buffer {getattr(self.program.buffers[place.buffer], 'name', place.buffer)}"
        return "program"

    def _printed(self, place: Place) -> str | None:
        """The first line of the statement, or the expression, as text; None where there is nothing to print."""
        known = None if place.statement is None else self.statements.get(place.statement)
        if known is None:
            return None
        try:
            if place.expression is None:
                without_lists = dict.fromkeys(walk.BODY_FIELDS[type(known[1])], ())
                text = print_statements((msgspec.structs.replace(known[1], **without_lists),)).strip()
            else:
                nodes = [node for root in walk.operands(known[1]) for node in walk.postorder(root)]
                text = print_expression(nodes[place.expression])
        except Exception:  # so malformed that it has no text; the message says what is wrong with it
            return None
        first = text.split("\n", 1)[0]
        return first if len(first) <= _WIDEST else first[:_WIDEST] + "…"
