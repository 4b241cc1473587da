"""Reductions, histograms and counts give NumPy's results, in one order, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib_support import (
    BACKENDS,
    LENGTHS,
    SCALAR,
    Array,
    backend_of,
    by_segment,
    length_for,
    random_elements,
    segments_of,
    sum_order,
)

import vyre
from vyre.lib import reduce, reduce_kernels
from vyre.lib.reduce_kernels import Reduction
from vyre.semantics.types import DType

FLOATS = (DType.F16, DType.F32, DType.F64)
INTEGERS = tuple(dtype for dtype in reduce.COUNTABLE if dtype.is_integer)
# Those whose kernels are compiled in every run, and those for which that takes too long.
OFTEN = (DType.BOOL, DType.U8, DType.I32, DType.U64, DType.F32)
TYPES = [d if d in OFTEN else pytest.param(d, marks=pytest.mark.long) for d in reduce.COUNTABLE]
SUMS = {"b": np.int64, "i": np.int64, "u": np.uint64}


def expected_sum(x: Array) -> Any:
    """As NumPy adds integers, and floats in the order of the module."""
    if x.dtype.kind != "f":
        return x.sum(dtype=SUMS[x.dtype.kind])
    return x.dtype.type(sum_order(x.astype(np.float32) if x.dtype == np.float16 else x)) if len(x) else x.dtype.type(0)


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("count", LENGTHS)
def test_every_length_is_reduced(count: int) -> None:
    x = random_elements(DType.F32, count)
    assert same(reduce.sum(x), expected_sum(x))
    assert reduce.count(x > 0) == np.count_nonzero(x > 0)
    if count:
        assert (reduce.min(x), reduce.max(x)) == (x.min(), x.max())
        assert (reduce.argmin(x), reduce.argmax(x)) == (x.argmin(), x.argmax())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type_is_reduced(dtype: DType) -> None:
    for count in (1, 5000):
        x = random_elements(dtype, count)
        x[::3] = 0
        assert same(reduce.sum(x), expected_sum(x))
        assert reduce.count(x) == np.count_nonzero(x)
        assert reduce.any(x) is bool(x.any())
        assert reduce.all(x) is bool(x.all())
        if dtype is not DType.BOOL:
            assert same(reduce.min(x), x.min())
            assert same(reduce.max(x), x.max())
            assert (reduce.argmin(x), reduce.argmax(x)) == (x.argmin(), x.argmax())


@pytest.mark.parametrize("name", [*SCALAR, *BACKENDS])
def test_float_sums_have_the_same_bytes_on_every_backend(name: str) -> None:
    x = random_elements(DType.F32, length_for(name, 100_000))
    assert same(reduce.sum(x, backend=backend_of(name)), expected_sum(x))
    if name != "webgpu":
        wide = x.astype(np.float64) / 3
        assert same(reduce.sum(wide, backend=backend_of(name)), expected_sum(wide))


@pytest.mark.parametrize("name", [*SCALAR, *BACKENDS])
def test_reductions_on_every_backend(name: str) -> None:
    where = backend_of(name)
    x = random_elements(DType.I16, length_for(name, 20_000))
    assert same(reduce.sum(x, backend=where), expected_sum(x))
    assert same(reduce.max(x, backend=where), x.max())
    assert reduce.argmin(x, backend=where) == x.argmin()
    assert reduce.count(x, backend=where) == np.count_nonzero(x)
    assert reduce.all(x, backend=where) is bool(x.all())


def test_small_integers_do_not_wrap() -> None:
    assert reduce.sum(np.full(5000, 255, np.uint8)) == 5000 * 255
    assert reduce.sum(np.full(5000, -128, np.int8)) == -5000 * 128
    assert reduce.sum(np.array([1, 1 << 63, 1 << 63], np.uint64)) == 1
    assert reduce.sum(np.full(5000, 100, np.float16)) == np.inf
    assert reduce.sum(np.array([2048, 1, 1], np.float16)) == 2050


def test_nothing_has_a_sum_and_no_extremes() -> None:
    nothing = np.zeros(0, np.float32)
    assert (reduce.sum(nothing), reduce.count(nothing), reduce.any(nothing), reduce.all(nothing)) == (0, 0, False, True)
    assert not np.signbit(reduce.sum(nothing))
    for function in (reduce.min, reduce.max, reduce.argmin, reduce.argmax):
        with pytest.raises(vyre.BadInputs, match="'x' has no elements"):
            function(nothing)
    out = np.ones(1, bool)
    assert reduce.any(nothing, out=out) is out
    assert not out[0]


def test_nans_lose_and_the_first_of_equals_is_found() -> None:
    x = np.array([np.nan, 2, -1, np.nan, -1, 2], np.float32)
    assert (reduce.min(x), reduce.max(x), reduce.argmin(x), reduce.argmax(x)) == (-1, 2, 2, 1)
    nans = np.full(40, np.nan, np.float32)
    assert np.isnan(reduce.min(nans))
    assert reduce.argmax(nans) == 0
    assert np.isnan(reduce.sum(x))
    zeros = np.array([0.0, -0.0], np.float32)
    assert np.signbit(reduce.min(zeros))
    assert not np.signbit(reduce.max(zeros))
    assert (reduce.argmin(zeros), reduce.argmax(zeros)) == (0, 0)
    for at in (0, 15, 16, 4095, 4096, 69_999):
        many = np.zeros(70_000, np.int32)
        many[at:] = 7
        assert reduce.argmax(many) == at
    assert reduce.argmin(many) == 0


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_segment_is_summed_like_an_array_of_its_own(dtype: DType) -> None:
    x = random_elements(dtype, 30_000)
    # Empty ones, one element, fewer than the columns of a chunk, several chunks, and all the rest.
    lengths = [0, 1, 0, 2, 15, 16, 17, 18, 63, 64, 65, 500, 4095, 4096, 4097, 0, 9000, 3]
    offsets = np.cumsum([0, *lengths, len(x) - sum(lengths)]).astype(np.uint32)
    found = reduce.segment_sum(x, offsets)
    assert same(found, np.array(by_segment(expected_sum, x, offsets)))


@pytest.mark.parametrize("dtype", [DType.U8, DType.F32], ids=str)
def test_segments_have_extremes(dtype: DType) -> None:
    x = random_elements(dtype, 20_000)
    offsets = segments_of(len(x), 700)
    offsets[100:110] = offsets[100]
    limits = np.finfo(dtype.storage) if dtype.is_float else np.iinfo(dtype.storage)
    least, most = (-np.inf, np.inf) if dtype.is_float else (limits.min, limits.max)
    found = reduce.segment_min(x, offsets)
    assert same(found, np.array(by_segment(lambda part: part.min(initial=most), x, offsets), x.dtype))
    found = reduce.segment_max(x, offsets)
    assert same(found, np.array(by_segment(lambda part: part.max(initial=least), x, offsets), x.dtype))


@pytest.mark.parametrize("name", BACKENDS)
def test_segments_have_the_same_bytes_on_every_backend(name: str) -> None:
    x = random_elements(DType.F32, length_for(name, 40_000))
    offsets = segments_of(len(x), max(4, len(x) // 3000))
    found = reduce.segment_sum(x, offsets, backend=backend_of(name))
    assert same(found, np.array(by_segment(expected_sum, x, offsets)))


def test_one_segment_may_be_nearly_everything() -> None:
    x = random_elements(DType.F32, 1 << 20)
    offsets = np.array([0, 1, (1 << 20) - 2, 1 << 20], np.uint32)
    assert same(reduce.segment_sum(x, offsets), np.array(by_segment(reduce.sum, x, offsets)))
    many = np.arange(1 << 18, dtype=np.uint32)
    found = reduce.segment_sum(x[: (1 << 18) - 1], many)
    assert same(found, x[: (1 << 18) - 1])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=12), st.integers(0, 9))
def test_any_small_segments(lengths: list[int], seed: int) -> None:
    offsets = np.cumsum([0, *lengths]).astype(np.uint32)
    x = random_elements(DType.F32, int(offsets[-1]), seed)
    expected = np.array(by_segment(expected_sum, x, offsets), np.float32)
    assert same(reduce.segment_sum(x, offsets), expected)


HISTOGRAM_TYPES = [
    d if d in (DType.U8, DType.I32, DType.F32) else pytest.param(d, marks=pytest.mark.long)
    for d in (*INTEGERS, *FLOATS)
]


@pytest.mark.parametrize("dtype", HISTOGRAM_TYPES, ids=str)
def test_histograms_are_those_of_numpy(dtype: DType) -> None:
    random = np.random.default_rng(8)
    x = random.normal(40, 20, 4000) if dtype.is_float else random.integers(0, 100, 4000)
    x = x.astype(dtype.storage)
    ranges = (None, (-10, 50), (3.5, 17.25), (-1000.0, 1000.0), (500, 900))
    for bins in (1, 7, 256, 3000):
        for limits in ranges[:2] if bins == 3000 else ranges:
            if dtype is DType.F16 and bins > 7:
                continue  # NumPy's edges are f16 too, and too few
            assert same(reduce.histogram(x, bins, range=limits), np.histogram(x, bins, limits)[0].astype(np.uint32))


def test_histograms_of_special_arrays() -> None:
    assert reduce.histogram(np.full(5, 7, np.uint8), 3).tolist() == np.histogram(np.full(5, 7), 3)[0].tolist()
    assert reduce.histogram(np.zeros(0, np.float32), 3).tolist() == [0, 0, 0]
    with_nan = np.array([1, np.nan, 2, 2], np.float32)
    assert reduce.histogram(with_nan, 2).tolist() == [1, 2]
    wide = np.array([-(2**62), 0, 2**62, 5], np.int64)
    assert reduce.histogram(wide, 4).tolist() == np.histogram(wide, 4)[0].tolist()
    close = np.float32(1e9) + np.arange(0, 640, 64, dtype=np.float32)
    assert reduce.histogram(close, 3).tolist() == np.histogram(close, 3)[0].tolist()


def test_counts_are_those_of_numpy() -> None:
    for dtype, most in ((np.uint8, 200), (np.int32, 1000), (np.uint32, 5000)):
        x = np.random.default_rng(most).integers(0, most, 9000).astype(dtype)
        assert same(reduce.bincount(x), np.bincount(x).astype(np.uint32))
    assert reduce.bincount(np.zeros(0, np.uint32)).size == 0
    assert reduce.bincount(np.zeros(0, np.uint32), 3).tolist() == [0, 0, 0]
    assert reduce.bincount(np.array([1, 1], np.uint32), minlength=4).tolist() == [0, 2, 0, 0]


@pytest.mark.parametrize("name", ["cpu 8x2", "webgpu", "reference"])
def test_histograms_and_counts_on_every_backend(name: str) -> None:
    x = random_elements(DType.F32, length_for(name, 9000))
    assert same(reduce.histogram(x, 9, backend=backend_of(name)), np.histogram(x, 9)[0].astype(np.uint32))
    keys = np.abs(x).astype(np.uint32) % 12
    assert same(reduce.bincount(keys, backend=backend_of(name)), np.bincount(keys).astype(np.uint32))
    if name != "webgpu":
        weighed = reduce.bincount(keys, weights=x, backend=backend_of(name))
        assert same(weighed, np.array([expected_sum(x[keys == key]) for key in range(12)]))


def test_weights_are_summed_in_order_by_bin() -> None:
    keys = np.random.default_rng(6).integers(0, 37, 9000).astype(np.int32)
    for dtype in (DType.F64, DType.U8):
        weights = random_elements(dtype, 9000)
        expected = np.array([expected_sum(weights[keys == key]) for key in range(40)])
        assert same(reduce.bincount(keys, 40, weights=weights), expected)
    assert reduce.bincount(keys[:0], 2, weights=np.zeros(0)).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["cpu 16x2", "webgpu"])
def test_results_stay_on_the_device(name: str) -> None:
    host = random_elements(DType.U32, 6000)
    x = vyre.array(host, backend=backend_of(name))
    out = vyre.array(np.zeros(1, np.uint64), backend=backend_of(name))
    assert reduce.sum(x, out=out) is out
    assert out.numpy()[0] == host.sum(dtype=np.uint64)
    assert reduce.sum(x) == host.sum(dtype=np.uint64)
    position = np.zeros(1, np.uint32)
    assert reduce.argmax(host, out=position, backend=backend_of(name)) is position
    assert position[0] == host.argmax()
    offsets = vyre.array(np.array([0, 10, 6000], np.uint32), backend=backend_of(name))
    assert reduce.segment_max(x, offsets).numpy().tolist() == [host[:10].max(), host[10:].max()]


F32 = np.zeros(3, np.float32)
WRONG = {
    "'x' has elements of type complex128": lambda: reduce.sum(np.zeros(3, complex)),
    "'x' has elements of type bool": lambda: reduce.min(np.zeros(3, bool)),
    "'out' has elements of type float64, expected f32": lambda: reduce.sum(F32, out=np.zeros(1)),
    "'out' has 2 elements, expected 1": lambda: reduce.sum(F32, out=F32[:2]),
    "'offsets' falls from 2 to 1 at position 2": lambda: reduce.segment_sum(F32, np.array([0, 2, 1, 3], np.uint32)),
    "'offsets' is 2 at position 1, where segments end": lambda: reduce.segment_max(F32, np.array([0, 2], np.uint32)),
    "'bins' is 0": lambda: reduce.histogram(F32, 0),
    "'bins' is 2.5": lambda: reduce.histogram(F32, 2.5),  # type: ignore[arg-type]
    "'range' is no range of bins": lambda: reduce.histogram(F32, 3, range=(2, 1)),
    "the range of 'x' is no range of bins": lambda: reduce.histogram(F32 + np.inf, 3),
    "'x' has the element -5 at position 2": lambda: reduce.bincount(np.array([0, 1, -5, -6], np.int32)),
    "'x' has elements of type float32": lambda: reduce.bincount(F32),
    "'weights' has 3 elements, expected 2": lambda: reduce.bincount(np.zeros(2, np.uint32), weights=F32),
    "'minlength' is -1": lambda: reduce.bincount(np.zeros(2, np.uint32), -1),
    "'x' has the element 18,446,744,073,709,551,615": lambda: reduce.bincount(np.array([2**64 - 1], np.uint64)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_named(message: str) -> None:
    with pytest.raises(vyre.BadInputs) as raised:
        WRONG[message]()
    assert message in str(raised.value)


def test_types_that_a_backend_lacks_are_refused_by_its_name() -> None:
    with pytest.raises(vyre.UnsupportedFeature, match="webgpu"):
        reduce.sum(np.zeros(4), backend=backend_of("webgpu"))


def test_kernels_have_no_races() -> None:
    x = np.arange(40, dtype=np.float32) % 7
    total = Reduction("add", DType.F32, DType.F32, DType.F32)
    one, u32 = np.zeros(1, np.float32), np.zeros(1, np.uint32)
    offsets, ends = np.array([0, 3, 3, 40], np.uint32), np.array([0, 0, 0, 1], np.uint32)
    fault = np.array([0xFFFFFFFF], np.uint32)
    keys = (x % 5).astype(np.uint32)
    reports = [
        reduce_kernels.chunk_kernel(total).grid(1).debug(x, one),
        reduce_kernels.first_position_kernel("min", DType.F32).grid(1).debug(x, u32),
        reduce_kernels.next_position_kernel("min", DType.F32).grid(1).debug(x, np.arange(40, dtype=np.uint32), u32),
        reduce_kernels.short_kernel(total, True)[3].debug(x, offsets, np.zeros(4, np.uint32), np.zeros(3, np.float32)),
        reduce_kernels.find_owners[1].debug(ends, u32),
        reduce_kernels.piece_kernel(total).grid(1).debug(x, offsets, ends, u32 + 2, one),
        reduce_kernels.histogram_kernel(DType.F32, DType.F32, 4)[40].debug(
            x, np.array([0, 2, 4], np.float32), 0.0, 6.0, 0.5, np.zeros(4, np.uint32)
        ),
        reduce_kernels.bincount_kernel(DType.U32, None)[40].debug(keys, np.zeros(5, np.uint32)),
        reduce_kernels.negative_kernel(DType.I32)[40].debug(keys.astype(np.int32) - 1, fault),
        reduce_kernels.keys_kernel(DType.U32)[40].debug(keys, keys * 0, keys * 0),
        reduce_kernels.gather_kernel(DType.F32)[40].debug(x, keys, x * 0),
        reduce_kernels.test_bit[40].debug(keys, 1, np.zeros(40, np.uint8)),
        reduce_kernels.copy_first[4].debug(keys, np.zeros(4, np.uint32)),
    ]
    for report in reports:
        assert report.ok, report


def test_functions_show_their_programs() -> None:
    assert str(reduce.sum.program).startswith("program reduce_chunks(workgroup 16)")
    for name in reduce.__all__:
        assert getattr(reduce, name).program
