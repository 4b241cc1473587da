"""How is a function written once, as a fixed sequence of exact operations?

A tape is a straight line of typed steps: literals, operators of the table, selects, casts and bitcasts. It is
written as a Python function over ``Symbol``s and traced once; equal steps are shared and unused ones dropped.
Whoever runs the steps as they stand, in any way, gets the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec
import numpy as np

from vyre.semantics.arrays import Array, array_bitcast, array_cast, array_meaning, from_storage
from vyre.semantics.operators import OPERATORS
from vyre.semantics.scalars import Meaning, from_bits, scalar_bitcast, scalar_cast, scalar_meaning, to_bits
from vyre.semantics.types import DType

StepKind = Literal["arg", "lit", "op", "select", "cast", "bitcast"]


class Step(msgspec.Struct, frozen=True):
    """One value of a tape: ``dtype`` is its type, ``operands`` are positions of earlier steps.

    ``op`` names the operator of an "op" step; ``bits`` are the unsigned bits of a "lit" step.
    """

    kind: StepKind
    dtype: DType
    operands: tuple[int, ...] = ()
    op: str = ""
    bits: int = 0


class Tape(msgspec.Struct, frozen=True):
    """A function of one value; step 0 is the argument and the last step is the result."""

    steps: tuple[Step, ...]

    @property
    def result(self) -> int:
        """The position of the step whose value is the function's."""
        return len(self.steps) - 1

    @property
    def operations(self) -> int:
        """The number of steps that compute something."""
        return sum(step.kind not in ("arg", "lit") for step in self.steps)


class _Trace:
    """The steps written so far, each once."""

    def __init__(self) -> None:
        self.positions: dict[Step, int] = {}

    def symbol(self, step: Step) -> Symbol:
        return Symbol(self, self.positions.setdefault(step, len(self.positions)), step.dtype)


class Symbol:
    """A value of a tape that is being written; Python's operators write steps, plain numbers become literals."""

    __slots__ = ("_position", "_trace", "dtype")

    def __init__(self, trace: _Trace, position: int, dtype: DType) -> None:
        self._trace = trace
        self._position = position
        self.dtype = dtype

    def literal(self, value: float) -> Symbol:
        """A constant of this symbol's type."""
        exact = scalar_cast(DType.F64, self.dtype)(value) if self.dtype.is_float else value
        return self._trace.symbol(Step("lit", self.dtype, bits=to_bits(exact, self.dtype)))

    def _operand(self, value: Symbol | float) -> Symbol:
        return value if isinstance(value, Symbol) else self.literal(value)

    def apply(self, op: str, *others: Symbol | float) -> Symbol:
        """An operator of the table with this value as its first operand."""
        operands = (self._position, *(self._operand(other)._position for other in others))
        return self._trace.symbol(Step("op", OPERATORS[op].result_type(self.dtype), operands, op))

    def select(self, true: Symbol | float, false: Symbol | float) -> Symbol:
        """``true`` where this bool holds, else ``false``; one of the two must be a symbol."""
        typed = true if isinstance(true, Symbol) else false
        assert isinstance(typed, Symbol)
        operands = (self._position, typed._operand(true)._position, typed._operand(false)._position)
        return self._trace.symbol(Step("select", typed.dtype, operands))

    def cast(self, target: DType) -> Symbol:
        """This value converted to another type."""
        return self._trace.symbol(Step("cast", target, (self._position,)))

    def bitcast(self, target: DType) -> Symbol:
        """The value of another type with the same bits."""
        return self._trace.symbol(Step("bitcast", target, (self._position,)))

    def __add__(self, other: Symbol | float) -> Symbol:
        return self.apply("add", other)

    def __radd__(self, other: float) -> Symbol:
        return self.literal(other).apply("add", self)

    def __sub__(self, other: Symbol | float) -> Symbol:
        return self.apply("sub", other)

    def __rsub__(self, other: float) -> Symbol:
        return self.literal(other).apply("sub", self)

    def __mul__(self, other: Symbol | float) -> Symbol:
        return self.apply("mul", other)

    def __rmul__(self, other: float) -> Symbol:
        return self.literal(other).apply("mul", self)

    def __truediv__(self, other: Symbol | float) -> Symbol:
        return self.apply("div", other)

    def __rtruediv__(self, other: float) -> Symbol:
        return self.literal(other).apply("div", self)

    def __and__(self, other: Symbol | int) -> Symbol:
        return self.apply("and", other)

    def __or__(self, other: Symbol | int) -> Symbol:
        return self.apply("or", other)

    def __xor__(self, other: Symbol | int) -> Symbol:
        return self.apply("xor", other)

    def __lshift__(self, other: Symbol | int) -> Symbol:
        return self.apply("shl", other)

    def __rshift__(self, other: Symbol | int) -> Symbol:
        return self.apply("shr", other)

    def __lt__(self, other: Symbol | float) -> Symbol:
        return self.apply("lt", other)

    def __gt__(self, other: Symbol | float) -> Symbol:
        return self.apply("gt", other)

    def __neg__(self) -> Symbol:
        return self.apply("neg")

    def __abs__(self) -> Symbol:
        return self.apply("abs")


