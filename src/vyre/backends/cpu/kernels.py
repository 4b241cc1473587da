"""Which machine code does a launch run? Compiled once, kept in memory with its program and as object code on disk."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import llvmlite
import msgspec

from vyre.backends.cpu.compile import PIPELINE, Loaded, Machine, kernel_function, object_code, this_machine
from vyre.driver import telemetry, trace
from vyre.driver.cache import DiskCache
from vyre.emit.llvm import KERNEL, Kernel, can_be_flat, emit_kernel
from vyre.errors import BadInputs, UnsupportedFeature
from vyre.ir.program import Program

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
    """Makes and keeps compiled kernels for vectors of one width."""

    def __init__(self, width: int | None, verify: bool, disk: DiskCache) -> None:
        self.machine: Machine = this_machine()
        if width is not None and width not in WIDTHS:
            raise BadInputs(f"vectors of {width} lanes are not made.", f"give one of {WIDTHS}, or leave it out.")
        self.width = width or self.machine.width
        self.disk = disk
        self._verify = verify

    def get(self, program: Program, grid: tuple[int, int, int], *, optimize: bool = True) -> CompiledKernel:
        """The kernel for a launch of that grid; without optimisation it is compiled faster, and runs slower."""
        flat = grid[1] == 1 and grid[2] == 1 and can_be_flat(program)
        kept = program.__dict__.setdefault("_cpu_kernels", {})
        key = self.width, flat, optimize
        found: CompiledKernel | None = kept.get(key)
        if found is None:
            found = kept[key] = self._make(program, flat, optimize)
        return found

    def _make(self, program: Program, flat: bool, optimize: bool) -> CompiledKernel:
        kernel = emit_kernel(program, self.width, flat=flat)
        if len(kernel.text) > _MOST_TEXT:
            raise UnsupportedFeature(
                f"a program of {program.stats().statements:,} statements that becomes {len(kernel.text):,} characters "
                "of LLVM IR",
                "cpu",
                "split it into several programs, or put repeated code into loops.",
            )
        machine = self.machine
        parts = (kernel.text, machine.cpu, machine.features, llvmlite.__version__, PIPELINE, optimize)
        key = blake2b(msgspec.msgpack.encode(parts), digest_size=32).digest()
        code = self.disk.get(key)
        if code is None:
            telemetry.count(compile_misses=1)
            with trace.span("compile", "cpu", program=program.name):
                code = object_code(kernel.text, verify=self._verify, optimize=optimize)
            self.disk.put(key, code)
        else:
            telemetry.count(compile_hits=1)
        loaded = Loaded(code)
        return CompiledKernel(kernel, loaded, loaded.address(KERNEL), kernel_function(loaded, KERNEL))
