"""What can the ``vyre`` command do? Every command, in the order in which help lists them."""

from __future__ import annotations

from vyre.cli.app import app
from vyre.cli.executing import run, telemetry, trace
from vyre.cli.looking import check, fmt, optimize, report, show
from vyre.cli.machine import backends, bench, cache, conform, demo

__all__ = ["app"]

for _command in (
    demo, run, check, fmt, show, optimize, report, backends, conform, bench, trace, cache, telemetry,
):  # fmt: skip
    app.command()(_command)
