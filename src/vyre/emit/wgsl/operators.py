"""Operators in WGSL, with exactly the meaning that ``vyre.semantics`` defines.

Every function takes the operands' texts, which are names or constants, and returns the text of an expression. ``use``
requests a library function by name. Short integers are represented as words, always in their type's range.

``+ - * / sqrt`` and rounding of f32 to whole numbers are computed by the device; the probe of a device tests that they
are exact. The device's compiler may fold ``a * 0`` to 0 or ``a / a`` to 1, or fuse a product and a sum. To prevent
that, the library function ``kept`` makes every float result opaque, by combining its bits with the hidden zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from vyre.emit.wgsl.text import literal
from vyre.semantics.types import DType, Kind

Use = Callable[[str], str]

_SYMBOL: Final = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "and": "&", "or": "|", "xor": "^",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_COMPARISONS: Final = ("eq", "ne", "lt", "le", "gt", "ge")
_LONG: Final = (DType.U64, DType.I64)
_ZERO_LONG: Final = "vec2<u32>(0u, 0u)"
_EXACT: Final = ("floor", "ceil", "round", "trunc", "abs")
_COUNTS: Final = {"popcount": "countOneBits", "clz": "countLeadingZeros", "ctz": "countTrailingZeros"}


def binary(op: str, dtype: DType, a: str, b: str, use: Use) -> str:
    """Return a binary operator."""
    if dtype.is_float:
        return _float_binary(op, dtype, a, b, use)
    if dtype in _LONG:
        return _long_binary(op, dtype, a, b, use)
    if dtype is DType.BOOL:
        return f"{a} {'!=' if op == 'xor' else _SYMBOL[op]} {b}"
    if op in _COMPARISONS or op in ("and", "or", "xor"):
        return f"{a} {_SYMBOL[op]} {b}"
    return _word_binary(op, dtype, a, b, use)


def _word_binary(op: str, dtype: DType, a: str, b: str, use: Use) -> str:
    unsigned = dtype.kind is Kind.UNSIGNED
    match op:
        case "add" | "sub" | "mul":
            return wrapped(dtype, f"{a} {_SYMBOL[op]} {b}")
        case "div" | "mod":
            # WGSL defines division by zero and MIN / -1 as vyre does, but rejects a constant zero divisor.
            if b in ("0u", "0i"):
                return a if op == "div" else b
            return wrapped(dtype, f"{a} {_SYMBOL[op]} {b}")
        case "shl" | "shr":
            shifted = f"{a} {'<<' if op == 'shl' else '>>'} {_amount(dtype, b)}"
            return wrapped(dtype, shifted) if op == "shl" else shifted
        case "rotl" | "rotr":
            return _rotated(op, dtype, a, b)
        case "min" | "max":
            return f"{op}({a}, {b})"
        case "abs_diff":
            distance = f"max({a}, {b}) - min({a}, {b})"
            return distance if unsigned else wrapped(dtype.unsigned, f"u32({distance})")
    if dtype.bits == 32:
        return f"{use(f'{op}_{dtype.label}')}({a}, {b})"
    if op == "mul_high":
        return f"({a} * {b}) >> {dtype.bits}u"
    if op == "sat_sub" and unsigned:
        return f"{a} - min({a}, {b})"
    bounds = f"{literal(dtype.minimum & (1 << dtype.bits) - 1, dtype)}, {literal(dtype.maximum, dtype)}"
    return f"clamp({a} {_SYMBOL[op[4:]]} {b}, {bounds})"


def wrapped(dtype: DType, text: str) -> str:
    """Wrap the value of a word to the type's range."""
    if dtype.bits == 32:
        return text
    if dtype.kind is Kind.UNSIGNED:
        return f"({text}) & {(1 << dtype.bits) - 1:#x}u"
    return f"(({text}) << {32 - dtype.bits}u) >> {32 - dtype.bits}u"


def _amount(dtype: DType, b: str) -> str:
    last = dtype.bits - 1
    if b[0].isdigit():
        return f"{int(b[:-1]) & last}u"
    return f"({b if dtype.kind is Kind.UNSIGNED else f'u32({b})'} & {last}u)"


