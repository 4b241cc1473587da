"""What is a program made of? Expressions and statements.

Statements form a tree over expressions, as in the source. All nodes are frozen; a tree has no parent links, no
names for its nodes and no types: those are facts that ``vyre.analyze`` finds. Operands are evaluated once, in
the order of the fields. A node object may appear in many places (and a subexpression built once may be used
twice); each appearance is evaluated on its own.

The order in which fields stand here is the canonical order of walks, of the text and of the wire. Equality is
structural and exact; it is defined by the wire form (``vyre.ir.wire``), so it is safe at any depth.
"""

from __future__ import annotations

from enum import Enum
from typing import Union

import msgspec

from vyre.semantics.operators import AtomicOp
from vyre.semantics.scalars import from_bits, scalar_cast, to_bits
from vyre.semantics.types import DType


class MemoryOrder(Enum):
    """How an atomic or a barrier orders memory; GRID_SYNC is for barriers alone."""

    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"
    SEQ_CST = "seq_cst"
    GRID_SYNC = "grid_sync"

    __hash__ = object.__hash__


_TAGS: dict[str, int] = {}


def _tag(name: str) -> int:
    return _TAGS.setdefault(name, len(_TAGS))


class Node(msgspec.Struct, frozen=True, eq=False, gc=False, array_like=True, tag=_tag):
    """The base of all nodes: structural equality, and a hash that agrees with it, at any depth.

    msgspec writes a node as its tag, which is its class's place among all, and its fields; the optimizer reads that.
    """

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        from vyre.ir.wire import node_bytes

        return node_bytes(self) == node_bytes(other)

    # A Struct answers != by itself, without asking ==.
    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        from vyre.ir.wire import node_bytes

        return hash(node_bytes(self))

    def __repr__(self) -> str:
        from vyre.ir.printer import short_text

        return f"<{type(self).__name__} {short_text(self)}>"


class Expr(Node, frozen=True, eq=False):
    """An expression. Python's operators build bigger ones; ``==`` compares, so equality is ``a.eq(b)``."""

    def __add__(self, other: Operand) -> BinOp:
        return BinOp("add", self, _operand(other, self))

    def __radd__(self, other: Operand) -> BinOp:
        return BinOp("add", _operand(other, self), self)

    def __sub__(self, other: Operand) -> BinOp:
        return BinOp("sub", self, _operand(other, self))

    def __rsub__(self, other: Operand) -> BinOp:
        return BinOp("sub", _operand(other, self), self)

    def __mul__(self, other: Operand) -> BinOp:
        return BinOp("mul", self, _operand(other, self))

    def __rmul__(self, other: Operand) -> BinOp:
        return BinOp("mul", _operand(other, self), self)

    def __truediv__(self, other: Operand) -> BinOp:
        return BinOp("div", self, _operand(other, self))

    def __rtruediv__(self, other: Operand) -> BinOp:
        return BinOp("div", _operand(other, self), self)

    def __mod__(self, other: Operand) -> BinOp:
        return BinOp("mod", self, _operand(other, self))

    def __rmod__(self, other: Operand) -> BinOp:
        return BinOp("mod", _operand(other, self), self)

    def __lshift__(self, other: Operand) -> BinOp:
        return BinOp("shl", self, _operand(other, self))

    def __rlshift__(self, other: Operand) -> BinOp:
        return BinOp("shl", _operand(other, self), self)

    def __rshift__(self, other: Operand) -> BinOp:
        return BinOp("shr", self, _operand(other, self))

    def __rrshift__(self, other: Operand) -> BinOp:
        return BinOp("shr", _operand(other, self), self)

    def __and__(self, other: Operand) -> BinOp:
        return BinOp("and", self, _operand(other, self))

    def __rand__(self, other: Operand) -> BinOp:
        return BinOp("and", _operand(other, self), self)

    def __or__(self, other: Operand) -> BinOp:
        return BinOp("or", self, _operand(other, self))

    def __ror__(self, other: Operand) -> BinOp:
        return BinOp("or", _operand(other, self), self)

    def __xor__(self, other: Operand) -> BinOp:
        return BinOp("xor", self, _operand(other, self))

    def __rxor__(self, other: Operand) -> BinOp:
        return BinOp("xor", _operand(other, self), self)

    def __lt__(self, other: Operand) -> BinOp:
        return BinOp("lt", self, _operand(other, self))

    def __le__(self, other: Operand) -> BinOp:
        return BinOp("le", self, _operand(other, self))

    def __gt__(self, other: Operand) -> BinOp:
        return BinOp("gt", self, _operand(other, self))

    def __ge__(self, other: Operand) -> BinOp:
        return BinOp("ge", self, _operand(other, self))

    def eq(self, other: Operand) -> BinOp:
        return BinOp("eq", self, _operand(other, self))

    def ne(self, other: Operand) -> BinOp:
        return BinOp("ne", self, _operand(other, self))

    def __neg__(self) -> UnOp:
        return UnOp("neg", self)

    def __invert__(self) -> UnOp:
        return UnOp("not", self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a vyre expression has no truth value in Python. "
            "Fix: use if_(...), select(...), & and | instead of if, and, or; a.eq(b) instead of a == b."
        )


