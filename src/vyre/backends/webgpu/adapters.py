"""Adapters: find a GPU or a software implementation of one, and say what to install where there is none."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import msgspec

from vyre.driver.device import Availability
from vyre.driver.registry import GPU_PRIORITY, SOFTWARE_GPU_PRIORITY
from vyre.errors import BackendUnavailable

_DRIVER_DIRECTORIES: Final = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
_GPU_NODES: Final = ("/dev/dri/renderD*", "/dev/nvidia[0-9]*", "/dev/dxg", "/dev/kgsl-3d0")
_NO_PACKAGE: Final = Availability(False, "the package 'wgpu' is not installed.", "install it: pip install wgpu")
_DRIVER_FIX: Final = (
    "install a Vulkan driver: that of your GPU, or Mesa's for the processor (Debian: apt-get install "
    "mesa-vulkan-drivers)."
)
_NO_DRIVER: Final = Availability(False, "no driver for a GPU was found.", _DRIVER_FIX)


class AdapterFacts(msgspec.Struct, frozen=True):
    """An adapter's own description."""

    name: str
    driver: str
    kind: str
    api: str

    @property
    def is_software(self) -> bool:
        return self.kind == "CPU"


def availability() -> Availability:
    """Whether there is an adapter; ask the library only where there may be a GPU, because that takes a second."""
    if find_spec("wgpu") is None:
        return _NO_PACKAGE
    if sys.platform == "linux":
        if not _has_vulkan_driver():
            return _NO_DRIVER
        if not any(True for pattern in _GPU_NODES for _ in _matches(pattern)):
            return Availability(priority=SOFTWARE_GPU_PRIORITY)
    return _asked()


@cache
def _asked() -> Availability:
    try:
        found = adapters()
    except Exception as error:
        return Availability(False, f"the library 'wgpu' failed: {type(error).__name__}: {error}.", _DRIVER_FIX)
    if not found:
        return _NO_DRIVER
    is_software = all(facts_of(adapter).is_software for adapter in found)
    return Availability(priority=SOFTWARE_GPU_PRIORITY if is_software else GPU_PRIORITY)


def _has_vulkan_driver() -> bool:
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES")
    if named:
        return any(Path(name).exists() for name in named.split(os.pathsep))
    home = Path.home() / ".local/share/vulkan/icd.d"
    return any(True for directory in (*map(Path, _DRIVER_DIRECTORIES), home) for _ in directory.glob("*.json"))


def _matches(pattern: str) -> Iterator[Path]:
    path = Path(pattern)
    return path.parent.glob(path.name)


@contextmanager
def _quiet_window_system() -> Iterator[None]:
    """Set the directory that drivers look for a display in; they print warnings without one."""
    if os.environ.get("XDG_RUNTIME_DIR"):
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def adapters() -> list[Any]:
    """The adapters that can compute, real GPUs first; those of OpenGL, which lack what kernels need, are left out."""
    import wgpu

    with _quiet_window_system():
        _without_opengl()
        found = wgpu.gpu.enumerate_adapters_sync()
    usable = [adapter for adapter in found if not facts_of(adapter).api.startswith("OpenGL")]
    order = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
    return sorted(usable, key=lambda adapter: order.get(facts_of(adapter).kind, 2))


@cache
def _without_opengl() -> None:
    """Keep the library from opening OpenGL, which is slow; possible only before its first use."""
    from wgpu.backends.wgpu_native.extras import set_instance_extras

    try:
        set_instance_extras(backends=["Primary"])
    except RuntimeError:
        # The library is in use already: it then has OpenGL too, which is only slower.
        return


def facts_of(adapter: Any) -> AdapterFacts:
    info = adapter.info
    return AdapterFacts(info["device"], info["description"], info["adapter_type"], info["backend_type"])


def fixed_lanes(adapter: Any) -> int | None:
    """The lanes of every subgroup; None if subgroups differ in size."""
    info = adapter.info
    # The library calls them by either name, in one version or another.
    least, most = (info.get(f"subgroup_{end}_size", info.get(f"stackgroup_{end}_size")) for end in ("min", "max"))
    return least if least and least == most else None


def choose_adapter(wanted: str | None) -> Any:
    """The best adapter, or the first whose name contains ``wanted``."""
    if find_spec("wgpu") is None:
        raise BackendUnavailable("webgpu", f"backend 'webgpu' cannot run here: {_NO_PACKAGE.reason}", _NO_PACKAGE.fix)
    found = adapters()
    names = [facts_of(adapter).name for adapter in found]
    for adapter, name in zip(found, names, strict=True):
        if wanted is None or wanted.lower() in name.lower():
            return adapter
    if found:
        known = ", ".join(names)
        raise BackendUnavailable(
            "webgpu", f"no adapter here is called '{wanted}'; there are: {known}.", "name one of them, or none."
        )
    raise BackendUnavailable("webgpu", f"backend 'webgpu' cannot run here: {_NO_DRIVER.reason}", _NO_DRIVER.fix)
