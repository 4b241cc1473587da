"""Compile and run many different kernels in one process, and check that their code does not stay in memory.

Each kernel is a program of its own that is dropped after its run. The resident size of the process is printed from
time to time; exit status 1 says that it grew beyond the limit, or that a result is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

KERNEL = """
program kernel{number}(workgroup 64) {{
  buffer 0 a: u32[] readwrite
  buffer 1 b: u32[] read
  if gid.x < len(a) {{
    a[gid.x] = (a[gid.x] ^ {number}) * {odd} + b[gid.x]
  }}
}}"""


def resident_megabytes() -> float:
    """The memory of this process that is in RAM."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--limit", type=float, default=300.0, help="megabytes above the size after the first kernels")
    parser.add_argument("--unoptimized", action="store_true", help="leave the optimizer out")
    arguments = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        print("the size of a process is read from /proc, which is not here. Fix: run it on Linux.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        os.environ["VYRE_CACHE_DIR"] = directory
        return run(arguments.kernels, arguments.limit, optimize=not arguments.unoptimized)


def run(kernels: int, limit: float, *, optimize: bool) -> int:
    """Run the kernels, and return the exit status."""
    import vyre

    config = vyre.DispatchConfig(optimize=optimize)
    a, b = np.arange(256, dtype=np.uint32), np.full(256, 3, np.uint32)
    first = peak = resident_megabytes()
    warm = min(50, kernels // 10)
    with vyre.backend("cpu", threads=1) as backend:
        for number in range(kernels):
            odd = 2 * number + 1
            program = vyre.parse(KERNEL.format(number=number, odd=odd))
            (found,) = backend.dispatch(program, [a, b], config)
            if not np.array_equal(np.frombuffer(found, np.uint32), (a ^ np.uint32(number)) * np.uint32(odd) + b):
                print(f"kernel {number} gave a wrong result", file=sys.stderr)
                return 1
            if number == warm:
                first = resident_megabytes()
            if number >= warm and (number % max(1, kernels // 10) == 0 or number == kernels - 1):
                peak = max(peak, resident_megabytes())
                print(f"{number + 1:6} kernels: {resident_megabytes() - first:+8.1f} MB", flush=True)
    each = (resident_megabytes() - first) * 1024 / max(1, kernels - warm)
    print(f"{each:.2f} KB for each kernel; {peak - first:.1f} MB at most, and {limit:g} MB are allowed")
    return int(peak - first > limit)


if __name__ == "__main__":
    sys.exit(main())
