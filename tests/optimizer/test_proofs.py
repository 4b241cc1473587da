"""Every rule and fact is proved for every type it claims; the solver's operators agree with the operator table."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import z3
from sample_rows import edge_bits

from vyre.optimizer.facts import FACTS, Fact
from vyre.optimizer.patterns import Rule
from vyre.optimizer.rules import RULES
from vyre.semantics.operators import OPERATORS
from vyre.semantics.scalars import CANONICAL_NAN, from_bits, scalar_bitcast, scalar_cast, scalar_meaning, to_bits
from vyre.semantics.types import FLOATS, INTEGERS, SIGNED, DType

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("prove", ROOT / "scripts" / "prove.py")
assert _spec is not None
assert _spec.loader is not None
prove = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(prove)

_PARTS = 24


@pytest.mark.parametrize("part", range(_PARTS))
def test_rules_are_proved(part: int) -> None:
    claims = (*RULES, *FACTS)[part::_PARTS]
    assert [(name, types, problem) for name, types, problem, _ in prove.proofs(claims) if problem] == []


@pytest.mark.parametrize(
    "fact",
    [
        Fact("x & y", "x0 | y0", "x1 | y1", (DType.U8,)),
        Fact("x + y", "x0 & y0", "0", INTEGERS),
        Fact("x - y", "0", "x1 & y0", (DType.I16,)),
        Fact("x * y", "~((ONES << ctz(~x0)) << (ctz(~y0) + 1))", "0", (DType.U8,)),
        Fact("x << y", "(x0 << y1) | ~(ONES << y1)", "x1 << y1", (DType.U32,)),
        Fact("x >> y", "x0 >> y1", "x1 >> y1 | MIN", SIGNED, "(y0 | y1) == ONES"),
        Fact("T(s)", "T(s0)", "T(s1) | T(S(ONES)) & 1", (DType.U16,), sources=(DType.BOOL, DType.I8)),
        Fact("x < y", "x1 > y1", "false", (DType.U8, DType.I64)),
        Fact("x & y", "0", "0", (DType.BOOL, DType.U32), first="(x0 | y1) != ONES"),
        Fact("min(x, y)", "0", "0", SIGNED, first="~x0 <= y1"),
    ],
    ids=lambda fact: fact.pattern,
)
def test_a_wrong_fact_is_refuted_for_the_types_it_is_wrong_for(fact: Fact) -> None:
    for types in fact.cases():
        problem = prove.false_fact(fact, types)
        assert problem is not None
        assert problem.startswith("false for"), (types, problem)


WRONG = (
    Rule("add_zero_float", "wrong", "x + 0", "x", FLOATS),
    Rule("sub_self_float", "wrong", "x - x", "0", FLOATS),
    Rule("mul_zero_float", "wrong", "x * 0", "0", FLOATS),
    Rule("eq_self_float", "wrong", "x == x", "true", FLOATS),
    Rule("lnot_lt_float", "wrong", "!(x < y)", "x >= y", FLOATS),
    Rule("min_infinity", "wrong", "min(x, inf)", "x", FLOATS),
    Rule("add_then_sub_float", "wrong", "(x + y) - y", "x", (DType.F16, DType.BF16)),
    Rule("select_lt_float", "wrong", "select(x < y, x, y)", "min(x, y)", FLOATS),
    Rule("abs_neg_unsigned", "wrong", "abs(-x)", "abs(x)", (DType.U8, DType.U64)),
    Rule("div_power_of_two_signed", "wrong", "x / c", "x >> ctz(c)", SIGNED, "popcount(c) == 1"),
    Rule("div_self", "wrong", "x / x", "1", (DType.U8, DType.I16)),
    Rule("shl_shl_unbounded", "wrong", "(x << c) << d", "x << (c + d)", INTEGERS),
    Rule("le_literal_unbounded", "wrong", "x <= c", "x < (c + 1)", INTEGERS),
    Rule("mul_not_zero", "wrong", "(x * c) == 0", "x == 0", INTEGERS, "c != 0"),
    Rule("cast_back_narrow", "wrong", "S(U(s))", "s", (DType.U32,)),
)


@pytest.mark.parametrize("rule", WRONG, ids=lambda rule: rule.name)
def test_a_wrong_rule_is_refuted_for_the_types_it_is_wrong_for(rule: Rule) -> None:
    cases = [{"S": DType.U16, "U": DType.U8}] if "U(" in rule.pattern else list(rule.cases())
    assert cases
    for types in cases:
        problem = prove.counterexample(rule, types)
        assert problem is not None
        assert problem.startswith("false for"), (types, problem)


def bits_of(term: Any, dtype: DType) -> int:
    """The bits of a solver constant."""
    term = z3.simplify(term)
    if dtype is DType.BOOL:
        return int(z3.is_true(term))
    if not dtype.is_float:
        return int(term.as_long())
    if z3.is_true(z3.simplify(z3.fpIsNaN(term))):
        return CANONICAL_NAN[dtype]
    return int(z3.simplify(z3.fpToIEEEBV(term)).as_long())


def samples(dtype: DType, count: int, seed: int) -> list[int]:
    source = random.Random(f"{dtype}{seed}")
    edges = edge_bits(dtype)
    chosen = [source.choice(edges) if source.random() < 0.7 else source.getrandbits(dtype.bits) for _ in range(count)]
    return [to_bits(from_bits(bits, dtype), dtype) for bits in chosen]


@pytest.mark.parametrize("name", sorted(prove.MEANINGS))
def test_the_solver_agrees_with_the_operator_table(name: str) -> None:
    operator = OPERATORS[name]
    # The solver has no fmod, so no rule uses it on floats.
    types = INTEGERS if name == "mod" else operator.types
    for dtype in types:
        result = operator.result_type(dtype)
        for operands in zip(*(samples(dtype, 12, place) for place in range(operator.arity)), strict=True):
            values = [from_bits(bits, dtype) for bits in operands]
            wanted = to_bits(scalar_meaning(name, dtype)(*values), result)
            got = prove.MEANINGS[name](dtype, *(prove.constant(bits, dtype) for bits in operands))
            assert bits_of(got, result) == wanted, (dtype, values)


@pytest.mark.parametrize("source", list(DType))
def test_the_solver_converts_as_the_operator_table(source: DType) -> None:
    for target in DType:
        for bits in samples(source, 8, 1):
            value, term = from_bits(bits, source), prove.constant(bits, source)
            wanted = to_bits(scalar_cast(source, target)(value), target)
            assert bits_of(prove.converted(term, source, target), target) == wanted, (target, value)
            if source.bits == target.bits:
                wanted = to_bits(scalar_bitcast(source, target)(value), target)
                assert bits_of(prove.reinterpreted(term, source, target), target) == wanted, (target, value)
