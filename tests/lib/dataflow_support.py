"""Problems for the tests of dataflow analysis, and a check of witnesses that knows only the problem."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from vyre.lib.dataflow import IfdsBuilder, IfdsProblem, Procedure, Step
from vyre.lib.dataflow.problem import CALL_TO_RETURN, NORMAL


@st.composite
def problems(draw: st.DrawFn, max_facts: int = 5) -> IfdsProblem:
    """Small problems with everything that is legal: recursion, several callees, dead code, seeds anywhere."""
    b = IfdsBuilder()
    procedures = [b.procedure(draw(st.integers(1, max_facts))) for _ in range(draw(st.integers(1, 4)))]
    nodes = [[p.entry, *(b.node(p) for _ in range(draw(st.integers(0, 4)))), p.exit] for p in procedures]

    def fact(p: Procedure, least: int = 0) -> st.SearchStrategy[int]:
        return st.integers(least, p.facts - 1)

    def pairs(p: Procedure, q: Procedure) -> list[tuple[int, int]]:
        return draw(st.lists(st.tuples(fact(p), fact(q)), max_size=3))

    for p, own in zip(procedures, nodes, strict=True):
        inner = st.sampled_from(own[:-1])
        if draw(st.booleans()):
            for source, target in pairwise(own):
                b.normal(source, target)
        for _ in range(draw(st.integers(0, 6))):
            kill = draw(st.lists(fact(p, 1), max_size=2)) if p.facts > 1 else []
            add = b.normal if draw(st.booleans()) else b.call_to_return
            add(draw(inner), draw(st.sampled_from(own)), kill, pairs(p, p))
        for _ in range(draw(st.integers(0, 3))):
            q, call = draw(st.sampled_from(procedures)), draw(inner)
            b.call(call, q, pairs(p, q))
            for _ in range(draw(st.integers(0, 2))):
                b.returns(call, q, draw(st.sampled_from(own)), pairs(q, p))
    seeds = [(procedures[0].entry, 0)] if draw(st.sampled_from((True, True, False))) else []
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(procedures) - 1))
        seeds.append((draw(st.sampled_from(nodes[at])), draw(fact(procedures[at]))))
    return b.build(seeds=seeds)


def plain_reached(problem: IfdsProblem) -> set[tuple[int, int]]:
    """The facts at nodes that realizable paths lead to, by definition: first all summaries, then a search.

    Knows nothing of contexts: summaries are found from every fact at every entry, reached or not.
    """
    edges = _Edges(problem)
    summaries: set[tuple[int, int, int]] = set()  # procedure, fact at its entry, fact at its exit
    before = -1
    while len(summaries) != before:
        before = len(summaries)
        for procedure, count in enumerate(problem.facts.tolist()):
            entry, leave = int(problem.entries[procedure]), int(problem.exits[procedure])
            for fact in range(count):
                inside = edges.search([(entry, fact)], summaries, enters=False)
                summaries |= {(procedure, fact, at_exit) for node, at_exit in inside if node == leave}
    seeds = list(zip(problem.seed_node.tolist(), problem.seed_fact.tolist(), strict=True))
    return edges.search(seeds, summaries, enters=True)


class _Edges:
    """The edges of a problem between facts at nodes."""

    def __init__(self, problem: IfdsProblem) -> None:
        self.problem = problem

    def search(
        self, starts: list[tuple[int, int]], summaries: set[tuple[int, int, int]], *, enters: bool
    ) -> set[tuple[int, int]]:
        found, work = set(starts), list(starts)
        while work:
            for place in self.successors(*work.pop(), summaries, enters=enters):
                if place not in found:
                    found.add(place)
                    work.append(place)
        return found

    def successors(
        self, node: int, fact: int, summaries: set[tuple[int, int, int]], *, enters: bool
    ) -> Iterator[tuple[int, int]]:
        p = self.problem
        for edge in _range(p.first_edge, node):
            target = int(p.edge_target[edge])
            if fact not in p.kill_fact[_slice(p.first_kill, edge)]:
                yield target, fact
            for gen in _range(p.first_gen, edge):
                if p.gen_from[gen] == fact:
                    yield target, int(p.gen_to[gen])
        for site in _range(p.first_site, node):
            callee = int(p.site_callee[site])
            for flow in _range(p.first_flow, site):
                if p.flow_from[flow] != fact:
                    continue
                if enters:
                    yield int(p.entries[callee]), int(p.flow_to[flow])
                for back in _range(p.first_return, site):
                    if (callee, int(p.flow_to[flow]), int(p.return_from[back])) in summaries:
                        yield int(p.return_node[back]), int(p.return_to[back])


def random_program(
    num_procedures: int, num_nodes: int, num_facts: int, *, parameters: int = 3, seed: int = 1
) -> IfdsProblem:
    """A program of procedures that are mostly chains, with branches, loops, and calls of any procedure."""
    random_numbers = random.Random(seed)
    b = IfdsBuilder()
    procedures = [b.procedure(num_facts) for _ in range(num_procedures)]

    def fact() -> int:
        return random_numbers.randrange(1, num_facts)

    for p in procedures:
        nodes = [p.entry, *(b.node(p) for _ in range(num_nodes - 2)), p.exit]
        for at, (source, target) in enumerate(pairwise(nodes)):
            if random_numbers.random() < 0.2:
                callee = random_numbers.choice(procedures)
                b.call(source, callee, [(fact(), entry_fact) for entry_fact in range(1, parameters + 1)])
                b.returns(source, callee, target, [(fact(), fact()) for _ in range(2)])
                b.call_to_return(source, target)
                continue
            kill = [fact()] if random_numbers.random() < 0.3 else []
            gen = [(random_numbers.randrange(num_facts), fact())] if random_numbers.random() < 0.3 else []
            b.normal(source, target, kill, gen)
            if random_numbers.random() < 0.15:
                near = nodes[max(0, at - 8) : at + 8]
                b.normal(source, random_numbers.choice(near))
    return b.build(seeds=((procedures[0].entry, 0),))


def assert_realizable(problem: IfdsProblem, steps: Sequence[Step], node: int, fact: int) -> None:
    """Assert that steps lead from a seed to a fact at a node along edges of the problem, with matching returns."""
    first, last = steps[0], steps[-1]
    seeds = set(zip(problem.seed_node.tolist(), problem.seed_fact.tolist(), strict=True))
    assert first.kind == "seed"
    assert (first.node, first.fact) in seeds
    assert (last.node, last.fact) == (node, fact)
    open_calls: list[int] = []
    for before, after in pairwise(steps):
        if after.kind in ("normal", "call_to_return"):
            assert _is_edge(problem, before, after), (before, after)
        elif after.kind == "call":
            open_calls.append(_called_site(problem, before, after))
        else:
            assert after.kind == "return"
            assert _is_return(problem, open_calls.pop(), before, after), (before, after)


def _is_edge(problem: IfdsProblem, before: Step, after: Step) -> bool:
    for edge in _range(problem.first_edge, before.node):
        kind = CALL_TO_RETURN if after.kind == "call_to_return" else NORMAL
        if problem.edge_target[edge] != after.node or problem.edge_kind[edge] != kind:
            continue
        killed = problem.kill_fact[_slice(problem.first_kill, edge)]
        if before.fact == after.fact and before.fact not in killed:
            return True
        gens = _slice(problem.first_gen, edge)
        if ((problem.gen_from[gens] == before.fact) & (problem.gen_to[gens] == after.fact)).any():
            return True
    return False


def _called_site(problem: IfdsProblem, before: Step, after: Step) -> int:
    for site in _range(problem.first_site, before.node):
        if problem.entries[problem.site_callee[site]] == after.node:
            flows = _slice(problem.first_flow, site)
            assert ((problem.flow_from[flows] == before.fact) & (problem.flow_to[flows] == after.fact)).any()
            return site
    raise AssertionError(f"node {before.node} does not call the procedure of node {after.node}")


def _is_return(problem: IfdsProblem, site: int, before: Step, after: Step) -> bool:
    rows = _slice(problem.first_return, site)
    matches = (problem.return_from[rows] == before.fact) & (problem.return_node[rows] == after.node)
    at_exit = problem.exits[problem.site_callee[site]] == before.node
    return bool(at_exit and (matches & (problem.return_to[rows] == after.fact)).any())


def _range(first: np.ndarray, at: int) -> range:
    return range(int(first[at]), int(first[at + 1]))


def _slice(first: np.ndarray, at: int) -> slice:
    return slice(int(first[at]), int(first[at + 1]))
