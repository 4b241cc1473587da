"""The tour: what vyre claims, shown on one program.

The closure of a node in a random graph, to a fixpoint, with barriers over the whole grid inside a loop: checked,
printed, encoded, run in several orders with the race detector on, compared with a plain Python search, optimized by
programs of its own kind, and run by every route on every backend here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import files
from random import Random
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from vyre import reference
from vyre.checker import check, render_diagnostic
from vyre.driver.config import DEFAULT_CONFIG, DispatchConfig
from vyre.driver.optimizing import optimize
from vyre.driver.registry import backend, list_backends
from vyre.driver.routes import choose_route, dispatch
from vyre.errors import UnsupportedFeature, WireError
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import decode, encode
from vyre.report.explanation import explanation

_NODES: Final = 400
_EDGES: Final = 700

Claim = tuple[str, bool, float]

_WRONG: Final = """program wrong(workgroup 64) {
  buffer 0 a: u32[] readwrite

  if wg.x == 0 {
    grid_sync
  }
}
"""


def tour(*, quiet: bool = False) -> list[Claim]:
    """Runs the tour and answers with each claim, whether it held, and how long it took."""
    console = Console(stderr=quiet, quiet=quiet)
    text = files("vyre.cli").joinpath("reach.vyre").read_text(encoding="utf-8")
    program = parse(text, "reach.vyre")
    console.rule("a program is data: examples/reach.vyre")
    console.print(Syntax(str(program), "rust", background_color="default"))
    console.rule("a wrong one is refused, with a place and a fix")
    wrong = parse(_WRONG, "wrong.vyre")
    for diagnostic in check(wrong).errors:
        console.print(render_diagnostic(wrong, diagnostic), highlight=False, markup=False, soft_wrap=True)
    console.rule("it is optimized by programs of its own kind")
    with console.status("optimizing"):
        better, report = optimize(program, report=True)
    console.print(explanation(program, better, report), highlight=False, markup=False, soft_wrap=True)
    console.rule(f"one meaning: the closure of node 0 in a graph of {_NODES} nodes and {_EDGES} edges")
    for line in _devices():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    results: list[Claim] = []
    with _spinner(console) as say:
        for claim, holds in _claims(program, wrong, better):
            say(claim)
            start = time.perf_counter()
            held = holds()
            results.append((claim, held, time.perf_counter() - start))
    console.print(_table(results))
    return results


def _claims(program: Program, wrong: Program, better: Program) -> Iterator[tuple[str, Callable[[], bool]]]:
    inputs, expected = _graph(Random(7))

    def run(schedule: Any, races: bool = False) -> reference.Result:
        return reference.run(program, inputs, schedule=schedule, races=races)

    def closure(schedule: Any) -> bool:
        return bool(np.array_equal(run(schedule).outputs["reached"], expected))

    yield "the checker accepts the program", lambda: check(program).ok
    yield "it refuses a grid barrier that one workgroup alone reaches", lambda: not check(wrong).ok
    yield "text reads back to the same program", lambda: parse(str(program)) == program
    yield "bytes decode to the same program", lambda: decode(encode(program)) == program
    yield "a damaged byte is noticed", lambda: _damage_is_noticed(encode(program))
    yield "the closure equals a plain search in Python", lambda: closure(reference.IN_ORDER)
    yield "the same bytes with invocations in reverse order", lambda: closure(reference.REVERSED)
    yield "the same bytes in a random order", lambda: closure(reference.seeded(1))
    yield "no data races", lambda: not run(reference.IN_ORDER, races=True).races
    meant = _bytes_of(run(reference.IN_ORDER))
    yield (
        "the optimized program means the same",
        lambda: _bytes_of(reference.run(better, inputs)) == meant,
    )
    for info in list_backends():
        if info.available:
            for route in _open_routes(info.name, program, inputs):
                yield (
                    f"the same bytes on {info.name}, {route} route",
                    partial(_same, program, inputs, meant, info.name, route),
                )
            yield (
                f"the same bytes on {info.name} without the optimizer",
                partial(_same, program, inputs, meant, info.name, "auto", optimize=False),
            )


def _devices() -> Iterator[str]:
    """Each backend that can run here, with its device and whether its floats are exact."""
    for info in list_backends():
        if info.available:
            with backend(info.name) as device:
                profile = device.capabilities
            floats = "floats exact" if profile.float_exact else "floats not exact: compared within a number of ULPs"
            yield f"{info.name:<10} {profile.device}: {floats}"
        else:
            yield f"{info.name:<10} not here: {info.reason} Fix: {info.fix}"


def _open_routes(name: str, program: Program, inputs: dict[str, Any]) -> list[Any]:
    """The routes by which a backend can run the program."""
    found = []
    with backend(name) as device:
        for route in ("native", "resident", "host"):
            with suppress(UnsupportedFeature):
                found.append(choose_route(device, program, list(inputs.values()), DEFAULT_CONFIG, route))
    return found


def _bytes_of(result: reference.Result) -> list[bytes]:
    return [bytes(result.output_bytes(name)) for name in result.outputs]


def _same(
    program: Program, inputs: dict[str, Any], meant: list[bytes], name: str, route: Any, *, optimize: bool = True
) -> bool:
    """Whether a backend gives those bytes, in every output."""
    config = DispatchConfig(optimize=optimize)
    with backend(name) as device:
        views = dispatch(device, program, list(inputs.values()), config, route=route)
        return [bytes(view) for view in views] == meant


def _graph(random: Random) -> tuple[dict[str, Any], Any]:
    """A random graph in CSR form with node 0 as seed, and the bitset of what a plain search reaches."""
    successors: list[list[int]] = [[] for _ in range(_NODES)]
    for _ in range(_EDGES):
        successors[random.randrange(_NODES)].append(random.randrange(_NODES))
    seen, stack = {0}, [0]
    while stack:
        for node in successors[stack.pop()]:
            if node not in seen:
                seen.add(node)
                stack.append(node)
    inputs = {
        "offsets": np.cumsum([0, *map(len, successors)], dtype=np.uint32),
        "targets": np.array([node for row in successors for node in row], dtype=np.uint32),
        "reached": _bitset({0}),
    }
    return inputs, _bitset(seen)


def _bitset(nodes: set[int]) -> Any:
    words = np.zeros((_NODES + 31) // 32, dtype=np.uint32)
    for node in nodes:
        words[node >> 5] |= np.uint32(1 << (node & 31))
    return words


def _damage_is_noticed(image: bytes) -> bool:
    damaged = bytearray(image)
    damaged[len(damaged) // 2] ^= 1
    try:
        decode(damaged)
    except WireError:
        return True
    return False


@contextmanager
def _spinner(console: Console) -> Iterator[Callable[[str], None]]:
    with console.status("…") as status:
        yield lambda text: status.update(text)


def _table(results: list[Claim]) -> Table:
    table = Table("claim", "holds", "time")
    for claim, holds, seconds in results:
        table.add_row(claim, "yes" if holds else "[bold red]NO[/]", f"{seconds * 1000:.1f} ms")
    return table
