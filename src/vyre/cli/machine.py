"""Which commands are about this machine? ``demo backends conform bench cache``."""

from __future__ import annotations

import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vyre.cli import EXIT_WRONG
from vyre.cli.app import AsJson, BackendName, print_table, progress_bar
from vyre.cli.files import print_json, read_bytes, require_writable
from vyre.errors import BadInputs, VyreError
from vyre.words import counted

if TYPE_CHECKING:
    from vyre.conform.certificate import Certificate
    from vyre.driver.backend import Backend
    from vyre.driver.profile import DeviceProfile


def demo(as_json: AsJson = False) -> None:
    """The tour: a program is checked, optimized, run and compared.

    Example:

      vyre demo
    """
    from vyre.cli.demo import tour

    results = tour(quiet=as_json)
    if as_json:
        print_json([{"claim": claim, "holds": holds, "seconds": seconds} for claim, holds, seconds in results])
    if not all(holds for _, holds, _ in results):
        raise typer.Exit(EXIT_WRONG)


def backends(as_json: AsJson = False) -> None:
    """List what can run programs here, its limits, and what cannot.

    Example:

      vyre backends --json
    """
    import msgspec

    from vyre.driver.registry import backend, list_backends

    found: list[dict[str, Any]] = []
    for info in list_backends():
        profile: DeviceProfile | None = None
        problem = ""
        if info.available:
            try:
                with backend(info.name) as device:
                    profile = device.accepts
            except VyreError as error:
                problem = str(error)
        found.append({**msgspec.to_builtins(info), "profile": msgspec.to_builtins(profile), "problem": problem})
        if as_json:
            continue
        state = "default" if info.is_default else "available" if info.available else "not here"
        print(f"{info.name:<11} {state:<10} {info.version:<9} {info.description}".rstrip())
        if problem or not info.available:
            print(f"{'':<11} {problem or f'{info.reason} Fix: {info.fix}'}")
        for line in [] if profile is None else _limits(profile):
            print(f"{'':<11} {line}")
    if as_json:
        print_json(found)


def _limits(profile: DeviceProfile) -> list[str]:
    missing = [str(dtype) for dtype in type(next(iter(profile.dtypes))) if dtype not in profile.dtypes]
    axes = " x ".join(f"{axis:,}" for axis in profile.max_workgroup_size)
    can = {
        "exact floats": profile.float_exact,
        "grid barriers in one launch": profile.grid_sync,
        "resident data": profile.resident,
        "subgroups": profile.subgroup_ops,
        "64-bit atomics": profile.atomics64,
        "persistent workgroups": profile.persistent_threads,
        "timestamps": profile.device_timestamps,
    }
    lacks = ", ".join([name for name, has in can.items() if not has] + missing)
    memory = (
        f", {profile.max_shared_memory_bytes:,} bytes of workgroup memory" if profile.max_shared_memory_bytes else ""
    )
    return [
        f"device: {profile.device}",
        f"limits: workgroups of {axes} and {profile.workgroup_invocations:,} invocations{memory}",
        f"has: {', '.join(name for name, has in can.items() if has) or 'nothing more'}"
        + (f"; lacks: {lacks}" if lacks else ""),
    ]


