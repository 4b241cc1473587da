"""The commands about this machine, and what all commands have in common."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from command_support import ROOT, Told, in_a_terminal, install_backend
from vyre.cli import demo, machine
from vyre.cli.commands import app

COMMANDS = {info.callback.__name__: info.callback for info in app.registered_commands if info.callback is not None}
TABLE = {
    "demo", "run", "check", "fmt", "show", "optimize", "report", "backends", "conform", "bench", "trace", "cache",
    "telemetry",
}  # fmt: skip
EXAMPLES = {
    name: re.findall(r"^ +(vyre .*)$", callback.__doc__ or "", re.MULTILINE) for name, callback in COMMANDS.items()
}


def test_every_command_of_the_table_is_there_and_shows_examples(vyre: Told) -> None:
    assert {*COMMANDS} == TABLE
    out, _ = vyre("--help")
    assert all(f"\n  {name} " in out for name in TABLE)
    assert "..." not in out.split("Commands:")[1]
    for name in TABLE:
        out, _ = vyre(name, "--help")
        assert "Example" in out
        assert f"vyre {name}" in out.split("Example", 1)[1]


# The bench takes minutes, and the demo has a test of its own.
@pytest.mark.parametrize("name", sorted(TABLE - {"bench", "demo"}))
def test_the_examples_of_the_help_run(
    vyre_at_home: Told, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "cache":
        monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    assert EXAMPLES[name]
    for example in EXAMPLES[name]:
        vyre_at_home(*shlex.split(example.replace("--seconds 60", "--cases 1"))[1:])


@pytest.mark.parametrize(
    "command",
    [
        "show examples/saxpy.vyre",
        "show examples/saxpy.vyre --plan",
        "show examples/saxpy.vyre --llvm --asm",
        "optimize examples/saxpy.vyre",
        "run examples/sum.vyre -i values=iota(64)",
        "trace examples/sum.vyre -i values=iota(64) -o trace.json",
        "telemetry",
        "cache",
        "backends",
        "conform --cases 1 --backend reference",
    ],
)
def test_tables_come_as_json(vyre_at_home: Told, command: str) -> None:
    out, _ = vyre_at_home(*command.split(), "--json")
    assert json.loads(out)


def test_backends_tells_limits_and_why_one_cannot_run(vyre: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    install_backend(monkeypatch, "broken", "no_such_module:Backend")
    out, _ = vyre("backends")
    assert "limits: workgroups of 1,024 x 1,024 x 1,024 and 1,024 invocations" in out
    assert "has: exact floats, grid barriers in one launch, resident data, subgroups, 64-bit atomics" in out
    assert "it could not be loaded (ModuleNotFoundError: No module named 'no_such_module'). Fix: repair or" in out
    told, _ = vyre("backends", "--json")
    found = {info["name"]: info for info in json.loads(told)}
    assert found["reference"]["profile"]["float_exact"]
    assert found["broken"]["profile"] is None


def test_conform_writes_a_certificate_that_can_be_verified(vyre_at_home: Told, tmp_path: Path) -> None:
    out, _ = vyre_at_home("conform", "--backend", "reference", "--cases", "2")
    assert "holds      every program gave the reference's bytes in every way" in out
    path = tmp_path / "conform-reference.json"
    certificate = json.loads(path.read_text())
    assert certificate["cases"] == 2
    out, _ = vyre_at_home("conform", "--verify", path.name)
    assert out == "conform-reference.json holds: 2 programs gave the same results again\n"
    _, err = vyre_at_home("conform", "--verify", path.name, "--backend", "cpu", code=2)
    assert "is about 'reference'" in err
    path.write_text(json.dumps({**certificate, "results": "00"}))
    out, _ = vyre_at_home("conform", "--verify", path.name, code=1)
    assert out == "the same programs gave other results.\n"
    told, _ = vyre_at_home("conform", "--verify", path.name, "--json", code=1)
    assert json.loads(told)["wrong"] == ["the same programs gave other results."]


def test_conform_tells_a_fault_with_a_file_that_shows_it(
    vyre_at_home: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_backend(monkeypatch, "wrong", "conform.wrong_backend:WrongBackend")
    out, _ = vyre_at_home("conform", "--backend", "wrong", "--cases", "99", code=1)
    assert "WRONG: seed " in out
    (file,) = tmp_path.glob("conform-wrong-seed-*.vyre")
    assert f"`vyre conform {file.name} --backend wrong`" in out
    assert " - " in file.read_text()
    out, _ = vyre_at_home("conform", file.name, "--backend", "wrong", code=1)
    assert f"{file.name}:1: wrong: outputs differ: " in out
    out, _ = vyre_at_home("conform", file.name, "--backend", "reference")
    assert out == f"{file.name}:1: the same in 9 ways\n"
    certificate = tmp_path / "conform-wrong.json"
    out, _ = vyre_at_home("conform", "--verify", certificate.name, code=1)
    assert "the certificate itself tells of a failure at seed " in out


def test_conform_does_not_certify_what_compares_nothing(vyre_at_home: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    install_backend(monkeypatch, "refusing", "conform.wrong_backend:RefusingBackend")
    out, _ = vyre_at_home("conform", "--backend", "refusing", "--cases", "1", code=1)
    assert "nothing was compared" in out
    assert "refused: the program " in out


def test_cache_shows_its_limits_and_is_cleared(
    vyre_at_home: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VYRE_CACHE_DIR", str(tmp_path / "cache"))
    vyre_at_home("run", "examples/sum.vyre", "-i", "values=iota(64)", "--backend", "cpu", "--no-optimize")
    told, _ = vyre_at_home("cache", "--json")
    before = json.loads(told)
    assert before["directory"] == str(tmp_path / "cache")
    assert before["entries"] > 0
    assert 0 < before["bytes"] < before["limit_bytes"]
    out, _ = vyre_at_home("cache", "clear")
    assert f"removed      {before['entries']}\n" in out
    out, _ = vyre_at_home("cache")
    assert "entries      0\n" in out


@pytest.mark.parametrize("action", ["show", "clear"])
def test_cache_refuses_a_directory_that_others_can_write(
    vyre_at_home: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    directory = tmp_path / "cache"
    directory.mkdir()
    directory.chmod(0o777)
    monkeypatch.setenv("VYRE_CACHE_DIR", str(directory))
    _, err = vyre_at_home("cache", action, code=1)
    assert "can be written by other users (mode 0777)" in err
    assert f"Fix: chmod go-w {directory}" in err


def test_bench_runs_the_tables_of_a_checkout_or_tells_where_they_are(
    vyre_at_home: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine._bench_script(machine.Bench.CPU) == ROOT / "bench" / "cpu.py"
    monkeypatch.setattr(machine, "__file__", str(tmp_path / "a" / "b" / "c" / "machine.py"))
    _, err = vyre_at_home("bench", code=1)
    assert "it comes with the repository, not with the package. Fix: clone the repository and run" in err
    (tmp_path / "bench" / "results").mkdir(parents=True)
    (tmp_path / "bench" / "results" / "cpu.json").write_text('{"lines": []}')
    (tmp_path / "bench" / "cpu.py").write_text("import sys; print('measured', *sys.argv[1:])")
    out, _ = vyre_at_home("bench", "--quick", "--only", "saxpy", "--only", "copy")
    assert out == "measured --quick --only saxpy copy\n"
    out, err = vyre_at_home("bench", "--json")
    assert json.loads(out) == {"lines": []}
    assert err == "measured\n"
    (tmp_path / "bench" / "optimizer.py").write_text("import sys; print('optimised', *sys.argv[1:])")
    out, _ = vyre_at_home("bench", "optimizer", "--quick", "--only", "small")
    assert out == "optimised --quick --only small\n"
    (tmp_path / "bench" / "cpu.py").write_text("raise SystemExit(7)")
    vyre_at_home("bench", code=1)


def test_trace_writes_what_perfetto_opens_and_tells_where_the_time_went(vyre_at_home: Told, tmp_path: Path) -> None:
    out, _ = vyre_at_home("trace", "examples/sum.vyre", "-i", "values=iota(64)", "-b", "reference", "-o", "where.json")
    assert "written to where.json; open it with ui.perfetto.dev" in out
    events = json.loads((tmp_path / "where.json").read_text())["traceEvents"]
    assert any(event["ph"] == "X" for event in events)
    assert out.startswith("time ")
    assert " ms  1      " in out


def test_telemetry_counts_a_run(vyre_at_home: Told) -> None:
    out, _ = vyre_at_home("telemetry")
    assert re.search(r"^launches +programs run, each launch", out, re.MULTILINE)
    run = ("telemetry", "examples/sum.vyre", "-i", "values=iota(64)")
    told, _ = vyre_at_home(*run, "--json")
    assert json.loads(told)["launches"] >= 1
    out, _ = vyre_at_home(*run, "--prometheus")
    assert "# TYPE vyre_launches_total counter" in out
    assert "\nvyre_input_bytes_total 256\n" in out


def test_optimize_can_be_switched_off_for_a_run(vyre: Told) -> None:
    run = ("run", "examples/sum.vyre", "-i", "values=iota(64)")
    assert vyre(*run)[0] == vyre(*run, "--no-optimize")[0] == "sums = [2016, 0, 0, 0]\n"


@pytest.mark.parametrize(("words", "offers"), [("vyre con", ["conform"]), ("vyre run --backend re", ["reference"])])
def test_the_shell_completes_commands_and_backends(words: str, offers: list[str]) -> None:
    asked = {"_VYRE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    done = subprocess.run(
        [Path(sys.executable).with_name("vyre")],
        env={**os.environ, **asked},
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().split() == offers


def test_progress_is_for_terminals() -> None:
    args = ("telemetry", str(ROOT / "examples/sum.vyre"), "-i", "values=iota(64)", "--backend", "reference")
    assert "\x1b[" in in_a_terminal(*args)
    program = Path(sys.executable).with_name("vyre")
    done = subprocess.run([program, *args], capture_output=True, check=True, timeout=60)
    assert done.stderr == b""


def test_the_demo_tells_what_it_claims_as_json(vyre: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = iter([("this holds", lambda: True), ("this does not", lambda: False)])
    monkeypatch.setattr(demo, "_claims", lambda *_: claims)
    out, _ = vyre("demo", "--json", code=1)
    assert [(told["claim"], told["holds"]) for told in json.loads(out)] == [
        ("this holds", True),
        ("this does not", False),
    ]
