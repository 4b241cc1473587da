"""vyre: parallel programs with one meaning, the same bytes everywhere.

The names people use are here and load on first use, so that ``import vyre`` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__version__ = "0.1.0"

_ERRORS: Final = [
    "BackendUnavailable",
    "BadInputs",
    "DeviceLost",
    "DeviceOutOfMemory",
    "DispatchFailed",
    "FuelExhausted",
    "GridResidencyExceeded",
    "InvalidProgram",
    "KernelCompileFailed",
    "ParseError",
    "Timeout",
    "TrapRaised",
    "UnsupportedFeature",
    "VyreError",
    "WireError",
]
_DRIVER: Final = [
    "Backend",
    "DispatchConfig",
    "OutputBuffers",
    "Step",
    "Unchanged",
    "Zero",
    "list_backends",
    "telemetry",
]
_TYPES: Final = ["bool", "u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64"]

# Where each public name lives; a name not listed is a submodule or does not exist.
_HOMES: Final[dict[str, str]] = {
    **dict.fromkeys(_ERRORS, "vyre.errors"),
    "DType": "vyre.semantics.types",
    "BufferDecl": "vyre.ir.buffers",
    "Program": "vyre.ir.program",
    "parse": "vyre.ir.parser",
    "check": "vyre.checker",
    **dict.fromkeys(_DRIVER, "vyre.driver"),
    "backend": "vyre.driver.registry",
    "trace": "vyre.driver.trace",
}
_MODULES: Final = ("ir", "reference", "conform", "semantics", "driver")

__all__ = [*_HOMES, *_MODULES, *(name for name in _TYPES if name != "bool"), "bool_"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"vyre.{name}")
    elif name in __all__:
        value = import_module("vyre.semantics.types").DType(name.rstrip("_"))
    else:
        raise AttributeError(f"module 'vyre' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
