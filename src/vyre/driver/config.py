"""Dispatch options: one frozen record, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import index
from threading import TIMEOUT_MAX
from typing import Any, Final, Literal

import msgspec

from vyre.arguments import require
from vyre.errors import BadInputs, InvalidProgram
from vyre.optimizer.switches import CODE_ONLY, EVERYTHING, Optimization

Cooperative = Literal["auto", "require", "never"]
# How a program with grid barriers runs: in one launch, as segments on resident memory, as segments through the host.
Route = Literal["auto", "native", "resident", "host"]
TrapHandler = Callable[..., None]


class DispatchConfig(msgspec.Struct, frozen=True):
    """How to run; everything is optional.

    ``grid_override`` counts workgroups. ``fixpoint_iterations`` runs the whole program up to that many times on the
    same buffers. ``ulp_budget`` None is strict. ``cooperative`` says whether a native grid barrier may, must or must
    not be used. ``optimize`` switches the optimizer, or says what of it to use. ``seed`` picks the order of invocations
    on a backend that can choose it. ``handlers`` answer traps, by tag.
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
    optimize: bool | Optimization = True
    seed: int | None = None
    handlers: Mapping[str, TrapHandler] | None = None

    def __post_init__(self) -> None:
        for name in ("max_output_bytes", "dispatch_elements", "fixpoint_iterations", "ulp_budget", "seed"):
            value = getattr(self, name)
            if value is not None:
                msgspec.structs.force_setattr(self, name, _number(name, value, index, "a whole number"))
        if self.timeout_s is not None:
            limit = _number("timeout_s", self.timeout_s, float, "a number of seconds")
            msgspec.structs.force_setattr(self, "timeout_s", limit)
        if not isinstance(self.label, str):
            raise BadInputs(f"label is {self.label!r:.60}.", "give a text.")
        handlers = self.handlers or {}
        if not isinstance(handlers, Mapping) or not all(map(callable, handlers.values())):
            raise BadInputs(
                f"handlers are a {type(handlers).__name__}, not functions by tag.",
                "give {'tag': function}, of functions that take the requests and the buffers.",
            )
        if self.fixpoint_iterations is not None and self.fixpoint_iterations < 1:
            raise InvalidProgram(
                f"fixpoint_iterations is {self.fixpoint_iterations}: the program would never run.",
                "give at least 1, or leave it out to run once.",
            )
        if self.timeout_s is not None and not 0 < self.timeout_s <= TIMEOUT_MAX:
            raise BadInputs(f"timeout_s is {self.timeout_s}.", "give a number of seconds above 0, or leave it out.")
        for name in ("max_output_bytes", "dispatch_elements", "ulp_budget"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise BadInputs(f"{name} is {value}.", "give a whole number from 0, or leave it out.")
        for name, least in (("workgroup_override", 1), ("grid_override", 0)):
            if getattr(self, name) is not None:
                msgspec.structs.force_setattr(self, name, _axes(name, getattr(self, name), least))
        if not isinstance(self.optimize, (bool, Optimization)):
            raise BadInputs(f"optimize is {self.optimize!r}.", "give True, False or an Optimization.")
        if self.cooperative not in ("auto", "require", "never"):
            raise BadInputs(f"cooperative is {self.cooperative!r}.", 'give "auto", "require" or "never".')

    @property
    def passes(self) -> int:
        """How often the program may run."""
        return self.fixpoint_iterations or 1

    @property
    def is_simple(self) -> bool:
        """Whether a run is one pass without a time limit, trap handlers and a seed."""
        return (
            self.fixpoint_iterations is None and self.timeout_s is None and self.handlers is None and self.seed is None
        )

    @property
    def code_generation(self) -> tuple[Any, ...]:
        """The part that decides what code is generated; the rest only decides how it is run."""
        return self.workgroup_override, self.ulp_budget, self.cooperative, self.optimization.key

    @property
    def optimization(self) -> Optimization:
        """What ``optimize`` means."""
        if isinstance(self.optimize, Optimization):
            return self.optimize
        return EVERYTHING if self.optimize else CODE_ONLY

    @property
    def for_parts(self) -> Optimization:
        """What is left to do for the parts of a program that was optimized as a whole."""
        return Optimization(program=False, code=self.optimization.code)

    def with_changes(self, **changes: Any) -> DispatchConfig:
        return msgspec.structs.replace(self, **changes)


def _number(name: str, value: Any, convert: Callable[[Any], Any], what: str) -> Any:
    """A number of any type as one of Python's, which every thread, clock and cache understands."""
    try:
        if not isinstance(value, (bool, str, bytes)):
            return convert(value)
    except (TypeError, ValueError):
        pass
    raise BadInputs(f"{name} is {value!r:.60}.", f"give {what}, or leave it out.")


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


def require_config(config: object) -> None:
    """Raise unless None or a DispatchConfig."""
    if config is not None:
        require(config, DispatchConfig, "the config", "give a vyre.DispatchConfig(...), or leave it out.")