def _rotated(op: str, dtype: DType, a: str, b: str) -> str:
    bits = dtype.bits
    if dtype.kind is Kind.SIGNED:
        a = f"u32({a})" if bits == 32 else f"(u32({a}) & {(1 << bits) - 1:#x}u)"
    ways = ("<<", ">>") if op == "rotl" else (">>", "<<")
    amount = _amount(dtype, b)
    back = f"(({bits}u - {amount}) & {bits - 1}u)"
    turned = f"({a} {ways[0]} {amount}) | ({a} {ways[1]} {back})"
    return wrapped(dtype, turned if dtype.kind is Kind.UNSIGNED else f"i32({turned})")


def _long_binary(op: str, dtype: DType, a: str, b: str, use: Use) -> str:
    signed = dtype is DType.I64
    less = use(f"lt_{dtype.label}") if op in ("lt", "le", "gt", "ge", "min", "max", "abs_diff") else ""
    match op:
        case "add" | "sub" | "mul":
            return f"{use(f'{op}_u64')}({a}, {b})"
        case "and" | "or" | "xor":
            return f"{a} {_SYMBOL[op]} {b}"
        case "eq" | "ne":
            return f"{'all' if op == 'eq' else 'any'}({a} {_SYMBOL[op]} {b})"
        case "lt" | "gt":
            return f"{less}({a}, {b})" if op == "lt" else f"{less}({b}, {a})"
        case "le" | "ge":
            return f"!{less}({b}, {a})" if op == "le" else f"!{less}({a}, {b})"
        case "shl":
            return f"{use('shl_u64')}({a}, {b}.x)"
        case "shr":
            return f"{use('shr_i64' if signed else 'shr_u64')}({a}, {b}.x)"
        case "rotl" | "rotr":
            return f"{use('rotl_u64')}({a}, {'' if op == 'rotl' else '0u - '}{b}.x)"
        case "min" | "max":
            yes, no = (a, b) if op == "min" else (b, a)
            return f"select({no}, {yes}, {less}({a}, {b}))"
        case "abs_diff":
            subtract = use("sub_u64")
            return f"select({subtract}({a}, {b}), {subtract}({b}, {a}), {less}({a}, {b}))"
    return f"{use(f'{op}_{dtype.label}')}({a}, {b})"


def _float_binary(op: str, dtype: DType, a: str, b: str, use: Use) -> str:
    match op:
        case "ne":
            # A device may implement != as "less or greater", which is false for NaN.
            return f"!({a} == {use('apart')}({b}))"
        case "eq" | "lt" | "le" | "gt" | "ge":
            return f"{a} {_SYMBOL[op]} {use('apart')}({b})"
        case "min" | "max" | "mod":
            return f"{use(f'{op}_f32')}({a}, {b})"
        case "sub":
            return _computed(dtype, f"{a} + {use('negated')}({b})", use)
        case "div":
            return _computed(dtype, f"{a} / {use('apart')}({b})", use)
    return _computed(dtype, f"{a} {_SYMBOL[op]} {b}", use)


def _computed(dtype: DType, text: str, use: Use) -> str:
    """Return the rounded result of device arithmetic, opaque to the device's compiler."""
    return rounded(dtype, f"{use('kept')}({text})", use)


def rounded(dtype: DType, text: str, use: Use) -> str:
    """Round an f32 result to the nearest f16 or bf16 if the type is one of those."""
    return text if dtype is DType.F32 else f"{use(f'round_{dtype.label}')}({text})"


