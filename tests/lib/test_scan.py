"""Scans, compaction and partition give NumPy's results, in one order, on every backend."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib_support import (
    BACKENDS,
    LENGTHS,
    Array,
    backend_of,
    length_for,
    random_elements,
    scan_order,
    segments_of,
)

import vyre
from vyre.lib import scan, scan_kernels
from vyre.semantics.types import DType

UFUNCS: dict[str, Any] = {
    "add": np.add,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
STARTS: dict[str, Any] = {
    "add": lambda _: 0,
    "min": lambda dtype: np.inf if dtype.kind == "f" else np.iinfo(dtype).max,
    "max": lambda dtype: -np.inf if dtype.kind == "f" else np.iinfo(dtype).min,
    "and": lambda dtype: -1 if dtype.kind == "i" else np.iinfo(dtype).max,
    "or": lambda _: 0,
    "xor": lambda _: 0,
}
EVERY_CASE = {(op, dtype) for op, dtypes in scan.OPS.items() for dtype in dtypes} - {
    ("add", dtype) for dtype in DType if dtype.is_float
}
CASES = [
    *(("add", dtype) for dtype in (DType.U8, DType.I16, DType.I64)),
    *((op, dtype) for op in ("min", "max") for dtype in (DType.I32, DType.F32)),
    *(("and", DType.I16), ("or", DType.U8), ("xor", DType.U64)),
]


def expected_scan(x: Array, op: str, *, exclusive: bool = False) -> Array:
    """By NumPy's ufuncs, which combine from left to right."""
    scanned = UFUNCS[op].accumulate(x, dtype=x.dtype)
    if not exclusive:
        return scanned
    start = np.array([STARTS[op](x.dtype)], x.dtype)
    return np.concatenate([start, UFUNCS[op](start, scanned[:-1], dtype=x.dtype)]) if len(x) else x


def expected_segments(x: Array, op: str, starts: Array, *, exclusive: bool = False) -> Array:
    bounds = [0, *(np.flatnonzero(starts[1:]) + 1).tolist(), len(x)] if len(x) else [0]
    parts = [expected_scan(x[start:stop], op, exclusive=exclusive) for start, stop in pairwise(bounds)]
    return np.concatenate(parts) if parts else x


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("count", LENGTHS)
def test_every_length_is_scanned(count: int) -> None:
    x = random_elements(DType.U32, count)
    assert same(scan.inclusive(x), expected_scan(x, "add"))
    assert same(scan.exclusive(x), expected_scan(x, "add", exclusive=True))


def test_sixteen_million_elements_are_scanned() -> None:
    x = random_elements(DType.U32, 1 << 24)
    assert same(scan.exclusive(x), np.cumsum(x, dtype=np.uint32) - x)


@pytest.mark.parametrize(("op", "dtype"), CASES, ids=str)
def test_every_operator(op: str, dtype: DType) -> None:
    check_operator(op, dtype)


@pytest.mark.long
@pytest.mark.parametrize(("op", "dtype"), sorted(EVERY_CASE - {*CASES}, key=str), ids=str)
def test_every_operator_and_type(op: str, dtype: DType) -> None:
    check_operator(op, dtype)


def check_operator(op: str, dtype: DType) -> None:
    x = random_elements(dtype, 5000)
    if dtype.is_float:
        x[::7] = np.nan
    assert same(scan.inclusive(x, op), expected_scan(x, op))
    assert same(scan.exclusive(x, op), expected_scan(x, op, exclusive=True))


@pytest.mark.parametrize("dtype", [DType.F32, pytest.param(DType.F16, marks=pytest.mark.long), DType.F64], ids=str)
def test_float_sums_have_the_order_that_the_module_states(dtype: DType) -> None:
    x = random_elements(dtype, 9001)
    assert same(scan.inclusive(x), scan_order(x))
    assert same(scan.exclusive(x), scan_order(x, exclusive=True))
    if dtype is DType.F64:
        assert np.allclose(scan.inclusive(x), np.cumsum(x))


@pytest.mark.parametrize("name", BACKENDS)
def test_float_sums_have_the_same_bytes_on_every_backend(name: str) -> None:
    x = random_elements(DType.F32, length_for(name, 150_000))
    assert same(scan.inclusive(x, backend=backend_of(name)), scan_order(x))
    if name != "webgpu":
        assert same(scan.exclusive(x, backend=backend_of(name)), scan_order(x, exclusive=True))


