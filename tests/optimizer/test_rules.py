"""Tests of the rule table: well formed, correct on sample values, terminating. Proofs cover all values."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from rule_semantics import find_action
from sample_rows import Rows, apply, cost, edge_bits, evaluate

from vyre.optimizer.arena import Kind, kind_of, type_of
from vyre.optimizer.patterns import Form, Literal, Operation, Value, is_constant, mask_owner, subterms
from vyre.optimizer.rules import GROUPS, RULES, TABLE
from vyre.optimizer.switches import PASSES, group_bits
from vyre.semantics.types import DType

ALL = frozenset(GROUPS)
U32 = DType.U32


def simplified(rows: Rows, row: int) -> int:
    """Apply rules while one matches, each of which must lower the cost; return the representative."""
    before = cost(rows.columns, row)
    while not rows.fold(row):
        literal_row = rows.leaf(type_of(rows.columns.head[row]))
        action = find_action(rows.columns, row, ALL, literal_row)
        if action is None:
            return row
        row = apply(rows.columns, row, action, literal_row)
        after = cost(rows.columns, row)
        assert after < before, TABLE[action.form].rule.name
        before = after
    return row


def test_names_are_unique_and_groups_fit_a_word() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    # The bits of the passes stand above those of the groups.
    assert max(group_bits().values()) < min(PASSES.values())


@pytest.mark.parametrize("group", GROUPS)
def test_rules_fit_the_matcher(group: str) -> None:
    for form in TABLE:
        if form.rule.group == group:
            check_form(form)


def check_form(form: Form) -> None:
    inner = [part for operand in form.pattern.operands if isinstance(operand, Operation) for part in operand.operands]
    assert not any(isinstance(part, Operation) for part in inner), "a pattern has at most two levels"
    bound = {part.name for part in subterms(form.pattern) if isinstance(part, (Value, Literal))}
    assert {part.name for part in subterms(form.replacement) if isinstance(part, (Value, Literal))} <= bound
    if form.condition is not None:
        assert is_constant(form.condition)
        names = {part.name for part in subterms(form.condition) if isinstance(part, Literal)}
        assert {mask_owner(name) or name for name in names} <= bound
    if isinstance(form.replacement, Operation) and not is_constant(form.replacement):
        computed = [one for one in form.replacement.operands if not isinstance(one, (Value, Literal))]
        assert len(computed) <= 1
        assert all(map(is_constant, computed)), (
            "a replacement is one operation, on matched rows and at most one new literal"
        )


def test_every_form_matches_some_row() -> None:
    rows, matched = Rows(5), Counter[int]()
    for form in TABLE:
        for _ in range(800):
            action = find_action(rows.columns, rows.matching(form), ALL, 0)
            matched[-1 if action is None else action.form] += 1
            if matched[form.index]:
                break
    assert [form.rule.name for form in TABLE if not matched[form.index]] == []


@pytest.mark.parametrize("seed", range(12))
def test_rules_preserve_values_and_terminate(seed: int) -> None:
    """Rows that rules match, built on each other; leaves have edge values."""
    rows = Rows(seed)
    for _ in range(250):
        rows.any_matching()
    operations = [row for row, word in enumerate(rows.columns.head) if kind_of(word) == Kind.OPERATION]
    source = random.Random(seed)
    size = len(rows.columns.head)
    samples = [
        {row: source.choice(edge_bits(type_of(rows.columns.head[row]))) for row in range(size)} for _ in range(6)
    ]
    before = [evaluate(rows.columns, leaves) for leaves in samples]
    representatives: dict[int, int] = {}
    for row in operations:
        rows.resolve(row, representatives)
        representatives[row] = simplified(rows, row)
    for leaves, values in zip(samples, before, strict=True):
        after = evaluate(rows.columns, leaves)
        assert [after[representatives[row]] for row in operations] == [values[row] for row in operations]


def test_a_disabled_group_does_nothing() -> None:
    rows = Rows(3)
    for form in TABLE:
        action = find_action(rows.columns, rows.matching(form), ALL - {form.rule.group}, 0)
        assert action is None or TABLE[action.form].rule.group != form.rule.group


def test_sums_cancel_across_levels() -> None:
    """(5 + x) - x, (p*q + 0) - p*q and ~(~(~(-y)))."""
    rows = Rows(0)
    x, y = rows.leaf(U32), rows.leaf(U32)
    five, zero = rows.literal(5, U32), rows.literal(0, U32)
    total = simplified(rows, rows.operation("add", U32, [five, x]))
    assert simplified(rows, rows.operation("sub", U32, [total, x])) == five
    product = rows.operation("mul", U32, [x, y])
    total = simplified(rows, rows.operation("add", U32, [product, zero]))
    nothing = simplified(rows, rows.operation("sub", U32, [total, product]))
    assert rows.columns.is_literal(nothing)
    assert rows.columns.bits(nothing) == 0
    negated = rows.operation("neg", U32, [y])
    flipped = simplified(rows, rows.operation("not", U32, [negated]))
    twice = simplified(rows, rows.operation("not", U32, [rows.operation("not", U32, [negated])]))
    assert twice == negated
    assert rows.columns.head[flipped] == rows.columns.head[rows.operation("sub", U32, [y, five])]
