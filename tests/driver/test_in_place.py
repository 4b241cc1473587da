"""Runs on the caller's own memory: the same bytes as a dispatch, where they belong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cpu_support
from backends_for_tests import ForwardingDevice
from vyre.backends.reference import ReferenceBackend
from vyre.driver import Backend, DispatchConfig
from vyre.errors import BadInputs
from vyre.ir import parse

PROGRAM = parse(
    """program p(workgroup 4) {
      buffer 2 y: u32[] readwrite
      buffer 0 x: u32[] read
      buffer 1 z: u32[4] output bytes 4..12

      y[gid.x] = y[gid.x] + x[gid.x]
      grid_sync
      z[gid.x] = y[3 - gid.x]
    }"""
)


@pytest.fixture(
    params=[cpu_support.backend(None, 1), ReferenceBackend(), ReferenceBackend(grid_sync=False, resident=False)],
    ids=["cpu", "reference", "plain"],
)
def backend(request: pytest.FixtureRequest) -> Any:
    return Backend(ForwardingDevice(request.param.device))


def memory() -> list[np.ndarray]:
    x, z, y = np.arange(4, dtype=np.uint32), np.full(4, 9, np.uint32), np.full(4, 10, np.uint32)
    return [x, z, y]


def test_what_is_written_changes_and_the_rest_stays(backend: Any) -> None:
    x, z, y = memory()
    backend.dispatch_in_place(PROGRAM, [x, z, y], DispatchConfig(grid_override=(1,)))
    assert x.tolist() == [0, 1, 2, 3]
    assert y.tolist() == [10, 11, 12, 13]
    assert z[1:3].tolist() == [12, 11]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda given: given[:2],
        lambda given: [given[0].astype(np.int32), *given[1:]],
        lambda given: [np.zeros(8, np.uint32)[::2], *given[1:]],
        lambda given: [*given[:2], given[2].reshape(2, 2)],
        lambda given: [*given[:2], bytes(16)],
    ],
    ids=["too few", "another type", "not contiguous", "two axes", "no array"],
)
def test_memory_that_does_not_fit_is_named(backend: Any, wrong: Any) -> None:
    with pytest.raises(BadInputs, match="arrays"):
        backend.dispatch_in_place(PROGRAM, wrong(memory()), DispatchConfig(grid_override=(1,)))


@pytest.mark.parametrize("passes", [None, 3])
def test_memory_that_is_not_aligned_changes_too(backend: Any, passes: int | None) -> None:
    config = DispatchConfig(grid_override=(1,), fixpoint_iterations=passes)
    plain = parse("program p(workgroup 4) { buffer 0 y: u32[] readwrite; y[gid.x] = y[gid.x] + 1 }")
    for program in (PROGRAM, plain):
        aligned, odd = memory(), [odd_copy(array) for array in memory()]
        if program is plain:
            aligned, odd = aligned[2:], odd[2:]
        backend.dispatch_in_place(program, aligned, config)
        backend.dispatch_in_place(program, odd, config)
        assert not any(array.flags.aligned for array in odd)
        wanted = [array.tolist() for array in aligned]
        if program is PROGRAM:
            # What its output does not give back may be anything.
            wanted[1] = [odd[1][0], *wanted[1][1:3], odd[1][3]]
        assert [array.tolist() for array in odd] == wanted


def odd_copy(array: np.ndarray) -> np.ndarray:
    """The same numbers one byte off."""
    copy = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype)
    copy[...] = array
    return copy


def read_only(array: np.ndarray) -> np.ndarray:
    array.setflags(write=False)
    return array


WORDS = np.zeros(8, np.uint32)


@pytest.mark.parametrize(
    ("wrong", "buffer", "message"),
    [
        (lambda x, z, y: [x, z, read_only(y)], "y", "read-only"),
        (lambda x, z, y: [x, read_only(z), y], "z", "read-only"),
        (lambda _, z, y: [y, z, y], "y", "shares memory with that of buffer 'x'"),
        (lambda x, _, y: [x, y, y], "z", "shares memory with that of buffer 'y'"),
        (lambda *_: [WORDS[:4], np.zeros(4, np.uint32), WORDS[1:5]], "y", "shares memory with that of buffer 'x'"),
        (lambda x, z, y: [x, z[:2], y], "z", "no flat array of its type and count"),
        (lambda x, z, y: [x, z.astype(np.uint64), y], "z", "no flat array of its type and count"),
    ],
    ids=["read-only", "read-only fresh", "twice", "two outputs", "overlapping", "short output", "output of 64 bits"],
)
def test_memory_that_cannot_be_written_by_itself_is_refused(
    backend: Any, wrong: Any, buffer: str, message: str
) -> None:
    given = wrong(*memory())
    before = [array.copy() for array in given]
    for _ in range(2):
        with pytest.raises(BadInputs, match=message) as refused:
            backend.dispatch_in_place(PROGRAM, given, DispatchConfig(grid_override=(1,)))
        assert refused.value.buffer == buffer
    assert all((array == old).all() for array, old in zip(given, before, strict=True))


COPY = parse(
    """program p(workgroup 4) {
      buffer 0 x: u32[] read
      buffer 1 y: u32[] readwrite
      y[gid.x] = x[gid.x]
    }"""
)


def test_arrays_are_looked_at_again_when_they_are_others(backend: Any) -> None:
    words = np.arange(8, dtype=np.uint32)
    low, high = words[:4], words[4:]
    for _ in range(2):
        backend.dispatch_in_place(COPY, [low, high])
    assert words.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    with pytest.raises(BadInputs, match="shares memory"):
        backend.dispatch_in_place(COPY, [low, words[2:6]])
    with pytest.raises(BadInputs, match="shares memory"):
        backend.dispatch_in_place(COPY, [high, high])
    high.setflags(write=False)
    with pytest.raises(BadInputs, match="read-only"):
        backend.dispatch_in_place(COPY, [low, high])
    backend.dispatch_in_place(COPY, [high, low])
    assert low.tolist() == [0, 1, 2, 3]
    # What is only read may be the same memory.
    two = parse(
        """program p(workgroup 4) {
          buffer 0 x: u32[] read
          buffer 1 z: u32[] read
          buffer 2 y: u32[] readwrite
          y[gid.x] = x[gid.x] + z[gid.x]
        }"""
    )
    backend.dispatch_in_place(two, [high, high, low])
    assert low.tolist() == [0, 2, 4, 6]


def test_an_array_in_the_place_of_one_that_is_gone_is_looked_at(backend: Any) -> None:
    words, seen = np.zeros(8, np.uint32), set()
    low = words[:4]
    for turn in range(50):
        # A view that goes leaves its address to the next one.
        view = words[4:] if turn % 2 == 0 else words[2:6]
        seen.add(id(view))
        try:
            backend.dispatch_in_place(COPY, [low, view])
        except BadInputs:
            assert turn % 2
        else:
            assert turn % 2 == 0
        del view
    assert len(seen) < 50


def test_a_fresh_output_is_as_long_as_the_launch(backend: Any) -> None:
    program = parse("program p(workgroup 4) { buffer 0 y: u32[] output; y[gid.x] = gid.x }")
    with pytest.raises(BadInputs, match="has 8 elements in this launch, and its array 3") as refused:
        backend.dispatch_in_place(program, [np.zeros(3, np.uint32)], DispatchConfig(dispatch_elements=8))
    assert refused.value.buffer == "y"
