"""IFDS problems: a supergraph of procedures, and flow functions on its edges.

A node and a fact make an *exploded node*; a flow function leads from facts to facts. Facts belong to procedures: a node
has as many as its procedure declares, and fact 0 is the zero fact, which always holds. The exploded node of
``(node, fact)`` is ``problem.first_exploded[node] + fact``.

Flow functions stay as they are given, as what they kill and generate: the edges between exploded nodes are implied.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Final

import msgspec
import numpy as np

from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lib.workspace import MAX_ELEMENTS, require_count

NORMAL: Final = 0
CALL_TO_RETURN: Final = 1
_EDGE_NAMES: Final = ("normal", "call_to_return")


class Procedure(msgspec.Struct, frozen=True):
    """A procedure of a problem: its index, its entry and exit node, its number of facts and its name."""

    index: int
    entry: int
    exit: int
    facts: int
    name: str


class IfdsProblem(msgspec.Struct, frozen=True, eq=False):
    """A checked IFDS problem as read-only u32 columns; ``IfdsBuilder.build`` makes it.

    * By procedure: ``facts``, its number of facts; ``entries`` and ``exits``, nodes.
    * By node: ``procedure_of``; ``first_exploded``, its first exploded node, and one element more.
    * Edges within procedures, by source: ``first_edge`` of each node; ``edge_target``; ``edge_kind``, which is
      ``NORMAL`` or ``CALL_TO_RETURN``; ``first_kill`` of each edge in ``kill_fact``, and ``first_gen`` in ``gen_from``
      and ``gen_to``. An edge keeps each fact that it does not kill, and leads from ``gen_from`` to ``gen_to``.
    * Call sites, a call node and one of its callees: ``first_site`` of each node; ``site_call``, ``site_callee``;
      ``first_flow`` of each site in ``flow_from``, a fact of the caller, and ``flow_to``, a fact at the entry;
      ``first_return`` of each site in ``return_from``, a fact at the exit, ``return_node`` and ``return_to``, in the
      caller.
    * ``seed_node``, ``seed_fact``: what holds at the start.

    Columns ``first_...`` have one element more, the length of what they point into.
    """

    names: tuple[str, ...]
    facts: Array
    entries: Array
    exits: Array
    procedure_of: Array
    first_exploded: Array
    first_edge: Array
    edge_target: Array
    edge_kind: Array
    first_kill: Array
    kill_fact: Array
    first_gen: Array
    gen_from: Array
    gen_to: Array
    first_site: Array
    site_call: Array
    site_callee: Array
    first_flow: Array
    flow_from: Array
    flow_to: Array
    first_return: Array
    return_from: Array
    return_node: Array
    return_to: Array
    seed_node: Array
    seed_fact: Array

    @property
    def num_procedures(self) -> int:
        return self.facts.size

    @property
    def num_nodes(self) -> int:
        return self.procedure_of.size

    @property
    def num_exploded(self) -> int:
        return int(self.first_exploded[-1])

    def exploded(self, node: int, fact: int) -> int:
        """The exploded node of a node and a fact; BadInputs if there is none."""
        at = require_count(node, "node", most=self.num_nodes - 1) if self.num_nodes else _no_nodes()
        count = int(self.facts[self.procedure_of[at]])
        return int(self.first_exploded[at]) + require_count(fact, "fact", most=count - 1)

    def __repr__(self) -> str:
        return (
            f"<IfdsProblem: {self.num_procedures:,} procedures, {self.num_nodes:,} nodes, "
            f"{self.edge_target.size:,} edges, {self.site_call.size:,} call sites, "
            f"{self.num_exploded:,} exploded nodes>"
        )


class IfdsBuilder:
    """Records the procedures, nodes and flow functions of an IFDS problem.

    A call node may have several callees. No edge within a procedure leaves its exit, and nothing is called there.
    Recording costs about a microsecond for each call; ``build`` checks and sorts everything at once with NumPy.

    >>> b = IfdsBuilder()
    >>> main = b.procedure(facts=2, name="main")
    >>> b.normal(main.entry, main.exit, gen=((0, 1),))
    >>> b.build(seeds=((main.entry, 0),))
    <IfdsProblem: 1 procedures, 2 nodes, 1 edges, 0 call sites, 4 exploded nodes>
    """

    def __init__(self) -> None:
        self._procedures: list[Procedure] = []
        self._procedure_of: list[int] = []
        # Edges within procedures, with the facts that each kills and the pairs that each generates.
        self._edges: list[tuple[int, int, int]] = []
        self._kills: list[tuple[int, int]] = []
        self._gens: list[tuple[int, int, int]] = []
        self._calls: list[tuple[int, int]] = []
        self._call_flows: list[tuple[int, int, int]] = []
        self._returns: list[tuple[int, int, int]] = []
        self._return_flows: list[tuple[int, int, int]] = []

    def procedure(self, facts: int, name: str | None = None) -> Procedure:
        """Add a procedure with this many facts, the zero fact included, and its entry and exit node."""
        count = require_count(facts, "facts", least=1, most=MAX_ELEMENTS)
        number, entry = len(self._procedures), len(self._procedure_of)
        made = Procedure(number, entry, entry + 1, count, f"procedure {number}" if name is None else name)
        self._procedures.append(made)
        self._procedure_of += (number, number)
        return made

    def node(self, procedure: Procedure | int) -> int:
        """Add a node to a procedure and return its index."""
        self._procedure_of.append(self._index_of(procedure, "procedure"))
        return len(self._procedure_of) - 1

    def normal(self, source: int, target: int, kill: Iterable[int] = (), gen: Iterable[tuple[int, int]] = ()) -> None:
        """Add a control flow edge: every fact but those in ``kill`` stays, and ``gen`` adds (from, to) pairs."""
        self._edge(NORMAL, source, target, kill, gen)

    def call_to_return(
        self, call_node: int, return_node: int, kill: Iterable[int] = (), gen: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Add the edge that passes by a call: what the callee does not see; ``kill`` and ``gen`` as in ``normal``."""
        self._edge(CALL_TO_RETURN, call_node, return_node, kill, gen)

    def call(self, call_node: int, callee: Procedure | int, flows: Iterable[tuple[int, int]] = ()) -> None:
        """Add a callee to a call node; ``flows`` are (caller's fact, fact at the entry) pairs, (0, 0) among them."""
        number = len(self._calls)
        self._calls.append((call_node, self._index_of(callee, "callee")))
        self._call_flows.append((number, 0, 0))
        self._call_flows += [
            (number, *one) for one in _pairs(flows, "flows", "a caller's fact and a fact at the entry")
        ]

    def returns(
        self, call_node: int, callee: Procedure | int, return_node: int, flows: Iterable[tuple[int, int]] = ()
    ) -> None:
        """Add where a call returns to; ``flows`` are (fact at the exit, caller's fact) pairs, (0, 0) among them."""
        number = len(self._returns)
        self._returns.append((call_node, self._index_of(callee, "callee"), return_node))
        self._return_flows.append((number, 0, 0))
        self._return_flows += [
            (number, *one) for one in _pairs(flows, "flows", "a fact at the exit and a caller's fact")
        ]

    def build(self, seeds: Iterable[tuple[int, int]]) -> IfdsProblem:
        """Return the problem, with (node, fact) pairs that hold at the start; O(n log n) of what was recorded.

        BadInputs names the kind of edge, its position and what is wrong with it.
        """
        return _assemble(
            self._procedures,
            np.array(self._procedure_of, np.int64),
            edges=_table(self._edges, 3, "edges"),
            kills=_table(self._kills, 2, "kill"),
            gens=_table(self._gens, 3, "gen"),
            calls=_table(self._calls, 2, "call"),
            call_flows=_table(self._call_flows, 3, "flows of call"),
            returns=_table(self._returns, 3, "returns"),
            return_flows=_table(self._return_flows, 3, "flows of returns"),
            seeds=_table(_pairs(seeds, "seeds", "a node and a fact"), 2, "seeds"),
        )

    def _edge(self, kind: int, source: int, target: int, kill: Iterable[int], gen: Iterable[tuple[int, int]]) -> None:
        number = len(self._edges)
        self._edges.append((kind, source, target))
        self._kills += [(number, fact) for fact in kill]
        self._gens += [(number, *one) for one in _pairs(gen, "gen", "a fact before and a fact after")]

    def _index_of(self, procedure: Procedure | int, name: str) -> int:
        if isinstance(procedure, Procedure):
            procedure = procedure.index
        if not self._procedures:
            raise BadInputs(f"'{name}' names a procedure, and there is none yet.", "add one: builder.procedure(facts).")
        return require_count(procedure, name, most=len(self._procedures) - 1)


