"""Does the host's data fit the program's buffers? One check, for every backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vyre.errors import BadInputs
from vyre.ir import nodes as n
from vyre.ir.buffers import BufferDecl
from vyre.ir.limits import MAX_ELEMENTS
from vyre.ir.program import Program
from vyre.ir.walk import statements
from vyre.words import counted

Array = np.ndarray[Any, np.dtype[Any]]
GRID_BYTES = 12


def bind_inputs(program: Program, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Array]:
    """The inputs by buffer name, in slot order, as flat arrays of each buffer's storage type.

    A mapping is by name, a sequence by input slot. An input is a NumPy array of exactly the declared storage type, or
    raw bytes. Data is copied only where it is not contiguous.
    """
    slots = program.input_buffers()
    if isinstance(inputs, Mapping):
        given: Mapping[str, Any] = inputs
    elif isinstance(inputs, Sequence) and not isinstance(inputs, (str, bytes, bytearray, memoryview)):
        if len(inputs) != len(slots):
            raise BadInputs(
                f"'{program.name}' takes {counted(len(slots), 'input')} ({_names(slots)}) and was given {len(inputs)}.",
                "give one input for each of them, in this order.",
            )
        given = {decl.name: data for decl, data in zip(slots, inputs, strict=True)}
    else:
        raise BadInputs(
            f"the inputs are one {type(inputs).__name__}.", "give a mapping by buffer name, or a list in slot order."
        )
    takes = {decl.name for decl in slots}
    for name in given:
        if name not in takes:
            raise _unwanted(program, name)
    for decl in slots:
        if decl.name not in given:
            raise BadInputs(
                f"buffer '{decl.name}' of '{program.name}' has no input.",
                f"give it an array of {decl.dtype.storage.name}.",
                buffer=decl.name,
            )
    return {decl.name: _bind(decl, given[decl.name]) for decl in slots}


def indirect_dispatch(program: Program) -> n.IndirectDispatch | None:
    """The statement that says where the grid is read from; None where there is none."""
    if not program.stats().has_indirect_dispatch:
        return None
    return next(s for s in statements(program.entry) if isinstance(s, n.IndirectDispatch))


def indirect_grid(program: Program, inputs: Mapping[str, Array]) -> tuple[int, int, int] | None:
    """The grid that the program reads from a buffer when the launch starts; None where it reads none."""
    statement = indirect_dispatch(program)
    if statement is None:
        return None
    decl, start = program.buffer(statement.count_buffer), statement.count_offset
    if not decl.role.takes_input:
        return 0, 0, 0
    data = inputs[decl.name].view(np.uint8)
    if start < 0 or start + GRID_BYTES > len(data):
        raise BadInputs(
            f"the grid is read from bytes {start} to {start + GRID_BYTES} of buffer '{decl.name}', "
            f"which has {len(data)}.",
            "give the buffer three u32 at that offset.",
            buffer=decl.name,
        )
    x, y, z = np.frombuffer(data[start : start + GRID_BYTES].tobytes(), "<u4").tolist()
    return x, y, z


def _bind(decl: BufferDecl, data: Any) -> Array:
    flat = _bind_array(decl, data) if isinstance(data, np.ndarray) else _bind_bytes(decl, data)
    if decl.count and flat.size != decl.count:
        raise BadInputs(
            f"buffer '{decl.name}' has {decl.count} elements and its input {flat.size}.",
            f"give exactly {decl.count} elements of {decl.dtype}.",
            buffer=decl.name,
        )
    if flat.size > MAX_ELEMENTS:
        raise BadInputs(
            f"the input of buffer '{decl.name}' has {flat.size:,} elements.",
            f"a buffer has at most {MAX_ELEMENTS:,}: split the data.",
            buffer=decl.name,
        )
    return flat


def _bind_array(decl: BufferDecl, data: Array) -> Array:
    storage = decl.dtype.storage
    if data.dtype != storage:
        raise BadInputs(
            f"buffer '{decl.name}' holds {decl.dtype} (as {storage.name}), and its input is an array of {data.dtype}.",
            f"convert it: array.astype('{storage.str}').",
            buffer=decl.name,
        )
    return np.ascontiguousarray(data).reshape(-1)


def _bind_bytes(decl: BufferDecl, data: Any) -> Array:
    try:
        raw = memoryview(data)
    except TypeError:
        raise BadInputs(
            f"the input of buffer '{decl.name}' is a {type(data).__name__}.",
            f"give a NumPy array of {decl.dtype.storage.name}, or bytes.",
            buffer=decl.name,
        ) from None
    if raw.nbytes % decl.dtype.bytes:
        raise BadInputs(
            f"the input of buffer '{decl.name}' has {raw.nbytes} bytes, no whole number of {decl.dtype} elements.",
            f"give a multiple of {decl.dtype.bytes} bytes.",
            buffer=decl.name,
        )
    return np.frombuffer(raw if raw.c_contiguous else raw.tobytes(), np.uint8).view(decl.dtype.storage)


def _unwanted(program: Program, name: str) -> BadInputs:
    if name in program.buffers_by_name:
        role = program.buffer(name).role.value
        return BadInputs(
            f"buffer '{name}' of '{program.name}' takes no input: its role is {role}.",
            "leave it out; it starts at zero.",
            buffer=name,
        )
    return BadInputs(
        f"'{program.name}' has no buffer '{name}'.",
        f"its inputs are {_names(program.input_buffers()) or 'none'}.",
        buffer=name,
    )


def _names(decls: Sequence[BufferDecl]) -> str:
    return ", ".join(decl.name for decl in decls)
