"""How is an expression written for vectors of lanes? What all lanes know from one of them once, as a scalar; all other
in every lane. Which is which, ``vyre.analyze.shapes`` says.

The value of a lane that is not active means nothing, but computing it is always safe.
"""

from __future__ import annotations

from typing import Final

from vyre.analyze.shapes import Layout
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.accesses import Accesses
from vyre.emit.llvm.memory import ALL, NONE
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import ELEMENT, STORED, shaped, spread
from vyre.emit.llvm.values import Cell, Shape, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.semantics.operators import OPERATORS
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.scalars import to_bits
from vyre.semantics.types import DType

__all__ = ["ALL", "NONE", "Expressions"]

_WORDS: Final = (DType.U32, DType.I32)
# The longest vector that a permutation takes, and the bits of the elements that registers hold.
_REGISTER_BITS: Final = 512
_BITS: Final = {"float": 32, "double": 64, **{f"i{bits}": bits for bits in (8, 16, 32, 64)}}
# Stands for an operand that is at hand as a value.
_GIVEN: Final = n.Var("")


class Expressions(Accesses):
    """Writes expressions; ``id_values`` are the ids as the vector at hand has them.

    ``slots`` are buffers of which every vector has a part to itself, and reads it like a variable; ``fills`` are
    where it puts the next value. In a search, comparisons make words. ``remainders`` are the dividends and the one
    divisor of what is the remainder of a division by one scalar.
    """

    def __init__(self, width: int, layout: Layout) -> None:
        super().__init__(width, layout)
        self.chunk = ""
        self.is_searching = False
        self.scratch = 0
        self.values: dict[str, Value] = {}
        self.remainders: dict[str, tuple[str, str]] = {}
        self.cells: dict[str, Cell] = {}
        self.slots: dict[str, Cell] = {}
        self.fills: dict[str, Cell] = {}
        self.id_values: dict[tuple[type[n.Expr], int], Value] = {}

    def _address(self, cell: Cell) -> str:
        if cell.pointer:
            return cell.pointer
        code = self.code
        wide = code.put(f"zext i32 {self.chunk} to i64")
        offset = code.put(f"mul i64 {wide}, {cell.stride}")
        start = code.put(f"getelementptr i8, ptr %scratch, i64 {cell.offset}")
        return code.put(f"getelementptr i8, ptr {start}, i64 {offset}")

    def _read(self, cell: Cell) -> Value:
        assert cell.dtype is not None
        kind = shaped(ELEMENT[cell.dtype], self.width if cell.varying else 0)
        return Value(cell.dtype, cell.shape, self._fetch(kind, self._address(cell), cell.is_word))

    def reserve(self, size: int) -> int:
        offset = self.scratch
        self.scratch += -(-size // 64) * 64
        return offset

    def uniform(self, root: n.Expr) -> str:
        """The scalar that an expression without variables gives, before any run."""
        value = self._evaluate(root)
        assert value.shape is Shape.UNIFORM
        return value.text

    def _evaluate(self, root: n.Expr) -> Value:
        return walk.fold(root, self._expression)

    def _expression(self, node: n.Expr, given: list[Value]) -> Value:
        match node:
            case n.Var(name):
                value = self.values.get(name)
                return value if value is not None else self._read(self.cells[name])
            case n.Lit(bits, dtype):
                return Value(dtype, Shape.UNIFORM, self.scalar.literal(bits, dtype))
            case n.Load(buffer) if buffer in self.slots:
                return self._read(self.slots[buffer])
            case n.Load():
                return self._load(node, given[0])
            case n.InvocationId(axis) | n.WorkgroupId(axis) | n.LocalId(axis):
                return self._known(self.id_values[type(node), axis], self.layout.shape_of(node))
            case n.NumWorkgroups(axis):
                return Value(DType.U32, Shape.UNIFORM, f"%grid.{'xyz'[axis]}")
            case n.BufLen(buffer):
                return Value(DType.U32, Shape.UNIFORM, self.places[buffer].length)
            case n.BinOp() | n.UnOp() | n.Select() | n.Cast() | n.Bitcast() | n.Fma():
                return self._operator(node, given)
            case n.Atomic():
                expected = given[1] if node.expected is not None else None
                operand = given[-1] if node.value is not None else None
                old = self._atomic(node, given[0], expected, operand)
                return self._known(old, self.layout.shape_of(node))
            case _:
                return self._known(self._subgroup(node, given), self.layout.shape_of(node))

    def _known(self, value: Value, shape: Shape) -> Value:
        """A value by its shape: where that tells about the other lanes, lane 0's is enough."""
        if shape is Shape.VARYING:
            return value
        text = value.text
        if value.shape is Shape.VARYING:
            text = self.code.put(f"extractelement {shaped(ELEMENT[value.dtype], self.width)} {text}, i32 0")
        return Value(value.dtype, shape, text)

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        return self._operator(n.BinOp(op, _GIVEN, _GIVEN), [a, b])

    def _operator(self, node: n.BinOp | n.UnOp | n.Select | n.Cast | n.Bitcast | n.Fma, given: list[Value]) -> Value:
        """Lane 0 of a result is made from lane 0 of the operands, so that is enough where its shape tells the rest."""
        shape = self.layout.shape_of(node, [value.shape for value in given])
        dtype = given[0].dtype
        if self.is_searching and shape is Shape.VARYING and isinstance(node, n.BinOp):
            beyond = self._lanes_beyond(node.op, *given)
            if beyond:
                return Value(DType.BOOL, shape, beyond)
        if shape is Shape.VARYING:
            lanes, texts = self.vector, [self._vector(value) for value in given]
        else:
            lanes, texts = self.scalar, [value.text for value in given]
        match node:
            case n.BinOp("div" | "mod" as op) if shape is Shape.VARYING and dtype in _WORDS and _is_variable(given[1]):
                text = lanes.divide_by_one(op, dtype, texts[0], given[1].text)
                if op == "mod":
                    self.remainders[text] = texts[0], given[1].text
                return Value(dtype, shape, text)
            case n.BinOp("eq" | "ne" as op) if given[0].text in self.remainders and given[1].text == "0":
                holds = self._is_multiple(dtype, *self.remainders[given[0].text])
                return Value(DType.BOOL, shape, holds if op == "eq" else self._not(holds))
            case n.BinOp("and" | "or" | "xor" as op) if shape is Shape.VARYING and dtype is DType.BOOL:
                return Value(dtype, shape, self._joined(op, *texts))
            case n.BinOp(op):
                return Value(OPERATORS[op].result_type(dtype), shape, lanes.binary(op, dtype, *texts))
            case n.UnOp(op):
                return Value(OPERATORS[op].result_type(dtype), shape, lanes.unary(op, dtype, *texts))
            case n.Select() if (
                shape is Shape.VARYING and given[1].dtype is DType.BOOL and not self.words.keys().isdisjoint(texts)
            ):
                return Value(DType.BOOL, shape, self._chosen(*texts))
            case n.Select():
                chosen = given[1].dtype
                return Value(chosen, shape, lanes.select(texts[0], ELEMENT[chosen], texts[1], texts[2]))
            case n.Cast(target):
                if dtype is target:
                    return given[0]
                return Value(target, shape, lanes.cast(dtype, target, texts[0]))
            case n.Bitcast(target):
                return Value(target, shape, lanes.bitcast(dtype, target, texts[0]))
            case n.Fma():
                return Value(dtype, shape, lanes.fma(dtype, *texts))

    def _is_multiple(self, dtype: DType, a: str, b: str) -> str:
        equal, always = self.vector.is_multiple(dtype, a, b)
        if self.is_searching:
            return self._joined("or", equal, self._as_mask(self.code.put(f"sext i1 {always} to i{self.width}")))
        return self.vector.op("or", "i1", equal, spread(self.code, "i1", always, self.width))

    def _atomic(
        self, node: n.Atomic, index: Value, expected: Value | None, operand: Value | None, *, wanted: bool = True
    ) -> Value:
        place, proved = self.places[node.buffer], self._is_proved(node)
        if not self.width:
            texts = ("" if x is None else x.text for x in (operand, expected))
            old = m.change_one(self.code, node.op, place, index.text, *texts, checked=not proved)
            return Value(place.dtype, Shape.UNIFORM, old)
        vector = self._vector(index)
        mask = self._allowed(place, vector, proved)
        given, awaited = (NONE if x is None else self._vector(x) for x in (operand, expected))
        old = m.change_each(self.code, node.op, place, vector, given, awaited, mask, self.width, wanted=wanted)
        return Value(place.dtype, Shape.VARYING, old)

    def _subgroup(self, node: n.Expr, given: list[Value]) -> Value:
        code, width = self.code, self.width
        match node:
            case n.SubgroupLocalId():
                return Value(DType.U32, Shape.LINEAR, "0")
            case n.SubgroupSize():
                return Value(DType.U32, Shape.UNIFORM, str(self.step))
            case n.SubgroupBallot():
                votes = self._and(self.mask, self._vector(given[0]))
                bits = code.put(f"bitcast <{width} x i1> {votes} to i{width}")
                return Value(
                    DType.U32, Shape.UNIFORM, bits if width == 32 else code.put(f"zext i{width} {bits} to i32")
                )
            case n.SubgroupReduce(op):
                return Value(given[0].dtype, Shape.UNIFORM, self._reduce(op, given[0]))
            case n.SubgroupShuffle():
                return self._shuffle(given[0], given[1])
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression of a kernel")

    def _reduce(self, op: str, value: Value) -> str:
        """The values of the active lanes as one: lane i takes lane i + ceil(n/2), and so on, as
        ``vyre.semantics.reductions`` says.

        Of the last four integers of a sum, neighbours are added first. LLVM would know four halved twice for the sum of
        a vector. Small numbers it then adds as bytes, also where it finds out that they are small too late to have
        vectors of so few bytes, and breaks off.
        """
        code, dtype = self.code, value.dtype
        element = ELEMENT[dtype]
        identity = to_bits(reduction_identity(op, dtype), dtype)
        text = self.vector.select(self.mask, element, self._vector(value), self.vector.literal(identity, dtype))
        is_sum = op == "add" and dtype.is_integer
        # How many values there are, how far each is from the one before, and how many lanes hold them.
        lanes, apart, held = self.step, 1, self.width
        while lanes > 1:
            half = (lanes + 1) // 2
            # A lane without another is combined with the identity, which is the first element of the other vector.
            if is_sum and lanes == 4:
                low, high, apart = [0, 1, 2, 3], [1, held, 3, held], 2
            else:
                kept, numbers = max(2, half), [*range(0, lanes * apart, apart), held]
                low, high, apart = numbers[:kept], numbers[half : half + kept], 1
            kind, nothing = shaped(element, held), Lanes(code, held).literal(identity, dtype)
            lanes, held = half, len(low)
            parts = []
            for numbers in (low, high):
                places = ", ".join(f"i32 {number}" for number in numbers)
                parts.append(code.put(f"shufflevector {kind} {text}, {kind} {nothing}, <{held} x i32> <{places}>"))
            text = Lanes(code, held).binary(op, dtype, *parts)
        return code.put(f"extractelement {shaped(element, held)} {text}, i32 0")

    def _shuffle(self, value: Value, lane: Value) -> Value:
        """The value of another lane: zero where there is no such lane, or where it is not active.

        Vectors of one register are permuted, and those of two as two halves. Longer ones go through memory.
        """
        code, width, element = self.code, self.width, ELEMENT[value.dtype]
        text = self.vector.select(self.mask, element, self._vector(value), NONE)
        wanted = self._vector(lane)
        if element == "i1":
            text, element = self.vector.convert("zext", "i1", text, "i8"), "i8"
        most = _REGISTER_BITS // _BITS[element]
        if width <= most:
            moved = self._permuted(element, text, wanted, width)
        elif width == 2 * most:
            moved = self._permuted_halves(element, text, wanted, most)
        else:
            return self._shuffle_in_memory(value.dtype, text, wanted)
        inside = code.put(f"icmp ult {shaped('i32', width)} {wanted}, {spread(code, 'i32', str(self.step), width)}")
        # A lane that does not exist gives poison, which is not chosen.
        moved = self.vector.select(inside, element, moved, NONE)
        if value.dtype is DType.BOOL:
            moved = self.vector.op("icmp ne", "i8", moved, NONE)
        return Value(value.dtype, Shape.VARYING, moved)

    def _permuted(self, element: str, text: str, wanted: str, lanes: int) -> str:
        """The elements that the lanes ask for, one by one: LLVM makes one permutation of it, and one without a table
        if it finds out which lanes they are.
        """
        code, kind = self.code, shaped(element, lanes)
        made = "poison"
        for lane in range(lanes):
            place = code.put(f"extractelement {shaped('i32', lanes)} {wanted}, i32 {lane}")
            taken = code.put(f"extractelement {kind} {text}, i32 {place}")
            made = code.put(f"insertelement {kind} {made}, {element} {taken}, i32 {lane}")
        return made

    def _permuted_halves(self, element: str, text: str, wanted: str, lanes: int) -> str:
        """Each half of the result is chosen from permutations of both halves."""
        code, places = self.code, shaped("i32", lanes)

        def halves(kind: str, vector: str) -> list[str]:
            numbers = (range(lanes), range(lanes, 2 * lanes))
            masks = (", ".join(f"i32 {number}" for number in half) for half in numbers)
            return [code.put(f"shufflevector {kind} {vector}, {kind} poison, {places} <{mask}>") for mask in masks]

        sources = halves(shaped(element, 2 * lanes), text)
        parts = []
        for asked in halves(shaped("i32", 2 * lanes), wanted):
            within = code.put(f"and {places} {asked}, {spread(code, 'i32', str(lanes - 1), lanes)}")
            low, high = (self._permuted(element, source, within, lanes) for source in sources)
            is_low = code.put(f"icmp ult {places} {asked}, {spread(code, 'i32', str(lanes), lanes)}")
            parts.append(Lanes(code, lanes).select(is_low, element, low, high))
        kind, every = shaped(element, lanes), ", ".join(f"i32 {number}" for number in range(2 * lanes))
        return code.put(f"shufflevector {kind} {parts[0]}, {kind} {parts[1]}, <{2 * lanes} x i32> <{every}>")

    def _shuffle_in_memory(self, dtype: DType, text: str, wanted: str) -> Value:
        code, width = self.code, self.width
        held = DType.F32 if ELEMENT[dtype] == "float" else DType.U8 if dtype is DType.BOOL else dtype
        kind = shaped(STORED[held], width)
        board = code.allocate(kind)
        code.do(f"store {kind} {self.vector.to_memory(held, text)}, ptr {board}, align 64")
        place = m.Place(board, str(self.step), held, True)
        mask = self._and(self.mask, m.in_bounds(code, place, wanted, width))
        taken = self.vector.from_memory(held, m.gather(code, place, wanted, mask, width))
        if dtype is DType.BOOL:
            taken = self.vector.op("icmp ne", "i8", taken, NONE)
        return Value(dtype, Shape.VARYING, taken)


def _is_variable(value: Value) -> bool:
    """Whether a value is one scalar that is not known yet."""
    return value.shape is Shape.UNIFORM and value.text.startswith("%")
