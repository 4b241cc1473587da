"""One invocation at a time: variables, control flow, memory, exactness, limits."""

from __future__ import annotations

import numpy as np
import pytest
from reference_support import U32, out, output, program, reading, u32, updating, values

from vyre.errors import BadInputs, FuelExhausted, InvalidProgram
from vyre.ir import build as b
from vyre.ir.extensions import CompositeOp, register_op
from vyre.ir.nodes import BinOp, Expr, UnOp, lit
from vyre.ir.places import Place
from vyre.reference import MAX_INVOCATIONS, OutOfBounds, run
from vyre.semantics.arrays import array_cast, array_meaning, from_storage, to_storage
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import ALL_TYPES, DType

v = b.var


def expression_value(value: Expr, dtype: DType = U32) -> object:
    return output(program([out(1, dtype=dtype)], 1, b.store("out", 0, value)))[0]


def test_every_invocation_stores_its_own_id() -> None:
    source = program([out(10)], 4, b.if_(b.gid() < b.buf_len("out"), [b.store("out", b.gid(), b.gid() * 2)]))
    result = run(source, ())
    assert values(result) == [2 * k for k in range(10)]
    assert result.launch.grid == (3, 1, 1)


def test_ids_on_three_axes_number_x_first() -> None:
    linear = b.gid(0) + 4 * b.gid(1) + 12 * b.gid(2)
    packed = b.wg(0) + 10 * b.wg(1) + 100 * b.wg(2) + 1000 * b.lid(0) + 10000 * b.num_workgroups(2)
    expected = [
        x // 2 + 10 * y + 100 * z + 1000 * (x % 2) + 20000 for z in range(2) for y in range(3) for x in range(4)
    ]
    assert output(program([out(24)], (2, 1, 1), b.store("out", linear, packed)), grid=(2, 3, 2)) == expected


def test_a_let_in_a_loop_body_is_fresh_in_each_pass() -> None:
    source = program(
        [out(3)], 1,
        b.loop("k", 0, 3, [
            b.let("x", 1),
            b.if_(v("k").eq(1), [b.assign("x", 7)]),
            b.store("out", v("k"), v("x")),
        ]),
    )  # fmt: skip
    assert output(source) == [1, 7, 1]


def test_sibling_scopes_reuse_a_name() -> None:
    source = program(
        [out(2)], 1,
        b.block(b.let("t", 3), b.store("out", 0, v("t"))),
        b.block(b.let("t", lit(1.5)), b.store("out", 1, b.cast(U32, v("t") * 4.0))),
    )  # fmt: skip
    assert output(source) == [3, 6]


def test_loop_bounds_are_evaluated_once() -> None:
    source = program(
        [out(1)], 1,
        b.let("n", 3), b.let("count", 0),
        b.loop("k", 0, v("n"), [b.assign("n", 10), b.assign("count", v("count") + 1)]),
        b.store("out", 0, v("count")),
    )  # fmt: skip
    assert output(source) == [3]


@pytest.mark.parametrize(("start", "stop", "count"), [(0, 0, 0), (5, 3, 0), (2**32 - 3, 2**32 - 1, 2)])
def test_loops_are_half_open_and_may_be_empty(start: int, stop: int, count: int) -> None:
    source = program(
        [out(1)], 1,
        b.loop("k", start, stop, [b.store("out", 0, b.load("out", 0) + 1)]),
    )  # fmt: skip
    assert output(source) == [count]


def test_break_and_continue_act_on_the_innermost_loop() -> None:
    source = program(
        [out(1)], 1,
        b.let("sum", 0),
        b.loop("i", 0, 4, [
            b.let("j", 0),
            b.while_(True, [
                b.assign("j", v("j") + 1),
                b.if_(v("j") > 5, [b.break_()]),
                b.if_((v("j") & 1).eq(1), [b.continue_()]),
                b.assign("sum", v("sum") + v("j")),
            ]),
            b.if_(v("i").eq(2), [b.break_()]),
        ]),
        b.store("out", 0, v("sum")),
    )  # fmt: skip
    assert output(source) == [3 * (2 + 4)]


def test_return_ends_the_invocation() -> None:
    source = program(
        [out(4)], 1,
        b.loop("k", 0, 10, [b.if_(v("k").eq(b.gid()), [b.store("out", b.gid(), v("k") + 1), b.return_()])]),
        b.store("out", b.gid(), 99),
    )  # fmt: skip
    assert output(source) == [1, 2, 3, 4]


