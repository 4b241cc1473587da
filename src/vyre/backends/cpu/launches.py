"""Launches of compiled kernels: everything that does not depend on data is decided once, so that a call is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from struct import Struct
from typing import Final

import msgspec
import numpy as np

from vyre.backends.cpu.interrupts import takes_long
from vyre.backends.cpu.kernels import CompiledKernel
from vyre.backends.cpu.layout import Block, Frame
from vyre.errors import BadInputs, DeviceOutOfMemory
from vyre.ir.binding import Array
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.schedule import host_buffers

# Offsets into transferred bytes are u32.
_MOST_TRANSFERRED_BYTES: Final = (1 << 32) - 64
_ALIGNMENT: Final = 64
_SHARES_PER_THREAD: Final = 16
# Operations of an invocation that is not worth sharing by itself.
_LIGHT_WORK: Final = 64


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def aligned_bytes(count: int) -> Array:
    """Zeros from an address on that suits vectors and keeps words on the cache lines they are meant for."""
    raw = np.zeros(count + _ALIGNMENT, np.uint8)
    start = -address_of(raw) % _ALIGNMENT
    return raw[start : start + count]


def bytes_of(array: Array) -> Array:
    """The bytes of memory, which callers' arrays have in elements."""
    return array if array.dtype == np.uint8 else array.view(np.uint8)


class Sharing(msgspec.Struct, frozen=True):
    """When threads share a launch: with at least ``worth_sharing`` invocations, fewer are done before another begins.

    Invocations that may do any amount of work are shared however few they are, a vector at a time. ``flat_grain`` is
    how many of the others a thread takes at least at a time. Both are for light invocations; of those that take many
    times the operations, as many times fewer will do.
    """

    threads: int
    worth_sharing: int = 2048
    flat_grain: int = 1024


class KernelLaunch:
    """A kernel over a grid.

    ``total`` counts what the kernel runs over: invocations, or workgroups. ``grain`` is how many of them a thread takes
    at a time, None if the caller should do all of them alone. ``captures`` are the words of the kernel's own buffers.
    """

    __slots__ = ("captures", "grain", "grid", "kernel", "total")

    def __init__(self, kernel: CompiledKernel, launch: Launch, sharing: Sharing) -> None:
        self.captures = [capture.words(launch) for capture in kernel.kernel.captures]
        for words, capture in zip(self.captures, kernel.kernel.captures, strict=True):
            if 4 * words > _MOST_TRANSFERRED_BYTES:
                raise BadInputs(
                    f"the transfers to '{capture.destination.name}' would keep {4 * words:,} bytes.",
                    "launch fewer invocations, or transfer less.",
                )
        x, y, z = self.grid = launch.grid
        self.kernel = kernel
        self.total = launch.invocations if kernel.kernel.is_flat else x * y * z
        self.grain: int | None = None
        # The limits are for invocations of a few operations.
        weight = max(1, kernel.kernel.work // _LIGHT_WORK)
        is_worth_sharing = kernel.kernel.is_unbounded or launch.invocations * weight >= sharing.worth_sharing
        if sharing.threads > 1 and is_worth_sharing and self.total > 1:
            grain = max(1, self.total // (sharing.threads * _SHARES_PER_THREAD))
            if kernel.kernel.is_flat:
                # What a thread takes starts with a whole vector; if it is long enough, it consists of whole rows.
                is_small = kernel.kernel.is_unbounded and launch.invocations < sharing.worth_sharing
                least = math.lcm(1 if is_small else max(1, sharing.flat_grain // weight), kernel.kernel.width)
                grain = -(-grain // least) * least
                axis = kernel.kernel.axis
                row = launch.grid[axis] * launch.workgroup_size[axis]
                if row < min(grain, self.total):
                    grain = -(-grain // row) * row
            self.grain = grain


class PreparedLaunch:
    """A kernel over a grid, and a frame with all of its argument block but the addresses.

    The memory it runs on is in the binding order of its program's buffers. ``pack`` makes what ``enter`` takes of the
    ids of the kernel's arrays. The launch is simple if those are the memory in its order. It ``takes_long`` if Ctrl-C
    has to be able to end it.
    """

    __slots__ = ("_frame", "_order", "frame", "is_shared", "is_simple", "launch", "pack", "takes_long")

    def __init__(self, kernel: CompiledKernel, program: Program, whole: Launch, sharing: Sharing) -> None:
        decls, counts = host_buffers(program), whole.counts
        names = kernel.kernel.buffers
        places = {decl.name: place for place, decl in enumerate(decls)}
        self.launch = launch = KernelLaunch(kernel, whole, sharing)
        self.is_shared = launch.grain is not None
        self._order = [places[name] for name in names[: len(places)]]
        # Slots follow the head of the block: the address, then the count.
        block = [0] * Block.WORDS
        block[Block.GRID :] = launch.grid
        for place in self._order:
            # In place of the address: the bits that have to be zero in it.
            block += (decls[place].dtype.bytes - 1, counts[decls[place].name])
        for words in launch.captures:
            block += (3, words)
        head = [0] * Frame.WORDS
        head[Frame.KERNEL] = kernel.address
        head[Frame.TOTAL], head[Frame.GRAIN] = launch.total, launch.grain or 0
        head[Frame.BUFFERS], head[Frame.BLOCK_WORDS] = len(names), len(block)
        self._frame = np.array([*head, *block], np.int64)
        self.frame = address_of(self._frame)
        self.pack = Struct(f"{len(names)}P").pack
        is_in_order = self._order == list(range(len(self._order)))
        self.is_simple = is_in_order and not launch.captures
        self.takes_long = kernel.kernel.is_unbounded or takes_long(whole.invocations, program.entry)

    def arrays(self, memory: Sequence[Array]) -> list[Array]:
        """The arrays of the kernel's buffers, in its order, from memory in binding order."""
        try:
            captures = [np.zeros(words, np.uint32) for words in self.launch.captures]
        except MemoryError:
            raise DeviceOutOfMemory(4 * sum(self.launch.captures)) from None
        return [*(memory[place] for place in self._order), *captures]
