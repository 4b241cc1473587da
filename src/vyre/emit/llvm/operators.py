"""Operators in LLVM IR, with exactly the meaning that ``vyre.semantics`` defines.

``Lanes`` has one method per operator or family of operators, for a number of lanes (0 for a scalar). Methods take the
operands' texts and return the result's text. f16 and bf16 values are represented as f32, and rounded after each
operation whose result may not be representable. No operation is undefined for any operand, because inactive lanes
compute too.

The families are in one file because they are defined in terms of each other: division uses ``mul_high``, conversions
and rounding use integer operations, memory formats use conversions, and the tapes of math functions use all of them.
"""

from __future__ import annotations

from typing import Final

from vyre.emit.llvm.text import ELEMENT, STORED, Code, float_text, literal_text, shaped, splat, spread, suffix
from vyre.semantics.math import tape
from vyre.semantics.operators import MATH_FUNCTIONS
from vyre.semantics.types import DType, Kind

# For each float register: the integer type of its width, and the bits of infinity and of the canonical NaN.
_FLOAT_BITS: Final = {
    "float": ("i32", 0x7F800000, 0x7FC00000),
    "double": ("i64", 0x7FF0000000000000, 0x7FF8000000000000),
}
_INFINITY: Final = float_text(float("inf"))
_PURE: Final = "nounwind willreturn memory(none)"

# Comparisons, and their predicates of floats.
_COMPARISONS: Final = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_PLAIN_INTEGER: Final = frozenset({"add", "sub", "mul", "and", "or", "xor"})
_PLAIN_FLOAT: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
# Unary operators of floats that are intrinsics; all results but square roots are representable in the operand's type.
_FLOAT_INTRINSIC: Final = {
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc", "sqrt": "sqrt",
}  # fmt: skip
# Operators of integers that are intrinsics; those of the first table have a form for signed and one for unsigned types.
_SIGNED_INTRINSIC: Final = {"min": "min", "max": "max", "sat_add": "add.sat", "sat_sub": "sub.sat"}
_INTEGER_INTRINSIC: Final = {"popcount": "ctpop", "clz": "ctlz", "ctz": "cttz", "reverse_bits": "bitreverse"}
# Intrinsics with a flag that makes the result of one operand poison.
_FLAGGED: Final = frozenset({"abs", "ctlz", "cttz"})