def test_zeros_keep_their_sign_and_nans_lose() -> None:
    x = np.array([-0.0, -0.0, 0.0], np.float32)
    assert np.signbit(scan.inclusive(x)).tolist() == [True, True, False]
    assert np.signbit(scan.exclusive(x)).tolist() == [False, False, False]
    nans = np.array([np.nan, np.nan, 1, np.nan], np.float32)
    assert np.array_equal(scan.inclusive(nans, "min"), [np.nan, np.nan, 1, 1], equal_nan=True)
    assert np.array_equal(scan.exclusive(nans, "max"), [-np.inf, -np.inf, -np.inf, 1])


@pytest.mark.parametrize("flag", scan.MASKS, ids=str)
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_flags_start_segments(flag: DType, is_exclusive: bool) -> None:
    function = scan.exclusive if is_exclusive else scan.inclusive
    for count, share in ((1, 1), (17, 0.3), (4097, 0.05), (70_000, 0.0001), (70_000, 0)):
        x = random_elements(DType.U32, count)
        flags = (np.random.default_rng(count).random(count) < share).astype(flag.storage)
        if flag is DType.U32:
            flags *= 0x10000  # any value but zero
        assert same(function(x, flags=flags), expected_segments(x, "add", flags != 0, exclusive=is_exclusive))


@pytest.mark.parametrize(("op", "dtype"), [("max", DType.I32), ("add", DType.F64), ("xor", DType.U8)], ids=str)
def test_segments_of_other_operators(op: str, dtype: DType) -> None:
    # Whole numbers add up to the same in any order.
    x = np.random.default_rng(5).integers(0, 100, 6000).astype(dtype.storage)
    offsets = segments_of(len(x), 300)
    starts = np.zeros(len(x), bool)
    starts[offsets[offsets < len(x)]] = True
    assert same(scan.inclusive(x, op, offsets=offsets), expected_segments(x, op, starts))
    assert same(scan.exclusive(x, op, offsets=offsets), expected_segments(x, op, starts, exclusive=True))


@pytest.mark.parametrize("name", BACKENDS)
def test_segmented_sums_have_the_same_bytes_on_every_backend(name: str) -> None:
    x = random_elements(DType.F32, length_for(name, 20_000))
    offsets = segments_of(len(x), len(x) // 50)
    found = scan.inclusive(x, offsets=offsets, backend=backend_of(name))
    assert same(found, scan.inclusive(x, offsets=offsets, backend=backend_of("cpu 4x1")))
    # A segment within one row is summed from left to right by pairs; each agrees with a scan of its own up to rounding.
    parts = [scan.inclusive(x[a:b]) for a, b in pairwise(offsets)]
    assert np.allclose(found, np.concatenate(parts), rtol=1e-4, atol=1e-3)


def test_empty_segments_and_empty_arrays() -> None:
    x = np.array([1, 2, 3], np.uint32)
    offsets = np.array([0, 0, 2, 2, 2, 3, 3], np.uint32)
    assert scan.inclusive(x, offsets=offsets).tolist() == [1, 3, 3]
    nothing = np.zeros(0, np.uint32)
    assert scan.inclusive(nothing, offsets=np.zeros(1, np.uint32)).size == 0
    assert scan.exclusive(nothing, flags=np.zeros(0, bool)).size == 0
    assert scan.compact(nothing, np.zeros(0, bool)).size == 0
    assert scan.partition(nothing, np.zeros(0, bool))[1] == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=90))
def test_any_small_array(items: list[tuple[int, bool, bool]]) -> None:
    x = np.array([value for value, _, _ in items], np.uint32)
    flags = np.array([flag for _, flag, _ in items], bool)
    mask = np.array([chosen for _, _, chosen in items], bool)
    segments = list(accumulate(items, lambda a, b: b if b[1] else (a[0] + b[0], a[1], a[2])))
    assert scan.inclusive(x, flags=flags).tolist() == [value for value, _, _ in segments]
    assert scan.compact(x, mask).tolist() == x[mask].tolist()
    parted, kept = scan.partition(x, mask)
    assert (parted.tolist(), kept) == ([*x[mask], *x[~mask]], mask.sum())


@pytest.mark.parametrize("count", LENGTHS)
def test_every_length_is_compacted(count: int) -> None:
    x = random_elements(DType.U32, count)
    mask = np.random.default_rng(count).random(count) < 0.3
    assert same(scan.compact(x, mask), x[mask])
    assert same(scan.compact_indices(mask), np.flatnonzero(mask).astype(np.uint32))
    parted, kept = scan.partition(x, mask)
    assert same(parted, np.concatenate([x[mask], x[~mask]]))
    assert kept == np.count_nonzero(mask)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BF16], ids=str)
