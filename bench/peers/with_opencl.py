"""The workloads in OpenCL C, on the processor by way of PoCL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyopencl as cl

from peers import Array, Peer, Runs

_MEMORY = cl.mem_flags
Run = Callable[[Sequence[cl.Buffer], Sequence[Array], cl.Buffer], None]


def load(threads: int) -> Peer:
    # PoCL reads this when its device is first asked for.
    os.environ.setdefault("POCL_MAX_PTHREAD_COUNT", str(threads))
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices(cl.device_type.CPU)]
        if not devices:
            raise RuntimeError("no device for the processor")
        context = cl.Context(devices[:1])
        queue = cl.CommandQueue(context)
        # A processor that is newer than PoCL's compiler has a device, and no code for it.
        program = cl.Program(context, Path(__file__).with_name("kernels.cl").read_text()).build()
    except cl.Error as error:
        told = [line for line in str(error).splitlines() if line.startswith("error:")]
        raise RuntimeError(told[0] if told else str(error)) from error

    def buffer(values: Array) -> cl.Buffer:
        return cl.Buffer(context, _MEMORY.READ_WRITE | _MEMORY.COPY_HOST_PTR, hostbuf=values)

    def simple(name: str, size: Callable[[Sequence[Array], int], tuple[int, ...]], local: tuple[int, ...]) -> Run:
        kernel = cl.Kernel(program, name)

        def run(given: Sequence[cl.Buffer], inputs: Sequence[Array], out: cl.Buffer) -> None:
            if name in ("count_primes", "histogram"):
                cl.enqueue_fill_buffer(queue, out, np.uint32(0), 0, out.size)
            kernel(queue, size(inputs, out.size // 4), local, *given, out)

        return run

    diagonal = cl.Kernel(program, "lcs_diagonal")

    def lcs(given: Sequence[cl.Buffer], inputs: Sequence[Array], out: cl.Buffer) -> None:
        n, m = (np.uint32(values.size) for values in inputs)
        table = buffer(np.zeros(3 * (n + 1), np.uint32))
        for k in range(int(n + m) - 1):
            first = max(0, k - int(m) + 1)
            count = min(int(n), k + 1) - first
            size = (-(-count // 256) * 256,)
            diagonal(queue, size, (256,), *given, table, n, m, np.uint32(k), np.uint32(first))
        cl.enqueue_copy(
            queue, out, table, byte_count=4, src_offset=4 * (int(n + m - 2) % 3 * (int(n) + 1) + int(n)), dst_offset=0
        )

    def flat(_: Sequence[Array], size: int) -> tuple[int, ...]:
        return (size,)

    def square(_: Sequence[Array], __: int) -> tuple[int, ...]:
        return (4096, 4096)

    runs: dict[str, Run] = {name: simple(name, flat, (256,)) for name in ("collatz", "mandelbrot", "nbody", "saxpy")}
    runs["count_primes"] = simple("count_primes", lambda inputs, _: (int(inputs[0][0]),), (64,))
    runs["stencil"] = simple("stencil", square, (256, 1))
    runs["transpose"] = simple("transpose", square, (32, 32))
    runs["histogram"] = simple("histogram", lambda inputs, _: (inputs[0].size // 256,), (256,))
    runs["lcs"] = lcs

    def rows(run: Run) -> Callable[[Sequence[Array], Array], Runs]:
        def make(inputs: Sequence[Array], output: Array) -> Runs:
            given, out = [buffer(values) for values in inputs], buffer(output)

            def resident() -> None:
                run(given, inputs, out)
                queue.finish()

            def fetch(source: cl.Buffer) -> Array:
                result = np.empty_like(output)
                cl.enqueue_copy(queue, result, source)
                return result

            def end_to_end() -> Array:
                fresh = cl.Buffer(context, _MEMORY.WRITE_ONLY, output.nbytes)
                run([buffer(values) for values in inputs], inputs, fresh)
                return fetch(fresh)

            return Runs(end_to_end, resident, lambda: fetch(out))

        return make

    small, state = (buffer(np.zeros(size, np.uint32)) for size in (16, 1024))
    empty, mix = cl.Kernel(program, "empty"), cl.Kernel(program, "tripled")

    def launch() -> None:
        empty(queue, (16,), None, small)
        queue.finish()

    def sequence(times: int) -> None:
        for _ in range(times):
            empty(queue, (1024,), (64,), state)
            mix(queue, (1024,), (64,), state)
        queue.finish()

    version = f"{cl.VERSION_TEXT} on {devices[0].platform.version.strip()}"
    return Peer("opencl", version, {name: rows(run) for name, run in runs.items()}, launch, sequence)
