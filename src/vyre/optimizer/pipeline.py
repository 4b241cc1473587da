"""The optimizer's pipeline: host passes, then encode, run five kernels through the dispatcher, and decode.

This is one round; rounds repeat until the program does not change. A dispatcher with resident buffers runs the kernels
in one sequence with one readback; any other runs them one by one. Both return the same program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import numpy as np

from vyre.checker import check
from vyre.errors import DispatchFailed, UnsupportedFeature
from vyre.ir.binding import Array
from vyre.ir.extensions import inline_calls
from vyre.ir.launch import works_together
from vyre.ir.limits import MAX_STATEMENTS
from vyre.ir.nodes import Loop, Store, While
from vyre.ir.program import Program, Stats
from vyre.optimizer.arena import NONE, TYPE_CODES, Arena, Findings
from vyre.optimizer.barriers import remove_barriers
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
from vyre.optimizer.guards import GUARDS, decide_guarded
from vyre.optimizer.layout import PACKED_NOWHERE, REGISTERS, SERIAL, WORDS, WORKGROUP
from vyre.optimizer.promotion import promote_cells
from vyre.optimizer.report import Report as Report
from vyre.optimizer.report import Stage as Stage
from vyre.optimizer.stores import remove_stores
from vyre.optimizer.switches import EVERY_BIT, PASSES
from vyre.semantics.types import FLOATS

Made = TypeVar("Made")
Steps = list[tuple[Program, int]]

ALL_GROUPS: Final = EVERY_BIT
_MOST_ROUNDS: Final = 4
_MOST_WORKGROUPS: Final = 64
# Rows of a level per invocation.
_ROWS_EACH: Final = 4
# Buffers that must start as zero; all others are written before they are read.
_ZEROED: Final = ("needs_sweep", "tail", "invariant", "fired", "needed", "needed_count")
_FOUND: Final = ("canon", "head", "a0", "a1", "a2")
_READ: Final = (*(f"found_{name}" for name in _FOUND), "packed", "fired")


def optimize_with(
    program: Program,
    dispatcher: OptimizerDispatcher,
    *,
    groups: int = ALL_GROUPS,
    checked: bool = False,
    keep_geometry: bool = False,
    one_axis: bool = False,
    on_stage: Callable[[str, int, int], None] | None = None,
    stage: str = "kernels",
) -> tuple[Program, Report]:
    """Return an equivalent program that does no more work, and a report.

    ``groups`` is the word of switches (``Optimization.bits``). An illegal program raises before anything runs;
    ``checked`` says that the checker has accepted it. A result that would infer another launch geometry is rejected,
    unless the caller fixes the geometry: ``keep_geometry``. With ``one_axis`` the result may hold only for grids of one
    axis; the report says so. ``on_stage`` is called with the name of each stage, its start and its end in nanoseconds;
    ``stage`` is the name of the kernels' stage.
    """
    if not checked:
        check(program).raise_if_invalid()
    rounds = _Rounds(dispatcher, groups, on_stage, stage, keep_geometry=keep_geometry, one_axis=one_axis)
    return rounds.run(program)


class _HostPass(NamedTuple):
    """A pass over the program itself, on the host, before encoding; its name is its switch."""

    name: str
    applies: Callable[[Stats], bool]
    run: Callable[[Program, bool], tuple[Program, int, int | None]]


# Each returns the program, the number of changes, and the most workgroups for which it holds (None: any grid).
_HOST_PASSES: Final = (
    _HostPass("guards", lambda stats: stats.has(*GUARDS), lambda program, _: (*decide_guarded(program), None)),
    _HostPass("stores", lambda stats: stats.has(Store), lambda program, _: (*remove_stores(program), None)),
    _HostPass(
        "barriers",
        lambda stats: stats.has_barriers,
        lambda program, one_axis: remove_barriers(program, one_axis=one_axis),
    ),
    _HostPass(
        "cells",
        lambda stats: stats.has(Loop, While) and stats.has(Store),
        lambda program, _: (*promote_cells(program), None),
    ),
)


class _Rounds:
    """Optimization in rounds, each on the result of the one before, until nothing changes."""

    def __init__(
        self,
        dispatcher: OptimizerDispatcher,
        groups: int,
        on_stage: Callable[[str, int, int], None] | None,
        stage: str,
        *,
        keep_geometry: bool,
        one_axis: bool,
    ) -> None:
        self.dispatcher, self.groups, self.on_stage, self.stage = dispatcher, groups, on_stage, stage
        self.keep_geometry, self.one_axis = keep_geometry, one_axis
        self.stages: list[Stage] = []
        self.fired: Counter[str] = Counter()
        self.most_workgroups: int | None = None
        self.waits = self.hits = self.sweeps = 0

    def run(self, program: Program) -> tuple[Program, Report]:
        rows_before = rows_after = most_rows = rounds = 0
        # The last program that a round gave, and how it is launched. What the host passes make of it is a proposal.
        accepted, is_together = program, works_together(inline_calls(program))
        program = self._with_host_passes(program)
        is_changing, is_new = True, True
        while is_changing and rounds < _MOST_ROUNDS:
            rounds += 1
            arena, outline = self._timed("encode", encode, program)
            findings, was_hit, times = self._timed(self.stage, _find, arena, self.dispatcher, self.groups)
            better, statements, is_changing = self._timed("decode", decode, arena, outline, findings)
            live = int(np.count_nonzero(findings.live[: arena.rows]))
            self.waits, self.hits, self.sweeps = self.waits + times, self.hits + was_hit, self.sweeps + findings.sweeps
            self.fired.update(findings.fired)
            # A result that is larger, has no room for its names, or launches differently is dropped.
            rows_before = rows_before or arena.rows
            # Host passes may have made the program larger than the original.
            most_rows = arena.rows if is_new else most_rows
            is_launched_alike = self.keep_geometry or not is_together or works_together(better)
            if live > most_rows or statements > MAX_STATEMENTS or not is_launched_alike:
                rows_after = rows_after or rows_before
                program = accepted
                break
            is_changing &= better != program
            accepted, rows_after = better, live
            program = self._with_host_passes(better)
            is_new = program is not better
            is_changing |= is_new
        fired = {name: count for name, count in self.fired.items() if count}
        report = Report(rows_before, rows_after, fired, rounds, self.sweeps, tuple(self.stages), self.waits, self.hits)
        return program, msgspec.structs.replace(report, most_workgroups=self.most_workgroups)

    def _timed(self, name: str, run: Callable[..., Made], *arguments: Any) -> Made:
        start = perf_counter_ns()
        made = run(*arguments)
        stop = perf_counter_ns()
        self.stages.append(Stage(name, (stop - start) / 1e9))
        if self.on_stage is not None:
            self.on_stage(name, start, stop)
        return made

    def _with_host_passes(self, program: Program) -> Program:
        for one in _HOST_PASSES:
            if self.groups & PASSES[one.name] and one.applies(program.stats()):
                program, count, most = self._timed(one.name, one.run, program, self.one_axis)
                self.fired[one.name] += count
                if most is not None:
                    self.most_workgroups = most if self.most_workgroups is None else min(most, self.most_workgroups)
        return program


def find(arena: Arena, dispatcher: OptimizerDispatcher, groups: int = ALL_GROUPS) -> Findings:
    """Run the kernels on an arena; return their findings."""
    return _find(arena, dispatcher, groups)[0]


def _find(arena: Arena, dispatcher: OptimizerDispatcher, groups: int) -> tuple[Findings, bool, int]:
    """Return the findings, whether the arena's columns were on the device already, and how often the host waited."""
    programs = dispatcher.programs()
    _require_floats(arena, programs, dispatcher)
    given, steps = _given(arena, groups), _steps(arena, programs)
    sizes = _sizes(given, len(programs.rules), _workgroups(arena))
    was_hit, waits = False, 1
    if dispatcher.supports_persistent():
        read, was_hit = _run_resident(dispatcher, given, sizes, steps, programs.table)
    else:
        waits = len(steps)
        read = _run_each(dispatcher, given, sizes, steps, programs.table)
    packed = read["packed"]
    place = packed >> 2
    place[place == PACKED_NOWHERE] = NONE
    live, uses = packed & 1, 1 + (packed >> 1 & 1)
    counts = read["fired"].tolist()
    fired = {name: count for name, count in zip(programs.rules, counts[1:], strict=True) if count}
    canon, head, a0, a1, a2 = (read[f"found_{name}"] for name in _FOUND)
    return Findings(canon, head, a0, a1, a2, live, place, uses, fired, counts[0]), was_hit, waits


