"""Taint analysis of Python source: find the ways of untrusted data into dangerous calls.

    python examples/taint.py PACKAGE [--html page.html] [--json] [--exclude 'tests/*']

PACKAGE is the name of an installed package, which is read and never imported, or the path of a directory or file. Data
from the command line, the environment, standard input and the network must not reach eval, exec, a shell, pickle or SQL
text unless something makes it harmless. ``taint_analysis/tables.py`` lists what counts as which; the modules beside it
say what of Python is followed and what is approximated. The paths are found by ``vyre.lib.dataflow``.

Exit code 0 means no findings, 1 findings, 2 that nothing could be analyzed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from taint_analysis import Result, analyze
from taint_analysis.package import NotFound
from taint_analysis.page import write_page
from taint_analysis.report import print_json, print_report, show_progress

from vyre.errors import VyreError

EXIT_FINDINGS = 1
EXIT_UNUSABLE = 2

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)

Target = Annotated[str, typer.Argument(metavar="PACKAGE", help="An installed package, a directory or a file.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the findings as one HTML page.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Leave out paths like 'tests/*'; may be given several times."),
]
Backend = Annotated[str | None, typer.Option("--backend", "-b", help="The vyre backend that solves the problem.")]
AllFacts = Annotated[
    bool, typer.Option("--all-facts", help="Track all variables, not only those that may reach a sink. Same findings.")
]


@app.command()
def main(
    package: Target,
    html: Html = None,
    json: AsJson = False,
    exclude: Exclude = None,
    backend: Backend = None,
    all_facts: AllFacts = False,
) -> None:
    """Find the ways of untrusted data into eval, exec, shells, pickle and SQL text.

    Exit code 0 means no findings, 1 findings, 2 that nothing could be analyzed.
    """
    if html is not None and not html.parent.is_dir():
        fail(f"{html.parent} is no directory. Fix: make it, or write the page elsewhere.")
    try:
        result = run(package, exclude or [], backend, all_facts)
        if html is not None:
            write_page(result, html)
    except (NotFound, VyreError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename}: {error.strerror}.")
    out = Console(highlight=False, soft_wrap=True)
    if json:
        print_json(result, out)
    else:
        print_report(result, out)
        if html is not None:
            out.print(f"page: {html}")
    raise typer.Exit(EXIT_FINDINGS if result.findings else 0)


def run(package: str, exclude: list[str], backend: str | None, all_facts: bool) -> Result:
    with show_progress(Console(stderr=True)) as progress:
        return analyze(package, exclude=exclude, backend=backend, everything=all_facts, progress=progress)


def fail(message: str) -> NoReturn:
    """End with a message and without a traceback."""
    print(f"error: {message}", file=sys.stderr)
    raise typer.Exit(EXIT_UNUSABLE)


if __name__ == "__main__":
    app()
