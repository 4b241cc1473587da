"""How is LLVM IR written? As lines of text, by a function under way that hands out names and types.

``lanes`` says how many invocations an operation is for: 0 writes a scalar operation, anything else a vector one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from vyre.semantics.types import DType

# The type of a value in a register; f16 and bf16 values are held as the f32 that they are.
ELEMENT: Final[dict[DType, str]] = {
    DType.BOOL: "i1",
    **{dtype: f"i{dtype.bits}" for dtype in DType if dtype.is_integer},
    DType.F16: "float",
    DType.BF16: "float",
    DType.F32: "float",
    DType.F64: "double",
}

# The type of an element in memory: always bits, so that nobody takes one NaN for another.
STORED: Final[dict[DType, str]] = {dtype: f"i{8 * dtype.bytes}" for dtype in DType}

# Metadata of a branch whose first way is taken nearly always: what the other way needs is then done there.
_LIKELY: Final = '!0 = !{!"branch_weights", i32 1000000, i32 1}'
# That of a store whose value nobody reads soon.
_STREAMED: Final = "!1 = !{i32 1}"
_SUFFIX: Final = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


def shaped(element: str, lanes: int) -> str:
    """The type of ``lanes`` elements."""
    return f"<{lanes} x {element}>" if lanes else element


def suffix(element: str, lanes: int) -> str:
    """How an intrinsic's name spells that type."""
    short = _SUFFIX.get(element, element)
    return f"v{lanes}{short}" if lanes else short


def splat(element: str, text: str, lanes: int) -> str:
    """A constant in every lane."""
    return f"splat ({element} {text})" if lanes else text


def float_text(value: float) -> str:
    """A float constant, as LLVM writes those of every width."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def literal_text(bits: int, dtype: DType) -> str:
    """A constant of a type, from its bits."""
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
    """An f32 constant is written as the f64 that it is; Python's conversion would change a NaN's payload."""
    if bits & 0x7FFFFFFF > 0x7F800000:
        sign, fraction = bits >> 31, bits & 0x7FFFFF
        return f"0x{sign << 63 | 0x7FF << 52 | fraction << 29:016X}"
    return float_text(struct.unpack("<f", struct.pack("<I", bits))[0])


class Module:
    """The declarations and helper functions that the functions of a module share."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}

    def text(self, functions: Iterable[str]) -> str:
        parts = [*self.declarations.values(), "", *self.helpers.values(), *functions, _LIKELY, _STREAMED]
        return "\n".join(parts) + "\n"


class Code:
    """A function under way: its lines, and the memory for its variables."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.allocations: list[str] = []
        self._count = 0

    def put(self, text: str) -> str:
        """An instruction with a result; gives the name of the result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self.lines.append(f"  {text}")

    def label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def begin(self, label: str) -> None:
        """Begins a block; the one before must have ended."""
        self.lines.append(f"{label}:")

    def go(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def fall_through(self, label: str) -> None:
        """Goes on in a block that begins here."""
        self.go(label)
        self.begin(label)

    def branch(self, condition: str, true: str, false: str, *, likely: bool = False) -> None:
        self.lines.append(f"  br i1 {condition}, label %{true}, label %{false}{', !prof !0' if likely else ''}")

    def allocate(self, type_name: str) -> str:
        """Memory of the function's own, which is made a register where that is possible."""
        self._count += 1
        name = f"%m{self._count}"
        self.allocations.append(f"  {name} = alloca {type_name}, align 64")
        return name

    def intrinsic(self, name: str, result: str, arguments: Iterable[tuple[str, str]], overloads: Iterable[str]) -> str:
        """A call of an LLVM intrinsic, which is declared; ``overloads`` are the suffixes of its name."""
        full = ".".join((f"llvm.{name}", *overloads))
        return self.call(full, result, list(arguments))

    def call(self, name: str, result: str, arguments: list[tuple[str, str]], *, declare: bool = True) -> str:
        if declare and name not in self.module.declarations:
            types = ", ".join(type_name for type_name, _ in arguments)
            self.module.declarations[name] = f"declare {result} @{name}({types})"
        passed_guard = ", ".join(f"{type_name} {text}" for type_name, text in arguments)
        if result == "void":
            self.do(f"call void @{name}({passed_guard})")
            return ""
        # What a function of a library means is said by us: LLVM takes fmod(0, x) for 0 even where x is no number.
        ours = " nobuiltin" if declare and not name.startswith("llvm.") else ""
        return self.put(f"call {result} @{name}({passed_guard}){ours}")

    def helper(
        self,
        name: str,
        result: str,
        arguments: list[tuple[str, str]],
        write: Callable[[Code, list[str]], str],
        attributes: str = "nounwind",
    ) -> str:
        """A call of a helper function of the module; ``write`` writes its body once and gives its result."""
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
    """A scalar in every lane."""
    if not text.startswith("%"):
        return splat(element, text, lanes)
    kind = shaped(element, lanes)
    first = code.put(f"insertelement {kind} poison, {element} {text}, i64 0")
    return code.put(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")
