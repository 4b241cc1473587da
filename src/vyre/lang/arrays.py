"""What is an array that stays on a device? A resident buffer with a type, a shape and strides; views share it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Sequence
from operator import index
from types import EllipsisType
from typing import Any, Final

import numpy as np

from vyre.driver.backend import Backend
from vyre.driver.resident import ResidentBuffer
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.backends import shared_backend
from vyre.semantics.types import FLOATS, NUMBERS, DType

Index = int | slice | EllipsisType
# What DLPack calls the memory of the host.
_ON_HOST: Final = 1


def array(data: Any, *, dtype: DType | None = None, backend: str | Backend | None = None) -> DeviceArray:
    """Copies data to a backend (the default one, if none is named), to stay there until the array is gone.

    ``dtype`` says what two bytes without a type of their own are: bf16 is kept in uint16.
    """
    if dtype is not None and not isinstance(dtype, DType):
        raise BadInputs(f"{dtype!r:.60} is no type of vyre.", "use one of vyre's, such as vyre.f32.")
    host = _converted(_as_numpy(data), dtype) if isinstance(data, (list, tuple, int, float)) else _as_numpy(data)
    element = dtype or type_of(host)
    if element is None or host.dtype != element.storage:
        wanted = "a type of vyre" if dtype is None else str(dtype)
        raise BadInputs(f"an array of {host.dtype} does not hold {wanted}.", conversion_fix(dtype or DType.F32))
    owner = shared_backend(backend)
    made = DeviceArray.whole(Memory(owner.allocate(host.nbytes)), element, host.shape)
    made.assign(host)
    return made


def conversion_fix(dtype: DType) -> str:
    """How to make an array one of a type."""
    if dtype is DType.BF16:
        return "pass uint16, the upper halves of float32."
    return f"convert it: array.astype(np.{dtype.storage.name})."


def type_of(host: Array) -> DType | None:
    """The type of an array's elements; uint16 is u16."""
    return next((d for d in DType if d.storage == host.dtype and d is not DType.BF16), None)


def shared_array(data: Any) -> Array | None:
    """Somebody's array as one of NumPy's on the same memory; None if it is no array, BufferError if not to be had."""
    if isinstance(data, np.ndarray):
        return np.asarray(data)
    try:
        return np.asarray(memoryview(data))
    except (TypeError, ValueError):
        pass
    if not hasattr(data, "__dlpack__"):
        return None
    if data.__dlpack_device__()[0] != _ON_HOST:
        raise BufferError("it is on another device")
    try:
        host = np.from_dlpack(data)
        return host if host.flags.writeable else _writable(host, data)
    except (RuntimeError, TypeError, ValueError) as error:
        raise BufferError(str(error)) from None


class _OnSameMemory:
    """An array that NumPy may write, and that keeps the memory's owner."""

    def __init__(self, host: Array) -> None:
        self.__array_interface__ = {**host.__array_interface__, "data": (host.ctypes.data, False)}
        self._owner = host


def _writable(host: Array, data: Any) -> Array:
    """NumPy takes memory from exporters that cannot say what is read-only as if it were; they export no such memory."""
    try:
        data.__dlpack__()
    except BufferError:
        return host
    return np.asarray(_OnSameMemory(host))


def _as_numpy(data: Any) -> Array:
    try:
        shared = shared_array(data)
        return np.asarray(data) if shared is None else shared
    except (BufferError, ValueError, TypeError) as error:
        raise BadInputs(f"this is no array ({error}).", "give a NumPy array, or nested lists of one shape.") from None


def _converted(host: Array, dtype: DType | None) -> Array:
    """Numbers of Python as a type that holds such numbers."""
    holds = {"i": dtype in NUMBERS, "u": dtype in NUMBERS, "f": dtype in FLOATS}
    if dtype is None or dtype is DType.BF16 or not holds.get(host.dtype.kind):
        return host
    with np.errstate(over="ignore", invalid="ignore"):
        made = host.astype(dtype.storage)
    if not (np.isfinite(made) == np.isfinite(host)).all() or (dtype.is_integer and (made != host).any()):
        raise BadInputs(f"not all of these numbers are {dtype}.", "give a type that holds them.")
    return made


