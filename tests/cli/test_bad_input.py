"""What the command says about what is wrong: the whole sentence, with what to do, and the exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from command_support import Told, install_backend
from vyre.driver import registry
from vyre.ir.parser import parse
from vyre.ir.wire import encode

SAXPY = ("run", "examples/saxpy.vyre", "-i", "a=2", "-i", "y=[1,2]")
DATA = {
    "doubles.npy": np.arange(2.0),
    "table.npy": np.ones((2, 2), np.float32),
    "long.npy": np.ones(3, np.float32),
}
RAW = {"junk.npy": b"junk", "empty.npy": b"", "junk.npz": b"PK\x03\x04junk", "odd.bin": b"abc", "bytes.vyre": b"\xff"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory with the files above."""
    for name, array in DATA.items():
        np.save(tmp_path / name, array)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name, raw in RAW.items():
        (tmp_path / name).write_bytes(raw)
    return tmp_path


NOT_NUMPY = "is not a NumPy file of numbers. Fix: write it with numpy.save or numpy.savez."
NOT_VALUES = "the input 'x' is neither a .npy or .bin file nor values"
WRITE_VALUES = "Fix: write x=file.npy, x=[1,2,3], x='zeros(8)' or x='iota(8)'."
NOT_THERE = "No such file or directory. Fix: check the path, its permissions and the space left."

WRONG_DATA = {
    "x={}/doubles.npy": "error: [bad-inputs] buffer 'x' holds f32 (as float32), and its input is an array of float64. "
    "Fix: convert it: array.astype('<f4').",
    "x={}/objects.npy": f"error: [bad-inputs] {{}}/objects.npy {NOT_NUMPY}",
    "x={}/junk.npy": f"error: [bad-inputs] {{}}/junk.npy {NOT_NUMPY}",
    "x={}/empty.npy": f"error: [bad-inputs] {{}}/empty.npy {NOT_NUMPY}",
    "{}/junk.npz": f"error: [bad-inputs] {{}}/junk.npz {NOT_NUMPY}",
    "x={}/odd.bin": "error: [bad-inputs] the input of buffer 'x' has 3 bytes, no whole number of f32 elements. "
    "Fix: give a multiple of 4 bytes.",
    "x={}/none.npy": f"error: {{}}/none.npy: {NOT_THERE}",
    "x={}/none.bin": f"error: {{}}/none.bin: {NOT_THERE}",
    "{}/none.npz": f"error: {{}}/none.npz: {NOT_THERE}",
    "x": "error: [bad-inputs] 'x' is not an input. Fix: write name=file.npy, name=[1,2,3] or file.npz.",
    "x=/tmp": f"error: [bad-inputs] {NOT_VALUES}: '/tmp' is not part of a directive. {WRITE_VALUES}",
    "x=[1,2": f"error: [bad-inputs] {NOT_VALUES}: 'the end' stands where ',' should. {WRITE_VALUES}",
    "x=one": f"error: [bad-inputs] {NOT_VALUES}: 'one' is not a value of f32: onef32 is not a number. {WRITE_VALUES}",
    "z=1": "error: [bad-inputs] 'saxpy' has no buffer 'z'. Fix: its inputs are a, x, y.",
    "a=3": "error: [bad-inputs] the input 'a' is given twice. Fix: give each input once.",
}


@pytest.mark.parametrize("given", WRONG_DATA)
def test_data_that_does_not_fit_is_told(vyre: Told, data: Path, given: str) -> None:
    _, err = vyre(*SAXPY, "-i", given.format(data), code=1)
    assert err.strip() == WRONG_DATA[given].format(data)


def test_a_missing_input_is_told_with_all_that_are_missing(vyre: Told) -> None:
    _, err = vyre("run", "examples/reach.vyre", "-i", "reached=[1]", code=1)
    assert err == (
        "error: [bad-inputs] 'reach' has no data for its inputs: offsets (u32[]), targets (u32[]). "
        "Fix: give each: -i offsets=file.npy, or values: -i offsets=[1,2,3], ='zeros(8)'.\n"
    )


def test_more_elements_than_declared_are_told_and_more_axes_are_not_wrong(vyre: Told, data: Path) -> None:
    _, err = vyre("run", "examples/saxpy.vyre", "-i", f"a={data}/long.npy", "-i", "x=[1]", "-i", "y=[1]", code=1)
    assert "buffer 'a' has 1 elements and its input 3. Fix: give exactly 1 elements of f32." in err
    out, _ = vyre(*SAXPY, "-i", f"x={data}/table.npy")
    assert out == "y = [3.0, 4.0]\n"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["run", "{}/none.vyre"], f"error: {{}}/none.vyre: {NOT_THERE}"),
        (["run", "{}"], "error: {}: Is a directory. Fix: check the path, its permissions and the space left."),
        (["fmt", "{}/none.vyre"], f"error: {{}}/none.vyre: {NOT_THERE}"),
        (["conform", "--verify", "{}/none.json"], f"error: {{}}/none.json: {NOT_THERE}"),
        (
            ["show", "{}/bytes.vyre"],
            "error: [bad-inputs] {}/bytes.vyre is neither a wire image nor UTF-8 text (byte 0). "
            "Fix: give a .vyre file.",
        ),
        (["show", "examples/saxpy.vyre", "--wire", "{}/no/x"], f"error: {{}}/no/x: {NOT_THERE}"),
        (["report", "examples/sum.vyre", "-o", "{}/no/x.html"], f"error: {{}}/no/x.html: {NOT_THERE}"),
        (
            ["trace", "examples/saxpy.vyre", "-o", "{}/no/x.json"],
            "error: [bad-inputs] the trace '{}/no/x.json' cannot be written: No such file or directory. "
            "Fix: give a file in a directory that exists and can be written (vyre.trace(path), VYRE_TRACE).",
        ),
        ([*SAXPY, "-i", "x=[1]", "--out", "{}/no/x.npz"], f"error: {{}}/no/x.npz: {NOT_THERE}"),
        (
            ["conform", "examples/saxpy.vyre"],
            "error: [bad-directive] examples/saxpy.vyre asks for nothing. "
            "Fix: add a '# run:', '# error:' or '# warning:' directive.",
        ),
    ],
)
def test_files_that_cannot_be_used_are_told(vyre: Told, data: Path, args: list[str], says: str) -> None:
    _, err = vyre(*(arg.format(data) for arg in args), code=1)
    assert err.strip() == says.format(data)


