"""What does a filetest ask for? Directives in the comments of a ``.vyre`` file.

    # run: NAME(a=[1, 2], n=4, grid=2) == out=[3, 4]     the outputs, compared bit by bit
    # run: NAME(a=zeros(8)) traps TAG                    the run must end with that trap
    # run: NAME(a=iota(8), fuel=10) fails CODE           the run must fail with that code
    # error: V010        on the offending line, or alone on the line before it; also ``# warning: V036``
    # rendered:          the lines of comment after it are the exact text of all diagnostics
    # optimized:         the lines of comment after it are the exact text of the optimized program
    # order-dependent    the outputs must depend on the schedule
    # races              the race detector must find a race

Values are numbers of the buffer's type, lists of them, ``zeros(n)``, ``iota(n)`` (0, 1, 2, ...), ``repeat(value, n)``,
joined by ``+``. Reserved arguments: ``grid`` (1 to 3 workgroup counts), ``elements``, ``fuel``, and ``handle``, the
trap tags that the standard handler answers. A directive goes on where the next comment is indented by three spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec
import numpy as np

from vyre.conform.case import DEFAULT_FUEL, Case
from vyre.conform.values import array_of_patterns, patterns_of_array
from vyre.errors import VyreError
from vyre.ir.literals import WORDS, BadLiteral, read_number, read_string, write_literal, write_string
from vyre.ir.nodes import Lit
from vyre.ir.program import Program
from vyre.semantics.types import DType

MAX_ELEMENTS_WRITTEN: Final = 1 << 24
# What text follows, up to the end of the comments.
BLOCKS: Final = ("# rendered:", "# optimized:")
_RESERVED: Final = ("grid", "elements", "fuel", "handle")
_DIAGNOSTIC = re.compile(r"#\s*(error|warning):\s*([\w-]+(?:\s*,\s*[\w-]+)*)\s*$")
_CONTINUED = re.compile(r"\s*#\s{3,}\S")
_TOKEN = re.compile(
    r'\s*(?:==|[\[\](),=+]|[A-Za-z]\w*(?:-[A-Za-z]\w*)+|-?[\w.]+(?:(?<=[eEpP])[+-]\d+)?|"(?:[^"\\]|\\.)*")'
)


class BadDirective(VyreError):
    """A directive that asks for nothing that can be checked."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__("bad-directive", message, fix)


class Run(msgspec.Struct, frozen=True):
    """One run: its arguments, and either the outputs it must give or how it must fail (``traps`` or ``fails``)."""

    line: int
    program: str
    arguments: Mapping[str, tuple[str, ...]]
    expected: Mapping[str, tuple[str, ...]]
    failure: tuple[str, str] | None = None


class FileTest(msgspec.Struct, frozen=True):
    """A file and what its directives ask for; ``diagnostics`` are (severity, code, line)."""

    name: str
    text: str
    runs: tuple[Run, ...]
    diagnostics: tuple[tuple[str, str, int], ...]
    rendered: str | None
    optimized: str | None
    order_dependent: bool
    races: bool


def read_filetest(name: str, text: str) -> FileTest:
    """The directives of a file."""
    lines = text.splitlines()
    runs: list[Run] = []
    diagnostics: list[tuple[str, str, int]] = []
    blocks: dict[str, str] = {}
    flags: set[str] = set()
    at = 0
    while at < len(lines):
        line, number = lines[at], at + 1
        at += 1
        comment = line.strip()
        if comment.startswith("# run:"):
            parts = [comment.removeprefix("# run:")]
            while at < len(lines) and _CONTINUED.match(lines[at]):
                parts.append(lines[at].strip().lstrip("#"))
                at += 1
            runs.append(_read_run(number, " ".join(parts)))
        elif comment in BLOCKS:
            block = []
            while at < len(lines) and lines[at].startswith("#"):
                block.append(lines[at].removeprefix("#").removeprefix(" "))
                at += 1
            blocks[comment] = "\n".join(block)
        elif comment in ("# order-dependent", "# races"):
            flags.add(comment)
        elif found := _DIAGNOSTIC.search(line):
            target = _next_code_line(lines, number) if comment.startswith("#") else number
            codes = re.split(r"\s*,\s*", found[2])
            diagnostics += [(found[1], code, target) for code in codes]
    if not runs and not diagnostics:
        raise BadDirective(f"{name} asks for nothing.", "add a '# run:', '# error:' or '# warning:' directive.")
    rendered, optimized = map(blocks.get, BLOCKS)
    return FileTest(
        name,
        text,
        tuple(runs),
        tuple(sorted(diagnostics)),
        rendered,
        optimized,
        "# order-dependent" in flags,
        "# races" in flags,
    )


