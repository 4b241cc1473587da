"""The oracle dispatcher: it answers for known programs as backends do, and refuses the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import vyre
from vyre.conform import generate
from vyre.driver.optimizing import BackendDispatcher
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir.buffers import BufferDecl
from vyre.ir.program import Program
from vyre.lib import dataflow, graph
from vyre.lib.oracle import CpuOracleDispatcher
from vyre.optimizer.dispatcher import Bytes, Grid, OptimizerDispatcher
from vyre.optimizer.kernels import LIVE, kernels
from vyre.optimizer.pipeline import optimize_with
from vyre.semantics.types import DType


def words(*numbers: int) -> bytes:
    return np.array(numbers, np.uint32).tobytes()


def dispatch(program: Program, inputs: Sequence[Bytes]) -> list[bytes]:
    return CpuOracleDispatcher().dispatch(program, inputs)


def on_cpu(program: Program, inputs: Sequence[Bytes]) -> list[bytes]:
    return [bytes(output) for output in vyre.backend("cpu").compile(program).dispatch(inputs)]


class TestClosure:
    PROGRAM = graph.persistent_bfs_program(3, 2)
    INPUTS = (words(0, 0, 0), words(0, 1, 2, 2), words(1, 2), words(1, 1), words(0, 0, 0), words(1))

    def test_it_answers_as_a_backend_does(self) -> None:
        assert (
            dispatch(self.PROGRAM, self.INPUTS) == on_cpu(self.PROGRAM, self.INPUTS) == [words(7), words(1), words(1)]
        )

    @pytest.mark.parametrize("limit", [None, 0, 1, 2, 3, 4])
    def test_the_limit_of_the_program_counts(self, limit: int | None) -> None:
        program = graph.persistent_bfs_program(3, 2, max_iters=limit)
        assert dispatch(program, self.INPUTS) == on_cpu(program, self.INPUTS)

    @pytest.mark.parametrize("allow", [0, 1, 2])
    def test_the_mask_of_the_program_counts(self, allow: int) -> None:
        program = graph.persistent_bfs_program(3, 2, allow)
        inputs = [*self.INPUTS[:3], words(1, 2), *self.INPUTS[4:]]
        assert dispatch(program, inputs) == on_cpu(program, inputs)

    def test_all_buffers_may_be_given(self) -> None:
        assert dispatch(self.PROGRAM, [*self.INPUTS, words(9), words(9), words(9)]) == dispatch(
            self.PROGRAM, self.INPUTS
        )

    def test_padded_columns_are_cut(self) -> None:
        inputs = [*self.INPUTS[:2], words(1, 2, 0, 0), words(1, 1, 7, 7), *self.INPUTS[4:]]
        assert dispatch(self.PROGRAM, inputs)[0] == words(7)

    @pytest.mark.parametrize(
        ("place", "column", "message"),
        [
            (1, b"", "'pg_edge_offsets' is empty."),
            (2, words(1), "'pg_edge_targets' has 1 elements, and 'pg_edge_offsets' ends with 2."),
            (3, words(), "'pg_edge_kind_mask' has 0 elements, and 'pg_edge_offsets' ends with 2."),
            (5, words(1, 0), "'pg_edge_offsets' has 4 and 'frontier_in' has 2 words, expected 4 and 1."),
            (2, b"abc", "'pg_edge_targets' has 3 bytes."),
        ],
    )
    def test_a_wrong_column_is_named(self, place: int, column: bytes, message: str) -> None:
        inputs = [*self.INPUTS[:place], column, *self.INPUTS[place + 1 :]]
        with pytest.raises(BadInputs) as caught:
            dispatch(self.PROGRAM, inputs)
        assert caught.value.message == message

    def test_a_wrong_number_of_columns_is_told(self) -> None:
        with pytest.raises(BadInputs) as caught:
            dispatch(self.PROGRAM, self.INPUTS[:5])
        assert caught.value.message == "'persistent_bfs' was given 5 buffers, expected 6."
        assert caught.value.fix.startswith("pass pg_nodes, pg_edge_offsets,")


class TestExploded:
    PROGRAM = dataflow.exploded_csr_program(2, 2, 3, intra=2, inter=1, gen=1, kill=1)
    COLUMNS = ((0, 1), (0, 0), (1, 1), (0,), (1,), (1,), (0,), (0,), (0,), (2,), (1,), (0,), (1,))

    def inputs(self) -> list[bytes]:
        return [words(*column) for column in self.COLUMNS]

    def test_it_answers_as_a_backend_does(self) -> None:
        answer = dispatch(self.PROGRAM, self.inputs())
        assert answer == on_cpu(self.PROGRAM, self.inputs())
        assert np.frombuffer(answer[4], np.uint32)[0] == 3 + 1 + 2 + 3

    def test_a_column_that_is_too_short_is_named(self) -> None:
        inputs = self.inputs()
        inputs[2] = words(1)
        with pytest.raises(BadInputs, match="'intra_dst_block' has 1 words, expected 2"):
            dispatch(self.PROGRAM, inputs)

    def test_the_first_id_out_of_range_is_named(self) -> None:
        inputs = self.inputs()
        inputs[9] = words(3)
        with pytest.raises(BadInputs, match="'gen_fact' has 3 at position 0, and facts_per_proc is 3"):
            dispatch(self.PROGRAM, inputs)


class LiveByOracle(OptimizerDispatcher):
    """Runs the optimizer's programs on a backend, except for ``live``, which the oracle answers."""

    def __init__(self) -> None:
        self.backend = BackendDispatcher(vyre.backend("cpu"))
        self.answered = 0

    def dispatch(self, program: Program, inputs: Sequence[Bytes], grid: Grid | None = None) -> list[bytes]:
        if program.name == "live":
            self.answered += 1
            return CpuOracleDispatcher().dispatch(program, inputs, grid)
        return self.backend.dispatch(program, inputs, grid)


def test_live_is_known_by_its_generator() -> None:
    (region,) = kernels().live.entry
    assert region.generator == LIVE  # type: ignore[attr-defined]


def test_programs_are_optimized_alike_with_live_from_the_oracle() -> None:
    for seed in range(12):
        program = generate(seed).program
        mixed = LiveByOracle()
        assert optimize_with(program, mixed)[0] == optimize_with(program, mixed.backend)[0]
        assert mixed.answered


def test_an_unknown_generator_is_refused() -> None:
    program = Program.wrapped([BufferDecl.output("a", 0, DType.U32, 1)], 1, (), generator="mine")
    with pytest.raises(UnsupportedFeature, match="generator 'mine'") as caught:
        dispatch(program, [])
    assert "run the program on a backend; known are 'vyre.lib.graph.persistent_bfs'" in caught.value.fix


def test_a_program_that_is_no_region_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="a program that is not one region with a generator"):
        dispatch(Program.empty(), [])
