"""Speed and effect of the optimizer: first calls, code beside LLVM's own passes, and real kernels.

``python bench/optimizer.py [--quick] [--only PART ...]``. New processes make their first call of a kernel, with an
empty cache and with a warm one; the optimizer's kernels are compiled from nothing. Code of 1k to 1M operations, wide
and chain-shaped, goes from program to program, and through LLVM's instcombine, sccp and adce (reading its text is not
counted); both results are executed first. Then kernels of 200 operations, and the kernels of this directory, of the
examples and of the library with and without the optimizer.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import ModuleType
from typing import Any, Final

import msgspec
import numpy as np

import vyre
from integer_code import INPUTS, Passes, as_llvm, as_program, computed, executed, integer_code
from measure import Samples, machine, sample
from peers import Array
from plain import ROWS as PLAIN_ROWS
from plain_kernels import Setting
from report import RESULTS, shown, write
from vyre.backends.cpu import CpuBackend
from vyre.checker import check
from vyre.driver import Backend, DispatchConfig
from vyre.driver.optimizing import BackendDispatcher
from vyre.errors import UnsupportedFeature
from vyre.ir import parse
from vyre.ir.program import Program
from vyre.lang.arguments import take
from vyre.lang.kernel import Kernel, Launch
from vyre.lib import bitset, graph, reduce, scan
from vyre.optimizer.encode import encode
from vyre.optimizer.pipeline import Report, optimize_with
from workloads import WORKLOADS, program

PARTS = ("start", "code", "small", "effect")
SHAPES = ("wide", "chain")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
_LEAST_RATIO, _MOST_GROWTH, _MOST_SECONDS, _MOST_SYNCHRONISATIONS = 1.0, 13.0, 0.002, 1.0
_MOST_FIRST, _MOST_WARM = 0.5, 0.15
# A gain that counts, and a difference that does not.
_LEAST_GAIN, _NOISE = 1.1, 1.05
# Kernels in Python on two axes or with grid barriers: of the examples, and rows of the plain kernels.
_SHAPED_EXAMPLES: Final = ("bfs.py levels", "lcs.py lcs", "life.py life", "mandelbrot.py mandelbrot")
_SHAPED_ROWS: Final = (
    "jacobi-2d", "jacobi-3d", "heat-3d", "fdtd-2d", "diffusion", "advection", "blur", "convolution", "transpose",
    "matmul", "lu", "floyd",
)  # fmt: skip
_MOST_COMPILE = {"cpu": 0.4, "webgpu": 3.0}


class Outcome(msgspec.Struct):
    """What was measured: the seconds of every repetition, tables for people, and which promises hold."""

    samples: dict[str, Samples]
    tables: list[str]
    promises: dict[str, bool]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 100k operations, and fewer repetitions")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="only these parts")
    given = parser.parse_args()
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    outcome = Outcome({}, [], {})
    parts = {"start": time_start, "code": compare_code, "small": time_small_kernels, "effect": show_effect}
    with CpuBackend() as backend:
        growth = Growth(BackendDispatcher(backend)) if "code" in given.only and not given.quick else None
        for part in given.only:
            parts[part](BackendDispatcher(backend), outcome, quick=given.quick)
            # A machine that others use is slow for minutes, most of all where code does not fit its caches.
            if growth is not None:
                growth.measure()
        if growth is not None:
            growth.promise(outcome)
    lost = [promise for promise, holds in outcome.promises.items() if not holds]
    print(f"{len(outcome.promises) - len(lost)} of {len(outcome.promises)} hold; lost: {', '.join(lost) or 'none'}")
    text = "\n".join([str(machine()), *outcome.tables])
    write("optimizer", {"machine": machine(), "promises": outcome.promises, "samples": outcome.samples}, {".md": text})
    print(f"written to {RESULTS}")


def _table(heads: list[str], rows: list[list[str]]) -> str:
    text = "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)) + "\n"
    print(text, flush=True)
    return text


_FIRST_CALL = """
import numpy as np, vyre
from vyre import f32

@vyre.kernel
def combine(a: f32, x: vyre.In[f32], y: vyre.InOut[f32]):
    i = vyre.gid()
    if i < len(y):
        y[i] = a * x[i] + y[i]{more}

