"""Python itself as the judge of a kernel: the same source, run by Python on numbers that have types.

Nothing of the translation is here. Control flow, names, order of evaluation and short circuits are Python's own; only
what an operator gives is taken from the table of the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from vyre.semantics import BINARY, UNARY, DType, from_bits, scalar_cast, scalar_meaning, to_bits, zero


class Number:
    """A number of a type; a bare one beside it takes its type."""

    __slots__ = ("dtype", "value")

    def __init__(self, value: Any, dtype: DType) -> None:
        self.value = scalar_cast(DType.F64, dtype)(float(value)) if dtype.is_float else value
        self.dtype = dtype

    def apply(self, op: str, other: Any, *, swapped: bool = False) -> Any:
        beside = other if isinstance(other, Number) else Number(other, self.dtype)
        assert beside.dtype is self.dtype, (op, self.dtype, beside.dtype)
        left, right = (beside, self) if swapped else (self, beside)
        return wrapped(scalar_meaning(op, self.dtype)(left.value, right.value), BINARY[op].result_type(self.dtype))

    def __index__(self) -> int:
        return int(self.value)

    def __invert__(self) -> Any:
        return unary("not", self)

    def __neg__(self) -> Any:
        return unary("neg", self)

    def __eq__(self, other: object) -> Any:
        return self.apply("eq", other)

    def __ne__(self, other: object) -> Any:
        return self.apply("ne", other)

    __hash__ = None  # type: ignore[assignment]


def wrapped(value: Any, dtype: DType) -> Any:
    return bool(value) if dtype is DType.BOOL else Number(value, dtype)


def unary(op: str, operand: Number) -> Any:
    return wrapped(scalar_meaning(op, operand.dtype)(operand.value), UNARY[op].result_type(operand.dtype))


def _operator(op: str, *, swapped: bool = False) -> Callable[[Number, Any], Any]:
    return lambda self, other: self.apply(op, other, swapped=swapped)


for _name, _op in {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "div", "mod": "mod", "lshift": "shl",
    "rshift": "shr", "and": "and", "or": "or", "xor": "xor",
}.items():  # fmt: skip
    setattr(Number, f"__{_name}__", _operator(_op))
    setattr(Number, f"__r{_name}__", _operator(_op, swapped=True))
for _name in ("lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _operator(_name))


class TypeName:
    """A type in a kernel's text: a cast, and something to write in brackets."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Number):
            return wrapped(scalar_cast(value.dtype, self.dtype)(value.value), self.dtype)
        if isinstance(value, bool):
            return wrapped(scalar_cast(DType.BOOL, self.dtype)(value), self.dtype)
        return Number(value, self.dtype)


class ModelArray:
    """An array whose elements outside are zero, and are not written."""

    def __init__(self, data: np.ndarray, dtype: DType) -> None:
        self.data, self.dtype = data, dtype
        self.bits = data.view(dtype.unsigned.storage)

    @property
    def shape(self) -> tuple[Number, ...]:
        return tuple(Number(size, DType.U32) for size in self.data.shape)

    def _place(self, key: Any) -> tuple[int, ...] | None:
        place = tuple(int(one) for one in (key if isinstance(key, tuple) else (key,)))
        inside = all(0 <= one < size for one, size in zip(place, self.data.shape, strict=True))
        return place if inside else None

    def __getitem__(self, key: Any) -> Number:
        place = self._place(key)
        value = zero(self.dtype) if place is None else from_bits(int(self.bits[place]), self.dtype)
        return Number(value, self.dtype)

    def __setitem__(self, key: Any, value: Any) -> None:
        place = self._place(key)
        number = value if isinstance(value, Number) else Number(value, self.dtype)
        assert number.dtype is self.dtype
        if place is not None:
            self.bits[place] = to_bits(number.value, self.dtype)

    def change(self, op: str, key: Any, value: Any) -> Number:
        old = self[key]
        self[key] = old.apply(op, value)
        return old


class _Brackets:
    def __getitem__(self, _: Any) -> None:
        return None


def model_range(*bounds: Any) -> Iterator[Number]:
    dtype = next((one.dtype for one in bounds if isinstance(one, Number)), DType.U32)
    return (Number(value, dtype) for value in range(*map(int, bounds)))


def run(text: str, kernel: str, arguments: list[Any], invocations: int) -> None:
    """Runs every invocation of a kernel, one after the other; ``arguments`` are Numbers and ModelArrays."""
    place = [0]
    vyre = SimpleNamespace(
        kernel=lambda **_: lambda function: function,
        function=lambda function: function,
        In=_Brackets(),
        InOut=_Brackets(),
        gid=lambda: Number(place[0], DType.U32),
        select=lambda condition, yes, no: yes if condition else no,
        **{
            f"atomic_{op}": lambda array, key, value, op=op: array.change(op, key, value)
            for op in ("add", "xor", "max")
        },
    )
    names: dict[str, Any] = {
        "vyre": vyre,
        "len": lambda array: array.shape[0],
        "range": model_range,
        "min": lambda a, b: a.apply("min", b),
        "max": lambda a, b: a.apply("max", b),
        "abs": lambda a: unary("abs", a),
        **{dtype.label: TypeName(dtype) for dtype in DType},
    }
    exec(compile(text, "model", "exec"), names)
    with np.errstate(all="ignore"):
        for place[0] in range(invocations):
            names[kernel](*arguments)
