"""How is a program optimised? Encoded once, worked on by five programs wherever the dispatcher runs them, decoded once.

Dispatchers that keep buffers on their device run all in one sequence with one readback; others run the same programs
one by one, and the result is the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Final, TypeVar

import numpy as np

from vyre.checker import check
from vyre.errors import DispatchFailed, UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.launch import works_together
from vyre.ir.limits import MAX_STATEMENTS
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, TYPE_CODES, Arena
from vyre.optimizer.collecting import collector_paused
from vyre.optimizer.decode import decode
from vyre.optimizer.dispatcher import (
    OptimizerDispatcher,
    ProgramSet,
    ResidentRange,
    ResidentStep,
    free_after,
    words_of,
)
from vyre.optimizer.encode import encode
from vyre.optimizer.findings import Findings
from vyre.optimizer.guards import decide_guarded
from vyre.optimizer.kernels import ALONE, PACKED_NOWHERE, WORKGROUP
from vyre.optimizer.reading import reader_of
from vyre.optimizer.records import WORDS
from vyre.optimizer.report import Report as Report
from vyre.optimizer.report import Stage as Stage
from vyre.optimizer.switches import EVERY_BIT
from vyre.semantics.types import FLOATS

Made = TypeVar("Made")
Steps = list[tuple[Program, int]]

ALL_GROUPS: Final = EVERY_BIT
_MOST_ROUNDS: Final = 4
_MOST_WORKGROUPS: Final = 64
# How many rows of a level an invocation has.
_ROWS_EACH: Final = 4
# What has to be zero at first; everything else is written before it is read.
_BLANK: Final = ("again", "tail", "settled", "fired", "needed", "needed_count")
_FOUND: Final = ("canon", "head", "a0", "a1", "a2")
_READ: Final = (*(f"found_{name}" for name in _FOUND), "packed", "fired")


def optimize_with(
    program: Program,
    dispatcher: OptimizerDispatcher,
    *,
    groups: int = ALL_GROUPS,
    checked: bool = False,
    launched_as_given: bool = False,
    on_stage: Callable[[str, int, int], None] | None = None,
) -> tuple[Program, Report]:
    """An equivalent program that does no more, and what was done.

    ``groups`` are the bits of what to use (``Optimization.bits``). Limits and everything else that makes a program
    illegal are found before anything runs, unless the program is ``checked``. What is found is launched as the program
    is, by itself; who sees to that anyway says that it is ``launched_as_given``. ``on_stage`` is told of each stage,
    from when to when in nanoseconds.
    """
    if not checked:
        check(program).raise_if_invalid()
    # What the rounds make is gone before the collector could look through it.
    with collector_paused():
        return _in_rounds(program, dispatcher, groups, on_stage, launched_as_given=launched_as_given)


def _in_rounds(
    program: Program,
    dispatcher: OptimizerDispatcher,
    groups: int,
    on_stage: Callable[[str, int, int], None] | None,
    *,
    launched_as_given: bool,
) -> tuple[Program, Report]:
    """Rounds, each of which begins with what the one before found, until there is nothing more to find."""
    stages: list[Stage] = []
    fired: dict[str, int] = {}
    rows_before = rows_after = sweeps = rounds = waits = hits = 0

    def timed(name: str, run: Callable[..., Made], *arguments: Any) -> Made:
        start = perf_counter_ns()
        made = run(*arguments)
        stop = perf_counter_ns()
        stages.append(Stage(name, (stop - start) / 1e9))
        if on_stage is not None:
            on_stage(name, start, stop)
        return made

    goes_on = True
    guarded, decided = timed("guards", decide_guarded, program, groups)
    while goes_on and rounds < _MOST_ROUNDS:
        rounds += 1
        program = guarded
        if decided:
            fired["guards"] = fired.get("guards", 0) + decided
        reader = reader_of(dispatcher)
        arena, outline = timed("encode", encode, program, reader)
        findings, was_hit, times = timed("kernels", _find, arena, dispatcher, groups)
        waits += times + (0 if reader is None else reader.times)
        better, statements, goes_on = timed("decode", decode, arena, outline, findings)
        live = int(np.count_nonzero(findings.live[: arena.rows]))
        sweeps, hits = sweeps + findings.sweeps, hits + was_hit
        for name, count in findings.fired.items():
            fired[name] = fired.get(name, 0) + count
        # What a round found is not taken if there is more of it, or no room for its names.
        rows_before = rows_before or arena.rows
        before = outline.program
        is_launched_alike = launched_as_given or not works_together(before) or works_together(better)
        if live > rows_before or statements > MAX_STATEMENTS or not is_launched_alike:
            rows_after = rows_after or rows_before
            break
        is_new = better != program
        program, rows_after = better, live
        guarded, decided = timed("guards", decide_guarded, better, groups) if is_new else (better, 0)
        goes_on = decided > 0 or (goes_on and is_new)
    return program, Report(rows_before, rows_after, fired, rounds, sweeps, tuple(stages), waits, hits)


def find(arena: Arena, dispatcher: OptimizerDispatcher, groups: int = ALL_GROUPS) -> Findings:
    """What the kernels find in an arena."""
    return _find(arena, dispatcher, groups)[0]


def _find(arena: Arena, dispatcher: OptimizerDispatcher, groups: int) -> tuple[Findings, bool, int]:
    """The same, whether what never changes of the arena was on the device already, and how often the host waited."""
    programs = dispatcher.programs()
    _require_floats(arena, programs, dispatcher)
    given, steps = _given(arena, groups), _steps(arena, programs)
    sizes = _sizes(given, len(programs.rules))
    was_hit, waits = False, 1
    if dispatcher.supports_persistent():
        read, was_hit = _run_resident(dispatcher, given, sizes, steps)
    else:
        waits = len(steps)
        read = _run_each(dispatcher, given, sizes, steps)
    packed = read["packed"]
    place = packed >> 2
    place[place == PACKED_NOWHERE] = NONE
    live, uses = packed & 1, 1 + (packed >> 1 & 1)
    counts = read["fired"].tolist()
    fired = {name: count for name, count in zip(programs.rules, counts[1:], strict=True) if count}
    canon, head, a0, a1, a2 = (read[f"found_{name}"] for name in _FOUND)
    return Findings(canon, head, a0, a1, a2, live, place, uses, fired, counts[0]), was_hit, waits


def _require_floats(arena: Arena, programs: ProgramSet, dispatcher: OptimizerDispatcher) -> None:
    """Constants of a float that a dispatcher lacks would be left as they are, and the result another than elsewhere."""
    lacked = [dtype for dtype in FLOATS if dtype not in programs.floats]
    if not lacked:
        return
    present = np.unique(arena.columns["head"][arena.order] >> np.uint32(8) & np.uint32(255))
    for dtype in lacked:
        if TYPE_CODES[dtype] in present:
            raise UnsupportedFeature(
                f"the exact {dtype} that optimising a program with {dtype} takes",
                dispatcher.name,
                "optimise it on the processor: vyre.optimize(program) does, and the result runs anywhere.",
            )


def _slots(rows: int) -> int:
    """How large the table of rows is."""
    return 1 << max(4, (2 * rows).bit_length())


def _given(arena: Arena, groups: int) -> dict[str, Array]:
    """What the kernels are told."""
    given = {f"given_{name}": arena.columns[name] for name in ("head", "a0", "a1", "a2")}
    given |= {name: arena.columns[name] for name in ("scope", "d0", "d1")}
    given |= {name: getattr(arena, name) for name in (
        "order", "meetings", "scope_parent", "scope_last", "scope_loops", "scope_meetings", "scope_control", "scope_arm"
    )}  # fmt: skip
    given["given_level"] = arena.level
    given["stretches"] = _stretches(arena.levels)
    params = [groups, arena.rows, _slots(arena.rows) - 1, len(given["stretches"]) - 1]
    return given | {"params": np.array(params, np.uint32)}


def _sizes(given: Mapping[str, Array], rules: int) -> dict[str, int]:
    """The words of the kernels' own buffers; behind each row there is room for a literal."""
    rows = len(given["given_head"])
    sizes: dict[str, int] = dict.fromkeys((*_READ, "queue"), 2 * rows)
    sizes |= {"records": 2 * rows * WORDS["records"], "table": _slots(rows) * WORDS["table"]}
    sizes |= {"again": 1, "tail": 1, "settled": rows, "fired": 1 + rules}
    return sizes | {"needed": rows, "needed_order": rows, "needed_count": len(given["stretches"])}


