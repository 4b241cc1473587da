"""How is a program written for WebGPU? As WGSL text; nothing here needs a device."""

from vyre.emit.wgsl.kernel import WgslKernel, emit_wgsl
from vyre.emit.wgsl.module import ENTRY

__all__ = ["ENTRY", "WgslKernel", "emit_wgsl"]
