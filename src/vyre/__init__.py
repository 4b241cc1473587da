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
    "KernelError",
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
_LANG: Final = ["In", "InOut", "Out", "array", "function", "kernel", "sequence"]
# The functions that kernels call (vyre.lang.intrinsics), listed here so that looking for a name loads nothing.
_INTRINSICS: Final = [
    "gid", "lid", "wg", "num_workgroups", "rotl", "rotr", "min", "max", "abs_diff", "sat_add", "sat_sub", "sat_mul",
    "mul_high", "popcount", "clz", "ctz", "reverse_bits", "abs", "sign", "floor", "ceil", "round", "trunc", "sqrt",
    "rsqrt", "recip", "exp", "exp2", "log", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "is_nan", "is_inf", "is_finite", "atomic_load", "atomic_store", "atomic_add", "atomic_sub", "atomic_and",
    "atomic_or", "atomic_xor", "atomic_min", "atomic_max", "atomic_exchange", "atomic_compare_exchange", "barrier",
    "grid_sync", "select", "fma", "bitcast", "shared", "subgroup_ballot", "subgroup_shuffle", "subgroup_reduce",
    "subgroup_lane", "subgroup_size", "call", "opaque", "trap", "resume", "async_load", "async_store", "async_wait",
    "copy_bytes", "indirect_dispatch", "all_reduce", "all_gather", "reduce_scatter", "broadcast",
]  # fmt: skip
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
    "Optimization": "vyre.optimizer.switches",
    "optimize": "vyre.driver.optimizing",
    "trace": "vyre.driver.trace",
    **dict.fromkeys(_LANG, "vyre.lang"),
    "check_races": "vyre.lang.debugging",
}
_MODULES: Final = ("ir", "reference", "conform", "semantics", "driver", "lang", "lib", "report")

# What would hide a name of Python's from those who import everything is left out.
_OWN: Final = [name for name in (*_TYPES, *_INTRINSICS) if name not in ("bool", "min", "max", "abs", "round")]

__all__ = [*_HOMES, *_MODULES, *_OWN, "bool_"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _MODULES:
        value = import_module(f"vyre.{name}")
    elif name in _INTRINSICS:
        value = import_module("vyre.lang").INTRINSICS[name]
    elif name in __all__:
        value = import_module("vyre.semantics.types").DType(name.rstrip("_"))
    else:
        raise AttributeError(f"module 'vyre' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
