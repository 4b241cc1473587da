"""What is a buffer to the program and to the host?

A declaration says how the program may touch a buffer; ``role`` is the one predicate that says what that means for
the host: whether it takes an input, gives an output, and how it starts.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from vyre.semantics.types import DType


class Access(Enum):
    """How a program may touch a buffer."""

    READ_ONLY = "read"
    READ_WRITE = "readwrite"
    WRITE_ONLY = "writeonly"
    UNIFORM = "uniform"
    WORKGROUP = "workgroup"

    __hash__ = object.__hash__

    @property
    def readable(self) -> bool:
        return self is not Access.WRITE_ONLY

    @property
    def writable(self) -> bool:
        return self in (Access.READ_WRITE, Access.WRITE_ONLY, Access.WORKGROUP)


class Role(Enum):
    """What a buffer is to the host; inputs and outputs are numbered in declaration order."""

    INPUT = "input"
    INPUT_OUTPUT = "input-output"
    OUTPUT = "output"
    SHARED = "shared"

    __hash__ = object.__hash__

    @property
    def takes_input(self) -> bool:
        return self in (Role.INPUT, Role.INPUT_OUTPUT)

    @property
    def gives_output(self) -> bool:
        return self in (Role.INPUT_OUTPUT, Role.OUTPUT)


class BufferDecl(msgspec.Struct, frozen=True, array_like=True):
    """A named array of one type. ``count`` 0 means sized at run time."""

    name: str
    binding: int
    access: Access
    dtype: DType
    count: int = 0
    is_output: bool = False
    pipeline_live_out: bool = False
    output_byte_range: tuple[int, int] | None = None
    hints: tuple[tuple[str, str], ...] = ()

    @classmethod
    def read(cls, name: str, binding: int, dtype: DType, count: int = 0) -> BufferDecl:
        return cls(name, binding, Access.READ_ONLY, dtype, count)

    @classmethod
    def read_write(cls, name: str, binding: int, dtype: DType, count: int = 0) -> BufferDecl:
        return cls(name, binding, Access.READ_WRITE, dtype, count)

    storage = read_write

    @classmethod
    def uniform(cls, name: str, binding: int, dtype: DType, count: int = 1) -> BufferDecl:
        return cls(name, binding, Access.UNIFORM, dtype, count)

    @classmethod
    def output(cls, name: str, binding: int, dtype: DType, count: int = 0) -> BufferDecl:
        return cls(name, binding, Access.READ_WRITE, dtype, count, is_output=True)

    @classmethod
    def workgroup(cls, name: str, dtype: DType, count: int, binding: int = 0) -> BufferDecl:
        """Workgroup memory; its binding is not a host slot and may repeat."""
        return cls(name, binding, Access.WORKGROUP, dtype, count)

    def _with(self, **changes: Any) -> BufferDecl:
        return msgspec.structs.replace(self, **changes)

    def with_name(self, name: str) -> BufferDecl:
        return self._with(name=name)

    def with_binding(self, binding: int) -> BufferDecl:
        return self._with(binding=binding)

    def with_access(self, access: Access) -> BufferDecl:
        return self._with(access=access)

    def with_count(self, count: int) -> BufferDecl:
        return self._with(count=count)

    def with_output(self, is_output: bool = True) -> BufferDecl:
        return self._with(is_output=is_output)

    def with_pipeline_live_out(self, live_out: bool = True) -> BufferDecl:
        return self._with(pipeline_live_out=live_out)

    def with_output_byte_range(self, start: int, stop: int) -> BufferDecl:
        return self._with(output_byte_range=(start, stop))

    def with_hints(self, **hints: str) -> BufferDecl:
        return self._with(hints=tuple(sorted(hints.items())))

    @property
    def role(self) -> Role:
        """What this buffer is to the host: the one predicate that everything uses."""
        match self.access:
            case Access.WORKGROUP:
                return Role.SHARED
            case Access.READ_ONLY | Access.UNIFORM:
                return Role.INPUT
            case Access.WRITE_ONLY:
                return Role.OUTPUT
            case Access.READ_WRITE:
                return Role.OUTPUT if self.is_output or self.pipeline_live_out else Role.INPUT_OUTPUT
