"""Expressions in WGSL: one statement per operation, in the order of evaluation."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final

import msgspec

from vyre.emit.wgsl import memory as m
from vyre.emit.wgsl import operators as o
from vyre.emit.wgsl.library import functions
from vyre.emit.wgsl.text import Lines, Names, literal
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.semantics.math import tape
from vyre.semantics.operators import MATH_FUNCTIONS, OPERATORS
from vyre.semantics.types import DType

_MATH: Final = frozenset(MATH_FUNCTIONS)
_AXES: Final = "xyz"
# A zero that compilers cannot prove to be zero.
HIDDEN_ZERO: Final = "hidden_zero"
OVERRUN: Final = "overrun"
_COMPUTED: Final = (n.BinOp, n.UnOp, n.Cast, n.Bitcast, n.Select, n.Fma)


class Value(msgspec.Struct, frozen=True):
    """A value as text. ``is_name``: a name, a field or a constant; otherwise an operation that is not bound yet."""

    dtype: DType
    text: str
    is_name: bool = True
    is_constant: bool = False


class Expressions:
    """Writer of expressions into ``lines``; collects the functions that they call."""

    def __init__(self) -> None:
        self.lines = Lines()
        self.names = Names(frozenset((*functions(), HIDDEN_ZERO, OVERRUN)))
        self.library: dict[str, None] = {}
        self.own_functions: dict[Hashable, tuple[str, str]] = {}
        self.places: dict[str, m.Place] = {}
        self.variables: dict[str, Value] = {}
        self.builtins: dict[str, str] = {}
        # The loads and stores, by identity, whose index is always in bounds.
        self.proved: frozenset[int] = frozenset()
        self.subgroup_size = 1
        self._hiding = False

    def use(self, name: str) -> str:
        """Request a library function; return its name."""
        self.library[name] = None
        return name

    def function(self, key: Hashable, hint: str, write: Callable[[str], str]) -> str:
        """Return the name of a function generated for this kernel; it is written on first use."""
        found = self.own_functions.get(key)
        if found is None:
            name = self.names.make(hint)
            found = self.own_functions[key] = name, write(name)
        return found[0]

    def builtin(self, name: str) -> str:
        """Return the kernel's parameter for one of WGSL's builtin values."""
        if name not in self.builtins:
            self.builtins[name] = self.names.make(_BUILTIN_HINTS[name])
        return self.builtins[name]

    def bind(self, value: Value) -> Value:
        """Bind a value to a name."""
        if value.is_name and not value.is_constant:
            return value
        name = self.names.make("t")
        self.lines.add(f"let {name} = {value.text};")
        return Value(value.dtype, name)

    def shared(self, root: n.Expr) -> Value:
        """Return the value of an expression that other expressions may use.

        Mesa 22 walks every path from a branch condition to the uniforms it depends on. Shared values make the number of
        paths exponential, so uniforms in shared values are combined with the hidden zero, which ends the path.
        """
        self._hiding = True
        value = self.evaluate(root)
        self._hiding = False
        return value

    def evaluate(self, root: n.Expr) -> Value:
        """Return the value of an expression; its last operation is not bound yet."""

        def combine(node: n.Expr, given: list[Value]) -> Value:
            # WGSL evaluates constant expressions at compile time, and rejects those that overflow.
            if type(node) in _COMPUTED and all(value.is_constant for value in given):
                given[0] = self.bind(given[0])
            value = self._expression(node, given)
            return value if value.is_name or node is root else self.bind(value)

        return walk.fold(root, combine)

    def named(self, root: n.Expr) -> Value:
        """Return the value of an expression as a name or a constant."""
        value = self.evaluate(root)
        return value if value.is_name else self.bind(value)

    def _expression(self, node: n.Expr, given: list[Value]) -> Value:
        texts = [value.text for value in given]
        match node:
            case n.Var(name):
                return self.variables[name]
            case n.Lit(bits, dtype):
                return self._literal(bits, dtype)
            case n.BinOp(op):
                dtype = given[0].dtype
                return self._operation(
                    OPERATORS[op].result_type(dtype), o.binary(op, dtype, texts[0], texts[1], self.use)
                )
            case n.UnOp(op):
                return self._unary(op, given[0])
            case n.Load(buffer):
                place, proved = self.places[buffer], id(node) in self.proved
                name = self.function(
                    ("load", buffer, proved),
                    f"{'get' if proved else 'load'}_{place.name}",
                    lambda name: m.load_function(place, name, self.use, proved=proved),
                )
                return self._operation(place.dtype, f"{name}({texts[0]})")
            case n.BufLen(buffer):
                place = self.places[buffer]
                if place.decl.count:
                    return Value(DType.U32, place.length, is_constant=True)
                return self._uniform(place.length)
            case n.InvocationId(axis):
                return Value(DType.U32, f"{self.builtin('global_invocation_id')}.{_AXES[axis]}")
            case n.WorkgroupId(axis):
                return Value(DType.U32, f"{self.builtin('workgroup_id')}.{_AXES[axis]}")
            case n.LocalId(axis):
                return Value(DType.U32, f"{self.builtin('local_invocation_id')}.{_AXES[axis]}")
            case n.NumWorkgroups(axis):
                return self._uniform(f"launch.grid.{_AXES[axis]}")
            case n.Select():
                return self._operation(given[1].dtype, f"select({texts[2]}, {texts[1]}, {texts[0]})")
            case n.Cast(target):
                return self._operation(target, o.cast(given[0].dtype, target, texts[0], self.use))
            case n.Bitcast(target):
                return self._operation(target, o.bitcast(given[0].dtype, target, texts[0], self.use))
            case n.Fma():
                return self._operation(DType.F32, f"{self.use('fma_f32')}({', '.join(texts)})")
            case n.Atomic():
                return self._atomic(node, texts)
            case n.SubgroupLocalId():
                return self._operation(DType.U32, f"{self.builtin('local_invocation_index')} % {self.subgroup_size}u")
            case n.SubgroupSize():
                return Value(DType.U32, f"{self.subgroup_size}u", is_constant=True)
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression of a kernel")

    def _uniform(self, text: str) -> Value:
        if self._hiding:
            return self._operation(DType.U32, f"{HIDDEN_ZERO} ^ {text}")
        return Value(DType.U32, text)

    def _literal(self, bits: int, dtype: DType) -> Value:
        text = literal(bits, dtype)
        if dtype.is_float:
            return Value(dtype, f"{self.use('kept')}({text})")
        return Value(dtype, text, is_constant=True)

    def _operation(self, dtype: DType, text: str) -> Value:
        return Value(dtype, text, is_name=False)

    def _unary(self, op: str, operand: Value) -> Value:
        dtype = operand.dtype
        if op in _MATH:
            name = self.function((op, dtype), f"{op}_{dtype.label}", lambda name: self._math_function(op, dtype, name))
            return self._operation(dtype, f"{name}({operand.text})")
        return self._operation(OPERATORS[op].result_type(dtype), o.unary(op, dtype, operand.text, self.use))

    def _math_function(self, op: str, dtype: DType, name: str) -> str:
        """Return a function that computes the steps of a math function's tape."""
        lines = Lines()
        values: list[Value] = []
        steps = tape(op, dtype).steps
        with lines.block(f"fn {name}(x: f32) -> f32"):
            for number, step in enumerate(steps):
                given = [values[position] for position in step.operands]
                texts = [value.text for value in given]
                match step.kind:
                    case "arg":
                        values.append(Value(dtype, "x"))
                        continue
                    case "lit":
                        values.append(self._literal(step.bits, step.dtype))
                        continue
                    case "select":
                        text = f"select({texts[2]}, {texts[1]}, {texts[0]})"
                    case "cast":
                        text = o.cast(given[0].dtype, step.dtype, texts[0], self.use)
                    case "bitcast":
                        text = o.bitcast(given[0].dtype, step.dtype, texts[0], self.use)
                    case "op" if len(given) == 1:
                        text = o.unary(step.op, given[0].dtype, texts[0], self.use)
                    case _:
                        text = o.binary(step.op, given[0].dtype, texts[0], texts[1], self.use)
                lines.add(f"let s{number} = {text};")
                values.append(Value(step.dtype, f"s{number}"))
            lines.add(f"return {values[-1].text};")
        return lines.text

    def _atomic(self, node: n.Atomic, texts: list[str]) -> Value:
        place = self.places[node.buffer]
        name = self.function(
            (node.op, node.buffer),
            f"atomic_{node.op.value}_{place.name}",
            lambda name: m.atomic_function(place, name, node.op),
        )
        return self._operation(place.dtype, f"{name}({', '.join(texts)})")

    def declare(self, name: str, dtype: DType) -> str:
        """Return a name for a variable of the program."""
        made = self.names.make(name)
        self.variables[name] = Value(dtype, made)
        return made


_BUILTIN_HINTS: Final = {
    "global_invocation_id": "gid",
    "workgroup_id": "wg",
    "local_invocation_id": "lid",
    "local_invocation_index": "lane",
    "num_workgroups": "launched",
}
