"""The README's Python examples do what they say."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


def block(first_line: str) -> str:
    """The indented block of the page that begins with this line."""
    text = README.read_text(encoding="utf-8")
    lines = []
    for line in text[text.index(f"    {first_line}\n") :].splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines))


def test_the_kernel_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    code = block("import numpy as np, vyre")
    Path("readme.py").write_text(code, encoding="utf-8")
    exec(compile(code, "readme.py", "exec"), {})
    assert capsys.readouterr().out == "[1. 3. 5. 7.] 'saxpy' is clean under 8 schedules\n"


def test_the_python_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("import numpy as np\n    import vyre"), "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert out.startswith("program main(workgroup 64) {")
    assert out.count("[0 2 4 6 8]") == 2


def test_the_library_lines_run(capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(block("import numpy as np\n    from vyre.lib import graph, scan"), "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == [
        "[         0          1          1          2          3 4294967295] "
        "[False False  True  True  True False] [0 0 0 0 0 5]",
        "[0 3 4 8 9]",
    ]
