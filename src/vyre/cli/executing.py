"""Which commands run a program? ``run``, and ``trace`` and ``telemetry``, which tell what happened on the way."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vyre.cli import EXIT_WRONG
from vyre.cli.app import (
    AsJson,
    BackendName,
    Elements,
    Grid,
    Inputs,
    Iterations,
    Optimizer,
    ProgramPath,
    RouteName,
    parse_grid,
    parse_route,
    print_table,
    require_legal,
    spinner,
)
from vyre.cli.files import print_json, read_inputs, read_program, values_as_json, values_as_text, write_outputs

if TYPE_CHECKING:
    from vyre.cli.running import Told
    from vyre.reference import Schedule


def run(
    path: ProgramPath,
    inputs: Inputs = None,
    grid: Grid = None,
    elements: Elements = None,
    backend: BackendName = None,
    route: RouteName = "auto",
    iterations: Iterations = None,
    optimize: Optimizer = True,
    schedule: Annotated[str | None, typer.Option(help="in-order, reversed, or a seed (reference only).")] = None,
    races: Annotated[bool, typer.Option("--races", help="Report data races (reference only).")] = False,
    fuel: Annotated[int | None, typer.Option(min=1, help="Most statement steps (reference only).")] = None,
    out: Annotated[str | None, typer.Option(help="Write the outputs to this .npz, keyed by buffer name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and print its outputs.

    Examples:

      vyre run examples/saxpy.vyre -i a=2 -i x=[1,2,3] -i y=[10,20,30]

      vyre run examples/sum.vyre -i values='iota(256)' --races
    """
    from vyre.cli.running import Order, interpret

    if out is not None and not out.endswith(".npz"):
        raise typer.BadParameter(f"'{out}' does not end with .npz.", param_hint="--out")
    order = Order(_parse_schedule(schedule), races, fuel)
    if schedule is not None or races or fuel is not None:
        if backend not in (None, "reference") or route != "auto" or iterations is not None:
            raise typer.BadParameter("--schedule, --races and --fuel are for the reference alone.")
        axes = parse_grid(grid)
        program = read_program(path)
        require_legal(program)
        with spinner(f"running {program.name}", show=not as_json):
            told = interpret(program, read_inputs(program, inputs or []), axes, elements, order)
    else:
        told = _launched(path, inputs, grid, elements, backend, route, iterations, optimize, show=not as_json)
    if out is not None:
        write_outputs(out, told.outputs)
        print(f"written to {out}", file=sys.stderr)
    if as_json:
        outputs = {
            name: {"dtype": str(dtype), "values": values_as_json(array, dtype)}
            for name, array in told.outputs.items()
            for dtype in [told.program.buffer(name).dtype]
        }
        print_json({"outputs": outputs, "facts": told.facts, "reports": told.reports})
    else:
        for name, array in told.outputs.items():
            print(f"{name} = {values_as_text(array, told.program.buffer(name).dtype)}")
        print(", ".join(f"{what} {value}" for what, value in told.facts.items()), file=sys.stderr)
        for report in told.reports:
            print(report, file=sys.stderr)
    if told.racy:
        raise typer.Exit(EXIT_WRONG)


def trace(
    path: ProgramPath,
    output: Annotated[str, typer.Option("--output", "-o", help="The file to write.")] = "trace.json",
    inputs: Inputs = None,
    grid: Grid = None,
    elements: Elements = None,
    backend: BackendName = None,
    route: RouteName = "auto",
    iterations: Iterations = None,
    optimize: Optimizer = True,
    as_json: AsJson = False,
) -> None:
    """Run a program and write what happened when.

    Perfetto (ui.perfetto.dev) and Chrome show the file.

    Example:

      vyre trace examples/sum.vyre -i values='iota(256)' -o sum.json
    """
    from vyre.driver.trace import trace as tracing

    with tracing(output):
        _launched(path, inputs, grid, elements, backend, route, iterations, optimize, show=not as_json)
    totals: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for event in json.loads(Path(output).read_text(encoding="utf-8"))["traceEvents"]:
        if event["ph"] == "X":
            total = totals[f"{event['cat']}: {event['name']}"]
            total[0] += 1
            total[1] += event["dur"]
    if as_json:
        events = [{"event": name, "count": int(n), "microseconds": us} for name, (n, us) in totals.items()]
        print_json({"file": output, "events": events})
        return
    rows = [(f"{us / 1000:.3f} ms", f"{int(n)}", name) for name, (n, us) in totals.items()]
    print_table(("time", "times", "event"), rows)
    print(f"\nwritten to {output}; open it with ui.perfetto.dev or chrome://tracing")


def telemetry(
    path: Annotated[
        str | None, typer.Argument(help="The program to run; without one, what is counted.", metavar="[PROGRAM]")
    ] = None,
    inputs: Inputs = None,
    grid: Grid = None,
    elements: Elements = None,
    backend: BackendName = None,
    route: RouteName = "auto",
    iterations: Iterations = None,
    optimize: Optimizer = True,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="Print Prometheus' text format.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a program and print what was counted.

    Without a program, it tells what each counter counts.

    Examples:

      vyre telemetry

      vyre telemetry examples/sum.vyre -i values='iota(256)' --prometheus
    """
    import msgspec

    from vyre.driver import telemetry as counters

    if path is not None:
        counters.reset()
        _launched(path, inputs, grid, elements, backend, route, iterations, optimize, show=not as_json)
    values: dict[str, int] = msgspec.structs.asdict(counters.snapshot())
    if prometheus:
        print(counters.prometheus(), end="")
    elif as_json:
        print_json(values)
    elif path is None:
        print_table(("counter", "counts"), list(counters.HELP.items()))
    else:
        rows = [(f"{value:,}", name, counters.HELP[name]) for name, value in values.items() if value]
        print_table(("value", "counter", "counts"), rows)


def _launched(
    path: str,
    inputs: list[str] | None,
    grid: str | None,
    elements: int | None,
    backend: str | None,
    route: str,
    iterations: int | None,
    optimize: bool,
    *,
    show: bool,
) -> Told:
    """Reads a program and its data, and runs it on a backend."""
    from vyre.cli.running import launch, open_backend

    axes, way = parse_grid(grid), parse_route(route)
    program = read_program(path)
    require_legal(program)
    with open_backend(backend) as device:
        data = read_inputs(program, inputs or [])
        with spinner(f"running {program.name}", show=show):
            return launch(program, data, axes, elements, device, way, iterations, optimize=optimize)


def _parse_schedule(text: str | None) -> Schedule:
    from vyre.reference import IN_ORDER, REVERSED, seeded

    if text is None or text == "in-order":
        return IN_ORDER
    if text == "reversed":
        return REVERSED
    if text.isdecimal():
        return seeded(int(text))
    raise typer.BadParameter(f"'{text}' is not in-order, reversed or a number.", param_hint="--schedule")