x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
combine[len(y)](2.0, x, y)
assert y[3] == 7 + {expected}
"""


def time_start(_: BackendDispatcher, outcome: Outcome, *, quick: bool) -> None:
    """First calls in new processes, over what importing NumPy takes; and compiling the optimizer's own kernels."""
    seconds: dict[str, list[float]] = {
        "numpy": [],
        "empty cache": [],
        "warm cache": [],
        "warm cache, another kernel": [],
    }
    with tempfile.TemporaryDirectory() as directory:
        environment = _installed(directory)
        scripts = {}
        for name, more, expected in (("first", "", "0"), ("other", " * 3.0", "2")):
            scripts[name] = Path(directory, f"{name}.py")
            scripts[name].write_text(_FIRST_CALL.format(more=more, expected=expected))

        def run(name: str, *command: str, cache: str) -> None:
            start = perf_counter()
            subprocess.run([sys.executable, *command], check=True, env=environment | {"VYRE_CACHE_DIR": cache})
            seconds[name].append(perf_counter() - start)

        for turn in range(4 if quick else 9):
            cache = f"{directory}/cache{turn}"
            run("numpy", "-c", "import numpy", cache=cache)
            run("empty cache", str(scripts["first"]), cache=cache)
            run("warm cache", str(scripts["first"]), cache=cache)
            run("warm cache, another kernel", str(scripts["other"]), cache=cache)
            if not turn:
                # The first round compiles Python's bytecode.
                for times in seconds.values():
                    times.clear()
    taken = outcome.samples["start"] = Samples(seconds)
    base, rows = taken.best("numpy"), []
    for name, most in (("empty cache", _MOST_FIRST), ("warm cache", _MOST_WARM)):
        over = taken.best(name) - base
        rows.append([f"first call, {name}", shown(over), f"at most {shown(most)}"])
        outcome.promises[f"first call, {name}: {shown(over)} over import numpy, at most {shown(most)}"] = over <= most
    # Its optimized form is not in the cache, so the optimizer runs.
    rows.append(["first call of another kernel", shown(taken.best("warm cache, another kernel") - base), "printed"])
    for name, most in _MOST_COMPILE.items():
        times = _compile_kernels(name, 3 if quick else 5)
        if not times:
            rows.append([f"kernels on {name}", "gap: it cannot run here", ""])
            continue
        best = min(times)
        rows.append([f"kernels on {name}, from nothing", shown(best), f"at most {shown(most)}"])
        outcome.promises[f"the kernels compile on {name} in {shown(best)}, at most {shown(most)}"] = best <= most
    outcome.tables.append(_table(["start", "time", "promised"], rows))


_COMPILE = r"""
import sys, time
import numpy as np, vyre
from vyre.driver.optimizing import BackendDispatcher
from vyre.errors import UnsupportedFeature
from vyre.ir import parse
device = vyre.backend(sys.argv[1])
device.prepare()
from vyre.optimizer.dispatcher import whole_programs
whole_programs()
program = parse("program one(workgroup 1) { buffer 0 a: u32[1] readwrite\n a[0] = a[0] + 0 }")
start = time.perf_counter()
vyre.optimize(program, BackendDispatcher(device))
print(time.perf_counter() - start)
"""


