"""Proves the optimizer's rules and facts: each, for every type it claims, for all values, with an SMT solver.

The solver is given the meaning of each operator a third time (``vyre.semantics`` has it twice, in Python and in
NumPy), as terms over bit-vectors, booleans and IEEE numbers. A rule is proved when no values make its condition true
and its two sides different; equality is of values, so that -0 is not 0 and the one NaN is itself. A fact is proved
when no operands with the bits that are known of them give a result without the bits that are said of it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import z3

from vyre.optimizer.facts import FACTS, Fact
from vyre.optimizer.patterns import (
    VALUES,
    Fixed,
    Literal,
    Operation,
    Rule,
    Term,
    dtype_of,
    fixed_bits,
    mask_owner,
    read_term,
    subterms,
)
from vyre.optimizer.rules import RULES
from vyre.semantics.types import DType, Kind

SECONDS = 60
NEAREST = z3.RNE()
SORTS = {
    DType.F16: z3.FPSort(5, 11),
    DType.BF16: z3.FPSort(8, 8),
    DType.F32: z3.Float32(),
    DType.F64: z3.Float64(),
}
Types = Mapping[str, DType]


def variable(name: str, dtype: DType) -> Any:
    """Any value of a type."""
    if dtype is DType.BOOL:
        return z3.Bool(name)
    return z3.FP(name, SORTS[dtype]) if dtype.is_float else z3.BitVec(name, dtype.bits)


def constant(bits: int, dtype: DType) -> Any:
    """The value with these bits."""
    if dtype is DType.BOOL:
        return z3.BoolVal(bool(bits))
    pattern = z3.BitVecVal(bits, dtype.bits)
    return z3.fpBVToFP(pattern, SORTS[dtype]) if dtype.is_float else pattern


def _signed(dtype: DType) -> bool:
    return dtype.kind is Kind.SIGNED


def _extended(value: Any, bits: int, *, signed: bool) -> Any:
    return z3.SignExt(bits, value) if signed else z3.ZeroExt(bits, value)


def _less(a: Any, b: Any, dtype: DType) -> Any:
    if dtype.is_float:
        return z3.fpLT(a, b)
    return a < b if _signed(dtype) else z3.ULT(a, b)


def _equal(a: Any, b: Any, dtype: DType) -> Any:
    return z3.fpEQ(a, b) if dtype.is_float else a == b


def _rounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Float arithmetic; f16 and bf16 round the f32 result."""

    def meaning(dtype: DType, *operands: Any) -> Any:
        if dtype in (DType.F32, DType.F64):
            return operation(NEAREST, *operands)
        wide = [z3.fpFPToFP(NEAREST, one, SORTS[DType.F32]) for one in operands]
        return z3.fpFPToFP(NEAREST, operation(NEAREST, *wide), SORTS[dtype])

    return meaning


def _saturating(operation: Callable[[Any, Any], Any], more: Callable[[DType], int]) -> Callable[..., Any]:
    """The result of an operation in so many bits more that it is exact, clamped to the type's range."""

    def meaning(dtype: DType, a: Any, b: Any) -> Any:
        wide = operation(*(_extended(one, more(dtype), signed=_signed(dtype)) for one in (a, b)))
        least, greatest = (z3.BitVecVal(bound, dtype.bits) for bound in (dtype.minimum, dtype.maximum))
        inside = z3.Extract(dtype.bits - 1, 0, wide)
        return z3.If(wide < dtype.minimum, least, z3.If(wide > dtype.maximum, greatest, inside))

    return meaning


def _high(dtype: DType, a: Any, b: Any) -> Any:
    product = _extended(a, dtype.bits, signed=_signed(dtype)) * _extended(b, dtype.bits, signed=_signed(dtype))
    return z3.Extract(2 * dtype.bits - 1, dtype.bits, product)


def _divided(dtype: DType, a: Any, b: Any) -> Any:
    if dtype.is_float:
        return _rounded(z3.fpDiv)(dtype, a, b)
    return z3.If(b == 0, a, a / b if _signed(dtype) else z3.UDiv(a, b))


def _remainder(dtype: DType, a: Any, b: Any) -> Any:
    return z3.If(b == 0, z3.BitVecVal(0, dtype.bits), z3.SRem(a, b) if _signed(dtype) else z3.URem(a, b))


def _minimum(dtype: DType, a: Any, b: Any) -> Any:
    lesser = z3.If(_less(a, b, dtype), a, b)
    if not dtype.is_float:
        return lesser
    lesser = z3.If(z3.And(z3.fpIsZero(a), z3.fpIsZero(b)), z3.If(z3.fpIsNegative(a), a, b), lesser)
    return z3.If(z3.fpIsNaN(a), b, z3.If(z3.fpIsNaN(b), a, lesser))


