"""Generated programs: legal, deterministic, the same for the same seed, and of every construct."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest

from vyre.analyze.types import type_of, variable_types
from vyre.checker import check
from vyre.conform import EVERYTHING, Case, Profile, expressions, generate, run_on_reference, statements
from vyre.conform.features import Feature, features, seeds_that_cover
from vyre.conform.profile import EXPRESSION_WEIGHTS, STATEMENT_WEIGHTS
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.ir.buffers import Access
from vyre.ir.nodes import EXPRESSION_CLASSES, STATEMENT_CLASSES, Expr
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.reference import IN_ORDER, REVERSED, seeded
from vyre.semantics.types import DType

NARROW = Profile(
    dtypes=(DType.BOOL, DType.U32, DType.I32, DType.F32),
    atomic_types=(DType.U32, DType.I32),
    fma=False,
    grid_syncs=False,
    subgroups=False,
    transfers=False,
    indirect=False,
    traps=False,
    collectives=False,
    extensions=False,
    multiple_axes=False,
)


def outputs_of(case: Case, schedule: object) -> tuple[list[bytes], tuple[object, ...]]:
    result = run_on_reference(case, schedule=schedule, races=True, checked=True)
    return [data.tobytes() for data in result.outputs.values()], result.races


def assert_sound(case: Case, seed: int) -> None:
    """Legal, unchanged by text and wire, and the same bytes without a race under every schedule."""
    program = case.program
    report = check(program)
    assert report.ok, report.render(program)
    assert parse(str(program)) == program
    assert decode(encode(program)) == program
    first, races = outputs_of(case, IN_ORDER)
    assert not races
    for schedule in (REVERSED, seeded(seed)):
        assert outputs_of(case, schedule) == (first, ())


@pytest.mark.parametrize("start", range(0, 200, 40))
def test_programs_are_legal_and_mean_one_thing(start: int) -> None:
    for seed in range(start, start + 40):
        assert_sound(generate(seed), seed)


def test_small_and_large_programs_are_sound() -> None:
    for seed in range(1_000, 1_015):
        assert_sound(generate(seed, size=4), seed)
    for seed in range(2_000, 2_003):
        assert_sound(generate(seed, size=150), seed)


@pytest.mark.long
@pytest.mark.parametrize("start", range(10_000, 16_000, 200))
def test_many_programs_are_legal_and_mean_one_thing(start: int) -> None:
    for seed in range(start, start + 200):
        assert_sound(generate(seed), seed)


def test_the_same_seed_gives_the_same_case_in_every_process() -> None:
    script = (
        "from vyre.conform import generate\n"
        "for seed in range(20):\n"
        "    case = generate(seed)\n"
        "    data = b''.join(a.tobytes() for a in case.inputs.values())\n"
        "    print(case.program.fingerprint().hex(), data.hex(), case.grid, case.elements, case.handled)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(set(runs[0].split(b"\n"))) == 21


def typed_nodes(program: Program) -> Iterator[tuple[Expr, DType, tuple[DType, ...]]]:
    """Every expression node with its type and the types of its operands."""
    declared = iter(variable_types(program))
    variables: dict[str, DType] = {}
    buffers = program.buffers_by_name
    for statement in walk.statements(program.entry):
        for root in walk.operands(statement):
            stack: list[DType] = []
            for node in walk.postorder(root):
                count = len(walk.operands(node))
                inner = tuple(stack[len(stack) - count :])
                del stack[len(stack) - count :]
                stack.append(type_of_node(node, inner, variables, buffers))
                yield node, stack[-1], inner
        if isinstance(statement, (n.Let, n.Loop)):
            variables[statement.name if isinstance(statement, n.Let) else statement.var] = next(declared)


def type_of_node(node: Expr, inner: tuple[DType, ...], variables: dict[str, DType], buffers: object) -> DType:
    """The type of a node from those of its operands: literals stand in for them, so that towers stay cheap."""
    stand_ins = tuple(n.Lit(0, dtype) for dtype in inner)
    shallow = walk.with_operands(node, stand_ins) if stand_ins else node
    return type_of(shallow, variables, buffers)  # type: ignore[arg-type]


def features_of(program: Program) -> Iterator[Feature]:
    for node, dtype, inner in typed_nodes(program):
        match node:
            case n.BinOp(op) | n.UnOp(op):
                yield Feature("operator", op, inner[:1])
            case n.Cast():
                yield Feature("cast", "", (inner[0], dtype))
            case n.Bitcast():
                yield Feature("bitcast", "", (inner[0], dtype))
            case n.Fma():
                yield Feature("fma", "", (dtype,))
            case n.Atomic(op):
                yield Feature("atomic", op.value, (dtype,))
            case n.SubgroupReduce(op):
                yield Feature("reduce", op, (dtype,))
            case n.SubgroupShuffle():
                yield Feature("shuffle", "", (dtype,))


def test_consecutive_seeds_cover_every_construct() -> None:
    cases = [generate(seed) for seed in range(seeds_that_cover(EVERYTHING))]
    kinds: Counter[str] = Counter()
    found: set[Feature] = set()
    orders: set[n.MemoryOrder] = set()
    for case in cases:
        kinds.update(case.program.stats().kinds)
        found.update(features_of(case.program))
        orders.update(s.order for s in walk.statements(case.program.entry) if isinstance(s, n.Barrier))
        orders.update(e.order for e in walk.expressions(case.program.entry) if isinstance(e, n.Atomic))
    assert {cls.__name__ for cls in EXPRESSION_CLASSES + STATEMENT_CLASSES} <= kinds.keys()
    assert {feature for feature in features(EVERYTHING) if feature.kind != "statement"} <= found
    assert orders == set(n.MemoryOrder)


def test_shapes_that_find_bugs_occur() -> None:
    cases = [generate(seed) for seed in range(200)]
    programs = [case.program for case in cases]
    buffers = [decl for program in programs for decl in program.buffers]
    assert any(data.size == 0 for case in cases for data in case.inputs.values())
    assert any(sum(axis > 1 for axis in program.workgroup_size) == 3 for program in programs)
    assert any(case.elements is not None for case in cases)
    assert any(case.grid is not None and case.grid[1] > 1 for case in cases)
    assert any(decl.count == 0 and decl.role.gives_output for decl in buffers)
    assert any(decl.pipeline_live_out for decl in buffers)
    assert any(decl.output_byte_range for decl in buffers)
    assert any(decl.hints for decl in buffers)
    assert {decl.access for decl in buffers} == set(Access)
    assert any(len(program.output_buffers()) > 3 for program in programs)
    assert any(program.stats().nesting >= 6 for program in programs)
    assert any(program.stats().expression_depth > 200 for program in programs)
    assert any(case.handled for case in cases)
    results = [run_on_reference(case, checked=True) for case in cases[:60]]
    assert any(result.out_of_bounds for result in results)
    assert sum(any(data.any() for data in result.outputs.values()) for result in results) > 50


def barriers_inside(program: Program, classes: tuple[type[n.Stmt], ...]) -> Iterator[n.MemoryOrder]:
    for statement in walk.statements(program.entry):
        if isinstance(statement, classes):
            yield from (s.order for s in walk.statements((statement,)) if isinstance(s, n.Barrier))


def test_barriers_of_both_scopes_stand_in_branches_and_loops() -> None:
    programs = [generate(seed).program for seed in range(300)]
    for classes in ((n.If,), (n.Loop,), (n.While,), (n.Block, n.Region)):
        orders = {order for program in programs for order in barriers_inside(program, classes)}
        assert n.MemoryOrder.GRID_SYNC in orders
        assert len(orders) > 1


def test_a_profile_keeps_out_what_a_backend_lacks() -> None:
    unwanted = (
        n.Fma, n.AsyncLoad, n.AsyncStore, n.CopyBytes, n.IndirectDispatch, n.Trap, n.Resume, n.AllReduce, n.AllGather,
        n.ReduceScatter, n.Broadcast, n.Call, n.OpaqueExpr, n.OpaqueStmt,
    )  # fmt: skip
    for seed in range(80):
        case = generate(seed, profile=NARROW)
        stats = case.program.stats()
        assert stats.dtypes <= set(NARROW.dtypes)
        assert not stats.has_grid_sync
        assert not stats.has_subgroup_ops
        assert not stats.has(*unwanted)
        assert case.program.workgroup_size[1:] == (1, 1)
        assert check(case.program).ok


def test_weights_switch_statements_off() -> None:
    profile = msgspec.structs.replace(EVERYTHING, weights=(("loop", 0), ("while", 0), ("fixpoint", 0)))
    assert not any(generate(seed, profile=profile).program.stats().has(n.Loop, n.While) for seed in range(60))


def test_every_kind_of_node_has_a_weight() -> None:
    assert expressions.PRODUCTIONS.keys() == EXPRESSION_WEIGHTS.keys()
    assert statements.PRODUCTIONS.keys() == STATEMENT_WEIGHTS.keys()
