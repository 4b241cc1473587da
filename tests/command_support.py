"""Runs the command as a person does: by exit code and by what it prints."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Protocol

import pytest

from vyre.cli import main
from vyre.driver import registry

ROOT = Path(__file__).resolve().parents[1]


class Told(Protocol):
    def __call__(self, *args: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]: ...


def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], home: Path = ROOT) -> Told:
    """What runs the command in a directory and answers with what it printed; it must end with the exit code."""

    def run(*args: str, stdin: bytes = b"", code: int = 0) -> tuple[str, str]:
        monkeypatch.chdir(home)
        monkeypatch.setattr(sys, "argv", ["vyre", *args])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capfd.readouterr()
        assert (ended.value.code or 0) == code, (out, err)
        assert "Traceback" not in out + err
        return out, err

    return run


def install_backend(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    """Makes a class of the tests a backend of that name, as an installed package would."""
    known = registry._entries()
    monkeypatch.setattr(registry, "_entries", lambda: {**known, name: EntryPoint(name, value, registry.GROUP)})


def a_home_with_examples(path: Path) -> Path:
    """A directory that the command may write to, in which the examples are."""
    (path / "examples").symlink_to(ROOT / "examples")
    return path


def in_a_terminal(*args: str) -> str:
    """What a command shows on standard error where that is a terminal."""
    ours, theirs = os.openpty()
    program = Path(sys.executable).with_name("vyre")
    devnull = os.open(os.devnull, os.O_RDWR)
    actions = [(os.POSIX_SPAWN_DUP2, devnull, 0), (os.POSIX_SPAWN_DUP2, devnull, 1), (os.POSIX_SPAWN_DUP2, theirs, 2)]
    process = os.posix_spawn(program, [str(program), *args], {**os.environ, "TERM": "xterm"}, file_actions=actions)
    os.close(theirs)
    os.close(devnull)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:
        pass  # how a terminal says that nobody writes to it any more
    os.close(ours)
    assert os.waitpid(process, 0)[1] == 0, shown
    return shown.decode()
