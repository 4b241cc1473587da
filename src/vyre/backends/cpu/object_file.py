"""Checks of stored object code before LLVM loads it.

LLVM ends the process over an object file that it cannot read or link. What comes from a file is therefore checked here
first: a digest that is bound to the machine, and then the tables of the object file, whose offsets, indices, symbols
and relocations have to stay inside it. Code that fails a check is compiled again.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from hashlib import blake2b
from struct import Struct, error
from typing import Final, NamedTuple

import msgspec

_MAGIC: Final = b"vyre-object-1\n"
_DIGEST_BYTES: Final = 32
_HEAD_BYTES: Final = len(_MAGIC) + _DIGEST_BYTES

_ELF_HEADER: Final = Struct("=16sHHIQQQIHHHHHH")
_ELF_SECTION: Final = Struct("=IIQQQQIIQQ")
_ELF_SYMBOL: Final = Struct("=IBBHQQ")
_ELF_RELOCATION: Final = Struct("=QQq")
_ELF_IDENTITY: Final = b"\x7fELF\x02" + (b"\x01" if sys.byteorder == "little" else b"\x02") + b"\x01"
_ELF_MACHINES: Final = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21, "s390x": 22}
_RELOCATABLE: Final = 1
_SYMBOL_TABLE: Final = 2
_STRINGS: Final = 3
_RELOCATIONS: Final = 4
_NO_BITS: Final = 8
_RELOCATIONS_WITHOUT_ADDENDS: Final = 9
_UNDEFINED: Final = 0
_FIRST_RESERVED: Final = 0xFF00
_ABSOLUTE: Final = 0xFFF1
_WEAK: Final = 2
_SECTION_OR_FILE: Final = (3, 4)
_PROGRAM_BITS: Final = 1
_WRITABLE: Final = 0x1
# Sections without it get no memory, so that the loader has none for what refers to them.
_ALLOCATED: Final = 0x2
_EXECUTABLE: Final = 0x4
# And constants to merge, strings, an index in the field for it, an order, a group: what LLVM writes.
_KNOWN_FLAGS: Final = 0x2F7
# 64, PC32, PLT32, GOTPCREL, 32, 32S, PC64, GOTPCRELX, REX_GOTPCRELX: for another, LLVM ends the process.
_X86_RELOCATIONS: Final = frozenset((1, 2, 4, 9, 10, 11, 24, 41, 42))
# 64 and PC64, which write eight bytes.
_WIDE_RELOCATIONS: Final = frozenset((1, 24))
_MOST_ZEROS: Final = 1 << 30
_MOST_ALIGNMENT: Final = 4096

_MACH_MAGIC: Final = 0xFEEDFACF
_MACH_HEADER: Final = Struct("=IiiIIIII")
_MACH_COMMAND: Final = Struct("=II")
_MACH_SEGMENT: Final = Struct("=II16sQQQQiiII")
_MACH_SECTION: Final = Struct("=16s16sQQIIIIIIII")
_MACH_SYMBOLS: Final = Struct("=IIIIII")
_MACH_MACHINES: Final = {"x86_64": 0x01000007, "arm64": 0x0100000C}
_MACH_OBJECT: Final = 1
_MACH_SEGMENT_64: Final = 0x19
_MACH_SYMBOL_TABLE: Final = 0x2
_MACH_SYMBOL_BYTES: Final = 16
_MACH_RELOCATION_BYTES: Final = 8
# Sections that have a size and no bytes: zero-filled, more than 4 GB of it, and per-thread.
_MACH_ZERO_FILLED: Final = frozenset((0x1, 0xC, 0x12))


def packed(code: bytes, machine: tuple[str, ...]) -> bytes:
    """Object code for the machine, as it is stored."""
    return b"".join((_MAGIC, _digest(code, machine), code))


def unpacked(stored: bytes, machine: tuple[str, ...]) -> bytes | None:
    """The object code that was packed for this machine; None if these bytes are anything else."""
    code = stored[_HEAD_BYTES:]
    return code if stored[:_HEAD_BYTES] == _MAGIC + _digest(code, machine) else None


def _digest(code: bytes, machine: tuple[str, ...]) -> bytes:
    key = blake2b(msgspec.msgpack.encode(machine), digest_size=_DIGEST_BYTES).digest()
    return blake2b(code, digest_size=_DIGEST_BYTES, key=key).digest()


def is_loadable(code: bytes, resolves: Callable[[str], bool]) -> bool:
    """Whether an object file is for this machine and whole, and every symbol it needs ``resolves``."""
    try:
        if code.startswith(_ELF_IDENTITY):
            return _is_elf(code, resolves)
        return _is_mach(code)
    except (error, ValueError, IndexError):
        # A table that ends early, a name that does not end or is no text, or an index beyond a table.
        return False


class _Section(NamedTuple):
    """A section header of an ELF file."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class _Symbol(NamedTuple):
    """A symbol of an ELF file."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


def _is_elf(code: bytes, resolves: Callable[[str], bool]) -> bool:
    _, kind, machine, _, _, _, table, _, _, _, _, entry_size, count, names = _ELF_HEADER.unpack_from(code)
    if kind != _RELOCATABLE or machine != _ELF_MACHINES.get(platform.machine(), machine):
        return False
    if entry_size != _ELF_SECTION.size or not 0 < count < _FIRST_RESERVED or names >= count:
        return False
    if table + count * entry_size > len(code):
        return False
    sections = [_Section(*_ELF_SECTION.unpack_from(code, table + at * entry_size)) for at in range(count)]
    if sections[names].type != _STRINGS or not all(_is_section(code, one, sections[names]) for one in sections):
        return False
    return all(_has_sound_table(code, one, sections, resolves) for one in sections)


def _is_section(code: bytes, section: _Section, names: _Section) -> bool:
    has_no_bits = section.type == _NO_BITS
    fits = section.size <= _MOST_ZEROS if has_no_bits else section.offset + section.size <= len(code)
    alignment, flags = section.alignment, section.flags
    if flags & ~_KNOWN_FLAGS or (has_no_bits and flags != _WRITABLE | _ALLOCATED):
        return False
    if flags & _EXECUTABLE and (flags & _WRITABLE or section.type != _PROGRAM_BITS):
        return False
    return (
        fits and section.name < max(names.size, 1) and alignment <= _MOST_ALIGNMENT and not alignment & (alignment - 1)
    )


def _has_sound_table(code: bytes, section: _Section, sections: list[_Section], resolves: Callable[[str], bool]) -> bool:
    """Whether the strings, symbols or relocations of a section stay inside what they refer to."""
    if section.type == _SYMBOL_TABLE:
        strings = sections[section.link]
        symbols = _symbols(code, section)
        return strings.type == _STRINGS and all(_is_symbol(symbol, strings, sections) for symbol in symbols)
    if section.type == _STRINGS:
        return not section.size or code[section.offset + section.size - 1] == 0
    if section.type == _RELOCATIONS:
        return _are_relocations(code, section, sections, resolves)
    # No machine of 64 bits has the other kind.
    return section.type != _RELOCATIONS_WITHOUT_ADDENDS


def _symbols(code: bytes, table: _Section) -> list[_Symbol]:
    if table.entry_size != _ELF_SYMBOL.size or table.size % _ELF_SYMBOL.size:
        raise IndexError
    return [_Symbol(*one) for one in _ELF_SYMBOL.iter_unpack(code[table.offset : table.offset + table.size])]


def _is_symbol(symbol: _Symbol, strings: _Section, sections: list[_Section]) -> bool:
    if symbol.name >= strings.size:
        return False
    if symbol.section in (_UNDEFINED, _ABSOLUTE):
        return True
    # Common symbols, which have no section, are never written here.
    if symbol.section >= len(sections):
        return False
    section = sections[symbol.section]
    is_in_memory = section.flags & _ALLOCATED or symbol.info & 0xF in _SECTION_OR_FILE
    return bool(is_in_memory) and symbol.value + symbol.size <= section.size


def _are_relocations(code: bytes, table: _Section, sections: list[_Section], resolves: Callable[[str], bool]) -> bool:
    target, named = sections[table.info], sections[table.link]
    if table.entry_size != _ELF_RELOCATION.size or table.size % _ELF_RELOCATION.size or named.type != _SYMBOL_TABLE:
        return False
    if not target.flags & _ALLOCATED or target.type == _NO_BITS:
        return False
    symbols, strings = _symbols(code, named), sections[named.link]
    is_x86 = platform.machine() == "x86_64"
    needed: set[_Symbol] = set()
    for offset, info, addend in _ELF_RELOCATION.iter_unpack(code[table.offset : table.offset + table.size]):
        kind = info & 0xFFFFFFFF
        if is_x86 and kind not in _X86_RELOCATIONS:
            return False
        width = 8 if kind in _WIDE_RELOCATIONS and is_x86 else 4
        if offset + width > target.size:
            return False
        # The loader adds what is there to the addend.
        place = target.offset + offset
        if is_x86 and any(code[place : place + width]):
            return False
        symbol = symbols[info >> 32]
        if symbol.section in range(1, len(sections)) and not sections[symbol.section].flags & _ALLOCATED:
            return False
        reach = len(code) + (sections[symbol.section].size if symbol.section < len(sections) else 0)
        if not -reach <= addend <= reach:
            return False
        if symbol.section == _UNDEFINED and symbol.info >> 4 != _WEAK:
            needed.add(symbol)
    return all(resolves(_name(code, strings, symbol.name)) for symbol in needed)


def _name(code: bytes, strings: _Section, at: int) -> str:
    start = strings.offset + at
    return code[start : code.index(0, start)].decode("ascii")


def _is_mach(code: bytes) -> bool:
    magic, machine, _, kind, count, size, _, _ = _MACH_HEADER.unpack_from(code)
    if magic != _MACH_MAGIC or kind != _MACH_OBJECT or machine != _MACH_MACHINES.get(platform.machine(), machine):
        return False
    at, end = _MACH_HEADER.size, _MACH_HEADER.size + size
    if end > len(code) or count * _MACH_COMMAND.size > size:
        return False
    for _ in range(count):
        command, length = _MACH_COMMAND.unpack_from(code, at)
        if length < _MACH_COMMAND.size or length % 8 or at + length > end:
            return False
        if command == _MACH_SEGMENT_64 and not _is_mach_segment(code, at, length):
            return False
        if command == _MACH_SYMBOL_TABLE:
            _, _, symbols, entries, strings, string_bytes = _MACH_SYMBOLS.unpack_from(code, at)
            if max(symbols + entries * _MACH_SYMBOL_BYTES, strings + string_bytes) > len(code):
                return False
        at += length
    return True


def _is_mach_segment(code: bytes, at: int, length: int) -> bool:
    *_, count, _ = _MACH_SEGMENT.unpack_from(code, at)
    if _MACH_SEGMENT.size + count * _MACH_SECTION.size > length:
        return False
    for number in range(count):
        _, _, _, size, offset, alignment, table, entries, flags, *_ = _MACH_SECTION.unpack_from(
            code, at + _MACH_SEGMENT.size + number * _MACH_SECTION.size
        )
        is_zero = flags & 0xFF in _MACH_ZERO_FILLED
        if alignment > 16 or (size > _MOST_ZEROS if is_zero else offset + size > len(code)):
            return False
        if table + entries * _MACH_RELOCATION_BYTES > len(code):
            return False
    return True
