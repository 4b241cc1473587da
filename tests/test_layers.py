"""The architecture: which package may import which. Imports point one way, also those inside functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "vyre"

# For each package, those it may import. A package left out of a row is right of it, or none of its business.
ALLOWED = {
    "semantics": set(),
    "ir": {"semantics"},
    "analyze": {"ir", "semantics"},
    "checker": {"analyze", "ir", "semantics"},
    "reference": {"checker", "ir", "semantics"},
    "optimizer": {"checker", "analyze", "ir", "semantics"},
    "lower": {"checker", "analyze", "ir", "semantics"},
    "emit": {"lower", "checker", "analyze", "ir", "semantics"},
    "driver": {"optimizer", "lower", "checker", "analyze", "ir", "semantics"},
    "backends": {"driver", "emit", "lower", "reference", "checker", "analyze", "ir", "semantics"},
    "lang": {"driver", "reference", "checker", "ir", "semantics"},
    "lib": {"lang", "driver", "optimizer", "ir", "semantics"},
    "conform": {"optimizer", "lower", "driver", "reference", "checker", "analyze", "ir", "semantics"},
    "report": {"optimizer", "driver", "lower", "checker", "ir", "semantics"},
    "cli": {"report", "conform", "optimizer", "driver", "lower", "reference", "checker", "ir", "semantics"},
}


def imported(path: Path) -> set[str]:
    """The packages of vyre that a module imports when it runs, wherever in it the import stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    names: set[str] = set()
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {name.split(".")[1] for name in names if name.startswith("vyre.")}


@pytest.mark.parametrize("package", sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()))
def test_imports_point_one_way(package: str) -> None:
    for path in (SOURCE / package).rglob("*.py"):
        others = {name for name in imported(path) if (SOURCE / name).is_dir()} - {package}
        assert others <= ALLOWED[package], f"{path.relative_to(SOURCE)} imports {sorted(others - ALLOWED[package])}"