class Lanes:
    """Writer of operations on a number of lanes."""

    __slots__ = ("code", "lanes")

    def __init__(self, code: Code, lanes: int) -> None:
        self.code = code
        self.lanes = lanes

    def of(self, element: str) -> str:
        return shaped(element, self.lanes)

    def constant(self, element: str, value: int | str) -> str:
        return splat(element, str(value), self.lanes)

    def op(self, name: str, element: str, *operands: str) -> str:
        return self.code.put(f"{name} {self.of(element)} {', '.join(operands)}")

    def convert(self, name: str, source: str, text: str, target: str) -> str:
        return self.code.put(f"{name} {self.of(source)} {text} to {self.of(target)}")

    def select(self, condition: str, element: str, true: str, false: str) -> str:
        kind = self.of(element)
        return self.code.put(f"select {self.of('i1')} {condition}, {kind} {true}, {kind} {false}")

    def intrinsic(self, name: str, element: str, *operands: str) -> str:
        kind = self.of(element)
        arguments = [(kind, operand) for operand in operands]
        if name in _FLAGGED:
            arguments.append(("i1", "false"))
        return self.code.intrinsic(name, kind, arguments, [suffix(element, self.lanes)])

    def literal(self, bits: int, dtype: DType) -> str:
        return self.constant(ELEMENT[dtype], literal_text(bits, dtype))

    def binary(self, op: str, dtype: DType, a: str, b: str) -> str:
        """Write a binary operator."""
        if dtype.is_float:
            return self._float_binary(op, dtype, a, b)
        element, sign = ELEMENT[dtype], "s" if dtype.kind is Kind.SIGNED else "u"
        if op in _PLAIN_INTEGER:
            return self.op(op, element, a, b)
        if op in _COMPARISONS:
            return self.op(f"icmp {op if op in ('eq', 'ne') else sign + op}", element, a, b)
        if op in _SIGNED_INTRINSIC:
            return self.intrinsic(sign + _SIGNED_INTRINSIC[op], element, a, b)
        match op:
            case "div" | "mod":
                return self._divide(op, dtype, a, b)
            case "shl" | "shr":
                amount = self.op("and", element, b, self.constant(element, dtype.bits - 1))
                name = "shl" if op == "shl" else "ashr" if sign == "s" else "lshr"
                return self.op(name, element, a, amount)
            case "rotl" | "rotr":
                return self.intrinsic("fshl" if op == "rotl" else "fshr", element, a, a, b)
            case "abs_diff":
                high, low = (self.intrinsic(f"{sign}{which}", element, a, b) for which in ("max", "min"))
                return self.op("sub", element, high, low)
            case "sat_mul" | "mul_high":
                return self._wide_multiply(op, dtype, element, sign, a, b)
            case _:
                raise KeyError(op)

    def _wide_multiply(self, op: str, dtype: DType, element: str, sign: str, a: str, b: str) -> str:
        if dtype.bits == 64:
            return self._multiply_long(op, dtype, sign, a, b)
        if op == "mul_high" and dtype is DType.U32 and self.lanes and self.lanes % 2 == 0:
            return self._upper_words(a, b)
        wide, extend = f"i{2 * dtype.bits}", "sext" if sign == "s" else "zext"
        product = self.op("mul", wide, *(self.convert(extend, element, x, wide) for x in (a, b)))
        if op == "mul_high":
            product = self.op("lshr", wide, product, self.constant(wide, dtype.bits))
            return self.convert("trunc", wide, product, element)
        for name, bound in (("min", dtype.maximum), ("max", dtype.minimum)):
            product = self.intrinsic(f"{sign}{name}", wide, product, self.constant(wide, bound))
        return self.convert("trunc", wide, product, element)

    def _upper_words(self, a: str, b: str) -> str:
        """Return the upper words of u32 products, of even and odd lanes separately, as processors multiply them."""
        pairs, kind = Lanes(self.code, self.lanes // 2), self.of("i32")
        places = ", ".join(f"i32 {lane | 1}" for lane in range(self.lanes))
        low, half = pairs.constant("i64", 0xFFFFFFFF), pairs.constant("i64", 32)

        def product(x: str, y: str) -> str:
            words = (self.code.put(f"bitcast {kind} {vector} to {pairs.of('i64')}") for vector in (x, y))
            return pairs.op("mul", "i64", *(pairs.op("and", "i64", word, low) for word in words))

        # A shuffle, not a shift: of a uniform value, LLVM folds it to the value itself.
        odd = (
            self.code.put(f"shufflevector {kind} {x}, {kind} poison, <{self.lanes} x i32> <{places}>") for x in (a, b)
        )
        upper = pairs.op("and", "i64", product(*odd), pairs.constant("i64", -1 << 32))
        joined = pairs.op("or", "i64", pairs.op("lshr", "i64", product(a, b), half), upper)
        return self.code.put(f"bitcast {pairs.of('i64')} {joined} to {kind}")

    def _multiply_long(self, op: str, dtype: DType, sign: str, a: str, b: str) -> str:
        """Multiply 64-bit factors by 32-bit halves: not all targets support products of i128."""
        kind = "i64"
        zero, half, low = (self.constant(kind, value) for value in (0, 32, 0xFFFFFFFF))
        lows = [self.op("and", kind, x, low) for x in (a, b)]
        highs = [self.op("lshr", kind, x, half) for x in (a, b)]

        def upper_of(x: str) -> str:
            return self.op("lshr", kind, x, half)

        cross = self.op("add", kind, self.op("mul", kind, highs[0], lows[1]), upper_of(self.op("mul", kind, *lows)))
        other = self.op("add", kind, self.op("mul", kind, lows[0], highs[1]), self.op("and", kind, cross, low))
        upper = self.op(
            "add", kind, self.op("mul", kind, *highs), self.op("add", kind, upper_of(cross), upper_of(other))
        )
        negative = [self.op("icmp slt", kind, x, zero) for x in (a, b)] if sign == "s" else []
        for is_negative, factor in zip(negative, (b, a), strict=False):
            # As unsigned, a negative factor is too large by 2**64: subtract the other factor from the upper half.
            upper = self.op("sub", kind, upper, self.select(is_negative, kind, factor, zero))
        if op == "mul_high":
            return upper
        product = self.op("mul", kind, a, b)
        if sign == "u":
            overflowed = self.op("icmp ne", kind, upper, zero)
            return self.select(overflowed, kind, self.constant(kind, dtype.maximum), product)
        extension = self.op("ashr", kind, product, self.constant(kind, 63))
        overflowed = self.op("icmp ne", kind, upper, extension)
        limits = (self.constant(kind, bound) for bound in (dtype.minimum, dtype.maximum))
        bound = self.select(self.op("xor", "i1", *negative), kind, *limits)
        return self.select(overflowed, kind, bound, product)

    def _divide(self, op: str, dtype: DType, a: str, b: str) -> str:
        """Divide; x/0 is x and MIN/-1 is MIN: both equal division by 1, and so do their remainders."""
        element, sign = ELEMENT[dtype], "s" if dtype.kind is Kind.SIGNED else "u"
        divisor = _constant_of(b)
        plain = f"{sign}{'div' if op == 'div' else 'rem'}"
        if divisor is not None and divisor != 0 and divisor != (1 << dtype.bits) - 1:
            return self.op(plain, element, a, b)
        if self.lanes and dtype.bits == 32:
            return self._divide_words(op, sign, a, self._nonzero(element, b))
        unsafe = self.op("icmp eq", element, b, self.constant(element, 0))
        if sign == "s":
            lowest = self.op("icmp eq", element, a, self.constant(element, dtype.minimum))
            minus = self.op("icmp eq", element, b, self.constant(element, -1))
            unsafe = self.op("or", "i1", unsafe, self.op("and", "i1", lowest, minus))
        b = self.select(unsafe, element, self.constant(element, 1), b)
        if not self.lanes:
            return self.op(plain, element, a, b)
        if dtype.bits == 64:
            kind = self.of(element)

            def write(inner: Code, names: list[str]) -> str:
                return inner.put(f"{plain} {kind} {names[0]}, {names[1]}")

            return self.code.helper(
                f"{plain}.{suffix(element, self.lanes)}", kind, [(kind, a), (kind, b)], write, _PURE
            )
        # The quotient of integers so short is at least 2**-16 of itself away from the next one: truncation is exact.
        quotient = self.op("fdiv", "float", *(self.convert(f"{sign}itofp", element, x, "float") for x in (a, b)))
        # Through i32: LLVM cannot select instructions for the minimum of an unsigned conversion and a 0 found late.
        whole = self.convert("trunc", "i32", self.convert("fptosi", "float", quotient, "i32"), element)
        if op == "div":
            return whole
        return self.op("sub", element, a, self.op("mul", element, whole, b))

    def _nonzero(self, element: str, divisor: str) -> str:
        """Return the divisor with 0 replaced by 1."""
        is_zero = self.op("icmp eq", element, divisor, self.constant(element, 0))
        return self.select(is_zero, element, self.constant(element, 1), divisor)

    def _divide_words(self, op: str, sign: str, a: str, b: str) -> str:
        """Divide 32-bit vectors by nonzero divisors, without integer division.

        Let D = 2**32 / b. Dividing (1 - 2**-23) * 2**32 by b in f32 makes two roundings, too small to reach D, so the
        truncated estimate z is too small by less than e = 1 + D / 2**22. Then z + z * (2**32 - b * z) / 2**32 is too
        small by at most e * e / D, and by less than 1 more once truncated: together at most 2, but where b is above
        2**32 - 2**12, and there no quotient is above 1. So the quotient a * z / 2**32 is at most 2 too small.
        """
        if sign == "s":
            magnitudes = (self.intrinsic("abs", "i32", x) for x in (a, b))
            return self._signed(op, a, b, self._divide_words(op, "u", *magnitudes))
        real = self.convert("uitofp", "i32", b, "float")
        estimate = self.op("fdiv", "float", self.constant("float", float_text(2.0**32 - 2.0**9)), real)
        first = self.convert("fptoui", "float", estimate, "i32")
        missing = self.op("sub", "i32", self.constant("i32", 0), self.op("mul", "i32", first, b))
        reciprocal = self.op("add", "i32", first, self.binary("mul_high", DType.U32, first, missing))
        return self._corrected(op, a, b, self.binary("mul_high", DType.U32, a, reciprocal), 2)

    def divide_by_one(self, op: str, dtype: DType, a: str, b: str) -> str:
        """Divide a 32-bit vector by a uniform divisor, with one scalar division for the reciprocal.

        (2**32 - 1) / b, truncated, is at most 1 below 2**32 / b, so the quotient by it is at most 1 too small.
        """
        scalar = Lanes(self.code, 0)
        one = scalar._nonzero("i32", b)
        positive = one if dtype is DType.U32 else scalar.intrinsic("abs", "i32", one)
        divisor = spread(self.code, "i32", positive, self.lanes)
        dividend = a if dtype is DType.U32 else self.intrinsic("abs", "i32", a)
        reciprocal = spread(self.code, "i32", scalar.op("udiv", "i32", "-1", positive), self.lanes)
        quotient = self.binary("mul_high", DType.U32, dividend, reciprocal)
        whole = self._corrected(op, dividend, divisor, quotient, 1)
        return whole if dtype is DType.U32 else self._signed(op, a, spread(self.code, "i32", one, self.lanes), whole)

    def is_multiple(self, dtype: DType, a: str, b: str) -> tuple[str, str]:
        """Test whether 32-bit lanes are multiples of a uniform divisor, with one scalar division.

        Let m = 2**32 / b, rounded up: too large by less than 1. For a = k * b, a * m / 2**32 is then too large by less
        than a / 2**32, so its integer part is k; and only multiples are products of b. Every number is a multiple of 1,
        whose m does not fit a word, and of 0, because division by 0 is division by 1.

        Returns the test by multiplication, and the scalar condition under which every number is a multiple.
        """
        scalar = Lanes(self.code, 0)
        positive, dividend = b, a
        if dtype is DType.I32:
            positive, dividend = scalar.intrinsic("abs", "i32", b), self.intrinsic("abs", "i32", a)
        always = scalar.op("icmp ult", "i32", positive, "2")
        positive = scalar.intrinsic("umax", "i32", positive, "2")
        upper = scalar.op("add", "i32", scalar.op("udiv", "i32", "-1", positive), "1")
        divisor, reciprocal = (spread(self.code, "i32", x, self.lanes) for x in (positive, upper))
        product = self.op("mul", "i32", self.binary("mul_high", DType.U32, dividend, reciprocal), divisor)
        return self.op("icmp eq", "i32", product, dividend), always

    def _corrected(self, op: str, a: str, b: str, quotient: str, most: int) -> str:
        """Return the quotient or the remainder of u32, from a quotient that is at most ``most`` too small."""
        rest = self.op("sub", "i32", a, self.op("mul", "i32", quotient, b))
        for _ in range(most):
            less = self.op("sub", "i32", rest, b)
            if op == "div":
                short = self.convert("sext", "i1", self.op("icmp uge", "i32", rest, b), "i32")
                quotient = self.op("sub", "i32", quotient, short)
            # A remainder below the divisor wraps to a larger number, so the minimum keeps it.
            rest = self.intrinsic("umin", "i32", rest, less)
        return quotient if op == "div" else rest

    def _signed(self, op: str, a: str, b: str, magnitude: str) -> str:
        """Give a quotient the sign of a / b, or a remainder the sign of a; -MIN is MIN."""
        negative = self.op("ashr", "i32", self.op("xor", "i32", a, b) if op == "div" else a, self.constant("i32", 31))
        return self.op("sub", "i32", self.op("xor", "i32", magnitude, negative), negative)

    def _float_binary(self, op: str, dtype: DType, a: str, b: str) -> str:
        element = ELEMENT[dtype]
        if op in _COMPARISONS:
            return self.op(f"fcmp {_COMPARISONS[op]}", element, a, b)
        if op in _PLAIN_FLOAT:
            return self.rounded(dtype, self.op(_PLAIN_FLOAT[op], element, a, b))
        if op == "mod":
            return self._remainder(element, a, b)
        return self._extreme(op, element, a, b)

    def _extreme(self, op: str, element: str, a: str, b: str) -> str:
        """Return the minimum or maximum; a number wins over a NaN, and -0 is less than +0.

        ``llvm.minimumnum`` is not used, because LLVM 22 confuses which scalar operand may be a NaN.
        """
        bits = _FLOAT_BITS[element][0]
        chosen = self.select(self.op(f"fcmp {'olt' if op == 'min' else 'ogt'}", element, a, b), element, a, b)
        chosen = self.select(self.op("fcmp uno", element, b, b), element, a, chosen)
        # Equal operands differ at most in the sign of a zero.
        patterns = (self.reinterpret(element, x, bits) for x in (a, b))
        joined = self.reinterpret(bits, self.op("or" if op == "min" else "and", bits, *patterns), element)
        return self.select(self.op("fcmp oeq", element, a, b), element, joined, chosen)

    def _remainder(self, element: str, a: str, b: str) -> str:
        kind, function = self.of(element), "fmodf" if element == "float" else "fmod"
        if not self.lanes:
            return self.code.call(function, kind, [(kind, a), (kind, b)])
        lanes = self.lanes

        def write(inner: Code, names: list[str]) -> str:
            result = "poison"
            for lane in range(lanes):
                x, y = (inner.put(f"extractelement {kind} {name}, i32 {lane}") for name in names)
                value = inner.call(function, element, [(element, x), (element, y)])
                result = inner.put(f"insertelement {kind} {result}, {element} {value}, i32 {lane}")
            return result

        return self.code.helper(f"{function}.{suffix(element, lanes)}", kind, [(kind, a), (kind, b)], write)

    def unary(self, op: str, dtype: DType, a: str) -> str:
        """Write a unary operator."""
        if dtype.is_float:
            return self._float_unary(op, dtype, a)
        element = ELEMENT[dtype]
        if op in _INTEGER_INTRINSIC:
            return self.intrinsic(_INTEGER_INTRINSIC[op], element, a)
        zero = self.constant(element, 0)
        match op:
            case "neg":
                return self.op("sub", element, zero, a)
            case "not" | "lnot":
                return self.op("xor", element, a, self.constant(element, "true" if op == "lnot" else -1))
            case "abs":
                return a if dtype.kind is Kind.UNSIGNED else self.intrinsic("abs", element, a)
            case "sign":
                positive = self.convert("zext", "i1", self.binary("gt", dtype, a, zero), element)
                if dtype.kind is Kind.UNSIGNED:
                    return positive
                negative = self.convert("zext", "i1", self.binary("lt", dtype, a, zero), element)
                return self.op("sub", element, positive, negative)
            case _:
                raise KeyError(op)

    def _float_unary(self, op: str, dtype: DType, a: str) -> str:
        element = ELEMENT[dtype]
        if op in MATH_FUNCTIONS:
            return self._math(op, dtype, a)
        if op in _FLOAT_INTRINSIC:
            value = self.intrinsic(_FLOAT_INTRINSIC[op], element, a)
            return self.rounded(dtype, value) if op == "sqrt" else value
        zero, one = (self.constant(element, float_text(x)) for x in (0.0, 1.0))
        match op:
            case "neg":
                return self.op("fneg", element, a)
            case "recip":
                return self.rounded(dtype, self.op("fdiv", element, one, a))
            case "sign":
                below = self.op("fcmp olt", element, a, zero)
                negative = self.select(below, element, self.constant(element, float_text(-1.0)), a)
                return self.select(self.op("fcmp ogt", element, a, zero), element, one, negative)
            case "is_nan":
                return self.op("fcmp uno", element, a, zero)
            case "is_inf" | "is_finite":
                magnitude = self.intrinsic("fabs", element, a)
                return self.op(f"fcmp {'oeq' if op == 'is_inf' else 'olt'}", element, magnitude,
                               self.constant(element, _INFINITY))  # fmt: skip
            case _:
                raise KeyError(op)

    def _math(self, op: str, dtype: DType, a: str) -> str:
        kind, lanes = self.of(ELEMENT[dtype]), self.lanes

        def write(inner: Code, names: list[str]) -> str:
            return Lanes(inner, lanes).run_tape(op, dtype, names[0])

        name = f"math.{op}.{dtype.label}.{suffix(ELEMENT[dtype], lanes)}"
        return self.code.helper(name, kind, [(kind, a)], write, _PURE)

    def run_tape(self, op: str, dtype: DType, argument: str) -> str:
        """Write the steps of a math function's tape."""
        values: list[str] = []
        steps = tape(op, dtype).steps
        for step in steps:
            given = [values[position] for position in step.operands]
            types = [steps[position].dtype for position in step.operands]
            match step.kind:
                case "arg":
                    values.append(argument)
                case "lit":
                    values.append(self.literal(step.bits, step.dtype))
                case "select":
                    values.append(self.select(given[0], ELEMENT[step.dtype], given[1], given[2]))
                case "cast":
                    values.append(self.cast(types[0], step.dtype, given[0]))
                case "bitcast":
                    values.append(self.bitcast(types[0], step.dtype, given[0]))
                case "op" if len(given) == 1:
                    values.append(self.unary(step.op, types[0], given[0]))
                case _:
                    values.append(self.binary(step.op, types[0], given[0], given[1]))
        return values[-1]

    def fma(self, dtype: DType, a: str, b: str, c: str) -> str:
        return self.intrinsic("fma", ELEMENT[dtype], a, b, c)

    def rounded(self, dtype: DType, a: str) -> str:
        """Round an f32 result to the nearest f16 or bf16 if the type is one of those.

        The fence hides the origin of a value that is rounded to f16: LLVM takes an integer with few significant bits
        for representable in f16, however large it is, and drops the rounding.
        """
        match dtype:
            case DType.F16:
                fenced = self.intrinsic("arithmetic.fence", "float", a)
                return self.convert("fpext", "half", self.convert("fptrunc", "float", fenced, "half"), "float")
            case DType.BF16:
                bits = self.reinterpret("float", a, "i32")
                odd = self.op("and", "i32", self.op("lshr", "i32", bits, self.constant("i32", 16)),
                              self.constant("i32", 1))  # fmt: skip
                up = self.op("add", "i32", self.op("add", "i32", bits, self.constant("i32", 0x7FFF)), odd)
                rounded_bits = self.op("and", "i32", up, self.constant("i32", 0xFFFF0000))
                nearest = self.reinterpret("i32", rounded_bits, "float")
                return self.select(self.op("fcmp uno", "float", a, a), "float", a, nearest)
            case _:
                return a

    def _odd_single(self, a: str) -> str:
        """Round f64 to f32 to odd (the last bit is sticky), so that rounding the result again rounds once."""
        single = self.convert("fptrunc", "double", a, "float")
        back = self.convert("fpext", "float", single, "double")
        bits = self.reinterpret("float", single, "i32")
        away = self.op(
            "fcmp ogt", "double", self.intrinsic("fabs", "double", back), self.intrinsic("fabs", "double", a)
        )
        toward_zero = self.op("sub", "i32", bits, self.convert("zext", "i1", away, "i32"))
        odd = self.op("or", "i32", toward_zero, self.constant("i32", 1))
        lost = self.op("fcmp one", "double", back, a)
        chosen = self.select(lost, "i32", odd, bits)
        return self.reinterpret("i32", chosen, "float")

    def cast(self, source: DType, target: DType, a: str) -> str:
        """Write a conversion, which is total and rounds at most once."""
        if source is target:
            return a
        register, result = ELEMENT[source], ELEMENT[target]
        if target is DType.BOOL:
            if source.is_float:
                return self.op("fcmp une", register, a, self.constant(register, float_text(0.0)))
            return self.op("icmp ne", register, a, self.constant(register, 0))
        signed = source.kind is Kind.SIGNED
        if target.is_integer:
            if source.is_float:
                sign = "s" if target.kind is Kind.SIGNED else "u"
                kinds = (suffix(result, self.lanes), suffix(register, self.lanes))
                return self.code.intrinsic(f"fpto{sign}i.sat", self.of(result), [(self.of(register), a)], kinds)
            if source.bits == target.bits:
                return a
            name = "trunc" if target.bits < source.bits else "sext" if signed else "zext"
            return self.convert(name, register, a, result)
        if source.is_float:
            return self._float_to_float(source, target, a)
        to_float = "sitofp" if signed else "uitofp"
        if target is DType.BF16 and source.bits > 16:
            return self._integer_to_brain(source, a)
        converted = self.convert(to_float, register, a, result)
        return self.rounded(target, converted)

    def _float_to_float(self, source: DType, target: DType, a: str) -> str:
        if source is DType.F64:
            if target is DType.F32:
                return self.convert("fptrunc", "double", a, "float")
            return self.rounded(target, self._odd_single(a))
        if target is DType.F64:
            return self.convert("fpext", "float", a, "double")
        return self.rounded(target, a)

    def _integer_to_brain(self, source: DType, a: str) -> str:
        element, signed = ELEMENT[source], source.kind is Kind.SIGNED
        if source.bits == 32:
            exact = self.convert("sitofp" if signed else "uitofp", element, a, "double")
            return self.rounded(DType.BF16, self._odd_single(exact))
        magnitude = self.intrinsic("abs", element, a) if signed else a
        # An integer too long for f64 keeps its upper bits, the last of which is sticky.
        tail = self.op("and", element, magnitude, self.constant(element, 0xFFFF))
        some = self.op("icmp ne", element, tail, self.constant(element, 0))
        sticky = self.op("shl", element, self.convert("zext", "i1", some, element), self.constant(element, 16))
        long = self.op("or", element, self.op("xor", element, magnitude, tail), sticky)
        is_short = self.op("icmp ult", element, magnitude, self.constant(element, 1 << 48))
        short = self.select(is_short, element, magnitude, long)
        single = self._odd_single(self.convert("uitofp", element, short, "double"))
        if signed:
            negative = self.op("icmp slt", element, a, self.constant(element, 0))
            single = self.select(negative, "float", self.op("fneg", "float", single), single)
        return self.rounded(DType.BF16, single)

    def canonical_bits(self, dtype: DType, a: str) -> str:
        """Return the bits of a float in a register; every NaN becomes the canonical one.

        The select is on integers: LLVM treats all NaNs as equal and would drop a select between them.
        """
        element = ELEMENT[dtype]
        bits, infinity, nan = _FLOAT_BITS[element]
        pattern = self.reinterpret(element, a, bits)
        magnitude = self.op("and", bits, pattern, self.constant(bits, (1 << (int(bits[1:]) - 1)) - 1))
        is_nan = self.op("icmp ugt", bits, magnitude, self.constant(bits, infinity))
        return self.select(is_nan, bits, self.constant(bits, nan), pattern)

    def reinterpret(self, source: str, a: str, target: str) -> str:
        return self.code.put(f"bitcast {self.of(source)} {a} to {self.of(target)}")

    def to_memory(self, dtype: DType, a: str) -> str:
        """Return a value as it is stored in memory."""
        if dtype is DType.BOOL:
            return self.convert("zext", "i1", a, "i8")
        if not dtype.is_float:
            return a
        bits = self.canonical_bits(dtype, a)
        match dtype:
            case DType.F16:
                half = self.convert("fptrunc", "float", self.reinterpret("i32", bits, "float"), "half")
                return self.reinterpret("half", half, "i16")
            case DType.BF16:
                return self.convert("trunc", "i32", self.op("lshr", "i32", bits, self.constant("i32", 16)), "i16")
            case _:
                return bits

    def from_memory(self, dtype: DType, a: str) -> str:
        """Return the value of bits that are stored in memory."""
        match dtype:
            case DType.BOOL:
                return self.op("icmp ne", "i8", a, self.constant("i8", 0))
            case DType.F16:
                return self.convert("fpext", "half", self.reinterpret("i16", a, "half"), "float")
            case DType.BF16:
                bits = self.op("shl", "i32", self.convert("zext", "i16", a, "i32"), self.constant("i32", 16))
                return self.reinterpret("i32", bits, "float")
            case DType.F32 | DType.F64:
                return self.reinterpret(STORED[dtype], a, ELEMENT[dtype])
            case _:
                return a

    def bitcast(self, source: DType, target: DType, a: str) -> str:
        """Reinterpret the bits of a value as another type; every NaN becomes the canonical one first."""
        return a if source is DType.BOOL else self.from_memory(target, self.to_memory(source, a))


def _constant_of(text: str) -> int | None:
    """Return the value of an integer constant's text; None for other texts."""
    if text.startswith("splat ("):
        text = text[text.index(" ", 7) + 1 : -1]
    return int(text) if text.isdigit() else None
