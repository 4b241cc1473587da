"""Instruction counts of a kernel's innermost loop, by kind."""

from __future__ import annotations

import re
from collections import Counter
from itertools import accumulate
from typing import Final

from vyre.emit.llvm import KERNEL

_LABEL: Final = re.compile(r"^([.\w]+):")
_JUMP: Final = re.compile(r"^\s+(j\w+|b|b\.\w+|cbn?z|tbn?z)\s+.*?([.\w]+)$")
_WITHOUT_CONDITION: Final = ("jmp", "b")
_SCALAR_FLOAT: Final = re.compile(r"^v\w+s[sd]$")
# The operand of a vector instruction: a register of x86, or one of AArch64 with its lanes.
_VECTOR: Final = re.compile(r"%[xyz]mm\d|\bv\d+\.\d+[bhsd]")


def hot_loop(assembly: str) -> list[str]:
    """The instructions of the kernel's innermost loop, of the first if there are several; of all if there is none."""
    lines = _function(assembly)
    labels = {found[1]: number for number, line in enumerate(lines) if (found := _LABEL.match(line))}
    starts: set[int] = set()
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        found = _JUMP.match(line)
        start = labels.get(found[2], len(lines)) if found else len(lines)
        if found and start <= number:
            ends[start] = number
            # A jump back without a condition may come from code that was put out of the way.
            if found[1] not in _WITHOUT_CONDITION:
                starts.add(start)
    loops = [(start, ends[start]) for start in sorted(starts)]
    changes = Counter[int]()
    for start, end in loops:
        changes[start] += 1
        changes[end + 1] -= 1
    depths = list(accumulate(changes[number] for number in range(len(lines))))
    start, end = max(loops, key=lambda loop: depths[loop[0]], default=(0, len(lines) - 1))
    return [line for line in lines[start : end + 1] if not _LABEL.match(line)]


def _function(assembly: str) -> list[str]:
    """The kernel's own lines, without what is said to the assembler."""
    _, _, rest = assembly.partition(f"\n{KERNEL}:")
    body, _, _ = rest.partition(".Lfunc_end")
    comments = (line.split("#")[0].split("//")[0].rstrip() for line in body.splitlines())
    return [line for line in comments if line.strip() and not re.match(r"\s+\.", line)]


def counted(loop: list[str]) -> dict[str, int]:
    """How many instructions of each kind a loop has; one may be of several kinds."""
    kinds = Counter[str]({"instructions": len(loop)})
    for line in loop:
        name = line.split()[0]
        vector = bool(_VECTOR.search(line)) and not _SCALAR_FLOAT.match(name)
        kinds["vector" if vector else "scalar"] += 1
        kinds["masked"] += "{%k" in line
        kinds["gather"] += "gather" in name
        kinds["scatter"] += "scatter" in name
        kinds["division or root"] += "div" in name or "sqrt" in name
        kinds["call"] += name in ("callq", "call", "bl", "blr")
    return {kind: count for kind, count in kinds.items() if count}


def summary(assembly: str) -> str:
    """One line about the hot loop of a kernel."""
    return ", ".join(f"{count} {kind}" for kind, count in counted(hot_loop(assembly)).items())
