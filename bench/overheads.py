"""What does it cost to begin? A launch of next to nothing, a sequence of small steps, a first and a second compile."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import numpy as np

from measure import Samples, sample
from peers import Peer
from report import Line, shown
from vyre.backends.cpu import CpuBackend
from vyre.driver import OutputBuffers, Step
from vyre.driver.cache import DiskCache
from vyre.driver.config import DispatchConfig
from vyre.ir import Program, nodes
from vyre.ir.buffers import BufferDecl
from vyre.ir.build import gid, let, store, var
from vyre.optimizer.switches import Optimization
from vyre.semantics.types import DType
from workloads import KERNELS, program

_LAUNCH_SECONDS, _STEP_SECONDS = 5e-6, 1e-6
_REPEATS, _COMPILES = 10_000, 5
# What was compiled for the last repetition is no use to this one.
_NOTHING_KEPT = DispatchConfig(optimize=Optimization(keep=False))


def verdict(holds: bool) -> str:
    return "pass" if holds else "LOSS"


def _line(title: str, way: str, samples: Samples, promise: str, holds: bool) -> Line:
    return Line(title, way, {name: samples.best(name) for name in samples.seconds}, promise, verdict(holds))


def launches(backend: CpuBackend, peers: Mapping[str, Peer], repetitions: int) -> list[Line]:
    code, data, slots = program("empty"), np.zeros(16, np.uint32), OutputBuffers()
    pipeline = backend.compile(code)
    others = {name: peer.launch for name, peer in peers.items() if peer.launch}
    lines = []
    with backend.allocate(64) as memory:
        ways = {
            "end to end": lambda: backend.dispatch_in_place(code, [data]),
            "resident": lambda: backend.dispatch_resident(code, [memory]),
            # What nobody else here does: the arrays that are given stay as they are, and the results are others.
            "with copies": lambda: pipeline.dispatch([data], into=slots),
        }
        for way, function in ways.items():
            for warm in (function, *others.values()):
                warm()
            samples = sample({"vyre": function, **others}, repetitions, calls=200)
            best = samples.best("vyre")
            holds = best <= _LAUNCH_SECONDS and ("warp" not in others or best <= samples.best("warp") / 2)
            lines.append(_line("launch of 16 elements", way, samples, "5 µs, half of warp's", holds))
    lines[-1] = Line(lines[-1].title, lines[-1].way, lines[-1].best, "", "printed")
    return lines


def sequences(backend: CpuBackend, peers: Mapping[str, Peer], repetitions: int) -> list[Line]:
    others = {name: peer.sequence for name, peer in peers.items() if peer.sequence}
    with backend.allocate(4096) as memory:
        steps = [Step(program(name), [memory]) for name in ("empty", "mix")]
        sequence = backend.prepare_sequence(repeat=steps, times=_REPEATS)
        functions = {"vyre": sequence.run, **{name: (lambda run=run: run(_REPEATS)) for name, run in others.items()}}
        for function in functions.values():
            function()
        samples = sample(functions, repetitions)
    taken = Samples({name: [t / (2 * _REPEATS) for t in times] for name, times in samples.seconds.items()})
    holds = taken.best("vyre") <= _STEP_SECONDS
    return [_line("a step of 10,000 x 2 (1,024 elements)", "resident", taken, "1 µs", holds)]


_FIRST_CALL = """
import sys
from time import perf_counter
begin = perf_counter()
import vyre
imported = perf_counter()
from pathlib import Path
import numpy as np
from vyre.backends.cpu import CpuBackend
from vyre.driver.cache import DiskCache
from vyre.ir import parse
loaded = perf_counter()
backend = CpuBackend(cache=DiskCache(Path(sys.argv[1])))
backend.dispatch(parse(Path(sys.argv[2]).read_text()), [np.zeros(64, np.float32)] * 3)
print(imported - begin, loaded - imported, perf_counter() - loaded)
"""


_FILL = """
import sys
from pathlib import Path
from vyre.backends.cpu import CpuBackend
from vyre.driver.cache import DiskCache
from vyre.ir import parse
text = "program fill(workgroup 64) { buffer 0 x: u32[] readwrite; x[gid.x] = x[gid.x] + 1 }"
CpuBackend(cache=DiskCache(Path(sys.argv[1]))).dispatch(parse(text), [bytes(256)])
"""


def compiles(repetitions: int, *, long: bool) -> list[Line]:
    """Processes of their own: the first finds an empty cache, the second what the first has left."""
    found: dict[str, list[float]] = {"import": [], "load": [], "first": [], "second": []}
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as directory:
            # The optimizer's own kernels are in the cache: filling it is a figure of its own, once for a machine.
            subprocess.check_output([sys.executable, "-c", _FILL, directory])
            for which in ("first", "second"):
                command = [sys.executable, "-c", _FIRST_CALL, directory, str(KERNELS / "nbody.vyre")]
                imported, loaded, called = map(float, subprocess.check_output(command, text=True).split())
                found["import"].append(imported)
                found["load"].append(loaded)
                found[which].append(called)
    promises = {
        "import": ("import vyre", 0.120), "first": ("first call of a new kernel", 0.100),
        "second": ("the same in a second process", 0.020),
    }  # fmt: skip
    loading = {"vyre": min(found["load"])}
    lines = [Line("load the backend, LLVM and NumPy", "fresh process", loading, "", "printed")]
    for which, (title, most) in promises.items():
        best = min(found[which])
        lines.append(Line(title, "fresh process", {"vyre": best}, shown(most), verdict(best <= most)))
    for statements, most in ((50, 0.080), (20_000, 10.0))[: 2 if long else 1]:
        # The first one loads what the process has not used yet, which the rows before this are about.
        best = min(_compile_seconds(statements) for _ in range(1 if statements > 1000 else _COMPILES))
        lines.append(Line(f"compile {statements:,} statements", "", {"vyre": best}, shown(most), verdict(best <= most)))
    return lines


def _compile_seconds(statements: int) -> float:
    with tempfile.TemporaryDirectory() as directory, CpuBackend(threads=1, cache=DiskCache(Path(directory))) as backend:
        start = perf_counter()
        backend.kernel(chain(statements), config=_NOTHING_KEPT)
        return perf_counter() - start


def chain(statements: int) -> Program:
    """A program of so many statements, each of which needs the ones before."""
    operators = ("add", "mul", "xor", "sub", "max")
    body: list[nodes.Stmt] = [let("v0", gid())]
    for number in range(1, statements - 1):
        older = var(f"v{number // 2}")
        op = operators[number % len(operators)]
        body.append(let(f"v{number}", nodes.BinOp(op, var(f"v{number - 1}") + nodes.lit(number), older)))
    body.append(store("out", gid(), var(f"v{statements - 2}")))
    return Program.new([BufferDecl.output("out", 0, DType.U32, 64)], 64, body)