def require_problem(problem: object) -> IfdsProblem:
    """The problem, if it is one."""
    if not isinstance(problem, IfdsProblem):
        raise BadInputs(f"'problem' is a {type(problem).__name__}.", "build one: dataflow.IfdsBuilder().")
    return problem


def _no_nodes() -> int:
    raise BadInputs("the problem has no nodes.", "add a procedure to the builder.")


def _pairs(pairs: Iterable[Any], name: str, meaning: str) -> list[tuple[Any, Any]]:
    try:
        return [(first, second) for first, second in pairs]
    except (TypeError, ValueError):
        raise BadInputs(f"'{name}' is not a sequence of pairs.", f"pass pairs of {meaning}.") from None


def _table(rows: Sequence[Sequence[Any]], width: int, name: str) -> tuple[Array, ...]:
    """The columns of recorded rows, as i64; BadInputs names a row with an element that is no whole number."""
    try:
        elements = array("q", chain.from_iterable(rows))
    except (TypeError, OverflowError):
        at, wrong = next((at, row) for at, row in enumerate(rows) if not _is_whole(row))
        raise BadInputs(f"'{name}' has {wrong!r:.80} at {at}.", "pass whole numbers of at most 64 bits.") from None
    table = np.frombuffer(elements, np.int64) if elements else np.zeros(0, np.int64)
    return tuple(np.ascontiguousarray(column) for column in table.reshape(-1, width).T)