def test_every_type_is_moved_bit_by_bit(dtype: DType) -> None:
    raw = np.random.default_rng(2).bytes(3000 * dtype.bytes)
    x = random_elements(dtype, 3000) if dtype is DType.BOOL else np.frombuffer(raw, dtype.storage)
    mask = np.arange(3000) % 3 == 0
    assert same(scan.compact(x, mask), x[mask])
    assert same(scan.partition(x, mask)[0], np.concatenate([x[mask], x[~mask]]))


@pytest.mark.parametrize("flag", scan.MASKS, ids=str)
@pytest.mark.parametrize("chosen", [0.0, 0.01, 1.0])
def test_masks_of_every_type(flag: DType, chosen: float) -> None:
    mask = (np.random.default_rng(4).random(10_000) < chosen).astype(flag.storage)
    x = np.arange(10_000, dtype=np.uint32)
    assert same(scan.compact(x, mask), x[mask != 0])
    assert same(scan.compact_indices(mask), x[mask != 0])
    assert same(scan.partition(x, mask)[0], np.concatenate([x[mask != 0], x[mask == 0]]))


@pytest.mark.parametrize("name", BACKENDS)
def test_compaction_on_every_backend(name: str) -> None:
    x = random_elements(DType.I32, length_for(name, 20_000))
    mask = x % 3 == 0
    where = backend_of(name)
    assert same(scan.compact(x, mask, backend=where), x[mask])
    assert same(scan.compact_indices(mask, backend=where), np.flatnonzero(mask).astype(np.uint32))
    parted, kept = scan.partition(x, mask, backend=where)
    assert same(parted, np.concatenate([x[mask], x[~mask]]))
    assert kept == mask.sum()


@pytest.mark.parametrize("name", ["cpu 16x2", "webgpu"])
def test_device_arrays_stay_on_their_device(name: str) -> None:
    host = random_elements(DType.U32, 6000)
    x = vyre.array(host, backend=backend_of(name))
    mask = vyre.array(host % 2 == 0, backend=backend_of(name))
    total = scan.exclusive(x)
    assert total.backend is x.backend
    kept = scan.compact(total, mask)
    assert same(kept.numpy(), expected_scan(host, "add", exclusive=True)[host % 2 == 0])
    out = vyre.array(np.zeros_like(host), backend=backend_of(name))
    assert scan.inclusive(x, out=out) is out
    assert same(out.numpy(), expected_scan(host, "add"))
    assert same(x.numpy(), host)


@pytest.mark.parametrize("name", ["cpu 16x2", "webgpu"])
def test_results_go_to_the_arrays_of_the_caller(name: str) -> None:
    x, mask = random_elements(DType.I16, 100), np.arange(100) % 4 == 0
    out = np.zeros_like(x)
    assert scan.exclusive(x, "max", out=out, backend=backend_of(name)) is out
    assert same(out, expected_scan(x, "max", exclusive=True))
    assert scan.partition(x, mask, out=out, backend=backend_of(name))[0] is out
    assert same(out, np.concatenate([x[mask], x[~mask]]))
    kept = np.zeros(25, np.int16)
    assert scan.compact(x, mask, out=kept, backend=backend_of(name)) is kept
    assert same(kept, x[mask])


@pytest.mark.parametrize("name", ["cpu 16x2", "webgpu"])
def test_resident_buffers_hold_words(name: str) -> None:
    host, where = random_elements(DType.U32, 500), backend_of(name)
    x, mask, out = (where.allocate(2000) for _ in range(3))
    try:
        where.upload(x, host)
        where.upload(mask, host % 5)
        assert scan.inclusive(x, out=out) is out
        assert bytes(where.download(out)) == expected_scan(host, "add").tobytes()
        assert same(scan.compact(x, mask).numpy(), host[host % 5 != 0])
    finally:
        for buffer in (x, mask, out):
            where.free(buffer)


def test_halves_of_f32_are_moved() -> None:
    host = np.arange(100, dtype=np.uint16)
    x = vyre.array(host, dtype=vyre.bf16, backend=backend_of("cpu 16x2"))
    kept = scan.compact(x, vyre.array(host % 3 == 0, backend=backend_of("cpu 16x2")))
    assert (kept.dtype, kept.numpy().tolist()) == (DType.BF16, host[host % 3 == 0].tolist())


def test_an_out_that_is_the_operand_is_refused() -> None:
    x = random_elements(DType.U32, 50)
    with pytest.raises(vyre.BadInputs, match="share"):
        scan.inclusive(x, out=x)


def test_views_are_scanned() -> None:
    x = random_elements(DType.U32, 400)
    assert same(scan.inclusive(x[::-3]), expected_scan(x[::-3], "add"))


