"""Short ways to say buffers, inputs and programs in the interpreter's tests; bindings follow the order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vyre.ir.buffers import BufferDecl
from vyre.ir.nodes import Stmt
from vyre.ir.program import Program
from vyre.reference import Result, run
from vyre.semantics.types import DType

U32 = DType.U32


def u32(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.uint32)


def program(buffers: Iterable[BufferDecl], workgroup: int | tuple[int, ...], *entry: Stmt, **options: Any) -> Program:
    numbered = [decl.with_binding(binding) for binding, decl in enumerate(buffers)]
    return Program.new(numbered, workgroup, entry, **options)


def out(count: int = 0, name: str = "out", dtype: DType = U32) -> BufferDecl:
    return BufferDecl.output(name, 0, dtype, count)


def reading(name: str = "a", count: int = 0, dtype: DType = U32) -> BufferDecl:
    return BufferDecl.read(name, 0, dtype, count)


def updating(name: str = "s", count: int = 0, dtype: DType = U32) -> BufferDecl:
    return BufferDecl.read_write(name, 0, dtype, count)


def shared(name: str, count: int, dtype: DType = U32) -> BufferDecl:
    return BufferDecl.workgroup(name, dtype, count)


def values(result: Result, name: str = "out") -> list[Any]:
    return list(result.outputs[name].tolist())


def output(source: Program, inputs: Any = (), name: str = "out", **options: Any) -> list[Any]:
    """The elements of one output of a run."""
    return values(run(source, inputs, **options), name)
