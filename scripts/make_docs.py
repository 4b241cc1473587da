"""Writes the pages of ``docs/`` that are generated from tables: the diagnostics and the operators."""

from __future__ import annotations

from pathlib import Path

from vyre.checker.codes import CODES
from vyre.semantics.operators import OPERATORS, Result

DOCS = Path(__file__).resolve().parent.parent / "docs"


def errors_page() -> str:
    """Every diagnostic code."""
    rows = "\n".join(
        f"| {rule.code} | {rule.severity.value} | {rule.title} | {_cell(rule.doc)} | {_cell(rule.fix)} |"
        for rule in sorted(CODES.values(), key=lambda rule: rule.code)
    )
    return (
        "# Diagnostics\n\n"
        "Generated from `vyre/checker/codes.py` by `make docs`. Codes never change their meaning.\n\n"
        "| code | severity | what | rule | fix |\n|---|---|---|---|---|\n" + rows + "\n"
    )


def operators_page() -> str:
    """Every operator."""
    results = {Result.SAME: "the operands' type", Result.BOOL: "bool", Result.UNSIGNED: "the unsigned type"}
    rows = "\n".join(
        f"| {row.name} | `{_cell(_spelled(row.spelling, row.arity))}` | {' '.join(t.label for t in row.types)} "
        f"| {results[row.result]} | {_cell(row.doc)} |"
        for row in OPERATORS.values()
    )
    return (
        "# Operators\n\n"
        "Generated from `vyre/semantics/operators.py` by `make docs`. Operands have one common type; every operator "
        "has a value for all operands.\n\n"
        "| name | text | types | result | meaning |\n|---|---|---|---|---|\n" + rows + "\n"
    )


def _spelled(spelling: str, arity: int) -> str:
    if spelling.isidentifier():
        return f"{spelling}({', '.join('ab'[:arity])})"
    return f"a {spelling} b" if arity == 2 else f"{spelling}a"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {"errors.md": errors_page, "operators.md": operators_page}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
