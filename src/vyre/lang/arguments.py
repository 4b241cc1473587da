"""Do the arguments of a call fit the kernel's parameters? Checked before anything runs, and made flat memory.

NumPy arrays, and what can be one without a copy, are taken as they lie in memory where the backend works there: a view
that is not contiguous is its whole stretch of memory, and its strides are passed. Elsewhere they are packed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import msgspec
import numpy as np
from numpy import ndarray

from vyre.driver.backend import Backend
from vyre.driver.resident import ResidentBuffer
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.lang.annotations import Parameter, Sizes
from vyre.lang.arrays import DeviceArray, conversion_fix, shared_array
from vyre.lang.values import Layout, a, rounded
from vyre.semantics.scalars import to_bits
from vyre.semantics.types import DType

# Of NumPy's flags: in C order and aligned; writable; the owner of its memory.
_PLAIN: Final = 0x1 | 0x100
_WRITABLE: Final = 0x400
_OWNER: Final = 0x4
_MOST_WORK: Final = 10_000


class Spec(msgspec.Struct, frozen=True):
    """What a parameter takes, ready to be compared; a scalar has rank 0."""

    name: str
    dtype: DType
    rank: int
    writes: bool
    storage: np.dtype[Any]
    flags: int
    sizes: Sizes | None = None
    is_whole: bool = False

    @classmethod
    def of(cls, parameter: Parameter, is_whole: bool) -> Spec:
        """``is_whole`` says that the kernel uses the array as a whole, so it has to be in C order."""
        kind = parameter.type
        assert kind is not None  # a kernel without all types is not translated
        if isinstance(kind, DType):
            return cls(parameter.name, kind, 0, False, kind.storage, 0)
        writes = kind.direction.writes
        flags = _PLAIN | (_WRITABLE if writes else 0)
        return cls(parameter.name, kind.dtype, kind.rank, writes, kind.dtype.storage, flags, kind.sizes, is_whole)

    def has_shape(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape has the rank and the sizes that are declared."""
        if self.sizes is None:
            return len(shape) == self.rank
        return len(shape) == self.rank and all(
            size is None or size == given for size, given in zip(self.sizes, shape, strict=True)
        )


Memory = Array | ResidentBuffer


class Taken(msgspec.Struct, frozen=True, eq=False):
    """Arguments as memory: for each parameter, and the shapes last if there are any.

    ``layouts`` says how each lies in memory; ``packed`` are copies and the arrays they have to be copied back to.
    ``is_shared`` says that there are no copies: a run sees what the caller's arrays hold then.
    """

    memory: list[Memory]
    layouts: tuple[Layout, ...]
    packed: list[tuple[Array, Array]]
    is_shared: bool

    def give_back(self) -> None:
        for copy, original in self.packed:
            original[...] = copy.reshape(original.shape)


def take_plain(specs: Sequence[Spec], arguments: Sequence[Any], backend: Backend) -> list[Array] | None:
    """Return the memory of plain arguments: numbers, and whole arrays of NumPy or ``backend`` that lie apart.

    None says that ``take`` has to look closer.
    """
    memory: list[Array] = []
    shapes: list[int] = []
    buffers: list[ResidentBuffer] = []
    owners = _OWNER
    for spec, argument in zip(specs, arguments):  # noqa: B905 (the keyword costs as much as the loop)
        rank = spec.rank
        if not rank:
            memory.append(scalar_memory(spec, argument))
            continue
        if type(argument) is DeviceArray:
            host = argument.elements_on(backend)
            if host is None or argument.dtype is not spec.dtype or not spec.has_shape(argument.shape):
                return None
            buffers.append(argument.buffer)
            if rank > 1:
                shapes += argument.shape
            memory.append(host)
            continue
        if type(argument) is not ndarray or argument.dtype is not spec.storage or argument.ndim != rank:
            return None
        if spec.sizes is not None and not spec.has_shape(argument.shape):
            return None
        flags = argument.flags.num
        if flags & spec.flags != spec.flags:
            return None
        owners &= flags
        if spec.writes and sum(argument is other for other in arguments) > 1:
            return None
        if rank > 1:
            shapes += argument.shape
            argument = argument.reshape(-1)
        memory.append(argument)
    if not owners and _may_overlap(specs, memory):
        return None
    if len(buffers) > 1 and len(set(map(id, buffers))) < len(buffers):
        return None
    if shapes:
        memory.append(np.array(shapes, np.uint32))
    return memory


