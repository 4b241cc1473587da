"""Contexts and path edges: what is derived inside a procedure, from which fact at its entry.

A context of a procedure is a fact at its entry from which facts inside it are derived. Only facts that a call passes
in, or that are seeds, can be one. These are numbered, by procedure; usually they are few. A procedure with seeds at
other nodes has one more context for all of them, without callers.

A path edge says that a fact is derived at a node in a context of its procedure. Each node has a bitset of facts for
each context, so one operation passes 32 facts along an edge. Word ``w`` of context ``k`` is at
``first_word[node] + w * contexts + k``, where ``contexts`` counts those of the node's procedure.

A fact at an exit has a *rank* in each context: it depends only on facts at exits of lower rank. That of fact ``f`` is
at ``(first_rank[procedure] + f // 32 * contexts + k) * 32 + f % 32``, ``NONE`` where nothing returns it.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import numpy as np

from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lib.dataflow.problem import IfdsProblem
from vyre.lib.workspace import MAX_ELEMENTS

NONE: Final = 0xFFFFFFFF
# The fact of a context that stands for a procedure's seeds inside it.
SEEDED: Final = NONE
WORD: Final = 32
# The solver's queue has two halves, with four elements for each word.
MAX_WORDS: Final = MAX_ELEMENTS // 8
# Every fact at an exit has a rank.
MAX_EXIT_WORDS: Final = MAX_ELEMENTS // WORD


class Contexts(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The contexts of a problem, sorted by procedure, and where the path edges of each node are.

    * ``procedure``, ``fact``: the procedure of each context, and the fact at its entry or ``SEEDED``.
    * ``first``: the first context of each procedure, and their number.
    * ``first_word``: the first word of each node, and their number.
    * ``first_rank``: the first word at the exit of each procedure, counting only those, and their number.
    * ``of_flow``, ``of_seed``: the context that each call flow or seed of the problem begins.
    """

    problem: IfdsProblem
    procedure: Array
    fact: Array
    first: Array
    first_word: Array
    first_rank: Array
    of_flow: Array
    of_seed: Array

    @property
    def num_words(self) -> int:
        return int(self.first_word[-1])

    @cached_property
    def of_node(self) -> Array:
        """The number of contexts of each node's procedure."""
        return np.diff(self.first)[self.problem.procedure_of]

    def bits(self, contexts: Array, nodes: Array, facts: Array) -> Array:
        """The bitsets of path edges that are given as columns."""
        made = np.zeros(self.num_words, np.uint32)
        bit = np.uint32(1) << (facts % WORD).astype(np.uint32)
        np.bitwise_or.at(made, self.words(contexts, nodes, facts), bit)
        return made

    def ranks(self, contexts: Array, facts: Array) -> Array:
        """Where the ranks of facts at exits are."""
        procedure = self.procedure[contexts]
        local = contexts.astype(np.int64) - self.first[procedure]
        count = np.diff(self.first)[procedure].astype(np.int64)
        found: Array = (self.first_rank[procedure] + facts // WORD * count + local) * WORD + facts % WORD
        return found

    def words(self, contexts: Array, nodes: Array, facts: Array) -> Array:
        """The words that hold path edges."""
        local = contexts.astype(np.int64) - self.first[self.procedure[contexts]]
        found: Array = self.first_word[nodes] + facts // WORD * self.of_node[nodes].astype(np.int64) + local
        return found

    def reached(self, bits: Array) -> Array:
        """Whether each exploded node is derived in any context."""
        counts = fact_words(self.problem.facts)[self.problem.procedure_of]
        contexts = self.of_node.astype(np.int64)
        # The contexts of one word of one node lie together: combine them. Without contexts there is nothing to combine.
        groups = np.repeat(contexts, counts)
        some = np.zeros(groups.size, np.uint32)
        begin = np.cumsum(groups) - groups
        if bits.size:
            some[groups != 0] = np.bitwise_or.reduceat(bits, begin[groups != 0])
        set_bits = np.unpackbits(some.astype("<u4").view(np.uint8), bitorder="little")
        # The last word of a node has bits that are no facts.
        facts = self.problem.facts[self.problem.procedure_of].astype(np.int64)
        valid = np.minimum(facts[np.repeat(np.arange(facts.size), counts)] - _ordinals(counts) * WORD, WORD)
        is_fact = np.arange(WORD) < valid[:, None]
        reached: Array = set_bits.view(bool)[is_fact.reshape(-1)]
        return reached


def fact_words(facts: Array) -> Array:
    """How many words hold so many facts."""
    words: Array = (facts.astype(np.int64) + (WORD - 1)) // WORD
    return words


def _ordinals(counts: Array) -> Array:
    """0, 1, ... for each count in turn."""
    ends = np.cumsum(counts)
    ordinals: Array = np.arange(int(ends[-1]) if ends.size else 0) - np.repeat(ends - counts, counts)
    return ordinals


def number_contexts(problem: IfdsProblem) -> Contexts:
    """Number the contexts of a problem; O(n log n) of its seeds and call flows."""
    seed_procedure = problem.procedure_of[problem.seed_node]
    at_entry = problem.entries[seed_procedure] == problem.seed_node
    callee = np.repeat(problem.site_callee, np.diff(problem.first_flow))
    flow_keys = _keys(callee, problem.flow_to)
    seed_keys = _keys(seed_procedure, np.where(at_entry, problem.seed_fact, np.uint32(SEEDED)))
    keys = np.sort(np.concatenate((flow_keys, seed_keys)))
    keys = keys[np.diff(keys, prepend=-1) != 0]
    procedure = keys >> 32
    first = np.searchsorted(procedure, np.arange(problem.num_procedures + 1))
    owner = problem.procedure_of
    words = np.diff(first) * fact_words(problem.facts)
    first_word, first_rank = _running(words[owner]), _running(words)
    for count, most in ((int(first_word[-1]), MAX_WORDS), (int(first_rank[-1]), MAX_EXIT_WORDS)):
        if count > most:
            raise BadInputs(
                f"the path edges need {count:,} words, and at most {most:,} are supported.",
                "pass fewer facts into large procedures, or split the problem.",
            )
    return Contexts(
        problem,
        procedure.astype(np.uint32),
        (keys & 0xFFFFFFFF).astype(np.uint32),
        first.astype(np.uint32),
        first_word.astype(np.uint32),
        first_rank.astype(np.uint32),
        np.searchsorted(keys, flow_keys).astype(np.uint32),
        np.searchsorted(keys, seed_keys).astype(np.uint32),
    )


def _running(counts: Array) -> Array:
    """0 and the running sums."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))


def _keys(procedure: Array, fact: Array) -> Array:
    keys: Array = (procedure.astype(np.int64) << 32) | fact
    return keys