def _memory(given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """All buffers as they are at first."""
    return {**given, **{name: np.zeros(size, np.uint32) for name, size in sizes.items()}}


def _stretches(levels: Array) -> Array:
    """Where to meet in the order of rows: at each level, but for those of one row behind one another."""
    is_narrow = np.diff(levels) <= 1
    begins = np.flatnonzero(~(is_narrow & np.append(False, is_narrow[:-1])))
    return np.append(levels[begins] | np.uint32(ALONE) * is_narrow[begins], levels[-1])


def _steps(arena: Arena, programs: ProgramSet) -> Steps:
    """The kernels with their grids: as many workgroups as a level has use for, and a few if there are many levels."""
    width = len(arena.order) // max(1, arena.level_count)
    groups = max(1, min(_MOST_WORKGROUPS, width // (_ROWS_EACH * WORKGROUP)), min(4, arena.rows // 4096))
    every = max(1, -(-2 * arena.rows // WORKGROUP))
    levels = programs.need, programs.simplify, programs.live, programs.place
    return [*((program, groups) for program in levels), (programs.pack, every)]


def _run_each(
    dispatcher: OptimizerDispatcher, given: Mapping[str, Array], sizes: Mapping[str, int], steps: Steps
) -> dict[str, Array]:
    memory = _memory(given, sizes)
    for program, grid in steps:
        inputs = [memory[decl.name].tobytes() for decl in program.input_buffers()]
        outputs = dispatcher.dispatch(program, inputs, (grid,))
        for decl, data in zip(program.output_buffers(), outputs, strict=True):
            memory[decl.name] = words_of(decl.name, data, memory[decl.name].size)
    return {name: memory[name] for name in _READ}


def _run_resident(
    dispatcher: OptimizerDispatcher, given: Mapping[str, Array], sizes: Mapping[str, int], steps: Steps
) -> tuple[dict[str, Array], bool]:
    byte_lens = {name: 4 * size for name, size in sizes.items()}
    with _held_static(dispatcher, given) as (fixed, was_hit), dispatcher.held(byte_lens) as own:
        held = fixed | own
        fills = [(held[name], byte_lens[name], 0) for name in _BLANK]
        launches = [_launch(program, held, grid) for program, grid in steps]
        ranges = [ResidentRange(held[name], 0, byte_lens[name]) for name in _READ]
        data = dispatcher.run_sequence(launches, ranges, fills=fills)
    if len(data) != len(_READ):
        raise DispatchFailed(
            f"{len(data)} columns came back instead of {len(_READ)}.", "mend the dispatcher.", code="wrong-column"
        )
    return {name: words_of(name, part, sizes[name]) for name, part in zip(_READ, data, strict=True)}, was_hit


@contextmanager
def _held_static(dispatcher: OptimizerDispatcher, given: Mapping[str, Array]) -> Iterator[tuple[dict[str, int], bool]]:
    """The buffers of what never changes, and whether they were on the device already."""
    static = dispatcher.acquire_static("optimizer.arena", [column.view(np.uint8).data for column in given.values()])
    try:
        if len(static.handles) != len(given):
            raise DispatchFailed(
                f"{len(static.handles)} static buffers came for {len(given)} payloads.",
                "mend the dispatcher's acquire_static.",
                code="wrong-static-set",
            )
        yield dict(zip(given, static.handles, strict=True)), static.cache_hit
    except BaseException as error:
        free_after(error, dispatcher.release_static, static)
        raise
    dispatcher.release_static(static)


def _launch(program: Program, held: dict[str, int], grid: int) -> ResidentStep:
    return ResidentStep(program, tuple(held[decl.name] for decl in program.buffers), (grid,))
