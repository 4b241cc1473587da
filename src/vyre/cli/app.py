"""What do the commands share? The application, their options, and how they tell what they found."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from vyre.cli import EXIT_WRONG
from vyre.ir.program import Program

app = typer.Typer(
    name="vyre",
    help="Parallel programs with one meaning: check them, look at them, run them.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ROUTES: Final = ("auto", "native", "resident", "host")


def _backend_names(incomplete: str) -> list[str]:
    from importlib.metadata import entry_points

    from vyre.driver.registry import GROUP

    return sorted(name for name in entry_points(group=GROUP).names if name.startswith(incomplete))


def _route_names(incomplete: str) -> list[str]:
    return [route for route in ROUTES if route.startswith(incomplete)]


ProgramPath = Annotated[
    str, typer.Argument(help="A .vyre text or a wire image; - is standard input.", metavar="PROGRAM")
]
ProgramPaths = Annotated[list[str], typer.Argument(help="Files to read; - is standard input.", metavar="PROGRAM...")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", help="name=file.npy, name=file.bin, name=[1,2,3], name='zeros(8)', or all.npz."),
]
Grid = Annotated[str | None, typer.Option("--grid", help="Workgroups: X, X,Y or X,Y,Z.")]
Elements = Annotated[int | None, typer.Option("--elements", min=0, help="Elements to cover, instead of a grid.")]
BackendName = Annotated[
    str | None,
    typer.Option("--backend", "-b", help="Who runs it; `vyre backends` lists them.", autocompletion=_backend_names),
]
RouteName = Annotated[
    str,
    typer.Option("--route", help="How grid barriers run: auto, native, resident or host.", autocompletion=_route_names),
]
Iterations = Annotated[
    int | None,
    typer.Option("--iterations", help="Run again on the same buffers until nothing changes, so often at most."),
]
Optimizer = Annotated[bool, typer.Option("--optimize/--no-optimize", help="Whether the program is optimized first.")]


def parse_grid(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise typer.BadParameter(f"'{text}' is not X, X,Y or X,Y,Z in workgroups.", param_hint="--grid")
    return tuple(map(int, parts))


def parse_route(text: str) -> Any:
    if text not in ROUTES:
        raise typer.BadParameter(f"'{text}' is not one of {', '.join(ROUTES)}.", param_hint="--route")
    return text


def require_legal(program: Program) -> None:
    """Ends the command with the diagnostics of a program that may not run."""
    from vyre.checker import check

    report = check(program)
    if report.errors:
        print(type(report)(report.errors).render(program), file=sys.stderr)
        raise typer.Exit(EXIT_WRONG)


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as what is in them; the last one is as long as it likes."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    for line in lines:
        print("  ".join([cell.ljust(width) for cell, width in zip(line, widths, strict=False)] + [line[-1]]).rstrip())


def print_diff(text: str) -> None:
    """Lines of a diff, in colour where a person looks at them."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    styles = {"+": "green", "-": "red", "@": "cyan"}
    console = Console(highlight=False, soft_wrap=True)
    for line in text.splitlines():
        console.print(Text(line, styles.get(line[:1], "")))


@contextmanager
def spinner(what: str, *, show: bool = True) -> Iterator[Callable[[str], None]]:
    """Something that moves on standard error while something long runs; nothing when nobody watches."""
    if not show or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:
        yield lambda text: status.update(text)


@contextmanager
def progress_bar(what: str, *, show: bool = True) -> Iterator[Callable[[float, str], None]]:
    """A bar on standard error, told how much is done (from 0 to 1) and what to say; nothing when nobody watches."""
    if not show or not sys.stderr.isatty():
        yield lambda _share, _text: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=1.0)
        yield lambda share, text: bars.update(task, completed=share, description=text)
