"""Every command that docs/command.md shows runs, and ends as it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from command_support import ROOT, a_home_with_examples, command
from vyre.cli.commands import app

PAGE = (ROOT / "docs" / "command.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^    \$ vyre (.*?)(?:   # exit (\d))?$", PAGE, re.MULTILINE)


def test_the_page_has_every_command() -> None:
    for info in app.registered_commands:
        assert info.callback is not None
        assert re.search(rf"`(vyre )?{info.callback.__name__}\b|\$ vyre {info.callback.__name__}\b", PAGE)


def test_the_commands_of_the_page_run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    vyre = command(monkeypatch, capfd, a_home_with_examples(tmp_path))
    assert len(SHOWN) > 15
    for line, code in SHOWN:
        if line != "demo":  # which has a test of its own
            vyre(*shlex.split(line), code=int(code or 0))
    assert {"sums.npz", "reach.html", "cpu.json", "sum.json"} <= {path.name for path in tmp_path.iterdir()}
