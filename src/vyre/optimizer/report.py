"""Reports on optimizations: counts, times and rule names."""

from __future__ import annotations

import msgspec

from vyre.words import counted


class Stage(msgspec.Struct, frozen=True):
    """One stage of a round and its duration."""

    name: str
    seconds: float


class Report(msgspec.Struct, frozen=True):
    """Report on one optimization: rows before and after, rule counts, rounds, sweeps, stages and synchronizations.

    ``most_workgroups`` is None if the result holds for every grid; otherwise it holds for grids of one axis and at most
    so many workgroups.
    ``static_hits`` counts rounds whose constant columns were on the device already. ``cached`` is "memory" or "disk"
    if the result came from a cache; the other fields then describe the run that made it.
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
        """A summary in one line."""
        rules = sum(self.fired.values())
        source = f", from {self.cached}" if self.cached else f", in {1e3 * self.seconds:.1f} ms"
        done = f"{counted(rules, 'rewrite')}, {counted(self.rounds, 'round')}"
        return f"{self.rows_after} of {self.rows_before} rows needed, {done}{source}"

    def _repr_html_(self) -> str:
        rules = "".join(f"<tr><td>{count}</td><td>{name}</td></tr>" for name, count in sorted(self.fired.items()))
        return f"<p>{self.line}</p><table>{rules}</table>"
