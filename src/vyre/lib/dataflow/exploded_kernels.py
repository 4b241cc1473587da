"""Kernels that build exploded supergraphs.

Phases with grid barriers between them: mark what blocks kill and generate, count the edges of each block, scan the
lengths of the rows that follow from these, fill the rows in any order, sort them. Every phase strides over its work, so
any grid gives the same bytes.

The facts of a block other than 0 go in groups. An edge takes its place in all rows of a group by one atomic, on the
cursor of the group's first row: rows that keep their fact all have the same edges, first the intra edges, then the
inter edges, and rows that do not have only the latter. The row of fact 0, to which GENs add, has a cursor of its own.
"""

from __future__ import annotations

from typing import Any, Final

import vyre
from vyre import u32

WORKGROUP: Final = 64
# At most so many invocations scan the row lengths, each those of a part of the blocks.
_SCANNERS: Final = 1024
# Facts of one group.
_GROUP: Final = 32
# Rows of this length and less are sorted by insertion.
_SHORT: Final = 24


@vyre.function
def stride():
    """The number of invocations of the grid."""
    return vyre.num_workgroups() * WORKGROUP


@vyre.function
def clear(array):
    at = vyre.gid()
    while at < len(array):
        array[at] = 0
        at = vyre.sat_add(at, stride())


@vyre.function
def mark_facts(procs, blocks, facts, count, proc, block, fact, killed, by_kill):
    """Note what blocks kill in bit 0 of ``killed``, or how often they generate it in the bits above."""
    at = vyre.gid()
    while at < count:
        if proc[at] < procs and block[at] < blocks and fact[at] < facts:
            node = (proc[at] * blocks + block[at]) * facts + fact[at]
            if by_kill:
                vyre.atomic_or(killed, node, 1)
            else:
                vyre.atomic_add(killed, node, 2)
        at = vyre.sat_add(at, stride())


@vyre.function
def count_edges(procs, blocks, facts, count, proc, source, target_proc, target, degrees):
    """Count the edges that leave each block, at its first node."""
    edge = vyre.gid()
    while edge < count:
        is_valid = proc[edge] < procs and source[edge] < blocks
        if is_valid and target_proc[edge] < procs and target[edge] < blocks:
            vyre.atomic_add(degrees, (proc[edge] * blocks + source[edge]) * facts, 1)
        edge = vyre.sat_add(edge, stride())


@vyre.function
def generated_by(killed, row, facts):
    """The number of GENs of the block whose first node this is."""
    count = u32(0)
    for node in range(row, row + facts):
        count += killed[node] >> 1
    return count


@vyre.function
def row_length(marks, intra, inter):
    """The number of edges of a node that only copy facts; its block has so many intra and inter edges."""
    return inter + (intra if marks & 1 == 0 else 0)


@vyre.function
def scan_rows(num_blocks, facts, killed, row_ptr, row_cursor, col_idx, col_len):
    """Make row starts of the degrees of blocks, intra in ``row_cursor``, which is zero then, and inter in ``row_ptr``.

    Sums of parts are in ``col_idx`` for that time. Grid barriers inside.
    """
    scanners = vyre.min(vyre.min(stride(), _SCANNERS), len(col_idx))
    me = vyre.gid()
    part = num_blocks // scanners + 1
    begin, end = vyre.min(vyre.sat_mul(me, part), num_blocks), vyre.min(vyre.sat_mul(me + 1, part), num_blocks)
    if me < scanners:
        length = u32(0)
        for block in range(begin, end):
            row = block * facts
            length += row_cursor[row] * generated_by(killed, row, facts)
            for node in range(row, row + facts):
                length += row_length(killed[node], row_cursor[row], row_ptr[row])
        col_idx[me] = length
    vyre.grid_sync()
    before = u32(0)
    if me < scanners:
        for other in range(me):
            before += col_idx[other]
        for block in range(begin, end):
            row = block * facts
            intra, inter = row_cursor[row], row_ptr[row]
            row_cursor[row] = 0
            generated = intra * generated_by(killed, row, facts)
            for node in range(row, row + facts):
                row_ptr[node] = before
                before += row_length(killed[node], intra, inter) + generated
                generated = 0
        if me == scanners - 1:
            row_ptr[num_blocks * facts] = before
            col_len[0] = before
    vyre.grid_sync()


@vyre.function
def put_in_first_row(row, col, times, row_ptr, row_cursor, col_idx):
    """Fill an edge into the next places of the row of fact 0."""
    place = row_ptr[row] + vyre.atomic_add(row_cursor, row, times)
    for slot in range(place, place + times):
        col_idx[slot] = col


