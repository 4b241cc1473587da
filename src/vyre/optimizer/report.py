"""What did an optimisation do? Counts, times and names, for people and for files."""

from __future__ import annotations

import msgspec

from vyre.words import counted


class Stage(msgspec.Struct, frozen=True):
    """One stage of a round and how long it took."""

    name: str
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """What an optimisation did: rows before and after, how often each rule fired, rounds, stages, synchronisations.

    ``most_workgroups`` is None if the result holds for every grid; else for those of one axis, of so many workgroups.
    ``static_hits`` counts rounds whose unchanging columns were on the device already. ``cached`` says where the result
    came from, if it was not made now: "memory" or "disk". The rest then tells of when it was made.
    """

    rows_before: int
    rows_after: int
    fired: dict[str, int]
    rounds: int
    sweeps: int
    stages: tuple[Stage, ...]
    synchronisations: int
    static_hits: int = 0
    cached: str = ""
    most_workgroups: int | None = None

    def holds_for(self, grid: tuple[int, int, int]) -> bool:
        """Whether the result may be launched on a grid."""
        return self.most_workgroups is None or (grid[1:] == (1, 1) and grid[0] <= self.most_workgroups)

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    @property
    def line(self) -> str:
        """All of it in a few words."""
        rules = sum(self.fired.values())
        source = f", from {self.cached}" if self.cached else f", in {1e3 * self.seconds:.1f} ms"
        done = f"{counted(rules, 'rewrite')}, {counted(self.rounds, 'round')}"
        return f"{self.rows_after} of {self.rows_before} rows needed, {done}{source}"

    def _repr_html_(self) -> str:
        rules = "".join(f"<tr><td>{count}</td><td>{name}</td></tr>" for name, count in sorted(self.fired.items()))
        return f"<p>{self.line}</p><table>{rules}</table>"