class Lit(Expr, frozen=True, eq=False):
    """A constant, kept as its bits (an unsigned pattern of the type's width) so that it is exact everywhere.

    ``lit(value, dtype)`` makes one from a Python value; ``value`` gives it back. NaNs are canonical.
    """

    bits: int
    dtype: DType

    @property
    def value(self) -> bool | int | float:
        return from_bits(self.bits, self.dtype)


class Var(Expr, frozen=True, eq=False):
    """The current value of a variable."""

    name: str


class Load(Expr, frozen=True, eq=False):
    """An element of a buffer; zero when the index is out of bounds."""

    buffer: str
    index: Expr


class BufLen(Expr, frozen=True, eq=False):
    """The number of elements of a buffer at run time, u32."""

    buffer: str


class InvocationId(Expr, frozen=True, eq=False):
    """The invocation's place in the grid along an axis (0, 1, 2), u32."""

    axis: int


class WorkgroupId(Expr, frozen=True, eq=False):
    """The workgroup's place in the grid along an axis, u32."""

    axis: int


class LocalId(Expr, frozen=True, eq=False):
    """The invocation's place in its workgroup along an axis, u32."""

    axis: int


class NumWorkgroups(Expr, frozen=True, eq=False):
    """The number of workgroups of the grid along an axis, u32."""

    axis: int


class BinOp(Expr, frozen=True, eq=False):
    """A binary operator of the table, named by ``op``."""

    op: str
    left: Expr
    right: Expr


class UnOp(Expr, frozen=True, eq=False):
    """A unary operator of the table, named by ``op``."""

    op: str
    operand: Expr


class Select(Expr, frozen=True, eq=False):
    """``true_value`` where the condition holds, else ``false_value``; all three are evaluated."""

    condition: Expr
    true_value: Expr
    false_value: Expr


class Cast(Expr, frozen=True, eq=False):
    """Conversion to another type."""

    target: DType
    value: Expr


class Bitcast(Expr, frozen=True, eq=False):
    """The same bits as another type of the same width."""

    target: DType
    value: Expr


class Fma(Expr, frozen=True, eq=False):
    """``a * b + c`` with one rounding."""

    a: Expr
    b: Expr
    c: Expr


class Atomic(Expr, frozen=True, eq=False):
    """An indivisible change of one element; its value is the OLD element.

    Out of bounds it gives zero and does nothing. A load has no ``value``; ``expected`` is for compare_exchange
    alone. Evaluated in the order index, expected, value.
    """

    op: AtomicOp
    buffer: str
    index: Expr
    value: Expr | None = None
    expected: Expr | None = None
    order: MemoryOrder = MemoryOrder.SEQ_CST


class SubgroupBallot(Expr, frozen=True, eq=False):
    """Bit k is set where lane k of the subgroup is active and its predicate holds, u32."""

    predicate: Expr


class SubgroupShuffle(Expr, frozen=True, eq=False):
    """The value that lane ``lane`` has; zero where that lane is inactive or does not exist."""

    value: Expr
    lane: Expr


class SubgroupReduce(Expr, frozen=True, eq=False):
    """The values of the active lanes, combined by a reduction operator in a fixed order."""

    op: str
    value: Expr


class SubgroupLocalId(Expr, frozen=True, eq=False):
    """The invocation's lane in its subgroup, u32."""


class SubgroupSize(Expr, frozen=True, eq=False):
    """The number of lanes of a subgroup, a property of the program, u32."""


class Call(Expr, frozen=True, eq=False):
    """A registered composite operation (``vyre.ir.extensions``), inlined before lowering."""

    op_id: str
    args: tuple[Expr, ...]


class OpaqueExpr(Expr, frozen=True, eq=False):
    """An expression of a registered extension, which says what it means."""

    kind: str
    payload: bytes


class Stmt(Node, frozen=True, eq=False):
    """A statement."""


Body = tuple[Stmt, ...]


class Let(Stmt, frozen=True, eq=False):
    """Declares a variable, visible to the end of the enclosing list."""

    name: str
    value: Expr


class Assign(Stmt, frozen=True, eq=False):
    """Gives a variable another value of its type."""

    name: str
    value: Expr


class Store(Stmt, frozen=True, eq=False):
    """Writes an element; nothing happens when the index is out of bounds."""

    buffer: str
    index: Expr
    value: Expr


class If(Stmt, frozen=True, eq=False):
    """Runs one of two lists, each a scope of its own."""

    condition: Expr
    then: Body
    otherwise: Body = ()


class Loop(Stmt, frozen=True, eq=False):
    """Runs the body for ``var`` in start .. stop (half open, u32, evaluated once); ``var`` is immutable."""

    var: str
    start: Expr
    stop: Expr
    body: Body


class While(Stmt, frozen=True, eq=False):
    """Runs the body while the condition, evaluated before each pass, holds."""

    condition: Expr
    body: Body


class Break(Stmt, frozen=True, eq=False):
    """Leaves the innermost loop."""


class Continue(Stmt, frozen=True, eq=False):
    """Goes on with the next pass of the innermost loop."""


