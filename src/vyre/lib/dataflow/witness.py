"""Witnesses: realizable paths that show why a fact may hold.

A witness is found on the host, on demand, from the path edges of a solution. First a shortest chain of open calls from
a context with a seed to one of the goal's. Then a shortest path inside each procedure of the chain, in which a call
that returns is one *summary* hop. Last, each summary hop is expanded into a path through its callee, which uses only
summaries of lower rank: so expansion ends, also where procedures recurse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Final, Literal

import msgspec
import numpy as np

from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lib.dataflow.contexts import NONE, SEEDED, WORD
from vyre.lib.dataflow.problem import starts
from vyre.lib.dataflow.solution import IfdsSolution

Kind = Literal["seed", "normal", "call", "return", "call_to_return"]
_EDGE_KINDS: Final[tuple[Kind, Kind]] = ("normal", "call_to_return")


class Step(msgspec.Struct, frozen=True):
    """One exploded node on a witness, and the kind of edge that leads to it."""

    node: int
    fact: int
    kind: Kind


# A fact at a node.
_Place = tuple[int, int]


class _Hop(msgspec.Struct, frozen=True):
    """An edge inside one procedure; a summary hop has the callee's context and the fact at its exit."""

    target: _Place
    kind: Kind
    summary: tuple[int, int] | None = None


