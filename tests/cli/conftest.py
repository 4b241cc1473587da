from __future__ import annotations

from pathlib import Path

import pytest

from command_support import Told, a_home_with_examples, command


@pytest.fixture
def vyre(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Told:
    """The command, run in the repository."""
    return command(monkeypatch, capfd)


@pytest.fixture
def vyre_at_home(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Told:
    """The command, run in a directory of its own, where it may write."""
    return command(monkeypatch, capfd, a_home_with_examples(tmp_path))
