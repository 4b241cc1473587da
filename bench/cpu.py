"""How fast is the processor's backend beside its peers? Side by side in one run, with equal results first.

``python bench/cpu.py [--quick] [--only ROW ...] [--threads N] [--growth]``; peers come with the ``bench`` extra, and
one that is not installed is a printed gap. Writes samples, tables and plots under ``bench/results``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import msgspec

import peers
from measure import Samples, copy_bandwidth, machine, repetitions_for, runs_of_vyre, sample
from overheads import compiles, launches, sequences, verdict
from peers import Peer, Runs
from report import RESULTS, Line, bars, curves, shown, table, write
from vyre.backends.cpu import CpuBackend
from vyre.backends.cpu.pool import wanted_threads
from workloads import GROWING, WORKLOADS, Workload

OVERHEADS = ("launch", "sequence", "compile")


class Options(msgspec.Struct):
    """How long to measure each line, and with how many threads."""

    threads: int
    seconds: float
    most: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", nargs="+", choices=(*WORKLOADS, *OVERHEADS), help="only these rows")
    parser.add_argument("--threads", type=int, help="for all; else VYRE_THREADS, else one for each processor")
    parser.add_argument("--growth", action="store_true", help="from 1k to 64M elements, with 1 thread and with all")
    given = parser.parse_args()
    options = Options(wanted_threads(given.threads), 0.5 if given.quick else 5.0, 5 if given.quick else 40)
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    if given.growth:
        growth(options)
    else:
        compare_all(options, given.only or (*WORKLOADS, *OVERHEADS), long=not given.quick)


def installed(threads: int) -> dict[str, Peer]:
    """The peers that are here; the others are told of."""
    found: dict[str, Peer] = {}
    for name in peers.NAMES:
        peer = peers.load(name, threads)
        if isinstance(peer, str):
            print(f"gap: {peer}")
        else:
            found[name] = peer
    print(f"{threads} threads; " + ", ".join(f"{peer.name} {peer.version}" for peer in found.values()))
    return found


def compare_all(options: Options, names: tuple[str, ...] | list[str], *, long: bool) -> None:
    others = installed(options.threads)
    bandwidth = copy_bandwidth(options.threads)
    print(f"copying moves {bandwidth / 1e9:.1f} GB/s\n")
    lines: list[Line] = []
    samples: dict[str, Samples] = {}
    with CpuBackend(threads=options.threads) as backend:
        for name in names:
            if name in WORKLOADS:
                lines += compare(WORKLOADS[name](), backend, others, options, bandwidth, samples)
        if "launch" in names:
            lines += launches(backend, others, options.most)
        if "sequence" in names:
            lines += sequences(backend, others, 5)
    if "compile" in names:
        lines += compiles(3 if long else 1, long=long)
    text = table(lines, list(others))
    print(text)
    promised = [line for line in lines if line.verdict != "printed"]
    lost = [f"{line.title} ({line.way})" for line in promised if line.verdict != "pass"]
    print(f"{len(promised) - len(lost)} of {len(promised)} hold; lost: {', '.join(lost) or 'none'}")
    about = {**machine(), "threads": str(options.threads), "copy bandwidth": f"{bandwidth / 1e9:.1f} GB/s"}
    versions = {name: peer.version for name, peer in others.items()}
    write(
        "cpu",
        {"machine": about, "peers": versions, "lines": lines, "samples": samples},
        {".md": f"{about}\n\n{versions}\n\n{text}", ".svg": bars([line for line in lines if len(line.best) > 1])},
    )
    print(f"written to {RESULTS}")


def compare(
    workload: Workload,
    backend: CpuBackend,
    others: dict[str, Peer],
    options: Options,
    bandwidth: float,
    samples: dict[str, Samples],
) -> list[Line]:
    """Two lines: end to end, and on resident data. Whoever gives another result is not measured, and that is a loss."""
    runs = {"vyre": runs_of_vyre(workload, backend)}
    for name, peer in others.items():
        if workload.name in peer.rows:
            runs[name] = peer.rows[workload.name](workload.given, workload.output.copy())
    unequal = disagreements(workload, runs)
    for name in unequal:
        print(f"{workload.title}: the result of {name} is different")
    runs = {name: run for name, run in runs.items() if name not in unequal}
    lines = []
    for way in ("end to end", "resident"):
        functions: dict[str, Callable[[], object]] = {
            name: run.end_to_end if way == "end to end" else run.resident for name, run in runs.items()
        }
        repetitions = repetitions_for(list(functions.values()), options.seconds, options.most)
        taken = sample(functions, repetitions)
        samples[f"{workload.name}, {way}"] = taken
        ratio = taken.ratio()
        share = workload.moved / taken.best("vyre") / bandwidth
        note = f"{share:.0%} of copy bandwidth" if workload.moved else ""
        if unequal:
            note = f"UNEQUAL: {', '.join(unequal)} {note}"
        holds = ratio is not None and ratio >= workload.least and not unequal
        best = {name: taken.best(name) for name in functions}
        judged = "no peer" if ratio is None else verdict(holds) if workload.least else "printed"
        promise = f"{workload.least}x" if workload.least else ""
        line = Line(workload.title, way, best, promise, judged, note)
        print(f"{line.title}, {way}: " + ", ".join(f"{name} {shown(best[name])}" for name in best), flush=True)
        lines.append(line)
    return lines


def disagreements(workload: Workload, runs: dict[str, Runs]) -> list[str]:
    """Who gives another result than vyre, whose own two ways have to agree."""
    expected = runs["vyre"].end_to_end().copy()
    found = []
    for name, run in runs.items():
        run.resident()
        if not (workload.agrees(run.end_to_end(), expected) and workload.agrees(run.result(), expected)):
            found.append(name)
    if "vyre" in found:
        raise SystemExit(f"{workload.title}: vyre's resident result differs from its own. Fix: that is a fault.")
    return found


def growth(options: Options) -> None:
    """Time for each element, from a thousand elements to 64 million, with one thread and with all."""
    data: dict[str, dict[str, dict[int, float]]] = {}
    plots: dict[str, str] = {}
    for name, make in GROWING.items():
        points = data[name] = {}
        for threads in dict.fromkeys((1, options.threads)):
            others = {peer: found for peer, found in installed(threads).items() if peer in ("numpy", "numba")}
            with CpuBackend(threads=threads) as backend:
                for size in (1 << k for k in range(10, 27, 2)):
                    workload = make(size)
                    runs = {"vyre": runs_of_vyre(workload, backend)}
                    runs |= {
                        who: peer.rows[name](workload.given, workload.output.copy()) for who, peer in others.items()
                    }
                    if unequal := disagreements(workload, runs):
                        raise SystemExit(f"{name} of {size:,} elements: {unequal} differ. Fix: compare the results.")
                    functions = {who: run.resident for who, run in runs.items()}
                    taken = sample(
                        functions, repetitions_for(list(functions.values()), options.seconds / 6, options.most)
                    )
                    for who in functions:
                        points.setdefault(f"{who} {threads}", {})[size] = 1e9 * taken.best(who) / size
        plots[f"-{name}.svg"] = curves(f"{name} by elements and threads", points, "ns an element")
        print(f"\n{name}, resident, ns an element by elements, and threads\n")
        sizes = sorted(points["vyre 1"])
        rows = [["", *(f"{size:,}" for size in sizes)], ["---"] * (len(sizes) + 1)]
        rows += [[who, *(f"{line[size]:.3g}" for size in sizes)] for who, line in points.items()]
        text = "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"
        print(text)
        plots[f"-{name}.md"] = text
    write("growth", {"machine": machine(), "nanoseconds": data}, plots)


if __name__ == "__main__":
    main()
