"""What may the caller of a dispatch choose? One frozen record, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, Final, Literal

import msgspec

from vyre.errors import BadInputs, InvalidProgram

Cooperative = Literal["auto", "require", "never"]
TrapHandler = Callable[..., None]


class DispatchConfig(msgspec.Struct, frozen=True):
    """How to run; everything is optional.

    ``grid_override`` counts workgroups. ``fixpoint_iterations`` runs the whole program up to that many times on the
    same buffers. ``ulp_budget`` None is strict. ``cooperative`` says whether a native grid barrier may, must or must
    not be used. ``seed`` picks the order of invocations on a backend that can choose it. ``handlers`` answer
    traps, by tag.
    """

    label: str = ""
    timeout_s: float | None = None
    max_output_bytes: int | None = None
    workgroup_override: tuple[int, ...] | None = None
    grid_override: tuple[int, ...] | None = None
    dispatch_elements: int | None = None
    fixpoint_iterations: int | None = None
    ulp_budget: int | None = None
    cooperative: Cooperative = "auto"
    optimize: bool = True
    seed: int | None = None
    handlers: Mapping[str, TrapHandler] | None = None

    def __post_init__(self) -> None:
        if self.fixpoint_iterations is not None and self.fixpoint_iterations < 1:
            raise InvalidProgram(
                f"fixpoint_iterations is {self.fixpoint_iterations}: the program would never run.",
                "give at least 1, or leave it out to run once.",
            )
        if self.timeout_s is not None and not self.timeout_s > 0:
            raise BadInputs(f"timeout_s is {self.timeout_s}.", "give a number of seconds above 0, or leave it out.")
        for name in ("max_output_bytes", "dispatch_elements", "ulp_budget"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BadInputs(f"{name} is {value}.", "give a whole number from 0, or leave it out.")
        for name, least in (("workgroup_override", 1), ("grid_override", 0)):
            if getattr(self, name) is not None:
                msgspec.structs.force_setattr(self, name, _axes(name, getattr(self, name), least))
        if self.cooperative not in ("auto", "require", "never"):
            raise BadInputs(f"cooperative is {self.cooperative!r}.", 'give "auto", "require" or "never".')

    @property
    def passes(self) -> int:
        """How often the program may run."""
        return self.fixpoint_iterations or 1

    @property
    def code_generation(self) -> tuple[Any, ...]:
        """The part that decides what code is generated; the rest only decides how it is run."""
        return self.workgroup_override, self.ulp_budget, self.cooperative, self.optimize

    def with_changes(self, **changes: Any) -> DispatchConfig:
        return msgspec.structs.replace(self, **changes)


def _axes(name: str, value: Any, least: int) -> tuple[int, ...]:
    """One to three whole numbers as a tuple, from any sequence of them or from one number."""
    try:
        axes = tuple(map(index, value)) if isinstance(value, Iterable) else (index(value),)
    except TypeError:
        axes = ()
    if not 1 <= len(axes) <= 3 or min(axes) < least:
        raise BadInputs(f"{name} is {value!r}.", f"give one to three whole numbers from {least}, as in (64,).")
    return axes


DEFAULT_CONFIG: Final = DispatchConfig()