def _maximum(dtype: DType, a: Any, b: Any) -> Any:
    greater = z3.If(_less(b, a, dtype), a, b)
    if not dtype.is_float:
        return greater
    greater = z3.If(z3.And(z3.fpIsZero(a), z3.fpIsZero(b)), z3.If(z3.fpIsNegative(a), b, a), greater)
    return z3.If(z3.fpIsNaN(a), b, z3.If(z3.fpIsNaN(b), a, greater))


def _absolute(dtype: DType, a: Any) -> Any:
    if dtype.is_float:
        return z3.fpAbs(a)
    return z3.If(a < 0, -a, a) if _signed(dtype) else a


def _sign(dtype: DType, a: Any) -> Any:
    if dtype.is_float:
        one, minus_one = (z3.FPVal(number, SORTS[dtype]) for number in (1.0, -1.0))
        return z3.If(z3.Or(z3.fpIsNaN(a), z3.fpIsZero(a)), a, z3.If(z3.fpIsNegative(a), minus_one, one))
    zero, one = z3.BitVecVal(0, dtype.bits), z3.BitVecVal(1, dtype.bits)
    positive = z3.If(a == 0, zero, one)
    return z3.If(a < 0, -one, positive) if _signed(dtype) else positive


def _count(dtype: DType, a: Any) -> Any:
    counts = [z3.Extract(k, k, a) for k in range(dtype.bits)]
    while len(counts) > 1:
        wider = [z3.ZeroExt(1, one) for one in counts]
        counts = [one + other for one, other in zip(wider[::2], wider[1::2], strict=True)]
    return z3.ZeroExt(dtype.bits - counts[0].size(), counts[0])


def _first_one(places: Callable[[int], Iterable[int]]) -> Callable[..., Any]:
    """How many zeros come before the first one, in some order of the bits."""

    def meaning(dtype: DType, a: Any) -> Any:
        result: Any = z3.BitVecVal(dtype.bits, dtype.bits)
        for zeros, place in reversed(list(enumerate(places(dtype.bits)))):
            result = z3.If(z3.Extract(place, place, a) == 1, z3.BitVecVal(zeros, dtype.bits), result)
        return result

    return meaning


def _by_type(boolean: Callable[..., Any], bits: Callable[..., Any]) -> Callable[..., Any]:
    return lambda dtype, *operands: (boolean if dtype is DType.BOOL else bits)(*operands)


def _arithmetic(floats: Callable[..., Any], integers: Callable[..., Any]) -> Callable[..., Any]:
    rounded = _rounded(floats)
    return lambda dtype, a, b: rounded(dtype, a, b) if dtype.is_float else integers(a, b)


def _amount(dtype: DType, b: Any) -> Any:
    return b & (dtype.bits - 1)


MEANINGS: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(z3.fpAdd, lambda a, b: a + b),
    "sub": _arithmetic(z3.fpSub, lambda a, b: a - b),
    "mul": _arithmetic(z3.fpMul, lambda a, b: a * b),
    "div": _divided,
    "mod": _remainder,
    "shl": lambda dtype, a, b: a << _amount(dtype, b),
    "shr": lambda dtype, a, b: (lambda n: a >> n if _signed(dtype) else z3.LShR(a, n))(_amount(dtype, b)),
    "rotl": lambda dtype, a, b: z3.RotateLeft(a, _amount(dtype, b)),
    "rotr": lambda dtype, a, b: z3.RotateRight(a, _amount(dtype, b)),
    "and": _by_type(z3.And, lambda a, b: a & b),
    "or": _by_type(z3.Or, lambda a, b: a | b),
    "xor": _by_type(z3.Xor, lambda a, b: a ^ b),
    "min": _minimum,
    "max": _maximum,
    "abs_diff": lambda dtype, a, b: z3.If(_less(a, b, dtype), b - a, a - b),
    "sat_add": _saturating(lambda a, b: a + b, lambda _: 2),
    "sat_sub": _saturating(lambda a, b: a - b, lambda _: 2),
    "sat_mul": _saturating(lambda a, b: a * b, lambda dtype: dtype.bits + 1),
    "mul_high": _high,
    "eq": lambda dtype, a, b: _equal(a, b, dtype),
    "ne": lambda dtype, a, b: z3.Not(_equal(a, b, dtype)),
    "lt": lambda dtype, a, b: _less(a, b, dtype),
    "le": lambda dtype, a, b: z3.Or(_less(a, b, dtype), _equal(a, b, dtype)),
    "gt": lambda dtype, a, b: _less(b, a, dtype),
    "ge": lambda dtype, a, b: z3.Or(_less(b, a, dtype), _equal(a, b, dtype)),
    "neg": lambda dtype, a: z3.fpNeg(a) if dtype.is_float else -a,
    "not": lambda _, a: ~a,
    "lnot": lambda _, a: z3.Not(a),
    "popcount": _count,
    "clz": _first_one(lambda bits: reversed(range(bits))),
    "ctz": _first_one(range),
    "reverse_bits": lambda dtype, a: z3.Concat(*(z3.Extract(k, k, a) for k in range(dtype.bits))),
    "abs": _absolute,
    "sign": _sign,
    "floor": lambda _, a: z3.fpRoundToIntegral(z3.RTN(), a),
    "ceil": lambda _, a: z3.fpRoundToIntegral(z3.RTP(), a),
    "round": lambda _, a: z3.fpRoundToIntegral(z3.RNE(), a),
    "trunc": lambda _, a: z3.fpRoundToIntegral(z3.RTZ(), a),
    "is_nan": lambda _, a: z3.fpIsNaN(a),
    "is_inf": lambda _, a: z3.fpIsInf(a),
    "is_finite": lambda _, a: z3.Not(z3.Or(z3.fpIsNaN(a), z3.fpIsInf(a))),
}