def conform(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Files with '# run:' directives to compare, instead of seeds.")
    ] = None,
    backend: BackendName = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="How long to compare (20 if nothing is said).")] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="How many programs to compare.")] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="The certificate to write (conform-BACKEND.json).")
    ] = None,
    verify: Annotated[str | None, typer.Option(help="Run what this certificate says again, and compare.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare a backend with the reference, and certify it.

    Generated programs run in every way there is: schedules, routes, optimizer on and off, text and wire.
    A program that the backend gets wrong is reduced and written beside the certificate; `vyre conform FILE` runs it
    again.

    Examples:

      vyre conform --backend cpu --seconds 60

      vyre conform --verify conform-cpu.json
    """
    from vyre.conform.certificate import certify, read_certificate, write_certificate
    from vyre.conform.certificate import verify as run_again
    from vyre.driver.registry import backend as find_backend

    if paths and (verify or cases or seconds is not None):
        raise typer.BadParameter("files have nothing to do with --verify, --cases and --seconds.")
    if verify is not None:
        given = read_certificate(read_bytes(verify), verify)
        if backend not in (None, given.backend):
            raise typer.BadParameter(f"{verify} is about '{given.backend}'.", param_hint="--backend")
        with find_backend(given.backend) as device, progress_bar("comparing", show=not as_json) as tell:
            wrong = run_again(
                given, device, lambda done, _: tell(done / given.cases, f"seed {given.first_seed + done}")
            )
        _tell_verified(verify, given, wrong, as_json)
        return
    with find_backend(backend) as device:
        if paths:
            _conform_files(device, paths, as_json)
            return
        path = output or f"conform-{device.id}.json"
        require_writable(path)
        limit = None if cases is not None and seconds is None else 20.0 if seconds is None else seconds
        with progress_bar("comparing", show=not as_json) as tell:

            def progress(done: int, spent: float) -> None:
                share = max(done / cases if cases else 0.0, spent / limit if limit else 0.0)
                tell(share, f"{device.id}: {counted(done, 'program')}, all the same")

            made = certify(device, first_seed=first_seed, cases=cases, seconds=limit, progress=progress)
    Path(path).write_bytes(write_certificate(made))
    files = []
    for failure in made.failures:
        file = Path(path).with_name(f"{Path(path).stem}-seed-{failure.seed}.vyre")
        file.write_text(failure.program, encoding="utf-8")
        files.append(str(file))
    if as_json:
        print(write_certificate(made).decode(), end="")
    else:
        _tell_certificate(made, path, files)
    if not made.holds:
        raise typer.Exit(EXIT_WRONG)


def _tell_certificate(made: Certificate, path: str, files: list[str]) -> None:
    rows = [(f"{count:,}", way) for way, count in made.ways.items()]
    rows += [(f"{count:,}", f"refused: {what}") for what, count in made.refused.items()]
    compared = f"{counted(made.cases, 'program')} from seed {made.first_seed}"
    print(f"{made.backend} {made.version} on {made.device}: {compared}\n")
    print_table(("runs", "way"), rows)
    print(f"\nfloats     {made.float_policy}\nprograms   {made.programs}\nresults    {made.results}")
    for failure, file in zip(made.failures, files, strict=True):
        print(f"\nWRONG: seed {failure.seed}, {failure.way}: {failure.what}\n\n{failure.program}")
        print(f"written to {file}. Fix: correct the backend; `vyre conform {file} --backend {made.backend}` tests it.")
    if not made.failures:
        print(
            "holds      every program gave the reference's bytes in every way" if made.holds else "nothing was compared"
        )
    print(f"\ncertificate {path}; `vyre conform --verify {path}` runs it again")


def _tell_verified(path: str, given: Certificate, wrong: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"certificate": path, "cases": given.cases, "holds": not wrong, "wrong": wrong})
    else:
        print(
            "\n".join(wrong)
            if wrong
            else f"{path} holds: {counted(given.cases, 'program')} gave the same results again"
        )
    if wrong:
        raise typer.Exit(EXIT_WRONG)


def _conform_files(device: Backend, paths: list[str], as_json: bool) -> None:
    """Compares the runs that files ask for."""
    from vyre.cli.files import as_text
    from vyre.conform.directives import case_of_run, read_filetest
    from vyre.conform.runner import judge, trial_of
    from vyre.ir.parser import parse

    texts = {path: as_text(read_bytes(path), path) for path in paths}
    runs = [(path, run) for path, text in texts.items() for run in read_filetest(path, text).runs]
    cases = [(path, run.line, case_of_run(run, parse(texts[path], path))) for path, run in runs]
    trial = trial_of(device)
    found: list[dict[str, Any]] = []
    for path, line, case in cases:
        verdict = judge(trial, case)
        found.append({"file": path, "line": line, "ways": len(verdict.given), "wrong": verdict.wrong})
    if as_json:
        print_json(found)
    for one in [] if as_json else found:
        told = (
            "; ".join(f"{way}: {what}" for way, what in one["wrong"].items())
            or f"the same in {counted(one['ways'], 'way')}"
        )
        print(f"{one['file']}:{one['line']}: {told}")
    if any(one["wrong"] for one in found):
        raise typer.Exit(EXIT_WRONG)


class Bench(StrEnum):
    """The benches of the repository, by the file they are in."""

    CPU = "cpu"
    WEBGPU = "webgpu"
    OPTIMIZER = "optimizer"
    LIBRARY = "library"
    PLAIN = "plain"
    FOUNDATION = "foundation"


def bench(
    which: Annotated[Bench, typer.Argument(help="What to measure.")] = Bench.CPU,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions (cpu, optimizer, library, plain).")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Only this row or part, as often as you like (cpu, optimizer, library, plain)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure vyre beside its peers: the tables of the repository.

    Examples:

      vyre bench --quick --only saxpy

      vyre bench webgpu
    """
    script = _bench_script(which)
    options = [*(["--quick"] if quick else []), *(["--only", *only] if only else [])]
    if options and which not in (Bench.CPU, Bench.OPTIMIZER, Bench.LIBRARY, Bench.PLAIN):
        raise typer.BadParameter(f"the {which.value} bench has no {options[0]}.", param_hint=options[0])
    command = [sys.executable, str(script), *options]
    done = subprocess.run(command, stdout=sys.stderr if as_json else None, check=False)
    if as_json and done.returncode == 0:
        results = script.parent / "results" / f"{which.value}.json"
        print(results.read_text(encoding="utf-8") if results.exists() else "{}")
    if done.returncode:
        raise typer.Exit(EXIT_WRONG)


def _bench_script(which: Bench) -> Path:
    """The bench beside the package, in a checkout, or in the directory where the command runs."""
    homes = (Path(__file__).resolve().parents[3], Path.cwd())
    for home in homes:
        script = home / "bench" / f"{which.value}.py"
        if script.is_file():
            return script
    raise BadInputs(
        f"the bench '{which.value}' is not here: it comes with the repository, not with the package.",
        "clone the repository and run `vyre bench` in it (its `bench` extra brings the peers).",
    )


class CacheAction(StrEnum):
    """What to do with the cache."""

    SHOW = "show"
    CLEAR = "clear"


def cache(
    action: Annotated[CacheAction, typer.Argument(help="show or clear.")] = CacheAction.SHOW, as_json: AsJson = False
) -> None:
    """Show or clear the cache of compiled code.

    VYRE_CACHE_DIR says where it is; the least recently used entries go when it is over its limit.

    Examples:

      vyre cache

      vyre cache clear
    """
    from vyre.driver.cache import DEFAULT_DISK_BYTES, DiskCache

    disk = DiskCache()
    disk.require_safe()
    removed = disk.clear() if action is CacheAction.CLEAR else None
    stats = disk.stats()
    facts: dict[str, Any] = {
        "directory": str(disk.directory),
        "entries": stats.entries,
        "bytes": stats.size_bytes,
        "limit_bytes": DEFAULT_DISK_BYTES,
    }
    if removed is not None:
        facts["removed"] = removed
    if stats.errors:
        raise BadInputs(
            f"{counted(stats.errors, 'entry', 'entries')} of the cache in {disk.directory} could not be removed.",
            "check the permissions of the directory, or set VYRE_CACHE_DIR to another one.",
        )
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            print(f"{name.replace('_', ' '):<12} {f'{value:,}' if isinstance(value, int) else value}")
