"""Which machine code does a launch run? Compiled once, kept in memory with its program and as object code on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from vyre.backends.cpu.compile import Loaded, Machine, kept_object_code, kernel_function, this_machine
from vyre.driver import telemetry
from vyre.driver.cache import DiskCache
from vyre.emit.llvm import KERNEL, Kernel, can_be_flat, emit_kernel
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir import nodes as n
from vyre.ir.program import Program

# A width of 1 is code for one invocation after another, without vectors.
SCALAR: Final = 1
WIDTHS: Final = (4, 8, 16)
# Far beyond what compiles in reasonable time; a frame of such a function might not fit on a thread's stack.
_MOST_TEXT: Final = 32 << 20


class CompiledKernel(msgspec.Struct, frozen=True, eq=False):
    """A kernel in memory; the code stays there as long as this does."""

    kernel: Kernel
    loaded: Loaded
    address: int
    function: Callable[[int, int, int], None]


class Kernels:
    """Makes and keeps compiled kernels for vectors of one width, or the machine's.

    Where the width is not given, launches of few invocations that go through memory each in its own way are compiled as
    scalar code: most lanes of a vector would wait for others, and threads share the invocations. Programs that know of
    their workgroups are not: their invocations may go through memory side by side.
    """

    def __init__(
        self,
        width: int | None,
        verify: bool,
        disk: DiskCache,
        check_elimination: bool = True,
        *,
        few_invocations: int = 0,
    ) -> None:
        self.machine: Machine = this_machine()
        widths = (SCALAR, *WIDTHS)
        if width is not None and width not in widths:
            raise BadInputs(f"vectors of {width} lanes are not made.", f"give one of {widths}, or leave it out.")
        self.width = width or self.machine.width
        self._few_invocations = 0 if width else few_invocations
        self.disk = disk
        self._verify, self._check_elimination = verify, check_elimination

    def get(
        self,
        program: Program,
        grid: tuple[int, int, int],
        *,
        optimize: bool = True,
        whole: Program | None = None,
    ) -> CompiledKernel:
        """The kernel for a launch of that grid; without optimisation it is compiled faster, and runs slower.

        ``whole`` is the program that this one is a segment of.
        """
        flat = grid[1] == 1 and grid[2] == 1 and can_be_flat(program)
        is_small = flat and grid[0] * program.workgroup_size[0] <= self._few_invocations
        is_small = is_small and not (whole or program).stats().has(n.LocalId, n.WorkgroupId)
        kept = program.__dict__.setdefault("_cpu_kernels", {})
        key = self.width, flat, is_small, optimize, self._check_elimination
        found: CompiledKernel | None = kept.get(key)
        if found is None:
            # Of two threads that both made it, both get the first: what is not kept is unloaded.
            found = kept.setdefault(key, self._make(program, flat, is_small, optimize))
        return found

    def _make(self, program: Program, flat: bool, is_small: bool, optimize: bool) -> CompiledKernel:
        kernel = emit_kernel(program, self.width, flat=flat, check_elimination=self._check_elimination)
        if is_small and kernel.is_irregular:
            kernel = emit_kernel(program, SCALAR, flat=flat, check_elimination=self._check_elimination)
        if len(kernel.text) > _MOST_TEXT:
            raise UnsupportedFeature(
                f"a program of {program.stats().statements:,} statements that becomes {len(kernel.text):,} characters "
                "of LLVM IR",
                "cpu",
                "split it into several programs, or put repeated code into loops.",
            )
        code, was_kept = kept_object_code(self.disk, program.name, kernel.text, verify=self._verify, optimize=optimize)
        telemetry.count(**{"compile_hits" if was_kept else "compile_misses": 1})
        loaded = Loaded(code)
        return CompiledKernel(kernel, loaded, loaded.address(KERNEL), kernel_function(loaded, KERNEL))
