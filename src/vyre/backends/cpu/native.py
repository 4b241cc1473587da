"""The native runtime: thread pool, single launches and walks over tables, as machine code.

``native/runtime.c`` is the source. It is shipped as LLVM IR, ``runtime.ll``, which names no processor and no system, so
that nothing but LLVM is needed to load it. What differs between machines and Pythons is appended here: the hint of a
spinning processor, a fence, and the offset of a NumPy array's data pointer. Structs are described in ``layout``.
"""

from __future__ import annotations

import platform
from ctypes import c_int64
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np

from vyre.backends.cpu.compile import Loaded, kept_object_code
from vyre.driver.cache import DiskCache

# Behind the head that every Python object has, an array has its data pointer. Inlined accessors in NumPy's public
# headers read it there, so it cannot move without breaking every compiled extension.
_DATA_OFFSET: Final = object.__basicsize__
_LOADING: Final = Lock()
_LOADED: Final[list[Loaded]] = []

# Bodies of ``machine_pause`` and ``machine_fence``, and the intrinsics they use. Only x86 has stores past the caches
# that atomic operations do not order. Unknown processors spin without a hint.
_ARM: Final = ("call void @llvm.aarch64.isb(i32 15)", "", "declare void @llvm.aarch64.isb(i32)")
_X86: Final = (
    "call void @llvm.x86.sse2.pause()",
    "call void @llvm.x86.sse.sfence()",
    "declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.sfence()",
)
_MACHINES: Final = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}


@cache
def arrays_are_known() -> bool:
    """Whether an array's data pointer is where native code reads it."""
    probe = np.zeros(1)
    found: int = c_int64.from_address(id(probe) + _DATA_OFFSET).value
    return found == probe.ctypes.data


def native(disk: DiskCache) -> Loaded:
    """Return the loaded runtime, compiled on first use and kept on the disk."""
    # One per process, also when threads begin together: a second one would be unloaded while its functions run.
    with _LOADING:
        if not _LOADED:
            code, _ = kept_object_code(disk, "native", runtime_text(), optimize=None)
            _LOADED.append(Loaded(code))
        return _LOADED[0]


def runtime_text(machine: str | None = None) -> str:
    """LLVM IR of the runtime with the definitions for a machine, by default this one."""
    pause, fence, declarations = _MACHINES.get(machine or platform.machine(), ("", "", ""))
    text = Path(__file__).with_name("runtime.ll").read_text(encoding="utf-8")
    return f"""{text}
{declarations}
define internal void @machine_pause() nounwind {{
  {pause}
  ret void
}}
define internal void @machine_fence() nounwind {{
  {fence}
  ret void
}}
@array_data_offset = internal constant i64 {_DATA_OFFSET}
"""