U32 = np.zeros(4, np.uint32)
WRONG = {
    "'op' is 'mul'": lambda: scan.inclusive(U32, "mul"),
    "'op' is 3": lambda: scan.inclusive(U32, 3),  # type: ignore[arg-type]
    "'x' has elements of type float32, expected u32": lambda: scan.inclusive(U32.astype(np.float32), "and"),
    "'x' has elements of type bool": lambda: scan.inclusive(U32 == 0),
    "'x' has shape (2, 2)": lambda: scan.inclusive(U32.reshape(2, 2)),
    "'x' is a list": lambda: scan.inclusive([1, 2]),
    "both 'offsets' and 'flags'": lambda: scan.inclusive(U32, offsets=U32, flags=U32),
    "'flags' has 3 elements, expected 4": lambda: scan.inclusive(U32, flags=U32[:3]),
    "'mask' has elements of type int64": lambda: scan.compact(U32, U32.astype(np.int64)),
    "'mask' has 3 elements, expected 4": lambda: scan.partition(U32, U32[:3]),
    "'out' has 4 elements, expected 2": lambda: scan.compact(U32, np.arange(4) < 2, out=U32),
    "'out' has elements of type float64": lambda: scan.inclusive(U32, out=np.zeros(4)),
    "'offsets' is empty": lambda: scan.inclusive(U32, offsets=U32[:0]),
    "'offsets' is 1 at position 0, where segments start": lambda: scan.inclusive(U32, offsets=U32 + 1),
    "'offsets' falls from 3 to 2 at position 2": lambda: scan.inclusive(
        U32, offsets=np.array([0, 3, 2, 1, 4], np.uint32)
    ),
    "'offsets' is 3 at position 1, where segments end": lambda: scan.inclusive(
        U32, offsets=np.array([0, 3], np.uint32)
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_named(message: str) -> None:
    with pytest.raises(vyre.BadInputs) as raised:
        WRONG[message]()
    assert message in str(raised.value)


def test_an_array_that_is_too_long_is_refused_before_anything_runs() -> None:
    huge = np.broadcast_to(np.uint8(0), scan.MAX_LENGTH + 1)
    with pytest.raises(vyre.BadInputs, match=r"has 4,294,963,201 elements"):
        scan.inclusive(huge)


def test_types_that_a_backend_lacks_are_refused_by_its_name() -> None:
    with pytest.raises(vyre.UnsupportedFeature, match="webgpu"):
        scan.inclusive(np.zeros(4), backend=backend_of("webgpu"))


def test_kernels_have_no_races() -> None:
    x = np.arange(40, dtype=np.float32)
    totals, breaks, out = np.zeros(1, np.float32), np.zeros(1, np.uint32), np.zeros_like(x)
    flags = np.arange(40) % 7 == 0
    count, ends = np.array([6], np.uint32), np.array([6], np.uint32)
    offsets = np.array([0, 3, 3, 40], np.uint32)
    for is_exclusive in (False, True):
        kernel = scan_kernels.scan_kernel("add", DType.F32, is_exclusive)
        report = kernel.grid(2).debug(x, totals, out)
        assert report.ok, report
        kernel = scan_kernels.segmented_kernel("max", DType.F32, DType.BOOL, is_exclusive)
        report = kernel.grid(2).debug(x, flags, totals, breaks, out)
        assert report.ok, report
    bits = x.view(np.uint32)
    reports = [
        scan_kernels.count_kernel(DType.BOOL).grid(1).debug(flags, count),
        scan_kernels.compact_kernel(DType.U32, DType.BOOL)
        .grid(1)
        .debug(bits, flags, count, ends, np.zeros(6, np.uint32)),
        scan_kernels.indices_kernel(DType.BOOL).grid(1).debug(flags, count, ends, np.zeros(6, np.uint32)),
        scan_kernels.partition_kernel(DType.U32, DType.BOOL)
        .grid(1)
        .debug(bits, flags, count, ends, np.zeros(40, np.uint32), 6),
        scan_kernels.mark_starts[3].debug(offsets, np.zeros(40, np.uint8)),
        scan_kernels.find_fault[4].debug(offsets, 41, np.array([0xFFFFFFFF], np.uint32)),
    ]
    for report in reports:
        assert report.ok, report


@pytest.mark.long
def test_blocks_of_several_workgroups_have_no_races() -> None:
    x = np.arange(3 * 4096 + 5, dtype=np.uint32)
    report = (
        scan_kernels.scan_kernel("add", DType.U32, True).grid(2).debug(x, np.zeros(4, np.uint32), x * 0, schedules=3)
    )
    assert report.ok, report


def test_functions_show_their_programs() -> None:
    assert str(scan.exclusive.program).startswith("program scan_blocks(workgroup 16, subgroup 16)")
    assert scan.compact_indices.program.name == "list_chosen"
