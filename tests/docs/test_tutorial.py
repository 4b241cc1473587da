"""The pages about kernels: their pieces run one after the other, and print what the page says."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["tutorial", "kernels", "library"])
def test_the_pieces_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    # The Python blocks, each with the output that stands behind it.
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL)
    assert len(found) == text.count("```python") > 3
    # One file, as a reader would have it: kernels are read from their file.
    file = Path(f"{page}.py")
    file.write_text("".join(code for code, _ in found), encoding="utf-8")
    names: dict[str, object] = {}
    line = 0
    for code, printed in found:
        out = StringIO()
        with redirect_stdout(out):
            exec(compile("\n" * line + code, file.name, "exec"), names)
        assert out.getvalue() == printed, code
        line += code.count("\n")
