"""IFDS: the parallel solver, the worklist and the definition agree, witnesses are realizable, errors name the place."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from dataflow_support import assert_realizable, plain_reached, problems, random_program
from hypothesis import given, settings
from lib_support import backend_of

from vyre.backends.reference import ReferenceBackend
from vyre.errors import BadInputs
from vyre.lib import dataflow
from vyre.lib.dataflow import IfdsBuilder, IfdsProblem
from vyre.lib.dataflow.contexts import number_contexts
from vyre.reference import REVERSED, seeded

CPU = "cpu 16x2"


def reached_places(problem: IfdsProblem, solution: dataflow.IfdsSolution) -> set[tuple[int, int]]:
    return {(node, fact) for node in range(problem.num_nodes) for fact in solution.facts(node).tolist()}


def assert_solved(problem: IfdsProblem, backend: str) -> None:
    solution, plain = dataflow.ifds(problem, backend=backend_of(backend)), dataflow.ifds_worklist(problem)
    assert np.array_equal(solution.bits, plain.bits)
    assert np.array_equal(solution.reached, plain.reached)


def taint(facts: int = 4) -> tuple[IfdsProblem, dict[str, int]]:
    """x = source(); y = identity(x); z = identity(0); sink(y); sink(z): fact 1 is x, 2 is y, 3 is z."""
    b = IfdsBuilder()
    main, identity = b.procedure(facts, "main"), b.procedure(2, "identity")
    calls, returns = [b.node(main) for _ in range(2)], [b.node(main) for _ in range(2)]
    b.normal(main.entry, calls[0], gen=[(0, 1)])
    b.call(calls[0], identity, flows=[(1, 1)])
    b.returns(calls[0], identity, returns[0], flows=[(1, 2)])
    b.call_to_return(calls[0], returns[0], kill=[2])
    b.normal(returns[0], calls[1])
    b.call(calls[1], identity)
    b.returns(calls[1], identity, returns[1], flows=[(1, 3)])
    b.call_to_return(calls[1], returns[1], kill=[3])
    b.normal(returns[1], main.exit)
    b.normal(identity.entry, identity.exit)
    return b.build(seeds=[(main.entry, 0)]), {"exit": main.exit, "identity": identity.exit}


def recursive(depth: int = 3) -> IfdsProblem:
    """Procedures that call themselves and each other; each call increments a fact."""
    b = IfdsBuilder()
    main = b.procedure(2)
    loops = [b.procedure(5) for _ in range(depth)]
    call, back = b.node(main), b.node(main)
    b.normal(main.entry, call, gen=[(0, 1)])
    b.call(call, loops[0], [(1, 1)])
    b.returns(call, loops[0], back, [(fact, 1) for fact in range(1, 5)])
    b.normal(back, main.exit)
    for at, p in enumerate(loops):
        call, back = b.node(p), b.node(p)
        b.normal(p.entry, call)
        b.normal(p.entry, p.exit, kill=[1])
        for callee in (p, loops[(at + 1) % depth]):
            b.call(call, callee, [(fact, fact + 1) for fact in range(1, 4)])
            b.returns(call, callee, back, [(fact, fact) for fact in range(1, 5)])
        b.normal(back, p.exit)
    return b.build(seeds=[(main.entry, 0)])


def wide(contexts: int, facts: int) -> IfdsProblem:
    """A procedure with many contexts, called with every fact of a procedure that calls itself too."""
    b = IfdsBuilder()
    main, callee = b.procedure(facts), b.procedure(facts)
    call, back = b.node(main), b.node(main)
    every = range(1, min(contexts, facts))
    b.normal(main.entry, call, gen=[(0, fact) for fact in every])
    b.call(call, callee, [(fact, fact) for fact in every])
    b.returns(call, callee, back, [(fact, facts - fact) for fact in range(1, facts)])
    b.call_to_return(call, back, kill=range(1, facts))
    b.normal(back, main.exit)
    b.normal(callee.entry, callee.exit, gen=[(fact, (fact * 7) % facts) for fact in every])
    again, after = b.node(callee), b.node(callee)
    b.normal(callee.entry, again, kill=every)
    b.call(again, callee, [(fact, fact - 1) for fact in every])
    b.returns(again, callee, after, [(fact, fact) for fact in range(facts)])
    b.normal(after, callee.exit)
    return b.build(seeds=[(main.entry, 0), (again, facts - 1)])


def nothing() -> IfdsProblem:
    return IfdsBuilder().build(seeds=[])


def without_seeds() -> IfdsProblem:
    b = IfdsBuilder()
    p = b.procedure(3)
    b.normal(p.entry, p.exit)
    b.call(p.entry, p)
    return b.build(seeds=[])


def seeds_everywhere() -> IfdsProblem:
    """Seeds at calls, exits and nodes that nothing leads to, several of them in one word."""
    b = IfdsBuilder()
    main, callee = b.procedure(40), b.procedure(40)
    call, back, dead = b.node(main), b.node(main), b.node(main)
    b.call(call, callee, [(33, 2)])
    b.returns(call, callee, back, [(2, 3)])
    b.normal(callee.entry, callee.exit)
    b.normal(dead, back)
    return b.build(seeds=[(call, 33), (call, 34), (callee.exit, 7), (dead, 1), (dead, 1), (main.entry, 0)])


def without_calls() -> IfdsProblem:
    """One edge, nothing killed, generated or called: most tables are empty."""
    b = IfdsBuilder()
    p = b.procedure(1)
    b.normal(p.entry, p.exit)
    return b.build(seeds=[(p.entry, 0)])


EXAMPLES: dict[str, Callable[[], IfdsProblem]] = {
    "taint": lambda: taint()[0],
    "recursion": recursive,
    "mutual recursion": lambda: recursive(5),
    "no procedures": nothing,
    "no seeds": without_seeds,
    "no calls": without_calls,
    "seeds everywhere": seeds_everywhere,
    **{f"{n} facts": lambda n=n: wide(n, n) for n in (2, 31, 32, 33, 65)},
    "one context, many facts": lambda: wide(2, 100),
}


class TestSolutions:
    @pytest.mark.parametrize("backend", [CPU, "cpu 4x1", "webgpu", "reference"])
    @pytest.mark.parametrize("name", EXAMPLES)
    def test_the_solver_agrees_with_the_worklist(self, name: str, backend: str) -> None:
        assert_solved(EXAMPLES[name](), backend)

    @pytest.mark.parametrize("name", EXAMPLES)
    def test_the_worklist_agrees_with_the_definition(self, name: str) -> None:
        problem = EXAMPLES[name]()
        assert reached_places(problem, dataflow.ifds_worklist(problem)) == plain_reached(problem)

    @settings(max_examples=100, deadline=None)
    @given(problems() | problems(max_facts=40))
    def test_any_problem(self, problem: IfdsProblem) -> None:
        assert_solved(problem, CPU)
        solution = dataflow.ifds_worklist(problem)
        reached = plain_reached(problem)
        assert reached_places(problem, solution) == reached
        for node, fact in reached:
            assert_realizable(problem, solution.witness(node, fact), node, fact)

    def test_a_program_of_many_procedures(self) -> None:
        assert_solved(random_program(60, 30, 40, parameters=36), CPU)
        assert_solved(random_program(300, 20, 10), CPU)

    @pytest.mark.parametrize("schedule", [REVERSED, seeded(1), seeded(2)], ids=str)
    def test_solutions_do_not_depend_on_the_order(self, schedule: object) -> None:
        on = ReferenceBackend(schedule=schedule, poison=0xA5)
        for problem in (recursive(), random_program(3, 8, 5), random_program(8, 12, 40)):
            solution, other = dataflow.ifds(problem, backend=on), dataflow.ifds(problem, backend=backend_of(CPU))
            assert np.array_equal(solution.bits, other.bits)
            # Witnesses follow from these.
            assert np.array_equal(solution.ranks, other.ranks)

    @pytest.mark.parametrize("problem", [recursive(2), random_program(3, 8, 40, seed=2)], ids=repr)
    def test_the_kernel_has_no_race(self, problem: IfdsProblem) -> None:
        solver = sys.modules["vyre.lib.dataflow.ifds"]
        report = solver.propagate.grid(2).debug(**solver.kernel_arrays(number_contexts(problem)))
        assert report.races == (), str(report)
        assert report.out_of_bounds == (), str(report)
        assert np.array_equal(report.outputs["derived"], dataflow.ifds_worklist(problem).bits)

    def test_facts_are_those_of_realizable_paths(self) -> None:
        problem, at = taint()
        solution = dataflow.ifds(problem)
        # x goes through identity into y, and does not come back from the other call into z.
        assert solution.facts(at["exit"]).tolist() == [0, 1, 2]
        assert solution.facts(at["exit"]).dtype == np.uint32
        assert solution.holds(at["exit"], 2)
        assert not solution.holds(at["exit"], 3)
        exploded = problem.first_exploded[at["exit"]]
        assert solution.reached[exploded : exploded + 4].tolist() == [True, True, True, False]
        assert solution.reached.size == problem.num_exploded
        assert solution.facts(at["identity"]).tolist() == [0, 1]

    def test_returns_beyond_the_procedure_of_a_seed_are_not_followed(self) -> None:
        b = IfdsBuilder()
        main, callee = b.procedure(2), b.procedure(2)
        inside = b.node(callee)
        b.call(main.entry, callee)
        b.returns(main.entry, callee, main.exit, [(1, 1)])
        b.normal(inside, callee.exit)
        solution = dataflow.ifds(b.build(seeds=[(inside, 1), (main.entry, 0)]))
        assert solution.facts(callee.exit).tolist() == [1]
        assert solution.facts(main.exit).tolist() == []

    def test_facts_of_a_long_chain(self) -> None:
        b = IfdsBuilder()
        main = b.procedure(3)
        nodes = [main.entry, *(b.node(main) for _ in range(5000)), main.exit]
        for source, target in pairwise(nodes):
            b.normal(source, target, gen=[(0, 1)] if source == nodes[2500] else ())
        solution = dataflow.ifds(b.build(seeds=[(main.entry, 0)]))
        assert solution.facts(nodes[2500]).tolist() == [0]
        assert solution.facts(main.exit).tolist() == [0, 1]
        assert len(solution.witness(main.exit, 1)) == 5002

    def test_the_program_prints(self) -> None:
        assert str(dataflow.ifds.program).startswith("program propagate(workgroup 16)")
        assert repr(taint()[0]) == ("<IfdsProblem: 2 procedures, 8 nodes, 6 edges, 2 call sites, 28 exploded nodes>")


class TestWitnesses:
    @pytest.mark.parametrize("name", EXAMPLES)
    def test_every_fact_has_a_realizable_witness(self, name: str) -> None:
        problem = EXAMPLES[name]()
        solution = dataflow.ifds(problem, backend=backend_of(CPU))
        places = sorted(reached_places(problem, solution))
        for node, fact in random.Random(3).sample(places, min(len(places), 60)):
            assert_realizable(problem, solution.witness(node, fact), node, fact)

    def test_a_witness_shows_the_calls(self) -> None:
        problem, at = taint()
        steps = dataflow.ifds(problem).witness(at["exit"], 2)
        assert [step.kind for step in steps] == [
            "seed",
            "normal",
            "call",
            "normal",
            "return",
            "normal",
            "call_to_return",
            "normal",
        ]
        assert steps[2] == dataflow.Step(2, 1, "call")

    def test_witnesses_in_a_program_of_many_procedures(self) -> None:
        problem = random_program(40, 30, 12)
        solution = dataflow.ifds(problem)
        places = sorted(reached_places(problem, solution))
        for node, fact in random.Random(3).sample(places, 60):
            assert_realizable(problem, solution.witness(node, fact), node, fact)

    def test_calls_may_be_nested_deeper_than_pythons(self) -> None:
        b = IfdsBuilder()
        chain = [b.procedure(2) for _ in range(1500)]
        for p, q in pairwise(chain):
            b.call(p.entry, q, [(1, 1)])
            b.returns(p.entry, q, p.exit, [(1, 1)])
        b.normal(chain[-1].entry, chain[-1].exit)
        solution = dataflow.ifds(b.build(seeds=[(chain[0].entry, 1)]))
        assert len(solution.witness(chain[-1].exit, 1)) == 1501
        steps = solution.witness(chain[0].exit, 1)
        assert [step.kind for step in steps] == ["seed", *["call"] * 1499, "normal", *["return"] * 1499]

    def test_a_witness_of_too_many_steps_is_refused(self) -> None:
        b = IfdsBuilder()
        doubling = [b.procedure(2) for _ in range(40)]
        for p, q in pairwise(doubling):
            between = b.node(p)
            for source, target in ((p.entry, between), (between, p.exit)):
                b.call(source, q, [(1, 1)])
                b.returns(source, q, target, [(1, 1)])
        b.normal(doubling[-1].entry, doubling[-1].exit)
        solution = dataflow.ifds(b.build(seeds=[(doubling[0].entry, 1)]))
        assert solution.holds(doubling[0].exit, 1)
        with pytest.raises(BadInputs, match="the witness has more than 1,000 steps"):
            solution.witness(doubling[0].exit, 1, max_steps=1000)


def built(record: Callable[[IfdsBuilder], object]) -> IfdsProblem:
    b = IfdsBuilder()
    main = b.procedure(3, "main")
    b.procedure(2, "other")
    b.node(main)
    b.normal(main.entry, 4)
    record(b)
    return b.build(seeds=[])


# Procedures 0 and 1; nodes 0 and 1 are the entry and exit of main, 2 and 3 those of other, and 4 is inside main.
BAD_PROBLEMS: dict[str, tuple[Callable[[IfdsBuilder], object], str]] = {
    "source": (lambda b: b.normal(9, 4), "'source' of normal edge 1 has node 9, and there are 5 nodes"),
    "target": (lambda b: b.call_to_return(0, -1), "'target' of call_to_return edge 0 has node -1"),
    "two procedures": (
        lambda b: b.normal(0, 2),
        "normal edge 1 goes from node 0 of 'main' to node 2 of 'other'.*connect nodes of one procedure",
    ),
    "edge from the exit": (lambda b: b.normal(1, 4), "normal edge 1 starts at node 1, the exit of 'main'"),
    "call at the exit": (lambda b: b.call(1, 1), "call 0 starts at node 1, the exit of 'main'"),
    "kill": (lambda b: b.normal(0, 4, kill=[3]), "'kill' of normal edge 1 has fact 3, and 'main' has 3 facts"),
    "kill of zero": (lambda b: b.normal(0, 4, kill=[1, 0]), "'kill' of normal edge 1 has fact 0, which always"),
    "gen": (
        lambda b: b.call_to_return(0, 4, gen=[(0, 1), (0, 5)]),
        "'gen' of call_to_return edge 0 has fact 5, and 'main' has 3 facts.*from 0 to 2",
    ),
    "gen of no pairs": (lambda b: b.normal(0, 4, gen=[1]), "'gen' is not a sequence of pairs"),
    "gen of words": (lambda b: b.normal(0, 4, gen=[("x", 1)]), "'gen' has .*'x'.* at 0.*whole numbers"),
    "fraction": (lambda b: b.normal(0.5, 4), "'edges' has .*0.5.* at 1"),
    "caller's fact": (lambda b: b.call(0, 1, [(3, 1)]), "'flows' of call 0, at the call, has fact 3"),
    "entry fact": (lambda b: b.call(0, 1, [(2, 2)]), "'flows' of call 0, at the entry, has fact 2, and 'other'"),
    "call node": (lambda b: b.call(7, 1), "'call_node' of call 0 has node 7"),
    "callee": (lambda b: b.call(0, 2), "'callee' is 2.*from 0 to 1"),
    "no call": (lambda b: b.returns(0, 1, 4), "return 0 is from 'other', which node 0 does not call"),
    "return node": (
        lambda b: (b.call(0, 1), b.returns(0, 1, 3)),
        "return 0 goes from node 0 of 'main' to node 3 of 'other'",
    ),
    "exit fact": (
        lambda b: (b.call(0, 1), b.returns(0, 1, 4, [(2, 0)])),
        "'flows' of return 0, at the exit, has fact 2, and 'other' has 2 facts",
    ),
    "fact after the return": (
        lambda b: (b.call(0, 1), b.returns(0, 1, 4, [(1, 3)])),
        "'flows' of return 0, at the return, has fact 3",
    ),
    "seed node": (lambda b: b.build(seeds=[(0, 0), (5, 0)]), "seed 1 has node 5, and there are 5 nodes"),
    "seed fact": (lambda b: b.build(seeds=[(3, 2)]), "seed 0 has fact 2, and 'other' has 2 facts"),
    "seed of no pair": (lambda b: b.build(seeds=[3]), "'seeds' is not a sequence of pairs"),
    "no facts": (lambda b: b.procedure(0), "'facts' is 0"),
    "procedure": (lambda b: b.node(2), "'procedure' is 2"),
    "no procedures": (lambda _: IfdsBuilder().node(0), "'procedure' names a procedure, and there is none yet"),
    "too large": (
        lambda b: (b.procedure(4_000_000_000), b.build(seeds=[])),
        "the problem has 8,000,000,013 exploded nodes, and indices are u32",
    ),
}


class TestErrors:
    @pytest.mark.parametrize("name", BAD_PROBLEMS)
    def test_a_wrong_problem_is_refused(self, name: str) -> None:
        record, message = BAD_PROBLEMS[name]
        with pytest.raises(BadInputs, match=message):
            built(record)

    def test_questions_about_what_is_not_there_are_refused(self) -> None:
        problem, at = taint()
        solution = dataflow.ifds(problem)
        with pytest.raises(BadInputs, match=r"'node' is 8.*from 0 to 7"):
            solution.facts(8)
        with pytest.raises(BadInputs, match=r"'fact' is 4.*from 0 to 3"):
            solution.holds(at["exit"], 4)
        with pytest.raises(BadInputs, match="fact 3 does not hold at node 1"):
            solution.witness(at["exit"], 3)
        with pytest.raises(BadInputs, match="the problem has no nodes"):
            dataflow.ifds(nothing()).facts(0)
        for solve in (dataflow.ifds, dataflow.ifds_worklist):
            with pytest.raises(BadInputs, match="'problem' is a int"):
                solve(7)  # type: ignore[operator]

    def test_more_path_edges_than_indices_are_refused(self) -> None:
        b = IfdsBuilder()
        main = b.procedure(1_000_000)
        b.call(main.entry, main, [(0, fact) for fact in range(20_000)])
        problem = b.build(seeds=[])
        with pytest.raises(BadInputs, match="the path edges need 1,250,000,000 words"):
            dataflow.ifds(problem)

    def test_columns_are_read_only(self) -> None:
        problem, _ = taint()
        with pytest.raises(ValueError, match="read-only"):
            problem.edge_target[0] = 1
