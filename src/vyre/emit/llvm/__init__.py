"""LLVM IR emitter."""

from vyre.emit.llvm.kernel import KERNEL, Kernel, emit_kernel
from vyre.emit.llvm.shell import HEAD_WORDS, OUT_OF_MEMORY

__all__ = ["HEAD_WORDS", "KERNEL", "OUT_OF_MEMORY", "Kernel", "emit_kernel"]
