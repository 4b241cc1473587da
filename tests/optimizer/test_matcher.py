"""The statements made from the rules do to every row what the rules say, on every backend."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sample_rows import Rows

from cpu_support import backend
from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.ir import build as b
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE
from vyre.optimizer.matcher import match_statements
from vyre.optimizer.patterns import BECOME_LITERAL, BECOME_OPERATION, FORWARD, find_action
from vyre.optimizer.rules import BY_OPERATION, GROUPS, TABLE
from vyre.semantics.types import DType

U32 = DType.U32
COLUMNS = ("head", "a0", "a1", "a2")
MASKS = ("known0", "known1", "known2", "known3")
FOUND = ("action", "rule", "target", "new_head", "new_a", "new_b", "new_c", "spare_head", "lit_lo", "lit_hi")
SPARE = 0x7FFFFFFF


@cache
def program() -> Program:
    """The statements, for the row of each invocation."""
    buffers = [BufferDecl.read(name, number, U32) for number, name in enumerate((*COLUMNS, *MASKS, "params"))]
    buffers += [BufferDecl.output(f"found_{name}", 9 + number, U32) for number, name in enumerate(FOUND)]
    row = b.gid()
    entry = [b.let("word", b.load("head", row)), b.let("spare", SPARE)]
    for operand, column in zip("abc", COLUMNS[1:], strict=True):
        entry.append(b.let(operand, b.load(column, row)))
        entry.append(b.let(f"{operand}_head", b.load("head", b.var(operand))))
        entry += [b.let(f"{operand}_{k}", b.load(f"a{k}", b.var(operand))) for k in range(3)]
    entry += [b.let(name, 0) for name in FOUND]
    entry.append(b.if_((b.var("word") & 255).eq(2), match_statements(TABLE, GROUPS)))
    entry += [b.store(f"found_{name}", row, b.var(name)) for name in FOUND]
    return Program.wrapped(buffers, 64, entry, name="match")


def check(rows: Rows, groups: frozenset[str], on: Backend) -> set[int]:
    """Compares what is done to every row; the rules that were taken."""
    columns, size = rows.columns, len(rows.columns.head)
    mask = sum(1 << GROUPS.index(group) for group in groups)
    inputs = {name: np.array(getattr(columns, name), np.uint32) for name in COLUMNS}
    padding = -size % 64
    inputs = {name: np.concatenate((column, np.zeros(padding, np.uint32))) for name, column in inputs.items()}
    known = [*(columns.known or ()), *[(0, 0)] * padding]
    masks = [[word & NONE for word in (zeros, ones, zeros >> 32, ones >> 32)] for zeros, ones in known]
    inputs |= dict(zip(MASKS, np.array(masks, np.uint32).reshape(-1, 4).T.copy(), strict=True))
    outputs = on.dispatch(program(), inputs | {"params": np.array([mask], np.uint32)})
    got = dict(zip(FOUND, (np.frombuffer(view, np.uint32).tolist() for view in outputs), strict=True))
    taken: set[int] = set()
    for row in range(size):
        action = find_action(BY_OPERATION, columns, row, groups, SPARE)
        if action is None:
            assert got["action"][row] == 0, (row, GROUPS)
            continue
        form = TABLE[action.form]
        taken.add(action.form)
        where = f"{form.rule.name} at row {row}"
        assert (got["action"][row], got["rule"][row]) == (action.kind, form.number), where
        bits = got["lit_lo"][row] | got["lit_hi"][row] << 32
        if action.kind == FORWARD:
            assert columns.same(got["target"][row], action.target), where
        elif action.kind == BECOME_LITERAL:
            assert bits == action.bits, where
        else:
            assert action.kind == BECOME_OPERATION
            assert got["new_head"][row] == action.head, where
            assert got["spare_head"][row] == action.spare_head, where
            for name, wanted in zip(("new_a", "new_b", "new_c"), action.operands, strict=True):
                found = got[name][row]
                assert found == wanted or (NONE not in (found, wanted) and columns.same(found, wanted)), where
            assert not action.spare_head or bits == action.bits, where
    return taken


def rows_for_all(seed: int, times: int) -> Rows:
    rows = Rows(seed)
    for form in TABLE:
        for _ in range(times):
            rows.matching(form)
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_rows_become_what_the_rules_say(seed: int) -> None:
    taken = check(rows_for_all(seed, 8), frozenset(GROUPS), backend())
    assert len(taken) > 0.9 * len(TABLE)


def test_rows_become_what_the_rules_say_on_the_reference() -> None:
    check(rows_for_all(7, 1), frozenset(GROUPS), ReferenceBackend(fuel=100_000_000))


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_can_be_off_and_can_be_the_only_one(group: str) -> None:
    rows = rows_for_all(11, 1)
    assert check(rows, frozenset({group}), backend())
    check(rows, frozenset(GROUPS) - {group}, backend())


def test_the_matcher_is_a_few_thousand_statements() -> None:
    assert sum(1 for _ in walk.statements(match_statements(TABLE, GROUPS))) < 3000