def _require_floats(arena: Arena, programs: ProgramSet, dispatcher: OptimizerDispatcher) -> None:
    """Raise if the program has a float type that the dispatcher lacks: its constants would not be folded."""
    lacked = [dtype for dtype in FLOATS if dtype not in programs.floats]
    if not lacked:
        return
    present = np.unique(arena.columns["head"][arena.order] >> np.uint32(8) & np.uint32(255))
    for dtype in lacked:
        if TYPE_CODES[dtype] in present:
            raise UnsupportedFeature(
                f"the exact {dtype} arithmetic that folding the constants of this program needs",
                dispatcher.name,
                "optimize the program on the processor with vyre.optimize(program); the result runs on any backend.",
            )


def _slots(rows: int) -> int:
    """Return the number of slots of the hash table of rows."""
    return 1 << max(4, (2 * rows).bit_length())


def _given(arena: Arena, groups: int) -> dict[str, Array]:
    """Return the buffers that the kernels only read."""
    given = {f"given_{name}": arena.columns[name] for name in ("head", "a0", "a1", "a2")}
    given |= {name: arena.columns[name] for name in ("scope", "d0", "d1")}
    given |= {name: getattr(arena, name) for name in (
        "order", "row_barrier_depth", "scope_parent", "scope_last", "scope_loops", "scope_barrier_depth",
        "scope_control", "scope_arm",
    )}  # fmt: skip
    given["given_level"] = arena.level
    given["level_ranges"] = _level_ranges(arena.levels)
    params = [groups, arena.rows, _slots(arena.rows) - 1, len(given["level_ranges"]) - 1]
    return given | {"params": np.array(params, np.uint32)}


