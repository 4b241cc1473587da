"""The exploded supergraph: program, function and plain reference agree on every backend and grid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib_support import backend_of

import vyre
from vyre.driver import routes
from vyre.driver.config import DispatchConfig
from vyre.errors import BadInputs
from vyre.ir import nodes as n
from vyre.ir.wire import decode, encode
from vyre.lib import dataflow
from vyre.lib.dataflow.exploded import (
    OUTPUTS,
    TABLES,
    ExplodedParameters,
    exploded_answer,
    exploded_csr_reference,
)
from vyre.lib.dataflow.exploded_kernels import exploded_rows

Tables = dict[str, np.ndarray]
CPU = "cpu 16x2"


def bounds_of(table: str, shape: tuple[int, int, int]) -> list[int]:
    procs, blocks, facts = shape
    return {"intra": [procs, blocks, blocks], "inter": [procs, blocks, procs, blocks]}.get(
        table, [procs, blocks, facts]
    )


def random_tables(shape: tuple[int, int, int], counts: dict[str, int], *, beyond: int = 0, seed: int = 1) -> Tables:
    """Rows with any ids of a shape; some of them out of range if ``beyond`` is not 0."""
    random = np.random.default_rng(seed)
    return {
        table: np.stack(
            [random.integers(0, bound + beyond, counts[table]) for bound in bounds_of(table, shape)], axis=1
        )
        for table in TABLES
    }


def parameters_of(shape: tuple[int, int, int], tables: Tables) -> ExplodedParameters:
    return ExplodedParameters(*shape, *(len(tables[table]) for table in TABLES))


def inputs_of(tables: Tables) -> dict[str, np.ndarray]:
    """The input buffers of a program, padded to a word."""
    return {
        name: np.append(column, [] if column.size else [0]).astype(np.uint32)
        for table, names in TABLES.items()
        for name, column in zip(names, tables[table].T, strict=True)
    }


def run(backend: str, program: vyre.Program, inputs: dict[str, np.ndarray], **config: Any) -> dict[str, list[int]]:
    outputs = routes.dispatch(backend_of(backend), program, inputs, DispatchConfig(**config))
    return {name: np.frombuffer(view, np.uint32).tolist() for name, view in zip(OUTPUTS, outputs, strict=True)}


def assert_built(
    backend: str, shape: tuple[int, int, int], tables: Tables, *, in_range: bool = True, **config: Any
) -> None:
    """The program gives the reference's answer, in all of its outputs; the oracle takes only ids in range."""
    program = dataflow.exploded_csr_program(*shape, *(len(tables[table]) for table in TABLES))
    inputs = inputs_of(tables)
    row_ptr, col_idx, killed = exploded_csr_reference(parameters_of(shape, tables), inputs)
    found = run(backend, program, inputs, **config)
    total, length = len(killed), len(col_idx)
    assert found["row_ptr"] == row_ptr
    assert found["col_len"] == [length]
    assert found["col_idx"][:length] == col_idx
    assert not any(found["col_idx"][length:])
    assert found["killed"] == (killed or [0])
    assert found["row_cursor"] == [0] * max(total, 1)
    if in_range:
        assert {name: column.tolist() for name, column in exploded_answer(program, inputs).items()} == found


