"""Buffer accesses in WGSL: functions that check bounds and access whole words.

Loads out of bounds give zero and stores out of bounds do nothing. Elements shorter than a word share one, so they are
stored by an atomic `and` and `or`, which preserve the other elements of the word.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

import msgspec

from vyre.emit.wgsl.operators import Use, from_words, to_words
from vyre.emit.wgsl.text import REGISTER, Lines
from vyre.ir.buffers import BufferDecl, Role
from vyre.semantics.operators import AtomicOp
from vyre.semantics.types import DType

_ATOMIC: Final = {
    AtomicOp.STORE: "atomicExchange",
    AtomicOp.EXCHANGE: "atomicExchange",
    AtomicOp.ADD: "atomicAdd",
    AtomicOp.SUB: "atomicSub",
    AtomicOp.AND: "atomicAnd",
    AtomicOp.OR: "atomicOr",
    AtomicOp.XOR: "atomicXor",
    AtomicOp.MIN: "atomicMin",
    AtomicOp.MAX: "atomicMax",
}
# The names of parameters and variables in the functions of this module.
LOCAL_NAMES: Final = frozenset(
    {
        "i", "value", "word", "bits", "shift", "expected", "old", "tried",
        "start", "to", "size", "available", "count", "straight", "at", "octet", "done",
    }
)  # fmt: skip


class Place(msgspec.Struct, frozen=True):
    """A buffer in a kernel: its name there, the text of its element count, and whether its words are atomic."""

    decl: BufferDecl
    name: str
    length: str
    is_atomic: bool

    @property
    def dtype(self) -> DType:
        return self.decl.dtype

    @property
    def word(self) -> str:
        """Return the type of a word in memory."""
        return "i32" if self.dtype is DType.I32 else "u32"

    @property
    def byte_count(self) -> str:
        size = self.dtype.bytes
        return self.length if size == 1 else f"{self.length} * {size}u"

    def declaration(self, binding: int) -> str:
        element = f"atomic<{self.word}>" if self.is_atomic else self.word
        if self.decl.role is Role.SHARED:
            return f"var<workgroup> {self.name}: array<{element}, {shared_words(self.decl)}>;"
        access = "read" if self.decl.role is Role.INPUT else "read_write"
        return f"@group(0) @binding({binding}) var<storage, {access}> {self.name}: array<{element}>;"

    def read(self, at: str) -> str:
        """Return the word at an index that is in bounds."""
        word = f"{self.name}[{at}]"
        return f"atomicLoad(&{word})" if self.is_atomic else word

    def write(self, at: str, word: str) -> str:
        if self.is_atomic:
            return f"atomicStore(&{self.name}[{at}], {word});"
        return f"{self.name}[{at}] = {word};"


def shared_words(decl: BufferDecl) -> int:
    """Return the number of words of a buffer in workgroup memory."""
    return -(-decl.count * decl.dtype.bytes // 4)


def load_function(place: Place, name: str, use: Use, *, proved: bool) -> str:
    """Return a function that loads an element, or zero out of bounds; ``proved``: the index is always in bounds."""
    dtype, lines = place.dtype, Lines()

    def checked(nothing: str, value: str) -> str:
        return value if proved else f"select({nothing}, {value}, i < {place.length})"

    with lines.block(f"fn {name}(i: u32) -> {REGISTER[dtype]}"):
        match dtype.bytes:
            case 8:
                value = f"vec2<u32>({place.read('2u * i')}, {place.read('2u * i + 1u')})"
                lines.add(f"return {checked('vec2<u32>(0u, 0u)', value)};")
            case 4:
                word = checked(f"0{place.word[0]}", place.read("i"))
                lines.add(f"return {word if dtype is DType.I32 else from_words(dtype, [word], use)};")
            case size:
                lines.add(f"let word = {checked('0u', place.read(f'i / {4 // size}u'))};")
                lines.add(f"let bits = (word >> {_shift('i', size)}) & {(1 << 8 * size) - 1:#x}u;")
                lines.add(f"return {from_words(dtype, ['bits'], use)};")
    return lines.text


def _shift(at: str, size: int) -> str:
    """Return the bit offset of an element in its word."""
    return f"({8 * size}u * ({at} % {4 // size}u))"


def store_function(place: Place, name: str, use: Use, *, proved: bool) -> str:
    """Return a function that stores an element if it is in bounds; ``proved``: it always is."""
    dtype, lines = place.dtype, Lines()
    check = nullcontext() if proved else lines.block(f"if (i < {place.length})")
    with lines.block(f"fn {name}(i: u32, value: {REGISTER[dtype]})"), check:
        words = ["value"] if dtype is DType.I32 else to_words(dtype, "value", use)
        match dtype.bytes:
            case 8:
                lines.add(place.write("2u * i", words[0]))
                lines.add(place.write("2u * i + 1u", words[1]))
            case 4:
                lines.add(place.write("i", words[0]))
            case size:
                _merge(lines, place, "i", size, words[0])
    return lines.text


def _merge(lines: Lines, place: Place, at: str, size: int, bits: str) -> None:
    """Write a short element into its word; the others of the word keep their values."""
    lines.add(f"let shift = {_shift(at, size)};")
    cell, word = f"&{place.name}[{at} / {4 // size}u]", place.word
    lines.add(f"atomicAnd({cell}, {word}(~({(1 << 8 * size) - 1:#x}u << shift)));")
    lines.add(f"atomicOr({cell}, {word}(({bits}) << shift));")


def atomic_function(place: Place, name: str, op: AtomicOp) -> str:
    """Return a function that changes an element if it is in bounds; its result is the old element, or zero."""
    lines, word = Lines(), place.word
    given = {AtomicOp.LOAD: "", AtomicOp.COMPARE_EXCHANGE: f", expected: {word}, value: {word}"}
    with lines.block(f"fn {name}(i: u32{given.get(op, f', value: {word}')}) -> {word}"):
        lines.add(f"var old = 0{word[0]};")
        cell = f"&{place.name}[i]"
        with lines.block(f"if (i < {place.length})"):
            if op in _ATOMIC:
                lines.add(f"old = {_ATOMIC[op]}({cell}, value);")
            else:
                lines.add(f"old = atomicLoad({cell});")
            if op is AtomicOp.COMPARE_EXCHANGE:
                lines.add("var done = old != expected;")
                with lines.block("while (!done)"):
                    # The weak exchange may fail spuriously.
                    lines.add(f"let tried = atomicCompareExchangeWeak({cell}, expected, value);")
                    lines.add("old = tried.old_value;")
                    lines.add("done = tried.exchanged || old != expected;")
                lines.add("overrun(!done);")
        lines.add("return old;")
    return lines.text


def copy_function(source: Place, destination: Place, name: str) -> str:
    """Return a function that copies bytes: zeros past the source's end, nothing past the destination's."""
    lines = Lines()
    with lines.block(f"fn {name}(start: u32, to: u32, size: u32)"):
        lines.add(f"let available = {source.byte_count} - min(start, {source.byte_count});")
        lines.add(f"let count = min(size, {destination.byte_count} - min(to, {destination.byte_count}));")
        lines.add("let straight = (start % 4u) == 0u && (to % 4u) == 0u;")
        lines.add("var at = 0u;")
        with lines.block("while (at < count)"):
            with lines.block("if (straight && at + 4u <= min(count, available))"):
                word = f"{destination.word}({source.read('(start + at) / 4u')})"
                lines.add(destination.write("(to + at) / 4u", word))
                lines.add("at += 4u;")
                lines.add("continue;")
            lines.add("var octet = 0u;")
            with lines.block("if (at < available)"):
                lines.add(f"let word = u32({source.read('(start + at) / 4u')});")
                lines.add(f"octet = (word >> {_shift('(start + at)', 1)}) & 0xffu;")
            _merge(lines, destination, "(to + at)", 1, "octet")
            lines.add("at += 1u;")
        lines.add("overrun(at < count);")
    return lines.text