def _sizes(given: Mapping[str, Array], rules: int, workgroups: int) -> dict[str, int]:
    """Return the sizes in words of the kernels' own buffers; they have a literal row for each row."""
    rows = len(given["given_head"])
    sizes: dict[str, int] = dict.fromkeys((*_READ, "queue"), 2 * rows)
    sizes |= {"records": 2 * rows * WORDS["records"], "table": _slots(rows) * WORDS["table"]}
    sizes["registers"] = 2 * REGISTERS * WORKGROUP * workgroups
    sizes |= {"needs_sweep": 1, "tail": 1, "invariant": rows, "fired": 1 + rules}
    return sizes | {"needed": rows, "needed_order": rows, "needed_count": len(given["level_ranges"])}


def _memory(given: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the initial contents of all buffers."""
    return {**given, **{name: np.zeros(size, np.uint32) for name, size in sizes.items()}}


def _level_ranges(levels: Array) -> Array:
    """Return where each level range starts in the order of rows, and the end; runs of one-row levels are serial."""
    is_narrow = np.diff(levels) <= 1
    begins = np.flatnonzero(~(is_narrow & np.append(False, is_narrow[:-1])))
    return np.append(levels[begins] | np.uint32(SERIAL) * is_narrow[begins], levels[-1])


def _steps(arena: Arena, programs: ProgramSet) -> Steps:
    """Return the kernels with their grids."""
    groups = _workgroups(arena)
    every = max(1, -(-2 * arena.rows // WORKGROUP))
    levels = programs.need, programs.simplify, programs.live, programs.place
    return [*((program, groups) for program in levels), (programs.pack, every)]


def _workgroups(arena: Arena) -> int:
    """Return as many workgroups as an average level needs, and a few for programs of many rows."""
    width = len(arena.order) // max(1, arena.level_count)
    return max(1, min(_MOST_WORKGROUPS, width // (_ROWS_EACH * WORKGROUP)), min(4, arena.rows // 4096))


def _run_each(
    dispatcher: OptimizerDispatcher, given: Mapping[str, Array], sizes: Mapping[str, int], steps: Steps, table: Array
) -> dict[str, Array]:
    memory = _memory(given, sizes) | {"rules": table}
    for program, grid in steps:
        inputs = [memory[decl.name].tobytes() for decl in program.input_buffers()]
        outputs = dispatcher.dispatch(program, inputs, (grid,))
        for decl, data in zip(program.output_buffers(), outputs, strict=True):
            memory[decl.name] = words_of(decl.name, data, memory[decl.name].size)
    return {name: memory[name] for name in _READ}


def _run_resident(
    dispatcher: OptimizerDispatcher, given: Mapping[str, Array], sizes: Mapping[str, int], steps: Steps, table: Array
) -> tuple[dict[str, Array], bool]:
    byte_lens = {name: 4 * size for name, size in sizes.items()}
    with (
        _held_static(dispatcher, "optimizer.rules", {"rules": table}) as (rules, _),
        _held_static(dispatcher, "optimizer.arena", given) as (fixed, was_hit),
        dispatcher.held(byte_lens) as own,
    ):
        held = rules | fixed | own
        fills = [(held[name], byte_lens[name], 0) for name in _ZEROED]
        launches = [_launch(program, held, grid) for program, grid in steps]
        ranges = [ResidentRange(held[name], 0, byte_lens[name]) for name in _READ]
        data = dispatcher.run_sequence(launches, ranges, fills=fills)
    if len(data) != len(_READ):
        raise DispatchFailed(
            f"the dispatcher returned {len(data)} columns, expected {len(_READ)}.",
            "return one buffer for each range from the dispatcher's run_sequence.",
            code="wrong-column",
        )
    return {name: words_of(name, part, sizes[name]) for name, part in zip(_READ, data, strict=True)}, was_hit


@contextmanager
def _held_static(
    dispatcher: OptimizerDispatcher, domain: str, given: Mapping[str, Array]
) -> Iterator[tuple[dict[str, int], bool]]:
    """Hold static buffers for the time of a block, with whether they were on the device already."""
    static = dispatcher.acquire_static(domain, [column.view(np.uint8).data for column in given.values()])
    try:
        if len(static.handles) != len(given):
            raise DispatchFailed(
                f"the dispatcher returned {len(static.handles)} static buffers for {len(given)} payloads.",
                "return one handle for each payload from the dispatcher's acquire_static.",
                code="wrong-static-set",
            )
        yield dict(zip(given, static.handles, strict=True)), static.cache_hit
    except BaseException as error:
        free_after(error, dispatcher.release_static, static)
        raise
    dispatcher.release_static(static)


def _launch(program: Program, held: dict[str, int], grid: int) -> ResidentStep:
    return ResidentStep(program, tuple(held[decl.name] for decl in program.buffers), (grid,))
