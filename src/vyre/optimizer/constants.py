"""How does a kernel compute a term that is made of literals? As an expression of 64 bits, whatever the types are.

What a type has of its own (its width, its sign, one as a float) is found from its code, so that nothing is written
once for each type. Bits above those of a type are 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from vyre.ir import build as b
from vyre.ir import nodes as n
from vyre.ir.nodes import Expr
from vyre.optimizer.arena import TYPE_CODES
from vyre.optimizer.folding import is_type, ones_of, wide, width_of
from vyre.optimizer.patterns import Fixed, Literal, Operation, Term, fixed_bits
from vyre.semantics.types import SIGNED, DType


class Constants(ABC):
    """Writes terms. Who does it says where bits and codes are, and which types a name may stand for."""

    @abstractmethod
    def bits(self, name: str) -> Expr:
        """The bits of a literal."""

    @abstractmethod
    def code(self, type_name: str) -> Expr:
        """The code of the type that a name stands for."""

    @abstractmethod
    def types(self, type_name: str) -> Sequence[DType]:
        """The types that a name may stand for."""

    @abstractmethod
    def named(self, what: str, type_name: str, value: Expr) -> Expr:
        """A value that depends on a type alone, which may be given a name."""

    def width(self, type_name: str) -> Expr:
        return self.named("width", type_name, width_of(self.code(type_name)))

    def ones(self, type_name: str) -> Expr:
        return self.named("ones", type_name, ones_of(self.width(type_name)))

    def sign(self, type_name: str) -> Expr:
        """The bit of a type's sign; 0 if it has none."""
        if not self.may_be_signed(type_name):
            return wide(0)
        ones = self.ones(type_name)
        sign = b.select(is_type(self.code(type_name), SIGNED), ones ^ ones >> wide(1), wide(0))
        return self.named("sign", type_name, sign)

    def may_be_signed(self, type_name: str) -> bool:
        return not set(SIGNED).isdisjoint(self.types(type_name))

    def constant(self, term: Term) -> Expr:
        """The bits of a term made of literals, as a u64; a bool where it compares."""
        match term:
            case Literal(name):
                return self.bits(name)
            case Fixed(value):
                return self._fixed(value, term.type)
            case Operation("cast", (operand,)):
                bits, sign = self.constant(operand), self.sign(operand.type)
                return (bits ^ sign) - sign & self.ones(term.type)
            case Operation(name, operands):
                return self._computed(name, [self.constant(one) for one in operands], operands[0].type)
        raise TypeError("a value is not a constant")

    def _fixed(self, value: bool | int | float | str, type_name: str) -> Expr:
        match value:
            case "ONES":
                return self.ones(type_name)
            case "MIN":
                return self.sign(type_name)
            case "MAX":
                return self.ones(type_name) ^ self.sign(type_name)
            case "WIDTH":
                return self.width(type_name)
        assert not isinstance(value, str)
        types = self.types(type_name)
        made: Expr = wide(0)
        if not all(dtype.is_float for dtype in types):
            made = wide(int(value)) if value >= 0 else wide((1 << 64) + int(value)) & self.ones(type_name)
        floats = [dtype for dtype in types if dtype.is_float and fixed_bits(value, dtype)]
        for dtype in floats:
            made = b.select(self.code(type_name).eq(TYPE_CODES[dtype]), wide(fixed_bits(value, dtype)), made)
        return self.named(f"{value} {types}", type_name, made) if floats else made

    def _computed(self, name: str, operands: list[Expr], type_name: str) -> Expr:
        """An operator of integers, on their bits."""
        one, other = operands[0], operands[-1]
        match name:
            case "and" | "or" | "xor" | "eq" | "ne":
                return n.BinOp(name, one, other)
            case "add" | "sub" | "mul":
                return n.BinOp(name, one, other) & self.ones(type_name)
            case "neg":
                return wide(0) - one & self.ones(type_name)
            case "not":
                return one ^ self.ones(type_name)
            case "popcount":
                return b.popcount(one)
            case "ctz":
                return b.minimum(b.ctz(one), self.width(type_name))
            case "clz":
                return b.clz(one) - (wide(64) - self.width(type_name))
            case "shl" | "shr" | "rotl" | "rotr":
                return self._shifted(name, one, other & self.width(type_name) - wide(1), type_name)
            case "sat_add":
                assert not self.may_be_signed(type_name)
                return b.minimum(b.sat_add(one, other), self.ones(type_name))
        sign = self.sign(type_name)
        order = n.BinOp({"min": "lt", "max": "gt"}.get(name, name), one ^ sign, other ^ sign)
        return b.select(order, one, other) if name in ("min", "max") else order

    def _shifted(self, name: str, one: Expr, amount: Expr, type_name: str) -> Expr:
        ones = self.ones(type_name)
        if name == "shl":
            return one << amount & ones
        if name == "shr":
            if not self.may_be_signed(type_name):
                return one >> amount
            sign = self.sign(type_name)
            extended = b.bitcast(DType.I64, (one ^ sign) - sign) >> b.bitcast(DType.I64, amount)
            return b.select(sign.eq(wide(0)), one >> amount, b.bitcast(DType.U64, extended) & ones)
        if name == "rotl":
            amount = self.width(type_name) - amount & self.width(type_name) - wide(1)
        return one >> amount | one << self.width(type_name) - amount & ones
