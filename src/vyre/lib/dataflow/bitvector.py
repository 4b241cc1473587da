"""Gen/kill problems: sets of facts as bitsets, passed through the blocks of a control flow graph.

One persistent kernel solves a problem. A *cell* is one word of a block's set. First every block passes on what it
generates. Then each round takes the cells that have fresh facts and passes on those that their blocks do not kill; an
invocation follows a chain of blocks itself, so that a long chain does not take as many rounds. Facts are only ever
added, by atomics, so the result does not depend on the order.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

import vyre
from vyre import u32
from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lib.columns import ids, require_below
from vyre.lib.graph.csr import Graph
from vyre.lib.workspace import MAX_ELEMENTS, ArrayLike, Workspace, shows_program
from vyre.semantics.types import DType

WORKGROUP: Final = 64
WORD: Final = 32
Direction = Literal["forward", "backward"]
Join = Literal["union", "intersection"]
# The turn before turn 0: halves of the queue alternate, and counts rotate among three.
BEFORE_FIRST: Final = 5


@vyre.function
def add_facts(held, cell, facts):
    """Add facts to a cell; those that were missing."""
    missing = facts & ~vyre.atomic_load(held, cell)
    if missing != 0:
        missing = missing & ~vyre.atomic_or(held, cell, missing)
    return missing


@vyre.function
def enqueue(fresh, queue, counts, turn, cell, facts):
    """Pass fresh facts of a cell on in the next round."""
    if facts != 0 and vyre.atomic_or(fresh, cell, facts) == 0:
        slot = vyre.atomic_add(counts, (turn + 1) % 3, 1)
        queue[(turn + 1) % 2 * (len(queue) // 2) + slot] = cell


@vyre.function
def pass_generated(words, offsets, targets, gen, held, fresh, queue, counts):
    """Pass on what each block generates, in the first round."""
    cell = vyre.gid()
    while cell < len(gen):
        block, word = cell // words, cell % words
        if gen[cell] != 0:
            for edge in range(offsets[block], offsets[block + 1]):
                target = targets[edge] * words + word
                enqueue(fresh, queue, counts, BEFORE_FIRST, target, add_facts(held, target, gen[cell]))
        cell += vyre.num_workgroups() * WORKGROUP


@vyre.function
def follow_chains(words, offsets, targets, kill, held, fresh, queue, counts, turn, size):
    """Pass on what blocks do not kill of the fresh facts in the queue."""
    at = vyre.gid()
    block, word, facts = u32(0), u32(0), u32(0)
    while facts != 0 or at < size:
        if facts == 0:
            cell = queue[turn % 2 * (len(queue) // 2) + at]
            block, word = cell // words, cell % words
            facts = vyre.atomic_exchange(fresh, cell, 0)
            at += vyre.num_workgroups() * WORKGROUP
        kept, facts = facts & ~kill[block * words + word], u32(0)
        here = block
        if kept != 0:
            for edge in range(offsets[here], offsets[here + 1]):
                target = targets[edge] * words + word
                missing = add_facts(held, target, kept)
                if facts == 0:
                    block, facts = targets[edge], missing
                else:
                    enqueue(fresh, queue, counts, turn, target, missing)


@vyre.kernel(workgroup=WORKGROUP)
def solve(
    words: u32,
    offsets: vyre.In[u32],
    targets: vyre.In[u32],
    gen: vyre.In[u32],
    kill: vyre.In[u32],
    held: vyre.InOut[u32],
    held_after: vyre.InOut[u32],
    fresh: vyre.InOut[u32],
    queue: vyre.InOut[u32],
    counts: vyre.InOut[u32],
) -> None:
    """Pass facts on until there are no fresh ones.

    ``queue`` holds the cells of this round in one half and those of the next in the other, ``counts`` their number for
    three rounds. Facts that hold at the start are fresh, and their cells in the queue.
    """
    pass_generated(words, offsets, targets, gen, held, fresh, queue, counts)
    vyre.grid_sync()
    turn = 0
    size = counts[0]
    while size != 0:
        vyre.grid_sync()
        if vyre.gid() == 0:
            vyre.atomic_store(counts, (turn + 2) % 3, 0)
        follow_chains(words, offsets, targets, kill, held, fresh, queue, counts, turn, size)
        vyre.grid_sync()
        turn += 1
        size = counts[turn % 3]
    cell = vyre.gid()
    while cell < len(held):
        held_after[cell] = gen[cell] | held[cell] & ~kill[cell]
        cell += vyre.num_workgroups() * WORKGROUP


@shows_program(lambda: solve)
def gen_kill(
    graph: Any,
    gen: ArrayLike,
    kill: ArrayLike,
    *,
    direction: Direction = "forward",
    join: Join = "union",
    boundary: ArrayLike = None,
    entries: ArrayLike = None,
    backend: str | Backend | None = None,
) -> tuple[Array, Array]:
    """Solve a gen/kill problem: the facts that hold at the start and at the end of each block.

    ``graph`` is a ``Graph`` or (offsets, targets) of the control flow, ``gen`` and ``kill`` u32 bitsets of shape
    (blocks, words). Forward, what holds at a block's start comes from its predecessors by the ``join``, and at its end
    ``gen | start & ~kill`` holds; backward, what holds at its end comes from its successors, and at its start
    ``gen | end & ~kill`` holds. ``boundary`` (words) holds at the blocks in ``entries`` besides, nothing if left out;
    these are block 0, or, backward, the blocks without successors. With "union" a fact holds if it may, with
    "intersection" if it must; a block that no path from an entry reaches then holds every fact that blocks before it
    do not kill.

    O(blocks x words + edges x facts that pass them), 32 facts at a time, in one launch.

    >>> import numpy as np
    >>> offsets, targets = np.array([0, 1, 2], np.uint32), np.array([1, 0], np.uint32)
    >>> start, end = gen_kill((offsets, targets), np.array([[1], [2]], np.uint32), np.array([[2], [0]], np.uint32))
    >>> start.tolist(), end.tolist()
    ([[3], [1]], [[1], [3]])
    """
    _require_choice(direction, "direction", ("forward", "backward"))
    _require_choice(join, "join", ("union", "intersection"))
    offsets, targets = _graph_columns(graph)
    blocks = offsets.size - 1
    gen_bits, kill_bits = _bitsets(gen, "gen", blocks), _bitsets(kill, "kill", blocks)
    words = gen_bits.shape[1]
    if kill_bits.shape[1] != words:
        raise BadInputs(
            f"'kill' has {kill_bits.shape[1]} words for each block, and 'gen' has {words}.",
            "pass bitsets of the same facts.",
        )
    at_entries = _boundary(boundary, words)
    entry_blocks = _entry_blocks(entries, offsets, direction)
    if direction == "backward":
        offsets, targets = _transposed(offsets, targets)
    if join == "intersection":
        # What must hold is what may not fail to: solve for the complement.
        gen_bits, kill_bits, at_entries = kill_bits & ~gen_bits, gen_bits, ~at_entries
    held = np.zeros((blocks, words), np.uint32)
    held[entry_blocks] = at_entries
    before, after = _solve(offsets, targets, gen_bits, kill_bits, held, backend)
    if join == "intersection":
        before, after = ~before, ~after
    return (before, after) if direction == "forward" else (after, before)


def liveness(
    graph: Any, uses: ArrayLike, definitions: ArrayLike, *, live_at_exit: ArrayLike = None, **options: Any
) -> tuple[Array, Array]:
    """Return the variables that are live at the start and at the end of each block, as bitsets.

    ``uses`` and ``definitions`` are u32 bitsets of shape (blocks, words): the variables that a block reads before it
    writes them, and those that it writes. ``live_at_exit`` (words) are live at the end of blocks without successors.
    Costs and other ``options`` are those of ``gen_kill``.

    >>> import numpy as np
    >>> graph = np.array([0, 1, 1], np.uint32), np.array([1], np.uint32)
    >>> start, end = liveness(graph, np.array([[0], [1]], np.uint32), np.array([[1], [0]], np.uint32))
    >>> start.tolist(), end.tolist()
    ([[0], [1]], [[1], [0]])
    """
    return gen_kill(graph, uses, definitions, direction="backward", boundary=live_at_exit, **options)


def reaching_definitions(
    graph: Any, block_of: ArrayLike, variable_of: ArrayLike, **options: Any
) -> tuple[Array, Array]:
    """Return the definitions that reach the start and the end of each block, as bitsets over the definitions.

    Definition ``i`` is in block ``block_of[i]`` and writes ``variable_of[i]``; definitions of one block are in order.
    Costs and other ``options`` are those of ``gen_kill``.

    >>> import numpy as np
    >>> graph = np.array([0, 1, 1], np.uint32), np.array([1], np.uint32)
    >>> start, end = reaching_definitions(graph, [0, 0, 1], [5, 6, 5])
    >>> start.tolist(), end.tolist()
    ([[0], [3]], [[3], [6]])
    """
    blocks = _graph_columns(graph)[0].size - 1
    block, variable = ids(block_of, "block_of"), ids(variable_of, "variable_of")
    if block.size != variable.size:
        raise BadInputs(
            f"'block_of' has {block.size:,} elements, and 'variable_of' has {variable.size:,}.",
            "pass one of each for every definition.",
        )
    require_below(block, blocks, "block_of", "the number of blocks")
    words = -(-block.size // WORD)
    definition = np.arange(block.size)
    _, variable = np.unique(variable, return_inverse=True)
    of_variable = np.zeros((int(variable.max(initial=-1)) + 1, words), np.uint32)
    _set_bits(of_variable, variable, definition)
    kill = np.zeros((blocks, words), np.uint32)
    np.bitwise_or.at(kill, block, of_variable[variable])
    # The last definition of a variable in a block is the one that leaves it.
    keys = block.astype(np.int64) * (of_variable.shape[0] + 1) + variable
    _, from_end = np.unique(keys[::-1], return_index=True)
    last = block.size - 1 - from_end
    gen = np.zeros((blocks, words), np.uint32)
    _set_bits(gen, block[last], last)
    return gen_kill(graph, gen, kill, **options)


def _solve(
    offsets: Array, targets: Array, gen: Array, kill: Array, held: Array, backend: str | Backend | None
) -> tuple[Array, Array]:
    """The facts before and after each block, for union, along the edges."""
    blocks, words = held.shape
    workspace = Workspace(backend)
    if not held.size:
        return held, held.copy()
    seeded = np.flatnonzero(held)
    queue = np.zeros(2 * held.size, np.uint32)
    queue[: seeded.size] = seeded
    flat = held.reshape(-1)
    before, after = workspace.upload(flat), workspace.empty(flat.size, DType.U32)
    solve.on(workspace.backend).grid(workspace.workgroups(flat.size, WORKGROUP))(
        words,
        workspace.take(offsets, "offsets", DType.U32),
        workspace.take(targets, "targets", DType.U32),
        workspace.take(gen.reshape(-1), "gen", DType.U32),
        workspace.take(kill.reshape(-1), "kill", DType.U32),
        before,
        after,
        workspace.upload(flat),
        workspace.upload(queue),
        workspace.upload(np.array([seeded.size, 0, 0], np.uint32)),
    )
    return workspace.read(before).reshape(blocks, words), workspace.read(after).reshape(blocks, words)


def _require_choice(value: str, name: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInputs(f"'{name}' is {value!r:.40}.", f"pass {' or '.join(map(repr, choices))}.")


def _graph_columns(graph: Any) -> tuple[Array, Array]:
    """The offsets and targets of a graph, checked."""
    if isinstance(graph, (tuple, list)) and len(graph) == 2:
        graph = Graph.from_csr(*graph)
    if not isinstance(graph, Graph):
        raise BadInputs(f"'graph' is a {type(graph).__name__}.", "pass a Graph, or (offsets, targets).")
    return graph.offsets, graph.targets


def _bitsets(given: ArrayLike, name: str, blocks: int) -> Array:
    made = np.asarray(given)
    if made.ndim != 2 or made.dtype != np.uint32 or len(made) != blocks:
        raise BadInputs(
            f"'{name}' has shape {made.shape} and elements of type {made.dtype}, expected uint32 of shape "
            f"({blocks}, words).",
            "pass one row of 32-bit words for each block.",
        )
    if 2 * made.size > MAX_ELEMENTS:
        raise BadInputs(f"'{name}' has {made.size:,} words, and indices are u32.", "solve for fewer facts at a time.")
    return np.ascontiguousarray(made)


def _boundary(given: ArrayLike, words: int) -> Array:
    if given is None:
        return np.zeros(words, np.uint32)
    made = np.asarray(given)
    if made.shape != (words,) or made.dtype != np.uint32:
        raise BadInputs(
            f"'boundary' has shape {made.shape} and type {made.dtype}, expected uint32 of shape ({words},).",
            "pass one bitset.",
        )
    return made


def _entry_blocks(given: ArrayLike, offsets: Array, direction: Direction) -> Array:
    blocks = offsets.size - 1
    if given is not None:
        entries = ids(given, "entries")
        require_below(entries, blocks, "entries", "the number of blocks")
        return entries
    return np.flatnonzero(np.diff(offsets) == 0) if direction == "backward" else np.arange(min(blocks, 1))


def _transposed(offsets: Array, targets: Array) -> tuple[Array, Array]:
    """The same edges from target to source."""
    blocks = offsets.size - 1
    sources = np.repeat(np.arange(blocks, dtype=np.uint32), np.diff(offsets))
    first = np.concatenate(([0], np.cumsum(np.bincount(targets, minlength=blocks)))).astype(np.uint32)
    return first, sources[np.argsort(targets, kind="stable")]


def _set_bits(bitsets: Array, row: Array, bit: Array) -> None:
    np.bitwise_or.at(bitsets, (row, bit // WORD), np.uint32(1) << (bit % WORD).astype(np.uint32))