def test_operands_are_evaluated_left_to_right() -> None:
    tick = b.atomic_add("s", 0, 1)
    source = program(
        [updating(), out(1)], 1,
        b.store("out", 0, tick * 100 + tick * 10 + b.compare_exchange("s", b.atomic_add("s", 0, 1), 3, 7)),
    )  # fmt: skip
    # 0 * 100 + 1 * 10, then index 2 is out of bounds
    assert output(source, [u32(0)], elements=1) == [10]


def test_compare_exchange_evaluates_index_then_expected_then_value() -> None:
    tick = b.atomic_add("s", 0, 1)
    source = program(
        [updating("s", 1), updating("t", 3), out(1)], 1,
        b.store("out", 0, b.compare_exchange("t", tick, tick, tick)),
    )  # fmt: skip
    result = run(source, [u32(0), u32(1, 5, 5)], elements=1)
    assert values(result) == [1]
    assert values(result, "t") == [2, 5, 5]


def test_select_evaluates_both_arms() -> None:
    source = program([updating(), out(1)], 1, b.store("out", 0, b.select(False, b.atomic_add("s", 0, 5), 3)))
    result = run(source, [u32(1)], elements=1)
    assert values(result) == [3]
    assert values(result, "s") == [6]


@pytest.mark.parametrize(
    ("build", "old", "new"),
    [
        (lambda: b.atomic_load("s", 0), 12, 12),
        (lambda: b.atomic_store("s", 0, 5), 12, 5),
        (lambda: b.atomic_add("s", 0, 2**32 - 1), 12, 11),
        (lambda: b.atomic_sub("s", 0, 13), 12, 2**32 - 1),
        (lambda: b.atomic_and("s", 0, 6), 12, 4),
        (lambda: b.atomic_or("s", 0, 3), 12, 15),
        (lambda: b.atomic_xor("s", 0, 5), 12, 9),
        (lambda: b.atomic_min("s", 0, 5), 12, 5),
        (lambda: b.atomic_max("s", 0, 5), 12, 12),
        (lambda: b.atomic_exchange("s", 0, 8), 12, 8),
        (lambda: b.compare_exchange("s", 0, 12, 8), 12, 8),
        (lambda: b.compare_exchange("s", 0, 11, 8), 12, 12),
    ],
)
def test_atomics_give_the_old_value(build, old: int, new: int) -> None:
    result = run(program([updating(), out(1)], 1, b.store("out", 0, build())), [u32(12)], elements=1)
    assert (values(result), values(result, "s")) == ([old], [new])


def test_an_atomic_may_take_its_own_operand_as_target() -> None:
    source = program([updating(), out(1)], 1, b.let("x", 5), b.assign("x", b.atomic_add("s", 0, v("x"))),
                     b.store("out", 0, v("x")))  # fmt: skip
    result = run(source, [u32(12)], elements=1)
    assert (values(result), values(result, "s")) == ([12], [17])


def test_out_of_bounds_loads_give_zero_stores_vanish_and_atomics_give_zero() -> None:
    source = program(
        [updating(), out(3)], 1,
        b.store("out", 0, b.load("s", 2) + b.load("s", 1)),
        b.store("out", 1, b.atomic_add("s", 2**32 - 1, 4) + 1),
        b.store("s", b.gid() + 2, 9),
        b.store("out", 2, b.compare_exchange("s", 7, 0, 1)),
    )  # fmt: skip
    result = run(source, [u32(5, 6)], grid=(2,))
    assert values(result) == [6, 1, 0]
    assert values(result, "s") == [5, 6]
    assert result.out_of_bounds == (
        OutOfBounds(Place(0, 2), "s", 2),
        OutOfBounds(Place(1, 3), "s", 2),
        OutOfBounds(Place(2), "s", 2),
        OutOfBounds(Place(3, 4), "s", 2),
    )


def test_a_guard_keeps_the_other_invocations_from_reading() -> None:
    body = [b.store("out", b.gid(), b.load("a", b.gid()))]
    source = program([reading(), out()], 8, b.if_(b.gid() < b.buf_len("a"), body))
    result = run(source, [u32(4, 5, 6)], elements=3)
    assert values(result) == [4, 5, 6]
    assert result.out_of_bounds == ()


def test_zero_length_buffers_and_empty_grids() -> None:
    source = program([reading(), out()], 4, b.store("out", b.gid(), b.buf_len("a") + b.load("a", 0)))
    assert output(source, [u32()], elements=0) == []
    assert output(source, [u32()], elements=3) == [0, 0, 0]


