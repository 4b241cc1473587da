"""Launches of compiled kernels: all that does not depend on data is decided once, so that a call is short."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from vyre.backends.webgpu.gpu import FAULT_BYTES, Gpu
from vyre.backends.webgpu.tools import FOLD
from vyre.backends.webgpu.work import Pipeline, Region, Work, storage_access, whole, whole_words
from vyre.emit.wgsl import WgslKernel, emit_wgsl
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir.binding import indirect_dispatch
from vyre.ir.launch import Launch
from vyre.ir.limits import MAX_AXIS_INVOCATIONS
from vyre.ir.program import Program
from vyre.lower.schedule import host_buffers

# Far more than a driver compiles in reasonable time.
_MOST_TEXT: Final = 8 << 20
_MOST_GROUPS: Final = (1 << 32) - 1
# Along an axis, so that the product of two is still a word.
_MOST_FOLDED: Final = (1 << 16) - 1
INDIRECT_BYTES: Final = 12
# The grid of a launch whose grid is in memory.
_EMPTY_GRID: Final = (0, 0, 0)


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
            text = self.kernel(gpu, folded=folded).text
            found = self._pipelines[folded] = gpu.pipeline(text, self.program.name)
        return found

    def _require_device(self, gpu: Gpu) -> None:
        if self._gpu is not gpu:
            self._kernels.clear()
            self._pipelines.clear()
            self._gpu = gpu


class PreparedLaunch:
    """A kernel over a grid: its parameter block, its workgroups on the device, and the sizes of its bindings.

    ``captures`` are the sizes of the memory for what its transfers capture. For a launch whose grid is in memory
    (``launch.grid`` is then empty), a kernel of the backend copies that into the block and into ``_arguments``.
    """

    def __init__(self, gpu: Gpu, code: WebGpuCode, launch: Launch) -> None:
        self._gpu = gpu
        self._program = program = code.program
        self._launch = launch
        self._groups = _groups(launch.grid, _most_groups(gpu))
        folded = code.is_indirect or self._groups != launch.grid
        self._kernel = kernel = code.kernel(gpu, folded=folded)
        self._pipeline = code.pipeline(gpu, folded=folded)
        decls = host_buffers(program)
        words = {capture.buffer: capture.words(launch) for capture in kernel.captures}
        self.captures = [4 * count for count in words.values()]
        own = [launch.counts[decl.name] * decl.dtype.bytes for decl in decls]
        self._sizes = [whole_words(size) for size in (*own, *self.captures)]
        _require_fitting(gpu, [*(decl.name for decl in decls), *words], self._sizes)
        if kernel.has_faults:
            self._sizes.append(FAULT_BYTES)
        counts = {**launch.counts, **words}
        block = [*launch.grid, math.prod(launch.grid), 0, *(counts[name] for name in kernel.sized)]
        is_empty = launch.grid == _EMPTY_GRID
        self._arguments = gpu.new_memory(INDIRECT_BYTES) if code.is_indirect and is_empty else None
        self._block = gpu.block(block) if self._arguments is None else gpu.new_block(block)

    def works(self, buffers: Sequence[Any]) -> list[Work]:
        """Return the dispatches on the program's buffers, in binding order, and the memory of its captures."""
        gpu, kernel, launch = self._gpu, self._kernel, self._launch
        if self._arguments is None and not launch.invocations:
            return []
        bound = [*buffers, gpu.faults] if kernel.has_faults else buffers
        regions = [(buffer, 0, size) for buffer, size in zip(bound, self._sizes, strict=True)]
        work = Work(
            self._pipeline,
            gpu.bind_group(self._pipeline, self._block, regions),
            self._groups,
            has_faults=kernel.has_faults,
            arguments=None if self._arguments is None else (self._arguments, 0),
            cost=(launch.invocations or 1) * (1 + kernel.max_passes),
        )
        return [work] if self._arguments is None else [self._fold(regions), work]

    def _fold(self, regions: Sequence[Region]) -> Work:
        """Return the dispatch that reads the grid and decides the workgroups."""
        gpu, grid = self._gpu, indirect_dispatch(self._program)
        assert grid is not None  # the grid of no other program is in memory
        names = [decl.name for decl in host_buffers(self._program)]
        along = [MAX_AXIS_INVOCATIONS // size for size in self._launch.workgroup_size]
        words = [grid.count_offset // 4, min(_most_groups(gpu), _MOST_FOLDED), *along]
        own = [whole(one) for one in (gpu.state, self._block, self._arguments, gpu.faults)]
        read = regions[names.index(grid.count_buffer)]
        return replace(gpu.tool_work(FOLD, words, [read, *own]), has_faults=True, always=True)


def _most_groups(gpu: Gpu) -> int:
    return gpu.limits["max-compute-workgroups-per-dimension"]


def _groups(grid: tuple[int, int, int], most: int) -> tuple[int, int, int]:
    """Return the workgroups to launch along each axis: the grid itself, or its workgroups folded over the axes."""
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
    count = len(storage_access(kernel.text))
    if count > gpu.most_buffers:
        raise UnsupportedFeature(
            f"{count} buffers in one kernel (the limit of this adapter is {gpu.most_buffers})",
            "webgpu",
            "join buffers, or split the program into several.",
        )


def _require_fitting(gpu: Gpu, names: Sequence[str], sizes: Sequence[int]) -> None:
    """Raise UnsupportedFeature for a launch on a buffer that is too large to be bound."""
    for name, size in zip(names, sizes, strict=True):
        if size > gpu.binding_bytes:
            raise UnsupportedFeature(
                f"the {size:,} bytes of buffer '{name}' (this adapter binds {gpu.binding_bytes:,} at most)",
                "webgpu",
                "work on smaller pieces, or choose another backend (`vyre backends` lists them).",
            )
