"""How long does it take? The best of several repetitions, taken in turns so that all meet the same weather."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import numpy as np

from peers import Array, Runs
from vyre.backends.cpu import CpuBackend
from vyre.driver import Step
from workloads import Workload, program


class Samples(msgspec.Struct):
    """The seconds of every repetition, by who ran."""

    seconds: dict[str, list[float]]

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def median(self, name: str) -> float:
        return median(self.seconds[name])

    def best_peer(self) -> str | None:
        """The fastest of the others."""
        return min((name for name in self.seconds if name != "vyre"), key=self.best, default=None)

    def ratio(self) -> float | None:
        """How many times as fast as the best peer."""
        peer = self.best_peer()
        return self.best(peer) / self.best("vyre") if peer else None


def sample(functions: Mapping[str, Callable[[], object]], repetitions: int, calls: int = 1) -> Samples:
    """Runs each function so often, in turns; ``calls`` are timed as one."""
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            start = perf_counter()
            for _ in range(calls):
                function()
            taken[name].append((perf_counter() - start) / calls)
    return Samples(taken)


def runs_of_vyre(workload: Workload, backend: CpuBackend) -> Runs:
    """The workload on the backend: arrays in and out, and on resident buffers."""
    code, output = program(workload.kernel), workload.output
    pipeline = backend.compile(code, workload.config)

    def end_to_end() -> Array:
        return np.frombuffer(pipeline.dispatch(workload.inputs)[-1], output.dtype)

    buffers = [backend.allocate(array.nbytes) for array in (*workload.inputs, output)]
    for buffer, array in zip(buffers, workload.inputs, strict=False):
        backend.upload(buffer, array)
    return Runs(
        end_to_end,
        lambda: backend.dispatch_resident(code, buffers, workload.config),
        lambda: np.frombuffer(backend.download(buffers[-1]), output.dtype),
    )


def copy_bandwidth(threads: int) -> float:
    """Bytes read and written a second by the fastest plain copy of a large array that is at hand."""
    source = np.ones(1 << 24, np.float32)
    target = np.empty_like(source)
    ways: dict[str, Callable[[], object]] = {"numpy": lambda: np.copyto(target, source)}
    with CpuBackend(threads=threads) as backend:
        buffers = [backend.allocate(source.nbytes) for _ in range(2)]
        backend.upload(buffers[0], source)
        copying = backend.prepare_sequence([Step(program("copy"), buffers)])
        ways["kernel"] = copying.run
        samples = sample(ways, 40)
    return 2 * source.nbytes / min(samples.best(name) for name in ways)


def machine() -> dict[str, str]:
    """What this runs on, for people who read the results elsewhere."""
    model, memory = platform.processor(), ""
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), model)
        total = Path("/proc/meminfo").read_text().split(maxsplit=2)[1]
        memory = f"{int(total) / (1 << 20):.0f} GiB"
    return {
        "processor": model,
        "processors": str(os.cpu_count()),
        "memory": memory,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def repetitions_for(functions: Sequence[Callable[[], object]], seconds: float, most: int) -> int:
    """How many repetitions of all functions fit into a time, at least 6."""
    start = perf_counter()
    for function in functions:
        function()
    return max(6, min(most, int(seconds / (perf_counter() - start))))