def converted(a: Any, source: DType, target: DType) -> Any:
    """The conversion of a value to another type."""
    if target is source:
        return a
    if target is DType.BOOL:
        return z3.Not(z3.fpIsZero(a) if source.is_float else a == 0)
    if source is DType.BOOL:
        return z3.If(a, constant(fixed_bits(1, target), target), constant(0, target))
    if target.is_float:
        if source.is_float:
            return z3.fpFPToFP(NEAREST, a, SORTS[target])
        return (z3.fpSignedToFP if _signed(source) else z3.fpUnsignedToFP)(NEAREST, a, SORTS[target])
    if source.is_float:
        return _truncated(a, source, target)
    more = target.bits - source.bits
    return _extended(a, more, signed=_signed(source)) if more > 0 else z3.Extract(target.bits - 1, 0, a)


def _truncated(a: Any, source: DType, target: DType) -> Any:
    """A float toward zero, clamped to an integer's range; NaN gives 0."""
    low, high = (z3.fpRealToFP(NEAREST, z3.RealVal(bound), SORTS[source]) for bound in (target.minimum, target.maximum))
    inside = (z3.fpToSBV if _signed(target) else z3.fpToUBV)(z3.RTZ(), a, z3.BitVecSort(target.bits))
    bounded = z3.If(z3.fpGEQ(a, high), z3.BitVecVal(target.maximum, target.bits), inside)
    bounded = z3.If(z3.fpLEQ(a, low), z3.BitVecVal(target.minimum, target.bits), bounded)
    return z3.If(z3.fpIsNaN(a), z3.BitVecVal(0, target.bits), bounded)


def reinterpreted(a: Any, source: DType, target: DType) -> Any:
    """The bits of a value as another type."""
    if source is target:
        return a
    if source.is_float:
        bits = z3.fpToIEEEBV(a)
        nan = {DType.F16: 0x7E00, DType.BF16: 0x7FC0, DType.F32: 0x7FC00000, DType.F64: 0x7FF8 << 48}[source]
        bits = z3.If(z3.fpIsNaN(a), z3.BitVecVal(nan, source.bits), bits)
    else:
        bits = a
    return z3.fpBVToFP(bits, SORTS[target]) if target.is_float else bits


def meaning(term: Term, types: Types) -> Any:
    """What a term means, for all values of its names."""
    dtype = dtype_of(term.type, types)
    if isinstance(term, Fixed):
        return constant(fixed_bits(term.value, dtype), dtype)
    if not isinstance(term, Operation):
        return variable(term.name, dtype)
    operands = [meaning(operand, types) for operand in term.operands]
    inner = dtype_of(term.operands[-1].type, types)
    match term.name:
        case "select":
            return z3.If(*operands)
        case "cast":
            return converted(operands[0], inner, dtype)
        case "bitcast":
            return reinterpreted(operands[0], inner, dtype)
    return MEANINGS[term.name](inner, *operands)


def counterexample(rule: Rule, types: Types, seconds: float = SECONDS) -> str | None:
    """Values for which a rule is wrong, or why that is not known; None if it is proved."""
    pattern = read_term(rule.pattern)
    differs = meaning(pattern, types) != meaning(read_term(rule.replacement, pattern.type), types)
    condition = z3.BoolVal(True)
    if rule.when:
        term = read_term(rule.when)
        known = {value for part in subterms(term) if isinstance(part, Literal) and (value := mask_owner(part.name))}
        assumed = [_known(name, dtype_of(VALUES[name], types)) for name in sorted(known)]
        condition = z3.And(meaning(term, types), *assumed)
    splits = [values for text, values in _SPLITS.items() if text in f"{rule.pattern} when {rule.when}"]
    if not splits:
        return _refuted(z3.And(condition, differs), seconds)
    # No other values of the literal are left, and with each of them the proof is easy.
    literal, width = variable("c", types["T"]), types["T"].bits
    cases = [z3.BitVecVal(bits, width) for bits in splits[0](width)]
    questions = [z3.And(condition, *(literal != bits for bits in cases))]
    questions += [z3.substitute(z3.And(condition, differs), (literal, bits)) for bits in cases]
    return next((problem for question in questions if (problem := _refuted(question, seconds))), None)


