"""Which commands look at a program without running it? ``check fmt show optimize report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vyre.cli import EXIT_WRONG
from vyre.cli.app import (
    AsJson,
    Grid,
    Inputs,
    Optimizer,
    ProgramPath,
    ProgramPaths,
    parse_grid,
    print_diff,
    require_legal,
    spinner,
)
from vyre.cli.files import as_text, print_json, read_bytes, read_inputs, read_program, require_writable
from vyre.errors import BackendUnavailable, ParseError, VyreError
from vyre.ir.program import Program


def check(paths: ProgramPaths, as_json: AsJson = False) -> None:
    """Say what is wrong with programs, where, and how to fix it.

    Example:

      vyre check examples/saxpy.vyre examples/life.vyre
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


def fmt(
    paths: ProgramPaths,
    write: Annotated[bool, typer.Option("--write", "-w", help="Write the files instead of printing them.")] = False,
    only_check: Annotated[bool, typer.Option("--check", help="Name the files that are not formatted.")] = False,
) -> None:
    """Lay out programs in their one form; comments stay.

    Example:

      vyre fmt --check examples/saxpy.vyre
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


def show(
    path: ProgramPath,
    plan: Annotated[
        bool, typer.Option("--plan", help="Draw the launches, the state they carry, who follows whom.")
    ] = False,
    segments: Annotated[bool, typer.Option("--segments", help="Like --plan, with each segment's program.")] = False,
    grid: Grid = None,
    elements: Annotated[int, typer.Option(min=0, help="Elements of run-time sized buffers, for --plan.")] = 1024,
    llvm: Annotated[bool, typer.Option("--llvm", help="Print the LLVM IR that the cpu backend compiles.")] = False,
    asm: Annotated[bool, typer.Option("--asm", help="Print the machine code that the cpu backend runs.")] = False,
    wgsl: Annotated[bool, typer.Option("--wgsl", help="Print the WGSL that the webgpu backend compiles.")] = False,
    ptx: Annotated[bool, typer.Option("--ptx", help="Print PTX (no backend here writes it yet).")] = False,
    optimized: Optimizer = True,
    wire: Annotated[str | None, typer.Option(help="Write the wire image to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a program, or the launches or the code it becomes.

    Examples:

      vyre show examples/reach.vyre --plan --elements 4096

      vyre show examples/saxpy.vyre --asm --no-optimize
    """
    from vyre.ir.wire import encode

    if ptx:
        raise BackendUnavailable(
            "cuda", "there is no PTX emitter yet.", "look at --llvm and --asm (cpu) or --wgsl (webgpu) instead."
        )
    axes = parse_grid(grid)
    program = read_program(path)
    if wire is not None:
        Path(wire).write_bytes(encode(program))
    if plan or segments:
        require_legal(program)
        _show_plan(program, axes, elements, segments, as_json)
    elif llvm or asm or wgsl:
        require_legal(program)
        kinds = [name for name, is_on in (("llvm", llvm), ("asm", asm), ("wgsl", wgsl)) if is_on]
        _show_code(program, kinds, optimized, as_json)
    else:
        _show_program(program, as_json)


def _show_program(program: Program, as_json: bool) -> None:
    facts = _facts(program)
    if as_json:
        print_json({**facts, "text": str(program)})
        return
    print(program)
    print()
    for name, value in facts.items():
        match value:
            case dict():
                shown = ", ".join(f"{key} {one}" for key, one in value.items())
            case list():
                shown = ", ".join(map(str, value))
            case _:
                shown = str(value)
        print(f"{name:<13} {shown}")


def _show_code(program: Program, kinds: list[str], optimized: bool, as_json: bool) -> None:
    from vyre.report import generated_code

    with spinner(f"compiling {program.name}", show=not as_json):
        code = {kind: generated_code(program, kind, optimize=optimized) for kind in kinds}
    if as_json:
        print_json(code)
    else:
        for text in code.values():
            print(text)


def _show_plan(program: Program, grid: tuple[int, ...] | None, elements: int, segments: bool, as_json: bool) -> None:
    from vyre.lower import describe_plan
    from vyre.report import plan_for

    plan = plan_for(program, grid, elements)
    if as_json:
        parts = [{"label": s.label, "exits": list(s.exits), "text": str(s.program)} for s in plan.segments]
        state = [{"name": s.name, "bytes": s.bytes * s.copies, "what": s.what} for s in plan.state]
        print_json({"straight": plan.straight, "segments": parts, "state": state})
        return
    print(describe_plan(plan), end="")
    for segment in plan.segments if segments else ():
        print(f"\n# {segment.label}\n{segment.program}")


def optimize(
    path: ProgramPath,
    explain: Annotated[bool, typer.Option("--explain", help="Tell what was done, with a diff.")] = False,
    off: Annotated[
        list[str] | None, typer.Option(help="A pass or a group of rules to leave out; docs/optimizer.md lists them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an equivalent program that does no more.

    Example:

      vyre optimize examples/reach.vyre --explain --off motion
    """
    from vyre.driver.optimizing import default_dispatcher, optimize
    from vyre.optimizer.passes import ALL_PASSES
    from vyre.optimizer.switches import Optimization
    from vyre.report.explanation import explanation

    switches = Optimization(off=frozenset(off or ()))
    program = read_program(path)
    require_legal(program)
    with spinner(f"optimizing {program.name}", show=not as_json):
        better, report = optimize(program, report=True, switches=switches)
    if as_json:
        import msgspec

        print_json({"program": str(better), **msgspec.to_builtins(report)})
    elif explain:
        dispatcher = default_dispatcher()
        single = [(one.name, one(program, dispatcher)[1]) for one in ALL_PASSES]
        print_diff(explanation(program, better, report, single))
    else:
        print(better)


def report(
    path: ProgramPath,
    output: Annotated[str, typer.Option("--output", "-o", help="The page to write.")] = "report.html",
    inputs: Inputs = None,
    grid: Grid = None,
    elements: Annotated[
        int | None, typer.Option(min=0, help="Elements of run-time sized inputs that are not given.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write one page with everything about a program.

    Source, check, optimiser, segments as a picture, generated code, and timings on every backend here.
    Inputs that are not given are zeros, and the page says so.

    Example:

      vyre report examples/reach.vyre -o reach.html --elements 4096
    """
    from vyre.report import make_report, page

    axes = parse_grid(grid)
    program = read_program(path)
    data = read_inputs(program, inputs or [], complete=False)
    require_writable(output)
    with spinner(f"looking at {program.name}", show=not as_json) as say:
        made = make_report(program, data, grid=axes, elements=elements, say=say)
    Path(output).write_text(page(made), encoding="utf-8")
    if as_json:
        import msgspec

        print_json({"file": output, **msgspec.to_builtins(made.summary())})
    else:
        print(f"written to {output}")
    if not made.is_legal:
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
