"""The command, as a person uses it: by exit code and by what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from command_support import ROOT, Told

EXAMPLES = ROOT / "examples"
BAD = sorted((EXAMPLES / "bad").glob("*.vyre"))


REACH = ("-i", "offsets=[0,2,3,4,5,5,6]", "-i", "targets=[1,2,3,3,4,0]", "-i", "reached=[1]")


def test_run_prints_the_closure(vyre: Told) -> None:
    out, _ = vyre("run", "examples/reach.vyre", *REACH)
    assert "reached = [31]" in out.splitlines()


@pytest.mark.parametrize("schedule", ["reversed", "3"])
def test_run_gives_the_same_in_any_order(vyre: Told, schedule: str) -> None:
    out, _ = vyre("run", "examples/reach.vyre", *REACH, "--schedule", schedule, "--races")
    assert "reached = [31]" in out.splitlines()


@pytest.mark.parametrize("route", ["native", "resident", "host"])
def test_run_takes_any_route(vyre: Told, route: str) -> None:
    out, err = vyre("run", "examples/reach.vyre", *REACH, "--backend", "reference", "--route", route)
    assert "reached = [31]" in out.splitlines()
    assert f"route {route}" in err


def test_run_repeats_to_a_fixpoint(vyre: Told) -> None:
    args = ("run", "examples/reach.vyre", *REACH, "--backend", "reference", "--iterations")
    _, err = vyre(*args, "10")
    assert "passes 2, converged True" in err
    _, err = vyre(*args, "0", code=1)
    assert "Fix: " in err


def test_run_writes_a_trace_that_is_json(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    command = [Path(sys.executable).with_name("vyre"), "run", "examples/reach.vyre", *REACH, "--route", "resident"]
    subprocess.run(
        [*command, "--backend", "reference"],
        cwd=ROOT,
        env={**os.environ, "VYRE_TRACE": str(trace)},
        check=True,
        timeout=60,
    )
    events = json.loads(trace.read_text())["traceEvents"]
    assert {"upload", "download"} <= {event["name"].split(":")[0].split(" ")[0] for event in events}


def test_show_draws_the_plan(vyre: Told) -> None:
    out, _ = vyre("show", "examples/reach.vyre", "--plan", "--elements", "256")
    assert "segments" in out
    assert "carried" in out
    assert "--> " in out
    told, _ = vyre("show", "examples/life.vyre", "--plan", "--json")
    drawn = json.loads(told)
    assert len(drawn["segments"]) == 3
    assert all(segment["text"].startswith("program ") for segment in drawn["segments"])
    out, _ = vyre("show", "examples/life.vyre", "--plan", "--segments")
    assert out.count("\nprogram ") == 3


def test_show_prints_the_code_of_the_processor(vyre: Told) -> None:
    out, _ = vyre("show", "examples/saxpy.vyre", "--llvm")
    assert "define " in out
    out, _ = vyre("show", "examples/saxpy.vyre", "--asm")
    assert ".text" in out
    out, _ = vyre("show", "examples/reach.vyre", "--asm")
    assert "; after grid_sync, cut 1\n" in out


def test_show_prints_the_code_with_and_without_the_optimizer(vyre: Told) -> None:
    source = b"program p(workgroup 1) { buffer 0 out: u32[] output; out[gid.x] = gid.x / 8 }"
    codes = [vyre("show", "-", "--llvm", *options, stdin=source)[0] for options in ([], ["--no-optimize"])]
    # Rows of the grid are found by divisions of 64-bit scalars.
    assert ["udiv <" in code for code in codes] == [False, True]


def test_optimize_writes_the_program_and_tells_what_was_done(vyre: Told) -> None:
    source = b"program p(workgroup 1) {\n buffer 0 out: u32[1] output\n let x = gid.x\n out[0] = (x + 5) - x\n}\n"
    out, _ = vyre("optimize", "-", stdin=source)
    assert out.splitlines()[-2:] == ["  out[0] = 5", "}"]
    out, _ = vyre("optimize", "-", "--explain", stdin=source)
    assert "+  out[0] = 5" in out.splitlines()
    assert "rounds  1, with 1 sweep and 1 synchronisation\n" in out
    told, _ = vyre("optimize", "-", "--json", stdin=source)
    assert sum(json.loads(told)["fired"].values()) == 1
    vyre("optimize", "examples/bad/divergent_barrier.vyre", code=1)


def test_optimize_leaves_out_what_it_is_told_to(vyre: Told) -> None:
    source = b"program p(workgroup 1) {\n  buffer 0 out: u32[1] output\n\n  out[0] = 2 + 3\n}\n"
    assert "  out[0] = 5\n" in vyre("optimize", "-", stdin=source)[0]
    assert "  out[0] = 2 + 3\n" in vyre("optimize", "-", "--off", "fold", stdin=source)[0]
    _, err = vyre("optimize", "-", "--off", "everything", stdin=source, code=1)
    assert err.startswith("error: [bad-inputs] the optimizer has no switch 'everything'. Fix: its switches are: fold, ")


def test_run_reads_and_writes_numpy_files(vyre: Told, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float32))
    (tmp_path / "y.bin").write_bytes(np.ones(4, dtype=np.float32).tobytes())
    result = tmp_path / "out.npz"
    x, y = f"x={tmp_path / 'x.npy'}", f"y={tmp_path / 'y.bin'}"
    vyre("run", "examples/saxpy.vyre", "-i", "a=2", "-i", x, "-i", y, "--out", str(result))
    with np.load(result) as outputs:
        assert outputs["y"].tolist() == [1, 3, 5, 7]
    everything = tmp_path / "all.npz"
    np.savez(everything, a=np.float32([1]), x=np.float32([1, 2]), y=np.float32([0.5, 0.5]))
    out, _ = vyre("run", "examples/saxpy.vyre", "-i", str(everything))
    assert out == "y = [1.5, 2.5]\n"


def test_run_speaks_json_that_any_reader_accepts(vyre: Told) -> None:
    out, _ = vyre("run", "examples/saxpy.vyre", "-i", "a=1", "-i", "x=[inf,1]", "-i", "y=[0,nan]", "--json")
    told = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert told["outputs"]["y"] == {"dtype": "f32", "values": ["inf", "nan"]}


@pytest.mark.parametrize("path", [*sorted(EXAMPLES.glob("*.vyre"))], ids=lambda path: path.stem)
def test_examples_are_legal_and_formatted_programs_survive(vyre: Told, path: Path) -> None:
    out, _ = vyre("check", str(path))
    assert "is legal" in out
    once, _ = vyre("fmt", str(path))
    again, _ = vyre("fmt", "-", stdin=once.encode())
    assert again == once
    comments = [line for line in path.read_text().splitlines() if line.lstrip().startswith("#")]
    assert [line for line in once.splitlines() if line.lstrip().startswith("#")] == comments
    told, _ = vyre("show", str(path), "--json")
    shown, _ = vyre("show", "-", "--json", stdin=once.encode())
    assert json.loads(told)["fingerprint"] == json.loads(shown)["fingerprint"]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_check_points_at_what_is_wrong(vyre: Told, path: Path) -> None:
    out, _ = vyre("check", str(path), code=1)
    first = out.splitlines()[0]
    assert first.startswith("error[")
    assert f"{path}:" in out.splitlines()[1]
    assert any(set(line.strip("| ")) == {"^"} or "^" in line for line in out.splitlines())
    assert "fix: " in out
    told, _ = vyre("check", str(path), "--json", code=1)
    assert json.loads(told)[0]["code"] == first.removeprefix("error[").split("]")[0]
    _, err = vyre("run", str(path), code=1)
    assert "fix: " in err.lower()


def test_show_writes_a_wire_image_that_runs(vyre: Told, tmp_path: Path) -> None:
    image = tmp_path / "reach.vyrebin"
    vyre("show", "examples/reach.vyre", "--wire", str(image))
    out, _ = vyre("run", str(image), *REACH)
    assert "reached = [31]" in out
    damaged = bytearray(image.read_bytes())
    damaged[40] ^= 1
    _, err = vyre("run", "-", stdin=bytes(damaged), code=1)
    assert "damaged" in err
    assert "Fix: " in err


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["run", "examples/saxpy.vyre"], 1, "a (f32[1]), x (f32[]), y (f32[])"),
        (["run", "examples/saxpy.vyre", "-i", "a=2", "-i", "x=[1]", "-i", "y=[1]", "-i", "z=[1]"], 1, "'z'"),
        (["run", "examples/saxpy.vyre", "-i", "a=[1,2]", "-i", "x=[1]", "-i", "y=[1]"], 1, "'a'"),
        (["run", "examples/saxpy.vyre", "-i", "a=two", "-i", "x=[1]", "-i", "y=[1]"], 1, "two"),
        (["run", "examples/saxpy.vyre", "-i", "nonsense"], 1, "nonsense"),
        (["run", "examples/saxpy.vyre", "-i", "a=missing.npy"], 1, "missing.npy"),
        (["run", "missing.vyre"], 1, "missing.vyre"),
        (["run", "examples/saxpy.vyre", "--grid", "one"], 2, "--grid"),
        (["run", "examples/saxpy.vyre", "--schedule", "sideways"], 2, "--schedule"),
        (["run", "examples/saxpy.vyre", "--backend", "abacus"], 3, "abacus"),
        (["run"], 2, "PROGRAM"),
        (["sing"], 2, "sing"),
        (
            ["run", "examples/life.vyre", "-i", "cells=zeros(25)", "-i", "width=5", "-i", "steps=9", "--fuel", "9"],
            1,
            "fuel",
        ),
    ],
)
def test_wrong_calls_are_told_with_an_exit_code(vyre: Told, args: list[str], code: int, says: str) -> None:
    _, err = vyre(*args, code=code)
    assert says in err


def test_text_that_is_not_text_is_told(vyre: Told) -> None:
    _, err = vyre("check", "-", stdin=b"program \xff", code=1)
    assert not err
    out, _ = vyre("check", "-", stdin=b"program \xff", code=1)
    assert "UTF-8" in out


def test_fmt_check_names_the_files(vyre: Told, tmp_path: Path) -> None:
    ugly = tmp_path / "ugly.vyre"
    ugly.write_text("program p(workgroup 1){let x=1 # one\n}")
    out, _ = vyre("fmt", "--check", str(ugly), code=1)
    assert "ugly.vyre is not formatted" in out
    vyre("fmt", "--write", str(ugly))
    assert ugly.read_text() == "program p(workgroup 1) {\n  let x = 1  # one\n}\n"
    vyre("fmt", "--check", str(ugly))


def test_the_demo_holds_what_it_claims(vyre: Told) -> None:
    out, _ = vyre("demo")
    table = out.split("claim")[-1]
    assert table.count(" yes ") >= 12
    assert "NO" not in table
    assert "the optimized program means the same" in table
    assert "the same bytes on cpu, native route" in table


def test_the_installed_command_runs_in_a_process_of_its_own() -> None:
    command = Path(sys.executable).with_name("vyre")
    done = subprocess.run(
        [command, "check", "examples/saxpy.vyre"], cwd=ROOT, capture_output=True, check=True, timeout=60
    )
    assert b"is legal" in done.stdout


def test_import_is_light() -> None:
    code = "import sys, vyre; heavy = {'numpy', 'rich', 'typer', 'llvmlite'} & set(sys.modules); sys.exit(bool(heavy))"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
