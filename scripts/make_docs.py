"""Writes the pages of ``docs/`` that are generated from tables: the diagnostics, the operators and the rules."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from vyre import errors
from vyre.checker.codes import CODES
from vyre.lang.intrinsics import INTRINSICS
from vyre.optimizer.facts import FACTS
from vyre.optimizer.rules import GROUPS, RULES
from vyre.semantics.operators import OPERATORS, Result
from vyre.semantics.types import ALL_TYPES, FLOATS, INTEGERS, NUMBERS, SIGNED, UNSIGNED, DType

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
        "| code | severity | what | rule | fix |\n|---|---|---|---|---|\n" + rows + "\n\n"
        "# Errors\n\n"
        "What can be raised, from `vyre/errors.py`: all are `vyre.VyreError`, with `code`, `message` and `fix`. The "
        "command prints them and ends with 3 for `backend-unavailable` and `unsupported-feature`, with 1 for the "
        "others.\n\n"
        "| code | class | what |\n|---|---|---|\n" + "\n".join(_error_rows()) + "\n"
    )


def _error_rows() -> list[str]:
    """Every error that has a code of its own, which stands in what makes it."""
    rows = []
    for name, error in sorted(vars(errors).items()):
        if not (isinstance(error, type) and issubclass(error, errors.VyreError)) or error is errors.VyreError:
            continue
        found = re.search(r'(?:__init__\(\s*|code(?:: str)? ?= ?)"([a-z-]+)"', inspect.getsource(error))
        assert found is not None, name
        rows.append(f"| `{found[1]}` | `{name}` | {_cell((error.__doc__ or '').splitlines()[0]).replace('``', '`')} |")
    return sorted(rows)


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


def functions_page() -> str:
    """Every function that kernels call."""
    rows = "\n".join(f"| `{_cell(repr(one))}` | {_cell(one.doc)} |" for one in INTRINSICS.values())
    return (
        "# Functions of kernels\n\n"
        "Generated from `vyre/lang/intrinsics.py` by `make docs`. Parameters with a `=` may be left out; `min` and "
        "`max` take two operands or more. Python's own `min`, `max`, `abs`, `round` and `len` are these too, and the "
        "name of a type casts: `f32(x)`. [kernels.md](kernels.md) describes the language, "
        "[operators.md](operators.md) what each operator gives for which types.\n\n"
        "| call | gives or does |\n|---|---|\n" + rows + "\n"
    )


def rules_page() -> str:
    """Every rule of the optimizer, by group."""
    pages = [
        "# Rules\n\n"
        "Generated from `vyre/optimizer/rules.py` by `make docs`; `make prove` proves every rule for every type it "
        "claims. Of the rules that match, the first is taken. `x y z` are any values of a type T, `v` is one that is "
        "no literal, `c d` are literals; `s t` are values and `k` a literal of another type S; `p q` are bool. What is "
        "made of literals alone is computed when the rule matches. Commutative operations match in either order. In a "
        "condition `x0` are the bits of `x` that are known to be 0, and `x1` those known to be 1; what is known of an "
        "operation is at the end of this page.\n"
    ]
    for group in GROUPS:
        rows = "\n".join(
            f"| {rule.name} | `{_cell(rule.pattern)}` | `{_cell(rule.replacement)}` | "
            f"{_quoted(rule.when)} | {_types(rule.types, bool(rule.pairs))} |"
            for rule in RULES
            if rule.group == group
        )
        pages.append(f"## {group}\n\n| rule | from | to | when | types |\n|---|---|---|---|---|\n{rows}\n")
    facts = "\n".join(
        f"| `{_cell(fact.pattern)}` | `{_cell(fact.zeros)}` | `{_cell(fact.ones)}` | {_quoted(fact.when)} | "
        f"{_quoted(fact.first)} | {_quoted(fact.second)} | {_types(fact.types, False)} |"
        for fact in FACTS
    )
    pages.append(
        "## Known bits\n\n"
        "Generated from `vyre/optimizer/facts.py`, and proved too. An operation all of whose bits are known is a "
        "literal. The switch `bits` turns it off.\n\n"
        "| operation | bits that are 0 | bits that are 1 | if | is its first operand if | is its second if | types |\n"
        f"|---|---|---|---|---|---|---|\n{facts}\n"
    )
    return "\n".join(pages)


def _quoted(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def _types(types: tuple[DType, ...], related: bool) -> str:
    """Types by the names of their families, where they have one."""
    families = {NUMBERS: "numbers", INTEGERS: "integers", FLOATS: "floats", SIGNED: "signed", UNSIGNED: "unsigned"}
    if types == ALL_TYPES or related:
        return "those that keep the value" if related else "all"
    for family, name in families.items():
        if set(family) <= set(types):
            return ", ".join((name, *(dtype.label for dtype in types if dtype not in family)))
    return " ".join(dtype.label for dtype in types)


def _spelled(spelling: str, arity: int) -> str:
    if spelling.isidentifier():
        return f"{spelling}({', '.join('ab'[:arity])})"
    return f"a {spelling} b" if arity == 2 else f"{spelling}a"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGES = {
    "errors.md": errors_page,
    "functions.md": functions_page,
    "operators.md": operators_page,
    "rules.md": rules_page,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
