"""Is a program legal? Its declarations, its statements in one walk, what its calls stand for, what the target lacks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from vyre.analyze.agreement import WORKGROUP
from vyre.analyze.outline import Outline, outline
from vyre.analyze.uniformity import Requirement, Step
from vyre.arguments import require
from vyre.checker.capabilities import Capabilities, missing_capabilities
from vyre.checker.codes import Severity
from vyre.checker.declarations import check_declarations
from vyre.checker.diagnostics import Diagnostic, Report, diagnostic
from vyre.checker.walker import Walker
from vyre.checker.wellformed import first_malformed_node, malformed_declarations
from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.extensions import inline_calls
from vyre.ir.limits import MAX_EXPRESSIONS, MAX_NESTING, MAX_STATEMENTS
from vyre.ir.places import Place, describe
from vyre.ir.printer import print_expression
from vyre.ir.program import Program, require_program

_MOST_LISTED: Final = 100
_MOST_REASONS: Final = 5
_LONGEST_SHOWN: Final = 60


def check(program: Program, capabilities: Capabilities | None = None) -> Report:
    """Everything that is wrong with a program, and what a target with these capabilities (None: all) lacks for it."""
    require_program(program)
    if capabilities is not None:
        require(capabilities, Capabilities, "what a target can do", "give a vyre.checker.Capabilities(...).")
    malformed = tuple(islice(malformed_declarations(program), _MOST_LISTED))
    if malformed:
        return Report(malformed)
    found = _Found()
    try:
        _check_program(program, capabilities, found)
    except _Enough:
        found.stopped = True
    except Exception:
        # The walk trusts the nodes to hold what their classes declare. If they do, this is our own error.
        wrong = first_malformed_node(program)
        if wrong is None:
            raise
        return Report((wrong,))
    return found.report()


def _check_program(program: Program, capabilities: Capabilities | None, found: _Found) -> None:
    for wrong in check_declarations(program):
        found.add(wrong)
    shape = outline(program)
    if shape.nesting > MAX_NESTING:
        found.add(diagnostic("V018", Place(shape.statements - 1), f"statement lists nest {shape.nesting} deep here."))
        return
    if shape.statements > MAX_STATEMENTS:
        found.add(diagnostic("V019", Place(), f"the program has more than {MAX_STATEMENTS:,} statements."))
        return
    walker = Walker(program, shape, found.add)
    try:
        walker.run()
    except InvalidProgram:
        # All that walks over expressions raise: there are more than the limit.
        message = f"the program has more than {MAX_EXPRESSIONS:,} expressions, counted up to here."
        found.add(diagnostic("V087", Place(walker.current), message))
        return
    if walker.uniformity is not None:
        broken = walker.uniformity.broken_requirements()
        for wrong in _explained(program, shape, broken):
            found.add(wrong)
    if not found.errors and capabilities is not None:
        for wrong in missing_capabilities(program, capabilities):
            found.add(wrong)
    if not found.errors and walker.typer.has_extensions:
        _check_expansion(program, capabilities, found)


def _check_expansion(program: Program, capabilities: Capabilities | None, found: _Found) -> None:
    """Checks what a program with calls and extensions stands for."""
    try:
        inlined = inline_calls(program)
    except InvalidProgram as error:
        found.add(diagnostic("V093", Place(), error.message, error.fix))
        return
    inner = check(inlined, capabilities)
    for wrong in inner.errors:
        message = f"with calls inlined, at {describe(inlined, wrong.place)}: {wrong.code}: {wrong.message}"
        found.add(diagnostic("V093", Place(), message, wrong.fix))


class _Enough(Exception):
    """More errors than anybody reads."""


class _Found:
    """The diagnostics so far."""

    def __init__(self) -> None:
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.left_out = 0
        self.stopped = False

    def add(self, found: Diagnostic) -> None:
        if found.severity is Severity.ERROR:
            self.errors.append(found)
            if len(self.errors) >= _MOST_LISTED:
                raise _Enough
        elif len(self.warnings) < _MOST_LISTED:
            self.warnings.append(found)
        else:
            self.left_out += 1

    def report(self) -> Report:
        warnings = sorted(self.warnings, key=_position)
        if self.stopped:
            warnings.append(diagnostic("V092", Place(), f"checking stopped after {_MOST_LISTED} errors."))
        if self.left_out:
            warnings.append(diagnostic("V092", Place(), f"{self.left_out:,} more warnings are not listed."))
        return Report(tuple(sorted(self.errors, key=_position)), tuple(warnings))


def _position(found: Diagnostic) -> tuple[int, int]:
    place = found.place
    if place.statement is None:
        return -1, -1 if place.buffer is None else place.buffer
    return place.statement, 0


def _explained(program: Program, shape: Outline, broken: list[Requirement]) -> Iterator[Diagnostic]:
    """A diagnostic for each, with the reasons: a second walk finds them, as no legal program needs any."""
    if not broken:
        return
    walker = Walker(program, shape, lambda _: None, explain=True)
    walker.run()
    uniformity = walker.uniformity
    assert uniformity is not None  # the first walk had one
    uniformity.broken_requirements()
    controls = {found.statement: found.control for found in uniformity.requirements}
    statements = list(walk.statements(program.entry))
    for found in broken:
        chain = uniformity.reasons(controls[found.statement])
        if len(chain) > _MOST_REASONS:
            chain = [*chain[: _MOST_REASONS - 1], chain[-1]]
        notes = tuple(_note(statements[step.statement], step, level) for step, level in chain)
        yield diagnostic(found.code, Place(found.statement), _REQUIRED[found.code], notes=notes)


_REQUIRED: Final = {
    "V010": "not all invocations of a workgroup reach this barrier together.",
    "V068": "not all invocations of the grid reach this grid_sync together.",
    "V069": "not all invocations of the grid reach this point together.",
}


def _note(statement: n.Stmt, step: Step, level: int) -> tuple[Place, str]:
    if step.node is None:
        return Place(step.statement), step.text
    among = "between workgroups" if level == WORKGROUP else "between invocations"
    nodes = [node for root in walk.operands(statement) for node in walk.postorder(root)]
    index = next((k for k, node in enumerate(nodes) if node is step.node), None)
    shown = print_expression(step.node)
    shown = shown if len(shown) <= _LONGEST_SHOWN else shown[:_LONGEST_SHOWN] + "…"
    return Place(step.statement, index), f"{shown} differs {among}{step.text}"
