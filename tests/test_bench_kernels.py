"""The kernels that are measured are legal, and each is named as its file."""

from __future__ import annotations

from pathlib import Path

import pytest

import vyre
from vyre.ir import parse

KERNELS = sorted((Path(__file__).resolve().parents[1] / "bench" / "kernels").glob("*.vyre"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_kernel_is_legal(path: Path) -> None:
    program = parse(path.read_text(encoding="utf-8"))
    assert program.name == path.stem
    assert not vyre.check(program).errors