def _installed(directory: str) -> dict[str, str]:
    """The environment of processes in which Python keeps its bytecode, as it does for an installed package."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": f"{directory}/bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def _compile_kernels(backend: str, times: int) -> list[float]:
    """Seconds until new processes have compiled the kernels and optimized a program of one line."""
    if backend not in [one.name for one in vyre.list_backends() if one.available]:
        return []
    seconds = []
    with tempfile.TemporaryDirectory() as directory:
        for turn in range(times + 1):
            cache = {"VYRE_CACHE_DIR": f"{directory}/cache{turn}", "MESA_SHADER_CACHE_DISABLE": "true"}
            command = [sys.executable, "-c", _COMPILE, backend]
            ran = subprocess.run(command, check=True, env=_installed(directory) | cache, capture_output=True, text=True)
            seconds.append(float(ran.stdout))
    return seconds[1:]


def compare_code(dispatcher: BackendDispatcher, outcome: Outcome, *, quick: bool) -> None:
    """Code of growing size beside LLVM's passes."""
    optimize_with(as_program(integer_code(200, "wide")), dispatcher)
    rows: list[list[str]] = []
    for shape in SHAPES:
        for size in SIZES[: 3 if quick else 4]:
            repetitions = 4 if size > 100_000 else 3 if quick else max(5, min(20, 1_000_000 // size))
            taken, report, instructions = _compare(size, shape, dispatcher, repetitions)
            outcome.samples[f"{shape} {size}"] = taken
            best = taken.best("vyre")
            ratio = taken.best("llvm") / best
            stages = {name: sum(s.seconds for s in report.stages if s.name == name) for name in ("encode", "kernels")}
            rows.append(
                [shape, f"{size:,}", *(shown(taken.best(name)) for name in ("vyre", "llvm", "check")), f"{ratio:.2f}x",
                 f"{report.rows_before / best / 1e6:.2f} M", f"{report.rows_before:,}", f"{report.rows_after:,}",
                 f"{instructions:,}", str(report.rounds), str(report.synchronisations),
                 *(shown(seconds) for seconds in stages.values())]
            )  # fmt: skip
            print(" ".join(rows[-1]), flush=True)
            if size == 100_000:
                outcome.promises[f"{shape}, 100k: {_LEAST_RATIO}x LLVM"] = ratio >= _LEAST_RATIO
            synchronises = report.synchronisations / report.rounds
            outcome.promises[f"{shape}, {size:,}: synchronisations of a round"] = synchronises <= _MOST_SYNCHRONISATIONS
    heads = ["shape", "operations", "vyre", "LLVM", "(check)", "ratio", "rows/s", "rows", "rows left",
             "LLVM's left", "rounds", "syncs", "encode", "kernels"]  # fmt: skip
    outcome.tables.append(_table(heads, rows))


def _compare(size: int, shape: str, dispatcher: BackendDispatcher, repetitions: int) -> tuple[Samples, Report, int]:
    """The seconds of both and of the check, which is not part of either; first both results are executed."""
    code = integer_code(size, shape)
    original, passes = as_program(code), Passes(as_llvm(code))
    given = np.random.default_rng(size).integers(0, 1 << 32, INPUTS, dtype=np.uint32)
    expected = computed(code, given)
    better, report = optimize_with(original, dispatcher)
    passes.run()
    instructions = passes.instructions()
    results = {
        "vyre": executed(better, given),
        "LLVM": passes.results(given, len(expected)),
    }
    for name, result in results.items():
        if not np.array_equal(result, expected):
            raise SystemExit(
                f"{shape} code of {size:,} operations: {name} computes another result. Fix: that is a fault."
            )
    seconds: dict[str, list[float]] = {"vyre": [], "llvm": [], "check": []}
    for _ in range(repetitions):
        for name, function in {"vyre": lambda: optimize_with(original, dispatcher, checked=True),
                               "check": lambda: check(original)}.items():  # fmt: skip
            start = perf_counter()
            made = function()
            seconds[name].append(perf_counter() - start)
            if name == "vyre" and seconds["vyre"][-1] == min(seconds["vyre"]):
                report = made[1]
            del made
        seconds["llvm"].append(passes.run())
    return Samples(seconds), report, instructions


class Growth:
    """How long ten times as much takes: ten times the small code in a row, then the large code once, in turns.

    Both take about as long, and so meet the same weather. The best of many short samples would be that of a moment in
    which nobody else used the machine, and no sample of the large code is as short as such a moment.
    """

    small: Final = 100_000
    large: Final = 1_000_000
    in_a_row: Final = large // small

    def __init__(self, dispatcher: BackendDispatcher) -> None:
        self.dispatcher = dispatcher
        self.codes = {
            shape: [as_program(integer_code(size, shape)) for size in (self.small, self.large)] for shape in SHAPES
        }
        self.taken = {shape: Samples({"ten of 100k": [], "1M": []}) for shape in SHAPES}

    def measure(self, repetitions: int = 8) -> None:
        for shape, (small, large) in self.codes.items():
            for _ in range(repetitions):
                for name, code, times in (("ten of 100k", small, self.in_a_row), ("1M", large, 1)):
                    self.taken[shape].seconds[name].append(sum(self._seconds(code) for _ in range(times)))

    def _seconds(self, code: Program) -> float:
        start = perf_counter()
        made = optimize_with(code, self.dispatcher, checked=True)
        seconds = perf_counter() - start
        # Letting go of the result is nobody's time.
        del made
        return seconds

    def promise(self, outcome: Outcome) -> None:
        for shape, taken in self.taken.items():
            outcome.samples[f"{shape} growth"] = taken
            small, large = taken.best("ten of 100k") / self.in_a_row, taken.best("1M")
            # What no longer fits the processor's caches takes longer, whoever works on it.
            alone = outcome.samples[f"{shape} {self.small}"], outcome.samples[f"{shape} {self.large}"]
            beside = alone[1].best("llvm") / alone[0].best("llvm")
            growth = f"{shape}: time(1M) / time(100k) = {large / small:.1f}"
            moment = min(large, alone[1].best("vyre")) / alone[0].best("vyre")
            print(
                f"{growth} ({shown(large)} / {shown(small)}); by the best moments {moment:.1f}; "
                f"LLVM's, by these: {beside:.1f}"
            )
            outcome.promises[f"{growth}, at most 13"] = large / small <= _MOST_GROWTH


def time_small_kernels(dispatcher: BackendDispatcher, outcome: Outcome, *, quick: bool) -> None:
    """Kernels of 200 operations, after the first time: as code of both shapes, and every kernel that is at hand."""
    programs = {f"{shape} 200": as_program(integer_code(200, shape)) for shape in SHAPES} | _kernels()
    functions: dict[str, Callable[[], object]] = {
        name: lambda code=code: optimize_with(code, dispatcher, checked=True) for name, code in programs.items()
    }
    for function in functions.values():
        function()
    taken = sample(functions, 10 if quick else 50)
    outcome.samples["small"] = taken
    rows = []
    for name, code in programs.items():
        best, (_, report) = taken.best(name), optimize_with(code, dispatcher, checked=True)
        rows.append([name, str(encode(code)[0].rows), str(report.rounds), shown(best)])
        if name.endswith(" 200"):
            outcome.promises[f"{name}: {shown(best)}, at most 5 ms"] = best <= _MOST_SECONDS
    outcome.tables.append(_table(["kernel", "rows", "rounds", "optimised in"], rows))


def _kernels() -> dict[str, Program]:
    """The programs of this directory and of the examples, by name."""
    found = {path.name: parse(path.read_text()) for path in sorted(EXAMPLES.glob("*.vyre"))}
    found |= {
        name: program(name) for name in sorted(path.stem for path in Path(__file__).parent.glob("kernels/*.vyre"))
    }
    for path, script in _scripts().items():
        for name, value in vars(script).items():
            if isinstance(value, Kernel):
                found[f"{path.name} {name}"] = value.program
    return found


def _scripts() -> dict[Path, ModuleType]:
    """The examples in Python, by their paths."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        return {path: importlib.import_module(path.stem) for path in sorted(EXAMPLES.glob("*.py"))}
    finally:
        sys.path.remove(str(EXAMPLES))


def show_effect(dispatcher: BackendDispatcher, outcome: Outcome, *, quick: bool) -> None:
    """What is left of each kernel, and how long it runs with and without the optimizer."""
    inputs = _runs()
    backends = {"cpu": dispatcher.backend}
    if any(one.name == "webgpu" and one.available for one in vyre.list_backends()):
        backends["webgpu"] = vyre.backend("webgpu")
    rows, gains = [], {}
    for name, before in _kernels().items():
        after, report = optimize_with(before, dispatcher)
        left = [
            f"{before.stats().statements} → {after.stats().statements}",
            f"{report.rows_before} → {report.rows_after}",
        ]
        shown_gains = []
        for where, backend in backends.items():
            if name not in inputs or after == before:
                shown_gains.append("the same program" if after == before else "")
                continue
            try:
                taken = _time_both(backend, {"without": before, "vyre": after}, *inputs[name], quick=quick)
            except UnsupportedFeature:
                shown_gains.append("gap: unsupported")
                continue
            outcome.samples[f"effect {name} on {where}"] = taken
            gains[name, where] = _gain(taken)
            shown_gains.append(_shown_gain(taken))
        rows.append([name, *left, *shown_gains])
        print(" ".join(rows[-1]), flush=True)
    with CpuBackend() as better, CpuBackend() as plain:
        plain.device.profile = msgspec.structs.replace(plain.device.profile, as_given=True)
        for name, ways in {**_library_calls(plain, better), **_shaped_calls(plain, better)}.items():
            taken = outcome.samples[f"effect {name}"] = sample(ways, 20 if quick else 60)
            gains[name, "cpu"] = _gain(taken)
            rows.append([name, "", "", _shown_gain(taken), *[""] * (len(backends) - 1)])
            print(" ".join(rows[-1]), flush=True)
    outcome.tables.append(_table(["kernel", "statements", "rows", *(f"gain on {one}" for one in backends)], rows))
    # Kernels from Python on two axes or with grid barriers.
    chosen = [
        gain for (name, where), gain in gains.items() if where == "cpu" and name in (*_SHAPED_EXAMPLES, *_SHAPED_ROWS)
    ]
    helped = sum(gain >= _LEAST_GAIN for gain in chosen)
    title = f"a gain of {_LEAST_GAIN}x on {helped} of {len(chosen)} kernels on two axes or with grid barriers"
    outcome.promises[f"{title}, at least a third"] = 3 * helped >= len(chosen)
    lost = [f"{name} on {where} ({gain:.2f}x)" for (name, where), gain in gains.items() if gain < 1 / _NOISE]
    outcome.promises[f"no kernel runs slower{': ' * bool(lost)}{', '.join(lost)}"] = not lost


def _gain(taken: Samples) -> float:
    """How many times faster; by the median, since where threads meet one launch of many is much quicker."""
    return taken.median("without") / taken.median("vyre")


def _shown_gain(taken: Samples) -> str:
    gain = _gain(taken)
    times = f"{shown(taken.median('without'))} → {shown(taken.median('vyre'))}"
    return f"{gain:.2f}x{' LOSS' * (gain < 1 / _NOISE)} ({times})"


Calls = dict[str, dict[str, Callable[[], object]]]


def _library_calls(plain: CpuBackend, better: CpuBackend) -> Calls:
    """Library functions on a backend that does not optimize programs and on one that does, with equal results."""
    source, target = np.random.default_rng(3).integers(0, 1 << 16, (2, 1 << 20), dtype=np.uint32)
    numbers = np.random.default_rng(4).integers(0, 1 << 20, 1 << 22, dtype=np.uint32)
    some = graph.Graph.from_edges(source, target, num_nodes=1 << 16)
    calls: dict[str, Callable[[CpuBackend], Any]] = {
        "lib.graph.bfs": lambda on: graph.bfs(some, 0, backend=on),
        "lib.graph.connected_components": lambda on: graph.connected_components(some, backend=on),
        "lib.graph.pagerank": lambda on: graph.pagerank(some, max_iterations=5, backend=on),
        "lib.scan.exclusive": lambda on: scan.exclusive(numbers, backend=on),
        "lib.reduce.sum": lambda on: reduce.sum(numbers, backend=on),
        "lib.reduce.argmax": lambda on: reduce.argmax(numbers, backend=on),
        "lib.bitset.count": lambda on: bitset.popcount(numbers, backend=on),
    }
    for name, call in calls.items():
        _require_equal(name, *(np.asarray(call(on)) for on in (plain, better)))
    return {
        name: {"without": lambda call=call: call(plain), "vyre": lambda call=call: call(better)}
        for name, call in calls.items()
    }


def _shaped_calls(plain: CpuBackend, better: CpuBackend) -> Calls:
    """Plain kernels on two and three axes, in cache, in the same two ways."""
    found: Calls = {}
    for name in _SHAPED_ROWS:
        row = PLAIN_ROWS[name]
        ways = {}
        for way, on in (("without", plain), ("vyre", better)):
            contenders = row.make(Setting(row.cases[0].size, backend=on))
            ways[way] = next(one for label, one in contenders.items() if label.startswith("vyre"))
        _require_equal(name, *(one.result(one.run()) for one in ways.values()))
        found[name] = {way: one.run for way, one in ways.items()}
    return found


def _require_equal(name: str, without: Array, optimized: Array) -> None:
    if without.tobytes() != optimized.tobytes():
        raise SystemExit(f"{name} gives another result when optimized. Fix: that is a fault.")


def _runs() -> dict[str, tuple[list[Array], DispatchConfig]]:
    """Inputs (and outputs) for kernels, and how to launch them."""
    found = _example_runs()
    for name in ("collatz", "mandelbrot", "count_primes", "nbody", "lcs", "saxpy", "stencil", "transpose", "histogram"):
        workload = WORKLOADS[name]()
        found[name] = [*workload.inputs, workload.output], workload.config
    random, size = np.random.default_rng(8), 1 << 18
    cells = random.integers(0, 2, size, dtype=np.uint8)
    found["life.vyre"] = [cells, _one(512), _one(8), np.zeros_like(cells)], DispatchConfig(dispatch_elements=size)
    nodes = 1 << 16
    offsets = np.arange(nodes + 1, dtype=np.uint32) * 4
    sets = [np.zeros(size, np.uint32) for size in (nodes // 32, nodes, nodes)]
    sets[0][0] = 1
    edges = [offsets, random.integers(0, nodes, 4 * nodes, dtype=np.uint32), *sets, _one(0)]
    found["reach.vyre"] = edges, DispatchConfig(dispatch_elements=nodes)
    values = random.integers(0, 1000, 1 << 22, dtype=np.uint32)
    found["sum.vyre"] = [values, np.zeros(len(values), np.uint32)], DispatchConfig(dispatch_elements=len(values))
    return found


def _example_runs() -> dict[str, tuple[list[Array], DispatchConfig]]:
    """The same for the kernels that are written in Python: the examples, on more data."""
    made = {path.stem: script for path, script in _scripts().items()}
    random, floats = np.random.default_rng(9), np.float32
    nodes, bodies, side, letters, count = 1 << 17, 1 << 12, 1 << 9, 1 << 11, 1 << 22
    offsets, targets = made["bfs"].random_graph(nodes, 8 * nodes)
    level, found = np.full(nodes, made["bfs"].FAR, np.uint32), np.zeros(nodes + 1, np.uint32)
    level[0], found[0] = 0, 1
    mass, place, speed = (
        random.random(bodies, floats),
        random.random((bodies, 3), floats),
        np.zeros((bodies, 3), floats),
    )
    cells = random.integers(0, 2, (side, side), dtype=np.uint32)
    texts = random.integers(0, 4, (2, letters), dtype=np.uint8)
    table = np.zeros((letters + 1, letters + 1), np.uint32)
    values, x = random.integers(0, 1000, count, dtype=np.uint32), random.random(count, floats)
    calls: dict[str, tuple[Launch, tuple[Any, ...]]] = {
        "bfs.py levels": (made["bfs"].levels[nodes], (offsets, targets, level, found)),
        "lcs.py lcs": (made["lcs"].lcs[letters], (texts[0].copy(), texts[1].copy(), table)),
        "life.py life": (made["life"].life[side, side], (50, cells, np.zeros_like(cells))),
        "mandelbrot.py mandelbrot": (
            made["mandelbrot"].mandelbrot[side, side], (-2.2, -1.1, 3.3 / side, np.zeros((side, side), np.uint8))
        ),
        "nbody.py pull": (made["nbody"].pull[bodies], (1e-3, mass, place, speed)),
        "nbody.py move": (made["nbody"].move[count // 4], (1e-3, *np.resize(x, (2, count // 4, 3)))),
        "reduction.py total": (made["reduction"].total[count], (values, np.zeros(1, np.uint32))),
        "saxpy.py saxpy": (made["saxpy"].saxpy[count], (2.0, x, np.zeros_like(x))),
    }  # fmt: skip
    return {name: _as_run(launch, arguments) for name, (launch, arguments) in calls.items()}


def _as_run(launch: Launch, arguments: tuple[Any, ...]) -> tuple[list[Array], DispatchConfig]:
    memory = take(launch.definition.translation().specs, arguments, in_place=True).memory
    return [array for array in memory if isinstance(array, np.ndarray)], launch.kernel.config(launch.grid)


def _one(number: int) -> Array:
    return np.array([number], np.uint32)


def _time_both(
    backend: Backend,
    programs: dict[str, Program],
    arrays: list[Array],
    config: DispatchConfig,
    *,
    quick: bool,
) -> Samples:
    """Both on resident buffers, in turns; first that they give the same bytes."""
    plain = config.with_changes(optimize=False)
    buffers = [backend.allocate(array.nbytes) for array in arrays]
    try:
        results = []
        for code in programs.values():
            backend.upload_many([(buffer, 0, array) for buffer, array in zip(buffers, arrays, strict=True)])
            backend.dispatch_resident(code, buffers, plain)
            results.append([bytes(backend.download(buffer)) for buffer in buffers])
        if results[0] != results[1]:
            raise SystemExit(f"{programs['vyre'].name} gives another result when optimised. Fix: that is a fault.")
        functions: dict[str, Callable[[], object]] = {
            name: lambda code=code: backend.dispatch_resident(code, buffers, plain) for name, code in programs.items()
        }
        start = perf_counter()
        functions["vyre"]()
        seconds = 0.4 if quick else 2.0
        return sample(functions, max(5, min(100, int(seconds / (perf_counter() - start)))))
    finally:
        for buffer in buffers:
            backend.free(buffer)


if __name__ == "__main__":
    main()
