"""What the host may give a program, and how it is told what it may not."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest

from vyre.errors import BadInputs
from vyre.ir import build as b
from vyre.ir.binding import bind_inputs, indirect_grid
from vyre.ir.buffers import Access, BufferDecl
from vyre.ir.program import Program
from vyre.semantics.types import DType

PROGRAM = Program.new(
    [
        BufferDecl.read("a", 0, DType.U32),
        BufferDecl.output("out", 1, DType.U32),
        BufferDecl.read_write("state", 2, DType.F32, 3),
        BufferDecl("half", 3, Access.READ_ONLY, DType.BF16),
        BufferDecl.workgroup("tile", DType.U32, 4),
    ],
    1,
    (),
)
GOOD = {
    "a": np.arange(4, dtype=np.uint32),
    "state": np.ones(3, np.float32),
    "half": np.zeros(2, np.uint16),
}


def test_by_name_and_by_slot() -> None:
    by_name, by_slot = bind_inputs(PROGRAM, dict(reversed(GOOD.items()))), bind_inputs(PROGRAM, list(GOOD.values()))
    assert list(by_name) == list(by_slot) == ["a", "state", "half"]
    assert by_name["a"] is not None
    assert all(np.array_equal(by_name[k], by_slot[k]) for k in GOOD)


@pytest.mark.parametrize(
    "data",
    [np.arange(6, dtype=np.uint32).tobytes(), bytearray(np.arange(6, dtype=np.uint32)), array("I", range(6)),
     memoryview(np.arange(12, dtype=np.uint32))[::2], np.arange(6, dtype=np.uint32).reshape(2, 3),
     np.repeat(np.arange(6, dtype=np.uint32), 2)[::2]],
    ids=["bytes", "bytearray", "array", "strided memory", "matrix", "strided array"],
)  # fmt: skip
def test_arrays_of_any_shape_and_anything_with_bytes(data: Any) -> None:
    bound = bind_inputs(PROGRAM, GOOD | {"a": data})["a"]
    assert bound.dtype == np.uint32
    expected = [0, 2, 4, 6, 8, 10] if isinstance(data, memoryview) else list(range(6))
    assert bound.tolist() == expected


def test_contiguous_data_is_not_copied() -> None:
    bound = bind_inputs(PROGRAM, GOOD)
    assert all(np.shares_memory(bound[name], GOOD[name]) for name in GOOD)


def test_empty_data() -> None:
    assert len(bind_inputs(PROGRAM, GOOD | {"a": b""})["a"]) == 0


@pytest.mark.parametrize(
    ("change", "buffer", "message"),
    [
        ({"a": np.zeros(4, np.int32)}, "a", "array of int32"),
        ({"a": np.zeros(4, ">u4")}, "a", "array of >u4"),
        ({"half": np.zeros(2, np.float32)}, "half", "as uint16"),
        ({"state": np.ones(4, np.float32)}, "state", "3 elements and its input 4"),
        ({"state": bytes(8)}, "state", "3 elements and its input 2"),
        ({"a": bytes(7)}, "a", "7 bytes, no whole number"),
        ({"a": [1, 2]}, "a", "is a list"),
        ({"a": None}, "a", "is a NoneType"),
        ({"out": np.zeros(1, np.uint32)}, "out", "takes no input"),
        ({"tile": np.zeros(4, np.uint32)}, "tile", "takes no input"),
        ({"b": np.zeros(1, np.uint32)}, "b", "no buffer 'b'"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], buffer: str, message: str) -> None:
    with pytest.raises(BadInputs, match=message) as caught:
        bind_inputs(PROGRAM, GOOD | change)
    assert caught.value.buffer == buffer
    assert "Fix:" in str(caught.value)


def test_missing_and_miscounted_inputs() -> None:
    with pytest.raises(BadInputs, match="'state' of 'main' has no input"):
        bind_inputs(PROGRAM, {"a": GOOD["a"], "half": GOOD["half"]})
    with pytest.raises(BadInputs, match="takes 3 inputs"):
        bind_inputs(PROGRAM, [GOOD["a"]])
    for lonely in (GOOD["a"], b"1234", "a"):
        with pytest.raises(BadInputs, match="give a mapping"):
            bind_inputs(PROGRAM, lonely)  # type: ignore[arg-type]


def test_indirect_grid() -> None:
    counts = np.array([9, 2, 3, 4], np.uint32)
    source = Program.new([BufferDecl.read("counts", 0, DType.U32)], 1, (b.indirect_dispatch("counts", 4),))
    assert indirect_grid(PROGRAM, GOOD) is None
    assert indirect_grid(source, {"counts": counts}) == (2, 3, 4)
    with pytest.raises(BadInputs, match="bytes 4 to 16 of buffer 'counts', which has 12"):
        indirect_grid(source, {"counts": counts[:3]})
