"""The README's Python example does what it says."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = README.read_text(encoding="utf-8")
    start = text.index("    import numpy as np\n")
    block = []
    for line in text[start:].splitlines():
        if line and not line.startswith("    "):
            break
        block.append(line)
    exec(compile(textwrap.dedent("\n".join(block)), "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert out.startswith("program main(workgroup 64) {")
    assert out.count("[0 2 4 6 8]") == 2
