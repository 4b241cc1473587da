"""What does the driver itself cost? Prints the overhead of calls on backends that do nothing; run as a script."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np

from vyre.driver import (
    Backend,
    DeviceProfile,
    DispatchConfig,
    OutputBuffers,
    ResidentBuffer,
    Step,
    TimedResult,
    telemetry,
    trace,
)
from vyre.driver.binding import binder_of
from vyre.driver.cache import DiskCache
from vyre.driver.config import DEFAULT_CONFIG
from vyre.driver.pending import Inputs
from vyre.driver.profile import EVERY_TYPE
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import gid, load, store
from vyre.ir.program import Program
from vyre.semantics.types import DType

_NOTHING = TimedResult([], 0, 0, 0, 0)
_REPEATS = 5


class NullBackend(Backend):
    """Runs nothing."""

    id = "null"
    version = "1"

    def dispatch(
        self,
        program: Program,  # noqa: ARG002
        inputs: Inputs,  # noqa: ARG002
        config: DispatchConfig | None = None,  # noqa: ARG002
        *,
        into: OutputBuffers | None = None,  # noqa: ARG002
    ) -> list[memoryview]:
        return []

    def dispatch_resident(
        self,
        program: Program,  # noqa: ARG002
        resources: Sequence[ResidentBuffer],  # noqa: ARG002
        config: DispatchConfig | None = None,  # noqa: ARG002
    ) -> TimedResult:
        return _NOTHING


class BindingBackend(NullBackend):
    """Runs nothing, but checks and binds its inputs and delivers outputs, as every real backend does."""

    id = "binding"
    capabilities = DeviceProfile(backend="binding", dtypes=EVERY_TYPE, max_workgroup_size=(1024, 1024, 1024))

    def dispatch(
        self,
        program: Program,
        inputs: Inputs,
        config: DispatchConfig | None = None,
        *,
        into: OutputBuffers | None = None,
    ) -> list[memoryview]:
        bound = binder_of(program).bind(inputs, config or DEFAULT_CONFIG, self.capabilities)
        return bound.plan.deliver([bound.inputs[1]], into)


def seconds_per_call(call: Callable[[], object], calls: int) -> float:
    """The best of several rounds, so that other work on the machine counts least."""
    best = float("inf")
    for _ in range(_REPEATS):
        start = perf_counter()
        for _ in range(calls):
            call()
        best = min(best, perf_counter() - start)
    return best / calls


def report(what: str, seconds: float, limit: float | None = None) -> None:
    verdict = "" if limit is None else f"   (limit {limit * 1e6:.1f} µs{'' if seconds < limit else ' EXCEEDED'})"
    print(f"{what:<62} {seconds * 1e6:9.3f} µs{verdict}")


def main() -> None:
    saxpy = Program.new(
        [BufferDecl.read("x", 0, DType.F32), BufferDecl.read_write("y", 1, DType.F32)],
        64,
        [store("y", gid(), load("x", gid()) + load("y", gid()))],
    )
    data = [np.zeros(1024, np.float32), np.zeros(1024, np.float32)]
    slots = OutputBuffers([np.zeros(1024, np.float32)])
    null = NullBackend().compile(saxpy)
    binding = BindingBackend().compile(saxpy)
    direct = seconds_per_call(lambda: NullBackend().dispatch(saxpy, data), 20_000)
    report("a dispatch that does nothing, without a pipeline", direct)
    report("pipeline call, null backend", seconds_per_call(lambda: null.dispatch(data), 20_000), 3e-6)
    on = seconds_per_call(lambda: binding.dispatch(data), 20_000)
    report("pipeline call with checked binding and outputs", on, 3e-6)
    report(
        "  the same into the caller's slots (4 KiB copied)",
        seconds_per_call(lambda: binding.dispatch(data, into=slots), 20_000),
    )
    telemetry.disable()
    off = seconds_per_call(lambda: binding.dispatch(data), 20_000)
    counter = seconds_per_call(lambda: telemetry.count_launch(1, data), 20_000) - seconds_per_call(lambda: None, 20_000)  # type: ignore[arg-type]
    telemetry.enable()
    report("  the same with the counters off", off)
    print(f"{'  the share of that of the counter that is off':<62} {100 * counter / off:9.1f} %    (limit 2 %)")
    with tempfile.TemporaryDirectory() as directory:
        with trace.trace(os.path.join(directory, "trace.json")), trace.span("warm", "bench"):
            pass
        cache = DiskCache(Path(directory) / "cache")
        cache.put(b"key", bytes(20_000))
        report("disk cache hit, 20 kB", seconds_per_call(lambda: cache.get(b"key"), 500))
        numbers = iter(range(1 << 30))
        report("disk cache store, 20 kB", seconds_per_call(lambda: cache.put(b"%d" % next(numbers), bytes(20_000)), 50))
    report("span while nobody traces", seconds_per_call(lambda: trace.span("work", "bench"), 20_000))
    resources: list[ResidentBuffer] = []
    for steps, times in ((100, 1), (10, 1000)):
        sequence = NullBackend().prepare_sequence(repeat=[Step(saxpy, resources)] * steps, times=times)
        report(
            f"prepared sequence, {steps} steps {times} times, per step",
            seconds_per_call(sequence.run, max(1, 20_000 // (steps * times))) / (steps * times),
            1e-6,
        )


if __name__ == "__main__":
    main()