def _next_code_line(lines: list[str], number: int) -> int:
    """The number of the first line after this one that is more than a comment."""
    while number < len(lines) and lines[number].strip().startswith("#"):
        number += 1
    return number + 1


class _Tokens:
    """The tokens of a directive, one ahead."""

    def __init__(self, line: int, text: str) -> None:
        self.line = line
        self.tokens = list(self._split(text))
        self.at = 0

    def _split(self, text: str) -> Iterator[str]:
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.wrong(f"{text[at : at + 20]!r} is not part of a directive")
            yield found[0].strip()
            at = found.end()

    def wrong(self, what: str) -> BadDirective:
        return BadDirective(f"line {self.line}: {what}.", "write it as the docstring of vyre.conform.directives shows.")

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.next
        if not token or (expected is not None and token != expected):
            raise self.wrong(f"{token or 'the end'!r} stands where {expected or 'more'!r} should")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.next != token:
            return False
        self.at += 1
        return True


def _read_run(line: int, text: str) -> Run:
    tokens = _Tokens(line, text)
    program = tokens.take()
    tokens.take("(")
    arguments = _read_named(tokens, ")")
    tokens.take(")")
    if tokens.next in ("traps", "fails"):
        failure = (tokens.take(), _plain(tokens.take()))
        if tokens.next:
            raise tokens.wrong(f"{tokens.next!r} stands after the end")
        return Run(line, program, arguments, {}, failure)
    tokens.take("==")
    expected = _read_named(tokens, "")
    if not expected:
        raise tokens.wrong("no output is expected")
    return Run(line, program, arguments, expected)


def _plain(token: str) -> str:
    return read_string(token) if token.startswith('"') else token


def _read_named(tokens: _Tokens, end: str) -> dict[str, tuple[str, ...]]:
    named: dict[str, tuple[str, ...]] = {}
    while tokens.next != end:
        name = tokens.take()
        tokens.take("=")
        if name in named:
            raise tokens.wrong(f"{name!r} is given twice")
        named[name] = _read_values(tokens)
        if tokens.next != end:
            tokens.take(",")
    return named


def _read_values(tokens: _Tokens) -> tuple[str, ...]:
    values: list[str] = []
    while True:
        if tokens.accept("["):
            while not tokens.accept("]"):
                values.append(tokens.take())
                if tokens.next != "]":
                    tokens.take(",")
        elif tokens.next in ("zeros", "iota", "repeat"):
            values += _read_made(tokens)
        else:
            values.append(tokens.take())
        if not tokens.accept("+"):
            return tuple(values)


def _read_made(tokens: _Tokens) -> list[str]:
    word = tokens.take()
    tokens.take("(")
    value = "0"
    if word == "repeat":
        value = tokens.take()
        tokens.take(",")
    count = _whole(tokens, tokens.take())
    tokens.take(")")
    return [str(k) for k in range(count)] if word == "iota" else [value] * count