class Memory:
    """A resident buffer that is freed with the last array on it, if it is ``owned``."""

    def __init__(self, buffer: ResidentBuffer, *, owned: bool = True) -> None:
        self.buffer = buffer
        if owned:
            weakref.finalize(self, _free_quietly, buffer).atexit = False


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

    __slots__ = ("_flat", "_memory", "dtype", "offset", "shape", "strides")

    def __init__(
        self, memory: Memory, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
    ) -> None:
        self._memory = memory
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.offset = offset
        self._flat: Array | None = None

    @classmethod
    def whole(cls, memory: Memory, dtype: DType, shape: tuple[int, ...]) -> DeviceArray:
        """An array in C order over all of some memory."""
        return cls(memory, dtype, shape, _c_strides(shape), 0)

    @classmethod
    def over(cls, buffer: ResidentBuffer, dtype: DType) -> DeviceArray:
        """An array of one axis over a buffer that its caller keeps and frees."""
        return cls.whole(Memory(buffer, owned=False), dtype, (buffer.byte_len // dtype.bytes,))

    @property
    def buffer(self) -> ResidentBuffer:
        return self._memory.buffer

    @property
    def backend(self) -> Backend:
        return self.buffer.owner

    @property
    def host_memory(self) -> Array | None:
        """The bytes of its buffer, where the host can reach them."""
        return self.backend.host_memory(self.buffer)

    def elements_on(self, backend: Backend) -> Array | None:
        """Return all elements as host memory; None unless this is a whole array that the backend runs on in place."""
        buffer = self._memory.buffer
        if buffer.owner is not backend or buffer.is_freed:
            return None
        if self._flat is None and self.size and self.is_whole and backend.capabilities.in_place:
            memory = backend.host_memory(buffer)
            self._flat = None if memory is None else memory.view(self.dtype.storage)
        return self._flat

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

    def __iter__(self) -> Iterator[DeviceArray]:
        return (self[at] for at in range(len(self)))

    def __repr__(self) -> str:
        return f"<vyre array {self.dtype}{list(self.shape)} on '{self.backend.id}'>"

    def __getitem__(self, key: Index | tuple[Index, ...]) -> DeviceArray:
        """A view of the same memory."""
        try:
            keys = [_view_key(one) for one in (key if isinstance(key, tuple) else (key,))]
        except TypeError:
            keys = None
        if keys is None or keys.count(Ellipsis) > 1:
            raise BadInputs(f"{key!r:.60} is no index of a view.", "use numbers, slices and one `...`.")
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
        return self._in(self._downloaded()).copy()

    def _downloaded(self) -> Array:
        """The stretch of the buffer that the array reaches."""
        first, count = self._extent()
        item = self.dtype.bytes
        return np.frombuffer(self.backend.download(self.buffer, first * item, count * item), self.dtype.storage)

    def _in(self, stretch: Array) -> Array:
        """The array's elements in the stretch that it reaches."""
        strides = [stride * self.dtype.bytes for stride in self.strides]
        return np.lib.stride_tricks.as_strided(stretch[self.offset - self._extent()[0] :], self.shape, strides)

    def host_view(self) -> Array | None:
        """The elements themselves, where the host can reach them, as an array on the same memory."""
        memory = self.host_memory
        if memory is None or not self.size:
            return None if memory is None else self.numpy()
        first, count = self._extent()
        return self._in(memory.view(self.dtype.storage)[first : first + count])

    def assign(self, data: Any) -> None:
        """Copies host data of the same type and shape into the array."""
        host = _as_numpy(data)
        if host.dtype != self.dtype.storage or host.shape != self.shape:
            raise BadInputs(
                f"{host.dtype}{list(host.shape)} is copied into {self.dtype}{list(self.shape)}.",
                f"give {self.dtype.storage.name} of that shape.",
            )
        if self.is_whole:
            self.backend.upload(self.buffer, np.ascontiguousarray(host))
        elif self.size:
            stretch = self._downloaded().copy()
            self._in(stretch)[...] = host
            self.backend.upload(self.buffer, stretch, self._extent()[0] * self.dtype.bytes)

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
        """The elements for NumPy: without a copy only if that is asked for, and the host can reach them."""
        host = self.host_view() if copy is False else self.numpy()
        if host is None or (copy is False and dtype not in (None, host.dtype)):
            raise ValueError("these elements cannot be had without a copy")
        return host if dtype is None else host.astype(dtype, copy=False)

    def __dlpack__(self, *, copy: bool | None = None, **options: Any) -> Any:
        """The elements for others: where the host can reach them, on the same memory, else a copy."""
        host = None if copy else self.host_view()
        if host is None and copy is False:
            raise BufferError("these elements cannot be had without a copy")
        return (self.numpy() if host is None else host).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _ON_HOST, 0

    def _extent(self) -> tuple[int, int]:
        """The first element that the array reaches in its buffer, and how many from there on."""
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low = sum(min(0, one) for one in reach)
        return self.offset + low, sum(max(0, one) for one in reach) - low + 1


def _view_key(key: Any) -> Index:
    """An index with plain numbers; TypeError if it is none."""
    if isinstance(key, slice):
        if key.step is not None and index(key.step) == 0:
            raise TypeError("a slice of step 0")
        return slice(*(None if part is None else index(part) for part in (key.start, key.stop, key.step)))
    if isinstance(key, bool):
        raise TypeError("a bool")
    return key if isinstance(key, EllipsisType) else index(key)


def _c_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for axis in reversed(range(len(shape) - 1)):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)