class WitnessSearch:
    """Finds witnesses in one solution, and keeps what several of them share."""

    def __init__(self, solution: IfdsSolution) -> None:
        self._problem, self._contexts = solution.problem, solution.contexts
        self._bits, self._ranks = solution.bits, solution.ranks
        problem = self._problem
        self._flow_site = np.repeat(np.arange(problem.site_call.size), np.diff(problem.first_flow))
        self._summaries: dict[tuple[int, int], list[_Hop]] = {}

    def find(self, node: int, fact: int, max_steps: int) -> list[Step]:
        self._problem.exploded(node, fact)
        contexts = self._contexts_at(node, fact)
        if not contexts:
            raise BadInputs(f"fact {fact} does not hold at node {node}.", "ask holds(node, fact) first.")
        steps: list[Step] = []
        for place, kind in self._steps(contexts, (int(node), int(fact))):
            if len(steps) == max_steps:
                raise BadInputs(f"the witness has more than {max_steps:,} steps.", "pass a larger max_steps.")
            steps.append(Step(*place, kind))
        return steps

    def _steps(self, contexts: list[int], goal: _Place) -> Iterator[tuple[_Place, Kind]]:
        """The places of a witness and the kinds of edges to them, from the seed on."""
        chain = self._chain(contexts)
        goals = [self._call_place(flow) for _, flow in chain[1:]] + [goal]
        for position, ((context, _), end) in enumerate(zip(chain, goals, strict=True)):
            start, hops = self._path(context, end, NONE)
            yield start, "call" if position else "seed"
            yield from self._expanded(hops)

    def _expanded(self, hops: list[_Hop]) -> Iterator[tuple[_Place, Kind]]:
        """The steps of hops, with the callee's path in place of each summary."""
        # The hops under way, innermost last. A callee's path is followed by the return, which needs no expansion.
        stack = [iter(hops)]
        while stack:
            hop = next(stack[-1], None)
            if hop is None:
                stack.pop()
            elif hop.summary is None:
                yield hop.target, hop.kind
            else:
                context, _ = hop.summary
                yield self._entry_place(context), "call"
                stack.append(iter((*self._summary_path(*hop.summary), _Hop(hop.target, "return"))))

    def _chain(self, contexts: list[int]) -> list[tuple[int, int]]:
        """Contexts from one with a seed to one of those given, each with the call flow that leads to it."""
        chain: list[tuple[int, int]] = []
        context = min(contexts, key=self._search_order.__getitem__)
        while (link := self._callers[context]) is not None:
            caller, flow = link
            chain.append((context, flow))
            context = caller
        return [(context, 0), *reversed(chain)]

    @cached_property
    def _callers(self) -> dict[int, tuple[int, int] | None]:
        """For each context that is reached, one that calls it and the call flow; None for those with seeds.

        Found breadth first, so following them gives the fewest open calls.
        """
        callers: dict[int, tuple[int, int] | None] = dict.fromkeys(np.unique(self._contexts.of_seed).tolist())
        first, flows = self._context_flows()
        callees = self._contexts.of_flow.tolist()
        queue = deque(callers)
        while queue:
            context = queue.popleft()
            for flow in flows[first[context] : first[context + 1]]:
                callee = callees[flow]
                if callee not in callers:
                    callers[callee] = (context, flow)
                    queue.append(callee)
        return callers

    @cached_property
    def _search_order(self) -> dict[int, int]:
        return {context: position for position, context in enumerate(self._callers)}

    def _context_flows(self) -> tuple[list[int], list[int]]:
        """The call flows that each context takes: where they begin, and their numbers."""
        problem, contexts = self._problem, self._contexts
        call = problem.site_call[self._flow_site]
        counts = contexts.of_node[call].astype(np.int64)
        flow = np.repeat(np.arange(counts.size), counts)
        context = np.arange(flow.size) - np.repeat(np.cumsum(counts) - counts, counts)
        context += contexts.first[problem.procedure_of[call]][flow]
        fact = problem.flow_from[flow]
        words = self._bits[contexts.words(context, call[flow], fact)]
        taken = words >> fact % np.uint32(WORD) & np.uint32(1) != 0
        flow, context = flow[taken], context[taken]
        first = starts(context, contexts.fact.size).tolist()
        return first, flow[np.argsort(context, kind="stable")].tolist()

    def _path(self, context: int, goal: _Place, rank: int) -> tuple[_Place, list[_Hop]]:
        """A shortest path inside a procedure, with summaries of lower rank: where it starts, and its hops."""
        parents: dict[_Place, tuple[_Place, _Hop] | None] = dict.fromkeys(self._starts(context))
        queue = deque(parents)
        while goal not in parents:
            source = queue.popleft()
            for hop in self._hops(*source, rank):
                if hop.target not in parents:
                    parents[hop.target] = (source, hop)
                    queue.append(hop.target)
        hops: list[_Hop] = []
        place = goal
        while (link := parents[place]) is not None:
            place, hop = link
            hops.append(hop)
        return place, hops[::-1]

    def _summary_path(self, context: int, leaving: int) -> list[_Hop]:
        """The hops from a context's entry to a fact at the exit."""
        key = (context, leaving)
        if key not in self._summaries:
            procedure = self._contexts.procedure[context]
            goal = int(self._problem.exits[procedure]), leaving
            _, self._summaries[key] = self._path(context, goal, self._rank(context, leaving))
        return self._summaries[key]

    def _call_place(self, flow: int) -> _Place:
        return int(self._problem.site_call[self._flow_site[flow]]), int(self._problem.flow_from[flow])

    def _entry_place(self, context: int) -> _Place:
        return int(self._problem.entries[self._contexts.procedure[context]]), int(self._contexts.fact[context])

    def _rank(self, context: int, fact: int) -> int:
        """The rank of a fact at the exit of a context's procedure."""
        return int(self._ranks[self._contexts.ranks(np.array([context]), np.array([fact]))[0]])

    def _starts(self, context: int) -> list[_Place]:
        entry = self._entry_place(context)
        if entry[1] != SEEDED:
            return [entry]
        mine = self._contexts.of_seed == context
        return list(zip(self._problem.seed_node[mine].tolist(), self._problem.seed_fact[mine].tolist(), strict=True))

    def _hops(self, node: int, fact: int, rank: int) -> Iterator[_Hop]:
        """The edges and summaries from a place; edges first, so that witnesses enter few callees."""
        yield from self._edge_hops(node, fact)
        for callee, site in self._calls(node, fact):
            for back, leaving in self._returns(site):
                if self._rank(callee, leaving) < rank:
                    yield _Hop(back, "return", (callee, leaving))

    def _edge_hops(self, node: int, fact: int) -> Iterator[_Hop]:
        problem = self._problem
        for edge in range(*problem.first_edge[node : node + 2].tolist()):
            target, kind = int(problem.edge_target[edge]), _EDGE_KINDS[problem.edge_kind[edge]]
            if fact not in _part(problem.kill_fact, problem.first_kill, edge):
                yield _Hop((target, fact), kind)
            made = _part(problem.gen_to, problem.first_gen, edge)
            for before, after in zip(_part(problem.gen_from, problem.first_gen, edge), made, strict=True):
                if before == fact:
                    yield _Hop((target, after), kind)

    def _calls(self, node: int, fact: int) -> Iterator[tuple[int, int]]:
        """The contexts that a place calls, and the sites."""
        problem = self._problem
        for site in range(*problem.first_site[node : node + 2].tolist()):
            begun = _part(self._contexts.of_flow, problem.first_flow, site)
            for before, context in zip(_part(problem.flow_from, problem.first_flow, site), begun, strict=True):
                if before == fact:
                    yield context, site

    def _returns(self, site: int) -> Iterator[tuple[_Place, int]]:
        """The places that a site returns to, and the facts at the exit that lead there."""
        problem = self._problem
        columns = (problem.return_node, problem.return_to, problem.return_from)
        for node, fact, leaving in zip(*(_part(one, problem.first_return, site) for one in columns), strict=True):
            yield (node, fact), leaving

    def _contexts_at(self, node: int, fact: int) -> list[int]:
        """The contexts in which a fact is derived at a node."""
        count = int(self._contexts.of_node[node])
        start = int(self._contexts.first_word[node]) + fact // WORD * count
        has_fact = self._bits[start : start + count] >> np.uint32(fact % WORD) & np.uint32(1)
        found: list[int] = (
            np.flatnonzero(has_fact) + int(self._contexts.first[self._problem.procedure_of[node]])
        ).tolist()
        return found


def _part(column: Array, first: Array, position: int) -> list[int]:
    """The elements of one range of a column."""
    part: list[int] = column[first[position] : first[position + 1]].tolist()
    return part
