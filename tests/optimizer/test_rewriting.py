"""The interpreter of the rule table agrees with the rules and facts, on every backend."""

from __future__ import annotations

import pytest
from rewriting_support import differences, rewrite_rows
from sample_rows import Rows

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.ir import walk
from vyre.optimizer.arena import Kind, kind_of
from vyre.optimizer.bytecode import rule_table
from vyre.optimizer.kernels import kernels
from vyre.optimizer.rules import GROUPS, RULES, TABLE
from vyre.optimizer.switches import Optimization


def rows_for_all(seed: int, times: int) -> Rows:
    rows = Rows(seed)
    for form in TABLE:
        for _ in range(times):
            rows.matching(form)
    return rows


def operations(rows: Rows) -> list[int]:
    return [row for row, word in enumerate(rows.columns.head) if kind_of(word) == Kind.OPERATION]


@pytest.mark.parametrize("seed", range(3))
def test_kernel_agrees_with_rules(seed: int) -> None:
    rows = rows_for_all(seed, 8)
    assert differences(rows.columns, operations(rows), frozenset(), backend())[:3] == []
    _, fired = rewrite_rows(rows.columns, operations(rows), Optimization().bits, backend())
    assert len(fired) > 0.95 * len(RULES)


def test_kernel_agrees_with_rules_without_evaluation_and_facts() -> None:
    """Without evaluation, rules also match operations on literals."""
    rows = rows_for_all(5, 4)
    assert differences(rows.columns, operations(rows), frozenset({"fold", "bits"}), backend())[:3] == []


def test_kernel_agrees_with_rules_on_the_reference() -> None:
    rows = rows_for_all(7, 1)
    on = ReferenceBackend(fuel=1_000_000_000)
    assert differences(rows.columns, operations(rows), frozenset(), on)[:3] == []


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_can_be_disabled_and_can_be_the_only_one(group: str) -> None:
    rows = rows_for_all(11, 1)
    for off in (frozenset({group}), frozenset(GROUPS) - {group}):
        assert differences(rows.columns, operations(rows), off, backend())[:3] == []
    _, fired = rewrite_rows(
        rows.columns, operations(rows), Optimization(off=frozenset(GROUPS) - {group}).bits, backend()
    )
    assert any(rule.group == group and rule.name in fired for rule in RULES)


def test_simplify_is_a_few_hundred_statements() -> None:
    assert sum(1 for _ in walk.statements(kernels().simplify.entry)) < 800


def test_the_table_is_compact() -> None:
    assert rule_table().words.nbytes < 48 << 10
