"""How is an expression written for vectors of lanes? Uniform parts once, as scalars; all others in every lane.

The value of a lane that is not active means nothing, but computing it is always safe.
"""

from __future__ import annotations

from vyre.analyze.shapes import Id
from vyre.emit.llvm import memory as m
from vyre.emit.llvm.operators import Lanes
from vyre.emit.llvm.text import ELEMENT, STORED, Code, Module, shaped, spread
from vyre.emit.llvm.values import Cell, Shape, Value
from vyre.ir import nodes as n
from vyre.ir import walk
from vyre.semantics.operators import OPERATORS, AtomicOp
from vyre.semantics.reductions import reduction_identity
from vyre.semantics.scalars import to_bits
from vyre.semantics.types import DType

ALL = "splat (i1 true)"
NONE = "zeroinitializer"


class Expressions:
    """Writes expressions. ``mask`` says which lanes are active; ``step`` is how many lanes of a vector are used."""

    def __init__(self, width: int, step: int) -> None:
        self.width, self.step = width, step
        self.code = Code(Module())
        self.vector, self.scalar = Lanes(self.code, width), Lanes(self.code, 0)
        self.mask = ALL
        self.chunk = ""
        self.scratch = 0
        self.places: dict[str, m.Place] = {}
        self.values: dict[str, Value] = {}
        self.cells: dict[str, Cell] = {}
        self.id_values: dict[Id, Value] = {}
        self.notes = dict.fromkeys(
            ("uniform loads", "linear loads", "gathers", "uniform stores", "linear stores", "scatters",
             "masked branches", "uniform branches", "divergent loops", "uniform loops", "runs"), 0
        )  # fmt: skip

    def _iota(self) -> str:
        return f"<{', '.join(f'i32 {lane}' for lane in range(self.width))}>"

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
        text = self.code.put(f"load {kind}, ptr {self._address(cell)}, align 8")
        return Value(cell.dtype, Shape.VARYING if cell.varying else Shape.UNIFORM, text)

    def _reserve(self, size: int) -> int:
        offset = self.scratch
        self.scratch += -(-size // 64) * 64
        return offset

    def _and(self, a: str, b: str) -> str:
        if a == ALL:
            return b
        return a if b == ALL else self.vector.op("and", "i1", a, b)

    def _not(self, mask: str) -> str:
        return self.vector.op("xor", "i1", mask, ALL)

    def _vector(self, value: Value) -> str:
        match value.shape:
            case Shape.VARYING:
                return value.text
            case Shape.UNIFORM:
                return spread(self.code, ELEMENT[value.dtype], value.text, self.width)
            case Shape.LINEAR:
                base = spread(self.code, "i32", value.text, self.width)
                return self.vector.op("add", "i32", base, self._iota())

    def _binary(self, op: str, a: Value, b: Value) -> Value:
        result = OPERATORS[op].result_type(a.dtype)
        shapes = a.shape, b.shape
        if shapes == (Shape.UNIFORM, Shape.UNIFORM):
            return Value(result, Shape.UNIFORM, self.scalar.binary(op, a.dtype, a.text, b.text))
        if (op == "add" and set(shapes) == {Shape.LINEAR, Shape.UNIFORM}) or (
            op == "sub" and shapes == (Shape.LINEAR, Shape.UNIFORM)
        ):
            return Value(result, Shape.LINEAR, self.scalar.binary(op, a.dtype, a.text, b.text))
        if op in ("div", "mod") and a.dtype is DType.U32 and b.shape is Shape.UNIFORM and b.text.startswith("%"):
            return Value(result, Shape.VARYING, self.vector.divide_by_one(op, self._vector(a), b.text))
        return Value(result, Shape.VARYING, self.vector.binary(op, a.dtype, self._vector(a), self._vector(b)))

    def _lanes_for(self, *values: Value) -> tuple[Lanes, Shape, list[str]]:
        """Scalar operations for uniform operands, vector ones for all others."""
        if all(value.shape is Shape.UNIFORM for value in values):
            return self.scalar, Shape.UNIFORM, [value.text for value in values]
        return self.vector, Shape.VARYING, [self._vector(value) for value in values]

    def _evaluate(self, root: n.Expr) -> Value:
        stack: list[Value] = []
        for node in walk.postorder(root):
            count = len(walk.operands(node))
            given = stack[len(stack) - count :]
            if count:
                del stack[-count:]
            stack.append(self._expression(node, given))
        return stack[0]

    def _expression(self, node: n.Expr, given: list[Value]) -> Value:
        match node:
            case n.Var(name):
                value = self.values.get(name)
                return value if value is not None else self._read(self.cells[name])
            case n.Lit(bits, dtype):
                return Value(dtype, Shape.UNIFORM, self.scalar.literal(bits, dtype))
            case n.BinOp(op):
                return self._binary(op, given[0], given[1])
            case n.UnOp(op):
                dtype = OPERATORS[op].result_type(given[0].dtype)
                lanes, shape, texts = self._lanes_for(*given)
                return Value(dtype, shape, lanes.unary(op, given[0].dtype, texts[0]))
            case n.Load(buffer):
                return self._load(self.places[buffer], given[0])
            case n.InvocationId(axis) | n.WorkgroupId(axis) | n.LocalId(axis):
                return self.id_values[type(node), axis]
            case n.NumWorkgroups(axis):
                return Value(DType.U32, Shape.UNIFORM, f"%grid.{'xyz'[axis]}")
            case n.BufLen(buffer):
                return Value(DType.U32, Shape.UNIFORM, self.places[buffer].length)
            case n.Select():
                lanes, shape, texts = self._lanes_for(*given)
                dtype = given[1].dtype
                return Value(dtype, shape, lanes.select(texts[0], ELEMENT[dtype], texts[1], texts[2]))
            case n.Cast(target):
                if given[0].dtype is target:
                    return given[0]
                lanes, shape, texts = self._lanes_for(*given)
                return Value(target, shape, lanes.cast(given[0].dtype, target, texts[0]))
            case n.Bitcast(target):
                lanes, shape, texts = self._lanes_for(*given)
                return Value(target, shape, lanes.bitcast(given[0].dtype, target, texts[0]))
            case n.Fma():
                lanes, shape, texts = self._lanes_for(*given)
                return Value(given[0].dtype, shape, lanes.fma(given[0].dtype, *texts))
            case n.Atomic():
                expected = given[1] if node.expected is not None else None
                operand = given[-1] if node.value is not None else None
                return self._atomic(node.op, self.places[node.buffer], given[0], expected, operand)
            case _:
                return self._subgroup(node, given)

    def _load(self, place: m.Place, index: Value) -> Value:
        code, width = self.code, self.width
        if index.shape is Shape.UNIFORM:
            self.notes["uniform loads"] += 1
            return Value(place.dtype, Shape.UNIFORM, m.load_uniform(code, place, index.text))
        vector = self._vector(index)
        inside = m.in_bounds(code, place, vector, width)
        if index.shape is Shape.LINEAR:
            self.notes["linear loads"] += 1
            raw = self._load_linear(place, index, vector, inside)
        else:
            self.notes["gathers"] += 1
            raw = m.gather(code, place, vector, self._and(self.mask, inside), width)
        return Value(place.dtype, Shape.VARYING, self.vector.from_memory(place.dtype, raw))

    def _load_linear(self, place: m.Place, index: Value, vector: str, inside: str) -> str:
        """Inactive lanes read too: what they get is never used, and it lies in bounds."""
        code, width = self.code, self.width
        if not index.wraps:
            return m.load_consecutive(code, place, index.text, inside, width)
        near, far, end = (code.label(hint) for hint in ("near", "far", "end"))
        self._branch_if_wrapping(index.text, far, near)
        code.begin(near)
        straight = m.load_consecutive(code, place, index.text, inside, width)
        code.go(end)
        code.begin(far)
        around = m.gather(code, place, vector, inside, width, cold=True)
        code.fall(end)
        kind = shaped(STORED[place.dtype], width)
        return code.put(f"phi {kind} [ {straight}, %{near} ], [ {around}, %{far} ]")

    def _branch_if_wrapping(self, base: str, far: str, near: str) -> None:
        wraps = self.code.put(f"icmp ugt i32 {base}, {(1 << 32) - self.width}")
        self.code.branch(wraps, far, near)

    def _atomic(
        self,
        op: AtomicOp,
        place: m.Place,
        index: Value,
        expected: Value | None,
        operand: Value | None,
        *,
        wanted: bool = True,
    ) -> Value:
        vector = self._vector(index)
        mask = self._and(self.mask, m.in_bounds(self.code, place, vector, self.width))
        given, awaited = (NONE if x is None else self._vector(x) for x in (operand, expected))
        old = m.change_each(self.code, op, place, vector, given, awaited, mask, self.width, wanted=wanted)
        return Value(place.dtype, Shape.VARYING, old)

    def _subgroup(self, node: n.Expr, given: list[Value]) -> Value:
        code, width = self.code, self.width
        match node:
            case n.SubgroupLocalId():
                return Value(DType.U32, Shape.LINEAR, "0", wraps=False)
            case n.SubgroupSize():
                return Value(DType.U32, Shape.UNIFORM, str(self.step))
            case n.SubgroupBallot():
                votes = self._and(self.mask, self._vector(given[0]))
                bits = code.put(f"bitcast <{width} x i1> {votes} to i{width}")
                return Value(
                    DType.U32, Shape.UNIFORM, bits if width == 32 else code.put(f"zext i{width} {bits} to i32")
                )
            case n.SubgroupReduce(op):
                return self._reduce(op, given[0])
            case n.SubgroupShuffle():
                return self._shuffle(given[0], given[1])
            case _:
                raise TypeError(f"{type(node).__name__} is not an expression of a kernel")

    def _reduce(self, op: str, value: Value) -> Value:
        """Lane i takes lane i + ceil(n/2), and so on, as ``vyre.semantics.reductions`` says."""
        code, dtype = self.code, value.dtype
        element = ELEMENT[dtype]
        identity = to_bits(reduction_identity(op, dtype), dtype)
        nothing = self.vector.literal(identity, dtype)
        text = self.vector.select(self.mask, element, self._vector(value), nothing)
        lanes, held = self.step, self.width
        while lanes > 1:
            half = (lanes + 1) // 2
            kept = max(2, half)
            kind, nothing = shaped(element, held), Lanes(code, held).literal(identity, dtype)
            parts = []
            for start in (0, half):
                # An odd lane out is combined with the identity, which is the first element of the other vector.
                lane_numbers = [start + lane if start + lane < lanes else held for lane in range(kept)]
                places = ", ".join(f"i32 {number}" for number in lane_numbers)
                parts.append(code.put(f"shufflevector {kind} {text}, {kind} {nothing}, <{kept} x i32> <{places}>"))
            text = Lanes(code, kept).binary(op, dtype, parts[0], parts[1])
            lanes, held = half, kept
        return Value(dtype, Shape.UNIFORM, code.put(f"extractelement {shaped(element, held)} {text}, i32 0"))

    def _shuffle(self, value: Value, lane: Value) -> Value:
        code, width, element = self.code, self.width, ELEMENT[value.dtype]
        held = DType.F32 if element == "float" else value.dtype
        text = self.vector.to_memory(held, self.vector.select(self.mask, element, self._vector(value), NONE))
        kind = shaped(STORED[held], width)
        board = code.allocate(kind)
        code.do(f"store {kind} {text}, ptr {board}, align 64")
        place = m.Place(board, str(self.step), held, True)
        wanted = self._vector(lane)
        mask = self._and(self.mask, m.in_bounds(code, place, wanted, width))
        taken = m.gather(code, place, wanted, mask, width)
        return Value(value.dtype, Shape.VARYING, self.vector.from_memory(held, taken))
