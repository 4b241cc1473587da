"""What is an array that stays on a device? A resident buffer with a type, a shape and strides; views share it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from vyre.driver.backend import Backend
from vyre.driver.resident import ResidentBuffer
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.backends import shared_backend
from vyre.semantics.types import DType

Index = int | slice | EllipsisType | None


def array(data: Any, *, dtype: DType | None = None, backend: str | Backend | None = None) -> DeviceArray:
    """Copies data to a backend (the default one, if none is named), to stay there until the array is gone.

    ``dtype`` says what two bytes without a type of their own are: bf16 is kept in uint16.
    """
    host = np.asarray(data)
    element = dtype or type_of(host)
    if element is None or host.dtype != element.storage:
        wanted = "a type of vyre" if dtype is None else str(dtype)
        raise BadInputs(
            f"an array of {host.dtype} does not hold {wanted}.",
            f"convert it: array.astype('{(dtype or DType.F32).storage.str}').",
        )
    host = np.ascontiguousarray(host).reshape(host.shape)
    owner = shared_backend(backend)
    buffer = owner.allocate(host.nbytes)
    made = DeviceArray.whole(Memory(buffer), element, host.shape)
    made.assign(host)
    return made


def type_of(host: Array) -> DType | None:
    """The type of an array's elements; uint16 is u16."""
    return next((d for d in DType if d.storage == host.dtype and d is not DType.BF16), None)


class Memory:
    """A resident buffer that is freed with the last array on it."""

    def __init__(self, buffer: ResidentBuffer) -> None:
        self.buffer = buffer
        self._free = weakref.finalize(self, _free_quietly, buffer)
        self._free.atexit = False


def resident(host: Array, backend: Backend) -> Memory:
    """A copy of host memory on a backend, for as long as somebody keeps it."""
    memory = Memory(backend.allocate(host.nbytes))
    if host.size:
        backend.upload(memory.buffer, host)
    return memory


def _free_quietly(buffer: ResidentBuffer) -> None:
    if not buffer.is_freed:
        buffer.owner.free(buffer)


class DeviceArray:
    """An array on a backend. Indexing with slices and numbers gives views; ``numpy()`` copies it to the host."""

    __slots__ = ("_memory", "dtype", "offset", "shape", "strides")

    def __init__(
        self, memory: Memory, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        self._memory = memory
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.offset = offset

    @classmethod
    def whole(cls, memory: Memory, dtype: DType, shape: tuple[int, ...]) -> DeviceArray:
        """An array in C order over all of some memory."""
        return cls(memory, dtype, shape, _c_strides(shape), 0)

    @property
    def buffer(self) -> ResidentBuffer:
        return self._memory.buffer

    @property
    def backend(self) -> Backend:
        return self.buffer.owner

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its buffer, in C order."""
        return self.nbytes == self.buffer.byte_len and self.offset == 0 and self.strides == _c_strides(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no len")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<vyre array {self.dtype}{list(self.shape)} on '{self.backend.id}'>"

    def __getitem__(self, key: Index | tuple[Index, ...]) -> DeviceArray:
        """A view of the same memory."""
        keys = list(key) if isinstance(key, tuple) else [key]
        if any(not isinstance(one, (int, slice, EllipsisType)) for one in keys) or keys.count(Ellipsis) > 1:
            raise BadInputs(f"{key!r} is no index of a view.", "use numbers, slices and one `...`.")
        if len(keys) - keys.count(Ellipsis) > self.ndim:
            raise BadInputs(f"{len(keys)} indices are given to {self.ndim} axes.", "give one for each axis.")
        at = keys.index(Ellipsis) if Ellipsis in keys else len(keys)
        rest = [slice(None)] * (self.ndim - (len(keys) - keys.count(Ellipsis)))
        full = [*keys[:at], *rest, *keys[at + 1 :]]
        shape, strides, offset = [], [], self.offset
        for one, size, stride in zip(full, self.shape, self.strides, strict=True):
            if isinstance(one, slice):
                start, stop, step = one.indices(size)
                shape.append(len(range(start, stop, step)))
                strides.append(stride * step)
                offset += start * stride if shape[-1] else 0
            elif isinstance(one, int):
                if not -size <= one < size:
                    raise BadInputs(f"{one} is outside an axis of {size}.", "use an index inside the array.")
                offset += (one % size) * stride
        return DeviceArray(self._memory, self.dtype, tuple(shape), tuple(strides), offset)

    @property
    def T(self) -> DeviceArray:  # noqa: N802 (NumPy's name)
        return DeviceArray(self._memory, self.dtype, self.shape[::-1], self.strides[::-1], self.offset)

    def numpy(self) -> Array:
        """A copy of the elements on the host."""
        if not self.size:
            return np.empty(self.shape, self.dtype.storage)
        first, count = self._extent()
        item = self.dtype.bytes
        raw = np.frombuffer(self.backend.download(self.buffer, first * item, count * item), self.dtype.storage)
        return np.lib.stride_tricks.as_strided(
            raw[self.offset - first :], self.shape, [stride * item for stride in self.strides]
        ).copy()

    def assign(self, data: Any) -> None:
        """Copies host data of the same type and shape into the array."""
        host = np.asarray(data)
        if host.dtype != self.dtype.storage or host.shape != self.shape:
            raise BadInputs(
                f"{host.dtype}{list(host.shape)} is copied into {self.dtype}{list(self.shape)}.",
                f"give {self.dtype.storage.name} of that shape.",
            )
        if not self.is_whole:
            raise BadInputs("a view cannot be copied into.", "copy into the whole array, or write a kernel.")
        self.backend.upload(self.buffer, np.ascontiguousarray(host))

    def fill(self, byte: int = 0) -> None:
        """Sets every byte of the whole array, on the device."""
        if not self.is_whole:
            raise BadInputs("a view cannot be filled.", "fill the whole array, or write a kernel.")
        self.backend.fill(self.buffer, byte)

    def free(self) -> None:
        """Gives the memory back now; the array and its views are of no use then."""
        _free_quietly(self.buffer)

    def __enter__(self) -> DeviceArray:
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a device is copied to the host")
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """A copy on the host, as others take it."""
        options.pop("copy", None)
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def _extent(self) -> tuple[int, int]:
        """The first element that the array reaches in its buffer, and how many from there on."""
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(min(0, one) for one in reach)
        return self.offset + low, sum(max(0, one) for one in reach) - low + 1


def _c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
