"""What does a launch need that does not depend on its data? Decided once for each plan, so that a call is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu, Pipeline, whole_words
from vyre.backends.webgpu.tools import FOLD
from vyre.driver.binding import BindingPlan
from vyre.driver.config import DispatchConfig
from vyre.emit.wgsl import WgslKernel, emit_wgsl
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.buffers import Role
from vyre.ir.program import Program

# Far beyond what a driver compiles in reasonable time.
_MOST_TEXT: Final = 8 << 20
_MOST_GROUPS: Final = (1 << 32) - 1
# Along an axis, so that the product of two is still a word.
_MOST_FOLDED: Final = (1 << 16) - 1
INDIRECT_BYTES: Final = 12


def kernel_of(program: Program, *, folded: bool, gpu: Gpu | None = None) -> WgslKernel:
    """The kernel of a program for a device, or for any; it stays with the program."""
    watches_loops = gpu is not None and gpu.ends_loops
    native = gpu is not None and gpu.native_lanes == program.subgroup_size
    kept = program.__dict__.setdefault("_wgsl", {})
    kernel: WgslKernel | None = kept.get((folded, watches_loops, native))
    if kernel is None:
        kernel = emit_wgsl(program, folded=folded, watches_loops=watches_loops, native_subgroups=native)
        kept[folded, watches_loops, native] = kernel
    return kernel


class PreparedLaunch:
    """A plan's kernel, its parameter block, its workgroups on the device, and the sizes of its bindings.

    ``outputs`` are the places of the outputs among the plan's descriptors, ``fresh`` of those that start at zero. A
    launch of which the device reads the ``grid`` has ``arguments``, where that is put for it, and ``grid_at``: the
    place of the buffer that has it, and the word it begins at.
    """

    __slots__ = (
        "arguments",
        "block",
        "captures",
        "fresh",
        "grid_at",
        "groups",
        "has_faults",
        "invocations",
        "outputs",
        "pipeline",
        "plan",
        "sizes",
    )

    def __init__(self, gpu: Gpu, plan: BindingPlan, grid: n.IndirectDispatch | None = None) -> None:
        launch, program = plan.launch, plan.program
        self.plan = plan
        self.invocations = launch.invocations
        self.groups = _groups(launch.grid, launch.workgroup_size, _most_groups(gpu))
        folded = grid is not None or self.groups != launch.grid
        kernel = kernel_of(program, folded=folded, gpu=gpu)
        self.has_faults = kernel.has_faults
        words = {capture.buffer: capture.words(launch) for capture in kernel.captures}
        self.captures = [4 * count for count in words.values()]
        self.sizes = [whole_words(slot.byte_size) for slot in plan.descriptors] + [
            whole_words(size) for size in self.captures
        ]
        if self.has_faults:
            self.sizes.append(FAULT_BYTES)
        _require_fitting(gpu, plan, kernel, self.sizes)
        counts = {**launch.counts, **words}
        lengths = [counts[name] for name in kernel.sized]
        block = [*launch.grid, math.prod(launch.grid), 0, *lengths]
        self.block = gpu.block(block) if grid is None else gpu.new_block(block)
        read_only = [slot.role is Role.INPUT for slot in plan.descriptors]
        read_only += [False] * (len(words) + self.has_faults)
        self.pipeline: Pipeline = gpu.pipeline(kernel.text, tuple(read_only), program.name)
        places = {slot.name: place for place, slot in enumerate(plan.descriptors)}
        self.outputs = [places[slot.name] for slot in plan.outputs]
        self.fresh = [
            place for place, slot in enumerate(plan.descriptors) if slot.role is Role.OUTPUT and slot.byte_size
        ]
        self.grid_at = (0, 0) if grid is None else (places[grid.count_buffer], grid.count_offset // 4)
        self.arguments = None if grid is None else gpu.new_memory(INDIRECT_BYTES)

    def bind_group(self, gpu: Gpu, buffers: Sequence[Any]) -> Any:
        """The bindings of the plan's buffers, by descriptor, and of what transfers captured."""
        bound = [*buffers, gpu.faults] if self.has_faults else buffers
        regions = [(buffer, 0, size) for buffer, size in zip(bound, self.sizes, strict=True)]
        return gpu.bind_group(self.pipeline, self.block, regions)

    def fold_group(self, gpu: Gpu, buffers: Sequence[Any]) -> Any:
        """The bindings of the tool that finds out the grid."""
        place, first = self.grid_at
        along = [min((1 << 32) // size, _MOST_GROUPS) for size in self.plan.launch.workgroup_size]
        block = gpu.block([first, min(_most_groups(gpu), _MOST_FOLDED), *along])
        own = [gpu.state, self.block, self.arguments, gpu.faults]
        regions = [(buffers[place], 0, self.sizes[place]), *((buffer, 0, buffer.size) for buffer in own)]
        return gpu.bind_group(gpu.tool(FOLD), block, regions)


def host_reads_grid(program: Program, config: DispatchConfig) -> bool:
    """Whether a grid that is in memory is needed before the launch: memory for transfers, or all passes, depend on it.

    The outputs do not: they have their sizes from the inputs, and the buffer with the grid is one.
    """
    stats = program.stats()
    return stats.has_indirect_dispatch and (stats.has_async or config.passes > 1)


def _most_groups(gpu: Gpu) -> int:
    return gpu.limits["max-compute-workgroups-per-dimension"]


def _groups(grid: tuple[int, int, int], size: tuple[int, int, int], most: int) -> tuple[int, int, int]:
    """The workgroups to launch along each axis: the grid itself, or its workgroups folded over the axes."""
    for count, along in zip(grid, size, strict=True):
        if count * along > 1 << 32:
            raise BadInputs(
                f"the grid {grid} has {count * along:,} invocations along an axis, and ids are u32.",
                "launch fewer workgroups, along more axes.",
            )
    if max(grid) <= most:
        return grid
    total = math.prod(grid)
    if total > _MOST_GROUPS:
        raise BadInputs(
            f"the grid {grid} has {total:,} workgroups, and a device numbers {_MOST_GROUPS:,} at most.",
            "launch it in several pieces.",
        )
    x = min(total, most)
    y = min(-(-total // x), most)
    return x, y, -(-total // (x * y))


def _require_fitting(gpu: Gpu, plan: BindingPlan, kernel: WgslKernel, sizes: Sequence[int]) -> None:
    if len(sizes) > gpu.most_buffers:
        raise UnsupportedFeature(
            f"{len(sizes)} buffers in one kernel (the limit of this adapter is {gpu.most_buffers})",
            "webgpu",
            "join buffers, or split the program into several.",
        )
    names = [slot.name for slot in plan.descriptors] + [capture.buffer for capture in kernel.captures]
    for name, size in zip(names, sizes, strict=False):
        if size > gpu.binding_bytes:
            raise UnsupportedFeature(
                f"the {size:,} bytes of buffer '{name}' (this adapter binds {gpu.binding_bytes:,} at most)",
                "webgpu",
                "work on smaller pieces, or choose another backend (`vyre backends` lists them).",
            )
    most_shared = gpu.limits["max-compute-workgroup-storage-size"]
    if kernel.shared_bytes > most_shared:
        raise UnsupportedFeature(
            f"{kernel.shared_bytes:,} bytes of workgroup memory, with what its own meetings take (the limit is "
            f"{most_shared:,})",
            "webgpu",
        )
    if len(kernel.text) > _MOST_TEXT:
        raise UnsupportedFeature(
            f"a program of {plan.program.stats().statements:,} statements that becomes {len(kernel.text):,} characters "
            "of WGSL",
            "webgpu",
            "split it into several programs, or put repeated code into loops.",
        )
