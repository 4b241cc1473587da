"""What does a launch need that does not depend on its data? Decided once for each plan, so that a call is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from vyre.backends.cpu.kernels import CompiledKernel
from vyre.driver.binding import BindingPlan
from vyre.errors import BadInputs
from vyre.ir.binding import Array

# Ids along an axis are u32, and a vector may reach a little further than the grid.
_MOST_ALONG_AXIS: Final = (1 << 32) - 64


def address_of(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


class PreparedLaunch:
    """A plan's kernel and all of its argument block but the addresses.

    ``total`` counts what the kernel runs over: invocations, or workgroups. ``outputs`` are the places of the outputs
    among the plan's descriptors.
    """

    __slots__ = ("_captures", "_counts", "_grid", "_order", "invocations", "kernel", "outputs", "total")

    def __init__(self, plan: BindingPlan, kernel: CompiledKernel) -> None:
        launch = plan.launch
        x, y, z = launch.grid
        for count, size in zip(launch.grid, launch.workgroup_size, strict=True):
            if count * size > _MOST_ALONG_AXIS:
                raise BadInputs(
                    f"the grid {launch.grid} has {count * size:,} invocations along an axis, and ids are u32.",
                    "launch fewer workgroups, along more axes.",
                )
        self._captures = [capture.words(launch) for capture in kernel.kernel.captures]
        for words, capture in zip(self._captures, kernel.kernel.captures, strict=True):
            if 4 * words > _MOST_ALONG_AXIS:
                raise BadInputs(
                    f"the transfers to '{capture.destination.name}' would keep {4 * words:,} bytes.",
                    "launch fewer invocations, or transfer less.",
                )
        self.kernel = kernel
        self.invocations = launch.invocations
        self.total = self.invocations if kernel.kernel.is_flat else x * y * z
        self._grid = launch.grid
        places = {slot.name: place for place, slot in enumerate(plan.descriptors)}
        self.outputs = [places[slot.name] for slot in plan.outputs]
        declared = kernel.kernel.buffers[: len(places)]
        self._order = [places[name] for name in declared]
        self._counts = [plan.descriptors[place].count for place in self._order]

    def block(self, memory: Sequence[Array]) -> tuple[Array, list[Array]]:
        """The argument block for the plan's buffers, by descriptor, and memory that has to live as long as it.

        The word that stops a kernel is the block's last.
        """
        words = [0, *self._grid]
        for place, count in zip(self._order, self._counts):  # noqa: B905 (the keyword costs as much as the loop)
            words += (memory[place].__array_interface__["data"][0], count)
        kept = [np.zeros(words, np.uint32) for words in self._captures]
        for array in kept:
            words += (address_of(array), len(array))
        words.append(0)
        block = np.array(words, np.int64)
        block[0] = address_of(block) + 8 * (len(words) - 1)
        return block, kept