def _is_whole(row: Sequence[Any]) -> bool:
    try:
        array("q", row)
    except (TypeError, OverflowError):
        return False
    return True


def _require(valid: Array, problem: Callable[[int], tuple[str, str]]) -> None:
    """Raise BadInputs for the first row that is not valid; ``problem`` describes it and the fix."""
    if not valid.all():
        raise BadInputs(*problem(int(np.argmin(valid))))


class _Supergraph(msgspec.Struct, frozen=True):
    """What flow functions are checked against."""

    procedures: list[Procedure]
    procedure_of: Array
    facts_of: Array

    def require_nodes(self, column: Array, name: str) -> None:
        count = self.procedure_of.size
        _require(
            (column >= 0) & (column < count),
            lambda at: (
                f"{name} {at} has node {column[at]}, and there are {count:,} nodes.",
                "pass a node of the builder.",
            ),
        )

    def require_facts(self, procedures: Array, column: Array, name: Callable[[int], str]) -> None:
        counts = self.facts_of[procedures]

        def describe(at: int) -> tuple[str, str]:
            owner = self.procedures[procedures[at]]
            return (
                f"{name(at)} has fact {column[at]}, and '{owner.name}' has {owner.facts:,} facts.",
                f"pass a fact from 0 to {owner.facts - 1:,}, or declare more facts.",
            )

        _require((column >= 0) & (column < counts), describe)

    def require_same(self, left: Array, right: Array, name: Callable[[int], str]) -> None:
        _require(
            self.procedure_of[left] == self.procedure_of[right],
            lambda at: (
                f"{name(at)} goes from node {left[at]} of '{self._name(left[at])}' "
                f"to node {right[at]} of '{self._name(right[at])}'.",
                "connect nodes of one procedure; use call and returns between procedures.",
            ),
        )

    def require_no_exit(self, column: Array, name: Callable[[int], str]) -> None:
        exits = np.array([one.exit for one in self.procedures], np.int64)
        _require(
            exits[self.procedure_of[column]] != column,
            lambda at: (
                f"{name(at)} starts at node {column[at]}, the exit of '{self._name(column[at])}'.",
                "add a node before the exit, and start there.",
            ),
        )

    def _name(self, node: int) -> str:
        return self.procedures[int(self.procedure_of[node])].name


def _assemble(
    procedures: list[Procedure],
    procedure_of: Array,
    *,
    edges: tuple[Array, ...],
    kills: tuple[Array, ...],
    gens: tuple[Array, ...],
    calls: tuple[Array, ...],
    call_flows: tuple[Array, ...],
    returns: tuple[Array, ...],
    return_flows: tuple[Array, ...],
    seeds: tuple[Array, ...],
) -> IfdsProblem:
    facts_of = np.array([one.facts for one in procedures], np.int64)
    first_exploded = np.concatenate(([0], np.cumsum(facts_of[procedure_of])))
    if first_exploded[-1] > MAX_ELEMENTS:
        raise BadInputs(
            f"the problem has {first_exploded[-1]:,} exploded nodes, and indices are u32.",
            "declare fewer facts for large procedures, or split the problem.",
        )
    graph = _Supergraph(procedures, procedure_of, facts_of)
    edge_columns = _edge_columns(graph, edges, kills, gens)
    sites, flow_columns = _call_columns(graph, calls, call_flows)
    return_columns = _return_columns(graph, sites, returns, return_flows)
    seed_node, seed_fact = seeds
    graph.require_nodes(seed_node, "seed")
    graph.require_facts(procedure_of[seed_node], seed_fact, lambda at: f"seed {at}")
    site_call = sites >> 32
    columns = (
        facts_of,
        np.array([one.entry for one in procedures]),
        np.array([one.exit for one in procedures]),
        procedure_of,
        first_exploded,
        *edge_columns,
        starts(site_call, procedure_of.size),
        site_call,
        sites & 0xFFFFFFFF,
        *flow_columns,
        *return_columns,
        *_distinct_rows(seed_node, seed_fact),
    )
    return IfdsProblem(tuple(one.name for one in procedures), *map(_frozen, columns))


