"""Who reads long runs of statements? The reader's program, if the dispatcher has it.

It is told every word that may come and the row it stands for. What it reads comes back as columns, and then everything
is as if the walk in Python had been there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np

from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.program import Program, Stats
from vyre.optimizer.arena import NONE, OPERATION_CODES, Kind, Leaf, head, type_of
from vyre.optimizer.dispatcher import OptimizerDispatcher
from vyre.optimizer.flow import Flow
from vyre.optimizer.outline import Stores, Variable
from vyre.optimizer.reader import LEAVES, tag_of
from vyre.optimizer.rows import Rows
from vyre.optimizer.streaming import COLUMNS, parts, read_plainly, read_resident, room
from vyre.semantics.operators import BINARY, UNARY
from vyre.semantics.types import DType

_TAGS_OF_LEAVES: Final = {leaf: tag_of(cls) for cls, leaf in LEAVES.items()}
# A run of few parts is read at once; one of many is read in longer ones.
_FEW_PARTS, _MANY_PARTS = 2, 8
_VARIABLE, _LITERAL, _LOAD, _LENGTH = (tag_of(cls) for cls in (n.Var, n.Lit, n.Load, n.BufLen))
_OPERATORS: Final = [(tag_of(cls), name) for cls, table in ((n.BinOp, BINARY), (n.UnOp, UNARY)) for name in table]


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
    """What has become of a run: the names and the rows of its declarations, and its stores."""

    names: list[str]
    values: Array
    stores: Stores

    @property
    def statements(self) -> int:
        return len(self.values) + len(self.stores.rows)


class Known(msgspec.Struct, frozen=True, eq=False):
    """What may come, as the beginnings of nodes, and for each of them its row, its head and its level."""

    nodes: list[tuple[Any, ...]]
    given: Array


class Read(msgspec.Struct, frozen=True, eq=False):
    """What was read: the columns of the rows, and what else happened.

    ``thirds`` are the rows, counted from the first, that have an a2, and that; ``ends`` for each store its statement's
    number and the version that it ends, NONE if nobody loads it; ``fresh`` the buffers and last writes of new versions;
    ``names`` and ``values`` the names and rows of declarations; ``written`` the last writes by buffer.
    """

    columns: dict[str, Array]
    thirds: Array
    ends: Array
    fresh: Array
    names: list[str]
    values: Array
    written: Array


class Reader:
    """Reads runs of ``least`` statements and more, if they are no fewer than ``share`` of the words that are known.

    For each of them the host waits once, so that only the longest ``most`` of a program are read. A thread reads
    ``at_once`` statements, or a few times as many, while the next are being written; for a short run none is started.
    """

    def __init__(
        self,
        dispatcher: OptimizerDispatcher,
        program: Program,
        *,
        least: int = 512,
        share: float = 0.25,
        most: int = 1,
        at_once: int = 1 << 13,
    ) -> None:
        self.least, self.share, self.most = least, share, most
        self.times = 0
        self._at_once = at_once
        self._dispatcher, self._program = dispatcher, program

    def take(
        self, run: n.Body, met: Met, scope: int, control: int, stats: Stats, *, is_end: bool = False
    ) -> Taken | None:
        """Goes on with the walk as far as a run can be read; nothing, if it is nested too deeply to be written.

        ``stats`` are those of the program that the run is of. Behind the end of that nobody asks what was met.
        """
        flow, first = met.flow, len(met.rows.heads)
        moments = [flow.moment(name) for name in met.buffers]
        memory = np.array([(flow.versions.get(moment, NONE), moment[1]) for moment in moments], np.uint32).ravel()
        read = self._read(run, _known(met), memory, (first, len(flow.version_scopes), len(flow.event_scopes)), stats)
        if read is None:
            return None
        _take_memory(read, flow, moments, scope)
        is_end = is_end and len(read.values) + len(read.ends) == len(run)
        effects = _take_rows(read, met, scope, control, is_end=is_end)
        if not is_end:
            _take_words(read, met, first)
        operands = read.columns["a0"][effects], read.columns["a1"][effects]
        stores = Stores(run, read.ends[:, 0], first + effects, operands, read.ends[:, 1])
        return Taken(read.names, read.values, stores)

    def _read(
        self, run: n.Body, known: Known, memory: Array, numbers: tuple[int, int, int], stats: Stats
    ) -> Read | None:
        """As many statements as can be read.

        ``memory`` has for each buffer the version that is loaded now (NONE if nobody has) and its last write;
        ``numbers`` are those of the next row, version and event.
        """
        dispatcher, program = self._dispatcher, self._program
        stays = dispatcher.supports_persistent()
        names: list[str] = []
        least = self._at_once
        is_all = not stays or len(run) <= _FEW_PARTS * least
        at_once = len(run) if is_all else min(max(least, len(run) // _MANY_PARTS), 4 * least)
        streams = parts(known.nodes, run, at_once, numbers, names)
        first = next(streams, None)
        if first is None:
            return None
        self.times += 1
        letters = 4 + first.stream.size // 4 * (1 if is_all else 2 * -(-len(run) // at_once))
        sizes = room(stats, len(known.nodes), len(run), letters)
        given = {"given": known.given, "memory": memory}
        if stays:
            found = read_resident(dispatcher, program, given, sizes, first, None if is_all else streams)
        else:
            found = read_plainly(dispatcher, program, given, sizes, first)
        return _made(found, len(known.nodes), names)


def reader_of(dispatcher: OptimizerDispatcher) -> Reader | None:
    """The reader of a dispatcher that has its program."""
    program = dispatcher.programs().read
    return None if program is None else Reader(dispatcher, program)


def _made(found: Mapping[str, Array], known: int, names: list[str]) -> Read:
    nodes, stores, rows, fresh, thirds = found["result"].tolist()[:5]
    statements = max(0, nodes - known)
    columns = {name: found[name][:rows] for name in COLUMNS}
    counts = {"thirds": thirds, "ends": stores, "fresh": fresh}
    pairs = {name: found[name][: 2 * count].reshape(-1, 2) for name, count in counts.items()}
    declared = statements - stores
    del names[declared:]
    return Read(columns, **pairs, names=names, values=found["values"][:declared], written=found["memory"][1::2])


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


def _take_rows(read: Read, met: Met, scope: int, control: int, *, is_end: bool) -> Array:
    """Adds the rows that were read, and says which of them, counted from the first, are stores."""
    rows, first, (heads, a0, a1, levels) = met.rows, len(met.rows.heads), read.columns.values()
    kinds = heads.astype(np.uint8)
    loads, effects = (np.flatnonzero(kinds == kind) for kind in (Kind.LOAD, Kind.EFFECT))
    versions = a1[loads].tolist()
    rows.extend(heads, a0, a1, levels, is_end=is_end)
    rows.scatter("a2", first + read.thirds[:, 0], read.thirds[:, 1])
    rows.scatter("scope", first + loads, [*map(met.flow.version_scopes.__getitem__, versions)])
    rows.scatter("scope", first + effects, scope)
    rows.scatter("d0", first + effects, control)
    for version, row in zip(versions, (first + loads).tolist(), strict=True):
        met.loads.setdefault(version, []).append(row)
    return effects


def _take_words(read: Read, met: Met, first: int) -> None:
    """Notes which literals and leaves have rows now."""
    heads, a0, a1, _ = read.columns.values()
    kinds = heads.astype(np.uint8)
    literals, leaves = (np.flatnonzero(kinds == kind) for kind in (Kind.LITERAL, Kind.LEAF))
    bits = a0[literals] | a1[literals].astype(np.uint64) << np.uint64(32)
    said = zip(bits.tolist(), map(type_of, heads[literals].tolist()), strict=True)
    met.literals.update(zip(said, (first + literals).tolist(), strict=True))
    what = zip((heads[leaves] >> 16).tolist(), a0[leaves].tolist(), strict=True)
    met.leaves.update(zip(what, (first + leaves).tolist(), strict=True))
