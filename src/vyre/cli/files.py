"""How does the command read programs and data, and write results?"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from vyre.conform.directives import parse_values
from vyre.conform.values import patterns_of_array
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


def read_inputs(program: Program, specs: Sequence[str]) -> dict[str, Array | bytes]:
    """Inputs from ``name=value`` options: an ``.npy`` or ``.bin`` file, or values written out; or from an ``.npz``."""
    inputs: dict[str, Array | bytes] = {}
    for spec in specs:
        name, equals, value = spec.partition("=")
        if not equals and name.endswith(".npz"):
            with _load(name, None) as archive:
                inputs.update({key: archive[key] for key in archive.files})
        elif not equals:
            raise BadInputs(f"'{spec}' is not an input.", "write name=file.npy, name=[1,2,3] or file.npz.")
        else:
            inputs[name] = _read_value(program, name, value)
    return inputs


def _read_value(program: Program, name: str, value: str) -> Array | bytes:
    if value.endswith(".npy"):
        array: Array = _load(value, name)
        return array
    if value.endswith(".bin"):
        return Path(value).read_bytes()
    decl = program.buffers_by_name.get(name)
    # An unknown name is told by the binding, which knows all names; any type serves until then.
    return parse_values(value, DType.U32 if decl is None else decl.dtype)


def _load(path: str, name: str | None) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise BadInputs(
            f"{path} is not a NumPy file ({error}).", "write it with numpy.save or numpy.savez.", buffer=name
        ) from None


def values_as_text(array: Array, dtype: DType, *, everything: bool = False) -> str:
    """An array as a list that the command reads back, shortened when long."""
    shown = array if everything else array[:_SHOWN_ELEMENTS]
    more = len(array) - len(shown)
    words = [write_literal(bits, dtype).removesuffix(dtype.label) for bits in patterns_of_array(shown, dtype)]
    return "[" + ", ".join(words) + (f", … {more:,} more]" if more else "]")


def values_as_json(array: Array, dtype: DType) -> list[bool | int | float | str]:
    """An array for JSON, which has no infinities and no NaN: those are strings."""
    values = [from_bits(bits, dtype) for bits in patterns_of_array(array, dtype)]
    return [str(v) if isinstance(v, float) and not math.isfinite(v) else v for v in values]


def print_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    print(json.dumps(value, indent=2))


def write_outputs(path: str, outputs: Mapping[str, Array]) -> None:
    """Outputs keyed by buffer name, as an ``.npz``."""
    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, **dict(outputs))
