"""Plans of programs with grid barriers: their segments, the state between them, and the order in which they run.

Segment 0 is the start; segment k is the continuation of cut k. A segment that reaches a cut leaves its number in the
control word; 0 means that the program has ended or that all invocations have returned. A straight plan needs no control
word: each segment is followed by the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from vyre.analyze.effects import used_names
from vyre.analyze.liveness import live_at_points
from vyre.analyze.types import variable_types
from vyre.checker import check
from vyre.checker.levels import levels_at_barriers
from vyre.errors import BadInputs, InvalidProgram
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import BufferDecl
from vyre.ir.extensions import declared_names, inline_calls
from vyre.ir.launch import Launch
from vyre.ir.limits import MAX_ELEMENTS, MAX_NESTING
from vyre.ir.program import Program
from vyre.lower.cut import CutState, Cutter, Piece
from vyre.lower.cut_tree import Cut, CutTree, Scope, build_tree, is_cut
from vyre.lower.fresh_names import fresh_names
from vyre.lower.grid_state import CONTROL_WORDS, GridState, Parking, segment_buffer
from vyre.lower.normalise import normalise
from vyre.lower.rematerialise import possible_needs, with_needs
from vyre.lower.spilling import AnalyzedProgram
from vyre.lower.transfers import Capture, carry_transfers, pending_tags
from vyre.lower.workgroup_state import Slot, WorkgroupState

DONE: Final = 0


class Segment(msgspec.Struct, frozen=True, eq=False):
    """One launch. ``exits`` are the segments that may follow, with DONE if it may be the last.

    ``before`` runs once before it: the copy of a collective. ``resumes`` is the tag whose traps the host handles before
    it. ``narrowed`` and ``copy`` are ``program`` and ``before`` with only the buffers that they access; these are
    launched.
    """

    program: Program
    label: str
    exits: tuple[int, ...]
    narrowed: Program
    before: Program | None = None
    copy: Program | None = None
    resumes: str | None = None

    @property
    def launched(self) -> tuple[Program, ...]:
        """The programs to launch, in order."""
        return (self.narrowed,) if self.copy is None else (self.copy, self.narrowed)


class StateBuffer(msgspec.Struct, frozen=True):
    """Memory that segments share; ``what`` describes its contents. Only control words are initialised, to zero.

    With a ``read_name``, segments write it as ``name``, and ``segment`` reads it as ``read_name``. If that segment may
    also write it, there are two ``copies``, which alternate.
    """

    name: str
    scope: str
    what: str
    words: int
    read_name: str | None = None
    segment: int = 0
    copies: int = 1

    @property
    def bytes(self) -> int:
        return 4 * self.words


class GridSyncPlan(msgspec.Struct, frozen=True, eq=False):
    """A cut program for one launch.

    ``control`` and ``rows`` name the buffers of the control words and the rows, if the plan has them; status
    ``FIRST_PARKED + i`` in the first word of a row means ``parkings[i]``.
    """

    source: Program
    launch: Launch
    segments: tuple[Segment, ...]
    state: tuple[StateBuffer, ...]
    straight: bool
    control: str
    rows: str
    parkings: tuple[Parking, ...]

    @property
    def edges(self) -> Iterator[tuple[int, int]]:
        """The edges of the control graph: pairs of segments, DONE as the end."""
        return ((at, to) for at, segment in enumerate(self.segments) for to in segment.exits)


class CutProgram(msgspec.Struct, frozen=True, eq=False):
    """A program cut at its grid barriers, for any launch."""

    source: Program
    segments: tuple[Segment, ...]
    state: GridState | None
    straight: bool


class CutWorkgroup(msgspec.Struct, frozen=True, eq=False):
    """A program cut at workgroup barriers; each workgroup runs the segments independently.

    ``slots`` are the state between segments. Unless the cut is ``straight``, a segment stores the number of the next in
    the word ``control``, which is DONE before it runs.
    """

    segments: tuple[Segment, ...]
    slots: tuple[Slot, ...]
    control: str
    straight: bool


def contains_grid_sync(program: Program) -> bool:
    """Whether the program synchronises the grid, or traps to the host."""
    stats = inline_calls(program).stats()
    return stats.has_grid_sync or stats.has_collectives or stats.has(n.Trap, n.Resume)


def split_on_grid_sync(program: Program) -> list[Program]:
    """Return the segments of a program whose cuts are straight, in order; the program itself if it has no cuts."""
    cut = cut_program(program)
    if not cut.straight:
        raise InvalidProgram(
            f"the grid barriers of '{program.name}' are in branches or loops, or involve the host.",
            "use plan_grid_sync, whose plan has the order of the segments.",
        )
    return [part for segment in cut.segments for part in (segment.before, segment.program) if part is not None]


def plan_grid_sync(program: Program, launch: Launch, *, checked: bool = False) -> GridSyncPlan:
    """Return the plan of a program for a launch.

    ``checked``: the checker has already accepted the program.
    """
    return plan_cut(cut_program(program, checked=checked), launch)


def plan_cut(cut: CutProgram, launch: Launch) -> GridSyncPlan:
    """Return the plan of a cut program for a launch."""
    program = cut.source
    if cut.state is None:
        return GridSyncPlan(program, launch, cut.segments, (), True, "", "", ())
    names = cut.state.names
    buffers = tuple(_state_buffers(cut, launch))
    for buffer in buffers:
        if buffer.bytes > MAX_ELEMENTS:
            raise BadInputs(
                f"{buffer.what} of '{program.name}' would take {buffer.bytes:,} bytes between segments.",
                "launch a smaller grid.",
            )
    return GridSyncPlan(
        program, launch, cut.segments, buffers, cut.straight, names.control, names.row_words, tuple(cut.state.parkings)
    )


def uncut(program: Program) -> CutProgram:
    """Return a program as a cut program with one segment."""
    return CutProgram(program, (_uncut_segment(program),), None, True)


def cut_program(program: Program, *, checked: bool = False) -> CutProgram:
    """Cut a program at its grid barriers, after checking it unless ``checked``. The result is cached on the program."""
    memo = program.__dict__
    cached: CutProgram | None = memo.get("_cut")
    if cached is None:
        if not checked:
            check(program).raise_if_invalid()
        cached = memo["_cut"] = _cut(program)
    return cached


def _cut(source: Program) -> CutProgram:
    # A trap involves the host, whether or not a resume follows.
    if not any(is_cut(one, Scope.GRID) or isinstance(one, n.Trap) for one in walk.statements(source.entry)):
        return uncut(source)
    analyzed = _analyze(source, Scope.GRID)
    state = GridState(analyzed)
    return CutProgram(source, _segments(source, analyzed, state), state, state.straight)


def cut_workgroup(source: Program) -> CutWorkgroup:
    """Cut a legal program without grid-wide cuts and transfers at its workgroup barriers."""
    if not source.stats().has_barriers:
        return CutWorkgroup((_uncut_segment(source),), (), "", True)
    analyzed = _analyze(source, Scope.WORKGROUP)
    state = WorkgroupState(analyzed)
    return CutWorkgroup(_segments(source, analyzed, state), state.slots, state.control, state.straight)


def _uncut_segment(source: Program) -> Segment:
    return Segment(source, "start", (DONE,), source)


def _analyze(source: Program, scope: Scope) -> AnalyzedProgram:
    program = normalise(source, scope)
    names = fresh_names(program)
    row = names.make("row")

    def is_point(statement: n.Stmt) -> bool:
        return is_cut(statement, scope)

    live = live_at_points(program, is_point)
    captures: tuple[Capture, ...] = ()
    if tags := pending_tags(live):
        program, captures = carry_transfers(program, tags, names, row)
        live = live_at_points(program, is_point)
    tree = build_tree(program, scope)
    declared = list(declared_names(walk.statements(program.entry)))
    types = dict(zip(declared, variable_types(program), strict=True))
    needs = possible_needs(program)
    wanted = {number: with_needs((name for name in facts if name in types), needs) for number, facts in live.items()}
    levels = levels_at_barriers(program, wanted)
    return AnalyzedProgram(program, scope, tree, names, row, captures, types, live, levels)


def _segments(source: Program, analyzed: AnalyzedProgram, state: CutState) -> tuple[Segment, ...]:
    tree = analyzed.tree
    cutter = Cutter(tree, state, analyzed.names)
    first = _segment(source, state, tree, None, cutter.first_segment())
    return first, *(_segment(source, state, tree, cut, cutter.segment(cut)) for cut in tree.cuts)


def _exits(tree: CutTree, piece: Piece) -> tuple[int, ...]:
    """Return the segments that may follow a piece: the cuts that it may reach, or at which its traps resume."""
    following = {cut.order for cut in tree.cuts if cut.number in piece.exit_points}
    following |= {
        trap.resume.order for trap in tree.traps if trap.number in piece.exit_points and trap.resume is not None
    }
    ends = piece.falls_through or len(piece.exit_points) > sum(cut.number in piece.exit_points for cut in tree.cuts)
    return (DONE, *sorted(following)) if ends or not following else tuple(sorted(following))


def _segment(source: Program, state: CutState, tree: CutTree, cut: Cut | None, piece: Piece) -> Segment:
    if piece.height > MAX_NESTING:
        raise InvalidProgram(
            f"cut at its barriers, '{source.name}' nests {piece.height} deep.",
            f"put the barriers into fewer than {MAX_NESTING - 2} lists inside one another.",
        )
    entry = (*state.prologue(cut), *piece.statements)
    used = used_names(entry)
    generated = [decl for decl in state.buffers if decl.name in used]
    declared = (*_declarations(state.variables, used), *entry)
    program = _with_entry(source, "0" if cut is None else str(cut.order), declared, generated)
    exits = _exits(tree, piece)
    narrowed = _narrowed(program, used)
    if cut is None:
        return Segment(program, "start", exits, narrowed)
    tag = cut.statement.tag if isinstance(cut.statement, n.Resume) else None
    before = _copy_program(source, cut)
    copy = None if before is None else _narrowed(before, used_names(before.entry))
    return Segment(program, f"after {_cut_label(cut)}", exits, narrowed, before, copy, tag)


def _declarations(variables: Mapping[str, n.Expr], used: set[str]) -> list[n.Stmt]:
    """Return declarations of the used variables and of the variables that these need."""
    needs = {name: used_names((n.Let(name, value),)) for name, value in variables.items()}
    wanted = with_needs(used & variables.keys(), needs)
    return [n.Let(name, value) for name, value in variables.items() if name in wanted]


def _narrowed(program: Program, used: set[str]) -> Program:
    """Return the program with only the buffers that are ``used``."""
    return msgspec.structs.replace(
        program, buffers=tuple(decl for decl in program.buffers if decl.name in used), source=None
    )


def _with_entry(source: Program, suffix: str, entry: n.Body, generated: Sequence[BufferDecl] = ()) -> Program:
    """Return a program with another entry, on the buffers of the cut program and generated ones."""
    return msgspec.structs.replace(
        source,
        name=f"{source.name[:200]}_{suffix}",
        buffers=(*map(segment_buffer, source.buffers), *generated),
        entry=entry,
        source=None,
    )


def _copy_program(source: Program, cut: Cut) -> Program | None:
    """Return the copy that a collective of one rank performs, made by one invocation; None for other cuts."""
    match cut.statement:
        case n.AllGather() | n.ReduceScatter():
            read, written = cut.statement.source, cut.statement.destination
        case _:
            return None
    count = n.BinOp("min", n.BufLen(read), n.BufLen(written))
    size = n.BinOp("sat_mul", count, n.lit(source.buffer(read).dtype.bytes))
    first = n.BinOp("or", n.BinOp("or", n.InvocationId(0), n.InvocationId(1)), n.InvocationId(2))
    copy = n.CopyBytes(read, written, n.lit(0), n.lit(0), size)
    return _with_entry(source, f"{cut.order}_copy", (n.If(first.eq(0), (copy,)),))


def _cut_label(cut: Cut) -> str:
    match cut.statement:
        case n.Barrier(order):
            word = "grid_sync" if order is n.MemoryOrder.GRID_SYNC else "barrier"
        case n.Resume(tag):
            word = f"resume of '{tag}'"
        case other:
            word = type(other).__name__
    return f"{word}, cut {cut.order}"


def _state_buffers(cut: CutProgram, launch: Launch) -> Iterator[StateBuffer]:
    state = cut.state
    assert state is not None  # a program without cuts has no state
    names = state.names
    x, y, z = launch.grid
    groups = x * y * z
    used = {decl.name for segment in cut.segments for decl in segment.program.buffers}
    if not cut.straight:
        yield StateBuffer(names.control, "grid", "the next segment, and whether traps wait for the host", CONTROL_WORDS)
    if names.row_words in used:
        words = state.spills.columns * launch.invocations
        yield StateBuffer(names.row_words, "invocation", _row_contents(state), words)
    if names.memory in used:
        what = f"workgroup memory: {', '.join(state.memory_rows)}"
        yield StateBuffer(names.memory, "workgroup", what, groups * state.memory_row_bytes // 4)
    for capture in state.captures:
        what = f"captured by transfers to {capture.destination.name}"
        yield StateBuffer(capture.buffer, "invocation", what, capture.words(launch))
    for order, spill in enumerate(state.spills.at, 1):
        if spill.grid_cells or spill.group_cells:
            shared = [one.name for one in spill.carried if not one.in_row]
            name, read_name = names.cells_out[order - 1], names.cells_in[order - 1]
            words = spill.grid_cells + spill.group_cells * groups
            scope = "workgroup" if spill.group_cells else "grid"
            copies = 2 if order in cut.segments[order].exits else 1
            yield StateBuffer(name, scope, f"at cut {order}: {', '.join(shared)}", words, read_name, order, copies)


def _row_contents(state: GridState) -> str:
    carried = dict.fromkeys(one.name for spill in state.spills.at for one in spill.carried if one.in_row)
    status = ["status (returned or trapped)"] if state.may_exit_early else []
    return ", ".join([*status, *carried])
