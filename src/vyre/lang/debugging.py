"""What is wrong with a call? The reference runs it under several schedules: races, bounds, and order, in the source."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from vyre import reference
from vyre.errors import BadInputs, VyreError
from vyre.ir.binding import Array
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.ir.render import render
from vyre.lang.arguments import take
from vyre.lang.arrays import DeviceArray
from vyre.lang.backends import shared_backend
from vyre.lang.explain import explain
from vyre.reference import OutOfBounds, Race
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.lang.kernel import Launch


_MOST_INVOCATIONS: Final = 1 << 20


class DebugReport(msgspec.Struct, frozen=True, eq=False):
    """What several runs of a call showed; as text, with the places in the kernel's file.

    ``outputs`` are the arrays that the kernel writes, as the run in order left them. ``order_dependent`` says that
    another order of the invocations gave other bytes.
    """

    program: Program
    races: tuple[Race, ...]
    out_of_bounds: tuple[OutOfBounds, ...]
    order_dependent: bool
    outputs: dict[str, Array]
    schedules: int

    @property
    def ok(self) -> bool:
        """Whether there is no race and the order does not matter; accesses out of bounds are harmless."""
        return not self.races and not self.order_dependent

    def __str__(self) -> str:
        parts = [self._race(race) for race in self.races]
        parts += [self._miss(miss) for miss in self.out_of_bounds]
        if self.order_dependent:
            parts.append(f"order: the result of '{self.program.name}' depends on the order of its invocations")
        return "\n\n".join(parts) or f"'{self.program.name}' is clean under {counted(self.schedules, 'schedule')}"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def _race(self, race: Race) -> str:
        first, second = race.first, race.second
        message = (
            f"invocations {first.invocation} and {second.invocation} meet at '{race.buffer}[{race.element}]': a "
            f"{first.kind.value} here and a {second.kind.value} at {self._where(second.place)}, in no order"
        )
        fix = "put a barrier between them, use an atomic, or give each invocation an element of its own."
        return self._shown(first.place, "race", first.kind.value, message, fix)

    def _miss(self, miss: OutOfBounds) -> str:
        message = f"{counted(miss.count, 'access is', 'accesses are')} outside '{miss.buffer}'"
        return self._shown(miss.place, "bounds", miss.buffer, message, "guard the access, if they are not meant to be.")

    def _shown(self, place: Place, severity: str, code: str, message: str, fix: str) -> str:
        assert self.program.source is not None  # every translation has one
        return render(self.program.source, self.program.source.span(place), severity, code, message, fix)

    def _where(self, place: Place) -> str:
        source = self.program.source
        assert source is not None  # every translation has one
        line, column = source.line_and_column(source.span(place).start)
        return f"{source.name}:{line}:{column}"


def debug(launch: Launch, arguments: Sequence[Any], schedules: int = 8) -> DebugReport:
    """Runs a call on the reference; the arguments stay as they are."""
    definition = launch.definition
    if type(schedules) is not int or schedules < 1:
        raise BadInputs(f"{schedules!r:.60} is no number of schedules.", "give a whole number from 1.")
    host = [one.numpy() if isinstance(one, DeviceArray) else one for one in arguments]
    specs = definition.translation().specs
    taken = take(specs, host, in_place=False)
    # What Python would not evaluate is not evaluated, so that nothing is reported that the kernel does not say.
    program = definition.translation(strict=True).program
    names = [decl.name for decl in program.input_buffers()]
    grid = launch.kernel.config(launch.grid).grid_override
    if math.prod(grid or ()) * math.prod(definition.workgroup) > _MOST_INVOCATIONS:
        raise BadInputs(
            f"a debug run follows every invocation, and these are more than {_MOST_INVOCATIONS:,}.",
            "debug a smaller launch on smaller arrays.",
        )
    try:
        explored = reference.explore(
            program,
            dict(zip(names, taken.memory, strict=True)),
            grid=grid,
            schedules=schedules,
            handlers=launch.kernel.options.handlers,
            timeout_s=launch.kernel.options.timeout_s,
            checked=True,
        )
    except VyreError as error:
        explain(error, program, shared_backend("reference"))
        raise
    first = next(one.result for one in explored.runs if one.result is not None)
    shapes = {spec.name: np.shape(one) for spec, one in zip(specs, host, strict=True)}
    by_buffer = {decl.name: spec.name for decl, spec in zip(program.buffers, specs, strict=False)}
    outputs = {by_buffer[name]: data.reshape(shapes[by_buffer[name]]) for name, data in first.outputs.items()}
    # What was called stands in its place there, so that is what the places are of.
    return DebugReport(
        first.program, explored.races, first.out_of_bounds, explored.order_dependent, outputs, len(explored.runs)
    )


def check_races(launch: Launch, *arguments: Any, schedules: int = 8, **named: Any) -> DebugReport:
    """Runs ``kernel[n]`` on the reference with these arguments and tells whether invocations race."""
    from vyre.lang.kernel import Kernel
    from vyre.lang.kernel import Launch as Launching

    if isinstance(launch, Kernel) or not isinstance(launch, Launching):
        raise BadInputs("check_races takes a launch.", "say how many invocations: vyre.check_races(kernel[n], ...).")
    return launch.debug(*arguments, schedules=schedules, **named)
