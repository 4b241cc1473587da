"""Bitsets are sets: every operation gives what NumPy's bools give, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib_support import BACKENDS, Array, backend_of, length_for

import vyre
from vyre.lib import bitset, bitset_kernels
from vyre.semantics.types import DType

COUNTS = (0, 1, 31, 32, 33, 64, 100, 2047, 2048, 2049, 100_000)
NONE = 0xFFFFFFFF
OPERATORS: dict[str, tuple[Any, Callable[[Array, Array], Array]]] = {
    "and": (bitset.and_, lambda a, b: a & b),
    "or": (bitset.or_, lambda a, b: a | b),
    "xor": (bitset.xor, lambda a, b: a ^ b),
    "and_not": (bitset.and_not, lambda a, b: a & ~b),
}


def random_bools(count: int, share: float = 0.3, seed: int = 0) -> Array:
    return np.random.default_rng([seed, count]).random(count) < share


def packed(bools: Array) -> Array:
    """The definition: bit i is bit i & 31 of word i >> 5."""
    whole = np.append(bools, np.zeros(-len(bools) % 32, bool))
    return np.packbits(whole, bitorder="little").view(np.uint32)


def same(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("count", COUNTS)
def test_sets_are_made_of_bools_and_of_indices(count: int) -> None:
    bools = random_bools(count)
    words = bitset.from_bools(bools)
    assert len(words) == bitset.words_for(count)
    assert same(words, packed(bools))
    assert same(bitset.to_bools(words, count), bools)
    positions = np.flatnonzero(bools).astype(np.uint32)
    assert same(bitset.indices(words), positions)
    shuffled = np.random.default_rng(1).permutation(np.concatenate([positions, positions[::3]]))
    assert same(bitset.from_indices(shuffled, count), words)
    assert same(bitset.zeros(count), words * 0)


@pytest.mark.parametrize("flag", [DType.BOOL, DType.U8, DType.U32], ids=str)
def test_bools_of_every_type(flag: DType) -> None:
    bools = random_bools(3000)
    given_ = bools.astype(flag.storage) * flag.storage.type(flag.maximum)
    assert same(bitset.from_bools(given_), packed(bools))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("count", [0, 1, 33, 5000])
def test_sets_are_combined_apart_and_in_place(name: str, count: int) -> None:
    function, meaning = OPERATORS[name]
    p, q = random_bools(count), random_bools(count, 0.5, seed=1)
    a, b = packed(p), packed(q)
    expected = packed(meaning(p, q))
    assert same(function(a, b), expected)
    assert (same(a, packed(p)), same(b, packed(q))) == (True, True)
    out = np.full_like(a, 7)
    assert function(a, b, out=out) is out
    assert same(out, expected)
    left, right, both = a.copy(), b.copy(), a.copy()
    assert function(left, b, out=left) is left
    assert same(left, expected)
    assert function(a, right, out=right) is right
    assert same(right, expected)
    assert same(function(both, both, out=both), packed(meaning(p, p)))
    assert same(function(a, a), packed(meaning(p, p)))


@pytest.mark.parametrize("count", COUNTS)
def test_a_complement_has_zeros_behind_its_end(count: int) -> None:
    bools = random_bools(count)
    words = packed(bools)
    assert same(bitset.not_(words, count), packed(~bools))
    assert bitset.not_(words, count, out=words) is words
    assert same(words, packed(~bools))


@pytest.mark.parametrize("count", COUNTS)
def test_sets_are_compared_and_counted(count: int) -> None:
    p, q = random_bools(count), random_bools(count, 0.5, seed=1)
    a, b = packed(p), packed(q)
    assert bitset.popcount(a) == p.sum()
    assert bitset.any(a) is bool(p.any())
    assert bitset.any(a * 0) is False
    assert bitset.equal(a, a) is True
    assert bitset.equal(a, a.copy()) is True
    assert bitset.equal(a, b) is bool((p == q).all())
    assert bitset.subset(a, b) is not bool((p & ~q).any())
    assert bitset.subset(packed(p & q), b) is True
    if count:
        other = a.copy()
        other[-1] ^= 1
        assert bitset.equal(a, other) is False


@pytest.mark.parametrize("count", COUNTS)
def test_bits_are_found_by_rank(count: int) -> None:
    bools = random_bools(count)
    bools[count // 3 : 2 * count // 3] = False
    positions = np.flatnonzero(bools)
    ranks = np.random.default_rng(2).integers(0, 2 * len(positions) + 2, 300).astype(np.uint32)
    expected = [positions[rank] if rank < len(positions) else NONE for rank in ranks]
    assert bitset.select(packed(bools), ranks).tolist() == expected
    assert bitset.select(packed(bools), ranks[:0]).size == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 130).flatmap(lambda n: st.tuples(st.just(n), st.lists(st.integers(0, n - 1)))))
def test_any_indices_are_set_cleared_and_tested(case: tuple[int, list[int]]) -> None:
    count, given_ = case
    indices = np.array(given_, np.uint32)
    bools = random_bools(count)
    words, changed = packed(bools), bools.copy()
    assert same(bitset.test_bits(words, indices, count=count), bools[indices])
    changed[indices] = True
    assert bitset.set_bits(words, indices, count=count) is words
    assert same(words, packed(changed))
    changed[indices[::2]] = False
    assert bitset.clear_bits(words, indices[::2]) is words
    assert same(words, packed(changed))


def test_many_indices_fall_into_one_word() -> None:
    indices = np.tile(np.arange(0, 64, 3, dtype=np.uint32), 2000)
    words = bitset.set_bits(np.zeros(2, np.uint32), indices, backend=backend_of("cpu 16x2"))
    assert same(bitset.indices(words), np.unique(indices))


def test_a_set_is_copied_and_emptied() -> None:
    words = packed(random_bools(100))
    copied = bitset.copy(words)
    assert same(copied, words)
    assert copied is not words
    assert bitset.copy(words, out=words) is words
    assert bitset.zero(words) is words
    assert not words.any()
    assert bitset.copy(words[:0]).size == 0


@pytest.mark.parametrize("name", BACKENDS)
def test_sets_on_every_backend(name: str) -> None:
    where, count = backend_of(name), length_for(name, 3000)
    p, q = random_bools(count), random_bools(count, 0.5, seed=1)
    a, b = bitset.from_bools(p, backend=where), packed(q)
    positions = np.flatnonzero(p).astype(np.uint32)
    assert same(a, packed(p))
    assert same(bitset.to_bools(a, count, backend=where), p)
    assert same(bitset.and_not(a, b, backend=where), packed(p & ~q))
    assert same(bitset.not_(a, count, backend=where), packed(~p))
    assert same(bitset.indices(a, backend=where), positions)
    assert same(bitset.from_indices(positions, count, backend=where), a)
    assert bitset.popcount(a, backend=where) == p.sum()
    assert bitset.subset(a, b, backend=where) is False
    assert bitset.select(a, np.array([1, count], np.uint32), backend=where).tolist() == [positions[1], NONE]
    changed = a.copy()
    assert bitset.set_bits(changed, np.arange(9, dtype=np.uint32), backend=where) is changed
    assert same(changed, packed(p | (np.arange(count) < 9)))
    assert bitset.and_(changed, b, out=changed, backend=where) is changed
    assert same(changed, packed((p | (np.arange(count) < 9)) & q))


@pytest.mark.parametrize("name", ["cpu 16x2", "webgpu"])
def test_sets_on_a_device_are_changed_there(name: str) -> None:
    p, q = random_bools(100), random_bools(100, 0.5, seed=1)
    a, b = (vyre.array(packed(bools), backend=backend_of(name)) for bools in (p, q))
    assert bitset.or_(a, b, out=a) is a
    assert bitset.and_not(b, a, out=a) is a
    assert same(a.numpy(), packed(q & ~(p | q)))
    assert bitset.not_(a, 100, out=a) is a
    assert bitset.popcount(a) == 100
    assert bitset.xor(a, a, out=a) is a
    assert bitset.any(a) is False
    indices = vyre.array(np.array([7, 7, 99], np.uint32), backend=backend_of(name))
    assert bitset.set_bits(a, indices) is a
    assert bitset.indices(a).numpy().tolist() == [7, 99]
    assert bitset.clear_bits(a, indices[:2]) is a
    assert bitset.test_bits(a, indices).numpy().tolist() == [False, False, True]
    assert bitset.zero(a) is a
    assert bitset.any(a) is False
    made = bitset.zeros(40, backend=backend_of(name))
    assert (made.backend, made.size) == (backend_of(name), 2)


W, I = np.zeros(2, np.uint32), np.array([3, 40, 64, 99], np.uint32)  # noqa: E741
WRONG = {
    "'indices' has 64 at position 2, and the set has 64 bits": lambda: bitset.set_bits(W, I),
    "'indices' has 40 at position 1, and the set has 40 bits": lambda: bitset.test_bits(W, I, count=40),
    "'indices' has 3 at position 0, and the set has 0 bits": lambda: bitset.clear_bits(W[:0], I),
    "'indices' has 99 at position 3, and the set has 65 bits": lambda: bitset.from_indices(I, 65),
    "'indices' has elements of type int64": lambda: bitset.from_indices(I.astype(np.int64), 200),
    "'words' has 2 elements, expected 3 for 65 bits": lambda: bitset.set_bits(W, I, count=65),
    "'words' has 2 elements, expected 3": lambda: bitset.to_bools(W, 65),
    "'words' has 2 elements, expected 1": lambda: bitset.not_(W, 32),
    "'b' has 4 elements, expected 2": lambda: bitset.and_(W, I),
    "'a' has elements of type float64": lambda: bitset.equal(np.zeros(2), W),
    "'out' has 4 elements, expected 2": lambda: bitset.or_(W, W, out=I),
    "'words' is read-only or not contiguous": lambda: bitset.set_bits(np.broadcast_to(W[0], 3), I[:1]),
    "'bools' has elements of type int8": lambda: bitset.from_bools(np.zeros(3, np.int8)),
    "'count' is -1": lambda: bitset.words_for(-1),
    "'count' is 4294967296": lambda: bitset.zeros(1 << 32),
    "'ranks' has elements of type int64": lambda: bitset.select(W, np.zeros(1, np.int64)),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_input_is_named(message: str) -> None:
    with pytest.raises(vyre.BadInputs) as raised:
        WRONG[message]()
    assert message in str(raised.value)


def test_an_out_that_overlaps_an_operand_is_refused() -> None:
    memory = np.zeros(5, np.uint32)
    with pytest.raises(vyre.BadInputs, match="share"):
        bitset.or_(memory[:4], np.zeros(4, np.uint32), out=memory[1:])
    with pytest.raises(vyre.BadInputs, match="share"):
        bitset.from_indices(memory, 160, out=memory)


def test_kernels_have_no_races() -> None:
    words, other, out = np.array([5, 9], np.uint32), np.array([4, 1], np.uint32), np.zeros(2, np.uint32)
    bools, indices = np.arange(40) % 3 == 0, np.array([0, 33, 0, 5], np.uint32)
    one, before = np.zeros(1, np.uint32), np.array([0, 2], np.uint32)
    k = bitset_kernels
    launches: list[tuple[Any, ...]] = [
        (k.pack_kernel(DType.BOOL).grid(1), bools, out),
        (k.unpack.grid(1), words, bools),
        *((kernel[2], words, other, out) for kernel in k.APART.values()),
        *((kernel[2], words, other) for kernel in (*k.INTO_LEFT.values(), *k.INTO_RIGHT.values())),
        (k.invert[2], words, out, 40),
        (k.invert_in_place[2], words, 40),
        (k.copy_words[2], words, out),
        (k.set_each[4], indices, words),
        (k.clear_each[4], indices, words),
        (k.test_each[4], words, indices, np.zeros(4, bool)),
        (k.find_outside[4], indices, 5, one + NONE),
        (k.find_bit[2], words, one),
        (k.find_difference[2], words, other, one),
        (k.find_extra[2], words, other, one),
        (k.count_bits[2], words, out),
        (k.list_bits[2], words, before, np.zeros(4, np.uint32)),
        (k.select_bits[4], words, before, np.arange(4, dtype=np.uint32), 4, np.zeros(4, np.uint32)),
    ]
    for launch, *arguments in launches:
        report = launch.debug(*arguments)
        assert report.ok, report


def test_functions_show_their_programs() -> None:
    assert str(bitset.or_.program).startswith("program or_words(workgroup 64)")
    assert bitset.select.program.name == "select_bits"
