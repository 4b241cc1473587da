"""The host route: a device whose memory does not outlast a launch, as one that works on the host's memory.

Memory handles are arrays of the host. A launch moves what it touches to the device, and back what it writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from vyre.analyze.effects import written_buffers
from vyre.driver.config import DispatchConfig
from vyre.driver.device import Code, Copy, Device, Fill, Range, RunOptions, Use, require_lengths
from vyre.driver.profile import DeviceProfile
from vyre.driver.scratch import Scratch
from vyre.driver.timing import Timing
from vyre.ir.binding import Array
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.schedule import host_buffers


class MovedCode(msgspec.Struct, frozen=True, eq=False):
    """The device's code for a program, and by place which of the program's buffers it may write."""

    program: Program
    code: Code
    written: tuple[int, ...]


class HostMemoryDevice(Device):
    """A device behind the host's memory; ``scratch`` lends the memory on it that launches work on."""

    def __init__(self, device: Device, scratch: Scratch) -> None:
        self.id, self.version = device.id, device.version  # type: ignore[misc]
        self._device = device
        self._scratch = scratch

    @cached_property
    def profile(self) -> DeviceProfile:
        return msgspec.structs.replace(self._device.profile, resident=False, in_place=True)

    def allocate(self, byte_len: int) -> Array:
        return np.zeros(byte_len, np.uint8)

    def free(self, handle: Array) -> None:
        """Memory goes with the last array on it."""

    def write(self, copies: Sequence[Copy], fills: Sequence[Fill]) -> None:
        for handle, offset, size, value in fills:
            _bytes_of(handle)[offset : offset + size] = value
        for handle, offset, data in copies:
            _bytes_of(handle)[offset : offset + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, ranges: Sequence[Range]) -> list[Array]:
        return [_bytes_of(handle)[offset : offset + length].copy() for handle, offset, length in ranges]

    def read_with(self, ranges: Sequence[Range], use: Use) -> Any:
        return use([_bytes_of(handle)[offset : offset + length] for handle, offset, length in ranges])

    def compile(self, program: Program, *, source: Program, config: DispatchConfig) -> MovedCode:
        return self.moved(program, self._device.compile(program, source=source, config=config))

    def moved(self, program: Program, code: Code) -> MovedCode:
        """Code that the device made of a program, for launches on the host's memory."""
        written = written_buffers(program)
        places = [place for place, decl in enumerate(host_buffers(program)) if decl.name in written]
        return MovedCode(program, code, tuple(places))

    def launch(self, code: MovedCode, memory: Sequence[Array], launch: Launch, options: RunOptions) -> Timing | None:
        device = self._device
        sizes = [launch.counts[decl.name] * decl.dtype.bytes for decl in host_buffers(code.program)]
        arrays = [_bytes_of(array)[:size] for array, size in zip(memory, sizes, strict=True)]
        with self._scratch.borrowed(sizes) as slots:
            device.write([(slot, 0, array.data) for slot, array in zip(slots, arrays, strict=True) if array.size], ())
            timing = device.launch(code.code, slots, launch, options)
            ranges = [(slots[place], 0, sizes[place]) for place in code.written]
            views = require_lengths(device, device.read(ranges), ranges)
            for place, view in zip(code.written, views, strict=True):
                arrays[place][:] = np.frombuffer(view, np.uint8)
        return timing

    def explain(self, code: MovedCode) -> list[str]:
        return self._device.explain(code.code)


def _bytes_of(array: Array) -> Array:
    return array.view(np.uint8)