def _whole(tokens: _Tokens, text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_ELEMENTS_WRITTEN:
        raise tokens.wrong(f"{text!r} is not a count of at most {MAX_ELEMENTS_WRITTEN:,}")
    return int(text)


def read_element(text: str, dtype: DType) -> int:
    """The bits of one written value of a type."""
    if dtype is DType.BOOL:
        if text not in ("0", "1", "true", "false"):
            raise BadDirective(f"{text!r} is not a bool.", "write true, false, 1 or 0.")
        return int(text in ("1", "true"))
    if (word := WORDS.get(text + dtype.label)) is not None:
        return word.bits
    is_hex = text.lower().lstrip("-").startswith("0x")
    if dtype.is_float and is_hex and "p" not in text.lower():
        raise BadDirective(f"{text!r} is a whole number where {dtype} is wanted.", "write a hex float, like 0x1.8p3.")
    try:
        return read_number(text + dtype.label).bits
    except BadLiteral as error:
        raise BadDirective(f"{text!r} is not a value of {dtype}: {error.message}", error.fix) from None


def read_array(values: tuple[str, ...], dtype: DType) -> np.ndarray[Any, Any]:
    """Host data from written values."""
    known: dict[str, int] = {text: read_element(text, dtype) for text in set(values)}
    return array_of_patterns([known[text] for text in values], dtype)


def parse_values(text: str, dtype: DType) -> np.ndarray[Any, Any]:
    """Host data from text on its own, as a command line has it."""
    tokens = _Tokens(1, text)
    values = _read_values(tokens)
    if tokens.next:
        raise tokens.wrong(f"{tokens.next!r} stands after the values")
    return read_array(values, dtype)


def case_of_run(run: Run, program: Program) -> Case:
    """The case that a run directive describes."""
    if run.program != program.name:
        raise BadDirective(
            f"line {run.line} runs '{run.program}', and the program is '{program.name}'.", "write the program's name."
        )
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    settings: dict[str, tuple[str, ...]] = {}
    for name, values in run.arguments.items():
        decl = program.buffers_by_name.get(name)
        if decl is not None:
            inputs[name] = read_array(values, decl.dtype)
        elif name in _RESERVED:
            settings[name] = values
        else:
            raise BadDirective(f"line {run.line}: the program has no buffer '{name}'.", "name one of its buffers.")
    x, y, z = (*(_setting(settings, "grid") or ()), 1, 1, 1)[:3]
    return Case(
        program,
        inputs,
        (x, y, z) if "grid" in settings else None,
        (_setting(settings, "elements") or (None,))[0],
        tuple(_plain(tag) for tag in settings.get("handle", ())),
        (_setting(settings, "fuel") or (DEFAULT_FUEL,))[0],
    )


def _setting(settings: Mapping[str, tuple[str, ...]], name: str) -> tuple[int, ...]:
    values = settings.get(name, ())
    if not all(value.isdecimal() for value in values):
        raise BadDirective(f"{name} is {', '.join(values)}.", "give whole numbers.")
    return tuple(int(value) for value in values)


def write_array(data: np.ndarray[Any, Any], dtype: DType) -> str:
    """Host data as a directive writes it, with long repetitions written short."""
    parts: list[str] = []
    plain: list[str] = []
    for bits, group in groupby(patterns_of_array(data, dtype)):
        count = sum(1 for _ in group)
        text = Lit(bits, dtype).value if dtype is DType.BOOL else write_literal(bits, dtype).removesuffix(dtype.label)
        word = str(text).lower()
        if count < 8:
            plain += [word] * count
            continue
        if plain:
            parts.append(f"[{', '.join(plain)}]")
            plain = []
        parts.append(f"zeros({count})" if bits == 0 else f"repeat({word}, {count})")
    if plain or not parts:
        parts.append(f"[{', '.join(plain)}]")
    return " + ".join(parts)


def write_run(case: Case, outputs: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """The directive that runs a case and expects these outputs."""
    program = case.program
    arguments = [f"{name}={write_array(data, program.buffer(name).dtype)}" for name, data in case.inputs.items()]
    if case.grid is not None:
        arguments.append(f"grid=[{', '.join(map(str, case.grid))}]")
    if case.elements is not None:
        arguments.append(f"elements={case.elements}")
    if case.handled:
        arguments.append(f"handle=[{', '.join(write_string(tag) for tag in case.handled)}]")
    if case.fuel != DEFAULT_FUEL:
        arguments.append(f"fuel={case.fuel}")
    expected = [f"{name}={write_array(data, program.buffer(name).dtype)}" for name, data in outputs.items()]
    return f"# run: {program.name}({', '.join(arguments)}) == {', '.join(expected)}"
