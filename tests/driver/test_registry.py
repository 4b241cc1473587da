"""The registry lists what is installed, says why something cannot run, and chooses without surprises."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from vyre.backends.reference import ReferenceBackend
from vyre.driver.backend import Backend
from vyre.driver.registry import BackendInfo, backend, list_backends
from vyre.errors import BackendUnavailable, BadInputs

Install = Callable[..., None]

SOURCE = """
from backends_for_tests import FixedBackend, FixedDevice
from vyre.driver import Availability

class Quick(FixedDevice):
    '''Quick and wrong.

    More words.
    '''
    version = "2.5"
    @classmethod
    def availability(cls):
        return Availability(priority=150)

class Quicker(FixedBackend):
    @classmethod
    def availability(cls):
        return Availability(priority=250)

class Absent(FixedDevice):
    @classmethod
    def availability(cls):
        return Availability(False, "no device was found.", "plug one in.", priority=900)

class Raising(FixedBackend):
    @classmethod
    def availability(cls):
        raise RuntimeError("driver exploded")

not_a_class = 3
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with these entry points, as another party's wheel would be."""
    monkeypatch.delenv("VYRE_BACKEND", raising=False)

    def install(**entries: str) -> None:
        info = tmp_path / "their_package-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
        lines = "\n".join(f"{name} = {value}" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[vyre.backends]\n{lines}\n")
        (tmp_path / "their_module.py").write_text(textwrap.dedent(SOURCE))
        monkeypatch.syspath_prepend(tmp_path)

    return install


def info(name: str) -> BackendInfo:
    return next(one for one in list_backends() if one.name == name)


def test_the_reference_is_installed_and_never_chosen_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VYRE_BACKEND", raising=False)
    monkeypatch.setattr("vyre.driver.registry.entry_points", reference_alone)
    assert info("reference").available
    assert not info("reference").is_default
    assert info("reference").description.startswith("The reference interpreter")
    assert isinstance(backend("reference"), ReferenceBackend)
    with pytest.raises(BackendUnavailable, match="chosen by itself") as caught:
        backend()
    assert "VYRE_BACKEND=reference" in caught.value.fix


def reference_alone(group: str) -> list[object]:
    from importlib.metadata import entry_points

    return [entry for entry in entry_points(group=group) if entry.name == "reference"]


def test_options_reach_the_backend_and_unknown_ones_are_told() -> None:
    assert not backend("reference", resident=False).capabilities.resident
    with pytest.raises(BadInputs, match=r"'nope'.*its options are: grid_sync"):
        backend("reference", nope=1)


def test_the_environment_names_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VYRE_BACKEND", "reference")
    assert backend().id == "reference"
    monkeypatch.setenv("VYRE_BACKEND", "nowhere")
    with pytest.raises(BackendUnavailable, match="no backend 'nowhere'"):
        backend()


def test_an_unknown_name_is_told_with_the_known_and_the_closest() -> None:
    with pytest.raises(BackendUnavailable, match=r"installed are: .*reference") as caught:
        backend("refrence")
    assert caught.value.fix == "did you mean 'reference'?"
    with pytest.raises(BackendUnavailable) as caught:
        backend("zzz")
    assert "install" in caught.value.fix


def test_a_package_adds_a_backend_and_the_best_available_is_the_default(install: Install) -> None:
    install(quick="their_module:Quick", quicker="their_module:Quicker", absent="their_module:Absent")
    names = [one.name for one in list_backends() if one.name in ("quick", "quicker", "absent", "reference")]
    assert names == ["quicker", "quick", "reference", "absent"]
    assert info("quicker").is_default
    assert (info("quick").version, info("quick").description) == ("2.5", "Quick and wrong.")
    # A package may give a Device class, or a Backend class of its own.
    assert type(backend()).__name__ == "Quicker"
    assert (type(backend("quick")), type(backend("quick").device).__name__) == (Backend, "Quick")


def test_a_backend_that_cannot_run_says_why_and_what_helps(install: Install) -> None:
    install(absent="their_module:Absent")
    assert (info("absent").available, info("absent").reason) == (False, "no device was found.")
    with pytest.raises(BackendUnavailable, match="'absent' cannot run here: no device was found") as caught:
        backend("absent")
    assert caught.value.fix == "plug one in."


BROKEN = {
    "missing": ("no_such_module:Thing", "No module named 'no_such_module'"),
    "nameless": ("their_module:Nothing", "Nothing"),
    "number": ("their_module:not_a_class", "is neither a Device nor a Backend class"),
    "raising": ("their_module:Raising", "driver exploded"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_package_is_listed_and_breaks_nothing(install: Install, case: str) -> None:
    value, reason = BROKEN[case]
    install(broken=value)
    assert not info("broken").available
    assert reason in info("broken").reason
    assert "their-package" in info("broken").fix
    assert info("reference").available
    with pytest.raises(BackendUnavailable, match="could not be loaded"):
        backend("broken")
