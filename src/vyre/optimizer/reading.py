"""Who reads long runs of statements? The reader's program, if the dispatcher has it.

It is told every word that may come and the row it stands for. What it reads comes back as columns, and then everything
is as if the walk in Python had been there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, Leaf, head, type_of
from vyre.optimizer.dispatcher import OptimizerDispatcher, ResidentRange, ResidentStep, words_of
from vyre.optimizer.flow import Flow
from vyre.optimizer.outline import Effect, Variable
from vyre.optimizer.reader import DEEPEST, FULL, LEAVES, RECORD, RESULT, forms, operations, tag_of
from vyre.optimizer.rows import Rows
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

_TAGS_OF_LEAVES: Final = {leaf: tag_of(cls) for cls, leaf in LEAVES.items()}
_VARIABLE, _LITERAL, _LOAD, _LENGTH = (tag_of(cls) for cls in (n.Var, n.Lit, n.Load, n.BufLen))
_OPERATORS: Final = [(tag_of(cls), name) for cls, table in ((n.BinOp, BINARY), (n.UnOp, UNARY)) for name in table]
_COLUMNS: Final = ("head", "a0", "a1", "level")


class Met(msgspec.Struct, frozen=True, eq=False):
    """What the walk has met so far, for whoever goes on with it; the dictionaries are those of the walk."""

    rows: Rows
    flow: Flow
    buffers: Mapping[str, DType]
    variables: Mapping[str, Variable | int]
    literals: dict[tuple[int, DType], int]
    leaves: dict[tuple[int, int], int]
    loads: dict[int, list[int]]

    @property
    def words(self) -> int:
        """How much has to be told to whoever goes on."""
        return len(self.buffers) + len(self.variables) + len(self.literals) + len(self.leaves)


class Taken(msgspec.Struct, frozen=True, eq=False):
    """What has become of a run: the rows of its declarations, and its stores."""

    values: Array
    effects: list[Effect]

    @property
    def statements(self) -> int:
        return len(self.values) + len(self.effects)


class Known(msgspec.Struct, frozen=True, eq=False):
    """What may come, as the beginnings of nodes, and for each of them its row, its head and its level."""

    nodes: list[tuple[Any, ...]]
    given: Array


class Read(msgspec.Struct, frozen=True, eq=False):
    """What was read: the columns of the rows, and what else happened.

    ``thirds`` are the rows, counted from the first, that have an a2, and that; ``values`` the rows of declarations;
    ``ends`` for each store its statement's number and the version that it ends, NONE if nobody loads it; ``fresh`` the
    buffers and last writes of new versions; ``written`` the last writes by buffer.
    """

    columns: dict[str, Array]
    thirds: Array
    values: Array
    ends: Array
    fresh: Array
    written: Array


class Reader:
    """Reads runs of ``least`` statements and more, if they are no fewer than ``share`` of the words that are known."""

    def __init__(
        self, dispatcher: OptimizerDispatcher, program: Program, least: int = 512, share: float = 0.25
    ) -> None:
        self.least = least
        self.share = share
        self._dispatcher = dispatcher
        self._program = program

    def take(self, run: Sequence[n.Stmt], met: Met, scope: int, control: int) -> Taken | None:
        """Goes on with the walk as far as a run can be read; nothing, if it is nested too deeply to be written."""
        flow, first = met.flow, len(met.rows.heads)
        moments = [flow.moment(name) for name in met.buffers]
        memory = np.array([(flow.versions.get(moment, NONE), moment[1]) for moment in moments], np.uint32).ravel()
        read = self.read(run, _known(met), memory, first, len(flow.version_scopes), len(flow.event_scopes))
        if read is None:
            return None
        _take_memory(read, flow, moments, scope)
        effects = _take_rows(read, met, scope, control)
        stores = map(run.__getitem__, read.ends[:, 0].tolist())
        operands = zip(*(read.columns[name][effects].tolist() for name in ("a0", "a1")), strict=True)
        kills = [() if version == NONE else (version,) for version in read.ends[:, 1].tolist()]
        return Taken(read.values, [*map(Effect, stores, (first + effects).tolist(), operands, kills)])

    def read(
        self, run: Sequence[n.Stmt], known: Known, memory: Array, first_row: int, first_version: int, first_event: int
    ) -> Read | None:
        """As many statements as can be read.

        ``memory`` has for each buffer the version that is loaded now (NONE if nobody has) and its last write.
        """
        nodes = [*known.nodes, *run]
        try:
            stream = msgspec.msgpack.encode(nodes)
        except RecursionError:
            return None
        starts = 1 if len(nodes) < 16 else 3 if len(nodes) < 1 << 16 else 5
        params = [starts, len(known.nodes), len(nodes), first_row, first_version, first_event]
        given: dict[str, Array] = {
            "stream": np.frombuffer(stream, np.uint8),
            "params": np.array(params, np.uint32),
            "given": known.given,
            "memory": memory,
            "forms": forms(),
            "operations": operations(),
        }
        slots, rows = 1 << (3 * len(nodes) // 2).bit_length(), len(stream) // 8 + 64
        while (made := self._run(given, len(run), slots, rows)) is None:
            slots, rows = 2 * slots, 2 * rows
        return made

    def _run(self, given: Mapping[str, Array], statements: int, slots: int, rows: int) -> Read | None:
        """What was read, or nothing if there was not enough room."""
        sizes = {"slots": slots, "words": slots // 4 * 3 * RECORD, "stack": RECORD * DEEPEST, "result": len(RESULT)}
        sizes |= {"values": statements, "ends": 2 * statements, "fresh": 2 * statements + given["memory"].size}
        sizes |= {"thirds": 2 * rows, **dict.fromkeys(_COLUMNS, rows)}
        run = self._run_resident if self._dispatcher.supports_persistent() else self._run_plainly
        return run(given, sizes)

    def _run_plainly(self, given: Mapping[str, Array], sizes: Mapping[str, int]) -> Read | None:
        program = self._program
        memory = {**given, **{name: np.zeros(size, np.uint32) for name, size in sizes.items()}}
        inputs = [(data := memory[decl.name].tobytes()) + bytes(-len(data) % 4) for decl in program.input_buffers()]
        outputs = self._dispatcher.dispatch(program, inputs, (1,))
        found = {
            decl.name: words_of(decl.name, data, memory[decl.name].size)
            for decl, data in zip(program.output_buffers(), outputs, strict=True)
        }
        counts = _counts(found["result"], given["memory"].size)
        return None if counts is None else _made({name: found[name][:count] for name, count in counts.items()})

    def _run_resident(self, given: Mapping[str, Array], sizes: Mapping[str, int]) -> Read | None:
        dispatcher, program = self._dispatcher, self._program
        names = [decl.name for decl in program.buffers]
        words = {name: -(-given[name].nbytes // 4) if name in given else sizes[name] for name in names}
        handles = dispatcher.allocate_many(4 * words[name] for name in names)
        held = dict(zip(names, handles, strict=True))
        try:
            (data,) = dispatcher.run_sequence(
                [ResidentStep(program, tuple(handles), (1,))],
                [ResidentRange(held["result"])],
                fills=[(held["slots"], 4 * words["slots"], 0)],
                uploads=[(held[name], column.view(np.uint8).data) for name, column in given.items()],
            )
            counts = _counts(words_of("result", data, len(RESULT)), words["memory"])
            if counts is None:
                return None
            parts = dispatcher.read_ranges([ResidentRange(held[name], 0, 4 * count) for name, count in counts.items()])
        finally:
            dispatcher.free_many(handles)
        return _made({name: words_of(name, part, counts[name]) for name, part in zip(counts, parts, strict=True)})


def reader_of(dispatcher: OptimizerDispatcher) -> Reader | None:
    """The reader of a dispatcher that has its program."""
    program = dispatcher.programs().read
    return None if program is None else Reader(dispatcher, program)


def _counts(result: Array, memory: int) -> dict[str, int] | None:
    """How much of each buffer was written, if there was room for everything."""
    statements, stores, rows, fresh, thirds, why = result.tolist()
    if why == FULL:
        return None
    counts = {"values": statements - stores, "ends": 2 * stores, "fresh": 2 * fresh, "thirds": 2 * thirds}
    return {**counts, "memory": memory, **dict.fromkeys(_COLUMNS, rows)}


def _made(read: Mapping[str, Array]) -> Read:
    pairs = {name: read[name].reshape(-1, 2) for name in ("thirds", "ends", "fresh", "memory")}
    thirds, ends, fresh, memory = pairs.values()
    return Read({name: read[name] for name in _COLUMNS}, thirds, read["values"], ends, fresh, memory[:, 1])


def _known(met: Met) -> Known:
    """What a run may be about, with the rows of what has one."""
    nodes: list[tuple[Any, ...]] = [*_OPERATORS]
    given = [(OPERATION_CODES[name], 0, 0) for _, name in _OPERATORS]
    length = head(Kind.LEAF, DType.U32, Leaf.LENGTH)
    for number, (name, dtype) in enumerate(met.buffers.items()):
        nodes += (_LOAD, name), (_LENGTH, name)
        row = met.leaves.get((Leaf.LENGTH, number), NONE)
        given += (number, head(Kind.LOAD, dtype), 0), (row, length, number if row == NONE else 0)
    nodes += [(_VARIABLE, name) for name in met.variables]
    nodes += [(_LITERAL, bits, dtype) for bits, dtype in met.literals]
    others = {key: row for key, row in met.leaves.items() if key[0] != Leaf.LENGTH}
    nodes += [_leaf_node(*key) for key in others]
    state = met.flow.state
    variables = [one if type(one) is int else state[one][0] for one in met.variables.values()]
    rows = np.array([*variables, *met.literals.values(), *others.values()], np.uint32)
    described = np.stack((rows, *met.rows.heads_and_levels(rows)), 1)
    return Known(nodes, np.concatenate((np.array(given, np.uint32), described)).ravel())


def _leaf_node(leaf: int, what: int) -> tuple[int, ...]:
    tag = _TAGS_OF_LEAVES[Leaf(leaf)]
    return (tag,) if leaf in (Leaf.SUBGROUP_LANE, Leaf.SUBGROUP_SIZE) else (tag, what)


def _take_memory(read: Read, flow: Flow, moments: list[tuple[str, int, int]], scope: int) -> None:
    flow.event_scopes.extend([scope] * len(read.ends))
    for number, event in read.fresh.tolist():
        buffer, _, epoch = moments[number]
        flow.new_version((buffer, event, epoch))
    for (buffer, before, _), event in zip(moments, read.written.tolist(), strict=True):
        if event != before:
            flow.set(buffer, event)


def _take_rows(read: Read, met: Met, scope: int, control: int) -> Array:
    """Adds the rows that were read, and says which of them, counted from the first, are stores."""
    rows, first, (heads, a0, a1, levels) = met.rows, len(met.rows.heads), read.columns.values()
    kinds = heads.astype(np.uint8)
    literals, leaves, loads, effects = (
        np.flatnonzero(kinds == kind) for kind in (Kind.LITERAL, Kind.LEAF, Kind.LOAD, Kind.EFFECT)
    )
    versions = a1[loads].tolist()
    rows.extend(heads, a0, a1, levels)
    rows.scatter("a2", first + read.thirds[:, 0], read.thirds[:, 1])
    rows.scatter("scope", first + loads, [*map(met.flow.version_scopes.__getitem__, versions)])
    rows.scatter("scope", first + effects, scope)
    rows.scatter("d0", first + effects, control)
    bits = a0[literals] | a1[literals].astype(np.uint64) << np.uint64(32)
    said = zip(bits.tolist(), map(type_of, heads[literals].tolist()), strict=True)
    met.literals.update(zip(said, (first + literals).tolist(), strict=True))
    what = zip((heads[leaves] >> 16).tolist(), a0[leaves].tolist(), strict=True)
    met.leaves.update(zip(what, (first + leaves).tolist(), strict=True))
    for version, row in zip(versions, (first + loads).tolist(), strict=True):
        met.loads.setdefault(version, []).append(row)
    return effects
