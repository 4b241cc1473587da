"""Machine code of programs: variants for different launches, each compiled once and kept as object code on disk."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from hashlib import blake2b
from threading import Lock
from typing import Final

import msgspec

from vyre.analyze.workgroup_independence import fastest_axis, is_workgroup_independent
from vyre.backends.cpu.compile import Loaded, Machine, kept_object_code, machine_facts, this_machine
from vyre.driver import telemetry
from vyre.driver.cache import DiskCache
from vyre.emit.llvm import KERNEL, Kernel, emit_kernel
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.extensions import inline_calls
from vyre.ir.program import Program
from vyre.lower.fresh_names import with_unique_names

# A width of 1 is code for one invocation after another, without vectors.
SCALAR: Final = 1
WIDTHS: Final = (4, 8, 16)
# Launches of so many invocations for each thread, and fewer, may run as scalar code.
_FEW_FOR_EACH_THREAD: Final = 256
# Along shorter axes, most lanes of a vector would be idle.
_MIN_ROW: Final = 4
# Far beyond what compiles in reasonable time; a frame of such a function might not fit on a thread's stack.
_MOST_TEXT: Final = 32 << 20

# How variants are chosen: always vectors, by the model alone, or by the time that launches take.
_TUNING_MODES: Final = ("off", "model", "measure")

Grid = tuple[int, int, int]
# A grid of one axis, too large for what small launches get.
LARGE_GRID: Final[Grid] = (1 << 24, 1, 1)


def tuning_mode() -> str:
    """Return the mode that ``VYRE_TUNE`` names; "measure" if it names none."""
    mode = os.environ.get("VYRE_TUNE") or _TUNING_MODES[-1]
    if mode not in _TUNING_MODES:
        raise BadInputs(f"VYRE_TUNE is '{mode}'.", f"set it to one of {', '.join(_TUNING_MODES)}, or leave it out.")
    return mode


class CompiledKernel(msgspec.Struct, frozen=True, eq=False):
    """A kernel in memory; the code stays there as long as this does."""

    kernel: Kernel
    loaded: Loaded
    address: int


class CpuCode:
    """The code of a program: a variant for each class of launches, compiled when the first such launch is prepared.

    A program that does not depend on its workgroup's shape runs "flat" code, over rows of the whole grid instead of
    workgroups, with the lanes along the axis on which its accesses are consecutive. A launch of few heavy invocations
    that go through memory each in its own way, or that are no more than the threads, runs scalar code: most lanes of a
    vector would wait for others, and threads share the invocations. Programs that know their workgroups are left out:
    their invocations may go through memory side by side. What was measured (``vyre.backends.cpu.tuning``) comes before
    what is estimated. Optimization is the compiler's; without it code is made
    faster, and runs slower.
    """

    def __init__(self, kernels: Kernels, program: Program, source: Program, *, optimize: bool) -> None:
        self.program = program
        self._kernels = kernels
        self._optimize = optimize
        self._is_flat = is_workgroup_independent(program)
        self._axis = fastest_axis(with_unique_names(inline_calls(program))) if self._is_flat else 0
        self._may_be_scalar = not source.stats().has(n.LocalId, n.WorkgroupId)
        self._texts: dict[tuple[int, int], Kernel] = {}
        self._compiled: dict[tuple[int, int], CompiledKernel] = {}
        self._measured: dict[int, int] = {}
        self._lock = Lock()

    def for_launch(self, grid: Grid, width: int | None = None) -> CompiledKernel:
        """The code for a launch of that grid; the variant of a width, or the one that was measured or is estimated."""
        axis = self._axis_for(grid)
        if width is None:
            width = self._width_for(axis, grid)
        found = self._compiled.get((axis, width))
        if found is None:
            # One thread compiles at a time: two that need the same code get one, and none is unloaded while it runs.
            with self._lock:
                found = self._compiled.get((axis, width))
                if found is None:
                    kernel = self._text(axis, width)
                    found = self._compiled[axis, width] = self._kernels.compiled(
                        self.program.name, kernel, optimize=self._optimize
                    )
        return found

    def candidates(self, grid: Grid) -> tuple[int, ...]:
        """The widths that may be the fastest for a launch, depending on its data; first the one that is chosen."""
        axis = self._axis_for(grid)
        chosen = self._width_for(axis, grid)
        if not self._has_variants or self._kernels.mode != "measure" or self._size_class(grid) in self._measured:
            return (chosen,)
        if not self._text(axis, self._kernels.width).is_irregular:
            return (chosen,)
        return chosen, *({SCALAR, self._kernels.width} - {chosen})

    def keep(self, grid: Grid, width: int) -> None:
        """Keep the width that was the fastest for launches of about that size."""
        self._measured[self._size_class(grid)] = width
        self._kernels.keep_width(self._text(self._axis_for(grid), self._kernels.width), self._size_class(grid), width)

    @property
    def measured(self) -> Mapping[int, int]:
        """The widths that were measured to be the fastest, by the logarithm of the number of invocations."""
        return self._measured

    @property
    def _has_variants(self) -> bool:
        return self._is_flat and self._may_be_scalar and self._kernels.has_choice

    def _size_class(self, grid: Grid) -> int:
        return self._invocations(grid).bit_length()

    def _width_for(self, axis: int, grid: Grid) -> int:
        kernels, invocations = self._kernels, self._invocations(grid)
        if not self._has_variants or kernels.mode == "off":
            return kernels.width
        kernel, size = self._text(axis, kernels.width), self._size_class(grid)
        if kernel.is_irregular and kernels.mode == "measure":
            known = self._measured.get(size) or kernels.kept_width(kernel, size)
            if known is not None:
                self._measured[size] = known
                return known
        is_few = invocations <= kernels.few_invocations
        return SCALAR if is_few and self._is_faster_as_scalar(kernel, invocations) else kernels.width

    def _is_faster_as_scalar(self, kernel: Kernel, invocations: int) -> bool:
        """Whether few heavy invocations take less time one lane each, on more threads, than in vectors."""
        if kernel.is_irregular or not kernel.is_unbounded:
            return kernel.is_irregular
        threads = self._kernels.threads
        in_turn = math.ceil(invocations / threads)
        vectors_in_turn = math.ceil(math.ceil(invocations / kernel.width) / threads)
        return in_turn <= vectors_in_turn * kernel.slowdown

    def _invocations(self, grid: Grid) -> int:
        return math.prod(grid) * math.prod(self.program.workgroup_size)

    def _axis_for(self, grid: Grid) -> int:
        """Return the axis of the lanes: the fastest one, unless the grid is too short along it."""
        if not self._axis or grid == LARGE_GRID:
            return self._axis
        size = grid[self._axis] * self.program.workgroup_size[self._axis]
        return self._axis if size >= _MIN_ROW or grid[0] * self.program.workgroup_size[0] <= size else 0

    def _text(self, axis: int, width: int) -> Kernel:
        found = self._texts.get((axis, width))
        if found is None:
            found = self._kernels.emitted(self.program, width, flat=self._is_flat, axis=axis)
            self._texts[axis, width] = found
        return found


class Kernels:
    """Makes code for vectors of one width, the machine's unless it is given. Then no launch gets another width."""

    def __init__(
        self,
        disk: DiskCache,
        threads: int,
        *,
        width: int | None,
        verify: bool,
        check_elimination: bool,
    ) -> None:
        self.machine: Machine = this_machine()
        widths = (SCALAR, *WIDTHS)
        if width is not None and width not in widths:
            raise BadInputs(f"vectors of {width} lanes are not made.", f"give one of {widths}, or leave it out.")
        self.width = width or self.machine.width
        self.threads = threads
        self.has_choice = width is None
        self.mode = tuning_mode()
        self.few_invocations = threads * _FEW_FOR_EACH_THREAD
        self.disk = disk
        self._verify, self._check_elimination = verify, check_elimination

    def code(self, program: Program, source: Program, grid: Grid, *, optimize: bool) -> CpuCode:
        """The code of a program that is ``source`` or a segment of it, compiled for launches like that grid."""
        made = CpuCode(self, program, source, optimize=optimize)
        made.for_launch(grid)
        return made

    def emitted(self, program: Program, width: int, *, flat: bool, axis: int) -> Kernel:
        """The text of a kernel."""
        kernel = emit_kernel(program, width, flat=flat, axis=axis, check_elimination=self._check_elimination)
        if len(kernel.text) > _MOST_TEXT:
            raise UnsupportedFeature(
                f"a program of {program.stats().statements:,} statements that becomes {len(kernel.text):,} characters "
                "of LLVM IR",
                "cpu",
                "split it into several programs, or put repeated code into loops.",
            )
        return kernel

    def kept_width(self, kernel: Kernel, size: int) -> int | None:
        """The width on disk that was the fastest for launches of a kernel of such a size."""
        body = self.disk.get(self._choice_key(kernel, size))
        return body[0] if body and body[0] in (SCALAR, self.width) else None

    def keep_width(self, kernel: Kernel, size: int, width: int) -> None:
        self.disk.put(self._choice_key(kernel, size), bytes([width]))

    def _choice_key(self, kernel: Kernel, size: int) -> bytes:
        parts = ("width", kernel.text, *machine_facts(), self.threads, size)
        return blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()

    def compiled(self, name: str, kernel: Kernel, *, optimize: bool) -> CompiledKernel:
        """A kernel as machine code, from the disk if it is there."""
        code, was_kept = kept_object_code(self.disk, name, kernel.text, verify=self._verify, optimize=optimize)
        telemetry.count(**{"compile_hits" if was_kept else "compile_misses": 1})
        loaded = Loaded(code)
        return CompiledKernel(kernel, loaded, loaded.address(KERNEL))
