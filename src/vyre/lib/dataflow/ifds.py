"""IFDS in parallel: fresh path edges are passed on until there are none, in one persistent kernel.

Path edges are bitsets of facts for each node and context (see ``contexts``). A *cell* is one word of them. A turn takes
the cells that have fresh facts and passes these on:

* along an edge within the procedure: all facts of a cell at once, less what the edge kills, and what it generates;
* at a call: into contexts of the callees, and to the return nodes, for facts at the exit that have left it before.

Facts at exits wait until no other cell has fresh ones. Then they leave: they go to the return nodes of all calls that
began their contexts so far, and are marked with the number of the stage, their *rank*. A fact at an exit so depends
only on such of lower rank, which ``witness`` relies on.

Between barriers all accesses to path edges are atomic. Facts are only ever added, and each stage goes on to a fixpoint,
so neither path edges nor ranks depend on the order.

Most control flow is a chain. An invocation follows a chain itself, until it comes to facts that a call passes on, to an
exit, or to a cell that has these facts already, so that a long chain does not take as many turns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.ir.binding import Array
from vyre.lib.dataflow.contexts import NONE, WORD, Contexts, fact_words, number_contexts
from vyre.lib.dataflow.problem import IfdsProblem, require_problem, starts
from vyre.lib.dataflow.solution import IfdsSolution
from vyre.lib.workspace import Operand, Workspace, shows_program

WORKGROUP: Final = 16
# A small problem is solved by few workgroups, which wait less for each other.
NODES_FOR_EACH_WORKGROUP: Final = 8192
# Kinds of nodes where a chain stops.
CALL: Final = 1
EXIT: Final = 2
# Columns of the tables; those that begin a range end it in the next row.
SPECIAL, STOP, FIRST_WORD, CONTEXTS, FIRST_CONTEXT, FIRST_RANK, FIRST_EDGE, FIRST_SITE, NODE_COLUMNS = range(9)
TARGET, TARGET_WORD, TARGET_STOP, KILL, FIRST_GEN, EDGE_COLUMNS = range(6)
CALLER, ENTRY, EXIT_NODE, FIRST_FLOW, FIRST_RETURN, SITE_COLUMNS = range(6)
FROM, TO, NODE, RETURN_COLUMNS = range(4)
CONTEXT, SITE, CALLERS, FLOW_COLUMNS = range(2, 6)
GEN_COLUMNS: Final = 2
QUEUE_COLUMNS: Final = 4  # node, word, context, fresh facts
# Sizes in ``counts``: of the queue and its calls, for three turns, and of the exits, for two stages.
EXITS: Final = 6


@vyre.function
def has(bits, word, fact):
    """Whether a word of a bitset has a fact."""
    return fact // 32 == word and bits >> fact % 32 & 1 != 0


@vyre.function
def derive(derived, cell, facts):
    """Add facts to a cell; those that were missing."""
    missing = facts & ~vyre.atomic_load(derived, cell)
    if missing != 0:
        missing = missing & ~vyre.atomic_or(derived, cell, missing)
    return missing


@vyre.function
def append(queue, slot, node, word, context):
    """Queue a cell; its fresh facts are taken later."""
    queue[slot, 0] = node
    queue[slot, 1] = word
    queue[slot, 2] = context


@vyre.function
def enqueue(nodes, fresh, queue, calls, exits, counts, turn, stage, node, word, context, cell, facts):
    """Pass fresh facts of a cell on in the next turn, or at an exit in this stage's end."""
    if facts != 0 and vyre.atomic_or(fresh, cell, facts) == 0:
        special = nodes[node, SPECIAL]
        if special == EXIT:
            slot = stage % 2 * (len(exits) // 2) + vyre.atomic_add(counts, EXITS + stage % 2, 1)
            append(exits, slot, node, word, context)
        else:
            sizes = (turn + 1) % 3 * 2
            slot = (turn + 1) % 2 * (len(queue) // 2) + vyre.atomic_add(counts, sizes, 1)
            append(queue, slot, node, word, context)
            if special == CALL:
                calls[(turn + 1) % 2 * (len(calls) // 2) + vyre.atomic_add(counts, sizes + 1, 1)] = slot


@vyre.function
def cell_of(nodes, node, word, context):
    """The cell of a word of facts."""
    return nodes[node, FIRST_WORD] + word * nodes[node, CONTEXTS] + context


@vyre.function
def add_fact(nodes, derived, fresh, queue, calls, exits, counts, turn, stage, node, context, fact):
    """Derive a fact at a node in a context."""
    word = fact // 32
    cell = cell_of(nodes, node, word, context)
    missing = derive(derived, cell, u32(1) << fact % 32)
    enqueue(nodes, fresh, queue, calls, exits, counts, turn, stage, node, word, context, cell, missing)


@vyre.function
def follow_chains(nodes, edges, gens, masks, derived, fresh, queue, calls, exits, counts, turn, stage, size):
    """Pass facts on along the edges of the queued cells, and then from one target, as long as it is no call or exit."""
    at = vyre.gid()
    node, word, context, offset, facts = u32(0), u32(0), u32(0), u32(0), u32(0)
    edge, last, passed = u32(0), u32(0), u32(0)
    # One edge in each pass, so that lanes at nodes with one edge do not wait for those with several.
    while edge < last or facts != 0 or at < size:
        if edge == last:
            if facts == 0:
                slot = turn % 2 * (len(queue) // 2) + at
                node, word, context, facts = queue[slot, 0], queue[slot, 1], queue[slot, 2], queue[slot, 3]
                offset = word * nodes[node, CONTEXTS] + context
                at += vyre.num_workgroups() * WORKGROUP
            edge, last = nodes[node, FIRST_EDGE], nodes[node + 1, FIRST_EDGE]
            passed, facts = facts, u32(0)
        if edge < last:
            target = edges[edge, TARGET]
            kept = passed & ~masks[edges[edge, KILL] + word]
            for gen in range(edges[edge, FIRST_GEN], edges[edge + 1, FIRST_GEN]):
                if has(passed, word, gens[gen, FROM]):
                    made = gens[gen, TO]
                    if made // 32 == word:
                        kept = kept | u32(1) << made % 32
                    else:
                        add_fact(nodes, derived, fresh, queue, calls, exits, counts, turn, stage, target, context, made)
            cell = edges[edge, TARGET_WORD] + offset
            missing = derive(derived, cell, kept)
            if facts == 0 and missing & masks[edges[edge, TARGET_STOP] + word] == 0:
                node, facts = target, missing
            else:
                enqueue(nodes, fresh, queue, calls, exits, counts, turn, stage, target, word, context, cell, missing)
            edge += 1


@vyre.function
def rank_place(nodes, node, context, fact):
    """Where the rank of a fact at an exit is."""
    return (nodes[node, FIRST_RANK] + fact // 32 * nodes[node, CONTEXTS] + context) * 32 + fact % 32


@vyre.function
def enter_callees(
    nodes, masks, sites, flows, returns, callers, ranks, derived, fresh, queue, calls, exits, counts, turn, stage, size
):
    """Begin the contexts that facts at calls lead to, and return what has left their exits before."""
    at = vyre.gid()
    while at < size:
        slot = calls[turn % 2 * (len(calls) // 2) + at]
        node, word, context, facts = queue[slot, 0], queue[slot, 1], queue[slot, 2], queue[slot, 3]
        facts = facts & masks[nodes[node, STOP] + word]
        site = nodes[node, FIRST_SITE]
        while facts != 0 and site < nodes[node + 1, FIRST_SITE]:
            for flow in range(sites[site, FIRST_FLOW], sites[site + 1, FIRST_FLOW]):
                if has(facts, word, flows[flow, FROM]):
                    begun, entry, fact = flows[flow, CONTEXT], sites[site, ENTRY], flows[flow, TO]
                    vyre.atomic_or(callers, flows[flow, CALLERS] + context // 32, u32(1) << context % 32)
                    add_fact(nodes, derived, fresh, queue, calls, exits, counts, turn, stage, entry, begun, fact)
                    for back in range(sites[site, FIRST_RETURN], sites[site + 1, FIRST_RETURN]):
                        if ranks[rank_place(nodes, sites[site, EXIT_NODE], begun, returns[back, FROM])] != NONE:
                            after, fact = returns[back, NODE], returns[back, TO]
                            add_fact(
                                nodes, derived, fresh, queue, calls, exits, counts, turn, stage, after, context, fact
                            )
            site += 1
        at += vyre.num_workgroups() * WORKGROUP


@vyre.function
def return_to_callers(
    nodes, sites, flows, returns, first_entering, entering, callers, derived, fresh, queue, calls, exits, counts, turn,
    stage, size,
):  # fmt: skip
    """Return facts at exits to the callers of their contexts; a workgroup goes through the callers of one together.

    What is derived at exits then belongs to the next stage.
    """
    at = vyre.wg()
    while at < size:
        slot = stage % 2 * (len(exits) // 2) + at
        word, facts = exits[slot, 1], exits[slot, 3]
        begun = nodes[exits[slot, 0], FIRST_CONTEXT] + exits[slot, 2]
        place = first_entering[begun] + vyre.lid()
        while place < first_entering[begun + 1]:
            flow = entering[place]
            site = flows[flow, SITE]
            for back in range(sites[site, FIRST_RETURN], sites[site + 1, FIRST_RETURN]):
                if has(facts, word, returns[back, FROM]):
                    after, fact = returns[back, NODE], returns[back, TO]
                    for group in range((nodes[sites[site, CALLER], CONTEXTS] + 31) // 32):
                        waiting = callers[flows[flow, CALLERS] + group]
                        while waiting != 0:
                            context = group * 32 + vyre.ctz(waiting)
                            waiting = waiting & (waiting - 1)
                            add_fact(
                                nodes,
                                derived,
                                fresh,
                                queue,
                                calls,
                                exits,
                                counts,
                                turn,
                                stage + 1,
                                after,
                                context,
                                fact,
                            )
            place += WORKGROUP
        at += vyre.num_workgroups()


@vyre.function
def take_fresh(nodes, fresh, queue, slot):
    """Move the fresh facts of a queued cell into the queue, where all invocations may read them."""
    cell = cell_of(nodes, queue[slot, 0], queue[slot, 1], queue[slot, 2])
    queue[slot, 3] = fresh[cell]
    fresh[cell] = 0


@vyre.kernel(workgroup=WORKGROUP)
def propagate(
    nodes: vyre.In[u32, (None, NODE_COLUMNS)],
    edges: vyre.In[u32, (None, EDGE_COLUMNS)],
    gens: vyre.In[u32, (None, GEN_COLUMNS)],
    masks: vyre.In[u32],
    sites: vyre.In[u32, (None, SITE_COLUMNS)],
    flows: vyre.In[u32, (None, FLOW_COLUMNS)],
    returns: vyre.In[u32, (None, RETURN_COLUMNS)],
    first_entering: vyre.In[u32],
    entering: vyre.In[u32],
    derived: vyre.InOut[u32],
    fresh: vyre.InOut[u32],
    callers: vyre.InOut[u32],
    ranks: vyre.InOut[u32],
    queue: vyre.InOut[u32, (None, QUEUE_COLUMNS)],
    calls: vyre.InOut[u32],
    exits: vyre.InOut[u32, (None, QUEUE_COLUMNS)],
    counts: vyre.InOut[u32],
) -> None:
    """Pass fresh facts on until there are none.

    ``queue`` holds the cells of this turn in one half and those of the next in the other, and so does ``calls`` for the
    slots of those at calls; ``exits`` has the cells at exits of this stage and the next.
    """
    turn, stage = 0, 0
    size, num_calls, num_exits = counts[0], counts[1], counts[EXITS]
    while size != 0 or num_exits != 0:
        at = vyre.gid()
        if size != 0:
            while at < size:
                take_fresh(nodes, fresh, queue, turn % 2 * (len(queue) // 2) + at)
                at += vyre.num_workgroups() * WORKGROUP
            vyre.grid_sync()
            follow_chains(nodes, edges, gens, masks, derived, fresh, queue, calls, exits, counts, turn, stage, size)
            enter_callees(
                nodes, masks, sites, flows, returns, callers, ranks, derived, fresh, queue, calls, exits, counts, turn,
                stage, num_calls,
            )  # fmt: skip
        else:
            while at < num_exits:
                slot = stage % 2 * (len(exits) // 2) + at
                take_fresh(nodes, fresh, exits, slot)
                facts = exits[slot, 3] & masks[nodes[exits[slot, 0], STOP] + exits[slot, 1]]
                while facts != 0:
                    fact = exits[slot, 1] * 32 + vyre.ctz(facts)
                    facts = facts & (facts - 1)
                    ranks[rank_place(nodes, exits[slot, 0], exits[slot, 2], fact)] = stage
                at += vyre.num_workgroups() * WORKGROUP
            vyre.grid_sync()
            return_to_callers(
                nodes, sites, flows, returns, first_entering, entering, callers, derived, fresh, queue, calls, exits,
                counts, turn, stage, num_exits,
            )  # fmt: skip
            if vyre.gid() == 0:
                vyre.atomic_store(counts, EXITS + stage % 2, 0)
            stage += 1
        if vyre.gid() < 2:
            vyre.atomic_store(counts, (turn + 2) % 3 * 2 + vyre.gid(), 0)
        vyre.grid_sync()
        turn += 1
        size, num_calls, num_exits = counts[turn % 3 * 2], counts[turn % 3 * 2 + 1], counts[EXITS + stage % 2]


def kernel_arrays(contexts: Contexts) -> dict[str, Array]:
    """The arguments of ``propagate`` for a problem with seeds, by name: tables of what is used together, and state."""
    problem = contexts.problem
    node_words = fact_words(problem.facts)[problem.procedure_of]
    edge_source = np.repeat(np.arange(problem.num_nodes), np.diff(problem.first_edge))
    kill_edge = np.repeat(np.arange(edge_source.size), np.diff(problem.first_kill))
    flow_site, return_site = (
        np.repeat(np.arange(problem.site_call.size), np.diff(first))
        for first in (problem.first_flow, problem.first_return)
    )
    # The first bitset has no facts: it is what most edges kill, and where most nodes stop.
    nothing = np.zeros(int(node_words.max()), np.uint32)
    killed, kill = _bitsets(kill_edge, problem.kill_fact, node_words[edge_source], nothing.size)
    stopping = np.concatenate((problem.site_call[flow_site], problem.exits[problem.site_callee[return_site]]))
    stop_facts = np.concatenate((problem.flow_from, problem.return_from))
    stopped, stop = _bitsets(stopping, stop_facts, node_words, nothing.size + killed.size)
    special = np.zeros(problem.num_nodes, np.uint32)
    special[problem.site_call] = CALL
    special[problem.exits] = EXIT
    # A call flow has a bit for each context of its caller.
    groups = (contexts.of_node[problem.site_call[flow_site]] + (WORD - 1)) // WORD
    first_group = np.cumsum(groups, dtype=np.int64) - groups
    flow_context = contexts.of_flow - contexts.first[contexts.procedure[contexts.of_flow]]
    entry, leave = problem.entries[problem.site_callee], problem.exits[problem.site_callee]
    target = problem.edge_target
    first_context = contexts.first[problem.procedure_of]
    first_rank = np.zeros(problem.num_nodes, np.uint32)
    first_rank[problem.exits] = contexts.first_rank[:-1]
    bits = contexts.bits(contexts.of_seed, problem.seed_node, problem.seed_fact)
    return {
        "nodes": _rows(
            special, stop, contexts.first_word, contexts.of_node, first_context, first_rank, problem.first_edge,
            problem.first_site,
        ),
        "edges": _rows(target, contexts.first_word[target], stop[target], kill, problem.first_gen),
        "gens": _rows(problem.gen_from, problem.gen_to),
        "masks": np.concatenate((nothing, killed, stopped)),
        "sites": _rows(problem.site_call, entry, leave, problem.first_flow, problem.first_return),
        "flows": _rows(problem.flow_from, problem.flow_to, flow_context, flow_site, first_group),
        "returns": _rows(problem.return_from, problem.return_to, problem.return_node),
        "first_entering": starts(contexts.of_flow, contexts.fact.size),
        "entering": np.argsort(contexts.of_flow, kind="stable").astype(np.uint32),
        "derived": bits,
        "fresh": bits.copy(),
        "callers": np.zeros(int(groups.sum()), np.uint32),
        "ranks": np.full(int(contexts.first_rank[-1]) * WORD, NONE, np.uint32),
        **_first_queue(contexts, special),
    }  # fmt: skip


def _rows(*columns: Array) -> Array:
    """A table of columns; shorter ones end with zeros."""
    made = np.zeros((max(column.size for column in columns), len(columns)), np.uint32)
    for at, column in enumerate(columns):
        made[: column.size, at] = column
    return made


def _bitsets(owners: Array, facts: Array, words: Array, base: int) -> tuple[Array, Array]:
    """Bitsets of the facts of owners, which have so many words each, and where each begins after ``base`` other words.

    Owners without facts have none: theirs begin at 0.
    """
    has_facts = np.zeros(words.size, bool)
    has_facts[owners] = True
    used = np.where(has_facts, words, 0)
    begin = np.cumsum(used) - used
    made = np.zeros(int(used.sum()), np.uint32)
    np.bitwise_or.at(made, begin[owners] + facts // WORD, np.uint32(1) << facts % np.uint32(WORD))
    return made, np.where(has_facts, begin + base, 0)


@shows_program(lambda: propagate)
def ifds(problem: IfdsProblem, *, backend: str | Backend | None = None) -> IfdsSolution:
    """Solve an IFDS problem in parallel: every fact that a realizable path from a seed leads to.

    On a realizable path a return goes back to the call that it belongs to. A path may begin anywhere, and end inside
    callees, but returns beyond the procedure of its seed are not followed.

    Memory is a bit for each fact of each node and each context of its procedure. Work is proportional to the edges of
    the nodes whose facts change, 32 facts at a time. One launch; the host does nothing between rounds.

    >>> from vyre.lib import dataflow
    >>> b = dataflow.IfdsBuilder()
    >>> main = b.procedure(facts=2)
    >>> b.normal(main.entry, main.exit, gen=((0, 1),))
    >>> dataflow.ifds(b.build(seeds=((main.entry, 0),))).facts(main.exit).tolist()
    [0, 1]
    """
    contexts = number_contexts(require_problem(problem))
    workspace = Workspace(backend)
    if not contexts.num_words:
        return IfdsSolution(contexts, np.zeros(0, np.uint32), np.zeros(0, np.uint32))
    arrays: dict[str, Operand] = dict(kernel_arrays(contexts))
    if not workspace.in_place:
        arrays = {name: vyre.array(host, backend=workspace.backend) for name, host in arrays.items()}
    propagate.on(workspace.backend).grid(workspace.workgroups(problem.num_nodes, NODES_FOR_EACH_WORKGROUP))(**arrays)
    return IfdsSolution(contexts, workspace.read(arrays["derived"]), workspace.read(arrays["ranks"]))


def _first_queue(contexts: Contexts, special: Array) -> dict[str, Array]:
    """The queues with the cells of the seeds, and their sizes. Each cell is queued at most once in a turn or stage."""
    problem = contexts.problem
    node, fact, context = problem.seed_node, problem.seed_fact, contexts.of_seed
    _, distinct = np.unique(contexts.words(context, node, fact), return_index=True)
    cells = _rows(node, fact // WORD, context - contexts.first[contexts.procedure[context]])[distinct]
    is_exit = special[cells[:, 0]] == EXIT
    inside, leaving = cells[~is_exit], cells[is_exit]
    calling = np.flatnonzero(special[inside[:, 0]] == CALL)
    most_calls = int(np.diff(contexts.first_word.astype(np.int64))[special == CALL].sum())
    queue = np.zeros((2 * contexts.num_words, QUEUE_COLUMNS), np.uint32)
    queue[: len(inside), :3] = inside
    calls = np.zeros(2 * most_calls, np.uint32)
    calls[: calling.size] = calling
    exits = np.zeros((2 * int(contexts.first_rank[-1]), QUEUE_COLUMNS), np.uint32)
    exits[: len(leaving), :3] = leaving
    counts = np.array([len(inside), calling.size, 0, 0, 0, 0, len(leaving), 0], np.uint32)
    return {"queue": queue, "calls": calls, "exits": exits, "counts": counts}