def unary(op: str, dtype: DType, a: str, use: Use) -> str:
    """Return a unary operator other than a math function."""
    if dtype.is_float:
        return _float_unary(op, dtype, a, use)
    if dtype in _LONG:
        return _long_unary(op, dtype, a, use)
    unsigned = dtype.kind is Kind.UNSIGNED
    zero, one = ("0u", "1u") if unsigned else ("0i", "1i")
    short = 32 - dtype.bits
    match op:
        case "lnot":
            return f"!{a}"
        case "neg":
            return wrapped(dtype, f"{zero} - {a}")
        case "not":
            return f"{a} ^ {(1 << dtype.bits) - 1:#x}u" if unsigned else f"~{a}"
        case "abs":
            return a if unsigned else wrapped(dtype, f"abs({a})")
        case "sign":
            above = f"select({zero}, {one}, {a} > {zero})"
            return above if unsigned else f"select({above}, -1i, {a} < 0i)"
        case "reverse_bits":
            turned = f"reverseBits({a})"
            return turned if not short else f"{turned} >> {short}u"
    # Counts consider the type's own bits only.
    bits = a if unsigned or not short else f"({a} & {(1 << dtype.bits) - 1:#x}i)"
    if short and op == "clz":
        return f"countLeadingZeros({bits}) - {short}{zero[1]}"
    if short and op == "ctz":
        return f"countTrailingZeros({bits} | {1 << dtype.bits:#x}{zero[1]})"
    return f"{_COUNTS[op]}({bits})"


def _long_unary(op: str, dtype: DType, a: str, use: Use) -> str:
    signed = dtype is DType.I64
    match op:
        case "neg":
            return f"{use('sub_u64')}({_ZERO_LONG}, {a})"
        case "not":
            return f"~{a}"
        case "abs":
            return f"{use('abs_i64')}({a})" if signed else a
        case "sign":
            above = f"select({_ZERO_LONG}, vec2<u32>(1u, 0u), any({a} != {_ZERO_LONG}))"
            return f"select({above}, vec2<u32>(0xffffffffu), {a}.y >= 0x80000000u)" if signed else above
        case "popcount":
            return f"vec2<u32>(countOneBits({a}.x) + countOneBits({a}.y), 0u)"
        case "reverse_bits":
            return f"reverseBits({a}.yx)"
    return f"{use(f'{op}_u64')}({a})"


def _float_unary(op: str, dtype: DType, a: str, use: Use) -> str:
    if op in _EXACT:
        return f"{op}({a})"
    match op:
        case "neg":
            return f"{use('negated')}({a})"
        case "sqrt":
            return _computed(dtype, f"sqrt({a})", use)
        case "recip":
            return _computed(dtype, f"{use('kept')}(1.0f) / {use('apart')}({a})", use)
        case "sign":
            return f"{use('sign_f32')}({a})"
        case "is_nan":
            return f"{use('is_nan_f32')}({a})"
        case "is_inf" | "is_finite":
            return f"(bitcast<u32>({a}) & 0x7fffffffu) {'==' if op == 'is_inf' else '<'} 0x7f800000u"
    raise KeyError(op)


def cast(source: DType, target: DType, a: str, use: Use) -> str:
    """Return a conversion, which is total and rounds at most once."""
    if source is target:
        return a
    if target is DType.BOOL:
        return _to_bool(source, a)
    if source is DType.BOOL:
        chosen = f"select({literal(0, target)}, {_one(target)}, {a})"
        return f"{use('kept')}({chosen})" if target.is_float else chosen
    if source.is_float:
        if target.is_float:
            # Every f16 and bf16 value is an f32 value.
            return rounded(target, a, use)
        return _float_to_integer(target, a, use)
    if target.is_float:
        return f"{use('kept')}({_integer_to_float(source, target, a, use)})"
    return _integer_to_integer(source, target, a)


def _one(dtype: DType) -> str:
    if dtype.is_float:
        return "1.0f"
    return literal(1, dtype)


def _to_bool(source: DType, a: str) -> str:
    if source.is_float:
        return f"(bitcast<u32>({a}) & 0x7fffffffu) != 0u"
    return f"any({a} != {_ZERO_LONG})" if source in _LONG else f"{a} != {literal(0, source)}"


