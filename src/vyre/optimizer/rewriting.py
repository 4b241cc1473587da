"""What happens to a row whose operands are known? It is folded, if they are all literals; else the rules are tried.

At last it is seen whether the bits that are known of its operands make it a literal, or one of them.
"""

from __future__ import annotations

from functools import cache

from vyre.ir import build as b
from vyre.ir.nodes import Body, Stmt
from vyre.optimizer.arena import NONE, Kind
from vyre.optimizer.facts import KNOWN_OPERAND, KNOWN_VALUE, knowing, literal_bits
from vyre.optimizer.folding import Floats, fold_statements, words
from vyre.optimizer.matcher import match_statements
from vyre.optimizer.patterns import BECOME_LITERAL, BECOME_OPERATION
from vyre.optimizer.rules import GROUPS, RULES, TABLE
from vyre.optimizer.switches import PASSES

_FOUND = ("new_head", "new_a", "new_b", "new_c", "spare_head", "lit_lo", "lit_hi", "folded")


@cache
def rule_names() -> tuple[str, ...]:
    """The names of the rules, in the order in which they are counted, and of what is done without a rule."""
    return (*(rule.name for rule in RULES), KNOWN_VALUE, KNOWN_OPERAND)


def steps(floats: Floats) -> dict[str, Body]:
    """The statements that the simplify kernel leaves out, by the names of the regions for them."""
    reads = b.let("low", b.load("a0", b.var("row"))), b.let("high", b.load("a1", b.var("row")))
    literal = (*reads, *literal_bits(b.var("row"), b.var("word") >> 8 & 255, words("low", "high")))
    return {"rewrite": rewriting(floats), "known": knowing(len(RULES)), "literal": literal}


def rewriting(floats: Floats) -> Body:
    """Statements for one step of the simplify kernel: what becomes of ``word``, ``a``, ``b`` and ``c``.

    ``action`` tells: to be the row ``target``, to be a literal or another operation (both done here), or nothing.
    """
    statements: list[Stmt] = []
    for operand in "ab":
        row = b.var(operand)
        statements.append(b.let(f"{operand}_head", b.load("head", row)))
        statements += [b.let(f"{operand}_{k}", b.load(f"a{k}", row)) for k in range(2)]
    # Few operations have a third operand, and no other is matched against operands that have one.
    thirds = ["c_head", "c_0", "c_1", *(f"{operand}_2" for operand in "abc")]
    statements += [b.let(name, 0) for name in thirds]
    loads = [b.load("head" if name == "c_head" else f"a{name[2]}", b.var(name[0])) for name in thirds]
    reads = tuple(b.assign(name, load) for name, load in zip(thirds, loads, strict=True))
    statements.append(b.if_(b.var("c").ne(NONE), reads))
    statements += [b.let(name, 0) for name in _FOUND]
    statements.append(b.let("rule", NONE))
    statements.append(b.if_((b.load("params", 0) & PASSES["fold"]).ne(0), fold_statements(floats)))
    statements.append(
        b.if_(b.var("folded").eq(1), (b.assign("action", BECOME_LITERAL),), match_statements(TABLE, GROUPS))
    )
    statements.append(b.if_(b.var("rule").ne(NONE), (b.let("count", b.atomic_add("fired", b.var("rule") + 1, 1)),)))
    literal = (
        b.assign("word", (b.var("word") & 0xFF00) | Kind.LITERAL.value),
        b.assign("a", b.var("lit_lo")),
        b.assign("b", b.var("lit_hi")),
        b.assign("c", NONE),
    )
    spare = (
        b.store("head", b.var("spare"), b.var("spare_head")),
        b.store("a0", b.var("spare"), b.var("lit_lo")),
        b.store("a1", b.var("spare"), b.var("lit_hi")),
        *literal_bits(b.var("spare"), b.var("spare_head") >> 8 & 255, words("lit_lo", "lit_hi")),
    )
    operation = (
        b.if_(b.var("spare_head").ne(0), spare),
        b.assign("word", b.var("new_head")),
        *(b.assign(name, b.var(f"new_{name}")) for name in "abc"),
    )
    statements.append(b.if_(b.var("action").eq(BECOME_LITERAL), literal))
    statements.append(b.if_(b.var("action").eq(BECOME_OPERATION), operation))
    return tuple(statements)
