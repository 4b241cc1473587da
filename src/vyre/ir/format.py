"""How is a source text laid out anew without losing what people wrote for each other?

The program is printed in its one form. Then comments, and single blank lines, go back beside the declaration or
statement where they stood; the printed text is read again to know where those are now.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import Final

from vyre.ir.parser import parse
from vyre.ir.places import SourceMap
from vyre.ir.printer import print_program
from vyre.ir.program import Program

_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|(#[^\n]*)')


def format_text(text: str, name: str = "<text>") -> str:
    """The text in the form that the printer gives it, comments kept; ParseError where it is not a program."""
    program = parse(text, name)
    printed = print_program(program)
    return "\n".join(_laid_out(_Anchors(program), _Anchors(parse(printed)))) + "\n"


class _Anchors:
    """The header, the declarations and the statements of a text, in order: on which lines each starts and stops."""

    def __init__(self, program: Program) -> None:
        source: SourceMap | None = program.source
        assert source is not None, "parse gives every program its source"
        self.text = source.text
        pairs = [source.header.start, source.header.stop, *source.buffers, *source.statements]
        line_ends = [match.start() for match in re.finditer("\n", source.text)]
        self.offsets = pairs[::2]
        self.first_lines = [bisect_left(line_ends, offset) for offset in pairs[::2]]
        self.last_lines = [bisect_left(line_ends, offset) for offset in pairs[1::2]]


def _comment_columns(text: str) -> dict[int, int]:
    """For each line that has a comment, the column where it begins."""
    columns: dict[int, int] = {}
    line, line_start, position = 0, 0, 0
    for match in _COMMENT.finditer(text):
        if match.group(1) is None:
            continue
        line += text.count("\n", position, match.start())
        position = match.start()
        line_start = text.rfind("\n", 0, position) + 1
        columns[line] = position - line_start
    return columns


def _laid_out(old: _Anchors, new: _Anchors) -> list[str]:
    before: dict[int, list[str]] = defaultdict(list)
    after: dict[int, list[str]] = defaultdict(list)
    trailing: dict[int, list[str]] = defaultdict(list)
    pending: list[str] = []
    columns = _comment_columns(old.text)
    offset = 0
    for number, line in enumerate(old.text.split("\n")):
        column = columns.get(number, len(line))
        code, comment = line[:column].strip(), line[column:].strip()
        if not code:
            pending.append(comment)
        else:
            here = bisect_left(old.first_lines, number)
            previous = bisect_right(old.offsets, offset + column) - 1
            if here < len(old.first_lines) and old.first_lines[here] == number:
                before[new.first_lines[here]] += pending
            else:
                after[new.last_lines[max(bisect_left(old.first_lines, number) - 1, 0)]] += [c for c in pending if c]
            pending = []
            if comment:
                trailing[new.first_lines[max(previous, 0)]].append(comment)
        offset += len(line) + 1
    lines: list[str] = []
    for number, line in enumerate(new.text.split("\n")):
        indent = line[: len(line) - len(line.lstrip())]
        for extra in before[number]:
            # One blank line at most, and none where a list begins.
            if extra or (lines and lines[-1] and not lines[-1].endswith("{")):
                lines.append(indent + extra if extra else "")
        if line or (lines and lines[-1]):
            lines.append("  ".join([line, *trailing[number]]))
        lines += [indent + extra for extra in after[number]]
    return lines + [comment for comment in pending if comment]
