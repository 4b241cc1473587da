"""A failure becomes a few lines: bugs planted in a backend are found by generated cases and shrunk."""

from collections.abc import Callable

import msgspec
import numpy as np
import pytest

from vyre.checker import check
from vyre.conform import Case, Profile, generate, reproducer, run_on_reference, shrink
from vyre.conform.directives import read_filetest
from vyre.conform.filetest import diagnostics_wrong, round_trips_wrong, runs_wrong, schedules_wrong
from vyre.conform.shrinker import size_of
from vyre.errors import VyreError
from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.semantics.types import DType


def wraps_sat_sub(node: n.Expr) -> n.Expr:
    return n.BinOp("sub", node.left, node.right) if isinstance(node, n.BinOp) and node.op == "sat_sub" else node


def swaps_select(node: n.Expr) -> n.Expr:
    return n.Select(node.condition, node.false_value, node.true_value) if isinstance(node, n.Select) else node


def drops_second_arm(statement: n.Stmt) -> n.Body:
    return (n.If(statement.condition, statement.then),) if isinstance(statement, n.If) else (statement,)


def drops_stores_in_loops(statement: n.Stmt) -> n.Body:
    if not isinstance(statement, n.Loop):
        return (statement,)
    body = walk.rewrite(statement.body, on_statement=lambda inner: () if isinstance(inner, n.Store) else (inner,))
    return (n.Loop(statement.var, statement.start, statement.stop, body),)


BUGS: dict[str, dict[str, Callable[..., object]]] = {
    "wraps sat_sub": {"on_expression": wraps_sat_sub},
    "swaps select": {"on_expression": swaps_select},
    "drops second arm": {"on_statement": drops_second_arm},
    "drops stores in loops": {"on_statement": drops_stores_in_loops},
}


# Where a loop runs until a store tells it to end, a bug that drops the store never gets to an answer.
ENDING = Profile(weights=(("fixpoint", 0),))


def fails_with(bug: dict[str, Callable[..., object]]) -> Callable[[Case], bool]:
    """Whether a backend with that bug gives other bytes than the reference."""

    def still_fails(case: Case) -> bool:
        entry = walk.rewrite(case.program.entry, **bug)  # type: ignore[arg-type]
        wrong = msgspec.structs.replace(case, program=case.program.with_entry(entry))
        expected, got = (run_on_reference(one, checked=True).outputs for one in (case, wrong))
        return any(data.tobytes() != got[name].tobytes() for name, data in expected.items())

    return still_fails


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_reduced_to_a_few_lines(name: str) -> None:
    still_fails = fails_with(BUGS[name])
    case = next(case for seed in range(100) if still_fails(case := generate(seed, 25, ENDING)))
    small = shrink(case, still_fails)
    assert still_fails(small)
    assert check(small.program).ok
    assert small.program.stats().statements <= 5
    assert small.program.stats().expressions <= 15
    assert len(small.program.buffers) <= 2
    assert size_of(small) < size_of(case)

    test = read_filetest("reproducer.vyre", reproducer(small))
    assert diagnostics_wrong(test) == []
    assert round_trips_wrong(test) == []
    assert schedules_wrong(test) == []
    assert runs_wrong(test, "reference") == []


def test_a_reproducer_of_any_case_reproduces_it() -> None:
    for seed in range(20):
        test = read_filetest("case.vyre", reproducer(generate(seed)))
        assert runs_wrong(test, "reference") == []


def test_every_step_is_smaller_and_the_budget_holds() -> None:
    case = generate(8)
    seen: list[Case] = []

    def fails_and_notes(candidate: Case) -> bool:
        seen.append(candidate)
        return True

    shrink(case, fails_and_notes, budget=6)
    assert len(seen) == 6
    sizes = [size_of(one) for one in seen]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_a_case_that_always_fails_shrinks_to_nothing() -> None:
    small = shrink(generate(3), lambda _: True)
    assert small.program.stats().statements == 0
    assert len(small.program.buffers) == 0
    assert not small.inputs


def test_a_racy_case_is_refused() -> None:
    program = Program.new([BufferDecl.output("out", 0, DType.U32, 1)], 4, [b.store("out", b.gid(0) / 9, b.gid(0))])
    with pytest.raises(VyreError, match="depends on its schedule"):
        shrink(Case(program, {}, (1, 1, 1)), lambda _: True)


def test_a_step_never_makes_a_case_racy() -> None:
    tile = [
        b.store("tile", b.lid(0), b.lid(0)),
        b.barrier(),
        b.store("out", b.lid(0), b.load("tile", b.expr(3) - b.lid(0))),
    ]
    buffers = [BufferDecl.output("out", 0, DType.U32, 4), BufferDecl.workgroup("tile", DType.U32, 4)]
    case = Case(Program.new(buffers, 4, tile), {}, (1, 1, 1))

    def gives_three(candidate: Case) -> bool:
        outputs = run_on_reference(candidate).outputs
        return "out" in outputs and np.array_equal(outputs["out"][:4], [3, 2, 1, 0])

    small = shrink(case, gives_three)
    assert small.program.stats().has_barriers == any(
        isinstance(node, n.Load) for node in walk.expressions(small.program.entry)
    )
