"""Where a library call runs, and the arrays it works on.

A function of the library makes one ``Workspace``, takes its arguments through it, launches kernels on the operands that
it gets, and delivers its outputs. Operands are NumPy arrays on backends that work in host memory, so nothing is copied
there, and device arrays elsewhere, so that data is copied to the device once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from operator import index
from typing import Any, Final, Generic, ParamSpec, TypeVar

import numpy as np

from vyre.driver.backend import Backend
from vyre.driver.resident import ResidentBuffer
from vyre.errors import BadInputs
from vyre.ir.binding import Array
from vyre.ir.program import Program
from vyre.lang.arrays import DeviceArray, Memory, shared_array, type_of
from vyre.lang.backends import shared_backend
from vyre.lang.kernel import Kernel
from vyre.semantics.types import DType

# What a kernel takes for an array, and what callers pass and get.
Operand = Any
ArrayLike = Any

MAX_ELEMENTS: Final = (1 << 32) - 1
# Persistent kernels have this many workgroups for each thread of a processor, so that uneven work evens out, and at
# most so many on a device that does not tell how many it runs at a time.
_WORKGROUPS_PER_THREAD: Final = 8
_WORKGROUPS_ELSEWHERE: Final = 64


Given = ParamSpec("Given")
Result = TypeVar("Result")


class LibraryFunction(Generic[Given, Result]):
    """A function of the library that shows the program it runs: ``graph.bfs.program``."""

    def __init__(self, function: Callable[Given, Result], kernel: Callable[[], Kernel]) -> None:
        update_wrapper(self, function)
        self._function = function
        self._kernel = kernel

    def __call__(self, *arguments: Given.args, **named: Given.kwargs) -> Result:
        return self._function(*arguments, **named)

    @property
    def program(self) -> Program:
        """The program of its main kernel."""
        return self._kernel().program

    def __repr__(self) -> str:
        return f"<vyre.lib function {self._function.__name__}>"


def shows_program(
    kernel: Callable[[], Kernel],
) -> Callable[[Callable[Given, Result]], LibraryFunction[Given, Result]]:
    """Make a function show the program of its main kernel, which is translated when it is first asked for."""
    return lambda function: LibraryFunction(function, kernel)


class Workspace:
    """The backend of one library call, its operands and its outputs.

    The backend is the one named, else that of the first argument on a device, else the default. ``arguments`` are those
    that may be on a device.
    """

    def __init__(self, backend: str | Backend | None, *arguments: ArrayLike) -> None:
        owners = [_owner(one) for one in arguments if isinstance(one, (DeviceArray, ResidentBuffer))]
        self.backend = shared_backend(backend) if backend is not None or not owners else owners[0]
        for owner in owners:
            if owner is not self.backend:
                raise BadInputs(
                    f"an array is on backend '{owner.id}', and the call runs on '{self.backend.id}'.",
                    "run it where its arrays are, or copy them: vyre.array(a.numpy(), backend=...).",
                )
        self.in_place = self.backend.capabilities.in_place
        self._returns_device_arrays = bool(owners)
        # What the call gives back: the operand, what the caller gets, and the host memory it is copied to, if any.
        self._outputs: list[tuple[Operand, Any, Array | None]] = []

    def take(
        self, argument: ArrayLike, name: str, dtypes: DType | Sequence[DType], *, count: int | None = None
    ) -> Operand:
        """An argument of one axis as an operand; BadInputs names it if its type, rank or length is wrong."""
        allowed = (dtypes,) if isinstance(dtypes, DType) else tuple(dtypes)
        dtype, length = self.describe(argument, name, allowed)
        if count is not None and length != count:
            raise BadInputs(f"'{name}' has {length:,} elements, expected {count:,}.", f"pass {count:,} elements.")
        match argument:
            case DeviceArray() if not self.in_place and argument.is_whole:
                return argument
            case DeviceArray():
                host = np.asarray(argument, copy=False if self.in_place else None)
            case ResidentBuffer():
                return self._operand(_typed(argument, dtype))
            case _:
                host = _host_array(argument, name)
        return np.ascontiguousarray(host) if self.in_place else self._uploaded(host, dtype)

    def describe(self, argument: ArrayLike, name: str, allowed: Sequence[DType]) -> tuple[DType, int]:
        """The element type and length of an argument, which has one axis and one of the allowed types."""
        if isinstance(argument, ResidentBuffer):
            # A resident buffer has no type of its own: it holds the first one allowed.
            count, rest = divmod(argument.byte_len, allowed[0].bytes)
            if rest:
                raise BadInputs(
                    f"'{name}' has {argument.byte_len:,} bytes, which is not a whole number of {allowed[0]}.",
                    f"pass a buffer whose length is a multiple of {allowed[0].bytes}.",
                )
            return allowed[0], count
        source = argument if isinstance(argument, DeviceArray) else _host_array(argument, name)
        dtype = source.dtype if isinstance(source, DeviceArray) else type_of(source)
        if dtype not in allowed:
            shown = source.dtype
            names = " or ".join(map(str, allowed))
            fix = f"convert it: array.astype(np.{allowed[0].storage.name})."
            raise BadInputs(f"'{name}' has elements of type {shown}, expected {names}.", fix)
        assert dtype is not None  # it is one of those allowed
        if source.ndim != 1:
            raise BadInputs(f"'{name}' has shape {source.shape}, expected one axis.", "pass array.reshape(-1).")
        if source.size > MAX_ELEMENTS:
            raise BadInputs(f"'{name}' has {source.size:,} elements, and indices are u32.", "split it into parts.")
        return dtype, source.size

    def empty(self, count: int, dtype: DType) -> Operand:
        """A temporary array; its elements are not defined."""
        return np.empty(count, dtype.storage) if self.in_place else self._allocated(count, dtype)

    def zeros(self, count: int, dtype: DType) -> Operand:
        """A temporary array of zeros."""
        if self.in_place:
            return np.zeros(count, dtype.storage)
        made = self._allocated(count, dtype)
        if count:
            # A backend may hand out memory with anything in it.
            made.fill(0)
        return made

    def upload(self, host: Array) -> Operand:
        """A temporary array with the elements of a host array, which the call may change."""
        dtype = type_of(host)
        assert dtype is not None  # callers pass arrays of vyre's types
        return host.copy() if self.in_place else self._uploaded(host, dtype)

    def output(
        self, count: int, dtype: DType, out: ArrayLike = None, name: str = "out", *, apart_from: Sequence[Array] = ()
    ) -> Operand:
        """An array that ``deliver`` returns: the caller's ``out`` if there is one. Its elements are not defined.

        It may share no memory with the arrays in ``apart_from``, which the call reads while it writes.
        """
        if out is None:
            if not self._returns_device_arrays:
                operand = self.empty(count, dtype)
                self._outputs.append((operand, None, None))
                return operand
            out = self._allocated(count, dtype)
        given, length = self.describe(out, name, (dtype,))
        if length != count:
            raise BadInputs(f"'{name}' has {length:,} elements, expected {count:,}.", f"pass {count:,} {given}.")
        memory = _host_memory(out, name)
        if memory is not None and any(np.may_share_memory(memory, other) for other in apart_from):
            raise BadInputs(f"'{name}' shares memory with an array that the call reads.", "pass an array of its own.")
        return self._written(out, name, dtype, keeps_elements=False)

    def update(self, argument: ArrayLike, name: str, dtype: DType) -> Operand:
        """An argument of one axis that the call changes in place; ``deliver`` returns it."""
        self.describe(argument, name, (dtype,))
        return self._written(argument, name, dtype, keeps_elements=True)

    def deliver(self, operand: Operand) -> Any:
        """What the caller gets for an output: its own array, a NumPy array or a device array."""
        _, out, host = next(entry for entry in self._outputs if entry[0] is operand)
        if out is None:
            return operand if self.in_place else operand.numpy()
        if host is not None and not self.in_place:
            host[...] = operand.numpy()
        return out

    def read(self, operand: Operand) -> Array:
        """The elements of an operand on the host; they may be the operand's own."""
        elements: Array = operand if self.in_place else operand.numpy()
        return elements

    def workgroups(self, items: int, items_per_workgroup: int) -> int:
        """How many workgroups a persistent kernel has: enough to fill the device, no more than there is work for."""
        units = self.backend.capabilities.compute_units
        most = units * _WORKGROUPS_PER_THREAD if self.in_place and units else _WORKGROUPS_ELSEWHERE
        return max(1, min(most, -(-items // items_per_workgroup)))

    def _written(self, array: ArrayLike, name: str, dtype: DType, *, keeps_elements: bool) -> Operand:
        """An array of the caller's that the call writes; what it held is there if the call ``keeps_elements``."""
        host: Array | None = None
        if isinstance(array, ResidentBuffer):
            operand = self._operand(_typed(array, dtype))
        elif isinstance(array, DeviceArray):
            if not array.is_whole:
                raise BadInputs(f"'{name}' is a view.", "pass a whole device array.")
            operand = self._operand(array)
        else:
            host = _host_array(array, name)
            if not host.flags.writeable or not host.flags.c_contiguous:
                raise BadInputs(f"'{name}' is read-only or not contiguous.", "pass an array of its own.")
            if self.in_place:
                operand = host
            else:
                operand = self._uploaded(host, dtype) if keeps_elements else self._allocated(host.size, dtype)
        self._outputs.append((operand, array, host))
        return operand

    def _allocated(self, count: int, dtype: DType) -> DeviceArray:
        return DeviceArray.whole(Memory(self.backend.allocate(count * dtype.bytes)), dtype, (count,))

    def _uploaded(self, host: Array, dtype: DType) -> DeviceArray:
        made = self._allocated(host.size, dtype)
        made.assign(host)
        return made

    def _operand(self, array: DeviceArray) -> Operand:
        return array.host_view() if self.in_place else array


def require_count(value: Any, name: str, *, least: int = 0, most: int = MAX_ELEMENTS) -> int:
    """A whole number within bounds; BadInputs names it if it is none."""
    try:
        number = index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise BadInputs(f"'{name}' is {value!r:.60}.", f"pass a whole number from {least:,} to {most:,}.")
    return number


def _host_memory(array: ArrayLike, name: str) -> Array | None:
    """The memory of an array, where the host can reach it."""
    if isinstance(array, ResidentBuffer):
        return array.owner.host_memory(array)
    return array.host_memory if isinstance(array, DeviceArray) else _host_array(array, name)


def _owner(argument: DeviceArray | ResidentBuffer) -> Backend:
    return argument.backend if isinstance(argument, DeviceArray) else argument.owner


def _typed(buffer: ResidentBuffer, dtype: DType) -> DeviceArray:
    """A device array on a buffer that its caller keeps and frees."""
    return DeviceArray.over(buffer, dtype)


def _host_array(argument: ArrayLike, name: str) -> Array:
    try:
        shared = shared_array(argument)
    except BufferError as error:
        raise BadInputs(f"'{name}' is not in host memory ({error}).", "copy it to NumPy first.") from None
    if shared is None:
        fix = "make it one: np.array(..., np.uint32)."
        raise BadInputs(f"'{name}' is a {type(argument).__name__}, expected an array.", fix)
    return shared