class TestProgram:
    @pytest.mark.parametrize("backend", [CPU, "webgpu", "reference"])
    @pytest.mark.parametrize(
        ("shape", "counts"),
        [
            ((0, 3, 3), (0, 0, 0, 0)),
            ((2, 2, 0), (5, 4, 0, 0)),
            ((1, 1, 1), (0, 0, 0, 0)),
            ((1, 1, 1), (2, 1, 2, 0)),
            ((2, 3, 4), (9, 5, 6, 4)),
        ],
    )
    def test_the_program_gives_what_the_reference_gives(
        self, backend: str, shape: tuple[int, int, int], counts: tuple[int, ...]
    ) -> None:
        tables = random_tables(shape, dict(zip(TABLES, counts, strict=True)))
        assert_built(backend, shape, tables)

    @pytest.mark.parametrize("facts", [31, 32, 33])
    def test_sizes_around_a_word(self, facts: int) -> None:
        tables = random_tables((3, 2, facts), {"intra": facts, "inter": 7, "gen": 40, "kill": 33})
        assert_built("reference", (3, 2, facts), tables, grid_override=(2,))

    @pytest.mark.parametrize("grid", [(1,), (2,), (7,), (300,)])
    def test_any_grid_gives_the_same(self, grid: tuple[int]) -> None:
        shape = (5, 6, 7)
        tables = random_tables(shape, {"intra": 60, "inter": 20, "gen": 30, "kill": 30})
        assert_built(CPU, shape, tables, grid_override=grid)

    def test_long_rows_are_sorted(self) -> None:
        shape = (1, 3, 50)
        tables = random_tables(shape, {"intra": 30, "inter": 0, "gen": 100, "kill": 2}, seed=4)
        assert_built(CPU, shape, tables, grid_override=(2,))
        assert_built("reference", shape, tables, grid_override=(1,))

    @pytest.mark.parametrize("backend", [CPU, "reference"])
    def test_ids_out_of_range_are_ignored(self, backend: str) -> None:
        shape = (2, 3, 4)
        tables = random_tables(shape, {"intra": 20, "inter": 20, "gen": 10, "kill": 10}, beyond=2)
        tables["intra"][0] = 0xFFFFFFFF
        assert_built(backend, shape, tables, in_range=False)

    @settings(max_examples=8, deadline=None)
    @given(st.tuples(*[st.integers(0, 4)] * 3), st.tuples(*[st.integers(0, 12)] * 4), st.integers(0, 99))
    def test_any_tables(self, shape: tuple[int, int, int], counts: tuple[int, ...], seed: int) -> None:
        sizes = dict(zip(TABLES, counts, strict=True)) if all(shape) else dict.fromkeys(TABLES, 0)
        assert_built("reference", shape, random_tables(shape, sizes, seed=seed))

    def test_the_program_is_one_region_with_its_generator(self) -> None:
        program = dataflow.exploded_csr_program(2, 3, 4, 5, 6, 7, 8)
        (region,) = program.entry
        assert isinstance(region, n.Region)
        assert region.generator == dataflow.EXPLODED_CSR == "vyre.lib.dataflow.exploded_csr"
        assert [decl.binding for decl in program.buffers] == list(range(18))
        assert [decl.count for decl in program.buffers] == [5] * 3 + [6] * 4 + [7] * 3 + [8] * 3 + [24, 25, 24, 79, 1]
        assert [decl.name for decl in program.output_buffers()] == list(OUTPUTS)

    def test_parameters_are_read_back_from_text_and_bytes(self) -> None:
        program = dataflow.exploded_csr_program(2, 3, 4, 0, 1, 0, 8)
        for same in (program, vyre.parse(str(program)), decode(encode(program))):
            assert msgspec.structs.astuple(dataflow.exploded_parameters(same)) == (2, 3, 4, 0, 1, 0, 8)

    def test_the_kernel_has_no_race(self) -> None:
        shape = (2, 3, 4)
        tables = random_tables(shape, {"intra": 9, "inter": 5, "gen": 30, "kill": 4})
        parameters = parameters_of(shape, tables)
        columns = [np.ascontiguousarray(column, np.uint32) for table in TABLES for column in tables[table].T]
        outputs = [np.full(size, 0xA5A5A5A5, np.uint32) for size in (24, 25, 24, parameters.max_cols, 1)]
        numbers = msgspec.structs.astuple(parameters)
        report = exploded_rows.grid(2).debug(*numbers, *columns, *outputs)
        assert report.ok, str(report)
        assert report.out_of_bounds == (), str(report)


class TestFunction:
    @settings(max_examples=40, deadline=None)
    @given(st.tuples(*[st.integers(0, 5)] * 3), st.tuples(*[st.integers(0, 20)] * 4), st.integers(0, 999))
    def test_any_tables(self, shape: tuple[int, int, int], counts: tuple[int, ...], seed: int) -> None:
        sizes = dict(zip(TABLES, counts, strict=True)) if all(shape) else dict.fromkeys(TABLES, 0)
        self.check(CPU, shape, random_tables(shape, sizes, seed=seed))

    @pytest.mark.parametrize("backend", ["cpu 4x1", "webgpu", "reference"])
    def test_every_backend(self, backend: str) -> None:
        self.check(backend, (2, 3, 4), random_tables((2, 3, 4), {"intra": 9, "inter": 5, "gen": 6, "kill": 4}))

    def test_a_large_graph(self) -> None:
        shape = (30, 20, 10)
        self.check(CPU, shape, random_tables(shape, {"intra": 3000, "inter": 500, "gen": 900, "kill": 700}))

    def check(self, backend: str, shape: tuple[int, int, int], tables: Tables) -> None:
        columns = inputs_of(tables)
        row_ptr, col_idx, _ = exploded_csr_reference(parameters_of(shape, tables), columns)
        for given_tables in (tables.values(), [tuple(table.T) for table in tables.values()]):
            found = dataflow.exploded_csr(*shape, *given_tables, backend=backend_of(backend))
            assert [one.tolist() for one in found] == [row_ptr, col_idx]
            assert all(one.dtype == np.uint32 for one in found)

    def test_a_kill_stops_any_fact_and_gen_starts_from_fact_0(self) -> None:
        intra = ([0, 0], [0, 0], [1, 1])  # the same edge twice
        gen = ([0, 0, 0], [0, 0, 0], [1, 1, 0])
        row_ptr, col_idx = dataflow.exploded_csr(1, 2, 2, intra, (), gen, ([0], [0], [0]))
        # Fact 0 is killed, but every GEN leads from it: to 0 once and to 1 twice, for each edge.
        assert row_ptr.tolist() == [0, 6, 8, 8, 8]
        assert col_idx.tolist() == [2, 2, 3, 3, 3, 3, 3, 3]

    def test_inter_edges_copy_every_fact(self) -> None:
        row_ptr, col_idx = dataflow.exploded_csr(2, 1, 3, (), ([1], [0], [0], [0]), (), ([1], [0], [2]))
        assert row_ptr.tolist() == [0, 0, 0, 0, 1, 2, 3]
        assert col_idx.tolist() == [0, 1, 2]

    def test_the_program_prints(self) -> None:
        assert str(dataflow.exploded_csr.program).startswith("program exploded_rows(workgroup 64)")


