"""A dispatcher that answers for known programs from plain references, without running anything.

It shows that the encodings of inputs and outputs are right, independently of every backend: what it answers is what a
backend must give for the same program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.lib.dataflow.exploded import EXPLODED_CSR, exploded_answer
from vyre.lib.graph.closure import INPUTS, PERSISTENT_BFS, closure_parameters, closure_reference, cut_edge_columns
from vyre.optimizer.arena import NONE
from vyre.optimizer.dispatcher import Bytes, Grid, OptimizerDispatcher
from vyre.optimizer.kernels import LIVE
from vyre.optimizer.layout import RECORDS, WORDS
from vyre.optimizer.oracle import LiveRows
from vyre.optimizer.switches import PASSES

Columns = Mapping[str, Array]
Answer = Callable[[Program, Columns], Columns]


class CpuOracleDispatcher(OptimizerDispatcher):
    """Answers for ``persistent_bfs``, ``exploded_csr`` and the optimizer's ``live``; refuses every other program.

    A program is known by the generator of the one region that it consists of. Inputs are checked as the programs'
    contracts say.

    >>> from vyre.lib.graph import persistent_bfs_program
    >>> program = persistent_bfs_program(2, 1)
    >>> columns = [[0, 0], [0, 1, 1], [1], [1], [0, 0], [1]]
    >>> CpuOracleDispatcher().dispatch(program, [np.array(c, np.uint32).tobytes() for c in columns])[0]
    b'\\x03\\x00\\x00\\x00'
    """

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        """The outputs in order of declaration; the grid makes no difference to what a program means."""
        answer = _ANSWERS.get(self._generator(program))
        if answer is None:
            raise UnsupportedFeature(
                f"generator '{self._generator(program)}'",
                self.name,
                f"run the program on a backend; known are {', '.join(map(repr, _ANSWERS))}.",
            )
        results = answer(program, _columns(program, inputs))
        return [np.ascontiguousarray(results[decl.name], np.uint32).tobytes() for decl in program.output_buffers()]

    def _generator(self, program: Program) -> str:
        match program.entry:
            case (n.Region(generator),):
                return generator
        raise UnsupportedFeature(
            "a program that is not one region with a generator",
            self.name,
            "run it on a backend, or build it with one of the library's builders.",
        )


def _columns(program: Program, inputs: Sequence[Bytes]) -> dict[str, Array]:
    """The input buffers as words, by name: those that take host data, or all buffers, outputs too."""
    taken, declared = program.input_buffers(), program.buffers
    if len(inputs) not in (len(taken), len(declared)):
        raise BadInputs(
            f"'{program.name}' was given {len(inputs)} buffers, expected {len(taken)}.",
            f"pass {', '.join(decl.name for decl in taken)}.",
        )
    columns: dict[str, Array] = {}
    for decl, data in zip(taken if len(inputs) == len(taken) else declared, inputs, strict=True):
        if len(data) % 4:
            raise BadInputs(f"'{decl.name}' has {len(data)} bytes.", "pass whole words of 4 bytes.", buffer=decl.name)
        columns[decl.name] = np.frombuffer(data, np.uint32)
    return columns


def _answer_closure(program: Program, columns: Columns) -> Columns:
    parameters = closure_parameters(program)
    offsets = columns["pg_edge_offsets"]
    edges = cut_edge_columns(offsets, {name: columns[name] for name in INPUTS[2:4]})
    if len(offsets) != parameters.num_nodes + 1 or len(columns["frontier_in"]) != parameters.words:
        raise BadInputs(
            f"'pg_edge_offsets' has {len(offsets)} and 'frontier_in' has {len(columns['frontier_in'])} words, "
            f"expected {parameters.num_nodes + 1} and {parameters.words}.",
            "pass columns of the sizes that the program was built for.",
        )
    targets, kinds = (edges[name] for name in INPUTS[2:4])
    frontier, changed, converged = closure_reference(
        offsets, targets, kinds, columns["frontier_in"], parameters.allow_mask, parameters.max_iters
    )
    flags = {"changed": changed, "converged": converged}
    return {"frontier_out": frontier, **{name: np.array([flag], np.uint32) for name, flag in flags.items()}}


def _answer_live(_: Program, columns: Columns) -> Columns:
    """The records with their ``live`` fields; the queue is scratch, and stays as it was."""
    records = columns["records"].reshape(-1, WORDS["records"]).copy()
    switches, rows = columns["params"][:2].tolist()
    head, a0, a1, a2, canon = (records[:, RECORDS["records"].index(name)].tolist() for name in _RECORD_COLUMNS)
    # Behind the rows there are only literals, which lie in no scope and need nothing.
    scope, d0, d1 = (columns[name].tolist() + [NONE] * (len(head) - rows) for name in ("scope", "d0", "d1"))
    scopes = [columns[name].tolist() for name in ("scope_parent", "scope_control", "scope_arm")]
    live = LiveRows(head, a0, a1, a2, canon, scope, d0, d1, *scopes)
    field = records[:, RECORDS["records"].index("live")]
    found = np.array(live.find(rows, keeps_all=not switches & PASSES["dead"]), np.uint32)
    field[found != 0] = found[found != 0]
    return {"records": records.reshape(-1), "queue": columns["queue"], "tail": columns["tail"]}


_RECORD_COLUMNS = ("head", "a0", "a1", "a2", "canon")
_ANSWERS: dict[str, Answer] = {
    PERSISTENT_BFS: _answer_closure,
    EXPLODED_CSR: exploded_answer,
    LIVE: _answer_live,
}
