"""What can the ``vyre`` command do?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vyre.cli import EXIT_WRONG
from vyre.cli.files import (
    as_text,
    print_json,
    read_bytes,
    read_inputs,
    read_program,
    values_as_json,
    values_as_text,
    write_outputs,
)
from vyre.errors import ParseError, VyreError
from vyre.ir.program import Program

if TYPE_CHECKING:
    from vyre.reference import Schedule

app = typer.Typer(
    name="vyre",
    help="Parallel programs with one meaning: check them, look at them, run them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ProgramPath = Annotated[
    str, typer.Argument(help="A .vyre text or a wire image; - is standard input.", metavar="PROGRAM")
]
ProgramPaths = Annotated[list[str], typer.Argument(help="Files to read; - is standard input.", metavar="PROGRAM...")]
ROUTES = ("auto", "native", "resident", "host")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


@app.command()
def demo(as_json: AsJson = False) -> None:
    """The tour: a graph closure to a fixpoint, checked, run in several orders, and compared.

    Example: vyre demo
    """
    from vyre.cli.demo import tour

    results = tour(quiet=as_json)
    if as_json:
        print_json([{"claim": claim, "holds": holds, "seconds": seconds} for claim, holds, seconds in results])
    if not all(holds for _, holds, _ in results):
        raise typer.Exit(EXIT_WRONG)


@app.command()
def run(
    path: ProgramPath,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", "-i", help="name=file.npy, name=file.bin, name=[1,2,3], name='zeros(8)', or all.npz."),
    ] = None,
    grid: Annotated[str | None, typer.Option(help="Workgroups: X, X,Y or X,Y,Z.")] = None,
    elements: Annotated[int | None, typer.Option(min=0, help="Elements to cover, instead of a grid.")] = None,
    backend: Annotated[str | None, typer.Option(help="Who runs it; `vyre backends` lists them.")] = None,
    route: Annotated[str, typer.Option(help="How grid barriers run: auto, native, resident or host.")] = "auto",
    iterations: Annotated[
        int | None, typer.Option(help="Run again on the same buffers until nothing changes, so often at most.")
    ] = None,
    schedule: Annotated[str | None, typer.Option(help="in-order, reversed, or a seed (reference only).")] = None,
    races: Annotated[bool, typer.Option("--races", help="Report data races (reference only).")] = False,
    fuel: Annotated[int | None, typer.Option(min=1, help="Most statement steps (reference only).")] = None,
    out: Annotated[str | None, typer.Option(help="Write the outputs to this .npz, keyed by buffer name.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run a program and print its outputs.

    Example: vyre run examples/saxpy.vyre -i a=2 -i x=[1,2,3] -i y=[10,20,30]
    """
    from vyre.cli.running import Order, interpret, launch

    if route not in ROUTES:
        raise typer.BadParameter(f"'{route}' is not one of {', '.join(ROUTES)}.", param_hint="--route")
    order = Order(_parse_schedule(schedule), races, fuel)
    axes = _parse_grid(grid)
    program = read_program(path)
    _require_legal(program)
    data = read_inputs(program, inputs or [])
    with _progress(f"running {program.name}", show=not as_json):
        if schedule is not None or races or fuel is not None:
            if backend not in (None, "reference") or route != "auto" or iterations is not None:
                raise typer.BadParameter("--schedule, --races and --fuel are for the reference alone.")
            told = interpret(program, data, axes, elements, order)
        else:
            told = launch(program, data, axes, elements, backend, route, iterations)
    if out is not None:
        write_outputs(out, told.outputs)
    if as_json:
        outputs = {
            name: {"dtype": str(dtype), "values": values_as_json(array, dtype)}
            for name, array in told.outputs.items()
            for dtype in [program.buffer(name).dtype]
        }
        print_json({"outputs": outputs, "facts": told.facts, "reports": told.reports})
    else:
        for name, array in told.outputs.items():
            print(f"{name} = {values_as_text(array, program.buffer(name).dtype)}")
        print(", ".join(f"{what} {value}" for what, value in told.facts.items()), file=sys.stderr)
        for report in told.reports:
            print(report, file=sys.stderr)
    if told.racy:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def backends(as_json: AsJson = False) -> None:
    """List what can run programs here, and why the others cannot.

    Example: vyre backends
    """
    import msgspec

    from vyre.driver.registry import list_backends

    found = list_backends()
    if as_json:
        print_json([msgspec.to_builtins(info) for info in found])
        return
    for info in found:
        state = "default" if info.is_default else "available" if info.available else "not here"
        print(f"{info.name:<12} {state:<10} {info.version:<10} {info.description}".rstrip())
        if not info.available:
            print(f"{'':<12} {info.reason} Fix: {info.fix}")


