"""WGSL emitter for WebGPU. It needs no device."""

from vyre.emit.wgsl.kernel import WgslKernel, emit_wgsl
from vyre.emit.wgsl.module import ENTRY

__all__ = ["ENTRY", "WgslKernel", "emit_wgsl"]
