"""WGSL text: indented lines, legal names and exact constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from vyre.semantics.types import DType, Kind

# The type of a value in a register: short integers are in words, f16 and bf16 are represented exactly as f32.
REGISTER: Final[dict[DType, str]] = {
    DType.BOOL: "bool",
    DType.U8: "u32",
    DType.U16: "u32",
    DType.U32: "u32",
    DType.I8: "i32",
    DType.I16: "i32",
    DType.I32: "i32",
    DType.U64: "vec2<u32>",
    DType.I64: "vec2<u32>",
    DType.F16: "f32",
    DType.BF16: "f32",
    DType.F32: "f32",
}

# Keywords and reserved words of WGSL, its types, and the builtin functions that kernels use.
RESERVED: Final = frozenset(
    """
    alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let
    loop override requires return struct switch true var while
    NULL Self abstract active alignas alignof as asm asm_fragment async attribute auto await become binding_array cast
    catch class co_await co_return co_yield coherent column_major common compile compile_fragment concept const_cast
    consteval constexpr constinit crate debugger decltype delete demote demote_to_helper do dynamic_cast enum explicit
    export extends extern external fallthrough filter final finally friend from fxgroup get goto groupshared highp impl
    implements import inline instanceof interface layout lowp macro macro_rules match mediump meta mod module move mut
    mutable namespace new nil noexcept noinline nointerpolation non_coherent noncoherent noperspective null nullptr of
    operator package packoffset partial pass patch pixelfragment precise precision premerge priv protected pub public
    readonly ref regardless register reinterpret_cast require resource restrict self set shared sizeof smooth snorm
    static static_assert static_cast std subroutine super target template this thread_local throw trait try type
    typedef typeid typename typeof union unless unorm unsafe unsized use using varying virtual volatile wgsl where with
    writeonly yield
    array atomic bool f16 f32 f64 i32 i64 u32 u64 mat2x2 ptr sampler vec2 vec3 vec4 texture_1d function private
    workgroup uniform storage read write read_write
    abs all any atomicAdd atomicAnd atomicCompareExchangeWeak atomicExchange atomicLoad atomicMax atomicMin atomicOr
    atomicStore atomicSub atomicXor bitcast ceil clamp countLeadingZeros countOneBits countTrailingZeros floor max min
    reverseBits round select sqrt storageBarrier subgroupBallot subgroupShuffle trunc workgroupBarrier
    """.split()  # noqa: SIM905
)


class Names:
    """Source of unique legal WGSL names: the hint itself, where that is possible."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._taken = set(reserved | RESERVED)
        self._numbers: dict[str, int] = {}

    def make(self, hint: str) -> str:
        # WGSL reserves names that begin with two underscores, and the single underscore.
        hint = f"v{hint}" if hint.startswith("__") or hint == "_" else hint
        name = hint
        while name in self._taken:
            self._numbers[hint] = number = self._numbers.get(hint, 0) + 1
            name = f"{hint}_{number}"
        self._taken.add(name)
        return name


class Lines:
    """Builder of indented text."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indent = ""

    def add(self, line: str) -> None:
        self.lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """Put the lines that are added inside into braces after ``head``."""
        self.add(f"{head} {{" if head else "{")
        outer, self._indent = self._indent, self._indent + "  "
        yield
        self._indent = outer
        self.add("}")

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def literal(bits: int, dtype: DType) -> str:
    """Return a constant of a type, from its bits."""
    match dtype:
        case DType.BOOL:
            return "true" if bits else "false"
        case DType.U64 | DType.I64:
            return f"vec2<u32>({bits & 0xFFFFFFFF}u, {bits >> 32}u)"
        case DType.F16:
            return _single(float(np.uint16(bits).view(np.float16)))
        case DType.BF16:
            return _single(float(np.uint32(bits << 16).view(np.float32)))
        case DType.F32:
            return _single(float(np.uint32(bits).view(np.float32)))
    if dtype.kind is Kind.UNSIGNED:
        return f"{bits}u"
    value = bits - (1 << dtype.bits) if bits > dtype.maximum else bits
    return f"i32({value})" if value == -(1 << 31) else f"{value}i"


def _single(value: float) -> str:
    """Return the shortest decimal that reads back exactly; the bits of -0, subnormal and non-finite values."""
    single = np.float32(value)
    if value == 0.0 and not np.signbit(single):
        return "0.0f"
    if not np.isfinite(single) or abs(value) < 2.0**-126:
        return f"bitcast<f32>({int(single.view(np.uint32)):#x}u)"
    return f"{single!s}f"