@app.command()
def check(paths: ProgramPaths, as_json: AsJson = False) -> None:
    """Say what is wrong with programs, where, and how to mend it.

    Example: vyre check examples/bad/divergent_barrier.vyre
    """
    from vyre.checker import check as check_program
    from vyre.checker import render_diagnostic
    from vyre.ir.places import describe

    found: list[dict[str, Any]] = []
    wrong = False
    for path in paths:
        try:
            program = read_program(path)
        except VyreError as error:
            wrong = True
            found.append(
                {"file": path, "severity": "error", "code": error.code, "message": error.message, "fix": error.fix}
            )
            if not as_json:
                print(error if isinstance(error, ParseError) else f"{path}: {error}", end="\n\n")
            continue
        report = check_program(program)
        wrong |= bool(report.errors)
        for diagnostic in (*report.errors, *report.warnings):
            entry = {"file": path, "place": describe(program, diagnostic.place), "severity": diagnostic.severity.value}
            found.append({**entry, "code": diagnostic.code, "message": diagnostic.message, "fix": diagnostic.fix})
            if not as_json:
                print(render_diagnostic(program, diagnostic), end="\n\n")
        if report.ok and not as_json:
            print(f"{path}: {program.name} is legal")
    if as_json:
        print_json(found)
    if wrong:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def fmt(
    paths: ProgramPaths,
    write: Annotated[bool, typer.Option("--write", "-w", help="Write the files instead of printing them.")] = False,
    only_check: Annotated[bool, typer.Option("--check", help="Name the files that are not formatted.")] = False,
) -> None:
    """Lay out programs in their one form; comments stay.

    Example: vyre fmt --check examples/*.vyre
    """
    from vyre.ir.format import format_text

    unformatted = False
    for path in paths:
        text = as_text(read_bytes(path), path)
        formatted = format_text(text, path)
        if only_check:
            if formatted != text:
                unformatted = True
                print(f"{path} is not formatted")
        elif write and path != "-":
            if formatted != text:
                Path(path).write_text(formatted, encoding="utf-8")
        else:
            print(formatted, end="")
    if unformatted:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def optimize(
    path: ProgramPath,
    explain: Annotated[bool, typer.Option("--explain", help="Tell what was done, with a diff.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an equivalent program that does no more.

    Example: vyre optimize examples/reach.vyre --explain
    """
    from vyre.cli.optimizing import explanation
    from vyre.driver.optimizing import optimize as optimise

    program = read_program(path)
    _require_legal(program)
    better, report = optimise(program, report=True)
    if as_json:
        import msgspec

        print_json({"program": str(better), **msgspec.to_builtins(report)})
    elif explain:
        print(explanation(program, better, report))
    else:
        print(better, end="")


@app.command()
def show(
    path: ProgramPath,
    plan: Annotated[
        bool, typer.Option("--plan", help="Draw the launches, the state they carry, who follows whom.")
    ] = False,
    segments: Annotated[
        bool, typer.Option("--segments", help="With --plan, print each segment's program too.")
    ] = False,
    grid: Annotated[str | None, typer.Option(help="Workgroups for --plan: X, X,Y or X,Y,Z.")] = None,
    elements: Annotated[int, typer.Option(min=0, help="Elements of run-time sized buffers, for --plan.")] = 1024,
    llvm: Annotated[bool, typer.Option("--llvm", help="Print the LLVM IR that the cpu backend compiles.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="Print the machine code that the cpu backend runs.")] = False,
    wgsl: Annotated[bool, typer.Option("--wgsl", help="Print the WGSL that the webgpu backend compiles.")] = False,
    wire: Annotated[str | None, typer.Option(help="Write the wire image to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a program: its text, its buffers, its counts, its fingerprint; or the launches it becomes.

    Example: vyre show examples/reach.vyre --plan --elements 4096
    """
    from vyre.ir.wire import encode

    program = read_program(path)
    if wire is not None:
        Path(wire).write_bytes(encode(program))
    if plan:
        _require_legal(program)
        _show_plan(program, _parse_grid(grid), elements, segments, as_json)
        return
    if llvm or asm or wgsl:
        _require_legal(program)
        _show_code(program, llvm, asm, wgsl)
        return
    facts = _facts(program)
    if as_json:
        print_json({**facts, "text": str(program)})
        return
    print(program)
    print()
    for name, value in facts.items():
        print(f"{name:<13} {', '.join(f'{k} {v}' for k, v in value.items()) if isinstance(value, dict) else value}")


def _show_code(program: Program, llvm: bool, asm: bool, wgsl: bool) -> None:
    from vyre.driver.registry import backend

    pipeline: Any
    if llvm or asm:
        with backend("cpu") as device:
            pipeline = device.compile(program)
            if llvm:
                print(pipeline.llvm())
            if asm:
                print(pipeline.asm())
    if wgsl:
        with backend("webgpu") as device:
            pipeline = device.compile(program)
            print(pipeline.wgsl())


def _show_plan(program: Program, grid: tuple[int, ...] | None, elements: int, segments: bool, as_json: bool) -> None:
    from vyre.ir.launch import decide_launch
    from vyre.lower import describe_plan, plan_grid_sync

    sizes = {decl.name: decl.count or elements for decl in program.input_buffers()}
    plan = plan_grid_sync(program, decide_launch(program, sizes, grid=grid))
    if as_json:
        parts = [{"label": s.label, "exits": list(s.exits), "text": str(s.program)} for s in plan.segments]
        state = [{"name": s.name, "bytes": s.bytes * s.copies, "what": s.what} for s in plan.state]
        print_json({"straight": plan.straight, "segments": parts, "state": state})
        return
    print(describe_plan(plan), end="")
    for segment in plan.segments if segments else ():
        print(f"\n# {segment.label}\n{segment.program}")


def _require_legal(program: Program) -> None:
    """Ends the command with the diagnostics of a program that may not run."""
    from vyre.checker import check as check_program
    from vyre.checker import render_diagnostic

    report = check_program(program)
    for diagnostic in report.errors:
        print(render_diagnostic(program, diagnostic), file=sys.stderr)
    if report.errors:
        raise typer.Exit(EXIT_WRONG)


def _facts(program: Program) -> dict[str, Any]:
    stats = program.stats()
    return {
        "name": program.name,
        "fingerprint": program.fingerprint().hex(),
        "workgroup": list(program.workgroup_size),
        "buffers": {decl.name: decl.role.value for decl in program.buffers},
        "statements": stats.statements,
        "expressions": stats.expressions,
        "nesting": stats.nesting,
        "depth": stats.expression_depth,
        "kinds": dict(sorted(stats.kinds.items())),
        "types": sorted(str(dtype) for dtype in stats.dtypes),
    }


def _parse_grid(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not X, X,Y or X,Y,Z in workgroups.", param_hint="--grid") from None


def _parse_schedule(text: str | None) -> Schedule:
    from vyre.reference import IN_ORDER, REVERSED, seeded

    if text is None or text == "in-order":
        return IN_ORDER
    if text == "reversed":
        return REVERSED
    if text.isdecimal():
        return seeded(int(text))
    raise typer.BadParameter(f"'{text}' is not in-order, reversed or a number.", param_hint="--schedule")


def _progress(what: str, *, show: bool) -> Any:
    """A spinner on standard error while something long runs; nothing when nobody watches."""
    from contextlib import nullcontext

    if not show or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(what)
