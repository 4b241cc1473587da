"""Does a ``.vyre`` file do what its directives say? On the checker, on every backend, under every schedule.

``vyre.conform.directives`` tells what a file can ask for. Each function answers with what is wrong, one sentence
for each thing; nothing wrong is an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from vyre.checker import check
from vyre.conform.case import Case, run_on_reference
from vyre.conform.directives import BLOCKS, FileTest, Run, case_of_run, read_array, read_filetest, write_array
from vyre.driver.optimizing import optimize
from vyre.errors import ParseError, TrapRaised, VyreError
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.reference import IN_ORDER, REVERSED, seeded

Outputs = Mapping[str, bytes]
SCHEDULES: Final = (IN_ORDER, REVERSED, seeded(1), seeded(2))


def run_reference(case: Case) -> Outputs:
    """The outputs by name, as bytes, on the reference."""
    result = run_on_reference(case)
    return {name: result.output_bytes(name) for name in result.outputs}


def run_optimised(case: Case) -> Outputs:
    """The outputs of the optimised program, on the reference."""
    return run_reference(msgspec.structs.replace(case, program=optimize(case.program)))


BACKENDS: Final[dict[str, Callable[[Case], Outputs]]] = {
    "reference": run_reference,
    "reference, optimised": run_optimised,
}


def load_filetest(path: Path) -> FileTest:
    return read_filetest(path.name, path.read_text(encoding="utf-8"))


def diagnose(test: FileTest) -> tuple[tuple[tuple[str, str, int], ...], str]:
    """What the parser and the checker say about the file: (severity, code, line) of each diagnostic, and their text."""
    try:
        program = parse(test.text, test.name)
    except ParseError as error:
        return (("error", "parse", error.line),), error.rendered
    source, report = program.source, check(program)
    assert source is not None
    lines = [
        (d.severity.value, d.code, source.line_and_column(source.span(d.place).start)[0])
        for d in report.errors + report.warnings
    ]
    return tuple(sorted(lines)), report.render(program)


def diagnostics_wrong(test: FileTest) -> list[str]:
    """What the parser and the checker say that the file does not expect, and the reverse."""
    found, rendered = diagnose(test)
    wrong = []
    if found != test.diagnostics:
        wrong.append(f"expected the diagnostics {list(test.diagnostics)} and got {list(found)}:\n{rendered}")
    if test.rendered is not None and test.rendered != rendered:
        wrong.append(f"expected this text:\n{test.rendered}\nand got:\n{rendered}")
    return wrong


def optimized_wrong(test: FileTest) -> list[str]:
    """Whether the program becomes another when it is optimised than the file says, or than when it was before."""
    optimised = optimize(parse(test.text, test.name))
    wrong = []
    if test.optimized not in (None, _text_of(optimised)):
        wrong.append(f"expected this program when it is optimised:\n{test.optimized}\nand got:\n{_text_of(optimised)}")
    if (again := optimize(optimised)) != optimised:
        wrong.append(f"optimised once, it is:\n{optimised}\nand optimised again:\n{again}")
    return wrong


def _text_of(program: Program) -> str:
    return str(program).rstrip("\n")


def with_present_text(test: FileTest) -> str:
    """The file with the present text of its diagnostics, or of its program when it is optimised, at its end."""
    (block,) = [block for block, text in zip(BLOCKS, (test.rendered, test.optimized), strict=True) if text is not None]
    before = test.text.split(f"{block}\n")[0]
    present = diagnose(test)[1] if test.optimized is None else _text_of(optimize(parse(test.text, test.name)))
    lines = [f"# {line}".rstrip() for line in present.split("\n")]
    return "\n".join([f"{before}{block}", *lines, ""])


def is_legal(test: FileTest) -> bool:
    """Whether the file is meant to be a program that runs."""
    return all(severity != "error" for severity, _, _ in test.diagnostics)


def round_trips_wrong(test: FileTest) -> list[str]:
    """Whether the program comes back from text and from the wire as it was."""
    program = parse(test.text, test.name)
    wrong = []
    if parse(str(program)) != program:
        wrong.append("printing and parsing gives another program.")
    if decode(encode(program)) != program:
        wrong.append("encoding and decoding gives another program.")
    return wrong


def runs_wrong(test: FileTest, backend: str) -> list[str]:
    """What the runs of the file give on a backend that they should not."""
    program = parse(test.text, test.name)
    # How far fuel reaches is the interpreter's business, of the program as it stands.
    runs = [run for run in test.runs if backend == "reference" or run.failure != ("fails", "fuel-exhausted")]
    return [sentence for run in runs for sentence in _run_wrong(run, program, BACKENDS[backend])]


def _run_wrong(run: Run, program: Program, runner: Callable[[Case], Outputs]) -> list[str]:
    case = case_of_run(run, program)
    try:
        outputs = runner(case)
    except VyreError as error:
        failure = ("traps", error.tag) if isinstance(error, TrapRaised) else ("fails", error.code)
        return [] if run.failure == failure else [f"line {run.line}: the run failed: {error}"]
    if run.failure is not None:
        return [f"line {run.line}: the run did not fail, but {' '.join(run.failure)} was expected."]
    wrong = []
    for name, values in run.expected.items():
        expected = read_array(values, program.buffer(name).dtype).tobytes()
        got = outputs.get(name)
        if got is None:
            wrong.append(f"line {run.line}: '{name}' is no output.")
        elif got != expected:
            wrong.append(f"line {run.line}: '{name}' is {_shown(program, name, got)}, not [{', '.join(values)}].")
    return wrong


def _shown(program: Program, name: str, data: bytes) -> str:
    dtype = program.buffer(name).dtype
    whole = len(data) // dtype.bytes * dtype.bytes
    return write_array(np.frombuffer(data[:whole], dtype.storage), dtype)


def schedules_wrong(test: FileTest) -> list[str]:
    """Whether the outputs depend on the schedule, or accesses race, where the file does not say so; and the reverse."""
    program = parse(test.text, test.name)
    wrong = []
    differs = raced = False
    for run in test.runs:
        if run.failure is not None:
            continue
        case = case_of_run(run, program)
        results = [run_on_reference(case, schedule=schedule, races=True) for schedule in SCHEDULES]
        seen = {tuple(result.output_bytes(name) for name in result.outputs) for result in results}
        races = [race for result in results for race in result.races]
        differs, raced = differs or len(seen) > 1, raced or bool(races)
        if len(seen) > 1 and not test.order_dependent:
            wrong.append(f"line {run.line}: the outputs depend on the schedule.")
        if races and not test.races:
            wrong.append(f"line {run.line}: accesses race: {races[0]}")
    if test.order_dependent and not differs:
        wrong.append("the outputs do not depend on the schedule, though the file says so.")
    if test.races and not raced:
        wrong.append("nothing races, though the file says so.")
    return wrong