class Return(Stmt, frozen=True, eq=False):
    """Ends the invocation; at every later barrier it counts as arrived."""


class Barrier(Stmt, frozen=True, eq=False):
    """Waits for the workgroup, or with GRID_SYNC for the whole grid, and makes earlier writes visible."""

    order: MemoryOrder = MemoryOrder.SEQ_CST


class Block(Stmt, frozen=True, eq=False):
    """A list with a scope of its own."""

    body: Body


class Region(Stmt, frozen=True, eq=False):
    """A block that remembers where it came from: who made it, and from which region."""

    generator: str
    source_region: str | None
    body: Body


class AsyncLoad(Stmt, frozen=True, eq=False):
    """Captures ``size`` bytes of source from byte ``offset`` (zero past the end); the wait writes them at byte 0."""

    source: str
    destination: str
    offset: Expr
    size: Expr
    tag: str


class AsyncStore(Stmt, frozen=True, eq=False):
    """Captures ``size`` bytes of source from byte 0; the wait writes them at byte ``offset`` of destination."""

    source: str
    destination: str
    offset: Expr
    size: Expr
    tag: str


class AsyncWait(Stmt, frozen=True, eq=False):
    """Completes the invocation's transfer of that tag."""

    tag: str


class CopyBytes(Stmt, frozen=True, eq=False):
    """Copies ``size`` bytes of source to destination: zeros past source's end, nothing past destination's end.

    Bytes move as they are, whatever the types. Source and destination are different buffers. Cutting at barriers
    writes these for transfers that are pending across a cut.
    """

    source: str
    destination: str
    source_offset: Expr
    destination_offset: Expr
    size: Expr


class IndirectDispatch(Stmt, frozen=True, eq=False):
    """The grid is the three u32 at that byte offset of the buffer, read when the launch starts."""

    count_buffer: str
    count_offset: int


class Trap(Stmt, frozen=True, eq=False):
    """Posts a request to the host and parks the invocation until the next resume of that tag."""

    address: Expr
    tag: str


class Resume(Stmt, frozen=True, eq=False):
    """A grid-wide point where the host handles the requests of a tag and parked invocations go on."""

    tag: str


class AllReduce(Stmt, frozen=True, eq=False):
    """Combines a buffer element by element over the ranks of a group."""

    op: str
    buffer: str
    group: str


class AllGather(Stmt, frozen=True, eq=False):
    """The ranks' source buffers one after another, in destination."""

    source: str
    destination: str
    group: str


class ReduceScatter(Stmt, frozen=True, eq=False):
    """Combines source over the ranks; each rank's destination gets its share."""

    op: str
    source: str
    destination: str
    group: str


class Broadcast(Stmt, frozen=True, eq=False):
    """Every rank's buffer becomes that of rank ``root``."""

    buffer: str
    root: int
    group: str


class OpaqueStmt(Stmt, frozen=True, eq=False):
    """A statement of a registered extension, which says what it means."""

    kind: str
    payload: bytes


Operand = Union[Expr, int, float, bool]

_DEFAULT_TYPES = {bool: DType.BOOL, int: DType.U32, float: DType.F32}


def lit(value: bool | int | float, dtype: DType | None = None) -> Lit:
    """A constant; without a type, bool, u32 or f32 by what Python says it is."""
    if dtype is None:
        dtype = _DEFAULT_TYPES.get(type(value))
        if dtype is None:
            raise TypeError(f"{value!r} is not a bool, an int or a float. Fix: say its type: lit(value, DType.U32).")
    if dtype.is_float:
        return Lit(to_bits(scalar_cast(DType.F64, dtype)(float(value)), dtype), dtype)
    number = int(value)
    if number != value or not dtype.minimum <= number <= dtype.maximum:
        raise ValueError(
            f"{value!r} is not a value of {dtype} ({dtype.minimum} to {dtype.maximum}). "
            "Fix: choose a wider type, or cast to the type you mean."
        )
    return Lit(number if number >= 0 else number + (1 << dtype.bits), dtype)


def _operand(value: Operand, beside: Expr) -> Expr:
    """An operand given in Python: beside an expression that says its own type, a bare number takes that type."""
    if isinstance(value, Expr):
        return value
    if isinstance(beside, Lit):
        return lit(value, beside.dtype)
    if isinstance(beside, (Cast, Bitcast)):
        return lit(value, beside.target)
    return lit(value)


def own_classes(base: type[Node]) -> tuple[type[Node], ...]:
    """Every node class of a family, in the order of definition (the wire's and the generators' order)."""
    return tuple(base.__subclasses__())


EXPRESSION_CLASSES = own_classes(Expr)
STATEMENT_CLASSES = own_classes(Stmt)

# Nodes at which invocations synchronise or exchange values.
COLLECTIVES = (AllReduce, AllGather, ReduceScatter, Broadcast)
GRID_POINTS = (Resume, *COLLECTIVES)
SUBGROUP_EXCHANGES = (SubgroupBallot, SubgroupShuffle, SubgroupReduce)
SUBGROUP_OPERATIONS = (*SUBGROUP_EXCHANGES, SubgroupLocalId, SubgroupSize)
