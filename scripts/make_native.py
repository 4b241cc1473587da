"""Generate ``native/layout.h`` and the native runtime's LLVM IR, ``src/vyre/backends/cpu/runtime.ll``.

Run it with ``make native`` after a change to ``native/runtime.c`` or ``vyre/backends/cpu/layout.py``. The C compiler is
that of the ``ziglang`` package. What ties the IR to one processor, system or compiler is removed: triple, data layout,
target attributes and metadata. The three symbols that ``vyre.backends.cpu.native`` defines lose their declarations.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from hashlib import blake2b
from pathlib import Path
from typing import Final

from vyre.backends.cpu.layout import STRUCTS, WORD_BYTES, Ending, Layout, Reason

ROOT: Final = Path(__file__).resolve().parent.parent
HEADER: Final = ROOT / "native" / "layout.h"
SOURCE: Final = ROOT / "native" / "runtime.c"
IR: Final = ROOT / "src" / "vyre" / "backends" / "cpu" / "runtime.ll"
FLAGS: Final = (
    "-target", "x86_64-linux-musl", "-std=c11", "-O2", "-g0", "-S", "-emit-llvm",
    "-Wall", "-Wextra", "-Werror", "-Wno-unused-command-line-argument",
    "-fno-sanitize=all", "-fno-stack-protector", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables",
    "-fno-strict-aliasing", "-fno-builtin-memcmp", "-fno-vectorize", "-fno-slp-vectorize", "-fno-unroll-loops",
)  # fmt: skip
# Declarations of what the loader defines, as a pattern of whole lines.
_SUPPLIED: Final = re.compile(r"^(declare .*@machine_\w+\(|@array_data_offset = external )")
_PROLOGUE: Final = """\
/* Generated from vyre/backends/cpu/layout.py by scripts/make_native.py. */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef void kernel_function(const void *block, uint64_t first, uint64_t last);
typedef void signal_handler(uint64_t number, void *info, void *context);
/* Storage of a mutex or a condition variable, and of what fills a cache line. */
typedef uint64_t opaque;
typedef uint64_t padding;
/* Why a launch has to stop, or 0; polled by kernels. Python writes it as one 64-bit word. */
typedef struct {
    _Atomic(uint32_t) reason;
    uint32_t unused;
} stop_word;
"""


def header() -> str:
    """Text of ``native/layout.h``."""
    parts = [_PROLOGUE]
    for enum in (Reason, Ending):
        members = ", ".join(f"{one.name} = {one.value}" for one in enum)
        parts.append(f"enum {enum.__name__.lower()} {{ {members} }};\n")
    parts += map(_struct, STRUCTS)
    return "\n".join(parts)


def _struct(struct: type[Layout]) -> str:
    name = struct.__name__.lower()
    lines = [f"struct {name} {{"]
    checks = [f'_Static_assert(sizeof(struct {name}) == {WORD_BYTES * struct.WORDS}, "size of struct {name}");']
    for field in struct.FIELDS:
        is_array = field.words > 1 and not field.ctype.startswith("struct ")
        space = "" if field.ctype.endswith("*") else " "
        lines.append(f"    {field.ctype}{space}{field.name}{f'[{field.words}]' if is_array else ''};")
        offset = f"offsetof(struct {name}, {field.name})"
        checks.append(f'_Static_assert({offset} == {WORD_BYTES * field.start}, "offset of {name}.{field.name}");')
    return "\n".join([*lines, "};", *checks, ""])


def digest() -> str:
    """Digest of everything that the IR is made from, but the compiler."""
    parts = (header(), SOURCE.read_text(encoding="utf-8"), *FLAGS)
    return blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()


def first_lines() -> str:
    """Lines of comment that begin a ``runtime.ll`` that is up to date."""
    return f"; Generated from native/runtime.c by scripts/make_native.py.\n; Sources: {digest()}\n"


def portable(text: str) -> str:
    """The IR without what ties it to a target, a compiler or a source file."""
    kept = []
    for line in text.splitlines():
        if line.startswith((";", "source_filename", "target ", "attributes ", "!")) or _SUPPLIED.match(line):
            continue
        line = re.sub(r",? ![a-zA-Z_.]+(?: ![0-9]+)?(?=[, ]|$)", "", line)
        # Attributes name the target; LLVM knows those of its intrinsics. Nothing here throws.
        line = re.sub(r" #[0-9]+", " nounwind" if line.startswith("define ") else "", line)
        kept.append(line.replace("dso_local ", ""))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip() + "\n"


def compiled() -> str:
    """The portable IR of the runtime, from the C compiler."""
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory) / "runtime.ll"
        files = ("-I", str(HEADER.parent), str(SOURCE), "-o", str(made))
        subprocess.run([sys.executable, "-m", "ziglang", "cc", *FLAGS, *files], check=True)
        return portable(made.read_text(encoding="utf-8"))


def main() -> None:
    HEADER.write_text(header(), encoding="utf-8")
    IR.write_text(first_lines() + "\n" + compiled(), encoding="utf-8")


if __name__ == "__main__":
    main()