def _frozen(column: Array) -> Array:
    made = np.array(column, np.uint32)
    made.flags.writeable = False
    return made


def starts(keys: Array, count: int) -> Array:
    """Where each key's elements begin in a sorted column of keys, and the column's length."""
    return np.concatenate(([0], np.cumsum(np.bincount(keys, minlength=count)))).astype(np.uint32)


def _distinct_rows(*columns: Array) -> list[Array]:
    """The distinct rows of some columns, sorted by the first column, then the second and so on."""
    order = np.lexsort(columns[::-1])
    table = np.stack(columns)[:, order]
    is_new = np.ones(order.size, bool)
    is_new[1:] = (table[:, 1:] != table[:, :-1]).any(axis=0)
    return list(table[:, is_new])


def _edge_columns(
    graph: _Supergraph, edges: tuple[Array, ...], kills: tuple[Array, ...], gens: tuple[Array, ...]
) -> list[Array]:
    """The edges within procedures, sorted by source, with what each kills and generates."""
    kind, source, target = edges
    position = _positions_by_kind(kind)

    def named(at: int) -> str:
        return f"{_EDGE_NAMES[kind[at]]} edge {position[at]}"

    for which, name in enumerate(_EDGE_NAMES):
        for column, end in ((source, "source"), (target, "target")):
            graph.require_nodes(column[kind == which], f"'{end}' of {name} edge")
    graph.require_same(source, target, named)
    graph.require_no_exit(source, named)
    kill_edge, kill_fact = kills
    gen_edge, gen_from, gen_to = gens
    owner = graph.procedure_of[source]
    graph.require_facts(owner[kill_edge], kill_fact, lambda at: f"'kill' of {named(kill_edge[at])}")
    for column in (gen_from, gen_to):
        graph.require_facts(owner[gen_edge], column, lambda at: f"'gen' of {named(gen_edge[at])}")
    _require(
        kill_fact != 0,
        lambda at: (f"'kill' of {named(kill_edge[at])} has fact 0, which always holds.", "leave fact 0 out of it."),
    )
    order = np.argsort(source, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    kill_edge, kill_fact = _distinct_rows(place[kill_edge], kill_fact)
    gen_edge, gen_from, gen_to = _distinct_rows(place[gen_edge], gen_from, gen_to)
    return [
        starts(source, graph.procedure_of.size),
        target[order],
        kind[order],
        starts(kill_edge, order.size),
        kill_fact,
        starts(gen_edge, order.size),
        gen_from,
        gen_to,
    ]


def _positions_by_kind(kind: Array) -> Array:
    """The position of each edge among those of its kind, as the caller added them."""
    bypasses = np.cumsum(kind)
    return np.where(kind == CALL_TO_RETURN, bypasses - 1, np.arange(kind.size) - bypasses)


def _call_columns(graph: _Supergraph, calls: tuple[Array, ...], flows: tuple[Array, ...]) -> tuple[Array, list[Array]]:
    """The call sites as sorted (node, callee) keys, and their call flows, sorted by site."""
    node, callee = calls
    number, before, after = flows
    graph.require_nodes(node, "'call_node' of call")
    graph.require_no_exit(node, lambda at: f"call {at}")
    caller = graph.procedure_of[node]
    graph.require_facts(caller[number], before, lambda at: f"'flows' of call {number[at]}, at the call,")
    graph.require_facts(callee[number], after, lambda at: f"'flows' of call {number[at]}, at the entry,")
    sites, site = np.unique((node << 32) | callee, return_inverse=True)
    site_of, before, after = _distinct_rows(site[number], before, after)
    return sites, [starts(site_of, sites.size), before, after]


def _return_columns(
    graph: _Supergraph, sites: Array, returns: tuple[Array, ...], flows: tuple[Array, ...]
) -> list[Array]:
    """The return flows, sorted by site."""
    node, callee, target = returns
    number, before, after = flows
    graph.require_nodes(node, "'call_node' of return")
    graph.require_nodes(target, "'return_node' of return")
    graph.require_same(node, target, lambda at: f"return {at}")
    caller = graph.procedure_of[node]
    graph.require_facts(callee[number], before, lambda at: f"'flows' of return {number[at]}, at the exit,")
    graph.require_facts(caller[number], after, lambda at: f"'flows' of return {number[at]}, at the return,")
    keys = (node << 32) | callee
    site = np.searchsorted(sites, keys)
    _require(
        np.append(sites, -1)[site] == keys,
        lambda at: (
            f"return {at} is from '{graph.procedures[callee[at]].name}', which node {node[at]} does not call.",
            "add the call: builder.call(call_node, callee, flows).",
        ),
    )
    site_of, before, back, after = _distinct_rows(site[number], before, target[number], after)
    return [starts(site_of, sites.size), before, back, after]
