"""The exploded supergraph of procedures of one shape, as CSR, built in parallel.

Nodes are (procedure, block, fact); ``exploded_csr_program`` has the contract, ``exploded_kernels`` the algorithm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from vyre.driver.backend import Backend
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.lib.columns import ids, require_below
from vyre.lib.dataflow.exploded_kernels import WORKGROUP, exploded_kernel, exploded_rows
from vyre.lib.workspace import MAX_ELEMENTS, ArrayLike, Workspace, require_count, shows_program
from vyre.semantics.types import DType

EXPLODED_CSR: Final = "vyre.lib.dataflow.exploded_csr"
# The input columns: their table, and what bounds their elements.
TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "intra": {"intra_proc": "procs", "intra_src_block": "blocks", "intra_dst_block": "blocks"},
    "inter": {
        "inter_src_proc": "procs",
        "inter_src_block": "blocks",
        "inter_dst_proc": "procs",
        "inter_dst_block": "blocks",
    },
    "gen": {"gen_proc": "procs", "gen_block": "blocks", "gen_fact": "facts"},
    "kill": {"kill_proc": "procs", "kill_block": "blocks", "kill_fact": "facts"},
}
OUTPUTS: Final = ("killed", "row_ptr", "row_cursor", "col_idx", "col_len")


class ExplodedParameters(msgspec.Struct, frozen=True):
    """What an exploded program was built for: the shape of procedures, and the number of rows of each table."""

    procs: int
    blocks: int
    facts: int
    intra: int
    inter: int
    gen: int
    kill: int

    @property
    def total(self) -> int:
        """The number of nodes."""
        return self.procs * self.blocks * self.facts

    @property
    def max_cols(self) -> int:
        """The largest number of edges that such tables can give."""
        return self.intra * (self.facts + self.gen) + self.inter * self.facts


def exploded_csr_program(
    num_procs: int, blocks_per_proc: int, facts_per_proc: int, intra: int, inter: int, gen: int, kill: int
) -> Program:
    """Return the program that builds the exploded supergraph of so many intra and inter edges, GENs and KILLs.

    Inputs, u32[max(count, 1)]: 0-2 ``intra_proc``, ``intra_src_block``, ``intra_dst_block``; 3-6 ``inter_src_proc``,
    ``inter_src_block``, ``inter_dst_proc``, ``inter_dst_block``; 7-9 ``gen_proc``, ``gen_block``, ``gen_fact``; 10-12
    ``kill_proc``, ``kill_block``, ``kill_fact``. Outputs: 13 ``killed`` [total], 1 where a block kills a fact;
    14 ``row_ptr`` [total + 1]; 15 ``row_cursor`` [total], zero; 16 ``col_idx`` [max_cols], zero behind the edges;
    17 ``col_len`` [1], the number of edges. Node (p, b, f) is ``(p * blocks + b) * facts + f``.

    An intra edge (p, s, d) copies every fact that (p, s) does not kill, and for every GEN (p, s, g) leads from fact 0
    to g; an inter edge copies every fact. Duplicates of edges and GENs count each time, rows are sorted, and rows of
    tables with ids out of range are ignored. O(max_cols + total) work, and O(n log n) for a row of n edges.

    >>> program = exploded_csr_program(1, 2, 1, 1, 0, 0, 0)
    >>> [decl.name for decl in program.output_buffers()]
    ['killed', 'row_ptr', 'row_cursor', 'col_idx', 'col_len']
    """
    numbers = (num_procs, blocks_per_proc, facts_per_proc, intra, inter, gen, kill)
    names = ("num_procs", "blocks_per_proc", "facts_per_proc", "intra", "inter", "gen", "kill")
    parameters = ExplodedParameters(*(require_count(one, name) for one, name in zip(numbers, names, strict=True)))
    _require_nodes(parameters)
    _require_edges(parameters.max_cols)
    return _program(parameters)


def _require_nodes(parameters: ExplodedParameters) -> None:
    # row_ptr has one element more than there are nodes.
    if parameters.total >= MAX_ELEMENTS:
        raise BadInputs(
            f"{parameters.procs:,} procedures of {parameters.blocks:,} blocks with {parameters.facts:,} facts are "
            f"{parameters.total:,} nodes, and indices are u32.",
            "explode fewer procedures at a time, or fewer facts.",
        )


def _require_edges(count: int) -> None:
    if count > MAX_ELEMENTS:
        raise BadInputs(
            f"the exploded graph may have {count:,} edges, and indices are u32.",
            "explode fewer procedures at a time, or fewer facts and GENs.",
        )


@cache
def _program(parameters: ExplodedParameters) -> Program:
    made: Program = exploded_kernel(*msgspec.structs.astuple(parameters)).program
    counts = {name: getattr(parameters, table) for table, columns in TABLES.items() for name in columns}
    total = parameters.total
    counts |= {"killed": total, "row_ptr": total + 1, "row_cursor": total, "col_idx": parameters.max_cols, "col_len": 1}
    hints = {name: str(number) for name, number in msgspec.structs.asdict(parameters).items()}
    buffers = [
        decl.with_count(max(counts[decl.name], 1))
        .with_output(decl.name in OUTPUTS)
        .with_hints(**hints if decl.name == "col_len" else {})
        for decl in made.buffers
    ]
    return Program.wrapped(
        buffers,
        made.workgroup_size,
        made.entry,
        name="exploded_csr",
        generator=EXPLODED_CSR,
        subgroup_size=made.subgroup_size,
    )


def exploded_parameters(program: Program) -> ExplodedParameters:
    """Return the parameters of a program of ``exploded_csr_program``: they are hints of its buffer ``col_len``."""
    hints = dict(program.buffer("col_len").hints)
    return ExplodedParameters(*(int(hints[name]) for name in ExplodedParameters.__struct_fields__))


@shows_program(lambda: exploded_rows)
def exploded_csr(
    num_procs: int,
    blocks_per_proc: int,
    facts_per_proc: int,
    intra_edges: ArrayLike,
    inter_edges: ArrayLike,
    gen: ArrayLike,
    kill: ArrayLike,
    *,
    backend: str | Backend | None = None,
) -> tuple[Array, Array]:
    """Return ``row_ptr`` and ``col_idx`` of an exploded supergraph.

    ``intra_edges`` are (procedure, source block, target block), ``inter_edges`` (source procedure, source block, target
    procedure, target block), ``gen`` and ``kill`` (procedure, block, fact): each a tuple of columns or an array of
    rows. ``exploded_csr_program`` says what they mean. Ids out of range are BadInputs that names the first.
    O(edges + nodes) work in one launch, and O(n log n) for a row of n edges.

    >>> row_ptr, col_idx = exploded_csr(1, 2, 2, ([0], [0], [1]), (), ([0], [0], [1]), ())
    >>> row_ptr.tolist(), col_idx.tolist()
    ([0, 2, 3, 3, 3], [2, 3, 3])
    """
    shape = {
        "procs": require_count(num_procs, "num_procs"),
        "blocks": require_count(blocks_per_proc, "blocks_per_proc"),
        "facts": require_count(facts_per_proc, "facts_per_proc"),
    }
    given = {"intra": intra_edges, "inter": inter_edges, "gen": gen, "kill": kill}
    arguments = ("intra_edges", "inter_edges", "gen", "kill")
    tables = {table: _columns(given[table], argument, table) for table, argument in zip(TABLES, arguments, strict=True)}
    parameters = ExplodedParameters(
        **shape, **{table: len(next(iter(columns.values()))) for table, columns in tables.items()}
    )
    _require_nodes(parameters)
    for table, columns in tables.items():
        for name, column in columns.items():
            _require_ids(column, name, TABLES[table][name], parameters)
    edges = _count_edges(parameters, tables)
    _require_edges(edges)
    workspace = Workspace(backend)
    operands = [workspace.take(column, name, DType.U32) for table in tables.values() for name, column in table.items()]
    row_ptr = workspace.output(parameters.total + 1, DType.U32)
    # The kernel keeps sums there before it fills it.
    col_idx = workspace.empty(max(edges, 1), DType.U32)
    killed, row_cursor = (workspace.empty(parameters.total, DType.U32) for _ in range(2))
    grid = exploded_rows.on(workspace.backend).grid(workspace.workgroups(edges + parameters.total, 16 * WORKGROUP))
    numbers = msgspec.structs.astuple(parameters)
    grid(*numbers, *operands, killed, row_ptr, row_cursor, col_idx, workspace.empty(1, DType.U32))
    return workspace.deliver(row_ptr), workspace.read(col_idx)[:edges]


def _columns(given: ArrayLike, argument: str, table: str) -> dict[str, Array]:
    """The columns of a table by name, as u32; an array of rows, or a sequence of columns."""
    names = TABLES[table]
    if isinstance(given, np.ndarray) and given.ndim == 2:
        columns: Sequence[Any] = list(given.T)
    elif isinstance(given, (tuple, list)):
        columns = list(given) or [()] * len(names)
    else:
        raise BadInputs(
            f"'{argument}' is a {type(given).__name__}, expected columns or rows.",
            f"pass {len(names)} columns, or an array of shape (n, {len(names)}).",
        )
    if len(columns) != len(names):
        raise BadInputs(f"'{argument}' has {len(columns)} columns, expected {len(names)}.", f"pass {', '.join(names)}.")
    made = {name: ids(column, name) for name, column in zip(names, columns, strict=True)}
    longest = max(made, key=lambda name: made[name].size)
    for name, column in made.items():
        if column.size < made[longest].size:
            raise BadInputs(
                f"'{name}' has {column.size:,} elements, and '{longest}' has {made[longest].size:,}.",
                f"pass as many elements in each column of '{argument}'.",
            )
    return made


def _require_ids(column: Array, name: str, bound: str, parameters: ExplodedParameters) -> None:
    what = {"procs": "num_procs", "blocks": "blocks_per_proc", "facts": "facts_per_proc"}[bound]
    require_below(column, getattr(parameters, bound), name, what)


def _count_edges(parameters: ExplodedParameters, tables: Mapping[str, Mapping[str, Array]]) -> int:
    """The number of edges: an intra edge gives one for each fact that its source keeps, and for each GEN there."""
    if not parameters.total:
        return 0
    facts, num_blocks = parameters.facts, parameters.procs * parameters.blocks

    def block_of(table: str) -> Array:
        proc, block, *_ = tables[table].values()
        made: Array = proc.astype(np.int64) * parameters.blocks + block
        return made

    killed = np.sort(block_of("kill") * facts + tables["kill"]["kill_fact"])
    killed = killed[np.diff(killed, prepend=-1) != 0]
    kept = facts - np.bincount(killed // facts, minlength=num_blocks)
    generated = np.bincount(block_of("gen"), minlength=num_blocks)
    return int((kept + generated)[block_of("intra")].sum()) + parameters.inter * facts


def exploded_csr_reference(
    parameters: ExplodedParameters, columns: Mapping[str, Array]
) -> tuple[list[int], list[int], list[int]]:
    """The contract in plain Python: ``row_ptr``, ``col_idx`` up to its length, and ``killed``."""
    procs, blocks, facts = parameters.procs, parameters.blocks, parameters.facts

    def rows(table: str) -> list[tuple[int, ...]]:
        bounds = {"procs": procs, "blocks": blocks, "facts": facts}
        names = TABLES[table]
        limits = [bounds[bound] for bound in names.values()]
        count = getattr(parameters, table)
        every = zip(*(columns[name][:count].tolist() for name in names), strict=True)
        return [row for row in every if all(one < limit for one, limit in zip(row, limits, strict=True))]

    def node(proc: int, block: int, fact: int) -> int:
        return (proc * blocks + block) * facts + fact

    killed = {node(*row) for row in rows("kill")}
    generated: dict[tuple[int, int], Counter[int]] = {}
    for proc, block, fact in rows("gen"):
        generated.setdefault((proc, block), Counter())[fact] += 1
    targets: list[list[int]] = [[] for _ in range(parameters.total)]
    for proc, source, target in rows("intra"):
        for fact in range(facts):
            if node(proc, source, fact) not in killed:
                targets[node(proc, source, fact)].append(node(proc, target, fact))
        for fact, times in generated.get((proc, source), {}).items():
            targets[node(proc, source, 0)] += [node(proc, target, fact)] * times
    for source_proc, source, target_proc, target in rows("inter"):
        for fact in range(facts):
            targets[node(source_proc, source, fact)].append(node(target_proc, target, fact))
    row_ptr = [0]
    for row in targets:
        row_ptr.append(row_ptr[-1] + len(row))
    return row_ptr, [col for row in targets for col in sorted(row)], [int(at in killed) for at in range(len(targets))]


def exploded_answer(program: Program, columns: Mapping[str, Array]) -> dict[str, Array]:
    """What a program of ``exploded_csr_program`` gives for its inputs by name, from the plain reference."""
    parameters = exploded_parameters(program)
    for table, names in TABLES.items():
        for name in names:
            count = getattr(parameters, table)
            if len(columns[name]) < count:
                raise BadInputs(
                    f"'{name}' has {len(columns[name]):,} words, expected {count:,}.",
                    f"pass {count:,} words, one for each row.",
                    buffer=name,
                )
            _require_ids(columns[name][:count], name, names[name], parameters)
    row_ptr, col_idx, killed = exploded_csr_reference(parameters, columns)
    given = {"killed": killed, "row_ptr": row_ptr, "row_cursor": [], "col_idx": col_idx, "col_len": [len(col_idx)]}
    answer = {name: np.zeros(program.buffer(name).count, np.uint32) for name in OUTPUTS}
    for name, elements in given.items():
        answer[name][: len(elements)] = elements
    return answer