@vyre.function
def fill_intra(procs, blocks, facts, count, proc, source, target, killed, row_ptr, row_cursor, col_idx):
    """Fill in the edges within procedures: an edge in fact 0 is one piece of work, and in each group of others."""
    pieces = (facts + (_GROUP - 2)) // _GROUP + 1
    at = vyre.gid()
    while at < count * pieces:
        edge, piece = at // pieces, at % pieces
        if proc[edge] < procs and source[edge] < blocks and target[edge] < blocks:
            row = (proc[edge] * blocks + source[edge]) * facts
            col = (proc[edge] * blocks + target[edge]) * facts
            if piece == 0:
                times = (killed[row] >> 1) + (1 - (killed[row] & 1))
                put_in_first_row(row, col, times, row_ptr, row_cursor, col_idx)
            else:
                first = (piece - 1) * _GROUP + 1
                place = vyre.atomic_add(row_cursor, row + first, 1)
                for fact in range(first, vyre.min(first + _GROUP, facts)):
                    marks = killed[row + fact]
                    if marks & 1 == 0:
                        col_idx[row_ptr[row + fact] + place] = col + fact
                    if marks > 1:
                        put_in_first_row(row, col + fact, marks >> 1, row_ptr, row_cursor, col_idx)
        at = vyre.sat_add(at, stride())


@vyre.function
def fill_inter(
    procs, blocks, facts, count, source_proc, source, target_proc, target, killed, row_ptr, row_cursor, col_idx
):
    """Fill in the edges between procedures, behind those within them."""
    pieces = (facts + (_GROUP - 2)) // _GROUP + 1
    at = vyre.gid()
    while at < count * pieces:
        edge, piece = at // pieces, at % pieces
        is_valid = source_proc[edge] < procs and source[edge] < blocks
        if is_valid and target_proc[edge] < procs and target[edge] < blocks:
            row = (source_proc[edge] * blocks + source[edge]) * facts
            col = (target_proc[edge] * blocks + target[edge]) * facts
            if piece == 0:
                put_in_first_row(row, col, u32(1), row_ptr, row_cursor, col_idx)
            else:
                first = (piece - 1) * _GROUP + 1
                place = vyre.atomic_add(row_cursor, row + first, 1)
                for fact in range(first, vyre.min(first + _GROUP, facts)):
                    begin, slot = row_ptr[row + fact], place
                    if killed[row + fact] & 1 != 0:
                        # The row has only inter edges: as many consecutive places, modulo its length, are all of it.
                        slot = place % (row_ptr[row + fact + 1] - begin)
                    col_idx[begin + slot] = col + fact
        at = vyre.sat_add(at, stride())


@vyre.function
def sift_down(values, first, root, count):
    """Restore the heap below a position."""
    value = values[first + root]
    child = 2 * root + 1
    while child < count:
        if child + 1 < count and values[first + child + 1] > values[first + child]:
            child += 1
        if values[first + child] <= value:
            break
        values[first + root] = values[first + child]
        root = child
        child = 2 * root + 1
    values[first + root] = value


@vyre.function
def sort_row(values, first, count):
    """Sort a row in place: by insertion if it is short, else as a heap."""
    if count <= _SHORT:
        for at in range(1, count):
            value = values[first + at]
            place = at
            while place > 0 and values[first + place - 1] > value:
                values[first + place] = values[first + place - 1]
                place -= 1
            values[first + place] = value
    else:
        root = count // 2
        while root > 0:
            root -= 1
            sift_down(values, first, root, count)
        last = count - 1
        while last > 0:
            largest = values[first]
            values[first] = values[first + last]
            values[first + last] = largest
            sift_down(values, first, 0, last)
            last -= 1


@vyre.function
def finish_rows(total, killed, row_ptr, row_cursor, col_idx):
    """Sort the rows, and clear what is no result."""
    row = vyre.gid()
    while row < total:
        sort_row(col_idx, row_ptr[row], row_ptr[row + 1] - row_ptr[row])
        killed[row] = killed[row] & 1
        row_cursor[row] = 0
        row = vyre.sat_add(row, stride())
    at = vyre.sat_add(row_ptr[total], vyre.gid())
    while at < len(col_idx):
        col_idx[at] = 0
        at = vyre.sat_add(at, stride())


