"""The ``cpu`` backend: programs compiled with LLVM for the processor's vector units, one lane for each invocation."""

from __future__ import annotations

import sys

from vyre.arguments import require
from vyre.backends.cpu.compile import assembly
from vyre.backends.cpu.device import CpuDevice
from vyre.backends.cpu.kernels import LARGE_GRID, CompiledKernel, Grid, Kernels
from vyre.backends.cpu.launches import Sharing
from vyre.backends.cpu.native import arrays_are_known
from vyre.backends.cpu.pool import wanted_threads
from vyre.driver.backend import Backend
from vyre.driver.cache import DiskCache
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.device import Availability
from vyre.driver.executable import Executable
from vyre.driver.registry import CPU_PRIORITY
from vyre.ir.program import Program


class CpuExecutable(Executable):
    """A program compiled for the processor, whose code can be shown."""

    def _kernels(self) -> list[tuple[str, CompiledKernel]]:
        """The kernels that a large grid of one axis runs, one for each segment, with the segments' labels."""
        return [(label, code.for_launch(LARGE_GRID)) for label, _, code in self.launched()]

    def llvm(self) -> str:
        """The LLVM IR of the kernels that a grid of one axis runs, one for each segment."""
        return "\n".join(f"; {label}\n{compiled.kernel.text}" for label, compiled in self._kernels())

    def asm(self) -> str:
        """The machine instructions of those kernels."""
        return "\n".join(f"; {label}\n{assembly(compiled.kernel.text)}" for label, compiled in self._kernels())


class CpuBackend(Backend):
    """The processor's vector units: every program of the language, compiled with LLVM."""

    id = "cpu"
    version = CpuDevice.version
    executable_class = CpuExecutable
    device: CpuDevice

    def __init__(
        self,
        *,
        threads: int | None = None,
        sharing: Sharing | None = None,
        width: int | None = None,
        verify: bool = False,
        cache: DiskCache | None = None,
        check_elimination: bool = True,
    ) -> None:
        """``threads`` defaults to ``VYRE_THREADS`` or the machine's; ``sharing`` says more about their use.

        ``width`` is the lanes of a vector. ``cache`` is where compiled code and results of the optimizer are kept.
        Without ``check_elimination``, accesses that are proved to be in bounds are checked like all others, with the
        same result.
        """
        if sharing is None:
            sharing = Sharing(wanted_threads(threads))
        require(sharing, Sharing, "sharing", "give a Sharing(threads, ...), or leave it out.")
        disk = DiskCache() if cache is None else cache
        require(disk, DiskCache, "cache", "give a DiskCache(directory), or leave it out.")
        kernels = Kernels(disk, sharing.threads, width=width, verify=verify, check_elimination=check_elimination)
        super().__init__(CpuDevice(kernels, sharing), cache=cache)

    @classmethod
    def availability(cls) -> Availability:
        if sys.platform == "win32":
            return Availability(False, "its threads need POSIX", "use it on Linux or macOS, or under WSL.")
        if not arrays_are_known():
            return Availability(False, "NumPy's arrays are not those of its C interface", "use CPython's NumPy.")
        return Availability(priority=CPU_PRIORITY)

    def kernel(
        self, program: Program, grid: Grid = LARGE_GRID, config: DispatchConfig = DEFAULT_CONFIG
    ) -> CompiledKernel:
        """The compiled kernel that a launch of a legal program without grid barriers runs on that grid."""
        ((_, _, code),) = self.compile(program, config).launched()
        kernel: CompiledKernel = code.for_launch(grid)
        return kernel