def test_a_wire_image_has_no_layout(vyre: Told, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(encode(parse("program p(workgroup 1) {}")))
    for command in ("fmt", "conform"):
        _, err = vyre(command, str(path), code=1)
        assert err == (
            f"error: [bad-inputs] {path} is a wire image, which has no text. Fix: print its text with `vyre show`.\n"
        )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["sing"], "No such command 'sing'"),
        (["run", "examples/saxpy.vyre", "--sing"], "No such option: --sing"),
        ([*SAXPY, "--route", "sideways"], "'sideways' is not one of auto, native, resident, host."),
        ([*SAXPY, "--grid", "1,2,3,4"], "'1,2,3,4' is not X, X,Y or X,Y,Z in workgroups."),
        ([*SAXPY, "--grid", "-1"], "'-1' is not X, X,Y or X,Y,Z in workgroups."),
        ([*SAXPY, "--elements", "-1"], "--elements"),
        ([*SAXPY, "--out", "x.npy"], "'x.npy' does not end with .npz."),
        ([*SAXPY, "--races", "--backend", "cpu"], "--schedule, --races and --fuel are for the reference alone."),
        (["show", "examples/saxpy.vyre", "--plan", "--grid", "wide"], "'wide' is not X, X,Y or X,Y,Z in workgroups."),
        (["cache", "polish"], "polish"),
        (["bench", "abacus"], "abacus"),
        (["bench", "webgpu", "--quick"], "the webgpu bench has no --quick."),
        (["conform", "examples/saxpy.vyre", "--seconds", "3"], "files have nothing to do with"),
        (["conform", "--cases", "0"], "--cases"),
    ],
)
def test_wrong_usage_is_told(vyre: Told, args: list[str], says: str) -> None:
    _, err = vyre(*args, code=2)
    assert says in " ".join(err.split())
    assert "Try 'vyre" in err


@pytest.mark.parametrize(
    "args",
    [
        ["run", "examples/sum.vyre", "-b", "cqu"],
        ["trace", "examples/sum.vyre", "-b", "cqu", "-o", "/dev/null"],
        ["telemetry", "examples/sum.vyre", "-b", "cqu"],
        ["conform", "-b", "cqu"],
    ],
)
def test_a_backend_that_is_not_there_is_told(vyre: Told, args: list[str]) -> None:
    _, err = vyre(*args, code=3)
    assert err.startswith("error: [backend-unavailable] there is no backend 'cqu'; installed are: cpu, ")
    assert err.endswith("Fix: did you mean 'cpu'?\n")


def test_a_backend_of_the_environment_is_not_replaced(vyre: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_BACKEND", "cqu")
    _, err = vyre(*SAXPY, "-i", "x=[1]", code=3)
    assert "there is no backend 'cqu'" in err


def test_where_the_reference_is_alone_it_runs_programs_and_that_is_told(
    vyre: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {"reference": registry._entries()["reference"]}
    monkeypatch.setattr(registry, "_entries", lambda: alone)
    out, err = vyre(*SAXPY, "-i", "x=[1]", "--no-optimize")
    assert out == "y = [3.0, 2.0]\n"
    assert err.startswith("note: no compiled backend is available here, so the reference interpreter runs this.\n")


def test_a_backend_that_lacks_something_is_told(vyre: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    install_backend(monkeypatch, "refusing", "conform.wrong_backend:RefusingBackend")
    _, err = vyre(*SAXPY, "-i", "x=[1]", "--backend", "refusing", code=3)
    assert err == (
        "error: [unsupported-feature] backend 'refusing' does not support the program 'saxpy'. "
        "Fix: choose a backend that does (`vyre backends` lists them).\n"
    )


def test_there_is_no_ptx_yet_and_that_is_told(vyre: Told) -> None:
    _, err = vyre("show", "examples/saxpy.vyre", "--ptx", code=3)
    assert err == (
        "error: [backend-unavailable] there is no PTX emitter yet. "
        "Fix: look at --llvm and --asm (cpu) or --wgsl (webgpu) instead.\n"
    )


@pytest.mark.parametrize("command", ["run", "optimize", "show --plan", "show --asm", "trace -o /dev/null", "telemetry"])
def test_an_illegal_program_is_told_before_anything_runs(vyre: Told, command: str) -> None:
    _, err = vyre(*command.split(), "examples/bad/divergent_barrier.vyre", code=1)
    assert err.startswith("error[V010]: not all invocations of a workgroup reach this barrier together\n")
    assert "= fix: " in err