def trace(function: Callable[[Symbol], Symbol], argument: DType) -> Tape:
    """The tape of a function of one argument."""
    steps = _Trace()
    result = function(steps.symbol(Step("arg", argument)))
    return _without_unused(list(steps.positions), result._position)


def _without_unused(steps: list[Step], result: int) -> Tape:
    used = {0, result}
    for position in range(result, 0, -1):
        if position in used:
            used.update(steps[position].operands)
    moved = {position: index for index, position in enumerate(sorted(used))}
    return Tape(
        tuple(
            msgspec.structs.replace(steps[position], operands=tuple(moved[k] for k in steps[position].operands))
            for position in moved
        )
    )


def _scalar_step(step: Step, operand: DType) -> Meaning:
    match step.kind:
        case "cast":
            return scalar_cast(operand, step.dtype)
        case "bitcast":
            return scalar_bitcast(operand, step.dtype)
        case "select":
            return lambda condition, true, false: true if condition else false
        case _:
            return scalar_meaning(step.op, operand)


def _array_step(step: Step, operand: DType) -> Meaning:
    match step.kind:
        case "cast":
            return array_cast(operand, step.dtype)
        case "bitcast":
            return array_bitcast(operand, step.dtype)
        case "select":
            return np.where
        case _:
            return array_meaning(step.op, operand)


def _array_literal(bits: int, dtype: DType) -> Array:
    storage = np.array(bits, dtype=f"<u{dtype.bytes}").view(dtype.storage)
    return from_storage(storage, dtype)


def _compiled(tape: Tape, meaning: Callable[[Step, DType], Meaning], literal: Callable[[int, DType], Any]) -> Meaning:
    """One Python function that runs the steps; a name is used again once its value is no longer needed."""
    last_use = {operand: position for position, step in enumerate(tape.steps) for operand in step.operands}
    names = {0: "r0"}
    free: list[str] = []
    scope: dict[str, Any] = {}
    lines = ["def run(r0):"]
    for position, step in enumerate(tape.steps):
        if step.kind == "lit":
            names[position] = f"c{position}"
            scope[names[position]] = literal(step.bits, step.dtype)
        elif step.kind != "arg":
            operands = [names[k] for k in step.operands]
            spent = [k for k in dict.fromkeys(step.operands) if last_use[k] == position]
            free += [names[k] for k in spent if tape.steps[k].kind != "lit"]
            names[position] = free.pop() if free else f"r{position}"
            scope[f"f{position}"] = meaning(step, tape.steps[step.operands[0]].dtype)
            lines.append(f"    {names[position]} = f{position}({', '.join(operands)})")
    lines.append(f"    return {names[tape.result]}")
    exec("\n".join(lines), scope)
    compiled: Meaning = scope["run"]
    return compiled


@cache
def scalar_runner(tape: Tape) -> Meaning:
    """The function of a tape on one element."""
    return _compiled(tape, _scalar_step, from_bits)


@cache
def array_runner(tape: Tape) -> Meaning:
    """The function of a tape on value arrays."""
    return _compiled(tape, _array_step, _array_literal)


def run_tape_array(tape: Tape, x: Array) -> Array:
    """The values of a tape's function for an array of arguments."""
    return np.asarray(array_runner(tape)(np.asarray(x)))
