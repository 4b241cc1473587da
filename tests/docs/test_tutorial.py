"""The tutorial's pieces run one after the other, and print what the page says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


def pieces() -> list[tuple[str, str]]:
    """The Python blocks, each with the output that stands behind it."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)


def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = pieces()
    assert len(found) == PAGE.read_text(encoding="utf-8").count("```python") > 10
    # One file, as a reader would have it: kernels are read from their file.
    Path("tutorial.py").write_text("".join(code for code, _ in found), encoding="utf-8")
    names: dict[str, object] = {}
    line = 0
    for code, printed in found:
        out = StringIO()
        with redirect_stdout(out):
            exec(compile("\n" * line + code, "tutorial.py", "exec"), names)
        assert out.getvalue() == printed, code
        line += code.count("\n")
