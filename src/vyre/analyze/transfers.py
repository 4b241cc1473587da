"""Which transfers are pending where? At every point a tag surely is or surely is not, so nobody tracks it at run time.

The walk keeps the set of pending tags. The tags that changed since an arm or a loop began are kept apart, so joining
paths costs no more than what happened on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

# Called with a code and a sentence.
Reporter = Callable[[str, str], None]


class _Branch(msgspec.Struct):
    """An open If: what had changed around it, and what its first arm changed (None: no path leaves that arm)."""

    outer: set[str]
    then: set[str] | None = None


class _Loop(msgspec.Struct):
    """An open loop: what had changed around it, and what differs now from the start of a pass."""

    outer: set[str]
    differs: set[str]


class Transfers:
    """The state of a walk; the caller goes through a program in order and tells what it meets."""

    def __init__(self, report: Reporter) -> None:
        self.report = report
        self.pending: set[str] = set()
        self.destinations: dict[str, dict[str, None]] = {}
        self.changed: set[str] = set()
        self.branches: list[_Branch] = []
        self.loops: list[_Loop] = []

    def _flip(self, tags: Iterable[str]) -> None:
        self.pending.symmetric_difference_update(tags)
        self.changed.symmetric_difference_update(tags)
        if self.loops:
            self.loops[-1].differs.symmetric_difference_update(tags)

    def issue(self, tag: str, destination: str) -> None:
        if tag in self.pending:
            self.report("V071", f"a transfer with tag '{tag}' is already pending.")
            return
        self.destinations.setdefault(tag, {})[destination] = None
        self._flip((tag,))

    def wait(self, tag: str) -> Iterable[str]:
        """Completes a transfer; gives the buffers that it may write."""
        if tag not in self.pending:
            self.report("V070", f"no transfer with tag '{tag}' is pending.")
            return ()
        self._flip((tag,))
        return self.destinations[tag]

    def enter_branch(self) -> None:
        self.branches.append(_Branch(self.changed))
        self.changed = set()

    def next_arm(self, falls_through: bool) -> None:
        left = self._undo()
        self.branches[-1].then = left if falls_through else None

    def leave_branch(self, falls_through: bool) -> None:
        otherwise = self._undo()
        branch = self.branches.pop()
        self.changed = branch.outer
        if not falls_through:
            self._flip(branch.then or ())
            return
        if branch.then is not None and branch.then != otherwise:
            tags = _listed(branch.then ^ otherwise)
            self.report("V073", f"after this if, {tags} pending on one of its two paths only.")
        self._flip(otherwise)

    def enter_loop(self) -> None:
        self.loops.append(_Loop(self.changed, set()))
        self.changed = set()

    def jump(self, what: str) -> None:
        """A break or a continue."""
        differs = self.loops[-1].differs
        if differs:
            self.report("V073", f"at this {what}, {_listed(differs)} not as at the start of the pass.")

    def leave_loop(self, falls_through: bool) -> None:
        if falls_through and self.loops[-1].differs:
            tags = _listed(self.loops[-1].differs)
            self.report("V073", f"at the end of a pass of this loop, {tags} not as at its start.")
        self._undo()
        self.changed = self.loops.pop().outer

    def end(self, what: str) -> None:
        """A return, or the end of the program."""
        if self.pending:
            self.report("V072", f"at {what}, {_listed(self.pending)} pending.")

    def _undo(self) -> set[str]:
        """Takes back what changed since the arm or the loop began, and gives it."""
        changed = set(self.changed)
        self._flip(changed)
        return changed


def _listed(tags: set[str]) -> str:
    first, *others = sorted(tags)
    return f"transfer '{first}' and {len(others)} more are" if others else f"transfer '{first}' is"
