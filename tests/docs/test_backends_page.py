"""The page about backends: its pieces run and print what it says, and are the device that the driver's tests use."""

from __future__ import annotations

import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from vyre.driver import Device

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "backends.md").read_text(encoding="utf-8")
# The Python blocks, each with the output that stands behind it, if there is one.
PIECES = re.findall(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", PAGE, re.DOTALL)


def test_the_pieces_of_the_page_run() -> None:
    assert len(PIECES) == PAGE.count("```python") > 5
    names: dict[str, object] = {}
    for code, printed in PIECES:
        out = StringIO()
        with redirect_stdout(out):
            exec(compile(code, "backends.md", "exec"), names)
        assert out.getvalue() == printed, code


def test_the_device_of_the_page_is_the_one_of_the_tests() -> None:
    file = (ROOT / "tests" / "driver" / "minimal_device.py").read_text(encoding="utf-8")
    definitions = [code for code, printed in PIECES if not printed]
    assert len(definitions) == 3
    assert file.partition("import annotations\n\n")[2] == "\n\n".join(definitions)


def test_the_page_names_every_optional_member() -> None:
    own = {name for name in vars(Device) if not name.startswith("_")}
    optional = own - Device.__abstractmethods__ - {"accepts_with_driver"}
    assert {name for name in optional if f"`{name}`" not in PAGE} == set()
