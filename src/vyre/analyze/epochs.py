"""Which accesses may happen between the same two barriers?

All invocations that a barrier synchronises pass the same barriers in the same order, so two accesses can meet only
if one barrier (or the start) reaches both without another barrier between. The graph here has a node for each
barrier and for each point where stretches after different barriers come together; edges lead on without a barrier.
"""

from __future__ import annotations


class Epochs:
    """The stretches of a program between barriers, and the buffers (as bits) written in each."""

    def __init__(self) -> None:
        self.written = [0]
        self.begins = [True]
        self.children: list[int] = []
        self.parents: list[int] = []

    def after_barrier(self) -> int:
        """A new stretch, which nothing reaches but its barrier."""
        self.written.append(0)
        self.begins.append(True)
        return len(self.written) - 1

    def meet(self, *parents: int) -> int:
        """The stretch that others lead on to."""
        self.written.append(0)
        self.begins.append(False)
        child = len(self.written) - 1
        for parent in parents:
            self.join(child, parent)
        return child

    def join(self, child: int, parent: int) -> None:
        """Lets a stretch lead on to another, as the end of a loop does to its head."""
        self.children.append(child)
        self.parents.append(parent)

    def written_beside(self) -> list[int]:
        """For each stretch, the buffers that may be written between the same two barriers."""
        reached = list(self.written)
        _flow(reached, self.parents[::-1], self.children[::-1])
        beside = [mask if begins else 0 for mask, begins in zip(reached, self.begins, strict=True)]
        _flow(beside, self.children, self.parents)
        return beside


def _flow(masks: list[int], receivers: list[int], givers: list[int]) -> None:
    """Lets every receiver have the bits of its giver. Loops make cycles: each sweep closes one more level of them."""
    changed = True
    while changed:
        changed = False
        for receiver, giver in zip(receivers, givers, strict=True):
            if masks[giver] & ~masks[receiver]:
                masks[receiver] |= masks[giver]
                changed = True