def test_untouched_bytes_stay_and_stored_nans_are_canonical() -> None:
    signalling = np.array([0x7F800001, 0xFFC00123, 0x7F800001], np.uint32).view(np.float32)
    source = program([updating(dtype=DType.F32)], 1, b.store("s", 2, b.load("s", 1)))
    result = run(source, [signalling], grid=(1,))
    assert result.outputs["s"].view(np.uint32).tolist() == [0x7F800001, 0xFFC00123, 0x7FC00000]


def test_any_byte_but_zero_is_true_and_stays() -> None:
    source = program([updating(dtype=DType.BOOL), out(1)], 1, b.store("out", 0, b.cast(U32, b.load("s", 1))))
    result = run(source, [bytes([0, 2])], grid=(1,))
    assert values(result) == [1]
    assert result.output_bytes("s") == bytes([0, 2])


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_every_bit_pattern_survives_a_load_and_a_store(dtype: DType) -> None:
    if dtype.bits <= 16:
        raw = np.arange(1 << max(1, dtype.bits), dtype=dtype.unsigned.storage)
    else:
        raw = np.random.default_rng(1).integers(0, 256, 512 * dtype.bytes, np.uint8)
    data = np.ascontiguousarray(raw).view(dtype.storage)
    source = program([reading(dtype=dtype), out(dtype=dtype)], 1024,
                     b.if_(b.gid() < b.buf_len("a"), [b.store("out", b.gid(), b.load("a", b.gid()))]))  # fmt: skip
    result = run(source, [data], elements=len(data))
    expected = to_storage(from_storage(data, dtype), dtype)
    assert result.outputs["out"].tobytes() == expected.tobytes()


def _samples(dtype: DType) -> np.ndarray:
    raw = np.random.default_rng(7).integers(0, 256, 24 * dtype.bytes, np.uint8)
    if dtype is DType.BOOL:
        return (raw & 1).astype(np.bool_)
    return np.concatenate([np.zeros(8 * dtype.bytes, np.uint8), raw]).view(dtype.storage)


@pytest.mark.parametrize("dtype", ALL_TYPES, ids=str)
def test_the_interpreter_and_the_array_meanings_agree(dtype: DType) -> None:
    """Every operator of the table but the math functions, in one program for each type."""
    names = [name for name, row in OPERATORS.items() if dtype in row.types and name not in MATH_FUNCTIONS]
    first, second = _samples(dtype), _samples(dtype)[::-1].copy()
    statements, buffers, expected = [], [reading("a", dtype=dtype), reading("c", dtype=dtype)], {}
    x, y = b.load("a", b.gid()), b.load("c", b.gid())
    for at, name in enumerate(names):
        row = OPERATORS[name]
        result = row.result_type(dtype)
        buffers.append(out(len(first), f"o{at}", result))
        node = BinOp(name, x, y) if row.arity == 2 else UnOp(name, x)
        statements.append(b.store(f"o{at}", b.gid(), node))
        operands = (from_storage(first, dtype), from_storage(second, dtype))[: row.arity]
        expected[f"o{at}"] = name, to_storage(array_meaning(name, dtype)(*operands), result)
    result = run(program(buffers, len(first), *statements), [first, second], grid=(1,))
    for buffer, (name, array) in expected.items():
        assert result.outputs[buffer].tobytes() == array.tobytes(), name


@pytest.mark.parametrize("source", ALL_TYPES, ids=str)
def test_casts_agree_with_the_array_meanings(source: DType) -> None:
    data = _samples(source)
    outputs = [out(len(data), f"o{t}", t) for t in ALL_TYPES]
    buffers = [reading("a", dtype=source), *outputs]
    entry = [b.store(f"o{t}", b.gid(), b.cast(t, b.load("a", b.gid()))) for t in ALL_TYPES]
    result = run(program(buffers, len(data), *entry), [data], grid=(1,))
    for target in ALL_TYPES:
        expected = to_storage(array_cast(source, target)(from_storage(data, source)), target)
        assert result.outputs[f"o{target}"].tobytes() == expected.tobytes(), target


def test_bitcast_and_fma() -> None:
    assert expression_value(b.bitcast(U32, lit(-0.0))) == 0x80000000
    assert expression_value(b.bitcast(U32, lit(float("nan")))) == 0x7FC00000
    tiny = 2.0**-30
    value = b.fma(lit(1.0 + 2.0**-20), lit(1.0 - 2.0**-20), lit(-1.0))
    assert expression_value(value, DType.F32) == -(2.0**-40)
    assert expression_value(lit(1.0) + lit(tiny), DType.F32) == 1.0