ONE = ([0], [0], [0])
BAD_CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "intra_proc": (
        lambda: dataflow.exploded_csr(1, 1, 1, ([0, 1], [0, 0], [0, 0]), (), (), ()),
        "'intra_proc' has 1 at position 1, and num_procs is 1",
    ),
    "intra_dst_block": (
        lambda: dataflow.exploded_csr(1, 2, 1, ([0, 0], [0, 0], [1, 7]), (), (), ()),
        "'intra_dst_block' has 7 at position 1, and blocks_per_proc is 2",
    ),
    "inter_dst_proc": (
        lambda: dataflow.exploded_csr(1, 1, 1, ONE, ([0], [0], [2], [0]), (), ()),
        "'inter_dst_proc' has 2 at position 0, and num_procs is 1",
    ),
    "gen_fact": (
        lambda: dataflow.exploded_csr(1, 1, 3, ONE, (), ([0], [0], [3]), ()),
        "'gen_fact' has 3 at position 0",
    ),
    "kill_block": (
        lambda: dataflow.exploded_csr(1, 1, 3, ONE, (), (), ([0], [1], [0])),
        "'kill_block' has 1 at position 0",
    ),
    "negative": (
        lambda: dataflow.exploded_csr(1, 1, 1, ([0, -3], [0, 0], [0, 0]), (), (), ()),
        "'intra_proc' has -3 at position 1",
    ),
    "no nodes": (
        lambda: dataflow.exploded_csr(0, 1, 1, ONE, (), (), ()),
        "'intra_proc' has 0 at position 0, and num_procs is 0",
    ),
    "short column": (
        lambda: dataflow.exploded_csr(1, 1, 1, ([0, 0], [0], [0, 0]), (), (), ()),
        "'intra_src_block' has 1 elements, and 'intra_proc' has 2.*each column of 'intra_edges'",
    ),
    "too few columns": (
        lambda: dataflow.exploded_csr(1, 1, 1, ONE, ONE, (), ()),
        "'inter_edges' has 3 columns, expected 4",
    ),
    "no table": (lambda: dataflow.exploded_csr(1, 1, 1, ONE, (), 7, ()), "'gen' is a int, expected columns or rows"),
    "fractions": (
        lambda: dataflow.exploded_csr(1, 1, 1, ([0.5], [0], [0]), (), (), ()),
        "'intra_proc' has elements of type float64",
    ),
    "count": (lambda: dataflow.exploded_csr(-1, 1, 1, (), (), (), ()), "'num_procs' is -1"),
    "too many nodes": (
        lambda: dataflow.exploded_csr(70_000, 70_000, 1, (), (), (), ()),
        "70,000 procedures of 70,000 blocks with 1 facts are 4,900,000,000 nodes, and indices are u32",
    ),
    "nodes of a program": (lambda: dataflow.exploded_csr_program(1 << 16, 1 << 16, 1, 0, 0, 0, 0), "indices are u32"),
    "edges of a program": (
        lambda: dataflow.exploded_csr_program(1, 1, 1, 1 << 20, 0, 1 << 12, 0),
        "may have 4,296,015,872 edges, and indices are u32",
    ),
    "edges": (
        lambda: dataflow.exploded_csr(
            1, 1, 50_000, tuple(np.zeros((3, 90_000), int)), (), tuple(np.zeros((3, 1), int)), ()
        ),
        "may have 4,500,090,000 edges",
    ),
}


class TestErrors:
    @pytest.mark.parametrize("name", BAD_CALLS)
    def test_a_wrong_call_is_refused(self, name: str) -> None:
        call, message = BAD_CALLS[name]
        with pytest.raises(BadInputs, match=message):
            call()

    def test_a_short_column_of_a_program_is_refused(self) -> None:
        program = dataflow.exploded_csr_program(1, 1, 1, 2, 0, 0, 0)
        columns = {decl.name: np.zeros(2, np.uint32) for decl in program.input_buffers()}
        columns["intra_src_block"] = np.zeros(1, np.uint32)
        with pytest.raises(BadInputs, match="'intra_src_block' has 1 words, expected 2"):
            exploded_answer(program, columns)
        with pytest.raises(BadInputs, match="intra_src_block"):
            backend_of("reference").dispatch(program, columns)
