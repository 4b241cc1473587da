"""The reference for the kernel ``live``, in plain Python."""

from __future__ import annotations

from typing import Final

from vyre.optimizer.arena import NONE, WITHOUT_OPERANDS, Arm, Kind, kind_of, operation_of
from vyre.optimizer.encode import STICKY

# States of a needed row in LiveRows: it may run, or it is a statement that never runs.
MAY_RUN: Final = 1
NEVER_RUNS: Final = 2


class LiveRows:
    """The rows that effects need: what the kernel ``live`` marks.

    The columns are those of an arena as ``simplify`` left them, with a literal row for each row.
    """

    def __init__(
        self,
        head: list[int],
        a0: list[int],
        a1: list[int],
        a2: list[int],
        canon: list[int],
        scope: list[int],
        d0: list[int],
        d1: list[int],
        scope_parent: list[int],
        scope_control: list[int],
        scope_arm: list[int],
    ) -> None:
        self.head, self.a0, self.a1, self.a2, self.canon = head, a0, a1, a2, canon
        self.scope, self.d0, self.d1 = scope, d0, d1
        self.parent, self.controls, self.arms = scope_parent, scope_control, scope_arm
        self.live = [0] * len(head)

    def find(self, rows: int, *, keeps_all: bool) -> list[int]:
        """Return 0, MAY_RUN or NEVER_RUNS for every row; ``keeps_all`` keeps dead statements."""
        pending: list[int] = []
        for row in range(rows):
            word = self.head[row]
            kind = kind_of(word)
            flagged = kind > Kind.EFFECT and (operation_of(word) == STICKY or keeps_all)
            if (kind == Kind.EFFECT or flagged) and self._may_run(self.scope[row]):
                self.live[row] = MAY_RUN
                pending.append(row)
        while pending:
            row = pending.pop()
            for needed in self._needs(row):
                if needed != NONE and not self.live[needed]:
                    is_statement = kind_of(self.head[needed]) >= Kind.EFFECT
                    self.live[needed] = (
                        NEVER_RUNS if is_statement and not self._may_run(self.scope[needed]) else MAY_RUN
                    )
                    pending.append(needed)
        return self.live

    def uses(self, row: int) -> list[int]:
        """The representatives of a row's operands."""
        kind = kind_of(self.head[row])
        if kind in WITHOUT_OPERANDS:
            return []
        if kind == Kind.LOAD:
            return [self._resolve(self.a0[row])]
        return [self._resolve(x) for x in (self.a0[row], self.a1[row], self.a2[row]) if x != NONE]

    def _needs(self, row: int) -> list[int]:
        if self.live[row] == NEVER_RUNS:
            # A jump that never runs only leads to the other jumps of its loop.
            return [self.d1[row]] if kind_of(self.head[row]) == Kind.JUMP else []
        return [*self.uses(row), self.d0[row], self.d1[row]]

    def _resolve(self, row: int) -> int:
        return row if row == NONE else self.canon[row]

    def _literal(self, row: int) -> int | None:
        row = self._resolve(row)
        return self.a0[row] if row != NONE and kind_of(self.head[row]) == Kind.LITERAL else None

    def _may_run(self, scope: int) -> bool:
        while True:
            control, arm = self.controls[scope], self.arms[scope]
            if arm in (Arm.IF_TRUE, Arm.IF_FALSE):
                known = self._literal(self.a0[control])
                if known is not None and bool(known) != (arm == Arm.IF_TRUE):
                    return False
            elif arm == Arm.IN_RANGE:
                start, stop = self._literal(self.a0[control]), self._literal(self.a1[control])
                if start is not None and stop is not None and start >= stop:
                    return False
            if scope == 0:
                return True
            scope = self.parent[scope]
