"""LLVM IR emitter."""

from vyre.emit.llvm.kernel import HEAD_WORDS, KERNEL, OUT_OF_MEMORY, Kernel, can_be_flat, emit_kernel

__all__ = ["HEAD_WORDS", "KERNEL", "OUT_OF_MEMORY", "Kernel", "can_be_flat", "emit_kernel"]
