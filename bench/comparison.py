"""What the benchmarks of contenders share: equal results first, blocks of calls in turn, promises, the table."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from measure import Samples, machine, sample
from overheads import verdict
from report import RESULTS, shown, write
from vyre.backends.cpu.pool import wanted_threads

Array = np.ndarray[Any, Any]
_MOST_SECONDS: Final = 10.0


class Ratio(msgspec.Struct, frozen=True):
    """At least so many times as fast as the best of the contenders whose names begin so.

    ``{precision}`` stands for the type of vyre's result.
    """

    least: float
    against: str = ""

    def __str__(self) -> str:
        return f"{self.least:g}x {self.against.split(',')[0] or 'the best'}"

    def covers(self, name: str, precision: str) -> bool:
        return name != "vyre" and name.startswith(self.against.format(precision=precision))


class Line(msgspec.Struct):
    """One line of the table: a contender's best seconds, a ratio, and a promise that this line decides."""

    row: str
    contender: str
    seconds: float | None = None
    ratio: float | None = None
    promise: str = ""
    verdict: str = ""
    note: str = ""


class Contender(msgspec.Struct):
    """One way to do a work: ``run`` is what is timed, and ``result`` converts what it returns to a NumPy array."""

    run: Callable[[], Any]
    result: Callable[[Any], Array] = np.asarray


def describe(error: Exception) -> str:
    """The first line of an error."""
    return f"RAISED {type(error).__name__}: {error}".splitlines()[0]


def passed(holds: bool) -> str:
    return verdict(holds).upper()


def sample_in_blocks(
    functions: Mapping[str, Callable[[], object]], blocks: int, seconds: float, most_seconds: float = _MOST_SECONDS
) -> Samples:
    """The mean seconds of blocks of calls, about ``seconds`` long, of one function after the other.

    A function that takes longer than ``most_seconds`` in all is measured in fewer blocks.
    """
    calls: dict[str, int] = {}
    turns: dict[str, int] = {}
    for name, function in functions.items():
        function()
        once = sample({name: function}, 1).best(name)
        calls[name] = max(1, min(200, int(seconds / once)))
        turns[name] = max(1, min(blocks, int(most_seconds / once)))
    taken: dict[str, list[float]] = {name: [] for name in functions}
    for block in range(blocks):
        for name, function in functions.items():
            if block < turns[name]:
                if calls[name] > 1:
                    # The threads of the contender before go to sleep, and this one's wake.
                    function()
                taken[name] += sample({name: function}, 1, calls[name]).seconds[name]
    return Samples(taken)


def options(description: str | None, rows: Mapping[str, object]) -> argparse.ArgumentParser:
    """The command line that every such benchmark has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter blocks")
    parser.add_argument("--only", nargs="+", choices=rows, default=tuple(rows), metavar="ROW", help="only these rows")
    parser.add_argument("--threads", type=int, help="for all; else VYRE_THREADS, else one for each processor")
    parser.add_argument("--list", action="store_true", help="print the rows and their promises")
    return parser


def decide_threads(given: int | None) -> int:
    """The number of threads for all contenders; to be called before their thread pools are made.

    Those are made when libraries are loaded or first called.
    """
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    threads = wanted_threads(given)
    os.environ["VYRE_THREADS"] = os.environ["OMP_NUM_THREADS"] = os.environ["NUMBA_NUM_THREADS"] = str(threads)
    return threads


def conclude(
    stem: str, lines: Sequence[Line], samples: Mapping[str, Samples], about: Mapping[str, str], peers: Mapping[str, str]
) -> None:
    """Print the table and what was lost, and write both with the samples; ``peers`` has their versions."""
    text = table(lines)
    print(f"\n{text}")
    promised = [line for line in lines if line.promise]
    held = sum(line.verdict == passed(True) for line in promised)
    # A row with several lines is named once.
    lost, gaps = (
        dict.fromkeys(f"{line.row} ({line.promise})" for line in promised if line.verdict == verdict)
        for verdict in (passed(False), "gap")
    )
    print(f"{held} of {len(promised)} hold; lost: {'; '.join(lost) or 'none'}; gaps: {'; '.join(gaps) or 'none'}")
    about = {**machine(), **about}
    data = {"machine": about, "peers": peers, "lines": lines, "samples": samples}
    write(stem, data, {".md": f"{about}\n\n{peers}\n\n{text}"})
    print(f"written to {RESULTS}")


def table(lines: Sequence[Line]) -> str:
    """The results in Markdown."""
    heads = ["workload", "contender", "best", "ratio", "promised", "", ""]
    rows = [heads, ["---"] * len(heads)]
    before = ""
    for line in lines:
        seconds = shown(line.seconds) if line.seconds else ""
        ratio = f"{line.ratio:.2f}x" if line.ratio else ""
        title = line.row if line.row != before else ""
        rows.append([title, line.contender, seconds, ratio, line.promise, line.verdict, line.note])
        before = line.row
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
