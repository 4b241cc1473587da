"""LLVM IR emitter."""

from vyre.emit.llvm.kernel import HEAD_WORDS, KERNEL, OUT_OF_MEMORY, Kernel, emit_kernel

__all__ = ["HEAD_WORDS", "KERNEL", "OUT_OF_MEMORY", "Kernel", "emit_kernel"]
