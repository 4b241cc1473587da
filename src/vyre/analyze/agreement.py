"""Who agrees on what a node gives? The facts of single nodes, once, for all who ask about values of many invocations.

An operator is a function: those who agree on its operands agree on its result. What makes invocations differ are ids,
memory and a few nodes that are different by nature; how far each of them is agreed on stands here. What follows for
variables and control flow is found in two ways, because it is not the same. Invocations of a workgroup or a grid run
freely (``uniformity``): they meet at barriers only, so what one of them loads may have been changed since another
did, and whoever took another way counts. Lanes of a vector are in lockstep (``shapes``): one load serves all of
them, lanes that are not active do not count, and values may be known to grow by a stride from lane to lane.
"""

from __future__ import annotations

from typing import Final

from vyre.ir import nodes as n

# The largest group that agrees; those who agree in a group agree in every smaller one that lies within it.
GRID: Final = 0
WORKGROUP: Final = 1
SUBGROUP: Final = 2
INVOCATION: Final = 3

_BY_NATURE: Final[dict[type[n.Expr], int]] = {
    n.InvocationId: INVOCATION,
    n.LocalId: INVOCATION,
    n.WorkgroupId: WORKGROUP,
    n.SubgroupBallot: SUBGROUP,
    n.SubgroupReduce: SUBGROUP,
    n.SubgroupShuffle: INVOCATION,
    n.SubgroupLocalId: INVOCATION,
    n.Atomic: INVOCATION,
}

# The nodes besides variables and loads on which it depends who agrees on a value.
SOURCES: Final = frozenset(_BY_NATURE)


def agreed_by(node: n.Expr, workgroup_size: tuple[int, int, int]) -> int:
    """Who agrees on what a node gives, if they agree on its operands and on the memory that it reads.

    A subgroup agrees on what its lanes give together whether they agree on the operands or not.
    """
    if isinstance(node, (n.InvocationId, n.LocalId)):
        if not 0 <= node.axis <= 2:
            return GRID
        if workgroup_size[node.axis] == 1:
            return WORKGROUP if isinstance(node, n.InvocationId) else GRID
    return _BY_NATURE.get(type(node), GRID)
