"""Launches of compiled kernels: all that does not depend on data is decided once, so that a call is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu, Pipeline, whole_words
from vyre.backends.webgpu.tools import FOLD
from vyre.emit.wgsl import WgslKernel, emit_wgsl
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir.binding import indirect_dispatch
from vyre.ir.buffers import Role
from vyre.ir.launch import Launch
from vyre.ir.program import Program
from vyre.lower.schedule import host_buffers

# Far more than a driver compiles in reasonable time.
_MOST_TEXT: Final = 8 << 20
_MOST_GROUPS: Final = (1 << 32) - 1
# Along an axis, so that the product of two is still a word.
_MOST_FOLDED: Final = (1 << 16) - 1
INDIRECT_BYTES: Final = 12
# The grid of a launch whose grid is in memory.
EMPTY_GRID: Final = (0, 0, 0)


class WebGpuCode:
    """The code of a program: a variant for grids that fit the device's axes, and one for folded grids.

    A program whose grid is in memory has the second only. Code is made for one device, and again for the next after
    that was lost.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.is_indirect = program.stats().has_indirect_dispatch
        self._gpu: Gpu | None = None
        self._kernels: dict[bool, WgslKernel] = {}
        self._pipelines: dict[bool, Pipeline] = {}

    def kernel(self, gpu: Gpu, *, folded: bool) -> WgslKernel:
        """Return the text of a variant."""
        self._require_device(gpu)
        found = self._kernels.get(folded)
        if found is None:
            native = gpu.native_lanes == self.program.subgroup_size
            found = emit_wgsl(self.program, folded=folded, watches_loops=gpu.ends_loops, native_subgroups=native)
            _require_small(gpu, self.program, found)
            self._kernels[folded] = found
        return found

    def pipeline(self, gpu: Gpu, *, folded: bool) -> Pipeline:
        """Return the compiled kernel of a variant."""
        self._require_device(gpu)
        found = self._pipelines.get(folded)
        if found is None:
            kernel = self.kernel(gpu, folded=folded)
            read_only = [decl.role is Role.INPUT for decl in host_buffers(self.program)]
            read_only += [False] * (len({capture.buffer for capture in kernel.captures}) + kernel.has_faults)
            found = self._pipelines[folded] = gpu.pipeline(kernel.text, tuple(read_only), self.program.name)
        return found

    def _require_device(self, gpu: Gpu) -> None:
        if self._gpu is not gpu:
            self._kernels.clear()
            self._pipelines.clear()
            self._gpu = gpu


class PreparedLaunch:
    """A kernel over a grid: its parameter block, its workgroups on the device, and the sizes of its bindings.

    A launch whose grid is in memory (``launch.grid`` is then empty) has ``arguments``, memory for the device's own
    copy of it, and ``grid_at``: the place of the buffer that holds it, and its first word there.
    """

    __slots__ = (
        "arguments",
        "block",
        "captures",
        "grid_at",
        "groups",
        "has_faults",
        "invocations",
        "pipeline",
        "sizes",
        "workgroup_size",
    )

    def __init__(self, gpu: Gpu, code: WebGpuCode, launch: Launch) -> None:
        program = code.program
        decls = host_buffers(program)
        grid = indirect_dispatch(program) if launch.grid == EMPTY_GRID else None
        self.invocations = launch.invocations
        self.workgroup_size = launch.workgroup_size
        self.groups = _groups(launch.grid, launch.workgroup_size, _most_groups(gpu))
        folded = code.is_indirect or self.groups != launch.grid
        kernel = code.kernel(gpu, folded=folded)
        self.has_faults = kernel.has_faults
        words = {capture.buffer: capture.words(launch) for capture in kernel.captures}
        self.captures = [4 * count for count in words.values()]
        self.sizes = [whole_words(launch.counts[decl.name] * decl.dtype.bytes) for decl in decls] + [
            whole_words(size) for size in self.captures
        ]
        if self.has_faults:
            self.sizes.append(FAULT_BYTES)
        _require_fitting(gpu, [*(decl.name for decl in decls), *words], self.sizes)
        counts = {**launch.counts, **words}
        lengths = [counts[name] for name in kernel.sized]
        block = [*launch.grid, math.prod(launch.grid), 0, *lengths]
        self.block = gpu.block(block) if grid is None else gpu.new_block(block)
        self.pipeline: Pipeline = code.pipeline(gpu, folded=folded)
        places = {decl.name: place for place, decl in enumerate(decls)}
        self.grid_at = (0, 0) if grid is None else (places[grid.count_buffer], grid.count_offset // 4)
        self.arguments = None if grid is None else gpu.new_memory(INDIRECT_BYTES)

    def bind_group(self, gpu: Gpu, buffers: Sequence[Any]) -> Any:
        """Return the bindings of the program's buffers, in binding order, and of the captures of transfers."""
        bound = [*buffers, gpu.faults] if self.has_faults else buffers
        regions = [(buffer, 0, size) for buffer, size in zip(bound, self.sizes, strict=True)]
        return gpu.bind_group(self.pipeline, self.block, regions)

    def fold_group(self, gpu: Gpu, buffers: Sequence[Any]) -> Any:
        """Return the bindings of the tool that reads the grid."""
        place, first = self.grid_at
        along = [min((1 << 32) // size, _MOST_GROUPS) for size in self.workgroup_size]
        block = gpu.block([first, min(_most_groups(gpu), _MOST_FOLDED), *along])
        own = [gpu.state, self.block, self.arguments, gpu.faults]
        regions = [(buffers[place], 0, self.sizes[place]), *((buffer, 0, buffer.size) for buffer in own)]
        return gpu.bind_group(gpu.tool(FOLD), block, regions)


def _most_groups(gpu: Gpu) -> int:
    return gpu.limits["max-compute-workgroups-per-dimension"]


def _groups(grid: tuple[int, int, int], size: tuple[int, int, int], most: int) -> tuple[int, int, int]:
    """Return the workgroups to launch along each axis: the grid itself, or its workgroups folded over the axes."""
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


def _require_small(gpu: Gpu, program: Program, kernel: WgslKernel) -> None:
    """Raise UnsupportedFeature for a kernel that is too large for the device with any data."""
    most_shared = gpu.limits["max-compute-workgroup-storage-size"]
    if kernel.shared_bytes > most_shared:
        raise UnsupportedFeature(
            f"{kernel.shared_bytes:,} bytes of workgroup memory, with what its barriers take (the limit is "
            f"{most_shared:,})",
            "webgpu",
        )
    if len(kernel.text) > _MOST_TEXT:
        raise UnsupportedFeature(
            f"a program of {program.stats().statements:,} statements that becomes {len(kernel.text):,} characters "
            "of WGSL",
            "webgpu",
            "split it into several programs, or put repeated code into loops.",
        )
    count = len(host_buffers(program)) + len({capture.buffer for capture in kernel.captures}) + kernel.has_faults
    if count > gpu.most_buffers:
        raise UnsupportedFeature(
            f"{count} buffers in one kernel (the limit of this adapter is {gpu.most_buffers})",
            "webgpu",
            "join buffers, or split the program into several.",
        )


def _require_fitting(gpu: Gpu, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Raise UnsupportedFeature for a launch on a buffer that is too large to be bound."""
    for name, size in zip(names, sizes, strict=False):
        if size > gpu.binding_bytes:
            raise UnsupportedFeature(
                f"the {size:,} bytes of buffer '{name}' (this adapter binds {gpu.binding_bytes:,} at most)",
                "webgpu",
                "work on smaller pieces, or choose another backend (`vyre backends` lists them).",
            )