def _float_to_integer(target: DType, a: str, use: Use) -> str:
    if target.bits >= 32:
        return f"{use(f'{target.label}_of_f32')}({a})"
    if target.kind is Kind.UNSIGNED:
        return f"min({use('u32_of_f32')}({a}), {target.maximum}u)"
    return f"clamp({use('i32_of_f32')}({a}), {target.minimum}i, {target.maximum}i)"


def _integer_to_float(source: DType, target: DType, a: str, use: Use) -> str:
    if source.bits < 32 or (source.bits == 32 and target is DType.F32):
        return rounded(target, f"f32({a})", use)
    if target is DType.F32:
        return f"{use(f'f32_of_{source.label}')}({a})"
    return rounded(target, f"{use(f'odd_f32_of_{source.label}')}({a})", use)


def _integer_to_integer(source: DType, target: DType, a: str) -> str:
    if source in _LONG:
        if target in _LONG:
            return a
        source, a = DType.U32, f"{a}.x"
    if target in _LONG:
        if source.kind is Kind.UNSIGNED:
            return f"vec2<u32>({a}, 0u)"
        return f"vec2<u32>(u32({a}), u32({a} >> 31u))"
    if source.kind is not target.kind:
        a = f"{'u32' if target.kind is Kind.UNSIGNED else 'i32'}({a})"
    fits = target.minimum <= source.minimum and source.maximum <= target.maximum
    return a if fits else wrapped(target, a)


def to_words(dtype: DType, a: str, use: Use) -> list[str]:
    """Return the words of a value in memory; every NaN becomes the canonical one."""
    match dtype:
        case DType.BOOL:
            return [f"u32({a})"]
        case DType.U64 | DType.I64:
            return [f"{a}.x", f"{a}.y"]
        case DType.F16 | DType.F32:
            return [f"{use(f'bits_of_{dtype.label}')}({a})"]
        case DType.BF16:
            return [f"{use('bits_of_f32')}({a}) >> 16u"]
    if dtype.kind is Kind.UNSIGNED:
        return [a]
    return [f"u32({a})" if dtype.bits == 32 else f"u32({a}) & {(1 << dtype.bits) - 1:#x}u"]


def from_words(dtype: DType, words: list[str], use: Use) -> str:
    """Return the value of words from memory; bits above the type's width are zero."""
    match dtype:
        case DType.BOOL:
            return f"{words[0]} != 0u"
        case DType.U64 | DType.I64:
            return f"vec2<u32>({words[0]}, {words[1]})"
        case DType.F32:
            return f"bitcast<f32>({words[0]})"
        case DType.F16:
            return f"{use('f16_of_bits')}({words[0]})"
        case DType.BF16:
            return f"bitcast<f32>({words[0]} << 16u)"
    if dtype.kind is Kind.UNSIGNED:
        return words[0]
    return wrapped(dtype, f"i32({words[0]})")


def bitcast(source: DType, target: DType, a: str, use: Use) -> str:
    """Reinterpret the bits of a value as another type; every NaN becomes the canonical one first."""
    if source.bits == 64 or source is DType.BOOL:
        return a
    (word,) = to_words(source, a, use)
    value = from_words(target, [word if word.isidentifier() else f"({word})"], use)
    return f"{use('kept')}({value})" if target.is_float else value


def register_words(dtype: DType, a: str) -> list[str]:
    """Return the words of a value in a register."""
    match dtype:
        case DType.U64 | DType.I64:
            return [f"{a}.x", f"{a}.y"]
        case DType.F16 | DType.BF16 | DType.F32:
            return [f"bitcast<u32>({a})"]
    return [a if dtype.kind is Kind.UNSIGNED else f"u32({a})"]


def register_value(dtype: DType, words: list[str]) -> str:
    """Return the value of words from a register."""
    match dtype:
        case DType.BOOL:
            return f"{words[0]} != 0u"
        case DType.U64 | DType.I64:
            return f"vec2<u32>({words[0]}, {words[1]})"
        case DType.F16 | DType.BF16 | DType.F32:
            return f"bitcast<f32>({words[0]})"
    return words[0] if dtype.kind is Kind.UNSIGNED else f"i32({words[0]})"