def _may_overlap(specs: Sequence[Spec], memory: Sequence[Array]) -> bool:
    """Whether what is written might share memory with another argument; a quick look, that may be wrong."""
    return any(
        other is not written and np.may_share_memory(written, other)
        for spec, written in zip(specs, memory, strict=True)
        if spec.writes
        for other in memory
    )


def take(specs: Sequence[Spec], arguments: Sequence[Any], *, in_place: bool) -> Taken:
    """The memory of any arguments that fit; BadInputs tells what does not. Without ``in_place`` arrays are packed."""
    memory: list[Memory] = []
    layouts: list[Layout] = []
    packed: list[tuple[Array, Array]] = []
    shapes: list[int] = []
    hosts: list[Any] = []
    is_shared = True
    for spec, argument in zip(specs, arguments, strict=True):
        if not spec.rank:
            memory.append(scalar_memory(spec, argument))
            layouts.append(Layout.C_ORDER)
            continue
        if isinstance(argument, DeviceArray):
            _check_kind(spec, argument.dtype is spec.dtype, str(argument.dtype), argument.shape)
            hosts.append(argument)
            layout = None if argument.is_whole else (argument.strides, argument.offset)
            if layout is not None and spec.is_whole:
                _refuse(spec, "is used as a whole, and this is a view.", "copy it: vyre.array(view.numpy()).")
            memory.append(argument.buffer)
        else:
            host = host_array(spec, argument)
            hosts.append(host)
            flat, layout = _flat(spec, host, in_place=in_place and not spec.is_whole)
            memory.append(flat)
            if layout is None and host.size and not np.may_share_memory(flat, host):
                is_shared = False
                if spec.writes:
                    packed.append((flat, host))
        if layout is not None or spec.rank > 1:
            shapes += hosts[-1].shape
        if layout is None:
            layouts.append(Layout.C_ORDER)
            continue
        strides, first = layout
        layouts.append(Layout.ROWS if strides[-1] == 1 else Layout.STRIDED)
        passed = strides[:-1] if strides[-1] == 1 else strides
        shapes += [*(stride & 0xFFFFFFFF for stride in passed), first]
    _refuse_aliases([spec for spec in specs if spec.rank], hosts)
    if shapes:
        memory.append(np.array(shapes, np.uint32))
    return Taken(memory, tuple(layouts), packed, is_shared)


def scalar_memory(spec: Spec, value: Any) -> Array:
    """One number as memory of its type."""
    dtype, kind = spec.dtype, type(value)
    if kind is float and dtype is DType.F32 and -3e38 < value < 3e38:
        return np.array((value,), spec.storage)
    if isinstance(value, (np.generic, ndarray)) and value.ndim == 0:
        value = value.item()
    is_bool = isinstance(value, bool)
    if dtype is DType.BOOL:
        if not is_bool:
            _refuse(spec, f"takes a bool, and was given {_shown(value)}.", "pass True or False.")
        return np.array((value,), spec.storage)
    if is_bool or not isinstance(value, (int, float)) or (isinstance(value, float) and dtype.is_integer):
        fix = f"pass a number: int({value})." if is_bool or isinstance(value, float) else "pass one number."
        _refuse(spec, f"takes {a(dtype)}, and was given {_shown(value)}.", fix)
    if dtype.is_integer:
        if not dtype.minimum <= value <= dtype.maximum:
            _refuse(
                spec, f"takes {a(dtype)}, and was given {_shown(value)}.", f"pass {dtype.minimum} to {dtype.maximum}."
            )
        return np.array((value,), spec.storage)
    number = rounded(value, dtype)
    if number is None:
        _refuse(spec, f"takes {a(dtype)}, and {_shown(value)} is too large for it.", "pass a smaller number.")
    return np.array((to_bits(number, dtype),), dtype.unsigned.storage).view(spec.storage)


def host_array(spec: Spec, argument: Any) -> Array:
    """An argument as an array that shares its memory, of the parameter's type and rank."""
    host = _as_array(spec, argument)
    if host.dtype.name == "bfloat16" and spec.dtype is DType.BF16:
        host = host.view(np.uint16)
    _check_kind(spec, host.dtype == spec.storage, str(host.dtype), host.shape)
    if spec.writes and not host.flags.writeable:
        _refuse(spec, "is written by the kernel, and this array is read-only.", "pass a copy: array.copy().")
    return host


