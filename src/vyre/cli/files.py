"""How does the command read programs and data, and write results?"""

from __future__ import annotations

import json
import math
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np

from vyre.errors import BadInputs
from vyre.ir.literals import write_literal
from vyre.ir.parser import parse
from vyre.ir.program import Program
from vyre.ir.wire import MAGIC, decode
from vyre.semantics.scalars import from_bits
from vyre.semantics.types import DType

Array = np.ndarray[Any, np.dtype[Any]]
_SHOWN_ELEMENTS: Final = 64


def read_bytes(path: str) -> bytes:
    """A file's bytes; ``-`` is standard input."""
    return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def as_text(data: bytes, path: str) -> str:
    """The text of a program in a file."""
    if data.startswith(MAGIC):
        raise BadInputs(f"{path} is a wire image, which has no text.", "print its text with `vyre show`.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputs(
            f"{path} is neither a wire image nor UTF-8 text (byte {error.start}).", "give a .vyre file."
        ) from None


def read_program(path: str) -> Program:
    """A program from text or from a wire image, told apart by its first bytes."""
    data = read_bytes(path)
    return decode(data) if data.startswith(MAGIC) else parse(as_text(data, path), "<stdin>" if path == "-" else path)


def read_inputs(program: Program, specs: Sequence[str], *, complete: bool = True) -> dict[str, Array | bytes]:
    """Inputs from ``name=value`` options: an ``.npy`` or ``.bin`` file, or values written out; or from an ``.npz``.

    If they are to be ``complete``, one that is missing is an error.
    """
    inputs: dict[str, Array | bytes] = {}
    for spec in specs:
        name, equals, value = spec.partition("=")
        if not equals and not name.endswith(".npz"):
            raise BadInputs(f"'{spec}' is not an input.", "write name=file.npy, name=[1,2,3] or file.npz.")
        found = {name: _read_value(program, name, value)} if equals else _read_archive(name)
        for key, data in found.items():
            if key in inputs:
                raise BadInputs(f"the input '{key}' is given twice.", "give each input once.", buffer=key)
            inputs[key] = data
    missing = [decl for decl in program.input_buffers() if decl.name not in inputs]
    # A name that is no input is told by the binding, which knows what was meant.
    if missing and complete and all(name in program.buffers_by_name for name in inputs):
        wanted = ", ".join(f"{decl.name} ({decl.dtype}[{decl.count or ''}])" for decl in missing)
        raise BadInputs(
            f"'{program.name}' has no data for its inputs: {wanted}.",
            f"give each: -i {missing[0].name}=file.npy, or values: -i {missing[0].name}=[1,2,3], ='zeros(8)'.",
            buffer=missing[0].name,
        )
    return inputs


def _read_value(program: Program, name: str, value: str) -> Array | bytes:
    if value.endswith(".npy"):
        with Path(value).open("rb") as file, _reading(value, name):
            array: Array = np.load(file, allow_pickle=False)
            return array.ravel()
    if value.endswith(".bin"):
        return Path(value).read_bytes()
    # The generators come with it, which most commands have no use for.
    from vyre.conform.directives import BadDirective, parse_values

    decl = program.buffers_by_name.get(name)
    try:
        # An unknown name is told by the binding, which knows all names; any type serves until then.
        return parse_values(value, DType.U32 if decl is None else decl.dtype)
    except BadDirective as error:
        raise BadInputs(
            f"the input '{name}' is neither a .npy or .bin file nor values: {error.message.removeprefix('line 1: ')}",
            f"write {name}=file.npy, {name}=[1,2,3], {name}='zeros(8)' or {name}='iota(8)'.",
            buffer=name,
        ) from None


def _read_archive(path: str) -> dict[str, Array | bytes]:
    with Path(path).open("rb") as file, _reading(path), np.load(file, allow_pickle=False) as archive:
        return {key: archive[key] for key in archive.files}


@contextmanager
def _reading(path: str, name: str | None = None) -> Iterator[None]:
    try:
        yield
    except (ValueError, EOFError, AttributeError, BadZipFile, zlib.error):
        raise BadInputs(
            f"{path} is not a NumPy file of numbers.", "write it with numpy.save or numpy.savez.", buffer=name
        ) from None


def values_as_text(array: Array, dtype: DType) -> str:
    """An array as a list that the command reads back, shortened when long."""
    from vyre.conform.values import patterns_of_array

    shown = array[:_SHOWN_ELEMENTS]
    more = len(array) - len(shown)
    words = [write_literal(bits, dtype).removesuffix(dtype.label) for bits in patterns_of_array(shown, dtype)]
    return "[" + ", ".join(words) + (f", … {more:,} more]" if more else "]")


def values_as_json(array: Array, dtype: DType) -> list[bool | int | float | str]:
    """An array for JSON, which has no infinities and no NaN: those are strings."""
    from vyre.conform.values import patterns_of_array

    values = [from_bits(bits, dtype) for bits in patterns_of_array(array, dtype)]
    return [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    print(json.dumps(value, indent=2))


def require_writable(path: str) -> None:
    """Fails where a file could not be written at the end of something long."""
    with Path(path).open("ab"):
        pass


def write_outputs(path: str, outputs: Mapping[str, Array]) -> None:
    """Outputs keyed by buffer name, as an ``.npz``."""
    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(outputs))
