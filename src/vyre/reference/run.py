"""What must a program compute? ``run`` tells, under one schedule; ``explore`` tries several and compares."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from vyre.arguments import require_whole
from vyre.errors import DispatchFailed
from vyre.ir.binding import Array, bind_inputs, indirect_grid
from vyre.ir.buffers import Role
from vyre.ir.extensions import inline_calls
from vyre.ir.launch import Launch, decide_launch
from vyre.ir.places import Place
from vyre.ir.program import Program
from vyre.ir.traps import Handler
from vyre.reference.code import Code
from vyre.reference.compile import compile_program
from vyre.reference.machine import Machine
from vyre.reference.memory import bytes_of, zeros
from vyre.reference.races import AccessLog, Race
from vyre.reference.schedule import IN_ORDER, REVERSED, Schedule, seeded

DEFAULT_FUEL: Final = 100_000_000


class OutOfBounds(msgspec.Struct, frozen=True):
    """How often the access at a place fell outside its buffer."""

    place: Place
    buffer: str
    count: int


class Result(msgspec.Struct, frozen=True, eq=False):
    """What a run gave: outputs in declaration order as arrays of their storage type (bf16 is uint16)."""

    program: Program
    launch: Launch
    outputs: dict[str, Array]
    steps: int
    out_of_bounds: tuple[OutOfBounds, ...]
    races: tuple[Race, ...]

    def output_bytes(self, name: str) -> bytes:
        """The bytes the host reads back: those of the buffer's output range, if it has one."""
        start, stop = self.program.buffer(name).output_byte_range or (0, None)
        return bytes(bytes_of(self.outputs[name])[start:stop])


class Difference(msgspec.Struct, frozen=True):
    """Where two schedules first gave different bytes; without a buffer, one of them failed."""

    first: Schedule
    second: Schedule
    buffer: str | None = None
    element: int | None = None


class ScheduledRun(msgspec.Struct, frozen=True, eq=False):
    """One run of several: what it gave, or how it failed."""

    schedule: Schedule
    result: Result | None
    error: DispatchFailed | None


class Exploration(msgspec.Struct, frozen=True, eq=False):
    """What several schedules gave; ``difference`` is the first that was found."""

    runs: tuple[ScheduledRun, ...]
    races: tuple[Race, ...]
    difference: Difference | None

    @property
    def results_equal(self) -> bool:
        return self.difference is None

    @property
    def order_dependent(self) -> bool:
        """Whether the result was seen to depend on the order of invocations."""
        return self.difference is not None


def run(
    program: Program,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    grid: tuple[int, ...] | None = None,
    elements: int | None = None,
    schedule: Schedule = IN_ORDER,
    fuel: int = DEFAULT_FUEL,
    handlers: Mapping[str, Handler] | None = None,
    races: bool = False,
    checked: bool = False,
    timeout_s: float | None = None,
) -> Result:
    """Runs a program on host data (``vyre.ir.binding``), which stays as it is.

    ``fuel`` bounds the statements run; ``handlers`` answer traps by tag: each gets the requests, sorted by invocation,
    and the arrays of all buffers, to change; ``races`` reports conflicting accesses. ``checked`` says that the
    checker has accepted the program already. ``timeout_s`` ends a run that takes longer.
    """
    program = _prepared(program, checked)
    code = _code(program, schedule.switches, races)
    return _run(code, inputs, grid, elements, schedule, fuel, handlers or {}, races, timeout_s)


def explore(
    program: Program,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    schedules: int = 8,
    grid: tuple[int, ...] | None = None,
    elements: int | None = None,
    fuel: int = DEFAULT_FUEL,
    handlers: Mapping[str, Handler] | None = None,
    races: bool = True,
    checked: bool = False,
    timeout_s: float | None = None,
) -> Exploration:
    """Runs a program in order, reversed and under seeded schedules, ``schedules`` in all, and compares the bytes.

    Handlers are called anew in every run, and each run may take ``timeout_s``. Where every schedule fails, the first
    failure is raised.
    """
    program = _prepared(program, checked)
    schedules = require_whole(schedules, "the number of schedules")
    plans = (IN_ORDER, REVERSED, *map(seeded, range(max(0, schedules - 2))))[: max(1, schedules)]
    codes = {switches: _code(program, switches, races) for switches in dict.fromkeys(plan.switches for plan in plans)}
    runs = []
    for plan in plans:
        try:
            result = _run(codes[plan.switches], inputs, grid, elements, plan, fuel, handlers or {}, races, timeout_s)
            runs.append(ScheduledRun(plan, result, None))
        except DispatchFailed as error:
            runs.append(ScheduledRun(plan, None, error))
    if all(one.error for one in runs) and runs[0].error:
        raise runs[0].error
    found: dict[object, Race] = {}
    for one in runs:
        for race in one.result.races if one.result else ():
            found.setdefault(race.pair, race)
    difference = next((d for one in runs[1:] if (d := _difference(runs[0], one)) is not None), None)
    return Exploration(tuple(runs), tuple(found.values()), difference)


def _prepared(program: Program, checked: bool) -> Program:
    if not checked:
        from vyre.checker import check

        check(program).raise_if_invalid()
    return inline_calls(program)


def _code(program: Program, switching: bool, noting: bool) -> Code:
    """The compiled program, kept with it: those who run one program often compile it once."""
    kept: dict[tuple[bool, bool], Code] = program.__dict__.setdefault("_reference_code", {})
    if (switching, noting) not in kept:
        kept[switching, noting] = compile_program(program, switching=switching, noting=noting)
    return kept[switching, noting]


def _run(
    code: Code,
    inputs: Mapping[str, Any] | Sequence[Any],
    grid: tuple[int, ...] | None,
    elements: int | None,
    schedule: Schedule,
    fuel: int,
    handlers: Mapping[str, Handler],
    races: bool,
    timeout_s: float | None = None,
) -> Result:
    program = code.program
    bound = bind_inputs(program, inputs)
    counts = {name: len(array) for name, array in bound.items()}
    launch = decide_launch(program, counts, grid=indirect_grid(program, bound) or grid, elements=elements)
    memory = {
        decl.name: bound[decl.name].copy() if decl.role.takes_input else zeros(decl, launch.counts[decl.name])
        for decl in program.buffers
        if decl.role is not Role.SHARED
    }
    misses: defaultdict[tuple[Place, str], int] = defaultdict(int)
    accesses = AccessLog(program.buffers_by_name) if races else None
    machine = Machine(code, launch, memory, schedule, fuel, handlers, misses, accesses, timeout_s)
    machine.run()
    return Result(
        program=program,
        launch=launch,
        outputs={decl.name: memory[decl.name] for decl in program.output_buffers()},
        steps=machine.steps,
        out_of_bounds=tuple(
            OutOfBounds(place, buffer, count)
            for (place, buffer), count in sorted(misses.items(), key=lambda item: (item[0][0].statement, item[0][1]))
        ),
        races=tuple(accesses.races.values()) if accesses else (),
    )


def _difference(first: ScheduledRun, second: ScheduledRun) -> Difference | None:
    if first.result is None or second.result is None:
        same = first.error is not None and second.error is not None and first.error.code == second.error.code
        return None if same else Difference(first.schedule, second.schedule)
    for name, array in first.result.outputs.items():
        width = array.itemsize
        one, two = (np.frombuffer(bytes_of(out), np.uint8) for out in (array, second.result.outputs[name]))
        if not np.array_equal(one, two):
            return Difference(first.schedule, second.schedule, name, int(np.argmax(one != two)) // width)
    return None