def test_more_literals_than_constant_registers() -> None:
    entry = [b.store("out", k, 3 * k + 1) for k in range(600)]
    assert output(program([out(600)], 1, *entry), grid=(1,)) == [3 * k + 1 for k in range(600)]


def test_expressions_of_depth_1024_both_ways() -> None:
    left: Expr = b.gid()
    right: Expr = b.gid()
    for _ in range(1022):
        left = left + 1
        right = lit(1) + right
    source = program([out(2)], 1, b.store("out", 0, left), b.store("out", 1, right))
    assert output(source, grid=(1,)) == [1022, 1022]


def test_nesting_of_64() -> None:
    body = [b.store("out", 0, b.load("out", 0) + 1)]
    for level in range(62):
        body = [b.if_(b.buf_len("out").eq(1), body) if level % 2 else b.loop(f"k{level}", 0, 1, body)]
    assert output(program([out(1)], 1, *body)) == [1]


def test_a_program_far_over_the_nesting_limit_is_refused_not_overflowed() -> None:
    body = [b.store("out", 0, 1)]
    for _ in range(20_000):
        body = [b.block(*body)]
    with pytest.raises(InvalidProgram):
        run(program([out(1)], 1, *body), ())
    assert output(program([out(1)], 1, *body), checked=True) == [1]


def test_a_million_invocations() -> None:
    result = run(program([out(1 << 20)], 256, b.store("out", b.gid(), b.gid() ^ 5)), ())
    assert np.array_equal(result.outputs["out"], np.arange(1 << 20, dtype=np.uint32) ^ 5)
    assert result.steps == 1 << 20


def test_fuel_is_counted_by_statement() -> None:
    source = program([out(1)], 1, b.let("x", 0), b.loop("k", 0, 3, [b.assign("x", v("k"))]), b.store("out", 0, v("x")))
    # let, the loop and its three passes, three assignments, the store
    assert run(source, ()).steps == 1 + 4 + 3 + 1
    assert run(source, (), fuel=9).steps == 9
    with pytest.raises(FuelExhausted, match="8 statement steps"):
        run(source, (), fuel=8)


@pytest.mark.parametrize("body", [[], [b.continue_()]], ids=["empty", "continue"])
def test_no_loop_hangs(body: list) -> None:
    with pytest.raises(FuelExhausted):
        run(program([out(1)], 1, b.while_(True, body)), (), fuel=10_000)
    with pytest.raises(FuelExhausted):
        run(program([out(1)], 1, b.loop("k", 0, 2**32 - 1, body)), (), fuel=10_000)


def test_inputs_are_left_alone() -> None:
    data = u32(1, 2)
    assert output(program([updating()], 1, b.store("s", b.gid(), 9)), [data], "s") == [9, 9]
    assert data.tolist() == [1, 2]


def test_output_ranges_apply_to_bytes_only() -> None:
    source = program([out(4).with_output_byte_range(4, 12)], 4, b.store("out", b.gid(), b.gid() + 1))
    result = run(source, ())
    assert values(result) == [1, 2, 3, 4]
    assert result.output_bytes("out") == u32(2, 3).tobytes()


def test_calls_run_their_definition() -> None:
    twice = CompositeOp("test.reference.twice", (("x", U32),), U32, v("y") + v("x"), (b.let("y", v("x")),))
    register_op(twice)
    source = program([out(2)], 1, b.store("out", b.gid(), b.call("test.reference.twice", b.gid() + 3) + 1))
    assert output(source) == [7, 9]


def test_illegal_programs_are_refused_with_their_diagnostics() -> None:
    with pytest.raises(InvalidProgram, match="Fix:") as caught:
        run(program([out(1)], 1, b.store("out", 0, v("missing"))), ())
    assert caught.value.diagnostics


def test_a_grid_too_large_to_interpret_is_refused() -> None:
    with pytest.raises(BadInputs, match="invocations"):
        run(program([out(1)], 1, b.store("out", 0, 1)), (), grid=(MAX_INVOCATIONS + 1,))


def test_an_output_too_large_for_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("vyre.reference.memory.np.zeros", no_memory)
    with pytest.raises(BadInputs, match="fit in memory"):
        run(program([out()], 1, b.store("out", 0, 1)), (), grid=(1,), elements=1 << 20)
