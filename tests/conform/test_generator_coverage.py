"""The programs of a test run have what finds faults: the generator cannot lose any of it without a test that fails.

The first seeds stand for the whole run, which has several times as many.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from conform.recognise import situations_of
from conform.test_generate import features_of
from generated import Made, made
from vyre.conform import EVERYTHING, run_on_reference
from vyre.conform.features import features
from vyre.conform.situations import situations
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.nodes import EXPRESSION_CLASSES, STATEMENT_CLASSES

SEEDS = 50 * len(situations(EVERYTHING))
LEAST = 5

POINTS = ("barrier", "grid_sync")
NARROW_AND_WIDE = ("u8", "i8", "u16", "i16", "u64", "i64", "f16", "bf16", "f64")
NEEDED = {
    *(f"{jump} in a loop with a {point}" for jump in ("Break", "Continue") for point in POINTS),
    *(f"{jump} in nested loops with a {point} each" for jump in ("Break", "Continue") for point in POINTS),
    *(f"{kind} return in a loop with a {point}" for kind in ("uniform", "divergent") for point in POINTS),
    *(f"{point} in a branch" for point in POINTS),
    *(f"divergent {jump}" for jump in ("Break", "Continue", "return")),
    *(f"atomic in {place}, old value {use}" for place in ("storage", "shared memory") for use in ("used", "unused")),
    *(f"atomic in a divergent loop, old value {use}" for use in ("used", "unused")),
    *(f"{kind} under divergence" for kind in ("SubgroupBallot", "SubgroupShuffle", "SubgroupReduce")),
    *(f"odd workgroup of {axes} axes" for axes in (1, 2, 3)),
    *(f"workgroup of {axes} axes with several vectors" for axes in (2, 3)),
    *(f"{dtype} in {place}" for dtype in NARROW_AND_WIDE for place in ("storage", "shared memory")),
    *(f"{kind} in a loop" for kind in ("AsyncLoad", "AsyncStore", "CopyBytes", "trap")),
    "grid of several axes",
    "grid worth sharing",
    "part of a workgroup asked for",
    "empty input",
    "trap with an answer",
    "trap without an answer",
    "load of shared memory",
}


@cache
def cases() -> list[Made]:
    return [made(seed) for seed in range(SEEDS)]


def rare(found: Counter[str], wanted: set[str]) -> dict[str, int]:
    return {name: found[name] for name in sorted(wanted) if found[name] < LEAST}


def test_every_situation_occurs() -> None:
    found = Counter(name for one in cases() for name in set(situations_of(one.case)))
    assert rare(found, NEEDED) == {}


def test_every_kind_of_node_occurs() -> None:
    found = Counter(kind for one in cases() for kind in one.case.program.stats().kinds)
    assert rare(found, {cls.__name__ for cls in EXPRESSION_CLASSES + STATEMENT_CLASSES}) == {}


def test_every_operator_occurs_with_every_type() -> None:
    """Half as often: each is asked for in so many programs, but a few find no place for it."""
    found = Counter(feature for one in cases() for feature in set(features_of(one.case.program)))
    wanted = [feature for feature in features(EVERYTHING) if feature.kind != "statement"]
    assert {feature: found[feature] for feature in wanted if found[feature] < LEAST // 2} == {}


def test_both_efforts_occur() -> None:
    assert 0.05 * SEEDS < sum(one.optimize for one in cases()) < 0.2 * SEEDS


def test_all_kinds_of_access_miss_their_buffers() -> None:
    found: Counter[str] = Counter()
    for one in cases()[:150]:
        if one.case.program.stats().has_traps:
            continue
        result = run_on_reference(one.case)
        inside = list(walk.statements(result.program.entry))
        for miss in result.out_of_bounds:
            statement = inside[miss.place.statement]
            if isinstance(statement, n.Store) and statement.buffer == miss.buffer:
                found["store"] += 1
            for root in walk.operands(statement):
                nodes = (e for e in walk.postorder(root) if isinstance(e, (n.Load, n.Atomic)))
                found.update({type(e).__name__ for e in nodes if e.buffer == miss.buffer})
    assert rare(found, {"store", "Load", "Atomic"}) == {}
