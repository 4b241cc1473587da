"""Expressions in LLVM IR: uniform and strided values as scalars of lane 0, varying values as vectors.

``vyre.analyze.shapes`` classifies the values. The value of an inactive lane is unspecified, but computing it is always
safe.
"""

from __future__ import annotations

from typing import Final

import msgspec

from vyre.analyze.shapes import Layout, Shape
from vyre.analyze.workgroup_independence import COMMUTATIVE
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.accesses import Accesses
from vyre.emit.llvm.memory import NONE
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import ELEMENT, STORED, shaped, spread
from vyre.emit.llvm.values import Cell, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.semantics.operators import OPERATORS, AtomicOp
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.scalars import scalar_meaning, to_bits
from vyre.semantics.types import DType

_WORDS: Final = (DType.U32, DType.I32)
# A placeholder for an operand that is already a value.
_GIVEN: Final = n.Var("")


class Expressions(Accesses):
    """Writer of expressions; ``id_values`` are the ids of the current vector, ``token`` the set of current lanes.

    ``slots`` are the cells from which a vector loads the state of the previous segment, ``next_slots`` those in which
    it stores the state for the next. In a search loop, comparisons produce words. ``remainders`` maps the text of a
    remainder by a uniform divisor to its dividend and divisor.
    """

    def __init__(self, width: int, layout: Layout) -> None:
        super().__init__(width, layout)
        self.chunk = ""
        self.token = 0
        self.is_searching = False
        self.scratch = 0
        self.values: dict[str, Value] = {}
        self.remainders: dict[str, tuple[str, str]] = {}
        self.cells: dict[str, Cell] = {}
        self.slots: dict[str, Cell] = {}
        self.next_slots: dict[str, Cell] = {}
        self.id_values: dict[tuple[type[n.Expr], int], Value] = {}

    def new_cell(self, dtype: DType, shape: Shape, *, is_word: bool = False) -> Cell:
        """Allocate a cell in stack memory, declared by the current lanes."""
        cell = Cell(dtype, shape, self.token, is_word=is_word)
        return msgspec.structs.replace(cell, pointer=self.code.allocate(cell.kind(self.width)))

    def _address(self, cell: Cell) -> str:
        if cell.pointer:
            return cell.pointer
        code = self.code
        wide = code.put(f"zext i32 {self.chunk} to i64")
        offset = code.put(f"mul i64 {wide}, {cell.stride}")
        start = code.put(f"getelementptr i8, ptr %scratch, i64 {cell.offset}")
        return code.put(f"getelementptr i8, ptr {start}, i64 {offset}")

    def _read(self, cell: Cell) -> Value:
        text = self.code.put(f"load {cell.kind(self.width)}, ptr {self._address(cell)}, align 8")
        return Value(cell.dtype, cell.shape, self._as_mask(text) if cell.is_word else text)

    def _write(self, cell: Cell, value: Value) -> None:
        text = self._vector(value) if cell.varying else value.text
        if cell.is_word:
            text = self._word(text)
        self.code.do(f"store {cell.kind(self.width)} {text}, ptr {self._address(cell)}, align 8")

    def reserve(self, size: int) -> int:
        offset = self.scratch
        self.scratch += -(-size // 64) * 64
        return offset

    def uniform(self, root: n.Expr) -> str:
        """Return the scalar value of an expression without variables, outside of runs."""
        value = self._evaluate(root)
        assert value.shape is Shape.UNIFORM
        return value.text

    def _evaluate(self, root: n.Expr) -> Value:
        known = self.facts.values
        return walk.fold_to_leaves(root, self._expression, known) if known else walk.fold(root, self._expression)

    def _in_row(self, value: Value) -> Value:
        """Return lane 0 of a value of a row's facts."""
        if not value.shape.stride:
            return value
        element, place = ELEMENT[value.dtype], self.row_place
        if element != "i64":
            place = self.code.put(f"trunc i64 {place} to {element}")
        return Value(value.dtype, value.shape, self.scalar.op("add", element, value.text, place))

    def _expression(self, node: n.Expr, given: list[Value]) -> Value:
        known = self.facts.values.get(id(node))
        if known is not None:
            return self._in_row(known)
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
                return self._with_shape(self.id_values[type(node), axis], self.layout.shape_of(node))
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
                return self._with_shape(old, self.layout.shape_of(node))
            case _:
                return self._with_shape(self._subgroup(node, given), self.layout.shape_of(node))

    def _with_shape(self, value: Value, shape: Shape) -> Value:
        """Give a value its shape; if the shape determines the other lanes, keep only lane 0."""
        if shape is Shape.VARYING:
            return value
        text = value.text
        if value.shape is Shape.VARYING:
            text = self.code.put(f"extractelement {shaped(ELEMENT[value.dtype], self.width)} {text}, i32 0")
        return Value(value.dtype, shape, text)

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        return self._operator(n.BinOp(op, _GIVEN, _GIVEN), [a, b])

    def _operator(self, node: n.BinOp | n.UnOp | n.Select | n.Cast | n.Bitcast | n.Fma, given: list[Value]) -> Value:
        """Apply an operator; if the shape determines the other lanes, to lane 0 of the operands only."""
        shape = self.layout.shape_of(node, [value.shape for value in given])
        dtype = given[0].dtype
        if self.is_searching and shape is Shape.VARYING and isinstance(node, n.BinOp):
            beyond = self._compare_with_linear(node.op, *given)
            if beyond:
                return Value(DType.BOOL, shape, beyond)
        if shape is Shape.VARYING:
            lanes, texts = self.vector, [self._vector(value) for value in given]
        else:
            lanes, texts = self.scalar, [value.text for value in given]
        match node:
            case n.BinOp(op) if _is_constant(shape, dtype, texts) and OPERATORS[op].result_type(dtype) is dtype:
                return Value(dtype, shape, str(scalar_meaning(op, dtype)(*map(int, texts))))
            case n.BinOp("div" | "mod" as op) if shape is Shape.VARYING and dtype in _WORDS and _is_variable(given[1]):
                text = lanes.divide_by_one(op, dtype, texts[0], given[1].text)
                if op == "mod":
                    self.remainders[text] = texts[0], given[1].text
                return Value(dtype, shape, text)
            case n.BinOp("eq" | "ne" as op) if given[0].text in self.remainders and given[1].text == "0":
                holds = self._is_multiple(dtype, *self.remainders[given[0].text])
                return Value(DType.BOOL, shape, holds if op == "eq" else self._not(holds))
            case n.BinOp("and" | "or" | "xor" as op) if shape is Shape.VARYING and dtype is DType.BOOL:
                return Value(dtype, shape, self._combine(op, *texts))
            case n.BinOp(op):
                return Value(OPERATORS[op].result_type(dtype), shape, lanes.binary(op, dtype, *texts))
            case n.UnOp(op):
                return Value(OPERATORS[op].result_type(dtype), shape, lanes.unary(op, dtype, *texts))
            case n.Select() if (
                shape is Shape.VARYING and given[1].dtype is DType.BOOL and not self.words.keys().isdisjoint(texts)
            ):
                return Value(DType.BOOL, shape, self._select_mask(*texts))
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
            return self._combine("or", equal, self._as_mask(self.code.put(f"sext i1 {always} to i{self.width}")))
        return self.vector.op("or", "i1", equal, spread(self.code, "i1", always, self.width))

    def _atomic(
        self, node: n.Atomic, index: Value, expected: Value | None, operand: Value | None, *, wanted: bool = True
    ) -> Value:
        place, proved = self.places[node.buffer], self._is_proved(node)
        self._count("atomics")
        if not self.width:
            texts = ("" if x is None else x.text for x in (operand, expected))
            old = m.change_one(self.code, node.op, node.order, place, index.text, *texts, checked=not proved)
            return Value(place.dtype, Shape.UNIFORM, old)
        if node.op is AtomicOp.LOAD and node.order is n.MemoryOrder.RELAXED:
            # Elements are read whole by any load. The compiler must not reuse what an earlier load read.
            self.code.do('fence syncscope("singlethread") seq_cst')
            return self._load(node, index)
        if operand is not None and node.op in COMMUTATIVE and index.shape is Shape.UNIFORM:
            return self._combined_change(node, index.text, operand, proved)
        vector = self._vector(index)
        mask = self._allowed(place, vector, proved)
        given, awaited = (NONE if x is None else self._vector(x) for x in (operand, expected))
        old = m.change_each(
            self.code, node.op, node.order, place, vector, given, awaited, mask, self.width, wanted=wanted
        )
        return Value(place.dtype, Shape.VARYING, old)

    def _combined_change(self, node: n.Atomic, index: str, operand: Value, proved: bool) -> Value:
        """Change one element for all active lanes by one atomic; each lane's old value follows from those before it."""
        code, width, place, dtype = self.code, self.width, self.places[node.buffer], operand.dtype
        op = "add" if node.op is AtomicOp.SUB else node.op.value
        before, total = self._values_before(op, operand), self._reduce(op, operand)
        start, change, changed, end = (code.label(hint) for hint in ("start", "change", "changed", "end"))
        inside = "true" if proved else m.in_bounds(code, place, index, 0)
        if not self.has_active_lane:
            inside = code.put(f"and i1 {inside}, {self._any(self.mask)}")
        code.fall_through(start)
        code.branch(inside, change, end)
        code.begin(change)
        one = m.change_one(code, node.op, node.order, place, index, total, "", checked=False)
        first = spread(code, ELEMENT[dtype], one, width)
        olds = self.vector.binary("sub" if node.op is AtomicOp.SUB else op, dtype, first, before)
        code.fall_through(changed)
        code.fall_through(end)
        kind = shaped(ELEMENT[dtype], width)
        text = code.put(f"phi {kind} [ zeroinitializer, %{start} ], [ {olds}, %{changed} ]")
        return Value(dtype, Shape.VARYING, text)

    def _values_before(self, op: str, value: Value) -> str:
        """Combine, for each lane, the values of the active lanes before it: an exclusive scan of integers."""
        code, width, element = self.code, self.width, ELEMENT[value.dtype]
        identity = to_bits(reduction_identity(op, value.dtype), value.dtype)
        kind, nothing = shaped(element, width), self.vector.literal(identity, value.dtype)
        text = self.vector.select(self.mask, element, self._vector(value), nothing)

        def moved(text: str, distance: int) -> str:
            # The first element of the second vector is the identity.
            places = ", ".join(f"i32 {lane - distance if lane >= distance else width}" for lane in range(width))
            return code.put(f"shufflevector {kind} {text}, {kind} {nothing}, <{width} x i32> <{places}>")

        text, distance = moved(text, 1), 1
        while distance < width:
            text = self.vector.binary(op, value.dtype, text, moved(text, distance))
            distance *= 2
        return text

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
                return self._shuffle(node, given[0], given[1])
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression of a kernel")

    def _reduce(self, op: str, value: Value) -> str:
        """Reduce the active lanes as ``vyre.semantics.reductions`` defines: lane i takes lane i + ceil(n/2), and so on.

        Of the last four integers of a sum, neighbours are added first. LLVM would recognise two halvings of four as a
        vector reduction and add small numbers as bytes; if it finds only late that they are small, it has no vector
        type of so few bytes and aborts.
        """
        code, dtype = self.code, value.dtype
        element = ELEMENT[dtype]
        identity = to_bits(reduction_identity(op, dtype), dtype)
        text = self.vector.select(self.mask, element, self._vector(value), self.vector.literal(identity, dtype))
        is_sum = op == "add" and dtype.is_integer
        # The number of values, their distance in lanes, and the width of the vector that contains them.
        lanes, apart, vector_width = self.step, 1, self.width
        while lanes > 1:
            half = (lanes + 1) // 2
            # A lane without a partner is combined with the identity, which is the first element of the second vector.
            if is_sum and lanes == 4:
                low, high, apart = [0, 1, 2, 3], [1, vector_width, 3, vector_width], 2
            else:
                count, numbers = max(2, half), [*range(0, lanes * apart, apart), vector_width]
                low, high, apart = numbers[:count], numbers[half : half + count], 1
            kind, nothing = shaped(element, vector_width), Lanes(code, vector_width).literal(identity, dtype)
            lanes, vector_width = half, len(low)
            parts = []
            for numbers in (low, high):
                places = ", ".join(f"i32 {number}" for number in numbers)
                parts.append(
                    code.put(f"shufflevector {kind} {text}, {kind} {nothing}, <{vector_width} x i32> <{places}>")
                )
            text = Lanes(code, vector_width).binary(op, dtype, *parts)
        return code.put(f"extractelement {shaped(element, vector_width)} {text}, i32 0")

    def _shuffle(self, node: n.SubgroupShuffle, value: Value, lane: Value) -> Value:
        """Return the value of another lane; zero if that lane does not exist or is inactive.

        If the lane numbers are compile-time constants, this is one permutation. Otherwise the values are stored and
        loaded again: with one load for a uniform lane, one load between zeros for consecutive lanes, or a gather.
        """
        element = ELEMENT[value.dtype]
        text = self.vector.select(self.mask, element, self._vector(value), NONE)
        known = self._constant_lanes(node.lane)
        if known is not None:
            return Value(value.dtype, Shape.VARYING, self._permuted(value.dtype, text, known))
        stored_type = DType.F32 if element == "float" else value.dtype
        raw = self.vector.to_memory(stored_type, text)
        if lane.shape.stride == 1:
            taken = self._stored_among_zeros(stored_type, raw, lane.text)
        else:
            taken = self._stored_and_taken(stored_type, raw, lane)
        return Value(value.dtype, Shape.VARYING, self.vector.from_memory(stored_type, taken))

    def _constant_lanes(self, root: n.Expr) -> list[int] | None:
        """Return the value of a u32 expression in each lane if these are compile-time constants."""
        lanes = range(self.width)

        def constants(node: n.Expr, given: list[list[int] | None]) -> list[int] | None:
            match node:
                case n.Lit(bits, DType.U32):
                    return [bits] * self.width
                case n.SubgroupLocalId():
                    return list(lanes)
                case n.Var(name) if (known := self.values.get(name)) is not None and known.dtype is DType.U32:
                    stride, first = known.shape.stride, known.text
                    is_constant = stride is not None and first.isdecimal()
                    return [(int(first) + lane * (stride or 0)) % (1 << 32) for lane in lanes] if is_constant else None
                case n.BinOp(op) if OPERATORS[op].result_type(DType.U32) is DType.U32:
                    left, right = given
                    if left is None or right is None:
                        return None
                    return list(map(scalar_meaning(op, DType.U32), left, right))
                case _:
                    return None

        return walk.fold(root, constants)

    def _permuted(self, dtype: DType, text: str, lanes: list[int]) -> str:
        """Permute lanes; the zeros of a second vector stand for lanes that do not exist."""
        element = ELEMENT[dtype]
        if dtype is DType.BOOL:
            text, element = self.vector.convert("zext", "i1", text, "i8"), "i8"
        kind, width = shaped(element, self.width), self.width
        places = ", ".join(f"i32 {lane if lane < self.step else width}" for lane in lanes)
        moved = self.code.put(f"shufflevector {kind} {text}, {kind} {NONE}, <{width} x i32> <{places}>")
        return self.vector.op("icmp ne", "i8", moved, NONE) if dtype is DType.BOOL else moved

    def _stored_among_zeros(self, dtype: DType, raw: str, first: str) -> str:
        """Load consecutive lanes from ``first`` on; the load begins at most a vector before or after the values."""
        code, width = self.code, self.width
        kind, size = shaped(STORED[dtype], width), dtype.bytes
        board = code.allocate(f"[{3 * width} x {STORED[dtype]}]")
        for number, part in enumerate((NONE, raw, NONE)):
            place = code.put(f"getelementptr i8, ptr {board}, i64 {number * width * size}")
            code.do(f"store {kind} {part}, ptr {place}, align {size}")
        # A lane number with the top bit is negative: before the first lane.
        for name, limit in (("smax", -width), ("smin", width)):
            first = code.intrinsic(name, "i32", [("i32", first), ("i32", str(limit))], ["i32"])
        offset = code.put(f"sext i32 {code.put(f'add i32 {first}, {width}')} to i64")
        start = code.put(f"getelementptr {STORED[dtype]}, ptr {board}, i64 {offset}")
        return code.put(f"load {kind}, ptr {start}, align {size}")

    def _stored_and_taken(self, dtype: DType, raw: str, lane: Value) -> str:
        """Load the elements of the wanted lanes, or the one element if the wanted lane is uniform."""
        code, width, kind = self.code, self.width, shaped(STORED[dtype], self.width)
        board = code.allocate(kind)
        code.do(f"store {kind} {raw}, ptr {board}, align 64")
        place = m.Place(board, str(self.step), dtype, True, is_short=True)
        if lane.shape is Shape.UNIFORM:
            address = m.element_address(code, place, lane.text, 0)
            inside = m.in_bounds(code, place, lane.text, 0)
            found = code.put(f"select i1 {inside}, ptr {address}, ptr {m.ZEROS}")
            loaded = code.put(f"load {STORED[dtype]}, ptr {found}, align {dtype.bytes}")
            return spread(code, STORED[dtype], loaded, width)
        wanted = self._vector(lane)
        mask = self._and(self.mask, m.in_bounds(code, place, wanted, width))
        return m.gather(code, place, wanted, mask, width)


def _is_constant(shape: Shape, dtype: DType, texts: list[str]) -> bool:
    """Whether operands are u32 constants in all lanes; folding them lets shuffles find constant lanes."""
    return dtype is DType.U32 and shape is not Shape.VARYING and all(text.isdecimal() for text in texts)


def _is_variable(value: Value) -> bool:
    """Whether a value is a uniform scalar other than a constant."""
    return value.shape is Shape.UNIFORM and value.text.startswith("%")
