"""Walks and rewrites: canonical order, identity, depth."""

from __future__ import annotations

import pytest

from vyre.errors import InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.build import (
    assign,
    atomic_add,
    compare_exchange,
    gid,
    if_,
    let,
    lit,
    load,
    loop,
    region,
    select,
    store,
    var,
    while_,
)
from vyre.ir.limits import MAX_EXPRESSION_DEPTH


def chain(depth: int) -> n.Expr:
    expression: n.Expr = gid(0)
    for _ in range(depth - 1):
        expression = expression + 1
    return expression


def nested(depth: int, inner: n.Stmt) -> n.Stmt:
    for _ in range(depth):
        inner = if_(lit(True), [inner])
    return inner


def test_postorder_is_the_order_of_evaluation() -> None:
    a, b, c = load("a", 0), load("b", 1), load("c", 2)
    order = walk.postorder(select(a < b, b, c))
    assert [node.buffer for node in order if isinstance(node, n.Load)] == ["a", "b", "b", "c"]
    assert isinstance(order[-1], n.Select)
    assert len(order) == 10


def test_an_atomic_evaluates_index_then_expected_then_value() -> None:
    node = compare_exchange("c", 1, expected=2, value=3)
    assert [operand.value for operand in walk.operands(node)] == [1, 2, 3]
    again = walk.with_operands(node, (lit(4), lit(5), lit(6)))
    assert (again.index, again.expected, again.value) == (lit(4), lit(5), lit(6))


def test_statements_come_before_what_is_inside_them_in_text_order() -> None:
    body = (
        let("a", 0),
        if_(lit(True), [let("b", 1), loop("i", 0, 1, [let("c", 2)])], [let("d", 3)]),
        region("r", [let("e", 4)]),
    )
    assert [s.name for s in walk.statements(body) if isinstance(s, n.Let)] == ["a", "b", "c", "d", "e"]


def test_rewriting_nothing_keeps_identity() -> None:
    body = (nested(5, store("a", gid(0), chain(20))), while_(gid(0) < 3, [assign("x", 1)]))
    assert all(old is new for old, new in zip(body, walk.rewrite(body, lambda e: e), strict=True))


def test_rewriting_reaches_every_expression_and_splices_statements() -> None:
    body = (let("x", var("old")), nested(3, store("a", var("old"), atomic_add("a", var("old"), 1))))

    def rename(node: n.Expr) -> n.Expr:
        return var("new") if isinstance(node, n.Var) else node

    def twice(statement: n.Stmt) -> tuple[n.Stmt, ...]:
        return (statement, statement) if isinstance(statement, n.Store) else (statement,)

    rewritten = walk.rewrite(body, rename, twice)
    names = {node.name for node in walk.expressions(rewritten) if isinstance(node, n.Var)}
    assert names == {"new"}
    assert sum(isinstance(s, n.Store) for s in walk.statements(rewritten)) == 2


def test_rewriting_can_remove_statements() -> None:
    body = (if_(lit(True), [let("x", 1)], [let("y", 2)]),)
    (rewritten,) = walk.rewrite(body, on_statement=lambda s: () if isinstance(s, n.Let) else (s,))
    assert isinstance(rewritten, n.If)
    assert rewritten.then == ()
    assert rewritten.otherwise == ()


@pytest.mark.parametrize("depth", [MAX_EXPRESSION_DEPTH, 50_000])
def test_depth_costs_no_recursion(depth: int) -> None:
    deep = chain(depth)
    assert len(walk.postorder(deep)) == 2 * depth - 1
    replaced = walk.rewrite_expression(deep, lambda e: lit(2) if isinstance(e, n.Lit) else e)
    assert replaced != deep
    body = (nested(5_000, let("x", deep)),)
    assert sum(1 for _ in walk.statements(body)) == 5_001
    assert walk.rewrite(body, lambda e: lit(2) if isinstance(e, n.Lit) else e) != body
    assert hash(deep) == hash(chain(depth))


def test_a_tree_without_end_is_refused() -> None:
    doubled: n.Expr = gid(0)
    for _ in range(200):
        doubled = doubled + doubled
    with pytest.raises(InvalidProgram, match="Fix: bind a subexpression"):
        walk.postorder(doubled)
