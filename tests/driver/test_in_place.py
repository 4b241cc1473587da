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
