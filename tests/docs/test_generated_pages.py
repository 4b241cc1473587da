"""The generated pages of docs/ say what the tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("make_docs", ROOT / "scripts" / "make_docs.py")
assert _spec is not None
assert _spec.loader is not None
make_docs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_docs)


@pytest.mark.parametrize("name", sorted(make_docs.PAGES))
def test_a_generated_page_is_up_to_date(name: str) -> None:
    written = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert written == make_docs.PAGES[name](), "run make docs"
