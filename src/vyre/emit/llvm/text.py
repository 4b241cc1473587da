"""LLVM IR text: types, constants, and builders of modules and functions.

``lanes`` is the number of invocations of an operation: 0 for a scalar operation, otherwise a vector operation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from vyre.semantics.types import DType

# The type of a value in a register; f16 and bf16 are represented exactly as f32.
ELEMENT: Final[dict[DType, str]] = {
    DType.BOOL: "i1",
    **{dtype: f"i{dtype.bits}" for dtype in DType if dtype.is_integer},
    DType.F16: "float",
    DType.BF16: "float",
    DType.F32: "float",
    DType.F64: "double",
}

# The type of an element in memory: always an integer, so that LLVM preserves the bits of NaNs.
STORED: Final[dict[DType, str]] = {dtype: f"i{8 * dtype.bytes}" for dtype in DType}

# Metadata of a branch that is nearly always taken: code for the other target is then moved out of the way.
_LIKELY: Final = '!0 = !{!"branch_weights", i32 1000000, i32 1}'
# Metadata of a non-temporal store.
_STREAMED: Final = "!1 = !{i32 1}"
_SUFFIX: Final = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


def shaped(element: str, lanes: int) -> str:
    """Return the type of ``lanes`` elements."""
    return f"<{lanes} x {element}>" if lanes else element


def suffix(element: str, lanes: int) -> str:
    """Return the suffix of an intrinsic's name for that type."""
    short = _SUFFIX.get(element, element)
    return f"v{lanes}{short}" if lanes else short


def splat(element: str, text: str, lanes: int) -> str:
    """Return a constant in every lane."""
    return f"splat ({element} {text})" if lanes else text


def float_text(value: float) -> str:
    """Return a float constant of any width, in LLVM's hexadecimal form."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal_text(bits: int, dtype: DType) -> str:
    """Return a constant of a type, from its bits."""
    match dtype:
        case DType.BOOL:
            return "true" if bits else "false"
        case DType.F64:
            return f"0x{bits:016X}"
        case DType.F32:
            return _single_text(bits)
        case DType.BF16:
            return _single_text(bits << 16)
        case DType.F16:
            return float_text(struct.unpack("<e", struct.pack("<H", bits))[0])
        case _:
            return str(bits)


def _single_text(bits: int) -> str:
    """Return an f32 constant as an f64; NaNs are widened by hand, as Python's conversion changes their payload."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        sign, fraction = bits >> 31, bits & 0x7FFFFF
        return f"0x{sign << 63 | 0x7FF << 52 | fraction << 29:016X}"
    return float_text(struct.unpack("<f", struct.pack("<I", bits))[0])


class Module:
    """Declarations and helper functions of a module."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}

    def text(self, functions: Iterable[str]) -> str:
        parts = [*self.declarations.values(), "", *self.helpers.values(), *functions, _LIKELY, _STREAMED]
        return "\n".join(parts) + "\n"


class Code:
    """Builder of a function: its lines and stack allocations."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocations: list[str] = []
        self._count = 0

    def put(self, text: str) -> str:
        """Add an instruction with a result; return the name of the result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """Add an instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def begin(self, label: str) -> None:
        """Begin a block; the previous one must have a terminator."""
        self.lines.append(f"{label}:")

    def go(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def fall_through(self, label: str) -> None:
        """End the block with a branch to a new block that begins here."""
        self.go(label)
        self.begin(label)

    def branch(self, condition: str, true: str, false: str, *, likely: bool = False) -> None:
        self.lines.append(f"  br i1 {condition}, label %{true}, label %{false}{', !prof !0' if likely else ''}")

    def allocate(self, type_name: str) -> str:
        """Allocate stack memory, which LLVM promotes to registers where possible."""
        self._count += 1
        name = f"%m{self._count}"
        self.allocations.append(f"  {name} = alloca {type_name}, align 64")
        return name

    def intrinsic(self, name: str, result: str, arguments: Iterable[tuple[str, str]], overloads: Iterable[str]) -> str:
        """Declare and call an LLVM intrinsic; ``overloads`` are the suffixes of its name."""
        full = ".".join((f"llvm.{name}", *overloads))
        return self.call(full, result, list(arguments))

    def call(self, name: str, result: str, arguments: list[tuple[str, str]], *, declare: bool = True) -> str:
        if declare and name not in self.module.declarations:
            types = ", ".join(type_name for type_name, _ in arguments)
            self.module.declarations[name] = f"declare {result} @{name}({types})"
        passed = ", ".join(f"{type_name} {text}" for type_name, text in arguments)
        if result == "void":
            self.do(f"call void @{name}({passed})")
            return ""
        # LLVM must not apply its own knowledge of library functions: it folds fmod(0, x) to 0 even if x is NaN.
        nobuiltin = " nobuiltin" if declare and not name.startswith("llvm.") else ""
        return self.put(f"call {result} @{name}({passed}){nobuiltin}")

    def helper(
        self,
        name: str,
        result: str,
        arguments: list[tuple[str, str]],
        write: Callable[[Code, list[str]], str],
        attributes: str = "nounwind",
    ) -> str:
        """Call a helper function of the module; ``write`` writes its body on first use and returns its result."""
        if name not in self.module.helpers:
            self.module.helpers[name] = ""
            inner = Code(self.module)
            names = [f"%a{number}" for number in range(len(arguments))]
            given = write(inner, names)
            inner.do("ret void" if result == "void" else f"ret {result} {given}")
            parameters = ", ".join(f"{t} {p}" for (t, _), p in zip(arguments, names, strict=True))
            header = f"define internal {result} @{name}({parameters}) noinline {attributes} #0 {{"
            self.module.helpers[name] = "\n".join([header, "entry:", *inner.allocations, *inner.lines, "}", ""])
        return self.call(name, result, arguments, declare=False)


def spread(code: Code, element: str, text: str, lanes: int) -> str:
    """Broadcast a scalar to every lane."""
    if not text.startswith("%"):
        return splat(element, text, lanes)
    kind = shaped(element, lanes)
    first = code.put(f"insertelement {kind} poison, {element} {text}, i64 0")
    return code.put(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
