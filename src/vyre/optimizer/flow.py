"""Flow state: what cells hold and which version memory has at the walk's position, with undo for paths.

A write begins a new version of its buffer; a synchronization begins a new epoch, and with it a new version of every
buffer that the program writes. A statement clobbers the versions that end there: a value that was loaded before it
and is used behind it must be kept in a variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

EPOCH: Final = -1


class Flow:
    """The state at a position: the value and definition of each cell, and the last event of each buffer and EPOCH."""

    def __init__(self, numbers: Mapping[str, int], written: Mapping[str, None], depths: Sequence[int]) -> None:
        self.numbers = numbers
        self.written = written
        self.depths = depths
        self.state: dict[Any, Any] = {EPOCH: 0}
        self.journal: list[dict[Any, Any]] = []
        self.event_scopes = [0]
        self.versions: dict[tuple[str, int, int], int] = {}
        self.version_scopes: list[int] = []

    def set(self, key: Any, value: Any) -> None:
        if self.journal:
            self.journal[-1].setdefault(key, self.state.get(key))
        self.state[key] = value

    def begin_path(self) -> None:
        self.journal.append({})

    def end_path(self) -> dict[Any, Any]:
        """Undo a path; return what it changed, with the values at its end."""
        before = self.journal.pop()
        changed = {key: self.state[key] for key in before}
        for key, old in before.items():
            if old is None:
                del self.state[key]
            else:
                self.state[key] = old
        return changed

    def change(self, memory: Iterable[Any], scope: int) -> None:
        """Record that memory changes in a scope."""
        for key in memory:
            self.event_scopes.append(scope)
            self.set(key, len(self.event_scopes) - 1)

    def moment(self, buffer: str) -> tuple[str, int, int]:
        """Return what identifies a version of a buffer: its last write and the last synchronization."""
        return (buffer, self.state.get(buffer, 0), self.state[EPOCH]) if buffer in self.written else (buffer, 0, 0)

    def version(self, buffer: str) -> int:
        """Return the version of a buffer that a load here reads."""
        moment = self.moment(buffer)
        version = self.versions.get(moment)
        return self.new_version(moment) if version is None else version

    def new_version(self, moment: tuple[str, int, int]) -> int:
        version = self.versions[moment] = len(self.version_scopes)
        scopes = self.event_scopes[moment[1]], self.event_scopes[moment[2]]
        self.version_scopes.append(max(scopes, key=self.depths.__getitem__))
        return version

    def ended(self, changing: Sequence[Any]) -> list[int]:
        """Return the loaded versions that end when this memory changes, in order of declaration."""
        if EPOCH in changing:
            changing = list(self.written)
        elif len(changing) > 1:
            changing = sorted(changing, key=self.numbers.__getitem__)
        state, epoch = self.state, self.state[EPOCH]
        ended = [self.versions.get((buffer, state.get(buffer, 0), epoch)) for buffer in changing]
        return [version for version in ended if version is not None]

    def write(self, buffer: str, scope: int) -> tuple[int, ...]:
        """Record a write to a buffer; return the version that ends, if a load reads it."""
        state = self.state
        ended = self.versions.get((buffer, state.get(buffer, 0), state[EPOCH]))
        self.event_scopes.append(scope)
        self.set(buffer, len(self.event_scopes) - 1)
        return () if ended is None else (ended,)

    def touch(self, buffers: Iterable[str], scope: int, *, synchronises: bool) -> list[int]:
        """Record that memory changes here; return the loaded versions that end."""
        changing = (EPOCH,) if synchronises else tuple(buffers)
        ended = self.ended(changing)
        self.change(changing, scope)
        return ended