def _as_array(spec: Spec, argument: Any) -> Array:
    if isinstance(argument, np.ma.MaskedArray):
        _refuse(
            spec, "takes an array, and this one has a mask, which a kernel does not see.", "pass array.filled(...)."
        )
    try:
        shared = shared_array(argument)
    except BufferError as error:
        _refuse(spec, f"takes memory of the host, and this array is not to be had ({error}).", "copy it to NumPy.")
    if shared is None:
        fix = f"make it an array: np.array(..., np.{spec.storage.name})."
        _refuse(spec, f"takes an array, and was given {_shown(argument)}.", fix)
    return shared


def _check_kind(spec: Spec, fits: bool, shown: str, shape: tuple[int, ...]) -> None:
    if not fits:
        _refuse(spec, f"holds {spec.dtype}, and was given an array of {shown}.", conversion_fix(spec.dtype))
    if not spec.has_shape(shape):
        axes = f"{spec.rank} {'axis' if spec.rank == 1 else 'axes'}" if spec.sizes is None else f"shape {spec.sizes}"
        fix = "reshape the array, or declare the rank: In[f32, 2]." if spec.sizes is None else "pass an array of it."
        _refuse(spec, f"has {axes}, and was given an array of shape {shape}.", fix)


def _flat(spec: Spec, host: Array, *, in_place: bool) -> tuple[Array, tuple[tuple[int, ...], int] | None]:
    """An array's memory as one axis, and its strides and first element in it unless it is in C order."""
    item = host.itemsize
    if host.flags.c_contiguous and host.flags.aligned:
        flat = host.reshape(-1)
        if flat.strides != (item,):
            # An array of one element may have any stride.
            flat = np.lib.stride_tricks.as_strided(flat, (flat.size,), (item,))
        return flat, None
    if spec.writes:
        _refuse_overlap(spec, host)
    if not in_place or not host.flags.aligned or any(stride % item for stride in host.strides):
        return host.copy().reshape(-1), None
    lowest = host[tuple(slice(None, None, -1 if stride < 0 else 1) for stride in host.strides)]
    reach = [(size - 1) * abs(stride) for size, stride in zip(host.shape, host.strides, strict=True)]
    down = sum(far for far, stride in zip(reach, host.strides, strict=True) if stride < 0)
    flat = np.lib.stride_tricks.as_strided(lowest, (sum(reach) // item + 1,), (item,))
    return flat, (tuple(stride // item for stride in host.strides), down // item)


def _refuse_overlap(spec: Spec, host: Array) -> None:
    """Two indices of an output are two elements."""
    covered = host.itemsize
    for stride, size in sorted((abs(stride), size) for stride, size in zip(host.strides, host.shape, strict=True)):
        if size > 1:
            if stride < covered:
                _refuse(spec, "is written, and elements of this view share memory.", "pass a copy: array.copy().")
            covered += (size - 1) * stride


def _refuse_aliases(specs: Sequence[Spec], arrays: Sequence[Any]) -> None:
    """What a kernel writes shares memory with no other argument."""
    for at, (spec, one) in enumerate(zip(specs, arrays, strict=True)):
        for other_spec, other in zip(specs[:at], arrays[:at], strict=True):
            if (spec.writes or other_spec.writes) and _share(one, other):
                written, read = (spec, other_spec) if spec.writes else (other_spec, spec)
                _refuse(written, f"is written, and shares memory with argument '{read.name}'.", "pass a copy of one.")


def _share(one: Any, other: Any) -> bool:
    if isinstance(one, DeviceArray) and isinstance(other, DeviceArray):
        return one.buffer is other.buffer
    one, other = (x.host_memory if isinstance(x, DeviceArray) else x for x in (one, other))
    if one is None or other is None or (one.base is None and other.base is None and one is not other):
        return False
    try:
        return np.shares_memory(one, other, max_work=_MOST_WORK)  # type: ignore[arg-type]  # any number, says NumPy
    except np.exceptions.TooHardError:
        return True


def _refuse(spec: Spec, message: str, fix: str) -> NoReturn:
    raise BadInputs(f"argument '{spec.name}' {message}", fix, buffer=spec.name)


def _shown(value: Any) -> str:
    if isinstance(value, (bool, int, float)):
        return str(value)[:40]
    return f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