@vyre.function
def explode(
    procs, blocks, facts, intra, inter, gen, kill,
    intra_proc, intra_src_block, intra_dst_block,
    inter_src_proc, inter_src_block, inter_dst_proc, inter_dst_block,
    gen_proc, gen_block, gen_fact,
    kill_proc, kill_block, kill_fact,
    killed, row_ptr, row_cursor, col_idx, col_len,
):  # fmt: skip
    """Build the rows. The first seven are numbers, the other parameters arrays."""
    if facts == 0:
        procs, blocks = u32(0), u32(0)  # there are no nodes, and so no valid ids
    total = procs * blocks * facts
    clear(killed)
    clear(row_ptr)
    clear(row_cursor)
    vyre.grid_sync()
    mark_facts(procs, blocks, facts, gen, gen_proc, gen_block, gen_fact, killed, False)
    mark_facts(procs, blocks, facts, kill, kill_proc, kill_block, kill_fact, killed, True)
    vyre.grid_sync()
    count_edges(procs, blocks, facts, intra, intra_proc, intra_src_block, intra_proc, intra_dst_block, row_cursor)
    count_edges(procs, blocks, facts, inter, inter_src_proc, inter_src_block, inter_dst_proc, inter_dst_block, row_ptr)
    vyre.grid_sync()
    scan_rows(procs * blocks, facts, killed, row_ptr, row_cursor, col_idx, col_len)
    fill_intra(
        procs, blocks, facts, intra, intra_proc, intra_src_block, intra_dst_block, killed, row_ptr, row_cursor, col_idx
    )
    vyre.grid_sync()
    fill_inter(
        procs, blocks, facts, inter, inter_src_proc, inter_src_block, inter_dst_proc, inter_dst_block, killed, row_ptr,
        row_cursor, col_idx,
    )  # fmt: skip
    vyre.grid_sync()
    finish_rows(total, killed, row_ptr, row_cursor, col_idx)


@vyre.kernel(workgroup=WORKGROUP)
def exploded_rows(
    procs: u32,
    blocks: u32,
    facts: u32,
    intra: u32,
    inter: u32,
    gen: u32,
    kill: u32,
    intra_proc: vyre.In[u32],
    intra_src_block: vyre.In[u32],
    intra_dst_block: vyre.In[u32],
    inter_src_proc: vyre.In[u32],
    inter_src_block: vyre.In[u32],
    inter_dst_proc: vyre.In[u32],
    inter_dst_block: vyre.In[u32],
    gen_proc: vyre.In[u32],
    gen_block: vyre.In[u32],
    gen_fact: vyre.In[u32],
    kill_proc: vyre.In[u32],
    kill_block: vyre.In[u32],
    kill_fact: vyre.In[u32],
    killed: vyre.InOut[u32],
    row_ptr: vyre.InOut[u32],
    row_cursor: vyre.InOut[u32],
    col_idx: vyre.InOut[u32],
    col_len: vyre.InOut[u32],
) -> None:
    """The exploded supergraph for any numbers."""
    explode(
        procs, blocks, facts, intra, inter, gen, kill,
        intra_proc, intra_src_block, intra_dst_block,
        inter_src_proc, inter_src_block, inter_dst_proc, inter_dst_block,
        gen_proc, gen_block, gen_fact,
        kill_proc, kill_block, kill_fact,
        killed, row_ptr, row_cursor, col_idx, col_len,
    )  # fmt: skip


def exploded_kernel(procs: int, blocks: int, facts: int, intra: int, inter: int, gen: int, kill: int) -> Any:
    """The kernel for these numbers, which are constants in it."""

    @vyre.kernel(workgroup=WORKGROUP)
    def exploded_csr(
        intra_proc: vyre.In[u32],
        intra_src_block: vyre.In[u32],
        intra_dst_block: vyre.In[u32],
        inter_src_proc: vyre.In[u32],
        inter_src_block: vyre.In[u32],
        inter_dst_proc: vyre.In[u32],
        inter_dst_block: vyre.In[u32],
        gen_proc: vyre.In[u32],
        gen_block: vyre.In[u32],
        gen_fact: vyre.In[u32],
        kill_proc: vyre.In[u32],
        kill_block: vyre.In[u32],
        kill_fact: vyre.In[u32],
        killed: vyre.InOut[u32],
        row_ptr: vyre.InOut[u32],
        row_cursor: vyre.InOut[u32],
        col_idx: vyre.InOut[u32],
        col_len: vyre.InOut[u32],
    ) -> None:
        explode(
            u32(procs), u32(blocks), u32(facts), u32(intra), u32(inter), u32(gen), u32(kill),
            intra_proc, intra_src_block, intra_dst_block,
            inter_src_proc, inter_src_block, inter_dst_proc, inter_dst_block,
            gen_proc, gen_block, gen_fact,
            kill_proc, kill_block, kill_fact,
            killed, row_ptr, row_cursor, col_idx, col_len,
        )  # fmt: skip

    return exploded_csr