# Rules that take long, and the values of a literal c that their conditions leave, by the bits of its type.
_SPLITS: dict[str, Callable[[int], Iterable[int]]] = {
    "popcount(c) == 1": lambda width: (1 << place for place in range(width)),
    ">> d when ((c | d) & ~(WIDTH - 1)) == 0": range,
}


def false_fact(fact: Fact, types: Types, seconds: float = SECONDS) -> str | None:
    """Bits and values for which a fact is wrong, or why that is not known; None if it is proved."""
    result, dtype = meaning(fact.term, types), dtype_of(fact.term.type, types)
    inner = dtype_of(fact.term.operands[-1].type, types)
    assumed = [_known(name, inner) for name in fact.operands]
    if fact.when:
        assumed.append(meaning(fact.term_of(fact.when), types))
    claims = [_has(result, *(meaning(fact.term_of(text), types) for text in (fact.zeros, fact.ones)), dtype)]
    for place, text in enumerate((fact.first, fact.second)):
        if text:
            is_operand = result == variable(fact.operands[place], inner)
            claims.append(z3.Implies(meaning(fact.term_of(text), types), is_operand))
    question = z3.And(*assumed, z3.Not(z3.And(*claims)))
    if "ctz(" not in fact.zeros:
        return _refuted(question, seconds)
    # What is known of the lowest bits is taken apart: with so many zeros in each operand the proof is easy.
    lowest = [_with_low_zeros(name, inner) for name in fact.operands]
    questions = (z3.substitute(question, *one, *other) for k, one in enumerate(lowest[0]) for other in lowest[1][k:])
    return next((problem for case in questions if (problem := _refuted(z3.simplify(case), seconds))), None)


def _known(name: str, dtype: DType) -> Any:
    """Whether a value has the bits that are known of it."""
    return _has(variable(name, dtype), variable(f"{name}0", dtype), variable(f"{name}1", dtype), dtype)


def _has(value: Any, zeros: Any, ones: Any, dtype: DType) -> Any:
    """Whether a value has these bits."""
    if dtype is DType.BOOL:
        return z3.And(z3.Not(z3.And(value, zeros)), z3.Implies(ones, value))
    return z3.And(value & zeros == 0, value & ones == ones)


def _with_low_zeros(name: str, dtype: DType) -> list[list[tuple[Any, Any]]]:
    """An operand and its known zeros, by how many of its lowest bits they are: what to put for both."""
    value, zeros, width = variable(name, dtype), variable(f"{name}0", dtype), dtype.bits
    masks = [((1 << low) - 1, 1 << low & (1 << width) - 1) for low in range(width + 1)]
    return [[(value, value & ~low), (zeros, (zeros | low) & ~behind)] for low, behind in masks]


def _refuted(question: Any, seconds: float) -> str | None:
    """Values for which a question is true, or why that is not known; None if it is false."""
    solver = z3.Solver()
    solver.set("timeout", int(seconds * 1000))
    solver.add(question)
    answer = solver.check()
    if answer == z3.unsat:
        return None
    return f"false for {solver.model()}" if answer == z3.sat else f"not proved: {solver.reason_unknown()}"


def proofs(
    rules: Iterable[Rule | Fact], seconds: float = SECONDS
) -> Iterator[tuple[str, dict[str, DType], str | None, float]]:
    """Each rule or fact for each of its types: what speaks against it, and how long that took."""
    for rule in rules:
        for types in rule.cases():
            begin = time.perf_counter()
            if isinstance(rule, Fact):
                problem = false_fact(rule, types, seconds)
            else:
                problem = counterexample(rule, types, seconds)
            yield rule.name, types, problem, time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="the rules and facts to prove; all if none is named")
    names = parser.parse_args().names
    rules = [rule for rule in (*RULES, *FACTS) if not names or rule.name in names]
    begin, count, failures = time.perf_counter(), 0, 0
    for name, types, problem, seconds in proofs(rules):
        count += 1
        failures += problem is not None
        shown = " ".join(f"{one}={dtype}" for one, dtype in types.items())
        print(f"{'PROVED' if problem is None else 'FAILED'}  {name:24} {shown:20} {seconds:7.3f} s  {problem or ''}")
    print(f"{count - failures} of {count} proved, {len(rules)} rules and facts, {time.perf_counter() - begin:.1f} s")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main())
